/* report_data.c - what the page's script works with, as one JSON object.
 *
 * Arrays stand by column. Times count from the instant before them; sums over the grid are pairs of how many points further and the
 * value, points where nothing happened being left out. Call stacks are a tree whose nodes name their parents, which come first.
 */
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_text.h"
#include "report_html.h"
#include "scans.h"
#include "talk.h"

#define STEPS_MAX 2000
#define MARKS_MAX 200
#define SERIES_PARTS 300
#define SERIES_MAX 16
#define COLUMNS_MAX 4

/* Nodes and frames that no database has, ahead of those that it has. */
enum pseudo { PSEUDO_ALL, PSEUDO_NO_STACK, PSEUDO_REST, PSEUDO_COUNT };

struct data {
	struct tm_report *r;
	struct tm_bytes *out;
	size_t keys, name_bytes;
	uint32_t *node_of_stack, *frame_number; /* numbers in the page, 0: not there */
	uint32_t *small_node;                   /* of the keys with is_rest */
	TM_ARRAY(uint32_t) frames;              /* ids, by number less PSEUDO_COUNT */
};

static int no_memory(const struct tm_report *r) {
	return tm_fail("cannot report on '%s': out of memory", r->d->path);
}

static void put(struct data *p, const char *text) {
	tm_put_raw(p->out, text, strlen(text));
}

static void put_number(struct data *p, double number, bool first) {
	tm_put_format(p->out, first ? "%.0f" : ",%.0f", number);
}

/* A page is made of some hundred thousand numbers. */
static void put_integer(struct data *p, int64_t number, bool first) {
	char text[24], *end = text + sizeof(text), *at = end;
	uint64_t rest = number < 0 ? (uint64_t)0 - (uint64_t)number : (uint64_t)number;
	do *--at = (char)('0' + rest % 10);
	while (rest /= 10);
	if (number < 0) *--at = '-';
	if (!first) *--at = ',';
	tm_put_raw(p->out, at, (size_t)(end - at));
}

static void put_column_name(struct data *p, sqlite3_stmt *s, int column) {
	const char *text = (const char *)sqlite3_column_text(s, column);
	if (text) tm_json_name(p->out, text, (size_t)sqlite3_column_bytes(s, column), p->name_bytes);
	else put(p, "null");
}

/* --- sums over the grid --- */

/* Those of a point are `stride` further than those of the point before. */
static void put_sums(struct data *p, const double *sums, size_t stride) {
	size_t last = 0, points = p->r->grid.count;
	bool first = true;
	put(p, "[");
	for (size_t i = 0; i < points; i++) {
		double sum = sums[i * stride];
		if (sum > -0.5 && sum < 0.5) continue;
		put_integer(p, (int64_t)(i - last), first);
		if (sum > -1e15 && sum < 1e15 && sum == (double)(int64_t)sum) put_integer(p, (int64_t)sum, false);
		else put_number(p, sum, false);
		last = i;
		first = false;
	}
	put(p, "]");
}

/* A key that is not shown this time adds to the rest of its heap. */
static size_t shown_as(const struct data *p, size_t key) {
	const struct tm_report_key *k = &p->r->keys.items[key];
	return key < p->keys || k->is_rest ? key : p->r->heaps.items[k->heap].rest;
}

static bool is_shown(const struct data *p, size_t key) {
	return shown_as(p, key) == key;
}

/* Of one sum of all shown keys. */
static int put_key_sums(struct data *p, const char *name, const double *sums) {
	struct tm_report *r = p->r;
	size_t points = r->grid.count, keys = r->keys.count, bytes = keys * points * sizeof(double);
	double *folded = malloc(bytes + 1);
	bool first = true;
	if (!folded) return no_memory(r);
	memcpy(folded, sums, bytes);
	for (size_t k = p->keys; k < r->shown_keys; k++) {
		for (size_t i = 0; i < points; i++) folded[i * keys + shown_as(p, k)] += sums[i * keys + k];
	}
	tm_put_format(p->out, ",\n\"%s\":[", name);
	for (size_t k = 0; k < r->keys.count; k++) {
		if (!is_shown(p, k)) continue;
		if (!first) put(p, ",\n");
		put_sums(p, folded + k, keys);
		first = false;
	}
	put(p, "]");
	free(folded);
	return 0;
}

