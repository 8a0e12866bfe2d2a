"""Import: traces made event by event, every figure of every view worked out by hand, then a random trace against a slow oracle.

Method: trace_writer.py writes the events; `tidemark import` makes the database; views and tables are read with Python's own SQLite. No
recorder is needed.
"""
import json
import math
import os
import re
import random
import shutil
import sqlite3
import subprocess
import sys
import time

from tidemark_test import main, test
from trace_writer import (EXECED, FORKED, PYTHON, UNRECORDED, Trace, free, malloc, mark, mmap, mremap, munmap, realloc, text, v as varint)


def simple(**info):
    """One process, one thread."""
    t = Trace(**info)
    t.process(1, pid=100)
    t.thread(1, process=1)
    return t


def finish(t, test, exit=9000, end=10000, name="run.tmk"):
    if exit:
        t.exit(1, exit)
    t.end(1, end)
    return t.save(test.path(name))


def database(test, *traces, options=()):
    return test.imported(*traces, options=("--quiet", *options))


def malloc_peak(db):
    return db.row("select ts_ns, live_bytes, live_count from peak where heap = 'malloc'")


@test
def heap_blocks(t):
    """Two sites; the peak is 350 at 3000: a 100 + b 250; one leak of 100 from a; three blocks were freed before the next was allocated."""
    trace = simple()
    a, b = trace.stack("main", "a"), trace.stack("main", "b")
    trace.events(1, [malloc(1000, 0x1000, 100, a), malloc(2000, 0x2000, 50, b), free(2500, 0x2000), malloc(3000, 0x3000, 250, b), free(4000, 0x3000),
                     malloc(5000, 0x2000, 10, b), malloc(5500, 0x4000, 1, a), free(5600, 0x2000), free(9500, 0x4000)])
    db = database(t, finish(trace, t))
    t.equal(malloc_peak(db), (3000, 350, 2), "peak of malloc")
    t.equal(db.row("select ts_ns, live_bytes, live_count from peak where heap is null"), (3000, 350, 2), "peak of the process")
    t.equal(db.rows("select function, live_bytes, live_count from peak_site order by function"), [("a", 100, 1), ("b", 250, 1)], "sites at the peak")
    t.equal(db.rows("select function, live_bytes, live_count from live_at_exit"), [("a", 101, 2)], "live at exit, before the late free")
    t.equal(db.rows("select function, live_bytes, live_count, file, line from live_at_end"), [("a", 100, 1, "a.c", 2)], "live at end")
    t.equal(db.rows("select function, count, bytes from temporary"), [("a", 1, 1), ("b", 2, 300)],
            "freed before the thread's next allocation")
    t.equal(db.rows("select function, allocations, allocated_bytes, frees, freed_bytes, temporary, live_bytes, peak_bytes from site order by function"),
            [("a", 2, 101, 1, 1, 1, 100, 100), ("b", 3, 310, 3, 310, 2, 0, 250)], "sites")
    t.equal(db.rows("select function, self_bytes, total_bytes, self_count, total_count from function_total order by function"),
            [("a", 101, 101, 2, 2), ("b", 310, 310, 3, 3), ("main", 0, 411, 0, 5)], "functions")
    t.equal(db.rows("select ts_ns, live_bytes, live_count from memory_timeline where heap = 'malloc' order by ts_ns"),
            [(0, 0, 0), (1000, 100, 1), (2000, 150, 2), (2500, 100, 1), (3000, 350, 2), (4000, 100, 1), (5000, 110, 2), (5500, 111, 3), (5600, 101, 2),
             (9500, 100, 1), (10000, 100, 1)], "timeline")
    t.equal(db.rows("select address, size_bytes, usable_bytes, api, alloc_ns, free_ns, free_thread_id = thread_id, realloc_of_id, weight from allocation"),
            [(0x2000, 50, 56, "malloc", 2000, 2500, 1, None, 1.0), (0x3000, 250, 264, "malloc", 3000, 4000, 1, None, 1.0),
             (0x2000, 10, 24, "malloc", 5000, 5600, 1, None, 1.0), (0x4000, 1, 24, "malloc", 5500, 9500, 1, None, 1.0),
             (0x1000, 100, 104, "malloc", 1000, None, None, None, 1.0)], "allocations, in the order of their ends")
    t.equal(db.rows("select start_ns, exit_ns, end_ns, end_kind, end_code, command from process"), [(0, 9000, 10000, "exit", 0, "x -y")], "process")
    t.equal(db.rows("select complete, events, cut_reason from trace"), [(1, 9, None)], "trace")
    t.equal(db.rows("select * from loss"), [], "losses")
    t.equal(db.rows("select label, ts_ns, live_bytes, live_count from snapshot order by ts_ns, label"),
            [("start", 0, 0, 0), ("peak", 3000, 350, 2), ("process-peak", 3000, 350, 2), ("exit", 9000, 101, 2), ("end", 10000, 100, 1)], "snapshots")
    t.equal(db.row("select name, category, calls, duration_ns, self_allocated_bytes, total_allocated_bytes, self_freed_bytes, own_freed_bytes, "
                   "retained_bytes, self_net_bytes, self_allocations, total_frees, peak_bytes from scope_total"),
            ("[unscoped]", None, None, None, 411, 411, 311, 311, 100, 100, 5, 4, 350), "everything happened outside of scopes")
    t.equal(db.rows("select * from scope"), [(0, None, None, None, "[unscoped]", None, None, None, None, 0, None)], "scope 0")


@test
def realloc_chain(t):
    """malloc 10, realloc to 30 (moves), realloc to 20 (in place), free; the peak is 30, and never 40: the old block goes first."""
    trace = simple()
    f = trace.stack("main")
    trace.events(1, [malloc(1000, 0x1000, 10, f), realloc(1900, 2000, 0x1000, 0x2000, 30, f), realloc(2900, 3000, 0x2000, 0x2000, 20, f), free(4000, 0x2000)])
    db = database(t, finish(trace, t))
    t.equal(malloc_peak(db), (2000, 30, 1), "peak")
    t.equal(db.rows("select id, size_bytes, api, alloc_ns, free_ns, realloc_of_id from allocation"),
            [(1, 10, "malloc", 1000, 1900, None), (2, 30, "realloc", 2000, 2900, 1), (3, 20, "realloc", 3000, 4000, 2)], "chain")
    t.equal(db.row("select allocations, allocated_bytes, frees, freed_bytes, temporary from heap_summary where heap = 'malloc'"), (3, 60, 3, 60, 3), "totals")
    t.equal(db.value("select events from trace"), 6, "a realloc is two events")


@test
def partial_unmap(t):
    """10,000 bytes are three pages; the middle page goes, then the last (1,808 requested bytes), then the first."""
    trace = simple()
    f = trace.stack("main")
    trace.events(1, [mmap(1000, 0x10000, 10000, f), munmap(1900, 2000, 0x11000, 4096), munmap(2900, 3000, 0x12000, 4096), munmap(3900, 4000, 0x10000, 1)])
    db = database(t, finish(trace, t))
    t.equal(db.rows("select id, address, size_bytes, api, alloc_ns, free_ns, realloc_of_id from allocation"),
            [(1, 0x11000, 4096, "mmap", 1000, 1900, None), (2, 0x12000, 1808, "mmap", 1000, 2900, 1), (3, 0x10000, 4096, "mmap", 1000, 3900, 1)], "parts")
    t.equal(db.row("select allocations, allocated_bytes, frees, freed_bytes, live_at_end_bytes, live_at_end_count, temporary from heap_summary where heap = 'mmap'"),
            (1, 10000, 3, 10000, 0, 0, 0), "one call, three parts")
    t.equal(db.rows("select ts_ns, live_bytes, live_count from memory_timeline where heap = 'mmap' order by ts_ns"),
            [(0, 0, 0), (1000, 10000, 1), (1900, 5904, 2), (2900, 4096, 1), (3900, 0, 0), (10000, 0, 0)], "live at all times")


@test
def parts_count_for_threads_and_ranks(t):
    """16 pages of the first thread lose their second page (parts of 1 and 14 pages live on), then the first, then the rest; of the second
    thread's 2 pages one stays. Levels of threads and ranks count the parts as the heap's does; at their peaks: the second's part, and what came last."""
    trace = Trace()
    trace.process(1, pid=100, rank=0)
    trace.thread(1, process=1)
    trace.thread(2, process=1)
    f, page = trace.stack("main"), 4096
    trace.segments([(1, [mmap(1000, 0x100000, 16 * page, f), munmap(1900, 2000, 0x101000, page), malloc(2500, 0x1000, page, f),
                         munmap(2900, 3000, 0x100000, page), munmap(3900, 4000, 0x102000, 14 * page), malloc(6000, 0x2000, 99 * page, f)]),
                    (2, [mmap(1100, 0x200000, 2 * page, f), munmap(4900, 5000, 0x200000, page)])], watermark=7000)
    db = database(t, finish(trace, t))
    t.equal(db.rows("select thread_id, ts_ns, live_bytes, live_count from thread_peak order by thread_id"), [(1, 6000, 100 * page, 2), (2, 1100, 2 * page, 1)],
            "threads")
    t.equal(db.rows("select rank, ts_ns, live_bytes, live_count from rank_peak"), [(0, 6000, 101 * page, 3)], "rank")
    t.equal(db.row("select ts_ns, live_bytes, live_count from peak where heap is null"), (6000, 101 * page, 3), "process")
    t.equal(db.rows("select kind, number, live_at_end_bytes, live_at_end_count from level_total order by kind, number"),
            [("rank", 0, 101 * page, 3), ("thread", 1, 100 * page, 2), ("thread", 2, page, 1)], "at the end")


