/* coverage.h - what a recording does not know of the run, told wherever that may change an answer.
 *
 * Flow:     table coverage_gap (spans of processes' lives, from import), table loss (single events) -> here -> listing.c (every answer), check, report, summary
 * Texts go to standard error, but for that of the report. All are of the processes that the options choose.
 */
#ifndef TIDEMARK_ANALYZER_COVERAGE_H
#define TIDEMARK_ANALYZER_COVERAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "database.h"
#include "options.h"

/* Kinds of losses of which none is an allocation or a free: a list in SQL. */
#define TM_LOSSES_OF_NO_EVENT "'records', 'gpu-records', 'unmatched-scope-end', 'overlapping-scope'"
/* Those among them behind which nothing is missing: what the program said is odd. */
#define TM_LOSSES_OF_NOTHING "'unmatched-scope-end', 'overlapping-scope'"
/* Kinds that import finds: of blocks and frees whose other half was lost, or happened unseen. */
#define TM_LOSSES_THAT_FOLLOW "'lost-free', 'unmatched-free'"
/* Kinds of losses that lie in gaps. */
#define TM_LOSSES_OF_GAPS "'dropped', 'max-size'"
/* Kinds of gaps behind which nothing is known: a list in SQL. */
#define TM_GAPS_AT_END "'max-size', 'cut', 'copy', 'still-running'"

/* Over a row of trace: yes, no (it is cut, or events were lost), or part: all that was recorded is there, and that is not the whole run. */
#define TM_IS_COMPLETE \
	"CASE WHEN NOT complete THEN 'no' WHEN EXISTS (SELECT 1 FROM coverage_gap AS g JOIN process AS p ON p.id = g.process_id\n" \
	"    WHERE p.trace_id = trace.id) THEN 'part' ELSE 'yes' END"

/* How a recording ends before its program did. */
struct tm_gap_end {
	const char *kind;     /* a list in SQL */
	const char *refusal;  /* of an instant behind it; formats of the path and the time */
	const char *warning;  /* the same of what may have come then */
	const char *sentence; /* "What came after TIME<sentence> is not known" */
};
#define TM_GAP_ENDS 4u /* the last one is of single processes, the others are of whole traces */
extern const struct tm_gap_end tm_gap_ends[TM_GAP_ENDS];

/* What was live before the window of a trace that was kept within a bound is not known, nor what came and went, and nothing behind the end of a recording that
 * ended before its program. 0, or TM_EXIT_FAILED after saying so: for an instant, and for both ends of a window. */
int tm_check_known_then(const struct tm_database *d, const struct tm_options *o, const struct tm_time_point *at);
int tm_check_window_known(const struct tm_database *d, const struct tm_options *o);

/* Unless the question is one about instants of which all is known. */
void tm_warn_of_gaps(const struct tm_database *d, const struct tm_options *o);

/* Is there a gap of one of these kinds, a list in SQL? */
bool tm_has_gap(const struct tm_database *d, const struct tm_options *o, const char *kinds);
/* Where what is known ends for the first of them; -1: it does not. */
int64_t tm_known_until_ns(const struct tm_database *d, const struct tm_options *o, const char *kinds);
/* Where what is known begins for the last of them; -1: with each process. */
int64_t tm_known_from_ns(const struct tm_database *d, const struct tm_options *o);
/* Did one of them end before that, so that of it no more is known than what it held then? */
bool tm_some_ended_before(const struct tm_database *d, const struct tm_options *o);
/* How long tidemark_stop() held in the process where it held longest, at least. */
int64_t tm_stopped_duration_ns(const struct tm_database *d, const struct tm_options *o);
/* " AND ...": the row of loss may be of a process that is chosen. */
void tm_sql_losses_of(sqlite3_str *sql, const struct tm_options *o);
/* A trace may be cut off before its first process. */
bool tm_has_unreadable_trace(const struct tm_database *d);
/* Allocations and frees that were lost, but for those of the gaps and what follows from them. */
int64_t tm_count_lost_events(const struct tm_database *d, const struct tm_options *o);

#endif
