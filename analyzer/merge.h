/* merge.h - the events of all threads in the order of time.
 *
 * Flow:     ahead.c (batches of per-thread segments) -> here -> replay.c, one step at a time
 * Idea:     steps of one thread keep their order; those of different threads come by time, at equal times releases first, then allocations, then marks,
 *           steps, scopes and the like: a block is live from alloc_ns on and no longer at free_ns, for levels, peaks and kept instants as for whoever
 *           asks the rows. pairing.h waits for the allocation where a block went from one thread to another within the nanosecond. What lies below the
 *           watermark is handed out, the rest waits for more batches.
 * When full: a thread that stands still in the middle of an event (a handler that sleeps, a process that is stopped) holds the watermark. Of more than
 *           waiting_max steps that wait the least are handed out all the same, and those that the newest one has left behind by patience_ns. What comes
 *           late takes its turn when it comes, with its own time: see tm_merge_is_late().
 * Owns:     the batches given to it, until their last event is out.
 * Memory:   the events between the slowest thread's watermark, less hold_ns, and the newest chunk; at most about waiting_max and a chunk.
 * Fails:    only tm_merge_init() and tm_merge_grow() can.
 */
#ifndef TIDEMARK_ANALYZER_MERGE_H
#define TIDEMARK_ANALYZER_MERGE_H

#include "ahead.h"

#define TM_MERGE_WAITING_MAX ((size_t)1 << 20)

struct tm_turn {
	const struct tm_step *step; /* valid until the next turn */
	const struct tm_step *end;  /* behind the last step of its thread that is at hand: [step, end) will come in this order */
	uint64_t ns;                /* never decreases; later than step->ns where that came late */
	uint32_t thread;            /* id in the trace */
};

struct tm_stream;

struct tm_merge {
	struct tm_stream *streams; /* one a thread */
	uint32_t *queue;           /* binary heap of thread indexes by the time of their next step */
	size_t thread_count, queued;
	uint64_t watermark_ns, now_ns;
	uint64_t hold_ns; /* what is handed out is older than the watermark by so much: so far ahead tm_merge_comes() sees everything */
	size_t waiting, waiting_max; /* steps of all threads; tm_merge_init() sets how many may be */
	uint64_t newest_ns;          /* of those that came, or what their taker knows to be the time */
	uint64_t patience_ns;        /* 0: only waiting_max ends it */
	uint64_t early_ns;           /* the latest that was handed out unpromised; 0: all came in order */
	bool turning; /* the step handed out last has not been advanced over yet */
};

/* 0 or -1: out of memory. Release after either. */
int tm_merge_init(struct tm_merge *m, size_t thread_count);
/* Room for at least so many threads; what is at hand stays. 0 or -1: out of memory. */
int tm_merge_grow(struct tm_merge *m, size_t thread_count);
void tm_merge_release(struct tm_merge *m);
/* Takes the batch over. */
void tm_merge_add(struct tm_merge *m, struct tm_batch *batch);
/* No more batches will come: everything may be handed out. */
void tm_merge_end(struct tm_merge *m);
/* false: nothing below the watermark is left, and what is above it can wait. */
bool tm_merge_next(struct tm_merge *m, struct tm_turn *out);

/* What was done after it may have been handed out before it. */
static inline bool tm_merge_is_late(const struct tm_merge *m, const struct tm_step *s) {
	return s->ns < m->early_ns;
}

typedef bool tm_merge_test(void *context, uint32_t thread, const struct tm_step *step);
/* True if a step with this address that passes the test, stamped at until_ns at the latest, is at hand behind those handed out. In each thread the steps until
 * then are looked at, and a few behind them, among which one may come late, but none behind late_ns. */
bool tm_merge_comes(const struct tm_merge *m, uint64_t address, uint64_t until_ns, uint64_t late_ns, tm_merge_test *test, void *context);

#endif
