/* flight_set.c - replays dropped events and keeps what is live: see flight_set.h.
 *
 * Addresses. Which free ends which block is told as the analyzer does, by pairing.h of schema/: stamps may be read too early (guest/clock.c). A free is
 * replayed at its own time, that of a realloc at the time when the call began. That one is read when the call is over: by then what it made room for
 * may have been given its place already, and the free is nobody's.
 */
#include "flight_set.h"

#include "../../schema/pairing.h"
#include "../shm.h"
#include "disjoint.h"
#include "flight_scopes.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define NUMBERS 4u      /* of one event: what it closes, and what it opens */
#define BLOCKS_AHEAD 8u /* so many events before it is needed a block is fetched */
#define SLOTS_AHEAD 16u /* and its place in the table */
#define INHERITED_MAX (1u << 18) /* of addresses that a fork's child has used: then little that it inherited is left to be freed */

struct block { /* or a free that waits for one: by its op */
	uint64_t address;
	uint64_t size, usable, ns, number;
	uint32_t heap, thread, stack;
	struct tm_flight_scope *scope;
	uint32_t next; /* of those that are unused */
	uint8_t op;
};

struct heap {
	struct tm_flight_set *set;
	uint32_t id;               /* 0: the default one of its process */
	struct tm_pairing pairing; /* realloc_of of a block and scope of a free: its index in set->blocks */
	struct heap *next;         /* of its process */
	bool is_watched;
	struct heap *next_watched;
};

struct range { /* what is left of a mapping; begins as disjoint.h wants it */
	uint64_t high;      /* whole pages, but for the break */
	struct block block; /* its address is where this part begins, its size that of the mapping before it was cut */
	uint64_t end;       /* of what was asked for */
};

struct last {                  /* the last event of a kind in a process */
	struct tm_event event; /* op 0: none */
	uint32_t thread;
	uint64_t number;
};

struct process {
	struct tm_disjoint ranges;
	struct heap *heaps, *default_heap;
	size_t thread_count;
	bool has_gaps;  /* recording was off for a while, or events were lost */
	bool inherits;  /* blocks of its parent, over fork */
	bool took_file; /* what was unmapped last, or is moved by an mremap, begins with a mapped file */
	struct last step, stop, start; /* start: after that stop */
};

struct thread {
	uint32_t process;
	bool is_freed;            /* of the first event that waits: its free is replayed already */
	struct tm_event *waiting; /* from `at` to `count` */
	size_t at, count, capacity;
};

struct tm_flight_set {
	TM_ARRAY(struct block) blocks; /* the first is nobody's */
	uint32_t unused;               /* of them, 0 none */
	struct heap **heaps;           /* by id, which no two processes share */
	size_t heap_count, heap_capacity;
	struct heap *watched;      /* something waits in them */
	uint64_t look_ns;          /* when they are looked at */
	uint64_t watermark_ns;     /* of the last replay */
	struct process *processes; /* by id */
	size_t process_count, process_capacity;
	struct thread *threads; /* by id */
	size_t thread_count, thread_capacity;
	uint32_t *active; /* threads that have something waiting */
	size_t active_count, active_capacity;
	size_t waiting_count, waiting_max; /* events of all threads */
	uint64_t earliest_ns;              /* of them */
	uint32_t *queue; /* of the merge: threads, the one with the earliest event on top */
	size_t queue_count, queue_capacity;
	struct tm_flight_scopes scopes;
	uint64_t last_number;
};

/* --- processes and heaps --- */

static struct process *process_of(struct tm_flight_set *s, uint32_t id) {
	if (id >= s->process_count) {
		s->processes = tm_memory_grow(s->processes, &s->process_capacity, id + 1u, sizeof s->processes[0]);
		memset(s->processes + s->process_count, 0, (id + 1u - s->process_count) * sizeof s->processes[0]);
		s->process_count = id + 1u;
	}
	return &s->processes[id];
}

static const struct tm_pairing_sink sink;

