/* wire.c - bytes in and out: the growing buffer and the checked cursor behind every record, column and header.
 *
 * Flow:  records.c, events.c, chunk.c -> here -> payload bytes ... and back.
 * Idea:  errors are sticky. A writer that ran out of memory and a reader that ran off the end go on harmlessly, so that the code
 *        that lists fields reads as a list, and one check at the end decides.
 */
#include "wire.h"

#include <stdlib.h>

void tm_bytes_release(struct tm_bytes *b) {
	free(b->data);
	*b = (struct tm_bytes)TM_BYTES_INIT;
}

bool tm_bytes_reserve(struct tm_bytes *b, size_t n) {
	if (b->failed) return false;
	if (b->capacity - b->size >= n) return true;
	size_t wanted = b->capacity ? b->capacity : 128;
	while (wanted - b->size < n) {
		if (wanted > SIZE_MAX / 2) goto fail;
		wanted *= 2;
	}
	uint8_t *data = realloc(b->data, wanted);
	if (!data) goto fail;
	b->data = data;
	b->capacity = wanted;
	return true;
fail:
	b->failed = true;
	return false;
}

void tm_put_raw(struct tm_bytes *b, const void *data, size_t n) {
	if (!n || !tm_bytes_reserve(b, n)) return;
	memcpy(b->data + b->size, data, n);
	b->size += n;
}

void tm_put_string(struct tm_bytes *b, const void *data, size_t n) {
	tm_put_varint(b, n);
	tm_put_raw(b, data, n);
}

/* The fixed-width numbers are written byte by byte, so that they are little endian on every machine. */
static void put_fixed(struct tm_bytes *b, uint64_t v, size_t width) {
	if (!tm_bytes_reserve(b, width)) return;
	for (size_t i = 0; i < width; i++) b->data[b->size++] = (uint8_t)(v >> (8 * i));
}

void tm_put_u8(struct tm_bytes *b, uint8_t v) {
	put_fixed(b, v, 1);
}
void tm_put_u16(struct tm_bytes *b, uint16_t v) {
	put_fixed(b, v, 2);
}
void tm_put_u32(struct tm_bytes *b, uint32_t v) {
	put_fixed(b, v, 4);
}
void tm_put_u64(struct tm_bytes *b, uint64_t v) {
	put_fixed(b, v, 8);
}

/* Moving to the end makes every later read fall short as well, without a test of `bad` in each of them. */
static uint64_t fail_read(struct tm_cursor *c) {
	c->bad = true;
	c->p = c->end;
	return 0;
}

uint64_t tm_get_varint_slow(struct tm_cursor *c) {
	uint64_t v = 0;
	for (unsigned shift = 0; shift < 70; shift += 7) {
		if (c->p >= c->end) return fail_read(c);
		uint8_t byte = *c->p++;
		if (shift == 63 && byte > 1) return fail_read(c);
		v |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80) return v;
	}
	return fail_read(c);
}

static const uint8_t *take(struct tm_cursor *c, uint64_t n) {
	if (n > (uint64_t)(c->end - c->p)) {
		fail_read(c);
		return NULL;
	}
	const uint8_t *p = c->p;
	c->p += n;
	return p;
}

struct tm_cursor tm_get_block(struct tm_cursor *c) {
	uint64_t n = tm_get_varint(c);
	const uint8_t *p = take(c, n);
	if (!p) return (struct tm_cursor){ c->end, c->end, true };
	return (struct tm_cursor){ p, p + n, c->bad };
}

struct tm_text tm_get_string(struct tm_cursor *c) {
	struct tm_cursor block = tm_get_block(c);
	return (struct tm_text){ (const char *)block.p, (size_t)(block.end - block.p) };
}

static uint64_t get_fixed(struct tm_cursor *c, size_t width) {
	const uint8_t *p = take(c, width);
	uint64_t v = 0;
	if (!p) return 0;
	for (size_t i = 0; i < width; i++) v |= (uint64_t)p[i] << (8 * i);
	return v;
}

uint8_t tm_get_u8(struct tm_cursor *c) {
	return (uint8_t)get_fixed(c, 1);
}
uint16_t tm_get_u16(struct tm_cursor *c) {
	return (uint16_t)get_fixed(c, 2);
}
uint32_t tm_get_u32(struct tm_cursor *c) {
	return (uint32_t)get_fixed(c, 4);
}
uint64_t tm_get_u64(struct tm_cursor *c) {
	return get_fixed(c, 8);
}
