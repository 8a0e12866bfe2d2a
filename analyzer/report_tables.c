/* report_tables.c - the report's flat tables: leaks, steps, histograms, heaps, refused requests, and what is missing. */
#include "report_text.h"

#include <stdio.h>
#include <string.h>

#include "coverage.h"
#include "json_text.h"
#include "report_html.h"
#include "scans.h"
#include "schema/units.h"

#define LEAKS_MAX 200
#define STACKS_MAX 60 /* leaks whose whole call stack is in the page */
#define FRAMES_MAX 100  /* of a call stack */
#define FRAMES_OUTER 20 /* of these the ones around all others */
#define STEPS_MAX 200
#define ROWS_MAX 200

struct table {
	struct tm_bytes *out;
	int64_t rows, whole;
	bool has_processes, has_steps, has_scores;
};

#define UNNAMED(alias) \
	"coalesce(" alias ".function, replace(" alias ".module, rtrim(" alias ".module, replace(" alias ".module, '/', '')), '')" \
	" || iif(" alias ".module_offset IS NULL, '', printf('+0x%%x', " alias ".module_offset)))"

static void put_more(struct table *t, int64_t shown_max, const char *command) {
	char count[TM_UNIT_TEXT_MAX];
	if (t->rows < shown_max) return;
	tm_put_format(t->out, "<p class=\"note\">The first %s; <code>tidemark %s</code> lists all.</p>",
		      tm_format_count((uint64_t)shown_max, count), command);
}

/* --- leaks --- */

/* Outermost first. Of a deep one the middle is left out: who allocated is at its end. */
static void put_stack(struct table *t, sqlite3_stmt *s, int column) {
	const char *text = (const char *)sqlite3_column_text(s, column);
	if (!text || !*text) return;
	int frames = 1, skipped = 0;
	for (const char *p = text; *p; p++) frames += *p == ';' && p[1];
	if (frames > FRAMES_MAX) skipped = frames - FRAMES_MAX;
	tm_html(t->out, "<details><summary>call stack</summary><ol class=\"stack\">");
	for (int n = 0; *text; n++) {
		size_t length = strcspn(text, ";");
		bool is_skipped = n >= FRAMES_OUTER && n < FRAMES_OUTER + skipped;
		if (is_skipped && n == FRAMES_OUTER)
			tm_put_format(t->out, "<li>\xE2\x80\xA6 %d frame%s not shown \xE2\x80\xA6</li>", skipped, skipped == 1 ? "" : "s");
		if (!is_skipped) {
			/* The list numbers its items. */
			if (skipped && n == FRAMES_OUTER + skipped) tm_put_format(t->out, "<li value=\"%d\">", n + 1);
			else tm_html(t->out, "<li>");
			tm_html_name(t->out, text, length, 300);
			tm_html(t->out, "</li>");
		}
		text += length + (text[length] == ';');
	}
	tm_html(t->out, "</ol></details>");
}

static int take_leak(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct table *t = context;
	bool estimated = sqlite3_column_int(s, 13);
	struct tm_report_process *p = tm_report_process(r, sqlite3_column_int64(s, 0));
	t->rows++;
	tm_html(t->out, sqlite3_column_int(s, 12) ? "<tr class=\"faint\"><th scope=\"row\">" : "<tr><th scope=\"row\">");
	tm_html_site(t->out, s, 1);
	if (t->rows <= STACKS_MAX) put_stack(t, s, 14);
	tm_html(t->out, "</th>");
	if (t->has_processes) {
		const char *name = p ? r->by[TM_REPORT_PROCESS].names.items[p->group] : "?";
		tm_html(t->out, "<td>");
		tm_html_name(t->out, name, strlen(name), TM_HTML_NAME_BYTES);
		tm_html(t->out, "</td>");
	}
	tm_html_text_cell(t->out, s, 4, "?");
	tm_html_column_cell(t->out, TM_CELL_SIZE, s, 5, estimated);
	tm_html_column_cell(t->out, TM_CELL_COUNT, s, 6, estimated);
	if (t->has_scores) {
		tm_html_column_cell(t->out, TM_CELL_TIME, s, 7, false);
		tm_html_column_cell(t->out, TM_CELL_TIME, s, 8, false);
		if (t->has_steps) tm_html_column_cell(t->out, TM_CELL_SIZE, s, 9, estimated);
		tm_html_column_cell(t->out, TM_CELL_NUMBER, s, 10, false);
	}
	tm_html(t->out, "<td class=\"why\">");
	tm_html_column(t->out, s, 11, "live at exit");
	tm_html(t->out, sqlite3_column_int(s, 12) ? " (suppressed)</td></tr>\n" : "</td></tr>\n");
	return 0;
}

