/* test_python_lines.c - lines of Python instructions, asked for in any order.
 *
 * Goal:    where a line table was left when it was last read (struct tm_python_place) changes no answer.
 * Method:  tables of random bytes, of each kind and of any first line, are asked for random offsets and for runs of growing ones: with one place for all
 *          questions, and with a new one for each. The seed is printed. And a small table that was decoded by hand.
 */
#include "../../recorder/collector/python_lines.h"
#include "check.h"

#include <stdlib.h>

#define TABLE_MAX 300u

static uint32_t fresh(enum tm_python_lines kind, uint32_t first, const uint8_t *table, size_t n, uint32_t offset) {
	struct tm_python_place place = { 0 };
	return tm_python_line(kind, first, table, n, offset, &place);
}

static void any_order(struct check_random *r, enum tm_python_lines kind) {
	uint8_t table[TABLE_MAX];
	struct tm_python_place place = { 0 };
	size_t n = check_random_below(r, TABLE_MAX);
	uint32_t first = (uint32_t)check_random_any(r), offset = 0;
	for (size_t i = 0; i < n; i++) table[i] = (uint8_t)(check_random_below(r, 3) ? check_random_next(r) : check_random_below(r, 8));
	for (int i = 0; i < 200; i++) {
		offset = (uint32_t)(check_random_below(r, 3) ? offset + check_random_below(r, 20) : check_random_below(r, 3000));
		uint32_t wanted = fresh(kind, first, table, n, offset);
		CHECK(tm_python_line(kind, first, table, n, offset, &place) == wanted);
	}
}

/* Line 10: two units, no lines further; line 12: one unit, by a signed varint of 2; no line: one unit; line 11: eight units, one line back. */
static void by_hand(void) {
	static const uint8_t table[] = { 0x80 | 10 << 3 | 1, 0, 0, 0x80 | 13 << 3, 4, 0x80 | 15 << 3, 0x80 | 13 << 3 | 7, 3 };
	static const uint32_t lines[] = { 10, 10, 12, 0, 11 };
	for (uint32_t unit = 0; unit < 5; unit++) CHECK(fresh(TM_PYTHON_LOCATIONS, 10, table, sizeof table, unit * 2) == lines[unit]);
	CHECK(fresh(TM_PYTHON_LOCATIONS, 10, table, sizeof table, 22) == 11);
	CHECK(fresh(TM_PYTHON_LOCATIONS, 10, table, sizeof table, 24) == 0);
	CHECK(fresh(TM_PYTHON_LOCATIONS, 10, table, sizeof table, TM_PYTHON_BEFORE) == 10);
}

/* No line: one unit, before there is any; line 10: one unit; no line: one unit; line 11: one unit; no line: one unit. From 3.11 on, and in 3.10's form. */
static void before_any_line(void) {
	static const uint8_t locations[] = { 0x80 | 15 << 3, 0x80 | 13 << 3, 0, 0x80 | 15 << 3, 0x80 | 13 << 3, 2, 0x80 | 15 << 3 };
	static const uint8_t of_310[] = { 2, 0x80, 2, 0, 2, 0x80, 2, 1, 2, 0x80 };
	static const uint32_t lines[] = { 10, 10, 10, 11, 0 };
	for (uint32_t unit = 0; unit < 5; unit++) {
		CHECK(fresh(TM_PYTHON_LOCATIONS, 10, locations, sizeof locations, unit * 2) == lines[unit]);
		CHECK(fresh(TM_PYTHON_LINES_310, 10, of_310, sizeof of_310, unit * 2) == lines[unit]);
	}
}

/* A table as long as the ring takes was cut there: a line for each two bytes of code, and no line behind. */
static void cut(void) {
	enum { ENTRIES = TM_PYTHON_TABLE_MAX / 2 };
	uint8_t *table = calloc(ENTRIES + 1, 2);
	for (uint32_t i = 0; i <= ENTRIES; i++) table[2 * i] = 2, table[2 * i + 1] = 1;
	CHECK(fresh(TM_PYTHON_LNOTAB, 1, table, 2 * (ENTRIES - 1), 2 * ENTRIES) == ENTRIES);
	CHECK(fresh(TM_PYTHON_LNOTAB, 1, table, 2 * ENTRIES, 2 * ENTRIES - 1) == ENTRIES);
	CHECK(fresh(TM_PYTHON_LNOTAB, 1, table, 2 * ENTRIES, 2 * ENTRIES) == 0);
	CHECK(fresh(TM_PYTHON_LINES_310, 1, table, 2 * ENTRIES, 2 * ENTRIES - 1) == ENTRIES + 1);
	CHECK(fresh(TM_PYTHON_LINES_310, 1, table, 2 * ENTRIES, 2 * ENTRIES) == 0);
	free(table);
}

int main(void) {
	struct check_random r = check_random_start("test_python_lines");
	by_hand();
	before_any_line();
	cut();
	for (int i = 0; i < 600; i++) any_order(&r, (enum tm_python_lines)(i % 3));
	return check_report("test_python_lines");
}
