/* live_sets.h - SQL for what was live at instants, grouped by whatever a person asks for, without reading every allocation.
 *
 * Flow:  cmd_snapshot.c, scans.c -> here: common table expressions over checkpoints and the allocations between them -> listing.h
 * Idea:  tables.sql tells at `checkpoint` which rows can have been live at an instant. A database without checkpoints (made by hand) is read whole.
 * Each function appends expressions ("name AS (...), ...") without a comma behind them; `suffix` sets two uses in one query apart.
 */
#ifndef TIDEMARK_ANALYZER_LIVE_SETS_H
#define TIDEMARK_ANALYZER_LIVE_SETS_H

#include "database.h"
#include "options.h"

/* `near`SUFFIX: the rows of the view allocation that may have been live at the at_ns of the table `instants` (process_id, heap_id,
 * end_ns, at_ns), each once for each checkpoint_id that moment`SUFFIX` (heap_id, at_ns, checkpoint_id) names. */
void tm_sql_near(sqlite3_str *sql, const char *instants, const char *suffix);

/* What stands behind FROM for the blocks `a` live at the instants `i`, with the conditions: "... WHERE ...". tm_sql_near() came before, where
 * d->has_checkpoints. */
void tm_sql_from_live(sqlite3_str *sql, const struct tm_database *d, const char *instants, const char *suffix);

/* `live`SUFFIX: process_id, heap, what o->by names, live_bytes, live_count, estimated and, where the trace was sampled, relative_error
 * and count_relative_error of them. With o's window only blocks that were allocated in it. */
void tm_sql_live_by(sqlite3_str *sql, const struct tm_database *d, const char *instants, const struct tm_options *o, const char *suffix);

/* `block`SUFFIX (process_id, heap_id, stack_id, live_bytes, live_count and, where the trace was sampled, variance and count_variance): what was live at
 * the at_ns of the table `instants` (process_id, heap_id, end_ns, at_ns); with a window (else NULL) only what was allocated in it.
 * Where window->by is not TM_BY_STACK estimates are not rounded: tm_sql_live_sums() does that. Where it is TM_BY_HEAP the stacks of a heap may be
 * one row, of stack 0. true: they were added up now, so that to read them costs little. */
bool tm_sql_block_stacks(sqlite3_str *sql, const struct tm_database *d, const char *instants, const struct tm_options *window,
			 const char *suffix);

/* Sums of live_bytes and live_count of blocks, with these names. */
const char *tm_sql_live_sums(const struct tm_database *d);

/* The columns that tell the rows of tm_sql_live_by() apart, besides process_id and heap: ", function, file", or "". */
const char *tm_live_keys(enum tm_by by);

/* What the blocks `a` count for at the time that the expression ns gives. */
void tm_sql_put_count_at(sqlite3_str *sql, const struct tm_database *d, const char *ns);

/* A mapping that is given back in parts has a row for each part from its beginning on. A part counts as a block of its own only once it
 * was parted from the one that it names in realloc_of_id; before, both are one mapping. */
#define TM_SQL_SPLIT_AFTER(ns) TM_SQL_SPLIT_AFTER_IN("", ns)
/* schema: "before." where several databases are attached. */
#define TM_SQL_SPLIT_AFTER_IN(schema, ns) \
	"(a.realloc_of_id IS NOT NULL AND EXISTS (SELECT 1 FROM " schema \
	"allocation AS q WHERE q.id = a.realloc_of_id AND q.free_ns > " ns "))"

#endif
