/* live.c - a trace that is still written; see live.h. */
#include "live.h"

#include <time.h>

#define PATIENCE_NS 2000000000u /* a thread that stands still is waited for so long; the collector writes within a second what it reads */

static struct tm_live *live_of(const struct tm_account *a) {
	return a->ledger->owner;
}

/* --- what pairing.c and ranges.c find out --- */

static struct tm_live_scope *scope_of(struct tm_live *l, const struct tm_block *b) {
	return b->scope ? &l->scopes.items[b->scope - 1] : NULL;
}

static void block_allocated(void *context, const struct tm_block *b, bool passing) {
	struct tm_account *a = context;
	struct tm_live *l = live_of(a);
	struct tm_amount amount = tm_account_amount(a, b->size_bytes);
	struct tm_live_scope *s = scope_of(l, b);
	tm_account_allocated(a, b, amount, l->now_ns, passing);
	if (!s) return;
	s->live.bytes += amount.bytes;
	s->live.count += amount.count;
	s->allocated.bytes += amount.bytes;
	s->allocated.count += amount.count;
}

static void release(struct tm_account *a, const struct tm_block *b) {
	struct tm_live *l = live_of(a);
	struct tm_amount amount = tm_account_amount(a, b->size_bytes);
	struct tm_live_scope *s = scope_of(l, b);
	tm_account_released(a, b, amount, l->now_ns, 0, false);
	if (!s) return;
	s->live.bytes -= amount.bytes;
	s->live.count -= amount.count;
}

static uint64_t block_released(void *context, const struct tm_block *b, uint64_t free_ns, uint32_t thread, uint32_t scope, bool lost) {
	(void)free_ns;
	(void)thread;
	(void)scope;
	(void)lost;
	release(context, b);
	return 0;
}

static void free_unmatched(void *context, uint64_t address, uint32_t thread, uint32_t scope) {
	(void)context;
	(void)address;
	(void)thread;
	(void)scope;
}

static const struct tm_pairing_sink pairing_sink = { block_allocated, block_released, free_unmatched, NULL };

static uint64_t part_released(void *context, const struct tm_range *part, unsigned survivors) {
	struct tm_account **first = context, *a = part->account;
	struct tm_live_scope *s = scope_of(live_of(a), &part->block);
	tm_account_split(a, part->block.stack, survivors);
	/* The parts that live on are blocks of their own; they are no allocations. */
	if (s) tm_amount_add(&s->live, tm_account_parts(a, survivors));
	release(a, &part->block);
	if (!*first) *first = a;
	return 0;
}

/* --- processes, threads and heaps as they are met --- */

static struct tm_ledger *ledger_of(struct tm_live *l, uint32_t process) {
	if (!tm_array_extend(&l->ledgers, l->catalog.processes.count)) return NULL;
	struct tm_ledger **place = &l->ledgers.items[process - 1];
	if (*place || !(*place = malloc(sizeof **place))) return *place;
	struct tm_scale scale = { .mean_bytes = (double)l->catalog.sample_bytes };
	tm_ledger_init(*place, process, l->catalog.processes.items[process - 1].start_ns, l->catalog.window_start_ns, scale);
	(*place)->owner = l;
	return *place;
}

/* With a second thread the order of stamps is no longer the truth. */
static struct tm_live_thread *thread_of(struct tm_live *l, uint32_t thread) {
	if (!tm_array_extend(&l->threads, l->catalog.threads.count)) return NULL;
	struct tm_live_thread *t = &l->threads.items[thread - 1];
	if (t->ledger) return t;
	t->ledger = ledger_of(l, l->catalog.threads.items[thread - 1].process);
	if (!t->ledger) return NULL;
	if (++t->ledger->threads == 2)
		for (size_t i = 0; i < t->ledger->accounts.count; i++) t->ledger->accounts.items[i]->pairing.alone = false;
	return t;
}

static struct tm_account *open_account(struct tm_live *l, struct tm_ledger *ledger, struct tm_text name, struct tm_text kind,
				       int64_t device, uint64_t parent_id) {
	struct tm_live_heap *h = tm_array_push(&l->heaps);
	struct tm_account *a = h ? tm_ledger_open_account(ledger, l->heaps.count, name, kind, device, parent_id) : NULL;
	if (!a) {
		l->heaps.count -= h != NULL;
		return NULL;
	}
	h->account = a;
	tm_pairing_init(&a->pairing, &pairing_sink, a);
	a->pairing.alone = ledger->threads < 2;
	a->pairing.inherits = ledger->stopped || l->catalog.processes.items[ledger->process - 1].flags & TM_PROCESS_FORKED;
	a->pairing.has_gaps = ledger->stopped || tm_catalog_has_losses(&l->catalog, ledger->process);
	return a;
}

