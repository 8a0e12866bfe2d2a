"""PyTorch: tensors as heaps, operators and record_function blocks as scopes, in every PyTorch that an interpreter of this machine can import.

Interpreters: pythons.py finds them.

Oracles: figures added up by hand (the opening comments of fixtures/torch/*.py and of fixtures/programs/torch_like.c), and torch.profiler's own records of the
same run. What the trace says is read here once more from its events alone (class Trace), with the rules of schema/format.md.
"""
import bisect
import itertools
import json
import os
import subprocess

from pythons import torches
from tidemark_test import main, test

class Scope:
    def __init__(self, **fields):
        self.__dict__.update(fields, end=None, total=0, own=0, children=[])

    def above(self):
        """The scopes around this one, innermost first."""
        at = self.parent
        while at:
            yield at
            at = at.parent


class Trace:
    """Scopes and torch.cpu of a trace, from its events."""

    WANTED = "^(string|heap|thread_start|process_end|note|pool_state|segment|event 0x(0a|26|d2|d3|d4)) "

    def __init__(self, t, recording):
        with subprocess.Popen([os.path.join(t.build, "tests/integration/tmkdump"), recording.trace], stdout=subprocess.PIPE) as dump:
            out = subprocess.run(["grep", "-E", self.WANTED], stdin=dump.stdout, stdout=subprocess.PIPE, check=False).stdout.decode()
        self.strings, self.heaps, self.processes, self.notes, self.pools, self.ends = {0: ""}, {}, {}, [], [], {}
        self.scopes, self.unmatched = [], 0
        thread, events = None, []
        for line in out.splitlines():
            word, *rest = line.split()
            fields = dict(part.split("=", 1) for part in rest if "=" in part)
            if word == "string":
                self.strings[int(fields["id"])] = fields["bytes"].encode().decode("unicode_escape")
            elif word == "heap":
                self.heaps[int(fields["id"])] = fields
            elif word == "thread_start":
                self.processes[fields["id"]] = fields["process"]
            elif word == "process_end":
                self.ends[fields["process"]] = (fields["kind"], fields["code"])
            elif word == "note":
                self.notes.append((fields["kind"], fields["text"].encode().decode("unicode_escape")))
            elif word == "pool_state":
                self.pools.append(fields)
            elif word == "segment":
                thread = fields["thread"]
            else:
                events.append((int(fields["time"]), len(events), thread, int(rest[0], 16), fields))
        self.replay(sorted(events))

    def replay(self, events):
        stacks, open_scopes, live = {}, {}, {}
        for time, _, thread, op, fields in events:
            process, stack = self.processes[thread], stacks.setdefault(thread, [])
            if op == 0xD2:
                scope = Scope(name=self.strings[int(fields["text"])], category=self.strings[int(fields["heap"])], link=int(fields["old"], 16), start=time,
                              thread=thread, process=process, parent=stack[-1] if stack else None)
                if scope.parent:
                    scope.parent.children.append(scope)
                self.scopes.append(scope)
                stack.append(scope)
                open_scopes[process, fields["addr"]] = scope
            elif op in (0xD3, 0xD4):
                scope = open_scopes.pop((process, fields["addr"]), None)
                if scope:
                    scope.end = time
                    stacks[scope.thread].remove(scope)
                else:
                    self.unmatched += 1
            elif self.heaps[int(fields["heap"])]["name"] == "torch.cpu":
                size = int(fields["size"])
                if op == 0x0A:
                    live[process, fields["addr"]] = size
                else:
                    size = -live.pop((process, fields["old"]), 0)
                if stack:
                    stack[-1].own += size
                    for scope in [stack[-1], *stack[-1].above()]:
                        scope.total += size

    def named(self, name):
        return [scope for scope in self.scopes if scope.name == name]

    def one(self, t, name):
        scopes = self.named(name)
        t.equal(len(scopes), 1, f"instances of {name}")
        return scopes[0]


def script(t, name):
    return os.path.join(t.root, "fixtures/torch", name)


def handle_of(version):
    """Bytes that record_function frees in its scope and allocated outside of it."""
    return 4 if version < (2, 0) else 0


