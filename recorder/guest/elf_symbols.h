/* elf_symbols.h - what a loaded module defines, read in the module itself.
 *
 * Flow:     modules.c, python_find.c, torch_find.c: inside of dl_iterate_phdr() -> here
 * Why:      dlsym waits for the loader's lock, and who allocates may hold another; a library loaded with RTLD_LOCAL it does not see at all. dladdr
 *           looks through all symbols of a module to say which module it is: tens of microseconds of each process' start.
 * Owns:     nothing: pointers into the module, good while it is loaded.
 * Failure:  false or NULL: no such symbol, or no GNU hash table.
 * Threads:  any; no lock, no allocation, but for tm_symbols_module(), which takes the loader's lock.
 */
#ifndef TIDEMARK_GUEST_ELF_SYMBOLS_H
#define TIDEMARK_GUEST_ELF_SYMBOLS_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden"))); /* the linker's: where this library begins */

struct tm_symbols {
	uintptr_t bias;
	const uint32_t *hash;
	const ElfW(Sym) * symbols;
	const char *names;
};

/* Is it an address of that module? */
bool tm_symbols_is_in(const struct dl_phdr_info *info, uintptr_t address);
bool tm_symbols_open(struct tm_symbols *s, const struct dl_phdr_info *info);
/* The number of the symbol of that name in the table, 0: there is none. The table lists from tm_symbols_first() on: definitions, and what a program at a fixed
 * address takes the address of; all else that is imported comes before. */
uint32_t tm_symbols_index(const struct tm_symbols *s, const char *name);
uint32_t tm_symbols_first(const struct tm_symbols *s);
/* The definition of that name, data or function; its value is relative to `bias`. */
const ElfW(Sym) * tm_symbols_find(const struct tm_symbols *s, const char *name);
/* Where the module's function of that name begins. */
void *tm_symbols_function(const struct tm_symbols *s, const char *name);
/* The module that holds this address; its name is good while it is loaded. false: none. Between tm_ours_begin() and tm_ours_end(). */
bool tm_symbols_module(const void *address, struct dl_phdr_info *found);

#endif
