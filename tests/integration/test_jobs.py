"""Job control: a recorded program stops and goes on under an interactive shell as it does alone, and nothing of it is lost.

Method: bash runs on a terminal of its own (Python's pty). fixtures/programs/job.c is told what to do through it, first bare and then recorded, and both have
to answer alike. How many blocks there are in the trace is what the program said itself.
"""
import os
import pty
import re
import select
import signal
import subprocess
import time

from tidemark_test import main, state_of, test

STOPPED, CTRL_Z = r"\[1\]\+ +Stopped", "\x1a"


class Shell:
    """An interactive bash on a terminal."""

    def __init__(self, t):
        self.t = t
        self.terminal, other = pty.openpty()
        self.text = ""
        self.bash = t.start(["bash", "--norc", "--noprofile", "--noediting", "-i"], stdin=other, stdout=other, stderr=subprocess.STDOUT,
                            preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)), env={"PS1": "", "HISTFILE": "", "TERM": "dumb", "LC_ALL": "C"})
        os.close(other)
        self.type("set -b\n")  # jobs that stop in the background are told of at once

    def type(self, text):
        os.write(self.terminal, text.encode())

    def until(self, pattern):
        """What was written until the pattern came; it is taken out, with all that was before."""
        end = time.monotonic() + 60
        while not (found := re.search(pattern, self.text)):
            if not select.select([self.terminal], [], [], max(0, end - time.monotonic()))[0]:
                break
            try:
                self.text += os.read(self.terminal, 65536).decode(errors="replace").replace("\r", "")
            except OSError:
                break
        self.t.check(found, f"{pattern!r} did not come: {self.text!r}, processes: {self.states()}")
        before, self.text = self.text[:found.start()], self.text[found.end():]
        return before

    def states(self):
        return subprocess.run(["ps", "-o", "pid,ppid,pgid,stat,args", "-g", str(self.bash.pid)], capture_output=True, text=True, check=False).stdout

    def close(self):
        os.close(self.terminal)


def program_of(t, shell):
    """The pid of job.c, and of what the shell has started: the same, if it is not recorded."""
    for _ in range(6000):
        for first in children(shell.bash.pid):
            for pid in (first, *children(first)):
                if runs_job(pid):
                    return pid, first
        time.sleep(0.01)
    return t.check(False, "the program did not start")


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def runs_job(pid):
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "job"
    except OSError:
        return False


def wait_for_state(t, pid, states):
    for _ in range(6000):
        if state_of(pid) in states:
            return
        time.sleep(0.01)
    t.check(False, f"process {pid} is {state_of(pid)}, not one of {states}")


def both(t, mode, what):
    """what(shell, pid of the program, pid of the shell's child) -> blocks: bare, then recorded, whose trace holds as many and lost none."""
    program = t.program("job.c")
    for recorded in (False, True):
        shell = Shell(t)
        command = f"{t.tidemark} record --quiet -o {t.path('job.tmk')} -- {program}" if recorded else program
        shell.type(f"{command} {mode}\n")
        shell.until("ready\n")
        blocks = what(shell, *program_of(t, shell))
        shell.close()
    db = t.imported(t.path("job.tmk"))
    t.equal(db.value("select complete from trace"), 1, "complete")
    t.equal(db.rows("select kind, count, reason from loss"), [], "losses")
    t.equal(db.value("select sum(allocations) from site where function = 'allocate'"), blocks, "blocks")
    return db


def allocates(shell, total):
    """It is in the foreground, and allocates once more; what was written meanwhile."""
    shell.type("a\n")
    return shell.until(f"total {total}\n")


def leaves(shell):
    shell.type("q\n")
    shell.type("echo it was $?.\n")
    return shell.until(r"it was 5\.\n")


@test
def control_z(t):
    """Twice; the shell says so, nothing runs meanwhile, and fg goes on."""
    def what(shell, program, job):
        for total in (1000, 2000):
            allocates(shell, total)
            shell.type(CTRL_Z)
            shell.until(STOPPED)
            wait_for_state(t, program, "T")
            wait_for_state(t, job, "T")
            shell.type("fg\n")
        allocates(shell, 3000)
        leaves(shell)
        return 3000
    both(t, "", what)


