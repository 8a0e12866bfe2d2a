/* symbols.c - opens the file of a module and names its addresses.
 *
 *      paths, debug dirs, debuginfod -> the file that was loaded -> libdwfl -> symbol table -> spans.c
 *                                                                           -> DWARF        -> debuginfo.c
 *
 * The symbol table says which function an address belongs to, DWARF which line, and what was inlined. Where DWARF has a linkage name, that
 * is the function's name (it belongs to the line); where not (C, static functions), the symbol's name is mostly taken, so that a build
 * with debug information and one without give the same names.
 */
#include "recorder/collector/symbols.h"

#include <dlfcn.h>
#include <elfutils/libdwelf.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder/collector/demangle.h"
#include "recorder/collector/spans.h"

#define STANDARD_DEBUG "/usr/lib/debug"

struct symbol {
	const char *name;
	char *display; /* made when first asked */
	bool function, local, weak;
};

struct tm_symbols {
	const struct tm_symbols_source *source; /* while opening */
	struct stat main_file;
	Dwfl *dwfl;
	Dwfl_Module *module;
	Dwarf_Addr bias, dwarf_bias; /* of libdwfl's addresses against ours, and against the DWARF's */
	struct symbol *symbols;
	size_t symbol_count;
	struct tm_spans spans; /* value: index into symbols */
	struct tm_debuginfo *debuginfo;
	struct tm_bytes demangled;
	char *why;
	size_t why_size;
	struct tm_debuginfo_function chain[TM_DEBUGINFO_MAX_CHAIN];
};

/* ---- the right file */

__attribute__((format(printf, 2, 3))) static void explain(struct tm_symbols *s, const char *format, ...) {
	if (s->why_size && *s->why) return;
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(s->why, s->why_size, format, arguments);
	va_end(arguments);
}

/* Whether the file is the one that was loaded, by build-id; where neither has one, by the time of its last change. `given`: the user
 * named the place, so the time says nothing. */
static bool is_same_build(struct tm_symbols *s, Elf *elf, const char *path, const struct stat *info, bool given) {
	const struct tm_symbols_source *source = s->source;
	const void *id;
	ssize_t size = dwelf_elf_gnu_build_id(elf, &id);
	if (size < 0) size = 0;
	uint64_t changed_ns = (uint64_t)info->st_mtim.tv_sec * 1000000000 + (uint64_t)info->st_mtim.tv_nsec;
	if ((size_t)size != source->build_id_size || (size && memcmp(id, source->build_id, (size_t)size)))
		return explain(s, "'%s' is not the file that was loaded: its build-id differs", path), false;
	if (!size && !given && source->loaded_unix_ns && changed_ns > source->loaded_unix_ns)
		return explain(s, "'%s' has been changed since it was loaded, and it has no build-id", path), false;
	return true;
}

static bool is_module(struct tm_symbols *s, int fd, const char *path, const struct stat *info, bool given) {
	GElf_Ehdr header;
	Elf *elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	bool good = elf && elf_kind(elf) == ELF_K_ELF && gelf_getehdr(elf, &header) &&
		    (header.e_type == ET_EXEC || header.e_type == ET_DYN);
	if (!good) explain(s, "'%s' is not the file that was loaded: it is no ELF program or library", path);
	else good = is_same_build(s, elf, path, info, given);
	if (elf) elf_end(elf);
	return good;
}

/* A descriptor of the file if it is the right one; -1. A file that does not exist is no reason to explain. */
static int open_same(struct tm_symbols *s, const char *path, bool given, struct stat *info) {
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0) {
		if (errno != ENOENT && errno != ENOTDIR) explain(s, "cannot open '%s': %s", path, strerror(errno));
		return -1;
	}
	if (!fstat(fd, info) && S_ISREG(info->st_mode) && is_module(s, fd, path, info, given)) return fd;
	close(fd);
	return -1;
}

