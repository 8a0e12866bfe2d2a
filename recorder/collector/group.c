/* group.c - collecting what is to be written together: see group.h. */
#include "group.h"

#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_BLOCK_BYTES (64u << 10)
#define KEPT_EVENTS (2 * TM_GROUP_EVENTS) /* room for events that an empty group keeps */

struct tm_text_block {
	struct tm_text_block *next;
	size_t used, capacity;
	char bytes[];
};

static void free_texts(struct tm_group *g) {
	while (g->texts) {
		struct tm_text_block *next = g->texts->next;
		free(g->texts);
		g->texts = next;
	}
}

void tm_group_release(struct tm_group *g) {
	for (size_t i = 0; i < g->segment_capacity; i++) {
		free(g->segments[i].events);
		tm_encoder_free(g->segments[i].encoder);
	}
	free(g->segments);
	free(g->meta);
	free(g->activities);
	free(g->threads);
	free(g->frames);
	tm_bytes_release(&g->nodes.parents);
	tm_bytes_release(&g->nodes.frames);
	free_texts(g);
	tm_bytes_release(&g->names);
	tm_bytes_release(&g->payload);
	free(g);
}

static void shrink_segments(struct tm_group *g) {
	size_t kept = 0;
	for (size_t i = 0; i < g->segment_capacity; i++) {
		struct tm_segment_buffer *s = &g->segments[i];
		kept += s->capacity;
		s->count = 0;
		if (kept <= KEPT_EVENTS) continue;
		free(s->events);
		kept -= s->capacity;
		s->events = NULL;
		s->capacity = 0;
	}
}

void tm_group_clear(struct tm_group *g) {
	free_texts(g);
	shrink_segments(g);
	g->meta_count = g->meta_bytes = 0;
	g->frame_count = g->nodes.count = 0;
	g->nodes.last_frame = 0;
	tm_bytes_clear(&g->nodes.parents);
	tm_bytes_clear(&g->nodes.frames);
	g->segment_count = g->event_count = g->text_count = g->double_count = g->activity_count = 0;
	g->thread_count = 0;
	tm_bytes_clear(&g->names);
	g->opened_ns = g->end_ns = 0;
	g->dump = false;
}

void tm_group_keep_segments(struct tm_group *to, struct tm_group *from) {
	struct tm_segment_buffer *segments = to->segments;
	size_t capacity = to->segment_capacity;
	shrink_segments(from);
	to->segments = from->segments;
	to->segment_capacity = from->segment_capacity;
	from->segments = segments;
	from->segment_capacity = capacity;
	from->segment_count = 0;
}

static void note_opening(struct tm_group *g) {
	if (!g->opened_ns) g->opened_ns = tm_monotonic_ns();
}

void tm_group_name_frame(struct tm_group *g, uint64_t frame, const struct tm_function *functions, size_t count) {
	note_opening(g);
	tm_put_name(&g->names, frame, functions, count);
}

struct tm_meta *tm_group_add(struct tm_group *g, enum tm_record_tag tag) {
	note_opening(g);
	g->meta = tm_memory_grow(g->meta, &g->meta_capacity, g->meta_count + 1, sizeof g->meta[0]);
	struct tm_meta *m = &g->meta[g->meta_count++];
	memset(m, 0, sizeof *m);
	m->tag = tag;
	g->meta_bytes += 64;
	return m;
}

struct tm_text tm_group_text(struct tm_group *g, const char *data, size_t n) {
	struct tm_text_block *block = g->texts;
	if (!block || block->capacity - block->used < n) {
		size_t capacity = n > TEXT_BLOCK_BYTES ? n : TEXT_BLOCK_BYTES;
		block = tm_memory_resize(NULL, sizeof *block + capacity, 1);
		block->used = 0;
		block->capacity = capacity;
		block->next = g->texts;
		g->texts = block;
	}
	char *copy = block->bytes + block->used;
	if (n) memcpy(copy, data, n);
	block->used += n;
	g->meta_bytes += n;
	return (struct tm_text){ copy, n };
}

size_t tm_group_add_segment(struct tm_group *g, uint32_t thread, uint32_t process) {
	note_opening(g);
	if (g->segment_count == g->segment_capacity) {
		size_t old = g->segment_capacity;
		g->segments = tm_memory_grow(g->segments, &g->segment_capacity, old + 1, sizeof g->segments[0]);
		memset(g->segments + old, 0, (g->segment_capacity - old) * sizeof g->segments[0]);
	}
	struct tm_segment_buffer *s = &g->segments[g->segment_count];
	s->thread = thread;
	s->process = process;
	s->count = s->settled = 0;
	return g->segment_count++;
}

struct tm_activity *tm_group_add_activity(struct tm_group *g, uint32_t process) {
	note_opening(g);
	g->activities = tm_memory_grow(g->activities, &g->activity_capacity, g->activity_count + 1, sizeof g->activities[0]);
	struct tm_group_activity *a = &g->activities[g->activity_count++];
	memset(a, 0, sizeof *a);
	a->process = process;
	return &a->activity;
}

void tm_group_add_note(struct tm_group *g, uint64_t process, uint64_t ticks, const char *kind, const char *text) {
	struct tm_meta *m = tm_group_add(g, TM_RECORD_NOTE);
	m->note.process = process;
	m->note.ns = ticks;
	m->note.kind = tm_group_text(g, kind, strlen(kind));
	m->note.text = tm_group_text(g, text, strlen(text));
}
