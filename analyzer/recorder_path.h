/* recorder_path.h - where tidemark-record is: beside this executable, so that a tree that was moved, or is not installed, finds its own. */
#ifndef TIDEMARK_ANALYZER_RECORDER_PATH_H
#define TIDEMARK_ANALYZER_RECORDER_PATH_H

#include <limits.h>
#include <stdbool.h>

#define TM_RECORDER "tidemark-record"

/* cmd_record.c. false: this executable's own path cannot be told; then PATH is left. */
bool tm_recorder_beside(char path[PATH_MAX]);

#endif
