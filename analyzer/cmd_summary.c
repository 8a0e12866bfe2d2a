/* cmd_summary.c - `tidemark summary`: one page about a recording.
 *
 * The page is a few short listings, each a query of its own; heap_summary is the one that JSON and CSV give. What was lost or noted comes
 * last and only where there is something.
 */
#include "by_site.h"
#include "coverage.h"
#include "listing.h"
#include "sample_errors.h"
#include "scans.h"
#include "talk.h"
#include "verbs.h"

static const struct tm_usage usage = {
	.verb = "summary",
	.operands = "DB|TRACE",
	.description =
		"Shows one page: what was recorded, its processes, each heap's allocations, peak and what was live at exit, the call\n"
		"sites behind these, what was refused, lost or noted. JSON and CSV have one row for each heap and, with heap null, each\n"
		"process (view heap_summary).\n",
	.examples = "tidemark summary run.tmk\n"
		    "tidemark summary run.db --process=rank:0\n"
		    "tidemark summary run.db --format=json\n",
	.options = TM_OPTION_FORMAT | TM_OPTION_LIMIT | TM_OPTION_SORT | TM_OPTION_HEAP | TM_OPTION_PROCESS | TM_OPTION_SQL,
	.operands_min = 1,
	.operands_max = 1,
};

#define ROWS_SHOWN 5

/* The stacks of the view live_at_exit. */
#define EXIT_STACKS \
	"(SELECT t.heap_id, t.stack_id, t.live_at_exit_bytes AS live_bytes, t.live_at_exit_count AS live_count FROM site_total AS t\n" \
	"        WHERE t.live_at_exit_count > 0 OR t.live_at_exit_bytes > 0)"

static const struct tm_listing heaps = {
	.source = "heap_summary",
	.order = TM_ORDER_OF_HEAPS("peak_bytes"),
	.has_heap = true,
	.title = "heaps",
	.share_column = "peak_bytes",
	.nothing = "nothing was allocated",
	.hidden = { "peak_count", "freed_bytes", "temporary_bytes", "live_at_end_bytes", "live_at_end_count", "peak_ns",
		    "peak_count_relative_error" },
	.estimated = { "allocations", "allocated_bytes", "frees", "temporary", "peak_bytes", "live_at_exit_bytes", "live_at_exit_count" },
	.null_heap = "(all)",
};

static char *columns_with_errors(const struct tm_database *d, const struct tm_options *o) {
	bool is_made = tm_sample_errors_of_heaps(d, o);
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	sqlite3_str_appendall(sql, "*");
	tm_sql_total_error(sql, TM_TOTAL_ALLOCATED, "v", "allocated_bytes", "allocated_relative_error", is_made);
	tm_sql_total_error(sql, TM_TOTAL_ALLOCATED, "v", "allocations", "allocated_count_relative_error", is_made);
	tm_sql_total_error(sql, TM_TOTAL_PEAK, "v", "peak_bytes", "peak_relative_error", is_made);
	tm_sql_total_error(sql, TM_TOTAL_PEAK, "v", "peak_count", "peak_count_relative_error", is_made);
	tm_sql_total_error(sql, TM_TOTAL_EXIT, "v", "live_at_exit_bytes", "exit_relative_error", is_made);
	tm_sql_total_error(sql, TM_TOTAL_EXIT, "v", "live_at_exit_count", "exit_count_relative_error", is_made);
	return sqlite3_str_finish(sql);
}

static const struct tm_listing recordings = {
	.columns = "command, host, job, events, file_bytes,\n"
		   "  (SELECT max(p.end_ns) - min(p.start_ns) FROM process AS p WHERE p.trace_id = trace.id) AS duration_ns,\n"
		   "  nullif(sample_bytes, 0) AS sample_bytes,\n"
		   "  " TM_IS_COMPLETE " AS complete, cut_reason AS why",
	.source = "trace",
	.order = "id",
	.process = "",
	.title = "recording",
	.nothing = "no trace",
};

static const struct tm_listing processes = {
	.columns = "p.id, p.pid, p.rank, p.command, p.start_ns, p.end_ns, p.end_kind, p.end_code, k.peak_bytes, k.live_at_exit_bytes,\n"
		   "  p.estimated",
	.source = "process AS p LEFT JOIN heap_summary AS k ON k.process_id = p.id AND k.heap IS NULL",
	.order = "k.peak_bytes DESC, p.id",
	.process = "p.id",
	.rows_shown = ROWS_SHOWN,
	.title = "processes, largest peak first",
	.share_column = "peak_bytes",
	.nothing = "no process",
	.estimated = { "peak_bytes", "live_at_exit_bytes" },
};

