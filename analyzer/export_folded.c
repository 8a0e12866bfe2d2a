/* export_folded.c - collapsed stacks: each call stack on a line, outermost frame first, and its bytes behind it.
 *
 * The sums by stack come from stack_values.c; equal texts (the same stack in several processes, or at other addresses in the same functions) become
 * one line. To sort millions of texts of hundreds of frames would take minutes, so none is put together before it is written: the stacks are merged into
 * a tree of frames' texts, which is walked in the order of the lines.
 * In this format a semicolon separates frames and a newline lines, so neither may come from a name.
 */
#include "export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../schema/array.h"
#include "display_text.h"
#include "json_text.h"
#include "scans.h"
#include "stack_frames.h"
#include "stack_values.h"
#include "talk.h"

#define FIRST_PLACES 1024u

/* Node 0 is the root: the empty stack. */
struct node {
	uint32_t text, parent, child, sibling; /* child: its first one, sibling: the next one of its parent; 0: none */
	int64_t bytes;                         /* of the stacks that end here */
};

/* What is still to be written of a node: its own line, or those of its children. */
struct part {
	const char *text;
	uint32_t node;
	bool is_inner;
	size_t prefix_bytes; /* of the line, before the node's text */
};

struct value {
	uint32_t stack;
	int64_t bytes;
};

struct folded {
	const struct tm_database *d;
	struct tm_output *out;
	struct tm_stack_frames frames;
	TM_ARRAY(char *) texts;
	uint32_t *text_of; /* by frame id: 1 + index of its text; 0: none */
	TM_ARRAY(struct value) values;
	uint32_t *node_of; /* by stack id */
	TM_ARRAY(struct node) nodes;
	uint32_t *
		places; /* nodes, by a hash of their parent and text; 0: none. Power of two, NULL before the first and once the tree stands */
	size_t place_mask;
	TM_ARRAY(struct part) parts;
	struct tm_bytes line;
};

static int out_of_memory(const struct folded *f) {
	return tm_fail("cannot export '%s': out of memory", f->d->path);
}

/* Calls take for each row; frees sql. */
static int read_rows(struct folded *f, char *sql, int (*take)(struct folded *f, sqlite3_stmt *row)) {
	sqlite3_stmt *row = NULL;
	int step = SQLITE_DONE, status = sql ? tm_database_prepare(f->d, sql, &row) : out_of_memory(f);
	while (!status && (step = sqlite3_step(row)) == SQLITE_ROW) status = take(f, row);
	if (!status && step != SQLITE_DONE) status = tm_fail("cannot read '%s': %s", f->d->path, sqlite3_errmsg(f->d->handle));
	sqlite3_finalize(row);
	sqlite3_free(sql);
	return status;
}

static int take_value(struct folded *f, sqlite3_stmt *row) {
	struct value *v = tm_array_push(&f->values);
	if (!v) return out_of_memory(f);
	*v = (struct value){ tm_stack_frames_check(&f->frames, sqlite3_column_int64(row, 0)), sqlite3_column_int64(row, 1) };
	return 0;
}

/* Equal texts follow one another. */
static int take_frame(struct folded *f, sqlite3_stmt *row) {
	int64_t frame = sqlite3_column_int64(row, 0);
	const char *text = (const char *)sqlite3_column_text(row, 1);
	if (!text) return out_of_memory(f);
	if (frame <= 0 || frame >= f->frames.frame_count) return 0;
	if (!f->texts.count || strcmp(f->texts.items[f->texts.count - 1], text) != 0) {
		char *copy = strdup(text), **place = copy ? tm_array_push(&f->texts) : NULL;
		if (!place) {
			free(copy);
			return out_of_memory(f);
		}
		*place = copy;
	}
	f->text_of[frame] = (uint32_t)f->texts.count;
	return 0;
}

static int load(struct folded *f, const struct tm_options *o) {
	sqlite3_str *sql = sqlite3_str_new(f->d->handle);
	tm_sql_stack_values(sql, f->d, o, o->value);
	sqlite3_str_appendall(sql, "SELECT stack_id, bytes FROM by_stack WHERE bytes > 0");
	char *values = sqlite3_str_finish(sql);
	int status = tm_stack_frames_load(&f->frames, f->d);
	if (status) {
		sqlite3_free(values);
		return status;
	}
	f->text_of = calloc((size_t)f->frames.frame_count, sizeof(*f->text_of));
	f->node_of = calloc((size_t)f->frames.stack_count, sizeof(*f->node_of));
	if (!f->text_of || !f->node_of) status = out_of_memory(f);
	if (status) sqlite3_free(values);
	else status = read_rows(f, values, take_value);
	if (!status) status = read_rows(f, sqlite3_mprintf("SELECT frame_id, text FROM frame_text ORDER BY text"), take_frame);
	return status;
}

/* --- the tree --- */

/* Where the node stands, or where it belongs. */
static uint32_t *place_of(const struct folded *f, uint32_t parent, uint32_t text) {
	uint64_t hash = (parent ^ text * 0xD6E8FEB86659FD93u) * 0x9E3779B97F4A7C15u;
	for (size_t i = hash >> 32 ^ hash;; i++) {
		uint32_t *place = &f->places[i & f->place_mask];
		const struct node *node = &f->nodes.items[*place];
		if (!*place || (node->parent == parent && node->text == text)) return place;
	}
}

/* At most half of the places are taken. */
static bool make_places(struct folded *f) {
	size_t count = f->places ? 2 * (f->place_mask + 1) : FIRST_PLACES;
	free(f->places);
	f->places = tm_table_new(count, sizeof(*f->places));
	f->place_mask = count - 1;
	if (!f->places) return false;
	for (size_t i = 1; i < f->nodes.count; i++) *place_of(f, f->nodes.items[i].parent, f->nodes.items[i].text) = (uint32_t)i;
	return true;
}

