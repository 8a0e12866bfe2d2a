/* test_units.c - sizes and times as people write and read them.
 *
 * Goal:    what units.h promises, exactly, and nothing else accepted.
 * Method:  tables of texts and values worked out by hand.
 */
#include "../../schema/units.h"
#include "check.h"

struct expectation {
	const char *text;
	uint64_t value;
};

static const struct expectation sizes[] = {
	{ "0", 0 },
	{ "4096", 4096 },
	{ "7B", 7 },
	{ "64K", 65536 },
	{ "64k", 65536 },
	{ "64KiB", 65536 },
	{ "64kiB", 65536 },
	{ "64kB", 64000 },
	{ "64KB", 64000 },
	{ "1M", 1048576 },
	{ "1m", 1048576 },
	{ "3MB", 3000000 },
	{ "3mB", 3000000 },
	{ "1.5GiB", 1610612736 },
	{ "2G", 2147483648 },
	{ "2GB", 2000000000 },
	{ "1T", 1099511627776 },
	{ "1TiB", 1099511627776 },
	{ "1PiB", 1125899906842624 },
	{ "1.5EiB", 1729382256910270464 },
	{ "1TB", 1000000000000 },
	{ "0.5K", 512 },
	{ ".5K", 512 },
	{ "1.0", 1 },
	{ "0.1K", 102 }, /* 102.4, rounded down */
	{ "8 GiB", 8589934592 },
	{ "18446744073709551615", UINT64_MAX },
	{ "16777215T", 16777215ull << 40 },
	{ "0.000000000000000001T", 0 },
};

static const char *const no_sizes[] = { "",          " ",
					"K",         "-1",
					"+1",        " 1",
					"1 ",        "1.5",
					"1.5B",      "1..5K",
					"1.K",       "1e3",
					"0x10",      "1KiBs",
					"1Ki",       "1KIB",
					"1Kb",       "1P",
					"1b",        "1%",
					"1,000",     "18446744073709551616",
					"16777216T", "99999999999999999999999999999999999999999",
					"." };

static const struct expectation times[] = {
	{ "0", 0 },
	{ "12.5s", 12500000000 },
	{ "300ms", 300000000 },
	{ "20us", 20000 },
	{ "7ns", 7 },
	{ "2m", 120000000000 },
	{ "1h", 3600000000000 },
	{ "3", 3000000000 },
	{ "0.3", 300000000 },
	{ "0.1s", 100000000 },
	{ "1.000000001", 1000000001 },
	{ "0.000000001s", 1 },
	{ "4.35us", 4350 },
	{ "1.5h", 5400000000000 },
	{ "12.5 s", 12500000000 },
	{ "18446744073.709551615", UINT64_MAX },
	{ "1.9999999999999999999999ms", 1999999 },
};

static const char *const no_times[] = { "",         "s",   "-1s", "1S", "1MS", "1sec", "1.5ns", "1 d", "peak", "18446744073.709551616",
					"5124096h", "1s ", "NaN" };

static void test_parse(void) {
	uint64_t value;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		value = 12345;
		if (!CHECK(tm_parse_size(sizes[i].text, &value) && value == sizes[i].value)) printf("  size '%s'\n", sizes[i].text);
	}
	for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
		value = 12345;
		if (!CHECK(tm_parse_time(times[i].text, &value) && value == times[i].value)) printf("  time '%s'\n", times[i].text);
	}
	value = 12345;
	for (size_t i = 0; i < sizeof no_sizes / sizeof *no_sizes; i++)
		if (!CHECK(!tm_parse_size(no_sizes[i], &value))) printf("  not a size '%s'\n", no_sizes[i]);
	for (size_t i = 0; i < sizeof no_times / sizeof *no_times; i++)
		if (!CHECK(!tm_parse_time(no_times[i], &value))) printf("  not a time '%s'\n", no_times[i]);
	CHECK(!tm_parse_size(NULL, &value) && !tm_parse_time(NULL, &value));
	CHECK(value == 12345);
}

static const struct expectation size_texts[] = {
	{ "0 B", 0 },
	{ "1023 B", 1023 },
	{ "1.0 KiB", 1024 },
	{ "1.5 KiB", 1536 },
	{ "1023.9 KiB", 1048524 }, /* 1023.949 */
	{ "1.0 MiB", 1048525 },    /* 1023.950 rounds up to the next unit */
	{ "1.0 MiB", 1048576 },
	{ "12.3 MiB", 12897485 },
	{ "8.0 GiB", 8589934592 },
	{ "1.0 TiB", 1099511627776 },
	{ "16.0 EiB", UINT64_MAX },
};

static const struct expectation time_texts[] = {
	{ "0 ns", 0 },
	{ "950 ns", 950 },
	{ "999 ns", 999 },
	{ "1.0 us", 1000 },
	{ "12.3 us", 12345 },
	{ "999.9 us", 999949 },
	{ "1.00 ms", 999950 },
	{ "4.56 ms", 4560000 },
	{ "999.99 ms", 999994999 },
	{ "1.000 s", 999995000 },
	{ "12.345 s", 12345000000 },
	{ "59.999 s", 59999499999 },
	{ "1 min 00 s", 59999500000 },
	{ "3 min 05 s", 185000000000 },
	{ "59 min 59 s", 3599499999999 },
	{ "1 h 00 min", 3599500000000 },
	{ "2 h 03 min", 7380000000000 },
	{ "5124095 h 35 min", UINT64_MAX }, /* 34.56 */
};

static const struct expectation count_texts[] = {
	{ "0", 0 },          { "999", 999 },           { "1,000", 1000 },
	{ "12,345", 12345 }, { "1,234,567", 1234567 }, { "18,446,744,073,709,551,615", UINT64_MAX },
};

#define CHECK_FORMATS(table, format) \
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) { \
		char out[TM_UNIT_TEXT_MAX]; \
		CHECK(format(table[i].value, out) == out); \
		if (!CHECK(!strcmp(out, table[i].text))) printf("  '%s' instead of '%s'\n", out, table[i].text); \
	}

static void test_format(void) {
	CHECK_FORMATS(size_texts, tm_format_size)
	CHECK_FORMATS(time_texts, tm_format_time)
	CHECK_FORMATS(count_texts, tm_format_count)
}

int main(void) {
	test_parse();
	test_format();
	return check_report("units");
}
