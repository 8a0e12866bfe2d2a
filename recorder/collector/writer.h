/* writer.h - the trace file: whole chunks in, write(2) out.
 *
 * Flow:     encode.c, names -> here -> run.tmk
 * Owns:     the file descriptor and a buffer of chunks that are not written yet.
 * Threads:  one at a time; `error` and `bytes` may be read by any.
 * When full (disk, quota, file size limit): cuts the file back to its last whole chunk, remembers errno in `error`, and ignores what
 *           comes then.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_WRITER_H
#define TIDEMARK_RECORDER_COLLECTOR_WRITER_H

#include "../../schema/chunk.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct tm_writer {
	int fd;
	char *path;   /* owned */
	bool is_gone; /* no name leads to the file any more */
	struct tm_packer packer;
	struct tm_bytes pending; /* whole chunks to be written */
	size_t *chunk_ends;      /* offsets within pending */
	size_t chunk_count, chunk_capacity;
	_Atomic uint64_t bytes; /* in the file */
	_Atomic int error;      /* errno of the write that failed, 0 */
};

/* Creates the file (not over an existing one unless `force`, and never over one that another recorder writes: EBUSY) and buffers its
 * header. Takes `path` (malloc). 0 or -errno. */
int tm_writer_open(struct tm_writer *w, char *path, bool force);
/* Packs a payload into a chunk and buffers it. 0 or a TM_CHUNK_ error. */
int tm_writer_add_chunk(struct tm_writer *w, uint8_t kind, const void *payload, size_t n);
/* Buffers a chunk that was packed before, for another place: renumbers its header. */
void tm_writer_add_packed(struct tm_writer *w, uint8_t *chunk, size_t n);
/* The file of `next`, whose buffer is empty and which is used up, goes by this writer's path now and is written from here on; what is
 * buffered here comes behind it. */
void tm_writer_take_over(struct tm_writer *w, struct tm_writer *next);
/* Forgets the last chunk that was buffered. */
void tm_writer_drop_last(struct tm_writer *w);
/* Writes what is buffered. 0 or -errno. */
int tm_writer_flush(struct tm_writer *w);
/* After a failure: who looks at the file finds that nobody writes it, and no other recorder takes it. */
void tm_writer_give_up(const struct tm_writer *w);
/* After a failure: what is buffered is dropped, and the next chunks are tried behind those that are whole. Returns the error, which is the caller's to put
 * back. */
int tm_writer_retry(struct tm_writer *w);
/* Where the file was renamed, or a directory above it, `path` becomes the name that it has now; where it was removed, it is gone. */
void tm_writer_follow(struct tm_writer *w);
/* 0 or -errno: some file systems tell of a failed write only when the file is closed. */
int tm_writer_close(struct tm_writer *w);
/* Removes the file: nothing was recorded. */
void tm_writer_discard(struct tm_writer *w);

#endif
