/* api.c - the library's side of the public API (../tidemark.h).
 *
 * Flow:     tidemark_mark() in the program -> tidemark_api_mark_v1() -> emit.c -> ring
 * Rule:     a symbol once published keeps its meaning; one that changes gets a new number behind its name, and the old one stays.
 */
#include "guest.h"

#include <string.h>

/* The header declares it weak, for programs; here it is the definition, and a strong one. */
TM_EXPORT void tidemark_api_mark_v1(const char *name);

TM_EXPORT void tidemark_api_mark_v1(const char *name) {
	struct tm_thread *t = name ? tm_hook_enter() : NULL;

	if (!t) return;
	tm_emit_text(t, TM_OP_MARK, name, strnlen(name, TM_RING_TEXT_MAX));
	tm_hook_leave(t);
}
