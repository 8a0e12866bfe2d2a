/* window_samples.c - levels of a window of a sampled recording; see window_samples.h. */
#include "window_samples.h"

#include "block_scan.h"
#include "window_replay.h"

#include <math.h>

#define SUM_COMPENSATED_SINCE 3043000 /* the version of SQLite */
#define NARROWEST_BUCKET_NS 1024      /* and no more than so many of them: as in window_peak.c */
#define BUCKETS 2048

/* As sum() keeps it. */
struct sum {
	double value, error;
};

struct best {
	bool is_set;
	int64_t ns;
	double bytes, count;
};

/* The window of a process. */
struct window {
	int64_t process, start_ns, from_ns, to_ns, bucket_ns, first_bucket, last_bucket;
	size_t level; /* of the process; those of its heaps follow */
};

/* A heap's level, or that of the process. */
struct level {
	int64_t heap; /* 0: the process */
	size_t window;
	bool is_root, touched;
	int64_t since_ns;
	struct sum bytes, count;
	struct best best[3]; /* in the first bucket, in the last one, between them */
};

/* The order in which SQL puts what happens at one time. */
enum kind { BEGUN, ENDED, PARTED };

struct change {
	int64_t ns, id;
	double bytes, count;
	uint32_t kind, level;
};

struct samples {
	struct tm_block_scan scan;
	bool is_compensated;
	TM_ARRAY(struct window) windows;
	TM_ARRAY(struct level) levels;
	TM_ARRAY(struct change) changes;
};

/* --- windows --- */

/* An end that the process does not have (a mark that it did not set) leaves nothing in the window. */
static bool add_window(struct samples *s, sqlite3_stmt *row) {
	int64_t start_ns = sqlite3_column_int64(row, 3), end_ns = sqlite3_column_int64(row, 4);
	bool is_empty = sqlite3_column_type(row, 5) == SQLITE_NULL || sqlite3_column_type(row, 6) == SQLITE_NULL;
	struct window *w = tm_array_push(&s->windows);
	struct level *l = tm_array_push(&s->levels);
	if (!w || !l) return false;
	*w = (struct window){ .process = sqlite3_column_int64(row, 0),
			      .start_ns = start_ns,
			      .from_ns = is_empty ? INT64_MAX : sqlite3_column_int64(row, 5),
			      .to_ns = is_empty ? INT64_MIN : sqlite3_column_int64(row, 6),
			      .bucket_ns = NARROWEST_BUCKET_NS,
			      .level = s->levels.count - 1 };
	*l = (struct level){ .window = s->windows.count - 1 };
	if (is_empty) return true;
	if (w->to_ns > end_ns) w->to_ns = end_ns;
	while ((end_ns - start_ns) / w->bucket_ns >= BUCKETS) w->bucket_ns *= 2;
	w->first_bucket = ((w->from_ns > start_ns ? w->from_ns : start_ns) - start_ns) / w->bucket_ns;
	w->last_bucket = (w->to_ns - start_ns) / w->bucket_ns;
	return true;
}

static bool read_windows(struct samples *s, const char *with, const struct tm_options *o) {
	sqlite3_stmt *row = NULL;
	int step = SQLITE_ERROR;
	char *sql = sqlite3_mprintf(
		"WITH %s no_more AS (SELECT 1)\n"
		"SELECT process_id, heap_id, is_root, start_ns, end_ns, %s, %s FROM instant ORDER BY process_id, heap_id",
		with, o->from.kind == TM_TIME_UNSET ? "-9223372036854775807" : "from_ns", o->to.kind == TM_TIME_UNSET ? "end_ns" : "to_ns");
	if (sql && sqlite3_prepare_v2(s->scan.db, sql, -1, &row, NULL) == SQLITE_OK)
		while ((step = sqlite3_step(row)) == SQLITE_ROW) {
			size_t known = s->windows.count;
			bool again = known && s->windows.items[known - 1].process == sqlite3_column_int64(row, 0);
			struct level *l = again || add_window(s, row) ? tm_array_push(&s->levels) : NULL;
			if (!l) break;
			*l = (struct level){ .heap = sqlite3_column_int64(row, 1),
					     .window = s->windows.count - 1,
					     .is_root = sqlite3_column_int(row, 2) };
		}
	sqlite3_finalize(row);
	sqlite3_free(sql);
	for (size_t i = 0; i < s->scan.origins.count; i++)
		for (size_t k = 0; k < s->levels.count; k++)
			if (s->levels.items[k].heap == s->scan.origins.items[i].heap) s->scan.origins.items[i].number = k;
	return step == SQLITE_DONE;
}

/* --- rows --- */

/* What was so before the window is so when it opens. */
static bool put_change(struct samples *s, const struct tm_block_row *row, enum kind kind, int64_t ns, double bytes, double count) {
	size_t level = row->origin->number;
	const struct window *w = &s->windows.items[s->levels.items[level].window];
	if (ns < w->from_ns) ns = w->from_ns;
	if (ns > w->to_ns) return true;
	struct change *c = tm_array_push(&s->changes);
	if (c) *c = (struct change){ ns, row->id, bytes, count, kind, (uint32_t)level };
	return c;
}

static bool add_row(void *context, const struct tm_block_row *row) {
	struct samples *s = context;
	if (!row->origin->number || row->free_ns <= s->windows.items[s->levels.items[row->origin->number].window].from_ns) return true;
	double bytes = (double)row->size_bytes * row->weight;
	int64_t parted_ns = tm_block_parted_ns(&s->scan, row);
	bool is_part = parted_ns > row->alloc_ns;
	return put_change(s, row, BEGUN, row->alloc_ns, bytes, is_part ? 0 : row->weight) &&
	       (row->free_ns == INT64_MAX || put_change(s, row, ENDED, row->free_ns, -bytes, -row->weight)) &&
	       (!is_part || put_change(s, row, PARTED, parted_ns, 0, row->weight));
}

