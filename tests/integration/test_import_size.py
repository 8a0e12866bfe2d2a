"""Import of large traces: what it holds in memory, and that what it writes is a sound database with the right totals.

Method: big_trace.c writes the traces and says what is in them; the importer's peak memory is what the system saw of it (getrusage), and is held against
64 MiB plus 200 bytes a live block plus 64 bytes a node of the stack tree. Sanitizers hold memory of their own: there only the content is checked.
What asks the database may have so much data (RLIMIT_DATA): the mapped file is none.
"""
import ctypes
import multiprocessing
import os
import resource
import signal
import sqlite3
import subprocess
import time

from tidemark_test import main, test
from trace_writer import EVENTS, Trace, address_code, free, malloc, realloc, step, v

PR_SET_THP_DISABLE = 41


def big_trace(t, name, events, live, nodes, threads, pid=100, site_every=3):
    """(path, [allocations, allocated bytes, blocks live at the end, peak bytes])"""
    path = t.path(name)
    out = t.run([os.path.join(t.build, "tests/integration/big_trace"), path, *(str(n) for n in (events, live, nodes, threads, pid, 0, site_every))]).text
    return path, [int(n) for n in out.split()]


def import_peak(t, db, *arguments):
    """Peak memory in bytes."""
    child = subprocess.Popen([os.path.join(t.build, "bin/tidemark"), "import", *arguments, "-o", db], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    t.equal(child.returncode, 0, "exit status of the import")
    return used.ru_maxrss * 1024


def check_database(t, path, expected):
    db = sqlite3.connect(path)
    t.equal(db.execute("pragma integrity_check").fetchone(), ("ok",), "SQLite's integrity check")
    t.equal(list(db.execute("select sum(allocations), sum(allocated_bytes), sum(live_at_end_count), max(peak_bytes) from heap_total where heap_id = 0").fetchone()),
            expected, "totals")
    t.equal(db.execute("select count(*), sum(size_bytes), sum(free_ns is null) from allocation").fetchone(), tuple(expected[:3]), "rows")
    t.equal(db.execute("select sum(allocations), sum(allocated_bytes), sum(live_at_end_count), sum(peak_bytes) from site_total").fetchone(),
            (*expected[:3], db.execute("select sum(peak_bytes) from heap_total where heap_id <> 0").fetchone()[0]), "sites")
    t.equal(db.execute("select count(*) from allocation a left join stack s on s.id = a.stack_id where s.id is null").fetchone(), (0,), "stacks of rows")
    db.close()


def bound(live, nodes):
    return (64 << 20) + 200 * live + 64 * nodes


@test
def memory_follows_what_is_live(t):
    """Five million events with few live blocks, a million with many, and many stacks."""
    for events, live, nodes, threads in ((5_000_000, 1000, 1000, 1), (5_000_000, 1000, 1000, 4), (1_000_000, 250_000, 1000, 2), (400_000, 1000, 400_000, 2)):
        trace, expected = big_trace(t, "big.tmk", events, live, nodes, threads)
        peak = import_peak(t, t.path("big.db"), trace, "--force")
        case = f"{events} events, {live} live, {nodes} nodes, {threads} threads"
        if not t.sanitized:
            t.check(peak <= bound(live, nodes), f"{case}: {peak >> 10} KiB of {bound(live, nodes) >> 10} KiB")
        check_database(t, t.path("big.db"), expected)
    if t.sanitized:
        t.skip("memory is not what it would be without the sanitizer")


def pairs(thread, first_ns, apart_ns, count, address, size, stack):
    """A segment of blocks that are allocated at one address, one after the other, and freed at once: what segment() writes of so many would take it minutes."""
    columns = [b"\x00\x20" * count, v(0) + v(apart_ns) * (2 * count - 1), b"", v(0) * (2 * count), v(address_code(address) + 1) + v(1) * (count - 1),
               v(0) + v(address_code(address)) + v(0) * (2 * count - 2), v(size + 1) * count, b"", v(0) * count, v(stack + 1) * count, b""]
    return v(thread) + v(first_ns) + v(2 * count) + b"".join(v(len(c)) + c for c in columns)


def standing_still(path, apart, count, parts):
    """Thread 1 is stopped in the middle of a realloc, from 3000 on, whose old place another thread takes; what that one does until the realloc is over is eight
    million events."""
    trace, at = Trace(), 10_000_000
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    trace.thread(2, process=1)
    main = trace.stack("main")
    trace.segments([(1, [malloc(1000, 0x1000, 100, main)]), (2, [malloc(3_000_000, 0x1000, 10, main)])], watermark=3000)
    for _ in range(parts):
        trace.chunks.append((EVENTS, v(3000) + v(1) + pairs(2, at, apart, count, 0x2000, 64, main)))
        trace.event_count += 2 * count
        at += 2 * count * apart
    trace.segments([(1, [realloc(3000, at, 0x1000, 0x5000, 200, main), malloc(at + 10, 0x6000, 30, main), free(at + 20, 0x6000)])], watermark=at + 100)
    trace.exit(1, at + 200)
    trace.end(1, at + 300)
    trace.save(path)


def check_peak_while_still(t, peak):
    if t.sanitized:
        t.skip("memory is not what it would be without the sanitizer")
    t.check(peak <= 128 << 20, f"{peak >> 20} MiB")


@test
def memory_while_a_thread_stands_still(t):
    """More than 300 MiB where all that the others do meanwhile is kept waiting for it. Its free comes when another block lives at that address, and ends nothing."""
    path, apart, count, parts = t.path("still.tmk"), 1000, 100_000, 40
    # The peak of a child begins with that of its parent.
    writer = multiprocessing.get_context("fork").Process(target=standing_still, args=(path, apart, count, parts))
    writer.start()
    writer.join()
    t.equal(writer.exitcode, 0, "exit status of who writes the trace")
    peak = import_peak(t, t.path("still.db"), path)
    db = sqlite3.connect(t.path("still.db"))
    t.equal(db.execute("select address, size_bytes from allocation where free_ns is null order by 1").fetchall(), [(0x1000, 10), (0x5000, 200)], "what is live")
    t.equal(db.execute("select size_bytes, count(*), min(free_ns - alloc_ns), max(free_ns - alloc_ns) from allocation where size_bytes in (30, 64) group by 1"
                       ).fetchall(), [(30, 1, 10, 10), (64, parts * count, apart, apart)], "lifetimes of what came and went")
    t.equal(db.execute("select allocations, allocated_bytes, live_at_end_count from heap_total where heap_id = 0").fetchone(),
            (parts * count + 4, parts * count * 64 + 340, 2), "totals")
    db.close()
    check_peak_while_still(t, peak)


@test
def memory_while_recorded_threads_stand_still(t):
    """Fourteen threads are interrupted by a handler that never returns, mostly in the middle of a realloc; another one reallocs four million times."""
    trace = t.record([t.program("stands_still.c")]).trace
    peak = import_peak(t, t.path("recorded.db"), trace)
    db = sqlite3.connect(t.path("recorded.db"))
    t.equal(db.execute("select kind from loss").fetchall(), [], "losses")
    n = db.execute("select count(*) from allocation where thread_id = (select max(thread_id) from allocation)").fetchone()
    t.equal(n, (4_000_001,), "blocks of the thread that works")
    db.close()
    check_peak_while_still(t, peak)


@test
def memory_where_every_node_allocates(t):
    """Hardly a block is live, and each node of the tree is a call site of one block or two: the figures of all sites have to fit into the tree's share."""
    for nodes in (100_000, 300_000):
        trace, expected = big_trace(t, "sites.tmk", 3 * nodes, 1000, nodes, 1, site_every=1)
        peak = import_peak(t, t.path("sites.db"), trace, "--force")
        check_database(t, t.path("sites.db"), expected)
        if not t.sanitized:
            t.check(peak <= bound(1000, nodes), f"{nodes} nodes: {peak >> 10} KiB of {bound(1000, nodes) >> 10} KiB")
    if t.sanitized:
        t.skip("memory is not what it would be without the sanitizer")


@test
def memory_that_is_reserved_counts_too(t):
    """Few of many stacks allocate. A limit on data counts what the importer has asked for, used or not: what is more than it may use is enough, however much more."""
    if t.sanitized:
        t.skip("memory is not what it would be without the sanitizer")
    nodes = 1_500_000
    trace, expected = big_trace(t, "few.tmk", 400_000, 1000, nodes, 1, site_every=20)
    for more in range(0, 33, 8):
        limit = bound(1000, nodes) + (more << 20)
        t.run([t.tidemark, "import", "--force", trace, "-o", t.path("few.db")], status=0,
              preexec=lambda limit=limit: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)))
    check_database(t, t.path("few.db"), expected)


