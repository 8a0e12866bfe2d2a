/* scope_steps.c - the steps of a process, side by side: what was allocated, freed, live and left over in each; see scopes.h. */
#include "scopes.h"

/* The heap's sums, of the step that is open. */
static struct tm_scope_heap *heap_in_step(struct tm_account *a) {
	const struct tm_scope_process *p = a->ledger->scopes;
	struct tm_scope_heap *h = a->scope_heap;
	if (h->step == p->step_number) return h;
	h->step = p->step_number;
	h->step_allocated = h->step_early = h->step_freed = h->step_own_freed = (struct tm_amount){ 0, 0 };
	h->step_own_parts = 0;
	return h;
}

static uint64_t known_epoch(const struct tm_scope_process *p) {
	return tm_scope_known_epoch(p, p->step_epoch, p->step_start_ns);
}

static void track_process(struct tm_scope_process *p, struct tm_amount after) {
	const struct tm_level *level = &p->ledger->level;
	struct tm_level_point before = { .live_bytes = level->live.bytes, .live_count = level->live.count },
			      then = { .live_bytes = after.bytes, .live_count = after.count };
	tm_level_track_change(&p->track, p->epoch, &before, &then);
	if (p->track.failed) p->scopes->failed = true;
	uint64_t known = known_epoch(p);
	if (tm_level_track_is_long(&p->track, 1)) tm_level_track_prune(&p->track, &known, 1);
}

void tm_scope_step_rises(struct tm_account *a, struct tm_amount amount, uint64_t ns, bool passing) {
	struct tm_scope_heap *h = heap_in_step(a);
	struct tm_amount after = a->ledger->level.live;
	tm_amount_add(&h->step_allocated, amount);
	if (ns < a->ledger->scopes->scopes->catalog->window_start_ns) tm_amount_add(&h->step_early, amount);
	if (!passing) tm_amount_add(&after, amount);
	if (a->is_root) track_process(a->ledger->scopes, after);
}

/* A block of this very step: the parity tells blocks of its first nanosecond from those of the step before. */
static bool is_of_step(const struct tm_scope_process *p, const struct tm_block *b) {
	return b->alloc_ns >= p->step_start_ns && b->step_is_odd == (p->step_number & 1);
}

void tm_scope_step_falls(struct tm_account *a, struct tm_amount amount, const struct tm_block *b) {
	struct tm_scope_heap *h = heap_in_step(a);
	struct tm_amount after = a->ledger->level.live;
	tm_amount_add(&h->step_freed, amount);
	if (is_of_step(a->ledger->scopes, b)) tm_amount_add(&h->step_own_freed, amount);
	after.bytes -= amount.bytes;
	after.count -= amount.count;
	if (a->is_root) track_process(a->ledger->scopes, after);
}

void tm_scope_step_splits(struct tm_account *a, uint64_t more, const struct tm_block *b) {
	if (is_of_step(a->ledger->scopes, b)) heap_in_step(a)->step_own_parts += more;
}

void tm_scope_step_begin(struct tm_scopes *x, struct tm_scope_process *p, int64_t n, uint64_t ns) {
	tm_scope_step_end(x, p, ns);
	tm_scope_pass_window(p, ns);
	tm_ledger_step(p->ledger, ns);
	p->in_step = true;
	p->step_n = n;
	p->step_number++;
	p->step_start_ns = ns;
	p->step_epoch = ++p->epoch;
	p->open_count++;
}

static void keep_use(struct tm_scopes *x, const struct tm_scope_step_use *use) {
	struct tm_scope_step_use *kept = tm_spill_push(&x->step_uses);
	if (kept) *kept = *use;
	else x->failed = true;
}

/* Heaps that held nothing and did nothing have no row. */
static struct tm_scope_step_use use_of(struct tm_scope_process *p, struct tm_account *a) {
	struct tm_scope_heap *h = a->scope_heap;
	struct tm_level_point now = tm_level_now(a, 0), begin = now;
	struct tm_scope_step_use use = { .account = a, .end = a->level.live, .peak = now.live_bytes };
	if (h) {
		heap_in_step(a);
		begin = tm_level_track_at(&h->track, known_epoch(p), &now);
		use.peak = tm_level_track_peak(&h->track, known_epoch(p), 0, &now).live_bytes;
		use.allocated = h->step_allocated;
		use.early = h->step_early;
		use.freed = h->step_freed;
		use.own_freed = h->step_own_freed;
		use.own_parts = h->step_own_parts;
	}
	use.begin = (struct tm_amount){ begin.live_bytes, begin.live_count };
	return use;
}

void tm_scope_step_end(struct tm_scopes *x, struct tm_scope_process *p, uint64_t ns) {
	if (!p->in_step) return;
	struct tm_ledger *l = p->ledger;
	struct tm_scope_step *step = tm_array_push(&x->steps);
	if (!step) {
		x->failed = true;
		return;
	}
	*step = (struct tm_scope_step){ p->step_start_ns, ns > p->step_start_ns ? ns : p->step_start_ns, p->step_n, l->process };
	struct tm_level_point now = { .live_bytes = l->level.live.bytes, .live_count = l->level.live.count },
			      begin = tm_level_track_at(&p->track, known_epoch(p), &now);
	struct tm_scope_step_use all = { .step = x->steps.count - 1,
					 .begin = { begin.live_bytes, begin.live_count },
					 .end = l->level.live,
					 .peak = tm_level_track_peak(&p->track, known_epoch(p), 0, &now).live_bytes };
	for (size_t i = 0; i < l->accounts.count; i++) {
		struct tm_account *a = l->accounts.items[i];
		struct tm_scope_step_use use = use_of(p, a);
		use.step = all.step;
		if (use.allocated.count || use.freed.count || use.begin.count || use.end.count) keep_use(x, &use);
		if (!a->is_root) continue;
		tm_amount_add(&all.allocated, use.allocated);
		tm_amount_add(&all.early, use.early);
		tm_amount_add(&all.freed, use.freed);
		tm_amount_add(&all.own_freed, use.own_freed);
		all.own_parts += use.own_parts;
	}
	keep_use(x, &all);
	p->in_step = false;
	p->open_count--;
}
