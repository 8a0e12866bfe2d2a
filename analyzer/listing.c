/* listing.c - composes options into one query and shows its rows.
 *
 * A verb's listing names a source; filters, order and limit are added here, the same way for all of them. A query has no LIMIT unless the
 * user gave one: a table simply stops after its first rows, so that the same query stands behind every format. Where there may be millions of rows a
 * table asks for those that it shows, and counts them all.
 */
#include "listing.h"

#include <stdio.h>
#include <string.h>

#include "schema/units.h"
#include "columns.h"
#include "coverage.h"
#include "scans.h"
#include "talk.h"

#define TABLE_ROWS 20

static int check_heap(const struct tm_database *d, const char *heap) {
	char *sql = sqlite3_mprintf("SELECT 1 FROM heap WHERE name = %Q", heap);
	bool exists = sql && tm_database_integer(d, sql, 0);
	sqlite3_free(sql);
	if (exists) return 0;
	char *names = tm_database_words(d, "SELECT DISTINCT name FROM heap ORDER BY name");
	int status = tm_fail("no heap '%s' in '%s' (heaps: %s)", heap, d->path, names ? names : "none");
	sqlite3_free(names);
	return status;
}

static void warn_of_worlds(const struct tm_database *d, const struct tm_options *o) {
	char sql[96];
	if (!o->process_is_rank || o->world || d->worlds < 2) return;
	snprintf(sql, sizeof(sql), "SELECT count(DISTINCT coalesce(world, '')) FROM process WHERE rank = %lld", (long long)o->process);
	int64_t worlds = tm_database_integer(d, sql, 1);
	if (worlds > 1)
		tm_say("warning: %lld worlds have a rank %lld, and all are shown: --process=rank:%lld@WORLD takes one (`tidemark processes`)",
		       (long long)worlds, (long long)o->process, (long long)o->process);
}

static int check_world(const struct tm_database *d, const struct tm_options *o) {
	char *sql = sqlite3_mprintf("SELECT 1 FROM process WHERE rank = %lld AND world = %Q", (long long)o->process, o->world);
	bool exists = sql && tm_database_integer(d, sql, 0);
	sqlite3_free(sql);
	if (exists) return 0;
	sql = sqlite3_mprintf("SELECT DISTINCT world FROM process WHERE rank = %lld AND world IS NOT NULL ORDER BY 1",
			      (long long)o->process);
	char *known = sql ? tm_database_words(d, sql) : NULL;
	int status = tm_fail("no rank %lld in a world '%s' in '%s' (worlds that have one: %s)", (long long)o->process, o->world, d->path,
			     known && *known ? known : "none");
	sqlite3_free(known);
	sqlite3_free(sql);
	return status;
}

static int check_process(const struct tm_database *d, const struct tm_options *o) {
	char sql[96];
	const char *column = o->process_is_rank ? "rank" : "id";
	snprintf(sql, sizeof(sql), "SELECT 1 FROM process WHERE %s = %lld", column, (long long)o->process);
	if (tm_database_integer(d, sql, 0)) return o->world ? check_world(d, o) : (warn_of_worlds(d, o), 0);
	snprintf(sql, sizeof(sql), "SELECT DISTINCT %s FROM process WHERE %s IS NOT NULL ORDER BY 1", column, column);
	char *known = tm_database_words(d, sql);
	int status = tm_fail("no process with %s %lld in '%s' (%ss: %s)", column, (long long)o->process, d->path, column,
			     known ? known : "none");
	sqlite3_free(known);
	return status;
}

/* Named instants of a kind: how to find one, and how to list them all. */
struct named {
	const char *noun, *find, *list;
};

/* One of before the window of a ring is gone with what else was of then. */
static int check_named(const struct tm_database *d, const struct tm_options *o, const struct named *n, const char *name) {
	char kept[TM_UNIT_TEXT_MAX + 32] = "", text[TM_UNIT_TEXT_MAX];
	char *sql = sqlite3_mprintf(n->find, name);
	bool exists = sql && tm_database_integer(d, sql, 0);
	sqlite3_free(sql);
	if (exists) return 0;
	char *names = tm_database_words(d, n->list);
	int64_t from_ns = tm_known_from_ns(d, o);
	if (from_ns >= 0) snprintf(kept, sizeof kept, " (kept from %s on)", tm_format_time((uint64_t)from_ns, text));
	int status = tm_fail("no %s '%s' in '%s' (%ss: %s)%s", n->noun, name, d->path, n->noun, names && *names ? names : "none", kept);
	sqlite3_free(names);
	return status;
}

