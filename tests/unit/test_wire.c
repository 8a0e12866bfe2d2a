/* test_wire.c - varints, strings, fixed-width numbers, and the sticky errors of buffer and cursor.
 *
 * Goal:    the bytes are those that format.md section 1 promises, and no input makes a cursor leave its buffer.
 * Method:  byte sequences written out by hand, in both directions; random numbers there and back; every cut of a valid sequence.
 */
#include "../../schema/wire.h"
#include "check.h"
#include "fail_alloc.h"

/* LEB128 by hand: 7 bits a byte, least significant first. */
static const struct {
	uint64_t value;
	size_t size;
	uint8_t bytes[10];
} varints[] = {
	{ 0, 1, { 0x00 } },
	{ 1, 1, { 0x01 } },
	{ 127, 1, { 0x7f } },
	{ 128, 2, { 0x80, 0x01 } },
	{ 300, 2, { 0xac, 0x02 } },
	{ 16383, 2, { 0xff, 0x7f } },
	{ 16384, 3, { 0x80, 0x80, 0x01 } },
	{ 0xffffffff, 5, { 0xff, 0xff, 0xff, 0xff, 0x0f } },
	{ 1ull << 63, 10, { 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01 } },
	{ UINT64_MAX, 10, { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01 } },
};

static void test_varints_by_hand(void) {
	for (size_t i = 0; i < sizeof varints / sizeof *varints; i++) {
		struct tm_bytes b = TM_BYTES_INIT;
		tm_put_varint(&b, varints[i].value);
		CHECK_BYTES(b.data, b.size, varints[i].bytes, varints[i].size);
		struct tm_cursor c = tm_cursor_over(varints[i].bytes, varints[i].size);
		CHECK(tm_get_varint(&c) == varints[i].value);
		CHECK(!c.bad && c.p == c.end);
		for (size_t cut = 0; cut < varints[i].size; cut++) {
			c = tm_cursor_over(varints[i].bytes, cut);
			CHECK(tm_get_varint(&c) == 0 && c.bad && c.p == c.end);
		}
		tm_bytes_release(&b);
	}
}

static void check_varint_refused(const uint8_t *bytes, size_t n) {
	struct tm_cursor c = tm_cursor_over(bytes, n);
	CHECK(tm_get_varint(&c) == 0);
	CHECK(c.bad && c.p == c.end);
}

static void test_varints_too_long(void) {
	static const uint8_t tenth_is_two[] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0x00 };
	static const uint8_t eleven_bytes[] = { 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00 };
	static const uint8_t tenth_goes_on[] = { 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x81, 0x00 };
	static const uint8_t needlessly_long[] = { 0x85, 0x80, 0x00 };
	check_varint_refused(tenth_is_two, sizeof tenth_is_two);
	check_varint_refused(eleven_bytes, sizeof eleven_bytes);
	check_varint_refused(tenth_goes_on, sizeof tenth_goes_on);
	struct tm_cursor c = tm_cursor_over(needlessly_long, sizeof needlessly_long);
	CHECK(tm_get_varint(&c) == 5 && !c.bad && c.p == c.end);
}

static void test_zigzag(void) {
	CHECK(tm_zigzag(0) == 0);
	CHECK(tm_zigzag(-1) == 1);
	CHECK(tm_zigzag(1) == 2);
	CHECK(tm_zigzag(-2) == 3);
	CHECK(tm_zigzag(INT64_MAX) == UINT64_MAX - 1);
	CHECK(tm_zigzag(INT64_MIN) == UINT64_MAX);
	CHECK(tm_unzigzag(0) == 0);
	CHECK(tm_unzigzag(1) == -1);
	CHECK(tm_unzigzag(4) == 2);
	CHECK(tm_unzigzag(UINT64_MAX) == INT64_MIN);
	CHECK(tm_unzigzag(UINT64_MAX - 1) == INT64_MAX);
}

