/* own_thread.c - starts threads that no signal reaches: see own_thread.h. */
#include "own_thread.h"

#include <signal.h>

#define STACK_BYTES ((size_t)1 << 20) /* of a limited address space (ulimit -v) libc's 8 MiB would be missing elsewhere */

bool tm_own_thread_start(pthread_t *thread, void *(*run)(void *), void *argument) {
	pthread_attr_t attributes;
	sigset_t every, old;
	if (pthread_attr_init(&attributes) != 0) return false;
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &old);
	bool runs = pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0 && pthread_create(thread, &attributes, run, argument) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attributes);
	return runs;
}
