/* foreign.h - recordings of other tools, translated into a trace of ours.
 *
 * Flow:     import.c, cmd_info.c -> tm_foreign_translate() -> foreign_NAME.c -> foreign_trace.c -> an unnamed trace -> import_trace.c
 * Idea:     a reader for each format says what happened in the words of a trace; from there on everything is as if we had recorded it, so that
 *           every aggregate, view and command is right by construction. What a format does not know stays unknown.
 * Owns:     the trace's descriptor, until tm_foreign_release(). The file has no name, so nothing is left of it.
 * Hostile:  a file may hold anything. Nothing in it is executed, what it costs follows its size, and a sentence says where it is wrong.
 */
#ifndef TIDEMARK_ANALYZER_FOREIGN_H
#define TIDEMARK_ANALYZER_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TM_FOREIGN_CONTENT "content" /* key of trace_info */

enum tm_foreign_kind {
	TM_FOREIGN_NONE,
	TM_FOREIGN_HEAPTRACK, /* heaptrack's interpreted text, plain, gzip or zstd */
	TM_FOREIGN_PICKLE,    /* torch.cuda.memory._dump_snapshot() */
	TM_FOREIGN_JSON,      /* torch.profiler's export_chrome_trace(), plain or gzip */
	TM_FOREIGN_NSIGHT,    /* nsys export --type=sqlite */
};

struct tm_foreign {
	int fd;                 /* of the trace; -1 none */
	char path[40];          /* by which it can be opened while fd is */
	char format[64];        /* "heaptrack 3" */
	const char *cut_reason; /* why the file was not read to its end; NULL: it was */
	char damage[128];       /* cut_reason may be this */
	uint64_t file_bytes, sound_bytes;
	uint64_t start_unix_ns; /* of the trace's time 0; 0: unknown */
	uint64_t content;     /* equal recordings have equal ones, also if one of them is compressed; in trace_info, too */
	bool tells_nothing;   /* none of its events is of a kind that is read */
	bool hides_addresses; /* those in the trace only tell blocks apart */
	char error[256];      /* why it failed */
};

/* By the content. NONE: nothing that this file knows, with "" in `error`; or it cannot be told, for which a sentence says why. */
enum tm_foreign_kind tm_foreign_recognise(const char *path, char *error, size_t error_bytes);

/* Translates a file; the trace lies in the directory of `beside` (NULL: where temporary files do). 0, or -1 with a sentence in `error`. Release after
 * either. */
int tm_foreign_translate(struct tm_foreign *f, enum tm_foreign_kind kind, const char *path, const char *beside);
void tm_foreign_release(struct tm_foreign *f);

#endif
