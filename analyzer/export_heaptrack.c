/* export_heaptrack.c - the text that heaptrack's own interpreter makes of a recording, so that heaptrack_print and its GUI open ours.
 *
 * One line a fact, numbers in hexadecimal: `s` a string, `i` an instruction (address, module, function, file, line), `t` a node of the stack
 * tree (instruction, node around it), `a` a kind of allocation (size and node), `+` and `-` an allocation and a free of such a kind, `c`
 * milliseconds, `R` resident pages. What a line refers to stands before it and is numbered in the order of the file, `a` from 0, the rest
 * from 1; 0 is none. Number 0 of `a` is of no block: heaptrack's reader takes it for the kind of the last allocation where there was none since the last
 * free, and would count each free of that kind as that of a temporary block. heaptrack merges by the numbers of strings, so equal strings have one.
 * Blocks are stored in the order in which they ended. What happened to them is put in order in memory, at 12 bytes an event: an event names what it
 * allocates or frees, a size and a stack, of which there are few.
 * It knows one heap: ours are the root heaps, or the one that --heap names. Of a sampled trace, each block has the bytes that it stands for.
 * It knows one process, too: what each of several left when it began to leave is live until the end of the file, as only so it is what heaptrack calls leaked.
 */
#include "export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../schema/array.h"
#include "json_text.h"
#include "scans.h"
#include "stack_frames.h"
#include "stack_values.h"
#include "talk.h"

#define FILE_VERSION 3
#define HEAPTRACK_VERSION 0x010400 /* the first whose reader knows that version */
#define PAGE_BYTES 4096
#define FLUSH_BYTES 65536
#define DIGIT_BITS 11
#define FIRST_PLACES 1024u
#define AHEAD 16 /* events whose values are fetched early */

/* Where equal strings are known by: their place in the order of all. */
struct string_numbers {
	uint32_t *ranks;   /* by frame or module id */
	uint32_t *numbers; /* by rank: number in the file, 0: not written yet */
	int64_t count;
};

enum { NAMES, FILES, PATHS, STRING_KINDS };

enum { FREE, ALLOCATION, SHORTEST_FREE, RSS, EVENT_KINDS }; /* in this order at equal times; the third: of a block of no lifetime */

struct __attribute__((packed)) event {
	int64_t ns;
	uint32_t value; /* index */
};

/* What events allocate or free, or have resident. */
struct value {
	uint64_t bytes; /* or pages */
	uint32_t stack;
	uint32_t number; /* of its `a` line, 1 more; 0: not written yet */
};

struct events {
	TM_ARRAY(struct event) list;
	size_t next;
};

struct heaptrack {
	const struct tm_database *d;
	const struct tm_options *o;
	struct tm_output *out;
	struct tm_stack_frames frames;
	struct string_numbers strings[STRING_KINDS]; /* names and files by frame id, paths by module id */
	uint32_t *nodes, *instructions;              /* by stack id, by frame id: numbers in the file, 0: not written yet */
	uint32_t node_count, instruction_count, string_count, kind_count;
	TM_ARRAY(uint32_t) unnumbered; /* stacks, from the innermost outward */
	struct events events[EVENT_KINDS];
	TM_ARRAY(struct value) values;
	uint32_t *places; /* 1 + index of a value, by a hash of it; 0: none. Power of two, NULL once all is read */
	size_t place_mask;
	sqlite3_stmt *frame_query;
	struct tm_bytes line;
	int64_t process; /* of the first block, 0: there is none */
	bool several;
	int64_t last_ms;
	int status;
};

static int out_of_memory(struct heaptrack *h) {
	return h->status = tm_fail("cannot export '%s': out of memory", h->d->path);
}

/* The query gives rows (id, rank of its string from 1). */
static int load_ranks(struct heaptrack *h, int kind, const char *query, int64_t count) {
	struct string_numbers *s = &h->strings[kind];
	sqlite3_stmt *statement = NULL;
	int step = SQLITE_DONE;
	s->count = count;
	s->ranks = calloc((size_t)count + 1, sizeof(*s->ranks));
	s->numbers = calloc((size_t)count + 1, sizeof(*s->numbers));
	if (!s->ranks || !s->numbers) return out_of_memory(h);
	int status = tm_database_prepare(h->d, query, &statement);
	while (!status && (step = sqlite3_step(statement)) == SQLITE_ROW) {
		int64_t id = sqlite3_column_int64(statement, 0), rank = sqlite3_column_int64(statement, 1);
		if (id > 0 && id < count && rank <= count) s->ranks[id] = (uint32_t)rank;
	}
	if (!status && step != SQLITE_DONE) status = tm_fail("cannot read '%s': %s", h->d->path, sqlite3_errmsg(h->d->handle));
	sqlite3_finalize(statement);
	return h->status = status;
}

