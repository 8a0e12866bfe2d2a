/* window_made.h - blocks that were made in a window of time, added up by stack with a hash instead of SQL's sorter.
 *
 * Flow:     scans.c -> here: block_scan.h -> a temporary table that stands for the expression of the same name
 * Idea:     millions of rows are to be looked at, of which those that outlived the window lie in short ranges, and few may be temporary blocks. The
 *           expression that --sql prints and this give the same rows.
 */
#ifndef TIDEMARK_ANALYZER_WINDOW_MADE_H
#define TIDEMARK_ANALYZER_WINDOW_MADE_H

#include "block_scan.h"
#include "database.h"
#include "options.h"

/* Makes the table `name` (process_id, heap, stack_id, count, bytes) of these blocks. with: the expressions `instant` and `span`, each followed by a comma.
 * Parts of a mapping count as TM_SQL_SPLIT_AFTER says, at its beginning; temporary ones each by itself. false: it could not; there is no such table then. */
bool tm_window_made(const struct tm_database *d, const char *with, const struct tm_options *o, enum tm_block_rows which, const char *name);

#endif
