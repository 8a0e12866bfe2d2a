/* block_scan.h - walks stored allocations in C, for answers that SQL would have to sort for.
 *
 * Flow:     live_groups.c, window_made.c, window_replay.c, window_samples.c, sample_errors.c -> here: sets of rows of allocation_packed, each
 *           read once, in the order of their ids
 * Idea:     checkpoint_live names rows in hundreds of thousands of short ranges. As bits of a set they cost a bit each, come in order, and none twice.
 *           Rows are handed on by an aggregate function of ours, within one step of a statement: fetching each column of each row costs as
 *           much again. Many rows are read by two threads, each with a connection of its own.
 * Owns:     statements, a transaction and the origins; of tm_block_scan_again() its connection; a set its bits.
 * Fails:    false: out of memory, or the database cannot be read. Callers then leave the answer to SQL, which says why.
 */
#ifndef TIDEMARK_ANALYZER_BLOCK_SCAN_H
#define TIDEMARK_ANALYZER_BLOCK_SCAN_H

#include "../schema/array.h"
#include "database.h"
#include "id_map.h"

struct tm_block_origin {
	int64_t process, heap, thread;
	bool is_mapping; /* its blocks may have been split from one another */
	size_t number;   /* for the caller: 0 at first */
};

struct tm_block_row {
	int64_t id, size_bytes, alloc_ns, free_ns, stack, scope, realloc_of; /* free_ns INT64_MAX: never freed; realloc_of 0: none */
	double weight;                                                       /* how many blocks it stands for in a sampled trace, else 1 */
	const struct tm_block_origin *origin;
};

struct tm_block_scan {
	sqlite3 *db;
	TM_ARRAY(struct tm_block_origin) origins;
	struct tm_id_map origin_ids; /* id -> index + 1 */
	sqlite3_stmt *rows, *freed;
	bool in_transaction; /* one for all ranges: the file is locked and looked at once */
	bool owns_db;
	const struct tm_row_set *set; /* being read */
	bool (*visit)(void *context, const struct tm_block_row *row);
	void *context;
};

/* Which rows are read at all. */
enum tm_block_rows { TM_BLOCKS_ALL, TM_BLOCKS_TEMPORARY /* free_thread -1 */ };

/* Ids from first_id on, one bit each. */
struct tm_row_set {
	int64_t first_id;
	size_t words;
	uint64_t *bits;
};

typedef bool tm_block_visit(void *context, const struct tm_block_row *row);

/* Release after either. The second one is of another connection to the same file, with the same numbers of origins. */
bool tm_block_scan_open(struct tm_block_scan *s, sqlite3 *db, enum tm_block_rows which);
bool tm_block_scan_again(struct tm_block_scan *s, const struct tm_block_scan *first, enum tm_block_rows which);
void tm_block_scan_release(struct tm_block_scan *s);
/* Gives the origins of a heap its place in the caller's array, from 1 on; those of other heaps keep what they have. heap: the id in the first of `count`
 * items of so many bytes. false: out of memory. */
bool tm_block_scan_number(struct tm_block_scan *s, const int64_t *heap, size_t count, size_t item_bytes);

/* A set with room for all rows from first_id on. */
bool tm_row_set_open(struct tm_row_set *set, sqlite3 *db, int64_t first_id);
void tm_row_set_release(struct tm_row_set *set);
void tm_row_set_add(struct tm_row_set *set, int64_t first_id, int64_t last_id);
/* The ranges (first id, last id) that a query finds. */
bool tm_row_set_add_query(struct tm_row_set *set, sqlite3 *db, const char *sql);

/* Calls visit for all rows of the set; it returns false to give up. */
bool tm_block_scan_set(struct tm_block_scan *s, const struct tm_row_set *set, tm_block_visit *visit, void *context);
/* The same by two threads, each with a part of the set, a scan and a context of its own. */
bool tm_block_scan_halves(struct tm_block_scan *const scans[2], const struct tm_row_set *set, tm_block_visit *visit,
			  void *const contexts[2]);
/* Is it worth two threads? */
bool tm_row_set_is_large(const struct tm_row_set *set);

/* When a part of a mapping was parted from the rest, which may be later than its beginning; INT64_MIN: it is none, or the rest is still there. */
int64_t tm_block_parted_ns(struct tm_block_scan *s, const struct tm_block_row *row);
/* Was it parted from the rest only after `ns`? (TM_SQL_SPLIT_AFTER in live_sets.h) */
bool tm_block_split_after(struct tm_block_scan *s, const struct tm_block_row *row, int64_t ns);

#endif
