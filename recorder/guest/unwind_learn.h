/* unwind_learn.h - how a way that was gone is kept, to be gone again: the part of unwind.c that fills what unwind_route.h describes.
 *
 * Flow:     unwind.c, after a walk by rules -> tm_route_learn() -> the thread's struct tm_routes
 * Threads:  a thread's own. A signal handler that never comes back may leave a route half learned: it is nobody's until its last store.
 */
#ifndef TIDEMARK_GUEST_UNWIND_LEARN_H
#define TIDEMARK_GUEST_UNWIND_LEARN_H

#include "raw.h"
#include "unwind_route.h"

static void tm_route_learn_some(const struct tm_thread *t, uintptr_t *pcs, uint16_t *offsets, uint32_t n, uint32_t from, uint32_t last) {
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = from + i < last ? from + i : last;
		pcs[i] = t->pcs[at];
		offsets[i] = (uint16_t)((t->sps[at] - t->sps[last]) / 8);
	}
}

/* The frame pointer that lies `at`, and is `value` bytes beyond where the route begins, leads the frame `user` to its caller. False: there is no room, or it
 * is too far. */
static bool tm_route_learn_use(struct tm_route_uses *u, uintptr_t at, uintptr_t slot, intptr_t value, uint8_t source, uint32_t user) {
	if (u->count == TM_ROUTE_USES_MAX || value % 8 || value / 8 != (int16_t)(value / 8)) return false;
	u->uses[u->count++] = (struct tm_route_use){ (uint16_t)((at - (slot - 8)) / 8), (int16_t)(value / 8), source, (uint8_t)user };
	return true;
}

/* What becomes of the frame pointer on the way: as the walk did it, once more. False: the way has too many turns. */
static bool tm_route_follow_fp(const struct tm_thread *t, struct tm_route *r, struct tm_route_uses *uses, uint32_t keep, uintptr_t slot,
			       uintptr_t met) {
	const uint32_t framed_rule = tm_rule_make(TM_RULE_FP, 2, 16);
	uint64_t rules = tm_rules();
	uintptr_t at = slot - 8;
	r->framed = 0;
	r->fp_source = TM_ROUTE_FP_TOP;
	for (uint32_t i = r->count; i-- > 0;) {
		uintptr_t place = t->sps[keep + i], outer = i ? t->sps[keep + i - 1] : met;
		uint32_t rule = tm_rule_in(rules, t->pcs[keep + i] - 1);
		if (rule == framed_rule && at == place - 8) {
			r->framed |= 1u << i;
		} else if (tm_rule_kind(rule) == TM_RULE_FP) {
			intptr_t value = (intptr_t)(outer + 8 - slot) - (intptr_t)tm_rule_offset(rule);
			if (!tm_route_learn_use(uses, at, slot, value, r->fp_source, r->count - 1 - i)) return false;
			r->framed |= TM_ROUTE_USES;
		} else if (tm_rule_kind(rule) != TM_RULE_SP) {
			return false;
		}
		if (!TM_RULE_FP_SLOT(rule)) continue;
		at = outer + 8 - 8 * (uintptr_t)TM_RULE_FP_SLOT(rule);
		if (at <= place) return false;
		r->fp_source = (uint8_t)(r->count - 1 - i);
	}
	r->fp_at = (uint16_t)((at - (slot - 8)) / 8);
	return true;
}

static void tm_route_keep_uses(struct tm_routes *all, const struct tm_route *r, const struct tm_route_uses *uses) {
	struct tm_route_uses *to = tm_route_uses(all, r);
	to->owner = 0;
	atomic_signal_fence(memory_order_seq_cst);
	to->count = uses->count;
	memcpy(to->uses, uses->uses, sizeof to->uses);
	atomic_signal_fence(memory_order_seq_cst);
	to->owner = tm_route_number(all, r);
}

