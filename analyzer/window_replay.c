/* window_replay.c - the highest levels at the edges of a window, replayed; see window_replay.h. */
#include "window_replay.h"

#include "block_scan.h"

/* A stretch of time of a process, and where its rows lie. */
struct stretch {
	int64_t process, trace, first_ns, last_ns, first_checkpoint, checkpoint, last_id, first_id, from_ns, to_ns, checkpoint_ns;
	bool has_stacks;    /* checkpoint_stack says what was live at the checkpoint, else its rows do */
	size_t first_level; /* of the process; those of its heaps follow */
};

/* A heap's level, or that of the process. */
struct level {
	int64_t heap; /* 0: the process */
	size_t stretch;
	bool is_root, touched, has_best;
	int64_t bytes, count, since_ns;
	int64_t best_bytes, best_count, best_ns;
};

struct change {
	int64_t ns, bytes, count;
	size_t level;
};

/* The levels of a heap, one for each stretch of its process; 0: no other one. */
struct place {
	size_t levels[2];
};

/* Rows behind last_id that checkpoints of a trace, up to this one, list. */
struct listed {
	int64_t trace, first_checkpoint, checkpoint, last_id;
};

struct replay {
	sqlite3 *db;
	struct tm_block_scan scan;
	TM_ARRAY(struct stretch) stretches;
	TM_ARRAY(struct level) levels;
	TM_ARRAY(struct change) changes;
	TM_ARRAY(struct place) places;
	TM_ARRAY(struct listed) listed;
	struct tm_id_map place_ids;  /* process, heap -> index + 1 */
	struct tm_id_map listed_ids; /* checkpoint -> index + 1 */
	sqlite3_stmt *heaps, *insert;
};

static bool take_stretch(struct replay *r, sqlite3_stmt *row) {
	int64_t values[11];
	for (int i = 0; i < 11; i++) values[i] = sqlite3_column_int64(row, i);
	struct stretch *s = tm_array_push(&r->stretches);
	if (!s) return false;
	*s = (struct stretch){ values[0], values[1], values[2], values[3], values[4],  values[5],
			       values[6], values[7], values[8], values[9], values[10], sqlite3_column_int(row, 11), 0 };
	return true;
}

static bool read_stretches(struct replay *r, const char *with) {
	sqlite3_stmt *row = NULL;
	int step = SQLITE_ERROR;
	char *sql = sqlite3_mprintf(
		"WITH %s no_more AS (SELECT 1)\n"
		"SELECT s.process_id, s.trace_id, s.first_ns, s.last_ns, s.first_checkpoint, s.checkpoint_id, s.last_id, s.first_id,"
		" b.from_ns, b.to_ns, c.ts_ns, s.simple FROM stretch AS s JOIN bound AS b ON b.process_id = s.process_id"
		" JOIN checkpoint AS c ON c.id = s.checkpoint_id",
		with ? with : "");
	if (sql && sqlite3_prepare_v2(r->db, sql, -1, &row, NULL) == SQLITE_OK)
		while ((step = sqlite3_step(row)) == SQLITE_ROW && take_stretch(r, row)) {}
	sqlite3_finalize(row);
	sqlite3_free(sql);
	return step == SQLITE_DONE;
}

/* --- rows --- */

static bool add_place(struct replay *r, int64_t process, int64_t heap, size_t level) {
	uint64_t *id = tm_id_map_put(&r->place_ids, (uint64_t)process, (uint64_t)heap);
	struct place *p = id && *id ? &r->places.items[*id - 1] : id ? tm_array_push(&r->places) : NULL;
	if (!p) return false;
	if (!*id) *id = r->places.count;
	p->levels[p->levels[0] != 0] = level;
	return true;
}

/* The heaps, with what was live in them at the checkpoint behind the stretch, if that is said. */
static bool read_heaps(struct replay *r, struct stretch *s) {
	size_t index = (size_t)(s - r->stretches.items);
	int step;
	struct level *l = tm_array_push(&r->levels);
	if (!l) return false;
	*l = (struct level){ .stretch = index, .since_ns = s->first_ns };
	s->first_level = r->levels.count - 1;
	if (s->has_stacks) sqlite3_bind_int64(r->heaps, 1, s->checkpoint);
	else sqlite3_bind_null(r->heaps, 1);
	sqlite3_bind_int64(r->heaps, 2, s->process);
	while ((step = sqlite3_step(r->heaps)) == SQLITE_ROW && (l = tm_array_push(&r->levels)) != NULL) {
		*l = (struct level){ .heap = sqlite3_column_int64(r->heaps, 0),
				     .stretch = index,
				     .is_root = sqlite3_column_int64(r->heaps, 1),
				     .bytes = sqlite3_column_int64(r->heaps, 2),
				     .count = sqlite3_column_int64(r->heaps, 3),
				     .since_ns = s->first_ns };
		if (!add_place(r, s->process, l->heap, r->levels.count - 1)) break;
	}
	sqlite3_reset(r->heaps);
	return step == SQLITE_DONE;
}

