/* device_blocks.h - the live blocks of one heap of a device in the order of their addresses, and what has used them.
 *
 * Flow:     gpu_watch.c -> here
 * Idea:     work on a device names addresses inside of blocks, so a hash of beginnings (blocks.h) does not do: this is a treap.
 * Owns:     about 130 bytes a live block. A block's place is good until the next insertion.
 * Fails:    with NULL: out of memory.
 */
#ifndef TIDEMARK_ANALYZER_DEVICE_BLOCKS_H
#define TIDEMARK_ANALYZER_DEVICE_BLOCKS_H

#include "../schema/array.h"

struct tm_device_block {
	uint64_t address, end, alloc_ns;
	uint64_t uses, first_use_ns, last_use_ns;
	uint64_t idle_ns, idle_from_ns;               /* longest time between two uses in a row */
	uint64_t launches, first_launch, last_launch; /* number of the process' launches at its allocation, its first and its last use */
	uint64_t idle_launches;                       /* launches in that longest time */
	uint32_t tenants;                             /* blocks of an allocator's heap that have begun inside of it */
	uint32_t left, right;                         /* number of a block, 0 none */
	uint32_t priority;
	bool joins; /* with those of its kind that lie side by side with it */
};

struct tm_device_blocks {
	TM_ARRAY(struct tm_device_block) all; /* number - 1; those that are gone are chained by `left` */
	uint32_t root, gone, random;
};

void tm_device_blocks_release(struct tm_device_blocks *d);
/* The block at this address must not be there. */
struct tm_device_block *tm_device_blocks_insert(struct tm_device_blocks *d, uint64_t address, uint64_t size_bytes);
/* The block that begins last at or before the address, if it reaches behind it; NULL: none. */
struct tm_device_block *tm_device_blocks_find(struct tm_device_blocks *d, uint64_t address);
/* Takes out the block that begins there; false: there is none. */
bool tm_device_blocks_take(struct tm_device_blocks *d, uint64_t address, struct tm_device_block *out);
/* In the order of their addresses. */
void tm_device_blocks_each(const struct tm_device_blocks *d, void (*visit)(void *context, const struct tm_device_block *b), void *context);

#endif
