/* reader.h - a trace file, chunk by chunk.
 *
 * Flow:     run.tmk -> here -> catalog.c (everything but events) and ahead.c (events)
 * Owns:     a descriptor, one chunk's stored payload and one decompressed payload.
 * Threads:  one reader, one thread; several readers may read one file.
 * Reads:    with pread, so that a file that shrinks meanwhile ends early and does no harm.
 * Stops:    where format.md section 2 says that a trace ends. Everything handed out before is sound.
 */
#ifndef TIDEMARK_ANALYZER_READER_H
#define TIDEMARK_ANALYZER_READER_H

#include "../schema/chunk.h"

#include <stdbool.h>
#include <stdint.h>

struct tm_reader {
	int fd;
	uint16_t major, minor;
	uint64_t file_bytes;
	uint64_t chunk_offset; /* of the chunk read last */
	uint64_t offset;       /* of the next one; after the last, where reading stopped */
	uint32_t sequence;     /* expected of the next one */
	const char *stopped;   /* why, in words; NULL: not yet, or at the end of the file */
	struct tm_bytes stored;
	struct tm_unpacker unpacker;
};

/* 0, or -1 with a sentence in error (not a trace, empty, a newer version, cannot be opened). Release after either. */
int tm_reader_open(struct tm_reader *r, const char *path, char *error, size_t error_bytes);
/* Another one of the same file, at its beginning. 0, -1: no memory or descriptors. Release after either. */
int tm_reader_again(struct tm_reader *r, const struct tm_reader *of);
void tm_reader_release(struct tm_reader *r);

/* Reads the next chunk's header and stored payload and checks both checksums. false: the end, see `stopped`. */
bool tm_reader_next(struct tm_reader *r, struct tm_chunk_header *h);
/* Reads the next chunk of this kind. Of those in between it reads the headers alone, and checks no payload: that it comes so far does not make them sound. */
bool tm_reader_find(struct tm_reader *r, unsigned kind, struct tm_chunk_header *h);
/* Reads the chunk at `offset`, which tm_reader_next() gave before. */
bool tm_reader_at(struct tm_reader *r, uint64_t offset, struct tm_chunk_header *h);
/* Decompresses what was read last; valid until the next call. 0 or enum tm_chunk_error. */
int tm_reader_payload(struct tm_reader *r, const struct tm_chunk_header *h, struct tm_cursor *out);

/* 1: the file begins as a trace does; 0: it does not; -1: it cannot be read (errno). */
int tm_reader_recognise(const char *path);

#endif
