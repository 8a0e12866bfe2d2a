/* scopes.c - which scopes are open on each thread; see scopes.h, and schema/format.md for what the ops mean. */
#include "scopes.h"

#define SLAB 1024u

/* --- setting up --- */

static int compare_ends(const void *a, const void *b) {
	const struct tm_scope_thread_end *x = a, *y = b;
	if (x->ns != y->ns) return x->ns < y->ns ? -1 : 1;
	return (x->thread > y->thread) - (x->thread < y->thread);
}

/* A thread that ends while its process leaves ends with it. */
static bool ends_alone(const struct tm_catalog *c, const struct tm_catalog_thread *t) {
	const struct tm_catalog_process *p = &c->processes.items[t->process - 1];
	if (t->end_ns == TM_NEVER) return false;
	return t->end_ns < p->exit_ns && !(p->ended && t->end_ns >= p->end_ns);
}

/* When processes fork, among the ends of threads. */
static bool list_forks(struct tm_scopes *x) {
	const struct tm_catalog *c = x->catalog;
	for (size_t i = 0; i < c->processes.count; i++) {
		const struct tm_catalog_process *p = &c->processes.items[i];
		if (!(p->flags & TM_PROCESS_FORKED) || !p->parent_id || p->parent_id > c->processes.count) continue;
		struct tm_scope_thread_end *e = tm_array_push(&x->ends);
		if (!e) return false;
		*e = (struct tm_scope_thread_end){ p->start_ns, 0, (uint32_t)p->parent_id };
	}
	return true;
}

static bool list_ends(struct tm_scopes *x) {
	const struct tm_catalog *c = x->catalog;
	for (size_t i = 0; i < c->threads.count; i++) {
		if (!ends_alone(c, &c->threads.items[i])) continue;
		struct tm_scope_thread_end *e = tm_array_push(&x->ends);
		if (!e) return false;
		*e = (struct tm_scope_thread_end){ c->threads.items[i].end_ns, (uint32_t)i + 1, 0 };
	}
	if (!list_forks(x)) return false;
	if (x->ends.count) qsort(x->ends.items, x->ends.count, sizeof *x->ends.items, compare_ends);
	x->next_end_ns = x->ends.count ? x->ends.items[0].ns : UINT64_MAX;
	return true;
}

int tm_scopes_init(struct tm_scopes *x, const struct tm_catalog *catalog, struct tm_ledger *ledgers, uint64_t base_row,
		   const char *beside) {
	*x = (struct tm_scopes){ .catalog = catalog, .ledgers = ledgers, .base_row = base_row, .next_end_ns = UINT64_MAX };
	tm_spill_init(&x->records, beside, sizeof(struct tm_scope_record));
	tm_spill_init(&x->use_records, beside, sizeof(struct tm_scope_use_record));
	tm_spill_init(&x->phase_records, beside, sizeof(struct tm_scope_phases_record));
	tm_spill_init(&x->part_records, beside, sizeof(struct tm_scope_part_record));
	tm_spill_init(&x->spans, beside, sizeof(struct tm_scope_span));
	tm_spill_init(&x->step_uses, beside, sizeof(struct tm_scope_step_use));
	x->threads = calloc(catalog->threads.count + 1, sizeof *x->threads);
	x->canonical = calloc(catalog->strings.count + 1, sizeof *x->canonical);
	return x->threads && x->canonical && list_ends(x) ? 0 : -1;
}

int tm_scopes_error(const struct tm_scopes *x) {
	const struct tm_spill *const spills[] = { &x->records,      &x->use_records, &x->phase_records,
						&x->part_records, &x->spans,       &x->step_uses };
	for (size_t i = 0; i < sizeof spills / sizeof *spills; i++)
		if (spills[i]->error) return spills[i]->error;
	return 0;
}

static void release_groups(struct tm_scopes *x) {
	for (size_t i = 0; i < x->groups.count; i++) {
		for (struct tm_scope_group_heap *h = x->groups.items[i].heaps, *next; h; h = next) {
			next = h->next;
			free(h);
		}
	}
	tm_array_release(&x->groups);
}

