"""Questions about instants and windows: answers that come from checkpoints are those of a scan over all allocations.

Method: a trace long enough to have checkpoints is imported twice, and the checkpoints of one copy are deleted, so that the commands fall back to reading
every allocation. Both must say the same, at random instants (the seed is printed) and at the edges. Totals are also held against SQL over `allocation`.
"""
import collections
import json
import math
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import time
from fractions import Fraction

from tidemark_test import main, test
from trace_writer import Trace, free, malloc, mark, mmap, munmap, realloc, scope, step, text

GROUPS = ("stack", "site", "function", "file", "library", "scope", "thread", "heap", "size", "age")


def two_databases(t, trace):
    """A database with checkpoints and one without."""
    one, other = t.path("checkpoints.db"), t.path("scanned.db")
    t.run([os.path.join(t.build, "bin/tidemark"), "import", "-q", trace, "-o", one])
    shutil.copy(one, other)
    base = sqlite3.connect(other)
    base.executescript("DELETE FROM checkpoint; DELETE FROM checkpoint_live; DELETE FROM checkpoint_stack;")
    base.close()
    return one, other


def ask(t, db, *arguments):
    return json.loads(t.run([os.path.join(t.build, "bin/tidemark"), arguments[0], db, *arguments[1:], "--format=json"], status=0).text)


def canonical(rows):
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def compare(t, one, other, *arguments):
    fast, slow = ask(t, one, *arguments), ask(t, other, *arguments)
    t.equal(canonical(fast) == canonical(slow), True, f"{' '.join(arguments)}: {len(fast)} rows and {len(slow)}")
    return fast


def big_trace(t, name, *numbers):
    path = t.path(name)
    t.run([os.path.join(t.build, "tests/integration/big_trace"), path, *(str(n) for n in numbers)])
    return path


@test
def instants_are_exact(t):
    one, other = two_databases(t, big_trace(t, "a.tmk", 600_000, 6_000, 300, 3, 100, 50))
    db = sqlite3.connect(one)
    checkpoints = db.execute("select ts_ns, has_stacks from checkpoint order by id").fetchall()
    t.check(len(checkpoints) >= 4 and any(kept for _, kept in checkpoints), f"checkpoints: {checkpoints}")
    # Each row that outlived the first checkpoint behind its allocation is listed for that one.
    t.equal(db.execute("select count(*) from allocation_packed a join checkpoint c on c.id = (select min(id) from checkpoint where ts_ns > a.alloc_ns)"
                       " where a.id > c.allocation_id and a.id > coalesce((select r.first_id + r.more from checkpoint_live r where r.checkpoint_id = c.id"
                       " and r.first_id <= a.id order by r.first_id desc limit 1), -1)").fetchone()[0], 0, "rows that no checkpoint lists")
    end = db.execute("select max(end_ns) from process").fetchone()[0]
    seed = random.randrange(1 << 30)
    print("seed", seed)
    dice = random.Random(seed)
    ts = [c[0] for c in checkpoints]
    instants = [dice.randrange(end) for _ in range(2)] + [ts[2], *([ts[2] - 1, end] if t.long else [])]
    for n, at in enumerate(instants):
        expected = db.execute("select coalesce(sum(size_bytes), 0), count(*) from allocation join process p on p.id = process_id where alloc_ns <= :t "
                              "and (free_ns is null or free_ns > :t) and :t <= p.end_ns", {"t": at}).fetchone()
        for by in GROUPS if n < 1 else ("stack", dice.choice(GROUPS[5:])):
            rows = compare(t, one, other, "snapshot", "--at", f"{at}ns", f"--by={by}")
            t.equal((sum(r["live_bytes"] for r in rows), sum(r["live_count"] for r in rows)), expected, f"live at {at} by {by}")
    a, b = sorted(instants[:2])
    for by in ("stack", "function", "size"):
        rows = compare(t, one, other, "snapshot", "--at", f"{b}ns", "--against", f"{a}ns", f"--by={by}")
        live = [sum(r["live_bytes"] for r in ask(t, one, "snapshot", "--at", f"{x}ns")) for x in (a, b)]
        t.equal(sum(r["change_bytes"] for r in rows), live[1] - live[0], "change")
        t.equal(all(r["change_bytes"] == r["live_bytes"] - r["against_bytes"] for r in rows), True, "rows of the change")
    compare(t, one, other, "snapshot", "--at", f"{b}ns", "--from", f"{a}ns")
    # From a checkpoint on, and across one: a scan of a window takes as long as it is.
    for first, last in ((a, a + 1000), *([(a, b), (ts[1], end)] if t.long else [(ts[1], ts[1] + 500_000), (ts[2] - 500_000, ts[2] + 200_000)])):
        compare(t, one, other, "peak", "--from", f"{first}ns", "--to", f"{last}ns")
        compare(t, one, other, "peak", "--sites", "--from", f"{first}ns", "--to", f"{last}ns")
        compare(t, one, other, "temporary", "--from", f"{first}ns", "--to", f"{last}ns")
    whole = compare(t, one, other, "peak", "--from=start", "--to=end") if t.long else ask(t, one, "peak", "--from=start", "--to=end")
    t.equal(whole[0]["live_bytes"], db.execute("select max(live_bytes) from peak").fetchone()[0], "the peak")


@test
def windows_in_which_nothing_is_live(t):
    """The highest level of a window at its earliest instant, of all that the peak of the whole run has a row of, for every window of a run whose blocks are empty
    for a while: 0 bytes from where the window opens, and not from the first empty block on. By hand, with and without checkpoints, and as --sql says it."""
    trace = Trace()
    for process, start in ((1, 0), (2, 3)):
        trace.process(process, pid=process, parent=process - 1, start=start)
        trace.thread(process, process=process)
    f = trace.stack("main")
    events = [(4, "malloc", 0, 1), (5, "malloc", 0, 1), (6, "malloc", 0, -1), (8, "mmap", 4096, 1), (9, "mmap", -4096, -1), (11, "malloc", 7, 1), (12, "malloc", -7, -1),
              (13, "malloc", 0, -1)]
    trace.events(1, [malloc(4, 0x1000, 0, f), malloc(5, 0x2000, 0, f), free(6, 0x1000), mmap(8, 0x100000, 4096, f), munmap(9, 9, 0x100000, 4096),
                     malloc(11, 0x3000, 7, f), free(12, 0x3000), free(13, 0x2000)], watermark=14)
    ends = {1: 16, 2: 10}
    for process, end in ends.items():
        trace.end(process, end)

    def peak(process, heaps, first, last):
        levels = [(sum(e[2] for e in events if e[0] <= ns and e[1] in heaps), -ns, sum(e[3] for e in events if e[0] <= ns and e[1] in heaps))
                  for ns in range(max(first, 0 if process == 1 else 3), min(last, ends[process]) + 1)]
        return [(-ns, size, blocks) for size, ns, blocks in [max(levels)]] if levels else []

    rows = ((1, None, ("malloc", "mmap")), (1, "malloc", ("malloc",)), (1, "mmap", ("mmap",)), (2, None, ()))
    one, other = two_databases(t, trace.save(t.path("empty.tmk")))
    for path in (one, other):
        with sqlite3.connect(path) as db:
            whole = sorted(db.execute("select process_id, coalesce(heap, ''), ts_ns, live_bytes, live_count from peak"))
            t.equal(whole, sorted((p, heap or "", *row) for p, heap, heaps in rows for row in peak(p, heaps, 0, 16)), "the whole run")
            for first in range(17):
                for last in range(first, 17, 3):
                    wanted = sorted((p, heap or "", *row) for p, heap, heaps in rows for row in peak(p, heaps, first, last))
                    window = (f"--from={first}ns", f"--to={last}ns")
                    got = [(r["process_id"], r["heap"] or "", r["ts_ns"], r["live_bytes"], r["live_count"]) for r in ask(t, path, "peak", *window)]
                    t.equal(sorted(got), wanted, f"{os.path.basename(path)} {window}")
                    sql = t.run([t.tidemark, "peak", path, *window, "--sql", "--format=json"], status=0).text
                    t.equal(sorted((r[0], r[1] or "", *r[2:5]) for r in db.execute(sql)), wanted, f"{os.path.basename(path)} {window} --sql")


