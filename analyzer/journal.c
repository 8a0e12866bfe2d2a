/* journal.c - what an interrupted import left beside a database; see journal.h. */
#include "journal.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* There is a journal to be put back, which a connection that only reads may not do. */
static bool is_interrupted(sqlite3 *db) {
	sqlite3_exec(db, "SELECT 1 FROM sqlite_schema LIMIT 1", NULL, NULL, NULL);
	return sqlite3_extended_errcode(db) == SQLITE_READONLY_ROLLBACK;
}

/* One that may write does so when it reads. Where that fails, the one that reads next will say so. */
static void put_back(const char *path) {
	sqlite3 *db = NULL;
	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) == SQLITE_OK)
		sqlite3_exec(db, "SELECT 1 FROM sqlite_schema LIMIT 1", NULL, NULL, NULL);
	sqlite3_close(db);
}

int tm_journal_open(const char *path, sqlite3 **handle, int flags) {
	int rc = sqlite3_open_v2(path, handle, SQLITE_OPEN_READONLY | flags, NULL);
	if (rc != SQLITE_OK || !is_interrupted(*handle)) return rc;
	sqlite3_close(*handle);
	put_back(path);
	return sqlite3_open_v2(path, handle, SQLITE_OPEN_READONLY | flags, NULL);
}

void tm_journal_forget(const char *path) {
	static const char *const suffixes[] = { "-journal", "-wal", "-shm" };
	for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
		char *name;
		if (asprintf(&name, "%s%s", path, suffixes[i]) < 0) continue;
		unlink(name);
		free(name);
	}
}