void tm_scopes_release(struct tm_scopes *x) {
	if (!x->catalog) return;
	for (size_t i = 0; x->threads && i < x->catalog->threads.count; i++) tm_scope_thread_release(&x->threads[i]);
	free(x->threads);
	tm_scope_heaps_release(x);
	for (size_t i = 0; i < x->catalog->processes.count; i++) {
		if (!x->ledgers[i].scopes) continue;
		tm_level_track_release(&x->ledgers[i].scopes->track);
		free(x->ledgers[i].scopes);
		x->ledgers[i].scopes = NULL;
	}
	for (uint32_t i = 0; i * SLAB < x->slot_count; i++) free(x->slabs[i]);
	free(x->slabs);
	free(x->canonical);
	release_groups(x);
	tm_array_release(&x->ends);
	tm_array_release(&x->steps);
	struct tm_id_map *const maps[] = { &x->by_account, &x->texts, &x->group_ids, &x->last, &x->keys, &x->links, &x->older_links };
	for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) tm_id_map_release(maps[i]);
	tm_spill_release(&x->records);
	tm_spill_release(&x->use_records);
	tm_spill_release(&x->phase_records);
	tm_spill_release(&x->part_records);
	tm_spill_release(&x->spans);
	tm_spill_release(&x->step_uses);
	*x = (struct tm_scopes){ 0 };
}

/* From its first scope or step on, a process' events are looked at. */
static struct tm_scope_process *process_of(struct tm_scopes *x, struct tm_ledger *l) {
	if (l->scopes) return l->scopes;
	l->scopes = calloc(1, sizeof *l->scopes);
	if (l->scopes) *l->scopes = (struct tm_scope_process){ .scopes = x, .ledger = l, .baseline_ns = l->start_ns };
	else x->failed = true;
	return l->scopes;
}

/* --- slots --- */

static bool more_slots(struct tm_scopes *x) {
	uint32_t slabs = x->slot_count / SLAB;
	struct tm_scope **grown = x->slot_count < (1u << 31) - SLAB ? realloc(x->slabs, (slabs + 1) * sizeof *grown) : NULL;
	if (!grown) return false;
	x->slabs = grown;
	if (!(x->slabs[slabs] = calloc(SLAB, sizeof **grown))) return false;
	/* Slot 0 means none. */
	for (uint32_t i = SLAB; i-- > (slabs ? 0 : 1);) {
		x->slabs[slabs][i].parent = x->free_slot;
		x->free_slot = slabs * SLAB + i;
	}
	x->slot_count += SLAB;
	return true;
}

struct tm_scope *tm_scope_new(struct tm_scopes *x) {
	if (!x->free_slot && !more_slots(x)) {
		x->failed = true;
		return NULL;
	}
	uint32_t slot = x->free_slot;
	struct tm_scope *s = tm_scope_at(x, slot);
	x->free_slot = s->parent;
	*s = (struct tm_scope){ .slot = slot };
	return s;
}

/* --- chains --- */

static bool is_in(const struct tm_scope *s, enum tm_scope_chain chain) {
	if (chain == TM_CHAIN_CATEGORY) return s->op == TM_OP_SCOPE_PUSH;
	return chain != TM_CHAIN_ENDS || s->op != TM_OP_SCOPE_RANGE;
}

static uint64_t on_thread(uint32_t thread, uint32_t what) {
	return (uint64_t)thread << 32 | what;
}

static uint64_t whose(const struct tm_scopes *x, const struct tm_scope *s, enum tm_scope_chain chain) {
	const struct tm_scope_group *g = &x->groups.items[s->group];
	return on_thread(s->thread, chain == TM_CHAIN_GROUP ? s->group : chain == TM_CHAIN_NAME ? g->name : g->category);
}

