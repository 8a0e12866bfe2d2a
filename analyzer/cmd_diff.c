/* cmd_diff.c - `tidemark diff`: what changed from one run to another, by call site and by scope.
 *
 * The second database is the one that is open, the first is attached to it as `before`. Call sites are matched by heap, function, file and line;
 * what is left over on both sides of a function and file is matched in the order of lines, since a rebuilt binary has its lines moved.
 * Of a file only its name counts (builds lie in different directories), and where no function is known, module and offset do.
 */
#include <stdio.h>

#include "listing.h"
#include "scans.h"
#include "scope_errors.h"
#include "site_sums.h"
#include "talk.h"
#include "verbs.h"

static const struct tm_usage usage = {
	.verb = "diff",
	.operands = "BEFORE AFTER",
	.description =
		"Compares two runs, databases or traces: by call site, the largest change of what was live at exit first. Sites are\n"
		"matched by heap, function, file name and line; lines that moved are matched in their order within a function, so\n"
		"that a rebuilt program compares. Processes are added up; --process takes one of each run, by its id or its rank.\n"
		"Columns named before_ and after_ are NULL where a run has no such site. A table leaves out sites that did not\n"
		"change and also lists totals by heap and, where there are scopes, these. --heap chooses a heap;\n"
		"--sort=change_allocated_bytes finds what allocates more, change_peak_bytes what made the peak grow. Where a run was\n"
		"sampled, change_live_relative_error and the like are the standard errors of changes, as shares of them: one of half\n"
		"and more may well be chance. What --sql prints attaches BEFORE: sqlite3 runs it on AFTER, tidemark query does not.\n",
	.examples = "tidemark diff yesterday.db today.db\n"
		    "tidemark diff before.tmk after.tmk --heap=malloc --limit=5\n"
		    "tidemark diff before.db after.db --process=rank:0\n"
		    "tidemark diff before.db after.db --sort=change_allocated_bytes --format=csv\n",
	.options = TM_OPTION_FORMAT | TM_OPTION_LIMIT | TM_OPTION_SORT | TM_OPTION_HEAP | TM_OPTION_PROCESS | TM_OPTION_SQL,
	.operands_min = 2,
	.operands_max = 2,
};

#define BEFORE "before"
#define AFTER "main"
#define LIVE "live_at_exit"
#define SUMS_BEFORE "sites_before"
#define SUMS_AFTER "sites_after"

/* clang-format off */

/* One side: its sites by what they are matched by; place: module and offset where there is no function. sum: of a column. */
#define SITES(name, sums, schema, sum, more) \
	name " AS (\n" \
	     "  SELECT h.name AS heap, coalesce(f.function, replace(m.path, rtrim(m.path, replace(m.path, '/', '')), '')\n" \
	     "      || iif(f.module_offset IS NULL, '', printf('+0x%x', f.module_offset))) AS function,\n" \
	     "    replace(f.file, rtrim(f.file, replace(f.file, '/', '')), '') AS base, max(f.file) AS file, f.line AS line,\n" \
	     "    " sum("live_bytes") ", " sum("live_count") ", " sum("allocations") ",\n" \
	     "    " sum("allocated_bytes") ", " sum("peak_bytes") more "\n" \
	     "  FROM " sums " AS g\n" \
	     "  JOIN " schema ".heap AS h ON h.id = g.heap_id LEFT JOIN " schema ".frame AS f ON f.id = g.site_frame_id\n" \
	     "  LEFT JOIN " schema ".module AS m ON m.id = f.module_id GROUP BY 1, 2, 3, 5)"
#define SUM(name) "sum(g." name ") AS " name
#define ESTIMATE(name) "CAST(round(sum(g." name ")) AS INTEGER) AS " name

/* What the other side has no such line of, numbered within its function and file. */
#define LEFT_OVER(name, mine, other) \
	name " AS (\n" \
	     "  SELECT m.*, row_number() OVER (PARTITION BY m.heap, m.function, m.base ORDER BY m.line) AS n\n" \
	     "  FROM " mine " AS m LEFT JOIN " other \
	     " AS o ON o.heap = m.heap AND o.function IS m.function AND o.base IS m.base AND o.line IS m.line\n" \
	     "  WHERE o.heap IS NULL)"

