/* window_samples.h - the highest levels in a window of a sampled recording, replayed in C.
 *
 * Flow:     scans.c -> here: block_scan.h -> the temporary table window_level
 * Idea:     a level of samples is a fraction, and which of two that differ by a fraction is the higher one is asked before either is rounded. So the table
 *           timeline, of rounded levels, cannot stand for the inside of the window: all that was live in it is added up, as SQLite's sum()
 *           adds the same rows, term by term. The expression `level` that --sql prints gives the same highest levels.
 */
#ifndef TIDEMARK_ANALYZER_WINDOW_SAMPLES_H
#define TIDEMARK_ANALYZER_WINDOW_SAMPLES_H

#include "database.h"
#include "options.h"

/* with: the expressions `instant` and `span`, each followed by a comma. Makes temp.window_level (process_id, heap_id, ts_ns, live_bytes,
 * live_count), not rounded: of each heap and, with heap_id NULL, each process, the highest level in each of the two buckets of the table
 * timeline that the window's ends cut through, and that between them. false: it could not. */
bool tm_window_samples(const struct tm_database *d, const char *with, const struct tm_options *o);

#endif