/* --- call stacks --- */

static uint32_t number_of_frame(struct data *p, uint32_t frame) {
	if (!frame) return PSEUDO_NO_STACK;
	if (!p->frame_number[frame]) {
		uint32_t *slot = tm_array_push(&p->frames);
		if (!slot) return 0;
		*slot = frame;
		p->frame_number[frame] = (uint32_t)(p->frames.count - 1 + PSEUDO_COUNT);
	}
	return p->frame_number[frame];
}

/* Ids of stacks count up from parent to child, so that the numbers do, too. */
static int put_nodes(struct data *p) {
	struct tm_report *r = p->r;
	struct tm_bytes parents = TM_BYTES_INIT;
	uint32_t count = PSEUDO_COUNT;
	bool failed = false;
	for (size_t k = 0; k < r->keys.count; k++) {
		if (!is_shown(p, k)) continue;
		for (uint32_t s = r->keys.items[k].stack; s && !p->node_of_stack[s]; s = r->stacks.parent[s]) p->node_of_stack[s] = 1;
	}
	tm_put_format(&parents, "0,0,0");
	put(p, ",\n\"nodes\":{\"frame\":[0,1,2");
	for (int64_t s = 1; s < r->stacks.stack_count; s++) {
		if (!p->node_of_stack[s]) continue;
		p->node_of_stack[s] = count++;
		uint32_t frame = number_of_frame(p, r->stacks.frame[s]);
		failed |= !frame;
		put_integer(p, frame, false);
		tm_put_format(&parents, ",%u", r->stacks.parent[s] ? p->node_of_stack[r->stacks.parent[s]] : 0);
	}
	/* What is too small to be told apart is a node below the part of the stacks that it shares. */
	for (size_t k = r->shown_keys; k < r->keys.count; k++) {
		uint32_t stack = r->keys.items[k].stack;
		p->small_node[k - r->shown_keys] = stack ? count++ : PSEUDO_REST;
		if (!stack) continue;
		put_integer(p, PSEUDO_REST, false);
		tm_put_format(&parents, ",%u", p->node_of_stack[stack]);
	}
	put(p, "],\n\"parent\":[");
	tm_put_raw(p->out, parents.data, parents.size);
	put(p, "]}");
	failed |= parents.failed;
	tm_bytes_release(&parents);
	return failed ? no_memory(r) : 0;
}

enum key_column { KEY_HEAP, KEY_NODE, KEY_SITE, KEY_PEAK, KEY_EXIT, KEY_ALLOCATED, KEY_COLUMNS };

static int64_t key_value(struct data *p, size_t k, const struct tm_report_key *key, enum key_column column) {
	uint32_t site = p->r->site_of_stack[key->stack];
	switch (column) {
	case KEY_HEAP: return key->heap;
	case KEY_NODE:
		return key->is_rest ? p->small_node[k - p->r->shown_keys] : key->stack ? p->node_of_stack[key->stack] : PSEUDO_NO_STACK;
	case KEY_SITE: return key->is_rest ? PSEUDO_REST : number_of_frame(p, site);
	case KEY_PEAK: return key->peak_bytes;
	case KEY_EXIT: return key->exit_bytes;
	default: return key->allocated_bytes;
	}
}

