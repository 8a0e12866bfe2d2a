/* scope_blocks.h - what sampled blocks add up to in the scopes around them, by a walk outward from each.
 *
 * Flow:     scope_errors.c -> here: the view allocation, each row read once -> a temporary table, a row for each heap and key
 * Idea:     SQL sorts all blocks by the scopes that they were allocated and freed in, and once more for each scope around these; a walk has a number for each
 *           scope and each key, and adds to their sums. A key may have many scopes (all of a name): a block counts once in it.
 * Fails:    with one line on standard error and an exit status, or TM_BLOCKS_IN_SQL.
 */
#ifndef TIDEMARK_ANALYZER_SCOPE_BLOCKS_H
#define TIDEMARK_ANALYZER_SCOPE_BLOCKS_H

#include "database.h"

/* Of a key's scopes: blocks allocated, freed, both, allocated there and freed anywhere, and allocated and live when the outermost of the scopes closed. */
enum tm_scope_what { TM_SCOPE_ALLOCATED, TM_SCOPE_FREED, TM_SCOPE_BOTH, TM_SCOPE_OWN_FREED, TM_SCOPE_RETAINED, TM_SCOPE_WHATS };
enum tm_scope_measure { TM_SCOPE_BYTES, TM_SCOPE_VARIANCE, TM_SCOPE_COUNT_VARIANCE, TM_SCOPE_MEASURES };

/* The columns of sums. self: in the scopes themselves; else in those inside them, too. */
struct tm_scope_sum {
	const char *name;
	enum tm_scope_what what;
	enum tm_scope_measure measure;
	bool is_self;
};
#define TM_SCOPE_SUMS 18
extern const struct tm_scope_sum tm_scope_sums[TM_SCOPE_SUMS];

/* Out of memory: callers leave it to SQL. */
#define TM_BLOCKS_IN_SQL (-1)

/* Makes temp.`table` (heap_id, scope_id: any of its key, the sums) of the database that `schema` names. keys: a query of scopes: id, and the number of the key
 * of each, from 1 on. */
int tm_scope_blocks_make(const struct tm_database *d, const char *schema, const char *keys, const char *table);

#endif