@test
def known_examples(t):
    for python, version in torches(t):
        recording = t.same_as_bare([python, script(t, "examples.py")], "--stacks=off", "--names=none")
        trace = Trace(t, recording)
        for name, wanted in (("sum", 12000000), ("matmul", 4000000), ("outer", 8000000), ("inner", 4000000), ("released", -4000000), ("raises", 4000)):
            scope = trace.one(t, name)
            t.equal(scope.total, wanted - handle_of(version), f"net bytes of {name} with torch {version}")
            t.equal(scope.category, "torch.user", f"category of {name}")
        t.equal([s.name for s in trace.scopes if s.end is None], [], "scopes that stay open")
        t.equal(trace.unmatched, 0, "ends of nothing")
        t.equal([n for n in trace.notes if n[0] == "torch"], [], "notes about torch")
        inner = trace.one(t, "inner")
        t.equal(inner.parent.name, "outer", "the scope around inner")
        t.check(any(s.name == "aten::relu" and s.category == "torch.op" for s in inner.children), "relu is an operator in inner")
        t.check("aten::mm" in {s.name for s in trace.one(t, "raises").children}, "the operator that throws has its scope")


@test
def off(t):
    for python, _ in torches(t):
        trace = Trace(t, t.record([python, script(t, "examples.py")], "--stacks=off", "--names=none", "--torch=off"))
        t.equal((len(trace.scopes), [h["name"] for h in trace.heaps.values() if "torch" in h["name"]]), (0, []), "scopes and heaps with --torch=off")


class Memory:
    """torch.profiler's records of memory, (time, size)."""

    def __init__(self, records, nanoseconds):
        records = sorted(map(tuple, records))
        self.end_ticks = 1 if nanoseconds else 2 # microseconds: start and duration are cut off each on its own, so that an end may lie a tick later
        self.times, self.sizes = [time for time, _ in records], [size for _, size in records]
        self.sums = [0, *itertools.accumulate(self.sizes)]

    def at(self, time):
        return self.sizes[bisect.bisect_left(self.times, time):bisect.bisect_right(self.times, time)]

    def bounds(self, start, duration):
        """What the profiler's rule gives a scope for certain, and the records that fall onto the very tick of its ends."""
        first, last = bisect.bisect_right(self.times, start), bisect.bisect_left(self.times, start + duration)
        ends = [start + duration + i for i in range(self.end_ticks)]
        return self.sums[max(first, last)] - self.sums[first], self.at(start) + [size for end in ends if end > start for size in self.at(end)]


def sums_of(values):
    sums = {0}
    for value in values:
        sums |= {s + value for s in sums}
    return sums


@test
def random_programs_as_torch_profiler_counts(t):
    """To the byte where the profiler's clock tells what lies in a scope; where a record falls onto the tick of an end, the difference is such records."""
    for python, version in torches(t):
        compared = tied = 0
        for seed in range(20 if t.long else 1):
            recording = t.record([python, script(t, "nested.py"), str(seed)], "--stacks=off", "--names=none")
            told = json.loads(recording.text)
            trace, memory = Trace(t, recording), Memory(told["memory"], told["nanoseconds"])
            for name, start, duration in told["scopes"]:
                if not name.startswith("scope "):
                    continue
                total = trace.one(t, name).total
                inside, ties = memory.bounds(start, duration)
                compared += 1
                if ties:
                    tied += 1
                    t.check(total - inside in sums_of(ties[:16]), f"seed {seed}, torch {version}: {name} holds {total}, torch.profiler {inside} and some of {ties}")
                else:
                    t.equal(total, inside, f"seed {seed}, torch {version}: bytes of {name}")
                    t.equal(total, told["totals"][name], f"seed {seed}, torch {version}: bytes of {name} in key_averages()")
            if told["nanoseconds"]:
                operators_agree(t, trace, told, memory, f"seed {seed}, torch {version}")
        t.check(compared > 20 and tied < compared, f"{compared} scopes were compared, {tied} of them with ties")


def operators_agree(t, trace, told, memory, what):
    """The same for operators, name by name, since their instances have no names of their own."""
    wanted, got = {}, {}
    for name, start, duration in told["scopes"]:
        inside, ties = memory.bounds(start, duration)
        wanted.setdefault(name, []).append((inside, bool(ties)))
    begin = min(start for _, start, _ in told["scopes"])
    first = min(scope.start for scope in trace.scopes if scope.name == "scope 0")
    t.check(begin and first, what)
    for scope in trace.scopes:
        if scope.start >= first:
            got.setdefault(scope.name, []).append(scope.total)
    for name, totals in wanted.items():
        if not any(tie for _, tie in totals):
            t.equal(sorted(got.get(name, [])), sorted(total for total, _ in totals), f"{what}: bytes of each {name}")


