/* spans.h - sorted address ranges: which one covers an address.
 *
 * Flow:     symbols.c (symbols), debuginfo.c (compilation units, functions) add ranges, sort once, then ask.
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

#endif
