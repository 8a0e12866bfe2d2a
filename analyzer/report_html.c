/* report_html.c - text for the report's page; see report_html.h. */
#include "report_html.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schema/units.h"
#include "display_text.h"
#include "json_text.h"

void tm_html(struct tm_bytes *out, const char *markup) {
	tm_put_raw(out, markup, strlen(markup));
}

/* Appends the name for display, cut at a character. */
static void put_clean(struct tm_bytes *out, const char *name, size_t n, size_t limit) {
	size_t kept = n > limit ? limit : n;
	while (kept < n && kept && ((unsigned char)name[kept] & 0xC0) == 0x80) kept--;
	tm_display_name(out, name, kept);
	if (kept < n) {
		char count[TM_UNIT_TEXT_MAX];
		tm_put_format(out, "\xE2\x80\xA6 (%s bytes)", tm_format_count(n, count));
	}
}

static void put_escaped(struct tm_bytes *out, const char *text, size_t n) {
	for (size_t i = 0; i < n; i++) {
		switch (text[i]) {
		case '&': tm_html(out, "&amp;"); break;
		case '<': tm_html(out, "&lt;"); break;
		case '>': tm_html(out, "&gt;"); break;
		case '"': tm_html(out, "&quot;"); break;
		case '\'': tm_html(out, "&#39;"); break;
		default: tm_put_raw(out, text + i, 1);
		}
	}
}

void tm_html_name(struct tm_bytes *out, const char *name, size_t n, size_t limit) {
	struct tm_bytes clean = TM_BYTES_INIT;
	put_clean(&clean, name, n, limit);
	tm_html(out, "<bdi>");
	put_escaped(out, (const char *)clean.data, clean.size);
	tm_html(out, "</bdi>");
	out->failed |= clean.failed;
	tm_bytes_release(&clean);
}

void tm_json_name(struct tm_bytes *out, const char *name, size_t n, size_t limit) {
	struct tm_bytes clean = TM_BYTES_INIT;
	put_clean(&clean, name, n, limit);
	tm_json_string(out, clean.size ? (const char *)clean.data : "", clean.size);
	out->failed |= clean.failed;
	tm_bytes_release(&clean);
}

void tm_html_column(struct tm_bytes *out, sqlite3_stmt *s, int column, const char *otherwise) {
	const char *text = (const char *)sqlite3_column_text(s, column);
	if (text) tm_html_name(out, text, (size_t)sqlite3_column_bytes(s, column), TM_HTML_NAME_BYTES);
	else tm_html(out, otherwise);
}

static uint64_t magnitude(int64_t n) {
	return n < 0 ? (uint64_t)0 - (uint64_t)n : (uint64_t)n;
}

/* The value in words; where these round, in full behind it as a title. */
static void put_value(struct tm_bytes *out, enum tm_cell kind, int64_t value, bool estimated) {
	char text[TM_UNIT_TEXT_MAX];
	tm_html(out, estimated ? "\xE2\x89\x88\xC2\xA0" : "");
	tm_html(out, value < 0 ? "\xE2\x88\x92" : "");
	switch (kind) {
	case TM_CELL_SIZE: tm_html(out, tm_format_size(magnitude(value), text)); break;
	case TM_CELL_TIME: tm_html(out, tm_format_time(magnitude(value), text)); break;
	default: tm_html(out, tm_format_count(magnitude(value), text));
	}
}

static void put_title(struct tm_bytes *out, enum tm_cell kind, int64_t value) {
	char text[TM_UNIT_TEXT_MAX];
	if (kind != TM_CELL_SIZE && kind != TM_CELL_TIME) return;
	tm_put_format(out, " title=\"%s%s %s\"", value < 0 ? "-" : "", tm_format_count(magnitude(value), text),
		      kind == TM_CELL_SIZE ? "bytes" : "ns");
}

static void put_inline(struct tm_bytes *out, enum tm_cell kind, int64_t value, bool estimated) {
	tm_html(out, "<b");
	put_title(out, kind, value);
	tm_html(out, ">");
	put_value(out, kind, value, estimated);
	tm_html(out, "</b>");
}

void tm_html_size(struct tm_bytes *out, int64_t bytes, bool estimated) {
	put_inline(out, TM_CELL_SIZE, bytes, estimated);
}

void tm_html_count(struct tm_bytes *out, int64_t count, bool estimated) {
	put_inline(out, TM_CELL_COUNT, count, estimated);
}

void tm_html_time(struct tm_bytes *out, int64_t ns) {
	put_inline(out, TM_CELL_TIME, ns, false);
}

void tm_html_share(struct tm_bytes *out, int64_t part, int64_t whole) {
	double percent = whole > 0 ? 100.0 * (double)part / (double)whole : 0;
	if (whole > 0) tm_put_format(out, percent > 0 && percent < 0.95 ? "%.1f\xC2\xA0%%" : "%.0f\xC2\xA0%%", percent);
}

void tm_html_cell(struct tm_bytes *out, enum tm_cell kind, int64_t value, bool estimated) {
	tm_put_format(out, "<td class=\"n\" data-v=\"%lld\"", (long long)value);
	put_title(out, kind, value);
	tm_html(out, ">");
	put_value(out, kind, value, estimated);
	tm_html(out, "</td>");
}

void tm_html_column_cell(struct tm_bytes *out, enum tm_cell kind, sqlite3_stmt *s, int column, bool estimated) {
	if (sqlite3_column_type(s, column) == SQLITE_NULL) tm_html(out, "<td class=\"n\">\xE2\x80\x93</td>");
	else if (kind == TM_CELL_NUMBER)
		tm_put_format(out, "<td class=\"n\" data-v=\"%.9g\">%.3g</td>", sqlite3_column_double(s, column),
			      sqlite3_column_double(s, column));
	else tm_html_cell(out, kind, sqlite3_column_int64(s, column), estimated);
}

void tm_html_text_cell(struct tm_bytes *out, sqlite3_stmt *s, int column, const char *otherwise) {
	tm_html(out, "<td>");
	tm_html_column(out, s, column, otherwise);
	tm_html(out, "</td>");
}

void tm_html_site(struct tm_bytes *out, sqlite3_stmt *s, int column) {
	tm_html(out, "<code>");
	tm_html_column(out, s, column, "(no call stack)");
	tm_html(out, "</code>");
	const char *file = (const char *)sqlite3_column_text(s, column + 1);
	if (!file) return;
	const char *slash = strrchr(file, '/');
	const char *base = slash && slash[1] ? slash + 1 : file;
	tm_html(out, " <small title=\"");
	struct tm_bytes clean = TM_BYTES_INIT;
	put_clean(&clean, file, (size_t)sqlite3_column_bytes(s, column + 1), TM_HTML_NAME_BYTES);
	put_escaped(out, (const char *)clean.data, clean.size);
	out->failed |= clean.failed;
	tm_bytes_release(&clean);
	tm_html(out, "\">");
	tm_html_name(out, base, strlen(base), TM_HTML_NAME_BYTES);
	if (sqlite3_column_int64(s, column + 2) > 0) tm_put_format(out, ":%lld", (long long)sqlite3_column_int64(s, column + 2));
	tm_html(out, "</small>");
}
