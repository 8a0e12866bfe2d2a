/* cmd_leaks.c - `tidemark leaks`: what was live when the program began to leave, by call site.
 *
 * Leaks are judged at exit, before destructors and an interpreter's own clean-up. Where leak candidates were scored they come by score,
 * with the reason in words; until then the view live_at_exit is listed, largest first.
 */
#include "listing.h"
#include "scans.h"
#include "verbs.h"

static const struct tm_usage usage = {
	.verb = "leaks",
	.operands = "DB|TRACE",
	.description = "Lists what was live when each process began to leave, by call stack, largest first (view live_at_exit;\n"
		       "leak_candidate by score where the database has scores). `exit` is when main returned or exit() was called: what\n"
		       "destructors free later is still listed. With --from or --to only blocks that were allocated in that window are\n"
		       "counted.\n",
	.examples = "tidemark leaks run.db\n"
		    "tidemark leaks run.db --stack --limit=5\n"
		    "tidemark leaks run.db --heap=malloc --sort=live_count --format=json\n"
		    "tidemark leaks run.db --from=mark:warm\n",
	.options = TM_OPTIONS_LISTING | TM_OPTION_STACK,
	.operands_min = 1,
	.operands_max = 1,
};

static int answer(const struct tm_database *d, const struct tm_options *o) {
	static const struct tm_time_point at_exit = { .kind = TM_TIME_EXIT };
	struct tm_listing listing = {
		.source = "live_at_exit",
		.order = "live_bytes DESC, process_id, heap, stack_id",
		.has_heap = true,
		.nothing = "nothing was live at exit",
		.estimated = { "live_bytes", "live_count" },
	};
	if (tm_has_window(o) || d->estimated) {
		sqlite3_str *sql = sqlite3_str_new(d->handle);
		tm_sql_instants(sql, o, &at_exit);
		sqlite3_str_appendall(sql, ",\n");
		tm_sql_live(sql, d, "instant", o);
		char *with = sqlite3_str_finish(sql);
		listing.with = with;
		listing.source = "live";
		int status = tm_listing_run(d, o, &listing);
		sqlite3_free(with);
		return status;
	}
	if (tm_database_integer(d, "SELECT 1 FROM leak_candidate WHERE score IS NOT NULL LIMIT 1", 0)) {
		listing.source = "leak_candidate";
		listing.order = "score DESC, live_bytes DESC, process_id, heap, stack_id";
	}
	return tm_listing_run(d, o, &listing);
}

int tm_cmd_leaks(int argc, char **argv) {
	return tm_answer(&usage, argc, argv, answer);
}
