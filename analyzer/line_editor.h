/* line_editor.h - lines from a terminal, with history and completion where a library for that is to be had.
 *
 * Flow:     terminal -> libedit or readline, else getline() -> cmd_query.c
 * Library:  libedit (else readline, which has the same functions) is looked for at run time and not linked: the analyzer is carried to machines that have
 *           neither, and works there with a plain prompt. TERM=dumb, or no terminal, gives the plain one, too.
 * Owns:     the words to complete; the history, kept in ~/.tidemark_history.
 * Threads:  one editor in a process.
 */
#ifndef TIDEMARK_ANALYZER_LINE_EDITOR_H
#define TIDEMARK_ANALYZER_LINE_EDITOR_H

#include <stdio.h>

/* Takes over `words`: texts from malloc(), behind the last one NULL; NULL: nothing to complete. */
void tm_line_editor_start(char **words);
/* The next line with its newline, to be freed; NULL at the end of input, or interrupted (errno is EINTR then, else 0). */
char *tm_line_editor_read(const char *prompt);
/* Where the plain prompt is written: standard output is data where it is no terminal. */
FILE *tm_line_editor_talk(void);
void tm_line_editor_stop(void);

#endif