static struct heap **place_of_heap(struct tm_flight_set *s, struct process *p, uint32_t id) {
	if (!id) return &p->default_heap;
	if (id >= s->heap_count) {
		s->heaps = tm_memory_grow(s->heaps, &s->heap_capacity, id + 1u, sizeof(struct heap *));
		memset(s->heaps + s->heap_count, 0, (id + 1u - s->heap_count) * sizeof(struct heap *));
		s->heap_count = id + 1u;
	}
	return &s->heaps[id];
}

static struct heap *heap_of(struct tm_flight_set *s, uint32_t process, uint32_t id) {
	struct process *p = process_of(s, process);
	struct heap **place = place_of_heap(s, p, id), *h = *place;
	if (h) return h;
	*place = h = tm_memory_new(1, sizeof *h);
	h->set = s;
	h->id = id;
	h->next = p->heaps;
	p->heaps = h;
	tm_pairing_init(&h->pairing, &sink, h);
	h->pairing.alone = p->thread_count < 2;
	h->pairing.inherits = p->inherits;
	h->pairing.has_gaps = p->has_gaps;
	return h;
}

static void has_another_thread(struct process *p) {
	p->thread_count++;
	for (struct heap *h = p->heaps; h; h = h->next) h->pairing.alone = p->thread_count < 2;
}

void tm_flight_set_has_gaps(struct tm_flight_set *s, uint32_t process) {
	struct process *p = process_of(s, process);
	p->has_gaps = true;
	for (struct heap *h = p->heaps; h; h = h->next) h->pairing.has_gaps = true;
}

void tm_flight_set_inherits(struct tm_flight_set *s, uint32_t process) {
	process_of(s, process)->inherits = true;
}

/* --- blocks --- */

static uint32_t new_block(struct tm_flight_set *s) {
	uint32_t index = s->unused;
	if (index) {
		s->unused = s->blocks.items[index].next;
		return index;
	}
	if (s->blocks.count > INT32_MAX || !tm_array_push(&s->blocks)) tm_memory_exhausted();
	return (uint32_t)s->blocks.count - 1;
}

static void forget_block(struct tm_flight_set *s, uint64_t index) {
	if (!index) return;
	tm_flight_scope_let_go(&s->scopes, s->blocks.items[index].scope);
	s->blocks.items[index].next = s->unused;
	s->unused = (uint32_t)index;
}

static void allocated(void *context, const struct tm_block *b, bool passing) {
	(void)context;
	(void)b;
	(void)passing;
}

static uint64_t released(void *context, const struct tm_block *b, uint64_t free_ns, uint32_t thread, uint32_t scope, bool lost) {
	struct heap *h = context;
	(void)free_ns;
	(void)thread;
	(void)lost;
	forget_block(h->set, b->realloc_of);
	forget_block(h->set, scope);
	return 0;
}

static void unmatched(void *context, uint64_t address, uint32_t thread, uint32_t scope) {
	struct heap *h = context;
	(void)address;
	(void)thread;
	forget_block(h->set, scope);
}

static const struct tm_pairing_sink sink = { allocated, released, unmatched, NULL };

static void watch(struct tm_flight_set *s, struct heap *h, uint64_t now_ns) {
	if (h->pairing.failed) tm_memory_exhausted();
	if (h->is_watched || !tm_pairing_waits(&h->pairing)) return;
	if (!s->watched) s->look_ns = now_ns + TM_SKEW_NS;
	h->is_watched = true;
	h->next_watched = s->watched;
	s->watched = h;
}

/* Gives up on what has waited too long. */
static void look_at_waiting(struct tm_flight_set *s, uint64_t now_ns) {
	struct heap *h = s->watched;
	s->watched = NULL;
	for (struct heap *next; h; h = next) {
		next = h->next_watched;
		h->is_watched = false;
		tm_pairing_expire(&h->pairing, now_ns);
		watch(s, h, now_ns);
	}
}

/* What a free is told as that waits for its block: the other half of a realloc stands for itself. */
static uint8_t free_alone(uint8_t op) {
	if (TM_OP_CLASS(op) == TM_CLASS_FREE) return op;
	return op == TM_OP_PYTHON_REALLOC ? TM_OP_PYTHON_FREE : TM_OP_REALLOC_FREE;
}