@test
def answers_about_many_stacks(t):
    """400,000 call stacks: the tree of folded ones takes some 70 bytes a stack, and sums by site what the sites take."""
    if t.sanitized:
        t.skip("memory is not what it would be without the sanitizer")
    nodes = 400_000
    trace, expected = big_trace(t, "sites.tmk", 3 * nodes, 1000, nodes, 1, site_every=1)
    t.run([t.tidemark, "import", trace, "-o", t.path("sites.db")], status=0)

    def within(mebibytes, *question):
        return t.run([t.tidemark, *question], status=0, preexec=lambda: resource.setrlimit(resource.RLIMIT_DATA, (mebibytes << 20, mebibytes << 20)))

    within(45, "export", "folded", t.path("sites.db"), "--value=allocated", "-o", t.path("sites.folded"))
    with open(t.path("sites.folded")) as f:
        t.equal(sum(int(line.rsplit(" ", 1)[1]) for line in f), expected[1], "allocated bytes of all lines")
    shown = within(20, "top", t.path("sites.db"), "--by=site", "--format=csv").text.splitlines()
    column = shown[0].split(",").index("allocations")
    t.equal(sum(int(row.split(",")[column]) for row in shown[1:]), expected[0], "allocations of all sites")


@test
def large_tables_ask_for_huge_pages(t):
    """What was allocated in a window is added up by a hash: with huge pages for the large ones of its tables many of its page faults are spared."""
    if t.sanitized:
        t.skip("memory is not what it would be without the sanitizer")
    with open("/sys/kernel/mm/transparent_hugepage/enabled") as f:
        if "[never]" in f.read():
            t.skip("the system has no huge pages")
    trace, _ = big_trace(t, "window.tmk", 1_200_000, 1000, 400_000, 1, site_every=1)
    t.run([t.tidemark, "import", trace, "-o", t.path("window.db")], status=0)

    def faults(forbidden):
        child = subprocess.Popen([t.tidemark, "export", "folded", t.path("window.db"), "--value=allocated", "--from=1ms", "-o", "/dev/null"],
                                 preexec_fn=lambda: ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, forbidden, 0, 0, 0))
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        t.equal(child.returncode, 0, "exit status")
        return used.ru_minflt

    small, huge = faults(1), faults(0)
    t.check(huge < 0.85 * small, f"{huge} page faults, and {small} where huge pages are forbidden")


