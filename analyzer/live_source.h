/* live_source.h - which trace is being written, and by whom.
 *
 * Flow:     a path, or a process' number -> here -> live.c opens `path`
 * Idea:     a recorder keeps its trace open, so /proc says which file it is, even if it was renamed. The recorder of a process is who has open what the
 *           process has mapped of the session, else whom its environment names, else an ancestor: the recorder starts the command.
 */
#ifndef TIDEMARK_ANALYZER_LIVE_SOURCE_H
#define TIDEMARK_ANALYZER_LIVE_SOURCE_H

#include <limits.h>
#include <stdbool.h>

struct tm_live_source {
	char path[PATH_MAX];  /* to be opened */
	char shown[PATH_MAX]; /* as people know it */
	int pid;              /* whose recorder it is of; 0: it is a file */
};

void tm_live_source_of_file(struct tm_live_source *s, const char *path);
/* 0, or TM_EXIT_FAILED after saying why. */
int tm_live_source_of_process(struct tm_live_source *s, int pid);
/* Some recorder writes the file that is open as fd. */
bool tm_live_source_is_written(int fd);
/* Of a process: the file may be another one than it was, and `path` is where it is now. Where the recorder has ended, and with it what /proc says of its
 * files, it is known by the name that it was shown by. */
void tm_live_source_look_again(struct tm_live_source *s);
/* A recorder with a ring writes its file anew and puts it in the place of the old one. True: `path` leads to another file than fd now. */
bool tm_live_source_is_replaced(struct tm_live_source *s, int fd);

#endif
