/* test_chunk.c - file header, chunk headers, checksums, compression.
 *
 * Goal:    a chunk has the bytes that format.md section 2 promises, and no damage to one goes unnoticed.
 * Method:  a chunk written out by hand (its CRCs computed bit by bit outside of this program; 0xCBF43926 is the well-known check value of
 *          "123456789"); chunks with every single byte changed or cut; headers that lie with a right checksum.
 */
#include "../../schema/chunk.h"
#include "check.h"

#include <zlib.h>
#include <zstd.h>

static const uint8_t stored_chunk[] = {
	0x54, 0x4d, 0x43, 0x4b, /* TMCK */
	0x01,                   /* META */
	0x00,                   /* stored */
	0x01, 0x00,             /* critical */
	0x07, 0x00, 0x00, 0x00, /* sequence number */
	0x09, 0x00, 0x00, 0x00, /* stored bytes */
	0x09, 0x00, 0x00, 0x00, /* raw bytes */
	0x26, 0x39, 0xf4, 0xcb, /* CRC of the payload */
	0x00, 0x00, 0x00, 0x00, /* reserved */
	0xfe, 0xb6, 0x92, 0x2e, /* CRC of the header */
	'1',  '2',  '3',  '4',  '5', '6', '7', '8', '9',
};

static const uint8_t empty_end_chunk[] = {
	0x54, 0x4d, 0x43, 0x4b, 0x05, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xe8, 0xb3, 0x26, 0xf4,
};

static void test_file_header(void) {
	static const uint8_t expected[16] = { 'T', 'I', 'D', 'E', 'M', 'A', 'R', 'K', 1, 0, 4, 0, 0, 0, 0, 0 };
	uint8_t header[TM_FILE_HEADER_BYTES];
	uint16_t major = 99, minor = 99;
	tm_file_header_write(header);
	CHECK_BYTES(header, sizeof header, expected, sizeof expected);
	CHECK(tm_file_header_read(expected, 16, &major, &minor) == TM_CHUNK_OK);
	CHECK(major == 1 && minor == TM_FORMAT_MINOR);
	for (size_t n = 0; n < 16; n++) CHECK(tm_file_header_read(expected, n, &major, &minor) == TM_CHUNK_SHORT);
	header[10] = 3;
	CHECK(tm_file_header_read(header, 16, &major, &minor) == TM_CHUNK_OK && minor == 3);
	header[8] = 2;
	CHECK(tm_file_header_read(header, 16, &major, &minor) == TM_CHUNK_NEWER && major == 2);
	header[0] = 't';
	CHECK(tm_file_header_read(header, 16, &major, &minor) == TM_CHUNK_BAD_MAGIC);
	CHECK(tm_file_header_read((const uint8_t *)"SQLi", 4, &major, &minor) == TM_CHUNK_BAD_MAGIC);
}

static void test_stored_chunk_by_hand(void) {
	struct tm_packer p;
	struct tm_unpacker u;
	struct tm_chunk_header h;
	struct tm_cursor payload;
	CHECK(tm_packer_init(&p, 1) == TM_CHUNK_OK);
	CHECK(tm_unpacker_init(&u) == TM_CHUNK_OK);
	p.sequence = 7;
	CHECK(tm_pack(&p, TM_CHUNK_META, "123456789", 9) == TM_CHUNK_OK);
	CHECK_BYTES(p.out.data, p.out.size, stored_chunk, sizeof stored_chunk);
	CHECK(p.sequence == 8);
	CHECK(tm_chunk_header_read(stored_chunk, sizeof stored_chunk, &h) == TM_CHUNK_OK);
	CHECK(h.kind == TM_CHUNK_META && h.codec == 0 && h.flags == TM_CHUNK_CRITICAL && h.sequence == 7);
	CHECK(h.stored_bytes == 9 && h.raw_bytes == 9 && h.payload_crc == 0xcbf43926);
	CHECK(tm_unpack(&u, &h, stored_chunk + TM_CHUNK_HEADER_BYTES, &payload) == TM_CHUNK_OK);
	CHECK_BYTES(payload.p, (size_t)(payload.end - payload.p), "123456789", 9);

	p.sequence = 0;
	CHECK(tm_pack(&p, TM_CHUNK_END, NULL, 0) == TM_CHUNK_OK);
	CHECK_BYTES(p.out.data, p.out.size, empty_end_chunk, sizeof empty_end_chunk);
	CHECK(tm_chunk_header_read(empty_end_chunk, sizeof empty_end_chunk, &h) == TM_CHUNK_OK);
	CHECK(tm_unpack(&u, &h, empty_end_chunk + TM_CHUNK_HEADER_BYTES, &payload) == TM_CHUNK_OK && payload.p == payload.end);
	tm_packer_release(&p);
	tm_unpacker_release(&u);
}

