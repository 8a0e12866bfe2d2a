/* test_bulk.c - tables that bulk.c writes, as SQLite sees them.
 *
 * Method: random rows (the seed is printed), some with texts that one page does not hold, go into one table through bulk.c and into another through
 *         SQLite, whose own statements then say whether both hold the same, and whose integrity check says whether the pages are sound: also with rows
 *         that SQLite puts in, before, between and after, and across the page that SQLite never uses.
 */
#include "../../analyzer/bulk.h"
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/test_bulk.XXXXXX";
static struct check_random r;

static void check_text(const char *actual, const char *expected) {
	if (!CHECK(strcmp(actual, expected) == 0)) printf("  actual   %s\n  expected %s\n", actual, expected);
}

static sqlite3 *open_database(void) {
	sqlite3 *db = NULL;
	CHECK(sqlite3_open(path, &db) == SQLITE_OK);
	CHECK(sqlite3_exec(db, "PRAGMA page_size=8192; PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF", NULL, NULL, NULL) == SQLITE_OK);
	return db;
}

static void execute(sqlite3 *db, const char *sql) {
	if (!CHECK(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK)) printf("  %s: %s\n", sql, sqlite3_errmsg(db));
}

static char *answer(sqlite3 *db, const char *sql) {
	static char text[400];
	sqlite3_stmt *statement = NULL;
	CHECK(sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW);
	snprintf(text, sizeof text, "%s", (const char *)sqlite3_column_text(statement, 0));
	sqlite3_finalize(statement);
	return text;
}

static void create_tables(void) {
	unlink(path);
	sqlite3 *db = open_database();
	execute(db,
		"CREATE TABLE t(id INTEGER PRIMARY KEY, a, b, c); CREATE TABLE t2(id INTEGER PRIMARY KEY, a, b, c);"
		"CREATE TABLE w(k, l, a, b, PRIMARY KEY(k, l)) WITHOUT ROWID; CREATE TABLE w2(k, l, a, b, PRIMARY KEY(k, l)) WITHOUT ROWID;"
		"INSERT INTO t VALUES(0, 'first', 2, 3); INSERT INTO t2 SELECT * FROM t; CREATE TABLE other(x)");
	sqlite3_close(db);
}

static uint32_t root_of(const char *table) {
	char sql[100];
	sqlite3 *db = open_database();
	snprintf(sql, sizeof sql, "SELECT rootpage FROM sqlite_schema WHERE name = '%s'", table);
	uint32_t root = (uint32_t)strtoul(answer(db, sql), NULL, 10);
	sqlite3_close(db);
	return root;
}

static void bind(sqlite3_stmt *statement, int at, uint64_t value) {
	sqlite3_bind_int64(statement, at, value > INT64_MAX ? INT64_MAX : (sqlite3_int64)value);
}

static void insert(sqlite3_stmt *statement) {
	CHECK(sqlite3_step(statement) == SQLITE_DONE);
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
}

/* The same text to both: mostly short, now and then as long as a cell may be or some bytes less or more, or as some pages. */
static void add_text(struct tm_bulk_table *t, sqlite3_stmt *statement, int at, unsigned cell_bytes) {
	static char text[40000];
	unsigned kind = (unsigned)check_random_below(&r, 400);
	size_t n = (size_t)check_random_below(&r, kind == 0 ? sizeof text : kind < 4 ? 64 : 30);
	if (kind && kind < 4) n += cell_bytes - 60;
	for (size_t i = 0; i < n; i++) text[i] = (char)('a' + check_random_below(&r, 26));
	sqlite3_bind_text(statement, at, text, (int)n, SQLITE_TRANSIENT);
	tm_bulk_text(t, text, n);
}

