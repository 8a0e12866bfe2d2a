/* sample_errors.c - errors of estimated totals; see sample_errors.h. */
#include "sample_errors.h"

#include "block_scan.h"
#include "columns.h"
#include "scans.h"

#define NONE SIZE_MAX

/* A total of a heap or, with heap 0, of the root heaps of a process. */
struct total {
	int64_t process, heap, kind, at_ns;
	bool has_blocks;
	double variance, count_variance;
	size_t next; /* of the same heap or process; NONE: there is none */
};

/* A heap that has blocks. */
struct place {
	size_t of_heap, of_process; /* the first total of each, or NONE */
};

struct errors {
	struct tm_block_scan scan;
	TM_ARRAY(struct total) totals;
	TM_ARRAY(struct place) places;
	struct tm_id_map ids; /* process, heap -> index of its first total + 1 */
};

/* --- totals --- */

/* A total whose time is not known (a process that did not exit) has no blocks. */
static bool add_total(struct errors *e, sqlite3_stmt *row) {
	int64_t process = sqlite3_column_int64(row, 0), heap = sqlite3_column_int64(row, 1);
	if (sqlite3_column_type(row, 3) == SQLITE_NULL) return true;
	uint64_t *first = tm_id_map_put(&e->ids, (uint64_t)process, (uint64_t)heap);
	struct total *t = first ? tm_array_push(&e->totals) : NULL;
	if (!t) return false;
	*t = (struct total){ .process = process,
			     .heap = heap,
			     .kind = sqlite3_column_int64(row, 2),
			     .at_ns = sqlite3_column_int64(row, 3),
			     .next = *first ? (size_t)*first - 1 : NONE };
	*first = e->totals.count;
	return true;
}

static size_t first_total(const struct errors *e, int64_t process, int64_t heap) {
	const uint64_t *first = tm_id_map_find(&e->ids, (uint64_t)process, (uint64_t)heap);
	return first ? (size_t)*first - 1 : NONE;
}

static bool read_totals(struct errors *e, const char *sql) {
	sqlite3_stmt *row = NULL;
	int step = SQLITE_ERROR;
	if (sql && sqlite3_prepare_v2(e->scan.db, sql, -1, &row, NULL) == SQLITE_OK)
		while ((step = sqlite3_step(row)) == SQLITE_ROW && add_total(e, row)) {}
	sqlite3_finalize(row);
	return step == SQLITE_DONE;
}

static bool read_places(struct errors *e) {
	sqlite3_stmt *row = NULL;
	int step = SQLITE_ERROR;
	if (sqlite3_prepare_v2(e->scan.db, "SELECT id, process_id, is_root FROM main.heap", -1, &row, NULL) == SQLITE_OK)
		while ((step = sqlite3_step(row)) == SQLITE_ROW) {
			int64_t heap = sqlite3_column_int64(row, 0), process = sqlite3_column_int64(row, 1);
			struct place *p = tm_array_push(&e->places);
			if (!p) break;
			*p = (struct place){ first_total(e, process, heap),
					     sqlite3_column_int(row, 2) ? first_total(e, process, 0) : NONE };
			for (size_t i = 0; i < e->scan.origins.count; i++)
				if (e->scan.origins.items[i].heap == heap) e->scan.origins.items[i].number = e->places.count;
		}
	sqlite3_finalize(row);
	return step == SQLITE_DONE;
}

/* --- blocks --- */

static void add_variance(struct errors *e, size_t first, const struct tm_block_row *row) {
	double size_bytes = (double)row->size_bytes, count_variance = row->weight * (row->weight - 1);
	for (size_t i = first; i != NONE; i = e->totals.items[i].next) {
		struct total *t = &e->totals.items[i];
		if (t->kind != TM_TOTAL_ALLOCATED && (row->alloc_ns > t->at_ns || row->free_ns <= t->at_ns)) continue;
		t->has_blocks = true;
		t->variance += size_bytes * size_bytes * count_variance;
		t->count_variance += count_variance;
	}
}

static bool add_row(void *context, const struct tm_block_row *row) {
	struct errors *e = context;
	if (!row->origin->number) return true;
	const struct place *p = &e->places.items[row->origin->number - 1];
	add_variance(e, p->of_heap, row);
	add_variance(e, p->of_process, row);
	return true;
}

static bool read_blocks(struct errors *e) {
	struct tm_row_set set = { 0 };
	bool done = tm_row_set_open(&set, e->scan.db, 0);
	if (done) tm_row_set_add(&set, 0, INT64_MAX);
	done = done && tm_block_scan_set(&e->scan, &set, add_row, e);
	tm_row_set_release(&set);
	return done;
}

