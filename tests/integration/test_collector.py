"""What the recorder adds to the events: readings of memory, notes, the ends of threads."""
import os
import platform
import re
import resource
import signal
import subprocess
import time

from tidemark_test import ROOT, main, settled, state_of, test


def source(t, name, text, *flags):
    path = t.path(name)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    return t.program(path, *flags, name=f"collector_{os.path.splitext(name)[0]}")


# Each mark but the first is set only when the recorder's reading after the one before may have come; the last one leaves time for its own.
STEPS = """
#include "tidemark.h"
#include <unistd.h>
int main(void) {
	for (int i = 0; i < 20000; i++) {
		tidemark_step(i);
		if (i % 40 == 0) usleep(100); /* all of them take some tens of milliseconds */
	}
	return 0;
}
"""


@test
def steps_ring_now_and_then(t):
    """To wake the recorder takes tens of microseconds, in which the step waits. It is done once in ten milliseconds (5 where the processor's clock is fast)."""
    t.need("strace")
    program, calls = source(t, "steps.c", STEPS), t.path("calls")
    db = t.imported(t.record(["strace", "-f", "-e", "trace=futex", "-o", calls, program], status=0))
    with open(calls, encoding="ascii") as file:
        rings = sum("FUTEX_WAKE" in line for line in file)
    first, last = db.row("select min(start_ns), max(start_ns) from step")
    t.equal(db.value("select count(*) from step"), 20000, "steps")
    t.check(1 <= rings <= 2 + (last - first) / 5e6, f"{rings} wakes in 20,000 steps, which took {(last - first) / 1e6:.1f} ms")


STEADY = """
#include <stdlib.h>
#include <unistd.h>
int main(void) {
	for (int i = 0; i < 300; i++) {
		for (int k = 0; k < 10000; k++) {
			void *volatile p = malloc(24);
			free(p);
		}
		usleep(1000);
	}
	return 0;
}
"""


@test
def a_pause_ends_before_a_steady_program_rings(t):
    """To ring takes the program tens of microseconds, so the recorder wakes by itself before it would. When it does get a processor is the machine's: what counts is how long it means
    to sleep. The buffer is a quarter full after some 3 ms here; pauses are 5 ms or a multiple, or 0.2 ms, where nothing is foreseen."""
    t.need("strace")
    if t.sanitized:
        t.skip("the recorder ends with an error there: its sanitizer does not look for leaks under strace")
    program, calls = source(t, "steady.c", STEADY), t.path("calls")

    def foreseen():
        t.run(["strace", "-e", "trace=futex", "-o", calls, t.recorder, "-o", t.path("x.tmk"), "--force", "--quiet", "--", program], status=0)
        with open(calls, encoding="ascii") as file:
            pauses = [int(found[1]) for found in re.finditer(r"FUTEX_WAIT, .*tv_sec=0, tv_nsec=(\d+)", file.read())]
        return sum(ns < 5000000 and ns != 200000 for ns in pauses), len(pauses)

    runs = []
    while len(runs) < 3 and not any(found >= 20 for found, _ in runs):  # beside other work the program itself may not be steady
        runs.append(foreseen())
    t.check(runs[-1][0] >= 20, f"pauses that are foreseen, of how many, in three runs: {runs}")


MARKS = """
#include "tidemark.h"
#include <stdio.h>
#include <unistd.h>
int main(void) {
	char name[16];
	for (int i = 0; i < 10; i++) {
		snprintf(name, sizeof name, "m%d", i);
		tidemark_mark(name);
		usleep(i < 9 ? 3000 : 300000);
	}
	return 0;
}
"""


@test
def every_mark_has_a_reading(t):
    program = source(t, "marks.c", MARKS)
    for interval in ("0", "100"):
        db = t.imported(t.record([program], f"--interval={interval}"))
        marks = [row[0] for row in db.rows("select ts_ns from mark order by ts_ns")]
        t.equal(len(marks), 10, "marks")
        for name in ("rss", "rss_peak", "vms"):
            times = [row[0] for row in db.rows("select ts_ns from sample where name = ? and process_id is not null", name)]
            t.check(max(times) > marks[-1], f"{name} was read after the last mark")
            t.check(all(time > marks[0] for time in times) or interval == "100", f"{name} is read at marks only")
            t.check(len(times) <= 10 or interval == "100", f"{name} is read once a mark at most")
        t.check(db.value("select count(*) from sample where process_id is null and name = 'tool_rss'") > 0, "the recorder's own memory was read")


# 4 MiB of /dev/zero's pages are touched while the thread's buffer, of 64 KiB, is filled to the last page by some thousand events.
BUSY = """
#include "tidemark.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
	char *block = malloc(4 << 20);
	memset(block, 1, 4 << 20);
	if (argc > 1) {
		char *many = mmap(NULL, 16000 << 12, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (int i = 0; i < 16000; i += 2) mprotect(many + ((size_t)i << 12), 1 << 12, PROT_NONE);
		tidemark_mark("begun");
		usleep(100000);
	}
	for (int i = 0; i < 50000; i++) free(malloc(10));
	tidemark_mark("filled");
	usleep(300000);
	char line[4400];
	unsigned long ours = 0, all = 0, kilobytes = 0;
	int is_ours = 0;
	FILE *f = fopen("/proc/self/smaps", "r");
	while (fgets(line, sizeof line, f)) {
		if (strchr("0123456789abcdef", line[0])) is_ours = strstr(line, "tidemark") && !strstr(line, "collector_busy");
		if (is_ours && sscanf(line, "Rss: %lu", &kilobytes) == 1) ours += kilobytes;
		if (is_ours && sscanf(line, "Size: %lu", &kilobytes) == 1) all += kilobytes;
	}
	printf("%lu %lu\\n", ours, all);
	return 0;
}
"""


