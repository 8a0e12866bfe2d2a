/* ahead.h - decodes a trace's events, a few chunks ahead of whoever uses them.
 *
 * Flow:     catalog.c (where the chunks are) -> here, a thread of its own -> batches -> merge.c
 * Owns:     its reader, its thread and the batches that are not taken yet; a batch that was taken belongs to its taker.
 * When full: TM_AHEAD_BATCHES decoded batches wait; then the thread does.
 * Checks:   that the ids of an event are defined, so that users need not.
 */
#ifndef TIDEMARK_ANALYZER_AHEAD_H
#define TIDEMARK_ANALYZER_AHEAD_H

#include "catalog.h"

#include "../schema/events.h"

#define TM_AHEAD_BATCHES 2u

struct tm_batch_segment {
	struct tm_batch_segment *next; /* for the taker's use */
	struct tm_batch *batch;
	uint32_t thread;     /* id in the trace */
	size_t count, first; /* of batch->events */
};

/* One EVENTS chunk, or a watermark alone. */
struct tm_batch {
	uint64_t watermark_ns;
	uint64_t bytes_done;  /* stored bytes of EVENTS chunks so far, this one included */
	size_t open_segments; /* for the taker's use; starts at the number of segments */
	TM_ARRAY(struct tm_batch_segment) segments;
	TM_ARRAY(struct tm_event) events;
};

enum tm_ahead_result {
	TM_AHEAD_BATCH = 1,
	TM_AHEAD_END = 0,
	TM_AHEAD_DAMAGED = -1, /* the chunk at *damaged_offset does not parse */
	TM_AHEAD_NO_MEMORY = -2,
};

struct tm_ahead;

/* NULL: out of memory, or no thread could be made. The catalog must outlive it. The reader is the thread's until tm_ahead_stop(). */
struct tm_ahead *tm_ahead_start(const struct tm_catalog *catalog, struct tm_reader *reader);
int tm_ahead_next(struct tm_ahead *a, struct tm_batch **out, uint64_t *damaged_offset);
void tm_ahead_stop(struct tm_ahead *a); /* at any time; NULL is allowed */
void tm_batch_free(struct tm_batch *b);

#endif
