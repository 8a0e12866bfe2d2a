/* render.c - JSON and CSV, and what all output has in common: the end of a query, the end of standard output.
 *
 * Both formats are written row by row as the query steps, so that a result of any length needs the memory of one row.
 */
#include "render.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "display_text.h"
#include "json_text.h"
#include "progress.h"
#include "talk.h"

#define DEFAULT_WIDTH 100
#define NARROWEST 40

static int output_error; /* errno of the first write to standard output that failed */

int tm_write_output(const void *data, size_t n) {
	if (output_error) return -1;
	tm_progress_wipe();
	if (!n || fwrite(data, 1, n, stdout) == n) return 0; /* of nothing, data may be NULL */
	output_error = errno ? errno : EIO;
	return -1;
}

int tm_flush_output(void) {
	if (!output_error && (fflush(stdout) || ferror(stdout))) output_error = errno ? errno : EIO;
	return output_error ? -1 : 0;
}

int tm_finish_output(int status) {
	if (tm_flush_output() == 0) return status;
	/* A reader that went away has what it wanted. */
	if (output_error == EPIPE) return status;
	return tm_fail("cannot write standard output: %s", strerror(output_error));
}

void tm_forgive_interrupted_output(void) {
	if (output_error && output_error != EINTR) return;
	output_error = 0;
	clearerr(stdout);
}

size_t tm_terminal_width(void) {
	const char *columns = getenv("COLUMNS");
	long width = columns ? strtol(columns, NULL, 10) : 0;
	struct winsize window;
	if (width <= 0 && isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0) width = window.ws_col;
	if (width <= 0 || width > 100000) return DEFAULT_WIDTH;
	return width < NARROWEST ? NARROWEST : (size_t)width;
}

bool tm_must_fit(void) {
	const char *columns = getenv("COLUMNS");
	return (columns && strtol(columns, NULL, 10) > 0) || isatty(STDOUT_FILENO);
}

static bool colour_wanted(void) {
	const char *refused = getenv("NO_COLOR"), *terminal = getenv("TERM");
	return isatty(STDOUT_FILENO) && !(refused && *refused) && terminal && strcmp(terminal, "dumb") != 0;
}

const char *tm_bold(void) {
	return colour_wanted() ? "\033[1m" : "";
}
const char *tm_plain(void) {
	return colour_wanted() ? "\033[0m" : "";
}

void tm_wrap_words(struct tm_bytes *out, const char *text, size_t used, size_t indent) {
	struct tm_bytes word = TM_BYTES_INIT;
	size_t width = tm_terminal_width(), room = width - indent;
	bool begins = true;
	for (size_t n; *text; text += n + (text[n] == ' ')) {
		n = strcspn(text, " ");
		tm_bytes_clear(&word);
		tm_display_text(&word, text, n);
		if (word.failed) break;
		size_t wide = tm_display_width((const char *)word.data, word.size);
		if (!begins && used + 1 + wide > width) {
			tm_put_raw(out, "\n", 1);
			for (used = 0; used < indent; used++) tm_put_raw(out, " ", 1);
		} else if (!begins) {
			tm_put_raw(out, " ", 1);
			used++;
		}
		used += tm_display_fit(out, (const char *)word.data, word.size, tm_must_fit() ? room : wide, TM_SHORTEN_MIDDLE);
		begins = false;
	}
	out->failed |= word.failed;
	tm_bytes_release(&word);
}

static int print_wrapped(const char *text, const char *before, const char *behind) {
	struct tm_bytes line = TM_BYTES_INIT;
	tm_put_format(&line, "%s", before);
	tm_wrap_words(&line, text, 0, 0);
	tm_put_format(&line, "%s\n", behind);
	int rc = line.failed ? -1 : tm_write_output(line.data, line.size);
	tm_bytes_release(&line);
	return rc ? TM_EXIT_FAILED : 0;
}

int tm_print_title(const char *title) {
	return print_wrapped(title, tm_bold(), tm_plain());
}

int tm_print_words(const char *text) {
	return print_wrapped(text, "", "");
}

