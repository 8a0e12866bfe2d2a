/* emit.c - one event becomes one record in the thread's ring.
 *
 * Flow:     hooks -> here (hot.h for the stamp and the room, stack.c for the stack) -> ring (../shm.h) -> collector
 * Idea:     a stack is sent as "keep the k outermost frames of the last one, then these": real programs add about three frames an event, whatever the
 *           depth. The ring is private to the thread, so a record is plain stores and one release of `head`; no lock, no system call.
 * When full: ring_room.c. The next record after a loss carries its whole stack.
 */
#include "emit.h"
#include "attach.h"
#include "hot.h"
#include "python.h"
#include "unwind_rule.h"
#include "unwind_known.h"
#include "unwind_usual.h"

#include <string.h>

#define AHEAD_BYTES 4096u /* what an event that is stamped early is likely to need */

/* --- stamps --- */

/* Waits for room now rather than with the stamp in hand. */
uint64_t tm_begin(struct tm_thread *t) {
	if (TM_UNLIKELY(tm_position(t) + AHEAD_BYTES > t->seen)) tm_find_room(t, AHEAD_BYTES);
	tm_set_busy(t);
	t->begun = true;
	return tm_in_order(t, tm_now());
}

void tm_cancel(struct tm_thread *t) {
	tm_clear_busy(t);
	t->begun = false;
}

/* --- stacks --- */

/* Modules are announced before the first frame in them. */
static inline void know_modules(struct tm_thread *t, unsigned fresh) {
	uint32_t version = atomic_load_explicit(&tm_versions.modules, memory_order_acquire);
	for (const uintptr_t *pc = t->pcs + t->depth, *end = pc - fresh; pc > end;) {
		if (TM_LIKELY(tm_modules_know(*--pc, version)) || tm_is_sandboxed()) continue;
		tm_modules_refresh(t);
		break;
	}
}

/* The stack that was just taken. */
static inline void restore_stack(struct tm_thread *t) {
	if (t->known) tm_known_restore(t, t->known->slot);
}

/* What numbers mean that this ring was told once. */
static void say_all_again(struct tm_thread *t) {
	t->after_skip = false;
	tm_python_start_thread(t);
	memset(t->heaps_told, 0, sizeof t->heaps_told);
	memset(t->categories_told, 0, sizeof t->categories_told);
}

/* Frames that stayed may be in another module; after a loss, which may be of what says so, all is new. */
TM_COLD tm_taken tm_take_anew(struct tm_thread *t, tm_taken s) {
	restore_stack(t);
	t->modules_version = atomic_load_explicit(&tm_versions.modules, memory_order_relaxed);
	know_modules(t, t->depth);
	if (!t->after_loss) return s;
	t->after_loss = false;
	tm_known_forget(t);
	tm_python_forget(t);
	if (t->after_skip) say_all_again(t);
	unsigned flags = tm_taken_flags(s) & ~(TM_RING_KNOWN | TM_RING_LEARN | TM_RING_LEARN_FIRST);
	return tm_taken_make(flags | (t->is_part ? TM_RING_PART : 0), t->depth, 0);
}

TM_REALIGN static __attribute__((noinline)) tm_taken take_changed_stack(struct tm_thread *t, const void *frame, uint32_t valid) {
	struct tm_stack s = tm_stack_take(t, frame, valid);
	if (TM_UNLIKELY(s.unlisted)) know_modules(t, s.fresh);
	return tm_taken_make((s.cut ? TM_RING_CUT : 0) | (t->is_part ? TM_RING_PART : 0), s.fresh, s.keep);
}

static inline tm_taken take_fresh(struct tm_thread *t, uint32_t keep, uint32_t fresh) {
	tm_taken s = tm_taken_make(0, fresh, keep);
	if (TM_UNLIKELY(t->cut_frame != UINT32_MAX)) s |= tm_taken_make(TM_RING_CUT, 0, 0);
	return s;
}

static inline __attribute__((always_inline)) tm_taken take_next(struct tm_thread *t, const void *frame, uint32_t simply, uint32_t valid) {
	uint32_t fresh = tm_unwind_next(t, frame, simply, &valid);
	if (TM_UNLIKELY(fresh == TM_UNWIND_NOT_QUICK)) return take_changed_stack(t, frame, valid);
	return take_fresh(t, valid, fresh);
}

/* One that is not known, into t->pcs: the record carries its innermost frames, t->pcs[keep] to t->pcs[depth - 1]. */
TM_HOT tm_taken tm_take_unknown_stack(struct tm_thread *t, const void *frame) {
	uint32_t valid, fresh = tm_unwind_simply(t, frame, &valid);
	tm_taken s = TM_UNLIKELY(fresh >= TM_UNWIND_UNEXPECTED) ? take_next(t, frame, fresh, valid) : take_fresh(t, valid, fresh);
	return tm_complete_stack(t, tm_known_note(t, s));
}

