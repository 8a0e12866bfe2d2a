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

/* A row of site_total that has no key of its own. */
struct small_row {
	uint32_t heap, stack;
	double weight;
};

struct choosing {
	double sums[6];
	double *held; /* by frame: bytes of the stacks whose site it is, for the names */
	const struct small_row *small;
	size_t small_count;
};

static int take_key(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct choosing *c = context;
	uint64_t *heap = tm_id_map_find(&r->heap_index, (uint64_t)sqlite3_column_int64(s, 0), 0);
	if (!heap) return 0;
	const struct tm_report_heap *h = &r->heaps.items[*heap - 1];
	bool of_process = h->is_root && !r->o->heap;
	struct tm_report_key *key = tm_array_push(&r->keys);
	if (!key) return no_memory(r);
	*key = (struct tm_report_key){ .heap = (uint32_t)(*heap - 1),
				       .stack = tm_stack_frames_check(&r->stacks, sqlite3_column_int64(s, 1)),
				       .peak_bytes = sqlite3_column_int64(s, of_process ? 2 : 3),
				       .exit_bytes = sqlite3_column_int64(s, 4),
				       .allocated_bytes = sqlite3_column_int64(s, 5) };
	double *sums = c->sums + (h->is_counted ? 0 : 3);
	sums[0] += (double)key->peak_bytes;
	sums[1] += (double)key->exit_bytes;
	sums[2] += (double)key->allocated_bytes;
	return 0;
}

static double share(int64_t part, double all) {
	return all > 0 ? (double)part / all : 0;
}

static int heavier_first(const void *a, const void *b) {
	const struct tm_report_key *x = a, *y = b;
	if (x->weight != y->weight) return x->weight < y->weight ? 1 : -1;
	if (x->heap != y->heap) return x->heap < y->heap ? -1 : 1;
	return (x->stack > y->stack) - (x->stack < y->stack);
}

static void weigh(struct tm_report *r, struct choosing *c) {
	for (size_t i = 0; i < r->keys.count; i++) {
		struct tm_report_key *key = &r->keys.items[i];
		const struct tm_report_heap *heap = &r->heaps.items[key->heap];
		const double *of = c->sums + (heap->is_counted ? 0 : 3);
		key->weight = share(key->peak_bytes, of[0]);
		if (share(key->exit_bytes, of[1]) > key->weight) key->weight = share(key->exit_bytes, of[1]);
		if (share(key->allocated_bytes, of[2]) > key->weight) key->weight = share(key->allocated_bytes, of[2]);
		if (heap->is_counted) c->held[r->site_of_stack[key->stack]] += key->weight;
	}
}

