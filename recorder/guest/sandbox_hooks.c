/* sandbox_hooks.c - prctl() and syscall(): programs that forbid themselves system calls (seccomp).
 *
 * Flow:     the program's prctl, or its syscall(SYS_seccomp), as libseccomp does -> here -> tm_guest.sandboxed, read wherever the guest would make a
 *           system call
 * Idea:     behind a filter, a call that the program did not foresee may be answered by killing it. From the moment that a filter is asked for
 *           we make none: the collector is not woken (it looks by itself), a full ring is waited for by looking, stacks on memory that is
 *           no thread's own stack end where the kernel would have to be asked about it, threads that have no ring yet are not recorded but counted.
 * Refused:  what the kernel did not do changes nothing: many ask only whether it could. So the note is written behind the call; by the
 *           thread that made it or, where that has no ring, by whoever ends the process. No fork falls between a call and its answer
 *           (fork_gate.h): the child could not know it.
 * vfork:    what a vfork child does to itself ends with it, while its memory is its parent's. Its pid stands in the thread's own variables
 *           until then: the kernel clears that word at its exec or its end, as it does for whoever joins a thread (set_tid_address).
 * No clock: strict mode, and prctl(PR_SET_TSC), also take the time stamp counter away, and with it every stamp: the recording of the process ends.
 * Syscall:  libc's function for every call that has none of its own is written again in assembly, since what it may be asked for (vfork) bears no frame.
 * Death:    a signal for the parent's death is told to the collector, too (heritage.h of the collector).
 * Limits:   a filter that is installed by an instruction of the program's own is not seen.
 */
#include "../../schema/kinds.h"
#include "attach.h"
#include "call_filter.h"
#include "fork_gate.h"
#include "raw.h"
#include "sample.h"
#include "sandbox.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static const char sandboxed_text[] =
	"the program restricted its system calls (seccomp): from here on stacks that lie on no thread's own stack may be cut, and new threads and "
	"children that it forks are not recorded";

static const char clockless_text[] = "the program gave up the time stamp counter (prctl): nothing after this was recorded in this process";

/* The process number that the note is due for, and was written for. */
static _Atomic uint32_t note_due, noted;
static _Atomic bool kills_for_us; /* a filter of the process's: what it executes would die of our calls */

void tm_sandbox_note(struct tm_thread *t) {
	uint32_t own = tm_guest.process;
	if (atomic_load(&note_due) == own && atomic_exchange(&noted, own) != own) tm_emit_note(t, "sandbox", sandboxed_text);
}

uint32_t tm_sandbox_pid(void) {
	uint32_t child = atomic_load(&tm_tls.confined_child) & ~TM_CHILD_FLAGS;
	if (child) return child;
	return tm_is_sandboxed() ? tm_guest.pid : (uint32_t)tm_raw_getpid();
}

bool tm_sandbox_kills_for_us(void) {
	return atomic_load(&kills_for_us) || atomic_load(&tm_tls.confined_child) & TM_NO_PRELOAD;
}

/* One who is in so many groups that the line lies further behind does as if there were a filter. */
static bool has_no_filter(void) {
	char status[2048];
	size_t n = tm_raw_read_whole("/proc/thread-self/status", status, sizeof status - 1);
	status[n] = 0;
	return strstr(status, "\nSeccomp:\t0\n") != NULL;
}

bool tm_sandbox_is_free(bool asks) {
	static _Atomic enum { UNKNOWN, FREE, FILTERED } before; /* a fork's child inherits both the filter and this */
	if (asks && atomic_load(&before) == UNKNOWN) atomic_store(&before, has_no_filter() ? FREE : FILTERED);
	return atomic_load(&before) == FREE;
}

/* Where the kernel has not cleared the word. */
void tm_sandbox_reaped(uint32_t child) {
	if ((atomic_load(&tm_tls.confined_child) & ~TM_CHILD_FLAGS) == child) atomic_store(&tm_tls.confined_child, 0);
}

/* Asked for before there is a filter, and by who knows by then whether it is a fork's child: that has a pid of its own, too. */
static bool in_vfork_child(void) {
	uint32_t epoch = tm_guest.epoch ? atomic_load(tm_guest.epoch) : 0;
	if (!epoch || epoch >= TM_EPOCH_NEVER || tm_is_sandboxed()) return false;
	return tm_raw_getpid() != (int)tm_guest.pid;
}

