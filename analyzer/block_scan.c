/* block_scan.c - walks stored allocations in C; see block_scan.h. */
#include "block_scan.h"

#define WORD_BITS 64
#define SET_BYTES_MAX ((int64_t)1 << 30)
#define GAP_ROWS 4 /* reading so many rows in vain costs less than finding another place */

static bool prepare(sqlite3 *db, const char *sql, sqlite3_stmt **out) {
	*out = NULL;
	return sqlite3_prepare_v2(db, sql, -1, out, NULL) == SQLITE_OK;
}

static bool read_origins(struct tm_block_scan *s) {
	sqlite3_stmt *row;
	int step = SQLITE_ERROR;
	if (prepare(s->db, "SELECT id, process_id, heap_id, thread_id FROM main.allocation_origin", &row)) {
		while ((step = sqlite3_step(row)) == SQLITE_ROW) {
			uint64_t *index = tm_id_map_put(&s->origin_ids, (uint64_t)sqlite3_column_int64(row, 0), 0);
			struct tm_block_origin *origin = index ? tm_array_push(&s->origins) : NULL;
			if (!origin) break;
			*index = s->origins.count;
			*origin = (struct tm_block_origin){ sqlite3_column_int64(row, 1), sqlite3_column_int64(row, 2),
							    sqlite3_column_int64(row, 3), 0 };
		}
	}
	sqlite3_finalize(row);
	return step == SQLITE_DONE;
}

bool tm_block_scan_open(struct tm_block_scan *s, sqlite3 *db) {
	*s = (struct tm_block_scan){ .db = db, .in_transaction = sqlite3_exec(db, "BEGIN", NULL, NULL, NULL) == SQLITE_OK };
	return prepare(db,
		       "SELECT id, origin_id, size_bytes, alloc_ns, lifetime_ns, stack_id, scope_id, realloc_of_id"
		       " FROM main.allocation_packed WHERE id BETWEEN ? AND ?",
		       &s->rows) &&
	       prepare(db, "SELECT alloc_ns + lifetime_ns FROM main.allocation_packed WHERE id = ?", &s->freed) && read_origins(s);
}

void tm_block_scan_release(struct tm_block_scan *s) {
	sqlite3_finalize(s->rows);
	sqlite3_finalize(s->freed);
	if (s->in_transaction) sqlite3_exec(s->db, "COMMIT", NULL, NULL, NULL);
	tm_array_release(&s->origins);
	tm_id_map_release(&s->origin_ids);
}

/* --- sets --- */

bool tm_row_set_open(struct tm_row_set *set, sqlite3 *db, int64_t first_id) {
	sqlite3_stmt *row;
	int64_t last_id = first_id;
	bool found = prepare(db, "SELECT max(id) FROM main.allocation_packed", &row) && sqlite3_step(row) == SQLITE_ROW;
	if (found) last_id = sqlite3_column_int64(row, 0);
	sqlite3_finalize(row);
	*set = (struct tm_row_set){ .first_id = first_id };
	if (!found || first_id < 0 || last_id - first_id >= SET_BYTES_MAX * 8) return false;
	set->words = last_id < first_id ? 1 : (size_t)((last_id - first_id) / WORD_BITS) + 1;
	set->bits = calloc(set->words, sizeof *set->bits);
	return set->bits != NULL;
}

void tm_row_set_release(struct tm_row_set *set) {
	free(set->bits);
	*set = (struct tm_row_set){ 0 };
}

void tm_row_set_add(struct tm_row_set *set, int64_t first_id, int64_t last_id) {
	int64_t end = set->first_id + (int64_t)set->words * WORD_BITS - 1;
	if (first_id < set->first_id) first_id = set->first_id;
	if (last_id > end) last_id = end;
	if (first_id > last_id) return;
	size_t first = (size_t)(first_id - set->first_id), last = (size_t)(last_id - set->first_id);
	uint64_t head = UINT64_MAX << first % WORD_BITS, tail = UINT64_MAX >> (WORD_BITS - 1 - last % WORD_BITS);
	if (first / WORD_BITS == last / WORD_BITS) {
		set->bits[first / WORD_BITS] |= head & tail;
		return;
	}
	set->bits[first / WORD_BITS] |= head;
	for (size_t i = first / WORD_BITS + 1; i < last / WORD_BITS; i++) set->bits[i] = UINT64_MAX;
	set->bits[last / WORD_BITS] |= tail;
}

