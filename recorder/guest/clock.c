/* clock.c - the stamps.
 *
 * Flow:  hooks -> here -> emit.c
 * Ticks are the processor's time stamp counter where the collector found it invariant (shm->clock), else CLOCK_MONOTONIC nanoseconds;
 * the collector turns them into nanoseconds.
 *
 * A stamp taken after an allocation must not run ahead of it, else a block would seem to exist before the free that made room for it. rdtscp
 * waits until everything before it has executed; a plain rdtsc may be executed early. A stamp before a free needs nothing: the free's
 * stores become visible only after the rdtsc has retired.
 */
#include "guest.h"

#include <time.h>

static uint64_t monotonic_ns(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now); /* the vdso: no system call, and errno stays as it is */
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#if defined(__x86_64__)
#include <x86intrin.h>

uint64_t tm_ticks(void) {
	if (TM_LIKELY(tm_guest.clock == TM_CLOCK_TSC)) return __rdtsc();
	return monotonic_ns();
}

uint64_t tm_ticks_after(void) {
	unsigned processor;
	if (TM_LIKELY(tm_guest.clock == TM_CLOCK_TSC)) return __rdtscp(&processor);
	return monotonic_ns();
}
#else
uint64_t tm_ticks(void) {
	return monotonic_ns();
}

uint64_t tm_ticks_after(void) {
	return monotonic_ns();
}
#endif
