"""A small training run for check_gpu.py: train.py FIGURES [--steps=N]. Writes what PyTorch itself says at every mark to FIGURES (JSON).

train.py --turns [--profiler] marks nothing: after some steps it says "ready", then runs as many as each line of its input says, and answers how long one took: seconds of
its parts, their medians (JSON). With --profiler that is under torch.profiler, with memory and stacks.
"""
import contextlib
import json
import os
import statistics
import sys
import time

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import marks  # noqa: E402
from marks import tidemark  # noqa: E402

steps = next((int(a.split("=")[1]) for a in sys.argv if a.startswith("--steps=")), 6)
timed = "--turns" in sys.argv
device = torch.device("cuda:0")
figures = marks.Figures(device)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.ReLU(),
                            torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(1024, 1000)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
batch = 64 if timed else 4
images, labels = torch.randn(batch, 3, 112, 112, device=device), torch.randint(0, 1000, (batch,), device=device)
WARM_UP_STEPS = 30
if not timed:
    figures.mark("model")


def step(n):
    """And when each of its parts had ended."""
    torch.cuda.synchronize()
    times = [time.perf_counter()]
    ends = lambda: times.append(time.perf_counter())
    tidemark.step(n)
    ends()
    with tidemark.scope("forward"):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    ends()
    with tidemark.scope("backward"):
        loss.backward()
    ends()
    with tidemark.scope("optimizer"):
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    ends()
    torch.cuda.synchronize()
    ends()
    if not timed:
        figures.mark(f"step {n}")
    return times


def take_turns():
    for n in range(WARM_UP_STEPS):
        step(n)
    print("ready", flush=True)
    for line in sys.stdin:
        turn = [step(n) for n in range(int(line))]
        parts = {name: statistics.median(times[i + 1] - times[i] for times in turn) for i, name in enumerate(("step()", "forward", "backward", "optimizer", "waiting"))}
        print(json.dumps({"step": statistics.median(times[-1] - times[0] for times in turn), **parts}), flush=True)


if timed:
    profiler = torch.profiler.profile(profile_memory=True, with_stack=True) if "--profiler" in sys.argv else contextlib.nullcontext()
    profiler.__enter__()
    take_turns()
    sys.stdout.flush()
    if "--profiler" in sys.argv:
        os._exit(0)  # to make its tables of thousands of steps takes minutes
else:
    for number in range(steps):
        step(number)
    torch.cuda.empty_cache()
    figures.mark("emptied")
    figures.refuse()
    figures.write(sys.argv[1], None)
