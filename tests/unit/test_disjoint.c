/* test_disjoint.c - ranges that come and go, against an array that knows for each unit of a small address space whose it is.
 *
 * Method: random ranges are added where there is room and taken out, mostly added at first and mostly taken out in the end, so that leaves fill, are halved and
 *         vanish; after every step a random address is asked for, and now and then all ranges are passed in order. The seed is printed.
 */
#include "../../recorder/collector/disjoint.h"
#include "check.h"

#include <stdbool.h>

#define UNITS 4096u
#define STEPS 60000u
#define LONGEST 3u

struct range {
	uint64_t high, low;
	char payload[40];
};

static uint64_t high_of[UNITS + LONGEST]; /* of the range that lies there, 0 none */

static uint64_t expected_above(uint64_t address) {
	for (uint64_t unit = address; unit < UNITS; unit++)
		if (high_of[unit]) return high_of[unit];
	return 0;
}

static bool is_whole(const struct range *r) {
	for (size_t i = 0; i < sizeof r->payload; i++)
		if (r->payload[i] != (char)(r->low * 7 + i)) return false;
	return true;
}

static void set(const struct range *r, uint64_t high) {
	for (uint64_t unit = r->low; unit < r->high; unit++) high_of[unit] = high;
}

static void step(struct tm_disjoint *d, struct check_random *random, bool adds) {
	uint64_t low = check_random_next(random) % UNITS;
	struct range r = { .low = low, .high = low + 1 + check_random_next(random) % LONGEST };
	if (r.high > UNITS) r.high = UNITS;
	const struct range *found = tm_disjoint_above(d, sizeof r, low);
	if (adds && (!found || found->low >= r.high)) {
		for (size_t i = 0; i < sizeof r.payload; i++) r.payload[i] = (char)(r.low * 7 + i);
		tm_disjoint_add(d, sizeof r, &r);
		set(&r, r.high);
	} else if (!adds && found) {
		r = *found;
		tm_disjoint_take_out(d, sizeof r, r.high);
		set(&r, 0);
	}
}

static void compare_one(const struct tm_disjoint *d, uint64_t address) {
	const struct range *found = tm_disjoint_above(d, sizeof *found, address);
	CHECK((found ? found->high : 0) == expected_above(address) && (!found || is_whole(found)));
}

static void compare_all(const struct tm_disjoint *d) {
	uint64_t end = 0, covered = 0, expected = 0;
	bool in_order = true;
	const struct range *r = tm_disjoint_above(d, sizeof *r, 0);
	for (; r; r = tm_disjoint_above(d, sizeof *r, end)) {
		in_order = in_order && r->low >= end && is_whole(r);
		covered += r->high - r->low;
		end = r->high;
	}
	for (size_t i = 0; i < UNITS; i++) expected += high_of[i] != 0;
	CHECK(in_order && covered == expected);
}

int main(void) {
	struct check_random random = check_random_start("disjoint");
	struct tm_disjoint d = { 0 };
	for (unsigned i = 0; i < STEPS; i++) {
		bool adds = check_random_next(&random) % 10 < (i < STEPS / 2 ? 7u : 2u);
		step(&d, &random, adds);
		compare_one(&d, check_random_next(&random) % UNITS);
		if (i % 1000 == 0) compare_all(&d);
	}
	while (tm_disjoint_above(&d, sizeof(struct range), 0)) step(&d, &random, false);
	CHECK(!d.count);
	compare_one(&d, 0);
	tm_disjoint_release(&d);
	return check_report("disjoint");
}
