/* report_verdict.c - the report's first words: what was recorded, how high memory went and why, what stayed, what is missing.
 *
 * Every figure is one of the views'; where several processes were recorded, the one with the highest peak is told of, because peaks of
 * different instants do not add up.
 */
#include "report_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coverage.h"
#include "json_text.h"
#include "leak_score.h"
#include "listing.h"
#include "report_html.h"
#include "schema/units.h"
#include "talk.h"

#define NAMED 3 /* heaps, call sites and candidates that a sentence names */

struct telling {
	struct tm_bytes *out;
	int64_t whole; /* of which shares are told */
	int told;
};

static const struct tm_report_process *largest(const struct tm_report *r) {
	return r->processes.count ? &r->processes.items[0] : NULL;
}

/* --- the head of the page --- */

#define TRACES_SHOWN " AND id IN (SELECT trace_id FROM process WHERE true"

/* Of the traces whose processes are shown; `what` of each, in that order. To be freed with sqlite3_free(). */
static char *of_traces(const struct tm_report *r, const char *what, const char *order) {
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	sqlite3_str_appendf(sql, "SELECT %s FROM trace WHERE true", what);
	if (r->o->process_given) {
		sqlite3_str_appendall(sql, TRACES_SHOWN);
		tm_report_filter(sql, r, "id", NULL);
		sqlite3_str_appendall(sql, ")");
	}
	sqlite3_str_appendf(sql, " ORDER BY %s", order);
	return sqlite3_str_finish(sql);
}

static int64_t sum_of_traces(const struct tm_report *r, const char *sum) {
	char *sql = of_traces(r, sum, "1");
	int64_t value = sql ? tm_database_integer(r->d, sql, 0) : 0;
	sqlite3_free(sql);
	return value < 0 ? 0 : value;
}

/* Events are known of whole traces: of a part of one nothing is said. */
static bool shows_whole_traces(const struct tm_report *r) {
	if (r->o->heap || !r->o->process_given) return !r->o->heap;
	return (size_t)sum_of_traces(r, "sum((SELECT count(*) FROM process AS q WHERE q.trace_id = trace.id))") == r->processes.count;
}

static int take_name(struct tm_report *r, sqlite3_stmt *s, void *context) {
	(void)r;
	struct telling *t = context;
	if (!t->told++) tm_html_column(t->out, s, 0, "a recording");
	return 0;
}

int tm_report_title(struct tm_report *r, struct tm_bytes *out) {
	struct telling t = { .out = out };
	int status = tm_report_rows(r, of_traces(r, "coalesce(nullif(command, ''), path)", "id"), take_name, &t);
	if (!status && !t.told) tm_html(out, "no recording");
	if (t.told > 1) tm_put_format(out, " and %d more", t.told - 1);
	return status;
}

static int take_trace(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct telling *t = context;
	char text[TM_UNIT_TEXT_MAX];
	if (t->told++) return 0;
	tm_html(t->out, "<span>");
	tm_html_column(t->out, s, 0, "unknown host");
	tm_html(t->out, "</span><span>");
	tm_html_column(t->out, s, 1, "unknown date");
	tm_put_format(t->out, "</span><span>%s</span>",
		      tm_format_time((uint64_t)(r->grid.items[r->grid.count - 1] - r->grid.items[0]), text));
	return 0;
}

int tm_report_head(struct tm_report *r, struct tm_bytes *out) {
	struct telling t = { .out = out };
	char text[TM_UNIT_TEXT_MAX];
	int status = tm_report_rows(
		r, of_traces(r, "host, strftime('%Y-%m-%d %H:%M:%S UTC', start_unix_ns / 1000000000, 'unixepoch')", "start_unix_ns, id"),
		take_trace, &t);
	tm_put_format(out, "<span>%s process%s</span>", tm_format_count(r->processes.count, text), r->processes.count == 1 ? "" : "es");
	if (shows_whole_traces(r)) {
		int64_t events = sum_of_traces(r, "sum(events)");
		tm_put_format(out, "<span>%s event%s</span>", tm_format_count((uint64_t)events, text), events == 1 ? "" : "s");
	}
	if (r->o->heap) {
		tm_html(out, r->heap_is_ours ? "<span>totals of heap " : "<span>only heap ");
		tm_html_name(out, r->o->heap, strlen(r->o->heap), TM_HTML_NAME_BYTES);
		tm_html(out, "</span>");
	}
	if (r->o->process_given)
		tm_put_format(out, "<span>only %s %lld", r->o->process_is_rank ? "rank" : "process", (long long)r->o->process);
	if (r->o->world) {
		tm_html(out, " of world ");
		tm_html_name(out, r->o->world, strlen(r->o->world), TM_HTML_NAME_BYTES);
	}
	if (r->o->process_given) tm_html(out, "</span>");
	tm_put_format(out, "<span>tidemark %s</span>", TM_TOOL_VERSION);
	return status;
}

