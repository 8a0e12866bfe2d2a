/* tell.h - lines on standard error, in which nothing that a path or an option holds acts on the terminal or begins another line.
 *
 * Threads:  any; a line is written in one piece.
 * Fails:    without memory nothing is said.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_TELL_H
#define TIDEMARK_RECORDER_COLLECTOR_TELL_H

/* "tidemark-record: ", the sentence, and a newline. */
__attribute__((format(printf, 1, 2))) void tm_tell(const char *format, ...);
/* The text with its control characters written out, as \n or \x1b; the caller's to free, NULL: no memory. */
char *tm_escaped(const char *text);

#endif
