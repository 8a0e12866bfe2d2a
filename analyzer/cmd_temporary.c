/* cmd_temporary.c - `tidemark temporary`: call sites whose blocks are freed before the thread's next allocation.
 *
 * Such a block could often have been avoided, or kept and used again. Import counts them in the view `temporary`; a window is answered
 * from the allocations, by looking at the allocation that follows each one on its thread; so is a sampled trace, for its errors.
 */
#include "listing.h"
#include "scans.h"
#include "verbs.h"

static const struct tm_usage usage = {
	.verb = "temporary",
	.operands = "DB|TRACE",
	.description =
		"Lists the call stacks that make temporary blocks: blocks that the same thread frees before its next allocation (view\n"
		"temporary), most blocks first. With --from or --to only blocks that were allocated in that window are counted.\n",
	.examples = "tidemark temporary run.db\n"
		    "tidemark temporary run.db --sort=bytes --limit=10 --stack\n",
	.options = TM_OPTIONS_LISTING | TM_OPTION_STACK,
	.operands_min = 1,
	.operands_max = 1,
};

static int answer(const struct tm_database *d, const struct tm_options *o) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	if (tm_has_window(o) || d->estimated) tm_sql_made(sql, d, o);
	char *with = sqlite3_str_finish(sql);
	struct tm_listing listing = {
		.with = with,
		.source = with ? "made" : "temporary",
		.order = "count DESC, bytes DESC, process_id, heap, stack_id",
		.has_heap = true,
		.nothing = "no block was temporary",
		.estimated = { "count", "bytes", "allocations" },
	};
	int status = tm_listing_run(d, o, &listing);
	sqlite3_free(with);
	return status;
}

int tm_cmd_temporary(int argc, char **argv) {
	return tm_answer(&usage, argc, argv, answer);
}
