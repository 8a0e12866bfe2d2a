#!/usr/bin/env python3
"""What recording PyTorch costs: a small model's training loop, and one operator.

    torch_bench.py BUILD [--python PYTHON] [--rounds N] [--steps N] [--instructions]

Training: the loop's own wall and processor time, without the import, on one thread, bare and under each tool, interleaved: tidemark with all it does by default
and without its PyTorch part, PyTorch's machinery for callbacks alone (with some that do nothing), torch.profiler with memory and stacks, memray with native
stacks off. Ratios of medians to the bare runs of the same rounds. Two models: "quickstart", that of PyTorch's first tutorial (784-512-512-10, a batch of 64, SGD),
a small model as people train them; and "tiny" (64-256-256-10, a batch of 128, Adam), where most of a step is not arithmetic: the worst case. glibc is told to keep
what is freed: otherwise it gives memory back and gets it again at each step or not, by chance, and bare runs differ by a tenth among themselves.

Operator: thread processor time of `x.add_(y)` on one element, in one process at a time. PyTorch's machinery for callbacks costs by itself: it is measured with
callbacks that do nothing. Our own part is (recorded - recorded with --torch=off) - (with empty callbacks - bare); and, alone and so with less noise, what
fixtures/programs/torch_operators.c takes for an operator more than with --torch=off.

--instructions: the same training step under callgrind instead, in instructions, which do not depend on how busy the machine is: bare, with callbacks that do
nothing (PyTorch's own part), recorded with --torch=off, without Python stacks, and with everything. Some minutes a case.

Python stack: what a malloc of fixtures/programs/malloc_loop.c takes more than with --python=off, called from ten Python functions that stand still.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

TRAINING = '''
import sys, time, torch
steps, kind, profiled = int(sys.argv[1]), sys.argv[2], "profiled" in sys.argv[3:]
torch.manual_seed(0)
torch.set_num_threads(1)
inputs, hidden, batch = (784, 512, 64) if kind == "quickstart" else (64, 256, 128)
model = torch.nn.Sequential(torch.nn.Linear(inputs, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3) if kind == "quickstart" else torch.optim.Adam(model.parameters())
data, target = torch.rand(batch, inputs), torch.randint(0, 10, (batch,))
def step():
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(data), target).backward()
    optimizer.step()
for _ in range(20):
    step()
if "counted" in sys.argv[3:]:
    import ctypes
    valgrind = ctypes.CDLL(sys.argv[4])
    valgrind.begin()
    for _ in range(steps):
        step()
    valgrind.end()
    sys.exit()
if profiled:
    from torch.profiler import profile, ProfilerActivity
    profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True, with_stack=True)
    profiler.__enter__()
wall, cpu = time.perf_counter(), time.process_time()
for _ in range(steps):
    step()
print("@", (time.perf_counter() - wall) / steps * 1e6, (time.process_time() - cpu) / steps * 1e6)
'''

EMPTY = '''
import ctypes, sys, torch
class Callback(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("end", ctypes.c_void_p), ("probability", ctypes.c_double), ("scopes", ctypes.c_uint8 * 64)]
def add_nothing(library, *kinds):
    nothing = ctypes.CDLL(library)
    path = next(line.split()[-1] for line in open("/proc/self/maps") if "/libtorch_cpu.so" in line)
    add = ctypes.CDLL(path)["_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE"]
    add.argtypes, add.restype = [Callback], ctypes.c_uint64
    for kind in kinds:
        callback = Callback(ctypes.cast(nothing.start, ctypes.c_void_p), ctypes.cast(nothing.end, ctypes.c_void_p), 1.0)
        callback.scopes[kind] = 1
        add(callback)
'''

OPERATOR = EMPTY + '''
import time
if len(sys.argv) > 1:
    add_nothing(sys.argv[1], 0)
torch.set_num_threads(1)
x, y = torch.zeros(1), torch.zeros(1)
best = 1e9
with torch.no_grad():
    for _ in range(15):
        begin = time.thread_time()
        for _ in range(50000):
            x.add_(y)
        best = min(best, time.thread_time() - begin)
print("@", best / 50000 * 1e9, 0)
'''

DEEP = """
import ctypes, sys
pairs = ctypes.CDLL(sys.argv[1]).pairs
pairs.restype, pairs.argtypes = ctypes.c_uint64, [ctypes.c_uint64]
def down(n):
    return down(n - 1) if n else pairs(1000000)
