/* id_map.h - numbers by pairs of numbers.
 *
 * Owns:     an open-addressing table, at most half full.
 * Pointers: a found value stays where it is until the next tm_id_map_put() or tm_id_map_remove().
 */
#ifndef TIDEMARK_ANALYZER_ID_MAP_H
#define TIDEMARK_ANALYZER_ID_MAP_H

#include <stddef.h>
#include <stdint.h>

struct tm_id_slot {
	uint64_t a, b, value; /* value 0: the slot is free */
};

struct tm_id_map {
	struct tm_id_slot *slots;
	size_t count, mask;
};

/* NULL: not there. */
uint64_t *tm_id_map_find(const struct tm_id_map *m, uint64_t a, uint64_t b);
/* The value of this pair; 0 if it is new, and the caller must then set it to another number at once. NULL: out of memory. */
uint64_t *tm_id_map_put(struct tm_id_map *m, uint64_t a, uint64_t b);
void tm_id_map_remove(struct tm_id_map *m, uint64_t a, uint64_t b);
void tm_id_map_release(struct tm_id_map *m);

#endif
