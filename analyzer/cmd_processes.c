/* cmd_processes.c - `tidemark processes`: every process of the recording, as a tree, with its rank, its end and its peak.
 *
 * A row's place in the tree is the path of ids from its root, padded so that text order is tree order; ranks come before ids, so that the
 * processes of an MPI job stand in the order of their ranks. A process whose parent is not in the database is a root.
 */
#include "listing.h"
#include "sample_errors.h"
#include "talk.h"
#include "verbs.h"

static const struct tm_usage usage = {
	.verb = "processes",
	.operands = "DB|TRACE",
	.description =
		"Lists the processes of the recording in the order of their tree: who started whom, ranks, hosts where there are\n"
		"several, when and how each one ended, the peak and what was live at exit (over its root heaps, or of the heap that\n"
		"--heap names). With --from or --to only processes that were alive in that window are listed.\n",
	.examples = "tidemark processes run.db\n"
		    "tidemark processes run.db --sort=peak_bytes --limit=8\n"
		    "tidemark processes run.db --format=json --process=rank:0\n",
	.options = TM_OPTIONS_LISTING,
	.operands_min = 1,
	.operands_max = 1,
};

#define PROCESSES_WITH_ERRORS 32 /* of more, --sql would scan all allocations for each */
#define PLACE "printf('%%010d.%%010d', coalesce(p.rank, 9999999999), p.id)"

static char *window_condition(const struct tm_database *d, const struct tm_options *o) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	if (o->from.kind != TM_TIME_UNSET) {
		sqlite3_str_appendall(sql, "p.end_ns >= ");
		tm_time_point_sql(sql, &o->from, "p.id", o->heap);
	}
	if (o->to.kind != TM_TIME_UNSET) {
		sqlite3_str_appendall(sql, o->from.kind != TM_TIME_UNSET ? " AND p.start_ns <= " : "p.start_ns <= ");
		tm_time_point_sql(sql, &o->to, "p.id", o->heap);
	}
	return sqlite3_str_finish(sql);
}

static int answer(const struct tm_database *d, const struct tm_options *o) {
	char *with = sqlite3_mprintf("RECURSIVE tree(id, level, place) AS (\n"
				     "  SELECT p.id, 0, " PLACE " FROM process AS p\n"
				     "  WHERE p.parent_id IS NULL OR p.parent_id NOT IN (SELECT id FROM process)\n"
				     "  UNION ALL\n"
				     "  SELECT p.id, t.level + 1, t.place || '/' || " PLACE "\n"
				     "  FROM tree AS t JOIN process AS p ON p.parent_id = t.id)");
	char *source = sqlite3_mprintf("process AS p LEFT JOIN tree ON tree.id = p.id\n"
				       "LEFT JOIN heap_summary AS k ON k.process_id = p.id AND k.heap IS %Q",
				       o->heap);
	char *where = window_condition(d, o);
	sqlite3_str *columns = sqlite3_str_new(d->handle);
	sqlite3_str_appendall(columns,
			      "p.*, tree.level, k.peak_ns, k.peak_bytes, k.live_at_exit_bytes, k.live_at_exit_count, k.allocations");
	if (d->estimated && d->processes <= PROCESSES_WITH_ERRORS) {
		bool is_made = tm_sample_errors_of_heaps(d, o);
		tm_sql_total_error(columns, TM_TOTAL_PEAK, "k", "peak_bytes", "peak_relative_error", is_made);
		tm_sql_total_error(columns, TM_TOTAL_EXIT, "k", "live_at_exit_bytes", "exit_relative_error", is_made);
		tm_sql_total_error(columns, TM_TOTAL_EXIT, "k", "live_at_exit_count", "exit_count_relative_error", is_made);
		tm_sql_total_error(columns, TM_TOTAL_ALLOCATED, "k", "allocations", "allocated_count_relative_error", is_made);
	}
	char *selected = sqlite3_str_finish(columns);
	int64_t hosts = tm_database_integer(d, "SELECT count(DISTINCT host) FROM process", 0);
	struct tm_listing listing = {
		.with = with,
		.columns = selected,
		.source = source,
		.where = where,
		.order = "tree.place, p.id",
		.process = "p.id",
		.nothing = "no process",
		.hidden = { "trace_id", "parent_id", "local_rank", "world_size", "exe", "exit_ns", "forked", "execed", "recorded",
			    "inherited_frees", "peak_ns", "live_at_exit_count", "exit_count_relative_error", hosts > 1 ? NULL : "host" },
		.estimated = { "peak_bytes", "live_at_exit_bytes", "allocations" },
	};
	int status = with && source && selected ? tm_listing_run(d, o, &listing) : TM_EXIT_FAILED;
	sqlite3_free(selected);
	sqlite3_free(where);
	sqlite3_free(source);
	sqlite3_free(with);
	return status;
}

int tm_cmd_processes(int argc, char **argv) {
	return tm_answer(&usage, argc, argv, answer);
}
