"""Traces of one job from several hosts, in one database: clocks that differ, copies, parts and strangers among the files, worlds whose names or pids are alike.

Method: traces written from Python (trace_writer.py), so that every figure is known: rank r of world w holds one block of `size` bytes from 1 s to 3 s of its own clock.
"""
import gzip
import html
import json
import os
import re

from tidemark_test import main, test
from trace_writer import Trace, free, malloc

S = 10 ** 9
START = 1_700_000_000 * S


def a_rank(t, name, rank, size=1000, start=START, pid=100, host="node0", world=None, launcher=0, seconds=5, cut=0, major=1):
    """The path of a trace; `launcher`: pid of a process above the rank, which has none."""
    trace, above = Trace(start_unix_ns=start, host=host), 0
    if launcher:
        trace.process(1, launcher, exe="/bin/mpiexec", host=host)
        trace.end(1, seconds * S)
        above = 1
    trace.process(above + 1, pid, parent=above, rank=rank, world_size=2, host=host)
    if world:
        trace.note(above + 1, 0, "world", world)
    trace.thread(1, process=above + 1)
    at = trace.stack("main", "compute")
    trace.events(1, [malloc(1 * S, 0x1000, size, at)], watermark=1 * S)
    if seconds > 3:
        trace.events(1, [malloc(2 * S, 0x2000, 2 * size, at), free(3 * S, 0x2000)], watermark=3 * S)
    trace.exit(above + 1, seconds * S)
    trace.end(above + 1, seconds * S)
    path, data = t.path(name), bytearray(trace.bytes())
    os.makedirs(os.path.dirname(path), exist_ok=True)
    data[8:10] = major.to_bytes(2, "little")
    with open(path, "wb") as file:
        file.write(data[:len(data) - cut])
    return path


def two_worlds(t, by_pid):
    """Ranks 0 and 1 of two jobs whose launchers have one pid on two hosts, or whose names hold what separates a rank from its world: world w, rank r has 1000 w + r."""
    named = [None, "node0:50", "node1:50"] if by_pid else [None, "prterun-node0@1", "it's"]
    return named, t.imported(*(a_rank(t, f"{'pid' if by_pid else 'name'}{w}{r}.tmk", r, size=1000 * w + r, start=START + 10 * w + r, pid=100 + r, host=f"node{w - 1}",
                                      launcher=50 if by_pid else 0, world=None if by_pid else named[w]) for w in (1, 2) for r in (0, 1)))


def listed(t, *arguments):
    return json.loads(t.ask(*arguments, "--format=json").text)


@test
def durations_of_later_traces(t):
    """A trace that begins 7 s after the earliest one, by its host's clock, lasts as long as it lasts."""
    db = t.imported(a_rank(t, "a.tmk", 0), a_rank(t, "b.tmk", 1, start=START + 7 * S, host="node1"))
    facts = {(row["topic"], row["name"]): row["value"] for row in listed(t, "info", db.path)}
    t.equal([facts[f"trace {n}", "duration_ns"] for n in (1, 2)], [5 * S, 5 * S], "durations of info")
    table = t.ask("summary", db.path).text.split("\n\n")[0]
    t.equal([table.count(text) for text in ("5.000 s", "12.000 s")], [2, 0], f"durations of summary: {table}")
    t.equal(db.rows("select rank, ts_ns, live_bytes from rank_peak order by rank"), [(0, 2 * S, 3000), (1, 9 * S, 3000)], "peaks")


@test
def processes_of_a_rank_one_after_the_other(t):
    """A rank, and a device, has what its processes hold: an ended one nothing, one that became another program nothing either."""
    trace, ends = Trace(), ((2000, 3, 0), (3000, 1, 0), (4000, 2, 9), (9000, 1, 0))  # exec, exit, signal; the last one runs all the time
    trace.minor = 2
    for id, (start, size) in enumerate(((0, 100), (2000, 60), (3000, 90), (0, 7)), 1):
        trace.process(id, pid=100 + (id == 4), rank=3, start=start)
        trace.thread(id, process=id, start=start)
        trace.device(id, 0, total=1 << 30, uuid=bytes(range(16)), name="GPU")
        trace.heap(id, id, "cuda:0", "device", device=0)
        trace.events(id, [malloc(start + 500, 0x1000, size), malloc(start + 600, 0x9000, 10 * size, op="cuda_alloc", usable="unknown", heap=id)])
    for id, (ns, kind, code) in enumerate(ends, 1):
        trace.exit(id, ns)
        trace.end(id, ns, kind, code)
    db = t.imported(trace.save(t.path("run.tmk")))
    t.equal(db.rows("select rank, ts_ns, live_bytes, live_count, live_at_end_bytes from rank_peak"), [(3, 500, 107, 2, 257)], "the rank")
    t.equal(db.rows("select device, ts_ns, live_bytes, live_count, live_at_end_bytes from device_peak"), [(0, 600, 1070, 2, 2570)], "the device")


