/* flight_set.c - replays dropped events and keeps what is live: see flight_set.h.
 *
 * Addresses. A free is stamped before it happens and an allocation after, but a stamp may be read too early (guest/clock.c), and the free of a realloc
 * is read when the call is over. So an allocation of an address that is live puts the older block aside: the free that was meant for it comes soon. And
 * a free of what is not live is kept for a moment, for an allocation by another thread; for one by the same thread only if shortly before yet another
 * thread's free ended the block that was this one's, as pairing.h of the analyzer tells. A free that was of nothing at all would shift all that follow at a
 * busy address: after a while the next one that waits is forgotten.
 */
#include "flight_set.h"

#include "disjoint.h"
#include "flight_scopes.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define SKEW_NS 30000u          /* stamps are out of order by less */
#define SHIFT_NS 100000u        /* at one address all frees have to wait for no longer */
#define CALM_NS 300000u         /* an address without a free for so long is in order again */
#define ASIDE_NS 10000000000ull /* a block put aside whose free has not come by then has none */
#define FREES 1024u             /* addresses whose last frees are known, a power of two */
#define NUMBERS 4u              /* of one event: what it closes, and what it opens */

struct block {
	uint64_t address; /* 0: an empty slot */
	uint64_t size, usable, ns, number;
	uint32_t process, heap, thread, stack;
	struct tm_flight_scope *scope;
	uint8_t op;
};

struct aside {
	struct block block;
	uint64_t since_ns;
};

struct frees { /* of one address, until another one needs the place */
	uint64_t address;
	uint64_t free_ns;  /* of the last one that ended a block; 0: none */
	uint64_t early_ns; /* of one that found nothing; 0: none waits */
	uint64_t since_ns; /* all that came since then had to wait; 0: the last did not */
	uint32_t process, heap, free_thread, early_thread;
};

struct range { /* what is left of a mapping; begins as disjoint.h wants it */
	uint64_t high;
	struct block block; /* its address is where this part begins */
};

struct last {                  /* the last event of a kind in a process */
	struct tm_event event; /* op 0: none */
	uint32_t thread;
	uint64_t number;
};

struct process {
	struct tm_disjoint ranges;
	struct last step, stop;
};

struct thread {
	uint32_t process;
	struct tm_event *waiting; /* from `at` to `count` */
	size_t at, count, capacity;
};

struct tm_flight_set {
	struct block *blocks; /* open addressing, at most half full */
	size_t block_count, mask;
	struct frees *frees; /* FREES of them, by address */
	struct aside *aside;
	size_t aside_count, aside_capacity;
	struct process *processes; /* by id */
	size_t process_count, process_capacity;
	struct thread *threads; /* by id */
	size_t thread_count, thread_capacity;
	uint32_t *active; /* threads that have something waiting */
	size_t active_count, active_capacity;
	uint32_t *queue; /* of the merge: threads, the one with the earliest event on top */
	size_t queue_count, queue_capacity;
	struct tm_flight_scopes scopes;
	uint64_t last_number;
};

/* --- blocks --- */

static size_t hash_of(uint64_t address, uint32_t process, uint32_t heap) {
	uint64_t key = address ^ (uint64_t)heap << 40 ^ (uint64_t)process << 52;
	return (size_t)((key ^ key >> 32) * 0x9E3779B97F4A7C15u >> 24);
}

static size_t slot_of(const struct tm_flight_set *s, uint64_t address, uint32_t process, uint32_t heap) {
	return hash_of(address, process, heap) & s->mask;
}

static struct block *find(const struct tm_flight_set *s, uint64_t address, uint32_t process, uint32_t heap) {
	size_t at = slot_of(s, address, process, heap);
	for (;; at = (at + 1) & s->mask) {
		struct block *b = &s->blocks[at];
		if (!b->address || (b->address == address && b->heap == heap && b->process == process)) return b;
	}
}

static void grow(struct tm_flight_set *s) {
	struct tm_flight_set grown = { .mask = s->mask ? s->mask * 2 + 1 : 1023 };
	grown.blocks = tm_memory_new_table(grown.mask + 1, sizeof grown.blocks[0]);
	for (size_t i = 0; s->blocks && i <= s->mask; i++) {
		const struct block *b = &s->blocks[i];
		if (b->address) *find(&grown, b->address, b->process, b->heap) = *b;
	}
	tm_memory_free_table(s->blocks, s->mask + 1, sizeof s->blocks[0]);
	s->blocks = grown.blocks;
	s->mask = grown.mask;
}