static void freed(struct tm_flight_set *s, uint32_t process, uint32_t thread, const struct tm_event *e) {
	if (!e->old) return;
	struct heap *h = heap_of(s, process, e->heap);
	if (e->begin_ns < s->watermark_ns) {
		const struct tm_block *live = tm_blocks_find(&h->pairing.blocks, e->old);
		if (live && s->blocks.items[live->realloc_of].ns > e->begin_ns + TM_SKEW_NS) return;
	}
	if (h->pairing.seen.count > INHERITED_MAX) h->pairing.inherits = false;
	uint32_t index = new_block(s);
	s->blocks.items[index] = (struct block){ .address = e->old,
						 .ns = e->begin_ns,
						 .number = s->last_number,
						 .heap = e->heap,
						 .thread = thread,
						 .op = free_alone(e->op) };
	tm_pairing_free(&h->pairing, e->old, e->begin_ns, thread, index);
	watch(s, h, e->begin_ns);
}

static struct block block_of(struct tm_flight_set *s, uint32_t thread, const struct tm_event *e) {
	struct tm_flight_scope *scope = tm_flight_scopes_top(&s->scopes, thread);
	tm_flight_scope_hold(scope);
	return (struct block){ .address = e->addr,
			       .size = e->size,
			       .usable = e->usable,
			       .ns = e->time_ns,
			       .number = s->last_number,
			       .heap = e->heap,
			       .thread = thread,
			       .stack = e->stack,
			       .scope = scope,
			       .op = e->op };
}

static void allocate(struct tm_flight_set *s, uint32_t process, uint32_t thread, const struct tm_event *e) {
	if (!e->addr) return;
	struct heap *h = heap_of(s, process, e->heap);
	uint32_t index = new_block(s);
	s->blocks.items[index] = block_of(s, thread, e);
	tm_pairing_alloc(&h->pairing, &(struct tm_block){ .address = e->addr, .alloc_ns = e->time_ns, .realloc_of = index }, thread);
	watch(s, h, e->time_ns);
}

/* --- mappings --- */

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
	const struct range *found = tm_disjoint_above(&p->ranges, sizeof *found, from);
	p->took_file = !bytes && found && found->block.address <= low && found->block.op == TM_OP_MMAP_FILE; /* left as it is by an mremap */
	for (bool first = true; bytes && found && found->block.address < high; found = tm_disjoint_above(&p->ranges, sizeof *found, from)) {
		struct range old = *found;
		from = old.high;
		if (old.block.ns > begin_ns) continue;
		if (first) p->took_file = old.block.op == TM_OP_MMAP_FILE;
		first = false;
		tm_disjoint_take_out(&p->ranges, sizeof old, old.high);
		if (old.block.address < low) insert_part(p, &old, old.block.address, low);
		if (old.high > high) insert_part(p, &old, high, old.high);
		tm_flight_scope_let_go(&s->scopes, old.block.scope);
	}
}

static void mapped(struct tm_flight_set *s, uint32_t process, uint32_t thread, const struct tm_event *e) {
	struct process *p = process_of(s, process);
	uint64_t bytes = e->size + tm_op_spare(e->op, e->size, TM_SHM_PAGE);
	uint64_t high = e->addr + bytes < e->addr ? UINT64_MAX : e->addr + bytes;
	bool moves_file = e->op == TM_OP_MREMAP && p->took_file;
	unmapped(s, p, e->addr, bytes, UINT64_MAX);
	if (high <= e->addr) return;
	struct range r = { high, block_of(s, thread, e), e->addr + e->size };
	if (moves_file) r.block.op = TM_OP_MMAP_FILE; /* what it was moved from, which tells its heap, is gone */
	tm_disjoint_add(&p->ranges, sizeof r, &r);
}

/* --- the replay --- */

