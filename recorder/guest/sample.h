/* sample.h - Poisson sampling of allocations by bytes (--sample).
 *
 * Owns:     a table of the addresses that were sampled and still live, one a process, shared by its threads without a lock.
 * Threads:  any.
 * When full: the allocation is not recorded but counted as lost.
 */
#ifndef TIDEMARK_GUEST_SAMPLE_H
#define TIDEMARK_GUEST_SAMPLE_H

#include "guest.h"

void tm_sample_start(struct tm_thread *t);                                     /* seeds the thread's generator */
bool tm_sample_remember(struct tm_thread *t, const void *addr, size_t size_bytes); /* false: the table is full; counted */

/* What the two calls below come to, once in a while. */
bool tm_sample_taken(struct tm_thread *t, const void *addr, size_t size_bytes);
bool tm_sample_found(const void *addr);

/* How many sampled blocks begin in a page, by the lower bits of its number: nearly all of the frees of other blocks are known by it. TM_SAMPLE_MANY: as many
 * or more, for ever. */
#define TM_SAMPLE_PAGES 65536u
#define TM_SAMPLE_MANY 255u
extern _Atomic uint8_t tm_sample_pages[TM_SAMPLE_PAGES] TM_HIDDEN;

static inline _Atomic uint8_t *tm_sample_page(const void *addr) {
	return &tm_sample_pages[(uintptr_t)addr / TM_SHM_PAGE % TM_SAMPLE_PAGES];
}

/* True: record this allocation. */
static inline bool tm_sample_take(struct tm_thread *t, const void *addr, size_t size_bytes) {
	uint64_t size = size_bytes | !size_bytes; /* a block of no bytes counts as one */
	if (TM_UNLIKELY(size >= t->sample_left)) return tm_sample_taken(t, addr, size_bytes);
	t->sample_left -= size;
	return false;
}

/* True: the block was recorded, so record its end; it is forgotten. Before the allocator may give its address to somebody else. */
static inline bool tm_sample_forget(const void *addr) {
	return TM_UNLIKELY(atomic_load_explicit(tm_sample_page(addr), memory_order_relaxed)) && tm_sample_found(addr);
}

#endif
