#!/usr/bin/env python3
"""What recording costs beside what users would pick instead, how large traces are, and how fast they are imported: `make bench`.

    run.py BUILD [--only PATTERN] [--rounds N] [--torch PYTHON] [--results FILE]

Method: in each round every tool runs the program once, one after the other, so that a slow minute of the machine falls on all of them; shown are medians, for programs
and starts of the ratio of each run to the mean of the bare runs before and behind it, and the spread as (largest - smallest) / median. A target's figures are a few percent, and a
run's noise is more: so the tools that targets are about come three times a round, a bare run between each two, and a short program's more often, until they took JUDGED_S a round; of
pairs all but the slow ones come three times. Absolute figures drift from machine to machine. Wall time
is that of the whole recording, names included; the program's own processor time is taken inside (measured.c), the recorder's is the rest.
Nothing is asserted here: counts of instructions guard the hot path in `make check`. --results writes the page tests/bench/RESULTS.md. What is missing on the machine is
skipped and said so.
"""
import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import answers
import import_speed
import programs
import report_bench
import targets
import tools

HERE = os.path.dirname(os.path.abspath(__file__))
QUIET = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
MIB = 1 << 20
JUDGED_TURNS = 3  # a round, of the tools that targets are about
WATCHED_S = 0.1   # between two looks at the recorder's memory
JUDGED_S = 20     # and as many more as it takes until all of them took this


class Report:
    """Tables, shown as they come and kept for the page."""

    def __init__(self):
        self.parts = []
        self.targets = targets.Targets()

    def text(self, line):
        print(line, flush=True)
        self.parts.append(line)

    def table(self, title, columns, rows, note=""):
        """rows may be a generator: each is shown as soon as it is there."""
        print(f"\n{title}", flush=True)
        print("  ".join(f"{c:>12}" if i else f"{c:<46}" for i, c in enumerate(columns)), flush=True)
        kept = []
        for row in rows:
            print("  ".join(f"{c:>12}" if i else f"{c:<46}" for i, c in enumerate(row)), flush=True)
            kept.append(row)
        page = [f"\n## {title}\n", *([note + "\n"] if note else []), "| " + " | ".join(columns) + " |",
                "|---|" + "---:|" * (len(columns) - 1), *("| " + " | ".join(row) + " |" for row in kept)]
        self.parts.append("\n".join(page))

    def save(self, path, command):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), platform.machine())
        with open("/proc/meminfo", encoding="utf-8") as file:
            memory = int(file.readline().split()[1]) // MIB
        head = ["# What recording costs", "", "Written by one command; the method is told at the top of `tests/bench/run.py`.", "",
                f"    {command}", "", f"Machine: {model}, {os.cpu_count()} processors, {memory} GiB, Linux {platform.release()}, {libc()}.", ""]
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(head + [self.targets.page(), ""] + self.parts) + "\n")


def libc():
    return " ".join(platform.libc_ver())


# --- one run ---

class Run:
    """What one run cost: wall_s, program_s and recorder_s of processor time, peak memory in bytes, size of the recording. beside: the bare runs before and behind it."""

    def __init__(self, wall_s, program_s, recorder_s, rss, recorder_rss, size):
        self.wall_s, self.program_s, self.recorder_s = wall_s, program_s, recorder_s
        self.rss, self.recorder_rss, self.size, self.beside = rss, recorder_rss, size, []


