/* scope.h - the record of a scope that opens or closes, inlined into what a program calls most.
 *
 * Flow:     api.c (C scopes), emit_scope.c (all others) -> here -> ring (../shm.h)
 * Threads:  the calling thread's state only, between enter and leave.
 * When full: as for any event (ring_room.c).
 * Cost:     tests/integration/test_scopes.py counts the instructions of a push and a pop. tm_record_scope_quickly() does the usual one without a call, so
 *           that no register has to be kept, and has the name in one register; whatever is not usual is tm_record_scope()'s.
 */
#ifndef TIDEMARK_GUEST_SCOPE_H
#define TIDEMARK_GUEST_SCOPE_H

#include "hot.h"

#include <string.h>

#define TM_RING_SCOPE_WORDS 4u

/* At most max bytes of a longer text, and no part of a UTF-8 character at the cut. */
size_t tm_text_end(const char *text, size_t max);
/* The same of a text that may be short; that one was cut is noted. */
size_t tm_text_cut(const char *text, size_t n, size_t max);
/* Notes it, once; inside of a hook or not. `wide`: of wide characters. */
void tm_note_cut(bool wide);

/* As memcpy, and zeros up to the end of the last word. Most names are this short, and a call costs more than their copy. */
static inline __attribute__((always_inline)) void tm_put_name(uint64_t *to, const char *name, size_t n, unsigned words) {
	if (n >= 8 && n <= 16) {
		uint64_t last;
		memcpy(to, name, 8);
		memcpy(&last, name + n - 8, 8);
		if (n > 8) to[1] = last >> 8 * (16 - n);
	} else if (n >= 4 && n < 8) {
		uint32_t first, last;
		memcpy(&first, name, 4);
		memcpy(&last, name + n - 4, 4);
		to[0] = first | (uint64_t)last >> 8 * (8 - n) << 32;
	} else if (n) {
		to[words - 1] = 0;
		memcpy(to, name, n);
	}
}

static inline __attribute__((always_inline)) void tm_record_scope(struct tm_thread *t, enum tm_op op, unsigned category, uint64_t key,
								  uint64_t link, const char *name, size_t n) {
	unsigned text_words = (unsigned)((n + 7) / 8), words = TM_RING_SCOPE_WORDS + text_words;
	uint64_t *r;

	tm_set_busy(t);
	if (!tm_reserve(t, words, TM_NO_EVENT, &r)) return;
	uint64_t ticks = tm_in_order(t, tm_now());
	r[0] = tm_ring_word(op, TM_RING_NO_STACK, words, category, (unsigned)n);
	r[1] = ticks;
	r[2] = key;
	r[3] = link;
	tm_put_name(r + TM_RING_SCOPE_WORDS, name, n, text_words);
	tm_publish(t, r + words);
}

#if defined(__x86_64__)
#define TM_QUICK_WORDS (TM_RING_SCOPE_WORDS + 4)

struct tm_quick_name {
	unsigned n;
	__m128i first, last; /* `last` where n is 16 or more; zeros behind the name */
};

/* The bytes of a name in a register: how many, 16 if it does not end here. */
static inline __attribute__((always_inline)) unsigned tm_quick_part(const char *name, __m128i *part) {
	static const uint8_t masks[32] = { 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255 };
	*part = _mm_loadu_si128((const __m128i *)name);
	unsigned zeros = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(*part, _mm_setzero_si128())), n;
	if (!zeros) return 16;
	n = (unsigned)__builtin_ctz(zeros);
	*part = _mm_and_si128(*part, _mm_loadu_si128((const __m128i *)(masks + 16 - n)));
	return n;
}

/* A name of less than 32 bytes; false if it is another. What lies behind its end is read as well, but never of another page. */
static inline __attribute__((always_inline)) bool tm_quick_name(const char *name, struct tm_quick_name *q) {
	if (TM_UNLIKELY(((uintptr_t)name & 4095) > 4096 - 32)) return false;
	q->n = tm_quick_part(name, &q->first);
	if (TM_LIKELY(q->n < 16)) return true;
	q->n += tm_quick_part(name + 16, &q->last);
	return q->n < 32;
}

/* All of a scope that opens (its name is not NULL) or closes, from the way in to the way out, in the usual case. False: nothing was done. There is room
 * for the longest name, so that what a shorter one's registers hold beyond it may be written. */
static inline __attribute__((always_inline)) bool tm_record_scope_quickly(enum tm_op op, unsigned category, uint64_t key, uint64_t link,
									  const char *name) {
	struct tm_thread *t = tm_tls.thread;
	struct tm_quick_name q = { 0 };

	if (TM_UNLIKELY(!tm_may_enter(t))) return false;
	if (TM_UNLIKELY(tm_guest.clock != TM_CLOCK_TSC || (name && !tm_quick_name(name, &q)))) return false;
	tm_tls.inside = (uintptr_t)__builtin_frame_address(0);
	tm_set_busy(t);
	if (TM_UNLIKELY(t->at + 8 * TM_QUICK_WORDS > t->limit)) {
		tm_clear_busy(t);
		tm_leave(t);
		return false;
	}
	uint64_t *r = tm_next_record(t), ticks = tm_in_order(t, tm_tsc());
	unsigned words = TM_RING_SCOPE_WORDS + (q.n + 7) / 8;
	if (name) _mm_storeu_si128((__m128i *)(r + TM_RING_SCOPE_WORDS), q.first);
	if (q.n >= 16) _mm_storeu_si128((__m128i *)(r + TM_RING_SCOPE_WORDS + 2), q.last);
	r[0] = tm_ring_word(op, TM_RING_NO_STACK, words, category, q.n);
	r[1] = ticks;
	r[2] = key;
	r[3] = link;
	tm_publish(t, r + words);
	tm_leave(t);
	return true;
}
#else
static inline bool tm_record_scope_quickly(enum tm_op op, unsigned category, uint64_t key, uint64_t link, const char *name) {
	(void)op, (void)category, (void)key, (void)link, (void)name;
	return false;
}
#endif

#define TM_LATE_NAME_BYTES 256u
#define TM_LATE_NAME_WORDS (TM_RING_SCOPE_WORDS + TM_LATE_NAME_BYTES / 8)

/* A name into a record with room for TM_LATE_NAME_WORDS; its length, and more than TM_LATE_NAME_BYTES is not written. */
static inline __attribute__((always_inline)) size_t tm_put_late_name(uint64_t *to, const char *name) {
	size_t n;
#if defined(__x86_64__)
	struct tm_quick_name q;
	if (TM_LIKELY(tm_quick_name(name, &q))) {
		_mm_storeu_si128((__m128i *)to, q.first);
		if (q.n >= 16) _mm_storeu_si128((__m128i *)(to + 2), q.last);
		return q.n;
	}
#endif
	n = strlen(name);
	if (n <= TM_LATE_NAME_BYTES) tm_put_name(to, name, n, (unsigned)((n + 7) / 8));
	return n;
}

#endif
