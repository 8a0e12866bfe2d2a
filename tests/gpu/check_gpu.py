#!/usr/bin/env python3
"""make check-gpu: what only a machine with a device can show. Uses Python's standard library, the PyTorch that is there, and the tools of a kit. Without PyTorch the parts
calls, rare, versions, refusals, cost, subscriber, tools and killed run; without a device nothing does, and it says so.

    check_gpu.py TOOLS [--out=DIRECTORY] [--python=PYTHON] [--only=PART]... [--rounds=N] [--pairs=N] [--minutes=N]

TOOLS is a directory with bin/tidemark, bin/tidemark-record, lib/libtidemark.so and tidemark.py: build/gpu-kit (make gpu-kit, on a machine with the libraries)
or a build. Toolkits older than the machine's, TOOLS/cuda/VERSION/ with a libcupti.so.N and the libcudart.so.N of its version (both are in NVIDIA's wheels), are
recorded with, too (part: versions). Times are compared in turns: programs stand side by side, three bare and three recorded with each setting, and do a turn of
their work one after the other, --rounds (10) times. One line for each claim: PASS or FAIL, and why; one for each thing that only a real device can tell: ANSWER;
and one for how long each step took: TIME. What is fit to be kept as fixtures/gpu-real/NAME.tmk and NAME.json is put into DIRECTORY/gpu-real: the program is
recorded a second time for it, with few of the blocks of host memory (those of devices and of PyTorch are all there), and must say the same. All lines are in
DIRECTORY/report.txt, too. All parts take a few minutes; --only runs some: training, expandable, streams, calls, rare, versions, refusals, cost, overhead, profiler,
subscriber, tools, frameworks, killed; none begins after --minutes (8). The last line says how many claims failed.
"""
import argparse
import contextlib
import glob
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import real_figures  # noqa: E402

try:
    import sqlite3
except ImportError:
    sys.exit("this Python was built without its module sqlite3: run it with another, and name the one with PyTorch by --python")

SMALL_ENOUGH = 4 << 20  # to be kept as a fixture
STEP_OVERHEAD_MAX, PAIR_NS_MAX = 0.03, 2000
STEPS_A_TURN, PROCESSES = 20, 3  # those that do the same differ by more than their turns do
PROGRAM_TIMEOUT_S = 180  # none takes a tenth of it; a hanging driver must not use up the time on the machine


