/* chunk.h - the frame around every payload: header, checksums, zstd.
 *
 * Flow:     records.h, stacks.h, events.h -> payload -> here -> file ... and back
 * Owns:     struct tm_packer and struct tm_unpacker own a zstd context and a buffer each.
 * Threads:  one object, one thread at a time.
 * No I/O:   it turns payloads into bytes to write and bytes read into payloads.
 */
#ifndef TIDEMARK_SCHEMA_CHUNK_H
#define TIDEMARK_SCHEMA_CHUNK_H

#include "kinds.h"
#include "wire.h"

enum tm_chunk_error {
	TM_CHUNK_OK = 0,
	TM_CHUNK_SHORT = -1,        /* the header or the payload is cut */
	TM_CHUNK_BAD_MAGIC = -2,    /* no chunk starts here */
	TM_CHUNK_BAD_HEADER = -3,   /* header checksum mismatch, or sizes out of bounds */
	TM_CHUNK_BAD_SEQUENCE = -4, /* a chunk is missing before this one */
	TM_CHUNK_BAD_PAYLOAD = -5,  /* payload checksum mismatch */
	TM_CHUNK_BAD_CODEC = -6,    /* unknown codec, or it does not decompress to its raw length */
	TM_CHUNK_NO_MEMORY = -7,
	TM_CHUNK_NEWER = -8,        /* an unknown kind marked critical */
};

const char *tm_chunk_error_text(int error); /* lower case, no full stop: "payload checksum mismatch" */

struct tm_chunk_header {
	uint8_t kind, codec;
	uint16_t flags;
	uint32_t sequence, stored_bytes, raw_bytes, payload_crc;
};

/* The 16 bytes a trace starts with. */
void tm_file_header_write(uint8_t out[TM_FILE_HEADER_BYTES]);
/* 0, or TM_CHUNK_SHORT, TM_CHUNK_BAD_MAGIC (no trace), TM_CHUNK_NEWER (a major version that is not ours; *major tells). */
int tm_file_header_read(const uint8_t *data, size_t n, uint16_t *major, uint16_t *minor);

struct tm_packer {
	void *zstd;           /* ZSTD_CCtx */
	struct tm_bytes out;  /* header and stored payload of the last chunk packed */
	uint32_t sequence;    /* of the next chunk */
	int level;            /* zstd level */
};

int tm_packer_init(struct tm_packer *p, int level); /* 0 or TM_CHUNK_NO_MEMORY */
void tm_packer_release(struct tm_packer *p);
/* Packs one chunk into p->out (replacing its content), ready to be written in one piece. Payloads under 64 bytes, or that zstd
 * does not shrink, are stored. 0, TM_CHUNK_NO_MEMORY, or TM_CHUNK_BAD_HEADER if raw is over TM_CHUNK_RAW_MAX. */
int tm_pack(struct tm_packer *p, uint8_t kind, const void *raw, size_t n);

/* Gives a packed chunk another place in the file. */
void tm_chunk_renumber(uint8_t header[TM_CHUNK_HEADER_BYTES], uint32_t sequence);

/* Reads and checks a header (not the payload). n may be less than a header: TM_CHUNK_SHORT. */
int tm_chunk_header_read(const uint8_t *data, size_t n, struct tm_chunk_header *h);

struct tm_unpacker {
	void *zstd; /* ZSTD_DCtx */
	struct tm_bytes raw;
};

int tm_unpacker_init(struct tm_unpacker *u);
void tm_unpacker_release(struct tm_unpacker *u);
/* Checks the payload's CRC and decompresses; *out looks into u->raw or, for stored payloads, into `stored`, until the next call. */
int tm_unpack(struct tm_unpacker *u, const struct tm_chunk_header *h, const uint8_t *stored, struct tm_cursor *out);

#endif
