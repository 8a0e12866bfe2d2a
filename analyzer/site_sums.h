/* site_sums.h - what call stacks sum up to at their sites, by a hash.
 *
 * Flow:     cmd_diff.c, cmd_top.c -> here: the table site_total, or the view allocation, each row read once -> a temporary table, a row for each heap and site
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

/* The same of a sampled trace, by its blocks: sums are fractions, to be rounded once all is added up, and have variances. process_peak_variance is of what was
 * live at the peak of the process. */
#define TM_SAMPLE_SUMS \
	TM_SITE_SUMS \
	", live_variance, live_count_variance, allocated_variance, allocated_count_variance, peak_variance, process_peak_variance"
int tm_site_sums_make_samples(const struct tm_database *d, const struct tm_options *o, const char *schema, const char *live,
			      const char *table);
void tm_site_sums_put_samples(sqlite3_str *sql, const struct tm_options *o, const char *schema, const char *live);
#define TM_NO_VARIANCES \
	"0.0 AS live_variance, 0.0 AS live_count_variance, 0.0 AS allocated_variance, 0.0 AS allocated_count_variance,\n" \
	"    0.0 AS peak_variance, 0.0 AS process_peak_variance"
/* Further sums of the first four of these. */
#define TM_SUMS_OF_VARIANCES(row) \
	"total(" row ".live_variance) AS live_variance, total(" row ".live_count_variance) AS live_count_variance,\n" \
	"    total(" row ".allocated_variance) AS allocated_variance, total(" row ".allocated_count_variance) AS allocated_count_variance"
/* Appends a SELECT of process_id, heap and the first five of these, of each heap in the rows `sums`, and with heap NULL of the root heaps of each process. */
void tm_site_sums_put_heaps(sqlite3_str *sql, const char *schema, const char *sums);

#endif
