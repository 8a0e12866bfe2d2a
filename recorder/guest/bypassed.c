/* bypassed.c - notes which libraries call another malloc than ours.
 *
 * Flow:     the process begins to leave (process_hooks.c) -> tm_note_bypassed() -> NOTE
 * Why:      a library loaded with RTLD_DEEPBIND finds its functions among its own dependencies first, so libc's malloc before our hook. dlopen is
 *           not hooked (that would change whose search path applies), but what a library's import of malloc points to can be looked at
 *           when the process leaves: by then it is bound, if it was ever called.
 * Limits:   libraries that were closed before, and namespaces of their own (dlmopen), which the loader does not list.
 */
#include "elf_imports.h"
#include "fork_gate.h"
#include "process.h"

#include <string.h>

#define NOTES_MAX 8u

struct look {
	unsigned count;
	char names[NOTES_MAX][256]; /* written down inside of the loader's callback, told after it */
};

static bool holds(const struct dl_phdr_info *info, uintptr_t address) {
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type == PT_LOAD && address - (info->dlpi_addr + p->p_vaddr) < p->p_memsz) return true;
	}
	return false;
}

static void note_bypassed(struct tm_thread *t, const char *library) {
	static const char after[] = " calls a malloc that is not tidemark's (loaded with RTLD_DEEPBIND?): its allocations are not in this trace";
	char text[512];
	size_t n = strnlen(library, sizeof text - sizeof after);
	memcpy(text, library, n);
	memcpy(text + n, after, sizeof after);
	tm_emit_note(t, "bypassed", text);
}

/* One that the loader has not bound yet points back into its own module; so does libc's own. */
static int look_at(struct dl_phdr_info *info, size_t size, void *context) {
	struct look *look = context;
	struct tm_imports imports;
	(void)size;
	if (!info->dlpi_name || !info->dlpi_name[0] || !tm_imports_find(&imports, (const void *)info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum))
		return 0;
	void **slot = tm_import_slot(&imports, "malloc");
	uintptr_t bound = slot ? (uintptr_t)*slot : 0;
	if (!bound || bound - tm_guest.text_low < tm_guest.text_high - tm_guest.text_low || holds(info, bound)) return 0;
	size_t n = strnlen(info->dlpi_name, sizeof look->names[0] - 1);
	memcpy(look->names[look->count], info->dlpi_name, n);
	look->names[look->count][n] = 0;
	return ++look->count == NOTES_MAX;
}

void tm_note_bypassed(struct tm_thread *t) {
	struct look look;
	look.count = 0;
	if (tm_other_allocator() || tm_is_sandboxed() || !tm_gate_enter()) return;
	tm_ours_begin();
	dl_iterate_phdr(look_at, &look);
	tm_ours_end();
	tm_gate_leave();
	for (unsigned i = 0; i < look.count; i++) note_bypassed(t, look.names[i]);
}
