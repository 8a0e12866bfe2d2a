"""Recordings of other tools: what each becomes in our tables, against what its own tool reports or a story worked out by hand (fixtures/foreign/).

Malformed and hostile files: one line of error that says what is wrong and where, and nothing is executed.
"""
import contextlib
import gzip
import json
import os
import pickle
import pickletools
import re
import resource
import sqlite3
import subprocess
import sys

from pythons import torches
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


def compare_heaptrack(t, source, *arguments, is_ordered=True):
    t.need("heaptrack", "heaptrack_print")
    program = t.program(source)
    t.run(["heaptrack", "-o", t.path("ht"), program, *arguments])
    recording = next(t.path(name) for name in os.listdir(t.dir) if name.startswith("ht") and name.endswith((".zst", ".gz")))
    db = imported(t, recording)
    own, expected = own_totals(db), heaptrack_totals(t, recording)
    # Where threads interleave, a free by another one ends heaptrack's one memory of the last block, and it counts fewer temporary blocks than there are.
    compared = (0, 1, 2, 3) if is_ordered else (0, 2, 3)
    t.equal([own[i] for i in compared], [expected[i] for i in compared], f"calls, temporary, peak and leaked bytes of {source}, here and by heaptrack_print")
    t.check(own[1] >= expected[1], f"temporary blocks of {source}: {own[1]}, by heaptrack_print {expected[1]}")
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
        compare_heaptrack(t, source, *arguments, is_ordered=source != "threads.c")


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
    t.need("zstd")
    for codec, whole in (("gzip", gzip.compress(TEXT.encode())), ("zstd", t.run(["zstd", "-qc"], input=TEXT.encode(), status=0).out)):
        for n in (4, 12, 30):  # within the first block: nothing can be read of it, and not what it is
            refused(t, whole[:n], f"the {codec} data is cut off")
            t.equal(t.run([t.tidemark, "summary", t.path("bad")], status=1).errors, f"tidemark: cannot open '{t.path('bad')}': the {codec} data is cut off\n", "any command")
    refused(t, gzip.compress(b"some other text"), "not a tidemark trace")
    unfinished = TEXT.encode()[:-3] + b"c f"
    with open(t.path("raw"), "wb") as file:
        file.write(unfinished)
    t.equal(imported(t, t.path("raw")).row("select complete, cut_reason from trace"), (0, "the last line is cut off"), "a line that is cut off")


@test
def heaptrack_malformed(t):
    """A line that makes no sense ends what is read; where nothing came before it, nothing is made of the file."""
    with open(t.path("raw"), "w", encoding="ascii") as file:
        file.write(TEXT)
    whole = imported(t, t.path("raw")).value("select count(*) from allocation")
    for line, what in (("+ 7", "an allocation of a kind that was not defined"), ("- 9", "a free of a kind that was not defined"), ("t 9 0", "an instruction that was not defined"),
                       ("t 1 9", "a stack node that was not defined"), ("s 9 abc", "the string is not as long as it says"), ("i 5", "an instruction without address and module"),
                       ("a 5 9", "a stack node that was not defined"), ("? 1", "it begins with no letter of heaptrack's"), ("c 1", "the clock goes backwards")):
        path = t.path("raw")
        with open(path, "w", encoding="ascii") as file:
            file.write(TEXT + line + "\n+ 0\n")
        why = f"line {TEXT.count(chr(10)) + 1}: {what}"
        outcome = t.run([t.tidemark, "import", path, "-o", t.path("sound.db"), "--force"], status=0)
        warning = f"tidemark: warning: '{path}' ends at offset {len(TEXT)}: {why}; what comes before it was imported"
        t.equal(outcome.errors.splitlines()[:-1], [warning], "what is said")
        db = Database(t.path("sound.db"))
        t.equal(db.row("select complete, cut_reason, (select count(*) from allocation) from trace"), (0, why, whole), "what comes before it is sound")
    refused(t, (TEXT.splitlines()[0] + "\n? 1\n").encode(), "line 2: it begins with no letter of heaptrack's")
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
    t.equal(db.rows("select reserved_bytes, allocated_bytes from pool_state join heap h on h.id = heap_id where h.name = 'torch.cuda:0' order by ts_ns limit 2"),
            [(20 * MIB, None), (22 * MIB, None)], "reserved at the beginning, and when the segment came; allocated was not told then")
    t.equal(db.row("select size_bytes, device_free_bytes, device_total_bytes, ts_ns / 1000, text from oom join stack_text using (stack_id)"),
            (64 << 30, 5 * MIB, None, 31, "<module>;step;empty_strided"), "out of memory")
    t.equal(db.row("select live_bytes, allocated_bytes, cached_bytes, why from gpu_oom"),
            (22 * MIB, 3_000_100, 22 * MIB - 3_000_100, "asked for 64.0 GiB; this process held 22.0 MiB on cuda:0; 19.1 MiB were cached by the framework and not in use,"
             " in pieces of at most 17.1 MiB"), "the blocks lie in the segments and count once")
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
    for us, start in ((0, None), (-5, None), (1, None), (2, 1000)):
        with open(t.path("early"), "wb") as file:
            pickle.dump({"segments": [], "device_traces": [[entry("alloc", 0, 1, us)]]}, file)
        db = imported(t, t.path("early"))
        t.equal((db.value("select start_unix_ns from trace"), "start_unix_ns" in t.run([t.tidemark, "info", t.path("early")]).text), (start, bool(start)), f"the start, at {us} us")
    db = imported(t, fixture(t, "snapshot-instant.pickle"))
    t.equal(db.rows("select heap, live_bytes from live_at_end where heap like 'torch%' order by 2"), [("torch.cuda:0", 100), ("torch.cuda:1", 4096), ("torch.cuda:0", 2_000_000)],
            "one instant")
    t.equal(db.rows("select score, count(*), sum(reason like 'only one instant is known%') from leak_candidate group by 1"), [(None, 5, 5)], "what is a leak then is not known")
    listed = t.ask("leaks", db.path, status=0)
    t.ask("report", db.path, "-o", t.path("instant.html"), status=0)
    with open(t.path("instant.html"), encoding="utf-8") as file:
        verdict = file.read().partition('id="verdict-leaks">')[2].partition("</p>")[0]
    t.check("of heap <bdi>torch.cuda:0</bdi>" in verdict and "train.py" in verdict and "22.0 MiB" not in verdict, f"the report's verdict, where devices alone hold memory: {verdict}")
    t.check("init" in listed.text and "looks like a leak" not in listed.text and not listed.err, f"nor is anything called unlikely: {listed.text} {listed.errors}")
    data = pickle.load(open(fixture(t, "snapshot.pickle"), "rb"))
    for segment in data["segments"]:
        del segment["allocated_size"], segment["active_size"]
    with open(t.path("without-sums"), "wb") as file:
        pickle.dump(data, file)
    t.equal(imported(t, t.path("without-sums")).rows("select allocated_bytes, active_bytes from pool where heap = 'torch.cuda:0' order by ts_ns desc limit 1"), [(2_000_896, 5_001_216)],
            "segments that do not say what is allocated in them")
    for segment in data["segments"]:
        segment["is_expandable"] = True
    with open(t.path("expandable"), "wb") as file:
        pickle.dump(data, file)
    t.equal(imported(t, t.path("expandable")).rows("select allocated_bytes, inactive_bytes, fragmentation from pool where heap = 'torch.cuda:0' order by ts_ns desc limit 1"),
            [(2_000_896, 0, 0.0)], "free memory of expandable segments can be given back, as PyTorch counts it")


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
    told = [re.search(r"^trace.* complete +(\w+)$", t.run([t.tidemark, "info", path]).text, re.M) for path in (t.path("odd"), db.path)]
    t.equal([found and found[1] for found in told], ["no", "no"], "info of the file and of the database")
    t.equal(db.value("select sum(live_bytes) from live_at_end where heap = 'torch.cuda:0'"), 2_000_100, "live at the end")


