/* export_pprof.c - a profile for `go tool pprof`, Pyroscope, Parca and whatever else reads pprof's profile.proto.
 *
 * Five sample types: alloc_objects, alloc_space (over the whole run), inuse_objects, inuse_space (live at exit), peak_space (live at the peak).
 * The first four are named as Go's heap profiles name them, so that tools know them. Three queries, one for each kind of value, are merged
 * by process, heap and stack, and each such row is one sample with the labels heap and process. A frame is a location with one line;
 * inlined functions are frames of their own already. Names are final: has_functions keeps readers from looking up addresses again.
 *
 * The format is a stream of fields in any order, in which the n-th string is the string number n, so everything is written as it is met.
 * Source: https://github.com/google/pprof/blob/main/proto/profile.proto
 */
#include "export.h"

#include <stdio.h>
#include <string.h>

#include "display_text.h"
#include "stack_frames.h"
#include "stack_values.h"
#include "talk.h"

/* Numbers of fields, as profile.proto gives them. */
enum { PROFILE_SAMPLE_TYPE = 1, PROFILE_SAMPLE, PROFILE_MAPPING, PROFILE_LOCATION, PROFILE_FUNCTION, PROFILE_STRING };
enum { PROFILE_TIME_NS = 9, PROFILE_DURATION_NS, PROFILE_PERIOD_TYPE, PROFILE_PERIOD, PROFILE_COMMENT, PROFILE_DEFAULT_TYPE };
enum { TYPE_TYPE = 1, TYPE_UNIT };
enum { SAMPLE_LOCATIONS = 1, SAMPLE_VALUES, SAMPLE_LABEL };
enum { LABEL_KEY = 1, LABEL_STRING };
enum { MAPPING_ID = 1, MAPPING_START, MAPPING_LIMIT, MAPPING_OFFSET, MAPPING_FILE, MAPPING_BUILD_ID, MAPPING_HAS_FUNCTIONS };
enum { MAPPING_HAS_INLINES = 10 };
enum { LOCATION_ID = 1, LOCATION_MAPPING, LOCATION_ADDRESS, LOCATION_LINE };
enum { LINE_FUNCTION = 1, LINE_LINE };
enum { FUNCTION_ID = 1, FUNCTION_NAME, FUNCTION_SYSTEM_NAME, FUNCTION_FILE };

#define WIRE_VARINT 0
#define WIRE_BYTES 2

static const struct {
	const char *type, *unit;
} sample_types[] = {
	{ "alloc_objects", "count" }, { "alloc_space", "bytes" }, { "inuse_objects", "count" }, { "inuse_space", "bytes" }, { "peak_space", "bytes" },
};
#define TYPE_COUNT (sizeof(sample_types) / sizeof(sample_types[0]))

/* The queries, in the order of the sample types that they fill. */
static const enum tm_export_value merged_values[] = { TM_VALUE_ALLOCATED, TM_VALUE_LIVE, TM_VALUE_PEAK };
#define QUERY_COUNT 3

#define FLUSH_BYTES 65536 /* gathered before they are handed on */

struct pprof {
	const struct tm_database *d;
	const struct tm_options *o;
	struct tm_output *out;
	struct tm_stack_frames frames;
	struct tm_bytes stream;         /* fields of the profile */
	struct tm_bytes message, inner; /* being put together */
	uint64_t strings;               /* written */
	uint64_t key_heap, key_process; /* strings */
	char *heap;                     /* the last one, its number and its string */
	int64_t heap_id;
	uint64_t heap_string;
	int64_t process; /* likewise */
	uint64_t process_string;
	int status;
};

static void put_number(struct tm_bytes *b, unsigned field, uint64_t value) {
	if (!value) return; /* as absent as 0 */
	tm_put_varint(b, field << 3 | WIRE_VARINT);
	tm_put_varint(b, value);
}

static void put_bytes(struct tm_bytes *b, unsigned field, const void *data, size_t n) {
	tm_put_varint(b, field << 3 | WIRE_BYTES);
	tm_put_varint(b, n);
	tm_put_raw(b, data, n);
}

/* A field whose content is the message that was gathered in `from`, which is emptied. */
static void put_message(struct tm_bytes *b, unsigned field, struct tm_bytes *from) {
	put_bytes(b, field, from->data, from->size);
	if (from->failed) b->failed = true;
	tm_bytes_clear(from);
}

/* Adds a string and returns its number. Readers want UTF-8 everywhere; json_text.h's rule serves: what is none becomes U+FFFD. */
static uint64_t add_string(struct pprof *p, const char *text) {
	const char *end = text + strlen(text);
	for (const char *at = text; at < end;) {
		uint32_t c;
		size_t n = tm_utf8_next(at, end, &c);
		if (c == 0xFFFD) tm_put_raw(&p->inner, "\xEF\xBF\xBD", 3);
		else tm_put_raw(&p->inner, at, n);
		at += n;
	}
	put_message(&p->stream, PROFILE_STRING, &p->inner);
	return p->strings++;
}

