/* bypassed.c - notes which libraries call another malloc than ours, and an operator new that may call none.
 *
 * Flow:     the process begins to leave (process_hooks.c) -> tm_note_bypassed() -> NOTE
 *           a library is closed (modules.c) -> tm_note_bypassed_by() -> NOTE
 * Why:      a library loaded with RTLD_DEEPBIND finds its functions among its own dependencies first, so libc's malloc before our hook. dlopen is
 *           not hooked (that would change whose search path applies), but what a library's import of malloc points to can be looked at
 *           when the process leaves or closes it (PHP closes all its extensions before): by then it is bound, if it was ever called. One that imports
 *           free alone frees blocks that stay live in the trace. An allocator that is a library (jemalloc, tcmalloc, mimalloc) has operators
 *           of C++ that do not come by malloc. No hook is in their place: where libstdc++ came with a plugin, nobody but the loader could say
 *           whose operator such a hook has to call.
 * Cost:     a compiler's build ends thousands of processes, and to look for malloc among all that a large program imports takes longer than all else
 *           that is done then. So only libraries that were loaded by dlopen are looked at, and the program where one of these leads there.
 * Limits:   what another library took along when it was closed, and namespaces of their own (dlmopen), which the loader does not list; a library that was
 *           there from the start and had its import of malloc changed by somebody since.
 */
#include "elf_imports.h"
#include "elf_symbols.h"
#include "process.h"

#include <string.h>

#define NOTES_MAX 8u

#define OPERATORS 8u
static const char *const operators_new[OPERATORS] = { "_Znwm",
						      "_Znam",
						      "_ZnwmRKSt9nothrow_t",
						      "_ZnamRKSt9nothrow_t",
						      "_ZnwmSt11align_val_t",
						      "_ZnamSt11align_val_t",
						      "_ZnwmSt11align_val_tRKSt9nothrow_t",
						      "_ZnamSt11align_val_tRKSt9nothrow_t" };

#define FAMILY 4u
static const char *const family[FAMILY] = { "malloc", "calloc", "realloc", "free" };

struct look {
	const void *only;            /* the dynamic section of the library to look at; NULL: all */
	struct dl_phdr_info program; /* the first of the list */
	size_t visited;
	unsigned count;
	char names[NOTES_MAX][256]; /* written down inside of the loader's callback, told after it */
	/* The first module with an operator new of C++, which the others' calls come to unless they are the program's own. */
	bool new_found, new_is_called, new_is_meant;
	struct dl_phdr_info allocator; /* that module, where it has a malloc, too */
	char allocator_name[256];      /* empty: it has not */
};

static bool is_ours(uintptr_t address) {
	return address - tm_guest.text_low < tm_guest.text_high - tm_guest.text_low;
}

