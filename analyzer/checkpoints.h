/* checkpoints.h - what lets any instant be answered without reading every allocation.
 *
 * Flow:     replay.c (at intervals, and for each row that is written) -> here -> level_rows.c -> tables checkpoint, checkpoint_live
 * Idea:     rows of allocation_packed come in the order in which blocks ended. A checkpoint is an instant and the row written last before it:
 *           rows up to that one had ended. A row behind it was live then if it was allocated before the instant; each such row is noted
 *           once, for the first checkpoint behind its allocation, as ranges of ids. What was live at any instant between two checkpoints is
 *           then among the rows written between the two, and the rows behind the later one that are noted for it or an earlier one; the
 *           rows' own times decide, so ranges may take in some rows too many.
 * Stacks:   where they are few, what each stack had live is kept as well. It is of use only if the order of events around the checkpoint was that of
 *           their times; what comes too late afterwards makes it `inexact`.
 * Owns:     the checkpoints of one trace, and two scratch files beside the database: for ranges that outgrow a small buffer, and for stacks.
 * Memory:   under a KiB a checkpoint. They are TM_CHECKPOINT_EVENTS apart at least, further where the trace is long.
 * Fails:    out of memory or a full disk is remembered in `error`, an errno.
 */
#ifndef TIDEMARK_ANALYZER_CHECKPOINTS_H
#define TIDEMARK_ANALYZER_CHECKPOINTS_H

#include "../schema/array.h"

#include <stdbool.h>
#include <stdint.h>

#define TM_CHECKPOINT_EVENTS (1u << 18)
#define TM_CHECKPOINT_CHUNK_BYTES 512u

struct tm_checkpoint {
	uint64_t ns, row;                  /* the trace's own time; the last row written before */
	uint64_t first, last;              /* range that may still grow; 0 none */
	uint64_t coded;                    /* last row of the range that was put before it */
	uint32_t first_chunk, final_chunk; /* in the file, number + 1; 0 none */
	uint32_t used;                     /* of chunk */
	bool has_stacks, inexact;
	uint64_t first_stack, stack_count; /* in the file of stacks */
	uint8_t chunk[TM_CHECKPOINT_CHUNK_BYTES];
};

struct tm_checkpoint_stack {
	uint32_t heap, stack; /* heap: id in the database */
	uint64_t bytes, count;
};

struct tm_checkpoints {
	const char *beside;
	TM_ARRAY(struct tm_checkpoint) items; /* by time */
	TM_ARRAY(uint32_t) next_chunk;        /* for each chunk of the file: number + 1 of the next one of its checkpoint, 0 none */
	uint64_t latest_ns;                   /* of the last one; 0 before it */
	uint64_t latest_row;
	TM_ARRAY(struct tm_checkpoint_stack) stacks; /* of the one being taken, or read */
	uint64_t stacks_written;
	int fd, stack_fd, error;
};

/* beside: a path in the directory where the scratch file may be made; must outlive it. */
void tm_checkpoints_init(struct tm_checkpoints *c, const char *beside);
void tm_checkpoints_release(struct tm_checkpoints *c);
/* ns: not before the last one. */
void tm_checkpoints_take(struct tm_checkpoints *c, uint64_t ns, uint64_t row);
void tm_checkpoints_note(struct tm_checkpoints *c, uint64_t alloc_ns, uint64_t row);

/* A row was written, of a block that was allocated then. */
static inline void tm_checkpoints_row(struct tm_checkpoints *c, uint64_t alloc_ns, uint64_t row) {
	if (alloc_ns < c->latest_ns) tm_checkpoints_note(c, alloc_ns, row);
}

/* The last one also keeps what is in c->stacks, which the caller filled. */
void tm_checkpoints_keep_stacks(struct tm_checkpoints *c);
/* Fills c->stacks with what was kept, in the order of heaps and stacks. */
void tm_checkpoints_read_stacks(struct tm_checkpoints *c, size_t index);

/* An event of this time took effect only now. */
static inline void tm_checkpoints_late(struct tm_checkpoints *c, uint64_t ns) {
	if (ns >= c->latest_ns) return;
	for (size_t i = c->items.count; i-- && c->items.items[i].ns > ns;) c->items.items[i].inexact = true;
}

/* Calls back for every range of a checkpoint in the order of rows. After the last row; once for each checkpoint. */
void tm_checkpoints_each(struct tm_checkpoints *c, size_t index, void (*range)(void *context, uint64_t first, uint64_t last),
			 void *context);

#endif
