/* scope_errors.c - errors of what scopes and steps did; see scope_errors.h. */
#include "scope_errors.h"

#include "level_errors.h"
#include "scans.h"
#include "scope_blocks.h"

/* --- scopes --- */

/* Blocks by the scopes that they were allocated and freed in, and those around each of these: a key is what is asked about. */
static const char blocks[] =
	"own AS MATERIALIZED (\n"
	"  SELECT a.heap_id, a.scope_id, a.free_scope_id, a.free_ns IS NOT NULL AS is_freed, sum(a.size_bytes * a.weight) AS bytes,\n"
	"         " TM_SQL_VARIANCES " FROM %s.allocation AS a GROUP BY a.heap_id, a.scope_id, a.free_scope_id, a.free_ns IS NOT NULL),\n"
	"touched AS (SELECT scope_id AS id FROM own UNION SELECT free_scope_id FROM own WHERE free_scope_id IS NOT NULL),\n"
	"around(scope_id, id) AS (\n"
	"  SELECT id, id FROM touched\n"
	"  UNION ALL SELECT u.scope_id, s.parent_id FROM around AS u JOIN %s.scope_packed AS s ON s.id = u.id WHERE s.parent_id < s.id),\n"
	"keyed AS MATERIALIZED (\n"
	"  SELECT u.scope_id, %s AS key, max(u.id = u.scope_id) AS is_self, max(s.end_ns) AS end_ns\n"
	"  FROM around AS u JOIN %s AS s ON s.id = u.id GROUP BY 1, 2),\n"
	/* Who does not outlive its own scope is retained by none around it. */
	"outlived AS (\n"
	"  SELECT a.heap_id, a.scope_id, a.free_ns, sum(a.size_bytes * a.weight) AS bytes, " TM_SQL_VARIANCES "\n"
	"  FROM %s.allocation AS a JOIN %s.scope_packed AS s ON s.id = a.scope_id WHERE a.free_ns IS NULL OR a.free_ns > s.end_ns\n"
	"  GROUP BY a.heap_id, a.scope_id, a.free_ns),\n";

static void put_part(sqlite3_str *sql, enum tm_scope_what what, const char *is_self, const char *from) {
	sqlite3_str_appendf(sql, "%s  SELECT w.heap_id, k.key, %d AS what, %s AS is_self, w.bytes, w.variance, w.count_variance FROM %s",
			    what == TM_SCOPE_ALLOCATED ? "part AS (\n" : "\n  UNION ALL\n", what, is_self, from);
}

static void put_parts(sqlite3_str *sql) {
	put_part(sql, TM_SCOPE_ALLOCATED, "k.is_self", "own AS w JOIN keyed AS k ON k.scope_id = w.scope_id");
	put_part(sql, TM_SCOPE_FREED, "k.is_self", "own AS w JOIN keyed AS k ON k.scope_id = w.free_scope_id");
	put_part(sql, TM_SCOPE_BOTH, "k.is_self AND f.is_self",
		 "own AS w JOIN keyed AS k ON k.scope_id = w.scope_id\n"
		 "  JOIN keyed AS f ON f.scope_id = w.free_scope_id AND f.key = k.key");
	put_part(sql, TM_SCOPE_OWN_FREED, "1", "own AS w JOIN keyed AS k ON k.scope_id = w.scope_id WHERE w.is_freed");
	put_part(sql, TM_SCOPE_RETAINED, "1",
		 "outlived AS w JOIN keyed AS k ON k.scope_id = w.scope_id\n  WHERE w.free_ns IS NULL OR w.free_ns > k.end_ns");
	sqlite3_str_appendall(sql, "),\n");
}

/* An error: of which column (NULL: the variance itself), by which sum and variance of e, and which column has to be that sum. */
struct error {
	const char *name, *column, *variance, *sum, *checked;
};

/* What was both allocated and freed there changes a net in no way. */
#define NET(of) "e." of "_allocated_variance + e." of "_freed_variance - 2 * e." of "_both_variance"
#define TOTAL_NET { "total_net_relative_error", "total_net_bytes", NET("total"), "e.total_allocated - e.total_freed", "total_net_bytes" }
#define ALLOCATED_BYTES(of) \
	{ of "_relative_error", of "_allocated_bytes", "e." of "_allocated_variance", "e." of "_allocated", of "_allocated_bytes" }
