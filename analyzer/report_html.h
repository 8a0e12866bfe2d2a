/* report_html.h - names, sizes and times as the report's text: escaped, and the same in its tables and in its script's data.
 *
 * Names in a trace are whatever a program's symbols hold. They pass through display_text.h first (control characters and marks that
 * turn the reading direction become visible escapes, bytes that are not UTF-8 U+FFFD), are cut where they are too long to read, and
 * only then become HTML or JSON.
 * Fails:    out of memory is remembered in the bytes.
 */
#ifndef TIDEMARK_ANALYZER_REPORT_HTML_H
#define TIDEMARK_ANALYZER_REPORT_HTML_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "schema/wire.h"

#define TM_HTML_NAME_BYTES 600 /* a name is cut there */

/* Mark-up of our own. */
void tm_html(struct tm_bytes *out, const char *markup);
/* A name as text, and inside of a JSON string with its quotation marks. */
void tm_html_name(struct tm_bytes *out, const char *name, size_t n, size_t limit);
void tm_json_name(struct tm_bytes *out, const char *name, size_t n, size_t limit);
/* The same of a column; otherwise: what stands for NULL. */
void tm_html_column(struct tm_bytes *out, sqlite3_stmt *s, int column, const char *otherwise);

/* "12.3 MiB", with the bytes in full as its title; an estimate begins with a sign. */
void tm_html_size(struct tm_bytes *out, int64_t bytes, bool estimated);
void tm_html_count(struct tm_bytes *out, int64_t count, bool estimated);
void tm_html_time(struct tm_bytes *out, int64_t ns);
/* part of whole as "12 %"; nothing where there is no whole. */
void tm_html_share(struct tm_bytes *out, int64_t part, int64_t whole);

/* Cells of a table, whose data-v is what the page sorts by; of a column that is NULL: a dash. */
enum tm_cell { TM_CELL_SIZE, TM_CELL_COUNT, TM_CELL_TIME, TM_CELL_NUMBER };
void tm_html_cell(struct tm_bytes *out, enum tm_cell kind, int64_t value, bool estimated);
void tm_html_column_cell(struct tm_bytes *out, enum tm_cell kind, sqlite3_stmt *s, int column, bool estimated);
void tm_html_text_cell(struct tm_bytes *out, sqlite3_stmt *s, int column, const char *otherwise);
/* A function with its file and line (columns column, column + 1, column + 2), as the contents of a cell. */
void tm_html_site(struct tm_bytes *out, sqlite3_stmt *s, int column);

#endif
