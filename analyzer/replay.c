/* replay.c - plays a trace's events against the processes' accounts; see replay.h. */
#include "replay.h"

#include "foreign_trace.h"

#define FAR_STEPS 32 /* so many steps ahead what a step needs is asked of memory */
#define BLOCK_STEPS 20
#define STEPS_AHEAD 64               /* the steps themselves lie in the cache of the processor that decoded them */
#define MARK_SITES_TO_SCAN 50000000u /* snapshots at marks keep their stacks until they have cost this much ... */
#define MARK_SITES_TO_KEEP 1000000u  /* ... or this many rows */
#define CHAIN_MAX 65535u
#define CHECKPOINTS_A_DOUBLING 128u /* of the events: keeps them few in long traces */
#define CHECKPOINT_SITES_MAX 65536u

/* A thread, as far as the replay remembers it. */
struct tm_actor {
	struct tm_ledger *ledger;
	struct tm_account *last_account; /* its latest allocation, for `temporary`; NULL: none yet, or it is gone */
	uint64_t last_address;
	uint64_t moved_row;   /* between the two steps of a realloc or mremap: what the first one gave back, 0 unknown */
	unsigned moved_chain; /* how long its chain was */
	struct tm_account *moved_account;
	TM_ARRAY(uint32_t) origins; /* indexes of the origins it has used */
};

const char *tm_api_name(uint8_t op) {
	switch (op) {
#define X(name, code, api) \
	case code: return api;
		TM_OPS(X)
#undef X
	default: return "unknown";
	}
}

/* --- rows --- */

/* lifetime_ns TM_FEED_NULL: it is live at the end. Returns the row's id. */
static uint64_t write_row(struct tm_replay *r, const struct tm_account *a, const struct tm_block *b, uint64_t lifetime_ns,
			  uint64_t free_thread, uint32_t free_scope) {
	*tm_feed_next(r->feed) = (struct tm_feed_row){
		.address = r->hides_addresses ? TM_FEED_NULL : b->address,
		.size_bytes = b->size_bytes,
		.alloc_ns = b->alloc_ns + r->clock_offset_ns,
		.slack_bytes = b->slack == TM_SLACK_UNKNOWN ? TM_FEED_NULL : b->slack,
		.lifetime_ns = lifetime_ns,
		.free_thread = free_thread,
		.realloc_of_id = b->realloc_of ? b->realloc_of : TM_FEED_NULL,
		.origin_id = r->bases.origin + b->origin + 1,
		.stack_id = b->stack ? r->bases.stack + b->stack : 0,
		.scope_id = b->scope ? tm_scope_row(&r->scopes, b->scope) : TM_FEED_NULL,
		.free_scope_id = free_scope ? tm_scope_row(&r->scopes, free_scope) : TM_FEED_NULL,
		.weight = a->sampled ? tm_sample_weight(&a->ledger->scale, b->size_bytes) : 0,
	};
	tm_checkpoints_row(&r->checkpoints, b->alloc_ns, r->next_row + 1);
	return ++r->next_row;
}

/* As the column free_thread wants it: 0 for the thread that allocated, -1 if it did before its next allocation. */
static uint64_t free_thread_value(const struct tm_replay *r, const struct tm_block *b, uint32_t thread, bool temporary) {
	if (!thread) return TM_FEED_NULL;
	if (temporary) return TM_FEED_TEMPORARY;
	return r->origins.items[b->origin].thread == thread ? 0 : r->bases.thread + thread;
}

/* --- what pairing.c and ranges.c find out --- */

static struct tm_replay *replay_of(const struct tm_account *a) {
	return a->ledger->owner;
}

/* The levels that more than one heap adds to. */
static void raise_highs(struct tm_replay *r, const struct tm_account *a, const struct tm_block *b, struct tm_amount amount, bool passing) {
	if (a->device_high) tm_high_rises(&r->shared_highs.items[a->device_high - 1].high, amount, r->now_ns, passing);
	if (!a->is_root) return;
	tm_high_rises(&r->thread_highs[r->origins.items[b->origin].thread - 1], amount, r->now_ns, passing);
	if (a->ledger->rank_high) tm_high_rises(&r->shared_highs.items[a->ledger->rank_high - 1].high, amount, r->now_ns, passing);
}

static void lower_highs(struct tm_replay *r, const struct tm_account *a, const struct tm_block *b, struct tm_amount amount) {
	if (a->device_high) tm_high_falls(&r->shared_highs.items[a->device_high - 1].high, amount);
	if (!a->is_root) return;
	tm_high_falls(&r->thread_highs[r->origins.items[b->origin].thread - 1], amount);
	if (a->ledger->rank_high) tm_high_falls(&r->shared_highs.items[a->ledger->rank_high - 1].high, amount);
}

/* The thread frees what it allocated last. */
static bool ends_temporary(struct tm_replay *r, const struct tm_account *a, const struct tm_block *b, uint32_t thread) {
	if (!thread || r->origins.items[b->origin].thread != thread) return false;
	struct tm_actor *actor = &r->actors[thread - 1];
	if (actor->last_account != a || actor->last_address != b->address) return false;
	actor->last_account = NULL;
	return true;
}

static void block_allocated(void *context, const struct tm_block *b, bool passing) {
	struct tm_account *a = context;
	struct tm_amount amount = tm_account_amount(a, b->size_bytes);
	tm_checkpoints_late(&replay_of(a)->checkpoints, b->alloc_ns);
	if (a->ledger->scopes) tm_scope_level_rises(a, amount, b->scope, replay_of(a)->now_ns, passing);
	tm_account_allocated(a, b, amount, replay_of(a)->now_ns, passing);
	if (a->period && !passing) tm_peak_period_rises(a->period, &a->level.live, replay_of(a)->now_ns);
	if (a->gpu) tm_gpu_block_begins(&replay_of(a)->watch, a, b);
	raise_highs(replay_of(a), a, b, amount, passing);
}

