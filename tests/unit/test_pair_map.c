/* test_pair_map.c - recorder/collector/pair_map.c: ids by pairs, and a 0, which is none. */
#include "../../recorder/collector/pair_map.h"

#include "check.h"

int main(void) {
	struct tm_pair_map m = { 0 };
	CHECK(tm_pair_map_get(&m, 1, 2) == 0);
	for (uint64_t i = 0; i < 100000; i++) tm_pair_map_set(&m, i, i * i, (uint32_t)i + 1);
	for (uint64_t i = 0; i < 100000; i++) CHECK(tm_pair_map_get(&m, i, i * i) == i + 1);
	CHECK(tm_pair_map_get(&m, 3, 8) == 0 && m.count == 100000);
	tm_pair_map_set(&m, 3, 9, 77);
	CHECK(tm_pair_map_get(&m, 3, 9) == 77 && m.count == 100000);

	/* What is set to none, however often, takes no room. */
	size_t mask = m.mask;
	for (int i = 0; i < 1000000; i++) tm_pair_map_set(&m, 3, 8, 0);
	CHECK(tm_pair_map_get(&m, 3, 8) == 0 && m.count == 100000 && m.mask == mask);
	tm_pair_map_release(&m);
	return check_report("pair_map");
}