int tm_report_times(struct tm_report *r, struct tm_bytes *out) {
	if (!tm_report_origin(r)) {
		tm_html(out, "Times count from the start of the earliest recording.");
		return 0;
	}
	tm_html(out, "Times count from the start of the first process shown, ");
	tm_html_time(out, tm_report_origin(r));
	tm_html(out, " after that of the earliest recording, from which other commands count.");
	return 0;
}

/* --- the tiles --- */

struct sums {
	int64_t peak, exit, exit_count, allocated, allocations;
};

static int take_sums(struct tm_report *r, sqlite3_stmt *s, void *context) {
	(void)r;
	struct sums *sums = context;
	*sums = (struct sums){ sqlite3_column_int64(s, 0), sqlite3_column_int64(s, 1), sqlite3_column_int64(s, 2),
			       sqlite3_column_int64(s, 3), sqlite3_column_int64(s, 4) };
	return 0;
}

static int load_sums(struct tm_report *r, struct sums *sums) {
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	*sums = (struct sums){ 0 };
	sqlite3_str_appendf(
		sql,
		"SELECT max(peak_bytes), sum(live_at_exit_bytes), sum(live_at_exit_count), sum(allocated_bytes), sum(allocations) "
		"FROM heap_summary"
		" WHERE heap IS %Q",
		r->o->heap);
	tm_report_filter(sql, r, "process_id", NULL);
	return tm_report_rows(r, sqlite3_str_finish(sql), take_sums, sums);
}

static int64_t ask_and_free(const struct tm_report *r, sqlite3_str *sql) {
	char *text = sqlite3_str_finish(sql);
	int64_t answer = text ? tm_database_integer(r->d, text, 0) : 0;
	sqlite3_free(text);
	return answer;
}

/* The query with the filter of processes behind it. */
static int64_t ask(const struct tm_report *r, const char *query, const char *column, const char *end) {
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	sqlite3_str_appendall(sql, query);
	tm_report_filter(sql, r, column, NULL);
	sqlite3_str_appendall(sql, end);
	return ask_and_free(r, sql);
}

static int64_t ask_losses(const struct tm_report *r, const char *query) {
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	sqlite3_str_appendall(sql, query);
	tm_sql_losses_of(sql, r->o);
	return ask_and_free(r, sql);
}

static bool is_complete(const struct tm_report *r) {
	return !ask(r, "SELECT 1 FROM trace WHERE NOT complete" TRACES_SHOWN, "id", ") LIMIT 1") &&
	       (r->o->process_given || !tm_has_unreadable_trace(r->d)) &&
	       !ask_losses(r, "SELECT count(*) FROM loss WHERE kind NOT IN (" TM_LOSSES_OF_NOTHING ", " TM_LOSSES_THAT_FOLLOW ")") &&
	       !ask(r, "SELECT 1 FROM process WHERE NOT recorded", "id", " LIMIT 1");
}

static bool has_gaps(const struct tm_report *r) {
	return tm_has_gap(r->d, r->o, TM_GAPS_AT_END ", 'dropped', 'stopped'");
}

