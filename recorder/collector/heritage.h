/* heritage.h - what a program has of the process that starts it, and would lose, or share with us, as we stand between the two.
 *
 * Flow:     record_main.c: tm_heritage_take(), before anything of a recording -> launch.c: tm_heritage_pass_on(), in the command before its exec ->
 *           record_main.c: tm_heritage_let_go(), once the command runs; tm_heritage_watch(), again and again
 * Owns:     copies of our descriptors that nobody needs: a reader of a pipe would never see its end, a lock would never be released.
 * Death:    a signal for the parent's death is what the launcher, or the command itself, asked for. The kernel tells us of it by SIGCHLD, whatever was asked
 *           for, and the command gets what it would have got.
 * Limits:   what the kernel ties to a process alone is ours: the leadership of a session, record locks, pending signals, children from before.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_HERITAGE_H
#define TIDEMARK_RECORDER_COLLECTOR_HERITAGE_H

#include "session.h"

/* Reads what there is to pass on, before we open anything, and lifts the limit on processor time, which is meant for each of the program's processes. */
void tm_heritage_take(void);
/* The path leads to what we opened for ourselves, as /proc/self/fd/N does where nobody gave us such a descriptor. */
bool tm_heritage_is_our_own(const char *path);
/* To the process that is about to become the command. */
void tm_heritage_pass_on(const struct tm_session *session);
/* Once the command runs: closes what was inherited, but for standard error, the trace itself, and files with record locks, which would be released. */
void tm_heritage_let_go(int trace_fd);
/* The same of standard error, for who has nothing to say: whom a preloaded program has started, and was not asked to talk. */
void tm_heritage_let_go_of_errors(int trace_fd);
/* Our parent's death is that of the command's: 0, or the signal that is to be sent in that case, once. */
int tm_heritage_watch(const struct tm_session *session);

#endif
