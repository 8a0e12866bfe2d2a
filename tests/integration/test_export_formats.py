"""Exports for other tools: pprof, speedscope, heaptrack, CSV. Each is read by its real reader where that is installed, and by a reader written here after
the format's own description; what is read must add up to what SQL says, stack by stack and to the byte."""
import collections
import csv
import glob
import gzip
import io
import json
import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import time

from tidemark_test import main, test
from trace_writer import Trace, free, malloc, mmap, munmap

ODD_NAMES = ["quote\" and <b>&amp;", "new\nline", "semi;colon", "\u202Eright to left", "x" * 100_000, "tab\tand\rreturn"]


def recorded(t):
    """A database of a real program with several stacks, threads and heaps."""
    return t.imported(t.record([t.program("leak.c")])).path


def odd_database(t):
    """A database made by hand: two processes, one with a rank; odd names; a heap inside of another; an inline frame; bytes that are no UTF-8."""
    path = t.path("odd.db")
    db = sqlite3.connect(path)
    for name in ("tables", "views"):
        with open(os.path.join(t.root, "schema", f"{name}.sql"), encoding="utf-8") as file:
            db.executescript(file.read())
    db.execute("insert into meta values ('schema_version', ?)", (t.imported(t.record(["true"])).value("select value from meta where key = 'schema_version'"),))
    db.execute("insert into trace values (1, 'x.tmk', 'h', NULL, '1.0', 1700000000000000000, 'monotonic', 0, 0, 1, 'a b', NULL, 1, 1, NULL, 0, 9000000)")
    for process, rank in ((1, None), (2, 7)):
        db.execute("insert into process values (?, 1, ?, NULL, ?, NULL, NULL, 'h', '/bin/x', 'x', 0, 8000000, 9000000, 'exit', 0, 0, 0, 1, 0, 0, NULL)",
                   (process, 100 + process, rank))
        db.execute("insert into thread values (?, ?, ?, NULL, NULL, NULL)", (process, process, 100 + process))
    db.executemany("insert into heap values (?, ?, ?, ?, NULL, ?, ?, 0)",
                   [(1, 1, "malloc", "host", None, 1), (2, 1, "pool", "pool", 1, 0), (3, 2, "malloc", "host", None, 1)])
    db.execute("insert into module values (1, 1, '/lib/a b\"c.so', 'beef', 4096, 4096, 8192, 0, NULL)")
    for number, name in enumerate(ODD_NAMES, 1):
        db.execute("insert into frame values (?, 'native', ?, '/src/f.c', ?, 1, ?, 0)", (number, name, 10 * number, 16 * number))
        db.execute("insert into stack values (?, ?, ?, ?, ?)", (number, number - 1, number, number, number))
    db.execute("insert into frame values (7, 'native', cast(x'ff41' as text), NULL, NULL, 1, 999, 0)")
    db.execute("insert into frame values (8, 'unknown', NULL, NULL, NULL, NULL, 4660, 0)")
    db.executemany("insert into stack values (?, ?, ?, ?, ?)", [(7, 6, 7, 7, 7), (8, 7, 8, 8, 8), (9, 0, 8, 1, 8)])
    rows, totals = [], []
    for number, (process, heap, stack) in enumerate([(1, 1, 1), (1, 1, 8), (1, 1, 0), (1, 2, 3), (2, 3, 6), (2, 3, 9)], 1):
        size = 10 ** number
        at_process_peak = (0, 0) if heap == 2 else (2 * size, 2)
        totals.append((process, heap, stack, 3, 3 * size, 1, size, 1, size, 3 * size, 3, *at_process_peak, size, 1, size, 1))
        origin = number
        db.execute("insert into allocation_origin values (?, ?, ?, ?, 'malloc')", (origin, process, heap, process))
        rows += [(None, origin, 4096 + number, size, 0, 1000 * number, stack, 0, 0, None, None, None, None),
                 (None, origin, 8192 + number, size, 0, 1000 * number + 500, stack, 8_500_000, process, None, None, None, None),
                 (None, origin, 9192 + number, size, 0, 2_000_000, stack, None, None, None, None, None, None)]
    db.executemany(f"insert into allocation_packed values ({','.join('?' * 13)})", rows)
    columns = ("process_id, heap_id, stack_id, allocations, allocated_bytes, frees, freed_bytes, temporary, temporary_bytes, peak_bytes, peak_count, "
               "process_peak_bytes, process_peak_count, live_at_exit_bytes, live_at_exit_count, live_at_end_bytes, live_at_end_count")
    others = [row[1] for row in db.execute("pragma table_info(site_total)") if row[1] not in columns.split(", ")]
    db.executemany(f"insert into site_total ({', '.join([columns, *others])}) values ({', '.join(['?'] * 17 + ['0'] * len(others))})", totals)
    db.commit()
    db.close()
    return path


