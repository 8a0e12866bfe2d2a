/* window_replay.c - the highest levels at the edges of a window, replayed; see window_replay.h. */
#include "window_replay.h"

#include "block_scan.h"

/* A stretch of time of a process, and where its rows lie. */
struct stretch {
	int64_t process, trace, first_ns, last_ns, first_checkpoint, checkpoint, last_id, first_id, from_ns, to_ns, checkpoint_ns;
};

/* A heap's level, or that of the process. */
struct level {
	int64_t heap; /* 0: the process */
	bool is_root, touched, has_best;
	int64_t bytes, count, since_ns;
	int64_t best_bytes, best_count, best_ns;
};

struct change {
	int64_t ns, bytes, count;
	size_t level;
};

struct replay {
	sqlite3 *db;
	struct tm_block_scan scan;
	TM_ARRAY(struct stretch) stretches;
	TM_ARRAY(struct level) levels; /* the process first */
	TM_ARRAY(struct change) changes;
	const struct stretch *now;
	sqlite3_stmt *insert;
};

/* Calls take for each row of a query. */
static bool each_row(struct replay *r, char *sql, bool (*take)(struct replay *r, sqlite3_stmt *row)) {
	sqlite3_stmt *row = NULL;
	int step = SQLITE_ERROR;
	if (sql && sqlite3_prepare_v2(r->db, sql, -1, &row, NULL) == SQLITE_OK)
		while ((step = sqlite3_step(row)) == SQLITE_ROW && take(r, row)) {}
	sqlite3_finalize(row);
	sqlite3_free(sql);
	return step == SQLITE_DONE;
}

/* The last column says whether the rows alone tell how many blocks there were. */
static bool take_stretch(struct replay *r, sqlite3_stmt *row) {
	int64_t values[11];
	for (int i = 0; i < 11; i++) values[i] = sqlite3_column_int64(row, i);
	struct stretch *s = sqlite3_column_int64(row, 11) ? tm_array_push(&r->stretches) : NULL;
	if (!s) return false;
	*s = (struct stretch){ values[0], values[1], values[2], values[3], values[4], values[5],
			       values[6], values[7], values[8], values[9], values[10] };
	return true;
}

static bool take_heap(struct replay *r, sqlite3_stmt *row) {
	struct level *l = tm_array_push(&r->levels);
	if (!l) return false;
	*l = (struct level){ .heap = sqlite3_column_int64(row, 0),
			     .is_root = sqlite3_column_int64(row, 1),
			     .bytes = sqlite3_column_int64(row, 2),
			     .count = sqlite3_column_int64(row, 3) };
	return true;
}

/* The heaps, with what was live in them at the checkpoint behind the stretch. */
static bool read_heaps(struct replay *r) {
	const struct stretch *s = r->now;
	r->levels.count = 0;
	if (!tm_array_push(&r->levels)) return false;
	return each_row(
		r,
		sqlite3_mprintf("SELECT h.id, h.is_root, coalesce(sum(k.live_bytes), 0), coalesce(sum(k.live_count), 0) FROM heap AS h"
				" LEFT JOIN checkpoint_stack AS k ON k.checkpoint_id = %lld AND k.heap_id = h.id WHERE h.process_id = %lld"
				" GROUP BY h.id",
				(long long)s->checkpoint, (long long)s->process),
		take_heap);
}

static bool put_change(struct replay *r, int64_t ns, size_t level, int64_t bytes, int64_t count) {
	struct change *c = tm_array_push(&r->changes);
	if (c) *c = (struct change){ ns, bytes, count, level };
	return c;
}

/* Turns the levels at the checkpoint into those at the beginning of the stretch, and notes what changed in it. Rows up to last_id had
 * ended by the checkpoint. */
