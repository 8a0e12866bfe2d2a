"""Import of large traces: what it holds in memory, and that what it writes is a sound database with the right totals.

Method: big_trace.c writes the traces and says what is in them; the importer's peak memory is what the system saw of it (getrusage), and is held against
64 MiB plus 200 bytes a live block plus 64 bytes a node of the stack tree. Sanitizers hold memory of their own: there only the content is checked.
"""
import os
import sqlite3
import subprocess

from tidemark_test import main, test


def big_trace(t, name, events, live, nodes, threads, pid=100):
    """(path, [allocations, allocated bytes, blocks live at the end, peak bytes])"""
    path = t.path(name)
    out = t.run([os.path.join(t.build, "tests/integration/big_trace"), path, *(str(n) for n in (events, live, nodes, threads, pid))]).text
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


main()