int tm_report_leaks(struct tm_report *r, struct tm_bytes *out) {
	bool has_scores = tm_database_integer(r->d, "SELECT 1 FROM leak_score LIMIT 1", 0);
	struct table t = { .out = out,
			   .has_processes = r->processes.count > 1,
			   .has_steps = tm_database_integer(r->d, "SELECT 1 FROM step LIMIT 1", 0),
			   .has_scores = has_scores };
	struct tm_bytes rows = TM_BYTES_INIT;
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	const char *table = has_scores ? "leak_score" : "site_total";
	sqlite3_str_appendf(sql, "SELECT v.process_id, " UNNAMED("v") ", v.file, v.line, v.heap, v.live_bytes, v.live_count,");
	sqlite3_str_appendf(
		sql, has_scores ? " p.exit_ns - v.first_ns, p.exit_ns - v.last_ns, round(v.growth_bytes_per_step), v.score, v.reason, "
				  "v.suppressed, v.estimated,"
				: " NULL, NULL, NULL, NULL, NULL, 0, v.estimated,");
	/* The rows are picked first, so that only theirs are joined with names and whole call stacks. */
	sqlite3_str_appendf(
		sql,
		" (SELECT text FROM stack_text AS x WHERE x.stack_id = v.stack_id) FROM (\n"
		"SELECT l.process_id, h.name AS heap, l.stack_id, %s, f.function, f.file, f.line, m.path AS module, f.module_offset, h.estimated\n"
		"FROM (SELECT l.process_id, l.heap_id, l.stack_id FROM %s AS l JOIN heap AS h ON h.id = l.heap_id\n  WHERE ",
		has_scores ? "l.live_bytes, l.live_count, l.first_ns, l.last_ns, l.growth_bytes_per_step, l.score, l.reason, l.suppressed"
			   : "l.live_at_exit_bytes AS live_bytes, l.live_at_exit_count AS live_count",
		table);
	sqlite3_str_appendall(sql, has_scores ? "(l.live_bytes > 0 OR l.live_count > 0)"
					      : "(l.live_at_exit_bytes > 0 OR l.live_at_exit_count > 0)");
	tm_report_filter_each(sql, r, "l.process_id", "h.name");
	sqlite3_str_appendf(sql, " ORDER BY %s DESC, l.process_id, h.name, l.stack_id LIMIT %d) AS k\n",
			    has_scores ? "l.suppressed, l.score DESC NULLS LAST, l.live_bytes" : "l.live_at_exit_bytes", LEAKS_MAX);
	sqlite3_str_appendf(
		sql,
		"CROSS JOIN %s AS l ON l.process_id = k.process_id AND l.heap_id = k.heap_id AND l.stack_id = k.stack_id\n"
		"JOIN heap AS h ON h.id = l.heap_id LEFT JOIN stack AS s ON s.id = l.stack_id LEFT JOIN frame AS f ON f.id = s.site_frame_id\n"
		"LEFT JOIN module AS m ON m.id = f.module_id) AS v JOIN process AS p ON p.id = v.process_id ORDER BY ",
		table);
	sqlite3_str_appendf(sql, has_scores ? "v.suppressed, v.score DESC NULLS LAST, v.live_bytes DESC, v.process_id, v.heap, v.stack_id"
					    : "v.live_bytes DESC, v.process_id, v.heap, v.stack_id");
	t.out = &rows;
	int status = tm_report_rows(r, sqlite3_str_finish(sql), take_leak, &t);
	t.out = out;
	if (!t.rows) {
		tm_html(out, "<p class=\"none\">Nothing was live at exit.</p>");
	} else {
		tm_html(out, "<div class=\"wide\"><table id=\"leak-table\" class=\"sortable\"><thead><tr><th scope=\"col\">call site</th>");
		tm_html(out, t.has_processes ? "<th scope=\"col\">process</th>" : "");
		tm_html(out, "<th scope=\"col\">heap</th><th scope=\"col\">live at exit</th><th scope=\"col\">blocks</th>");
		tm_html(out, has_scores ? "<th scope=\"col\">oldest</th><th scope=\"col\">youngest</th>" : "");
		tm_html(out, has_scores && t.has_steps ? "<th scope=\"col\">growth a step</th>" : "");
		tm_html(out, has_scores ? "<th scope=\"col\">score</th>" : "");
		tm_html(out, "<th scope=\"col\">evidence</th></tr></thead><tbody>\n");
		tm_put_raw(out, rows.data, rows.size);
		tm_html(out, "</tbody></table></div>\n");
		put_more(&t, LEAKS_MAX, "leaks --all --limit=0");
	}
	out->failed |= rows.failed;
	tm_bytes_release(&rows);
	return status;
}

