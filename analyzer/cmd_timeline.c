/* cmd_timeline.c - `tidemark timeline`: live bytes over time.
 *
 * The view memory_timeline keeps the lowest, highest and last value of some thousand stretches, at their true times. A table shows fewer
 * and wider stretches of the same rows, whole ones, each by its highest value. What a window has of them: window_pieces.h.
 */
#include "level_errors.h"
#include "listing.h"
#include "scans.h"
#include "stack_values.h"
#include "talk.h"
#include "verbs.h"
#include "window_pieces.h"

#define TABLE_BUCKETS 40

static const struct tm_usage usage = {
	.verb = "timeline",
	.operands = "DB|TRACE",
	.description =
		"Shows live bytes over time (view memory_timeline): of each of some 2,000 stretches the lowest, highest and last. JSON,\n"
		"CSV and --sql have every stored row, heap null being the whole process. A table has those of the whole process, or of\n"
		"the heap that --heap names: with --sort or --limit=0 all; else, where there are more than 40 (--limit=N: N), as many\n"
		"rows, each with the highest value of some of these stretches. Without host memory it has the tensors, or the heap, of the\n"
		"device that held most. Levels of a sampled trace have standard errors.\n"
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

#define COLUMNS "process_id, heap, ts_ns, live_bytes, live_count, estimated"
#define ERRORS(row) ", " row "relative_error, " row "count_relative_error"
#define IS_CARRIED "c.live_bytes >= coalesce(g.live_bytes, 0)"
#define OF_EITHER(name) "CASE WHEN " IS_CARRIED " THEN c." name " ELSE g." name " END AS " name

/* Common table expression `level_of_samples`: the levels of `source` with their errors. An exit status. */
static int put_errors(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, const char *source) {
	sqlite3_str_appendf(sql,
			    "%stold_moment AS MATERIALIZED (\n  SELECT t.process_id, coalesce(h.id, 0) AS heap_id, t.ts_ns AS at_ns\n"
			    "  FROM %s AS t LEFT JOIN heap AS h ON h.process_id = t.process_id AND h.name = t.heap),\n",
			    sqlite3_str_length(sql) ? ",\n" : "", source);
	int status = tm_sql_level_errors(sql, d, o, "told_moment");
	sqlite3_str_appendf(
		sql,
		",\nlevel_of_samples AS (\n  SELECT t.*, " TM_SQL_ERRORS_OF(
			"e", "t", "live_bytes",
			"live_count") "\n"
				      "  FROM %s AS t LEFT JOIN heap AS h ON h.process_id = t.process_id AND h.name = t.heap\n"
				      "  LEFT JOIN level_error AS e ON e.process_id = t.process_id AND e.heap_id = coalesce(h.id, 0) AND e.at_ns = t.ts_ns)",
		source);
	return status;
}

/* Common table expression `stretch`, behind `bound`: the highest level in each of n parts of the window, or of the time that the source covers. A part is some
 * whole buckets of memory_timeline, for at their edges alone a stored row says what was live: the last one before. What a part begins with, that level, is one
 * of its levels, and where nothing changes the only one. The first part of a window has its own: what was live when it opened. */
static void put_stretches(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, const char *source, int64_t n) {
	const char *errors = d->estimated ? ERRORS("") : "";
	sqlite3_str_appendf(
		sql,
		tm_has_window(o)
			? "covered AS (\n  SELECT id AS process_id, max(from_ns, start_ns) AS first_ns, min(to_ns, end_ns) AS last_ns FROM bound\n"
			  "  WHERE id IN (SELECT process_id FROM %s)),\n"
			: "covered AS (\n  SELECT process_id, min(ts_ns) AS first_ns, max(ts_ns) AS last_ns FROM %s GROUP BY process_id),\n",
		source);
	sqlite3_str_appendf(
		sql,
		"sliced AS (\n  SELECT c.process_id, c.first_ns, b.ns, b.start_ns, (c.first_ns - b.start_ns) / b.ns AS bucket,\n"
		"    (c.last_ns - b.start_ns) / b.ns - (c.first_ns - b.start_ns) / b.ns + 1 AS buckets\n"
		"  FROM covered AS c JOIN bound AS b ON b.id = c.process_id),\n"
		"extent AS MATERIALIZED (\n  SELECT *, min(buckets, %lld) AS parts FROM sliced),\n"
		"part(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM part WHERE n + 1 < (SELECT max(parts) FROM extent)),\n"
		"placed AS MATERIALIZED (\n  SELECT t.*, ((t.ts_ns - e.start_ns) / e.ns - e.bucket) * e.parts / e.buckets AS n\n"
		"  FROM %s AS t JOIN extent AS e ON e.process_id = t.process_id),\n"
		"highest AS MATERIALIZED (\n"
		"  SELECT process_id, heap, n, ts_ns, max(live_bytes) AS live_bytes, live_count%s FROM placed GROUP BY process_id, heap, n),\n"
		"earliest AS MATERIALIZED (\n  SELECT process_id, heap, n, min(ts_ns) AS ts_ns FROM placed GROUP BY process_id, heap, n),\n"
		"latest AS MATERIALIZED (\n"
		"  SELECT process_id, heap, n, max(ts_ns), live_bytes, live_count%s FROM placed GROUP BY process_id, heap, n),\n"
		"grid AS (\n  SELECT k.process_id, k.heap, k.estimated, p.n,\n"
		"    max(e.first_ns, e.start_ns + (e.bucket + (p.n * e.buckets + e.parts - 1) / e.parts) * e.ns) AS begin_ns,\n"
		"    h.ts_ns, h.live_bytes, h.live_count%s, max(CASE WHEN h.n IS NOT NULL THEN p.n END)\n"
		"      OVER (PARTITION BY k.process_id, k.heap ORDER BY p.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_n\n"
		"  FROM (SELECT process_id, heap, max(estimated) AS estimated FROM placed GROUP BY 1, 2) AS k\n"
		"  JOIN extent AS e ON e.process_id = k.process_id JOIN part AS p ON p.n < e.parts\n"
		"  LEFT JOIN highest AS h ON h.process_id = k.process_id AND h.n = p.n AND h.heap IS k.heap),\n"
		"stretch AS (\n  SELECT g.process_id, g.heap, CASE WHEN " IS_CARRIED " THEN g.begin_ns ELSE g.ts_ns END AS ts_ns,\n"
		"    max(coalesce(g.live_bytes, 0), coalesce(c.live_bytes, 0)) AS live_bytes,\n"
		"    " OF_EITHER(
			"live_count") ", g.estimated%s\n"
				      "  FROM grid AS g LEFT JOIN earliest AS f ON f.process_id = g.process_id AND f.n = g.n AND f.heap IS g.heap\n"
				      "  LEFT JOIN latest AS c ON c.process_id = g.process_id AND c.n = g.before_n AND c.heap IS g.heap\n"
				      "    AND (f.ts_ns IS NULL OR f.ts_ns > g.begin_ns)\n"
				      "  WHERE g.live_bytes IS NOT NULL OR c.live_bytes IS NOT NULL)",
		n, source, errors, errors, d->estimated ? ERRORS("h.") : "",
		d->estimated ? ",\n    " OF_EITHER("relative_error") ", " OF_EITHER("count_relative_error") : "");
}

/* Do all rows of a process fit? */
static bool are_few(const struct tm_database *d, const char *shown, const char *listed, int64_t most) {
	char *sql = sqlite3_mprintf("SELECT count(*) FROM (\n%s) %sGROUP BY process_id ORDER BY 1 DESC LIMIT 1", listed, shown);
	int64_t rows = sql ? tm_database_integer(d, sql, 0) : 0;
	sqlite3_free(sql);
	return rows <= most;
}

/* The heap of a table: the whole process, where that has memory of its own. */
static char *where_shown(const struct tm_database *d, const struct tm_options *o) {
	char *instead = tm_heap_instead(d, o);
	if (instead) tm_say("no host memory was recorded: shown is %s; --heap=NAME chooses another heap", instead);
	char *where = o->heap ? sqlite3_mprintf("%s", "") : sqlite3_mprintf("WHERE heap IS %Q ", instead);
	sqlite3_free(instead);
	return where;
}

/* A table has the whole process, or the heap that was chosen, in as many rows as a person reads, unless rows are asked for. */
static char *condense(const struct tm_database *d, const struct tm_options *o, const char *listed) {
	char *shown = where_shown(d, o);
	if (!shown) return NULL;
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	int64_t most = o->limit > 0 ? o->limit : TABLE_BUCKETS;
	bool enough = o->buckets != TM_LIMIT_UNSET || o->sort || o->limit == 0 || are_few(d, shown, listed, most);
	sqlite3_str_appendf(sql, "WITH listed AS MATERIALIZED (SELECT *, row_number() OVER () AS place FROM (\n%s))", listed);
	if (!enough) {
		sqlite3_str_appendall(sql, ",\n");
		tm_sql_bounds(sql, o);
		put_stretches(sql, d, o, "listed", most);
	}
	sqlite3_str_appendf(sql, "\nSELECT " COLUMNS "%s FROM %s %sORDER BY %s", d->estimated ? ERRORS("") : "",
			    enough ? "listed" : "stretch", shown, enough ? "place" : "process_id, heap, ts_ns");
	if (enough && o->limit > 0) sqlite3_str_appendf(sql, " LIMIT %lld", o->limit);
	sqlite3_free(shown);
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
		tm_sql_pieces(sql, d, o);
		source = "piece";
	}
	int status = d->estimated ? put_errors(sql, d, o, source) : 0;
	if (d->estimated) source = "level_of_samples";
	if (o->buckets > 0) {
		if (sqlite3_str_length(sql)) sqlite3_str_appendall(sql, ",\n");
		if (!tm_has_window(o)) tm_sql_bounds(sql, o);
		put_stretches(sql, d, o, source, o->buckets);
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
	if (!status) status = tm_listing_run(d, o, &listing);
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
