/* own_thread.c - starts threads that no signal reaches: see own_thread.h. */
#include "own_thread.h"

#include <signal.h>

bool tm_own_thread_start(pthread_t *thread, void *(*run)(void *), void *argument) {
	sigset_t every, old;
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &old);
	bool runs = pthread_create(thread, NULL, run, argument) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return runs;
}