static int put_keys(struct data *p) {
	static const char *const names[KEY_COLUMNS] = { "heap", "node", "site", "peak", "exit", "allocated" };
	struct tm_report *r = p->r;
	struct tm_report_key *keys = malloc(r->keys.count * sizeof(*keys) + 1);
	if (!keys) return no_memory(r);
	if (r->keys.count) memcpy(keys, r->keys.items, r->keys.count * sizeof(*keys));
	for (size_t k = p->keys; k < r->shown_keys; k++) {
		struct tm_report_key *as = &keys[shown_as(p, k)];
		as->peak_bytes += keys[k].peak_bytes;
		as->exit_bytes += keys[k].exit_bytes;
		as->allocated_bytes += keys[k].allocated_bytes;
	}
	put(p, ",\n\"keys\":{");
	for (int column = 0; column < KEY_COLUMNS; column++) {
		tm_put_format(p->out, "%s\"%s\":[", column ? ",\n" : "", names[column]);
		bool first = true;
		for (size_t k = 0; k < r->keys.count; k++) {
			if (!is_shown(p, k)) continue;
			put_integer(p, key_value(p, k, &keys[k], (enum key_column)column), first);
			first = false;
		}
		put(p, "]");
	}
	put(p, "}");
	free(keys);
	return 0;
}

static int put_frames(struct data *p) {
	static const char sql[] = "SELECT t.text, f.kind, f.file, f.line, m.path FROM frame AS f JOIN frame_text AS t ON t.frame_id = f.id"
				  " LEFT JOIN module AS m ON m.id = f.module_id WHERE f.id = ?1";
	struct tm_bytes kinds = TM_BYTES_INIT, files = TM_BYTES_INIT, lines = TM_BYTES_INIT;
	struct tm_bytes *text = p->out;
	sqlite3_stmt *s = NULL;
	int status = tm_database_prepare(p->r->d, sql, &s);
	put(p, ",\n\"frames\":{\"text\":[\"everything\",\"(no call stack)\",\"(smaller calls)\"");
	for (size_t i = 0; !status && i < p->frames.count; i++) {
		sqlite3_bind_int64(s, 1, p->frames.items[i]);
		bool is_there = sqlite3_step(s) == SQLITE_ROW;
		const char *kind = is_there ? (const char *)sqlite3_column_text(s, 1) : NULL;
		put(p, ",");
		put_column_name(p, s, 0);
		tm_put_format(&kinds, "%c", kind && *kind >= 'a' && *kind <= 'z' ? *kind : 'u');
		p->out = &files;
		put(p, ",");
		put_column_name(p, s, sqlite3_column_type(s, 2) != SQLITE_NULL ? 2 : 4);
		p->out = text;
		tm_put_format(&lines, ",%lld", (long long)(is_there ? sqlite3_column_int64(s, 3) : 0));
		sqlite3_reset(s);
	}
	sqlite3_finalize(s);
	put(p, "],\n\"kind\":\"xxx");
	tm_put_raw(text, kinds.data, kinds.size);
	put(p, "\",\n\"file\":[null,null,null");
	tm_put_raw(text, files.data, files.size);
	put(p, "],\n\"line\":[0,0,0");
	tm_put_raw(text, lines.data, lines.size);
	put(p, "]}");
	text->failed |= kinds.failed || files.failed || lines.failed;
	tm_bytes_release(&kinds);
	tm_bytes_release(&files);
	tm_bytes_release(&lines);
	return status;
}

/* --- the dimensions of the chart --- */

struct ranked {
	uint16_t group;
	double highest;
};

static int higher_first(const void *a, const void *b) {
	const struct ranked *x = a, *y = b;
	if (x->highest != y->highest) return x->highest < y->highest ? 1 : -1;
	return (x->group > y->group) - (x->group < y->group);
}

