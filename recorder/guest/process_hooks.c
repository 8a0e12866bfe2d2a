/* process_hooks.c - how processes begin, are waited for, and end. (exec and posix_spawn: exec_hooks.c)
 *
 * Flow:     the program's fork, wait..., exit..., and main itself -> here -> control records (../shm.h)
 * Idea:     nothing depends on the end being seen: a killed process just stops. What is seen is said: when leaving began, which status was
 *           meant. exit() may be overtaken by an _exit() in one of its handlers, so each of them says its status, and the last one counts.
 * vfork:    is not wrapped (its child returns through the caller's frame). A vfork child's _exit is not its parent's: the pid tells them
 *           apart.
 * Exits that libc makes by itself are seen by a handler: registered before main (err()), and when main's thread ends (the last thread's end then exits).
 * C++ exceptions, pthread_exit and cancellation pass through these frames: nothing is held across a real call.
 */
#include "cupti.h"
#include "fork_gate.h"
#include "process.h"
#include "python.h"
#include "raw.h"
#include "sample.h"
#include "sandbox.h"
#include "thread_name.h"
#include "torch.h"

#include <errno.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_STATUS_MASK 0xff

typedef int program_main_function(int, char **, char **);

int __libc_start_main(program_main_function *program, int argc, char **argv, void (*init)(void), void (*fini)(void),
		      void (*loader_fini)(void), void *stack_end);

static struct {
	pid_t (*fork)(void);
	pid_t (*bare_fork)(void); /* _Fork, of POSIX 2024 */
	pid_t (*wait)(int *);
	pid_t (*waitpid)(pid_t, int *, int);
	pid_t (*wait3)(int *, int, struct rusage *);
	pid_t (*wait4)(pid_t, int *, int, struct rusage *);
	int (*waitid)(idtype_t, id_t, siginfo_t *, int);
	void (*exit)(int);
	void (*bare_exit)(int); /* _exit */
	void (*bare_exit_of_c)(int); /* _Exit */
	void (*quick_exit)(int);
	_Atomic bool found;
} real;

TM_HIDDEN program_main_function *tm_program_main; /* read by run_main */
static _Atomic uint32_t exit_begun; /* number of the process that began to leave: a fork's child has another */
static _Atomic uint32_t last_words; /* likewise of the one that said what it has to say at its end; Python begins to leave before that */

__attribute__((constructor)) static void find_real(void) {
	if (atomic_load_explicit(&real.found, memory_order_acquire)) return;
	*(void **)&real.fork = tm_next_symbol("fork");
	*(void **)&real.bare_fork = tm_next_symbol("_Fork");
	*(void **)&real.wait = tm_next_symbol("wait");
	*(void **)&real.waitpid = tm_next_symbol("waitpid");
	*(void **)&real.wait3 = tm_next_symbol("wait3");
	*(void **)&real.wait4 = tm_next_symbol("wait4");
	*(void **)&real.waitid = tm_next_symbol("waitid");
	*(void **)&real.exit = tm_next_symbol("exit");
	*(void **)&real.bare_exit = tm_next_symbol("_exit");
	*(void **)&real.bare_exit_of_c = tm_next_symbol("_Exit");
	*(void **)&real.quick_exit = tm_next_symbol("quick_exit");
	atomic_store_explicit(&real.found, true, memory_order_release);
}

#define FIND_REAL() \
	if (!atomic_load_explicit(&real.found, memory_order_acquire)) find_real()

/* --- leaving --- */

static bool in_vfork_child(void) {
	if (tm_tls.confined_child) return true;
	return !tm_is_sandboxed() && tm_raw_getpid() != (int)tm_guest.pid;
}

void tm_exit_begin_on(struct tm_thread *t) {
	uint32_t before = atomic_load(&exit_begun);

	if (before == tm_guest.process || in_vfork_child()) return;
	if (atomic_compare_exchange_strong(&exit_begun, &before, tm_guest.process))
		tm_emit_control(t, TM_CTL_EXIT_BEGIN, 0, 0, NULL, 0, NULL, 0);
}