@test
def control_z_that_is_ignored(t):
    """The program goes on, and so does the job; the shell is told nothing."""
    def what(shell, _program, _job):
        shell.type(CTRL_Z)
        said = allocates(shell, 1000) + leaves(shell)
        t.check("Stopped" not in said, said)
        return 1000
    both(t, "ignore", what)


@test
def control_z_that_is_caught(t):
    """The program does a lot before it stops: the recorder is there for it until then."""
    def what(shell, program, _job):
        shell.type(CTRL_Z)
        t.check("Stopped" not in shell.until("caught\n"), "the shell is told when the program has stopped, not before")
        shell.until(STOPPED)
        wait_for_state(t, program, "T")
        shell.type("fg\n")
        allocates(shell, 201000)
        leaves(shell)
        return 201000
    both(t, "catch", what)


@test
def program_that_stops_itself(t):
    """By SIGSTOP, which nothing but its parent is told of; in the background it goes on until it reads from the terminal."""
    def what(shell, _program, _job):
        shell.type("s\n")
        shell.until(STOPPED)
        shell.type("bg\n")
        shell.until("went on\n")
        shell.until(STOPPED)
        shell.type("fg\n")
        allocates(shell, 1000)
        leaves(shell)
        return 1000
    both(t, "", what)


@test
def signals_to_one_of_them(t):
    """Whichever of the two is stopped or continued by its pid alone, the other follows; what the program is told of it, it is told once."""
    def what(shell, program, job):
        total = 0
        for stopped, number, continued in ((job, signal.SIGTSTP, job), (program, signal.SIGSTOP, program), (program, signal.SIGTSTP, job), (job, signal.SIGTSTP, program)):
            os.kill(stopped, number)
            shell.until(STOPPED)
            wait_for_state(t, program, "T")
            wait_for_state(t, job, "T")
            os.kill(continued, signal.SIGCONT)
            shell.until("continued\n")
            wait_for_state(t, program, "T")  # it reads from the terminal again
            wait_for_state(t, job, "T")
            for _ in range(1000):  # of what it takes to be running, fg only waits for the end
                shell.type("jobs; echo these.\n")
                if "Stopped" in shell.until(r"\nthese\.\n"):
                    break
            shell.type("fg\n")
            total += 1000
            said = allocates(shell, total)
            t.equal(said.count("continued\n"), 1, f"told by fg: {said}")
        leaves(shell)
        return total
    both(t, "tell", what)


@test
def program_with_a_group_of_its_own(t):
    """timeout() makes one, which changes nothing where it leads the terminal's foreground job already: what is typed reaches what it runs, recorded as bare."""
    t.need("timeout")
    for recorded in (False, True):
        shell = Shell(t)
        command = f"timeout 60 {t.program('job.c')} tell"
        shell.type(f"{t.tidemark} record --quiet -o {t.path('own.tmk')} -- {command}\n" if recorded else f"{command}\n")
        shell.until("ready\n")
        for total in (1000, 2000):  # the first one perhaps before the recorder has noticed the group
            shell.type(CTRL_Z)
            shell.until(STOPPED)
            shell.type("fg\n")
            allocates(shell, total)
        job, = children(shell.bash.pid)
        shell.type("\x03")
        wait_for_state(t, job, (None,))
        shell.type("echo it was $?.\n")
        shell.until(r"it was 130\.\n")
        shell.close()
    db = t.imported(t.path("own.tmk"))
    t.equal(db.value("select sum(allocations) from site where function = 'allocate'"), 2000, "blocks")


