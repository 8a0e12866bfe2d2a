/* hooks.c - the floor under every recorder that is preloaded: hooks that hand each call on to the C library, and do nothing else.
 *
 * No such recorder can cost less, sampled or not. run.py builds it (tools.py) and measures it beside them. It stands in a folder of its own because it is
 * a library, and the benches beside it are programs.
 */
#include <stddef.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), __libc_free(void *);

/* Kept in memory, as a recorder keeps them that has to ask whose malloc comes next. */
void *(*next_malloc)(size_t) = __libc_malloc, *(*next_calloc)(size_t, size_t) = __libc_calloc, *(*next_realloc)(void *, size_t) = __libc_realloc;
void (*next_free)(void *) = __libc_free;

void *malloc(size_t size) {
	return next_malloc(size);
}

void *calloc(size_t count, size_t size) {
	return next_calloc(count, size);
}

void *realloc(void *block, size_t size) {
	return next_realloc(block, size);
}

void free(void *block) {
	next_free(block);
}