/* The n-th place to look for in a directory of debug files; false: there are no more. path is empty where a place does not apply. */
static bool debug_place(const struct tm_symbols_source *source, const char *directory, unsigned n, char path[PATH_MAX]) {
	static const char *const endings[] = { ".debug", "" };
	const char *loaded = source->path_count ? source->paths[0] : "";
	const char *slash = strrchr(loaded, '/');
	const char *ending = endings[n % 2];
	char id[2 * 64 + 1] = "";
	path[0] = 0;
	for (size_t i = 0; i < source->build_id_size && i < 64; i++) snprintf(id + 2 * i, 3, "%02x", source->build_id[i]);
	if (n / 2 == 0 && strlen(id) > 2) snprintf(path, PATH_MAX, "%s/.build-id/%.2s/%s%s", directory, id, id + 2, ending);
	if (n / 2 == 1 && *loaded) snprintf(path, PATH_MAX, "%s/%s%s", directory, loaded, ending);
	if (n / 2 == 2 && slash && slash[1]) snprintf(path, PATH_MAX, "%s/%s%s", directory, slash + 1, ending);
	return n / 2 <= 2;
}

static bool has_section(Elf *elf, const char *const *names) {
	size_t strings;
	GElf_Shdr header;
	if (elf_getshdrstrndx(elf, &strings)) return false;
	for (Elf_Scn *section = NULL; (section = elf_nextscn(elf, section));) {
		const char *name = gelf_getshdr(section, &header) ? elf_strptr(elf, strings, header.sh_name) : NULL;
		for (const char *const *wanted = names; name && *wanted; wanted++)
			if (!strcmp(name, *wanted)) return true;
	}
	return false;
}

static bool has_debuginfo(int fd) {
	static const char *const names[] = { ".debug_info", ".zdebug_info", ".symtab", NULL };
	Elf *elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	bool has = elf && has_section(elf, names);
	if (elf) elf_end(elf);
	return has;
}

/* Looks through the user's directories; only_debug: for a second file beside the main one, that has what a stripped file lacks. */
static int open_debug_place(struct tm_symbols *s, bool only_debug, char path[PATH_MAX], struct stat *info) {
	for (size_t i = 0; i < s->source->debug_dir_count; i++)
		for (unsigned n = 0; debug_place(s->source, s->source->debug_dirs[i], n, path); n++) {
			int fd = *path ? open_same(s, path, true, info) : -1;
			if (fd < 0) continue;
			bool same = info->st_dev == s->main_file.st_dev && info->st_ino == s->main_file.st_ino;
			if (!only_debug || (!same && has_debuginfo(fd))) return fd;
			close(fd);
		}
	return -1;
}

