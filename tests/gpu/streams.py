"""What a training does not: streams beside the first, page-locked memory, a graph of its own pool, threads. streams.py FIGURES writes what PyTorch itself says at every mark
to FIGURES (JSON), as train.py does.
"""
import os
import sys
import threading

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import marks  # noqa: E402

MIB = 1 << 20
device = torch.device("cuda:0")
figures = marks.Figures(device)
first = torch.ones(MIB, device=device)
figures.mark("first")

side = torch.cuda.Stream()
with torch.cuda.stream(side):
    beside = torch.randn(4 * MIB, device=device)
    product = beside * 2
host = torch.empty(MIB, pin_memory=True)
host.copy_(first, non_blocking=True)
product.record_stream(torch.cuda.current_stream())
del product
figures.mark("side stream")
beside = torch.zeros(MIB // 4, device=device)  # the allocator sees now that the other stream is done with it
figures.mark("after it")

with torch.cuda.stream(side):
    for _ in range(3):
        first.mul(2).add_(1)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    result = first.mul(2).add_(1)
figures.mark("captured")
for _ in range(3):
    graph.replay()
figures.mark("replayed")
del graph, result
torch.cuda.empty_cache()
figures.mark("without the graph")


def work(number):
    with torch.cuda.stream(torch.cuda.Stream()):
        for i in range(50):
            kept = [torch.full((1000 * (number + 1) + i,), i, device=device) for _ in range(5)]
            sum(kept).sum().item()


threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
figures.mark("threads")
torch.cuda.empty_cache()
figures.mark("emptied")
figures.refuse()
figures.write(sys.argv[1], None)
