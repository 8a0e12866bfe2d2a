/* export_heaptrack.c - the text that heaptrack's own interpreter makes of a recording, so that heaptrack_print and its GUI open ours.
 *
 * One line a fact, numbers in hexadecimal: `s` a string, `i` an instruction (address, module, function, file, line), `t` a node of the stack
 * tree (instruction, node around it), `a` a kind of allocation (size and node), `+` and `-` an allocation and a free of such a kind, `c`
 * milliseconds, `R` resident pages. What a line refers to stands before it and is numbered in the order of the file, `a` from 0, the rest
 * from 1; 0 is none. heaptrack merges by the numbers of strings, so equal strings have one.
 * It knows one heap: ours are the root heaps, or the one that --heap names. Of a sampled trace, each block has the bytes that it stands for.
 */
#include "export.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "id_map.h"
#include "json_text.h"
#include "scans.h"
#include "stack_frames.h"
#include "stack_values.h"
#include "talk.h"

#define FILE_VERSION 3
#define HEAPTRACK_VERSION 0x010400 /* the first whose reader knows that version */
#define PAGE_BYTES 4096

/* Where equal strings are known by: their place in the order of all. */
struct string_numbers {
	uint32_t *ranks;   /* by frame or module id */
	uint32_t *numbers; /* by rank: number in the file, 0: not written yet */
	int64_t count;
};

enum { NAMES, FILES, PATHS, STRING_KINDS };

struct heaptrack {
	const struct tm_database *d;
	const struct tm_options *o;
	struct tm_output *out;
	struct tm_stack_frames frames;
	struct string_numbers strings[STRING_KINDS]; /* names and files by frame id, paths by module id */
	uint32_t *nodes, *instructions;              /* by stack id, by frame id: numbers in the file, 0: not written yet */
	uint32_t node_count, instruction_count, string_count;
	struct tm_id_map kinds; /* (size, node) -> 1 + number */
	uint64_t kind_count;
	sqlite3_stmt *frame_query;
	struct tm_bytes line;
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
		tm_put_format(&h->line, "i %" PRIx64 " %x %x %x %x\n", (uint64_t)sqlite3_column_int64(h->frame_query, 5), path, name, file,
			      (unsigned)sqlite3_column_int64(h->frame_query, 3));
	} else {
		tm_put_format(&h->line, "i 0 0\n");
	}
	sqlite3_reset(h->frame_query);
	return h->instructions[frame] = ++h->instruction_count;
}

static uint32_t number_node(struct heaptrack *h, uint32_t stack) {
	size_t n = 0;
	if (!stack || h->nodes[stack]) return stack ? h->nodes[stack] : 0;
	h->status = tm_stack_frames_path(&h->frames, stack, &n);
	while (!h->status && n--) {
		uint32_t at = h->frames.path[n];
		if (h->nodes[at]) continue;
		uint32_t instruction = number_instruction(h, h->frames.frame[at]);
		tm_put_format(&h->line, "t %x %x\n", instruction, h->nodes[h->frames.parent[at]]);
		h->nodes[at] = ++h->node_count;
	}
	return h->nodes[stack];
}

static uint64_t number_kind(struct heaptrack *h, uint64_t size, uint32_t node) {
	uint64_t *number = tm_id_map_put(&h->kinds, size, node);
	if (!number) {
		out_of_memory(h);
		return 0;
	}
	if (*number) return *number - 1;
	tm_put_format(&h->line, "a %" PRIx64 " %x\n", size, node);
	*number = ++h->kind_count;
	return *number - 1;
}

enum { EVENT_FREE, EVENT_ALLOCATION, EVENT_SHORTEST_FREE, EVENT_RSS }; /* in this order at equal times; the third: of a block of no lifetime */

