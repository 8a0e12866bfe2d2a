/* cmd_scopes.c - `tidemark scopes`: whose memory it is, by scope.
 *
 * The view scope_total has a row for each name, category and heap; import added everything up. The tree and torch.profiler's own counting are
 * worked out from the instances when they are asked for.
 */
#include "listing.h"
#include "scans.h"
#include "scope_errors.h"
#include "talk.h"
#include "verbs.h"

#include <string.h>

static const struct tm_usage usage = {
	.verb = "scopes",
	.operands = "DB|TRACE",
	.description =
		"Shows what happened in each scope (tidemark.h, Python, NVTX, ITT, PyTorch's operators), a row for each name and heap\n"
		"(view scope_total); [unscoped] is what happened outside of all scopes.\n"
		"  self     in the scope itself; the selves of all rows of a heap add up to the heap (--tree has no [unscoped])\n"
		"  total    with the scopes inside it; what several of one name did, inside each other or overlapping, counts once\n"
		"  net      allocated less freed; freed counts in the scope that frees\n"
		"  retained what the scope allocated and was live when it closed\n"
		"  growth   the heap's peak while the scope was open, less what was live when it opened; the largest of its calls\n"
		"  own      the most that was live of what the scope allocated; the largest of its calls\n"
		"Of a sampled trace all but peaks have standard errors (self_relative_error of bytes, self_count_relative_error of\n"
		"allocations, self_freed_relative_error, ...), but for sums over scopes that overlap without lying in one another.\n"
		"A table shows the columns that matter most; --format=json and --format=csv have all, and --sort takes any.\n"
		"--tree shows which scope lies in which, --means what a call costs on average (view scope_summary), --steps compares\n"
		"the steps (view step_total). With --from or --to the single scopes that were opened in that window are listed\n"
		"(view scope_instance). --torch-compat counts as torch.profiler does: to a scope goes all that any thread did from its\n"
		"start to its end (torch.profiler does not see threads that the program starts itself; they count here), self is that\n"
		"less its direct children, calls of one name are added up even inside each other, but one that alone lies in another of\n"
		"its name is that one; without --heap for PyTorch's heaps, without --category for its scopes.\n",
	.examples = "tidemark scopes run.db\n"
		    "tidemark scopes run.db --heap=torch.cpu --sort=retained_bytes --limit=10\n"
		    "tidemark scopes run.db --tree --category=user\n"
		    "tidemark scopes run.db --steps --heap=malloc --format=csv\n"
		    "tidemark scopes run.db --means --category=torch.op\n"
		    "tidemark scopes run.db --from=2s --to=3s --sort=peak_own_bytes\n"
		    "tidemark scopes run.db --torch-compat --heap=torch.cpu\n"
		    "tidemark snapshot run.db --scope forward\n",
	.options = TM_OPTIONS_LISTING | TM_OPTION_TREE | TM_OPTION_CATEGORY | TM_OPTION_MEANS | TM_OPTION_STEPS | TM_OPTION_TORCH_COMPAT,
	.operands_min = 1,
	.operands_max = 1,
};

#define NOTHING "no scopes were recorded"

#define OF_SAMPLES "of_samples"
#define BY_NAME(rows, name) \
	{ rows, "scope", "json_array(s.name, s.category)", "json_array(v.name, v.category)", "main", name, "2" }

/* Of what a table shows beside those of the columns that it has. */
#define HIDDEN_ERRORS \
	"self_count_relative_error", "total_count_relative_error", "self_freed_relative_error", "self_freed_count_relative_error", \
		"total_freed_relative_error", "total_freed_count_relative_error", "self_net_relative_error", "own_freed_relative_error"

/* --- by name --- */

