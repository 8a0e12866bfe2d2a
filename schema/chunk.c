/* chunk.c - the frame around every payload: header, checksums, zstd.
 *
 * Flow:  payload -> tm_pack() -> file ... file -> tm_chunk_header_read(), tm_unpack() -> payload.
 * Idea:  a chunk stands or falls as a whole. The header has a checksum of its own, so that its lengths can be believed before the
 *        payload is read; the payload's is over the stored bytes, so that zstd never sees damage that chance made.
 */
#include "chunk.h"

#include <zlib.h>
#include <zstd.h>

#define STORE_BELOW_BYTES 64 /* zstd's own frame would eat what it saves */

enum { CODEC_STORED = 0, CODEC_ZSTD = 1 };

const char *tm_chunk_error_text(int error) {
	switch (error) {
	case TM_CHUNK_OK: return "no error";
	case TM_CHUNK_SHORT: return "the trace is cut in the middle of a chunk";
	case TM_CHUNK_BAD_MAGIC: return "no chunk starts here";
	case TM_CHUNK_BAD_HEADER: return "chunk header damaged";
	case TM_CHUNK_BAD_SEQUENCE: return "a chunk is missing";
	case TM_CHUNK_BAD_PAYLOAD: return "payload checksum mismatch";
	case TM_CHUNK_BAD_CODEC: return "payload does not decompress";
	case TM_CHUNK_NO_MEMORY: return "out of memory";
	case TM_CHUNK_NEWER: return "the trace needs a newer version of tidemark";
	}
	return "unknown error";
}

static uint32_t checksum(const void *data, size_t n) {
	return (uint32_t)crc32_z(0, data, n);
}

static void store_u32(uint8_t *p, uint32_t v) {
	for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (8 * i));
}

void tm_file_header_write(uint8_t out[TM_FILE_HEADER_BYTES]) {
	memcpy(out, TM_FILE_MAGIC, 8);
	store_u32(out + 8, TM_FORMAT_MAJOR | (uint32_t)TM_FORMAT_MINOR << 16);
	store_u32(out + 12, 0);
}

/* A file that is shorter than the magic but agrees with it so far is a cut trace; anything else is not a trace at all. */
int tm_file_header_read(const uint8_t *data, size_t n, uint16_t *major, uint16_t *minor) {
	if (n && memcmp(data, TM_FILE_MAGIC, n < 8 ? n : 8)) return TM_CHUNK_BAD_MAGIC;
	if (n < TM_FILE_HEADER_BYTES) return TM_CHUNK_SHORT;
	struct tm_cursor c = tm_cursor_over(data + 8, TM_FILE_HEADER_BYTES - 8);
	*major = tm_get_u16(&c);
	*minor = tm_get_u16(&c);
	return *major == TM_FORMAT_MAJOR ? TM_CHUNK_OK : TM_CHUNK_NEWER;
}

int tm_packer_init(struct tm_packer *p, int level) {
	*p = (struct tm_packer){ .zstd = ZSTD_createCCtx(), .level = level };
	if (!p->zstd) return TM_CHUNK_NO_MEMORY;
	ZSTD_CCtx_setParameter(p->zstd, ZSTD_c_compressionLevel, level);
	return TM_CHUNK_OK;
}

void tm_packer_release(struct tm_packer *p) {
	ZSTD_freeCCtx(p->zstd);
	tm_bytes_release(&p->out);
	*p = (struct tm_packer){ 0 };
}

/* Compresses behind the header's place. Returns the stored length, or 0 when the payload is better stored as it is. */
static size_t compress_payload(struct tm_packer *p, const void *raw, size_t n) {
	if (n < STORE_BELOW_BYTES) return 0;
	/* The room ends one byte short of the payload: zstd gives up by itself where it does not shrink it. */
	size_t stored = ZSTD_compress2(p->zstd, p->out.data + TM_CHUNK_HEADER_BYTES, n - 1, raw, n);
	return ZSTD_isError(stored) ? 0 : stored;
}

int tm_pack(struct tm_packer *p, uint8_t kind, const void *raw, size_t n) {
	tm_bytes_clear(&p->out);
	if (n > TM_CHUNK_RAW_MAX) return TM_CHUNK_BAD_HEADER;
	if (!tm_bytes_reserve(&p->out, TM_CHUNK_HEADER_BYTES + n)) return TM_CHUNK_NO_MEMORY;
	size_t stored = compress_payload(p, raw, n);
	uint8_t codec = stored ? CODEC_ZSTD : CODEC_STORED;
	uint8_t *payload = p->out.data + TM_CHUNK_HEADER_BYTES;
	if (!stored && n) memcpy(payload, raw, n);
	if (!stored) stored = n;

	tm_put_u32(&p->out, TM_CHUNK_MAGIC);
	tm_put_u8(&p->out, kind);
	tm_put_u8(&p->out, codec);
	tm_put_u16(&p->out, kind <= TM_CHUNK_END ? TM_CHUNK_CRITICAL : 0);
	tm_put_u32(&p->out, p->sequence);
	tm_put_u32(&p->out, (uint32_t)stored);
	tm_put_u32(&p->out, (uint32_t)n);
	tm_put_u32(&p->out, checksum(payload, stored));
	tm_put_u32(&p->out, 0);
	tm_put_u32(&p->out, checksum(p->out.data, TM_CHUNK_HEADER_BYTES - 4));
	p->out.size += stored;
	p->sequence++;
	return TM_CHUNK_OK;
}

