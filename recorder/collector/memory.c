/* memory.c - allocation for the collector: see memory.h for what happens when there is none. */
#include "memory.h"

#include "../../schema/array.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

static size_t doubled(size_t capacity, size_t needed) {
	size_t grown = capacity ? capacity * 2 : 16;
	while (grown < needed) grown *= 2;
	return grown;
}

void tm_memory_fetch(void *p, size_t bytes) {
	if (madvise(p, bytes, MADV_POPULATE_WRITE) != 0) errno = 0;
}

static void *map_table(size_t bytes) {
	void *p = tm_map_aligned(bytes);
	if (p) tm_prefer_huge_pages(p, bytes);
	return p;
}

void *tm_memory_table_ahead(size_t count, size_t item_bytes) {
	return count <= SIZE_MAX / 2 / item_bytes && count * item_bytes > TM_HUGE_PAGE_BYTES ? map_table(count * item_bytes) : NULL;
}

/* What a lookup here and there waits for is mostly the translation of its address: a large table is in whole huge pages where the system has them for who asks.
 * All of it is written at once: a page that is read first is one that all share, which has to be replaced as soon as it is written, and every processor
 * that runs one of our threads has to be told. */
void *tm_memory_new_table(size_t count, size_t item_bytes) {
	if (count > SIZE_MAX / 2 / item_bytes) tm_memory_exhausted();
	size_t bytes = count * item_bytes;
	if (bytes < TM_MAPPED_BYTES) return memset(tm_memory_resize(NULL, bytes, 1), 0, bytes);
	void *p = map_table(bytes);
	if (!p) tm_memory_exhausted();
	tm_memory_fetch(p, bytes);
	return p;
}

/* Memory that is new is slow to come, 0.3 ms for a huge page, and 6 where the host of a virtual machine has to find it first: meanwhile nobody reads. */
void *tm_memory_clear_and_double(void *p, size_t count, size_t item_bytes) {
	if (count > SIZE_MAX / 4 / item_bytes) tm_memory_exhausted();
	size_t before = count * item_bytes, bytes = before * 2;
	if (before < TM_MAPPED_BYTES) {
		tm_memory_free_table(p, count, item_bytes);
		return tm_memory_new_table(count * 2, item_bytes);
	}
	uint8_t *grown = tm_array_resize(p, before, bytes);
	if (!grown) tm_memory_exhausted();
	memset(grown, 0, before);
	tm_prefer_huge_pages(grown, bytes);
	tm_memory_fetch(grown + before, before);
	return grown;
}

void *tm_memory_grow_table(void *p, size_t *capacity, size_t needed, size_t item_bytes) {
	if (needed <= *capacity) return p;
	size_t grown = doubled(*capacity, needed);
	if (grown > SIZE_MAX / 2 / item_bytes) tm_memory_exhausted();
	p = tm_array_resize(p, *capacity * item_bytes, grown * item_bytes);
	if (!p) tm_memory_exhausted();
	*capacity = grown;
	return p;
}

void tm_memory_free_table(void *p, size_t count, size_t item_bytes) {
	if (p) tm_array_free(p, count * item_bytes);
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
	size_t grown = doubled(*capacity, needed);
	p = tm_memory_resize(p, grown, item_bytes);
	*capacity = grown;
	return p;
}