#define TM_QUOTED(label) ", '" label "'"

static int check_snapshot(const struct tm_database *d, const struct tm_options *o, const char *name) {
	static const struct named snapshot = {
		"snapshot", "SELECT 1 FROM snapshot WHERE label = %Q LIMIT 1",
		"SELECT iif(label = '', '\"\"', label) FROM snapshot WHERE label NOT LIKE 'mark:%' AND label NOT IN"
		" ('mark:'" TM_OWN_LABELS(TM_QUOTED) ") GROUP BY label ORDER BY min(ts_ns)"
	};
	char *label = sqlite3_mprintf("%s%s", tm_label_prefix(name, strlen(name)), name);
	int status = label ? check_named(d, o, &snapshot, label) : tm_fail("cannot read '%s': out of memory", d->path);
	sqlite3_free(label);
	return status;
}

static int check_baseline(const struct tm_database *d) {
	if (tm_database_integer(d, "SELECT 1 FROM snapshot WHERE label = 'baseline' LIMIT 1", 0)) return 0;
	return tm_fail("no baseline in '%s': the program asked for none (tidemark_baseline())", d->path);
}

static int check_mark(const struct tm_database *d, const struct tm_options *o, const struct tm_time_point *point) {
	static const struct named mark = { "mark", "SELECT 1 FROM mark WHERE name = %Q",
					   "SELECT iif(name = '', '\"\"', name) FROM mark GROUP BY name ORDER BY min(ts_ns)" };
	static const struct named step = { "step", "SELECT 1 FROM step WHERE n = %s", "SELECT DISTINCT n FROM step ORDER BY n" };
	static const struct named scope = { "scope", "SELECT 1 FROM scope_aggregate WHERE name = %Q AND calls > 0 LIMIT 1",
					    "SELECT DISTINCT iif(name = '', '\"\"', name) FROM scope_aggregate WHERE calls > 0 ORDER BY name LIMIT 20" };
	switch (point->kind) {
	case TM_TIME_MARK: return check_named(d, o, &mark, point->mark);
	case TM_TIME_STEP:
	case TM_TIME_STEP_END: return check_named(d, o, &step, point->mark);
	case TM_TIME_SCOPE:
	case TM_TIME_SCOPE_END: return check_named(d, o, &scope, point->mark);
	case TM_TIME_SNAPSHOT: return check_snapshot(d, o, point->mark);
	case TM_TIME_BASELINE: return check_baseline(d);
	default: return 0;
	}
}

char *tm_window_condition(const struct tm_database *d, const struct tm_options *o, const char *process, const char *first,
			  const char *last) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	sqlite3_str_appendall(sql, "true");
	if (o->from.kind != TM_TIME_UNSET) {
		sqlite3_str_appendf(sql, " AND %s >= ", last);
		tm_time_point_sql(sql, &o->from, process, o->heap);
	}
	if (o->to.kind != TM_TIME_UNSET) {
		sqlite3_str_appendf(sql, " AND %s <= ", first);
		tm_time_point_sql(sql, &o->to, process, o->heap);
	}
	return sqlite3_str_finish(sql);
}

/* A window that is empty in every process is a slip. */
static int check_window(const struct tm_database *d, const struct tm_options *o) {
	if (o->from.kind == TM_TIME_UNSET || o->to.kind == TM_TIME_UNSET) return 0;
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	sqlite3_str_appendall(sql, "SELECT max(");
	tm_time_point_sql(sql, &o->from, "p.id", o->heap);
	sqlite3_str_appendall(sql, " <= ");
	tm_time_point_sql(sql, &o->to, "p.id", o->heap);
	sqlite3_str_appendall(sql, ") FROM process AS p");
	tm_sql_process(sql, o, " WHERE", "p.id");
	char *query = sqlite3_str_finish(sql);
	bool is_empty = query && !tm_database_integer(d, query, 1);
	sqlite3_free(query);
	if (!is_empty) return 0;
	return tm_misuse(o->usage->verb, "the window is empty: --from=%s comes after --to=%s", o->from_text, o->to_text);
}

