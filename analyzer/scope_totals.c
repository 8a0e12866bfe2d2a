/* scope_totals.c - what happens in scopes, added up by instance and heap; see scopes.h.
 *
 * Peaks of the heap while a scope is open come from level_track.c, those of what the scope and its descendants themselves have live (own bytes)
 * from scope_lanes.c. Which use of a heap is a scope's, which lane a thread's, and what a name has in a heap are looked up in a list, and where that is
 * long in a map.
 */
#include "scopes.h"

#define USES_PER_SLAB 256u
#define WALKED 16u          /* heaps of a list without a map */
#define LANES (1ull << 32)  /* in `by_account`: with a thread; slots of scopes stand for themselves */
#define GROUPS (2ull << 32) /* with the index of a group */

struct tm_use_slab {
	struct tm_use_slab *next;
	struct tm_scope_use uses[USES_PER_SLAB];
};

void tm_scope_add_sums(struct tm_scope_sums *a, const struct tm_scope_sums *b) {
	tm_amount_add(&a->allocated, b->allocated);
	tm_amount_add(&a->freed, b->freed);
	a->own_freed += b->own_freed;
}

bool tm_scope_sums_are_zero(const struct tm_scope_sums *s) {
	return !s->allocated.count && !s->freed.count && !s->own_freed;
}

/* --- heaps --- */

struct tm_scope_heap *tm_scope_heap_of(struct tm_account *a) {
	if (a->scope_heap) return a->scope_heap;
	struct tm_scope_heap *h = a->scope_heap = calloc(1, sizeof *h);
	if (!h) {
		a->ledger->scopes->scopes->failed = true;
		return NULL;
	}
	h->unscoped_bytes = a->level.live.bytes;
	h->unscoped_peak = a->level.peak.bytes;
	return h;
}

void tm_scope_heaps_release(struct tm_scopes *x) {
	for (size_t i = 0; i < x->catalog->processes.count; i++) {
		struct tm_ledger *l = &x->ledgers[i];
		for (size_t k = 0; k < l->accounts.count; k++) {
			if (!l->accounts.items[k]->scope_heap) continue;
			tm_level_track_release(&l->accounts.items[k]->scope_heap->track);
			free(l->accounts.items[k]->scope_heap);
			l->accounts.items[k]->scope_heap = NULL;
		}
	}
	for (struct tm_use_slab *s = x->use_slabs, *next; s; s = next) {
		next = s->next;
		free(s);
	}
	x->use_slabs = NULL;
}

struct tm_level_point tm_level_now(const struct tm_account *a, uint64_t ns) {
	return (struct tm_level_point){ ns, a->level.live.bytes, a->level.live.count, a->allocated.count + a->splits };
}

void tm_scope_pass_window(struct tm_scope_process *p, uint64_t ns) {
	if (!p->window_epoch && ns >= p->scopes->catalog->window_start_ns) p->window_epoch = ++p->epoch;
}

uint64_t tm_scope_known_epoch(const struct tm_scope_process *p, uint64_t epoch, uint64_t start_ns) {
	if (start_ns >= p->scopes->catalog->window_start_ns) return epoch;
	return p->window_epoch ? p->window_epoch : p->epoch + 1;
}

/* Drops the entries of the track that no open scope or step asks for. */
static void prune(struct tm_scopes *x, struct tm_scope_process *p, struct tm_level_track *t) {
	uint64_t *epochs = malloc((p->open_count + 1) * sizeof *epochs);
	uint64_t step_epoch = tm_scope_known_epoch(p, p->step_epoch, p->step_start_ns);
	size_t n = 0;
	bool step_waits = p->in_step;
	if (!epochs) return; /* the next event tries again */
	for (uint32_t slot = p->opened_first; slot; slot = tm_scope_at(x, slot)->opened_after) {
		const struct tm_scope *s = tm_scope_at(x, slot);
		uint64_t epoch = tm_scope_known_epoch(p, s->epoch, s->start_ns);
		if (step_waits && step_epoch < epoch) {
			epochs[n++] = step_epoch;
			step_waits = false;
		}
		epochs[n++] = epoch;
	}
	if (step_waits) epochs[n++] = step_epoch;
	tm_level_track_prune(t, epochs, n);
	free(epochs);
}

