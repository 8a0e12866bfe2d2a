/* cmd_top.c - `tidemark top`: a recording while it runs.
 *
 *     a trace, or --pid -> live_source.c finds the file -> live.c follows it -> live_rows.c -> listing.c
 *
 * On a terminal the screen shows the newest look, as much of it as fits. Elsewhere one look follows the other as plain rows. A trace that is
 * complete, and a database, show how it ended, once.
 */
#include "coverage.h"
#include "display_text.h"
#include "listing.h"
#include "live_sets.h"
#include "live_rows.h"
#include "live_source.h"
#include "scans.h"
#include "screen.h"
#include "site_sums.h"
#include "talk.h"
#include "verbs.h"

#include "schema/units.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define SLICE_MS 100u
#define SHORT_SCREEN 18 /* lines; a shorter one has room for call sites alone */
#define NAMES_MS 3000u  /* the first look waits so long for names */
#define OPENS 5u
#define SILENCE_MS 1500 /* the recorder writes at least once a second */

static const struct tm_usage usage = {
	.verb = "top",
	.operands = "DB|TRACE|--pid=PID",
	.description =
		"Shows a recording while it runs: per heap, per call site and per scope what is live now, and how fast it is allocated.\n"
		"It follows the trace, which is written at least once a second; the program does not notice. On a terminal it refreshes\n"
		"itself: q quits, l p a b sort by live bytes, peak, allocations a second, bytes a second, n by blocks, t by all bytes so\n"
		"far. Elsewhere each look is a table, or rows of --by=heap (default), site or scope as JSON or CSV, ts_ns saying of when.\n"
		"The whole process is heap null. Rates are since the look before, at first over all the time that the file tells of; looks\n"
		"that come faster than the trace is written repeat them. peak_bytes of a call site is its part of its heap's peak. Of a\n"
		"recording with a ring totals and peaks are of what its file still tells. A trace that is complete shows its end, once, and\n"
		"so does a database, of a sample with the standard errors of its estimates.\n",
	.examples = "tidemark top run.tmk\n"
		    "tidemark top --pid=4242 --sort=bytes_per_second\n"
		    "tidemark top run.tmk --by=site --format=csv --interval=5s --count=12\n",
	.options = TM_OPTION_FORMAT | TM_OPTION_LIMIT | TM_OPTION_SORT | TM_OPTION_HEAP | TM_OPTION_PROCESS | TM_OPTION_TOP,
	.operands_min = 0,
	.operands_max = 1,
};

/* --- what is listed --- */

#define ORDER "live_bytes DESC, allocated_bytes DESC"
#define HIDDEN "ts_ns", "peak_relative_error", "allocated_relative_error", "allocated_count_relative_error"
#define HIDDEN_COUNT 4

static const struct tm_listing heaps = {
	.source = "live_heap",
	.order = "live_bytes DESC, process_id, heap IS NOT NULL, heap",
	.has_heap = true,
	.title = "heaps",
	.nothing = "nothing was allocated so far",
	.hidden = { HIDDEN },
	.estimated = { "live_bytes", "live_count", "peak_bytes", "allocations_per_second", "bytes_per_second", "allocations",
		       "allocated_bytes" },
	.null_heap = "(all)",
};

static const struct tm_listing sites = {
	.source = "live_site",
	.order = ORDER ", process_id, heap, function, file, line, module_offset",
	.has_heap = true,
	.title = "call sites",
	.nothing = "nothing was allocated so far",
	.hidden = { HIDDEN },
	.estimated = { "live_bytes", "live_count", "peak_bytes", "allocations_per_second", "bytes_per_second", "allocations",
		       "allocated_bytes" },
};

static const struct tm_listing scopes = {
	.source = "live_scope",
	.order = ORDER ", process_id, heap, name, category",
	.has_heap = true,
	.title = "scopes (what they allocated themselves)",
	.nothing = "no scope was opened so far",
	.hidden = { HIDDEN },
	.estimated = { "live_bytes", "live_count", "allocations_per_second", "bytes_per_second", "allocations", "allocated_bytes" },
	.null_heap = "-",
};

static const struct tm_listing *listing_of(enum tm_by by) {
	return by == TM_BY_SCOPE ? &scopes : by == TM_BY_SITE ? &sites : &heaps;
}

/* What lives in a ring's window from before it is no part of what was done in it: `older_heap`, `older_place` and `older_scope`. */
#define OLDER_HEAP "_older_heap"
#define OLDER_SITE "_older_site"
#define OLDER_SCOPE "_older_scope"

