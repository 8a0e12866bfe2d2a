/* scope_errors.c - errors of what scopes and steps did; see scope_errors.h. */
#include "scope_errors.h"

#include "level_errors.h"
#include "scans.h"

#include <stddef.h>

/* --- scopes --- */

enum what { ALLOCATED, FREED, BOTH, OWN_FREED, RETAINED };

/* Blocks by the scopes that they were allocated and freed in, and those around each of these: a key is what is asked about. */
static const char blocks[] =
	"own AS MATERIALIZED (\n"
	"  SELECT a.heap_id, a.scope_id, a.free_scope_id, sum(a.size_bytes * a.weight) AS bytes, " TM_SQL_VARIANCES "\n"
	"  FROM %s.allocation AS a GROUP BY a.heap_id, a.scope_id, a.free_scope_id),\n"
	"touched AS (SELECT scope_id AS id FROM own UNION SELECT free_scope_id FROM own WHERE free_scope_id IS NOT NULL),\n"
	"around(scope_id, id) AS (\n"
	"  SELECT id, id FROM touched\n"
	"  UNION ALL SELECT u.scope_id, s.parent_id FROM around AS u JOIN %s.scope_packed AS s ON s.id = u.id WHERE s.parent_id IS NOT NULL),\n"
	"keyed AS MATERIALIZED (\n"
	"  SELECT u.scope_id, %s AS key, max(u.id = u.scope_id) AS is_self, max(s.end_ns) AS end_ns\n"
	"  FROM around AS u JOIN %s AS s ON s.id = u.id GROUP BY 1, 2),\n"
	/* Who does not outlive its own scope is retained by none around it. */
	"outlived AS (\n"
	"  SELECT a.heap_id, a.scope_id, a.free_ns, sum(a.size_bytes * a.weight) AS bytes, " TM_SQL_VARIANCES "\n"
	"  FROM %s.allocation AS a JOIN %s.scope_packed AS s ON s.id = a.scope_id WHERE a.free_ns IS NULL OR a.free_ns > s.end_ns\n"
	"  GROUP BY a.heap_id, a.scope_id, a.free_ns),\n";

static void put_part(sqlite3_str *sql, enum what what, const char *is_self, const char *from) {
	sqlite3_str_appendf(sql, "%s  SELECT w.heap_id, k.key, %d AS what, %s AS is_self, w.bytes, w.variance, w.count_variance FROM %s",
			    what == ALLOCATED ? "part AS (\n" : "\n  UNION ALL\n", what, is_self, from);
}

static void put_parts(sqlite3_str *sql) {
	put_part(sql, ALLOCATED, "k.is_self", "own AS w JOIN keyed AS k ON k.scope_id = w.scope_id");
	put_part(sql, FREED, "k.is_self", "own AS w JOIN keyed AS k ON k.scope_id = w.free_scope_id");
	put_part(sql, BOTH, "k.is_self AND f.is_self",
		 "own AS w JOIN keyed AS k ON k.scope_id = w.scope_id\n"
		 "  JOIN keyed AS f ON f.scope_id = w.free_scope_id AND f.key = k.key");
	put_part(sql, OWN_FREED, "1", "own AS w JOIN keyed AS k ON k.scope_id = w.scope_id WHERE w.free_scope_id IS NOT NULL");
	put_part(sql, RETAINED, "1",
		 "outlived AS w JOIN keyed AS k ON k.scope_id = w.scope_id\n  WHERE w.free_ns IS NULL OR w.free_ns > k.end_ns");
	sqlite3_str_appendall(sql, "),\n");
}

/* A sum of parts as a column. */
struct sum {
	const char *name, *column;
	enum what what;
	bool is_self;
};