@test
def ranks_that_ran_at_different_times(t):
    """Ranks of one world that are a minute and more apart are told, the two that are furthest; not ranks of different worlds, nor a rank's own programs one
    after the other."""
    def said(*ranks, options=()):
        place = f"apart{len(os.listdir(t.dir))}"
        os.mkdir(t.path(place))
        traces = [a_rank(t, f"{place}/{n}.tmk", rank, start=START + at * S, host=f"node{n}", world=world, pid=100 + n)
                  for n, (rank, at, world) in enumerate(ranks)]
        done = t.ask("import", *traces, "-o", t.path(f"{place}.db"), *options)
        return [(int(a), distance, int(b)) for a, distance, b in
                re.findall(r"warning: '[^']*/(\d)\.tmk' \(rank \d\) ends (.*?) before '[^']*/(\d)\.tmk' \(rank \d\) begins, though both", done.errors)]

    t.equal(said((0, 0, "w"), (1, 3605, "w"), (2, 1, "w")), [(0, "1 h 00 min", 1)], "an hour")
    t.equal(said((0, 3605, None), (1, 0, None)), [(1, "1 h 00 min", 0)], "a world without a name")
    t.equal(said((0, 65, "w"), (1, 0, "w")), [(1, "1 min 00 s", 0)], "a minute")
    t.equal(said((0, 64, "w"), (1, 0, "w")), [], "less")
    t.equal(said((0, 0, "v"), (1, 3605, "w")), [], "different worlds")
    t.equal(said((0, 0, "w"), (1, 1, "w"), (0, 3605, "w"), (1, 3606, "w")), [], "started again")
    t.equal(said((0, 0, "w"), (1, 1, "w"), (1, 3605, "w")), [], "a program that one rank runs afterwards")
    first, late = a_rank(t, "a/first.tmk", 0, host="node0"), a_rank(t, "a/late.tmk", 1, start=START + 7200 * S, host="node1")
    db = t.path("appended.db")
    t.check("warning" not in t.ask("import", first, "-o", db).errors, "one trace")
    t.check("before '" + late in t.ask("import", late, "--append", "-o", db).errors, "one that is added")


@test
def copies_in_a_directory(t):
    """Of a whole trace, a part of it and a copy that was made while it was written, the whole one is taken, whatever the names; named ones are refused."""
    for whole, dump, part in (("c", "a", "b"), ("a", "b", "c"), ("b", "c", "a")):
        place = f"job{whole}{dump}{part}/"
        wanted = a_rank(t, place + whole, 0)
        a_rank(t, place + dump, 0, seconds=2)
        a_rank(t, place + part, 0, cut=200)
        done = t.ask("import", t.path(place), "-o", t.path(whole + ".db"))
        t.equal(done.errors.count("is left out"), 2, done.errors)
        rows = listed(t, "query", t.path(whole + ".db"), "select path, complete, (select live_bytes from rank_peak) as peak_bytes from trace")
        t.equal(rows, [{"path": wanted, "complete": 1, "peak_bytes": 3000}], "what was taken")
    t.ask("import", t.path("jobcab/a"), t.path("jobcab/c"), "-o", t.path("x.db"), status=1)


@test
def strangers_in_a_directory(t):
    """A trace of another format version, as of a host with another tidemark, costs none of the others; asked for by its name it is refused."""
    a_rank(t, "job/0.tmk", 0)
    new = a_rank(t, "job/1.tmk", 1, start=START + S, major=2)
    a_rank(t, "job/2.tmk", 2, start=START + 2 * S)
    done = t.ask("import", t.path("job"))
    t.check(f"warning: '{new}' is left out: it has trace format version 2.0" in done.errors, done.errors)
    t.equal([row["rank"] for row in listed(t, "processes", t.path("job/tidemark.db"))], [0, 2], "ranks")
    t.ask("import", new, t.path("job/0.tmk"), "-o", t.path("x.db"), status=1)
    t.check(not os.path.exists(t.path("x.db")), "nothing was imported")