@test
def map_fixed_and_unmap_of_several(t):
    """A mapping over the end of one and the start of another; then one munmap takes all, and a hole between."""
    trace = simple()
    f = trace.stack("main")
    trace.events(1, [mmap(1000, 0x10000, 8192, f), mmap(1100, 0x12000, 8192, f), mmap(2000, 0x11000, 8192, f), mmap(2100, 0x20000, 4096, f),
                     munmap(2900, 3000, 0x10000, 0x10000 + 4096)])
    db = database(t, finish(trace, t))
    t.equal(db.rows("select address, size_bytes, alloc_ns, free_ns from allocation"),
            [(0x11000, 4096, 1000, 2000), (0x12000, 4096, 1100, 2000), (0x10000, 4096, 1000, 2900), (0x11000, 8192, 2000, 2900), (0x13000, 4096, 1100, 2900),
             (0x20000, 4096, 2100, 2900)], "parts")
    t.equal(db.row("select ts_ns, live_bytes, live_count from peak where heap = 'mmap'"), (2100, 20480, 4), "peak")


@test
def mremap_moves_and_shrinks(t):
    """mremap keeps the heap (a mapped file stays one) and names what it was; files are not added to the process."""
    trace = simple()
    f, g = trace.stack("main"), trace.stack("main", "grow")
    trace.events(1, [mmap(1000, 0x10000, 4096, f, op="mmap_file"), mremap(1900, 2000, 0x10000, 4096, 0x50000, 12288, g), mmap(2500, 0x80000, 8192, f),
                     mremap(2900, 3000, 0x80000, 8192, 0x80000, 4096, f)])
    db = database(t, finish(trace, t))
    t.equal(db.rows("select h.name, a.address, a.size_bytes, a.api, a.alloc_ns, a.free_ns, a.realloc_of_id from allocation a join heap h on h.id = heap_id"),
            [("mmap-file", 0x10000, 4096, "mmap", 1000, 1900, None), ("mmap", 0x80000, 8192, "mmap", 2500, 2900, None),
             ("mmap-file", 0x50000, 12288, "mremap", 2000, None, 1), ("mmap", 0x80000, 4096, "mremap", 3000, None, 2)], "moved")
    t.equal(db.rows("select heap, ts_ns, live_bytes from peak order by heap"), [(None, 2500, 8192), ("mmap", 2500, 8192), ("mmap-file", 2000, 12288)], "peaks")
    t.equal(db.rows("select name, is_root from heap order by name"), [("mmap", 1), ("mmap-file", 0)], "root heaps")


@test
def brk_moves_by_bytes(t):
    """sbrk(100), sbrk(50), sbrk(-70): 50 of the second and 20 of the first are given back."""
    trace = simple()
    f = trace.stack("main")
    trace.events(1, [mmap(1000, 0x10000, 100, f, op="sbrk"), mmap(1100, 0x10064, 50, f, op="sbrk"),
                     munmap(1900, 2000, 0x10000 + 150 - 70, 70, op="sbrk_shrink")])
    db = database(t, finish(trace, t))
    t.equal(db.rows("select address, size_bytes, api, free_ns from allocation"),
            [(0x10050, 20, "sbrk", 1900), (0x10064, 50, "sbrk", 1900), (0x10000, 80, "sbrk", None)], "brk")


@test
def late_unmap_spares_what_is_newer(t):
    """An munmap that is read late (its begin is old) must not hit the mapping that took its place."""
    trace = simple()
    trace.thread(2, process=1)
    f = trace.stack("main")
    trace.events(1, [mmap(1000, 0x10000, 4096, f)], watermark=1500)
    trace.events(2, [mmap(2000, 0x10000, 4096, f)], watermark=2_000_000)
    trace.events(1, [munmap(1900, 2_100_000, 0x10000, 4096)])
    db = database(t, finish(trace, t))
    t.equal(db.rows("select alloc_ns, free_ns from allocation"), [(1000, 2000), (2000, None)], "the newer mapping lives")


@test
def threads_hand_blocks_over(t):
    """Equal stamps, stamps the wrong way round, and a quiet thread whose events come in a later chunk."""
    trace = simple()
    trace.thread(2, process=1)
    f = trace.stack("main")
    trace.segments([(1, [malloc(1000, 0x1000, 1, f), malloc(3000, 0x1000, 2, f), malloc(5000, 0x1000, 4, f)]),
                    (2, [free(2000, 0x1000), free(3000, 0x1000)])], watermark=5001)
    trace.events(2, [free(5100, 0x1000)])
    trace.events(1, [malloc(7100, 0x2000, 8, f)])
    trace.events(2, [free(7000, 0x2000)])
    db = database(t, finish(trace, t))
    t.equal(db.rows("select size_bytes, alloc_ns, free_ns, free_thread_id from allocation"),
            [(1, 1000, 2000, 2), (2, 3000, 3000, 2), (4, 5000, 5100, 2), (8, 7100, 7100, 2)], "pairs")
    t.equal(db.rows("select * from loss"), [], "losses")


@test
def equal_stamps(t):
    """A block is live from alloc_ns on and no longer at free_ns: what two threads do in one nanosecond does not add up, and a mark comes behind both."""
    trace = simple()
    trace.thread(2, process=1)
    f = trace.stack("main")
    trace.segments([(1, [malloc(1000, 0x1000, 100, f), free(2000, 0x1000)]), (2, [malloc(2000, 0x2000, 10, f)])])
    trace.recorder_mark(1, 2000, "between")
    db = database(t, finish(trace, t))
    t.equal(malloc_peak(db), (1000, 100, 1), "peak")
    t.equal(db.row("select live_bytes, live_count from snapshot where label = 'mark:between'"), (10, 1), "at the mark")


@test
def blocks_of_no_bytes_at_the_peak(t):
    """Three threads allocate in one nanosecond, in different stacks: nothing, 100 bytes, nothing. All three blocks are live then, at the peak and in every row
    of the timeline; so are they when a window is asked for, which counts them anew."""
    trace = Trace()
    trace.process(1, pid=100, rank=0)
    stacks = [trace.stack("main", name) for name in "abc"]
    for thread in (1, 2, 3):
        trace.thread(thread, process=1)
    trace.segments([(1, [malloc(2000, 0x1000, 0, stacks[0])]), (2, [malloc(2000, 0x2000, 100, stacks[1])]), (3, [malloc(2000, 0x3000, 0, stacks[2])])])
    db = database(t, finish(trace, t))
    t.equal(db.rows("select ts_ns, live_bytes, live_count from peak"), [(2000, 100, 3)] * 2, "peaks")
    t.equal(db.rows("select function, live_bytes, live_count, process_peak_count from peak_site order by 1"), [("a", 0, 1, 1), ("b", 100, 1, 1), ("c", 0, 1, 1)], "by stack")
    t.equal(db.rows("select ts_ns, live_bytes, live_count from rank_peak"), [(2000, 100, 3)], "of the rank")
    t.equal(db.rows("select ts_ns, live_bytes, live_count from memory_timeline where heap = 'malloc' order by ts_ns"),
            [(0, 0, 0), (2000, 100, 3), (10000, 100, 3)], "over time")
    asked = json.loads(t.ask("peak", db.path, "--from=0s", "--format=json").out)
    t.equal([(row["ts_ns"], row["live_bytes"], row["live_count"]) for row in asked], [(2000, 100, 3)] * 2, "in a window")


@test
def timeline_keeps_extremes(t):
    """Spikes and dips of 1 us each in 100 s: buckets are about 50 ms wide, but all are still there at their true times."""
    trace = simple()
    f = trace.stack("main")
    step, spikes, dips = 10_000_000, range(5000, 5100, 10), range(6000, 6100, 10)
    events = [malloc(1000, 0x1000, 1000, f)]
    for i in range(1, 10000):
        events += [malloc(i * step, 0x2000, 10, f), free(i * step + 1000, 0x2000)]
        if i in spikes:
            events += [malloc(i * step + 2000, 0x3000, 77777, f), free(i * step + 3000, 0x3000)]
        if i in dips:
            events += [free(i * step + 2000, 0x1000), malloc(i * step + 3000, 0x1000, 1000, f)]
    trace.events(1, events)
    db = database(t, finish(trace, t, exit=100_000_000_000, end=100_000_000_001))
    rows = db.rows("select ts_ns, live_bytes from memory_timeline where heap = 'malloc' order by ts_ns")
    t.equal([i for i in spikes if (i * step + 2000, 78777) not in rows], [], "spikes that are gone")
    t.equal([i for i in dips if (i * step + 2000, 0) not in rows], [], "dips that are gone")
    t.check(1000 < len(rows) <= 3 * 2048 + 2, f"{len(rows)} rows")


@test
def no_dip_where_one_takes_the_place_of_another(t):
    """A mapping over 64 pages of another, and a block that one thread frees while another allocates one: the level is the same before and after, and it was
    at no time what it is between the two. So no row of the timeline says so, and the peak is one."""
    trace, pages, page = simple(), 64, 4096
    trace.thread(2, process=1)
    f = trace.stack("main")
    trace.segments([(1, [mmap(1000, 0x100000, pages * page, f), malloc(2000, 0x1000, 1000, f), mmap(500_000, 0x100000, pages * page, f), free(600_000, 0x1000),
                         mmap(900_000, 0x900000, page, f)]), (2, [malloc(600_000, 0x2000, 1000, f)])], watermark=1_000_000)
    db = database(t, finish(trace, t, exit=2_000_000, end=2_000_000))
    t.equal(db.rows("select ts_ns, live_bytes from memory_timeline where heap = 'mmap' order by ts_ns"),
            [(0, 0), (1000, pages * page), (500_000, pages * page), (900_000, 65 * page), (2_000_000, 65 * page)], "mappings over time")
    t.equal(db.rows("select ts_ns, live_bytes from memory_timeline where heap = 'malloc' order by ts_ns"), [(0, 0), (2000, 1000), (600_000, 1000), (2_000_000, 1000)],
            "blocks over time")
    t.equal(db.rows("select heap, live_bytes, second_bytes from peak_shape order by heap"),
            [(None, 65 * page + 1000, None), ("malloc", 1000, None), ("mmap", 65 * page, None)], "no other peak")