/* Writes what was gathered and empties it. */
static int flush_row(struct tm_bytes *row) {
	int rc = row->failed ? -1 : tm_write_output(row->data, row->size);
	tm_bytes_clear(row);
	return rc;
}

static void put_hex(struct tm_bytes *out, const unsigned char *data, size_t n) {
	for (size_t i = 0; i < n; i++) tm_put_format(out, "%02x", data[i]);
}

static void put_json_value(struct tm_bytes *row, sqlite3_stmt *statement, int column) {
	switch (sqlite3_column_type(statement, column)) {
	case SQLITE_INTEGER: tm_put_integer(row, sqlite3_column_int64(statement, column)); break;
	case SQLITE_FLOAT: tm_json_double(row, sqlite3_column_double(statement, column)); break;
	case SQLITE_TEXT: {
		const char *text = (const char *)sqlite3_column_text(statement, column);
		tm_json_string(row, text, (size_t)sqlite3_column_bytes(statement, column));
		break;
	}
	case SQLITE_BLOB: {
		const void *data = sqlite3_column_blob(statement, column);
		tm_put_raw(row, "\"", 1);
		put_hex(row, data, (size_t)sqlite3_column_bytes(statement, column));
		tm_put_raw(row, "\"", 1);
		break;
	}
	default: tm_put_raw(row, "null", 4);
	}
}

int tm_render_json_rows(sqlite3_stmt *statement, uint64_t *rows) {
	struct tm_bytes row = TM_BYTES_INIT;
	int columns = sqlite3_column_count(statement), step = SQLITE_DONE, rc = 0;
	for (; !rc && (step = sqlite3_step(statement)) == SQLITE_ROW; ++*rows) {
		tm_put_format(&row, "%s\n{", *rows ? "," : "");
		for (int i = 0; i < columns; i++) {
			const char *name = sqlite3_column_name(statement, i);
			if (i) tm_put_raw(&row, ",", 1);
			tm_json_string(&row, name, strlen(name));
			tm_put_raw(&row, ":", 1);
			put_json_value(&row, statement, i);
		}
		tm_put_raw(&row, "}", 1);
		rc = flush_row(&row);
	}
	if (!rc && step != SQLITE_DONE) rc = -1;
	tm_bytes_release(&row);
	return rc;
}

int tm_render_json_end(uint64_t rows) {
	return rows ? tm_write_output("\n]\n", 3) : tm_write_output("]\n", 2);
}

int tm_render_json(sqlite3_stmt *statement, uint64_t *rows) {
	*rows = 0;
	int rc = tm_write_output("[", 1);
	if (!rc) rc = tm_render_json_rows(statement, rows);
	return rc ? rc : tm_render_json_end(*rows);
}