static bool read_levels(struct replay *r) {
	bool done = sqlite3_prepare_v2(r->db,
				       "SELECT h.id, h.is_root, coalesce(sum(k.live_bytes), 0), coalesce(sum(k.live_count), 0) FROM heap AS h"
				       " LEFT JOIN checkpoint_stack AS k ON k.checkpoint_id = ? AND k.heap_id = h.id WHERE h.process_id = ?"
				       " GROUP BY h.id",
				       -1, &r->heaps, NULL) == SQLITE_OK;
	for (size_t i = 0; i < r->stretches.count && done; i++) done = read_heaps(r, &r->stretches.items[i]);
	for (size_t i = 0; i < r->scan.origins.count; i++) {
		struct tm_block_origin *origin = &r->scan.origins.items[i];
		uint64_t *id = tm_id_map_find(&r->place_ids, (uint64_t)origin->process, (uint64_t)origin->heap);
		origin->number = id ? *id : 0;
	}
	return done;
}

static bool put_change(struct replay *r, int64_t ns, size_t level, int64_t bytes, int64_t count) {
	struct change *c = tm_array_push(&r->changes);
	if (c) *c = (struct change){ ns, bytes, count, level };
	return c;
}

/* Makes the level that of the beginning of the stretch: by what was live then or, from the level at the checkpoint behind it, by what
 * ended and began in between (rows up to last_id had ended by the checkpoint); and notes what changed in the stretch. */
static bool change_by(struct replay *r, const struct tm_block_row *row, size_t level, int64_t parted_ns) {
	struct level *l = &r->levels.items[level];
	const struct stretch *s = &r->stretches.items[l->stretch];
	bool ended = row->id <= s->last_id, later = row->alloc_ns > s->first_ns;
	if (row->alloc_ns >= s->checkpoint_ns) return true;
	if ((ended || !s->has_stacks) && !later && row->free_ns > s->first_ns) {
		l->bytes += row->size_bytes;
		l->count += parted_ns <= s->first_ns;
	} else if (s->has_stacks && !ended && later) {
		l->bytes -= row->size_bytes;
		l->count -= parted_ns <= s->checkpoint_ns;
	}
	bool sound = true;
	if (later && row->alloc_ns <= s->last_ns) sound = put_change(r, row->alloc_ns, level, row->size_bytes, parted_ns <= row->alloc_ns);
	if (sound && row->free_ns > s->first_ns && row->free_ns <= s->last_ns)
		sound = put_change(r, row->free_ns, level, -row->size_bytes, -1);
	if (sound && parted_ns > row->alloc_ns && parted_ns > s->first_ns && parted_ns <= s->last_ns)
		sound = put_change(r, parted_ns, level, 0, 1);
	return sound;
}

static bool take_block(void *context, const struct tm_block_row *row) {
	struct replay *r = context;
	if (!row->origin->number) return true;
	const struct place *p = &r->places.items[row->origin->number - 1];
	int64_t parted_ns = tm_block_parted_ns(&r->scan, row);
	return change_by(r, row, p->levels[0], parted_ns) && (!p->levels[1] || change_by(r, row, p->levels[1], parted_ns));
}

/* Where stacks are said, the levels at the checkpoint behind the stretch are known, and what they were made of is not read. */
static bool list_behind(struct replay *r, const struct stretch *s) {
	int64_t first = s->has_stacks ? s->first_checkpoint : 0;
	uint64_t *id = tm_id_map_put(&r->listed_ids, (uint64_t)s->checkpoint, 0);
	struct listed *l = id && *id ? &r->listed.items[*id - 1] : id ? tm_array_push(&r->listed) : NULL;
	if (!l) return false;
	if (!*id) *l = (struct listed){ s->trace, first, s->checkpoint, s->last_id };
	if (first < l->first_checkpoint) l->first_checkpoint = first;
	*id = (uint64_t)(l - r->listed.items) + 1;
	return true;
}

static bool add_listed(struct tm_row_set *set, sqlite3 *db, const struct listed *l) {
	char *sql = sqlite3_mprintf("SELECT r.first_id, r.first_id + r.more FROM checkpoint AS e CROSS JOIN checkpoint_live AS r"
				    " ON r.checkpoint_id = e.id AND r.first_id > %lld WHERE e.trace_id = %lld AND e.id BETWEEN %lld AND %lld",
				    (long long)l->last_id, (long long)l->trace, (long long)l->first_checkpoint, (long long)l->checkpoint);
	bool done = tm_row_set_add_query(set, db, sql);
	sqlite3_free(sql);
	return done;
}

/* All rows of all stretches, once: those of several processes lie between each other. */
static bool read_blocks(struct replay *r) {
	struct tm_row_set set = { 0 };
	int64_t first_id = INT64_MAX;
	bool done = true;
	for (size_t i = 0; i < r->stretches.count && done; i++) {
		if (r->stretches.items[i].first_id < first_id) first_id = r->stretches.items[i].first_id;
		done = list_behind(r, &r->stretches.items[i]);
	}
	if (!r->stretches.count) return done;
	done = done && tm_row_set_open(&set, r->db, first_id);
	for (size_t i = 0; i < r->stretches.count && done; i++)
		tm_row_set_add(&set, r->stretches.items[i].first_id, r->stretches.items[i].last_id);
	for (size_t i = 0; i < r->listed.count && done; i++) done = add_listed(&set, r->db, &r->listed.items[i]);
	done = done && tm_block_scan_set(&r->scan, &set, take_block, r);
	tm_row_set_release(&set);
	return done;
}