@test
def no_level_between_changes_of_one_time(t):
    """Two mappings end by one munmap, and a block of no bytes gets another of no bytes in its place, each in a stretch of time of its own: at no time was one
    mapping live without the other, or no block."""
    trace, page = simple(), 4096
    f = trace.stack("main")
    trace.events(1, [mmap(1000, 0x100000, 2 * page, f), mmap(2000, 0x102000, 3 * page, f), mmap(3000, 0x900000, page, f), munmap(500_000, 500_001, 0x100000, 5 * page),
                     malloc(600_000, 0x1000, 0, f), realloc(700_000, 700_000, 0x1000, 0x1000, 0, f)], watermark=1_000_000)
    db = database(t, finish(trace, t, exit=2_000_000, end=2_000_000))
    mapped = [(0, 0, 0), (1000, 2 * page, 1), (2000, 5 * page, 2), (3000, 6 * page, 3), (500_000, page, 1)]
    for heap, wanted in (("heap = 'mmap'", [*mapped, (2_000_000, page, 1)]),
                         ("heap is null", [*mapped, (600_000, page, 2), (700_000, page, 2), (2_000_000, page, 2)]),
                         ("heap = 'malloc'", [(0, 0, 0), (600_000, 0, 1), (700_000, 0, 1), (2_000_000, 0, 1)])):
        t.equal(db.rows(f"select ts_ns, live_bytes, live_count from memory_timeline where {heap} order by ts_ns"), wanted, heap)


@test
def missing_events(t):
    """An address allocated twice, with no free in between; a free of something never allocated."""
    trace = simple()
    f = trace.stack("main")
    trace.events(1, [malloc(1_000_000, 0x1000, 7, f), malloc(3_000_000, 0x1000, 9, f), free(5_000_000, 0x9000), malloc(5_000_100, 0x9000, 3, f),
                     malloc(9_000_000, 0x3000, 1, f)])
    db = database(t, finish(trace, t, exit=9_500_000, end=10_000_000))
    t.equal(db.rows("select kind, count, bytes from loss order by kind"), [("lost-free", 1, 7), ("unmatched-free", 1, None)], "losses")
    t.equal(db.rows("select size_bytes, alloc_ns, free_ns, free_thread_id from allocation order by alloc_ns"),
            [(7, 1_000_000, 3_000_000, None), (9, 3_000_000, None, None), (3, 5_000_100, None, None), (1, 9_000_000, None, None)], "blocks")
    t.equal(db.row("select live_bytes, live_count from peak where heap = 'malloc'"), (13, 3), "peak")
    t.equal(db.value("select complete from trace"), 1, "the recorder lost nothing")


@test
def lost_events_are_incomplete(t):
    """What the recorder lost makes a trace incomplete, whoever is asked: the trace itself and its database."""
    for lost in (0, 7):
        trace = simple()
        trace.events(1, [malloc(1_000_000, 0x1000, 7, trace.stack("main"))])
        if lost:
            trace.loss(1, 1, 1_500_000, "ring-full", lost, 0, "the buffer of a thread was full")
        path = finish(trace, t, exit=9_500_000, end=10_000_000)
        db = database(t, path)
        said = [dict((r["name"], r["value"]) for r in json.loads(t.run([t.tidemark, "info", asked, "--format=json"], status=0).out) if r["topic"].startswith("trace"))["complete"]
                for asked in (path, db.path)]
        t.equal((db.value("select complete from trace"), said), (0 if lost else 1, ["no" if lost else "yes"] * 2), f"with {lost} lost")


@test
def losses_of_no_event_are_told_apart(t):
    """The report's verdict counts as missing events what was an allocation or a free, and only that."""
    odd = "every call that could be seen is in these figures. 2 do not fit the others. What and why"
    for losses, wanted in (({}, "is in these figures."), ({"odd": 2}, odd), ({"ring-full": 7}, "7 events are missing from these figures. "),
                           ({"records": 3}, "No allocation or free is known to be missing from these figures, but scopes, marks or the like are. "),
                           ({"records": 3, "gpu-records": 2, "no-ring": 1}, "1 event is missing from these figures, and scopes, marks or the like are. ")):
        trace = simple()
        blocks, pairs = [malloc(1_000_000, 0x1000, 7, trace.stack("main"))], losses.pop("odd", 0)
        trace.events(1, blocks + [free(1_100_000, 0x3000), malloc(1_200_000, 0x1000, 9, trace.stack("main"))] * bool(pairs))
        for kind, count in losses.items():
            trace.loss(1, 1, 1_500_000, kind, count, 0, "as the test wants it")
        db = database(t, finish(trace, t, exit=9_500_000, end=10_000_000))
        t.run([t.tidemark, "report", db.path, "-o", t.path("page.html"), "--force"], status=0)
        with open(t.path("page.html")) as page:
            said = re.sub("<[^>]*>", "", re.search('<p id="verdict-lost".*?</p>', page.read(), re.S)[0])
        t.check(wanted in said and ("do not fit" in said) == bool(pairs), f"of {losses}: {said}")


@test
def fork_and_exec(t):
    """The child gives back two inherited blocks and a mapping, and has a block and a mapping of its own there; the parent execs with one block live."""
    trace = simple()
    trace.process(2, pid=101, parent=1, start=2000, flags=FORKED)
    trace.thread(2, process=2)
    trace.process(3, pid=100, parent=1, start=7000, flags=EXECED, exe="/bin/z")
    f = trace.stack("main")
    trace.events(1, [malloc(1000, 0x1000, 10, f), malloc(1100, 0x2000, 20, f), mmap(1200, 0x10000, 8192, f), free(5000, 0x1000)])
    trace.events(2, [free(3000, 0x1000), free(3100, 0x2000), malloc(3200, 0x1000, 5, f), munmap(3300, 3400, 0x10000, 8192),
                     mmap(3500, 0x10000, 4096, f), munmap(3600, 3700, 0x10000, 8192)])
    trace.exit(2, 4000)
    trace.end(2, 4500, kind=2, code=9)
    trace.end(1, 6000, kind=3)
    trace.exit(3, 8000)
    trace.end(3, 9000, code=3)
    db = database(t, trace.save(t.path("fork.tmk")))
    t.equal(db.rows("select id, pid, parent_id, start_ns, exit_ns, end_ns, end_kind, end_code, forked, execed, inherited_frees from process"),
            [(1, 100, None, 0, 6000, 6000, "exec", None, 0, 0, 0), (2, 101, 1, 2000, 4000, 4500, "signal", 9, 1, 0, 3),
             (3, 100, 1, 7000, 8000, 9000, "exit", 3, 0, 1, 0)], "processes")
    t.equal(db.rows("select process_id, size_bytes, free_ns from allocation order by id"), [(2, 4096, 3600), (1, 10, 5000), (1, 20, None), (1, 8192, None), (2, 5, None)], "blocks")
    t.equal(db.rows("select process_id, live_bytes from live_at_exit"), [(2, 5)], "what is live at exec is no leak")
    t.equal(db.rows("select process_id, live_bytes from live_at_end order by 1, 2"), [(1, 20), (1, 8192), (2, 5)], "live at end")
    t.equal(db.rows("select * from loss"), [], "losses")
    t.equal(db.rows("select process_id, heap, live_bytes from peak order by 1, 2"), [(1, None, 8222), (1, "malloc", 30), (1, "mmap", 8192), (2, None, 4101), (2, "malloc", 5), (2, "mmap", 4096),
                                                                                    (3, None, 0)], "peaks, also of the process that allocated nothing")


@test
def frees_of_a_child_that_stopped_its_recording(t):
    """Of what it frees nobody knows whether it was inherited or allocated meanwhile."""
    trace = simple()
    trace.process(2, pid=101, parent=1, start=2000, flags=FORKED)
    trace.thread(2, process=2)
    f = trace.stack("main")
    trace.events(1, [malloc(1000, 0x1000, 10, f), malloc(1100, 0x2000, 20, f)])
    trace.events(2, [free(3000, 0x1000), text("stop", 3100), text("start", 3200), free(3300, 0x2000)])
    trace.exit(2, 4000)
    trace.end(2, 4500)
    db = database(t, finish(trace, t))
    t.equal(db.rows("select id, inherited_frees from process order by id"), [(1, 0), (2, None)], "inherited frees")
    t.equal(db.rows("select * from loss"), [], "losses")


@test
def reallocations_of_what_is_not_known(t):
    """A child resizes an inherited block, twice, what was allocated while nothing was recorded, and what lies before the recording of a sample; a mapping that
    is doubled is no other one's."""
    trace = simple()
    trace.process(2, pid=101, parent=1, start=2000, flags=FORKED)
    trace.thread(2, process=2)
    f = trace.stack("main")
    trace.events(1, [malloc(1000, 0x1000, 10, f)])
    trace.events(2, [realloc(2900, 3000, 0x1000, 0x2000, 20, f), realloc(3050, 3060, 0x2000, 0x2000, 30, f), text("stop", 3100), text("start", 3200),
                     realloc(3300, 3310, 0x5000, 0x6000, 40, f), malloc(3400, 0x7000, 50, f, op="realloc_alone"), malloc(3500, 0x8000, 60, f, op="realloc_new"),
                     mmap(3600, 0x10000, 4096, f), mremap(3650, 3660, 0x10000, 0, 0x20000, 4096, f)])
    trace.exit(2, 4000)
    trace.end(2, 4500)
    db = database(t, finish(trace, t))
    t.equal(db.rows("select process_id, heap, realloc_count, reallocated_bytes, longest_chain_count, allocations from realloc_site"),
            [(2, "malloc", 4, 20 + 30 + 40 + 50, 2, 5)], "reallocations")


@test
def worlds_above_proxies(t):
    """Two proxies of one mpiexec are one world, a second mpiexec's is another; a proxy above which nothing was recorded stands for itself."""
    trace = Trace()
    proxy = "/usr/bin/hydra_pmi_proxy"
    for id, parent, exe, rank in ((1, 0, "/usr/bin/mpiexec.hydra", None), (2, 1, proxy, None), (3, 1, proxy, None), (4, 2, "/x", 0), (5, 3, "/x", 1), (6, 1, "/usr/bin/mpiexec.hydra", None),
                                  (7, 6, proxy, None), (8, 7, "/x", 0), (9, 0, proxy, None), (10, 9, "/x", 0), (11, 1, "/usr/bin/my_proxy", None), (12, 11, "/x", 0)):
        trace.process(id, pid=100 + id, parent=parent, exe=exe, rank=rank, world_size=None if rank is None else 2)
        trace.thread(id, process=id)
    db = database(t, finish(trace, t))
    t.equal(db.rows("select id, world from process where rank is not null order by id"),
            [(4, "node:101"), (5, "node:101"), (8, "node:106"), (10, "node:109"), (12, "node:111")], "worlds")


