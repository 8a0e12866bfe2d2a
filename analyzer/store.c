/* store.c - the database that an import writes; see store.h. */
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "journal.h"
#include "overwrite.h"
#include "unfinished.h"

#define BUSY_MS 30000 /* who reads the database is waited for: it is written after all the work is done */

extern const char tm_tables_sql[], tm_views_sql[]; /* schema/tables.sql, schema/views.sql: compiled in by the build */

void tm_store_fail(struct tm_store *s, const char *format, ...) {
	bool none = false;
	if (!atomic_compare_exchange_strong(&s->failed, &none, true)) return;
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(s->error, sizeof s->error, format, arguments);
	va_end(arguments);
}

bool tm_store_check(struct tm_store *s, int rc) {
	if (rc == SQLITE_OK || rc == SQLITE_ROW || rc == SQLITE_DONE) return false;
	int number = sqlite3_system_errno(s->db);
	bool say_errno = number && ((rc & 0xff) == SQLITE_IOERR || (rc & 0xff) == SQLITE_CANTOPEN);
	tm_store_fail(s, "%s%s%s", sqlite3_errmsg(s->db), say_errno ? ": " : "", say_errno ? strerror(number) : "");
	return true;
}

void tm_store_execute(struct tm_store *s, const char *sql) {
	if (!s->failed) tm_store_check(s, sqlite3_exec(s->db, sql, NULL, NULL, NULL));
}

sqlite3_stmt *tm_store_prepare(struct tm_store *s, const char *sql) {
	sqlite3_stmt *statement = NULL;
	if (!s->failed) tm_store_check(s, sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, NULL));
	return statement;
}

int64_t tm_store_number(struct tm_store *s, const char *sql, int64_t otherwise) {
	sqlite3_stmt *statement = tm_store_prepare(s, sql);
	int64_t number = otherwise;
	if (statement && sqlite3_step(statement) == SQLITE_ROW && sqlite3_column_type(statement, 0) != SQLITE_NULL)
		number = sqlite3_column_int64(statement, 0);
	sqlite3_finalize(statement);
	return number;
}

/* --- the file --- */

static const struct {
	const char *name;
	bool is_index;
} bulk_tables[TM_TABLE_COUNT] = {
	[TM_TABLE_ALLOCATION] = { "allocation_packed", false },
	[TM_TABLE_FRAME] = { "frame", false },
	[TM_TABLE_STACK] = { "stack", false },
	[TM_TABLE_SITE] = { "site_total", true },
	[TM_TABLE_SNAPSHOT_STACK] = { "snapshot_stack", true },
	[TM_TABLE_LEAK_SCORE] = { "leak_score", true },
	[TM_TABLE_LEAK_STACK] = { "leak_stack", true },
	[TM_TABLE_FUNCTION] = { "function_aggregate", false },
	[TM_TABLE_SCOPE] = { "scope_packed", false },
	[TM_TABLE_SCOPE_BY_PROCESS] = { "scope_by_process", true },
	[TM_TABLE_SCOPE_INSTANCE] = { "scope_instance_aggregate", true },
	[TM_TABLE_SCOPE_SNAPSHOT] = { "scope_snapshot_packed", true },
	[TM_TABLE_CHECKPOINT_LIVE] = { "checkpoint_live", true },
	[TM_TABLE_CHECKPOINT_STACK] = { "checkpoint_stack", true },
};

static bool name_unfinished(struct tm_store *s) {
	s->unfinished = tm_unfinished_name(s->path);
	if (!s->unfinished) {
		tm_store_fail(s, "out of memory");
		return false;
	}
	tm_unfinished_begin(s->unfinished);
	return true;
}

static void close_database(struct tm_store *s) {
	if (s->db && !s->failed) tm_store_check(s, sqlite3_close(s->db));
	else sqlite3_close(s->db);
	s->db = NULL;
}

