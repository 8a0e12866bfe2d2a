/* pair_map.c - open addressing: see pair_map.h. */
#include "pair_map.h"

#include "memory.h"

#define SLOTS_FIRST 1024u

static size_t hash_of(uint64_t a, uint64_t b) {
	uint64_t h = (a ^ (b << 31 | b >> 33)) * 0x9E3779B97F4A7C15u;
	h = (h ^ h >> 29 ^ b) * 0xBF58476D1CE4E5B9u;
	return (size_t)(h >> 24);
}

static struct tm_pair_slot *slot_of(const struct tm_pair_map *m, uint64_t a, uint64_t b) {
	size_t at = hash_of(a, b) & m->mask;
	while (m->slots[at].value && (m->slots[at].a != a || m->slots[at].b != b)) at = (at + 1) & m->mask;
	return &m->slots[at];
}

uint32_t tm_pair_map_get(const struct tm_pair_map *m, uint64_t a, uint64_t b) {
	return m->slots ? slot_of(m, a, b)->value : 0;
}

static void free_slots(struct tm_pair_map *m) {
	tm_memory_free_table(m->slots, m->mask + 1, sizeof m->slots[0]);
}

static void grow(struct tm_pair_map *m) {
	struct tm_pair_map grown = { .count = m->count, .mask = m->slots ? m->mask * 2 + 1 : SLOTS_FIRST - 1 };
	grown.slots = tm_memory_new_table(grown.mask + 1, sizeof grown.slots[0]);
	for (size_t i = 0; m->slots && i <= m->mask; i++)
		if (m->slots[i].value) *slot_of(&grown, m->slots[i].a, m->slots[i].b) = m->slots[i];
	free_slots(m);
	*m = grown;
}

void tm_pair_map_set(struct tm_pair_map *m, uint64_t a, uint64_t b, uint32_t value) {
	if (!value) return;
	if (!m->slots || m->count * 2 >= m->mask) grow(m);
	struct tm_pair_slot *slot = slot_of(m, a, b);
	if (!slot->value) m->count++;
	*slot = (struct tm_pair_slot){ a, b, value };
}

void tm_pair_map_release(struct tm_pair_map *m) {
	free_slots(m);
	*m = (struct tm_pair_map){ 0 };
}