static uint64_t block_released(void *context, const struct tm_block *b, uint64_t free_ns, uint32_t thread, uint32_t scope, bool lost) {
	struct tm_account *a = context;
	struct tm_replay *r = replay_of(a);
	if (lost) {
		a->ledger->lost_frees++;
		a->ledger->lost_free_bytes += b->size_bytes;
	}
	struct tm_amount amount = tm_account_amount(a, b->size_bytes);
	tm_checkpoints_late(&r->checkpoints, free_ns);
	if (a->ledger->scopes) tm_scope_level_falls(a, amount, b, scope, r->now_ns);
	bool temporary = ends_temporary(r, a, b, thread);
	tm_account_released(a, b, amount, r->now_ns, free_ns - b->alloc_ns, temporary);
	lower_highs(r, a, b, amount);
	r->released_chain = b->chain;
	uint64_t row = write_row(r, a, b, free_ns - b->alloc_ns, free_thread_value(r, b, thread, temporary), scope);
	if (a->gpu) tm_gpu_block_ends(&r->watch, a, b, r->origins.items[b->origin].thread, free_ns, row);
	tm_scope_let_go(&r->scopes, b->scope);
	tm_scope_let_go(&r->scopes, scope);
	return row;
}

static void free_unmatched(void *context, uint64_t address, uint32_t thread, uint32_t scope) {
	struct tm_account *a = context;
	(void)address;
	(void)thread;
	a->ledger->unmatched_frees += !a->ledger->stopped;
	tm_scope_let_go(&replay_of(a)->scopes, scope);
}

struct awaited {
	const struct tm_account *account;
	const struct tm_waiting *event;
	bool own;
	uint32_t next_thread; /* of the next event of the address */
	uint64_t next[2];     /* the next two themselves: twice their times, plus 1 for a free; UINT64_MAX: none */
};

static bool is_of_account(const struct awaited *w, uint32_t thread, const struct tm_step *s) {
	const struct tm_replay *r = replay_of(w->account);
	const struct tm_ledger *l = w->account->ledger;
	if ((s->kind != TM_STEP_FREE && s->kind != TM_STEP_ALLOC) || r->actors[thread - 1].ledger != l) return false;
	return (s->heap ? r->heap_accounts[s->heap - 1] : l->malloc_account) == w->account;
}

static bool is_awaited(void *context, uint32_t thread, const struct tm_step *s) {
	const struct awaited *w = context;
	return is_of_account(w, thread, s) && (s->kind == TM_STEP_FREE) != w->event->is_free && (thread != w->event->thread || w->own);
}

static bool note_next(void *context, uint32_t thread, const struct tm_step *s) {
	struct awaited *w = context;
	bool is_free = s->kind == TM_STEP_FREE, is_itself = is_free && thread == w->event->thread && s->ns <= w->event->ns;
	uint64_t key = 2 * s->ns + is_free;
	if (!is_of_account(w, thread, s) || is_itself) return false;
	if (key < w->next[0]) {
		w->next[1] = w->next[0];
		w->next[0] = key;
		w->next_thread = thread;
	} else if (key < w->next[1]) {
		w->next[1] = key;
	}
	return false;
}

static bool counterpart_comes(void *context, const struct tm_waiting *event, bool own, enum tm_pairing_doubt doubt) {
	struct awaited w = { context, event, own, 0, { UINT64_MAX, UINT64_MAX } };
	const struct tm_merge *coming = replay_of(w.account)->coming;
	uint64_t address = event->block.address, until_ns = event->ns + (doubt ? TM_EARLY_NS : TM_SKEW_NS);
	if (doubt != TM_PAIRING_OLDER &&
	    tm_merge_comes(coming, address, until_ns, event->is_free ? until_ns : event->ns + TM_WAIT_NS, is_awaited, &w))
		return true;
	if (doubt == TM_PAIRING_SURE) return false;
	tm_merge_comes(coming, address, event->ns + TM_SKEW_NS, event->ns + TM_SKEW_NS, note_next, &w);
	return !(w.next[0] & 1) && !(w.next[1] & 1) && (own || w.next_thread != event->thread);
}

static const struct tm_pairing_sink pairing_sink = { block_allocated, block_released, free_unmatched, counterpart_comes };

/* What a cut of the mappings is about. */
struct cutting {
	struct tm_replay *r;
	uint32_t thread;
	uint64_t ns;                /* stamp of the release */
	struct tm_account *account; /* of the first part given back, NULL none */
	uint64_t row;               /* its row */
	unsigned chain;             /* its chain of reallocations */
};

static uint64_t part_released(void *context, const struct tm_range *part, unsigned survivors) {
	struct cutting *c = context;
	const struct tm_block *b = &part->block;
	struct tm_account *a = part->account;
	bool temporary = !part->split && ends_temporary(c->r, a, b, c->thread);
	struct tm_amount amount = tm_account_amount(a, b->size_bytes);
	uint32_t scope = a->ledger->scopes ? tm_scope_free(&c->r->scopes, c->thread, a) : 0;
	tm_checkpoints_late(&c->r->checkpoints, c->ns);
	if (a->ledger->scopes) {
		/* Before the account knows of the parts: what opened last began with the mapping whole. */
		tm_scope_split(a, b, survivors);
		tm_scope_level_falls(a, amount, b, scope, c->r->now_ns);
	}
	tm_account_split(a, b->stack, survivors);
	uint64_t free_ns = c->ns > b->alloc_ns ? c->ns : b->alloc_ns;
	tm_account_released(a, b, amount, c->r->now_ns, free_ns - b->alloc_ns, temporary);
	/* They are not told of the split apart; the count wraps where two parts take the place of one. */
	amount.count -= tm_account_parts(a, survivors).count;
	lower_highs(c->r, a, b, amount);
	if (a->gpu) tm_gpu_part_ends(&c->r->watch, a, b);
	uint64_t row = write_row(c->r, a, b, free_ns - b->alloc_ns, free_thread_value(c->r, b, c->thread, temporary), scope);
	tm_scope_let_go(&c->r->scopes, b->scope);
	tm_scope_let_go(&c->r->scopes, scope);
	if (!c->account) {
		c->account = a;
		c->row = row;
		c->chain = b->chain;
	}
	return row;
}

