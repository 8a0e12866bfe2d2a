/* block_scan.c - walks stored allocations in C; see block_scan.h. */
#include "block_scan.h"

#include <pthread.h>
#include <unistd.h>

#define WORD_BITS 64
#define SET_BYTES_MAX ((int64_t)1 << 30)
#define GAP_ROWS 8 /* passing over so many rows costs less than finding another place */
#define LARGE_ROWS 20000

static bool prepare(sqlite3 *db, const char *sql, sqlite3_stmt **out) {
	*out = NULL;
	return sqlite3_prepare_v2(db, sql, -1, out, NULL) == SQLITE_OK;
}

static bool read_origins(struct tm_block_scan *s) {
	sqlite3_stmt *row;
	int step = SQLITE_ERROR;
	if (prepare(s->db,
		    "SELECT id, process_id, heap_id, thread_id, api IN ('malloc', 'calloc', 'realloc', 'posix_memalign', 'aligned_alloc', 'memalign')"
		    " FROM main.allocation_origin",
		    &row)) {
		while ((step = sqlite3_step(row)) == SQLITE_ROW) {
			uint64_t *index = tm_id_map_put(&s->origin_ids, (uint64_t)sqlite3_column_int64(row, 0), 0);
			struct tm_block_origin *origin = index ? tm_array_push(&s->origins) : NULL;
			if (!origin) break;
			*index = s->origins.count;
			*origin = (struct tm_block_origin){ sqlite3_column_int64(row, 1), sqlite3_column_int64(row, 2),
							    sqlite3_column_int64(row, 3), !sqlite3_column_int(row, 4), 0 };
		}
	}
	sqlite3_finalize(row);
	return step == SQLITE_DONE;
}

/* --- functions that SQLite calls --- */

static bool holds(const struct tm_row_set *set, int64_t id) {
	uint64_t at = (uint64_t)(id - set->first_id);
	return at / WORD_BITS < set->words && set->bits[at / WORD_BITS] >> at % WORD_BITS & 1;
}

static void is_in_set(sqlite3_context *context, int count, sqlite3_value **values) {
	const struct tm_block_scan *s = sqlite3_user_data(context);
	(void)count;
	sqlite3_result_int(context, holds(s->set, sqlite3_value_int64(values[0])));
}

static void hand_on(sqlite3_context *context, int count, sqlite3_value **values) {
	struct tm_block_scan *s = sqlite3_user_data(context);
	const uint64_t *origin = tm_id_map_find(&s->origin_ids, (uint64_t)sqlite3_value_int64(values[1]), 0);
	(void)count;
	if (!origin) return;
	struct tm_block_row row = { .id = sqlite3_value_int64(values[0]),
				    .size_bytes = sqlite3_value_int64(values[2]),
				    .alloc_ns = sqlite3_value_int64(values[3]),
				    .free_ns = INT64_MAX,
				    .stack = sqlite3_value_int64(values[5]),
				    .scope = sqlite3_value_int64(values[6]),
				    .realloc_of = sqlite3_value_int64(values[7]),
				    .weight = sqlite3_value_type(values[8]) == SQLITE_NULL ? 1 : sqlite3_value_double(values[8]),
				    .origin = &s->origins.items[*origin - 1] };
	bool sound = sqlite3_value_type(values[4]) == SQLITE_NULL ||
		     !__builtin_add_overflow(row.alloc_ns, sqlite3_value_int64(values[4]), &row.free_ns);
	if (!sound || !s->visit(s->context, &row)) sqlite3_result_error(context, "the rows were given up", -1);
}

static void end_of_rows(sqlite3_context *context) {
	sqlite3_result_null(context);
}

bool tm_block_scan_open(struct tm_block_scan *s, sqlite3 *db, enum tm_block_rows which) {
	*s = (struct tm_block_scan){ .db = db, .in_transaction = sqlite3_exec(db, "BEGIN", NULL, NULL, NULL) == SQLITE_OK };
	if (sqlite3_create_function_v2(db, "tm_in_set", 1, SQLITE_UTF8 | SQLITE_DIRECTONLY, s, is_in_set, NULL, NULL, NULL) != SQLITE_OK ||
	    sqlite3_create_function_v2(db, "tm_hand_on", 9, SQLITE_UTF8 | SQLITE_DIRECTONLY, s, NULL, hand_on, end_of_rows, NULL) !=
		    SQLITE_OK)
		return false;
	static const char *const sql[] = {
#define ROWS \
	"SELECT tm_hand_on(id, origin_id, size_bytes, alloc_ns, lifetime_ns, stack_id, scope_id, realloc_of_id, weight)" \
	" FROM main.allocation_packed WHERE id BETWEEN ? AND ? AND "
		[TM_BLOCKS_ALL] = ROWS "tm_in_set(id)",
		[TM_BLOCKS_TEMPORARY] = ROWS "free_thread = -1 AND tm_in_set(id)",
	};
	return prepare(db, sql[which], &s->rows) &&
	       prepare(db, "SELECT alloc_ns + lifetime_ns FROM main.allocation_packed WHERE id = ?", &s->freed) && read_origins(s);
}

static int64_t last_row(sqlite3 *db) {
	sqlite3_stmt *row;
	int64_t id = prepare(db, "SELECT max(id) FROM main.allocation_packed", &row) && sqlite3_step(row) == SQLITE_ROW
			     ? sqlite3_column_int64(row, 0)
			     : -1;
	sqlite3_finalize(row);
	return id;
}

