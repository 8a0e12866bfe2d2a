/* database.c - opens what a command was given, importing a trace first where it has to.
 *
 * The database is opened read-only and treated as a stranger's file: its schema may not call anything beyond harmless functions, and
 * SQLite's own tables cannot be written. What every report needs to know about it is read once, here.
 */
#include "database.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "schema/kinds.h"
#include "foreign.h"
#include "import.h"
#include "journal.h"
#include "progress.h"
#include "talk.h"

#define SQLITE_MAGIC "SQLite format 3"
#define WORDS_MAX 20
#define BUSY_MS 5000 /* a database is locked for a moment, when an import that added to it is done */

enum tm_file_kind tm_file_recognise(const char *path) {
	char head[16] = { 0 }, why[64];
	struct stat status;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &status)) {
		tm_fail("cannot open '%s': %s", path, strerror(errno));
		if (fd >= 0) close(fd);
		return TM_FILE_UNREADABLE;
	}
	ssize_t n = S_ISREG(status.st_mode) ? read(fd, head, sizeof(head)) : 0;
	int error = errno;
	close(fd);
	if (n < 0) {
		tm_fail("cannot read '%s': %s", path, strerror(error));
		return TM_FILE_UNREADABLE;
	}
	if (memcmp(head, TM_FILE_MAGIC, strlen(TM_FILE_MAGIC)) == 0) return TM_FILE_TRACE;
	if (tm_foreign_recognise(path, why, sizeof why) != TM_FOREIGN_NONE) return TM_FILE_TRACE;
	if (memcmp(head, SQLITE_MAGIC, sizeof(SQLITE_MAGIC)) == 0) return TM_FILE_DATABASE;
	if (S_ISDIR(status.st_mode))
		tm_fail("cannot open '%s': it is a directory ('tidemark import' makes one database of its traces)", path);
	else if (!S_ISREG(status.st_mode)) tm_fail("cannot open '%s': not a regular file", path);
	else if (n == 0) tm_fail("cannot open '%s': the file is empty", path);
	else if (*why) tm_fail("cannot open '%s': %s", path, why);
	else tm_fail("cannot open '%s': neither a tidemark trace nor a database", path);
	return TM_FILE_OTHER;
}

int64_t tm_database_integer(const struct tm_database *d, const char *sql, int64_t otherwise) {
	sqlite3_stmt *statement = NULL;
	int64_t result = otherwise;
	if (sqlite3_prepare_v2(d->handle, sql, -1, &statement, NULL) == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW &&
	    sqlite3_column_type(statement, 0) != SQLITE_NULL)
		result = sqlite3_column_int64(statement, 0);
	sqlite3_finalize(statement);
	return result;
}

int tm_database_prepare(const struct tm_database *d, const char *sql, sqlite3_stmt **out) {
	*out = NULL;
	if (!sql) return tm_fail("cannot read '%s': out of memory", d->path);
	if (sqlite3_prepare_v2(d->handle, sql, -1, out, NULL) == SQLITE_OK) return 0;
	return tm_fail("cannot read '%s': %s", d->path, sqlite3_errmsg(d->handle));
}

struct each {
	int (*take)(void *context, sqlite3_value **row);
	void *context;
	int status;
};

static void take_row(sqlite3_context *context, int count, sqlite3_value **row) {
	struct each *each = sqlite3_user_data(context);
	(void)count;
	if (!each->status) each->status = each->take(each->context, row);
	if (each->status) sqlite3_result_error(context, "the rows were given up", -1);
}

static void end_of_rows(sqlite3_context *context) {
	sqlite3_result_null(context);
}

int tm_database_each(const struct tm_database *d, const char *query, int (*take)(void *context, sqlite3_value **row), void *context) {
	struct each each = { take, context, 0 };
	sqlite3_stmt *statement = NULL;
	int flags = SQLITE_UTF8 | SQLITE_DIRECTONLY, step = SQLITE_OK;
	if (sqlite3_create_function_v2(d->handle, "tm_row", -1, flags, &each, NULL, take_row, end_of_rows, NULL) != SQLITE_OK)
		return tm_fail("cannot read '%s': %s", d->path, sqlite3_errmsg(d->handle));
	int status = tm_database_prepare(d, query, &statement);
	if (!status) step = sqlite3_step(statement);
	if (!status && each.status) status = each.status;
	else if (!status && step != SQLITE_ROW) status = tm_fail("cannot read '%s': %s", d->path, sqlite3_errmsg(d->handle));
	sqlite3_finalize(statement);
	return status;
}

