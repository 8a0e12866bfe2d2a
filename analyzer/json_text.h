/* json_text.h - strings and numbers as JSON, whatever bytes they hold.
 *
 * Used by the JSON output of every listing and by the Chrome export. Bytes that are not UTF-8 become U+FFFD; control characters and marks
 * that turn the reading direction are written as \uXXXX, so that the output is plain on a terminal, too.
 */
#ifndef TIDEMARK_ANALYZER_JSON_TEXT_H
#define TIDEMARK_ANALYZER_JSON_TEXT_H

#include <stddef.h>

#include "schema/wire.h"

/* Appends the text with its quotation marks. */
void tm_json_string(struct tm_bytes *out, const char *text, size_t n);

/* Appends the shortest of 15 or 17 digits that reads back as the same number; null for infinities. */
void tm_json_double(struct tm_bytes *out, double number);

/* Appends formatted text; at most 256 bytes. */
void tm_put_format(struct tm_bytes *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Appends a number: for files with millions of them, a tenth of the time that a format takes. */
void tm_put_integer(struct tm_bytes *out, int64_t number);
void tm_put_hexadecimal(struct tm_bytes *out, uint64_t number);

#endif
