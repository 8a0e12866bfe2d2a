/* string_table.c - a hash table with open addressing over one growing block of text. */
#include "recorder/collector/string_table.h"

#include <stdlib.h>

#define FACTOR 0x9E3779B97F4A7C15ull

/* Eight bytes at a time: names of templates are long. */
static uint32_t hash_of(struct tm_text text) {
	uint64_t hash = text.size * FACTOR, word = 0;
	size_t i = 0;
	for (; i + 8 <= text.size; i += 8) {
		memcpy(&word, text.data + i, 8);
		hash = (hash ^ word) * FACTOR;
		hash ^= hash >> 32;
	}
	word = 0;
	if (i < text.size) memcpy(&word, text.data + i, text.size - i);
	hash = (hash ^ word) * FACTOR;
	return (uint32_t)(hash >> 32 ^ hash);
}

static bool is_entry(const struct tm_string_table *t, const struct tm_string_entry *entry, struct tm_text text, uint32_t hash) {
	return entry->hash == hash && entry->size == text.size && !memcmp(t->texts.items + entry->offset, text.data, text.size);
}

static bool grow(struct tm_string_table *t) {
	size_t capacity = t->capacity ? t->capacity * 2 : 1024;
	struct tm_string_entry *entries = calloc(capacity, sizeof *entries);
	if (!entries) return false;
	for (size_t i = 0; i < t->capacity; i++) {
		size_t at = t->entries[i].hash & (capacity - 1);
		if (!t->entries[i].id) continue;
		while (entries[at].id) at = (at + 1) & (capacity - 1);
		entries[at] = t->entries[i];
	}
	free(t->entries);
	t->entries = entries;
	t->capacity = capacity;
	return true;
}

static bool keep(struct tm_string_table *t, struct tm_text text) {
	size_t size = t->texts.count + text.size;
	if (!tm_array_reserve(&t->texts, size)) return false;
	if (text.size) memcpy(t->texts.items + t->texts.count, text.data, text.size);
	t->texts.count = size;
	return true;
}

uint64_t tm_string_table_id(struct tm_string_table *t, struct tm_text text, uint64_t new_id) {
	uint32_t hash = hash_of(text);
	if (t->count * 2 >= t->capacity && !grow(t)) return t->failed = true, new_id;
	size_t at = hash & (t->capacity - 1);
	for (; t->entries[at].id; at = (at + 1) & (t->capacity - 1))
		if (is_entry(t, &t->entries[at], text, hash)) return t->entries[at].id;
	uint64_t offset = t->texts.count;
	if (!keep(t, text)) return t->failed = true, new_id;
	t->entries[at] = (struct tm_string_entry){ new_id, offset, hash, (uint32_t)text.size };
	t->count++;
	return new_id;
}

void tm_string_table_release(struct tm_string_table *t) {
	free(t->entries);
	tm_array_release(&t->texts);
	*t = (struct tm_string_table){ 0 };
}