static void put_tiles(struct tm_report *r, struct tm_bytes *out, const struct sums *sums) {
	bool estimated = r->d->estimated;
	tm_html(out, "<dl class=\"tiles\"><div class=\"tile peak\" id=\"tile-peak\"><dt>Peak</dt><dd>");
	tm_html_size(out, sums->peak, estimated);
	tm_html(out, r->processes.count > 1 ? "<small>of one process</small>" : "<small>live at once</small>");
	tm_html(out, "</dd></div><div class=\"tile\" id=\"tile-exit\"><dt>Live at exit</dt><dd>");
	tm_html_size(out, sums->exit, estimated);
	tm_html(out, "<small>");
	tm_html_count(out, sums->exit_count, estimated);
	tm_html(out, sums->exit_count == 1 ? " block</small></dd></div>" : " blocks</small></dd></div>");
	tm_html(out, "<div class=\"tile\" id=\"tile-allocated\"><dt>Allocated in all</dt><dd>");
	tm_html_size(out, sums->allocated, estimated);
	tm_html(out, "<small>");
	tm_html_count(out, sums->allocations, estimated);
	tm_html(out, sums->allocations == 1 ? " allocation</small></dd></div>" : " allocations</small></dd></div>");
	bool is_whole = is_complete(r), is_part = has_gaps(r);
	tm_put_format(out, "<div class=\"tile %s\" id=\"tile-complete\"><dt>Recording</dt><dd><b>%s</b><small>%s</small></dd></div></dl>",
		      is_whole && !is_part ? "good" : "bad", !is_whole ? "incomplete" : is_part ? "of a part" : "complete",
		      !is_whole   ? "something is missing"
		      : is_part   ? "not of the whole run"
		      : estimated ? "sampled: figures are estimates"
				  : "every call counted");
}

/* --- the sentences --- */

static int take_share(struct tm_report *r, sqlite3_stmt *s, void *context) {
	(void)r;
	struct telling *t = context;
	tm_html(t->out, t->told++ ? ", " : "");
	tm_html_site(t->out, s, 1);
	tm_html(t->out, " ");
	tm_html_share(t->out, sqlite3_column_int64(s, 0), t->whole);
	return 0;
}

/* Where the largest has less than a twentieth, the sentence does not pretend that it mattered. */
static int take_site(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct telling *t = context;
	bool is_large = sqlite3_column_int64(s, 0) >= t->whole / 20;
	if (!t->told) tm_html(t->out, is_large ? "; most was asked for by " : "; no call site stands out, the largest are ");
	return take_share(r, s, context);
}

static void peak_of_site(sqlite3_context *context, int count, sqlite3_value **values) {
	const struct tm_report *r = sqlite3_user_data(context);
	int64_t frame = sqlite3_value_int64(values[0]);
	(void)count;
	sqlite3_result_int64(context, frame >= 0 && frame < r->stacks.frame_count ? r->peak_of_site[frame] : 0);
}

/* The call stacks were added up by their sites when they were chosen. Only what was live then has its name looked up. */
static int tell_heaps_and_sites(struct tm_report *r, struct tm_bytes *out, const struct tm_report_process *p) {
	struct telling t = { .out = out, .whole = p->peak_bytes };
	const char *column = r->o->heap ? "peak_bytes" : "process_peak_bytes";
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	tm_html(out, " It was made of ");
	sqlite3_str_appendf(
		sql,
		"SELECT sum(v.%s), h.name, NULL, NULL FROM site_total AS v JOIN heap AS h ON h.id = v.heap_id WHERE v.process_id = %lld",
		column, p->id);
	tm_report_filter(sql, r, "v.process_id", "h.name");
	sqlite3_str_appendf(sql, " GROUP BY v.heap_id HAVING sum(v.%s) > 0 ORDER BY 1 DESC LIMIT %d", column, NAMED);
	int status = tm_report_rows(r, sqlite3_str_finish(sql), take_share, &t);
	if (status) return status;
	t.told = 0;
	if (sqlite3_create_function_v2(r->d->handle, "tm_peak_of_site", 1, SQLITE_UTF8 | SQLITE_DIRECTONLY, r, peak_of_site, NULL, NULL,
				       NULL))
		return tm_fail("cannot report on '%s': %s", r->d->path, sqlite3_errmsg(r->d->handle));
	char *query = sqlite3_mprintf(
		"SELECT sum(bytes), text, file, line FROM (SELECT tm_peak_of_site(f.id) AS bytes, t.text, f.file, f.line"
		" FROM frame AS f JOIN frame_text AS t ON t.frame_id = f.id UNION ALL SELECT tm_peak_of_site(0), NULL, NULL, NULL)"
		" WHERE bytes > 0 GROUP BY text, file, line HAVING sum(bytes) * 1000 >= %lld ORDER BY 1 DESC, 2 LIMIT %d",
		(long long)p->peak_bytes, NAMED);
	status = tm_report_rows(r, query, take_site, &t);
	tm_html(out, ".");
	return status;
}

