/* disjoint.h - ranges of addresses that do not overlap, and change all the time: what a process has mapped.
 *
 * Flow:     tally.c and flight_set.c keep mappings here, in structures of their own, each of which begins with a uint64_t: the first address behind it.
 * Owns:     its copies of them.
 * Threads:  one object, one thread at a time.
 * Fails:    never (memory.h). A call costs a search and the move of at most a leaf's items, however many ranges there are.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_DISJOINT_H
#define TIDEMARK_RECORDER_COLLECTOR_DISJOINT_H

#include <stddef.h>
#include <stdint.h>

struct tm_disjoint { /* zeros: none */
	struct tm_disjoint_leaf *leaves;
	size_t count, capacity; /* of leaves */
};

void tm_disjoint_release(struct tm_disjoint *d);
/* The first that ends above the address, or NULL. It stays there until the next call that adds or takes out. */
void *tm_disjoint_above(const struct tm_disjoint *d, size_t item_bytes, uint64_t address);
/* Overlaps none that is there. */
void tm_disjoint_add(struct tm_disjoint *d, size_t item_bytes, const void *item);
/* Takes out the one that ends there, which must be. */
void tm_disjoint_take_out(struct tm_disjoint *d, size_t item_bytes, uint64_t end);

#endif
