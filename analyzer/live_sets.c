/* live_sets.c - SQL for what was live at instants; see live_sets.h. */
#include "live_sets.h"

#include "live_groups.h"
#include "scans.h"

#include <stddef.h>

/* The expression block`suffix` as a table, made now; false: it has to be SQL. */
static bool make_blocks(sqlite3_str *sql, const struct tm_database *d, const char *instants, const struct tm_options *o, enum tm_by by,
			const char *suffix, const char *key) {
	char table[64]; /* of these instants alone: another query that is being read may have blocks at others */
	if (!d->has_checkpoints || d->estimated || o->sql) return false;
	sqlite3_snprintf(sizeof table, table, "block%s_at_%s", suffix, instants);
	if (!tm_live_groups_make(d, sqlite3_str_value(sql), instants, o, by, table, key)) return false;
	sqlite3_str_appendf(sql, "block%s AS (SELECT * FROM temp.%s)", suffix, table);
	return true;
}

/* Has the checkpoint behind one of the instants no stacks? Its blocks are then read one by one. */
static bool lacks_stacks(const struct tm_database *d, const char *with, const char *instants) {
	char *sql = sqlite3_mprintf("WITH %s no_more AS (SELECT 1)\n"
				    "SELECT EXISTS (SELECT 1 FROM %s AS i JOIN process AS p ON p.id = i.process_id JOIN checkpoint AS c\n"
				    "  ON c.id = (SELECT min(n.id) FROM checkpoint AS n WHERE n.trace_id = p.trace_id AND n.ts_ns > i.at_ns)\n"
				    "  WHERE i.at_ns <= i.end_ns AND NOT c.has_stacks)",
				    with, instants);
	bool lacks = sql && tm_database_integer(d, sql, 0);
	sqlite3_free(sql);
	return lacks;
}

/* The view `allocation` would do; it is written out so that its rows are judged before they are joined. */
#define NEAR_ROWS \
	"SELECT w.checkpoint_id, a.id, o.process_id, o.heap_id, o.thread_id, a.size_bytes, a.alloc_ns, a.stack_id,\n" \
	"         coalesce(a.scope_id, 0) AS scope_id, a.alloc_ns + a.lifetime_ns AS free_ns, a.realloc_of_id, coalesce(a.weight, 1.0) AS weight\n"
#define NEAR_JOIN \
	"  CROSS JOIN allocation_origin AS o ON o.id = a.origin_id\n" \
	"  WHERE a.alloc_ns <= w.last_ns AND (a.lifetime_ns IS NULL OR a.alloc_ns + a.lifetime_ns > w.first_ns)"
#define BETWEEN_CHECKPOINTS "CROSS JOIN allocation_packed AS a ON a.id BETWEEN w.first_id AND w.last_id\n"
#define LISTED "CROSS JOIN allocation_packed AS a ON a.id BETWEEN r.first_id AND r.first_id + r.more\n"
/* A range may take in rows that are listed for another checkpoint. */
#define LISTED_FOR(e) " AND a.alloc_ns < " e ".ts_ns AND a.alloc_ns >= (SELECT d.ts_ns FROM checkpoint AS d WHERE d.id = " e ".id - 1)"

/* The instants, and the stretches of rows between checkpoints that they lie in. */
static void put_moments(sqlite3_str *sql, const char *instants, const char *suffix) {
	sqlite3_str_appendf(
		sql,
		"moment%s AS MATERIALIZED (\n  SELECT i.*, (SELECT min(c.id) FROM checkpoint AS c\n"
		"         WHERE c.trace_id = p.trace_id AND c.ts_ns > i.at_ns) AS checkpoint_id\n"
		"  FROM %s AS i JOIN heap AS h ON h.id = i.heap_id JOIN process AS p ON p.id = h.process_id WHERE i.at_ns <= i.end_ns),\n",
		suffix, instants);
	sqlite3_str_appendf(
		sql,
		"span%s AS MATERIALIZED (\n  SELECT m.checkpoint_id, min(m.at_ns) AS first_ns, max(m.at_ns) AS last_ns, c.allocation_id AS last_id,\n"
		"         coalesce((SELECT b.allocation_id FROM checkpoint AS b WHERE b.id = c.id - 1 AND b.trace_id = c.trace_id),\n"
		"                  c.allocation_id) + 1 AS first_id, c.trace_id, c.ts_ns, c.id, c.has_stacks\n"
		"  FROM moment%s AS m JOIN checkpoint AS c ON c.id = m.checkpoint_id GROUP BY m.checkpoint_id),\n",
		suffix, suffix);
}

