/* names.h - gives the recorded addresses their names, once the program has ended.
 *
 * Flow:     the collector's frames and modules -> here -> symbols.c reads one module file at a time -> NAMES chunks.
 * Owns:     nothing of the caller's; modules and frames must stay as they are during the call.
 * Threads:  one call at a time. Each module file is read by a forked child, so that a damaged file, or one that is truncated while we
 *           read it, ends the child and not the recorder. The child is waited for by its own pid. One that stands still, as on a file of a server that
 *           does not answer, is given up; those after it sooner.
 * Fails:    a module that cannot be read keeps its addresses without names and is noted in the trace; only a failed write and
 *           exhausted memory fail the call.
 * Network:  never, unless `debuginfod` is set.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_NAMES_H
#define TIDEMARK_RECORDER_COLLECTOR_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tm_names_ahead;

struct tm_names_module {
	uint64_t id, process;    /* as in the trace */
	uint64_t bias;           /* address - bias is the ELF virtual address */
	const char *path;        /* as recorded; NULL and "" are modules without a file */
	const uint8_t *build_id; /* NULL: the module has none */
	size_t build_id_size;    /* bytes */
	uint64_t load_ns;        /* since the start of the trace */
};

struct tm_names_frame {
	uint64_t id;      /* the frame's id in the trace */
	uint64_t module;  /* its module's id; 0: none, the frame is skipped */
	uint64_t address; /* as recorded: a return address, the function is the one around address - 1 */
};

struct tm_names_frame tm_names_frame_of(const void *frames, size_t number);

struct tm_names_input {
	const struct tm_names_module *modules; /* in any order; several processes may have loaded the same file */
	size_t module_count;
	/* Native frames that need a name, in any order: those of all numbers below frame_count. */
	struct tm_names_frame (*frame)(const void *frames, size_t number);
	const void *frames; /* for it; an array of struct tm_names_frame for tm_names_frame_of() */
	size_t frame_count;
	uint64_t start_unix_ns;        /* wall clock of the trace's ns 0; 0: unknown, files without build-id are then not checked by time */
	uint64_t note_ns;              /* time that the notes carry, since the start of the trace */
	const char *const *debug_dirs; /* more places for debug files (--debug-dir), first one first */
	size_t debug_dir_count;
	struct tm_names_ahead *ahead; /* files that are open already; NULL: none */
	bool debuginfod; /* may ask the servers of DEBUGINFOD_URLS */
	unsigned patience_s; /* a reader that neither answers nor works for so long is given up; 0: 30 */
	bool progress;   /* a progress line on standard error when it takes longer than a second */
};

struct tm_names_output {
	uint64_t next_string_id; /* in: the first string id that is free in the trace; out: the first one free after the call */
	/* Takes the payload of one NAMES chunk (about 1 MiB; records string, name, note) to pack and write; not 0 stops and is returned. One at a time, and
	 * mostly by a thread of their own. */
	int (*write_chunk)(void *context, const void *payload, size_t n);
	/* Takes what would else be a note in the trace: why a module has no names. NULL: the trace gets it. */
	void (*remark)(void *context, const char *text);
	void *context;
	/* out: */
	uint64_t frames_named;    /* frames whose function or line is known now */
	uint64_t modules_read;    /* module files that were opened and searched */
	uint64_t modules_refused; /* missing, replaced by another file, or damaged; each is noted once */
};

enum tm_names_error { TM_NAMES_NO_MEMORY = -1 };

/* 0; TM_NAMES_NO_MEMORY; or what write_chunk returned. What was written before a failure is sound. */
int tm_names_write(const struct tm_names_input *in, struct tm_names_output *out);

/* `tidemark-record names TRACE ...`: argv[0] is "names". Returns the exit status: 0 done, 1 failed (one line on standard error), 2 usage. */
int tm_names_command(int argc, char **argv);

#endif