@test
def a_process_of_many_groups(t):
    """The kernel lists them before the numbers that are read: in one piece, at whose end, or in the next, those stand, by the groups' number."""
    if os.geteuid() != 0:
        t.skip("only root chooses its groups")
    for count in (10, 500, *range(5890, 5938, 8), 65536):
        recording = t.record(["sleep", "0.3"], "--interval=20", "--names=none", preexec=lambda count=count: os.setgroups(range(1000000000, 1000000000 + count)))
        db = t.imported(recording)
        for name in ("rss", "rss_peak", "vms", "swap"):
            values = [value for value, in db.rows("select value from sample where name = ? and process_id is not null", name)]
            t.check(values and (name == "swap" or min(values) > 100 << 10), f"{count} groups: {name}: {values}")


@test
def memory_of_our_own(t):
    recording = t.record([source(t, "busy.c", BUSY)], "--interval=0", "--ring=64K")
    ours, mapped = (int(word) * 1024 for word in recording.out.split())
    db = t.imported(recording)
    told = db.row("select tool_bytes, rss_bytes, gap_bytes, explained_bytes, live_bytes from memory_gap")
    # The program counted later than the recorder: only pages of the library can have come in between.
    t.check(64 << 10 <= told[0] <= ours <= told[0] + (128 << 10), f"{told[0]} bytes of our own, the program sees {ours}")
    t.check(told[3] == told[4] >= 4 << 20, "the block is explained")
    t.equal(told[2], told[1] - told[0] - told[3], "gap")
    t.check(db.value("select value from sample where name = 'vms'") < 64 << 20, "vms is without our mappings")
    t.check(mapped > ours, "the buffers are mapped in advance")


@test
def memory_of_our_own_grows(t):
    """16,000 mappings are not looked at twice within seconds: what the buffer has grown by since, to all of it, is known all the same."""
    program = source(t, "busy.c", BUSY)
    for ring, most in (("8M", 8 << 20), ("1M", 1 << 20)):
        recording = t.record([program, "in many mappings"], "--interval=0", f"--ring={ring}")
        ours = int(recording.out.split()[0]) * 1024
        db = t.imported(recording)
        told = [row[0] for row in db.rows("select tool_bytes from memory_gap order by ts_ns")]
        t.check(min(ours, most) > 900 << 10, f"{ours} bytes of our own: the buffer has grown")
        t.check(ours - (128 << 10) <= told[-1] <= ours, f"{told} bytes of our own, the program sees {ours}")


MANY_AT_ONCE = r"""
#include <pthread.h>
#include <stdlib.h>
static pthread_barrier_t all;
static int times = 100;
static void *thread(void *unused) {
	pthread_barrier_wait(&all);
	for (int i = 0; i < times; i++) free(malloc(777));
	pthread_barrier_wait(&all);
	return unused;
}
int main(int argc, char **argv) {
	pthread_t threads[100];
	if (argc > 1) times = atoi(argv[1]);
	pthread_barrier_init(&all, NULL, 100);
	for (int i = 0; i < 100; i++) pthread_create(&threads[i], NULL, thread, NULL);
	for (int i = 0; i < 100; i++) pthread_join(threads[i], NULL);
	return 0;
}
"""


@test
def the_largest_buffers(t):
    """Each of many threads has one, be there room for as many of this size or not."""
    if t.sanitized:
        t.skip("a sanitizer reserves address space of its own")

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (40 << 30, 40 << 30))

    program = source(t, "many_at_once.c", MANY_AT_ONCE, "-pthread")
    for preexec in (None, limited):
        db = t.imported(t.record([program], "--ring=1GiB", "--interval=0", preexec=preexec))
        t.equal(db.rows("select kind, count from loss"), [], "losses")
        t.equal(db.value("select count(*) from allocation where size_bytes = 777"), 10000, "allocations")


# Runs a command for which there is no memfd_create().
WITHOUT_MEMFD = r"""
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv) {
	struct sock_filter filter[] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
					BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
	struct sock_fprog program = { 4, filter };
	if (argc < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 77;
	execvp(argv[1], argv + 1);
	return 78;
}
"""


@test
def a_small_file_system_for_the_buffers(t):
    """Without memfd_create() they lie in a file, which may find no room for what is written to it: no program dies of that, and what is lost is counted."""
    runner, program = source(t, "without_memfd.c", WITHOUT_MEMFD), source(t, "many_at_once.c", MANY_AT_ONCE, "-pthread")
    t.need("unshare", "mount")
    mount = ["unshare", "-m"] if t.run(["unshare", "-m", "true"]).status == 0 else ["unshare", "-rm"]
    if t.run([*mount, "mount", "-t", "tmpfs", "none", "/dev/shm"]).status or t.run([runner, "true"]).status:
        t.skip("nothing can be mounted here, or no filter set")
    for size in ("1m", "16m", "8m"):  # nothing fits into the first, and another place is found; the last one has room for some of the threads
        record = f"mount -t tmpfs -o size={size} none /dev/shm && {runner} {t.recorder} -o {t.path(size)} {program} 1000; status=$?; ls -A /dev/shm; exit $status"
        done = t.run([*mount, "sh", "-c", record], status=0, env={"TMPDIR": t.dir})
        t.equal(done.out, b"", "what is left behind")
        db = t.imported(t.path(size))
        found, lost = db.value("select count(*) from allocation where size_bytes = 777"), db.value("select coalesce(sum(count), 0) from loss")
        t.check((found, lost) == (100000, 0) if size != "8m" else 0 < found < 100000 and lost >= 2 * (100000 - found), f"{size}: {found} allocations, {lost} events lost")
        t.equal([name for name in os.listdir(t.dir) if name.startswith("tidemark-")], [], "what is left behind")


