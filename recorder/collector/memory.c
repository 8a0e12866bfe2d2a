/* memory.c - allocation for the collector: see memory.h for what happens when there is none. */
#include "memory.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_BYTES ((size_t)2 << 20)

static void (*last_stand)(void);

void tm_memory_on_exhausted(void (*function)(void)) {
	last_stand = function;
}

static _Noreturn void exhausted(void) {
	if (last_stand) last_stand();
	_exit(125);
}

void *tm_memory_new(size_t count, size_t item_bytes) {
	void *p = calloc(count ? count : 1, item_bytes);
	if (!p) exhausted();
	return p;
}

/* Beyond HUGE_BYTES from a mapping, in whole huge pages where the system has them for who asks: a table is looked at here and there, and what a
 * lookup waits for is mostly the translation of its address. */
void *tm_memory_new_table(size_t count, size_t item_bytes) {
	size_t bytes = count * item_bytes;
	void *p;
	if (bytes < HUGE_BYTES) return tm_memory_new(count, item_bytes);
	if (count > SIZE_MAX / 2 / item_bytes || posix_memalign(&p, HUGE_BYTES, bytes) != 0) exhausted();
	if (madvise(p, bytes, MADV_HUGEPAGE) != 0) errno = 0;
	return memset(p, 0, bytes);
}

void *tm_memory_resize(void *p, size_t count, size_t item_bytes) {
	if (item_bytes && count > SIZE_MAX / 2 / item_bytes) exhausted();
	size_t bytes = count * item_bytes;
	void *resized = realloc(p, bytes ? bytes : 1);
	if (!resized) exhausted();
	return resized;
}

char *tm_memory_copy_text(const char *text, size_t n) {
	char *copy = tm_memory_resize(NULL, n + 1, 1);
	if (n) memcpy(copy, text, n);
	copy[n] = 0;
	return copy;
}

void *tm_memory_grow(void *p, size_t *capacity, size_t needed, size_t item_bytes) {
	if (needed <= *capacity) return p;
	size_t grown = *capacity ? *capacity * 2 : 16;
	while (grown < needed) grown *= 2;
	p = tm_memory_resize(p, grown, item_bytes);
	*capacity = grown;
	return p;
}
