/* cmd_check.c - `tidemark check`: compares a recording with budgets, for continuous integration.
 *
 * Every budget is a query with a row for each process: what was measured, what was allowed. One union of them is listed, written as JUnit
 * XML if that is wanted, and its verdicts make the exit status. A budget that cannot be judged is a failure and not a pass.
 */
#include <stdio.h>
#include <string.h>

#include "schema/units.h"
#include "coverage.h"
#include "display_text.h"
#include "export_output.h"
#include "json_text.h"
#include "listing.h"
#include "overwrite.h"
#include "scans.h"
#include "stack_values.h"
#include "suppressions.h"
#include "talk.h"
#include "verbs.h"

static const struct tm_usage usage = {
	.verb = "check",
	.operands = "DB|TRACE",
	.description =
		"Compares every process with budgets; exit status 3 if one is exceeded, 0 if all are kept, 1 if that is not known, of a\n"
		"recording of a part of the run, or one that lost events that may change it. Without --heap the figures\n"
		"are those of a process over its root heaps. What could not be recorded, or not all of it, is warned of: no budget applies\n"
		"to that, nor to what a program left out itself with tidemark_stop().\n"
		"  --max-peak         the most bytes that were live at once\n"
		"  --max-leak         live when the process began to leave, likely a leak or not, but for what runtimes keep by design\n"
		"                     and what --suppressions=FILE names\n"
		"  --max-growth       the median growth of live bytes from step to step (Theil-Sen), after the first tenth of the steps;\n"
		"                     fails where no process has 4 steps\n"
		"  --max-allocations  the most allocations in one step, but the first tenth of the steps; in the whole run of a process\n"
		"                     that has fewer than 2 steps\n",
	.examples = "tidemark check run.db --max-peak=2GiB --max-leak=64KiB --junit=memory.xml\n"
		    "tidemark check run.db --max-leak=0 --suppressions=known.txt\n"
		    "tidemark check run.tmk --max-growth=0 --max-allocations=100000\n"
		    "tidemark check run.db --max-leak=0 --heap=torch.cpu --format=json\n",
	.options = TM_OPTION_FORMAT | TM_OPTION_LIMIT | TM_OPTION_SORT | TM_OPTION_HEAP | TM_OPTION_PROCESS | TM_OPTION_SQL |
		   TM_OPTION_CHECK,
	.operands_min = 1,
	.operands_max = 1,
};

/* The condition that a column is the chosen heap, or the whole process. */
static void put_heap(sqlite3_str *sql, const struct tm_options *o, const char *column) {
	if (o->heap) sqlite3_str_appendf(sql, "%s = %Q", column, o->heap);
	else sqlite3_str_appendf(sql, "%s IS NULL", column);
}

static void begin_budget(sqlite3_str *sql) {
	if (sqlite3_str_length(sql)) sqlite3_str_appendall(sql, "\n  UNION ALL\n");
}

static void put_peak(sqlite3_str *sql, const struct tm_options *o) {
	begin_budget(sql);
	sqlite3_str_appendf(
		sql,
		"  SELECT 'max-peak' AS budget, process_id, live_bytes AS measured_bytes, %lld AS allowed_bytes, NULL AS measured_count,\n"
		"    NULL AS allowed_count FROM peak WHERE ",
		o->budgets.peak_bytes);
	put_heap(sql, o, "heap");
}

/* The condition that heap h is the chosen one, or one that makes up the whole process. */
static void put_and_heaps(sqlite3_str *sql, const struct tm_options *o) {
	if (o->heap) sqlite3_str_appendf(sql, " AND h.name = %Q", o->heap);
	else sqlite3_str_appendall(sql, " AND h.is_root");
}

/* Where figures of leaks are: in the rows, or, where a file names some of their stacks, in the stacks that it leaves. */
static const char *leak_rows(const char *suppressed) {
	return *suppressed ? "s" : "l";
}