static void set_confined_child(uint32_t value) {
	atomic_store(&tm_tls.confined_child, value);
	tm_syscall(SYS_set_tid_address, value ? (long)&tm_tls.confined_child : 0, 0, 0, 0, 0, 0);
}

/* What was asked for, for whom. */
struct request {
	bool confines_child; /* the vfork child's first */
	bool counts;         /* the process's */
	bool passed_gate;
};

/* A filter is asked for: the thread gets its ring, and samples their table, while they still can, and from here on no call is made. */
static struct request enter_sandbox(void) {
	struct request r = { false, false, false };
	struct tm_thread *t;
	if (tm_tls.confined_child) return r;
	t = tm_hook_enter_to_say();
	if (t && t->samples) tm_sample_prepare();
	if (in_vfork_child()) {
		r.confines_child = true;
		set_confined_child((uint32_t)tm_raw_getpid());
	} else {
		r.counts = true;
		r.passed_gate = tm_gate_enter();
		atomic_fetch_add(&tm_guest.sandboxed, 1);
	}
	if (t) tm_hook_leave(t);
	return r;
}

/* What became of it. */
static void entered_sandbox(struct request r, bool is_filtered, const struct sock_fprog *filter) {
	struct tm_thread *t;
	if (is_filtered && tm_filter_kills_for_us(filter)) {
		if (tm_tls.confined_child) atomic_fetch_or(&tm_tls.confined_child, TM_NO_PRELOAD);
		else atomic_store(&kills_for_us, true);
	}
	if (r.confines_child && !is_filtered) set_confined_child(0);
	if (!r.counts) return;
	if (!is_filtered) atomic_fetch_sub(&tm_guest.sandboxed, 1);
	if (r.passed_gate) tm_gate_leave();
	if (!is_filtered) return;
	t = tm_hook_enter_to_say();
	atomic_store(&note_due, tm_guest.process);
	if (!t) return;
	tm_sandbox_note(t);
	tm_hook_leave(t);
}

/* Strict mode: refused where a filter is already, of ours to know or from before. */
static bool may_be_strict(void) {
	return !tm_is_sandboxed() && tm_syscall(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0, 0) == SECCOMP_MODE_DISABLED;
}

static void lose_clock(void) {
	struct tm_thread *t = tm_hook_enter_to_say();
	bool is_process = !tm_tls.confined_child && !in_vfork_child();
	if (tm_tls.confined_child) atomic_fetch_or(&tm_tls.confined_child, TM_NO_CLOCK);
	else if (!is_process) set_confined_child((uint32_t)tm_raw_getpid() | TM_NO_CLOCK);
	if (!is_process && t) t->epoch = TM_EPOCH_NEVER;
	if (!t) return;
	if (is_process) tm_emit_note(t, TM_NOTE_NO_CLOCK, clockless_text);
	tm_hook_leave(t);
	if (is_process) tm_go_quiet();
}

TM_HIDDEN __attribute__((used)) long tm_syscall_answer(long result) {
	if (result >= 0 || result < -4095) return result;
	errno = (int)-result;
	return -1;
}

/* Of the command: its parent is the collector, which does what the kernel would do for the parent of both. */
static void tell_death_signal(uint32_t number) {
	struct tm_shm *shm = tm_guest.shm;
	if (shm && tm_sandbox_pid() == shm->root_pid) atomic_store(&shm->death_signal, number);
}

static long control(int option, const unsigned long arguments[4]) {
	bool filter = option == PR_SET_SECCOMP && arguments[0] == SECCOMP_MODE_FILTER;
	bool strict = option == PR_SET_SECCOMP && arguments[0] == SECCOMP_MODE_STRICT && may_be_strict();
	if (strict || (option == PR_SET_TSC && arguments[0] == PR_TSC_SIGSEGV)) lose_clock(); /* before the call: afterwards it is too late for a record */
	struct request request = filter ? enter_sandbox() : (struct request){ false, false, false };
	long result = tm_syscall(SYS_prctl, option, (long)arguments[0], (long)arguments[1], (long)arguments[2], (long)arguments[3], 0);
	if (filter) entered_sandbox(request, result == 0, (const struct sock_fprog *)arguments[1]);
	if (option == PR_SET_PDEATHSIG && result == 0) tell_death_signal((uint32_t)arguments[0]);
	return tm_syscall_answer(result);
}

TM_EXPORT_ALIGNED int prctl(int option, ...) {
	unsigned long arguments[4];
	va_list list;
	va_start(list, option);
	for (int i = 0; i < 4; i++) arguments[i] = va_arg(list, unsigned long);
	va_end(list);
	return (int)control(option, arguments);
}