@test
def unrecorded_process(t):
    """A static child: nothing is known about its memory, which is not the same as none. One that merely never allocated has zeros."""
    trace = simple()
    trace.process(2, pid=200, parent=1, start=2000, flags=EXECED | UNRECORDED)
    trace.process(3, pid=300, parent=1, start=2000, flags=FORKED)
    for child in (2, 3):
        trace.end(child, 5000)
    db = database(t, finish(trace, t))
    t.equal(db.rows("select id, recorded from process order by id"), [(1, 1), (2, 0), (3, 1)], "recorded")
    t.equal(db.rows("select process_id, heap, live_bytes from peak order by 1"), [(1, None, 0), (3, None, 0)], "peaks")
    t.equal(db.rows("select distinct process_id from memory_timeline order by 1"), [(1,), (3,)], "timelines")
    rows = json.loads(t.ask("processes", db.path, "--format=json").out)
    t.equal([(r["id"], r["peak_bytes"], r["live_at_exit_bytes"], r["allocations"]) for r in rows], [(1, 0, 0, 0), (2, None, None, None), (3, 0, 0, 0)],
            "processes")


@test
def killed_process(t):
    """A killed process has exit = end; a trace that stops without END has what it has."""
    trace = simple()
    f = trace.stack("main")
    trace.events(1, [malloc(1000, 0x1000, 10, f)])
    trace.end(1, 5000, kind=2, code=9)
    db = database(t, trace.save(t.path("killed.tmk")))
    t.equal(db.row("select exit_ns, end_ns, end_kind, end_code from process"), (5000, 5000, "signal", 9), "killed")
    t.equal(db.row("select live_bytes from live_at_exit"), (10,), "live at exit")
    t.equal(db.row("select complete, cut_reason from trace"), (1, None), "complete")
    cut = simple()
    cut.events(1, [malloc(1000, 0x1000, 10, cut.stack("main"))])
    path = cut.save(t.path("cut.tmk"), closed=False)
    db = database(t, path)
    t.equal(db.row("select exit_ns, end_ns, end_kind, end_code from process"), (1000, 1000, "unknown", None), "cut")
    t.equal(db.row("select complete, cut_reason, sound_bytes = file_bytes from trace"), (0, "it was not closed", 1), "cut trace")


@test
def marks_and_snapshots(t):
    """A mark of the program and one of the recorder; what was live at each, by stack."""
    trace = simple()
    a, b = trace.stack("main", "a"), trace.stack("main", "b")
    name = trace.string("half way")
    trace.events(1, [malloc(1000, 0x1000, 10, a), mark(2000, name), malloc(3000, 0x2000, 20, b), free(4000, 0x1000)])
    trace.recorder_mark(1, 3500, "alert")
    db = database(t, finish(trace, t))
    t.equal(db.rows("select name, ts_ns, thread_id from mark"), [("half way", 2000, 1), ("alert", 3500, None)], "marks")
    query = ("select s.label, s.ts_ns, s.live_bytes, s.live_count, f.function, k.live_bytes, k.live_count from snapshot s join snapshot_stack k on "
             "k.snapshot_id = s.id join stack n on n.id = k.stack_id join frame f on f.id = n.frame_id where s.label like 'mark:%' order by s.ts_ns, f.function")
    t.equal(db.rows(query), [("mark:half way", 2000, 10, 1, "a", 10, 1), ("mark:alert", 3500, 30, 2, "a", 10, 1), ("mark:alert", 3500, 30, 2, "b", 20, 1)],
            "snapshots at marks")
    t.equal(db.value("select events from trace"), 3, "marks are no events")


@test
def samples_and_gap(t):
    """Explained is what is live, at most what is resident; the tool's share is its own column."""
    trace = simple()
    f = trace.stack("main")
    trace.events(1, [malloc(1000, 0x1000, 1000, f), mmap(2000, 0x10000, 100000, f)])
    trace.sample(1, 1500, rss=5000, vms=9000)
    trace.sample(1, 2500, rss=5000, tool_rss=700)
    trace.sample(0, 2500, cgroup=12345)
    db = database(t, finish(trace, t))
    t.equal(db.rows("select ts_ns, rss_bytes, explained_bytes, tool_bytes, gap_bytes, live_bytes from memory_gap order by ts_ns"),
            [(1500, 5000, 1000, None, 4000, 1000), (2500, 5000, 4300, 700, 0, 101000)], "gap")
    t.equal(db.rows("select process_id, name, ts_ns, value from sample order by ts_ns, name"),
            [(1, "rss", 1500, 5000), (1, "vms", 1500, 9000), (None, "cgroup", 2500, 12345), (1, "rss", 2500, 5000), (1, "tool_rss", 2500, 700)], "samples")


@test
def sampling_weights(t):
    """weight = 1 / (1 - exp(-size / mean)); mappings are exact; live goes back to nothing exactly."""
    trace = simple(sample_bytes=1000)
    f = trace.stack("main")
    trace.events(1, [malloc(1000, 0x1000, 100, f), malloc(2000, 0x2000, 5000, f), free(3000, 0x1000), mmap(4000, 0x10000, 4096, f), free(5000, 0x2000)])
    db = database(t, finish(trace, t))
    small, large = (1 / (1 - math.exp(-size / 1000)) for size in (100, 5000))
    rows = db.rows("select size_bytes, weight from allocation order by size_bytes")
    for (size, weight), (wanted_size, wanted) in zip(rows, [(100, small), (4096, 1.0), (5000, large)]):
        t.check(size == wanted_size and abs(weight - wanted) < 1e-9, f"weight of {size}: {weight}, expected {wanted}")
    t.equal(malloc_peak(db), (2000, round(100 * small + 5000 * large), round(small + large)), "peak is an estimate")
    t.equal(db.row("select allocations, allocated_bytes, live_at_end_bytes, live_at_end_count, estimated from heap_summary where heap = 'malloc'"),
            (round(small + large), round(100 * small + 5000 * large), 0, 0, 1), "malloc is estimated")
    t.equal(db.row("select allocations, allocated_bytes, estimated from heap_summary where heap = 'mmap'"), (1, 4096, 0), "mappings are exact")
    t.equal(db.row("select sample_bytes from trace"), (1000,), "mean")


@test
def stacks_sites_and_inlining(t):
    """operator new is no frame; inlined functions are; the site lies outside of wrappers, in Python where there is any."""
    trace = simple()
    trace.module(1, 1, 0x400000, 0x10000, "/usr/lib/libx.so")
    inlined = trace.frame([("inner()", "i.h", 3), ("middle()", "m.h", 4), ("outer()", "o.cpp", 5)], module=1, address=0x400123)
    new = trace.frame("operator new(unsigned long)", module=1, address=0x400200)
    new_array = trace.frame("operator new[](unsigned long)", module=1, address=0x400210)
    unknown, nowhere = trace.frame(None, module=1, address=0x400300), trace.frame(None, address=0x7777)
    loader = trace.frame([("calloc", "rtld-malloc.h", 44), ("_dl_new_object", "dl-object.c", 92)], module=1, address=0x400400)
    xmalloc = trace.frame("xmalloc")
    pymem = trace.frame("PyMem_RawMalloc")
    script = trace.frame([("step", "train.py", 12)], kind=PYTHON)
    stacks = {"new": trace.stack("main", inlined, new_array, new), "plain": trace.stack("main", inlined), "unknown": trace.stack("main", unknown),
              "nowhere": trace.stack("main", nowhere), "wrapped": trace.stack("main", "load", xmalloc), "python": trace.stack("main", script, "ceval", pymem),
              "only": trace.stack(xmalloc), "class": trace.stack("main", "Pool::operator new(unsigned long)"), "recursive": trace.stack("main", "r", "r"),
              "loader": trace.stack("main", loader), "pool": trace.stack("main", "calloc", "Pool::malloc()"), "own": trace.stack("main", "malloc")}
    trace.events(1, [malloc(1000 + i, 0x1000 * (i + 1), 2 ** i, stack) for i, stack in enumerate([*stacks.values(), 0])])
    db = database(t, finish(trace, t))
    texts = dict(db.rows("select a.size_bytes, s.text from allocation a join stack_text s using(stack_id)"))
    t.equal(texts, {1: "main;outer();middle();inner()", 2: "main;outer();middle();inner()", 4: "main;libx.so+0x300", 8: "main;0x7777", 16: "main;load;xmalloc", 32: "main;step;ceval;PyMem_RawMalloc", 64: "xmalloc",
                    128: "main;Pool::operator new(unsigned long)", 256: "main;r;r",
                    512: "main;_dl_new_object", 1024: "main;calloc;Pool::malloc()", 2048: "main;malloc", 4096: ""}, "stacks as text")
    sites = {bytes: (function, file, line) for bytes, function, file, line in db.rows("select allocated_bytes, function, file, line from site")}
    t.equal(sites[1 + 2], ("inner()", "i.h", 3), "new and plain are one stack; its site is the innermost inlined function")
    t.equal(sites[16][0], "load", "outside of xmalloc")
    t.equal(sites[32], ("step", "train.py", 12), "the innermost Python frame")
    t.equal(sites[64][0], "xmalloc", "nothing but a wrapper")
    t.equal(sites[128][0], "Pool::operator new(unsigned long)", "a class's own operator new")
    t.equal((sites[4], sites[8], sites[4096]), ((None, None, None),) * 3, "unknown functions")
    t.equal(db.rows("select kind, function, line, module_id, module_offset from frame where module_id = 1 order by id"),
            [("inline", "inner()", 3, 1, 0x123), ("inline", "middle()", 4, 1, 0x123), ("native", "outer()", 5, 1, 0x123), ("native", None, None, 1, 0x300),
             ("inline", "calloc", 44, 1, 0x400), ("native", "_dl_new_object", 92, 1, 0x400)], "frames; those of operator new are gone")
    t.equal(db.row("select kind, module_offset from frame where function is null and module_id is null"), ("unknown", 0x7777), "no module at all")
    t.equal(db.rows("select depth from stack where id in (select stack_id from site where function = 'inner()')"), [(4,)], "depth")
    t.equal(db.row("select self_bytes, total_bytes, self_count, total_count from function_total where function = 'r'"), (256, 256, 1, 1), "recursion")
    t.equal(db.row("select self_bytes, total_bytes, total_count from function_total where function is null"), (4 + 8 + 4096, 4 + 8 + 4096, 3), "no name")
    t.equal(db.row("select total_bytes from function_total where function = 'main'"), (8191 - 4096 - 64,), "total of main")
    t.equal(db.row("select group_concat(build_id), min(base_address) from module"), ("abcd", 0x400000), "module")


