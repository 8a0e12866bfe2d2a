/* wrappers.c - tells an allocator's own functions from the program's; see wrappers.h.
 *
 * Demangled templates carry their return type ("int* std::allocator<int>::allocate(...)"), so a pattern may match behind any space that
 * stands outside of brackets, too.
 */
#include "wrappers.h"

#include "../schema/wrapper_names.h"

#include <pthread.h>
#include <string.h>

#define LIST_MAX 512u

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

/* The lists by the first letter: most names have one that few patterns have, and a trace has names by the hundred thousand. */
struct index {
	const char *const *names;
	size_t count;
	uint16_t begin[257]; /* of each letter's patterns in `sorted` */
	const char *sorted[LIST_MAX];
};

#define INDEX(list) { .names = list, .count = sizeof(list) / sizeof *(list) }
static struct index wrappers = INDEX(wrapper_names), operators_new = INDEX(operator_new_names), inlined_allocators = INDEX(inlined_allocator_names);
_Static_assert(sizeof wrapper_names / sizeof *wrapper_names <= LIST_MAX, "room for the longest list");
static pthread_once_t sorted = PTHREAD_ONCE_INIT;

static void sort(struct index *x) {
	size_t n = 0;
	for (unsigned letter = 0; letter < 256; letter++) {
		x->begin[letter] = (uint16_t)n;
		for (size_t i = 0; i < x->count; i++)
			if ((unsigned char)x->names[i][0] == letter) x->sorted[n++] = x->names[i];
	}
	x->begin[256] = (uint16_t)n;
}

static void sort_all(void) {
	sort(&wrappers);
	sort(&operators_new);
	sort(&inlined_allocators);
}

static bool in_list(const struct index *x, const char *p, const char *end) {
	unsigned letter = (unsigned char)*p;
	for (unsigned i = x->begin[letter]; i < x->begin[letter + 1]; i++)
		if (matches(x->sorted[i], p, end)) return true;
	return false;
}

/* Only as a whole name: a class's own operator new is the program's. */
static bool is_listed(const struct index *x, struct tm_text function) {
	pthread_once(&sorted, sort_all);
	return function.size && in_list(x, function.data, function.data + function.size);
}

bool tm_is_wrapper(struct tm_text function) {
	const char *end = function.data + function.size;
	int depth = 0;
	if (is_listed(&wrappers, function)) return true;
	if (!function.size || !memchr(function.data, ' ', function.size)) return false;
	for (const char *p = function.data; p < end; p++) {
		if (*p == '<' || *p == '(' || *p == '[') depth++;
		else if ((*p == '>' || *p == ')' || *p == ']') && depth) depth--;
		else if (*p == ' ' && depth == 0 && p + 1 < end && in_list(&wrappers, p + 1, end)) return true;
	}
	return false;
}

bool tm_is_wrapper_module(struct tm_text path) {
	static const char *const names[] = {
#define X(name) name,
		TM_WRAPPER_MODULES(X)
#undef X
	};
	size_t at = path.size;
	while (at && path.data[at - 1] != '/') at--;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		size_t n = strlen(names[i]);
		if (path.size - at >= n && memcmp(path.data + at, names[i], n) == 0) return true;
	}
	return false;
}

bool tm_is_operator_new(struct tm_text function) {
	return is_listed(&operators_new, function);
}

bool tm_is_inlined_allocator(struct tm_text function) {
	return is_listed(&inlined_allocators, function);
}