def export(t, form, db, *options, name=None):
    path = t.path(name or f"out.{form}")
    t.run([t.tidemark, "export", form, db, "-o", path, "--force", *options])
    with open(path, "rb") as file:
        data = file.read()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


# --- pprof: a second reader of profile.proto

def fields(data):
    """(number, value) of each field of a protobuf message: integers, or bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        else:
            assert tag & 7 == 2, f"wire type {tag & 7}"
            n = varint()
            yield tag >> 3, data[at:at + n]
            at += n
            assert at <= len(data)


def numbers(data):
    """A packed list of varints; two's complement of 64 bits."""
    out, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            out.append(value - (1 << 64) if value >> 63 else value)
            value = shift = 0
    return out


def read_pprof(data):
    """({(process, heap, (function, file, line)... innermost first): {type: value}}, default type)."""
    strings, functions, locations, samples, types = [], {}, {}, [], []
    default = None
    for number, value in fields(data):
        if number == 6:
            strings.append(value.decode())
        elif number == 5:
            function = dict(fields(value))
            functions[function[1]] = (function.get(2, 0), function.get(4, 0))
        elif number == 4:
            location = dict(fields(value))
            line = dict(fields(location[4]))
            assert location[1] not in locations
            locations[location[1]] = (line[1], line.get(2, 0))
        elif number == 2:
            samples.append(list(fields(value)))
        elif number == 1:
            types.append(dict(fields(value)))
        elif number == 14:
            default = value
    assert strings[0] == ""
    names = [(strings[kind[1]], strings[kind[2]]) for kind in types]
    out = {}
    for sample in samples:
        frames = [locations[n] for n in numbers(next(v for k, v in sample if k == 1))]
        labels = {strings[label[1]]: strings[label[2]] for label in (dict(fields(v)) for k, v in sample if k == 3)}
        key = (labels["process"], labels["heap"], *((strings[functions[f][0]], strings[functions[f][1]], line) for f, line in frames))
        values = numbers(next(v for k, v in sample if k == 2))
        assert len(values) == len(names) and key not in out
        out[key] = dict(zip((name for name, _ in names), values))
    return out, strings[default], names


def text_of(raw):
    return raw.decode(errors="replace") if isinstance(raw, bytes) else raw


def stack_of(db, stack):
    """[(text, file, line)] innermost first."""
    out = []
    while stack:
        parent, text, file, line = db.execute(
            "select s.parent_id, t.text, f.file, f.line from stack s join frame f on f.id = s.frame_id join frame_text t on t.frame_id = f.id where s.id = ?",
            (stack,)).fetchone()
        out.append((text_of(text), text_of(file) or "", line or 0))
        stack = parent
    return tuple(out)


def label_of(db, process, pid, rank=None):
    alike = db.execute("select count(*) from process where rank is ?1 and (?1 is not null or pid = ?2)", (rank, pid)).fetchone()[0]
    return (f"rank {rank}" if rank is not None else f"pid {pid}") + (f" (process {process})" if alike > 1 else "")


def sites(path, where="h.is_root"):
    db = sqlite3.connect(path)
    db.text_factory = bytes
    out = {}
    for process, rank, pid, heap, stack, *values in db.execute(
            "select p.id, p.rank, p.pid, v.heap, v.stack_id, v.allocations, v.allocated_bytes, v.live_at_exit_count, v.live_at_exit_bytes, v.process_peak_bytes, "
            f"v.temporary_bytes from site v join heap h on h.name = v.heap and h.process_id = v.process_id join process p on p.id = v.process_id where {where}"):
        out[(label_of(db, process, pid, rank), text_of(heap), *stack_of(db, stack))] = values
    return out