/* "FROM ... WHERE ...": the leaks l of `process`, an expression, that count, and their heaps h. */
static void put_leaks(sqlite3_str *sql, const struct tm_options *o, const char *suppressed, const char *process) {
	sqlite3_str_appendf(
		sql, "FROM leak_score AS l JOIN heap AS h ON h.id = l.heap_id\n%s    WHERE l.process_id = %s AND NOT l.suppressed",
		*suppressed
			? "    JOIN leak_stack AS s ON s.process_id = l.process_id AND s.heap_id = l.heap_id AND s.row_stack_id = l.stack_id\n"
			: "",
		process);
	if (*suppressed) sqlite3_str_appendf(sql, " AND s.stack_id NOT IN (%s)", suppressed);
	put_and_heaps(sql, o);
}

static void put_leak(sqlite3_str *sql, const struct tm_options *o, const char *suppressed) {
	begin_budget(sql);
	sqlite3_str_appendf(sql, "  SELECT 'max-leak', k.process_id, coalesce((SELECT sum(%s.live_bytes) ", leak_rows(suppressed));
	put_leaks(sql, o, suppressed, "k.process_id");
	sqlite3_str_appendf(sql, "), 0), %lld, NULL, NULL FROM heap_summary AS k WHERE ", o->budgets.leak_bytes);
	put_heap(sql, o, "k.heap");
}

/* Steps in their order, behind the warm-up; of many, about a hundred. */
static void put_steps(sqlite3_str *sql, const struct tm_options *o) {
	sqlite3_str_appendall(sql, "numbered AS (\n  SELECT s.process_id, coalesce(a.end_bytes, 0) AS live_end_bytes,\n"
				   "    coalesce(a.allocations, 0) AS allocations, row_number() OVER w AS x,\n"
				   "    count(*) OVER (PARTITION BY s.process_id) AS steps\n  FROM ");
	tm_sql_from_steps(sql, o);
	sqlite3_str_appendall(
		sql, "\n  WINDOW w AS (PARTITION BY s.process_id ORDER BY s.start_ns)),\n"
		     "warm AS (SELECT * FROM numbered WHERE x > (steps + 9) / 10 AND steps >= 2),\n"
		     "point AS (SELECT * FROM warm WHERE steps >= 4 AND x % ((steps + 99) / 100) = 0),\n"
		     "slope AS (\n  SELECT process_id, slope, row_number() OVER (PARTITION BY process_id ORDER BY slope) AS place,\n"
		     "    count(*) OVER (PARTITION BY process_id) AS slopes\n"
		     "  FROM (SELECT a.process_id, 1.0 * (b.live_end_bytes - a.live_end_bytes) / (b.x - a.x) AS slope FROM point AS a\n"
		     "    JOIN point AS b ON b.process_id = a.process_id AND b.x > a.x))");
}

static void put_growth(sqlite3_str *sql, const struct tm_options *o) {
	begin_budget(sql);
	sqlite3_str_appendf(sql,
			    "  SELECT 'max-growth', process_id, avg(slope), %lld, NULL, NULL FROM slope\n"
			    "  WHERE place IN ((slopes + 1) / 2, (slopes + 2) / 2) GROUP BY process_id",
			    o->budgets.growth_bytes);
}

static void put_allocations(sqlite3_str *sql, const struct tm_options *o) {
	begin_budget(sql);
	sqlite3_str_appendf(sql,
			    "  SELECT 'max-allocations', k.process_id, NULL, NULL, coalesce((SELECT max(w.allocations) FROM warm AS w\n"
			    "    WHERE w.process_id = k.process_id), k.allocations), %lld FROM heap_summary AS k WHERE ",
			    o->budgets.allocations);
	put_heap(sql, o, "k.heap");
}

/* A budget is kept as far as the recording goes: `unknown` where that is not as far as the process did, or, of all but leaks, does not begin with it; and where
 * the events that were lost might have exceeded it. It is exceeded where what is known is enough for that: not of what was live when the recording ended,
 * which the process may have freed, nor of growth where the first steps are not known, nor where frees may be among the lost. */
