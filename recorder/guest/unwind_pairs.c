/* unwind_pairs.c - the next stack by frame pointers, where it meets the one before; see unwind.h.
 *
 * Flow:     unwind_usual.h -> here -> t->pcs; what does not meet it: tm_unwind_by_frame_pointers() (unwind.c)
 * Idea:     a frame is a pair of words, the outer pair's address and the return address; sps[] are the addresses of the latter. All frames are framed, and no
 *           rule is asked.
 * Threads:  a thread's own.
 */
#include "unwind.h"

#include <string.h>

void tm_unwind_mark_all_framed(struct tm_thread *t) {
	memset(t->framed, 1, 2 * (size_t)t->capacity);
}

/* Goes along the new pairs, up to that of the innermost of the `valid` frames, and puts their places down at the far end of t->sps, outermost first: how many.
 * All are in modules that were announced. Between the innermost pair and the one that is met any word can be read. */
static inline uint32_t follow_frame_pointers(struct tm_thread *t, uint32_t valid, uintptr_t slot) {
	uintptr_t *const end = t->sps + 2 * t->capacity, *const least = t->sps + t->capacity + valid, *at = end;
	uintptr_t met = t->sps[valid - 1] - 8, pair = slot - 8, next, all = 0, page = UINTPTR_MAX; /* page: which was asked about last */
	uint32_t modules = atomic_load_explicit(&tm_versions.modules, memory_order_acquire);
	if (t->truncated || pair >= met) return TM_UNWIND_NOT_QUICK;
	for (;; pair = next) {
		uintptr_t pc = TM_UNWIND_WORD(pair + 8) & TM_UNWIND_PC_MASK;
		next = TM_UNWIND_WORD(pair);
		if (pc / TM_MEMORY_PAGE != page) {
			if (TM_UNLIKELY(tm_unwind_is_ours(pc) || !tm_modules_know(pc, modules))) return TM_UNWIND_NOT_QUICK;
			page = pc / TM_MEMORY_PAGE;
		}
		if (TM_UNLIKELY(at == least)) return TM_UNWIND_NOT_QUICK;
		*--at = pair;
		all |= next;
		if (next >= met || TM_UNLIKELY(next <= pair)) break;
	}
	return next != met || all % 8 ? TM_UNWIND_NOT_QUICK : (uint32_t)(end - at);
}

/* Puts them behind the kept ones. */
static inline void take_new_pairs(struct tm_thread *t, uint32_t keep, uint32_t fresh) {
	uintptr_t *sps = t->sps + keep, *pcs = t->pcs + keep, *at = t->sps + 2 * t->capacity - fresh;
	struct tm_pair *to = t->pairs + keep;
	for (uint32_t i = 0; i < fresh; i++) {
		uintptr_t pair = at[i];
		memcpy(&to[i], (const void *)pair, sizeof to[i]);
		pcs[i] = TM_UNWIND_WORD(pair + 8) & TM_UNWIND_PC_MASK;
		sps[i] = pair + 8;
	}
	tm_unwind_set_check_count(t, tm_unwind_count_kept_checks(t, keep));
	if (t->cut_frame >= keep) t->cut_frame = UINT32_MAX;
	t->depth = t->remembered = keep + fresh;
}

uint32_t tm_unwind_by_frame_pointers_quickly(struct tm_thread *t, uint32_t valid, uintptr_t slot) {
	uint32_t fresh = follow_frame_pointers(t, valid, slot);
	if (TM_LIKELY(fresh != TM_UNWIND_NOT_QUICK)) take_new_pairs(t, valid, fresh);
	return fresh;
}
