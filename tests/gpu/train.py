"""A small training run for check_gpu.py: train.py FIGURES [--steps=N] [--time]. Writes what PyTorch itself says at every mark to FIGURES (JSON).

With --time nothing is marked and only the time of a step is written: the median over the second half.
"""
import json
import os
import statistics
import sys
import time

import torch

sys.path.insert(0, os.environ.get("TIDEMARK_PY", "."))
import tidemark  # noqa: E402

figures_path = sys.argv[1]
steps = next((int(a.split("=")[1]) for a in sys.argv if a.startswith("--steps=")), 6)
timed = "--time" in sys.argv
device = torch.device("cuda:0")
figures = {"torch": torch.__version__, "cuda": torch.version.cuda, "device": torch.cuda.get_device_name(0), "marks": [],
           "device_bytes": torch.cuda.get_device_properties(0).total_memory}


def mark(name):
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats(device)
    free, total = torch.cuda.mem_get_info(device)
    tidemark.mark(name)
    segments = [{"address": s["address"], "size": s["total_size"]} for s in torch.cuda.memory_snapshot() if s["device"] == 0]
    figures["marks"].append({"name": name, "allocated": stats["allocated_bytes.all.current"], "reserved": stats["reserved_bytes.all.current"],
                             "active": stats["active_bytes.all.current"], "inactive": stats["inactive_split_bytes.all.current"],
                             "allocated_peak": stats["allocated_bytes.all.peak"], "reserved_peak": stats["reserved_bytes.all.peak"],
                             "allocations": stats["allocation.all.allocated"], "segments": segments, "free": free, "total": total})


model = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.ReLU(),
                            torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(1024, 1000)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
batch = 64 if timed else 4
images, labels = torch.randn(batch, 3, 112, 112, device=device), torch.randint(0, 1000, (batch,), device=device)
times = []
if not timed:
    mark("model")
for n in range(steps):
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
        mark(f"step {n}")
if not timed:
    del loss
    torch.cuda.empty_cache()
    mark("emptied")
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device=device)
    except torch.OutOfMemoryError:
        figures["refused"] = torch.cuda.memory_stats(device)["num_ooms"]
figures["step_s"] = statistics.median(times[len(times) // 2:])
with open(figures_path, "w", encoding="ascii") as file:
    json.dump(figures, file, indent=1)
