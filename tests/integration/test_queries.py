"""Questions with a name (schema/queries.sql), the prompt's completion, and the SQLite extension that reads a trace.

Method: a trace whose figures can be added up by hand; every named query runs on it, and the answers of many are held against those figures. The extension's
rows are compared with the events that were written, and its sums with the import's.
"""
import json
import os
import pty
import re
import select
import sqlite3
import subprocess
import time

from tidemark_test import ROOT, main, test
from trace_writer import Trace, free, malloc, realloc, scope, step


def hand_trace(t):
    trace = Trace()
    trace.process(1, pid=7, rank=2)
    for thread in (1, 2):
        trace.thread(thread, process=1, tid=70 + thread)
    a, b = trace.stack("main", "a"), trace.stack("main", "b")
    name = trace.string("phase")
    trace.sample(1, 900, rss=1000, tool_rss=0)
    trace.segments([
        (1, [step(950, 1), scope("scope_push", 960, name), malloc(1000, 0x1000, 100, a, usable=104), malloc(2000, 0x2000, 100, a, usable=104),
             scope("scope_end", 2500), step(2600, 2), realloc(3000, 3001, 0x2000, 0x3000, 300, b), free(9_000_000, 0x3000)]),
        (2, [malloc(4000, 0x5000, 50, b, usable=56), free(5000, 0x5000)])], watermark=9_000_000)
    trace.sample(1, 9_500_000, rss=6000, tool_rss=0, rss_heap=1000, rss_arenas=0, rss_anonymous=0, rss_stacks=200, rss_files=3000, rss_shared=0)
    trace.exit(1, 10_000_000)
    trace.end(1, 11_000_000)
    path, db = t.path("q.tmk"), t.path("q.db")
    trace.save(path)
    t.run([os.path.join(t.build, "bin/tidemark"), "import", "-q", path, "-o", db], status=0)
    return path, db


def named(t, db, name):
    return json.loads(t.run([os.path.join(t.build, "bin/tidemark"), "query", db, "@" + name, "--format=json"], status=0).text)


# For each query: columns of its first rows, in its order. Levels: 100, 200, 400 (b 300 beside a 100), 450 at 4000, 400, 100.
ANSWERS = {
    "peak-makers": ("function, live_bytes", [("b", 350), ("a", 100)]),
    "peak-functions": ("function, live_bytes, live_count", [("b", 350, 2), ("a", 100, 1)]),
    "peak-shape": ("heap, live_bytes, second_bytes", [(None, 450, None), ("malloc", 450, None)]),
    "peak-ranks": ("world, rank, ts_ns, live_bytes, highest_share", [(None, 2, 4000, 450, 1.0)]),
    "peak-threads": ("tid, live_bytes, live_count", [(71, 400, 2), (72, 50, 1)]),
    "peak-devices": ("device", []),
    "leaks-by-library": ("path, live_bytes, live_count", [(None, 100, 1)]),
    "never-freed": ("function", []),
    "top-allocators": ("function, allocations, mean_bytes", [("a", 2, 100), ("b", 2, 175)]),
    "functions": ("function, self_bytes, total_bytes, self_count, total_count", [("main", 0, 550, 0, 4), ("b", 350, 350, 2, 2), ("a", 200, 200, 2, 2)]),
    "temporary": ("function, count, bytes, share", [("b", 2, 350, 1.0), ("a", 1, 100, 0.5)]),
    "same-size": ("function, same_size_count, share", [("a", 1, 0.5)]),
    "growing-vectors": ("function, realloc_count, longest_chain_count, reallocated_bytes", [("b", 1, 1, 300)]),
    "rounding": ("heap, slack_bytes, allocated_bytes, slack_share", [("malloc", 26, 550, 0.0473)]),
    "sizes": ("from_bytes, allocations, share", [(32, 1, 0.25), (64, 2, 0.5), (256, 1, 0.25)]),
    "lifetimes": ("from_duration_ns, frees", [(512, 2), (1 << 23, 1)]),
    "gap": ("ts_ns, rss_bytes, live_bytes, gap_bytes", [(9_500_000, 6000, 100, 5900)]),
    "gap-parts": ("file_bytes, stack_bytes, retained_bytes, unknown_bytes", [(3000, 200, 900, 1800)]),
    "rss-against-live": ("peak_live_bytes, peak_rss_bytes", [(450, 6000)]),
    "scopes-retained": ("name, calls, retained_bytes, peak_growth_bytes", [("phase", 1, 200, 200)]),
    "scope-peaks": ("name, live_bytes", [("phase", 200)]),
    "step-growth": ("step_id, live_end_bytes, change_bytes", [(1, 200, None), (2, 100, -100)]),
    "processes": ("pid, allocations, peak_bytes, live_at_exit_bytes", [(7, 4, 450, 100)]),
    "lost": ("kind", []),
}