@test
def ranks_that_are_missing(t):
    """info says how many ranks are in no trace, of the worlds that tell how many they have (here 2 each); one that is there twice counts once."""
    for ranks, missing in ((((0, "a"), (1, "a"), (0, "b")), 1), (((0, None), (1, None)), 0), (((1, "a"), (1, "a")), 1)):
        place = f"{len(ranks)}{missing}{ranks[0][0]}"
        db = t.imported(*(a_rank(t, f"{place}/{n}.tmk", rank, start=START + n, world=world) for n, (rank, world) in enumerate(ranks)))
        facts = {row["name"]: row["value"] for row in listed(t, "info", db.path) if row["topic"] == "holds"}
        t.equal((facts["ranks"], facts["ranks missing"]), (len(set(ranks)), missing), f"ranks of {ranks}")
    db = t.imported(t.record([t.program("hello.c")]))
    t.check("ranks missing" not in t.ask("info", db.path).text, "nothing is said of ranks where there are none")


@test
def worlds_of_one_launcher_pid(t):
    """Two launchers without a name for their world, of one pid on two hosts: two worlds."""
    named, db = two_worlds(t, by_pid=True)
    t.equal(db.rows("select world, rank, live_bytes from rank_peak order by 1, 2"), [(named[w], r, 3 * (1000 * w + r)) for w in (1, 2) for r in (0, 1)], "peaks of ranks")
    said = t.ask("leaks", db.path, "--process=rank:1").errors
    t.check("warning: 2 worlds have a rank 1, and all are shown: --process=rank:1@WORLD takes one" in said, said)
    unnamed = t.imported(a_rank(t, "x.tmk", 1), a_rank(t, "y.tmk", 1, start=START + S, world="w"))
    said = t.ask("leaks", unnamed.path, "--process=rank:1").errors
    t.check("warning: 2 worlds have a rank 1" in said, f"one of them without a name: {said}")


@test
def heads_of_pages_of_one_rank(t):
    """The trace that is told of is the one of the chosen process: rank 1's, of 1 event, where rank 0's has 3."""
    db = t.imported(a_rank(t, "h0.tmk", 0), a_rank(t, "h1.tmk", 1, start=START + S, host="node1", seconds=3))
    for chosen, host, events in (("rank:0", "node0", 3), ("rank:1", "node1", 1)):
        head = t.ask("summary", db.path, f"--process={chosen}").text.split("\n\n")[0].splitlines()
        t.equal(head[0], "recording", "the first list")
        t.equal([row.split()[1:4:2] for row in head[2:]], [[host, str(events)]], f"recordings of {chosen}: {head}")
        page = t.path(chosen.replace(":", "") + ".html")
        t.ask("report", db.path, "-o", page, f"--process={chosen}")
        with open(page, encoding="utf-8") as file:
            text = html.unescape(file.read())
        t.check(f">{host}</" in text and f"<span>{events} event{'s' if events > 1 else ''}</span>" in text, f"head of the report of {chosen}")
    t.equal(len(t.ask("summary", db.path).text.split("\n\n")[0].splitlines()), 4, "recordings of all")


