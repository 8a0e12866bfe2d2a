"""Children, exec, ways to end, mappings, modules and marks: the programs named prog_*.c say in their opening comments what is expected."""
import os
import random
import re
import resource
import shutil
import signal
import sys
import time

from pythons import each
from tidemark_test import main, test


def own(db, function):
    """Allocations of one function of the program, in heap malloc: rows, bytes."""
    return db.row("select coalesce(sum(allocations), 0), coalesce(sum(allocated_bytes), 0) from site where heap = 'malloc' and function = ?", function)


def live_at_exit(db, function):
    return db.row("select coalesce(sum(live_count), 0), coalesce(sum(live_bytes), 0) from live_at_exit where heap = 'malloc' and function = ?", function)


def no_loss(t, db):
    t.equal(db.rows("select kind, count, reason from loss"), [], "losses")


@test
def two_hundred_children(t):
    recording = t.same_as_bare([t.program("prog_fork200.c")])
    t.equal(recording.status, 6, "exit status")
    db = t.imported(recording)
    no_loss(t, db)
    t.equal(db.value("select count(*) from process"), 201, "processes")
    t.equal(db.value("select count(*) from process where parent_id = (select id from process where parent_id is null)"), 200, "children of the first")
    t.equal(db.rows("select end_kind, end_code, count(*) from process where parent_id is not null group by 1, 2 order by 2"),
            [("exit", code, 29 if code < 4 else 28) for code in range(7)], "ends")
    t.equal(own(db, "child"), (100, 309900), "child()")
    t.equal(live_at_exit(db, "child"), (100, 309900), "child() at exit")
    t.equal(db.value("select count(distinct process_id) from site where function = 'child'"), 100, "processes that allocated")
    t.equal(live_at_exit(db, "main"), (1, 2000), "main() at exit")


@test
def forks_inside_of_malloc(t):
    library = t.program("raising_malloc.c", "-shared", "-fPIC", "-fno-builtin", name="libraising_malloc.so")
    program = t.program("prog_fork_inside.c")
    for how in ("fork", "_Fork"):
        recording = t.same_as_bare(["env", f"LD_PRELOAD={library}", program, how])
        t.equal(recording.status, 5, f"exit status ({how})")
        db = t.imported(recording)
        no_loss(t, db)
        t.equal(db.rows("""select p.end_kind, p.end_code, parent.end_code, size_bytes, count(size_bytes), count(free_ns)
                           from process p left join process parent on parent.id = p.parent_id
                           left join allocation on process_id = p.id and size_bytes in (500, 600, 777)
                           where p.command <> '' and p.end_kind <> 'exec' group by p.id, size_bytes order by p.end_code desc, size_bytes"""),
                [("exit", 5, None, 500, 1000, 1000), ("exit", 5, None, 777, 1, 0), ("exit", 4, 3, None, 0, 0), ("exit", 3, 5, 600, 300, 300)],
                f"processes ({how})")


@test
def exec_chain(t):
    recording = t.same_as_bare([t.program("prog_exec_chain.c")])
    t.equal((recording.out, recording.status), (b"end\n", 9), "output and status")
    db = t.imported(recording)
    no_loss(t, db)
    t.equal(db.rows("select end_kind, coalesce(end_code, 0) from process order by id"), [("exec", 0)] * 8 + [("exit", 9)], "ends")
    t.equal(db.value("select count(distinct pid) from process"), 1, "pids")
    t.equal(own(db, "take"), (9, 9036), "take()")
    t.equal(live_at_exit(db, "take"), (1, 1000), "take() at exit")


@test
def a_thread_that_begins_with_a_vfork(t):
    """Its child's call is the thread's own, under the thread's id, and so is what the thread does a while later."""
    for how in ([], ["ends"]):
        recording = t.record([t.program("vfork_first.c", "-pthread"), *how])
        db = t.imported(recording)
        t.equal(db.rows("select p.id, n.tid, count(*) from allocation a join process p on p.id = a.process_id join thread n on n.id = a.thread_id "
                        "where a.size_bytes = 1000 group by 1, 2"), [(1, int(recording.text), 1000)], f"{how}: blocks by process and thread")
        t.equal(db.value("select count(*) from process"), 2, f"{how}: processes")
        no_loss(t, db)


@test
def vfork_and_exec(t):
    recording = t.same_as_bare([t.program("prog_vfork_exec.c")])
    t.equal(recording.status, 4, "exit status")
    db = t.imported(recording)
    no_loss(t, db)
    first = db.value("select min(id) from process")
    t.equal(db.row("select end_kind, end_code from process where id = ?", first), ("exit", 4), "end of the parent")
    t.equal(db.rows("select end_kind, end_code from process where parent_id = ? and exe like '%/true'", first), [("exit", 0)], "/bin/true")
    t.equal(own(db, "main"), (4, 11110), "main()")
    t.equal(live_at_exit(db, "main"), (3, 7777), "main() at exit")
    t.check(db.value("select end_ns from process where id = ?", first) >= db.value("select alloc_ns from allocation where size_bytes = 2222"),
            "the parent's end comes after its last allocation")


@test
def ways_to_end(t):
    """live at exit / at end of: main (500), handler (600), quick_handler (700), last (800)."""
    ways = {"return": (11, 600), "exit": (12, 600), "_exit": (13, 0), "_Exit": (14, 0), "quick_exit": (15, 700), "abort": (128 + signal.SIGABRT, 0),
            "kill": (128 + signal.SIGKILL, 0), "pthread_exit": (0, 1400), "err": (16, 600), "override": (18, 600), "thread": (19, 600),
            "jump": (20, 600)}
    program = t.program("prog_exits.c")
    for way, (status, later) in ways.items():
        recording = t.same_as_bare([program, way])
        t.equal(recording.status, status, f"{way}: status")
        db = t.imported(recording)
        no_loss(t, db)
        ended = ("signal", status - 128) if status > 128 else ("exit", status)
        t.equal(db.row("select end_kind, end_code from process"), ended, f"{way}: end")
        t.equal(live_at_exit(db, "main"), (1, 500), f"{way}: main at exit")
        names = "('handler', 'quick_handler', 'last')"
        at_end = db.value(f"select coalesce(sum(live_bytes), 0) from live_at_end where heap = 'malloc' and function in {names}")
        t.equal(at_end, later, f"{way}: of the handlers, at end")
        at_exit = db.value(f"select coalesce(sum(live_bytes), 0) from live_at_exit where heap = 'malloc' and function in {names}")
        t.check(at_exit == (800 if way == "pthread_exit" else 0) or way == "err", f"{way}: of the handlers, at exit: {at_exit}")
        exit_ns, end_ns = db.row("select exit_ns, end_ns from process")
        t.check(exit_ns <= end_ns and (exit_ns == end_ns or way != "kill"), f"{way}: exit {exit_ns}, end {end_ns}")