@test
def named_queries_answer(t):
    _, db = hand_trace(t)
    listed = t.run([os.path.join(t.build, "bin/tidemark"), "query", db, "@"], status=0).text
    names = re.findall(r"^@([a-z-]+) +\S", listed, re.M)
    narrow = t.run(["env", "COLUMNS=50", os.path.join(t.build, "bin/tidemark"), "query", db, "@"], status=0).text
    t.equal(narrow.split(), listed.split(), "the same words where lines must fit")
    t.check(max(map(len, narrow.splitlines())) <= 50, f"lines that fit: {narrow}")
    with open(os.path.join(ROOT, "schema/queries.sql")) as f:
        t.equal(names, re.findall(r"^-- @([a-z-]+): ", f.read(), re.M), "names")
    t.check(len(names) >= 20, f"{len(names)} queries")
    for name in names:
        rows = named(t, db, name)
        if name in ANSWERS:
            columns, expected = ANSWERS[name]
            t.equal([tuple(row[c] for c in columns.split(", ")) for row in rows], expected, f"@{name}")
    t.equal(set(names), set(ANSWERS), "queries whose answers are checked here")
    wrong = t.run([os.path.join(t.build, "bin/tidemark"), "query", db, "@nothing"], status=1)
    t.check("no query '@nothing'" in wrong.errors, wrong.errors)
    shown = t.run([os.path.join(t.build, "bin/tidemark"), "query", db, "@sizes", "--sql"], status=0).text
    t.check(shown.startswith("-- @sizes: ") and "FROM size_histogram" in shown, shown)
    for given, text in ((["SELECT 6 * 7 AS answer"], None), (["-"], b"SELECT 6 * 7 AS answer\n")):
        shown = t.run([os.path.join(t.build, "bin/tidemark"), "query", db, *given, "--sql", "--format=json"], status=0, input=text).text
        t.equal(shown, "SELECT 6 * 7 AS answer\n", f"{given} is shown and not run")


@test
def shares_count_what_has_none_of_it(t):
    """Of a heap's bytes the exact requests are a part, too, but not those of which nobody knows; of a line's blocks those that were not temporary."""
    trace = Trace()
    trace.process(1, pid=7)
    trace.thread(1, process=1)
    often, never, unknown = trace.stack("a", "make"), trace.stack("b", "make"), trace.stack("c", "other")
    trace.events(1, [malloc(1000, 0x1000, 100, often, usable=150), free(1001, 0x1000), malloc(1002, 0x2000, 900, never, usable=900),
                     malloc(1003, 0x3000, 5000, unknown, usable="unknown")], watermark=2000)
    trace.exit(1, 3000)
    trace.end(1, 3500)
    path, db = t.path("shares.tmk"), t.path("shares.db")
    trace.save(path)
    t.run([os.path.join(t.build, "bin/tidemark"), "import", "-q", path, "-o", db], status=0)
    t.equal([(r["slack_bytes"], r["allocated_bytes"], r["slack_share"]) for r in named(t, db, "rounding")], [(50, 1000, 0.05)], "rounding")
    t.equal([(r["function"], r["count"], r["bytes"], r["share"]) for r in named(t, db, "temporary")], [("make", 1, 100, 0.5)], "temporary")


@test
def call_sites_are_one_row_for_all_their_callers(t):
    """`make` was called by two: the block of one was freed. Of `keep`, called by two, none was."""
    trace = Trace()
    trace.process(1, pid=7)
    trace.thread(1, process=1)
    stacks = [trace.stack(caller, site) for site in ("make", "keep") for caller in ("a", "b")]
    trace.events(1, [malloc(1000 + n, 0x1000 * (n + 1), 10 * (n + 1), stack) for n, stack in enumerate(stacks)] + [free(2000, 0x1000)], watermark=2000)
    trace.exit(1, 3000)
    trace.end(1, 3500)
    path, db = t.path("callers.tmk"), t.path("callers.db")
    trace.save(path)
    t.run([os.path.join(t.build, "bin/tidemark"), "import", "-q", path, "-o", db], status=0)
    t.equal([(r["function"], r["allocations"], r["allocated_bytes"]) for r in named(t, db, "never-freed")], [("keep", 2, 70)], "never freed")
    t.equal([(r["function"], r["live_bytes"], r["peak_share"]) for r in named(t, db, "peak-makers")], [("keep", 70, 0.7), ("make", 30, 0.3)], "peak")


