/* level_errors.c - errors of estimated levels; see level_errors.h. */
#include "level_errors.h"

#include "../schema/array.h"
#include "id_map.h"

#define LEVELS_IN_SQL (-1)

/* Variances of bytes and of counts, in this order. */
struct variances {
	double of[2];
};

struct moment {
	int64_t process, heap, at_ns;
	struct variances made, gone, brief; /* since the one before */
};

/* The moments of one heap, or process, in the order of time. */
struct track {
	size_t first, count;
};

struct levels {
	TM_ARRAY(struct moment) moments;
	TM_ARRAY(struct track) tracks;
	struct tm_id_map ids;   /* process, heap -> index of its track + 1 */
	struct tm_id_map roots; /* heaps */
};

static bool add_moment(struct levels *l, sqlite3_stmt *row) {
	int64_t process = sqlite3_column_int64(row, 0), heap = sqlite3_column_int64(row, 1);
	uint64_t *id = tm_id_map_put(&l->ids, (uint64_t)process, (uint64_t)heap);
	struct track *t = !id ? NULL : *id ? &l->tracks.items[*id - 1] : tm_array_push(&l->tracks);
	if (id && !*id) *id = l->tracks.count + !t;
	struct moment *m = t ? tm_array_push(&l->moments) : NULL;
	if (!m) return false;
	if (!t->count++) t->first = l->moments.count - 1;
	*m = (struct moment){ .process = process, .heap = heap, .at_ns = sqlite3_column_int64(row, 2) };
	return true;
}

static bool add_root(struct levels *l, sqlite3_stmt *row) {
	uint64_t *root = tm_id_map_put(&l->roots, (uint64_t)sqlite3_column_int64(row, 0), 0);
	if (root) *root = 1;
	return root;
}

static bool read_rows(struct levels *l, const struct tm_database *d, const char *sql, bool (*add)(struct levels *l, sqlite3_stmt *row)) {
	sqlite3_stmt *row = NULL;
	int step = SQLITE_ERROR;
	if (sql && sqlite3_prepare_v2(d->handle, sql, -1, &row, NULL) == SQLITE_OK)
		while ((step = sqlite3_step(row)) == SQLITE_ROW && add(l, row)) {}
	sqlite3_finalize(row);
	return step == SQLITE_DONE;
}

/* The first moment from ns on; NULL: there is none. */
static struct moment *moment_from(struct levels *l, const struct track *t, int64_t ns) {
	size_t low = 0, high = t->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (l->moments.items[t->first + middle].at_ns < ns) low = middle + 1;
		else high = middle;
	}
	return low < t->count ? &l->moments.items[t->first + low] : NULL;
}

static void add(struct variances *sum, struct variances v, double sign) {
	for (int i = 0; i < 2; i++) sum->of[i] += sign * v.of[i];
}

/* process_id, heap_id, alloc_ns, free_ns, size_bytes, weight */
static int take_block(void *context, sqlite3_value **row) {
	struct levels *l = context;
	int64_t process = sqlite3_value_int64(row[0]), heap = sqlite3_value_int64(row[1]);
	double size = (double)sqlite3_value_int64(row[4]), weight = sqlite3_value_double(row[5]), of_count = weight * (weight - 1);
	struct variances v = { { size * size * of_count, of_count } };
	for (int whole = 0; whole < 2; whole++) {
		const uint64_t *id = tm_id_map_find(&l->ids, (uint64_t)process, whole ? 0 : (uint64_t)heap);
		if (!id || (whole && !tm_id_map_find(&l->roots, (uint64_t)heap, 0))) continue;
		const struct track *t = &l->tracks.items[*id - 1];
		bool is_freed = sqlite3_value_type(row[3]) != SQLITE_NULL;
		struct moment *begin = moment_from(l, t, sqlite3_value_int64(row[2])),
			      *end = is_freed ? moment_from(l, t, sqlite3_value_int64(row[3])) : NULL;
		if (begin) add(&begin->made, v, 1);
		if (end) add(&end->gone, v, 1);
		if (end && end == begin) add(&end->brief, v, 1);
	}
	return 0;
}

