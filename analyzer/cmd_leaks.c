/* cmd_leaks.c - `tidemark leaks`: what was live when the program began to leave, by call site.
 *
 * Leaks are judged at exit, before destructors and an interpreter's own clean-up. Call sites come by score, with the evidence in words. A table
 * shows those from the score on at which a leak is likely; what is left out is counted on standard error. A window of time is not scored:
 * there what was live is listed, largest first. A sampled trace is: what it does not show is the sites that left few samples.
 */
#include <stdio.h>

#include "schema/units.h"
#include "leak_score.h"
#include "listing.h"
#include "scans.h"
#include "suppressions.h"
#include "talk.h"
#include "verbs.h"

static const struct tm_usage usage = {
	.verb = "leaks",
	.operands = "DB|TRACE",
	.description =
		"Lists the call sites whose blocks were live at exit, those that look most like leaks first, with the evidence (view\n"
		"leak_candidate). From a score of 0.5 on a leak is likely, and a table shows only these. A row stands for all stacks\n"
		"of a call site that are called from the same line. `exit` is when main returned or exit() was called: what\n"
		"destructors free later is still counted. Parts of the run, and how far it was, go by its allocations (steps, where\n"
		"there are any), and by the clock only where it went on for long with hardly any. Known allocations of runtimes are\n"
		"suppressed; so are the stacks that FILE names, in the syntax of LeakSanitizer: a row has the live blocks of its others,\n"
		"and score and evidence are of all. With --from or --to, which count only blocks that were allocated in that window,\n"
		"there are no scores: what was live is listed by call stack, largest first. A sampled trace is scored by its samples,\n"
		"and what leaks little beside their mean distance has too few of them to be likely. Where only one instant is known there\n"
		"is no score, and all is listed.\n",
	.examples = "tidemark leaks run.db\n"
		    "tidemark leaks run.db --stack --limit=5\n"
		    "tidemark leaks run.db --all --heap=malloc --sort=live_bytes --format=json\n"
		    "tidemark leaks run.db --suppressions=known.txt\n"
		    "tidemark leaks run.db --from=mark:warm\n",
	.options = TM_OPTIONS_LISTING | TM_OPTION_STACK | TM_OPTION_LEAKS,
	.operands_min = 1,
	.operands_max = 1,
};

static int list_live(const struct tm_database *d, const struct tm_options *o) {
	static const struct tm_time_point at_exit = { .kind = TM_TIME_EXIT };
	struct tm_listing listing = {
		.source = "live_at_exit",
		.order = "live_bytes DESC, process_id, heap, stack_id",
		.has_heap = true,
		.nothing = tm_has_window(o) ? "nothing that was allocated then was live at exit" : "nothing was live at exit",
		.estimated = { "live_bytes", "live_count" },
	};
	if (!tm_has_window(o) && !d->estimated) return tm_listing_run(d, o, &listing);
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	tm_sql_instants(sql, o, &at_exit);
	sqlite3_str_appendall(sql, ",\n");
	listing.may_be_millions = tm_sql_live(sql, d, "instant", o);
	char *with = sqlite3_str_finish(sql);
	listing.with = with;
	listing.source = "live";
	listing.unnamed = "unnamed";
	int status = tm_listing_run(d, o, &listing);
	sqlite3_free(with);
	return status;
}

/* The score from which on rows are listed. */
static double least_score(const struct tm_options *o) {
	if (o->all) return 0;
	if (o->min_score >= 0) return o->min_score;
	return o->format == TM_FORMAT_TABLE ? TM_LEAK_SCORE_LIKELY : 0;
}

/* Common table expressions up to `leak_part`: the rows of leak_candidate, or, where the file names some of the stacks of a row, two: what these hold,
 * suppressed, and what the others do. To be freed with sqlite3_free(). */
static char *parts_of_rows(const char *stacks) {
	return sqlite3_mprintf(
		"leak_side AS MATERIALIZED (\n"
		"  SELECT l.process_id, l.heap_id, l.stack_id AS row_stack_id, l.suppressed OR s.stack_id IN (%s) AS is_hushed, s.stack_id,\n"
		"    max(2 * s.live_bytes + (s.stack_id = l.stack_id)), sum(s.live_bytes) AS live_bytes, sum(s.live_count) AS live_count,\n"
		"    count(*) AS stacks\n"
		"  FROM leak_score AS l JOIN leak_stack AS s ON s.process_id = l.process_id AND s.heap_id = l.heap_id AND s.row_stack_id = l.stack_id\n"
		"  GROUP BY 1, 2, 3, 4),\n"
		"leak_part AS (\n"
		"  SELECT l.process_id, h.name AS heap, p.stack_id, p.live_bytes, p.live_count, l.allocations, l.growth_bytes_per_step, l.first_ns,\n"
		"    l.last_ns, l.score, l.reason || iif(p.stacks < l.stacks, printf('; judged with %%,d block%%s that %%s%%s suppressed',\n"
		"      l.live_count - p.live_count, iif(l.live_count - p.live_count = 1, '', 's'),\n"
		"      iif(l.live_count - p.live_count = 1, 'is', 'are'), iif(p.is_hushed, ' not', '')), '')\n"
		"      AS reason, p.is_hushed AS suppressed, f.function, f.file, f.line, m.path AS module, f.module_offset, p.stacks, l.growth_p, h.estimated\n"
		"  FROM leak_side AS p JOIN leak_score AS l ON l.process_id = p.process_id AND l.heap_id = p.heap_id AND l.stack_id = p.row_stack_id\n"
		"  JOIN heap AS h ON h.id = p.heap_id LEFT JOIN stack AS s ON s.id = p.stack_id LEFT JOIN frame AS f ON f.id = s.site_frame_id\n"
		"  LEFT JOIN module AS m ON m.id = f.module_id)",
		stacks);
}

