/* report_scopes.c - the tree of scopes, as a table.
 *
 * Scopes whose names agree all the way outward are one line, whatever process or thread opened them; each trace of a database brings
 * names of its own, so that one text has several numbers. Instances come in the order of
 * opening, so that the line of the scope around one is known before its own. Bytes are sums over instances and root heaps, what
 * two of a name that overlap did counts once; the peak is the highest of one instance in one heap, because peaks of different instants
 * do not add up.
 */
#include "report_text.h"

#include <stdio.h>
#include <stdlib.h>

#include "json_text.h"
#include "report_html.h"
#include "schema/units.h"
#include "talk.h"

#define LINES_MAX 1000
#define LINES_KNOWN 1000000 /* further ones are added to the line around them */
#define DEPTH_SHOWN 200

struct line {
	uint32_t parent, first_child, next_sibling; /* 0: none; line 0 is the root */
	uint32_t depth;
	int64_t name, calls, duration_ns, self, total, retained, peak;
};

struct tree {
	struct tm_id_map index;
	TM_ARRAY(struct line) lines;
	uint32_t *of_scope;
	int64_t scopes;
	int64_t overlapped, overlapped_in; /* the scope and the heap that were counted once last */
	struct tm_bytes *out;
	sqlite3_stmt *names;
	int64_t whole;
	size_t shown;
	bool is_cut;
};

static int no_memory(const struct tm_report *r) {
	return tm_fail("cannot report on '%s': out of memory", r->d->path);
}

static int line_of(struct tm_report *r, struct tree *t, uint32_t parent, int64_t name, uint32_t *out) {
	uint64_t *slot = tm_id_map_find(&t->index, parent, (uint64_t)name);
	if (slot) {
		*out = (uint32_t)*slot;
		return 0;
	}
	*out = parent;
	if (parent && (t->lines.count >= LINES_KNOWN || t->lines.items[parent].depth >= DEPTH_SHOWN)) {
		t->is_cut = true;
		return 0;
	}
	slot = tm_id_map_put(&t->index, parent, (uint64_t)name);
	struct line *line = slot ? tm_array_push(&t->lines) : NULL;
	if (!line) return no_memory(r);
	*slot = t->lines.count - 1;
	*line = (struct line){ .parent = parent, .depth = t->lines.items[parent].depth + (parent != 0), .name = name };
	*out = (uint32_t)*slot;
	return 0;
}

static int take_scope(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct tree *t = context;
	int64_t id = sqlite3_column_int64(s, 0), parent = sqlite3_column_int64(s, 1);
	uint32_t line, around = parent > 0 && parent < id && parent < t->scopes ? t->of_scope[parent] : 0;
	if (id <= 0 || id >= t->scopes || !tm_report_process(r, sqlite3_column_int64(s, 3))) return 0;
	int status = line_of(r, t, around, sqlite3_column_int64(s, 2), &line);
	if (status) return status;
	t->of_scope[id] = line;
	t->lines.items[line].calls++;
	t->lines.items[line].duration_ns += sqlite3_column_int64(s, 4);
	return 0;
}

static int take_bytes(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct tree *t = context;
	int64_t id = sqlite3_column_int64(s, 0);
	const struct tm_report_heap *heap = tm_report_heap(r, sqlite3_column_int64(s, 1));
	if (id <= 0 || id >= t->scopes || !t->of_scope[id] || !heap || !heap->is_counted) return 0;
	struct line *line = &t->lines.items[t->of_scope[id]];
	line->self += sqlite3_column_int64(s, 2);
	line->total += sqlite3_column_int64(s, 3);
	line->retained += sqlite3_column_int64(s, 4);
	if (sqlite3_column_int64(s, 5) > line->peak) line->peak = sqlite3_column_int64(s, 5);
	return 0;
}

/* What a scope and the first later one on its line have both done. */
static int take_overlap(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct tree *t = context;
	int64_t id = sqlite3_column_int64(s, 0), later = sqlite3_column_int64(s, 1), heap = sqlite3_column_int64(s, 2);
	const struct tm_report_heap *known = tm_report_heap(r, heap);
	if (id <= 0 || id >= t->scopes || later <= 0 || later >= t->scopes || !known || !known->is_counted) return 0;
	if (!t->of_scope[id] || t->of_scope[id] != t->of_scope[later] || (t->overlapped == id && t->overlapped_in == heap)) return 0;
	struct line *line = &t->lines.items[t->of_scope[id]];
	line->total -= sqlite3_column_int64(s, 3);
	line->retained -= sqlite3_column_int64(s, 4);
	t->overlapped = id;
	t->overlapped_in = heap;
	return 0;
}

