/* emit_scope.c - scopes and steps as records, for every source of them.
 *
 * Flow:     api.c, nvtx.c, itt.c, the adaptors -> here -> scope.h -> ring
 */
#include "emit.h"
#include "heaps.h"
#include "scope.h"

TM_COLD void tm_note_cut(bool wide) {
	static _Atomic uint32_t noted[2];
	static const char *const texts[2] = { "names longer than 4,096 bytes were cut there",
					      "wide names of more than 1,020 bytes in UTF-8 were cut there" };
	if (!tm_tls.inside) tm_note_limit(&noted[wide], "cut-texts", texts[wide]);
	else if (tm_tls.thread && !atomic_exchange(&noted[wide], 1)) tm_emit_note(tm_tls.thread, "cut-texts", texts[wide]);
}

size_t tm_text_end(const char *text, size_t max) {
	size_t n = max;
	while (n > max - 4 && ((uint8_t)text[n] & 0xC0) == 0x80) n--;
	return ((uint8_t)text[n] & 0xC0) == 0x80 ? max : n; /* no UTF-8: cut anywhere */
}

size_t tm_text_cut(const char *text, size_t n, size_t max) {
	if (n <= max) return n;
	tm_note_cut(false);
	return tm_text_end(text, max);
}

#define BELL_TICKS (1u << 25) /* ten milliseconds or more */

/* Memory is sampled at a step. The collector need not be told of each: to wake it is a system call, and an interrupt of another processor, tens of
 * microseconds in which the step waits; and who heard of one a moment ago has its eyes open for about as long. */
static void ring_for_step(uint64_t now) {
	static _Atomic uint64_t rung;
	if (now - atomic_load_explicit(&rung, memory_order_relaxed) < BELL_TICKS) return;
	atomic_store_explicit(&rung, now, memory_order_relaxed);
	tm_ring_for_attention();
}

void tm_emit_scope(struct tm_thread *t, enum tm_op op, unsigned category, uint64_t key, uint64_t link, const char *name, size_t n) {
	if (TM_UNLIKELY(category >= TM_SCOPE_CATEGORY_OWN)) tm_category_tell(t, category);
	tm_record_scope(t, op, category, key, link, name, tm_text_cut(name, n, TM_RING_TEXT_MAX));
	if (op == TM_OP_STEP) ring_for_step(t->last_ticks);
}