@test
def names_of_threads_that_live(t):
    """Threads that never come to their end have the names that were read from outside; what a thread said itself at its end stands above that."""
    program = t.program("prog_thread_names.c", "-pthread", name="prog_names")
    for way, status in ((None, 0), ("kill", 128 + signal.SIGTERM), ("exec", 0)):
        db = t.imported(t.record([program, *([way] if way else [])], "--quiet", status=status))
        names = db.rows("select name from thread t join process p on p.id = t.process_id where p.exe like '%/prog_names' order by name")
        t.equal(names, [("first",), ("last-name",), ("prog_names",), ("second",)], f"{way}: names")


def recorded_child(t, how):
    child = t.program("prog_child.c")
    recording = t.same_as_bare([t.program("prog_run.c"), how, child])
    t.equal((recording.out, recording.status), (b"child\n", 4), f"{how}: output and status")
    db = t.imported(recording)
    no_loss(t, db)
    t.equal(db.rows("select end_kind, end_code from process where exe = ?", os.path.realpath(child)), [("exit", 4)], f"{how}: end of the child")
    t.equal(own(db, "main")[0] >= 1, True, f"{how}: main()")
    # A forked child is a row of its own until it execs; a vforked one is not.
    t.equal(db.value("select count(distinct pid) from process where end_kind <> 'exec'"), 3 if how in ("system", "popen") else 2, f"{how}: processes")
    t.equal(db.value("select count(*) from process where parent_id is null"), 1, f"{how}: processes without a parent")


@test
def ways_to_start_a_child(t):
    for how in ("fork", "vfork", "bare", "syscall", "syscallat", "spawn", "spawnp", "system", "popen"):
        recorded_child(t, how)


@test
def child_that_starts_one_before_it_allocates(t):
    for how in ("fork", "vfork", "spawn", "cloned"):
        recording = t.same_as_bare([t.program("prog_silent_child.c"), how])
        t.equal(recording.status, 2, f"{how}: status")
        db = t.imported(recording)
        no_loss(t, db)
        t.equal(db.rows("select p.id, p.end_kind, p.end_code from process p where p.parent_id = (select id from process where parent_id is null)"),
                [(2, "exit", 2)], f"{how}: children of the first")
        t.equal(db.rows("select end_kind, end_code from process where parent_id = 2 order by id"), [("exec", None)] * (how in ("fork", "cloned")) + [("exit", 0)],
                f"{how}: children of the child")
        t.equal(db.value("select count(*) from process"), 4 if how in ("fork", "cloned") else 3, f"{how}: processes")
        t.equal(db.rows("select process_id from allocation where size_bytes = 3333"), [(2,)], f"{how}: whose block it is")
        t.equal(db.value("select count(*) from note"), 0, f"{how}: notes")


@test
def a_child_whose_parent_is_gone_when_it_begins(t):
    """It is one process, and nothing is noted of it. How fast the parent goes differs from run to run: ten of them, each way. One that has told of itself before its
    parent's word was written is nobody's child: that takes a parent that was held up in between."""
    for how in ("spawn", "vfork"):
        recordings = [t.same_as_bare([t.program("prog_orphan.c"), how]) for _ in range(10)]
        parents = []
        for db in (t.imported(recording) for recording in recordings):
            no_loss(t, db)
            t.equal(db.value("select count(*) from note where kind = 'not-recordable'"), 0, f"{how}: noted")
            t.equal(db.value("select count(*) from process"), 3, f"{how}: processes")
            t.equal(db.rows("select p.command like '%prog_orphan child', p.recorded, count(*) from process p join allocation a on a.process_id = p.id and a.size_bytes = 4321"),
                    [(1, 1, 1)], f"{how}: the orphan")
            parents += db.rows("select parent_id, execed from process where command like '%prog_orphan child'")
        t.check(parents.count((2, 1)) >= 5 and set(parents) <= {(2, 1), (None, 0)}, f"{how}: parents {parents}")


@test
def children_that_cannot_be_recorded(t):
    kinds = {"prog_child_static": ("gcc", ["-static"]), "prog_child_32": ("gcc", ["-m32"]), "prog_child_musl": ("musl-gcc", []),
             "prog_child_asan": ("gcc", ["-fsanitize=address"]), "prog_child_tsan": ("gcc", ["-fsanitize=thread"])}
    tried = 0
    for name, (compiler, flags) in kinds.items():
        probe = t.run([compiler, *flags, "-x", "c", "-o", t.path("probe"), "-"], input=b"#include <stdlib.h>\nint main(void) { return 0; }") \
            if t.run(["sh", "-c", f"command -v {compiler}"]).status == 0 else None
        if not probe or probe.status or t.run([t.path("probe")]).status:
            continue
        tried += 1
        child = t.program("prog_child.c", *flags, cc=compiler, name=name)
        t.check("unrecorded   1 program:" in t.record([child], status=4).errors, f"the summary says that {name} was not recorded")
        for how in ("fork", "vfork", "spawn", "system"):
            recording = t.same_as_bare([t.program("prog_run.c"), how, child])
            t.equal((recording.out, recording.err, recording.status), (b"child\n", b"", 4), f"{how} {name}")
            db = t.imported(recording)
            notes = [text for (text,) in db.rows("select text from note") if name in text]
            t.equal(len(notes), 1, f"{how} {name}: notes that name the child")
            t.equal(db.rows("select end_kind, end_code from process where exe = ?", os.path.realpath(child)), [("exit", 4)], f"{how} {name}: its row")
    if not tried:
        t.skip("no program can be built here that cannot be recorded")


@test
def programs_of_another_user(t):
    """A set-uid program of another user, as the command and as a child: the reason is the same."""
    if os.geteuid() != 0:
        t.skip("to make one takes root")
    program = t.program("prog_child.c", name="prog_child_setuid")
    os.chown(program, 65534, 65534)
    os.chmod(program, 0o4755)
    if t.run([t.program("prog_run.c"), "fork", program]).status != 4 or os.statvfs(program).f_flag & os.ST_NOSUID:
        t.skip("set-uid means nothing here")
    for command in ([program], [t.program("prog_run.c"), "fork", program]):
        db = t.imported(t.record(command, "--force", status=4, output=t.path("other.tmk")))
        t.equal([text.split("not recorded: ")[1] for text, in db.rows("select text from note")],
                ["it runs with raised privileges, for which the loader preloads nothing"], str(command))


@test
def program_that_valgrind_inspects(t):
    """What the hooks would read in its memory is reported by no tool: it runs as it is; a child that is not inspected is recorded."""
    t.need("valgrind")
    command = [t.program("prog_run.c"), "fork", t.program("prog_child.c")]
    for options in (["--tool=memcheck"], ["--tool=helgrind"], ["--tool=memcheck", "--trace-children=yes"]):
        recording = t.same_as_bare(["valgrind", "-q", "--error-exitcode=9", *options, *command])
        t.equal((recording.out, recording.err, recording.status), (b"child\n", b"", 4), f"{options}: output and status")
        db = t.imported(recording)
        no_loss(t, db)
        t.equal(db.value("select count(*) from allocation where size_bytes in (777, 1234)"), 0 if "--trace-children=yes" in options else 1, f"{options}: blocks")
        t.check(db.value("select count(*) from note where kind = 'not-recordable' and text like '%valgrind%'") > 0, f"{options}: a note says so")


