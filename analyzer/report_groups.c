/* report_groups.c - picks the call stacks that the page can follow over time, and the names that its chart can stack.
 *
 * A call stack matters by the largest of its shares: of the peak, of what was live at exit, of what was allocated in all. The names of a
 * dimension are picked by what they held; more of them are followed than are shown, because what is highest over time is known only afterwards.
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

static int take_key(struct tm_report *r, sqlite3_stmt *s, void *context) {
	double *sums = context;
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
	sums += h->is_counted ? 0 : 3;
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

/* Those that are not followed add up to the last keys, one for each heap. */
static int fold_rest(struct tm_report *r, size_t all) {
	size_t shown = all < TM_REPORT_KEYS ? all : TM_REPORT_KEYS, heaps = r->heaps.count;
	if (!tm_array_reserve(&r->keys, all + heaps)) return no_memory(r);
	struct tm_report_key *rest = r->keys.items + all;
	for (size_t i = 0; i < heaps; i++) rest[i] = (struct tm_report_key){ .heap = (uint32_t)i, .is_rest = true };
	for (size_t i = shown; i < all; i++) {
		const struct tm_report_key *key = &r->keys.items[i];
		rest[key->heap].peak_bytes += key->peak_bytes;
		rest[key->heap].exit_bytes += key->exit_bytes;
		rest[key->heap].allocated_bytes += key->allocated_bytes;
	}
	memmove(r->keys.items + shown, rest, heaps * sizeof(*rest));
	for (size_t i = 0; i < heaps; i++) r->heaps.items[i].rest = (uint32_t)(shown + i);
	r->keys.count = shown + heaps;
	r->shown_keys = shown;
	for (size_t i = 0; i < shown; i++) {
		uint64_t *index = tm_id_map_put(&r->key_index, r->keys.items[i].heap, r->keys.items[i].stack);
		if (!index) return no_memory(r);
		*index = i + 1;
	}
	return 0;
}