/* What the first ones lie on was looked at here and there, and would now be written a page at a time. */
TM_COLD static void tm_routes_begin(const struct tm_thread *t) {
	if (tm_is_sandboxed()) return;
	tm_raw_populate(t->routes, sizeof *t->routes->routes * TM_ROUTES_AT_FIRST);
	tm_raw_populate(t->routes->seconds, sizeof t->routes->seconds + sizeof *t->routes->routes * TM_ROUTES_AT_FIRST / 8);
}

/* Those that have another place now are learned again. Of hundreds of threads most learn little. */
TM_COLD static void tm_routes_use_all(struct tm_thread *t) {
	if (t->routes_mask == TM_ROUTES - 1) return;
	t->routes_mask = TM_ROUTES - 1;
	if (!tm_is_sandboxed() && tm_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0) == tm_raw_getpid())
		tm_raw_populate(t->routes, sizeof *t->routes);
}

/* The `count` frames from `keep` on are to be found again, at this place. */
TM_REALIGN static __attribute__((noinline)) void tm_route_learn_now(struct tm_thread *t, struct tm_route *r, uint32_t keep, uint32_t count,
								    uintptr_t met) {
	struct tm_routes *all = t->routes;
	uint32_t last = keep + count - 1;
	uintptr_t slot = t->sps[last], pc = t->pcs[last];
	if (count - 1 >= TM_ROUTE_FRAMES || met - slot > 8 * UINT16_MAX) return;
	if (r->pc && !r->used) t->routes_wait += t->routes_wait < TM_ROUTE_WAIT_MAX;
	else if (r->used) t->routes_wait /= 2;
	t->routes_wait_left = t->routes_wait;
	r->pc = 0;
	r->used = 0;
	atomic_signal_fence(memory_order_seq_cst);
	if (!t->routes_learned) tm_routes_begin(t);
	r->count = (uint8_t)count;
	struct tm_route_uses uses = { .owner = 0 };
	if (!tm_route_follow_fp(t, r, &uses, keep, slot, met)) return;
	if (uses.count) tm_route_keep_uses(all, r, &uses);
	tm_route_learn_some(t, r->pcs, r->offsets, TM_ROUTE_FIRST, keep, last);
	if (count > TM_ROUTE_FIRST + 1) {
		struct tm_route_rest *rest = tm_route_rest(all, r);
		rest->owner = 0;
		atomic_signal_fence(memory_order_seq_cst);
		tm_route_learn_some(t, rest->pcs, rest->offsets, TM_ROUTE_REST, keep + TM_ROUTE_FIRST, last);
		atomic_signal_fence(memory_order_seq_cst);
		rest->owner = tm_route_number(all, r);
	}
	if (count > 1) *tm_route_second(all, pc) = (uint16_t)((t->sps[last - 1] - slot) / 8);
	if (t->routes_learned < TM_ROUTES_FEW && ++t->routes_learned == TM_ROUTES_FEW) tm_routes_use_all(t);
	r->worth = TM_ROUTE_WORTH_FIRST;
	r->span = (uint32_t)(met - slot);
	atomic_signal_fence(memory_order_seq_cst);
	r->pc = pc;
}

/* Where each stack is another, routes are learned in vain: the more were, the more misses go by before the next one is. */
static inline void tm_route_learn(struct tm_thread *t, uint64_t hash, uint32_t keep, uint32_t count, uintptr_t met) {
	if (t->routes_wait_left) {
		t->routes_wait_left--;
		return;
	}
	struct tm_route *r = tm_route_place_one(t, hash), *two = tm_route_place_two(t, hash);
	unsigned refused = ++t->routes_refused;
	if (two->worth < r->worth || (two->worth == r->worth && refused & TM_ROUTE_YIELD)) r = two;
	if (r->worth && (t->routes_wait || refused % TM_ROUTE_YIELD)) r->worth--;
	else tm_route_learn_now(t, r, keep, count, met);
}

/* Only what was written is written: of a thread that learned few the rest stays memory that was never touched. */
TM_COLD static void tm_routes_forget(struct tm_thread *t) {
	for (struct tm_route *r = t->routes->routes, *end = r + t->routes_mask + 1; r < end; r++)
		if (r->pc) r->pc = r->worth = 0;
	t->routes_learned = 0;
}

#endif
