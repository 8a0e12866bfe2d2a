/* flight_scopes.c - scopes that dropped events have opened: see flight_scopes.h. */
#include "flight_scopes.h"

#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define STACK_BYTES (1ull << 26) /* a frame further away lies on another stack */
#define NAMES_FIRST 64u

void tm_flight_scope_hold(struct tm_flight_scope *s) {
	if (s) s->holders++;
}

static void forget(struct tm_flight_scopes *x, struct tm_flight_scope *s) {
	if (s->before) s->before->after = s->after;
	else x->first = s->after;
	if (s->after) s->after->before = s->before;
	s->after = x->spare;
	x->spare = s;
}

void tm_flight_scope_let_go(struct tm_flight_scopes *x, struct tm_flight_scope *s) {
	while (s && --s->holders == 0) {
		struct tm_flight_scope *parent = s->parent;
		forget(x, s);
		s = parent;
	}
}

struct tm_flight_scope *tm_flight_scopes_top(const struct tm_flight_scopes *x, uint32_t thread) {
	return thread < x->thread_count ? x->threads[thread].top : NULL;
}

/* --- chains --- */

/* Before `later`, which stands in the chain, or as its last one: NULL. */
static void enter_chain(struct tm_flight_scope **last, struct tm_flight_scope *later, struct tm_flight_scope *s, enum tm_flight_chain c) {
	struct tm_flight_scope **place = later ? &later->chains[c].earlier : last, *earlier = *place;
	s->chains[c].earlier = earlier;
	s->chains[c].later = later;
	if (earlier) earlier->chains[c].later = s;
	*place = s;
}

static void leave_chain(struct tm_flight_scope **last, const struct tm_flight_scope *s, enum tm_flight_chain c) {
	struct tm_flight_scope *earlier = s->chains[c].earlier, *later = s->chains[c].later;
	if (earlier) earlier->chains[c].later = later;
	if (later) later->chains[c].earlier = earlier;
	else *last = earlier;
}

/* --- names: what an end may mean --- */

struct name {
	uint64_t owner, key;
};

/* That of what an event opens or ends: a key of the process, or the pushes of a category on the thread. */
static struct name name_of(uint32_t process, uint32_t thread, const struct tm_event *e) {
	bool by_key = e->op != TM_OP_SCOPE_PUSH && e->addr;
	return by_key ? (struct name){ (uint64_t)process << 1, e->addr } : (struct name){ (uint64_t)thread << 1 | 1, e->heap };
}

static bool has_name(const struct tm_event *opened) {
	return opened->op == TM_OP_SCOPE_PUSH || opened->addr;
}

static struct tm_flight_scope **slot_of(const struct tm_flight_scopes *x, struct name n) {
	uint64_t h = (n.key ^ n.owner * 0xD6E8FEB86659FD93u) * 0x9E3779B97F4A7C15u;
	return &x->names[(h >> 32 ^ h) & x->name_mask];
}

/* Where the last one with that name stands, or would. */
static struct tm_flight_scope **place_of(const struct tm_flight_scopes *x, struct name n) {
	struct tm_flight_scope **place = slot_of(x, n);
	for (; *place; place = &(*place)->next_name) {
		struct name other = name_of((*place)->process, (*place)->thread, &(*place)->opened);
		if (other.owner == n.owner && other.key == n.key) break;
	}
	return place;
}

static struct tm_flight_scope *with_name(const struct tm_flight_scopes *x, struct name n) {
	return x->names ? *place_of(x, n) : NULL;
}

static void grow_names(struct tm_flight_scopes *x) {
	struct tm_flight_scopes grown = { .name_mask = x->names ? x->name_mask * 2 + 1 : NAMES_FIRST - 1 };
	grown.names = tm_memory_new(grown.name_mask + 1, sizeof grown.names[0]);
	for (size_t i = 0; x->names && i <= x->name_mask; i++) {
		for (struct tm_flight_scope *s = x->names[i], *next; s; s = next) {
			struct tm_flight_scope **slot = slot_of(&grown, name_of(s->process, s->thread, &s->opened));
			next = s->next_name;
			s->next_name = *slot;
			*slot = s;
		}
	}
	free(x->names);
	x->names = grown.names;
	x->name_mask = grown.name_mask;
}

