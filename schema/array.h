/* array.h - arrays that grow.
 *
 *     TM_ARRAY(struct point) points = { 0 };
 *     struct point *p = tm_array_push(&points);     NULL: out of memory, the array is as it was
 *
 * Owns:  its items, given back by tm_array_release(). New items are zeroed. A push may move the items.
 * Large: tables of some MiB ask for huge pages: thousands of page faults cost more than the work on what they bring.
 */
#ifndef TIDEMARK_SCHEMA_ARRAY_H
#define TIDEMARK_SCHEMA_ARRAY_H

#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TM_LARGE_BYTES ((size_t)4 << 20)

#define TM_ARRAY(type) \
	struct { \
		type *items; \
		size_t count, capacity; \
	}

/* For the whole mapping behind a large table: for a part of it the kernel would make two mappings of one, which realloc() could then only copy. */
static inline void tm_prefer_huge_pages(void *p, size_t bytes) {
	if (bytes < TM_LARGE_BYTES) return;
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)p & ~(page - 1);
	madvise((void *)begin, (uintptr_t)p + malloc_usable_size(p) - begin, MADV_HUGEPAGE);
}

/* As calloc(), for tables that will be used from end to end. */
static inline void *tm_table_new(size_t count, size_t item_bytes) {
	void *p = calloc(count, item_bytes);
	if (p) tm_prefer_huge_pages(p, count * item_bytes);
	return p;
}

static inline bool tm_array_grow_raw(void **items, size_t *capacity, size_t count, size_t item_bytes) {
	size_t wanted = *capacity ? *capacity : 8;
	while (wanted < count) wanted += wanted / 2;
	if (wanted == *capacity) return true;
	if (wanted > (size_t)-1 / item_bytes) return false;
	void *grown = realloc(*items, wanted * item_bytes);
	if (!grown) return false;
	tm_prefer_huge_pages(grown, wanted * item_bytes);
	*items = grown;
	*capacity = wanted;
	return true;
}

static inline void *tm_array_push_raw(void **items, size_t *count, size_t *capacity, size_t item_bytes) {
	if (*count == *capacity && !tm_array_grow_raw(items, capacity, *count + 1, item_bytes)) return NULL;
	void *item = (char *)*items + (*count)++ * item_bytes;
	return memset(item, 0, item_bytes);
}

/* Makes it at least n items long; false: out of memory. */
static inline bool tm_array_extend_raw(void **items, size_t *count, size_t *capacity, size_t item_bytes, size_t n) {
	if (n <= *count) return true;
	if (n > *capacity && !tm_array_grow_raw(items, capacity, n, item_bytes)) return false;
	memset((char *)*items + *count * item_bytes, 0, (n - *count) * item_bytes);
	*count = n;
	return true;
}

/* Room for n items in all, whatever `count` says; false: out of memory. */
#define tm_array_reserve(a, n) \
	((n) <= (a)->capacity || tm_array_grow_raw((void **)(void *)&(a)->items, &(a)->capacity, (n), sizeof *(a)->items))

/* `items` is read and written as the void pointer that every object pointer looks like here. */
#define tm_array_push(a) \
	((__typeof__((a)->items))tm_array_push_raw((void **)(void *)&(a)->items, &(a)->count, &(a)->capacity, sizeof *(a)->items))
#define tm_array_extend(a, n) tm_array_extend_raw((void **)(void *)&(a)->items, &(a)->count, &(a)->capacity, sizeof *(a)->items, (n))
#define tm_array_release(a) (free((a)->items), (a)->items = NULL, (a)->count = (a)->capacity = 0)

#endif