/* Nobody but an import that replaces the file changes a database: then it is another one. */
bool tm_block_scan_again(struct tm_block_scan *s, const struct tm_block_scan *first, enum tm_block_rows which) {
	const char *path = sqlite3_db_filename(first->db, "main");
	sqlite3 *db = NULL;
	*s = (struct tm_block_scan){ 0 };
	if (!path || sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK) {
		sqlite3_close(db);
		return false;
	}
	sqlite3_exec(db, "PRAGMA mmap_size=17179869184", NULL, NULL, NULL);
	bool opened = tm_block_scan_open(s, db, which);
	s->owns_db = true;
	if (!opened || s->origins.count != first->origins.count || last_row(db) != last_row(first->db)) return false;
	for (size_t i = 0; i < s->origins.count; i++) s->origins.items[i].number = first->origins.items[i].number;
	return true;
}

bool tm_block_scan_number(struct tm_block_scan *s, const int64_t *heap, size_t count, size_t item_bytes) {
	struct tm_id_map numbers = { 0 };
	uint64_t *number = NULL;
	size_t k = 0;
	for (; k < count && (number = tm_id_map_put(&numbers, (uint64_t)*heap, 0)); k++) {
		*number = k + 1;
		heap = (const int64_t *)(const void *)((const char *)heap + item_bytes);
	}
	for (size_t i = 0; i < s->origins.count; i++)
		if ((number = tm_id_map_find(&numbers, (uint64_t)s->origins.items[i].heap, 0))) s->origins.items[i].number = *number;
	tm_id_map_release(&numbers);
	return k == count;
}

void tm_block_scan_release(struct tm_block_scan *s) {
	sqlite3_finalize(s->rows);
	sqlite3_finalize(s->freed);
	if (s->in_transaction) sqlite3_exec(s->db, "COMMIT", NULL, NULL, NULL);
	tm_array_release(&s->origins);
	tm_id_map_release(&s->origin_ids);
	if (s->owns_db) sqlite3_close(s->db);
}

/* --- sets --- */

bool tm_row_set_open(struct tm_row_set *set, sqlite3 *db, int64_t first_id) {
	int64_t last_id = last_row(db);
	*set = (struct tm_row_set){ .first_id = first_id };
	if (last_id < 0 || first_id < 0 || last_id - first_id >= SET_BYTES_MAX * 8) return false;
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

static bool scan_range(struct tm_block_scan *s, int64_t first_id, int64_t last_id) {
	sqlite3_bind_int64(s->rows, 1, first_id);
	sqlite3_bind_int64(s->rows, 2, last_id);
	bool done = sqlite3_step(s->rows) == SQLITE_ROW;
	sqlite3_reset(s->rows);
	return done;
}

/* The rows from bit `first` on and before bit `end`. */
static bool scan_part(struct tm_block_scan *s, const struct tm_row_set *set, size_t first, size_t end, tm_block_visit *visit,
		      void *context) {
	s->set = set;
	s->visit = visit;
	s->context = context;
	for (first = next_bit(set, first); first < end;) {
		size_t behind = end_of_run(set, first), next = next_bit(set, behind);
		while (next < end && next - behind <= GAP_ROWS) {
			behind = end_of_run(set, next);
			next = next_bit(set, behind);
		}
		if (behind > end) behind = end;
		if (!scan_range(s, set->first_id + (int64_t)first, set->first_id + (int64_t)behind - 1)) return false;
		first = next;
	}
	return true;
}

bool tm_block_scan_set(struct tm_block_scan *s, const struct tm_row_set *set, tm_block_visit *visit, void *context) {
	return scan_part(s, set, 0, set->words * WORD_BITS, visit, context);
}

/* --- by two threads --- */

static size_t rows_of(const struct tm_row_set *set) {
	size_t rows = 0;
	for (size_t i = 0; i < set->words; i++) rows += (size_t)__builtin_popcountll(set->bits[i]);
	return rows;
}

bool tm_row_set_is_large(const struct tm_row_set *set) {
	return rows_of(set) >= LARGE_ROWS && sysconf(_SC_NPROCESSORS_ONLN) > 1;
}

struct half {
	struct tm_block_scan *scan;
	const struct tm_row_set *set;
	size_t first, end;
	tm_block_visit *visit;
	void *context;
	bool done;
};

static void *scan_half(void *argument) {
	struct half *h = argument;
	h->done = scan_part(h->scan, h->set, h->first, h->end, h->visit, h->context);
	return NULL;
}

bool tm_block_scan_halves(struct tm_block_scan *const scans[2], const struct tm_row_set *set, tm_block_visit *visit,
			  void *const contexts[2]) {
	size_t wanted = rows_of(set) / 2, word = 0, end = set->words * WORD_BITS;
	for (size_t rows = 0; word < set->words && rows < wanted; word++) rows += (size_t)__builtin_popcountll(set->bits[word]);
	struct half first = { scans[0], set, 0, word * WORD_BITS, visit, contexts[0], false };
	struct half second = { scans[1], set, word * WORD_BITS, end, visit, contexts[1], false };
	pthread_t thread;
	bool is_running = pthread_create(&thread, NULL, scan_half, &second) == 0;
	scan_half(&first);
	if (is_running) pthread_join(thread, NULL);
	else scan_half(&second);
	return first.done && second.done;
}

int64_t tm_block_parted_ns(struct tm_block_scan *s, const struct tm_block_row *row) {
	if (!row->realloc_of || !row->origin->is_mapping) return INT64_MIN;
	sqlite3_bind_int64(s->freed, 1, row->realloc_of);
	bool freed = sqlite3_step(s->freed) == SQLITE_ROW && sqlite3_column_type(s->freed, 0) != SQLITE_NULL;
	int64_t ns = freed ? sqlite3_column_int64(s->freed, 0) : INT64_MIN;
	sqlite3_reset(s->freed);
	return ns;
}

bool tm_block_split_after(struct tm_block_scan *s, const struct tm_block_row *row, int64_t ns) {
	return tm_block_parted_ns(s, row) > ns;
}