static const char older_tables[] =
	"older_heap AS (SELECT process_id, heap, live_bytes, live_count FROM live" OLDER_HEAP " UNION ALL\n"
	"  SELECT l.process_id, NULL, sum(l.live_bytes), sum(l.live_count) FROM live" OLDER_HEAP " AS l\n"
	"  JOIN heap AS h ON h.process_id = l.process_id AND h.name = l.heap WHERE h.is_root GROUP BY l.process_id),\n"
	"older_place AS (SELECT heap_id, site_frame_id, live_bytes, live_count FROM place" OLDER_SITE "),\n"
	"older_scope AS (SELECT process_id, heap, name, category, live_bytes, live_count FROM live" OLDER_SCOPE "),\n";

static const char no_older_tables[] =
	"older_heap AS (SELECT 0 AS process_id, '' AS heap, 0 AS live_bytes, 0 AS live_count WHERE false),\n"
	"older_scope AS (SELECT 0 AS process_id, '' AS heap, '' AS name, '' AS category, 0 AS live_bytes, 0 AS live_count WHERE false),\n";

/* False: there is none. */
static bool put_older(sqlite3_str *sql, const struct tm_database *d) {
	struct tm_options by_heap = { .by = TM_BY_HEAP }, by_site = { .by = TM_BY_SITE }, by_scope = { .by = TM_BY_SCOPE };
	if (!tm_has_gap(d, &by_heap, "'dropped'")) {
		sqlite3_str_appendall(sql, no_older_tables);
		return false;
	}
	sqlite3_str_appendall(
		sql,
		"opening AS MATERIALIZED (\n  SELECT h.id AS heap_id, p.id AS process_id, p.end_ns, g.end_ns - 1 AS at_ns FROM heap AS h\n"
		"  JOIN process AS p ON p.id = h.process_id JOIN coverage_gap AS g ON g.process_id = p.id AND g.kind = 'dropped'),\n");
	tm_sql_live_by(sql, d, "opening", &by_heap, OLDER_HEAP);
	sqlite3_str_appendall(sql, ",\n");
	tm_sql_live_by(sql, d, "opening", &by_site, OLDER_SITE);
	sqlite3_str_appendall(sql, ",\n");
	tm_sql_live_by(sql, d, "opening", &by_scope, OLDER_SCOPE);
	sqlite3_str_appendf(sql, ",\n%s", older_tables);
	return true;
}

/* The same columns of a database, as its run ended; `live` is what was live then by scope, `sums` by heap and site (site_sums.h). Of a process that ended
 * before a ring's window no time is known: its rates are 0. */
static const char end_tables[] =
	"run AS MATERIALIZED (\n  SELECT k.id, iif(k.known_ns > 0, k.known_ns, 9e999) AS known_ns, k.end_ns FROM (\n"
	"    SELECT p.id, t.end_ns, min(p.end_ns, coalesce((SELECT min(g.start_ns) FROM coverage_gap AS g WHERE g.process_id = p.id\n"
	"    AND g.kind IN (" TM_GAPS_AT_END ")), p.end_ns)) - max(p.start_ns, coalesce((SELECT max(g.end_ns) FROM coverage_gap AS g\n"
	"    WHERE g.process_id = p.id AND g.kind = 'dropped'), p.start_ns)) AS known_ns\n"
	"    FROM process AS p JOIN trace AS t ON t.id = p.trace_id) AS k),\n"
	"live_heap AS (\n  SELECT r.end_ns AS ts_ns, s.process_id, s.heap, s.live_at_end_bytes AS live_bytes, s.live_at_end_count AS live_count,\n"
	"  s.peak_bytes, CAST(round((s.allocations - coalesce(o.live_count, 0)) * 1e9 / r.known_ns) AS INTEGER) AS allocations_per_second,\n"
	"  CAST(round((s.allocated_bytes - coalesce(o.live_bytes, 0)) * 1e9 / r.known_ns) AS INTEGER) AS bytes_per_second, s.allocations,\n"
	"  s.allocated_bytes, iif(s.heap IS NULL, (SELECT value FROM sample AS v WHERE v.process_id = s.process_id AND v.name = 'rss'"
	" ORDER BY ts_ns DESC LIMIT 1), NULL) AS rss_bytes\n  FROM heap_summary AS s JOIN run AS r ON r.id = s.process_id\n"
	"  LEFT JOIN older_heap AS o ON o.process_id = s.process_id AND o.heap IS s.heap),\n"
	"live_scope AS (\n  SELECT r.end_ns AS ts_ns, s.process_id, s.heap, s.name, s.category, s.calls,\n"
	"  coalesce(l.live_bytes, 0) AS live_bytes, coalesce(l.live_count, 0) AS live_count,\n"
	"  CAST(round((s.self_allocations - coalesce(o.live_count, 0)) * 1e9 / r.known_ns) AS INTEGER) AS allocations_per_second,\n"
	"  CAST(round((s.self_allocated_bytes - coalesce(o.live_bytes, 0)) * 1e9 / r.known_ns) AS INTEGER) AS bytes_per_second,\n"
	"  s.self_allocations AS allocations, s.self_allocated_bytes AS allocated_bytes\n"
	"  FROM scope_total AS s JOIN run AS r ON r.id = s.process_id LEFT JOIN live AS l ON l.process_id = s.process_id\n"
	"  AND l.heap = s.heap AND l.name = s.name AND l.category IS s.category\n"
	"  LEFT JOIN older_scope AS o ON o.process_id = s.process_id AND o.heap = s.heap AND o.name = s.name AND o.category IS s.category\n"
	"  WHERE s.self_allocations > 0\n"
	/* One that allocated nothing itself has a row without a heap, as live_rows.c has it. */
	"  UNION ALL SELECT r.end_ns, s.process_id, NULL, s.name, s.category, max(s.calls), NULL, NULL, NULL, NULL, NULL, NULL\n"
	"  FROM scope_total AS s JOIN run AS r ON r.id = s.process_id WHERE s.calls IS NOT NULL\n"
	"  GROUP BY s.process_id, s.name, s.category HAVING coalesce(max(s.self_allocations), 0) = 0)";