static const struct sum sums[] = {
	{ "self_allocated", "bytes", ALLOCATED, true },
	{ "self_allocated_variance", "variance", ALLOCATED, true },
	{ "self_allocated_count_variance", "count_variance", ALLOCATED, true },
	{ "total_allocated", "bytes", ALLOCATED, false },
	{ "total_allocated_variance", "variance", ALLOCATED, false },
	{ "total_allocated_count_variance", "count_variance", ALLOCATED, false },
	{ "self_freed", "bytes", FREED, true },
	{ "self_freed_variance", "variance", FREED, true },
	{ "self_freed_count_variance", "count_variance", FREED, true },
	{ "total_freed", "bytes", FREED, false },
	{ "total_freed_variance", "variance", FREED, false },
	{ "total_freed_count_variance", "count_variance", FREED, false },
	{ "self_both_variance", "variance", BOTH, true },
	{ "total_both_variance", "variance", BOTH, false },
	{ "own_freed", "bytes", OWN_FREED, false },
	{ "own_freed_variance", "variance", OWN_FREED, false },
	{ "retained", "bytes", RETAINED, false },
	{ "retained_variance", "variance", RETAINED, false },
};

/* An error: of which column, by which sum and variance of e, and which column has to be that sum. */
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
static const struct error of_lines[] = { ALLOCATED_BYTES("self"), ALLOCATED_BYTES("total"), TOTAL_NET, OF_SCOPE("retained") };

static void put_errors(sqlite3_str *sql, const struct tm_scope_rows *r, const struct error *errors, size_t count) {
	sqlite3_str_appendf(sql, blocks, r->schema, r->schema, r->key, r->scopes, r->schema, r->schema);
	put_parts(sql);
	sqlite3_str_appendall(sql, "erring AS MATERIALIZED (\n  SELECT heap_id, key");
	for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
		sqlite3_str_appendf(sql, ",\n         total(%s) FILTER (WHERE what = %d%s) AS %s", sums[i].column, sums[i].what,
				    sums[i].is_self ? " AND is_self" : "", sums[i].name);
	sqlite3_str_appendf(sql, "\n  FROM part GROUP BY heap_id, key),\n%s AS (\n  SELECT v.*", r->name);
	for (size_t i = 0; i < count; i++)
		sqlite3_str_appendf(
			sql,
			",\n         iif(abs(%s - v.%s) <= 2 + 1e-6 * e.total_allocated, round(sqrt(max(%s, 0)) / abs(v.%s), 4), NULL) AS %s",
			errors[i].sum, errors[i].checked, errors[i].variance, errors[i].column, errors[i].name);
	sqlite3_str_appendf(sql,
			    "\n  FROM %s AS v LEFT JOIN %s.heap AS h ON h.process_id = v.process_id AND h.name = v.heap\n"
			    "  LEFT JOIN erring AS e ON e.heap_id = h.id AND e.key = %s)",
			    r->rows, r->schema, r->same);
}

void tm_sql_scope_errors(sqlite3_str *sql, const struct tm_scope_rows *r) {
	put_errors(sql, r, of_scopes, sizeof of_scopes / sizeof *of_scopes);
}

void tm_sql_line_errors(sqlite3_str *sql, const struct tm_scope_rows *r) {
	put_errors(sql, r, of_lines, sizeof of_lines / sizeof *of_lines);
}

/* --- steps --- */

/* The step of a block's process that `ns` lies in. */
#define STEP_AT(ns) \
	"(SELECT iif(s.end_ns > " ns ", s.id, NULL) FROM step AS s WHERE s.process_id = a.process_id AND s.start_ns <= " ns \
	" ORDER BY s.start_ns DESC LIMIT 1)"

/* What blocks add to the variances of the steps that they were made and freed in, also with heap 0 for the root heaps. What a step that began before a ring's
 * window made until then is part of what it begins with. */