#define FIGURE(name) \
	"b." name " AS before_" name ", a." name " AS after_" name ", coalesce(a." name ", 0) - coalesce(b." name ", 0) AS change_" name

#define PAIR(a, b, on, more) \
	"  SELECT coalesce(a.heap, b.heap) AS heap, coalesce(a.function, b.function) AS function, coalesce(a.file, b.file) AS file,\n" \
	"    coalesce(a.line, b.line) AS line, b.line AS before_line,\n" \
	"    " FIGURE("live_bytes") ",\n    " FIGURE("live_count") ",\n    " FIGURE("allocations") ",\n" \
	"    " FIGURE("allocated_bytes") ",\n    " FIGURE("peak_bytes") more "\n" \
	"  FROM " a " AS a " on " " b " AS b ON b.heap = a.heap AND b.function IS a.function AND b.base IS a.base AND "

/* Last, what only the first run has: the same with the sides changed, and no partner. */
#define MATCHED(sum, of_site, of_pair, of_old) \
	SITES("old", SUMS_BEFORE, BEFORE, sum, of_site) ",\n" \
	SITES("new", SUMS_AFTER, AFTER, sum, of_site) ",\n" \
	LEFT_OVER("old_left", "old", "new") ",\n" \
	LEFT_OVER("new_left", "new", "old") ",\n" \
	"change AS (\n" \
	PAIR("new", "old", "JOIN", of_pair) "b.line IS a.line\n  UNION ALL\n" \
	PAIR("new_left", "old_left", "LEFT JOIN", of_pair) "b.n = a.n\n  UNION ALL\n" \
	"  SELECT b.heap, b.function, b.file, b.line, b.line, b.live_bytes, NULL, -b.live_bytes,\n" \
	"    b.live_count, NULL, -b.live_count,\n" \
	"    b.allocations, NULL, -b.allocations, b.allocated_bytes, NULL, -b.allocated_bytes,\n" \
	"    b.peak_bytes, NULL, -b.peak_bytes" of_old "\n" \
	"  FROM old_left AS b LEFT JOIN new_left AS a\n" \
	"    ON a.heap = b.heap AND a.function IS b.function AND a.base IS b.base AND a.n = b.n\n" \
	"  WHERE a.heap IS NULL)"

static const char matched[] = MATCHED(SUM, "", "", "");

/* The runs are independent: the variance of a change is the sum of theirs. */
#define BOTH(name) "coalesce(a." name ", 0) + coalesce(b." name ", 0) AS " name
#define EACH_VARIANCE(of) \
	",\n    " of("live_variance") ", " of("live_count_variance") ", " of("allocated_count_variance") ",\n" \
	"    " of("allocated_variance") ", " of("peak_variance")
#define TOTAL(name) "total(" name ") AS " name
#define OLD(name) "b." name

static const char matched_estimates[] = MATCHED(ESTIMATE, EACH_VARIANCE(TOTAL), EACH_VARIANCE(BOTH), EACH_VARIANCE(OLD));

#define FIGURES(name) "before_" name ", after_" name ", change_" name
/* The standard error of a change, as a share of it. */
#define CHANGE_ERROR(variance, change, name) ",\n  round(sqrt(" variance ") / abs(" change "), 4) AS " name
#define LIVE_ERROR CHANGE_ERROR("live_variance", "change_live_bytes", "change_live_relative_error")
#define PEAK_ERROR CHANGE_ERROR("peak_variance", "change_peak_bytes", "change_peak_relative_error")
#define ALLOCATIONS_ERROR CHANGE_ERROR("allocated_count_variance", "change_allocations", "change_allocated_count_relative_error")

static const char columns_of_estimates[] =
	"heap, function, file, line, before_line, " FIGURES("live_bytes") ",\n  " FIGURES("live_count") ", " FIGURES("allocations") ",\n"
	"  " FIGURES("allocated_bytes") ", " FIGURES("peak_bytes") LIVE_ERROR
	CHANGE_ERROR("live_count_variance", "change_live_count", "change_live_count_relative_error") ALLOCATIONS_ERROR
	CHANGE_ERROR("allocated_variance", "change_allocated_bytes", "change_allocated_relative_error") PEAK_ERROR;

