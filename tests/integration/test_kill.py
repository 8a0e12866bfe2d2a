"""SIGKILL, of the program and of the recorder: no completed allocation is missing, and the program never suffers.

Method: fixtures/programs/victim.c writes every completed call to shared memory; it is killed at a random moment, and its log is compared with the
database, thread by thread and call by call. Random moments come from a seed that is printed.
"""
import contextlib
import ctypes
import fcntl
import os
import pty
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

from tidemark_test import Database, main, state_of, test

LOG_HEAD, ENTRY = 16, 16


def read_log(path, threads, operations):
    """Yields (tid, [(address, size), ...] by number, {numbers given back}) of each thread that began."""
    with open(path, "rb") as file:
        data = file.read()
    part = LOG_HEAD + operations * ENTRY
    for i in range(threads):
        tid, count = struct.unpack_from("<QQ", data, i * part)
        given, back = [], set()
        for a, b in struct.iter_unpack("<QQ", data[i * part + LOG_HEAD:i * part + LOG_HEAD + count * ENTRY]):
            if b == 2:
                back.add(a)
            else:
                given.append((a, b >> 8))
        if tid:
            yield tid, given, back


def wait_for_log(t, path, bytes_wanted, child):
    for _ in range(6000):
        if os.path.exists(path) and os.path.getsize(path) >= bytes_wanted:
            return
        t.check(child.poll() is None, f"the recorder ended early, status {child.returncode}")
        time.sleep(0.01)
    t.check(False, "the victim did not start")


def kill_once(t, number, threads, moment, operations=120000):
    program = t.program("victim.c")
    log, trace = t.path(f"log{number}"), t.path(f"kill{number}.tmk")
    child = t.start([t.recorder, "-o", trace, "--quiet", "--", program, log, str(threads), str(operations)])
    wait_for_log(t, log, threads * (LOG_HEAD + operations * ENTRY), child)
    victim = t.command_of(child)
    time.sleep(moment)
    os.kill(victim, signal.SIGKILL)
    t.equal(child.wait(60), 128 + signal.SIGKILL, "the recorder's exit status")
    db = t.imported(trace)
    t.equal(db.value("select complete from trace"), 1, "complete")
    t.equal(db.rows("select kind, count from loss"), [], "losses")
    t.equal(db.row("select end_kind, end_code, exit_ns = end_ns from process"), ("signal", signal.SIGKILL, 1), "end")
    calls = 0
    for tid, given, back in read_log(log, threads, operations):
        rows = db.rows("""select a.address, a.size_bytes, a.free_ns is not null from allocation a join thread t on t.id = a.thread_id
                          where t.tid = ? and a.size_bytes % 16 = 7 order by a.alloc_ns, a.id""", tid)
        t.check(len(given) <= len(rows) <= len(given) + 1, f"thread {tid}: {len(given)} allocations were completed, {len(rows)} are in the trace")
        for i, block in enumerate(given):
            t.check(rows[i][:2] == block, f"thread {tid}, allocation {i}: {block} was given, {rows[i]} is in the trace")
        missing = [i for i in back if not rows[i][2]]
        t.equal(missing[:5], [], f"thread {tid}: completed frees that are not in the trace")
        # At most one block more is marked as given back: the call that the signal interrupted.
        more = sum(row[2] for row in rows) - len(back)
        t.check(0 <= more <= 1, f"thread {tid}: {more} frees more in the trace than were done")
        calls += len(given) + len(back)
    os.unlink(log)
    os.unlink(trace)
    os.unlink(db.path)
    return calls


def kill_often(t, times):
    seed = int.from_bytes(os.urandom(4), "little")
    chance = random.Random(seed)
    calls = 0
    for i in range(times):
        threads, moment = 8 if i % 2 else 1, chance.uniform(0, 0.06)
        print(f"seed {seed}, kill {i}: {threads} threads, after {moment:.4f} s")
        calls += kill_once(t, i, threads, moment)
    print(f"{times} kills, {calls} completed calls compared")
    t.check(calls > times * 100, f"too few calls were made for the test to mean something: {calls}")


