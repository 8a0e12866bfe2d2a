#!/usr/bin/env python3
"""How long answers take on a database of 10 million allocations, and how large it is.

    answers.py BUILD [ALLOCATIONS]

Method: made traces (tests/integration/big_trace.c) with few and with many live blocks, in scopes; each command runs once first, which also warms the page
cache, then three times more: the median and the first run are given, with the processor time of the median, as other load slows only the clock on the wall.
"""
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time

COLUMNS = ("question", "live blocks", "first s", "median s", "CPU s", "database B/allocation")
MADE = ((10_000, 5_000, 4), (1_000_000, 5_000, 4))
QUESTIONS = ("summary", "peak", "leaks", "temporary", "temporary --churn", "temporary --histogram=lifetime", "timeline", "scopes --limit=20",
             "snapshot --at 251ms", "snapshot --at exit", "snapshot --at 251ms --by=function", "snapshot --at 251ms --by=size", "snapshot --at 251ms --by=scope",
             "snapshot --at 251ms --by=thread", "snapshot --at 251ms --by=age", "snapshot --at 400ms --against=251ms", "peak --from=100ms --to=400ms",
             "query @peak-makers", "query @functions", "query @never-freed", "query @step-growth")


def ask(build, db, question):
    """(wall seconds, processor seconds)"""
    verb, *rest = question.split()
    before = time.monotonic()
    child = subprocess.Popen([f"{build}/bin/tidemark", verb, db, *rest], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{question} ended with {child.returncode}")
    return time.monotonic() - before, used.ru_utime + used.ru_stime


def rows(build, work, allocations=10_000_000):
    for live, nodes, threads in MADE:
        trace, db = os.path.join(work, "answers.tmk"), os.path.join(work, "answers.db")
        subprocess.run([f"{build}/tests/integration/big_trace", trace, *(str(n) for n in (2 * allocations, live, nodes, threads, 100, 100))],
                       stdout=subprocess.DEVNULL, check=True)
        subprocess.run([f"{build}/bin/tidemark", "import", "-q", "--force", trace, "-o", db], check=True)
        os.remove(trace)
        size = f"{os.path.getsize(db) / allocations:.1f}"
        for question in QUESTIONS:
            first = ask(build, db, question)[0]
            times = sorted(ask(build, db, question) for _ in range(3))
            yield (question, f"{live:,}", f"{first:.2f}", f"{statistics.median(t[0] for t in times):.2f}", f"{statistics.median(t[1] for t in times):.2f}", size)
        os.remove(db)


def main():
    build = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as work:
        for row in itertools.chain([COLUMNS], rows(build, work, int(sys.argv[2]) if len(sys.argv) > 2 else 10_000_000)):
            print("  ".join(f"{c:>12}" if i else f"{c:<40}" for i, c in enumerate(row)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
