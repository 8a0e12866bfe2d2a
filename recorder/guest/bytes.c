/* bytes.c - libc's functions on bytes and strings, once more, for this library alone.
 *
 * Why:      a program may define a memcpy, a strlen or a getenv of its own. The loader would have our calls, and those that the compiler makes of our code,
 *           go there: before the program is ready for them, from inside of its malloc, into its counters. libc's own calls do not go there either.
 *           Being hidden, these are what the linker takes; tests/integration/test_own_libc.py says which names of libc's are left.
 * Cost:     copies of a known size the compiler writes out itself; the tests that count instructions (`make check ONLY=instructions`) run with these.
 * Threads:  any; no state.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* From glibc 2.43 on these are macros, too, which give back what has the const of what they are given. */
#undef memchr
#undef strchr
#undef strrchr
#undef strstr

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize "no-tree-loop-distribute-patterns" /* these loops are not to be calls of themselves; nor with -fno-builtin (Makefile) */
#endif

#define OWN __attribute__((visibility("hidden"), no_sanitize("address")))
#define CHUNK 16u

typedef uint8_t chunk __attribute__((vector_size(CHUNK), aligned(1), may_alias));
typedef uint64_t word __attribute__((aligned(1), may_alias));

/* Whole chunks, the last of which may lie over the one before it. */
OWN void *memcpy(void *restrict to, const void *restrict from, size_t n) {
	uint8_t *t = to;
	const uint8_t *f = from;
	if (n < CHUNK) {
		while (n--) *t++ = *f++;
		return to;
	}
	chunk last = *(const chunk *)(f + n - CHUNK);
	for (uint8_t *end = t + n - CHUNK; t < end; t += CHUNK, f += CHUNK) *(chunk *)t = *(const chunk *)f;
	*(chunk *)((uint8_t *)to + n - CHUNK) = last;
	return to;
}

OWN void *memmove(void *to, const void *from, size_t n) {
	uint8_t *t = to;
	const uint8_t *f = from;
	if (t <= f) {
		for (; n >= CHUNK; n -= CHUNK, t += CHUNK, f += CHUNK) {
			chunk c = *(const chunk *)f;
			*(chunk *)t = c;
		}
		while (n--) *t++ = *f++;
		return to;
	}
	for (; n >= CHUNK; n -= CHUNK) {
		chunk c = *(const chunk *)(f + n - CHUNK);
		*(chunk *)(t + n - CHUNK) = c;
	}
	while (n--) t[n] = f[n];
	return to;
}

OWN void *memset(void *to, int byte, size_t n) {
	uint8_t *t = to;
	chunk all = (uint8_t)byte - (chunk){ 0 };
	for (; n >= CHUNK; n -= CHUNK, t += CHUNK) *(chunk *)t = all;
	while (n--) *t++ = (uint8_t)byte;
	return to;
}

OWN int memcmp(const void *one, const void *other, size_t n) {
	const uint8_t *a = one, *b = other;
	for (; n >= sizeof(word) && *(const word *)a == *(const word *)b; n -= sizeof(word)) a += sizeof(word), b += sizeof(word);
	for (; n && *a == *b; n--) a++, b++;
	return n ? *a - *b : 0;
}

OWN void *memchr(const void *in, int byte, size_t n) {
	const uint8_t *at = in;
	for (; n; n--, at++)
		if (*at == (uint8_t)byte) return (void *)(uintptr_t)at;
	return NULL;
}

OWN size_t strnlen(const char *s, size_t most) {
	size_t n = 0;
	while (n < most && s[n]) n++;
	return n;
}

/* What begins at a multiple of its own size lies in one page, whatever is behind the end of the string. */
OWN size_t strlen(const char *s) {
#if defined(__SSE2__)
	const char *at = (const char *)((uintptr_t)s & ~(uintptr_t)(CHUNK - 1));
	unsigned ends = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(*(const __m128i *)at, _mm_setzero_si128())) >> (s - at);
	if (ends) return (size_t)__builtin_ctz(ends);
	do {
		at += CHUNK;
		ends = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(*(const __m128i *)at, _mm_setzero_si128()));
	} while (!ends);
	return (size_t)(at - s) + (size_t)__builtin_ctz(ends);
#else
	size_t n = 0;
	while (s[n]) n++;
	return n;
#endif
}

OWN int strncmp(const char *one, const char *other, size_t n) {
	const uint8_t *a = (const uint8_t *)one, *b = (const uint8_t *)other;
	for (; n && *a == *b && *a; n--) a++, b++;
	return n ? *a - *b : 0;
}

OWN int strcmp(const char *one, const char *other) {
	return strncmp(one, other, SIZE_MAX);
}

OWN char *strchr(const char *s, int c) {
	while (*s && *s != (char)c) s++;
	return *s == (char)c ? (char *)(uintptr_t)s : NULL;
}

OWN char *strrchr(const char *s, int c) {
	char *last = NULL;
	for (;; s++) {
		if (*s == (char)c) last = (char *)(uintptr_t)s;
		if (!*s) return last;
	}
}

OWN char *strstr(const char *in, const char *s) {
	size_t n = strlen(s);
	for (; strncmp(in, s, n) != 0; in++)
		if (!*in) return NULL;
	return (char *)(uintptr_t)in;
}

OWN char *strcpy(char *restrict to, const char *restrict from) {
	memcpy(to, from, strlen(from) + 1);
	return to;
}

OWN size_t strspn(const char *s, const char *these) {
	size_t n = 0;
	while (s[n] && strchr(these, s[n])) n++;
	return n;
}

OWN size_t strcspn(const char *s, const char *these) {
	size_t n = 0;
	if (these[0] && !these[1])
		while (s[n] && s[n] != *these) n++;
	else
		while (s[n] && !strchr(these, s[n])) n++;
	return n;
}

/* What clang asks where only equality matters. */
OWN int bcmp(const void *one, const void *other, size_t n) {
	return memcmp(one, other, n);
}