static void track(struct tm_account *a, struct tm_scope_heap *h, const struct tm_level_point *after, uint64_t ns) {
	struct tm_scope_process *p = a->ledger->scopes;
	struct tm_level_point before = tm_level_now(a, ns);
	if (!p->open_count) return;
	tm_scope_pass_window(p, ns);
	tm_level_track_change(&h->track, p->epoch, &before, after);
	if (h->track.failed) p->scopes->failed = true;
	if (tm_level_track_is_long(&h->track, p->open_count)) prune(p->scopes, p, &h->track);
}

void tm_scope_level_rises(struct tm_account *a, struct tm_amount amount, uint32_t scope, uint64_t ns, bool passing) {
	struct tm_scope_heap *h = tm_scope_heap_of(a);
	if (!h) return;
	struct tm_level_point after = tm_level_now(a, ns);
	if (!passing) {
		after.live_bytes += amount.bytes;
		after.live_count += amount.count;
	}
	after.made += amount.count;
	track(a, h, &after, ns);
	if (a->ledger->scopes->in_step) tm_scope_step_rises(a, amount, ns, passing);
	if (scope) return;
	h->unscoped_bytes += amount.bytes;
	if (!passing && h->unscoped_bytes > h->unscoped_peak) h->unscoped_peak = h->unscoped_bytes;
}

/* --- uses --- */

static void *find_far(const struct tm_scopes *x, uint64_t whose, const struct tm_account *a) {
	const uint64_t *there = tm_id_map_find(&x->by_account, whose, (uintptr_t)a);
	return there ? (void *)(uintptr_t)*there : NULL;
}

static void keep_far(struct tm_scopes *x, uint64_t whose, const struct tm_account *a, void *what) {
	uint64_t *there = tm_id_map_put(&x->by_account, whose, (uintptr_t)a);
	if (there) *there = (uintptr_t)what;
	else x->failed = true;
}

static struct tm_scope_use *find_use(const struct tm_scopes *x, const struct tm_scope *s, const struct tm_account *a) {
	if (s->use_count > WALKED) return find_far(x, s->slot, a);
	struct tm_scope_use *u = s->uses;
	while (u && u->account != a) u = u->next;
	return u;
}

static bool more_uses(struct tm_scopes *x) {
	struct tm_use_slab *slab = calloc(1, sizeof *slab);
	if (!slab) return false;
	slab->next = x->use_slabs;
	x->use_slabs = slab;
	for (unsigned i = 0; i < USES_PER_SLAB; i++) {
		slab->uses[i].next = x->free_use;
		x->free_use = &slab->uses[i];
	}
	return true;
}

static struct tm_scope_use *new_use(struct tm_scopes *x, struct tm_scope *s, struct tm_account *a) {
	if (!x->free_use && !more_uses(x)) {
		x->failed = true;
		return NULL;
	}
	struct tm_scope_use *u = x->free_use;
	x->free_use = u->next;
	*u = (struct tm_scope_use){ .account = a, .next = s->uses };
	s->uses = u;
	if (++s->use_count == WALKED + 1)
		for (struct tm_scope_use *each = u; each; each = each->next) keep_far(x, s->slot, each->account, each);
	else if (s->use_count > WALKED) keep_far(x, s->slot, a, u);
	return u;
}

struct tm_scope_use *tm_scope_use_of(struct tm_scopes *x, struct tm_scope *s, struct tm_account *a) {
	struct tm_scope_use *u = find_use(x, s, a);
	return u ? u : new_use(x, s, a);
}

/* --- lanes --- */

struct tm_scope_lane *tm_scope_find_lane(const struct tm_scopes *x, uint32_t thread, const struct tm_account *a) {
	if (x->threads[thread - 1].lane_count > WALKED) return find_far(x, LANES | thread, a);
	struct tm_scope_lane *lane = x->threads[thread - 1].lanes;
	while (lane && lane->account != a) lane = lane->next;
	return lane;
}