static const struct tm_listing devices = {
	.columns =
		"process_id, rank, device, name, total_bytes, peak_bytes, allocated_peak_bytes, reserved_peak_bytes, idle_peak_bytes, used_peak_bytes,\n"
		"  gap_bytes, kernels, refusals",
	.source = "gpu_summary",
	.order = "process_id, device",
	.rows_shown = ROWS_SHOWN,
	.title = "devices (more: tidemark gpu)",
};

static const struct tm_listing scopes = {
	.columns =
		"process_id, heap, name, calls, duration_ns, self_allocated_bytes, total_allocated_bytes, retained_bytes, peak_growth_bytes,\n"
		"  estimated",
	.source = "scope_total",
	.where = "calls > 0",
	.order = "total_allocated_bytes DESC, process_id, heap, name, category",
	.has_heap = true,
	.rows_shown = ROWS_SHOWN,
	.title = "scopes (more: tidemark scopes)",
	.share_column = "total_allocated_bytes",
	.estimated = { "self_allocated_bytes", "total_allocated_bytes", "retained_bytes", "peak_growth_bytes" },
};

/* The first steps are seldom the ones to look at. */
static const struct tm_listing steps = {
	.columns = "process_id, n, start_ns, duration_ns, heap, allocated_bytes, net_bytes, peak_bytes, survived_bytes,\n"
		   "  estimated",
	.source = "step_total",
	.where = "heap IS NULL",
	.order = "survived_bytes DESC, process_id, start_ns",
	.has_heap = true,
	.rows_shown = ROWS_SHOWN,
	.title = "steps, those that left most behind first (more: tidemark scopes --steps)",
	.share_column = "survived_bytes",
	.estimated = { "allocated_bytes", "net_bytes", "peak_bytes", "survived_bytes" },
	.null_heap = "(all)",
};

/* By where it was asked: a program that falls back to less may ask often. */
static const struct tm_listing refusals = {
	.with = "refused AS (\n"
		"  SELECT o.process_id, h.name AS heap, o.api, count(*) AS refused_count, max(o.size_bytes) AS largest_bytes,\n"
		"    min(o.ts_ns) AS first_ns, o.stack_id, f.function, f.file, f.line\n"
		"  FROM oom AS o LEFT JOIN heap AS h ON h.id = o.heap_id LEFT JOIN stack AS s ON s.id = o.stack_id\n"
		"    LEFT JOIN frame AS f ON f.id = s.site_frame_id\n"
		"  GROUP BY o.process_id, o.heap_id, o.api, o.stack_id)",
	.source = "refused",
	.order = "refused_count DESC, process_id, first_ns",
	.has_heap = true,
	.rows_shown = ROWS_SHOWN,
	.title = "requests for memory that were refused (more: tidemark gpu --oom)",
};

static const struct tm_listing losses = {
	.with = "lost AS (\n  SELECT process_id, kind, reason, sum(count) AS count, sum(bytes) AS bytes FROM loss\n"
		"  GROUP BY process_id, kind, reason)",
	.columns = "process_id, kind, count, bytes, reason AS why",
	.source = "lost",
	.order = "count DESC, process_id, kind, why",
	.title = "lost: these happened and are not in the numbers above, or do not fit together",
};

static const struct tm_listing notes = {
	.columns = "process_id, ts_ns, kind, text AS why",
	.source = "note",
	.order = "ts_ns, kind, why",
	.title = "notes",
};

static const struct tm_listing alerts = {
	.columns = "process_id, ts_ns, rule, value",
	.source = "alert",
	.order = "ts_ns, rule",
	.title = "alerts",
	.value_as = "bytes",
};

