/* gpu_sites.h - which library asked for memory of a device, told from the stack.
 *
 * Flow:     stack_ids.c (the frames of a stack) and schema/gpu_libraries.h -> here -> gpu_block_rows.c (table gpu_site)
 */
#ifndef TIDEMARK_ANALYZER_GPU_SITES_H
#define TIDEMARK_ANALYZER_GPU_SITES_H

#include "stack_ids.h"

/* The library's name; NULL: none that is known. stack: a row of the stack tree, 0 empty. in_allocator: the heap is an allocator's own. */
const char *tm_gpu_library(const struct tm_stack_ids *stacks, uint32_t stack, bool in_allocator);

#endif