static int load(struct heaptrack *h) {
	int64_t modules = tm_database_integer(h->d, "SELECT max(id) + 1 FROM module", 1);
	h->status = tm_stack_frames_load(&h->frames, h->d);
	if (h->status) return h->status;
	h->nodes = calloc((size_t)h->frames.stack_count, sizeof(*h->nodes));
	h->instructions = calloc((size_t)h->frames.frame_count, sizeof(*h->instructions));
	if (!h->nodes || !h->instructions) return out_of_memory(h);
	if (load_ranks(h, NAMES, "SELECT id, dense_rank() OVER (ORDER BY function) FROM frame WHERE function IS NOT NULL", h->frames.frame_count))
		return h->status;
	if (load_ranks(h, FILES, "SELECT id, dense_rank() OVER (ORDER BY file) FROM frame WHERE file IS NOT NULL", h->frames.frame_count))
		return h->status;
	if (load_ranks(h, PATHS, "SELECT id, dense_rank() OVER (ORDER BY path) FROM module", modules)) return h->status;
	return h->status = tm_database_prepare(
		       h->d,
		       "SELECT f.function, f.file, m.path, coalesce(f.line, 0), coalesce(f.module_id, 0),\n"
		       "  coalesce(m.base_address, 0) + coalesce(f.module_offset, 0)\n"
		       "FROM frame AS f LEFT JOIN module AS m ON m.id = f.module_id WHERE f.id = ?1",
		       &h->frame_query);
}

static void put_line(struct heaptrack *h, char kind, const uint64_t *numbers, size_t count) {
	tm_put_raw(&h->line, &kind, 1);
	for (size_t i = 0; i < count; i++) {
		tm_put_raw(&h->line, " ", 1);
		tm_put_hexadecimal(&h->line, numbers[i]);
	}
	tm_put_raw(&h->line, "\n", 1);
}

/* The number of the text in a column of frame_query; a line cannot hold an end of line, which becomes a space. */
static uint32_t number_string(struct heaptrack *h, int kind, int64_t id, int column) {
	struct string_numbers *s = &h->strings[kind];
	uint32_t rank = id > 0 && id < s->count ? s->ranks[id] : 0;
	if (!rank) return 0;
	if (s->numbers[rank]) return s->numbers[rank];
	const char *text = (const char *)sqlite3_column_text(h->frame_query, column);
	int n = sqlite3_column_bytes(h->frame_query, column);
	tm_put_format(&h->line, "s %x ", (unsigned)n);
	for (int i = 0; i < n; i++) tm_put_raw(&h->line, text[i] == '\n' || text[i] == '\0' ? " " : &text[i], 1);
	tm_put_raw(&h->line, "\n", 1);
	return s->numbers[rank] = ++h->string_count;
}

static uint32_t number_instruction(struct heaptrack *h, uint32_t frame) {
	if (h->instructions[frame]) return h->instructions[frame];
	sqlite3_bind_int64(h->frame_query, 1, frame);
	if (sqlite3_step(h->frame_query) == SQLITE_ROW) {
		uint32_t path = number_string(h, PATHS, sqlite3_column_int64(h->frame_query, 4), 2);
		uint32_t name = number_string(h, NAMES, frame, 0), file = number_string(h, FILES, frame, 1);
		put_line(h, 'i',
			 (const uint64_t[]){ (uint64_t)sqlite3_column_int64(h->frame_query, 5), path, name, file,
					     (unsigned)sqlite3_column_int64(h->frame_query, 3) },
			 5);
	} else {
		tm_put_format(&h->line, "i 0 0\n");
	}
	sqlite3_reset(h->frame_query);
	return h->instructions[frame] = ++h->instruction_count;
}

