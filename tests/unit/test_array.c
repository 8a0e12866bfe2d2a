/* test_array.c - arrays that grow, through all the ways in which their memory is had.
 *
 * Method: arrays of items of several sizes are pushed to, item by item, beyond where they become mappings and ask for huge pages, with others growing in
 *         between, so that one cannot always grow where it lies; what was written is read again from the first to the last. What is given back can be counted
 *         by the addresses that the process has mapped.
 */
#include "../../schema/array.h"

#include "check.h"

#include <stdio.h>
#include <unistd.h>

#define ITEMS (5u << 20)

struct odd { /* neither a power of two nor a part of a page */
	uint64_t number;
	uint32_t more;
	uint8_t bytes[12];
};

static uint64_t number_of(size_t i) {
	return i * 0x9E3779B97F4A7C15u;
}

/* Pages of address space. */
static size_t mapped_pages(void) {
	FILE *f = fopen("/proc/self/statm", "r");
	size_t pages = 0;
	CHECK(f && fscanf(f, "%zu", &pages) == 1);
	if (f) fclose(f);
	return pages;
}

static void grow_side_by_side(void) {
	TM_ARRAY(uint64_t) words = { 0 };
	TM_ARRAY(struct odd) odds = { 0 };
	size_t not_zero = 0, wrong = 0;
	for (size_t i = 0; i < ITEMS; i++) {
		uint64_t *word = tm_array_push(&words);
		struct odd *odd = i % 4 ? NULL : tm_array_push(&odds);
		CHECK(word && (odd || i % 4));
		not_zero += *word != 0 || (odd && (odd->number || odd->more || odd->bytes[11]));
		*word = number_of(i);
		if (odd) *odd = (struct odd){ .number = number_of(i), .more = (uint32_t)i, .bytes = { [11] = (uint8_t)i } };
	}
	for (size_t i = 0; i < ITEMS; i++) wrong += words.items[i] != number_of(i);
	for (size_t i = 0; i < odds.count; i++)
		wrong += odds.items[i].number != number_of(4 * i) || odds.items[i].more != 4 * i || odds.items[i].bytes[11] != (uint8_t)(4 * i);
	CHECK(words.count == ITEMS && odds.count == ITEMS / 4 && !not_zero && !wrong);
	tm_array_release(&words);
	tm_array_release(&odds);
	CHECK(!words.items && !words.count && !words.capacity);
}

/* From nothing, from a small and from a large one to a large one at once. */
static void reserve_and_extend(void) {
	for (size_t before = 0; before <= 3000000; before = before ? before * 100 : 300) {
		TM_ARRAY(uint32_t) a = { 0 };
		size_t wrong = 0;
		CHECK(tm_array_extend(&a, before));
		for (size_t i = 0; i < before; i++) a.items[i] = (uint32_t)number_of(i);
		CHECK(tm_array_reserve(&a, 10 * before + 2000000) && a.count == before && a.capacity >= 10 * before + 2000000);
		CHECK(tm_array_extend(&a, before + 1000000));
		for (size_t i = 0; i < a.count; i++) wrong += a.items[i] != (i < before ? (uint32_t)number_of(i) : 0);
		CHECK(a.count == before + 1000000 && !wrong);
		tm_array_release(&a);
	}
}

static void too_large(void) {
	TM_ARRAY(uint64_t) a = { 0 };
	CHECK(tm_array_extend(&a, 1000000));
	a.items[999999] = 7;
	CHECK(!tm_array_reserve(&a, (size_t)1 << 50) && a.items[999999] == 7 && a.count == 1000000);
	tm_array_release(&a);
}

int main(void) {
	grow_side_by_side();
	size_t before = mapped_pages();
	for (unsigned i = 0; i < 3; i++) grow_side_by_side();
	reserve_and_extend();
	too_large();
	size_t after = mapped_pages();
#ifndef __SANITIZE_ADDRESS__ /* it keeps for a while what was freed, and looks for what was not */
	CHECK(after < before + 1000); /* a single array that stays would be 10,000 */
#else
	(void)before;
	(void)after;
#endif
	return check_report("test_array");
}
