/* call_filter.h - would a filter of system calls (seccomp) end a program because of us?
 *
 * Flow:     sandbox_hooks.c, when the program has put itself behind a filter -> here -> exec_hooks.c: what it executes goes without us
 * Idea:     a filter is a program for a small machine (classic BPF), which is run here over the calls that our library makes where a recorded program starts.
 * Owns:     nothing; makes no system call.
 * Limits:   it looks at a call's number and at such arguments as ours have; a filter that goes by more may be judged wrongly.
 */
#ifndef TIDEMARK_GUEST_CALL_FILTER_H
#define TIDEMARK_GUEST_CALL_FILTER_H

#include <linux/filter.h>
#include <stdbool.h>

/* Of one that the kernel has accepted. True: it kills for one of these calls, or sends a signal (SIGSYS) that kills. */
bool tm_filter_kills_for_us(const struct sock_fprog *filter);

#endif
