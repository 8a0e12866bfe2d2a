/* ahead.h - decodes a trace's events, a few chunks ahead of whoever uses them.
 *
 * Flow:     catalog.c (where the chunks are) -> here, a thread of its own -> batches -> merge.c
 * Owns:     its thread and the batches; one that was taken is its taker's until it is given back, to be filled again.
 * One thread: where a trace has only one, it needs no merging, and batches are pieces of a chunk that stay in the cache.
 * When full: TM_AHEAD_BATCHES decoded batches wait, fewer where they are large; then the thread does.
 * Stacks:   the rows that stand for them are looked up here, as that is memory far apart, for which whoever plays the events would wait.
 * Checks:   that the ids of an event are defined, so that users need not.
 */
#ifndef TIDEMARK_ANALYZER_AHEAD_H
#define TIDEMARK_ANALYZER_AHEAD_H

#include "../schema/blocks.h"
#include "stack_ids.h"

#include "../schema/events.h"

#define TM_AHEAD_BATCHES 2u
#define TM_AHEAD_OUT_MAX 3u /* batches at a time, some of 10 MB each; more only when the taker can do nothing with those that it has */
#define TM_AHEAD_PIECES_OUT_MAX 4u /* likewise, of pieces: they are small, and with one more neither thread waits for the other's waking */
#define TM_AHEAD_PIECE_STEPS 16384u

enum tm_step_kind { TM_STEP_ALLOC, TM_STEP_FREE, TM_STEP_MAP, TM_STEP_UNMAP, TM_STEP_MARK, TM_STEP_SCOPE, TM_STEP_GPU };

/* What an event does at one instant. A realloc or mremap is two steps: what it gives back at `begin`, what it makes at `time`. */
struct tm_step {
	uint64_t ns;
	uint64_t address;    /* TM_STEP_MARK: the string's id; TM_STEP_SCOPE, TM_STEP_GPU: the key */
	uint64_t size_bytes; /* of what is allocated, mapped or unmapped; TM_STEP_SCOPE, TM_STEP_GPU: the link */
	uint32_t stack;      /* of what is allocated or mapped: the row of its stack; of tm_batch_decode() the trace's node. TM_STEP_SCOPE, _GPU: the name's
			      * string id */
	uint32_t heap;       /* 0: the default; TM_STEP_SCOPE: the category's string id */
	uint32_t slack;      /* TM_STEP_ALLOC: usable - requested bytes, TM_SLACK_UNKNOWN */
	uint8_t op;          /* enum tm_op */
	uint8_t kind;        /* enum tm_step_kind */
	bool follows;        /* the second step of its event */
};

struct tm_batch_segment {
	struct tm_batch_segment *next; /* for the taker's use */
	struct tm_batch *batch;
	uint32_t thread;     /* id in the trace */
	size_t count, first; /* of batch->steps */
};

/* One EVENTS chunk or a piece of it, or a watermark alone. */
struct tm_batch {
	struct tm_ahead *home; /* NULL: it came from calloc() */
	struct tm_batch *next_spare;
	uint64_t watermark_ns;
	uint64_t bytes_done;  /* stored bytes of EVENTS chunks so far, the whole of this one included */
	size_t open_segments; /* for the taker's use; starts at the number of segments */
	TM_ARRAY(struct tm_batch_segment) segments;
	TM_ARRAY(struct tm_step) steps;
};

enum tm_ahead_result {
	TM_AHEAD_BATCH = 1,
	TM_AHEAD_END = 0,
	TM_AHEAD_DAMAGED = -1, /* the chunk at *damaged_offset does not parse */
	TM_AHEAD_NO_MEMORY = -2,
};

struct tm_ahead;

/* NULL: out of memory, or no thread could be made. Catalog and stacks must outlive it. The reader is the thread's until tm_ahead_stop(). */
struct tm_ahead *tm_ahead_start(const struct tm_catalog *catalog, const struct tm_stack_ids *stacks, struct tm_reader *reader);
int tm_ahead_next(struct tm_ahead *a, struct tm_batch **out, uint64_t *damaged_offset);
void tm_ahead_stop(struct tm_ahead *a);      /* at any time, when all batches were given back; NULL is allowed */
void tm_batch_give_back(struct tm_batch *b); /* one without a home is freed */

/* The payload of one EVENTS chunk into an empty batch: TM_AHEAD_BATCH, _DAMAGED or _NO_MEMORY. For whoever follows a trace that is still written
 * (live.c), and uses batches without a home. */
int tm_batch_decode(struct tm_batch *b, const struct tm_catalog *c, struct tm_decoder *decoder, struct tm_cursor *payload);

#endif
