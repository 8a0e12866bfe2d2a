/* python_program.h - which programs are the Python interpreter itself, by their names.
 *
 * Flow:     guest/python_find.c (its finalization is the process' exit) and collector/python_stacks.c (its main is no frame of the program's) -> here
 * Names:    python, python3, python3.11, python3.13t, python3.7dm, Debian's python3.11-dbg. A `python_host` or a `pythonista` embeds one.
 */
#ifndef TIDEMARK_RECORDER_PYTHON_PROGRAM_H
#define TIDEMARK_RECORDER_PYTHON_PROGRAM_H

#include <stdbool.h>
#include <string.h>

/* path: as /proc/self/exe has it, which says so where the file is removed. */
static inline bool tm_is_python_program(const char *path) {
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	if (strncmp(name, "python", 6) != 0) return false;
	name += 6;
	while ((*name >= '0' && *name <= '9') || *name == '.') name++;
	while (*name == 'd' || *name == 'm' || *name == 't') name++; /* letters of the ABI */
	if (strncmp(name, "-dbg", 4) == 0) name += 4;
	return !*name || strcmp(name, " (deleted)") == 0;
}

#endif
