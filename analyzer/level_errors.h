/* level_errors.h - how far estimated levels of live memory may be off, at thousands of instants at once.
 *
 * Flow:  cmd_timeline.c, scope_errors.c -> here: the view `allocation`, each row read once -> a temporary table, or in SQL -> listing.h
 * Idea:  every sampled block adds to the variance of a level from its beginning to its end (TM_SQL_VARIANCE in scans.h). So each adds to the first instant at
 *        which it is live, and takes away from the first at which it is not: a running sum has what all instants have. SQL, which --sql prints, sorts for it.
 * Fails: with one line on standard error and an exit status.
 */
#ifndef TIDEMARK_ANALYZER_LEVEL_ERRORS_H
#define TIDEMARK_ANALYZER_LEVEL_ERRORS_H

#include "database.h"
#include "options.h"

/* Appends the common table expressions up to `level_error` (process_id, heap_id, at_ns, variance, count_variance, and of bytes and counts made_, gone_ and
 * brief_), a row for each of the table `moments` (process_id, heap_id, at_ns), which `sql` has before: the variances of what was live then in the heap, or with
 * heap_id 0 in the root heaps of the process; of what was allocated and what was freed since the moment before; and of what was both. */
int tm_sql_level_errors(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, const char *moments);

#endif
