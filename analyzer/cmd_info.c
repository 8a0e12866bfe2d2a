/* cmd_info.c - `tidemark info`: what a trace or a database is, what it holds, what was lost, whether it is whole.
 *
 * Both give rows (topic, name, value). A database is asked in SQL; a trace is read as it is, chunk by chunk, without an import
 * (info_trace.c).
 */
#include <stdio.h>

#include "coverage.h"
#include "info_trace.h"
#include "listing.h"
#include "talk.h"
#include "verbs.h"

static const struct tm_usage usage = {
	.verb = "info",
	.operands = "DB|TRACE",
	.description =
		"Says what a file is: format, origin, counts of what it holds, what was lost, notes of the recorder, and whether it\n"
		"is whole. A trace is read as it is, without an import; where it is cut, the offset of the first chunk that is not\n"
		"sound is given.\n",
	.examples = "tidemark info run.tmk\n"
		    "tidemark info run.db --format=json\n",
	.options = TM_OPTION_FORMAT | TM_OPTION_SQL,
	.operands_min = 1,
	.operands_max = 1,
};

/* X(order, name, expression over trace) */
#define TRACE_FACTS(X) \
	X(1, "path", "path") \
	X(2, "command", "command") \
	X(3, "host", "host") \
	X(4, "job", "job") \
	X(5, "format_version", "format_version") \
	X(6, "tool_version", "tool_version") \
	X(7, "started", "datetime(start_unix_ns / 1000000000, 'unixepoch') || ' UTC'") \
	X(8, "duration_ns", "(SELECT max(p.end_ns) - min(p.start_ns) FROM process AS p WHERE p.trace_id = trace.id)") \
	X(9, "clock", "clock") \
	X(10, "clock_offset_ns", "clock_offset_ns") \
	X(11, "sample_bytes", "sample_bytes") \
	X(12, "events", "events") \
	X(13, "file_bytes", "file_bytes") \
	X(14, "sound_bytes", "sound_bytes") \
	X(15, "complete", TM_IS_COMPLETE) \
	X(16, "cut_reason", "cut_reason")

/* Of the worlds that say how many ranks they have. */
#define RANKS_MISSING \
	"(SELECT sum(max(0, missing)) FROM (SELECT max(world_size) - count(DISTINCT rank) AS missing FROM process\n" \
	"    WHERE rank IS NOT NULL GROUP BY world))"

/* X(order, name, number) */
#define COUNTS(X) \
	X(1, "processes", "(SELECT count(*) FROM process)") \
	X(2, "threads", "(SELECT count(*) FROM thread)") \
	X(3, "ranks", "(SELECT count(*) FROM (SELECT DISTINCT world, rank FROM process WHERE rank IS NOT NULL))") \
	X(3, "ranks missing", RANKS_MISSING) \
	X(4, "heaps", "(SELECT count(*) FROM heap)") \
	X(5, "modules", "(SELECT count(*) FROM module)") \
	X(6, "frames", "(SELECT count(*) FROM frame)") \
	X(7, "stacks", "(SELECT count(*) FROM stack)") \
	X(8, "allocations", "(SELECT sum(allocations) FROM heap_summary WHERE heap IS NOT NULL)") \
	X(9, "frees", "(SELECT sum(frees) FROM heap_summary WHERE heap IS NOT NULL)") \
	X(10, "scopes", "(SELECT count(*) FROM scope WHERE id > 0)") \
	X(11, "marks", "(SELECT count(*) FROM mark)") \
	X(12, "samples", "(SELECT count(*) FROM sample)") \
	X(13, "snapshots", "(SELECT count(*) FROM snapshot)")

static const char database_facts[] = "WITH fact(place, id, n, topic, name, value) AS (\n"
				     "  SELECT 1, 0, 0, 'database', key, value FROM meta\n"
#define X(order, name, expression) "  UNION ALL SELECT 2, id, " #order ", 'trace ' || id, '" name "', " expression " FROM trace\n"
	TRACE_FACTS(X)
#undef X
		"  UNION ALL SELECT 2, trace_id, 20, 'trace ' || trace_id, key, value FROM trace_info\n"
		"    WHERE key NOT IN ('command', 'host', 'job', 'tool_version', 'start_unix_ns', 'clock', 'sample_bytes')\n"
#define X(order, name, expression) "  UNION ALL SELECT 3, 0, " #order ", 'holds', '" name "', " expression "\n"
	COUNTS(X)
#undef X
		"  UNION ALL SELECT 4, 0, 0, 'lost', kind, \n"
		"      printf('count %d%s: %s', sum(count), CASE WHEN kind NOT IN (" TM_LOSSES_OF_NO_EVENT ")\n"
		"        THEN ', bytes ' || coalesce(sum(bytes), 'unknown') ELSE '' END, reason)\n"
		"    FROM loss GROUP BY kind, reason\n"
		"  UNION ALL SELECT 4, 1, 0, 'not known', kind, CASE WHEN count(*) = 1\n"
		"      THEN printf('process %d from %.6f s to ', process_id, start_ns / 1e9)\n"
		"        || iif(end_ns IS NULL, 'its end', printf('%.6f s', end_ns / 1e9))\n"
		"      ELSE printf('%d spans of %d processes, from %.6f s on (table coverage_gap)', count(*), count(DISTINCT process_id),\n"
		"        min(start_ns) / 1e9) END\n"
		"    FROM coverage_gap GROUP BY kind\n"
		"  UNION ALL SELECT 5, 0, ts_ns, 'alert', rule, value || ' bytes' FROM alert\n"
		"  UNION ALL SELECT 6, 0, ts_ns, 'note', kind, text FROM note)\n"
		"SELECT topic, name, value FROM fact WHERE value IS NOT NULL ORDER BY place, id, n, name";

static int show(sqlite3 *handle, const struct tm_options *o, const char *sql) {
	struct tm_render_plan plan = { .format = o->format, .path = o->operands[0], .named_by = "name" };
	sqlite3_stmt *statement = NULL;
	int status = TM_EXIT_FAILED;
	if (sqlite3_prepare_v2(handle, sql, -1, &statement, NULL) == SQLITE_OK) status = tm_render(statement, &plan, NULL);
	else tm_fail("cannot read '%s': %s", o->operands[0], sqlite3_errmsg(handle));
	sqlite3_finalize(statement);
	return status;
}

static int show_trace(const struct tm_options *o) {
	sqlite3 *handle = NULL;
	if (o->sql) return tm_misuse("info", "a trace has no tables to ask, --sql needs a database");
	int status = sqlite3_open(":memory:", &handle) == SQLITE_OK ? tm_info_trace(handle, o->operands[0])
								    : tm_fail("cannot read '%s': out of memory", o->operands[0]);
	if (!status) status = show(handle, o, "SELECT topic, name, value FROM fact");
	sqlite3_close(handle);
	return status;
}

static int show_database(const struct tm_options *o) {
	struct tm_database d;
	int status = tm_database_open(&d, o->operands[0]);
	if (!status && o->sql) printf("%s;\n", database_facts);
	else if (!status) status = show(d.handle, o, database_facts);
	tm_database_close(&d);
	return status;
}

int tm_cmd_info(int argc, char **argv) {
	struct tm_options o;
	int status = tm_options_parse(&o, &usage, argc, argv);
	if (status != TM_OPTIONS_GO) return status;
	switch (tm_file_recognise(o.operands[0])) {
	case TM_FILE_TRACE: return show_trace(&o);
	case TM_FILE_DATABASE: return show_database(&o);
	default: return TM_EXIT_FAILED;
	}
}