void tm_chunk_renumber(uint8_t header[TM_CHUNK_HEADER_BYTES], uint32_t sequence) {
	store_u32(header + 8, sequence);
	store_u32(header + TM_CHUNK_HEADER_BYTES - 4, checksum(header, TM_CHUNK_HEADER_BYTES - 4));
}

static bool kind_is_known(uint8_t kind) {
	switch (kind) {
#define X(name, number) case number:
		TM_CHUNK_KINDS(X)
#undef X
		return true;
	}
	return false;
}

static bool sizes_are_sound(const struct tm_chunk_header *h) {
	if (h->raw_bytes > TM_CHUNK_RAW_MAX || h->stored_bytes > TM_CHUNK_RAW_MAX) return false;
	return h->codec != CODEC_STORED || h->stored_bytes == h->raw_bytes;
}

int tm_chunk_header_read(const uint8_t *data, size_t n, struct tm_chunk_header *h) {
	*h = (struct tm_chunk_header){ 0 };
	if (n < TM_CHUNK_HEADER_BYTES) return TM_CHUNK_SHORT;
	struct tm_cursor c = tm_cursor_over(data, TM_CHUNK_HEADER_BYTES);
	if (tm_get_u32(&c) != TM_CHUNK_MAGIC) return TM_CHUNK_BAD_MAGIC;
	h->kind = tm_get_u8(&c);
	h->codec = tm_get_u8(&c);
	h->flags = tm_get_u16(&c);
	h->sequence = tm_get_u32(&c);
	h->stored_bytes = tm_get_u32(&c);
	h->raw_bytes = tm_get_u32(&c);
	h->payload_crc = tm_get_u32(&c);
	tm_get_u32(&c); /* reserved */
	if (tm_get_u32(&c) != checksum(data, TM_CHUNK_HEADER_BYTES - 4)) return TM_CHUNK_BAD_HEADER;
	if (!sizes_are_sound(h)) return TM_CHUNK_BAD_HEADER;
	if (!kind_is_known(h->kind) && (h->flags & TM_CHUNK_CRITICAL)) return TM_CHUNK_NEWER;
	return TM_CHUNK_OK;
}

int tm_unpacker_init(struct tm_unpacker *u) {
	*u = (struct tm_unpacker){ .zstd = ZSTD_createDCtx() };
	return u->zstd ? TM_CHUNK_OK : TM_CHUNK_NO_MEMORY;
}

void tm_unpacker_release(struct tm_unpacker *u) {
	ZSTD_freeDCtx(u->zstd);
	tm_bytes_release(&u->raw);
	*u = (struct tm_unpacker){ 0 };
}

int tm_unpack(struct tm_unpacker *u, const struct tm_chunk_header *h, const uint8_t *stored, struct tm_cursor *out) {
	*out = tm_cursor_over(stored, 0);
	if (!sizes_are_sound(h)) return TM_CHUNK_BAD_HEADER;
	if (checksum(stored, h->stored_bytes) != h->payload_crc) return TM_CHUNK_BAD_PAYLOAD;
	if (h->codec == CODEC_STORED) {
		*out = tm_cursor_over(stored, h->stored_bytes);
		return TM_CHUNK_OK;
	}
	if (h->codec != CODEC_ZSTD) return TM_CHUNK_BAD_CODEC;
	tm_bytes_clear(&u->raw);
	if (!tm_bytes_reserve(&u->raw, h->raw_bytes)) return TM_CHUNK_NO_MEMORY;
	/* The payload is one frame and nothing else; the decompressor alone would accept several in a row. */
	if (ZSTD_findFrameCompressedSize(stored, h->stored_bytes) != h->stored_bytes) return TM_CHUNK_BAD_CODEC;
	size_t n = ZSTD_decompressDCtx(u->zstd, u->raw.data, h->raw_bytes, stored, h->stored_bytes);
	if (ZSTD_isError(n) || n != h->raw_bytes) return TM_CHUNK_BAD_CODEC;
	u->raw.size = n;
	*out = tm_cursor_over(u->raw.data, n);
	return TM_CHUNK_OK;
}
