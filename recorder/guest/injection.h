/* injection.h - libtidemark.so as the tool that NVTX's and ITT's loaders and the CUDA driver ask for.
 *
 * Flow:     injection.c names us in the environment -> the loader in each of the program's libraries, at its first annotation -> nvtx.c, nvtx_memory.c, itt.c
 *           -> scope.h, emit_heap.c -> ring
 * Threads:  any; the loaders may come several times, from several libraries.
 * Failure:  where the user has named a tool of his own we stand aside, and a note says so. A handle that is none of ours means nothing.
 */
#ifndef TIDEMARK_GUEST_INJECTION_H
#define TIDEMARK_GUEST_INJECTION_H

#include "guest.h"

#define TM_WIDE_MAX 1024u /* bytes of UTF-8 that a wide text may become; the rest is cut */

/* Once a process, from our constructor. Between enter and leave. */
void tm_injection_start(struct tm_thread *t);

/* Is this, NAME=VALUE, a variable that tells one of them so? */
bool tm_injection_names_us(const char *string);

/* The driver was told that we are its tool. */
bool tm_injection_names_us_to_cuda(void);

/* A wide text as UTF-8; its bytes. */
size_t tm_text_of_wide(char to[TM_WIDE_MAX], const wchar_t *from);
/* The calling thread is called so, whatever the kernel calls it. Between enter and leave. */
void tm_thread_is_named(struct tm_thread *t, const char *name, size_t n);

#endif
