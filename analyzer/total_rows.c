/* total_rows.c - what import added up, as rows: totals of heaps, timelines, gaps, snapshots; see import_rows.h. */
#include "import_rows.h"
#include "times.h"

#include <stdio.h>

struct total_writer {
	const struct tm_import_rows *w;
	const struct tm_replay *r;
	struct tm_store *store;
	sqlite3_stmt *heap_total, *timeline, *snapshot;
};

static void prepare_totals(struct total_writer *x) {
	x->heap_total = tm_store_prepare(
		x->store, "INSERT INTO heap_total(process_id, heap_id, allocations, allocated_bytes, frees, freed_bytes, temporary,"
			  "temporary_bytes, peak_ns, peak_bytes, peak_count, live_at_exit_bytes, live_at_exit_count, live_at_end_bytes,"
			  "live_at_end_count) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
	x->timeline = tm_store_prepare(x->store,
				       "INSERT INTO timeline(process_id, heap_id, ts_ns, live_bytes, live_count) VALUES(?,?,?,?,?)");
	x->snapshot = tm_store_prepare(x->store,
				       "INSERT INTO snapshot(id, process_id, label, ts_ns, heap_id, live_bytes, live_count, detailed)"
				       "VALUES(?,?,?,?,?,?,?,?)");
}

static void finalize_totals(struct total_writer *x) {
	sqlite3_stmt *const all[] = { x->heap_total, x->timeline, x->snapshot };
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) sqlite3_finalize(all[i]);
}

static uint64_t process_id(const struct total_writer *x, const struct tm_ledger *l) {
	return x->r->bases.process + l->process;
}
static uint64_t shifted(const struct total_writer *x, uint64_t ns) {
	return ns + x->r->clock_offset_ns;
}

/* --- one heap --- */

static void write_heap_total(struct total_writer *x, const struct tm_account *a) {
	struct tm_amount allocated = tm_whole_amount(a, a->allocated), gone = tm_freed_amount(a, a->allocated, a->level.live, a->splits),
			 temporary = tm_whole_amount(a, a->temporary);
	struct tm_amount peak = tm_whole_amount(a, a->level.peak), at_exit = tm_whole_amount(a, a->at_exit),
			 live = tm_whole_amount(a, a->level.live);
	tm_store_row(x->store, x->heap_total, "nnnnnnnnnnnnnnn", process_id(x, a->ledger), a->id, allocated.count, allocated.bytes,
		     gone.count, gone.bytes, temporary.count, temporary.bytes, shifted(x, a->level.peak_ns), peak.bytes, peak.count,
		     at_exit.bytes, at_exit.count, live.bytes, live.count);
}

/* --- snapshots --- */

static void write_snapshot(struct total_writer *x, const struct tm_snapshot_row *s, uint64_t id, struct tm_text label) {
	struct tm_amount live = tm_whole_amount(s->account, s->live);
	tm_store_row(x->store, x->snapshot, "nntnnnnn", id, process_id(x, s->account->ledger), label, shifted(x, s->ns), s->account->id,
		     live.bytes, live.count, (uint64_t)s->detailed);
}

/* Of a mark's name, or of a snapshot's label; a baseline has its own. */
static void put_prefix(struct tm_bytes *label, const struct tm_mark_row *mark) {
	const char *prefix = mark->op == TM_OP_MARK ? "mark:" : mark->op == TM_OP_SNAPSHOT ? tm_label_prefix(mark->name.data, mark->name.size) : "";
	tm_put_raw(label, prefix, strlen(prefix));
}

static void write_snapshots(struct total_writer *x) {
	struct tm_bytes label = TM_BYTES_INIT;
	for (size_t i = 0; i < x->w->snapshots.count && !x->store->failed; i++) {
		const struct tm_snapshot_row *s = &x->w->snapshots.items[i];
		tm_bytes_clear(&label);
		if (!s->label) put_prefix(&label, &x->r->marks.items[s->mark]);
		if (!s->label) tm_put_raw(&label, x->r->marks.items[s->mark].name.data, x->r->marks.items[s->mark].name.size);
		if (label.failed) tm_store_fail(x->store, "out of memory");
		else
			write_snapshot(x, s, x->r->bases.snapshot + i + 1,
				       s->label ? tm_text_of(s->label) : (struct tm_text){ (const char *)label.data, label.size });
	}
	tm_bytes_release(&label);
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
	uint64_t end_ns = tm_process_end_ns(x->r, l->process), stopped_ns = tm_replay_stopped_ns(x->r);
	struct tm_point begin = t->before, end = { stopped_ns < end_ns ? stopped_ns : end_ns, level->live.bytes, level->live.count };
	/* Of one that ended before a ring's window it is known what it held then. */
	if (begin.ns > end.ns && t->known_ns > t->start_ns && end.count) begin = end;
	bool has_begin = !n || points[0].ns > begin.ns, has_end = (n ? points[n - 1].ns : begin.ns) < end.ns;
	for (size_t i = 0; i < n + 2 && begin.ns <= end.ns; i++) {
		if ((i == 0 && !has_begin) || (i == n + 1 && !has_end)) continue;
		struct tm_point p = i == 0 ? begin : i <= n ? points[i - 1] : end;
		uint64_t bytes = (p.bytes + (((uint64_t)1 << l->scale.bytes_shift) >> 1)) >> l->scale.bytes_shift;
		uint64_t count = (p.count + (((uint64_t)1 << l->scale.count_shift) >> 1)) >> l->scale.count_shift;
		tm_store_row(x->store, x->timeline, "nnnnn", process_id(x, l), heap_id, shifted(x, p.ns), bytes, count);
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
	if (!a->allocated.count) return; /* a heap that was never used */
	write_heap_total(x, a);
	write_timeline(x, a->ledger, a->id, &a->level);
}

/* The process over its root heaps; amounts that are kept by heap are added up. */
static void write_process(struct total_writer *x, const struct tm_ledger *l) {
	struct tm_amount allocated = { 0, 0 }, gone = allocated, temporary = allocated, at_exit = allocated, live = allocated;
	struct tm_account scale = { .ledger = (struct tm_ledger *)(uintptr_t)l };
	struct tm_amount peak = tm_whole_amount(&scale, l->level.peak);
	for (size_t i = 0; i < l->accounts.count; i++) {
		const struct tm_account *a = l->accounts.items[i];
		const struct tm_amount parts[] = { tm_whole_amount(a, a->allocated),
						   tm_freed_amount(a, a->allocated, a->level.live, a->splits),
						   tm_whole_amount(a, a->temporary), tm_whole_amount(a, a->at_exit),
						   tm_whole_amount(a, a->level.live) };
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
	struct total_writer x = { .w = w, .r = w->replay, .store = w->store };
	prepare_totals(&x);
	for (size_t i = 0; i < x.r->catalog->processes.count && !x.store->failed; i++) {
		const struct tm_ledger *l = &x.r->ledgers[i];
		if (!x.r->catalog->processes.items[i].defined) continue;
		/* What could not be recorded is unknown, and not nothing. */
		if (l->accounts.count || !(x.r->catalog->processes.items[i].flags & TM_PROCESS_UNRECORDED)) write_process(&x, l);
		for (size_t k = 0; k < l->accounts.count; k++) write_account(&x, l->accounts.items[k]);
	}
	write_snapshots(&x);
	write_gaps(&x);
	finalize_totals(&x);
}