static char *verdicts(const struct tm_database *d, const struct tm_options *o, const char *suppressed) {
	sqlite3_str *sql = sqlite3_str_new(d->handle), *all = sqlite3_str_new(d->handle);
	if (o->budgets.peak_bytes >= 0) put_peak(sql, o);
	if (o->budgets.leak_bytes >= 0) put_leak(sql, o, suppressed);
	if (o->budgets.growth_bytes >= 0) put_growth(sql, o);
	if (o->budgets.allocations >= 0) put_allocations(sql, o);
	char *budgets = sqlite3_str_finish(sql);
	put_steps(all, o);
	sqlite3_str_appendf(
		all,
		",\nlost AS (\n  SELECT trace_id, process_id, count, bytes FROM loss\n  WHERE kind NOT IN (" TM_LOSSES_OF_NO_EVENT
		", " TM_LOSSES_OF_GAPS ",\n    " TM_LOSSES_THAT_FOLLOW ")),\n"
		"measured(budget, process_id, measured_bytes, allowed_bytes, measured_count, allowed_count) AS (\n%s),\n"
		"known AS (\n  SELECT m.*, p.rank, p.command, p.estimated AS process_estimated,\n"
		"    coalesce(m.measured_bytes > m.allowed_bytes, m.measured_count > m.allowed_count) AS is_more,\n"
		"    (SELECT max(g.kind IN (" TM_GAPS_AT_END ")) FROM coverage_gap AS g WHERE g.process_id = p.id) AS has_no_end,\n"
		"    (SELECT max(g.kind = 'dropped') FROM coverage_gap AS g WHERE g.process_id = p.id) AS has_no_start,\n"
		"    nullif(coalesce(own.count, 0) + coalesce(others.count, 0), 0) AS lost_count,\n"
		"    coalesce(own.bytes, 0) + coalesce(others.bytes, 0) AS lost_bytes,\n"
		"    coalesce(own.is_unknown, 0) OR coalesce(others.is_unknown, 0) AS has_lost_unknown_bytes\n"
		"  FROM measured AS m JOIN process AS p ON p.id = m.process_id\n"
		"    LEFT JOIN (SELECT process_id, sum(count) AS count, sum(bytes) AS bytes, max(bytes IS NULL) AS is_unknown FROM lost\n"
		"      GROUP BY process_id) AS own\n"
		"      ON own.process_id = p.id\n"
		"    LEFT JOIN (SELECT trace_id, sum(count) AS count, sum(bytes) AS bytes, max(bytes IS NULL) AS is_unknown FROM lost\n"
		"      WHERE process_id IS NULL GROUP BY trace_id)\n"
		"      AS others ON others.trace_id = p.trace_id),\n"
		"verdict AS (\n  SELECT m.budget, m.process_id, m.rank, m.command, m.measured_bytes, m.allowed_bytes, m.measured_count,\n"
		"    m.allowed_count, CASE\n"
		"      WHEN m.is_more AND (m.budget = 'max-allocations' OR m.lost_count IS NULL AND\n"
		"        (m.budget = 'max-peak' OR m.has_no_end IS NOT TRUE) AND\n"
		"        (m.budget <> 'max-growth' OR m.has_no_start IS NOT TRUE)) THEN 'exceeded'\n"
		"      WHEN m.is_more OR m.measured_bytes + m.lost_bytes > m.allowed_bytes OR m.measured_count + m.lost_count > m.allowed_count\n"
		"        OR m.measured_bytes IS NOT NULL AND m.has_lost_unknown_bytes\n"
		"        OR m.has_no_end OR m.has_no_start AND m.budget <> 'max-leak'\n"
		"      THEN 'unknown' ELSE 'ok' END AS verdict,\n    ",
		budgets);
	/* A sampled trace has all blocks of other heaps than malloc's. */
	if (o->heap)
		sqlite3_str_appendf(all, "(SELECT max(h.estimated) FROM heap AS h WHERE h.process_id = m.process_id AND h.name = %Q)",
				    o->heap);
	else sqlite3_str_appendall(all, "m.process_estimated");
	sqlite3_str_appendall(all, " AS estimated\n  FROM known AS m)");
	sqlite3_free(budgets);
	return sqlite3_str_finish(all);
}

/* --- JUnit --- */