/* Where the slot of its last one stands; NULL: in the table. Mostly one thread has all scopes of a group, and needs none. */
static uint64_t *outside_of_table(struct tm_scopes *x, const struct tm_scope *s, enum tm_scope_chain chain) {
	struct tm_scope_group *g = &x->groups.items[s->group];
	if (chain == TM_CHAIN_ENDS) return &x->threads[s->thread - 1].ends[s->is_apart];
	return chain == TM_CHAIN_GROUP && g->thread == s->thread ? &g->last : NULL;
}

static void enter_chain(struct tm_scopes *x, struct tm_scope *s, enum tm_scope_chain chain) {
	uint64_t *last = outside_of_table(x, s, chain);
	if (!last) last = tm_id_map_put(&x->last, whose(x, s, chain), chain);
	if (!last) {
		x->failed = true;
		return;
	}
	s->chains[chain].before = (uint32_t)*last;
	if (*last) tm_scope_at(x, (uint32_t)*last)->chains[chain].after = s->slot;
	*last = s->slot;
}

/* What stands beside it there it still knows. */
static void leave_chain(struct tm_scopes *x, const struct tm_scope *s, enum tm_scope_chain chain) {
	uint32_t before = s->chains[chain].before, after = s->chains[chain].after;
	uint64_t *last = outside_of_table(x, s, chain);
	if (before) tm_scope_at(x, before)->chains[chain].after = after;
	if (after) tm_scope_at(x, after)->chains[chain].before = before;
	else if (last) *last = before;
	else if (before) *tm_id_map_find(&x->last, whose(x, s, chain), chain) = before;
	else tm_id_map_remove(&x->last, whose(x, s, chain), chain);
}

static void enter_chains(struct tm_scopes *x, struct tm_scope *s) {
	struct tm_scope_group *g = &x->groups.items[s->group];
	if (!g->last && !g->is_shared) g->thread = s->thread;
	if (g->thread != s->thread) g->is_shared = true;
	for (enum tm_scope_chain chain = 0; chain < TM_CHAIN_COUNT; chain++)
		if (is_in(s, chain)) enter_chain(x, s, chain);
}

static void leave_chains(struct tm_scopes *x, const struct tm_scope *s) {
	for (enum tm_scope_chain chain = 0; chain < TM_CHAIN_COUNT; chain++)
		if (is_in(s, chain)) leave_chain(x, s, chain);
}

/* --- blocks --- */

/* Number of blocks of the thread that stand before one with this frame and epoch. */
static size_t block_place(const struct tm_scopes *x, const struct tm_scope_thread *t, uint64_t frame_address, uint64_t epoch) {
	size_t low = 0, high = t->blocks.count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct tm_scope *s = tm_scope_at(x, t->blocks.items[middle]);
		bool is_before = s->frame_address != frame_address ? s->frame_address > frame_address : s->epoch < epoch;
		if (is_before) low = middle + 1;
		else high = middle;
	}
	return low;
}

static void enter_block(struct tm_scopes *x, const struct tm_scope *s) {
	struct tm_scope_thread *t = &x->threads[s->thread - 1];
	size_t place = block_place(x, t, s->frame_address, UINT64_MAX);
	if (!tm_array_push(&t->blocks)) {
		x->failed = true;
		return;
	}
	uint32_t *at = &t->blocks.items[place];
	memmove(at + 1, at, (t->blocks.count - 1 - place) * sizeof *at);
	*at = s->slot;
}

static void leave_block(struct tm_scopes *x, const struct tm_scope *s) {
	struct tm_scope_thread *t = &x->threads[s->thread - 1];
	size_t place = block_place(x, t, s->frame_address, s->epoch);
	uint32_t *at = &t->blocks.items[place];
	if (place == t->blocks.count || *at != s->slot) return; /* there was no memory to put it in */
	memmove(at, at + 1, (--t->blocks.count - place) * sizeof *at);
}

/* --- links --- */

static void remember_link(struct tm_scopes *x, uint32_t process, uint64_t link, uint64_t row) {
	if (x->links.count >= TM_SCOPE_LINKS) {
		tm_id_map_release(&x->older_links);
		x->older_links = x->links;
		x->links = (struct tm_id_map){ 0 };
	}
	uint64_t *place = tm_id_map_put(&x->links, process, link);
	if (place) *place = row;
	else x->failed = true;
}

