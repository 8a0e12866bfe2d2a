/* cmd_snapshot.c - `tidemark snapshot --at T`: what was live at an instant, by call site.
 *
 * The instants that import kept (exit, end, the peaks) are read from their aggregates. Any other instant is answered exactly from the nearest
 * checkpoint and the allocations around it (live_sets.h): a block is live from its alloc_ns on, and no longer at its free_ns.
 */
#include "coverage.h"
#include "listing.h"
#include "live_sets.h"
#include "scans.h"
#include "stack_values.h"
#include "talk.h"
#include "verbs.h"

#include "../schema/units.h"

static const struct tm_usage usage = {
	.verb = "snapshot",
	.operands = "DB|TRACE --at T | --scope NAME",
	.description =
		"Lists what was live at an instant, by call stack, largest first. `exit`, `end` and `peak` are each process' own: one\n"
		"listing shows all ranks at their peaks, over their root heaps. With --heap, `peak` is the peak of that heap. With\n"
		"--from or --to only blocks that were allocated in that window are counted, so that --from=10s --at=20s shows what\n"
		"was made in between and is still there.\n"
		"--by groups by something else than the stack; file and library are those of the call site (`-`: it has none, as a Python\n"
		"function has no library). --against=T subtracts what was live at another instant (`change_bytes`).\n"
		"--scope shows four looks at each heap around the scopes of a name: at the baseline, before, at the peak, after; created\n"
		"and deleted are blocks since the look before (view scope_snapshot, which keeps the first 100 scopes of each name).\n",
	.examples = "tidemark snapshot run.db --at 12.5s\n"
		    "tidemark snapshot run.db --at step:20 --against step:10 --by=function\n"
		    "tidemark snapshot run.db --at peak --by=size --heap=malloc\n"
		    "tidemark snapshot run.db --at peak --process=rank:0 --stack\n"
		    "tidemark snapshot run.db --at mark:loaded --format=csv\n"
		    "tidemark snapshot run.db --scope forward --heap=torch.cpu\n",
	.options = TM_OPTIONS_LISTING | TM_OPTION_AT | TM_OPTION_STACK | TM_OPTION_SCOPE | TM_OPTION_BY | TM_OPTION_AGAINST,
	.operands_min = 1,
	.operands_max = 1,
};

/* The label of a kept snapshot for this instant, or NULL. */
static const char *kept_label(const struct tm_options *o) {
	switch (o->at.kind) {
	case TM_TIME_EXIT: return "exit";
	case TM_TIME_END: return "end";
	case TM_TIME_PEAK: return o->heap ? "peak" : "process-peak";
	default: return NULL;
	}
}

static void put_kept(sqlite3_str *sql, const char *label) {
	sqlite3_str_appendf(sql,
			    "unnamed AS (\n  SELECT n.process_id, h.name AS heap, k.stack_id, k.live_bytes, k.live_count, h.estimated\n"
			    "  FROM snapshot AS n JOIN snapshot_stack AS k ON k.snapshot_id = n.id JOIN heap AS h ON h.id = n.heap_id\n"
			    "  WHERE n.label = %Q),\n" TM_SQL_LIVE_NAMED(""),
			    label);
}

#define IN_ROOT_HEAP "EXISTS (SELECT 1 FROM heap AS h WHERE h.process_id = live.process_id AND h.name = live.heap AND h.is_root)"

static int check_scope(const struct tm_database *d, const char *name) {
	char *sql = sqlite3_mprintf("SELECT 1 FROM scope_aggregate WHERE name = %Q AND calls > 0 LIMIT 1", name);
	bool exists = sql && tm_database_integer(d, sql, 0);
	sqlite3_free(sql);
	if (exists) return 0;
	char *names = tm_database_words(d, "SELECT DISTINCT iif(name = '', '\"\"', name) FROM scope_aggregate WHERE calls > 0 ORDER BY name LIMIT 20");
	int status = tm_fail("no scope '%s' in '%s' (scopes: %s)", name, d->path, names && *names ? names : "none");
	sqlite3_free(names);
	return status;
}

