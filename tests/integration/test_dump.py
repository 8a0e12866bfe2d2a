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


@test
def several_who_ask_at_once(t):
    """Each gets a dump of its own, under the name that it wants; of two who want one name the second is refused."""
    recorder = t.start([t.recorder, "-o", t.path("run.tmk"), "--quiet", "--", t.program("forever.c")], stdout=subprocess.DEVNULL)
    victim = t.command_of(recorder)
    os.kill(recorder.pid, signal.SIGSTOP)
    names = ("a.tmk", "b.tmk", "c.tmk", "c.tmk")
    askers = [t.start([t.tidemark, "dump", f"--pid={victim}", "-o", t.path(name)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for name in names]
    time.sleep(0.3)
    os.kill(recorder.pid, signal.SIGCONT)
    said = sorted((asker.communicate(timeout=30)[1].decode().rpartition(": ")[2], asker.returncode) for asker in askers)
    t.equal(said, [("", 0)] * 3 + [("the output exists\n", 1)], "what they are told")
    os.kill(victim, signal.SIGTERM)
    t.equal(recorder.wait(60), 5, "status")
    for name in names[:3]:
        t.equal(t.imported(t.path(name)).value("select cut_reason from trace"), None, name)
    t.equal([name for name in os.listdir(t.dir) if ".dump" in name], [], "further dumps")


@test
def names_that_look_like_those_of_dumps(t):
    for name in ("run.part", "run.ring", "run.dump.part"):
        recorder = t.start([t.recorder, "-o", t.path(name), "--quiet", "--", t.program("forever.c")], stdout=subprocess.DEVNULL)
        done = t.run([t.tidemark, "dump", f"--pid={t.command_of(recorder)}"], status=0, timeout=30)
        t.equal(done.text, t.path(f"{name}.dump1.tmk\n"), "what dump prints")
        recorder.kill()
        recorder.wait()


HELD = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
ssize_t write(int fd, const void *bytes, size_t n) {
	ssize_t (*next)(int, const void *, size_t);
	char link[64], path[PATH_MAX];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t length = readlink(link, path, sizeof path);
	if (length > 5 && !memcmp(path + length - 5, ".part", 5)) {
		while (access(getenv("GO"), F_OK)) usleep(10000);
		if (!access(getenv("FULL"), F_OK)) return errno = ENOSPC, -1;
	}
	*(void **)&next = dlsym(RTLD_NEXT, "write");
	return next(fd, bytes, n);
}
"""

BUSY = """
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
static volatile sig_atomic_t over;
static void end(int number) { over = number; }
int main(void) {
	void *kept[4096] = { 0 };
	signal(SIGTERM, end);
	for (unsigned long i = 0; !over; i++) {
		free(kept[i * i % 4096]);
		kept[i * i % 4096] = malloc(16 + i % 3000);
		if (i % 10000 == 0) usleep(1000);
	}
	return 0;
}
"""


@test
def a_copy_that_takes_long(t):
    """The file system keeps who writes the copy waiting: program and recording go on meanwhile, and nothing is lost. Then it is full: who asked is told."""
    if t.sanitized:
        t.skip("a sanitizer's library has to be the first one")
    for name, text in (("held.c", HELD), ("busy.c", BUSY)):
        with open(t.path(name), "w", encoding="ascii") as file:
            file.write(text)
    held, trace, go = t.program(t.path("held.c"), "-shared", "-fPIC", "-ldl", name="held.so"), t.path("long.tmk"), t.path("go")
    recorder = t.start([t.recorder, "-o", trace, "--quiet", "--", t.program(t.path("busy.c"))], env={"LD_PRELOAD": held, "GO": go, "FULL": t.path("full")}, stderr=subprocess.PIPE)
    victim = t.command_of(recorder)
    asker = t.start([t.tidemark, "dump", f"--pid={victim}"], stdout=subprocess.PIPE)
    while not os.path.exists(t.path("long.dump1.tmk.part")):
        time.sleep(0.01)
    begin = os.path.getsize(trace)
    for _ in range(1000):
        if os.path.getsize(trace) > begin + (4 << 20):
            break
        time.sleep(0.02)
    t.check(os.path.getsize(trace) > begin + (4 << 20), "the recording waits for the copy")
    t.equal(asker.poll(), None, "who asked waits")
    with open(go, "wb"):
        pass
    t.equal((asker.communicate(timeout=60)[0].decode(), asker.returncode), (t.path("long.dump1.tmk") + "\n", 0), "what dump prints")
    with open(t.path("full"), "wb"):
        pass
    done = t.run([t.tidemark, "dump", f"--pid={victim}"], status=1, timeout=20)
    t.equal(done.errors, f"tidemark-record: cannot get a dump of process {victim}: No space left on device\n", "what is said to who asks")
    os.kill(victim, signal.SIGTERM)
    said = recorder.communicate(timeout=60)[1].decode()
    t.equal((recorder.returncode, said), (0, f"tidemark-record: cannot write a dump of '{trace}': No space left on device\n"), "and by the recorder")
    t.equal(sorted(name for name in os.listdir(t.dir) if ".dump" in name), ["long.dump1.tmk"], "files")
    for name in ("long.dump1.tmk", "long.tmk"):
        t.equal(t.imported(t.path(name)).row("select cut_reason, (select count(*) from loss) from trace"), (None, 0), name)


main()
