/* tell.c - what is said to a person: see tell.h. */
#include "tell.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 0: none. Those of two bytes are the ones of Latin-1 (0x80 to 0x9F) in UTF-8, some of which are the same to a terminal as an escape. */
static size_t control_bytes(const unsigned char *p) {
	if (*p < 0x20 || *p == 0x7F) return 1;
	return p[0] == 0xC2 && p[1] >= 0x80 && p[1] < 0xA0 ? 2 : 0;
}

char *tm_escaped(const char *text) {
	static const char named[] = "abtnvfr"; /* 0x07 to 0x0D */
	char *escaped = malloc(4 * strlen(text) + 1), *to = escaped;
	if (!escaped) return NULL;
	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		size_t n = control_bytes(p);
		p += n == 2;
		if (!n) *to++ = (char)*p;
		else if (*p >= 0x07 && *p <= 0x0D) to += sprintf(to, "\\%c", named[*p - 7]);
		else to += sprintf(to, "\\x%02x", *p);
	}
	*to = 0;
	return escaped;
}

void tm_tell(const char *format, ...) {
	char *text = NULL;
	int error = errno;
	va_list arguments;
	va_start(arguments, format);
	bool done = vasprintf(&text, format, arguments) >= 0;
	va_end(arguments);
	char *escaped = done ? tm_escaped(text) : NULL;
	if (escaped) fprintf(stderr, "tidemark-record: %s\n", escaped);
	free(escaped);
	if (done) free(text);
	errno = error;
}
