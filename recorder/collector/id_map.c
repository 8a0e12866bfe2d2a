/* id_map.c - open addressing over 64-bit keys: see id_map.h. */
#include "id_map.h"

#include "memory.h"

#include <stdlib.h>

static size_t home(const struct tm_id_map *m, uint64_t key) {
	return (size_t)(key * 0x9E3779B97F4A7C15u >> 32) & m->mask;
}

static struct tm_id_slot *find(const struct tm_id_map *m, uint64_t key) {
	size_t at = home(m, key);
	while (m->slots[at].key && m->slots[at].key != key) at = (at + 1) & m->mask;
	return &m->slots[at];
}

static void grow(struct tm_id_map *m) {
	struct tm_id_map grown = { .mask = m->mask ? m->mask * 2 + 1 : 63, .count = m->count, .zero_value = m->zero_value };
	grown.slots = tm_memory_new(grown.mask + 1, sizeof grown.slots[0]);
	for (size_t i = 0; m->slots && i <= m->mask; i++)
		if (m->slots[i].key) *find(&grown, m->slots[i].key) = m->slots[i];
	free(m->slots);
	*m = grown;
}

void *tm_id_map_get(const struct tm_id_map *m, uint64_t key) {
	if (!key) return m->zero_value;
	return m->slots ? find(m, key)->value : NULL;
}

void tm_id_map_set(struct tm_id_map *m, uint64_t key, void *value) {
	if (!key) {
		m->zero_value = value;
		return;
	}
	if (m->count * 3 >= m->mask * 2) grow(m);
	struct tm_id_slot *slot = find(m, key);
	if (!slot->key) m->count++;
	*slot = (struct tm_id_slot){ key, value };
}

void tm_id_map_release(struct tm_id_map *m) {
	free(m->slots);
	*m = (struct tm_id_map){ 0 };
}