@test
def sites_of_runtimes(t):
    """The program's function, by the names that recorded programs of other languages gave to what lies between it and malloc."""
    java = "MEMFLAGS, NativeCallStack const&)"
    between = [("Perl_sv_grow", "Perl_safesysmalloc"), ("newSVpv", "Perl_savepvn", "Perl_safesyscalloc"), ("zend_register_functions", "__zend_malloc"),
               ("R_registerRoutines", "Rstrdup"), ("scm_to_utf8_stringn", "scm_realloc"), ("caml_sys_getenv", "caml_stat_strdup", "caml_stat_alloc"),
               ("newTask", "stgMallocBytes"), ("monoeg_g_list_prepend", "monoeg_g_calloc"), ("ossl_namemap_name2num", "CRYPTO_strndup"),
               ("av_buffer_ref", "av_mallocz", "av_malloc"), ("gfc_get_constant_expr", "__gmp_default_allocate"), ("bignum_add", "__gmp_default_reallocate"),
               ("_gfortrani_init_units", "_gfortrani_xmallocarray"), ("pl_findall", "PL_malloc_atomic"), ("init_rpl", "my_malloc"),
               ("StringTable::do_intern(Handle)", "AllocateHeap(unsigned long, MEMFLAGS, AllocFailStrategy::AllocFailEnum)", f"os::malloc(unsigned long, {java}"),
               ("Arguments::parse()", "os::strdup_check_oom(char const*, MEMFLAGS)", "os::strdup(char const*, MEMFLAGS)", f"os::malloc(unsigned long, {java}"),
               ("r::keep", "<alloc::raw_vec::RawVec<u8>>::with_capacity_in", "<alloc::alloc::Global as core::alloc::Allocator>::allocate",
                "<alloc::alloc::Global>::alloc_impl", "<alloc::alloc::Global>::alloc_impl_runtime"),
               ("r::grow", "<alloc::raw_vec::RawVecInner>::finish_grow", "<alloc::alloc::Global>::grow_impl_runtime"),
               ("std::thread::new", "<std::alloc::System>::alloc_impl"), ("alloc::boxed::Box<T>::new", "alloc::boxed::box_new_uninit"),
               ("hashbrown::map::HashMap<K,V,S,A>::insert", "hashbrown::raw::alloc::inner::do_alloc"),
               ("aligned::first", "__rustc::__rdl_alloc", "std::sys::alloc::unix::aligned_malloc"), ("main__alpha", "__gnat_malloc"),
               ("<hashbrown::map::HashMap<u8, u8>>::insert", "<hashbrown::raw::RawTable<(u8, u8)>>::reserve_rehash::<make_hasher>",
                "<hashbrown::raw::RawTableInner>::fallible_with_capacity::<alloc::alloc::Global>"),
               ("std::string::append(char const*, unsigned long)", "std::string::_Rep::_M_clone(std::allocator<char> const&, unsigned long)",
                "std::string::_Rep::_S_create(unsigned long, unsigned long, std::allocator<char> const&)"),
               ("array_empty", "PyDataMem_UserNEW", "default_malloc"), ("osReserveHeapMemory", "my_mmap"), ("lib_work(int)", "_dl_runtime_profile_avx"),
               ("runtime.(*pageAlloc).sysGrow", "runtime.sysMap", "runtime.sysMapOS", "runtime.mmap", "runtime.mmap.func1", "runtime.callCgoMmap", "x_cgo_mmap"),
               ("exchange", "ucm_mmap", "ucm_event_dispatch", None, "ucm_orig_mmap_syscall"),
               ("alloc::vec::Vec<T,A>::push",), ("os::init()",), ("Perl_newSVpv",), ("caml_state_init",)]
    trace = simple()
    trace.module(1, 1, 0x400000, 0x10000, "/usr/lib/libucm.so.0")
    unnamed = trace.frame(None, module=1, address=0x400300)
    trace.events(1, [malloc(1000 + i, 0x1000 * (i + 1), i + 1, trace.stack("main", *[name or unnamed for name in names])) for i, names in enumerate(between)])
    db = database(t, finish(trace, t))
    t.equal([function for (function,) in db.rows("select function from site order by allocated_bytes")], [names[0] for names in between], "sites")


@test
def heaps_inside_heaps(t):
    """A pool inside malloc, at the same addresses: each block in its own heap, the pool not added to the process."""
    trace = simple()
    trace.heap(1, 1, "malloc", "host")
    trace.heap(2, 1, "pool", "pool", parent=1)
    f = trace.stack("main")
    trace.events(1, [malloc(1000, 0x1000, 100, f), malloc(1100, 0x1000, 60, f, heap=2), free(2000, 0x1000, heap=2), free(3000, 0x1000)])
    db = database(t, finish(trace, t))
    t.equal(db.rows("select heap, ts_ns, live_bytes from peak order by heap"), [(None, 1000, 100), ("malloc", 1000, 100), ("pool", 1100, 60)], "peaks")
    t.equal(db.rows("select name, kind, parent_id, is_root from heap order by id"), [("malloc", "host", None, 1), ("pool", "pool", 1, 0)], "heaps")


@test
def text_that_was_never_given(t):
    """A mark whose string id the trace skipped, a text that is no UTF-8, and one with a NUL inside."""
    trace = simple()
    trace.meta(trace.record(2, b"\x03\x04a\xff\x00b"))
    trace.events(1, [mark(1000, 1), mark(2000, 3)])
    db = database(t, finish(trace, t))
    t.equal(db.rows("select name from mark order by ts_ns"), [("",), ("a\ufffd b",)], "names of marks")


@test
def many_traces(t):
    """Two ranks into one database: ids are unique, times count from the earlier start; appending an even earlier one moves everything."""
    paths = []
    for rank, start in ((0, 2_000_000), (1, 1_000_000), (2, 400_000)):
        trace = Trace(start_unix_ns=10 ** 18 + start)
        trace.process(1, pid=10 + rank, rank=rank, world_size=3)
        trace.thread(1, process=1)
        trace.events(1, [malloc(1000, 0x1000, 10 + rank, trace.stack("main", f"f{rank}"))])
        trace.sample(1, 1500, rss=1)
        paths.append(finish(trace, t, name=f"rank{rank}.tmk"))
    db = database(t, *paths[:2])
    t.equal(db.rows("select id, rank, start_ns, exit_ns from process order by id"), [(1, 0, 1_000_000, 1_009_000), (2, 1, 0, 9000)], "processes")
    t.equal(db.rows("select process_id, alloc_ns, size_bytes from allocation order by process_id"), [(1, 1_001_000, 10), (2, 1000, 11)], "times")
    t.equal(db.rows("select process_id, function from live_at_exit order by 1"), [(1, "f0"), (2, "f1")], "stacks stay apart")
    t.equal(db.rows("select clock_offset_ns from trace order by id"), [(1_000_000,), (0,)], "offsets")
    t.ask("import", paths[2], "-o", db.path, status=1)
    t.ask("import", paths[2], "-o", db.path, "--append", "--quiet")
    t.equal(db.rows("select rank, start_ns from process order by rank"), [(0, 1_600_000), (1, 600_000), (2, 0)], "after the append")
    t.equal(db.rows("select alloc_ns from allocation order by size_bytes"), [(1_601_000,), (601_000,), (1000,)], "allocations moved too")
    t.equal(db.rows("select ts_ns from sample order by ts_ns"), [(1500,), (601_500,), (1_601_500,)], "samples moved too")
    t.equal(db.rows("select process_id, function from live_at_exit order by 1"), [(1, "f0"), (2, "f1"), (3, "f2")], "sites")
    db.connection.close()
    whole = t.imported(*paths)
    changed = sqlite3.connect(db.path)
    for table in ("process", "allocation_packed", "timeline", "snapshot", "heap_total", "sample", "gap"):
        columns = ", ".join(c for c in [r[1] for r in whole.rows(f"pragma table_info({table})")] if c != "id" and c != "trace_id")
        query = f"select {columns} from {table} order by {columns}"
        t.equal(changed.execute(query).fetchall(), whole.rows(query), f"{table}: appended or imported at once")
    changed.close()


@test
def threads_that_a_bounded_file_left_out(t):
    """Of a server with a thread for each connection a bounded file has the first and the latest ones, and ids between them are missing, however many."""
    trace = Trace(window_start_ns=500)
    trace.process(1, pid=10)
    for id in (1, 3_000_000_000, 3_000_000_004):
        trace.thread(id, process=1, tid=id % 1000 + 1, start=100)
    f = trace.stack("main", "f")
    trace.segments([(3_000_000_004, [malloc(1000, 0x1000, 5, f)]), (1, [malloc(1100, 0x2000, 6, f), free(1200, 0x1000)]), (3_000_000_000, [mark(1300, trace.string("here"))])])
    trace.loss(1, 3_000_000_000, 1400, "ring-full", 3, 30, "full")
    db = database(t, finish(trace, t))
    t.equal(db.rows("select id, tid from thread order by id"), [(1, 2), (2, 1), (3, 5)], "threads")
    t.equal(db.rows("select size_bytes, thread_id, free_thread_id from allocation order by alloc_ns"), [(5, 3, 1), (6, 1, None)], "blocks")
    t.equal(db.rows("select name, thread_id from mark"), [("here", 2)], "marks")
    t.equal(db.rows("select kind, thread_id from loss"), [("ring-full", 2)], "losses")
    t.equal(db.rows("select tid, live_bytes from thread_peak order by tid"), [(2, 6), (5, 5)], "peaks")


