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
bool tm_sample_take(struct tm_thread *t, const void *addr, size_t size_bytes); /* true: record this allocation */
bool tm_sample_forget(const void *addr); /* true: the block was recorded, so record its end; it is forgotten */

#endif