@test
def stacks_that_were_cut(t):
    """recursion.c: one stack as deep as its argument and main, and one of main alone."""
    program = t.program("recursion.c")
    for stacks in ("unwind", "fp"):
        options = ("--max-depth=64", f"--stacks={stacks}")
        db = t.imported(t.record([program, "300"], *options))
        text = db.value("select text from note where kind = 'cut-stacks' and process_id = (select id from process)")
        t.equal(text, "1 stack is without outermost frames: deeper than 64 (--max-depth), or nothing could unwind that far", f"note with --stacks={stacks}")
        t.equal(db.value("select max(depth) from stack"), 64, f"depth with --stacks={stacks}")
        db = t.imported(t.record([program, "62"], *options))
        t.equal(db.rows("select text from note where kind = 'cut-stacks'"), [], f"note where nothing was cut, with --stacks={stacks}")


CUT_THREAD = """#include <pthread.h>
#include <stdlib.h>
#define ROUNDS 3000
void *volatile kept;
__attribute__((noinline)) static void take(size_t size) { kept = malloc(size); free(kept); __asm__ volatile("" ::: "memory"); }
__attribute__((noinline)) static void first(size_t size) { take(size); __asm__ volatile("" ::: "memory"); }
__attribute__((noinline)) static void second(size_t size) { take(size); __asm__ volatile("" ::: "memory"); }
static void *work(void *of) {
	for (int i = 0; i < ROUNDS; i++) {
		first(1001);
		second(1002);
	}
	return of;
}
int main(void) {
	pthread_t thread;
	pthread_create(&thread, NULL, work, NULL);
	pthread_join(thread, NULL);
	for (int i = 0; i < ROUNDS; i++) first(1003);
	return 0;
}
"""


@test
def cut_stacks_that_come_again(t):
    """By frame pointers a thread's stacks end before the function that it began in has returned to anything: each counts as cut, also where it is known."""
    program = source(t, "cut_thread.c", CUT_THREAD, "-O1", "-fno-omit-frame-pointer", "-pthread")
    db = t.imported(t.record([program], "--stacks=fp"))
    taken = dict(db.rows("""select s.text || ' ' || a.size_bytes, count(*) from allocation as a join stack_text as s using (stack_id)
                            where a.size_bytes between 1001 and 1003 group by 1"""))
    t.equal(taken, {"work;first;take 1001": 3000, "work;second;take 1002": 3000, "main;first;take 1003": 3000}, "stacks")
    told = sum(int(text.split()[0]) for text, in db.rows("select text from note where kind = 'cut-stacks'"))
    others = db.value("select count(*) from allocation where size_bytes not between 1001 and 1003")
    t.check(6000 <= told <= 6000 + others < 6100, f"{told} stacks are said to be cut, of 6000 and {others} others")


BESIDE = """#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#define COROUTINE_BYTES (16 << 10)
#define THREAD_BYTES (64 << 10)
static char *arena; /* the stacks of two coroutines, and of their thread: nothing lies between them */
static ucontext_t home, first, second;
static int rounds;
static pthread_key_t key; /* many were made and deleted before: glibc has counted them beside the thread's value, which points in front of its descriptor */
static void __attribute__((noinline)) take(size_t size) { free(malloc(size)); __asm__ volatile("" ::: "memory"); }
static void in_first(void) { for (;;) { take(1001); swapcontext(&first, &home); } }
static void in_second(void) { for (;;) { take(1002); swapcontext(&second, &home); } }
static void prepare(ucontext_t *c, char *stack, void (*run)(void)) {
	getcontext(c);
	c->uc_stack.ss_sp = stack;
	c->uc_stack.ss_size = COROUTINE_BYTES;
	makecontext(c, run, 0);
}
static void *work(void *of) {
	pthread_setspecific(key, (char *)pthread_self() - 16);
	take(1003);
	prepare(&first, arena, in_first);
	prepare(&second, arena + COROUTINE_BYTES, in_second);
	for (int i = 0; i < rounds; i++) {
		swapcontext(&home, &second);
		swapcontext(&home, &first);
	}
	swapcontext(&home, &second);
	munmap(arena + COROUTINE_BYTES, COROUTINE_BYTES);
	swapcontext(&home, &first);
	return of;
}
int main(int argc, char **argv) {
	pthread_t thread;
	pthread_attr_t attributes;
	(void)argc;
	rounds = atoi(argv[1]);
	for (int i = 0; i < 100; i++) {
		if (i) pthread_key_delete(key);
		pthread_key_create(&key, NULL);
	}
	arena = mmap(NULL, 2 * COROUTINE_BYTES + THREAD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_attr_init(&attributes);
	pthread_attr_setstack(&attributes, arena + 2 * COROUTINE_BYTES, THREAD_BYTES);
	pthread_create(&thread, &attributes, work, NULL);
	pthread_join(thread, NULL);
	return 5;
}
"""