/* --- heaps, call sites and origins --- */

/* Number + 1 of the level of a rank or device, made if it is new; 0: out of memory. */
static uint32_t shared_high(struct tm_replay *r, bool is_device, int64_t number, struct tm_text identity) {
	for (size_t i = 0; i < r->shared_highs.count; i++) {
		const struct tm_shared_high *s = &r->shared_highs.items[i];
		if (s->is_device != is_device || s->identity.size != identity.size) continue;
		if (identity.size && memcmp(s->identity.data, identity.data, identity.size) != 0) continue;
		if (s->number == number || (is_device && identity.size)) return (uint32_t)i + 1;
	}
	struct tm_shared_high *s = tm_array_push(&r->shared_highs);
	if (!s) {
		r->failed = true;
		return 0;
	}
	s->is_device = is_device;
	s->number = number;
	s->identity = identity;
	return (uint32_t)r->shared_highs.count;
}

static struct tm_text uuid_of(const struct tm_replay *r, uint32_t process, int64_t device) {
	for (size_t i = 0; i < r->catalog->devices.count; i++) {
		const struct tm_catalog_device *d = &r->catalog->devices.items[i];
		if (d->process == process && (int64_t)d->device == device) return d->uuid;
	}
	return tm_text_of("");
}

static bool kind_is(const struct tm_account *a, const char *word) {
	return a->kind.size == strlen(word) && memcmp(a->kind.data, word, a->kind.size) == 0;
}

/* Reserved addresses hold no memory, imported memory is another process', and what lies inside of another heap is counted there, but for the blocks of the
 * driver's pools: the pools themselves are no blocks. */
static bool adds_to_device(const struct tm_account *a) {
	if (a->device < 0 || kind_is(a, "address-space") || kind_is(a, "imported")) return false;
	return !a->parent_id || kind_is(a, "device-pool");
}

static struct tm_account *open_account(struct tm_replay *r, struct tm_ledger *l, struct tm_text name, struct tm_text kind, int64_t device,
				       uint64_t parent_id) {
	struct tm_account *a = tm_ledger_open_account(l, ++r->next_heap, name, kind, device, parent_id);
	if (!a) {
		r->failed = true;
		return NULL;
	}
	if (adds_to_device(a)) a->device_high = shared_high(r, true, device, uuid_of(r, l->process, device));
	tm_gpu_watch_heap(&r->watch, a);
	a->sites.stacks = r->stacks->node_first[r->catalog->nodes.count];
	tm_pairing_init(&a->pairing, &pairing_sink, a);
	a->pairing.alone = l->threads < 2;
	a->pairing.inherits = r->begins_midway || l->stopped || r->catalog->processes.items[l->process - 1].flags & TM_PROCESS_FORKED;
	bool has_losses = tm_catalog_has_losses(r->catalog, l->process);
	a->pairing.has_strays = has_losses || tm_catalog_is_bypassed(r->catalog, l->process);
	a->pairing.has_gaps = l->stopped || has_losses;
	return a;
}

static struct tm_account *catalog_account(struct tm_replay *r, uint32_t heap) {
	struct tm_account **place = &r->heap_accounts[heap - 1];
	const struct tm_catalog_heap *h = &r->catalog->heaps.items[heap - 1];
	if (*place) return *place;
	struct tm_account *parent = h->parent ? catalog_account(r, h->parent) : NULL;
	*place = open_account(r, &r->ledgers[h->process - 1], h->name, h->kind, h->device, parent ? parent->id : 0);
	return *place;
}

/* The process' heap of this name: the one that the trace defines, else one of our own. */
static struct tm_account *default_account(struct tm_replay *r, struct tm_ledger *l, struct tm_account **place, const char *name,
					  const char *kind) {
	if (*place) return *place;
	for (size_t i = 0; i < r->catalog->heaps.count && !*place; i++) {
		const struct tm_catalog_heap *h = &r->catalog->heaps.items[i];
		if (h->defined && h->process == l->process && h->name.size == strlen(name) && !memcmp(h->name.data, name, h->name.size))
			*place = catalog_account(r, (uint32_t)i + 1);
	}
	if (!*place) *place = open_account(r, l, tm_text_of(name), tm_text_of(kind), -1, 0);
	return *place;
}

static struct tm_account *account_of(struct tm_replay *r, struct tm_ledger *l, const struct tm_step *s) {
	if (s->heap) return catalog_account(r, s->heap);
	if (s->kind != TM_STEP_MAP) return default_account(r, l, &l->malloc_account, "malloc", "host");
	if (s->op == TM_OP_MMAP_FILE) return default_account(r, l, &l->file_account, "mmap-file", "file");
	return default_account(r, l, &l->mmap_account, "mmap", "mapping");
}

static uint32_t origin_of(struct tm_replay *r, struct tm_actor *actor, struct tm_account *a, uint32_t thread, uint8_t op) {
	for (size_t i = 0; i < actor->origins.count; i++) {
		const struct tm_origin *o = &r->origins.items[actor->origins.items[i]];
		if (o->account == a && o->op == op) return actor->origins.items[i];
	}
	struct tm_origin *fresh = tm_array_push(&r->origins);
	uint32_t *index = tm_array_push(&actor->origins);
	if (!fresh || !index) {
		r->failed = true;
		return 0;
	}
	*fresh = (struct tm_origin){ a, thread, op };
	return *index = (uint32_t)(r->origins.count - 1);
}

/* --- events --- */

static void watch_waiting(struct tm_replay *r, struct tm_account *a) {
	if (a->is_waiting || !tm_pairing_waits(&a->pairing)) return;
	a->is_waiting = true;
	a->next_waiting = r->waiting;
	r->waiting = a;
	if (r->look_ns > r->now_ns + TM_SKEW_NS) r->look_ns = r->now_ns + TM_SKEW_NS;
}