static uint32_t number_node(struct heaptrack *h, uint32_t stack) {
	h->unnumbered.count = 0;
	for (uint32_t at = stack; at && !h->nodes[at]; at = h->frames.parent[at]) {
		uint32_t *place = tm_array_push(&h->unnumbered);
		if (!place) return out_of_memory(h), 0;
		*place = at;
	}
	for (size_t i = h->unnumbered.count; i-- > 0;) {
		uint32_t at = h->unnumbered.items[i], instruction = number_instruction(h, h->frames.frame[at]);
		put_line(h, 't', (const uint64_t[]){ instruction, h->nodes[h->frames.parent[at]] }, 2);
		h->nodes[at] = ++h->node_count;
	}
	return h->nodes[stack];
}

/* --- events in the order of time --- */

/* Where the value stands, or where it belongs. */
static uint32_t *place_of(const struct heaptrack *h, uint64_t bytes, uint32_t stack) {
	uint64_t hash = (bytes ^ stack * 0xD6E8FEB86659FD93u) * 0x9E3779B97F4A7C15u;
	for (size_t i = hash >> 32 ^ hash;; i++) {
		uint32_t *place = &h->places[i & h->place_mask];
		if (!*place) return place;
		const struct value *value = &h->values.items[*place - 1];
		if (value->bytes == bytes && value->stack == stack) return place;
	}
}

/* At most half of the places are taken. */
static bool make_places(struct heaptrack *h) {
	size_t count = h->places ? 2 * (h->place_mask + 1) : FIRST_PLACES;
	free(h->places);
	h->places = tm_table_new(count, sizeof(*h->places));
	h->place_mask = count - 1;
	if (!h->places) return false;
	for (size_t i = 0; i < h->values.count; i++) *place_of(h, h->values.items[i].bytes, h->values.items[i].stack) = (uint32_t)i + 1;
	return true;
}

/* 1 + the value's index, or 0: out of memory. */
static uint32_t add_value(struct heaptrack *h, uint64_t bytes, uint32_t stack) {
	if (2 * h->values.count >= h->place_mask && !make_places(h)) return 0;
	uint32_t *place = place_of(h, bytes, stack);
	if (*place) return *place;
	struct value *value = h->values.count < UINT32_MAX ? tm_array_push(&h->values) : NULL;
	if (!value) return 0;
	*value = (struct value){ bytes, stack, 0 };
	return *place = (uint32_t)h->values.count;
}

static bool push_event(struct heaptrack *h, int kind, int64_t ns, uint32_t value) {
	struct event *event = value ? tm_array_push(&h->events[kind].list) : NULL;
	if (event) *event = (struct event){ ns, value - 1 };
	return event != NULL;
}

/* A block: when it was made and freed, its bytes, its stack and its process. */
static bool take_block(struct heaptrack *h, sqlite3_stmt *row) {
	int64_t alloc_ns = sqlite3_column_int64(row, 0), free_ns = sqlite3_column_int64(row, 1), process = sqlite3_column_int64(row, 4);
	if (!h->process) h->process = process;
	if (process != h->process) h->several = true;
	uint32_t stack = tm_stack_frames_check(&h->frames, sqlite3_column_int64(row, 3));
	uint32_t value = add_value(h, (uint64_t)sqlite3_column_int64(row, 2), stack);
	if (!push_event(h, ALLOCATION, alloc_ns, value)) return false;
	if (sqlite3_column_type(row, 1) == SQLITE_NULL) return true;
	return push_event(h, free_ns == alloc_ns ? SHORTEST_FREE : FREE, free_ns, value);
}

/* A sample: when, and how many pages were resident. */
static bool take_sample(struct heaptrack *h, sqlite3_stmt *row) {
	return push_event(h, RSS, sqlite3_column_int64(row, 0), add_value(h, (uint64_t)sqlite3_column_int64(row, 1), 0));
}

/* Calls take for each row; frees sql. */
static void read_rows(struct heaptrack *h, char *sql, bool (*take)(struct heaptrack *h, sqlite3_stmt *row)) {
	sqlite3_stmt *row = NULL;
	int step = SQLITE_DONE;
	if (!h->status) h->status = sql ? tm_database_prepare(h->d, sql, &row) : out_of_memory(h);
	while (!h->status && (step = sqlite3_step(row)) == SQLITE_ROW)
		if (!take(h, row)) out_of_memory(h);
	if (!h->status && step != SQLITE_DONE) h->status = tm_fail("cannot read '%s': %s", h->d->path, sqlite3_errmsg(h->d->handle));
	sqlite3_finalize(row);
	sqlite3_free(sql);
}