@test
def coroutines_beside_their_threads_stack(t):
    """A coroutine's stack that goes is not looked at again, though it lay where the thread's own might have grown to."""
    program = source(t, "beside.c", BESIDE, "-O1", "-fno-omit-frame-pointer", "-pthread")
    for rounds in (1, 10, 1000):
        for stacks in ("unwind", "fp"):
            db = t.imported(t.record([program, str(rounds)], f"--stacks={stacks}", status=5))
            taken = dict(db.rows("""select a.size_bytes || ' ' || substr(s.text, -14), count(*) from allocation as a join stack_text as s using (stack_id)
                                    where a.size_bytes between 1001 and 1003 group by 1"""))
            t.equal(taken, {"1001 ;in_first;take": rounds + 1, "1002 in_second;take": rounds + 1, "1003 work;take": 1}, f"{rounds} rounds, --stacks={stacks}")


# A coroutine whose first function returns to an address that no program has, as libraries of coroutines leave it there; by turns with
# stacks that have a caller, and inside of a function whose frame is found by another register than the usual two.
COROUTINE = """
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
static ucontext_t outside, inside;
static char stack[256 << 10];
static void handler(int number) { *(char *volatile *)&(char *){ malloc(30) } = (char *)(uintptr_t)number; }
static void allocate(size_t bytes) { for (int i = 0; i < 1000; i++) free(malloc(bytes)); }
void odd(void function(size_t), size_t);
__asm__("odd: .cfi_startproc; push %rbx; .cfi_def_cfa_offset 16; .cfi_offset 3, -16; mov %rsp, %rbx; .cfi_def_cfa_register 3; mov %rdi, %rax; mov %rsi, %rdi;"
	"call *%rax; pop %rbx; .cfi_def_cfa 7, 8; ret; .cfi_endproc");
static void work(void) {
	for (;;) {
		allocate(10);
		odd(allocate, 40);
		raise(SIGUSR1);
		swapcontext(&inside, &outside);
	}
}
int main(int count, char **words) {
	signal(SIGUSR1, handler);
	getcontext(&inside);
	inside.uc_stack = (stack_t){ .ss_sp = stack, .ss_size = sizeof stack };
	makecontext(&inside, work, 0);
	*(uint64_t *)inside.uc_mcontext.gregs[REG_RSP] = strtoull(words[count - 1], NULL, 16);
	for (int i = 0; i < 2; i++) {
		allocate(20);
		swapcontext(&outside, &inside);
	}
	return 0;
}
"""


def library_with_init(t, *options):
    """(the program, its library) of init_calls.c, without the start files of today."""
    library, program, source = t.path("libinit_calls.so"), t.path("init_calls"), f"{ROOT}/fixtures/programs/init_calls.c"
    start, end = (t.run(["gcc", f"-print-file-name={name}"], status=0).text.strip() for name in ("crti.o", "crtn.o"))
    t.run(["gcc", "-g", "-shared", "-fPIC", "-nostartfiles", *options, "-o", library, start, source, end], status=0)
    t.run(["gcc", "-g", "-DMAIN", "-o", program, source, "-ldl"], status=0)
    return program, library


@test
def constructors_that_init_calls(t):
    """_init and _fini of a library, and what calls the constructors on a list, are not described by anything, and are walked past by their code; also where the stack
    has a frame that takes the long way."""
    for options in ((), ("-DENDBR",)):
        program, library = library_with_init(t, *options)
        for more in ((), ("oddly",)):
            db = t.imported(t.record([program, library, *more]))
            stacks = dict(db.rows("select a.size_bytes, s.text from allocation as a join stack_text as s using (stack_id) where a.size_bytes in (1111, 2222, 3333, 4444, 7777)"))
            load = "main;oddly;load;" if more else "main;load;"
            for size, begin, end in ((1111, load, ";made"), (2222, load, ";made_later"), (3333, "", ";unmade"), (4444, load, ";ctors_aux;listed"), (7777, load, ";__gmon_start__")):
                t.check(stacks[size].startswith(begin) and stacks[size].endswith(end), f"stack of the {size} bytes: {stacks[size]}")
                caller = stacks[size].split(";")[-3 if size == 4444 else -2]
                t.check("libinit_calls.so+0x" in caller and ("dlopen" if begin else "exit") in stacks[size], f"past _init, _fini: {stacks[size]}")
            t.equal(db.rows("select text from note where kind = 'cut-stacks'"), [], "notes")


@test
def code_that_only_looks_like_inits(t):
    """It is guessed, and noted; and nothing is read behind the end of a page."""
    for kind in range(1, 7):
        program, library = library_with_init(t, f"-DODD={kind}")
        db = t.imported(t.record([program, library]))
        t.equal(db.value("select count(*) from note where kind = 'cut-stacks'"), 1, f"stacks are said to be cut, {kind}")
    program, library = library_with_init(t, "-DEDGE", "-Wl,-init=edge")
    db = t.imported(t.record([program, library]))
    t.equal(db.rows("select text from note where kind = 'cut-stacks'"), [("1 stack is without outermost frames: deeper than 1024 (--max-depth), or nothing could"
                                                                            " unwind that far",)], "notes")
    t.equal(db.rows("select s.text from allocation as a join stack_text as s using (stack_id) where a.size_bytes = 5555"), [("main;load;undescribed;taken",)], "guessed")


