/* feed.h - allocation rows into the database, by a thread of their own.
 *
 * Flow:     replay.c -> tm_feed_next() -> belt.c -> here -> bulk.c (table allocation_packed)
 * Owns:     its belt. While that runs, the table is its thread's: nobody else may use it.
 * When full: tm_feed_next() waits for the thread.
 * Fails:    into the table's tm_bulk; rows are then dropped.
 */
#ifndef TIDEMARK_ANALYZER_FEED_H
#define TIDEMARK_ANALYZER_FEED_H

#include "bulk.h"
#include "belt.h"

#define TM_FEED_NULL UINT64_MAX
#define TM_FEED_TEMPORARY (UINT64_MAX - 1) /* free_thread: the thread that allocated, before its next allocation */

struct tm_feed_row {
	uint64_t size_bytes, alloc_ns;
	uint64_t address, slack_bytes, lifetime_ns, free_thread, realloc_of_id; /* TM_FEED_NULL: NULL */
	uint64_t origin_id, stack_id;
	uint64_t scope_id, free_scope_id; /* TM_FEED_NULL: NULL */
	double weight;                    /* 0: NULL */
};

struct tm_feed {
	struct tm_belt belt;
	struct tm_bulk_table *table;
	uint64_t row_id; /* the one stored last */
};

/* row_id: of the row before the first one. NULL: out of memory, or no thread could be made. */
struct tm_feed *tm_feed_start(struct tm_bulk_table *table, uint64_t row_id);
/* Where the next row is to be written; counts as given with the next call, or tm_feed_finish(). Row ids go up by one with every row. */
static inline struct tm_feed_row *tm_feed_next(struct tm_feed *f) {
	return tm_belt_next(&f->belt);
}
/* Waits until all rows are in the table, and ends the thread. NULL is allowed. */
void tm_feed_finish(struct tm_feed *f);

#endif
