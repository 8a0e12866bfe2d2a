/* memory.c - how much private memory a process with many threads has: what does a recorder in it take?
 *
 * memory [THREADS]    default 1. Each thread allocates and frees from stacks of 1 to 200 frames.
 *
 * Prints "private_kib=N shared_kib=N", while all threads are still there. Private are pages of private mappings that were written (smaps: Private_Dirty). All
 * else is shared: a clean page of a file is in the page cache, and a recorder's rings are mapped by its collector as well; so that it does not
 * hang on who has looked at them last, pages of mappings that are shared count as shared always.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 200
#define DEPTH_MAX 200
#define BLOCKS 32

static pthread_barrier_t barrier;

__attribute__((noinline)) static void churn(void) {
	void *blocks[BLOCKS];

	for (unsigned i = 0; i < BLOCKS; i++) blocks[i] = malloc(16 + 24 * i);
	for (unsigned i = 0; i < BLOCKS; i++) free(blocks[i]);
}

__attribute__((noinline)) static void descend(unsigned levels) {
	if (levels) descend(levels - 1);
	else churn();
	__asm__ volatile("" ::: "memory");
}

static void *work(void *nothing) {
	for (unsigned i = 0; i < ROUNDS; i++) descend(1 + i * 7 % DEPTH_MAX);
	pthread_barrier_wait(&barrier); /* all have allocated */
	pthread_barrier_wait(&barrier); /* it was counted */
	return nothing;
}

static int count(void) {
	unsigned long low, high, kib, private_kib = 0, shared_kib = 0;
	int is_shared = 0;
	char line[4096], permissions[8];
	FILE *maps = fopen("/proc/self/smaps", "re");

	if (!maps) return perror("/proc/self/smaps"), 1;
	while (fgets(line, sizeof line, maps)) {
		if (sscanf(line, "%lx-%lx %7s", &low, &high, permissions) == 3) is_shared = permissions[3] == 's';
		else if (sscanf(line, "Private_Dirty: %lu", &kib) == 1) *(is_shared ? &shared_kib : &private_kib) += kib;
		else if (sscanf(line, "Private_Clean: %lu", &kib) == 1 || sscanf(line, "Shared_Clean: %lu", &kib) == 1 ||
			 sscanf(line, "Shared_Dirty: %lu", &kib) == 1)
			shared_kib += kib;
	}
	fclose(maps);
	printf("private_kib=%lu shared_kib=%lu\n", private_kib, shared_kib);
	return 0;
}

int main(int argc, char **argv) {
	unsigned threads = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
	pthread_t *all = calloc(threads, sizeof *all);

	pthread_barrier_init(&barrier, NULL, threads + 1);
	for (unsigned i = 0; i < threads; i++)
		if (pthread_create(&all[i], NULL, work, NULL)) return perror("pthread_create"), 1;
	pthread_barrier_wait(&barrier);
	int status = count();
	pthread_barrier_wait(&barrier);
	for (unsigned i = 0; i < threads; i++) pthread_join(all[i], NULL);
	return status;
}
