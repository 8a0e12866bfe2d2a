/* emit_heap.c - blocks of explicit heaps: what a program's own pools, PyTorch, NVTX and ITT hand out.
 *
 * Flow:     api.c, nvtx.c, itt.c, the adaptors -> here -> ring
 * Idea:     as a block of malloc, with the number of its heap in front of the frames. Never sampled: a trace with --sample has all of them.
 *           PyTorch's allocator reports a tensor right after it got the memory. Where the thread's last record is that of this very block, its stack is
 *           the tensor's, too, and is not taken again.
 */
#include "emit.h"
#include "heaps.h"
#include "hot.h"
#include "unwind_known.h"

static inline tm_taken the_last_stack(struct tm_thread *t) {
	unsigned flags = t->aligned_flags & ~(TM_RING_KNOWN | TM_RING_LEARN | TM_RING_LEARN_FIRST);
	if (t->known) return t->known->word | tm_ring_word(0, flags, 0, 0, 0);
	return tm_taken_make(flags, 0, flags & TM_RING_NO_STACK ? 0 : t->depth);
}

TM_HOT void tm_emit_heap_alloc(struct tm_thread *t, enum tm_op op, uint32_t heap, const void *addr, uint64_t size, const void *frame) {
	tm_taken s;
	unsigned fresh, words;
	uint64_t *r;
	bool same = op == TM_OP_TORCH_ALLOC && addr == t->aligned && tm_position(t) == t->aligned_pos;

	if (!addr || t->stopped || !tm_heap_tell_for(t, heap, 1, size)) return;
	tm_python_poll(t);
	s = TM_LIKELY(same && !t->after_loss) ? the_last_stack(t) : tm_take(t, frame);
	fresh = tm_taken_fresh(s);
	words = TM_RING_ALLOC_WORDS + 1 + fresh;
	tm_set_busy(t);
	if (!tm_reserve(t, words, size, &r)) return;
	uint64_t ticks = tm_in_order(t, tm_now());
	r[0] = tm_taken_word(s, op, TM_RING_HEAP, TM_RING_ALLOC_WORDS + 1, TM_RING_USABLE_UNKNOWN);
	r[1] = ticks;
	r[2] = (uintptr_t)addr;
	r[3] = size;
	r[4] = heap;
	tm_put_frames(r + 5, t, fresh);
	tm_publish(t, r + words);
	tm_known_settle(t, s);
}

TM_HOT void tm_emit_heap_free(struct tm_thread *t, enum tm_op op, uint32_t heap, const void *addr) {
	uint64_t *r;

	if (!addr || !tm_heap_tell_for(t, heap, 1, 0)) return;
	tm_set_busy(t);
	if (!tm_reserve(t, TM_RING_FREE_WORDS + 1, 0, &r)) return;
	uint64_t ticks = tm_in_order(t, tm_now());
	r[0] = tm_ring_word(op, TM_RING_NO_STACK | TM_RING_HEAP, TM_RING_FREE_WORDS + 1, 0, TM_RING_USABLE_UNKNOWN);
	r[1] = ticks;
	r[2] = (uintptr_t)addr;
	r[3] = heap;
	tm_publish(t, r + TM_RING_FREE_WORDS + 1);
}

void tm_emit_heap_realloc(struct tm_thread *t, enum tm_op op, uint32_t heap, const void *addr, uint64_t size, const void *old, uint64_t begin,
			  const void *frame) {
	tm_taken s;
	unsigned fresh, words;
	uint64_t *r;

	if (!addr || !old || !tm_heap_tell_for(t, heap, t->stopped ? 1 : 2, t->stopped ? 0 : size)) {
		tm_cancel(t);
		return;
	}
	if (t->stopped) {
		tm_emit_heap_free(t, TM_OP_PYTHON_FREE, heap, old);
		return;
	}
	tm_python_poll(t);
	s = tm_take(t, frame);
	fresh = tm_taken_fresh(s);
	words = TM_RING_REALLOC_WORDS + 1 + fresh;
	tm_set_busy(t);
	if (!tm_reserve_both(t, words, size, &r)) return;
	uint64_t ticks = tm_in_order(t, tm_now());
	r[0] = tm_taken_word(s, op, TM_RING_HEAP, TM_RING_REALLOC_WORDS + 1, TM_RING_USABLE_UNKNOWN);
	r[1] = ticks;
	r[2] = (uintptr_t)addr;
	r[3] = size;
	r[4] = begin < ticks ? begin : ticks;
	r[5] = (uintptr_t)old;
	r[6] = heap;
	tm_put_frames(r + 7, t, fresh);
	tm_publish_begun(t, r + words);
	tm_known_settle(t, s);
}

void tm_emit_pool_state(struct tm_thread *t, uint32_t heap, const struct tm_pool_numbers *n) {
	uint64_t words[5] = { heap, n->allocated, n->reserved, n->active, n->inactive };

	if (tm_heap_tell(t, heap)) tm_emit_control(t, TM_CTL_POOL, 0, 0, words, 5, NULL, 0);
}

void tm_emit_pool(struct tm_thread *t, uint32_t heap, uint64_t allocated, uint64_t reserved) {
	tm_emit_pool_state(t, heap, &(struct tm_pool_numbers){ allocated, reserved, UINT64_MAX, UINT64_MAX });
}
