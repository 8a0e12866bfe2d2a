"""Traces of one job from several hosts, in one database: clocks that differ, copies, parts and strangers among the files, worlds whose names or pids are alike.

Method: traces written from Python (trace_writer.py), so that every figure is known: rank r of world w holds one block of `size` bytes from 1 s to 3 s of its own clock.
"""
import json
import os

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


main()
