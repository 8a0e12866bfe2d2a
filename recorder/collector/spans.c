/* spans.c - sorted address ranges that may lie inside each other.
 *
 * The ranges are sorted by start. A search finds the last one that starts at or before the address and walks back from it to the first
 * that covers it; `reach` tells when no earlier range can. Symbols and functions rarely overlap, so the walk is a step or two.
 */
#include "recorder/collector/spans.h"

#include <stdlib.h>
#include <string.h>

struct ordering {
	tm_spans_order *order;
	void *context;
};

void tm_spans_release(struct tm_spans *s) {
	free(s->items);
	*s = (struct tm_spans){ 0 };
}

void tm_spans_add(struct tm_spans *s, uint64_t low, uint64_t high, uint64_t value) {
	if (low >= high) return;
	if (s->count == s->capacity) {
		size_t capacity = s->capacity ? s->capacity * 2 : 16;
		struct tm_span *items = reallocarray(s->items, capacity, sizeof *items);
		if (!items) {
			s->failed = true;
			return;
		}
		s->items = items;
		s->capacity = capacity;
	}
	s->items[s->count++] = (struct tm_span){ low, high, high, value };
}

static int compare(const void *left, const void *right, void *context) {
	const struct tm_span *a = left, *b = right;
	const struct ordering *by = context;
	if (a->low != b->low) return a->low < b->low ? -1 : 1;
	if (by->order) return by->order(a, b, by->context);
	return a->high > b->high ? -1 : a->high < b->high;
}

void tm_spans_sort(struct tm_spans *s, tm_spans_order *order, void *context) {
	struct ordering by = { order, context };
	if (s->count) qsort_r(s->items, s->count, sizeof *s->items, compare, &by);
	uint64_t reach = 0;
	for (size_t i = 0; i < s->count; i++) {
		if (s->items[i].high > reach) reach = s->items[i].high;
		s->items[i].reach = reach;
	}
}

const struct tm_span *tm_spans_find(const struct tm_spans *s, uint64_t address) {
	size_t low = 0, high = s->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (s->items[middle].low <= address) low = middle + 1;
		else high = middle;
	}
	while (low-- > 0 && s->items[low].reach > address)
		if (s->items[low].high > address) return &s->items[low];
	return NULL;
}
