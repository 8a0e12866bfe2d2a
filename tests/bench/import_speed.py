#!/usr/bin/env python3
"""How fast traces become databases, and in how much memory.

    import_speed.py BUILD [TRACE...] [--long] [--rounds=N]

Without traces: made ones (tests/integration/big_trace.c), of which the first three differ only in length and should have the same rate; --long adds one of 100
million events. The rate is given by wall time and by processor time, as other load slows only the former: medians of a few imports; the bound on memory, which
none of them may pass, is 64 MiB, 200 bytes a block live at the peak, and 64 bytes a node of the stack tree. `SQLite alone` is what the same database would be filled at if SQLite only copied the rows
from one file into another, without a trace to read or anything to add up: a trace with as many stacks and call sites as events has several rows an event. The last
row is of plain rows of nine numbers, an event being half a row, by SQLite's fastest way in (sqlite_rows.c, which `make bench` builds). run.py calls rows() for the traces that it has recorded.
"""
import argparse
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

COLUMNS = ("trace", "events", "M ev/s wall", "M ev/s CPU", "peak MiB", "bound MiB", "database B/ev", "rows/ev", "SQLite alone")
MADE = (("1 M events, 10 k live, 5 k nodes, 4 threads", 1_000_000, 10_000, 5_000, 4), ("10 M events, likewise", 10_000_000, 10_000, 5_000, 4),
        ("40 M events, likewise", 40_000_000, 10_000, 5_000, 4), ("10 M events, 1 M live", 10_000_000, 1_000_000, 5_000, 1),
        ("4 M events, 1 M nodes", 4_000_000, 50_000, 1_000_000, 1), ("900 k events, 300 k nodes, all sites", 900_000, 1000, 300_000, 1, 1))
LONG = ("100 M events, 10 k live", 100_000_000, 10_000, 5_000, 4)
NAMES_COLUMNS = ("trace", "stack nodes", "wall s", "CPU s", "peak MiB")
MIB = 1 << 20
SHORT_S, SHORT_TURNS = 2.0, 3  # imports that take less are run so many times a round


def measure(build, trace, db):
    """(events, wall seconds, processor seconds, peak bytes, bound in bytes) of one import."""
    start = time.monotonic()
    child = subprocess.Popen([f"{build}/bin/tidemark", "import", trace, "--force", "-o", db], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    wall_s = time.monotonic() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"importing {trace} ended with {child.returncode}")
    base = sqlite3.connect(f"file:{db}?mode=ro", uri=True)
    events, live, nodes = base.execute("select (select sum(events) from trace), (select sum(peak_count) from heap_total where heap_id <> 0),"
                                       " (select count(*) from stack)").fetchone()
    base.close()
    return events, wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, 64 * MIB + 200 * (live or 0) + 64 * nodes


def sqlite_alone(db, work):
    """(rows, processor seconds): what it takes SQLite to write all rows of a database once more, in the order in which they lie there."""
    copy = os.path.join(work, "copy.db")
    base = sqlite3.connect(copy, isolation_level=None)
    for setting in ("page_size = 8192", "journal_mode = off", "synchronous = off", "locking_mode = exclusive"):
        base.execute("pragma " + setting)
    base.execute("attach ? as given", (db,))
    tables = base.execute("select name, sql from given.sqlite_schema where type = 'table'").fetchall()
    for _, sql in tables:
        base.execute(sql)
    total, cpu_s = 0, time.process_time()
    base.execute("begin")
    for name, _ in tables:
        columns = ", ".join("+" + row[0] for row in base.execute("select name from pragma_table_info(?)", (name,)))  # + : not a copy of pages
        total += base.execute(f"insert into main.{name} select {columns} from given.{name}").rowcount
    base.execute("commit")
    cpu_s = time.process_time() - cpu_s
    base.close()
    os.remove(copy)
    return total, cpu_s


def rows(build, work, traces, rounds):
    """traces: (name, path). A row of texts for each, as COLUMNS name them."""
    for name, path in traces:
        db = os.path.join(work, "import.db")
        runs = []
        while not runs or len(runs) < rounds * (SHORT_TURNS if runs[0][1] < SHORT_S else 1):
            if runs:
                os.remove(db)
            runs.append(measure(build, path, db))
        events, bound = runs[0][0], runs[0][4]
        wall_s, cpu_s = (statistics.median(run[i] for run in runs) for i in (1, 2))
        peak = max(run[3] for run in runs)
        count, alone_s = sqlite_alone(db, work)
        yield (name, f"{events:,}", f"{events / wall_s / 1e6:.2f}", f"{events / cpu_s / 1e6:.2f}", f"{peak / MIB:.0f}", f"{bound / MIB:.0f}",
               f"{os.path.getsize(db) / max(events, 1):.1f}", f"{count / max(events, 1):.2f}", f"{events / alone_s / 1e6:.2f}")
        os.remove(db)


def names_row(build, name, trace, targets):
    """What it takes to find all names of a trace."""
    nodes = next(int(line.split()[-1]) for line in subprocess.run([f"{build}/bin/tidemark", "info", trace], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
                 if line.split()[:2] == ["stacks", "stacks"])
    start = time.monotonic()
    child = subprocess.Popen([f"{build}/bin/tidemark-record", "names", "--again", "--quiet", "--force", "-o", trace + ".named", trace])
    _, status, used = os.wait4(child.pid, 0)
    wall_s = time.monotonic() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"naming {trace} ended with {child.returncode}")
    os.remove(trace + ".named")
    targets.named(nodes, wall_s, used.ru_maxrss * 1024 / MIB)
    return name, f"{nodes:,}", f"{wall_s:.2f}", f"{used.ru_utime + used.ru_stime:.2f}", f"{used.ru_maxrss * 1024 / MIB:.0f}"


def sqlite_row(build, work, rounds, count=1_000_000):
    """SQLite's own speed on this machine, now, as a row like the others: a million rows stand for two million events."""
    db, runs = os.path.join(work, "plain.db"), []
    for _ in range(rounds):
        done = subprocess.run([f"{build}/tests/bench/sqlite_rows", db, str(count)], stdout=subprocess.PIPE, text=True, check=True)
        runs.append([float(s) for s in done.stdout.split()])
        size = os.path.getsize(db)
        os.remove(db)
    wall_s, cpu_s = (statistics.median(run[i] for run in runs) for i in (0, 1))
    return ("SQLite alone, rows of nine numbers", f"{2 * count:,}", f"{2 * count / wall_s / 1e6:.2f}", f"{2 * count / cpu_s / 1e6:.2f}", "-", "-",
            f"{size / 2 / count:.1f}", "0.50", f"{2 * count / cpu_s / 1e6:.2f}")


def made_traces(build, work, long=False):
    """Each exists while its turn lasts."""
    for name, events, live, nodes, threads, *site_every in (*MADE, LONG) if long else MADE:
        path = os.path.join(work, "made.tmk")
        subprocess.run([f"{build}/tests/integration/big_trace", path, *(str(n) for n in (events, live, nodes, threads, 100, 0, *site_every))], stdout=subprocess.DEVNULL, check=True)
        yield name, path
        os.remove(path)


def show(row):
    print("  ".join(f"{c:>13}" if i else f"{c:<46}" for i, c in enumerate(row)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("traces", nargs="*")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as work:
        traces = [(os.path.basename(path), path) for path in a.traces] or made_traces(a.build, work, a.long)
        show(COLUMNS)
        for row in rows(os.path.abspath(a.build), work, traces, a.rounds):
            show(row)
        show(sqlite_row(os.path.abspath(a.build), work, a.rounds))


if __name__ == "__main__":
    sys.exit(main())
