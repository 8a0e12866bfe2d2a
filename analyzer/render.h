/* render.h - rows of a query as a table, as JSON or as CSV.
 *
 * Flow:     listing.c, cmd_query.c -> sqlite3_stmt -> here -> standard output
 * Table:    for people: sizes and times with units, widths that suit the terminal, names shortened.
 * JSON:     one array of objects whose keys are the columns; integers exact, text as valid UTF-8 (bad bytes become U+FFFD), NULL null.
 * CSV:      quoted as RFC 4180 has it, with a header line; lines end in a newline alone, as Unix tools like them. NULL is an empty
 *           field, an empty text is "". CSV has no escapes: control characters other than white space become U+FFFD.
 * Memory:   a table's widths come from its first rows; the others stream through, as JSON and CSV do.
 * Fails:    a failing query, or standard output that cannot be written: one line on standard error, TM_EXIT_FAILED.
 */
#ifndef TIDEMARK_ANALYZER_RENDER_H
#define TIDEMARK_ANALYZER_RENDER_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "schema/wire.h"
#include "options.h"

struct tm_render_plan {
	enum tm_format format;
	const char *path;          /* what is read, for a message */
	const char *const *hidden; /* columns that a table leaves out, ends with NULL; may be NULL */
	const char *bar_column;    /* a table draws a bar for this column; NULL: none */
	double bar_full;           /* the value of a full bar */
	const char *share_column;  /* a terminal that has room left gets a bar for this column, the highest shown being full; NULL: none */
	const char *main_column;   /* what the rows are about, as what they are sorted by: a table leaves it out last; NULL: unknown */
	const char *const *estimated; /* columns whose table cells are marked with ~, ends with NULL; may be NULL */
	const char *null_heap;        /* what a table shows for heap NULL; NULL: "-" */
	const char *named_by;         /* a table shows the column `value` as if it were named by this one; NULL: no */
	const char *value_as;         /* ... as if it had this name; NULL: no */
	uint64_t rows_max;            /* a table shows that many, and counts the rest; 0: all */
	bool in_array;                /* JSON: as tm_render_json_rows() */
};

/* Steps the statement to its end. *rows: how many there were; may be NULL. */
int tm_render(sqlite3_stmt *statement, const struct tm_render_plan *plan, uint64_t *rows);

/* The three forms. 0, or -1 when the query failed or standard output cannot be written (nothing is said yet). */
int tm_render_table(sqlite3_stmt *statement, const struct tm_render_plan *plan, uint64_t *rows);
int tm_render_json(sqlite3_stmt *statement, uint64_t *rows);
int tm_render_csv(sqlite3_stmt *statement, uint64_t *rows);

/* For several queries in one output: their rows alone, *rows counting on. JSON's "[" is written before, its end after. */
int tm_render_json_rows(sqlite3_stmt *statement, uint64_t *rows);
int tm_render_json_end(uint64_t rows);
int tm_render_csv_rows(sqlite3_stmt *statement, bool with_header, uint64_t *rows);

/* Appends the line of names, or the first values of the current row, as CSV. */
void tm_csv_header(struct tm_bytes *row, sqlite3_stmt *statement);
void tm_csv_values(struct tm_bytes *row, sqlite3_stmt *statement, int columns);
/* Appends what stands between the quotation marks of a field; true: it needs them. */
bool tm_csv_text(struct tm_bytes *row, const char *text, size_t n);

/* Appends a value of a column of this name as tables show it: with units, made harmless for the terminal. */
void tm_render_value(struct tm_bytes *out, sqlite3_stmt *statement, int column, const char *name);

/* Writes to standard output; -1 when that failed, now or before. */
int tm_write_output(const void *data, size_t n);

/* The columns that a table may fill: COLUMNS, else the terminal's, else 100. */
size_t tm_terminal_width(void);

/* Must lines fit? They must on a terminal, and where COLUMNS says how wide they may be; else, in a pipe or a file, names stay whole. */
bool tm_must_fit(void);

/* Appends the words of a text at the start of a line of which `used` columns are indentation; a line that would be too wide ends before,
 * and the next begins with `indent` spaces. */
void tm_wrap_words(struct tm_bytes *out, const char *text, size_t used, size_t indent);

/* A line above a table, and one of plain words; both are wrapped. 0, or TM_EXIT_FAILED. */
int tm_print_title(const char *title);
int tm_print_words(const char *text);

/* Escape sequences for a heading, or "" where no colour is wanted. */
const char *tm_bold(void);
const char *tm_plain(void);

/* Flushes standard output, before something is said that follows it; -1 when a write failed, now or before: tm_finish_output() says why. */
int tm_flush_output(void);
/* Flushes standard output: status, or TM_EXIT_FAILED (said) if something could not be written. */
int tm_finish_output(int status);
/* After Ctrl-C at a prompt: what was being written then was given up with the line or the statement, and that the rest of it is missing is no failure. */
void tm_forgive_interrupted_output(void);

#endif
