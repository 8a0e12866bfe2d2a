/* stamp_bench.c - does a time stamp wait for what is on its way from memory?
 *
 * Idea:     loads from random places of 64 MiB, which do not depend on each other, overlap; behind each of them is nothing, a stamp (rdtsc), or a fence that
 *           waits for all loads (lfence). Where the stamp costs what the fence does, it is one, and a recorded event costs a program whose memory is not
 *           in the cache more than it costs a loop. Stores are shown beside, which neither waits for.
 * Prints:   nanoseconds of processor time for one round of each, the median of five.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>

#define WORDS ((size_t)(64u << 20) / sizeof(uint64_t))
#define ROUNDS 2000000u
#define RUNS 5u

static uint64_t *words, state = 88172645463325252u;
static volatile uint64_t sink;

static inline size_t anywhere(void) {
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % WORDS;
}

static double now_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* X(name, one round) */
#define CASES(X) \
	X("load", sink = words[anywhere()]) \
	X("load, rdtsc", (sink = words[anywhere()], sink = __rdtsc())) \
	X("load, lfence", (sink = words[anywhere()], _mm_lfence())) \
	X("store", words[anywhere()] = 1) \
	X("store, rdtsc", (words[anywhere()] = 1, sink = __rdtsc())) \
	X("rdtsc", sink = __rdtsc())

static int compare(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(void) {
	double took[RUNS];
	words = calloc(WORDS, sizeof *words);
	if (!words) return 1;
	for (size_t i = 0; i < WORDS; i++) words[i] = i;
#define X(name, round) \
	for (unsigned run = 0; run < RUNS; run++) { \
		double start_ns = now_ns(); \
		for (unsigned i = 0; i < ROUNDS; i++) round; \
		took[run] = (now_ns() - start_ns) / ROUNDS; \
	} \
	qsort(took, RUNS, sizeof *took, compare); \
	printf("%-13s %6.1f ns\n", name, took[RUNS / 2]);
	CASES(X)
#undef X
	free(words);
	return 0;
}

#else

int main(void) {
	puts("skipped: rdtsc is x86-64's");
	return 0;
}

#endif