@test
def levels_begin_with_what_comes_at_once(t):
    """Where a window opens, or a process begins, and something comes at that very nanosecond, the first level has it, also where later ones take its bucket's places."""
    for what, at, info in (("window", 1_000_500, {"window_start_ns": 1_000_500}), ("process", 500, {})):
        trace = Trace(**info)
        trace.process(1, pid=10, start=0 if info else at)
        trace.thread(1, process=1)
        f = trace.stack("main", "f")
        if info:
            trace.loss(0, 0, at, "dropped", 5, 100, "ring")
            trace.events(1, [malloc(100, 0x1000, 1000, f)])
        else:
            trace.events(1, [malloc(at, 0x1000, 1000, f)])
        trace.events(1, [malloc(at, 0x2000, 50, f), malloc(at, 0x4000, 8, f), malloc(at + 100, 0x3000, 7000, f), free(at + 200, 0x3000), free(at + 210, 0x2000),
                         free(at + 220, 0x1000), free(at + 230, 0x4000)])
        db = database(t, finish(trace, t, exit=0, end=5_000_000, name=f"{what}.tmk"))
        then = db.row("select sum(size_bytes), count(*) from allocation where alloc_ns <= ?1 and free_ns > ?1", at)
        t.equal(then, (1058, 3), f"{what}: blocks")
        for heap in ("malloc", None):
            levels = db.rows("select ts_ns, live_bytes, live_count from memory_timeline where heap is ? order by ts_ns", heap)
            t.equal(levels, [(at, *then), (at + 100, 8058, 4), (at + 230, 0, 0), (5_000_000, 0, 0)], f"{what}: levels of {heap}")


@test
def ids_that_cannot_be(t):
    """A heap that lies in one of a higher id, a device's name of another length, ids that are skipped by the thousand: the trace ends before the chunk."""
    def heaps(trace):
        trace.heap(2, 1, "outer", "host")
        trace.heap(1, 1, "inner", "host", parent=2)
    def strings(trace):
        for n in range(1, 80):
            trace.meta(trace.record(2, varint(4000 * n) + b"\x01a"))
    for what, damage in (("heap", heaps), ("uuid", lambda trace: trace.device(1, 0, uuid=b"u" * 17)), ("ids", strings)):
        trace = simple()
        trace.events(1, [malloc(1000, 0x1000, 10, trace.stack("main"))])
        damage(trace)
        path = finish(trace, t, name=f"{what}.tmk")
        t.check("a chunk's content is damaged" in t.ask("import", path, "-o", t.path(f"{what}.db"), status=0).errors, f"{what}: nothing was said")


@test
def appended_earlier_trace(t):
    """Every time in the database moves where an earlier trace is appended, those of gaps too, one of which comes to stand where another stood: in all tables that have times,
    the rows are those of an import at once."""
    paths = []
    for rank, start in ((0, 5_000_000), (1, 0)):
        trace = Trace(start_unix_ns=10 ** 18 + start)
        trace.process(1, pid=10 + rank, rank=rank, world_size=2)
        trace.thread(1, process=1)
        f = trace.stack("main", f"f{rank}")
        trace.events(1, [malloc(1000, 0x1000, 10 + rank, f), text("stop", 2000), text("start", 3000), text("stop", 5_002_000), text("start", 5_003_000),
                         malloc(5_004_000, 0x2000, 7, f)])
        trace.sample(1, 1500, rss=1)
        paths.append(finish(trace, t, exit=6_000_000, end=6_001_000, name=f"rank{rank}.tmk"))
    db = database(t, paths[0])
    kept = db.rows("select kind, start_ns, end_ns from coverage_gap order by start_ns")
    t.equal(kept, [("stopped", 2000, 3000), ("stopped", 5_002_000, 5_003_000)], "gaps, before")
    t.ask("import", paths[1], "-o", db.path, "--append", "--quiet")
    t.equal(db.rows("select start_ns, end_ns from coverage_gap where process_id = 1 order by start_ns"), [(5_002_000, 5_003_000), (10_002_000, 10_003_000)], "and behind it")
    db.connection.close()
    whole = t.imported(*paths)
    changed = sqlite3.connect(db.path)
    tables = [name for name, in whole.rows("select name from sqlite_master where type = 'table' and name not like 'sqlite%'")]
    times = {table: [r[1] for r in whole.rows(f"pragma table_info({table})") if r[1].endswith("_ns") and r[1] != "start_unix_ns"] for table in tables}
    times = {table: ", ".join(columns) for table, columns in times.items() if columns}
    t.check(len(times) > 30, "tables with times")
    for table, columns in times.items():
        query = f"select {columns} from {table} order by {columns}"
        t.equal(changed.execute(query).fetchall(), whole.rows(query), f"{table}: appended or imported at once")
    changed.close()


@test
def cgroups_of_two_hosts(t):
    """What a cgroup holds is known of the trace's own, also where another trace was recorded at the same time."""
    paths = []
    for host, cgroup in (("a", 111), ("b", 999)):
        trace = Trace(host=host)
        trace.process(1, pid=10, host=host)
        trace.thread(1, process=1)
        trace.events(1, [malloc(1000, 0x1000, 10, trace.stack("main"))])
        trace.sample(0, 1500 + (host == "b"), cgroup=cgroup)
        trace.sample(1, 2000, rss=5000, rss_files=1, rss_stacks=2, rss_shared=3, rss_anonymous=4, rss_arenas=5, rss_heap=6)
        paths.append(finish(trace, t, name=f"{host}.tmk"))
    db = database(t, *paths)
    t.equal(db.rows("select process_id, cgroup_bytes from memory_gap_part order by 1"), [(1, 111), (2, 999)], "cgroups")
    t.ask("export", "chrome", db.path, "-o", t.path("all.json"), status=0)
    t.ask("export", "chrome", db.path, "--process=2", "-o", t.path("b.json"), status=0)
    for name, series in (("all", [("cgroup of trace 1", 111), ("cgroup of trace 2", 999)]), ("b", [("cgroup of trace 2", 999)])):
        with open(t.path(f"{name}.json"), encoding="utf-8") as file:
            counters = [e for e in json.load(file)["traceEvents"] if e["ph"] == "C" and "cgroup" in e["name"]]
        t.equal([(e["name"], e["args"]["value"]) for e in counters], series, f"counters, {name}")


@test
def directory_and_refusals(t):
    """A directory's traces are found by content; a database is neither overwritten unasked nor left half-written."""
    os.mkdir(t.path("traces"))
    for start, name in enumerate(("b.tmk", "a.txt"), 10 ** 18):
        trace = simple(start_unix_ns=start)
        trace.events(1, [malloc(1000, 0x1000, 10, trace.stack("main"))])
        finish(trace, t, name=f"traces/{name}")
    with open(t.path("traces/readme.tmk"), "w", encoding="ascii") as file:
        file.write("no trace at all\n")
    t.ask("import", t.path("traces"))
    db = sqlite3.connect(t.path("traces/tidemark.db"))
    t.equal([os.path.basename(p) for (p,) in db.execute("select path from trace order by id")], ["a.txt", "b.tmk"], "traces of the directory")
    again = t.ask("import", t.path("traces"), status=1)
    t.check("it exists" in again.errors and again.errors.count("\n") == 1, f"one line says why: {again.errors}")
    t.ask("import", t.path("traces"), "--force")
    for _ in range(5):  # two at once: one comes first, and the other does not take its place
        both = [subprocess.Popen([t.tidemark, "import", t.path(f"traces/{name}"), "-o", t.path("once.db")], stderr=subprocess.PIPE) for name in ("a.txt", "b.tmk")]
        said = [p.communicate()[1].decode() for p in both]
        t.equal(sorted(p.returncode for p in both), [0, 1], f"two imports into one file: {said}")
        t.check(any("it exists; --append" in text for text in said), f"the later one says why: {said}")
        (kept,), = sqlite3.connect(t.path("once.db")).execute("select path from trace")
        t.equal(os.path.basename(kept), ("a.txt", "b.tmk")[both[1].returncode == 0], "whose it is")
        os.unlink(t.path("once.db"))
    broken = t.ask("import", t.path("traces/a.txt"), t.path("traces/readme.tmk"), "-o", t.path("x.db"), status=1)
    t.check("readme.tmk': not a tidemark trace" in broken.errors, broken.errors)
    made = t.ask("import", t.path("traces/tidemark.db"), "-o", t.path("x.db"), status=1)
    t.equal(made.errors, f"tidemark: cannot import '{t.path('traces/tidemark.db')}': it is an imported database already ('tidemark summary' and the other"
            " commands read it as it is)\n", "what was imported already")
    with sqlite3.connect(t.path("traces/tidemark.db")) as db:
        current = int(db.execute("select value from meta where key = 'schema_version'").fetchone()[0])
        for version in (current - 1, current + 1):
            db.execute("update meta set value = ? where key = 'schema_version'", (version,))
            db.commit()
            made = t.ask("import", t.path("traces/tidemark.db"), "-o", t.path("x.db"), status=1)
            t.equal(made.errors, f"tidemark: cannot import '{t.path('traces/tidemark.db')}': it is a database of schema version {version}, which this tidemark"
                    f" does not read (it reads {current}): import its trace again\n", "what another version imported")
    db.close()
    open(t.path("empty.tmk"), "w", encoding="ascii").close()
    t.check("the file is empty" in t.ask("import", t.path("empty.tmk"), status=1).errors, "an empty file")
    t.ask("import", t.path("traces"), "-o", t.path("no/such/place.db"), status=1)
    t.ask("import", status=2)
    t.equal(sorted(os.listdir(t.path("traces"))), ["a.txt", "b.tmk", "readme.tmk", "tidemark.db"], "nothing is left over")
    t.equal([name for name in os.listdir(t.dir) if name not in ("traces", "empty.tmk")], [], "nothing is left over here either")


