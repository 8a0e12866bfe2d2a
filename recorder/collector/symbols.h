/* symbols.h - one module file: from an address to function, file, line and what was inlined there.
 *
 * Flow:     names.c, in a child process of its own -> here (libdwfl finds files and symbol tables) -> debuginfo.c (DWARF) -> chains.
 * Owns:     the opened files and all texts it hands out, until closed.
 * Threads:  one object, one thread at a time.
 * Trusts:   nothing but a file that is the one that was loaded (build-id; without one, unchanged since). libdw is not proof against every
 *           damaged file, so callers keep this out of processes that must live.
 * Network:  never, unless `debuginfod` is set; then the servers of DEBUGINFOD_URLS are asked. Else that variable is taken out of the environment.
 *
 * Symbols:  .symtab, of the file, of its separate debug file (/usr/lib/debug/.build-id, debuglink) or of .gnu_debugdata; else .dynsym. A
 *           symbol names an address only if [value, value + size) covers it; symbols without size (labels in assembly) name nothing. Of several
 *           symbols: the one that starts last; then functions before labels, global and weak before local, fewer leading
 *           underscores (malloc before __libc_malloc), global before weak, shorter, and the alphabet.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_SYMBOLS_H
#define TIDEMARK_RECORDER_COLLECTOR_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "recorder/collector/debuginfo.h"

enum tm_symbols_error {
	TM_SYMBOLS_MISSING = -1, /* no such file */
	TM_SYMBOLS_REFUSED = -2, /* it is not the file that was loaded, or it cannot be read */
	TM_SYMBOLS_NO_MEMORY = -3,
};

struct tm_symbols_source {
	const char *const *paths; /* where it was loaded from, in the order of trial */
	size_t path_count;
	const uint8_t *build_id; /* NULL: none was recorded */
	size_t build_id_size;
	uint64_t loaded_unix_ns;       /* a file without build-id must not have been changed since; 0: unknown */
	const char *const *debug_dirs; /* DIR/.build-id/xx/yyyy.debug, DIR/PATH and DIR/NAME are tried, each with and without .debug */
	size_t debug_dir_count;
	bool debuginfod;
	bool lines; /* false: symbol tables only */
};

struct tm_symbols;

/* What stands behind /proc/self/ in a path: the same path leads elsewhere for each process that opens it. NULL: it is none of these. */
static inline const char *tm_symbols_own_path(const char *path) {
	static const struct {
		const char *start;
		size_t skipped;
	} own[] = { { "/proc/self/", 11 }, { "/proc/thread-self/", 18 }, { "/dev/fd/", 5 } };
	for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
		if (!strncmp(path, own[i].start, strlen(own[i].start))) return path + own[i].skipped;
	return NULL;
}

/* 0 and *out; or an error and the reason in why (lower case, no full stop). A refused debug file alone is no error, but says so in why;
 * it is empty when there is nothing to say. The source need not outlive the call. */
int tm_symbols_open(struct tm_symbols **out, const struct tm_symbols_source *source, char *why, size_t why_size);
void tm_symbols_close(struct tm_symbols *s);

/* The functions at an ELF virtual address, innermost first, as in tm_debuginfo_find(). *out is valid until the next call. */
size_t tm_symbols_find(struct tm_symbols *s, uint64_t address, const struct tm_debuginfo_function **out);

#endif
