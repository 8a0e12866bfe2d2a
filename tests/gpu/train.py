"""A small training run for check_gpu.py: train.py FIGURES [--steps=N] [--time] [--profiler]. Writes what PyTorch itself says at every mark to FIGURES (JSON).

With --time nothing is marked and only the time of a step is written: the median over the second half; with --profiler, too, it is that under torch.profiler.
"""
import contextlib
import os
import statistics
import sys
import time

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import marks  # noqa: E402
from marks import tidemark  # noqa: E402

figures_path = sys.argv[1]
steps = next((int(a.split("=")[1]) for a in sys.argv if a.startswith("--steps=")), 6)
timed = "--time" in sys.argv
device = torch.device("cuda:0")
figures = marks.Figures(device)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.ReLU(),
                            torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(1024, 1000)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
batch = 64 if timed else 4
images, labels = torch.randn(batch, 3, 112, 112, device=device), torch.randint(0, 1000, (batch,), device=device)
times = []
if not timed:
    figures.mark("model")


def step(n):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    tidemark.step(n)
    with tidemark.scope("forward"):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    with tidemark.scope("backward"):
        loss.backward()
    with tidemark.scope("optimizer"):
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    times.append(time.perf_counter() - begin)
    if not timed:
        figures.mark(f"step {n}")


with torch.profiler.profile(profile_memory=True, with_stack=True) if "--profiler" in sys.argv else contextlib.nullcontext():
    for number in range(steps):
        step(number)
if not timed:
    torch.cuda.empty_cache()
    figures.mark("emptied")
    figures.refuse()
figures.write(figures_path, statistics.median(times[len(times) // 2:]))