static int put_dimension(struct data *p, const char *title, enum tm_report_by by, size_t shown_max) {
	const struct tm_report_dimension *dimension = &p->r->by[by];
	size_t groups = dimension->names.count, points = p->r->grid.count, shown = 0;
	struct ranked *order = calloc(groups, sizeof(*order));
	double *rest = calloc(points, sizeof(*rest));
	if (!order || !rest) {
		free(order);
		free(rest);
		return no_memory(p->r);
	}
	for (size_t g = 0; g < groups; g++) {
		double live = 0;
		order[g].group = (uint16_t)g;
		for (size_t i = 0; i < points; i++) {
			live += dimension->change[i * groups + g];
			if (g && live > order[g].highest) order[g].highest = live;
		}
	}
	qsort(order, groups, sizeof(*order), higher_first);
	while (shown < groups && shown < shown_max && order[shown].highest > 0) shown++;
	for (size_t g = shown; g < groups; g++) {
		for (size_t i = 0; i < points; i++) rest[i] += dimension->change[i * groups + order[g].group];
	}
	tm_put_format(p->out, ",\n\"%s\":{\"names\":[", title);
	for (size_t i = 0; i < shown; i++) {
		const char *name = dimension->names.items[order[i].group];
		if (i) put(p, ",");
		tm_json_name(p->out, name, strlen(name), p->name_bytes);
	}
	put(p, shown ? ",\"other\"],\"change\":[" : "\"other\"],\"change\":[");
	for (size_t i = 0; i < shown; i++) {
		put_sums(p, dimension->change + order[i].group, groups);
		put(p, ",");
	}
	put_sums(p, rest, 1);
	put(p, "]}");
	free(order);
	free(rest);
	return 0;
}

/* --- series of other things over time --- */

struct series_row {
	int64_t ns;
	double value[COLUMNS_MAX];
	bool is_known[COLUMNS_MAX];
};

struct series {
	struct data *p;
	int columns, of;
	bool any;
	TM_ARRAY(struct series_row) rows;
};

static void put_series_column(struct data *p, const struct series *series, int column) {
	put(p, column ? ",[" : "[");
	for (size_t i = 0; i < series->rows.count; i++) {
		const struct series_row *row = &series->rows.items[i];
		if (row->is_known[column]) put_number(p, row->value[column], !i);
		else put(p, i ? ",null" : "null");
	}
	put(p, "]");
}

static void put_series(struct data *p, struct series *series) {
	if (!series->rows.count) return;
	tm_put_format(p->out, "%s{\"of\":%d,\"t\":[", series->any ? "," : "", series->of);
	for (size_t i = 0; i < series->rows.count; i++)
		put_integer(p, series->rows.items[i].ns - (i ? series->rows.items[i - 1].ns : 0), !i);
	put(p, "],\"v\":[");
	for (int column = 0; column < series->columns; column++) put_series_column(p, series, column);
	put(p, "]}");
	series->any = true;
	series->rows.count = 0;
}

/* Of each part of the run the highest row by its first value, and the last one. */
static int take_series(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct series *series = context;
	int of = sqlite3_column_int(s, 0);
	if (of != series->of) put_series(series->p, series);
	series->of = of;
	struct series_row row = { .ns = sqlite3_column_int64(s, 1) };
	for (int i = 0; i < series->columns; i++) {
		row.is_known[i] = sqlite3_column_type(s, 2 + i) != SQLITE_NULL;
		row.value[i] = sqlite3_column_double(s, 2 + i);
	}
	int64_t first = r->grid.items[0], length = r->grid.items[r->grid.count - 1] - first + 1;
	int64_t part = (int64_t)((double)(row.ns - first) / (double)length * SERIES_PARTS);
	size_t n = series->rows.count, same = 0;
	while (same < 2 && same < n &&
	       (int64_t)((double)(series->rows.items[n - 1 - same].ns - first) / (double)length * SERIES_PARTS) == part)
		same++;
	if (same == 2) {
		struct series_row *high = &series->rows.items[n - 2], *last = &series->rows.items[n - 1];
		if (last->value[0] > high->value[0]) *high = *last;
		*last = row;
		return 0;
	}
	struct series_row *slot = tm_array_push(&series->rows);
	if (!slot) return no_memory(r);
	*slot = row;
	return 0;
}

static int put_all_series(struct data *p, const char *name, int columns, char *query) {
	struct series series = { .p = p, .columns = columns, .of = -1 };
	tm_put_format(p->out, ",\n\"%s\":[", name);
	int status = tm_report_rows(p->r, query, take_series, &series);
	put_series(p, &series);
	put(p, "]");
	tm_array_release(&series.rows);
	return status;
}