@test
def snapshot_high_addresses(t):
    """The same story where addresses are 2^63 and more, as Intel's devices have them; some versions write them as negative numbers. Below 2^60 as in all traces."""
    plain = imported(t, fixture(t, "snapshot.pickle"))
    high = 0xFF << 56
    for told_as in (high, high - (1 << 64)):
        data = pickle.load(open(fixture(t, "snapshot.pickle"), "rb"))
        for holder, key in [(s, "address") for s in data["segments"]] + [(b, "address") for s in data["segments"] for b in s["blocks"]] + [
                (e, "addr") for history in data["device_traces"] for e in history]:
            if key in holder:
                holder[key] += told_as
        with open(t.path("high"), "wb") as file:
            pickle.dump(data, file)
        db = imported(t, t.path("high"))
        blocks = "select heap_id, address - {}, size_bytes, usable_bytes, alloc_ns, free_ns from allocation order by 1, 5, 2"
        t.equal(db.rows(blocks.format(0xF << 56)), plain.rows(blocks.format(0)), "blocks")
        t.equal(db.rows("select kind, count(*) from loss"), [(None, 0)], "nothing is missing")


@test
def frames_without_an_address(t):
    """What has no address is given none: a frame without a name is ?, or its module where that is told."""
    stack = [{"name": "??", "filename": "??", "line": 0}, {"name": "c10::f()", "filename": "/a/b.cpp", "line": 7}]
    with open(t.path("frames"), "wb") as file:
        pickle.dump({"segments": [], "device_traces": [[{**entry("alloc", at, 1, at), "frames": stack[at:]} for at in (0, 1)]]}, file)
    db = imported(t, t.path("frames"))
    t.equal(db.rows("select kind, function, file, line, module_offset from frame order by function"), [("unknown", None, None, None, None), ("unknown", "c10::f()", "/a/b.cpp", 7, None)], "frames")
    t.equal(db.rows("select text from site join stack_text using (stack_id) order by 1"), [("c10::f()",), ("c10::f();?",)], "stacks")
    works(t, db)
    path = nsight(t, 2025)
    with contextlib.closing(sqlite3.connect(path)) as export:
        export.execute("update CUDA_CALLCHAINS set unresolved = 1, originalIP = NULL")
        export.commit()
    db = imported(t, path)
    t.equal(db.rows("select distinct f.function, f.module_offset, m.path from frame f join module m on m.id = f.module_id"), [(None, None, "/opt/app")], "frames of which only the module is told")
    t.equal(db.rows("select distinct text from stack_text where stack_id > 0 order by 1"), [("app",), ("app;app",)], "their stacks")
    t.run([t.tidemark, "import", t.path("frames"), "-o", t.path("other.db")], status=0)
    for command in (["top"], ["peak"], ["check", "--max-peak=1", "--heap=cuda:0", f"--junit={t.path('junit')}"], ["diff", t.path("other.db"), "--heap=cuda:0"], ["query", "@top-allocators"]):
        shown = t.run([t.tidemark, command[0], db.path, *command[1:]]).text
        if command[0] == "check":
            with open(t.path("junit"), encoding="utf-8") as file:
                shown = file.read()
        t.check("+0x" not in shown and re.search(r"\bapp\b", shown), f"{command[0]}: {shown}")
    works(t, db)


@test
def snapshot_start_of_a_large_one(t):
    """When a snapshot of many long names began is known as well as that of a small one: together, they are 100 s apart, whichever comes first."""
    names = [[{"name": f"{'x' * 300}{at}_{depth}", "filename": "??", "line": 0} for depth in range(10)] for at in range(400)]
    for name, us, frames in (("small", 1_700_000_000_000_000, [[]]), ("large", 1_700_000_100_000_000, names)):
        history = [{**entry("alloc", at, 1, us + at), "frames": stack} for at, stack in enumerate(frames)]
        with open(t.path(name), "wb") as file:
            pickle.dump({"segments": [], "device_traces": [history]}, file)
    starts = "select path, start_unix_ns, clock_offset_ns from trace order by 2"
    wanted = [(t.path("small"), 1_699_999_999_999_999_000, 0), (t.path("large"), 1_700_000_099_999_999_000, 100_000_000_000)]
    t.run([t.tidemark, "import", t.path("small"), t.path("large"), "-o", t.path("both.db")], status=0)
    t.equal(Database(t.path("both.db")).rows(starts), wanted, "both at once")
    t.run([t.tidemark, "import", t.path("large"), "-o", t.path("later.db")], status=0)
    t.run([t.tidemark, "import", t.path("small"), "--append", "-o", t.path("later.db")], status=0)
    t.equal(Database(t.path("later.db")).rows(starts), wanted, "the earlier one later")


def entry(action, mib, size_mib, us):
    return {"action": action, "addr": BASE + mib * MIB, "size": size_mib * MIB, "stream": 0, "frames": [], "time_us": us}


def refusal(us):
    return {"action": "oom", "size": 100 * MIB, "device_free": 5 * MIB, "stream": 0, "frames": [], "time_us": us}


