/* debuginfo.h - DWARF: the source line of an address and the functions that were inlined there.
 *
 * Flow:     symbols.c opens a module's DWARF -> here -> chains of functions.
 * Owns:     its indexes; the Dwarf it is given stays the caller's and must outlive it.
 * Threads:  one object, one thread at a time.
 * Cost:     ranges of all units are read once, functions of a unit when the first address falls into it. Ask for addresses in ascending order:
 *           what was read for one serves the next. Line tables are dropped again when they grow beyond some 150 MB.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_DEBUGINFO_H
#define TIDEMARK_RECORDER_COLLECTOR_DEBUGINFO_H

#include <elfutils/libdw.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TM_DEBUGINFO_MAX_CHAIN 128 /* functions at one address; inlining deeper than this is cut at the inner end */

struct tm_debuginfo_function {
	const char *name; /* demangled; NULL: unknown */
	bool linked;      /* the name comes from a linkage name, so it has its scope and parameters */
	const char *file; /* full path; NULL: unknown */
	uint64_t line;    /* 0: unknown */
};

struct tm_debuginfo;

/* NULL: out of memory. */
struct tm_debuginfo *tm_debuginfo_open(Dwarf *dwarf);
void tm_debuginfo_close(struct tm_debuginfo *d);

/* The functions at the address, innermost first; all but the last were inlined into the last, which is the one in the symbol table (or
 * unknown, if only the line is). *out is valid until the next call. Returns their number, 0: nothing is known. */
size_t tm_debuginfo_find(struct tm_debuginfo *d, Dwarf_Addr address, const struct tm_debuginfo_function **out);

#endif
