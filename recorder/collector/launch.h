/* launch.h - starts the command: its own environment, terminal, signals and descriptors, and our library in front.
 *
 * Flow:     record_main.c: tm_launch_prepare() -> (open the trace, which may be named by the pid) -> tm_launch_go()
 * Owns:     the child between fork and exec.
 * Fails:    tm_launch_go() returns the errno of exec: ENOENT is 127, others 126 to the shell.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_LAUNCH_H
#define TIDEMARK_RECORDER_COLLECTOR_LAUNCH_H

#include "session.h"

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct tm_launch {
	pid_t pid;
	int go_fd, error_fd;
	char path[PATH_MAX];      /* what would be run, "" if it is not found */
	int find_error;           /* errno, where it is not, or cannot be run */
	enum tm_exec_class class; /* and what that is */
};

/* Finds our library and forks a child that waits. 0, or -1 with a sentence in error. Before any thread is made. */
int tm_launch_prepare(struct tm_launch *l, const struct tm_session *session, char **command, char *error, size_t error_bytes);
/* Lets the child exec, with the signals that came before there was one (signals.h). 0, or the errno of the exec that failed; the child is gone then. */
int tm_launch_go(struct tm_launch *l, const sigset_t *early);
/* Ends a child that was not let go. */
void tm_launch_cancel(struct tm_launch *l);

#endif
