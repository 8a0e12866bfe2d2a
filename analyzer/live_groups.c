/* live_groups.c - what was live at instants, added up by a hash; see live_groups.h. */
#include "live_groups.h"

#include "block_scan.h"
#include "scans.h"

#define LARGEST_CLASS_BYTES ((int64_t)1 << 30)
#define SMALL_BYTES 16
#define YOUNG_NS 1000000
#define AGE_CLASSES 7
#define SCOPES_MAX ((int64_t)1 << 22)

/* The instant of a heap. */
struct moment {
	int64_t process, heap, at_ns, checkpoint, trace, from_ns, to_ns;
};

struct group {
	int64_t process, heap, key, bytes, count;
};

/* Which frame is the site of a stack: looked up once for each stack that is met. */
struct site_finder {
	sqlite3_stmt *look_up;
	uint32_t *frames; /* by stack: 1 + its site, 1 where it has none, 0 not looked up yet */
	int64_t stack_count;
};

struct grouping {
	const struct tm_options *o;
	enum tm_by by;
	struct tm_block_scan *scan;
	TM_ARRAY(struct moment) moments;
	TM_ARRAY(struct group) groups;
	struct tm_id_map ids;        /* heap, key -> index + 1 */
	TM_ARRAY(uint32_t) named_as; /* by scope: the first one of its name and category */
	int64_t checkpoint;          /* the one whose rows are read */
	struct site_finder sites;    /* by site */
};

int64_t tm_size_class(int64_t size_bytes) {
	if (size_bytes < SMALL_BYTES) return 0;
	if (size_bytes >= LARGEST_CLASS_BYTES) return LARGEST_CLASS_BYTES;
	return (int64_t)1 << (63 - __builtin_clzll((unsigned long long)size_bytes));
}

int64_t tm_age_class(int64_t age_ns) {
	int64_t limit = YOUNG_NS, n = 0;
	for (; n < AGE_CLASSES && age_ns >= limit; n++) limit *= 10;
	return n;
}

static bool open_sites(struct site_finder *f, sqlite3 *db) {
	sqlite3_stmt *row = NULL;
	if (sqlite3_prepare_v2(db, "SELECT site_frame_id FROM main.stack WHERE id = ?", -1, &f->look_up, NULL) != SQLITE_OK) return false;
	if (sqlite3_prepare_v2(db, "SELECT max(id) + 1 FROM main.stack", -1, &row, NULL) == SQLITE_OK && sqlite3_step(row) == SQLITE_ROW)
		f->stack_count = sqlite3_column_int64(row, 0);
	sqlite3_finalize(row);
	if (f->stack_count > 0 && f->stack_count <= UINT32_MAX) f->frames = calloc((size_t)f->stack_count, sizeof(*f->frames));
	return f->frames != NULL;
}

static void close_sites(struct site_finder *f) {
	sqlite3_finalize(f->look_up);
	free(f->frames);
}

/* 0: there is none. */
static int64_t site_of(struct site_finder *f, int64_t stack) {
	if (stack < 0 || stack >= f->stack_count) return 0;
	uint32_t *frame = &f->frames[stack];
	if (!*frame) {
		sqlite3_bind_int64(f->look_up, 1, stack);
		*frame = 1 + (sqlite3_step(f->look_up) == SQLITE_ROW ? (uint32_t)sqlite3_column_int64(f->look_up, 0) : 0);
		sqlite3_reset(f->look_up);
	}
	return *frame - 1;
}

static int64_t key_of(struct grouping *g, const struct tm_block_row *row, const struct moment *m) {
	switch (g->by) {
	case TM_BY_SCOPE: return (size_t)row->scope < g->named_as.count ? g->named_as.items[row->scope] : row->scope;
	case TM_BY_THREAD: return row->origin->thread;
	case TM_BY_SIZE: return tm_size_class(row->size_bytes);
	case TM_BY_HEAP: return 0;
	case TM_BY_SITE: return site_of(&g->sites, row->stack);
	case TM_BY_AGE: return tm_age_class(m->at_ns - row->alloc_ns);
	default: return row->stack;
	}
}