/* A plugin may be closed many times, and be there at the end. */
static bool is_new(const char *library) {
	static _Atomic uint64_t noted[NOTES_MAX];
	uint64_t hash = 0xcbf29ce484222325u ^ tm_guest.process;
	for (const char *c = library; *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
	for (unsigned i = 0; i < NOTES_MAX; i++) {
		uint64_t there = 0;
		if (atomic_compare_exchange_strong(&noted[i], &there, hash | 1)) return true;
		if (there == (hash | 1)) return false;
	}
	return false;
}

/* is_missed: for certain, as far as it allocates. */
static void note(struct tm_thread *t, const char *library, const char *after, bool is_missed) {
	char text[512] = TM_NOTE_BYPASSED;
	if (!is_new(library)) return;
	size_t kind = sizeof TM_NOTE_BYPASSED, n = strnlen(library, sizeof text / 2), more = strnlen(after, sizeof text - kind - n);
	memcpy(text + kind, library, n);
	memcpy(text + kind + n, after, more);
	tm_emit_control(t, TM_CTL_NOTE, 0, is_missed, NULL, 0, text, kind + n + more);
}

static void copy_name(char to[256], const char *name) {
	size_t n = strnlen(name, 255);
	memcpy(to, name, n);
	to[n] = 0;
}

/* That of an allocator may come by no malloc that could be seen from outside; libstdc++ has no malloc of its own, and calls one. */
static void look_for_new(struct look *look, const struct dl_phdr_info *info) {
	struct tm_symbols symbols;
	if (look->new_found || !tm_symbols_open(&symbols, info) || !tm_symbols_find(&symbols, operators_new[0])) return;
	look->new_found = true;
	if (!info->dlpi_name[0] || !tm_symbols_find(&symbols, "malloc")) return;
	look->allocator = *info;
	copy_name(look->allocator_name, info->dlpi_name);
}

static bool slots_of(const struct dl_phdr_info *info, void **slots[FAMILY]) {
	struct tm_imports imports;
	if (!tm_imports_find(&imports, (const void *)info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum)) return false;
	tm_import_slots(&imports, family, FAMILY, slots);
	return true;
}

/* Where a program that lies at a fixed address takes a function's address, that is the program's PLT entry for all, which leads here. */
static bool is_programs_entry(const struct look *look, uintptr_t bound, unsigned function) {
	void **slots[FAMILY];
	return tm_symbols_is_in(&look->program, bound) && slots_of(&look->program, slots) && slots[function];
}

/* One that the loader has not bound yet points back into its own module; so does libc's own. */
static bool passes_by(const struct look *look, const struct dl_phdr_info *info, void **const slots[FAMILY]) {
	for (unsigned i = 0; i < FAMILY; i++) {
		uintptr_t bound = slots[i] ? (uintptr_t)*slots[i] : 0;
		if (bound && !is_ours(bound) && !tm_symbols_is_in(info, bound) && !is_programs_entry(look, bound, i)) return true;
	}
	return false;
}

static int look_at(struct dl_phdr_info *info, size_t size, void *context) {
	struct look *look = context;
	void **slots[FAMILY];
	bool first = !look->visited++;
	(void)size;
	if (!info->dlpi_name) return 0;
	if (first) look->program = *info;
	if (!look->only) look_for_new(look, info);
	else if (!tm_symbols_is_in(info, (uintptr_t)look->only)) return 0;
	if (first || look->visited <= tm_modules_at_first() || !info->dlpi_name[0]) return 0;
	if (!slots_of(info, slots) || !passes_by(look, info, slots)) return 0;
	copy_name(look->names[look->count], info->dlpi_name);
	return ++look->count == NOTES_MAX;
}

/* Did a module come to such an operator of that allocator's? libstdc++, which has them itself, does so also where it is never called. */
static int look_for_calls(struct dl_phdr_info *info, size_t size, void *context) {
	struct look *look = context;
	struct tm_imports imports;
	struct tm_symbols symbols;
	void **slots[OPERATORS];
	bool is_called = false;
	(void)size;
	if (!tm_imports_find(&imports, (const void *)info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum)) return 0;
	if (tm_symbols_is_in(&look->allocator, (uintptr_t)imports.symbols)) return 0;
	tm_import_slots(&imports, operators_new, OPERATORS, slots);
	for (size_t i = 0; i < OPERATORS; i++) is_called |= slots[i] && tm_symbols_is_in(&look->allocator, (uintptr_t)*slots[i]);
	look->new_is_called |= is_called;
	look->new_is_meant |= is_called && !(tm_symbols_open(&symbols, info) && tm_symbols_find(&symbols, operators_new[0]));
	return look->new_is_meant;
}

static void look_and_note(struct tm_thread *t, const void *only) {
	struct look look;
	memset(&look, 0, sizeof look);
	look.only = only;
	if (tm_other_allocator() || tm_is_sandboxed() || !tm_loader_enter()) return;
	tm_ours_begin();
	dl_iterate_phdr(look_at, &look);
	if (look.allocator_name[0]) dl_iterate_phdr(look_for_calls, &look);
	tm_ours_end();
	tm_loader_leave();
	for (unsigned i = 0; i < look.count; i++)
		note(t, look.names[i],
		     " calls a malloc or free that is not tidemark's (loaded with RTLD_DEEPBIND?): its allocations and frees are not in this trace",
		     true);
	if (look.new_is_called)
		note(t, look.allocator_name,
		     " has an operator new of its own: if that does not come by malloc, as jemalloc's and tcmalloc's do not, what C++ code allocates by new is "
		     "not in this trace, and its frees may count as lost",
		     look.new_is_meant);
}

void tm_note_bypassed(struct tm_thread *t) {
	look_and_note(t, NULL);
}

void tm_note_bypassed_by(struct tm_thread *t, const void *handle) {
	look_and_note(t, ((const struct link_map *)handle)->l_ld);
}
