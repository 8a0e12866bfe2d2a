/* export_csv.c - a view or a table as comma-separated values (RFC 4180): for spreadsheets, pandas, R and every database's loader.
 *
 * The columns are those that views.sql and tables.sql describe; where a row names a stack, the last column is the stack as text. A field is empty where
 * the value is NULL, and "" where it is an empty text. --heap, --process, --from and --to choose rows where the view has such columns.
 */
#include "export.h"

#include <string.h>

#include "render.h"
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
	if (o->process_given && o->process_is_rank)
		sqlite3_str_appendf(sql, " AND v.process_id IN (SELECT id FROM process WHERE rank = %lld)", o->process);
	else if (o->process_given) sqlite3_str_appendf(sql, " AND v.process_id = %lld", o->process);
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

static int write_rows(const struct tm_database *d, sqlite3_stmt *statement, struct tm_output *out) {
	struct tm_bytes row = TM_BYTES_INIT;
	int step = SQLITE_ROW;
	tm_csv_header(&row, statement);
	tm_output_flush(out, &row);
	while (!out->failed && (step = sqlite3_step(statement)) == SQLITE_ROW) {
		tm_csv_row(&row, statement);
		tm_output_flush(out, &row);
	}
	tm_bytes_release(&row);
	if (out->failed || step == SQLITE_DONE) return 0;
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
	bool has_stack = has_column(d, view, "stack_id");
	sqlite3_str_appendf(sql, "SELECT v.*%s\nFROM \"%w\" AS v",
			    has_stack && strcmp(view, "stack_text") != 0
				    ? ", (SELECT text FROM stack_text AS t WHERE t.stack_id = v.stack_id) AS stack"
				    : "",
			    view);
	if (!status && !put_conditions(sql, d, o, view)) status = TM_EXIT_FAILED;
	char *query = sqlite3_str_finish(sql);
	if (!status && has_stack) status = tm_stack_frames_examine(d);
	if (!status) status = tm_database_prepare(d, query, &statement);
	if (!status) status = write_rows(d, statement, out);
	sqlite3_finalize(statement);
	sqlite3_free(query);
	return status;
}
