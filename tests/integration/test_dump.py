"""`tidemark dump`: what it leaves alone, and who gets what where several ask. (What a dump holds: test_flight.py.)"""
import array
import fcntl
import os
import pty
import signal
import subprocess
import termios
import time

from tidemark_test import main, test


def waiting_in(pipe):
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


@test
def what_waits_for_the_program(t):
    """The recorder has the program's standard error open, too: a terminal, in which a line was typed, or a named pipe."""
    line = b"a line of more than eight letters\n"
    master, slave = pty.openpty()
    os.mkfifo(t.path("fifo"))
    pipe = os.open(t.path("fifo"), os.O_RDWR)
    for number, (to, terminal) in enumerate(((master, slave), (pipe, pipe))):
        recorder = t.start([t.recorder, "-o", t.path(f"typed{number}.tmk"), "--quiet", "--", t.program("forever.c")], stdout=subprocess.DEVNULL, stdin=terminal, stderr=terminal)
        victim = t.command_of(recorder)
        os.write(to, line)
        t.run([t.tidemark, "dump", f"--pid={victim}"], status=0, timeout=20)
        os.set_blocking(terminal, False)
        t.equal(os.read(terminal, 100), line, "what the program would read")
        os.kill(victim, signal.SIGTERM)
        t.equal(recorder.wait(60), 5, "status")
    for fd in (master, slave, pipe):
        os.close(fd)


@test
def a_trace_that_goes_to_a_pipe(t):
    """There is nothing to copy, and its reader gets all of it."""
    fifo = t.path("fifo.tmk")
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    recorder = t.start([t.recorder, "-o", fifo, "--force", "--quiet", "--", t.program("forever.c")], stdout=subprocess.DEVNULL)
    victim = t.command_of(recorder)
    while waiting_in(reader) < 100:
        time.sleep(0.01)
    done = t.run([t.tidemark, "dump", f"--pid={victim}"], status=1, timeout=20)
    t.equal(done.errors, f"tidemark-record: cannot get a dump of process {victim}: its recorder has no trace open that is a file\n", "what is said")
    os.kill(victim, signal.SIGTERM)
    os.set_blocking(reader, True)
    with os.fdopen(reader, "rb") as pipe, open(t.path("whole.tmk"), "wb") as whole:
        whole.write(pipe.read())
    t.equal(recorder.wait(60), 5, "status")
    t.equal(t.imported(t.path("whole.tmk")).row("select cut_reason, (select end_code from process) from trace"), (None, 5), "the trace")


main()