/* Gives up on what has waited too long, and looks again later. */
static void look_at_waiting(struct tm_replay *r, uint64_t now_ns) {
	struct tm_account *a = r->waiting;
	r->waiting = NULL;
	r->look_ns = UINT64_MAX;
	for (struct tm_account *next; a; a = next) {
		next = a->next_waiting;
		a->is_waiting = false;
		tm_pairing_expire(&a->pairing, now_ns);
		watch_waiting(r, a);
	}
}

/* Zeroed first: a literal would store what its bits are in besides pieces of words, which whoever reads the words waits for. */
static void make_block(struct tm_replay *r, const struct tm_turn *turn, struct tm_account *a, struct tm_actor *actor, struct tm_block *b) {
	const struct tm_step *s = turn->step;
	memset(b, 0, sizeof *b);
	b->address = s->address;
	b->size_bytes = s->size_bytes;
	b->alloc_ns = s->ns;
	b->stack = s->stack;
	b->origin = origin_of(r, actor, a, turn->thread, s->op);
	b->slack = s->slack;
	b->chain = s->op == TM_OP_REALLOC_ALONE || (s->follows && s->kind == TM_STEP_ALLOC); /* of what is not known */
	if (!s->follows || !actor->moved_row) return;
	b->realloc_of = actor->moved_row;
	b->chain = actor->moved_chain + (actor->moved_chain < CHAIN_MAX);
}

static void remember_allocation(struct tm_actor *actor, struct tm_account *a, uint64_t address) {
	actor->last_account = a;
	actor->last_address = address;
}

/* The block belongs to what is open on its thread now. */
static struct tm_scope_lane *put_in_scope(struct tm_replay *r, const struct tm_turn *turn, struct tm_account *a, struct tm_block *b) {
	struct tm_scope_lane *lane;
	b->scope = tm_scope_allocate(&r->scopes, turn->thread, a, tm_account_amount(a, b->size_bytes), &lane) & INT32_MAX;
	b->step_is_odd = a->ledger->scopes->step_number & 1;
	return lane;
}

static void play_free(struct tm_replay *r, const struct tm_turn *turn, struct tm_actor *actor) {
	struct tm_account *a = account_of(r, actor->ledger, turn->step);
	if (!a) return;
	if (tm_merge_is_late(r->coming, turn->step) && tm_pairing_is_outlived(&a->pairing, turn->step->address, turn->step->ns)) {
		actor->moved_row = 0;
		return;
	}
	uint32_t scope = a->ledger->scopes ? tm_scope_free(&r->scopes, turn->thread, a) : 0;
	actor->moved_row = tm_pairing_free(&a->pairing, turn->step->address, turn->step->ns, turn->thread, scope);
	actor->moved_chain = r->released_chain;
	if (a->pairing.failed) r->failed = true;
	watch_waiting(r, a);
}

static void play_alloc(struct tm_replay *r, const struct tm_turn *turn, struct tm_actor *actor) {
	struct tm_account *a = account_of(r, actor->ledger, turn->step);
	if (!a) return;
	struct tm_block b;
	make_block(r, turn, a, actor, &b);
	if (r->failed || a->ledger->failed) return;
	remember_allocation(actor, a, b.address);
	struct tm_scope_lane *lane = a->ledger->scopes ? put_in_scope(r, turn, a, &b) : NULL;
	tm_pairing_alloc(&a->pairing, &b, turn->thread);
	if (lane) tm_scope_lane_allocates(lane, tm_account_amount(a, b.size_bytes).bytes);
	if (a->pairing.failed) r->failed = true;
	watch_waiting(r, a);
}

static uint64_t end_of(const struct tm_replay *r, const struct tm_step *s) {
	return s->address + s->size_bytes + tm_op_spare(s->op, s->size_bytes, r->catalog->page_bytes);
}

static void play_unmap(struct tm_replay *r, const struct tm_turn *turn, struct tm_actor *actor) {
	const struct tm_step *s = turn->step;
	struct cutting c = { .r = r, .thread = turn->thread, .ns = s->ns };
	tm_ranges_cut(&actor->ledger->ranges, s->address, end_of(r, s), s->ns, part_released, &c);
	actor->moved_row = c.row;
	actor->moved_chain = c.chain;
	actor->moved_account = c.account;
	if (s->size_bytes) {
		bool forked = r->catalog->processes.items[actor->ledger->process - 1].flags & TM_PROCESS_FORKED;
		actor->ledger->unmatched_frees += !c.account && forked && !actor->ledger->stopped;
		return;
	}
	const struct tm_range *stays = tm_ranges_at(&actor->ledger->ranges, s->address); /* an mremap doubles it, or takes its pages */
	actor->moved_account = stays ? stays->account : NULL;
}

static void play_map(struct tm_replay *r, const struct tm_turn *turn, struct tm_actor *actor) {
	const struct tm_step *s = turn->step;
	bool moved = s->follows && !s->heap && actor->moved_account;
	struct tm_account *a = moved ? actor->moved_account : account_of(r, actor->ledger, s);
	struct cutting c = { .r = r, .thread = turn->thread, .ns = s->ns };
	uint64_t end = end_of(r, s);
	if (!a || end == s->address) return;
	tm_ranges_cut(&actor->ledger->ranges, s->address, end, UINT64_MAX, part_released, &c);
	struct tm_range range = { .end = end, .account = a };
	make_block(r, turn, a, actor, &range.block);
	if (r->failed || a->ledger->failed) return;
	range.block.slack = TM_SLACK_UNKNOWN;
	remember_allocation(actor, a, s->address);
	struct tm_scope_lane *lane = a->ledger->scopes ? put_in_scope(r, turn, a, &range.block) : NULL;
	if (lane) tm_scope_lane_allocates(lane, tm_account_amount(a, range.block.size_bytes).bytes);
	block_allocated(a, &range.block, false);
	if (a->gpu) tm_gpu_segment_begins(a, s->address, s->op == TM_FOREIGN_MAP_PIECE);
	tm_ranges_insert(&actor->ledger->ranges, &range);
	if (actor->ledger->ranges.failed) r->failed = true;
}