static bool put_moment(sqlite3_stmt *insert, const struct moment *m, const struct variances *level) {
	const struct variances *all[] = { level, &m->made, &m->gone, &m->brief };
	sqlite3_bind_int64(insert, 1, m->process);
	sqlite3_bind_int64(insert, 2, m->heap);
	sqlite3_bind_int64(insert, 3, m->at_ns);
	/* What is left of a sum of which all has been taken away again is nothing. */
	for (int i = 0; i < 8; i++) sqlite3_bind_double(insert, 4 + i, all[i / 2]->of[i % 2] > 0 ? all[i / 2]->of[i % 2] : 0);
	bool done = sqlite3_step(insert) == SQLITE_DONE;
	sqlite3_reset(insert);
	return done;
}

static bool put_moments(const struct levels *l, sqlite3_stmt *insert) {
	bool done = true;
	for (size_t i = 0; i < l->tracks.count && done; i++) {
		const struct track *t = &l->tracks.items[i];
		struct variances level = { 0 };
		for (size_t k = t->first; k < t->first + t->count && done; k++) {
			const struct moment *m = &l->moments.items[k];
			add(&level, m->made, 1);
			add(&level, m->gone, -1);
			done = put_moment(insert, m, &level);
		}
	}
	return done;
}

static bool make_table(const struct levels *l, sqlite3 *db) {
	static const char create[] =
		"DROP TABLE IF EXISTS temp.level_error;"
		"CREATE TEMP TABLE level_error(process_id INTEGER, heap_id INTEGER, at_ns INTEGER, variance, count_variance,"
		" made_variance, made_count_variance, gone_variance, gone_count_variance, brief_variance, brief_count_variance,"
		" PRIMARY KEY(process_id, heap_id, at_ns)) WITHOUT ROWID; BEGIN";
	static const char row[] = "INSERT INTO temp.level_error VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
	sqlite3_stmt *insert = NULL;
	bool made = sqlite3_exec(db, create, NULL, NULL, NULL) == SQLITE_OK;
	bool filled = made && sqlite3_prepare_v2(db, row, -1, &insert, NULL) == SQLITE_OK && put_moments(l, insert);
	sqlite3_finalize(insert);
	if (made) sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
	return filled;
}

/* LEVELS_IN_SQL: out of memory. with: the expressions before. */
static int make_levels(const struct tm_database *d, const char *with, const char *moments) {
	struct levels l = { 0 };
	char *sql = sqlite3_mprintf("WITH %s no_more AS (SELECT 1)\nSELECT DISTINCT process_id, heap_id, at_ns FROM %s ORDER BY 1, 2, 3",
				    with, moments);
	bool begun = read_rows(&l, d, sql, add_moment) && read_rows(&l, d, "SELECT id FROM heap WHERE is_root", add_root);
	int status = begun ? tm_database_each(d,
					      "SELECT tm_row(process_id, heap_id, alloc_ns, free_ns, size_bytes, weight) FROM allocation"
					      " WHERE weight > 1",
					      take_block, &l)
			   : LEVELS_IN_SQL;
	if (!status && !make_table(&l, d->handle)) status = LEVELS_IN_SQL;
	sqlite3_free(sql);
	tm_array_release(&l.moments);
	tm_array_release(&l.tracks);
	tm_id_map_release(&l.ids);
	tm_id_map_release(&l.roots);
	return status;
}

#define CHANGES(ns, is_end) \
	"SELECT a.id, a.process_id, a.heap_id, " ns " AS ts_ns, " is_end " AS is_end,\n" \
	"         1.0 * a.size_bytes * a.size_bytes * a.weight * (a.weight - 1) AS variance, a.weight * (a.weight - 1) AS count_variance\n" \
	"  FROM allocation AS a WHERE a.weight > 1"