static void test_fixed_width_and_strings(void) {
	static const uint8_t expected[] = { 0x12, 0x34, 0x12, 0x78, 0x56, 0x34, 0x12, 0x08, 0x07, 0x06, 0x05,
					    0x04, 0x03, 0x02, 0x01, 0x03, 'a',  0x00, 'b',  0x00, 0x05 };
	struct tm_bytes b = TM_BYTES_INIT;
	tm_put_u8(&b, 0x12);
	tm_put_u16(&b, 0x1234);
	tm_put_u32(&b, 0x12345678);
	tm_put_u64(&b, 0x0102030405060708);
	tm_put_string(&b, "a\0b", 3);
	tm_put_string(&b, NULL, 0);
	tm_put_zigzag(&b, -3);
	CHECK_BYTES(b.data, b.size, expected, sizeof expected);
	struct tm_cursor c = tm_cursor_over(expected, sizeof expected);
	CHECK(tm_get_u8(&c) == 0x12);
	CHECK(tm_get_u16(&c) == 0x1234);
	CHECK(tm_get_u32(&c) == 0x12345678);
	CHECK(tm_get_u64(&c) == 0x0102030405060708);
	struct tm_text text = tm_get_string(&c);
	CHECK_BYTES(text.data, text.size, "a\0b", 3);
	CHECK(tm_get_string(&c).size == 0);
	CHECK(tm_get_zigzag(&c) == -3);
	CHECK(!c.bad && c.p == c.end);
	CHECK(tm_get_u8(&c) == 0 && c.bad);
	tm_bytes_release(&b);
	CHECK(!b.data && !b.size && !b.capacity);
}

static void test_lengths_are_not_trusted(void) {
	static const uint8_t one_short[] = { 0x04, 'a', 'b', 'c' };
	static const uint8_t enormous[] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 'a' };
	static const uint8_t seven_bytes[7] = { 1, 2, 3, 4, 5, 6, 7 };
	struct tm_cursor c = tm_cursor_over(one_short, sizeof one_short);
	CHECK(tm_get_string(&c).size == 0 && c.bad);
	CHECK(tm_get_varint(&c) == 0 && tm_get_u8(&c) == 0 && c.bad);
	c = tm_cursor_over(enormous, sizeof enormous);
	struct tm_cursor block = tm_get_block(&c);
	CHECK(block.p == block.end && block.bad && c.bad);
	c = tm_cursor_over(seven_bytes, sizeof seven_bytes);
	CHECK(tm_get_u64(&c) == 0 && c.bad);
	c = tm_cursor_over(seven_bytes, 3);
	CHECK(tm_get_u32(&c) == 0 && c.bad);
	c = tm_cursor_over(seven_bytes, 1);
	CHECK(tm_get_u16(&c) == 0 && c.bad);
	c = tm_cursor_over(one_short, 2);
	CHECK(tm_get_u8(&c) == 4);
	block = tm_get_block(&c);
	CHECK(block.bad && c.bad);
}

static void test_random_round_trips(void) {
	struct check_random r = check_random_start("wire");
	enum { COUNT = 20000 };
	static uint64_t values[COUNT];
	struct tm_bytes b = TM_BYTES_INIT;
	for (int i = 0; i < COUNT; i++) tm_put_varint(&b, values[i] = check_random_any(&r));
	CHECK(!b.failed);
	struct tm_cursor c = tm_cursor_over(b.data, b.size);
	int same = 0;
	for (int i = 0; i < COUNT; i++) same += tm_get_varint(&c) == values[i];
	CHECK(same == COUNT && !c.bad && c.p == c.end);
	for (int i = 0; i < COUNT; i++) same -= tm_unzigzag(tm_zigzag((int64_t)values[i])) == (int64_t)values[i];
	CHECK(same == 0);
	tm_bytes_release(&b);
}

static void test_failed_allocation_sticks(void) {
	struct tm_bytes b = TM_BYTES_INIT;
	CHECK(!tm_bytes_reserve(&b, SIZE_MAX - 10));
	CHECK(b.failed);
	tm_put_varint(&b, 5);
	tm_put_string(&b, "abc", 3);
	tm_put_u64(&b, 1);
	CHECK(b.failed && b.size == 0);
	tm_bytes_clear(&b);
	tm_put_u8(&b, 7);
	CHECK(!b.failed && b.size == 1 && b.data[0] == 7);
#if FAIL_ALLOC_WORKS
	fail_alloc_at(1);
	CHECK(!tm_bytes_reserve(&b, 100000) && b.failed);
	fail_alloc_at(0);
	CHECK(b.data[0] == 7);
#endif
	tm_bytes_release(&b);
}

int main(void) {
	test_varints_by_hand();
	test_varints_too_long();
	test_zigzag();
	test_fixed_width_and_strings();
	test_lengths_are_not_trusted();
	test_random_round_trips();
	test_failed_allocation_sticks();
	return check_report("wire");
}
