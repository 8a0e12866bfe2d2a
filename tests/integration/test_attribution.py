"""Whose memory it is: scopes, steps and their sums, against figures worked out by hand and against scope_oracle.py on random stories.

Method: trace_writer.py writes the events, `tidemark import` makes the database, the views are compared row by row. No recorder is needed.
"""
import json
import os
import random
import re
import sqlite3

from scope_oracle import Story
from tidemark_test import main, test
from trace_writer import FORKED, Trace, free, malloc, mmap, munmap, realloc, scope, step, text, v

HEAPS = ("malloc", "torch.cpu", "pool")
INSTANCE = ("scope_id, heap, self_allocated_bytes, total_allocated_bytes, self_freed_bytes, total_freed_bytes, self_allocations, total_allocations, self_frees, "
            "total_frees, own_freed_bytes, retained_bytes, peak_bytes, peak_growth_bytes, peak_own_bytes")
TOTAL = "process_id, heap, name, category, calls, duration_ns, " + INSTANCE.split(", ", 2)[2]


class Writer:
    """A trace of processes with the heaps malloc, torch.cpu and pool."""

    def __init__(self, story):
        self.trace, self.story, self.heaps = Trace(), story, {}
        for id, process in story.processes.items():
            about = process.about
            self.trace.process(id, pid=100 + id, parent=about.get("parent", 0), start=about["start"], flags=about.get("flags", 0))
            for name, kind, parent in (("malloc", "host", None), ("torch.cpu", "torch", "malloc"), ("pool", "pool", "malloc")):
                self.heaps[id, name] = len(self.heaps) + 1
                self.trace.heap(self.heaps[id, name], id, name, kind, parent=self.heaps.get((id, parent), 0))
        for id, thread in story.threads.items():
            self.trace.thread(id, process=thread["process"], start=0)
        self.stack = self.trace.stack("main")

    def event(self, ns, thread, op, values):
        process, t = self.story.threads[thread]["process"], self.trace
        explicit = {name: 0 if name == "malloc" else self.heaps[process, name] for name in HEAPS}
        if op in ("push", "block", "range"):
            name, category, key, link = values
            return scope("scope_" + op, ns, t.string(name), t.string(category) if category else 0, key, link)
        if op in ("end", "exception"):
            key, category = values
            return scope("scope_" + op, ns, 0, t.string(category) if category else 0, key)
        if op == "step":
            return step(ns, *values)
        if op == "alloc":
            heap, address, size = values
            if heap == "mmap":
                return mmap(ns, address, size, self.stack)
            return malloc(ns, address, size, self.stack, op="malloc" if heap == "malloc" else "heap_alloc", heap=explicit[heap])
        if op == "free":
            heap, address = values
            if heap == "mmap":
                return munmap(ns, ns, address, 4096)
            return free(ns, address, op="free" if heap == "malloc" else "heap_free", heap=explicit[heap])
        if op == "realloc":
            begin, heap, old, address, size = values
            return realloc(begin, ns, old, address, size, self.stack)
        return text(op, ns)

    def write(self, path, chunk=50):
        events = self.story.events
        lines = [(ns, thread, self.event(ns, thread, op, values)) for ns, thread, op, values in events]
        self.trace.flush_stacks()
        for first in range(0, len(lines), chunk):
            part = lines[first:first + chunk]
            segments = {}
            for _, thread, event in part:
                segments.setdefault(thread, []).append(event)
            later = lines[first + chunk:]
            watermark = min((e.get("begin", e["time"]) for _, _, e in later), default=0)
            self.trace.segments(list(segments.items()), watermark=watermark)
        for id, thread in self.story.threads.items():
            if thread["end"] is not None:
                self.trace.meta(self.trace.record(7, v(id) + v(thread["end"])))
        for id, process in self.story.processes.items():
            if process.about["exit"] is not None:
                self.trace.exit(id, process.about["exit"])
            self.trace.end(id, process.about["end"], kind=1 if process.about["exit"] is not None else 2, code=0 if process.about["exit"] is not None else 9)
        return self.trace.save(path)


def one_process(*, exit=9000, end=10000, threads=1, ends=None):
    return Story({1: dict(start=0, exit=exit, end=end)}, {id: dict(process=1, end=(ends or {}).get(id)) for id in range(1, threads + 1)}, HEAPS)


def database(t, story, name="run"):
    path = Writer(story).write(t.path(f"{name}.tmk"))
    return t.imported(path, options=("--quiet", "--force"))


def compare(t, db, story, what):
    """Every view against the oracle."""
    def equal(got, wanted, about):
        differing = [(g, w) for g, w in zip(got, wanted) if g != w][:2]
        t.check(got == wanted, f"{about}: {len(got)} rows, expected {len(wanted)}; first difference (got, expected): {differing}\n"
                f"only got: {[g for g in got if g not in wanted][:3]}\nonly expected: {[w for w in wanted if w not in got][:3]}")

    story.play()
    equal(db.rows("select id, parent_id, process_id, thread_id, name, category, start_ns, end_ns, end_kind, depth, forward_scope_id from scope where id > 0 "
                    "order by id"), story.scope_rows(), f"scopes, {what}")
    equal(db.rows(f"select {INSTANCE} from scope_instance where heap is not null order by scope_id, heap"), story.instance_rows(), f"instances, {what}")
    equal(sorted(db.rows(f"select {TOTAL} from scope_total"), key=str), story.total_rows(), f"totals, {what}")
    equal(db.rows("select o.scope_id, o.later_scope_id, h.name, o.allocated_bytes, o.freed_bytes, o.retained_bytes from scope_overlap o "
                  "join heap h on h.id = o.heap_id order by 1, 2, 3"),
            story.overlap_rows(), f"what two of a name did, {what}")
    equal(sorted(db.rows("select distinct process_id, name, category, calls, outermost_calls, calls_ns from scope_aggregate where calls > 0"), key=str),
            story.call_rows(), f"calls, {what}")
    equal(sorted(db.rows("select alloc_ns, scope_id, free_ns, free_scope_id from allocation"), key=str), sorted(story.allocations, key=str),
            f"allocations, {what}")
    equal(sorted(db.rows("select process_id, n, start_ns, end_ns, heap, allocated_bytes, allocations, freed_bytes, frees, survived_bytes, survived_count, "
                           "live_begin_bytes, live_end_bytes, peak_bytes from step_total"), key=str), story.step_rows(), f"steps, {what}")
    equal(sorted(db.rows("select s.scope_id, h.name, s.phase, s.ts_ns, s.live_bytes, s.created, s.deleted from scope_snapshot s join heap h on h.id = s.heap_id"),
                   key=str), story.snapshot_rows(100), f"snapshots, {what}")
    t.equal(dict(db.rows("select process_id, count from loss where kind = 'unmatched-scope-end'")),
            {id: p.unmatched_ends for id, p in story.processes.items() if p.unmatched_ends}, f"ends without a scope, {what}")
    for kind, of in (("scopes-overlap", lambda p: p.overlaps), ("scopes-across-threads", lambda p: p.across)):
        t.equal(dict(db.rows("select process_id, cast(text as integer) from note where kind = ?", kind)),
                {id: of(p) for id, p in story.processes.items() if of(p)}, f"{kind}, {what}")
    t.equal(db.rows("select heap, sum(self_allocated_bytes), sum(self_freed_bytes), sum(self_allocations), sum(self_frees) from scope_total "
                    "where heap is not null group by process_id, heap order by process_id, heap"),
            db.rows("select heap, allocated_bytes, freed_bytes, allocations, frees from heap_summary where heap is not null order by process_id, heap"),
            f"selves add up to the heaps, {what}")


