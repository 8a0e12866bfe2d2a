/* array.h - arrays that grow.
 *
 *     TM_ARRAY(struct point) points = { 0 };
 *     struct point *p = tm_array_push(&points);     NULL: out of memory, the array is as it was
 *
 * Owns:  its items, given back by tm_array_release(). New items are zeroed. A push may move the items.
 * Large: from TM_MAPPED_BYTES on an array is a mapping of its own, which grows without being copied: what was written once is not written again, in memory
 *        that has to be made first. From TM_HUGE_FROM_BYTES on it asks for huge pages: lookups here and there wait for less address translation. Smaller ones
 *        do not: the host of a virtual machine takes back what is free in pieces of that size, and takes up to 6 ms to find one again, where the pages of a
 *        smaller one are at hand.
 */
#ifndef TIDEMARK_SCHEMA_ARRAY_H
#define TIDEMARK_SCHEMA_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TM_MAPPED_BYTES ((size_t)1 << 20)
#define TM_HUGE_PAGE_BYTES ((size_t)2 << 20)
#define TM_HUGE_FROM_BYTES ((size_t)16 << 20)

#define TM_ARRAY(type) \
	struct { \
		type *items; \
		size_t count, capacity; \
	}

/* Of all pages that hold some of it; a kernel that knows no such advice does without. */
static inline void tm_advise_pages(void *p, size_t bytes, int advice) {
	uintptr_t begin = (uintptr_t)p & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
	madvise((void *)begin, (uintptr_t)p + bytes - begin, advice);
}

static inline void tm_prefer_huge_pages(void *p, size_t bytes) {
	if (bytes >= TM_HUGE_FROM_BYTES) tm_advise_pages(p, bytes, MADV_HUGEPAGE);
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* from Linux 5.14 on */
#endif

/* As calloc(), for tables that will be used from end to end. A large one is written at once: a page that is read first, as by who looks for a free slot, is one
 * that all share, which has to be replaced as soon as it is written, and every processor that runs a thread of ours has to be told. */
static inline void *tm_table_new(size_t count, size_t item_bytes) {
	void *p = calloc(count, item_bytes);
	if (p) tm_prefer_huge_pages(p, count * item_bytes);
	if (p && count * item_bytes >= TM_MAPPED_BYTES) tm_advise_pages(p, count * item_bytes, MADV_POPULATE_WRITE);
	return p;
}

static inline size_t tm_mapped_bytes(size_t bytes) {
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	return (bytes + page - 1) & ~(page - 1);
}

/* Room for a mapping that begins where a huge page may; NULL: out of memory. */
static inline void *tm_map_aligned(size_t bytes) {
	if (bytes > SIZE_MAX - 4 * TM_HUGE_PAGE_BYTES) return NULL;
	size_t mapped = tm_mapped_bytes(bytes);
	uint8_t *all = (uint8_t *)mmap(NULL, mapped + TM_HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED) return NULL;
	size_t before = -(uintptr_t)all % TM_HUGE_PAGE_BYTES;
	if (before) munmap(all, before);
	munmap(all + before + mapped, TM_HUGE_PAGE_BYTES - before);
	return all + before;
}

/* To another place, where there is room for more; NULL: out of memory, and all is as it was. */
static inline void *tm_array_move(void *old, size_t old_bytes, size_t bytes) {
	void *moved = tm_map_aligned(bytes);
	if (!moved) return NULL;
	if (old_bytes < TM_MAPPED_BYTES) {
		if (old) memcpy(moved, old, old_bytes);
		free(old);
	} else if (mremap(old, tm_mapped_bytes(old_bytes), tm_mapped_bytes(bytes), MREMAP_MAYMOVE | MREMAP_FIXED, moved) == MAP_FAILED) {
		munmap(moved, tm_mapped_bytes(bytes));
		return NULL;
	}
	return moved;
}

/* As realloc(), of what has so many bytes now and will have more; what is mapped stays where it is if it can, and moves as a whole if not. */
static inline void *tm_array_resize(void *old, size_t old_bytes, size_t bytes) {
	if (bytes < TM_MAPPED_BYTES) return realloc(old, bytes);
	bool stays = old_bytes >= TM_MAPPED_BYTES && mremap(old, tm_mapped_bytes(old_bytes), tm_mapped_bytes(bytes), 0) != MAP_FAILED;
	void *grown = stays ? old : tm_array_move(old, old_bytes, bytes);
	if (grown) tm_prefer_huge_pages(grown, bytes);
	return grown;
}

static inline void tm_array_free(void *items, size_t bytes) {
	if (bytes < TM_MAPPED_BYTES) free(items);
	else munmap(items, tm_mapped_bytes(bytes));
}

static inline bool tm_array_grow_raw(void **items, size_t *capacity, size_t count, size_t item_bytes) {
	size_t wanted = *capacity ? *capacity : 8;
	while (wanted < count) wanted += wanted / 2;
	if (wanted == *capacity) return true;
	if (wanted > (size_t)-1 / item_bytes) return false;
	void *grown = tm_array_resize(*items, *capacity * item_bytes, wanted * item_bytes);
	if (!grown) return false;
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
#define tm_array_release(a) \
	(tm_array_free((a)->items, (a)->capacity * sizeof *(a)->items), (a)->items = NULL, (a)->count = (a)->capacity = 0)

#endif
