/* cmd_peak.c - `tidemark peak`: when memory was highest, and which call sites made it up.
 *
 * The view peak has one row for each heap and one (heap NULL) for each process over its root heaps; peak_site has the call stacks behind
 * each heap's peak, which are added up by call site here (by_site.h). Within a window, and for samples whose error is wanted, the allocations
 * are scanned instead (scans.h).
 */
#include "by_site.h"
#include "listing.h"
#include "sample_errors.h"
#include "scans.h"
#include "talk.h"
#include "verbs.h"

static const struct tm_usage usage = {
	.verb = "peak",
	.operands = "DB|TRACE",
	.description =
		"Shows the most bytes that were live at once: for each process over its root heaps, heap '(all)', and for each heap\n"
		"(view peak), the process that held most first; a table goes on with the call sites that made up the peak of each\n"
		"heap, which --sites lists alone, in any format. A row stands for all stacks of a call site; stack_id, and what --stack\n"
		"shows, is the stack that held most (view peak_site: each stack). With --from or --to it is the highest level within\n"
		"that window. Without, a table also says how close another peak came, about how long the level was near it (view\n"
		"peak_shape), and which call sites of root heaps would bring that of a process down (view peak_lever: each stack). Of\n"
		"threads, ranks, devices and scopes: views thread_peak, rank_peak, device_peak, scope_peak.\n",
	.examples = "tidemark peak run.db\n"
		    "tidemark peak run.db --sites --heap=malloc --format=json\n"
		    "tidemark peak run.db --from=mark:loaded --to=exit\n",
	.options = TM_OPTIONS_LISTING | TM_OPTION_SITES | TM_OPTION_STACK,
	.operands_min = 1,
	.operands_max = 1,
	.needs_known_window = true,
};

/* The columns of the peaks, with the standard errors of estimates. */
static char *columns_with_error(const struct tm_database *d, const struct tm_options *o, const char *with) {
	bool is_made = tm_sample_errors_of_levels(d, o, with, with ? "highest" : "peak");
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	sqlite3_str_appendall(sql, "*");
	tm_sql_total_error(sql, TM_TOTAL_LEVEL, "v", "live_bytes", "relative_error", is_made);
	tm_sql_total_error(sql, TM_TOTAL_LEVEL, "v", "live_count", "count_relative_error", is_made);
	return sqlite3_str_finish(sql);
}

static int list_peaks(const struct tm_database *d, const struct tm_options *o) {
	char *with = NULL, *columns = NULL;
	struct tm_options options = *o;
	options.stack = false; /* a peak has no stack; its sites have */
	if (tm_has_window(o)) {
		sqlite3_str *sql = sqlite3_str_new(d->handle);
		tm_sql_highest(sql, d, o);
		with = sqlite3_str_finish(sql);
	}
	if (d->estimated) columns = columns_with_error(d, o, with);
	struct tm_listing listing = {
		.with = with,
		.columns = columns,
		.source = with           ? "highest AS v"
			  : d->estimated ? "peak AS v"
					 : "peak",
		.order = TM_ORDER_OF_HEAPS("live_bytes"),
		.has_heap = true,
		.nothing = tm_has_window(o) ? "nothing was live then" : "nothing was ever live",
		.share_column = "live_bytes",
		.estimated = { "live_bytes", "live_count" },
		.null_heap = "(all)",
	};
	int status = tm_listing_run(d, &options, &listing);
	sqlite3_free(columns);
	sqlite3_free(with);
	return status;
}

static int list_sites(const struct tm_database *d, const struct tm_options *o, tm_lister *list) {
	bool is_scanned = tm_has_window(o) || d->estimated;
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	if (is_scanned) tm_sql_sites_at_peak(sql, d, o);
	else tm_sql_by_site(sql, TM_PEAK_STACKS, tm_peak_sums, false);
	char *with = sqlite3_str_finish(sql);
	struct tm_listing listing = {
		.with = with,
		.columns =
			!is_scanned
				? "process_id, heap, stack_id, live_bytes, live_count, process_peak_bytes, process_peak_count,\n  " TM_SITE_NAMES
			: d->estimated ? "process_id, heap, stack_id, live_bytes, live_count, " TM_SITE_NAMES ", " TM_SITE_ERRORS
				       : "process_id, heap, stack_id, live_bytes, live_count, " TM_SITE_NAMES,
		.source = "by_site",
		.order = "live_bytes DESC, process_id, heap, stack_id",
		.has_heap = true,
		.title = "what was live at the peak of each heap, by call site",
		.share_column = "live_bytes",
		.nothing = "nothing",
		.hidden = { "process_peak_bytes", "process_peak_count" },
		.estimated = { "live_bytes", "live_count" },
	};
	int status = with ? list(d, o, &listing) : tm_fail("cannot read '%s': out of memory", d->path);
	sqlite3_free(with);
	return status;
}

