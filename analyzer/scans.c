/* scans.c - the common table expressions that scan allocations.
 *
 * Named instants (exit, peak, a mark) differ from process to process, so each scan starts from a small table of instants, one row a heap,
 * that the allocations are joined with. A window's peak is found by replay: every change of a heap's level before the window is moved to
 * the window's first instant, so that the running sum begins with what was live there.
 * No expression names a large one twice: SQLite expands a common table expression wherever it is named, and those in it, so a chain of such
 * names takes longer to plan than to run.
 */
#include "scans.h"

#include "coverage.h"
#include "live_sets.h"
#include "window_made.h"
#include "window_samples.h"

#include <stddef.h>

bool tm_has_window(const struct tm_options *o) {
	return o->from.kind != TM_TIME_UNSET || o->to.kind != TM_TIME_UNSET;
}

struct tm_options tm_without_window(const struct tm_options *o) {
	struct tm_options whole = *o;
	whole.from.kind = whole.to.kind = TM_TIME_UNSET;
	return whole;
}

struct tm_options tm_since_known(const struct tm_database *d, const struct tm_options *o) {
	struct tm_options known = *o;
	if (o->from.kind == TM_TIME_UNSET && tm_has_gap(d, o, "'dropped'")) known.from.kind = TM_TIME_KNOWN;
	return known;
}

void tm_sql_opening(sqlite3_str *sql, const struct tm_options *o, const char *process) {
	bool may_end_before = o->from.kind == TM_TIME_KNOWN && o->to.kind != TM_TIME_UNSET;
	sqlite3_str_appendall(sql, may_end_before ? "min(" : "");
	tm_time_point_sql(sql, &o->from, process, o->heap);
	if (!may_end_before) return;
	sqlite3_str_appendall(sql, ", ");
	tm_time_point_sql(sql, &o->to, process, o->heap);
	sqlite3_str_appendall(sql, ")");
}

static void put_opening(sqlite3_str *sql, const struct tm_options *o) {
	if (o->from.kind == TM_TIME_UNSET) return;
	sqlite3_str_appendall(sql, ",\n         ");
	tm_sql_opening(sql, o, "p.id");
	sqlite3_str_appendall(sql, " AS from_ns");
}

static void put_instant(sqlite3_str *sql, const struct tm_options *o, const struct tm_time_point *point, const char *name) {
	if (!point || point->kind == TM_TIME_UNSET) return;
	sqlite3_str_appendall(sql, ",\n         ");
	tm_time_point_sql(sql, point, "p.id", o->heap);
	sqlite3_str_appendf(sql, " AS %s", name);
}

void tm_sql_instants(sqlite3_str *sql, const struct tm_options *o, const struct tm_time_point *at) {
	tm_sql_instants_as(sql, o, at, "instant");
}

void tm_sql_instants_as(sqlite3_str *sql, const struct tm_options *o, const struct tm_time_point *at, const char *name) {
	sqlite3_str_appendf(
		sql, "%s AS MATERIALIZED (\n  SELECT h.id AS heap_id, h.is_root, h.name AS heap, p.id AS process_id, p.start_ns, p.end_ns",
		name);
	/* A process that another program replaced has left nothing behind that could have leaked. */
	if (at && at->kind == TM_TIME_EXIT)
		sqlite3_str_appendall(sql,
				      ",\n         CASE p.end_kind WHEN 'exec' THEN NULL ELSE coalesce(p.exit_ns, p.end_ns) END AS at_ns");
	else put_instant(sql, o, at, "at_ns");
	put_opening(sql, o);
	put_instant(sql, o, &o->to, "to_ns");
	sqlite3_str_appendall(sql, "\n  FROM heap AS h JOIN process AS p ON p.id = h.process_id)");
}

void tm_sql_process_of(sqlite3_str *sql, const struct tm_options *o, const char *schema, const char *word, const char *column) {
	if (!o->process_given) return;
	if (!o->process_is_rank) {
		sqlite3_str_appendf(sql, "%s %s = %lld", word, column, (long long)o->process);
		return;
	}
	sqlite3_str_appendf(sql, "%s %s IN (SELECT id FROM %s%sprocess WHERE rank = %lld", word, column, schema ? schema : "",
			    schema ? "." : "", (long long)o->process);
	if (o->world) sqlite3_str_appendf(sql, " AND world = %Q", o->world);
	sqlite3_str_appendall(sql, ")");
}

