/* site_sums.c - what call stacks sum up to at their sites, by a hash; see site_sums.h. */
#include "site_sums.h"

#include "../schema/array.h"
#include "id_map.h"
#include "live_sets.h"
#include "scans.h"

#include <string.h>

enum { HEAP, SITE, FIRST_SUM, COLUMNS = FIRST_SUM + 5 };

#define ESTIMATES 11 /* the same sums and the variances, as TM_SAMPLE_SUMS has them */

struct sums {
	int64_t heap, site; /* site 0: none */
	int64_t values[COLUMNS - FIRST_SUM];
	double estimates[ESTIMATES];
};

struct summing {
	TM_ARRAY(struct sums) sites;
	struct tm_id_map ids; /* heap, site -> index + 1 */
};

/* NULL: out of memory. */
static struct sums *find_site(struct summing *s, int64_t heap, int64_t site) {
	uint64_t *index = tm_id_map_put(&s->ids, (uint64_t)heap, (uint64_t)site);
	if (!index) return NULL;
	if (!*index) {
		struct sums *added = tm_array_push(&s->sites);
		*index = s->sites.count + !added; /* a value of 0 may not stay */
		if (!added) return NULL;
		added->heap = heap;
		added->site = site;
	}
	return &s->sites.items[*index - 1];
}

/* TM_SUMS_IN_SQL: out of memory, or a sum is too large. */
static int take_stack(void *context, sqlite3_value **row) {
	struct sums *site = find_site(context, sqlite3_value_int64(row[HEAP]), sqlite3_value_int64(row[SITE]));
	if (!site) return TM_SUMS_IN_SQL;
	for (int i = FIRST_SUM; i < COLUMNS; i++)
		if (__builtin_add_overflow(site->values[i - FIRST_SUM], sqlite3_value_int64(row[i]), &site->values[i - FIRST_SUM]))
			return TM_SUMS_IN_SQL;
	return 0;
}

/* heap_id, site_frame_id, size_bytes, weight; is it live, at its heap's peak, at its process' peak; is it a part that counts for nothing then, and at first? */
static int take_block(void *context, sqlite3_value **row) {
	struct sums *site = find_site(context, sqlite3_value_int64(row[HEAP]), sqlite3_value_int64(row[SITE]));
	double size = (double)sqlite3_value_int64(row[2]), weight = sqlite3_value_double(row[3]), of_count = weight * (weight - 1);
	bool is_live = sqlite3_value_int(row[4]), at_peak = sqlite3_value_int(row[5]), at_process_peak = sqlite3_value_int(row[6]);
	double bytes = size * weight, variance = size * size * of_count;
	if (!site) return TM_SUMS_IN_SQL;
	const double estimates[ESTIMATES] = { is_live ? bytes : 0,
					      is_live && !sqlite3_value_int(row[7]) ? weight : 0,
					      sqlite3_value_int(row[8]) ? 0 : weight,
					      bytes,
					      at_peak ? bytes : 0,
					      is_live ? variance : 0,
					      is_live ? of_count : 0,
					      variance,
					      of_count,
					      at_peak ? variance : 0,
					      at_process_peak ? variance : 0 };
	for (int i = 0; i < ESTIMATES; i++) site->estimates[i] += estimates[i];
	return 0;
}

static bool fill(const struct summing *s, sqlite3_stmt *insert, bool are_estimates) {
	for (size_t i = 0; i < s->sites.count; i++) {
		const struct sums *site = &s->sites.items[i];
		sqlite3_bind_int64(insert, 1 + HEAP, site->heap);
		if (site->site) sqlite3_bind_int64(insert, 1 + SITE, site->site);
		else sqlite3_bind_null(insert, 1 + SITE);
		for (int k = FIRST_SUM; !are_estimates && k < COLUMNS; k++) sqlite3_bind_int64(insert, 1 + k, site->values[k - FIRST_SUM]);
		for (int k = 0; are_estimates && k < ESTIMATES; k++) sqlite3_bind_double(insert, 1 + FIRST_SUM + k, site->estimates[k]);
		if (sqlite3_step(insert) != SQLITE_DONE) return false;
		sqlite3_reset(insert);
	}
	return true;
}