/* --- children, largest first --- */

static int larger_last(const void *a, const void *b, void *context) {
	const struct line *lines = context, *x = &lines[*(const uint32_t *)a], *y = &lines[*(const uint32_t *)b];
	if (x->total != y->total) return x->total < y->total ? -1 : 1;
	if (x->duration_ns != y->duration_ns) return x->duration_ns < y->duration_ns ? -1 : 1;
	return (*(const uint32_t *)a < *(const uint32_t *)b) - (*(const uint32_t *)a > *(const uint32_t *)b);
}

static int link_children(struct tm_report *r, struct tree *t) {
	size_t n = t->lines.count;
	uint32_t *order = calloc(n, sizeof(*order));
	if (!order) return no_memory(r);
	for (size_t i = 1; i < n; i++) order[i - 1] = (uint32_t)i;
	qsort_r(order, n - 1, sizeof(*order), larger_last, t->lines.items);
	for (size_t i = 0; i + 1 < n; i++) {
		struct line *line = &t->lines.items[order[i]], *parent = &t->lines.items[line->parent];
		line->next_sibling = parent->first_child;
		parent->first_child = order[i];
	}
	free(order);
	return 0;
}

static void put_line(struct tm_report *r, struct tree *t, const struct line *line) {
	bool estimated = r->d->estimated;
	double share = t->whole > 0 ? 100.0 * (double)line->total / (double)t->whole : 0;
	tm_put_format(t->out, "<tr data-depth=\"%u\"%s><th scope=\"row\" style=\"--d:%u\">", line->depth,
		      line->first_child ? " data-parent" : "", line->depth < 30 ? line->depth : 30);
	sqlite3_bind_int64(t->names, 1, line->name);
	if (sqlite3_step(t->names) == SQLITE_ROW) tm_html_column(t->out, t->names, 0, "?");
	sqlite3_reset(t->names);
	tm_html(t->out, "</th>");
	tm_html_cell(t->out, TM_CELL_COUNT, line->calls, false);
	tm_html_cell(t->out, TM_CELL_TIME, line->duration_ns, false);
	tm_html_cell(t->out, TM_CELL_SIZE, line->self, estimated);
	tm_html_cell(t->out, TM_CELL_SIZE, line->total, estimated);
	tm_put_format(t->out, "<td class=\"bar\"><i style=\"--w:%.1f%%\"></i></td>", share > 100 ? 100 : share);
	tm_html_cell(t->out, TM_CELL_SIZE, line->retained, estimated);
	tm_html_cell(t->out, TM_CELL_SIZE, line->peak, estimated);
	tm_html(t->out, "</tr>\n");
}

/* Outermost first, children behind their parent. */
static void put_lines(struct tm_report *r, struct tree *t) {
	uint32_t at = t->lines.items[0].first_child;
	while (at && t->shown < LINES_MAX) {
		const struct line *line = &t->lines.items[at];
		put_line(r, t, line);
		t->shown++;
		if (line->first_child) {
			at = line->first_child;
			continue;
		}
		while (at && !t->lines.items[at].next_sibling) at = t->lines.items[at].parent;
		at = at ? t->lines.items[at].next_sibling : 0;
	}
}

static int take_unscoped(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct tree *t = context;
	bool estimated = r->d->estimated;
	tm_html(t->out, "<tr data-depth=\"0\" class=\"faint\"><th scope=\"row\">[unscoped]</th><td class=\"n\">\xE2\x80\x93</td><td "
			"class=\"n\">\xE2\x80\x93</td>");
	tm_html_cell(t->out, TM_CELL_SIZE, sqlite3_column_int64(s, 0), estimated);
	tm_html_cell(t->out, TM_CELL_SIZE, sqlite3_column_int64(s, 0), estimated);
	tm_html(t->out, "<td></td><td class=\"n\">\xE2\x80\x93</td><td class=\"n\">\xE2\x80\x93</td></tr>\n");
	return 0;
}

