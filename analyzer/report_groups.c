/* report_groups.c - picks the call stacks that the page can follow over time, and the names that its chart can stack.
 *
 * A call stack matters by the largest of its shares: of the peak, of what was live at exit, of what was allocated in all. One that is
 * too small is cut to the outer part of it that, with all that begin with it, is not: so nothing is left out, and only the innermost
 * frames of small things. The names of a dimension are picked by what they held; more of them are followed than are shown, because what
 * is highest over time is known only afterwards.
 */
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "talk.h"

static int no_memory(const struct tm_report *r) {
	return tm_fail("cannot report on '%s': out of memory", r->d->path);
}

/* --- call stacks --- */

/* A row of site_total. */
struct site_row {
	uint32_t heap, stack;
	int64_t peak_bytes, exit_bytes, allocated_bytes;
	double weight; /* the larger, the sooner it is shown */
};

struct choosing {
	struct tm_report *r;
	double sums[6];
	double *held;                   /* by frame: bytes of the stacks whose site it is, for the names */
	TM_ARRAY(struct site_row) rows; /* in the end those that have no key of their own */
};

static int take_key(void *context, sqlite3_value **row) {
	struct choosing *c = context;
	struct tm_report *r = c->r;
	uint64_t *heap = tm_id_map_find(&r->heap_index, (uint64_t)sqlite3_value_int64(row[0]), 0);
	if (!heap) return 0;
	const struct tm_report_heap *h = &r->heaps.items[*heap - 1];
	bool of_process = h->is_root && !r->o->heap;
	struct site_row *key = tm_array_push(&c->rows);
	if (!key) return no_memory(r);
	*key = (struct site_row){ .heap = (uint32_t)(*heap - 1),
				  .stack = tm_stack_frames_check(&r->stacks, sqlite3_value_int64(row[1])),
				  .peak_bytes = sqlite3_value_int64(row[of_process ? 2 : 3]),
				  .exit_bytes = sqlite3_value_int64(row[4]),
				  .allocated_bytes = sqlite3_value_int64(row[5]) };
	double *sums = c->sums + (h->is_counted ? 0 : 3);
	sums[0] += (double)key->peak_bytes;
	sums[1] += (double)key->exit_bytes;
	sums[2] += (double)key->allocated_bytes;
	if (h->is_counted && !h->process && key->peak_bytes > 0) r->peak_of_site[r->site_of_stack[key->stack]] += key->peak_bytes;
	return 0;
}

static double share(int64_t part, double all) {
	return all > 0 ? (double)part / all : 0;
}

static int heavier_first(const void *a, const void *b) {
	const struct site_row *x = a, *y = b;
	if (x->weight != y->weight) return x->weight < y->weight ? 1 : -1;
	if (x->heap != y->heap) return x->heap < y->heap ? -1 : 1;
	return (x->stack > y->stack) - (x->stack < y->stack);
}

static void weigh(struct tm_report *r, struct choosing *c) {
	for (size_t i = 0; i < c->rows.count; i++) {
		struct site_row *row = &c->rows.items[i];
		const struct tm_report_heap *heap = &r->heaps.items[row->heap];
		const double *of = c->sums + (heap->is_counted ? 0 : 3);
		row->weight = share(row->peak_bytes, of[0]);
		if (share(row->exit_bytes, of[1]) > row->weight) row->weight = share(row->exit_bytes, of[1]);
		if (share(row->allocated_bytes, of[2]) > row->weight) row->weight = share(row->allocated_bytes, of[2]);
		if (heap->is_counted) c->held[r->site_of_stack[row->stack]] += row->weight;
	}
}

/* Puts a row at place i of a heap whose first row is the lightest, or below it. */
static void sift(struct site_row *heap, size_t count, size_t i, struct site_row row) {
	for (size_t child; (child = 2 * i + 1) < count; i = child) {
		if (child + 1 < count && heavier_first(&heap[child], &heap[child + 1]) < 0) child++;
		if (heavier_first(&row, &heap[child]) > 0) break;
		heap[i] = heap[child];
	}
	heap[i] = row;
}