/* The row of the latest forward operator with this link, 0 unknown. */
static uint64_t forward_of(struct tm_scopes *x, struct tm_scope_process *p, uint32_t process, uint64_t link) {
	const uint64_t *row = tm_id_map_find(&x->links, process, link);
	if (!row) row = tm_id_map_find(&x->older_links, process, link);
	if (!row) p->unknown_links++;
	return row ? *row : 0;
}

/* --- closing --- */

static void forget_open(struct tm_scopes *x, struct tm_scope_process *p, struct tm_scope *s) {
	if (s->opened_before) tm_scope_at(x, s->opened_before)->opened_after = s->opened_after;
	else p->opened_first = s->opened_after;
	if (s->opened_after) tm_scope_at(x, s->opened_after)->opened_before = s->opened_before;
	else p->opened_last = s->opened_before;
	p->open_count--;
}

static bool is_on_top(const struct tm_scopes *x, const struct tm_scope *s) {
	return tm_scopes_top(x, s->thread) == s->slot;
}

/* Where it lies on its thread's stack. */
static size_t place_of(const struct tm_scopes *x, const struct tm_scope *s) {
	const struct tm_scope_thread *t = &x->threads[s->thread - 1];
	size_t low = 0, high = t->stack.count - 1;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (tm_scope_at(x, t->stack.items[middle])->epoch < s->epoch) low = middle + 1;
		else high = middle;
	}
	return low;
}

/* The scope inside it stays open: it lies in the one around it then. */
static void leave_to_parent(struct tm_scopes *x, const struct tm_scope *s, struct tm_scope *inner) {
	struct tm_scope_record *record = tm_spill_at(&x->records, inner->row - x->base_row - 1);
	inner->parent = s->parent;
	if (s->parent) tm_scope_at(x, s->parent)->refs++;
	record->parent = tm_scope_row(x, s->parent);
	tm_scope_let_go(x, s->slot);
}

static void take_off_stack(struct tm_scopes *x, struct tm_scope *s) {
	struct tm_scope_thread *t = &x->threads[s->thread - 1];
	tm_scope_unstack(x, s);
	if (s->part) tm_scope_let_go(x, s->part);
	if (!is_on_top(x, s)) {
		size_t place = place_of(x, s);
		uint32_t *at = &t->stack.items[place];
		leave_to_parent(x, s, tm_scope_at(x, at[1]));
		memmove(at, at + 1, (t->stack.count - place - 1) * sizeof *at);
	}
	t->stack.count--;
	tm_scope_let_go(x, s->slot);
}

static void close_scope(struct tm_scopes *x, struct tm_scope *s, uint64_t ns, enum tm_scope_end kind) {
	struct tm_scope_group *g = &x->groups.items[s->group];
	struct tm_scope_record *record = tm_spill_at(&x->records, s->row - x->base_row - 1);
	if (ns < s->start_ns) ns = s->start_ns;
	record->end_ns = ns;
	record->end_kind = kind;
	g->calls++;
	if (s->is_outermost) {
		g->outermost_calls++;
		g->duration_ns += ns - s->start_ns;
		g->calls_ns += ns - s->start_ns;
	}
	if (s->key) tm_id_map_remove(&x->keys, s->process, s->key);
	if (s->op == TM_OP_SCOPE_BLOCK) leave_block(x, s);
	bool snapshots = g->snapshots < TM_SCOPE_SNAPSHOTS;
	if (snapshots) g->snapshots++;
	else x->ledgers[s->process - 1].scopes->snapshots_left_out++;
	tm_scope_settle(x, s, ns, snapshots);
	forget_open(x, x->ledgers[s->process - 1].scopes, s);
	leave_chains(x, s);
	if (!is_on_top(x, s)) tm_scope_overlap(x, s, ns);
	take_off_stack(x, s);
}