bool tm_row_set_add_query(struct tm_row_set *set, sqlite3 *db, const char *sql) {
	sqlite3_stmt *row = NULL;
	int step = SQLITE_ERROR;
	if (sql && prepare(db, sql, &row))
		while ((step = sqlite3_step(row)) == SQLITE_ROW)
			tm_row_set_add(set, sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1));
	sqlite3_finalize(row);
	return step == SQLITE_DONE;
}

/* The next row of the set that is at or behind `at`; the number of bits: none. */
static size_t next_bit(const struct tm_row_set *set, size_t at) {
	size_t word = at / WORD_BITS;
	if (word >= set->words) return set->words * WORD_BITS;
	uint64_t bits = set->bits[word] & UINT64_MAX << at % WORD_BITS;
	while (!bits && ++word < set->words) bits = set->bits[word];
	return bits ? word * WORD_BITS + (size_t)__builtin_ctzll(bits) : set->words * WORD_BITS;
}

/* The first row behind `at` that is not in the set. */
static size_t end_of_run(const struct tm_row_set *set, size_t at) {
	size_t word = at / WORD_BITS;
	uint64_t bits = ~set->bits[word] & UINT64_MAX << at % WORD_BITS;
	while (!bits && ++word < set->words) bits = ~set->bits[word];
	return bits ? word * WORD_BITS + (size_t)__builtin_ctzll(bits) : set->words * WORD_BITS;
}

/* --- rows --- */

static bool visit_row(struct tm_block_scan *s, tm_block_visit *visit, void *context) {
	const uint64_t *origin = tm_id_map_find(&s->origin_ids, (uint64_t)sqlite3_column_int64(s->rows, 1), 0);
	if (!origin) return true;
	struct tm_block_row row = { .id = sqlite3_column_int64(s->rows, 0),
				    .size_bytes = sqlite3_column_int64(s->rows, 2),
				    .alloc_ns = sqlite3_column_int64(s->rows, 3),
				    .free_ns = INT64_MAX,
				    .stack = sqlite3_column_int64(s->rows, 5),
				    .scope = sqlite3_column_int64(s->rows, 6),
				    .realloc_of = sqlite3_column_int64(s->rows, 7),
				    .origin = &s->origins.items[*origin - 1] };
	if (sqlite3_column_type(s->rows, 4) != SQLITE_NULL &&
	    __builtin_add_overflow(row.alloc_ns, sqlite3_column_int64(s->rows, 4), &row.free_ns))
		return false;
	return visit(context, &row);
}

static bool scan_range(struct tm_block_scan *s, int64_t first_id, int64_t last_id, tm_block_visit *visit, void *context) {
	int step;
	bool going = true;
	sqlite3_bind_int64(s->rows, 1, first_id);
	sqlite3_bind_int64(s->rows, 2, last_id);
	while ((step = sqlite3_step(s->rows)) == SQLITE_ROW && going) going = visit_row(s, visit, context);
	sqlite3_reset(s->rows);
	return going && step == SQLITE_DONE;
}

bool tm_block_scan_set(struct tm_block_scan *s, const struct tm_row_set *set, tm_block_visit *visit, void *context) {
	size_t end = set->words * WORD_BITS, first = next_bit(set, 0);
	while (first < end) {
		size_t behind = end_of_run(set, first), next = next_bit(set, behind);
		while (next < end && next - behind <= GAP_ROWS) {
			behind = end_of_run(set, next);
			next = next_bit(set, behind);
		}
		if (!scan_range(s, set->first_id + (int64_t)first, set->first_id + (int64_t)behind - 1, visit, context)) return false;
		first = next;
	}
	return true;
}

bool tm_block_split_after(struct tm_block_scan *s, const struct tm_block_row *row, int64_t ns) {
	if (!row->realloc_of) return false;
	sqlite3_bind_int64(s->freed, 1, row->realloc_of);
	bool after = sqlite3_step(s->freed) == SQLITE_ROW && sqlite3_column_type(s->freed, 0) != SQLITE_NULL &&
		     sqlite3_column_int64(s->freed, 0) > ns;
	sqlite3_reset(s->freed);
	return after;
}