/* It stands for all of its name. */
static void enter_name(struct tm_flight_scopes *x, struct tm_flight_scope *s) {
	if (!x->names || x->name_count > x->name_mask) grow_names(x);
	struct tm_flight_scope **place = place_of(x, name_of(s->process, s->thread, &s->opened));
	s->next_name = *place ? (*place)->next_name : NULL;
	enter_chain(place, NULL, s, TM_FLIGHT_NAME);
	x->name_count++;
}

static void leave_name(struct tm_flight_scopes *x, const struct tm_flight_scope *s) {
	struct tm_flight_scope **place = place_of(x, name_of(s->process, s->thread, &s->opened)), *next = (*place)->next_name;
	leave_chain(place, s, TM_FLIGHT_NAME);
	if (*place) (*place)->next_name = next;
	else *place = next;
	x->name_count--;
}

/* --- closing --- */

static bool is_apart(const struct tm_flight_scope *s) {
	return s->opened.op == TM_OP_SCOPE_PUSH && s->opened.old == TM_PUSH_APART;
}

/* Takes it off its thread's stack, wherever it is there. */
static void unstack(struct tm_flight_scopes *x, struct tm_flight_scope *s) {
	struct tm_flight_stack *t = &x->threads[s->thread];
	leave_chain(&t->top, s, TM_FLIGHT_STACK);
	leave_chain(&x->processes[s->process], s, TM_FLIGHT_PROCESS);
	if (s->opened.op != TM_OP_SCOPE_RANGE) leave_chain(&t->inner[is_apart(s)], s, TM_FLIGHT_INNER);
	if (s->opened.op == TM_OP_SCOPE_BLOCK) leave_chain(&t->lowest, s, TM_FLIGHT_BLOCKS);
	if (has_name(&s->opened)) leave_name(x, s);
	tm_flight_scope_let_go(x, s);
}

/* Pushed scopes and blocks inside of it are abandoned with it; their reader will see that by itself. */
static void unstack_with_inner(struct tm_flight_scopes *x, struct tm_flight_scope *s) {
	struct tm_flight_scope **inner = x->threads[s->thread].inner;
	for (int apart = 0; s->opened.op != TM_OP_SCOPE_RANGE && apart < (is_apart(s) ? 1 : 2); apart++)
		while (inner[apart] && inner[apart]->opened_number > s->opened_number) unstack(x, inner[apart]);
	unstack(x, s);
}

static void close_at(struct tm_flight_scopes *x, struct tm_flight_scope *s, uint32_t thread, const struct tm_event *e, uint64_t number) {
	s->closed = *e;
	s->closed_thread = thread;
	s->closed_number = number;
	unstack_with_inner(x, s);
}

/* Abandoned by what opens now. An abandoned push has an end of its own only where it lies in a block, which abandons it. */
static void abandon(struct tm_flight_scopes *x, struct tm_flight_scope *s, uint32_t thread, const struct tm_event *e, uint64_t number) {
	struct tm_event end = { .time_ns = e->time_ns, .begin_ns = e->time_ns, .usable = TM_USABLE_UNKNOWN, .op = TM_OP_SCOPE_END };
	end.addr = s->opened.addr;
	close_at(x, s, thread, &end, number);
}

static uint64_t frame_of(const struct tm_event *block) {
	return block->old & TM_BLOCK_FRAME_MASK;
}

/* The outermost block that a new one shows to be left: of one stack those further out lie higher. */
static struct tm_flight_scope *left_block(const struct tm_flight_stack *t, const struct tm_event *block) {
	struct tm_flight_scope *left = NULL;
	for (struct tm_flight_scope *s = t->lowest; s && frame_of(&s->opened) <= frame_of(block); s = s->chains[TM_FLIGHT_BLOCKS].earlier) {
		if (s->opened.old == block->old) break; /* in one call: around it */
		if (frame_of(block) - frame_of(&s->opened) < STACK_BYTES) left = s;
	}
	return left;
}

/* --- opening --- */

static struct tm_flight_scope *new_scope(struct tm_flight_scopes *x) {
	struct tm_flight_scope *s = x->spare;
	if (s) x->spare = s->after;
	else s = tm_memory_new(1, sizeof *s);
	memset(s, 0, sizeof *s);
	s->after = x->first;
	if (x->first) x->first->before = s;
	return x->first = s;
}

