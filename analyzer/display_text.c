/* display_text.c - escaping, measuring and shortening of text for the terminal.
 *
 * Text is decoded character by character; what a terminal could act upon is written out as an escape, so that neither a line of a table
 * nor the terminal's state can be changed by a name. Shortening works on whole characters, from both ends towards the gap.
 */
#include "display_text.h"

#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

static bool unicode_output;

void tm_display_init(void) {
	unicode_output = setlocale(LC_CTYPE, "") && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
	/* Without a C.UTF-8 locale wcwidth() knows ASCII only; char_width() then takes one column for everything else. */
	setlocale(LC_CTYPE, "C.UTF-8");
}

bool tm_display_unicode(void) {
	return unicode_output;
}

size_t tm_utf8_next(const char *p, const char *end, uint32_t *code) {
	static const uint32_t smallest[5] = { 0, 0, 0x80, 0x800, 0x10000 };
	unsigned char first = (unsigned char)*p;
	size_t length = first < 0x80 ? 1 : first >= 0xF0 && first < 0xF8 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 0;
	*code = 0xFFFD;
	if (first >= 0xF8 || !length || (size_t)(end - p) < length) return 1;
	uint32_t value = length == 1 ? first : first & (0x7Fu >> length);
	for (size_t i = 1; i < length; i++) {
		if ((p[i] & 0xC0) != 0x80) return 1;
		value = value << 6 | (uint32_t)(p[i] & 0x3F);
	}
	if (value < smallest[length] || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return 1;
	*code = value;
	return length;
}

bool tm_is_deceptive(uint32_t c) {
	return c == 0x061C || (c >= 0x200B && c <= 0x200F) || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF ||
	       (c >= 0xE0000 && c <= 0xE007F);
}

void tm_display_text(struct tm_bytes *out, const char *text, size_t n) {
	static const char named[] = "abtnvfr"; /* 0x07 to 0x0D */
	const char *end = text + n;
	while (text < end) {
		uint32_t c;
		char escape[16];
		size_t length = tm_utf8_next(text, end, &c);
		if (c >= 0x07 && c <= 0x0D) tm_put_raw(out, (char[]){ '\\', named[c - 7] }, 2);
		else if (c < 0x20 || (c >= 0x7F && c < 0xA0))
			tm_put_raw(out, escape, (size_t)snprintf(escape, sizeof(escape), "\\x%02x", c));
		else if (tm_is_deceptive(c)) tm_put_raw(out, escape, (size_t)snprintf(escape, sizeof(escape), "\\u%04x", c));
		else if (c == 0xFFFD) tm_put_raw(out, "\xEF\xBF\xBD", 3);
		else tm_put_raw(out, text, length);
		text += length;
	}
}

void tm_display_name(struct tm_bytes *out, const char *name, size_t n) {
	size_t blanks = 0;
	while (blanks < n && name[blanks] == ' ') blanks++;
	if (blanks == n) tm_put_raw(out, "\"", 1);
	tm_display_text(out, name, n);
	if (blanks == n) tm_put_raw(out, "\"", 1);
}

static size_t char_width(uint32_t c) {
	if (c < 0x80) return 1;
	int width = wcwidth((wchar_t)c);
	return width < 0 ? 1 : (size_t)width;
}

size_t tm_display_width(const char *text, size_t n) {
	const char *end = text + n;
	size_t width = 0;
	while (text < end) {
		uint32_t c;
		text += tm_utf8_next(text, end, &c);
		width += char_width(c);
	}
	return width;
}

/* Bytes at the start of the text that fill at most `width` columns. */
static size_t head_bytes(const char *text, size_t n, size_t width) {
	const char *p = text, *end = text + n;
	while (p < end) {
		uint32_t c;
		size_t length = tm_utf8_next(p, end, &c), w = char_width(c);
		if (w > width) break;
		width -= w;
		p += length;
	}
	return (size_t)(p - text);
}

/* Bytes to leave out at the start so that the rest fills at most `width` of the text's `total` columns. */
static size_t tail_offset(const char *text, size_t n, size_t total, size_t width) {
	const char *p = text, *end = text + n;
	while (p < end && total > width) {
		uint32_t c;
		p += tm_utf8_next(p, end, &c);
		total -= char_width(c);
	}
	return (size_t)(p - text);
}

size_t tm_display_fit(struct tm_bytes *out, const char *text, size_t n, size_t width, enum tm_shorten where) {
	size_t total = tm_display_width(text, n);
	if (total <= width) {
		tm_put_raw(out, text, n);
		return total;
	}
	const char *gap = unicode_output ? "\xE2\x80\xA6" : "..";
	size_t gap_width = unicode_output ? 1 : 2;
	if (width < gap_width) return 0;
	size_t room = width - gap_width;
	size_t head = where == TM_SHORTEN_END ? room : where == TM_SHORTEN_START ? 0 : (room + 1) / 2;
	size_t head_end = head_bytes(text, n, head), tail_start = tail_offset(text, n, total, room - head);
	tm_put_raw(out, text, head_end);
	tm_put_raw(out, gap, strlen(gap));
	tm_put_raw(out, text + tail_start, n - tail_start);
	return tm_display_width(text, head_end) + gap_width + tm_display_width(text + tail_start, n - tail_start);
}