static int list_totals(const struct tm_database *d, const struct tm_options *o, char *where) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	int status = d->estimated ? tm_sql_scope_errors(sql, d, o, &(struct tm_scope_rows)BY_NAME("scope_total", OF_SAMPLES)) : 0;
	char *with = sqlite3_str_finish(sql);
	struct tm_listing listing = {
		.with = with,
		.source = with ? OF_SAMPLES : "scope_total",
		.where = where,
		.order = "total_allocated_bytes DESC, process_id, heap, name, category",
		.share_column = "total_allocated_bytes",
		.has_heap = true,
		.nothing = NOTHING,
		.hidden = { "self_freed_bytes", "total_freed_bytes", "self_net_bytes", "self_allocations", "total_allocations",
			    "self_frees", "total_frees", "own_freed_bytes", "peak_bytes", HIDDEN_ERRORS },
		.estimated = { "self_allocated_bytes", "total_allocated_bytes", "total_net_bytes", "retained_bytes", "peak_growth_bytes",
			       "peak_own_bytes" },
	};
	if (!status) status = tm_listing_run(d, o, &listing);
	sqlite3_free(with);
	return status;
}

static int list_means(const struct tm_database *d, const struct tm_options *o, char *where) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	int status = 0;
	if (d->estimated) {
		status = tm_sql_scope_errors(sql, d, o, &(struct tm_scope_rows)BY_NAME("scope_total", "total_of_samples"));
		sqlite3_str_appendall(
			sql,
			",\n" OF_SAMPLES
			" AS (\n  SELECT v.*, t.total_relative_error AS mean_allocated_relative_error, t.total_net_relative_error AS net_relative_error,\n"
			"         t.retained_relative_error FROM scope_summary AS v LEFT JOIN total_of_samples AS t ON t.process_id = v.process_id\n"
			"  AND t.heap IS v.heap AND t.name = v.name AND t.category IS v.category)");
	}
	char *with = sqlite3_str_finish(sql);
	struct tm_listing listing = {
		.with = with,
		.source = with ? OF_SAMPLES : "scope_summary",
		.where = where,
		.order = "total_duration_ns DESC, process_id, heap, name, category",
		.share_column = "mean_allocated_bytes",
		.has_heap = true,
		.nothing = NOTHING,
		.hidden = { "retained_bytes", "peak_bytes", "retained_relative_error" },
		.estimated = { "mean_allocated_bytes", "mean_peak_growth_bytes", "peak_growth_bytes", "net_bytes" },
	};
	if (!status) status = tm_listing_run(d, o, &listing);
	sqlite3_free(with);
	return status;
}

static int list_steps(const struct tm_database *d, const struct tm_options *o) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	int status = d->estimated ? tm_sql_step_errors(sql, d, o) : 0;
	char *with = sqlite3_str_finish(sql);
	struct tm_listing listing = {
		.with = with,
		.source = with ? "step_of_samples" : "step_total",
		.order = "process_id, start_ns, step_id, heap IS NOT NULL, heap",
		.share_column = "peak_bytes",
		.has_heap = true,
		.nothing = "no steps were recorded",
		.hidden = { "step_id", "end_ns", "peak_growth_bytes", "survived_count", "frees", "rss_begin_bytes",
			    "allocated_count_relative_error", "freed_count_relative_error", "live_begin_relative_error",
			    "survived_count_relative_error" },
		.estimated = { "allocated_bytes", "freed_bytes", "net_bytes", "allocations", "live_begin_bytes", "live_end_bytes",
			       "peak_bytes", "survived_bytes" },
		.null_heap = "(all)",
	};
	if (!status) status = tm_listing_run(d, o, &listing);
	sqlite3_free(with);
	return status;
}

/* --- in a window --- */

static void put_bound(sqlite3_str *sql, const struct tm_options *o, const struct tm_time_point *point, const char *name) {
	if (point->kind == TM_TIME_UNSET) return;
	sqlite3_str_appendall(sql, ", ");
	tm_time_point_sql(sql, point, "p.id", o->heap);
	sqlite3_str_appendf(sql, " AS %s", name);
}