START = """#include <stdlib.h>
void *volatile kept;
__attribute__((used, noinline)) void taken(void) { kept = malloc(6666); }
void behind(void);
__asm__(".text\\n.globl _start\\n_start:\\n\\txor %ebp, %ebp\\n\\tmov %rdx, %r9\\n\\tpop %rsi\\n\\tmov %rsp, %rdx\\n\\tand $-16, %rsp\\n\\tpush %rax\\n\\tpush %rsp\\n"
        "\\txor %r8d, %r8d\\n\\txor %ecx, %ecx\\n\\tlea main(%rip), %rdi\\n\\tcall *__libc_start_main@GOTPCREL(%rip)\\n\\thlt\\n"
        ".type behind, @function\\nbehind:\\n\\tpush %rbp\\n\\tmov %rsp, %rbp\\n\\tcall taken\\n\\tpop %rbp\\n\\tret\\n\\t.size behind, .-behind\\n");
__attribute__((constructor, noinline)) static void made(void) { kept = malloc(5555); }
int main(void) { behind(); return 0; }
"""


@test
def a_start_that_nothing_describes(t):
    """A program's own _start is where its stacks end, whatever start file it has; a function behind it is not."""
    program, file = t.path("start"), t.path("start.c")
    with open(file, "w", encoding="ascii") as f:
        f.write(START)
    t.run(["gcc", "-g", "-nostartfiles", "-o", program, file], status=0)
    db = t.imported(t.record([program]))
    stacks = dict(db.rows("select a.size_bytes, s.text from allocation as a join stack_text as s using (stack_id) where a.size_bytes in (5555, 6666)"))
    t.check(stacks[5555].endswith(";made") or stacks[5555] == "made", stacks[5555])
    t.equal(stacks[6666], "main;behind;taken", "through the function behind it")
    t.equal([text.split()[0] for text, in db.rows("select text from note where kind = 'cut-stacks'")], ["1"], "stacks that are said to be cut: what was guessed")


FIRST_IN_A_MAPPING = r"""#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
void *volatile kept;
__attribute__((noinline)) void taken(void) { kept = malloc(5555); }
/* outer: push %rbp; mov %rsp, %rbp; call *%rdi; pop %rbp; ret. inner, 16 bytes on: the same, by %rsi. */
static const unsigned char outer[16] = "\x55\x48\x89\xe5\xff\xd7\x5d\xc3", inner[16] = "\x55\x48\x89\xe5\xff\xd6\x5d\xc3";
int main(void) {
	char *pages = mmap(NULL, 3 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *code = pages + 4096;
	if (mprotect(code, 4096, PROT_READ | PROT_WRITE | PROT_EXEC)) return 1;
	memcpy(code, outer, 16);
	memcpy(code + 16, inner, 16);
	((void (*)(void *, void *))code)(code + 16, taken);
	return 0;
}
"""


@test
def a_call_in_the_first_bytes_of_a_mapping(t):
    """What lies in front of generated code may not be readable: the call at its begin is seen nevertheless, and the stack goes on to main."""
    if platform.machine() != "x86_64":
        t.skip("the code is x86-64's")
    program = source(t, "first_in_a_mapping.c", FIRST_IN_A_MAPPING)
    db = t.imported(t.record([program]))
    stack = db.value("select s.text from allocation as a join stack_text as s using (stack_id) where a.size_bytes = 5555").split(";")
    t.equal((stack[0], stack[-1], [text[-3:] for text in stack[1:-1]]), ("main", "taken", ["006", "016"]), "from main through both functions")


FILE_OVER_CODE = r"""#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
void *volatile kept;
__attribute__((noinline)) void first(void) { kept = malloc(5555); }
__attribute__((noinline)) void second(void) { kept = malloc(6666); }
static const unsigned char function[16] = "\x55\x48\x89\xe5\xff\xd7\x5d\xc3"; /* push %rbp; mov %rsp, %rbp; call *%rdi; pop %rbp; ret */
int main(int argc, char **argv) {
	static char page[4096];
	int fd = open(argv[1], O_RDWR | O_CREAT, 0700);
	memcpy(page + 64, function, 16);
	if (write(fd, page, sizeof page) != sizeof page) return 1;
	char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(code, function, 16);
	((void (*)(void *))code)(first);
	sleep(1); /* it is looked up, five times as long as takes two of that */
	if (mmap(code, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, 0) != code) return 1;
	((void (*)(void *))(code + 64))(second);
	sleep(1);
	return 0;
}
"""


@test
def a_file_that_is_mapped_over_made_code(t):
    """No loader tells of it, so it is looked up. What lay there before, and was looked up then, was the program's own."""
    if platform.machine() != "x86_64":
        t.skip("the code is x86-64's")
    file, found = t.path("code.bin"), None
    program = source(t, "file_over_code.c", FILE_OVER_CODE)
    for _ in range(3):  # a busy machine may look later
        db = t.imported(t.record([program, file]))
        found = [db.rows("""select f.kind, m.path from allocation a join stack s on s.id = a.stack_id join stack around on around.id = s.parent_id
                            join frame f on f.id = around.frame_id left join module m on m.id = f.module_id where a.size_bytes = ?""", size) for size in (5555, 6666)]
        if found[0] == [("unknown", None)]:
            break
    t.equal(found, [[("unknown", None)], [("native", file)]], "what called first() and second()")


