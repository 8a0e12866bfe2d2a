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
QUERIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../schema/queries.sql")
GROUPS = ("site", "function", "file", "library", "scope", "thread", "heap", "size", "age")
QUESTIONS = ("info", "summary", "processes", "gpu", "alerts", "scopes", "peak", "peak --sites", "leaks", "leaks --stack", "leaks --from=100ms --to=400ms", "timeline",
             "timeline --gap", "timeline --jumps", "timeline --from=100ms --to=400ms", "temporary", "temporary --churn", "temporary --reallocs", "temporary --oversized",
             "temporary --histogram=size", "temporary --histogram=lifetime", "temporary --from=300ms --to=310ms", "temporary --from=100ms --to=400ms",
             "peak --from=100ms --to=400ms", "check --max-peak=1TiB --max-leak=1TiB", "diff OTHER",
             "snapshot --at exit", "snapshot --at peak", "snapshot --at 251ms", *(f"snapshot --at 251ms --by={by}" for by in GROUPS),
             "snapshot --at 251ms --from=100ms", "snapshot --at 400ms --against=251ms", *(f"snapshot --at 400ms --against=251ms --by={by}" for by in GROUPS))


def ask(build, db, question):
    """(wall seconds, processor seconds)"""
    verb, *rest = question.replace("OTHER", db).split()
    before = time.monotonic()
    child = subprocess.Popen([f"{build}/bin/tidemark", verb, db, *rest], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{question} ended with {child.returncode}")
    return time.monotonic() - before, used.ru_utime + used.ru_stime


def questions():
    """Every command, and every query that has a name."""
    with open(QUERIES, encoding="utf-8") as file:
        return QUESTIONS + tuple("query " + line.split()[1].rstrip(":") for line in file if line.startswith("-- @"))


def rows(build, work, allocations=10_000_000):
    for live, nodes, threads in MADE:
        trace, db = os.path.join(work, "answers.tmk"), os.path.join(work, "answers.db")
        subprocess.run([f"{build}/tests/integration/big_trace", trace, *(str(n) for n in (2 * allocations, live, nodes, threads, 100, 100))],
                       stdout=subprocess.DEVNULL, check=True)
        subprocess.run([f"{build}/bin/tidemark", "import", "-q", "--force", trace, "-o", db], check=True)
        os.remove(trace)
        size = f"{os.path.getsize(db) / allocations:.1f}"
        for question in questions():
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
