/* time_map.c - ticks to nanoseconds along the knots of a recording: see timebase.h. */
#include "timebase.h"

uint64_t tm_time_map_ns(const struct tm_time_map *map, uint64_t ticks) {
	uint32_t i = map->count - 1;
	if (ticks > map->end_ticks) ticks = map->end_ticks;
	while (i > 0 && ticks < map->knots[i].ticks) i--;
	const struct tm_knot *k = &map->knots[i];
	if (ticks >= k->ticks) return tm_knot_ns(k, ticks);
	uint64_t back = (uint64_t)((unsigned __int128)(k->ticks - ticks) * k->rate >> TM_RATE_BITS);
	return back < k->ns ? k->ns - back : 0;
}