static void tell_heap(const struct tm_report *r, struct tm_bytes *out) {
	if (!r->o->heap) return;
	tm_html(out, " of heap ");
	tm_html_name(out, r->o->heap, strlen(r->o->heap), TM_HTML_NAME_BYTES);
}

static int tell_peak(struct tm_report *r, struct tm_bytes *out) {
	const struct tm_report_process *p = largest(r);
	char text[TM_UNIT_TEXT_MAX];
	tm_html(out, "<p id=\"verdict-peak\"><strong>Peak.</strong> ");
	if (!p || !p->peak_bytes) {
		tm_html(out, "No host memory was allocated, or none could be recorded.</p>");
		return 0;
	}
	bool is_part = tm_has_gap(r->d, r->o, "'dropped'");
	if (r->processes.count > 1) {
		tm_put_format(out, "Of %s processes, the one with the highest peak%s, ", tm_format_count(r->processes.count, text),
			      is_part ? " that is known" : "");
		const char *name = r->by[TM_REPORT_PROCESS].names.items[p->group];
		tm_html_name(out, name, strlen(name), TM_HTML_NAME_BYTES);
		tm_html(out, ", held ");
	} else {
		tm_html(out, is_part ? "As far as is known, the program held at most " : "The program held at most ");
	}
	tm_html_size(out, p->peak_bytes, r->d->estimated);
	tell_heap(r, out);
	tm_html(out, " at once, ");
	tm_html_time(out, p->peak_ns - tm_report_origin(r));
	tm_html(out, " after the start.");
	int status = tell_heaps_and_sites(r, out, p);
	tm_html(out, "</p>");
	return status;
}

static int take_leak(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct telling *t = context;
	tm_html(t->out, t->told++ ? ", " : " Look first at ");
	tm_html_site(t->out, s, 0);
	tm_html(t->out, " (");
	tm_html_size(t->out, sqlite3_column_int64(s, 3), r->d->estimated);
	tm_html(t->out, ")");
	return 0;
}

/* Devices hold it, and the sums are of the host's heaps alone. */
static bool devices_hold_some(const struct tm_report *r) {
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	sqlite3_str_appendall(sql, "SELECT 1 FROM live_at_exit WHERE live_count > 0 AND heap IN (SELECT name FROM heap WHERE device IS NOT NULL)");
	tm_report_filter(sql, r, "process_id", "heap");
	sqlite3_str_appendall(sql, " LIMIT 1");
	return ask_and_free(r, sql) != 0;
}

static int tell_leaks(struct tm_report *r, struct tm_bytes *out, const struct sums *sums) {
	struct telling t = { .out = out };
	const char *when = tm_has_gap(r->d, r->o, TM_GAPS_AT_END) ? "when the recording ended" : "when the program began to leave";
	tm_html(out, "<p id=\"verdict-leaks\"><strong>Leaks.</strong> ");
	if (sums->exit || sums->exit_count) {
		tm_html_size(out, sums->exit, r->d->estimated);
		tm_html(out, " in ");
		tm_html_count(out, sums->exit_count, r->d->estimated);
		tm_html(out, sums->exit_count == 1 ? " block" : " blocks");
		tell_heap(r, out);
		tm_html(out, sums->exit_count == 1 ? " was" : " were");
		tm_put_format(out, " still live %s; not all of that need be a leak.", when);
	} else if (devices_hold_some(r)) {
		tm_put_format(out, "No host memory was live %s, but memory of devices was; not all of that need be a leak.", when);
	} else {
		tm_put_format(out, "Nothing was live %s.</p>", when);
		return 0;
	}
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	bool has_candidates = tm_database_integer(r->d, "SELECT 1 FROM leak_score LIMIT 1", 0);
	/* Where nothing was scored the largest sites are named. A heap may lie in another one, whose bytes are then the same: of each site the heap is
	 * told of in which it looks most like a leak. */
	sqlite3_str_appendf(
		sql,
		"SELECT function, file, line, bytes FROM (SELECT *, row_number() OVER (PARTITION BY function, file, line\n"
		"  ORDER BY score DESC NULLS LAST, bytes DESC, heap) AS place FROM (\n"
		"  SELECT coalesce(function, replace(module, rtrim(module, replace(module, '/', '')), '') ||\n"
		"    iif(module_offset IS NULL, '', printf('+0x%%x', module_offset))) AS function, file, line, heap, sum(live_bytes) AS bytes, %s AS score\n"
		"  FROM %s WHERE live_bytes > 0",
		has_candidates ? "max(score)" : "NULL", has_candidates ? "leak_candidate" : "live_at_exit");
	if (has_candidates) sqlite3_str_appendf(sql, " AND NOT suppressed AND coalesce(score, 1) >= %g", TM_LEAK_SCORE_LIKELY);
	tm_report_filter(sql, r, "process_id", "heap");
	sqlite3_str_appendf(sql, " GROUP BY 1, 2, 3, 4)) WHERE place = 1 ORDER BY score DESC NULLS LAST, bytes DESC, function LIMIT %d",
			    NAMED);
	int status = tm_report_rows(r, sqlite3_str_finish(sql), take_leak, &t);
	if (!status && !t.told && has_candidates) tm_html(out, " No call site looks like one");
	tm_html(out, t.told || has_candidates ? ". <a href=\"#leaks\">The evidence</a></p>" : "</p>");
	return status;
}