static const char *column_text(sqlite3_stmt *statement, int column) {
	const char *text = (const char *)sqlite3_column_text(statement, column);
	return text ? text : "";
}

static sqlite3_stmt *ask(struct pprof *p, char *sql) {
	sqlite3_stmt *statement = NULL;
	if (!sql) p->status = tm_fail("cannot export '%s': out of memory", p->d->path);
	else if (!p->status) p->status = tm_database_prepare(p->d, sql, &statement);
	sqlite3_free(sql);
	return p->status ? NULL : statement;
}

static bool step(struct pprof *p, sqlite3_stmt *statement) {
	if (!statement || p->status || p->out->failed) return false;
	int rc = sqlite3_step(statement);
	if (rc != SQLITE_ROW && rc != SQLITE_DONE) p->status = tm_fail("cannot read '%s': %s", p->d->path, sqlite3_errmsg(p->d->handle));
	return rc == SQLITE_ROW;
}

static void put_type(struct pprof *p, unsigned field, const char *type, const char *unit, uint64_t *type_string) {
	*type_string = add_string(p, type);
	put_number(&p->message, TYPE_TYPE, *type_string);
	put_number(&p->message, TYPE_UNIT, add_string(p, unit));
	put_message(&p->stream, field, &p->message);
}

static void write_header(struct pprof *p) {
	static const size_t shown_first[] = { 4, 3, 1, 3 }; /* by enum tm_export_value */
	uint64_t names[TYPE_COUNT], ignored;
	char text[64];
	add_string(p, ""); /* string 0 is the empty one */
	for (size_t i = 0; i < TYPE_COUNT; i++) put_type(p, PROFILE_SAMPLE_TYPE, sample_types[i].type, sample_types[i].unit, &names[i]);
	put_number(&p->stream, PROFILE_DEFAULT_TYPE, names[shown_first[p->o->value]]);
	put_type(p, PROFILE_PERIOD_TYPE, "space", "bytes", &ignored);
	put_number(&p->stream, PROFILE_PERIOD, p->d->sample_bytes ? (uint64_t)p->d->sample_bytes : 1);
	put_number(&p->stream, PROFILE_TIME_NS, (uint64_t)tm_database_integer(p->d, "SELECT min(start_unix_ns) FROM trace", 0));
	put_number(&p->stream, PROFILE_DURATION_NS, (uint64_t)tm_database_integer(p->d, "SELECT max(end_ns) FROM trace", 0));
	snprintf(text, sizeof(text), "recorded by tidemark, exported by tidemark %s", TM_TOOL_VERSION);
	put_number(&p->stream, PROFILE_COMMENT, add_string(p, text));
	if (p->d->estimated)
		put_number(&p->stream, PROFILE_COMMENT, add_string(p, "estimated from samples; a sampled peak is biased upward"));
	p->key_heap = add_string(p, "heap");
	p->key_process = add_string(p, "process");
}

static void write_mappings(struct pprof *p) {
	sqlite3_stmt *statement =
		ask(p, sqlite3_mprintf("SELECT id, low_address, low_address + size_bytes, path, coalesce(build_id, '') FROM module ORDER BY id"));
	while (step(p, statement)) {
		put_number(&p->message, MAPPING_ID, (uint64_t)sqlite3_column_int64(statement, 0));
		put_number(&p->message, MAPPING_START, (uint64_t)sqlite3_column_int64(statement, 1));
		put_number(&p->message, MAPPING_LIMIT, (uint64_t)sqlite3_column_int64(statement, 2));
		put_number(&p->message, MAPPING_FILE, add_string(p, column_text(statement, 3)));
		put_number(&p->message, MAPPING_BUILD_ID, add_string(p, column_text(statement, 4)));
		for (unsigned field = MAPPING_HAS_FUNCTIONS; field <= MAPPING_HAS_INLINES; field++) put_number(&p->message, field, 1);
		put_message(&p->stream, PROFILE_MAPPING, &p->message);
		tm_output_flush(p->out, &p->stream);
	}
	sqlite3_finalize(statement);
}

static void put_label(struct pprof *p, uint64_t key, uint64_t string) {
	put_number(&p->inner, LABEL_KEY, key);
	put_number(&p->inner, LABEL_STRING, string);
	put_message(&p->message, SAMPLE_LABEL, &p->inner);
}

/* One of the merged queries, in the order of process_id, heap, heap_id and stack_id, and the row that it has come to. */
struct source {
	sqlite3_stmt *statement;
	bool has_row;
	int64_t process, heap_id, stack, blocks, bytes;
};