/* Also of a process that has no heap. */
static int list_instances(const struct tm_database *d, const struct tm_options *o, const char *where) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	sqlite3_str_appendall(sql, "bound AS MATERIALIZED (\n  SELECT p.id AS process_id");
	put_bound(sql, o, &o->from, "from_ns");
	put_bound(sql, o, &o->to, "to_ns");
	sqlite3_str_appendall(sql, "\n  FROM process AS p),\nopened AS (\n  SELECT s.* FROM scope_instance AS s\n"
				   "  WHERE EXISTS (SELECT 1 FROM bound AS i WHERE i.process_id = s.process_id");
	tm_sql_window(sql, o, "s.start_ns", "s.start_ns");
	sqlite3_str_appendall(sql, "))");
	int status = 0;
	if (d->estimated) {
		sqlite3_str_appendall(sql, ",\n");
		status = tm_sql_scope_errors(sql, d, o,
					     &(struct tm_scope_rows){ "opened", "scope", "s.id", "v.scope_id", "main", OF_SAMPLES, "2" });
	}
	char *with = sqlite3_str_finish(sql);
	struct tm_listing listing = {
		.with = with,
		.source = d->estimated ? OF_SAMPLES : "opened",
		.where = where,
		.order = "start_ns, scope_id, heap",
		.share_column = "total_allocated_bytes",
		.has_heap = true,
		.nothing = "no scope was opened then",
		.hidden = { "thread_id", "end_ns", "self_freed_bytes", "total_freed_bytes", "self_net_bytes", "self_allocations",
			    "total_allocations", "self_frees", "total_frees", "own_freed_bytes", "peak_bytes", HIDDEN_ERRORS },
		.estimated = { "self_allocated_bytes", "total_allocated_bytes", "total_net_bytes", "retained_bytes", "peak_growth_bytes",
			       "peak_own_bytes" },
	};
	if (!status) status = tm_listing_run(d, o, &listing);
	sqlite3_free(with);
	return status;
}

/* --- as a tree --- */

/* Scopes whose names agree all the way outward are one line, known by the first of them. Of a line's children the one that allocated most comes
 * first. What two of a line that overlap have in common counts once. A line has its scopes as a list, and not all the names around it as a
 * text: levels may be thousands, and each scope is in one list. */
static const char tree[] =
	"opened AS MATERIALIZED (\n  SELECT id, parent_id, process_id, name, category, end_ns, end_ns - start_ns AS duration_ns FROM scope WHERE id > 0),\n"
	"path AS MATERIALIZED (\n"
	"  WITH RECURSIVE down(path, around, depth, ids) AS (\n"
	"    SELECT min(id), 0, 0, json_group_array(id) FROM opened WHERE parent_id IS NULL GROUP BY process_id, name\n"
	"    UNION ALL SELECT json_extract(c.value, '$[0]'), p.path, p.depth + 1, c.value\n"
	"    FROM down AS p, json_each((\n"
	"      SELECT json_group_array(json(ids)) FROM (\n"
	"        SELECT json_group_array(s.id) AS ids FROM json_each(p.ids) AS i CROSS JOIN opened AS s ON s.parent_id = i.value\n"
	"        GROUP BY s.name))) AS c)\n"
	"  SELECT s.id, s.process_id, d.around, d.path, s.name, s.category, d.depth, s.end_ns, s.duration_ns\n"
	"  FROM down AS d CROSS JOIN json_each(d.ids) AS i CROSS JOIN opened AS s ON s.id = i.value),\n"
	"spent AS MATERIALIZED (SELECT path, count(*) AS calls, sum(duration_ns) AS duration_ns FROM path GROUP BY path),\n"
	"shared AS MATERIALIZED (\n"
	"  SELECT o.scope_id, o.heap_id, min(o.later_scope_id), o.allocated_bytes, o.freed_bytes, o.retained_bytes\n"
	"  FROM scope_overlap AS o CROSS JOIN path AS p ON p.id = o.scope_id CROSS JOIN path AS q ON q.id = o.later_scope_id\n"
	"  WHERE p.path = q.path GROUP BY o.scope_id, o.heap_id),\n"
	"line AS MATERIALIZED (\n"
	"  SELECT p.process_id, h.name AS heap, p.around, p.path, p.name, min(p.category) AS category,\n"
	"         json_group_array(DISTINCT p.category) AS categories, p.depth, t.calls, t.duration_ns,\n"
	"         coalesce(sum(a.self_allocated_bytes), 0) AS self_allocated_bytes,\n"
	"         coalesce(sum(a.total_allocated_bytes - coalesce(o.allocated_bytes, 0)), 0) AS total_allocated_bytes,\n"
	"         coalesce(sum(a.total_allocated_bytes - a.total_freed_bytes - coalesce(o.allocated_bytes - o.freed_bytes, 0)), 0)"
	" AS total_net_bytes,\n"
	"         coalesce(sum(a.retained_bytes - coalesce(o.retained_bytes, 0)), 0) AS retained_bytes,\n"
	"         max(a.peak_growth_bytes) AS peak_growth_bytes,\n"
	"         max(a.peak_own_bytes) AS peak_own_bytes, coalesce(h.estimated, 0) AS estimated\n"
	"  FROM path AS p JOIN spent AS t ON t.path = p.path LEFT JOIN scope_instance_aggregate AS a ON a.scope_id = p.id\n"
	"  LEFT JOIN shared AS o ON o.scope_id = a.scope_id AND o.heap_id = a.heap_id LEFT JOIN heap AS h ON h.id = a.heap_id\n"
	"  WHERE h.name IS NOT NULL OR p.path NOT IN (SELECT q.path FROM path AS q JOIN scope_instance_aggregate AS b ON b.scope_id = q.id)\n"
	"  GROUP BY p.path, h.name),\n"
	"placed AS MATERIALIZED (\n"
	"  SELECT l.*, CASE WHEN p.path IS NULL THEN f.heap ELSE l.heap END AS around_heap FROM line AS l\n"
	"  LEFT JOIN line AS p ON p.path = l.around AND p.heap IS l.heap\n"
	"  LEFT JOIN (SELECT path, min(heap) AS heap FROM line GROUP BY path) AS f ON f.path = l.around),\n"
	"sorted AS MATERIALIZED (\n"
	"  WITH RECURSIVE inward AS (\n"
	"    SELECT * FROM placed WHERE depth = 0\n"
	"    UNION ALL SELECT l.* FROM inward AS s JOIN placed AS l ON l.around = s.path AND l.around_heap IS s.heap\n"
	"    ORDER BY depth DESC, process_id, heap NULLS LAST, total_allocated_bytes DESC, name)\n"
	"  SELECT *, row_number() OVER () AS place FROM inward),\n"
	"tree AS (\n"
	"  SELECT process_id, heap, %s AS name, category, categories, depth, calls, duration_ns, self_allocated_bytes, total_allocated_bytes,\n"
	"         total_net_bytes, retained_bytes, peak_growth_bytes, peak_own_bytes, estimated, place, path FROM sorted)";

