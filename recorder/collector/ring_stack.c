/* ring_stack.c - records say how a stack differs from the one before; here it becomes a node of the tree: see ring_stack.h. */
#include "ring_stack.h"

#include "collector.h"
#include "drain.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 8192u
#define ROOM_FOR_TURNS 8u /* a stack that becomes a little deeper is a turn still */

/* Frames that every thread has and nobody wrote: the loader's entry into the executable and libc's part right inside of it; and on other
 * threads, and in a child that one of them forked, libc's start of a thread, if the stack goes so far out. */
static bool is_startup(struct tm_collector *c, struct tm_ring_view *r, size_t at, uint64_t pc) {
	uint32_t id = tm_module_at(c, r->process, pc);
	if (at == 0) r->entry_left_out = false;
	if (!id) return false;
	const struct tm_module *m = &c->modules.all[id - 1];
	if (at == 0 && m->entry && pc - m->entry < 64) return r->entry_left_out = true;
	if (!m->is_libc) return false;
	if (r->entry_left_out) return at <= 2;
	bool first_thread = r->tid == r->pid && !(r->process->flags & TM_PROCESS_FORKED);
	return at < 2 && r->is_whole && !first_thread;
}

size_t tm_ring_stack_startup_frames(struct tm_collector *c, struct tm_ring_view *r) {
	size_t n = 0;
	while (n < r->depth && n < TM_OUTER_FRAMES && is_startup(c, r, n, r->pcs[n])) n++;
	return n;
}

static void step_in(struct tm_collector *c, struct tm_ring_view *r, size_t at) {
	uint32_t parent = at ? r->path[at - 1] : 0;
	bool leave_out = parent == 0 && is_startup(c, r, at, r->pcs[at]);
	r->path[at] = leave_out ? 0 : tm_stack_child(c, r->process, parent, r->pcs[at]);
}

/* The stack becomes its `keep` outermost frames and then `fresh` new ones, outermost first in pcs; is_whole is about a new outermost one. false: it
 * cannot be so. */
static bool change_stack(struct tm_ring_view *r, size_t keep, const uint64_t *pcs, size_t fresh, bool is_whole) {
	if (keep > r->depth || keep + fresh > DEPTH_MAX) return false;
	size_t depth = keep + fresh;
	r->pcs = tm_memory_grow(r->pcs, &r->pc_capacity, depth + ROOM_FOR_TURNS, sizeof r->pcs[0]);
	uint64_t bits = 0;
	for (size_t i = 0; i < fresh; i++) bits |= r->pcs[keep + i] = pcs[i];
	if (bits >= TM_ADDRESS_LIMIT) return false;
	r->depth = depth;
	if (!keep) r->is_whole = is_whole;
	if (r->path_valid > keep) r->path_valid = keep;
	if (r->python.scanned | r->python.tail_valid | r->python.eval_count) tm_python_native_changed(&r->python, keep);
	r->stack = 0;
	return true;
}

/* The node of the native stack. */
static uint32_t native_stack(struct tm_collector *c, struct tm_ring_view *r) {
	size_t depth = r->depth;
	if (r->stack || !depth) return r->stack;
	r->path = tm_memory_grow(r->path, &r->path_capacity, depth + ROOM_FOR_TURNS, sizeof r->path[0]);
	size_t at = r->path_valid;
	for (; at < depth && at < TM_OUTER_FRAMES; at++) step_in(c, r, at);
	if (at < depth) tm_stack_descend(c, r->process, at ? r->path[at - 1] : 0, r->pcs + at, depth - at, r->path + at);
	r->path_valid = depth;
	r->stack = r->path[depth - 1];
	/* A stack that is all start-up keeps its innermost frame. */
	if (!r->stack) r->stack = tm_stack_child(c, r->process, 0, r->pcs[depth - 1]);
	return r->stack;
}

static uint32_t stack_of(struct tm_collector *c, struct tm_ring_view *r, unsigned flags) {
	uint32_t stack = flags & TM_RING_PYTHON ? tm_python_merged_stack(c, r) : 0;
	return stack ? stack : native_stack(c, r);
}

/* --- stacks that the ring has learned --- */

void tm_ring_stack_lose(struct tm_ring_view *r) {
	r->path_known = r->python.known = false;
	r->depth = r->path_valid = 0;
	tm_python_native_changed(&r->python, 0);
	r->stack = 0;
	r->known.current = 0;
	r->known.lost = true;
}

void tm_ring_stack_end(struct tm_ring_view *r) {
	free(r->known.stacks);
	free(r->known.pcs);
	r->known = (struct tm_ring_known){ 0 };
}