#define ALLOCATIONS(of) \
	{ of "_count_relative_error", of "_allocations", "e." of "_allocated_count_variance", "e." of "_allocated", of "_allocated_bytes" }
#define FREED_BYTES(of) \
	{ of "_freed_relative_error", of "_freed_bytes", "e." of "_freed_variance", "e." of "_freed", of "_freed_bytes" }
#define FREES(of) \
	{ of "_freed_count_relative_error", of "_frees", "e." of "_freed_count_variance", "e." of "_freed", of "_freed_bytes" }
#define OF_SCOPE(of) { of "_relative_error", of "_bytes", "e." of "_variance", "e." of, of "_bytes" }

static const struct error of_scopes[] = {
	ALLOCATED_BYTES("self"),
	ALLOCATIONS("self"),
	ALLOCATED_BYTES("total"),
	ALLOCATIONS("total"),
	FREED_BYTES("self"),
	FREES("self"),
	FREED_BYTES("total"),
	FREES("total"),
	{ "self_net_relative_error", "self_net_bytes", NET("self"), "e.self_allocated - e.self_freed", "self_net_bytes" },
	TOTAL_NET,
	OF_SCOPE("own_freed"),
	OF_SCOPE("retained"),
};
static const struct error of_changes[] = {
	{ "allocated_variance", NULL, "e.total_allocated_variance", "e.total_allocated", "total_allocated_bytes" },
	{ "retained_variance", NULL, "e.retained_variance", "e.retained", "retained_bytes" },
};
static const struct error of_lines[] = { ALLOCATED_BYTES("self"), ALLOCATED_BYTES("total"), TOTAL_NET, OF_SCOPE("retained") };

/* The expression `erring` (heap_id, key, the sums): by all blocks, in SQL. */
static void put_sums(sqlite3_str *sql, const struct tm_scope_rows *r) {
	static const char *const columns[] = { "bytes", "variance", "count_variance" };
	sqlite3_str_appendf(sql, blocks, r->schema, r->schema, r->key, r->scopes, r->schema, r->schema);
	put_parts(sql);
	sqlite3_str_appendall(sql, "erring AS MATERIALIZED (\n  SELECT heap_id, key");
	for (int i = 0; i < TM_SCOPE_SUMS; i++) {
		const struct tm_scope_sum *sum = &tm_scope_sums[i];
		sqlite3_str_appendf(sql, ",\n         total(%s) FILTER (WHERE what = %d%s) AS %s", columns[sum->measure], sum->what,
				    sum->is_self ? " AND is_self" : "", sum->name);
	}
	sqlite3_str_appendall(sql, "\n  FROM part GROUP BY heap_id, key)");
}

/* The same of a table that is made now. */
static int make_sums(sqlite3_str *sql, const struct tm_database *d, const struct tm_scope_rows *r) {
	const char *before = sqlite3_str_length(sql) ? sqlite3_str_value(sql) : "";
	char table[32], *keys = sqlite3_mprintf(
				"WITH %s no_more AS (SELECT 1)\nSELECT s.id, dense_rank() OVER (ORDER BY %s) AS number FROM %s AS s",
				before, r->key, r->scopes);
	sqlite3_snprintf(sizeof table, table, "scope_sum_%s", r->schema);
	int status = keys ? tm_scope_blocks_make(d, r->schema, keys, table) : TM_BLOCKS_IN_SQL;
	sqlite3_free(keys);
	if (status) return status;
	sqlite3_str_appendf(sql, "erring AS MATERIALIZED (SELECT t.*, %s AS key FROM temp.%s AS t JOIN %s AS s ON s.id = t.scope_id)",
			    r->key, table, r->scopes);
	return 0;
}

