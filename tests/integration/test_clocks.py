"""Times that are equal, go back, or leap by hours: what they mean, and that nothing is lost or counted twice by them.

Method: traces made event by event. What is live at an instant is worked out from the rows of `allocation` (allocated at it or before, not freed at it or
before), and compared with peaks, snapshots and windows.
"""
import json
import random

from tidemark_test import main, test
from trace_writer import Trace, free, malloc, mark, mmap, munmap, realloc, text

HOUR = 3_600_000_000_000
YEAR = 8766 * HOUR


def made(t, segments, end=10000, name="run.tmk", threads=2, exit=None, note=None, **info):
    """segments: [[(thread, events), ...], ...], one chunk each."""
    trace = Trace(**info)
    trace.process(1, pid=100)
    for id in range(1, threads + 1):
        trace.thread(id, process=1)
    for chunk in segments:
        trace.segments(chunk)
    if note:
        trace.note(1, end - 400, note, "a reason")
    trace.exit(1, end - 500 if exit is None else exit)
    trace.end(1, end)
    return t.imported(trace.save(t.path(name)), options=("--quiet",))


def live_at(db, ns):
    return db.value("select coalesce(sum(size_bytes), 0) from allocation where alloc_ns <= ? and (free_ns is null or free_ns > ?)", ns, ns)


def agree(t, db, what):
    """The peak is the highest of all instants, and whoever asks for it, in whichever way, hears the same."""
    instants = [ns for ns, in db.rows("select alloc_ns from allocation")]
    highest = max(live_at(db, ns) for ns in instants)
    ns, peak = db.row("select ts_ns, live_bytes from peak where heap = 'malloc'")
    t.equal(peak, highest, f"{what}: the peak")
    t.equal(live_at(db, ns), peak, f"{what}: live when it was reached")
    t.equal(db.value("select sum(live_bytes) from peak_site where heap = 'malloc'"), peak, f"{what}: what it was made of")
    for window in (("--from=0s",), (f"--from={max(0, ns - 1)}ns", f"--to={ns + 1}ns")):
        rows = json.loads(t.ask("peak", db.path, "--heap=malloc", "--format=json", *window).out)
        t.equal([r["live_bytes"] for r in rows if r["heap"] == "malloc"], [peak], f"{what}: the peak of {window}")
    for at in {ns, *instants}:
        rows = json.loads(t.ask("snapshot", db.path, "--at", f"{at}ns", "--format=json").out)
        t.equal(sum(r["live_bytes"] for r in rows), live_at(db, at), f"{what}: snapshot at {at}")


@test
def one_address_at_one_nanosecond(t):
    """A block goes from thread to thread within a nanosecond, whichever thread comes first in the file: never live twice, never lost."""
    for first, second in ((1, 2), (2, 1)):
        db = made(t, [[(first, [malloc(1000, 0x1000, 1000), free(5000, 0x1000)]), (second, [malloc(5000, 0x1000, 800), free(7000, 0x1000)])]])
        t.equal(db.rows("select size_bytes, alloc_ns, free_ns from allocation order by 2, 1 desc"), [(1000, 1000, 5000), (800, 5000, 7000)], "rows")
        t.equal(db.value("select live_bytes from peak where heap = 'malloc'"), 1000, "never both")
        t.equal(db.rows("select kind from loss"), [], "losses")
        agree(t, db, f"{first} before {second}")
        # Allocated and handed over and freed, all within one.
        db = made(t, [[(first, [malloc(5000, 0x1000, 1000)]), (second, [free(5000, 0x1000), malloc(6000, 0x2000, 10)])]])
        t.equal(db.rows("select size_bytes, alloc_ns, free_ns from allocation order by 2"), [(1000, 5000, 5000), (10, 6000, None)], "handed over")
        t.equal(db.rows("select kind from loss"), [], "losses of what was handed over")