static int take_gap(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct telling *t = context;
	int64_t rss = sqlite3_column_int64(s, 0), gap = sqlite3_column_int64(s, 1), live = sqlite3_column_int64(s, 3),
		most = sqlite3_column_int64(s, 5);
	tm_html(t->out, t->told++ ? "" : "<p id=\"verdict-gap\"><strong>Gap.</strong> The largest reading of resident memory was ");
	tm_html_size(t->out, rss, false);
	tm_html(t->out, ", ");
	tm_html_time(t->out, sqlite3_column_int64(s, 2) - tm_report_origin(r));
	tm_html(t->out, " after the start; live blocks");
	if (gap > 0) {
		if (sqlite3_column_int64(s, 4) > 0) tm_html(t->out, " and tidemark's own memory");
		tm_html(t->out, " explain all of it but ");
		tm_html_size(t->out, gap, false);
		tm_html(t->out, ": code, stacks, what the allocator keeps for itself, and memory that nobody recorded.");
	} else if (live >= rss) {
		tm_html(t->out, ", ");
		tm_html_size(t->out, live, r->d->estimated);
		tm_html(t->out, " then, explain all of it: what a program never touches is not resident.");
	} else {
		tm_html(t->out, " and tidemark's own memory explain all of it.");
	}
	if (most > rss) {
		tm_html(t->out, " Between readings it was up to ");
		tm_html_size(t->out, most, false);
		tm_html(t->out, ".");
	}
	tm_html(t->out, "</p>");
	return 0;
}

static int tell_gap(struct tm_report *r, struct tm_bytes *out) {
	struct telling t = { .out = out };
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	sqlite3_str_appendall(sql, "SELECT rss_bytes, gap_bytes, ts_ns, live_bytes, tool_bytes, (SELECT max(value) FROM sample AS s"
				   " WHERE s.process_id = g.process_id AND s.name = 'rss_peak') FROM memory_gap AS g WHERE true");
	tm_report_filter(sql, r, "process_id", NULL);
	sqlite3_str_appendall(sql, " ORDER BY rss_bytes DESC, ts_ns LIMIT 1");
	return tm_report_rows(r, sqlite3_str_finish(sql), take_gap, &t);
}