@test
def program_that_valgrind_runs(t):
    """A tool that inspects no memory has nothing to say of what we ask the kernel, and the program under it is recorded."""
    t.need("valgrind")
    program = t.program("prog_run.c")
    recording = t.same_as_bare(["valgrind", "-q", "--tool=none", "--trace-children=yes", program, "fork", t.program("prog_child.c")])
    t.equal((recording.out, recording.err, recording.status), (b"child\n", b"", 4), "output and status")
    db = t.imported(recording)
    no_loss(t, db)
    t.equal(db.value("select count(*) from allocation where size_bytes in (777, 1234)"), 2, "blocks of both programs")


@test
def program_that_traces_another(t):
    """Who traces is told of threads' ends as of children's: no thread becomes a process, whichever wait tells it, and with --follow=off none counts as a child."""
    for by in ("waitpid", "wait4", "waitid"):
        recording = t.same_as_bare([t.program("prog_traces.c"), by])
        t.equal((recording.status, recording.text), (0, "5 ends\n"), by)
        db = t.imported(recording)
        no_loss(t, db)
        t.equal(db.rows("select end_kind, end_code from process order by id"), [("exit", 0), ("exit", 4), ("exit", 3)], f"{by}: processes")
    db = t.imported(t.record([t.program("prog_traces.c")], "--follow=off"))
    t.equal(db.rows("select text from note where kind = 'not-followed'"), [("1 child process was not recorded (--follow=off)",)], "children that are left out")


@test
def command_that_becomes_another_program(t):
    """With --follow=off, too, it is recorded, by whatever it was begun; what it forks or spawns is not."""
    leak = t.program("leak.c")
    for command, blocks in (([leak], 100), (["env", "A=1", leak], 100), (["env", "-i", leak], 100), (["sh", "-c", f"exec {leak}"], 100), (["sh", "-c", f"{leak}; exit 0"], 0),
                            (["sh", "-c", f"{leak}; exec {leak}"], 100), ([t.program("prog_starts.c"), "spawn", leak], 0), ([t.program("prog_starts.c"), "exec", leak], 100)):
        db = t.imported(t.record(command, "--follow=off"))
        t.equal(db.value("select coalesce(sum(allocations), 0) from site where function = 'remember'"), blocks, f"blocks of {command}")
        t.equal(db.value("select count(*) from process where end_kind <> 'exec'"), 1, f"processes of {command}")


@test
def calls_on_a_stack_that_is_eight_bytes_off(t):
    """What libc bears the hooks bear, with every way to take stacks, and below Python's frames; the stacks are what they are."""
    program = t.program("misaligned.c")
    for option in ("--stacks=unwind", "--stacks=fp", "--stacks=off", "--sample=1KiB", "--on-full=drop"):
        recording = t.same_as_bare([program], option)
        t.equal((recording.status, recording.text), (0, "done\n"), option)
        if option != "--stacks=unwind":
            continue
        db, seed, wanted = t.imported(recording), 1, {}
        no_loss(t, db)
        for _ in range(200000):
            seed = (seed * 6364136223846793005 + 1442695040888963407) % 2 ** 64
            key = 5 + (seed >> 40) % 41, ("malloc", "calloc", "realloc", "realloc", "posix_memalign")[(seed >> 50) % 5]
            wanted[key] = wanted.get(key, 0) + 1
        t.equal(db.rows("select command, end_kind, end_code from process order by id"), [(program, "exit", 0), (program, "exec", None), (program, "exit", 0)], "ends")
        rows = db.rows("select depth, api, count(*) from allocation join stack on stack.id = stack_id where size_bytes = 200 group by 1, 2")
        t.equal({(depth, api): n for depth, api, n in rows}, wanted, "blocks by the depth of their stacks (main, churn, descend..., take, misaligned) and by call")
    library = t.program("misaligned.c", "-shared", "-fPIC", name="libmisaligned.so")
    script = f"import ctypes\nlibrary = ctypes.CDLL({library!r})\ndef f(n):\n    library.churn(n)\n    n and f(n - 1)\nf(30)\nprint('done')"
    for python in each(t):
        for options in ([], ["--stacks=fp"], ["--sample=1KiB"], ["--python-heap=on"]):
            recording = t.same_as_bare([python.path, "-c", script], *options)
            t.equal((recording.status, recording.text), (0, "done\n"), f"{python} {options}")


@test
def into_the_background(t):
    """The recording goes on after the command, whose child nobody has heard of yet."""
    program, texts = t.program("prog_daemon.c"), []
    for name in ("bare", "recorded"):
        path = t.path(name)
        if name == "bare":
            t.run([program, path], status=0)
        else:
            recording = t.record([program, path], "--quiet")
        for _ in range(500):
            if os.path.exists(path) and os.path.getsize(path):
                break
            time.sleep(0.01)
        with open(path, encoding="ascii") as file:
            texts.append(file.read())
    t.equal(texts, ["/ 111 1\n"] * 2, "what the one in the background says")
    db = t.imported(recording)
    no_loss(t, db)
    t.equal(db.rows("select size_bytes, process_id, free_ns from allocation where size_bytes in (5001, 5002) order by 1"), [(5001, 1, None), (5002, 2, None)],
            "blocks")
    t.equal(db.rows("select parent_id, end_kind, end_code from process order by id"), [(None, "exit", 0), (1, "exit", 6)], "processes")


@test
def handlers_that_leap_out(t):
    """What a handler leaves by longjmp may be work of ours, at a plugin's first block, say: no lock stays held, and the thread's memory and record go on."""
    plugin = t.program("prog_plugin.c", "-shared", "-fPIC", "-DFUNCTION=allocate_one", "-DSIZE=100", name="plugin_small.so")
    command = [t.program("prog_leaps.c"), plugin, "1500"]
    for options in ([], ["--stacks=off"]):
        recording = t.record(command, "--quiet", *options, timeout=60)
        t.equal(recording.out, b"ok\n", "what the program says")
        t.equal(t.imported(recording).value("select count(*) from allocation where size_bytes = 7001"), 1, "blocks at the end")


OVERFLOWS = """
#include <alloca.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
static sigjmp_buf before;
static unsigned long count, handled;
static void leap(int number) {
	free(malloc(500));
	handled++;
	siglongjmp(before, number);
}
static void deep(size_t step) {
	volatile char *room = alloca(step);
	room[0] = 1;
	malloc(10) ? count++ : 0;
	deep(step);
	room[0] = 2;
}
int main(void) {
	static char stack[65536];
	stack_t alternate = { .ss_sp = stack, .ss_size = sizeof stack };
	struct sigaction action = { .sa_handler = leap, .sa_flags = SA_ONSTACK };
	struct rlimit limit = { 1 << 20, 1 << 20 };
	if (setrlimit(RLIMIT_STACK, &limit) || sigaltstack(&alternate, NULL) || sigaction(SIGSEGV, &action, NULL)) return 1;
	for (volatile size_t round = 0; round < 60; round++)
		if (!sigsetjmp(before, 1)) deep(1000 + 16 * round);
	for (int i = 0; i < 1000; i++) free(malloc(20));
	printf("%lu %lu\\n", count, handled);
	return 0;
}
"""


