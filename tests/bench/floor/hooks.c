/* hooks.c - the floor under every recorder that is preloaded: hooks that hand each call on to the allocator behind them, and do nothing else.
 *
 * No such recorder can cost less, sampled or not. With -DCOUNTS they count bytes down to the next sample, which never comes, and look whether the page of a block
 * that is freed has any: what a recorder that samples by bytes must do at each event, and nothing of what makes it one. With -DSTAMPS they read the clock
 * instead, once an event as every exact recorder must, and throw away what it says: no recorder that knows when each event was can cost less. With -DFRAMES a
 * block's stack is followed besides, by frame pointers and to its end, and thrown away: what following takes where nothing is remembered; a recorder that
 * remembers the last stack compares instead. run.py builds all (tools.py) and measures them beside the recorders. The file stands in a folder of its own because
 * it is a library, and the benches beside it are programs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#if defined(STAMPS) && defined(__x86_64__)
#include <x86intrin.h>
#define STAMP() ((void)__rdtsc()) /* what a recorder does best: nothing is cheaper there, and the compiler keeps it */
#elif defined(STAMPS)
#define STAMP() clock_gettime(CLOCK_MONOTONIC, &(struct timespec){ 0 })
#else
#define STAMP() ((void)0)
#endif

#if defined(COUNTS)
#include <limits.h>
static __thread long spare __attribute__((tls_model("initial-exec"))) = LONG_MAX; /* of the thread, as what all write costs more */
static volatile unsigned char sampled_pages[1 << 16];
static volatile unsigned long samples;
static __attribute__((noinline, cold)) void note_sample(void) {
	samples++;
}
#define COUNT(size) ((spare -= (long)(size)) < 0 ? note_sample() : (void)0)
#define LOOK_UP(block) (sampled_pages[(unsigned short)((unsigned long)(block) >> 12)] ? note_sample() : (void)0)
#else
#define COUNT(size) ((void)0)
#define LOOK_UP(block) ((void)0)
#endif

#if defined(FRAMES)
#define DEEPEST 128
#define FARTHEST (1ul << 20) /* no frame of the bench's is so large: what lies so far out is no frame */

static __thread void *callers[DEEPEST];

static inline __attribute__((always_inline)) void follow(void **frame) {
	for (int i = 0; i < DEEPEST; i++) {
		void **outer = *frame;
		callers[i] = frame[1];
		if ((unsigned long)outer - (unsigned long)frame - 1 >= FARTHEST) return; /* or not farther out at all */
		frame = outer;
	}
}
#define KEPT ({ __asm__ volatile("" : : "r"(callers) : "memory"); }) /* as if somebody read them */
#define STACK() (follow(__builtin_frame_address(0)), KEPT)
#else
#define STACK() ((void)0)
#endif

/* What dlsym() itself allocates. */
static char early[1 << 16];
static size_t early_used;

static void *early_block(size_t size) {
	size_t at = early_used;
	early_used += (size + 15) & ~(size_t)15;
	return early_used <= sizeof early ? early + at : NULL;
}

static void *early_calloc(size_t count, size_t size) {
	return early_block(count * size);
}

static void *early_realloc(void *block, size_t size) {
	void *moved = early_block(size);
	if (moved && block) memmove(moved, block, size);
	return moved;
}

static void early_free(void *block) {
	(void)block;
}

static void *first_malloc(size_t size);
static void *first_calloc(size_t count, size_t size);
static void *first_realloc(void *block, size_t size);
static void first_free(void *block);

/* Kept in memory, as a recorder keeps them that has to ask whose malloc comes next: the program may have another than libc's. */
void *(*next_malloc)(size_t) = first_malloc, *(*next_calloc)(size_t, size_t) = first_calloc, *(*next_realloc)(void *, size_t) = first_realloc;
void (*next_free)(void *) = first_free;

static void find(void) {
	next_malloc = early_block;
	next_calloc = early_calloc;
	next_realloc = early_realloc;
	next_free = early_free;
	void *found[] = { dlsym(RTLD_NEXT, "malloc"), dlsym(RTLD_NEXT, "calloc"), dlsym(RTLD_NEXT, "realloc"), dlsym(RTLD_NEXT, "free") };
	next_malloc = (void *(*)(size_t))found[0];
	next_calloc = (void *(*)(size_t, size_t))found[1];
	next_realloc = (void *(*)(void *, size_t))found[2];
	next_free = (void (*)(void *))found[3];
}

static void *first_malloc(size_t size) {
	find();
	return next_malloc(size);
}

static void *first_calloc(size_t count, size_t size) {
	find();
	return next_calloc(count, size);
}

static void *first_realloc(void *block, size_t size) {
	find();
	return next_realloc(block, size);
}

static void first_free(void *block) {
	find();
	next_free(block);
}

void *malloc(size_t size) {
	COUNT(size);
	void *block = next_malloc(size);
	STACK();
	STAMP();
	return block;
}

void *calloc(size_t count, size_t size) {
	COUNT(count * size);
	void *block = next_calloc(count, size);
	STACK();
	STAMP();
	return block;
}

void *realloc(void *block, size_t size) {
	COUNT(size);
	LOOK_UP(block);
	block = next_realloc(block, size);
	STACK();
	STAMP();
	return block;
}

void free(void *block) {
	LOOK_UP(block);
	STAMP();
	next_free(block);
}
