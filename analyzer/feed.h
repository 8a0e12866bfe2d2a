/* feed.h - allocation rows into SQLite, fast: one INSERT ... SELECT from a virtual table that never ends until the import does.
 *
 * Flow:     replay.c -> tm_feed_row() -> batches -> here, a thread of its own -> table allocation_packed
 * Idea:     a virtual table's rows reach the b-tree without binding and stepping a statement for each, and the statement's thread is
 *           another than the one that replays the events.
 * Owns:     its batches and its thread. While it runs, the connection is the thread's: nobody else may use it.
 * When full: tm_feed_row() waits for the database.
 * Fails:    a failed statement is remembered; rows are then dropped, and tm_feed_finish() says so.
 */
#ifndef TIDEMARK_ANALYZER_FEED_H
#define TIDEMARK_ANALYZER_FEED_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#define TM_FEED_BATCH_ROWS 4096u
#define TM_FEED_NULL UINT64_MAX

struct tm_feed_row {
	uint64_t address, size_bytes, alloc_ns;
	uint64_t slack_bytes, lifetime_ns, free_thread, realloc_of_id; /* TM_FEED_NULL: NULL */
	uint64_t origin_id, stack_id;
	double weight; /* 0: NULL */
};

struct tm_feed;

/* Registers with the connection. NULL: out of memory, or SQLite refused. */
struct tm_feed *tm_feed_new(sqlite3 *db);
bool tm_feed_start(struct tm_feed *f); /* false: no thread could be made */
/* Where the next row is to be written; counts as given with the next call, or tm_feed_finish(). Row ids go up by one with every row. */
struct tm_feed_row *tm_feed_next(struct tm_feed *f);
/* Waits until all rows are in the table. SQLITE_OK, or the code that the statement failed with. */
int tm_feed_finish(struct tm_feed *f);
void tm_feed_free(struct tm_feed *f); /* before the connection is closed; NULL is allowed */

#endif
