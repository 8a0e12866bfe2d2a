/* emit_scope.c - scopes and steps as records, for every source of them.
 *
 * Flow:     api.c, nvtx.c, itt.c, the adaptors -> here -> scope.h -> ring
 */
#include "emit.h"
#include "heaps.h"
#include "scope.h"

/* Whoever cuts a text is inside of a hook, or will be. */
TM_COLD static void note_cut(void) {
	static _Atomic uint32_t noted;
	static const char kind[] = "cut-texts", text[] = "names longer than 4,096 bytes were cut there";
	if (!tm_tls.inside) tm_note_limit(&noted, kind, text);
	else if (tm_tls.thread && !atomic_exchange(&noted, 1)) tm_emit_note(tm_tls.thread, kind, text);
}

size_t tm_text_cut(const char *text, size_t n, size_t max) {
	if (n <= max) return n;
	note_cut();
	for (n = max; n > max - 4 && ((uint8_t)text[n] & 0xC0) == 0x80;) n--;
	return ((uint8_t)text[n] & 0xC0) == 0x80 ? max : n; /* no UTF-8: cut anywhere */
}

void tm_emit_scope(struct tm_thread *t, enum tm_op op, unsigned category, uint64_t key, uint64_t link, const char *name, size_t n) {
	if (TM_UNLIKELY(category >= TM_SCOPE_CATEGORY_OWN)) tm_category_tell(t, category);
	tm_record_scope(t, op, category, key, link, name, tm_text_cut(name, n, TM_RING_TEXT_MAX));
	if (op == TM_OP_STEP) tm_ring_for_attention(); /* memory is sampled at a step */
}
