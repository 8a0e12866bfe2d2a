/* scope_pairs.c - what a C scope costs the program that opens and closes it.
 *
 *     scope_pairs push|block|range [PAUSE_US]     prints the nanoseconds of one scope: `cpu_ns=... wall_ns=...`
 *
 * Method: 200 bursts of 5,000 scopes; between them the program sleeps (2,000 us unless told), so that the collector has read all of them. PAUSE_US 0 measures
 *         a program that does nothing but scopes: it goes as fast as the collector reads then. Shown is the median burst.
 */
#include "../../recorder/tidemark.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BURSTS 200
#define SCOPES 5000

static double now_ns(clockid_t clock) {
	struct timespec t;
	clock_gettime(clock, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

__attribute__((noinline)) static void block(void) {
	TIDEMARK_SCOPE("a scope");
	__asm__ volatile("" ::: "memory");
}

static void scope(char kind) {
	if (kind == 'b') {
		block();
	} else if (kind == 'r') {
		tidemark_range_end(tidemark_range_begin("a scope"));
	} else {
		tidemark_scope_push("a scope");
		tidemark_scope_pop();
	}
}

static int compare(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv) {
	static double cpu[BURSTS], wall[BURSTS];
	char kind = argc > 1 ? argv[1][0] : 'p';
	useconds_t pause_us = argc > 2 ? (useconds_t)atoi(argv[2]) : 2000;
	for (int i = 0; i < BURSTS; i++) {
		double cpu_before = now_ns(CLOCK_THREAD_CPUTIME_ID), before = now_ns(CLOCK_MONOTONIC);
		for (int k = 0; k < SCOPES; k++) scope(kind);
		wall[i] = (now_ns(CLOCK_MONOTONIC) - before) / SCOPES;
		cpu[i] = (now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_before) / SCOPES;
		if (pause_us) usleep(pause_us);
	}
	qsort(cpu, BURSTS, sizeof cpu[0], compare);
	qsort(wall, BURSTS, sizeof wall[0], compare);
	printf("cpu_ns=%.2f wall_ns=%.2f\n", cpu[BURSTS / 2], wall[BURSTS / 2]);
	return 0;
}