/* Moves later entries of the same run forward, so that no gap hides them. */
static void remove_block(struct tm_flight_set *s, struct block *b) {
	size_t gap = (size_t)(b - s->blocks), at = gap;
	s->block_count--;
	for (;;) {
		at = (at + 1) & s->mask;
		const struct block *next = &s->blocks[at];
		if (!next->address) break;
		size_t home = slot_of(s, next->address, next->process, next->heap);
		if (((at - home) & s->mask) < ((at - gap) & s->mask)) continue;
		s->blocks[gap] = *next;
		gap = at;
	}
	s->blocks[gap].address = 0;
}

static void put_aside(struct tm_flight_set *s, const struct block *b, uint64_t ns) {
	s->aside = tm_memory_grow(s->aside, &s->aside_capacity, s->aside_count + 1, sizeof s->aside[0]);
	s->aside[s->aside_count++] = (struct aside){ *b, ns };
}

static void drop_aside(struct tm_flight_set *s, size_t i) {
	tm_flight_scope_let_go(&s->scopes, s->aside[i].block.scope);
	s->aside[i] = s->aside[--s->aside_count];
}

/* True: the free was meant for a block that was put aside. */
static bool freed_aside(struct tm_flight_set *s, uint32_t process, uint32_t thread, const struct tm_event *e) {
	const struct block *live = s->block_count ? find(s, e->old, process, e->heap) : NULL;
	if (live && live->address && live->thread == thread && live->ns <= e->begin_ns) return false; /* it had that block in hand */
	for (size_t i = 0; i < s->aside_count; i++) {
		const struct aside *a = &s->aside[i];
		if (a->block.address != e->old || a->block.process != process || a->block.heap != e->heap) continue;
		if (e->begin_ns > a->since_ns + SKEW_NS || e->begin_ns < a->block.ns) continue;
		drop_aside(s, i);
		return true;
	}
	return false;
}

static struct block block_of(struct tm_flight_set *s, uint32_t process, uint32_t thread, const struct tm_event *e) {
	struct tm_flight_scope *scope = tm_flight_scopes_top(&s->scopes, thread);
	tm_flight_scope_hold(scope);
	return (struct block){ e->addr, e->size, e->usable, e->time_ns, s->last_number, process, e->heap, thread, e->stack, scope, e->op };
}

static struct frees *frees_of(struct tm_flight_set *s, uint64_t address, uint32_t process, uint32_t heap) {
	struct frees *f = &s->frees[hash_of(address, process, heap) & (FREES - 1)];
	if (f->address != address || f->process != process || f->heap != heap)
		*f = (struct frees){ .address = address, .process = process, .heap = heap };
	return f;
}

/* A realloc's free of a block that is younger than the call was meant for another one. */
static void freed(struct tm_flight_set *s, uint32_t process, uint32_t thread, const struct tm_event *e) {
	if (!e->old) return;
	struct frees *f = frees_of(s, e->old, process, e->heap);
	if (!s->aside_count || !freed_aside(s, process, thread, e)) {
		struct block *b = s->block_count ? find(s, e->old, process, e->heap) : NULL;
		if (!b || !b->address || b->ns > e->begin_ns + SKEW_NS) {
			if (!f->since_ns || e->begin_ns > f->free_ns + CALM_NS) f->since_ns = e->begin_ns;
			f->early_ns = e->begin_ns;
			f->early_thread = thread;
			return;
		}
		tm_flight_scope_let_go(&s->scopes, b->scope);
		remove_block(s, b);
	}
	f->free_ns = e->begin_ns;
	f->free_thread = thread;
	f->since_ns = 0;
}

/* True: the block was freed already. */
static bool freed_early(struct tm_flight_set *s, uint32_t process, uint32_t thread, const struct tm_event *e) {
	struct frees *f = frees_of(s, e->addr, process, e->heap);
	if (!f->early_ns) return false;
	bool own = f->early_thread == thread, fits = e->time_ns <= f->early_ns + SKEW_NS && e->time_ns <= f->since_ns + SHIFT_NS;
	bool was_taken = f->free_ns && f->free_thread != thread && f->early_ns <= f->free_ns + SKEW_NS;
	if (!fits || (own && !was_taken)) {
		f->early_ns = f->since_ns = 0;
		return false;
	}
	if (!own) f->free_thread = f->early_thread;
	f->free_ns = f->early_ns;
	f->early_ns = 0;
	return true;
}

static void allocated(struct tm_flight_set *s, uint32_t process, uint32_t thread, const struct tm_event *e) {
	if (!e->addr) return;
	if (s->block_count * 2 >= s->mask) grow(s);
	struct block *b = find(s, e->addr, process, e->heap);
	if (!b->address && freed_early(s, process, thread, e)) return;
	if (b->address) put_aside(s, b, e->time_ns);
	else s->block_count++;
	*b = block_of(s, process, thread, e);
}