@test
def threads_keep_their_own(t):
    """Each thread's scope has its own bytes; torch.profiler does not see the second thread at all."""
    for python, version in torches(t):
        recording = t.record([python, script(t, "threads.py")], "--stacks=off", "--names=none")
        trace, told = Trace(t, recording), json.loads(recording.text)
        slow, fast = trace.one(t, "slow"), trace.one(t, "fast")
        t.equal((slow.total, fast.total), (400 - handle_of(version), 1000000 - handle_of(version)), f"bytes of slow and fast with torch {version}")
        t.check(slow.thread != fast.thread and slow.start < fast.start and fast.end < slow.end, "the scopes overlap on two threads")
        t.equal(told, {"slow": slow.total}, "what torch.profiler says")


@test
def operators_that_dispatch_to_themselves(t):
    """`scopes --torch-compat` has each name as torch.profiler's list has it."""
    for python, version in torches(t):
        program = script(t, "redispatch.py")
        told = [tuple(row) for row in json.loads(t.run([python, program, "profile"], status=0).out)]
        db = t.imported(t.record([python, program], "--stacks=off", "--names=none"))
        answer = t.ask("scopes", db.path, "--torch-compat", "--heap=torch.cpu", "--format=json").text
        rows = sorted((r["name"], r["calls"], r["self_net_bytes"], r["total_net_bytes"]) for r in json.loads(answer))
        t.check({("aten::sort", 1), ("beside", 2)} <= {row[:2] for row in rows} & {row[:2] for row in told}, f"calls, torch {version}: {rows}, {told}")
        if version >= (2, 0):  # before, the block that asks for it has an operator of its own in it
            t.check({("alone", 1, 0, 4000000), ("beside", 2, 0, 12000000)} <= set(rows), f"blocks, torch {version}: {rows}")
        if version >= (2, 5):  # whose profiler counts nanoseconds, so that no two events fall onto one tick
            t.equal(rows, told, f"torch {version}")


@test
def backward_is_linked(t):
    for python, version in torches(t):
        trace = Trace(t, t.record([python, script(t, "autograd.py")], "--stacks=off", "--names=none"))
        forward, backward = trace.one(t, "linked forward"), trace.one(t, "linked backward")
        t.check(forward.thread != backward.thread, "two threads")
        for node, operator in (("SumBackward0", "aten::sum"), ("MulBackward0", "aten::mul"), ("AddmmBackward0", "aten::addmm"), ("TBackward0", "aten::t")):
            later = [s for s in trace.named(node) if s.category == "torch.backward" and backward in s.above()]
            t.equal(len(later), 1, f"{node} on the second thread, torch {version}")
            t.check(later[0].link, f"{node} has a link")
            before = [s for s in trace.scopes if s.link == later[0].link and s.category == "torch.op" and s.start < later[0].start]
            t.equal((before[-1].name, before[-1].thread), (operator, forward.thread), f"the last forward operator with the link of {node}, torch {version}")
        for reentrant in (True, False):
            first, again = [s for s in trace.named("block") if {a.name for a in s.above()} & {f"forward {reentrant}", f"backward {reentrant}"}]
            t.equal(first.parent.name, "CheckpointFunction" if reentrant else f"forward {reentrant}", "what the block first runs in")
            around = [a.name for a in again.above()]
            t.check(around[-1] == f"backward {reentrant}" and any("Backward" in name for name in around), f"the block runs again in the backward pass: {around}")


CHAIN = """
import tidemark, torch
torch.set_num_threads(1)
def chain(n):
    y = torch.rand(4, requires_grad=True)
    for _ in range(n):
        y = y * 2
    return y.sum()
chain(100).backward()
loss = chain(100)
with tidemark.scope("backward pass"):
    loss.backward()
"""