/* Text as XML has it: what it cannot hold becomes U+FFFD. */
static void put_xml(struct tm_bytes *out, const char *text) {
	const char *end = text ? text + strlen(text) : NULL;
	while (text && text < end) {
		uint32_t code;
		size_t n = tm_utf8_next(text, end, &code);
		if (code == '&') tm_put_format(out, "&amp;");
		else if (code == '<') tm_put_format(out, "&lt;");
		else if (code == '>') tm_put_format(out, "&gt;");
		else if (code == '"') tm_put_format(out, "&quot;");
		else if (code == '\n' || code == '\t') tm_put_format(out, "&#%u;", (unsigned)code);
		else if (code < 0x20 || code == 0xFFFD || code == 0xFFFE || code == 0xFFFF || (code >= 0x7F && code < 0xA0))
			tm_put_format(out, "\xEF\xBF\xBD");
		else tm_put_raw(out, text, n);
		text += n;
	}
}

/* What a figure is the sum of: rows (heap_id, stack_id, bytes, blocks); of growth, which is a median, what sites grew by.
 * false: of a count. */
static bool put_parts(sqlite3_str *sql, const struct tm_options *o, const char *suppressed, const char *budget, const char *process) {
	if (strcmp(budget, "max-peak") == 0) {
		const char *peak = o->heap ? "peak" : "process_peak";
		sqlite3_str_appendf(sql,
				    "SELECT t.heap_id, t.stack_id, t.%s_bytes, t.%s_count FROM site_total AS t\n"
				    "    JOIN heap AS h ON h.id = t.heap_id WHERE t.process_id = %s",
				    peak, peak, process);
		put_and_heaps(sql, o);
	} else if (strcmp(budget, "max-leak") == 0) {
		const char *rows = leak_rows(suppressed);
		sqlite3_str_appendf(sql, "SELECT l.heap_id, l.stack_id, sum(%s.live_bytes), sum(%s.live_count) ", rows, rows);
		put_leaks(sql, o, suppressed, process);
		sqlite3_str_appendall(sql, " GROUP BY l.heap_id, l.stack_id");
	} else if (strcmp(budget, "max-growth") == 0) {
		sqlite3_str_appendf(sql,
				    "SELECT l.heap_id, l.stack_id, CAST(round(l.growth_bytes_per_step) AS INTEGER), l.live_count\n"
				    "    FROM leak_score AS l JOIN heap AS h ON h.id = l.heap_id WHERE l.process_id = %s",
				    process);
		put_and_heaps(sql, o);
	} else {
		return false;
	}
	return true;
}

/* The call sites behind a figure, largest first. */
static void put_sites(struct tm_bytes *out, const struct tm_database *d, const struct tm_options *o, const char *suppressed,
		      sqlite3_stmt *verdict) {
	const char *budget = (const char *)sqlite3_column_text(verdict, 0), *process = (const char *)sqlite3_column_text(verdict, 1);
	sqlite3_stmt *rows = NULL;
	sqlite3_str *text = sqlite3_str_new(d->handle);
	sqlite3_str_appendall(text, "WITH part(heap_id, stack_id, bytes, blocks) AS (\n  ");
	bool has_parts = put_parts(text, o, suppressed, budget, process);
	sqlite3_str_appendall(text, ")\nSELECT h.name, p.bytes, p.blocks,\n"
				    "  coalesce(f.function, replace(m.path, rtrim(m.path, replace(m.path, '/', '')), '') ||\n"
				    "    iif(f.module_offset IS NULL, '', printf('+0x%x', f.module_offset)), '?')\n"
				    "    || coalesce(' at ' || f.file || coalesce(':' || f.line, ''), '')\n"
				    "FROM (SELECT * FROM part WHERE bytes > 0 ORDER BY bytes DESC, heap_id, stack_id LIMIT 10) AS p\n"
				    "JOIN heap AS h ON h.id = p.heap_id LEFT JOIN stack AS s ON s.id = p.stack_id\n"
				    "LEFT JOIN frame AS f ON f.id = s.site_frame_id LEFT JOIN module AS m ON m.id = f.module_id\n"
				    "ORDER BY p.bytes DESC, p.heap_id, p.stack_id");
	char *sql = sqlite3_str_finish(text);
	if (has_parts && sql && !tm_database_prepare(d, sql, &rows)) {
		while (sqlite3_step(rows) == SQLITE_ROW) {
			char size[TM_UNIT_TEXT_MAX];
			long long blocks = sqlite3_column_int64(rows, 2);
			tm_put_format(out, "%s%s in %lld block%s of heap ", tm_format_size((uint64_t)sqlite3_column_int64(rows, 1), size),
				      strcmp(budget, "max-growth") == 0 ? " a step" : "", blocks, blocks == 1 ? "" : "s");
			put_xml(out, (const char *)sqlite3_column_text(rows, 0));
			tm_put_format(out, ": ");
			put_xml(out, (const char *)sqlite3_column_text(rows, 3));
			tm_put_format(out, "\n");
		}
	}
	sqlite3_finalize(rows);
	sqlite3_free(sql);
}

