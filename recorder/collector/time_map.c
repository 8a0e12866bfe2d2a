/* time_map.c - ticks to nanoseconds along the knots of a recording: see timebase.h. */
#include "timebase.h"

uint64_t tm_time_map_ns(const struct tm_time_map *map, uint64_t ticks) {
	if (ticks > map->end_ticks) ticks = map->end_ticks;
	const struct tm_knot *k = &map->knots[tm_time_map_knot(map, ticks)];
	if (ticks >= k->ticks) return tm_knot_ns(k, ticks);
	if (ticks <= map->start_ticks) return 0;
	return (uint64_t)((unsigned __int128)(ticks - map->start_ticks) * k->ns / (k->ticks - map->start_ticks));
}