static bool make_table(const struct summing *s, sqlite3 *db, const char *table, bool are_estimates) {
	sqlite3_stmt *insert = NULL;
	char *create = sqlite3_mprintf("CREATE TEMP TABLE %s(%s)", table, are_estimates ? TM_SAMPLE_SUMS : TM_SITE_SUMS);
	char *row = sqlite3_mprintf("INSERT INTO temp.%s VALUES(?,?,?,?,?,?,?%s)", table, are_estimates ? ",?,?,?,?,?,?" : "");
	bool made = create && row && sqlite3_exec(db, create, NULL, NULL, NULL) == SQLITE_OK &&
		    sqlite3_exec(db, "BEGIN", NULL, NULL, NULL) == SQLITE_OK;
	bool filled = made && sqlite3_prepare_v2(db, row, -1, &insert, NULL) == SQLITE_OK && fill(s, insert, are_estimates);
	sqlite3_finalize(insert);
	if (made) sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
	sqlite3_free(create);
	sqlite3_free(row);
	return filled;
}

/* Of the processes that --process chooses. */
static void put_source(sqlite3_str *sql, const struct tm_options *o, const char *schema) {
	sqlite3_str_appendf(sql, " FROM %s.site_total AS t LEFT JOIN %s.stack AS s ON s.id = t.stack_id", schema, schema);
	tm_sql_process_of(sql, o, schema, " WHERE", "t.process_id");
}

void tm_site_sums_put(sqlite3_str *sql, const struct tm_options *o, const char *schema, const char *live) {
	sqlite3_str_appendf(sql,
			    "SELECT t.heap_id, s.site_frame_id, sum(t.%s_bytes) AS live_bytes, sum(t.%s_count) AS live_count,\n"
			    "    sum(t.allocations) AS allocations, sum(t.allocated_bytes) AS allocated_bytes, sum(t.peak_bytes) AS peak_bytes\n ",
			    live, live);
	put_source(sql, o, schema);
	sqlite3_str_appendall(sql, " GROUP BY t.heap_id, s.site_frame_id");
}

#define ALL_BYTES "total(a.size_bytes * a.weight)"

/* When a block is live, and at which time. */
struct live {
	const char *when, *ns;
};

static struct live live_of(const char *live) {
	if (strcmp(live, "live_at_exit") == 0) return (struct live){ TM_SQL_LIVE_AT("p.exit_ns") " AND p.end_kind <> 'exec'", "p.exit_ns" };
	return (struct live){ TM_SQL_LIVE_AT("p.end_ns"), "p.end_ns" };
}

/* Blocks `a`, and what they are asked about: the totals of their heaps `t` and processes `w`. */
static void put_blocks(sqlite3_str *sql, const struct tm_options *o, const char *schema) {
	sqlite3_str_appendf(
		sql,
		"\n  FROM %s.allocation AS a JOIN %s.process AS p ON p.id = a.process_id\n"
		"  JOIN %s.heap_total AS t ON t.process_id = a.process_id AND t.heap_id = a.heap_id\n"
		"  JOIN %s.heap_total AS w ON w.process_id = a.process_id AND w.heap_id = 0 LEFT JOIN %s.stack AS s ON s.id = a.stack_id",
		schema, schema, schema, schema, schema);
	tm_sql_process_of(sql, o, schema, " WHERE", "a.process_id");
}

/* Two sums or variances, of blocks of which `when` holds. */
static void put_when(sqlite3_str *sql, const char *when, const char *first, const char *name, const char *second, const char *second_name) {
	sqlite3_str_appendf(sql, ",\n    %s FILTER (WHERE %s) AS %s", first, when, name);
	if (second) sqlite3_str_appendf(sql, ",\n    %s FILTER (WHERE %s) AS %s", second, when, second_name);
}

#define PART_AFTER TM_SQL_SPLIT_AFTER_IN("%s.", "%s")