int64_t tm_count_unrecorded(const struct tm_database *d, const struct tm_options *o) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	sqlite3_str_appendall(sql, "SELECT count(*) FROM process WHERE NOT recorded");
	tm_sql_process(sql, o, " AND", "id");
	char *query = sqlite3_str_finish(sql);
	int64_t count = query ? tm_database_integer(d, query, 0) : 0;
	sqlite3_free(query);
	return count;
}

/* Nothing is there of what nobody looked at. */
static void say_unrecorded(const struct tm_database *d, const struct tm_options *o) {
	int64_t count = tm_count_unrecorded(d, o);
	if (!count) return;
	tm_flush_output();
	tm_say("%lld process%s could not be recorded: tidemark info says why", (long long)count, count == 1 ? "" : "es");
}

/* Nothing is live then, which is no answer to who thinks that the program still ran. */
static void warn_of_end(const struct tm_database *d, const struct tm_options *o) {
	const struct {
		const struct tm_time_point *point;
		const char *option, *text;
	} begins[] = { { &o->from, "--from", o->from_text },
		       { &o->at, "--at", o->at_text },
		       { &o->against, "--against", o->against_text } };
	char end[TM_UNIT_TEXT_MAX];
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	sqlite3_str_appendall(sql, "SELECT max(p.end_ns) FROM process AS p");
	tm_sql_process(sql, o, " WHERE", "p.id");
	char *query = sqlite3_str_finish(sql);
	int64_t end_ns = query ? tm_database_integer(d, query, INT64_MAX) : INT64_MAX;
	sqlite3_free(query);
	for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
		if (begins[i].point->kind != TM_TIME_NS || begins[i].point->ns <= (uint64_t)end_ns) continue;
		tm_say("warning: %s=%s comes after the end of %s at %s", begins[i].option, begins[i].text,
		       o->process_given ? "the process" : "the recording", tm_format_time((uint64_t)end_ns, end));
	}
}

int tm_listing_check(const struct tm_database *d, const struct tm_options *o) {
	int status = o->heap ? check_heap(d, o->heap) : 0;
	if (!status && o->process_given) status = check_process(d, o);
	if (!status) status = check_mark(d, o, &o->from);
	if (!status) status = check_mark(d, o, &o->to);
	if (!status) status = check_mark(d, o, &o->at);
	if (!status) status = check_mark(d, o, &o->against);
	if (!status) status = check_window(d, o);
	if (!status) warn_of_end(d, o);
	if (!status && o->needs_known_window) status = tm_check_window_known(d, o);
	/* A query of its own asks the tables, and these have what is missing. */
	if (!status && !o->sql && o->usage->options & TM_OPTION_PROCESS) tm_warn_of_gaps(d, o);
	return status;
}

static void put_with(sqlite3_str *sql, const struct tm_listing *l, const char *more) {
	if (l->with) sqlite3_str_appendf(sql, "WITH %s", l->with);
	if (more) sqlite3_str_appendf(sql, "%s%s", l->with ? ",\n" : "WITH ", more);
	else if (l->with) sqlite3_str_appendall(sql, "\n");
}

static void put_select(sqlite3_str *sql, const struct tm_options *o, const struct tm_listing *l) {
	const char *process = l->process ? l->process : "process_id";
	const char *word = "WHERE";
	sqlite3_str_appendf(sql, "SELECT %s\nFROM %s", l->columns ? l->columns : "*", l->source);
	if (l->where) {
		sqlite3_str_appendf(sql, "\n%s %s", word, l->where);
		word = "AND";
	}
	if (o->process_given && !*process) {
		/* It lists things that belong to no process. */
	} else if (o->process_given) {
		sqlite3_str_appendall(sql, "\n");
		tm_sql_process(sql, o, word, process);
		word = "AND";
	}
	if (o->heap && l->has_heap) sqlite3_str_appendf(sql, "\n%s heap = %Q", word, o->heap);
	if (o->heap && l->has_device)
		sqlite3_str_appendf(sql, "\n%s (process_id, device) IN (SELECT process_id, device FROM heap WHERE name = %Q)", word, o->heap);
}

/* What a listing selects, without an order. */
static char *plain_select(const struct tm_database *d, const struct tm_options *o, const struct tm_listing *l) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	put_with(sql, l, NULL);
	put_select(sql, o, l);
	return sqlite3_str_finish(sql);
}