@test
def program_killed_at_random_moments(t):
    kill_often(t, 12)


@test(long=True)
def program_killed_two_hundred_times(t):
    kill_often(t, 200)


def kill_recorder(t, number):
    """Returns how old the last event was that is in the trace, in seconds."""
    program, trace = t.program("forever.c"), t.path(f"orphan{number}.tmk")
    with open(t.path("out"), "wb") as out:
        child = t.start([t.recorder, "-o", trace, "--quiet", "--names=none", "--", program], stdout=out) # of names that came in time nothing would be said
    pid = t.command_of(child)
    sizes = set()
    while len(sizes) < 5:  # the file has grown four times: events were flushed, and more are on their way
        t.check(child.poll() is None, "the recorder ended early")
        sizes.add(os.path.getsize(trace) if os.path.exists(trace) else 0)
        time.sleep(0.05)
    killed_ns = time.time_ns()
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    time.sleep(0.5)
    t.check(os.path.exists(f"/proc/{pid}"), "the program died with the recorder")
    with open(t.path("out"), "rb") as out:
        t.check(out.read().startswith(b"ready\n"), "the program did not work")
    os.kill(pid, signal.SIGTERM)
    for _ in range(6000):
        if state_of(pid) in (None, "Z", "X"):
            break
        time.sleep(0.01)
    with open(t.path("out"), "rb") as out:
        text = out.read().decode()
    t.check(text.startswith("ready\ndone "), f"the program did not come to its normal end: {text}")
    for cure in ("; it has few names or none: `tidemark names` looks them up", ""):
        imported = t.run([t.tidemark, "import", trace, "--force", "-o", t.path("o.db")], status=0)
        warnings = [line for line in imported.errors.splitlines() if not line.startswith("tidemark: imported ")]
        t.check(len(warnings) == 1 and "offset" in warnings[0], f"one warning that says where the trace ends: {imported.errors}")
        t.check(warnings[0].endswith("what comes before it was imported" + cure), f"and what can be done: {warnings[0]}")
        t.ask("names", trace)
    db = Database(t.path("o.db"))
    t.equal(db.value("select complete from trace"), 0, "complete")
    last, start = db.value("select max(alloc_ns) from allocation where size_bytes = 100"), db.value("select start_unix_ns from trace")
    t.check(last is not None, "nothing was flushed")
    return (killed_ns - start - last) / 1e9


@test
def recorder_killed(t):
    """The program runs on to its normal end; the trace is readable up to the last flush."""
    # The promise is a second; a machine that is busy with other tests gets three, and more than one try.
    for number in range(5):
        age = kill_recorder(t, number)
        print(f"the last event that was flushed was {age:.2f} s old")
        if age < (10 if t.sanitized else 3):
            return
    t.check(False, f"the last event was {age} s old when the recorder was killed")


@test
def recorder_killed_and_never_called_again(t):
    """A program whose recorder is gone waits for it once, and then asks the kernel for nothing more, however much it allocates."""
    t.need("strace")
    calls = t.path("calls")
    record = [t.recorder, "--ring=64KiB", "-o", t.path("x.tmk"), "--quiet", "--", t.program("orphan.c")]
    t.run(["strace", "-f", "-o", calls, "-e", "trace=futex,kill", *record], status=137)
    for _ in range(1000):
        with open(calls, encoding="utf-8", errors="replace") as file:
            text = file.read()
        kill = re.search(r"^(\d+) +kill\(\d+, SIGKILL", text, re.M)
        if kill and re.search(rf"^{kill[1]} .*exited with", text, re.M):
            break
        time.sleep(0.05)
    else:
        t.check(False, f"the program did not come to its end: {text[-2000:]}")
    t.check(re.search(rf"^{kill[1]} .*exited with 0 ", text, re.M), f"the program failed: {text[-2000:]}")
    after = len(re.findall(rf"^{kill[1]} +futex\(", text[kill.end():], re.M))
    t.check(after < 1000, f"{after} calls of futex after the recorder's end")


