/* test_blocks.c - the table of live blocks, against a plain array.
 *
 * Method: random addresses (the seed is printed) come and go, many of them neighbours, as malloc() gives them, and so many that some share their tag; after
 *         each round every address is looked for, and what the blocks say of themselves is compared with what was put in.
 */
#include "../../schema/blocks.h"

#include "check.h"

#define ADDRESSES 300000u
#define ROUNDS 12u

static struct check_random r;
static uint64_t sizes[ADDRESSES]; /* of the live ones, 0 not live */

/* Runs of neighbours, and some far away. */
static uint64_t address_of(size_t i) {
	return i % 3 ? 0x7f0000000000u + i * 16 : (i * 0x9E3779B97F4A7C15u >> 5 | 1u << 4) & ((uint64_t)1 << 59 | 0xFFFFFFFFFFF0u);
}

static void change(struct tm_blocks *b, size_t i) {
	struct tm_block *found = tm_blocks_find(b, address_of(i));
	if (found) {
		sizes[i] = 0;
		tm_blocks_remove(b, found);
	} else {
		sizes[i] = 1 + check_random_below(&r, 1000000);
		struct tm_block block = { .address = address_of(i), .size_bytes = sizes[i], .stack = (uint32_t)i };
		CHECK(tm_blocks_insert(b, &block));
	}
}

static void compare(const struct tm_blocks *b) {
	size_t live = 0, used = 0, wrong = 0;
	for (size_t i = 0; i < ADDRESSES; i++) {
		const struct tm_block *found = tm_blocks_find(b, address_of(i));
		tm_blocks_prefetch_slot(b, address_of(i));
		tm_blocks_prefetch_block(b, address_of(i));
		live += sizes[i] != 0;
		if (!found != !sizes[i]) wrong++;
		else if (found && (found->size_bytes != sizes[i] || found->stack != i || !found->used)) wrong++;
	}
	for (size_t i = 0; i < b->all.count; i++) used += b->all.items[i].used;
	CHECK(!wrong && b->count == live && used == live);
}

int main(void) {
	struct tm_blocks b = { 0 };
	r = check_random_start("test_blocks");
	CHECK(!tm_blocks_find(&b, 16));
	for (unsigned round = 0; round < ROUNDS; round++) {
		size_t begin = check_random_below(&r, ADDRESSES), count = ADDRESSES / (1 + (unsigned)check_random_below(&r, 20));
		for (size_t i = 0; i < count; i++) change(&b, round % 2 ? (begin + i) % ADDRESSES : check_random_below(&r, ADDRESSES));
		compare(&b);
	}
	size_t room = b.all.count;
	for (size_t i = 0; i < ADDRESSES; i++)
		if (sizes[i]) change(&b, i);
	compare(&b);
	CHECK(b.count == 0);
	/* What ended makes room for what comes. */
	for (size_t i = 0; i < room; i++) change(&b, i);
	CHECK(b.all.count == room && b.count == room);
	tm_blocks_release(&b);
	return check_report("test_blocks");
}