static int put_gap(struct data *p) {
	sqlite3_str *sql = sqlite3_str_new(p->r->d->handle);
	sqlite3_str_appendall(
		sql, "SELECT process_id, ts_ns, rss_bytes, explained_bytes, tool_bytes, gap_bytes FROM memory_gap WHERE process_id IN "
		     "(SELECT process_id"
		     " FROM heap_total WHERE heap_id = 0");
	tm_report_filter(sql, p->r, "process_id", NULL);
	sqlite3_str_appendf(sql, " ORDER BY peak_bytes DESC LIMIT %d) ORDER BY process_id, ts_ns", SERIES_MAX);
	return put_all_series(p, "gap", 4, sqlite3_str_finish(sql));
}

/* What an allocator told of itself, else the level of the heap. A snapshot tells at its own time alone what tensors held: before, that is the heap's
 * level, too, and each value is the last one known. */
static int put_devices(struct data *p) {
	bool has_gaps = tm_database_integer(p->r->d, "SELECT 1 FROM pool_state WHERE allocated_bytes IS NULL LIMIT 1", 0);
	sqlite3_str *sql = sqlite3_str_new(p->r->d->handle);
	sqlite3_str_appendall(
		sql, "WITH point(heap_id, ts_ns, a, r, x) AS (SELECT h.id, s.ts_ns, s.allocated_bytes, s.reserved_bytes, s.active_bytes"
		     " FROM pool_state AS s JOIN heap AS h ON h.id = s.heap_id WHERE true");
	tm_report_filter_each(sql, p->r, "h.process_id", "h.name");
	sqlite3_str_appendf(
		sql,
		" UNION ALL SELECT h.id, t.ts_ns, t.live_bytes, NULL, NULL FROM heap AS h JOIN timeline AS t ON t.heap_id = h.id"
		" AND t.process_id = h.process_id WHERE h.device IS NOT NULL AND NOT EXISTS (SELECT 1 FROM pool_state AS s WHERE "
		"s.heap_id = h.id%s)",
		has_gaps ? " AND NOT EXISTS (SELECT 1 FROM pool_state AS u WHERE u.heap_id = h.id AND u.allocated_bytes IS NULL)" : "");
	tm_report_filter_each(sql, p->r, "h.process_id", "h.name");
	sqlite3_str_appendall(
		sql, has_gaps ? "), known AS (SELECT *, count(a) OVER w AS a_n, count(r) OVER w AS r_n, count(x) OVER w AS x_n FROM point"
				" WINDOW w AS (PARTITION BY heap_id ORDER BY ts_ns, a IS NOT NULL, r IS NOT NULL ROWS UNBOUNDED PRECEDING))"
				" SELECT heap_id, ts_ns, max(a) OVER (PARTITION BY heap_id, a_n), max(r) OVER (PARTITION BY heap_id, r_n),"
				" max(x) OVER (PARTITION BY heap_id, x_n) FROM known ORDER BY 1, 2, a_n, r_n"
			      : ") SELECT * FROM point ORDER BY 1, 2");
	return put_all_series(p, "devices", 3, sqlite3_str_finish(sql));
}

/* What a process occupies on a device belongs to the chart of its first pool there, else of the device's own heap. */
static int put_used(struct data *p) {
	sqlite3_str *sql = sqlite3_str_new(p->r->d->handle);
	sqlite3_str_appendall(
		sql,
		"WITH shown AS (SELECT h.id, h.process_id, h.device, row_number() OVER (PARTITION BY h.process_id, h.device ORDER BY "
		"EXISTS (SELECT 1 FROM pool_state AS s WHERE s.heap_id = h.id) DESC, h.kind = 'device' DESC, h.id) AS n FROM heap AS h "
		"WHERE h.device IS NOT NULL AND (EXISTS (SELECT 1 FROM pool_state AS s WHERE s.heap_id = h.id) OR EXISTS "
		"(SELECT 1 FROM timeline AS t WHERE t.process_id = h.process_id AND t.heap_id = h.id))");
	tm_report_filter_each(sql, p->r, "h.process_id", "h.name");
	sqlite3_str_appendall(sql, ") SELECT h.id, u.ts_ns, u.used_bytes FROM gpu_gap_sample AS u JOIN shown AS h ON h.n = 1 AND "
				   "h.process_id = u.process_id AND h.device = u.device ORDER BY 1, 2");
	return put_all_series(p, "used", 1, sqlite3_str_finish(sql));
}

