/* timebase.h - from the guests' ticks to nanoseconds since the start of the trace.
 *
 * Flow:     stamps of events and our own, in ticks -> columns.c while they are read, encode.c for all that is no event -> nanoseconds
 * Idea:     a line holds from each knot on, until the next knot, which lies on it. A new line's slope is the ratio of ticks to CLOCK_MONOTONIC
 *           since the start, and a little more or less, so that it comes back to CLOCK_MONOTONIC where the last one was off. So a stamp can be
 *           converted at once, the conversion never runs backwards or jumps, and it follows the clock however long the recording is.
 * Threads:  struct tm_timebase is the drainer's; a struct tm_time_map is a copy that any thread may use.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_TIMEBASE_H
#define TIDEMARK_RECORDER_COLLECTOR_TIMEBASE_H

#include <stdint.h>

/* Some seconds. Older times than the oldest knot's are on the line from the start to that knot. */
#define TM_KNOTS_MAX 1024u

#define TM_RATE_BITS 40

struct tm_knot {
	uint64_t ticks, ns;
	uint64_t rate; /* from here on: nanoseconds in 2^TM_RATE_BITS ticks */
};

struct tm_time_map {
	struct tm_knot knots[TM_KNOTS_MAX];
	uint32_t count;
	uint64_t start_ticks; /* of the recording, at which 0 ns were */
	uint64_t end_ticks; /* now, or a little earlier: a stamp beyond it is not believed and counts as this one */
};

struct tm_timebase {
	uint32_t clock; /* enum tm_clock_kind */
	uint64_t start_monotonic_ns, start_unix_ns;
	struct tm_time_map map;
};

uint64_t tm_monotonic_ns(void);

void tm_timebase_start(struct tm_timebase *t);
uint64_t tm_timebase_ticks(const struct tm_timebase *t);
/* A stamp that is span_ns before now, or the start if that is later. */
uint64_t tm_timebase_ticks_before_now(const struct tm_timebase *t, uint64_t span_ns);
void tm_timebase_add_knot(struct tm_timebase *t);
/* Adds one if the last is a few milliseconds old; before stamps are converted. Knots are few, and a reader that has fallen behind needs old ones. */
void tm_timebase_follow(struct tm_timebase *t);
/* Moves the map's end to now. */
void tm_timebase_extend(struct tm_timebase *t);

/* Nanoseconds since the start. */
uint64_t tm_time_map_ns(const struct tm_time_map *map, uint64_t ticks);

static inline uint64_t tm_knot_ns(const struct tm_knot *k, uint64_t ticks) {
	return k->ns + (uint64_t)((unsigned __int128)(ticks - k->ticks) * k->rate >> TM_RATE_BITS);
}

/* Index of the last knot that is not later; 0 where all are. */
static inline uint32_t tm_time_map_knot(const struct tm_time_map *map, uint64_t ticks) {
	uint32_t low = 0, high = map->count;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (ticks < map->knots[middle].ticks) high = middle;
		else low = middle;
	}
	return low;
}

/* The same as tm_time_map_ns(), faster for stamps after the last knot. */
static inline uint64_t tm_time_map_now(const struct tm_time_map *map, uint64_t ticks) {
	const struct tm_knot *last = &map->knots[map->count - 1];
	return ticks >= last->ticks && ticks <= map->end_ticks ? tm_knot_ns(last, ticks) : tm_time_map_ns(map, ticks);
}

#endif
