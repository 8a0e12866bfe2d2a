/* window_made.c - blocks that were made in a window; see window_made.h. */
#include "window_made.h"

#include "scans.h"

/* A heap and its window. */
struct heap_window {
	int64_t process, heap, from_ns, to_ns;
};

struct sum {
	int64_t heap, stack, count, bytes; /* heap: index of its window */
};

struct made {
	struct tm_block_scan scan;
	enum tm_block_rows which;
	TM_ARRAY(struct heap_window) windows;
	TM_ARRAY(struct sum) sums;
	struct tm_id_map ids; /* window, stack -> index + 1 */
};

static int64_t number_or(sqlite3_stmt *row, int column, int64_t otherwise) {
	return sqlite3_column_type(row, column) == SQLITE_NULL ? otherwise : sqlite3_column_int64(row, column);
}

/* An end that a process does not have (a mark that it did not set) leaves nothing in the window. */
static bool read_windows(struct made *m, const char *with, const struct tm_options *o) {
	sqlite3_stmt *row = NULL;
	int step = SQLITE_ERROR;
	bool from = o->from.kind != TM_TIME_UNSET, to = o->to.kind != TM_TIME_UNSET;
	char *sql = sqlite3_mprintf(
		"WITH %s no_more AS (SELECT 1)\nSELECT i.process_id, i.heap_id, %s, %s FROM instant AS i ORDER BY i.heap_id", with,
		from ? "i.from_ns" : "0", to ? "i.to_ns" : "0");
	if (sql && sqlite3_prepare_v2(m->scan.db, sql, -1, &row, NULL) == SQLITE_OK)
		while ((step = sqlite3_step(row)) == SQLITE_ROW) {
			struct heap_window *w = tm_array_push(&m->windows);
			if (!w) break;
			*w = (struct heap_window){ sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1),
						   from ? number_or(row, 2, INT64_MAX) : INT64_MIN,
						   to ? number_or(row, 3, INT64_MIN) : INT64_MAX };
		}
	sqlite3_finalize(row);
	sqlite3_free(sql);
	if (step != SQLITE_DONE) return false;
	return !m->windows.count || tm_block_scan_number(&m->scan, &m->windows.items->heap, m->windows.count, sizeof *m->windows.items);
}

static bool add_row(void *context, const struct tm_block_row *row) {
	struct made *m = context;
	size_t window = row->origin->number;
	if (!window || row->alloc_ns < m->windows.items[window - 1].from_ns || row->alloc_ns > m->windows.items[window - 1].to_ns)
		return true;
	uint64_t *id = tm_id_map_put(&m->ids, window, (uint64_t)row->stack);
	struct sum *sum = id && *id ? &m->sums.items[*id - 1] : id ? tm_array_push(&m->sums) : NULL;
	if (!sum) return false;
	if (!*id) {
		*id = m->sums.count;
		*sum = (struct sum){ (int64_t)window - 1, row->stack, 0, 0 };
	}
	sum->count += m->which == TM_BLOCKS_TEMPORARY || !row->origin->is_mapping || !tm_block_split_after(&m->scan, row, row->alloc_ns);
	sum->bytes = tm_sum_of_bytes(sum->bytes, row->size_bytes);
	return true;
}

/* The rows between the checkpoints around the window, and those that outlived the last of them. */
static bool read_rows(struct made *m, const char *with) {
	struct tm_row_set set = { 0 };
	char *ended = sqlite3_mprintf("WITH %s no_more AS (SELECT 1)\nSELECT first_id, last_id FROM span", with);
	char *outlived = sqlite3_mprintf(
		"WITH %s no_more AS (SELECT 1)\nSELECT r.first_id, r.first_id + r.more FROM span AS w\n"
		"  CROSS JOIN checkpoint AS e ON e.trace_id = w.trace_id AND e.id > w.first_checkpoint AND e.id <= w.last_checkpoint\n"
		"  CROSS JOIN checkpoint_live AS r ON r.checkpoint_id = e.id AND r.first_id > w.last_id",
		with);
	bool done = ended && outlived && tm_row_set_open(&set, m->scan.db, 0) && tm_row_set_add_query(&set, m->scan.db, ended) &&
		    tm_row_set_add_query(&set, m->scan.db, outlived) && tm_block_scan_set(&m->scan, &set, add_row, m);
	tm_row_set_release(&set);
	sqlite3_free(ended);
	sqlite3_free(outlived);
	return done;
}

static bool run(sqlite3 *db, const char *format, const char *name) {
	char *sql = sqlite3_mprintf(format, name);
	bool done = sql && sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;
	sqlite3_free(sql);
	return done;
}

static bool make_table(const struct made *m, const char *name) {
	sqlite3 *db = m->scan.db;
	sqlite3_stmt *insert = NULL;
	char *sql = sqlite3_mprintf("INSERT INTO temp.%w SELECT ?, (SELECT name FROM main.heap WHERE id = ?), ?, ?, ?", name);
	bool done = sql && run(db, "DROP TABLE IF EXISTS temp.%w", name) &&
		    run(db, "CREATE TEMP TABLE %w(process_id, heap, stack_id, count, bytes)", name) &&
		    sqlite3_prepare_v2(db, sql, -1, &insert, NULL) == SQLITE_OK;
	for (size_t i = 0; i < m->sums.count && done; i++) {
		const struct sum *sum = &m->sums.items[i];
		const struct heap_window *w = &m->windows.items[sum->heap];
		const int64_t values[] = { w->process, w->heap, sum->stack, sum->count, sum->bytes };
		for (int k = 0; k < 5; k++) sqlite3_bind_int64(insert, k + 1, values[k]);
		done = sqlite3_step(insert) == SQLITE_DONE;
		sqlite3_reset(insert);
	}
	sqlite3_finalize(insert);
	sqlite3_free(sql);
	if (!done) run(db, "DROP TABLE IF EXISTS temp.%w", name);
	return done;
}

bool tm_window_made(const struct tm_database *d, const char *with, const struct tm_options *o, enum tm_block_rows which, const char *name) {
	struct made m = { .which = which };
	bool done = tm_block_scan_open(&m.scan, d->handle, which) && with && read_windows(&m, with, o) && read_rows(&m, with) &&
		    make_table(&m, name);
	tm_block_scan_release(&m.scan);
	tm_array_release(&m.windows);
	tm_array_release(&m.sums);
	tm_id_map_release(&m.ids);
	return done;
}
