/* names_early.c - addresses that get their names while the program still runs: see names_early.h. */
#include "recorder/collector/names_early.h"

#include "recorder/collector/collector.h"
#include "recorder/collector/controls.h"
#include "recorder/collector/debuginfo.h"
#include "recorder/collector/drain.h"
#include "recorder/collector/memory.h"
#include "recorder/collector/names_ahead.h"
#include "schema/records.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS_FIRST 4096u
#define GROUP_BYTES (1u << 20) /* of names */

/* --- spots --- */

static uint32_t *slot_of(const struct tm_names_early *e, uint32_t file, uint64_t offset) {
	uint64_t key = offset ^ (uint64_t)file << 40;
	size_t at = (size_t)((key ^ key >> 32) * 0x9E3779B97F4A7C15u >> 32) & e->slot_mask;
	while (e->slots[at] && (e->spots[e->slots[at] - 1].offset != offset || e->spots[e->slots[at] - 1].file != file)) at = (at + 1) & e->slot_mask;
	return &e->slots[at];
}

static void make_room(struct tm_names_early *e) {
	if (e->slots && 2 * e->spot_count < e->slot_mask) return;
	free(e->slots);
	e->slot_mask = e->slot_mask ? 2 * e->slot_mask + 1 : SLOTS_FIRST - 1;
	e->slots = tm_memory_new(e->slot_mask + 1, sizeof e->slots[0]);
	for (size_t i = 0; i < e->spot_count; i++) *slot_of(e, e->spots[i].file, e->spots[i].offset) = (uint32_t)i + 1;
}

/* A chunk has a bound, and a library's spots may be those of a thousand processes. */
static void name_frame(struct tm_collector *c, const struct tm_early_spot *s, size_t frame) {
	struct tm_names_early *e = &c->ahead.early;
	e->has_names[frame] = true;
	if (!s->count) return;
	if (c->group->names.size >= GROUP_BYTES) tm_drain_close_group(c, true);
	tm_group_name_frame(c->group, frame + 1, e->functions + s->first, s->count);
	e->frames_named++;
}

static void know_frame(struct tm_names_early *e, size_t frame) {
	size_t before = e->frame_capacity, had = e->has_capacity;
	e->waiting = tm_memory_grow(e->waiting, &e->frame_capacity, frame + 1, sizeof e->waiting[0]);
	e->has_names = tm_memory_grow(e->has_names, &e->has_capacity, frame + 1, sizeof e->has_names[0]);
	if (e->frame_capacity > before) memset(e->waiting + before, 0, (e->frame_capacity - before) * sizeof e->waiting[0]);
	if (e->has_capacity > had) memset(e->has_names + had, 0, e->has_capacity - had);
}

bool tm_names_early_note(struct tm_collector *c, uint32_t file, uint64_t offset, size_t frame, bool may_ask, uint32_t *spot) {
	struct tm_names_early *e = &c->ahead.early;
	make_room(e);
	uint32_t *slot = slot_of(e, file, offset);
	bool is_new = !*slot;
	if (is_new && (!may_ask || e->spot_count == TM_EARLY_SPOTS_MAX || c->strings.bytes > TM_EARLY_TEXT_BYTES || c->strings.too_many)) return false;
	if (is_new) {
		e->spots = tm_memory_grow(e->spots, &e->spot_capacity, e->spot_count + 1, sizeof e->spots[0]);
		e->spots[e->spot_count++] = (struct tm_early_spot){ .offset = offset, .file = file };
		*slot = (uint32_t)e->spot_count;
	}
	*spot = *slot - 1;
	struct tm_early_spot *s = &e->spots[*spot];
	know_frame(e, frame);
	if (s->answered) {
		name_frame(c, s, frame);
		return false;
	}
	e->waiting[frame] = s->waiting;
	s->waiting = (uint32_t)frame + 1;
	return is_new;
}

/* --- questions and answers --- */