void tm_sql_process(sqlite3_str *sql, const struct tm_options *o, const char *word, const char *column) {
	tm_sql_process_of(sql, o, NULL, word, column);
}

void tm_sql_from_steps(sqlite3_str *sql, const struct tm_options *o) {
	sqlite3_str_appendall(sql, "step AS s");
	if (o->heap) sqlite3_str_appendf(sql, " JOIN heap AS h ON h.process_id = s.process_id AND h.name = %Q", o->heap);
	sqlite3_str_appendf(sql, " LEFT JOIN step_aggregate AS a ON a.step_id = s.id AND a.heap_id = %s", o->heap ? "h.id" : "0");
}

void tm_sql_window(sqlite3_str *sql, const struct tm_options *o, const char *first, const char *last) {
	if (o->from.kind != TM_TIME_UNSET) sqlite3_str_appendf(sql, " AND %s >= i.from_ns", first);
	if (o->to.kind != TM_TIME_UNSET) sqlite3_str_appendf(sql, " AND %s <= i.to_ns", last);
}

/* sum() fails where it is too large, and a function of ours would be unknown to those who ask what --sql prints: so two halves are added up. */
#define SUM_HIGH "sum(a.size_bytes >> 32)"
#define SUM_LOW "sum(a.size_bytes & 4294967295)"
#define SUM_BYTES \
	"CASE WHEN " SUM_HIGH " + (" SUM_LOW " >> 32) > 2147483647 THEN 9223372036854775807 ELSE (" SUM_HIGH " << 32) + " SUM_LOW " END"

const char *tm_sql_sum_bytes(const struct tm_database *d) {
	return d->estimated ? "CAST(round(sum(a.size_bytes * a.weight)) AS INTEGER)" : SUM_BYTES;
}

static const char *sum_count(const struct tm_database *d) {
	return d->estimated ? "CAST(round(sum(a.weight)) AS INTEGER)" : "count(*)";
}

bool tm_sql_live(sqlite3_str *sql, const struct tm_database *d, const char *instants, const struct tm_options *window) {
	bool is_made = tm_sql_block_stacks(sql, d, instants, window, "");
	sqlite3_str_appendf(sql,
			    ",\n"
			    "unnamed AS (\n  SELECT b.process_id, h.name AS heap, b.stack_id, b.live_bytes, b.live_count, h.estimated%s\n"
			    "  FROM block AS b JOIN heap AS h ON h.id = b.heap_id),\n" TM_SQL_LIVE_NAMED("%s"),
			    d->estimated ? ",\n         " TM_SQL_ERRORS("b", "live_bytes", "live_count") : "",
			    d->estimated ? TM_ERRORS_OF("b") : "");
	return is_made;
}

/* What one event does to the level of a heap. */
struct change {
	const char *ts, *bytes, *blocks; /* SQL over a (the block), i (its instants) and, of a split, q (the part that was given back) */
	const char *from;                /* what more is joined, or "" */
	const char *when;                /* condition */
};

/* Begun, ended, and parted from another part of its mapping. */
static const struct change exact_changes[] = {
	{ "a.alloc_ns", "a.size_bytes", "CASE WHEN " TM_SQL_SPLIT_AFTER("a.alloc_ns") " THEN 0 ELSE 1 END", "", "" },
	{ "a.free_ns", "-a.size_bytes", "-1", "", "" },
	{ "q.free_ns", "0", "1", " JOIN allocation AS q ON q.id = a.realloc_of_id", " AND q.free_ns > a.alloc_ns" },
};

static const struct change weighted_changes[] = {
	{ "a.alloc_ns", "a.size_bytes * a.weight", "CASE WHEN " TM_SQL_SPLIT_AFTER("a.alloc_ns") " THEN 0 ELSE a.weight END", "", "" },
	{ "a.free_ns", "-a.size_bytes * a.weight", "-a.weight", "", "" },
	{ "q.free_ns", "0", "a.weight", " JOIN allocation AS q ON q.id = a.realloc_of_id", " AND q.free_ns > a.alloc_ns" },
};

