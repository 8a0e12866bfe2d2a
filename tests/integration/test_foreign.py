"""Recordings of other tools: what each becomes in our tables, against what its own tool reports or a story worked out by hand (fixtures/foreign/).

Malformed and hostile files: one line of error that says what is wrong and where, and nothing is executed.
"""
import gzip
import io
import json
import os
import pickle
import pickletools
import re
import sqlite3
import struct
import subprocess
import sys

from tidemark_test import Database, main, test

MIB = 1 << 20
BASE = 0x7F0000000000


def fixture(t, name):
    return os.path.join(t.root, "fixtures/foreign", name)


def imported(t, path, *options):
    db = t.path("foreign.db")
    t.run([t.tidemark, "import", path, "-o", db, "--force", *options])
    return Database(db)


def refused(t, data, pattern, name="bad"):
    path = t.path(name)
    with open(path, "wb") as file:
        file.write(data)
    outcome = t.run([t.tidemark, "import", path, "-o", t.path("bad.db"), "--force"], status=1)
    t.equal(len(outcome.errors.splitlines()), 1, f"lines of error about {name}: {outcome.errors}")
    t.check(re.fullmatch(rf"tidemark: cannot import '{re.escape(path)}': {pattern}", outcome.errors.strip()), f"error about {name}: {outcome.errors}")
    t.check(not os.path.exists(t.path("bad.db")), "no database is left")


def works(t, db):
    """Every command answers from it."""
    for command in (["summary"], ["peak"], ["leaks"], ["scopes"], ["timeline"], ["temporary"], ["processes"], ["snapshot", "--at=end"]):
        t.run([t.tidemark, command[0], db.path, *command[1:]])
    for form in ("chrome", "folded", "pprof", "heaptrack", "speedscope"):
        t.run([t.tidemark, "export", form, db.path, "-o", t.path(f"out.{form}"), "--force"])


# --- heaptrack

def heaptrack_totals(t, recording):
    """(calls, temporary, peak, leaked): the flame graph costs are exact, the summary rounds."""
    text = t.run(["heaptrack_print", "-f", recording, "-p", "0", "-a", "0", "-T", "0", "-l", "0"]).text
    costs = {}
    for kind in ("allocations", "temporary", "peak", "leaked"):
        t.run(["heaptrack_print", "-f", recording, "-F", t.path("stacks"), "--flamegraph-cost-type", kind, "-p", "0", "-a", "0", "-T", "0", "-l", "0"])
        with open(t.path("stacks"), encoding="utf-8", errors="replace") as file:
            costs[kind] = sum(int(line.rsplit(" ", 1)[1]) for line in file)
    t.equal(int(re.search(r"calls to allocation functions: (\d+)", text)[1]), costs["allocations"], "heaptrack's calls by both of its ways")
    return costs["allocations"], costs["temporary"], costs["peak"], costs["leaked"]


def own_totals(db):
    return (db.value("select sum(allocations) from site"), db.value("select sum(temporary) from site"), db.value("select live_bytes from peak where heap = 'malloc'"),
            db.value("select coalesce(sum(live_bytes), 0) from live_at_end"))


def compare_heaptrack(t, source, *arguments):
    t.need("heaptrack", "heaptrack_print")
    program = t.program(source)
    t.run(["heaptrack", "-o", t.path("ht"), program, *arguments])
    recording = next(t.path(name) for name in os.listdir(t.dir) if name.startswith("ht") and name.endswith((".zst", ".gz")))
    db = imported(t, recording)
    t.equal(own_totals(db), heaptrack_totals(t, recording), f"calls, temporary, peak and leaked bytes of {source}, here and by heaptrack_print")
    return db, recording


