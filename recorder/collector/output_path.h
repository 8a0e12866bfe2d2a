/* output_path.h - from the pattern of --output to a file name.
 *
 * Flow:  record_main.c -> here -> writer.c
 * %p pid of the command, %h host, %r rank, %j job, %s step, %t start time (20260131-235959), %q{VAR} an environment variable, %% percent.
 * Rank, job and step are those of the launcher's variables in our own environment; what is not known becomes "0" for the rank, else "none".
 * A variable that is not set is an error.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_OUTPUT_PATH_H
#define TIDEMARK_RECORDER_COLLECTOR_OUTPUT_PATH_H

#include <stddef.h>

/* Returns the expanded path (malloc), or NULL with a sentence in `error` (lower case, no full stop). */
char *tm_output_path_expand(const char *pattern, int pid, char *error, size_t error_bytes);

/* Makes the directories above the file. 0 or -errno; on failure `failed` names the directory. */
int tm_output_path_make_directories(const char *path, char *failed, size_t failed_bytes);

#endif
