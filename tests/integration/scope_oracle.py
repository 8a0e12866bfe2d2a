"""The rules of attribution once more, slowly and plainly: every event is applied to every scope that it concerns. For test_attribution.py.

A story is what happened, in order of time (no two events at the same time):

    story = Story(processes={1: dict(start=0, exit=900, end=1000)}, threads={1: dict(process=1, end=None)})
    story.events = [(time, thread, op, values), ...]

with the ops push, block, range (name, category, key, link), end, exception (key, category), step (n), alloc (heap, address, size), free (heap,
address), realloc (begin, heap, old, address, size), baseline. Nothing here is shared with the analyzer or aware of how it works.

To a scope belongs, in all, what its thread does while it is open, and to a name, once, what a thread does while one of its scopes is open
there.
"""


class Scope:
    def __init__(self, id, parent, thread, op, name, category, key, frame, start):
        self.id, self.parent, self.thread, self.op, self.name, self.category = id, parent, thread, op, name, category
        self.key, self.frame, self.start, self.end, self.kind, self.forward = key, frame, start, None, None, None
        self.uses = {}        # heap -> Use: what it did itself
        self.totals = {}      # heap -> Use: with the scopes inside it
        self.shared = {}      # (scope, heap) -> (allocated, freed, retained) that a later one of its name had done when this one closed
        self.live_before = {}  # heap -> (bytes, made, gone) when it opened
        self.peak = {}        # heap -> (bytes, ns, made, gone)
        self.own, self.own_peak, self.retained = {}, {}, {}
        self.after, self.baseline = {}, {}
        self.is_outermost = False  # of its name: none that was opened before it on its thread is open when it closes

    def ancestry(self):
        scope = self
        while scope:
            yield scope
            scope = scope.parent

    @property
    def depth(self):
        return len(list(self.ancestry())) - 1

    @property
    def group(self):
        return self.name, self.category

    @property
    def is_apart(self):
        return self.op == "push" and self.frame == 1


class Use:
    def __init__(self):
        self.allocated = self.allocations = self.freed = self.frees = self.own_freed = 0

    def add(self, other):
        for field in vars(self):
            setattr(self, field, getattr(self, field) + getattr(other, field))


class Heap:
    def __init__(self):
        self.live = self.made = self.gone = self.peak = 0
        self.unscoped = self.unscoped_peak = 0
        self.use = Use()  # outside of scopes


class Block:
    def __init__(self, heap, size, owners, step, made_ns):
        self.heap, self.size, self.owners, self.step, self.made_ns = heap, size, owners, step, made_ns

    @property
    def owner_id(self):
        return self.owners[-1].id if self.owners else 0


class Process:
    def __init__(self, about):
        self.about, self.open, self.keys, self.heaps, self.blocks, self.links = about, [], {}, {}, {}, {}
        self.overlaps = self.across = 0
        self.groups = {}  # (name, category) -> heap -> [Use, retained]
        self.step, self.steps, self.unmatched_ends, self.baseline, self.baseline_ns = None, [], 0, {}, about["start"]

    def heap(self, name):
        return self.heaps.setdefault(name, Heap())

    def of_group(self, group, name):
        return self.groups.setdefault(group, {}).setdefault(name, [Use(), 0])


