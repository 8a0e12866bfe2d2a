/* blocks.h - the blocks of one heap that are live, by address.
 *
 * Flow:     pairing.c -> here
 * Owns:     sixteen open-addressing tables, 48 bytes a slot, 35 to 70 % full: what import's memory mostly consists of. They are several so
 *           that growing needs room for a sixteenth of the blocks a second time, not for all.
 * Pointers: a found block stays where it is until the next insertion or removal.
 */
#ifndef TIDEMARK_ANALYZER_BLOCKS_H
#define TIDEMARK_ANALYZER_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TM_SLACK_UNKNOWN UINT32_MAX

struct tm_block {
	uint64_t address;    /* below 2^60 */
	uint64_t size_bytes : 48, chain : 16; /* as requested; chain: how often realloc has moved or resized it, at most 65,535 */
	uint64_t alloc_ns;
	uint64_t realloc_of;                  /* row id of the block it was, 0 none */
	uint32_t site;                        /* index into its account's sites */
	uint32_t origin : 31, used : 1;       /* index of the (process, heap, thread, api) it comes from; used: the slot holds a block */
	uint32_t slack;                       /* usable - requested bytes, TM_SLACK_UNKNOWN */
	uint32_t scope : 31, step_is_odd : 1; /* scopes.h: the slot of its scope, 0 none; of what frees, that of the free */
};

#define TM_BLOCK_SHARDS 16u

struct tm_block_shard {
	struct tm_block *slots;
	size_t count, mask; /* mask + 1 slots, or none */
	unsigned shift;     /* of a hash: what is left is a slot */
};

struct tm_blocks {
	struct tm_block_shard shards[TM_BLOCK_SHARDS];
	size_t count;
};

void tm_blocks_release(struct tm_blocks *b);
struct tm_block *tm_blocks_find(const struct tm_blocks *b, uint64_t address); /* NULL: not live */
/* The address must not be live. false: out of memory. */
bool tm_blocks_insert(struct tm_blocks *b, const struct tm_block *block);
void tm_blocks_remove(struct tm_blocks *b, struct tm_block *found);
/* Asks the memory for the slot of an address that will be looked for soon. */
void tm_blocks_prefetch(const struct tm_blocks *b, uint64_t address);

#endif