@test
def stacks_that_overflow(t):
    """A handler on another stack that allocates and leaps out, of a hook where the stack has ended in that: what it did and what comes after it is recorded."""
    with open(t.path("overflows.c"), "w", encoding="ascii") as file:
        file.write(OVERFLOWS)
    recording = t.record([t.program(t.path("overflows.c"), "-O0", "-fno-builtin", name="processes_overflows")], "--quiet")
    count, handled = (int(word) for word in recording.text.split())
    t.equal(handled, 60, "overflows")
    db = t.imported(recording)
    no_loss(t, db)
    blocks = dict((size, (n, freed)) for size, n, freed in db.rows("select size_bytes, count(*), count(free_ns) from allocation group by 1"))
    t.equal((blocks[500], blocks[20]), ((handled, handled), (1000, 1000)), "blocks of the handler, and those behind it")
    t.check(0 <= blocks[10][0] - count <= handled, f"{count} were given, and up to {handled} more were on their way: {blocks[10]}")


@test
def masks_of_signals(t):
    """Work of ours that signals wait for lets none out that the program blocks, ends with the mask that it found, and keeps nobody waiting."""
    plugin = t.program("prog_plugin.c", "-shared", "-fPIC", "-DFUNCTION=allocate_one", "-DSIZE=100", name="plugin_small.so")
    for mode in ("pending", "asking", "user"):
        recording = t.same_as_bare([t.program("prog_masks.c"), mode, plugin])
        t.equal((recording.status, recording.out), (0, b"ok\n"), mode)


UNREAPED = """
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
static void *volatile kept;
int main(int argc, char **argv) {
	signal(SIGCHLD, SIG_IGN);
	for (int i = 0; i < atoi(argv[1]); i++) {
		int over[2];
		char byte;
		if (pipe(over)) return 1;
		if (fork() == 0) {
			close(over[0]);
			kept = malloc(100);
			raise(SIGKILL);
		}
		close(over[1]);
		if (read(over[0], &byte, 1)) return 2;
		close(over[0]);
	}
	kept = malloc((size_t)argc);
	return 0;
}
"""