/* The pushed scopes and blocks that were opened inside this one, innermost first; ranges stay, and of pushes apart the others apart. */
static void abandon_inner(struct tm_scopes *x, const struct tm_scope *s, uint64_t ns) {
	const uint64_t *last = x->threads[s->thread - 1].ends;
	for (;;) {
		const struct tm_scope *inner = s;
		for (int apart = 0; apart < (s->is_apart ? 1 : 2); apart++) {
			const struct tm_scope *each = last[apart] ? tm_scope_at(x, (uint32_t)last[apart]) : s;
			if (each->epoch > inner->epoch) inner = each;
		}
		if (inner == s) return;
		close_scope(x, tm_scope_at(x, inner->slot), ns, TM_SCOPE_ABANDONED);
	}
}

static void end_scope(struct tm_scopes *x, struct tm_scope *s, uint64_t ns, enum tm_scope_end kind) {
	if (s->op != TM_OP_SCOPE_RANGE && !is_on_top(x, s)) abandon_inner(x, s, ns);
	if (!is_on_top(x, s)) x->ledgers[s->process - 1].scopes->odd.overlapping++;
	close_scope(x, s, ns, kind);
}

static struct tm_scope *scope_with_key(const struct tm_scopes *x, uint32_t process, uint64_t key) {
	const uint64_t *slot = tm_id_map_find(&x->keys, process, key);
	return slot ? tm_scope_at(x, (uint32_t)*slot) : NULL;
}

/* The innermost open push of the thread with this category. */
static struct tm_scope *pushed_scope(struct tm_scopes *x, uint32_t thread, uint32_t category) {
	const uint64_t *last = tm_id_map_find(&x->last, on_thread(thread, tm_scope_canonical(x, category)), TM_CHAIN_CATEGORY);
	return last ? tm_scope_at(x, (uint32_t)*last) : NULL;
}

/* Blocks that longjmp has left: the stack is shorter now than where they lie, unless it is another stack; or another function is called there. Of those of
 * one stack that are open the earlier ones lie higher, so that of the left ones the first in `blocks` is the outermost. */
static void abandon_left_blocks(struct tm_scopes *x, uint32_t thread, uint64_t link, uint64_t ns) {
	uint64_t frame_address = link & TM_BLOCK_FRAME_MASK;
	const struct tm_scope_thread *t = &x->threads[thread - 1];
	size_t i = block_place(x, t, frame_address, 0);
	if (i < t->blocks.count && tm_scope_at(x, t->blocks.items[i])->frame_address == frame_address &&
	    tm_scope_at(x, t->blocks.items[i])->frame_call == link >> TM_BLOCK_FRAME_BITS)
		i = block_place(x, t, frame_address, UINT64_MAX);
	if (i == t->blocks.count) return;
	struct tm_scope *left = tm_scope_at(x, t->blocks.items[i]);
	if (frame_address - left->frame_address < TM_SCOPE_STACK_BYTES) end_scope(x, left, ns, TM_SCOPE_ABANDONED);
}

/* --- opening --- */

static void list_open(struct tm_scopes *x, struct tm_scope_process *p, struct tm_scope *s) {
	s->opened_before = p->opened_last;
	if (p->opened_last) tm_scope_at(x, p->opened_last)->opened_after = s->slot;
	else p->opened_first = s->slot;
	p->opened_last = s->slot;
	p->open_count++;
	tm_scope_pass_window(p, s->start_ns);
	s->epoch = ++p->epoch;
}

/* Its place in the maps and on the stack. */
static void enter(struct tm_scopes *x, struct tm_scope *s, uint64_t key) {
	struct tm_scope_thread *t = &x->threads[s->thread - 1];
	uint32_t *top = tm_array_push(&t->stack);
	uint64_t *by_key = key ? tm_id_map_put(&x->keys, s->process, key) : NULL;
	if (!top || (key && !by_key)) {
		x->failed = true;
		return;
	}
	*top = s->slot;
	s->key = key;
	if (by_key) *by_key = s->slot;
	enter_chains(x, s);
	s->is_outermost = !s->chains[TM_CHAIN_GROUP].before;
	if (s->op == TM_OP_SCOPE_BLOCK) enter_block(x, s);
}

