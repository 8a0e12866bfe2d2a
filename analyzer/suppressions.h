/* suppressions.h - leaks that somebody knows about: lists in the syntax of LeakSanitizer, and those that tidemark brings along.
 *
 * Flow:     leaks.c (at import, the list of our own and what the program itself brings), cmd_leaks.c and cmd_check.c (--suppressions=FILE) -> here
 * Syntax:   a line is `leak:PATTERN`, empty, or a comment that begins with #. The pattern is looked for anywhere in a function's name, a source
 *           file's or a module's, of any frame of the stack; * stands for anything, ^ for the beginning and $ for the end.
 * Owns:     the patterns, which are copies.
 * Threads:  none of its own; a list that is not changed may be read by several.
 * Fails:    with a message that says what is wrong in which line.
 */
#ifndef TIDEMARK_ANALYZER_SUPPRESSIONS_H
#define TIDEMARK_ANALYZER_SUPPRESSIONS_H

#include <sqlite3.h>

#include "../schema/records.h"
#include "../schema/array.h"

struct tm_suppression {
	char *pattern;
	struct tm_text part; /* of the pattern: what a text must have in it */
	size_t shorter;      /* number of the last rule before it whose part this one's begins with, 0 none */
};

struct tm_suppressions {
	TM_ARRAY(struct tm_suppression) rules; /* in the order of their parts */
};

/* A frame as it is compared; empty texts are unknown. */
struct tm_suppression_frame {
	struct tm_text function, file, module;
};

/* Adds the list in `text`. 0, -1 with a message: "line 3: ..."; or -2: "out of memory". */
int tm_suppressions_add(struct tm_suppressions *s, const char *text, size_t size, char *error, size_t error_size);
void tm_suppressions_release(struct tm_suppressions *s);

/* Some pattern matches this frame. */
bool tm_suppressions_match(const struct tm_suppressions *s, const struct tm_suppression_frame *frame);

/* The same for tidemark's own list; innermost: the frame is the innermost of its stack. */
bool tm_suppressions_known(const struct tm_suppression_frame *frame, bool innermost);

/* One pattern against one text, as LeakSanitizer does it. */
bool tm_suppression_pattern_matches(const char *pattern, struct tm_text text);

/* Reads a file of suppressions: 0, or an exit status after saying what is wrong. */
int tm_suppressions_read(struct tm_suppressions *s, const char *path);

/* The ids of suppressed stacks of table leak_stack, as "1, 2, 3" ("" for none), to be freed with sqlite3_free(); NULL after a failure (said). */
char *tm_suppressed_leaks(sqlite3 *db, const struct tm_suppressions *s, const char *path);

#endif
