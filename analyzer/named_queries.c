/* named_queries.c - the questions of schema/queries.sql, by name; see named_queries.h. */
#include "named_queries.h"

#include <string.h>

#define MARK "\n-- @"

extern const char tm_queries_sql[]; /* compiled in by the build */

bool tm_named_query_next(const char **at, struct tm_named_query *out) {
	const char *begin = strstr(*at ? *at : tm_queries_sql, MARK);
	if (!begin) return false;
	const char *name = begin + strlen(MARK), *end = strstr(name, MARK);
	*out = (struct tm_named_query){ .name = name, .name_bytes = strcspn(name, ":\n"), .text = begin + 1 };
	out->question = name + out->name_bytes + strspn(name + out->name_bytes, ": ");
	out->question_bytes = strcspn(out->question, "\n");
	out->text_bytes = (end ? end : name + strlen(name)) - out->text;
	*at = out->text + out->text_bytes;
	return true;
}

bool tm_named_query_find(const char *name, struct tm_named_query *out) {
	for (const char *at = NULL; tm_named_query_next(&at, out);)
		if (strlen(name) == out->name_bytes && memcmp(name, out->name, out->name_bytes) == 0) return true;
	return false;
}