static int put_errors(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, const struct tm_scope_rows *r,
		      const struct error *errors, size_t count) {
	int status = o->sql ? TM_BLOCKS_IN_SQL : make_sums(sql, d, r);
	if (status > 0) return status;
	if (status) put_sums(sql, r);
	sqlite3_str_appendf(sql, ",\n%s AS (\n  SELECT v.*", r->name);
	for (size_t i = 0; i < count; i++) {
		sqlite3_str_appendf(sql, ",\n         iif(abs(%s - v.%s) <= %s + 1e-6 * (e.total_allocated + e.total_freed),\n         ",
				    errors[i].sum, errors[i].checked, r->slack);
		sqlite3_str_appendf(sql, errors[i].column ? "round(sqrt(max(%s, 0)) / abs(v.%s), 4)" : "%s", errors[i].variance,
				    errors[i].column);
		sqlite3_str_appendf(sql, ", NULL) AS %s", errors[i].name);
	}
	sqlite3_str_appendf(sql,
			    "\n  FROM %s AS v LEFT JOIN %s.heap AS h ON h.process_id = v.process_id AND h.name = v.heap\n"
			    "  LEFT JOIN erring AS e ON e.heap_id = h.id AND e.key = %s)",
			    r->rows, r->schema, r->same);
	return 0;
}

int tm_sql_scope_errors(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, const struct tm_scope_rows *r) {
	return put_errors(sql, d, o, r, of_scopes, sizeof of_scopes / sizeof *of_scopes);
}

int tm_sql_scope_variances(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, const struct tm_scope_rows *r) {
	return put_errors(sql, d, o, r, of_changes, sizeof of_changes / sizeof *of_changes);
}

int tm_sql_line_errors(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, const struct tm_scope_rows *r) {
	return put_errors(sql, d, o, r, of_lines, sizeof of_lines / sizeof *of_lines);
}

/* --- steps --- */

/* A step that began before a ring's window begins with it, but for what survived. What it did came between the last instants before it and of it. */
static const char bounds[] =
	"known AS MATERIALIZED (\n"
	"  SELECT s.id, s.process_id, s.end_ns, max(s.start_ns, coalesce((SELECT max(g.end_ns) FROM coverage_gap AS g\n"
	"         WHERE g.process_id = s.process_id AND g.kind = 'dropped'), s.start_ns)) AS start_ns FROM step AS s),\n"
	"bound AS MATERIALIZED (\n"
	"  SELECT k.process_id, a.heap_id, k.start_ns - 1 AS at_ns FROM known AS k JOIN step_aggregate AS a ON a.step_id = k.id\n"
	"  UNION SELECT k.process_id, a.heap_id, k.end_ns - 1 FROM known AS k JOIN step_aggregate AS a ON a.step_id = k.id),\n";

#define STEP_SHARE(variance, column, name) ",\n         round(sqrt(max(0, " variance ")) / abs(v." column "), 4) AS " name
#define SURVIVED(variance) "iif(k.start_ns = v.start_ns, e.made_" variance " - e.brief_" variance ", NULL)"
#define LEVEL_AT(row, ns) \
	"\n  LEFT JOIN level_error AS " row " ON " row ".process_id = v.process_id AND " row ".heap_id = coalesce(h.id, 0) AND " row ".at_ns = k." ns " - 1"

static const char steps_of_samples[] =
	/* clang-format off */
	",\nstep_of_samples AS (\n  SELECT v.*"
	STEP_SHARE("e.made_variance", "allocated_bytes", "allocated_relative_error")
	STEP_SHARE("e.made_count_variance", "allocations", "allocated_count_relative_error")
	STEP_SHARE("e.gone_variance", "freed_bytes", "freed_relative_error")
	STEP_SHARE("e.gone_count_variance", "frees", "freed_count_relative_error")
	STEP_SHARE("e.made_variance + e.gone_variance - 2 * e.brief_variance", "net_bytes", "net_relative_error")
	STEP_SHARE("b.variance", "live_begin_bytes", "live_begin_relative_error")
	STEP_SHARE("e.variance", "live_end_bytes", "live_end_relative_error")
	STEP_SHARE(SURVIVED("variance"), "survived_bytes", "survived_relative_error")
	STEP_SHARE(SURVIVED("count_variance"), "survived_count", "survived_count_relative_error")
	"\n  FROM step_total AS v JOIN known AS k ON k.id = v.step_id LEFT JOIN heap AS h ON h.process_id = v.process_id AND h.name = v.heap"
	LEVEL_AT("b", "start_ns") LEVEL_AT("e", "end_ns") ")";
/* clang-format on */

int tm_sql_step_errors(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	sqlite3_str_appendall(sql, bounds);
	int status = tm_sql_level_errors(sql, d, o, "bound");
	sqlite3_str_appendall(sql, steps_of_samples);
	return status;
}
