/* export_csv.c - a view or a table as comma-separated values (RFC 4180): for spreadsheets, pandas, R and every database's loader.
 *
 * The columns are those that views.sql and tables.sql describe; where a row names a stack, the last column is the stack as text. A field is empty where
 * the value is NULL, and "" where it is an empty text. --heap, --process, --from and --to choose rows where the view has such columns.
 */
#include "export.h"

#include <stdlib.h>
#include <string.h>

#include "render.h"
#include "scans.h"
#include "stack_frames.h"
#include "talk.h"

#define DEFAULT_VIEW "site"

static bool has_column(const struct tm_database *d, const char *view, const char *column) {
	char *sql = sqlite3_mprintf("SELECT count(*) FROM pragma_table_info(%Q) WHERE name = %Q", view, column);
	bool found = sql && tm_database_integer(d, sql, 0) > 0;
	sqlite3_free(sql);
	return found;
}

/* Appends the conditions; false after saying that the view has no column for one. */
static bool put_conditions(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, const char *view) {
	const char *ts = has_column(d, view, "ts_ns") ? "ts_ns" : has_column(d, view, "alloc_ns") ? "alloc_ns" : NULL;
	sqlite3_str_appendall(sql, "\nWHERE true");
	if (o->heap && has_column(d, view, "heap")) sqlite3_str_appendf(sql, " AND v.heap = %Q", o->heap);
	else if (o->heap && has_column(d, view, "heap_id"))
		sqlite3_str_appendf(sql, " AND v.heap_id IN (SELECT id FROM heap WHERE name = %Q)", o->heap);
	else if (o->heap) return tm_fail("cannot choose by --heap: '%s' has no such column", view), false;
	if (o->process_given && !has_column(d, view, "process_id"))
		return tm_fail("cannot choose by --process: '%s' has no column process_id", view), false;
	tm_sql_process(sql, o, " AND", "v.process_id");
	const struct {
		const struct tm_time_point *point;
		const char *compare;
	} ends[] = { { &o->from, ">=" }, { &o->to, "<=" } };
	for (int i = 0; i < 2; i++) {
		if (ends[i].point->kind == TM_TIME_UNSET) continue;
		if (!ts || !has_column(d, view, "process_id"))
			return tm_fail("cannot choose by --from or --to: '%s' has no times of a process", view), false;
		sqlite3_str_appendf(sql, " AND v.%s %s ", ts, ends[i].compare);
		tm_time_point_sql(sql, ends[i].point, "v.process_id", o->heap);
	}
	return true;
}

/* --- stacks --- */

/* A frame's text in the bytes of all, as it stands in a field, and a semicolon. */
struct frame_text {
	size_t start, size;
	bool quoted; /* the field needs quotation marks */
};

/* What stack_text would say of each row; to ask it takes a hundred times as long. */
struct stacks {
	struct tm_stack_frames frames;
	struct frame_text *texts; /* by frame id */
	struct tm_bytes bytes;
	struct tm_bytes text; /* of the last row's stack */
	size_t plain_steps;   /* of it: frames outside of the first one that needs quotation marks */
};

static int load_stacks(struct stacks *s, const struct tm_database *d) {
	sqlite3_stmt *row = NULL;
	int step = SQLITE_DONE, status = tm_stack_frames_load(&s->frames, d);
	if (status) return status;
	s->texts = calloc((size_t)s->frames.frame_count, sizeof(*s->texts));
	if (!s->texts) return tm_fail("cannot export '%s': out of memory", d->path);
	status = tm_database_prepare(d, "SELECT frame_id, text FROM frame_text", &row);
	while (!status && (step = sqlite3_step(row)) == SQLITE_ROW) {
		int64_t frame = sqlite3_column_int64(row, 0);
		const char *text = (const char *)sqlite3_column_text(row, 1);
		if (!text || frame <= 0 || frame >= s->frames.frame_count) continue;
		size_t start = s->bytes.size;
		bool quoted = tm_csv_text(&s->bytes, text, (size_t)sqlite3_column_bytes(row, 1));
		tm_put_raw(&s->bytes, ";", 1);
		s->texts[frame] = (struct frame_text){ start, s->bytes.size - start, quoted };
	}
	if (!status && s->bytes.failed) status = tm_fail("cannot export '%s': out of memory", d->path);
	if (!status && step != SQLITE_DONE) status = tm_fail("cannot read '%s': %s", d->path, sqlite3_errmsg(d->handle));
	sqlite3_finalize(row);
	return status;
}

