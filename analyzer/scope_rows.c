/* scope_rows.c - scopes, what happened in them, and steps, as rows; see import_rows.h and scopes.h. */
#include "import_rows.h"

#include "display_text.h"

#include <stdio.h>
#include <string.h>

#define MANY_NAMES 100000u /* different names of scopes, and */
#define DEEP 1000u         /* scopes in each other, from which on it is said */

struct scope_writer {
	struct tm_import_rows *w;
	const struct tm_replay *r;
	const struct tm_scopes *x;
	struct tm_store *store;
	TM_ARRAY(const struct tm_scope_use_record *) uses; /* of one scope, by heap */
};

static uint64_t shifted(const struct scope_writer *c, uint64_t ns) {
	return ns + c->r->clock_offset_ns;
}

/* --- the bulk tables, columns in their order --- */

static void put_text_id(struct tm_bulk_table *t, const struct scope_writer *c, uint32_t string, bool may_be_null) {
	if (string || !may_be_null) tm_bulk_number(t, c->r->bases.scope_name + string);
	else tm_bulk_null(t);
}

static void write_scope(struct scope_writer *c, uint64_t row, const struct tm_scope_record *s) {
	struct tm_bulk_table *t = &c->store->tables[TM_TABLE_SCOPE];
	tm_bulk_null(t);
	tm_bulk_number_or_null(t, s->parent ? s->parent : UINT64_MAX);
	tm_bulk_number(t, c->r->bases.process + s->process);
	tm_bulk_number(t, c->r->bases.thread + s->thread);
	put_text_id(t, c, s->name, false);
	put_text_id(t, c, s->category, true);
	tm_bulk_number(t, shifted(c, s->start_ns));
	tm_bulk_number(t, shifted(c, s->end_ns));
	tm_bulk_number(t, s->end_kind);
	tm_bulk_number(t, s->depth);
	tm_bulk_number_or_null(t, s->forward ? s->forward : UINT64_MAX);
	tm_bulk_row(t, row);
}

static void put_pair(struct tm_bulk_table *t, uint64_t self, uint64_t total) {
	tm_bulk_number(t, self);
	tm_bulk_number(t, total);
}

static void write_use(struct scope_writer *c, uint64_t scope, const struct tm_scope_use_record *u) {
	struct tm_bulk_table *t = &c->store->tables[TM_TABLE_SCOPE_INSTANCE];
	const struct tm_account *a = u->account;
	tm_bulk_number(t, scope);
	tm_bulk_number(t, a->id);
	put_pair(t, tm_scaled_bytes(a, u->self.allocated.bytes), tm_scaled_bytes(a, u->total.allocated.bytes));
	put_pair(t, tm_scaled_bytes(a, u->self.freed.bytes), tm_scaled_bytes(a, u->total.freed.bytes));
	put_pair(t, tm_scaled_count(a, u->self.allocated.count), tm_scaled_count(a, u->total.allocated.count));
	put_pair(t, tm_scaled_count(a, u->self.freed.count), tm_scaled_count(a, u->total.freed.count));
	tm_bulk_number(t, tm_scaled_bytes(a, u->total.own_freed));
	tm_bulk_number(t, tm_scaled_bytes(a, u->retained));
	tm_bulk_number(t, tm_scaled_bytes(a, u->peak));
	tm_bulk_number(t, tm_scaled_bytes(a, u->growth));
	tm_bulk_number(t, tm_scaled_bytes(a, u->own_peak));
	tm_bulk_row(t, 0);
}

static uint64_t difference(uint64_t later, uint64_t earlier) {
	return later > earlier ? later - earlier : 0;
}

static void write_phases(struct scope_writer *c, uint64_t scope, const struct tm_scope_use_record *u) {
	struct tm_bulk_table *t = &c->store->tables[TM_TABLE_SCOPE_SNAPSHOT];
	const struct tm_scope_phases_record *record = tm_spill_at(&c->x->phase_records, u->phases - 1);
	struct tm_level_point last = { 0 };
	for (unsigned phase = 0; phase < TM_PHASE_COUNT; phase++) {
		const struct tm_level_point *p = &record->points[phase];
		uint64_t gone = p->made - p->live_count, gone_before = last.made - last.live_count;
		bool is_behind = phase && last.ns <= p->ns; /* the baseline may be later than the begin */
		tm_bulk_number(t, scope);
		tm_bulk_number(t, u->account->id);
		tm_bulk_number(t, phase);
		tm_bulk_number(t, shifted(c, p->ns));
		tm_bulk_number(t, tm_scaled_bytes(u->account, p->live_bytes));
		tm_bulk_number(t, tm_scaled_count(u->account, p->live_count));
		tm_bulk_number_or_null(t, is_behind ? tm_scaled_count(u->account, difference(p->made, last.made)) : UINT64_MAX);
		tm_bulk_number_or_null(t, is_behind ? tm_scaled_count(u->account, difference(gone, gone_before)) : UINT64_MAX);
		tm_bulk_row(t, 0);
		last = *p;
	}
}