void tm_site_sums_put_samples(sqlite3_str *sql, const struct tm_options *o, const char *schema, const char *live) {
	const struct live l = live_of(live);
	char *live_count = sqlite3_mprintf("total(iif(" PART_AFTER ", 0, a.weight))", schema, l.ns);
	sqlite3_str_appendall(sql, "SELECT a.heap_id, s.site_frame_id");
	put_when(sql, l.when, ALL_BYTES, "live_bytes", live_count, "live_count");
	sqlite3_str_appendf(sql, ",\n    total(iif(" PART_AFTER ", 0, a.weight)) AS allocations, " ALL_BYTES " AS allocated_bytes", schema,
			    "a.alloc_ns");
	put_when(sql, TM_SQL_LIVE_AT("t.peak_ns"), ALL_BYTES, "peak_bytes", NULL, NULL);
	put_when(sql, l.when, TM_SQL_VARIANCE, "live_variance", TM_SQL_COUNT_VARIANCE, "live_count_variance");
	sqlite3_str_appendall(sql,
			      ",\n    " TM_SQL_VARIANCE " AS allocated_variance, " TM_SQL_COUNT_VARIANCE " AS allocated_count_variance");
	put_when(sql, TM_SQL_LIVE_AT("t.peak_ns"), TM_SQL_VARIANCE, "peak_variance", NULL, NULL);
	put_when(sql, TM_SQL_LIVE_AT("w.peak_ns"), TM_SQL_VARIANCE, "process_peak_variance", NULL, NULL);
	put_blocks(sql, o, schema);
	sqlite3_str_appendall(sql, " GROUP BY a.heap_id, s.site_frame_id");
	sqlite3_free(live_count);
}

void tm_site_sums_put_heaps(sqlite3_str *sql, const char *schema, const char *sums) {
	static const char each[] = TM_SUMS_OF_VARIANCES("g");
	sqlite3_str_appendf(sql,
			    "SELECT h.process_id, h.name AS heap, %s,\n    total(g.peak_variance) AS peak_variance\n"
			    "  FROM %s AS g JOIN %s.heap AS h ON h.id = g.heap_id GROUP BY h.id\n"
			    "  UNION ALL SELECT h.process_id, NULL, %s,\n    total(g.process_peak_variance)\n"
			    "  FROM %s AS g JOIN %s.heap AS h ON h.id = g.heap_id WHERE h.is_root GROUP BY h.process_id",
			    each, sums, schema, each, sums, schema);
}

/* sql: a query of rows that `take` adds up; is freed. */
static int make(const struct tm_database *d, sqlite3_str *sql, const char *table, int (*take)(void *context, sqlite3_value **row)) {
	struct summing s = { 0 };
	char *query = sqlite3_str_finish(sql);
	int status = query ? tm_database_each(d, query, take, &s) : TM_SUMS_IN_SQL;
	if (!status && !make_table(&s, d->handle, table, take == take_block)) status = TM_SUMS_IN_SQL;
	sqlite3_free(query);
	tm_array_release(&s.sites);
	tm_id_map_release(&s.ids);
	return status;
}

int tm_site_sums_make(const struct tm_database *d, const struct tm_options *o, const char *schema, const char *live, const char *table) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	sqlite3_str_appendf(
		sql, "SELECT tm_row(t.heap_id, s.site_frame_id, t.%s_bytes, t.%s_count, t.allocations, t.allocated_bytes, t.peak_bytes)",
		live, live);
	put_source(sql, o, schema);
	return make(d, sql, table, take_stack);
}

int tm_site_sums_make_samples(const struct tm_database *d, const struct tm_options *o, const char *schema, const char *live,
			      const char *table) {
	const struct live l = live_of(live);
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	sqlite3_str_appendf(sql,
			    "SELECT tm_row(a.heap_id, s.site_frame_id, a.size_bytes, a.weight, %s, " TM_SQL_LIVE_AT(
				    "t.peak_ns") ", " TM_SQL_LIVE_AT("w.peak_ns") ", " PART_AFTER ", " PART_AFTER ")",
			    l.when, schema, l.ns, schema, "a.alloc_ns");
	put_blocks(sql, o, schema);
	return make(d, sql, table, take_block);
}
