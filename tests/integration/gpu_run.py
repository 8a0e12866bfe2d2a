"""Recorded runs over the doubles of libcuda, libcupti and libnvidia-ml (tests/gpu/): they are built here, and what the double of the driver wrote down of what it
really did is compared with the recording, by heap, size, order and function.
"""
import collections
import os
import subprocess

from tidemark_test import ROOT, one_at_a_time

SOURCES = os.path.join(ROOT, "tests/gpu")


def make(t, out, flags):
    newest = max(os.path.getmtime(os.path.join(SOURCES, name)) for name in os.listdir(SOURCES))
    if os.path.exists(os.path.join(out, "ready")) and os.path.getmtime(os.path.join(out, "ready")) > newest:
        return
    part = f"{out}.{os.getpid()}"
    os.makedirs(part, exist_ok=True)
    cc = ["gcc", "-g", "-O0", "-Wall", "-Wextra", "-Werror", "-Wno-unused-variable"]
    t.run([*cc, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", *flags, "-o", f"{part}/libcuda.so.1", f"{SOURCES}/fake_cuda.c", "-pthread"], status=0)
    t.run([*cc, "-shared", "-fPIC", "-Wl,-soname,libcupti.so.12", *flags, "-o", f"{part}/libcupti.so.12", f"{SOURCES}/fake_cupti.c",
           f"{part}/libcuda.so.1", "-pthread"], status=0)
    t.run([*cc, "-shared", "-fPIC", "-o", f"{part}/libnvidia-ml.so.1", f"{SOURCES}/fake_nvml.c"], status=0)
    for name in ("driver", "inefficient", "places"):
        t.run([*cc, "-o", f"{part}/{name}", f"{SOURCES}/{name}.c", f"{part}/libcuda.so.1", "-pthread"], status=0)
    t.run([*cc, "-o", f"{part}/host", f"{SOURCES}/host.c"], status=0)
    for name in ("one", "two"):
        t.run([*cc, "-shared", "-fPIC", f"-DWHO={name}", "-o", f"{part}/{name}.so", f"{SOURCES}/plugin.c", f"{part}/libcuda.so.1"], status=0)
    t.run(["touch", f"{part}/ready"], status=0)
    if os.path.exists(out):
        subprocess.run(["rm", "-r", out], check=True)
    os.rename(part, out)


def build(t, *flags):
    """Directory with libcuda.so.1, libcupti.so.12 (with these flags) and the program `driver`."""
    out = os.path.join(t.build, "gpu", "".join(f.removeprefix("-DWITHOUT_") + "_" for f in flags) or "all")
    with one_at_a_time(out):
        make(t, out, flags)
    return out


def doubles(where):
    """Environment in which the doubles are the machine's libraries."""
    return {"LD_LIBRARY_PATH": where, "TIDEMARK_CUPTI": f"{where}/libcupti.so.12"}


class Run:
    """A recorded run of the driver program (or of `command`, in the directory of the doubles), and what its driver says it did."""

    def __init__(self, t, scenario, *options, flags=(), status=0, command=None, **settings):
        if t.sanitized and "LD_PRELOAD" in settings:
            t.skip("a sanitizer wants to be the first of the preloaded libraries")
        self.where = build(t, *flags)
        self.log = t.path(f"log-{scenario}-{len(os.listdir(t.dir))}")
        env = {**doubles(self.where), "FAKE_CUDA_LOG": self.log, "FAKE_CUPTI_FULL": "1", **{k: str(v) for k, v in settings.items()}}
        program, *arguments = command or ("driver", scenario)
        self.recording = t.record([f"{self.where}/{program}", *arguments], "--quiet", *options, status=status, env=env)
        self.db = t.imported(self.recording, options=("--quiet",))
        self.lines = open(self.log, encoding="latin-1").read().splitlines() if os.path.exists(self.log) else []

    def truth(self):
        """[(heap, size, function, freed by or None)] sorted."""
        live, done = {}, []
        for line in self.lines:
            word = line.split()
            if word[0] == "alloc":
                live[word[2], word[4] == "cuMemMap"] = (word[1], int(word[3]), word[4])
            elif word[0] == "free":
                done.append((*live.pop((word[1], word[2] == "cuMemUnmap")), word[2]))
        return sorted(done + [(*block, None) for block in live.values()], key=str)

    def recorded(self):
        return sorted(((heap, size, api, bool(free)) for heap, size, api, free in self.db.rows(
            "select h.name, a.size_bytes, a.api, a.free_ns is not null from allocation as a join heap as h on h.id = a.heap_id"
            " where h.name like 'cuda%'")), key=str)

    def compare(self, t):
        wanted = sorted(((heap, size, api, freed is not None) for heap, size, api, freed in self.truth()), key=str)
        t.equal(collections.Counter(self.recorded()), collections.Counter(wanted), "blocks, recorded and as the driver made them")

    def notes(self):
        return [text for text, in self.db.rows("select text from note where kind = 'gpu'")]


def check_work(t, run, names=True):
    """Kernels, copies and sets: every one, in its scope, with its direction; uses of the blocks that they name."""
    kinds, copies = {"1": "memcpy", "22": "memcpy", "2": "memset", "10": "kernel"}, {"1": "h2d", "2": "d2h", "8": "d2d", "10": "p2p", "0": None}
    wanted = [(int(number), kinds[kind], copies[copy], int(device), None if kind == "10" else int(size), name if kind == "10" and names else None)
              for _, kind, copy, device, size, number, name in (line.split(None, 6) for line in run.lines if line.startswith("work"))]
    t.equal(run.db.rows("select correlation_id, kind, direction, device, size_bytes, name from gpu_activity order by 1"), wanted, "work")
    t.equal(run.db.rows("select correlation_id, n.text from gpu_activity as a join scope_packed as p on p.id = a.scope_id join scope_name as n on"
                        " n.id = p.name_id order by 1"), [(number, "forward") for number, *_ in wanted[:2]], "in its scope")
    begin, end = run.db.row("select start_ns, end_ns from process")
    t.equal(run.db.value("select count(*) from gpu_activity where start_ns < ? or end_ns > ? + 1000000000 or end_ns <= start_ns", begin, end), 0,
            "times outside of the run")
    t.check(run.db.value("select count(*) from gpu_activity where abs(start_ns - launch_ns) > 200000000") == 0, "work is far from its launch")