static int list_shape(const struct tm_database *d, const struct tm_options *o) {
	struct tm_listing listing = {
		.source = "peak_shape",
		.order = TM_ORDER_OF_HEAPS("live_bytes"),
		.has_heap = true,
		.title = "the next separate peak; about how long the level was above 90 % of the highest",
		.nothing = "nothing",
		.hidden = { "ts_ns", "live_bytes" },
		.estimated = { "second_bytes" },
		.null_heap = "(all)",
	};
	struct tm_options options = *o;
	options.stack = false;
	return tm_listing_also(d, &options, &listing);
}

/* The stacks of the view peak_lever, whose sites are judged as it judges each of them. */
#define LEVER_STACKS \
	"(SELECT t.heap_id, t.stack_id, t.process_peak_bytes AS live_bytes, t.process_peak_count AS live_count,\n" \
	"        t.live_at_exit_bytes, t.frees, iif(t.mean_lifetime_ns IS NULL, 0, t.frees) AS timed,\n" \
	"        1.0 * t.frees * t.mean_lifetime_ns AS lifetimes_ns FROM site_total AS t WHERE t.process_peak_bytes > 0)"
#define LEVERS \
	"lever AS (\n  SELECT b.process_id, b.heap, b.stack_id, b.live_bytes, b.live_count,\n" \
	"    round(1.0 * b.live_bytes / a.peak_bytes, 4) AS peak_share,\n" \
	"    CAST(round(b.lifetimes_ns / nullif(b.timed, 0)) AS INTEGER) AS mean_life_duration_ns, b.live_at_exit_bytes,\n" \
	"    b.function, b.file, b.line, b.module, b.module_offset, b.estimated,\n" \
	"    CASE WHEN b.frees = 0 THEN 'was never freed: make less of it, or free it'\n" \
	"         WHEN 10.0 * b.live_at_exit_bytes >= 9.0 * b.live_bytes THEN 'stays to the end: make less of it, or free it'\n" \
	"         WHEN 100 * b.lifetimes_ns < b.timed * (p.end_ns - p.start_ns) THEN 'short-lived: fewer at the same time'\n" \
	"         ELSE 'lives on for a while: free it before the peak' END AS why\n" \
	"  FROM by_site AS b JOIN process AS p ON p.id = b.process_id\n" \
	"  JOIN heap_total AS a ON a.process_id = b.process_id AND a.heap_id = 0)"

static int list_levers(const struct tm_database *d, const struct tm_options *o) {
	static const char *const sums[] = { "live_bytes", "live_count", "live_at_exit_bytes", "frees", "timed", "lifetimes_ns", NULL };
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	tm_sql_by_site(sql, LEVER_STACKS, sums, false);
	sqlite3_str_appendall(sql, ",\n" LEVERS);
	char *with = sqlite3_str_finish(sql);
	struct tm_listing listing = {
		.with = with,
		.source = "lever",
		.where = "peak_share >= 0.05",
		.order = "live_bytes DESC, process_id, heap, stack_id",
		.has_heap = true,
		.share_column = "live_bytes",
		.rows_shown = 10,
		.title = "what would bring the peak of a process down, of what held a twentieth of it",
		.nothing = "no call site held a twentieth of it: it is made of many",
		.hidden = { "stack_id" },
		.estimated = { "live_bytes", "live_count", "live_at_exit_bytes" },
	};
	int status = with ? tm_listing_also(d, o, &listing) : tm_fail("cannot read '%s': out of memory", d->path);
	sqlite3_free(with);
	return status;
}

/* The peak of a process is one over its root heaps: no call site of another heap could lower it, and none is said to hold nothing of it. */
static bool is_of_processes(const struct tm_database *d, const char *heap) {
	char *sql = sqlite3_mprintf("SELECT EXISTS (SELECT 1 FROM heap WHERE is_root AND coalesce(name = %Q, true))", heap);
	bool exists = !sql || tm_database_integer(d, sql, 1);
	sqlite3_free(sql);
	return exists;
}

/* A window has its peaks and sites only: what import added up is about the whole run. */
static int answer(const struct tm_database *d, const struct tm_options *o) {
	if (o->sites) return list_sites(d, o, tm_listing_run);
	int status = list_peaks(d, o);
	if (!status) status = list_sites(d, o, tm_listing_also);
	if (status || tm_has_window(o)) return status;
	status = list_shape(d, o);
	return status || !is_of_processes(d, o->heap) ? status : list_levers(d, o);
}

int tm_cmd_peak(int argc, char **argv) {
	return tm_answer(&usage, argc, argv, answer);
}
