/* unwind.h - exact stacks at the price of what changed since the last one.
 *
 * Flow:     stack.c -> here -> unwind_rule.h for each new frame; the odd ones are left to unwind_full.h by the caller
 * Idea:     a frame is found by its registers and by what memory holds where the rules look. So if unwinding comes to a place where it was the last
 *           time, with the same registers, and no word that was read from there on outward has changed, then the rest of the stack is
 *           what it was: exactly, whatever happened meanwhile. Per frame the place is one address, where its return address lies, and the word there is
 *           the return address; other words that were read (the few frame pointers that a caller's rule needs) are kept as struct tm_check.
 *
 *               last stack, outermost first:   slots[]  -> return addresses in memory
 *                                              pcs[]    == what they held
 *               now: 1. the prefix that still holds what it held
 *                    2. unwind from the top, until a frame lies where one of that prefix did
 *
 * Framed:   code built with frame pointers reads one at every frame. Its place is almost always the word below the return address, so it needs no check:
 *           such a frame is marked in framed[], and from the outermost one inward (framed_low) both words of every frame are compared at once, as a
 *           struct tm_pair. Where the lower word means nothing it is compared all the same: if it changed, some frames are unwound in vain.
 *
 * Known:    where a program does the same over and over, its stacks are compared as a whole and nothing is unwound at all (unwind_known.h).
 * Routes:   ways that were gone are kept, and gone again without a look at the rules when every word on them is what it was (unwind_route.h).
 *
 * Owns:     the arrays behind struct tm_thread, made by tm_unwind_prepare().
 * Threads:  a thread's own; the rules are shared.
 * Stack:    some hundred bytes, but for an address seen for the first time.
 */
#ifndef TIDEMARK_GUEST_UNWIND_H
#define TIDEMARK_GUEST_UNWIND_H

#include "guest.h"
#include "unwind_full.h"
#include "unwind_rule.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

struct tm_check {
	uintptr_t slot, value; /* *slot must be value still */
	uint32_t frame;        /* ... for frames from this one inward; TM_CHECK_TOP: the register itself was the hook's caller's */
	uint32_t until;        /* the outermost frame whose rule uses this frame pointer; `frame` itself: none does, the word is checked only */
};
#define TM_CHECK_TOP UINT32_MAX
#define TM_CHECK_END (UINT32_MAX - 2) /* behind the last check */
/* `until` of a check about the stack pointer of a frame that a signal interrupted: alone of all, that does not follow from the frame's place. Such a frame is
 * not met by one that made a call. */
#define TM_CHECK_INTERRUPTED (UINT32_MAX - 1)

enum { TM_TRUNCATED = 1, TM_INTERRUPTED = 2 }; /* in a thread's `truncated` */

/* What lies 8 below a frame's slot, and there. By frame pointers that is what one points to. */
struct tm_pair {
	uintptr_t next, pc;
};

/* Where a walk begins: in the caller of the hook. */
struct tm_top {
	uintptr_t pc, sp, fp, slot; /* slot: where pc lies */
	struct tm_memory memory;
};

enum tm_unwound {
	TM_UNWOUND,     /* t->pcs is the stack */
	TM_UNWOUND_ODD, /* nothing was changed: unwind_full.h has to do it */
};

size_t tm_unwind_bytes(uint32_t capacity);
void tm_unwind_prepare(struct tm_thread *t, void *memory);
/* At most `limit` frames, the innermost. `remember`: the stack lies on memory that is safe to look at again. `valid` is tm_unwind_next()'s. */
enum tm_unwound tm_unwind(struct tm_thread *t, const struct tm_top *top, uint32_t limit, bool remember, uint32_t valid, struct tm_stack *result);
enum tm_unwound tm_unwind_by_frame_pointers(struct tm_thread *t, const struct tm_top *top, uint32_t limit, bool remember, uint32_t valid,
					    struct tm_stack *result);
void tm_unwind_mark_all_framed(struct tm_thread *t); /* of a thread by frame pointers, before its first stack */
/* The same for what happens most: the new frames are plain ones, and then comes the innermost of the `valid` ones (more than none). The number of new
 * frames; TM_UNWIND_NOT_QUICK: nothing was changed, and it must be one of those above. */