#define KNOWN(name) "coalesce(" name ", 0) AS " name
#define LEVEL(name, made, gone) "max(0, sum(coalesce(" made ", 0) - coalesce(" gone ", 0)) OVER w) AS " name

/* Behind `moments`. A block is brief where it begins and ends behind the same moment. */
static const char levels[] =
	/* clang-format off */
	"changed AS MATERIALIZED (\n"
	"  " CHANGES("a.alloc_ns", "0") "\n"
	"  UNION ALL " CHANGES("a.free_ns", "1") " AND a.free_ns IS NOT NULL),\n"
	"event AS (\n"
	"  SELECT id, process_id, heap_id, ts_ns, is_end, 0 AS is_moment, variance, count_variance FROM changed\n"
	"  UNION ALL SELECT c.id, c.process_id, 0, c.ts_ns, c.is_end, 0, c.variance, c.count_variance\n"
	"  FROM changed AS c JOIN heap AS h ON h.id = c.heap_id WHERE h.is_root\n"
	"  UNION ALL SELECT DISTINCT NULL, process_id, heap_id, at_ns, NULL, 1, NULL, NULL FROM %s),\n"
	"numbered AS MATERIALIZED (\n"
	"  SELECT *, sum(is_moment) OVER (PARTITION BY process_id, heap_id ORDER BY ts_ns, is_moment) + (NOT is_moment) AS n FROM event),\n"
	"since AS MATERIALIZED (\n"
	"  SELECT process_id, heap_id, n, total(variance) FILTER (WHERE NOT is_end) AS made_variance,\n"
	"         total(count_variance) FILTER (WHERE NOT is_end) AS made_count_variance, total(variance) FILTER (WHERE is_end) AS gone_variance,\n"
	"         total(count_variance) FILTER (WHERE is_end) AS gone_count_variance\n"
	"  FROM numbered WHERE NOT is_moment GROUP BY 1, 2, 3),\n"
	"brief AS MATERIALIZED (\n"
	"  SELECT b.process_id, b.heap_id, b.n, sum(b.variance) AS brief_variance, sum(b.count_variance) AS brief_count_variance\n"
	"  FROM numbered AS b JOIN numbered AS e ON e.id = b.id AND e.heap_id = b.heap_id AND e.n = b.n AND e.is_end\n"
	"  WHERE NOT b.is_end GROUP BY 1, 2, 3),\n"
	"level_error AS MATERIALIZED (\n"
	"  SELECT m.process_id, m.heap_id, m.ts_ns AS at_ns, " LEVEL("variance", "s.made_variance", "s.gone_variance") ",\n"
	"         " LEVEL("count_variance", "s.made_count_variance", "s.gone_count_variance") ",\n"
	"         " KNOWN("made_variance") ", " KNOWN("made_count_variance") ", " KNOWN("gone_variance") ",\n"
	"         " KNOWN("gone_count_variance") ", " KNOWN("brief_variance") ", " KNOWN("brief_count_variance") "\n"
	"  FROM numbered AS m LEFT JOIN since AS s ON s.process_id = m.process_id AND s.heap_id = m.heap_id AND s.n = m.n\n"
	"  LEFT JOIN brief AS b ON b.process_id = m.process_id AND b.heap_id = m.heap_id AND b.n = m.n\n"
	"  WHERE m.is_moment WINDOW w AS (PARTITION BY m.process_id, m.heap_id ORDER BY m.n))";
/* clang-format on */

int tm_sql_level_errors(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, const char *moments) {
	int status = o->sql ? LEVELS_IN_SQL : make_levels(d, sqlite3_str_value(sql), moments);
	if (!status) sqlite3_str_appendall(sql, "level_error AS (SELECT * FROM temp.level_error)");
	else if (status == LEVELS_IN_SQL) sqlite3_str_appendf(sql, levels, moments);
	return status > 0 ? status : 0;
}
