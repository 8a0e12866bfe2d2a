/* suppressions.c - leaks that somebody knows about; see suppressions.h. */
#include "suppressions.h"

#include <errno.h>
#include <stdio.h>

#include "id_map.h"
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

/* `at`, if the part stands there. */
static const char *begins_with(const char *at, const char *end, const char *part, size_t n) {
	return (size_t)(end - at) >= n && memcmp(at, part, n) == 0 ? at : NULL;
}

/* Each part between stars is taken where it comes first and never tried again further on, so that le$ does not match le_le: lists that were
 * made for LeakSanitizer hide here what they hide there. */
bool tm_suppression_pattern_matches(const char *pattern, struct tm_text text) {
	if (!text.size) return false;
	const char *at = text.data, *end = text.data + text.size;
	bool anchored = *pattern == '^', after_star = false;
	if (anchored) pattern++;
	while (*pattern) {
		if (*pattern == '$') return at == end || after_star;
		if (*pattern == '*') {
			pattern++;
			anchored = false;
			after_star = true;
			continue;
		}
		size_t n = strcspn(pattern, "*$");
		const char *found = anchored ? begins_with(at, end, pattern, n) : memmem(at, (size_t)(end - at), pattern, n);
		if (!found) return false;
		at = found + n;
		pattern += n;
		anchored = after_star = false;
	}
	return true;
}

static bool matches_frame(const char *pattern, const struct tm_suppression_frame *f) {
	return tm_suppression_pattern_matches(pattern, f->function) || tm_suppression_pattern_matches(pattern, f->file) ||
	       tm_suppression_pattern_matches(pattern, f->module);
}

/* --- lists by a part that must stand in the text --- */

/* The longest part between stars: what follows a $ is not looked at. */
static struct tm_text needed_part(const char *pattern) {
	struct tm_text longest = { pattern, 0 };
	for (pattern += *pattern == '^';; pattern++) {
		size_t n = strcspn(pattern, "*$");
		if (n > longest.size) longest = (struct tm_text){ pattern, n };
		pattern += n;
		if (*pattern != '*') return longest;
	}
}

static int compare_rules(const void *a, const void *b) {
	const struct tm_suppression *x = a, *y = b;
	int order = memcmp(x->part.data, y->part.data, x->part.size < y->part.size ? x->part.size : y->part.size);
	return order ? order : (x->part.size > y->part.size) - (x->part.size < y->part.size);
}

static bool begins_with_part(struct tm_text text, const struct tm_suppression *r) {
	return begins_with(text.data, text.data + text.size, r->part.data, r->part.size) != NULL;
}

static void put_in_order(struct tm_suppressions *s) {
	if (s->rules.count) qsort(s->rules.items, s->rules.count, sizeof *s->rules.items, compare_rules);
	for (size_t i = 0; i < s->rules.count; i++) {
		struct tm_suppression *r = &s->rules.items[i];
		size_t outer = i;
		while (outer && !begins_with_part(r->part, &s->rules.items[outer - 1])) outer = s->rules.items[outer - 1].shorter;
		r->shorter = outer;
	}
}

/* How many rules have parts that are not behind this text in their order. */
static size_t rules_up_to(const struct tm_suppressions *s, struct tm_text text) {
	const struct tm_suppression wanted = { .part = text };
	size_t low = 0, high = s->rules.count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (compare_rules(&s->rules.items[middle], &wanted) <= 0) low = middle + 1;
		else high = middle;
	}
	return low;
}

/* The parts that stand at one place of a text begin with each other: of the last one that is not behind what is there, those before it. */
static bool matches_text(const struct tm_suppressions *s, struct tm_text text) {
	for (size_t at = 0; at < text.size; at++) {
		struct tm_text rest = { text.data + at, text.size - at };
		for (size_t i = rules_up_to(s, rest); i; i = s->rules.items[i - 1].shorter) {
			const struct tm_suppression *r = &s->rules.items[i - 1];
			if (begins_with_part(rest, r) && tm_suppression_pattern_matches(r->pattern, text)) return true;
		}
	}
	return false;
}

