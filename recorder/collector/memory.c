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

void tm_memory_exhausted(void) {
	if (last_stand) last_stand();
	_exit(125);
}

void *tm_memory_new(size_t count, size_t item_bytes) {
	void *p = calloc(count ? count : 1, item_bytes);
	if (!p) tm_memory_exhausted();
	return p;
}

static size_t table_bytes(size_t count, size_t item_bytes) {
	return (count * item_bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
}

/* From HUGE_BYTES on from a mapping, in whole huge pages where the system has them for who asks: a table is looked at here and there, and what a
 * lookup waits for is mostly the translation of its address. A mapping is zero, and gone when it is given back. */
void *tm_memory_new_table(size_t count, size_t item_bytes) {
	if (count < HUGE_BYTES / item_bytes) return tm_memory_new(count, item_bytes);
	if (count > SIZE_MAX / 2 / item_bytes) tm_memory_exhausted();
	size_t bytes = table_bytes(count, item_bytes);
	uint8_t *all = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED) tm_memory_exhausted();
	size_t before = -(uintptr_t)all % HUGE_BYTES;
	if (before) munmap(all, before);
	munmap(all + before + bytes, HUGE_BYTES - before);
	if (madvise(all + before, bytes, MADV_HUGEPAGE) != 0) errno = 0;
	return all + before;
}

void tm_memory_free_table(void *p, size_t count, size_t item_bytes) {
	if (count < HUGE_BYTES / item_bytes) free(p);
	else if (p) munmap(p, table_bytes(count, item_bytes));
}

void *tm_memory_resize(void *p, size_t count, size_t item_bytes) {
	if (item_bytes && count > SIZE_MAX / 2 / item_bytes) tm_memory_exhausted();
	size_t bytes = count * item_bytes;
	void *resized = realloc(p, bytes ? bytes : 1);
	if (!resized) tm_memory_exhausted();
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
