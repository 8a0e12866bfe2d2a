/* unfinished.h - the file that is being written under a name of its own, and goes if we are ended before it is whole.
 *
 * Users:    store.c, export_output.c.
 * Owns:     nothing; the path is the caller's until tm_unfinished_end(). There is one such file at a time.
 * Threads:  one.
 * Failures: none. SIGKILL leaves the file; an import's is removed by the next one into the same database.
 */
#ifndef TM_UNFINISHED_H
#define TM_UNFINISHED_H

/* The name beside `path` under which this process writes it: PATH.MACHINE.PID.tmp. Removes what processes left there that are no more. Whose
 * process is of another machine or container nobody here can tell: it stays. To be freed; NULL: out of memory. */
char *tm_unfinished_name(const char *path);

/* Ctrl-C, Ctrl-\, a closed terminal, a reader of ours that went (SIGPIPE), a limit of processor time (SIGXCPU) and SIGTERM remove it from now on. A signal
 * that was ignored stays so. */
void tm_unfinished_begin(const char *path);

void tm_unfinished_end(void);

#endif