/* The same row to both: a number, one that may be NULL, and every third time a real, else perhaps a text. */
static void add_row(struct tm_bulk_table *t, sqlite3_stmt *statement, uint64_t id) {
	uint64_t a = check_random_any(&r), b = check_random_any(&r);
	bind(statement, 1, id);
	bind(statement, 2, a);
	tm_bulk_null(t);
	tm_bulk_number(t, a);
	if (id % 5) bind(statement, 3, b);
	tm_bulk_number_or_null(t, id % 5 ? b : UINT64_MAX);
	if (id % 3 == 0) {
		sqlite3_bind_double(statement, 4, (double)a / 7);
		tm_bulk_real(t, (double)a / 7);
	} else if (id % 3 == 1) {
		add_text(t, statement, 4, TM_BULK_PAGE_BYTES - 35);
	} else {
		tm_bulk_null(t);
	}
	tm_bulk_row(t, id);
	insert(statement);
}

static void add_keyed_row(struct tm_bulk_table *t, sqlite3_stmt *statement, uint64_t k, uint64_t l) {
	uint64_t values[] = { k, l, check_random_any(&r), check_random_any(&r) };
	for (int i = 0; i < 3; i++) {
		bind(statement, i + 1, values[i]);
		tm_bulk_number(t, values[i]);
	}
	if (l % 2) {
		add_text(t, statement, 4, 2030); /* (page - 12) * 64 / 255 - 23: a quarter of a page */
	} else {
		bind(statement, 4, values[3]);
		tm_bulk_number(t, values[3]);
	}
	tm_bulk_row(t, 0);
	insert(statement);
}

static void compare(sqlite3 *db, const char *a, const char *b) {
	char sql[200];
	snprintf(sql, sizeof sql,
		 "SELECT (SELECT count(*) FROM (SELECT * FROM %s EXCEPT SELECT * FROM %s))"
		 "|| ' ' || (SELECT count(*) FROM (SELECT * FROM %s EXCEPT SELECT * FROM %s))",
		 a, b, b, a);
	check_text(answer(db, sql), "0 0");
	snprintf(sql, sizeof sql, "SELECT (SELECT count(*) FROM %s) - (SELECT count(*) FROM %s)", a, b);
	check_text(answer(db, sql), "0");
}

/* Rows in three turns, SQLite's own between them. */
static void write_both(struct tm_bulk *b, unsigned rows) {
	struct tm_bulk_table t, w;
	uint32_t t_root = root_of("t"), w_root = root_of("w");
	CHECK(tm_bulk_open(b, path) == 0);
	uint64_t id = 0, k = 1, l = 0;
	for (int turn = 0; turn < 3; turn++) {
		sqlite3 *memory = NULL;
		sqlite3_stmt *to_t = NULL, *to_w = NULL;
		sqlite3_open(":memory:", &memory);
		execute(memory, "CREATE TABLE t2(id INTEGER PRIMARY KEY, a, b, c); CREATE TABLE w2(k, l, a, b)");
		sqlite3_prepare_v2(memory, "INSERT INTO t2 VALUES(?,?,?,?)", -1, &to_t, NULL);
		sqlite3_prepare_v2(memory, "INSERT INTO w2 VALUES(?,?,?,?)", -1, &to_w, NULL);
		execute(memory, "BEGIN");
		tm_bulk_begin(b);
		if (!turn) CHECK(tm_bulk_table_open(&t, b, t_root, false) == 0 && tm_bulk_table_open(&w, b, w_root, true) == 0);
		for (unsigned i = 0; i < rows; i++) {
			add_row(&t, to_t, id += 1 + check_random_below(&r, 3));
			if (check_random_below(&r, 10) == 0) k += 1 + check_random_below(&r, 1000), l = 0;
			add_keyed_row(&w, to_w, k, l += 1 + check_random_any(&r) % 100000);
		}
		if (turn == 2) {
			tm_bulk_finish(&t);
			tm_bulk_finish(&w);
		}
		tm_bulk_end(b);
		CHECK(!b->failed);
		sqlite3_finalize(to_t);
		sqlite3_finalize(to_w);
		char attach[100];
		snprintf(attach, sizeof attach, "COMMIT; ATTACH '%s' AS d", path);
		execute(memory, attach);
		execute(memory, "BEGIN; INSERT INTO d.t2 SELECT * FROM t2; INSERT INTO d.w2 SELECT * FROM w2;"
				"INSERT INTO d.other VALUES(randomblob(30000)); COMMIT");
		sqlite3_close(memory);
	}
	tm_bulk_table_release(&t);
	tm_bulk_table_release(&w);
	tm_bulk_release(b);
}