/* The heaviest rows, heaviest first, become keys; the others, of which there may be millions, stay as they are: they need no order. */
static int pick_keys(struct tm_report *r, struct choosing *c) {
	size_t count = c->rows.count, top = count < TM_REPORT_KEYS ? count : TM_REPORT_KEYS, left = 0;
	struct site_row *rows = c->rows.items, *heap = malloc((top + 1) * sizeof(*heap));
	if (!heap) return no_memory(r);
	if (top) memcpy(heap, rows, top * sizeof(*heap));
	for (size_t i = top / 2; i-- > 0;) sift(heap, top, i, heap[i]);
	for (size_t i = top; i < count; i++)
		if (heavier_first(&rows[i], &heap[0]) < 0) sift(heap, top, 0, rows[i]);
	struct site_row least = heap[0];
	size_t picked = 0;
	for (size_t i = 0; i < count; i++) {
		if (picked < top && heavier_first(&rows[i], &least) <= 0) heap[picked++] = rows[i];
		else rows[left++] = rows[i];
	}
	c->rows.count = left;
	if (picked) qsort(heap, picked, sizeof(*heap), heavier_first);
	for (size_t i = 0; i < picked; i++) {
		struct tm_report_key *key = tm_array_push(&r->keys);
		if (key)
			*key = (struct tm_report_key){ heap[i].heap,       heap[i].stack,           heap[i].peak_bytes,
						       heap[i].exit_bytes, heap[i].allocated_bytes, false };
	}
	free(heap);
	r->shown_keys = r->keys.count;
	return r->keys.count == picked ? 0 : no_memory(r);
}

/* Sets rest_of_stack: the innermost part of each stack that has at least this weight under it, over all that have no key of their own. */
static void cut_stacks(struct tm_report *r, const struct choosing *c, double *under, double least) {
	int64_t count = r->stacks.stack_count;
	memset(under, 0, (size_t)count * sizeof(*under));
	for (size_t i = 0; i < c->rows.count; i++) under[c->rows.items[i].stack] += c->rows.items[i].weight;
	/* A parent's id is lower than its children's. */
	for (int64_t s = count - 1; s > 0; s--) under[r->stacks.parent[s]] += under[s];
	r->rest_of_stack[0] = 0;
	for (int64_t s = 1; s < count; s++) {
		uint32_t parent = r->stacks.parent[s];
		r->rest_of_stack[s] = under[s] >= least && r->rest_of_stack[parent] == parent ? (uint32_t)s : r->rest_of_stack[parent];
	}
}

#define REST_MARK (UINT64_C(1) << 32) /* tells the keys of parts from those of whole stacks */

uint32_t tm_report_key_of(const struct tm_report *r, uint32_t heap, uint32_t stack) {
	uint64_t *found = tm_id_map_find(&r->key_index, heap, stack);
	if (!found) found = tm_id_map_find(&r->key_index, heap, r->rest_of_stack[stack] | REST_MARK);
	return found ? (uint32_t)(*found - 1) : r->heaps.items[heap].rest;
}

static int add_rest(struct tm_report *r, uint32_t heap, uint32_t stack, uint64_t *slot) {
	struct tm_report_key *key = tm_array_push(&r->keys);
	if (!key) return no_memory(r);
	*key = (struct tm_report_key){ .heap = heap, .stack = stack, .is_rest = true };
	*slot = r->keys.count;
	return 0;
}

/* One for each heap and part of a stack that is needed; *many: there would be more than there may be. */
static int add_rests(struct tm_report *r, const struct choosing *c, bool *many) {
	int status = 0;
	*many = false;
	for (uint32_t h = 0; !status && h < r->heaps.count; h++) {
		uint64_t *slot = tm_id_map_put(&r->key_index, h, REST_MARK);
		status = !slot ? no_memory(r) : *slot ? 0 : add_rest(r, h, 0, slot);
		r->heaps.items[h].rest = (uint32_t)(r->keys.count - 1);
	}
	for (size_t i = 0; !status && i < c->rows.count; i++) {
		uint32_t heap = c->rows.items[i].heap, stack = r->rest_of_stack[c->rows.items[i].stack];
		uint64_t *slot = tm_id_map_put(&r->key_index, heap, stack | REST_MARK);
		status = !slot ? no_memory(r) : *slot ? 0 : add_rest(r, heap, stack, slot);
		*many = r->keys.count > r->shown_keys + r->heaps.count + TM_REPORT_RESTS;
		if (*many) break;
	}
	return status;
}

