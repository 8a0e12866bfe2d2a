/* id_map.h - a hash map from a 64-bit key to a pointer: processes by pid, threads by number.
 *
 * Owns:     its slots, not what they point to.
 * Keys:     any; a key is never removed, only given another pointer (NULL: nothing there).
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_ID_MAP_H
#define TIDEMARK_RECORDER_COLLECTOR_ID_MAP_H

#include <stddef.h>
#include <stdint.h>

struct tm_id_map {
	struct tm_id_slot {
		uint64_t key;
		void *value;
	} * slots; /* an unused slot has the value NULL and the key 0 */
	size_t count, mask;
	void *zero_value; /* of key 0, which marks unused slots */
};

void *tm_id_map_get(const struct tm_id_map *m, uint64_t key); /* NULL: not there */
void tm_id_map_set(struct tm_id_map *m, uint64_t key, void *value);
void tm_id_map_release(struct tm_id_map *m);

#endif