class Checks:
    def __init__(self, tools, options):
        self.tools, self.out, self.python, self.failed = tools, os.path.abspath(options.out), options.python, 0
        self.rounds, self.pairs = options.rounds, options.pairs
        self.tidemark = os.path.join(tools, "bin/tidemark")
        self.times = []

    def print(self, line):
        print(line, flush=True)
        with open(os.path.join(self.out, "report.txt"), "a", encoding="utf-8") as file:
            file.write(line + "\n")

    def say(self, good, name, why=""):
        self.failed += not good
        self.print(f"{'PASS' if good else 'FAIL'}  {name}{': ' + why if why else ''}")

    @contextlib.contextmanager
    def timed(self, step):
        begin = time.monotonic()
        yield
        self.times.append(f"{step} {time.monotonic() - begin:.1f} s")

    def tell_times(self, name):
        self.print(f"TIME  {name}: {', '.join(self.times)}")
        self.times = []

    def run(self, name, command, env):
        """Its output, or None, which was said."""
        try:
            with self.timed(name):
                done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.say(False, f"{name} runs", f"not within {PROGRAM_TIMEOUT_S} s")
            return None
        if done.returncode:
            self.say(False, f"{name} runs", f"exit status {done.returncode}: {' | '.join(done.stderr.strip().splitlines()[-3:])}")
            return None
        return done.stdout

    def environment(self, **changes):
        return {**os.environ, "TIDEMARK_PY": os.path.dirname(self.find("tidemark.py")), **changes}

    def find(self, name):
        places = [os.path.join(self.tools, name), os.path.join(HERE, "../../recorder", name)]
        return next(p for p in places if os.path.exists(p))

    def record(self, name, program, *options, env=None, arguments=()):
        """Runs a program of this directory under the recorder; the paths of its trace and figures, or None if it failed."""
        trace, figures = os.path.join(self.out, name + ".tmk"), os.path.join(self.out, name + ".json")
        command = [self.tidemark, "record", "--force", "--quiet", "-o", trace, *options, "--", self.python, os.path.join(HERE, program), figures, *arguments]
        return None if self.run(name, command, self.environment(**(env or {}))) is None else (trace, figures)

    @staticmethod
    def figures(path):
        with open(path, encoding="ascii") as file:
            return json.load(file)

    def imported(self, trace):
        """The trace as a database, or None, which was said."""
        path = trace[:-4] + ".db"
        done = self.run(f"import of {os.path.basename(trace)}", [self.tidemark, "import", "--quiet", "--force", trace, "-o", path], self.environment())
        return None if done is None else sqlite3.connect(path)

    def compare(self, name, kind, program, env=None, arguments=(), is_kept=True):
        recorded = self.record(name, program, env=env, arguments=arguments)
        db = self.imported(recorded[0]) if recorded else None
        if not db:
            return
        figures, before = {**self.figures(recorded[1]), "kind": kind}, self.failed
        with self.timed("claims"):
            claims = real_figures.COMPARISONS[kind](db, figures)
        for claim, wrong in claims.items():
            self.say(not wrong, f"{name}: {claim}", "; ".join(wrong[:3]) + (f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""))
        with self.timed("answers"):
            answers = real_figures.answers(db)
        for question, answer in answers.items():
            self.print(f"ANSWER {name}: {question}: {answer}")
        for question, answer in figures.get("answers", {}).items():
            self.print(f"ANSWER {name}: {question}: {answer}")
        wrong = figures.get("failed", [])
        self.say(not wrong, f"{name}: every call of the driver does what it is asked", "; ".join(wrong))
        for function in figures.get("missing", []):
            self.print(f"ANSWER {name}: the driver does not have, or support: {function}")
        lost = [f"{count} of {reason}" for reason, count in db.execute("select kind || ': ' || reason, count from loss")]
        self.say(not lost, f"{name}: nothing is lost", "; ".join(lost))
        notes = [text for text, in db.execute("select text from note where kind = 'gpu'")]
        self.say(not notes, f"{name}: CUPTI was used", "; ".join(notes))
        with open(recorded[1], "w", encoding="ascii") as file:
            json.dump(figures, file, indent=1)
        if self.failed == before and is_kept:
            self.keep(name, kind, program, env)

    def keep(self, name, kind, program, env):
        recorded = self.record(name + "-small", program, "--sample=1MiB", env=env)
        db = self.imported(recorded[0]) if recorded else None
        if not db:
            return
        figures, size = {**self.figures(recorded[1]), "kind": kind}, os.path.getsize(recorded[0])
        wrong = real_figures.differences(kind, db, figures)
        self.say(not wrong, f"{name}: a recording to be kept says the same", "; ".join(wrong[:3]))
        self.say(size <= SMALL_ENOUGH, f"{name}: it is small enough to be kept", f"{size} bytes")
        if wrong or size > SMALL_ENOUGH:
            return
        os.makedirs(os.path.join(self.out, "gpu-real"), exist_ok=True)
        shutil.copy(recorded[0], os.path.join(self.out, "gpu-real", name + ".tmk"))
        with open(os.path.join(self.out, "gpu-real", name + ".json"), "w", encoding="ascii") as file:
            json.dump(figures, file, indent=1)

    def training(self):
        self.compare("training", "training", "train.py")

    def expandable(self):
        """PYTORCH_ALLOC_CONF is the name from 2.9 on, the other the older one."""
        setting = "expandable_segments:True"
        self.compare("training-expandable", "training", "train.py", env={"PYTORCH_ALLOC_CONF": setting, "PYTORCH_CUDA_ALLOC_CONF": setting})

    def streams(self):
        lacking = why_not(self.python, "import torch; torch.cuda.CUDAGraph")
        if lacking:
            self.print(f"skipped: streams, whose graphs PyTorch does not have here ({lacking})")
        else:
            self.compare("streams", "training", "streams.py")

    def frameworks(self):
        """Programs of other frameworks, each with what it says of its own memory."""
        for name, (needs, program, claim, query) in FRAMEWORKS.items():
            if why_not(self.python, f"import {needs}"):
                self.print(f"skipped: {name}, which is not here")
                continue
            script, trace = os.path.join(self.out, name + "_program.py"), os.path.join(self.out, name + ".tmk")
            with open(script, "w", encoding="ascii") as file:
                file.write(program)
            bare = self.run(f"{name} alone", [self.python, script], self.environment())
            out = self.run(name, [self.tidemark, "record", "--force", "--quiet", "-o", trace, "--", self.python, script], self.environment())
            db = self.imported(trace) if out is not None else None
            if bare is None or not db:
                continue
            found, said = db.execute(query).fetchone()[0], int(out.split()[-1])
            self.say(found == said, f"{name}: {claim}", f"{found}, it says {said}")
            lost = db.execute("select kind, reason, count from loss").fetchall()
            self.say(not lost, f"{name}: nothing is lost", str(lost or ""))
            for question, answer in {**real_figures.answers(db), **real_figures.tools(db)}.items():
                if question in FRAMEWORK_ANSWERS:
                    self.print(f"ANSWER {name}: {question}: {answer}")

    def calls(self):
        self.compare("calls", "calls", "calls.py")

    def rare(self):
        self.compare("rare", "rare", "rare.py")

    def toolkits(self):
        """(version, its CUPTI) of those that were brought, the oldest first."""
        found = sorted(glob.glob(os.path.join(self.tools, "cuda", "*", "libcupti.so.*")), key=lambda path: [int(n) for n in re.findall(r"\d+", path.split("/")[-2])])
        return [(path.split("/")[-2], path) for path in found]

    def versions(self):
        """Of older toolkits: the driver's calls under their CUPTI, and a program of their runtime, beside which CUPTI is found by itself."""
        script = self.script("runtime", RUNTIME)
        if not self.toolkits():
            self.print("skipped: versions, of which none was brought")
        for version, cupti in self.toolkits():
            for kind, program, arguments in (("calls", "calls.py", ()), ("rare", "rare.py", ("--without-batches",))):
                self.compare(f"{kind} with {version}", kind, program, {"TIDEMARK_CUPTI": cupti}, arguments, is_kept=False)
            trace = os.path.join(self.out, f"runtime with {version}.tmk")
            runtime = glob.glob(os.path.join(os.path.dirname(cupti), "libcudart.so.*"))
            if not runtime:
                continue
            out = self.run(f"a program of {version}", [self.tidemark, "record", "--force", "--quiet", "-o", trace, "--", self.python, script, runtime[0]], self.environment())
            db = self.imported(trace) if out is not None else None
            if not db:
                continue
            found = db.execute("select h.name, a.api, a.size_bytes from allocation as a join heap as h on h.id = a.heap_id where h.name like 'cuda%' and a.free_ns is not null"
                               " and a.size_bytes >= 3 << 20 order by 3").fetchall()
            said = [tuple(block) for block in json.loads(out)]
            self.say(found == said, f"a program of {version}: every block, with its function, and ended", f"{found}, it made {said}")
            work = db.execute("select kind, size_bytes from gpu_activity where kind in ('memcpy', 'memset') and size_bytes >= 3 << 20 order by 2").fetchall()
            self.say(work == [("memset", 3 << 20), ("memcpy", 5 << 20)], f"a program of {version}: its set and its copy", str(work))
            used = [path for path, in db.execute("select distinct path from module where path like '%libcupti%'")]
            self.say(used == [cupti], f"a program of {version}: the CUPTI beside its runtime is used", str(used))
            for question, answer in (("notes", "select kind, text from note where kind = 'gpu'"), ("lost", "select kind, count, reason from loss")):
                self.print(f"ANSWER a program of {version}: {question}: {db.execute(answer).fetchall()}")

    def script(self, name, text):
        path = os.path.join(self.out, name + ".py")
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        return path

    def refusals(self):
        """What CUPTI refuses, function by function and kind by kind; asked by a program of its own, without a recorder."""
        script = self.script("refusals", REFUSALS)
        for version, cupti in [("its own", ""), *self.toolkits()]:
            out = self.run(f"refusals of {version}", [self.python, script, cupti], self.environment())
            for line in (out or "").splitlines():
                self.print(f"ANSWER refusals of CUPTI, {version}: {line}")

    def around(self):
        """Tools that are put around a program, within the recorder: theirs must work as without us, and a note says what is not ours."""
        script = self.script("fill", FILL.replace("HERE", repr(HERE)))
        for tool, options in AROUND.items():
            path = shutil.which(tool) or next(iter(glob.glob(f"/opt/nvidia/nsight-compute/*/{tool}") + glob.glob(f"/usr/local/cuda/bin/{tool}")), None)
            if not path:
                self.print(f"skipped: tools, {tool}, which is not here")
                continue
            trace, command = os.path.join(self.out, tool + ".tmk"), [path, *options, self.python, script]
            bare = self.run(f"{tool} alone", command, self.environment())
            out = self.run(tool, [self.tidemark, "record", "--force", "--quiet", "-o", trace, "--", *command], self.environment())
            db = self.imported(trace) if out is not None else None
            if bare is None or not db:
                continue
            says = lambda text: [re.sub(r"\d{4,}", "N", line) for line in text.splitlines() if re.search("ERROR SUMMARY|^==PROF== Profiling|^filled", line)]
            self.say(says(bare) == says(out) != [], f"tools: {tool} says the same", f"{says(bare)}, recorded {says(out)}")
            blocks = db.execute("select h.name, count(*) from allocation as a join heap as h on h.id = a.heap_id where h.name like 'cuda%' group by 1").fetchall()
            notes = [text for text, in db.execute("select text from note where kind = 'gpu'")]
            self.say(bool(blocks) != bool(notes), f"tools: with {tool} there are blocks of devices, or a note says why not", f"{blocks}, {notes}")
            self.print(f"ANSWER tools: {tool}: lost: {db.execute('select kind, count, reason from loss').fetchall() or 'none'}; processes:"
                       f" {[os.path.basename(exe or '-') for exe, in db.execute('select exe from process')]}")

    def overhead(self):
        """Beside torch.profiler, which tells less of memory, and what the parts of a recording cost."""
        figures = self.in_turns("train.py", "step", STEPS_A_TURN, {
            "all": [], "with --gpu=off": ["--gpu=off"], "with --stacks=off": ["--stacks=off"], "with --gpu=off --stacks=off --torch=off": ["--gpu=off", "--stacks=off", "--torch=off"],
            "torch.profiler, with memory and stacks": None})
        if figures:
            more = figures["all"] / figures["bare"] - 1
            self.say(more <= STEP_OVERHEAD_MAX, "overhead of a training step", f"{more:+.2%}, at most {STEP_OVERHEAD_MAX:.0%} is wanted")

    def cost(self):
        traces, a_turn = {}, self.pairs // self.rounds
        figures = self.in_turns("calls.py", "pair", a_turn, {"all": [], "with --stacks=off": ["--stacks=off"]}, traces)
        db = self.imported(traces["all"]) if figures else None
        if not db:
            return
        more, pairs = figures["all"] - figures["bare"], a_turn * (self.rounds + 1)
        blocks = db.execute("select count(*), count(free_ns) from allocation as a join heap as h on h.id = a.heap_id where h.name = 'cuda-pool:0'").fetchone()
        self.say(more <= PAIR_NS_MAX, "cost of an allocation and its release", f"{more:.0f} ns more than {figures['bare']:.0f}, at most {PAIR_NS_MAX} is wanted")
        self.say(blocks == (pairs,) * 2, f"every one of {pairs} allocations and releases", f"{blocks[0]} and {blocks[1]} are recorded")
        lost = db.execute("select kind, reason, count from loss").fetchall()
        self.say(not lost, "nothing is lost of them", str(lost or ""))

    def in_turns(self, program, figure, amount, settings, traces=None):
        """Programs that stand side by side, some bare and some recorded with each of the settings (None: under torch.profiler), and do `amount` of their work one after the
        other, many rounds; the first is left out. {setting: the median of its processes', of which each is the median of its turns}; {} if one fails, which is said."""
        begin, command, running = time.monotonic(), [self.python, os.path.join(HERE, program), "--turns"], []
        for name, options in [*{"bare": None, **settings}.items()] * PROCESSES:
            trace = os.path.join(self.out, f"turns{len(running)}.tmk")
            whole = [self.tidemark, "record", "--force", "--quiet", "-o", trace, *options, "--", *command] if options is not None else [*command, "--profiler"] if name in settings else command
            running.append((name, subprocess.Popen(whole, env=self.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True), []))
            if traces is not None:
                traces[name] = trace
        limit = threading.Timer(PROGRAM_TIMEOUT_S, lambda: [process.kill() for _, process, _ in running])
        limit.start()
        try:
            good = all([process.stdout.readline() == "ready\n" for _, process, _ in running])
            for _ in range(self.rounds + 1 if good else 0):
                for _, process, turns in running:
                    process.stdin.write(f"{amount}\n")
                    process.stdin.flush()
                    turns.append(json.loads(process.stdout.readline()))
        except (OSError, ValueError):
            good = False
        for _, process, _ in running:
            with contextlib.suppress(OSError):
                process.stdin.close()
        good = all([process.wait() == 0 for _, process, _ in running]) and good
        limit.cancel()
        self.times.append(f"{program} in turn {time.monotonic() - begin:.1f} s")
        if not good:
            self.say(False, f"{program} runs in turns", f"exit statuses {[process.returncode for _, process, _ in running]}")
            return {}
        median_of = lambda turns, part: statistics.median(turn[part] for turn in turns[1:])
        figures = {}
        for name in ("bare", *settings):
            each = sorted(median_of(turns, figure) for its, _, turns in running if its == name)
            figures[name] = statistics.median(each)
            parts = {part: statistics.median(median_of(turns, part) for its, _, turns in running if its == name) for part in running[0][2][0] if part != figure}
            self.print(f"ANSWER {program} in turn: {name}: {figures[name] / figures['bare'] - 1:+.2%}: a {figure} {figures[name]:.6g}; of {len(each)} processes {each[0]:.6g} to"
                       f" {each[-1]:.6g}{''.join(f'; {part} {value:.6g}' for part, value in parts.items())}")
        return figures

    def killed(self):
        """A process that is killed keeps what its device had done a second before the last call of the driver: here all sets but the last."""
        script, trace = os.path.join(self.out, "killed.py"), os.path.join(self.out, "killed.tmk")
        with open(script, "w", encoding="ascii") as file:
            file.write(KILLED)
        command = [self.tidemark, "record", "--force", "--quiet", "-o", trace, "--", self.python, script]
        self.run("a process that is killed", ["sh", "-c", '"$@"; test $? = 137', "sh", *command], self.environment())
        db = self.imported(trace) if os.path.exists(trace) else None
        if db:
            sets = db.execute("select count(*) from gpu_activity where kind = 'memset'").fetchone()[0]
            self.say(sets in (100, 101), "a process that is killed keeps its work of more than a second ago", f"{sets} of 101 sets")

    def profiler(self):
        """torch.profiler inside of the program gets its GPU events, and a note names CUPTI."""
        script, trace = os.path.join(self.out, "profiled.py"), os.path.join(self.out, "profiled.tmk")
        with open(script, "w", encoding="ascii") as file:
            file.write("import torch\nx = torch.ones(1000, device='cuda')\nwith torch.profiler.profile() as p:\n    (x + x).sum().item()\n"
                       "print(any(e.device_type == torch.autograd.DeviceType.CUDA for e in p.events()))\n")
        bare = self.run("torch.profiler alone", [self.python, script], self.environment())
        out = self.run("torch.profiler", [self.tidemark, "record", "--force", "--quiet", "-o", trace, "--", self.python, script], self.environment())
        db = self.imported(trace) if out is not None else None
        if bare is None or not db:
            return
        self.say("True" in bare.split(), "torch.profiler has GPU events here at all", bare.strip())
        self.say("True" in out.split(), "torch.profiler has its GPU events while recorded", out.strip())
        notes = [text for text, in db.execute("select text from note where kind = 'gpu'")]
        self.say(len(notes) == 1 and "CUPTI" in notes[0], "one note says that CUPTI was left to it", str(notes))

    def subscriber(self):
        """A tool in the program that looks CUPTI's way in up among all that is loaded, where CUPTI is loaded for all to see, gets CUPTI."""
        script, trace = os.path.join(self.out, "subscriber.py"), os.path.join(self.out, "subscriber.tmk")
        with open(script, "w", encoding="ascii") as file:
            file.write(SUBSCRIBER)
        bare = self.run("a subscriber alone", [self.python, script], self.environment())
        out = self.run("a subscriber", [self.tidemark, "record", "--force", "--quiet", "-o", trace, "--", self.python, script], self.environment())
        db = self.imported(trace) if out is not None else None
        if bare is None or not db:
            return
        self.say(bare.split()[:2] == out.split()[:2] and bare.split()[0] == "0" != bare.split()[1], "a subscriber is told of calls as if it were alone", f"alone {bare.strip()}, recorded {out.strip()}")
        notes = [text for text, in db.execute("select text from note where kind = 'gpu'")]
        self.say(len(notes) == 1 and "CUPTI" in notes[0], "a note says that CUPTI was left to it", str(notes))