/* --- steps --- */

static int take_step(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct table *t = context;
	struct tm_report_process *p = tm_report_process(r, sqlite3_column_int64(s, 0));
	bool estimated = sqlite3_column_int(s, 8);
	if (!t->rows++) {
		tm_html(t->out, "<div id=\"steps-chart\" class=\"chart small\"></div><details><summary>The steps as a table</summary><div "
				"class=\"wide\">"
				"<table class=\"sortable\"><thead><tr><th scope=\"col\">step</th>");
		tm_html(t->out, t->has_processes ? "<th scope=\"col\">process</th>" : "");
		tm_html(t->out, "<th scope=\"col\">time</th><th scope=\"col\">allocated</th><th scope=\"col\">net</th><th "
				"scope=\"col\">live at its end</th>"
				"<th scope=\"col\">peak</th><th scope=\"col\">survived it</th></tr></thead><tbody>\n");
	}
	tm_html(t->out, "<tr>");
	tm_html_column_cell(t->out, TM_CELL_COUNT, s, 1, false);
	if (t->has_processes) {
		const char *name = p ? r->by[TM_REPORT_PROCESS].names.items[p->group] : "?";
		tm_html(t->out, "<td>");
		tm_html_name(t->out, name, strlen(name), TM_HTML_NAME_BYTES);
		tm_html(t->out, "</td>");
	}
	tm_html_column_cell(t->out, TM_CELL_TIME, s, 2, false);
	for (int column = 3; column < 8; column++) tm_html_column_cell(t->out, TM_CELL_SIZE, s, column, estimated);
	tm_html(t->out, "</tr>\n");
	return 0;
}

int tm_report_steps(struct tm_report *r, struct tm_bytes *out) {
	struct table t = { .out = out, .has_processes = r->processes.count > 1 };
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	sqlite3_str_appendf(sql,
			    "SELECT s.process_id, s.n, s.end_ns - s.start_ns, coalesce(a.allocated_bytes, 0),\n"
			    "  coalesce(a.allocated_bytes - a.freed_bytes, 0), coalesce(a.end_bytes, 0), coalesce(a.peak_bytes, 0),\n"
			    "  coalesce(a.survived_bytes, 0), %s\nFROM ",
			    r->o->heap ? "h.estimated" : "(SELECT p.estimated FROM process AS p WHERE p.id = s.process_id)");
	tm_sql_from_steps(sql, r->o);
	sqlite3_str_appendall(sql, " WHERE true");
	tm_report_filter(sql, r, "s.process_id", NULL);
	sqlite3_str_appendf(sql, " ORDER BY s.process_id, s.start_ns LIMIT %d", STEPS_MAX);
	int status = tm_report_rows(r, sqlite3_str_finish(sql), take_step, &t);
	if (!t.rows) {
		tm_html(out, "<p class=\"none\">The program named no steps (<code>tidemark_step(n)</code>, "
			     "<code>tidemark.step(n)</code>).</p>");
		return status;
	}
	tm_html(out, "</tbody></table></div>");
	put_more(&t, STEPS_MAX, "scopes --steps --limit=0");
	tm_html(out, "</details>");
	return status;
}

/* --- histograms --- */

