/* level_errors.c - errors of estimated levels; see level_errors.h. */
#include "level_errors.h"

#define CHANGE(ns, sign) \
	"SELECT a.process_id, a.heap_id, " ns " AS ts_ns, " sign "1.0 * a.size_bytes * a.size_bytes * a.weight * (a.weight - 1) AS variance,\n" \
	"         " sign "a.weight * (a.weight - 1) AS count_variance FROM allocation AS a WHERE a.weight > 1"

void tm_sql_level_errors(sqlite3_str *sql, const char *moments) {
	sqlite3_str_appendf(sql,
			    "variance_change AS MATERIALIZED (\n  " CHANGE("a.alloc_ns", "") "\n"
			    "  UNION ALL " CHANGE("a.free_ns", "-") " AND a.free_ns IS NOT NULL),\n"
			    "variance_level AS (\n"
			    "  SELECT process_id, heap_id, ts_ns, is_moment, sum(variance) OVER w AS variance, sum(count_variance) OVER w AS count_variance\n"
			    "  FROM (SELECT process_id, heap_id, ts_ns, 0 AS is_moment, variance, count_variance FROM variance_change\n"
			    "        UNION ALL SELECT c.process_id, 0, c.ts_ns, 0, c.variance, c.count_variance\n"
			    "        FROM variance_change AS c JOIN heap AS h ON h.id = c.heap_id WHERE h.is_root\n"
			    "        UNION ALL SELECT process_id, heap_id, at_ns, 1, 0, 0 FROM %s)\n"
			    "  WINDOW w AS (PARTITION BY process_id, heap_id ORDER BY ts_ns, is_moment)),\n"
			    /* What is left of a sum of which all has been taken away again is nothing. */
			    "level_error AS MATERIALIZED (\n"
			    "  SELECT process_id, heap_id, ts_ns AS at_ns, max(variance, 0) AS variance, max(count_variance, 0) AS count_variance\n"
			    "  FROM variance_level WHERE is_moment)",
			    moments);
}