/* All rows that can have been live in the window. */
static bool read_rows(struct samples *s, const char *with) {
	struct tm_row_set set = { 0 };
	char *ended = sqlite3_mprintf("WITH %s no_more AS (SELECT 1)\nSELECT first_id, last_id FROM span", with);
	char *outlived = sqlite3_mprintf("WITH %s no_more AS (SELECT 1)\nSELECT r.first_id, r.first_id + r.more FROM span AS w\n"
					 "  CROSS JOIN checkpoint AS e ON e.trace_id = w.trace_id AND e.id <= w.last_checkpoint\n"
					 "  CROSS JOIN checkpoint_live AS r ON r.checkpoint_id = e.id AND r.first_id > w.last_id",
					 with);
	bool done = ended && outlived && tm_row_set_open(&set, s->scan.db, 0) && tm_row_set_add_query(&set, s->scan.db, ended) &&
		    tm_row_set_add_query(&set, s->scan.db, outlived) && tm_block_scan_set(&s->scan, &set, add_row, s);
	tm_row_set_release(&set);
	sqlite3_free(ended);
	sqlite3_free(outlived);
	return done;
}

/* --- levels --- */

static int compare_changes(const void *a, const void *b) {
	const struct change *x = a, *y = b;
	if (x->ns != y->ns) return x->ns < y->ns ? -1 : 1;
	if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
	return (x->id > y->id) - (x->id < y->id);
}

static void add(struct sum *sum, double term, bool is_compensated) {
	double value = sum->value + term;
	if (is_compensated) sum->error += fabs(sum->value) > fabs(term) ? sum->value - value + term : term - value + sum->value;
	sum->value = value;
}

/* The level lasted from since_ns. */
static void judge(const struct samples *s, struct level *l) {
	const struct window *w = &s->windows.items[l->window];
	int64_t bucket = (l->since_ns - w->start_ns) / w->bucket_ns;
	struct best *best = &l->best[bucket == w->first_bucket ? 0 : bucket == w->last_bucket ? 1 : 2];
	double bytes = l->bytes.value + l->bytes.error;
	if (best->is_set && bytes <= best->bytes) return;
	*best = (struct best){ true, l->since_ns, bytes, l->count.value + l->count.error };
}

/* A level is what all changes of its time have made. */
static void change_level(const struct samples *s, struct level *l, const struct change *c) {
	if (l->touched && c->ns > l->since_ns) judge(s, l);
	add(&l->bytes, c->bytes, s->is_compensated);
	add(&l->count, c->count, s->is_compensated);
	l->since_ns = c->ns;
	l->touched = true;
}

static void replay_changes(struct samples *s) {
	if (s->changes.count) qsort(s->changes.items, s->changes.count, sizeof *s->changes.items, compare_changes);
	for (size_t i = 0; i < s->changes.count; i++) {
		const struct change *c = &s->changes.items[i];
		struct level *l = &s->levels.items[c->level];
		change_level(s, l, c);
		if (l->is_root) change_level(s, &s->levels.items[s->windows.items[l->window].level], c);
	}
	for (size_t i = 0; i < s->levels.count; i++)
		if (s->levels.items[i].touched) judge(s, &s->levels.items[i]);
}

static bool put_best(const struct samples *s, sqlite3_stmt *insert, const struct level *l, const struct best *best) {
	if (!best->is_set) return true;
	sqlite3_bind_int64(insert, 1, s->windows.items[l->window].process);
	if (l->heap) sqlite3_bind_int64(insert, 2, l->heap);
	else sqlite3_bind_null(insert, 2);
	sqlite3_bind_int64(insert, 3, best->ns);
	sqlite3_bind_double(insert, 4, best->bytes);
	sqlite3_bind_double(insert, 5, best->count);
	bool done = sqlite3_step(insert) == SQLITE_DONE;
	sqlite3_reset(insert);
	return done;
}

static bool make_table(const struct samples *s) {
	sqlite3_stmt *insert = NULL;
	bool done = sqlite3_exec(s->scan.db,
				 "DROP TABLE IF EXISTS temp.window_level;"
				 "CREATE TEMP TABLE window_level(process_id, heap_id, ts_ns, live_bytes, live_count)",
				 NULL, NULL, NULL) == SQLITE_OK &&
		    sqlite3_prepare_v2(s->scan.db, "INSERT INTO temp.window_level VALUES(?,?,?,?,?)", -1, &insert, NULL) == SQLITE_OK;
	for (size_t i = 0; i < s->levels.count; i++)
		for (int k = 0; k < 3 && done; k++) done = put_best(s, insert, &s->levels.items[i], &s->levels.items[i].best[k]);
	sqlite3_finalize(insert);
	return done;
}

bool tm_window_samples(const struct tm_database *d, const char *with, const struct tm_options *o) {
	struct samples s = { .is_compensated = sqlite3_libversion_number() >= SUM_COMPENSATED_SINCE };
	if (with && tm_window_is_told(d->handle, with)) return true;
	bool done = tm_block_scan_open(&s.scan, d->handle, TM_BLOCKS_ALL) && with && read_windows(&s, with, o) && read_rows(&s, with);
	if (done) {
		replay_changes(&s);
		done = make_table(&s);
	}
	tm_block_scan_release(&s.scan);
	tm_array_release(&s.windows);
	tm_array_release(&s.levels);
	tm_array_release(&s.changes);
	if (done) tm_window_tell(d->handle, with);
	return done;
}
