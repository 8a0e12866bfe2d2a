/* report_load.c - who is in the report, and the instants at which it adds up.
 *
 * The grid has equal steps from the first start to the last end, and besides these the instants that people look for: peaks, exits, refused
 * requests. So the page can show exactly what was live then.
 */
#include "report.h"
#include "scans.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "talk.h"

#define GRID_STEPS 240
#define GRID_EXTRA 32
#define LEVELS_KEPT 6000

static int no_memory(const struct tm_report *r) {
	return tm_fail("cannot report on '%s': out of memory", r->d->path);
}

int tm_report_rows(struct tm_report *r, char *query, int (*row)(struct tm_report *r, sqlite3_stmt *s, void *context), void *context) {
	sqlite3_stmt *statement = NULL;
	int status = tm_database_prepare(r->d, query, &statement), step = SQLITE_DONE;
	while (!status && (step = sqlite3_step(statement)) == SQLITE_ROW) status = row(r, statement, context);
	if (!status && step != SQLITE_DONE) status = tm_fail("cannot read '%s': %s", r->d->path, sqlite3_errmsg(r->d->handle));
	sqlite3_finalize(statement);
	sqlite3_free(query);
	return status;
}

void tm_report_filter(sqlite3_str *sql, const struct tm_report *r, const char *process, const char *heap) {
	const struct tm_options *o = r->o;
	tm_sql_process(sql, o, " AND", process);
	if (o->heap && heap) sqlite3_str_appendf(sql, " AND %s = %Q", heap, o->heap);
}

void tm_report_filter_each(sqlite3_str *sql, const struct tm_report *r, const char *process, const char *heap) {
	tm_report_filter(sql, r, process, r->heap_is_ours ? NULL : heap);
}

struct tm_report_process *tm_report_process(const struct tm_report *r, int64_t id) {
	uint64_t *index = tm_id_map_find(&r->process_index, (uint64_t)id, 0);
	return index ? &r->processes.items[*index - 1] : NULL;
}

struct tm_report_heap *tm_report_heap(const struct tm_report *r, int64_t id) {
	uint64_t *index = tm_id_map_find(&r->heap_index, (uint64_t)id, 0);
	return index ? &r->heaps.items[*index - 1] : NULL;
}

static int take_process(struct tm_report *r, sqlite3_stmt *s, void *context) {
	(void)context;
	struct tm_report_process *p = tm_array_push(&r->processes);
	uint64_t *index = p ? tm_id_map_put(&r->process_index, (uint64_t)sqlite3_column_int64(s, 0), 0) : NULL;
	if (!index) return no_memory(r);
	*index = r->processes.count;
	*p = (struct tm_report_process){ .id = sqlite3_column_int64(s, 0),
					 .pid = sqlite3_column_int64(s, 1),
					 .rank = sqlite3_column_type(s, 2) == SQLITE_NULL ? -1 : sqlite3_column_int64(s, 2),
					 .start_ns = sqlite3_column_int64(s, 3),
					 .exit_ns = sqlite3_column_int64(s, 4),
					 .end_ns = sqlite3_column_int64(s, 5),
					 .has_exit = sqlite3_column_int(s, 6),
					 .peak_ns = sqlite3_column_int64(s, 7),
					 .peak_bytes = sqlite3_column_int64(s, 8) };
	return 0;
}

static int load_processes(struct tm_report *r) {
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	sqlite3_str_appendf(
		sql,
		"SELECT p.id, p.pid, p.rank, p.start_ns, p.exit_ns, p.end_ns, p.end_kind <> 'exec', coalesce(k.peak_ns, p.start_ns),"
		" coalesce(k.peak_bytes, 0) FROM process AS p LEFT JOIN heap_summary AS k ON k.process_id = p.id AND k.heap IS %Q"
		" WHERE p.id IS NOT NULL",
		r->o->heap);
	tm_report_filter(sql, r, "p.id", NULL);
	sqlite3_str_appendall(sql, " ORDER BY 9 DESC, p.id");
	return tm_report_rows(r, sqlite3_str_finish(sql), take_process, NULL);
}