#define SUMS "sites_at_end"
#define LIVE "live_at_end"

/* The errors of samples, as shares of columns of v, by the variances of e: of what was live, of its peak, and of what was allocated, with its rates. */
#define SHARE(variance, column, name) "round(sqrt(" variance ") / round(" column "), 4) AS " name
#define LIVE_ERRORS(v, e) \
	SHARE(e ".live_variance", v ".live_bytes", "relative_error") \
	",\n  " SHARE(e ".live_count_variance", v ".live_count", "count_relative_error")
#define PEAK_ERROR(v, e) SHARE(e ".peak_variance", v ".peak_bytes", "peak_relative_error")
#define ALLOCATED_ERRORS(v, e) \
	SHARE(e ".allocated_variance", v ".allocated_bytes", "allocated_relative_error") \
	",\n  " SHARE(e ".allocated_count_variance", v ".allocations", "allocated_count_relative_error")
#define ROUNDED(name) "CAST(round(v." name ") AS INTEGER) AS " name

/* The same tables with these; of heap_variance (site_sums.h), and of what live_site has before it is rounded. */
static const char sample_tables[] =
	/* clang-format off */
	",\nheap_of_samples AS (\n  SELECT v.*, " LIVE_ERRORS("v", "e") ",\n  " PEAK_ERROR("v", "e") ",\n  " ALLOCATED_ERRORS("v", "e") "\n"
	"  FROM live_heap AS v LEFT JOIN heap_variance AS e ON e.process_id = v.process_id AND e.heap IS v.heap),\n"
	"site_of_samples AS (\n  SELECT v.ts_ns, v.process_id, v.heap, " ROUNDED("live_bytes") ", " ROUNDED("live_count") ",\n"
	"  " ROUNDED("peak_bytes") ", v.allocations_per_second, v.bytes_per_second,\n"
	"  " ROUNDED("allocations") ", " ROUNDED("allocated_bytes") ", v.function, v.file, v.line, v.module, v.module_offset,\n"
	"  " LIVE_ERRORS("v", "v") ",\n  " PEAK_ERROR("v", "v") ",\n  " ALLOCATED_ERRORS("v", "v") "\n  FROM live_site AS v),\n"
	"scope_variance AS (\n  SELECT h.process_id, h.name AS heap, s.name, s.category, " TM_SQL_VARIANCE " AS allocated_variance,\n"
	"  " TM_SQL_COUNT_VARIANCE " AS allocated_count_variance FROM allocation AS a JOIN heap AS h ON h.id = a.heap_id\n"
	"  JOIN scope AS s ON s.id = a.scope_id GROUP BY a.heap_id, s.name, s.category),\n"
	"scope_of_samples AS (\n  SELECT v.*, l.relative_error, l.count_relative_error,\n  " ALLOCATED_ERRORS("v", "e") "\n"
	"  FROM live_scope AS v LEFT JOIN live AS l ON l.process_id = v.process_id AND l.heap = v.heap AND l.name = v.name AND l.category IS v.category\n"
	"  LEFT JOIN scope_variance AS e ON e.process_id = v.process_id AND e.heap = v.heap AND e.name = v.name AND e.category IS v.category)";
/* clang-format on */

static bool is_one_table(const struct tm_options *o) {
	return o->by_given || o->format != TM_FORMAT_TABLE;
}