@test
def two_addresses_at_one_nanosecond(t):
    """One thread frees as another allocates: the block that ends is no longer live at its free_ns, so the two do not add up."""
    for first, second in ((1, 2), (2, 1)):
        db = made(t, [[(first, [malloc(1000, 0x1000, 1000), free(5000, 0x1000)]), (second, [malloc(5000, 0x9000, 800), free(7000, 0x9000)])]])
        t.equal(db.row("select ts_ns, live_bytes from peak where heap = 'malloc'"), (1000, 1000), "peak")
        agree(t, db, f"{first} before {second}")
    db = made(t, [[(1, [malloc(1000, 0x1000, 1000), realloc(4000, 5000, 0x1000, 0x3000, 1500), free(9000, 0x3000)]), (2, [malloc(4000, 0x9000, 800), free(5000, 0x9000)])]])
    agree(t, db, "a realloc among them")


@test
def one_thread_at_one_nanosecond(t):
    """A coarse clock: the order of one thread's events is the file's, whatever they are stamped with."""
    db = made(t, [[(1, [malloc(5000, 0x1000, 1000), malloc(5000, 0x2000, 500), free(5000, 0x1000), malloc(5000, 0x1000, 300), free(5000, 0x2000)])]], threads=1)
    t.equal(db.value("select live_bytes from peak where heap = 'malloc'"), 1500, "the peak, within the nanosecond")
    t.equal(db.value("select sum(live_bytes) from live_at_exit where heap = 'malloc'"), 300, "what is left")


@test
def a_clock_that_goes_back(t):
    """A thread's later chunk begins before its earlier one ended. Rows have the times that they are stamped with; levels change in the order of the file."""
    db = made(t, [[(1, [malloc(1000, 0x1000, 1000), malloc(8000, 0x2000, 500)])], [(1, [free(3000, 0x1000), malloc(4000, 0x3000, 100), mark(4500, 0)])],
                  [(2, [malloc(2000, 0x4000, 50)])], [(1, [free(9000, 0x2000)])]], end=10000)
    t.equal(db.value("select count(*) from allocation where free_ns < alloc_ns"), 0, "blocks that end before they begin")
    t.equal(db.rows("select size_bytes, free_ns is null from allocation order by 1"), [(50, 1), (100, 1), (500, 0), (1000, 0)], "every block, once")
    t.equal(db.rows("select kind from loss"), [], "losses")
    t.equal(db.row("select ts_ns, live_bytes from peak where heap = 'malloc'"), (8000, 1550), "the peak, before the clock went back")
    t.equal(db.rows("select live_bytes, live_count from live_at_exit where heap = 'malloc'"), [(150, 2)], "what is left")
    for verb in (("summary",), ("timeline",), ("leaks",), ("snapshot", "--at", "3500ns"), ("peak", "--from=2us"), ("temporary", "--from=1us")):
        t.ask(verb[0], db.path, *verb[1:])


@test
def a_clock_that_leaps(t):
    """The clock leaps by nine hours in the middle; and by twenty years, to the end of what a trace can say."""
    for name, leap in (("hours", 9 * HOUR), ("years", 20 * YEAR)):
        db = made(t, [[(1, [malloc(1000, 0x1000, 1000)]), (2, [malloc(2000, 0x2000, 500)])],
                      [(1, [free(leap, 0x1000), malloc(leap + 10, 0x1000, 700)]), (2, [malloc(leap + 20, 0x3000, 60)])]], end=leap + 10000, name=name)
        t.equal(db.rows("select size_bytes, alloc_ns, free_ns from allocation order by 2"),
                [(1000, 1000, leap), (500, 2000, None), (700, leap + 10, None), (60, leap + 20, None)], f"{name}: rows")
        agree(t, db, name)
        for verb in (("summary",), ("timeline",), ("leaks",), ("temporary", "--from=1h"), ("snapshot", "--at", "30m"), ("timeline", "--gap"), ("scopes",)):
            t.ask(verb[0], db.path, *verb[1:], status=0)