/* The changes of the live bytes of each heap up to the end of the window. */
static void put_changes(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	bool from = o->from.kind != TM_TIME_UNSET, to = o->to.kind != TM_TIME_UNSET;
	for (int n = 0; n < 3; n++) {
		const struct change *change = d->estimated ? &weighted_changes[n] : &exact_changes[n];
		char ts[48];
		sqlite3_snprintf(sizeof(ts), ts, from ? "max(%s, i.from_ns)" : "%s", change->ts);
		sqlite3_str_appendf(sql,
				    "%s  SELECT i.process_id, i.heap_id, i.is_root, %s AS ts_ns, %s AS bytes, %s AS blocks\n"
				    "  FROM allocation AS a JOIN instant AS i ON i.heap_id = a.heap_id%s\n"
				    "  WHERE %s <= %s%s",
				    n ? "\n  UNION ALL\n" : "change AS (\n", ts, change->bytes, change->blocks, change->from, ts,
				    to ? "min(i.to_ns, i.end_ns)" : "i.end_ns", change->when);
		/* What was given back before the window is in no level of it. */
		if (from) sqlite3_str_appendall(sql, " AND (a.free_ns IS NULL OR a.free_ns > i.from_ns)");
	}
	sqlite3_str_appendall(sql, ")");
}

static void put_levels(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	put_changes(sql, d, o);
	/* A level is what all changes of its time have made. */
	sqlite3_str_appendall(
		sql, ",\nlevel AS MATERIALIZED (\n"
		     "  SELECT process_id, heap_id, ts_ns, sum(bytes) OVER w AS live_bytes, sum(blocks) OVER w AS live_count\n"
		     "  FROM (SELECT c.process_id, CASE x.whole WHEN 0 THEN c.heap_id END AS heap_id, c.ts_ns, c.bytes, c.blocks\n"
		     "        FROM change AS c CROSS JOIN (SELECT 0 AS whole UNION ALL SELECT 1) AS x WHERE c.is_root OR NOT x.whole)\n"
		     "  WINDOW w AS (PARTITION BY process_id, heap_id ORDER BY ts_ns))");
}

/* Which rows of allocation_packed can have been allocated in the window: rows between the checkpoints around it, and what outlived the last
 * of them. A database without checkpoints (made by hand) is read whole. */
static void put_places(sqlite3_str *sql, const struct tm_options *o) {
	sqlite3_str_appendf(sql,
			    "reach AS MATERIALIZED (\n  SELECT p.trace_id, min(%s) AS from_ns, max(%s) AS to_ns\n"
			    "  FROM instant AS i JOIN process AS p ON p.id = i.process_id GROUP BY p.trace_id),\n",
			    o->from.kind == TM_TIME_UNSET ? "i.start_ns" : "i.from_ns",
			    o->to.kind == TM_TIME_UNSET ? "i.end_ns" : "i.to_ns");
	sqlite3_str_appendall(
		sql,
		"span AS MATERIALIZED (\n  SELECT r.trace_id, b.id AS first_checkpoint, b.allocation_id + 1 AS first_id, c.id AS last_checkpoint,\n"
		"         c.allocation_id AS last_id\n"
		"  FROM reach AS r\n"
		"  JOIN checkpoint AS b ON b.id = coalesce((SELECT max(k.id) FROM checkpoint AS k WHERE k.trace_id = r.trace_id AND k.ts_ns < r.from_ns),\n"
		"                                          (SELECT min(k.id) FROM checkpoint AS k WHERE k.trace_id = r.trace_id))\n"
		"  JOIN checkpoint AS c ON c.id = coalesce((SELECT min(k.id) FROM checkpoint AS k WHERE k.trace_id = r.trace_id AND k.ts_ns > r.to_ns),\n"
		"                                          (SELECT max(k.id) FROM checkpoint AS k WHERE k.trace_id = r.trace_id))),\n");
}

/* The expression `level`, replayed now; false: it has to be SQL. */
static bool replay_samples(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	if (!d->has_checkpoints || o->sql) return false;
	sqlite3_str *own = sqlite3_str_new(d->handle);
	sqlite3_str_appendall(own, sqlite3_str_value(sql));
	put_places(own, o);
	char *with = sqlite3_str_finish(own);
	bool is_made = tm_window_samples(d, with, o);
	sqlite3_free(with);
	if (is_made) sqlite3_str_appendall(sql, "level AS MATERIALIZED (SELECT * FROM temp.window_level)");
	return is_made;
}