#define LINE_COLUMNS \
	"process_id, heap, name, category, depth, calls, duration_ns, self_allocated_bytes, total_allocated_bytes,\n" \
	"  total_net_bytes, retained_bytes, peak_growth_bytes, peak_own_bytes, estimated"

/* A line may be of scopes of several categories. */
static int list_tree(const struct tm_database *d, const struct tm_options *o) {
	bool is_table = o->format == TM_FORMAT_TABLE;
	char *where = o->category ? sqlite3_mprintf("EXISTS (SELECT 1 FROM json_each(categories) WHERE value = %Q)", o->category) : NULL;
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	const char *hole = strstr(tree, "%s AS name");
	sqlite3_str_append(sql, tree, (int)(hole - tree));
	sqlite3_str_appendall(sql, is_table ? "substr('                                        ', 1, 2 * depth) || name" : "name");
	sqlite3_str_appendall(sql, hole + 2);
	int status = 0;
	if (d->estimated) {
		sqlite3_str_appendall(sql, ",\n");
		status = tm_sql_line_errors(
			sql, d, o, &(struct tm_scope_rows){ "tree", "path", "s.path", "v.path", "main", OF_SAMPLES, "2 + v.calls" });
	}
	char *with = sqlite3_str_finish(sql);
	struct tm_listing listing = {
		.with = with,
		.columns = d->estimated ? LINE_COLUMNS
				   ",\n  self_relative_error, total_relative_error, total_net_relative_error, retained_relative_error"
					: LINE_COLUMNS,
		.source = d->estimated ? OF_SAMPLES : "tree",
		.where = where,
		.order = "place",
		.share_column = "total_allocated_bytes",
		.has_heap = true,
		.nothing = NOTHING,
		.hidden = { "depth", "category" },
		.estimated = { "self_allocated_bytes", "total_allocated_bytes", "total_net_bytes", "retained_bytes", "peak_growth_bytes",
			       "peak_own_bytes" },
	};
	if (!status)
		status = with && (where || !o->category) ? tm_listing_run(d, o, &listing)
							 : tm_fail("cannot read '%s': out of memory", d->path);
	sqlite3_free(with);
	sqlite3_free(where);
	return status;
}