@test
def steps_lie_in_a_file(t):
    """What each step did is not kept in memory of the importer's own, which is limited here, until it is written."""
    if t.sanitized:
        t.skip("memory is not what it would be without the sanitizer")
    trace = Trace()
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    steps = 100_000
    for begin in range(0, steps, 20_000):
        trace.events(1, [event for i in range(begin, begin + 20_000)
                         for event in (step(1000 + 4 * i, i), malloc(1001 + 4 * i, 0x10000, 32), free(1002 + 4 * i, 0x10000))])
    trace.exit(1, 1000 + 4 * steps)
    trace.end(1, 1001 + 4 * steps)
    t.run([t.tidemark, "import", trace.save(t.path("steps.tmk")), "-o", t.path("steps.db")], status=0,
          preexec=lambda: resource.setrlimit(resource.RLIMIT_DATA, (80 << 20, 80 << 20)))
    db = sqlite3.connect(t.path("steps.db"))
    t.equal(db.execute("select count(*), sum(allocated_bytes), sum(freed_bytes) from step_aggregate where heap_id <> 0").fetchone(),
            (steps, 32 * steps, 32 * steps), "steps")
    db.close()


@test
def tables_go_on_where_they_ended(t):
    """Several traces together, and appended to what is there: ids go on, and all pages are sound."""
    made = [big_trace(t, f"{i}.tmk", events, 500, 3000 + i, 2, 100 + i) for i, events in enumerate((50_000, 300, 120_000, 70_000))]
    traces, counts = [trace for trace, _ in made], [expected for _, expected in made]
    together = [sum(c[k] for c in counts) for k in range(3)] + [max(c[3] for c in counts)]
    import_peak(t, t.path("all.db"), *traces)
    check_database(t, t.path("all.db"), together)
    import_peak(t, t.path("two.db"), *traces[:2])
    import_peak(t, t.path("two.db"), "--append", *traces[2:])
    check_database(t, t.path("two.db"), together)
    t.equal(sorted(os.listdir(t.dir)), ["0.tmk", "1.tmk", "2.tmk", "3.tmk", "all.db", "two.db"], "files that are left")
    query = ("select id, size_bytes, alloc_ns, stack_id, heap_id, free_ns from allocation order by id", "select * from stack order by id",
             "select * from site_total", "select * from snapshot_stack", "select * from snapshot order by id")
    one, other = sqlite3.connect(t.path("all.db")), sqlite3.connect(t.path("two.db"))
    for q in query:
        t.equal(one.execute(q).fetchall() == other.execute(q).fetchall(), True, q)


