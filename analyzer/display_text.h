/* display_text.h - bytes from a traced program, made fit for a person's terminal.
 *
 * Names in a trace are whatever the program's symbols, paths and marks hold: control characters, broken UTF-8, marks that turn the
 * reading direction, 100 kB of template arguments. Everything a table prints passes through here; JSON and CSV have their own rules.
 * Width is counted in terminal columns (wcwidth of the C.UTF-8 locale, which tm_display_init() selects).
 */
#ifndef TIDEMARK_ANALYZER_DISPLAY_TEXT_H
#define TIDEMARK_ANALYZER_DISPLAY_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "schema/wire.h"

/* Call once, first: learns whether the user's locale is UTF-8 (tm_display_unicode()) and then fixes LC_CTYPE so that widths are the same
 * for everybody. */
void tm_display_init(void);
/* May bars and ellipses use characters beyond ASCII? */
bool tm_display_unicode(void);

/* Decodes one character at p (p < end): its length in bytes; *code is the character, or U+FFFD for a byte that is not UTF-8 (length 1).
 * Overlong forms, surrogates and values above U+10FFFF are not UTF-8. */
size_t tm_utf8_next(const char *p, const char *end, uint32_t *code);

/* Characters that change the direction of what follows, or hide: a name could make a line read as something else with them. */
bool tm_is_deceptive(uint32_t code);

/* Appends the text for display: control characters as \n or \x1b, direction marks as \u202e, bytes that are not UTF-8 as U+FFFD. */
void tm_display_text(struct tm_bytes *out, const char *text, size_t n);

/* The same of a name that stands alone: in quotes where nobody would see it. */
void tm_display_name(struct tm_bytes *out, const char *name, size_t n);

/* Columns that displayable text takes. */
size_t tm_display_width(const char *text, size_t n);

enum tm_shorten { TM_SHORTEN_END, TM_SHORTEN_MIDDLE, TM_SHORTEN_START };

/* Appends displayable text in at most `width` columns, leaving out its end, middle or start where it is longer. Returns the columns used.
 * */
size_t tm_display_fit(struct tm_bytes *out, const char *text, size_t n, size_t width, enum tm_shorten where);

#endif