static bool in_window(const struct grouping *g, const struct tm_block_row *row, const struct moment *m) {
	return (g->o->from.kind == TM_TIME_UNSET || row->alloc_ns >= m->from_ns) &&
	       (g->o->to.kind == TM_TIME_UNSET || row->alloc_ns <= m->to_ns);
}

/* --- instants --- */

static int64_t time_or(sqlite3_stmt *row, int column, int64_t otherwise) {
	return sqlite3_column_type(row, column) == SQLITE_NULL ? otherwise : sqlite3_column_int64(row, column);
}

/* An instant without a checkpoint behind it has nothing live; one heap has one instant. */
static bool read_moments(struct grouping *g, const char *with, const char *instants) {
	sqlite3_stmt *row = NULL;
	int step = SQLITE_ERROR;
	const char *from = g->o->from.kind == TM_TIME_UNSET ? "NULL" : "i.from_ns",
		   *to = g->o->to.kind == TM_TIME_UNSET ? "NULL" : "i.to_ns";
	char *sql = sqlite3_mprintf(
		"WITH %s no_more AS (SELECT 1)\n"
		"SELECT i.process_id, i.heap_id, i.at_ns, (SELECT min(c.id) FROM checkpoint AS c WHERE c.trace_id = p.trace_id AND"
		" c.ts_ns > i.at_ns) AS checkpoint_id, p.trace_id, %s, %s\n"
		"FROM %s AS i JOIN process AS p ON p.id = i.process_id WHERE i.at_ns <= i.end_ns AND checkpoint_id IS NOT NULL"
		" AND coalesce(%Q = (SELECT h.name FROM heap AS h WHERE h.id = i.heap_id), true) ORDER BY i.heap_id",
		with, from, to, instants, g->o->heap);
	if (sql && sqlite3_prepare_v2(g->scan->db, sql, -1, &row, NULL) == SQLITE_OK)
		while ((step = sqlite3_step(row)) == SQLITE_ROW) {
			int64_t heap = sqlite3_column_int64(row, 1);
			bool again = g->moments.count && g->moments.items[g->moments.count - 1].heap == heap;
			struct moment *m = again ? NULL : tm_array_push(&g->moments);
			if (!m) break;
			*m = (struct moment){
				.process = sqlite3_column_int64(row, 0),
				.heap = heap,
				.at_ns = sqlite3_column_int64(row, 2),
				.checkpoint = sqlite3_column_int64(row, 3),
				.trace = sqlite3_column_int64(row, 4),
				.from_ns = time_or(row, 5, INT64_MAX),
				.to_ns = time_or(row, 6, INT64_MIN),
			};
		}
	sqlite3_finalize(row);
	sqlite3_free(sql);
	return step == SQLITE_DONE;
}

static bool number_origins(struct grouping *g) {
	return !g->moments.count || tm_block_scan_number(g->scan, &g->moments.items->heap, g->moments.count, sizeof *g->moments.items);
}

static struct group *group_of(struct grouping *g, const struct group *like) {
	uint64_t *id = tm_id_map_put(&g->ids, (uint64_t)like->heap, (uint64_t)like->key);
	struct group *group = id && *id ? &g->groups.items[*id - 1] : id ? tm_array_push(&g->groups) : NULL;
	if (group && !*id) {
		*id = g->groups.count;
		*group = (struct group){ like->process, like->heap, like->key, 0, 0 };
	}
	return group;
}

static bool add_row(void *context, const struct tm_block_row *row) {
	struct grouping *g = context;
	if (!row->origin->number) return true;
	const struct moment *m = &g->moments.items[row->origin->number - 1];
	if (m->checkpoint != g->checkpoint || row->alloc_ns > m->at_ns || row->free_ns <= m->at_ns || !in_window(g, row, m)) return true;
	struct group *group = group_of(g, &(struct group){ m->process, m->heap, key_of(g, row, m), 0, 0 });
	if (!group) return false;
	group->count += !tm_block_split_after(g->scan, row, m->at_ns);
	return !__builtin_add_overflow(group->bytes, row->size_bytes, &group->bytes);
}

