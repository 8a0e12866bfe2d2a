/* coverage.c - see coverage.h. */
#include "coverage.h"

#include "schema/units.h"
#include "scans.h"
#include "talk.h"

const struct tm_gap_end tm_gap_ends[TM_GAP_ENDS] = {
	{ "'max-size'", "the recording in '%s' reached --max-size, and knows that up to %s",
	  "the recording in '%s' reached --max-size at %s", ", when the trace had reached its largest size," },
	{ "'cut'", "'%s' is cut off, and knows that up to %s", "'%s' is cut off at %s", ", where the trace is cut off," },
	{ "'copy'", "'%s' was written while the program ran on, and knows that up to %s",
	  "'%s' was written while the program ran on, at %s", ", when the trace was written while the program ran on," },
	{ "'still-running'", "the recording in '%s' ended before some process did, and knows that up to %s",
	  "the recording in '%s' ended before some process did, at %s", ", when the recording ended before some process did," },
};

static int64_t ask_and_free(const struct tm_database *d, sqlite3_str *sql, int64_t otherwise) {
	char *query = sqlite3_str_finish(sql);
	int64_t answer = query ? tm_database_integer(d, query, otherwise) : otherwise;
	sqlite3_free(query);
	return answer;
}

/* "SELECT what FROM ... WHERE ...": the gaps g of processes p that are chosen. */
static sqlite3_str *select_gaps(const struct tm_database *d, const struct tm_options *o, const char *what, const char *kinds) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	sqlite3_str_appendf(sql, "SELECT %s FROM coverage_gap AS g JOIN process AS p ON p.id = g.process_id WHERE g.kind IN (%s)", what, kinds);
	tm_sql_process(sql, o, " AND", "p.id");
	return sql;
}

bool tm_has_gap(const struct tm_database *d, const struct tm_options *o, const char *kinds) {
	return ask_and_free(d, select_gaps(d, o, "count(*)", kinds), 0) > 0;
}

int64_t tm_known_until_ns(const struct tm_database *d, const struct tm_options *o, const char *kinds) {
	return ask_and_free(d, select_gaps(d, o, "coalesce(min(g.start_ns), -1)", kinds), -1);
}

int64_t tm_known_from_ns(const struct tm_database *d, const struct tm_options *o) {
	return ask_and_free(d, select_gaps(d, o, "coalesce(max(g.end_ns), -1)", "'dropped'"), -1);
}

bool tm_some_ended_before(const struct tm_database *d, const struct tm_options *o) {
	sqlite3_str *sql = select_gaps(d, o, "count(*)", "'dropped'");
	sqlite3_str_appendall(sql, " AND p.end_ns < g.end_ns");
	return ask_and_free(d, sql, 0) > 0;
}

int64_t tm_stopped_duration_ns(const struct tm_database *d, const struct tm_options *o) {
	sqlite3_str *sql = select_gaps(d, o, "sum(max(coalesce(g.end_ns, p.end_ns) - g.start_ns, 0)) AS ns", "'stopped'");
	sqlite3_str_appendall(sql, " GROUP BY p.id ORDER BY ns DESC LIMIT 1");
	return ask_and_free(d, sql, 0);
}

bool tm_has_unreadable_trace(const struct tm_database *d) {
	return tm_database_integer(d, "SELECT 1 FROM trace WHERE complete = 0 AND id NOT IN (SELECT trace_id FROM process) LIMIT 1", 0);
}

void tm_sql_losses_of(sqlite3_str *sql, const struct tm_options *o) {
	sqlite3_str_appendall(sql, " AND CASE WHEN process_id IS NULL THEN trace_id IN (SELECT p.trace_id FROM process AS p");
	tm_sql_process(sql, o, " WHERE", "p.id");
	sqlite3_str_appendall(sql, ") ELSE process_id IN (SELECT p.id FROM process AS p");
	tm_sql_process(sql, o, " WHERE", "p.id");
	sqlite3_str_appendall(sql, ") END");
}

int64_t tm_count_lost_events(const struct tm_database *d, const struct tm_options *o) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	sqlite3_str_appendall(sql, "SELECT sum(count) FROM loss WHERE kind NOT IN (" TM_LOSSES_OF_NO_EVENT ", " TM_LOSSES_OF_GAPS
				   ", " TM_LOSSES_THAT_FOLLOW ")");
	tm_sql_losses_of(sql, o);
	return ask_and_free(d, sql, 0);
}

/* The instants that import kept lie in what is known. */
static bool is_kept_instant(const struct tm_time_point *at) {
	return at->kind == TM_TIME_UNSET || at->kind == TM_TIME_PEAK || at->kind == TM_TIME_EXIT || at->kind == TM_TIME_END;
}

/* --- instants that are not known --- */

/* Where what is known begins and ends, if that is behind or before the instant; -1: it is not. */
static int64_t known_only_from_ns(const struct tm_database *d, const struct tm_options *o, const struct tm_time_point *at) {
	if (is_kept_instant(at)) return -1;
	sqlite3_str *sql = select_gaps(d, o, "coalesce(max(g.end_ns), -1)", "'dropped'");
	sqlite3_str_appendall(sql, " AND ");
	tm_time_point_sql(sql, at, "p.id", NULL);
	sqlite3_str_appendall(sql, " < g.end_ns");
	return ask_and_free(d, sql, -1);
}