static void put_case(struct tm_bytes *out, const struct tm_database *d, const struct tm_options *o, const char *suppressed,
		     sqlite3_stmt *row) {
	const char *budget = (const char *)sqlite3_column_text(row, 0);
	bool in_bytes = sqlite3_column_type(row, 4) != SQLITE_NULL;
	tm_put_format(out, "  <testcase classname=\"tidemark.%s\" name=\"process %lld: ", budget, (long long)sqlite3_column_int64(row, 1));
	put_xml(out, (const char *)sqlite3_column_text(row, 3));
	if (strcmp((const char *)sqlite3_column_text(row, 8), "ok") == 0) {
		tm_put_format(out, "\"/>\n");
		return;
	}
	if (strcmp((const char *)sqlite3_column_text(row, 8), "unknown") == 0) {
		tm_put_format(out, "\">\n    <error type=\"%s\" message=\"not known: the recording is of a part of the run\"/>\n  </testcase>\n", budget);
		return;
	}
	double measured = sqlite3_column_double(row, in_bytes ? 4 : 6);
	int decimals = measured < 10 && measured != (double)(long long)measured ? 2 : 0; /* a growth may be of half a byte a step */
	long long allowed = sqlite3_column_int64(row, in_bytes ? 5 : 7);
	tm_put_format(out, "\">\n    <failure type=\"%s\" message=\"%.*f %s%s, %lld allowed\">", budget, decimals, measured,
		      in_bytes ? "bytes" : "allocations", sqlite3_column_int(row, 9) ? " (estimated from a sample)" : "", allowed);
	put_sites(out, d, o, suppressed, row);
	tm_put_format(out, "</failure>\n  </testcase>\n");
}

/* A report takes the place of an older one, never of a recording. */
static int write_junit(const struct tm_database *d, const struct tm_options *o, const char *suppressed, const char *query, int64_t count,
		       int64_t exceeded, int64_t unknown) {
	struct tm_output out;
	struct tm_bytes text = TM_BYTES_INIT;
	sqlite3_stmt *rows = NULL;
	int status = tm_check_output(o->junit, o->operands[0], d->path, true);
	if (!status) status = tm_database_prepare(d, query, &rows);
	if (!status) status = tm_output_open(&out, o->junit, false, true);
	if (!status) {
		tm_put_format(&text,
			      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
			      "<testsuite name=\"tidemark check\" tests=\"%lld\" failures=\"%lld\" errors=\"%lld\">\n",
			      (long long)count, (long long)exceeded, (long long)unknown);
		int step;
		while ((step = sqlite3_step(rows)) == SQLITE_ROW) {
			put_case(&text, d, o, suppressed, rows);
			tm_output_flush(&out, &text);
		}
		if (step != SQLITE_DONE) status = tm_fail("cannot read '%s': %s", d->path, sqlite3_errmsg(d->handle));
		tm_put_format(&text, "</testsuite>\n");
		tm_output_flush(&out, &text);
		status = tm_output_close(&out, status);
	}
	tm_bytes_release(&text);
	sqlite3_finalize(rows);
	return status;
}

