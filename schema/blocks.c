/* blocks.c - the blocks of one heap that are live, by address; see blocks.h.
 *
 * Linear probing; removal shifts back, so there are no tombstones.
 */
#include "blocks.h"

#define FIRST_SLOTS 64u
#define FIRST_SHIFT 26u /* 32 - log2(FIRST_SLOTS) */

_Static_assert(sizeof(struct tm_block) == 48 && sizeof(struct tm_block_slot) == 8, "as blocks.h says");

static uint32_t tag_of(uint64_t address) {
	return (uint32_t)((address >> 4 ^ address << 57) * 0x9E3779B97F4A7C15ull >> 32);
}

void tm_blocks_release(struct tm_blocks *b) {
	free(b->slots);
	tm_array_release(&b->all);
	*b = (struct tm_blocks){ 0 };
}

void tm_blocks_prefetch_slot(const struct tm_blocks *b, uint64_t address) {
	if (b->slots) __builtin_prefetch(&b->slots[tag_of(address) >> b->shift], 1);
}

void tm_blocks_prefetch_block(const struct tm_blocks *b, uint64_t address) {
	uint32_t tag = tag_of(address);
	if (!b->slots) return;
	for (size_t i = tag >> b->shift; b->slots[i].number; i = (i + 1) & b->mask) {
		if (b->slots[i].tag != tag) continue;
		const char *block = (const char *)&b->all.items[b->slots[i].number - 1];
		__builtin_prefetch(block, 1);
		__builtin_prefetch(block + sizeof(struct tm_block) - 1, 1);
		return;
	}
}

struct tm_block *tm_blocks_find(const struct tm_blocks *b, uint64_t address) {
	uint32_t tag = tag_of(address);
	if (!b->slots) return NULL;
	for (size_t i = tag >> b->shift; b->slots[i].number; i = (i + 1) & b->mask) {
		struct tm_block *block = &b->all.items[b->slots[i].number - 1];
		if (b->slots[i].tag == tag && block->address == address) return block;
	}
	return NULL;
}

static void place(struct tm_blocks *b, struct tm_block_slot slot) {
	size_t i = slot.tag >> b->shift;
	while (b->slots[i].number) i = (i + 1) & b->mask;
	b->slots[i] = slot;
}

static bool grow(struct tm_blocks *b) {
	struct tm_block_slot *old = b->slots;
	size_t slots = old ? (b->mask + 1) * 2 : FIRST_SLOTS;
	if (old && !b->shift) return false;
	struct tm_block_slot *bigger = tm_table_new(slots, sizeof *bigger);
	if (!bigger) return false;
	size_t old_slots = old ? b->mask + 1 : 0;
	b->slots = bigger;
	b->shift = old ? b->shift - 1 : FIRST_SHIFT;
	b->mask = slots - 1;
	for (size_t i = 0; i < old_slots; i++)
		if (old[i].number) place(b, old[i]);
	free(old);
	return true;
}

/* Index + 1 of room for one; 0: out of memory. */
static uint32_t take_room(struct tm_blocks *b) {
	uint32_t number = b->unused;
	if (number) {
		b->unused = b->all.items[number - 1].stack;
		return number;
	}
	if (b->all.count >= UINT32_MAX || !tm_array_push(&b->all)) return 0;
	return (uint32_t)b->all.count;
}

bool tm_blocks_insert(struct tm_blocks *b, const struct tm_block *block) {
	if ((!b->slots || (b->count + 1) * 10 > (b->mask + 1) * 7) && !grow(b)) return false;
	uint32_t number = take_room(b);
	if (!number) return false;
	b->all.items[number - 1] = *block;
	b->all.items[number - 1].used = true;
	place(b, (struct tm_block_slot){ tag_of(block->address), number });
	b->count++;
	return true;
}

static size_t slot_of(const struct tm_blocks *b, uint32_t tag, uint32_t number) {
	size_t i = tag >> b->shift;
	while (b->slots[i].number != number) i = (i + 1) & b->mask;
	return i;
}

void tm_blocks_remove(struct tm_blocks *b, struct tm_block *found) {
	uint32_t number = (uint32_t)(found - b->all.items) + 1;
	size_t hole = slot_of(b, tag_of(found->address), number);
	for (size_t i = (hole + 1) & b->mask; b->slots[i].number; i = (i + 1) & b->mask) {
		size_t wanted = b->slots[i].tag >> b->shift;
		/* A slot may fill the hole if the hole lies between its home and where it stands. */
		if (((i - wanted) & b->mask) >= ((i - hole) & b->mask)) {
			b->slots[hole] = b->slots[i];
			hole = i;
		}
	}
	b->slots[hole].number = 0;
	found->used = false;
	found->stack = b->unused;
	b->unused = number;
	b->count--;
}
