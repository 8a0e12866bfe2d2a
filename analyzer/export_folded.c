/* export_folded.c - collapsed stacks: each call stack on a line, outermost frame first, and its bytes behind it.
 *
 * The sums by stack come from the view site, or from a scan where a window is asked for; equal texts (the same stack in several
 * processes) become one line. In this format a semicolon separates frames and a newline lines, so neither may come from a name.
 */
#include "export.h"

#include <stdio.h>
#include <string.h>

#include "display_text.h"
#include "json_text.h"
#include "listing.h"
#include "scans.h"
#include "talk.h"

/* The source of rows (process_id, heap, stack_id) and its column of bytes. */
struct value_source {
	const char *view, *column;
};

static struct value_source choose_view(const struct tm_options *o) {
	switch (o->value) {
	case TM_VALUE_LIVE:
	case TM_VALUE_LEAKED: return (struct value_source){ "site", "live_at_exit_bytes" };
	case TM_VALUE_ALLOCATED: return (struct value_source){ "site", "allocated_bytes" };
	case TM_VALUE_TEMPORARY: return (struct value_source){ "site", "temporary_bytes" };
	default: return (struct value_source){ "site", o->heap ? "peak_bytes" : "process_peak_bytes" };
	}
}

/* The process peak within a window, and what was live then, over the root heaps or in one. */
static void put_window_peak(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	tm_sql_highest(sql, d, o);
	sqlite3_str_appendf(
		sql,
		",\ntop AS MATERIALIZED (\n  SELECT h.id AS heap_id, p.end_ns, k.ts_ns AS at_ns\n"
		"  FROM heap AS h JOIN process AS p ON p.id = h.process_id JOIN highest AS k ON k.process_id = p.id AND k.heap IS %Q),\n",
		o->heap);
	tm_sql_live(sql, d, "top", NULL);
}

/* Scans for a window; true: `with` was appended and *source reads from it. */
static bool put_window(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, struct value_source *source) {
	static const struct tm_time_point at_exit = { .kind = TM_TIME_EXIT };
	if (!tm_has_window(o)) return false;
	*source = (struct value_source){ "live", "live_bytes" };
	switch (o->value) {
	case TM_VALUE_PEAK: put_window_peak(sql, d, o); break;
	case TM_VALUE_TEMPORARY:
		tm_sql_made(sql, d, o);
		*source = (struct value_source){ "made", "bytes" };
		break;
	case TM_VALUE_ALLOCATED:
		tm_sql_instants(sql, o, NULL);
		sqlite3_str_appendf(sql,
				    ",\nallocated AS (\n  SELECT a.process_id, i.heap, a.stack_id, %s AS bytes\n"
				    "  FROM allocation AS a JOIN instant AS i ON i.heap_id = a.heap_id WHERE true",
				    tm_sql_sum_bytes(d));
		tm_sql_window(sql, o, "a.alloc_ns", "a.alloc_ns");
		sqlite3_str_appendall(sql, "\n  GROUP BY a.process_id, a.heap_id, a.stack_id)");
		*source = (struct value_source){ "allocated", "bytes" };
		break;
	default:
		tm_sql_instants(sql, o, &at_exit);
		sqlite3_str_appendall(sql, ",\n");
		tm_sql_live(sql, d, "instant", o);
	}
	return true;
}

static char *compose(const struct tm_database *d, const struct tm_options *o) {
	struct value_source source = choose_view(o);
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	sqlite3_str_appendall(sql, "WITH ");
	if (put_window(sql, d, o, &source)) sqlite3_str_appendall(sql, ",\n");
	sqlite3_str_appendf(sql,
			    "by_stack AS MATERIALIZED (\n  SELECT v.stack_id, sum(v.%s) AS bytes FROM %s AS v\n"
			    "  JOIN heap AS h ON h.process_id = v.process_id AND h.name = v.heap WHERE ",
			    source.column, source.view);
	if (o->heap) sqlite3_str_appendf(sql, "v.heap = %Q", o->heap);
	else sqlite3_str_appendall(sql, "h.is_root");
	if (o->process_given && o->process_is_rank) {
		sqlite3_str_appendf(sql, " AND v.process_id IN (SELECT id FROM process WHERE rank = %lld)", o->process);
	} else if (o->process_given) {
		sqlite3_str_appendf(sql, " AND v.process_id = %lld", o->process);
	}
	sqlite3_str_appendall(sql, "\n  GROUP BY v.stack_id)\n"
				   "SELECT t.text, sum(b.bytes) FROM by_stack AS b JOIN stack_text AS t ON t.stack_id = b.stack_id\n"
				   "WHERE b.bytes > 0 GROUP BY t.text ORDER BY t.text");
	return sqlite3_str_finish(sql);
}

/* The frames, made harmless: what would end the line or could not be shown becomes a space. */
static void put_frames(struct tm_bytes *line, const char *text) {
	const char *end = text + strlen(text);
	if (text == end) tm_put_raw(line, "[no stack]", 10);
	while (text < end) {
		uint32_t c;
		size_t n = tm_utf8_next(text, end, &c);
		if (c < 0x20 || (c >= 0x7F && c < 0xA0) || tm_is_deceptive(c)) tm_put_raw(line, " ", 1);
		else if (c == 0xFFFD) tm_put_raw(line, "\xEF\xBF\xBD", 3);
		else tm_put_raw(line, text, n);
		text += n;
	}
}

int tm_export_folded(const struct tm_database *d, const struct tm_options *o, struct tm_output *out) {
	struct tm_bytes line = TM_BYTES_INIT;
	sqlite3_stmt *statement;
	char *sql = compose(d, o);
	int step = SQLITE_DONE, status = tm_database_prepare(d, sql, &statement);
	while (!status && !out->failed && (step = sqlite3_step(statement)) == SQLITE_ROW) {
		put_frames(&line, (const char *)sqlite3_column_text(statement, 0));
		tm_put_format(&line, " %lld\n", (long long)sqlite3_column_int64(statement, 1));
		tm_output_flush(out, &line);
	}
	if (!status && !out->failed && step != SQLITE_DONE) status = tm_fail("cannot read '%s': %s", d->path, sqlite3_errmsg(d->handle));
	sqlite3_finalize(statement);
	sqlite3_free(sql);
	tm_bytes_release(&line);
	return status;
}
