/* sample.h - Poisson sampling of allocations by bytes (--sample).
 *
 * Owns:     a table of the addresses that were sampled and still live, one a process, shared by its threads without a lock.
 * Threads:  any.
 * When full: the allocation is not recorded but counted as lost, and a note says so.
 */
#ifndef TIDEMARK_GUEST_SAMPLE_H
#define TIDEMARK_GUEST_SAMPLE_H

#include "guest.h"

void tm_sample_start(struct tm_thread *t); /* seeds the thread's generator, and draws where that has not been done */
void tm_sample_start_child(void);          /* a fork's: it is not to have the sample that its brothers have */
void tm_sample_lost(void);                 /* of a thread that cannot be recorded: the next one comes when it will be due on average */
void tm_sample_prepare(void); /* while system calls can be made: what the first sample needs */
bool tm_sample_remember(struct tm_thread *t, const void *addr, size_t size_bytes); /* false: the table is full; counted */

/* What the calls below come to, once in a while. */
bool tm_sample_taken(struct tm_thread *t, const void *addr, size_t size_bytes);
bool tm_sample_found(const void *addr); /* and forgotten */
bool tm_sample_stands(const void *addr);

/* The sample fell on a block that cannot be recorded: draws the next one. Else the block after it would most likely be taken in its place. */
void tm_sample_pass_over(void);

#define TM_SAMPLE_LOOK_BYTES (64u << 10)

/* How many sampled blocks begin in a page, by the lower bits of its number: nearly all of the frees of other blocks are known by it. TM_SAMPLE_MANY: as many
 * or more, for ever. */
#define TM_SAMPLE_PAGES 65536u
#define TM_SAMPLE_MANY 255u
extern _Atomic uint8_t tm_sample_pages[TM_SAMPLE_PAGES] TM_HIDDEN;

/* And how many where just this block begins, by the lower bits of that: what lies in the page of a sample is known by it. */
#define TM_SAMPLE_PLACES 65536u
extern _Atomic uint8_t tm_sample_places[TM_SAMPLE_PLACES] TM_HIDDEN;

static inline _Atomic uint8_t *tm_sample_place(const void *addr) {
	return &tm_sample_places[(uintptr_t)addr / 16 % TM_SAMPLE_PLACES];
}

static inline _Atomic uint8_t *tm_sample_page(const void *addr) {
	return &tm_sample_pages[(uintptr_t)addr / TM_SHM_PAGE % TM_SAMPLE_PAGES];
}

/* True: an allocation that is no sample, and it is counted. Also false where it is to be looked at, for one of no bytes, and before the thread has begun. */
static inline bool tm_sample_passes(size_t size_bytes) {
	if (TM_UNLIKELY(size_bytes - 1 >= tm_tls.sample_spare)) return false;
	tm_tls.sample_spare -= size_bytes;
	return true;
}

/* True: record this allocation. */
static inline bool tm_sample_take(struct tm_thread *t, const void *addr, size_t size_bytes) {
	return !tm_sample_passes(size_bytes | !size_bytes) && tm_sample_taken(t, addr, size_bytes); /* a block of no bytes counts as one */
}

/* False: the block is none that was recorded. */
static inline bool tm_sample_may_hold(const void *addr) {
	return atomic_load_explicit(tm_sample_page(addr), memory_order_relaxed) != 0;
}

/* True: the block was recorded and has not ended. */
static inline bool tm_sample_is_one(const void *addr) {
	return atomic_load_explicit(tm_sample_place(addr), memory_order_relaxed) != 0 && tm_sample_stands(addr);
}

/* True: the block was recorded, or may have been, so record its end; it is forgotten. Before the allocator may give its address to somebody else. */
static inline bool tm_sample_forget(const void *addr) {
	if (TM_UNLIKELY(!tm_guest.shm->sample_bytes)) return true;
	return TM_UNLIKELY(tm_sample_may_hold(addr)) && tm_sample_found(addr);
}

/* Every page in a range is to look as if it held samples. */
void tm_sample_suspect(const void *from, size_t size_bytes);

#endif