/* The file that nobody else sees yet. */
static void open_unfinished(struct tm_store *s) {
	if (s->failed) return;
	/* SQLite would try to read what it may not make, and tell of that. */
	int fd = open(s->unfinished, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0) return tm_store_fail(s, "%s", strerror(errno));
	close(fd);
	int rc = sqlite3_open_v2(s->unfinished, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
	if (tm_store_check(s, rc)) return;
	char page_size[64];
	snprintf(page_size, sizeof page_size, "PRAGMA page_size=%u", TM_BULK_PAGE_BYTES);
	tm_store_execute(s, page_size);
	tm_store_execute(s, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA locking_mode=EXCLUSIVE;"
			    "PRAGMA cache_size=-8192; PRAGMA temp_store=MEMORY; BEGIN");
}

static int create(struct tm_store *s) {
	if (!name_unfinished(s)) return -1;
	open_unfinished(s);
	tm_store_execute(s, tm_tables_sql);
	char meta[200];
	snprintf(meta, sizeof meta, "INSERT INTO meta VALUES('schema_version', '%d'), ('tool_version', '" TM_TOOL_VERSION "')",
		 TM_SCHEMA_VERSION);
	tm_store_execute(s, meta);
	return s->failed ? -1 : 0;
}

static int open_existing(struct tm_store *s) {
	s->appends = true;
	int rc = sqlite3_open_v2(s->path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
	if (tm_store_check(s, rc)) return -1;
	tm_store_execute(s, "PRAGMA cache_size=-16384; PRAGMA temp_store=MEMORY; BEGIN IMMEDIATE");
	sqlite3_busy_timeout(s->db, BUSY_MS);
	int64_t version = tm_store_number(s, "SELECT value FROM meta WHERE key = 'schema_version'", 0);
	if (s->failed) {
		/* Another one that adds to it, or a disk that fails, says so itself. */
		int code = sqlite3_errcode(s->db);
		if (code == SQLITE_NOTADB || code == SQLITE_ERROR) snprintf(s->error, sizeof s->error, "not a tidemark database");
		return -1;
	}
	if (version == TM_SCHEMA_VERSION) return 0;
	tm_store_fail(s, "it has schema version %lld, this tidemark writes version %d", (long long)version, TM_SCHEMA_VERSION);
	return -1;
}

static const char it_exists[] = "it exists; --append adds to it, --force replaces it";

int tm_store_open(struct tm_store *s, const char *path, enum tm_store_mode mode) {
	*s = (struct tm_store){ .path = tm_written_path(path), .replaces = mode == TM_STORE_FORCE };
	if (!s->path) return tm_store_fail(s, "%s", strerror(errno)), -1;
	struct stat status;
	bool exists = stat(s->path, &status) == 0;
	if (exists && S_ISDIR(status.st_mode)) return tm_store_fail(s, "%s", strerror(EISDIR)), -1;
	if (exists && mode == TM_STORE_CREATE) return tm_store_fail(s, it_exists), -1;
	return exists && mode == TM_STORE_APPEND ? open_existing(s) : create(s);
}

/* --- bulk --- */

static void check_bulk(struct tm_store *s) {
	if (s->bulk.failed) tm_store_fail(s, "%s", strerror(s->bulk.error));
}

static void find_roots(struct tm_store *s, uint32_t roots[TM_TABLE_COUNT]) {
	char sql[120];
	for (int i = 0; i < TM_TABLE_COUNT; i++) {
		snprintf(sql, sizeof sql, "SELECT rootpage FROM sqlite_schema WHERE name = '%s'", bulk_tables[i].name);
		roots[i] = (uint32_t)tm_store_number(s, sql, 0);
	}
}

/* Makes the scratch file, and leaves the connection as it was. */
static void make_scratch(struct tm_store *s, uint32_t roots[TM_TABLE_COUNT]) {
	sqlite3 *database = s->db;
	s->db = NULL;
	if (name_unfinished(s)) open_unfinished(s);
	tm_store_execute(s, tm_tables_sql);
	tm_store_execute(s, "COMMIT");
	find_roots(s, roots);
	close_database(s);
	s->db = database;
}

static void open_tables(struct tm_store *s, const uint32_t roots[TM_TABLE_COUNT]) {
	s->has_tables = true;
	tm_bulk_open(&s->bulk, s->unfinished);
	for (int i = 0; i < TM_TABLE_COUNT && !s->bulk.failed; i++)
		tm_bulk_table_open(&s->tables[i], &s->bulk, roots[i], bulk_tables[i].is_index);
}

void tm_store_begin_bulk(struct tm_store *s) {
	uint32_t roots[TM_TABLE_COUNT];
	if (!s->appends) {
		tm_store_execute(s, "COMMIT");
		if (!s->has_tables) find_roots(s, roots);
		close_database(s);
	} else if (!s->has_tables) {
		make_scratch(s, roots);
	}
	if (s->failed) return;
	if (!s->has_tables) open_tables(s, roots);
	tm_bulk_begin(&s->bulk);
	check_bulk(s);
}

void tm_store_end_bulk(struct tm_store *s) {
	if (s->failed) return;
	tm_bulk_end(&s->bulk);
	check_bulk(s);
	if (!s->appends) open_unfinished(s);
}

uint64_t tm_store_last_id(struct tm_store *s, enum tm_store_table table) {
	char sql[80];
	snprintf(sql, sizeof sql, "SELECT max(id) FROM %s", bulk_tables[table].name);
	uint64_t stored = (uint64_t)tm_store_number(s, sql, 0);
	return stored > s->tables[table].row_id ? stored : s->tables[table].row_id;
}

/* From the scratch file into the transaction. Row 0 of `stack` is in both. */
static void copy_scratch(struct tm_store *s) {
	char *attach = sqlite3_mprintf("ATTACH %Q AS scratch", s->unfinished);
	if (!attach) tm_store_fail(s, "out of memory");
	else tm_store_execute(s, attach);
	sqlite3_free(attach);
	for (int i = 0; i < TM_TABLE_COUNT; i++) {
		char sql[160];
		if (i == TM_TABLE_SCOPE_BY_PROCESS) continue; /* SQLite keeps it itself */
		snprintf(sql, sizeof sql, "INSERT INTO main.%s SELECT * FROM scratch.%s%s", bulk_tables[i].name, bulk_tables[i].name,
			 i == TM_TABLE_STACK || i == TM_TABLE_SCOPE ? " WHERE id > 0" : "");
		tm_store_execute(s, sql);
	}
}

static void finish_tables(struct tm_store *s) {
	tm_store_begin_bulk(s);
	for (int i = 0; i < TM_TABLE_COUNT && !s->failed; i++) tm_bulk_finish(&s->tables[i]);
	tm_store_end_bulk(s);
	if (s->appends) copy_scratch(s);
}

/* Somebody may have made the file meanwhile: link() refuses to replace it, where links are to be had. */
static int put_in_place(struct tm_store *s) {
	bool is_there = !s->replaces && link(s->unfinished, s->path) < 0 && errno == EEXIST;
	if (!is_there && rename(s->unfinished, s->path) == 0) {
		unlink(s->unfinished); /* rename() leaves both names of one file as they are */
		return 0;
	}
	if (is_there) tm_store_fail(s, it_exists);
	else tm_store_fail(s, "%s", strerror(errno));
	return -1;
}

int tm_store_commit(struct tm_store *s) {
	finish_tables(s);
	if (!s->appends) tm_store_execute(s, tm_views_sql);
	tm_store_execute(s, "COMMIT");
	if (!s->failed) close_database(s);
	if (s->failed) return -1;
	if (s->appends) return 0; /* the scratch file goes with the release */
	tm_journal_forget(s->path);
	if (put_in_place(s) < 0) return -1;
	tm_unfinished_end();
	free(s->unfinished);
	s->unfinished = NULL;
	return 0;
}

void tm_store_release(struct tm_store *s) {
	if (s->db) sqlite3_close(s->db); /* rolls an open transaction back */
	for (int i = 0; s->has_tables && i < TM_TABLE_COUNT; i++) tm_bulk_table_release(&s->tables[i]);
	if (s->has_tables) tm_bulk_release(&s->bulk);
	if (s->unfinished) {
		unlink(s->unfinished);
		tm_unfinished_end();
	}
	free(s->unfinished);
	free(s->path);
	s->db = NULL;
	s->unfinished = s->path = NULL;
	s->has_tables = false;
}

/* --- rows --- */

/* Bytes of the valid UTF-8 sequence at p, 0 if there is none. */
static size_t sequence_bytes(const unsigned char *p, size_t n) {
	size_t length = *p < 0x80 ? 1 : *p >= 0xC2 && *p < 0xE0 ? 2 : (*p & 0xF0) == 0xE0 ? 3 : *p >= 0xF0 && *p < 0xF5 ? 4 : 0;
	if (!length || length > n) return 0;
	for (size_t i = 1; i < length; i++)
		if ((p[i] & 0xC0) != 0x80) return 0;
	if ((*p == 0xE0 && p[1] < 0xA0) || (*p == 0xED && p[1] > 0x9F) || (*p == 0xF0 && p[1] < 0x90) || (*p == 0xF4 && p[1] > 0x8F))
		return 0;
	return length;
}

/* Eight bytes that are ASCII and no NUL. */
static bool is_plain(const unsigned char *p, size_t n) {
	uint64_t word;
	if (n < sizeof word) return false;
	memcpy(&word, p, sizeof word);
	return !((word | (word - 0x0101010101010101u)) & 0x8080808080808080u);
}

static bool is_clean(struct tm_text t) {
	const unsigned char *p = (const unsigned char *)t.data;
	for (size_t i = 0; i < t.size;) {
		size_t n = is_plain(p + i, t.size - i) ? 8 : p[i] ? sequence_bytes(p + i, t.size - i) : 0;
		if (!n) return false;
		i += n;
	}
	return true;
}

/* A copy in which every byte that does not belong became U+FFFD, and every NUL a space. NULL: out of memory. */
static char *cleaned(struct tm_text t, size_t *out_bytes) {
	const unsigned char *p = (const unsigned char *)t.data;
	char *copy = malloc(t.size * 3 + 1);
	size_t at = 0;
	for (size_t i = 0; copy && i < t.size;) {
		size_t n = sequence_bytes(p + i, t.size - i);
		if (!p[i]) copy[at++] = ' ';
		else if (n) memcpy(copy + at, p + i, n), at += n;
		else memcpy(copy + at, "\xEF\xBF\xBD", 3), at += 3;
		i += n ? n : 1;
	}
	*out_bytes = at;
	return copy;
}

static int bind_text(sqlite3_stmt *statement, int index, struct tm_text t) {
	if (!t.size) t.data = ""; /* a null pointer would mean NULL */
	if (is_clean(t)) return sqlite3_bind_text64(statement, index, t.data, t.size, SQLITE_STATIC, SQLITE_UTF8);
	size_t n = 0;
	char *copy = cleaned(t, &n);
	return copy ? sqlite3_bind_text64(statement, index, copy, n, free, SQLITE_UTF8) : SQLITE_NOMEM;
}

void tm_store_put_text(struct tm_bulk_table *t, struct tm_text text) {
	if (is_clean(text)) return tm_bulk_text(t, text.data, text.size);
	size_t n = 0;
	char *copy = cleaned(text, &n);
	if (copy) tm_bulk_text(t, copy, n);
	else tm_bulk_no_memory(t);
	free(copy);
}

static int bind_number(sqlite3_stmt *statement, int index, uint64_t n) {
	return sqlite3_bind_int64(statement, index, n > INT64_MAX ? INT64_MAX : (sqlite3_int64)n);
}

static int bind_one(sqlite3_stmt *statement, int index, char kind, va_list *values) {
	if (kind == 'n') return bind_number(statement, index, va_arg(*values, uint64_t));
	if (kind == 's') return sqlite3_bind_int64(statement, index, va_arg(*values, int64_t));
	if (kind == 'r') return sqlite3_bind_double(statement, index, va_arg(*values, double));
	if (kind == 't') return bind_text(statement, index, va_arg(*values, struct tm_text));
	if (kind == 'N') {
		uint64_t n = va_arg(*values, uint64_t);
		return n == UINT64_MAX ? sqlite3_bind_null(statement, index) : bind_number(statement, index, n);
	}
	if (kind == 'i') {
		int64_t i = va_arg(*values, int64_t);
		return i < 0 ? sqlite3_bind_null(statement, index) : sqlite3_bind_int64(statement, index, i);
	}
	if (kind == 'T') {
		struct tm_text t = va_arg(*values, struct tm_text);
		return t.size ? bind_text(statement, index, t) : sqlite3_bind_null(statement, index);
	}
	if (kind == 'z') {
		const char *z = va_arg(*values, const char *);
		return z ? bind_text(statement, index, (struct tm_text){ z, strlen(z) }) : sqlite3_bind_null(statement, index);
	}
	return sqlite3_bind_null(statement, index);
}

void tm_store_row(struct tm_store *s, sqlite3_stmt *statement, const char *kinds, ...) {
	if (s->failed || !statement) return;
	va_list values;
	va_start(values, kinds);
	int rc = SQLITE_OK;
	for (int i = 0; kinds[i] && rc == SQLITE_OK; i++) rc = bind_one(statement, i + 1, kinds[i], &values);
	va_end(values);
	if (rc == SQLITE_OK) rc = sqlite3_step(statement);
	int reset = sqlite3_reset(statement);
	tm_store_check(s, rc == SQLITE_DONE ? reset : rc);
}
