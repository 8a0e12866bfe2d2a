/* torch_find.c - where PyTorch's functions are.
 *
 * Flow:     torch_hooks.c, torch_scopes.c -> tm_torch_find() -> dl_iterate_phdr() -> elf_symbols.h
 * Why so:   Python loads PyTorch's libraries with RTLD_LOCAL, so dlsym(RTLD_NEXT) does not see them; and what of ours bears the same names must not be found.
 * Threads:  any; two that look at once find the same. Nothing of ours is held while the loader's list is read.
 */
#include "torch.h"
#include "elf_imports.h"
#include "elf_symbols.h"
#include "process.h"

#include <string.h>

static const char *const symbols[TM_TORCH_FUNCTION_COUNT] = {
#define X(name, result, arguments, symbol) symbol,
	TM_TORCH_FUNCTIONS(X)
#undef X
};

static void *_Atomic found[TM_TORCH_FUNCTION_COUNT];
static _Atomic uint64_t searched; /* the loader's count of modules added, + 1, at the last search */

/* --- looking --- */

struct search {
	bool begun;
	uint64_t adds;
	void *functions[TM_TORCH_FUNCTION_COUNT];
};

static int look_into(struct dl_phdr_info *info, size_t size, void *context) {
	struct search *s = context;
	struct tm_symbols module;
	(void)size;

	if (!s->begun) {
		s->begun = true;
		s->adds = info->dlpi_adds + 1;
		if (s->adds == atomic_load(&searched)) return 1;
	}
	if (tm_symbols_is_in(info, (uintptr_t)look_into) || !tm_symbols_open(&module, info)) return 0;
	for (unsigned i = 0; i < TM_TORCH_FUNCTION_COUNT; i++)
		if (!s->functions[i]) s->functions[i] = tm_symbols_function(&module, symbols[i]);
	return 0;
}

static void search(void) {
	struct search s = { 0 };

	if (tm_is_sandboxed() || !tm_loader_enter()) return;
	tm_ours_begin();
	dl_iterate_phdr(look_into, &s);
	tm_ours_end();
	tm_loader_leave();
	for (unsigned i = 0; i < TM_TORCH_FUNCTION_COUNT; i++)
		if (s.functions[i]) atomic_store_explicit(&found[i], s.functions[i], memory_order_release);
	atomic_store(&searched, s.adds);
}

TM_HOT void *tm_torch_find(enum tm_torch_function which) {
	void *function = atomic_load_explicit(&found[which], memory_order_acquire);

	if (TM_LIKELY(function != NULL)) return function;
	search();
	return atomic_load_explicit(&found[which], memory_order_acquire);
}

void tm_torch_forget(void) {
	for (unsigned i = 0; i < TM_TORCH_FUNCTION_COUNT; i++) atomic_store(&found[i], NULL);
	atomic_store(&searched, 0);
}

/* --- libraries that do not come by here --- */

struct unseen {
	char path[256]; /* written down inside of the loader's callback, told after it */
};

/* A module that defines the reporter of CPU tensors, and calls it other than through the loader, or a reporter of somebody else's. */
static int look_for_unseen(struct dl_phdr_info *info, size_t size, void *context) {
	static const char *const reporter = "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm";
	struct unseen *u = context;
	struct tm_symbols module;
	struct tm_imports imports;
	void **slot, *own;
	size_t n;
	(void)size;

	if (tm_symbols_is_in(info, (uintptr_t)look_into) || !tm_symbols_open(&module, info)) return 0;
	own = tm_symbols_function(&module, reporter);
	if (!own || !tm_imports_find(&imports, (const void *)info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum)) return 0;
	slot = tm_import_slot(&imports, reporter);
	if (slot && (uintptr_t)*slot - tm_guest.text_low < tm_guest.text_high - tm_guest.text_low) return 0;
	if (slot && *slot != own && tm_symbols_is_in(info, (uintptr_t)*slot)) return 0; /* not bound yet: it was never called */
	n = strnlen(info->dlpi_name, sizeof u->path - 1);
	memcpy(u->path, info->dlpi_name, n);
	u->path[n] = 0;
	return 1;
}

void tm_torch_note_unseen(struct tm_thread *t) {
	static const char after[] = " tells its own reporter of tensors, and not ours: PyTorch's tensors are not told apart in this trace";
	struct unseen u = { "" };
	char text[sizeof u.path + sizeof after];
	bool there;

	if (!tm_torch_is_wanted() || tm_is_sandboxed() || !tm_loader_enter()) return;
	tm_ours_begin();
	there = dl_iterate_phdr(look_for_unseen, &u) != 0;
	tm_ours_end();
	tm_loader_leave();
	if (!there) return;
	if (!u.path[0]) memcpy(u.path, "the program", sizeof "the program");
	memcpy(text, u.path, strlen(u.path));
	memcpy(text + strlen(u.path), after, sizeof after);
	tm_emit_note(t, "torch", text);
}
