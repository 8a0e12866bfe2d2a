"""Whose memory it is: scopes, steps and their sums, against figures worked out by hand and against scope_oracle.py on random stories.

Method: trace_writer.py writes the events, `tidemark import` makes the database, the views are compared row by row. No recorder is needed.
"""
import random

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
    equal(sorted(db.rows("select alloc_ns, scope_id, free_ns, free_scope_id from allocation"), key=str), sorted(story.allocations, key=str),
            f"allocations, {what}")
    equal(sorted(db.rows("select process_id, n, start_ns, end_ns, heap, allocated_bytes, allocations, freed_bytes, frees, survived_bytes, survived_count, "
                           "live_begin_bytes, live_end_bytes, peak_bytes from step_total"), key=str), story.step_rows(), f"steps, {what}")
    equal(sorted(db.rows("select s.scope_id, h.name, s.phase, s.ts_ns, s.live_bytes, s.created, s.deleted from scope_snapshot s join heap h on h.id = s.heap_id"),
                   key=str), story.snapshot_rows(100), f"snapshots, {what}")
    t.equal(dict(db.rows("select process_id, count from loss where kind = 'unmatched-scope-end'")),
            {id: p.unmatched_ends for id, p in story.processes.items() if p.unmatched_ends}, f"ends without a scope, {what}")
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
    names, categories = ["a", "b", "a", "c", "aten::add", "ä"], ["user", "torch.op", "torch.backward", "nvtx", None]
    live, keys, next_key, next_address, n = {p: [] for p in processes}, {p: [] for p in processes}, 1, 0x10000, 0
    deep = r.random() < 0.3
    ranges = r.random() < 0.5
    alive = set(threads)
    ns = 100
    for _ in range(length):
        ns += r.randint(2, 9)
        thread = r.choice(sorted(alive))
        p = threads[thread]["process"]
        dice = r.random()
        if dice < (0.3 if deep else 0.18):
            op = r.choice(("push", "push", "block", "range" if ranges else "push"))
            key = link = 0
            if op != "push":
                key, next_key = (next_key, next_key + 1) if r.random() < 0.95 or not keys[p] else (r.choice(keys[p]), next_key)
                keys[p].append(key)
            if op == "block":
                link = r.choice((0x7000, 0x6000, 0x5000, 0x5800, 0x4000, 0x3000, 0x7000000, 0x7001000))
            elif op == "range":
                link = r.choice((0, 1, 2, 3))
            story.events.append((ns, thread, op, (r.choice(names), r.choice(categories), key, link)))
        elif dice < 0.36:
            use_key = keys[p] and r.random() < 0.5
            key = keys[p].pop(-1 if r.random() < 0.7 else r.randrange(len(keys[p]))) if use_key else 0
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
    for seed in range(4000 if t.long else 250):
        story = random_story(seed, 12 + seed % 150)
        compare(t, database(t, story), story, f"seed {seed}")


@test
def random_long_stories(t):
    for seed in range(60 if t.long else 6):
        story = random_story(100000 + seed, 2000)
        compare(t, database(t, story), story, f"seed {100000 + seed}")


main()