static int take_bucket(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct table *t = context;
	char text[TM_UNIT_TEXT_MAX];
	bool is_time = sqlite3_column_int(s, 4);
	int64_t from = sqlite3_column_int64(s, 0);
	uint64_t positive = from < 0 ? 0 : (uint64_t)from;
	t->rows++;
	tm_put_format(t->out, "<tr><th scope=\"row\">%s</th><td class=\"bar\"><i style=\"--w:%.1f%%\"></i></td>",
		      is_time ? tm_format_time(positive, text) : tm_format_size(positive, text),
		      t->whole > 0 ? 100.0 * sqlite3_column_double(s, 2) / (double)t->whole : 0);
	tm_html_column_cell(t->out, TM_CELL_COUNT, s, 2, r->d->estimated);
	tm_html_column_cell(t->out, TM_CELL_SIZE, s, 3, r->d->estimated);
	tm_html(t->out, "</tr>\n");
	return 0;
}

static int take_whole(struct tm_report *r, sqlite3_stmt *s, void *context) {
	(void)r;
	((struct table *)context)->whole = sqlite3_column_int64(s, 0);
	return 0;
}

static int put_histogram(struct tm_report *r, struct tm_bytes *out, const char *table, const char *from, const char *to, const char *count,
			 const char *bytes, bool is_time) {
	struct table t = { .out = out };
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	sqlite3_str_appendf(sql,
			    "SELECT b.%s AS from_value, max(b.%s), sum(b.%s) AS n, sum(b.%s), %d FROM %s AS b JOIN heap AS h ON h.id = "
			    "b.heap_id WHERE (h.is_root OR %d)",
			    from, to, count, bytes, is_time, table, r->o->heap != NULL);
	tm_report_filter(sql, r, "b.process_id", "h.name");
	sqlite3_str_appendall(sql, " GROUP BY b.");
	sqlite3_str_appendall(sql, from);
	char *query = sqlite3_str_finish(sql);
	int status = tm_report_rows(r, query ? sqlite3_mprintf("SELECT max(n) FROM (%s)", query) : NULL, take_whole, &t);
	struct tm_bytes rows = TM_BYTES_INIT;
	t.out = &rows;
	if (!status) status = tm_report_rows(r, query, take_bucket, &t);
	else sqlite3_free(query);
	if (t.rows) {
		tm_put_format(out,
			      "<div class=\"wide\"><table class=\"histogram\"><thead><tr><th scope=\"col\">from</th><th "
			      "scope=\"col\"></th><th scope=\"col\">%s</th>",
			      count);
		tm_html(out, "<th scope=\"col\">bytes</th></tr></thead><tbody>\n");
		tm_put_raw(out, rows.data, rows.size);
		tm_html(out, "</tbody></table></div>");
	} else {
		tm_html(out, "<p class=\"none\">Nothing to show.</p>");
	}
	out->failed |= rows.failed;
	tm_bytes_release(&rows);
	return status;
}

int tm_report_sizes(struct tm_report *r, struct tm_bytes *out) {
	return put_histogram(r, out, "size_bucket", "from_bytes", "to_bytes", "allocations", "allocated_bytes", false);
}

int tm_report_lifetimes(struct tm_report *r, struct tm_bytes *out) {
	return put_histogram(r, out, "lifetime_bucket", "from_ns", "to_ns", "frees", "freed_bytes", true);
}

/* --- heaps --- */

static int take_heap(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct table *t = context;
	struct tm_report_process *p = tm_report_process(r, sqlite3_column_int64(s, 0));
	bool estimated = sqlite3_column_int(s, 8);
	const char *name = p ? r->by[TM_REPORT_PROCESS].names.items[p->group] : "?";
	t->rows++;
	tm_html(t->out, sqlite3_column_type(s, 1) == SQLITE_NULL ? "<tr class=\"sum\"><td>" : "<tr><td>");
	tm_html_name(t->out, name, strlen(name), TM_HTML_NAME_BYTES);
	tm_html(t->out, "</td>");
	tm_html_text_cell(t->out, s, 1, "all root heaps");
	tm_html_column_cell(t->out, TM_CELL_COUNT, s, 2, estimated);
	tm_html_column_cell(t->out, TM_CELL_SIZE, s, 3, estimated);
	tm_html_column_cell(t->out, TM_CELL_COUNT, s, 4, estimated);
	tm_html_column_cell(t->out, TM_CELL_SIZE, s, 5, estimated);
	tm_html_column_cell(t->out, TM_CELL_TIME, s, 6, false);
	tm_html_column_cell(t->out, TM_CELL_SIZE, s, 7, estimated);
	tm_html(t->out, "</tr>\n");
	return 0;
}