def random_story(seed, length):
    """Threads of one to three processes that open, close, allocate and free at random, much of it in the wrong order."""
    r = random.Random(seed)
    processes, threads = {}, {}
    for p in range(1, r.choice((1, 1, 2, 3)) + 1):
        exit = r.choice((None, length * 10 + 500))
        processes[p] = dict(start=0, exit=exit, end=length * 10 + 1000, parent=1 if p > 1 else 0, flags=FORKED if p > 1 else 0)
        for _ in range(r.choice((1, 1, 2, 4))):
            threads[len(threads) + 1] = dict(process=p, end=None)
    story = Story(processes, threads, HEAPS)
    names, categories = ["a", "b", "a", "c", "aten::add", "ä"], ["user", "torch.op", "torch.backward", "nvtx", "nvtx:d", None]
    live, keys, next_key, next_address, n = {p: [] for p in processes}, {p: [] for p in processes}, 1, 0x10000, 0
    deep = r.random() < 0.3
    ranges = r.random() < 0.5
    first = r.random() < 0.4  # mostly the oldest ends
    if first:
        names = names[:3]
    alive = set(threads)
    ns = 100
    for _ in range(length):
        ns += r.randint(2, 9)
        thread = r.choice(sorted(alive))
        p = threads[thread]["process"]
        dice = r.random()
        if dice < (0.3 if deep else 0.18):
            op = "range" if first and ranges and r.random() < 0.8 else r.choice(("push", "push", "block", "range" if ranges else "push"))
            key = link = 0
            if op != "push":
                key, next_key = (next_key, next_key + 1) if r.random() < 0.95 or not keys[p] else (r.choice(keys[p]), next_key)
                keys[p].append(key)
            if op == "block":
                link = r.choice((0x7000, 0x6000, 0x5000, 0x5800, 0x4000, 0x3000, 0x7000000, 0x7001000)) + r.choice((0, 0, 0, 5 << 48))
            elif op == "range":
                link = r.choice((0, 1, 2, 3))
            category = r.choice(categories)
            if op == "push" and (category or "").startswith("nvtx"):
                link = 1
            story.events.append((ns, thread, op, (r.choice(names), category, key, link)))
        elif dice < 0.36:
            use_key = keys[p] and r.random() < (0.9 if first else 0.5)
            key = keys[p].pop((0 if first else -1) if r.random() < 0.7 else r.randrange(len(keys[p]))) if use_key else 0
            story.events.append((ns, thread, r.choice(("end", "end", "end", "exception")), (key, None if key else r.choice(categories))))
        elif dice < 0.40:
            n += r.choice((1, 1, 1, -3))
            story.events.append((ns, thread, "step", (n,)))
        elif dice < 0.42:
            story.events.append((ns, thread, "baseline", ()))
        elif dice < 0.43 and len(alive) > 1 and thread != min(alive):
            threads[thread]["end"] = ns
            alive.discard(thread)
        elif dice < 0.62 and live[p]:
            heap, address = live[p].pop(-1 if r.random() < 0.4 else r.randrange(len(live[p])))
            if heap == "malloc" and r.random() < 0.3:
                begin, ns = ns, ns + 1
                address_now, next_address = (address, next_address) if r.random() < 0.5 else (next_address, next_address + 0x10000)
                story.events.append((ns, thread, "realloc", (begin, heap, address, address_now, r.randint(0, 500))))
                live[p].append((heap, address_now))
            else:
                story.events.append((ns, thread, "free", (heap, address)))
        else:
            heap = r.choice(("malloc", "malloc", "torch.cpu", "pool", "mmap"))
            size = 4096 if heap == "mmap" else r.randint(0, 1000)
            story.events.append((ns, thread, "alloc", (heap, next_address, size)))
            live[p].append((heap, next_address))
            next_address += 0x10000
    return story


@test
def random_stories(t):
    for seed in range(4000 if t.long else 150):
        story = random_story(seed, 12 + seed % 150)
        compare(t, database(t, story), story, f"seed {seed}")


@test
def random_long_stories(t):
    for seed in range(60 if t.long else 6):
        story = random_story(100000 + seed, 2000)
        compare(t, database(t, story), story, f"seed {100000 + seed}")


# --- worked out by hand

def simple(t, events, *, name="run.tmk", exit=9000, end=10000, prepare=None, threads=1, rank=None, **info):
    """events: [(thread, events of that thread)], strings given by `prepare(trace)` before."""
    trace = Trace(**info)
    trace.process(1, pid=100, rank=rank)
    for id in range(1, threads + 1):
        trace.thread(id, process=1)
    trace.heap(1, 1, "malloc", "host")
    trace.heap(2, 1, "torch.cpu", "torch", parent=1)
    segments = events(trace)
    trace.segments(segments)
    if prepare:
        prepare(trace)
    trace.exit(1, exit)
    trace.end(1, end)
    return t.imported(trace.save(t.path(name)), options=("--quiet", "--force"))


