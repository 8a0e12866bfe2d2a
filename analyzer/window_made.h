/* window_made.h - temporary blocks that were made in a window of time, added up by a hash instead of SQL's sorter.
 *
 * Flow:     scans.c -> here: block_scan.h -> a temporary table that stands for the expression of the same name
 * Idea:     few rows are temporary blocks, but millions are to be looked at, of which those that outlived the window lie in short ranges. The
 *           expression that --sql prints and this give the same rows.
 */
#ifndef TIDEMARK_ANALYZER_WINDOW_MADE_H
#define TIDEMARK_ANALYZER_WINDOW_MADE_H

#include "database.h"
#include "options.h"

/* Makes the table short_lived (process_id, heap, stack_id, count, bytes). with: the expressions `instant` and `span`, each followed by a comma.
 * false: it could not; there is no such table then. */
bool tm_window_made(const struct tm_database *d, const char *with, const struct tm_options *o);

#endif
