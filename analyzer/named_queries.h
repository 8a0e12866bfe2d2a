/* named_queries.h - the questions of schema/queries.sql, by name.
 *
 * Flow:     schema/queries.sql, compiled in -> here -> cmd_query.c
 * Owns:     nothing: texts look into the compiled file.
 */
#ifndef TIDEMARK_ANALYZER_NAMED_QUERIES_H
#define TIDEMARK_ANALYZER_NAMED_QUERIES_H

#include <stdbool.h>
#include <stddef.h>

struct tm_named_query {
	const char *name, *question, *text; /* text: its comments and SQL */
	size_t name_bytes, question_bytes, text_bytes;
};

/* The query at or behind *at, which begins as NULL; false: there is none. */
bool tm_named_query_next(const char **at, struct tm_named_query *out);
bool tm_named_query_find(const char *name, struct tm_named_query *out);

#endif
