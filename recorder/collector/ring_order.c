/* ring_order.c - a heap of rings by their oldest events: see ring_order.h. */
#include "ring_order.h"

#include "../../schema/events.h"
#include "drain.h"
#include "memory.h"

#include <stdlib.h>

void tm_ring_order_release(struct tm_ring_order *o) {
	free(o->rings);
	*o = (struct tm_ring_order){ 0 };
}

void tm_ring_order_add(struct tm_ring_order *o, struct tm_ring_view *r) {
	o->rings = tm_memory_grow(o->rings, &o->capacity, o->count + 1, sizeof o->rings[0]);
	size_t at = o->count++;
	for (; at && o->rings[(at - 1) / 2]->order_ticks > r->order_ticks; at = (at - 1) / 2) o->rings[at] = o->rings[(at - 1) / 2];
	o->rings[at] = r;
}

struct tm_ring_view *tm_ring_order_first(const struct tm_ring_order *o) {
	return o->count ? o->rings[0] : NULL;
}

void tm_ring_order_sink_first(struct tm_ring_order *o) {
	struct tm_ring_view *moved = o->rings[0];
	size_t at = 0;
	for (size_t child; (child = 2 * at + 1) < o->count; at = child) {
		if (child + 1 < o->count && o->rings[child + 1]->order_ticks < o->rings[child]->order_ticks) child++;
		if (o->rings[child]->order_ticks >= moved->order_ticks) break;
		o->rings[at] = o->rings[child];
	}
	o->rings[at] = moved;
}

void tm_ring_order_drop_first(struct tm_ring_order *o) {
	o->rings[0] = o->rings[--o->count];
	if (o->count) tm_ring_order_sink_first(o);
}

/* Where a record has the time of its begin, in words; its own time stands in word 1. */
static unsigned begin_word(uint8_t op) {
	unsigned class = TM_OP_CLASS(op);
	if (class == TM_CLASS_REALLOC || class == TM_CLASS_REMAP) return 4;
	return class == TM_CLASS_UNMAP ? 2 : 1;
}

uint64_t tm_ring_next_ticks(const struct tm_session *s, uint32_t index, uint64_t tail, uint64_t head) {
	const volatile uint64_t *words = (const volatile uint64_t *)tm_session_ring_data(s, index);
	uint64_t mask = tm_session_ring_bytes(s, index) - 1, word = words[(tail & mask) / 8];
	if ((uint8_t)word == TM_CTL_PAD) {
		tail += (word >> 16 & 0xffff) * 8;
		word = words[(tail & mask) / 8];
	}
	if (tail + 16 > head) return 0;
	uint64_t ticks = words[((tail + 8) & mask) / 8], begin = words[((tail + begin_word((uint8_t)word) * 8u) & mask) / 8];
	return begin < ticks ? begin : ticks;
}
