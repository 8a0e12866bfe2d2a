/* demangle.h - what a linker's symbol is called in the source.
 *
 * Flow:     symbols.c, debuginfo.c -> here (libiberty) -> the function names of a trace.
 * Owns:     nothing; the name is written into the caller's buffer.
 * Threads:  reentrant; a long C++ name is worked on by a short-lived thread that has a large stack.
 * Bounded:  a name ends after TM_DEMANGLE_MAX_BYTES with "...", however much its symbol would expand to; a C++ symbol longer than
 *           TM_DEMANGLE_INPUT_MAX_BYTES is shown as it is.
 *
 * How names look: C++ with parameters, and with the return type where the symbol carries it, as c++filt and addr2line -C print them; Rust
 * without its hash; everything else as it stands in the symbol table, less the symbol version (name@VERSION). Suffixes that a compiler puts
 * on a copy or a part of a function (.constprop.0, .isra.0, .part.0, .cold, .llvm.123 and the like) are taken off, because the function in
 * the source is one, and because a build with debug information and one without shall agree.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_DEMANGLE_H
#define TIDEMARK_RECORDER_COLLECTOR_DEMANGLE_H

#include "schema/wire.h"

#define TM_DEMANGLE_MAX_BYTES 65536
#define TM_DEMANGLE_INPUT_MAX_BYTES 16384

/* Replaces the content of out by the display name, terminated by a zero byte that out->size does not count. NULL: out of memory. */
const char *tm_demangle(struct tm_bytes *out, const char *symbol);

/* Whether symbol is the mangled name of a C++ or Rust function. */
bool tm_demangle_is_mangled(const char *symbol);

#endif