@test
def shares_are_of_sums(t):
    """A line that 200 stacks reach, each with too little to be a share of anything."""
    trace = Trace()
    trace.process(1, pid=7)
    trace.thread(1, process=1)
    stacks = [trace.stack(f"caller{n}", "node") for n in range(200)]
    trace.events(1, [malloc(900, 0x1000000, 992_000, trace.stack("large"))] + [malloc(1000 + n, 0x1000 * (n + 1), 40, stack) for n, stack in enumerate(stacks)], watermark=2000)
    trace.end(1, 3500)
    db = t.imported(trace.save(t.path("shares.tmk"))).path
    t.equal([(r["function"], r["live_bytes"], r["peak_share"]) for r in named(t, db, "peak-makers")], [("large", 992_000, 0.992), ("node", 8000, 0.008)], "peak")


@test
def sites_without_names_stay_apart(t):
    """Three sites of two libraries whose functions have no names: each by its place, and, by function, each library by its path."""
    trace = Trace()
    trace.process(1, pid=7)
    trace.thread(1, process=1)
    trace.module(1, process=1, bias=0x100000, size=0x1000, path="/lib/one.so")
    trace.module(2, process=1, bias=0x200000, size=0x1000, path="/lib/two.so")
    sites = [trace.stack("main", trace.frame(None, module=m, address=at)) for m, at in ((1, 0x100040), (1, 0x100080), (2, 0x200040))]
    events = []
    for n, size in enumerate((10, 10, 200, 200, 3000, 3000)):
        old, new = 0x1000 * (3 * n + 1), 0x1000 * (3 * n + 2)
        events += [malloc(1000 + 10 * n, old, size, sites[n // 2]), realloc(1001 + 10 * n, 1002 + 10 * n, old, new, size, sites[n // 2])]
        events += [free(1003 + 10 * n, new)] if n % 2 else []
    trace.events(1, events, watermark=2000)
    trace.exit(1, 3000)
    trace.end(1, 3500)
    path, db = t.path("unnamed.tmk"), t.path("unnamed.db")
    trace.save(path)
    t.run([os.path.join(t.build, "bin/tidemark"), "import", "-q", path, "-o", db], status=0)
    places, libraries = ["/lib/one.so+0x40", "/lib/one.so+0x80", "/lib/two.so+0x40"], ["/lib/one.so", "/lib/two.so"]
    for name in ("temporary", "growing-vectors", "peak-makers"):
        t.equal(sorted(r["function"] for r in named(t, db, name)), places, f"@{name}")
    t.equal([(r["function"], r["allocations"], r["mean_bytes"]) for r in named(t, db, "top-allocators")], [("/lib/one.so", 8, 105), ("/lib/two.so", 4, 3000)],
            "@top-allocators")
    t.equal([(r["function"], r["live_bytes"]) for r in named(t, db, "peak-functions")], [("/lib/two.so", 6000), ("/lib/one.so", 210)], "@peak-functions")
    table = t.ask("snapshot", db, "--at=peak", "--by=function").text
    t.equal([line.split()[1] for line in table.splitlines()[1:]], ["two.so", "one.so"], "snapshot --by=function")


@test
def prompt_completes(t):
    """A name is completed by a tabulator, and a line is found again, where there is an editor to be loaded."""
    _, db = hand_trace(t)
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="vt100", HOME=t.dir, COLUMNS="100")
        os.execv(os.path.join(t.build, "bin/tidemark"), ["tidemark", "query", db])
    said = b""

    def until(what, seconds=20, again=None):
        nonlocal said
        end = time.monotonic() + seconds
        while what not in said and time.monotonic() < end:
            if not select.select([terminal], [], [], 0.5)[0] and again:
                os.write(terminal, again)
            elif select.select([terminal], [], [], 0.2)[0]:
                try:
                    said += os.read(terminal, 4096)
                except OSError:
                    break
        t.check(what in said, f"expected {what}: {said}")
        said = said[said.index(what) + len(what):]
    until(b"tidemark> ")
    with open(f"/proc/{child}/maps") as f:
        has_editor = re.search(r"lib(edit|readline)\.so", f.read())
    os.write(terminal, b"SELECT 20 + 22 AS answer FROM realloc_s\t;\n" if has_editor else b"SELECT 20 + 22 AS answer;\n")
    until(b"42")
    os.write(terminal, b"@sizes\n")
    until(b"from_bytes")
    # Ctrl-C gives up the line, and the statement, but not the prompt.
    for typed in (b"SELECT 1 FROM nowhere", b"SELECT 1,\n"):
        os.write(terminal, typed)
        until(b"...> " if typed.endswith(b"\n") else b"nowhere")
        os.write(terminal, b"\x03")
        until(b"tidemark> ", again=b"\x03")  # a signal between two of the editor's reads waits for the next key
    if has_editor:
        os.write(terminal, b"SELECT 'it is ' || max(p.live_byt\t) IS NOT NULL AS it FROM peak AS p;\n")
        until(b"\n1")
        os.write(terminal, b"@peak-ma\t\n")
        until(b"peak_share")
    os.write(terminal, b".format json\nSELECT 6 * 7 AS n;\n")
    until(b'{"n":42}')
    os.write(terminal, b"quit\n")
    t.equal(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0, "status")
    if not has_editor:
        t.skip("neither libedit nor readline is installed")
    with open(t.path(".tidemark_history")) as f:
        t.check("@sizes" in f.read(), "the history keeps lines")


@test
def prompt_into_a_file(t):
    """Where standard output is no terminal it holds what was asked for, and the prompt is elsewhere."""
    _, db = hand_trace(t)
    master, terminal = pty.openpty()
    child = t.start([t.tidemark, "query", db, "--format=csv"], stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"TERM": "xterm"})
    os.write(master, b"SELECT 6 *\n7 AS n;\n.quit\n")
    out, errors = child.communicate(timeout=60)
    os.close(terminal)
    os.close(master)
    t.equal((child.returncode, out.decode()), (0, "n\n42\n"), "status and standard output")
    words = errors.decode()
    t.check(".help for help" in words and words.count("tidemark> ") == 2 and words.count("...> ") == 1 and words.endswith("\n"), f"standard error: {words!r}")


def loaded(t, path, sql):
    """Rows of a query about the trace as a table, as texts; what failed, as one text."""
    done = t.run(["sqlite3", "-batch", "-list", "-nullvalue", "-", ":memory:", f".load {os.path.join(t.build, 'lib/tidemark_vtab')}",
                  f"CREATE VIRTUAL TABLE temp.event USING tidemark({path})", sql])
    return [tuple(line.split("|")) for line in done.text.splitlines()] if not done.errors else done.errors


@test
def a_trace_is_a_table(t):
    t.need("sqlite3")
    if t.sanitized:
        t.skip("the extension is built without sanitizers")
    path, db = hand_trace(t)
    rows = loaded(t, f"'{path}'", "SELECT thread_id, ts_ns, api, class, size_bytes, old_address FROM event WHERE class <> 'text'")
    t.equal(rows, [("1", "1000", "malloc", "alloc", "100", "-"), ("1", "2000", "malloc", "alloc", "100", "-"), ("1", "3001", "realloc", "realloc", "300", "8192"),
                   ("1", "9000000", "free", "free", "-", "12288"), ("2", "4000", "malloc", "alloc", "50", "-"), ("2", "5000", "free", "free", "-", "20480")], "events")
    t.equal(loaded(t, f"'{path}'", "SELECT text FROM event WHERE text IS NOT NULL"), [("phase",)], "texts")
    allocated = sqlite3.connect(db).execute("SELECT sum(allocated_bytes) FROM heap_total WHERE heap_id = 0").fetchone()[0]
    t.equal(loaded(t, f"'{path}'", "SELECT sum(size_bytes), count(usable_bytes), count(DISTINCT process_id) FROM event"), [(str(allocated), "4", "1")], "sums")
    t.equal(loaded(t, f"'{path}'", "SELECT count(*) FROM event a JOIN event b ON b.ts_ns = a.ts_ns AND b.thread_id = a.thread_id WHERE a.class <> 'text'"), [("6",)],
            "two cursors")
    huge = Trace()
    huge.process(1, pid=7)
    huge.thread(1, process=1)
    huge.events(1, [malloc(10, 0x1000, (1 << 63) - 1, 0), malloc(11, 0x2000, (1 << 64) - 2, 0, usable="unknown")])
    t.equal(loaded(t, f"'{huge.save(t.path('huge.tmk'))}'", "SELECT size_bytes FROM event"), [(str((1 << 63) - 1),), ("-",)], "sizes that are no integers of SQLite's")
    with open(path, "rb") as file:
        data = file.read()
    with open(t.path("cut.tmk"), "wb") as file:
        file.write(data[:len(data) - 40])
    said = loaded(t, f"'{t.path('cut.tmk')}'", "SELECT count(*) FROM event")
    t.check("cut.tmk' ends at offset" in str(said) and "what comes before it is read" in str(said), said)
    for bad, what in (("'/nothing/here.tmk'", "cannot read '/nothing/here.tmk'"), (f"'{db}'", "cannot read"), ("", "one argument")):
        t.check(what in str(loaded(t, bad, "SELECT 1")), f"{bad}: {loaded(t, bad, 'SELECT 1')}")


main()