def check_pprof(t, path):
    got, default, names = read_pprof(export(t, "pprof", path))
    t.equal(names, [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes"), ("peak_space", "bytes")], "types")
    t.equal(default, "peak_space", "what is shown first")
    wanted = {key: dict(zip((name for name, _ in names), values)) for key, values in sites(path).items() if any(values[:5])}
    t.equal(got, wanted, "samples")
    t.equal(read_pprof(export(t, "pprof", path, "--value=leaked"))[1], "inuse_space", "what --value=leaked shows first")


@test
def pprof_is_what_sql_says(t):
    check_pprof(t, recorded(t))
    check_pprof(t, odd_database(t))


@test
def pprof_tells_processes_apart(t):
    """A program and what it became by exec have one number, and each its own label. A process alone is known by its number."""
    trace = Trace()
    for i, pid in enumerate((100, 100, 200), 1):
        trace.process(i, pid=pid)
        trace.thread(i, process=i)
        trace.events(i, [malloc(1000, 0x1000, 10 * i, trace.stack("main"))])
        trace.exit(i, 2000)
        trace.end(i, 3000)
    db = t.imported(trace.save(t.path("run.tmk")))
    data, _, _ = read_pprof(export(t, "pprof", db.path))
    t.equal({key[0]: sample["alloc_space"] for key, sample in data.items()}, {"pid 100 (process 1)": 10, "pid 100 (process 2)": 20, "pid 200": 30}, "labels")


@test
def a_mapping_that_was_cut_is_one_object(t):
    """4 pages are mapped, the second is given back: three parts, one allocation, in a window as in the whole run; two objects are in use at exit."""
    trace = Trace()
    trace.process(1, pid=7)
    trace.thread(1, process=1)
    trace.events(1, [mmap(1000, 0x100000, 16384, trace.stack("main")), munmap(2000, 2001, 0x101000, 4096)], watermark=3000)
    trace.exit(1, 4000)
    trace.end(1, 5000)
    path = t.imported(trace.save(t.path("run.tmk"))).path
    whole, window = (list(read_pprof(export(t, "pprof", path, *options))[0].values()) for options in ((), ("--from=1us", "--to=3us")))
    t.equal(whole, [dict(alloc_objects=1, alloc_space=16384, inuse_objects=2, inuse_space=12288, peak_space=16384)], "the whole run")
    t.equal(window, whole, "a window that has all of it")


@test
def pprof_by_its_own_tool(t):
    go = shutil.which("go") or next(iter(glob.glob("/usr/lib/go-1.*/bin/go")), None)
    if not go:
        t.skip("go is not installed (golang-go)")
    path = recorded(t)
    export(t, "pprof", path)
    db = sqlite3.connect(path)
    for kind, column in (("alloc_space", "allocated_bytes"), ("inuse_space", "live_at_exit_bytes"), ("alloc_objects", "allocations"), ("peak_space", "process_peak_bytes")):
        text = t.run([go, "tool", "pprof", "-symbolize=none", "-unit=B", f"-sample_index={kind}", "-top", "-nodecount=1000", "-nodefraction=0", t.path("out.pprof")],
                     env={"HOME": t.dir, "PPROF_TMPDIR": t.dir}).text
        mine = dict(db.execute(f"select function, sum({column}) from site where function is not null group by function having sum({column}) > 0"))
        theirs = {name: int(re.sub(r"\D", "", flat)) for flat, name in re.findall(r"^ *(\d+B?) +\S+% +\S+% +\S+ +\S+% +(.*?)(?: \(inline\))?$", text, re.M)
                  if int(re.sub(r"\D", "", flat))}
        t.equal({k: theirs.get(k) for k in mine}, mine, f"{kind} by function, as pprof shows it")


# --- speedscope

def check_speedscope(t, path):
    data = json.loads(export(t, "speedscope", path, "--value=live"))
    t.equal(data["$schema"], "https://www.speedscope.app/file-format-schema.json", "schema")
    frames = data["shared"]["frames"]
    used = set()
    for profile, column in zip(data["profiles"], (4, 3, 1, 5)):
        t.equal((profile["type"], profile["unit"], profile["startValue"]), ("sampled", "bytes", 0), "profile")
        t.equal(profile["endValue"], sum(profile["weights"]), "end value")
        t.equal(len(profile["samples"]), len(profile["weights"]), "a weight for each sample")
        got = collections.Counter()
        for sample, weight in zip(profile["samples"], profile["weights"]):
            used.update(sample)
            got[tuple((frames[i]["name"], frames[i].get("file", ""), frames[i].get("line", 0)) for i in reversed(sample))] += weight
        wanted = collections.Counter()
        for (_, _, *stack), values in sites(path).items():
            if values[column]:
                wanted[tuple(stack)] += values[column]
        t.equal(got, wanted, profile["name"])
    t.equal(used, set(range(len(frames))), "frames: each is used, and none is missing")
    t.equal(data["profiles"][data["activeProfileIndex"]]["name"], "live at exit", "the profile shown first")


@test
def speedscope_is_what_sql_says(t):
    check_speedscope(t, recorded(t))
    check_speedscope(t, odd_database(t))


# --- windows of time

def at_the_peak(rows, begin, end):
    """What was live when most was, from `begin` to `end`: {stack_id: bytes}. rows: (alloc_ns, free_ns or None, bytes, stack_id)."""
    changes = sorted([(max(row[0], begin), row[2]) for row in rows] +
                     [(max(row[1], begin), -row[2]) for row in rows if row[1] is not None])
    level = best = 0
    instant = None
    for ns, size in changes:  # what ends at an instant comes before what begins
        if ns > end:
            break
        level += size
        if level > best:
            best, instant = level, ns
    by_stack = collections.Counter()
    for alloc_ns, free_ns, size, stack in rows:
        if instant is not None and alloc_ns <= instant and (free_ns is None or free_ns > instant):
            by_stack[stack] += size
    assert sum(by_stack.values()) == best
    return by_stack


def read_folded(data):
    return {stack: int(size) for stack, _, size in (line.rpartition(" ") for line in data.decode().splitlines())}


@test
def windows_are_what_peak_says(t):
    """A shell and three programs, two at once: the peak of a window is what `tidemark peak` says, and what `allocation` adds up to."""
    program = t.program("leak.c")
    path = t.imported(t.record(["sh", "-c", f"{program}; {program} & {program}; wait"])).path
    db = sqlite3.connect(path)
    t.check(db.execute("select count(*) from checkpoint").fetchone()[0] > 0, "an imported trace has checkpoints")
    texts = dict(db.execute("select stack_id, text from stack_text"))
    processes = db.execute("select id, pid, start_ns, end_ns from process").fetchall()
    t.check(len(processes) >= 4, f"processes: {processes}")
    first, last = db.execute("select min(alloc_ns), max(alloc_ns) from allocation").fetchone()
    big = db.execute("select alloc_ns, free_ns from allocation where size_bytes = 1048576 order by alloc_ns limit 1").fetchone()
    for heap, begin, end in ((None, 0, last), ("malloc", first, big[0] - 1), (None, big[0] + 1, big[1] - 1),
                             ("malloc", sum(big) // 2, last)):
        options = (f"--from={begin}ns", f"--to={end}ns", *([f"--heap={heap}"] if heap else []))
        peaks = json.loads(t.ask("peak", path, *options, "--format=json").text)
        said = {row["process_id"]: row["live_bytes"] for row in peaks if row["heap"] == heap}
        whole, by_label = collections.Counter(), collections.Counter()
        for process, pid, start, over in processes:
            rows = db.execute("select alloc_ns, free_ns, size_bytes, stack_id from allocation a join heap h on h.id = a.heap_id "
                              "where a.process_id = ? and (h.name = ? or (? is null and h.is_root))", (process, heap, heap)).fetchall()
            wanted = collections.Counter()
            for stack, size in at_the_peak(rows, max(begin, start), min(end, over)).items():
                wanted[texts[stack] or "[no stack]"] += size
            t.equal(said.get(process, 0), sum(wanted.values()), f"peak of process {process}, {options}")
            folded = read_folded(export(t, "folded", path, *options, f"--process={process}"))
            t.equal(folded, dict(wanted), f"folded, process {process}, {options}")
            whole.update(wanted)
            by_label[label_of(db, process, pid)] += sum(wanted.values())
        t.equal(read_folded(export(t, "folded", path, *options)), dict(whole), f"folded, {options}")
        of_pprof = collections.Counter()
        for (label, *_), values in read_pprof(export(t, "pprof", path, *options))[0].items():
            of_pprof[label] += values["peak_space"]
        t.equal(+of_pprof, +by_label, f"pprof, {options}")
        profile = json.loads(export(t, "speedscope", path, *options))["profiles"][0]
        t.equal((profile["name"], profile["endValue"]), ("live at the peak", sum(whole.values())), f"speedscope, {options}")


# --- heaptrack

def replay_heaptrack(data):
    """({stack, as function names innermost first: [allocations, allocated bytes, bytes left]}, peak bytes, last millisecond)."""
    strings, instructions, nodes, kinds = [None], [None], [None], []
    totals = collections.defaultdict(lambda: [0, 0, 0])
    live = peak = last_ms = 0
    for line in data.split(b"\n"):
        kind, _, rest = line.partition(b" ")
        if kind == b"s":
            n, _, text = rest.partition(b" ")
            assert int(n, 16) == len(text), line
            strings.append(text.decode(errors="replace"))
            assert strings.count(strings[-1]) == 1 or "\x00" in strings[-1], f"{strings[-1]!r} twice"
            continue
        words = [int(word, 16) for word in rest.split()] if kind in (b"i", b"t", b"a", b"+", b"-", b"c") else []
        if kind == b"i":
            assert all(n < len(strings) for n in words[1:4])
            instructions.append(words)
        elif kind == b"t":
            assert 0 < words[0] < len(instructions) and words[1] < len(nodes)
            nodes.append(words)
        elif kind == b"a":
            assert words[1] < len(nodes)
            kinds.append(words)
        elif kind in (b"+", b"-"):
            size, node = kinds[words[0]]
            live += size if kind == b"+" else -size
            assert live >= 0
            peak = max(peak, live)
            stack = []
            while node:
                stack.append(strings[instructions[nodes[node][0]][2]])
                node = nodes[node][1]
            entry = totals[tuple(stack)]
            if kind == b"+":
                entry[0] += 1
                entry[1] += size
            entry[2] += size if kind == b"+" else -size
        elif kind == b"c":
            assert words[0] >= last_ms
            last_ms = words[0]
    return dict(totals), peak, last_ms


def check_heaptrack(t, path, peak):
    got, got_peak, _ = replay_heaptrack(export(t, "heaptrack", path))
    db = sqlite3.connect(path)
    db.text_factory = bytes
    wanted = collections.defaultdict(lambda: [0, 0, 0])
    left_at_exit = "end_kind <> 'exec' and alloc_ns <= exit_ns and (free_ns is null or free_ns > exit_ns)"
    for stack, count, size, left in db.execute(f"select a.stack_id, count(*), sum(size_bytes), sum(case when {left_at_exit} then size_bytes else 0 end) "
                                               "from allocation a join heap h on h.id = a.heap_id join process p on p.id = a.process_id where h.is_root group by 1"):
        names, at = [], stack
        while at:
            at, name = db.execute("select s.parent_id, f.function from stack s join frame f on f.id = s.frame_id where s.id = ?", (at,)).fetchone()
            names.append(text_of(name.replace(b"\n", b" ")) if name else None)
        for i, n in enumerate((count, size, left)):
            wanted[tuple(names)][i] += n
    t.equal(got, dict(wanted), "allocations, bytes and what is left, by stack")
    t.equal(got_peak, peak, "peak")


@test
def heaptrack_is_what_sql_says(t):
    path = recorded(t)
    check_heaptrack(t, path, sqlite3.connect(path).execute("select live_bytes from peak where heap is null").fetchone()[0])
    # At 2 ms all third blocks are there, and of the second ones all: two of each size, but not those of the pool, which is no root heap.
    check_heaptrack(t, odd_database(t), 2 * (10 + 100 + 1000 + 100_000 + 1_000_000))


@test
def heaptrack_of_several_processes_says_so(t):
    """One keeps 1,000 bytes until it ends, another 2,000 after that: never were 3,000 live, and who is told of the sum can ask for one."""
    trace = Trace()
    main = trace.stack("main")
    for process, size in ((1, 1000), (2, 2000)):
        trace.process(process, 100 + process)
        trace.thread(process, process)
        trace.events(process, [malloc(process * 1000, 0x1000, size, main)])
        trace.end(process, process * 1000 + 500)
    trace.save(t.path("two.tmk"))
    t.ask("import", t.path("two.tmk"), "-o", t.path("two.db"), status=0)
    for words, peak, said in (((), 3000, 1), (("--process=1",), 1000, 0), (("--process=2",), 2000, 0), (("--to=1400ns",), 1000, 0)):
        done = t.ask("export", "heaptrack", t.path("two.db"), "-o", t.path("two.ht"), "--force", *words, status=0)
        with open(t.path("two.ht"), "rb") as file:
            t.equal(replay_heaptrack(file.read())[1], peak, f"peak {words}")
        t.equal(done.err.count(b"several processes"), said, f"what is said {words}: {done.err}")


@test
def heaptrack_leaks_what_leaks_does(t):
    """What a handler of exit frees is leaked, and what it allocates is not; where another program takes the place of one, nothing is. Every block has its call."""
    trace = Trace()
    kept, gone, late, replaced = (trace.stack("main", name) for name in ("kept", "gone", "late", "replaced"))
    for process in (1, 2):
        trace.process(process, 100 + process)
        trace.thread(process, process)
    trace.events(1, [malloc(1000, 0x1000, 1000, kept), malloc(1100, 0x2000, 50, kept), malloc(1200, 0x3000, 400, gone), free(1300, 0x3000),
                     free(5500, 0x1000), malloc(5600, 0x4000, 20, late), malloc(5700, 0x5000, 30, late), free(5800, 0x5000)])
    trace.events(2, [malloc(1000, 0x1000, 1000, replaced), malloc(1100, 0x2000, 50, gone), free(1200, 0x2000)])
    trace.exit(1, 5000)
    trace.end(1, 6000)
    trace.end(2, 6000, kind=3)
    trace.save(t.path("left.tmk"))
    t.ask("import", t.path("left.tmk"), "-o", t.path("left.db"), status=0)
    wanted = {1: {("kept", "main"): [2, 1050, 1050], ("gone", "main"): [1, 400, 0], ("late", "main"): [2, 50, 0]},
              2: {("replaced", "main"): [1, 1000, 0], ("gone", "main"): [1, 50, 0]}}
    for process, peak in ((1, 1450), (2, 1050)):
        t.equal(replay_heaptrack(export(t, "heaptrack", t.path("left.db"), f"--process={process}"))[:2], (wanted[process], peak), f"of process {process}")
        listed = json.loads(t.ask("leaks", t.path("left.db"), "--all", f"--process={process}", "--format=json").text)
        t.equal(sum(row["live_bytes"] for row in listed), sum(left for _, _, left in wanted[process].values()), f"leaks of process {process}")


@test
def heaptrack_counts_what_is_temporary(t):
    """Ten blocks of one place are freed when all are there, behind a block of another one that is freed at once: that is the only temporary one."""
    t.need("heaptrack_print")
    with open(t.path("ten.c"), "w") as file:
        file.write("#include <stdlib.h>\nint main(void) {\n\tvoid *kept[10];\n\tfor (int i = 0; i < 10; i++) kept[i] = malloc(10);\n\tfree(malloc(99));\n"
                   "\tfor (int i = 0; i < 10; i++) free(kept[i]);\n\treturn 0;\n}\n")
    db = t.imported(t.record([t.program(t.path("ten.c"), name="ten")]))
    export(t, "heaptrack", db.path, name="ten.heaptrack")
    text = t.run(["heaptrack_print", "-f", t.path("ten.heaptrack")]).text
    t.equal((int(re.search(r"temporary memory allocations: (\d+)", text)[1]), db.value("select sum(temporary) from site")), (1, 1), "temporary blocks")


@test
def heaptrack_by_its_own_tool(t):
    t.need("heaptrack_print")
    path = recorded(t)
    export(t, "heaptrack", path, name="out.heaptrack.gz")
    text = t.run(["heaptrack_print", "-f", t.path("out.heaptrack.gz"), "-F", t.path("stacks"), "--flamegraph-cost-type", "leaked"]).text
    db = sqlite3.connect(path)
    calls, size = db.execute("select sum(allocations), sum(allocated_bytes) from heap_summary where heap is null").fetchone()
    t.equal(int(re.search(r"calls to allocation functions: (\d+)", text)[1]), calls, "calls")
    for what, value in (("peak heap memory consumption", db.execute("select live_bytes from peak where heap is null").fetchone()[0]),
                        ("total memory leaked", db.execute("select live_at_exit_bytes from heap_summary where heap is null").fetchone()[0])):
        number, unit = re.search(what + r": ([\d.]+)([BKMG]?)", text).groups()
        factor = {"": 1, "B": 1, "K": 1e3, "M": 1e6, "G": 1e9}[unit]
        t.check(abs(float(number) * factor - value) <= 0.0051 * factor, f"{what}: {number}{unit} in heaptrack_print, {value} in SQL")
    with open(t.path("stacks"), encoding="utf-8") as file:
        left = collections.Counter()
        for line in file:
            stack, n = line.rsplit(" ", 1)
            left[stack.rstrip(";").split(";")[-1].split(" (")[0]] += int(n)
    mine = dict(db.execute("select function, sum(live_bytes) from live_at_exit where function is not null group by function"))
    t.equal({name: left[name] for name in mine}, mine, "left, by function")
    t.check(size > 0, "nothing was allocated")


# --- CSV

def cell(value):
    return "" if value is None else f"{value:.15g}" if isinstance(value, float) else str(value)


@test
def csv_is_what_sql_says(t):
    path = odd_database(t)
    db = sqlite3.connect(path)
    db.text_factory = lambda raw: raw.decode(errors="replace")
    for view in ("site", "allocation", "frame", "stack_text", "process"):
        got = list(csv.reader(io.StringIO(export(t, "csv", path, f"--view={view}").decode(), newline="")))
        cursor = db.execute(f'select * from "{view}"')
        names = [column[0] for column in cursor.description]
        rows = cursor.fetchall()
        has_stack = "stack_id" in names and view != "stack_text"
        t.equal(got[0], names + ["stack"] * has_stack, f"{view}: names")
        t.equal([row[:len(names)] for row in got[1:]], [[cell(value) for value in row] for row in rows], view)
        t.equal(len(got) - 1, len(rows), f"{view}: rows")
        if has_stack:
            at = names.index("stack_id")
            for row in got[1:]:
                t.equal(row[-1], db.execute("select text from stack_text where stack_id = ?", (row[at],)).fetchone()[0], f"{view}: the stack")
    for options, rows in ((["--heap=pool"], 3), (["--process=rank:7", "--from=1ms"], 2)):
        got = list(csv.reader(io.StringIO(export(t, "csv", path, "--view=allocation", *options).decode(), newline="")))
        t.equal(len(got) - 1, rows, f"rows with {options}")


@test
def parquet_from_csv(t):
    """The line that the README gives, as it stands there."""
    with open(os.path.join(t.root, "README.md"), encoding="utf-8") as file:
        lines = [line.strip() for line in file if "run.csv" in line and line.startswith("    ")]
    t.equal(len(lines), 2, f"lines about Parquet: {lines}")
    if t.run(["python3", "-c", "import pyarrow"]).status:
        t.skip("python3 has no pyarrow")
    shutil.copy(odd_database(t), t.path("run.db"))
    for line in lines:
        t.run(["sh", "-c", line], cwd=t.dir, status=0)
    got = t.run(["python3", "-c", "import pyarrow.parquet as p; t = p.read_table('run.parquet'); print(t.num_rows, sum(t['size_bytes'].to_pylist()), t.column_names[:3])"], cwd=t.dir, status=0)
    db = sqlite3.connect(t.path("run.db"))
    rows, size = db.execute("select count(*), sum(size_bytes) from allocation").fetchone()
    t.equal(got.text.strip(), f"{rows} {size} ['id', 'process_id', 'heap_id']", "rows, bytes and names in the Parquet file")


FORMS = (("chrome", "x.json"), ("chrome", "x.json.gz"), ("folded", "x.folded"), ("pprof", "x.pb.gz"), ("speedscope", "x.speedscope.json"), ("heaptrack", "x.heaptrack"),
         ("heaptrack", "x.heaptrack.gz"), ("csv", "x.csv"))


@test
def a_full_disk(t):
    """Wherever the disk is full, at the first byte or near the last: one line says so, nothing stands under the final name, and an older file is left as it was."""
    path = recorded(t)
    for form, name in FORMS:
        whole = len(export(t, form, path)) if not name.endswith(".gz") else None
        t.run([t.tidemark, "export", form, path, "-o", t.path(name)], status=0)
        size = os.path.getsize(t.path(name))
        t.check(whole is None or size == whole, f"{name}: {size} bytes")
        with open(t.path(name), "rb") as file:
            before = file.read()
        for limit in (0, 1, size // 2, size - 1)[t.build.endswith("/tsan"):]: # without the first, as ThreadSanitizer writes to a file before main
            # A write beyond the limit fails as one to a full disk does, for all that it brings a signal that would end us.
            command = [t.tidemark, "export", form, path, "-o", t.path(name), "--force"]
            done = t.run(command, status=1, preexec=lambda limit=limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
            t.check("cannot write" in done.errors and done.errors.count("\n") == 1, f"{name}, {limit} bytes: {done.errors}")
            with open(t.path(name), "rb") as file:
                t.equal(file.read(), before, f"{name}: the older file")
            t.equal([found for found in os.listdir(t.dir) if found.startswith(name + ".")], [], f"{name}, {limit} bytes: files left behind")
        os.remove(t.path(name))
        t.run(command[:-1], status=1, preexec=lambda size=size: resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, size - 1)))
        t.equal([found for found in os.listdir(t.dir) if found.startswith("x.")], [], f"{name}: no older file, and none now")
        done = t.run([t.tidemark, "export", form, path, "-o", "/dev/full"], status=1)
        t.check("cannot write '/dev/full': No space left on device" in done.errors, f"{form} to a full device: {done.errors}")


@test
def interrupted(t):
    """Ctrl-C and its like in the midst of an export leave no file behind, and an older one as it was."""
    path = recorded(t)
    db = sqlite3.connect(path)
    db.execute("create view endless as with recursive n(i) as (values (1) union all select i + 1 from n) select i from n")
    db.close()
    with open(t.path("x.csv"), "w", encoding="ascii") as file:
        file.write("older")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        child = t.start([t.tidemark, "export", "csv", path, "--view=endless", "-o", t.path("x.csv"), "--force"], stdin=subprocess.DEVNULL)
        while not any(name.startswith("x.csv.") and os.path.getsize(t.path(name)) for name in os.listdir(t.dir)) and child.poll() is None:
            time.sleep(0.001)
        child.send_signal(number)
        t.equal(child.wait(), -number, "how it ended")
        t.equal([name for name in os.listdir(t.dir) if name.startswith("x.")], ["x.csv"], f"files after signal {number}")
    with open(t.path("x.csv"), encoding="ascii") as file:
        t.equal(file.read(), "older", "the older file")


@test
def links_stay(t):
    """What is written to a symbolic link goes where it leads, there already or not, as a shell's redirection does."""
    path = recorded(t)
    trace = glob.glob(t.path("*.tmk"))[0]
    commands = (["export", "csv", path], ["report", path], ["import", trace])
    os.symlink("circle", t.path("circle"))
    for number, command in enumerate(commands):
        os.mkdir(t.path(f"d{number}"))
        os.symlink(f"middle{number}", t.path(f"link{number}"))
        os.symlink(f"d{number}/real", t.path(f"middle{number}"))
        for more in ([], ["--force"]):
            t.run([t.tidemark, *command, "-o", t.path(f"link{number}"), *more], status=0)
            t.equal((os.readlink(t.path(f"link{number}")), os.readlink(t.path(f"middle{number}"))), (f"middle{number}", f"d{number}/real"), f"links after {command[0]} {more}")
            t.equal([(e.name, e.is_file(follow_symlinks=False)) for e in os.scandir(t.path(f"d{number}"))], [("real", True)], f"files after {command[0]} {more}")
            if not more:
                done = t.run([t.tidemark, *command, "-o", t.path(f"link{number}")], status=1)
                t.check("exists" in done.errors, f"{command[0]} to what is there: {done.errors!r}")
                os.truncate(t.path(f"d{number}/real"), 0)
        t.check(os.path.getsize(t.path(f"d{number}/real")) > 0, f"{command[0]} --force wrote nothing")
        done = t.run([t.tidemark, *command, "-o", t.path("circle"), "--force"], status=1)
        t.check("Too many levels" in done.errors, f"{command[0]} to a circle: {done.errors!r}")


@test
def what_cannot_be_exported(t):
    path = recorded(t)
    for arguments, status, words in ((["csv", path, "--view=nothing", "-o", "-"], 1, "unknown view 'nothing', there are alert_site, allocation"),
                                     (["csv", path, "--view=module", "--heap=malloc", "-o", "-"], 1, "'module' has no such column"),
                                     (["pprof", path, "--value=temporary", "-o", "-"], 2, "cannot be temporary"),
                                     (["folded", path, "--view=site", "-o", "-"], 2, "--view is for csv"),
                                     (["parquet", path, "-o", "-"], 2, "unknown format 'parquet'")):
        outcome = t.run([t.tidemark, "export", *arguments], status=status)
        t.check(words in outcome.errors, f"{arguments[0]}: {outcome.errors!r} does not say {words!r}")
        t.equal(outcome.errors.count("\n"), 1, "lines of the error")
        t.equal(t.run([t.tidemark, "export", *arguments, "--gzip"], status=status).out, b"", f"{arguments}: no stream either that is empty")
    # A stack whose parent does not come before it could lead in a circle.
    db = sqlite3.connect(path)
    db.execute("update stack set parent_id = id where id > 0")
    db.commit()
    db.close()
    for form in ("pprof", "speedscope", "heaptrack", "folded", "csv"):
        outcome = t.run([t.tidemark, "export", form, path, "-o", t.path("bad")], status=1, timeout=60)
        t.check("is damaged" in outcome.errors and not os.path.exists(t.path("bad")), f"{form} of a damaged tree: {outcome.errors!r}")
    shown = t.run([t.tidemark, "leaks", path, "--all", "--stack", "--format=json"], status=0, timeout=60)
    t.equal({row["stack"] for row in json.loads(shown.out)}, {f"[damaged];{row['function']}" for row in json.loads(shown.out)}, "stacks of a damaged tree")


main()