/* What the file never frees is leaked, so that is what was live when the process began to leave, whatever frees it then, and nothing else: not what was made
 * after that, nor what another program replaced, of which at_ns is NULL. */
static char *compose_blocks(const struct heaptrack *h) {
	static const struct tm_time_point at_exit = { .kind = TM_TIME_EXIT };
	const struct tm_options *o = h->o;
	sqlite3_str *sql = sqlite3_str_new(h->d->handle);
	sqlite3_str_appendall(sql, "WITH ");
	tm_sql_instants(sql, o, &at_exit);
	sqlite3_str_appendf(sql,
			    ",\nchosen AS MATERIALIZED (\n  SELECT i.* FROM instant AS i JOIN heap AS h ON h.id = i.heap_id\n"
			    "  WHERE %s",
			    o->heap ? "true" : tm_sql_default_heaps(h->d, o));
	tm_sql_process(sql, o, " AND", "i.process_id");
	if (o->heap) sqlite3_str_appendf(sql, " AND h.name = %Q", o->heap);
	sqlite3_str_appendf(sql,
			    ")\nSELECT a.alloc_ns, CASE WHEN a.alloc_ns <= i.at_ns THEN iif(a.free_ns <= i.at_ns, a.free_ns, NULL)\n"
			    "    ELSE coalesce(a.free_ns, i.end_ns) END, %s, a.stack_id, i.process_id\n"
			    "FROM allocation AS a CROSS JOIN chosen AS i ON i.heap_id = a.heap_id WHERE true",
			    h->d->estimated ? "CAST(round(a.size_bytes * a.weight) AS INTEGER)" : "a.size_bytes");
	tm_sql_window(sql, o, "a.alloc_ns", "a.alloc_ns");
	return sqlite3_str_finish(sql);
}

/* The format has one resident memory: of the process that had the most. */
static char *compose_samples(const struct heaptrack *h) {
	sqlite3_str *sql = sqlite3_str_new(h->d->handle);
	sqlite3_str_appendf(sql,
			    "SELECT ts_ns, value / %d FROM sample\n"
			    "WHERE name = 'rss' AND process_id = (SELECT process_id FROM sample WHERE name = 'rss'",
			    PAGE_BYTES);
	tm_sql_process(sql, h->o, " AND", "process_id");
	sqlite3_str_appendall(sql, " GROUP BY process_id\n  ORDER BY max(value) DESC LIMIT 1) ORDER BY ts_ns");
	return sqlite3_str_finish(sql);
}

static void read_events(struct heaptrack *h) {
	read_rows(h, compose_blocks(h), take_block);
	read_rows(h, compose_samples(h), take_sample);
	free(h->places);
	h->places = NULL;
}

/* By time, those of one time in the order in which they were read: digit by digit, from the lowest one on. */
static bool sort_events(struct events *events) {
	size_t n = events->list.count;
	bool is_sorted = true;
	int64_t lowest = INT64_MAX, highest = INT64_MIN;
	for (size_t i = 0; i < n; i++) {
		int64_t ns = events->list.items[i].ns;
		if (ns < highest) is_sorted = false;
		if (ns > highest) highest = ns;
		if (ns < lowest) lowest = ns;
	}
	__typeof__(events->list) other = { 0 }, swap;
	if (is_sorted || !tm_array_reserve(&other, n)) return is_sorted;
	other.count = n;
	uint64_t span = (uint64_t)highest - (uint64_t)lowest;
	for (unsigned shift = 0; shift < 64 && span >> shift; shift += DIGIT_BITS) {
		size_t starts[1 << DIGIT_BITS] = { 0 }, start = 0;
		const struct event *items = events->list.items;
#define DIGIT(event) (((uint64_t)(event).ns - (uint64_t)lowest) >> shift & ((1 << DIGIT_BITS) - 1))
		for (size_t i = 0; i < n; i++) starts[DIGIT(items[i])]++;
		for (size_t i = 0; i < 1 << DIGIT_BITS; i++) {
			size_t count = starts[i];
			starts[i] = start;
			start += count;
		}
		for (size_t i = 0; i < n; i++) other.items[starts[DIGIT(items[i])]++] = items[i];
#undef DIGIT
		swap = events->list;
		events->list = other;
		other = swap;
	}
	tm_array_release(&other);
	return true;
}

