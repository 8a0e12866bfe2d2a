/* unwind_usual.h - what a hook does first to take a stack that is none of the known ones (unwind_known.h), and mostly all that it does.
 *
 * Flow:     emit.c -> here: what of the last stack still holds, and the two routes that came next before -> unwind.c for all else
 * Idea:     unwind.h, unwind_route.h. Here is only what is so simple that nothing has to be asked twice: the frames that go and those that come are about
 *           the stack pointer alone, and no frame is missing.
 * Cost:     tests/integration/test_instructions.py
 */
#ifndef TIDEMARK_GUEST_UNWIND_USUAL_H
#define TIDEMARK_GUEST_UNWIND_USUAL_H

#include "unwind.h"

#if defined(__x86_64__)
#include "unwind_route.h"

/* Goes one of the expected routes, if it is about the stack pointer alone and leads to the innermost of the `valid` frames. All checks are about these,
 * and none of them is compared as a pair. The number of its frames; else as tm_unwind_simply(). */
static inline uint32_t tm_unwind_as_expected(struct tm_thread *t, uint32_t valid, uintptr_t slot) {
	struct tm_route *r = t->route_expected;
	uintptr_t pc = TM_UNWIND_WORD(slot), span = t->sps[valid - 1] - slot;
	if (!tm_route_fits(r, slot, pc, span)) {
		r = t->route_second;
		if (!tm_route_fits(r, slot, pc, span)) return TM_UNWIND_UNEXPECTED;
	}
	uint32_t depth = valid + r->count;
	if (r->framed || depth > t->capacity || t->truncated) return TM_UNWIND_NOT_QUICK;
	if (TM_UNLIKELY(!tm_route_is_short(r))) return tm_unwind_go_long_route(t, r, valid, slot);
	tm_route_put_four(t, r->pcs, r->offsets, valid, slot);
	t->pcs[depth - 1] = pc;
	t->sps[depth - 1] = slot;
	return tm_route_gone(t, r, valid);
}

#else

static inline uint32_t tm_unwind_as_expected(struct tm_thread *t, uint32_t valid, uintptr_t slot) {
	(void)t;
	(void)valid;
	(void)slot;
	return TM_UNWIND_NOT_QUICK;
}

#endif

/* The number of new frames in t->pcs where all is simple; TM_UNWIND_NOT_QUICK, and TM_UNWIND_UNEXPECTED where no expected route fits: nothing was changed, the
 * next one is to be asked with that and *valid. */
static inline uint32_t tm_unwind_simply(struct tm_thread *t, const void *frame, uint32_t *valid) {
	uintptr_t slot = (uintptr_t)frame + 8;
	const struct tm_check *beyond;
	*valid = 0;
	if (TM_UNLIKELY(slot - t->stack_low >= t->stack_high - t->stack_low)) return TM_UNWIND_NOT_QUICK;
	if (TM_UNLIKELY(atomic_load_explicit(&tm_versions.rules, memory_order_acquire) != t->rules_version)) return TM_UNWIND_NOT_QUICK;
	uint32_t n = tm_unwind_reached(t, slot);
	if (TM_UNLIKELY(n > t->framed_low)) {
		*valid = tm_unwind_valid_framed(t, n);
		return TM_UNWIND_NOT_QUICK;
	}
	*valid = n = tm_unwind_checked(t, tm_unwind_unchanged(t->sps, t->pcs, n), &beyond);
	if (TM_UNLIKELY(beyond->frame != TM_CHECK_END || !n)) return TM_UNWIND_NOT_QUICK;
	if (n == t->depth && t->sps[n - 1] == slot) return 0;
	return tm_unwind_as_expected(t, n, slot);
}

/* The same where it is not so simple. TM_UNWIND_NOT_QUICK: nothing was changed, the stack is to be taken by tm_stack_take() with *valid. */
static inline __attribute__((always_inline)) uint32_t tm_unwind_next(struct tm_thread *t, const void *frame, uint32_t simply, uint32_t *valid) {
	uintptr_t slot = (uintptr_t)frame + 8;
	if (simply == TM_UNWIND_UNEXPECTED) return tm_unwind_unexpectedly(t, *valid, slot, TM_UNWIND_WORD(slot));
	if (TM_UNLIKELY(!*valid)) return TM_UNWIND_NOT_QUICK;
	if (tm_unwind_is_same(t, *valid, slot, TM_UNWIND_WORD(frame))) return 0;
	if (t->by_frame_pointers) return tm_unwind_by_frame_pointers_quickly(t, *valid, slot);
	return tm_unwind_quickly(t, *valid, slot, TM_UNWIND_WORD(slot) & TM_UNWIND_PC_MASK);
}

#endif
