#!/usr/bin/env python3
"""What a report costs, and how fast its page answers in a real browser: run.py shows it as the section `report`.

    report_bench.py BUILD [ALLOCATIONS]

Method: big_trace writes a trace of ten million allocations, which is imported; the report's time and memory are what the system saw of it. In headless Chromium the
first paint is the browser's own figure; an answer is the time from a mouse or key event (its timeStamp) to the frame after the one in which everything that
depends on it was drawn, the chart, its legend and the flame graph. Nothing is asserted.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from chromium import Browser, BrowserError  # pylint: disable=wrong-import-position

COLUMNS = ("what", "target", "measured", "met")
MIB = 1 << 20
ALLOCATIONS, LIVE, NODES, THREADS, SCOPES = 10_000_000, 100_000, 20_000, 4, 1000

# From an event to the frame that follows its drawing, kept in window.answers.
WATCH = """window.answers = []; for (const kind of ['pointermove', 'pointerup', 'keydown', 'click', 'input'])
  addEventListener(kind, e => requestAnimationFrame(() => requestAnimationFrame(() => { answers.push([kind, performance.now() - e.timeStamp]); })), true);"""


def made_page(build, work, allocations):
    """(seconds, bytes of memory, bytes of the page) of the report, or None."""
    trace, db, page = (os.path.join(work, name) for name in ("big.tmk", "big.db", "big.html"))
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    made = subprocess.run([f"{build}/tests/integration/big_trace", trace, *(str(n) for n in (2 * allocations, LIVE, NODES, THREADS, 100, SCOPES))], check=False, **quiet)
    if made.returncode or subprocess.run([f"{build}/bin/tidemark", "import", trace, "-o", db], check=False, **quiet).returncode:
        return None
    start = time.monotonic()
    child = subprocess.Popen([f"{build}/bin/tidemark", "report", db, "-o", page], **quiet)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return None if child.returncode else (time.monotonic() - start, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, os.path.getsize(page), page)


def drive(page, url):
    """{what: milliseconds, the slowest} of a person's moves."""
    shown = page.page(url)
    shown.settle()
    paint = shown.value("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    ready = shown.value("performance.getEntriesByName('tidemark-ready')[0].startTime")
    shown.value(WATCH)
    took = {}

    def slowest(what, act):
        shown.value("answers.length = 0")
        act()
        shown.settle()
        took[what] = max((ms for _, ms in shown.value("answers")), default=None)

    slowest("brush", lambda: shown.drag("#timeline", 0.3, 0.6, steps=20))
    shown.key("2")
    slowest("brush, allocated", lambda: shown.drag("#timeline", 0.7, 0.9, steps=20))
    slowest("zoom in", lambda: shown.click("#zoom"))
    slowest("whole run", lambda: shown.click("#unzoom"))
    slowest("stack by call site", lambda: shown.click("#stack-by button[data-value='call site']"))
    slowest("zoom into a call", lambda: shown.click("#flame-box", 0.2, 0.3))
    slowest("invert", lambda: shown.key("i"))
    shown.key("/")
    slowest("search", lambda: shown.type("f"))
    return paint, ready, took


def rows(build, work, allocations=ALLOCATIONS):
    made = made_page(build, work, allocations)
    if not made:
        yield (f"report of {allocations:,} allocations", "-", "failed", "-")
        return
    seconds, cpu, memory, size, page = made
    yes = lambda met: "yes" if met else "**no**"
    yield (f"report of {allocations:,} allocations, wall (CPU)", "< 10 s", f"{seconds:.1f} s ({cpu:.1f} s)", yes(seconds < 10))
    yield ("its memory", "<= 500 MB", f"{memory / MIB:.0f} MiB", yes(memory <= 500e6))
    yield ("its page", "<= 3 MB", f"{size / 1e6:.2f} MB", yes(size <= 3e6))
    try:
        with Browser(work) as browser:
            runs = [drive(browser, f"file://{page}") for _ in range(3)]
    except (OSError, BrowserError) as why:
        yield ("in Chromium", "-", f"skipped: {why}", "-")
        return
    paint, ready = (statistics.median(run[i] for run in runs) for i in (0, 1))
    yield ("first paint in headless Chromium, median of 3", "< 2 s", f"{paint / 1e3:.2f} s", yes(paint < 2000))
    yield ("its charts are drawn", "-", f"{ready / 1e3:.2f} s", "-")
    for what in runs[0][2]:
        values = [run[2][what] for run in runs if run[2][what] is not None]
        answer = statistics.median(values) if values else None
        yield (f"answer: {what}, the slowest of a gesture, median of 3", "<= 100 ms", "not measured" if answer is None else f"{answer:.0f} ms", "-" if answer is None else yes(answer <= 100))


def main():
    with tempfile.TemporaryDirectory(prefix="tidemark-report-") as work:
        for row in rows(os.path.abspath(sys.argv[1]), work, *(int(n) for n in sys.argv[2:3])):
            print("  ".join(f"{cell:>14}" if i else f"{cell:<64}" for i, cell in enumerate(row)), flush=True)


if __name__ == "__main__":
    main()