static bool make_table(const struct errors *e) {
	sqlite3_stmt *insert = NULL;
	bool done = sqlite3_exec(e->scan.db,
				 "DROP TABLE IF EXISTS temp.sample_variance;"
				 "CREATE TEMP TABLE sample_variance(process_id, heap, total, variance, count_variance)",
				 NULL, NULL, NULL) == SQLITE_OK &&
		    sqlite3_prepare_v2(e->scan.db,
				       "INSERT INTO temp.sample_variance VALUES(?,(SELECT name FROM main.heap WHERE id = ?),?,?,?)", -1,
				       &insert, NULL) == SQLITE_OK;
	for (size_t i = 0; i < e->totals.count && done; i++) {
		const struct total *t = &e->totals.items[i];
		if (!t->has_blocks) continue;
		sqlite3_bind_int64(insert, 1, t->process);
		sqlite3_bind_int64(insert, 2, t->heap);
		sqlite3_bind_int64(insert, 3, t->kind);
		sqlite3_bind_double(insert, 4, t->variance);
		sqlite3_bind_double(insert, 5, t->count_variance);
		done = sqlite3_step(insert) == SQLITE_DONE;
		sqlite3_reset(insert);
	}
	sqlite3_finalize(insert);
	return done;
}

/* sql: process_id, heap_id (0: the process), which total, its time. */
static bool make(const struct tm_database *d, const char *sql) {
	struct errors e = { 0 };
	bool done = tm_block_scan_open(&e.scan, d->handle, TM_BLOCKS_ALL) && read_totals(&e, sql) && read_places(&e) && read_blocks(&e) &&
		    make_table(&e);
	tm_block_scan_release(&e.scan);
	tm_array_release(&e.totals);
	tm_array_release(&e.places);
	tm_id_map_release(&e.ids);
	return done;
}

#define HEAP_ID(row) "coalesce((SELECT h.id FROM heap AS h WHERE h.process_id = " row ".process_id AND h.name = " row ".heap), 0)"

bool tm_sample_errors_of_heaps(const struct tm_database *d, const struct tm_options *o) {
	char *sql = sqlite3_mprintf(
		"WITH k AS MATERIALIZED (SELECT v.process_id, " HEAP_ID(
			"v") " AS heap_id, v.peak_ns FROM heap_summary AS v)\n"
			     "SELECT process_id, heap_id, %d, 0 FROM k UNION ALL SELECT process_id, heap_id, %d, peak_ns FROM k\n"
			     "UNION ALL SELECT k.process_id, k.heap_id, %d, p.exit_ns FROM k JOIN process AS p ON p.id = k.process_id",
		TM_TOTAL_ALLOCATED, TM_TOTAL_PEAK, TM_TOTAL_EXIT);
	bool is_made = !o->sql && make(d, sql);
	sqlite3_free(sql);
	return is_made;
}

bool tm_sample_errors_of_levels(const struct tm_database *d, const struct tm_options *o, const char *with, const char *levels) {
	char *sql = sqlite3_mprintf("%s%s SELECT v.process_id, " HEAP_ID("v") ", %d, v.ts_ns FROM %s AS v", with ? "WITH " : "",
				    with ? with : "", TM_TOTAL_LEVEL, levels);
	bool is_made = !o->sql && make(d, sql);
	sqlite3_free(sql);
	return is_made;
}

void tm_sql_total_error(sqlite3_str *sql, enum tm_total total, const char *row, const char *column, const char *name, bool is_made) {
	bool is_count = tm_column_kind(column) == TM_COLUMN_COUNT;
	static const char *const conditions[] = { "true", TM_SQL_LIVE_AT("%s.peak_ns"), TM_SQL_LIVE_AT("p.exit_ns"),
						  TM_SQL_LIVE_AT("%s.ts_ns") };
	sqlite3_str_appendall(sql, ",\n  round((SELECT ");
	if (is_made) {
		sqlite3_str_appendf(sql,
				    "sqrt(q.%s) FROM temp.sample_variance AS q\n"
				    "    WHERE q.process_id = %s.process_id AND q.heap IS %s.heap AND q.total = %d",
				    is_count ? "count_variance" : "variance", row, row, total);
	} else {
		sqlite3_str_appendf(sql,
				    "sqrt(%s)\n"
				    "    FROM allocation AS a JOIN heap AS h ON h.id = a.heap_id JOIN process AS p ON p.id = a.process_id\n"
				    "    WHERE a.process_id = %s.process_id AND (h.name = %s.heap OR (%s.heap IS NULL AND h.is_root)) AND ",
				    is_count ? TM_SQL_COUNT_VARIANCE : TM_SQL_VARIANCE, row, row, row);
		sqlite3_str_appendf(sql, conditions[total], row, row);
	}
	sqlite3_str_appendf(sql, ") / %s.%s, 4) AS %s", row, column, name);
}
