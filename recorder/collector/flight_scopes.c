/* flight_scopes.c - scopes that dropped events have opened: see flight_scopes.h. */
#include "flight_scopes.h"

#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define STACK_BYTES (1ull << 26) /* a frame further away lies on another stack */

static struct tm_flight_stack *stack_of(struct tm_flight_scopes *x, uint32_t thread) {
	if (thread >= x->thread_count) {
		x->threads = tm_memory_grow(x->threads, &x->thread_capacity, thread + 1u, sizeof x->threads[0]);
		memset(x->threads + x->thread_count, 0, (thread + 1u - x->thread_count) * sizeof x->threads[0]);
		x->thread_count = thread + 1u;
	}
	return &x->threads[thread];
}

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
	const struct tm_flight_stack *t = thread < x->thread_count ? &x->threads[thread] : NULL;
	return t && t->count ? t->open[t->count - 1] : NULL;
}

/* --- closing --- */

/* Takes it off its thread's stack, wherever it is there. */
static void unstack(struct tm_flight_scopes *x, struct tm_flight_scope *s) {
	struct tm_flight_stack *t = &x->threads[s->thread];
	size_t i = t->count;
	while (i && t->open[i - 1] != s) i--;
	if (!i) return;
	memmove(&t->open[i - 1], &t->open[i], (t->count - i) * sizeof t->open[0]);
	t->count--;
	s->is_open = false;
	tm_flight_scope_let_go(x, s);
}

static bool is_apart(const struct tm_flight_scope *s) {
	return s->opened.op == TM_OP_SCOPE_PUSH && s->opened.old == TM_PUSH_APART;
}

/* Pushed scopes and blocks inside of it are abandoned with it; their reader will see that by itself. */
static void unstack_with_inner(struct tm_flight_scopes *x, struct tm_flight_scope *s) {
	struct tm_flight_stack *t = &x->threads[s->thread];
	for (size_t i = t->count; s->opened.op != TM_OP_SCOPE_RANGE && i-- > 0 && t->open[i] != s;)
		if (t->open[i]->opened.op != TM_OP_SCOPE_RANGE && !(is_apart(s) && is_apart(t->open[i]))) unstack(x, t->open[i]);
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

static struct tm_flight_scope *with_key_on(const struct tm_flight_stack *t, uint64_t key) {
	for (size_t i = t->count; i-- > 0;)
		if (t->open[i]->opened.op != TM_OP_SCOPE_PUSH && t->open[i]->opened.addr == key) return t->open[i];
	return NULL;
}

/* Mostly it was opened by the same thread. */
static struct tm_flight_scope *with_key(const struct tm_flight_scopes *x, const struct tm_flight_stack *own, uint64_t key) {
	struct tm_flight_scope *s = with_key_on(own, key);
	for (size_t i = 0; !s && i < x->thread_count; i++)
		if (x->threads[i].process == own->process && x->threads[i].count) s = with_key_on(&x->threads[i], key);
	return s;
}

static struct tm_flight_scope *pushed(const struct tm_flight_stack *t, uint32_t category) {
	for (size_t i = t->count; i-- > 0;)
		if (t->open[i]->opened.op == TM_OP_SCOPE_PUSH && t->open[i]->opened.heap == category) return t->open[i];
	return NULL;
}

/* The outermost block that a new one with this link shows to be left. Blocks further out than one whose frame lies above stay. */
static struct tm_flight_scope *left_block(const struct tm_flight_stack *t, uint64_t link) {
	uint64_t frame = link & TM_BLOCK_FRAME_MASK;
	struct tm_flight_scope *left = NULL;
	for (size_t i = t->count; i-- > 0;) {
		const struct tm_event *e = &t->open[i]->opened;
		if (e->op != TM_OP_SCOPE_BLOCK) continue;
		uint64_t other = e->old & TM_BLOCK_FRAME_MASK;
		bool same_call = e->old >> TM_BLOCK_FRAME_BITS == link >> TM_BLOCK_FRAME_BITS;
		if (other == frame && same_call) break;
		if (other == frame || (other < frame && frame - other < STACK_BYTES)) left = t->open[i];
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

static void open_scope(struct tm_flight_scopes *x, uint32_t process, uint32_t thread, const struct tm_event *e, uint64_t number) {
	struct tm_flight_stack *t = &x->threads[thread];
	struct tm_flight_scope *earlier = e->op == TM_OP_SCOPE_BLOCK ? left_block(t, e->old) : NULL;
	if (earlier) abandon(x, earlier, thread, e, number);
	earlier = e->op != TM_OP_SCOPE_PUSH && e->addr ? with_key(x, t, e->addr) : NULL;
	if (earlier) abandon(x, earlier, thread, e, number);
	struct tm_flight_scope *s = new_scope(x);
	s->opened = *e;
	s->opened_number = number + 1; /* behind the ends that it brought about */
	s->process = process;
	s->thread = thread;
	s->parent = t->count ? t->open[t->count - 1] : NULL;
	s->holders = 1;
	s->is_open = true;
	tm_flight_scope_hold(s->parent);
	t->open = tm_memory_grow(t->open, &t->capacity, t->count + 1, sizeof t->open[0]);
	t->open[t->count++] = s;
}

void tm_flight_scopes_play(struct tm_flight_scopes *x, uint32_t process, uint32_t thread, const struct tm_event *e, uint64_t number) {
	struct tm_flight_stack *t = stack_of(x, thread);
	struct tm_flight_scope *s;
	t->process = process;
	switch (e->op) {
	case TM_OP_SCOPE_PUSH:
	case TM_OP_SCOPE_BLOCK:
	case TM_OP_SCOPE_RANGE: open_scope(x, process, thread, e, number); break;
	case TM_OP_SCOPE_END:
	case TM_OP_SCOPE_EXCEPTION:
		s = e->addr ? with_key(x, t, e->addr) : pushed(t, e->heap);
		if (s) close_at(x, s, thread, e, number);
		break;
	default: break;
	}
}

void tm_flight_scopes_end_thread(struct tm_flight_scopes *x, uint32_t thread, bool ranges) {
	if (thread >= x->thread_count) return;
	struct tm_flight_stack *t = &x->threads[thread];
	for (size_t i = t->count; i-- > 0;)
		if (ranges || t->open[i]->opened.op != TM_OP_SCOPE_RANGE) unstack(x, t->open[i]);
	if (t->count) return;
	free(t->open);
	t->open = NULL;
	t->capacity = 0;
}

void tm_flight_scopes_release(struct tm_flight_scopes *x) {
	struct tm_flight_scope *lists[] = { x->first, x->spare };
	for (size_t i = 0; i < 2; i++) {
		for (struct tm_flight_scope *s = lists[i], *after; s; s = after) {
			after = s->after;
			free(s);
		}
	}
	for (size_t i = 0; i < x->thread_count; i++) free(x->threads[i].open);
	free(x->threads);
	*x = (struct tm_flight_scopes){ 0 };
}