static bool take_block(void *context, const struct tm_block_row *row) {
	struct replay *r = context;
	const struct stretch *s = r->now;
	if (!row->origin->number || row->alloc_ns >= s->checkpoint_ns) return true;
	struct level *l = &r->levels.items[row->origin->number];
	bool ended = row->id <= s->last_id, later = row->alloc_ns > s->first_ns;
	if (ended && !later && row->free_ns > s->first_ns) {
		l->bytes += row->size_bytes;
		l->count += !tm_block_split_after(&r->scan, row, s->first_ns);
	} else if (!ended && later) {
		l->bytes -= row->size_bytes;
		l->count -= !tm_block_split_after(&r->scan, row, s->checkpoint_ns);
	}
	bool sound = true;
	if (later && row->alloc_ns <= s->last_ns)
		sound = put_change(r, row->alloc_ns, row->origin->number, row->size_bytes,
				   !tm_block_split_after(&r->scan, row, row->alloc_ns));
	if (sound && row->free_ns > s->first_ns && row->free_ns <= s->last_ns)
		sound = put_change(r, row->free_ns, row->origin->number, -row->size_bytes, -1);
	return sound;
}

static bool read_blocks(struct replay *r) {
	const struct stretch *s = r->now;
	struct tm_row_set set = { 0 };
	r->changes.count = 0;
	for (size_t i = 0; i < r->scan.origins.count; i++) {
		struct tm_block_origin *origin = &r->scan.origins.items[i];
		origin->number = 0;
		for (size_t k = 1; k < r->levels.count; k++)
			if (r->levels.items[k].heap == origin->heap && origin->process == s->process) origin->number = k;
	}
	char *listed = sqlite3_mprintf(
		"SELECT r.first_id, r.first_id + r.more FROM checkpoint AS e CROSS JOIN checkpoint_live AS r"
		" ON r.checkpoint_id = e.id AND r.first_id > %lld WHERE e.trace_id = %lld AND e.id BETWEEN %lld AND %lld",
		(long long)s->last_id, (long long)s->trace, (long long)s->first_checkpoint, (long long)s->checkpoint);
	bool done = tm_row_set_open(&set, r->db, s->first_id) && tm_row_set_add_query(&set, r->db, listed);
	if (done) tm_row_set_add(&set, s->first_id, s->last_id);
	done = done && tm_block_scan_set(&r->scan, &set, take_block, r);
	tm_row_set_release(&set);
	sqlite3_free(listed);
	return done;
}

/* --- levels --- */

static int compare_changes(const void *a, const void *b) {
	const struct change *x = a, *y = b;
	return (x->ns > y->ns) - (x->ns < y->ns);
}

/* The level lasted from since_ns until next_ns (INT64_MAX: to the end). */
static void judge(const struct replay *r, struct level *l, int64_t next_ns) {
	const struct stretch *s = r->now;
	if (l->since_ns > s->to_ns || (l->since_ns < s->from_ns && next_ns <= s->from_ns)) return;
	if (l->has_best && l->bytes <= l->best_bytes) return;
	l->has_best = true;
	l->best_bytes = l->bytes;
	l->best_count = l->count;
	l->best_ns = l->since_ns > s->from_ns ? l->since_ns : s->from_ns;
}

/* A level is what all changes of its time have made. */
static void change_level(const struct replay *r, struct level *l, const struct change *c) {
	if (l->touched && c->ns > l->since_ns) judge(r, l, c->ns);
	l->bytes += c->bytes;
	l->count += c->count;
	l->since_ns = c->ns;
	l->touched = true;
}

static bool put_best(struct replay *r, const struct level *l) {
	if (!l->has_best) return true;
	sqlite3_bind_int64(r->insert, 1, r->now->process);
	if (l->heap) sqlite3_bind_int64(r->insert, 2, l->heap);
	else sqlite3_bind_null(r->insert, 2);
	sqlite3_bind_int64(r->insert, 3, l->best_ns);
	sqlite3_bind_int64(r->insert, 4, l->best_bytes);
	sqlite3_bind_int64(r->insert, 5, l->best_count);
	bool done = sqlite3_step(r->insert) == SQLITE_DONE;
	sqlite3_reset(r->insert);
	return done;
}