bool tm_suppressions_match(const struct tm_suppressions *s, const struct tm_suppression_frame *frame) {
	return matches_text(s, frame->function) || matches_text(s, frame->file) || matches_text(s, frame->module);
}

/* The C library's debug information names functions as it calls them itself: __GI_setlocale. */
bool tm_suppressions_known(const struct tm_suppression_frame *frame, bool innermost) {
	struct tm_suppression_frame alias = *frame;
	if (alias.function.size > 5 && memcmp(alias.function.data, "__GI_", 5) == 0) {
		alias.function.data += 5;
		alias.function.size -= 5;
		if (tm_suppressions_known(&alias, innermost)) return true;
	}
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if ((innermost || !known[i].inner) && matches_frame(known[i].pattern, frame)) return true;
	return false;
}

/* --- lists --- */

static bool add_pattern(struct tm_suppressions *s, const char *text, size_t n) {
	char *copy = strndup(text, n);
	struct tm_suppression *rule = copy ? tm_array_push(&s->rules) : NULL;
	if (rule) *rule = (struct tm_suppression){ .pattern = copy, .part = needed_part(copy) };
	else free(copy);
	return rule != NULL;
}

static bool is_blank(char c) {
	return c == ' ' || c == '\t' || c == '\r';
}

static int add_lines(struct tm_suppressions *s, const char *text, size_t size, char *error, size_t error_size) {
	static const char mark[] = "\xEF\xBB\xBF"; /* some editors begin a file with it */
	const char *end = text + size;
	if (size >= 3 && memcmp(text, mark, 3) == 0) text += 3;
	for (unsigned line = 1; text < end; line++) {
		const char *newline = memchr(text, '\n', (size_t)(end - text)), *stop = newline ? newline : end;
		const char *next = newline ? newline + 1 : end;
		while (text < stop && is_blank(*text)) text++;
		while (stop > text && is_blank(stop[-1])) stop--;
		size_t n = (size_t)(stop - text);
		if (n && *text != '#') {
			if (n <= 5 || memcmp(text, "leak:", 5) != 0 || memchr(text, '\0', n)) {
				snprintf(error, error_size, "line %u: '%.*s' is not leak:PATTERN", line, n > 60 ? 60 : (int)n, text);
				return -1;
			}
			if (!add_pattern(s, text + 5, n - 5)) {
				snprintf(error, error_size, "out of memory");
				return -2;
			}
		}
		text = next;
	}
	return 0;
}

int tm_suppressions_add(struct tm_suppressions *s, const char *text, size_t size, char *error, size_t error_size) {
	int status = add_lines(s, text, size, error, error_size);
	put_in_order(s);
	return status;
}