/* --- levels --- */

static int compare_changes(const void *a, const void *b) {
	const struct change *x = a, *y = b;
	return (x->ns > y->ns) - (x->ns < y->ns);
}

/* The level lasted from since_ns until next_ns (INT64_MAX: to the end). */
static void judge(const struct replay *r, struct level *l, int64_t next_ns) {
	const struct stretch *s = &r->stretches.items[l->stretch];
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

static struct level *level_of_process(const struct replay *r, const struct level *l) {
	return &r->levels.items[r->stretches.items[l->stretch].first_level];
}

static void add_up_processes(struct replay *r) {
	for (size_t i = 0; i < r->levels.count; i++) {
		struct level *l = &r->levels.items[i], *process = level_of_process(r, l);
		if (!l->heap) continue;
		l->touched = l->bytes || l->count;
		if (!l->is_root) continue;
		process->bytes += l->bytes;
		process->count += l->count;
		process->touched |= l->touched;
	}
}

static bool put_best(struct replay *r, const struct level *l) {
	if (!l->has_best) return true;
	sqlite3_bind_int64(r->insert, 1, r->stretches.items[l->stretch].process);
	if (l->heap) sqlite3_bind_int64(r->insert, 2, l->heap);
	else sqlite3_bind_null(r->insert, 2);
	sqlite3_bind_int64(r->insert, 3, l->best_ns);
	sqlite3_bind_int64(r->insert, 4, l->best_bytes);
	sqlite3_bind_int64(r->insert, 5, l->best_count);
	bool done = sqlite3_step(r->insert) == SQLITE_DONE;
	sqlite3_reset(r->insert);
	return done;
}

static void replay_changes(struct replay *r) {
	add_up_processes(r);
	if (r->changes.count) qsort(r->changes.items, r->changes.count, sizeof *r->changes.items, compare_changes);
	for (size_t i = 0; i < r->changes.count; i++) {
		const struct change *c = &r->changes.items[i];
		struct level *l = &r->levels.items[c->level];
		change_level(r, l, c);
		if (l->is_root) change_level(r, level_of_process(r, l), c);
	}
}

static bool make_table(struct replay *r) {
	bool done = sqlite3_exec(r->db,
				 "DROP TABLE IF EXISTS temp.window_level;"
				 "CREATE TEMP TABLE window_level(process_id, heap_id, ts_ns, live_bytes, live_count)",
				 NULL, NULL, NULL) == SQLITE_OK &&
		    sqlite3_prepare_v2(r->db, "INSERT INTO temp.window_level VALUES(?,?,?,?,?)", -1, &r->insert, NULL) == SQLITE_OK;
	for (size_t i = 0; i < r->levels.count && done; i++) {
		struct level *l = &r->levels.items[i];
		if (l->touched) judge(r, l, INT64_MAX);
		done = put_best(r, l);
	}
	return done;
}

bool tm_window_is_told(sqlite3 *db, const char *with) {
	sqlite3_stmt *row = NULL;
	bool there = false;
	if (sqlite3_prepare_v2(db, "SELECT 1 FROM temp.window_told WHERE text = ?", -1, &row, NULL) == SQLITE_OK) {
		sqlite3_bind_text(row, 1, with, -1, SQLITE_STATIC);
		there = sqlite3_step(row) == SQLITE_ROW;
	}
	sqlite3_finalize(row);
	return there;
}

void tm_window_tell(sqlite3 *db, const char *with) {
	char *sql = sqlite3_mprintf("DROP TABLE IF EXISTS temp.window_told; CREATE TEMP TABLE window_told AS SELECT %Q AS text", with);
	if (sql) sqlite3_exec(db, sql, NULL, NULL, NULL);
	sqlite3_free(sql);
}

bool tm_window_replay(const struct tm_database *d, const char *with) {
	struct replay r = { .db = d->handle };
	if (with && tm_window_is_told(d->handle, with)) return true;
	bool done = tm_block_scan_open(&r.scan, r.db, TM_BLOCKS_ALL) && read_stretches(&r, with) && read_levels(&r) && read_blocks(&r);
	if (done) {
		replay_changes(&r);
		done = make_table(&r);
	}
	sqlite3_finalize(r.heaps);
	sqlite3_finalize(r.insert);
	tm_block_scan_release(&r.scan);
	tm_array_release(&r.stretches);
	tm_array_release(&r.levels);
	tm_array_release(&r.changes);
	tm_array_release(&r.places);
	tm_array_release(&r.listed);
	tm_id_map_release(&r.place_ids);
	tm_id_map_release(&r.listed_ids);
	if (done && with) tm_window_tell(d->handle, with);
	return done;
}
