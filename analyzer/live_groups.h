/* live_groups.h - what was live at instants, added up by a hash instead of SQL's sorter.
 *
 * Flow:     live_sets.c -> here: block_scan.h -> a temporary table that stands for the expression of the same name
 * Idea:     SQLite groups by sorting, which takes seconds where a million blocks are live. The expression that --sql prints and this give the same rows.
 */
#ifndef TIDEMARK_ANALYZER_LIVE_GROUPS_H
#define TIDEMARK_ANALYZER_LIVE_GROUPS_H

#include "database.h"
#include "options.h"

/* Makes the table `table` (process_id, heap_id, `key`, live_bytes, live_count) of blocks live at the at_ns of `instants`; with: the expressions up to
 * that, each followed by a comma; with o's window only blocks that were allocated in it, and of o's heap only, if it names one. by: as o->by, but of
 * groups made of stacks: heaps, which need no key (0), sites (site_frame_id, 0 where there is none) for all that follows from them, or stacks.
 * false: it could not; there is no such table then. */
bool tm_live_groups_make(const struct tm_database *d, const char *with, const char *instants, const struct tm_options *o, enum tm_by by,
			 const char *table, const char *key);

/* Classes of sizes, by their lowest size, and of ages. */
int64_t tm_size_class(int64_t size_bytes);
int64_t tm_age_class(int64_t age_ns);

#endif
