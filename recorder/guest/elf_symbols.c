/* elf_symbols.c - see elf_symbols.h. A module's GNU hash table: bucket count, first symbol, filter words, filter shift; filter; buckets; chains. */
#include "elf_symbols.h"

#include <string.h>

/* The bytes between the module's lowest and highest loaded address. */
struct extent {
	uintptr_t low, high;
};

static struct extent extent_of(const struct dl_phdr_info *info) {
	struct extent e = { UINTPTR_MAX, 0 };

	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t low = info->dlpi_addr + p->p_vaddr;

		if (p->p_type != PT_LOAD) continue;
		if (low < e.low) e.low = low;
		if (low + p->p_memsz > e.high) e.high = low + p->p_memsz;
	}
	return e;
}

/* A pointer of the dynamic section: the loader has made most of them absolute already. */
static const void *pointer(const struct extent *e, uintptr_t bias, uintptr_t value) {
	uintptr_t at = value >= e->low && value < e->high ? value : bias + value;

	return at >= e->low && at < e->high ? (const void *)at : NULL;
}

bool tm_symbols_is_in(const struct dl_phdr_info *info, uintptr_t address) {
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type == PT_LOAD && address - (info->dlpi_addr + p->p_vaddr) < p->p_memsz) return true;
	}
	return false;
}

bool tm_symbols_open(struct tm_symbols *s, const struct dl_phdr_info *info) {
	struct extent e = extent_of(info);
	const ElfW(Dyn) *d = NULL;

	*s = (struct tm_symbols){ .bias = info->dlpi_addr };
	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) d = (const ElfW(Dyn) *)(s->bias + info->dlpi_phdr[i].p_vaddr);
	for (; d && d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_GNU_HASH) s->hash = pointer(&e, s->bias, d->d_un.d_ptr);
		else if (d->d_tag == DT_SYMTAB) s->symbols = pointer(&e, s->bias, d->d_un.d_ptr);
		else if (d->d_tag == DT_STRTAB) s->names = pointer(&e, s->bias, d->d_un.d_ptr);
	}
	return s->hash && s->symbols && s->names;
}

uint32_t tm_symbols_index(const struct tm_symbols *s, const char *name) {
	uint32_t hash = 5381, buckets = s->hash[0], first = s->hash[1], words = s->hash[2], shift = s->hash[3], i;
	const ElfW(Addr) *filter = (const ElfW(Addr) *)(s->hash + 4);
	const uint32_t *bucket = (const uint32_t *)(filter + words), *chain = bucket + buckets;
	const unsigned bits = sizeof(ElfW(Addr)) * 8;
	ElfW(Addr) word;

	for (const char *c = name; *c; c++) hash = hash * 33 + (uint8_t)*c;
	if (!buckets || !words) return 0;
	word = filter[hash / bits % words];
	if (!(word >> hash % bits & word >> (hash >> shift) % bits & 1)) return 0;
	i = bucket[hash % buckets];
	if (i < first) return 0;
	for (;; i++) {
		if ((chain[i - first] | 1) == (hash | 1) && strcmp(s->names + s->symbols[i].st_name, name) == 0) return i;
		if (chain[i - first] & 1) return 0;
	}
}

uint32_t tm_symbols_first(const struct tm_symbols *s) {
	return s->hash[1];
}

const ElfW(Sym) * tm_symbols_find(const struct tm_symbols *s, const char *name) {
	const ElfW(Sym) *symbol = &s->symbols[tm_symbols_index(s, name)]; /* 0 is that of no name, undefined */
	return symbol->st_shndx != SHN_UNDEF ? symbol : NULL;
}

void *tm_symbols_function(const struct tm_symbols *s, const char *name) {
	const ElfW(Sym) *symbol = tm_symbols_find(s, name);

	return symbol && (symbol->st_info & 0xf) == STT_FUNC ? (void *)(s->bias + symbol->st_value) : NULL;
}

struct module_search {
	uintptr_t address;
	struct dl_phdr_info *found;
};

static int holds_address(struct dl_phdr_info *info, size_t size, void *context) {
	struct module_search *search = context;
	(void)size;

	if (!tm_symbols_is_in(info, search->address)) return 0;
	*search->found = *info;
	return 1;
}

bool tm_symbols_module(const void *address, struct dl_phdr_info *found) {
	struct module_search search = { (uintptr_t)address, found };
	return dl_iterate_phdr(holds_address, &search) != 0;
}