void tm_sql_window_levels(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *window) {
	const struct tm_options o = tm_since_known(d, window);
	tm_sql_instants(sql, &o, NULL);
	sqlite3_str_appendall(sql, ",\n");
	if (d->has_checkpoints && !d->estimated) tm_sql_window_peaks(sql, d, &o);
	else if (!d->estimated || !replay_samples(sql, d, &o)) put_levels(sql, d, &o);
}

/* Where a window opens nothing was live, unless a level says otherwise: of all that the view peak has a row of. */
static void put_opening_zeros(sqlite3_str *sql, const struct tm_options *o) {
	sqlite3_str_appendall(sql, "opened AS MATERIALIZED (\n  SELECT p.id, p.start_ns, p.end_ns");
	put_opening(sql, o);
	put_instant(sql, o, &o->to, "to_ns");
	const char *from = o->from.kind == TM_TIME_UNSET ? "p.start_ns" : "max(p.from_ns, p.start_ns)";
	sqlite3_str_appendf(
		sql,
		" FROM process AS p),\n"
		"zero AS (\n  SELECT t.process_id, nullif(t.heap_id, 0) AS heap_id, %s AS ts_ns, 0 AS live_bytes, 0 AS live_count\n"
		"  FROM heap_total AS t JOIN opened AS p ON p.id = t.process_id WHERE %s <= %s),\n",
		from, from, o->to.kind == TM_TIME_UNSET ? "p.end_ns" : "min(p.to_ns, p.end_ns)");
}

void tm_sql_highest(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	const struct tm_options known = tm_since_known(d, o);
	tm_sql_window_levels(sql, d, &known);
	sqlite3_str_appendall(sql, ",\n");
	put_opening_zeros(sql, &known);
	sqlite3_str_appendall(
		sql,
		"ranked AS (\n"
		"  SELECT *, row_number() OVER (PARTITION BY process_id, heap_id ORDER BY live_bytes DESC, ts_ns, live_count DESC) AS place\n"
		"  FROM (SELECT * FROM level UNION ALL SELECT * FROM zero)),\n"
		"highest AS (\n"
		"  SELECT l.process_id, h.name AS heap, l.ts_ns, CAST(round(l.live_bytes) AS INTEGER) AS live_bytes,\n"
		"         CAST(round(l.live_count) AS INTEGER) AS live_count, coalesce(h.estimated, p.estimated) AS estimated\n"
		"  FROM ranked AS l JOIN process AS p ON p.id = l.process_id LEFT JOIN heap AS h ON h.id = l.heap_id WHERE l.place = 1)");
}

void tm_sql_peak_instants(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	if (tm_has_window(o)) {
		tm_sql_highest(sql, d, o);
		sqlite3_str_appendall(sql, ",\n");
	}
	sqlite3_str_appendf(
		sql,
		"top AS MATERIALIZED (\n  SELECT p.id AS process_id, h.id AS heap_id, p.end_ns, k.ts_ns AS at_ns\n"
		"  FROM heap AS h JOIN process AS p ON p.id = h.process_id JOIN %s AS k ON k.process_id = p.id AND k.heap = h.name)",
		tm_has_window(o) ? "highest" : "peak");
}

bool tm_sql_live_at_peak(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	struct tm_options whole = tm_without_window(o);
	tm_sql_peak_instants(sql, d, o);
	sqlite3_str_appendall(sql, ",\n");
	return tm_sql_live(sql, d, "top", &whole);
}

#define TEMPORARY_ROWS "SELECT a.origin_id, a.stack_id, a.size_bytes, a.alloc_ns, coalesce(a.weight, 1.0) AS weight\n"
/* As tables.sql says at free_thread. The sign keeps SQLite from an index of all such rows, which it would go through for each range of ids. */
#define ENDED_WITH_IT "+a.free_thread = -1"

/* The expression `short_lived`, made now; false: it has to be SQL. */
static bool make_short_lived(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	if (!d->has_checkpoints || d->estimated || o->sql) return false;
	if (!tm_window_made(d, sqlite3_str_value(sql), o, TM_BLOCKS_TEMPORARY, "short_lived")) return false;
	sqlite3_str_appendall(sql, "short_lived AS (SELECT * FROM temp.short_lived)");
	return true;
}