PARTS = ("training", "expandable", "streams", "calls", "rare", "versions", "refusals", "cost", "overhead", "profiler", "subscriber", "tools", "frameworks", "killed")
WITHOUT_TORCH = ("calls", "rare", "versions", "refusals", "cost", "subscriber", "tools", "killed")
AROUND = {"compute-sanitizer": ["--tool", "memcheck"], "ncu": ["--clock-control", "none"], "cuda-gdb": ["--batch", "-ex", "run", "--args"]}
KILLED = """import ctypes, os, time
cuda, context, device, block = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint64()
set_all = lambda: cuda.cuMemsetD8_v2(block, ctypes.c_ubyte(1), ctypes.c_size_t(1 << 20))
wrong = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
wrong = wrong or cuda.cuCtxSetCurrent(context) or cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(1 << 20)) or any(set_all() for _ in range(100))
wrong = wrong or cuda.cuCtxSynchronize()
time.sleep(1.5)
wrong = wrong or set_all()
os._exit(1) if wrong else os.kill(os.getpid(), 9)
"""
SUBSCRIBER = """import ctypes, glob, os, sys
cuda, context, device, block = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint64()
assert not cuda.cuInit(0)
loaded = [line.split()[-1] for line in open("/proc/self/maps") if "/libcupti.so" in line]
found = [p for directory in sys.path for p in glob.glob(os.path.join(directory, "nvidia/*/lib/libcupti.so*"))] + glob.glob("/usr/local/cuda/lib64/libcupti.so*")
path = os.environ.get("TIDEMARK_CUPTI") or (loaded + found)[0]
ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
cupti, calls = ctypes.CDLL(None), []
callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)(lambda user, domain, number, call: calls.append(number))
subscriber = ctypes.c_void_p()
answer = cupti.cuptiSubscribe(ctypes.byref(subscriber), callback, None)
cupti.cuptiEnableDomain(1, subscriber, 1)
assert not cuda.cuDeviceGet(ctypes.byref(device), 0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
assert not cuda.cuCtxSetCurrent(context) and not cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(1 << 20))
cupti.cuptiUnsubscribe(subscriber)
print(answer, calls.count(243), path)
"""
FILL = """import ctypes, sys
sys.path.insert(0, HERE)
from cuda import PTX, call, first_context, size, u64
p, module, function, n = u64(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint32(7)
context, device = first_context()
call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(PTX))
call("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(b"fill"))
call("cuMemAlloc_v2", ctypes.byref(p), size(1 << 20))
for i in range(3):
    call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, (ctypes.c_void_p * 2)(ctypes.addressof(p), ctypes.addressof(n)), None)
call("cuCtxSynchronize")
found = ctypes.c_uint32()
call("cuMemcpyDtoH_v2", ctypes.byref(found), p, size(4))
call("cuMemFree_v2", p)
print("filled", found.value)
"""
RUNTIME = """import ctypes, json, sys
runtime = ctypes.CDLL(sys.argv[1])
p, q, host, pitch, made = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t(), []
def call(name, *arguments):
    answer = getattr(runtime, name)(*arguments)
    if answer:
        raise SystemExit(f"{name} returned {answer}")
def made_by(heap, api, mib):
    made.append((heap, api, mib << 20))
mib = lambda n: ctypes.c_size_t(n << 20)
call("cudaMalloc", ctypes.byref(p), mib(3))
made_by("cuda:0", "cuMemAlloc", 3)
call("cudaMemset", p, 1, mib(3))
call("cudaFree", p)
call("cudaHostAlloc", ctypes.byref(host), mib(5), 0)
made_by("cuda-host", "cuMemHostAlloc", 5)
call("cudaMalloc", ctypes.byref(q), mib(6))
made_by("cuda:0", "cuMemAlloc", 6)
call("cudaMemcpy", q, host, mib(5), 1)
call("cudaFree", q)
call("cudaFreeHost", host)
call("cudaMallocManaged", ctypes.byref(p), mib(7), 1)
made_by("cuda-managed", "cuMemAllocManaged", 7)
call("cudaFree", p)
call("cudaMallocPitch", ctypes.byref(p), ctypes.byref(pitch), ctypes.c_size_t(4096), ctypes.c_size_t(2048))
made_by("cuda:0", "cuMemAllocPitch", 8)
call("cudaFree", p)
call("cudaMallocAsync", ctypes.byref(p), mib(9), None)
made_by("cuda-pool:0", "cuMemAllocAsync", 9)
call("cudaFreeAsync", p, None)
call("cudaDeviceSynchronize")
print(json.dumps(made))
"""
REFUSALS = """import ctypes, glob, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
assert not cuda.cuInit(0)
path = sys.argv[1] or os.environ.get("TIDEMARK_CUPTI") or next(p for d in sys.path for p in glob.glob(d + "/nvidia/*/lib/libcupti.so*") + glob.glob("/usr/local/cuda/lib64/libcupti.so.*"))
cupti, version, subscriber, name = ctypes.CDLL(path), ctypes.c_uint32(), ctypes.c_void_p(), ctypes.c_char_p()
if hasattr(cupti, "cuptiGetVersion"):
    cupti.cuptiGetVersion(ctypes.byref(version))
callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)(lambda *call: None)
print("version", version.value, "cuptiSubscribe", cupti.cuptiSubscribe(ctypes.byref(subscriber), callback, None))
answers = {i: cupti.cuptiEnableCallback(1, subscriber, 1, i) for i in range(1, 1100)}
takes = [i for i, answer in answers.items() if not answer]
print("functions of the driver that it takes:", len(takes), "of 1 to", max(takes, default=0))
for i in range(1, max(takes, default=0)):
    if answers[i]:
        if hasattr(cupti, "cuptiGetCallbackName"):
            cupti.cuptiGetCallbackName(1, i, ctypes.byref(name))
        print("function refused:", i, name.value and name.value.decode(), "answers", answers[i])
kinds = {k: cupti.cuptiActivityEnable(k) for k in range(1, 64)}
print("kinds of records that it refuses, alone and with all before them:", {k: answer for k, answer in kinds.items() if answer})
"""
CUPY = """import cupy
a = cupy.zeros(1 << 20, dtype=cupy.float32)
b = (a + 1).sum()
cupy.cuda.Device().synchronize()
print(cupy.get_default_memory_pool().total_bytes())
"""
JAX = """import os
os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"
import jax, numpy
kept = [jax.device_put(numpy.full(1 << 20, i, numpy.float32)) for i in range(3)]
kept = [(x + 1).block_until_ready() for x in kept]
assert float(kept[2][5]) == 3
print(6)
"""
COMPILED = """import torch
f = torch.compile(lambda x: (x * 2 + 1).relu().sum())
x = torch.ones(1 << 20, device="cuda")
for _ in range(3):
    assert f(x).item() == 3 << 20
torch.cuda.synchronize()
print(torch.cuda.memory_stats()["allocation.all.allocated"])
"""
FRAMEWORKS = {
    "cupy": ("cupy", CUPY, "memory of its pool", "select sum(size_bytes) from allocation where api = 'cuMemAlloc'"),
    "jax": ("jax", JAX, "arrays of 4 MiB", "select count(*) from allocation where api in ('cuMemAlloc', 'cuMemMap') and size_bytes = 4 << 20"),
    "torch.compile": ("triton", COMPILED, "blocks of PyTorch's", "select count(*) from allocation as a join heap as h on h.id = a.heap_id where h.name = 'torch.cuda:0'"),
}
FRAMEWORK_ANSWERS = ("blocks by heap and function", "notes about stacks and devices", "stacks by executable, and those of one frame")
DEVICES = """import ctypes
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
answer = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
raise SystemExit(f"cuInit or cuDeviceGetCount answers {answer}" if answer else 0 if count.value else "there is no device")
"""