bool tm_names_early_ask(struct tm_ahead_reader *r, uint32_t file, const struct tm_early_question *asked, size_t n) {
	struct tm_early_questions *q = &r->questions;
	size_t turn = tm_names_stream_expect(&r->stream, n);
	if (turn == SIZE_MAX) return false;
	q->files = tm_memory_grow(q->files, &q->turn_capacity, turn + 1, sizeof q->files[0]);
	q->files[turn] = file;
	q->spots = tm_memory_grow(q->spots, &q->spot_capacity, q->spot_count + n, sizeof q->spots[0]);
	for (size_t i = 0; i < n; i++) q->spots[q->spot_count++] = asked[i].spot;
	return true;
}

/* The first time, what there is to say of the file is said. */
static void take_opening(struct tm_collector *c, struct tm_ahead_reader *r, struct tm_ahead_file *f, const struct tm_names_message *m) {
	struct tm_cursor content = m->content;
	uint64_t error = tm_get_varint(&content);
	struct tm_text remark = tm_get_string(&content);
	if (error || content.bad) {
		f->early.refused = true;
		r->questions.taken += r->stream.answers[m->turn]; /* none of them comes */
		return;
	}
	if (f->early.told) return;
	f->early.told = true;
	c->ahead.early.files_told++;
	char text[1024];
	if (!remark.size || remark.size >= sizeof text) return;
	memcpy(text, remark.data, remark.size);
	text[remark.size] = 0;
	tm_group_add_note(c->group, c->modules.all[f->module - 1].process, tm_timebase_ticks(&c->timebase), "names", text);
}

static uint64_t text_id(const struct tm_early_file *f, uint64_t number) {
	return number && number <= f->text_count ? f->texts[number - 1] : 0;
}

static void take_texts(struct tm_collector *c, struct tm_early_file *f, struct tm_cursor *answer) {
	for (uint64_t texts = tm_get_varint(answer); texts && !answer->bad; texts--) {
		struct tm_text text = tm_get_string(answer);
		if (answer->bad) return;
		f->texts = tm_memory_grow(f->texts, &f->text_capacity, f->text_count + 1, sizeof f->texts[0]);
		f->texts[f->text_count++] = tm_intern(c, text.data, text.size);
	}
}

static void take_answer(struct tm_collector *c, struct tm_early_file *f, struct tm_early_spot *s, struct tm_cursor answer) {
	struct tm_names_early *e = &c->ahead.early;
	take_texts(c, f, &answer);
	if (c->strings.too_many) return; /* the end has room for its texts */
	s->first = (uint32_t)e->function_count;
	for (s->count = 0; answer.p < answer.end && !answer.bad && s->count < TM_DEBUGINFO_MAX_CHAIN; s->count++) {
		uint64_t function = text_id(f, tm_get_varint(&answer)), file = text_id(f, tm_get_varint(&answer)), line = tm_get_varint(&answer);
		e->functions = tm_memory_grow(e->functions, &e->function_capacity, e->function_count + 1, sizeof e->functions[0]);
		e->functions[e->function_count++] = (struct tm_function){ function, file, line };
	}
	s->answered = true;
	for (uint32_t frame = s->waiting; frame; frame = e->waiting[frame - 1]) name_frame(c, s, frame - 1);
	s->waiting = 0;
}

void tm_names_early_hear(struct tm_collector *c, struct tm_ahead_reader *r) {
	struct tm_early_questions *q = &r->questions;
	struct tm_names_message m;
	tm_names_stream_receive_now(&r->stream);
	while (tm_names_stream_next(&r->stream, &m)) {
		struct tm_ahead_file *f = &c->ahead.files[q->files[m.turn]];
		if (m.is_opening) take_opening(c, r, f, &m);
		else if (q->taken < q->spot_count) take_answer(c, &f->early, &c->ahead.early.spots[q->spots[q->taken++]], m.content);
	}
}

/* --- the end --- */

bool tm_names_early_has(const struct tm_names_early *e, size_t frame) {
	return frame < e->has_capacity && e->has_names[frame];
}

void tm_names_early_release(struct tm_names_early *e) {
	free(e->spots);
	free(e->slots);
	free(e->functions);
	free(e->waiting);
	free(e->has_names);
	*e = (struct tm_names_early){ 0 };
}

void tm_names_early_release_questions(struct tm_early_questions *q) {
	free(q->files);
	free(q->spots);
	*q = (struct tm_early_questions){ 0 };
}
