/* scope_blocks.c - sums of sampled blocks by scope; see scope_blocks.h. */
#include "scope_blocks.h"

#include "../schema/array.h"
#include "id_map.h"

#define ALLOCATED(of, self) \
	{ of "_allocated", TM_SCOPE_ALLOCATED, TM_SCOPE_BYTES, self }, \
		{ of "_allocated_variance", TM_SCOPE_ALLOCATED, TM_SCOPE_VARIANCE, self }, { \
		of "_allocated_count_variance", TM_SCOPE_ALLOCATED, TM_SCOPE_COUNT_VARIANCE, self \
	}
#define FREED(of, self) \
	{ of "_freed", TM_SCOPE_FREED, TM_SCOPE_BYTES, self }, { of "_freed_variance", TM_SCOPE_FREED, TM_SCOPE_VARIANCE, self }, { \
		of "_freed_count_variance", TM_SCOPE_FREED, TM_SCOPE_COUNT_VARIANCE, self \
	}

const struct tm_scope_sum tm_scope_sums[TM_SCOPE_SUMS] = {
	ALLOCATED("self", true),
	ALLOCATED("total", false),
	FREED("self", true),
	FREED("total", false),
	{ "self_both_variance", TM_SCOPE_BOTH, TM_SCOPE_VARIANCE, true },
	{ "total_both_variance", TM_SCOPE_BOTH, TM_SCOPE_VARIANCE, false },
	{ "own_freed", TM_SCOPE_OWN_FREED, TM_SCOPE_BYTES, false },
	{ "own_freed_variance", TM_SCOPE_OWN_FREED, TM_SCOPE_VARIANCE, false },
	{ "retained", TM_SCOPE_RETAINED, TM_SCOPE_BYTES, false },
	{ "retained_variance", TM_SCOPE_RETAINED, TM_SCOPE_VARIANCE, false },
};

/* Scopes and keys by number, 0 none. */
struct scope {
	int64_t end_ns; /* INT64_MIN: it has none */
	size_t parent, key;
};

struct key {
	int64_t scope;
	uint64_t made_by, freed_by; /* the last block that came by here */
	int64_t end_ns;             /* of the outermost scope around that block */
	bool is_self;
};

struct totals {
	int64_t heap;
	size_t key;
	double sums[TM_SCOPE_WHATS][2][TM_SCOPE_MEASURES]; /* total, self */
};

struct block {
	int64_t heap, free_ns;
	bool is_freed;
	double measures[TM_SCOPE_MEASURES];
};

struct walk {
	TM_ARRAY(struct scope) scopes;
	TM_ARRAY(struct key) keys;
	TM_ARRAY(size_t) around; /* keys around one block */
	TM_ARRAY(struct totals) totals;
	struct tm_id_map scope_ids, ids; /* ids: heap, key -> index + 1 */
	uint64_t blocks;
	bool failed;
};

/* --- scopes --- */

static size_t scope_of(const struct walk *w, int64_t id) {
	const uint64_t *number = tm_id_map_find(&w->scope_ids, (uint64_t)id, 0);
	return number ? (size_t)*number : 0;
}

static bool add_scope(struct walk *w, sqlite3_stmt *row) {
	int64_t id = sqlite3_column_int64(row, 0);
	uint64_t *number = tm_id_map_put(&w->scope_ids, (uint64_t)id, 0);
	struct scope *s = number ? tm_array_push(&w->scopes) : NULL;
	if (!s) return false;
	*number = w->scopes.count - 1;
	*s = (struct scope){ .end_ns = sqlite3_column_type(row, 1) == SQLITE_NULL ? INT64_MIN : sqlite3_column_int64(row, 1),
			     .key = (size_t)sqlite3_column_int64(row, 3) };
	/* Who is around has a lower id, and came before. */
	if (sqlite3_column_type(row, 2) != SQLITE_NULL) s->parent = scope_of(w, sqlite3_column_int64(row, 2));
	while (w->keys.count <= s->key)
		if (!tm_array_push(&w->keys)) return false;
	w->keys.items[s->key].scope = id;
	return true;
}

