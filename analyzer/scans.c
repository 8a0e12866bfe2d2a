/* scans.c - the common table expressions that scan allocations.
 *
 * Named instants (exit, peak, a mark) differ from process to process, so each scan starts from a small table of instants, one row a heap, that the
 * allocations are joined with. A window's peak is found by replay: every change of a heap's level before the window is moved to the window's
 * first instant, so that the running sum begins with what was live there.
 */
#include "scans.h"

#include <stddef.h>

bool tm_has_window(const struct tm_options *o) { return o->from.kind != TM_TIME_UNSET || o->to.kind != TM_TIME_UNSET; }

static void put_instant(sqlite3_str *sql, const struct tm_options *o, const struct tm_time_point *point, const char *name) {
	if (!point || point->kind == TM_TIME_UNSET) return;
	sqlite3_str_appendall(sql, ",\n         ");
	tm_time_point_sql(sql, point, "p.id", o->heap);
	sqlite3_str_appendf(sql, " AS %s", name);
}

void tm_sql_instants(sqlite3_str *sql, const struct tm_options *o, const struct tm_time_point *at) {
	sqlite3_str_appendall(sql, "instant AS MATERIALIZED (\n  SELECT h.id AS heap_id, h.is_root, h.name AS heap, p.id AS process_id, p.start_ns, p.end_ns");
	put_instant(sql, o, at, "at_ns");
	put_instant(sql, o, &o->from, "from_ns");
	put_instant(sql, o, &o->to, "to_ns");
	sqlite3_str_appendall(sql, "\n  FROM heap AS h JOIN process AS p ON p.id = h.process_id)");
}

void tm_sql_window(sqlite3_str *sql, const struct tm_options *o, const char *first, const char *last) {
	if (o->from.kind != TM_TIME_UNSET) sqlite3_str_appendf(sql, " AND %s >= i.from_ns", first);
	if (o->to.kind != TM_TIME_UNSET) sqlite3_str_appendf(sql, " AND %s <= i.to_ns", last);
}

const char *tm_sql_sum_bytes(const struct tm_database *d) {
	return d->estimated ? "CAST(round(sum(a.size_bytes * a.weight)) AS INTEGER)" : "sum(a.size_bytes)";
}

const char *tm_sql_sum_count(const struct tm_database *d) { return d->estimated ? "CAST(round(sum(a.weight)) AS INTEGER)" : "count(*)"; }

void tm_sql_live(sqlite3_str *sql, const struct tm_database *d, const char *instants, const struct tm_options *window) {
	sqlite3_str_appendf(sql, "block AS MATERIALIZED (\n  SELECT a.process_id, a.heap_id, a.stack_id, %s AS live_bytes, %s AS live_count%s\n",
			    tm_sql_sum_bytes(d), tm_sql_sum_count(d), d->estimated ? ",\n         " TM_SQL_VARIANCE " AS variance" : "");
	sqlite3_str_appendf(sql,
			    "  FROM allocation AS a JOIN %s AS i ON i.heap_id = a.heap_id\n"
			    "  WHERE a.alloc_ns <= i.at_ns AND (a.free_ns IS NULL OR a.free_ns > i.at_ns) AND i.at_ns <= i.end_ns",
			    instants);
	if (window) tm_sql_window(sql, window, "a.alloc_ns", "a.alloc_ns");
	sqlite3_str_appendf(sql,
			    "\n  GROUP BY a.process_id, a.heap_id, a.stack_id),\n"
			    "live AS (\n  SELECT b.process_id, h.name AS heap, b.stack_id, b.live_bytes, b.live_count, s.function, s.file, s.line,\n"
			    "         s.module, s.module_offset, h.estimated%s\n"
			    "  FROM block AS b JOIN heap AS h ON h.id = b.heap_id\n"
			    "  LEFT JOIN site AS s ON s.process_id = b.process_id AND s.heap = h.name AND s.stack_id = b.stack_id)",
			    d->estimated ? ",\n         round(sqrt(b.variance) / b.live_bytes, 4) AS relative_error" : "");
}