static int answer_scope(const struct tm_database *d, const struct tm_options *o) {
	int status = check_scope(d, o->scope);
	if (status) return status;
	char *with = sqlite3_mprintf(
		"look AS (\n  SELECT s.process_id, p.scope_id, h.name AS heap, p.phase, p.ts_ns, p.live_bytes, p.allocated_bytes,\n"
		"         p.reserved_bytes, p.active_bytes, p.inactive_bytes, p.rss_bytes, p.created, p.deleted, h.estimated\n"
		"  FROM scope AS s JOIN scope_snapshot AS p ON p.scope_id = s.id JOIN heap AS h ON h.id = p.heap_id\n"
		"  WHERE s.name = %Q)",
		o->scope);
	struct tm_listing listing = {
		.with = with,
		.source = "look",
		.order = "process_id, scope_id, heap, CASE phase WHEN 'baseline' THEN 0 WHEN 'before' THEN 1 WHEN 'peak' THEN 2 ELSE 3 END",
		.has_heap = true,
		.nothing = "these scopes touched no heap",
		.estimated = { "live_bytes", "allocated_bytes", "created", "deleted" },
	};
	status = with ? tm_listing_run(d, o, &listing) : tm_fail("cannot read '%s': out of memory", d->path);
	sqlite3_free(with);
	return status;
}

#define NO_MEMORY(d) tm_fail("cannot read '%s': out of memory", (d)->path)

static const char *nothing_of(const struct tm_database *d, const struct tm_options *o, bool is_change) {
	if (is_change) return "nothing changed between the two";
	if (o->at.kind == TM_TIME_PEAK && tm_has_only_heaps_apart(d, o))
		return "no host memory was recorded; --heap=NAME shows what was live at the peak of a device's heap";
	return "nothing was live then";
}

static int list_live(const struct tm_database *d, const struct tm_options *o, char *with, const char *order, bool is_change,
		     bool may_be_millions) {
	bool asks_peak = o->at.kind == TM_TIME_PEAK || o->against.kind == TM_TIME_PEAK;
	struct tm_listing listing = {
		.with = with,
		.source = "live",
		/* The peak of a process is one over its root heaps, so that nothing else belongs to it. */
		.where = asks_peak && !o->heap ? IN_ROOT_HEAP : NULL,
		.order = order,
		.has_heap = true,
		.unnamed = o->by == TM_BY_STACK ? "unnamed AS live" : NULL,
		.may_be_millions = may_be_millions,
		.nothing = nothing_of(d, o, is_change),
		.estimated = { "live_bytes", "live_count", "against_bytes", "against_count", "change_bytes", "change_count" },
	};
	int status = with ? tm_listing_run(d, o, &listing) : NO_MEMORY(d);
	sqlite3_free(with);
	return status;
}

static int answer_groups(const struct tm_database *d, const struct tm_options *o) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	tm_sql_instants(sql, o, &o->at);
	sqlite3_str_appendall(sql, ",\n");
	tm_sql_live_by(sql, d, "instant", o, "");
	return list_live(d, o, sqlite3_str_finish(sql), "live_bytes DESC, live_count DESC, process_id, heap", false, false);
}

/* Two live sets, told apart by a sign. */
#define CHANGE_ORDER "abs(change_bytes) DESC, abs(change_count) DESC, process_id, heap, live_bytes DESC"
#define CHANGE_SUMS \
	"sum(live_bytes * (at - against)) AS change_bytes,\n" \
	"         sum(live_count * (at - against)) AS change_count, sum(live_bytes * at) AS live_bytes, sum(live_count * at) AS live_count,\n" \
	"         sum(live_bytes * against) AS against_bytes, sum(live_count * against) AS against_count"
#define CHANGED "HAVING sum(live_bytes * (at - against)) <> 0 OR sum(live_count * (at - against)) <> 0"

/* Of stacks there may be millions: they are told apart by numbers, and their sites looked up for those that are listed. */
#define CHANGE_OF_STACKS \
	"change AS (\n  SELECT process_id, heap_id, stack_id, " CHANGE_SUMS "\n" \
	"  FROM (SELECT 1 AS at, 0 AS against, process_id, heap_id, stack_id, live_bytes, live_count FROM block_at\n" \
	"        UNION ALL SELECT 0, 1, process_id, heap_id, stack_id, live_bytes, live_count FROM block_against)\n" \
	"  GROUP BY heap_id, stack_id\n  " CHANGED ")"
#define NAMED_CHANGE \
	"unnamed AS (\n  SELECT b.process_id, h.name AS heap, b.stack_id, b.change_bytes, b.change_count, b.live_bytes, b.live_count,\n" \
	"         b.against_bytes, b.against_count, h.estimated\n  FROM change AS b CROSS JOIN heap AS h ON h.id = b.heap_id),\n" \
	"live AS (\n  SELECT b.process_id, b.heap, b.stack_id, f.function, f.file, f.line, m.path AS module, f.module_offset,\n" \
	"         b.change_bytes, b.change_count, b.live_bytes, b.live_count, b.against_bytes, b.against_count, b.estimated\n" \
	"  FROM unnamed AS b\n" TM_SQL_SITE_JOIN("b") ")"