@test
def more_dead_children_than_descriptors(t):
    """Children that nobody waits for: how they ended may be told as long as their parent lives. There are more of them than the recorder may have descriptors."""
    with open(t.path("unreaped.c"), "w", encoding="ascii") as file:
        file.write(UNREAPED)
    program = t.program(t.path("unreaped.c"))
    recording = t.record([program, "300"], preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
    db = t.imported(recording)
    no_loss(t, db)
    t.equal(db.value("select count(*) from allocation where size_bytes = 100"), 300, "blocks of children")
    t.equal(db.rows("select kind, text from note where kind not in ('names', 'libc')"), [], "notes")
    t.equal(db.value("select count(*) from coverage_gap"), 0, "gaps")


WITHOUT_PIDFD = """
#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
long syscall(long number, ...) {
	va_list list;
	va_start(list, number);
	long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long), result;
	register long d __asm__("r10") = va_arg(list, long);
	register long e __asm__("r8") = va_arg(list, long);
	register long f __asm__("r9") = va_arg(list, long);
	va_end(list);
	if (number == SYS_pidfd_open) return errno = ENOSYS, -1;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(d), "r"(e), "r"(f) : "rcx", "r11", "memory");
	return result < 0 && result > -4096 ? (errno = (int)-result, -1) : result;
}
"""

MAIN_LEAVES = """
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static void *volatile kept;
static void *work(void *unused) {
	for (int i = 0; i < 10; i++, usleep(50000))
		for (int k = 0; k < 100; k++) free(kept = malloc(100));
	return unused;
}
int main(void) {
	pthread_t thread;
	if (pthread_create(&thread, NULL, work, NULL)) return 1;
	pthread_exit(NULL);
}
"""


@test
def main_leaves_where_there_is_no_pidfd(t):
    """A kernel without pidfd_open: that the first thread is a zombie does not say that its process is dead."""
    for name, text in (("without.c", WITHOUT_PIDFD), ("leaves.c", MAIN_LEAVES)):
        with open(t.path(name), "w", encoding="ascii") as file:
            file.write(text)
    shim, program = t.program(t.path("without.c"), "-shared", "-fPIC", name="without.so"), t.program(t.path("leaves.c"), "-pthread")
    for environment in ({}, {"LD_PRELOAD": shim}):
        db = t.imported(t.record([program], env=environment))
        no_loss(t, db)
        t.equal(db.value("select count(*) from allocation where size_bytes = 100 and free_ns is not null"), 1000, f"blocks, {environment}")
        t.equal(db.value("select count(*) from coverage_gap"), 0, "gaps")


NO_DESCRIPTORS = """
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
static void *volatile kept;
int main(void) {
	struct rlimit none = { 3, 3 };
	if (setrlimit(RLIMIT_NOFILE, &none)) return 1;
	for (int depth = 1; depth < 4; depth++) {
		int status;
		if (fork()) return wait(&status) < 0 || status;
		kept = malloc(100 * depth);
	}
	return 0;
}
"""


@test
def children_without_descriptors(t):
    """A child that cannot open a file is called what its parent is."""
    with open(t.path("no_descriptors.c"), "w", encoding="ascii") as file:
        file.write(NO_DESCRIPTORS)
    program = t.program(t.path("no_descriptors.c"))
    recording = t.same_as_bare([program, "its argument"])
    t.equal(recording.status, 0, "the program's own checks")
    t.equal(t.imported(recording).rows("select command, sum(size_bytes) from process p left join allocation a on a.process_id = p.id group by p.id"
                                       " order by 2"), [(f"{program} its argument", size) for size in (None, 100, 200, 300)], "commands")


@test
def mappings(t):
    """By their functions and by syscall()."""
    for program in (t.program("prog_maps.c"), t.program("prog_maps.c", "-DBY_SYSCALL", name="prog_maps_by_syscall")):
        recording = t.same_as_bare([program])
        t.equal(recording.status, 0, "the program's own checks")
        db = t.imported(recording)
        no_loss(t, db)
        t.equal(db.value("select live_bytes from peak where heap = 'mmap'"), 106596, f"peak of mmap, {program}")
        t.equal(db.value("select live_bytes from peak where heap = 'mmap-file'"), 5100, f"peak of mmap-file, {program}")
        t.equal(db.value("select coalesce(sum(live_bytes), 0) from live_at_exit where heap = 'mmap'"), 0, f"mmap at exit, {program}")
        t.equal(db.value("select coalesce(sum(live_bytes), 0) from live_at_exit where heap = 'mmap-file'"), 5000, f"mmap-file at exit, {program}")
        t.equal(db.rows("select distinct text from site join stack_text using (stack_id)"), [("main",)], f"stacks, {program}")


@test
def mappings_by_the_page(t):
    """The program's own model, the recorder's answers and last lines, the database, and a window that begins when all that is mapped has been dropped."""
    program, seed = t.program("mapped_pages.c"), str(random.randrange(1 << 30))
    print("seed", seed)
    for blocks, *options in (["0"], ["200000", "--max-size=256KiB,ring"]):
        recording = t.record([program, seed, blocks], "--force", *options, output=t.path("pages.tmk"))
        wrong, *wanted = map(int, recording.text.split())
        t.equal(wrong, 0, f"wrong answers, {options}")
        db = t.imported(recording)
        live = dict((heap, (size, count)) for heap, size, count in db.rows("select heap, live_at_end_bytes, live_at_end_count from heap_summary"))
        t.equal([*live.get("mmap", (0, 0)), *live.get("mmap-file", (0, 0))], wanted, f"live at the end, {options}")
        t.check(f"in {live[None][1]:,} block" in recording.errors, f"blocks in the closing lines: {recording.errors}")


@test
def mappings_off(t):
    db = t.imported(t.record([t.program("prog_maps.c")], "--mappings=off"))
    t.equal(db.value("select count(*) from allocation a join heap h on h.id = a.heap_id where h.kind <> 'host'"), 0, "mapping rows")


@test
def marks(t):
    recording = t.same_as_bare([t.program("prog_marks.c")])
    db = t.imported(recording)
    names = [name for (name,) in db.rows("select name from mark order by id")]
    t.equal(names, ["begin"] + [f"step {i}" for i in range(5)] + ["end", "x" * 4096], "marks")
    times = [ns for (ns,) in db.rows("select ts_ns from mark order by id")]
    t.equal(times, sorted(times), "times of the marks")
    t.equal(own(db, "main"), (5, 510), "main()")
    t.equal(live_at_exit(db, "main"), (5, 510), "main() at exit")
    # Step i's block comes between its mark and the next.
    for i in range(5):
        alloc = db.value("select alloc_ns from allocation where size_bytes = ? and stack_id in (select stack_id from site where function = 'main')", 100 + i)
        t.check(times[i + 1] <= alloc <= times[i + 2], f"block {i} lies between its marks")


@test
def modules_with_thread_local_variables(t):
    plugin = t.program("tls_plugin.c", "-shared", "-fPIC", name="tls_plugin.so")
    plugins = []
    for i in range(40):
        plugins.append(t.path(f"plugin{i}.so"))
        shutil.copy(plugin, plugins[-1])
    recording = t.same_as_bare([t.program("tls_modules.c"), *plugins])
    t.equal((recording.out, recording.status), (b"closed 40\n", 0), "output and status")
    db = t.imported(recording)
    no_loss(t, db)
    t.equal(db.rows("select size_bytes, count(*), sum(free_ns is null) from allocation where size_bytes in (600, 601) group by 1"),
            [(600, 40, 0), (601, 40, 40)], "blocks of the plugins")


@test
def closed_module_and_its_address(t):
    one = t.program("prog_plugin.c", "-shared", "-fPIC", "-DFUNCTION=allocate_one", "-DSIZE=4001", name="plugin_one.so")
    two = t.program("prog_plugin.c", "-shared", "-fPIC", "-DFUNCTION=allocate_two", "-DSIZE=4002", name="plugin_two.so")
    db = t.imported(t.same_as_bare([t.program("prog_dlclose_reuse.c"), one, two]))
    no_loss(t, db)
    t.equal(own(db, "allocate_one"), (10, 40010), "allocate_one")
    t.equal(own(db, "allocate_two"), (10, 40020), "allocate_two")
    for path in (one, two):
        loads = db.rows("select load_ns, unload_ns from module where path = ?", os.path.realpath(path))
        t.equal(len(loads), 10, f"loads of {path}")
        t.check(all(unload is not None and load <= unload for load, unload in loads), f"times of {path}: {loads}")


@test
def modules_in_a_directory_whose_name_has_two_lines(t):
    """By a relative path the loader does not say where a module lies: the kernel does, which writes the end of a line in another way."""
    folder, plugins = t.path("two\nlines;\"b\\\\"), []
    os.mkdir(folder)
    for name, size in (("one", 4001), ("two", 4002)):
        built = t.program("prog_plugin.c", "-shared", "-fPIC", f"-DFUNCTION=allocate_{name}", f"-DSIZE={size}", name=f"plugin_{name}.so")
        plugins.append(shutil.copy(built, folder))
    db = t.imported(t.record([t.program("prog_dlclose_reuse.c"), "./plugin_one.so", "./plugin_two.so"], cwd=folder))
    t.equal(own(db, "allocate_one"), (10, 40010), "allocate_one")
    t.equal(own(db, "allocate_two"), (10, 40020), "allocate_two")
    t.equal(db.rows("select distinct path from module where path like '%/plugin%' order by 1"), [(os.path.realpath(path),) for path in plugins], "paths")


@test
def one_build_id_for_two_libraries(t):
    """Chosen by hand, as for all libraries of a project. The plugins are laid out alike, but for how much of the stack their functions take."""
    plugins = []
    with open(t.path("plugin.c"), "w", encoding="utf-8") as file:
        file.write("#include <stdlib.h>\n"
                   "void *allocate(void) __asm__(NAME);\n"
                   "__attribute__((noinline)) void *allocate(void) { volatile char room[ROOM]; room[0] = 1; void *p = malloc(SIZE); room[1] = 2; return p; }\n"
                   "void *run(void) { void *p = allocate(); __asm__ volatile(\"\"); return p; }\n")
    for name, size in (("allocate_one", 4001), ("allocate_two", 4002)):
        plugins.append(t.path(name + ".so"))
        t.run(["cc", "-O1", "-fomit-frame-pointer", "-shared", "-fPIC", "-Wl,--build-id=0x00112233445566778899aabbccddeeff00112233", f'-DNAME="{name}"',
               f"-DSIZE={size}", f"-DROOM={24 + (size - 4001) * 16}", t.path("plugin.c"), "-o", plugins[-1]])
    db = t.imported(t.same_as_bare([t.program("prog_dlclose_reuse.c"), *plugins]))
    t.equal(db.rows("select size_bytes, text, count(*) from allocation join stack_text using (stack_id) where size_bytes in (4001, 4002) group by 1, 2"),
            [(4001, "main;use;run;allocate_one", 10), (4002, "main;use;run;allocate_two", 10)], "blocks of the plugins")


@test
def modules_that_take_turns_among_threads(t):
    one = t.program("prog_plugin.c", "-shared", "-fPIC", "-DFUNCTION=allocate_one", "-DSIZE=4001", name="plugin_one.so")
    two = t.program("prog_plugin.c", "-shared", "-fPIC", "-DFUNCTION=allocate_two", "-DSIZE=4002", name="plugin_two.so")
    for options in ([], ["--stacks=fp"], ["--sample=1"]):
        db = t.imported(t.same_as_bare([t.program("prog_dlclose_threads.c"), one, two], *options))
        no_loss(t, db)
        rows = db.rows("select size_bytes, function, count(*) from allocation a join stack s on s.id = a.stack_id join frame f on f.id = s.site_frame_id"
                       " where size_bytes in (4001, 4002) group by 1, 2 order by 1, 2")
        t.equal(rows, [(4001, "allocate_one", 20 * 1002), (4002, "allocate_two", 20 * 1002)], f"blocks of the plugins with {options}")


@test
def library_that_comes_and_goes_while_the_list_is_looked_at(t):
    one = t.program("prog_plugin.c", "-shared", "-fPIC", "-DFUNCTION=allocate_one", "-DSIZE=4001", name="plugin_one.so")
    two = t.program("prog_plugin.c", "-shared", "-fPIC", "-DFUNCTION=allocate_two", "-DSIZE=4002", name="plugin_two.so")
    db = t.imported(t.same_as_bare([t.program("prog_dlclose_slow.c", "-rdynamic"), one, two]))
    no_loss(t, db)
    rows = db.rows("select f.function, count(*) from allocation a join stack s on s.id = a.stack_id join frame f on f.id = s.frame_id where size_bytes = 4002 group by 1")
    t.equal(rows, [("allocate_two", 5)], "blocks of the plugin")


@test
def library_that_passes_the_hooks_by(t):
    plugin = t.program("prog_plugin.c", "-shared", "-fPIC", "-DFUNCTION=allocate_one", "-DSIZE=4001", name="plugin_one.so")
    frees = t.program("prog_plugin.c", "-shared", "-fPIC", "-DRELEASES", name="plugin_frees.so")
    unexported = t.program("prog_plugin.c", "-shared", "-fPIC", "-DFUNCTION=allocate_one", "-DSIZE=4001", "-DUNEXPORTED", name="plugin_unexported.so")
    for options, seen, notes in (([], 10, 0), (["deep"], 0, 1), (["deep", "close"], 0, 1)):
        for library in (plugin, frees, unexported):
            name = os.path.basename(library)
            command = [t.program("prog_deepbind.c"), library, *options]
            db = t.imported(t.same_as_bare(command))
            said = t.record(command).errors
            t.equal("unrecorded   some allocations:" in said, notes == 1, f"{name}: the summary with {options}: {said}")
            t.equal(db.value("select count(*) from allocation where size_bytes = 4001"), 0 if library == frees else seen, f"{name}: blocks with {options}")
            t.equal(db.value("select count(*) from note where kind = 'bypassed' and instr(text, ?)", name), notes, f"{name}: notes with {options}")


@test
def library_that_passes_the_hooks_by_in_python(t):
    """The interpreter begins to leave before the process does, which says what it has to say all the same."""
    plugin = t.program("prog_plugin.c", "-shared", "-fPIC", "-DFUNCTION=allocate_one", "-DSIZE=4001", name="plugin_one.so")
    program = f"import ctypes, os\nplugin = ctypes.CDLL({plugin!r}, os.RTLD_NOW | os.RTLD_DEEPBIND)"
    db = t.imported(t.same_as_bare([sys.executable, "-c", program]))
    t.equal(db.value("select count(*) from note where kind = 'bypassed' and text like '%plugin_one.so calls%'"), 1, "notes")


@test
def library_that_passes_the_hooks_by_from_the_start(t):
    plugin = t.program("prog_plugin.c", "-shared", "-fPIC", "-DFUNCTION=allocate_one", "-DSIZE=4001", name="plugin_one.so")
    library = t.program("dlopen_early.c", "-DLIBRARY", "-shared", "-fPIC", name="libdlopen_early.so")
    program = t.program("dlopen_early.c", "-Wl,-rpath," + os.path.dirname(library), library)
    trace = t.path("alone.tmk")
    recorded = t.record([program], env={"PLUGIN": plugin})
    t.run([program], env={"PLUGIN": plugin, "LD_PRELOAD": t.library, "TIDEMARK_OPTIONS": f"--quiet -o {trace}"}, status=0)
    for name, each in (("recorded", recorded), ("preloaded alone", t.whole(trace))):
        t.equal(t.imported(each).value("select count(*) from note where kind = 'bypassed' and text like '%plugin_one.so calls%'"), 1, f"notes, {name}")


@test
def functions_that_libc_is_asked_for(t):
    """By dlsym(), which finds libc's own and not the hooks in front of them."""
    between = t.program("asks_libc.c", "-DBETWEEN", "-shared", "-fPIC", name="libbetween.so")
    wrapper = t.program("asks_libc.c", "-DWRAPPER", "-shared", "-fPIC", name="libwrapper.so")
    program = t.program("asks_libc.c", "-fno-builtin", "-Wl,-rpath," + os.path.dirname(between), "-Wl,--no-as-needed", between)
    plain = t.program("asks_libc.c", "-fno-builtin", name="asks_libc_alone")
    for command, preload in ((program, None), (plain, None), (plain, wrapper)):
        if preload and t.sanitized:  # the recorder is preloaded, too, and a sanitizer wants to be first
            continue
        recording = t.same_as_bare([command], **({"env": {"LD_PRELOAD": preload}} if preload else {}))
        t.check(("next to " in recording.text) == (command == program), f"the function behind: {recording.text}")
        t.check(recording.text.startswith("1 1 1\n" if not preload else "0 1 1\n"), f"the same function by both ways: {recording.text}")
        db = t.imported(recording)
        # An allocator behind us that passes on to libc's own: who asks for that goes past it, and past us.
        rows = db.rows("select size_bytes, count(*), count(free_ns) from allocation where size_bytes in (4001, 4002, 4003) group by 1")
        t.equal(rows if not preload else rows[0][:2], [(4001, 10, 0), (4002, 20, 20), (4003, 5, 5)] if not preload else (4003, 5), f"blocks of {command} with {preload}")
        t.equal(db.rows("select size_bytes, count(*), count(free_ns) from allocation where size_bytes in (2 << 20, 1 << 20) group by 1"), [(1 << 20, 1, 1), (2 << 20, 3, 0)], "mappings")
    python = "import ctypes; libc = ctypes.CDLL('libc.so.6'); libc.malloc.restype = ctypes.c_void_p; print(libc.malloc(1234567) != 0)"
    db = t.imported(t.same_as_bare([sys.executable, "-c", python]))
    t.equal(db.value("select count(*) from allocation where size_bytes = 1234567"), 1, "a block of ctypes")


@test
def operator_new_of_an_allocator(t):
    library = t.program("own_new.c", "-shared", "-fPIC", name="libown_new.so")
    program = t.program("own_new.c", "-DPROGRAM", "-Wl,-rpath," + os.path.dirname(library), "-Wl,--no-as-needed", library, cc="g++")
    plain = t.program("own_new.c", "-DPROGRAM", cc="g++")
    for command, by_new, notes in ((program, 0, 1), (plain, 10, 0)):
        db = t.imported(t.same_as_bare([command]))
        t.equal(db.rows("select count(*), count(free_ns) from allocation where size_bytes = 5002"), [(10, 10)], "blocks by malloc")
        t.equal(db.value("select count(*) from allocation where size_bytes = 5001"), by_new, "blocks by new")
        t.equal(db.value("select count(*) from note where kind = 'bypassed' and text like '%libown_new.so has an operator new%'"), notes, "notes")
        t.equal(db.value("select count(*) from note where kind = 'cut-stacks'"), 0, "notes of stacks: that of libstdc++'s constructor is whole")


@test
def address_of_malloc_in_the_program(t):
    db = t.imported(t.same_as_bare([t.program("malloc_address.c", "-no-pie", "-fno-pic")]))
    t.equal(db.rows("select size_bytes, free_ns is not null from allocation where size_bytes in (1234, 777) order by 1"), [(777, 1), (1234, 1)], "blocks")
    t.equal(db.value("select count(*) from note where kind = 'bypassed'"), 0, "notes")


@test
def loader_run_by_hand(t):
    """The main program is the file that the loader was given, and its stacks are whole, from what the loader calls before main on."""
    program, allocator = t.program("early.c"), t.program("own_malloc.c")
    with open(program, "rb") as file:
        loader = re.search(rb"/lib[^\0]*/ld-[^\0]*", file.read()).group().decode()
    texts = "select size_bytes, text from allocation join stack_text using(stack_id) where size_bytes between 301 and 305 order by size_bytes"
    plain, db = t.imported(t.same_as_bare([program])), t.imported(t.same_as_bare([loader, program]))
    t.equal(len(plain.rows(texts)), 5, "blocks")
    t.equal(db.rows(texts), plain.rows(texts), "stacks by name")
    t.equal(db.rows("select kind, text from note"), plain.rows("select kind, text from note"), "notes")
    t.equal(db.value("select count(*) from module where path = ?", os.path.realpath(program)), 1, "the program among the modules")
    db = t.imported(t.same_as_bare([loader, allocator]))
    t.check(os.path.realpath(allocator) in db.value("select text from note where kind = 'static-allocator'"), "the note names the program that has a malloc")


@test
def commands_of_a_program_that_cleaned_its_environment(t):
    user = [(["user"], 1, 1)] if os.geteuid() == 0 else []
    for arguments, processes, notes in (([], 1, 1), (["keep"], 3, 0), *user):
        recording = t.same_as_bare([t.program("cleaned.c"), *arguments])
        t.equal(recording.out, b"3 4\n", "what it prints")
        db = t.imported(recording)
        t.equal(db.value("select count(*) from process"), processes, f"processes with {arguments}")
        t.equal(db.value("select count(*) from note where kind = 'not-followed' and text like '%system() or popen()%'"), notes, f"notes with {arguments}")


@test
def children_whose_status_nobody_shows(t):
    """libc waits for the commands of system() and popen() by itself, and a program may by an instruction of its own: how they ended the kernel tells."""
    if tuple(int(n) for n in re.findall(r"\d+", os.uname().release)[:2]) < (6, 15):
        t.skip("kernels before 6.15 forget how a process ended once its parent has asked")
    with open(t.path("commands.c"), "w", encoding="ascii") as file:
        file.write("#include <stdio.h>\n#include <stdlib.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n"
                   "int main(void) { int status, bad = system(\"sleep 0.5; kill -SEGV $$\") != 11;\n"
                   "\tbad += pclose(popen(\"sleep 0.5; kill -9 $$\", \"r\")) != 9;\n"
                   "\tpid_t child = fork();\n\tif (!child) { usleep(500000); abort(); }\n"
                   "\treturn bad + (syscall(SYS_wait4, child, &status, 0, NULL) != child || status % 128 != 6); }\n")
    db = t.imported(t.record([t.program(t.path("commands.c"))]))
    t.equal(db.rows("select end_code, count(*) from process where end_kind = 'signal' group by 1"), [(6, 1), (9, 1), (11, 1)], "how they ended")
    t.equal(db.value("select count(*) from process where end_kind = 'unknown'"), 0, "nobody knows")


@test
def forks_among_busy_threads(t):
    """No child finds a lock of the unwinder or the loader held by a thread that it does not have. A hang ends as this test's time limit."""
    one = t.program("prog_plugin.c", "-shared", "-fPIC", "-DFUNCTION=allocate_one", "-DSIZE=4001", name="plugin_one.so")
    two = t.program("prog_plugin.c", "-shared", "-fPIC", "-DFUNCTION=allocate_two", "-DSIZE=4002", name="plugin_two.so")
    done = t.record([t.program("prog_fork_threads.c"), one, two, "2"], "--quiet")
    t.equal(done.out, b"ok\n", "what the program says of its children")


@test
def an_environment_that_was_set_before(t):
    """Our three variables leave alone the array that a library's constructor has made, which is the program's block; its own next setenv makes that larger by these, too. With
    --sample the first of all is a sample like any other: what is taken is forgotten."""
    library = t.program("early_setenv.c", "-DLIBRARY", "-shared", "-fPIC", name="libearly_setenv.so")
    program = t.program("early_setenv.c", "-Wl,-rpath," + os.path.dirname(library), "-Wl,--no-as-needed", library)
    for options in ((), ("--sample=1",)):
        db = t.imported(t.same_as_bare([program], *options))
        t.equal(db.rows("select kind, count from loss"), [], f"losses with {options}")
        t.equal(db.value("select count(*) from allocation where free_ns is not null and size_bytes between 200 and 599 and size_bytes % 8 = 0 and realloc_of_id is null"), 50 + 1,
                "blocks of the loop, and the first array")
        chain = db.rows("with recursive c(id, n) as (select id, 0 from allocation where realloc_of_id is null and id in (select realloc_of_id from allocation) union all"
                        " select a.id, n + 1 from allocation a join c on a.realloc_of_id = c.id) select n, size_bytes, free_ns is null from c join allocation using (id) order by n")
        t.equal([(n, size - chain[0][1], live) for n, size, live in chain], [(0, 0, 0), (1, 32, 1)], f"the array with {options}")


@test
def environments_larger_than_a_stack(t):
    """What an exec call needs does not lie on the stack of who calls, which may be as small as PTHREAD_STACK_MIN, nor is it lost with each vfork child."""
    program = t.program("large_environment.c", "-pthread")
    for count in ("100", "1000", "20000"):
        recording = t.same_as_bare([program, count])
        t.check("\n0 bytes of a neighbour's stack changed\n" in recording.text and "vfork" not in recording.text, f"{count} variables: {recording.text}")
        t.equal(recording.text.count("grown by 0 KiB\n"), 1, f"{count} variables: {recording.text}")
        db = t.imported(recording)
        t.equal(db.value("select count(*) from process where exe like '%/true' and recorded and end_kind = 'exit'"), 63, "children that were followed, and the program itself")


@test
def what_static_programs_begin_and_become(t):
    """They say nothing of it, and are over soon. Each has a row of its own, which says that it was not recorded; what it begins is its child."""
    dynamic, static, true = t.program("prog_starts.c"), t.program("prog_starts.c", "-static", name="static"), shutil.which("true")
    # Of parents that were several programs, one after the other, it may be any.
    rows = """select replace(p.exe, rtrim(p.exe, replace(p.exe, '/', '')), ''), p.recorded, p.end_kind, p.end_code,
              (select group_concat(name, ' ') from (select replace(r.exe, rtrim(r.exe, replace(r.exe, '/', '')), '') as name from process r where r.pid = q.pid order by 1))
              from process p left join process q on q.id = p.parent_id"""
    for start in (None, "exec", "fork", "vfork", "spawn"):
        for then in ("exec", "fork", "vfork", "spawn"):
            command = [static, then, true] if not start else [dynamic, start, static, then, true]
            db = t.imported(t.same_as_bare(command))
            above = None if start in (None, "exec") else "prog_starts"
            ended = ("exec", None, above) if then == "exec" else ("exit", 0, above)
            begun = {None: [], "exec": [("prog_starts", 1, "exec", None, None)]}.get(start, [("prog_starts", 1, "exit", 0, None)])
            begun += [("prog_starts", 1, "exec", None, above)] if start == "fork" else []
            parent = above if then == "exec" else "prog_starts static" if start in ("exec", "fork") else "static"
            wanted, got = [*begun, ("static", 0, *ended), ("true", 1, "exit", 0, parent)], db.rows(rows)
            if start == "spawn": # its pid is told when posix_spawn() is back: what it began may have come first, and is nobody's child then
                got = [(*row[:4], row[4] or parent) if row[0] == "true" else row for row in got]
            t.equal(sorted(got, key=str), sorted(wanted, key=str), f"{start}, then {then}")
            t.equal(db.value("select count(*) from note where kind = 'not-recordable' and text like '%static%is not recorded: it is statically linked%'"), 1, f"{start}, then {then}: notes")
            left = "not-recordable' and text like '%; nor is what it leaves running when it ends"
            if start != "exec":  # the command is what it has become, or not, by the time of its end
                t.equal(db.value(f"select count(*) from note where kind = '{left}'"), int(not start), f"{start}, then {then}: what the note of a command says")


FAILING = """
import os, subprocess, sys, threading
def fail():
    while not done:
        try: os.execv(sys.argv[1], [sys.argv[1]])
        except PermissionError: pass
done = []
for i in range(30): subprocess.run(["cand", "vfork", "/bin/true"]) # along PATH, where the first of that name cannot be executed
thread = threading.Thread(target=fail)
thread.start()
for i in range(60): os.system("/bin/true; :")
done.append(1)
thread.join()
"""


@test
def execs_of_static_programs_that_fail(t):
    """They are told before it shows that they fail, and began nothing, whatever other threads begin meanwhile."""
    first, second = t.path("first"), t.path("second")
    for place, program in ((first, t.program("prog_starts.c", "-static", name="static")), (second, t.program("prog_starts.c"))):
        os.mkdir(place)
        shutil.copy(program, os.path.join(place, "cand"))
    os.chmod(os.path.join(first, "cand"), 0o644)
    recording = t.same_as_bare([sys.executable, "-c", FAILING, os.path.join(first, "cand")], env={"PATH": f"{first}:{second}:{os.environ['PATH']}"})
    db = t.imported(recording)
    no_loss(t, db)
    t.equal(db.rows("select kind, text from note where kind in ('not-recordable', 'still-running')"), [], "notes")
    t.equal(db.rows("select recorded, end_kind, count(*) from process where exe like '%/cand' group by 1, 2"), [(1, "exit", 30)], "what was found at last")
    t.equal(db.rows("select recorded, end_kind, count(*) from process where exe like '%/true' group by 1, 2"), [(1, "exit", 90)], "what they began")
    t.equal(db.value("select count(*) from process where end_kind not in ('exit', 'exec')"), 0, "processes that ended in no known way")


@test
def children_on_the_same_pid(t):
    """One after the other, sooner than the recorder looks: each ends with its own code."""
    recording = t.record([t.program("prog_same_pid.c")])
    if int(recording.out) < 10:
        t.skip("the kernel does not let us choose a pid")
    ends = t.imported(recording).rows("select h.allocations - 1, p.end_code from process p join heap_total h on h.process_id = p.id and h.heap_id = 0"
                                      " where p.parent_id and p.end_kind = 'exit'")
    t.equal([pair for pair in ends if pair[0] != pair[1]], [], f"blocks and codes of {len(ends)} children")
    t.check(len(ends) >= 25, f"{len(ends)} children ended")


SCHEDULED = """
import os, sys, time
mine, end = os.sched_getscheduler(0), time.monotonic() + float(sys.argv[1])
while os.sched_getscheduler(os.getppid()) == mine and time.monotonic() < end:
    time.sleep(0.01)
print(os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(os.getppid()))
"""


@test
def who_runs_when(t):
    """The recorder lets the program have its turn, which is scheduled as without it. A policy that somebody chose for both is what both keep."""
    for chosen, recorders, wait_s in ((os.SCHED_OTHER, os.SCHED_BATCH, "30"), (os.SCHED_IDLE, os.SCHED_IDLE, "0.5")):
        command = [t.recorder, "--force", "--quiet", "-o", t.path("scheduled.tmk"), "--", sys.executable, "-c", SCHEDULED, wait_s]
        done = t.run(command, status=0, preexec=lambda policy=chosen: os.sched_setscheduler(0, policy, os.sched_param(0)))
        t.equal([int(word) for word in done.out.split()], [chosen, os.getpriority(os.PRIO_PROCESS, 0), recorders], f"policy and niceness of the program, policy of the recorder, of {chosen}")


@test
def a_schedule_that_forks_lose(t):
    """The command is not a fork of who was given it (chrt -R, a shell's job of an administrator's): it runs as without the recorder."""
    says = "import os; print(os.sched_getscheduler(0), os.sched_getparam(0).sched_priority, os.getpriority(os.PRIO_PROCESS, 0))"
    for policy, priority, nice in ((os.SCHED_FIFO, 5, 0), (os.SCHED_OTHER, 0, -7)):
        def take(policy=policy, priority=priority, nice=nice):
            os.setpriority(os.PRIO_PROCESS, 0, nice)
            os.sched_setscheduler(0, policy | os.SCHED_RESET_ON_FORK, os.sched_param(priority))
        if os.geteuid():
            t.skip("only root gives itself such a schedule")
        bare = t.run([sys.executable, "-c", says], status=0, preexec=take)
        done = t.run([t.recorder, "--force", "--quiet", "-o", t.path("kept.tmk"), "--", sys.executable, "-c", says], status=0, preexec=take)
        t.equal(done.out, bare.out, "policy, priority and niceness")
        t.equal([int(word) for word in bare.out.split()][1:], [priority, nice], "those of the command alone")


main()