/* clang-format on */

static const struct tm_listing call_sites = {
	.source = "change",
	.order = "abs(change_live_bytes) DESC, abs(change_allocated_bytes) DESC, heap, function, file, line, before_line",
	.process = "",
	.has_heap = true,
	.nothing = "no call site differs",
	.hidden = { "before_line", "before_live_count", "after_live_count", "before_allocations", "after_allocations",
		    "before_allocated_bytes", "after_allocated_bytes", "before_peak_bytes", "after_peak_bytes",
		    "change_live_count_relative_error", "change_allocated_count_relative_error", "change_allocated_relative_error",
		    "change_peak_relative_error" },
};

#define CHANGE(name) FIGURE(name)
/* clang-format off */
#define HEAPS(side, more) \
	"(SELECT heap, sum(peak_bytes) AS peak_bytes, sum(live_at_exit_bytes) AS live_bytes, sum(allocations) AS allocations" more \
	" FROM heaps_" side " GROUP BY heap)"
#define HEAP_CHANGES(of_heap, of_pair) \
	"h AS (SELECT heap FROM heaps_after UNION SELECT heap FROM heaps_before),\n" \
	"heap_change AS (\n  SELECT h.heap, " CHANGE("peak_bytes") ",\n    " CHANGE("live_bytes") ",\n    " CHANGE("allocations") of_pair "\n" \
	"  FROM h LEFT JOIN " HEAPS("after", of_heap) " AS a ON a.heap IS h.heap LEFT JOIN " HEAPS("before", of_heap) " AS b ON b.heap IS h.heap)"
#define EACH_HEAP_VARIANCE(of) ", " of("peak_variance") ", " of("live_variance") ", " of("allocated_count_variance")

static const char heap_changes[] = HEAP_CHANGES("", "");
static const char heap_changes_of_estimates[] = HEAP_CHANGES(EACH_HEAP_VARIANCE(TOTAL), EACH_HEAP_VARIANCE(BOTH));
static const char heap_columns_of_estimates[] =
	"heap, " FIGURES("peak_bytes") ", " FIGURES("live_bytes") ",\n  " FIGURES("allocations") PEAK_ERROR LIVE_ERROR ALLOCATIONS_ERROR;
/* clang-format on */

static const struct tm_listing heaps = {
	.source = "heap_change",
	.order = "heap IS NOT NULL, after_peak_bytes DESC, heap",
	.process = "",
	.has_heap = true,
	.title = "heaps, processes added up (peaks of several processes need not be at one time)",
	.nothing = "nothing was allocated",
	.hidden = { "before_allocations", "after_allocations", "change_allocated_count_relative_error" },
	.null_heap = "(all)",
};

/* clang-format off */
#define SCOPES(side, more) \
	"(SELECT heap, name, sum(calls) AS calls, sum(total_allocated_bytes) AS allocated_bytes, sum(retained_bytes) AS retained_bytes," \
	" max(peak_growth_bytes) AS peak_growth_bytes" more " FROM scopes_" side " GROUP BY heap, name)"
#define SCOPE_CHANGES(of_scope, of_pair) \
	"s AS (SELECT heap, name FROM scopes_after UNION SELECT heap, name FROM scopes_before),\n" \
	"scope_change AS (\n  SELECT s.heap, s.name, " CHANGE("calls") ",\n    " CHANGE("retained_bytes") ",\n    " CHANGE("allocated_bytes") ",\n" \
	"    " CHANGE("peak_growth_bytes") of_pair "\n" \
	"  FROM s LEFT JOIN " SCOPES("after", of_scope) " AS a ON a.heap IS s.heap AND a.name = s.name\n" \
	"    LEFT JOIN " SCOPES("before", of_scope) " AS b ON b.heap IS s.heap AND b.name = s.name)"