/* The names of the columns, in *names as "a, b, c"; true if `wanted` is one of them. */
static bool find_column(const struct tm_database *d, const char *select, const char *wanted, size_t n, sqlite3_str *names, int *status) {
	sqlite3_stmt *statement;
	bool found = false;
	*status = tm_database_prepare(d, select, &statement);
	for (int i = 0; i < sqlite3_column_count(statement); i++) {
		const char *name = sqlite3_column_name(statement, i);
		if (strlen(name) == n && memcmp(name, wanted, n) == 0) found = true;
		sqlite3_str_appendf(names, "%s%s", i ? ", " : "", name);
	}
	sqlite3_finalize(statement);
	return found;
}

static const char *sort_column(const struct tm_options *o) {
	return o->sort + (*o->sort == '+' || *o->sort == '-');
}

/* Appends the order: the chosen column first, then the usual one, so that ties are never left to chance. */
static int put_order(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, const struct tm_listing *l) {
	sqlite3_str_appendall(sql, "\nORDER BY ");
	if (o->sort) {
		int status;
		const char *column = sort_column(o);
		sqlite3_str *names = sqlite3_str_new(d->handle);
		char *select = plain_select(d, o, l);
		bool found = find_column(d, select, column, strlen(column), names, &status);
		char *list = sqlite3_str_finish(names);
		if (!status && !found)
			status = tm_misuse(o->usage->verb, "cannot sort by '%s': the columns are %s", column, list ? list : "");
		sqlite3_free(select);
		sqlite3_free(list);
		if (status) return status;
		const char *meaning = l->value_as && strcmp(column, "value") == 0 ? l->value_as : column;
		bool downward = *o->sort == '-' || (*o->sort != '+' && tm_column_is_quantity(meaning));
		sqlite3_str_appendf(sql, "%s %s NULLS LAST, ", column, downward ? "DESC" : "ASC");
	}
	sqlite3_str_appendall(sql, l->order);
	return 0;
}

/* --- the page: the rows that are listed, chosen and in order, before more is looked up for each --- */

/* Where a column of a stack's site comes from, with the page joined as TM_SQL_SITE_JOIN says; NULL: it is no such column. */
static const char *site_column(const char *name) {
	static const char *const columns[][2] = { { "function", "f.function" },
						  { "file", "f.file" },
						  { "line", "f.line" },
						  { "module", "m.path AS module" },
						  { "module_offset", "f.module_offset" } };
	for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
		if (strcmp(columns[i][0], name) == 0) return columns[i][1];
	return NULL;
}

/* The columns that choose the rows and put them in order, and those that are shown. */
struct page {
	char *chosen, *shown;
	bool joins_sites;
};

static void release_page(struct page *p) {
	sqlite3_free(p->chosen);
	sqlite3_free(p->shown);
}

static int lay_out_page(struct page *p, const struct tm_database *d, const struct tm_options *o, const struct tm_listing *l) {
	*p = (struct page){ .joins_sites = l->unnamed && !(o->sort && site_column(sort_column(o))) };
	if (!p->joins_sites) return 0;
	sqlite3_str *chosen = sqlite3_str_new(d->handle), *shown = sqlite3_str_new(d->handle);
	char *select = plain_select(d, o, l);
	sqlite3_stmt *statement = NULL;
	int status = select ? tm_database_prepare(d, select, &statement) : 0;
	for (int i = 0; i < sqlite3_column_count(statement); i++) {
		const char *name = sqlite3_column_name(statement, i), *joined = site_column(name);
		if (i) sqlite3_str_appendall(shown, ", ");
		if (joined) sqlite3_str_appendall(shown, joined);
		else sqlite3_str_appendf(shown, "page.%s", name);
		if (!joined) sqlite3_str_appendf(chosen, "%s%s", sqlite3_str_length(chosen) ? ", " : "", name);
	}
	sqlite3_finalize(statement);
	sqlite3_free(select);
	p->chosen = sqlite3_str_finish(chosen);
	p->shown = sqlite3_str_finish(shown);
	return status;
}