static void record_open(struct tm_scopes *x, struct tm_scope_process *p, struct tm_scope *s, uint64_t link) {
	struct tm_scope_record *record = tm_spill_push(&x->records);
	const struct tm_scope_group *g = &x->groups.items[s->group];
	if (!record) {
		x->failed = true;
		return;
	}
	s->row = x->base_row + x->records.count;
	*record = (struct tm_scope_record){ .parent = tm_scope_row(x, s->parent),
					    .start_ns = s->start_ns,
					    .end_ns = s->start_ns,
					    .process = s->process,
					    .thread = s->thread,
					    .name = g->name,
					    .category = g->category,
					    .depth = (uint32_t)x->threads[s->thread - 1].stack.count };
	if (link && g->is_forward) remember_link(x, s->process, link, s->row);
	if (link && g->is_backward) record->forward = forward_of(x, p, s->process, link);
}

static void open_scope(struct tm_scopes *x, struct tm_scope_process *p, const struct tm_step *s, uint32_t thread) {
	uint32_t process = p->ledger->process;
	uint64_t key = s->op == TM_OP_SCOPE_PUSH ? 0 : s->address, link = s->size_bytes;
	struct tm_scope *earlier = key ? scope_with_key(x, process, key) : NULL;
	if (s->op == TM_OP_SCOPE_BLOCK) abandon_left_blocks(x, thread, link, s->ns);
	/* Its end was lost: the key names something else now. */
	if (earlier && (earlier = scope_with_key(x, process, key))) end_scope(x, earlier, s->ns, TM_SCOPE_ABANDONED);
	size_t group = tm_scope_group_of(x, process, s->stack, s->heap);
	struct tm_scope *scope = group == SIZE_MAX ? NULL : tm_scope_new(x);
	if (!scope) return;
	scope->parent = tm_scopes_top(x, thread);
	scope->thread = thread;
	scope->process = process;
	scope->group = (uint32_t)group;
	scope->cuts = x->threads[thread - 1].cuts;
	if (x->threads[thread - 1].stack.count >= p->odd.deepest) p->odd.deepest = x->threads[thread - 1].stack.count + 1;
	scope->op = s->op;
	scope->refs = 1; /* the stack's */
	scope->start_ns = s->ns;
	scope->is_stacked = true;
	scope->is_apart = s->op == TM_OP_SCOPE_PUSH && link == TM_PUSH_APART;
	if (s->op == TM_OP_SCOPE_BLOCK) {
		scope->frame_address = link & TM_BLOCK_FRAME_MASK;
		scope->frame_call = (uint16_t)(link >> TM_BLOCK_FRAME_BITS);
	}
	if (scope->parent) tm_scope_at(x, scope->parent)->refs++;
	record_open(x, p, scope, s->op == TM_OP_SCOPE_RANGE ? link : 0);
	if (x->failed) return;
	enter(x, scope, key);
	list_open(x, p, scope);
}

static void play_end(struct tm_scopes *x, struct tm_scope_process *p, const struct tm_step *s, uint32_t thread) {
	struct tm_scope *scope = s->address ? scope_with_key(x, p->ledger->process, s->address) : pushed_scope(x, thread, s->heap);
	if (scope && scope->thread != thread) p->odd.across_threads++;
	if (scope) end_scope(x, scope, s->ns, s->op == TM_OP_SCOPE_EXCEPTION ? TM_SCOPE_EXCEPTION : TM_SCOPE_CLOSED);
	else p->unmatched_ends++;
}

void tm_scopes_play(struct tm_scopes *x, const struct tm_step *s, uint32_t thread) {
	struct tm_ledger *l = &x->ledgers[x->catalog->threads.items[thread - 1].process - 1];
	struct tm_scope_process *p = process_of(x, l);
	if (!p || x->failed) return;
	switch (s->op) {
	case TM_OP_SCOPE_PUSH:
	case TM_OP_SCOPE_BLOCK:
	case TM_OP_SCOPE_RANGE: open_scope(x, p, s, thread); break;
	case TM_OP_SCOPE_END:
	case TM_OP_SCOPE_EXCEPTION: play_end(x, p, s, thread); break;
	case TM_OP_STEP: tm_scope_step_begin(x, p, (int64_t)(s->address >> 1 ^ -(s->address & 1)), s->ns); break;
	default: break; /* of a later minor version */
	}
}