/* Says how much was live at exit that is not listed. */
static void count_rest(const struct tm_database *d, const struct tm_options *o, const struct tm_listing *listed) {
	sqlite3_stmt *sums;
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	sqlite3_str_appendf(
		sql,
		"%s%s\nSELECT total(NOT suppressed), total(iif(suppressed, 0, live_bytes)), total(suppressed), total(iif(suppressed, live_bytes, 0))\n"
		"FROM %s WHERE (score < %g OR suppressed)",
		listed->with ? "WITH " : "", listed->with ? listed->with : "", listed->source, least_score(o));
	if (o->heap) sqlite3_str_appendf(sql, " AND heap = %Q", o->heap);
	tm_sql_process(sql, o, " AND", "process_id");
	char *text = sqlite3_str_finish(sql);
	if (!tm_database_prepare(d, text, &sums) && sqlite3_step(sums) == SQLITE_ROW) {
		char low[TM_UNIT_TEXT_MAX], hushed[TM_UNIT_TEXT_MAX], low_bytes[TM_UNIT_TEXT_MAX], hushed_bytes[TM_UNIT_TEXT_MAX];
		uint64_t n = (uint64_t)sqlite3_column_int64(sums, 0), m = (uint64_t)sqlite3_column_int64(sums, 2);
		const char *about = d->estimated ? "~" : "";
		tm_format_size((uint64_t)sqlite3_column_int64(sums, 1), low_bytes);
		tm_format_size((uint64_t)sqlite3_column_int64(sums, 3), hushed_bytes);
		if (n && m)
			tm_say("also live at exit, listed by --all: %s unlikely (%s%s), %s suppressed (%s%s)", tm_format_count(n, low), about,
			       low_bytes, tm_format_count(m, hushed), about, hushed_bytes);
		else if (n) tm_say("also live at exit, listed by --all: %s unlikely (%s%s)", tm_format_count(n, low), about, low_bytes);
		else if (m)
			tm_say("also live at exit, listed by --all: %s suppressed (%s%s)", tm_format_count(m, hushed), about, hushed_bytes);
	}
	sqlite3_finalize(sums);
	sqlite3_free(text);
}

static int list_candidates(const struct tm_database *d, const struct tm_options *o, const char *stacks) {
	struct tm_listing listing = {
		.source = "leak_candidate",
		.order = "score DESC, live_bytes DESC, process_id, heap, stack_id",
		.has_heap = true,
		.nothing = least_score(o) <= 0 ? "nothing was live at exit"
			   : d->estimated      ? "nothing of the sample that was live at exit looks like a leak"
					       : "nothing that was live at exit looks like a leak",
		.estimated = { "live_bytes", "live_count", "allocations", "growth_bytes_per_step" },
		.hidden = { "allocations", "growth_bytes_per_step", "growth_p", "first_ns", "last_ns", "stacks",
			    o->all ? NULL : "suppressed" },
	};
	char *with = NULL, *where = NULL;
	if (*stacks) {
		with = parts_of_rows(stacks);
		listing.with = with;
		listing.source = "leak_part";
	}
	if (!o->all) {
		char score[60] = "";
		bool has_unscored = tm_database_integer(d, "SELECT 1 FROM leak_candidate WHERE score IS NULL LIMIT 1", 0);
		if (least_score(o) > 0)
			snprintf(score, sizeof score, has_unscored ? "(score >= %g OR score IS NULL) AND " : "score >= %g AND ", least_score(o));
		where = sqlite3_mprintf("%sNOT suppressed", score);
		listing.where = where;
	}
	int status = tm_listing_run(d, o, &listing);
	sqlite3_free(where);
	if (!status && !o->all && !o->sql) {
		tm_flush_output();
		count_rest(d, o, &listing);
	}
	sqlite3_free(with);
	return status;
}

static int answer(const struct tm_database *d, const struct tm_options *o) {
	bool is_scored = tm_database_integer(d, "SELECT 1 FROM leak_candidate LIMIT 1", 0);
	if (tm_has_window(o) || !is_scored) {
		if (o->suppressions || o->min_score >= 0)
			tm_say("'%s' has no scores of leaks: all that was live is listed, whatever --min-score and --suppressions say", d->path);
		return list_live(d, o);
	}
	char *stacks = sqlite3_mprintf("");
	int status = 0;
	if (o->suppressions) {
		struct tm_suppressions list = { 0 };
		sqlite3_free(stacks);
		stacks = NULL;
		status = tm_suppressions_read(&list, o->suppressions);
		if (!status) stacks = tm_suppressed_leaks(d->handle, &list, d->path);
		if (!status && !stacks) status = TM_EXIT_FAILED;
		tm_suppressions_release(&list);
	}
	if (!status) status = list_candidates(d, o, stacks);
	sqlite3_free(stacks);
	return status;
}

int tm_cmd_leaks(int argc, char **argv) {
	struct tm_options o;
	int status = tm_options_parse(&o, &usage, argc, argv);
	if (status != TM_OPTIONS_GO) return status;
	if (o.all && o.min_score >= 0) return tm_misuse("leaks", "--all lists every score: not with --min-score");
	if (tm_has_window(&o) && (o.min_score >= 0 || o.suppressions))
		return tm_misuse("leaks", "--min-score and --suppressions are of leaks, not of what was live in a window: not with --from and --to");
	return tm_answer(&usage, argc, argv, answer);
}