static int choose_keys(struct tm_report *r) {
	double sums[6] = { 0 };
	char *query = sqlite3_mprintf("SELECT heap_id, stack_id, process_peak_bytes, peak_bytes, live_at_exit_bytes, allocated_bytes FROM site_total");
	int status = tm_report_rows(r, query, take_key, sums);
	if (status) return status;
	for (size_t i = 0; i < r->keys.count; i++) {
		struct tm_report_key *key = &r->keys.items[i];
		const double *of = sums + (r->heaps.items[key->heap].is_counted ? 0 : 3);
		key->weight = share(key->peak_bytes, of[0]);
		if (share(key->exit_bytes, of[1]) > key->weight) key->weight = share(key->exit_bytes, of[1]);
		if (share(key->allocated_bytes, of[2]) > key->weight) key->weight = share(key->allocated_bytes, of[2]);
	}
	if (r->keys.count) qsort(r->keys.items, r->keys.count, sizeof(*r->keys.items), heavier_first);
	return fold_rest(r, r->keys.count);
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

#define FUNCTION_LABEL "CASE WHEN f.id IS NULL THEN '(no call stack)' ELSE t.text END"
#define LIBRARY_LABEL \
	"CASE WHEN f.id IS NULL THEN '(no call stack)' WHEN f.kind = 'python' THEN 'Python code' WHEN m.path IS NULL THEN '(unknown)'" \
	" ELSE replace(m.path, rtrim(m.path, replace(m.path, '/', '')), '') END"
#define LABEL_SOURCES " LEFT JOIN module AS m ON m.id = f.module_id LEFT JOIN frame_text AS t ON t.frame_id = f.id"

static const char *const labels[TM_REPORT_DIMENSIONS] = { [TM_REPORT_FUNCTION] = FUNCTION_LABEL, [TM_REPORT_LIBRARY] = LIBRARY_LABEL };

/* Adding up by frame first keeps the texts few. */
static char *names_query(const struct tm_report *r, enum tm_report_by by) {
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	sqlite3_str_appendall(sql, "WITH held AS (SELECT s.site_frame_id AS frame_id, sum(max(v.process_peak_bytes, v.peak_bytes, v.live_at_exit_bytes)) AS bytes,"
				   " sum(v.allocated_bytes) AS allocated FROM site_total AS v LEFT JOIN stack AS s ON s.id = v.stack_id WHERE true");
	tm_report_filter(sql, r, "v.process_id", NULL);
	sqlite3_str_appendf(sql,
			    " GROUP BY s.site_frame_id) SELECT %s FROM held AS v LEFT JOIN frame AS f ON f.id = v.frame_id" LABEL_SOURCES
			    " GROUP BY 1 ORDER BY sum(v.bytes) DESC, sum(v.allocated) DESC, 1 LIMIT %d",
			    labels[by], TM_REPORT_CANDIDATES);
	return sqlite3_str_finish(sql);
}

struct frame_groups {
	enum tm_report_by by;
	uint16_t *of_frame;
};

static int take_frame(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct frame_groups *g = context;
	int64_t id = sqlite3_column_int64(s, 0);
	if (id > 0 && id < r->stacks.frame_count) g->of_frame[id] = find_name(r, g->by, (const char *)sqlite3_column_text(s, 1));
	return 0;
}

struct stack_groups {
	const uint16_t *of_frame;
	uint16_t *of_stack;
};

static int take_site(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct stack_groups *g = context;
	int64_t id = sqlite3_column_int64(s, 0), frame = sqlite3_column_int64(s, 1);
	if (id > 0 && id < r->stacks.stack_count && frame > 0 && frame < r->stacks.frame_count) g->of_stack[id] = g->of_frame[frame];
	return 0;
}

static int group_stacks(struct tm_report *r, enum tm_report_by by, uint16_t **of_stack) {
	int status = add_name(r, by, "other");
	if (!status) status = tm_report_rows(r, names_query(r, by), take_name, &by);
	if (status) return status;
	sort_names(r, by);
	struct frame_groups frames = { by, calloc((size_t)r->stacks.frame_count, sizeof(uint16_t)) };
	*of_stack = calloc((size_t)r->stacks.stack_count, sizeof(uint16_t));
	if (!frames.of_frame || !*of_stack) status = no_memory(r);
	if (!status) {
		char *query = sqlite3_mprintf("SELECT f.id, %s FROM frame AS f" LABEL_SOURCES, labels[by]);
		struct stack_groups stacks = { frames.of_frame, *of_stack };
		status = tm_report_rows(r, query, take_frame, &frames);
		if (!status) status = tm_report_rows(r, sqlite3_mprintf("SELECT id, site_frame_id FROM stack"), take_site, &stacks);
		(*of_stack)[0] = find_name(r, by, "(no call stack)");
	}
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

static int name_process(struct tm_report *r, sqlite3_stmt *s, void *context) {
	(void)context;
	struct tm_report_process *p = tm_report_process(r, sqlite3_column_int64(s, 0));
	char *name = NULL;
	if (!p || r->by[TM_REPORT_PROCESS].names.count > TM_REPORT_RANKS) return 0;
	const char *exe = (const char *)sqlite3_column_text(s, 1);
	int n = p->rank >= 0 ? asprintf(&name, "rank %lld", (long long)p->rank)
			     : asprintf(&name, "%s (pid %lld)", exe && *exe ? exe : "process", (long long)p->pid);
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
	return tm_report_rows(r,
			      sqlite3_mprintf("SELECT p.id, replace(p.exe, rtrim(p.exe, replace(p.exe, '/', '')), '') FROM process AS p"
					      " LEFT JOIN heap_total AS k ON k.process_id = p.id AND k.heap_id = 0 ORDER BY k.peak_bytes DESC, p.id"),
			      name_process, NULL);
}

int tm_report_choose(struct tm_report *r) {
	int status = choose_keys(r);
	if (!status) status = group_stacks(r, TM_REPORT_FUNCTION, &r->function_of_stack);
	if (!status) status = group_stacks(r, TM_REPORT_LIBRARY, &r->library_of_stack);
	if (!status) status = group_scopes(r);
	if (!status) status = group_others(r);
	return status;
}
