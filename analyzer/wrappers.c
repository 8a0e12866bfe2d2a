/* wrappers.c - tells an allocator's own functions from the program's; see wrappers.h.
 *
 * Demangled templates carry their return type ("int* std::allocator<int>::allocate(...)"), so a pattern may match behind any space that
 * stands outside of brackets, too.
 */
#include "wrappers.h"

#include "../schema/wrapper_names.h"

static const char *const operator_new_names[] = {
#define X(pattern) pattern,
	TM_OPERATOR_NEW_NAMES(X)
#undef X
};

static const char *const inlined_allocator_names[] = {
#define X(pattern) pattern,
	TM_INLINED_ALLOCATOR_NAMES(X)
#undef X
};

static const char *const wrapper_names[] = {
#define X(pattern) pattern,
	TM_WRAPPER_NAMES(X)
#undef X
};

static bool name_ends(const char *p, const char *end) {
	return p == end || strchr("(.@ [", *p);
}

/* A star takes as little as it can; the last one takes the rest. */
static bool matches(const char *pattern, const char *p, const char *end) {
	const char *star = NULL, *retry = NULL;
	for (;;) {
		if (*pattern == '*') {
			if (!pattern[1]) return true;
			star = ++pattern;
			retry = p;
		} else if (!*pattern && name_ends(p, end)) {
			return true;
		} else if (*pattern && p < end && *pattern == *p) {
			pattern++;
			p++;
		} else if (star && retry < end) {
			pattern = star;
			p = ++retry;
		} else {
			return false;
		}
	}
}

static bool in_list(const char *const *list, size_t n, const char *p, const char *end) {
	for (size_t i = 0; i < n; i++)
		if (*list[i] == *p && matches(list[i], p, end)) return true;
	return false;
}

static bool found(const char *const *list, size_t n, struct tm_text function) {
	if (!function.size) return false;
	const char *end = function.data + function.size;
	int depth = 0;
	for (const char *p = function.data; p < end; p++) {
		if ((p == function.data || (p[-1] == ' ' && depth == 0)) && in_list(list, n, p, end)) return true;
		if (*p == '<' || *p == '(' || *p == '[') depth++;
		else if ((*p == '>' || *p == ')' || *p == ']') && depth) depth--;
	}
	return false;
}

bool tm_is_wrapper(struct tm_text function) {
	return found(wrapper_names, sizeof wrapper_names / sizeof *wrapper_names, function);
}

/* Only as a whole name: a class's own operator new is the program's. */
#define IS_LISTED(names, text) ((text).size && in_list(names, sizeof(names) / sizeof *(names), (text).data, (text).data + (text).size))

bool tm_is_operator_new(struct tm_text function) {
	return IS_LISTED(operator_new_names, function);
}

bool tm_is_inlined_allocator(struct tm_text function) {
	return IS_LISTED(inlined_allocator_names, function);
}
