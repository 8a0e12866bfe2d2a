/* interned.c - the ids of texts that events name: see controls.h.
 *
 * A hash table over texts that lie block behind block. A program may use a million names; one that makes up names without end must not fill our
 * memory, so from TEXT_BYTES_MAX on new names share one, and a note says so.
 */
#include "collector.h"
#include "controls.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES_MAX (256u << 20)
#define TEXTS_MAX (8u << 20)
#define STORE_BYTES (64u << 10)

struct tm_text_store {
	struct tm_text_store *next;
	size_t used, capacity;
	char bytes[];
};

/* Eight bytes at a time: every scope that opens comes here. */
static uint32_t hash_of(const char *text, size_t n) {
	uint64_t h = n * 0x9E3779B97F4A7C15u, word;
	for (; n >= 8; n -= 8, text += 8) {
		memcpy(&word, text, 8);
		h = (h ^ word) * 0x9E3779B97F4A7C15u;
		h ^= h >> 29;
	}
	word = 0;
	memcpy(&word, text, n);
	h = (h ^ word) * 0x9E3779B97F4A7C15u;
	return (uint32_t)(h >> 32);
}

static void grow(struct tm_interned *s) {
	s->slot_count = s->slot_count ? s->slot_count * 2 : 256;
	free(s->slots);
	s->slots = tm_memory_new(s->slot_count, sizeof s->slots[0]);
	for (size_t i = 0; i < s->count; i++) {
		size_t at = s->rows[i].hash & (s->slot_count - 1);
		while (s->slots[at]) at = (at + 1) & (s->slot_count - 1);
		s->slots[at] = (uint32_t)i + 1;
	}
}

static const char *keep(struct tm_interned *s, const char *text, size_t n) {
	if (!s->store || s->store->capacity - s->store->used < n) {
		size_t capacity = n > STORE_BYTES ? n : STORE_BYTES;
		struct tm_text_store *block = tm_memory_new(1, sizeof *block + capacity);
		block->capacity = capacity;
		block->next = s->store;
		s->store = block;
	}
	char *to = s->store->bytes + s->store->used;
	if (n) memcpy(to, text, n);
	s->store->used += n;
	s->bytes += n;
	return to;
}

static uint32_t add(struct tm_collector *c, size_t slot, const char *text, size_t n, uint32_t hash) {
	struct tm_interned *s = &c->strings;
	s->rows = tm_memory_grow(s->rows, &s->capacity, s->count + 1, sizeof s->rows[0]);
	s->rows[s->count++] = (struct tm_text_row){ keep(s, text, n), (uint32_t)n, hash };
	s->slots[slot] = (uint32_t)s->count;
	struct tm_meta *meta = tm_group_add(c->group, TM_RECORD_STRING);
	meta->string = (struct tm_string){ s->count, tm_group_text(c->group, text, n) };
	return (uint32_t)s->count;
}

uint32_t tm_intern(struct tm_collector *c, const char *text, size_t n) {
	static const char others[] = "[too many names]";
	struct tm_interned *s = &c->strings;
	uint32_t hash = hash_of(text, n);
	if (s->count * 2 >= s->slot_count) grow(s);
	size_t at = hash & (s->slot_count - 1);
	for (; s->slots[at]; at = (at + 1) & (s->slot_count - 1)) {
		const struct tm_text_row *row = &s->rows[s->slots[at] - 1];
		if (row->hash == hash && row->size == n && !memcmp(row->text, text, n)) return s->slots[at];
	}
	if (s->too_many) return s->too_many;
	if (s->bytes + n <= TEXT_BYTES_MAX && s->count < TEXTS_MAX) return add(c, at, text, n, hash);
	s->too_many = add(c, at, others, sizeof others - 1, hash);
	tm_group_add_note(c->group, 0, tm_timebase_ticks(&c->timebase), "too-many-names",
			  "the program uses more different names than are kept; the newer ones are '[too many names]'");
	return s->too_many;
}

void tm_interned_release(struct tm_collector *c) {
	while (c->strings.store) {
		struct tm_text_store *next = c->strings.store->next;
		free(c->strings.store);
		c->strings.store = next;
	}
	free(c->strings.rows);
	free(c->strings.slots);
	c->strings = (struct tm_interned){ 0 };
}
