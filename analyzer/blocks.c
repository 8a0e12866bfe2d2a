/* blocks.c - the blocks of one heap that are live, by address; see blocks.h. Linear probing; removal shifts back, so there are no tombstones. */
#include "blocks.h"

#include <stdlib.h>

#define FIRST_SLOTS 64u

static size_t home(const struct tm_blocks *b, uint64_t address) {
	return (size_t)((address >> 4 ^ address << 57) * 0x9E3779B97F4A7C15ull >> 20) & b->mask;
}

void tm_blocks_release(struct tm_blocks *b) {
	free(b->slots);
	*b = (struct tm_blocks){ 0 };
}

struct tm_block *tm_blocks_find(const struct tm_blocks *b, uint64_t address) {
	if (!b->slots) return NULL;
	for (size_t i = home(b, address); b->slots[i].used; i = (i + 1) & b->mask)
		if (b->slots[i].address == address) return &b->slots[i];
	return NULL;
}

static void place(struct tm_blocks *b, const struct tm_block *block) {
	size_t i = home(b, block->address);
	while (b->slots[i].used) i = (i + 1) & b->mask;
	b->slots[i] = *block;
	b->slots[i].used = true;
}

static bool grow(struct tm_blocks *b) {
	size_t slots = b->slots ? (b->mask + 1) * 2 : FIRST_SLOTS;
	struct tm_blocks bigger = { calloc(slots, sizeof *b->slots), b->count, slots - 1 };
	if (!bigger.slots) return false;
	for (size_t i = 0; b->slots && i <= b->mask; i++)
		if (b->slots[i].used) place(&bigger, &b->slots[i]);
	free(b->slots);
	*b = bigger;
	return true;
}

bool tm_blocks_insert(struct tm_blocks *b, const struct tm_block *block) {
	if ((!b->slots || (b->count + 1) * 10 > (b->mask + 1) * 7) && !grow(b)) return false;
	place(b, block);
	b->count++;
	return true;
}

void tm_blocks_remove(struct tm_blocks *b, struct tm_block *found) {
	size_t hole = (size_t)(found - b->slots);
	for (size_t i = (hole + 1) & b->mask; b->slots[i].used; i = (i + 1) & b->mask) {
		size_t wanted = home(b, b->slots[i].address);
		/* A block may fill the hole if the hole lies between its home and where it stands. */
		if (((i - wanted) & b->mask) >= ((i - hole) & b->mask)) {
			b->slots[hole] = b->slots[i];
			hole = i;
		}
	}
	b->slots[hole].used = false;
	b->count--;
}