@test
def a_timeline_begins_with_what_was_live(t):
    """All events but one of 2.85 s lie in one stretch of 2^21 ns of which the timeline keeps the lowest, the highest and the last level: malloc 1000, 6000, 1000, 1700, 1730,
    1739; mmap 16384, 12288 in 2 parts, 8192 in one. A window that opens in it begins with what was live then, as a snapshot says."""
    trace = Trace()
    trace.process(1, pid=7)
    trace.thread(1, process=1)
    f, us = trace.stack("main"), 1000
    trace.events(1, [malloc(209_800 * us, 0x1000, 1000, f), mmap(209_900 * us, 0x100000, 4 * 4096, f), malloc(210_000 * us, 0x2000, 5000, f),
                     free(210_100 * us, 0x2000), munmap(210_120 * us, 210_121 * us, 0x101000, 4096), malloc(210_200 * us, 0x2000, 700, f),
                     malloc(210_300 * us, 0x3000, 30, f), malloc(210_400 * us, 0x4000, 9, f), munmap(210_500 * us, 210_501 * us, 0x100000, 4096),
                     malloc(2_850_000 * us, 0x5000, 1, f)], watermark=2_850_001 * us)
    trace.exit(1, 2_900_000 * us)
    trace.end(1, 3_000_000 * us)
    one, other = two_databases(t, trace.save(t.path("run.tmk")))
    for at, blocks, mapped in ((210_150, (1000, 1), (12288, 2)), (210_250, (1700, 2), (12288, 2)), (210_350, (1730, 3), (12288, 2)), (209_850, (1000, 1), (0, 0)),
                               (210_500, (1739, 4), (8192, 1))):
        rows = compare(t, one, other, "timeline", f"--from={at}us", "--to=2s")
        first = {row["heap"]: (row["live_bytes"], row["live_count"]) for row in rows if row["ts_ns"] == at * us}
        wanted = {None: (blocks[0] + mapped[0], blocks[1] + mapped[1]), "malloc": blocks, "mmap": mapped}
        t.equal(first, wanted, f"at {at} us")
        live = {row["heap"]: (row["live_bytes"], row["live_count"]) for row in ask(t, one, "snapshot", "--at", f"{at}us", "--by=heap")}
        t.equal(live, {heap: level for heap, level in wanted.items() if heap and level != (0, 0)}, f"the snapshot at {at} us")
        if at == 210_150:
            t.equal([(row["ts_ns"], row["live_bytes"]) for row in rows if row["heap"] == "malloc"], [(210_150 * us, 1000), (210_400 * us, 1739)], "what follows")
    # Both ends cut through that stretch, and nothing that it keeps lies between them but what the window opened with.
    for last, highest in ((210_320, [(210_300, 1730)]), (210_250, [(210_200, 1700)]), (210_190, [])):
        rows = compare(t, one, other, "timeline", "--from=210150us", f"--to={last}us", "--heap=malloc")
        t.equal([(row["ts_ns"], row["live_bytes"]) for row in rows], [(at * us, level) for at, level in [(210_150, 1000), *highest]], f"until {last} us")
    rows = compare(t, one, other, "timeline", "--to=210250us", "--heap=malloc")
    t.equal(max(row["live_bytes"] for row in rows), 6000, "the highest of all before 210,250 us")
    rows = compare(t, one, other, "timeline", "--to=209950us", "--heap=malloc")
    t.equal(max(row["live_bytes"] for row in rows), 1000, "the highest of all before 209,950 us")


@test
def stretches_of_a_window(t):
    """They cut up the window, whenever something changed in it last, and for every heap at the same instants, where a bucket of 1,024 ns begins."""
    trace = Trace()
    trace.process(1, pid=7)
    trace.thread(1, process=1)
    f = trace.stack("main")
    trace.events(1, [malloc(1000, 0x1000, 100, f), mmap(1001, 0x100000, 4096, f), free(300_000, 0x1000), malloc(310_000, 0x3000, 5, f),
                     malloc(900_000, 0x2000, 1, f)])
    trace.exit(1, 1_000_000)
    trace.end(1, 1_000_000)
    db = t.imported(trace.save(t.path("run.tmk")))
    first, second = 200_000, (195 + 294) * 1024 # the window has 587 buckets, 195 to 781
    for heap, levels in ((None, (4196, 4101)), ("malloc", (100, 5)), ("mmap", (4096, 4096))):
        window = ("--from=200us", "--to=800us", *((f"--heap={heap}",) if heap else ()))
        rows = ask(t, db.path, "timeline", "--buckets=2", *window)
        t.equal([(row["ts_ns"], row["live_bytes"]) for row in rows if row["heap"] == heap], list(zip((first, second), levels)), f"{heap}: stretches")
        shown = t.ask("timeline", db.path, "--limit=2", *window).text
        t.equal([line.split()[1] for line in shown.splitlines()[1:]], ["0.000200s", "0.000501s"][:1 if heap == "mmap" else 2], f"{heap}: the table {shown}")


@test
def a_stretch_claims_no_level_of_another(t):
    """malloc has 1000 bytes, for 80 ns 100 MB more, and 10 more 123 us later, all in one bucket of 2^19 ns, which keeps its lowest, highest and last level: no row says
    when the 100 MB went. mmap falls where a bucket begins. No row of a stretch, however many there are, claims a level that was not there then."""
    trace = Trace()
    trace.process(1, pid=7)
    trace.thread(1, process=1)
    f, bucket = trace.stack("main"), 1 << 19
    at = 957 * bucket
    trace.events(1, [malloc(1_700_000, 0x1000, 1000, f), mmap(1_700_001, 0x100000, 2 * 4096, f), free(at + 1000, 0x1000), malloc(at + 1100, 0x2000, 100 << 20, f),
                     malloc(at + 1150, 0x1000, 1000, f), free(at + 1180, 0x2000), malloc(at + 124_000, 0x3000, 10, f),
                     munmap(1200 * bucket - 1, 1200 * bucket, 0x100000, 8192), malloc(1_000_000_000, 0x4000, 10, f)])
    trace.exit(1, 1_001_000_000)
    trace.end(1, 1_001_000_000)
    one, other = two_databases(t, trace.save(t.path("run.tmk")))
    blocks, mapped = [(0, 0), (1_700_000, 1000), (at + 1000, 0), (at + 1100, 100 << 20), (at + 1150, (100 << 20) + 1000), (at + 1180, 1000), (at + 124_000, 1010),
                      (1_000_000_000, 1020)], [(0, 0), (1_700_001, 8192), (1200 * bucket, 0)]
    level = lambda changes, ns: [bytes for when, bytes in changes if when <= ns][-1]
    then = at + 20_000 # of four stretches of equal length from 0 on, here began the last
    for window in ((), ("--from=0", f"--to={then // 3 * 4}ns"), (f"--from={at + 1050}ns",), (f"--from={at + 1175}ns", f"--to={at + bucket}ns")):
        for n in (1, 2, 3, 4, 7, 40, 956, 1908, 5000):
            rows = compare(t, one, other, "timeline", f"--buckets={n}", *window)
            for heap, of in ((None, (blocks, mapped)), ("malloc", (blocks,)), ("mmap", (mapped,))):
                mine = [(row["ts_ns"], row["live_bytes"]) for row in rows if row["heap"] == heap]
                t.equal([row for row in mine if row[1] != sum(level(changes, row[0]) for changes in of)], [], f"{heap} {window} in {n}")
                t.check(len(mine) <= n, f"{heap} {window}: {len(mine)} rows of {n}")
            t.equal(max(row["live_bytes"] for row in rows if row["heap"] == "malloc"), (100 << 20) + 1000, f"{window} in {n}: the highest")
    shown = t.ask("timeline", one, "--heap=malloc", "--limit=4", "--from=0", f"--to={then // 3 * 4}ns").text
    t.equal(shown.count("100.0 MiB"), 1, f"one stretch had it: {shown}")