/* For a module whose file is not here at all. libdebuginfod is loaded only when it is asked for; its interface is four functions. */
static int open_from_debuginfod(struct tm_symbols *s, char path[PATH_MAX], struct stat *info) {
	if (!s->source->debuginfod || !s->source->build_id_size) return -1;
	void *library = dlopen("libdebuginfod.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library) return explain(s, "cannot ask debuginfod: %s", dlerror()), -1;
	typedef int find(void *client, const unsigned char *id, int size, char **path);
	void *(*begin)(void) = (void *(*)(void))dlsym(library, "debuginfod_begin");
	void (*end)(void *) = (void (*)(void *))dlsym(library, "debuginfod_end");
	find *finders[] = { (find *)dlsym(library, "debuginfod_find_debuginfo"), (find *)dlsym(library, "debuginfod_find_executable") };
	void *client = begin && end && finders[0] && finders[1] ? begin() : NULL;
	int fd = -1;
	for (int i = 0; client && i < 2 && fd < 0; i++) {
		char *cached = NULL;
		int answer = finders[i](client, s->source->build_id, (int)s->source->build_id_size, &cached);
		if (answer >= 0) close(answer);
		if (answer >= 0 && cached) {
			snprintf(path, PATH_MAX, "%s", cached);
			fd = open_same(s, path, true, info);
		}
		free(cached);
	}
	if (client) end(client);
	return fd;
}

static int open_main(struct tm_symbols *s, char path[PATH_MAX]) {
	int fd = -1;
	for (size_t i = 0; i < s->source->path_count && fd < 0; i++) {
		snprintf(path, PATH_MAX, "%s", s->source->paths[i]);
		if (tm_symbols_own_path(path)) continue; /* ours is another file */
		/* A relative path was relative to the program's directory; only a build-id tells whether ours leads to the same file. */
		if (*path == '/' || (strchr(path, '/') && s->source->build_id_size)) fd = open_same(s, path, false, &s->main_file);
	}
	if (fd < 0) fd = open_debug_place(s, false, path, &s->main_file);
	if (fd < 0) fd = open_from_debuginfod(s, path, &s->main_file);
	if (fd >= 0 && s->why_size) *s->why = 0;
	return fd;
}

/* libdwfl loads libdebuginfod, which takes milliseconds a process, before it says that a file is nowhere, even if no server may be asked. So it
 * is asked only if there is something: by build-id, or by name in one of the places that it knows. */
static bool has_standard_debuginfo(const struct tm_symbols_source *source, const char *file, const char *link) {
	static const char *const places[] = { "%.*s/%s%s", "%.*s/.debug/%s%s", STANDARD_DEBUG "%.*s/%s%s" };
	const char *slash = strrchr(file, '/');
	const char *name = link ? link : slash ? slash + 1 : file, *ending = link ? "" : ".debug";
	char path[PATH_MAX];
	if (debug_place(source, STANDARD_DEBUG, 0, path) && *path && !access(path, F_OK)) return true;
	for (size_t i = 0; slash && i < sizeof places / sizeof places[0]; i++) {
		snprintf(path, sizeof path, places[i], (int)(slash - file), file, name, ending);
		if (!access(path, F_OK)) return true;
	}
	return !slash || (link && strchr(link, '/'));
}

static int find_debuginfo(Dwfl_Module *module, void **user, const char *name, Dwarf_Addr base, const char *file, const char *link,
			  GElf_Word link_crc, char **found) {
	struct tm_symbols *s = *user;
	char path[PATH_MAX];
	struct stat info;
	int fd = s->source ? open_debug_place(s, true, path, &info) : -1;
	bool wanted = s->source && (s->source->debuginfod || has_standard_debuginfo(s->source, file, link));
	if (fd < 0 && !wanted) return -1;
	if (fd < 0) return dwfl_standard_find_debuginfo(module, user, name, base, file, link, link_crc, found);
	*found = strdup(path);
	return fd;
}

static const Dwfl_Callbacks callbacks = {
	.find_debuginfo = find_debuginfo,
	.section_address = dwfl_offline_section_address,
};

/* Takes over fd. */
static int report(struct tm_symbols *s, const char *path, int fd) {
	void **user;
	s->dwfl = dwfl_begin(&callbacks);
	if (s->dwfl) s->module = dwfl_report_elf(s->dwfl, path, path, fd, 0, true);
	if (!s->module) {
		close(fd);
		return explain(s, "cannot read '%s': %s", path, dwfl_errmsg(-1)), TM_SYMBOLS_REFUSED;
	}
	dwfl_report_end(s->dwfl, NULL, NULL);
	dwfl_module_info(s->module, &user, NULL, NULL, NULL, NULL, NULL, NULL);
	*user = s;
	return dwfl_module_getelf(s->module, &s->bias) ? 0 : TM_SYMBOLS_REFUSED;
}

/* ---- the symbol table */

static size_t underscores(const char *name) {
	return tm_demangle_is_mangled(name) ? 0 : strspn(name, "_");
}

static int prefer_larger(size_t a, size_t b) {
	return a < b ? -1 : a > b;
}

/* Less than 0 if a is the worse name of two for one address. */
static int order_aliases(const struct tm_span *left, const struct tm_span *right, void *context) {
	const struct symbol *symbols = context, *a = &symbols[left->value], *b = &symbols[right->value];
	int order = prefer_larger(a->function, b->function);
	if (!order) order = prefer_larger(b->local, a->local);
	if (!order) order = prefer_larger(underscores(b->name), underscores(a->name));
	if (!order) order = prefer_larger(b->weak, a->weak);
	if (!order) order = prefer_larger(strlen(b->name), strlen(a->name));
	return order ? order : strcmp(b->name, a->name);
}

static bool names_code(const GElf_Sym *symbol, GElf_Word section) {
	int type = GELF_ST_TYPE(symbol->st_info);
	if (section == SHN_UNDEF || section == SHN_ABS || section == (GElf_Word)-1) return false;
	return symbol->st_size && (type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE);
}

static void add_symbol(struct tm_symbols *s, const char *name, const GElf_Sym *symbol, uint64_t address) {
	int type = GELF_ST_TYPE(symbol->st_info), binding = GELF_ST_BIND(symbol->st_info);
	s->symbols[s->symbol_count] = (struct symbol){
		.name = name,
		.function = type != STT_NOTYPE,
		.local = binding == STB_LOCAL,
		.weak = binding == STB_WEAK,
	};
	tm_spans_add(&s->spans, address, address + symbol->st_size, s->symbol_count++);
}

static int read_symbols(struct tm_symbols *s) {
	int count = dwfl_module_getsymtab(s->module);
	if (count <= 1) return 0;
	s->symbols = calloc((size_t)count, sizeof *s->symbols);
	if (!s->symbols) return TM_SYMBOLS_NO_MEMORY;
	for (int i = 1; i < count; i++) {
		GElf_Sym symbol;
		GElf_Addr address;
		GElf_Word section;
		const char *name = dwfl_module_getsym_info(s->module, i, &symbol, &address, &section, NULL, NULL);
		if (name && *name && names_code(&symbol, section)) add_symbol(s, name, &symbol, address - s->bias);
	}
	tm_spans_sort(&s->spans, order_aliases, s->symbols);
	return s->spans.failed ? TM_SYMBOLS_NO_MEMORY : 0;
}

static const char *display(struct tm_symbols *s, struct symbol *symbol) {
	if (!symbol->display) {
		const char *name = tm_demangle(&s->demangled, symbol->name);
		symbol->display = name ? strdup(name) : NULL;
	}
	return symbol->display;
}

/* The name of the function that is not inlined, of which DWARF may know something. A plain DWARF name stays if the symbol is as plain: the
 * linker may have given two functions one address, and this one belongs to the line. */
static const char *outer_name(struct tm_symbols *s, uint64_t address, const struct tm_debuginfo_function *known) {
	const struct tm_span *span = known->linked ? NULL : tm_spans_find(&s->spans, address);
	if (!span) return known->name;
	struct symbol *symbol = &s->symbols[span->value];
	bool plain = known->name && !tm_demangle_is_mangled(symbol->name) && underscores(known->name) <= underscores(symbol->name);
	return plain ? known->name : display(s, symbol);
}

/* ---- the interface */

static int read_debuginfo(struct tm_symbols *s) {
	Dwarf *dwarf = dwfl_module_getdwarf(s->module, &s->dwarf_bias);
	if (!dwarf) return 0;
	s->debuginfo = tm_debuginfo_open(dwarf);
	return s->debuginfo ? 0 : TM_SYMBOLS_NO_MEMORY;
}

static int open_all(struct tm_symbols *s) {
	char path[PATH_MAX];
	int fd = open_main(s, path);
	if (fd < 0) return s->why_size && *s->why ? TM_SYMBOLS_REFUSED : TM_SYMBOLS_MISSING;
	int error = report(s, path, fd);
	if (!error) error = read_symbols(s);
	if (!error && s->source->lines) error = read_debuginfo(s);
	return error;
}

int tm_symbols_open(struct tm_symbols **out, const struct tm_symbols_source *source, char *why, size_t why_size) {
	*out = NULL;
	if (why_size) *why = 0;
	if (!source->debuginfod) unsetenv("DEBUGINFOD_URLS");
	elf_version(EV_CURRENT);
	struct tm_symbols *s = calloc(1, sizeof *s);
	if (!s) return TM_SYMBOLS_NO_MEMORY;
	s->source = source;
	s->why = why;
	s->why_size = why_size;
	int error = open_all(s);
	s->source = NULL;
	if (error) tm_symbols_close(s);
	else *out = s;
	return error;
}

void tm_symbols_close(struct tm_symbols *s) {
	if (!s) return;
	tm_debuginfo_close(s->debuginfo);
	for (size_t i = 0; i < s->symbol_count; i++) free(s->symbols[i].display);
	free(s->symbols);
	tm_spans_release(&s->spans);
	tm_bytes_release(&s->demangled);
	if (s->dwfl) dwfl_end(s->dwfl);
	free(s);
}

size_t tm_symbols_find(struct tm_symbols *s, uint64_t address, const struct tm_debuginfo_function **out) {
	const struct tm_debuginfo_function *found;
	size_t count = s->debuginfo ? tm_debuginfo_find(s->debuginfo, address + s->bias - s->dwarf_bias, &found) : 0;
	if (count) memcpy(s->chain, found, count * sizeof *found);
	struct tm_debuginfo_function *outer = &s->chain[count ? count - 1 : 0];
	if (!count) *outer = (struct tm_debuginfo_function){ 0 };
	outer->name = outer_name(s, address, outer);
	*out = s->chain;
	return count ? count : outer->name != NULL;
}