static struct tm_account *catalog_account(struct tm_live *l, uint32_t heap) {
	if (!tm_array_extend(&l->accounts, l->catalog.heaps.count)) return NULL;
	const struct tm_catalog_heap *h = &l->catalog.heaps.items[heap - 1];
	if (l->accounts.items[heap - 1]) return l->accounts.items[heap - 1];
	struct tm_account *parent = h->parent ? catalog_account(l, h->parent) : NULL;
	struct tm_ledger *ledger = ledger_of(l, h->process);
	if (ledger && (parent || !h->parent))
		l->accounts.items[heap - 1] = open_account(l, ledger, h->name, h->kind, h->device, parent ? parent->id : 0);
	return l->accounts.items[heap - 1];
}

/* The process' heap of this name: the one that the trace defines, else one of our own. */
static struct tm_account *default_account(struct tm_live *l, struct tm_ledger *ledger, struct tm_account **place, const char *name,
					  const char *kind) {
	for (size_t i = 0; i < l->catalog.heaps.count && !*place; i++) {
		const struct tm_catalog_heap *h = &l->catalog.heaps.items[i];
		if (h->defined && h->process == ledger->process && h->name.size == strlen(name) &&
		    !memcmp(h->name.data, name, h->name.size))
			*place = catalog_account(l, (uint32_t)i + 1);
	}
	if (!*place) *place = open_account(l, ledger, tm_text_of(name), tm_text_of(kind), -1, 0);
	return *place;
}

static struct tm_account *account_of(struct tm_live *l, struct tm_ledger *ledger, const struct tm_step *s) {
	if (s->heap) return catalog_account(l, s->heap);
	if (s->kind != TM_STEP_MAP) return default_account(l, ledger, &ledger->malloc_account, "malloc", "host");
	if (s->op == TM_OP_MMAP_FILE) return default_account(l, ledger, &ledger->file_account, "mmap-file", "file");
	return default_account(l, ledger, &ledger->mmap_account, "mmap", "mapping");
}

/* --- events --- */

static void watch_waiting(struct tm_live *l, struct tm_account *a) {
	if (a->is_waiting || !tm_pairing_waits(&a->pairing)) return;
	a->is_waiting = true;
	a->next_waiting = l->waiting;
	l->waiting = a;
	if (l->look_ns > l->now_ns + TM_SKEW_NS) l->look_ns = l->now_ns + TM_SKEW_NS;
}

static void look_at_waiting(struct tm_live *l, uint64_t now_ns) {
	struct tm_account *a = l->waiting;
	l->waiting = NULL;
	l->look_ns = UINT64_MAX;
	for (struct tm_account *next; a; a = next) {
		next = a->next_waiting;
		a->is_waiting = false;
		tm_pairing_expire(&a->pairing, now_ns);
		watch_waiting(l, a);
	}
}

static struct tm_block block_of(struct tm_live *l, const struct tm_step *s, struct tm_account *a, const struct tm_live_thread *t) {
	return (struct tm_block){
		.address = s->address,
		.size_bytes = s->size_bytes,
		.alloc_ns = s->ns,
		.stack = s->stack,
		.slack = TM_SLACK_UNKNOWN,
		.scope = tm_live_scope_now(l, a, t) & INT32_MAX,
	};
}

static uint64_t end_of(const struct tm_live *l, const struct tm_step *s) {
	return s->address + s->size_bytes + tm_op_spare(s->op, s->size_bytes, l->catalog.page_bytes);
}

static void play_map(struct tm_live *l, const struct tm_step *s, struct tm_live_thread *t) {
	bool moved = s->follows && !s->heap && t->moved_account;
	struct tm_account *a = moved ? t->moved_account : account_of(l, t->ledger, s), *ignored = NULL;
	uint64_t end = end_of(l, s);
	if (!a) l->failed = true;
	if (!a || end == s->address) return;
	tm_ranges_cut(&t->ledger->ranges, s->address, end, UINT64_MAX, part_released, &ignored);
	struct tm_range range = { .block = block_of(l, s, a, t), .end = end, .account = a };
	block_allocated(a, &range.block, false);
	tm_ranges_insert(&t->ledger->ranges, &range);
}

static void play_unmap(struct tm_live *l, const struct tm_step *s, struct tm_live_thread *t) {
	const struct tm_range *stays = s->size_bytes ? NULL : tm_ranges_at(&t->ledger->ranges, s->address);
	t->moved_account = stays ? stays->account : NULL;
	tm_ranges_cut(&t->ledger->ranges, s->address, end_of(l, s), s->ns, part_released, &t->moved_account);
}

