"""What the integration tests share: build a program, record it, import it, ask, compare with figures worked out by hand.

A test file looks like this, and runs alone too (python3 tests/integration/test_x.py [--only=PATTERN] [--long] [--keep]):

    from tidemark_test import main, test

    @test
    def counts(t):
        program = t.program("leak.c")
        recording = t.record([program])
        db = t.imported(recording)
        t.equal(db.value("select sum(live_count) from live_at_exit"), 3, "blocks live at exit")

    main()

Each test has a directory of its own, kept only with --keep or on failure. Only Python's standard library is used, and the tools are
run as a user runs them.
"""
import argparse
import base64
import contextlib
import fcntl
import glob
import gzip
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TESTS = []


class Skipped(Exception):
    pass


class Failed(Exception):
    pass


class TimeIsOver(BaseException):
    pass


def test(function=None, *, long=False):
    """Registers a test; long=True: only with --long (make check-long)."""
    def register(f):
        TESTS.append((f, long))
        return f
    return register(function) if function else register


def data_of(page):
    """What a report's page has for its script."""
    packed = re.search(r'<script type="application/octet-stream" id="data">([A-Za-z0-9+/=]*)</script>', page)[1]
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def free_port():
    """A TCP port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def settled(measure, fits):
    """The first figure that fits, of five, or the last. Of what a busy machine changes now and then: among counts of instructions are those of waiting for the
    other side, and what waits to be written takes memory."""
    for _ in range(5):
        figure = measure()
        if fits(figure):
            break
    return figure


def counted(*command):
    """The command so that what it executes is counted, but not what its children do. By cachegrind, which counts as callgrind does, in less than half of the time."""
    return ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", *command]


def instructions_of(outcome):
    """Of a command of counted()."""
    return int(re.search(r"I +refs: +([\d,]+)", outcome.errors)[1].replace(",", ""))


@contextlib.contextmanager
def one_at_a_time(path):
    """Scripts that run at the same time want the same programs: none replaces what another has built and runs."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def state_of(pid):
    """As ps shows it; None: there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return None


class Outcome:
    """What a command did: status (as a shell sees it), out and err (bytes)."""

    def __init__(self, command, status, out, err):
        self.command, self.status, self.out, self.err = command, status, out, err

    @property
    def text(self):
        return self.out.decode(errors="replace")

    @property
    def errors(self):
        return self.err.decode(errors="replace")


class Recording(Outcome):
    trace = None

    @property
    def program_err(self):
        """Standard error without the recorder's closing summary."""
        return b"".join(line for line in self.err.splitlines(True) if not line.startswith(b"tidemark"))


class Database:
    """A database as the tool made it, opened read-only."""

    def __init__(self, path):
        self.path = path
        self.connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)

    def rows(self, query, *arguments):
        return self.connection.execute(query, arguments).fetchall()

    def row(self, query, *arguments):
        rows = self.rows(query, *arguments)
        if len(rows) != 1:
            raise Failed(f"{len(rows)} rows instead of 1 from: {query}")
        return rows[0]

    def value(self, query, *arguments):
        return self.row(query, *arguments)[0]


