#!/usr/bin/env python3
"""Runs the tests: unit, cli, integration, fuzz corpus and layers; `make check` calls it.

Every test gives one line with its time; the output of a failed one is shown and kept under BUILD/test-logs. At the end every failed
test is named once more with the last lines of its output. The last line is `N passed, N failed, N skipped`, and the exit status is 1
if any failed. Only Python's standard library is used.

  unit:         BUILD/tests/unit/test_*; exit status 0 passed, 77 skipped (the last line says why), else failed
  cli:          tests/cli/*/cmd, see tests/cli/README.md
  integration:  tests/integration/test_*.py; each reports its tests one by one (tests/integration/tidemark_test.py)
  fuzz:         BUILD/tests/fuzz/fuzz_* over every file of tests/fuzz/corpus/fuzz_*
  layers:       tests/layers.sh
"""
import argparse
import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SKIPPED = 77


class Outcomes:
    """Counts and prints; used by several worker threads."""

    def __init__(self, logs):
        self.count = {"passed": 0, "failed": 0, "skipped": 0}
        self.failures = []
        self.logs = logs
        self.lock = threading.Lock()

    def add(self, outcome, name, seconds, detail=""):
        with self.lock:
            self.count[outcome] += 1
            word = "ok" if outcome == "passed" else outcome
            line = f"{word:<8}{seconds:7.2f} s  {name}"
            if outcome == "skipped":
                line += f" (skipped: {detail.strip()})"
            print(line)
            if outcome == "failed":
                self.failures.append((name, detail))
                path = os.path.join(self.logs, re.sub(r"[^\w.-]", "_", name) + ".log")
                with open(path, "w", encoding="utf-8", errors="replace") as log:
                    log.write(detail)
                lines = detail.rstrip().splitlines()
                for text in lines[-40:]:
                    print(f"    | {text}")
                print(f"    `- all of it: {os.path.relpath(path, ROOT)}")
            sys.stdout.flush()