/* when: a condition on the spans that are wanted. */
static void put_near(sqlite3_str *sql, const char *suffix, const char *when) {
	sqlite3_str_appendf(sql,
			    "near%s AS (\n  " NEAR_ROWS "  FROM span%s AS w " BETWEEN_CHECKPOINTS NEAR_JOIN "%s\n  UNION ALL\n  " NEAR_ROWS
			    "  FROM span%s AS w CROSS JOIN checkpoint AS e ON e.trace_id = w.trace_id AND e.id <= w.checkpoint_id\n"
			    "  CROSS JOIN checkpoint_live AS r ON r.checkpoint_id = e.id AND r.first_id > w.last_id\n  " LISTED NEAR_JOIN
				    LISTED_FOR("e") "%s)",
			    suffix, suffix, when, suffix, when);
}

void tm_sql_near(sqlite3_str *sql, const char *instants, const char *suffix) {
	put_moments(sql, instants, suffix);
	put_near(sql, suffix, "");
}

/* Counted back from what the checkpoint behind the instant had live: with what ended between the two, less what began between them. */
static void put_counted(sqlite3_str *sql, const char *suffix) {
	sqlite3_str_appendf(sql,
			    "counted%s AS (\n  SELECT m.process_id, m.heap_id, k.stack_id, k.live_bytes, k.live_count\n"
			    "  FROM moment%s AS m JOIN span%s AS w ON w.checkpoint_id = m.checkpoint_id AND w.has_stacks\n"
			    "  JOIN checkpoint_stack AS k ON k.checkpoint_id = m.checkpoint_id AND k.heap_id = m.heap_id\n",
			    suffix, suffix, suffix);
	sqlite3_str_appendf(sql,
			    "  UNION ALL\n  SELECT o.process_id, o.heap_id, a.stack_id, a.size_bytes,\n"
			    "         CASE WHEN " TM_SQL_SPLIT_AFTER(
				    "m.at_ns") " THEN 0 ELSE 1 END\n"
					       "  FROM span%s AS w " BETWEEN_CHECKPOINTS
					       "  CROSS JOIN allocation_origin AS o ON o.id = a.origin_id\n"
					       "  CROSS JOIN moment%s AS m ON m.heap_id = o.heap_id AND m.checkpoint_id = w.checkpoint_id\n"
					       "  WHERE w.has_stacks AND a.alloc_ns <= m.at_ns AND a.alloc_ns + a.lifetime_ns > m.at_ns\n",
			    suffix, suffix);
	sqlite3_str_appendf(sql,
			    "  UNION ALL\n  SELECT o.process_id, o.heap_id, a.stack_id, -a.size_bytes,\n"
			    "         CASE WHEN " TM_SQL_SPLIT_AFTER(
				    "w.ts_ns") " THEN 0 ELSE -1 END\n"
					       "  FROM span%s AS w CROSS JOIN checkpoint_live AS r ON r.checkpoint_id = w.checkpoint_id\n"
					       "    AND r.first_id > w.last_id\n  " LISTED
					       "  CROSS JOIN allocation_origin AS o ON o.id = a.origin_id\n"
					       "  CROSS JOIN moment%s AS m ON m.heap_id = o.heap_id AND m.checkpoint_id = w.checkpoint_id\n"
					       "  WHERE w.has_stacks AND a.alloc_ns > m.at_ns" LISTED_FOR("w") "),\n",
			    suffix, suffix);
}

/* Are the blocks live at the instants read one by one? */
static bool reads_blocks(sqlite3_str *sql, const struct tm_database *d, const char *instants, const struct tm_options *window) {
	if (!window) return false;
	return tm_has_window(window) || (d->has_checkpoints && !d->estimated && lacks_stacks(d, sqlite3_str_value(sql), instants));
}