static void play_heap(struct tm_live *l, const struct tm_turn *turn, struct tm_live_thread *t) {
	const struct tm_step *s = turn->step;
	struct tm_account *a = account_of(l, t->ledger, s);
	if (!a) {
		l->failed = true;
		return;
	}
	if (s->kind == TM_STEP_ALLOC) {
		struct tm_block b = block_of(l, s, a, t);
		if (!a->ledger->failed) tm_pairing_alloc(&a->pairing, &b, turn->thread);
	} else if (!tm_merge_is_late(&l->merge, s) || !tm_pairing_is_outlived(&a->pairing, s->address, s->ns)) {
		tm_pairing_free(&a->pairing, s->address, s->ns, turn->thread, 0);
	}
	watch_waiting(l, a);
	if (a->pairing.failed) l->failed = true;
}

static void play(struct tm_live *l, const struct tm_turn *turn) {
	const struct tm_step *s = turn->step;
	struct tm_live_thread *t = thread_of(l, turn->thread);
	if (!t) {
		l->failed = true;
		return;
	}
	if (turn->ns > l->now_ns) l->now_ns = turn->ns;
	if (l->look_ns < turn->ns) look_at_waiting(l, turn->ns);
	t->ledger->last_ns = turn->ns;
	l->events += s->kind < TM_STEP_MARK;
	switch (s->kind) {
	case TM_STEP_ALLOC:
	case TM_STEP_FREE: play_heap(l, turn, t); break;
	case TM_STEP_MAP: play_map(l, s, t); break;
	case TM_STEP_UNMAP: play_unmap(l, s, t); break;
	case TM_STEP_SCOPE: tm_live_scope_play(l, t->ledger->process, t, s); break;
	case TM_STEP_MARK:
		if (s->op == TM_OP_STOP || (s->op == TM_OP_START && t->ledger->stopped)) tm_ledger_pause(t->ledger);
		break;
	default: break;
	}
	if (t->ledger->failed || t->ledger->ranges.failed) l->failed = true;
}

/* --- chunks --- */

static bool take_sample(void *context, uint64_t process, uint64_t ns, const struct tm_sample *s) {
	struct tm_live *l = context;
	size_t known = l->rss.count;
	if (ns > l->merge.newest_ns) l->merge.newest_ns = ns;
	if (!process || s->name.size != 3 || memcmp(s->name.data, "rss", 3) != 0) return true;
	if (!tm_array_extend(&l->rss, process)) return false;
	for (; known < l->rss.count; known++) l->rss.items[known] = UINT64_MAX;
	l->rss.items[process - 1] = s->value;
	return true;
}

void tm_live_begin_interval(struct tm_live *l) {
	for (size_t i = 0; i < l->heaps.count; i++) {
		struct tm_live_heap *h = &l->heaps.items[i];
		h->allocated_before = h->account->allocated;
		if (!tm_array_extend(&h->before, h->account->sites.heads.count)) l->failed = true;
		for (uint32_t k = 0; k < h->before.count; k++)
			h->before.items[k] = tm_site_amount(&h->account->sites, k, TM_SITE_ALLOCATED);
	}
	for (size_t i = 0; i < l->scopes.count; i++) l->scopes.items[i].allocated_before = l->scopes.items[i].allocated;
	l->rates_ns = l->now_ns;
	l->begin_ns = 0;
	l->interval_over = false;
}

/* Of a ring's trace, and of one that is followed anew, only what its window has is new, whatever it tells of blocks that lived before. */
static void begin_where_left(struct tm_live *l, uint64_t ns) {
	uint64_t window_ns = l->catalog.window_start_ns, begin_ns = l->begin_ns > window_ns ? l->begin_ns : window_ns;
	if ((!l->begin_ns && l->rates_ns >= window_ns) || ns < window_ns || ns <= l->begin_ns) return;
	tm_live_begin_interval(l);
	l->rates_ns = begin_ns;
}

/* Nothing more was done until then. */
static void settle(struct tm_live *l, uint64_t ns) {
	if (ns <= l->now_ns) return;
	if (l->interval_over) tm_live_begin_interval(l);
	begin_where_left(l, ns);
	l->now_ns = ns;
}