TM_HOT tm_taken tm_take_other_stack(struct tm_thread *t, const void *frame) {
	bool own = (uintptr_t)frame - t->stack_low < t->stack_high - t->stack_low; /* what lies below on another stack's behalf is not to be read */
	if (t->known) tm_known_restore(t, own ? (uintptr_t)frame : UINTPTR_MAX);
	return tm_take_unknown_stack(t, frame);
}

TM_HOT tm_taken tm_take_stack(struct tm_thread *t, const void *frame) {
	bool all;
	struct tm_known *k = tm_known_take(t, (uintptr_t)frame + 8, &all);
	if (TM_LIKELY(k != NULL) && TM_LIKELY(all)) return tm_with_python(t, k->word);
	return tm_take_beside(t, frame, k);
}

/* --- events --- */

int tm_record_known_unusually(struct tm_thread *t, enum tm_op op, const void *addr, size_t size, bool asks) {
	return tm_record_known(t, op, addr, size, asks, false);
}

TM_HOT int tm_record_known_anew(struct tm_thread *t, enum tm_op op, const void *addr, size_t size, bool asks, tm_taken python) {
	const struct tm_known *k = t->known;
	int flags = tm_record_taken(t, op, addr, size, asks, k->word | python, 0);
	tm_known_go_on(t, k);
	return flags;
}

void tm_emit_alloc(struct tm_thread *t, enum tm_op op, const void *addr, size_t size, const void *frame) {
	tm_record_alloc(t, op, addr, size, frame);
}

/* While recording is stopped: what is mapped now is not recorded, but what lay there before is gone. */
static void emit_replaced(struct tm_thread *t, const void *addr, size_t size) {
	tm_emit_unmap(t, TM_OP_MUNMAP, addr, (size + TM_SHM_PAGE - 1) & ~(size_t)(TM_SHM_PAGE - 1), tm_begin(t));
}

void tm_emit_map(struct tm_thread *t, enum tm_op op, const void *addr, size_t size, const void *frame) {
	if (TM_UNLIKELY(t->stopped)) {
		if (op == TM_OP_MMAP || op == TM_OP_MMAP_FILE) emit_replaced(t, addr, size);
		return;
	}
	tm_record_new(t, op, addr, size, false, frame);
}

/* A record of fixed words behind word and ticks. */
static void emit_words(struct tm_thread *t, enum tm_op op, unsigned flags, uint64_t ticks, const uint64_t *values, unsigned count) {
	uint64_t *r;
	if (!tm_reserve(t, count + 2, 0, &r)) return;
	r[0] = tm_ring_word(op, TM_RING_NO_STACK | flags, count + 2, 0, TM_RING_USABLE_UNKNOWN);
	r[1] = ticks;
	for (unsigned i = 0; i < count; i++) r[2 + i] = values[i];
	tm_publish_begun(t, r + count + 2);
}

void tm_emit_free(struct tm_thread *t, enum tm_op op, const void *addr, uint64_t begin) {
	uint64_t value = (uintptr_t)addr;
	emit_words(t, op, 0, begin, &value, 1);
}

void tm_emit_realloc(struct tm_thread *t, enum tm_op op, const void *addr, size_t size, const void *old, uint64_t begin, const void *frame) {
	tm_python_poll(t);
	tm_taken s = tm_take(t, frame);
	tm_set_busy(t);
	unsigned fresh = tm_taken_fresh(s), words = TM_RING_REALLOC_WORDS + fresh;
	uint64_t *r;
	if (!tm_reserve_both(t, words, size, &r)) return;
	uint64_t ticks = tm_in_order(t, tm_now());
	r[0] = tm_taken_word(s, op, 0, TM_RING_REALLOC_WORDS, tm_usable_word_of_resized(addr, size));
	r[1] = ticks;
	r[2] = (uintptr_t)addr;
	r[3] = size;
	r[4] = begin < ticks ? begin : ticks;
	r[5] = (uintptr_t)old;
	tm_put_frames(r + 6, t, fresh);
	tm_publish_begun(t, r + words);
	tm_known_settle(t, s);
}

void tm_emit_unmap(struct tm_thread *t, enum tm_op op, const void *old, size_t old_size, uint64_t begin) {
	uint64_t ticks = tm_in_order(t, tm_now());
	uint64_t values[3] = { begin < ticks ? begin : ticks, (uintptr_t)old, old_size };
	emit_words(t, op, 0, ticks, values, 3);
}

void tm_emit_remap(struct tm_thread *t, const void *addr, size_t size, const void *old, size_t old_size, uint64_t begin, const void *frame) {
	if (TM_UNLIKELY(t->stopped)) {
		tm_emit_unmap(t, TM_OP_MUNMAP, old, old_size, begin);
		emit_replaced(t, addr, size);
		return;
	}
	tm_taken s = tm_take(t, frame);
	tm_set_busy(t);
	unsigned fresh = tm_taken_fresh(s), words = TM_RING_REMAP_WORDS + fresh;
	uint64_t *r;
	if (!tm_reserve_both(t, words, size, &r)) return;
	uint64_t ticks = tm_in_order(t, tm_now());
	r[0] = tm_taken_word(s, TM_OP_MREMAP, 0, TM_RING_REMAP_WORDS, TM_RING_USABLE_UNKNOWN);
	r[1] = ticks;
	r[2] = (uintptr_t)addr;
	r[3] = size;
	r[4] = begin < ticks ? begin : ticks;
	r[5] = (uintptr_t)old;
	r[6] = old_size;
	tm_put_frames(r + 7, t, fresh);
	tm_publish_begun(t, r + words);
	tm_known_settle(t, s);
}