/* --- as torch.profiler counts --- */

/* What it sees: PyTorch's own scopes, but for operators that it leaves out (_filter_name() in torch/autograd/profiler_util.py). */
static const char torch_seen[] =
	"s.category LIKE 'torch.%' AND s.name NOT IN ('profiler::_record_function_enter', 'profiler::_record_function_enter_new',\n"
	"    'profiler::_record_function_exit', 'aten::is_leaf', 'aten::output_nr', 'aten::_version')";

/* Which scope lies in which, as its EventList has it: what it does not see is not there, and one that alone lies in another of its name
 * (_remove_dup_nodes(): an operator that dispatches to itself) is that one. Then one list of openings, events and closings in the order
 * of time, with a running sum: what happened between a scope's start and end is a difference of two of its values. */
static const char torch[] =
	"seen AS MATERIALIZED (\n"
	"  SELECT s.id, s.parent_id, s.process_id, s.name, s.category, s.start_ns, s.end_ns FROM scope AS s\n"
	"  WHERE %s),\n"
	"child AS MATERIALIZED (\n"
	"  WITH RECURSIVE up(id, around) AS (\n"
	"    SELECT id, parent_id FROM seen\n"
	"    UNION SELECT u.id, s.parent_id FROM up AS u JOIN scope AS s ON s.id = u.around\n"
	"    WHERE u.around NOT IN (SELECT id FROM seen))\n"
	"  SELECT id, around FROM up WHERE around IS NULL OR around IN (SELECT id FROM seen)),\n"
	"alone AS MATERIALIZED (\n"
	"  SELECT min(id) AS id, around FROM child WHERE around IS NOT NULL GROUP BY around HAVING count(*) = 1),\n"
	"again AS MATERIALIZED (\n"
	"  SELECT a.id, a.around FROM alone AS a JOIN seen AS s ON s.id = a.id JOIN seen AS p ON p.id = a.around WHERE p.name = s.name),\n"
	"lies AS MATERIALIZED (\n"
	"  WITH RECURSIVE up(id, around) AS (\n"
	"    SELECT id, around FROM child WHERE id NOT IN (SELECT id FROM again)\n"
	"    UNION SELECT u.id, a.around FROM up AS u JOIN again AS a ON a.id = u.around)\n"
	"  SELECT s.*, u.around FROM up AS u JOIN seen AS s ON s.id = u.id\n"
	"  WHERE u.around IS NULL OR u.around NOT IN (SELECT id FROM again)),\n"
	"wanted AS MATERIALIZED (SELECT id, process_id FROM heap WHERE name %s),\n"
	"event AS (\n"
	"  SELECT a.heap_id, a.alloc_ns AS ts_ns, 1 AS rank, %s AS bytes, NULL AS scope_id FROM allocation AS a\n"
	"  WHERE a.heap_id IN (SELECT id FROM wanted)\n"
	"  UNION ALL SELECT a.heap_id, a.free_ns, 1, -%s, NULL FROM allocation AS a\n"
	"  WHERE a.free_ns IS NOT NULL AND a.heap_id IN (SELECT id FROM wanted)\n"
	"  UNION ALL SELECT h.id, s.start_ns, 0, 0, s.id FROM lies AS s JOIN wanted AS h ON h.process_id = s.process_id\n"
	"  UNION ALL SELECT h.id, s.end_ns, 2, 0, s.id FROM lies AS s JOIN wanted AS h ON h.process_id = s.process_id),\n"
	"running AS (\n"
	"  SELECT scope_id, heap_id, rank, sum(bytes) OVER (PARTITION BY heap_id ORDER BY ts_ns, rank RANGE UNBOUNDED PRECEDING) AS bytes\n"
	"  FROM event),\n"
	"used AS MATERIALIZED (\n"
	"  SELECT scope_id, heap_id, sum(CASE rank WHEN 2 THEN bytes ELSE -bytes END) AS bytes FROM running WHERE scope_id IS NOT NULL\n"
	"  GROUP BY scope_id, heap_id),\n"
	"inside AS MATERIALIZED (\n"
	"  SELECT s.around, u.heap_id, sum(u.bytes) AS bytes FROM used AS u JOIN lies AS s ON s.id = u.scope_id\n"
	"  GROUP BY s.around, u.heap_id),\n"
	"torch AS (\n"
	"  SELECT s.process_id, h.name AS heap, s.name, s.category, count(*) AS calls,\n"
	"         CAST(round(sum(u.bytes - coalesce(i.bytes, 0))) AS INTEGER) AS self_net_bytes,\n"
	"         CAST(round(sum(u.bytes)) AS INTEGER) AS total_net_bytes, h.estimated\n"
	"  FROM used AS u JOIN lies AS s ON s.id = u.scope_id JOIN heap AS h ON h.id = u.heap_id\n"
	"  LEFT JOIN inside AS i ON i.around = u.scope_id AND i.heap_id = u.heap_id\n"
	"  GROUP BY s.process_id, h.name, s.name, s.category)";