uint32_t tm_unwind_quickly(struct tm_thread *t, uint32_t valid, uintptr_t slot, uintptr_t pc);
uint32_t tm_unwind_unexpectedly(struct tm_thread *t, uint32_t valid, uintptr_t slot, uintptr_t pc); /* where none of the expected routes leads there */
uint32_t tm_unwind_by_frame_pointers_quickly(struct tm_thread *t, uint32_t valid, uintptr_t slot);
#define TM_UNWIND_NOT_QUICK UINT32_MAX
#define TM_UNWIND_UNEXPECTED (TM_UNWIND_NOT_QUICK - 1) /* of tm_unwind_simply() */

/* For who unwinds by other means: frames, and where they lie, are put down innermost first, then taken over as the thread's stack. */
void tm_unwind_put(struct tm_thread *t, uint32_t n, uintptr_t pc, uintptr_t slot);
struct tm_stack tm_unwind_take_over(struct tm_thread *t, uint32_t n, bool cut);

/* --- what still holds --- */

#if defined(__x86_64__)
#define TM_UNWIND_PC_MASK (~(uintptr_t)0)
#define TM_UNWIND_PC_BITS 47
#else
#define TM_UNWIND_PC_MASK (~(uintptr_t)0 >> 16) /* above: a signature of the address */
#define TM_UNWIND_PC_BITS 48
#endif

/* An address that no program has code at, as those of the first page: what a coroutine's first frame was given as its caller, or a stack that was
 * overwritten. */
static inline bool tm_unwind_is_no_code(uintptr_t pc) {
	return pc - TM_MEMORY_PAGE >= ((uintptr_t)1 << TM_UNWIND_PC_BITS) - TM_MEMORY_PAGE;
}

#define TM_UNWIND_WORD(address) (*(const uintptr_t *)(address))

/* How many of the n outer frames still have their return addresses where they were. */
static inline __attribute__((always_inline)) uint32_t tm_unwind_unchanged(const uintptr_t *slots, const uintptr_t *pcs, uint32_t n) {
	const uintptr_t *slot = slots, *last = slots + n, *last_8 = last - 8, *pc = pcs;
#define TM_CHANGED(k) ((TM_UNWIND_WORD(slot[k]) & TM_UNWIND_PC_MASK) != pc[k])
#define TM_STOP(k) \
	if (TM_UNLIKELY(TM_CHANGED(k))) return (uint32_t)(slot - slots) + (k)
	for (; slot <= last_8; slot += 8, pc += 8) {
		TM_STOP(0);
		TM_STOP(1);
		TM_STOP(2);
		TM_STOP(3);
		TM_STOP(4);
		TM_STOP(5);
		TM_STOP(6);
		TM_STOP(7);
	}
	if (slot + 4 <= last) {
		TM_STOP(0);
		TM_STOP(1);
		TM_STOP(2);
		TM_STOP(3);
		slot += 4;
		pc += 4;
	}
	for (; slot < last && !TM_CHANGED(0); slot++) pc++;
#undef TM_STOP
#undef TM_CHANGED
	return (uint32_t)(slot - slots);
}

/* *beyond: the first check that is not about frames that stay, or does not hold; that of TM_CHECK_END: there is none. */
static inline uint32_t tm_unwind_checked(const struct tm_thread *t, uint32_t n, const struct tm_check **beyond) {
	const struct tm_check *c = t->checks;
	while (c->frame < n && TM_UNWIND_WORD(c->slot) == c->value) c++;
	*beyond = c;
	return c->frame < n ? c->frame : n;
}

static inline void tm_unwind_set_check_count(struct tm_thread *t, uint32_t n) {
	t->check_count = n;
	t->checks[n].frame = TM_CHECK_END;
}

/* How many checks are about frames that are kept. */
static inline uint32_t tm_unwind_count_kept_checks(const struct tm_thread *t, uint32_t keep) {
	uint32_t n = t->check_count;
	while (n && t->checks[n - 1].frame >= keep) n--;
	return n;
}

/* The frames of the last stack that are not inside of the one at innermost_slot. Mostly all: outside of the outermost lies the end of memory. */
static inline uint32_t tm_unwind_reached(const struct tm_thread *t, uintptr_t innermost_slot) {
	uint32_t n = t->remembered;
	if (TM_LIKELY(t->sps[(intptr_t)n - 1] >= innermost_slot)) return n;
	while (n >= 4 && t->sps[n - 4] < innermost_slot) n -= 4;
	while (n && t->sps[n - 1] < innermost_slot) n--;
	return n;
}