/* Appends the stack as a field; nothing where there is none. */
static int put_stack(struct stacks *s, struct tm_bytes *row, sqlite3_stmt *statement, int column) {
	size_t kept = 0;
	int64_t id = sqlite3_column_int64(statement, column);
	uint32_t stack = tm_stack_frames_check(&s->frames, id);
	if (sqlite3_column_type(statement, column) == SQLITE_NULL || (id && !stack)) return 0;
	int status = tm_stack_frames_enter(&s->frames, stack, &kept);
	if (status) return status;
	s->text.size = tm_stack_frames_text_end(&s->frames, kept);
	if (s->plain_steps > kept) s->plain_steps = kept;
	for (size_t i = kept; i < s->frames.path.count; i++) {
		const struct frame_text *text = &s->texts[s->frames.frame[s->frames.path.items[i].stack]];
		tm_put_raw(&s->text, s->bytes.data + text->start, text->size);
		s->frames.path.items[i].text_end = s->text.size;
		if (!text->quoted && s->plain_steps == i) s->plain_steps++;
	}
	bool quoted = s->text.size <= 1 || s->plain_steps < s->frames.path.count;
	if (quoted) tm_put_raw(row, "\"", 1);
	tm_put_raw(row, s->text.data, s->text.size ? s->text.size - 1 : 0);
	if (quoted) tm_put_raw(row, "\"", 1);
	row->failed |= s->text.failed;
	return 0;
}

static void release_stacks(struct stacks *s) {
	tm_stack_frames_release(&s->frames);
	tm_bytes_release(&s->bytes);
	tm_bytes_release(&s->text);
	free(s->texts);
}

/* --- rows --- */

/* stacks: of the last column, which names one; NULL: it is like the others. */
static int write_rows(const struct tm_database *d, sqlite3_stmt *statement, struct stacks *stacks, struct tm_output *out) {
	struct tm_bytes row = TM_BYTES_INIT;
	int step = SQLITE_ROW, columns = sqlite3_column_count(statement) - !!stacks, status = 0;
	tm_csv_header(&row, statement);
	tm_output_flush(out, &row);
	while (!status && !out->failed && (step = sqlite3_step(statement)) == SQLITE_ROW) {
		tm_csv_values(&row, statement, columns);
		if (stacks) tm_put_raw(&row, ",", 1);
		if (stacks) status = put_stack(stacks, &row, statement, columns);
		tm_put_raw(&row, "\n", 1);
		tm_output_flush(out, &row);
	}
	tm_bytes_release(&row);
	if (status || out->failed || step == SQLITE_DONE) return status;
	return tm_fail("cannot read '%s': %s", d->path, sqlite3_errmsg(d->handle));
}

int tm_export_csv(const struct tm_database *d, const struct tm_options *o, struct tm_output *out) {
	const char *view = o->view ? o->view : DEFAULT_VIEW;
	sqlite3_stmt *statement = NULL;
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	char *known = sqlite3_mprintf("SELECT count(*) FROM sqlite_master WHERE name = %Q AND type IN ('table', 'view')", view);
	int status = 0;
	if (!known || !tm_database_integer(d, known, 0)) {
		char *words = tm_database_words(d, "SELECT name FROM sqlite_master WHERE type = 'view' ORDER BY name");
		status = tm_fail("unknown view '%s', there are %s", view, words ? words : "none");
		sqlite3_free(words);
	}
	sqlite3_free(known);
	bool has_stack = has_column(d, view, "stack_id"), is_text = strcmp(view, "stack_text") == 0;
	sqlite3_str_appendf(sql, "SELECT %s\nFROM \"%w\" AS v",
			    is_text     ? "v.stack_id, v.stack_id AS text"
			    : has_stack ? "v.*, v.stack_id AS stack"
					: "v.*",
			    view);
	if (!status && !put_conditions(sql, d, o, view)) status = TM_EXIT_FAILED;
	char *query = sqlite3_str_finish(sql);
	struct stacks stacks = { 0 };
	if (!status && has_stack) status = load_stacks(&stacks, d);
	if (!status) status = tm_database_prepare(d, query, &statement);
	if (!status) status = write_rows(d, statement, has_stack ? &stacks : NULL, out);
	release_stacks(&stacks);
	sqlite3_finalize(statement);
	sqlite3_free(query);
	return status;
}