void tm_exit_begin_of_python(struct tm_thread *t) {
	tm_python_leaves(t);
	if (tm_python.is_program) tm_exit_begin_on(t);
}

void tm_python_ask(struct tm_thread *t) {
	tm_python_check *check = atomic_load_explicit(&tm_guest.python_finalizing, memory_order_relaxed);
	if (!check) tm_modules_look_at_python(t);
	else if (check()) tm_exit_begin_of_python(t);
}

/* A thread that ends by itself says its name then (hook.c); the one that ends the process never comes there. */
static void say_thread_name(struct tm_thread *t) {
	char name[TM_THREAD_NAME_BYTES];

	if (tm_is_sandboxed() || t->named) return;
	size_t n = tm_thread_name_at_exit(name);
	if (n) tm_emit_control(t, TM_CTL_THREAD_NAME, 0, 0, NULL, 0, name, n);
}

/* Of whom a filter forbids to ask nobody knows whether it is a vfork child, whose parent returns to the hook on its stack. */
static void leave(int status, bool orderly) {
	if (tm_tls.inside && !tm_is_sandboxed() && !in_vfork_child()) tm_hook_leave_behind();

	struct tm_thread *t = tm_hook_enter_to_say();
	uint64_t words[1] = { (uint64_t)(status & EXIT_STATUS_MASK) };

	if (!t) return;
	tm_sandbox_note(t);
	if (orderly && !in_vfork_child() && atomic_exchange(&last_words, tm_guest.process) != tm_guest.process) {
		say_thread_name(t);
		tm_note_bypassed(t);
		tm_torch_note_unseen(t);
		tm_cuda_note_unasked(t);
	}
	tm_exit_begin_on(t);
	if (!in_vfork_child()) tm_emit_control(t, TM_CTL_EXIT, 0, 0, words, 1, NULL, 0);
	tm_hook_leave(t);
}

static _Noreturn void end_process(int status) {
	for (;;) tm_syscall(SYS_exit_group, status, 0, 0, 0, 0, 0);
}

TM_EXPORT_ALIGNED void exit(int status) {
	FIND_REAL();
	leave(status, true);
	real.exit(status);
	end_process(status);
}

TM_EXPORT_ALIGNED void quick_exit(int status) {
	FIND_REAL();
	tm_cuda_flush(); /* not in _exit, which handlers of signals call, in the middle of whatever */
	leave(status, false);
	real.quick_exit(status);
	end_process(status);
}

TM_EXPORT_ALIGNED void _exit(int status) {
	FIND_REAL();
	leave(status, false);
	real.bare_exit(status);
	end_process(status);
}

TM_EXPORT_ALIGNED void _Exit(int status) {
	FIND_REAL();
	leave(status, false);
	real.bare_exit_of_c(status);
	end_process(status);
}

/* --- main --- */

static TM_REALIGN void leave_by_libc(int status, void *unused) {
	(void)unused;
	leave(status, false);
}

/* Handlers run in the order opposite to that in which they were registered, so this one comes before those that the program has until now. */
void tm_exit_expect_last_thread(void) {
	on_exit(leave_by_libc, NULL);
}

void tm_main_begin(void);
void tm_main_end(int status);
/* Where run_main leaves to, and the stack pointer there. */
TM_HIDDEN uintptr_t tm_main_left[2];

TM_ENTRY void tm_main_begin(void) {
	tm_ours_begin();
	on_exit(leave_by_libc, NULL);
	tm_ours_end();
}

TM_ENTRY void tm_main_end(int status) {
	leave(status, true);
}

/* Runs the program's main, as libc would. A main may come back with another stack pointer and other registers than it was called with, as Free Pascal's do,
 * which leave from wherever they are to the address that main was to return to: libc needs nothing but the status then, and gets the stack pointer as it is.
 * The range of this code tells unwind.c where the program's frames end. */