static int compare_uses(const void *a, const void *b) {
	uint64_t x = (*(const struct tm_scope_use_record *const *)a)->account->id,
		 y = (*(const struct tm_scope_use_record *const *)b)->account->id;
	return (x > y) - (x < y);
}

static bool collect_uses(struct scope_writer *c, const struct tm_scope_record *s) {
	c->uses.count = 0;
	for (uint64_t n = s->uses; n;) {
		const struct tm_scope_use_record *u = tm_spill_at(&c->x->use_records, n - 1);
		const struct tm_scope_use_record **place = tm_array_push(&c->uses);
		if (!place) return false;
		*place = u;
		n = u->before;
	}
	if (c->uses.count > 1) qsort(c->uses.items, c->uses.count, sizeof *c->uses.items, compare_uses);
	return true;
}

/* By process, then by start. */
static int compare_places(const void *a, const void *b, void *scopes) {
	const struct tm_scopes *x = scopes;
	uint64_t i = *(const uint64_t *)a, k = *(const uint64_t *)b;
	const struct tm_scope_record *s = tm_spill_at(&x->records, i), *t = tm_spill_at(&x->records, k);
	if (s->process != t->process) return s->process > t->process ? 1 : -1;
	if (s->start_ns != t->start_ns) return s->start_ns > t->start_ns ? 1 : -1;
	return (i > k) - (i < k);
}

static void write_place(const struct scope_writer *c, uint64_t i) {
	struct tm_bulk_table *t = &c->store->tables[TM_TABLE_SCOPE_BY_PROCESS];
	const struct tm_scope_record *s = tm_spill_at(&c->x->records, i);
	tm_bulk_number(t, c->r->bases.process + s->process);
	tm_bulk_number(t, shifted(c, s->start_ns));
	tm_bulk_number(t, c->x->base_row + i + 1);
	tm_bulk_row(t, 0);
}

static bool are_in_place(struct tm_scopes *x) {
	for (uint64_t i = 1; i < x->records.count; i++)
		if (compare_places(&(uint64_t){ i - 1 }, &i, x) > 0) return false;
	return true;
}

/* The index scope_by_process. Scopes of one process are there in the order in which they were opened, which mostly is the index's. */
static void write_places(const struct scope_writer *c, struct tm_scopes *x) {
	bool in_place = are_in_place(x);
	uint64_t count = x->records.count, *places = in_place ? NULL : malloc(count * sizeof *places);
	if (!places && !in_place) return tm_store_fail(c->store, "out of memory");
	for (uint64_t i = 0; places && i < count; i++) places[i] = i;
	if (places) qsort_r(places, count, sizeof *places, compare_places, x);
	for (uint64_t i = 0; i < count && !c->store->failed; i++) write_place(c, places ? places[i] : i);
	free(places);
}

void tm_write_scope_bulk_rows(struct tm_import_rows *w) {
	struct tm_scopes *x = &w->replay->scopes;
	struct scope_writer c = { .w = w, .r = w->replay, .x = x, .store = w->store };
	for (uint64_t i = 0; i < x->records.count && !w->store->failed; i++) {
		const struct tm_scope_record *s = tm_spill_at(&x->records, i);
		uint64_t row = x->base_row + i + 1;
		write_scope(&c, row, s);
		if (!collect_uses(&c, s)) tm_store_fail(w->store, "out of memory");
		for (size_t k = 0; k < c.uses.count; k++) {
			/* One that was overlapped has records of heaps, too, in which it did nothing. */
			if (tm_scope_sums_are_zero(&c.uses.items[k]->total)) continue;
			write_use(&c, row, c.uses.items[k]);
			if (c.uses.items[k]->phases) write_phases(&c, row, c.uses.items[k]);
		}
	}
	tm_array_release(&c.uses);
	write_places(&c, x);
}

/* --- names --- */

