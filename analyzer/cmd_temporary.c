/* cmd_temporary.c - `tidemark temporary`: call sites whose blocks are freed before the thread's next allocation, and other churn.
 *
 * Such a block could often have been avoided, or kept and used again. Import counts them in the view `temporary`; a window is answered
 * from the allocations, by looking at the allocation that follows each one on its thread; so is a sampled trace, for its errors.
 */
#include "listing.h"
#include "scans.h"
#include "talk.h"
#include "verbs.h"

#include <string.h>

static const struct tm_usage usage = {
	.verb = "temporary",
	.operands = "DB|TRACE",
	.description =
		"Lists the call stacks that make temporary blocks: blocks that the same thread frees before its next allocation (view\n"
		"temporary), most blocks first. With --from or --to only blocks that were allocated in that window are counted.\n"
		"--churn, --reallocs, --oversized and --histogram show other ways in which blocks come and go (views churn, realloc_site,\n"
		"oversized_site, size_histogram, lifetime_histogram), each over the whole run.\n",
	.examples = "tidemark temporary run.db\n"
		    "tidemark temporary run.db --sort=bytes --limit=10 --stack\n"
		    "tidemark temporary run.db --churn --heap=malloc\n"
		    "tidemark temporary run.db --histogram=lifetime\n",
	.options = TM_OPTIONS_LISTING | TM_OPTION_STACK | TM_OPTION_CHURN,
	.operands_min = 1,
	.operands_max = 1,
	.needs_known_window = true,
};

/* Views beside `temporary`, and in which order they are read. */
static const struct tm_listing churn = {
	.source = "churn",
	.unnamed = TM_UNNAMED_SITES(
		"t.allocations, t.short_lived AS short_lived_count, t.short_lived_bytes, iif(h.estimated, NULL, t.same_size) AS same_size_count,\n"
		"  t.mean_lifetime_ns AS mean_life_duration_ns"),
	.where = "(short_lived_count > 0 OR same_size_count > 0)",
	.may_be_millions = true,
	.order = "short_lived_count DESC, same_size_count DESC, process_id, heap, stack_id",
	.has_heap = true,
	.nothing = "no block was short-lived",
	.estimated = { "allocations", "short_lived_count", "short_lived_bytes", "same_size_count" },
};
static const struct tm_listing reallocs = {
	.source = "realloc_site",
	.unnamed = TM_UNNAMED_SITES(
		"t.reallocations AS realloc_count, t.reallocated_bytes, iif(h.estimated, NULL, t.longest_chain) AS longest_chain_count, t.allocations"),
	.where = "realloc_count > 0",
	.may_be_millions = true,
	.order = "reallocated_bytes DESC, realloc_count DESC, process_id, heap, stack_id",
	.has_heap = true,
	.nothing = "nothing was reallocated",
	.estimated = { "realloc_count", "reallocated_bytes", "allocations" },
};
static const struct tm_listing oversized = {
	.source = "oversized_site",
	.unnamed = TM_UNNAMED_SITES("t.slack_bytes, t.allocated_bytes, round(1.0 * t.slack_bytes / t.allocated_bytes, 4) AS slack_share,\n"
				    "  t.allocations"),
	.where = "slack_bytes > 0",
	.may_be_millions = true,
	.order = "slack_bytes DESC, process_id, heap, stack_id",
	.has_heap = true,
	.nothing = "no block was larger than what was asked for, as far as is known",
	.estimated = { "slack_bytes", "allocated_bytes", "allocations" },
};
static const struct tm_listing sizes = {
	.source = "size_histogram",
	.order = "process_id, heap, from_bytes",
	.has_heap = true,
	.nothing = "nothing was allocated",
	.bar_column = "allocations",
	.estimated = { "allocations", "allocated_bytes" },
};
static const struct tm_listing lifetimes = {
	.source = "lifetime_histogram",
	.order = "process_id, heap, from_duration_ns",
	.has_heap = true,
	.nothing = "nothing was freed",
	.bar_column = "frees",
	.estimated = { "frees", "freed_bytes" },
};

/* The view that was asked for instead of `temporary`; NULL: none. */
static const struct tm_listing *other_view(const struct tm_options *o) {
	if (o->histogram) return strcmp(o->histogram, "size") == 0 ? &sizes : &lifetimes;
	return o->churn ? &churn : o->reallocs ? &reallocs : o->oversized ? &oversized : NULL;
}

static int answer(const struct tm_database *d, const struct tm_options *o) {
	const struct tm_listing *other = other_view(o);
	if (other) return tm_listing_run(d, o, other);
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	bool is_made = !(tm_has_window(o) || d->estimated) || tm_sql_made(sql, d, o);
	char *with = sqlite3_str_finish(sql);
	struct tm_listing listing = {
		.with = with,
		.source = with ? "made" : "temporary",
		.unnamed = with ? "unnamed" : TM_UNNAMED_SITES("t.temporary AS count, t.temporary_bytes AS bytes, t.allocations"),
		.where = with ? NULL : "count > 0",
		.may_be_millions = is_made,
		.order = "count DESC, bytes DESC, process_id, heap, stack_id",
		.has_heap = true,
		.nothing = tm_has_window(o) ? "no block that was allocated then was temporary" : "no block was temporary",
		.estimated = { "count", "bytes", "allocations" },
	};
	int status = tm_listing_run(d, o, &listing);
	sqlite3_free(with);
	return status;
}

int tm_cmd_temporary(int argc, char **argv) {
	struct tm_options o;
	int status = tm_options_parse(&o, &usage, argc, argv);
	if (status != TM_OPTIONS_GO) return status;
	if (o.churn + o.reallocs + o.oversized + (o.histogram != NULL) > 1)
		return tm_misuse("temporary", "--churn, --reallocs, --oversized and --histogram are different lists: one at a time");
	if (other_view(&o) && tm_has_window(&o)) return tm_misuse("temporary", "this list is of the whole run: not with --from or --to");
	if (o.histogram && o.stack) return tm_misuse("temporary", "--histogram has no stacks");
	return tm_answer(&usage, argc, argv, answer);
}
