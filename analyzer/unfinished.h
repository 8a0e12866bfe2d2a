/* unfinished.h - the file that is being written under a name of its own, and goes if we are ended before it is whole.
 *
 * Users:    store.c, export_output.c.
 * Owns:     nothing; the path is the caller's until tm_unfinished_end(). There is one such file at a time.
 * Threads:  one.
 * Failures: none. SIGKILL leaves the file.
 */
#ifndef TM_UNFINISHED_H
#define TM_UNFINISHED_H

/* Ctrl-C, a closed terminal and SIGTERM remove it from now on. A signal that was ignored stays so. */
void tm_unfinished_begin(const char *path);

void tm_unfinished_end(void);

#endif
