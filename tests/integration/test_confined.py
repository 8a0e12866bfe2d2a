"""Programs that take away from themselves what a recorder might need - system calls, address space, memory that may be paged, the time after a
thread's last destructor, sound pointers - behave as without us, and what was recorded of them is right.

The figures are in the opening comment of fixtures/programs/confined.c.
"""
import os
import resource
import signal
import sqlite3

from tidemark_test import main, test


def confined(t, mode, *options):
    recording = t.same_as_bare([t.program("confined.c"), mode], *options)
    t.equal(recording.status, 0, "exit status")
    return recording


@test
def system_call_filter(t):
    """No call that the filter would answer by killing the program; every event is there, and a note says what is missing; the first sample comes behind it."""
    sampled = t.imported(confined(t, "filter", "--sample=1KiB"))
    t.check(40 < sampled.value("select count(*) from allocation where size_bytes = 100 and free_ns is not null") < 200, "samples of 100 bytes")
    db = t.imported(confined(t, "filter"))
    t.equal(db.value("select count(*) from allocation where size_bytes = 100 and free_ns is not null"), 1000, "blocks of 100 bytes")
    t.equal(db.value("select count(*) from loss"), 0, "losses")
    t.equal(db.value("select count(*) from note where kind = 'sandbox' and text like '%seccomp%'"), 1, "notes of the filter")


@test
def system_call_filter_by_system_call(t):
    """The same where the filter is set by syscall(), which is ours for that: what it passes on it passes as it was."""
    for mode in ("syscall", "control"):
        db = t.imported(confined(t, mode))
        t.equal(db.value("select count(*) from allocation where size_bytes = 100 and free_ns is not null"), 1000, f"{mode}: blocks of 100 bytes")
        t.equal(db.value("select count(*) from loss"), 0, f"{mode}: losses")
        t.equal(db.value("select count(*) from note where kind = 'sandbox' and text like '%seccomp%'"), 1, f"{mode}: notes of the filter")


@test
def inherited_filter(t):
    """A filter that was there before the program makes no call of ours deadly: we make everyday ones. Threads that end have their names all the same."""
    db = t.imported(confined(t, "inherited"))
    t.equal(db.rows("select name, count(*) from thread where process_id > 1 and name is not null group by 1"), [("confined", 2)], "names of threads")
    t.equal(db.value("select count(*) from allocation where size_bytes = 33"), 1, "blocks of the thread")
    t.equal(db.value("select count(*) from allocation where size_bytes = 100 and free_ns is not null"), 1000, "blocks of 100 bytes")
    t.equal(db.value("select count(*) from loss"), 0, "losses")


@test
def filters_that_are_refused(t):
    """Many programs ask only whether the kernel has filters: nothing has changed then, and threads and children are recorded as ever."""
    db = t.imported(confined(t, "refused"))
    rows = db.rows("select size_bytes, process_id = 1, thread_id from allocation where size_bytes between 3333 and 3334 order by 1")
    t.equal([row[:2] for row in rows], [(3333, 1), (3334, 0)], "blocks of a thread and of a child")
    t.equal(db.value("select count(*) from loss") + db.value("select count(*) from note where kind in ('sandbox', 'not-recordable')"), 0, "losses and notes")


@test
def children_behind_a_filter(t):
    """A child that is forked behind a filter cannot be recorded, and is not said to be; a strict mode that is refused ends nothing."""
    db = t.imported(confined(t, "forked"))
    t.equal(db.rows("select size_bytes from allocation where size_bytes between 3335 and 3336"), [(3335,)], "blocks")
    t.equal(db.rows("select forked, recorded, end_kind, end_code from process order by id"), [(0, 1, "exit", 0), (1, 0, "exit", 0)], "processes")
    t.equal(db.rows("select process_id, kind from note where kind in ('sandbox', 'not-recordable') order by 1"), [(1, "sandbox"), (2, "not-recordable")],
            "notes")