static void pause_process(struct process *p) {
	p->has_gaps = p->inherits = true; /* of heaps to come */
	for (struct heap *h = p->heaps; h; h = h->next) tm_pairing_pause(&h->pairing);
}

static void play_text(struct tm_flight_set *s, uint32_t process, uint32_t thread, const struct tm_event *e) {
	struct last last = { *e, thread, s->last_number };
	struct process *p = process_of(s, process);
	if (e->op == TM_OP_STEP) p->step = last;
	else if (TM_OP_IS_GPU(e->op)) return;
	else if (TM_OP_IS_SCOPE(e->op)) tm_flight_scopes_play(&s->scopes, process, thread, e, s->last_number);
	if (e->op == TM_OP_STOP) {
		p->stop = last;
		p->start = (struct last){ 0 };
		pause_process(p);
	}
	if (e->op == TM_OP_START && p->stop.event.op) {
		p->start = last;
		pause_process(p);
	}
}

/* When the first event that waits is played, or what is left of it. */
static uint64_t next_ns(const struct thread *t) {
	const struct tm_event *e = &t->waiting[t->at];
	bool frees = TM_OP_CLASS(e->op) == TM_CLASS_FREE || (TM_OP_CLASS(e->op) == TM_CLASS_REALLOC && !t->is_freed);
	return frees ? e->begin_ns : e->time_ns;
}

/* Asks the memory for what events further on in the same thread will look for. */
static void look_ahead(struct tm_flight_set *s, const struct thread *t) {
	for (size_t ahead = BLOCKS_AHEAD; ahead <= SLOTS_AHEAD; ahead += SLOTS_AHEAD - BLOCKS_AHEAD) {
		const struct tm_event *e = t->at + ahead < t->count ? &t->waiting[t->at + ahead] : NULL;
		if (!e || TM_OP_CLASS(e->op) > TM_CLASS_REALLOC) return;
		const struct tm_blocks *blocks = &heap_of(s, t->process, e->heap)->pairing.blocks;
		if (ahead == SLOTS_AHEAD) tm_blocks_prefetch_slot(blocks, e->old ? e->old : e->addr);
		else if (e->old) tm_blocks_prefetch_block(blocks, e->old);
	}
}