print("@", down(8) / 1000, 0)
"""

COUNTER = "#include <valgrind/callgrind.h>\nvoid begin(void) { CALLGRIND_START_INSTRUMENTATION; }\nvoid end(void) { CALLGRIND_STOP_INSTRUMENTATION; }\n"
NOTHING = "void **start(void **c, const void *f) { *c = 0; return c; }\nvoid end(const void *f, void *c) {}\n"


def figures(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith("@"):
            return [float(n) for n in line.split()[1:]]
        if line.endswith(" calls"):  # torch_host.c
            return [float(line.split()[0]), 0]
    sys.exit(f"torch_bench: no figure from {command}:\n{done.stderr[-1000:]}")


def medians(cases, rounds):
    """{name: [median of each figure]}, the cases interleaved."""
    runs = {name: [] for name in cases}
    for _ in range(rounds):
        for name, command in cases.items():
            runs[name].append(figures(command))
    return {name: [statistics.median(column) for column in zip(*figures_of)] for name, figures_of in runs.items()}


def count(training, recorded, work, steps):
    """Instructions of a step, case by case."""
    counter, out = (os.path.join(work, name) for name in ("counter.so", "callgrind.out"))
    grind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]
    python, script = training[:2]
    plain = [*grind, python, script, str(steps), "tiny", "counted", counter]
    cases = {"bare": plain, "empty callbacks": [*grind, python, os.path.join(work, "empty.py"), *plain[len(grind) + 2:]],
             "tidemark --torch=off": [*recorded, "--torch=off", *plain], "tidemark --python=off": [*recorded, "--python=off", *plain], "tidemark": [*recorded, *plain]}
    bare = None
    for name, command in cases.items():
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        found = re.search(r"Collected : (\d+)", done.stderr)
        if not found:
            sys.exit(f"torch_bench: no count from {command}:\n{done.stderr[-1000:]}")
        each = int(found[1]) / steps
        bare = bare or each
        print(f"  {name:<24} {each:12,.0f} instructions a step   +{each - bare:10,.0f}   x{each / bare:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--instructions", action="store_true", help="count instructions instead of time")
    options = parser.parse_args()
    if subprocess.run([options.python, "-c", "import torch"], stderr=subprocess.DEVNULL, check=False).returncode:
        sys.exit(f"torch_bench: {options.python} cannot import torch")
    os.environ.update(MALLOC_TRIM_THRESHOLD_=str(256 << 20), MALLOC_MMAP_THRESHOLD_=str(32 << 20))
    recorder = os.path.join(os.path.abspath(options.build), "bin/tidemark-record")
    with tempfile.TemporaryDirectory() as work:
        def path(name):
            return os.path.join(work, name)

        empty = f"{EMPTY}\nadd_nothing({path('nothing.so')!r}, 0, 1, 2, 7)\n{TRAINING}"
        for name, text in (("training.py", TRAINING), ("empty.py", empty), ("one_operator.py", OPERATOR), ("nothing.c", NOTHING), ("deep.py", DEEP)):
            with open(path(name), "w", encoding="utf-8") as file:
                file.write(text)
        programs = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../fixtures/programs")
        for source in (path("nothing.c"), f"{programs}/torch_operators.c", f"{programs}/malloc_loop.c"):
            subprocess.run(["gcc", "-O2", "-w", "-shared", "-fPIC", "-o", path(os.path.basename(source)[:-1] + "so"), source], check=True)
        subprocess.run(["gcc", "-O2", "-w", "-o", path("host"), f"{programs}/torch_host.c"], check=True)
        recorded = [recorder, "--quiet", "--force", "--names=none", "-o", path("run.tmk")]
        training = [options.python, path("training.py"), str(options.steps)]
        if options.instructions:
            with open(path("counter.c"), "w", encoding="utf-8") as file:
                file.write(COUNTER)
            subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", path("counter.so"), path("counter.c")], check=True)
            count(training, recorded, work, min(options.steps, 10))
            return
        has_memray = subprocess.run([options.python, "-c", "import memray"], stderr=subprocess.DEVNULL, check=False).returncode == 0
        for model in ("quickstart", "tiny"):
            loop = [*training, model]
            cases = {"bare": loop, "tidemark": [*recorded, *loop], "tidemark --torch=off": [*recorded, "--torch=off", *loop],
                     "empty callbacks": [options.python, path("empty.py"), *loop[2:]], "torch.profiler": [*loop, "profiled"]}
            if has_memray:
                cases["memray"] = [options.python, "-m", "memray", "run", "-q", "-f", "-o", path("memray.bin"), *loop[1:]]
            found = medians(cases, options.rounds)
            print(f"training step of the {model} model, median of {options.rounds} rounds of {options.steps} steps")
            for name, (wall, cpu) in found.items():
                print(f"  {name:<24} {wall:9.1f} us   x{wall / found['bare'][0]:.3f}   cpu x{cpu / found['bare'][1]:.3f}", flush=True)
        operator = [options.python, path("one_operator.py")]
        found = medians({"bare": operator, "empty": [*operator, path("nothing.so")], "off": [*recorded, "--torch=off", *operator], "on": [*recorded, *operator]},
                        options.rounds)
        bare, empty, off, on = (found[name][0] for name in ("bare", "empty", "off", "on"))
        print(f"operator add_ on one element: bare {bare:.0f} ns, with empty callbacks +{empty - bare:.0f}, recorded without operators +{off - bare:.0f}, "
              f"with operators +{on - bare:.0f}; our own part of an operator scope {on - off - (empty - bare):.0f} ns", flush=True)
        alone, deep = ["env", "COUNT=2000000", path("host"), path("torch_operators.so")], [options.python, path("deep.py"), path("malloc_loop.so")]
        found = medians({"operator off": [*recorded, "--torch=off", *alone], "operator on": [*recorded, *alone],
                         "deep off": [*recorded, "--python=off", *deep], "deep on": [*recorded, *deep]}, options.rounds)
        print(f"alone: an operator scope {found['operator on'][0] - found['operator off'][0]:.0f} ns, "
              f"an unchanged Python stack of depth 10 {found['deep on'][0] - found['deep off'][0]:.1f} ns")


main()