@test
def filters_of_vfork_children(t):
    """What a vfork child does to itself is not done to its parent, whose memory it shares; and no call of ours kills it in front of its exec."""
    db = t.imported(confined(t, "vfork"))
    t.equal(db.rows("select size_bytes, process_id = 1 from allocation where size_bytes between 3337 and 3338 order by 1"), [(3337, 1), (3338, 0)], "blocks")
    t.equal(db.value("select count(*) from loss") + db.value("select count(*) from note where kind in ('sandbox', 'not-recordable')"), 0, "losses and notes")
    t.equal(db.rows("select end_kind, end_code, count(*) from process group by 1, 2 order by 2"), [("exit", 0, 3), ("exit", 7, 1), ("exit", 8, 1)], "ends")
    t.equal(db.value("select count(*) from allocation where size_bytes = 100 and process_id > 1"), 1000, "blocks of the program that a child became")


@test
def exec_behind_a_filter(t):
    """Neither a filter that allows hardly more than exec, nor what follows, kills for a call of ours."""
    recording = t.same_as_bare([t.program("confined.c"), "exec"])
    t.equal(recording.status, 128 + signal.SIGSYS, "exit status: as the filter kills the loader")
    db = t.imported(recording)
    t.equal(db.rows("select end_kind, end_code from process order by id"), [("exec", None), ("exit", 7), ("signal", signal.SIGSYS)], "ends")


@test
def exec_behind_a_filter_that_kills_for_us(t):
    """What is run behind one that would allow all that it asks for, but not what our library does at its start, is run without it. A filter that has nothing
    against us changes nothing."""
    why = "is not recorded: it runs behind a filter of system calls (seccomp) that kills for calls of tidemark's; nor is what it starts"
    program = t.program("confined.c")
    for how, name, churned in (("exec", "/bin/echo", 0), ("spawn", "/bin/echo", 0), ("vfork", "/bin/echo", 1000), ("mild", None, 1000)):
        recording = t.same_as_bare([program, "deadly", how])
        db = t.imported(recording)
        t.equal((recording.status, recording.out), (0, b"said\n" * (name is not None) + b"done\n" * (churned > 0)), f"{how}: what it does")
        t.equal(db.rows("select text from note where kind = 'not-recordable'"), [(f"'{name}' {why}",)] * (name is not None), f"{how}: notes")
        t.equal(db.value("select count(*) from allocation where size_bytes = 100"), churned, f"{how}: blocks of the program that comes then")


@test
def recorder_behind_a_filter(t):
    """One that knows no newer calls, and refuses kill(2), keeps the recorder neither from its library nor from its end."""
    trace = t.path("behind.tmk")
    t.run([t.program("confined.c"), "eperm", t.recorder, "--quiet", "-o", trace, "--", t.program("confined.c"), "churn"], status=0)
    t.equal(t.imported(trace).value("select count(*) from allocation where size_bytes = 100"), 1000, "blocks")


@test
def children_while_filters_are_refused(t):
    """A child that is forked while a thread asks for a filter, in vain, is recorded."""
    db = t.imported(confined(t, "asking"))
    t.equal(db.value("select count(distinct process_id) from allocation where size_bytes = 3339"), 100, "children with a block")
    t.equal(db.value("select count(*) from loss") + db.value("select count(*) from note where kind in ('sandbox', 'not-recordable')"), 0, "losses and notes")


@test
def filters_of_threads_without_a_ring(t):
    """The note of it is not lost with the thread that could not write it; threads that allocate nothing lose nothing."""
    db = t.imported(confined(t, "unringed"))
    t.equal(db.value("select count(*) from allocation where size_bytes = 3340"), 1, "blocks")
    t.equal(db.value("select count(*) from note where kind = 'sandbox' and text like '%seccomp%'"), 1, "notes of the filter")
    t.equal(db.rows("select kind, count from loss"), [], "losses")


@test
def full_ring_behind_a_filter(t):
    """A ring that is full several times over is waited for without a system call."""
    db = t.imported(confined(t, "filter", "--ring=16KiB"))
    t.equal(db.value("select count(*) from allocation where size_bytes = 100"), 1000, "blocks of 100 bytes")


