/* source_path.h - one spelling for each source file.
 *
 * Flow:     debuginfo.c -> here -> the file names of a trace.
 * Owns:     nothing. Threads: no state.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_SOURCE_PATH_H
#define TIDEMARK_RECORDER_COLLECTOR_SOURCE_PATH_H

/* The path of a source file as the compiler saw it, joined to the directory where it ran (NULL: unknown) if it is relative, without
 * `.`, `..` and doubled slashes. Names only: the files need not exist here, so links are not followed. To be freed; NULL: out of memory. */
char *tm_source_path(const char *directory, const char *path);

#endif
