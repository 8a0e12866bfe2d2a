/* level_rows.c - checkpoints, histograms, and the peaks of threads, ranks and devices, as rows; see import_rows.h. */
#include "import_rows.h"

/* --- checkpoints: the ranges into a bulk table, the instants as plain rows --- */

struct range_writer {
	struct tm_bulk_table *table;
	uint64_t checkpoint_id;
};

static void write_range(void *context, uint64_t first, uint64_t last) {
	struct range_writer *x = context;
	tm_bulk_number(x->table, x->checkpoint_id);
	tm_bulk_number(x->table, first);
	tm_bulk_number(x->table, last - first);
	tm_bulk_row(x->table, 0);
}

static void write_stacks(struct tm_import_rows *w, uint64_t checkpoint_id) {
	struct tm_bulk_table *t = &w->store->tables[TM_TABLE_CHECKPOINT_STACK];
	for (size_t i = 0; i < w->replay->checkpoints.stacks.count; i++) {
		const struct tm_checkpoint_stack *s = &w->replay->checkpoints.stacks.items[i];
		tm_bulk_number(t, checkpoint_id);
		tm_bulk_number(t, s->heap);
		tm_bulk_number(t, s->stack ? w->replay->bases.stack + s->stack : 0);
		tm_bulk_number(t, s->bytes);
		tm_bulk_number(t, s->count);
		tm_bulk_row(t, 0);
	}
}

static bool has_stacks(const struct tm_checkpoint *p) {
	return p->has_stacks && !p->inexact;
}

void tm_write_checkpoint_ranges(struct tm_import_rows *w) {
	struct tm_checkpoints *c = &w->replay->checkpoints;
	struct range_writer x = { .table = &w->store->tables[TM_TABLE_CHECKPOINT_LIVE] };
	for (size_t i = 0; i < c->items.count && !c->error; i++) {
		x.checkpoint_id = w->replay->bases.checkpoint + i + 1;
		tm_checkpoints_each(c, i, write_range, &x);
		if (!has_stacks(&c->items.items[i])) continue;
		tm_checkpoints_read_stacks(c, i);
		write_stacks(w, x.checkpoint_id);
	}
	if (c->error) tm_store_fail(w->store, "cannot use a scratch file beside the database: %s", strerror(c->error));
}

static void write_checkpoints(const struct tm_import_rows *w) {
	const struct tm_checkpoints *c = &w->replay->checkpoints;
	sqlite3_stmt *row = tm_store_prepare(w->store,
					     "INSERT INTO checkpoint(id, trace_id, ts_ns, allocation_id, has_stacks) VALUES(?,?,?,?,?)");
	for (size_t i = 0; i < c->items.count; i++)
		tm_store_row(w->store, row, "nnnnn", w->replay->bases.checkpoint + i + 1, w->trace_id,
			     c->items.items[i].ns + w->replay->clock_offset_ns, c->items.items[i].row,
			     (uint64_t)has_stacks(&c->items.items[i]));
	sqlite3_finalize(row);
}

/* --- histograms --- */

static uint64_t from_of(unsigned bucket) {
	return bucket ? (uint64_t)1 << (bucket - 1) : 0;
}

/* The last bucket has no end that SQL could hold. */
static uint64_t to_of(unsigned bucket) {
	return bucket ? bucket < 63 ? ((uint64_t)1 << bucket) - 1 : INT64_MAX : 0;
}

static void write_histogram(const struct tm_import_rows *w, sqlite3_stmt *row, const struct tm_account *a,
			    const struct tm_amount *buckets) {
	for (unsigned i = 0; i < TM_HISTOGRAM_BUCKETS; i++) {
		struct tm_amount amount = tm_whole_amount(a, buckets[i]);
		if (amount.count)
			tm_store_row(w->store, row, "nnnnnn", w->replay->bases.process + a->ledger->process, a->id, from_of(i), to_of(i),
				     amount.count, amount.bytes);
	}
}

static void write_histograms(const struct tm_import_rows *w) {
	sqlite3_stmt *
		sizes = tm_store_prepare(
		       w->store,
		       "INSERT INTO size_bucket(process_id, heap_id, from_bytes, to_bytes, allocations, allocated_bytes) VALUES(?,?,?,?,?,?)"),
	       *lifetimes = tm_store_prepare(
		       w->store,
		       "INSERT INTO lifetime_bucket(process_id, heap_id, from_ns, to_ns, frees, freed_bytes) VALUES(?,?,?,?,?,?)");
	for (size_t i = 0; i < w->replay->catalog->processes.count; i++) {
		const struct tm_ledger *l = &w->replay->ledgers[i];
		for (size_t k = 0; k < l->accounts.count; k++) {
			const struct tm_account *a = l->accounts.items[k];
			write_histogram(w, sizes, a, a->histograms->sizes);
			write_histogram(w, lifetimes, a, a->histograms->lifetimes);
		}
	}
	sqlite3_finalize(sizes);
	sqlite3_finalize(lifetimes);
}

/* --- levels --- */

struct level_writer {
	const struct tm_import_rows *w;
	sqlite3_stmt *row;
	struct tm_account scale; /* any account of the trace scales alike */
};

static void write_high(struct level_writer *x, const char *kind, uint64_t number, struct tm_text identity, const struct tm_high *h,
		       struct tm_amount at_end) {
	struct tm_amount allocated = tm_whole_amount(&x->scale, h->allocated), peak = tm_whole_amount(&x->scale, h->peak),
			 live = tm_whole_amount(&x->scale, at_end);
	if (!h->allocated.count) return;
	tm_store_row(x->w->store, x->row, "nzntnnnnnnn", x->w->trace_id, kind, number, identity, allocated.count, allocated.bytes,
		     h->peak_ns + x->w->replay->clock_offset_ns, peak.bytes, peak.count, live.bytes, live.count);
}

static void write_levels(const struct tm_import_rows *w) {
	const struct tm_replay *r = w->replay;
	struct level_writer x = { .w = w };
	if (!r->catalog->processes.count) return;
	x.scale.ledger = &r->ledgers[0];
	x.row = tm_store_prepare(
		w->store,
		"INSERT INTO level_total(trace_id, kind, number, identity, allocations, allocated_bytes, peak_ns, peak_bytes, peak_count,"
		"live_at_end_bytes, live_at_end_count) VALUES(?,?,?,?,?,?,?,?,?,?,?)");
	for (size_t i = 0; i < r->catalog->threads.count; i++)
		write_high(&x, "thread", r->bases.thread + i + 1, tm_text_of(""), &r->thread_highs[i], r->thread_highs[i].live);
	for (size_t i = 0; i < r->shared_highs.count; i++) {
		const struct tm_shared_high *s = &r->shared_highs.items[i];
		char text[33];
		struct tm_text identity = s->is_device ? tm_gpu_uuid_text(s->identity, text) : s->identity;
		struct tm_amount at_end = s->gone;
		tm_amount_add(&at_end, s->high.live);
		write_high(&x, s->is_device ? "device" : "rank", (uint64_t)s->number, identity, &s->high, at_end);
	}
	sqlite3_finalize(x.row);
}

void tm_write_level_rows(const struct tm_import_rows *w) {
	write_checkpoints(w);
	write_histograms(w);
	write_levels(w);
}