static void check_rows(unsigned rows) {
	struct tm_bulk b;
	create_tables();
	write_both(&b, rows);
	sqlite3 *db = open_database();
	check_text(answer(db, "PRAGMA integrity_check"), "ok");
	compare(db, "t", "t2");
	compare(db, "w", "w2");
	/* They are tables like any other. */
	execute(db,
		"DELETE FROM t WHERE id % 3 = 1; DELETE FROM t2 WHERE id % 3 = 1; INSERT INTO t(a) VALUES(1), (2); INSERT INTO t2(a) VALUES(1), (2);"
		"DELETE FROM w WHERE l % 3 = 1; DELETE FROM w2 WHERE l % 3 = 1; INSERT INTO w VALUES(0, 0, 0, 0); INSERT INTO w2 VALUES(0, 0, 0, 0)");
	check_text(answer(db, "PRAGMA integrity_check"), "ok");
	compare(db, "t", "t2");
	compare(db, "w", "w2");
	sqlite3_close(db);
}

/* The page with byte 2^30 stays out of it. The file has a hole before it, which only the integrity check would mind. */
static void check_lock_page(void) {
	struct tm_bulk b;
	struct tm_bulk_table t;
	const uint32_t lock_page = (1u << 30) / TM_BULK_PAGE_BYTES + 1;
	const unsigned rows = 200000;
	uint8_t page[TM_BULK_PAGE_BYTES], zeros[TM_BULK_PAGE_BYTES] = { 0 };
	create_tables();
	CHECK(tm_bulk_open(&b, path) == 0);
	uint32_t root = root_of("t");
	tm_bulk_begin(&b);
	b.page_count = lock_page - 100;
	CHECK(tm_bulk_table_open(&t, &b, root, false) == 0);
	for (unsigned i = 1; i <= rows; i++) {
		tm_bulk_null(&t);
		for (int k = 0; k < 3; k++) tm_bulk_number(&t, i);
		tm_bulk_row(&t, i);
	}
	tm_bulk_finish(&t);
	tm_bulk_end(&b);
	CHECK(!b.failed && b.page_count > lock_page + 100);
	CHECK(pread(b.fd, page, sizeof page, (off_t)1 << 30) == sizeof page && memcmp(page, zeros, sizeof page) == 0);
	tm_bulk_table_release(&t);
	tm_bulk_release(&b);
	sqlite3 *db = open_database();
	check_text(answer(db, "SELECT count(*) || ' ' || sum(b) || ' ' || sum(id) FROM t WHERE id > 0"), "200000 20000100000 20000100000");
	sqlite3_close(db);
}

static void check_failed_write(void) {
	struct tm_bulk b;
	struct tm_bulk_table t;
	create_tables();
	uint32_t root = root_of("t");
	CHECK(tm_bulk_open(&b, path) == 0);
	tm_bulk_begin(&b);
	CHECK(tm_bulk_table_open(&t, &b, root, false) == 0);
	int full = open("/dev/full", O_RDWR);
	CHECK(full >= 0 && dup2(full, b.fd) == b.fd);
	close(full);
	for (uint64_t i = 1; i <= 2000000 && !b.failed; i++) {
		for (int k = 0; k < 4; k++) tm_bulk_null(&t);
		tm_bulk_row(&t, i);
	}
	CHECK(b.failed && b.error == ENOSPC);
	tm_bulk_finish(&t);
	tm_bulk_end(&b);
	tm_bulk_table_release(&t);
	tm_bulk_release(&b);
	CHECK(tm_bulk_open(&b, "/nonexistent/database") == -1 && b.failed);
	tm_bulk_release(&b);
}

int main(void) {
	static const unsigned counts[] = { 0, 1, 2, 50, 100, 1000, 20000, 150000 };
	close(mkstemp(path));
	r = check_random_start("test_bulk");
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) check_rows(counts[i]);
	check_lock_page();
	check_failed_write();
	unlink(path);
	return check_report("test_bulk");
}