static char *compose(const struct tm_database *d, const struct tm_options *o, const struct tm_listing *l, int64_t limit, int *status) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	struct tm_listing chosen = *l;
	struct page page;
	*status = lay_out_page(&page, d, o, l);
	bool is_paged = o->stack || page.joins_sites;
	if (page.joins_sites) {
		chosen.source = l->unnamed;
		chosen.columns = page.chosen;
	}
	put_with(sql, l, is_paged ? "page AS MATERIALIZED (\n" : NULL);
	put_select(sql, o, &chosen);
	if (!*status) *status = put_order(sql, d, o, l);
	if (limit > 0) sqlite3_str_appendf(sql, "\nLIMIT %lld", limit);
	else if (page.joins_sites) sqlite3_str_appendall(sql, "\nLIMIT -1"); /* without one SQLite drops the order of what is joined */
	if (is_paged) sqlite3_str_appendf(sql, ")\nSELECT %s", page.joins_sites ? page.shown : "page.*");
	if (o->stack) sqlite3_str_appendall(sql, ", (SELECT text FROM stack_text AS t WHERE t.stack_id = page.stack_id) AS stack");
	if (is_paged) sqlite3_str_appendf(sql, "\nFROM page%s", page.joins_sites ? "\n" TM_SQL_SITE_JOIN("page") : "");
	release_page(&page);
	char *text = sqlite3_str_finish(sql);
	if (!*status && !text) *status = tm_fail("cannot read '%s': out of memory", d->path);
	if (!*status) return text;
	sqlite3_free(text);
	return NULL;
}

char *tm_listing_sql(const struct tm_database *d, const struct tm_options *o, const struct tm_listing *l, int *status) {
	return compose(d, o, l, o->limit, status);
}

/* Are only the rows that its table shows put in order, and the others counted? */
static bool counts_rest(const struct tm_options *o, const struct tm_listing *l) {
	return l->may_be_millions && o->format == TM_FORMAT_TABLE && o->limit == TM_LIMIT_UNSET && !o->sql;
}

static unsigned rows_shown(const struct tm_listing *l) {
	return l->rows_shown ? l->rows_shown : TABLE_ROWS;
}

static uint64_t count_all(const struct tm_database *d, const struct tm_options *o, const struct tm_listing *l) {
	struct tm_listing bare = *l;
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	bare.columns = "count(*)";
	if (l->unnamed) bare.source = l->unnamed;
	put_with(sql, l, NULL);
	put_select(sql, o, &bare);
	char *query = sqlite3_str_finish(sql);
	int64_t count = query ? tm_database_integer(d, query, 0) : 0;
	sqlite3_free(query);
	return count > 0 ? (uint64_t)count : 0;
}

/* Columns that a table leaves out: they are for programs, or the same in every row. */
static void choose_hidden(const struct tm_database *d, const struct tm_listing *l, const char **hidden, size_t room) {
	static const char *const for_programs[] = { "module", "module_offset", "estimated", "level", NULL };
	size_t n = 0;
	for (size_t i = 0; for_programs[i]; i++) hidden[n++] = for_programs[i];
	if (d->processes < 2) hidden[n++] = "process_id";
	if (!d->has_ranks) hidden[n++] = "rank";
	if (d->worlds < 2) hidden[n++] = "world";
	for (size_t i = 0; l->hidden[i] && n + 1 < room; i++) hidden[n++] = l->hidden[i];
	hidden[n] = NULL;
}

static bool has_errors(sqlite3_stmt *statement) {
	for (int i = 0; i < sqlite3_column_count(statement); i++)
		if (strstr(sqlite3_column_name(statement, i), "relative_error")) return true;
	return false;
}

static int print_estimate_note(const struct tm_database *d, bool with_errors) {
	char mean[TM_UNIT_TEXT_MAX], text[384];
	const char *errors = with_errors ? "errors are standard errors" : "their errors are not worked out here";
	snprintf(text, sizeof(text),
		 "~ estimated: the trace holds a Poisson sample, one in %s on average; %s, sampled peaks are biased upward, "
		 "and so are temporary blocks (the next allocation is the next of the sample)",
		 tm_format_size((uint64_t)d->sample_bytes, mean), errors);
	return tm_print_words(text);
}

/* A bar goes with what the rows are sorted by. */
static const char *share_column(const struct tm_options *o, const struct tm_listing *l) {
	const char *sorted = o->sort ? sort_column(o) : NULL;
	if (!l->share_column || !sorted) return l->share_column;
	return tm_column_is_quantity(sorted) ? sorted : NULL;
}

/* What a full bar stands for. */
static double highest(const struct tm_database *d, const char *column, const char *sql) {
	char *query = sqlite3_mprintf("SELECT max(%s) FROM (%s)", column, sql);
	int64_t value = query ? tm_database_integer(d, query, 0) : 0;
	sqlite3_free(query);
	return (double)value;
}

