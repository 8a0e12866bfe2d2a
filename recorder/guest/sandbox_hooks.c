/* sandbox_hooks.c - programs that forbid themselves system calls (seccomp).
 *
 * Flow:     the program's prctl -> here -> tm_guest.sandboxed, read wherever the guest would make a system call
 * Idea:     behind a filter, a call that the program did not foresee may be answered by killing it. From the moment that a filter is asked for
 *           we make none: the collector is not woken (it looks by itself), a full ring is waited for by looking, stacks on memory that is
 *           no thread's own stack end where the kernel would have to be asked about it, threads that have no ring yet are not recorded but counted.
 * No clock: strict mode, and prctl(PR_SET_TSC), also take the time stamp counter away, and with it every stamp: the recording of the process ends.
 * Limits:   a filter installed by a bare seccomp(2), which has no function in libc, is not seen.
 */
#include "attach.h"
#include "guest.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static const char sandboxed_text[] =
	"the program restricted its system calls (seccomp): from here on stacks that lie on no thread's own stack may be cut, and new threads are not recorded";

static const char clockless_text[] = "the program gave up the time stamp counter (prctl): nothing after this was recorded in this process";

static void enter_sandbox(void) {
	struct tm_thread *t = tm_hook_enter();
	if (!t) return;
	if (!atomic_exchange(&tm_guest.sandboxed, 1)) tm_emit_note(t, "sandbox", sandboxed_text);
	tm_hook_leave(t);
}

static void lose_clock(void) {
	struct tm_thread *t = tm_hook_enter();
	if (!t) return;
	tm_emit_note(t, "sandbox", clockless_text);
	tm_hook_leave(t);
	tm_go_quiet();
}

TM_EXPORT int prctl(int option, ...) {
	unsigned long arguments[4];
	va_list list;
	va_start(list, option);
	for (int i = 0; i < 4; i++) arguments[i] = va_arg(list, unsigned long);
	va_end(list);
	bool no_clock = option == PR_SET_SECCOMP ? arguments[0] == SECCOMP_MODE_STRICT : option == PR_SET_TSC && arguments[0] == PR_TSC_SIGSEGV;
	if (no_clock) lose_clock(); /* before the call: afterwards it is too late for a record */
	else if (option == PR_SET_SECCOMP) enter_sandbox();
	long result = tm_syscall(SYS_prctl, option, (long)arguments[0], (long)arguments[1], (long)arguments[2], (long)arguments[3], 0);
	if (result >= 0) return (int)result;
	errno = (int)-result;
	return -1;
}
