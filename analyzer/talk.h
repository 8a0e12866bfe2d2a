/* talk.h - what the analyzer says on standard error, and the exit codes it leaves with.
 *
 * Standard output is data, standard error is talk: every failure is exactly one line there, whatever bytes a file name or a name from
 * a trace holds.
 * Owns:     nothing.
 * Threads:  each call writes its line with one write.
 */
#ifndef TIDEMARK_ANALYZER_TALK_H
#define TIDEMARK_ANALYZER_TALK_H

enum tm_exit {
	TM_EXIT_DONE = 0,
	TM_EXIT_FAILED = 1,
	TM_EXIT_USAGE = 2,
	TM_EXIT_FOUND = 3, /* `check` found something */
};

/* "tidemark: MESSAGE". */
void tm_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same for what failed; returns TM_EXIT_FAILED, so that a caller can leave with it. */
int tm_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "tidemark: MESSAGE (see 'tidemark VERB --help')"; verb may be NULL. Returns TM_EXIT_USAGE. */
int tm_misuse(const char *verb, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