@test
def sqlite_does_with_it_what_it_does_with_its_own(t):
    """Checks, compacting, another page size, dumping and reading again, changing, deleting: pages that SQLite did not write are as its own."""
    trace, expected = big_trace(t, "big.tmk", 100_000, 10_000, 10_000, 2)
    import_peak(t, t.path("big.db"), trace)
    check_database(t, t.path("big.db"), expected)
    db = sqlite3.connect(t.path("big.db"), isolation_level=None)
    t.equal(db.execute("pragma quick_check").fetchall(), [("ok",)], "quick check")
    tables = [name for (name,) in db.execute("select name from sqlite_schema where type = 'table' and name not like 'sqlite_%' order by name")]
    t.check({"allocation_packed", "stack", "site_total", "snapshot_stack"} <= set(tables), f"tables: {tables}")
    content = {name: sorted(map(repr, db.execute(f"select * from {name}"))) for name in tables}

    def same(other, what):
        base = sqlite3.connect(other)
        for name in tables:
            t.check(sorted(map(repr, base.execute(f"select * from {name}"))) == content[name], f"{what}: table {name} is the same")
        t.equal(base.execute("pragma integrity_check").fetchall(), [("ok",)], f"{what}: integrity check")
        base.close()

    db.execute("vacuum into ?", (t.path("compact.db"),))
    same(t.path("compact.db"), "VACUUM INTO")
    dumped = sqlite3.connect(t.path("dumped.db"))
    dumped.executescript("\n".join(db.iterdump()))
    dumped.close()
    same(t.path("dumped.db"), "dumped and read again")
    db.execute("pragma page_size = 1024")
    db.execute("vacuum")
    t.equal(db.execute("pragma page_size").fetchone(), (1024,), "page size")
    db.close()
    same(t.path("big.db"), "VACUUM to another page size")
    import_peak(t, t.path("fresh.db"), trace)
    db = sqlite3.connect(t.path("fresh.db"), isolation_level=None)
    db.execute("delete from allocation_packed where id % 3 = 0")
    db.execute("update allocation_packed set size_bytes = size_bytes + 1 where id % 5 = 0")
    db.execute("delete from site_total where stack_id % 2 = 0")
    db.execute("insert into stack select id + 1000000, parent_id, frame_id, depth, site_frame_id from stack")
    t.equal(db.execute("pragma integrity_check").fetchall(), [("ok",)], "integrity check after changes")
    db.close()


@test
def killed_imports_leave_nothing_under_the_name(t):
    """Whenever it is killed, the database that stood there is as it was, or the new one is whole."""
    old, of_old = big_trace(t, "old.tmk", 1000, 100, 100, 1)
    trace, expected = big_trace(t, "big.tmk", 1_000_000, 20_000, 30_000, 2)
    import_peak(t, t.path("big.db"), old)
    for step in range(12):
        child = subprocess.Popen([os.path.join(t.build, "bin/tidemark"), "import", trace, "-o", t.path("big.db"), "--force"], stdin=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        time.sleep(0.01 * 1.6 ** step)
        child.send_signal(signal.SIGKILL)
        child.wait()
        db = sqlite3.connect(t.path("big.db"))
        events = db.execute("select sum(events) from trace").fetchone()[0]
        db.close()
        check_database(t, t.path("big.db"), of_old if events < 2000 else expected)
        if events > 2000:
            break
    import_peak(t, t.path("big.db"), trace, "--force")
    check_database(t, t.path("big.db"), expected)


main()
