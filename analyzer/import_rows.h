/* import_rows.h - everything but the allocations themselves, as rows of the database.
 *
 * Flow:     catalog.c, replay.c, stack_ids.c -> here -> store.c
 * Fails:    into the store.
 */
#ifndef TIDEMARK_ANALYZER_IMPORT_ROWS_H
#define TIDEMARK_ANALYZER_IMPORT_ROWS_H

#include "replay.h"
#include "store.h"

struct tm_import_rows {
	struct tm_store *store;
	const struct tm_replay *replay;
	uint64_t trace_id;
	const char *path;       /* of the trace */
	const char *cut_reason; /* NULL: the trace was closed and read to its end */
	uint64_t sound_bytes;
};

/* trace, trace_info, process, thread, heap, module, allocation_origin, mark, note, loss, alert. */
void tm_write_catalog_rows(const struct tm_import_rows *w);
/* frame and stack: those that a call site needs, and their ancestors. */
void tm_write_tree_rows(const struct tm_import_rows *w);
/* heap_total, site_total, function_aggregate, timeline, gap, snapshot, snapshot_stack, scope_aggregate. */
void tm_write_total_rows(const struct tm_import_rows *w);

/* When the process began to leave and when it ended, in the trace's own time. */
uint64_t tm_process_exit_ns(const struct tm_replay *r, uint32_t process);
uint64_t tm_process_end_ns(const struct tm_replay *r, uint32_t process);

#endif
