/* test_time_map.c - from ticks to nanoseconds: on the knots, between them, and for stamps that are older than all knots or not believed. */
#include "../../recorder/collector/timebase.h"

#include "check.h"

#define RATE(ns, ticks) (((uint64_t)(ns) << TM_RATE_BITS) / (ticks))

/* A recording that began at 1000 ticks; its oldest knot left is at 5000, and lines of different slopes lead from there on. */
static struct tm_time_map uneven(void) {
	return (struct tm_time_map){ .start_ticks = 1000,
				     .end_ticks = 20000,
				     .count = 3,
				     .knots = { { 5000, 2000, RATE(3, 4) }, { 9000, 5000, RATE(1, 4) }, { 13000, 6000, RATE(1, 2) } } };
}

static void by_hand(void) {
	struct tm_time_map map = uneven();
	CHECK(tm_time_map_ns(&map, 5000) == 2000 && tm_time_map_ns(&map, 7000) == 3500);
	CHECK(tm_time_map_ns(&map, 9000) == 5000 && tm_time_map_ns(&map, 11000) == 5500);
	CHECK(tm_time_map_ns(&map, 13000) == 6000 && tm_time_map_ns(&map, 15000) == 7000);
	CHECK(tm_time_map_ns(&map, 3000) == 1000); /* half way from the start to the oldest knot, whatever the slope behind that is */
	CHECK(tm_time_map_ns(&map, 1000) == 0 && tm_time_map_ns(&map, 999) == 0 && tm_time_map_ns(&map, 0) == 0);
	CHECK(tm_time_map_ns(&map, 20000) == 9500 && tm_time_map_ns(&map, 20001) == 9500 && tm_time_map_ns(&map, UINT64_MAX) == 9500);
}

static void never_backwards(void) {
	struct tm_time_map map = uneven();
	uint64_t last = 0;
	for (uint64_t ticks = 0; ticks < 21000; ticks++) {
		uint64_t ns = tm_time_map_ns(&map, ticks);
		CHECK(ns >= last && ns <= last + 1);
		CHECK(tm_time_map_now(&map, ticks) == ns);
		last = ns;
	}
}

static void the_right_knot(void) {
	struct tm_time_map map = uneven();
	for (map.count = 1; map.count <= 3; map.count++) {
		for (uint64_t ticks = 0; ticks < 21000; ticks += 500) {
			uint32_t wanted = 0;
			for (uint32_t i = 0; i < map.count; i++)
				if (map.knots[i].ticks <= ticks) wanted = i;
			CHECK(tm_time_map_knot(&map, ticks) == wanted);
		}
	}
}

/* More knots than there is room for come and go: what is older than the oldest left lies between the start and that one. */
static void knots_come_and_go(void) {
	struct tm_timebase t;
	tm_timebase_start(&t);
	uint64_t first_ticks = t.map.start_ticks;
	for (int i = 0; i < 1000; i++) tm_timebase_follow(&t);
	CHECK(t.map.count < 500); /* by far not one for each look */
	for (uint32_t i = 0; i < 3 * TM_KNOTS_MAX; i++) tm_timebase_add_knot(&t);
	CHECK(t.map.count == TM_KNOTS_MAX && t.map.knots[0].ticks > first_ticks);
	const struct tm_knot *oldest = &t.map.knots[0];
	uint64_t before = tm_time_map_ns(&t.map, oldest->ticks - 1), half = first_ticks + (oldest->ticks - first_ticks) / 2;
	CHECK(before <= oldest->ns && before + 2 >= oldest->ns);
	CHECK(tm_time_map_ns(&t.map, half) <= oldest->ns / 2 + 1 && tm_time_map_ns(&t.map, half) + 2 >= oldest->ns / 2);
	CHECK(tm_time_map_ns(&t.map, first_ticks) == 0);
}

int main(void) {
	by_hand();
	never_backwards();
	the_right_knot();
	knots_come_and_go();
	return check_report("time_map");
}