/* What r->pcs is to become it becomes: the outer frames that both have stay. */
static bool settle_known(struct tm_ring_view *r) {
	struct tm_ring_known *known = &r->known;
	if (!known->current) return true;
	const struct tm_ring_known_stack *s = &known->stacks[known->current - 1];
	const uint64_t *pcs = known->pcs + s->at;
	size_t keep = 0, most = s->depth < r->depth ? s->depth : r->depth;
	while (keep < most && r->pcs[keep] == pcs[keep]) keep++;
	known->current = 0;
	r->path_known = true;
	return (keep == s->depth && keep == r->depth) ||
	       change_stack(r, keep, pcs + keep, s->depth - keep, true); /* none is learned that is a part */
}

/* The stack in r->pcs gets a number. */
static bool learn(struct tm_ring_view *r, unsigned flags) {
	struct tm_ring_known *known = &r->known;
	size_t depth = r->path_known ? r->depth : 0;
	if (flags & TM_RING_LEARN_FIRST) {
		known->count = known->used = 0;
		known->lost = false;
	}
	if (known->lost) return true; /* its number is not known */
	if (known->count >= TM_RING_KNOWN_MOST || known->used + depth > tm_ring_known_frames(r->thread_number)) return false;
	known->stacks = tm_memory_grow(known->stacks, &known->capacity, known->count + 1, sizeof known->stacks[0]);
	known->pcs = tm_memory_grow(known->pcs, &known->pcs_capacity, known->used + depth + 1, sizeof known->pcs[0]);
	known->stacks[known->count++] = (struct tm_ring_known_stack){ .at = known->used, .depth = (uint32_t)depth };
	if (depth) memcpy(known->pcs + known->used, r->pcs, depth * sizeof known->pcs[0]);
	known->used += depth;
	return true;
}

uint32_t tm_ring_stack_known(struct tm_ring_view *r, uint64_t word) {
	size_t number = word >> 32 & 0xffff;
	uint64_t rest = word & 0xffffff00 & ~((uint64_t)TM_RING_CUT << 8);
	const struct tm_ring_known_stack *s = &r->known.stacks[number];
	if (number >= r->known.count || r->known.lost || s->epoch != r->process->modules.epoch) return 0;
	uint32_t stack = 0;
	if (rest == tm_ring_word(0, TM_RING_KNOWN, TM_RING_ALLOC_WORDS, 0, 0)) stack = s->native;
	else if (rest == tm_ring_word(0, TM_RING_KNOWN | TM_RING_PYTHON, TM_RING_ALLOC_WORDS, 0, 0) && s->python == r->python.path) stack = s->merged;
	if (!stack) return 0;
	r->known.current = (uint32_t)number + 1;
	if (word & TM_RING_CUT << 8) r->process->cut_stacks++;
	return stack;
}

/* r->pcs becomes the known stack of that number. What was lost is not known, nor what the next record keeps of it. */
static bool become_known(struct tm_ring_view *r, size_t number) {
	struct tm_ring_known *known = &r->known;
	if (!known->lost && number >= known->count) return false;
	known->current = 0;
	r->path_known = !known->lost && known->stacks[number].depth;
	if (!r->path_known) {
		r->depth = r->path_valid = 0;
		tm_python_native_changed(&r->python, 0);
		r->stack = 0;
		return true;
	}
	known->current = (uint32_t)number + 1;
	return settle_known(r);
}

/* What was found out is kept for the next time. */
static void note_known(const struct tm_ring_view *r, size_t number, unsigned flags, uint32_t stack) {
	struct tm_ring_known_stack *s = &r->known.stacks[number];
	if (s->epoch != r->process->modules.epoch) s->native = s->merged = 0;
	s->epoch = r->process->modules.epoch;
	if (!(flags & TM_RING_PYTHON)) {
		s->native = stack;
		return;
	}
	s->merged = r->python.merged == stack ? stack : 0;
	s->python = r->python.path;
}

/* What follows is about so many of the frames in r->pcs. */
static void resize_stack(struct tm_ring_view *r, size_t depth) {
	size_t same = depth < r->depth ? depth : r->depth;
	r->depth = depth;
	if (r->path_valid > same) r->path_valid = same;
	tm_python_native_changed(&r->python, same);
	r->stack = 0;
}

_Static_assert(TM_RING_TURN_WORDS == TM_CHAIN_FRAMES, "a turn is a chain");

static bool is_sound(const struct tm_ring_view *r, const uint64_t *pcs, size_t fresh) {
	uint64_t bits = 0;
	for (size_t i = 0; i < fresh; i++) {
		bits |= pcs[i];
		if (tm_python_is_eval(&r->python, pcs[i])) return false;
	}
	return bits < TM_ADDRESS_LIMIT;
}

static const uint64_t first_words[TM_CHAIN_FRAMES + 1][TM_CHAIN_FRAMES] = {
	{ 0 }, { ~0ull }, { ~0ull, ~0ull }, { ~0ull, ~0ull, ~0ull }, { ~0ull, ~0ull, ~0ull, ~0ull }
};

/* The nodes of the new frames are found below that of the frames that stay, mostly by an earlier turn of the same kind, and nothing else has to be
 * looked at. What r->turns says holds until the stack changes in another way. */
