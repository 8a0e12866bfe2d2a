/* scope.h - the record of a scope that opens or closes, inlined into what a program calls most.
 *
 * Flow:     api.c (C scopes), emit_scope.c (all others) -> here -> ring (../shm.h)
 * Threads:  the calling thread's state only, between enter and leave.
 * When full: as for any event (emit.c).
 * Cost:     tests/integration/test_scopes.py counts the instructions of a push and a pop.
 */
#ifndef TIDEMARK_GUEST_SCOPE_H
#define TIDEMARK_GUEST_SCOPE_H

#include "hot.h"

#include <string.h>

#define TM_RING_SCOPE_WORDS 4u

/* At most max bytes of the text, and no part of a UTF-8 character at the cut. */
size_t tm_text_cut(const char *text, size_t n, size_t max);

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
	if (!tm_reserve(t, words, 0, &r)) return;
	uint64_t ticks = tm_in_order(t, tm_now());
	r[0] = tm_ring_word(op, TM_RING_NO_STACK, words, category, (unsigned)n);
	r[1] = ticks;
	r[2] = key;
	r[3] = link;
	tm_put_name(r + TM_RING_SCOPE_WORDS, name, n, text_words);
	tm_publish(t, words);
}

#endif