@test
def coroutines_without_a_caller(t):
    program = source(t, "coroutine.c", "#define _GNU_SOURCE" + COROUTINE)
    for caller in ("deaddeaddeaddead", "ffffffffffffffff", "0f00000000000000", "0000800000001000", "0", "1", "fff"):
        for stacks in ("unwind", "fp"):
            db = t.imported(t.record([program, caller], f"--stacks={stacks}", "--python=off"))
            what = f"with {caller}, --stacks={stacks}"
            t.equal(db.rows("select kind, count from loss"), [], f"losses {what}")
            t.equal(db.rows("select size_bytes, count(*) from allocation where size_bytes between 10 and 40 group by 1"),
                    [(10, 2000), (20, 2000), (30, 2), (40, 2000)],
                    f"allocations {what}")
            t.equal(db.rows("select distinct function from stack join frame on frame.id = frame_id where module_id is null and kind <> 'kernel'"), [],
                    f"frames that are no code {what}")


@test
def children_that_are_not_followed(t):
    child = t.program("prog_child.c")
    for how in ("fork", "vfork", "spawn"):  # system() of libc makes its child without us
        db = t.imported(t.record([t.program("prog_run.c"), how, child], "--follow=off", status=4))
        t.equal(db.value("select count(*) from process"), 1, f"processes ({how})")
        t.equal(db.rows("select text from note where kind = 'not-followed' and process_id = (select id from process)"),
                [("1 child process was not recorded (--follow=off)",)], f"note ({how})")
    db = t.imported(t.record([t.program("prog_fork200.c")], "--follow=off", status=6))
    t.equal(db.value("select text from note where kind = 'not-followed'"), "200 child processes were not recorded (--follow=off)", "note of 200")
    db = t.imported(t.record(["/bin/true"], "--follow=off"))
    t.equal(db.rows("select text from note"), [], "no child, no note")


# Its thread is silent for longer than a silent thread stays unwatched, and so is it. Allocations: 5 of 3000 bytes by the thread, 5 of 100 in the
# process and 5 in its child, which returns 7.
NAMESPACE = """
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void take(int size) {
	for (int i = 0; i < 5; i++) {
		void *volatile kept = malloc(size);
		if (i % 2 == 0) usleep(500000);
	}
}
static void *other(void *unused) {
	take(3000);
	return unused;
}
int main(void) {
	pthread_t thread;
	int status;
	pthread_create(&thread, 0, other, 0);
	pid_t child = fork();
	take(100);
	if (!child) _exit(7);
	waitpid(child, &status, 0);
	pthread_join(thread, 0);
	return WEXITSTATUS(status) + 1;
}
"""


@test
def another_pid_namespace(t):
    """Pids there mean nothing to the recorder, or other processes: nobody is taken for dead, read or waited for by them."""
    program = source(t, "namespace.c", NAMESPACE)
    for mount in ((), ("--mount-proc",)):
        unshare = ["unshare", "-pf", *mount]
        t.need("unshare")
        if t.run([*unshare, "true"]).status:
            t.skip("a pid namespace cannot be made here")
        recording = t.same_as_bare([*unshare, program])
        t.equal(recording.status, 8, "exit status")
        db = t.imported(recording)
        t.equal(db.rows("select kind, count from loss"), [], "losses")
        t.equal(db.rows("select text from note where kind = 'still-running'"), [], "nobody still runs")
        outer = db.value("select id from process where parent_id is null")
        if mount:  # it cannot reach the shared memory
            t.equal(db.value("select count(*) from note where kind = 'not-recordable'"), 1, "note")
            continue
        t.equal(db.rows("select pid from process where end_kind = 'exit' and end_code = 8 and id <> ?", outer), [(1,)], "end of the first one inside")
        t.equal(db.rows("select size_bytes, count(*) from allocation where size_bytes in (100, 3000) group by 1"), [(100, 10), (3000, 5)], "allocations")
        t.equal(db.value("select count(*) from process where end_code = 7 and end_kind = 'exit' and pid > 1"), 1, "end of its child")
        t.check(db.value("select max(value) from sample join process on process.id = process_id where name = 'rss' and process.pid = 1") < 8 << 20,
                "its memory was read, not that of the system's first process")


# What the first recording's command leaves behind runs a program while the second recording's recorder has the pid of the first one's.
SAME_PID = r"""
cd "$1"; mkfifo go end
"$2" --quiet --linger=100ms -o first.tmk -- sh -c '(read word < go; "$1"; echo done > end) &' sh "$3" &
first=$!
wait $first
echo $((first - 1)) > /proc/sys/kernel/ns_last_pid || exit 77
"$2" --quiet -o second.tmk -- sh -c 'echo now > go; read word < end' &
second=$!
wait $second
[ $first = $second ] || exit 77
"""


@test
def a_recorder_with_the_pid_of_another(t):
    """Programs of the recording before are not its own."""
    alone = ["unshare", "-pf", "--mount-proc"]
    if t.run([*alone, "true"]).status:
        t.skip("a pid namespace cannot be made here")
    done = t.run([*alone, "bash", "-c", SAME_PID, "sh", t.dir, t.recorder, t.program("hello.c")], timeout=60)
    if done.status == 77:
        t.skip("no process gets the pid that it shall have here")
    t.equal((done.status, done.text), (0, "hello\n"), f"status and output: {done.errors}")
    db = t.imported(t.path("second.tmk"))
    t.equal(db.value("select count(*) from process where exe like '%hello%'"), 0, "programs of the first recording in the second one")
    t.equal(db.value("select count(*) from process"), 1, "processes of the second recording")