/* Sets rest_of_stack: the innermost part of each stack that has at least this weight under it, over all that have no key of their own. */
static void cut_stacks(struct tm_report *r, const struct choosing *c, double *under, double least) {
	int64_t count = r->stacks.stack_count;
	memset(under, 0, (size_t)count * sizeof(*under));
	for (size_t i = 0; i < c->small_count; i++) under[c->small[i].stack] += c->small[i].weight;
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
	for (size_t i = 0; !status && i < c->small_count; i++) {
		uint32_t heap = c->small[i].heap, stack = r->rest_of_stack[c->small[i].stack];
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

/* What is too small to be followed is cut to the part of its stack that, with others like it, is not. */
static int fold_small(struct tm_report *r, struct choosing *c) {
	size_t all = r->keys.count;
	r->shown_keys = all < TM_REPORT_KEYS ? all : TM_REPORT_KEYS;
	c->small_count = all - r->shown_keys;
	struct tm_report_key *rows = calloc(c->small_count + 1, sizeof(*rows));
	struct small_row *small = calloc(c->small_count + 1, sizeof(*small));
	double *under = calloc((size_t)r->stacks.stack_count, sizeof(*under)), least = 0;
	int status = rows && small && under ? 0 : no_memory(r);
	for (size_t i = 0; !status && i < c->small_count; i++) {
		rows[i] = r->keys.items[r->shown_keys + i];
		small[i] = (struct small_row){ rows[i].heap, rows[i].stack, rows[i].weight };
		least += rows[i].weight / TM_REPORT_RESTS;
	}
	c->small = small;
	for (bool many = true; !status && many; least *= 1.5) {
		cut_stacks(r, c, under, least);
		status = index_keys(r);
		if (!status) status = add_rests(r, c, &many);
	}
	for (size_t i = 0; !status && i < c->small_count; i++) {
		struct tm_report_key *rest = &r->keys.items[tm_report_key_of(r, rows[i].heap, rows[i].stack)];
		rest->peak_bytes += rows[i].peak_bytes;
		rest->exit_bytes += rows[i].exit_bytes;
		rest->allocated_bytes += rows[i].allocated_bytes;
	}
	free(rows);
	free(small);
	free(under);
	return status;
}

static int take_site(struct tm_report *r, sqlite3_stmt *s, void *context) {
	(void)context;
	int64_t id = sqlite3_column_int64(s, 0), frame = sqlite3_column_int64(s, 1);
	if (id > 0 && id < r->stacks.stack_count && frame > 0 && frame < r->stacks.frame_count) r->site_of_stack[id] = (uint32_t)frame;
	return 0;
}

static int choose_keys(struct tm_report *r, double *held) {
	struct choosing c = { .held = held };
	r->site_of_stack = calloc((size_t)r->stacks.stack_count, sizeof(uint32_t));
	r->rest_of_stack = calloc((size_t)r->stacks.stack_count, sizeof(uint32_t));
	int status = r->site_of_stack && r->rest_of_stack ? 0 : no_memory(r);
	if (!status) status = tm_report_rows(r, sqlite3_mprintf("SELECT id, site_frame_id FROM stack"), take_site, NULL);
	if (!status)
		status = tm_report_rows(
			r,
			sqlite3_mprintf("SELECT heap_id, stack_id, process_peak_bytes, peak_bytes, live_at_exit_bytes, allocated_bytes "
					"FROM site_total"),
			take_key, &c);
	if (status) return status;
	weigh(r, &c);
	if (r->keys.count) qsort(r->keys.items, r->keys.count, sizeof(*r->keys.items), heavier_first);
	return fold_small(r, &c);
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

#define FUNCTION_LABEL "t.text"
#define LIBRARY_LABEL \
	"CASE WHEN f.kind = 'python' THEN 'Python code' WHEN m.path IS NULL THEN '(unknown)'" \
	" ELSE replace(m.path, rtrim(m.path, replace(m.path, '/', '')), '') END"
#define LABEL_SOURCES " LEFT JOIN module AS m ON m.id = f.module_id LEFT JOIN frame_text AS t ON t.frame_id = f.id"

static const char *const labels[TM_REPORT_DIMENSIONS] = { [TM_REPORT_FUNCTION] = FUNCTION_LABEL, [TM_REPORT_LIBRARY] = LIBRARY_LABEL };

/* What a name holds, over the frames that have it. */
struct held_name {
	char *name;
	double held;
};

struct held_names {
	const double *of_frame;
	TM_ARRAY(struct held_name) items;
};

static int take_held(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct held_names *names = context;
	int64_t id = sqlite3_column_int64(s, 0);
	const char *text = (const char *)sqlite3_column_text(s, 1);
	if (id < 0 || id >= r->stacks.frame_count || names->of_frame[id] <= 0) return 0;
	struct held_name *item = tm_array_push(&names->items);
	if (!item) return no_memory(r);
	*item = (struct held_name){ strdup(text ? text : "?"), names->of_frame[id] };
	return item->name ? 0 : no_memory(r);
}

static int by_held_name(const void *a, const void *b) {
	return strcmp(((const struct held_name *)a)->name, ((const struct held_name *)b)->name);
}

static int more_held_first(const void *a, const void *b) {
	const struct held_name *x = a, *y = b;
	if (x->held != y->held) return x->held < y->held ? 1 : -1;
	return by_held_name(a, b);
}

/* Frames of one name are one; the names that hold most are followed. */
static int add_held_names(struct tm_report *r, enum tm_report_by by, struct held_names *names) {
	struct held_name *item = names->items.items;
	size_t n = 0;
	int status = 0;
	if (names->items.count) qsort(item, names->items.count, sizeof(*item), by_held_name);
	for (size_t i = 0; i < names->items.count; i++) {
		if (n && strcmp(item[n - 1].name, item[i].name) == 0) {
			item[n - 1].held += item[i].held;
			free(item[i].name);
		} else {
			item[n++] = item[i];
		}
	}
	names->items.count = n;
	if (n) qsort(item, n, sizeof(*item), more_held_first);
	for (size_t i = 0; !status && i < n && i < TM_REPORT_CANDIDATES; i++) status = add_name(r, by, item[i].name);
	return status;
}

struct frame_groups {
	enum tm_report_by by;
	uint16_t *of_frame;
};

static int take_frame(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct frame_groups *g = context;
	int64_t id = sqlite3_column_int64(s, 0);
	if (id >= 0 && id < r->stacks.frame_count) g->of_frame[id] = find_name(r, g->by, (const char *)sqlite3_column_text(s, 1));
	return 0;
}

static char *labels_query(enum tm_report_by by) {
	return sqlite3_mprintf("SELECT f.id, %s FROM frame AS f" LABEL_SOURCES " UNION ALL SELECT 0, '(no call stack)'", labels[by]);
}

static int group_stacks(struct tm_report *r, enum tm_report_by by, const double *held, uint16_t **of_stack) {
	struct held_names names = { .of_frame = held };
	struct frame_groups frames = { by, calloc((size_t)r->stacks.frame_count, sizeof(uint16_t)) };
	*of_stack = calloc((size_t)r->stacks.stack_count, sizeof(uint16_t));
	int status = frames.of_frame && *of_stack ? add_name(r, by, "other") : no_memory(r);
	if (!status) status = tm_report_rows(r, labels_query(by), take_held, &names);
	if (!status) status = add_held_names(r, by, &names);
	if (!status) {
		sort_names(r, by);
		status = tm_report_rows(r, labels_query(by), take_frame, &frames);
	}
	for (int64_t s = 0; !status && s < r->stacks.stack_count; s++) (*of_stack)[s] = frames.of_frame[r->site_of_stack[s]];
	for (size_t i = 0; i < names.items.count; i++) free(names.items.items[i].name);
	tm_array_release(&names.items);
	free(frames.of_frame);
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
	if (!exe || !*exe) exe = "process";
	int n = p->rank < 0                     ? asprintf(&name, "%s (pid %lld)", exe, (long long)p->pid)
		: sqlite3_column_int(s, 2) == 1 ? asprintf(&name, "rank %lld", (long long)p->rank)
						: asprintf(&name, "rank %lld, %s (pid %lld)", (long long)p->rank, exe, (long long)p->pid);
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
			"SELECT p.id, replace(p.exe, rtrim(p.exe, replace(p.exe, '/', '')), ''), count(*) OVER (PARTITION BY p.rank)"
			" FROM process AS p"
			" LEFT JOIN heap_total AS k ON k.process_id = p.id AND k.heap_id = 0 ORDER BY k.peak_bytes DESC, p.id"),
		name_process, NULL);
}

int tm_report_choose(struct tm_report *r) {
	double *held = calloc((size_t)r->stacks.frame_count, sizeof(*held));
	int status = held ? choose_keys(r, held) : no_memory(r);
	if (!status) status = group_stacks(r, TM_REPORT_FUNCTION, held, &r->function_of_stack);
	if (!status) status = group_stacks(r, TM_REPORT_LIBRARY, held, &r->library_of_stack);
	if (!status) status = group_scopes(r);
	if (!status) status = group_others(r);
	free(held);
	return status;
}
