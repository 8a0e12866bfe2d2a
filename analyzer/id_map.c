/* id_map.c - numbers by pairs of numbers; see id_map.h. */
#include "id_map.h"

#include "../schema/array.h"

#include <stdbool.h>
#include <stdlib.h>

#define FIRST_SLOTS 64u

static size_t home_of(const struct tm_id_map *m, uint64_t a, uint64_t b) {
	uint64_t h = (a ^ b * 0xD6E8FEB86659FD93ull) * 0x9E3779B97F4A7C15ull;
	return (size_t)(h >> 32 ^ h) & m->mask;
}

static size_t slot_of(const struct tm_id_map *m, uint64_t a, uint64_t b) {
	size_t i = home_of(m, a, b);
	while (m->slots[i].value && (m->slots[i].a != a || m->slots[i].b != b)) i = (i + 1) & m->mask;
	return i;
}

uint64_t *tm_id_map_find(const struct tm_id_map *m, uint64_t a, uint64_t b) {
	if (!m->count) return NULL;
	struct tm_id_slot *slot = &m->slots[slot_of(m, a, b)];
	return slot->value ? &slot->value : NULL;
}

static bool grow(struct tm_id_map *m) {
	size_t slots = m->slots ? (m->mask + 1) * 2 : FIRST_SLOTS;
	struct tm_id_map bigger = { tm_table_new(slots, sizeof *m->slots), m->count, slots - 1 };
	if (!bigger.slots) return false;
	for (size_t i = 0; m->slots && i <= m->mask; i++)
		if (m->slots[i].value) bigger.slots[slot_of(&bigger, m->slots[i].a, m->slots[i].b)] = m->slots[i];
	free(m->slots);
	*m = bigger;
	return true;
}

uint64_t *tm_id_map_put(struct tm_id_map *m, uint64_t a, uint64_t b) {
	if ((!m->slots || m->count * 2 > m->mask) && !grow(m)) return NULL;
	struct tm_id_slot *slot = &m->slots[slot_of(m, a, b)];
	if (slot->value) return &slot->value;
	*slot = (struct tm_id_slot){ a, b, 0 };
	m->count++;
	return &slot->value;
}

/* What stands behind a hole and could not be found over it moves into it. */
void tm_id_map_remove(struct tm_id_map *m, uint64_t a, uint64_t b) {
	if (!m->count) return;
	size_t hole = slot_of(m, a, b);
	if (!m->slots[hole].value) return;
	for (size_t i = (hole + 1) & m->mask; m->slots[i].value; i = (i + 1) & m->mask) {
		size_t home = home_of(m, m->slots[i].a, m->slots[i].b);
		if (((i - home) & m->mask) < ((i - hole) & m->mask)) continue;
		m->slots[hole] = m->slots[i];
		hole = i;
	}
	m->slots[hole].value = 0;
	m->count--;
}

void tm_id_map_release(struct tm_id_map *m) {
	free(m->slots);
	*m = (struct tm_id_map){ 0 };
}