void tm_suppressions_release(struct tm_suppressions *s) {
	for (size_t i = 0; i < s->rules.count; i++) free(s->rules.items[i].pattern);
	tm_array_release(&s->rules);
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

/* What is known of stacks and frames, by id: each is looked at once, however many stacks share it. Kept for those that were met and no others: ids may
 * have holes, and those of a damaged database are any numbers. */
enum { UNKNOWN, NO, YES };

struct walk {
	const struct tm_suppressions *list;
	sqlite3_stmt *stack, *frame;
	struct tm_id_map stacks, frames;
	TM_ARRAY(struct step) path;
};

struct step {
	int64_t stack, frame;
};

static struct tm_text column_text(sqlite3_stmt *row, int column) {
	const char *text = (const char *)sqlite3_column_text(row, column);
	return (struct tm_text){ text ? text : "", text ? (size_t)sqlite3_column_bytes(row, column) : 0 };
}

/* YES, NO, or UNKNOWN: out of memory. */
static uint64_t judge_frame(struct walk *w, int64_t id) {
	uint64_t *found = tm_id_map_put(&w->frames, (uint64_t)id, 0);
	if (!found) return UNKNOWN;
	if (*found) return *found;
	*found = NO;
	sqlite3_bind_int64(w->frame, 1, id);
	if (sqlite3_step(w->frame) == SQLITE_ROW) {
		struct tm_suppression_frame frame = { column_text(w->frame, 0), column_text(w->frame, 1), column_text(w->frame, 2) };
		if (tm_suppressions_match(w->list, &frame)) *found = YES;
	}
	sqlite3_reset(w->frame);
	return *found;
}

/* The next stack outward, and the frame of this one; 0 where there is none. A parent's id is below its child's. */
static int64_t outward(struct walk *w, struct step *step) {
	int64_t parent = 0;
	sqlite3_bind_int64(w->stack, 1, step->stack);
	if (sqlite3_step(w->stack) == SQLITE_ROW) {
		parent = sqlite3_column_int64(w->stack, 0);
		step->frame = sqlite3_column_int64(w->stack, 1);
	}
	sqlite3_reset(w->stack);
	return parent > 0 && parent < step->stack ? parent : 0;
}

/* YES, NO, or UNKNOWN: out of memory. */
static uint64_t judge_stack(struct walk *w, int64_t id) {
	uint64_t found = NO, *seen;
	w->path.count = 0;
	while (id > 0) {
		if ((seen = tm_id_map_find(&w->stacks, (uint64_t)id, 0))) {
			found = *seen;
			break;
		}
		struct step *step = tm_array_push(&w->path);
		if (!step) return UNKNOWN;
		*step = (struct step){ .stack = id };
		id = outward(w, step);
	}
	for (size_t i = w->path.count; i-- > 0;) {
		if (found == NO) found = judge_frame(w, w->path.items[i].frame);
		seen = found ? tm_id_map_put(&w->stacks, (uint64_t)w->path.items[i].stack, 0) : NULL;
		if (!seen) return UNKNOWN;
		*seen = found;
	}
	return found;
}

static int begin_walk(struct walk *w, sqlite3 *db) {
	int rc = sqlite3_prepare_v2(db, "SELECT parent_id, frame_id FROM stack WHERE id = ?1", -1, &w->stack, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_prepare_v2(
			db, "SELECT f.function, f.file, m.path FROM frame f LEFT JOIN module m ON m.id = f.module_id WHERE f.id = ?1", -1,
			&w->frame, NULL);
	return rc;
}

static void end_walk(struct walk *w) {
	sqlite3_finalize(w->stack);
	sqlite3_finalize(w->frame);
	tm_id_map_release(&w->stacks);
	tm_id_map_release(&w->frames);
	tm_array_release(&w->path);
}

static int collect(sqlite3_stmt *list, struct walk *w, sqlite3_str *out) {
	int rc;
	while ((rc = sqlite3_step(list)) == SQLITE_ROW) {
		int64_t stack = sqlite3_column_int64(list, 0);
		uint64_t found = judge_stack(w, stack);
		if (found == UNKNOWN) return SQLITE_NOMEM;
		if (found == YES) sqlite3_str_appendf(out, "%s%lld", sqlite3_str_length(out) ? ", " : "", stack);
	}
	return rc;
}

char *tm_suppressed_leaks(sqlite3 *db, const struct tm_suppressions *s, const char *path) {
	if (!s->rules.count) return sqlite3_mprintf("");
	struct walk w = { .list = s };
	sqlite3_stmt *list = NULL;
	sqlite3_str *out = sqlite3_str_new(db);
	int rc = begin_walk(&w, db);
	if (rc == SQLITE_OK) rc = sqlite3_prepare_v2(db, "SELECT DISTINCT stack_id FROM leak_stack", -1, &list, NULL);
	if (rc == SQLITE_OK) rc = collect(list, &w, out);
	if (rc != SQLITE_DONE) tm_fail("cannot read '%s': %s", path, rc == SQLITE_NOMEM ? "out of memory" : sqlite3_errmsg(db));
	sqlite3_finalize(list);
	end_walk(&w);
	bool is_empty = !sqlite3_str_length(out);
	char *text = sqlite3_str_finish(out);
	if (rc != SQLITE_DONE) {
		sqlite3_free(text);
		return NULL;
	}
	return is_empty && !text ? sqlite3_mprintf("") : text;
}