long tm_called_prctl(long number, unsigned long option, unsigned long a, unsigned long b, unsigned long c, unsigned long d);

TM_ENTRY long tm_called_prctl(long number, unsigned long option, unsigned long a, unsigned long b, unsigned long c, unsigned long d) {
	(void)number;
	return control((int)option, (const unsigned long[4]){ a, b, c, d });
}

long tm_called_seccomp(long number, unsigned long operation, unsigned long flags, const void *what);

/* With no filter it is asked what the kernel can do. */
TM_ENTRY long tm_called_seccomp(long number, unsigned long operation, unsigned long flags, const void *what) {
	bool filter = operation == SECCOMP_SET_MODE_FILTER && what;
	if (operation == SECCOMP_SET_MODE_STRICT && !flags && !what && may_be_strict()) lose_clock();
	struct request request = filter ? enter_sandbox() : (struct request){ false, false, false };
	long result = tm_syscall(number, (long)operation, (long)flags, (long)what, 0, 0, 0);
	/* Beside 0, the thread that could not be put behind it (TSYNC), or a descriptor of the new filter's listener, which is there. */
	if (filter) entered_sandbox(request, flags & SECCOMP_FILTER_FLAG_NEW_LISTENER ? result >= 0 : result == 0, what);
	return tm_syscall_answer(result);
}

#define TEXT_OF(n) #n
#define TEXT(n) TEXT_OF(n)

/* syscall() of libc, but for seccomp, prctl, execs (exec_hooks.c) and mappings (map_hooks.c). */
/* clang-format off */
#if defined(__x86_64__)
__asm__(".text\n\t.globl syscall\n\t.type syscall, @function\nsyscall:\n\t.cfi_startproc\n\tcmp $" TEXT(__NR_seccomp) ", %rdi\n\tje tm_called_seccomp\n\t"
	"cmp $" TEXT(__NR_prctl) ", %rdi\n\tje tm_called_prctl\n\t"
	"cmp $" TEXT(__NR_execve) ", %rdi\n\tje tm_called_execve\n\tcmp $" TEXT(__NR_execveat) ", %rdi\n\tje tm_called_execveat\n\t"
	"cmp $" TEXT(__NR_mmap) ", %rdi\n\tje tm_called_mmap\n\tcmp $" TEXT(__NR_munmap) ", %rdi\n\tje tm_called_munmap\n\t"
	"cmp $" TEXT(__NR_mremap) ", %rdi\n\tje tm_called_mremap\n\t"
	"mov %rdi, %rax\n\tmov %rsi, %rdi\n\tmov %rdx, %rsi\n\tmov %rcx, %rdx\n\tmov %r8, %r10\n\tmov %r9, %r8\n\tmov 8(%rsp), %r9\n\tsyscall\n\t"
	"cmp $-4095, %rax\n\tjae 1f\n\tret\n1:\tmov %rax, %rdi\n\tjmp tm_syscall_answer\n\t.cfi_endproc\n\t.size syscall, .-syscall\n");
#else
__asm__(".text\n\t.globl syscall\n\t.type syscall, %function\nsyscall:\n\t.cfi_startproc\n\tcmp x0, #" TEXT(__NR_seccomp) "\n\tb.eq tm_called_seccomp\n\t"
	"cmp x0, #" TEXT(__NR_prctl) "\n\tb.eq tm_called_prctl\n\t"
	"cmp x0, #" TEXT(__NR_execve) "\n\tb.eq tm_called_execve\n\tcmp x0, #" TEXT(__NR_execveat) "\n\tb.eq tm_called_execveat\n\t"
	"cmp x0, #" TEXT(__NR_mmap) "\n\tb.eq tm_called_mmap\n\tcmp x0, #" TEXT(__NR_munmap) "\n\tb.eq tm_called_munmap\n\t"
	"cmp x0, #" TEXT(__NR_mremap) "\n\tb.eq tm_called_mremap\n\t"
	"mov x8, x0\n\tmov x0, x1\n\tmov x1, x2\n\tmov x2, x3\n\tmov x3, x4\n\tmov x4, x5\n\tmov x5, x6\n\tsvc 0\n\t"
	"cmn x0, #4095\n\tb.cs tm_syscall_answer\n\tret\n\t.cfi_endproc\n\t.size syscall, .-syscall\n");
#endif
/* clang-format on */
