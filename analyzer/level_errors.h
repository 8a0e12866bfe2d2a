/* level_errors.h - how far estimated levels of live memory may be off, at thousands of instants at once.
 *
 * Flow:  cmd_timeline.c, scope_errors.c -> here: a common table expression over the view `allocation` -> listing.h
 * Idea:  every sampled block adds to the variance of a level from its beginning to its end (TM_SQL_VARIANCE in scans.h): a running sum over the beginnings and
 *        ends of all blocks, in the order of time, has what each instant has.
 */
#ifndef TIDEMARK_ANALYZER_LEVEL_ERRORS_H
#define TIDEMARK_ANALYZER_LEVEL_ERRORS_H

#include <sqlite3.h>

/* Appends the common table expressions up to `level_error` (process_id, heap_id, at_ns, variance, count_variance), a row for each of the table `moments`
 * (process_id, heap_id, at_ns): of what was live then in the heap, or with heap_id 0 in the root heaps of the process. */
void tm_sql_level_errors(sqlite3_str *sql, const char *moments);

#endif