@test
def strict_mode(t):
    """Strict mode takes the clock away: the recording of the process ends with a note."""
    for mode in ("strict", "strictly"):
        said = t.record([t.program("confined.c"), mode]).errors
        t.check("unrecorded   some allocations: " in said, f"{mode}: the summary: {said}")
        db = t.imported(confined(t, mode))
        t.equal(db.value("select count(*) from note where kind = 'no-clock' and text like '%time stamp counter%'"), 1, f"{mode}: notes")
        t.equal(db.value("select count(*) from allocation where size_bytes = 100"), 0, f"{mode}: blocks after it")
        t.equal(db.rows("select g.kind, g.end_ns, g.start_ns = n.ts_ns from coverage_gap g join note n on n.process_id = g.process_id and n.kind = 'no-clock'"),
                [("still-running", None, 1)], f"{mode}: what is not known")
        t.run([t.tidemark, "check", db.path, "--max-peak=1TiB"], status=1)


@test
def limited_address_space(t):
    """The rings take little of a limited address space."""
    db = t.imported(confined(t, "space"))
    t.equal(db.value("select count(*) from allocation where size_bytes = 10000000"), 20, "blocks of 10 MB")
    t.equal(db.value("select count(*) from allocation where size_bytes = 33"), 1, "blocks of the thread")


@test
def no_descriptors_left(t):
    """Threads beyond the first are recorded also where nothing can be opened."""
    db = t.imported(confined(t, "files"))
    t.equal(db.value("select count(distinct thread_id) from allocation where size_bytes = 33"), 40, "threads with a block")
    t.equal(db.rows("select kind, count from loss"), [], "losses")


@test
def another_root_and_user(t):
    """The same behind chroot and setuid, from where neither the recording nor /proc can be opened: threads keep their names all the same."""
    if os.geteuid() != 0:
        t.skip("only root may change its root")
    os.mkdir(t.path("empty"))
    os.chmod(t.dir, 0o755)
    recording = t.same_as_bare([t.program("confined.c"), "root", t.path("empty")])
    t.equal(recording.status, 0, "exit status")
    db = t.imported(recording)
    t.equal(db.rows("select process_id, count(distinct thread_id) from allocation where size_bytes = 33 group by 1"), [(1, 40), (2, 40)], "threads with a block")
    t.equal(db.rows("select a.process_id, count(distinct t.id) from allocation a join thread t on t.id = a.thread_id where a.size_bytes = 33 and t.name = 'confined' "
                    "group by 1"), [(1, 40), (2, 40)], "those that have a name")
    t.equal(db.rows("select kind, count from loss"), [], "losses")


