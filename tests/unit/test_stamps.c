/* test_stamps.c - a thread's stamps, where it comes to a core whose clock is behind (recorder/guest/hot.h). */
#include "recorder/guest/hot.h"
#include "check.h"

#define FASTEST_TICKS_A_NS 5 /* of the time stamp counters there are */

int main(void) {
	struct tm_thread t = { .last_ticks = 0 };
	uint64_t before = tm_in_order(&t, 1000), behind = tm_in_order(&t, 960), same = tm_in_order(&t, 960);
	CHECK(before == 1000);
	CHECK(behind > before + FASTEST_TICKS_A_NS); /* in nanoseconds, as they are kept, it is another instant */
	CHECK(same > behind + FASTEST_TICKS_A_NS);
	CHECK(tm_in_order(&t, 5000) == 5000); /* the clock has gone on */
	return check_report("stamps");
}
