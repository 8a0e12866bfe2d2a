/* window_peak.c - SQL for the highest level within a window of time, without replaying the window.
 *
 * Flow:  scans.c (tm_sql_highest) -> here, for a database with checkpoints
 * Idea:  the table timeline keeps the highest level of every bucket of time, so all buckets that lie inside the window are answered by it. Only
 *        the two that the window's ends cut through have to be replayed, from the allocations that live_sets.h would read. Buckets are
 *        at most as wide as the power of two (times 1,024 ns) that fits the process into 2,048 of them, and never straddle a wider one's
 *        ends (timeline.h), so the ends of a bucket of that width are ends of buckets in every heap.
 */
#include "live_sets.h"
#include "scans.h"
#include "window_replay.h"

#include <stddef.h>

/* The two stretches of time, of each process, and where their rows lie. `simple`: their checkpoints keep stacks, so
 * no mapping was split in it. */
static void put_edges(sqlite3_str *sql, const struct tm_options *o) {
	const char *from = o->from.kind == TM_TIME_UNSET ? "i.start_ns" : "max(i.from_ns, i.start_ns)";
	const char *to = o->to.kind == TM_TIME_UNSET ? "i.end_ns" : "min(i.to_ns, i.end_ns)";
	sqlite3_str_appendf(sql,
			    "width(ns) AS (SELECT 1024 UNION ALL SELECT ns * 2 FROM width WHERE ns < 1 << 60),\n"
			    "bound AS MATERIALIZED (\n  SELECT DISTINCT i.process_id, i.start_ns, %s AS from_ns, %s AS to_ns,\n"
			    "         (SELECT min(ns) FROM width WHERE (i.end_ns - i.start_ns) / ns < 2048) AS ns\n"
			    "  FROM instant AS i WHERE %s <= %s),\n",
			    from, to, from, to);
	sqlite3_str_appendall(
		sql,
		"edge AS MATERIALIZED (\n  SELECT process_id, start_ns + (from_ns - start_ns) / ns * ns AS first_ns, ns, 1 AS n FROM bound\n"
		"  UNION ALL SELECT process_id, start_ns + (to_ns - start_ns) / ns * ns, ns, 2 FROM bound\n"
		"  WHERE (from_ns - start_ns) / ns <> (to_ns - start_ns) / ns),\n"
		"place AS MATERIALIZED (\n  SELECT e.process_id, p.trace_id, e.first_ns, e.first_ns + e.ns - 1 AS last_ns,\n"
		"         (SELECT min(c.id) FROM checkpoint AS c WHERE c.trace_id = p.trace_id AND c.ts_ns > e.first_ns) AS first_checkpoint,\n"
		"         coalesce((SELECT min(c.id) FROM checkpoint AS c WHERE c.trace_id = p.trace_id AND c.ts_ns >= e.first_ns + e.ns),\n"
		"                  (SELECT max(c.id) FROM checkpoint AS c WHERE c.trace_id = p.trace_id)) AS checkpoint_id\n"
		"  FROM edge AS e JOIN process AS p ON p.id = e.process_id),\n"
		"stretch AS MATERIALIZED (\n  SELECT w.*, c.allocation_id AS last_id,\n"
		"         coalesce((SELECT b.allocation_id FROM checkpoint AS b WHERE b.id = w.first_checkpoint - 1 AND b.trace_id = w.trace_id),\n"
		"                  (SELECT min(b.allocation_id) FROM checkpoint AS b WHERE b.trace_id = w.trace_id)) + 1 AS first_id,\n"
		"         (SELECT min(b.has_stacks) FROM checkpoint AS b WHERE b.id BETWEEN w.first_checkpoint AND w.checkpoint_id) AS simple\n"
		"  FROM place AS w JOIN checkpoint AS c ON c.id = w.checkpoint_id),\n");
}

/* What was live when a stretch opened. */
static void put_base(sqlite3_str *sql, const struct tm_database *d, int n) {
	char instants[16], suffix[8];
	sqlite3_snprintf(sizeof instants, instants, "opening_%d", n);
	sqlite3_snprintf(sizeof suffix, suffix, "_%d", n);
	sqlite3_str_appendf(sql,
			    "%s AS MATERIALIZED (\n  SELECT i.process_id, i.heap_id, i.end_ns, e.first_ns AS at_ns\n"
			    "  FROM instant AS i JOIN edge AS e ON e.process_id = i.process_id AND e.n = %d),\n",
			    instants, n);
	tm_sql_block_stacks(sql, d, instants, NULL, suffix);
	sqlite3_str_appendall(sql, ",\n");
}

#define BASE_ROWS \
	"SELECT b.process_id, e.first_ns, b.heap_id, e.first_ns AS ts_ns, sum(b.live_bytes) AS bytes, sum(b.live_count) AS blocks\n" \
	"  FROM block_%d AS b JOIN edge AS e ON e.process_id = b.process_id AND e.n = %d GROUP BY b.process_id, b.heap_id\n"
#define TOUCHED_ROWS \
	"SELECT w.process_id, w.first_ns, w.last_ns, o.heap_id, a.id, a.size_bytes, a.alloc_ns, a.alloc_ns + a.lifetime_ns AS free_ns, a.realloc_of_id\n"
