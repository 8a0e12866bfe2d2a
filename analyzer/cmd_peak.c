/* cmd_peak.c - `tidemark peak`: when memory was highest, and which call sites made it up.
 *
 * The view peak has one row for each heap and one (heap NULL) for each process over its root heaps; peak_site has the call stacks behind
 * each heap's peak. Within a window, and for samples whose error is wanted, the allocations are scanned instead (scans.h).
 */
#include "listing.h"
#include "sample_errors.h"
#include "scans.h"
#include "verbs.h"

static const struct tm_usage usage = {
	.verb = "peak",
	.operands = "DB|TRACE",
	.description =
		"Shows the most bytes that were live at once: for each process over its root heaps, heap '(all)', and for each heap\n"
		"(view peak), the process that held most first; a table goes on with the call stacks that made up the peak of each\n"
		"heap (view peak_site), which --sites lists alone, in any format. With --from or --to it is the highest level within\n"
		"that window. Without, a table also says how close another peak came, about how long the level was near it (view\n"
		"peak_shape), and which stacks would bring that of a process down (view peak_lever; stacks of root heaps). Of threads,\n"
		"ranks, devices and scopes: views thread_peak, rank_peak, device_peak, scope_peak.\n",
	.examples = "tidemark peak run.db\n"
		    "tidemark peak run.db --sites --heap=malloc --format=json\n"
		    "tidemark peak run.db --from=mark:loaded --to=exit\n",
	.options = TM_OPTIONS_LISTING | TM_OPTION_SITES | TM_OPTION_STACK,
	.operands_min = 1,
	.operands_max = 1,
	.needs_known_window = true,
};

/* The columns of the peaks, with the standard error of estimates. */
static char *columns_with_error(const struct tm_database *d, const struct tm_options *o, const char *with) {
	bool is_made = tm_sample_errors_of_levels(d, o, with, with ? "highest" : "peak");
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	sqlite3_str_appendall(sql, "*");
	tm_sql_total_error(sql, TM_TOTAL_LEVEL, "v", "live_bytes", "relative_error", is_made);
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
	bool is_made = true; /* by import, or just now */
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	if (tm_has_window(o) || d->estimated) is_made = tm_sql_live_at_peak(sql, d, o);
	char *with = sqlite3_str_finish(sql);
	struct tm_listing listing = {
		.with = with,
		.source = with ? "live" : "peak_site",
		/* A stack that is live only at the peak of the process belongs to another question. */
		.where = with ? NULL : "(live_count > 0 OR live_bytes > 0)",
		.order = "live_bytes DESC, process_id, heap, stack_id",
		.has_heap = true,
		.unnamed = with ? "unnamed" : TM_UNNAMED_PEAK_SITES,
		.may_be_millions = is_made,
		.title = "what was live at the peak of each heap, by call stack",
		.share_column = "live_bytes",
		.nothing = "nothing",
		.hidden = { "process_peak_bytes", "process_peak_count" },
		.estimated = { "live_bytes", "live_count" },
	};
	int status = list(d, o, &listing);
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

static int list_levers(const struct tm_database *d, const struct tm_options *o) {
	struct tm_listing listing = {
		.columns =
			"process_id, heap, stack_id, live_bytes, live_count, peak_share, mean_life_duration_ns, live_at_exit_bytes, function, file,\n"
			"  line, module, module_offset, estimated, reason AS why",
		.source = "peak_lever",
		.where = "peak_share >= 0.05",
		.order = "live_bytes DESC, process_id, heap, stack_id",
		.has_heap = true,
		.share_column = "live_bytes",
		.rows_shown = 10,
		.title = "what would bring the peak of a process down, of what held a twentieth of it",
		.nothing = "no stack held a twentieth of it: it is made of many",
		.hidden = { "stack_id" },
		.estimated = { "live_bytes", "live_count", "live_at_exit_bytes" },
	};
	return tm_listing_also(d, o, &listing);
}

/* The peak of a process is one over its root heaps: no stack of another heap could lower it, and none is said to hold nothing of it. */
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