static void play_gpu(struct tm_replay *r, const struct tm_turn *turn, struct tm_actor *actor) {
	uint32_t scope = actor->ledger->scopes ? tm_scopes_top(&r->scopes, turn->thread) : 0;
	tm_gpu_rows_play(&r->gpu, turn->step, actor->ledger->process, turn->thread, tm_scope_row(&r->scopes, scope));
	tm_gpu_watch_step(&r->watch, actor->ledger, turn->step, turn->thread);
	if (r->gpu.failed) r->failed = true;
}

/* --- instants --- */

static void keep_sites(struct tm_replay *r, struct tm_mark_snapshot *s) {
	const struct tm_sites *sites = &s->account->sites;
	for (uint32_t i = 0; i < sites->heads.count; i++) {
		struct tm_amount live = tm_site_amount(sites, i, TM_SITE_LIVE);
		if (!live.count && !live.bytes) continue;
		struct tm_snapshot_site *kept = tm_array_push(&r->snapshot_sites);
		if (!kept) {
			r->failed = true;
			return;
		}
		*kept = (struct tm_snapshot_site){ sites->heads.items[i].stack, live };
		s->count++;
	}
}

static void pass_mark(struct tm_replay *r, uint64_t ns, uint32_t process, uint32_t thread, uint8_t op, struct tm_text name) {
	struct tm_mark_row *mark = tm_array_push(&r->marks);
	if (!mark) {
		r->failed = true;
		return;
	}
	*mark = (struct tm_mark_row){ ns, process, thread, op, name };
	struct tm_ledger *l = &r->ledgers[process - 1];
	tm_ledger_settle(l);
	for (size_t i = 0; i < l->accounts.count; i++) {
		const struct tm_account *a = l->accounts.items[i];
		struct tm_mark_snapshot *s = tm_array_push(&r->mark_snapshots);
		if (!s) {
			r->failed = true;
			return;
		}
		*s = (struct tm_mark_snapshot){ r->marks.count - 1, a, a->level.live, r->snapshot_sites.count, 0, false };
		s->detailed = r->sites_to_scan >= a->sites.heads.count && r->snapshot_sites.count < MARK_SITES_TO_KEEP;
		if (!s->detailed) continue;
		r->sites_to_scan -= a->sites.heads.count;
		keep_sites(r, s);
	}
}

static void judge_leaks(struct tm_replay *r, struct tm_ledger *l, uint64_t exit_ns) {
	if (!l->failed && !tm_leaks_find(&r->leaks, l, r, exit_ns)) r->failed = true;
	tm_leak_watch_end(&l->watch);
}

/* What is live now is what leaks are judged by: at once, or where nothing will happen any more, when there is time. */
static void leave_process(struct tm_replay *r, struct tm_ledger *l, uint64_t ns) {
	tm_ledger_exit(l);
	if (!r->ended) {
		judge_leaks(r, l, ns);
		return;
	}
	struct tm_leaver *last = tm_array_push(&r->leavers);
	if (last) *last = (struct tm_leaver){ l, ns };
	else r->failed = true;
}

static void look_at_device(const struct tm_replay *r, struct tm_device_gap *g) {
	const struct tm_ledger *l = &r->ledgers[g->process - 1];
	for (size_t i = 0; i < l->accounts.count; i++) {
		const struct tm_account *a = l->accounts.items[i];
		uint64_t live_bytes = tm_scaled_bytes(a, a->level.live.bytes);
		if (a->device != g->device) continue;
		if (kind_is(a, "device")) g->device_bytes += live_bytes;
		else if (kind_is(a, "device-pool")) g->pool_bytes += live_bytes;
		else if (!a->parent_id && kind_is(a, "tensor")) g->tensor_bytes += live_bytes;
	}
}

static void give_up(struct tm_shared_high *s, struct tm_amount amount) {
	tm_high_falls(&s->high, amount);
	tm_amount_add(&s->gone, amount);
}

/* What it holds goes with it: ranks and devices may have other processes, then or later. */
static void end_process(struct tm_replay *r, struct tm_ledger *l) {
	for (size_t i = 0; i < l->accounts.count; i++) {
		struct tm_account *a = l->accounts.items[i];
		if (a->device_high) give_up(&r->shared_highs.items[a->device_high - 1], a->level.live);
		if (a->is_root && l->rank_high) give_up(&r->shared_highs.items[l->rank_high - 1], a->level.live);
		a->device_high = 0;
	}
	l->rank_high = 0;
}

static void pass_instant(struct tm_replay *r, const struct tm_instant *i) {
	if (i->kind == TM_INSTANT_EXIT) {
		leave_process(r, &r->ledgers[i->process - 1], i->ns);
		tm_scopes_exit(&r->scopes, &r->ledgers[i->process - 1], i->ns);
	} else if (i->kind == TM_INSTANT_END) {
		end_process(r, &r->ledgers[i->process - 1]);
	} else if (i->kind == TM_INSTANT_RSS) {
		r->gaps.items[i->index].live_bytes = r->ledgers[i->process - 1].level.live.bytes >>
						     r->ledgers[i->process - 1].scale.bytes_shift;
	} else if (i->kind == TM_INSTANT_DEVICE) {
		look_at_device(r, &r->device_gaps.items[i->index]);
	} else {
		const struct tm_catalog_mark *m = &r->catalog->marks.items[i->index];
		pass_mark(r, m->ns, m->process, m->thread, TM_OP_MARK, m->name);
	}
}

/* What happens at the very nanosecond of an instant has happened by then. */
static void pass_instants(struct tm_replay *r, uint64_t ns) {
	while (r->next_instant < r->instants.count) {
		const struct tm_instant *i = &r->instants.items[r->next_instant];
		if (i->ns >= ns) return;
		r->next_instant++;
		pass_instant(r, i);
	}
}

static bool add_instant(struct tm_replay *r, uint64_t ns, enum tm_instant_kind kind, uint32_t process, size_t index) {
	struct tm_instant *i = tm_array_push(&r->instants);
	if (i) *i = (struct tm_instant){ ns, kind, process, (uint32_t)index };
	return i != NULL;
}