def recorded_forever(t, trace):
    """The recorder of a program that ends with exit code 5 after SIGTERM, and is ready for that."""
    with open(t.path("out"), "wb") as out:
        child = t.start([t.recorder, "--force", "-o", trace, "--quiet", "--", t.program("forever.c")], stdout=out)
    t.command_of(child)
    for _ in range(6000):
        if os.path.getsize(t.path("out")):
            return child
        time.sleep(0.01)
    return t.check(False, "the program is not ready")


@test
def signals_reach_the_program(t):
    """A signal to the recorder is the program's: forwarded once, and the status passed on."""
    child = recorded_forever(t, t.path("term.tmk"))
    os.kill(child.pid, signal.SIGTERM)
    t.equal(child.wait(60), 5, "exit status")
    db = t.imported(t.path("term.tmk"))
    done = int(open(t.path("out"), encoding="ascii").read().split()[-1])
    t.equal(db.value("select count(*) from allocation where size_bytes = 100"), done, "allocations")
    t.equal(db.value("select count(*) from allocation where size_bytes = 100 and free_ns is null"), 0, "left")


@test
def any_signal_reaches_the_program(t):
    """Batch systems and timeouts send others than SIGTERM, and what is ignored around a script's background jobs a program may want all the same."""
    for number in (signal.SIGXCPU, signal.SIGALRM, signal.SIGVTALRM, signal.SIGWINCH, signal.SIGRTMIN + 1):
        script = f"trap 'echo got; exit 5' {int(number)}; echo ready; while :; do sleep 0.02; done"
        child = t.start([t.recorder, "--force", "-o", t.path("any.tmk"), "--quiet", "--", "bash", "-c", script], stdout=subprocess.PIPE, text=True)
        t.equal(child.stdout.readline(), "ready\n", "the program")
        os.kill(child.pid, number)
        t.equal((child.communicate(timeout=60)[0], child.returncode), ("got\n", 5), f"signal {number}")
    child = t.start([t.recorder, "--force", "-o", t.path("any.tmk"), "--quiet", "--", t.program("forever.c")], stdout=subprocess.PIPE, text=True,
                    preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN))
    t.equal(child.stdout.readline(), "ready\n", "the program")
    os.kill(child.pid, signal.SIGTERM)
    child.communicate(timeout=60)
    t.equal(child.returncode, 5, "a signal that was ignored around the recorder and is handled by the program")


SUPERVISOR = """
import signal, subprocess, sys
got = []
signal.signal(signal.SIGUSR1, lambda *_: got.append("USR1"))
signal.signal(signal.SIGHUP, lambda *_: got.append("HUP"))
status = subprocess.call(sys.argv[1:])
print(*got, status)
"""


@test
def signals_to_the_parent(t):
    """A program, or a process of it, that tells its supervisor something reaches it, and not itself; also as the last thing that it does."""
    with open(t.path("supervisor.py"), "w", encoding="ascii") as file:
        file.write(SUPERVISOR)
    for script in ("kill -USR1 $PPID; sleep 0.4", "kill -USR1 $PPID; exit 0", "p=$PPID; sh -c 'kill -USR1 $1; sleep 0.4' - $p", "kill -USR1 $PPID; sleep 0.4; kill -HUP $PPID; sleep 0.4"):
        bare = t.run([sys.executable, t.path("supervisor.py"), "bash", "-c", script], status=0).text
        t.check(bare.startswith("USR1"), f"{script}: {bare}")
        done = t.run([sys.executable, t.path("supervisor.py"), t.recorder, "--force", "-o", t.path("told.tmk"), "--quiet", "--", "bash", "-c", script], status=0)
        t.equal(done.text, bare, script)