def pieces_cached(t, history, segments):
    """[(reserved and not allocated, the longest piece of it)] at each refusal, in MiB."""
    with open(t.path("history"), "wb") as file:
        pickle.dump({"device_traces": [history], "segments": [
            {"device": 0, "address": BASE + mib * MIB, "total_size": size * MIB, "allocated_size": 0, "active_size": 0, "is_expandable": expandable,
             "blocks": [{"size": size * MIB, "state": "inactive"}]} for mib, size, expandable in segments]}, file)
    return [(cached // MIB, largest // MIB) for cached, largest in imported(t, t.path("history")).rows("select cached_bytes, largest_free_bytes from gpu_oom order by ts_ns")]


@test
def snapshot_pieces_that_are_cached(t):
    """A segment of 20 MiB that was given back is none any more, one of 10 is older than the history, one of 2 beside it is another: nobody can have 12 of both."""
    history = [entry("segment_alloc", 0, 20, 1), entry("alloc", 0, 5, 2), entry("free_completed", 0, 5, 3), refusal(4), entry("segment_free", 0, 20, 5), entry("segment_alloc", 64, 2, 6), refusal(7)]
    t.equal(pieces_cached(t, history, [(54, 10, False), (64, 2, False)]), [(30, 20), (12, 10)], "segments")
    # Three pieces that are mapped side by side are one segment of 60; 30 in the middle of it are unmapped at 8.
    history = [entry("segment_map", 0, 20, 1), entry("segment_map", 20, 40, 2), entry("alloc", 0, 50, 3), refusal(4), entry("free_completed", 0, 50, 5), refusal(6),
               entry("segment_unmap", 10, 30, 8), refusal(9)]
    t.equal(pieces_cached(t, history, [(0, 10, True), (40, 20, True)]), [(10, 10), (60, 60), (30, 20)], "a segment that grows and is given back in part")
    t.equal(pieces_cached(t, [entry("segment_map", 20, 20, 1), refusal(2)], [(0, 40, True)]), [(40, 40)], "a segment that is older than the history in part")


@test
def snapshot_that_begins_with_a_release(t):
    """80 MiB that are older than the history are given back by its first entry: they were reserved before."""
    with open(t.path("released"), "wb") as file:
        pickle.dump({"segments": [{"device": 0, "address": BASE + 100 * MIB, "total_size": 2 * MIB, "blocks": []}], "device_traces": [[entry("segment_free", 0, 80, 1), refusal(5)]]}, file)
    db = imported(t, t.path("released"))
    t.equal(db.rows("select ts_ns / 1000, reserved_bytes / 1048576 from pool_state order by ts_ns"), [(0, 82), (1, 2), (5, 2)], "reserved, in microseconds and MiB")
    t.equal(db.value("select reserved_bytes from pool_peak where heap = 'torch.cuda:0' and n is null"), 82 * MIB, "the most")


@test
def snapshot_that_begins_with_the_end_of_a_free(t):
    """The free of 60 MiB had been asked for before the history: they are no block of it, while 10 of which a plain free or its request is told are. What has the address next is one."""
    history = [entry("free_completed", 0, 60, 1), entry("free_requested", 64, 10, 2), entry("free_completed", 64, 10, 3), entry("free", 80, 10, 4), entry("alloc", 0, 1, 5),
               entry("free_completed", 0, 1, 6)]
    with open(t.path("ended"), "wb") as file:
        pickle.dump({"segments": [], "device_traces": [history]}, file)
    db = imported(t, t.path("ended"))
    t.equal(db.rows("select size_bytes / 1048576, alloc_ns / 1000, free_ns / 1000 from allocation order by free_ns"), [(10, 0, 2), (10, 0, 4), (1, 5, 6)], "blocks, in MiB and microseconds")
    t.equal(db.rows("select text from note where kind = 'foreign'"), [(f"2 blocks are older than the history ({20 * MIB} bytes), counted as allocated at its beginning",)], "the older ones")
    t.equal(db.rows("select * from loss"), [], "nothing is missing")


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
    for size in (-1, 1 << 63, 1 << 70, float("nan"), "4"):
        block = {"size": size, "requested_size": 4, "address": 512, "state": "active_allocated"}
        segment = {"device": 0, "address": 512, "total_size": 1024, "blocks": [block]}
        refused(t, pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc", "addr": 512, "size": size, "frames": []}]]}),
                "an entry 'alloc' of a device's history with a size out of range")
        refused(t, pickle.dumps({"segments": [segment], "device_traces": []}), ".*a block with a size out of range at address 0x200")
        block |= {"size": 4, "requested_size": size}
        refused(t, pickle.dumps({"segments": [segment], "device_traces": []}), ".*a live block with a size out of range at address 0x200")
        segment |= {"total_size": size}
        refused(t, pickle.dumps({"segments": [segment], "device_traces": []}), ".*a segment with a size out of range at address 0x200")


# --- torch.profiler

KINETO = """
import collections, sys, torch
from torch.profiler import profile, ProfilerActivity, record_function
torch.manual_seed(1)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as p:
    kept = []
    with record_function("training"):
        for i in range(5):
            loss = model(torch.randn(32, 64)).sum()
            kept.append(loss)
    with record_function("two rands"):
        a, b = torch.rand(1000, 1000), torch.rand(1000, 1000)
        c = a + b
p.export_chrome_trace(sys.argv[1])
calls = collections.Counter(e.name() for e in p.profiler.kineto_results.events())  # key_averages() leaves out one of two of a name that are nested
for e in p.key_averages():
    print(e.key, calls[e.key], e.cpu_memory_usage, e.self_cpu_memory_usage, sep="|")
"""


@test
def kineto_as_torch_counts(t):
    """Every operator on one thread: its own and its total bytes, as key_averages() has them, to the byte. torch.profiler leaves names out that allocate nothing."""
    python, version = torches(t)[-1]
    if version < (2, 0):
        t.skip("no PyTorch of version 2 is here (TIDEMARK_TORCH_PYTHON names a python that has one)")
    with open(t.path("train.py"), "w", encoding="utf-8") as file:
        file.write(KINETO)
    text = t.run([python, t.path("train.py"), t.path("trace.json")]).text
    theirs = {name: (int(count), int(total), int(own)) for name, count, total, own in (line.split("|") for line in text.splitlines() if line.count("|") == 3)}
    theirs = {name: values for name, values in theirs.items() if name != "[memory]"}
    db = imported(t, t.path("trace.json"))
    ours = {name: (count, total, own) for name, count, total, own in db.rows(
        "select name, max(calls), coalesce(sum(total_net_bytes), 0), coalesce(sum(self_net_bytes), 0) from scope_total where name <> '[unscoped]' group by name")}
    t.equal(ours, theirs, "calls, total and own bytes by name")
    t.equal(ours["two rands"][1], 12_000_000, "two tensors of 1000 x 1000 and their sum")
    with open(t.path("trace.json"), "rb") as file:
        data = file.read()
    with open(t.path("packed"), "wb") as file:
        file.write(gzip.compress(data))
    t.equal(imported(t, t.path("packed")).rows("select * from scope_total"), db.rows("select * from scope_total"), "the same from gzip")
    works(t, db)


def kineto_event(phase, name, ts, **more):
    return {"ph": phase, "name": name, "ts": ts, "pid": 7, "tid": 9, **more}


def memory_event(ts, address, size, allocated, reserved, device=0, tid=9):
    return {"ph": "i", "s": "t", "name": "[memory]", "cat": "cpu_instant_event", "ts": ts, "pid": 7, "tid": tid,
            "args": {"Addr": address, "Bytes": size, "Total Allocated": allocated, "Total Reserved": reserved, "Device Id": device, "Device Type": 1}}


@test
def kineto_devices(t):
    """By hand, in no order: step [100, 200) holds conv [110, 150); conv's launch at 120 to 125 is kernel 77. 512 bytes in conv, 256 where step ends and next begins (next has them), and on another thread
    1,024 while step is open: those are in no scope. The free at 140 is of a block older than the profile."""
    events = [memory_event(200, 8192, 256, 1792, 4096), kineto_event("X", "conv", 110, dur=40, cat="cpu_op"), kineto_event("X", "step", 100.0, dur=100, cat="user_annotation"),
              kineto_event("X", "cudaLaunchKernel", 120, dur=5, cat="cuda_runtime", args={"correlation": 77}), memory_event(130.5, 4096, 512, 1536, 4096),
              memory_event(140, 666, -64, 1472, 4096), memory_event(150.25, 16384, 1024, 1536, 4096, tid=11),
              {"ph": "X", "cat": "kernel", "name": "sgemm", "ts": 126, "dur": 10.125, "pid": 0, "tid": 7, "args": {"device": 0, "stream": 7, "correlation": 77}},
              {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "ts": 160, "dur": 2, "pid": 0, "tid": 7, "args": {"device": 0, "stream": 7, "bytes": 4000}},
              kineto_event("X", "next", 200, dur=10, cat="cpu_op"), memory_event(205, 4096, -512, 1280, 4096)]
    data = json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": 1_700_000_000_000_000_000, "host_name": "node1", "distributedInfo": {"rank": 3, "world_size": 8}, "traceEvents": events})
    with open(t.path("trace"), "w", encoding="utf-8") as file:
        file.write(data)
    db = imported(t, t.path("trace"))
    t.equal(db.row("select format_version, start_unix_ns from trace"), ("torch.profiler JSON", 1_700_000_000_000_100_000), "what it is")
    t.equal(db.row("select pid, rank, world_size, host from process"), (7, 3, 8, "node1"), "the process")
    t.equal(db.rows("select a.size_bytes, a.alloc_ns, a.free_ns, s.name from allocation a join scope s on s.id = a.scope_id order by a.alloc_ns"),
            [(512, 30500, 105000, "conv"), (1024, 50250, None, "[unscoped]"), (256, 100000, None, "next")], "blocks and their scopes")
    t.equal(db.rows("select s.name, p.name, s.start_ns, s.end_ns, s.end_kind from scope s left join scope p on p.id = s.parent_id where s.id > 0 order by s.start_ns"),
            [("step", None, 0, 100000, "closed"), ("conv", "step", 10000, 50000, "closed"), ("next", None, 100000, 110000, "closed")], "scopes")
    t.equal(db.rows("select g.kind, g.direction, g.name, g.stream, g.start_ns, g.end_ns, g.size_bytes, s.name from gpu_activity g left join scope s on s.id = g.scope_id order by g.start_ns"),
            [("kernel", None, "sgemm", 7, 26000, 36125, None, "conv"), ("memcpy", "h2d", "Memcpy HtoD (Pageable -> Device)", 7, 60000, 62000, 4000, None)], "what the device did")
    t.equal(db.rows("select kind, count from loss"), [("unmatched-free", 1)], "the free of an older block")
    t.equal(db.row("select allocated_bytes, reserved_bytes, active_bytes from pool_state order by ts_ns limit 1"), (1536, 4096, None), "the pool, as told")
    works(t, db)


@test
def kineto_of_a_busy_device(t):
    """A kernel that was launched before the profile runs when it begins, and comes first in time: it is no process of its own. Before 1.12 the categories had other names."""
    for name, kernel, copy, fill, runtime, operator in (("now", "kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cpu_op"),
                                                        ("old", "Kernel", "Memcpy", "Memset", "Runtime", "Operator")):
        device = {"pid": 0, "tid": 7}
        events = [{"ph": "X", "cat": kernel, "name": "warm", "ts": 10, "dur": 5, "args": {"device": 0, "stream": 7, "correlation": 3}, **device},
                  kineto_event("X", "step", 100, dur=100, cat=operator), memory_event(110, 4096, 512, 512, 4096),
                  kineto_event("X", "cudaLaunchKernel", 120, dur=5, cat=runtime, args={"correlation": 77}),
                  {"ph": "X", "cat": kernel, "name": "sgemm", "ts": 126, "dur": 10, "args": {"device": 0, "stream": 7, "correlation": 77}, **device},
                  {"ph": "X", "cat": copy, "name": "Memcpy DtoH (Device -> Pageable)", "ts": 140, "dur": 2, "args": {"device": 0, "stream": 7, "bytes": 4000}, **device},
                  {"ph": "X", "cat": fill, "name": "Memset (Device)", "ts": 150, "dur": 1, "args": {"device": 0, "stream": 7, "bytes": 64}, **device}]
        with open(t.path(name), "w", encoding="utf-8") as file:
            json.dump({"traceEvents": events}, file)
        db = t.imported(t.path(name))
        t.equal(db.rows("select id, pid from process"), [(1, 7)], f"processes, {name}")
        t.equal(db.rows("select g.process_id, g.kind, g.direction, g.name, g.start_ns, g.launch_ns, s.name from gpu_activity g left join scope s on s.id = g.scope_id order by g.start_ns"),
                [(1, "kernel", None, "warm", 0, None, None), (1, "kernel", None, "sgemm", 116000, 115000, "step"),
                 (1, "memcpy", "d2h", "Memcpy DtoH (Device -> Pageable)", 130000, None, None), (1, "memset", None, "Memset (Device)", 140000, None, None)], f"work, {name}")
        t.equal(db.rows("select s.name, s.category from scope s where s.id > 0"), [("step", "torch.op")], f"scopes, {name}")


@test
def kineto_of_old_versions(t):
    """Before 1.10 PyTorch did not say what its allocator held: nobody knows, and it is not 0."""
    event = memory_event(2, 4096, 1000, 0, 0)
    del event["args"]["Total Allocated"], event["args"]["Total Reserved"]
    with open(t.path("trace"), "w", encoding="utf-8") as file:
        json.dump({"traceEvents": [event]}, file)
    db = imported(t, t.path("trace"))
    t.equal(db.rows("select * from pool_state"), [], "states of the pool")
    t.equal(db.rows("select allocated_bytes, reserved_bytes, idle_bytes from pool_peak"), [(1000, None, None)], "its peaks")


@test
def kineto_as_others_write_it(t):
    """Whole numbers with exponents, as JSON allows; a name of two lines that are not escaped, as PyTorch 2.0 wrote them; and args that have a pid and tid of their own."""
    text = json.dumps({"traceEvents": [kineto_event("X", "a\tb (1): <module>", 1, dur=9, cat="cpu_op", args={"pid": 70, "tid": "90"}), memory_event(2, 4096, 1000, 1000, 2048)]})
    with open(t.path("trace"), "w", encoding="utf-8") as file:
        file.write(text.replace("\\t", "\n").replace('"Addr": 4096, "Bytes": 1000', '"Addr": 4.096e3, "Bytes": 1E+3').replace('"Total Reserved": 2048', '"Total Reserved": 2048.0'))
    db = imported(t, t.path("trace"))
    t.equal(db.rows("select a.address, a.size_bytes, s.name, t.tid, p.pid from allocation a join scope s on s.id = a.scope_id join thread t on t.id = a.thread_id join process p on"
                    " p.id = a.process_id"), [(4096, 1000, "a b (1): <module>", 9, 7)], "the block and its scope")
    t.equal(db.value("select reserved_bytes from pool_state"), 2048, "the pool")


@test
def kineto_high_addresses(t):
    """Two blocks at 2^63 and more, as Intel's devices have them, of which the first is freed: PyTorch writes such addresses as negative numbers, others as they are."""
    for told_as in (0, 1 << 64):
        first, second = told_as - (1 << 56), told_as - (1 << 56) + 512
        with open(t.path("trace"), "w", encoding="utf-8") as file:
            json.dump({"traceEvents": [memory_event(1, first, 512, 512, 4096), memory_event(2, second, 1024, 1536, 4096), memory_event(3, first, -512, 1024, 4096)]}, file)
        t.equal(imported(t, t.path("trace")).rows("select address, size_bytes, free_ns from allocation order by alloc_ns"), [(0xF << 56, 512, 2000), ((0xF << 56) + 512, 1024, None)],
                "the blocks")


@test
def kineto_older_blocks(t):
    """A block that is older than the profile is freed, and 10 us later another thread has its address. That is a new block, which lives on."""
    with open(t.path("trace"), "w", encoding="utf-8") as file:
        json.dump({"traceEvents": [memory_event(1, 4096, -512, 0, 4096), memory_event(11, 4096, 256, 256, 4096, tid=11), memory_event(500, 4096, -256, 0, 4096, tid=11)]}, file)
    db = imported(t, t.path("trace"))
    t.equal(db.rows("select size_bytes, alloc_ns, free_ns from allocation"), [(256, 10000, 499000)], "the new block")
    t.equal(db.rows("select kind, count from loss"), [("unmatched-free", 1)], "the older one's free")
    t.equal(db.value("select max(live_bytes) from peak"), 256, "the peak")


@test
def kineto_malformed(t):
    sound = json.dumps({"traceEvents": [kineto_event("X", "a", 1, dur=1, cat="cpu_op")] * 50})
    refused(t, sound.replace('{"ph"', '@{"ph"').encode(), r"lexical error: .* at byte \d+")
    refused(t, b'{"schemaVersion": 1, "x": []}', "it is JSON, but has no list of traceEvents")
    refused(t, b'{"traceEvents": [' + b'{"ph": "X", "name": "' + b"x" * (5 << 20) + b'"}]}', r"a value of more than 4 MiB at byte \d+")
    with open(t.path("cut"), "w", encoding="utf-8") as file:
        file.write(sound[:1000])
    t.equal(imported(t, t.path("cut")).row("select complete, cut_reason from trace"), (0, "the JSON is cut off"), "JSON that is cut off")
    with open(t.path("deep"), "w", encoding="utf-8") as file:
        file.write('{"traceEvents": [], "x": ' + "[" * 100000 + "]" * 100000 + "}")
    imported(t, t.path("deep"))


@test
def kineto_behind_a_mark(t):
    """A byte order mark, as some editors and shells put before what they save, is no part of the JSON."""
    data = json.dumps({"traceEvents": [kineto_event("X", "a", 1, dur=9, cat="cpu_op"), memory_event(2, 4096, 100, 100, 4096)]}).encode()
    for name, marked in (("plain", b"\xef\xbb\xbf" + data), ("packed", gzip.compress(b"\xef\xbb\xbf" + data))):
        with open(t.path(name), "wb") as file:
            file.write(marked)
        t.equal(imported(t, t.path(name)).rows("select size_bytes from allocation"), [(100,)], f"the block, {name}")
    refused(t, b"\xef\xbb\xbf" * 2 + data, "not a tidemark trace")


@test
def kineto_that_lay_about(t):
    """Lists with a key "ph" are about other things, too. One that was found, of which nothing would be read, is left out; one that is named is imported, and holds nothing."""
    os.mkdir(t.path("found"))
    for name, events in (("water", [{"ph": 7.1, "litres": 3}, {"ph": 6.9}]), ("browser", [{"ph": "X", "cat": "v8", "name": "gc", "ts": 1, "dur": 1, "tid": 1}]),
                         ("timeless", [{"ph": "X", "cat": "cpu_op", "name": "op", "tid": 1}]), ("whole", [memory_event(2, 4096, 100, 100, 4096)])):
        with open(t.path(f"found/{name}.json"), "w", encoding="utf-8") as file:
            json.dump(events, file)
    said = t.ask("import", t.path("found"), "-o", t.path("all.db")).errors
    t.equal(said.splitlines()[:-1], [f"tidemark: warning: '{t.path('found')}/{name}.json' is left out: no event in it is of a kind that is read" for name in ("browser", "water")],
            "what is left out")
    t.equal([os.path.basename(path) for (path,) in Database(t.path("all.db")).rows("select path from trace order by id")], ["timeless.json", "whole.json"], "traces")
    t.equal(imported(t, t.path("found/water.json")).value("select count(*) from allocation"), 0, "one that is named")


@test
def kineto_without_times(t):
    """What says in no sensible way when it was, or how much memory, is left out, and counted. No bytes at all are no event."""
    unsized = [memory_event(2, 64, 1, 1, 1), memory_event(3, 128, 1e30, 1, 1), memory_event(4, 256, 0, 1, 1)]
    del unsized[0]["args"]["Bytes"]
    events = unsized + [memory_event(1, 4096, 512, 512, 4096), memory_event("abc", 8192, 256, 768, 4096), memory_event(5, 4096, -512, 0, 4096),
              {"ph": "X", "name": "op", "pid": 7, "tid": 9, "dur": 1, "cat": "cpu_op"}]
    with open(t.path("trace"), "w", encoding="utf-8") as file:
        file.write(json.dumps({"traceEvents": events}).replace("}]}", '}, {"ph": "X", "name": "far", "ts": 1e300, "dur": 1, "pid": 7, "tid": 9, "cat": "cpu_op"}]}'))
    db = imported(t, t.path("trace"))
    t.equal(db.rows("select size_bytes, alloc_ns, free_ns from allocation"), [(512, 0, 4000)], "what has a time")
    t.equal(db.rows("select kind, count, bytes, reason from loss"), [("sizeless-event", 2, None, "memory events whose size is missing or is no number"),
                                                                        ("timeless-event", 3, None, "events whose time is missing or is no number")], "what has none")


@test
def kineto_long_names(t):
    """Two kernels whose names differ behind 4,200 bytes are two. Behind 16,384 they are one, and a note says how many names were cut."""
    for length, names, letters, notes in ((4200, 2, 12 + 2100 + 2, []), (20000, 1, 12 + (16384 - 12) // 2, [("the names of 2 events are longer than 16384 bytes and were cut: what differs only behind that is one",)])):
        kernels = [{"ph": "X", "cat": "kernel", "name": "void kernel<" + "é" * (length // 2) + end, "ts": ts, "dur": 1, "pid": 0, "tid": 7, "args": {"device": 0, "stream": 7}}
                   for end, ts in (("A>", 3), ("B>", 5))]
        with open(t.path("trace"), "w", encoding="utf-8") as file:
            json.dump({"traceEvents": [kineto_event("X", "op", 1, dur=100, cat="cpu_op"), memory_event(2, 4096, 512, 512, 4096)] + kernels}, file, ensure_ascii=length == 4200)
        db = imported(t, t.path("trace"))
        t.equal(db.rows("select count(distinct name), max(length(name)) from gpu_activity"), [(names, letters)], "names, and their letters")
        t.equal(db.rows("select text from note where text like '%names of%'"), notes, "what is said of it")


@test
def kineto_with_a_far_time(t):
    """One time that is none (0, in another unit, at the ends of what a number holds) costs that event, which is counted, and not the times of all others."""
    for epoch, base in ((1_700_000_000_000_000, 0), (5_000_000, 1_790_000_000_000_000_000)):
        events = [kineto_event("X", "op", epoch, dur=100, cat="cpu_op"), memory_event(epoch + 10, 4096, 512, 512, 4096), memory_event(epoch + 50, 4096, -512, 0, 4096),
                  memory_event(epoch + 60, 8192, 1000, 1000, 4096)]
        for far in ((), (0,) if epoch > 10**15 else (epoch + 3e14, epoch - 3e14), (9.2e15, -9e15), (-9e15,), (9.2e15,)):
            odd = [{"ph": "X", "cat": "kernel", "name": "k", "ts": ts, "dur": 1, "pid": 0, "tid": 7, "args": {"device": 0, "stream": 7}} for ts in far]
            with open(t.path("trace"), "w", encoding="utf-8") as file:
                json.dump({"baseTimeNanoseconds": base, "traceEvents": events + odd}, file)
            db, what = imported(t, t.path("trace")), f"with times {far} beside {epoch}"
            t.equal(db.row("select start_unix_ns, complete from trace"), (base + epoch * 1000, int(not far)), f"the start, {what}")
            t.equal(db.rows("select size_bytes, alloc_ns, free_ns from allocation order by alloc_ns"), [(512, 10000, 50000), (1000, 60000, None)], f"blocks, {what}")
            t.equal(db.value("select end_ns from process"), 100000, f"the end, {what}")
            t.equal(db.rows("select kind, count, reason from loss"),
                    [("timeless-event", len(far), "events whose time is years before or after that of most others")] if far else [], f"what is lost, {what}")


# --- the same recording again


@test
def counts_once(t):
    """A recording that is there already is refused by name, also if it says nothing about when and where it was made, has another name, or is compressed."""
    trace = json.dumps({"traceEvents": [kineto_event("X", "a", 1, dur=9, cat="cpu_op"), memory_event(2, 4096, 100, 100, 4096)]}).encode()
    for name, data in (("one", trace), ("copy", trace), ("packed", gzip.compress(trace)), ("other", trace.replace(b"4096", b"8192"))):
        with open(t.path(name), "wb") as file:
            file.write(data)
    once = [t.tidemark, "import", t.path("one"), "-o", t.path("all.db")]
    t.run(once, status=0)
    for copy in ("one", "copy", "packed"):
        again = t.run([t.tidemark, "import", t.path(copy), "--append", "-o", t.path("all.db")], status=1).errors
        t.equal(again.strip(), f"tidemark: cannot import '{t.path(copy)}': '{t.path('one')}' is the same recording, which would count twice", "again")
    both = t.run([t.tidemark, "import", t.path("one"), t.path("packed"), "-o", t.path("both.db")], status=1).errors
    t.check("is the same recording" in both and not os.path.exists(t.path("both.db")), both)
    t.run([t.tidemark, "import", t.path("other"), "--append", "-o", t.path("all.db")], status=0)
    t.equal(Database(t.path("all.db")).value("select count(*) from allocation"), 2, "two recordings")


@test
def another_takes_the_name(t):
    """One of the same size and age is moved to the name of one that was imported: it is told by its content. The same one with a new
    name is used; once it was told, the times say so."""
    def saved(name, size):
        with open(t.path(name), "w", encoding="utf-8") as file:
            json.dump({"traceEvents": [kineto_event("X", "a", 1, dur=9, cat="cpu_op"), memory_event(2, 4096, size, size, 4096)]}, file)
        os.utime(t.path(name), (10**9, 10**9))
        return t.path(name)

    def asked(name):
        done = t.ask("query", t.path(name), "select size_bytes from allocation", "--format=csv")
        return done.text.split()[-1], done.errors.split()[1]

    one = saved("one", 100)
    t.equal([asked("one"), asked("one")], [("100", "importing"), ("100", "using")], "one")
    os.rename(saved("other", 200), one)
    t.equal([asked("one"), asked("one")], [("200", "importing"), ("200", "using")], "another of its name")
    for end in ("", ".db"):
        os.rename(t.path("one" + end), t.path("renamed" + end))
    os.utime(t.path("renamed.db"), (10**9, 10**9))
    t.equal(asked("renamed"), ("200", "using"), "renamed with its database")
    t.check(os.path.getmtime(t.path("renamed.db")) > 10**9, "the database is newer than the move")
    os.utime(t.path("renamed"))
    os.utime(t.path("renamed.db"), (10**9, 10**9))
    t.equal(asked("renamed"), ("200", "importing"), "renamed, and changed")


@test
def as_many_as_may_be_open(t):
    """Each recording takes a descriptor until the end. The limit is raised as far as it may be; where that is not enough, it is said, and none is called something else."""
    os.mkdir(t.path("many"))
    for rank in range(60):
        with open(t.path(f"many/{rank:02}.json"), "w", encoding="utf-8") as file:
            json.dump({"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 60}, "traceEvents": [memory_event(rank + 1, 4096, 512, 512, 4096)]}, file)

    def limited(soft, hard, *what, status):
        return t.run([t.tidemark, "import", *what, "-o", t.path("many.db"), "--force"], preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)), status=status)

    for what in ([t.path("many")], [t.path(f"many/{rank:02}.json") for rank in range(60)]):
        done = limited(40, 200, *what, status=0)
        t.check("warning" not in done.errors, done.errors[:500])
        t.equal(Database(t.path("many.db")).row("select count(*), count(distinct rank) from process"), (60, 60), "ranks")
        os.remove(t.path("many.db"))
        for hard in (40, 60):
            done = limited(hard, hard, *what, status=1)
            pattern = rf"tidemark: cannot import '.*/many/\d\d.json': Too many open files: .* \d+ have, and 'ulimit -Hn' is {hard}\n"
            t.check(re.fullmatch(pattern, done.errors) and not os.path.exists(t.path("many.db")), done.errors[:500])
    for hard in range(4, 10):  # so few that not one can be read, or that it can be told what it is and no more
        done = limited(hard, hard, t.path("many/00.json"), status=None)
        t.check(done.status == 0 or ("Too many open files" in done.errors and "not a tidemark trace" not in done.errors), f"{hard}: {done.errors}")


# --- Nsight Systems


def nsight(t, year, name="export", without=(), loose=False):
    sys.path.insert(0, os.path.join(t.root, "fixtures/foreign"))
    import make_nsight
    make_nsight.write(t.path(name), year, without, loose)
    return t.path(name)


BLOCKS = """select a.size_bytes, h.name, a.alloc_ns, a.free_ns, s.name, t.tid, x.text from allocation a join heap h on h.id = a.heap_id left join scope s on s.id = a.scope_id
    left join thread t on t.id = a.thread_id left join stack_text x on x.stack_id = a.stack_id order by alloc_ns"""
NSIGHT_BLOCKS = [(64, "cuda-static:0", 100, None, "[unscoped]", None, ""), (1024, "cuda:0", 1150, 5000, "step", 78, "main;make"), (512, "cuda-pool:0", 1350, None, "step", 78, ""),
                 (4096, "cuda-host", 1550, None, "step", 78, ""), (2048, "cuda-managed", 4500, 4600, "[unscoped]", None, "")]


def blocks(db):
    return [tuple("" if v is None and n == 6 else v for n, v in enumerate(row)) for row in db.rows(BLOCKS)]


@test
def nsight_story(t):
    """Added up by hand: fixtures/foreign/make_nsight.py. Everything that an export of 2025 tells."""
    db = imported(t, nsight(t, 2025))
    t.equal(db.row("select format_version, start_unix_ns, complete from trace"), ("Nsight Systems SQLite", 1_700_000_000_000_001_000, 1), "what it is")
    t.equal(db.row("select pid, exe from process"), (77, "/opt/app"), "the process")
    t.equal(blocks(db), NSIGHT_BLOCKS, "blocks, their heaps, scopes, threads and stacks")
    t.equal(db.rows("select s.name, s.category, p.name, s.start_ns, s.end_ns, s.end_kind from scope s left join scope p on p.id = s.parent_id where s.id > 0 order by s.start_ns"),
            [("train", "nvtx", None, 0, 8000, "closed"), ("load", "nvtx:data", "train", 500, 2000, "closed"), ("step", "nvtx", "train", 1000, 4000, "closed")], "ranges")
    t.equal(db.rows("select g.kind, g.direction, g.name, g.stream, g.start_ns, g.end_ns, g.size_bytes, s.name, g.correlation_id from gpu_activity g left join scope s"
                    " on s.id = g.scope_id order by g.start_ns"),
            [("kernel", None, "void sgemm<float>(int)", 7, 2000, 2500, None, "step", 10), ("memcpy", "h2d", None, 7, 2600, 2700, 4000, None, 11),
             ("memcpy", "d2h", None, 0, 2750, 2760, 65536, None, None), ("memset", None, None, 7, 2800, 2810, 100, None, 12)], "what the device did")
    t.equal(db.rows("select tid, name from thread order by 1"), [(None, None), (78, "worker")], "threads")
    t.equal(db.rows("select heap, live_bytes, ts_ns from peak where heap is not null order by 1"),
            [("cuda-host", 4096, 1550), ("cuda-managed", 2048, 4500), ("cuda-pool:0", 512, 1350), ("cuda-static:0", 64, 100), ("cuda:0", 1024, 1150)], "peaks")
    t.equal(db.rows("select ts_ns, allocated_bytes, reserved_bytes from pool_state"), [(1350, 512, 32 << 20)], "the pool, as told")
    t.equal(db.rows("select name, ts_ns from mark"), [("here", 3000)], "the mark")
    t.equal(db.rows("select kind, count from loss"), [("unmatched-free", 1)], "the free of an older block")
    t.equal(db.rows("select device, name, total_bytes from gpu_device"), [(0, "Test GPU", 80 << 30)], "the device")
    works(t, db)


@test
def nsight_years(t):
    """What an older export does not have, and tables that were not recorded, cost what they tell, each with a note."""
    for year in (2023, 2026):
        t.equal(blocks(imported(t, nsight(t, year, str(year)))), NSIGHT_BLOCKS, str(year))
    db = imported(t, nsight(t, 2021, "2021"))
    t.equal(blocks(db), [b if b[1] != "cuda-pool:0" else (*b[:1], "cuda:0", *b[2:]) for b in NSIGHT_BLOCKS], "2021 does not tell pools")
    t.equal(db.rows("select name, category from scope where id > 0 order by start_ns"), [("train", "nvtx"), ("load", "nvtx:data"), ("step", "nvtx")], "2021 says '' for no text")
    for table, count, note in (("CUPTI_ACTIVITY_KIND_RUNTIME", 5, "no CUDA calls"), ("CUDA_CALLCHAINS", 5, "no call stacks"), ("NVTX_EVENTS", 5, "no NVTX ranges"),
                               ("CUDA_GPU_MEMORY_USAGE_EVENTS", 0, "no memory events"), ("CUPTI_ACTIVITY_KIND_KERNEL", 5, None)):
        db = imported(t, nsight(t, 2025, f"no-{table}", (table,)))
        t.equal(db.value("select count(*) from allocation"), count, f"blocks without {table}")
        if note:
            t.check(any(note in text for text, in db.rows("select text from note")), f"a note about {table}: {db.rows('select text from note')}")
    everything = ("CUDA_GPU_MEMORY_USAGE_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET", "NVTX_EVENTS")
    with open(nsight(t, 2025, "none", everything), "rb") as file:
        refused(t, file.read(), "it is an export of Nsight Systems, but holds no memory events, ranges or work on devices", "empty")


@test
def nsight_without_columns(t):
    """Of each column that is not there a note says so, and that its table cannot tell it; one that others take the place of needs none."""
    lost = {"CUDA_GPU_MEMORY_USAGE_EVENTS": ("memKind", "correlationId", "localMemoryPoolSize"), "CUPTI_ACTIVITY_KIND_RUNTIME": ("callchainId",),
            "CUPTI_ACTIVITY_KIND_KERNEL": ("start", "streamId"), "CUPTI_ACTIVITY_KIND_MEMCPY": ("bytes",), "NVTX_EVENTS": ("domainId",),
            "ThreadNames": ("nameId",), "TARGET_INFO_GPU": ("name",)}
    for table, columns in lost.items():
        for column in columns:
            path = nsight(t, 2025, f"no-{table}-{column}")
            with contextlib.closing(sqlite3.connect(path)) as export:
                export.execute(f"alter table {table} drop column {column}")
            notes = [text for (text,) in imported(t, path).rows("select text from note where kind = 'foreign'")]
            t.equal([text.split(": ")[1].split(" ")[0] for text in notes if f"table {table} lacks columns" in text], [column], f"{table}.{column}: {notes}")
            t.equal(any("all memory counts as the device's" in text for text in notes), column == "memKind", f"{table}.{column}: {notes}")
    whole = imported(t, nsight(t, 2025, "whole")).rows("select text from note where kind = 'foreign' and (text like '%lacks%' or text like '%no table%')")
    t.equal(whole, [], "notes of an export that has all")


@test
def nsight_hostile(t):
    """Wrong types, NULLs, numbers out of all bounds, a view instead of a table, cut pages: rows that make no sense are counted, or one line says what is wrong."""
    for name, change, lost in (
            ("text", "update CUDA_GPU_MEMORY_USAGE_EVENTS set start = 'soon' where memKind = 1", 1),
            ("null", "update CUDA_GPU_MEMORY_USAGE_EVENTS set start = NULL, bytes = NULL where memKind = 1", 1),
            ("negative", "update CUDA_GPU_MEMORY_USAGE_EVENTS set bytes = -5 where memKind = 1", 1),
            ("far", "update CUDA_GPU_MEMORY_USAGE_EVENTS set start = 9223372036854775807 where memKind = 1", 1),
            ("blob", "update CUDA_GPU_MEMORY_USAGE_EVENTS set memKind = x'00ff', deviceId = 1e300, globalPid = 'x'", 0),
            ("kinds", "update CUDA_GPU_MEMORY_USAGE_EVENTS set memKind = 123456789012, deviceId = -7, correlationId = -1", 0),
            ("names", "update StringIds set value = x'ff00fe' || char(27) || '[31m'; update CUDA_CALLCHAINS set stackDepth = NULL, symbol = 'x', id = 5", 0),
            ("chains", "update NVTX_EVENTS set end = start - 1, text = NULL, textId = -1", 0),
            ("many", "with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000) insert into CUDA_CALLCHAINS(id, symbol, stackDepth) select 5, 1, i from n", 0)):
        path = nsight(t, 2025, name, loose=True)
        with sqlite3.connect(path) as export:
            export.executescript(change)
        db = imported(t, path)
        t.equal(db.value("select coalesce(sum(count), 0) from loss where kind = 'odd-row' and bytes is null"), lost, f"rows lost for {name}")
        works(t, db)
    path = nsight(t, 2025, "view", ("CUDA_GPU_MEMORY_USAGE_EVENTS",))
    with sqlite3.connect(path) as export:
        export.executescript("create view CUDA_GPU_MEMORY_USAGE_EVENTS as with recursive n(i) as (select 1 union all select i + 1 from n) select i as start, 0 as globalPid,"
                             " i as address, 1 as bytes, 2 as memKind, 0 as memoryOperationType, 0 as correlationId from n")
    t.equal(imported(t, path).value("select count(*) from allocation"), 0, "a view is no table")
    path = nsight(t, 2025, "long")
    with sqlite3.connect(path) as export:
        export.execute("update NVTX_EVENTS set text = ? where text = 'train'", ("x" * (3 << 20),))
    with open(path, "rb") as file:
        refused(t, file.read(), "cannot read it: string or blob too big", "long")
    with open(nsight(t, 2025, "cut"), "rb") as file:
        data = file.read()
    for size in (4096, 20000, len(data) // 2):
        refused(t, data[:size], "(cannot read it|it is an SQLite file, and damaged or cut): database disk image is malformed", f"cut at {size}")
    for page in range(1, len(data) // 4096):
        damaged = data[:page * 4096] + b"\xff" * 4096 + data[(page + 1) * 4096:]
        with open(t.path("damaged"), "wb") as file:
            file.write(damaged)
        outcome = t.run([t.tidemark, "import", t.path("damaged"), "-o", t.path("damaged.db"), "--force"], status=None)
        t.check(outcome.status in (0, 1) and len(outcome.errors.splitlines()) == 1, f"page {page}: {outcome.status}, {outcome.errors}")


main()