@test
def what_callbacks_need_is_not_the_programs(t):
    """PyTorch would rebuild its lists of callbacks twice a node of the backward pass, five blocks each. It makes names for its nodes: about 3 blocks each."""
    with open(t.path("chain.py"), "w", encoding="utf-8") as file:
        file.write(CHAIN)
    for python, version in torches(t):
        made = {}
        for torch in ("auto", "off"):
            db = t.imported(t.record([python, t.path("chain.py")], f"--torch={torch}", "--stacks=off", "--names=none", env={"PYTHONPATH": os.path.join(t.root, "recorder")}))
            made[torch] = db.value("SELECT total_allocations FROM scope_total WHERE name = 'backward pass' AND heap = 'malloc'")
            t.equal(db.rows("SELECT kind, count FROM loss"), [], f"torch {version}: losses")
        t.check(made["off"] <= made["auto"] < made["off"] + 600, f"torch {version}: blocks of 100 nodes: {made}")


THROWS = """#include <cstdlib>
#include <new>
void *volatile kept[8];
namespace at {
struct RecordFunctionTLS { int how; };
__attribute__((noinline, visibility("default"))) void set_record_function_tls_(RecordFunctionTLS const &tls) {
	kept[0] = malloc(70000 + tls.how);
	if (tls.how == 1) throw std::bad_alloc();
	if (tls.how == 2) return free(kept[0]);
}
}
extern "C" __attribute__((visibility("default"))) void run(int how) {
	at::RecordFunctionTLS tls = { how };
	try { at::set_record_function_tls_(tls); } catch (std::bad_alloc &) { kept[1] = malloc(80000 + how); }
	kept[2] = malloc(90000 + how);
}
"""
LOADS = """#include <dlfcn.h>
int main(int argc, char **argv) {
	void *library = dlopen(argv[1], RTLD_NOW);
	void (*run)(int) = library ? (void (*)(int))dlsym(library, "run") : 0;
	for (int i = 0; run && i < 9; i++) run(i % 3);
	return !run || argc < 2;
}
"""


@test
def callbacks_that_are_left_by_an_exception(t):
    """Blocks that are asked for while PyTorch takes over a thread's state are not the program's; what comes after is, however that was left."""
    for name, text, flags in (("throws.cc", THROWS, ["g++", "-O2", "-fno-builtin", "-shared", "-fPIC", "-o", "throws.so"]), ("loads.c", LOADS, ["gcc", "-o", "loads"])):
        with open(t.path(name), "w", encoding="ascii") as file:
            file.write(text)
        t.run([*flags, name, "-ldl"], status=0)
    db = t.imported(t.record([t.path("loads"), t.path("throws.so")]))
    rows = db.rows("select size_bytes, count(*) from allocation where size_bytes between 70000 and 90002 and size_bytes % 10000 < 3 group by 1 order by 1")
    t.equal(rows, [(80001, 3), (90000, 3), (90001, 3), (90002, 3)], "blocks")


STATES = """#include <cstdio>
#include <cstdlib>
#include <vector>
#define SEEN __attribute__((noinline, visibility("default")))
static int sets;
namespace at {
struct RecordFunctionCallback { void *start, *end; double probability; char scopes[64]; };
struct RecordFunction { SEEN const char *name() const; };
const char *RecordFunction::name() const { return "none"; }
SEEN unsigned long addGlobalCallback(RecordFunctionCallback c) { return c.start != nullptr; }
SEEN void init_num_threads() { asm volatile(""); }
struct RecordFunctionTLS { LAYOUT };
static thread_local RecordFunctionTLS state;
SEEN const RecordFunctionTLS &get_record_function_tls_() { return state; }
SEEN void enableRecordFunction(bool enabled) { state.enabled = enabled; }
SEEN void set_record_function_tls_(const RecordFunctionTLS &asked) { sets++; state = asked; }
}
static void set(int callbacks, bool enabled) {
	at::RecordFunctionTLS asked;
	asked.callbacks.assign(callbacks, 7);
	asked.enabled = enabled;
	at::set_record_function_tls_(asked);
	printf("%zu %d, ", at::get_record_function_tls_().callbacks.size(), at::get_record_function_tls_().enabled);
}
extern "C" SEEN int run() {
	at::init_num_threads();
	printf("%d: ", at::get_record_function_tls_().enabled);
	set(0, true), set(0, true), set(0, false), set(0, false), set(0, true), set(2, true), set(2, true), set(0, true), set(0, true);
	fprintf(stderr, "%d sets\\n", sets);
	return 0;
}
"""