static int show(const struct tm_database *d, const struct tm_options *o, const struct tm_listing *l, const char *sql, bool explain) {
	const char *hidden[32];
	char *condensed = o->format == TM_FORMAT_TABLE && l->condense ? l->condense(d, o, sql) : NULL;
	struct tm_render_plan plan = {
		.format = o->format,
		.path = d->path,
		.hidden = hidden,
		.bar_column = l->bar_column,
		.share_column = share_column(o, l),
		.main_column = o->sort         ? sort_column(o)
			       : l->bar_column ? l->bar_column
					       : l->share_column,
		.value_as = l->value_as,
		.null_heap = l->null_heap,
	};
	sqlite3_stmt *statement;
	uint64_t rows = 0;
	bool is_table = o->format == TM_FORMAT_TABLE;
	if (condensed) sql = condensed;
	choose_hidden(d, l, hidden, sizeof(hidden) / sizeof(hidden[0]));
	if (d->estimated) plan.estimated = l->estimated;
	if (is_table && l->bar_column) plan.bar_full = highest(d, l->bar_column, sql);
	if (is_table && o->limit == TM_LIMIT_UNSET && !l->bar_column) plan.rows_max = rows_shown(l);
	int status = tm_database_prepare(d, sql, &statement);
	if (!status && is_table && l->title) status = tm_print_title(l->title);
	if (!status) status = tm_render(statement, &plan, &rows);
	bool with_errors = statement && has_errors(statement);
	sqlite3_finalize(statement);
	sqlite3_free(condensed);
	if (!status && counts_rest(o, l) && rows == rows_shown(l)) rows = count_all(d, o, l);
	if (!status && is_table && rows && explain && d->estimated && l->estimated[0]) status = print_estimate_note(d, with_errors);
	if (!status && is_table && !rows)
		status = tm_print_words(o->heap && l->has_device ? "nothing, of the devices that this heap lies on" : l->nothing);
	if (!status && is_table && !rows && explain) say_unrecorded(d, o);
	if (!status && plan.rows_max && rows > plan.rows_max) {
		char all[TM_UNIT_TEXT_MAX];
		tm_flush_output();
		tm_say("%llu of %s rows shown, --limit=0 shows all", (unsigned long long)plan.rows_max, tm_format_count(rows, all));
	}
	return status;
}

int tm_listing_run(const struct tm_database *d, const struct tm_options *o, const struct tm_listing *l) {
	int status;
	bool condenses = l->condense && o->format == TM_FORMAT_TABLE && !o->sql; /* which heeds the limit itself */
	char *sql = compose(d, o, l, counts_rest(o, l) ? rows_shown(l) : condenses ? 0 : o->limit, &status);
	if (!status && o->sql) printf("%s;\n", sql);
	else if (!status) status = show(d, o, l, sql, true);
	sqlite3_free(sql);
	return status;
}

static void print_comment(const struct tm_listing *l, const char *sql) {
	printf("\n-- the table also lists: %s\n", l->title);
	while (*sql) {
		size_t n = strcspn(sql, "\n");
		printf("-- %.*s%s\n", (int)n, sql, sql[n] ? "" : ";");
		sql += n + (sql[n] == '\n');
	}
}

int tm_listing_also(const struct tm_database *d, const struct tm_options *o, const struct tm_listing *l) {
	int status;
	if (o->format != TM_FORMAT_TABLE) return 0;
	/* --sort names a column of the report's main list. */
	struct tm_options options = *o;
	options.sort = NULL;
	char *sql = compose(d, &options, l, counts_rest(o, l) ? rows_shown(l) : o->limit, &status);
	if (!status && o->sql) print_comment(l, sql);
	if (!status && !o->sql) {
		status = tm_write_output("\n", 1) ? TM_EXIT_FAILED : 0;
		if (!status) status = show(d, &options, l, sql, false);
	}
	sqlite3_free(sql);
	return status;
}

int tm_answer(const struct tm_usage *usage, int argc, char **argv, int (*answer)(const struct tm_database *d, const struct tm_options *o)) {
	struct tm_options o;
	struct tm_database d;
	int status = tm_options_parse(&o, usage, argc, argv);
	if (status != TM_OPTIONS_GO) return status;
	status = tm_database_open(&d, o.operands[0]);
	if (!status) status = tm_listing_check(&d, &o);
	if (!status) status = answer(&d, &o);
	tm_database_close(&d);
	return status;
}