static bool add_groups(struct grouping *g, const struct grouping *other) {
	for (size_t i = 0; i < other->groups.count; i++) {
		struct group *group = group_of(g, &other->groups.items[i]);
		if (!group || __builtin_add_overflow(group->bytes, other->groups.items[i].bytes, &group->bytes)) return false;
		group->count += other->groups.items[i].count;
	}
	return true;
}

/* By two threads, whose groups are added. Without a second connection by one. */
static bool scan_large(struct grouping *g, const struct tm_row_set *set) {
	struct tm_block_scan again = { 0 };
	struct grouping other = { .o = g->o, .by = g->by, .scan = &again, .checkpoint = g->checkpoint };
	other.moments.items = g->moments.items;
	other.moments.count = g->moments.count;
	other.named_as.items = g->named_as.items;
	other.named_as.count = g->named_as.count;
	bool done = tm_block_scan_again(&again, g->scan, TM_BLOCKS_ALL) && (g->by != TM_BY_SITE || open_sites(&other.sites, again.db))
			    ? tm_block_scan_halves((struct tm_block_scan *[2]){ g->scan, &again }, set, add_row,
						   (void *[2]){ g, &other }) &&
				      add_groups(g, &other)
			    : tm_block_scan_set(g->scan, set, add_row, g);
	close_sites(&other.sites);
	tm_block_scan_release(&again);
	tm_array_release(&other.groups);
	tm_id_map_release(&other.ids);
	return done;
}

/* All rows that can have been live at instants that one checkpoint follows. */
static bool read_rows(struct grouping *g, const struct moment *m) {
	struct tm_row_set set = { 0 };
	char *span = sqlite3_mprintf(
		"SELECT coalesce((SELECT b.allocation_id FROM checkpoint AS b WHERE b.id = c.id - 1 AND b.trace_id = c.trace_id),"
		" c.allocation_id) + 1, c.allocation_id FROM checkpoint AS c WHERE c.id = %lld",
		(long long)m->checkpoint);
	char *listed = sqlite3_mprintf(
		"SELECT r.first_id, r.first_id + r.more FROM checkpoint AS e CROSS JOIN checkpoint_live AS r ON r.checkpoint_id = e.id"
		" AND r.first_id > (SELECT c.allocation_id FROM checkpoint AS c WHERE c.id = %lld) WHERE e.trace_id = %lld AND e.id <= %lld",
		(long long)m->checkpoint, (long long)m->trace, (long long)m->checkpoint);
	g->checkpoint = m->checkpoint;
	bool done = span && listed && tm_row_set_open(&set, g->scan->db, 0) && tm_row_set_add_query(&set, g->scan->db, span) &&
		    tm_row_set_add_query(&set, g->scan->db, listed) &&
		    (tm_row_set_is_large(&set) ? scan_large(g, &set) : tm_block_scan_set(g->scan, &set, add_row, g));
	tm_row_set_release(&set);
	sqlite3_free(span);
	sqlite3_free(listed);
	return done;
}

static bool read_all(struct grouping *g) {
	TM_ARRAY(int64_t) done = { 0 };
	bool sound = true;
	for (size_t i = 0; i < g->moments.count && sound; i++) {
		bool again = false;
		for (size_t k = 0; k < done.count && !again; k++) again = done.items[k] == g->moments.items[i].checkpoint;
		int64_t *one = again ? NULL : tm_array_push(&done);
		if (one) *one = g->moments.items[i].checkpoint;
		if (!again) sound = one && read_rows(g, &g->moments.items[i]);
	}
	tm_array_release(&done);
	return sound;
}

/* --- scopes --- */

