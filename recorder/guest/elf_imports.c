/* elf_imports.c - see elf_imports.h. The tables are those that the dynamic section names: symbols, their names and hash
 * table, and the two kinds of relocations. */
#include "elf_imports.h"
#include "elf_symbols.h"

#include <string.h>

#if defined(__x86_64__)
#define IS_IMPORT(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT)
#elif defined(__aarch64__)
#define IS_IMPORT(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT)
#endif

/* The loader has made some pointers of the dynamic section absolute. */
static uintptr_t absolute(uintptr_t bias, uintptr_t value) {
	return value >= bias ? value : bias + value;
}

static const ElfW(Dyn) * dynamic_section(uintptr_t bias, const ElfW(Phdr) * headers, size_t count) {
	for (size_t i = 0; i < count; i++) {
		if (headers[i].p_type == PT_DYNAMIC) return (const ElfW(Dyn) *)(bias + headers[i].p_vaddr);
	}
	return NULL;
}

bool tm_imports_find(struct tm_imports *found, const void *bias, const ElfW(Phdr) * headers, size_t count) {
	uintptr_t base = (uintptr_t)bias;
	*found = (struct tm_imports){ .bias = base };
	if (!headers) {
		headers = (const ElfW(Phdr) *)(base + ((const ElfW(Ehdr) *)bias)->e_phoff);
		count = ((const ElfW(Ehdr) *)bias)->e_phnum;
	}
	for (const ElfW(Dyn) *d = dynamic_section(base, headers, count); d && d->d_tag != DT_NULL; d++) {
		uintptr_t pointer = absolute(base, d->d_un.d_ptr);
		if (d->d_tag == DT_GNU_HASH) found->hash = (const uint32_t *)pointer;
		if (d->d_tag == DT_SYMTAB) found->symbols = (const ElfW(Sym) *)pointer;
		if (d->d_tag == DT_STRTAB) found->names = (const char *)pointer;
		if (d->d_tag == DT_JMPREL) found->tables[0] = (const ElfW(Rela) *)pointer;
		if (d->d_tag == DT_PLTRELSZ) found->bytes[0] = d->d_un.d_val;
		if (d->d_tag == DT_RELA) found->tables[1] = (const ElfW(Rela) *)pointer;
		if (d->d_tag == DT_RELASZ) found->bytes[1] = d->d_un.d_val;
		if (d->d_tag == DT_RELACOUNT) found->relative = d->d_un.d_val;
	}
	return found->symbols && found->names && found->hash;
}

/* A place in the tables: begin with { 0, 0 }. */
struct place {
	unsigned table;
	size_t at;
};

/* The next import; NULL: that was all. */
static const ElfW(Rela) * next_import(const struct tm_imports *imports, struct place *p) {
	for (; p->table < 2; *p = (struct place){ p->table + 1, imports->relative }) {
		while (imports->tables[p->table] && p->at < imports->bytes[p->table] / sizeof(ElfW(Rela))) {
			const ElfW(Rela) *r = &imports->tables[p->table][p->at++];
			if (IS_IMPORT(ELF64_R_TYPE(r->r_info))) return r;
		}
	}
	return NULL;
}

static uint32_t highest_import(const struct tm_imports *imports) {
	struct place place = { 0, 0 };
	uint32_t highest = 0;
	for (const ElfW(Rela) * r; (r = next_import(imports, &place));)
		if (ELF64_R_SYM(r->r_info) > highest) highest = (uint32_t)ELF64_R_SYM(r->r_info);
	return highest;
}

/* The names' symbols, by their numbers: of PyTorch's 140,000 relocations few belong to one of them, and their names lie all over. */
static void find_symbols(const struct tm_imports *imports, const char *const *names, size_t count, uint32_t *numbers) {
	struct tm_symbols s = { imports->bias, imports->hash, imports->symbols, imports->names };
	uint32_t first = tm_symbols_first(&s);
	if (first <= 1) first = highest_import(imports) + 1; /* the table of a module that exports nothing says 1, whatever there is */
	for (size_t n = 0; n < count; n++) numbers[n] = tm_symbols_index(&s, names[n]);
	for (uint32_t i = 1; i < first; i++) {
		const char *name = s.names + s.symbols[i].st_name;
		for (size_t n = 0; n < count; n++)
			if (!numbers[n] && name[0] == names[n][0] && !strcmp(name, names[n])) numbers[n] = i;
	}
}

void tm_import_slots(const struct tm_imports *imports, const char *const *names, size_t count, void ***slots) {
	struct place place = { 0, 0 };
	uint32_t numbers[TM_IMPORTS_TOGETHER];
	size_t missing = 0;
	memset(slots, 0, count * sizeof *slots);
	find_symbols(imports, names, count, numbers);
	for (size_t n = 0; n < count; n++) missing += numbers[n] != 0;
	for (const ElfW(Rela) * r; missing && (r = next_import(imports, &place));) {
		for (size_t n = 0; n < count; n++) {
			if (ELF64_R_SYM(r->r_info) != numbers[n] || !numbers[n] || slots[n]) continue;
			slots[n] = (void **)(imports->bias + r->r_offset);
			missing--;
		}
	}
}

void **tm_import_slot(const struct tm_imports *imports, const char *name) {
	void **slot;
	tm_import_slots(imports, &name, 1, &slot);
	return slot;
}