/* One device of one process: what the driver gave it, what its pools held, what it occupied in all. */
static int take_device(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct telling *t = context;
	const char *name = (const char *)sqlite3_column_text(s, 2);
	bool has_driver = sqlite3_column_int64(s, 3) > 0, has_pool = sqlite3_column_int64(s, 6) > 0,
	     has_used = sqlite3_column_int64(s, 7) > 0;
	tm_html(t->out, t->told++ ? "; " : "<p id=\"verdict-devices\"><strong>Devices.</strong> ");
	if (r->processes.count > 1) tm_put_format(t->out, "process %lld, ", (long long)sqlite3_column_int64(s, 0));
	tm_put_format(t->out, "cuda:%lld", (long long)sqlite3_column_int64(s, 1));
	if (name && *name) {
		tm_html(t->out, " (");
		tm_html_name(t->out, name, strlen(name), TM_HTML_NAME_BYTES);
		tm_html(t->out, ")");
	}
	if (has_driver) {
		tm_html(t->out, " held at most ");
		tm_html_size(t->out, sqlite3_column_int64(s, 3), false);
		tm_html(t->out, ", ");
		tm_html_time(t->out, sqlite3_column_int64(s, 4) - tm_report_origin(r));
		tm_html(t->out, " after the start");
	}
	if (has_pool) {
		tm_html(t->out, has_driver ? "; tensors held at most " : ": tensors held at most ");
		tm_html_size(t->out, sqlite3_column_int64(s, 5), false);
		tm_html(t->out, " of ");
		tm_html_size(t->out, sqlite3_column_int64(s, 6), false);
		tm_html(t->out, " that their allocator reserved");
	}
	if (has_used) {
		tm_html(t->out, has_driver || has_pool ? "; the process occupied at most " : ": the process occupied at most ");
		tm_html_size(t->out, sqlite3_column_int64(s, 7), false);
		tm_html(t->out, " there");
	}
	return 0;
}

static int tell_devices(struct tm_report *r, struct tm_bytes *out) {
	struct telling t = { .out = out };
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	sqlite3_str_appendall(
		sql,
		"SELECT process_id, device, name, peak_bytes, peak_ns, allocated_peak_bytes, reserved_peak_bytes, used_peak_bytes FROM "
		"gpu_summary WHERE max(coalesce(peak_bytes, 0), coalesce(reserved_peak_bytes, 0), coalesce(used_peak_bytes, 0)) > 0");
	tm_report_filter(sql, r, "process_id", NULL);
	sqlite3_str_appendf(
		sql,
		" ORDER BY max(coalesce(peak_bytes, 0), coalesce(reserved_peak_bytes, 0), coalesce(used_peak_bytes, 0)) DESC, 1, 2 LIMIT %d",
		NAMED);
	int status = tm_report_rows(r, sqlite3_str_finish(sql), take_device, &t);
	if (t.told) tm_html(out, ". <a href=\"#devices\">Over time</a></p>");
	return status;
}

static void tell_ooms(struct tm_report *r, struct tm_bytes *out) {
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	sqlite3_str_appendall(sql, "SELECT count(*) FROM oom AS o LEFT JOIN heap AS h ON h.id = o.heap_id WHERE true");
	tm_report_filter_each(sql, r, "o.process_id", "h.name");
	int64_t refused = ask_and_free(r, sql);
	if (!refused) return;
	tm_html(out, "<p id=\"verdict-oom\" class=\"warn\"><strong>Out of memory.</strong> ");
	tm_html_count(out, refused, false);
	tm_html(out, refused == 1 ? " request for memory was refused. <a href=\"#oom-table\">Which</a></p>"
				  : " requests for memory were refused. <a href=\"#oom-table\">Which</a></p>");
}

static void tell_missing(struct tm_report *r, struct tm_bytes *out) {
	int64_t lost = ask_losses(r, "SELECT sum(count) FROM loss WHERE kind NOT IN (" TM_LOSSES_OF_NO_EVENT ", " TM_LOSSES_THAT_FOLLOW ")");
	int64_t others = ask_losses(r, "SELECT sum(count) FROM loss WHERE kind IN (" TM_LOSSES_OF_NO_EVENT ")\n"
				       " AND kind NOT IN (" TM_LOSSES_OF_NOTHING ")");
	int64_t cut = ask(r, "SELECT count(*) FROM trace WHERE cut_reason IS NOT NULL" TRACES_SHOWN, "id", ")");
	int64_t unrecorded = ask(r, "SELECT count(*) FROM process WHERE NOT recorded", "id", "");
	if (!r->o->process_given && tm_has_unreadable_trace(r->d)) cut = 1;
	tm_html(out, "<p id=\"verdict-lost\" class=\"warn\"><strong>Incomplete.</strong> ");
	if (lost > 0) tm_html_count(out, lost, false);
	tm_html(out, lost == 1 ? " event is" : lost > 0 ? " events are" : "No allocation or free is known to be");
	tm_html(out, " missing from these figures");
	if (others) tm_html(out, lost > 0 ? ", and scopes, marks or the like are" : ", but scopes, marks or the like are");
	tm_html(out, !cut                 ? ""
		     : lost > 0 || others ? ", and a trace ends before its recording did"
					  : ", but a trace ends before its recording did");
	if (unrecorded) {
		tm_html(out, lost > 0 || others || cut ? ", and " : ", but ");
		tm_html_count(out, unrecorded, false);
		tm_html(out, unrecorded == 1 ? " process could not be recorded" : " processes could not be recorded");
	}
	tm_html(out, ". <a href=\"#lost\">What and why</a></p>");
}

