/* sandbox.h - what the other files ask about a program that restricted its system calls (sandbox_hooks.c); tm_is_sandboxed() is in guest.h.
 *
 * Flow:     process_hooks.c, exec_hooks.c, thread_name.c, python_find.c -> here
 * Threads:  any, also a vfork child.
 */
#ifndef TIDEMARK_GUEST_SANDBOX_H
#define TIDEMARK_GUEST_SANDBOX_H

#include "guest.h"

void tm_sandbox_note(struct tm_thread *t);  /* says that the program did, if nobody could say so yet. Between enter and leave. */
void tm_sandbox_reaped(uint32_t child);     /* the calling thread waited for it */
uint32_t tm_sandbox_pid(void);              /* of who calls; behind the process's own filter, where nobody may ask, the process's, also in a vfork child */
/* A filter that the process, or the vfork child that runs here, has put itself behind ends a program for what our library does at its start. */
bool tm_sandbox_kills_for_us(void);
/* True: no filter is known from before the program, which may kill it for a call that programs seldom make. asks: finds out by a file of /proc, once; else that
 * is true only where somebody has asked before. Not where no system call may be made. */
bool tm_sandbox_is_free(bool asks);

#endif
