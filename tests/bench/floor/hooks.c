/* hooks.c - the floor under every recorder that is preloaded: hooks that hand each call on to the C library, and do nothing else.
 *
 * No such recorder can cost less, sampled or not. With -DSTAMPS they read the clock as well, once an event as every exact recorder must, and throw away what
 * it says: no recorder that knows when each event was can cost less. run.py builds both (tools.py) and measures them beside the recorders. The file stands in
 * a folder of its own because it is a library, and the benches beside it are programs.
 */
#include <stddef.h>
#include <time.h>

#if defined(STAMPS) && defined(__x86_64__)
#include <x86intrin.h>
#define STAMP() ((void)__rdtsc()) /* what a recorder does best: nothing is cheaper there, and the compiler keeps it */
#elif defined(STAMPS)
#define STAMP() clock_gettime(CLOCK_MONOTONIC, &(struct timespec){ 0 })
#else
#define STAMP() ((void)0)
#endif

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), __libc_free(void *);

/* Kept in memory, as a recorder keeps them that has to ask whose malloc comes next. */
void *(*next_malloc)(size_t) = __libc_malloc, *(*next_calloc)(size_t, size_t) = __libc_calloc, *(*next_realloc)(void *, size_t) = __libc_realloc;
void (*next_free)(void *) = __libc_free;

void *malloc(size_t size) {
	void *block = next_malloc(size);
	STAMP();
	return block;
}

void *calloc(size_t count, size_t size) {
	void *block = next_calloc(count, size);
	STAMP();
	return block;
}

void *realloc(void *block, size_t size) {
	block = next_realloc(block, size);
	STAMP();
	return block;
}

void free(void *block) {
	STAMP();
	next_free(block);
}