static int take_heap(struct tm_report *r, sqlite3_stmt *s, void *context) {
	(void)context;
	uint64_t *process = tm_id_map_find(&r->process_index, (uint64_t)sqlite3_column_int64(s, 1), 0);
	const char *name = (const char *)sqlite3_column_text(s, 2);
	size_t n = 0;
	if (!process || !name) return 0;
	while (n < r->heap_names.count && strcmp(r->heap_names.items[n], name) != 0) n++;
	if (n == r->heap_names.count) {
		char **slot = tm_array_push(&r->heap_names);
		if (!slot || !(*slot = strdup(name))) return no_memory(r);
	}
	struct tm_report_heap *h = tm_array_push(&r->heaps);
	uint64_t *index = h ? tm_id_map_put(&r->heap_index, (uint64_t)sqlite3_column_int64(s, 0), 0) : NULL;
	if (!index) return no_memory(r);
	*index = r->heaps.count;
	*h = (struct tm_report_heap){ .id = sqlite3_column_int64(s, 0),
				      .process = (uint32_t)(*process - 1),
				      .name = (uint32_t)n,
				      .is_root = sqlite3_column_int(s, 3),
				      .is_counted = r->o->heap ? !strcmp(name, r->o->heap) : sqlite3_column_int(s, 3) };
	return 0;
}

static int load_heaps(struct tm_report *r) {
	sqlite3_str *sql = sqlite3_str_new(r->d->handle);
	sqlite3_str_appendall(sql, "SELECT id, process_id, name, is_root FROM heap WHERE true");
	tm_report_filter_each(sql, r, "process_id", "name");
	sqlite3_str_appendall(sql, " ORDER BY is_root DESC, id");
	return tm_report_rows(r, sqlite3_str_finish(sql), take_heap, NULL);
}

/* --- live bytes over time --- */

struct summing {
	int64_t *of_process, sum;
};

static int take_level(struct tm_report *r, sqlite3_stmt *s, void *context) {
	struct summing *now = context;
	uint64_t *process = tm_id_map_find(&r->process_index, (uint64_t)sqlite3_column_int64(s, 0), 0);
	if (!process) return 0;
	int64_t ns = sqlite3_column_int64(s, 1), bytes = sqlite3_column_int64(s, 2);
	now->sum += bytes - now->of_process[*process - 1];
	now->of_process[*process - 1] = bytes;
	struct tm_report_level *last = r->total.count ? &r->total.items[r->total.count - 1] : NULL;
	if (last && last->ns == ns && r->processes.count > 1) {
		last->bytes = now->sum;
		return 0;
	}
	struct tm_report_level *level = tm_array_push(&r->total);
	if (!level) return no_memory(r);
	*level = (struct tm_report_level){ ns, now->sum };
	return 0;
}

/* Of each of many equal stretches the lowest, the highest and the last level stay, in the order of time. */
static void thin_levels(struct tm_report *r, int64_t first_ns, int64_t last_ns) {
	size_t n = 0, count = r->total.count, parts = LEVELS_KEPT / 3;
	struct tm_report_level *level = r->total.items;
	double scale = last_ns > first_ns ? (double)parts / (double)(last_ns - first_ns) : 0;
	if (count <= LEVELS_KEPT) return;
	for (size_t i = 0; i < count;) {
		size_t part = (size_t)((double)(level[i].ns - first_ns) * scale), low = i, high = i, end = i;
		for (; end < count && (size_t)((double)(level[end].ns - first_ns) * scale) == part; end++) {
			if (level[end].bytes < level[low].bytes) low = end;
			if (level[end].bytes > level[high].bytes) high = end;
		}
		size_t one = low < high ? low : high, other = low < high ? high : low;
		struct tm_report_level kept[] = { level[one], level[other], level[end - 1] };
		level[n++] = kept[0];
		if (other != one) level[n++] = kept[1];
		if (end - 1 != other) level[n++] = kept[2];
		i = end;
	}
	r->total.count = n;
}

static int load_levels(struct tm_report *r, int64_t first_ns, int64_t last_ns) {
	struct summing now = { calloc(r->processes.count + 1, sizeof(int64_t)), 0 };
	if (!now.of_process) return no_memory(r);
	char *query = sqlite3_mprintf("SELECT process_id, ts_ns, live_bytes, 0 FROM memory_timeline WHERE heap IS %Q"
				      " UNION ALL SELECT id, end_ns + 1, 0, 1 FROM process WHERE end_ns < %lld ORDER BY 2, 4",
				      r->o->heap, (long long)last_ns);
	int status = tm_report_rows(r, query, take_level, &now);
	free(now.of_process);
	if (!status) thin_levels(r, first_ns, last_ns);
	return status;
}

/* --- the grid --- */