static int index_keys(struct tm_report *r) {
	tm_id_map_release(&r->key_index);
	r->keys.count = r->shown_keys;
	for (size_t i = 0; i < r->shown_keys; i++) {
		uint64_t *slot = tm_id_map_put(&r->key_index, r->keys.items[i].heap, r->keys.items[i].stack);
		if (!slot) return no_memory(r);
		*slot = i + 1;
	}
	return 0;
}

/* A key of many small rows, and the heaviest of them. */
struct rest {
	struct tm_report_key key;
	struct site_row heaviest;
};

static int heaviest_first(const void *a, const void *b) {
	return heavier_first(&((const struct rest *)a)->heaviest, &((const struct rest *)b)->heaviest);
}

/* Adds the small rows to their keys. Those of the heaps come first, then the others by the heaviest of their rows. */
static int sum_rests(struct tm_report *r, const struct choosing *c) {
	size_t first = r->shown_keys, fixed = r->heaps.count, count = r->keys.count - first;
	struct rest *rests = calloc(count + 1, sizeof(*rests));
	if (!rests) return no_memory(r);
	for (size_t i = 0; i < count; i++) rests[i] = (struct rest){ .key = r->keys.items[first + i], .heaviest = { .weight = -1 } };
	for (size_t i = 0; i < c->rows.count; i++) {
		const struct site_row *row = &c->rows.items[i];
		struct rest *rest = &rests[*tm_id_map_find(&r->key_index, row->heap, r->rest_of_stack[row->stack] | REST_MARK) - 1 - first];
		rest->key.peak_bytes += row->peak_bytes;
		rest->key.exit_bytes += row->exit_bytes;
		rest->key.allocated_bytes += row->allocated_bytes;
		if (heavier_first(row, &rest->heaviest) < 0) rest->heaviest = *row;
	}
	if (count > fixed) qsort(rests + fixed, count - fixed, sizeof(*rests), heaviest_first);
	for (size_t i = 0; i < count; i++) {
		r->keys.items[first + i] = rests[i].key;
		*tm_id_map_find(&r->key_index, rests[i].key.heap, rests[i].key.stack | REST_MARK) = first + i + 1;
	}
	free(rests);
	return 0;
}

/* What is too small to be followed is cut to the part of its stack that, with others like it, is not. */
static int fold_small(struct tm_report *r, struct choosing *c) {
	double *under = tm_table_new((size_t)r->stacks.stack_count, sizeof(*under)), least = 0;
	int status = under ? 0 : no_memory(r);
	for (size_t i = 0; i < c->rows.count; i++) least += c->rows.items[i].weight / TM_REPORT_RESTS;
	for (bool many = true; !status && many; least *= 1.5) {
		cut_stacks(r, c, under, least);
		status = index_keys(r);
		if (!status) status = add_rests(r, c, &many);
	}
	free(under);
	return status ? status : sum_rests(r, c);
}

static int take_site(void *context, sqlite3_value **row) {
	struct tm_report *r = context;
	int64_t id = sqlite3_value_int64(row[0]), frame = sqlite3_value_int64(row[1]);
	if (id > 0 && id < r->stacks.stack_count && frame > 0 && frame < r->stacks.frame_count) r->site_of_stack[id] = (uint32_t)frame;
	return 0;
}

static int choose_keys(struct tm_report *r, double *held) {
	struct choosing c = { .r = r, .held = held };
	r->site_of_stack = tm_table_new((size_t)r->stacks.stack_count, sizeof(uint32_t));
	r->rest_of_stack = tm_table_new((size_t)r->stacks.stack_count, sizeof(uint32_t));
	r->peak_of_site = calloc((size_t)r->stacks.frame_count, sizeof(int64_t));
	int status = r->site_of_stack && r->rest_of_stack && r->peak_of_site ? 0 : no_memory(r);
	if (!status) status = tm_database_each(r->d, "SELECT tm_row(id, site_frame_id) FROM stack", take_site, r);
	if (!status)
		status = tm_database_each(
			r->d,
			"SELECT tm_row(heap_id, stack_id, process_peak_bytes, peak_bytes, live_at_exit_bytes, allocated_bytes)"
			" FROM site_total",
			take_key, &c);
	if (!status) weigh(r, &c);
	if (!status) status = pick_keys(r, &c);
	if (!status) status = fold_small(r, &c);
	tm_array_release(&c.rows);
	return status;
}

/* --- names --- */

