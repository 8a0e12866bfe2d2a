/* cmd_timeline.c - `tidemark timeline`: live bytes over time.
 *
 * The view memory_timeline keeps the lowest, highest and last value of some thousand stretches, at their true times. A table shows fewer
 * and wider stretches of the same rows, each by its highest value. A window begins with what was live when it opened, which the row before
 * need not say: it may stand for a stretch that goes on until then. So that is counted from the allocations around it (live_sets.h). Of the
 * two stretches that the ends of a window cut through, the highest value in the window comes from a replay (window_peak.c).
 */
#include "listing.h"
#include "live_sets.h"
#include "scans.h"
#include "talk.h"
#include "verbs.h"

#define TABLE_BUCKETS 40

static const struct tm_usage usage = {
	.verb = "timeline",
	.operands = "DB|TRACE",
	.description =
		"Shows live bytes over time (view memory_timeline); a value holds until the next row of its process and heap. JSON,\n"
		"CSV, --sql and tables with --sort or --limit=0 have every stored row, heap null being the whole process; a table shows\n"
		"the whole process, or the heap that --heap names, and where that has more than 40 rows (--limit=N: N) as many stretches\n"
		"of time, each by its highest value.\n"
		"--gap shows resident memory against live bytes instead, split into mapped files, stacks, shared memory, what allocators\n"
		"keep and the unknown; --jumps where that gap changed most.\n",
	.examples = "tidemark timeline run.db\n"
		    "tidemark timeline run.db --heap=mmap --buckets=100\n"
		    "tidemark timeline run.db --from=10s --to=exit --format=csv\n"
		    "tidemark timeline run.db --gap\n",
	.options = TM_OPTIONS_LISTING | TM_OPTION_BUCKETS | TM_OPTION_GAP,
	.operands_min = 1,
	.operands_max = 1,
	.needs_known_window = true,
};

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

/* Common table expression `bound`: of each process its start, its end, the window and how long a bucket is that memory_timeline keeps. */
static void put_bounds(sqlite3_str *sql, const struct tm_options *o) {
	sqlite3_str_appendall(sql, "bucket(ns) AS (SELECT 1024 UNION ALL SELECT ns * 2 FROM bucket WHERE ns < 1 << 60),\n"
				   "bound AS MATERIALIZED (\n  SELECT p.id, p.start_ns, p.estimated,\n"
				   "         (SELECT min(ns) FROM bucket WHERE (p.end_ns - p.start_ns) / ns < 2048) AS ns, ");
	if (o->from.kind == TM_TIME_UNSET) sqlite3_str_appendall(sql, "p.start_ns");
	else tm_time_point_sql(sql, &o->from, "p.id", o->heap);
	sqlite3_str_appendall(sql, " AS from_ns, ");
	if (o->to.kind == TM_TIME_UNSET) sqlite3_str_appendall(sql, "p.end_ns");
	else tm_time_point_sql(sql, &o->to, "p.id", o->heap);
	sqlite3_str_appendall(sql, " AS to_ns, p.end_ns\n  FROM process AS p),\n");
}