/* Of call stacks there may be millions: they are added up by the numbers of their sites, in a table that was made or in SQL, before any text is looked up. */
static void put_end_sums(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, bool has_table) {
	sqlite3_str_appendall(sql, d->estimated ? SUMS " AS MATERIALIZED (\n  " : SUMS " AS (\n  ");
	if (has_table) sqlite3_str_appendall(sql, "SELECT * FROM temp." SUMS);
	else if (d->estimated) tm_site_sums_put_samples(sql, o, "main", LIVE);
	else tm_site_sums_put(sql, o, "main", LIVE);
	sqlite3_str_appendall(sql, "),\n");
}

static void put_end_sites(sqlite3_str *sql, const struct tm_database *d, bool has_older) {
	sqlite3_str_appendf(
		sql,
		"live_site AS (\n  SELECT r.end_ns AS ts_ns, h.process_id, h.name AS heap, sum(g.live_bytes) AS live_bytes,"
		" sum(g.live_count) AS live_count,\n"
		"  sum(g.peak_bytes) AS peak_bytes,\n"
		"  CAST(round((sum(g.allocations)%s) * 1e9 / r.known_ns) AS INTEGER) AS allocations_per_second,\n"
		"  CAST(round((sum(g.allocated_bytes)%s) * 1e9 / r.known_ns) AS INTEGER) AS bytes_per_second,\n"
		"  sum(g.allocations) AS allocations, sum(g.allocated_bytes) AS allocated_bytes, f.function, f.file, f.line, m.path AS module,"
		" f.module_offset%s\n"
		"  FROM " SUMS " AS g JOIN heap AS h ON h.id = g.heap_id JOIN run AS r ON r.id = h.process_id\n"
		"%s  LEFT JOIN frame AS f ON f.id = g.site_frame_id LEFT JOIN module AS m ON m.id = f.module_id\n"
		"  GROUP BY h.process_id, h.name, f.function, f.file, f.line, iif(f.function IS NULL, m.path, 0),"
		" iif(f.function IS NULL, f.module_offset, 0))",
		has_older ? " - coalesce(sum(o.live_count), 0)" : "", has_older ? " - coalesce(sum(o.live_bytes), 0)" : "",
		d->estimated ? ",\n  " TM_SUMS_OF_VARIANCES("g") ", sum(g.peak_variance) AS peak_variance" : "",
		has_older ? "  LEFT JOIN older_place AS o ON o.heap_id = g.heap_id AND o.site_frame_id IS g.site_frame_id\n" : "");
}

/* To be freed with sqlite3_free(); NULL after saying why (*status is the exit status). */
static char *compose_end_tables(const struct tm_database *d, const struct tm_options *o, int *status) {
	static const struct tm_time_point at_end = { .kind = TM_TIME_END };
	struct tm_options by_scope = { .by = TM_BY_SCOPE };
	/* The errors of heaps are made of those of sites. */
	bool are_listed = !is_one_table(o) || o->by == TM_BY_SITE || (d->estimated && o->by == TM_BY_HEAP);
	*status = are_listed ? (d->estimated ? tm_site_sums_make_samples : tm_site_sums_make)(d, o, "main", LIVE, SUMS) : TM_SUMS_IN_SQL;
	if (*status > 0) return NULL;
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	tm_sql_instants(sql, &by_scope, &at_end);
	sqlite3_str_appendall(sql, ",\n");
	tm_sql_live_by(sql, d, "instant", &by_scope, "");
	sqlite3_str_appendall(sql, ",\n");
	bool has_older = put_older(sql, d);
	sqlite3_str_appendf(sql, "%s,\n", end_tables);
	put_end_sums(sql, d, o, !*status);
	if (d->estimated) {
		sqlite3_str_appendall(sql, "heap_variance AS (\n  ");
		tm_site_sums_put_heaps(sql, "main", SUMS);
		sqlite3_str_appendall(sql, "),\n");
	}
	put_end_sites(sql, d, has_older);
	if (d->estimated) sqlite3_str_appendall(sql, sample_tables);
	char *tables = sqlite3_str_finish(sql);
	*status = tables ? 0 : tm_fail("cannot read '%s': out of memory", d->path);
	return tables;
}