/* The number of this child of a node, or 0: out of memory. */
static uint32_t child_of(struct folded *f, uint32_t parent, uint32_t text) {
	if (2 * f->nodes.count >= f->place_mask && !make_places(f)) return 0;
	uint32_t *place = place_of(f, parent, text);
	if (*place) return *place;
	struct node *node = tm_array_push(&f->nodes);
	if (!node) return 0;
	*place = (uint32_t)f->nodes.count - 1;
	*node = (struct node){ .text = text, .parent = parent, .sibling = f->nodes.items[parent].child };
	return f->nodes.items[parent].child = *place;
}

/* A parent has a lower id than its stacks. A frame that the database has not is left out. */
static int plant(struct folded *f) {
	for (size_t i = 0; i < f->values.count; i++)
		for (uint32_t stack = f->values.items[i].stack; stack && !f->node_of[stack]; stack = f->frames.parent[stack]) f->node_of[stack] = 1;
	if (!tm_array_push(&f->nodes)) return out_of_memory(f);
	f->nodes.items[0] = (struct node){ 0 };
	for (int64_t stack = 1; stack < f->frames.stack_count; stack++) {
		uint32_t parent = f->node_of[f->frames.parent[stack]], text = f->text_of[f->frames.frame[stack]];
		if (!f->node_of[stack]) continue;
		f->node_of[stack] = parent;
		if (text && !(f->node_of[stack] = child_of(f, parent, text))) return out_of_memory(f);
	}
	free(f->places);
	f->places = NULL;
	for (size_t i = 0; i < f->values.count; i++) {
		struct node *node = &f->nodes.items[f->node_of[f->values.items[i].stack]];
		node->bytes = tm_sum_of_bytes(node->bytes, f->values.items[i].bytes);
	}
	return 0;
}

/* --- lines --- */

/* A frame, made harmless: what would end the line or could not be shown becomes a space. */
static void put_frame(struct tm_bytes *line, const char *text) {
	const char *end = text + strlen(text);
	while (text < end) {
		uint32_t c;
		size_t n = tm_utf8_next(text, end, &c);
		if (c < 0x20 || (c >= 0x7F && c < 0xA0) || tm_is_deceptive(c)) tm_put_raw(line, " ", 1);
		else if (c == 0xFFFD) tm_put_raw(line, "\xEF\xBF\xBD", 3);
		else tm_put_raw(line, text, n);
		text += n;
	}
}

/* By what follows in the line: a space and bytes, or a semicolon and more frames. The one that is written first comes last. */
static int compare_parts(const void *a, const void *b) {
	const struct part *p = a, *q = b;
	const char *x = p->text, *y = q->text;
	for (; *x && *x == *y; x++) y++;
	int c = *x ? (unsigned char)*x : p->is_inner ? ';' : 0, d = *y ? (unsigned char)*y : q->is_inner ? ';' : 0;
	return d - c;
}

static bool push_part(struct folded *f, uint32_t node, bool is_inner) {
	struct part *part = tm_array_push(&f->parts);
	if (part) *part = (struct part){ f->texts.items[f->nodes.items[node].text - 1], node, is_inner, f->line.size };
	return part != NULL;
}

static int push_children(struct folded *f, uint32_t parent) {
	size_t first = f->parts.count;
	for (uint32_t i = f->nodes.items[parent].child; i; i = f->nodes.items[i].sibling)
		if ((f->nodes.items[i].bytes && !push_part(f, i, false)) || (f->nodes.items[i].child && !push_part(f, i, true)))
			return out_of_memory(f);
	if (f->parts.count > first) qsort(&f->parts.items[first], f->parts.count - first, sizeof(*f->parts.items), compare_parts);
	return 0;
}

static void write_line(struct folded *f, int64_t bytes) {
	if (!f->line.size) tm_put_raw(&f->line, "[no stack]", 10);
	tm_put_format(&f->line, " %lld\n", (long long)bytes);
	tm_output_flush(f->out, &f->line);
}

static int write_lines(struct folded *f) {
	if (f->nodes.items[0].bytes) write_line(f, f->nodes.items[0].bytes);
	int status = push_children(f, 0);
	while (!status && !f->out->failed && f->parts.count) {
		struct part part = f->parts.items[--f->parts.count];
		const struct node *node = &f->nodes.items[part.node];
		f->line.size = part.prefix_bytes;
		if (node->parent) tm_put_raw(&f->line, ";", 1);
		put_frame(&f->line, part.text);
		if (part.is_inner) status = push_children(f, part.node);
		else write_line(f, node->bytes);
	}
	return status;
}

/* By enum tm_export_value. */
static const char *const of_what[] = { "live at the peak", "live at exit", "allocated", "live at exit", "temporary" };

int tm_export_folded(const struct tm_database *d, const struct tm_options *o, struct tm_output *out) {
	struct folded f = { .d = d, .out = out };
	int status = load(&f, o);
	if (!status) status = plant(&f);
	if (!status) status = write_lines(&f);
	if (!status && !out->failed && !f.values.count) tm_say("nothing was %s", of_what[o->value]);
	for (size_t i = 0; i < f.texts.count; i++) free(f.texts.items[i]);
	tm_array_release(&f.texts);
	tm_array_release(&f.values);
	tm_array_release(&f.nodes);
	tm_array_release(&f.parts);
	free(f.places);
	tm_stack_frames_release(&f.frames);
	tm_bytes_release(&f.line);
	free(f.text_of);
	free(f.node_of);
	return status;
}