def watch_peak(pid, peaks):
    """Appends the process' peak memory in bytes, until it has ended. What wait4() tells is that of the largest of it and its children."""
    try:
        while True:
            with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
                peaks += [int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:")]
            time.sleep(WATCHED_S)
    except OSError:
        pass


def run_once(build, tool, command, env, work, client=None):
    """None if the tool or the program failed under it."""
    inside = [f"{build}/tests/bench/measured", f"{work}/measured"]
    if os.path.exists(inside[1]):
        os.remove(inside[1])
    if tool.has_parent:
        command, env, out = tool.wrap(inside + command, env, work)
    else:
        command, env, out = tool.wrap(command, env, work)
        command = inside + command
    if out and os.path.exists(out):
        os.remove(out)  # who overwrites a large file waits for the file system, which frees the old one first and writes the new one out when it is closed
    peaks = [0]
    start = time.monotonic()
    child = subprocess.Popen(command, env=env, cwd=work, **QUIET)
    if tool.has_parent:
        threading.Thread(target=watch_peak, args=(child.pid, peaks), daemon=True).start()
    if client:
        client()
    _, status, used = os.wait4(child.pid, 0)
    wall_s = time.monotonic() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode or not os.path.exists(inside[1]):
        return None
    with open(inside[1], encoding="ascii") as file:
        user, system, rss = file.read().split()
    program_s = float(user) + float(system)
    size = os.path.getsize(out) if out and os.path.exists(out) else 0
    return Run(wall_s, program_s, max(0.0, used.ru_utime + used.ru_stime - program_s), int(rss) * 1024, max(peaks), size)


def rounds_of(build, chosen, command, env, work, rounds, client=None):
    """{tool: [Run]}; the first tool is bare. A tool that fails is left out from then on, and named."""
    runs, failed, taken = {tool: [] for tool in chosen}, [], []  # taken: since the last bare run
    bare, judged, others = chosen[0], [tool for tool in chosen[1:] if tool.judged], [tool for tool in chosen[1:] if not tool.judged]

    def take(tool):
        if tool in failed:
            return
        run = run_once(build, tool, command, env, work, client)
        if not run:
            failed.append(tool)
            return
        if tool is bare:
            for earlier in taken:
                earlier.beside.append(run)
            taken.clear()
        else:
            run.beside.append(runs[bare][-1])
            taken.append(run)
        runs[tool].append(run)

    take(bare)
    turn, judged_s = 0, 0.0
    while bare not in failed and (turn < rounds * JUDGED_TURNS or (judged and judged_s < rounds * JUDGED_S)):
        start = time.monotonic()
        for tool in judged:
            take(tool)
            take(bare)
        judged_s += time.monotonic() - start
        if others and turn < rounds * JUDGED_TURNS and turn % JUDGED_TURNS == 0:
            for tool in others:
                take(tool)
            take(bare)
        turn += 1
    return {tool: done for tool, done in runs.items() if done}, failed


def median(runs, key):
    return statistics.median(getattr(run, key) for run in runs)


def ratio(runs, key):
    """To the bare runs before and behind each: how fast the machine is changes from minute to minute. 1 of the bare ones themselves."""
    return statistics.median(getattr(run, key) / statistics.mean(getattr(bare, key) for bare in run.beside) if run.beside else 1.0 for run in runs)


def spread(runs, key):
    values = [getattr(run, key) for run in runs]
    return f"{(max(values) - min(values)) / statistics.median(values) * 100:.0f} %"


def trace_events(build, trace):
    """Allocations and frees, a realloc both."""
    out = subprocess.run([f"{build}/bin/tidemark", "info", trace, "--format=json"], stdout=subprocess.PIPE, check=True).stdout
    counts = {row["name"]: row["value"] for row in json.loads(out) if row["topic"] == "events"}
    return counts.get("all", 0) + counts.get("REALLOC", 0) + counts.get("REALLOCARRAY", 0)


# --- the real programs ---

def program_rows(report, build, work, program, chosen, rounds):
    runs, failed = rounds_of(build, chosen, program.command, program.env, work, rounds, program.client)
    if chosen[0] not in runs:
        yield (program.name, "failed", *["-"] * 10)
        return
    bare = runs[chosen[0]]
    exact = next((tool for tool in runs if tool.name == "tidemark"), None)
    events = trace_events(build, f"{work}/events.tmk") if exact and keep_trace(build, work, program) else 0
    judged_by = "program_s" if program.client else "wall_s"
    for tool in chosen:
        if tool in failed:
            yield (f"{program.name}: {tool.name}", "failed", *["-"] * 10)
            continue
        done = runs[tool]
        value = ratio(done, judged_by)
        report.targets.program(program.name, tool.name, value, median(done, "size") / events if events > 10_000 else None)
        added = f"{(median(done, 'wall_s') - median(bare, 'wall_s')) * 1e9 / events:+.0f}" if events > 10_000 and tool is not chosen[0] and not program.client else "-"
        yield (f"{program.name}: {tool.name}", f"x{value:.2f}", spread(done, judged_by),
               f"x{ratio(done, 'program_s'):.2f}", f"{median(done, judged_by):.2f}", f"{median(done, 'recorder_s'):.2f}",
               f"{events:,}" if tool is chosen[0] else "-", f"{events / median(done, 'wall_s') / 1e6:.1f}" if events > 10_000 else "-", added,
               f"{median(done, 'size') / events:.2f}" if events > 10_000 and median(done, "size") else "-",
               f"{median(done, 'rss') / MIB:.0f}", f"{median(done, 'recorder_rss') / MIB:.0f}" if tool.has_parent else "-")


def keep_trace(build, work, program):
    """One recording more, to count its events: those of the rounds are overwritten by other modes."""
    child = subprocess.Popen([f"{build}/bin/tidemark-record", "--quiet", "--force", "-o", f"{work}/events.tmk", "--", *program.command],
                             env=program.env, cwd=work, **QUIET)
    if program.client:
        program.client()
    return child.wait() == 0


def real_programs(report, build, work, every_tool, options):
    columns = ("program: tool", "wall/bare", "spread", "CPU/bare", "wall s", "recorder s", "events", "M events/s", "+ns/event", "bytes/event", "RSS MiB",
               "recorder MiB")

    def rows():
        for program in programs.programs(work, build, options.torch):
            if not re.search(options.only, "programs " + program.name):
                continue
            if program.missing:
                yield (program.name, f"skipped: {program.missing}", *["-"] * 10)
                continue
            chosen = [tool for tool in every_tool if tool.programs and tools.runs(tool, program)]
            yield from program_rows(report, build, work, program, chosen, options.rounds)
    report.table("Real programs", columns, rows(),
                 "Redis is judged by the processor time of its server while redis-benchmark drives it, all others by wall time. RSS is the program's own "
                 "peak, `recorder MiB` that of the recorder, as last seen ten times a second; the rings, which both share, are in both. Tools that run in the "
                 "program have no recorder.")


# --- malloc/free pairs ---

CASES = [("depth 10, one stack", "--depth=10"), ("depth 30, one stack", "--depth=30"), ("depth 60, one stack", "--depth=60"),
         ("depth 30, leaf varies", "--depth=30 --stacks=leaf"), ("depth 30, random", "--depth=30 --stacks=random"),
         ("depth 30, 1,000 stacks", "--depth=30 --stacks=many"), ("depth 30, 2 threads", "--depth=30 --threads=2"),
         ("depth 30, 4 threads", "--depth=30 --threads=4"), ("depth 30, passed to a thread", "--depth=30 --pass")]
SLOW = ("gperftools", "jemalloc") # microseconds a pair


def pair_figures(program, tool, case, work, pairs):
    """(processor ns, wall ns) a pair, as the driver itself prints them; None if it failed."""
    command, env, _ = tool.wrap([program, f"--pairs={pairs}", *case.split()], dict(os.environ), work)
    done = subprocess.run(command, env=env, cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    found = re.search(r"cpu_ns=([\d.]+) wall_ns=([\d.]+)", done.stdout)
    return (float(found[1]), float(found[2])) if found else None


def with_frame_pointers(work):
    """The driver once more, built with frame pointers: without them --stacks=fp has nothing to follow."""
    program = f"{work}/pairs-fp"
    done = subprocess.run(["gcc", "-O2", "-fno-omit-frame-pointer", "-pthread", "-o", program, f"{HERE}/pairs.c"], check=False, **QUIET)
    return program if done.returncode == 0 else None


def pair_rounds(cases, work, options):
    """[{tool: [(processor ns, wall ns)]}], one for each (program, case, tools). The cases take turns, too: targets compare one with another, and the machine is not
    as fast at all times."""
    figures = [{tool: [] for tool in chosen} for _, _, chosen in cases]
    for turn in range(options.rounds * JUDGED_TURNS):
        print(f"turn {turn + 1} of {options.rounds * JUDGED_TURNS}", flush=True)
        for (program, case, chosen), got in zip(cases, figures):
            for tool in chosen:
                if turn % JUDGED_TURNS and tool.name in SLOW:
                    continue
                figure = pair_figures(program, tool, case, work, 20_000 if tool.name in SLOW else options.pairs)
                if figure:
                    got[tool].append(figure)
    return figures


def pair_rows(report, name, chosen, figures):
    if not figures[chosen[0]]:
        yield (name, *["failed"] * 5)
        return
    bare = [statistics.median(f[i] for f in figures[chosen[0]]) for i in (0, 1)]
    theirs = next((t for t in chosen if t.name == "heaptrack in-process" and figures[t]), None)
    reference = statistics.median(f[0] for f in figures[theirs]) - bare[0] if theirs else None
    for tool in chosen:
        if not figures[tool]:
            yield (f"{name}: {tool.name}", *["failed"] * 5)
            continue
        values = [f[0] for f in figures[tool]]
        cpu, wall = (statistics.median(f[i] for f in figures[tool]) for i in (0, 1))
        added = cpu - bare[0]
        share = f"1/{reference / added:.1f}" if reference and tool is not chosen[0] and added > 0 else "-"
        report.targets.pair(name, tool.name, cpu, added, reference)
        yield (f"{name}: {tool.name}", share, f"{added:+.1f}" if tool is not chosen[0] else "-", f"{cpu:.1f}",
               f"{(max(values) - min(values)) / cpu * 100:.0f} %", f"{wall:.1f}")


def pairs(report, build, work, every_tool, options):
    chosen = [tool for tool in every_tool if tool.micro and not tool.python_only]
    framed = [tool for tool in every_tool if tool.framed]
    built_with = with_frame_pointers(work)

    cases = [(name, f"{build}/tests/bench/pairs", case, chosen) for name, case in CASES]
    cases += [(name + ", frame pointers", built_with, case, framed) for name, case in CASES[1:2] + CASES[4:5] if built_with]

    def rows():
        for case, figures in zip(cases, pair_rounds([case[1:] for case in cases], work, options)):
            yield from pair_rows(report, case[0], case[3], figures)
    report.table("A malloc/free pair", ("case: tool", "of heaptrack", "+CPU ns", "CPU ns", "spread", "wall ns"), rows(),
                 "The program's own processor time a pair, and wall time with the recorder on the same processors. `of heaptrack`: the added processor time "
                 "as a fraction of what heaptrack's in-process mode adds. `frame pointers`: a program built with them, so that both ways of taking stacks work.")


# --- instructions of a pair ---

def instructions(program, tool, stacks, pairs_count, work):
    inside = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={work}/callgrind.out", program, f"--pairs={pairs_count}", "--depth=30",
              f"--stacks={stacks}"]
    command, env, _ = tool.wrap(inside, dict(os.environ), work)
    done = subprocess.run(command, env=env, cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    found = re.search(r"Collected : (\d+)", done.stderr)
    return int(found[1]) if found else None


def instructions_of_pair(program, tool, stacks, work):
    """Of 20,000 pairs more, so that start and end do not count; None: it could not be counted."""
    few, many = (instructions(program, tool, stacks, n, work) for n in (10_000, 30_000))
    return (many - few) / 20_000 if few and many else None


def counts(report, build, work, every_tool, _options):
    chosen = [tool for tool in every_tool if tool.name in ("bare", tools.FLOOR) or tool.has_parent and not tool.python_only] # heaptrack's library disarms itself in valgrind's launcher

    def rows():
        if not shutil.which("valgrind"):
            yield ("all", "skipped: valgrind is not installed", "-")
            return
        built_with, framed = with_frame_pointers(work), [tool for tool in every_tool if tool.framed]
        cases = [(stacks, stacks, f"{build}/tests/bench/pairs", chosen) for stacks in ("one", "leaf", "random", "many")]
        cases += [(f"{stacks}, frame pointers", stacks, built_with, framed) for stacks in ("one", "random") if built_with]
        for name, stacks, program, counted in cases:
            bare = None
            for tool in counted:
                count = instructions_of_pair(program, tool, stacks, work)
                if tool is counted[0]:
                    bare = count
                added = count - bare if count and bare else None
                report.targets.instructions(name, tool.name, added)
                yield (f"{name}: {tool.name}", "failed" if added is None else "-" if tool is counted[0] else f"{added:+.0f}", f"{count:.0f}" if count else "-")
    report.table("Instructions of a malloc/free pair at depth 30", ("stacks: tool", "added", "all"), rows(), "Counted by callgrind; the same every time.")


# --- memory ---

def memory_of(build, tool, threads, work):
    command, env, _ = tool.wrap([f"{build}/tests/bench/memory", str(threads)], dict(os.environ), work)
    done = subprocess.run(command, env=env, cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    found = re.search(r"private_kib=(\d+) shared_kib=(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else None


def memory(report, build, work, every_tool, _options):
    chosen = [tool for tool in every_tool if tool.name in ("bare", "tidemark", "tidemark fp", "tidemark sampled", "tidemark no stacks", "heaptrack in-process")]

    def rows():
        for threads in (1, 8, 64):
            bare = memory_of(build, chosen[0], threads, work)
            for tool in chosen[1:]:
                figure = memory_of(build, tool, threads, work)
                if not figure or not bare:
                    yield (f"{threads} threads: {tool.name}", *["failed"] * 3)
                    continue
                report.targets.memory(threads, tool.name, figure[0] - bare[0])
                yield (f"{threads} threads: {tool.name}", f"{figure[0] - bare[0]:+,}", f"{figure[1] - bare[1]:+,}", f"{bare[0]:,}")
    report.table("Memory of the program", ("threads: tool", "+private KiB", "+shared KiB", "bare KiB"), rows(),
                 "Beyond the bare run, while all threads are there. Shared are the libraries' pages and the rings, which the collector has too.")


# --- scopes ---

def scopes(report, build, work, every_tool, options):
    chosen = [tool for tool in every_tool if tool.name in ("bare", "tidemark")]

    def rows():
        for name, case in (("push and pop", "push"), ("block", "block"), ("range", "range"), ("push and pop, nothing else, without a pause", "push 0")):
            figures = {tool: [] for tool in chosen}
            for _ in range(options.rounds):
                for tool in chosen:
                    command, env, _ = tool.wrap([f"{build}/tests/bench/scope_pairs", *case.split()], dict(os.environ), work)
                    done = subprocess.run(command, env=env, cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                          text=True, check=False)
                    found = re.search(r"cpu_ns=([\d.]+) wall_ns=([\d.]+)", done.stdout)
                    if found:
                        figures[tool].append((float(found[1]), float(found[2])))
            if all(figures.values()):
                bare, ours = ([statistics.median(f[i] for f in figures[tool]) for i in (0, 1)] for tool in chosen)
                yield (name, f"{bare[0]:.1f}", f"{ours[0]:.1f}", f"{ours[1]:.1f}")
            else:
                yield (name, *["failed"] * 3)
    report.table("A C scope", ("what", "bare CPU ns", "recorded", "wall ns"), rows(),
                 "Opened and closed, in bursts of 5,000 that the collector reads while the program sleeps.")


# --- starting ---

def shell_loop(count):
    return ["sh", "-c", f"i=0; while [ $i -lt {count} ]; do /bin/true; i=$((i+1)); done"]


def small_files(work, count):
    folder = f"{work}/small"
    os.makedirs(folder, exist_ok=True)
    for i in range(count):
        programs.write(f"{folder}/f{i}.c", f"#include <stdio.h>\nint f{i}(int x) {{ return x + {i}; }}\n")
    programs.write(f"{folder}/Makefile", f"all: $(patsubst %,f%.o,$(shell seq 0 {count - 1}))\n%.o: %.c\n\tgcc -c $< -o /dev/null\n")
    return ["make", "-s", "-C", folder, "-B"]


def one_after_the_other(build, chosen, work, count):
    """{tool: s}: each run under a recorder of its own, the tools in turn."""
    spent = {tool: [] for tool in chosen}
    for _ in range(count):
        for tool in chosen:
            command, env, out = tool.wrap(["/bin/true"], dict(os.environ), work)
            if out and os.path.exists(out):
                os.remove(out)
            start = time.monotonic()
            subprocess.run(command, env=env, cwd=work, check=True, **QUIET)
            spent[tool].append(time.monotonic() - start)
    return {tool: statistics.median(times) for tool, times in spent.items()}


def starting(report, build, work, every_tool, options):
    chosen = [tool for tool in every_tool if tool.name in ("bare", "tidemark")]

    def row(name, count, over_bare, bare, ours, spread_text):
        report.targets.start(name, over_bare, (ours - bare) / count * 1e3)
        return (name, f"x{over_bare:.2f}", f"{(ours - bare) / count * 1e3:+.2f}", spread_text, f"{bare:.3f}", f"{ours:.3f}")

    def rows():
        for name, command, count in (("1,000 runs of true in one recording", shell_loop(1000), 1000), ("make of 100 small C files", small_files(work, 100), 100)):
            if not shutil.which(command[0]) or not shutil.which("gcc"):
                yield (name, f"skipped: {command[0]} or gcc is not installed", *["-"] * 4)
                continue
            runs, _ = rounds_of(build, chosen, command, dict(os.environ), work, options.rounds)
            if len(runs) < 2:
                yield (name, *["failed"] * 5)
                continue
            bare, ours = (runs[tool] for tool in chosen)
            yield row(name, count, ratio(ours, "wall_s"), median(bare, "wall_s"), median(ours, "wall_s"), spread(ours, "wall_s"))
        each = one_after_the_other(build, chosen, work, 40 * options.rounds)
        bare, ours = each[chosen[0]], each[chosen[1]]
        yield row("true, each in a recording of its own", 1, ours / bare, bare, ours, "-")
    report.table("Starting", ("what", "wall/bare", "+ms each", "spread", "bare s", "recorded s"), rows())
    idle(report, build, work, chosen)


def idle(report, build, work, chosen):
    """What the collector does while the program does nothing."""
    used = {}
    for tool in chosen:
        for seconds in (1, 4):
            command, env, _ = tool.wrap(["sleep", str(seconds)], dict(os.environ), work)
            child = subprocess.Popen(command, env=env, cwd=work, **QUIET)
            used[tool, seconds] = os.wait4(child.pid, 0)[2]
    a, b = used[chosen[1], 1], used[chosen[1], 4]
    cpu_ms = (b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime) / 3 * 1e3
    report.table("Idle", ("what", "ms CPU/s", "waits/s"), [("collector of a program that sleeps", f"{cpu_ms:.1f}", f"{(b.ru_nvcsw - a.ru_nvcsw) / 3:.0f}")])


# --- reading ---

def reading(report, build, work, options):
    def traces():
        for program in programs.programs(work, build, options.torch):
            if not program.client and keep_trace(build, work, program):
                yield program.name, f"{work}/events.tmk"
        yield from import_speed.made_traces(build, work)

    def rows():
        for row in import_speed.rows(build, work, traces(), options.rounds):
            report.targets.imported(row[0], int(row[1].replace(",", "")), float(row[2]), int(row[4]) / int(row[5]), float(row[8]))
            yield row
        yield import_speed.sqlite_row(build, work, options.rounds)

    def named():
        for program in programs.programs(work, build, options.torch):
            if program.name.startswith("PyTorch") and keep_trace(build, work, program):
                yield import_speed.names_row(build, program.name, f"{work}/events.tmk", report.targets)
    report.table("Import", import_speed.COLUMNS, rows(), "An event is an allocation or a free. The bound on memory: 64 MiB, 200 bytes a block live at the peak, 64 "
                 "bytes a node of the stack tree. `SQLite alone`: million events a second of processor time, if SQLite only copied the finished rows.")
    report.table("Names", import_speed.NAMES_COLUMNS, named(), "All addresses of a trace looked up again; the peak is that of the largest process.")


def questions(report, build, work):
    report.table("Answers", answers.COLUMNS, answers.rows(build, work), "Every command, and every query that has a name, on databases of 10 million allocations.")


def looking(report, build, work):
    report.table("To look at", report_bench.COLUMNS, report_bench.rows(build, work), "The report's page is driven in headless Chromium: from an event to the frame after "
                 "its drawing; CPU is that of the page's main thread, for one event.")


# --- the rest: benches that print for themselves ---

def own_benches(report, build, options):
    for bench in ("codec_bench", "drain_bench", "stamp_bench", "handover_bench"):
        if os.path.exists(f"{build}/tests/bench/{bench}"):
            out = subprocess.run([f"{build}/tests/bench/{bench}"], stdout=subprocess.PIPE, text=True, check=True).stdout
            report.text(f"\n## {bench}\n\n" + "\n".join("    " + line for line in out.splitlines()))


def versions(report, build, every_tool):
    report.text("Versions: " + "; ".join(sorted({tool.version for tool in every_tool if tool.version})) + ".")
    for name, reason in tools.missing():
        report.text(f"{name}: skipped: {reason}.")


def find_torch(asked):
    for python in filter(None, (asked, os.environ.get("TIDEMARK_TORCH_PYTHON"), shutil.which("python3"))):
        if subprocess.run([python, "-c", "import torch"], check=False, **QUIET).returncode == 0:
            return python
    return None


SECTIONS = ("pairs", "instructions", "memory", "scopes", "programs", "starting", "import", "answers", "report", "benches")


def is_of_programs(options, build, work):
    """It names a program that real_programs() will find."""
    return options.only.startswith("programs ") and any(re.search(options.only, "programs " + p.name) for p in programs.programs(work, build, options.torch))


def main():
    parser = argparse.ArgumentParser(description="measure what recording costs")
    parser.add_argument("build")
    parser.add_argument("--only", default="", help=f"sections whose name matches: {', '.join(SECTIONS)}; or 'programs NAME' for one program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=500_000, help="of one run of the section pairs")
    parser.add_argument("--torch", help="a Python that imports torch (default: $TIDEMARK_TORCH_PYTHON, then python3)")
    parser.add_argument("--results", help="also write the figures to this page")
    options = parser.parse_args()
    options.torch = find_torch(options.torch)
    build, report = os.path.abspath(options.build), Report()
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as work:
        every_tool = list(tools.installed(build, work))
        versions(report, build, every_tool)
        report.text(f"Rounds: {options.rounds}, interleaved; medians. Of programs and starts tidemark, tidemark sampled and the hooks under that, of pairs all but gperftools and jemalloc have {JUDGED_TURNS} turns "
                    f"a round, of short programs more, for {JUDGED_S} s a round." + ("" if options.torch else " PyTorch: skipped, no Python here imports torch."))
        wanted = lambda section: re.search(options.only, section) or section == "programs" and is_of_programs(options, build, work)
        if not any(wanted(section) for section in SECTIONS):
            parser.error(f"--only={options.only} matches no section ({', '.join(SECTIONS)}) and no program ('programs NAME')")
        of_tools, of_build = (report, build, work, every_tool, options), (report, build, work)
        steps = {"pairs": (pairs, of_tools), "instructions": (counts, of_tools), "memory": (memory, of_tools), "scopes": (scopes, of_tools),
                 "programs": (real_programs, of_tools), "starting": (starting, of_tools), "import": (reading, (*of_build, options)),
                 "answers": (questions, of_build), "report": (looking, of_build), "benches": (own_benches, (report, build, options))}
        try:
            for section in filter(wanted, SECTIONS):
                function, arguments = steps[section]
                function(*arguments)
        finally:  # what was measured is worth having, whatever ended it
            print("\n" + report.targets.page())
    if options.results:
        report.save(options.results, "make bench RESULTS=tests/bench/RESULTS.md" + (f" ROUNDS={options.rounds}" if options.rounds != 5 else ""))


if __name__ == "__main__":
    main()
