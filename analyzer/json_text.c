/* json_text.c - JSON's rules for strings and numbers. */
#include "json_text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "display_text.h"

void tm_put_format(struct tm_bytes *out, const char *format, ...) {
	char text[256];
	va_list arguments;
	va_start(arguments, format);
	int n = vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (n > 0) tm_put_raw(out, text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

static void put_digits(struct tm_bytes *out, uint64_t number, unsigned base, bool negative) {
	char digits[21], *end = digits + sizeof digits, *first = end;
	if (base == 10)
		for (; number >= 10; number /= 10) *--first = (char)('0' + number % 10);
	else
		for (; number >= 16; number /= 16) *--first = "0123456789abcdef"[number % 16];
	*--first = "0123456789abcdef"[number];
	if (negative) *--first = '-';
	tm_put_raw(out, first, (size_t)(end - first));
}

void tm_put_integer(struct tm_bytes *out, int64_t number) {
	put_digits(out, number < 0 ? 0 - (uint64_t)number : (uint64_t)number, 10, number < 0);
}

void tm_put_hexadecimal(struct tm_bytes *out, uint64_t number) {
	put_digits(out, number, 16, false);
}

static const char *short_escape(uint32_t c) {
	switch (c) {
	case '"': return "\\\"";
	case '\\': return "\\\\";
	case '\b': return "\\b";
	case '\f': return "\\f";
	case '\n': return "\\n";
	case '\r': return "\\r";
	case '\t': return "\\t";
	default: return NULL;
	}
}

/* Characters that a terminal, or a reader's eye, would act upon. */
static bool needs_number(uint32_t c) {
	return c < 0x20 || (c >= 0x7F && c < 0xA0) || tm_is_deceptive(c);
}

static void put_code(struct tm_bytes *out, uint32_t c) {
	if (c < 0x10000) {
		tm_put_format(out, "\\u%04x", c);
		return;
	}
	c -= 0x10000;
	tm_put_format(out, "\\u%04x\\u%04x", 0xD800 + (c >> 10), 0xDC00 + (c & 0x3FF));
}

/* Bytes at the start of the text that stand for themselves: most names are nothing else. */
static size_t plain_bytes(const char *text, const char *end) {
	const char *p = text;
	while (p < end && *p >= 0x20 && *p < 0x7F && *p != '"' && *p != '\\') p++;
	return (size_t)(p - text);
}

void tm_json_string(struct tm_bytes *out, const char *text, size_t n) {
	const char *end = text + n;
	tm_put_raw(out, "\"", 1);
	for (;;) {
		size_t plain = plain_bytes(text, end);
		if (plain) tm_put_raw(out, text, plain);
		text += plain;
		if (text == end) break;
		uint32_t c;
		size_t length = tm_utf8_next(text, end, &c);
		const char *escape = short_escape(c);
		if (escape) tm_put_raw(out, escape, 2);
		else if (needs_number(c)) put_code(out, c);
		else if (c == 0xFFFD) tm_put_raw(out, "\xEF\xBF\xBD", 3);
		else tm_put_raw(out, text, length);
		text += length;
	}
	tm_put_raw(out, "\"", 1);
}

void tm_json_double(struct tm_bytes *out, double number) {
	char text[40];
	if (!isfinite(number)) {
		tm_put_raw(out, "null", 4);
		return;
	}
	snprintf(text, sizeof(text), "%.15g", number);
	if (strtod(text, NULL) != number) snprintf(text, sizeof(text), "%.17g", number);
	tm_put_raw(out, text, strlen(text));
}