def mixed_trace(t, seed, batches, batch=4096, **how):
    """Blocks, reallocations and mappings that are given back in parts, on two threads: an event and more for each of a batch."""
    dice, trace, ns = random.Random(seed), Trace(**how), 1000
    trace.process(1, pid=7)
    for thread in (1, 2):
        trace.thread(thread, process=1)
    stacks = [trace.stack("main", f"f{n}") for n in range(12)]
    blocks, mappings, used, places = {}, [], set(), iter(range(1 << 30))
    for _ in range(batches):
        events = {1: [], 2: []}
        for _ in range(batch):
            ns += dice.randrange(2, 60)
            put, roll = events[dice.choice((1, 2))].append, dice.random()
            address = 0x10000 + 64 * dice.randrange(6000)
            if roll < 0.002:
                mappings.append([0x100000000 + (next(places) << 20), 16])
                put(mmap(ns, mappings[-1][0], 16 * 4096, dice.choice(stacks)))
            elif roll < 0.006 and len(mappings) > 3:
                base, pages = mappings.pop(dice.randrange(len(mappings)))
                first = dice.randrange(pages)
                last = dice.randrange(first, pages) + 1
                put(munmap(ns, ns + 1, base + first * 4096, (last - first) * 4096))
                mappings += [m for m in ([base, first], [base + last * 4096, pages - last]) if m[1]]
            elif address not in blocks:
                blocks[address] = dice.randrange(1, 60)
                put(malloc(ns, address, blocks[address], dice.choice(stacks)))
            elif roll < 0.2:
                put(realloc(ns, ns + 1, address, address, dice.randrange(1, 60), dice.choice(stacks)))
                ns += 1
            else:
                del blocks[address]
                put(free(ns, address))
        trace.segments([(n, e) for n, e in events.items() if e], watermark=ns)
    trace.exit(1, ns + 10)
    trace.end(1, ns + 20)
    path = t.path("mixed.tmk")
    trace.save(path)
    return path, ns


