/* emit_gpu.c - what happens on devices, as records, and requests for memory that were refused, the program's own too.
 *
 * Flow:     cuda_calls.c, cuda_activity.c; malloc_hooks.c and map_hooks.c, of refusals -> here -> ring
 * Stacks:   between the program and us lie the driver and CUPTI. Their frames are told, since the next stack is taken from where it differs from this
 *           one, and how many they are: the collector leaves them out, so the innermost one is the program's call.
 */
#include "cupti.h"
#include "emit.h"
#include "heaps.h"
#include "hot.h"

#include <errno.h>

/* `drivers`: so many of the innermost frames are the driver's or CUPTI's. */
static tm_taken take_past_driver(struct tm_thread *t, const void *frame, unsigned *drivers) {
	tm_python_poll(t);
	tm_taken s = tm_take(t, frame);
	*drivers = 0;
	if (tm_taken_flags(s) & TM_RING_NO_STACK) return s;
	uint32_t depth = tm_known_or_taken_depth(t);
	while (*drivers + 1 < depth && tm_cupti_is_code(tm_known_or_taken_pc(t, *drivers))) ++*drivers;
	return s;
}

void tm_emit_gpu_alloc(struct tm_thread *t, enum tm_op op, uint32_t heap, uint64_t address, uint64_t size, const void *frame) {
	uint64_t *r;
	if (!address || t->stopped || !tm_heap_tell_for(t, heap, 1, size)) return;
	unsigned drivers;
	tm_taken s = take_past_driver(t, frame, &drivers);
	unsigned fresh = tm_taken_fresh(s), words = TM_RING_ALLOC_WORDS + 1 + fresh;
	tm_set_busy(t);
	if (tm_reserve(t, words, size, &r)) {
		uint64_t ticks = tm_in_order(t, tm_now());
		r[0] = tm_taken_word(s, op, TM_RING_HEAP, TM_RING_ALLOC_WORDS + 1, drivers);
		r[1] = ticks;
		r[2] = address;
		r[3] = size;
		r[4] = heap;
		tm_put_frames(r + 5, t, fresh);
		tm_publish(t, r + words);
		tm_known_settle(t, s);
	}
}

void tm_emit_refusal(struct tm_thread *t, const struct tm_refusal *refusal, const void *frame) {
	uint64_t *r;
	if (refusal->heap && !tm_heap_tell(t, refusal->heap)) return;
	unsigned drivers;
	tm_taken s = take_past_driver(t, frame, &drivers);
	unsigned fresh = tm_taken_fresh(s), words = TM_RING_OOM_WORDS + fresh;
	tm_set_busy(t);
	if (tm_reserve(t, words, TM_NO_EVENT, &r)) {
		uint64_t ticks = tm_in_order(t, tm_now());
		r[0] = tm_taken_word(s, TM_OP_OOM, 0, TM_RING_OOM_WORDS, refusal->function);
		r[1] = ticks;
		r[2] = refusal->heap;
		r[3] = refusal->size_bytes;
		r[4] = (uint32_t)refusal->result | (uint64_t)drivers << 32;
		r[5] = refusal->free_bytes;
		r[6] = refusal->total_bytes;
		tm_put_frames(r + TM_RING_OOM_WORDS, t, fresh);
		tm_publish(t, r + words);
		tm_known_settle(t, s);
	}
}

void tm_emit_own_refusal(struct tm_thread *t, enum tm_op op, size_t size, const void *frame) {
	struct tm_refusal refusal = { op, 0, size < INT64_MAX ? size : INT64_MAX, ENOMEM, UINT64_MAX, UINT64_MAX };
	if (size && !t->stopped) tm_emit_refusal(t, &refusal, frame); /* of nothing, NULL is an answer */
}

#define PAIR_WORDS 4u

static uint64_t *put_pair(uint64_t *r, enum tm_op op, unsigned y, uint64_t ticks, uint64_t a, uint64_t b) {
	r[0] = tm_ring_word(op, TM_RING_NO_STACK, PAIR_WORDS, 0, y);
	r[1] = ticks;
	r[2] = a;
	r[3] = b;
	return r + PAIR_WORDS;
}

void tm_emit_work(struct tm_thread *t, unsigned work_id, uint32_t correlation, const uint64_t *used, unsigned count) {
	unsigned records = count + !!work_id;
	uint64_t *r;
	tm_set_busy(t);
	if (!tm_reserve(t, PAIR_WORDS * records, TM_NO_EVENT, &r)) return;
	uint64_t ticks = tm_in_order(t, tm_now());
	if (work_id) r = put_pair(r, TM_OP_LAUNCH, work_id, ticks, correlation, 0);
	for (unsigned i = 0; i < count; i++) r = put_pair(r, TM_OP_USE, 0, i || work_id ? ticks = tm_in_order(t, 0) : ticks, used[i], correlation);
	tm_publish(t, r);
}

void tm_emit_activity(struct tm_thread *t, const struct tm_gpu_activity *a) {
	uint64_t words[6] = { a->start, a->end, (uint64_t)a->device | (uint64_t)a->stream << 32, a->size_bytes, a->address,
			      (uint64_t)a->correlation | (uint64_t)a->name_slot << 32 };
	size_t n = a->name ? (a->name_bytes < TM_RING_TEXT_MAX ? a->name_bytes : TM_RING_TEXT_MAX) : 0;
	tm_emit_control(t, TM_CTL_ACTIVITY, 0, a->kind | a->direction << 8, words, 6, a->name, n);
}