WAITS = """
#include <signal.h>
#include <stdio.h>
int main(void) {
	sigset_t set;
	siginfo_t info;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 2);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	for (int i = 0; i < 3; i++) {
		puts("ready");
		fflush(stdout);
		sigwaitinfo(&set, &info);
		printf("%s %d\\n", info.si_code == SI_QUEUE ? "queued" : "sent", info.si_code == SI_QUEUE ? info.si_value.sival_int : 0);
	}
	return 0;
}
"""


@test
def values_of_signals_reach_the_program(t):
    """What sigqueue() gives a signal along comes with it; what kill() sends has none, also after that."""
    with open(t.path("waits.c"), "w", encoding="ascii") as file:
        file.write(WAITS)
    child = t.start([t.recorder, "-o", t.path("values.tmk"), "--quiet", "--", t.program(t.path("waits.c"))], stdout=subprocess.PIPE, text=True)
    for number, value, got in ((signal.SIGRTMIN + 2, 4711, "queued 4711\n"), (signal.SIGRTMIN + 2, None, "sent 0\n"), (signal.SIGUSR1, 815, "queued 815\n")):
        t.equal(child.stdout.readline(), "ready\n", "the program")
        if value is None:
            os.kill(child.pid, number)
        else:
            t.equal(ctypes.CDLL(None).sigqueue(child.pid, number, ctypes.c_void_p(value)), 0, "sigqueue")
        t.equal(child.stdout.readline(), got, "what came")
    t.equal(child.wait(60), 0, "exit status")


@test
def terminal_that_goes_away(t):
    """Where the recorder leads its session, as in a window that was opened for it, the kernel tells it alone that the terminal is gone: the program gets SIGHUP."""
    for script, end in (("trap 'exit 5' HUP;", ("exit", 5)), ("", ("signal", signal.SIGHUP))):
        terminal, other = pty.openpty()
        name = os.ttyname(other)
        child = t.start([t.recorder, "--force", "-o", t.path("hup.tmk"), "--quiet", "--", "bash", "-c", f"{script} echo ready; while :; do sleep 0.02; done"],
                        stdout=subprocess.PIPE, text=True, preexec_fn=lambda name=name: os.close(os.open(name, os.O_RDWR)))
        t.equal(child.stdout.readline(), "ready\n", "the program")
        os.close(other)
        os.close(terminal)
        t.equal(child.wait(60), end[1] + (128 if end[0] == "signal" else 0), "exit status")
        t.equal(t.imported(t.path("hup.tmk")).row("select end_kind, end_code from process where parent_id is null"), end, "end")


@test
def alarm_ends_the_program(t):
    """A timeout by alarm() and exec is the program's, and so are those by processor time: the recorder outlives it."""
    for tool in ([t.tidemark, "record"], [t.recorder]):
        for timer, number in ((signal.ITIMER_REAL, signal.SIGALRM), (signal.ITIMER_VIRTUAL, signal.SIGVTALRM), (signal.ITIMER_PROF, signal.SIGPROF)):
            command = [*tool, "--force", "-o", t.path("alarm.tmk"), "--quiet", "--", "sh", "-c", "while :; do :; done"]
            t.run(command, status=128 + number, preexec=lambda timer=timer: signal.setitimer(timer, 0.3), timeout=60)
            t.equal(t.imported(t.path("alarm.tmk")).row("select end_kind, end_code from process"), ("signal", number), "end")
            os.remove(t.path("alarm.tmk"))


@test
def batch_system_signals_both(t):
    """A batch system signals the whole process group: the program gets it once from there, and the recorder outlives it."""
    child = recorded_forever(t, t.path("both.tmk"))
    os.killpg(child.pid, signal.SIGTERM)
    t.equal(child.wait(60), 5, "exit status")
    db = t.imported(t.path("both.tmk"))
    t.equal(db.row("select end_kind, end_code from process"), ("exit", 5), "end")


