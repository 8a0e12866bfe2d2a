/* timebase.h - from the guests' ticks to nanoseconds since the start of the trace.
 *
 * Flow:     stamps of events and our own -> kept as ticks -> encode.c, with the knots known when their group was closed -> nanoseconds
 * Idea:     pairs of (ticks, CLOCK_MONOTONIC) taken at the start and whenever a group closes are knots; between two knots the line that
 *           joins them holds. So the conversion is continuous, never runs backwards, and follows CLOCK_MONOTONIC however long the
 *           recording is; nothing has to be calibrated at the start.
 * Threads:  struct tm_timebase is the drainer's; a struct tm_time_map is a copy that any thread may use.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_TIMEBASE_H
#define TIDEMARK_RECORDER_COLLECTOR_TIMEBASE_H

#include <stdint.h>

#define TM_KNOTS_MAX 64u /* older times than the oldest knot's are on its line, prolonged */

struct tm_knot {
	uint64_t ticks, ns;
};

struct tm_time_map {
	struct tm_knot knots[TM_KNOTS_MAX];
	uint32_t count;
};

struct tm_timebase {
	uint32_t clock; /* enum tm_clock_kind */
	uint64_t start_monotonic_ns, start_unix_ns;
	struct tm_knot start;
	struct tm_time_map map;
};

uint64_t tm_monotonic_ns(void);

void tm_timebase_start(struct tm_timebase *t);
uint64_t tm_timebase_ticks(const struct tm_timebase *t);
/* A stamp that is span_ns before now, or the start if that is later. */
uint64_t tm_timebase_ticks_before_now(const struct tm_timebase *t, uint64_t span_ns);
void tm_timebase_add_knot(struct tm_timebase *t);

/* Nanoseconds since the start. Stamps beyond the last knot yield the last knot's time: nothing has happened later than its closing. */
uint64_t tm_time_map_ns(const struct tm_time_map *map, uint64_t ticks);

#endif
