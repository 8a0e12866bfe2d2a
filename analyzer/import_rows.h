/* import_rows.h - everything but the allocations themselves, as rows of the database.
 *
 * Flow:     catalog.c, replay.c, stack_ids.c -> here -> store.c and its bulk tables
 * Fails:    into the store.
 */
#ifndef TIDEMARK_ANALYZER_IMPORT_ROWS_H
#define TIDEMARK_ANALYZER_IMPORT_ROWS_H

#include "foreign.h"
#include "replay.h"
#include "store.h"

/* A snapshot whose stacks are written, and which itself is still to be. */
struct tm_snapshot_row {
	const struct tm_account *account;
	const char *label; /* NULL: "mark:" and the mark's name */
	size_t mark;       /* index of the mark */
	uint64_t ns;
	struct tm_amount live;
	bool detailed;
};

struct tm_function_work;
struct tm_tree_work;

struct tm_import_rows {
	struct tm_store *store;
	struct tm_replay *replay;
	TM_ARRAY(struct tm_snapshot_row) snapshots; /* in the order of their ids; set by tm_write_site_rows() */
	struct tm_function_work *functions;         /* set by tm_functions_start() */
	struct tm_tree_work *tree;                  /* set by tm_tree_start() */
	uint64_t trace_id;
	const char *path;                 /* of the trace */
	const struct tm_foreign *foreign; /* where it is another tool's; NULL */
	const char *cut_reason;           /* NULL: the trace was closed and read to its end */
	uint64_t sound_bytes;
};

/* When the replay has been made ready, and again when it has `played`: at one of the two a thread begins to write, into the bulk tables, stack: those of all
 * events, or those that call sites need, and their ancestors; and frame: those of the stacks. */
void tm_tree_start(struct tm_import_rows *w, bool played);
void tm_tree_finish(struct tm_import_rows *w);

/* When the replay has ended: a thread adds up what functions allocated, until tm_write_function_rows() or tm_functions_end(). */
void tm_functions_start(struct tm_import_rows *w);
void tm_functions_end(struct tm_import_rows *w);

/* Meanwhile, into others of the bulk tables. */
/* site_total, snapshot_stack, leak_score, leak_stack. */
void tm_write_site_rows(struct tm_import_rows *w);
/* The last two of one heap; sites: in the order of their stacks. */
void tm_write_leak_rows(const struct tm_import_rows *w, const struct tm_account *a, const uint32_t *sites, size_t count);
/* scope_packed and its index, scope_instance_aggregate, scope_snapshot_packed. */
void tm_write_scope_bulk_rows(struct tm_import_rows *w);

/* function_aggregate. */
void tm_write_function_rows(struct tm_import_rows *w);
/* checkpoint_live, checkpoint_stack. */
void tm_write_checkpoint_ranges(struct tm_import_rows *w);

/* Then the others. trace, trace_info, process, thread, heap, module, allocation_origin, mark, note, loss, alert. */
void tm_write_catalog_rows(const struct tm_import_rows *w);
/* heap_total, timeline, gap, snapshot. */
void tm_write_total_rows(const struct tm_import_rows *w);
/* scope_name, scope_aggregate, step, step_aggregate, and notes about them. */
void tm_write_scope_rows(const struct tm_import_rows *w);
/* checkpoint, size_bucket, lifetime_bucket, level_total. */
void tm_write_level_rows(const struct tm_import_rows *w);
void tm_import_rows_release(struct tm_import_rows *w);

/* In whole bytes and blocks. */
static inline struct tm_amount tm_whole_amount(const struct tm_account *a, struct tm_amount scaled) {
	return (struct tm_amount){ tm_scaled_bytes(a, scaled.bytes), tm_scaled_count(a, scaled.count) };
}
/* Blocks given back: parts that cuts added were never allocated but do end. The difference of two rounded numbers may lie one beside the
 * rounded difference: freed is the former. */
struct tm_amount tm_freed_amount(const struct tm_account *a, struct tm_amount allocated, struct tm_amount live, uint64_t splits);

#endif