static void advance(struct pprof *p, struct source *s) {
	s->has_row = step(p, s->statement);
	if (!s->has_row) return;
	s->process = sqlite3_column_int64(s->statement, 0);
	s->heap_id = sqlite3_column_int64(s->statement, 2);
	s->stack = sqlite3_column_int64(s->statement, 3);
	s->blocks = sqlite3_column_int64(s->statement, 4);
	s->bytes = sqlite3_column_int64(s->statement, 5);
}

static int compare_sources(const struct source *a, const struct source *b) {
	if (a->process != b->process) return a->process < b->process ? -1 : 1;
	if (a->heap_id != b->heap_id) {
		int names = strcmp(column_text(a->statement, 1), column_text(b->statement, 1));
		return names ? names : a->heap_id < b->heap_id ? -1 : 1;
	}
	return a->stack < b->stack ? -1 : a->stack > b->stack;
}

/* How people call a process: by its rank, as --process takes it, else by its number in the system; where others are called so, too (what a rank has
 * started, an exec, two hosts), with its number in the database. */
static void name_processes(struct pprof *p) {
	char *sql = sqlite3_mprintf(
		"DROP TABLE IF EXISTS temp.process_label; CREATE TEMP TABLE process_label(id INTEGER PRIMARY KEY, label TEXT NOT NULL);"
		"INSERT INTO temp.process_label WITH named AS (SELECT id, iif(rank IS NULL, 'pid ' || pid,"
		" 'rank ' || rank || iif(%d, coalesce('@' || world, ''), '')) AS name FROM process)"
		" SELECT id, name || iif(count(*) OVER (PARTITION BY name) > 1, ' (process ' || id || ')', '') FROM named",
		p->d->worlds > 1);
	if (!sql || sqlite3_exec(p->d->handle, sql, NULL, NULL, NULL) != SQLITE_OK)
		p->status = tm_fail("cannot read '%s': %s", p->d->path, sql ? sqlite3_errmsg(p->d->handle) : "out of memory");
	sqlite3_free(sql);
}

static uint64_t add_process(struct pprof *p, int64_t id) {
	sqlite3_stmt *statement = ask(p, sqlite3_mprintf("SELECT label FROM temp.process_label WHERE id = %lld", id));
	uint64_t string = add_string(p, step(p, statement) ? column_text(statement, 0) : "unknown");
	sqlite3_finalize(statement);
	return string;
}

/* The strings of its labels: new ones where they are not those of the sample before. */
static void name_labels(struct pprof *p, const struct source *row) {
	if (!p->heap_string || row->heap_id != p->heap_id) {
		p->heap_id = row->heap_id;
		const char *heap = column_text(row->statement, 1);
		if (!p->heap || strcmp(heap, p->heap) != 0) {
			sqlite3_free(p->heap);
			p->heap = sqlite3_mprintf("%s", heap);
			p->heap_string = add_string(p, heap);
		}
	}
	if (!p->process_string || p->process != row->process) {
		p->process = row->process;
		p->process_string = add_process(p, p->process);
	}
}

static void write_sample(struct pprof *p, const struct source *row, const int64_t values[TYPE_COUNT]) {
	name_labels(p, row);
	for (uint32_t id = tm_stack_frames_check(&p->frames, row->stack); id; id = p->frames.parent[id]) {
		p->frames.is_used[p->frames.frame[id]] = 1;
		tm_put_varint(&p->inner, p->frames.frame[id]);
	}
	put_message(&p->message, SAMPLE_LOCATIONS, &p->inner);
	for (size_t i = 0; i < TYPE_COUNT; i++) tm_put_varint(&p->inner, (uint64_t)values[i]);
	put_message(&p->message, SAMPLE_VALUES, &p->inner);
	put_label(p, p->key_heap, p->heap_string);
	put_label(p, p->key_process, p->process_string);
	put_message(&p->stream, PROFILE_SAMPLE, &p->message);
	if (p->stream.size >= FLUSH_BYTES || p->stream.failed) tm_output_flush(p->out, &p->stream);
}

/* The source whose row is the lowest, or NULL at the end of all. */
static struct source *lowest(struct source sources[QUERY_COUNT]) {
	struct source *least = NULL;
	for (int i = 0; i < QUERY_COUNT; i++) {
		if (!sources[i].has_row) continue;
		if (!least || compare_sources(&sources[i], least) < 0) least = &sources[i];
	}
	return least;
}

