/* suppressions.c - leaks that somebody knows about; see suppressions.h. */
#include "suppressions.h"

#include <errno.h>
#include <stdio.h>

#include "talk.h"

#define FILE_BYTES_MAX ((size_t)16 << 20)

/* What runtimes allocate once and keep, by design. `inner`: only where it is the innermost frame, because others call through it. */
static const struct known {
	const char *pattern;
	bool inner;
} known[] = {
	/* The C++ runtime: the pool for exceptions when memory is short, and what a thread's exceptions need. */
	{ "^_GLOBAL__sub_I_eh_alloc.cc", false },
	{ "^__cxa_get_globals$", true },
	{ "^__cxa_thread_atexit", true },
	/* The C library: buffers of the standard streams, lists of exit handlers, locales, time zones, name services, conversions, messages. */
	{ "_IO_file_doallocate$", false },
	{ "_IO_wfile_doallocate$", false },
	{ "^__new_exitfn$", false },
	{ "^__cxa_atexit$", true },
	{ "^__register_atfork$", true },
	{ "^setlocale$", false },
	{ "^newlocale$", false },
	{ "^_nl_*", true },
	{ "^tzset*", false },
	{ "^__tz*", false },
	{ "^__nss_*", false },
	{ "^__gconv_*", false },
	{ "^bindtextdomain$", false },
	{ "^textdomain$", false },
	{ "^__dcigettext$", false },
	{ "^putenv$", true },
	{ "^setenv$", true },
	{ "^__add_to_environ$", true },
	/* The dynamic loader: maps of objects, thread-local storage of threads that run or may come again. */
	{ "/ld-linux*.so", true },
	{ "/ld-*.so", true },
	{ "^_dl_*", true },
	{ "^allocate_dtv*", true },
	{ "^__tls_get_addr*", true },
	{ "^__emutls_get_address$", true },
	{ "^allocate_stack$", true },
	/* CPython: interned names, and what the interpreter makes before the first line of a program runs. */
	{ "^PyUnicode_InternInPlace$", true },
	{ "^Py_InitializeFromConfig$", false },
	{ "^Py_InitializeEx$", false },
	{ "^pymain_init$", false },
};

bool tm_suppression_pattern_matches(const char *pattern, struct tm_text text) {
	const char *at = text.data, *end = text.data + text.size;
	bool anchored = *pattern == '^', after_star = false;
	if (!text.size) return false;
	if (anchored) pattern++;
	while (*pattern) {
		if (*pattern == '*') {
			pattern++;
			after_star = true;
			continue;
		}
		if (*pattern == '$') return at == end || after_star || !anchored;
		size_t n = strcspn(pattern, "*$");
		/* A part in front of $ has to be the last one. */
		if (pattern[n] == '$' && (!anchored || after_star)) return (size_t)(end - at) >= n && memcmp(end - n, pattern, n) == 0;
		if (anchored && !after_star && ((size_t)(end - at) < n || memcmp(at, pattern, n) != 0)) return false;
		const char *found = anchored && !after_star ? at : memmem(at, (size_t)(end - at), pattern, n);
		if (!found) return false;
		at = found + n;
		pattern += n;
		anchored = true;
		after_star = false;
	}
	return true;
}

static bool matches_frame(const char *pattern, const struct tm_suppression_frame *f) {
	return tm_suppression_pattern_matches(pattern, f->function) || tm_suppression_pattern_matches(pattern, f->file) ||
	       tm_suppression_pattern_matches(pattern, f->module);
}

bool tm_suppressions_match(const struct tm_suppressions *s, const struct tm_suppression_frame *frame) {
	for (size_t i = 0; i < s->patterns.count; i++)
		if (matches_frame(s->patterns.items[i], frame)) return true;
	return false;
}

bool tm_suppressions_known(const struct tm_suppression_frame *frame, bool innermost) {
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if ((innermost || !known[i].inner) && matches_frame(known[i].pattern, frame)) return true;
	return false;
}

/* --- lists --- */

static bool add_pattern(struct tm_suppressions *s, const char *text, size_t n) {
	char *copy = strndup(text, n), **place = copy ? tm_array_push(&s->patterns) : NULL;
	if (place) *place = copy;
	else free(copy);
	return place != NULL;
}

static bool is_blank(char c) {
	return c == ' ' || c == '\t' || c == '\r';
}