BARE_ROOT = r"""
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
	int status = -1;
	if (argc < 2 || chroot(argv[1]) || chdir("/") || unshare(CLONE_NEWPID)) return 77;
	if (!fork()) {
		for (int i = 0; i < 10; i++) free(malloc(101));
		return 8;
	}
	wait(&status);
	printf("%d\n", WEXITSTATUS(status));
	return 0;
}
"""


@test
def another_pid_namespace_without_proc(t):
    """The first process there cannot say which namespace it is in: it is not taken for the system's first process, which runs on."""
    program = source(t, "bare_root.c", BARE_ROOT)
    os.mkdir(t.path("root"))
    if t.run([program, t.path("root")]).status == 77:
        t.skip("a pid namespace cannot be made here")
    db = t.imported(t.same_as_bare([program, t.path("root")]))
    t.equal(db.rows("select pid = 1, end_kind, end_code from process order by id"), [(0, "exit", 0), (1, "exit", 8)], "processes")
    t.equal(db.rows("select kind from note where kind = 'still-running'"), [], "nobody still runs")
    t.equal(db.value("select count(*) from allocation join process on process.id = process_id where size_bytes = 101 and pid = 1"), 10, "allocations")


SEARCHING = r"""
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
int main(int argc, char **argv) {
	char *arguments[] = { argv[1], 0 };
	int wrong = 0;
	for (int i = 0; i < 20; i++) {
		int status = 0;
		pid_t child = vfork();
		if (!child) {
			execve("/nowhere/program", arguments, environ);
			execve("/nowhere/else/program", arguments, environ);
			execve(argv[1], arguments, environ);
			_exit(9);
		}
		waitpid(child, &status, 0);
		wrong += WEXITSTATUS(status) != 5;
	}
	return wrong;
}
"""


@test
def children_that_look_for_their_program(t):
    """As Python's subprocess does along PATH: an exec that fails is none, and what comes of the last one is one process, with its end."""
    child = source(t, "found.c", "#include <stdlib.h>\nint main(void) { for (int i = 0; i < 100; i++) free(malloc(77)); return 5; }")
    program = source(t, "searching.c", SEARCHING)
    for _ in range(3):
        db = t.imported(t.same_as_bare([program, child]))
        t.equal(db.rows("select execed, end_kind, end_code, recorded, count(*) from process where parent_id is not null group by 1, 2, 3, 4"),
                [(1, "exit", 5, 1, 20)], "children")
        t.equal(db.value("select count(*) from allocation where size_bytes = 77"), 2000, "their blocks")
        t.equal(db.value("select count(*) from note where kind = 'not-recordable'"), 0, "notes")


@test
def short_process_in_another_pid_namespace(t):
    """Its parent knows it by another pid than itself; it is one process, also where it is over before anybody could ask."""
    program = source(t, "short.c", "#include <stdlib.h>\nint main(void) { for (int i = 0; i < 1000; i++) free(malloc(100)); return 5; }")
    for mount in ((), ("--mount-proc",), (), ("--mount-proc",)):
        unshare = ["unshare", "-pf", *mount]
        t.need("unshare")
        if t.run([*unshare, "true"]).status:
            t.skip("a pid namespace cannot be made here")
        db = t.imported(t.same_as_bare([*unshare, program]))
        t.equal(db.rows("select forked, execed, end_kind, end_code from process order by id"), [(0, 0, "exit", 5), (1, 0, "exec", None), (0, 1, "exit", 5)],
                f"unshare, its child, and what that became, with {mount}")


@test
def nothing_of_a_killed_recorder_stays(t):
    recorder = t.start([t.recorder, "-o", t.path("killed.tmk"), "--quiet", "--", t.program("forever.c")], stdout=subprocess.DEVNULL)
    command = t.command_of(recorder)
    with open(f"/proc/{recorder.pid}/task/{recorder.pid}/children", encoding="ascii") as file:
        helpers = [int(child) for child in file.read().split() if int(child) != command]
    t.check(helpers, "the recorder has a process beside the command")
    recorder.send_signal(signal.SIGKILL)
    recorder.wait()
    for helper in helpers:
        for _ in range(1000):
            if state_of(helper) in (None, "Z", "X"):  # a zombie is the new parent's to bury
                break
            time.sleep(0.01)
        t.check(state_of(helper) in (None, "Z", "X"), f"process {helper} outlived the recorder")
    t.check(state_of(command) not in (None, "Z", "X"), "the command runs on")
    os.kill(command, signal.SIGKILL)


@test
def no_interval_no_marks_no_readings(t):
    db = t.imported(t.record(["/bin/true"], "--interval=0"))
    t.equal(db.value("select count(*) from sample"), 0, "readings")


SHORT_PROCESSES = """
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
	for (int i = 0; i < 150; i++) {
		if (fork() == 0) {
			void *p[500];
			for (int k = 0; k < 40000; k++) {
				if (k >= 500) free(p[k % 500]);
				p[k % 500] = malloc(16 + k % 64);
			}
			_exit(0);
		}
		wait(NULL);
	}
	return 0;
}
"""


@test
def memory_for_many_short_processes(t):
    """What the recorder keeps of a process that has ended does not grow with what it did. Without names: whoever reads a file for them is a child, and counts."""
    program = source(t, "short.c", SHORT_PROCESSES)

    def peak_kib():
        child = subprocess.Popen([t.recorder, "--quiet", "--force", "--interval=0", "--names=none", "-o", t.path("run.tmk"), "--", program])
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        t.equal(child.returncode, 0, "exit status")
        events = t.imported(t.path("run.tmk")).value("select sum(events) from trace")
        t.check(events >= 150 * 79_000, f"{events} events")
        return used.ru_maxrss

    if t.sanitized:
        peak_kib()
        t.skip("memory is not what it would be without the sanitizer")
    peak = settled(peak_kib, lambda kib: kib < 64 << 10)
    t.check(peak < 64 << 10, f"peak memory of the recorder: {peak} KiB")