@test
def nested_by_hand(t):
    """outer allocates 100, inner 30 and frees 10 of outer's, later main frees inner's 30: inner's own peak is 30, outer's 130, never 140."""
    def events(trace):
        outer, inner, user, main = trace.string("outer"), trace.string("inner"), trace.string("user"), trace.stack("main")
        return [(1, [malloc(1000, 0x1000, 7, main), scope("scope_push", 2000, outer, user), malloc(2100, 0x2000, 10, main), malloc(2200, 0x3000, 90, main),
                     scope("scope_push", 3000, inner, user), free(3100, 0x2000), malloc(3200, 0x4000, 30, main), scope("scope_end", 3300, 0, user),
                     scope("scope_end", 4000, 0, user), free(5000, 0x4000)])]
    db = simple(t, events)
    t.equal(db.rows(f"select name, calls, duration_ns, {INSTANCE.split(', ', 2)[2]} from scope_total order by name"),
            [("[unscoped]", None, None, 7, 7, 30, 30, 1, 1, 1, 1, 0, 7, 127, 127, 7),
             ("inner", 1, 300, 30, 30, 10, 10, 1, 1, 1, 1, 30, 30, 127, 20, 30),
             ("outer", 1, 2000, 100, 130, 0, 10, 2, 3, 0, 1, 40, 120, 127, 120, 120)], "totals")
    t.equal(db.rows("select self_net_bytes, total_net_bytes from scope_total where name = 'outer'"), [(100, 120)], "net")
    t.equal(db.rows("select size_bytes, scope_id, free_scope_id from allocation order by alloc_ns"), [(7, 0, None), (10, 1, 2), (90, 1, None), (30, 2, 0)],
            "scopes of the blocks")
    t.equal(db.rows("select phase, ts_ns, live_bytes, created, deleted from scope_snapshot where scope_id = 2"),
            [("baseline", 0, 0, None, None), ("before", 3000, 107, 3, 0), ("peak", 3200, 127, 1, 1), ("after", 3300, 127, 0, 0)], "looks around inner")
    t.equal(db.row("select calls, mean_duration_ns, mean_allocated_bytes, mean_peak_growth_bytes, net_bytes from scope_summary where name = 'outer'"),
            (1, 2000, 130, 120, 120), "means")


@test
def begun_before_a_window(t):
    """Of before 1000 only what was live then is there: 1000 of before all, 500 of `long` and 64 of `gone`. From 1564 on levels are known; so many scopes of 8
    bytes come that what nobody asks for is dropped on the way; `short` has seen none of it."""
    window, many = 1000, 1000
    def events(trace):
        long, gone, short, tiny, main = *(trace.string(name) for name in ("long", "gone", "short", "tiny")), trace.stack("main")
        out = [malloc(100, 0x1000, 1000, main), scope("scope_push", 200, long), step(250, 0), malloc(300, 0x2000, 500, main), scope("scope_push", 400, gone),
               malloc(450, 0x3000, 64, main), scope("scope_end", 500), free(1000, 0x1000)]
        for ns in range(1010, 1010 + 4 * many, 4):
            out += [scope("scope_push", ns, tiny), malloc(ns + 1, 0x9000, 8, main), free(ns + 2, 0x9000), scope("scope_end", ns + 3)]
        return [(1, out + [malloc(6100, 0x4000, 300, main), scope("scope_push", 6150, short), malloc(6200, 0x5000, 900, main), free(6300, 0x5000),
                           scope("scope_end", 6350), scope("scope_end", 6400), step(6500, 1), free(6600, 0x2000)]),
                (2, [scope("scope_push", 220, long)])]
    db = simple(t, events, threads=2, window_start_ns=window)
    t.equal(db.rows("select name, thread_id, peak_bytes, peak_growth_bytes, retained_bytes from scope_instance where name <> 'tiny' and heap is not null"
                    " order by start_ns"),
            [("long", 1, 1764, 200, 864), ("gone", 1, 1564, 0, 64), ("short", 1, 1764, 900, 0)], "scopes")
    t.equal(db.row("select count(*), min(peak_growth_bytes), max(peak_growth_bytes) from scope_instance where name = 'tiny'"), (many, 8, 8), "tiny ones")
    t.equal(db.rows("select phase, ts_ns, live_bytes, live_count from scope_snapshot where scope_id = 1"),
            [("baseline", 0, 0, 0), ("before", window, 1564, 3), ("peak", 6200, 1764, 4), ("after", 6400, 864, 3)], "looks around long")
    steps = ("n, allocated_bytes, allocations, freed_bytes, frees, net_bytes, live_begin_bytes, live_end_bytes, peak_bytes, peak_growth_bytes, survived_bytes,"
             " survived_count")
    for heap in ("malloc", None):
        t.equal(db.rows(f"select {steps} from step_total where heap is ? order by n", heap),
                [(0, 1200 + 8 * many, 2 + many, 1900 + 8 * many, 2 + many, -700, 1564, 864, 1764, 200, 864, 3), (1, 0, 0, 500, 1, -500, 864, 364, 864, 0, 0, 0)],
                f"steps of {heap}")


@test
def recursion_counts_once(t):
    """f inside f inside f: three calls, one duration, 60 bytes in total and not 110."""
    def events(trace):
        f, main, out = trace.string("f"), trace.stack("main"), []
        for level in range(3):
            out += [scope("scope_push", 1000 + level * 100, f), malloc(1050 + level * 100, 0x1000 * (level + 1), (10, 20, 30)[level], main)]
        return [(1, out + [scope("scope_end", 2000 + level * 100) for level in range(3)])]
    db = simple(t, events)
    t.equal(db.row("select calls, duration_ns, self_allocated_bytes, total_allocated_bytes, retained_bytes, peak_own_bytes from scope_total where name = 'f'"),
            (3, 1200, 60, 60, 60, 60), "f")
    t.equal(db.rows("select total_allocated_bytes from scope_instance order by scope_id"), [(60,), (50,), (30,)], "its calls")


@test
def what_takes_the_place_of_a_live_block(t):
    """The block that was there ends first: at no time were both live, nor is what another thread's free was stamped just before. 100 bytes in `inner`, never more."""
    def events(trace):
        outer, inner, main = trace.string("outer"), trace.string("inner"), trace.stack("main")
        return [(1, [scope("scope_push", 1000, outer), malloc(1100, 0x1000, 70, main), scope("scope_push", 1200, inner),
                     *(malloc(1300 + i, 0x1000, 100, main) for i in range(3)), malloc(2000, 0x9000, 500, main), scope("scope_end", 3000), scope("scope_end", 4000)]),
                (2, [free(1990, 0x9000)])]
    db = simple(t, events, threads=2)
    t.equal(db.rows("select alloc_ns, free_ns from allocation where size_bytes = 500"), [(2000, 2000)], "what was freed at once")
    t.equal(db.rows("select total_allocated_bytes, retained_bytes, peak_bytes, peak_own_bytes from scope_instance order by scope_id"),
            [(870, 100, 100, 100), (800, 100, 100, 100)], "outer, inner")


