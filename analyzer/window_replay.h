/* window_replay.h - the highest levels in the two stretches of time that the ends of a window cut through, replayed in C.
 *
 * Flow:     window_peak.c -> here: block_scan.h -> the temporary table window_level
 * Idea:     what was live at the checkpoint behind a stretch is known, or is added up from the rows that it lists; the rows between two
 *           checkpoints say how it came about. All stretches of all processes are read at once. The expression `level` that --sql prints
 *           gives the same highest levels.
 */
#ifndef TIDEMARK_ANALYZER_WINDOW_REPLAY_H
#define TIDEMARK_ANALYZER_WINDOW_REPLAY_H

#include "database.h"

/* with: the expressions up to `bound` and `stretch` (window_peak.c), each followed by a comma. Makes temp.window_level (process_id, heap_id, ts_ns,
 * live_bytes, live_count): of each heap and, with heap_id NULL, each process, the highest level in each stretch within the window.
 * false: it could not. */
bool tm_window_replay(const struct tm_database *d, const char *with);

/* `peak` lists the same window twice: its levels, then what made them. Is temp.window_level that of these expressions? It is now. */
bool tm_window_is_told(sqlite3 *db, const char *with);
void tm_window_tell(sqlite3 *db, const char *with);

#endif