/* --- texts and control records --- */

static void put_text(uint64_t *to, const char *text, size_t n, unsigned words) {
	if (words) to[words - 1] = 0;
	if (n) memcpy(to, text, n);
}

void tm_emit_text(struct tm_thread *t, enum tm_op op, const char *text, size_t n) {
	if (n > TM_RING_TEXT_MAX) n = TM_RING_TEXT_MAX;
	unsigned text_words = (unsigned)((n + 7) / 8);
	tm_set_busy(t);
	uint64_t *r;
	if (!tm_reserve(t, text_words + 2, TM_NO_EVENT, &r)) return;
	uint64_t ticks = tm_in_order(t, tm_now());
	r[0] = tm_ring_word(op, TM_RING_NO_STACK, text_words + 2, 0, (unsigned)n);
	r[1] = ticks;
	put_text(r + 2, text, n, text_words);
	tm_publish(t, r + text_words + 2);
	tm_ring_for_attention(); /* memory is sampled at a mark */
}

static uint64_t lost_as(enum tm_control_op op) {
	return op == TM_CTL_PYTHON_CODE || op == TM_CTL_PYTHON_RUN ? TM_PART_OF_EVENT : TM_NO_EVENT;
}

static bool emit_control_piece(struct tm_thread *t, enum tm_control_op op, unsigned flags, unsigned x, const uint64_t *words, unsigned word_count,
			       const char *text, size_t n) {
	unsigned text_words = (unsigned)((n + 7) / 8), all = 2 + word_count + text_words;
	uint64_t *r;
	if (!tm_reserve(t, all, lost_as(op), &r)) return false;
	r[0] = tm_ring_word(op, flags, all, x, (unsigned)n);
	r[1] = tm_in_order(t, tm_now());
	for (unsigned i = 0; i < word_count; i++) r[2 + i] = words[i];
	put_text(r + 2 + word_count, text, n, text_words);
	tm_advance(t, r + all);
	return true;
}

bool tm_emit_control(struct tm_thread *t, enum tm_control_op op, unsigned flags, unsigned x, const uint64_t *words, unsigned word_count,
		     const char *text, size_t n) {
	while (n > TM_RING_TEXT_MAX) {
		if (!emit_control_piece(t, op, flags | TM_RING_MORE, x, words, word_count, text, TM_RING_TEXT_MAX)) return false;
		text += TM_RING_TEXT_MAX;
		n -= TM_RING_TEXT_MAX;
	}
	return emit_control_piece(t, op, flags, x, words, word_count, text, n);
}

void tm_emit_note(struct tm_thread *t, const char *kind, const char *text) {
	char note[1024];
	size_t kind_bytes = strlen(kind) + 1, text_bytes = strlen(text);
	if (kind_bytes + text_bytes > sizeof note) text_bytes = sizeof note - kind_bytes;
	memcpy(note, kind, kind_bytes);
	memcpy(note + kind_bytes, text, text_bytes);
	tm_emit_control(t, TM_CTL_NOTE, 0, 0, NULL, 0, note, kind_bytes + text_bytes);
}

/* --- what signal handlers did meanwhile --- */

static void emit_one_nested(struct tm_thread *t, const struct tm_nested *n) {
	bool is_free = TM_OP_CLASS(n->op) == TM_CLASS_FREE;
	unsigned count = is_free ? 1 : 2;
	uint64_t values[3] = { n->addr, n->size, 0 };
	values[count] = n->heap;
	if (n->heap && !tm_heap_tell_for(t, n->heap, 1, is_free ? 0 : n->size)) return;
	emit_words(t, n->op, n->heap ? TM_RING_HEAP : 0, tm_in_order(t, n->ticks), values, n->heap ? count + 1 : count);
}

/* A handler may add one until the count is taken back, or come here itself; one that was left by a jump may have taken room and written nothing there. */
void tm_emit_nested(struct tm_thread *t) {
	uint32_t count;
	do {
		count = t->nested_count;
		for (uint32_t i = 0; i < count && i < TM_NESTED_MAX; i++) {
			struct tm_nested *n = &t->nested[i];
			t->begun = true;
			if (!n->ticks) continue;
			emit_one_nested(t, n);
			n->ticks = 0;
			atomic_fetch_sub_explicit(&t->ring->nested_kept, 1, memory_order_relaxed);
		}
	} while (!atomic_compare_exchange_strong(&t->nested_count, &count, 0));
	tm_cancel(t);
}
