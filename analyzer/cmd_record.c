/* cmd_record.c - `tidemark record`, `tidemark names` and `tidemark dump`: all are done by tidemark-record, which replaces this process.
 *
 * It is looked for beside this executable first, so that a tree that was moved, or is not installed, finds its own; then in PATH.
 */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "recorder_path.h"
#include "talk.h"
#include "verbs.h"

#define RECORD_FAILED 125 /* before the command started: the recorder's own convention */

bool tm_recorder_beside(char path[PATH_MAX]) {
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
	if (n < 0) return false;
	path[n] = '\0';
	char *slash = strrchr(path, '/');
	if (!slash || (size_t)(slash - path) + sizeof("/" TM_RECORDER) > PATH_MAX) return false;
	strcpy(slash + 1, TM_RECORDER);
	return true;
}

/* Returns only when it could not be run. */
static int run_recorder(char **arguments, int failed) {
	char path[PATH_MAX];
	if (tm_recorder_beside(path)) execv(path, arguments);
	execvp(TM_RECORDER, arguments);
	int error = errno;
	tm_fail("cannot run '%s': %s (looked beside tidemark and in PATH)", TM_RECORDER, strerror(error));
	return failed;
}

int tm_cmd_record(int argc, char **argv) {
	(void)argc;
	char name[] = TM_RECORDER;
	argv[0] = name;
	return run_recorder(argv, RECORD_FAILED);
}

/* `names` and `dump` are words of the recorder's, too. */
int tm_cmd_names(int argc, char **argv) {
	char name[] = TM_RECORDER;
	char **arguments = calloc((size_t)argc + 2, sizeof(*arguments));
	if (!arguments) return tm_fail("cannot run '%s': out of memory", TM_RECORDER);
	arguments[0] = name;
	memcpy(arguments + 1, argv, (size_t)argc * sizeof(*argv));
	int status = run_recorder(arguments, TM_EXIT_FAILED);
	free(arguments);
	return status;
}
