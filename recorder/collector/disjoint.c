/* disjoint.c - disjoint ranges, sorted, in leaves of a bounded size: see disjoint.h.
 *
 * One sorted array would move half of itself at each mmap and munmap, and a program may have a million mappings. Here an array of leaves, each of which is a
 * sorted array and never empty, is searched first; a leaf that is full becomes two.
 */
#include "disjoint.h"

#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define LEAF_ITEMS 128u

struct tm_disjoint_leaf {
	uint64_t end; /* of its last item */
	uint8_t *items;
	size_t count, capacity;
};

static uint64_t end_of(const void *item) {
	uint64_t end;
	memcpy(&end, item, sizeof end);
	return end;
}

void tm_disjoint_release(struct tm_disjoint *d) {
	for (size_t i = 0; i < d->count; i++) free(d->leaves[i].items);
	free(d->leaves);
	*d = (struct tm_disjoint){ 0 };
}

static struct tm_disjoint_leaf *leaf_above(const struct tm_disjoint *d, uint64_t address) {
	size_t low = 0, high = d->count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (d->leaves[middle].end > address) high = middle;
		else low = middle + 1;
	}
	return low < d->count ? &d->leaves[low] : NULL;
}

static size_t item_above(const struct tm_disjoint_leaf *leaf, size_t item_bytes, uint64_t address) {
	size_t low = 0, high = leaf->count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (end_of(leaf->items + middle * item_bytes) > address) high = middle;
		else low = middle + 1;
	}
	return low;
}

void *tm_disjoint_above(const struct tm_disjoint *d, size_t item_bytes, uint64_t address) {
	const struct tm_disjoint_leaf *leaf = leaf_above(d, address);
	return leaf ? leaf->items + item_above(leaf, item_bytes, address) * item_bytes : NULL;
}

static struct tm_disjoint_leaf *new_leaf(struct tm_disjoint *d, size_t at) {
	d->leaves = tm_memory_grow(d->leaves, &d->capacity, d->count + 1, sizeof d->leaves[0]);
	memmove(d->leaves + at + 1, d->leaves + at, (d->count - at) * sizeof d->leaves[0]);
	d->count++;
	d->leaves[at] = (struct tm_disjoint_leaf){ 0 };
	return &d->leaves[at];
}

/* Its upper half becomes a leaf of its own, behind it. */
static void halve(struct tm_disjoint *d, size_t at, size_t item_bytes) {
	struct tm_disjoint_leaf *upper = new_leaf(d, at + 1), *lower = upper - 1;
	size_t keep = lower->count / 2;
	upper->count = lower->count - keep;
	upper->items = tm_memory_grow(NULL, &upper->capacity, LEAF_ITEMS, item_bytes);
	memcpy(upper->items, lower->items + keep * item_bytes, upper->count * item_bytes);
	upper->end = lower->end;
	lower->count = keep;
	lower->end = end_of(lower->items + (keep - 1) * item_bytes);
}

void tm_disjoint_add(struct tm_disjoint *d, size_t item_bytes, const void *item) {
	uint64_t end = end_of(item);
	struct tm_disjoint_leaf *leaf = leaf_above(d, end);
	if (!leaf) leaf = d->count ? &d->leaves[d->count - 1] : new_leaf(d, 0);
	if (leaf->count == LEAF_ITEMS) {
		size_t at = (size_t)(leaf - d->leaves);
		halve(d, at, item_bytes);
		leaf = &d->leaves[at] + (end > d->leaves[at].end);
	}
	size_t at = item_above(leaf, item_bytes, end);
	leaf->items = tm_memory_grow(leaf->items, &leaf->capacity, leaf->count + 1, item_bytes);
	uint8_t *place = leaf->items + at * item_bytes;
	memmove(place + item_bytes, place, (leaf->count - at) * item_bytes);
	memcpy(place, item, item_bytes);
	leaf->end = end_of(leaf->items + leaf->count++ * item_bytes);
}

void tm_disjoint_take_out(struct tm_disjoint *d, size_t item_bytes, uint64_t end) {
	struct tm_disjoint_leaf *leaf = leaf_above(d, end - 1);
	size_t at = item_above(leaf, item_bytes, end - 1);
	uint8_t *place = leaf->items + at * item_bytes;
	memmove(place, place + item_bytes, (--leaf->count - at) * item_bytes);
	if (leaf->count) {
		leaf->end = end_of(leaf->items + (leaf->count - 1) * item_bytes);
		return;
	}
	free(leaf->items);
	size_t behind = d->count - 1 - (size_t)(leaf - d->leaves);
	memmove(leaf, leaf + 1, behind * sizeof *leaf);
	d->count--;
}