static void forget_old_asides(struct tm_flight_set *s, uint64_t now_ns) {
	for (size_t i = s->aside_count; i-- > 0;)
		if (now_ns > s->aside[i].since_ns + ASIDE_NS) drop_aside(s, i);
}

/* --- mappings --- */

static struct process *process_of(struct tm_flight_set *s, uint32_t id) {
	if (id >= s->process_count) {
		s->processes = tm_memory_grow(s->processes, &s->process_capacity, id + 1u, sizeof s->processes[0]);
		memset(s->processes + s->process_count, 0, (id + 1u - s->process_count) * sizeof s->processes[0]);
		s->process_count = id + 1u;
	}
	return &s->processes[id];
}

static void insert_part(struct process *p, const struct range *of, uint64_t low, uint64_t high) {
	struct range part = *of;
	part.block.address = low;
	part.high = high;
	tm_flight_scope_hold(part.block.scope);
	tm_disjoint_add(&p->ranges, sizeof part, &part);
}

/* By a call that began at begin_ns: what is younger was mapped by another thread before the call was over, where it had made room. */
static void unmapped(struct tm_flight_set *s, struct process *p, uint64_t low, uint64_t bytes, uint64_t begin_ns) {
	uint64_t high = low + bytes < low ? UINT64_MAX : low + bytes, from = low;
	const struct range *found;
	while ((found = tm_disjoint_above(&p->ranges, sizeof *found, from)) && found->block.address < high) {
		struct range old = *found;
		from = old.high;
		if (old.block.ns > begin_ns) continue;
		tm_disjoint_take_out(&p->ranges, sizeof old, old.high);
		if (old.block.address < low) insert_part(p, &old, old.block.address, low);
		if (old.high > high) insert_part(p, &old, high, old.high);
		tm_flight_scope_let_go(&s->scopes, old.block.scope);
	}
}

static void mapped(struct tm_flight_set *s, uint32_t process, uint32_t thread, const struct tm_event *e) {
	struct process *p = process_of(s, process);
	uint64_t high = e->addr + e->size < e->addr ? UINT64_MAX : e->addr + e->size;
	unmapped(s, p, e->addr, e->size, UINT64_MAX);
	if (high <= e->addr) return;
	struct range r = { high, block_of(s, process, thread, e) };
	tm_disjoint_add(&p->ranges, sizeof r, &r);
}

/* --- the replay --- */

static void play_text(struct tm_flight_set *s, uint32_t process, uint32_t thread, const struct tm_event *e) {
	struct last last = { *e, thread, s->last_number };
	if (e->op == TM_OP_STEP) process_of(s, process)->step = last;
	else if (TM_OP_IS_GPU(e->op)) return;
	else if (TM_OP_IS_SCOPE(e->op)) tm_flight_scopes_play(&s->scopes, process, thread, e, s->last_number);
	if (e->op == TM_OP_STOP) process_of(s, process)->stop = last;
	if (e->op == TM_OP_START) process_of(s, process)->stop = (struct last){ 0 };
}

static void play(struct tm_flight_set *s, uint32_t process, uint32_t thread, const struct tm_event *e) {
	s->last_number += NUMBERS;
	switch (TM_OP_CLASS(e->op)) {
	case TM_CLASS_ALLOC: allocated(s, process, thread, e); break;
	case TM_CLASS_FREE: freed(s, process, thread, e); break;
	case TM_CLASS_REALLOC:
		freed(s, process, thread, e);
		allocated(s, process, thread, e);
		break;
	case TM_CLASS_MAP: mapped(s, process, thread, e); break;
	case TM_CLASS_UNMAP: unmapped(s, process_of(s, process), e->old, e->old_size, e->begin_ns); break;
	case TM_CLASS_REMAP:
		unmapped(s, process_of(s, process), e->old, e->old_size, e->begin_ns);
		mapped(s, process, thread, e);
		break;
	case TM_CLASS_TEXT: play_text(s, process, thread, e); break;
	default: break;
	}
}

static struct thread *thread_of(struct tm_flight_set *s, uint32_t id) {
	if (id >= s->thread_count) {
		s->threads = tm_memory_grow(s->threads, &s->thread_capacity, id + 1u, sizeof s->threads[0]);
		memset(s->threads + s->thread_count, 0, (id + 1u - s->thread_count) * sizeof s->threads[0]);
		s->thread_count = id + 1u;
	}
	return &s->threads[id];
}

