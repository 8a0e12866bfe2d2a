/* python_lines.c - the three forms of CPython's line tables.
 *
 * co_lnotab, to 3.9: pairs (bytes of code, lines), the second signed; each says how far the next line's code begins behind the one before.
 * co_linetable, 3.10: pairs (bytes of code, lines): the lines are added first and hold for these bytes; -128: they have none.
 * co_linetable, from 3.11 on: entries that begin with a byte 1cccclll: code c, for l + 1 units of two bytes. Its operands have the top bit clear:
 *     0-9 same line, one byte of columns; 10-12 that many lines minus 10 further, two bytes; 13 a signed varint of lines; 14 the same and three
 *     varints; 15 no line. A varint has 6 bits a byte, least significant first, bit 6 set on all but the last; a signed one has its sign lowest.
 */
#include "python_lines.h"

static uint32_t lnotab_line(uint32_t first_line, const uint8_t *table, size_t n, uint32_t offset, struct tm_python_place *p) {
	for (; p->at + 1 < n; p->at += 2) {
		if (p->code + table[p->at] > offset) break;
		p->code += table[p->at];
		p->lines += (int8_t)table[p->at + 1];
	}
	bool cut = p->at + 1 >= n && n >= TM_PYTHON_TABLE_MAX; /* else the last line goes on to the end */
	return cut ? 0 : first_line + (uint32_t)p->lines;
}

static uint32_t line_of_310(uint32_t first_line, const uint8_t *table, size_t n, uint32_t offset, struct tm_python_place *p) {
	for (; p->at + 1 < n; p->at += 2) {
		bool none = table[p->at + 1] == 0x80;
		int64_t lines = p->lines + (none ? 0 : (int8_t)table[p->at + 1]);
		if (p->code + table[p->at] > offset) return none && lines ? 0 : first_line + (uint32_t)lines;
		p->code += table[p->at];
		p->lines = lines;
	}
	return 0;
}

static int64_t signed_varint(const uint8_t *at, const uint8_t *end) {
	uint64_t value = 0;
	for (unsigned shift = 0; at < end && shift < 60; shift += 6) {
		value |= (uint64_t)(*at & 0x3f) << shift;
		if (!(*at++ & 0x40)) break;
	}
	return value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
}

static uint32_t location_line(uint32_t first_line, const uint8_t *table, size_t n, uint32_t offset, struct tm_python_place *p) {
	while (p->at < n) {
		const uint8_t *at = table + p->at, *end = table + n;
		unsigned kind = *at >> 3 & 15, bytes = ((*at & 7u) + 1) * 2;
		int64_t lines = p->lines;
		at++;
		if (kind == 13 || kind == 14) lines = (int64_t)((uint64_t)lines + (uint64_t)signed_varint(at, end));
		else if (kind >= 10 && kind <= 12) lines += kind - 10;
		int64_t line = (int64_t)((uint64_t)lines + first_line);
		if (p->code + bytes > offset) return (kind == 15 && lines) || line < 0 || line > INT32_MAX ? 0 : (uint32_t)line;
		while (at < end && !(*at & 0x80)) at++;
		*p = (struct tm_python_place){ (size_t)(at - table), p->code + bytes, lines };
	}
	return 0;
}

uint32_t tm_python_line(enum tm_python_lines kind, uint32_t first_line, const uint8_t *table, size_t n, uint32_t offset, struct tm_python_place *place) {
	if (offset == TM_PYTHON_BEFORE || n == 0) return first_line;
	if (place->code > offset) *place = (struct tm_python_place){ 0 };
	switch (kind) {
	case TM_PYTHON_LNOTAB: return lnotab_line(first_line, table, n, offset, place);
	case TM_PYTHON_LINES_310: return line_of_310(first_line, table, n, offset, place);
	case TM_PYTHON_LOCATIONS: return location_line(first_line, table, n, offset, place);
	}
	return 0;
}