/* The kind of the event that comes next, or EVENT_KINDS: there is none. */
static int next_kind(const struct heaptrack *h) {
	int next = EVENT_KINDS;
	int64_t ns = 0;
	for (int kind = 0; kind < EVENT_KINDS; kind++) {
		const struct events *e = &h->events[kind];
		if (e->next == e->list.count || (next < EVENT_KINDS && e->list.items[e->next].ns >= ns)) continue;
		next = kind;
		ns = e->list.items[e->next].ns;
	}
	return next;
}

/* --- lines --- */

static uint32_t number_value(struct heaptrack *h, struct value *value) {
	if (value->number) return value->number - 1;
	uint32_t node = number_node(h, value->stack);
	put_line(h, 'a', (const uint64_t[]){ value->bytes, node }, 2);
	value->number = ++h->kind_count;
	return value->number - 1;
}

static void put_time(struct heaptrack *h, int64_t ns) {
	if (ns / 1000000 == h->last_ms) return;
	h->last_ms = ns / 1000000;
	put_line(h, 'c', (const uint64_t[]){ (uint64_t)h->last_ms }, 1);
}

static void write_events(struct heaptrack *h) {
	int kind;
	for (kind = 0; kind < EVENT_KINDS && !h->status; kind++)
		if (!sort_events(&h->events[kind])) out_of_memory(h);
	while (!h->status && !h->out->failed && (kind = next_kind(h)) < EVENT_KINDS) {
		struct events *e = &h->events[kind];
		struct event event = e->list.items[e->next++];
		if (e->next + AHEAD < e->list.count) __builtin_prefetch(&h->values.items[e->list.items[e->next + AHEAD].value]);
		struct value *value = &h->values.items[event.value];
		put_time(h, event.ns);
		if (kind == RSS) put_line(h, 'R', &value->bytes, 1);
		else put_line(h, kind == ALLOCATION ? '+' : '-', (const uint64_t[]){ number_value(h, value) }, 1);
		if (h->line.size >= FLUSH_BYTES) tm_output_flush(h->out, &h->line);
	}
	put_time(h, tm_database_integer(h->d, "SELECT max(end_ns) FROM process", 0));
	tm_output_flush(h->out, &h->line);
}

static void write_header(struct heaptrack *h) {
	char *command = tm_database_words(h->d, "SELECT replace(coalesce(command, 'unknown'), char(10), ' ') FROM trace ORDER BY id LIMIT 1");
	tm_put_format(&h->line, "v %x %x\nX ", HEAPTRACK_VERSION, FILE_VERSION);
	tm_put_raw(&h->line, command ? command : "unknown", strlen(command ? command : "unknown"));
	tm_put_format(&h->line, "\nI %x 0\na 0 0\n", PAGE_BYTES);
	tm_output_flush(h->out, &h->line);
	sqlite3_free(command);
}

int tm_export_heaptrack(const struct tm_database *d, const struct tm_options *o, struct tm_output *out) {
	struct heaptrack h = { .d = d, .o = o, .out = out, .kind_count = 1 };
	if (!load(&h)) {
		write_header(&h);
		read_events(&h);
		write_events(&h);
	}
	if (h.several && !h.status && !out->failed)
		tm_say("it has several processes, and what each left counts on behind its end, so that peaks are those of all together; "
		       "--process=ID exports one");
	sqlite3_finalize(h.frame_query);
	for (int kind = 0; kind < STRING_KINDS; kind++) {
		free(h.strings[kind].ranks);
		free(h.strings[kind].numbers);
	}
	free(h.nodes);
	free(h.instructions);
	for (int kind = 0; kind < EVENT_KINDS; kind++) tm_array_release(&h.events[kind].list);
	tm_array_release(&h.values);
	tm_array_release(&h.unnumbered);
	free(h.places);
	tm_bytes_release(&h.line);
	tm_stack_frames_release(&h.frames);
	return h.status;
}