FORKS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int forks; /* the witness, the command, and some more */
static int is_recorder;
__attribute__((constructor)) static void look(void) {
	is_recorder = !strcmp(program_invocation_short_name, "tidemark-record");
}
static void at(const char *moment) {
	if (is_recorder && !strcmp(getenv("MOMENT"), moment)) kill(0, SIGUSR1);
}
pid_t fork(void) {
	int number = ++forks;
	if (number == 1) at("before the witness");
	if (number == 2) at("before the command");
	pid_t pid = ((pid_t (*)(void))dlsym(RTLD_NEXT, "fork"))();
	if (number == 2 && pid > 0) at("behind the command");
	return pid;
}
"""

COUNTS = """
#include <signal.h>
#include <stdio.h>
int main(void) {
	struct timespec soon = { 0, 400000000 };
	sigset_t set;
	int got = 0;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	while (sigtimedwait(&set, NULL, &soon) > 0) got++;
	printf("%d\\n", got);
	return 0;
}
"""


@test
def group_is_signalled_while_the_recorder_starts(t):
    """The program gets it once, whichever of the recorder's processes there were."""
    for name, text in (("forks.c", FORKS), ("counts.c", COUNTS)):
        with open(t.path(name), "w", encoding="ascii") as file:
            file.write(text)
    counts, forks = t.program(t.path("counts.c")), t.program(t.path("forks.c"), "-shared", "-fPIC", "-ldl", name="forks.so")
    for moment in ("before the witness", "before the command", "behind the command"):
        done = t.run([t.recorder, "--force", "-o", t.path("early.tmk"), "--quiet", "--", counts], env={"LD_PRELOAD": forks, "MOMENT": moment}, status=0,
                     preexec=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]))
        t.equal(done.text, "1\n", f"signals of one that came {moment}")


def shown(pid, what):
    try:
        with open(f"/proc/{pid}/{what}", encoding="utf-8", errors="replace") as file:
            return file.read().replace("\0", " ").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@test
def who_signals_a_group_that_the_program_has_left(t):
    """timeout() signals its child, and then the group: a program in a group of its own has the first of these from us."""
    for command in (["setsid", "sleep", "30"], ["timeout", "60", "sleep", "30"]):
        done = t.run(["timeout", "1", t.recorder, "--force", "-o", t.path("left.tmk"), "--quiet", "--", *command], timeout=90)
        t.equal(done.status, 124, f"timeout of {command}")
        ends = t.imported(t.path("left.tmk")).rows("select distinct end_kind, end_code from process where end_kind <> 'exec'")
        t.check(ends == [("signal", signal.SIGTERM)] if command[0] == "setsid" else ("signal", signal.SIGTERM) in ends, f"ends of {command}: {ends}")


@test
def who_signals_by_name_means_the_program(t):
    """pkill finds the recorder by its name and by its arguments, and no helper of it beside that would make the signal look like one to the whole group."""
    for what in ("comm", "cmdline"):
        child = recorded_forever(t, t.path("named.tmk"))
        pids = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and (shown(pid, "stat").rpartition(")")[2].split()[1:2] == [str(child.pid)] or int(pid) == child.pid)]
        found = [pid for pid in pids if (t.path("named.tmk") if what == "cmdline" else "tidemark") in shown(pid, what)]
        t.check(child.pid in found and len(pids) >= 3, f"{what}: {found} of {pids}")
        for pid in found:
            os.kill(pid, signal.SIGTERM)
        t.equal(child.wait(60), 5, f"exit status after a signal to all whose {what} has that name")


@test
def a_signal_that_the_witness_got_long_ago(t):
    """It says nothing of one that the recorder gets alone."""
    child = recorded_forever(t, t.path("stale.tmk"))
    with open(f"/proc/{child.pid}/task/{child.pid}/children", encoding="ascii") as file:
        witness = [int(pid) for pid in file.read().split() if shown(pid, "comm") == "signal-witness"]
    t.equal(len(witness), 1, "witnesses")
    os.kill(witness[0], signal.SIGTERM)
    time.sleep(0.5)
    os.kill(child.pid, signal.SIGTERM)
    t.equal(child.wait(60), 5, "exit status")