/* What a group of the blocks `a` had live at i.at_ns. Estimates stay fractions where groups are added up further: those sums are rounded, once. */
static void put_sums(sqlite3_str *sql, const struct tm_database *d, bool is_rounded) {
	if (d->estimated && !is_rounded) {
		sqlite3_str_appendall(sql,
				      "sum(a.size_bytes * a.weight) AS live_bytes,\n"
				      "         sum(CASE WHEN " TM_SQL_SPLIT_AFTER("i.at_ns") " THEN 0 ELSE a.weight END) AS live_count");
		return;
	}
	sqlite3_str_appendf(sql, "%s AS live_bytes, ", tm_sql_sum_bytes(d));
	tm_sql_put_count_at(sql, d, "i.at_ns");
	sqlite3_str_appendall(sql, " AS live_count");
}

bool tm_sql_block_stacks(sqlite3_str *sql, const struct tm_database *d, const char *instants, const struct tm_options *window,
			 const char *suffix) {
	bool in_window = window && tm_has_window(window), counts = d->has_checkpoints && !d->estimated && !in_window;
	enum tm_by by = window && window->by == TM_BY_HEAP ? TM_BY_HEAP : TM_BY_STACK;
	if (reads_blocks(sql, d, instants, window) && make_blocks(sql, d, instants, window, by, suffix, "stack_id")) return true;
	if (d->has_checkpoints) {
		put_moments(sql, instants, suffix);
		put_near(sql, suffix, counts ? " AND NOT w.has_stacks" : "");
		sqlite3_str_appendall(sql, ",\n");
	}
	if (counts) put_counted(sql, suffix);
	sqlite3_str_appendf(sql, "block%s AS MATERIALIZED (\n  ", suffix);
	if (counts)
		sqlite3_str_appendf(
			sql,
			"SELECT process_id, heap_id, stack_id, sum(live_bytes) AS live_bytes, sum(live_count) AS live_count\n"
			"  FROM counted%s GROUP BY process_id, heap_id, stack_id HAVING sum(live_bytes) <> 0 OR sum(live_count) <> 0\n"
			"  UNION ALL\n  ",
			suffix);
	sqlite3_str_appendall(sql, "SELECT a.process_id, a.heap_id, a.stack_id, ");
	put_sums(sql, d, !window || window->by == TM_BY_STACK);
	sqlite3_str_appendf(sql, "%s\n  FROM ", d->estimated ? ",\n         " TM_SQL_VARIANCES : "");
	tm_sql_from_live(sql, d, instants, suffix);
	if (window) tm_sql_window(sql, window, "a.alloc_ns", "a.alloc_ns");
	sqlite3_str_appendall(sql, "\n  GROUP BY a.process_id, a.heap_id, a.stack_id)");
	return false;
}

void tm_sql_from_live(sqlite3_str *sql, const struct tm_database *d, const char *instants, const char *suffix) {
	if (d->has_checkpoints)
		sqlite3_str_appendf(sql,
				    "near%s AS a CROSS JOIN moment%s AS i ON i.heap_id = a.heap_id AND i.checkpoint_id = a.checkpoint_id",
				    suffix, suffix);
	else sqlite3_str_appendf(sql, "allocation AS a JOIN %s AS i ON i.heap_id = a.heap_id", instants);
	sqlite3_str_appendall(sql,
			      "\n  WHERE a.alloc_ns <= i.at_ns AND (a.free_ns IS NULL OR a.free_ns > i.at_ns) AND i.at_ns <= i.end_ns");
}

void tm_sql_put_count_at(sqlite3_str *sql, const struct tm_database *d, const char *ns) {
	sqlite3_str_appendf(sql,
			    d->estimated ? "CAST(round(sum(CASE WHEN " TM_SQL_SPLIT_AFTER("%s") " THEN 0 ELSE a.weight END)) AS INTEGER)"
					 : "sum(CASE WHEN " TM_SQL_SPLIT_AFTER("%s") " THEN 0 ELSE 1 END)",
			    ns);
}

const char *tm_sql_live_sums(const struct tm_database *d) {
	return d->estimated ? "CAST(round(sum(live_bytes)) AS INTEGER) AS live_bytes, CAST(round(sum(live_count)) AS INTEGER) AS live_count"
			    : "sum(live_bytes) AS live_bytes, sum(live_count) AS live_count";
}