/* `change` as a table, made now of the expressions `sides`; false: it has to be SQL. A listing reads it more than once. */
static bool make_change(const struct tm_database *d, const struct tm_options *o, const char *sides) {
	char *sql = o->sql ? NULL
			   : sqlite3_mprintf("CREATE TEMP TABLE stack_change AS WITH %s,\n" CHANGE_OF_STACKS " SELECT * FROM change",
					     sides);
	bool made = sql && sqlite3_exec(d->handle, sql, NULL, NULL, NULL) == SQLITE_OK;
	sqlite3_free(sql);
	return made;
}

static void put_change_of_groups(sqlite3_str *sql, const char *keys) {
	sqlite3_str_appendf(sql,
			    ",\nboth AS (\n  SELECT 1 AS at, 0 AS against, * FROM live_at UNION ALL SELECT 0, 1, * FROM live_against),\n"
			    "live AS (\n  SELECT process_id, heap%s, " CHANGE_SUMS ", estimated\n"
			    "  FROM both GROUP BY process_id, heap%s\n  " CHANGED ")",
			    keys, keys);
}

static void put_side(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, const struct tm_time_point *at,
		     const char *instants, const char *suffix) {
	tm_sql_instants_as(sql, o, at, instants);
	sqlite3_str_appendall(sql, ",\n");
	if (o->by == TM_BY_STACK) tm_sql_block_stacks(sql, d, instants, o, suffix);
	else tm_sql_live_by(sql, d, instants, o, suffix);
}

static int answer_change_of_stacks(const struct tm_database *d, const struct tm_options *o, char *sides) {
	bool is_made = sides && make_change(d, o, sides);
	char *with = is_made ? sqlite3_mprintf("change AS (SELECT * FROM temp.stack_change),\n" NAMED_CHANGE)
		     : sides ? sqlite3_mprintf("%s,\n" CHANGE_OF_STACKS ",\n" NAMED_CHANGE, sides)
			     : NULL;
	sqlite3_free(sides);
	return list_live(d, o, with, CHANGE_ORDER ", stack_id", true, is_made);
}

static int answer_against(const struct tm_database *d, const struct tm_options *o) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	struct tm_options one = tm_without_window(o);
	put_side(sql, d, &one, &o->at, "instant", "_at");
	sqlite3_str_appendall(sql, ",\n");
	put_side(sql, d, &one, &o->against, "instant_against", "_against");
	if (o->by == TM_BY_STACK) return answer_change_of_stacks(d, o, sqlite3_str_finish(sql));
	put_change_of_groups(sql, tm_live_keys(o->by));
	return list_live(d, o, sqlite3_str_finish(sql), CHANGE_ORDER, true, false);
}

static int answer(const struct tm_database *d, const struct tm_options *o) {
	int status = tm_check_known_then(d, o, &o->at);
	if (!status) status = tm_check_known_then(d, o, &o->against);
	if (status) return status;
	if (o->scope) return answer_scope(d, o);
	if (o->against.kind != TM_TIME_UNSET) return answer_against(d, o);
	if (o->by != TM_BY_STACK) return answer_groups(d, o);

	const char *label = tm_has_window(o) || d->estimated ? NULL : kept_label(o);
	bool is_made = label;
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	if (label) {
		put_kept(sql, label);
	} else {
		tm_sql_instants(sql, o, &o->at);
		sqlite3_str_appendall(sql, ",\n");
		is_made = tm_sql_live(sql, d, "instant", o);
	}
	return list_live(d, o, sqlite3_str_finish(sql), "live_bytes DESC, process_id, heap, stack_id", false, is_made);
}

int tm_cmd_snapshot(int argc, char **argv) {
	struct tm_options o;
	int status = tm_options_parse(&o, &usage, argc, argv);
	if (status != TM_OPTIONS_GO) return status;
	if (o.scope && (o.at.kind != TM_TIME_UNSET || tm_has_window(&o) || o.stack))
		return tm_misuse("snapshot", "--scope has its own instants: not with --at, --from, --to or --stack");
	if (o.scope && (o.by_given || o.against.kind != TM_TIME_UNSET))
		return tm_misuse("snapshot", "--scope shows four looks: not with --by or --against");
	if (o.stack && o.by != TM_BY_STACK) return tm_misuse("snapshot", "--stack is for rows that are stacks: not with --by");
	if (o.against.kind != TM_TIME_UNSET && tm_has_window(&o))
		return tm_misuse("snapshot", "--against has its own window: not with --from or --to");
	if (o.at.kind == TM_TIME_UNSET && !o.scope)
		return tm_misuse("snapshot", "--at says which instant is wanted: 12.5s, peak, exit, end, mark:NAME; --scope which scope");
	return tm_answer(&usage, argc, argv, answer);
}
