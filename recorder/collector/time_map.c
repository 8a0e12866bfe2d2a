/* time_map.c - ticks to nanoseconds along the knots of a recording: see timebase.h. */
#include "timebase.h"

uint64_t tm_time_map_ns(const struct tm_time_map *map, uint64_t ticks) {
	uint32_t i = map->count - 1;
	if (i == 0) return map->knots[0].ns;
	if (ticks >= map->knots[i].ticks) return map->knots[i].ns;
	while (i > 1 && ticks < map->knots[i - 1].ticks) i--;
	const struct tm_knot *a = &map->knots[i - 1], *b = &map->knots[i];
	if (ticks >= a->ticks) return a->ns + (uint64_t)((unsigned __int128)(ticks - a->ticks) * (b->ns - a->ns) / (b->ticks - a->ticks));
	uint64_t back = (uint64_t)((unsigned __int128)(a->ticks - ticks) * (b->ns - a->ns) / (b->ticks - a->ticks));
	return back < a->ns ? a->ns - back : 0;
}