static const char steps[] =
	"known AS MATERIALIZED (\n"
	"  SELECT s.id, s.process_id, s.end_ns, max(s.start_ns, coalesce((SELECT max(g.end_ns) FROM coverage_gap AS g\n"
	"         WHERE g.process_id = s.process_id AND g.kind = 'dropped'), s.start_ns)) AS start_ns FROM step AS s),\n"
	"placed AS MATERIALIZED (\n"
	"  SELECT a.heap_id, a.made_in, a.freed_in, a.alloc_ns < k.start_ns AS is_early, sum(a.variance) AS variance,\n"
	"         sum(a.count_variance) AS count_variance\n"
	"  FROM (SELECT a.heap_id, a.alloc_ns, " STEP_AT("a.alloc_ns") " AS made_in,\n"
	"          " STEP_AT("a.free_ns") " AS freed_in,\n"
	"          1.0 * a.size_bytes * a.size_bytes * a.weight * (a.weight - 1) AS variance, a.weight * (a.weight - 1) AS count_variance\n"
	"        FROM allocation AS a WHERE a.weight > 1) AS a LEFT JOIN known AS k ON k.id = a.made_in GROUP BY 1, 2, 3, 4),\n"
	"placed_anywhere AS (\n"
	"  SELECT * FROM placed UNION ALL SELECT 0, p.made_in, p.freed_in, p.is_early, p.variance, p.count_variance\n"
	"  FROM placed AS p JOIN heap AS h ON h.id = p.heap_id WHERE h.is_root),\n"
	"made AS MATERIALIZED (\n"
	"  SELECT heap_id, made_in AS step_id, total(variance) FILTER (WHERE NOT is_early) AS variance,\n"
	"         total(count_variance) FILTER (WHERE NOT is_early) AS count_variance,\n"
	"         total(variance) FILTER (WHERE freed_in = made_in AND NOT is_early) AS freed_variance,\n"
	"         total(variance) FILTER (WHERE freed_in IS NOT made_in) AS survived_variance,\n"
	"         total(count_variance) FILTER (WHERE freed_in IS NOT made_in) AS survived_count_variance\n"
	"  FROM placed_anywhere WHERE made_in IS NOT NULL GROUP BY 1, 2),\n"
	"gone AS MATERIALIZED (\n"
	"  SELECT heap_id, freed_in AS step_id, total(variance) AS variance, total(count_variance) AS count_variance\n"
	"  FROM placed_anywhere WHERE freed_in IS NOT NULL GROUP BY 1, 2),\n"
	"bound AS MATERIALIZED (\n"
	"  SELECT k.process_id, a.heap_id, k.start_ns - 1 AS at_ns FROM known AS k JOIN step_aggregate AS a ON a.step_id = k.id\n"
	"  UNION SELECT k.process_id, a.heap_id, k.end_ns - 1 FROM known AS k JOIN step_aggregate AS a ON a.step_id = k.id),\n";

#define STEP_SHARE(variance, column, name) ",\n         round(sqrt(coalesce(" variance ", 0)) / abs(v." column "), 4) AS " name
#define NET_OF_STEP "coalesce(m.variance, 0) + coalesce(g.variance, 0) - 2 * coalesce(m.freed_variance, 0)"
#define LEVEL_AT(row, ns) \
	"\n  LEFT JOIN level_error AS " row " ON " row ".process_id = v.process_id AND " row ".heap_id = coalesce(h.id, 0) AND " row ".at_ns = k." ns " - 1"

static const char steps_of_samples[] =
	/* clang-format off */
	",\nstep_of_samples AS (\n  SELECT v.*"
	STEP_SHARE("m.variance", "allocated_bytes", "allocated_relative_error")
	STEP_SHARE("m.count_variance", "allocations", "allocated_count_relative_error")
	STEP_SHARE("g.variance", "freed_bytes", "freed_relative_error")
	STEP_SHARE("g.count_variance", "frees", "freed_count_relative_error")
	STEP_SHARE("max(" NET_OF_STEP ", 0)", "net_bytes", "net_relative_error")
	STEP_SHARE("b.variance", "live_begin_bytes", "live_begin_relative_error")
	STEP_SHARE("e.variance", "live_end_bytes", "live_end_relative_error")
	STEP_SHARE("m.survived_variance", "survived_bytes", "survived_relative_error")
	STEP_SHARE("m.survived_count_variance", "survived_count", "survived_count_relative_error")
	"\n  FROM step_total AS v JOIN known AS k ON k.id = v.step_id LEFT JOIN heap AS h ON h.process_id = v.process_id AND h.name = v.heap\n"
	"  LEFT JOIN made AS m ON m.step_id = v.step_id AND m.heap_id = coalesce(h.id, 0)\n"
	"  LEFT JOIN gone AS g ON g.step_id = v.step_id AND g.heap_id = coalesce(h.id, 0)"
	LEVEL_AT("b", "start_ns") LEVEL_AT("e", "end_ns") ")";
	/* clang-format on */

void tm_sql_step_errors(sqlite3_str *sql) {
	sqlite3_str_appendall(sql, steps);
	tm_sql_level_errors(sql, "bound");
	sqlite3_str_appendall(sql, steps_of_samples);
}