@test
def a_state_that_a_thread_has_already(t):
    """It is not set again; one that differs is, and so is every one where the state is not laid out as we know it."""
    host = t.program("torch_host.c")
    layouts = {"known": ("std::vector<int> callbacks; bool enabled = true;", 5), "moved": ("int before = 0; std::vector<int> callbacks; bool enabled = true;", 9),
               "inverted": ("std::vector<int> callbacks; bool other = true; bool enabled = true;", 9)}
    for name, (members, wanted) in layouts.items():
        with open(t.path(f"{name}.cc"), "w", encoding="ascii") as file:
            file.write(STATES.replace("LAYOUT", members))
        library = t.path(f"{name}.so")
        t.run(["g++", "-O2", "-shared", "-fPIC", "-o", library, t.path(f"{name}.cc")], status=0)
        bare = t.run([host, library], status=0)
        t.equal(bare.errors.strip(), "9 sets", "without us")
        recorded = t.run([os.path.join(t.build, "bin/tidemark-record"), "--quiet", "-o", t.path(f"{name}.tmk"), "--", host, library], status=0)
        t.equal(recorded.errors.strip(), f"{wanted} sets", f"sets that came through, layout {name}")
        t.equal(recorded.text, bare.text, f"states, layout {name}")


@test
def workers_and_death(t):
    for python, version in torches(t):
        recording = t.record([python, script(t, "workers.py")], "--stacks=off", "--names=none", status=137)
        trace = Trace(t, recording)
        items = trace.named("item")
        t.equal(len(items), 8, f"items of the workers with torch {version}")
        t.equal({s.total for s in items}, {100000 - handle_of(version)}, "bytes of each item")
        doomed = trace.one(t, "doomed")
        t.check(not {doomed.process} & {s.process for s in items} and len({s.process for s in items}) == 2, "items are made in two processes of their own")
        t.equal((doomed.total, doomed.end), (4000 - handle_of(version), None), "the scope in which the program dies")
        t.equal(trace.one(t, "inference").total, 2000 - handle_of(version), "bytes in inference mode")
        t.equal(len([s for s in trace.named("double") if s.category == "torch.script"]), 3, "calls of the scripted function")


@test
def devices_and_strange_builds(t):
    """A library with the names of libc10 and libtorch_cpu, which reports two devices, has no operators to ask for, and calls its own reporter directly."""
    like = t.program("torch_like.c", "-shared", "-fPIC", name="torch_like.so")
    direct = t.program("torch_like.c", "-shared", "-fPIC", "-Wl,-Bsymbolic", name="torch_direct.so")
    host = t.program("torch_host.c")
    recording = t.same_as_bare([host, like])
    trace = Trace(t, recording)
    db = t.imported(recording)
    t.equal(sorted((h["name"], h["kind"]) for h in trace.heaps.values() if h["name"].startswith("torch")),
            [("torch.cpu", "tensor"), ("torch.cuda:11", "tensor"), ("torch.cuda:3", "tensor"), ("torch.xpu:0", "tensor")], "heaps")
    t.equal([text for kind, text in trace.notes if kind == "torch"], ["this PyTorch cannot be asked for its operators: they are no scopes in this trace"], "notes")
    t.equal(db.rows("select h.name, count(*), sum(size_bytes), count(free_ns) from allocation a join heap h on h.id = a.heap_id where h.name like 'torch%' "
                    "group by 1 order by 1"), [("torch.cpu", 2, 300, 1), ("torch.cuda:11", 1, 1 << 20, 0), ("torch.cuda:3", 2, 768, 1), ("torch.xpu:0", 1, 64, 0)],
            "blocks")
    states = {}
    for pool in trace.pools:  # of those in one millisecond with the same reservation, the first is kept
        states.setdefault(trace.heaps[int(pool["heap"])]["name"], (pool["allocated"], pool["reserved"]))
    t.equal(states, {"torch.cuda:3": ("512", "2097152"), "torch.cuda:11": ("1048576", "20971520"), "torch.xpu:0": ("64", "4096")}, "first pool states")
    recording = t.same_as_bare([host, direct])
    notes = [text for kind, text in Trace(t, recording).notes if kind == "torch"]
    t.equal(len(notes), 1, f"one note: {notes}")
    t.check("torch_direct.so" in notes[0] and "its own reporter" in notes[0], notes[0])
    t.check("its own reporter" in " ".join(t.ask("info", recording.trace).text.split()), "info shows the note") # in lines as wide as the terminal


main()
