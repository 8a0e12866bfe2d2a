/* database.h - the database that a command reads, opened read-only.
 *
 * Flow:     a path on the command line -> here (a trace is imported beside itself first) -> listing.c, cmd_*.c
 * Files are recognised by their content. A trace's database is its name with the suffix .db (run.tmk -> run.db); one that is newer than its
 * trace is used again.
 * Owns:     the SQLite handle.
 * Fails:    with one line on standard error.
 */
#ifndef TIDEMARK_ANALYZER_DATABASE_H
#define TIDEMARK_ANALYZER_DATABASE_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

enum tm_file_kind { TM_FILE_UNREADABLE, TM_FILE_TRACE, TM_FILE_DATABASE, TM_FILE_OTHER };

/* Looks at the first bytes. Says what is wrong unless it is a trace (of ours, or another tool's: foreign.h) or a database. */
enum tm_file_kind tm_file_recognise(const char *path);

struct tm_database {
	sqlite3 *handle;
	char *path;           /* of the database, not of the trace */
	int64_t processes;    /* how many it holds */
	bool has_ranks;       /* some process has a rank */
	int64_t worlds;       /* that ranks count in; those without a name are one */
	bool has_checkpoints; /* instants need not read every allocation */
	bool estimated;       /* some heap's numbers are estimates from samples */
	int64_t sample_bytes; /* the largest mean of the sampling, 0 for none */
};

/* 0, or an exit status after saying what failed. Close after either. */
int tm_database_open(struct tm_database *d, const char *path);
void tm_database_close(struct tm_database *d);

/* The first column of the first row; `otherwise` when there is no row, or it is NULL, or the query fails. */
int64_t tm_database_integer(const struct tm_database *d, const char *sql, int64_t otherwise);

/* 0, or TM_EXIT_FAILED after saying why. Finalize *out after either. */
int tm_database_prepare(const struct tm_database *d, const char *sql, sqlite3_stmt **out);

/* Calls take for each row of "SELECT tm_row(...) FROM ...", in one step of the statement: fetching each column of each of
 * millions of rows costs as much again. take returns 0, or an exit status after saying why, which ends it. The order of the rows
 * is SQLite's. 0, or an exit status. */
int tm_database_each(const struct tm_database *d, const char *query, int (*take)(void *context, sqlite3_value **row), void *context);

/* The first column of all rows as "a, b, c" (at most 20 of them), to be freed with sqlite3_free(); NULL when there are none. */
char *tm_database_words(const struct tm_database *d, const char *sql);

#endif
