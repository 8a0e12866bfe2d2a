/* handover_bench.c - what does it cost a producer that its lines were read by another processor?
 *
 * Idea:     one thread writes 56 bytes a turn, as a malloc and its free do, into a ring of 4 MiB, and works some in between; another one, on another
 *           processor, reads what was written a quarter at a time, and then either leaves the lines where they are, in its caches, or puts them away
 *           (clflushopt), as the collector does (recorder/collector/session.c). Where two processors lie on different chips, a write to a line that the
 *           other one holds takes several times as long as one to a line that only memory holds. Virtual processors change their places from one moment
 *           to the next, so each run is told with the distance that a word took there and back in front of it and behind it.
 * Prints:   the distance, and nanoseconds of the producer's processor time for one turn: the work alone, the lines left, the lines put away. Several
 *           times over.
 */
#include <stdio.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define LINE_BYTES 64u
#define RING_BYTES (4u << 20)
#define BATCH_BYTES (RING_BYTES / 4)
#define BLOCK_BYTES 16384u
#define TURN_BYTES 56u
#define TURNS 1500000u
#define RETURNS 20000
#define WORK_WORDS (1u << 14)
#define RUNS 6

enum kind { WORK_ALONE, LEFT, PUT_AWAY };

static uint8_t *ring;
static _Alignas(256) _Atomic uint64_t head;
static _Alignas(256) _Atomic uint64_t tail;
static _Alignas(256) _Atomic int over;
static _Alignas(256) _Atomic int ball;
static int processors[2];
static enum kind kind;

static void pin(int processor) {
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(processor, &set);
	if (sched_setaffinity(0, sizeof set, &set) != 0) perror("handover_bench: cannot stay on one processor");
}

static uint64_t ns_of(clockid_t clock) {
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void nap(void) {
	nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

static void *start(void *(*function)(void *), pthread_t *thread) {
	if (pthread_create(thread, NULL, function, NULL) == 0) return thread;
	fputs("handover_bench: cannot start a thread\n", stderr);
	exit(1);
}

/* --- how far: a word that two processors write in turns --- */

static void *give_back(void *unused) {
	pin(processors[1]);
	for (int i = 0; i < RETURNS; i++) {
		while (atomic_load(&ball) != 2 * i + 1) {}
		atomic_store(&ball, 2 * i + 2);
	}
	return unused;
}

static double distance_ns(void) {
	pthread_t other;
	atomic_store(&ball, 0);
	start(give_back, &other);
	uint64_t since_ns = 0;
	for (int i = 0; i < RETURNS; i++) {
		atomic_store(&ball, 2 * i + 1);
		while (atomic_load(&ball) != 2 * i + 2) {}
		if (i == 0) since_ns = ns_of(CLOCK_MONOTONIC);
	}
	uint64_t took_ns = ns_of(CLOCK_MONOTONIC) - since_ns;
	pthread_join(other, NULL);
	return (double)took_ns / (RETURNS - 1);
}

/* --- the ring --- */

static __attribute__((target("clflushopt"))) void put_away(const uint8_t *line, size_t bytes) {
	for (size_t i = 0; i < bytes; i += LINE_BYTES) __builtin_ia32_clflushopt(line + i);
}

static void *consume(void *unused) {
	static uint8_t block[BLOCK_BYTES];
	uint64_t at = 0;
	pin(processors[1]);
	while (!atomic_load(&over)) {
		uint64_t end = atomic_load_explicit(&head, memory_order_acquire) & ~(uint64_t)(BLOCK_BYTES - 1);
		if (end - at < BATCH_BYTES) {
			nap();
			continue;
		}
		for (; at < end; at += BLOCK_BYTES) {
			const uint8_t *from = ring + at % RING_BYTES;
			memcpy(block, from, BLOCK_BYTES);
			__asm__ volatile("" : : "m"(block));
			if (kind == PUT_AWAY) put_away(from, BLOCK_BYTES);
			atomic_store_explicit(&tail, at + BLOCK_BYTES, memory_order_release);
		}
	}
	return unused;
}

static void wait_for_room(uint64_t at) {
	while (at + TURN_BYTES - atomic_load_explicit(&tail, memory_order_acquire) > RING_BYTES) nap();
}

static uint64_t work(uint64_t x) {
	static uint64_t words[WORK_WORDS];
	for (unsigned i = 0; i < 40; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		words[x % WORK_WORDS] += i;
	}
	return x;
}

static double turn_ns(enum kind which) {
	pthread_t consumer;
	uint64_t at = 0, until = 0, x = 88172645463325252u;
	kind = which;
	atomic_store(&head, 0);
	atomic_store(&tail, 0);
	atomic_store(&over, 0);
	if (kind != WORK_ALONE) start(consume, &consumer);
	uint64_t since_ns = ns_of(CLOCK_THREAD_CPUTIME_ID);
	for (unsigned turn = 0; turn < TURNS; turn++) {
		x = work(x);
		if (kind == WORK_ALONE) continue;
		if (at + TURN_BYTES > until) {
			wait_for_room(at);
			until = at + TURN_BYTES + BATCH_BYTES / 2;
			uint64_t room_ends = atomic_load(&tail) + RING_BYTES;
			if (until > room_ends) until = room_ends;
		}
		for (unsigned i = 0; i < TURN_BYTES; i += 8) *(volatile uint64_t *)(ring + (at + i) % RING_BYTES) = x;
		at += TURN_BYTES;
		atomic_store_explicit(&head, at, memory_order_release);
	}
	uint64_t took_ns = ns_of(CLOCK_THREAD_CPUTIME_ID) - since_ns;
	atomic_store(&over, 1);
	if (kind != WORK_ALONE) pthread_join(consumer, NULL);
	return (double)took_ns / TURNS;
}

static int two_processors(void) {
	cpu_set_t set;
	int found = 0;
	if (sched_getaffinity(0, sizeof set, &set) != 0) return 0;
	for (int i = 0; i < CPU_SETSIZE && found < 2; i++)
		if (CPU_ISSET(i, &set)) processors[found++] = i;
	return found == 2;
}

int main(void) {
	unsigned a, b, c, d;
	bool has_it = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_CLFLUSHOPT);
	if (!has_it || !two_processors()) {
		puts(has_it ? "skipped: one processor" : "skipped: no clflushopt");
		return 0;
	}
	ring = mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (ring == MAP_FAILED) {
		perror("handover_bench: no memory for the ring");
		return 1;
	}
	memset(ring, 1, RING_BYTES);
	pin(processors[0]);
	for (int run = 0; run < RUNS; run++) {
		double before_ns = distance_ns(), alone_ns = turn_ns(WORK_ALONE), left_ns = turn_ns(LEFT), away_ns = turn_ns(PUT_AWAY);
		printf("there and back %4.0f to %4.0f ns: the work %5.1f ns, with a ring whose lines are left %5.1f ns, put away %5.1f ns\n", before_ns,
		       distance_ns(), alone_ns, left_ns, away_ns);
	}
	return 0;
}

#else

int main(void) {
	puts("skipped: clflushopt is x86-64's");
	return 0;
}

#endif
