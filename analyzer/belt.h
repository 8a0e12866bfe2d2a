/* belt.h - items from one thread to another, in batches.
 *
 * Flow:     whoever makes items -> tm_belt_next() -> batches -> a thread that hands each batch to `take`
 * Idea:     a few batches go round: some wait for the thread, the one after those is being filled. Handing over a whole batch costs a lock, an item nothing.
 * Owns:     its batches and its thread.
 * Threads:  one maker; `take` runs on the belt's own thread.
 * When full: tm_belt_next() waits for the thread.
 */
#ifndef TIDEMARK_ANALYZER_BELT_H
#define TIDEMARK_ANALYZER_BELT_H

#include <stddef.h>
#include <stdint.h>

struct tm_belt_work;

struct tm_belt {
	uint8_t *at, *end; /* of the batch that is being filled */
	size_t item_bytes;
	struct tm_belt_work *work;
};

typedef void tm_belt_taker(void *context, const void *items, size_t count);

/* batches: 2 to TM_BELT_BATCHES_MAX; the more there are, the longer either thread goes on while the other one is slow. 0 or -1: out of memory, or no
 * thread could be made. Finish after success. */
#define TM_BELT_BATCHES_MAX 32u
int tm_belt_start(struct tm_belt *r, size_t item_bytes, size_t batch_items, unsigned batches, tm_belt_taker *take, void *context);
void tm_belt_hand_over(struct tm_belt *r);
/* Waits until all items are taken. */
void tm_belt_settle(struct tm_belt *r);
/* The same, and ends the thread. Does nothing where none was started. */
void tm_belt_finish(struct tm_belt *r);

/* Where the next item is to be written; it counts as given with the next call, to whichever of these functions. */
static inline void *tm_belt_next(struct tm_belt *r) {
	if (r->at == r->end) tm_belt_hand_over(r);
	void *item = r->at;
	r->at += r->item_bytes;
	return item;
}

#endif