int tm_report_heaps(struct tm_report *r, struct tm_bytes *out) {
	struct table t = { .out = out };
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	sqlite3_str_appendf(
		sql, "SELECT process_id, heap, allocations, allocated_bytes, temporary, peak_bytes, peak_ns - %lld, live_at_exit_bytes, estimated"
		     " FROM heap_summary WHERE true", (long long)tm_report_origin(r));
	tm_report_filter_each(sql, r, "process_id", "heap");
	sqlite3_str_appendf(sql, " ORDER BY process_id, heap IS NOT NULL, peak_bytes DESC, heap LIMIT %d", ROWS_MAX);
	tm_html(out, "<div class=\"wide\"><table id=\"heap-table\" class=\"sortable\"><thead><tr><th scope=\"col\">process</th><th "
		     "scope=\"col\">heap</th>"
		     "<th scope=\"col\">allocations</th><th scope=\"col\">allocated</th><th scope=\"col\">freed at once</th><th "
		     "scope=\"col\">peak</th>"
		     "<th scope=\"col\">when</th><th scope=\"col\">live at exit</th></tr></thead><tbody>\n");
	int status = tm_report_rows(r, sqlite3_str_finish(sql), take_heap, &t);
	tm_html(out, "</tbody></table></div>");
	put_more(&t, ROWS_MAX, "summary --limit=0");
	return status;
}

/* --- refused requests --- */

static int take_oom(struct tm_report *r, sqlite3_stmt *s, void *context) {
	(void)r;
	struct table *t = context;
	if (!t->rows++)
		tm_html(t->out, "<h3>Refused requests</h3><div class=\"wide\"><table id=\"oom-table\" class=\"sortable\"><thead><tr><th "
				"scope=\"col\">when</th><th scope=\"col\">heap</th>"
				"<th scope=\"col\">asked for</th><th scope=\"col\">by</th><th scope=\"col\">answer</th><th "
				"scope=\"col\">free then</th>"
				"<th scope=\"col\">of</th><th scope=\"col\">scope</th><th scope=\"col\">function</th></tr></thead><tbody>\n");
	tm_html(t->out, "<tr>");
	tm_html_column_cell(t->out, TM_CELL_TIME, s, 0, false);
	tm_html_text_cell(t->out, s, 1, "?");
	tm_html_column_cell(t->out, TM_CELL_SIZE, s, 2, false);
	tm_html_text_cell(t->out, s, 3, "?");
	tm_html_text_cell(t->out, s, 4, "?");
	tm_html_column_cell(t->out, TM_CELL_SIZE, s, 5, false);
	tm_html_column_cell(t->out, TM_CELL_SIZE, s, 6, false);
	tm_html_text_cell(t->out, s, 7, "\xE2\x80\x93");
	tm_html_text_cell(t->out, s, 8, "?");
	tm_html(t->out, "</tr>\n");
	return 0;
}

int tm_report_ooms(struct tm_report *r, struct tm_bytes *out) {
	struct table t = { .out = out };
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	sqlite3_str_appendf(
		sql,
		"SELECT o.ts_ns - %lld, h.name, o.size_bytes, o.api, o.result, o.device_free_bytes, o.device_total_bytes, s.name,\n"
		"f.function FROM oom AS o LEFT JOIN stack AS k ON k.id = o.stack_id LEFT JOIN frame AS f ON f.id = k.site_frame_id\n"
		"LEFT JOIN heap AS h ON h.id = o.heap_id LEFT JOIN scope AS s ON s.id = o.scope_id AND s.id > 0 WHERE true",
		(long long)tm_report_origin(r));
	tm_report_filter_each(sql, r, "o.process_id", "h.name");
	sqlite3_str_appendf(sql, " ORDER BY o.ts_ns LIMIT %d", ROWS_MAX);
	int status = tm_report_rows(r, sqlite3_str_finish(sql), take_oom, &t);
	tm_html(out, t.rows ? "</tbody></table></div>" : "");
	put_more(&t, ROWS_MAX, "gpu --oom --limit=0");
	return status;
}

/* --- what is missing, and what the recorder said --- */

