"""Traces recorded on real GPUs (fixtures/gpu-real/NAME.tmk) against the figures that PyTorch and the driver gave at that time (NAME.json).

Method: tests/gpu/real_figures.py, the same comparison that `make check-gpu` makes on the machine with the device.
"""
import csv
import glob
import io
import json
import os
import sqlite3
import sys

from tidemark_test import ROOT, main, test

sys.path.insert(0, os.path.join(ROOT, "tests/gpu"))
import real_figures  # noqa: E402


@test
def traces_of_real_gpus(t):
    paths = sorted(glob.glob(os.path.join(ROOT, "fixtures/gpu-real/*.tmk")))
    if not paths:
        t.skip("no trace of a real GPU has been kept yet (make check-gpu writes them)")
    for path in paths:
        with open(path[:-4] + ".json", encoding="ascii") as file:
            figures = json.load(file)
        db = sqlite3.connect(t.imported(path, options=("--quiet",)).path)
        t.equal(real_figures.differences(figures["kind"], db, figures), [], path)


@test
def top_has_the_call_sites_of_an_import(t):
    """Functions of NVIDIA's libraries without a name are the allocator's own, whether a trace or a database is shown: their callers are the sites."""
    def sites(source):
        rows = csv.DictReader(io.StringIO(t.run([t.tidemark, "top", source, "--by=site", "--format=csv", "--limit=0"], status=0).text))
        return sorted((row["heap"], row["function"], row["module"], row["module_offset"]) for row in rows if "/libcu" in row["module"])
    for name in ("calls-pools", "streams", "training-expandable"):
        path = os.path.join(ROOT, f"fixtures/gpu-real/{name}.tmk")
        wanted = sites(t.imported(path, options=("--quiet",)).path)
        t.check(name == "streams" or wanted, f"{name}: sites")
        t.equal(sites(path), wanted, name)


@test
def pools_and_streams_of_a_real_gpu(t):
    """What a driver's pools said of themselves: as much handed out as calls.py asks for, 32 MiB reserved for it, nothing at the end; and both blocks are of the stream
    that calls.py uses, the default one."""
    db = t.imported(os.path.join(ROOT, "fixtures/gpu-real/calls-pools.tmk"), options=("--quiet",))
    t.equal(db.rows("select h.name, max(allocated_bytes), max(reserved_bytes), (select allocated_bytes from pool_state as l where l.heap_id = h.id order by ts_ns desc"
                    " limit 1) from pool_state as p join heap as h on h.id = p.heap_id group by 1 order by 1"), [("cuda-graph:0", 32 << 20, 32 << 20, 0), ("cuda-pool:0", 5 << 20, 32 << 20, 0), ("cuda-pool:0#1", 3 << 20, 32 << 20, 0)],
            "pools")
    t.equal(db.rows("select h.name, a.size_bytes, b.stream from gpu_block as b join allocation as a on a.id = b.allocation_id join heap as h on h.id ="
                    " a.heap_id where h.name like 'cuda-pool%' order by 1"), [("cuda-pool:0", 5 << 20, 7), ("cuda-pool:0#1", 3 << 20, 7)], "streams: CUPTI numbers that one 7")


@test
def the_comparison_can_fail(t):
    """A database without any of it fails each figure."""
    t.imported(os.path.join(ROOT, "fixtures/golden/v1.2-gpu.tmk"), options=("--quiet",))
    db = sqlite3.connect(t.path("db0.db"))
    mark = {"name": "m", "allocated": 1, "reserved": 2, "active": 1, "inactive": 1, "allocated_peak": 3, "allocations": 1, "free": 0, "total": 1,
            "segments": [{"address": 4096, "size": 5}]}
    wrong = real_figures.training(db, {"marks": [mark], "refused": 1, "device_bytes": 5})
    t.check(sum(map(bool, wrong.values())) >= 3, f"found only {wrong}")
    wrong = real_figures.differences("calls", db, {"blocks": [{"heap": "cuda:0", "api": "cuMemAlloc", "size": 7}], "refused": 2})
    t.equal(len(wrong), 2, f"found {wrong}")
    wrong = real_figures.differences("calls", db, {"blocks": [{"heap": "cuda:0", "api": "cuMemAlloc", "size": 4096}], "refused": 1})
    t.equal(wrong, [], "the golden trace's own figures")


main()
