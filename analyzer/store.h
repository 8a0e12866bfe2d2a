/* store.h - the database that an import writes: made whole or not at all.
 *
 * Flow:     import.c, catalog_rows.c, total_rows.c -> here -> run.db
 * Idea:     a new database is built under another name beside its place (no journal, nothing synced) and renamed when it is whole.
 *           Appending happens in one transaction of the existing database.
 * Bulk:     the tables that grow with the trace are written by bulk.c, in turn with SQLite: into the new database itself, or when
 *           appending into a scratch file, from which SQLite copies them at the end.
 * Owns:     the connection and the unfinished file, which any failure, and a signal that ends us, removes.
 * Threads:  one at a time.
 * Fails:    with a sentence in `error`; the first failure stays, what follows does nothing.
 */
#ifndef TIDEMARK_ANALYZER_STORE_H
#define TIDEMARK_ANALYZER_STORE_H

#include "bulk.h"

#include "../schema/wire.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

/* 1: without checkpoints, scores of leaks, churn, scopes' figures, devices' work and alerts; 2: free_thread does not tell temporary blocks;
 * 6: fewer columns in views */
#define TM_SCHEMA_VERSION 12

enum tm_store_mode {
	TM_STORE_CREATE, /* refuses an existing file */
	TM_STORE_FORCE,  /* replaces it; import.c looks at it first */
	TM_STORE_APPEND, /* adds to it; makes it if there is none */
};

/* Tables that bulk.c writes. */
enum tm_store_table {
	TM_TABLE_ALLOCATION,
	TM_TABLE_FRAME,
	TM_TABLE_STACK,
	TM_TABLE_SITE,
	TM_TABLE_SNAPSHOT_STACK,
	TM_TABLE_LEAK_SCORE,
	TM_TABLE_LEAK_STACK,
	TM_TABLE_FUNCTION,
	TM_TABLE_SCOPE,
	TM_TABLE_SCOPE_BY_PROCESS, /* the index */
	TM_TABLE_SCOPE_INSTANCE,
	TM_TABLE_SCOPE_SNAPSHOT,
	TM_TABLE_CHECKPOINT_LIVE,
	TM_TABLE_CHECKPOINT_STACK,
	TM_TABLE_COUNT
};

struct tm_store {
	sqlite3 *db;             /* NULL while the bulk tables are written */
	char *path, *unfinished; /* unfinished: the new database, or the scratch file when appending */
	bool appends, replaces;  /* replaces: what stands in its place when it is done */
	struct tm_bulk bulk;
	struct tm_bulk_table tables[TM_TABLE_COUNT];
	bool has_tables; /* they are open */
	_Atomic bool failed; /* by any thread; the first one says why */
	char error[512];
};

/* 0 or -1. Release after either. */
int tm_store_open(struct tm_store *s, const char *path, enum tm_store_mode mode);
/* Makes what is missing of indexes and views, and puts the database in its place. */
int tm_store_commit(struct tm_store *s);
/* Without a commit before it, nothing of the import is left. */
void tm_store_release(struct tm_store *s);

/* Between these two tables[] may be written and nothing else of the store used. */
void tm_store_begin_bulk(struct tm_store *s);
void tm_store_end_bulk(struct tm_store *s);
/* A text as a value of a bulk table's row, cleaned as below. */
void tm_store_put_text(struct tm_bulk_table *t, struct tm_text text);
/* The highest id in the table, written or not yet finished. */
uint64_t tm_store_last_id(struct tm_store *s, enum tm_store_table table);

void tm_store_fail(struct tm_store *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Remembers what SQLite says; true if rc was a failure. */
bool tm_store_check(struct tm_store *s, int rc);
void tm_store_execute(struct tm_store *s, const char *sql);
/* A number, or `otherwise` if there is no row or it is NULL. */
int64_t tm_store_number(struct tm_store *s, const char *sql, int64_t otherwise);

/* NULL after a failure; the functions below then do nothing. Finalise with sqlite3_finalize(). */
sqlite3_stmt *tm_store_prepare(struct tm_store *s, const char *sql);

/* Writes one row. kinds: a letter for each value,
 *   n uint64_t            N uint64_t, NULL if UINT64_MAX      i int64_t, NULL if negative      s int64_t      r double
 *   t struct tm_text      T the same, NULL if empty           z const char *, may be NULL      0 (takes no value) NULL
 * Numbers above what SQLite can hold become the largest it can. Texts become valid UTF-8, NULs in them spaces. */
void tm_store_row(struct tm_store *s, sqlite3_stmt *statement, const char *kinds, ...);

#endif
