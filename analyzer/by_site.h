/* by_site.h - SQL that adds up what call stacks did by their call sites.
 *
 * Flow:  cmd_*.c -> here: common table expressions over a row for each stack -> listing.h
 * Idea:  one line of a program may be reached by thousands of stacks, each of which did little. They are added up by the number of the frame that is
 *        their site before any text is looked up; then what frames have the same function, file and line is one site. What has no file is told apart by
 *        its module too, and what has no name by its address there.
 */
#ifndef TIDEMARK_ANALYZER_BY_SITE_H
#define TIDEMARK_ANALYZER_BY_SITE_H

#include "database.h"
#include "options.h"

/* The columns of a site's names, behind those that were added up, and of errors. */
#define TM_SITE_NAMES "function, file, line, module, module_offset, estimated"
#define TM_SITE_ERRORS "relative_error, count_relative_error"

/* Common table expressions up to `by_site`, without a comma behind them: process_id, heap, stack_id, `sums`, most, and TM_SITE_NAMES. stacks: a row for
 * each heap_id and stack_id, with the columns that `sums` names, ends with NULL. stack_id is the stack that had most of the first of them. Sums are
 * rounded. are_estimates: the first two are bytes and a count, of which stacks has variance and count_variance; then there are relative_error and
 * count_relative_error of them. */
void tm_sql_by_site(sqlite3_str *sql, const char *stacks, const char *const *sums, bool are_estimates);

/* `stacks` and `sums` of what the view peak_site has: a stack that is live only at the peak of the process belongs to another question. */
#define TM_PEAK_STACKS \
	"(SELECT t.heap_id, t.stack_id, t.peak_bytes AS live_bytes, t.peak_count AS live_count, t.process_peak_bytes, t.process_peak_count\n" \
	"        FROM site_total AS t WHERE t.peak_count > 0 OR t.peak_bytes > 0)"
extern const char *const tm_peak_sums[], *const tm_live_sums[]; /* these: live_bytes and live_count alone */

/* The same, of live_bytes and live_count at the peak of each heap, or its peak within the window. */
void tm_sql_sites_at_peak(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *window);

/* The same at exit, of blocks as samples tell of them. */
void tm_sql_sites_at_exit(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o);

#endif
