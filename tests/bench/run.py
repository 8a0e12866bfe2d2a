#!/usr/bin/env python3
"""What recording costs, how large traces are, and how fast they are imported: `make bench`.

Method: each program runs bare, recorded, and under heaptrack where that is installed, in turn, five rounds; shown are medians of the wall time, as ratios to
the bare run of the same rounds, since absolute figures drift. Nothing is asserted here.
"""
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROUNDS = 5
JSON = """import json
d = [{"id": i, "name": "x" * (i % 50), "list": list(range(i % 20))} for i in range(300)]
for _ in range(60): json.loads(json.dumps(d))"""
SQL = """create table t(a, b);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 200000) insert into t select i, hex(randomblob(20)) from n;
create index i on t(b); select count(*) from t;"""
CXX = "#include <iostream>\n#include <map>\n#include <regex>\nint main() { std::map<std::string, std::regex> m; m[\"a\"]; std::cout << m.size(); }\n"


def timed(command, env=None):
    start = time.monotonic()
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, env=env)
    return time.monotonic() - start


def compiler():
    """The compiler behind g++, by itself: heaptrack does not follow children, so that the driver's row would compare nothing."""
    return subprocess.run(["g++", "-print-prog-name=cc1plus"], capture_output=True, text=True, check=True).stdout.strip()


def programs(work):
    """(name, command, environment changes) of what is installed."""
    source = os.path.join(ROOT, "fixtures/programs/passing.c")
    subprocess.run(["gcc", "-O2", "-w", "-fno-builtin", "-o", f"{work}/passing", source, "-pthread"], check=True)
    with open(f"{work}/a.cc", "w", encoding="ascii") as file:
        file.write(CXX)
    for name, command, env in (("passing, 4 threads", [f"{work}/passing", "500000"], {}), ("sqlite3", ["sqlite3", ":memory:", SQL], {}),
                               ("python3 json", [sys.executable, "-c", JSON], {"PYTHONMALLOC": "malloc"}),
                               ("cc1plus", [compiler(), "-quiet", "-O1", "-imultiarch", "x86_64-linux-gnu", f"{work}/a.cc", "-o", "/dev/null"], {})):
        if shutil.which(command[0]):
            yield name, command, dict(os.environ, **env)


def measure(build, work, name, command, env):
    trace, db = f"{work}/b.tmk", f"{work}/b.db"
    heaptrack = ["heaptrack", "-o", f"{work}/ht"] if shutil.which("heaptrack") else None
    times = {"bare": [], "tidemark": [], "heaptrack": []}
    for _ in range(ROUNDS):
        times["bare"].append(timed(command, env))
        times["tidemark"].append(timed([f"{build}/bin/tidemark-record", "--quiet", "--force", "-o", trace, "--", *command], env))
        if heaptrack:
            times["heaptrack"].append(timed(heaptrack + command, env))
    import_s = timed([f"{build}/bin/tidemark", "import", trace, "--force", "-o", db])
    out = subprocess.run([f"{build}/bin/tidemark", "query", db, "select sum(allocations + frees) as events from heap_summary where heap is not null", "--format=csv"],
                         stdout=subprocess.PIPE, check=True)
    events = int(out.stdout.split()[1])
    bare, ours = (statistics.median(times[key]) for key in ("bare", "tidemark"))
    theirs = f"x{statistics.median(times['heaptrack']) / bare:.2f}" if heaptrack else "-"
    print(f"{name:<20}{bare:8.2f} s {events:>12,}   x{ours / bare:<8.2f}{(ours - bare) * 1e9 / events:8.0f} ns {theirs:>10} "
          f"{os.path.getsize(trace) / events:8.2f} {events / import_s / 1e6:10.2f}", flush=True)


def main():
    build = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as work:
        print(f"{'program':<20}{'bare':>10} {'events':>12}   {'recorded':<9}{'an event':>11} {'heaptrack':>10} {'bytes/ev':>8} {'M ev/s in':>10}")
        for name, command, env in programs(work):
            measure(build, work, name, command, env)
    for bench in ("codec_bench", "drain_bench"):
        print(f"\n{bench}", flush=True)
        subprocess.run([f"{build}/tests/bench/{bench}"], check=True)


if __name__ == "__main__":
    main()
