#!/usr/bin/env python3
"""What a report and a Chrome trace cost, and how fast the page answers in a real browser: run.py shows it as the section `report`.

    report_bench.py BUILD [ALLOCATIONS]

Method: big_trace writes a trace of ten million allocations, which is imported; the report's time and memory are what the system saw of it. In headless Chromium the
first paint is the browser's own figure; an answer is the time from a mouse or key event (its timeStamp) to the frame after the one in which everything that
depends on it was drawn, the chart, its legend and the flame graph. Beside it stands the CPU time of the page's main thread for one event, which other work on
the machine does not change. Nothing is asserted.
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


QUIET = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def made_database(build, work, name, allocations):
    """Path of a database of a made trace, or None."""
    trace, db = os.path.join(work, f"{name}.tmk"), os.path.join(work, f"{name}.db")
    made = subprocess.run([f"{build}/tests/integration/big_trace", trace, *(str(n) for n in (2 * allocations, LIVE, NODES, THREADS, 100, SCOPES))], check=False, **QUIET)
    return None if made.returncode or subprocess.run([f"{build}/bin/tidemark", "import", trace, "-o", db], check=False, **QUIET).returncode else db


def measured(command):
    """(seconds, of the CPU, bytes of memory) of a command, or None when it fails."""
    start = time.monotonic()
    child = subprocess.Popen(command, **QUIET)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return None if child.returncode else (time.monotonic() - start, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def drive(page, url):
    """Of a person's moves {what: (milliseconds, the slowest; CPU milliseconds of the main thread for each event)}."""
    shown = page.page(url)
    shown.settle()
    paint = shown.value("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    ready = shown.value("performance.getEntriesByName('tidemark-ready')[0].startTime")
    shown.value(WATCH)
    shown.call("Performance.enable", timeDomain="threadTicks")
    used = lambda: {one["name"]: one["value"] for one in shown.call("Performance.getMetrics")["metrics"]}["TaskDuration"] * 1e3
    took = {}

    def slowest(what, act):
        shown.value("answers.length = 0")
        before = used()
        act()
        shown.settle()
        cpu, answers = used() - before, [ms for _, ms in shown.value("answers")]
        took[what] = (max(answers, default=None), cpu / max(1, len(answers)))

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


def chrome_rows(build, work, yes):
    """Of a database of a million events, first as it is exported by default, then with a pair for every block: about a million events in the file."""
    db = made_database(build, work, "million", 500_000)
    for what, name, options in (("as it comes", "trace.json", ()), ("every block", "blocks.json", ("--lifetimes=1",)), ("every block, gzip", "blocks.json.gz", ("--lifetimes=1",))):
        done = db and measured([f"{build}/bin/tidemark", "export", "chrome", db, "-o", os.path.join(work, name), *options])
        row = f"Chrome trace of 1,000,000 events, {what}, wall (CPU)"
        yield (row, "< 5 s", f"{done[0]:.1f} s ({done[1]:.1f} s)", yes(done[0] < 5)) if done else (row, "-", "failed", "-")


def rows(build, work, allocations=ALLOCATIONS):
    yes = lambda met: "yes" if met else "**no**"
    yield from chrome_rows(build, work, yes)
    db, page = made_database(build, work, "big", allocations), os.path.join(work, "big.html")
    done = db and measured([f"{build}/bin/tidemark", "report", db, "-o", page])
    if not done:
        yield (f"report of {allocations:,} allocations", "-", "failed", "-")
        return
    (seconds, cpu, memory), size = done, os.path.getsize(page)
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
        values = [run[2][what][0] for run in runs if run[2][what][0] is not None]
        answer, cpu = statistics.median(values) if values else None, statistics.median(run[2][what][1] for run in runs)
        yield (f"answer: {what}, the slowest of a gesture, median of 3 (CPU)", "<= 100 ms",
               "not measured" if answer is None else f"{answer:.0f} ms ({cpu:.0f} ms)", "-" if answer is None else yes(answer <= 100))


def main():
    with tempfile.TemporaryDirectory(prefix="tidemark-report-") as work:
        for row in rows(os.path.abspath(sys.argv[1]), work, *(int(n) for n in sys.argv[2:3])):
            print("  ".join(f"{cell:>14}" if i else f"{cell:<64}" for i, cell in enumerate(row)), flush=True)


if __name__ == "__main__":
    main()