uint32_t tm_ring_stack_turn(struct tm_collector *c, struct tm_ring_view *r, uint64_t word, const uint64_t *pcs) {
	const struct tm_turns *t = &r->turns;
	if (r->known.current) return 0;
	size_t keep = word >> 32 & 0xffff, fresh = (word >> 16 & 0xffff) - TM_RING_ALLOC_WORDS, depth = keep + fresh;
	if ((word & 0xff00) != t->flags || fresh - 1 >= TM_CHAIN_FRAMES || keep - t->first > r->depth - t->first) return 0;
	if (keep >= t->limit || !*t->stack) return 0;
	struct tm_chain wanted = { .parent = t->path[keep - 1], .epoch = r->process->modules.epoch, .count = (uint32_t)fresh, .checked = r->python.run_set };
	for (size_t i = 0; i < TM_CHAIN_FRAMES; i++) wanted.addresses[i] = pcs[i] & first_words[fresh][i];
	struct tm_chain *chain = tm_stack_chain_place(&c->stacks, &wanted);
	if (!tm_stack_chain_is(chain, &wanted)) {
		if (!is_sound(r, pcs, fresh)) return 0;
		tm_stack_set_chain(c, r->process, chain, &wanted);
	}
	memcpy(t->path + keep, chain->nodes, sizeof chain->nodes);
	memcpy(r->pcs + keep, wanted.addresses, sizeof wanted.addresses);
	r->depth = depth;
	*t->valid = depth;
	if (t->flags) {
		if (r->path_valid > keep) r->path_valid = keep;
		r->python.scanned = depth;
	}
	return *t->stack = chain->nodes[fresh - 1];
}

/* What the next records may turn, now that the stack of one is known. */
static void set_turns(struct tm_ring_view *r) {
	struct tm_python_ring *p = &r->python;
	struct tm_turns *t = &r->turns;
	*t = (struct tm_turns){ 0 };
	if (p->merged && p->tail_first) {
		p->tail[p->tail_first - 1] = p->tail_parent;
		r->stack = 0;
		*t = (struct tm_turns){ TM_RING_PYTHON << 8, p->tail, &p->tail_valid, &p->merged, p->tail_first, p->tail_capacity };
	} else if (r->stack && !(p->scanned | p->tail_valid | p->eval_count) && r->depth >= TM_OUTER_FRAMES) {
		*t = (struct tm_turns){ 0, r->path, &r->path_valid, &r->stack, TM_OUTER_FRAMES, r->path_capacity };
	}
	if (t->limit > r->pc_capacity) t->limit = r->pc_capacity;
	t->limit = t->limit > TM_RING_TURN_WORDS ? t->limit - TM_RING_TURN_WORDS : 0;
}

/* r->pcs becomes what a record says. After a corrupt stretch the frames that it keeps are not known: then r->path_known is false, until a whole stack comes. */
static bool take_frames(struct tm_ring_view *r, unsigned flags, size_t keep, const uint64_t *pcs, size_t fresh) {
	if (flags & TM_RING_KNOWN) {
		if (fresh || !become_known(r, keep)) return false;
		if (r->path_known && flags & TM_RING_CUT) r->process->cut_stacks++; /* its Python part */
		return true;
	}
	if (keep == 0) r->path_known = true;
	if (!settle_known(r)) return false;
	if (r->path_known && (fresh || keep != r->depth) && !change_stack(r, keep, pcs, fresh, !(flags & TM_RING_PART))) return false;
	if (r->path_known && flags & TM_RING_CUT) r->process->cut_stacks++;
	return !(flags & TM_RING_LEARN) || learn(r, flags);
}

bool tm_ring_stack_take(struct tm_collector *c, struct tm_ring_view *r, unsigned flags, size_t keep, const uint64_t *pcs, size_t fresh,
		       uint32_t *stack) {
	size_t number = keep;
	*stack = 0;
	if (flags & TM_RING_NO_STACK) return fresh == 0;
	if (!take_frames(r, flags, keep, pcs, fresh)) return false;
	if (!r->path_known) return true;
	*stack = stack_of(c, r, flags);
	set_turns(r);
	if (flags & TM_RING_KNOWN) note_known(r, number, flags, *stack);
	return true;
}

/* The same of a call whose innermost frames are a driver's: the program's call is outside of them. */
bool tm_ring_stack_take_past(struct tm_collector *c, struct tm_ring_view *r, unsigned flags, size_t keep, const uint64_t *pcs, size_t fresh, size_t drivers,
			    uint32_t *stack) {
	if (!drivers || flags & TM_RING_NO_STACK) return tm_ring_stack_take(c, r, flags, keep, pcs, fresh, stack);
	*stack = 0;
	if (!take_frames(r, flags, keep, pcs, fresh)) return false;
	if (!r->path_known) return true;
	if (drivers >= r->depth) return false;
	size_t depth = r->depth;
	resize_stack(r, depth - drivers);
	*stack = stack_of(c, r, flags);
	resize_stack(r, depth);
	return true;
}