#define TOUCHED_JOIN \
	"  CROSS JOIN allocation_origin AS o ON o.id = a.origin_id AND o.process_id = w.process_id\n" \
	"  WHERE a.alloc_ns <= w.last_ns AND (a.lifetime_ns IS NULL OR a.alloc_ns + a.lifetime_ns > w.first_ns)\n" \
	"  AND (a.alloc_ns > w.first_ns OR a.alloc_ns + a.lifetime_ns <= w.last_ns OR a.realloc_of_id IS NOT NULL)"

#define WHOLE_BLOCK "CASE WHEN " TM_SQL_SPLIT_AFTER("a.alloc_ns") " THEN 0 ELSE 1 END"

/* What changes within the stretches; what was live when one opened is one change. */
static void put_changes(sqlite3_str *sql) {
	sqlite3_str_appendf(sql,
			    "touched AS MATERIALIZED (\n  " TOUCHED_ROWS
			    "  FROM stretch AS w CROSS JOIN allocation_packed AS a ON a.id BETWEEN w.first_id AND w.last_id\n" TOUCHED_JOIN
			    "\n  UNION ALL\n  " TOUCHED_ROWS
			    "  FROM stretch AS w CROSS JOIN checkpoint AS e ON e.trace_id = w.trace_id AND e.id <= w.checkpoint_id\n"
			    "    AND (e.id >= w.first_checkpoint OR NOT w.simple)\n"
			    "  CROSS JOIN checkpoint_live AS r ON r.checkpoint_id = e.id AND r.first_id > w.last_id\n"
			    "  CROSS JOIN allocation_packed AS a ON a.id BETWEEN r.first_id AND r.first_id + r.more\n" TOUCHED_JOIN
			    " AND a.alloc_ns < e.ts_ns\n  AND a.alloc_ns >= (SELECT d.ts_ns FROM checkpoint AS d WHERE d.id = e.id - 1)),\n"
			    "change AS (\n  " BASE_ROWS "  UNION ALL\n  " BASE_ROWS
			    "  UNION ALL\n  SELECT a.process_id, a.first_ns, a.heap_id, a.alloc_ns, a.size_bytes, " WHOLE_BLOCK "\n"
			    "  FROM touched AS a WHERE a.alloc_ns > a.first_ns\n"
			    "  UNION ALL\n  SELECT a.process_id, a.first_ns, a.heap_id, a.free_ns, -a.size_bytes, -1\n"
			    "  FROM touched AS a WHERE a.free_ns <= a.last_ns\n"
			    "  UNION ALL\n  SELECT a.process_id, a.first_ns, a.heap_id, q.free_ns, 0, 1\n"
			    "  FROM touched AS a CROSS JOIN allocation AS q ON q.id = a.realloc_of_id\n"
			    "  WHERE q.free_ns > max(a.alloc_ns, a.first_ns) AND q.free_ns <= a.last_ns),\n",
			    1, 1, 2, 2);
}

/* The levels of the stretches, with an expression `reached`: no name of a table, which the window's ends may ask for. */
static void put_stretches(sqlite3_str *sql, const struct tm_database *d) {
	put_base(sql, d, 1);
	put_base(sql, d, 2);
	put_changes(sql);
	/* A level is what all changes of its time have made, and lasts until the next one. */
	sqlite3_str_appendall(
		sql,
		"reached AS (\n"
		"  SELECT process_id, heap_id, ts_ns, sum(bytes) OVER w AS live_bytes, sum(blocks) OVER w AS live_count, lead(ts_ns) OVER w AS next_ns\n"
		"  FROM (SELECT c.process_id, CASE x.whole WHEN 0 THEN c.heap_id END AS heap_id, c.first_ns, c.ts_ns, c.bytes, c.blocks\n"
		"        FROM change AS c JOIN heap AS h ON h.id = c.heap_id CROSS JOIN (SELECT 0 AS whole UNION ALL SELECT 1) AS x\n"
		"        WHERE h.is_root OR NOT x.whole)\n"
		"  WINDOW w AS (PARTITION BY process_id, first_ns, heap_id ORDER BY ts_ns)),\n"
		"level AS MATERIALIZED (\n"
		"  SELECT s.process_id, s.heap_id, max(s.ts_ns, b.from_ns) AS ts_ns, s.live_bytes, s.live_count\n"
		"  FROM reached AS s JOIN bound AS b ON b.process_id = s.process_id\n"
		"  WHERE s.ts_ns <= b.to_ns AND (s.next_ns IS NULL OR s.next_ns > b.from_ns OR s.ts_ns >= b.from_ns)\n");
}

void tm_sql_window_peaks(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	put_edges(sql, o);
	if (!o->sql && tm_window_replay(d, sqlite3_str_value(sql)))
		sqlite3_str_appendall(sql, "level AS MATERIALIZED (\n  SELECT * FROM temp.window_level\n");
	else put_stretches(sql, d);
	sqlite3_str_appendall(
		sql, "  UNION ALL\n"
		     "  SELECT t.process_id, nullif(t.heap_id, 0), t.ts_ns, t.live_bytes, t.live_count\n"
		     "  FROM timeline AS t JOIN bound AS b ON b.process_id = t.process_id WHERE t.ts_ns BETWEEN b.from_ns AND b.to_ns)");
}