static int add_name(struct tm_report *r, enum tm_report_by by, const char *name) {
	char **slot = tm_array_push(&r->by[by].names);
	return slot && (*slot = strdup(name ? name : "?")) ? 0 : no_memory(r);
}

static int take_name(struct tm_report *r, sqlite3_stmt *s, void *context) {
	return add_name(r, *(enum tm_report_by *)context, (const char *)sqlite3_column_text(s, 0));
}

static int by_name(const void *a, const void *b) {
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Group 0 stays "other"; the others are sorted, so that a name can be found. */
static void sort_names(struct tm_report *r, enum tm_report_by by) {
	qsort(r->by[by].names.items + 1, r->by[by].names.count - 1, sizeof(char *), by_name);
}

static uint16_t find_name(const struct tm_report *r, enum tm_report_by by, const char *name) {
	if (!name || r->by[by].names.count < 2) return 0;
	char **found = bsearch(&name, r->by[by].names.items + 1, r->by[by].names.count - 1, sizeof(char *), by_name);
	return found ? (uint16_t)(found - r->by[by].names.items) : 0;
}

/* A name of a frame's function or library, and what it holds. */
struct held_name {
	char *name;
	double held;
	size_t number; /* it came as this one */
};

/* Names of equal text, which are one: the sorted items from `first` on. */
struct held_run {
	size_t first, end;
	double held;
};

struct held_names {
	struct tm_report *r;
	const double *of_frame;
	TM_ARRAY(struct held_name) items;
	TM_ARRAY(struct held_run) runs;
	struct tm_id_map modules; /* libraries: module, or one of those below -> number + 1 */
	uint32_t *item_of_frame;  /* number + 1; 0: nothing is held there */
	uint16_t *group_of_item;
};

static int add_item(struct held_names *names, const char *text, double held) {
	struct held_name *item = tm_array_push(&names->items);
	if (!item) return no_memory(names->r);
	*item = (struct held_name){ strdup(text ? text : "?"), held, names->items.count - 1 };
	return item->name ? 0 : no_memory(names->r);
}

static int take_function(void *context, sqlite3_value **row) {
	struct held_names *names = context;
	int64_t id = sqlite3_value_int64(row[0]);
	if (id < 0 || id >= names->r->stacks.frame_count || names->of_frame[id] <= 0) return 0;
	int status = add_item(names, (const char *)sqlite3_value_text(row[1]), names->of_frame[id]);
	names->item_of_frame[id] = (uint32_t)names->items.count;
	return status;
}

static int take_module(void *context, sqlite3_value **row) {
	struct held_names *names = context;
	uint64_t *number = tm_id_map_put(&names->modules, (uint64_t)sqlite3_value_int64(row[0]), 0);
	if (!number) return no_memory(names->r);
	*number = names->items.count + 1;
	return add_item(names, (const char *)sqlite3_value_text(row[1]), 0);
}

#define OF_PYTHON "-1"
#define OF_NONE "-2"
#define OF_NO_STACK "-3"

static int take_frame(void *context, sqlite3_value **row) {
	struct held_names *names = context;
	int64_t id = sqlite3_value_int64(row[0]);
	uint64_t *number = tm_id_map_find(&names->modules, (uint64_t)sqlite3_value_int64(row[1]), 0);
	if (id < 0 || id >= names->r->stacks.frame_count || !number) return 0;
	names->item_of_frame[id] = (uint32_t)*number;
	if (names->of_frame[id] > 0) names->items.items[*number - 1].held += names->of_frame[id];
	return 0;
}

static int read_names(struct held_names *names, enum tm_report_by by) {
	const struct tm_database *d = names->r->d;
	if (by == TM_REPORT_FUNCTION)
		return tm_database_each(
			d,
			"SELECT tm_row(id, name) FROM (SELECT frame_id AS id, text AS name FROM frame_text"
					" UNION ALL SELECT 0, '(no call stack)')",
			take_function, names);
	int status = tm_database_each(
		d,
		"SELECT tm_row(id, name) FROM (SELECT id, replace(path, rtrim(path, replace(path, '/', '')), '') AS name FROM module"
		" UNION ALL VALUES (" OF_PYTHON ", 'Python code'), (" OF_NONE ", '(unknown)'), (" OF_NO_STACK ", '(no call stack)'))",
		take_module, names);
	if (status) return status;
	return tm_database_each(d,
				"SELECT tm_row(id, module) FROM (SELECT f.id, CASE WHEN f.kind = 'python' THEN " OF_PYTHON
				" ELSE coalesce(m.id, " OF_NONE
				") END AS module FROM frame AS f LEFT JOIN module AS m ON m.id = f.module_id"
				" UNION ALL SELECT 0, " OF_NO_STACK ")",
				take_frame, names);
}

static int by_held_name(const void *a, const void *b) {
	const struct held_name *x = a, *y = b;
	int names = strcmp(x->name, y->name);
	return names ? names : (x->number > y->number) - (x->number < y->number);
}

static int more_held_first(const void *a, const void *b) {
	const struct held_run *x = a, *y = b;
	if (x->held != y->held) return x->held < y->held ? 1 : -1;
	return (x->first > y->first) - (x->first < y->first);
}

static int by_place(const void *a, const void *b) {
	const struct held_run *x = a, *y = b;
	return (x->first > y->first) - (x->first < y->first);
}

/* The names that hold most are followed, in the order of their texts. */
static int choose_names(struct held_names *names, enum tm_report_by by) {
	struct held_name *item = names->items.items;
	size_t count = names->items.count;
	int status = 0;
	if (count) qsort(item, count, sizeof(*item), by_held_name);
	for (size_t i = 0; i < count; i++) {
		bool is_same = i && strcmp(item[i - 1].name, item[i].name) == 0;
		struct held_run *run = is_same ? &names->runs.items[names->runs.count - 1] : tm_array_push(&names->runs);
		if (!run) return no_memory(names->r);
		if (!is_same) run->first = i;
		run->end = i + 1;
		run->held += item[i].held;
	}
	struct held_run *runs = names->runs.items;
	size_t chosen = 0;
	if (names->runs.count) qsort(runs, names->runs.count, sizeof(*runs), more_held_first);
	while (chosen < names->runs.count && chosen < TM_REPORT_CANDIDATES && runs[chosen].held > 0) chosen++;
	if (chosen) qsort(runs, chosen, sizeof(*runs), by_place);
	for (size_t i = 0; !status && i < chosen; i++) {
		status = add_name(names->r, by, item[runs[i].first].name);
		for (size_t k = runs[i].first; k < runs[i].end; k++) names->group_of_item[item[k].number] = (uint16_t)(i + 1);
	}
	return status;
}

static int group_stacks(struct tm_report *r, enum tm_report_by by, const double *held) {
	struct held_names names = { .r = r, .of_frame = held, .item_of_frame = calloc((size_t)r->stacks.frame_count, sizeof(uint32_t)) };
	int status = names.item_of_frame ? add_name(r, by, "other") : no_memory(r);
	if (!status) status = read_names(&names, by);
	names.group_of_item = calloc(names.items.count + 1, sizeof(uint16_t));
	if (!status) status = names.group_of_item ? choose_names(&names, by) : no_memory(r);
	for (int64_t s = 0; !status && s < r->stacks.stack_count; s++) {
		uint32_t item = names.item_of_frame[r->site_of_stack[s]];
		uint16_t group = item ? names.group_of_item[item - 1] : 0;
		if (by == TM_REPORT_FUNCTION) r->by_stack[s].function = group;
		else r->by_stack[s].library = group;
	}
	for (size_t i = 0; i < names.items.count; i++) free(names.items.items[i].name);
	tm_array_release(&names.items);
	tm_array_release(&names.runs);
	tm_id_map_release(&names.modules);
	free(names.item_of_frame);
	free(names.group_of_item);
	return status;
}

/* --- scopes --- */

struct scope_groups {
	uint16_t *of_name;
	int64_t names;
};

static int take_scope_name(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct scope_groups *g = context;
	int64_t id = sqlite3_column_int64(s, 0);
	if (id >= 0 && id < g->names) g->of_name[id] = find_name(r, TM_REPORT_SCOPE, (const char *)sqlite3_column_text(s, 1));
	return 0;
}

static int take_scope(struct tm_report *r, sqlite3_stmt *s, void *context) {
	const struct scope_groups *g = context;
	int64_t id = sqlite3_column_int64(s, 0), name = sqlite3_column_int64(s, 1);
	if (id >= 0 && id < r->scope_count && name >= 0 && name < g->names) r->group_of_scope[id] = g->of_name[name];
	return 0;
}

static int group_scopes(struct tm_report *r) {
	enum tm_report_by by = TM_REPORT_SCOPE;
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	sqlite3_str_appendall(sql, "SELECT name FROM scope_aggregate WHERE self_allocations > 0");
	tm_report_filter(sql, r, "process_id", NULL);
	sqlite3_str_appendf(sql, " GROUP BY name ORDER BY sum(self_allocated_bytes) DESC, name LIMIT %d", TM_REPORT_CANDIDATES);
	int status = add_name(r, by, "other");
	if (!status) status = tm_report_rows(r, sqlite3_str_finish(sql), take_name, &by);
	if (status) return status;
	sort_names(r, by);
	struct scope_groups g = { .names = tm_database_integer(r->d, "SELECT max(id) + 1 FROM scope_name", 1) };
	r->scope_count = tm_database_integer(r->d, "SELECT max(id) + 1 FROM scope_packed", 1);
	g.of_name = g.names > 0 ? calloc((size_t)g.names, sizeof(uint16_t)) : NULL;
	r->group_of_scope = r->scope_count > 0 ? calloc((size_t)r->scope_count, sizeof(uint16_t)) : NULL;
	if (!g.of_name || !r->group_of_scope) status = no_memory(r);
	if (!status) status = tm_report_rows(r, sqlite3_mprintf("SELECT id, text FROM scope_name"), take_scope_name, &g);
	if (!status) status = tm_report_rows(r, sqlite3_mprintf("SELECT id, name_id FROM scope_packed"), take_scope, &g);
	free(g.of_name);
	return status;
}

/* --- heaps and processes, as they come --- */

/* A rank has one process, or several: what its program forks and execs is of it, too. */
static int name_process(struct tm_report *r, sqlite3_stmt *s, void *context) {
	(void)context;
	struct tm_report_process *p = tm_report_process(r, sqlite3_column_int64(s, 0));
	char *name = NULL;
	if (!p || r->by[TM_REPORT_PROCESS].names.count > TM_REPORT_RANKS) return 0;
	const char *exe = (const char *)sqlite3_column_text(s, 1);
	const char *world = (const char *)sqlite3_column_text(s, 3); /* "@WORLD" where there are two of them */
	if (!exe || !*exe) exe = "process";
	if (!world) world = "";
	int n = p->rank < 0 ? asprintf(&name, "%s (pid %lld)", exe, (long long)p->pid)
		: sqlite3_column_int(s, 2) == 1
			? asprintf(&name, "rank %lld%s", (long long)p->rank, world)
			: asprintf(&name, "rank %lld%s, %s (pid %lld)", (long long)p->rank, world, exe, (long long)p->pid);
	if (n < 0) return no_memory(r);
	p->group = (uint32_t)r->by[TM_REPORT_PROCESS].names.count;
	int status = add_name(r, TM_REPORT_PROCESS, name);
	free(name);
	return status;
}

static int group_others(struct tm_report *r) {
	int status = add_name(r, TM_REPORT_HEAP, "other");
	for (size_t i = 0; !status && i < r->heap_names.count; i++) status = add_name(r, TM_REPORT_HEAP, r->heap_names.items[i]);
	if (!status) status = add_name(r, TM_REPORT_PROCESS, "other");
	if (status) return status;
	return tm_report_rows(
		r,
		sqlite3_mprintf(
			"SELECT p.id, replace(p.exe, rtrim(p.exe, replace(p.exe, '/', '')), ''), count(*) OVER (PARTITION BY p.rank, p.world),"
			" iif(%d, '@' || p.world, '') FROM process AS p"
			" LEFT JOIN heap_total AS k ON k.process_id = p.id AND k.heap_id = 0 ORDER BY k.peak_bytes DESC, p.id",
			r->d->worlds > 1),
		name_process, NULL);
}

int tm_report_choose(struct tm_report *r) {
	double *held = calloc((size_t)r->stacks.frame_count, sizeof(*held));
	r->by_stack = tm_table_new((size_t)r->stacks.stack_count, sizeof(*r->by_stack));
	int status = held && r->by_stack ? choose_keys(r, held) : no_memory(r);
	if (!status) status = group_stacks(r, TM_REPORT_FUNCTION, held);
	if (!status) status = group_stacks(r, TM_REPORT_LIBRARY, held);
	if (!status) status = group_scopes(r);
	if (!status) status = group_others(r);
	free(held);
	return status;
}