/* The changes of the live bytes of each heap up to the end of the window. */
static void put_changes(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	const char *weighted = d->estimated ? " * a.weight" : "";
	const char *blocks = d->estimated ? "a.weight" : "1";
	bool from = o->from.kind != TM_TIME_UNSET, to = o->to.kind != TM_TIME_UNSET;
	for (int is_free = 0; is_free < 2; is_free++) {
		const char *column = is_free ? "a.free_ns" : "a.alloc_ns", *sign = is_free ? "-" : "";
		char ts[48];
		sqlite3_snprintf(sizeof(ts), ts, from ? "max(%s, i.from_ns)" : "%s", column);
		sqlite3_str_appendf(sql,
				    "%s  SELECT i.process_id, i.heap_id, i.is_root, %s AS ts_ns, %sa.size_bytes%s AS bytes, %s%s AS blocks\n"
				    "  FROM allocation AS a JOIN instant AS i ON i.heap_id = a.heap_id\n"
				    "  WHERE %s <= %s",
				    is_free ? "\n  UNION ALL\n" : "change AS (\n", ts, sign, weighted, sign, blocks, ts, to ? "min(i.to_ns, i.end_ns)" : "i.end_ns");
	}
	sqlite3_str_appendall(sql, ")");
}

void tm_sql_highest(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	tm_sql_instants(sql, o, NULL);
	sqlite3_str_appendall(sql, ",\n");
	put_changes(sql, d, o);
	sqlite3_str_appendall(sql, ",\nlevel AS (\n"
				   "  SELECT process_id, heap_id, ts_ns, sum(bytes) OVER w AS live_bytes, sum(blocks) OVER w AS live_count FROM change\n"
				   "  WINDOW w AS (PARTITION BY heap_id ORDER BY ts_ns)\n"
				   "  UNION ALL\n"
				   "  SELECT process_id, NULL, ts_ns, sum(bytes) OVER w, sum(blocks) OVER w FROM change WHERE is_root\n"
				   "  WINDOW w AS (PARTITION BY process_id ORDER BY ts_ns)),\n"
				   "ranked AS (\n"
				   "  SELECT *, row_number() OVER (PARTITION BY process_id, heap_id ORDER BY live_bytes DESC, ts_ns) AS place FROM level),\n"
				   "highest AS (\n"
				   "  SELECT r.process_id, h.name AS heap, r.ts_ns, CAST(round(r.live_bytes) AS INTEGER) AS live_bytes,\n"
				   "         CAST(round(r.live_count) AS INTEGER) AS live_count, coalesce(h.estimated, p.estimated) AS estimated\n"
				   "  FROM ranked AS r JOIN process AS p ON p.id = r.process_id LEFT JOIN heap AS h ON h.id = r.heap_id\n"
				   "  WHERE r.place = 1)");
}

void tm_sql_live_at_peak(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	if (tm_has_window(o)) {
		tm_sql_highest(sql, d, o);
		sqlite3_str_appendall(sql, ",\n");
	}
	sqlite3_str_appendf(sql,
			    "top AS MATERIALIZED (\n  SELECT h.id AS heap_id, p.end_ns, k.ts_ns AS at_ns\n"
			    "  FROM heap AS h JOIN process AS p ON p.id = h.process_id JOIN %s AS k ON k.process_id = p.id AND k.heap = h.name),\n",
			    tm_has_window(o) ? "highest" : "peak");
	tm_sql_live(sql, d, "top", NULL);
}

void tm_sql_made(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	tm_sql_instants(sql, o, NULL);
	sqlite3_str_appendf(sql,
			    ",\nstep AS (\n  SELECT *, lead(alloc_ns) OVER (PARTITION BY thread_id ORDER BY alloc_ns, id) AS next_ns FROM allocation),\n"
			    "short_lived AS (\n  SELECT a.process_id, i.heap, a.stack_id, %s AS count, %s AS bytes\n"
			    "  FROM step AS a JOIN instant AS i ON i.heap_id = a.heap_id\n"
			    "  WHERE a.free_thread_id = a.thread_id AND (a.next_ns IS NULL OR a.free_ns <= a.next_ns)",
			    tm_sql_sum_count(d), tm_sql_sum_bytes(d));
	tm_sql_window(sql, o, "a.alloc_ns", "a.alloc_ns");
	sqlite3_str_appendall(sql, "\n  GROUP BY a.process_id, a.heap_id, a.stack_id),\n"
				   "made AS (\n  SELECT t.*, s.function, s.file, s.line, s.module, s.module_offset, s.estimated\n"
				   "  FROM short_lived AS t LEFT JOIN site AS s\n"
				   "  ON s.process_id = t.process_id AND s.heap = t.heap AND s.stack_id = t.stack_id)");
}