def why_not(python, program):
    """Nothing, or the last thing that it said."""
    done = subprocess.run([python, "-c", program], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return "" if done.returncode == 0 else ((done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"])[-1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tools")
    parser.add_argument("--out", default="gpu-results")
    parser.add_argument("--python", default="python3")
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--pairs", type=int, default=200000)
    parser.add_argument("--minutes", type=int, default=8)
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    without = why_not(options.python, DEVICES)
    if without:
        print(f"skipped: no CUDA device can be used here ({without})")
        return 77
    open(os.path.join(options.out, "report.txt"), "w", encoding="utf-8").close()
    checks = Checks(os.path.abspath(options.tools), options)
    torch = subprocess.run([options.python, "-c", "import torch; print(torch.cuda.is_available() and torch.cuda.get_device_name(0), torch.__version__,"
                            " torch.version.cuda)"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    lacking = torch.returncode != 0 or torch.stdout.startswith("False")
    checks.print(torch.stdout.strip() if not lacking else f"{options.python} has no PyTorch that sees a CUDA device"
                 f" ({((torch.stderr or torch.stdout).strip().splitlines() or ['it says nothing'])[-1]})")
    begin = time.monotonic()
    for part in options.only or PARTS:
        if lacking and part not in WITHOUT_TORCH:
            checks.print(f"skipped: {part}, which needs PyTorch")
        elif time.monotonic() - begin < 60 * options.minutes:
            getattr(checks, {"tools": "around"}.get(part, part))()
            checks.tell_times(part)
        else:
            checks.say(False, part, f"not begun after {options.minutes} minutes: --only={part} runs it")
    checks.print(f"{checks.failed} failed; traces and figures are in {checks.out}")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
