/* sqlite_rows.c - how fast SQLite itself takes rows: nine integers each, into a table without a key of its own, from a virtual table that has them in no time.
 *
 *     sqlite_rows FILE ROWS
 *
 * Prints wall seconds and seconds of processor time. Of the ways in that were tried (prepared inserts, many rows in one statement, a table that has the
 * rows, a virtual table) this is the fastest; there is no journal, nobody waits for the disk, and all is one transaction. FILE stays for whoever
 * wants to know its size.
 */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define COLUMNS "a, b, c, d, e, f, g, h, i"

static sqlite3_int64 rows;

struct cursor {
	sqlite3_vtab_cursor base;
	sqlite3_int64 row;
};

static int connect_table(sqlite3 *db, void *context, int count, const char *const *words, sqlite3_vtab **table, char **error) {
	(void)context, (void)count, (void)words, (void)error;
	*table = calloc(1, sizeof **table);
	return *table ? sqlite3_declare_vtab(db, "CREATE TABLE source(" COLUMNS ")") : SQLITE_NOMEM;
}

static int disconnect(sqlite3_vtab *table) {
	free(table);
	return SQLITE_OK;
}

static int best_index(sqlite3_vtab *table, sqlite3_index_info *info) {
	(void)table, (void)info;
	return SQLITE_OK;
}

static int open_cursor(sqlite3_vtab *table, sqlite3_vtab_cursor **cursor) {
	struct cursor *c = calloc(1, sizeof *c);
	(void)table;
	*cursor = c ? &c->base : NULL;
	return c ? SQLITE_OK : SQLITE_NOMEM;
}

static int close_cursor(sqlite3_vtab_cursor *cursor) {
	free(cursor);
	return SQLITE_OK;
}

static int filter(sqlite3_vtab_cursor *cursor, int number, const char *text, int count, sqlite3_value **values) {
	(void)number, (void)text, (void)count, (void)values;
	((struct cursor *)cursor)->row = 0;
	return SQLITE_OK;
}

static int next(sqlite3_vtab_cursor *cursor) {
	((struct cursor *)cursor)->row++;
	return SQLITE_OK;
}

static int eof(sqlite3_vtab_cursor *cursor) {
	return ((struct cursor *)cursor)->row >= rows;
}

/* As large as those of an allocation: times and addresses that grow, small numbers, ids. */
static int column(sqlite3_vtab_cursor *cursor, sqlite3_context *out, int which) {
	sqlite3_int64 i = ((struct cursor *)cursor)->row;
	const sqlite3_int64 values[] = { i * 1000, i % 7, i * 48, i % 999, 8, i * 900, i % 5000, i % 777, 0 };
	sqlite3_result_int64(out, values[which]);
	return SQLITE_OK;
}

static int rowid(sqlite3_vtab_cursor *cursor, sqlite3_int64 *id) {
	*id = ((struct cursor *)cursor)->row;
	return SQLITE_OK;
}

static const sqlite3_module module = { .xConnect = connect_table, .xBestIndex = best_index, .xDisconnect = disconnect, .xOpen = open_cursor,
				       .xClose = close_cursor, .xFilter = filter, .xNext = next, .xEof = eof, .xColumn = column, .xRowid = rowid };

static double seconds(clockid_t clock) {
	struct timespec t;
	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void run(sqlite3 *db, const char *sql) {
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK) return;
	fprintf(stderr, "sqlite_rows: %s: %s\n", sql, sqlite3_errmsg(db));
	exit(1);
}

int main(int argc, char **argv) {
	sqlite3 *db;
	if (argc != 3) {
		fprintf(stderr, "usage: sqlite_rows FILE ROWS\n");
		return 2;
	}
	rows = atoll(argv[2]);
	if (sqlite3_open(argv[1], &db) != SQLITE_OK || sqlite3_create_module(db, "source", &module, NULL) != SQLITE_OK) {
		fprintf(stderr, "sqlite_rows: %s: %s\n", argv[1], sqlite3_errmsg(db));
		return 1;
	}
	run(db, "PRAGMA page_size = 8192; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; CREATE TABLE plain(" COLUMNS ")");
	double wall_s = seconds(CLOCK_MONOTONIC), cpu_s = seconds(CLOCK_PROCESS_CPUTIME_ID);
	run(db, "BEGIN; INSERT INTO plain SELECT * FROM source; COMMIT");
	printf("%.6f %.6f\n", seconds(CLOCK_MONOTONIC) - wall_s, seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_s);
	return sqlite3_close(db) == SQLITE_OK ? 0 : 1;
}