static int compare_instants(const void *a, const void *b) {
	const struct tm_instant *x = a, *y = b;
	if (x->ns != y->ns) return x->ns < y->ns ? -1 : 1;
	if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
	return (x->index > y->index) - (x->index < y->index);
}

static bool list_instants(struct tm_replay *r) {
	const struct tm_catalog *c = r->catalog;
	bool done = true;
	for (size_t i = 0; i < c->processes.count; i++) {
		const struct tm_catalog_process *p = &c->processes.items[i];
		if (p->defined && p->exit_ns != TM_NEVER && !(p->ended && p->end_kind == TM_END_EXEC))
			done = done && add_instant(r, p->exit_ns, TM_INSTANT_EXIT, (uint32_t)i + 1, i);
		if (p->defined && p->ended && p->end_ns != TM_NEVER)
			done = done && add_instant(r, p->end_ns, TM_INSTANT_END, (uint32_t)i + 1, i);
	}
	for (size_t i = 0; i < c->marks.count; i++)
		done = done && add_instant(r, c->marks.items[i].ns, TM_INSTANT_MARK, c->marks.items[i].process, i);
	for (size_t i = 0; i < r->gaps.count; i++)
		done = done && add_instant(r, r->gaps.items[i].ns, TM_INSTANT_RSS, r->gaps.items[i].process, i);
	for (size_t i = 0; i < r->device_gaps.count; i++)
		done = done && add_instant(r, r->device_gaps.items[i].ns, TM_INSTANT_DEVICE, r->device_gaps.items[i].process, i);
	if (r->instants.count) qsort(r->instants.items, r->instants.count, sizeof *r->instants.items, compare_instants);
	return done;
}

/* --- checkpoints --- */

/* What each stack has live. */
static bool gather_stacks(struct tm_replay *r, const struct tm_account *a) {
	for (uint32_t i = 0; i < a->sites.heads.count; i++) {
		struct tm_amount live = tm_site_amount(&a->sites, i, TM_SITE_LIVE);
		if (!live.count) continue;
		struct tm_checkpoint_stack *kept = tm_array_push(&r->checkpoints.stacks);
		if (!kept) return false;
		*kept = (struct tm_checkpoint_stack){ (uint32_t)a->id, a->sites.heads.items[i].stack, live.bytes, live.count };
	}
	return true;
}

/* Calls f for every heap until it says no. */
static bool each_account(struct tm_replay *r, bool (*f)(struct tm_replay *r, const struct tm_account *a)) {
	for (size_t i = 0; i < r->catalog->processes.count; i++) {
		const struct tm_ledger *l = &r->ledgers[i];
		for (size_t k = 0; k < l->accounts.count; k++)
			if (!f(r, l->accounts.items[k])) return false;
	}
	return true;
}

/* What waits has not taken effect though its time has come. */
static bool is_settled(struct tm_replay *r, const struct tm_account *a) {
	r->checkpoint_sites += a->sites.heads.count;
	r->checkpoint_splits += a->splits;
	return !tm_pairing_waits(&a->pairing);
}

static void settle(struct tm_replay *r) {
	tm_site_changes_settle(&r->changes);
	if (r->changes.failed) r->failed = true;
}

/* Stacks are kept where they can be counted back to the checkpoint before from whole blocks. */
static void take_checkpoint(struct tm_replay *r, uint64_t ns) {
	uint64_t splits = r->checkpoint_splits;
	settle(r);
	r->checkpoint_sites = r->checkpoint_splits = 0;
	bool keeps = each_account(r, is_settled) && r->checkpoint_sites <= CHECKPOINT_SITES_MAX && r->checkpoint_splits == splits &&
		     !r->catalog->sample_bytes;
	tm_checkpoints_take(&r->checkpoints, ns, r->next_row);
	if (!keeps || r->checkpoints.error) return;
	r->checkpoints.stacks.count = 0;
	if (each_account(r, gather_stacks)) tm_checkpoints_keep_stacks(&r->checkpoints);
	else r->failed = true;
}

static void look_for_checkpoint(struct tm_replay *r) {
	uint64_t apart = r->events / CHECKPOINTS_A_DOUBLING;
	take_checkpoint(r, r->now_ns + 1);
	r->next_look_events = r->events + (apart > TM_CHECKPOINT_EVENTS ? apart : TM_CHECKPOINT_EVENTS);
}

/* --- the whole --- */

static void reset_peak(struct tm_replay *r, struct tm_ledger *l, struct tm_text heap, uint64_t ns) {
	for (size_t i = 0; i < l->accounts.count; i++) {
		struct tm_account *a = l->accounts.items[i];
		if (a->name.size == heap.size && memcmp(a->name.data, heap.data, heap.size) == 0) tm_peak_periods_reset(&r->periods, a, ns);
	}
	if (r->periods.failed) r->failed = true;
}

/* A fork's child of a process that had stopped begins with a stop. */
static void pause_recording(struct tm_replay *r, struct tm_ledger *l, uint64_t ns) {
	struct tm_pause *p = tm_array_push(&r->pauses);
	tm_ledger_pause(l);
	if (p) *p = (struct tm_pause){ l->process, ns, TM_NEVER };
	else r->failed = true;
}

static void resume_recording(struct tm_replay *r, uint32_t process, uint64_t ns) {
	for (size_t i = r->pauses.count; i-- > 0;) {
		struct tm_pause *p = &r->pauses.items[i];
		if (p->process != process) continue;
		if (p->end_ns != TM_NEVER) return;
		p->end_ns = ns;
		tm_ledger_pause(&r->ledgers[process - 1]);
		return;
	}
}