static int list_torch(const struct tm_database *d, const struct tm_options *o, const char *where) {
	bool is_torch = !o->category || strncmp(o->category, "torch.", 6) == 0;
	char *seen = is_torch ? sqlite3_mprintf("%s", torch_seen) : sqlite3_mprintf("s.category = %Q", o->category);
	char *heaps = o->heap ? sqlite3_mprintf("= %Q", o->heap) : sqlite3_mprintf("LIKE 'torch.%%'");
	const char *bytes = d->estimated ? "a.size_bytes * a.weight" : "a.size_bytes";
	char *with = seen && heaps ? sqlite3_mprintf(torch, seen, heaps, bytes, bytes) : NULL;
	struct tm_listing listing = {
		.with = with,
		.source = "torch",
		.where = where,
		.order = "total_net_bytes DESC, process_id, heap, name, category",
		.has_heap = true,
		.nothing = "no scopes of PyTorch were recorded; --category chooses others",
		.estimated = { "self_net_bytes", "total_net_bytes" },
	};
	int status = with ? tm_listing_run(d, o, &listing) : tm_fail("cannot read '%s': out of memory", d->path);
	sqlite3_free(with);
	sqlite3_free(seen);
	sqlite3_free(heaps);
	return status;
}

/* --- the whole --- */

static int check_category(const struct tm_database *d, const char *category) {
	char *sql = sqlite3_mprintf("SELECT 1 FROM scope_aggregate WHERE category = %Q LIMIT 1", category);
	bool exists = sql && tm_database_integer(d, sql, 0);
	sqlite3_free(sql);
	if (exists) return 0;
	char *names = tm_database_words(d, "SELECT DISTINCT category FROM scope_aggregate WHERE category IS NOT NULL ORDER BY 1");
	int status = tm_fail("no category '%s' in '%s' (categories: %s)", category, d->path, names && *names ? names : "none");
	sqlite3_free(names);
	return status;
}

static int answer(const struct tm_database *d, const struct tm_options *o) {
	int status = o->category ? check_category(d, o->category) : 0;
	if (status) return status;
	char *where = o->category ? sqlite3_mprintf("category = %Q", o->category) : NULL;
	if (o->steps) status = list_steps(d, o);
	else if (o->torch_compat) status = list_torch(d, o, where);
	else if (o->tree) status = list_tree(d, o);
	else if (o->means) status = list_means(d, o, where);
	else if (tm_has_window(o)) status = list_instances(d, o, where);
	else status = list_totals(d, o, where);
	sqlite3_free(where);
	return status;
}

int tm_cmd_scopes(int argc, char **argv) {
	struct tm_options o;
	int status = tm_options_parse(&o, &usage, argc, argv);
	if (status != TM_OPTIONS_GO) return status;
	if (o.tree + o.means + o.steps + o.torch_compat > 1)
		return tm_misuse("scopes", "--tree, --means, --steps and --torch-compat are different answers: one at a time");
	if (tm_has_window(&o) && (o.tree || o.means || o.steps || o.torch_compat))
		return tm_misuse("scopes", "--from and --to list single scopes: not with --tree, --means, --steps or --torch-compat");
	if (o.steps && o.category) return tm_misuse("scopes", "a step is in no category: not --category with --steps");
	return tm_answer(&usage, argc, argv, answer);
}