static bool read_scopes(struct walk *w, const struct tm_database *d, const char *schema, const char *keys) {
	sqlite3_stmt *row = NULL;
	int step = SQLITE_ERROR;
	char *sql = sqlite3_mprintf("SELECT s.id, s.end_ns, s.parent_id, coalesce(k.number, 0) FROM %s.scope_packed AS s\n"
				    "LEFT JOIN (%s) AS k ON k.id = s.id ORDER BY s.id",
				    schema, keys);
	bool begun = sql && tm_array_push(&w->scopes) && tm_array_push(&w->keys); /* number 0 */
	if (begun && sqlite3_prepare_v2(d->handle, sql, -1, &row, NULL) == SQLITE_OK)
		while ((step = sqlite3_step(row)) == SQLITE_ROW && add_scope(w, row)) {}
	sqlite3_finalize(row);
	sqlite3_free(sql);
	return step == SQLITE_DONE;
}

/* --- blocks --- */

static void add(struct walk *w, const struct block *b, size_t key, enum tm_scope_what what, bool is_self) {
	uint64_t *index = tm_id_map_put(&w->ids, (uint64_t)b->heap, key);
	if (index && !*index) {
		struct totals *added = tm_array_push(&w->totals);
		*index = w->totals.count + !added; /* a value of 0 may not stay */
		if (added) *added = (struct totals){ .heap = b->heap, .key = key };
		if (!added) index = NULL;
	}
	if (!index) {
		w->failed = true;
		return;
	}
	struct totals *t = &w->totals.items[*index - 1];
	for (int i = 0; i < TM_SCOPE_MEASURES; i++) {
		t->sums[what][0][i] += b->measures[i];
		if (is_self) t->sums[what][1][i] += b->measures[i];
	}
}

/* The keys around a scope, each once, with the end of its outermost scope. */
static void walk_outward(struct walk *w, size_t first, bool is_freed) {
	w->around.count = 0;
	for (size_t i = first; i; i = w->scopes.items[i].parent) {
		const struct scope *s = &w->scopes.items[i];
		struct key *k = &w->keys.items[s->key];
		uint64_t *by = is_freed ? &k->freed_by : &k->made_by;
		if (!s->key) continue;
		if (*by != w->blocks) {
			size_t *place = tm_array_push(&w->around);
			if (!place) {
				w->failed = true;
				return;
			}
			*place = s->key;
			*by = w->blocks;
			if (!is_freed) k->is_self = i == first;
		}
		if (!is_freed) k->end_ns = s->end_ns;
	}
}

static void take_made(struct walk *w, const struct block *b, size_t scope) {
	walk_outward(w, scope, false);
	for (size_t i = 0; i < w->around.count && !w->failed; i++) {
		const struct key *k = &w->keys.items[w->around.items[i]];
		bool is_live = !b->is_freed || (k->end_ns != INT64_MIN && b->free_ns > k->end_ns);
		add(w, b, w->around.items[i], TM_SCOPE_ALLOCATED, k->is_self);
		if (b->is_freed) add(w, b, w->around.items[i], TM_SCOPE_OWN_FREED, false);
		if (is_live) add(w, b, w->around.items[i], TM_SCOPE_RETAINED, false);
	}
}

static void take_freed(struct walk *w, const struct block *b, size_t scope) {
	walk_outward(w, scope, true);
	for (size_t i = 0; i < w->around.count && !w->failed; i++) {
		const struct key *k = &w->keys.items[w->around.items[i]];
		bool is_self = w->around.items[i] == w->scopes.items[scope].key;
		add(w, b, w->around.items[i], TM_SCOPE_FREED, is_self);
		if (k->made_by == w->blocks) add(w, b, w->around.items[i], TM_SCOPE_BOTH, is_self && k->is_self);
	}
}