@test
def locked_memory(t):
    """The rings are not locked in by the gigabyte."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if os.geteuid() != 0 and 0 <= limit < 128 << 20:
        t.skip(f"a program may lock {limit >> 20} MiB here, its recorder's buffers included, which take more")
    db = t.imported(confined(t, "locked"))
    t.equal(db.value("select count(*) from allocation where size_bytes = 1000"), 1, "blocks of 1,000 bytes")


@test
def frees_after_the_last_destructor(t):
    """What libc frees for a thread after all key destructors is paired with its allocation."""
    db = t.imported(confined(t, "ended"))
    t.equal(db.rows("select kind, count, reason from loss"), [], "losses")
    t.check(db.value("select count(*) from allocation where thread_id <> free_thread_id or free_ns is null") < 20, "blocks that another thread freed")
    t.equal(db.value("select count(distinct thread_id) from allocation a join thread t on t.id = a.thread_id"), 1001, "threads")


@test
def wrong_pointers(t):
    """The kernel refuses wrong pointers of an exec, and we do not follow them."""
    confined(t, "pointers")


FILTERED = """/* Runs a command on a kernel where the system call NUMBER is answered so, where its third argument is ARGUMENT or that is -1. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int count, char **arguments) {
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NUMBER, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARGUMENT, 0, ARGUMENT == -1 ? 0 : 1),
		BPF_STMT(BPF_RET | BPF_K, ANSWER),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof code / sizeof code[0], code };
	if (count < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 125;
	execv(arguments[1], arguments + 1);
	return 126;
}
"""


def wrapper_of(t, number, argument, answer):
    """The program that runs a command where that call is answered so; skips the test where no call can be made to fail."""
    with open(t.path("wrapper.c"), "w", encoding="ascii") as file:
        file.write(FILTERED)
    wrapper = t.program(t.path("wrapper.c"), f"-DNUMBER={number}", f"-DARGUMENT={argument}", f"-DANSWER={answer}")
    if t.run([wrapper, "/bin/true"]).status:
        t.skip("no system call can be filtered here")
    return wrapper


@test
def a_kernel_that_tells_no_limit(t):
    """As some sandboxes do, which refuse prlimit(): a program is recorded as where its address space has no limit."""
    wrapper = wrapper_of(t, "SYS_prlimit64", -1, "SECCOMP_RET_ERRNO|EPERM")
    recording = t.record([wrapper, t.program("prog_fork200.c")], "--quiet", status=6)
    db = t.imported(recording)
    t.equal(db.value("select count(*) from allocation where size_bytes between 3000 and 3199"), 100, "blocks of the children")
    t.equal(db.value("select count(*) from process where recorded = 0"), 0, "processes that are not recorded")


@test
def a_kernel_that_wipes_no_pages(t):
    """As some containers' kernels are: fork() itself tells the child whose it is. The processes and what they allocate are those of another kernel's recording."""
    wrapper = wrapper_of(t, "SYS_madvise", "MADV_WIPEONFORK", "SECCOMP_RET_ERRNO|EINVAL")
    program, seen = t.program("prog_fork200.c"), []
    for before in ((), (wrapper,)):
        trace = t.path(f"{len(before)}.tmk")
        t.run([*before, t.tidemark, "record", "--quiet", "-o", trace, "--", program], status=6)
        t.run([t.tidemark, "import", "--quiet", trace, "-o", trace + ".db"], status=0)
        db = sqlite3.connect(trace + ".db")
        seen.append([db.execute(query).fetchall() for query in (
            "select count(*), count(parent_id), min(end_kind), max(end_kind) from process", "select kind, count from loss",
            "select count(distinct process_id), count(*), sum(size_bytes) from allocation where size_bytes between 3000 and 3199")])
        notes = db.execute("select count(*) from note where kind = 'fork' and text like '%MADV_WIPEONFORK%'").fetchone()[0]
        t.equal(notes > 0, bool(before), "notes")
    t.equal(seen[1], seen[0], "processes, losses and blocks")
    t.equal(seen[1][2], [(100, 100, 309900)], "blocks of the children")
    plugins = [t.program("prog_plugin.c", "-shared", "-fPIC", f"-DFUNCTION=allocate_{name}", f"-DSIZE={size}", name=f"plugin_{name}.so")
               for name, size in (("one", 4001), ("two", 4002))]
    done = t.run([wrapper, t.tidemark, "record", "--quiet", "-o", t.path("busy.tmk"), "--", t.program("prog_fork_threads.c"), *plugins, "2"], status=0)
    t.equal(done.out, b"ok\n", "what a program that forks among busy threads says of its children")
    t.run([t.tidemark, "import", "--quiet", t.path("busy.tmk"), "-o", t.path("busy.db")], status=0)
    t.equal(sqlite3.connect(t.path("busy.db")).execute("select kind, count from loss").fetchall(), [], "losses of that program")


@test
def python_behind_a_filter_that_kills(t):
    """Threads at work when the interpreter leaves are seen off without the kernel's barrier for them, a call that a filter from before may kill for."""
    wrapper = wrapper_of(t, "SYS_membarrier", -1, "SECCOMP_RET_KILL_PROCESS")
    program = "import threading\ndef work():\n while True: bytearray(5000)\nfor i in range(4): threading.Thread(target=work, daemon=True).start()\nprint('done')\n"
    for python in [["python3", "-c", "print('done')"], ["python3", "-c", program]]:
        done = t.run([wrapper, t.tidemark, "record", "--quiet", "-o", t.path(f"{len(python[2])}.tmk"), "--", *python])
        t.equal((done.status, done.out), (0, b"done\n"), str(python))


main()