/* clang-format off */
#if defined(__x86_64__)
__asm__(".text\n\t.type run_main, @function\nrun_main:\n\t.cfi_startproc\n\tpush %rdi\n\t.cfi_adjust_cfa_offset 8\n\tpush %rsi\n\t"
	".cfi_adjust_cfa_offset 8\n\tpush %rdx\n\t.cfi_adjust_cfa_offset 8\n\tcall tm_main_begin\n\tpop %rdx\n\t.cfi_adjust_cfa_offset -8\n\tpop %rsi\n\t"
	".cfi_adjust_cfa_offset -8\n\tpop %rdi\n\t.cfi_adjust_cfa_offset -8\n\tmov (%rsp), %rax\n\tmov %rax, tm_main_left(%rip)\n\tlea 8(%rsp), %rax\n\t"
	"mov %rax, tm_main_left+8(%rip)\n\tpush %rax\n\t.cfi_adjust_cfa_offset 8\n\tcall *tm_program_main(%rip)\n\t"
	"lea 16(%rsp), %rcx\n\tcmp tm_main_left+8(%rip), %rcx\n\tcmovne %rsp, %rcx\n\tpush %rcx\n\t.cfi_adjust_cfa_offset 8\n\tpush %rax\n\t"
	".cfi_adjust_cfa_offset 8\n\tmov %eax, %edi\n\tcall tm_main_end\n\tpop %rax\n\t.cfi_adjust_cfa_offset -8\n\tpop %rsp\n\t.cfi_def_cfa_offset 0\n\t"
	"jmp *tm_main_left(%rip)\n\t.cfi_endproc\n\t.size run_main, .-run_main\nrun_main_end:\n");
#else
__asm__(".text\n\t.type run_main, %function\nrun_main:\n\t.cfi_startproc\n\tstp x29, x30, [sp, #-48]!\n\t.cfi_def_cfa_offset 48\n\t"
	".cfi_offset x29, -48\n\t.cfi_offset x30, -40\n\tstp x0, x1, [sp, #16]\n\tstr x2, [sp, #32]\n\tbl tm_main_begin\n\tldp x0, x1, [sp, #16]\n\t"
	"ldr x2, [sp, #32]\n\tldp x29, x30, [sp], #48\n\t.cfi_def_cfa_offset 0\n\t.cfi_restore x29\n\t.cfi_restore x30\n\t"
	"adrp x9, tm_main_left\n\tadd x9, x9, #:lo12:tm_main_left\n\tmov x10, sp\n\tstp x30, x10, [x9]\n\t"
	"str x30, [sp, #-16]!\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset x30, -16\n\tadrp x9, tm_program_main\n\t"
	"ldr x9, [x9, #:lo12:tm_program_main]\n\tblr x9\n\t"
	"adrp x9, tm_main_left\n\tadd x9, x9, #:lo12:tm_main_left\n\tldr x10, [x9, #8]\n\tadd x11, sp, #16\n\tmov x12, sp\n\tcmp x10, x11\n\t"
	"csel x11, x11, x12, eq\n\tstp x0, x11, [sp, #-16]!\n\t.cfi_def_cfa_offset 32\n\tbl tm_main_end\n\tldp x0, x11, [sp]\n\tmov sp, x11\n\t"
	".cfi_def_cfa_offset 0\n\t.cfi_restore x30\n\tadrp x9, tm_main_left\n\tldr x30, [x9, #:lo12:tm_main_left]\n\tret\n\t"
	".cfi_endproc\n\t.size run_main, .-run_main\nrun_main_end:\n");
#endif
/* clang-format on */
program_main_function run_main TM_HIDDEN;
extern const char run_main_end[] TM_HIDDEN;