/* Nothing was judged: an older report would be read as the answer. A recording stays. */
static void write_refusal(const struct tm_database *d, const struct tm_options *o) {
	struct tm_output out;
	struct tm_bytes text = TM_BYTES_INIT;
	const char *path = o->operands[0];
	if (tm_check_output(o->junit, path, d->path ? d->path : path, true) || tm_output_open(&out, o->junit, false, true)) return;
	tm_put_format(
		&text,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"tidemark check\" tests=\"1\" failures=\"0\" errors=\"1\">\n"
		"  <testcase classname=\"tidemark.check\" name=\"");
	put_xml(&text, path);
	tm_put_format(
		&text,
		"\">\n    <error type=\"check\" message=\"nothing was checked: standard error says why\"/>\n  </testcase>\n</testsuite>\n");
	tm_output_flush(&out, &text);
	tm_output_close(&out, 0);
	tm_bytes_release(&text);
}

/* --- the whole --- */

/* Without --heap figures are of host memory: where none was recorded, a verdict would be one on nothing. */
static int check_heaps(const struct tm_database *d, const struct tm_options *o) {
	if (!tm_has_only_heaps_apart(d, o)) return 0;
	char *names = tm_heaps_apart(d, o);
	int status = tm_fail("cannot check '%s': no host memory was recorded, --heap=NAME checks one of %s", d->path,
			     names ? names : "others");
	sqlite3_free(names);
	return status;
}

/* Of the traces whose processes are judged, and of those of which no process could be read, and with it no budget judged. */
static int check_traces(const struct tm_database *d, const struct tm_options *o) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	sqlite3_str_appendall(sql, "SELECT 1 FROM trace WHERE complete = 0 AND id IN (SELECT trace_id FROM process WHERE true");
	tm_sql_process(sql, o, " AND", "id");
	sqlite3_str_appendall(sql, ") LIMIT 1");
	char *query = sqlite3_str_finish(sql);
	if (query && tm_database_integer(d, query, 0))
		tm_say("warning: '%s' is not complete (tidemark info says why): the verdicts are on what was recorded", d->path);
	sqlite3_free(query);
	if (o->process_given || !tm_has_unreadable_trace(d)) return 0;
	return tm_fail("cannot check '%s': of a trace in it no process could be read (tidemark info says why)", d->path);
}

/* Processes of which some allocations came by none of our functions. */
static int64_t count_bypassed(const struct tm_database *d, const struct tm_options *o) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	sqlite3_str_appendall(sql, "SELECT count(DISTINCT process_id) FROM note WHERE kind IN ('" TM_NOTE_BYPASSED
				   "', '" TM_NOTE_OTHER_MALLOC "')");
	tm_sql_process(sql, o, " AND", "process_id");
	char *query = sqlite3_str_finish(sql);
	int64_t count = query ? tm_database_integer(d, query, 0) : 0;
	sqlite3_free(query);
	return count;
}

/* No budget applies to what is not known; a kept one is no promise for it. */
static void warn_of_unrecorded(const struct tm_database *d, const struct tm_options *o) {
	int64_t bypassed = count_bypassed(d, o);
	if (bypassed)
		tm_say("warning: of %lld process%s some allocations may be missing (tidemark info says which), and no budget counts those",
		       (long long)bypassed, bypassed == 1 ? "" : "es");
	int64_t count = tm_count_unrecorded(d, o);
	if (count)
		tm_say("warning: %lld process%s could not be recorded (tidemark info says why), so no budget applies to %s",
		       (long long)count, count == 1 ? "" : "es", count == 1 ? "it" : "them");
}