void tm_flight_set_add(struct tm_flight_set *s, uint32_t process, uint32_t thread, const struct tm_event *events, size_t n) {
	struct thread *t = thread_of(s, thread);
	if (!n) return;
	t->process = process;
	if (!t->count) {
		s->active = tm_memory_grow(s->active, &s->active_capacity, s->active_count + 1, sizeof s->active[0]);
		s->active[s->active_count++] = thread;
	}
	t->waiting = tm_memory_grow(t->waiting, &t->capacity, t->count + n, sizeof t->waiting[0]);
	memcpy(t->waiting + t->count, events, n * sizeof events[0]);
	t->count += n;
}

static uint64_t next_ns(const struct tm_flight_set *s, uint32_t thread) {
	const struct thread *t = &s->threads[thread];
	return t->waiting[t->at].time_ns;
}

static bool earlier(const struct tm_flight_set *s, uint32_t a, uint32_t b) {
	uint64_t x = next_ns(s, a), y = next_ns(s, b);
	return x != y ? x < y : a < b;
}

static void sift_down(struct tm_flight_set *s, size_t at) {
	uint32_t moved = s->queue[at];
	for (size_t child; (child = 2 * at + 1) < s->queue_count; at = child) {
		if (child + 1 < s->queue_count && earlier(s, s->queue[child + 1], s->queue[child])) child++;
		if (!earlier(s, s->queue[child], moved)) break;
		s->queue[at] = s->queue[child];
	}
	s->queue[at] = moved;
}

/* Takes what was replayed out of the queues. */
static void keep_rest(struct tm_flight_set *s) {
	size_t active = 0;
	for (size_t i = 0; i < s->active_count; i++) {
		struct thread *t = &s->threads[s->active[i]];
		t->count -= t->at;
		if (t->at && t->count) memmove(t->waiting, t->waiting + t->at, t->count * sizeof t->waiting[0]);
		t->at = 0;
		if (t->count) {
			s->active[active++] = s->active[i];
		} else {
			free(t->waiting);
			t->waiting = NULL;
			t->capacity = 0;
		}
	}
	s->active_count = active;
}

void tm_flight_set_advance(struct tm_flight_set *s, uint64_t watermark_ns) {
	if (!s->active_count) return;
	s->queue = tm_memory_grow(s->queue, &s->queue_capacity, s->active_count, sizeof s->queue[0]);
	memcpy(s->queue, s->active, s->active_count * sizeof s->queue[0]);
	s->queue_count = s->active_count;
	for (size_t i = s->queue_count / 2; i-- > 0;) sift_down(s, i);
	while (s->queue_count && next_ns(s, s->queue[0]) < watermark_ns) {
		uint32_t id = s->queue[0];
		struct thread *t = &s->threads[id];
		play(s, t->process, id, &t->waiting[t->at++]);
		if (t->at == t->count) s->queue[0] = s->queue[--s->queue_count];
		if (s->queue_count) sift_down(s, 0);
	}
	keep_rest(s);
	if (s->aside_count) forget_old_asides(s, watermark_ns);
}

bool tm_flight_set_waits(const struct tm_flight_set *s, uint32_t thread) {
	return thread < s->thread_count && s->threads[thread].count != 0;
}

/* --- ends --- */

void tm_flight_set_end_thread(struct tm_flight_set *s, uint32_t thread) {
	if (!tm_flight_set_waits(s, thread)) tm_flight_scopes_end_thread(&s->scopes, thread, false);
}

static void forget_blocks(struct tm_flight_set *s, uint32_t process) {
	struct tm_flight_set kept = { .mask = s->mask };
	if (!s->blocks) return;
	kept.blocks = tm_memory_new_table(kept.mask + 1, sizeof kept.blocks[0]);
	for (size_t i = 0; i <= s->mask; i++) {
		const struct block *b = &s->blocks[i];
		if (!b->address) continue;
		if (b->process == process) {
			tm_flight_scope_let_go(&s->scopes, b->scope);
			s->block_count--;
		} else {
			*find(&kept, b->address, b->process, b->heap) = *b;
		}
	}
	tm_memory_free_table(s->blocks, s->mask + 1, sizeof s->blocks[0]);
	s->blocks = kept.blocks;
}

