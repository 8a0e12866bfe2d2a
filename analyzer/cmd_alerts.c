/* cmd_alerts.c - `tidemark alerts`: the thresholds that were crossed, with what was live at that moment.
 *
 * The recorder marks each crossing, and a mark keeps its live set; the view alert_site puts the two together.
 */
#include "listing.h"
#include "scans.h"
#include "talk.h"
#include "verbs.h"

static const struct tm_usage usage = {
	.verb = "alerts",
	.operands = "DB|TRACE",
	.description =
		"Lists the crossings of thresholds that record --alert=EXPR told of: when, which rule, the value, what was live then in the\n"
		"root heaps, and the call site that held most of it. --sites lists the whole live set of each, by call stack.\n"
		"Values of live are of the very event that crossed; all others were read from outside at an interval.\n",
	.examples = "tidemark alerts run.db\n"
		    "tidemark alerts run.db --sites --heap=malloc --limit=20\n"
		    "tidemark snapshot run.db --at 'mark:alert: rss > 8GiB' --by=function\n",
	.options = TM_OPTIONS_LISTING | TM_OPTION_SITES,
	.operands_min = 1,
	.operands_max = 1,
};

static const struct tm_listing crossings = {
	.with = "crossing AS (\n"
		"  SELECT a.process_id, a.ts_ns, a.rule, a.value, sum(s.live_bytes) AS live_bytes, sum(s.live_count) AS live_count,\n"
		"         max(s.estimated) AS estimated\n"
		"  FROM alert AS a LEFT JOIN alert_site AS s ON s.rule = a.rule AND s.ts_ns = a.ts_ns AND s.is_root\n"
		"       AND (a.process_id IS NULL OR s.process_id = a.process_id)\n"
		"  GROUP BY a.rowid),\n"
		"largest AS (\n"
		"  SELECT c.*, (SELECT coalesce(s.function, s.module) FROM alert_site AS s WHERE s.rule = c.rule AND s.ts_ns = c.ts_ns AND s.is_root\n"
		"               AND (c.process_id IS NULL OR s.process_id = c.process_id)\n"
		"               GROUP BY 1 ORDER BY sum(s.live_bytes) DESC, 1 LIMIT 1) AS largest_site\n"
		"  FROM crossing AS c)",
	.source = "largest",
	.order = "ts_ns, rule, process_id",
	.nothing = "no alerts",
	.value_as = "bytes", /* of whatever quantity */
	.estimated = { "live_bytes", "live_count" },
};

static const struct tm_listing sites = {
	.source = "alert_site",
	.order = "ts_ns, rule, live_bytes DESC, process_id, heap, stack_id",
	.has_heap = true,
	.nothing = "of no alert it is known what was live then",
	.share_column = "live_bytes",
	.hidden = { "stack_id", "value", "is_root", "module", "module_offset" },
	.estimated = { "live_bytes", "live_count" },
};

static int answer(const struct tm_database *d, const struct tm_options *o) {
	struct tm_listing listing = o->sites ? sites : crossings;
	if (!tm_has_window(o)) return tm_listing_run(d, o, &listing);
	/* The machine's alerts are by the first process' instants. */
	char *where = tm_window_condition(d, o, "coalesce(w.process_id, (SELECT min(p.id) FROM process AS p))", "w.ts_ns", "w.ts_ns");
	listing.where = where;
	listing.source = o->sites ? "alert_site AS w" : "largest AS w";
	listing.nothing = "no alerts in the window";
	int status = where ? tm_listing_run(d, o, &listing) : tm_fail("cannot read '%s': out of memory", d->path);
	sqlite3_free(where);
	return status;
}

int tm_cmd_alerts(int argc, char **argv) {
	struct tm_options o;
	int status = tm_options_parse(&o, &usage, argc, argv);
	if (status != TM_OPTIONS_GO) return status;
	if (o.heap && !o.sites) return tm_misuse("alerts", "--heap is for the sites of an alert: with --sites");
	return tm_answer(&usage, argc, argv, answer);
}