static void play_mark(struct tm_replay *r, const struct tm_turn *turn, struct tm_actor *actor) {
	const struct tm_step *s = turn->step;
	struct tm_text name = s->address ? r->catalog->strings.items[s->address - 1] : tm_text_of("");
	if (s->op == TM_OP_STOP) pause_recording(r, actor->ledger, s->ns);
	if (s->op == TM_OP_START) resume_recording(r, actor->ledger->process, s->ns);
	if (s->op == TM_OP_RESET_PEAK) reset_peak(r, actor->ledger, name, s->ns);
	if (s->op == TM_OP_BASELINE) {
		tm_scopes_baseline(&r->scopes, actor->ledger, s->ns);
		name = tm_text_of("baseline");
	}
	if (s->op == TM_OP_MARK || s->op == TM_OP_SNAPSHOT || s->op == TM_OP_BASELINE)
		pass_mark(r, s->ns, actor->ledger->process, turn->thread, s->op, name);
}

/* The next steps of the same thread are mostly of the same heap. Far ahead the slot that will be looked at is asked for, and nearer the block. */
static void look_ahead(const struct tm_turn *turn, const struct tm_actor *actor) {
	const struct tm_account *a = actor->ledger->malloc_account;
	if (turn->end - turn->step <= FAR_STEPS || !a) return;
	__builtin_prefetch(&turn->step[STEPS_AHEAD]);
	const struct tm_step *far = &turn->step[FAR_STEPS];
	tm_blocks_prefetch_slot(&a->pairing.blocks, far->address);
	const struct tm_step *near = &turn->step[BLOCK_STEPS];
	if (near->kind == TM_STEP_FREE) tm_blocks_prefetch_block(&a->pairing.blocks, near->address);
}

void tm_replay_turn(struct tm_replay *r, const struct tm_turn *turn) {
	const struct tm_step *s = turn->step;
	struct tm_actor *actor = &r->actors[turn->thread - 1];
	look_ahead(turn, actor);
	if (r->next_instant < r->instants.count && r->instants.items[r->next_instant].ns < turn->ns) pass_instants(r, turn->ns);
	/* Between two instants, so that every event lies on one side by its time. */
	if (r->events >= r->next_look_events && turn->ns > r->now_ns) look_for_checkpoint(r);
	r->now_ns = turn->ns;
	if (r->look_ns < turn->ns) look_at_waiting(r, turn->ns);
	if (r->scopes.next_end_ns < turn->ns) tm_scopes_pass_ends(&r->scopes, turn->ns);
	r->events += s->kind < TM_STEP_MARK;
	actor->ledger->last_ns = turn->ns;
	switch (s->kind) {
	case TM_STEP_ALLOC: play_alloc(r, turn, actor); break;
	case TM_STEP_FREE: play_free(r, turn, actor); break;
	case TM_STEP_MAP: play_map(r, turn, actor); break;
	case TM_STEP_UNMAP: play_unmap(r, turn, actor); break;
	case TM_STEP_MARK: play_mark(r, turn, actor); break;
	case TM_STEP_SCOPE: tm_scopes_play(&r->scopes, s, turn->thread); break;
	case TM_STEP_GPU: play_gpu(r, turn, actor); break;
	}
	if (actor->ledger->failed || r->scopes.failed || r->checkpoints.error || r->watch.failed) r->failed = true;
}

static uint64_t later(uint64_t a, uint64_t b) {
	return b != TM_NEVER && b > a ? b : a;
}

uint64_t tm_replay_stopped_ns(const struct tm_replay *r) {
	uint64_t stopped_ns = tm_catalog_stopped_ns(r->catalog);
	if (stopped_ns == TM_NEVER || r->now_ns >= stopped_ns) return stopped_ns;
	for (size_t i = 0; i < r->catalog->losses.count; i++)
		if (tm_is_note(r->catalog->losses.items[i].kind, TM_NOTE_STOPPED_BY_SIZE)) return r->now_ns;
	return stopped_ns;
}

uint64_t tm_process_end_ns(const struct tm_replay *r, uint32_t process) {
	const struct tm_catalog_process *p = &r->catalog->processes.items[process - 1];
	uint64_t end_ns = later(later(later(p->start_ns, r->ledgers[process - 1].last_ns), p->exit_ns), p->end_ns);
	return p->ended ? end_ns : later(end_ns, r->known_until_ns);
}

uint64_t tm_process_exit_ns(const struct tm_replay *r, uint32_t process) {
	const struct tm_catalog_process *p = &r->catalog->processes.items[process - 1];
	bool left = p->exit_ns != TM_NEVER && !(p->ended && p->end_kind == TM_END_EXEC);
	return left ? p->exit_ns : tm_process_end_ns(r, process);
}

static void write_live_range(void *context, const struct tm_range *range) {
	write_row(context, range->account, &range->block, TM_FEED_NULL, TM_FEED_NULL, 0);
}

static void write_live_block(struct tm_replay *r, struct tm_account *a, const struct tm_block *b) {
	uint64_t row = write_row(r, a, b, TM_FEED_NULL, TM_FEED_NULL, 0);
	if (a->gpu) tm_gpu_block_ends(&r->watch, a, b, r->origins.items[b->origin].thread, TM_NEVER, row);
}

static void write_live_blocks(struct tm_replay *r, struct tm_account *a) {
	const struct tm_blocks *blocks = &a->pairing.blocks;
	for (size_t i = 0; i < blocks->all.count; i++)
		if (blocks->all.items[i].used) write_live_block(r, a, &blocks->all.items[i]);
}

/* Behind every instant. */
static void take_last_checkpoint(struct tm_replay *r) {
	uint64_t end_ns = r->now_ns;
	for (size_t i = 0; i < r->catalog->processes.count; i++) {
		uint64_t ns = tm_process_end_ns(r, (uint32_t)i + 1);
		if (ns > end_ns) end_ns = ns;
	}
	take_checkpoint(r, end_ns + 1);
}

static void end_changes(struct tm_replay *r) {
	tm_site_changes_finish(&r->changes);
	for (size_t i = 0; r->ledgers && i < r->catalog->processes.count; i++) r->ledgers[i].changes = NULL;
}

