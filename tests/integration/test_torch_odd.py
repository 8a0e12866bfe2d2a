"""What training programs do besides calling operators: compiled functions, loader workers, tensors shared between processes, tensors that live to the end.

Oracle: figures added up by hand, beside each script. With every PyTorch of this machine that has the feature.
"""
import os

from pythons import torches
from tidemark_test import ROOT, main, test

COMPILED = """
import sys, torch
from torch.profiler import record_function
torch.set_num_threads(1)
def f(x):
    return torch.relu(x * 2 + 1)
compiled = torch.compile(f, backend=sys.argv[1])
x = torch.rand(1000, 1000)
with torch.no_grad():
    compiled(x)
    with record_function("compiled"):
        y = compiled(x)
    with record_function("plain"):
        z = f(x)
print(bool((y == z).all()))
"""
PROFILED = """
import tidemark, torch
@tidemark.profile
def f(x):
    return x.sin() + 1
def g(x):
    return x.cos() + 1
class Module(torch.nn.Module):
    def forward(self, x):
        return g(x)
g = tidemark.profile(g)
Module.forward = tidemark.profile(Module.forward)
for called in (f, g, Module()):
    print(torch.compile(called, backend="eager")(torch.ones(2)).shape)
"""
WHOLE = """
import sys, tidemark, torch
from torch._dynamo.utils import counters
counts = []
def backend(module, _inputs):
    counts.append(len(module.graph.nodes))
    return module.forward
def scoped(x):
    with tidemark.scope("whole"):
        return x.sin()
def stepped(x):
    tidemark.step(1)
    return x.sin()
def marked(x):
    tidemark.mark("whole")
    tidemark.snapshot("whole")
    return x.sin()
for f in map(globals().get, sys.argv[1:]):
    for fullgraph in (True, False):
        torch._dynamo.reset()
        with tidemark.scope("around"):
            compiled = torch.compile(f, backend=backend, fullgraph=fullgraph)
            for _ in range(3):
                print(f.__name__, compiled(torch.ones(2)).shape)
print(counts, dict(counters["frames"]))
with tidemark.scope("eager"): scoped(torch.ones(2))
"""
LOADER = """
import sys, torch
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset
class Items(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        with record_function("item"):
            return torch.empty(25000).fill_(index)
if __name__ == "__main__":
    for batch in DataLoader(Items(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1]):
        assert batch.shape == (2, 25000)
"""
SHARED = """
import sys, torch, torch.multiprocessing as mp
from torch.profiler import record_function
def child(shared, queue):
    with record_function("child"):
        shared.add_(1)
        mine = torch.empty(25000)
    queue.put(float(shared.sum()))
if __name__ == "__main__":
    torch.set_num_threads(1)
    context = mp.get_context(sys.argv[1])
    with record_function("shares"):
        shared = torch.zeros(1000, 1000)
        shared.share_memory_()
    queue = context.SimpleQueue()
    process = context.Process(target=child, args=(shared, queue))
    process.start()
    print(queue.get())
    process.join()
"""
LIVE = """import torch
weights = torch.ones(1000, 1000)
class Holder: pass
holder = Holder()
holder.me = holder
holder.more = torch.zeros(500, 1000)
class Late:
    def __del__(self): self.kept = torch.ones(100)
late = Late()
"""
TOTAL = "SELECT calls, total_net_bytes FROM scope_total WHERE name = ? AND heap = ?"


def script(t, text):
    with open(t.path("odd.py"), "w", encoding="utf-8") as file:
        file.write(text)
    return t.path("odd.py")


def handle_of(version):
    """Bytes that record_function frees in its scope and allocated outside of it."""
    return 4 if version < (2, 0) else 0


def total(db, name, heap="torch.cpu"):
    """Instances and net bytes of a scope in all processes."""
    rows = db.rows(TOTAL, name, heap)
    return sum(row[0] for row in rows), sum(row[1] for row in rows)


def compiled(t, backend):
    """The result is 4,000,000 bytes, whatever happens on the way to it."""
    found = [python for python, version in torches(t) if version >= (2, 1)]
    if not found:
        t.skip("no PyTorch here has torch.compile")
    for python in found:
        recording = t.record([python, script(t, COMPILED), backend], "--names=none", "--stacks=off")
        t.equal(recording.text, "True\n", f"{python}: what {backend} computes")
        db = t.imported(recording)
        for name in ("compiled", "plain"):
            t.equal(total(db, name), (1, 4000000), f"{python}, {backend}: {name}")


@test
def compiled_eagerly(t):
    compiled(t, "eager")