@test
def frames_one_after_the_other(t):
    """Each begins before the last one ends: 1000 bytes and a millisecond or so of each, side by side in run, none inside another."""
    def events(trace):
        run, frame, main, out = trace.string("run"), trace.string("frame"), trace.stack("main"), [scope("scope_push", 500, trace.string("run"))]
        for i in range(3):
            at = 1000 * (i + 1)
            out += [scope("scope_range", at, frame, 0, i + 1), *([scope("scope_end", at + 10, key=i)] if i else []), malloc(at + 100, at << 8, 1000, main)]
        del run
        return [(1, out + [scope("scope_end", 4000, key=3), scope("scope_end", 5000)])]
    db = simple(t, events)
    t.equal(db.rows("select id, parent_id, depth, end_ns - start_ns from scope where id > 0 order by id"), [(1, None, 0, 4500), (2, 1, 1, 1010), (3, 1, 1, 1010),
                                                                                                           (4, 1, 1, 1000)], "scopes")
    t.equal(db.rows("select self_allocated_bytes, total_allocated_bytes, retained_bytes, peak_own_bytes from scope_instance order by scope_id"),
            [(0, 3000, 3000, 3000)] + [(1000, 1000, 1000, 1000)] * 3, "instances")
    t.equal(db.row("select calls, duration_ns, total_allocated_bytes, retained_bytes, peak_own_bytes from scope_total where name = 'frame'"),
            (3, 3000, 3000, 3000, 1000), "by name")
    t.equal(db.row("select mean_duration_ns, mean_allocated_bytes from scope_summary where name = 'frame'"), (3020 // 3, 1000), "means")
    t.equal(db.rows("select * from scope_overlap"), [], "what two of them did")
    tree = json.loads(t.run([t.tidemark, "scopes", db.path, "--tree", "--format=json"], status=0).out)
    t.equal([(r["name"], r["depth"], r["calls"], r["total_allocated_bytes"], r["retained_bytes"]) for r in tree if r["name"] != "[unscoped]"],
            [("run", 0, 1, 3000, 3000), ("frame", 1, 3, 3000, 3000)], "tree")


@test
def overlapping_and_of_one_name(t):
    """1 is open from 1000 to 3000, 2 from 2000 to 4000, 3 from 3500 to 5000: 20 and 3 bytes belong to 1 and to 2, and to their name once."""
    def events(trace):
        a, inner, main = trace.string("a"), trace.string("in"), trace.stack("main")
        return [(1, [scope("scope_range", 1000, a, 0, 1), malloc(1100, 0x1000, 100, main), scope("scope_range", 2000, a, 0, 2), malloc(2100, 0x2000, 20, main),
                     scope("scope_push", 2200, inner), malloc(2250, 0x3000, 3, main), scope("scope_end", 2300), scope("scope_end", 3000, key=1),
                     malloc(3100, 0x4000, 400, main), free(3200, 0x2000), scope("scope_range", 3500, a, 0, 3), scope("scope_end", 4000, key=2),
                     malloc(4100, 0x5000, 5000, main), free(4500, 0x4000), scope("scope_end", 5000, key=3), free(6000, 0x3000)])]
    db = simple(t, events)
    t.equal(db.rows("select id, parent_id, depth from scope where id > 0 order by id"), [(1, None, 0), (2, None, 0), (3, 2, 1), (4, None, 0)], "scopes")
    columns = "self_allocated_bytes, total_allocated_bytes, self_freed_bytes, total_freed_bytes, own_freed_bytes, retained_bytes, peak_own_bytes"
    t.equal(db.rows(f"select {columns} from scope_instance order by scope_id"),
            [(100, 123, 0, 0, 23, 123, 123), (420, 423, 20, 20, 423, 403, 423), (3, 3, 0, 0, 3, 3, 3), (5000, 5000, 400, 400, 0, 5000, 5000)], "instances")
    t.equal(db.row(f"select calls, duration_ns, {columns} from scope_total where name = 'a'"), (3, 4000, 5520, 5523, 420, 420, 423, 5503, 5000), "by name")
    t.equal(db.rows("select scope_id, later_scope_id, allocated_bytes, freed_bytes, retained_bytes from scope_overlap"), [(1, 2, 23, 0, 23)], "what 1 and 2 did")
    t.equal(db.value("select mean_duration_ns from scope_summary where name = 'a'"), 5500 // 3, "how long one takes")
    t.equal(db.value("select total_allocated_bytes from scope_total where name = '[unscoped]'"), 0, "outside")
    tree = json.loads(t.run([t.tidemark, "scopes", db.path, "--tree", "--format=json"], status=0).out)
    t.equal([(r["name"], r["calls"], r["total_allocated_bytes"], r["total_net_bytes"], r["retained_bytes"]) for r in tree if r["name"] != "[unscoped]"],
            [("a", 3, 5523, 5103, 5503), ("in", 1, 3, 3, 3)], "tree")


def lines_of_report(t, db):
    """(name, depth, self, total, retained) of the lines of its tree, as they are written."""
    t.run([t.tidemark, "report", db.path, "-o", t.path("overlap.html"), "--force"], status=0)
    with open(t.path("overlap.html")) as file:
        page = file.read()
    table = page[page.index('id="scope-table"'):]
    lines = re.findall(r'<tr data-depth="(\d+)"(?! class)(.*?)</tr>', table[:table.index("</table>")], re.S)
    return sorted((re.sub("<.*?>", "", cells[0]), int(depth), cells[3], cells[4], cells[6])
                  for depth, cells in ((depth, re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)) for depth, row in lines))


@test
def overlapping_on_different_lines(t):
    """In a tree what two of a name did counts once where they are on one line; whether they are is known when what they lie in has closed."""
    def events(trace):
        a, x, main = trace.string("a"), trace.string("x"), trace.stack("main")
        return [(1, [scope("scope_range", 1000, a, 0, 1), scope("scope_range", 1100, x, 0, 2), scope("scope_range", 1200, a, 0, 3),
                     malloc(1250, 0x1000, 10, main), *([scope("scope_range", 1300, a, trace.string("user"), 4), malloc(1350, 0x2000, 300, main)] * third),
                     scope("scope_end", 2000, key=1), *([free(2050, 0x2000)] * third), malloc(2100, 0x3000, 5, main), scope("scope_end", 2200, key=3),
                     scope("scope_end", 3000, key=2), *([scope("scope_end", 3100, key=4)] * third)])]
    for third, lines in ((False, [("a", 0, 0, 10, 10, 10), ("a", 1, 15, 15, 15, 15), ("x", 0, 0, 15, 15, 15)]),
                         (True, [("a", 0, 305, 315, 15, 15), ("a", 1, 10, 315, 15, 15), ("x", 0, 0, 315, 15, 15)])):
        db = simple(t, events)
        tree = json.loads(t.run([t.tidemark, "scopes", db.path, "--tree", "--format=json"], status=0).out)
        t.equal(sorted((r["name"], r["depth"], r["self_allocated_bytes"], r["total_allocated_bytes"], r["total_net_bytes"], r["retained_bytes"])
                       for r in tree), lines, f"tree, with a third one: {third}")
        t.equal(lines_of_report(t, db), [(name, depth, f"{self} B", f"{total} B", f"{retained} B") for name, depth, self, total, _, retained in lines],
                f"report, with a third one: {third}")


@test
def a_range_that_outlives_its_phase(t):
    """session begins in phase and goes on after it: what it and inner do until then belongs to phase, what comes later does not, nor whose it is."""
    def events(trace):
        phase, session, inner, main = trace.string("phase"), trace.string("session"), trace.string("inner"), trace.stack("main")
        return [(1, [scope("scope_push", 1000, phase), malloc(1100, 0x1000, 1, main), scope("scope_range", 1200, session, 0, 1), malloc(1300, 0x2000, 10, main),
                     scope("scope_push", 1400, inner), malloc(1500, 0x3000, 100, main), scope("scope_end", 1600), scope("scope_end", 2000),
                     malloc(2100, 0x4000, 1000, main), free(2200, 0x2000), scope("scope_end", 3000, key=1), free(4000, 0x3000)])]
    db = simple(t, events)
    t.equal(db.rows("select name, parent_id, depth from scope where id > 0 order by id"), [("phase", None, 0), ("session", None, 0), ("inner", 2, 1)], "scopes")
    t.equal(db.rows("select self_allocated_bytes, total_allocated_bytes, total_freed_bytes, own_freed_bytes, retained_bytes, peak_own_bytes from scope_instance "
                    "order by scope_id"), [(1, 111, 0, 110, 111, 111), (1010, 1110, 10, 110, 1100, 1110), (100, 100, 0, 100, 100, 100)], "instances")
    t.equal(db.rows("select scope_id, free_scope_id from allocation order by alloc_ns"), [(1, None), (2, 2), (3, 0), (2, None)], "scopes of the blocks")


@test
def ways_to_end(t):
    """A push abandoned by its parent's end, one left by an exception, one by its thread, a block by longjmp, a range by another thread, one by the process."""
    def events(trace):
        n = {name: trace.string(name) for name in ("outer", "lost", "thrown", "worker", "block", "again", "range", "open", "both")}
        return [(1, [scope("scope_push", 1000, n["outer"]), scope("scope_push", 1100, n["lost"], n["both"]), scope("scope_end", 1200),
                     scope("scope_push", 2000, n["thrown"]), scope("scope_exception", 2100),
                     scope("scope_block", 3000, n["block"], 0, 77, 0x5000), scope("scope_block", 3100, n["again"], 0, 78, 0x6000), scope("scope_end", 3200, key=78),
                     scope("scope_range", 4000, n["range"], 0, 99), scope("scope_push", 6000, n["open"]), scope("scope_end", 6100, 0, n["both"])]),
                (2, [scope("scope_push", 4100, n["worker"]), scope("scope_end", 5000, key=99)])]

    def ends(trace):
        trace.meta(trace.record(7, v(2) + v(5500)))
    db = simple(t, events, prepare=ends, threads=2)
    t.equal(db.rows("select name, end_ns, end_kind from scope where id > 0 order by id"),
            [("outer", 1200, "closed"), ("lost", 1200, "abandoned"), ("thrown", 2100, "exception"), ("block", 3100, "abandoned"), ("again", 3200, "closed"),
             ("range", 5000, "closed"), ("worker", 5500, "thread"), ("open", 10000, "process")], "ends")
    t.equal(db.rows("select kind, count from loss"), [("unmatched-scope-end", 1)], "an end without a scope")
    t.equal(db.row("select name, heap, calls, duration_ns, peak_bytes from scope_total where name = 'open'"), ("open", None, 1, 4000, None), "no heap")


@test
def ranges_of_two_domains(t):
    """Neither ends the other's; a push of the program's own inside of one goes with it. The golden trace: fixtures/make_fixtures.py tells its story."""
    db = t.imported(os.path.join(t.root, "fixtures/golden/v1.3-domains.tmk"), options=("--quiet", "--force"))
    t.equal(db.rows("select s.name, s.category, s.start_ns, s.end_ns, s.end_kind, self_allocated_bytes, total_allocated_bytes from scope s join scope_instance i "
                    "on i.scope_id = s.id where s.id > 0 order by s.id"),
            [("a", "nvtx", 1000, 1300, "closed", 10, 30), ("b", "nvtx:domain", 1100, 1500, "closed", 50, 50), ("b", "nvtx:domain", 1550, 1700, "closed", 0, 40),
             ("own", "user", 1600, 1700, "abandoned", 40, 40)], "scopes")
    t.equal(db.rows("select * from loss"), [], "losses")


@test
def forward_and_backward(t):
    """The backward operator on another thread names the latest forward one before it with its number."""
    def events(trace):
        add, back, op, backward = trace.string("aten::add"), trace.string("AddBackward0"), trace.string("torch.op"), trace.string("torch.backward")
        return [(1, [scope("scope_range", 1000, add, op, 1, 5), scope("scope_end", 1100, key=1), scope("scope_range", 1200, add, op, 2, 5),
                     scope("scope_end", 1300, key=2), scope("scope_range", 1900, add, op, 4, 5)]),
                (2, [scope("scope_range", 1500, back, backward, 3, 5), scope("scope_end", 1600, key=3), scope("scope_range", 1700, back, backward, 3, 6)])]
    db = simple(t, events, threads=2)
    t.equal(db.rows("select id, forward_scope_id from scope where category = 'torch.backward' order by id"), [(3, 2), (4, None)], "forward operators")
    t.equal(db.value("select text from note where kind = 'scope-links'"), "no forward operator is known for 1 operator of a backward pass", "note")


@test
def stopped_and_started(t):
    """While recording is off nothing is allocated as far as we know: frees of what was made then are no loss. Labels are kept as they are."""
    def events(trace):
        main, label, taken, ours = trace.stack("main"), trace.string("loaded"), trace.string("exit"), trace.string("baseline")
        return [(1, [malloc(1000, 0x1000, 10, main), text("stop", 2000), free(2100, 0x1000), text("start", 3000), free(3100, 0x9000),
                     malloc(3200, 0x2000, 20, main), text("snapshot", 4000, label), text("snapshot", 4100, taken), text("snapshot", 4200, ours), text("baseline", 5000),
                     text("reset_peak", 6000, label), malloc(8500, 0x3000, 5, main), text("baseline", 9000)])]
    db = simple(t, events)
    t.equal(db.rows("select * from loss"), [], "losses")
    t.equal(db.rows("select label, ts_ns, live_bytes from snapshot where ts_ns between 4000 and 8000 and heap_id = 1 order by ts_ns"),
            [("loaded", 4000, 20), ("snapshot:exit", 4100, 20), ("snapshot:baseline", 4200, 20), ("baseline", 5000, 20)], "snapshots")
    for word in ("loaded", "exit", "baseline"):
        t.equal(t.ask("snapshot", db.path, "--at", f"snapshot:{word}", "--format=csv").text.splitlines()[1].split(",")[1:5], ["malloc", "1", "20", "1"], word)
    t.equal(t.ask("snapshot", db.path, "--at=baseline", "--format=csv").text.splitlines()[1].split(",")[1:5], ["malloc", "1", "25", "2"], "the last baseline")
    peaks = json.loads(t.ask("peak", db.path, "--from=baseline", "--format=json").text)
    t.equal([(row["ts_ns"], row["live_bytes"]) for row in peaks if row["heap"] == "malloc"], [(9000, 25)], "the peak from then on")
    refused = t.ask("snapshot", db.path, "--at", "snapshot:peak", status=1)
    t.check("no snapshot 'snapshot:peak'" in refused.errors and "(snapshots: loaded, snapshot:exit, snapshot:baseline)" in refused.errors, refused.errors)
    t.equal(db.rows("select * from mark"), [], "marks")
    without = simple(t, lambda trace: [(1, [malloc(1000, 0x1000, 10, trace.stack("main"))])], name="without.tmk")
    t.check("no baseline in" in t.ask("snapshot", without.path, "--at=baseline", status=1).errors, "none")


@test
def stamped_too_early(t):
    """A free that was stamped 10 ns before the allocation of its block, and a block that waits at its address: 80 bytes are live at no time."""
    def events(trace):
        name, main, heap = trace.string("s"), trace.stack("main"), trace.string("malloc")
        return [(1, [step(500, 1), text("reset_peak", 900, heap), malloc(1000, 0x1000, 100, main), scope("scope_push", 1500, name), malloc(2000, 0x2000, 80, main),
                     malloc(3000, 0x3000, 20, main), scope("scope_end", 3500), step(4000, 2)]),
                (2, [free(1990, 0x2000), malloc(1995, 0x2000, 10, main)])]
    db = simple(t, events, threads=2, rank=3)
    t.equal(db.rows("select size_bytes, alloc_ns, free_ns from allocation order by size_bytes"),
            [(10, 2000, None), (20, 3000, None), (80, 2000, 2000), (100, 1000, None)], "blocks")
    t.equal(db.rows("select heap, ts_ns, live_bytes, live_count from peak"), [(None, 3000, 130, 3), ("malloc", 3000, 130, 3)], "peak")
    t.equal(db.rows("select peak_bytes, peak_growth_bytes, total_allocated_bytes from scope_instance where heap = 'malloc' and scope_id > 0"), [(130, 30, 100)], "scope")
    t.equal(db.rows("select heap, peak_bytes from step_total where n = 1 order by heap"), [(None, 130), ("malloc", 130)], "step")
    t.equal(db.value("select peak_bytes from scope_total where heap = 'malloc' and name = '[unscoped]'"), 130, "outside")
    for command in ("peak", "peak --sites"):
        answers = [json.loads(t.ask(*command.split()[:1], db.path, *command.split()[1:], *window, "--format=json").text) for window in ((), ("--from=0s",))]
        t.equal([[row["live_bytes"] for row in rows if row["heap"]] for rows in answers], [[130], [130]], command)
    t.equal(db.value("select max(live_bytes) from memory_timeline where heap = 'malloc'"), 130, "timeline")
    t.equal(db.rows("select ts_ns, live_bytes, live_count from thread_peak order by thread_id"), [(3000, 120, 2), (2000, 10, 1)], "threads' own blocks")
    t.equal(db.rows("select rank, ts_ns, live_bytes from rank_peak"), [(3, 3000, 130)], "rank")
    t.equal(db.rows("select n, peak_ns, peak_bytes from peak_period order by n"), [(0, 0, 0), (1, 3000, 130)], "since reset_peak")
    t.equal([row["peak_bytes"] for row in json.loads(t.ask("top", t.path("run.tmk"), "--by=heap", "--format=json").text)], [130, 130], "top")


@test
def parts_of_mappings(t):
    """Of 16 pages the second goes in step 1 (2 parts live on), the fifth in step 2 (3 live on), where 3 more pages come and lose their first: parts are
    blocks for what survives, begins and is created, and a scope or step that opens before a cut begins without its parts."""
    page = 4096

    def events(trace):
        name, main = trace.string("s"), trace.stack("main")
        return [(1, [step(1000, 1), mmap(1500, 0x100000, 16 * page, main), munmap(1600, 1700, 0x101000, page), malloc(1800, 0x1000, 10, main),
                     step(3000, 2), scope("scope_push", 3500, name), munmap(3900, 4000, 0x104000, page), mmap(4100, 0x200000, 3 * page, main),
                     munmap(4150, 4200, 0x200000, page), scope("scope_end", 4500)])]
    db = simple(t, events)
    t.equal(db.rows("select n, heap, survived_bytes, survived_count, allocations, frees from step_total order by n, heap"),
            [(1, None, 15 * page + 10, 3, 2, 1), (1, "malloc", 10, 1, 1, 0), (1, "mmap", 15 * page, 2, 1, 1),
             (2, None, 2 * page, 1, 1, 2), (2, "malloc", 0, 0, 0, 0), (2, "mmap", 2 * page, 1, 1, 2)], "steps")
    t.equal(db.rows("select s.n, a.begin_count, a.end_count from step s join step_aggregate a on a.step_id = s.id left join heap h on h.id = a.heap_id "
                    "where h.name = 'mmap' order by s.n"), [(1, 0, 2), (2, 2, 4)], "live at their ends")
    t.equal(db.rows("select s.n, a.begin_count, a.end_count from step s join step_aggregate a on a.step_id = s.id where a.heap_id = 0 order by s.n"),
            [(1, 0, 3), (2, 3, 5)], "live at their ends, all heaps")
    t.equal(db.rows("select s.phase, s.live_bytes, s.live_count, s.created, s.deleted from scope_snapshot s join heap h on h.id = s.heap_id "
                    "where h.name = 'mmap' order by s.ts_ns"),
            [("baseline", 0, 0, None, None), ("before", 15 * page, 2, 3, 1), ("peak", 17 * page, 4, 3, 1), ("after", 16 * page, 4, 1, 1)], "scope")


@test
def pool_states(t):
    """What a pool says of itself stands beside what is exact."""
    def events(trace):
        name, main = trace.string("load"), trace.stack("main")
        trace.pool_state(2, 1100, allocated=512, reserved=2048, active=512)
        trace.sample(1, 1150, rss=4096)
        return [(1, [scope("scope_push", 1000, name), malloc(1200, 0x1000, 40, main, op="torch_alloc", heap=2), scope("scope_end", 2000)])]
    db = simple(t, events)
    t.equal(db.rows("select phase, live_bytes, allocated_bytes, reserved_bytes, active_bytes, inactive_bytes, rss_bytes from scope_snapshot"),
            [("baseline", 0, 0, None, None, None, None), ("before", 0, 0, None, None, None, None), ("peak", 40, 512, 2048, 512, None, 4096),
             ("after", 40, 512, 2048, 512, None, 4096)], "looks")
    t.equal(db.rows("select h.name, p.ts_ns, p.allocated_bytes, p.inactive_bytes from pool_state p join heap h on h.id = p.heap_id"),
            [("torch.cpu", 1100, 512, None)], "pool states")


@test
def appended_traces(t):
    """Ids of scopes, names and steps of two traces in one database never meet."""
    for i in (1, 2):
        story = random_story(40 + i, 120)
        writer = Writer(story)
        writer.trace.chunks[0] = (writer.trace.chunks[0][0], Trace(start_unix_ns=10**18 + i * 10**9).chunks[0][1])
        writer.write(t.path(f"{i}.tmk"))
    both = t.imported(t.path("1.tmk"), t.path("2.tmk"), options=("--quiet",))
    one = t.path("one.db")
    t.run([t.tidemark, "import", "--quiet", "-o", one, t.path("1.tmk")], status=0)
    t.run([t.tidemark, "import", "--quiet", "--append", "-o", one, t.path("2.tmk")], status=0)
    import sqlite3
    rows = sqlite3.connect(one)
    for table in ("scope", "scope_instance", "scope_total", "step_total", "scope_snapshot"):
        t.equal(sorted(rows.execute(f"select * from {table}").fetchall(), key=str), sorted(both.rows(f"select * from {table}"), key=str), table)
    t.equal(both.value("pragma integrity_check"), "ok", "integrity")


# --- bad input

@test
def deep_nesting(t):
    """10,000 scopes in each other, each with a byte; every one of them freed at the end, one per level, from the outside inward."""
    depth = 10000

    def events(trace):
        f, main = trace.string("f"), trace.stack("main")
        out = [e for i in range(depth) for e in (scope("scope_push", 1000 + 2 * i, f), malloc(1001 + 2 * i, 0x10000 + 16 * i, 1, main))]
        out += [free(30000 + i, 0x10000 + 16 * i) for i in range(depth)]
        return [(1, out + [scope("scope_end", 50000 + i) for i in range(depth + 5)])]
    db = simple(t, events, exit=90000, end=90000)
    t.equal(db.row("select calls, duration_ns, self_allocated_bytes, total_allocated_bytes, self_freed_bytes, peak_own_bytes, retained_bytes from scope_total "
                   "where name = 'f'"), (depth, 50000 + depth - 1 - 1000, depth, depth, depth, depth, 0), "all of them")
    t.equal(db.rows("select peak_own_bytes, peak_growth_bytes, depth from scope_instance i join scope s on s.id = i.scope_id where s.id in (1, 5000, 10000) order by s.id"),
            [(depth, depth, 0), (5001, 5001, 4999), (1, 1, 9999)], "three of them")
    t.equal(db.rows("select kind, count from loss"), [("unmatched-scope-end", 5)], "popped too often")


@test
def strange_names(t):
    """Names of 10 kB, of bytes that are no UTF-8, with markup, and none at all."""
    names = [b"x" * 10000, b"\xff\xfe<b>&\"'", b"", "größe;\n".encode()]

    def events(trace):
        ids = [trace.string(name) if name else 0 for name in names]
        return [(1, [e for i, id in enumerate(ids) for e in (scope("scope_push", 1000 + 10 * i, id), scope("scope_end", 1005 + 10 * i))])]
    db = simple(t, events)
    t.equal([row[0] for row in db.rows("select name from scope where id > 0 order by id")], ["x" * 10000, "\ufffd\ufffd<b>&\"'", "", "größe;\n"], "names")
    for options in ((), ("--tree",), ("--format=json",), ("--means",)):
        t.run([t.tidemark, "scopes", db.path, *options], status=0)


@test
def many_names(t):
    """A hundred thousand (with --long: a million) names that occur once."""
    count = 1000000 if t.long else 100000

    def events(trace):
        main = trace.stack("main")
        trace.meta(*(trace.record(2, v(1 + i) + v(len(str(i))) + str(i).encode()) for i in range(2, count + 2)))
        out = []
        for i in range(count):
            out += [scope("scope_push", 1000 + 4 * i, 3 + i), scope("scope_end", 1002 + 4 * i)]
        del main
        return [(1, out[i:i + 100000]) for i in range(0, len(out), 100000)]
    trace = Trace()
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    trace.string("a")
    trace.string("b")
    for segment in events(trace):
        trace.segments([segment])
    trace.end(1, 10**8)
    db = t.imported(trace.save(t.path("names.tmk"), names=False), options=("--quiet",))
    t.equal(db.value("select count(distinct name) from scope_total where calls = 1"), count, "names")


# --- the commands

@test
def torch_profiler_rule(t):
    """Another thread's 50 bytes count for whoever is open; recursion counts twice where something lies beside; self is less the direct children."""
    def events(trace):
        f, g, h, op, main = trace.string("f"), trace.string("g"), trace.string("h"), trace.string("torch.op"), trace.stack("main")
        tensor = dict(op="torch_alloc", heap=2)
        return [(1, [scope("scope_range", 1000, f, op, 1), malloc(1100, 0x1000, 10, main, **tensor), scope("scope_range", 1200, f, op, 2),
                     malloc(1300, 0x2000, 20, main, **tensor), scope("scope_range", 1350, g, op, 3), free(1360, 0x1000, op="torch_free", heap=2),
                     scope("scope_end", 1370, key=3), scope("scope_end", 1400, key=2), scope("scope_range", 1410, h, op, 4), scope("scope_end", 1420, key=4),
                     scope("scope_end", 1500, key=1)]),
                (2, [malloc(1310, 0x3000, 50, main, **tensor)])]
    db = simple(t, events, threads=2)
    rows = json.loads(t.run([t.tidemark, "scopes", db.path, "--torch-compat", "--format=json"], status=0).out)
    t.equal([(r["name"], r["calls"], r["self_net_bytes"], r["total_net_bytes"]) for r in rows],
            [("f", 2, 70 - 60 + 60 + 10, 70 + 60), ("h", 1, 0, 0), ("g", 1, -10, -10)], "as torch.profiler counts")
    t.equal(db.rows("select name, self_net_bytes, total_net_bytes from scope_total where calls > 0 order by name"), [("f", 30, 20), ("g", -10, -10), ("h", 0, 0)],
            "as we do")
    # A damaged database: a scope that PyTorch does not see lies in itself, and the walk outward ends.
    damaged = sqlite3.connect(db.path)
    damaged.execute("update scope_packed set parent_id = id, category_id = null where id = (select parent_id from scope where name = 'g')")
    damaged.commit()
    damaged.close()
    t.run([t.tidemark, "scopes", db.path, "--torch-compat"], timeout=60)


@test
def torch_profiler_knows_no_copies(t):
    """One that alone lies in another of its name is that one, however often, and whatever torch.profiler does not see lies between or beside; one with
    another beside it is a second one. What lies in a copy lies in the one that it is of."""
    def events(trace):
        op, user, main, out, at, keys = trace.string("torch.op"), trace.string("user"), trace.stack("main"), [], [1000], []

        def opens(name, category=op):
            at[0] += 10
            keys.append(at[0])
            out.append(scope("scope_range", at[0], trace.string(name), category, at[0]))

        def closes(count=1):
            for _ in range(count):
                at[0] += 10
                out.append(scope("scope_end", at[0], key=keys.pop()))

        def makes(size):
            at[0] += 10
            out.append(malloc(at[0], at[0] << 8, size, main, op="torch_alloc", heap=2))
        opens("sort"), makes(1), opens("sort"), makes(20), opens("empty"), makes(300), closes(3)
        opens("thrice"), opens("thrice"), opens("thrice"), makes(4000), closes(3)
        opens("beside"), opens("beside"), makes(1), closes(), opens("empty"), makes(2), closes(2)
        opens("hidden"), opens("aten::is_leaf"), closes(), opens("hidden"), makes(7), closes(2)
        opens("between"), opens("mine", user), opens("between"), makes(50), closes(3)
        opens("a"), opens("b"), opens("a"), makes(6), closes(3)
        return [(1, out)]
    db = simple(t, events)

    def told(*options):
        rows = json.loads(t.run([t.tidemark, "scopes", db.path, "--torch-compat", "--format=json", *options], status=0).out)
        return sorted((r["name"], r["calls"], r["self_net_bytes"], r["total_net_bytes"]) for r in rows)
    wanted = [("a", 2, 6, 12), ("b", 1, 0, 6), ("beside", 2, 1, 4), ("between", 1, 50, 50), ("empty", 2, 302, 302), ("hidden", 1, 7, 7), ("sort", 1, 21, 321),
              ("thrice", 1, 4000, 4000)]
    t.equal(told(), wanted, "PyTorch's scopes")
    t.equal(told("--category=torch.op"), wanted, "by their category")
    t.equal(told("--category=user", "--heap=torch.cpu"), [("mine", 1, 50, 50)], "a scope of the program's own")


@test
def every_answer_is_a_query(t):
    story = random_story(7, 400)
    db = database(t, story)
    for options in ((), ("--tree",), ("--means",), ("--steps",), ("--from=0s", "--to=exit"), ("--torch-compat", "--category=torch.op", "--heap=malloc")):
        command = [t.tidemark, "scopes", db.path, *options]
        sql = t.run([*command, "--sql"], status=0).text
        rows = json.loads(t.run([*command, "--format=json"], status=0).out)
        if "--tree" in options:
            t.check(rows and len(rows) == len(db.rows(sql)), f"{options}: {len(rows)} rows")
        else:
            t.equal([tuple(row.values()) for row in rows], db.rows(sql), f"{options}")
    sums = db.rows("select heap, sum(self_allocated_bytes) from scope_total where calls > 0 and heap is not null group by heap order by heap")
    tree = json.loads(t.run([t.tidemark, "scopes", db.path, "--tree", "--format=json"], status=0).out)
    t.equal(sorted((heap, sum(r["self_allocated_bytes"] for r in tree if r["heap"] == heap)) for heap in {r["heap"] for r in tree} - {None}),
            [(heap, total) for heap, total in sums], "the tree's selves add up")
    looks = json.loads(t.run([t.tidemark, "snapshot", db.path, "--scope=a", "--format=json"], status=0).out)
    t.equal(len(looks), db.value("select count(*) from scope_snapshot p join scope s on s.id = p.scope_id where s.name = 'a'"), "four looks a heap")
    t.check(b"no scope 'zz'" in t.run([t.tidemark, "snapshot", db.path, "--scope=zz"], status=1).err, "an unknown scope is an error")
    t.check(b"scopes (more" in t.run([t.tidemark, "summary", db.path], status=0).out, "summary shows scopes")


main()