@test
def many_busy_threads(t):
    """Each fills its buffer more than once. Whoever finds it full waits, and the buffers of all of them together stay within bounds."""
    threads, pairs = 200, 20000
    program = t.program(os.path.join(ROOT, "tests/bench/pairs.c"), "-O2")
    done = t.record([program, f"--threads={threads}", f"--pairs={pairs}"])
    t.check("lost         nothing" in done.errors, f"something was lost:\n{done.errors}")
    db = t.imported(done)
    t.check(db.value("select count(*) from allocation where api = 'malloc'") >= threads * pairs, "every allocation is there")
    if t.sanitized:
        t.skip("memory is not what it would be without the sanitizer")
    t.check(db.value("select max(value) from sample where name = 'tool_rss'") < 200 << 20, "the recorder's memory, buffers included, is bounded")


# Writes over all of the buffers, several times, right behind events that the recorder has not read; what it does is always the same.
WILD = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static volatile char sink;
__attribute__((noinline)) static void deep(int depth, size_t bytes) {
	if (depth) deep(depth - 1, bytes);
	else free(malloc(bytes));
	sink = 0;
}
__attribute__((noinline)) static void steadily(int count, size_t bytes) {
	for (int i = 0; i < count; i++) deep(10 + i % 5, bytes);
}
static void *buffers(size_t *size) {
	char line[1024];
	unsigned long low, high, found = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	*size = 0;
	while (fgets(line, sizeof line, maps)) {
		if (!strstr(line, " rw-s ") || sscanf(line, "%lx-%lx", &low, &high) != 2 || high - low <= *size) continue;
		found = low;
		*size = high - low;
	}
	fclose(maps);
	return (void *)found;
}
int main(void) {
	size_t size;
	void *at = buffers(&size);
	steadily(20000, 33);
	for (int i = 0; i < 30; i++) {
		steadily(100, 55);
		memset(at, 0xff, size);
	}
	steadily(400000, 77);
	return 0;
}
"""


@test
def stacks_are_known_again_behind_a_stretch_that_makes_no_sense(t):
    """The thread sees that it was skipped when it has written a quarter of its buffer, and begins anew; else it would say stacks by their numbers for ever."""
    db = t.imported(t.record([source(t, "wild.c", WILD)]))
    t.check(db.value("select count(*) from loss where kind = 'corrupt-ring'") > 0, "something was skipped")
    deep = "select count(*) from allocation join stack on stack.id = stack_id where size_bytes = 77 and depth between 13 and 17"
    blocks, known = db.value("select count(*) from allocation where size_bytes = 77"), db.value(deep)
    t.check(blocks > 300_000, f"{blocks} blocks behind it")
    t.check(known > 0.8 * blocks, f"{known} of {blocks} blocks have their stacks")


# One thread on a given processor until a byte comes, then a second one beside it; a few thousand blocks a millisecond, so that no buffer fills.
LONE = """
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>
static void *work(void *argument) {
	for (;;) {
		for (int k = 0; k < 2000; k++) {
			void *volatile p = malloc(24);
			free(p);
		}
		usleep(1000);
	}
	return argument;
}
int main(int n, char **v) {
	cpu_set_t here;
	pthread_t thread;
	char byte;
	CPU_ZERO(&here);
	CPU_SET(atoi(v[n - 1]), &here);
	sched_setaffinity(0, sizeof here, &here);
	pthread_create(&thread, NULL, work, NULL);
	if (read(0, &byte, 1) == 1) pthread_create(&thread, NULL, work, NULL);
	if (read(0, &byte, 1) == 1) return 3;
	return 4;
}
"""


@test
def keeps_off_the_processor_of_a_lone_thread(t):
    """All of the recorder's threads, as long as one thread of the program makes the events; and whatever happens, none but what it was given."""
    given = os.sched_getaffinity(0)
    if not 2 <= len(given) <= 4:
        t.skip(f"{len(given)} processors: the recorder does this with two to four")
    program = source(t, "lone.c", LONE, "-pthread")

    def allowed(recorder):
        return [os.sched_getaffinity(int(task)) for task in os.listdir(f"/proc/{recorder.pid}/task")]

    def becomes(recorder, wanted):
        for _ in range(3000):
            if all(mask == wanted for mask in allowed(recorder)):
                return True
            time.sleep(0.01)
        return False

    for on_full, where in (("wait", min(given)), ("wait", max(given)), ("drop", max(given))):
        recorder = t.start([t.recorder, "--force", "--quiet", f"--on-full={on_full}", "-o", t.path("lone.tmk"), "--", program, str(where)], stdin=subprocess.PIPE)
        if on_full == "drop":
            time.sleep(1)
            t.check(becomes(recorder, given), "it reads wherever it can where events are lost otherwise")
        else:
            t.check(becomes(recorder, given - {where}), f"processors {allowed(recorder)} while a lone thread runs on {where}")
        recorder.stdin.write(b"x")
        recorder.stdin.flush()
        t.check(becomes(recorder, given), f"processors {allowed(recorder)} while two threads run")
        recorder.stdin.write(b"x")
        recorder.stdin.close()
        t.equal(recorder.wait(60), 3, "exit status")


main()