static int compare_times(const void *a, const void *b) {
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

static int put_time(struct tm_report *r, int64_t ns) {
	int64_t *slot = tm_array_push(&r->grid);
	if (!slot) return no_memory(r);
	*slot = ns;
	return 0;
}

static int take_oom(struct tm_report *r, sqlite3_stmt *s, void *context) {
	(void)context;
	return put_time(r, sqlite3_column_int64(s, 0));
}

static int make_grid(struct tm_report *r, int64_t first, int64_t last) {
	int status = 0;
	size_t highest = 0;
	for (int i = 0; !status && i <= GRID_STEPS; i++) {
		double share = (double)i / GRID_STEPS;
		status = put_time(r, i == GRID_STEPS ? last : first + (int64_t)((double)(last - first) * share));
	}
	for (size_t i = 0; !status && i < r->processes.count && i < GRID_EXTRA / 4; i++) {
		status = put_time(r, r->processes.items[i].peak_ns);
		if (!status) status = put_time(r, r->processes.items[i].exit_ns);
	}
	for (size_t i = 1; i < r->total.count; i++) {
		if (r->total.items[i].bytes > r->total.items[highest].bytes) highest = i;
	}
	if (!status && r->total.count) status = put_time(r, r->total.items[highest].ns);
	if (!status) status = tm_report_rows(r, sqlite3_mprintf("SELECT ts_ns FROM oom ORDER BY ts_ns LIMIT 8"), take_oom, NULL);
	if (status) return status;
	qsort(r->grid.items, r->grid.count, sizeof(int64_t), compare_times);
	size_t n = 0;
	for (size_t i = 0; i < r->grid.count; i++) {
		int64_t ns = r->grid.items[i];
		if (ns >= first && ns <= last && (!n || ns != r->grid.items[n - 1])) r->grid.items[n++] = ns;
	}
	r->grid.count = n;
	return 0;
}

size_t tm_report_point(const struct tm_report *r, int64_t ns) {
	size_t n = r->grid.count;
	int64_t first = r->grid.items[0], last = r->grid.items[n - 1];
	if (ns <= first) return 0;
	if (ns >= last) return n - 1;
	/* The points are nearly equal steps apart, so that a guess is nearly right. */
	size_t i = (size_t)((double)(ns - first) / (double)(last - first) * (double)(n - 1));
	while (i && r->grid.items[i - 1] >= ns) i--;
	while (r->grid.items[i] < ns) i++;
	return i;
}

int tm_report_load(struct tm_report *r) {
	int64_t first = INT64_MAX, last = INT64_MIN;
	int status = load_processes(r);
	if (!status) status = load_heaps(r);
	if (status) return status;
	for (size_t i = 0; i < r->processes.count; i++) {
		const struct tm_report_process *p = &r->processes.items[i];
		if (p->start_ns < first) first = p->start_ns;
		if (p->end_ns > last) last = p->end_ns;
	}
	if (!r->processes.count) first = last = 0;
	if (last < first) return tm_fail("cannot report on '%s': its times are damaged", r->d->path);
	status = load_levels(r, first, last);
	if (!status) status = make_grid(r, first, last);
	/* Of each process some levels are kept, at times of its own, so that their sum may have peaks that never were: it only chose an
	 * instant of the grid. */
	if (r->processes.count > 1) r->total.count = 0;
	if (!status) status = tm_stack_frames_load(&r->stacks, r->d);
	for (size_t i = 0; !status && i < r->processes.count; i++) {
		struct tm_report_process *p = &r->processes.items[i];
		for (p->end_point = 0; p->end_point < r->grid.count && r->grid.items[p->end_point] <= p->end_ns;) p->end_point++;
	}
	return status;
}

void tm_report_release(struct tm_report *r) {
	for (size_t i = 0; i < r->heap_names.count; i++) free(r->heap_names.items[i]);
	for (int by = 0; by < TM_REPORT_DIMENSIONS; by++) {
		for (size_t i = 0; i < r->by[by].names.count; i++) free(r->by[by].names.items[i]);
		tm_array_release(&r->by[by].names);
		free(r->by[by].change);
	}
	tm_array_release(&r->processes);
	tm_array_release(&r->heaps);
	tm_array_release(&r->heap_names);
	tm_array_release(&r->total);
	tm_array_release(&r->grid);
	tm_array_release(&r->keys);
	tm_id_map_release(&r->process_index);
	tm_id_map_release(&r->heap_index);
	tm_id_map_release(&r->key_index);
	tm_stack_frames_release(&r->stacks);
	free(r->site_of_stack);
	free(r->rest_of_stack);
	free(r->peak_of_site);
	free(r->by_stack);
	free(r->group_of_scope);
	free(r->made);
	free(r->freed);
	free(r->kept);
}