static void play_all(struct tm_live *l) {
	struct tm_turn turn;
	while (!l->failed && tm_merge_next(&l->merge, &turn)) {
		if (l->interval_over) tm_live_begin_interval(l);
		begin_where_left(l, turn.ns);
		play(l, &turn);
	}
	uint64_t until_ns = l->merge.watermark_ns;
	if (until_ns == UINT64_MAX) return;
	/* By a sample it may be later than events that come next; now_ns does not go back for them. */
	if (until_ns && l->merge.newest_ns > until_ns + PATIENCE_NS) until_ns = l->merge.newest_ns - PATIENCE_NS;
	settle(l, until_ns);
}

/* The events of the chunk read last, and watermarks between such chunks. */
static bool take_batch(struct tm_live *l, const struct tm_chunk_header *h) {
	struct tm_batch *b = calloc(1, sizeof *b);
	struct tm_cursor payload;
	if (!b || tm_merge_grow(&l->merge, l->catalog.threads.count) < 0) {
		free(b);
		l->failed = true;
		return true;
	}
	int rc = TM_AHEAD_BATCH;
	if (h->kind == TM_CHUNK_EVENTS) {
		rc = tm_reader_payload(&l->reader, h, &payload) ? TM_AHEAD_DAMAGED : tm_batch_decode(b, &l->catalog, l->decoder, &payload);
	} else {
		for (size_t i = 0; i < l->catalog.stops.count; i++)
			if (l->catalog.stops.items[i].watermark_ns > b->watermark_ns)
				b->watermark_ns = l->catalog.stops.items[i].watermark_ns;
	}
	if (rc != TM_AHEAD_BATCH) {
		tm_batch_give_back(b);
		l->failed = rc == TM_AHEAD_NO_MEMORY;
		return l->failed;
	}
	tm_merge_add(&l->merge, b);
	return true;
}

/* false: it is damaged. */
static bool take_chunk(struct tm_live *l, const struct tm_chunk_header *h) {
	int rc = tm_catalog_take(&l->catalog, &l->reader, h, take_sample, l);
	if (rc == TM_CATALOG_DAMAGED) return false;
	if (rc) l->failed = true;
	bool sound = !l->catalog.stops.count || l->failed || take_batch(l, h);
	l->catalog.stops.count = 0;
	if (sound) play_all(l);
	return sound;
}

static void finish(struct tm_live *l) {
	l->ended = true;
	tm_merge_end(&l->merge);
	play_all(l);
	look_at_waiting(l, UINT64_MAX);
	settle(l, l->catalog.end_ns);
}

static uint64_t wall_ms(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

int tm_live_poll(struct tm_live *l, unsigned milliseconds) {
	struct tm_chunk_header h;
	uint64_t until = wall_ms() + milliseconds;
	l->reader.stopped = NULL; /* what was missing may have been written since */
	while (!l->ended && !l->stopped && tm_reader_next(&l->reader, &h)) {
		if (!take_chunk(l, &h)) l->stopped = "a chunk's content is damaged";
		if (l->failed) return -1;
		if (h.kind == TM_CHUNK_END) finish(l);
		if (milliseconds && wall_ms() >= until) return !l->ended;
	}
	return l->failed ? -1 : 0;
}

int tm_live_open(struct tm_live *l, const char *path, char *error, size_t error_bytes) {
	*l = (struct tm_live){ .reader.fd = -1, .look_ns = UINT64_MAX };
	if (tm_reader_open(&l->reader, path, error, error_bytes) < 0) return -1;
	l->catalog = (struct tm_catalog){ .major = l->reader.major, .minor = l->reader.minor, .page_bytes = 4096 };
	l->decoder = tm_decoder_new();
	if (l->decoder && tm_merge_init(&l->merge, 0) == 0) {
		l->merge.patience_ns = PATIENCE_NS;
		return 0;
	}
	strncpy(error, "out of memory", error_bytes);
	return -1;
}

void tm_live_release(struct tm_live *l) {
	tm_merge_release(&l->merge);
	tm_decoder_free(l->decoder);
	for (size_t i = 0; i < l->ledgers.count; i++) {
		if (l->ledgers.items[i]) tm_ledger_release(l->ledgers.items[i]);
		free(l->ledgers.items[i]);
	}
	for (size_t i = 0; i < l->threads.count; i++) tm_array_release(&l->threads.items[i].open);
	for (size_t i = 0; i < l->heaps.count; i++) tm_array_release(&l->heaps.items[i].before);
	tm_array_release(&l->ledgers);
	tm_array_release(&l->threads);
	tm_array_release(&l->heaps);
	tm_array_release(&l->accounts);
	tm_array_release(&l->scopes);
	tm_array_release(&l->rss);
	tm_id_map_release(&l->scope_ids);
	tm_id_map_release(&l->texts);
	tm_catalog_release(&l->catalog);
	tm_reader_release(&l->reader);
}