static void write_names(struct scope_writer *c) {
	sqlite3_stmt *row = tm_store_prepare(c->store, "INSERT INTO scope_name(id, text) VALUES(?,?)");
	const struct tm_scopes *x = c->x;
	if (x->records.count && c->r->bases.scope_name)
		tm_store_row(c->store, row, "nt", c->r->bases.scope_name, (struct tm_text){ "", 0 });
	for (uint32_t string = 1; string <= x->catalog->strings.count && !c->store->failed; string++)
		if (x->canonical[string - 1] == string)
			tm_store_row(c->store, row, "nt", c->r->bases.scope_name + string, tm_scope_text(x, string));
	sqlite3_finalize(row);
}

/* --- by name --- */

static sqlite3_stmt *prepare_aggregate(struct scope_writer *c) {
	return tm_store_prepare(
		c->store,
		"INSERT INTO scope_aggregate(process_id, heap_id, name, category, calls, outermost_calls, duration_ns, calls_ns,"
		" self_allocated_bytes, total_allocated_bytes, self_freed_bytes, total_freed_bytes, self_allocations,"
		" total_allocations, self_frees, total_frees, own_freed_bytes,"
		" retained_bytes, peak_bytes, peak_growth_bytes, peak_own_bytes, instances, growth_sum_bytes)"
		" VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
}

static void write_group(struct scope_writer *c, sqlite3_stmt *row, const struct tm_scope_group *g) {
	uint64_t process = c->r->bases.process + g->process;
	struct tm_text name = tm_scope_text(c->x, g->name), category = tm_scope_text(c->x, g->category);
	uint64_t none = 0;
	if (!g->heaps)
		tm_store_row(c->store, row, "n0tTnnnnnnnnnnnnnn000nn", process, name, category, g->calls, g->outermost_calls,
			     g->duration_ns, g->calls_ns, none, none, none, none, none, none, none, none, none, none, none, none);
	for (const struct tm_scope_group_heap *h = g->heaps; h; h = h->next) {
		const struct tm_account *a = h->account;
		const struct tm_scope_sums *s = &h->self, *t = &h->total;
		tm_store_row(c->store, row, "nntTnnnnnnnnnnnnnnnnnnn", process, a->id, name, category, g->calls, g->outermost_calls,
			     g->duration_ns, g->calls_ns, tm_scaled_bytes(a, s->allocated.bytes), tm_scaled_bytes(a, t->allocated.bytes),
			     tm_scaled_bytes(a, s->freed.bytes), tm_scaled_bytes(a, t->freed.bytes), tm_scaled_count(a, s->allocated.count),
			     tm_scaled_count(a, t->allocated.count), tm_scaled_count(a, s->freed.count), tm_scaled_count(a, t->freed.count),
			     tm_scaled_bytes(a, t->own_freed), tm_scaled_bytes(a, h->retained), tm_scaled_bytes(a, h->peak),
			     tm_scaled_bytes(a, h->growth), tm_scaled_bytes(a, h->own_peak), h->instances,
			     tm_scaled_bytes(a, h->growth_sum));
	}
}

/* What is left of a heap's totals. Of a sample, what was freed may lie one below what was freed in scopes: see tm_freed_amount(). */
static void write_unscoped(struct scope_writer *c, sqlite3_stmt *row, const struct tm_account *a) {
	const struct tm_scope_heap *h = a->scope_heap;
	struct tm_scope_sums scoped = { 0 };
	if (h) scoped = h->scoped;
	struct tm_amount allocated = tm_whole_amount(a, a->allocated), freed = tm_freed_amount(a, a->allocated, a->level.live, a->splits),
			 in_scopes = tm_whole_amount(a, scoped.allocated), freed_in_scopes = tm_whole_amount(a, scoped.freed);
	uint64_t live = tm_scaled_bytes(a, h ? h->unscoped_bytes : a->level.live.bytes), peak = tm_scaled_bytes(a, a->level.peak.bytes);
	uint64_t own_peak = h ? tm_scaled_bytes(a, h->unscoped_peak) : peak;
	uint64_t bytes = allocated.bytes - in_scopes.bytes, freed_bytes = difference(freed.bytes, freed_in_scopes.bytes);
	uint64_t count = allocated.count - in_scopes.count, frees = difference(freed.count, freed_in_scopes.count);
	tm_store_row(c->store, row, "nnt00000nnnnnnnnnnnnn00", c->r->bases.process + a->ledger->process, a->id, tm_text_of("[unscoped]"),
		     bytes, bytes, freed_bytes, freed_bytes, count, count, frees, frees, difference(bytes, live), live, peak, peak,
		     own_peak);
}

static void write_aggregates(struct scope_writer *c) {
	sqlite3_stmt *row = prepare_aggregate(c);
	for (size_t i = 0; i < c->r->catalog->processes.count; i++) {
		const struct tm_ledger *l = &c->r->ledgers[i];
		for (size_t k = 0; k < l->accounts.count; k++)
			if (l->accounts.items[k]->allocated.count) write_unscoped(c, row, l->accounts.items[k]);
	}
	for (size_t i = 0; i < c->x->groups.count && !c->store->failed; i++)
		if (c->x->groups.items[i].calls) write_group(c, row, &c->x->groups.items[i]);
	sqlite3_finalize(row);
}

/* --- by two of a name --- */

static void write_overlaps(struct scope_writer *c) {
	sqlite3_stmt *row = tm_store_prepare(c->store, "INSERT INTO scope_overlap(scope_id, heap_id, later_scope_id, allocated_bytes,"
						       " freed_bytes, retained_bytes) VALUES(?,?,?,?,?,?)");
	for (uint64_t i = 0; i < c->x->spans.count && !c->store->failed; i++) {
		const struct tm_scope_span *span = tm_spill_at(&c->x->spans, i);
		for (uint64_t uses = span->uses; uses;) {
			const struct tm_scope_use_record *u = tm_spill_at(&c->x->use_records, uses - 1);
			const struct tm_account *a = u->account;
			uses = u->before;
			if (tm_scope_sums_are_zero(&u->total)) continue;
			tm_store_row(c->store, row, "nnnnnn", span->scope, a->id, span->first, tm_scaled_bytes(a, u->total.allocated.bytes),
				     tm_scaled_bytes(a, u->total.freed.bytes), tm_scaled_bytes(a, u->retained));
		}
	}
	sqlite3_finalize(row);
}

/* --- steps --- */

/* Each of these was rounded by itself: what was freed, or where that is nothing what was allocated, is set so that begin + allocated - freed = end. */
static void settle_rounding(const struct tm_scope_step_use *u, uint64_t begin, uint64_t end, uint64_t *allocated, uint64_t *freed) {
	uint64_t left = begin + *allocated - *freed;
	if (difference(left, end) > 2 || difference(end, left) > 2) return; /* events were lost */
	if (u->freed.bytes) *freed = difference(begin + *allocated, end);
	else *allocated = difference(end, begin);
}

static void write_step_use(struct scope_writer *c, sqlite3_stmt *row, uint64_t step_row, const struct tm_scope_step_use *u) {
	struct tm_account process = { .ledger = &c->r->ledgers[c->x->steps.items[u->step].process - 1] };
	const struct tm_account *a = u->account ? u->account : &process;
	struct tm_amount made = tm_whole_amount(a, u->allocated), early = tm_whole_amount(a, u->early),
			 freed = tm_whole_amount(a, u->freed), begin = tm_whole_amount(a, u->begin), end = tm_whole_amount(a, u->end),
			 own = tm_whole_amount(a, u->own_freed);
	uint64_t allocated_bytes = made.bytes - early.bytes;
	if (a->ledger->scale.mean_bytes > 0) settle_rounding(u, begin.bytes, end.bytes, &allocated_bytes, &freed.bytes);
	tm_store_row(c->store, row, "nnnnnnnnnnnnn", step_row, u->account ? a->id : 0, allocated_bytes, made.count - early.count,
		     freed.bytes, freed.count, begin.bytes, begin.count, end.bytes, end.count, tm_scaled_bytes(a, u->peak),
		     difference(made.bytes, own.bytes), difference(made.count + tm_scaled_count(a, u->own_parts), own.count));
}

static void write_steps(struct scope_writer *c) {
	uint64_t base = (uint64_t)tm_store_number(c->store, "SELECT max(id) FROM step", 0);
	sqlite3_stmt *row = tm_store_prepare(c->store, "INSERT INTO step(id, process_id, n, start_ns, end_ns) VALUES(?,?,?,?,?)");
	for (size_t i = 0; i < c->x->steps.count && row; i++) {
		const struct tm_scope_step *s = &c->x->steps.items[i];
		tm_store_row(c->store, row, "nnsnn", base + i + 1, c->r->bases.process + s->process, s->n, shifted(c, s->start_ns),
			     shifted(c, s->end_ns));
	}
	sqlite3_finalize(row);
	row = tm_store_prepare(c->store, "INSERT INTO step_aggregate(step_id, heap_id, allocated_bytes, allocations, freed_bytes, frees,"
					 " begin_bytes, begin_count, end_bytes, end_count, peak_bytes, survived_bytes, survived_count)"
					 " VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)");
	for (size_t i = 0; i < c->x->step_uses.count && !c->store->failed; i++) {
		const struct tm_scope_step_use *use = tm_spill_at(&c->x->step_uses, i);
		write_step_use(c, row, base + use->step + 1, use);
	}
	sqlite3_finalize(row);
}

/* --- what was left out, and what is odd --- */

static bool is_utf8(struct tm_text text) {
	for (const char *at = text.data, *end = at + text.size; at < end;) {
		uint32_t c;
		size_t n = tm_utf8_next(at, end, &c);
		if (c == 0xFFFD && n == 1) return false;
		at += n;
	}
	return true;
}

static void count_names(struct scope_writer *c) {
	for (size_t i = 0; i < c->x->groups.count; i++) {
		const struct tm_scope_group *g = &c->x->groups.items[i];
		struct tm_scope_oddities *odd = &c->r->ledgers[g->process - 1].scopes->odd;
		odd->names++;
		odd->wrong_names += !is_utf8(tm_scope_text(c->x, g->name));
	}
}

static void write_note(struct scope_writer *c, sqlite3_stmt *row, uint32_t process, const char *kind, const char *text) {
	tm_store_row(c->store, row, "nntt", c->r->bases.process + process, shifted(c, tm_process_end_ns(c->r, process)), tm_text_of(kind),
		     tm_text_of(text));
}

/* Where `many` has its %, the count stands. */
static void write_count(struct scope_writer *c, sqlite3_stmt *row, uint32_t process, const char *kind, uint64_t count, uint64_t least,
			const char *one, const char *many) {
	char whole[256];
	if (count < least) return;
	const char *text = count == 1 ? one : many, *number = strchr(text, '%');
	if (!number) {
		write_note(c, row, process, kind, text);
		return;
	}
	snprintf(whole, sizeof whole, "%.*s%llu%s", (int)(number - text), text, (unsigned long long)count, number + 1);
	write_note(c, row, process, kind, whole);
}

static void write_oddities(struct scope_writer *c, sqlite3_stmt *row, uint32_t id, const struct tm_scope_oddities *odd) {
	write_count(c, row, id, "scopes-across-threads", odd->across_threads, 1, "1 scope was closed by another thread than opened it",
		    "% scopes were closed by another thread than opened them");
	write_count(c, row, id, "scopes-overlap", odd->overlapping, 1,
		    "1 scope was closed while one opened later on its thread stayed open",
		    "% scopes were closed while one opened later on their thread stayed open");
	write_count(c, row, id, "fork-in-scope", odd->forks, 1,
		    "the process forked once while scopes were open: in the child none of them is",
		    "the process forked % times while scopes were open: in the children none of them is");
	write_count(c, row, id, "deep-scopes", odd->deepest, DEEP, "%", "% scopes were open inside of each other");
	write_count(c, row, id, "many-scope-names", odd->names, MANY_NAMES, "%", "its scopes have % different names");
	write_count(c, row, id, "scope-names-not-utf8", odd->wrong_names, 1,
		    "1 name of a scope is no UTF-8: what is wrong in it is shown as U+FFFD",
		    "% names of scopes are no UTF-8: what is wrong in them is shown as U+FFFD");
}

static void write_notes(struct scope_writer *c) {
	char text[200];
	sqlite3_stmt *row = tm_store_prepare(c->store, "INSERT INTO note(process_id, ts_ns, kind, text) VALUES(?,?,?,?)");
	for (uint32_t id = 1; id <= c->r->catalog->processes.count; id++) {
		const struct tm_scope_process *p = c->r->ledgers[id - 1].scopes;
		if (!p) continue;
		if (p->snapshots_left_out) {
			snprintf(text, sizeof text, "scope_snapshot holds the first %u instances of each name; %llu later %s left out",
				 TM_SCOPE_SNAPSHOTS, (unsigned long long)p->snapshots_left_out,
				 p->snapshots_left_out == 1 ? "one was" : "ones were");
			write_note(c, row, id, "scope-snapshots", text);
		}
		if (p->unknown_links) {
			snprintf(text, sizeof text, "no forward operator is known for %llu operator%s of a backward pass",
				 (unsigned long long)p->unknown_links, p->unknown_links == 1 ? "" : "s");
			write_note(c, row, id, "scope-links", text);
		}
		write_oddities(c, row, id, &p->odd);
	}
	sqlite3_finalize(row);
}

void tm_write_scope_rows(const struct tm_import_rows *w) {
	struct scope_writer c = { .r = w->replay, .x = &w->replay->scopes, .store = w->store };
	write_names(&c);
	write_aggregates(&c);
	write_overlaps(&c);
	write_steps(&c);
	count_names(&c);
	write_notes(&c);
}