/* --- lists --- */

struct list {
	struct data *p;
	const char *kinds; /* of its columns: t text, i integer */
	bool any;
};

static int take_item(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct list *list = context;
	(void)r;
	put(list->p, list->any ? ",\n[" : "[");
	for (int i = 0; list->kinds[i]; i++) {
		if (i) put(list->p, ",");
		if (list->kinds[i] == 't' || sqlite3_column_type(s, i) == SQLITE_NULL) put_column_name(list->p, s, i);
		else put_integer(list->p, sqlite3_column_int64(s, i), true);
	}
	put(list->p, "]");
	list->any = true;
	return 0;
}

static int put_list(struct data *p, const char *name, const char *kinds, const char *query, const char *process, const char *heap,
		    const char *order) {
	struct list list = { p, kinds, false };
	sqlite3_str *sql = sqlite3_str_new(p->r->d->handle);
	sqlite3_str_appendall(sql, query);
	tm_report_filter_each(sql, p->r, process, heap);
	sqlite3_str_appendall(sql, order);
	tm_put_format(p->out, ",\n\"%s\":[", name);
	int status = tm_report_rows(p->r, sqlite3_str_finish(sql), take_item, &list);
	put(p, "]");
	return status;
}

static int put_lists(struct data *p) {
	char limit[64];
	sqlite3_str *steps = sqlite3_str_new(p->r->d->handle);
	sqlite3_str_appendall(steps, "SELECT s.process_id, s.n, s.start_ns, s.end_ns - s.start_ns, coalesce(a.allocated_bytes, 0),\n"
				     "  coalesce(a.freed_bytes, 0), coalesce(a.begin_bytes, 0), coalesce(a.end_bytes, 0),\n"
				     "  coalesce(a.peak_bytes, 0), coalesce(a.survived_bytes, 0)\nFROM ");
	tm_sql_from_steps(steps, p->r->o);
	sqlite3_str_appendall(steps, " WHERE true");
	char *query = sqlite3_str_finish(steps);
	snprintf(limit, sizeof(limit), " ORDER BY s.process_id, s.start_ns LIMIT %d", STEPS_MAX);
	int status = query ? put_list(p, "steps", "iiiiiiiiii", query, "s.process_id", NULL, limit) : TM_EXIT_FAILED;
	sqlite3_free(query);
	snprintf(limit, sizeof(limit), " ORDER BY 1 LIMIT %d", MARKS_MAX);
	if (!status) status = put_list(p, "marks", "it", "SELECT ts_ns, name FROM mark WHERE true", "process_id", NULL, limit);
	if (!status)
		status = put_list(p, "ooms", "itiit",
				  "SELECT o.ts_ns, h.name, o.size_bytes, o.heap_id, o.api FROM oom AS o LEFT JOIN heap AS h ON h.id = "
				  "o.heap_id WHERE true",
				  "o.process_id", "h.name", limit);
	return status;
}

/* --- who --- */