static struct tm_scope_lane *lane_of(struct tm_scopes *x, uint32_t thread, struct tm_account *a) {
	struct tm_scope_thread *t = &x->threads[thread - 1];
	struct tm_scope_lane *lane = tm_scope_find_lane(x, thread, a);
	if (lane) return lane;
	if (!(lane = calloc(1, sizeof *lane))) {
		x->failed = true;
		return NULL;
	}
	lane->account = a;
	lane->next = t->lanes;
	t->lanes = lane;
	if (++t->lane_count == WALKED + 1)
		for (struct tm_scope_lane *each = lane; each; each = each->next) keep_far(x, LANES | thread, each->account, each);
	else if (t->lane_count > WALKED) keep_far(x, LANES | thread, a, lane);
	return lane;
}

/* The use of the scope on top of its thread's stack. */
static struct tm_scope_use *touch(struct tm_scopes *x, struct tm_scope *s, struct tm_account *a) {
	struct tm_scope_use *u = find_use(x, s, a);
	if (u) return u;
	struct tm_scope_lane *lane = lane_of(x, s->thread, a);
	u = lane ? new_use(x, s, a) : NULL;
	if (!u || tm_scope_lane_put(lane, u, s->epoch)) return u;
	x->failed = true;
	return NULL;
}

/* --- events --- */

static uint32_t nearest_on_stack(struct tm_scopes *x, uint32_t slot) {
	uint32_t nearest = slot;
	while (nearest && !tm_scope_at(x, nearest)->is_stacked) nearest = tm_scope_at(x, nearest)->above;
	while (slot && slot != nearest) {
		struct tm_scope *s = tm_scope_at(x, slot);
		slot = s->above;
		s->above = nearest;
	}
	return nearest;
}

/* Whether the thread was cut since the scope was opened. */
static bool is_cut(const struct tm_scopes *x, uint32_t slot) {
	const struct tm_scope *s = tm_scope_at(x, slot);
	return s->cuts != x->threads[s->thread - 1].cuts;
}

/* The use of the scope's part that does things now, which takes the scope's place. */
static struct tm_scope_use *use_of_part(struct tm_scopes *x, uint32_t *slot, struct tm_account *a) {
	struct tm_scope *part = tm_scope_part(x, tm_scope_at(x, *slot));
	*slot = part ? part->slot : 0;
	return part ? tm_scope_use_of(x, part, a) : NULL;
}

uint32_t tm_scope_allocate(struct tm_scopes *x, uint32_t thread, struct tm_account *a, struct tm_amount amount,
			   struct tm_scope_lane **lane) {
	uint32_t slot = tm_scopes_top(x, thread);
	struct tm_scope_heap *h = tm_scope_heap_of(a);
	struct tm_scope_use *stacked = slot && h ? touch(x, tm_scope_at(x, slot), a) : NULL, *u = stacked;
	if (u && is_cut(x, slot)) u = use_of_part(x, &slot, a);
	*lane = u ? stacked->lane : NULL;
	if (!u) return 0;
	tm_amount_add(&u->self.allocated, amount);
	tm_amount_add(&h->scoped.allocated, amount);
	tm_scope_at(x, slot)->refs++;
	return slot;
}

uint32_t tm_scope_free(struct tm_scopes *x, uint32_t thread, struct tm_account *a) {
	uint32_t slot = tm_scopes_top(x, thread);
	struct tm_scope_use *u = slot ? touch(x, tm_scope_at(x, slot), a) : NULL;
	if (u && is_cut(x, slot)) u = use_of_part(x, &slot, a);
	if (!u) return 0;
	tm_scope_at(x, slot)->refs++;
	return slot;
}

void tm_scope_split(struct tm_account *a, const struct tm_block *b, unsigned survivors) {
	struct tm_scope_process *p = a->ledger->scopes;
	if (b->scope) tm_scope_at(p->scopes, b->scope)->refs += survivors;
	if (p->in_step && tm_scope_heap_of(a)) tm_scope_step_splits(a, tm_account_parts(a, survivors).count, b);
}

void tm_scope_let_go(struct tm_scopes *x, uint32_t slot) {
	while (slot) {
		struct tm_scope *s = tm_scope_at(x, slot);
		uint32_t parent = s->parent;
		if (--s->refs) return;
		tm_scope_finish(x, s);
		s->parent = x->free_slot;
		x->free_slot = slot;
		slot = parent;
	}
}