@test
def heaptrack(t):
    db, recording = compare_heaptrack(t, "leak.c")
    t.equal(db.row("select format_version, complete, cut_reason from trace"), ("heaptrack 3", 1, None), "what it is")
    t.equal(db.row("select count(*), count(address), count(usable_bytes) from allocation")[1:], (0, 0), "what heaptrack does not know is NULL")
    t.equal(db.row("select pid, (select tid from thread) from process"), (None, None), "process and thread ids")
    t.equal(db.value("select sum(live_bytes) from live_at_end where function = 'remember'"), 51200, "what remember() leaks")
    t.equal(db.value("select count(*) from allocation where free_ns < alloc_ns"), 0, "no block ends before it begins")
    t.check("heaptrack 3" in t.run([t.tidemark, "info", recording]).text and "heaptrack 3" in t.run([t.tidemark, "info", db.path]).text, "info says what it came from")
    works(t, db)


@test
def heaptrack_programs(t):
    for source, arguments in (("sizes.c", ()), ("recursion.c", ("50",)), ("threads.c", ())):
        for name in os.listdir(t.dir):
            if name.startswith("ht"):
                os.unlink(t.path(name))
        compare_heaptrack(t, source, *arguments)


TEXT = ("v 10400 3\nX ./tiny\nI 1000 10\ns 4 tiny\ns 4 main\ns 4 load\ns 6 tiny.c\ni 1010 1 2 4 c\nt 1 0\ni 1020 1 3 4 5 2 4 d\nt 2 1\na 64 2\n+ 0\n+ 0\n- 0\na c8 1\nc a\n"
        "+ 1\n- 0\nR 3\nc f\n")