static int put_unscoped(struct tm_report *r, struct tree *t) {
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	sqlite3_str_appendf(sql,
			    "SELECT coalesce(sum(a.self_allocated_bytes), 0) FROM scope_aggregate AS a JOIN heap AS h ON h.id = a.heap_id"
			    " WHERE a.name = '[unscoped]' AND a.category IS NULL AND (h.is_root OR %d)",
			    r->o->heap != NULL);
	tm_report_filter(sql, r, "a.process_id", "h.name");
	return tm_report_rows(r, sqlite3_str_finish(sql), take_unscoped, t);
}

static int put_table(struct tm_report *r, struct tree *t) {
	char shown[TM_UNIT_TEXT_MAX], all[TM_UNIT_TEXT_MAX];
	tm_html(t->out, "<div class=\"wide\"><table id=\"scope-table\" class=\"tree\"><thead><tr><th scope=\"col\">scope</th><th "
			"scope=\"col\">calls</th>"
			"<th scope=\"col\">time</th><th scope=\"col\">self</th><th scope=\"col\">total</th><th scope=\"col\"></th>"
			"<th scope=\"col\">retained</th><th scope=\"col\">peak</th></tr></thead><tbody>\n");
	put_lines(r, t);
	int status = put_unscoped(r, t);
	tm_html(t->out, "</tbody></table></div>\n");
	if (t->shown + 1 < t->lines.count)
		tm_put_format(t->out,
			      "<p class=\"note\">The first %s of %s lines; <code>tidemark scopes --tree --limit=0</code> has all.</p>",
			      tm_format_count(t->shown, shown), tm_format_count(t->lines.count - 1, all));
	if (t->is_cut) tm_html(t->out, "<p class=\"note\">Scopes more than 200 deep are added to the line around them.</p>");
	return status;
}

static int fill_tree(struct tm_report *r, struct tree *t) {
	t->scopes = tm_database_integer(r->d, "SELECT max(id) + 1 FROM scope_packed", 1);
	t->of_scope = t->scopes > 0 ? calloc((size_t)t->scopes, sizeof(*t->of_scope)) : NULL;
	if (!t->of_scope || !tm_array_push(&t->lines)) return no_memory(r);
	int status = tm_report_rows(
		r,
		sqlite3_mprintf("WITH named AS MATERIALIZED (SELECT id, min(id) OVER (PARTITION BY text) AS name_id FROM scope_name)\n"
				"SELECT s.id, s.parent_id, n.name_id, s.process_id, coalesce(s.end_ns - s.start_ns, 0)\n"
				"FROM scope_packed AS s JOIN named AS n ON n.id = s.name_id WHERE s.id > 0 ORDER BY s.id"),
		take_scope, t);
	if (!status)
		status = tm_report_rows(
			r,
			sqlite3_mprintf(
				"SELECT scope_id, heap_id, self_allocated_bytes, total_allocated_bytes, retained_bytes, peak_own_bytes"
				" FROM scope_instance_aggregate"),
			take_bytes, t);
	if (!status)
		status = tm_report_rows(
			r,
			sqlite3_mprintf("SELECT scope_id, later_scope_id, heap_id, allocated_bytes, retained_bytes FROM scope_overlap"
					" ORDER BY scope_id, heap_id, later_scope_id"),
			take_overlap, t);
	if (!status) status = link_children(r, t);
	for (uint32_t i = 1; i < t->lines.count; i++) {
		if (!t->lines.items[i].parent) t->whole += t->lines.items[i].total;
	}
	return status;
}

int tm_report_scopes(struct tm_report *r, struct tm_bytes *out) {
	struct tree t = { .out = out };
	int status = fill_tree(r, &t);
	if (!status && t.lines.count < 2) {
		tm_html(out, "<p class=\"none\">No scopes were recorded. <code>tidemark.h</code>, <code>import tidemark</code>, NVTX, "
			     "ITT or PyTorch name them.</p>");
	} else if (!status) {
		status = tm_database_prepare(r->d, "SELECT text FROM scope_name WHERE id = ?1", &t.names);
		if (!status) status = put_table(r, &t);
	}
	sqlite3_finalize(t.names);
	tm_id_map_release(&t.index);
	tm_array_release(&t.lines);
	free(t.of_scope);
	return status;
}