/* --sort names a column of one of the tables; another one keeps its usual order. */
static bool has_column(const struct tm_listing *l, const char *sort) {
	const char *name = sort + (*sort == '+' || *sort == '-');
	static const char *const of_scopes[] = { "name", "category", "calls", NULL };
	static const char *const of_sites[] = { "function", "file", "line", "module", "module_offset", "peak_bytes", NULL };
	static const char *const of_heaps[] = { "rss_bytes", "peak_bytes", NULL };
	static const char *const of_all[] = {
		"ts_ns",       "process_id",      "heap",       "live_bytes", "allocations_per_second", "bytes_per_second",
		"allocations", "allocated_bytes", "live_count", NULL
	};
	static const char *const of_samples[] = { "relative_error", "count_relative_error", "allocated_relative_error",
						  "allocated_count_relative_error", NULL };
	static const char *const of_peaks[] = { "peak_relative_error", NULL };
	const char *const *lists[] = { of_all,
				       l == &scopes  ? of_scopes
				       : l == &sites ? of_sites
						     : of_heaps,
				       of_samples, l == &scopes ? of_samples : of_peaks };
	for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
		for (size_t i = 0; lists[k][i]; i++)
			if (strcmp(lists[k][i], name) == 0) return true;
	return false;
}

static int list_one(const struct tm_database *d, const struct tm_options *o, const struct tm_listing *which, const char *with,
		    int64_t limit) {
	struct tm_options options = *o;
	struct tm_listing l = *which;
	l.with = with;
	if (with && d->estimated)
		l.source = which == &scopes ? "scope_of_samples" : which == &sites ? "site_of_samples" : "heap_of_samples";
	if (limit >= 0 && (options.limit <= 0 || options.limit > limit)) options.limit = limit;
	if (o->sort && !has_column(which, o->sort)) options.sort = NULL;
	/* What a table is not sorted by makes room for names. */
	bool totals = options.sort && strstr(options.sort, "allocat") && !strstr(options.sort, "per_second");
	if (!totals) {
		l.hidden[HIDDEN_COUNT] = "allocations";
		l.hidden[HIDDEN_COUNT + 1] = "allocated_bytes";
	}
	return tm_listing_run(d, &options, &l);
}

/* --sort must be a column of something that is listed. */
static int check_options(const struct tm_options *o) {
	if (o->by_given && o->by != TM_BY_HEAP && o->by != TM_BY_SITE && o->by != TM_BY_SCOPE)
		return tm_misuse("top", "--by takes heap, site or scope here");
	if (!o->operand_count == !o->pid) return tm_misuse("top", "one of a database, a trace and --pid=PID is needed");
	if (!o->sort) return TM_OPTIONS_GO;
	bool by_one = o->by_given || o->format != TM_FORMAT_TABLE;
	bool known = by_one ? has_column(listing_of(o->by), o->sort)
			    : has_column(&heaps, o->sort) || has_column(&sites, o->sort) || has_column(&scopes, o->sort);
	return known ? TM_OPTIONS_GO : tm_misuse("top", "cannot sort by '%s': no such column", o->sort);
}

/* One look as tables. */
static int list_tables(const struct tm_database *d, const struct tm_options *o, const char *with) {
	if (o->by_given) return list_one(d, o, listing_of(o->by), with, -1);
	int status = list_one(d, o, &heaps, with, -1);
	if (!status) status = tm_write_output("\n", 1) ? TM_EXIT_FAILED : 0;
	if (!status) status = list_one(d, o, &sites, with, o->limit == TM_LIMIT_UNSET ? 20 : -1);
	if (!status) status = tm_write_output("\n", 1) ? TM_EXIT_FAILED : 0;
	return status ? status : list_one(d, o, &scopes, with, o->limit == TM_LIMIT_UNSET ? 10 : -1);
}

static int top_database(const struct tm_options *o) {
	struct tm_database d;
	int status = tm_database_open(&d, o->operands[0]);
	if (!status) status = tm_listing_check(&d, o);
	char *tables = status ? NULL : compose_end_tables(&d, o, &status);
	if (!status) status = is_one_table(o) ? list_one(&d, o, listing_of(o->by), tables, -1) : list_tables(&d, o, tables);
	sqlite3_free(tables);
	tm_database_close(&d);
	return status;
}

/* --- a trace --- */

struct top {
	struct tm_options o;
	struct tm_live live;
	struct tm_live_names names;
	struct tm_database d;
	struct tm_live_source source;
	struct tm_screen screen;
	int64_t looks;
	uint64_t rows;               /* of JSON and CSV so far */
	bool running;                /* somebody writes the trace */
	uint64_t heard_ns, heard_ms; /* until when the trace told of something, and when it was read */
};

