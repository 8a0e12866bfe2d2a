/* wrappers.h - tells an allocator's own functions from the program's, by the list in schema/wrapper_names.h. */
#ifndef TIDEMARK_ANALYZER_WRAPPERS_H
#define TIDEMARK_ANALYZER_WRAPPERS_H

#include "../schema/wire.h"

/* function: demangled, as a trace names it. */
bool tm_is_wrapper(struct tm_text function);
/* A module whose functions without a name are an allocator's. */
bool tm_is_wrapper_module(struct tm_text path);
/* One of the global operators new: dropped from the inner end of a stack. */
bool tm_is_operator_new(struct tm_text function);
/* malloc and its kin by name: dropped from the inner end where they were inlined. */
bool tm_is_inlined_allocator(struct tm_text function);

#endif
