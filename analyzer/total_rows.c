/* total_rows.c - what import added up, as rows: totals of heaps and sites, functions, timelines, gaps, snapshots; see import_rows.h. */
#include "function_totals.h"
#include "import_rows.h"

#include <stdio.h>

struct total_writer {
	const struct tm_import_rows *w;
	const struct tm_replay *r;
	struct tm_store *store;
	sqlite3_stmt *heap_total, *site_total, *function, *timeline, *snapshot, *snapshot_stack, *scope;
	struct tm_function_totals functions;
	const struct tm_site **sites; /* of the account being written, by stack */
	size_t site_count;
	uint64_t next_snapshot; /* the id given last */
};

static void prepare_totals(struct total_writer *x) {
	x->heap_total = tm_store_prepare(
		x->store, "INSERT INTO heap_total(process_id, heap_id, allocations, allocated_bytes, frees, freed_bytes, temporary,"
			  "temporary_bytes, peak_ns, peak_bytes, peak_count, live_at_exit_bytes, live_at_exit_count, live_at_end_bytes,"
			  "live_at_end_count) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
	x->site_total = tm_store_prepare(
		x->store, "INSERT INTO site_total(process_id, heap_id, stack_id, allocations, allocated_bytes, frees, freed_bytes,"
			  "temporary, temporary_bytes, peak_bytes, peak_count, process_peak_bytes, process_peak_count, live_at_exit_bytes,"
			  "live_at_exit_count, live_at_end_bytes, live_at_end_count) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
	x->function = tm_store_prepare(
		x->store, "INSERT INTO function_aggregate(process_id, heap_id, function, self_bytes, total_bytes, self_count, total_count)"
			  "VALUES(?,?,?,?,?,?,?)");
	x->timeline = tm_store_prepare(x->store,
				       "INSERT INTO timeline(process_id, heap_id, ts_ns, live_bytes, live_count) VALUES(?,?,?,?,?)");
	x->snapshot = tm_store_prepare(x->store,
				       "INSERT INTO snapshot(id, process_id, label, ts_ns, heap_id, live_bytes, live_count, detailed)"
				       "VALUES(?,?,?,?,?,?,?,?)");
	x->snapshot_stack = tm_store_prepare(x->store,
					     "INSERT INTO snapshot_stack(snapshot_id, stack_id, live_bytes, live_count) VALUES(?,?,?,?)");
	x->scope = tm_store_prepare(
		x->store,
		"INSERT INTO scope_aggregate(process_id, heap_id, name, self_allocated_bytes, total_allocated_bytes,"
		"self_freed_bytes, total_freed_bytes, self_allocations, total_allocations, self_frees, total_frees, own_freed_bytes,"
		"retained_bytes, peak_bytes, peak_growth_bytes, peak_own_bytes)"
		"VALUES(?,?,'[unscoped]',?,?,?,?,?,?,?,?,?,?,?,?,?)");
}

static void finalize_totals(struct total_writer *x) {
	sqlite3_stmt *const all[] = { x->heap_total, x->site_total, x->function, x->timeline, x->snapshot, x->snapshot_stack, x->scope };
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) sqlite3_finalize(all[i]);
}

static uint64_t process_id(const struct total_writer *x, const struct tm_ledger *l) {
	return x->r->bases.process + l->process;
}
static uint64_t stack_id(const struct total_writer *x, uint32_t stack) {
	return stack ? x->r->bases.stack + stack : 0;
}
static uint64_t shifted(const struct total_writer *x, uint64_t ns) {
	return ns + x->r->clock_offset_ns;
}

/* In whole bytes and blocks. The difference of two rounded numbers may lie one beside the rounded difference: freed is the former. */
static struct tm_amount whole(const struct tm_account *a, struct tm_amount scaled) {
	return (struct tm_amount){ tm_scaled_bytes(a, scaled.bytes), tm_scaled_count(a, scaled.count) };
}

/* Blocks given back: parts that cuts added were never allocated but do end. */
static struct tm_amount freed(const struct tm_account *a, struct tm_amount allocated, struct tm_amount live, uint64_t splits) {
	struct tm_amount all = whole(a, (struct tm_amount){ allocated.bytes, allocated.count + splits }), left = whole(a, live);
	return (struct tm_amount){ all.bytes - left.bytes, all.count - left.count };
}

/* --- one heap --- */

static void write_heap_total(struct total_writer *x, const struct tm_account *a) {
	struct tm_amount allocated = whole(a, a->allocated), gone = freed(a, a->allocated, a->level.live, a->splits),
			 temporary = whole(a, a->temporary);
	struct tm_amount peak = whole(a, a->level.peak), at_exit = whole(a, a->at_exit), live = whole(a, a->level.live);
	tm_store_row(x->store, x->heap_total, "nnnnnnnnnnnnnnn", process_id(x, a->ledger), a->id, allocated.count, allocated.bytes,
		     gone.count, gone.bytes, temporary.count, temporary.bytes, shifted(x, a->level.peak_ns), peak.bytes, peak.count,
		     at_exit.bytes, at_exit.count, live.bytes, live.count);
	/* All of it happened outside of scopes. */
	tm_store_row(x->store, x->scope, "nnnnnnnnnnnnnnn", process_id(x, a->ledger), a->id, allocated.bytes, allocated.bytes, gone.bytes,
		     gone.bytes, allocated.count, allocated.count, gone.count, gone.count, gone.bytes, live.bytes, peak.bytes, peak.bytes,
		     peak.bytes);
}

static int compare_sites(const void *a, const void *b) {
	uint32_t x = (*(const struct tm_site *const *)a)->stack, y = (*(const struct tm_site *const *)b)->stack;
	return (x > y) - (x < y);
}

static bool sort_sites(struct total_writer *x, const struct tm_account *a) {
	free(x->sites);
	x->sites = calloc(a->sites.count + 1, sizeof *x->sites);
	x->site_count = 0;
	if (!x->sites) return false;
	for (size_t i = 0; i < a->sites.count; i++) {
		const struct tm_site *s = &a->sites.items[i];
		if (s->allocated.count) x->sites[x->site_count++] = s;
	}
	qsort(x->sites, x->site_count, sizeof *x->sites, compare_sites);
	return true;
}

static void write_site_totals(struct total_writer *x, const struct tm_account *a) {
	for (size_t i = 0; i < x->site_count; i++) {
		const struct tm_site *s = x->sites[i];
		struct tm_amount allocated = whole(a, s->allocated), gone = freed(a, s->allocated, s->live, s->splits),
				 temporary = whole(a, s->temporary);
		struct tm_amount peak = whole(a, tm_site_at_peak(a, s)), process_peak = whole(a, tm_site_at_process_peak(a, s));
		struct tm_amount at_exit = whole(a, s->at_exit), live = whole(a, s->live);
		tm_store_row(x->store, x->site_total, "nnnnnnnnnnnnnnnnn", process_id(x, a->ledger), a->id, stack_id(x, s->stack),
			     allocated.count, allocated.bytes, gone.count, gone.bytes, temporary.count, temporary.bytes, peak.bytes,
			     peak.count, process_peak.bytes, process_peak.count, at_exit.bytes, at_exit.count, live.bytes, live.count);
	}
}

static void write_functions(struct total_writer *x, const struct tm_account *a) {
	tm_function_totals_count(&x->functions, a);
	for (size_t i = 0; i < x->functions.count; i++) {
		const struct tm_function_total *f = &x->functions.totals[i];
		if (!f->total.count) continue;
		struct tm_amount self = whole(a, f->self), total = whole(a, f->total);
		struct tm_text name = i ? x->r->catalog->strings.items[i - 1] : (struct tm_text){ "", 0 };
		tm_store_row(x->store, x->function, "nnTnnnn", process_id(x, a->ledger), a->id, name, self.bytes, total.bytes, self.count,
			     total.count);
	}
}

/* --- snapshots --- */

typedef struct tm_amount site_value(const struct tm_account *a, const struct tm_site *s);

static struct tm_amount value_at_exit(const struct tm_account *a, const struct tm_site *s) {
	return (void)a, s->at_exit;
}
static struct tm_amount value_now(const struct tm_account *a, const struct tm_site *s) {
	return (void)a, s->live;
}

static uint64_t write_snapshot(struct total_writer *x, const struct tm_account *a, struct tm_text label, uint64_t ns, struct tm_amount live,
			       bool detailed) {
	struct tm_amount w = whole(a, live);
	tm_store_row(x->store, x->snapshot, "nntnnnnn", ++x->next_snapshot, process_id(x, a->ledger), label, shifted(x, ns), a->id, w.bytes,
		     w.count, (uint64_t)detailed);
	return x->next_snapshot;
}

static void write_snapshot_stack(struct total_writer *x, const struct tm_account *a, uint64_t snapshot, uint32_t stack,
				 struct tm_amount live) {
	struct tm_amount w = whole(a, live);
	if (live.bytes || live.count) tm_store_row(x->store, x->snapshot_stack, "nnnn", snapshot, stack_id(x, stack), w.bytes, w.count);
}

/* value NULL: nothing was live. */
static void write_kept_snapshot(struct total_writer *x, const struct tm_account *a, const char *label, uint64_t ns, site_value *value) {
	struct tm_amount live = { 0, 0 };
	for (size_t i = 0; value && i < x->site_count; i++) {
		struct tm_amount v = value(a, x->sites[i]);
		live.bytes += v.bytes;
		live.count += v.count;
	}
	uint64_t snapshot = write_snapshot(x, a, tm_text_of(label), ns, live, true);
	for (size_t i = 0; value && i < x->site_count; i++) write_snapshot_stack(x, a, snapshot, x->sites[i]->stack, value(a, x->sites[i]));
}

static void write_kept_snapshots(struct total_writer *x, const struct tm_account *a) {
	uint32_t process = a->ledger->process;
	write_kept_snapshot(x, a, "start", x->r->catalog->processes.items[process - 1].start_ns, NULL);
	write_kept_snapshot(x, a, "peak", a->level.peak_ns, tm_site_at_peak);
	if (a->is_root) write_kept_snapshot(x, a, "process-peak", a->ledger->level.peak_ns, tm_site_at_process_peak);
	if (a->ledger->exited) write_kept_snapshot(x, a, "exit", tm_process_exit_ns(x->r, process), value_at_exit);
	write_kept_snapshot(x, a, "end", tm_process_end_ns(x->r, process), value_now);
}

static int compare_snapshot_sites(const void *a, const void *b) {
	uint32_t x = ((const struct tm_snapshot_site *)a)->stack, y = ((const struct tm_snapshot_site *)b)->stack;
	return (x > y) - (x < y);
}

static void write_mark_snapshot(struct total_writer *x, const struct tm_mark_snapshot *s, struct tm_bytes *label) {
	const struct tm_mark_row *mark = &x->r->marks.items[s->mark];
	struct tm_snapshot_site *sites = s->count ? &x->r->snapshot_sites.items[s->first] : NULL;
	tm_bytes_clear(label);
	tm_put_raw(label, "mark:", 5);
	tm_put_raw(label, mark->name.data, mark->name.size);
	if (label->failed) {
		tm_store_fail(x->store, "out of memory");
		return;
	}
	uint64_t snapshot = write_snapshot(x, s->account, (struct tm_text){ (const char *)label->data, label->size }, mark->ns, s->live,
					   s->detailed);
	if (s->count) qsort(sites, s->count, sizeof *sites, compare_snapshot_sites);
	for (size_t i = 0; i < s->count; i++) write_snapshot_stack(x, s->account, snapshot, sites[i].stack, sites[i].live);
}

/* --- timelines and gaps --- */

static void write_timeline(struct total_writer *x, const struct tm_ledger *l, uint64_t heap_id, const struct tm_level *level) {
	const struct tm_timeline *t = &level->timeline;
	struct tm_point *points = calloc(3 * t->buckets.count + 1, sizeof *points);
	if (!points || t->failed) {
		tm_store_fail(x->store, "out of memory");
		free(points);
		return;
	}
	size_t n = tm_timeline_points(t, points);
	uint64_t end_ns = tm_process_end_ns(x->r, l->process);
	const char *kinds = "nnnnn";
	if (!n || points[0].ns > l->start_ns)
		tm_store_row(x->store, x->timeline, kinds, process_id(x, l), heap_id, shifted(x, l->start_ns), (uint64_t)0, (uint64_t)0);
	for (size_t i = 0; i <= n; i++) {
		struct tm_point p = i < n ? points[i] : (struct tm_point){ end_ns, level->live.bytes, level->live.count };
		if (i == n && (n ? points[n - 1].ns : l->start_ns) >= end_ns) break;
		uint64_t bytes = (p.bytes + (((uint64_t)1 << l->scale.bytes_shift) >> 1)) >> l->scale.bytes_shift;
		uint64_t count = (p.count + (((uint64_t)1 << l->scale.count_shift) >> 1)) >> l->scale.count_shift;
		tm_store_row(x->store, x->timeline, kinds, process_id(x, l), heap_id, shifted(x, p.ns), bytes, count);
	}
	free(points);
}

static void write_gaps(struct total_writer *x) {
	sqlite3_stmt *row = tm_store_prepare(x->store,
					     "INSERT INTO gap(process_id, ts_ns, rss_bytes, live_bytes, tool_bytes) VALUES(?,?,?,?,?)");
	for (size_t i = 0; i < x->r->gaps.count; i++) {
		const struct tm_gap *g = &x->r->gaps.items[i];
		tm_store_row(x->store, row, "nnnnN", x->r->bases.process + g->process, shifted(x, g->ns), g->rss_bytes, g->live_bytes,
			     g->tool_bytes);
	}
	sqlite3_finalize(row);
}

/* --- the whole --- */

static void write_account(struct total_writer *x, const struct tm_account *a) {
	if (!sort_sites(x, a)) {
		tm_store_fail(x->store, "out of memory");
		return;
	}
	if (!x->site_count) return; /* a heap that was never used */
	write_heap_total(x, a);
	write_site_totals(x, a);
	write_functions(x, a);
	write_kept_snapshots(x, a);
	write_timeline(x, a->ledger, a->id, &a->level);
}

/* The process over its root heaps; amounts that are kept by heap are added up. */
static void write_process(struct total_writer *x, const struct tm_ledger *l) {
	struct tm_amount allocated = { 0, 0 }, gone = allocated, temporary = allocated, at_exit = allocated, live = allocated;
	struct tm_account scale = { .ledger = (struct tm_ledger *)(uintptr_t)l };
	struct tm_amount peak = whole(&scale, l->level.peak);
	for (size_t i = 0; i < l->accounts.count; i++) {
		const struct tm_account *a = l->accounts.items[i];
		const struct tm_amount parts[] = { whole(a, a->allocated), freed(a, a->allocated, a->level.live, a->splits),
						   whole(a, a->temporary), whole(a, a->at_exit), whole(a, a->level.live) };
		struct tm_amount *const sums[] = { &allocated, &gone, &temporary, &at_exit, &live };
		for (size_t k = 0; a->is_root && k < 5; k++) {
			sums[k]->bytes += parts[k].bytes;
			sums[k]->count += parts[k].count;
		}
	}
	tm_store_row(x->store, x->heap_total, "nnnnnnnnnnnnnnn", process_id(x, l), (uint64_t)0, allocated.count, allocated.bytes,
		     gone.count, gone.bytes, temporary.count, temporary.bytes, shifted(x, l->level.peak_ns), peak.bytes, peak.count,
		     at_exit.bytes, at_exit.count, live.bytes, live.count);
	write_timeline(x, l, 0, &l->level);
}

void tm_write_total_rows(const struct tm_import_rows *w) {
	struct total_writer x = { .w = w, .r = w->replay, .store = w->store, .next_snapshot = w->replay->bases.snapshot };
	struct tm_bytes label = TM_BYTES_INIT;
	prepare_totals(&x);
	if (tm_function_totals_init(&x.functions, x.r->stacks) < 0) tm_store_fail(x.store, "out of memory");
	for (size_t i = 0; i < x.r->catalog->processes.count && !x.store->failed; i++) {
		const struct tm_ledger *l = &x.r->ledgers[i];
		if (!x.r->catalog->processes.items[i].defined) continue;
		/* What could not be recorded is unknown, and not nothing. */
		if (l->accounts.count || !(x.r->catalog->processes.items[i].flags & TM_PROCESS_UNRECORDED)) write_process(&x, l);
		for (size_t k = 0; k < l->accounts.count; k++) write_account(&x, l->accounts.items[k]);
	}
	for (size_t i = 0; i < x.r->mark_snapshots.count; i++) write_mark_snapshot(&x, &x.r->mark_snapshots.items[i], &label);
	write_gaps(&x);
	finalize_totals(&x);
	tm_function_totals_release(&x.functions);
	tm_bytes_release(&label);
	free(x.sites);
}
