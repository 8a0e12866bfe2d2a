/* window_pieces.h - SQL for live bytes over time within a window.
 *
 * Flow:  the view memory_timeline, live_sets.h, scans.h -> here -> cmd_timeline.c, export_chrome.c
 * Idea:  a window begins with what was live when it opened, which the row before need not say: it may stand for a stretch that goes on until
 *        then. So that is counted from the allocations around it (live_sets.h). Of the two stretches that the ends of a window cut through,
 *        the highest value in the window comes from a replay (window_peak.c).
 */
#ifndef TIDEMARK_ANALYZER_WINDOW_PIECES_H
#define TIDEMARK_ANALYZER_WINDOW_PIECES_H

#include "database.h"
#include "options.h"

/* Common table expression `bound`: of each process its start, its end, the window and how long a bucket is that memory_timeline keeps. */
void tm_sql_bounds(sqlite3_str *sql, const struct tm_options *o);

/* The same, up to `piece` (process_id, heap, ts_ns, live_bytes, live_count, estimated): the levels that hold somewhere in the window, none before its start.
 * heap NULL: the whole process. */
void tm_sql_pieces(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o);

#endif
