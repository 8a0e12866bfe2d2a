/* own_stack.c - a stack that is mapped, where the limit's is too small: see own_stack.h.
 *
 * The limit itself stays as it is: the command inherits it, and of a hard one no more may be had.
 */
#define _GNU_SOURCE
#include "own_stack.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>

#define STACK_BYTES ((size_t)1 << 20)

static struct {
	int (*run)(int argc, char **argv);
	int argc, result;
	char **argv;
} what;

static void run_it(void) {
	what.result = what.run(what.argc, what.argv);
}

static bool is_too_small(void) {
	struct rlimit limit;
	return getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < STACK_BYTES;
}

/* libc gives threads as much as the limit says. */
static void enlarge_threads(void) {
	pthread_attr_t attributes;
	if (pthread_getattr_default_np(&attributes)) return;
	if (!pthread_attr_setstacksize(&attributes, STACK_BYTES)) pthread_setattr_default_np(&attributes);
	pthread_attr_destroy(&attributes);
}

int tm_own_stack_run(int (*run)(int argc, char **argv), int argc, char **argv) {
	static ucontext_t here, there;
	if (!is_too_small()) return run(argc, argv);
	enlarge_threads();
	void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (stack == MAP_FAILED || getcontext(&there) != 0) return run(argc, argv);
	what.run = run;
	what.argc = argc;
	what.argv = argv;
	there.uc_stack.ss_sp = stack;
	there.uc_stack.ss_size = STACK_BYTES;
	there.uc_link = &here;
	makecontext(&there, run_it, 0);
	if (swapcontext(&here, &there) != 0) return run(argc, argv);
	return what.result;
}