/* --- groups --- */

struct group {
	bool of_stacks;      /* made of stacks: b has stack_id, else key */
	const char *key;     /* of the blocks, over a and i; NULL: the function that puts it is below */
	const char *keys;    /* what they are called in the answer */
	const char *columns; /* the same, over b (the groups, with `key`) and what is joined */
	const char *join;
};

#define FRAME_JOIN "  LEFT JOIN frame AS f ON f.id = b.site_frame_id LEFT JOIN module AS m ON m.id = f.module_id\n"
#define UPPER_BYTES "CASE b.key WHEN 0 THEN 15 WHEN 1073741824 THEN NULL ELSE 2 * b.key - 1 END"

static const struct group groups[] = {
	[TM_BY_STACK] = { true, NULL, ", stack_id, function, file, line, module, module_offset",
			  ", b.stack_id, f.function, f.file, f.line, m.path AS module, f.module_offset", TM_SQL_SITE_JOIN("b") "\n" },
	[TM_BY_SITE] = { true, NULL, ", function, file, line, module, module_offset",
			 ", f.function, f.file, f.line, m.path AS module, f.module_offset", FRAME_JOIN },
	[TM_BY_FUNCTION] = { true, NULL, ", function, module", ", f.function, m.path AS module", FRAME_JOIN },
	[TM_BY_FILE] = { true, NULL, ", file", ", f.file", FRAME_JOIN },
	[TM_BY_LIBRARY] = { true, NULL, ", path", ", m.path", FRAME_JOIN },
	[TM_BY_SCOPE] = { false, "a.scope_id", ", name, category", ", n.text AS name, k.text AS category",
			  "  LEFT JOIN scope_packed AS s ON s.id = b.key LEFT JOIN scope_name AS n ON n.id = s.name_id\n"
			  "  LEFT JOIN scope_name AS k ON k.id = s.category_id\n" },
	[TM_BY_THREAD] = { false, "a.thread_id", ", thread_id, tid, name", ", b.key AS thread_id, t.tid, t.name",
			   "  LEFT JOIN thread AS t ON t.id = b.key\n" },
	[TM_BY_HEAP] = { true, NULL, "", "", "" },
	[TM_BY_SIZE] = { false, NULL, ", from_bytes, to_bytes", ", b.key AS from_bytes, " UPPER_BYTES " AS to_bytes", "" },
	[TM_BY_AGE] = { false,
			"CASE WHEN i.at_ns - a.alloc_ns < 1000000 THEN 0 WHEN i.at_ns - a.alloc_ns < 10000000 THEN 1\n"
			"    WHEN i.at_ns - a.alloc_ns < 100000000 THEN 2 WHEN i.at_ns - a.alloc_ns < 1000000000 THEN 3\n"
			"    WHEN i.at_ns - a.alloc_ns < 10000000000 THEN 4 WHEN i.at_ns - a.alloc_ns < 100000000000 THEN 5\n"
			"    WHEN i.at_ns - a.alloc_ns < 1000000000000 THEN 6 ELSE 7 END",
			", age",
			", CASE b.key WHEN 0 THEN 'under 1 ms' WHEN 1 THEN '1 to 10 ms' WHEN 2 THEN '10 to 100 ms' WHEN 3 THEN '100 ms to 1 s'\n"
			"    WHEN 4 THEN '1 to 10 s' WHEN 5 THEN '10 to 100 s' WHEN 6 THEN '100 to 1000 s' ELSE 'over 1000 s' END AS age",
			"" },
};

const char *tm_live_keys(enum tm_by by) {
	return groups[by].keys;
}

/* Powers of two, those below 16 and above a GiB together. */
static void put_size_class(sqlite3_str *sql) {
	sqlite3_str_appendall(sql, "CASE WHEN a.size_bytes < 16 THEN 0");
	for (int64_t from = 16; from < 1 << 30; from *= 2)
		sqlite3_str_appendf(sql, "%sWHEN a.size_bytes < %lld THEN %lld",
				    from == 16 || from == 1 << 17 || from == 1 << 24 ? "\n    " : " ", (long long)from * 2,
				    (long long)from);
	sqlite3_str_appendall(sql, " ELSE 1073741824 END");
}

