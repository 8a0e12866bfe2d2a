/* scans.h - SQL for questions that no aggregate answers: arbitrary instants, windows of time, and the errors of samples.
 *
 * Flow:  cmd_*.c -> here: common table expressions over the view `allocation` -> listing.h composes them into a query
 * Each function appends an expression ("name AS (...)") without a comma behind it. A query with them reads every allocation once; all
 * others read what import added up.
 * A block is live from its alloc_ns on and no longer at its free_ns; nothing is live after the end of its process.
 */
#ifndef TIDEMARK_ANALYZER_SCANS_H
#define TIDEMARK_ANALYZER_SCANS_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "database.h"
#include "options.h"

/* Common table expression `instant`: for each heap its heap_id, its process' process_id, start_ns and end_ns and, where they are wanted,
 * the instants at_ns, from_ns and to_ns. at: may be NULL. */
void tm_sql_instants(sqlite3_str *sql, const struct tm_options *o, const struct tm_time_point *at);
/* The same under another name. */
void tm_sql_instants_as(sqlite3_str *sql, const struct tm_options *o, const struct tm_time_point *at, const char *name);

/* Were --from or --to given? */
bool tm_has_window(const struct tm_options *o);
/* The same options without them: for blocks of all the time before an instant. */
struct tm_options tm_without_window(const struct tm_options *o);

/* The same options, of the window's levels: where it has no --from, it opens no earlier than a ring's window does. */
struct tm_options tm_since_known(const struct tm_database *d, const struct tm_options *o);
/* The instant at which it opens, of the process whose id that SQL yields. */
void tm_sql_opening(sqlite3_str *sql, const struct tm_options *o, const char *process);

/* " AND first >= i.from_ns AND last <= i.to_ns", as far as --from and --to were given; `i` names the instants. */
void tm_sql_window(sqlite3_str *sql, const struct tm_options *o, const char *first, const char *last);

/* `word` and "column = ID", as far as --process was given: `column` is the id of a process, `word` " AND" or " WHERE". */
void tm_sql_process(sqlite3_str *sql, const struct tm_options *o, const char *word, const char *column);
/* The same where several databases are attached; `schema` NULL: the main one. */
void tm_sql_process_of(sqlite3_str *sql, const struct tm_options *o, const char *schema, const char *word, const char *column);

/* What stands behind FROM for all steps `s`, each with its row `a` of step_aggregate, of which NULLs are 0: of the heap `h` that --heap names, in
 * processes that have it, or of the process. */
void tm_sql_from_steps(sqlite3_str *sql, const struct tm_options *o);

/* Common table expression `live`: the blocks that were live at the at_ns of the table `instants` (process_id, heap_id, end_ns, at_ns), by
 * stack, with the site's columns as the views have them; with a window (else NULL) only those allocated in it. Where the trace was sampled,
 * relative_error and count_relative_error are the standard errors of live_bytes and live_count, as shares of them. `unnamed` has the same without
 * the site's columns.
 * true: as of tm_sql_block_stacks(). */
bool tm_sql_live(sqlite3_str *sql, const struct tm_database *d, const char *instants, const struct tm_options *window);

/* Common table expressions `instant` ... `highest`: the peaks within the window, with the columns of the view peak. */
void tm_sql_highest(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *window);

/* The same, up to `level` (process_id, heap_id, ts_ns, live_bytes, live_count): levels of the window, at least the highest of each
 * of the two buckets of the table timeline that its ends cut through, and what that table has in between. */
void tm_sql_window_levels(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *window);

/* The same, up to `level` (process_id, heap_id, ts_ns, live_bytes, live_count), behind `instant`; where there are checkpoints (window_peak.c). */
void tm_sql_window_peaks(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *window);

/* Common table expressions ... `top` (process_id, heap_id, end_ns, at_ns): the peak of each heap, or its peak within the window. */
void tm_sql_peak_instants(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *window);

/* Common table expressions ... `live`: as tm_sql_live(), at the peak of each heap, or its peak within the window. true: as there. */
bool tm_sql_live_at_peak(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *window);

/* Common table expressions `instant` ... `made`: temporary blocks that were allocated in the window, with the columns of the view
 * temporary, but for allocations where there is a window; with errors where the trace was sampled, as there. `unnamed` as of tm_sql_live().
 * true: they were added up now. */
bool tm_sql_made(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *window);

/* Common table expressions `instant` ... `allocated` (process_id, heap, stack_id, bytes, count): what was allocated in the window. The parts of a mapping that
 * was cut later are one allocation. */
void tm_sql_allocated(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *window);

/* Frame f and module m of the site of a row's stack. To join the view `site` would make a row for every stack of the run first. */
#define TM_SQL_SITE_JOIN(row) \
	"  LEFT JOIN stack AS s ON s.id = " row ".stack_id LEFT JOIN frame AS f ON f.id = s.site_frame_id\n" \
	"  LEFT JOIN module AS m ON m.id = f.module_id"

/* Common table expression `live` over `unnamed`, whose further columns are `more` (", b.name"). */
#define TM_SQL_LIVE_NAMED(more) \
	"live AS (\n  SELECT b.process_id, b.heap, b.stack_id, b.live_bytes, b.live_count, f.function, f.file, f.line, m.path AS module,\n" \
	"         f.module_offset, b.estimated" more "\n  FROM unnamed AS b\n" TM_SQL_SITE_JOIN("b") ")"

/* More bytes than SQLite can hold are the most that it can, as import writes them. */
static inline int64_t tm_sum_of_bytes(int64_t a, int64_t b) {
	int64_t sum;
	return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/* The sum of bytes of the view allocation under the alias a, no larger than that: an estimate where the trace was sampled. */
const char *tm_sql_sum_bytes(const struct tm_database *d);
/* A condition: the block `a` was live at the time ns. */
#define TM_SQL_LIVE_AT(ns) "a.alloc_ns <= " ns " AND (a.free_ns IS NULL OR a.free_ns > " ns ")"
/* The variances of such a sum of bytes and of one of counts: each sampled block adds (1 - p) / p^2, with p = 1 / weight, of bytes times size^2. Parts of
 * mappings add nothing, for these are never sampled. */
#define TM_SQL_VARIANCE "sum(1.0 * a.size_bytes * a.size_bytes * a.weight * (a.weight - 1))"
#define TM_SQL_COUNT_VARIANCE "sum(a.weight * (a.weight - 1))"
#define TM_SQL_VARIANCES TM_SQL_VARIANCE " AS variance, " TM_SQL_COUNT_VARIANCE " AS count_variance"
/* Of a row with both variances: relative_error and count_relative_error, the standard errors of its columns `bytes` and `count` as shares of them. */
#define TM_SQL_ERRORS(row, bytes, count) TM_SQL_ERRORS_OF(row, row, bytes, count)
#define TM_SQL_ERRORS_OF(variances, row, bytes, count) \
	"round(sqrt(" variances ".variance) / " row "." bytes ", 4) AS relative_error,\n" \
	"         round(sqrt(" variances ".count_variance) / " row "." count ", 4) AS count_relative_error"
#define TM_ERRORS_OF(row) ", " row ".relative_error, " row ".count_relative_error"

#endif