@test
def heaptrack_text(t):
    """Two of 100 bytes from load, inlined into main; one of 200 from main at 10 ms. 200 live at first, 300 never: one is freed before."""
    with open(t.path("tiny"), "w", encoding="utf-8") as file:
        file.write(TEXT)
    db = imported(t, t.path("tiny"))
    t.equal(own_totals(db), (3, 1, 300, 200), "calls, temporary, peak, leaked")
    t.equal(db.row("select ts_ns from peak where heap = 'malloc'")[0] // 1000000, 10, "ms of the peak")
    t.equal(db.value("select end_ns from process"), 15000000, "its end")
    t.equal(db.row("select value, ts_ns / 1000000 from sample where name = 'rss'"), (3 * 4096, 10), "resident memory")
    t.equal(db.rows("select distinct text from site join stack_text using (stack_id) order by 1"), [("main",), ("main;main;load",)], "stacks")
    t.equal(db.row("select file, line from site where function = 'load'"), ("tiny.c", 5), "where load() allocates")
    with open(t.path("raw"), "wb") as file:
        file.write(gzip.compress(TEXT.encode())[:-30])
    db = imported(t, t.path("raw"))
    t.equal(db.row("select complete, cut_reason from trace"), (0, "the gzip data is cut off"), "a file that is cut off")
    unfinished = TEXT.encode()[:-3] + b"c f"
    with open(t.path("raw"), "wb") as file:
        file.write(unfinished)
    t.equal(imported(t, t.path("raw")).row("select complete, cut_reason from trace"), (0, "the last line is cut off"), "a line that is cut off")


@test
def heaptrack_malformed(t):
    for line, what in (("+ 7", "an allocation of a kind that was not defined"), ("- 9", "a free of a kind that was not defined"), ("t 9 0", "an instruction that was not defined"),
                       ("t 1 9", "a stack node that was not defined"), ("s 9 abc", "the string is not as long as it says"), ("i 5", "an instruction without address and module"),
                       ("a 5 9", "a stack node that was not defined"), ("? 1", "it begins with no letter of heaptrack's"), ("c 1", "the clock goes backwards")):
        refused(t, (TEXT + line + "\n").encode(), f"line {TEXT.count(chr(10)) + 1}: {re.escape(what)}")
    refused(t, TEXT.replace("10400 3", "10900 4").encode(), "it has heaptrack file version 4, this tidemark reads 1 to 3")
    refused(t, b"v 10400 3\nx 4 tiny\n", "it is heaptrack's raw recording: .*")


# --- PyTorch's memory snapshots

@test
def snapshot(t):
    """The story of fixtures/foreign/make_snapshot.py."""
    db = imported(t, fixture(t, "snapshot.pickle"))
    t.equal(db.row("select format_version, start_unix_ns, complete from trace"), ("PyTorch memory snapshot", 1_700_000_000_000_009_000, 1), "what it is")
    t.equal(db.rows("select h.name, h.kind, h.device, p.name from heap h left join heap p on p.id = h.parent_id order by h.id"),
            [("cuda:0", "device", 0, None), ("torch.cuda:0", "tensor", 0, "cuda:0"), ("cuda:1", "device", 1, None), ("torch.cuda:1", "tensor", 1, "cuda:1")], "heaps")
    t.equal(db.rows("select size_bytes, usable_bytes, alloc_ns / 1000, free_ns / 1000 from allocation join heap h on h.id = heap_id where h.name = 'torch.cuda:0' order by alloc_ns"),
            [(1000, None, 0, 21), (3_000_000, None, 1, 41), (100, 512, 11, None), (2_000_000, 2_000_384, 51, None)], "blocks, in microseconds")
    t.equal(db.rows("select address, size_bytes, alloc_ns / 1000, free_ns from allocation join heap h on h.id = heap_id where h.name = 'cuda:0' order by alloc_ns"),
            [(BASE, 20 * MIB, 0, None), (BASE + 32 * MIB, 2 * MIB, 11, None)], "segments")
    t.equal(dict(db.rows("select heap, live_bytes from peak where heap is not null")),
            {"cuda:0": 22 * MIB, "torch.cuda:0": 3_001_100, "cuda:1": 2 * MIB, "torch.cuda:1": 4096}, "peaks")
    t.equal(db.row("select allocated_bytes, reserved_bytes, active_bytes, inactive_bytes from pool_state join heap h on h.id = heap_id where h.name = 'torch.cuda:0' order by ts_ns desc limit 1"),
            (2_000_896, 22 * MIB, 5_001_216, 22 * MIB - 5_001_216), "the pool at the end")
    t.equal(db.rows("select reserved_bytes, allocated_bytes from pool_state join heap h on h.id = heap_id where h.name = 'torch.cuda:0' order by ts_ns limit 1"), [(22 * MIB, None)],
            "reserved when the segment came; allocated was not told then")
    t.equal(db.row("select size_bytes, device_free_bytes, device_total_bytes, ts_ns / 1000, text from oom join stack_text using (stack_id)"),
            (64 << 30, 5 * MIB, None, 31, "<module>;step;empty_strided"), "out of memory")
    t.equal(db.row("select name, ts_ns / 1000 from mark"), ("snapshot", 61), "the mark")
    t.equal(db.rows("select function, file, line, live_bytes from live_at_end where heap = 'torch.cuda:0' order by live_bytes"),
            [("forward", "model.py", 3, 100), ("step", "train.py", 7, 2_000_000)], "live at the end, by Python line")
    t.equal(db.rows("select kind, count(*) from loss"), [(None, 0)], "nothing is missing")
    works(t, db)


@test
def snapshot_variants(t):
    timed = imported(t, fixture(t, "snapshot.pickle")).rows("select heap, live_bytes, live_count from peak order by 1")
    db = imported(t, fixture(t, "snapshot-untimed.pickle"))
    t.equal(db.rows("select heap, live_bytes, live_count from peak order by 1"), timed, "peaks of the same history without times")
    t.equal(db.value("select count(*) from note where text like '%no times%'"), 1, "it is said")
    t.equal(db.value("select start_unix_ns from trace"), None, "when it was is unknown")
    db = imported(t, fixture(t, "snapshot-instant.pickle"))
    t.equal(db.rows("select heap, live_bytes from live_at_end where heap like 'torch%' order by 2"), [("torch.cuda:0", 100), ("torch.cuda:1", 4096), ("torch.cuda:0", 2_000_000)],
            "one instant")


@test
def snapshot_disagrees(t):
    """A block that is live in the history and not at the end, and one that is freed there and live at the end: the end is believed, and it is counted."""
    data = pickle.load(open(fixture(t, "snapshot.pickle"), "rb"))
    history = data["device_traces"][0]
    history.insert(1, {"action": "alloc", "addr": BASE + 6 * MIB, "size": 700, "stream": 0, "frames": [], "time_us": history[0]["time_us"]})
    history.append({"action": "free_requested", "addr": BASE + 32 * MIB, "size": 100, "stream": 0, "frames": [], "time_us": history[-1]["time_us"]})
    with open(t.path("odd"), "wb") as file:
        pickle.dump(data, file)
    db = imported(t, t.path("odd"))
    t.equal(db.rows("select kind, count, bytes from loss"), [("inconsistent-block", 2, 800)], "what is counted")
    t.equal(db.value("select complete from trace"), 0, "the trace is not complete")
    t.equal(db.value("select sum(live_bytes) from live_at_end where heap = 'torch.cuda:0'"), 2_000_100, "live at the end")


class Runs:
    """Its pickle makes a file when Python loads it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


@test
def snapshot_hostile(t):
    """Nothing is executed, every refusal names its opcode and byte, and each ends at once. The places come from pickletools."""
    victim = t.path("victim")
    for protocol, wanted in ((2, "GLOBAL"), (4, "STACK_GLOBAL")):
        data = pickle.dumps({"segments": [], "device_traces": [Runs(victim)]}, protocol=protocol)
        at = next(place for op, _, place in pickletools.genops(data) if op.name == wanted)
        refused(t, data, f"it would run code: opcode {wanted} is refused, at byte {at}")
    for op, name in ((b"R", "REDUCE"), (b"b", "BUILD"), (b"\x81", "NEWOBJ"), (b"\x92", "NEWOBJ_EX"), (b"ios\nsystem\n", "INST"), (b"o", "OBJ"), (b"\x82\x01", "EXT1"),
                     (b"Q", "BINPERSID"), (b"Px\n", "PERSID")):
        refused(t, b"\x80\x02}" + op + b".", f"it would run code: opcode {name} is refused, at byte 3")
    t.check(not os.path.exists(victim), "nothing was executed")
    sound = open(fixture(t, "snapshot.pickle"), "rb").read()
    for n in (3, 12, 100, len(sound) // 2, len(sound) - 1):
        refused(t, sound[:n], r"it is cut off, or a length is too large, at byte \d+")
    lengths = [b"\x80\x04X\xff\xff\xff\xff.", b"\x80\x04\x8d" + b"\xff" * 8 + b".", b"\x80\x04\x95" + b"\xff" * 8 + b".", b"\x80\x04\x8b\xff\xff\xff\x7f."]
    for data in lengths:
        refused(t, data, r"it is cut off, or a length is too large, at byte \d+")
    refused(t, b"\x80\x04]r\xff\xff\xff\x7f.", r"a number of the memo out of order at byte \d+")
    for data, what in ((b"\x80\x04]h\x05.", "a number that is not in the memo"), (b"\x80\x04e.", "there is no mark"), (b"\x80\x04a.", "the stack is empty"),
                       (b"\x80\x04](K\x01u.", "values for what is no list or dictionary"), (b"\x80\x04}(K\x01u.", "a key without a value"), (b"\x80\x05\x80\x09.", "a protocol above 5"),
                       (b"\x80\x04\xf7.", "unknown opcode 0xf7")):
        refused(t, data, re.escape(what) + r" at byte \d+")
    refused(t, pickle.dumps({"weights": [1, 2]}), "the pickle is no memory snapshot of PyTorch's: it has no list of segments")
    nested = b"\x80\x04" + b"]" * 200000 + b"a" * 199999 + b"."
    refused(t, nested, ".*segment that makes no sense")
    itself = b"\x80\x04]\x94h\x00a."  # a list that holds itself
    refused(t, itself, ".*segment that makes no sense")
    refused(t, b"\x80\x04" + b"]\x94" * 1 + b"(h\x00" * 0 + b"0" + b"2" * 5 + b".", r"the stack is empty at byte \d+")
    big = [{"action": "alloc", "addr": 512, "size": 1, "frames": []}] * 20000
    refused(t, pickle.dumps({"segments": [], "device_traces": [big] * 1000 + [big] * 20}), "it repeats itself far beyond its size")


main()
