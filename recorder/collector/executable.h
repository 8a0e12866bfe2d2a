/* executable.h - what an ELF file says about itself: can it be recorded, where does it start, what is its build-id?
 *
 * Flow:     the command before it is started; a module's file when its entry point or build-id is wanted -> here
 * Fails:    a file that cannot be read or is no ELF is TM_EXEC_UNKNOWN with everything else 0.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_EXECUTABLE_H
#define TIDEMARK_RECORDER_COLLECTOR_EXECUTABLE_H

#include "../shm.h"

#include <stddef.h>
#include <stdint.h>

#define TM_BUILD_ID_MAX 64u

struct tm_executable {
	enum tm_exec_class class;
	uint64_t entry;        /* ELF virtual address */
	uint64_t first_low;    /* lowest virtual address of a segment, rounded down to a page */
	uint64_t first_offset; /* and its place in the file */
	uint8_t build_id[TM_BUILD_ID_MAX];
	size_t build_id_size;
};

void tm_executable_read(const char *path, struct tm_executable *out);
/* The same for what a command line would run: follows `#!` lines. */
void tm_executable_read_command(const char *path, struct tm_executable *out);
/* Finds a command as execvp would; 0, or -1 with the errno that execvp would have: there is none, or it cannot be run. */
int tm_executable_find(const char *command, char *path, size_t path_bytes);
/* Why a class cannot be recorded: "it is statically linked". */
const char *tm_exec_class_reason(enum tm_exec_class class);

#endif
