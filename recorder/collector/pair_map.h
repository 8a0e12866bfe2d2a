/* pair_map.h - a hash map from two 64-bit numbers to an id.
 *
 * Owns:     its slots.
 * Values:   never 0, which says that a key is not there: setting it does nothing. Keys are never removed.
 * Threads:  the drainer's.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_PAIR_MAP_H
#define TIDEMARK_RECORDER_COLLECTOR_PAIR_MAP_H

#include <stddef.h>
#include <stdint.h>

struct tm_pair_map {
	struct tm_pair_slot {
		uint64_t a, b;
		uint32_t value; /* 0: empty */
	} * slots;
	size_t count, mask;
};

uint32_t tm_pair_map_get(const struct tm_pair_map *m, uint64_t a, uint64_t b); /* 0: not there */
void tm_pair_map_set(struct tm_pair_map *m, uint64_t a, uint64_t b, uint32_t value);
void tm_pair_map_release(struct tm_pair_map *m);

#endif