@test
def rank_of_one_world(t):
    """--process=rank:N@WORLD: every verb that takes --process shows that process and no other."""
    for by_pid in (True, False):
        named, db = two_worlds(t, by_pid)
        for w in (1, 2):
            chosen, size = f"--process=rank:1@{named[w]}", 1000 * w + 1
            id = db.value("select id from process where rank = 1 and world = ?", named[w])
            for verb in ("leaks --all", "peak", "processes", "snapshot --at=peak", "temporary", "timeline", "scopes", "summary", "gpu"):
                for form in ("csv", "table"):
                    by_rank = t.ask(*verb.split(), db.path, chosen, f"--format={form}")
                    by_id = t.ask(*verb.split(), db.path, f"--process={id}", f"--format={form}")
                    t.equal((by_rank.text, by_rank.errors), (by_id.text, by_id.errors), f"{verb} {chosen}")
            t.equal([row["peak_bytes"] for row in listed(t, "processes", db.path, chosen)], [3 * size], f"peak of {chosen}")
            t.ask("check", db.path, chosen, f"--max-peak={3 * size}")
            t.ask("check", db.path, chosen, f"--max-peak={3 * size - 1}", status=3)
            for form in ("chrome", "folded", "pprof", "speedscope", "csv", "heaptrack"):
                outs = []
                for n, process in enumerate((chosen, f"--process={id}")):
                    outs.append(t.path(f"out{by_pid}{w}{n}.{form}"))
                    t.ask("export", form, db.path, process, "-o", outs[-1])
                with open(outs[0], "rb") as one, open(outs[1], "rb") as two:
                    t.check(one.read() == two.read(), f"export {form} {chosen}")
            t.ask("report", db.path, chosen, "-o", t.path(f"{by_pid}{w}.html"))
            with open(t.path(f"{by_pid}{w}.html"), encoding="utf-8") as file:
                page = file.read()
            t.check(f"only rank 1 of world <bdi>{html.escape(named[w]).replace('&#x27;', '&#39;')}</bdi>" in page, "what the report says")
            live = t.ask("top", t.path(f"{'pid' if by_pid else 'name'}{w}1.tmk"), chosen, "--count=1", "--by=heap", "--format=json")
            t.check(str(size) in live.text, f"top {chosen}: {live.text}{live.errors}")
        said = t.ask("leaks", db.path, "--process=rank:1@no", status=1).errors
        t.check("no rank 1 in a world 'no'" in said and all(name in said for name in named[1:]), said)
        t.check("ranks: 0, 1" in t.ask("leaks", db.path, "--process=rank:2@no", status=1).errors, "a rank that there is not")
    for wrong in ("rank:1@", "rank:@x", "rank:x", "rank:-1", "rank:1 @x", "rank:", "rank:99999999999999999999@x"):
        t.ask("leaks", db.path, f"--process={wrong}", status=2)


@test
def names_of_ranks_in_two_worlds(t):
    """Labels of exports and of the report tell a rank of one world from that of another; with one world they say the rank alone."""
    named, db = two_worlds(t, by_pid=False)
    one = t.imported(a_rank(t, "single.tmk", 1, world="w"), a_rank(t, "other.tmk", 0, start=START + S, world="w"))
    for path, wanted in ((db.path, {f"rank {r}@{named[w]}" for w in (1, 2) for r in (0, 1)}), (one.path, {"rank 0", "rank 1"})):
        t.ask("export", "pprof", path, "-o", path + ".pprof")
        with open(path + ".pprof", "rb") as file:
            data = gzip.decompress(file.read())
        strings = {data[found.end(1):found.end(1) + found[1][0]].decode() for found in re.finditer(rb"\x32(.)(?=rank )", data, re.DOTALL)}  # tag 6, length, text
        t.equal(strings, wanted, "labels of pprof")
        t.ask("report", path, "-o", path + ".html")
        with open(path + ".html", encoding="utf-8") as file:
            page = file.read()
        for name in wanted:
            t.check(f"<bdi>{html.escape(name).replace('&#x27;', '&#39;')}</bdi>" in page, f"the report has no {name}")
        t.ask("export", "chrome", path, "-o", path + ".json")
        with open(path + ".json", encoding="utf-8") as file:
            labels = [event["args"]["labels"] for event in json.load(file)["traceEvents"] if event["name"] == "process_labels"]
        t.equal(["world" in label for label in labels], [path == db.path] * len(labels), f"labels of chrome: {labels}")


@test
def heaptrack_has_the_memory_of_the_rank(t):
    """Resident memory in an export of one rank is that rank's, also where another one had more."""
    traces = []
    for rank, pages in ((0, 1000), (1, 30)):
        trace = Trace(start_unix_ns=START + rank)
        trace.process(1, 100, rank=rank, world_size=2)
        trace.thread(1, process=1)
        trace.events(1, [malloc(1 * S, 0x1000, 10, trace.stack("main"))], watermark=1 * S)
        trace.sample(1, 2 * S, rss=4096 * pages)
        trace.end(1, 3 * S)
        traces.append(trace.save(t.path(f"{rank}.tmk")))
    db = t.imported(*traces)
    for chosen, pages in ((["--process=rank:1"], [30]), (["--process=1"], [1000]), ([], [1000])):
        out = t.path(f"{len(chosen)}{pages[0]}.heaptrack")
        t.ask("export", "heaptrack", db.path, *chosen, "-o", out)
        with open(out, encoding="utf-8") as file:
            t.equal([int(line.split()[1], 16) for line in file if line.startswith("R ")], pages, f"pages of {chosen}")


main()
