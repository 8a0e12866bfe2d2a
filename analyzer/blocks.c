/* blocks.c - the blocks of one heap that are live, by address; see blocks.h.
 *
 * Linear probing; removal shifts back, so there are no tombstones.
 */
#include "blocks.h"

#include <stdlib.h>
#include <sys/mman.h>

#define FIRST_SLOTS 8u
#define FIRST_SHIFT 61u /* 64 - log2(FIRST_SLOTS) */
#define MAPPED_BYTES ((size_t)256 << 10)
#define HUGE_BYTES ((size_t)4 << 20) /* a table of this size is worth huge pages */
#define SHARD_BITS 4u                /* log2(TM_BLOCK_SHARDS) */

/* The upper bits choose the slot, the lowest bits that multiplication mixes well enough the shard. */
static uint64_t hash(uint64_t address) {
	return (address >> 4 ^ address << 57) * 0x9E3779B97F4A7C15ull;
}

static struct tm_block_shard *shard_of(const struct tm_blocks *b, uint64_t h) {
	return (struct tm_block_shard *)(uintptr_t)&b->shards[h >> (32 - SHARD_BITS) & (TM_BLOCK_SHARDS - 1)];
}

static size_t table_bytes(const struct tm_block_shard *s) {
	return (s->mask + 1) * sizeof *s->slots;
}

static bool is_mapped(const struct tm_block_shard *s) {
	return table_bytes(s) >= MAPPED_BYTES;
}

/* Large tables are mapped, so that the system has them back at once, and made present in one go where the system can: every page will be
 * used, and each would cost two faults, as a free slot is looked at before it is filled. */
static bool allocate(struct tm_block_shard *s) {
	if (!is_mapped(s)) {
		s->slots = calloc(s->mask + 1, sizeof *s->slots);
		return s->slots != NULL;
	}
	s->slots = mmap(NULL, table_bytes(s), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->slots == MAP_FAILED) return false;
	if (table_bytes(s) >= HUGE_BYTES) madvise(s->slots, table_bytes(s), MADV_HUGEPAGE);
	madvise(s->slots, table_bytes(s), MADV_POPULATE_WRITE);
	return true;
}

static void give_back(struct tm_block_shard *s) {
	if (s->slots && is_mapped(s)) munmap(s->slots, table_bytes(s));
	else free(s->slots);
}

void tm_blocks_release(struct tm_blocks *b) {
	for (size_t i = 0; i < TM_BLOCK_SHARDS; i++) give_back(&b->shards[i]);
	*b = (struct tm_blocks){ 0 };
}

void tm_blocks_prefetch(const struct tm_blocks *b, uint64_t address) {
	uint64_t h = hash(address);
	const struct tm_block_shard *s = shard_of(b, h);
	if (s->slots) __builtin_prefetch(&s->slots[h >> s->shift]);
}

struct tm_block *tm_blocks_find(const struct tm_blocks *b, uint64_t address) {
	uint64_t h = hash(address);
	const struct tm_block_shard *s = shard_of(b, h);
	if (!s->slots) return NULL;
	for (size_t i = h >> s->shift; s->slots[i].used; i = (i + 1) & s->mask)
		if (s->slots[i].address == address) return &s->slots[i];
	return NULL;
}

static void place(struct tm_block_shard *s, const struct tm_block *block) {
	size_t i = hash(block->address) >> s->shift;
	while (s->slots[i].used) i = (i + 1) & s->mask;
	s->slots[i] = *block;
	s->slots[i].used = true;
}

static bool grow(struct tm_block_shard *s) {
	struct tm_block_shard bigger = { NULL, s->count, s->slots ? s->mask * 2 + 1 : FIRST_SLOTS - 1,
					 s->slots ? s->shift - 1 : FIRST_SHIFT };
	if (!allocate(&bigger)) return false;
	for (size_t i = 0; s->slots && i <= s->mask; i++)
		if (s->slots[i].used) place(&bigger, &s->slots[i]);
	give_back(s);
	*s = bigger;
	return true;
}

bool tm_blocks_insert(struct tm_blocks *b, const struct tm_block *block) {
	struct tm_block_shard *s = shard_of(b, hash(block->address));
	if ((!s->slots || (s->count + 1) * 10 > (s->mask + 1) * 7) && !grow(s)) return false;
	place(s, block);
	s->count++;
	b->count++;
	return true;
}

void tm_blocks_remove(struct tm_blocks *b, struct tm_block *found) {
	struct tm_block_shard *s = shard_of(b, hash(found->address));
	size_t hole = (size_t)(found - s->slots);
	for (size_t i = (hole + 1) & s->mask; s->slots[i].used; i = (i + 1) & s->mask) {
		size_t wanted = hash(s->slots[i].address) >> s->shift;
		/* A block may fill the hole if the hole lies between its home and where it stands. */
		if (((i - wanted) & s->mask) >= ((i - hole) & s->mask)) {
			s->slots[hole] = s->slots[i];
			hole = i;
		}
	}
	s->slots[hole].used = false;
	s->count--;
	b->count--;
}
