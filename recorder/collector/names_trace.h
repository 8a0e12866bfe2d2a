/* names_trace.h - what a finished trace says about addresses and modules, for naming them later.
 *
 * Flow:     a trace file -> here -> names_command.c -> names.c.
 * Owns:     everything it read; frames and modules are ready to hand to tm_names_write().
 * Threads:  one object, one thread at a time.
 * Memory:   the frames and modules; chunks are read one at a time.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_NAMES_TRACE_H
#define TIDEMARK_RECORDER_COLLECTOR_NAMES_TRACE_H

#include <sys/types.h>

#include "recorder/collector/names.h"
#include "schema/wire.h"

struct tm_names_trace {
	struct tm_names_frame *frames; /* native frames, by ascending id */
	size_t frame_count, frame_capacity;
	struct tm_names_module *modules;
	size_t module_count, module_capacity;
	uint8_t *named; /* a bit for each frame id: it has a function or a line */
	size_t named_bytes;
	uint64_t next_string_id, start_unix_ns;
	bool looked_up; /* a note says that what has no name was looked up already */
	/* where the sound part ends */
	off_t size_bytes, sound_bytes;
	int stop;              /* 0: at the end of the file; else an enum tm_chunk_error, the chunk at sound_bytes is the first bad one */
	bool closed;           /* it has an END chunk, and nothing behind it */
	off_t end_offset;      /* of the END chunk; sound_bytes if there is none */
	uint32_t end_sequence; /* of the END chunk, or of the next chunk */
	struct tm_bytes end;   /* the END chunk's payload */
};

/* Reads the file from its start. 0; or an enum tm_chunk_error when nothing can be used: TM_CHUNK_BAD_MAGIC or TM_CHUNK_SHORT (not a
 * trace), TM_CHUNK_NEWER, TM_CHUNK_NO_MEMORY. A damaged or cut trace is read as far as it is sound. Release after either. */
int tm_names_trace_read(struct tm_names_trace *t, int fd);
void tm_names_trace_release(struct tm_names_trace *t);

static inline bool tm_names_trace_is_named(const struct tm_names_trace *t, uint64_t frame) {
	return frame / 8 < t->named_bytes && (t->named[frame / 8] >> (frame % 8) & 1);
}

#endif
