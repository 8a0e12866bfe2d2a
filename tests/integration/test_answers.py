"""Questions about instants and windows: answers that come from checkpoints are those of a scan over all allocations.

Method: a trace long enough to have checkpoints is imported twice, and the checkpoints of one copy are deleted, so that the commands fall back to reading
every allocation. Both must say the same, at random instants (the seed is printed) and at the edges. Totals are also held against SQL over `allocation`.
"""
import json
import os
import random
import shutil
import sqlite3

from tidemark_test import main, test
from trace_writer import Trace, free, malloc, mmap, munmap, realloc

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
    one, other = two_databases(t, big_trace(t, "a.tmk", 800_000, 6_000, 300, 3, 100, 50))
    db = sqlite3.connect(one)
    checkpoints = db.execute("select ts_ns, has_stacks from checkpoint order by id").fetchall()
    t.check(len(checkpoints) >= 4 and any(kept for _, kept in checkpoints), f"checkpoints: {checkpoints}")
    end = db.execute("select max(end_ns) from process").fetchone()[0]
    seed = random.randrange(1 << 30)
    print("seed", seed)
    dice = random.Random(seed)
    ts = [c[0] for c in checkpoints]
    instants = [dice.randrange(end) for _ in range(2)] + [ts[2], ts[2] - 1, end]
    for n, at in enumerate(instants):
        for by in GROUPS if n < 1 else ("stack", dice.choice(GROUPS[5:])):
            rows = compare(t, one, other, "snapshot", "--at", f"{at}ns", f"--by={by}")
            expected = db.execute("select coalesce(sum(size_bytes), 0), count(*) from allocation join process p on p.id = process_id where alloc_ns <= :t "
                                  "and (free_ns is null or free_ns > :t) and :t <= p.end_ns", {"t": at}).fetchone()
            t.equal((sum(r["live_bytes"] for r in rows), sum(r["live_count"] for r in rows)), expected, f"live at {at} by {by}")
    a, b = sorted(instants[:2])
    for by in ("stack", "function", "size"):
        rows = compare(t, one, other, "snapshot", "--at", f"{b}ns", "--against", f"{a}ns", f"--by={by}")
        live = [sum(r["live_bytes"] for r in ask(t, one, "snapshot", "--at", f"{x}ns")) for x in (a, b)]
        t.equal(sum(r["change_bytes"] for r in rows), live[1] - live[0], "change")
        t.equal(all(r["change_bytes"] == r["live_bytes"] - r["against_bytes"] for r in rows), True, "rows of the change")
    compare(t, one, other, "snapshot", "--at", f"{b}ns", "--from", f"{a}ns")
    for first, last in ((a, b), (a, a + 1000), (ts[1], end)):
        compare(t, one, other, "peak", "--from", f"{first}ns", "--to", f"{last}ns")
        compare(t, one, other, "peak", "--sites", "--from", f"{first}ns", "--to", f"{last}ns")
    t.equal(compare(t, one, other, "peak", "--from=start", "--to=end")[0]["live_bytes"], db.execute("select max(live_bytes) from peak").fetchone()[0], "the peak")


def mixed_trace(t, seed, batch=4096, batches=70):
    """Blocks, reallocations and mappings that are given back in parts, on two threads: 287,000 events and more."""
    dice, trace, ns = random.Random(seed), Trace(), 1000
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
            elif roll < 0.006 and mappings:
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
    path, end = mixed_trace(t, seed)
    one, other = two_databases(t, path)
    for at in (dice.randrange(end), dice.randrange(end), end):
        for by in ("stack", "size", "heap"):
            compare(t, one, other, "snapshot", "--at", f"{at}ns", f"--by={by}")
    a, b = sorted(dice.randrange(end) for _ in range(2))
    compare(t, one, other, "snapshot", "--at", f"{b}ns", "--against", f"{a}ns")
    for first, last in ((a, b), (a, a + 5000), (0, end)):
        compare(t, one, other, "peak", "--from", f"{first}ns", "--to", f"{last}ns")
        compare(t, one, other, "peak", "--sites", "--from", f"{first}ns", "--to", f"{last}ns")


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
    compare(t, one, other, "peak", "--from=2ms", "--to=15ms")


main()
