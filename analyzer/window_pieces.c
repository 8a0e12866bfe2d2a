/* window_pieces.c - see window_pieces.h. */
#include "window_pieces.h"

#include "live_sets.h"
#include "scans.h"

/* Common table expressions ... `opened`: process_id, heap (NULL: the root heaps) and what was live when the window of `bound` opened. */
static void put_opened(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	struct tm_options whole = tm_without_window(o);
	whole.by = TM_BY_HEAP;
	sqlite3_str_appendall(sql, "opening AS MATERIALIZED (\n  SELECT b.id AS process_id, h.id AS heap_id, b.end_ns, b.from_ns AS at_ns\n"
				   "  FROM bound AS b JOIN heap AS h ON h.process_id = b.id),\n");
	tm_sql_block_stacks(sql, d, "opening", &whole, "");
	sqlite3_str_appendf(sql,
			    ",\nopened AS MATERIALIZED (\n  SELECT k.process_id, CASE x.whole WHEN 0 THEN h.name END AS heap, %s\n"
			    "  FROM block AS k JOIN heap AS h ON h.id = k.heap_id CROSS JOIN (SELECT 0 AS whole UNION ALL SELECT 1) AS x\n"
			    "  WHERE h.is_root OR NOT x.whole GROUP BY 1, 2),\n",
			    tm_sql_live_sums(d));
}

/* Common table expression `cut`: the highest level of the first and of the last bucket of the window, as far as they lie in it; what was live
 * before first_ns, a row before it has. */
static void put_cut(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	sqlite3_str *own = sqlite3_str_new(d->handle);
	tm_sql_window_levels(own, d, o);
	char *levels = sqlite3_str_finish(own);
	sqlite3_str_appendf(
		sql,
		"reached AS MATERIALIZED (\n  WITH %s\n  SELECT * FROM level),\n"
		"cut AS MATERIALIZED (\n"
		"  SELECT l.process_id, h.name AS heap, l.ts_ns, CAST(round(l.live_bytes) AS INTEGER) AS live_bytes,\n"
		"         CAST(round(l.live_count) AS INTEGER) AS live_count, coalesce(h.estimated, b.estimated) AS estimated,\n"
		"         max(b.start_ns + (l.ts_ns - b.start_ns) / b.ns * b.ns, b.from_ns + 1) AS first_ns,\n"
		"         row_number() OVER (PARTITION BY l.process_id, l.heap_id, (l.ts_ns - b.start_ns) / b.ns\n"
		"                            ORDER BY l.live_bytes DESC, l.ts_ns) AS place\n"
		"  FROM reached AS l JOIN bound AS b ON b.id = l.process_id LEFT JOIN heap AS h ON h.id = l.heap_id\n"
		"  WHERE (l.ts_ns - b.start_ns) / b.ns IN ((max(b.from_ns, b.start_ns) - b.start_ns) / b.ns, (min(b.to_ns, b.end_ns) - b.start_ns) / b.ns)),\n",
		levels ? levels : "");
	sqlite3_free(levels);
}

void tm_sql_bounds(sqlite3_str *sql, const struct tm_options *o) {
	sqlite3_str_appendall(sql, "bucket(ns) AS (SELECT 1024 UNION ALL SELECT ns * 2 FROM bucket WHERE ns < 1 << 60),\n"
				   "bound AS MATERIALIZED (\n  SELECT p.id, p.start_ns, p.estimated,\n"
				   "         (SELECT min(ns) FROM bucket WHERE (p.end_ns - p.start_ns) / ns < 2048) AS ns, ");
	if (o->from.kind == TM_TIME_UNSET) sqlite3_str_appendall(sql, "p.start_ns");
	else tm_sql_opening(sql, o, "p.id");
	sqlite3_str_appendall(sql, " AS from_ns, ");
	if (o->to.kind == TM_TIME_UNSET) sqlite3_str_appendall(sql, "p.end_ns");
	else tm_time_point_sql(sql, &o->to, "p.id", o->heap);
	sqlite3_str_appendall(sql, " AS to_ns, p.end_ns\n  FROM process AS p),\n");
}

void tm_sql_pieces(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *window) {
	const struct tm_options o = tm_since_known(d, window);
	bool from = o.from.kind != TM_TIME_UNSET;
	tm_sql_bounds(sql, &o);
	if (from) put_opened(sql, d, &o);
	put_cut(sql, d, &o);
	const char *level = from ? "CASE WHEN t.ts_ns > b.from_ns THEN t.%s ELSE coalesce(q.%s, 0) END AS %s" : "t.%s";
	char bytes[128], count[128];
	sqlite3_snprintf(sizeof bytes, bytes, level, "live_bytes", "live_bytes", "live_bytes");
	sqlite3_snprintf(sizeof count, count, level, "live_count", "live_count", "live_count");
	sqlite3_str_appendf(
		sql,
		"held AS (\n  SELECT *, lead(ts_ns) OVER (PARTITION BY process_id, heap ORDER BY ts_ns) AS next_ns FROM memory_timeline),\n"
		"stored AS MATERIALIZED (\n  SELECT t.process_id, t.heap, max(t.ts_ns, b.from_ns) AS ts_ns,\n         %s,\n         %s, t.estimated\n"
		"  FROM held AS t JOIN bound AS b ON b.id = t.process_id%s\n"
		"  WHERE t.ts_ns <= b.to_ns AND (t.next_ns > b.from_ns OR t.next_ns IS NULL)\n"
		"  AND b.from_ns <= min(b.to_ns, b.end_ns)),\n"
		"piece AS MATERIALIZED (\n  SELECT process_id, heap, ts_ns, live_bytes, live_count, estimated FROM stored\n"
		"  UNION ALL SELECT process_id, heap, ts_ns, live_bytes, live_count, estimated FROM cut AS c WHERE place = 1\n"
		"  AND NOT EXISTS (SELECT 1 FROM stored AS s WHERE s.process_id = c.process_id AND s.heap IS c.heap AND s.ts_ns = c.ts_ns)\n"
		"  AND live_bytes > coalesce((SELECT s.live_bytes FROM stored AS s WHERE s.process_id = c.process_id AND s.heap IS c.heap\n"
		"                             AND s.ts_ns < c.first_ns ORDER BY s.ts_ns DESC LIMIT 1), 0))",
		bytes, count, from ? "\n  LEFT JOIN opened AS q ON q.process_id = t.process_id AND q.heap IS t.heap" : "");
}