@test
def processes_whose_clocks_differ(t):
    """Two traces, of hosts whose wall clocks are a year apart: the database begins with the earlier one, whichever is given first."""
    paths = []
    for name, start, host in (("old", 1_700_000_000 * 10**9, "a"), ("new", 1_700_000_000 * 10**9 + YEAR, "b")):
        trace = Trace(start_unix_ns=start, host=host)
        trace.process(1, pid=100, host=host)
        trace.thread(1, process=1)
        trace.events(1, [malloc(1000, 0x1000, 1000), free(2000, 0x1000), malloc(3000, 0x1000, 10)])
        trace.exit(1, 4000)
        trace.end(1, 5000)
        paths.append(trace.save(t.path(name)))
    for order in (paths, paths[::-1]):
        db = t.imported(*order, options=("--quiet",))
        t.equal(db.rows("select t.host, p.start_ns, p.end_ns, k.ts_ns, k.live_bytes from process p join trace t on t.id = p.trace_id join peak k"
                        " on k.process_id = p.id and k.heap = 'malloc' order by 1"), [("a", 0, 5000, 1000, 1000), ("b", YEAR, YEAR + 5000, YEAR + 1000, 1000)], "times")
        for verb in (("summary",), ("timeline",), ("processes",), ("leaks",), ("snapshot", "--at", "exit"), ("peak", "--from=1us", "--to=1h")):
            t.ask(verb[0], db.path, *verb[1:], status=0)


@test
def a_process_that_ends_before_it_begins(t):
    """exit and end are stamped before the last events, or before the first: the events count, and no duration is negative."""
    for name, exit, end in (("exit", 500, 9000), ("both", 500, 600), ("exit after end", 9000, 700)):
        db = made(t, [[(1, [malloc(1000, 0x1000, 1000), free(3000, 0x1000), malloc(4000, 0x2000, 40)]), (2, [mmap(2000, 0x100000, 4096), munmap(2900, 3000, 0x100000, 4096)])]],
                  exit=exit, end=end)
        t.equal(db.value("select count(*) from allocation"), 3, f"{name}: rows")
        start, left, ended = db.row("select start_ns, exit_ns, end_ns from process")
        t.check(start <= left <= ended, f"{name}: start {start}, exit {left}, end {ended}")
        t.equal(db.value("select live_bytes from peak where heap = 'malloc'"), 1000, f"{name}: peak")
        for verb in (("summary",), ("timeline",), ("leaks",), ("snapshot", "--at", "exit"), ("snapshot", "--at", "end"), ("peak", "--from=0s"), ("check", "--max-peak=1MiB")):
            t.ask(verb[0], db.path, *verb[1:], status=0)


def history(draw, events=400):
    """What two threads do with eight addresses, one event in ten of which is missing: [events of the first, of the second]."""
    ns, live, threads = 1000, {}, ([], [])
    for _ in range(events):
        ns += draw.choice((3, 400, 9_000, 200_000))
        address = 0x10000 + 0x1000 * draw.randrange(8)
        if address in live:
            event = free(ns, address)
            del live[address]
        else:
            live[address] = 10 ** draw.randrange(3, 7)
            event = malloc(ns, address, live[address])
        if draw.randrange(10):
            draw.choice(threads).append(event)
    return threads


@test
def a_missing_event_holds_up_nobody(t):
    """The free of a block that was not recorded, or the next block where a free was lost, waits for nothing that does not come: levels go with the rows."""
    # The first free is of an older block. Two blocks of a million bytes, never at the same time: 2100 to 2200, 12,000 to 900,000.
    older = [free(2000, 0x10000), malloc(2100, 0x10000, 1_000_000), free(2200, 0x10000), malloc(12_000, 0x90000, 1_000_000), free(900_000, 0x90000)]
    # The free of the first block is missing: it ends at 12,000, where its address is allocated again.
    lost = [malloc(2100, 0x10000, 1_000_000), malloc(12_000, 0x10000, 20), free(13_000, 0x10000), malloc(14_000, 0x90000, 999_990), free(900_000, 0x90000)]
    for what, events in (("an older block", older), ("a lost free", lost)):
        db = made(t, [[(2, [malloc(1000, 0x5000, 10)]), (1, events)]], end=1_000_000)
        t.equal(db.row("select ts_ns, live_bytes from peak where heap = 'malloc'"), (2100, 1_000_010), f"{what}: the peak")
        agree(t, db, what)
    # Another thread's allocation is stamped 20 us after the free of its block: that is waited for.
    db = made(t, [[(2, [malloc(22_000, 0x10000, 500), malloc(30_000, 0x5000, 10)]), (1, [free(2000, 0x10000), malloc(40_000, 0x6000, 10)])]], end=1_000_000)
    t.equal(db.rows("select size_bytes, alloc_ns, free_ns from allocation order by 2"), [(500, 22_000, 22_000), (10, 30_000, None), (10, 40_000, None)], "waited for")
    # A slow call's free is read behind what its thread did within the call, and another thread has had the address since: that is waited for, too.
    within = [malloc(2100 + 1000 * i, 0x20000 + 0x100 * i, 1) for i in range(60)]
    db = made(t, [[(1, [malloc(1000, 0x10000, 500), *within]), (2, [malloc(2105, 0x10000, 70), free(900_000, 0x10000)])], [(1, [free(2000, 0x10000)])]],
              end=1_000_000)
    t.equal(db.rows("select size_bytes, alloc_ns, free_ns from allocation where size_bytes > 1 order by 2"), [(500, 1000, 2000), (70, 2105, 900_000)], "a slow call")
    t.equal(db.rows("select kind from loss"), [], "nothing is lost by it")
    for seed in range(6):
        first, second = history(random.Random(seed))
        db = made(t, [[(1, first), (2, second)]], end=60_000_000, name=f"{seed}.tmk")
        timeline = db.rows("select ts_ns, live_bytes from memory_timeline where heap = 'malloc' and ts_ns < 59000000")
        t.check(len(timeline) > 200 and db.value("select sum(count) from loss") > 10, f"seed {seed}: {len(timeline)} levels")
        for ns, level in dict(timeline).items():  # the last of each instant
            t.equal(level, live_at(db, ns), f"seed {seed}: the level at {ns}")
        if seed < 2:
            agree(t, db, f"seed {seed}")