static uint64_t now_ms(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* What the trace has so far; with the screen in between. false: out of memory, or the user wants to quit. */
static bool read_on(struct top *t, uint64_t until_ms) {
	for (;;) {
		int rc = tm_live_poll(&t->live, SLICE_MS);
		if (rc < 0) {
			tm_fail("cannot follow '%s': out of memory", t->source.shown);
			return false;
		}
		tm_live_names_talk(&t->names);
		uint64_t now = now_ms();
		if (t->live.ended || t->live.stopped || (!rc && now >= until_ms)) return true;
		if (rc && t->screen.is_on && now >= until_ms) return true; /* a long trace is shown as far as it is read */
		if (!tm_screen_wait(&t->screen, rc ? 0 : (unsigned)(until_ms - now < SLICE_MS ? until_ms - now : SLICE_MS))) return false;
		if (t->screen.key_pressed) return true;
	}
}

/* Nobody writes the trace any more: what came since it was last read. false: out of memory. */
static bool read_rest(struct top *t) {
	for (;;) {
		int rc = tm_live_poll(&t->live, SLICE_MS);
		if (rc < 0) tm_fail("cannot follow '%s': out of memory", t->source.shown);
		if (rc <= 0) return rc == 0;
		tm_live_names_talk(&t->names);
	}
}

/* A file that was there a moment ago may have been replaced. */
static bool open_trace(struct top *t) {
	char error[256];
	for (unsigned i = 0; i < OPENS; i++) {
		if (tm_live_open(&t->live, t->source.path, error, sizeof error) == 0) return true;
		if (i + 1 < OPENS) tm_live_release(&t->live);
		tm_live_source_look_again(&t->source);
	}
	tm_fail("cannot follow '%s': %s", t->source.shown, error);
	return false;
}

/* The file that is in the place of the one that was followed: it tells all that is live, by the same numbers, and rates go on from where they were. */
static bool follow_anew(struct top *t) {
	uint64_t since_ns = t->live.interval_over ? t->live.now_ns : t->live.rates_ns, start_unix_ns = t->live.catalog.start_unix_ns;
	tm_live_release(&t->live);
	if (!open_trace(t)) return false;
	t->live.begin_ns = since_ns;
	if (!read_rest(t)) return false;
	if (t->live.begin_ns) tm_live_begin_interval(&t->live); /* nothing was done since */
	if (t->live.catalog.start_unix_ns != start_unix_ns) { /* another recording */
		tm_live_names_release(&t->names);
		tm_live_names_init(&t->names, &t->live);
	}
	return true;
}

/* Does somebody write the trace? If not, what came since it was last read is read, and the one that has replaced it, as often as that happens. */
static bool see_who_writes(struct top *t) {
	for (;;) {
		t->running = !t->live.ended && !t->live.stopped && tm_live_source_is_written(t->live.reader.fd);
		if (t->running) return true;
		if (!read_rest(t)) return false;
		if (t->live.ended || t->live.stopped || !tm_live_source_is_replaced(&t->source, t->live.reader.fd)) return true;
		if (!follow_anew(t)) return false;
	}
}

static int take_rows(struct top *t) {
	if (tm_live_rows_take(&t->d, &t->live, &t->names) == 0) return 0;
	return tm_fail("cannot follow '%s': out of memory", t->source.shown);
}

/* With the answers of the process that reads module files: where one says that a frame is an allocator's, the next one is asked for. */
static int take_named_rows(struct top *t) {
	uint64_t until = now_ms() + NAMES_MS;
	int status = take_rows(t);
	while (!status && tm_live_names_waiting(&t->names)) {
		while (tm_live_names_waiting(&t->names) && now_ms() < until && tm_screen_wait(&t->screen, 10))
			tm_live_names_talk(&t->names);
		bool gives_up = tm_live_names_waiting(&t->names);
		status = take_rows(t);
		if (gives_up) break;
	}
	return status;
}

/* The trace is written about once a second: looks in between show the rates of what it told last. Where it is silent for longer, nothing
 * was done. */
static void mind_silence(struct top *t) {
	uint64_t now = now_ms();
	if (t->live.now_ns != t->heard_ns) t->heard_ms = now;
	else if (t->live.interval_over && now - t->heard_ms > SILENCE_MS) tm_live_begin_interval(&t->live);
	t->heard_ns = t->live.now_ns;
}

static int put_rows(struct top *t) {
	int status;
	sqlite3_stmt *statement = NULL;
	char *sql = tm_listing_sql(&t->d, &t->o, listing_of(t->o.by), &status);
	if (!status) status = tm_database_prepare(&t->d, sql, &statement);
	if (!status && t->o.format == TM_FORMAT_JSON) status = tm_render_json_rows(statement, &t->rows) ? TM_EXIT_FAILED : 0;
	else if (!status) status = tm_render_csv_rows(statement, !t->looks, &t->rows) ? TM_EXIT_FAILED : 0;
	sqlite3_finalize(statement);
	sqlite3_free(sql);
	return status;
}

/* A run that is over took until its last process ended; a reading may come behind that. */
static uint64_t shown_ns(const struct tm_live *l) {
	uint64_t end_ns = 0;
	for (size_t i = 0; l->ended && i < l->catalog.processes.count; i++) {
		const struct tm_catalog_process *p = &l->catalog.processes.items[i];
		if (!p->ended) return l->now_ns;
		if (p->end_ns > end_ns) end_ns = p->end_ns;
	}
	return end_ns && end_ns < l->now_ns ? end_ns : l->now_ns;
}

/* The name is what is shortened. */
static void put_heading(const struct top *t) {
	char count[TM_UNIT_TEXT_MAX], time[TM_UNIT_TEXT_MAX], what[160];
	struct tm_bytes name = TM_BYTES_INIT, line = TM_BYTES_INIT;
	const char *state = t->live.ended     ? "ended"
			    : t->live.stopped ? t->live.stopped
			    : t->running      ? "recording"
					      : "cut off: nobody writes it";
	int n = snprintf(what, sizeof what, "  %s, %s, %s event%s", state, tm_format_time(shown_ns(&t->live), time),
			 tm_format_count(t->live.events, count), t->live.events == 1 ? "" : "s");
	size_t width = tm_terminal_width(), room = width > (size_t)n + 8 ? width - (size_t)n : 8;
	tm_display_text(&name, t->source.shown, strlen(t->source.shown));
	tm_display_fit(&line, (const char *)name.data, name.size, room, TM_SHORTEN_START);
	printf("%s%.*s%s%.*s\n", tm_bold(), (int)line.size, (const char *)line.data, tm_plain(), (int)(width > 8 ? width - 8 : 0), what);
	tm_bytes_release(&name);
	tm_bytes_release(&line);
}

static int put_table(struct top *t) {
	put_heading(t);
	int status = list_tables(&t->d, &t->o, NULL);
	if (!status && t->running && !t->screen.is_on) printf("\n");
	return status;
}

static int put_look(struct top *t) {
	int status = t->o.format == TM_FORMAT_TABLE ? put_table(t) : put_rows(t);
	return tm_flush_output() ? TM_EXIT_FAILED : status;
}

static int gather(const struct top *t, const struct tm_listing *which, int64_t rows, struct tm_screen_part *part) {
	tm_screen_part_begin(part);
	int status = list_one(&t->d, &t->o, which, NULL, rows);
	tm_screen_part_end(part);
	return status;
}

/* As many rows, but one at least, as fit into so many lines: how many lines a table's headings take depends on its rows. */
static int gather_rows(const struct top *t, const struct tm_listing *which, int64_t lines, struct tm_screen_part *part) {
	int status = gather(t, which, 1, part);
	for (int64_t excess, rows = 1 + lines - (int64_t)part->lines; !status && rows > 1; rows -= excess) {
		status = gather(t, which, rows, part);
		excess = (int64_t)part->lines - lines;
		if (excess <= 0) return status;
	}
	return status ? status : gather(t, which, 1, part);
}

/* Scopes, where a row of them fits below one of call sites, take a third of the rows. */
static int put_sites_and_scopes(const struct top *t, int64_t lines, bool has_scopes) {
	struct tm_screen_part site_part = { 0 }, scope_part = { 0 };
	int status = has_scopes ? gather(t, &sites, 1, &site_part) : 0;
	if (!status && has_scopes) status = gather(t, &scopes, 1, &scope_part);
	int64_t spare = lines - (int64_t)site_part.lines - 1 - (int64_t)scope_part.lines;
	if (spare < 0) has_scopes = false;
	if (!status && has_scopes) status = gather_rows(t, &scopes, (int64_t)scope_part.lines + spare / 3, &scope_part);
	if (!status) status = gather_rows(t, &sites, has_scopes ? lines - (int64_t)scope_part.lines - 1 : lines, &site_part);
	tm_screen_part_print(&site_part);
	if (has_scopes) printf("\n");
	if (has_scopes) tm_screen_part_print(&scope_part);
	tm_screen_part_release(&site_part);
	tm_screen_part_release(&scope_part);
	return status;
}

/* As much as fits below the heading and above the keys: heaps first, then call sites (alone where lines are few) and scopes. */
static int put_parts(const struct top *t, int64_t lines) {
	bool is_short = lines < SHORT_SCREEN;
	bool has_scopes = tm_database_integer(&t->d, "SELECT 1 FROM live_scope WHERE name <> '[unscoped]' LIMIT 1", 0);
	int64_t heap_rows = tm_database_integer(&t->d, "SELECT count(*) FROM live_heap", 0), left = lines - 2;
	if (is_short) return put_sites_and_scopes(t, left, false);
	struct tm_screen_part part = { 0 };
	if (heap_rows > lines / 3) heap_rows = lines / 3;
	int status = gather(t, &heaps, heap_rows ? heap_rows : 1, &part);
	tm_screen_part_print(&part);
	printf("\n");
	if (!status) status = put_sites_and_scopes(t, left - (int64_t)part.lines - 1, has_scopes);
	tm_screen_part_release(&part);
	return status;
}

static int put_screen(struct top *t) {
	int64_t lines = (int64_t)tm_screen_begin(&t->screen);
	put_heading(t);
	int status = t->o.by_given ? list_one(&t->d, &t->o, listing_of(t->o.by), NULL, lines) : put_parts(t, lines);
	tm_screen_end(&t->screen, "q quit  sort: l live  p peak  n blocks  a allocations/s  b bytes/s  t total");
	return status;
}

static const char *sort_of(char key) {
	switch (key) {
	case 'l': return "live_bytes";
	case 'p': return "peak_bytes";
	case 'n': return "live_count";
	case 'a': return "allocations_per_second";
	case 'b': return "bytes_per_second";
	case 't': return "allocated_bytes";
	default: return NULL;
	}
}

static bool is_last(const struct top *t) {
	return !t->running || (t->o.count && t->looks >= t->o.count) || t->screen.quit;
}

/* While it is written, a heap or process that is asked for may still come. */
static int check_names(const struct top *t) {
	return t->running ? 0 : tm_listing_check(&t->d, &t->o);
}

/* Looks until the end, the last asked for, or the user quits. */
static int look(struct top *t) {
	uint64_t interval_ms = t->o.interval_ns / 1000000, next = now_ms();
	int status = 0;
	do {
		if (!read_on(t, next)) return t->screen.quit ? 0 : TM_EXIT_FAILED;
		bool due = now_ms() >= next || t->live.ended;
		if (t->screen.key_pressed && sort_of(t->screen.key_pressed)) t->o.sort = sort_of(t->screen.key_pressed);
		t->screen.key_pressed = 0;
		if (!see_who_writes(t)) return TM_EXIT_FAILED;
		mind_silence(t);
		if ((status = t->looks ? take_rows(t) : take_named_rows(t))) return status;
		if (t->screen.is_on) status = put_screen(t);
		else if (!(status = check_names(t))) status = put_look(t);
		if (due) {
			t->live.interval_over = true;
			t->looks++;
			next = now_ms() + interval_ms;
		}
	} while (!status && !is_last(t));
	return status;
}

static int top_trace(struct top *t) {
	if (!open_trace(t)) return TM_EXIT_FAILED;
	tm_live_names_init(&t->names, &t->live);
	if (tm_live_rows_open(&t->d, t->source.shown) < 0) return tm_fail("cannot follow '%s': out of memory", t->source.shown);
	t->running = tm_live_source_is_written(t->live.reader.fd);
	tm_screen_open(&t->screen, t->running && t->o.format == TM_FORMAT_TABLE);
	if (t->o.format == TM_FORMAT_JSON && tm_write_output("[", 1)) return TM_EXIT_FAILED;
	int status = look(t);
	bool was_on = t->screen.is_on;
	tm_screen_close(&t->screen);
	if (!status && was_on && t->looks) status = check_names(t);
	if (!status && was_on && t->looks) status = put_look(t);
	if (t->o.format == TM_FORMAT_JSON && tm_render_json_end(t->rows)) status = TM_EXIT_FAILED;
	if (!status && t->live.stopped)
		tm_say("'%s' is damaged: %s at offset %llu", t->source.shown, t->live.stopped,
		       (unsigned long long)t->live.reader.chunk_offset);
	return status;
}

int tm_cmd_top(int argc, char **argv) {
	struct top t = { .live.reader.fd = -1, .names.fd = -1 };
	int status = tm_options_parse(&t.o, &usage, argc, argv);
	if (status != TM_OPTIONS_GO || (status = check_options(&t.o)) != TM_OPTIONS_GO) return status;
	if (!t.o.by_given) t.o.by = TM_BY_HEAP;
	if (t.o.pid) {
		if ((status = tm_live_source_of_process(&t.source, (int)t.o.pid))) return status;
	} else {
		enum tm_file_kind kind = tm_file_recognise(t.o.operands[0]);
		if (kind == TM_FILE_DATABASE) return top_database(&t.o);
		if (kind != TM_FILE_TRACE) return TM_EXIT_FAILED;
		tm_live_source_of_file(&t.source, t.o.operands[0]);
	}
	status = top_trace(&t);
	tm_live_names_release(&t.names);
	tm_live_release(&t.live);
	tm_database_close(&t.d);
	return status;
}
