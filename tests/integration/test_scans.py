"""Two ways to one answer: what import added up while it read the trace, and SQL over every single allocation, must be the same.

A window that begins with the trace (--from=0s) makes a command scan the view `allocation` instead of reading aggregates. Neither knows of
the other, so each is the oracle of the other: peaks and their sites, what is live at exit, at the end and at the peak, temporary blocks (which SQL here finds a
third time, by the allocation that follows each one on its thread).
"""
import json

from tidemark_test import main, test


def rows_of(t, db, columns, *arguments):
    rows = json.loads(t.ask(*arguments[:1], db.path, *arguments[1:], "--format=json").text)
    # A heap in which nothing was ever live has a row among the aggregates only.
    return sorted((tuple(row[c] for c in columns) for row in rows if row.get("live_bytes") != 0 or row.get("live_count") != 0), key=repr)


TEMPORARY = """SELECT process_id, heap, stack_id, count(*), sum(size_bytes) FROM (
    SELECT a.*, h.name AS heap, lead(alloc_ns) OVER (PARTITION BY thread_id ORDER BY alloc_ns, a.id) AS next_ns FROM allocation a JOIN heap h ON h.id = a.heap_id)
    WHERE free_thread_id = thread_id AND (next_ns IS NULL OR free_ns <= next_ns) AND alloc_ns >= ? AND alloc_ns <= ? GROUP BY process_id, heap_id, stack_id"""


def compare(t, *program):
    db = t.imported(t.record(list(program)))
    site = ("process_id", "heap", "stack_id", "live_bytes", "live_count", "function")
    listings = [(site, command) for command in (("peak", "--sites"), ("snapshot", "--at", "exit"), ("snapshot", "--at", "end"),
                                                ("snapshot", "--at", "peak"))]
    listings.append((("process_id", "heap", "ts_ns", "live_bytes", "live_count"), ("peak",)))
    listings.append((("process_id", "heap", "stack_id", "count", "bytes"), ("temporary",)))
    for columns, command in listings:
        added_up, scanned = rows_of(t, db, columns, *command), rows_of(t, db, columns, *command, "--from=0s")
        missing, extra = [r for r in added_up if r not in scanned], [r for r in scanned if r not in added_up]
        t.check(added_up == scanned, f"{' '.join(command)}: added up only: {missing[:5]}, scanned only: {extra[:5]}")
    first, last = db.rows("SELECT min(alloc_ns), max(alloc_ns) FROM allocation")[0]
    for window in ((0, 1 << 60), (first + (last - first) // 3, first + 2 * (last - first) // 3)):
        asked = rows_of(t, db, ("process_id", "heap", "stack_id", "count", "bytes"), "temporary", f"--from={window[0]}ns", f"--to={window[1]}ns")
        t.equal(asked, sorted(map(tuple, db.rows(TEMPORARY.replace("?", "{}").format(*window))), key=repr), f"temporary blocks in {window}")
    t.check(rows_of(t, db, site, "peak", "--sites"), "something was live")
    by_heap = "SELECT process_id, heap, sum(live_bytes), sum(live_count) FROM {} GROUP BY 1, 2 ORDER BY 1, 2"
    t.equal(db.rows(by_heap.format("leak_candidate")), db.rows(by_heap.format("live_at_exit")), "candidates and what was live at exit")


@test
def one_thread(t):
    compare(t, t.program("leak.c"))


@test
def threads(t):
    compare(t, t.program("threads.c"))


@test
def mappings(t):
    compare(t, t.program("prog_maps.c"))


@test
def blocks_passed_between_threads(t):
    compare(t, t.program("passing.c"), "2000")


@test
def forked_children(t):
    """Children that free inherited blocks, and allocate at their addresses at once."""
    compare(t, "sh", "-c", "for i in 1 2 3 4 5 6; do (x=$(echo $i | tr 1 2); echo $x); done; exec sh -c 'echo last'")


main()