int tm_suppressions_add(struct tm_suppressions *s, const char *text, size_t size, char *error, size_t error_size) {
	const char *end = text + size;
	for (unsigned line = 1; text < end; line++) {
		const char *newline = memchr(text, '\n', (size_t)(end - text)), *stop = newline ? newline : end;
		const char *next = newline ? newline + 1 : end;
		while (text < stop && is_blank(*text)) text++;
		while (stop > text && is_blank(stop[-1])) stop--;
		size_t n = (size_t)(stop - text);
		if (n && *text != '#') {
			if (n <= 5 || memcmp(text, "leak:", 5) != 0) {
				snprintf(error, error_size, "line %u: '%.*s' is not leak:PATTERN", line, n > 60 ? 60 : (int)n, text);
				return -1;
			}
			if (!add_pattern(s, text + 5, n - 5)) {
				snprintf(error, error_size, "out of memory");
				return -1;
			}
		}
		text = next;
	}
	return 0;
}

void tm_suppressions_release(struct tm_suppressions *s) {
	for (size_t i = 0; i < s->patterns.count; i++) free(s->patterns.items[i]);
	tm_array_release(&s->patterns);
}

int tm_suppressions_read(struct tm_suppressions *s, const char *path) {
	FILE *file = fopen(path, "re");
	if (!file) return tm_fail("cannot read suppressions '%s': %s", path, strerror(errno));
	char *text = malloc(FILE_BYTES_MAX), error[200];
	size_t n = text ? fread(text, 1, FILE_BYTES_MAX, file) : 0;
	int status = 0;
	if (!text) status = tm_fail("cannot read suppressions '%s': out of memory", path);
	else if (ferror(file)) status = tm_fail("cannot read suppressions '%s': %s", path, strerror(errno));
	else if (n == FILE_BYTES_MAX) status = tm_fail("cannot read suppressions '%s': larger than 16 MiB", path);
	else if (tm_suppressions_add(s, text, n, error, sizeof error) < 0)
		status = tm_fail("cannot read suppressions '%s': %s", path, error);
	fclose(file);
	free(text);
	return status;
}

/* --- stacks of a database --- */

static struct tm_text column_text(sqlite3_stmt *row, int column) {
	const char *text = (const char *)sqlite3_column_text(row, column);
	return (struct tm_text){ text ? text : "", text ? (size_t)sqlite3_column_bytes(row, column) : 0 };
}

static bool stack_matches(sqlite3_stmt *frames, int64_t stack, const struct tm_suppressions *s) {
	bool found = false;
	sqlite3_bind_int64(frames, 1, stack);
	while (!found && sqlite3_step(frames) == SQLITE_ROW) {
		struct tm_suppression_frame frame = { column_text(frames, 0), column_text(frames, 1), column_text(frames, 2) };
		found = tm_suppressions_match(s, &frame);
	}
	sqlite3_reset(frames);
	return found;
}

char *tm_suppressed_stacks(sqlite3 *db, const char *stacks, const struct tm_suppressions *s, const char *path) {
	static const char frames_of[] =
		"WITH RECURSIVE up(id) AS (SELECT ?1 UNION ALL SELECT s.parent_id FROM up JOIN stack s ON s.id = up.id"
		" WHERE s.parent_id > 0) SELECT f.function, f.file, m.path FROM up JOIN stack s ON s.id = up.id"
		" JOIN frame f ON f.id = s.frame_id LEFT JOIN module m ON m.id = f.module_id";
	sqlite3_stmt *list = NULL, *frames = NULL;
	sqlite3_str *out = sqlite3_str_new(db);
	int rc = sqlite3_prepare_v2(db, stacks, -1, &list, NULL);
	if (rc == SQLITE_OK) rc = sqlite3_prepare_v2(db, frames_of, -1, &frames, NULL);
	for (unsigned n = 0; rc == SQLITE_OK && (rc = sqlite3_step(list)) == SQLITE_ROW;) {
		int64_t stack = sqlite3_column_int64(list, 0);
		rc = SQLITE_OK;
		if (stack_matches(frames, stack, s)) sqlite3_str_appendf(out, "%s%lld", n++ ? ", " : "", stack);
	}
	sqlite3_finalize(list);
	sqlite3_finalize(frames);
	if (rc != SQLITE_DONE) tm_fail("cannot read '%s': %s", path, sqlite3_errmsg(db));
	bool is_empty = !sqlite3_str_length(out);
	char *text = sqlite3_str_finish(out);
	if (rc != SQLITE_DONE) {
		sqlite3_free(text);
		return NULL;
	}
	return is_empty && !text ? sqlite3_mprintf("") : text;
}