static void put_short_lived(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	sqlite3_str_appendall(sql, d->has_checkpoints
					   ? "ended AS (\n  " TEMPORARY_ROWS
					     "  FROM span AS w CROSS JOIN allocation_packed AS a ON a.id BETWEEN w.first_id AND w.last_id WHERE " ENDED_WITH_IT
					     "\n"
					     "  UNION ALL\n  " TEMPORARY_ROWS
					     "  FROM span AS w CROSS JOIN checkpoint AS e ON e.trace_id = w.trace_id AND e.id > w.first_checkpoint"
					     " AND e.id <= w.last_checkpoint\n"
					     "  CROSS JOIN checkpoint_live AS r ON r.checkpoint_id = e.id AND r.first_id > w.last_id\n"
					     "  CROSS JOIN allocation_packed AS a ON a.id BETWEEN r.first_id AND r.first_id + r.more\n"
					     "  WHERE " ENDED_WITH_IT
					     " AND a.alloc_ns < e.ts_ns AND a.alloc_ns >= (SELECT k.ts_ns FROM checkpoint AS k WHERE k.id = e.id - 1)),\n"
					   : "ended AS (\n  " TEMPORARY_ROWS "  FROM allocation_packed AS a WHERE " ENDED_WITH_IT "),\n");
	sqlite3_str_appendf(
		sql,
		"short_lived AS (\n  SELECT i.process_id, i.heap, a.stack_id, %s AS count, %s AS bytes%s\n"
		"  FROM ended AS a CROSS JOIN allocation_origin AS o ON o.id = a.origin_id JOIN instant AS i ON i.heap_id = o.heap_id\n"
		"  WHERE true",
		sum_count(d), tm_sql_sum_bytes(d), d->estimated ? ", " TM_SQL_VARIANCES : "");
	tm_sql_window(sql, o, "a.alloc_ns", "a.alloc_ns");
	sqlite3_str_appendall(sql, "\n  GROUP BY i.process_id, i.heap_id, a.stack_id)");
}

bool tm_sql_made(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	tm_sql_instants(sql, o, NULL);
	sqlite3_str_appendall(sql, ",\n");
	if (d->has_checkpoints) put_places(sql, o);
	bool is_made = make_short_lived(sql, d, o), is_whole = !tm_has_window(o);
	if (!is_made) put_short_lived(sql, d, o);
	sqlite3_str_appendf(
		sql,
		",\nunnamed AS (\n  SELECT t.process_id, t.heap, t.stack_id, t.count, t.bytes,%s\n"
		"         (SELECT max(h.estimated) FROM heap AS h WHERE h.process_id = t.process_id AND h.name = t.heap) AS estimated%s\n"
		"  FROM short_lived AS t),\n"
		"made AS (\n  SELECT b.process_id, b.heap, b.stack_id, b.count, b.bytes, f.function, f.file, f.line, m.path AS module,\n"
		"         f.module_offset%s, b.estimated%s\n  FROM unnamed AS b\n" TM_SQL_SITE_JOIN("b") ")",
		is_whole
			? "\n         (SELECT k.allocations FROM heap AS h JOIN site_total AS k ON k.heap_id = h.id AND k.process_id = h.process_id\n"
			  "          WHERE h.process_id = t.process_id AND h.name = t.heap AND k.stack_id = t.stack_id) AS allocations,"
			: "",
		d->estimated ? ",\n         " TM_SQL_ERRORS("t", "bytes", "count") : "", is_whole ? ", b.allocations" : "",
		d->estimated ? TM_ERRORS_OF("b") : "");
	return is_made;
}

void tm_sql_allocated(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	tm_sql_instants(sql, o, NULL);
	sqlite3_str_appendall(sql, ",\n");
	if (d->has_checkpoints && !d->estimated && !o->sql) {
		put_places(sql, o);
		if (tm_window_made(d, sqlite3_str_value(sql), o, TM_BLOCKS_ALL, "allocated")) {
			sqlite3_str_appendall(sql, "allocated AS (SELECT * FROM temp.allocated)");
			return;
		}
	}
	sqlite3_str_appendf(sql, "allocated AS (\n  SELECT a.process_id, i.heap, a.stack_id, %s AS bytes, ", tm_sql_sum_bytes(d));
	tm_sql_put_count_at(sql, d, "a.alloc_ns");
	sqlite3_str_appendall(sql, " AS count\n  FROM allocation AS a JOIN instant AS i ON i.heap_id = a.heap_id WHERE true");
	tm_sql_window(sql, o, "a.alloc_ns", "a.alloc_ns");
	sqlite3_str_appendall(sql, "\n  GROUP BY a.process_id, a.heap_id, a.stack_id)");
}