static int take_loss(struct tm_report *r, sqlite3_stmt *s, void *context) {
	(void)r;
	struct table *t = context;
	if (!t->rows++)
		tm_html(t->out, "<div class=\"wide\"><table id=\"loss-table\" class=\"sortable\"><thead><tr><th "
				"scope=\"col\">lost</th><th scope=\"col\">count</th>"
				"<th scope=\"col\">bytes</th><th scope=\"col\">why</th></tr></thead><tbody>\n");
	tm_html(t->out, "<tr>");
	tm_html_text_cell(t->out, s, 0, "?");
	tm_html_column_cell(t->out, TM_CELL_COUNT, s, 1, false);
	tm_html_column_cell(t->out, TM_CELL_SIZE, s, 2, false);
	tm_html_text_cell(t->out, s, 3, "not said");
	tm_html(t->out, "</tr>\n");
	return 0;
}

static int take_note(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct table *t = context;
	(void)r;
	if (!t->rows++) tm_html(t->out, "<ul class=\"notes\">");
	tm_html(t->out, "<li>");
	tm_html_time(t->out, sqlite3_column_int64(s, 0));
	tm_html(t->out, " <em>");
	tm_html_column(t->out, s, 1, "");
	tm_html(t->out, "</em> ");
	tm_html_column(t->out, s, 2, "");
	tm_html(t->out, "</li>\n");
	return 0;
}

/* Of the processes shown, and of none: of those the recorder speaks for the whole recording. */
static char *notes_query(struct tm_report *r) {
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	sqlite3_str_appendf(sql,
			    "SELECT ts_ns - %lld, kind, text FROM (SELECT process_id, ts_ns, kind, text FROM note"
			    " UNION ALL SELECT process_id, ts_ns, 'alert', rule FROM alert) WHERE process_id IS NULL OR (true",
			    (long long)tm_report_origin(r));
	tm_report_filter(sql, r, "process_id", NULL);
	sqlite3_str_appendf(sql, ") ORDER BY 1 LIMIT %d", ROWS_MAX);
	return sqlite3_str_finish(sql);
}

static char *losses_query(struct tm_report *r) {
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	sqlite3_str_appendall(sql, "SELECT kind, sum(count), sum(bytes), reason FROM loss WHERE true");
	tm_sql_losses_of(sql, r->o);
	sqlite3_str_appendf(sql, " GROUP BY kind, reason ORDER BY 2 DESC LIMIT %d", ROWS_MAX);
	return sqlite3_str_finish(sql);
}

/* Of the traces of the processes shown, those that are cut. */
static char *cuts_query(struct tm_report *r) {
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	sqlite3_str_appendf(sql,
			    "SELECT end_ns - %lld, 'the trace is cut: ', cut_reason FROM trace WHERE cut_reason IS NOT NULL"
			    " AND (id NOT IN (SELECT trace_id FROM process) OR id IN (SELECT p.trace_id FROM process AS p",
			    (long long)tm_report_origin(r));
	tm_sql_process(sql, r->o, " WHERE", "p.id");
	sqlite3_str_appendf(sql, ")) ORDER BY id LIMIT %d", ROWS_MAX);
	return sqlite3_str_finish(sql);
}

static bool is_any_cut(struct tm_report *r) {
	char *query = cuts_query(r);
	bool is_cut = query && tm_database_integer(r->d, query, INT64_MAX) != INT64_MAX;
	sqlite3_free(query);
	return is_cut;
}

int tm_report_lost(struct tm_report *r, struct tm_bytes *out) {
	struct table losses = { .out = out }, cuts = { .out = out }, notes = { .out = out };
	int status = tm_report_rows(r, losses_query(r), take_loss, &losses);
	bool is_cut = is_any_cut(r);
	tm_html(out, losses.rows ? "</tbody></table></div>"
		     : is_cut    ? "<p>Of what could be read nothing was lost.</p>"
				 : "<p>Nothing was lost.</p>");
	if (!status) status = tm_report_rows(r, cuts_query(r), take_note, &cuts);
	tm_html(out, cuts.rows ? "</ul>" : "");
	if (!status) status = tm_report_rows(r, notes_query(r), take_note, &notes);
	tm_html(out, notes.rows ? "</ul>" : "");
	put_more(&notes, ROWS_MAX, "info");
	return status;
}
