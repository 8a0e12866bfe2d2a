/* units.c - sizes and times as people write them, and as we print them.
 *
 * Flow:  options of the recorder, filters and tables of the analyzer -> here.
 * Idea:  decimal numbers are kept as integers all the way, so that "0.3s" is 300000000 ns and not a rounded binary fraction.
 */
#include "units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef unsigned __int128 wide; /* wide enough for every product below */

struct unit {
	const char *name;
	uint64_t factor;
};

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define TIB (1ull << 40)

static const struct unit size_units[] = {
	{ "", 1 },
	{ "B", 1 },
	{ "K", KIB },
	{ "M", MIB },
	{ "G", GIB },
	{ "T", TIB },
	{ "KiB", KIB },
	{ "MiB", MIB },
	{ "GiB", GIB },
	{ "TiB", TIB },
	{ "PiB", TIB << 10 },
	{ "EiB", TIB << 20 },
	{ "KB", 1000 },
	{ "MB", 1000 * 1000 },
	{ "GB", 1000ull * 1000 * 1000 },
	{ "TB", 1000ull * 1000 * 1000 * 1000 },
	{ NULL, 0 },
};

#define SECOND_NS 1000000000ull

static const struct unit time_units[] = {
	{ "", SECOND_NS }, { "s", SECOND_NS },      { "ms", 1000000 },         { "us", 1000 },
	{ "ns", 1 },       { "m", 60 * SECOND_NS }, { "h", 3600 * SECOND_NS }, { NULL, 0 },
};

#define FRACTION_DIGITS_MAX 18 /* further digits are below a byte or a nanosecond in every unit */

struct decimal {
	wide whole;
	uint64_t fraction, scale; /* the part behind the point is fraction / scale */
};

static bool is_digit(char c) {
	return c >= '0' && c <= '9';
}

/* Reads "12", "1.5" or ".5" and returns what follows it, or NULL. */
static const char *read_decimal(const char *p, struct decimal *d) {
	*d = (struct decimal){ 0, 0, 1 };
	if (!is_digit(*p) && !(*p == '.' && is_digit(p[1]))) return NULL;
	for (; is_digit(*p); p++) {
		d->whole = d->whole * 10 + (unsigned)(*p - '0');
		if (d->whole > UINT64_MAX) return NULL;
	}
	if (*p != '.') return p;
	if (!is_digit(*++p)) return NULL;
	for (int digits = 0; is_digit(*p); p++) {
		if (++digits > FRACTION_DIGITS_MAX) continue;
		d->fraction = d->fraction * 10 + (uint64_t)(*p - '0');
		d->scale *= 10;
	}
	return p;
}

static uint64_t find_factor(const struct unit *units, const char *name, bool first_letter_case_is_free) {
	for (const struct unit *u = units; u->name; u++) {
		if (!strcmp(u->name, name)) return u->factor;
		bool is_lower_case = name[0] >= 'a' && name[0] <= 'z' && name[0] - 'a' + 'A' == u->name[0] && u->name[0] != 'B';
		if (first_letter_case_is_free && is_lower_case && !strcmp(u->name + 1, name + 1)) return u->factor;
	}
	return 0;
}

/* A fraction that ends between two bytes or nanoseconds is rounded down; half a byte or half a nanosecond as such is an error. */
static bool parse(const char *text, const struct unit *units, bool first_letter_case_is_free, uint64_t *result) {
	struct decimal d;
	const char *name = text ? read_decimal(text, &d) : NULL;
	if (!name) return false;
	if (*name == ' ' && name[1]) name++;
	uint64_t factor = find_factor(units, name, first_letter_case_is_free);
	if (!factor || (factor == 1 && d.fraction)) return false;
	wide value = d.whole * factor + (wide)d.fraction * factor / d.scale;
	if (value > UINT64_MAX) return false;
	*result = (uint64_t)value;
	return true;
}

bool tm_parse_size(const char *text, uint64_t *bytes) {
	return parse(text, size_units, true, bytes);
}
bool tm_parse_time(const char *text, uint64_t *ns) {
	return parse(text, time_units, false, ns);
}

const char *tm_format_size(uint64_t bytes, char out[TM_UNIT_TEXT_MAX]) {
	static const char *const names[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	if (bytes < KIB) {
		snprintf(out, TM_UNIT_TEXT_MAX, "%" PRIu64 " B", bytes);
		return out;
	}
	/* Rounding comes before the choice of the unit: 1,048,575 bytes are "1.0 MiB" and not "1024.0 KiB". */
	size_t i = 0;
	uint64_t tenths;
	for (;; i++) {
		unsigned shift = 10 * (unsigned)(i + 1);
		tenths = (uint64_t)(((wide)bytes * 10 + (1ull << (shift - 1))) >> shift);
		if (tenths < 10 * KIB || i == 5) break;
	}
	snprintf(out, TM_UNIT_TEXT_MAX, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10, names[i]);
	return out;
}

static uint64_t divide_rounded(uint64_t n, uint64_t by) {
	return n / by + (n % by >= by - n % by);
}

const char *tm_format_time(uint64_t ns, char out[TM_UNIT_TEXT_MAX]) {
	uint64_t tenths_us = divide_rounded(ns, 100), hundredths_ms = divide_rounded(ns, 10000), ms = divide_rounded(ns, 1000000);
	uint64_t seconds = divide_rounded(ns, SECOND_NS), minutes = divide_rounded(ns, 60 * SECOND_NS);
	if (ns < 1000) snprintf(out, TM_UNIT_TEXT_MAX, "%" PRIu64 " ns", ns);
	else if (tenths_us < 10000) snprintf(out, TM_UNIT_TEXT_MAX, "%" PRIu64 ".%" PRIu64 " us", tenths_us / 10, tenths_us % 10);
	else if (hundredths_ms < 100000)
		snprintf(out, TM_UNIT_TEXT_MAX, "%" PRIu64 ".%02" PRIu64 " ms", hundredths_ms / 100, hundredths_ms % 100);
	else if (ms < 60000) snprintf(out, TM_UNIT_TEXT_MAX, "%" PRIu64 ".%03" PRIu64 " s", ms / 1000, ms % 1000);
	else if (seconds < 3600) snprintf(out, TM_UNIT_TEXT_MAX, "%" PRIu64 " min %02" PRIu64 " s", seconds / 60, seconds % 60);
	else snprintf(out, TM_UNIT_TEXT_MAX, "%" PRIu64 " h %02" PRIu64 " min", minutes / 60, minutes % 60);
	return out;
}

const char *tm_format_count(uint64_t n, char out[TM_UNIT_TEXT_MAX]) {
	char digits[TM_UNIT_TEXT_MAX];
	int count = snprintf(digits, sizeof digits, "%" PRIu64, n);
	char *p = out;
	for (int i = 0; i < count; i++) {
		if (i && (count - i) % 3 == 0) *p++ = ',';
		*p++ = digits[i];
	}
	*p = '\0';
	return out;
}