/* "What came after 2.1 s, when ..., is not known" of each way in which a recording ends before its program. */
static void tell_gaps_at_end(struct tm_report *r, struct tm_bytes *out) {
	for (size_t i = 0; i < TM_GAP_ENDS; i++) {
		int64_t until_ns = tm_known_until_ns(r->d, r->o, tm_gap_ends[i].kind);
		if (until_ns < 0) continue;
		tm_html(out, " What came after ");
		tm_html_time(out, until_ns - tm_report_origin(r));
		tm_html(out, tm_gap_ends[i].sentence);
		tm_html(out, " is not known: a peak may be higher, and exit is as it was then.");
	}
}

static void tell_gaps(struct tm_report *r, struct tm_bytes *out) {
	int64_t from_ns = tm_known_from_ns(r->d, r->o), stopped_ns = tm_stopped_duration_ns(r->d, r->o);
	tm_html(out, "<p id=\"verdict-gaps\" class=\"warn\"><strong>Part of the run.</strong>");
	if (from_ns >= 0) {
		tm_html(out, " What came and went before ");
		tm_html_time(out, from_ns - tm_report_origin(r));
		tm_html(out, " is not known, and a peak is that from then on");
		if (tm_some_ended_before(r->d, r->o)) tm_html(out, "; of a process that had ended, it is what that held at its end");
		tm_html(out, ".");
	}
	tell_gaps_at_end(r, out);
	if (stopped_ns > 0) {
		tm_html(out, " Of the ");
		tm_html_time(out, stopped_ns);
		tm_html(out, " in which the program had stopped its recording no allocation is known.");
	}
	tm_html(out, "</p>");
}

static void tell_whole(struct tm_report *r, struct tm_bytes *out) {
	int64_t odd = ask_losses(r, "SELECT sum(count) FROM loss WHERE kind IN (" TM_LOSSES_THAT_FOLLOW ")");
	tm_html(out, "<p id=\"verdict-lost\"><strong>Complete.</strong> Nothing was lost: every call that could be seen is in these figures.");
	if (odd > 0) {
		tm_html(out, " ");
		tm_html_count(out, odd, false);
		tm_html(out, odd == 1 ? " does not fit the others. " : " do not fit the others. ");
		tm_html(out, "<a href=\"#lost\">What and why</a>");
	}
	tm_html(out, "</p>");
}

static void tell_losses(struct tm_report *r, struct tm_bytes *out) {
	if (has_gaps(r)) tell_gaps(r, out);
	if (!is_complete(r)) tell_missing(r, out);
	else if (!has_gaps(r)) tell_whole(r, out);
	if (!r->d->estimated) return;
	tm_html(out, "<p class=\"warn\"><strong>Sampled.</strong> One allocation was recorded for each ");
	tm_html_size(out, r->d->sample_bytes, false);
	tm_html(out, " on average. Bytes and counts (\xE2\x89\x88) are estimates, and a peak of estimates is biased upward; "
		     "<code>tidemark summary</code> gives their errors.</p>");
}

int tm_report_verdict(struct tm_report *r, struct tm_bytes *out) {
	struct sums sums;
	int status = load_sums(r, &sums);
	if (status) return status;
	put_tiles(r, out, &sums);
	status = tell_peak(r, out);
	if (!status) status = tell_leaks(r, out, &sums);
	if (!status) status = tell_gap(r, out);
	if (!status) status = tell_devices(r, out);
	tell_ooms(r, out);
	tell_losses(r, out);
	return status;
}
