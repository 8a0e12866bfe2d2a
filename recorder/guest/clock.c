/* clock.c - the stamps.
 *
 * Flow:  hooks -> hot.h, emit.c -> here
 * Ticks are the processor's time stamp counter where the collector found it invariant (shm->clock), else CLOCK_MONOTONIC nanoseconds;
 * the collector turns them into nanoseconds.
 *
 * The stamp is a plain rdtsc, inlined into the hooks (hot.h). Before a free that is in order: the free's stores become visible only after the rdtsc
 * has retired. But a processor may read the counter while loads in front of it are still under way, some hundred instructions early, which is microseconds
 * where one of these loads waits for a word that other threads write, too (17 of them were seen). So a block may seem to begin before another
 * thread's free made room for it, and to be freed before the thread that handed it over had it. A fence would make every stamp wait for the
 * program's loads, at up to ten times the cost (tests/bench/stamp_bench.c); instead the reader lets allocations and frees of one address alternate
 * (pairing.h of schema/).
 */
#include "hot.h"

#include <time.h>

uint64_t tm_ticks_of_kernel(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now); /* the vdso: no system call, and errno stays as it is */
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t tm_ticks(void) {
	return tm_now();
}