class Test:
    """One running test."""

    def __init__(self, name, build, directory, long):
        self.name, self.build, self.dir, self.long = name, build, directory, long
        self.root = ROOT
        self.tidemark = os.path.join(build, "bin/tidemark")
        self.recorder = os.path.join(build, "bin/tidemark-record")
        self.library = os.path.join(build, "lib/libtidemark.so")
        self.children = []
        self.sanitized = bool(re.search(r"/(asan|ubsan|tsan)$", build))

    def path(self, name):
        return os.path.join(self.dir, name)

    # --- verdicts

    def skip(self, reason):
        raise Skipped(reason)

    def need(self, *commands):
        for command in commands:
            if not shutil.which(command):
                self.skip(f"{command} is not installed")

    def check(self, condition, what):
        if not condition:
            raise Failed(what)

    def equal(self, got, wanted, what):
        if got != wanted:
            raise Failed(f"{what}: got {got!r}, expected {wanted!r}")

    # --- commands

    def environment(self, changes):
        """The tools in front of PATH, nothing of ours or of make's inherited; a change to None removes a variable."""
        full = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMARK_") and k not in ("LD_PRELOAD", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
        full["PATH"] = os.path.join(self.build, "bin") + os.pathsep + full["PATH"]
        full.update(changes or {})
        return {name: value for name, value in full.items() if value is not None}

    def run(self, command, *, env=None, cwd=None, stdin=subprocess.DEVNULL, input=None, status=None, kind=Outcome, preexec=None, timeout=None):
        """Runs a command to its end; `status` is what it must end with, if given."""
        full = self.environment(env)
        child = subprocess.Popen(command, env=full, cwd=cwd or self.dir, stdin=subprocess.PIPE if input is not None else stdin,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, preexec_fn=preexec)
        self.children.append(child)
        try:
            out, err = child.communicate(input, timeout)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            raise Failed(f"not done after {timeout} s: {command}") from None
        self.children.remove(child)
        code = child.returncode if child.returncode >= 0 else 128 - child.returncode
        outcome = kind(command, code, out, err)
        if status is not None and code != status:
            raise Failed(f"exit status {code}, expected {status}: {command}\n{outcome.text[-2000:]}{outcome.errors[-2000:]}")
        return outcome

    def start(self, command, *, env=None, cwd=None, **options):
        """Starts a command that the test stops itself; killed at the test's end if it still runs."""
        full = self.environment(env)
        child = subprocess.Popen(command, env=full, cwd=cwd or self.dir, start_new_session=True, **options)
        self.children.append(child)
        return child

    def command_of(self, recorder):
        """The pid of the program (of program(), below) that a started recorder runs; the recorder has helpers of its own beside it."""
        places = tuple(os.path.realpath(place) + os.sep for place in (os.path.join(self.build, "programs"), self.dir))
        for _ in range(6000):
            try:
                with open(f"/proc/{recorder.pid}/task/{recorder.pid}/children", encoding="ascii") as file:
                    for child in file.read().split():
                        if os.readlink(f"/proc/{child}/exe").startswith(places):
                            return int(child)
            except OSError:
                pass
            time.sleep(0.01)
        raise Failed("the recorder did not start its command")

    def end(self):
        for child in self.children:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()

    # --- programs

    def shared_library(self, name):
        """Its path; the test is skipped where it is not installed."""
        found = glob.glob(f"/usr/lib/*/{name}")
        return found[0] if found else self.skip(f"{name} is not installed")

    def program(self, source, *flags, cc="gcc", name=None):
        """Compiles fixtures/programs/SOURCE (or an absolute path), once a build directory for the same flags; returns the program. What a test has written is its own,
        whatever programs of that name there are."""
        path = source if os.path.isabs(source) else os.path.join(ROOT, "fixtures/programs", source)
        self.need(cc)
        tag = re.sub(r"[^\w]+", "_", " ".join((cc if cc != "gcc" else "",) + flags))[:60]
        directory = self.dir if path.startswith(self.dir + os.sep) else os.path.join(self.build, "programs")
        out = os.path.join(directory, name or os.path.splitext(os.path.basename(path))[0] + tag)
        header = os.path.join(ROOT, "recorder/tidemark.h")
        with one_at_a_time(out):
            if not os.path.exists(out) or os.path.getmtime(out) < max(os.path.getmtime(path), os.path.getmtime(header)):
                part = f"{out}.{os.getpid()}"
                # -O0 keeps every call that the figures in the opening comments count; -fno-builtin for flags that optimise.
                command = [cc, "-g", "-O0", "-w", "-fno-builtin", "-I", os.path.join(ROOT, "recorder"), "-o", part, path, *flags, "-pthread"]
                done = self.run(command)
                if done.status != 0:
                    raise Failed(f"cannot compile {path}:\n{done.errors}")
                os.rename(part, out)
        return out

    # --- the tools

    def record(self, command, *options, output=None, status=0, **how):
        """tidemark record -o output options -- command; the output must be unlike any before."""
        output = output or self.path(f"run{len(glob.glob(self.path('run*.tmk')))}.tmk")
        done = self.run([self.tidemark, "record", "-o", output, *options, "--", *command], status=status, kind=Recording, **how)
        done.trace = output
        return done

    def imported(self, *recordings, options=(), status=0):
        """Imports recordings (or paths of traces) into one new database."""
        traces = [r.trace if isinstance(r, Recording) else r for r in recordings]
        db = self.path(f"db{len(glob.glob(self.path('db*.db')))}.db")
        self.run([self.tidemark, "import", *traces, "-o", db, *options], status=status)
        return Database(db)

    def whole(self, trace):
        """The trace of a program that has started its recorder itself, once that is done: it keeps the file locked until then, and holds no stream of the program's."""
        with open(trace, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
        return trace

    def ask(self, *arguments, status=0):
        return self.run([self.tidemark, *arguments], status=status)

    def same_as_bare(self, command, *options, **how):
        """Runs the command bare and recorded: output and status must be the same. Returns the recording."""
        bare = self.run(command, **how)
        recording = self.record(command, "--quiet", *options, status=None, **how)
        self.equal(recording.status, bare.status, "exit status, recorded and bare")
        if recording.out != bare.out:
            raise Failed(f"standard output differs from the bare run:\n{recording.text[-1000:]}\n--- bare\n{bare.text[-1000:]}")
        if recording.err != bare.err:
            raise Failed(f"standard error differs from the bare run:\n{recording.errors[-1000:]}\n--- bare\n{bare.errors[-1000:]}")
        return recording


def run_one(function, build, long, timeout, keep):
    """Runs one test and prints what tests/run.py reads."""
    name = function.__name__
    directory = tempfile.mkdtemp(prefix=f"tidemark-{name}-")
    t = Test(name, build, directory, long)
    start = time.monotonic()

    def over(_signal, _frame):
        raise TimeIsOver

    signal.signal(signal.SIGALRM, over)
    signal.alarm(timeout)
    outcome = "passed"
    try:
        function(t)
    except Skipped as reason:
        outcome = "skipped"
        print(reason)
    except Failed as why:
        outcome = "failed"
        print(why)
        print(f"in {[f'{f.filename}:{f.lineno}' for f in traceback.extract_tb(why.__traceback__) if 'test_' in os.path.basename(f.filename)][-1:]}")
    except TimeIsOver:
        outcome = "failed"
        print(f"stopped after {timeout} s")
        traceback.print_exc()
    except Exception:  # a mistake of the test is a failure of the test
        outcome = "failed"
        traceback.print_exc(file=sys.stdout)
    finally:
        signal.alarm(0)
        t.end()
    seconds = time.monotonic() - start
    if keep:
        print(f"kept: {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)
    print(f"@ {outcome} {seconds:.2f} {name}", flush=True)
    return outcome != "failed"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--only")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--keep", action="store_true", help="keep the directories of the tests")
    parser.add_argument("--timeout", type=int, default=600)
    arguments = parser.parse_args()
    build = os.path.abspath(arguments.build)
    base = os.path.basename(sys.argv[0])[len("test_"):-len(".py")]
    sound = True
    for function, long in TESTS:
        if arguments.only and not re.search(arguments.only, f"integration:{base}:{function.__name__}"):
            continue
        if long and not arguments.long:
            continue
        sound &= run_one(function, build, arguments.long, arguments.timeout * (3 if arguments.long else 1), arguments.keep)
    sys.exit(0 if sound else 1)