/* heap_id, scope_id, free_scope_id, free_ns, size_bytes, weight */
static int take_block(void *context, sqlite3_value **row) {
	struct walk *w = context;
	double size = (double)sqlite3_value_int64(row[4]), weight = sqlite3_value_double(row[5]);
	struct block b = { .heap = sqlite3_value_int64(row[0]),
			   .is_freed = sqlite3_value_type(row[3]) != SQLITE_NULL,
			   .free_ns = sqlite3_value_int64(row[3]),
			   .measures = { size * weight, size * size * weight * (weight - 1), weight * (weight - 1) } };
	w->blocks++;
	take_made(w, &b, scope_of(w, sqlite3_value_int64(row[1])));
	if (sqlite3_value_type(row[2]) != SQLITE_NULL) take_freed(w, &b, scope_of(w, sqlite3_value_int64(row[2])));
	return w->failed ? TM_BLOCKS_IN_SQL : 0;
}

static int read_blocks(struct walk *w, const struct tm_database *d, const char *schema) {
	char *sql = sqlite3_mprintf("SELECT tm_row(heap_id, scope_id, free_scope_id, free_ns, size_bytes, weight) FROM %s.allocation",
				    schema);
	int status = sql ? tm_database_each(d, sql, take_block, w) : TM_BLOCKS_IN_SQL;
	sqlite3_free(sql);
	return status;
}

/* --- the table --- */

static bool put_row(sqlite3_stmt *insert, const struct walk *w, const struct totals *t) {
	sqlite3_bind_int64(insert, 1, t->heap);
	sqlite3_bind_int64(insert, 2, w->keys.items[t->key].scope);
	for (int i = 0; i < TM_SCOPE_SUMS; i++) {
		const struct tm_scope_sum *sum = &tm_scope_sums[i];
		sqlite3_bind_double(insert, 3 + i, t->sums[sum->what][sum->is_self][sum->measure]);
	}
	bool done = sqlite3_step(insert) == SQLITE_DONE;
	sqlite3_reset(insert);
	return done;
}

static bool make_table(const struct walk *w, sqlite3 *db, const char *table) {
	sqlite3_stmt *insert = NULL;
	sqlite3_str *create = sqlite3_str_new(db), *row = sqlite3_str_new(db);
	sqlite3_str_appendf(create, "DROP TABLE IF EXISTS temp.%s; CREATE TEMP TABLE %s(heap_id INTEGER, scope_id INTEGER", table, table);
	sqlite3_str_appendf(row, "INSERT INTO temp.%s VALUES(?, ?", table);
	for (int i = 0; i < TM_SCOPE_SUMS; i++) {
		sqlite3_str_appendf(create, ", %s", tm_scope_sums[i].name);
		sqlite3_str_appendall(row, ", ?");
	}
	sqlite3_str_appendall(create, "); BEGIN");
	sqlite3_str_appendall(row, ")");
	char *sql = sqlite3_str_finish(create), *values = sqlite3_str_finish(row);
	bool made = sql && values && sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;
	bool filled = made && sqlite3_prepare_v2(db, values, -1, &insert, NULL) == SQLITE_OK;
	for (size_t i = 0; i < w->totals.count && filled; i++) filled = put_row(insert, w, &w->totals.items[i]);
	sqlite3_finalize(insert);
	if (made) sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
	sqlite3_free(sql);
	sqlite3_free(values);
	return filled;
}

int tm_scope_blocks_make(const struct tm_database *d, const char *schema, const char *keys, const char *table) {
	struct walk w = { 0 };
	int status = read_scopes(&w, d, schema, keys) ? read_blocks(&w, d, schema) : TM_BLOCKS_IN_SQL;
	if (!status && !make_table(&w, d->handle, table)) status = TM_BLOCKS_IN_SQL;
	tm_array_release(&w.scopes);
	tm_array_release(&w.keys);
	tm_array_release(&w.around);
	tm_array_release(&w.totals);
	tm_id_map_release(&w.scope_ids);
	tm_id_map_release(&w.ids);
	return status;
}