class Story:
    def __init__(self, processes, threads, defined=()):
        self.defined = defined  # heaps that each process has from the beginning, used or not
        self.processes = {id: Process(about) for id, about in processes.items()}
        self.threads, self.scopes, self.closed, self.allocations, self.events = threads, [], [], [], []
        self.stacks = {id: [] for id in threads}  # open scopes, outermost first

    # --- scopes

    def process_of(self, thread):
        return self.processes[self.threads[thread]["process"]]

    def close(self, scope, ns, kind):
        process = self.process_of(scope.thread)
        scope.end, scope.kind = max(ns, scope.start), kind
        self.closed.append(scope)
        stack = self.stacks[scope.thread]
        inner = stack[stack.index(scope) + 1:]
        of_name = [s for s in inner if s.name == scope.name]
        for other in {*of_name[:4], *[s for s in of_name if s.group == scope.group][:1]}:
            for name, use in other.totals.items():
                if use.allocations or use.frees:
                    scope.shared[other.id, name] = (use.allocated, use.freed, other.own.get(name, 0))
        scope.is_outermost = not any(s.group == scope.group for s in stack[:stack.index(scope)])
        stack.remove(scope)
        for block in process.blocks.values():
            if scope in block.owners and not any(s.end is None and s.group == scope.group for s in block.owners):
                process.of_group(scope.group, block.heap)[1] += block.size
        for child in inner:
            child.parent = scope.parent if child.parent is scope else child.parent
        process.open.remove(scope)
        if scope.key:
            del process.keys[scope.key]
        scope.baseline_ns = process.baseline_ns
        for name, heap in process.heaps.items():
            scope.after[name] = (heap.live, heap.made, heap.gone)
            scope.retained[name] = scope.own.get(name, 0)
            scope.baseline[name] = process.baseline.get(name, (process.baseline_ns, 0, 0, 0))

    def close_with_inner(self, scope, ns, kind):
        stack = self.stacks[scope.thread]
        for inner in reversed(stack[stack.index(scope) + 1:]):
            if inner.op != "range" and not (scope.is_apart and inner.is_apart):
                self.close(inner, ns, "abandoned")
        self.count_overlap(scope)
        self.close(scope, ns, kind)

    def count_overlap(self, scope):
        self.process_of(scope.thread).overlaps += self.stacks[scope.thread][-1] is not scope

    def end(self, scope, ns, kind):
        if scope.op == "range":
            self.count_overlap(scope)
            self.close(scope, ns, kind)
        else:
            self.close_with_inner(scope, ns, kind)

    def open_scope(self, ns, thread, op, name, category, key, link):
        process, stack = self.process_of(thread), self.stacks[thread]
        if op == "block":
            gone = [s for s in stack if s.op == "block" and (0 < link % 2**48 - s.frame % 2**48 < 2**26 or
                                                             (link % 2**48 == s.frame % 2**48 and link != s.frame))]
            if gone:
                self.close_with_inner(gone[0], ns, "abandoned")
        if key and key in process.keys:
            self.end(process.keys[key], ns, "abandoned")
        scope = Scope(len(self.scopes) + 1, stack[-1] if stack else None, thread, op, name, category, key, link, ns)
        self.scopes.append(scope)
        stack.append(scope)
        process.open.append(scope)
        if key:
            process.keys[key] = scope
        for heap_name, heap in process.heaps.items():
            scope.live_before[heap_name] = (heap.live, heap.made, heap.gone)
            scope.peak[heap_name] = (heap.live, ns, heap.made, heap.gone)
        if op == "range" and link and category == "torch.op":
            process.links[link] = scope
        if op == "range" and link and category == "torch.backward":
            scope.forward = process.links.get(link)

    def end_scope(self, ns, thread, kind, key, category):
        process = self.process_of(thread)
        if key:
            scope = process.keys.get(key)
        else:
            pushed = [s for s in self.stacks[thread] if s.op == "push" and s.category == category]
            scope = pushed[-1] if pushed else None
        if scope is None:
            process.unmatched_ends += 1
        else:
            process.across += scope.thread != thread
            self.end(scope, ns, kind)

    # --- memory

    def changed(self, process, name, ns):
        """The heap has a new level: every scope that is open sees it."""
        heap = process.heaps[name]
        heap.peak = max(heap.peak, heap.live)
        heap.unscoped_peak = max(heap.unscoped_peak, heap.unscoped)
        for scope in process.open:
            scope.live_before.setdefault(name, (0, 0, 0))
            if heap.live > scope.peak.get(name, (0,))[0]:
                scope.peak[name] = (heap.live, ns, heap.made, heap.gone)
            scope.peak.setdefault(name, (0, scope.start, 0, 0))
        if process.step:
            process.step["peak"][name] = max(process.step["peak"].get(name, 0), heap.live)
            process.step["all"] = max(process.step["all"], self.root_live(process))

    @staticmethod
    def root_live(process):
        return sum(heap.live for name, heap in process.heaps.items() if name in ("malloc", "mmap"))

    def counted(self, scopes, heap, name):
        """Everything that an event of a thread with these open scopes counts in."""
        process = self.process_of(scopes[-1].thread) if scopes else None
        inner = scopes[-1].uses.setdefault(name, Use()) if scopes else heap.use
        return [inner, *(s.totals.setdefault(name, Use()) for s in scopes), *(process.of_group(group, name)[0] for group in {s.group for s in scopes})]

    def allocate(self, ns, thread, name, address, size):
        process = self.process_of(thread)
        heap = process.heap(name)
        scopes = list(self.stacks[thread])
        process.blocks[name, address] = Block(name, size, scopes, process.step, ns)
        heap.live, heap.made = heap.live + size, heap.made + 1
        for use in self.counted(scopes, heap, name):
            use.allocated, use.allocations = use.allocated + size, use.allocations + 1
        for s in scopes:
            s.own[name] = s.own.get(name, 0) + size
            s.own_peak[name] = max(s.own_peak.get(name, 0), s.own[name])
        if not scopes:
            heap.unscoped += size
        if process.step:
            u = process.step["uses"].setdefault(name, Use())
            u.allocated, u.allocations = u.allocated + size, u.allocations + 1
        self.changed(process, name, ns)

    def release(self, ns, thread, name, address):
        process = self.process_of(thread)
        block = process.blocks.pop((name, address))
        heap, size = process.heaps[name], block.size
        scopes = list(self.stacks[thread])
        self.allocations.append((block.made_ns, block.owner_id, ns, scopes[-1].id if scopes else 0))
        heap.live, heap.gone = heap.live - size, heap.gone + 1
        for use in self.counted(scopes, heap, name):
            use.freed, use.frees = use.freed + size, use.frees + 1
        for use in self.counted(block.owners, heap, name):
            use.own_freed += size
        if not block.owners:
            heap.unscoped -= size
        for s in block.owners:
            s.own[name] -= size
        if process.step:
            u = process.step["uses"].setdefault(name, Use())
            u.freed, u.frees = u.freed + size, u.frees + 1
            if block.step is process.step:
                process.step["own_freed"][name] = process.step["own_freed"].get(name, 0) + size
                process.step["own_frees"][name] = process.step["own_frees"].get(name, 0) + 1
        self.changed(process, name, ns)

    # --- steps and ends

    def begin_step(self, process, ns, n):
        self.end_step(process, ns)
        live = {name: heap.live for name, heap in process.heaps.items()}
        count = {name: heap.made - heap.gone for name, heap in process.heaps.items()}
        process.step = dict(n=n, start=ns, begin=live, count=count, peak=dict(live), uses={}, own_freed={}, own_frees={}, all=self.root_live(process),
                            all_begin=self.root_live(process))

    def end_step(self, process, ns):
        if process.step:
            process.step["end"] = ns
            process.step["live"] = {name: heap.live for name, heap in process.heaps.items()}
            process.step["all_live"] = self.root_live(process)
            process.steps.append(process.step)
            process.step = None

    def pass_ends(self, now):
        """Threads that ended, and processes that began to leave, before now."""
        for process in self.processes.values():
            if process.about["exit"] is not None and process.about["exit"] < now:
                self.end_step(process, process.about["exit"])
        for id, thread in self.threads.items():
            about = self.process_of(id).about
            limit = min(x for x in (about["exit"], about["end"]) if x is not None)
            if thread["end"] is not None and thread["end"] < min(limit, now):
                for scope in [s for s in reversed(self.stacks[id]) if s.op != "range"]:
                    self.close(scope, thread["end"], "thread")

    def play(self):
        for ns, thread, op, values in self.events:
            process = self.process_of(thread)
            if op == "realloc":
                begin, heap, old, address, size = values
                self.pass_ends(begin)
                self.release(begin, thread, heap, old)
                self.pass_ends(ns)
                self.allocate(ns, thread, heap, address, size)
                continue
            self.pass_ends(ns)
            if op in ("push", "block", "range"):
                self.open_scope(ns, thread, op, *values)
            elif op in ("end", "exception"):
                self.end_scope(ns, thread, "closed" if op == "end" else "exception", *values)
            elif op == "step":
                self.begin_step(process, ns, *values)
            elif op == "alloc":
                self.allocate(ns, thread, *values)
            elif op == "free":
                self.release(ns, thread, *values)
            elif op == "baseline":
                process.baseline_ns = ns
                process.baseline = {name: (ns, heap.live, heap.made, heap.gone) for name, heap in process.heaps.items()}
        self.pass_ends(float("inf"))
        for process in self.processes.values():
            about = process.about
            self.end_step(process, about["exit"] if about["exit"] is not None else about["end"])
            while process.open:
                for scope in list(reversed(self.stacks[process.open[-1].thread])):
                    self.close(scope, about["end"], "process")
            for block in process.blocks.values():
                self.allocations.append((block.made_ns, block.owner_id, None, None))

    # --- what the views should say

    def scope_rows(self):
        return [(s.id, s.parent.id if s.parent else None, self.threads[s.thread]["process"], s.thread, s.name, s.category, s.start, s.end, s.kind, s.depth,
                 s.forward.id if s.forward else None) for s in self.scopes]

    def instance_rows(self):
        """(scope, heap, self and total of: allocated, freed, allocations, frees; own freed, retained, peak, growth, own peak)."""
        rows = []
        for s in self.scopes:
            for name, total in s.totals.items():
                own = s.uses.get(name, Use())
                peak = s.peak.get(name, (0,))[0]
                rows.append((s.id, name, own.allocated, total.allocated, own.freed, total.freed, own.allocations, total.allocations, own.frees, total.frees,
                             total.own_freed, s.retained.get(name, 0), peak, peak - s.live_before.get(name, (0,))[0], s.own_peak.get(name, 0)))
        return sorted(rows)

    def overlap_rows(self):
        return sorted((s.id, *key, *sums) for s in self.scopes for key, sums in s.shared.items())

    def spent(self, process, group):
        """When at least one scope of the name was open on a thread, all threads together."""
        total = 0
        for thread in self.threads:
            end = -1
            for s in self.scopes:  # in the order of opening
                if s.thread == thread and s.group == group and self.threads[thread]["process"] == process:
                    total += max(0, s.end - max(end, s.start))
                    end = max(end, s.end)
        return total

    def call_rows(self):
        """(process, name, category, calls, outermost calls, their durations added up)."""
        rows = {}
        for s in self.scopes:
            row = rows.setdefault((self.threads[s.thread]["process"], *s.group), [0, 0, 0])
            row[0] += 1
            row[1] += s.is_outermost
            row[2] += s.end - s.start if s.is_outermost else 0
        return sorted(((*key, *row) for key, row in rows.items()), key=str)

    def total_rows(self):
        """Peaks are the highest of the instances, what they did themselves is added up; the rest was counted by name."""
        instances, rows = {}, []
        for row in self.instance_rows():
            s = self.scopes[row[0] - 1]
            key = (self.threads[s.thread]["process"], *s.group, row[1])
            selves, peaks = instances.setdefault(key, ([0] * 4, [0] * 3))
            instances[key] = ([a + b for a, b in zip(selves, row[2:10:2])], [max(a, b) for a, b in zip(peaks, row[12:])])
        for process, name, category, calls, _, _ in self.call_rows():
            spent = self.spent(process, (name, category))
            heaps = self.processes[process].groups.get((name, category), {})
            for heap, (u, retained) in heaps.items():
                (allocated, freed, allocations, frees), peaks = instances[process, name, category, heap]
                rows.append((process, heap, name, category, calls, spent, allocated, u.allocated, freed, u.freed, allocations, u.allocations, frees, u.frees,
                             u.own_freed, retained, *peaks))
            if not heaps:
                rows.append((process, None, name, category, calls, spent, *[0] * 10, None, None, None))
        for id, process in self.processes.items():
            for name, heap in process.heaps.items():
                u = heap.use
                rows.append((id, name, "[unscoped]", None, None, None, u.allocated, u.allocated, u.freed, u.freed, u.allocations, u.allocations, u.frees, u.frees,
                             u.own_freed, heap.unscoped, heap.peak, heap.peak, heap.unscoped_peak))
        return sorted(rows, key=str)

    def step_rows(self):
        rows = []
        for id, process in self.processes.items():
            for s in process.steps:
                whole = [0] * 6
                for name in s["live"]:
                    u, begin = s["uses"].get(name, Use()), s["begin"].get(name, 0)
                    survived = (u.allocated - s["own_freed"].get(name, 0), u.allocations - s["own_frees"].get(name, 0))
                    peak = max(s["peak"].get(name, 0), begin)
                    sums = (u.allocated, u.allocations, u.freed, u.frees, *survived)
                    if u.allocations or u.frees or s["count"].get(name):
                        rows.append((id, s["n"], s["start"], s["end"], name, *sums, begin, s["live"][name], peak))
                    if name in ("malloc", "mmap"):
                        whole = [a + b for a, b in zip(whole, sums)]
                rows.append((id, s["n"], s["start"], s["end"], None, *whole, s["all_begin"], s["all_live"], s["all"]))
        return sorted(rows, key=str)

    def snapshot_rows(self, per_name):
        """(scope, heap, phase, ns, live, created, deleted) of the first instances of each name to close."""
        kept, rows = {}, []
        touched = {(row[0], row[1]) for row in self.instance_rows()}
        for s in self.closed_order():
            key = (self.threads[s.thread]["process"], s.name, s.category)
            kept[key] = kept.get(key, 0) + 1
            if kept[key] > per_name:
                continue
            for name in {**s.after, **dict.fromkeys(self.defined)}:
                if (s.id, name) not in touched:
                    continue
                base_ns, *base = s.baseline.get(name, (s.baseline_ns, 0, 0, 0))
                before, after = s.live_before.get(name, (0, 0, 0)), s.after.get(name, (0, 0, 0))
                peak, peak_ns, *at_peak = s.peak.get(name, (0, s.start, 0, 0))
                looks = [("baseline", base_ns, *base), ("before", s.start, *before), ("peak", peak_ns, peak, *at_peak), ("after", s.end, *after)]
                last = None
                for phase, ns, live, made, gone in looks:
                    is_behind = last and last[2] <= ns
                    rows.append((s.id, name, phase, ns, live, *((max(made - last[0], 0), max(gone - last[1], 0)) if is_behind else (None, None))))
                    last = (made, gone, ns)
        return sorted(rows, key=str)

    def closed_order(self):
        return self.closed
