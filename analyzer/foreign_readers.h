/* foreign_readers.h - the readers of other tools' formats, one a file.
 *
 * Flow:     foreign.c -> here -> foreign_trace.c
 * Each:     reads the whole file at `path` and tells the trace. Sets f->format, and f->cut_reason and f->sound_bytes where the file ends early.
 * Fails:    -1 with a sentence in f->error, or with t->failed.
 */
#ifndef TIDEMARK_ANALYZER_FOREIGN_READERS_H
#define TIDEMARK_ANALYZER_FOREIGN_READERS_H

#include "foreign.h"
#include "foreign_trace.h"

int tm_foreign_read_heaptrack(struct tm_foreign *f, struct tm_foreign_trace *t, const char *path);
int tm_foreign_read_snapshot(struct tm_foreign *f, struct tm_foreign_trace *t, const char *path);
int tm_foreign_read_nsight(struct tm_foreign *f, struct tm_foreign_trace *t, const char *path);
/* A database that Nsight Systems exported; an SQLite file is told by its tables. */
bool tm_foreign_is_nsight(const char *path);
int tm_foreign_read_kineto(struct tm_foreign *f, struct tm_foreign_trace *t, const char *path);

/* Sets f->error; always -1. */
int tm_foreign_fail(struct tm_foreign *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