@test
def signals_while_nobody_takes_the_trace(t):
    """It goes to a pipe, whose reader stands still: a signal to the recorder reaches the program, and once that has ended, one ends the recorder, with its status."""
    os.mkfifo(t.path("pipe"))
    reader = os.open(t.path("pipe"), os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, 1031, 4096)  # F_SETPIPE_SZ
    child = recorded_forever(t, t.path("pipe"))
    program = t.command_of(child)
    time.sleep(3)
    os.kill(child.pid, signal.SIGTERM)
    for _ in range(1000):
        if state_of(program) == "Z":
            break
        time.sleep(0.02)
    t.equal(state_of(program), "Z", "the program, which waits to be told of")
    for _ in range(60):
        if child.poll() is not None:
            break
        os.kill(child.pid, signal.SIGTERM)
        time.sleep(0.5)
    t.equal(child.poll(), 5, "the recorder's exit status")
    os.close(reader)


BRIEF_THREADS = """
#include <pthread.h>
#include <stdlib.h>
static void *brief(void *a) { void *volatile p = malloc(100); free(p); return a; }
int main(void) {
	pthread_t thread;
	for (int i = 0; i < 80000; i++) if (pthread_create(&thread, NULL, brief, NULL) || pthread_join(thread, NULL)) return 1;
	return 0;
}
"""


@test
def brief_threads_while_nobody_takes_the_trace(t):
    """More than there are buffers for end while a pipe's reader pauses: who begins waits like who finds its own buffer full, and nothing is lost."""
    os.mkfifo(t.path("pipe"))
    with open(t.path("brief.c"), "w", encoding="ascii") as file:
        file.write(BRIEF_THREADS)
    program = t.program(t.path("brief.c"), "-pthread")
    reader = subprocess.Popen(["sh", "-c", "exec 3< pipe; dd bs=4096 count=20 <&3 2> dd.log; sleep 3; cat <&3"], cwd=t.dir, stdout=open(t.path("whole.tmk"), "wb"))
    done = t.run([t.recorder, "--force", "-o", t.path("pipe"), "--", program], status=0, timeout=100)
    t.equal(reader.wait(60), 0, "the reader's status")
    t.check("lost         nothing" in done.errors, done.errors)
    db = t.imported(t.path("whole.tmk"))
    t.equal(db.value("select count(*) from allocation where size_bytes = 100 and free_ns is not null"), 80000, "their blocks")
    t.equal(db.rows("select kind from loss"), [], "losses")


IDLE = """
#include <string.h>
#include <stdlib.h>
#include <unistd.h>
static char large[64 << 20];
static void *volatile kept;
int main(void) {
	kept = malloc(100);
	sleep(2); /* that event is written */
	memset(large, 1, sizeof large);
	for (;;) pause();
}
"""


@test
def recorder_killed_with_an_idle_program(t):
    """As by the kernel for want of memory, while the program does nothing that is recorded: what was resident is in the trace all the same."""
    with open(t.path("idle.c"), "w", encoding="ascii") as file:
        file.write(IDLE)
    trace, copy = t.path("idle.tmk"), t.path("copy.tmk")
    child = t.start([t.recorder, "-o", trace, "--quiet", "--", t.program(t.path("idle.c"))])
    for number in range(60):
        time.sleep(0.5)
        if number < 4:
            continue
        shutil.copy(trace, copy)
        db = t.imported(copy)
        if db.value("select coalesce(max(value), 0) from sample where name = 'rss'") >= 64 << 20:
            break
    else:
        t.check(False, "the readings stayed in the recorder")
    victim = t.command_of(child)
    child.kill()
    child.wait(60)
    with contextlib.suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)


main()
