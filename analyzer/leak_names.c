/* leak_names.c - what the names of functions and modules say to leaks.c; see leak_names.h. */
#include "leak_names.h"

#include <string.h>

static bool starts(const char *p, const char *end, const char *word) {
	size_t n = strlen(word);
	return (size_t)(end - p) >= n && memcmp(p, word, n) == 0;
}

/* The C++ library's own, behind a return type or not. */
bool tm_is_library_function(struct tm_text function) {
	if (!function.size) return false;
	const char *end = function.data + function.size;
	int depth = 0;
	for (const char *s = function.data; s < end && *s != '('; s++) {
		bool begins = s == function.data || (s[-1] == ' ' && depth == 0);
		if (begins && (starts(s, end, "std::") || starts(s, end, "__gnu_cxx::"))) return true;
		depth += (*s == '<') - (*s == '>');
	}
	return false;
}

/* All of the C library and of libstdc++. */
bool tm_is_library(struct tm_text module) {
	const char *end = module.data + module.size;
	for (const char *s = end; s > module.data; s--)
		if (s[-1] == '/') return starts(s, end, "libstdc++") || starts(s, end, "libc.so") || starts(s, end, "libc-2");
	return false;
}

/* A function's name in a sentence: without its parameters, and not all of a long one. */
int tm_name_length(struct tm_text name) {
	size_t n = 0, depth = 0;
	for (; n < name.size && n < 100; n++) {
		if (name.data[n] == '(' && n && !depth && name.data[n - 1] != ':') break;
		depth += name.data[n] == '<';
		depth -= name.data[n] == '>' && depth;
	}
	return (int)n;
}