/* What was live at the peaks, or at exit. Where the trace was sampled the allocations are scanned, for the errors. */
static int list_sites(const struct tm_database *d, const struct tm_options *o, bool at_peak) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	if (!d->estimated) tm_sql_by_site(sql, at_peak ? TM_PEAK_STACKS : EXIT_STACKS, tm_live_sums, false);
	else if (at_peak) tm_sql_sites_at_peak(sql, d, o);
	else tm_sql_sites_at_exit(sql, d, o);
	char *with = sqlite3_str_finish(sql);
	struct tm_listing listing = {
		.with = with,
		.columns = d->estimated ? "process_id, heap, stack_id, live_bytes, live_count, " TM_SITE_NAMES ", " TM_SITE_ERRORS
					: "process_id, heap, stack_id, live_bytes, live_count, " TM_SITE_NAMES,
		.source = "by_site",
		.order = "live_bytes DESC, process_id, heap, stack_id",
		.has_heap = true,
		.rows_shown = ROWS_SHOWN,
		.title = at_peak ? "live at the peak of each heap, by call site" : "live at exit, by call site",
		.share_column = "live_bytes",
		.nothing = "nothing",
		.estimated = { "live_bytes", "live_count" },
	};
	int status = with ? tm_listing_also(d, o, &listing) : tm_fail("cannot read '%s': out of memory", d->path);
	sqlite3_free(with);
	return status;
}

/* Only where there is something, of the process and heap that were chosen. */
static int list_any(const struct tm_database *d, const struct tm_options *o, const struct tm_listing *listing) {
	int status;
	char *sql = tm_listing_sql(d, o, listing, &status), *any = sql ? sqlite3_mprintf("SELECT 1 FROM (%s) LIMIT 1", sql) : NULL;
	bool is_listed = any && tm_database_integer(d, any, 0);
	sqlite3_free(sql);
	sqlite3_free(any);
	return is_listed ? tm_listing_also(d, o, listing) : status;
}

/* Of the chosen heap, or of the process. */
static int list_steps(const struct tm_database *d, const struct tm_options *o) {
	struct tm_listing listing = steps;
	if (o->heap) listing.where = NULL;
	return list_any(d, o, &listing);
}

static int list_page(const struct tm_database *d, const struct tm_options *o) {
	struct tm_options every = *o;
	every.sort = NULL; /* names a column of the heaps */
	int status = d->processes > 1 ? tm_listing_also(d, &every, &processes) : 0;
	if (!status) status = list_any(d, &every, &devices);
	if (!status) status = list_sites(d, &every, true);
	if (!status) status = list_sites(d, &every, false);
	if (!status) status = list_any(d, &every, &scopes);
	if (!status) status = list_steps(d, &every);
	if (!status) status = list_any(d, &every, &refusals);
	if (!status) status = list_any(d, &every, &losses);
	if (!status) status = list_any(d, &every, &alerts);
	if (!status) status = list_any(d, &every, &notes);
	return status;
}

/* Those whose processes were chosen. */
static int list_recordings(const struct tm_database *d, const struct tm_options *o, tm_lister *list) {
	struct tm_options unsorted = *o;
	struct tm_listing listing = recordings;
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	sqlite3_str_appendall(sql, "id IN (SELECT trace_id FROM process");
	tm_sql_process(sql, o, " WHERE", "id");
	sqlite3_str_appendall(sql, ")");
	char *where = sqlite3_str_finish(sql);
	unsorted.sort = NULL;
	if (o->process_given) listing.where = where;
	int status = where ? list(d, &unsorted, &listing) : tm_fail("cannot read '%s': out of memory", d->path);
	sqlite3_free(where);
	return status;
}

static int answer(const struct tm_database *d, const struct tm_options *o) {
	struct tm_listing listing = heaps;
	char *columns = NULL;
	if (d->estimated) {
		columns = columns_with_errors(d, o);
		listing.columns = columns;
		listing.source = "heap_summary AS v";
	}
	bool is_page = o->format == TM_FORMAT_TABLE && !o->sql;
	int status;
	/* A column that cannot be sorted by is refused before the page begins. */
	char *sql = tm_listing_sql(d, o, &listing, &status);
	sqlite3_free(sql);
	if (!status && is_page) status = list_recordings(d, o, tm_listing_run);
	if (!status && is_page && tm_write_output("\n", 1)) status = TM_EXIT_FAILED;
	if (!status) status = tm_listing_run(d, o, &listing);
	if (!status && o->sql) status = list_recordings(d, o, tm_listing_also);
	sqlite3_free(columns);
	return status || o->format != TM_FORMAT_TABLE ? status : list_page(d, o);
}

int tm_cmd_summary(int argc, char **argv) {
	return tm_answer(&usage, argc, argv, answer);
}