/* Scopes of one name and category are added up, and named, as the first one of them: SQL would have to do that with a row for each scope.
 * Where there are very many, each remains itself, and SQL does it. */
static bool read_scopes(struct grouping *g) {
	struct tm_id_map names = { 0 };
	sqlite3_stmt *row = NULL;
	int step = SQLITE_ERROR;
	if (sqlite3_prepare_v2(g->scan->db,
			       "SELECT id, name_id, category_id FROM main.scope_packed WHERE (SELECT max(id) FROM main.scope_packed) < ?",
			       -1, &row, NULL) != SQLITE_OK)
		return false;
	sqlite3_bind_int64(row, 1, SCOPES_MAX);
	while ((step = sqlite3_step(row)) == SQLITE_ROW) {
		int64_t id = sqlite3_column_int64(row, 0);
		uint64_t *first = tm_id_map_put(&names, (uint64_t)sqlite3_column_int64(row, 1), (uint64_t)sqlite3_column_int64(row, 2));
		if (!first || id < 0 || !tm_array_extend(&g->named_as, (size_t)id + 1)) break;
		if (!*first) *first = (uint64_t)id + 1;
		g->named_as.items[id] = (uint32_t)*first - 1;
	}
	sqlite3_finalize(row);
	tm_id_map_release(&names);
	return step == SQLITE_DONE;
}

/* --- the table --- */

static bool fill(const struct grouping *g, sqlite3_stmt *insert) {
	for (size_t i = 0; i < g->groups.count; i++) {
		const struct group *group = &g->groups.items[i];
		const int64_t values[] = { group->process, group->heap, group->key, group->bytes, group->count };
		for (int k = 0; k < 5; k++) sqlite3_bind_int64(insert, k + 1, values[k]);
		if (sqlite3_step(insert) != SQLITE_DONE) return false;
		sqlite3_reset(insert);
	}
	return true;
}

static bool make_table(const struct grouping *g, const char *table, const char *key) {
	sqlite3 *db = g->scan->db;
	sqlite3_stmt *insert = NULL;
	char *create = sqlite3_mprintf(
		"DROP TABLE IF EXISTS temp.%s; CREATE TEMP TABLE %s(process_id INTEGER, heap_id INTEGER, %s, live_bytes INTEGER, live_count INTEGER)",
		table, table, key);
	char *row = sqlite3_mprintf("INSERT INTO temp.%s VALUES(?,?,?,?,?)", table);
	bool made = create && row && sqlite3_exec(db, create, NULL, NULL, NULL) == SQLITE_OK;
	bool filled = made && sqlite3_prepare_v2(db, row, -1, &insert, NULL) == SQLITE_OK && fill(g, insert);
	sqlite3_finalize(insert);
	sqlite3_free(create);
	sqlite3_free(row);
	if (filled) return true;
	char *drop = sqlite3_mprintf("DROP TABLE IF EXISTS temp.%s", table);
	if (drop) sqlite3_exec(db, drop, NULL, NULL, NULL);
	sqlite3_free(drop);
	return false;
}

bool tm_live_groups_make(const struct tm_database *d, const char *with, const char *instants, const struct tm_options *o, enum tm_by by,
			 const char *table, const char *key) {
	struct tm_block_scan scan;
	struct grouping g = { .o = o, .by = by, .scan = &scan };
	bool done = tm_block_scan_open(&scan, d->handle, TM_BLOCKS_ALL) && with && read_moments(&g, with, instants);
	if (done) {
		done = number_origins(&g) && (by != TM_BY_SCOPE || read_scopes(&g)) &&
		       (by != TM_BY_SITE || open_sites(&g.sites, d->handle)) && read_all(&g) && make_table(&g, table, key);
	}
	close_sites(&g.sites);
	tm_block_scan_release(&scan);
	tm_array_release(&g.moments);
	tm_array_release(&g.named_as);
	tm_array_release(&g.groups);
	tm_id_map_release(&g.ids);
	return done;
}