@test
def frees_of_blocks_that_are_not_recorded(t):
    """A free that comes first at its address since recording went on, or in a process of which not all is recorded, does not end another thread's next block."""
    rows = "select size_bytes, alloc_ns, free_ns from allocation order by size_bytes"
    # 501's address is freed 5 us before by thread 2, 502 is older than the stop; the frees of 504 and 506 are early: one at an address that was used before, the
    # other with 507 behind it, so that it was between them; of 505's that is not known. 508 takes the place of what thread 1 freed itself.
    first = [malloc(500, 0x20000, 502), text("stop", 1000), text("start", 1_000_000), malloc(5_005_000, 0x10000, 501), malloc(5_900_000, 0x30000, 503),
             free(5_950_000, 0x30000), malloc(6_005_000, 0x30000, 504), malloc(7_000_050, 0x50000, 505), malloc(8_000_600, 0x40000, 506), malloc(8_001_000, 0x40000, 507),
             free(9_000_000, 0x60000), malloc(9_000_050, 0x60000, 508)]
    second = [free(5_000_000, 0x10000), free(5_000_100, 0x20000), free(6_000_000, 0x30000), free(7_000_000, 0x50000), free(8_000_000, 0x40000)]
    db = made(t, [[(1, first), (2, second)]], end=20_000_000)
    t.equal(db.rows(rows), [(501, 5_005_000, None), (502, 500, 5_000_100), (503, 5_900_000, 5_950_000), (504, 6_005_000, 6_005_000), (505, 7_000_050, None),
                           (506, 8_000_600, 8_000_600), (507, 8_001_000, None), (508, 9_000_050, None)], "after a stop")
    t.equal(db.rows("select kind from loss"), [], "a stop explains frees of the unknown")
    # The same where it may be so at any time: 501's address was used before; 503's free is early by 50 ns, 504's by 600, and 505 follows.
    first = [malloc(900, 0x10000, 500), free(1000, 0x10000), malloc(5_005_000, 0x10000, 501), malloc(6_000_050, 0x20000, 503), malloc(7_000_600, 0x30000, 504),
             malloc(7_001_000, 0x30000, 505)]
    second = [free(5_000_000, 0x10000), free(6_000_000, 0x20000), free(7_000_000, 0x30000)]
    db = made(t, [[(1, first), (2, second)]], end=20_000_000, note="bypassed")
    t.equal(db.rows(rows), [(500, 900, 1000), (501, 5_005_000, None), (503, 6_000_050, 6_000_050), (504, 7_000_600, 7_000_600), (505, 7_001_000, None)],
            "of an allocator that is not seen")
    t.equal(db.rows("select kind, count from loss"), [("unmatched-free", 1)], "that free is of nothing known")
    db = made(t, [[(1, first), (2, second)]], end=20_000_000)
    t.equal(db.rows(rows)[1], (501, 5_005_000, 5_005_000), "where all is recorded it was early")


main()