static void put_processes(struct data *p) {
	const struct tm_report *r = p->r;
	put(p, ",\n\"processes\":[");
	for (size_t i = 0; i < r->processes.count; i++) {
		const struct tm_report_process *process = &r->processes.items[i];
		const char *name = r->by[TM_REPORT_PROCESS].names.items[process->group];
		tm_put_format(p->out, "%s{\"id\":%lld,\"pid\":%lld,\"rank\":%lld,\"end\":%lld,\"endPoint\":%u,\"peak\":%lld,\"name\":",
			      i ? ",\n" : "", (long long)process->id, (long long)process->pid, (long long)process->rank,
			      (long long)process->end_ns, process->end_point, (long long)process->peak_bytes);
		tm_json_name(p->out, name, strlen(name), p->name_bytes);
		put(p, "}");
	}
	put(p, "],\n\"heaps\":[");
	for (size_t i = 0; i < r->heaps.count; i++) {
		const struct tm_report_heap *heap = &r->heaps.items[i];
		tm_put_format(p->out, "%s{\"id\":%lld,\"process\":%u,\"counted\":%s,\"name\":", i ? ",\n" : "", (long long)heap->id,
			      heap->process, heap->is_counted ? "true" : "false");
		tm_json_name(p->out, r->heap_names.items[heap->name], strlen(r->heap_names.items[heap->name]), p->name_bytes);
		put(p, "}");
	}
	put(p, "]");
}

static void put_times(struct data *p) {
	const struct tm_report *r = p->r;
	put(p, "{\"grid\":[");
	for (size_t i = 0; i < r->grid.count; i++) put_integer(p, r->grid.items[i] - (i ? r->grid.items[i - 1] : 0), !i);
	put(p, "],\n\"total\":{\"t\":[");
	for (size_t i = 0; i < r->total.count; i++) put_integer(p, r->total.items[i].ns - (i ? r->total.items[i - 1].ns : 0), !i);
	put(p, "],\n\"v\":[");
	for (size_t i = 0; i < r->total.count; i++) put_integer(p, r->total.items[i].bytes, !i);
	tm_put_format(p->out, "]},\n\"estimated\":%s,\"keyCount\":%zu", r->d->estimated ? "true" : "false", p->keys);
}

static int put_everything(struct data *p) {
	put_times(p);
	put_processes(p);
	int status = put_nodes(p);
	if (!status) status = put_keys(p);
	if (!status) status = put_key_sums(p, "made", p->r->made);
	if (!status) status = put_key_sums(p, "freed", p->r->freed);
	if (!status) status = put_key_sums(p, "kept", p->r->kept);
	if (!status) status = put_frames(p);
	put(p, ",\n\"by\":{\"version\":1");
	if (!status) status = put_dimension(p, "heap", TM_REPORT_HEAP, TM_REPORT_SHOWN);
	if (!status) status = put_dimension(p, "scope", TM_REPORT_SCOPE, TM_REPORT_SHOWN);
	if (!status) status = put_dimension(p, "library", TM_REPORT_LIBRARY, TM_REPORT_SHOWN);
	if (!status) status = put_dimension(p, "call site", TM_REPORT_FUNCTION, TM_REPORT_SHOWN);
	if (!status && p->r->processes.count > 1) status = put_dimension(p, "process", TM_REPORT_PROCESS, TM_REPORT_SHOWN);
	put(p, "}");
	if (!status && p->r->processes.count > 1) status = put_dimension(p, "ranks", TM_REPORT_PROCESS, TM_REPORT_RANKS);
	if (!status) status = put_gap(p);
	if (!status) status = put_devices(p);
	if (!status) status = put_used(p);
	if (!status) status = put_lists(p);
	put(p, "}\n");
	return status;
}

int tm_report_data(struct tm_report *r, struct tm_bytes *out, size_t keys, size_t name_bytes) {
	struct data p = { .r = r, .out = out, .keys = keys < r->shown_keys ? keys : r->shown_keys, .name_bytes = name_bytes };
	p.node_of_stack = calloc((size_t)r->stacks.stack_count, sizeof(uint32_t));
	p.frame_number = calloc((size_t)r->stacks.frame_count, sizeof(uint32_t));
	p.small_node = calloc(r->keys.count + 1, sizeof(uint32_t));
	int status = p.node_of_stack && p.frame_number && p.small_node ? put_everything(&p) : no_memory(r);
	free(p.small_node);
	free(p.node_of_stack);
	free(p.frame_number);
	tm_array_release(&p.frames);
	return status;
}