@test
def mappings_in_parts_and_reallocations(t):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    dice = random.Random(seed)
    path, end = mixed_trace(t, seed, 70 if t.long else 35)
    one, other = two_databases(t, path)
    for at in (dice.randrange(end), dice.randrange(end), end):
        for by in ("stack", "size", "heap"):
            compare(t, one, other, "snapshot", "--at", f"{at}ns", f"--by={by}")
    a, b = sorted(dice.randrange(end // 100, end) for _ in range(2)) # mappings are live from early on
    compare(t, one, other, "snapshot", "--at", f"{b}ns", "--against", f"{a}ns")
    for first, last in ((a, b), (a, a + 5000), (0, end)):
        compare(t, one, other, "peak", "--from", f"{first}ns", "--to", f"{last}ns")
        if t.long or (first, last) != (0, end):
            compare(t, one, other, "peak", "--sites", "--from", f"{first}ns", "--to", f"{last}ns")
    # Checkpoints keep no stacks where there are very many.
    base = sqlite3.connect(one)
    base.execute("update checkpoint set has_stacks = 0")
    base.commit()
    for heap in ((), ("--heap=mmap",)):
        t.check(compare(t, one, other, "snapshot", "--at", f"{a}ns", *heap), "something is live")
        compare(t, one, other, "snapshot", "--at", f"{b}ns", "--against", f"{a}ns", *heap)
    compare(t, one, other, "peak", "--from", f"{a}ns", "--to", f"{a + 5000}ns")
    compare(t, one, other, "peak", "--sites", "--from", f"{a}ns", "--to", f"{b}ns")
    compare(t, one, other, "timeline", "--from", f"{a}ns", "--to", f"{b}ns")


def replayed(blocks, parted, heaps, first, last):
    """The levels (time, bytes, count) of these heaps in a window, by fractions, which lose nothing."""
    changes = collections.defaultdict(lambda: [Fraction(0), Fraction(0)])
    for of, heap, size, weight, begun, ended, part_of in blocks:
        if heap not in heaps or (ended is not None and ended <= first):
            continue
        is_part = part_of is not None and parted.get(part_of) is not None and parted[part_of] > begun
        for at, sized, counted in ((begun, 1, not is_part), (ended, -1, -1), (parted[part_of] if is_part else None, 0, 1)):
            if at is not None and max(at, first) <= last:
                level = changes[max(at, first)]
                level[0] += sized * size * Fraction(weight)
                level[1] += counted * Fraction(weight)
    level, levels = [Fraction(0), Fraction(0)], {}
    for at in sorted(changes):
        level = [level[0] + changes[at][0], level[1] + changes[at][1]]
        levels[at] = level
    return levels


@test
def windows_of_samples(t):
    """Their levels are fractions. What is replayed is what SQL says, to the byte, and what a replay by fractions says; the same of their errors."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    dice = random.Random(seed)
    path, end = mixed_trace(t, seed, 12 if t.long else 6, sample_bytes=64)
    one, other = two_databases(t, path)
    base = sqlite3.connect(one)
    blocks = base.execute("select process_id, heap_id, size_bytes, weight, alloc_ns, free_ns, realloc_of_id from allocation").fetchall()
    parted = dict(base.execute("select id, free_ns from allocation"))
    heaps = {name: {number} for number, name in base.execute("select id, name from heap where is_root")}
    heaps[None] = set().union(*heaps.values())
    t.check(len(heaps) == 3 and any(b[3] > 1 for b in blocks) and any(b[6] and parted[b[6]] for b in blocks), "samples and mappings in parts")

    def error(heap, is_counted, power=2):
        chosen = [b for b in blocks if b[1] in heaps[heap] and is_counted(b[4], b[5])]
        return math.sqrt(sum(b[2] ** power * b[3] * (b[3] - 1) for b in chosen))

    def is_live(at):
        return lambda begun, ended: begun <= at and (ended is None or ended > at)
    a, b = sorted(dice.randrange(end // 5, end) for _ in range(2))  # each heap has something live by then
    for first, last in ((a, b), (a, a + 5000), (0, end)):
        window = ("--from", f"{first}ns", "--to", f"{last}ns")
        rows = compare(t, one, other, "peak", *window)
        t.equal({row["heap"] for row in rows}, set(heaps), "heaps")
        for row in rows:
            levels = replayed(blocks, parted, heaps[row["heap"]], first, last)
            t.equal(row["live_bytes"], round(max(level[0] for level in levels.values())), f"{window}: highest of {row['heap']}")
            t.check(abs(levels[row["ts_ns"]][0] - row["live_bytes"]) <= 0.51 and abs(levels[row["ts_ns"]][1] - row["live_count"]) <= 0.51, f"{window}: {row}")
            t.check(abs(error(row["heap"], is_live(row["ts_ns"])) / row["live_bytes"] - row["relative_error"]) < 1e-4, f"{window}: error of {row}")
            t.check(abs(error(row["heap"], is_live(row["ts_ns"]), 0) / row["live_count"] - row["count_relative_error"]) < 1e-4, f"{window}: of the count of {row}")
        sql = t.run([os.path.join(t.build, "bin/tidemark"), "peak", one, *window, "--sql"], status=0).text.partition("\n\n--")[0]
        t.equal(ask(t, one, "query", sql), rows, "what --sql prints")
        compare(t, one, other, "peak", "--sites", *window)
        for options in ((), ("--heap=mmap",), ("--buckets=7",)):
            rows = compare(t, one, other, "timeline", *options, *window)
            for row in dice.sample(rows, min(len(rows), 12)):
                for column, name, power in (("live_bytes", "relative_error", 2), ("live_count", "count_relative_error", 0)):
                    of = row[column] and error(row["heap"], is_live(row["ts_ns"]), power) / row[column]
                    t.check((row[name] is None) if not row[column] else abs(of - row[name]) < 1e-4, f"{window} {options}: {name}, {of}: {row}")
    sql = t.run([os.path.join(t.build, "bin/tidemark"), "timeline", one, "--format=json", "--sql"], status=0).text
    t.equal(ask(t, one, "query", sql), ask(t, one, "timeline"), "what --sql prints")
    for row in ask(t, one, "summary"):
        for of, is_counted, size, count in (("allocated", lambda *_: True, "allocated_bytes", "allocations"),
                                            ("peak", is_live(row["peak_ns"]), "peak_bytes", "peak_count"),
                                            ("exit", is_live(end + 10), "live_at_exit_bytes", "live_at_exit_count")):
            t.check(abs(error(row["heap"], is_counted) / row[size] - row[f"{of}_relative_error"]) < 1e-4, f"error of {of}: {row}")
            t.check(abs(error(row["heap"], is_counted, 0) / row[count] - row[f"{of}_count_relative_error"]) < 1e-4, f"error of the count of {of}: {row}")
    process, = ask(t, one, "processes")
    t.equal([process[k] for k in process if k.endswith("_error")], [row[k] for row in ask(t, one, "summary") if not row["heap"] for k in process if k.endswith("_error")],
            "the errors of the process")
    for verb in ("summary", "processes"):
        sql = t.run([os.path.join(t.build, "bin/tidemark"), verb, one, "--sql"], status=0).text.partition("\n\n--")[0]
        t.equal(ask(t, one, "query", sql), ask(t, one, verb), f"{verb}: what --sql prints")


@test
def windows_of_processes(t):
    """Their blocks lie between each other, and their windows open and close at times of their own. What a brute-force replay of `allocation` says holds with
    checkpoints that keep stacks and with those that do not."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    dice, trace, ns, processes = random.Random(seed), Trace(), 1000, range(1, 6)
    for n in processes:
        trace.process(n, pid=100 + n, parent=1 if n > 1 else 0, start=0 if n == 1 else 40 * n)
        trace.thread(n, process=n)
    stacks, live = [trace.stack("main", f"f{n}") for n in range(9)], set()
    for batch in range(30):
        events = {n: [] for n in processes}
        for _ in range(10_000):
            ns += dice.randrange(1, 40)
            process, address = dice.choice(processes), 0x10000 + 64 * dice.randrange(2000)
            if batch % 7 == 3 and dice.random() < 0.001:
                events[process].append(step(ns, batch * 10 + process))
            elif (process, address) in live:
                live.remove((process, address))
                events[process].append(free(ns, address))
            else:
                live.add((process, address))
                events[process].append(malloc(ns, address, dice.randrange(1, 5000), dice.choice(stacks)))
        trace.segments(list(events.items()), watermark=ns)
    for n in processes:
        trace.exit(n, ns + 10 * n)
        trace.end(n, ns + 1000 * n)
    db = t.path("run.db")
    t.run([t.tidemark, "import", "-q", trace.save(t.path("run.tmk")), "-o", db], status=0)
    base = sqlite3.connect(db)
    t.check(base.execute("select count(*) from checkpoint").fetchone()[0] > 1, "checkpoints lie between")
    blocks = base.execute("select process_id, size_bytes, alloc_ns, free_ns from allocation").fetchall()

    def highest(process, first, last):
        changes = {first: [0, 0]}
        for of, size, begun, ended in blocks:
            for at, change in ((begun, 1), (ended, -1)) if of == process and (ended is None or ended > first) else ():
                if at is not None and at <= last:
                    level = changes.setdefault(max(at, first), [0, 0])
                    level[0] += change * size
                    level[1] += change
        best, level = None, [0, 0]
        for at in sorted(changes):
            level = [level[0] + changes[at][0], level[1] + changes[at][1]]
            if best is None or level[0] > best[1]:
                best = (at, *level)
        return best

    a, b = sorted(dice.randrange(ns) for _ in range(2))
    for has_stacks in (1, 0):
        base.execute("update checkpoint set has_stacks = ? where has_stacks", (has_stacks,))
        base.commit()
        for first, last in ((a, b), (b, b + 3000)):
            rows = ask(t, db, "peak", "--from", f"{first}ns", "--to", f"{last}ns", "--heap=malloc")
            t.equal([(r["process_id"], r["ts_ns"], r["live_bytes"], r["live_count"]) for r in rows],
                    sorted(((n, *highest(n, first, last)) for n in processes), key=lambda row: (-row[2], row[0])), f"from {first} to {last}, stacks {has_stacks}")


@test
def the_largest_process_stands_first(t):
    """Of many processes a table shows twenty rows: those that held most come first, whichever were started first, each with its heaps below it."""
    trace, held = Trace(), {n: 1000 + n * 37 % 29 for n in range(1, 30)}
    held[28] = 1_000_000
    for n, size in held.items():
        trace.process(n, pid=100 + n, command=b"helper\0")
        trace.thread(n, process=n)
        events = [malloc(10 * n, 0x1000, size, 0)]
        if n == 5:
            # Its heaps add up to more than any other helper's.
            events.append(mmap(10 * n + 1, 0x100000, 4096, 0))
        trace.events(n, events)
        trace.exit(n, 1000)
        trace.end(n, 2000)
    db = t.path("many.db")
    t.run([t.tidemark, "import", "-q", trace.save(t.path("many.tmk")), "-o", db], status=0)
    for command, more in ((["peak"], 4096), (["summary"], 4096), (["peak", "--from=start"], 4096), (["peak", "--heap=malloc"], 0)):
        rows = ask(t, db, *command)
        wanted = sorted(held, key=lambda n: (-held[n] - more * (n == 5), n))
        t.equal([r["process_id"] for r in rows if r["heap"] == (None if more else "malloc")], wanted, f"{command}: the order of processes")
        if more:
            t.equal([(r["process_id"], r["heap"]) for r in rows[:5]], [(28, None), (28, "malloc"), (5, None), (5, "mmap"), (5, "malloc")], f"{command}: heaps")


@test
def sites_are_looked_up_stack_by_stack(t):
    """A query that joins the view `site` makes it whole first, which takes seconds where a program has a million call stacks."""
    _, db = two_databases(t, big_trace(t, "a.tmk", 2_000, 100, 30, 2, 5, 5))
    base = sqlite3.connect(db)

    def gathers(sql):
        return any(row[3] == "MATERIALIZE site" for row in base.execute("explain query plan " + sql.strip().rstrip(";")))
    t.check(gathers("select * from snapshot_stack k left join site s on s.process_id = 1 and s.heap = 'malloc' and s.stack_id = k.stack_id"), "the plan tells")
    for question in (["snapshot", "--at=1us"], ["snapshot", "--at=exit"], ["leaks", "--from=start"], ["peak", "--sites", "--from=start"], ["temporary", "--from=start"]):
        sql = t.run([os.path.join(t.build, "bin/tidemark"), question[0], db, *question[1:], "--sql"], status=0).text
        t.check(not gathers(sql), f"{' '.join(question)}: all sites are gathered")


NAMES = ("function", "file", "line", "module", "module_offset")


@test
def rows_are_chosen_before_they_are_named(t):
    """Of very many call stacks the names of those are looked up that are listed; the order is complete, and the same with a limit and without."""
    trace, db = Trace(), t.path("chosen.db")
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    trace.events(1, [malloc(1000 + 10 * i, 0x10000 + 1024 * i, 16 + i * 5 % 7, trace.stack("main", f"function_{i * 37 % 60}")) for i in range(60)])
    trace.exit(1, 10000)
    trace.end(1, 20000)
    t.run([t.tidemark, "import", "-q", trace.save(t.path("chosen.tmk")), "-o", db], status=0)
    base = sqlite3.connect(db)
    site = dict((row[0], row[1:]) for row in base.execute(
        "SELECT s.id, f.function, f.file, f.line, m.path, f.module_offset FROM stack s LEFT JOIN frame f ON f.id = s.site_frame_id LEFT JOIN module m ON m.id = f.module_id"))
    live = ("live_bytes", "process_id", "heap", "stack_id")
    for order, question in ((live, ["snapshot", "--at=9us"]),
                            (live, ["snapshot", "--at=9us", "--from=1100ns"]), (live, ["snapshot", "--at=peak"]), (live, ["leaks", "--from=1100ns"]),
                            (("slack_bytes", "process_id", "heap", "stack_id"), ["temporary", "--oversized"])):
        rows = ask(t, db, *question)
        t.check(len(rows) > 40 and len({row[order[0]] for row in rows}) < 20, f"{question}: {len(rows)} rows, many of them equal")
        t.equal([row for row in rows if tuple(row[name] for name in NAMES) != site[row["stack_id"]]], [], f"{question}: rows with other names")
        usual = sorted(rows, key=lambda row: (-row[order[0]], *(row[column] for column in order[1:])))
        t.equal(rows, usual, f"{question}: the usual order")
        t.equal(ask(t, db, *question, "--limit=9"), usual[:9], f"{question}: the first nine")
        for column in ("stack_id", "function"):
            by = sorted(usual, key=lambda row: row[column])
            t.equal((ask(t, db, *question, f"--sort={column}"), ask(t, db, *question, f"--sort={column}", "--limit=5")), (by, by[:5]), f"{question} by {column}")
        sql = t.run([t.tidemark, question[0], db, *question[1:], "--limit=9", "--sql"], status=0).text
        plan = [row[3] for row in base.execute("explain query plan " + sql.strip().rstrip(";"))]
        named = [n for n, step in enumerate(plan) if step.startswith("SEARCH f USING INTEGER PRIMARY KEY")]
        t.check(len(named) == 1 and "SCAN page" in plan and named[0] > plan.index("SCAN page"), f"{question}: names before the page in {plan}")


@test
def a_comparison_adds_up_by_number_first(t):
    """To group millions of call stacks by the texts of their sites takes minutes. Each run is read once, and its stacks are grouped before any text is looked up."""
    db, _ = two_databases(t, big_trace(t, "a.tmk", 2_000, 100, 30, 2, 5, 5))
    attach, _, sql = t.run([t.tidemark, "diff", db, db, "--format=csv", "--sql"], status=0).text.partition(";\n")
    base = sqlite3.connect(db)
    base.execute(attach.split("\n")[-1])
    plan = [row[3] for row in base.execute("explain query plan " + sql.strip().rstrip(";"))]
    behind = [(plan[n + 1].split()[:2], plan[n + 2]) for n, step in enumerate(plan) if step == "SCAN t"]
    t.equal(behind, [(["SEARCH", "s"], "USE TEMP B-TREE FOR GROUP BY")] * 2, f"what follows each reading of site_total in {plan}")


@test
def live_stacks_are_added_up_by_number_first(t):
    """As in a comparison, where the groups are of what follows from the site of a stack."""
    db, _ = two_databases(t, big_trace(t, "a.tmk", 2_000, 100, 30, 2, 5, 5))
    base = sqlite3.connect(db)
    for by in ("site", "function", "file", "library"):
        sql = t.run([t.tidemark, "snapshot", db, "--at=20us", f"--by={by}", "--sql"], status=0).text
        plan = [row[3] for row in base.execute("explain query plan " + sql.strip().rstrip(";"))]
        at = plan.index("SCAN k")
        t.equal((plan[at + 1].split()[:2], plan[at + 2]), (["SEARCH", "s"], "USE TEMP B-TREE FOR GROUP BY"), f"what follows the live stacks by {by} in {plan}")


@test
def several_traces_keep_their_checkpoints(t):
    """Ids go on, and instants are each trace's own."""
    traces = [big_trace(t, f"{n}.tmk", 600_000 + n, 3_000, 100, 2, 100 + n) for n in range(2)]
    one = t.path("both.db")
    t.run([os.path.join(t.build, "bin/tidemark"), "import", "-q", *traces[:1], "-o", one])
    t.run([os.path.join(t.build, "bin/tidemark"), "import", "-q", "--append", *traces[1:], "-o", one])
    other = t.path("scanned.db")
    shutil.copy(one, other)
    base = sqlite3.connect(other)
    base.executescript("DELETE FROM checkpoint; DELETE FROM checkpoint_live; DELETE FROM checkpoint_stack;")
    base.close()
    for at in ("15ms", "end"):
        for by in ("stack", "thread"):
            compare(t, one, other, "snapshot", "--at", at, f"--by={by}")
    compare(t, one, other, "peak", "--from=8ms", f"--to={15 if t.long else 11}ms")


@test
def imports_end_whole_or_not_at_all(t):
    """Stopped by a signal or by a disk that is full, an import leaves no file; what stood under the name stays."""
    trace, db = big_trace(t, "a.tmk", 900_000, 20_000, 30_000, 2), t.path("a.db")
    command = [os.path.join(t.build, "bin/tidemark"), "import", trace, "--force", "-o", db]
    databases = lambda: [name for name in os.listdir(t.dir) if ".db" in name]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU):
        child = t.start(command, stdin=subprocess.DEVNULL, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
        while not any(name.endswith(".tmp") for name in os.listdir(t.dir)) and child.poll() is None:
            time.sleep(0.001)
        child.send_signal(number)
        t.check(child.wait() in (-number, 0), f"ended with {child.returncode}")
        t.equal(databases(), ["a.db"] if child.returncode == 0 else [], f"files after {number.name}")
        if databases():
            os.unlink(db)
    t.run(command, status=0)
    before = os.stat(db)
    for limit in (1 << 20, before.st_size // 2, before.st_size - 4096):
        def small():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        done = t.run(command, status=1, preexec=small)
        t.check("cannot import" in done.errors or "cannot write" in done.errors, done.errors)
        t.equal(databases(), ["a.db"], f"files after a limit of {limit}")
        t.equal(os.stat(db).st_mtime_ns, before.st_mtime_ns, "the database that stood there")


@test
def the_next_import_clears_up(t):
    """What a killed import left goes with the next one into the same database; what a running one writes, or one of another machine, stays."""
    trace, db = big_trace(t, "a.tmk", 900_000, 20_000, 30_000, 2), t.path("a.db")
    command = [os.path.join(t.build, "bin/tidemark"), "import", trace, "--force", "-o", db]
    left = lambda: sorted(name for name in os.listdir(t.dir) if name.endswith(".tmp"))
    child = t.start(command, stdin=subprocess.DEVNULL)
    while not left() and child.poll() is None:
        time.sleep(0.001)
    child.kill()
    child.wait()
    t.equal(len(left()), 1, "files after SIGKILL")
    killed = left()[0]
    machine, pid = killed.split(".")[2:4]
    t.equal(pid, str(child.pid), f"the process in {killed}")
    kept = [f"a.db.{machine}.{os.getpid()}.tmp", f"a.db.{machine[::-1]}.{pid}.tmp", f"a.db.{machine}.{pid}x.tmp", f"b.db.{machine}.{pid}.tmp"]
    for name in kept:
        with open(t.path(name), "wb"):
            pass
    for options in ([], ["--append"]):
        with open(t.path(killed), "wb"):
            pass
        if options:
            command = [*command[:2], os.path.join(t.root, "fixtures/golden/v1-tiny.tmk"), "--append", "-o", db]
        t.run(command, status=0)
        t.equal(left(), sorted(kept), f"files after the next import {options}")


@test
def churn_and_peaks_by_hand(t):
    """One process of rank 3, two threads, a device heap; every figure below is added up by hand."""
    trace = Trace()
    trace.process(1, pid=7, rank=3)
    for thread in (1, 2):
        trace.thread(thread, process=1, tid=70 + thread)
    trace.heap(1, 1, "cuda:0", "device", device=0)
    a, b = trace.stack("main", "a"), trace.stack("main", "b")
    trace.segments([
        (1, [malloc(1000, 0x1000, 100, a, usable=104), free(2000, 0x1000), malloc(3000, 0x1000, 100, a, usable=104), malloc(4000, 0x2000, 300, a, usable=304),
             realloc(5000, 5001, 0x2000, 0x3000, 600, b), realloc(6000, 6001, 0x3000, 0x3000, 700, b), free(9_000_000, 0x3000),
             malloc(9_500_000, 0x4000, 400, a, usable=408, op="heap_alloc", heap=1)]),
        (2, [malloc(7000, 0x5000, 50, b, usable=56), free(20_000_000, 0x1000)])], watermark=20_000_000)
    trace.exit(1, 21_000_000)
    trace.end(1, 22_000_000)
    path, db = t.path("hand.tmk"), t.path("hand.db")
    trace.save(path)
    t.run([os.path.join(t.build, "bin/tidemark"), "import", "-q", path, "-o", db], status=0)

    def rows(sql):
        return sqlite3.connect(db).execute(sql).fetchall()
    t.equal(rows("select function, short_lived_count, short_lived_bytes, same_size_count, mean_life_duration_ns from churn where heap = 'malloc' order by 1"),
            [("a", 2, 400, 1, (1000 + 1000 + 19_997_000) // 3), ("b", 1, 600, 0, (999 + 8_993_999) // 2)], "churn")
    t.equal(rows("select function, realloc_count, reallocated_bytes, longest_chain_count from realloc_site"), [("b", 2, 1300, 2)], "reallocations")
    t.equal(rows("select heap, function, slack_bytes from oversized_site where function = 'a' order by 1"), [("cuda:0", "a", 8), ("malloc", "a", 12)], "slack")
    t.equal(rows("select from_bytes, to_bytes, allocations, allocated_bytes from size_histogram where heap = 'malloc'"),
            [(32, 63, 1, 50), (64, 127, 2, 200), (256, 511, 1, 300), (512, 1023, 2, 1300)], "sizes")
    t.equal(rows("select from_duration_ns, to_duration_ns, frees, freed_bytes from lifetime_histogram where heap = 'malloc'"),
            [(512, 1023, 3, 1000), (1 << 23, (1 << 24) - 1, 1, 700), (1 << 24, (1 << 25) - 1, 1, 100)], "lifetimes")
    t.equal(rows("select tid, ts_ns, live_bytes, live_count, allocations, live_at_end_bytes from thread_peak order by tid"),
            [(71, 6001, 800, 2, 5, 0), (72, 7000, 50, 1, 1, 50)], "threads")
    t.equal(rows("select rank, ts_ns, live_bytes, live_count from rank_peak"), [(3, 7000, 850, 3)], "ranks")
    t.equal(rows("select device, ts_ns, live_bytes, live_at_end_bytes from device_peak"), [(0, 9_500_000, 400, 400)], "devices")
    t.equal(rows("select live_bytes, second_bytes, near_peak_duration_ns from peak_shape where heap = 'malloc'"), [(850, None, 9_000_000 - 7000)], "shape")
    t.equal(rows("select function, live_bytes, peak_share from peak_lever order by live_bytes desc"), [("b", 750, 0.8824), ("a", 100, 0.1176)], "levers")


@test
def the_shape_of_no_peak(t):
    """Of a process that allocated nothing, and of a heap whose blocks are empty, no level is near the highest."""
    trace = Trace()
    for n in (1, 2):
        trace.process(n, pid=6 + n)
        trace.thread(n, process=n)
    trace.events(2, [malloc(1000, 0x1000, 0, trace.stack("main", "a"))], watermark=5000)
    for n in (1, 2):
        trace.exit(n, 9_000_000)
        trace.end(n, 9_000_000)
    db = t.imported(trace.save(t.path("nil.tmk")))
    rows = db.rows("select process_id, live_bytes, second_bytes, near_peak_duration_ns from peak_shape")
    t.equal(sorted({row[0] for row in rows}), [1, 2], "both have a row")
    t.equal([row for row in rows if row[1:] != (0, None, 0)], [], "shapes")


@test
def gaps_by_hand(t):
    """A reading of the mappings: files 3000, stacks 200, shared 100; anonymous 2500 of which 1000 are live; 6500 resident, 300 of them ours. What a device
    has is no part of that."""
    trace = Trace()
    trace.process(1, pid=7)
    trace.thread(1, process=1)
    a = trace.stack("main", "a")
    trace.sample(1, 500, rss=1000, tool_rss=100)
    trace.heap(1, 1, "cuda:0", "device", device=0)
    other = trace.stack("main", "other")
    trace.events(1, [malloc(1000, 0x1000, 1000, a), malloc(1100, 0x9000, 5000, other, op="heap_alloc", heap=1)], watermark=2500)
    trace.sample(1, 2000, rss=6500, tool_rss=300, rss_heap=1000, rss_arenas=500, rss_anonymous=1000, rss_stacks=200, rss_files=3000, rss_shared=100)
    trace.exit(1, 2500)
    trace.end(1, 3000)
    path, db = t.path("gap.tmk"), t.path("gap.db")
    trace.save(path)
    t.run([os.path.join(t.build, "bin/tidemark"), "import", "-q", path, "-o", db], status=0)
    base = sqlite3.connect(db)
    t.equal(base.execute("select ts_ns, gap_bytes, file_bytes, stack_bytes, shared_bytes, retained_bytes, unknown_bytes, arena_bytes from memory_gap_part").fetchall(),
            [(2000, 5200, 3000, 200, 100, 1500, 400, 500)], "parts")
    t.equal(base.execute("select from_ns, ts_ns, change_bytes, function, allocated_bytes from memory_gap_jump").fetchall(), [(500, 2000, 4300, "a", 1000)], "jumps")


@test
def jumps_by_hand(t):
    """Nothing is live, so the gap is what is resident: 1000, 7000, 500, 600. The largest change comes first, whichever way it goes."""
    trace = Trace()
    trace.process(1, pid=7)
    trace.thread(1, process=1)
    for n, rss in enumerate((1000, 7000, 500, 600)):
        trace.sample(1, 1000 * (n + 1), rss=rss, tool_rss=0)
    trace.events(1, [malloc(100, 0x1000, 10, trace.stack("main", "a")), free(200, 0x1000)], watermark=4500)
    trace.exit(1, 5000)
    trace.end(1, 6000)
    path, db = t.path("jumps.tmk"), t.path("jumps.db")
    trace.save(path)
    t.run([os.path.join(t.build, "bin/tidemark"), "import", "-q", path, "-o", db], status=0)
    t.equal(sqlite3.connect(db).execute("select ts_ns, change_bytes from memory_gap_jump").fetchall(), [(3000, -6500), (2000, 6000), (4000, 100)], "jumps")


@test
def windows_in_which_nothing_happens(t):
    """What was live when the window opened is its peak, and no freed block is in it."""
    trace = Trace()
    trace.process(1, pid=7)
    trace.thread(1, process=1)
    a = trace.stack("main", "a")
    trace.events(1, [malloc(1000, 0x1000, 100, a), malloc(1100, 0x2000, 900, a), free(1200, 0x2000), free(20000, 0x1000), malloc(30000, 0x3000, 7, a)], watermark=30000)
    trace.exit(1, 40000)
    trace.end(1, 50000)
    path, db = t.path("quiet.tmk"), t.path("quiet.db")
    trace.save(path)
    t.run([os.path.join(t.build, "bin/tidemark"), "import", "-q", path, "-o", db], status=0)
    for first, last, wanted in ((5000, 6000, 100), (1201, 1300, 100), (1150, 1300, 1000), (19000, 19999, 100), (21000, 22000, 0), (30500, 30600, 7)):
        rows = ask(t, db, "peak", f"--from={first}ns", f"--to={last}ns", "--heap=malloc")
        t.equal(sum(r["live_bytes"] for r in rows), wanted, f"the peak from {first} to {last}")


@test
def windows_that_open_with_several_changes(t):
    """A window whose highest level is that at its first instant, at which the middle of a mapping is replaced, or a block of no bytes gets another in its place: the
    peak has all the blocks and parts that are live then, replayed, by SQL, and without checkpoints. The timeline keeps no row of the second instant."""
    page, f = 4096, 1
    cases = [([mmap(1_000_000, 0x100000, 5 * page, f), malloc(1_600_000, 0x2000, 10, f), mmap(2_000_000, 0x102000, page, f, op="mmap_file")],
              "2ms", {"mmap": (4 * page, 2), None: (4 * page + 10, 3)}),
             ([malloc(1_500_000, 0x1000, 0, f), malloc(1_600_000, 0x2000, 10, f), malloc(2_999_500, 0x3000, 20, f), free(2_999_800, 0x3000),
               realloc(3_000_000, 3_000_000, 0x1000, 0x1000, 0, f), malloc(3_000_200, 0x3000, 1, f)], "3ms", {"malloc": (10, 2), None: (10, 2)})]
    for events, at, wanted in cases:
        trace = Trace()
        trace.process(1, pid=7)
        trace.thread(1, process=1)
        t.equal(trace.stack("main"), f, "the stack")
        trace.events(1, events, watermark=4_000_000)
        trace.exit(1, 5_000_000)
        trace.end(1, 5_000_000)
        for db in two_databases(t, trace.save(t.path(f"{at}.tmk"))):
            options = ("peak", f"--from={at}", f"--to={at}")
            sql = t.ask(options[0], db, *options[1:], "--format=json", "--sql").text
            for said in (ask(t, db, *options), ask(t, db, "query", sql)):
                peaks = {row["heap"]: (row["live_bytes"], row["live_count"]) for row in said}
                t.equal({heap: peaks[heap] for heap in wanted}, wanted, f"at {at}")
        os.remove(t.path("checkpoints.db"))


@test
def kept_instants_of_equal_times(t):
    """What a mark, a snapshot, a step or a scope keeps at an instant is what the rows say of it, where another thread allocates or frees in that nanosecond:
    alloc_ns <= ns < free_ns, whichever thread's number is lower."""
    for first in (1, 2):
        trace = Trace()
        trace.process(1, pid=7)
        for thread in (1, 2):
            trace.thread(thread, process=1)
        a, name = trace.stack("main"), trace.string("here")
        looks = [mark(1000, name), text("snapshot", 2000, name), step(3000, 1), step(4000, 2), scope("scope_push", 5000, name), malloc(5500, 0xA000, 3, a),
                 scope("scope_end", 6000)]
        blocks = [malloc(500, 0x9000, 7, a), free(1000, 0x9000)] + [malloc(ns, 0x1000 * n, 10 ** n, a) for n, ns in enumerate(range(2000, 7000, 1000))]
        blocks.insert(2, malloc(1001, 0x8000, 5, a))
        trace.segments([(first, looks), (3 - first, blocks)])
        trace.exit(1, 8000)
        trace.end(1, 9000)
        db = t.imported(trace.save(t.path("equal.tmk")), options=("--quiet", "--force"))

        def live(ns):
            return db.value("select coalesce(sum(size_bytes), 0) from allocation where alloc_ns <= ? and (free_ns is null or free_ns > ?)", ns, ns)
        t.equal([live(ns) for ns in range(1000, 7000, 1000)], [0, 6, 16, 116, 1116, 11119], "what is live")
        for label, ns in (("mark:here", 1000), ("here", 2000)):
            t.equal(db.rows("select ts_ns, live_bytes from snapshot where label = ?", label), [(ns, live(ns))], f"{label}, looking: thread {first}")
        t.equal(db.rows("select live_begin_bytes, live_end_bytes from step_total where heap is null and n = 1"), [(live(3000), live(4000))], "a step")
        t.equal(dict(db.rows("select phase, live_bytes from scope_snapshot where phase in ('before', 'after')")), {"before": live(5000), "after": live(6000)}, "a scope")


@test
def windows_between_steps(t):
    """Steps bound a window as times do, also one whose level has to be put together by SQL (--sql), and the query that is printed runs: 100 live in the
    first step, 100 + 900 in the second, 7 in the third."""
    trace = Trace()
    trace.process(1, pid=7)
    trace.thread(1, process=1)
    a = trace.stack("main", "a")
    trace.events(1, [step(500, 1), malloc(1000, 0x1000, 100, a), step(2000, 2), malloc(3000, 0x2000, 900, a), free(4000, 0x1000), free(4100, 0x2000), step(5000, 3),
                     malloc(6000, 0x3000, 7, a)], watermark=7000)
    trace.exit(1, 8000)
    trace.end(1, 9000)
    path, db = t.path("steps.tmk"), t.path("steps.db")
    trace.save(path)
    t.run([os.path.join(t.build, "bin/tidemark"), "import", "-q", path, "-o", db], status=0)
    for n, wanted in ((1, 100), (2, 1000), (3, 7)):
        window = ("peak", "--heap=malloc", f"--from=step:{n}", f"--to=step-end:{n}")
        rows = ask(t, db, *window)
        t.equal([row["live_bytes"] for row in rows], [wanted], f"the peak of step {n}")
        printed = t.ask(window[0], db, *window[1:], "--sql").text
        t.equal(json.loads(t.run([t.tidemark, "query", db, "-", "--format=json"], input=printed.encode(), status=0).text), rows, "what --sql prints")


@test
def scopes_of_a_process_without_heaps(t):
    """The second process opens two scopes and never allocates. A window lists those opened in it, its edges included; so do windows open to one side."""
    trace = Trace()
    for n in (1, 2):
        trace.process(n, pid=10 + n)
        trace.thread(n, process=n)
    a, name = trace.stack("main", "a"), trace.string("idle")
    trace.segments([(1, [scope("scope_push", 1000, name), malloc(1500, 0x1000, 100, a), scope("scope_end", 2000)]),
                    (2, [scope("scope_push", 3000, name), scope("scope_end", 4000), scope("scope_push", 5000, name), malloc(5500, 0xA000, 3, a),
                 scope("scope_end", 6000)])], watermark=7000)
    for n in (1, 2):
        trace.exit(n, 8000)
        trace.end(n, 9000)
    db = t.imported(trace.save(t.path("idle.tmk"))).path
    for window, wanted in (("--from=1us --to=3us", [(1, 1000), (2, 3000)]), ("--from=3001ns --to=5us", [(2, 5000)]), ("--from=2us", [(2, 3000), (2, 5000)]),
                           ("--to=4us", [(1, 1000), (2, 3000)])):
        t.equal([(row["process_id"], row["start_ns"]) for row in ask(t, db, "scopes", *window.split())], wanted, window)


@test
def a_page_about_one_process(t):
    """What another process lost, noted and marked as a step has no place on it, and no page begins where its order is refused."""
    trace = Trace()
    for n in (1, 2):
        trace.process(n, pid=10 + n)
        trace.thread(n, process=n)
    a = trace.stack("main", "a")
    trace.segments([(1, [step(500, 1), malloc(1000, 0x1000, 100, a), free(2000, 0x9000)]), (2, [malloc(1000, 0x1000, 20, a)])], watermark=3000)
    trace.note(1, 2500, "strange", "a note of the first")
    for n in (1, 2):
        trace.exit(n, 8000)
        trace.end(n, 9000)
    db = t.imported(trace.save(t.path("two.tmk")))
    pages = [t.ask("summary", db.path, f"--process={n}").text for n in (1, 2)]
    for part in ("lost: ", "unmatched-free", "a note of the first", "steps, those"):
        t.equal([part in page for page in pages], [True, False], part)
    t.equal(t.ask("summary", db.path, "--sort=nonsense", status=2).out, b"", "a page that is refused")


@test
def a_stretch_has_the_highest_level_that_it_has(t):
    """Also where that was reached before and nothing changes in it. Independently: the level at the begin of each stretch, by the rows before it, and those inside.
    Stretches are whole buckets, shared out as evenly as they can be."""
    db, _ = two_databases(t, big_trace(t, "a.tmk", 20_000, 1_000, 30, 2, 100, 50))
    rows = sqlite3.connect(db).execute("select heap, ts_ns, live_bytes, live_count from memory_timeline order by ts_ns").fetchall()
    start, end = sqlite3.connect(db).execute("select start_ns, end_ns from process").fetchone()
    width = next(1024 << n for n in range(60) if (end - start) // (1024 << n) < 2048)
    first, last = ((ns - start) // width for ns in (rows[0][1], rows[-1][1]))
    buckets = last - first + 1
    t.check(100 < buckets < 9000, f"{buckets} buckets")
    for n in (1, 7, 100, 9000):
        stretches, wanted = min(n, buckets), []
        for heap in sorted({r[0] for r in rows}, key=str):
            of = [r for r in rows if r[0] == heap]
            for k in range(stretches):
                begin, after = (start + (first + -(-i * buckets // stretches)) * width for i in (k, k + 1))
                begin = max(begin, rows[0][1])
                levels = [r for r in of if begin <= r[1] < after]
                earlier = [r for r in of if r[1] < begin]
                if not any(r[1] == begin for r in levels):
                    levels = [(heap, begin, *e[2:]) for e in earlier[-1:]] + levels
                if levels:
                    wanted.append(max(levels, key=lambda r: (r[2], -r[1]))[:3])
        got = [(r["heap"], r["ts_ns"], r["live_bytes"]) for r in ask(t, db, "timeline", f"--buckets={n}")]
        t.equal(collections.Counter(got) == collections.Counter(wanted), True, f"{n} stretches: {got[:3]}, expected {wanted[:3]}")
    few = t.ask("timeline", db, "--heap=malloc", "--limit=5").text.splitlines()
    t.equal(len(few), 6, "as many stretches as rows are asked for")
    high = t.ask("timeline", db, "--heap=malloc", "--sort=live_bytes", "--limit=3").text.splitlines()[1:]
    most = max(r[2] for r in rows if r[0] == "malloc")
    t.equal(len(high), 3, "sorted rows")
    t.equal(ask(t, db, "timeline", "--heap=malloc", "--sort=live_bytes", "--limit=1")[0]["live_bytes"], most, "the first of the sorted rows")
    # As the help says: a table with all rows is of the whole process alone, or of the heap that was chosen; JSON has the heaps, too.
    t.check("A table has those of the whole process, or of the heap that --heap names" in " ".join(t.run([t.tidemark, "timeline", "--help"], status=0).text.split()), "help")
    for options, wanted in ((("--limit=0",), None), (("--limit=0", "--heap=malloc"), "malloc"), (("--sort=ts_ns", "--limit=100000"), None)):
        t.equal(len(t.ask("timeline", db, *options).text.splitlines()) - 1, sum(r[0] == wanted for r in rows), f"rows of a table: {options}")
    t.equal(len(ask(t, db, "timeline")), len(rows), "rows of JSON")


@test
def sums_beyond_what_can_be_held(t):
    """70,000 temporary blocks of 2^47 bytes are 2^63 and more: the most that SQLite can hold, of the whole run as of a window, with checkpoints, without, and in
    the query that --sql prints. A sum that just fits is exact."""
    size, most = 1 << 47, (1 << 63) - 1
    for name, count, last, wanted in (("more.tmk", 70_000, 100, most), ("less.tmk", 65_535, size - 5, most - 4)):
        trace = Trace()
        trace.process(1, pid=10)
        trace.thread(1, process=1)
        main, sizes = trace.stack("main"), [size] * count + [last]
        trace.events(1, [e for n, size_bytes in enumerate(sizes) for e in (malloc(10 * n + 1000, 0x1000, size_bytes, main), free(10 * n + 1005, 0x1000))],
                     watermark=10**7)
        trace.exit(1, 10**7)
        trace.end(1, 10**7)
        for db in two_databases(t, trace.save(t.path(name))):
            for window in ([], ["--from=start"]):
                t.equal([(r["count"], r["bytes"]) for r in ask(t, db, "temporary", *window)], [(count + 1, wanted)], f"{name}: {db} {window}")
                for value in "allocated", "temporary":
                    said = t.ask("export", "folded", db, f"--value={value}", "-o", "-", *window).text
                    t.equal(said, f"main {wanted}\n", f"{name}: {db} {value} {window}")
            query = t.ask("temporary", db, "--from=start", "--sql").text
            t.equal(sqlite3.connect(db).execute(query).fetchall()[0][3:5], (count + 1, wanted), f"{name}: {db}, of the query that is printed")
            os.remove(db)
    t.ask("export", "pprof", t.imported(t.path("more.tmk")).path, "-o", t.path("more.pb.gz"), "--from=start")


main()
