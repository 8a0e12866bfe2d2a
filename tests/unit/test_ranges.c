/* test_ranges.c - mappings given back in parts, against a map of every byte.
 *
 * Method: random mappings and unmappings of a small address space are done to the ranges and to an array that knows, for each unit of it, which
 * mapping holds it and whether it was requested or only fills the last page. After every step the ranges must tile the same units, and what
 * was given back must be what the array lost.
 */
#include "../../analyzer/ranges.h"

#include "check.h"

#define UNITS 256
#define UNIT 64 /* bytes; a page is 4 units */
#define PAGE_UNITS 4
#define STEPS 4000

struct unit {
	uint64_t mapping; /* its realloc_of-free name: site; 0 free */
	uint64_t time_ns;
	bool requested;
};

struct world {
	struct unit units[UNITS];
	struct tm_ranges ranges;
	uint64_t given_back_bytes, rows, survivors;
	uint64_t seen_units, seen_bytes;
	bool mismatch;
};

static uint64_t given_back(void *context, const struct tm_range *part, unsigned survivors) {
	struct world *w = context;
	w->given_back_bytes += part->block.size_bytes;
	w->survivors += survivors;
	return ++w->rows;
}

static void compare_range(void *context, const struct tm_range *r) {
	struct world *w = context;
	uint64_t requested = 0;
	for (uint64_t at = r->block.address; at < r->end; at += UNIT) {
		const struct unit *u = &w->units[at / UNIT];
		if (u->mapping != r->block.stack || u->time_ns != r->block.alloc_ns) w->mismatch = true;
		requested += u->requested;
		w->seen_units++;
	}
	if (requested * UNIT != r->block.size_bytes) w->mismatch = true;
	w->seen_bytes += r->block.size_bytes;
}

static void compare(struct world *w) {
	uint64_t units = 0, bytes = 0;
	w->seen_units = w->seen_bytes = 0;
	w->mismatch = false;
	tm_ranges_each(&w->ranges, compare_range, w);
	for (int i = 0; i < UNITS; i++) {
		const struct tm_range *at = tm_ranges_at(&w->ranges, (uint64_t)i * UNIT);
		CHECK(w->units[i].mapping == (at ? at->block.stack : 0));
		units += w->units[i].mapping != 0;
		bytes += w->units[i].requested ? UNIT : 0;
	}
	CHECK(!w->mismatch);
	CHECK(w->seen_units == units);
	CHECK(w->seen_bytes == bytes);
}

static void cut(struct world *w, uint64_t first, uint64_t end, uint64_t before_ns) {
	uint64_t bytes = 0;
	for (uint64_t i = first; i < end; i++) {
		if (!w->units[i].mapping || w->units[i].time_ns > before_ns) continue;
		bytes += w->units[i].requested ? UNIT : 0;
		w->units[i] = (struct unit){ 0 };
	}
	w->given_back_bytes = 0;
	tm_ranges_cut(&w->ranges, first * UNIT, end * UNIT, before_ns, given_back, w);
	CHECK(w->given_back_bytes == bytes);
}

static void step(struct world *w, struct check_random *r, uint64_t now) {
	uint64_t pages = 1 + check_random_next(r) % 8, first = check_random_next(r) % (UNITS / PAGE_UNITS - pages) * PAGE_UNITS,
		 end = first + pages * PAGE_UNITS;
	if (check_random_next(r) % 2) {
		/* Sometimes one that comes late: it must leave alone what is newer. */
		cut(w, first, end, check_random_next(r) % 4 ? now : now - 5);
		return;
	}
	uint64_t requested = pages * PAGE_UNITS - check_random_next(r) % PAGE_UNITS;
	struct tm_range range = {
		.block = { .address = first * UNIT, .size_bytes = requested * UNIT, .alloc_ns = now, .stack = (uint32_t)now },
		.end = end * UNIT
	};
	cut(w, first, end, UINT64_MAX);
	tm_ranges_insert(&w->ranges, &range);
	for (uint64_t i = first; i < end; i++) w->units[i] = (struct unit){ now, now, i < first + requested };
}

static void test_parts_name_their_row(void) {
	struct world w = { 0 };
	struct tm_range range = { .block = { .address = 0, .size_bytes = 10000, .alloc_ns = 1, .stack = 1 }, .end = 12288 };
	tm_ranges_insert(&w.ranges, &range);
	tm_ranges_cut(&w.ranges, 4096, 8192, UINT64_MAX, given_back, &w);
	CHECK(w.given_back_bytes == 4096 && w.survivors == 2 && w.rows == 1);
	tm_ranges_cut(&w.ranges, 8192, 12288, UINT64_MAX, given_back, &w);
	CHECK(w.given_back_bytes == 4096 + 10000 - 8192 && w.survivors == 2 && w.rows == 2);
	tm_ranges_cut(&w.ranges, 0, 1 << 20, UINT64_MAX, given_back, &w);
	CHECK(w.given_back_bytes == 10000 && w.survivors == 2 && w.rows == 3);
	CHECK(w.ranges.root == NULL);
	tm_ranges_release(&w.ranges);
}

int main(void) {
	struct check_random r = check_random_start("test_ranges");
	struct world w = { 0 };
	for (uint64_t now = 10; now < STEPS; now++) {
		step(&w, &r, now);
		compare(&w);
	}
	CHECK(!w.ranges.failed);
	tm_ranges_release(&w.ranges);
	test_parts_name_their_row();
	return check_report("test_ranges");
}