void tm_flight_set_end_process(struct tm_flight_set *s, uint32_t process) {
	for (size_t i = s->aside_count; i-- > 0;)
		if (s->aside[i].block.process == process) drop_aside(s, i);
	forget_blocks(s, process);
	if (process < s->process_count) {
		struct process *p = &s->processes[process];
		unmapped(s, p, 0, UINT64_MAX, UINT64_MAX);
		tm_disjoint_release(&p->ranges);
		*p = (struct process){ 0 };
	}
	for (uint32_t i = 0; i < s->scopes.thread_count; i++)
		if (s->scopes.threads[i].process == process) tm_flight_scopes_end_thread(&s->scopes, i, true);
}

/* --- what stays --- */

static void put(struct tm_flight_list *list, uint32_t thread, uint64_t number, const struct tm_event *e) {
	list->events = tm_memory_grow(list->events, &list->capacity, list->count + 1, sizeof list->events[0]);
	list->events[list->count++] = (struct tm_flight_event){ thread, number, *e };
}

/* What a realloc made is told as if it had been made of nothing: what it was made of is gone. */
static uint8_t op_alone(uint8_t op) {
	if (op == TM_OP_REALLOC) return TM_OP_REALLOC_NEW;
	if (op == TM_OP_REALLOCARRAY) return TM_OP_REALLOCARRAY_NEW;
	return op == TM_OP_PYTHON_REALLOC ? TM_OP_PYTHON_ALLOC : op;
}

/* An mremap gives nothing back any more. */
static void put_block(struct tm_flight_list *list, const struct block *b, uint64_t size) {
	struct tm_event e = { .time_ns = b->ns, .begin_ns = b->ns, .addr = b->address, .size = size, .usable = b->usable };
	e.stack = b->stack;
	e.heap = b->heap;
	e.op = op_alone(b->op);
	if (TM_OP_CLASS(e.op) == TM_CLASS_REMAP) e.old = e.addr;
	put(list, b->thread, b->number, &e);
}

static void put_scope(struct tm_flight_list *list, const struct tm_flight_scope *s) {
	put(list, s->thread, s->opened_number, &s->opened);
	if (s->closed.op) put(list, s->closed_thread, s->closed_number, &s->closed);
}

static int by_thread_and_number(const void *a, const void *b) {
	const struct tm_flight_event *x = a, *y = b;
	if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
	if (x->number != y->number) return x->number < y->number ? -1 : 1;
	return (x->event.addr > y->event.addr) - (x->event.addr < y->event.addr); /* parts of one mapping */
}

static void put_waiting(const struct tm_flight_set *s, struct tm_flight_list *list) {
	for (size_t i = 0; i < s->active_count; i++) {
		const struct thread *t = &s->threads[s->active[i]];
		for (size_t k = t->at; k < t->count; k++) put(list, s->active[i], s->last_number + NUMBERS + k, &t->waiting[k]);
	}
}

void tm_flight_set_list(const struct tm_flight_set *s, struct tm_flight_list *list) {
	list->count = 0;
	for (size_t i = 0; s->blocks && i <= s->mask; i++)
		if (s->blocks[i].address) put_block(list, &s->blocks[i], s->blocks[i].size);
	for (size_t i = 0; i < s->aside_count; i++) put_block(list, &s->aside[i].block, s->aside[i].block.size);
	for (size_t i = 0; i < s->process_count; i++) {
		const struct process *p = &s->processes[i];
		const struct range *r = tm_disjoint_above(&p->ranges, sizeof *r, 0);
		for (; r; r = tm_disjoint_above(&p->ranges, sizeof *r, r->high)) put_block(list, &r->block, r->high - r->block.address);
		if (p->step.event.op) put(list, p->step.thread, p->step.number, &p->step.event);
		if (p->stop.event.op) put(list, p->stop.thread, p->stop.number, &p->stop.event);
	}
	for (const struct tm_flight_scope *x = s->scopes.first; x; x = x->after) put_scope(list, x);
	put_waiting(s, list);
	if (list->count) qsort(list->events, list->count, sizeof list->events[0], by_thread_and_number);
}

struct tm_flight_set *tm_flight_set_new(void) {
	struct tm_flight_set *s = tm_memory_new(1, sizeof *s);
	s->frees = tm_memory_new(FREES, sizeof s->frees[0]);
	return s;
}

void tm_flight_set_free(struct tm_flight_set *s) {
	if (!s) return;
	for (size_t i = 0; i < s->process_count; i++) tm_disjoint_release(&s->processes[i].ranges);
	for (size_t i = 0; i < s->thread_count; i++) free(s->threads[i].waiting);
	tm_flight_scopes_release(&s->scopes);
	free(s->processes);
	free(s->threads);
	tm_memory_free_table(s->blocks, s->mask + 1, sizeof s->blocks[0]);
	free(s->aside);
	free(s->frees);
	free(s->active);
	free(s->queue);
	free(s);
}