@test
def directories_below(t):
    """Ranks that write into a directory for each node: all are found, in the order of their paths, and the database lies in the directory that was named.
    A link to a directory is not followed, one that leads back least of all; a copy in another directory counts once; what may not be read is said."""
    for start, name in enumerate(("node1/rank1.tmk", "node0/job.7/rank0.tmk", "rank2.tmk", "closed/rank3.tmk", "outside/rank4.tmk"), 10 ** 18):
        trace = simple(start_unix_ns=start)
        trace.events(1, [malloc(1000, 0x1000, 10, trace.stack("main"))])
        place = t.path(name if name.startswith("outside") else "job/" + name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        finish(trace, t, name=place)
    shutil.copy(t.path("job/rank2.tmk"), t.path("job/node1/same.tmk"))
    os.symlink("../..", t.path("job/node0/back"))
    os.symlink(t.path("outside"), t.path("job/link"))
    os.mkfifo(t.path("job/node0/pipe"))
    os.chmod(t.path("job/closed"), 0o755)
    os.chmod(t.path("job/closed/rank3.tmk"), 0)
    os.mkdir(t.path("job/shut"), mode=0)
    os.chmod(t.path("job"), 0o777)
    os.chmod(t.dir, 0o755)
    tool = shutil.copy(t.tidemark, t.path("tool"))
    drop = (lambda: os.setuid(65534)) if os.geteuid() == 0 else None
    said = t.run([tool, "import", "job"], cwd=t.dir, preexec=drop, status=0).errors
    db = sqlite3.connect(t.path("job/tidemark.db"))
    t.equal([path for (path,) in db.execute("select path from trace order by id")], ["job/node0/job.7/rank0.tmk", "job/node1/rank1.tmk", "job/node1/same.tmk"],
            "traces")
    t.equal(sorted(line for line in said.splitlines() if "warning" in line),
            ["tidemark: warning: 'job/closed/rank3.tmk' is left out: Permission denied",
             "tidemark: warning: 'job/rank2.tmk' is left out: 'job/node1/same.tmk' is the same recording",
             "tidemark: warning: 'job/shut' is left out: Permission denied"], "what is left out")
    os.chmod(t.path("job/shut"), 0o755)
    said = t.ask("import", t.path("job/shut"), status=1).errors
    t.check("no trace in this directory or below" in said, said)
    with open(t.path("job/shut/settings.json"), "w", encoding="ascii") as file:
        file.write('{"ph": 7, "t": 25}\n')
    said = t.ask("import", t.path("job"), "-o", t.path("all.db")).errors
    t.check("warning: '" + t.path("job/shut/settings.json") + "' is left out: it is JSON, but" in said, said)
    t.equal(sqlite3.connect(t.path("all.db")).execute("select count(*) from trace").fetchone(), (4,), "traces beside a file that looks like a recording")
    said = t.ask("import", t.path("job/shut"), "-o", t.path("none.db"), status=1).errors
    t.check(said.splitlines()[-1].endswith("nothing that was found can be read") and not os.path.exists(t.path("none.db")), said)


@test
def names_that_are_no_uris(t):
    """SQLite would take these for URIs; here they are names of files, for a trace, its database, and one beside another."""
    for name in ("file:run", "file:a?mode=memory&cache=shared", "file:///b", "-c 'd\" %41"):
        trace = simple()
        trace.events(1, [malloc(1000, 0x1000, 10, trace.stack("main"))])
        folder = t.path("in." + str(len(name)))
        os.makedirs(os.path.dirname(os.path.join(folder, name)))
        finish(trace, t, name=os.path.join(folder, name + ".tmk"))
        ask = lambda *arguments: t.run([t.tidemark, *arguments], cwd=folder, status=0)
        t.equal([row["live_bytes"] for row in json.loads(ask("peak", "--format=json", "--", name + ".tmk").text)], [10, 10], f"the peak of '{name}'")
        t.equal([row["change_live_bytes"] for row in json.loads(ask("diff", "--format=json", "--", name + ".db", name + ".db").text)], [0], f"'{name}' against itself")
        inside = os.path.dirname(os.path.join(folder, name))
        t.equal(sorted(os.listdir(inside)), [os.path.basename(name) + suffix for suffix in (".db", ".tmk")], "nothing is left over")


KILLED = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.executescript("pragma cache_size = 2; begin immediate; update process set pid = 0; create table more(x);")
db.execute("with n(i) as (select 1 union all select i + 1 from n where i < 200) insert into more select randomblob(4000) from n")
os._exit(0)
"""


@test
def killed_while_it_added(t):
    """An import that is killed while it writes into a database leaves it half written, and beside it a journal of what stood there: that is what every
    command answers from, no journal stays, and none gets into a new database that takes the name."""
    paths = []
    for n in (1, 2):
        trace = simple(start_unix_ns=10 ** 18 + n)
        trace.events(1, [malloc(1000, 0x1000, 10 * n, trace.stack("main"))])
        paths.append(finish(trace, t, name=f"{n}.tmk"))
    db = t.path("1.db")

    def interrupted():
        if os.path.exists(db):
            os.unlink(db)
        t.ask("import", "--quiet", paths[0], "-o", db)
        t.run([sys.executable, "-c", KILLED, db], status=0)
        t.check(os.path.getsize(db + "-journal") > 512, "a journal")

    def holds(wanted, what):
        t.equal([os.path.exists(db + "-journal"), [row["live_bytes"] for row in json.loads(t.ask("peak", "--heap=malloc", "--format=json", db).text)]],
                [False, wanted], what)
        t.equal(sqlite3.connect(db).execute("pragma integrity_check").fetchall(), [("ok",)], f"integrity: {what}")

    interrupted()
    t.equal([row["pid"] for row in json.loads(t.ask("processes", "--format=json", db).text)], [100], "what stood there")
    holds([10], "asked")
    interrupted()
    t.equal([row["pid"] for row in json.loads(t.ask("processes", "--format=json", paths[0]).text)], [100], "asked by its trace")
    holds([10], "asked by its trace")
    interrupted()
    t.check("is the same recording" in t.ask("import", paths[0], "--append", "-o", db, status=1).errors, "a trace counts once")
    t.ask("import", "--quiet", paths[1], "--append", "-o", db)
    holds([20, 10], "added to")
    interrupted()
    t.ask("import", "--quiet", paths[1], "--force", "-o", db)
    holds([20], "replaced")
    interrupted()
    os.unlink(db)
    t.ask("import", "--quiet", paths[1], "-o", db)
    holds([20], "made anew")
    interrupted()
    t.check("holds a recording" in t.ask("export", "folded", paths[1], "--force", "-o", db, status=1).errors, "an export is no reason to lose it")


@test
def why_nothing_was_added(t):
    """What keeps a trace out of a database: another import that adds to it, or that it is none of ours."""
    trace = simple()
    trace.events(1, [malloc(1000, 0x1000, 10, trace.stack("main"))])
    path = finish(trace, t, name="one.tmk")
    for name, statements in (("ours.db", None), ("other.db", "create table t(x)"), ("text.db", "")):
        db = t.path(name)
        if statements is None:
            t.ask("import", "--quiet", finish(simple(start_unix_ns=1), t, name="ours.tmk"), "-o", db)
            other = sqlite3.connect(db, isolation_level=None)
            other.execute("begin immediate")
        elif statements:
            sqlite3.connect(db).execute(statements)
        else:
            with open(db, "w", encoding="ascii") as file:
                file.write("no database, but more than the hundred bytes that one begins with\n" * 99)
        said = t.ask("import", path, "--append", "-o", db, status=1).errors
        t.check(("database is locked" if statements is None else "not a tidemark database") in said and said.count("\n") == 1, f"{name}: {said}")
    other.execute("rollback")
    other.execute("begin exclusive")
    for arguments in (["import", path, "--force"], ["export", "folded", t.path("one.tmk"), "--force"], ["report", t.path("one.tmk"), "--force"]):
        said = t.ask(*arguments, "-o", t.path("ours.db"), status=1).errors
        t.check("'ours.db': database is locked" in said.replace(t.dir + "/", ""), f"what a locked file holds is not known, so nothing takes its place: {said}")
    child = t.start([t.tidemark, "peak", t.path("ours.tmk")])
    time.sleep(1)
    other.execute("rollback")
    t.equal(child.wait(), 0, "a database beside its trace is waited for")
    t.equal(other.execute("pragma quick_check").fetchall(), [("ok",)], "what was locked")
    os.mkdir(t.path("closed"), mode=0o555)
    drop = (lambda: os.setuid(65534)) if os.geteuid() == 0 else None
    os.chmod(t.dir, 0o755)
    os.chmod(path, 0o644)
    tool = shutil.copy(t.tidemark, t.path("tool"))  # which nobody may reach where it is, perhaps
    said = t.run([tool, "import", path, "-o", t.path("closed/x.db")], preexec=drop, status=1).errors
    t.check("closed/x.db': Permission denied" in said and said.count("\n") == 1, f"a directory that may not be written: {said}")
    shutil.copy(path, t.path("closed/one.tmk"))
    said = t.run([tool, "summary", "one.tmk"], cwd=t.path("closed"), preexec=drop, status=1).errors
    t.equal(said, "tidemark: cannot import 'one.tmk' into 'one.db': Permission denied ('tidemark import -o DB' makes a database elsewhere)\n", "beside a trace")
    reader = other.execute("select a.name from sqlite_schema as a, sqlite_schema as b")
    reader.fetchone()
    child = t.start([t.tidemark, "import", path, "--append", "-o", t.path("ours.db")])
    time.sleep(1)
    reader.close()
    t.equal(child.wait(), 0, "one who reads is waited for")


@test
def copies_count_once(t):
    """One recording under two names is refused, and left out where nobody named it; the same start on another host or pid is another recording."""
    def saved(name, **changes):
        facts = {"start_unix_ns": 10 ** 18, "pid": 100, "host": "node", **changes}
        trace = Trace(start_unix_ns=facts["start_unix_ns"], host=facts["host"])
        trace.process(1, pid=facts["pid"])
        trace.thread(1, process=1)
        trace.events(1, [malloc(1000, 0x1000, 10, trace.stack("main"))])
        return finish(trace, t, name=name)

    def refused(*arguments):
        errors = t.ask("import", *arguments, status=1).errors
        t.equal((errors.count("\n"), "is the same recording" in errors), (1, True), errors)
        return errors

    os.mkdir(t.path("traces"))
    one, two = saved("traces/one.tmk"), saved("traces/two.tmk")
    errors = refused(one, two, "-o", t.path("x.db"))
    t.check(one in errors and two in errors, errors)
    refused(one, one, "-o", t.path("x.db"))
    t.check(not os.path.exists(t.path("x.db")), "nothing was imported")
    warned = t.ask("import", t.path("traces"), "-o", t.path("d.db")).errors
    t.check(f"warning: '{two}' is left out" in warned, warned)
    refused(two, "--append", "-o", t.path("d.db"))
    t.ask("import", t.path("traces"), "--append", "-o", t.path("d.db"))
    count = lambda: sqlite3.connect(t.path("d.db")).execute("select count(*), sum(allocated_bytes) from site").fetchone()
    t.equal(count(), (1, 10), "counted once")
    t.ask("import", saved("a.tmk", pid=101), saved("b.tmk", host="other"), saved("c.tmk", start_unix_ns=10 ** 18 + 1), "--append", "-o", t.path("d.db"))
    t.equal(count(), (4, 40), "others")


@test
def another_recording_takes_the_name(t):
    """A trace is asked for its blocks. Another recording of the same size and age is moved to its name: what is beside it is not of this one, nor where start,
    host and size are equal. A trace and its database are renamed together, and the trace is changed then: it is imported again."""
    def saved(name, size, start=10**18, pid=100):
        trace = Trace(start_unix_ns=start, host="node")
        trace.process(1, pid=pid)
        trace.thread(1, process=1)
        trace.events(1, [malloc(1000, 0x1000, size, trace.stack("main"))])
        path = finish(trace, t, name=name)
        os.utime(path, (10**9, 10**9))
        return path

    def asked(name):
        done = t.ask("query", t.path(name), "select sum(live_bytes) from live_at_end", "--format=csv")
        return done.text.split()[-1], done.errors.split()[1]

    first, sizes = saved("run.tmk", 111), set()
    t.equal(asked("run.tmk"), ("111", "importing"), "first")
    t.equal(asked("run.tmk"), ("111", "using"), "again")
    for size, start, pid in ((112, 10**18 + 1, 100), (113, 10**18 + 1, 101)):
        other = saved("other.tmk", size, start, pid)
        sizes |= {os.path.getsize(first), os.path.getsize(other)}
        os.rename(other, first)
        t.equal(asked("run.tmk"), (str(size), "importing"), f"another, of {size} bytes")
        t.equal(asked("run.tmk"), (str(size), "using"), f"another, of {size} bytes, again")
    t.equal(len(sizes), 1, f"sizes of the traces: {sizes}")

    for end in ("tmk", "db"):
        os.rename(t.path(f"run.{end}"), t.path(f"renamed.{end}"))
    t.equal(asked("renamed.tmk"), ("113", "using"), "renamed with its database")
    os.utime(t.path("renamed.tmk"))
    os.utime(t.path("renamed.db"), (10**9, 10**9))
    t.equal(asked("renamed.tmk"), ("113", "importing"), "renamed, and changed")
    for end in ("tmk", "db"):
        os.rename(t.path(f"renamed.{end}"), t.path(f"run.{end}"))
    os.rename(saved("other.tmk", 114, 10**18 + 2), first)
    said = t.ask("peak", first, status=1).errors
    t.check(said.count("\n") == 1 and "is there and holds something else" in said, f"neither name nor recording: {said}")
    t.equal(sqlite3.connect(t.path("run.db")).execute("select path from trace").fetchone()[0], t.path("renamed.tmk"), "it was left alone")


@test
def damage_inside_a_sound_chunk(t):
    """A chunk whose checksum is right but whose events name a stack that does not exist: what comes before it counts, what comes after does not."""
    trace = simple()
    f = trace.stack("main")
    trace.events(1, [malloc(1000, 0x1000, 10, f)])
    trace.events(1, [malloc(2000, 0x2000, 20, 999)])
    trace.events(1, [malloc(3000, 0x3000, 40, f)])
    path = finish(trace, t)
    done = t.ask("import", path, "-o", t.path("damaged.db"))
    t.check("warning: '" + path + "' ends at offset" in done.errors and "damaged" in done.errors, done.errors)
    db = sqlite3.connect(t.path("damaged.db"))
    t.equal(db.execute("select size_bytes from allocation").fetchall(), [(10,)], "allocations")
    t.equal(db.execute("select function from frame").fetchall(), [(None,)], "names come behind the damage")
    t.equal(db.execute("select end_kind, (select complete from trace) from process").fetchall(), [("unknown", 0)], "so does the end")


class Oracle:
    """The meaning of a trace, computed slowly: everything is a dict and every peak a scan."""

    def __init__(self):
        self.live, self.changes, self.sites, self.rows = {}, [], {}, 0

    def change(self, ns, stack, bytes, count):
        self.changes.append((ns, stack, bytes, count))

    def play(self, events):
        for e in sorted(events, key=lambda e: e["time"]):
            if "old" in e:
                size, stack = self.live.pop(e["old"])
                self.change(e.get("begin", e["time"]), stack, -size, -1)
            if "addr" in e:
                self.live[e["addr"]] = (e["size"], e["stack"])
                self.change(e["time"], e["stack"], e["size"], 1)

    def peak(self):
        live = most = at = 0
        for i, (_, _, bytes, _) in enumerate(self.changes):
            live += bytes
            if live > most:
                most, at = live, i
        return at, most

    def by_stack(self, end):
        found = {}
        for _, stack, bytes, count in self.changes[:end]:
            b, c = found.get(stack, (0, 0))
            found[stack] = (b + bytes, c + count)
        return {stack: x for stack, x in found.items() if x != (0, 0)}


@test
def random_against_the_oracle(t):
    """20,000 random events of four threads in many chunks, with watermarks that hold quiet threads back."""
    seed = int(os.environ.get("TM_TEST_SEED", random.randrange(10 ** 6)))
    print(f"TM_TEST_SEED={seed}")
    r = random.Random(seed)
    trace = simple()
    for thread in (2, 3, 4):
        trace.thread(thread, process=1)
    stacks = [trace.stack("main", *(f"f{r.randrange(6)}" for _ in range(r.randrange(5)))) for _ in range(30)]
    now, live, everything, per_thread = 0, [], [], {1: [], 2: [], 3: [], 4: []}
    for i in range(20000):
        now += r.randrange(1, 50)
        thread = r.randrange(1, 5)
        what = r.random()
        if what < 0.5 or not live:
            e = malloc(now, 16 * (1 + i), r.randrange(1, 5000), r.choice(stacks))
            live.append(e["addr"])
        elif what < 0.85:
            e = free(now, live.pop(r.randrange(len(live))))
        else:
            e = realloc(now, now, live.pop(r.randrange(len(live))), 16 * (1 + i), r.randrange(1, 5000), r.choice(stacks))
            live.append(e["addr"])
        per_thread[thread].append(e)
        everything.append(e)
    done = {thread: 0 for thread in per_thread}
    while any(done[thread] < len(events) for thread, events in per_thread.items()):
        segments = []
        for thread, events in per_thread.items():
            n = r.choice((0, 1, 100, 1000))
            if events[done[thread]:done[thread] + n]:
                segments.append((thread, events[done[thread]:done[thread] + n]))
            done[thread] += n
        left = [events[done[thread]]["time"] for thread, events in per_thread.items() if done[thread] < len(events)]
        trace.segments(segments, watermark=min(left, default=now))
    path = finish(trace, t, exit=now + 10, end=now + 20)
    oracle = Oracle()
    oracle.play(everything)
    db = database(t, path)
    at, most = oracle.peak()
    t.equal(malloc_peak(db)[:2], (oracle.changes[at][0], most), "peak")
    ids = dict(db.rows("select stack_id, text from stack_text"))
    texts = {}
    for key, node in trace.nodes.items():
        names, walk = [], node
        while walk:
            parent, frame = next(k for k, n in trace.nodes.items() if n == walk)
            names.append(next(f for (f, *_), id in trace.frames.items() if id == frame))
            walk = parent
        texts[node] = ";".join(reversed(names))
    named = lambda found: {texts[stack]: x for stack, x in found.items()}
    for view, end in (("peak_site", at + 1), ("live_at_exit", len(oracle.changes)), ("live_at_end", len(oracle.changes))):
        got = {ids[stack]: (bytes, count) for stack, bytes, count in db.rows(f"select stack_id, live_bytes, live_count from {view}")}
        t.equal(got, named(oracle.by_stack(end)), view)
    allocated = {}
    for _, stack, bytes, count in oracle.changes:
        if count > 0:
            b, c = allocated.get(texts[stack], (0, 0))
            allocated[texts[stack]] = (b + bytes, c + 1)
    t.equal({ids[stack]: (bytes, n) for stack, bytes, n in db.rows("select stack_id, allocated_bytes, allocations from site")}, allocated, "site")
    totals, selfs = {}, {}
    for text, (bytes, n) in allocated.items():
        names = text.split(";")
        for name in set(names):
            totals[name] = tuple(map(sum, zip(totals.get(name, (0, 0)), (bytes, n))))
        selfs[names[-1]] = tuple(map(sum, zip(selfs.get(names[-1], (0, 0)), (bytes, n))))
    t.equal({f: (b, c) for f, b, c in db.rows("select function, total_bytes, total_count from function_total")}, totals, "total by function")
    t.equal({f: (b, c) for f, b, c in db.rows("select function, self_bytes, self_count from function_total where self_count > 0")}, selfs, "self by function")
    t.equal(db.value("select max(live_bytes) from memory_timeline where heap = 'malloc'"), most, "the timeline keeps the peak")
    t.check(db.value("select count(*) from memory_timeline where heap = 'malloc'") <= 3 * 2048 + 2, "the timeline stays small")
    t.equal(db.value("select count(*) from allocation"), sum("addr" in e for e in everything), "rows")
    t.equal(db.rows("select * from loss"), [], "losses")
    t.equal(db.value("select count(*) from allocation a join allocation b on b.id = a.realloc_of_id where b.free_ns > a.alloc_ns"), 0, "reallocs follow")


main()
