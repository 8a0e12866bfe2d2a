#!/usr/bin/env python3
"""make check-gpu: what only a machine with a device can show. Uses Python's standard library, the PyTorch that is there, and the tools of a kit.

    check_gpu.py TOOLS [--out=DIRECTORY] [--python=PYTHON]

TOOLS is a directory with bin/tidemark, bin/tidemark-record, lib/libtidemark.so and tidemark.py: build/gpu-kit (make gpu-kit, on a machine with the libraries)
or a build. Into DIRECTORY go traces and figures, to be kept as fixtures/gpu-real/NAME.tmk and NAME.json. The last line says how many checks failed.
"""
import argparse
import json
import os
import sqlite3
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import real_figures  # noqa: E402

SMALL_ENOUGH = 4 << 20  # to be kept as a fixture
STEP_OVERHEAD_MAX, PAIR_NS_MAX = 0.03, 2000


class Checks:
    def __init__(self, tools, out, python):
        self.tools, self.out, self.python, self.failed = tools, out, python, 0
        self.tidemark = os.path.join(tools, "bin/tidemark")

    def say(self, good, name, why=""):
        self.failed += not good
        print(f"{'ok' if good else 'failed':8}{name}{': ' + why if why else ''}", flush=True)

    def environment(self, **changes):
        return {**os.environ, "TIDEMARK_PY": os.path.dirname(self.find("tidemark.py")), **changes}

    def find(self, name):
        places = [os.path.join(self.tools, name), os.path.join(HERE, "../../recorder", name)]
        return next(p for p in places if os.path.exists(p))

    def record(self, name, program, *options, env=None, arguments=()):
        """Runs a program of this directory under the recorder; the paths of its trace and figures, or None if it failed."""
        trace, figures = os.path.join(self.out, name + ".tmk"), os.path.join(self.out, name + ".json")
        command = [self.tidemark, "record", "--force", "--quiet", "-o", trace, *options, "--", self.python, os.path.join(HERE, program), figures, *arguments]
        done = subprocess.run(command, env=self.environment(**(env or {})), stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            self.say(False, name, f"exit status {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
            return None
        return trace, figures

    def bare(self, name, program, arguments):
        figures = os.path.join(self.out, name + ".json")
        subprocess.run([self.python, os.path.join(HERE, program), figures, *arguments], env=self.environment(), check=True, stdin=subprocess.DEVNULL)
        return json.load(open(figures, encoding="ascii"))

    def imported(self, trace):
        path = trace[:-4] + ".db"
        subprocess.run([self.tidemark, "import", "--quiet", "--force", trace, "-o", path], check=True)
        return sqlite3.connect(path)

    def compare(self, name, kind, program, *options, env=None):
        recorded = self.record(name, program, *options, env=env)
        if not recorded:
            return
        db, figures = self.imported(recorded[0]), json.load(open(recorded[1], encoding="ascii"))
        wrong = real_figures.COMPARISONS[kind](db, figures)
        for reason, count in db.execute("select kind || ': ' || reason, count from loss"):
            wrong.append(f"{count} lost, {reason}")
        wrong += [text for text, in db.execute("select text from note where kind = 'gpu'")]
        self.say(not wrong, name, "; ".join(wrong[:5]))
        figures["kind"] = kind
        with open(recorded[1], "w", encoding="ascii") as file:
            json.dump(figures, file, indent=1)
        if wrong or os.path.getsize(recorded[0]) > SMALL_ENOUGH:
            print(f"        {recorded[0]} is not for keeping: {os.path.getsize(recorded[0])} bytes")

    def step_overhead(self):
        bare, recorded = [], []
        for i in range(3):
            bare.append(self.bare("bare", "train.py", ("--steps=60", "--time"))["step_s"])
            got = self.record(f"timed{i}", "train.py", arguments=("--steps=60", "--time"))
            if not got:
                return
            recorded.append(json.load(open(got[1], encoding="ascii"))["step_s"])
        more = statistics.median(recorded) / statistics.median(bare) - 1
        self.say(more <= STEP_OVERHEAD_MAX, "overhead of a training step",
                 f"{more:+.2%}, {statistics.median(bare) * 1e3:.2f} ms bare, at most {STEP_OVERHEAD_MAX:.0%} is wanted")

    def call_cost(self):
        bare = self.bare("bare-many", "calls.py", ("--many=200000",))["pair_ns"]
        got = self.record("many", "calls.py", arguments=("--many=200000",))
        if not got:
            return
        more = json.load(open(got[1], encoding="ascii"))["pair_ns"] - bare
        db = self.imported(got[0])
        blocks = db.execute("select count(*) from allocation as a join heap as h on h.id = a.heap_id where h.name = 'cuda-pool:0'").fetchone()[0]
        self.say(more <= PAIR_NS_MAX, "cost of an allocation and its release", f"{more:.0f} ns more than {bare:.0f}")
        self.say(blocks == 201000, "every one of 201000 allocations", f"{blocks} are recorded")

    def profiler(self):
        """torch.profiler inside of the program gets its GPU events, and a note names CUPTI."""
        script = os.path.join(self.out, "profiled.py")
        with open(script, "w", encoding="ascii") as file:
            file.write("import torch\nx = torch.ones(1000, device='cuda')\nwith torch.profiler.profile() as p:\n    (x + x).sum().item()\n"
                       "print(any(e.device_type == torch.autograd.DeviceType.CUDA for e in p.events()))\n")
        trace = os.path.join(self.out, "profiled.tmk")
        done = subprocess.run([self.tidemark, "record", "--force", "--quiet", "-o", trace, "--", self.python, script], capture_output=True, text=True,
                              env=self.environment())
        self.say(done.stdout.strip() == "True", "torch.profiler has its GPU events while recorded", done.stdout.strip() + done.stderr.strip()[-200:])
        notes = [text for text, in self.imported(trace).execute("select text from note where kind = 'gpu'")] if os.path.exists(trace) else []
        self.say(any("CUPTI" in text for text in notes), "a note says that CUPTI was left to it", str(notes))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tools")
    parser.add_argument("--out", default="gpu-results")
    parser.add_argument("--python", default="python3")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    ask = subprocess.run([options.python, "-c", "import torch; print(torch.cuda.is_available() and torch.cuda.get_device_name(0), torch.__version__,"
                          " torch.version.cuda)"], capture_output=True, text=True)
    if ask.returncode or ask.stdout.startswith("False"):
        print(f"skipped: {options.python} has no PyTorch that sees a CUDA device ({(ask.stderr or ask.stdout).strip().splitlines()[-1:]})")
        return 77
    print(ask.stdout.strip())
    checks = Checks(os.path.abspath(options.tools), os.path.abspath(options.out), options.python)
    checks.compare("training", "training", "train.py")
    checks.compare("training-expandable", "training", "train.py", env={"PYTORCH_ALLOC_CONF": "expandable_segments:True",
                                                                      "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
    checks.compare("calls", "calls", "calls.py")
    checks.call_cost()
    checks.step_overhead()
    checks.profiler()
    print(f"{checks.failed} failed; traces and figures are in {checks.out}")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