/* `block`: process_id, heap_id, key and what it had live, of groups that are not made of stacks. */
static void put_blocks(sqlite3_str *sql, const struct tm_database *d, const char *instants, const struct tm_options *o,
		       const char *suffix) {
	const struct group *g = &groups[o->by];
	if (make_blocks(sql, d, instants, o, o->by, suffix, "key")) return;
	if (d->has_checkpoints) {
		tm_sql_near(sql, instants, suffix);
		sqlite3_str_appendall(sql, ",\n");
	}
	sqlite3_str_appendf(sql, "block%s AS MATERIALIZED (\n  SELECT a.process_id, a.heap_id, ", suffix);
	if (g->key) sqlite3_str_appendall(sql, g->key);
	else put_size_class(sql);
	sqlite3_str_appendall(sql, " AS key,\n    ");
	put_sums(sql, d, false);
	sqlite3_str_appendf(sql, "%s\n  FROM ", d->estimated ? ",\n         " TM_SQL_VARIANCES : "");
	tm_sql_from_live(sql, d, instants, suffix);
	tm_sql_window(sql, o, "a.alloc_ns", "a.alloc_ns");
	sqlite3_str_appendall(sql, "\n  GROUP BY 3, 2)");
}

/* `place`: process_id, heap_id, site_frame_id and what it had live. Of stacks there may be millions: they are added up by the number of their site
 * before any text is looked up. */
static void put_places(sqlite3_str *sql, const struct tm_database *d, const char *instants, const struct tm_options *o,
		       const char *suffix) {
	if (reads_blocks(sql, d, instants, o) && make_blocks(sql, d, instants, o, TM_BY_SITE, suffix, "site_frame_id")) {
		sqlite3_str_appendf(sql, ",\nplace%s AS (SELECT * FROM block%s)", suffix, suffix);
		return;
	}
	tm_sql_block_stacks(sql, d, instants, o, suffix);
	sqlite3_str_appendf(sql,
			    ",\nplace%s AS (\n  SELECT k.process_id, k.heap_id, s.site_frame_id, sum(k.live_bytes) AS live_bytes,\n"
			    "         sum(k.live_count) AS live_count%s\n"
			    "  FROM block%s AS k LEFT JOIN stack AS s ON s.id = k.stack_id GROUP BY k.heap_id, s.site_frame_id)",
			    suffix, d->estimated ? ", sum(k.variance) AS variance, sum(k.count_variance) AS count_variance" : "", suffix);
}

#define GROUP_ERRORS \
	"round(sqrt(sum(variance)) / round(sum(live_bytes)), 4) AS relative_error,\n" \
	"         round(sqrt(sum(count_variance)) / round(sum(live_count)), 4) AS count_relative_error"

void tm_sql_live_by(sqlite3_str *sql, const struct tm_database *d, const char *instants, const struct tm_options *o, const char *suffix) {
	const struct group *g = &groups[o->by];
	bool of_sites = g->of_stacks && o->by != TM_BY_STACK && o->by != TM_BY_HEAP;
	if (of_sites) put_places(sql, d, instants, o, suffix);
	else if (g->of_stacks) tm_sql_block_stacks(sql, d, instants, o, suffix);
	else put_blocks(sql, d, instants, o, suffix);
	sqlite3_str_appendf(sql,
			    ",\nnamed%s AS (\n  SELECT b.process_id, h.name AS heap%s, b.live_bytes, b.live_count, h.estimated%s\n"
			    "  FROM %s%s AS b JOIN heap AS h ON h.id = b.heap_id\n%s),\n",
			    suffix, g->columns, d->estimated ? ", b.variance, b.count_variance" : "", of_sites ? "place" : "block", suffix,
			    g->join);
	sqlite3_str_appendf(sql,
			    "live%s AS (\n  SELECT process_id, heap%s, %s, estimated%s\n"
			    "  FROM named%s GROUP BY process_id, heap%s)",
			    suffix, g->keys, tm_sql_live_sums(d), d->estimated ? ",\n         " GROUP_ERRORS : "", suffix, g->keys);
}
