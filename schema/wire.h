/* wire.h - bytes in and out: fixed-width numbers, varints, strings.
 *
 * Flow:     collector -> struct tm_bytes -> chunk.h ... chunk.h -> struct tm_cursor -> analyzer
 * Owns:     tm_bytes owns its memory (malloc); tm_cursor only looks at somebody else's.
 * Threads:  no shared state; one object, one thread at a time.
 * Fails:    tm_bytes remembers a failed allocation in `failed` and then ignores writes, so a caller checks once at the end;
 *           tm_cursor remembers a short or malformed read in `bad` and then yields zeros, so a caller checks once a record.
 */
#ifndef TIDEMARK_SCHEMA_WIRE_H
#define TIDEMARK_SCHEMA_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct tm_bytes {
	uint8_t *data;
	size_t size;     /* bytes written */
	size_t capacity; /* bytes allocated */
	bool failed;     /* an allocation failed; the content is not usable */
};

#define TM_BYTES_INIT { 0 }

void tm_bytes_release(struct tm_bytes *b);           /* frees; leaves it as TM_BYTES_INIT */
bool tm_bytes_reserve(struct tm_bytes *b, size_t n); /* room for n more bytes; false: failed */
void tm_put_raw(struct tm_bytes *b, const void *data, size_t n);
void tm_put_string(struct tm_bytes *b, const void *data, size_t n); /* s: length and bytes */
void tm_put_u8(struct tm_bytes *b, uint8_t v);
void tm_put_u16(struct tm_bytes *b, uint16_t v);
void tm_put_u32(struct tm_bytes *b, uint32_t v);
void tm_put_u64(struct tm_bytes *b, uint64_t v);

/* Empties it, keeping the memory. */
static inline void tm_bytes_clear(struct tm_bytes *b) {
	b->size = 0;
	b->failed = false;
}

static inline uint64_t tm_zigzag(int64_t n) { return ((uint64_t)n << 1) ^ (uint64_t)(n >> 63); }
static inline int64_t tm_unzigzag(uint64_t v) { return (int64_t)(v >> 1) ^ -(int64_t)(v & 1); }

#define TM_VARINT_MAX_BYTES 10

/* Writes v at p, which has room for TM_VARINT_MAX_BYTES; returns the end. */
static inline uint8_t *tm_varint_write(uint8_t *p, uint64_t v) {
	while (v >= 0x80) {
		*p++ = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	*p++ = (uint8_t)v;
	return p;
}

static inline void tm_put_varint(struct tm_bytes *b, uint64_t v) {
	if (b->capacity - b->size < TM_VARINT_MAX_BYTES && !tm_bytes_reserve(b, TM_VARINT_MAX_BYTES)) return;
	b->size = (size_t)(tm_varint_write(b->data + b->size, v) - b->data);
}

static inline void tm_put_zigzag(struct tm_bytes *b, int64_t n) { tm_put_varint(b, tm_zigzag(n)); }

struct tm_cursor {
	const uint8_t *p, *end;
	bool bad; /* something was short or malformed; every later read yields 0 */
};

struct tm_text { /* bytes inside somebody else's buffer; not terminated */
	const char *data;
	size_t size;
};

static inline struct tm_cursor tm_cursor_over(const void *data, size_t n) {
	return (struct tm_cursor){ (const uint8_t *)data, n ? (const uint8_t *)data + n : (const uint8_t *)data, false };
}

uint64_t tm_get_varint_slow(struct tm_cursor *c);
struct tm_text tm_get_string(struct tm_cursor *c);
struct tm_cursor tm_get_block(struct tm_cursor *c); /* v length, then a cursor over that many bytes */
uint8_t tm_get_u8(struct tm_cursor *c);
uint16_t tm_get_u16(struct tm_cursor *c);
uint32_t tm_get_u32(struct tm_cursor *c);
uint64_t tm_get_u64(struct tm_cursor *c);

/* Nearly all have one byte or two. */
static inline uint64_t tm_get_varint(struct tm_cursor *c) {
	const uint8_t *p = c->p;
	if (p < c->end && *p < 0x80) {
		c->p++;
		return *p;
	}
	if (c->end - p < 2 || p[1] >= 0x80) return tm_get_varint_slow(c);
	c->p += 2;
	return (uint64_t)p[1] << 7 | (*p & 0x7f);
}

static inline int64_t tm_get_zigzag(struct tm_cursor *c) { return tm_unzigzag(tm_get_varint(c)); }

#endif
