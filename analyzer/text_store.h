/* text_store.h - texts that stay where they were put until all of them go.
 *
 * Owns:     its blocks of memory. A text never moves, and takes no room but its own.
 * Threads:  one store, one thread at a time.
 * Fails:    out of memory: NULL, and the store is as it was.
 */
#ifndef TIDEMARK_ANALYZER_TEXT_STORE_H
#define TIDEMARK_ANALYZER_TEXT_STORE_H

#include <stdlib.h>
#include <string.h>

#define TM_TEXT_BLOCK_BYTES ((size_t)256 << 10)

struct tm_text_block {
	struct tm_text_block *next;
	size_t used, capacity;
	char data[];
};

/* Zero is an empty one. */
struct tm_text_store {
	struct tm_text_block *newest;
};

/* A copy of so many bytes; no NUL is added. */
static inline char *tm_text_store_put(struct tm_text_store *s, const char *text, size_t size) {
	struct tm_text_block *b = s->newest;
	if (!b || b->capacity - b->used < size) {
		size_t capacity = size > TM_TEXT_BLOCK_BYTES ? size : TM_TEXT_BLOCK_BYTES;
		b = malloc(sizeof *b + capacity);
		if (!b) return NULL;
		*b = (struct tm_text_block){ s->newest, 0, capacity };
		s->newest = b;
	}
	char *copy = b->data + b->used;
	memcpy(copy, text, size);
	b->used += size;
	return copy;
}

static inline void tm_text_store_release(struct tm_text_store *s) {
	for (struct tm_text_block *b = s->newest, *next; b; b = next) {
		next = b->next;
		free(b);
	}
	s->newest = NULL;
}

#endif