static int64_t known_only_until_ns(const struct tm_database *d, const struct tm_options *o, const struct tm_time_point *at,
				   const char *kinds) {
	if (is_kept_instant(at)) return -1;
	sqlite3_str *sql = select_gaps(d, o, "coalesce(min(g.start_ns), -1)", kinds);
	sqlite3_str_appendall(sql, " AND ");
	tm_time_point_sql(sql, at, "p.id", NULL);
	sqlite3_str_appendall(sql, " > g.start_ns");
	return ask_and_free(d, sql, -1);
}

int tm_check_known_then(const struct tm_database *d, const struct tm_options *o, const struct tm_time_point *at) {
	char text[TM_UNIT_TEXT_MAX];
	int64_t start_ns = known_only_from_ns(d, o, at);
	if (start_ns >= 0) {
		tm_format_time((uint64_t)start_ns, text);
		return tm_fail("cannot tell what was live then: '%s' was kept within a bound, and knows that from %s on", d->path, text);
	}
	for (size_t i = 0; i < TM_GAP_ENDS; i++) {
		int64_t end_ns = known_only_until_ns(d, o, at, tm_gap_ends[i].kind);
		if (end_ns < 0) continue;
		char *why = sqlite3_mprintf(tm_gap_ends[i].refusal, d->path, tm_format_time((uint64_t)end_ns, text));
		/* Of one among many that outlived the recording the others are no less known. */
		bool is_of_some = i == TM_GAP_ENDS - 1 && !o->process_given && d->processes > 1;
		if (is_of_some) tm_say("warning: %s", why ? why : d->path);
		int status = is_of_some ? 0 : tm_fail("cannot tell what was live then: %s", why ? why : "out of memory");
		sqlite3_free(why);
		if (status) return status;
	}
	return 0;
}

int tm_check_window_known(const struct tm_database *d, const struct tm_options *o) {
	int status = tm_check_known_then(d, o, &o->from);
	return status ? status : tm_check_known_then(d, o, &o->to);
}

/* --- answers from part of the run --- */

static void warn_of_window(const struct tm_database *d, const struct tm_options *o) {
	char text[TM_UNIT_TEXT_MAX];
	int64_t from_ns = o->from.kind == TM_TIME_UNSET ? tm_known_from_ns(d, o) : known_only_from_ns(d, o, &o->from);
	bool asks_peak = o->at.kind == TM_TIME_UNSET || o->at.kind == TM_TIME_PEAK || o->against.kind == TM_TIME_PEAK;
	if (from_ns >= 0 && o->from.kind != TM_TIME_UNSET)
		tm_say("warning: '%s' was kept within a bound: of the time before %s, which the window reaches into, what came and went is not known",
		       d->path, tm_format_time((uint64_t)from_ns, text));
	else if (from_ns >= 0 && asks_peak)
		tm_say("'%s' was kept within a bound: what came before %s is not known, and a peak is that from then on%s", d->path,
		       tm_format_time((uint64_t)from_ns, text),
		       tm_some_ended_before(d, o) ? "; of a process that had ended, it is what that held at its end" : "");
}

static void warn_of_ends(const struct tm_database *d, const struct tm_options *o) {
	char text[TM_UNIT_TEXT_MAX];
	bool asks_end = is_kept_instant(&o->at) || (o->against.kind != TM_TIME_UNSET && is_kept_instant(&o->against));
	bool asks_whole = asks_end && is_kept_instant(&o->to);
	if (!asks_whole && o->needs_known_window) return; /* tm_check_window_known() has said it */
	for (size_t i = 0; i < TM_GAP_ENDS; i++) {
		const char *kind = tm_gap_ends[i].kind;
		int64_t until_ns = asks_whole ? tm_known_until_ns(d, o, kind) : known_only_until_ns(d, o, &o->to, kind);
		if (until_ns < 0) continue;
		char *what = sqlite3_mprintf(tm_gap_ends[i].warning, d->path, tm_format_time((uint64_t)until_ns, text));
		tm_say(asks_whole ? "warning: %s: what came then is not known, so a peak may be higher, and exit is as it was then"
				  : "warning: %s: what came then is not known, and the window reaches there",
		       what ? what : d->path);
		sqlite3_free(what);
	}
}

void tm_warn_of_gaps(const struct tm_database *d, const struct tm_options *o) {
	char text[TM_UNIT_TEXT_MAX];
	if (!o->process_given && tm_has_unreadable_trace(d))
		tm_say("warning: of a trace in '%s' no process could be read (tidemark info says why)", d->path);
	warn_of_window(d, o);
	warn_of_ends(d, o);
	int64_t stopped_ns = tm_stopped_duration_ns(d, o), lost = tm_count_lost_events(d, o);
	if (stopped_ns > 0)
		tm_say("'%s' knows no allocation of the %s in which the program had stopped its recording (tidemark_stop())", d->path,
		       tm_format_time((uint64_t)stopped_ns, text));
	if (lost > 0)
		tm_say("warning: %s event%s of '%s' %s lost (tidemark info says why), and %s in no figure", tm_format_count((uint64_t)lost, text),
		       lost == 1 ? "" : "s", d->path, lost == 1 ? "was" : "were", lost == 1 ? "is" : "are");
}