static void merge_samples(struct pprof *p, struct source sources[QUERY_COUNT]) {
	struct source *least;
	for (int i = 0; i < QUERY_COUNT; i++) advance(p, &sources[i]);
	while (!p->status && !p->out->failed && (least = lowest(sources)) != NULL) {
		int64_t values[TYPE_COUNT + 1] = { 0 };
		bool taken[QUERY_COUNT];
		for (int i = 0; i < QUERY_COUNT; i++) {
			taken[i] = sources[i].has_row && compare_sources(&sources[i], least) == 0;
			if (!taken[i]) continue;
			values[2 * i] = sources[i].blocks;
			values[2 * i + 1] = sources[i].bytes;
		}
		values[4] = values[5]; /* of the peak, the bytes only */
		write_sample(p, least, values);
		for (int i = 0; i < QUERY_COUNT; i++) {
			if (taken[i]) advance(p, &sources[i]);
		}
	}
}

static void write_samples(struct pprof *p) {
	struct source sources[QUERY_COUNT] = { 0 };
	for (int i = 0; i < QUERY_COUNT; i++) {
		sqlite3_str *sql = sqlite3_str_new(p->d->handle);
		tm_sql_stack_values(sql, p->d, p->o, merged_values[i]);
		sqlite3_str_appendall(sql, "SELECT process_id, heap, heap_id, stack_id, blocks, bytes FROM by_stack\n"
					   "ORDER BY process_id, heap, heap_id, stack_id");
		sources[i].statement = ask(p, sqlite3_str_finish(sql));
	}
	merge_samples(p, sources);
	for (int i = 0; i < QUERY_COUNT; i++) sqlite3_finalize(sources[i].statement);
}

/* Locations of the frames that were used, and their functions: one for each name in a file, which the order of the rows brings together. */
static void write_locations(struct pprof *p) {
	char *file = NULL, *name = NULL;
	uint64_t function = 0, file_string = 0;
	sqlite3_stmt *statement =
		ask(p, sqlite3_mprintf("SELECT f.id, t.text, coalesce(f.file, '') AS file, coalesce(f.line, 0), coalesce(f.module_id, 0),\n"
				       "  coalesce(m.base_address, 0) + coalesce(f.module_offset, 0)\n"
				       "FROM frame AS f JOIN frame_text AS t ON t.frame_id = f.id LEFT JOIN module AS m ON m.id = f.module_id\n"
				       "ORDER BY file, t.text, f.id"));
	while (step(p, statement)) {
		int64_t id = sqlite3_column_int64(statement, 0);
		if (id <= 0 || id >= p->frames.frame_count || !p->frames.is_used[id]) continue;
		bool new_file = !file || strcmp(file, column_text(statement, 2)) != 0;
		if (new_file) {
			sqlite3_free(file);
			file = sqlite3_mprintf("%s", column_text(statement, 2));
			file_string = file && *file ? add_string(p, file) : 0;
		}
		if (new_file || !name || strcmp(name, column_text(statement, 1)) != 0) {
			sqlite3_free(name);
			name = sqlite3_mprintf("%s", column_text(statement, 1));
			uint64_t string = add_string(p, name ? name : "");
			put_number(&p->message, FUNCTION_ID, ++function);
			put_number(&p->message, FUNCTION_NAME, string);
			put_number(&p->message, FUNCTION_SYSTEM_NAME, string);
			put_number(&p->message, FUNCTION_FILE, file_string);
			put_message(&p->stream, PROFILE_FUNCTION, &p->message);
		}
		put_number(&p->inner, LINE_FUNCTION, function);
		put_number(&p->inner, LINE_LINE, (uint64_t)sqlite3_column_int64(statement, 3));
		put_number(&p->message, LOCATION_ID, (uint64_t)id);
		put_number(&p->message, LOCATION_MAPPING, (uint64_t)sqlite3_column_int64(statement, 4));
		put_number(&p->message, LOCATION_ADDRESS, (uint64_t)sqlite3_column_int64(statement, 5));
		put_message(&p->message, LOCATION_LINE, &p->inner);
		put_message(&p->stream, PROFILE_LOCATION, &p->message);
		tm_output_flush(p->out, &p->stream);
	}
	sqlite3_finalize(statement);
	sqlite3_free(file);
	sqlite3_free(name);
}

int tm_export_pprof(const struct tm_database *d, const struct tm_options *o, struct tm_output *out) {
	struct pprof p = { .d = d, .o = o, .out = out };
	if (o->value == TM_VALUE_TEMPORARY)
		return tm_misuse("export", "pprof has allocated, live and peak values; --value says which is shown first, and cannot be temporary");
	p.status = tm_stack_frames_load(&p.frames, d);
	if (!p.status) name_processes(&p);
	if (!p.status) {
		write_header(&p);
		write_mappings(&p);
		write_samples(&p);
		write_locations(&p);
		tm_output_flush(out, &p.stream);
	}
	sqlite3_free(p.heap);
	tm_bytes_release(&p.stream);
	tm_bytes_release(&p.message);
	tm_bytes_release(&p.inner);
	tm_stack_frames_release(&p.frames);
	return p.status;
}
