/* site_sums.h - what call stacks sum up to at their sites, by a hash.
 *
 * Flow:     cmd_diff.c, cmd_top.c -> here: the table site_total, each row read once -> a temporary table, a row for each heap and site
 * Idea:     SQL sorts the rows of millions of call stacks by their sites, of which there are a few thousand.
 * Fails:    with one line on standard error and an exit status, or TM_SUMS_IN_SQL.
 */
#ifndef TIDEMARK_ANALYZER_SITE_SUMS_H
#define TIDEMARK_ANALYZER_SITE_SUMS_H

#include "database.h"
#include "options.h"

/* Their columns: heap_id, site_frame_id (NULL: the stacks have none) and the sums. */
#define TM_SITE_SUMS "heap_id, site_frame_id, live_bytes, live_count, allocations, allocated_bytes, peak_bytes"

/* Out of memory, or a sum is too large: callers leave it to SQL, which says so. */
#define TM_SUMS_IN_SQL (-1)

/* Makes temp.`table` of the database that `schema` names, of the processes that --process chooses; live: "live_at_exit" or "live_at_end". */
int tm_site_sums_make(const struct tm_database *d, const struct tm_options *o, const char *schema, const char *live, const char *table);
/* Appends the same rows as a SELECT. */
void tm_site_sums_put(sqlite3_str *sql, const struct tm_options *o, const char *schema, const char *live);

#endif
