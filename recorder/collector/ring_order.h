/* ring_order.h - which ring is read next: the one whose oldest event is the oldest.
 *
 * Flow:     drain.c adds the rings that hold something, reads a block of the first, lets it sink to its new place
 * Idea:     what is read must wait, in tally.c, until nothing older can come from another ring. Read whole, one after the other, hundreds of full rings
 *           would wait in memory; read in this order, a block of each does. The order is about memory alone: a ring that lies about its times, as the
 *           program can write anything into it, harms nothing else.
 * Owns:     its array of rings, not the rings.
 * Threads:  the drainer's.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_RING_ORDER_H
#define TIDEMARK_RECORDER_COLLECTOR_RING_ORDER_H

#include "session.h"

#include <stddef.h>
#include <stdint.h>

struct tm_ring_view;

struct tm_ring_order {
	struct tm_ring_view **rings; /* a heap by order_ticks, the least on top */
	size_t count, capacity;
};

void tm_ring_order_release(struct tm_ring_order *o);
void tm_ring_order_add(struct tm_ring_order *o, struct tm_ring_view *r);
/* NULL: none is left. */
struct tm_ring_view *tm_ring_order_first(const struct tm_ring_order *o);
void tm_ring_order_drop_first(struct tm_ring_order *o);
/* Its order_ticks have grown. */
void tm_ring_order_sink_first(struct tm_ring_order *o);

/* When the first event of a ring between tail and head was begun, as far as it can be told; 0: it cannot. */
uint64_t tm_ring_next_ticks(const struct tm_session *s, uint32_t index, uint64_t tail, uint64_t head);

#endif
