/* elf_imports.h - where a loaded module keeps the address of a function that it imports.
 *
 * Owns:     nothing; looks at the module's own tables in memory.
 * Threads:  any, while the module stays loaded.
 * Fails:    false or NULL where the module has no such table or import; or no GNU hash table, as with `ld --hash-style=sysv`.
 */
#ifndef TIDEMARK_GUEST_ELF_IMPORTS_H
#define TIDEMARK_GUEST_ELF_IMPORTS_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tm_imports {
	uintptr_t bias;
	const ElfW(Sym) *symbols;
	const char *names;
	const uint32_t *hash;
	const ElfW(Rela) *tables[2]; /* functions called through stubs, and the rest */
	size_t bytes[2];
	size_t relative; /* so many of the rest come first that name no function */
};

/* Of the module whose program headers these are; NULL: those behind the ELF header at `bias`. */
bool tm_imports_find(struct tm_imports *found, const void *bias, const ElfW(Phdr) * headers, size_t count);
/* The slot that the loader fills in; until the first call it may point back into the module. */
void **tm_import_slot(const struct tm_imports *imports, const char *name);
#define TM_IMPORTS_TOGETHER 8u
/* The slots of count names, TM_IMPORTS_TOGETHER at most, in one look, NULL for those that are not imported. */
void tm_import_slots(const struct tm_imports *imports, const char *const *names, size_t count, void ***slots);

#endif
