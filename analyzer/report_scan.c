/* report_scan.c - reads every allocation once and adds it up between the points of the grid.
 *
 * Rows come in the order in which blocks ended, so that the sums of one point lie together: few of them are in use at a time. A block
 * is live from its alloc_ns on and no longer at its free_ns; nothing is live after the end of its process. So both count at the first
 * point that is not before them, and what is live at a point is the sum of the changes up to it.
 */
#include "report.h"

#include <stdio.h>
#include <stdlib.h>

#include "progress.h"
#include "talk.h"

#define ROWS_BETWEEN_LOOKS 65536

struct scan {
	struct tm_report *r;
	size_t points;
	struct tm_id_map origins; /* heap's index + 2; 1: a heap that is left out */
	uint64_t last_origin, last_heap;
	struct tm_progress progress;
	uint64_t rows_total;
};

static int no_memory(const struct tm_report *r) {
	return tm_fail("cannot report on '%s': out of memory", r->d->path);
}

static int take_origin(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct scan *scan = context;
	uint64_t *slot = tm_id_map_put(&scan->origins, (uint64_t)sqlite3_column_int64(s, 0), 0);
	uint64_t *heap = tm_id_map_find(&r->heap_index, (uint64_t)sqlite3_column_int64(s, 1), 0);
	if (!slot) return no_memory(r);
	*slot = heap ? *heap + 1 : 1;
	return 0;
}

/* NULL: it is left out. */
static const struct tm_report_heap *heap_of(struct scan *scan, uint64_t origin) {
	if (origin != scan->last_origin || !scan->last_heap) {
		uint64_t *slot = tm_id_map_find(&scan->origins, origin, 0);
		scan->last_origin = origin;
		scan->last_heap = slot ? *slot : 1;
	}
	return scan->last_heap > 1 ? &scan->r->heaps.items[scan->last_heap - 2] : NULL;
}

static void change(struct scan *scan, enum tm_report_by by, size_t group, size_t from, size_t to, double bytes) {
	struct tm_report_dimension *dimension = &scan->r->by[by];
	dimension->change[from * dimension->names.count + group] += bytes;
	if (to < scan->points) dimension->change[to * dimension->names.count + group] -= bytes;
}

static int take_block(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct scan *scan = context;
	const struct tm_report_heap *heap = heap_of(scan, (uint64_t)sqlite3_column_int64(s, 0));
	r->allocations++;
	if (r->allocations % ROWS_BETWEEN_LOOKS == 0)
		tm_progress_update(&scan->progress, (uint64_t)r->allocations, scan->rows_total, (uint64_t)r->allocations);
	if (!heap) return 0;
	const struct tm_report_process *process = &r->processes.items[heap->process];
	uint32_t stack = tm_stack_frames_check(&r->stacks, sqlite3_column_int64(s, 1));
	double bytes = (double)sqlite3_column_int64(s, 2);
	int64_t alloc_ns = sqlite3_column_int64(s, 3), lifetime_ns = sqlite3_column_int64(s, 4), scope = sqlite3_column_int64(s, 6);
	bool is_freed = sqlite3_column_type(s, 4) != SQLITE_NULL;
	if (sqlite3_column_type(s, 5) != SQLITE_NULL) bytes *= sqlite3_column_double(s, 5);
	size_t from = tm_report_point(r, alloc_ns), to = is_freed ? tm_report_point(r, alloc_ns + lifetime_ns) : process->end_point;
	size_t key = tm_report_key_of(r, (uint32_t)(heap - r->heaps.items), stack);
	r->made[from * r->keys.count + key] += bytes;
	if (is_freed) r->freed[to * r->keys.count + key] += bytes;
	if (process->has_exit && alloc_ns <= process->exit_ns && (!is_freed || alloc_ns + lifetime_ns > process->exit_ns))
		r->kept[from * r->keys.count + key] += bytes;
	if (!heap->is_counted) return 0;
	change(scan, TM_REPORT_HEAP, heap->name + 1, from, to, bytes);
	change(scan, TM_REPORT_PROCESS, process->group, from, to, bytes);
	change(scan, TM_REPORT_FUNCTION, r->function_of_stack[stack], from, to, bytes);
	change(scan, TM_REPORT_LIBRARY, r->library_of_stack[stack], from, to, bytes);
	change(scan, TM_REPORT_SCOPE, scope >= 0 && scope < r->scope_count ? r->group_of_scope[scope] : 0, from, to, bytes);
	return 0;
}

static bool make_room(struct tm_report *r, size_t points) {
	for (int by = 0; by < TM_REPORT_DIMENSIONS; by++) {
		r->by[by].change = calloc(r->by[by].names.count * points, sizeof(double));
		if (!r->by[by].change) return false;
	}
	r->made = calloc(r->keys.count * points + 1, sizeof(double));
	r->freed = calloc(r->keys.count * points + 1, sizeof(double));
	r->kept = calloc(r->keys.count * points + 1, sizeof(double));
	return r->made && r->freed && r->kept;
}

int tm_report_scan(struct tm_report *r) {
	struct scan scan = { .r = r, .points = r->grid.count };
	scan.rows_total = (uint64_t)tm_database_integer(r->d, "SELECT max(id) FROM allocation_packed", 1);
	char *what = NULL;
	if (!make_room(r, scan.points) || asprintf(&what, "reading '%s'", r->d->path) < 0) return no_memory(r);
	int status = tm_report_rows(r, sqlite3_mprintf("SELECT id, heap_id FROM allocation_origin"), take_origin, &scan);
	tm_progress_start(&scan.progress, what);
	if (!status)
		status = tm_report_rows(
			r,
			sqlite3_mprintf(
				"SELECT origin_id, stack_id, size_bytes, alloc_ns, lifetime_ns, weight, scope_id FROM allocation_packed"),
			take_block, &scan);
	tm_progress_end(&scan.progress);
	tm_id_map_release(&scan.origins);
	free(what);
	return status;
}
