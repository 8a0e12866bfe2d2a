/* foreign_input.h - the bytes of a file that may be compressed, from its beginning to its end.
 *
 * Flow:     a file, plain, gzip or zstd (told apart by content) -> here -> foreign_NAME.c
 * Owns:     a descriptor, a decompressor, buffers of fixed size and one line.
 * Cut:      damage of the compression ends the bytes and is remembered in `cut`; what came before it is sound.
 */
#ifndef TIDEMARK_ANALYZER_FOREIGN_INPUT_H
#define TIDEMARK_ANALYZER_FOREIGN_INPUT_H

#include "../schema/wire.h"

#include <zlib.h>

struct tm_input {
	int fd;
	enum { TM_INPUT_PLAIN, TM_INPUT_GZIP, TM_INPUT_ZSTD } codec;
	uint64_t file_bytes, read_bytes, given_bytes; /* of the file; read of it; decompressed and given out */
	uint64_t line;                                /* number of the last line */
	z_stream zlib;
	void *zstd; /* ZSTD_DCtx */
	uint8_t *buffer;
	size_t at, filled;
	bool ended, has_zlib, in_frame;
	const char *cut; /* NULL: sound so far */
	uint8_t *ahead;  /* of lines: bytes given out by the decompressor and not yet taken */
	size_t ahead_at, ahead_filled;
	struct tm_bytes text; /* the last line */
};

/* 0, or -1 with a sentence. Release after either. */
int tm_input_open(struct tm_input *i, const char *path, char *error, size_t error_bytes);
void tm_input_release(struct tm_input *i);
/* Up to n bytes; 0: the end, see `cut`. */
size_t tm_input_read(struct tm_input *i, void *data, size_t n);
/* The next line without its end, valid until the next call. false: there is none. Not to be mixed with tm_input_read(). */
bool tm_input_line(struct tm_input *i, struct tm_text *line);

#endif