/* A sum with an error that is not known has none. */
#define TOTAL_IF_KNOWN(name) ", iif(count(*) = count(" name "), sum(" name "), NULL) AS " name
#define BOTH_IF_KNOWN(name) ",\n    iif(a.name IS NULL, 0, a." name ") + iif(b.name IS NULL, 0, b." name ") AS " name

static const char scope_changes[] = SCOPE_CHANGES("", "");
static const char scope_changes_of_estimates[] = SCOPE_CHANGES(
	TOTAL_IF_KNOWN("retained_variance") TOTAL_IF_KNOWN("allocated_variance"),
	BOTH_IF_KNOWN("retained_variance") BOTH_IF_KNOWN("allocated_variance"));
static const char scope_columns_of_estimates[] =
	"heap, name, " FIGURES("calls") ", " FIGURES("retained_bytes") ",\n"
	"  " FIGURES("allocated_bytes") ", " FIGURES("peak_growth_bytes")
	CHANGE_ERROR("retained_variance", "change_retained_bytes", "change_retained_relative_error")
	CHANGE_ERROR("allocated_variance", "change_allocated_bytes", "change_allocated_relative_error");
/* clang-format on */

static const struct tm_listing scopes = {
	.source = "scope_change",
	.where = "(change_retained_bytes != 0 OR change_allocated_bytes != 0 OR change_peak_growth_bytes != 0 OR change_calls != 0)",
	.order = "abs(change_retained_bytes) DESC, abs(change_allocated_bytes) DESC, heap, name",
	.process = "",
	.has_heap = true,
	.title = "scopes, matched by name",
	.nothing = "no scope differs",
	.hidden = { "before_calls", "after_calls", "before_allocated_bytes", "after_allocated_bytes", "before_peak_growth_bytes",
		    "after_peak_growth_bytes", "change_allocated_relative_error" },
};

/* A run. */
struct side {
	const char *name, *schema, *sums;
	bool is_estimated;
};

struct sides {
	struct side before, after;
	bool are_estimated; /* one at least */
	bool have_tables;   /* of their sums */
};

/* The call stacks of one side, of which there may be millions, added up by the numbers of their heaps and frames: in a table that was made, or in SQL. */
static void put_sums(sqlite3_str *sql, const struct tm_options *o, const struct sides *sides, const struct side *side) {
	if (sides->have_tables) sqlite3_str_appendf(sql, "SELECT * FROM temp.%s", side->sums);
	else if (side->is_estimated) tm_site_sums_put_samples(sql, o, side->schema, LIVE);
	else tm_site_sums_put(sql, o, side->schema, LIVE);
}

/* The same as an expression. */
static void put_sites(sqlite3_str *sql, const struct tm_options *o, const struct sides *sides, const struct side *side) {
	bool lacks_variances = sides->are_estimated && !side->is_estimated;
	sqlite3_str_appendf(sql, "%s AS (\n  %s", side->sums, lacks_variances ? "SELECT *, " TM_NO_VARIANCES " FROM (\n  " : "");
	put_sums(sql, o, sides, side);
	sqlite3_str_appendall(sql, lacks_variances ? ")),\n" : "),\n");
}

/* "WHAT_NAME AS (...), ": the rows of a view, of the processes that are compared. */
static void put_rows(sqlite3_str *sql, const struct tm_options *o, const struct side *side, const char *what, const char *view) {
	sqlite3_str_appendf(sql, "%s_%s AS (SELECT * FROM %s.%s", what, side->name, side->schema, view);
	tm_sql_process_of(sql, o, side->schema, " WHERE", "process_id");
	sqlite3_str_appendall(sql, "),\n");
}