char *tm_database_words(const struct tm_database *d, const char *sql) {
	sqlite3_stmt *statement = NULL;
	sqlite3_str *words = sqlite3_str_new(d->handle);
	int n = 0;
	if (sqlite3_prepare_v2(d->handle, sql, -1, &statement, NULL) == SQLITE_OK) {
		for (; n < WORDS_MAX && sqlite3_step(statement) == SQLITE_ROW; n++) {
			sqlite3_str_appendf(words, "%s%s", n ? ", " : "", sqlite3_column_text(statement, 0));
		}
		if (n == WORDS_MAX && sqlite3_step(statement) == SQLITE_ROW) sqlite3_str_appendall(words, ", ...");
	}
	sqlite3_finalize(statement);
	return sqlite3_str_finish(words);
}

enum beside { BESIDE_FRESH, BESIDE_STALE, BESIDE_FOREIGN, BESIDE_LOCKED };

static const char *file_name(const char *path) {
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static bool is_later(const struct timespec *a, const struct timespec *b) {
	return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

/* What a database of one trace is to this one. Whether it holds the same recording counts, and not only times and sizes: what is moved to the trace's name, or
 * copied with its times, may be older than the database, and of the same size. Such a move is later than the database, which tells when it is worth
 * to translate another tool's recording. */
static enum beside judge(const struct tm_database *d, const char *database, const char *trace, bool is_current, bool is_moved) {
	char *path = tm_database_words(d, "SELECT path FROM trace");
	bool is_namesake = path && strcmp(file_name(path), file_name(trace)) == 0;
	sqlite3_free(path);
	if (!is_current && is_namesake) return BESIDE_STALE;
	enum tm_import_likeness likeness = tm_import_compare(d->handle, trace, !is_current || is_moved);
	if (likeness == TM_IMPORT_OTHER) return is_namesake ? BESIDE_STALE : BESIDE_FOREIGN;
	if (!is_current) return likeness == TM_IMPORT_SAME ? BESIDE_STALE : BESIDE_FOREIGN;
	/* It need not be translated again. */
	if (is_moved && likeness == TM_IMPORT_SAME) utimensat(AT_FDCWD, database, NULL, 0);
	return BESIDE_FRESH;
}

/* What the file with the database's name is to this trace. It may be used if it is newer and holds this trace alone, of the same size, and replaced if it
 * held an earlier state of it, or a trace of this name. */
static enum beside examine(const char *database, const char *trace, const struct stat *trace_status) {
	struct tm_database d = { 0 };
	struct stat status = { 0 };
	enum beside verdict = BESIDE_FOREIGN;
	bool is_newer = stat(database, &status) == 0 && !is_later(&trace_status->st_mtim, &status.st_mtim);
	bool is_moved = is_later(&trace_status->st_ctim, &status.st_mtim);
	bool is_open = tm_journal_open(database, &d.handle, 0) == SQLITE_OK;
	sqlite3_busy_timeout(d.handle, BUSY_MS);
	if (is_open && sqlite3_exec(d.handle, "BEGIN; SELECT 1 FROM sqlite_schema LIMIT 1", NULL, NULL, NULL) == SQLITE_BUSY) {
		verdict = BESIDE_LOCKED;
	} else if (is_open) {
		int64_t version = tm_database_integer(&d, "SELECT value FROM meta WHERE key = 'schema_version'", -1);
		int64_t size = tm_database_integer(&d, "SELECT file_bytes FROM trace", -1);
		bool is_one = tm_database_integer(&d, "SELECT count(*) FROM trace", 0) == 1;
		bool is_current = is_newer && version == TM_SCHEMA_VERSION && size == trace_status->st_size;
		if (version >= 0 && is_one) verdict = judge(&d, database, trace, is_current, is_moved);
	}
	sqlite3_close(d.handle);
	return verdict;
}

/* Can a file be made beside it? errno says why not. */
static bool can_make_beside(const char *path) {
	char *directory = strndup(path, (size_t)(file_name(path) - path));
	bool can = !directory || access(*directory ? directory : ".", W_OK) == 0;
	free(directory);
	return can;
}

/* The database that belongs to a trace: made now unless there is one that is newer than the trace. */
static int import_trace(const char *trace, char **database) {
	struct stat trace_status, database_status;
	size_t n = strlen(trace);
	bool has_suffix = n > 4 && strcmp(trace + n - 4, ".tmk") == 0;
	if (asprintf(database, "%.*s.db", (int)(has_suffix ? n - 4 : n), trace) < 0) {
		*database = NULL;
		return tm_fail("cannot import '%s': out of memory", trace);
	}
	if (stat(trace, &trace_status)) return tm_fail("cannot open '%s': %s", trace, strerror(errno));
	if (lstat(*database, &database_status) == 0) {
		switch (examine(*database, trace, &trace_status)) {
		case BESIDE_FRESH: tm_say("using '%s', imported from '%s' before", *database, trace); return 0;
		case BESIDE_LOCKED: return tm_fail("cannot open '%s': database is locked", *database);
		case BESIDE_FOREIGN:
			return tm_fail("cannot import '%s': '%s' is there and holds something else ('tidemark import -o' makes another)",
				       trace, *database);
		case BESIDE_STALE: break;
		}
	}
	if (!can_make_beside(trace))
		return tm_fail("cannot import '%s' into '%s': %s ('tidemark import -o DB' makes a database elsewhere)", trace, *database, strerror(errno));
	tm_say("importing '%s' into '%s'", trace, *database);
	return tm_import_beside(trace, *database);
}

static int check_version(const struct tm_database *d) {
	int64_t version = tm_database_integer(d, "SELECT value FROM meta WHERE key = 'schema_version'", -1);
	int error = sqlite3_errcode(d->handle);
	if (version == TM_SCHEMA_VERSION) return 0;
	if (sqlite3_extended_errcode(d->handle) == SQLITE_READONLY_ROLLBACK)
		return tm_fail(
			"cannot open '%s': an import into it was interrupted, and what '%s-journal' keeps of before cannot be put back:"
			" it may not be written",
			d->path, d->path);
	if (error != SQLITE_OK && error != SQLITE_DONE && error != SQLITE_ROW && error != SQLITE_ERROR)
		return tm_fail("cannot open '%s': %s", d->path, sqlite3_errmsg(d->handle));
	if (version < 0) return tm_fail("cannot open '%s': it is a database, but not one of tidemark's", d->path);
	return tm_fail("cannot open '%s': its schema version is %lld, this tidemark reads %d (import its trace again)", d->path,
		       (long long)version, TM_SCHEMA_VERSION);
}

int tm_database_open(struct tm_database *d, const char *path) {
	*d = (struct tm_database){ 0 };
	switch (tm_file_recognise(path)) {
	case TM_FILE_TRACE: {
		int status = import_trace(path, &d->path);
		if (status) return status;
		break;
	}
	case TM_FILE_DATABASE: d->path = strdup(path); break;
	default: return TM_EXIT_FAILED;
	}
	if (!d->path) return tm_fail("cannot open '%s': out of memory", path);
	/* One thread asks: no lock for each column of each row. */
	if (tm_journal_open(d->path, &d->handle, SQLITE_OPEN_NOMUTEX) != SQLITE_OK)
		return tm_fail("cannot open '%s': %s", d->path, d->handle ? sqlite3_errmsg(d->handle) : "out of memory");
	sqlite3_db_config(d->handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(d->handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	sqlite3_busy_timeout(d->handle, BUSY_MS);
	/* Most of the time goes into reading pages and sorting: both may have some memory. */
	sqlite3_exec(d->handle, "PRAGMA mmap_size=17179869184; PRAGMA cache_size=-65536; PRAGMA temp_store=MEMORY", NULL, NULL, NULL);
	tm_progress_of_queries(d->handle);
	int status = check_version(d);
	if (status) return status;
	d->processes = tm_database_integer(d, "SELECT count(*) FROM process", 0);
	d->has_ranks = tm_database_integer(d, "SELECT count(rank) FROM process", 0) > 0;
	d->worlds = tm_database_integer(d, "SELECT count(DISTINCT coalesce(world, '')) FROM process WHERE rank IS NOT NULL", 0);
	d->has_checkpoints = tm_database_integer(d, "SELECT 1 FROM checkpoint LIMIT 1", 0) > 0;
	d->estimated = tm_database_integer(d, "SELECT max(estimated) FROM heap", 0) > 0;
	d->sample_bytes = tm_database_integer(d, "SELECT max(sample_bytes) FROM trace", 0);
	return 0;
}

void tm_database_close(struct tm_database *d) {
	tm_progress_wipe();
	sqlite3_close(d->handle);
	free(d->path);
	*d = (struct tm_database){ 0 };
}
