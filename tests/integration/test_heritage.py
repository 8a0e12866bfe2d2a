"""What a program has of the process that starts it, although the recorder stands between the two: descriptors, limits, signals of a parent's death, orphans.

Method: fixtures/programs/heir.c says what it finds, bare and recorded.
"""
import ctypes
import os
import re
import resource
import signal
import sys
import time

from tidemark_test import main, state_of, test

SUBREAPER, DEATH_SIGNAL = 36, 1  # of prctl()

# Starts its arguments, says on which pid they are, and dies behind them.
LAUNCHER = """
import ctypes, os, subprocess, sys, time
first = lambda: ctypes.CDLL(None).prctl(1, int(sys.argv[1]), 0, 0, 0)
child = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=first)
print(child.stdout.readline().decode().strip(), flush=True)
time.sleep(0.3)
os._exit(0)
"""


def prctl(option, value):
    if ctypes.CDLL(None).prctl(option, value, 0, 0, 0) != 0:
        raise OSError("prctl")


def both(t, *arguments):
    """The command bare, and recorded."""
    command = [t.program("heir.c"), *arguments]
    return command, [t.recorder, "--quiet", "--force", "-o", t.path("heir.tmk"), "--", *command]


@test
def the_reader_of_its_output_sees_the_end(t):
    for n, command in enumerate(both(t, "eof")):
        made, words = t.path(f"made{n}"), " ".join(f"'{word}'" for word in command)
        done = t.run(["sh", "-c", f"(exec {words} '{made}') | (cat; : >'{made}')"], status=0)
        t.equal(done.errors.strip(), "the reader saw the end", command[0])


@test
def descriptors_of_a_library_within_the_recorder(t):
    """What an allocator that is preloaded opened before main() is its own; closed, the next file of the recorder's would have its number."""
    library = t.program("own_pipe.c", "-shared", "-fPIC", name="libown_pipe.so")
    for command in ([t.program("heir.c"), "nothing"], [t.recorder, "-o", t.path("heir.tmk"), "--", t.program("heir.c"), "nothing"]):
        done = t.run(command, env={"LD_PRELOAD": library})
        t.equal([line for line in done.errors.split("\n") if "own_pipe" in line], [], command[0])
    t.imported(t.path("heir.tmk"))


@test
def a_lock_is_gone_with_its_descriptor(t):
    path = t.path("locked")
    for command in both(t, "lock", "9", path):
        t.equal(t.run(["sh", "-c", 'exec 9>"$0"; flock -n 9; exec "$@"', path, *command], status=0).out, b"free\n", command[0])


@test
def a_record_lock_stays(t):
    """It belongs to a process: it was the launcher's, who became the recorder, and closing any descriptor of the file would release it."""
    launcher = "import fcntl, os, sys\nfile = open(sys.argv[1], 'w')\nfcntl.lockf(file, fcntl.LOCK_EX)\nos.set_inheritable(file.fileno(), True)\nos.execv(sys.argv[2], sys.argv[2:])"
    for command in both(t, "record", t.path("range")):
        t.equal(t.run([sys.executable, "-c", launcher, t.path("range"), *command], status=0).out, b"held\n", command[0])


@test
def a_trace_that_goes_to_an_inherited_descriptor(t):
    for name in ("/proc/self/fd/5", "/dev/fd/5", "/dev/stdout"):
        path = t.path("inherited.tmk")
        t.run(["sh", "-c", f"exec 5>'{path}' >&5; exec '{t.recorder}' --quiet --force -o {name} -- true"], status=0)
        t.check(re.search(r"complete +yes", t.ask("info", path).text), f"the trace at {name}")
    os.symlink("/proc/self/fd", t.path("fds"))
    for name in [f"/proc/self/fd/{n}" for n in range(3, 20)] + [f"{t.path('fds')}/{n}" for n in range(3, 8)]:
        done = t.run([t.recorder, "--force", "-o", name, "--", "true"])
        t.check(done.status == 125 and "cannot create" in done.errors, f"{name}, which was not given: {done.status} {done.errors}")


@test
def orphans_are_given_to_whom_they_were_meant_for(t):
    for wanted, preexec in ((b"5 reaped\n", None), (b"10 reaped\n", lambda: prctl(SUBREAPER, 1))):
        for command in both(t, "orphans", "5"):
            t.equal(t.run(command, status=0, preexec=preexec).out, wanted, command[0])


@test
def it_dies_with_its_parent(t):
    """Whether it asked for that itself, or its parent did for it; and lives on where nobody asked, or it wants it no more."""
    for by_parent, by_itself, lives in ((0, signal.SIGTERM, False), (0, signal.SIGKILL, False), (signal.SIGTERM, 0, False), (signal.SIGKILL, 0, False), (0, 0, True),
                                        (signal.SIGTERM, -1, True), (signal.SIGKILL, -1, True), (signal.SIGUSR1, signal.SIGKILL, False)):
        for command in both(t, "death", str(int(by_itself))):
            pid = int(t.run([sys.executable, "-c", LAUNCHER, str(int(by_parent)), *command], status=0).out)
            end = time.monotonic() + (0.5 if lives else 10)
            while state_of(pid) not in (None, "Z") and time.monotonic() < end:
                time.sleep(0.01)
            found = state_of(pid) not in (None, "Z")
            if found:
                os.kill(pid, signal.SIGKILL)
            t.equal(found, lives, f"{command[0]}, signal {by_parent} by its parent, {by_itself} by itself: it lives")


@test
def a_limit_on_processor_time_is_the_programs(t):
    """All of a job's events are on the recorder's account, each process of it has the limit for itself."""
    limited = lambda: resource.setrlimit(resource.RLIMIT_CPU, (100, 200))
    may_lift = "import resource as r\ntry: r.setrlimit(r.RLIMIT_CPU, (-1, -1))\nexcept (OSError, ValueError): pass\nprint(r.getrlimit(r.RLIMIT_CPU)[1])"
    most = int(t.run([sys.executable, "-c", may_lift], status=0, preexec=limited).out)
    _, recorded = both(t, "limit")
    t.equal(t.run(recorded, status=0, preexec=limited).out.decode(), f"100 {most}\n", "soft limits of the program and of the recorder")


@test
def a_variable_that_names_the_program(t):
    for command in both(t, "named"):
        t.equal(t.run(["sh", "-c", 'LISTEN_PID=$$; export LISTEN_PID; exec "$@"', "sh", *command], status=0).out, b"named\n", command[0])
        t.equal(t.run(["sh", "-c", 'LISTEN_PID=1; export LISTEN_PID; exec "$@"', "sh", *command], status=0).out, b"another\n", f"{command[0]}, meant for another")


main()
