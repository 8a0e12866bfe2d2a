/* clock.c - the stamps.
 *
 * Flow:  hooks -> hot.h, emit.c -> here
 * Ticks are the processor's time stamp counter where the collector found it invariant (shm->clock), else CLOCK_MONOTONIC nanoseconds;
 * the collector turns them into nanoseconds.
 *
 * The stamp is a plain rdtsc, inlined into the hooks (hot.h). Before a free that is in order: the free's stores become visible only after the rdtsc
 * has retired. After an allocation the processor may read the counter while malloc's last loads are still under way, some hundred
 * instructions early at most. Then, rarely, a block seems to begin before another thread's free that made room for it has been stamped. rdtscp
 * would wait, for half as much again as the whole stamp costs; instead the reader lets allocations and frees of one address alternate,
 * which it must do anyway where clocks of two cores disagree.
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