void tm_replay_end(struct tm_replay *r) {
	r->ended = true;
	look_at_waiting(r, UINT64_MAX);
	pass_instants(r, UINT64_MAX);
	tm_scopes_pass_ends(&r->scopes, UINT64_MAX);
	take_last_checkpoint(r);
	for (size_t i = 0; i < r->catalog->processes.count && !r->failed; i++) {
		struct tm_ledger *l = &r->ledgers[i];
		bool execed_away = r->catalog->processes.items[i].ended && r->catalog->processes.items[i].end_kind == TM_END_EXEC;
		if (!l->exited && !execed_away) leave_process(r, l, tm_process_exit_ns(r, (uint32_t)i + 1));
		if (l->failed) r->failed = true;
		tm_ledger_end(l, tm_process_end_ns(r, (uint32_t)i + 1));
		tm_scopes_end(&r->scopes, l, tm_process_exit_ns(r, (uint32_t)i + 1), tm_process_end_ns(r, (uint32_t)i + 1));
		for (size_t k = 0; k < l->accounts.count; k++) write_live_blocks(r, l->accounts.items[k]);
		tm_ranges_each(&l->ranges, write_live_range, r);
	}
	settle(r);
	end_changes(r);
	tm_peak_periods_end(&r->periods);
	tm_scopes_finish(&r->scopes);
	if (r->scopes.failed || r->checkpoints.error || r->watch.failed || r->periods.failed) r->failed = true;
}

void tm_replay_judge(struct tm_replay *r) {
	for (size_t i = 0; i < r->leavers.count && !r->failed; i++) judge_leaks(r, r->leavers.items[i].ledger, r->leavers.items[i].exit_ns);
	for (size_t i = 0; i < r->catalog->processes.count; i++)
		for (size_t k = 0; k < r->ledgers[i].accounts.count; k++) tm_pairing_release(&r->ledgers[i].accounts.items[k]->pairing);
	tm_leaks_end(&r->leaks);
}

int tm_replay_init(struct tm_replay *r, const struct tm_catalog *catalog, const struct tm_stack_ids *stacks, struct tm_feed *feed,
		   const struct tm_bases *bases, uint64_t clock_offset_ns, struct tm_readings *readings, const struct tm_foreign *foreign,
		   const char *beside) {
	*r = (struct tm_replay){ .catalog = catalog,
				 .stacks = stacks,
				 .feed = feed,
				 .bases = *bases,
				 .hides_addresses = foreign && foreign->hides_addresses,
				 .begins_midway = foreign != NULL,
				 .clock_offset_ns = clock_offset_ns,
				 .next_row = bases->row,
				 .next_heap = bases->heap,
				 .look_ns = UINT64_MAX,
				 .sites_to_scan = MARK_SITES_TO_SCAN,
				 .next_look_events = TM_CHECKPOINT_EVENTS };
	memcpy(&r->gaps, &readings->gaps, sizeof r->gaps);
	memcpy(&r->device_gaps, &readings->device_gaps, sizeof r->device_gaps);
	*readings = (struct tm_readings){ 0 };

	r->ledgers = calloc(catalog->processes.count + 1, sizeof *r->ledgers);
	r->actors = calloc(catalog->threads.count + 1, sizeof *r->actors);
	r->heap_accounts = calloc(catalog->heaps.count + 1, sizeof *r->heap_accounts);
	r->thread_highs = calloc(catalog->threads.count + 1, sizeof *r->thread_highs);
	tm_checkpoints_init(&r->checkpoints, beside);
	if (!r->ledgers || !r->actors || !r->heap_accounts || !r->thread_highs || !list_instants(r)) return -1;
	if (tm_site_changes_start(&r->changes) < 0) return -1;
	tm_leak_frames_start(&r->leaks.frames, stacks);
	tm_checkpoints_take(&r->checkpoints, 0, r->next_row);
	struct tm_scale scale = { .mean_bytes = (double)catalog->sample_bytes };
	tm_gpu_rows_init(&r->gpu, beside);
	if (tm_gpu_watch_init(&r->watch, catalog, beside) < 0) return -1;
	if (tm_scopes_init(&r->scopes, catalog, r->ledgers, bases->scope, beside) < 0) return -1;
	for (size_t i = 0; i < catalog->processes.count; i++) {
		tm_ledger_init(&r->ledgers[i], (uint32_t)i + 1, catalog->processes.items[i].start_ns, catalog->window_start_ns, scale);
		r->ledgers[i].owner = r;
		r->ledgers[i].changes = &r->changes;
		if (catalog->processes.items[i].defined && catalog->processes.items[i].rank >= 0)
			r->ledgers[i].rank_high = shared_high(r, false, catalog->processes.items[i].rank,
							      catalog->processes.items[i].world);
	}
	for (size_t i = 0; i < catalog->threads.count; i++) {
		r->actors[i].ledger = &r->ledgers[catalog->threads.items[i].process - 1];
		r->actors[i].ledger->threads++;
	}
	for (size_t i = 0; i < catalog->heaps.count; i++)
		if (catalog->heaps.items[i].defined && !catalog_account(r, (uint32_t)i + 1)) return -1;
	return 0;
}

void tm_replay_release(struct tm_replay *r) {
	end_changes(r);
	tm_scopes_release(&r->scopes);
	tm_gpu_rows_release(&r->gpu);
	tm_peak_periods_release(&r->periods);
	tm_checkpoints_release(&r->checkpoints);
	tm_leaks_release(&r->leaks);
	for (size_t i = 0; r->ledgers && i < r->catalog->processes.count; i++) tm_ledger_release(&r->ledgers[i]);
	for (size_t i = 0; r->actors && i < r->catalog->threads.count; i++) tm_array_release(&r->actors[i].origins);
	tm_gpu_watch_release(&r->watch);
	free(r->ledgers);
	free(r->actors);
	free(r->heap_accounts);
	free(r->thread_highs);
	tm_array_release(&r->shared_highs);
	tm_array_release(&r->leavers);
	tm_array_release(&r->origins);
	tm_array_release(&r->instants);
	tm_array_release(&r->marks);
	tm_array_release(&r->pauses);
	tm_array_release(&r->mark_snapshots);
	tm_array_release(&r->snapshot_sites);
	tm_array_release(&r->gaps);
	tm_array_release(&r->device_gaps);
	*r = (struct tm_replay){ 0 };
}