/* is_told: the JUnit report says it, or cannot be written. */
static int judge(const struct tm_database *d, const struct tm_options *o, const struct tm_listing *listing, const char *suppressed,
		 bool *is_told) {
	struct tm_options every = *o;
	int status = check_heaps(d, o);
	if (status) return status;
	/* An order that cannot be had is refused before anything is written. */
	sqlite3_free(tm_listing_sql(d, o, listing, &status));
	if (status) return status;
	every.sort = NULL;
	every.limit = TM_LIMIT_UNSET;
	char *query = tm_listing_sql(d, &every, listing, &status);
	if (status) return status;
	char *counts = sqlite3_mprintf("SELECT count(*) FROM (%s)", query),
	     *found = sqlite3_mprintf("SELECT count(*) FROM (%s) WHERE verdict = 'exceeded'", query),
	     *untold = sqlite3_mprintf("SELECT count(*) FROM (%s) WHERE verdict = 'unknown'", query),
	     *grown = sqlite3_mprintf("SELECT count(*) FROM (%s) WHERE budget = 'max-growth'", query);
	int64_t count = tm_database_integer(d, counts, 0), exceeded = tm_database_integer(d, found, 0), unknown = tm_database_integer(d, untold, 0);
	if (o->budgets.growth_bytes >= 0 && !tm_database_integer(d, grown, 0))
		status = tm_fail("cannot check --max-growth: no process of '%s' has 4 steps (tidemark_step() marks them)", d->path);
	else if (!count) status = tm_fail("cannot check '%s': nothing was recorded that a budget applies to", d->path);
	else if (!tm_database_integer(d, "SELECT sum(events) FROM trace", 0) && tm_database_integer(d, "SELECT min(complete) FROM trace", 1) == 0)
		status = tm_fail("cannot check '%s': it is not complete, and has no events", d->path);
	if (!status) status = check_traces(d, o);
	if (!status) warn_of_unrecorded(d, o);
	*is_told = !status;
	if (!status && o->junit) status = write_junit(d, o, suppressed, query, count, exceeded, unknown);
	if (!status) status = tm_listing_run(d, o, listing);
	if (!status && exceeded) {
		tm_flush_output();
		tm_say("%lld of %lld check%s %s", (long long)exceeded, (long long)count, count == 1 ? "" : "s",
		       exceeded == 1 ? "exceeds its budget" : "exceed their budgets");
		status = TM_EXIT_FOUND;
	}
	if (!status && unknown) {
		tm_flush_output();
		status = tm_fail("cannot tell whether %lld of %lld check%s would hold: '%s' is of a part of the run (tidemark info says why)",
				 (long long)unknown, (long long)count, count == 1 ? "" : "s", d->path);
	}
	sqlite3_free(query);
	sqlite3_free(counts);
	sqlite3_free(found);
	sqlite3_free(untold);
	sqlite3_free(grown);
	return status;
}

static int answer(const struct tm_database *d, const struct tm_options *o, bool *is_told) {
	struct tm_listing listing = {
		.source = "verdict",
		.order = "verdict = 'ok', verdict, budget, process_id",
		.nothing = "nothing was checked",
		.estimated = { "measured_bytes", "measured_count" },
	};
	struct tm_suppressions list = { 0 };
	const struct tm_budgets *b = &o->budgets;
	if (b->peak_bytes < 0 && b->leak_bytes < 0 && b->growth_bytes < 0 && b->allocations < 0)
		return tm_misuse("check", "a budget is missing: --max-peak, --max-leak, --max-growth or --max-allocations");
	int status = o->suppressions ? tm_suppressions_read(&list, o->suppressions) : 0;
	char *suppressed = status ? NULL : tm_suppressed_leaks(d->handle, &list, d->path);
	tm_suppressions_release(&list);
	if (!suppressed) return TM_EXIT_FAILED;
	char *with = verdicts(d, o, suppressed);
	listing.with = with;
	status = o->sql ? tm_listing_run(d, o, &listing) : judge(d, o, &listing, suppressed, is_told);
	sqlite3_free(with);
	sqlite3_free(suppressed);
	return status;
}

int tm_cmd_check(int argc, char **argv) {
	struct tm_options o;
	struct tm_database d;
	bool is_told = false;
	int status = tm_options_parse(&o, &usage, argc, argv);
	if (status != TM_OPTIONS_GO) return status;
	status = tm_database_open(&d, o.operands[0]);
	if (!status) status = tm_listing_check(&d, &o);
	if (!status) status = answer(&d, &o, &is_told);
	if (status == TM_EXIT_FAILED && o.junit && !o.sql && !is_told) write_refusal(&d, &o);
	tm_database_close(&d);
	return status;
}