/* The first event that waits, or the free that it begins with. True: it is played to its end. */
static bool play(struct tm_flight_set *s, struct thread *t, uint32_t thread) {
	const struct tm_event *e = &t->waiting[t->at];
	uint32_t process = t->process;
	bool is_freed = t->is_freed;
	if (s->watched && next_ns(t) > s->look_ns) look_at_waiting(s, next_ns(t));
	look_ahead(s, t);
	s->last_number += NUMBERS;
	t->is_freed = false;
	switch (TM_OP_CLASS(e->op)) {
	case TM_CLASS_ALLOC: allocate(s, process, thread, e); break;
	case TM_CLASS_FREE: freed(s, process, thread, e); break;
	case TM_CLASS_REALLOC:
		t->is_freed = !is_freed;
		if (is_freed) allocate(s, process, thread, e);
		else freed(s, process, thread, e);
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
	return !t->is_freed;
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
	if (!t->process) has_another_thread(process_of(s, process));
	t->process = process;
	if (!t->count) {
		s->active = tm_memory_grow(s->active, &s->active_capacity, s->active_count + 1, sizeof s->active[0]);
		s->active[s->active_count++] = thread;
	}
	t->waiting = tm_memory_grow(t->waiting, &t->capacity, t->count + n, sizeof t->waiting[0]);
	memcpy(t->waiting + t->count, events, n * sizeof events[0]);
	t->count += n;
	s->waiting_count += n;
	if (next_ns(t) < s->earliest_ns) s->earliest_ns = next_ns(t);
}

static bool earlier(const struct tm_flight_set *s, uint32_t a, uint32_t b) {
	uint64_t x = next_ns(&s->threads[a]), y = next_ns(&s->threads[b]);
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
		s->waiting_count -= t->at;
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

/* Up to the watermark, and where too many are left then on to half of what may wait: who stands still for long does not cost a look at every thread for each
 * chunk. Returns until when everything is replayed. */
static uint64_t replay(struct tm_flight_set *s, uint64_t watermark_ns) {
	size_t left = s->waiting_count;
	bool too_many = false;
	s->queue = tm_memory_grow(s->queue, &s->queue_capacity, s->active_count, sizeof s->queue[0]);
	memcpy(s->queue, s->active, s->active_count * sizeof s->queue[0]);
	s->queue_count = s->active_count;
	for (size_t i = s->queue_count / 2; i-- > 0;) sift_down(s, i);
	while (s->queue_count) {
		uint32_t id = s->queue[0];
		struct thread *t = &s->threads[id];
		if (next_ns(t) >= watermark_ns) {
			too_many = too_many || left > s->waiting_max;
			if (!too_many || left <= s->waiting_max / 2) break;
			watermark_ns = next_ns(t) + 1;
		}
		if (play(s, t, id)) {
			t->at++;
			left--;
		}
		if (t->at == t->count) s->queue[0] = s->queue[--s->queue_count];
		if (s->queue_count) sift_down(s, 0);
	}
	s->earliest_ns = s->queue_count ? next_ns(&s->threads[s->queue[0]]) : UINT64_MAX;
	keep_rest(s);
	return watermark_ns;
}

uint64_t tm_flight_set_advance(struct tm_flight_set *s, uint64_t watermark_ns) {
	if (watermark_ns < s->watermark_ns) watermark_ns = s->watermark_ns;
	if (s->earliest_ns < watermark_ns || s->waiting_count > s->waiting_max) watermark_ns = replay(s, watermark_ns);
	if (s->watched) look_at_waiting(s, watermark_ns);
	s->watermark_ns = watermark_ns;
	return watermark_ns;
}

bool tm_flight_set_waits(const struct tm_flight_set *s, uint32_t thread) {
	return thread < s->thread_count && s->threads[thread].count != 0;
}

bool tm_flight_set_process_waits(const struct tm_flight_set *s, uint32_t process) {
	for (size_t i = 0; i < s->active_count; i++)
		if (s->threads[s->active[i]].process == process) return true;
	return false;
}

/* --- ends --- */

void tm_flight_set_end_thread(struct tm_flight_set *s, uint32_t thread) {
	if (!tm_flight_set_waits(s, thread)) tm_flight_scopes_end_thread(&s->scopes, thread);
}

static void unwatch(struct tm_flight_set *s, const struct heap *h) {
	struct heap **link = &s->watched;
	while (*link && *link != h) link = &(*link)->next_watched;
	if (*link) *link = h->next_watched;
}

/* Calls `use` for every block of the heap that is live, and every event that waits for its turn. */
static void for_each_block(const struct heap *h, void (*use)(void *context, uint64_t index), void *context) {
	const struct tm_pairing *p = &h->pairing;
	for (size_t i = 0; i < p->blocks.all.count; i++)
		if (p->blocks.all.items[i].used) use(context, p->blocks.all.items[i].realloc_of);
	for (uint64_t n = p->head; n < p->tail; n++) {
		const struct tm_waiting *w = tm_pairing_waiting(p, n);
		if (w) use(context, w->is_free ? w->block.scope : w->block.realloc_of);
	}
}

static void forget(void *context, uint64_t index) {
	forget_block(context, index);
}

static void release_heaps(struct tm_flight_set *s, struct process *p) {
	for (struct heap *h = p->heaps, *next; h; h = next) {
		next = h->next;
		for_each_block(h, forget, s);
		unwatch(s, h);
		tm_pairing_release(&h->pairing);
		*place_of_heap(s, p, h->id) = NULL;
		free(h);
	}
	p->heaps = NULL;
}

void tm_flight_set_end_process(struct tm_flight_set *s, uint32_t process) {
	if (process < s->process_count) {
		struct process *p = &s->processes[process];
		unmapped(s, p, 0, UINT64_MAX, UINT64_MAX);
		tm_disjoint_release(&p->ranges);
		release_heaps(s, p);
		*p = (struct process){ .thread_count = p->thread_count, .inherits = p->inherits };
	}
	tm_flight_scopes_end_process(&s->scopes, process);
}

/* --- what stays --- */

static void put(struct tm_flight_list *list, uint32_t thread, uint64_t number, const struct tm_event *e) {
	list->events = tm_memory_grow(list->events, &list->capacity, list->count + 1, sizeof list->events[0]);
	list->events[list->count++] = (struct tm_flight_event){ thread, number, *e };
}

/* What a realloc made is told apart: what it was made of is gone. */
static uint8_t op_alone(uint8_t op) {
	if (op == TM_OP_REALLOC || op == TM_OP_REALLOCARRAY) return TM_OP_REALLOC_ALONE;
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

struct listing {
	const struct tm_flight_set *set;
	struct tm_flight_list *list;
};

/* A block, or a free that waits. */
static void put_heap_event(void *context, uint64_t index) {
	const struct listing *l = context;
	const struct block *b = &l->set->blocks.items[index];
	struct tm_event e = { .time_ns = b->ns, .begin_ns = b->ns, .old = b->address, .usable = TM_USABLE_UNKNOWN };
	e.heap = b->heap;
	e.op = b->op;
	if (TM_OP_CLASS(b->op) == TM_CLASS_FREE) put(l->list, b->thread, b->number, &e);
	else put_block(l->list, b, b->size);
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

static void put_last(struct tm_flight_list *list, const struct last *l) {
	if (l->event.op) put(list, l->thread, l->number, &l->event);
}

static void put_waiting(const struct tm_flight_set *s, struct tm_flight_list *list) {
	for (size_t i = 0; i < s->active_count; i++) {
		const struct thread *t = &s->threads[s->active[i]];
		for (size_t k = t->at; k < t->count; k++) {
			struct tm_event e = t->waiting[k];
			if (k == t->at && t->is_freed) {
				e.op = op_alone(e.op);
				e.begin_ns = e.time_ns;
				e.old = 0;
			}
			put(list, s->active[i], s->last_number + NUMBERS + k, &e);
		}
	}
}

void tm_flight_set_list(const struct tm_flight_set *s, struct tm_flight_list *list) {
	list->count = 0;
	struct listing listing = { s, list };
	for (size_t i = 0; i < s->process_count; i++) {
		const struct process *p = &s->processes[i];
		const struct range *r = tm_disjoint_above(&p->ranges, sizeof *r, 0);
		for (const struct heap *h = p->heaps; h; h = h->next) for_each_block(h, put_heap_event, &listing);
		for (; r; r = tm_disjoint_above(&p->ranges, sizeof *r, r->high))
			put_block(list, &r->block, (r->end < r->high ? r->end : r->high) - r->block.address);
		put_last(list, &p->step);
		put_last(list, &p->stop);
		put_last(list, &p->start);
	}
	for (const struct tm_flight_scope *x = s->scopes.first; x; x = x->after) put_scope(list, x);
	put_waiting(s, list);
	if (list->count) qsort(list->events, list->count, sizeof list->events[0], by_thread_and_number);
}

struct tm_flight_set *tm_flight_set_new(size_t waiting_max) {
	struct tm_flight_set *s = tm_memory_new(1, sizeof *s);
	s->waiting_max = waiting_max;
	s->earliest_ns = UINT64_MAX;
	if (!tm_array_push(&s->blocks)) tm_memory_exhausted();
	return s;
}

void tm_flight_set_free(struct tm_flight_set *s) {
	if (!s) return;
	for (size_t i = 0; i < s->process_count; i++) {
		tm_disjoint_release(&s->processes[i].ranges);
		release_heaps(s, &s->processes[i]);
	}
	for (size_t i = 0; i < s->thread_count; i++) free(s->threads[i].waiting);
	tm_flight_scopes_release(&s->scopes);
	free(s->processes);
	free(s->threads);
	free(s->heaps);
	tm_array_release(&s->blocks);
	free(s->active);
	free(s->queue);
	free(s);
}
