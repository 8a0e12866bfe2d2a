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

struct block {
	const struct tm_report_heap *heap;
	uint32_t stack;
	uint16_t scope_group;
	bool is_freed;
	double bytes;
	int64_t alloc_ns, free_ns; /* free_ns: if it is_freed */
};

#define BLOCKS_AHEAD 16

struct scan {
	struct tm_report *r;
	struct block ahead[BLOCKS_AHEAD]; /* read and not counted yet */
	size_t blocks;                    /* read, of heaps that are not left out */
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

static void count_block(struct scan *scan, const struct block *b) {
	struct tm_report *r = scan->r;
	struct tm_report_stack *stack = &r->by_stack[b->stack];
	uint32_t heap_number = (uint32_t)(b->heap - r->heaps.items);
	/* Most are of the heap that the stack was last met in. */
	if (stack->heap != heap_number + 1) {
		stack->heap = heap_number + 1;
		stack->key = tm_report_key_of(r, heap_number, tm_stack_frames_check(&r->stacks, b->stack));
	}
	const struct tm_report_process *process = &r->processes.items[b->heap->process];
	size_t from = tm_report_point(r, b->alloc_ns), to = b->is_freed ? tm_report_point(r, b->free_ns) : process->end_point;
	r->made[from * r->keys.count + stack->key] += b->bytes;
	if (b->is_freed) r->freed[to * r->keys.count + stack->key] += b->bytes;
	if (process->has_exit && b->alloc_ns <= process->exit_ns && (!b->is_freed || b->free_ns > process->exit_ns))
		r->kept[from * r->keys.count + stack->key] += b->bytes;
	if (!b->heap->is_counted) return;
	change(scan, TM_REPORT_HEAP, b->heap->name + 1, from, to, b->bytes);
	change(scan, TM_REPORT_PROCESS, process->group, from, to, b->bytes);
	change(scan, TM_REPORT_FUNCTION, stack->function, from, to, b->bytes);
	change(scan, TM_REPORT_LIBRARY, stack->library, from, to, b->bytes);
	change(scan, TM_REPORT_SCOPE, b->scope_group, from, to, b->bytes);
}

enum { ORIGIN, STACK, SIZE, ALLOC_NS, LIFETIME_NS, WEIGHT, SCOPE };

/* What is known of the stack of each comes from memory while later rows are read. */
static int take_block(void *context, sqlite3_value **row) {
	struct scan *scan = context;
	struct tm_report *r = scan->r;
	const struct tm_report_heap *heap = heap_of(scan, (uint64_t)sqlite3_value_int64(row[ORIGIN]));
	r->allocations++;
	if (r->allocations % ROWS_BETWEEN_LOOKS == 0)
		tm_progress_update(&scan->progress, (uint64_t)r->allocations, scan->rows_total, (uint64_t)r->allocations);
	if (!heap) return 0;
	struct block *b = &scan->ahead[scan->blocks % BLOCKS_AHEAD];
	if (scan->blocks++ >= BLOCKS_AHEAD) count_block(scan, b);
	int64_t stack = sqlite3_value_int64(row[STACK]), scope = sqlite3_value_int64(row[SCOPE]);
	*b = (struct block){ .heap = heap,
			     .stack = stack > 0 && stack < r->stacks.stack_count ? (uint32_t)stack : 0,
			     .bytes = (double)sqlite3_value_int64(row[SIZE]),
			     .alloc_ns = sqlite3_value_int64(row[ALLOC_NS]),
			     .is_freed = sqlite3_value_type(row[LIFETIME_NS]) != SQLITE_NULL,
			     .scope_group = scope >= 0 && scope < r->scope_count ? r->group_of_scope[scope] : 0 };
	b->free_ns = b->alloc_ns + sqlite3_value_int64(row[LIFETIME_NS]);
	if (sqlite3_value_type(row[WEIGHT]) != SQLITE_NULL) b->bytes *= sqlite3_value_double(row[WEIGHT]);
	__builtin_prefetch(&r->by_stack[b->stack]);
	return 0;
}

static void count_last_blocks(struct scan *scan) {
	size_t first = scan->blocks > BLOCKS_AHEAD ? scan->blocks - BLOCKS_AHEAD : 0;
	for (size_t i = first; i < scan->blocks; i++) count_block(scan, &scan->ahead[i % BLOCKS_AHEAD]);
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
		status = tm_database_each(
			r->d,
			"SELECT tm_row(origin_id, stack_id, size_bytes, alloc_ns, lifetime_ns, weight, scope_id) FROM allocation_packed",
			take_block, &scan);
	if (!status) count_last_blocks(&scan);
	tm_progress_end(&scan.progress);
	tm_id_map_release(&scan.origins);
	free(what);
	return status;
}