/* A field of RFC 4180. CSV has no escapes: control characters that are no white space become U+FFFD, as bad bytes do. */
bool tm_csv_text(struct tm_bytes *row, const char *text, size_t n) {
	const char *end = text + n;
	bool quoted = n && (memchr(text, '"', n) || memchr(text, ',', n) || memchr(text, '\n', n) || memchr(text, '\r', n));
	while (text < end) {
		const char *plain = text;
		while (text < end && *text >= 0x20 && *text < 0x7F && *text != '"') text++;
		tm_put_raw(row, plain, (size_t)(text - plain));
		if (text == end) break;
		uint32_t c;
		size_t length = tm_utf8_next(text, end, &c);
		bool is_control = (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || (c >= 0x7F && c < 0xA0);
		if (c == '"') tm_put_raw(row, "\"\"", 2);
		else if (is_control || c == 0xFFFD) tm_put_raw(row, "\xEF\xBF\xBD", 3);
		else tm_put_raw(row, text, length);
		text += length;
	}
	return quoted;
}

/* An empty text has quotation marks, as it is no NULL. They stand before what needs them is known, and are taken back. */
static void put_csv_text(struct tm_bytes *row, const char *text, size_t n) {
	size_t start = row->size;
	tm_put_raw(row, "\"", 1);
	if (tm_csv_text(row, text, n) || !n) {
		tm_put_raw(row, "\"", 1);
	} else if (!row->failed) {
		row->size--;
		memmove(row->data + start, row->data + start + 1, row->size - start);
	}
}

static void put_csv_value(struct tm_bytes *row, sqlite3_stmt *statement, int column) {
	int type = sqlite3_column_type(statement, column);
	if (type == SQLITE_NULL) return;
	if (type == SQLITE_BLOB) {
		put_hex(row, sqlite3_column_blob(statement, column), (size_t)sqlite3_column_bytes(statement, column));
	} else if (type == SQLITE_INTEGER) {
		tm_put_integer(row, sqlite3_column_int64(statement, column));
	} else if (type == SQLITE_FLOAT && isfinite(sqlite3_column_double(statement, column))) {
		tm_json_double(row, sqlite3_column_double(statement, column));
	} else { /* SQLite's words for infinity are Inf and -Inf, which readers of CSV know */
		const char *text = (const char *)sqlite3_column_text(statement, column);
		put_csv_text(row, text, (size_t)sqlite3_column_bytes(statement, column));
	}
}

void tm_csv_header(struct tm_bytes *row, sqlite3_stmt *statement) {
	int columns = sqlite3_column_count(statement);
	for (int i = 0; i < columns; i++) {
		const char *name = sqlite3_column_name(statement, i);
		if (i) tm_put_raw(row, ",", 1);
		put_csv_text(row, name, strlen(name));
	}
	tm_put_raw(row, "\n", 1);
}

void tm_csv_values(struct tm_bytes *row, sqlite3_stmt *statement, int columns) {
	for (int i = 0; i < columns; i++) {
		if (i) tm_put_raw(row, ",", 1);
		put_csv_value(row, statement, i);
	}
}

int tm_render_csv_rows(sqlite3_stmt *statement, bool with_header, uint64_t *rows) {
	struct tm_bytes row = TM_BYTES_INIT;
	int step = SQLITE_DONE, columns = sqlite3_column_count(statement);
	if (with_header) tm_csv_header(&row, statement);
	int rc = flush_row(&row);
	for (; !rc && (step = sqlite3_step(statement)) == SQLITE_ROW; ++*rows) {
		tm_csv_values(&row, statement, columns);
		tm_put_raw(&row, "\n", 1);
		rc = flush_row(&row);
	}
	tm_bytes_release(&row);
	return rc || step != SQLITE_DONE ? -1 : 0;
}

int tm_render_csv(sqlite3_stmt *statement, uint64_t *rows) {
	*rows = 0;
	return tm_render_csv_rows(statement, true, rows);
}

int tm_render(sqlite3_stmt *statement, const struct tm_render_plan *plan, uint64_t *rows) {
	uint64_t ignored;
	int rc;
	if (!rows) rows = &ignored;
	if (plan->format == TM_FORMAT_JSON && plan->in_array) rc = tm_render_json_rows(statement, rows);
	else if (plan->format == TM_FORMAT_JSON) rc = tm_render_json(statement, rows);
	else if (plan->format == TM_FORMAT_CSV) rc = tm_render_csv(statement, rows);
	else rc = tm_render_table(statement, plan, rows);
	if (!rc) return TM_EXIT_DONE;
	if (output_error) return TM_EXIT_FAILED; /* tm_finish_output() says it */
	sqlite3 *db = sqlite3_db_handle(statement);
	if (sqlite3_errcode(db) == SQLITE_INTERRUPT) return tm_fail("interrupted");
	if (sqlite3_errcode(db) == SQLITE_DONE || sqlite3_errcode(db) == SQLITE_ROW) return tm_fail("out of memory");
	if (sqlite3_errcode(db) == SQLITE_AUTH || (sqlite3_errcode(db) & 0xff) == SQLITE_READONLY)
		return tm_fail("cannot run the query: the database is opened read-only");
	return tm_fail("cannot read '%s': %s", plan->path, sqlite3_errmsg(db));
}
