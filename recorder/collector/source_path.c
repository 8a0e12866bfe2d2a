/* source_path.c - source files are named by debug information in the words of a build system ("/b/src/../include/./x.h"); reports group by
 * file, so each has one spelling here.
 */
#include "recorder/collector/source_path.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Whether the last component of a path of n bytes can be taken off by a "..". */
static bool can_drop(const char *path, size_t n) {
	if (!n || path[n - 1] == '/') return false;
	return !(n >= 2 && !memcmp(path + n - 2, "..", 2) && (n == 2 || path[n - 3] == '/'));
}

static size_t drop_last(const char *path, size_t n) {
	while (n && path[n - 1] != '/') n--;
	return n > 1 ? n - 1 : n;
}

/* Appends one component to the n bytes at path; returns the new length. The root swallows "..". */
static size_t append(char *path, size_t n, const char *part, size_t length) {
	bool up = length == 2 && !memcmp(part, "..", 2);
	if (!length || (length == 1 && *part == '.')) return n;
	if (up && n == 1 && *path == '/') return n;
	if (up && can_drop(path, n)) return drop_last(path, n);
	if (n && path[n - 1] != '/') path[n++] = '/';
	memcpy(path + n, part, length);
	return n + length;
}

static size_t append_all(char *path, size_t n, const char *parts) {
	while (*parts) {
		size_t length = strcspn(parts, "/");
		n = append(path, n, parts, length);
		parts += length;
		while (*parts == '/') parts++;
	}
	return n;
}

char *tm_source_path(const char *directory, const char *path) {
	const char *first = *path != '/' && directory ? directory : path;
	char *out = malloc((directory ? strlen(directory) : 0) + strlen(path) + 3);
	if (!out) return NULL;
	size_t n = 0;
	if (*first == '/') out[n++] = '/';
	if (first == directory) n = append_all(out, n, directory);
	n = append_all(out, n, path);
	out[n] = 0;
	return out;
}
