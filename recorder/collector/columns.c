/* columns.c - events become columns while they are read: see columns.h. */
#include "columns.h"

#include "collector.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define BATCH_EVENTS 512u
#define PAYLOAD_KEPT_BYTES (8u << 20) /* by a group for its next use */

int tm_columns_init(struct tm_columns *t) {
	memset(t, 0, sizeof *t);
	t->spare = tm_encoder_new();
	return t->spare ? 0 : -1;
}

void tm_columns_release(struct tm_columns *t) {
	while (t->idle_count) tm_encoder_free(t->idle[--t->idle_count]);
	tm_encoder_free(t->spare);
	free(t->threads);
	memset(t, 0, sizeof *t);
}

static struct tm_column_thread *thread_of(struct tm_columns *t, uint32_t thread) {
	if (thread >= t->thread_count) {
		t->threads = tm_memory_grow(t->threads, &t->thread_capacity, thread + 1u, sizeof t->threads[0]);
		memset(t->threads + t->thread_count, 0, (thread + 1u - t->thread_count) * sizeof t->threads[0]);
		t->thread_count = thread + 1u;
	}
	return &t->threads[thread];
}

size_t tm_columns_segment(struct tm_collector *c, uint32_t thread, uint32_t process) {
	struct tm_column_thread *known = thread_of(&c->columns, thread);
	if (known->group_serial != c->group->serial) {
		known->segment = (uint32_t)tm_group_add_segment(c->group, thread, process);
		known->group_serial = c->group->serial;
		struct tm_segment_buffer *s = &c->group->segments[known->segment];
		s->allocations = (struct tm_tally_segment){ .next = ++c->columns.segments << TM_TALLY_SEGMENT_BITS };
		s->told = true;
	}
	return known->segment;
}

/* --- times --- */

/* The stamps of a batch nearly all lie between the same two knots: what tm_time_map_ns() says, without its search. */
struct stretch {
	struct tm_knot from;
	uint64_t ticks; /* so many belong to it; 0: none was looked for */
};

static struct stretch stretch_at(const struct tm_time_map *map, uint64_t ticks) {
	uint32_t i = tm_time_map_knot(map, ticks);
	uint64_t end = i + 1 < map->count ? map->knots[i + 1].ticks : map->end_ticks;
	if (ticks < map->knots[i].ticks || ticks >= end) return (struct stretch){ .ticks = 0 };
	return (struct stretch){ map->knots[i], end - map->knots[i].ticks };
}

static inline uint64_t ns_at(const struct tm_time_map *map, struct stretch *s, uint64_t ticks) {
	if (ticks - s->from.ticks < s->ticks) return tm_knot_ns(&s->from, ticks);
	*s = stretch_at(map, ticks);
	return tm_time_map_ns(map, ticks);
}

/* Allocations and frees have one time only. */
static inline bool has_begin(uint8_t op) {
	return TM_OP_CLASS(op) > TM_CLASS_FREE;
}

static void set_begin(struct tm_event *e, const struct tm_time_map *map, uint64_t ticks, uint64_t floor) {
	uint64_t begin = e->begin_ns == ticks ? e->time_ns : tm_time_map_ns(map, e->begin_ns);
	if (begin < floor) begin = floor;
	e->begin_ns = begin < e->time_ns ? begin : e->time_ns;
}

static void convert(struct tm_collector *c, const struct tm_segment_buffer *s) {
	const struct tm_time_map *map = &c->timebase.map;
	struct stretch stretch = { .ticks = 0 };
	struct tm_column_thread *thread = thread_of(&c->columns, s->thread);
	uint64_t floor = c->columns.promised_ns, previous = thread->last_ns > floor ? thread->last_ns : floor;
	for (struct tm_event *e = s->events + s->settled, *end = s->events + s->count; e < end; e++) {
		uint64_t ns = ns_at(map, &stretch, e->time_ns), ticks = e->time_ns;
		if (ns < previous) ns = previous;
		e->time_ns = previous = ns;
		if (has_begin(e->op)) set_begin(e, map, ticks, floor);
	}
	thread->last_ns = previous;
	if (previous > c->group->end_ns) c->group->end_ns = previous;
}

static void settle(struct tm_collector *c, struct tm_segment_buffer *s) {
	if (s->settled == s->count) return;
	tm_timebase_extend(&c->timebase);
	convert(c, s);
	tm_tally_add(c->tally, s->process, s->thread, s->events + s->settled, s->count - s->settled, s->told ? &s->allocations : NULL);
	s->settled = s->count;
}

void tm_columns_settle(struct tm_collector *c) {
	for (size_t i = 0; i < c->group->segment_count; i++) settle(c, &c->group->segments[i]);
}

/* --- columns --- */

static struct tm_encoder *take_encoder(struct tm_columns *t) {
	if (t->idle_count) return t->idle[--t->idle_count];
	struct tm_encoder *e = t->made < TM_ENCODERS_MAX ? tm_encoder_new() : NULL;
	if (e) t->made++;
	return e;
}

static void encode(struct tm_segment_buffer *s) {
	if (s->told) tm_encoder_add_told(s->encoder, s->events, s->count);
	else tm_encoder_add(s->encoder, s->events, s->count);
	s->count = s->settled = 0;
}

void tm_columns_make_room(struct tm_collector *c, struct tm_segment_buffer *s) {
	if (s->count >= BATCH_EVENTS) {
		bool first = !s->encoder;
		settle(c, s);
		if (first) s->encoder = take_encoder(&c->columns);
		if (first) s->told = s->told && s->encoder && !s->allocations.waited;
		if (first && s->encoder) tm_encoder_begin(s->encoder, s->events[0].time_ns);
		if (s->encoder) {
			encode(s);
			return;
		}
	}
	s->events = tm_memory_grow(s->events, &s->capacity, s->count + 1, sizeof s->events[0]);
}

static void finish_segment(struct tm_collector *c, struct tm_group *g, struct tm_segment_buffer *s) {
	struct tm_columns *t = &c->columns;
	settle(c, s);
	if (!s->encoder) {
		tm_encode_segment(t->spare, &g->payload, s->thread, s->events[0].time_ns, s->events, s->count);
		return;
	}
	encode(s);
	tm_encoder_finish(s->encoder, &g->payload, s->thread);
	t->idle[t->idle_count++] = s->encoder;
	s->encoder = NULL;
}

void tm_columns_finish(struct tm_collector *c, struct tm_group *g) {
	uint64_t watermark_ns = tm_time_map_ns(&g->time_map, c->watermark_ticks);
	size_t filled = 0;
	if (watermark_ns < c->columns.promised_ns) watermark_ns = c->columns.promised_ns;
	for (size_t i = 0; i < g->segment_count; i++) filled += g->segments[i].count || g->segments[i].encoder;
	if (g->payload.capacity > PAYLOAD_KEPT_BYTES) tm_bytes_release(&g->payload);
	tm_bytes_clear(&g->payload);
	if (!filled && watermark_ns == c->columns.promised_ns) return;
	tm_put_events_header(&g->payload, watermark_ns, filled);
	g->threads = tm_memory_grow(g->threads, &g->thread_capacity, filled, sizeof g->threads[0]);
	for (size_t i = 0; i < g->segment_count; i++) {
		struct tm_segment_buffer *s = &g->segments[i];
		if (!s->count && !s->encoder) continue;
		g->threads[g->thread_count++] = s->thread;
		finish_segment(c, g, s);
	}
	c->columns.promised_ns = watermark_ns;
}