def run(command, timeout, **options):
    """Runs a command in a process group of its own; returns (status, stdout, stderr), the status None when the time was over."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **options)
    try:
        out, err = child.communicate(timeout=timeout)
        return child.returncode, out, err
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        out, err = child.communicate()
        return None, out, err


# What changes what programs do with memory, what rank they are, or what Python, git and the shell do: figures are those of a plain environment.
OTHERS = re.compile(r"MALLOC_|GLIBC_TUNABLES$|LD_PRELOAD$|MAKEFLAGS$|MAKELEVEL$|MFLAGS$|NO_COLOR$|PYTHON(?!PATH$)|GIT_|CDPATH$|ENV$|BASH_ENV$|"
                    r"(SLURM|OMPI|PMIX|PMI|PALS|PBS|LSB)_|MPI_LOCALRANKID$|(LOCAL_)?RANK$|WORLD_SIZE$|JOB_ID$")


def environment(build):
    asked = ("TIDEMARK_TORCH_PYTHON", "TIDEMARK_TEST_")  # interpreters that the tests shall look at, too
    env = {k: v for k, v in os.environ.items() if k.startswith(asked) or not (k.startswith("TIDEMARK_") or OTHERS.match(k))}
    env.update(BUILD=build, FIXTURES=os.path.join(ROOT, "fixtures"), SCHEMA=os.path.join(ROOT, "schema"),
               PATH=os.path.join(build, "bin") + os.pathsep + env["PATH"], LC_ALL="C.UTF-8", COLUMNS="160",
               # For `make asan` and its kin; without a sanitizer nobody reads them.
               ASAN_OPTIONS="abort_on_error=0:exitcode=99", UBSAN_OPTIONS="print_stacktrace=1", TSAN_OPTIONS="exitcode=99:halt_on_error=1")
    return env


def run_binary(outcomes, name, command, build, timeout):
    start = time.monotonic()
    status, out, _ = run(command, timeout, env=environment(build), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = out.decode(errors="replace")
    seconds = time.monotonic() - start
    if status == 0:
        outcomes.add("passed", name, seconds)
    elif status == SKIPPED:
        outcomes.add("skipped", name, seconds, (text.rstrip().splitlines() or ["no reason given"])[-1])
    else:
        why = f"stopped after {timeout} s" if status is None else f"exit status {status}"
        outcomes.add("failed", name, seconds, f"{text}\n{why}\n")


def read(path, default=None):
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return default


def match_lines(what, patterns, text):
    """Every line matches the pattern at its place, and there are no others; returns complaints."""
    lines = text.decode(errors="replace").splitlines()
    wanted = patterns.decode().splitlines()
    complaints = []
    for i in range(max(len(lines), len(wanted))):
        line = lines[i] if i < len(lines) else None
        pattern = wanted[i] if i < len(wanted) else None
        if line is None or pattern is None or not re.fullmatch(pattern, line):
            complaints.append(f"{what} line {i + 1}: expected {pattern!r}, got {line!r}")
    return complaints


def run_cli(outcomes, name, directory, build, timeout):
    start = time.monotonic()
    reason = read(os.path.join(directory, "needs"))
    for tool in (reason or b"").decode().split():
        if tool == "no-sanitizer":
            if not re.search(r"/(asan|tsan)$", os.path.abspath(build)):
                continue
            outcomes.add("skipped", name, 0, "a program with such checks has a malloc of its own, which nobody records")
            return
        if not shutil.which(tool):
            outcomes.add("skipped", name, 0, f"{tool} is not installed")
            return
    with tempfile.TemporaryDirectory(prefix="tidemark-cli-") as work:
        status, out, err = run(["sh", os.path.join(directory, "cmd")], timeout, env=environment(build), cwd=work,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wanted = int(read(os.path.join(directory, "status"), b"0"))
    complaints = []
    if status != wanted:
        complaints.append(f"stopped after {timeout} s" if status is None else f"exit status {status}, expected {wanted}")
    exact = read(os.path.join(directory, "stdout"))
    patterns = read(os.path.join(directory, "stdout.re"))
    if patterns is not None:
        complaints += match_lines("stdout", patterns, out)
    elif out != (exact or b""):
        complaints.append(f"stdout differs; expected:\n{(exact or b'').decode(errors='replace')}")
    complaints += match_lines("stderr", read(os.path.join(directory, "stderr"), b""), err)
    seconds = time.monotonic() - start
    if not complaints:
        outcomes.add("passed", name, seconds)
        return
    detail = "\n".join(complaints) + "\n--- stdout\n" + out.decode(errors="replace") + "--- stderr\n" + err.decode(errors="replace")
    outcomes.add("failed", name, seconds, detail)


def run_integration(outcomes, path, build, timeout, long, only):
    """A script prints `@ outcome seconds name` behind the output of each test; what it printed before that belongs to the test. It ends with 1 if one has
    failed: where none did, it could not be run, as Python says of what it cannot read."""
    base = os.path.basename(path)[len("test_"):-len(".py")]
    command = [sys.executable, "-u", path, f"--build={build}", f"--timeout={timeout}"] + (["--long"] if long else []) + \
        ([f"--only={only}"] if only else [])
    start = time.monotonic()
    child = subprocess.Popen(command, env=environment(build), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, start_new_session=True)
    text, failed = [], False
    for raw in child.stdout:
        line = raw.decode(errors="replace")
        found = re.match(r"@ (passed|failed|skipped) ([\d.]+) (.*)", line)
        if found:
            outcomes.add(found[1], f"integration:{base}:{found[3]}", float(found[2]), "".join(text))
            text, failed = [], failed or found[1] == "failed"
        else:
            text.append(line)
    if child.wait() != failed:
        outcomes.add("failed", f"integration:{base}", time.monotonic() - start, "".join(text) + f"exit status {child.returncode}\n")


def collect(arguments, outcomes):
    """All tests as (name, function) pairs, those that take longest first."""
    build, timeout = arguments.build, arguments.timeout
    jobs = []
    integration = os.path.join(ROOT, "tests/integration")
    for file in sorted(os.listdir(integration)):
        if re.fullmatch(r"test_\w+\.py", file):
            path = os.path.join(integration, file)
            jobs.append((None, lambda path=path: run_integration(outcomes, path, build, timeout, arguments.long, arguments.only)))
    for kind in ("unit", "fuzz"):
        directory = os.path.join(build, "tests", kind)
        for file in sorted(os.listdir(directory)) if os.path.isdir(directory) else []:
            path = os.path.join(directory, file)
            if not re.fullmatch(r"(test|fuzz)_\w+", file) or not os.path.exists(os.path.join(ROOT, "tests", kind, file + ".c")):
                continue
            corpus = os.path.join(ROOT, "tests/fuzz/corpus", file)
            name = f"unit:{file[len('test_'):]}" if kind == "unit" else f"fuzz:{file[len('fuzz_'):]}"
            command = [path] + ([os.path.join(corpus, f) for f in sorted(os.listdir(corpus))] if kind == "fuzz" else [])
            jobs.append((name, lambda name=name, command=command: run_binary(outcomes, name, command, build, timeout)))
    cli = os.path.join(ROOT, "tests/cli")
    for directory in sorted(os.listdir(cli)):
        path = os.path.join(cli, directory)
        if os.path.exists(os.path.join(path, "cmd")):
            name = f"cli:{directory}"
            jobs.append((name, lambda name=name, path=path: run_cli(outcomes, name, path, build, timeout)))
    layers = [os.path.join(ROOT, "tests/layers.sh"), build]
    jobs.append(("layers", lambda: run_binary(outcomes, "layers", layers, build, timeout)))
    # Integration scripts choose among their own tests.
    return [job for name, job in jobs if name is None or not arguments.only or re.search(arguments.only, name)]


def main():
    parser = argparse.ArgumentParser(description="run the tests")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="where make put its output")
    parser.add_argument("--only", help="only the tests whose name matches this regular expression")
    parser.add_argument("--long", action="store_true", help="also what takes long")
    parser.add_argument("--timeout", type=int, default=600, help="seconds a test may take, on a busy machine too; three times as many with --long")
    parser.add_argument("--jobs", type=int, default=min(3, 1 + (os.cpu_count() or 1)), help="how many at a time; some wait for most of their time")
    arguments = parser.parse_args()
    arguments.build = os.path.abspath(arguments.build)
    if re.search(r"[\s:]", arguments.build):
        parser.error(f"cannot test '{arguments.build}': the loader preloads nothing whose path has a blank or a colon; build elsewhere, with make BUILD=DIR")
    # Nor do TIDEMARK_OPTIONS, heaptrack and LeakSanitizer take such a path, and browsers make sockets there, whose paths are short.
    if re.search(r"[\s:]", tempfile.gettempdir()) or len(tempfile.gettempdir()) > 60:
        for name in ("TMPDIR", "TEMP", "TMP"):
            os.environ.pop(name, None)
        tempfile.tempdir = None
    # Started in a shell's background, by nohup or by a build server, some signals are ignored or blocked; the tests' programs must not inherit that.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # of these two Python sees to itself
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    logs = os.path.join(arguments.build, "test-logs")
    shutil.rmtree(logs, ignore_errors=True)
    os.makedirs(logs)
    outcomes = Outcomes(logs)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for done in [pool.submit(job) for job in collect(arguments, outcomes)]:
            done.result()
    count = outcomes.count
    for name, detail in outcomes.failures:  # once more, where whoever sees but the end of the output finds them
        reason = [line for line in detail.rstrip().splitlines() if line.strip()][-3:] or ["no output"]
        print(f"failed: {name}: " + " | ".join(line.strip()[:1000] for line in reason))
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    if not any(count.values()):
        print(f"no test's name matches '{arguments.only}': they are unit:FILE, fuzz:FILE, cli:DIRECTORY, integration:FILE:TEST (FILE without test_), layers")
        return 1
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