/* The heaps with the variances of their sums. */
static void put_heaps(sqlite3_str *sql, const struct tm_options *o, const struct sides *sides, const struct side *side) {
	if (side->is_estimated) {
		sqlite3_str_appendf(sql, "%s AS MATERIALIZED (\n  ", side->sums);
		put_sums(sql, o, sides, side);
		sqlite3_str_appendf(sql,
				    "),\nheaps_%s AS (\n  SELECT k.*, e.live_variance, e.allocated_count_variance, e.peak_variance\n"
				    "  FROM %s.heap_summary AS k LEFT JOIN (\n  ",
				    side->name, side->schema);
		tm_site_sums_put_heaps(sql, side->schema, side->sums);
		sqlite3_str_appendall(sql, ") AS e ON e.process_id = k.process_id AND e.heap IS k.heap");
	} else {
		sqlite3_str_appendf(sql, "heaps_%s AS (\n  SELECT k.*, " TM_NO_VARIANCES "\n  FROM %s.heap_summary AS k", side->name,
				    side->schema);
	}
	tm_sql_process_of(sql, o, side->schema, " WHERE", "k.process_id");
	sqlite3_str_appendall(sql, "),\n");
}

/* `l` with its expressions behind what `sql` has. */
static int list_with(const struct tm_database *d, const struct tm_options *o, const struct tm_listing *l, const char *expressions,
		     sqlite3_str *sql, tm_lister *list) {
	struct tm_listing listing = *l;
	sqlite3_str_appendall(sql, expressions);
	char *with = sqlite3_str_finish(sql);
	listing.with = with;
	int status = with ? list(d, o, &listing) : tm_fail("cannot read '%s': out of memory", d->path);
	sqlite3_free(with);
	return status;
}

/* TM_SUMS_IN_SQL: the side has no table. */
static int make_sums(const struct tm_database *d, const struct tm_options *o, const struct side *side) {
	if (o->sql) return TM_SUMS_IN_SQL;
	return (side->is_estimated ? tm_site_sums_make_samples : tm_site_sums_make)(d, o, side->schema, LIVE, side->sums);
}

static int list_sites(const struct tm_database *d, const struct tm_options *o, const struct sides *sides) {
	struct tm_listing listing = call_sites;
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	if (!sides->have_tables || sides->are_estimated) {
		put_sites(sql, o, sides, &sides->before);
		put_sites(sql, o, sides, &sides->after);
	}
	if (sides->are_estimated) listing.columns = columns_of_estimates;
	/* With --sort any column may be what somebody looks for. */
	if (o->format == TM_FORMAT_TABLE)
		listing.where =
			"(change_live_bytes != 0 OR change_live_count != 0 OR change_allocations != 0 OR change_allocated_bytes != 0"
			" OR change_peak_bytes != 0)";
	return list_with(d, o, &listing, sides->are_estimated ? matched_estimates : matched, sql, tm_listing_run);
}

static int list_heaps(const struct tm_database *d, const struct tm_options *o, const struct sides *sides) {
	struct tm_listing listing = heaps;
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	for (int i = 0; i < 2; i++) {
		const struct side *side = i ? &sides->after : &sides->before;
		if (sides->are_estimated) put_heaps(sql, o, sides, side);
		else put_rows(sql, o, side, "heaps", "heap_summary");
	}
	if (sides->are_estimated) listing.columns = heap_columns_of_estimates;
	return list_with(d, o, &listing, sides->are_estimated ? heap_changes_of_estimates : heap_changes, sql, tm_listing_also);
}

/* The scopes of each process by name, with the variances of their sums. */
static int put_scopes(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, const struct side *side) {
	sqlite3_str *own = sqlite3_str_new(d->handle);
	char *scope = sqlite3_mprintf("%s.scope", side->schema);
	const struct tm_scope_rows rows = { "named", scope, "s.name", "v.name", side->schema, "varied", "4" };
	int status = 0;
	sqlite3_str_appendf(
		own,
		"named AS (\n  SELECT process_id, heap, name, sum(calls) AS calls, sum(total_allocated_bytes) AS total_allocated_bytes,\n"
		"    sum(retained_bytes) AS retained_bytes, max(peak_growth_bytes) AS peak_growth_bytes\n  FROM %s.scope_total",
		side->schema);
	tm_sql_process_of(own, o, side->schema, " WHERE", "process_id");
	sqlite3_str_appendall(own, " GROUP BY process_id, heap, name),\n");
	if (side->is_estimated) status = tm_sql_scope_variances(own, d, o, &rows);
	else sqlite3_str_appendall(own, "varied AS (SELECT *, 0.0 AS allocated_variance, 0.0 AS retained_variance FROM named)");
	char *with = sqlite3_str_finish(own);
	sqlite3_str_appendf(sql, "scopes_%s AS (\n  WITH %s\n  SELECT * FROM varied),\n", side->name, with);
	sqlite3_free(with);
	sqlite3_free(scope);
	return status;
}