/* Of TM_PAIRS_TOGETHER frames those whose return address, and the word below it, are what they were: four bits each, from the outermost. */
#define TM_PAIRS_TOGETHER 8u
static inline uint32_t tm_unwind_same_pairs(const uintptr_t *slots, const struct tm_pair *pairs) {
#if defined(__x86_64__)
#define TM_SAME(k) _mm_cmpeq_epi32(_mm_loadu_si128((const __m128i *)(slots[k] - 8)), _mm_load_si128((const __m128i *)&pairs[k]))
	__m128i outer = _mm_packs_epi16(_mm_packs_epi32(TM_SAME(0), TM_SAME(1)), _mm_packs_epi32(TM_SAME(2), TM_SAME(3)));
	__m128i inner = _mm_packs_epi16(_mm_packs_epi32(TM_SAME(4), TM_SAME(5)), _mm_packs_epi32(TM_SAME(6), TM_SAME(7)));
	return (uint32_t)_mm_movemask_epi8(outer) | (uint32_t)_mm_movemask_epi8(inner) << 16;
#undef TM_SAME
#else
	uint32_t same = 0;
	for (uint32_t k = 0; k < TM_PAIRS_TOGETHER; k++)
		if (TM_UNWIND_WORD(slots[k]) == pairs[k].pc && TM_UNWIND_WORD(slots[k] - 8) == pairs[k].next) same |= 15u << 4 * k;
	return same;
#endif
}

/* As tm_unwind_unchanged(), the words below the return addresses included. Where the processor cannot foresee which frame is the first that changed, all of
 * some are compared without a branch; the last of them with some of those before once more. */
static inline uint32_t tm_unwind_unchanged_pairs(const uintptr_t *slots, const struct tm_pair *pairs, uint32_t n) {
	const uintptr_t *slot = slots, *end = slots + n;
	const struct tm_pair *pair = pairs;
	if (TM_LIKELY(n >= TM_PAIRS_TOGETHER)) {
		for (const uintptr_t *last = end - TM_PAIRS_TOGETHER;;) {
			uint32_t changed = ~tm_unwind_same_pairs(slot, pair);
			if (changed) return (uint32_t)(slot - slots) + (uint32_t)__builtin_ctz(changed) / 4;
			if (slot == last) return n;
			slot += TM_PAIRS_TOGETHER;
			pair += TM_PAIRS_TOGETHER;
			if (slot > last) {
				pair -= slot - last;
				slot = last;
			}
		}
	}
	while (slot < end && TM_UNWIND_WORD(*slot) == pair->pc && TM_UNWIND_WORD(*slot - 8) == pair->next) slot++, pair++;
	return (uint32_t)(slot - slots);
}

uint32_t tm_unwind_valid_framed(const struct tm_thread *t, uint32_t n); /* of n, some of which are to be compared as pairs */

/* Unwinding came to the place of frame i, with this frame pointer. *until: the outermost frame that uses it, if any does and it is not framed. */
static inline bool tm_unwind_is_met(const struct tm_thread *t, uint32_t i, uintptr_t fp, uint32_t *until) {
	const struct tm_check *c = t->checks + t->check_count;
	while (c > t->checks && c[-1].frame > i) {
		c--;
		if (c->until > i) continue;
		if (c->value != fp) return false;
		*until = c->until;
	}
	return true;
}

/* Is the whole stack the last one? If the innermost frame is framed its frame pointer was compared with the rest of the pair. */
static inline bool tm_unwind_is_same(const struct tm_thread *t, uint32_t valid, uintptr_t slot, uintptr_t fp) {
	uint32_t until;
	return valid == t->depth && t->sps[valid - 1] == slot && tm_unwind_is_met(t, valid - 1, fp, &until);
}

/* --- what is whose --- */

static inline bool tm_unwind_is_ours(uintptr_t pc) {
	return pc - tm_guest.text_low < tm_guest.text_high - tm_guest.text_low;
}

static inline bool tm_unwind_is_main_wrapper(uintptr_t pc) {
	return pc - tm_guest.main_low < tm_guest.main_high - tm_guest.main_low;
}

#endif