/* Rows (ts_ns, event, bytes or pages, stack_id) in the order of time. */
static char *compose_events(const struct tm_database *d, const struct tm_options *o) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	char process[80] = "";
	const char *bytes = d->estimated ? "CAST(round(a.size_bytes * a.weight) AS INTEGER)" : "a.size_bytes";
	if (o->process_given && o->process_is_rank) snprintf(process, sizeof(process), " AND p.rank = %" PRId64, o->process);
	else if (o->process_given) snprintf(process, sizeof(process), " AND p.id = %" PRId64, o->process);
	sqlite3_str_appendall(sql, "WITH ");
	tm_sql_instants(sql, o, NULL);
	sqlite3_str_appendf(sql,
			    ",\nchosen AS MATERIALIZED (\n  SELECT a.alloc_ns, a.free_ns, %s AS bytes, a.stack_id FROM allocation AS a\n"
			    "  JOIN instant AS i ON i.heap_id = a.heap_id JOIN heap AS h ON h.id = a.heap_id JOIN process AS p ON p.id = h.process_id\n"
			    "  WHERE %s%s",
			    bytes, o->heap ? "true" : tm_sql_default_heaps(d, o), process);
	if (o->heap) sqlite3_str_appendf(sql, " AND h.name = %Q", o->heap);
	tm_sql_window(sql, o, "a.alloc_ns", "a.alloc_ns");
	sqlite3_str_appendf(sql,
			    ")\nSELECT alloc_ns AS ts_ns, %d AS event, bytes, stack_id FROM chosen\nUNION ALL\n"
			    "SELECT free_ns, CASE free_ns WHEN alloc_ns THEN %d ELSE %d END, bytes, stack_id FROM chosen WHERE free_ns IS NOT NULL\n"
			    "UNION ALL\nSELECT s.ts_ns, %d, s.value / %d, 0 FROM sample AS s JOIN process AS p ON p.id = s.process_id\n"
			    "WHERE s.name = 'rss'%s AND s.process_id = (SELECT process_id FROM sample WHERE name = 'rss' GROUP BY process_id\n"
			    "  ORDER BY max(value) DESC LIMIT 1)\n"
			    "ORDER BY ts_ns, event",
			    EVENT_ALLOCATION, EVENT_SHORTEST_FREE, EVENT_FREE, EVENT_RSS, PAGE_BYTES, process);
	return sqlite3_str_finish(sql);
}

static void put_time(struct heaptrack *h, int64_t ns) {
	if (ns / 1000000 == h->last_ms) return;
	h->last_ms = ns / 1000000;
	tm_put_format(&h->line, "c %" PRIx64 "\n", (uint64_t)h->last_ms);
}

static void write_events(struct heaptrack *h) {
	sqlite3_stmt *statement = NULL;
	int step = SQLITE_DONE;
	char *query = compose_events(h->d, h->o);
	h->status = query ? tm_database_prepare(h->d, query, &statement) : out_of_memory(h);
	while (!h->status && !h->out->failed && (step = sqlite3_step(statement)) == SQLITE_ROW) {
		int event = sqlite3_column_int(statement, 1);
		uint64_t value = (uint64_t)sqlite3_column_int64(statement, 2);
		put_time(h, sqlite3_column_int64(statement, 0));
		if (event == EVENT_RSS) {
			tm_put_format(&h->line, "R %" PRIx64 "\n", value);
		} else {
			uint32_t node = number_node(h, tm_stack_frames_check(&h->frames, sqlite3_column_int64(statement, 3)));
			uint64_t kind = number_kind(h, value, node);
			tm_put_format(&h->line, "%c %" PRIx64 "\n", event == EVENT_ALLOCATION ? '+' : '-', kind);
		}
		tm_output_flush(h->out, &h->line);
	}
	if (!h->status && !h->out->failed && step != SQLITE_DONE)
		h->status = tm_fail("cannot read '%s': %s", h->d->path, sqlite3_errmsg(h->d->handle));
	put_time(h, tm_database_integer(h->d, "SELECT max(end_ns) FROM process", 0));
	tm_output_flush(h->out, &h->line);
	sqlite3_finalize(statement);
	sqlite3_free(query);
}

static void write_header(struct heaptrack *h) {
	char *command = tm_database_words(h->d, "SELECT replace(coalesce(command, 'unknown'), char(10), ' ') FROM trace ORDER BY id LIMIT 1");
	tm_put_format(&h->line, "v %x %x\nX ", HEAPTRACK_VERSION, FILE_VERSION);
	tm_put_raw(&h->line, command ? command : "unknown", strlen(command ? command : "unknown"));
	tm_put_format(&h->line, "\nI %x 0\n", PAGE_BYTES);
	tm_output_flush(h->out, &h->line);
	sqlite3_free(command);
}

int tm_export_heaptrack(const struct tm_database *d, const struct tm_options *o, struct tm_output *out) {
	struct heaptrack h = { .d = d, .o = o, .out = out };
	if (!load(&h)) {
		write_header(&h);
		write_events(&h);
	}
	sqlite3_finalize(h.frame_query);
	for (int kind = 0; kind < STRING_KINDS; kind++) {
		free(h.strings[kind].ranks);
		free(h.strings[kind].numbers);
	}
	free(h.nodes);
	free(h.instructions);
	tm_id_map_release(&h.kinds);
	tm_bytes_release(&h.line);
	tm_stack_frames_release(&h.frames);
	return h.status;
}