void tm_scope_level_falls(struct tm_account *a, struct tm_amount amount, const struct tm_block *b, uint32_t freeing, uint64_t ns) {
	struct tm_scopes *x = a->ledger->scopes->scopes;
	struct tm_scope_heap *h = tm_scope_heap_of(a);
	if (!h) return;
	struct tm_level_point after = tm_level_now(a, ns);
	after.live_bytes -= amount.bytes;
	after.live_count -= amount.count;
	track(a, h, &after, ns);
	if (a->ledger->scopes->in_step) tm_scope_step_falls(a, amount, b);
	struct tm_scope_use *u = freeing ? find_use(x, tm_scope_at(x, freeing), a) : NULL;
	if (u) {
		tm_amount_add(&u->self.freed, amount);
		tm_amount_add(&h->scoped.freed, amount);
	}
	if (!b->scope) {
		h->unscoped_bytes -= amount.bytes;
		return;
	}
	uint32_t stacked = nearest_on_stack(x, b->scope);
	if ((u = find_use(x, tm_scope_at(x, b->scope), a))) u->self.own_freed += amount.bytes;
	h->scoped.own_freed += amount.bytes;
	if (stacked) tm_scope_lane_frees(find_use(x, tm_scope_at(x, stacked), a), amount.bytes);
}

/* --- the end of a scope --- */

static uint64_t keep_phases(struct tm_scopes *x, const struct tm_scope *s, const struct tm_scope_heap *h,
			    const struct tm_level_point *before, const struct tm_level_point *peak, const struct tm_level_point *after) {
	struct tm_scope_phases_record *record = tm_spill_push(&x->phase_records);
	if (!record) return 0;
	struct tm_level_point baseline = { 0 };
	if (h) baseline = h->baseline;
	baseline.ns = x->ledgers[s->process - 1].scopes->baseline_ns;
	*record = (struct tm_scope_phases_record){ .points = { baseline, *before, *peak, *after } };
	return x->phase_records.count;
}

static void settle_use(struct tm_scopes *x, const struct tm_scope *s, struct tm_scope_use *u, uint64_t end_ns, bool snapshots) {
	struct tm_scope_heap *h = u->account->scope_heap;
	struct tm_level_point now = tm_level_now(u->account, end_ns), before = now, peak = now;
	uint64_t epoch = tm_scope_known_epoch(x->ledgers[s->process - 1].scopes, s->epoch, s->start_ns),
		 window_ns = x->catalog->window_start_ns;
	uint64_t known_ns = s->start_ns < window_ns && window_ns < end_ns ? window_ns : s->start_ns;
	if (h) before = tm_level_track_at(&h->track, epoch, &now);
	before.ns = peak.ns = known_ns;
	if (h) peak = tm_level_track_peak(&h->track, epoch, known_ns, &now);
	tm_scope_measure(u->lane ? u->lane : tm_scope_find_lane(x, s->thread, u->account), s->epoch, &u->own_peak, &u->retained);
	u->peak = peak.live_bytes;
	u->growth = peak.live_bytes - before.live_bytes;
	if (peak.ns < known_ns) peak.ns = known_ns;
	if (peak.ns > end_ns) peak.ns = end_ns;
	if (snapshots) u->phases = keep_phases(x, s, h, &before, &peak, &now);
}

void tm_scope_settle(struct tm_scopes *x, struct tm_scope *s, uint64_t end_ns, bool snapshots) {
	for (struct tm_scope_use *u = s->uses; u; u = u->next) settle_use(x, s, u, end_ns, snapshots);
	if (tm_scopes_top(x, s->thread) == s->slot) return;
	/* Further heaps that what is still open inside has touched: how they stand can be told only now. */
	for (struct tm_scope_lane *lane = x->threads[s->thread - 1].lanes; lane; lane = lane->next) {
		if (!lane->top || lane->epochs[lane->top->place] <= s->epoch || find_use(x, s, lane->account)) continue;
		struct tm_scope_use *u = new_use(x, s, lane->account);
		if (u) settle_use(x, s, u, end_ns, snapshots);
	}
}

void tm_scope_unstack(struct tm_scopes *x, struct tm_scope *s) {
	struct tm_scope *parent = s->parent ? tm_scope_at(x, s->parent) : NULL;
	for (struct tm_scope_use *u = s->uses; u; u = u->next) {
		if (!u->lane) continue;
		struct tm_scope_use *heir = parent ? tm_scope_use_of(x, parent, u->account) : NULL;
		if (heir && !heir->lane) tm_scope_lane_inherit(u, heir, parent->epoch);
		else tm_scope_lane_leave(u);
		u->lane = NULL;
	}
	s->is_stacked = false;
	s->above = s->parent;
}