/* --- the ends of threads and processes --- */

/* Closes what is open on a thread, innermost first. */
static void close_all(struct tm_scopes *x, uint32_t thread, uint64_t ns, enum tm_scope_end kind) {
	struct tm_scope_thread *t = &x->threads[thread - 1];
	for (size_t i = t->stack.count; i-- > 0 && !x->failed;) {
		struct tm_scope *s = tm_scope_at(x, t->stack.items[i]);
		bool stays = kind == TM_SCOPE_THREAD && s->op == TM_OP_SCOPE_RANGE; /* another thread may end it */
		if (!stays) close_scope(x, s, ns, kind);
	}
}

void tm_scopes_pass_ends(struct tm_scopes *x, uint64_t ns) {
	for (; x->next_end < x->ends.count && x->ends.items[x->next_end].ns < ns; x->next_end++) {
		const struct tm_scope_thread_end *e = &x->ends.items[x->next_end];
		struct tm_scope_process *forks = e->thread ? NULL : x->ledgers[e->forks - 1].scopes;
		if (e->thread) close_all(x, e->thread, e->ns, TM_SCOPE_THREAD);
		else if (forks && forks->opened_last) forks->odd.forks++;
	}
	x->next_end_ns = x->next_end < x->ends.count ? x->ends.items[x->next_end].ns : UINT64_MAX;
}

void tm_scopes_exit(struct tm_scopes *x, struct tm_ledger *l, uint64_t ns) {
	if (l->scopes) tm_scope_step_end(x, l->scopes, ns);
}

void tm_scopes_end(struct tm_scopes *x, struct tm_ledger *l, uint64_t exit_ns, uint64_t end_ns) {
	if (!l->scopes) return;
	tm_scope_step_end(x, l->scopes, exit_ns);
	while (l->scopes->opened_last && !x->failed) close_all(x, tm_scope_at(x, l->scopes->opened_last)->thread, end_ns, TM_SCOPE_PROCESS);
}

static int compare_rows(const void *a, const void *b) {
	const struct tm_scope *x = *(struct tm_scope *const *)a, *y = *(struct tm_scope *const *)b;
	if (x->row != y->row) return x->row < y->row ? 1 : -1;
	return y->is_part - x->is_part;
}

/* What live blocks still hold: children were opened after their parents, and parts are added to their scope. */
void tm_scopes_finish(struct tm_scopes *x) {
	TM_ARRAY(struct tm_scope *) held = { 0 };
	for (uint32_t slot = 1; slot < x->slot_count && !x->failed; slot++) {
		if (!tm_scope_at(x, slot)->refs) continue;
		struct tm_scope **h = tm_array_push(&held);
		if (h) *h = tm_scope_at(x, slot);
		else x->failed = true;
	}
	if (held.count) qsort(held.items, held.count, sizeof *held.items, compare_rows);
	for (size_t i = 0; i < held.count && !x->failed; i++) tm_scope_finish(x, held.items[i]);
	tm_array_release(&held);
	if (x->spans.count && !x->failed) tm_scope_settle_overlaps(x);
	if (tm_scopes_error(x)) x->failed = true;
}

/* --- statistics begin anew --- */

void tm_scopes_baseline(struct tm_scopes *x, struct tm_ledger *l, uint64_t ns) {
	struct tm_scope_process *p = process_of(x, l);
	if (!p) return;
	p->baseline_ns = ns;
	for (size_t i = 0; i < l->accounts.count; i++) {
		struct tm_account *a = l->accounts.items[i];
		struct tm_scope_heap *h = tm_scope_heap_of(a);
		if (h) h->baseline = tm_level_now(a, ns);
	}
}
