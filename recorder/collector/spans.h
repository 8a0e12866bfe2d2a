/* spans.h - sorted address ranges: which one covers an address.
 *
 * Flow:     symbols.c (symbols), debuginfo.c (compilation units, functions) add ranges, sort once, then ask. tally.c and flight_set.c keep mappings,
 *           which are disjoint and change all the time, in arrays of their own.
 * Owns:     its array (malloc).
 * Threads:  one object, one thread at a time.
 * Fails:    tm_spans_add() remembers exhausted memory in `failed`; the ranges that were added stay usable.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_SPANS_H
#define TIDEMARK_RECORDER_COLLECTOR_SPANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tm_span {
	uint64_t low, high; /* [low, high) */
	uint64_t reach;     /* the highest `high` of this range and those before it */
	uint64_t value;     /* the caller's */
};

struct tm_spans {
	struct tm_span *items;
	size_t count, capacity;
	bool failed;
};

void tm_spans_release(struct tm_spans *s);
/* An empty or reversed range is ignored. */
void tm_spans_add(struct tm_spans *s, uint64_t low, uint64_t high, uint64_t value);

/* Orders two ranges that start at the same address: less than 0 if a is the worse answer. */
typedef int tm_spans_order(const struct tm_span *a, const struct tm_span *b, void *context);

/* Sorts after the last addition. Of ranges with the same start the best by `order` is found first; NULL: the shortest. */
void tm_spans_sort(struct tm_spans *s, tm_spans_order *order, void *context);

/* Of the ranges that cover the address, the one that starts last; NULL: none. */
const struct tm_span *tm_spans_find(const struct tm_spans *s, uint64_t address);

/* --- disjoint ranges: a sorted array of the caller's own structures, each of which begins with a uint64_t, the first address behind it --- */

/* Index of the first that ends above the address, or count. */
size_t tm_disjoint_above(const void *ranges, size_t count, size_t item_bytes, uint64_t address);
/* Makes place for another at this index: counts it, moves those behind it, returns the array, which may have moved too. Never NULL. */
void *tm_disjoint_make_place(void *ranges, size_t *count, size_t *capacity, size_t item_bytes, size_t at);

#endif