@test
def compiled_with_profile(t):
    """A function of @tidemark.profile is compiled without a word that it is not compiled with when it is not recorded."""
    found = [python for python, version in torches(t) if version >= (2, 1)]
    if not found:
        t.skip("no PyTorch here has torch.compile")
    for python in found:
        env = {"PYTHONPATH": os.path.join(ROOT, "recorder")}
        recording = t.record([python, script(t, PROFILED)], "--names=none", "--stacks=off", env=env)
        t.equal(recording.text, "torch.Size([2])\n" * 3, f"{python}: output")
        t.check(b"Dynamo" not in recording.program_err, f"{python}: {recording.program_err.decode()}")


def whole(t, record, *functions):
    """With fullgraph=True, too, a function is compiled as one graph, once, and recorded as it is when not."""
    found = [python for python, version in torches(t) if version >= (2, 1)]
    if not found:
        t.skip("no PyTorch here has torch.compile")
    env = {"PYTHONPATH": os.path.join(ROOT, "recorder")}
    for python in found:
        bare = t.run([python, script(t, WHOLE), *functions], env=env, status=0)
        calls = 2 * len(functions)
        t.equal(bare.text.splitlines()[:-1], [f"{name} torch.Size([2])" for name in functions for _ in range(6)], f"{python}: output")
        t.equal(bare.text.splitlines()[-1].count(","), calls, f"{python}: graphs and frames of {functions}: {bare.text.splitlines()[-1]}")
        if record:
            recording = t.record([python, script(t, WHOLE), *functions], "--names=none", "--stacks=off", env=env, status=0)
            t.equal(recording.text, bare.text, f"{python}: output and graphs when recorded")
            db = t.imported(recording)
            t.equal(db.rows("SELECT name, count(*) FROM scope WHERE name IN ('around', 'eager', 'whole') GROUP BY 1 ORDER BY 1"),
                    [("around", calls), ("eager", 1), ("whole", 1)], f"{python}: scopes, of code that is not compiled")
            t.equal(db.rows("SELECT kind, count FROM loss"), [], f"{python}: losses")


@test
def a_scope_in_compiled_code(t):
    whole(t, False, "scoped")


@test
def compiled_whole(t):
    whole(t, True, "scoped", "stepped", "marked")


@test
def compiled_ahead(t):
    compiled(t, "aot_eager")


@test(long=True)
def compiled_to_code(t):
    t.need("g++")
    compiled(t, "inductor")


@test
def workers_of_a_loader(t):
    """Forked and spawned: four items of 100,000 bytes, each in its scope, none of them in the process that asks."""
    for python, version in torches(t):
        for method in ("fork", "spawn") if version >= (2, 0) else ("fork",):
            db = t.imported(t.record([python, script(t, LOADER), method], "--names=none", "--stacks=off"))
            t.equal(total(db, "item"), (4, 4 * (100000 - handle_of(version))), f"torch {version}, {method}: items")
            t.equal(db.value("SELECT count(*) FROM scope WHERE name = 'item' AND process_id = 1"), 0, f"torch {version}, {method}: items of the first process")


@test
def tensors_that_are_shared(t):
    """share_memory_() moves 4,000,000 bytes from malloc into a mapping: net the same for torch.cpu; the child has 100,000 of its own, and none for the shared one."""
    for python, version in torches(t):
        for method in ("fork", "spawn") if version >= (2, 0) else ("fork",):
            recording = t.record([python, script(t, SHARED), method], "--names=none", "--stacks=off")
            t.equal(recording.text, "1000000.0\n", f"torch {version}, {method}: the sum")
            db = t.imported(recording)
            t.equal(total(db, "shares"), (1, 4000000 - handle_of(version)), f"torch {version}, {method}: tensors of shares")
            t.equal(total(db, "shares", "mmap-file"), (1, 4000000), f"torch {version}, {method}: mappings of shares")
            t.equal(total(db, "child"), (1, 100000 - handle_of(version)), f"torch {version}, {method}: tensors of the child")


@test
def tensors_that_live_to_the_end(t):
    """What is live when the interpreter begins to finalize has its line; what comes later changes nothing of that."""
    for python, version in torches(t):
        recording = t.record([python, script(t, LIVE)], "--names=none")
        db = t.imported(recording)
        t.equal(db.rows("SELECT live_bytes, live_count, function, file, line FROM live_at_exit WHERE heap = 'torch.cpu' ORDER BY live_bytes DESC LIMIT 2"),
                [(4000000, 1, "<module>", t.path("odd.py"), 2), (2000000, 1, "<module>", t.path("odd.py"), 6)], f"torch {version}: live at exit")
        t.equal(db.value("SELECT sum(live_bytes) FROM live_at_exit WHERE heap = 'torch.cpu' AND file LIKE '%odd.py'"), 6000000, f"torch {version}: of the script")
        t.equal(db.rows("SELECT end_kind, end_code FROM process"), [("exit", 0)], f"torch {version}: how it ended")


main()