@test
def control_c_when_the_program_has_ended(t):
    """A process that it has left ignores it, and the recorder waits for that one no longer."""
    shell = Shell(t)
    script = "trap '' INT; sleep 1000 & echo ids $$ $!."
    shell.type(f"{t.tidemark} record --quiet --linger=1000s -o {t.path('left.tmk')} -- sh -c '{script.replace(chr(39), chr(34))}'\n")
    shell.until(r"\nids ")
    program, left = shell.until(r"\.\n").split()
    wait_for_state(t, int(program), (None,))
    time.sleep(0.1)
    job, = children(shell.bash.pid)
    shell.type("\x03")
    wait_for_state(t, job, (None,))
    shell.type("echo it was $?.\n")
    shell.until(r"it was 0\.\n")
    t.check(state_of(left), "what ignores it runs on")
    os.kill(int(left), signal.SIGKILL)
    shell.close()


@test
def control_z_in_top(t):
    """The shell has its screen and the cursor again, and fg shows the recording as before."""
    child = t.start([t.recorder, "--quiet", "-o", t.path("top.tmk"), "--", t.program("job.c")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    t.equal(child.stdout.readline(), b"ready\n", "the program")
    shell = Shell(t)
    shell.type(f"TERM=xterm {t.tidemark} top {t.path('top.tmk')}\n")
    for _ in range(2):
        shell.until(re.escape("\x1b[?1049h\x1b[?25l"))
        shell.until("recording")
        shell.type(CTRL_Z)
        shell.until(re.escape("\x1b[?25h\x1b[?1049l"))
        shell.until(STOPPED)
        shell.type("fg\n")
    shell.until(re.escape("\x1b[?1049h\x1b[?25l"))
    shell.type("q")
    shell.until(re.escape("\x1b[?25h\x1b[?1049l"))
    shell.type("echo it was $?.\n")
    shell.until(r"it was 0\.\n")
    shell.close()
    child.communicate(b"q", 60)


@test
def stopped_program_that_is_killed(t):
    def what(shell, program, job):
        allocates(shell, 1000)
        shell.type(CTRL_Z)
        shell.until(STOPPED)
        wait_for_state(t, job, "T")
        os.kill(program, signal.SIGKILL)
        wait_for_state(t, job, (None, "Z"))
        return 1000
    t.equal(both(t, "", what).row("select end_kind, end_code from process"), ("signal", signal.SIGKILL), "end")


@test
def terminal_that_is_closed_over_a_stopped_job(t):
    """The shell ends its jobs by SIGTERM and SIGHUP, and continues those that are stopped."""
    def what(shell, _program, job):
        allocates(shell, 1000)
        shell.type(CTRL_Z)
        shell.until(STOPPED)
        os.close(shell.terminal)
        shell.terminal = os.open(os.devnull, os.O_RDONLY)
        wait_for_state(t, job, (None, "Z"))
        return 1000
    kind, code = both(t, "", what).row("select end_kind, end_code from process")
    t.check(kind == "signal" and code in (signal.SIGHUP, signal.SIGTERM), f"end: {kind} {code}")


@test
def stopped_while_it_waits_for_room(t):
    """The recorder is stopped, the program waits for it, is stopped, too, for longer than it would wait, and is the first to be continued: it waits on."""
    child = t.start([t.recorder, "--quiet", "--ring=64KiB", "-o", t.path("wait.tmk"), "--", t.program("job.c")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    t.equal(child.stdout.readline(), b"ready\n", "the program")
    program = t.command_of(child)
    os.kill(child.pid, signal.SIGSTOP)
    os.write(child.stdin.fileno(), b"a" * 50)
    time.sleep(0.3)
    os.kill(program, signal.SIGSTOP)
    time.sleep(2.5)
    os.kill(program, signal.SIGCONT)
    time.sleep(0.3)
    os.kill(child.pid, signal.SIGCONT)
    said = [child.stdout.readline() for _ in range(50)]
    os.write(child.stdin.fileno(), b"q")
    t.equal((said[-1], child.wait(60)), (b"total 50000\n", 5), "the program")
    db = t.imported(t.path("wait.tmk"))
    t.equal(db.rows("select kind, count, reason from loss"), [], "losses")
    t.equal(db.value("select sum(allocations) from site where function = 'allocate'"), 50000, "blocks")


main()