static int list_scopes(const struct tm_database *d, const struct tm_options *o, const struct sides *sides) {
	struct tm_listing listing = scopes;
	int status = 0;
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	for (int i = 0; i < 2 && !status; i++) {
		const struct side *side = i ? &sides->after : &sides->before;
		if (sides->are_estimated) status = put_scopes(sql, d, o, side);
		else put_rows(sql, o, side, "scopes", "scope_total");
	}
	if (status) {
		sqlite3_free(sqlite3_str_finish(sql));
		return status;
	}
	if (sides->are_estimated) listing.columns = scope_columns_of_estimates;
	return list_with(d, o, &listing, sides->are_estimated ? scope_changes_of_estimates : scope_changes, sql, tm_listing_also);
}

static int list_changes(const struct tm_database *before, const struct tm_database *d, const struct tm_options *o) {
	struct sides sides = { { "before", BEFORE, SUMS_BEFORE, before->estimated },
			       { "after", AFTER, SUMS_AFTER, d->estimated },
			       before->estimated || d->estimated,
			       false };
	int status = make_sums(d, o, &sides.before);
	if (!status) status = make_sums(d, o, &sides.after);
	if (status > 0) return status;
	sides.have_tables = !status;
	status = list_sites(d, o, &sides);
	if (!status) status = list_heaps(d, o, &sides);
	if (!status && tm_database_integer(d,
					   "SELECT 1 FROM main.scope_aggregate WHERE calls > 0 UNION SELECT 1 FROM before.scope_aggregate"
					   " WHERE calls > 0 LIMIT 1",
					   0))
		status = list_scopes(d, o, &sides);
	return status;
}

/* A trace was imported when it was opened; its database is attached. */
static int attach(const struct tm_database *d, const struct tm_database *before, const struct tm_options *o) {
	char *sql = sqlite3_mprintf("ATTACH %Q AS before", before->path);
	if (o->sql) printf("-- to be run on AFTER by sqlite3: tidemark query attaches no second database\n%s;\n", sql ? sql : "");
	int rc = sql ? sqlite3_exec(d->handle, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
	sqlite3_free(sql);
	if (rc != SQLITE_OK) return tm_fail("cannot compare '%s' with '%s': %s", before->path, d->path, sqlite3_errmsg(d->handle));
	if (d->estimated || before->estimated)
		tm_say("a trace was sampled: what was allocated is an estimate, and changes hardly larger than their errors mean nothing");
	return 0;
}

static bool has_heap(const struct tm_database *d, const char *heap) {
	char *sql = sqlite3_mprintf("SELECT 1 FROM main.heap WHERE name = %Q LIMIT 1", heap);
	bool has = sql && tm_database_integer(d, sql, 0);
	sqlite3_free(sql);
	return has;
}

/* The heap may be in one of the runs, the process has to be in both. */
static int check(const struct tm_database *before, const struct tm_database *after, const struct tm_options *o) {
	struct tm_options any_heap = *o;
	any_heap.heap = NULL;
	int status = tm_listing_check(after, &any_heap);
	return status ? status : tm_listing_check(before, o->heap && !has_heap(after, o->heap) ? o : &any_heap);
}

int tm_cmd_diff(int argc, char **argv) {
	struct tm_options o;
	struct tm_database before = { 0 }, after = { 0 };
	int status = tm_options_parse(&o, &usage, argc, argv);
	if (status != TM_OPTIONS_GO) return status;
	status = tm_database_open(&before, o.operands[0]);
	if (!status) status = tm_database_open(&after, o.operands[1]);
	if (!status) status = attach(&after, &before, &o);
	if (!status) status = check(&before, &after, &o);
	if (!status) status = list_changes(&before, &after, &o);
	tm_database_close(&after);
	tm_database_close(&before);
	return status;
}
