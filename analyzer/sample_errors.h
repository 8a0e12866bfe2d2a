/* sample_errors.h - the standard errors of totals that were estimated from samples.
 *
 * Flow:  cmd_summary.c, cmd_processes.c, cmd_peak.c -> here: block_scan.h -> the temporary table sample_variance -> a column of the listing
 * Idea:  a total has two variances, of bytes and of counts, to which every sampled block adds (TM_SQL_VARIANCES in scans.h). One walk over all
 *        blocks adds up those of all totals; the SQL that --sql prints asks for each of them by itself.
 */
#ifndef TIDEMARK_ANALYZER_SAMPLE_ERRORS_H
#define TIDEMARK_ANALYZER_SAMPLE_ERRORS_H

#include <sqlite3.h>
#include <stdbool.h>

#include "database.h"
#include "options.h"

/* What was allocated at all; what was live at the row's peak_ns, at its process' exit, at the row's ts_ns. */
enum tm_total { TM_TOTAL_ALLOCATED, TM_TOTAL_PEAK, TM_TOTAL_EXIT, TM_TOTAL_LEVEL };

/* Makes temp.sample_variance, of the first three totals of all rows of the view heap_summary, or of the last one of `levels`, which is the
 * view peak or, behind the expressions `with` (else NULL), has its columns. false: it could not, or --sql wants none. */
bool tm_sample_errors_of_heaps(const struct tm_database *d, const struct tm_options *o);
bool tm_sample_errors_of_levels(const struct tm_database *d, const struct tm_options *o, const char *with, const char *levels);

/* Appends ", ... AS name": the standard error of one of the totals of `row`, as a share of its column of that name, bytes or a count. is_made: there is
 * the table. */
void tm_sql_total_error(sqlite3_str *sql, enum tm_total total, const char *row, const char *column, const char *name, bool is_made);

#endif
