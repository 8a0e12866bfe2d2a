/* regions.h - which heap a block lies in, for sources that tell only its address when it goes: NVTX's regions.
 *
 * Owns:     one table of addresses, a private mapping that grows; a fork's child has its parent's.
 * Threads:  any, under a lock that is held for a few instructions. Who cannot have it for a while (a signal handler that interrupted its holder)
 *           does without: the block is not remembered, or not found. A child forked meanwhile takes the lock over.
 * When full: with TM_REGIONS_MAX blocks the next are not remembered.
 */
#ifndef TIDEMARK_GUEST_REGIONS_H
#define TIDEMARK_GUEST_REGIONS_H

#include "guest.h"

#define TM_REGIONS_MAX (1u << 20)

bool tm_region_remember(const void *addr, uint32_t heap, uint64_t bytes);
/* The heap of the block, which is forgotten; 0: not known. */
uint32_t tm_region_forget(const void *addr);
/* The same, and it is kept; its size is put at *bytes if that is given. */
uint32_t tm_region_heap(const void *addr, uint64_t *bytes);
/* Forgets a block of the heap that begins in these `bytes` from `low` on, and gives its address; NULL: there is none (any more). *at, 0 at first, is where
 * to go on. */
const void *tm_region_forget_next(uint32_t heap, uintptr_t low, uint64_t bytes, size_t *at);

#endif
