/* blocks.h - the blocks of one heap that are live, by address.
 *
 * Flow:     pairing.c -> here
 * Idea:     an allocation only has to see that its address is not live, and gets the room of the block that ended last, which is still in the cache:
 *           so a small table (a part of the address' hash, and which block it is) is looked at, and the blocks themselves only where they end.
 * Owns:     a table, 8 bytes a slot, 35 to 70 % full, and the blocks, 48 bytes each: what import's memory mostly consists of.
 * Pointers: a found block stays where it is until the next insertion or removal.
 */
#ifndef TIDEMARK_SCHEMA_BLOCKS_H
#define TIDEMARK_SCHEMA_BLOCKS_H

#include "array.h"

#define TM_SLACK_UNKNOWN UINT32_MAX

struct tm_block {
	uint64_t address;                     /* below 2^60 */
	uint64_t size_bytes : 48, chain : 16; /* as requested; chain: how often realloc has moved or resized it, at most 65,535 */
	uint64_t alloc_ns;
	uint64_t realloc_of;                  /* row id of the block it was, 0 none */
	uint32_t stack;                       /* row of the stack tree */
	uint32_t origin : 31, used : 1;       /* index of the (process, heap, thread, api) it comes from; used: it is live */
	uint32_t slack;                       /* usable - requested bytes, TM_SLACK_UNKNOWN */
	uint32_t scope : 31, step_is_odd : 1; /* scopes.h: the slot of its scope, 0 none; of what frees, that of the free */
};

struct tm_block_slot {
	uint32_t tag;    /* the upper half of the address' hash, whose uppermost bits choose the slot */
	uint32_t number; /* index of the block + 1; 0: free */
};

struct tm_blocks {
	struct tm_block_slot *slots;
	size_t count, mask;            /* mask + 1 slots, or none */
	unsigned shift;                /* of a tag: what is left is a slot */
	TM_ARRAY(struct tm_block) all; /* those that are `used` are live */
	uint32_t unused;               /* index + 1 of one that is not, its `stack` the next such; 0 none */
};

void tm_blocks_release(struct tm_blocks *b);
struct tm_block *tm_blocks_find(const struct tm_blocks *b, uint64_t address); /* NULL: not live */
/* The address must not be live. false: out of memory. */
bool tm_blocks_insert(struct tm_blocks *b, const struct tm_block *block);
void tm_blocks_remove(struct tm_blocks *b, struct tm_block *found);

/* Ask the memory for what will be looked for soon: the slot of an address; then the block itself. */
void tm_blocks_prefetch_slot(const struct tm_blocks *b, uint64_t address);
void tm_blocks_prefetch_block(const struct tm_blocks *b, uint64_t address);

#endif