/* Those that lie lower are on another stack, and hardly ever there. */
static void enter_block(struct tm_flight_stack *t, struct tm_flight_scope *s) {
	struct tm_flight_scope *lower = NULL, *at = t->lowest;
	for (; at && frame_of(&at->opened) < frame_of(&s->opened); at = at->chains[TM_FLIGHT_BLOCKS].earlier) lower = at;
	enter_chain(&t->lowest, lower, s, TM_FLIGHT_BLOCKS);
}

static void enter(struct tm_flight_scopes *x, struct tm_flight_scope *s) {
	struct tm_flight_stack *t = &x->threads[s->thread];
	enter_chain(&t->top, NULL, s, TM_FLIGHT_STACK);
	enter_chain(&x->processes[s->process], NULL, s, TM_FLIGHT_PROCESS);
	if (s->opened.op != TM_OP_SCOPE_RANGE) enter_chain(&t->inner[is_apart(s)], NULL, s, TM_FLIGHT_INNER);
	if (s->opened.op == TM_OP_SCOPE_BLOCK) enter_block(t, s);
	if (has_name(&s->opened)) enter_name(x, s);
}

static void open_scope(struct tm_flight_scopes *x, uint32_t process, uint32_t thread, const struct tm_event *e, uint64_t number) {
	struct tm_flight_stack *t = &x->threads[thread];
	struct tm_flight_scope *earlier = e->op == TM_OP_SCOPE_BLOCK ? left_block(t, e) : NULL;
	if (earlier) abandon(x, earlier, thread, e, number);
	earlier = e->op != TM_OP_SCOPE_PUSH && e->addr ? with_name(x, name_of(process, thread, e)) : NULL;
	if (earlier) abandon(x, earlier, thread, e, number);
	struct tm_flight_scope *s = new_scope(x);
	s->opened = *e;
	s->opened_number = number + 1; /* behind the ends that it brought about */
	s->process = process;
	s->thread = thread;
	s->parent = t->top;
	s->holders = 1;
	tm_flight_scope_hold(s->parent);
	enter(x, s);
}

/* Makes an array by ids long enough for this one. */
static void *grow(void *items, size_t *count, size_t *capacity, uint32_t id, size_t item_bytes) {
	if (id < *count) return items;
	items = tm_memory_grow(items, capacity, id + 1u, item_bytes);
	memset((char *)items + *count * item_bytes, 0, (id + 1u - *count) * item_bytes);
	*count = id + 1u;
	return items;
}

void tm_flight_scopes_play(struct tm_flight_scopes *x, uint32_t process, uint32_t thread, const struct tm_event *e, uint64_t number) {
	struct tm_flight_scope *s;
	x->threads = grow(x->threads, &x->thread_count, &x->thread_capacity, thread, sizeof x->threads[0]);
	x->processes = grow(x->processes, &x->process_count, &x->process_capacity, process, sizeof x->processes[0]);
	switch (e->op) {
	case TM_OP_SCOPE_PUSH:
	case TM_OP_SCOPE_BLOCK:
	case TM_OP_SCOPE_RANGE: open_scope(x, process, thread, e, number); break;
	case TM_OP_SCOPE_END:
	case TM_OP_SCOPE_EXCEPTION:
		s = with_name(x, name_of(process, thread, e));
		if (s) close_at(x, s, thread, e, number);
		break;
	default: break;
	}
}

void tm_flight_scopes_end_thread(struct tm_flight_scopes *x, uint32_t thread) {
	for (int apart = 0; thread < x->thread_count && apart < 2; apart++)
		while (x->threads[thread].inner[apart]) unstack(x, x->threads[thread].inner[apart]);
}

void tm_flight_scopes_end_process(struct tm_flight_scopes *x, uint32_t process) {
	while (process < x->process_count && x->processes[process]) unstack(x, x->processes[process]);
}

void tm_flight_scopes_release(struct tm_flight_scopes *x) {
	struct tm_flight_scope *lists[] = { x->first, x->spare };
	for (size_t i = 0; i < 2; i++) {
		for (struct tm_flight_scope *s = lists[i], *after; s; s = after) {
			after = s->after;
			free(s);
		}
	}
	free(x->threads);
	free(x->processes);
	free(x->names);
	*x = (struct tm_flight_scopes){ 0 };
}