/* Common table expressions ... `piece`: the levels that hold somewhere in the window, none before its start. */
static void put_pieces(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	bool from = o->from.kind != TM_TIME_UNSET;
	put_bounds(sql, o);
	if (from) put_opened(sql, d, o);
	put_cut(sql, d, o);
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

#define COLUMNS "process_id, heap, ts_ns, live_bytes, live_count, estimated"

/* Common table expression `stretch`: the highest level in each of n equal parts of the window, or of the time that the source covers. What a part begins with,
 * the last level of those before it, is one of its levels, and where nothing changes the only one. */
static void put_stretches(sqlite3_str *sql, const struct tm_options *o, const char *source, int64_t n) {
	sqlite3_str_appendf(
		sql,
		tm_has_window(o)
			? "covered AS (\n  SELECT id AS process_id, max(from_ns, start_ns) AS first_ns, min(to_ns, end_ns) AS last_ns FROM bound\n"
			  "  WHERE id IN (SELECT process_id FROM %s)),\n"
			: "covered AS (\n  SELECT process_id, min(ts_ns) AS first_ns, max(ts_ns) AS last_ns FROM %s GROUP BY process_id),\n",
		source);
	sqlite3_str_appendf(
		sql,
		"extent AS MATERIALIZED (\n  SELECT *, (last_ns - first_ns) / %lld + 1 AS width_ns FROM covered),\n"
		"part(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM part WHERE n + 1 < %lld),\n"
		"placed AS MATERIALIZED (\n  SELECT t.*, (t.ts_ns - e.first_ns) / e.width_ns AS n\n"
		"  FROM %s AS t JOIN extent AS e ON e.process_id = t.process_id),\n"
		"highest AS MATERIALIZED (\n"
		"  SELECT process_id, heap, n, ts_ns, max(live_bytes) AS live_bytes, live_count FROM placed GROUP BY process_id, heap, n),\n"
		"latest AS MATERIALIZED (\n"
		"  SELECT process_id, heap, n, max(ts_ns), live_bytes, live_count FROM placed GROUP BY process_id, heap, n),\n"
		"grid AS (\n  SELECT k.process_id, k.heap, k.estimated, p.n, e.first_ns + p.n * e.width_ns AS begin_ns,\n"
		"    h.ts_ns, h.live_bytes, h.live_count, max(CASE WHEN h.n IS NOT NULL THEN p.n END)\n"
		"      OVER (PARTITION BY k.process_id, k.heap ORDER BY p.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_n\n"
		"  FROM (SELECT process_id, heap, max(estimated) AS estimated FROM placed GROUP BY 1, 2) AS k\n"
		"  JOIN extent AS e ON e.process_id = k.process_id JOIN part AS p ON p.n <= (e.last_ns - e.first_ns) / e.width_ns\n"
		"  LEFT JOIN highest AS h ON h.process_id = k.process_id AND h.n = p.n AND h.heap IS k.heap),\n"
		"stretch AS (\n  SELECT g.process_id, g.heap, CASE WHEN c.live_bytes >= coalesce(g.live_bytes, 0) THEN g.begin_ns ELSE g.ts_ns END AS ts_ns,\n"
		"    max(coalesce(g.live_bytes, 0), coalesce(c.live_bytes, 0)) AS live_bytes,\n"
		"    CASE WHEN c.live_bytes >= coalesce(g.live_bytes, 0) THEN c.live_count ELSE g.live_count END AS live_count, g.estimated\n"
		"  FROM grid AS g LEFT JOIN latest AS c ON c.process_id = g.process_id AND c.n = g.before_n AND c.heap IS g.heap\n"
		"  WHERE g.live_bytes IS NOT NULL OR c.live_bytes IS NOT NULL)",
		n, n, source);
}

/* Do all rows of a process fit? */
static bool are_few(const struct tm_database *d, const struct tm_options *o, const char *listed, int64_t most) {
	char *sql = sqlite3_mprintf("SELECT count(*) FROM (\n%s) %sGROUP BY process_id ORDER BY 1 DESC LIMIT 1", listed, o->heap ? "" : "WHERE heap IS NULL ");
	int64_t rows = sql ? tm_database_integer(d, sql, 0) : 0;
	sqlite3_free(sql);
	return rows <= most;
}

/* A table has the whole process, or the heap that was chosen, in as many rows as a person reads, unless rows are asked for. */
static char *condense(const struct tm_database *d, const struct tm_options *o, const char *listed) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	int64_t most = o->limit > 0 ? o->limit : TABLE_BUCKETS;
	bool enough = o->buckets != TM_LIMIT_UNSET || o->sort || o->limit == 0 || are_few(d, o, listed, most);
	sqlite3_str_appendf(sql, "WITH listed AS MATERIALIZED (SELECT *, row_number() OVER () AS place FROM (\n%s))", listed);
	if (!enough) {
		sqlite3_str_appendall(sql, ",\n");
		if (tm_has_window(o)) put_bounds(sql, o);
		put_stretches(sql, o, "listed", most);
	}
	sqlite3_str_appendf(sql, "\nSELECT " COLUMNS " FROM %s %sORDER BY %s", enough ? "listed" : "stretch",
			    o->heap ? "" : "WHERE heap IS NULL ", enough ? "place" : "process_id, heap, ts_ns");
	if (enough && o->limit > 0) sqlite3_str_appendf(sql, " LIMIT %lld", o->limit);
	return sqlite3_str_finish(sql);
}

static int answer_gap(const struct tm_database *d, const struct tm_options *o) {
	bool has_parts = tm_database_integer(d, "SELECT 1 FROM sample WHERE name = 'rss_files' LIMIT 1", 0);
	struct tm_listing gap = {
		.source = has_parts ? "memory_gap_part" : "memory_gap",
		.order = "process_id, ts_ns",
		.nothing = "resident memory was not sampled",
		.estimated = { "live_bytes", "explained_bytes", "gap_bytes", "retained_bytes", "unknown_bytes" },
	};
	struct tm_listing jumps = {
		.source = "memory_gap_jump",
		.order = "abs(change_bytes) DESC, process_id, ts_ns",
		.title = "where the gap changed most, and what the program did then",
		.nothing = "the gap did not change",
		.estimated = { "live_bytes", "gap_bytes", "change_bytes", "allocated_bytes" },
	};
	if (o->jumps) return tm_listing_run(d, o, &jumps);
	int status = tm_listing_run(d, o, &gap);
	return status ? status : tm_listing_also(d, o, &jumps);
}

static int answer(const struct tm_database *d, const struct tm_options *o) {
	if (o->gap || o->jumps) return answer_gap(d, o);
	const char *source = "memory_timeline";
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	if (tm_has_window(o)) {
		put_pieces(sql, d, o);
		source = "piece";
	}
	if (o->buckets > 0) {
		if (tm_has_window(o)) sqlite3_str_appendall(sql, ",\n");
		put_stretches(sql, o, source, o->buckets);
		source = "stretch";
	}
	char *with = sqlite3_str_finish(sql);
	struct tm_listing listing = {
		.with = with,
		.source = source,
		.order = "process_id, heap, ts_ns",
		.has_heap = true,
		.nothing = "nothing was live",
		.bar_column = "live_bytes",
		.estimated = { "live_bytes", "live_count" },
		.null_heap = "(all)",
		.condense = condense,
	};
	int status = tm_listing_run(d, o, &listing);
	sqlite3_free(with);
	return status;
}

int tm_cmd_timeline(int argc, char **argv) {
	struct tm_options o;
	int status = tm_options_parse(&o, &usage, argc, argv);
	if (status != TM_OPTIONS_GO) return status;
	if (o.gap && o.jumps) return tm_misuse("timeline", "--gap and --jumps are different lists: one at a time");
	if ((o.gap || o.jumps) && (tm_has_window(&o) || o.heap || o.buckets != TM_LIMIT_UNSET))
		return tm_misuse("timeline",
				 "--gap and --jumps are of whole processes and runs: not with --heap, --from, --to or --buckets");
	return tm_answer(&usage, argc, argv, answer);
}