/* As a reader does: header, then payload. The stored bytes are copied to their exact length, so that a sanitizer sees any step beyond. */
static int read_chunk(struct tm_unpacker *u, const uint8_t *data, size_t n, struct tm_cursor *payload) {
	struct tm_chunk_header h;
	int status = tm_chunk_header_read(data, n, &h);
	if (status) return status;
	if (n - TM_CHUNK_HEADER_BYTES < h.stored_bytes) return TM_CHUNK_SHORT;
	return tm_unpack(u, &h, data + TM_CHUNK_HEADER_BYTES, payload);
}

static void test_any_damage_shows(const uint8_t *chunk, size_t n, struct tm_unpacker *u) {
	uint8_t *copy = malloc(n);
	struct tm_cursor payload;
	for (size_t i = 0; i < n; i++) {
		memcpy(copy, chunk, n);
		copy[i] ^= (uint8_t)(1u << (i % 8));
		int status = read_chunk(u, copy, n, &payload);
		CHECK(status == (i < 4 ? TM_CHUNK_BAD_MAGIC : i < TM_CHUNK_HEADER_BYTES ? TM_CHUNK_BAD_HEADER : TM_CHUNK_BAD_PAYLOAD));
	}
	memcpy(copy, chunk, n);
	for (size_t cut = 0; cut < n; cut++) CHECK(read_chunk(u, copy, cut, &payload) == TM_CHUNK_SHORT);
	free(copy);
}

static void test_compressed_round_trips(void) {
	struct check_random r = check_random_start("chunk");
	struct tm_packer p;
	struct tm_unpacker u;
	struct tm_cursor payload;
	CHECK(tm_packer_init(&p, 1) == 0 && tm_unpacker_init(&u) == 0);
	for (uint32_t i = 0; i < 300; i++) {
		size_t n = check_random_below(&r, i < 100 ? 200 : 100000);
		uint64_t variety = 1 + check_random_below(&r, 256);
		uint8_t *raw = malloc(n + 1);
		for (size_t k = 0; k < n; k++) raw[k] = (uint8_t)check_random_below(&r, variety);
		CHECK(tm_pack(&p, TM_CHUNK_EVENTS, raw, n) == 0);
		CHECK(p.sequence == i + 1);
		CHECK(p.out.size <= n + TM_CHUNK_HEADER_BYTES);
		CHECK((p.out.data[5] == 0) == (p.out.size == n + TM_CHUNK_HEADER_BYTES));
		CHECK(n >= 64 || p.out.data[5] == 0);
		CHECK(read_chunk(&u, p.out.data, p.out.size, &payload) == 0);
		CHECK_BYTES(payload.p, (size_t)(payload.end - payload.p), raw, n);
		free(raw);
	}
	uint8_t zeros[1000] = { 0 };
	CHECK(tm_pack(&p, TM_CHUNK_EVENTS, zeros, sizeof zeros) == 0);
	CHECK(p.out.data[5] == 1 && p.out.size < 100);
	test_any_damage_shows(p.out.data, p.out.size, &u);
	test_any_damage_shows(stored_chunk, sizeof stored_chunk, &u);
	tm_packer_release(&p);
	tm_unpacker_release(&u);
}

static void put_u32(uint8_t *p, uint32_t v) {
	for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (8 * i));
}

/* A chunk whose checksums are right, whatever else is wrong with it. */
static size_t make_chunk(uint8_t *out, uint8_t kind, uint8_t codec, uint8_t flags, uint32_t raw_bytes, const void *payload,
			 uint32_t stored) {
	put_u32(out, TM_CHUNK_MAGIC);
	out[4] = kind;
	out[5] = codec;
	out[6] = flags;
	out[7] = 0;
	put_u32(out + 8, 0);
	put_u32(out + 12, stored);
	put_u32(out + 16, raw_bytes);
	put_u32(out + 20, (uint32_t)crc32(0, payload, stored));
	put_u32(out + 24, 0);
	put_u32(out + 28, (uint32_t)crc32(0, out, 28));
	memcpy(out + 32, payload, stored);
	return 32 + stored;
}

