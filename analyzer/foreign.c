/* foreign.c - recordings of other tools: tells them apart and has them translated; see foreign.h. */
#include "foreign.h"

#include "foreign_input.h"
#include "foreign_readers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define SQLITE_MAGIC "SQLite format 3"
#define HEAD_BYTES ((size_t)64 << 10)

int tm_foreign_fail(struct tm_foreign *f, const char *format, ...) {
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(f->error, sizeof f->error, format, arguments);
	va_end(arguments);
	return -1;
}

/* --- what it is --- */

static bool begins_as_heaptrack(const char *head, size_t n) {
	const char *end = memchr(head, '\n', n < 64 ? n : 64);
	if (n < 4 || head[0] != 'v' || head[1] != ' ' || !end) return false;
	for (const char *p = head + 2; p < end; p++)
		if (!(*p == ' ' || (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'f'))) return false;
	return true;
}

static bool holds(const char *head, size_t n, const char *word) {
	return memmem(head, n, word, strlen(word)) != NULL;
}

static bool begins_as_pickle(const char *head, size_t n) {
	return n > 2 && (uint8_t)head[0] == 0x80 && head[1] >= 2 && head[1] <= 5;
}

/* The words stand near the beginning: of the object that holds the events, or of the first event. */
static bool begins_as_json(const char *head, size_t n) {
	size_t i = n >= 3 && memcmp(head, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
	while (i < n && (head[i] == ' ' || head[i] == '\n' || head[i] == '\r' || head[i] == '\t')) i++;
	if (i == n || (head[i] != '{' && head[i] != '[')) return false;
	return holds(head, n, "\"traceEvents\"") || holds(head, n, "\"schemaVersion\"") || holds(head, n, "\"ph\"");
}

enum tm_foreign_kind tm_foreign_recognise(const char *path, char *error, size_t error_bytes) {
	struct tm_input input;
	char *head = malloc(HEAD_BYTES);
	size_t n = 0, got;
	enum tm_foreign_kind kind = TM_FOREIGN_NONE;
	*error = 0;
	bool open = tm_input_open(&input, path, error, error_bytes) == 0;
	while (head && open && n < HEAD_BYTES && (got = tm_input_read(&input, head + n, HEAD_BYTES - n))) n += got;
	tm_input_release(&input);
	if (n && begins_as_heaptrack(head, n)) kind = TM_FOREIGN_HEAPTRACK;
	else if (n && begins_as_pickle(head, n)) kind = TM_FOREIGN_PICKLE;
	else if (n && begins_as_json(head, n)) kind = TM_FOREIGN_JSON;
	else if (n >= sizeof SQLITE_MAGIC && memcmp(head, SQLITE_MAGIC, sizeof SQLITE_MAGIC) == 0 && tm_foreign_is_nsight(path))
		kind = TM_FOREIGN_NSIGHT;
	if (kind == TM_FOREIGN_NONE && open && (!head || input.cut)) snprintf(error, error_bytes, "%s", head ? input.cut : "out of memory");
	free(head);
	return kind;
}

/* --- translation --- */

/* A file without a name, in the directory of `beside` or where temporary files lie. */
static int open_scratch(const char *beside) {
	const char *slash = beside ? strrchr(beside, '/') : NULL, *temporary = getenv("TMPDIR");
	char directory[4096], name[4200];
	if (beside && !slash) snprintf(directory, sizeof directory, ".");
	else if (slash) snprintf(directory, sizeof directory, "%.*s", slash == beside ? 1 : (int)(slash - beside), beside);
	else snprintf(directory, sizeof directory, "%s", temporary && *temporary ? temporary : "/tmp");
	int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0) return fd;
	snprintf(name, sizeof name, "%s/.tidemark-foreign.XXXXXX", directory);
	fd = mkostemp(name, O_CLOEXEC);
	if (fd >= 0) unlink(name);
	return fd;
}

static int (*const readers[])(struct tm_foreign *f, struct tm_foreign_trace *t, const char *path) = {
	[TM_FOREIGN_HEAPTRACK] = tm_foreign_read_heaptrack,
	[TM_FOREIGN_PICKLE] = tm_foreign_read_snapshot,
	[TM_FOREIGN_JSON] = tm_foreign_read_kineto,
	[TM_FOREIGN_NSIGHT] = tm_foreign_read_nsight,
};

int tm_foreign_translate(struct tm_foreign *f, enum tm_foreign_kind kind, const char *path, const char *beside) {
	struct tm_foreign_trace trace;
	struct stat st;
	*f = (struct tm_foreign){ .fd = open_scratch(beside) };
	if (f->fd < 0) return tm_foreign_fail(f, "cannot make a scratch file: %s", strerror(errno));
	if (stat(path, &st) < 0) return tm_foreign_fail(f, "%s", strerror(errno));
	f->file_bytes = f->sound_bytes = (uint64_t)st.st_size;
	snprintf(f->path, sizeof f->path, "/proc/self/fd/%d", f->fd);
	int rc = tm_foreign_trace_open(&trace, f->fd);
	if (!rc) rc = readers[kind](f, &trace, path);
	if (rc && trace.failed) tm_foreign_fail(f, "%s", trace.error);
	f->content = trace.told_content;
	f->start_unix_ns = trace.start_unix_ns;
	tm_foreign_trace_release(&trace);
	return rc;
}

void tm_foreign_release(struct tm_foreign *f) {
	if (f->fd >= 0) close(f->fd);
	f->fd = -1;
}
