/* overwrite.c - what an output may take the place of; see overwrite.h. */
#include "overwrite.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "journal.h"
#include "reader.h"
#include "talk.h"

#define LINKS_MAX 40 /* as many as the kernel follows */

bool tm_is_same_file(const char *a, const char *b) {
	struct stat x, y;
	return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool tm_is_empty_file(const char *path) {
	struct stat status;
	return stat(path, &status) == 0 && S_ISREG(status.st_mode) && status.st_size == 0;
}

int tm_is_tidemark_database(const char *path) {
	struct stat status;
	sqlite3 *handle = NULL;
	sqlite3_stmt *statement = NULL;
	if (stat(path, &status) || !S_ISREG(status.st_mode)) return 0; /* SQLite would wait for a pipe's writer */
	const char *query = "SELECT value FROM meta WHERE key = 'schema_version'";
	int is_ours = tm_journal_open(path, &handle, 0) == SQLITE_OK &&
		      sqlite3_prepare_v2(handle, query, -1, &statement, NULL) == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW;
	if (is_ours && sqlite3_column_int(statement, 0) > 1) is_ours = sqlite3_column_int(statement, 0);
	if (!is_ours && sqlite3_errcode(handle) == SQLITE_BUSY) is_ours = -1;
	sqlite3_finalize(statement);
	sqlite3_close(handle);
	return is_ours;
}

/* What the link holds; a relative target lies beside the link. NULL: out of memory, or it is no link. */
static char *target_of(const char *link) {
	char target[PATH_MAX], *path;
	ssize_t n = readlink(link, target, sizeof target);
	const char *slash = strrchr(link, '/');
	if (n < 0 || n == sizeof target) return NULL;
	int directory = *target == '/' || !slash ? 0 : (int)(slash + 1 - link);
	return asprintf(&path, "%.*s%.*s", directory, link, (int)n, target) < 0 ? NULL : path;
}

char *tm_written_path(const char *path) {
	struct stat status;
	char *now = strdup(path);
	for (int links = 0; now && lstat(now, &status) == 0 && S_ISLNK(status.st_mode); links++) {
		char *next = links < LINKS_MAX ? target_of(now) : NULL;
		if (links == LINKS_MAX) errno = ELOOP;
		int error = errno;
		free(now);
		errno = error;
		now = next;
	}
	return now;
}

int tm_check_output(const char *output, const char *input, const char *database, bool replaces) {
	if (strcmp(output, "-") == 0) return 0;
	if (tm_is_same_file(output, input) || tm_is_same_file(output, database))
		return tm_fail("cannot write '%s': the output is the input", output);
	int is_database = replaces ? tm_is_tidemark_database(output) : 0;
	if (is_database < 0) return tm_fail("cannot write '%s': database is locked", output);
	if (replaces && (is_database || tm_reader_recognise(output) == 1))
		return tm_fail("cannot write '%s': it holds a recording, which is not overwritten", output);
	return 0;
}