static void test_headers_that_lie(void) {
	static uint8_t chunk[4096], frame[1024], text[500];
	struct tm_unpacker u;
	struct tm_cursor payload;
	CHECK(tm_unpacker_init(&u) == 0);
	uint32_t n = (uint32_t)ZSTD_compress(frame, sizeof frame, text, sizeof text, 1);
#define READ(kind, codec, flags, raw_bytes, stored_payload, stored) \
	read_chunk(&u, chunk, make_chunk(chunk, kind, codec, flags, raw_bytes, stored_payload, stored), &payload)
	CHECK(READ(3, 1, 1, 500, frame, n) == TM_CHUNK_OK && payload.end - payload.p == 500);
	CHECK(READ(3, 1, 1, 499, frame, n) == TM_CHUNK_BAD_CODEC);
	CHECK(READ(3, 1, 1, 501, frame, n) == TM_CHUNK_BAD_CODEC);
	CHECK(READ(3, 1, 1, 0, frame, n) == TM_CHUNK_BAD_CODEC);
	CHECK(READ(3, 1, 1, 500, frame, n - 1) == TM_CHUNK_BAD_CODEC);
	CHECK(READ(3, 1, 1, 500, frame, n + 1) == TM_CHUNK_BAD_CODEC);
	CHECK(READ(3, 1, 1, 500, text, 100) == TM_CHUNK_BAD_CODEC);
	CHECK(READ(3, 1, 1, TM_CHUNK_RAW_MAX + 1, frame, n) == TM_CHUNK_BAD_HEADER);
	CHECK(READ(3, 1, 1, UINT32_MAX, frame, n) == TM_CHUNK_BAD_HEADER);
	CHECK(READ(3, 0, 1, n + 1, frame, n) == TM_CHUNK_BAD_HEADER);
	CHECK(READ(3, 2, 1, 500, frame, n) == TM_CHUNK_BAD_CODEC);
	CHECK(READ(7, 0, 1, n, frame, n) == TM_CHUNK_NEWER);
	CHECK(READ(0, 0, 1, n, frame, n) == TM_CHUNK_NEWER);
	CHECK(READ(7, 0, 0, n, frame, n) == TM_CHUNK_OK);
	/* A stored length that no payload may have is refused before anybody makes room for it. */
	make_chunk(chunk, 3, 1, 1, 500, frame, n);
	put_u32(chunk + 12, TM_CHUNK_RAW_MAX + 1);
	put_u32(chunk + 28, (uint32_t)crc32(0, chunk, 28));
	struct tm_chunk_header header;
	CHECK(tm_chunk_header_read(chunk, sizeof chunk, &header) == TM_CHUNK_BAD_HEADER);
	/* Two frames in a row are not one. */
	memcpy(frame + n, frame, n);
	CHECK(READ(3, 1, 1, 1000, frame, 2 * n) == TM_CHUNK_BAD_CODEC);
	tm_unpacker_release(&u);
}

static void test_too_large(void) {
	struct tm_packer p;
	CHECK(tm_packer_init(&p, 1) == 0);
	uint8_t *raw = calloc(1, TM_CHUNK_RAW_MAX + 1);
	if (CHECK(raw != NULL)) {
		CHECK(tm_pack(&p, TM_CHUNK_EVENTS, raw, (size_t)TM_CHUNK_RAW_MAX + 1) == TM_CHUNK_BAD_HEADER);
		CHECK(p.sequence == 0);
		CHECK(tm_pack(&p, TM_CHUNK_EVENTS, raw, TM_CHUNK_RAW_MAX) == TM_CHUNK_OK);
	}
	free(raw);
	tm_packer_release(&p);
}

static void test_error_texts(void) {
	for (int error = TM_CHUNK_OK; error >= TM_CHUNK_NEWER; error--) {
		const char *text = tm_chunk_error_text(error);
		CHECK(strcmp(text, "unknown error"));
		CHECK(text[strlen(text) - 1] != '.');
	}
	CHECK(!strcmp(tm_chunk_error_text(TM_CHUNK_BAD_PAYLOAD), "payload checksum mismatch"));
	CHECK(!strcmp(tm_chunk_error_text(-99), "unknown error"));
}

int main(void) {
	test_file_header();
	test_stored_chunk_by_hand();
	test_compressed_round_trips();
	test_headers_that_lie();
	test_too_large();
	test_error_texts();
	return check_report("chunk");
}