/* --- finished --- */

struct tm_scope_group_heap *tm_scope_group_heap_of(struct tm_scopes *x, uint32_t group, const struct tm_account *a) {
	struct tm_scope_group *g = &x->groups.items[group];
	bool is_far = g->heap_count > WALKED;
	struct tm_scope_group_heap *h = is_far ? find_far(x, GROUPS | group, a) : g->heaps;
	while (!is_far && h && h->account != a) h = h->next;
	if (h || !(h = calloc(1, sizeof *h))) {
		if (!h) x->failed = true;
		return h;
	}
	*h = (struct tm_scope_group_heap){ .account = a, .next = g->heaps };
	g->heaps = h;
	if (++g->heap_count == WALKED + 1)
		for (struct tm_scope_group_heap *each = h; each; each = each->next) keep_far(x, GROUPS | group, each->account, each);
	else if (is_far) keep_far(x, GROUPS | group, a, h);
	return h;
}

static uint64_t more(uint64_t a, uint64_t b) {
	return a > b ? a : b;
}

void tm_scope_add_to_group(struct tm_scope_group_heap *h, bool is_outermost, const struct tm_scope_use_record *u) {
	h->instances++;
	h->growth_sum += u->growth;
	h->peak = more(h->peak, u->peak);
	h->growth = more(h->growth, u->growth);
	h->own_peak = more(h->own_peak, u->own_peak);
	if (!is_outermost) return;
	tm_scope_add_sums(&h->total, &u->total);
	h->retained += u->retained;
}

/* What an overlapped scope did in all is not known yet. */
static void record_use(struct tm_scopes *x, const struct tm_scope *s, const struct tm_scope_use *u, const struct tm_scope_sums *total) {
	struct tm_scope_use_record *record = tm_spill_push(&x->use_records);
	struct tm_scope_record *of = tm_spill_at(&x->records, s->row - x->base_row - 1);
	bool is_unknown = s->is_overlapped && tm_scope_sums_are_zero(total);
	struct tm_scope_group_heap *h = is_unknown ? NULL : tm_scope_group_heap_of(x, s->group, u->account);
	if (h) tm_scope_add_sums(&h->self, &u->self);
	if (!record) return;
	*record = (struct tm_scope_use_record){ of->uses,  u->account,  u->self,     *total,   u->peak,
						u->growth, u->own_peak, u->retained, u->phases };
	of->uses = x->use_records.count;
	if (s->is_overlapped) record->total = (struct tm_scope_sums){ 0 };
	else if (h) tm_scope_add_to_group(h, s->is_outermost, record);
}

static void finish_use(struct tm_scopes *x, const struct tm_scope *s, const struct tm_scope_use *u) {
	struct tm_scope_sums total = u->children;
	tm_scope_add_sums(&total, &u->self);
	/* An event that meant nothing, or a heap that was looked at only in case. */
	bool is_nothing = tm_scope_sums_are_zero(&total);
	if (!is_nothing || s->is_overlapped) record_use(x, s, u, &total);
	if (is_nothing || !s->parent) return;
	struct tm_scope_use *around = tm_scope_use_of(x, tm_scope_at(x, s->parent), u->account);
	if (around) tm_scope_add_sums(&around->children, &total);
}

void tm_scope_finish(struct tm_scopes *x, struct tm_scope *s) {
	if (s->is_part) tm_scope_finish_part(x, s);
	for (struct tm_scope_use *u = s->uses, *next; u; u = next) {
		next = u->next;
		if (!s->is_part) finish_use(x, s, u);
		if (s->use_count > WALKED) tm_id_map_remove(&x->by_account, s->slot, (uintptr_t)u->account);
		u->next = x->free_use;
		x->free_use = u;
	}
	s->uses = NULL;
	s->use_count = 0;
}

void tm_scope_thread_release(struct tm_scope_thread *t) {
	for (struct tm_scope_lane *lane = t->lanes, *next; lane; lane = next) {
		next = lane->next;
		tm_scope_lane_release(lane);
		free(lane);
	}
	tm_array_release(&t->stack);
	tm_array_release(&t->blocks);
}