static bool replay_stretch(struct replay *r) {
	if (!read_heaps(r) || !read_blocks(r)) return false;
	struct level *process = &r->levels.items[0];
	for (size_t i = 1; i < r->levels.count; i++) {
		struct level *l = &r->levels.items[i];
		l->since_ns = r->now->first_ns;
		l->touched = l->bytes || l->count;
		if (!l->is_root) continue;
		process->bytes += l->bytes;
		process->count += l->count;
		process->touched |= l->touched;
	}
	process->since_ns = r->now->first_ns;
	if (r->changes.count) qsort(r->changes.items, r->changes.count, sizeof *r->changes.items, compare_changes);
	for (size_t i = 0; i < r->changes.count; i++) {
		const struct change *c = &r->changes.items[i];
		change_level(r, &r->levels.items[c->level], c);
		if (r->levels.items[c->level].is_root) change_level(r, process, c);
	}
	bool done = true;
	for (size_t i = 0; i < r->levels.count && done; i++) {
		if (r->levels.items[i].touched) judge(r, &r->levels.items[i], INT64_MAX);
		done = put_best(r, &r->levels.items[i]);
	}
	return done;
}

static bool replay_all(struct replay *r) {
	bool done = sqlite3_exec(r->db,
				 "DROP TABLE IF EXISTS temp.window_level;"
				 "CREATE TEMP TABLE window_level(process_id, heap_id, ts_ns, live_bytes, live_count)",
				 NULL, NULL, NULL) == SQLITE_OK &&
		    sqlite3_prepare_v2(r->db, "INSERT INTO temp.window_level VALUES(?,?,?,?,?)", -1, &r->insert, NULL) == SQLITE_OK;
	for (size_t i = 0; i < r->stretches.count && done; i++) {
		r->now = &r->stretches.items[i];
		done = replay_stretch(r);
	}
	return done;
}

/* `peak` lists the same window twice: its levels, then what made them. */
static bool is_there(sqlite3 *db, const char *with) {
	sqlite3_stmt *row = NULL;
	bool there = false;
	if (sqlite3_prepare_v2(db, "SELECT 1 FROM temp.window_told WHERE text = ?", -1, &row, NULL) == SQLITE_OK) {
		sqlite3_bind_text(row, 1, with, -1, SQLITE_STATIC);
		there = sqlite3_step(row) == SQLITE_ROW;
	}
	sqlite3_finalize(row);
	return there;
}

static void remember(sqlite3 *db, const char *with) {
	char *sql = sqlite3_mprintf("DROP TABLE IF EXISTS temp.window_told; CREATE TEMP TABLE window_told AS SELECT %Q AS text", with);
	if (sql) sqlite3_exec(db, sql, NULL, NULL, NULL);
	sqlite3_free(sql);
}

bool tm_window_replay(const struct tm_database *d, const char *with) {
	struct replay r = { .db = d->handle };
	if (with && is_there(d->handle, with)) return true;
	char *sql = sqlite3_mprintf(
		"WITH %s no_more AS (SELECT 1)\n"
		"SELECT s.process_id, s.trace_id, s.first_ns, s.last_ns, s.first_checkpoint, s.checkpoint_id, s.last_id, s.first_id,"
		" b.from_ns, b.to_ns, c.ts_ns, s.simple FROM stretch AS s JOIN bound AS b ON b.process_id = s.process_id"
		" JOIN checkpoint AS c ON c.id = s.checkpoint_id",
		with ? with : "");
	bool done = tm_block_scan_open(&r.scan, r.db, TM_BLOCKS_ALL) && each_row(&r, sql, take_stretch) && replay_all(&r);
	sqlite3_finalize(r.insert);
	tm_block_scan_release(&r.scan);
	tm_array_release(&r.stretches);
	tm_array_release(&r.levels);
	tm_array_release(&r.changes);
	if (done && with) remember(d->handle, with);
	return done;
}