/* All versions of this symbol take these arguments; the newer ones ignore init and fini where the program has none. */
TM_EXPORT int __libc_start_main(program_main_function *program, int argc, char **argv, void (*init)(void), void (*fini)(void),
				void (*loader_fini)(void), void *stack_end) {
	int (*start)(program_main_function *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

	*(void **)&start = tm_next_symbol("__libc_start_main");
	if (!start) end_process(127);
	tm_program_main = program;
	tm_guest.main_low = (uintptr_t)run_main;
	tm_guest.main_high = (uintptr_t)run_main_end;
	return start(run_main, argc, argv, init, fini, loader_fini, stack_end);
}

/* --- fork --- */

/* Whom clone() made becomes a process of its own at its first event: before it has a child, which would take its parent for its own else. And a hook that was
 * left by a jump is to be forgotten before the handlers of pthread_atfork, which have this one on their stack. */
static void announce_cloned(void) {
	struct tm_thread *t = tm_guest.epoch && (atomic_load(tm_guest.epoch) == 0 || tm_tls.inside) ? tm_hook_enter() : NULL;
	if (t) tm_hook_leave(t);
}

/* Where no page is wiped the child would take itself for its parent: we tell it. Meanwhile, in the handlers of pthread_atfork, it is as if inside of a hook. */
static struct tm_thread *before_fork(void) {
	tm_tls.told_child = 0;
	announce_cloned();
	tm_gate_close();
	return tm_guest.epoch_stays ? tm_hook_enter() : NULL;
}

static void after_fork(struct tm_thread *t, bool in_child) {
	if (!in_child) {
		if (t) tm_hook_leave(t);
		return;
	}
	tm_hook_abandon();
	tm_sample_start_child();
	if (t) atomic_store(tm_guest.epoch, 0);
}

/* The way into the hook makes the child a process of its own (hook.c), which announces itself before it has children: to these and to a vfork child in its
 * memory it would be its parent else. One that clone() makes does so at its first event. */
static pid_t forked(pid_t child, struct tm_thread *before) {
	uint64_t words[1] = { (uint64_t)child };
	struct tm_thread *t;

	after_fork(before, child == 0);
	tm_gate_open(child == 0);
	if (child == 0) tm_inherited_locks_free(true);
	t = child < 0 ? NULL : tm_hook_enter_to_say();
	if (!t) return child;
	if (child && (uint32_t)child != tm_tls.told_child) {
		tm_emit_control(t, TM_CTL_FORK, 0, tm_is_sandboxed() ? TM_EXEC_CONFINED : TM_EXEC_NATIVE, words, 1, NULL, 0);
		tm_tls.told_child = (uint32_t)child;
	}
	tm_hook_leave(t);
	return child;
}

TM_EXPORT_ALIGNED pid_t fork(void) {
	FIND_REAL();
	struct tm_thread *t = before_fork();
	return forked(real.fork(), t);
}

TM_EXPORT_ALIGNED pid_t _Fork(void) {
	FIND_REAL();
	struct tm_thread *t = before_fork();
	return forked(real.bare_fork ? real.bare_fork() : real.fork(), t);
}

/* libc's forks by itself. */
TM_EXPORT_ALIGNED pid_t forkpty(int *terminal, char *name, const struct termios *modes, const struct winsize *size) {
	pid_t (*call)(int *, char *, const struct termios *, const struct winsize *);
	*(void **)&call = tm_next_symbol("forkpty"); /* of a library of its own before glibc 2.34, which may have come late */
	if (!call) {
		errno = ENOSYS;
		return -1;
	}
	struct tm_thread *t = before_fork();
	return forked(call(terminal, name, modes, size), t);
}

/* libc's forks by itself, where nobody sees it, and the parent is gone at once: the recording would end with it. So this is libc's written again. */
static bool is_null_device(int fd) {
	struct stat s;

	return tm_syscall(SYS_fstat, fd, (long)&s, 0, 0, 0, 0) == 0 && S_ISCHR(s.st_mode) && s.st_rdev == makedev(1, 3);
}

static int onto_null_device(void) {
	int fd = (int)tm_syscall(SYS_openat, AT_FDCWD, (long)"/dev/null", O_RDWR, 0, 0, 0);

	if (fd < 0) {
		errno = -fd;
		return -1;
	}
	if (!is_null_device(fd)) {
		tm_raw_close(fd);
		errno = ENODEV;
		return -1;
	}
	for (int i = 0; i < 3; i++)
		if (i != fd) tm_syscall(SYS_dup3, fd, i, 0, 0, 0, 0);
	if (fd > 2) tm_raw_close(fd);
	return 0;
}

TM_EXPORT_ALIGNED int daemon(int keeps_directory, int keeps_files) {
	FIND_REAL();
	struct tm_thread *t = before_fork();
	pid_t child = forked(real.fork(), t);

	if (child > 0) {
		leave(0, false);
		real.bare_exit(0);
	}
	if (child < 0 || tm_syscall_answer(tm_syscall(SYS_setsid, 0, 0, 0, 0, 0, 0)) == -1) return -1;
	if (!keeps_directory) tm_syscall(SYS_chdir, (long)"/", 0, 0, 0, 0, 0); /* libc does not ask what became of it either */
	return keeps_files ? 0 : onto_null_device();
}

/* --- wait --- */

static _Atomic uint32_t tracer; /* its pid: a fork's child traces nobody */

/* An untraced child stops for signals of its terminal only, and is waited for with WUNTRACED only. */
static bool is_stop_of_traced(int status, bool asks_for_stops) {
	int signal = WSTOPSIG(status);

	if (!WIFSTOPPED(status)) return false;
	return !asks_for_stops || status >> 16 || !(signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU);
}

/* What a wait told of a child; status as wait(2) gives it. One that only stopped or goes on has not ended. Who traces (strace, gdb) is told of threads, and of
 * others' processes, as of children. */
static void told(pid_t child, int status, bool asks_for_stops) {
	uint64_t words[2] = { (uint64_t)child, (uint64_t)(unsigned)status };
	struct tm_thread *t;

	if (child <= 0) return;
	if (is_stop_of_traced(status, asks_for_stops)) atomic_store(&tracer, tm_guest.pid);
	if (!WIFEXITED(status) && !WIFSIGNALED(status)) return;
	tm_sandbox_reaped((uint32_t)child);
	t = tm_hook_enter_to_say();
	if (!t) return;
	tm_emit_control(t, TM_CTL_WAIT, 0, atomic_load(&tracer) == tm_guest.pid, words, 2, NULL, 0);
	tm_hook_leave(t);
}

TM_EXPORT_ALIGNED pid_t wait(int *status) {
	int own = 0, *to = status ? status : &own;
	pid_t child;

	FIND_REAL();
	child = real.wait(to);
	if (child > 0) told(child, *to, false);
	return child;
}

TM_EXPORT_ALIGNED pid_t waitpid(pid_t pid, int *status, int options) {
	int own = 0, *to = status ? status : &own;
	pid_t child;

	FIND_REAL();
	child = real.waitpid(pid, to, options);
	if (child > 0) told(child, *to, options & WUNTRACED);
	return child;
}

TM_EXPORT_ALIGNED pid_t wait3(int *status, int options, struct rusage *usage) {
	int own = 0, *to = status ? status : &own;
	pid_t child;

	FIND_REAL();
	child = real.wait3(to, options, usage);
	if (child > 0) told(child, *to, options & WUNTRACED);
	return child;
}

TM_EXPORT_ALIGNED pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage) {
	int own = 0, *to = status ? status : &own;
	pid_t child;

	FIND_REAL();
	child = real.wait4(pid, to, options, usage);
	if (child > 0) told(child, *to, options & WUNTRACED);
	return child;
}

/* The wait(2) status of what waitid reports, as far as it counts here. */
static int status_of(const siginfo_t *info) {
	switch (info->si_code) {
	case CLD_EXITED: return (info->si_status & EXIT_STATUS_MASK) << 8;
	case CLD_KILLED: return info->si_status & 0x7f;
	case CLD_DUMPED: return (info->si_status & 0x7f) | 0x80;
	case CLD_TRAPPED: return W_STOPCODE(SIGTRAP);
	default: return W_STOPCODE(SIGSTOP);
	}
}

TM_EXPORT_ALIGNED int waitid(idtype_t type, id_t id, siginfo_t *info, int options) {
	siginfo_t own, *to = info ? info : &own;
	int result;

	FIND_REAL();
	own.si_pid = 0;
	result = real.waitid(type, id, to, options);
	if (result == 0 && !(options & WNOWAIT)) told(to->si_pid, status_of(to), true);
	return result;
}
