/* fuzz_import.c - any chunks, through the whole importer into a database.
 *
 * Input:   again and again: one byte kind, two bytes length (little endian), that many bytes of payload. Each becomes a sound chunk with right
 *          checksums, so that what is fuzzed lies behind them (seed.py makes inputs of traces).
 * Checks:  the import ends, with 0 or 1; a database that it leaves opens, and holds no block that was freed before it was allocated.
 */
#define _GNU_SOURCE
#include "analyzer/import.h"
#include "schema/chunk.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool kept, const char *what) {
	if (kept) return;
	fprintf(stderr, "fuzz_import: %s\n", what);
	abort();
}

static void write_trace(int fd, const uint8_t *data, size_t size) {
	uint8_t header[TM_FILE_HEADER_BYTES];
	struct tm_packer packer;
	need(tm_packer_init(&packer, 1) == 0 && ftruncate(fd, 0) == 0, "no memory");
	lseek(fd, 0, SEEK_SET);
	tm_file_header_write(header);
	need(write(fd, header, sizeof(header)) == sizeof(header), "cannot write");
	while (size >= 3) {
		uint8_t kind = data[0];
		size_t n = (size_t)(data[1] | data[2] << 8);
		data += 3;
		size -= 3;
		if (n > size) n = size;
		need(tm_pack(&packer, kind, data, n) == 0 && write(fd, packer.out.data, packer.out.size) == (ssize_t)packer.out.size,
		     "cannot write");
		data += n;
		size -= n;
	}
	tm_packer_release(&packer);
}

static void check_database(const char *path) {
	sqlite3 *db;
	sqlite3_stmt *statement;
	need(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK, "the database does not open");
	need(sqlite3_prepare_v2(db, "SELECT count(*) FROM allocation WHERE free_ns < alloc_ns", -1, &statement, NULL) == SQLITE_OK,
	     sqlite3_errmsg(db));
	need(sqlite3_step(statement) == SQLITE_ROW && sqlite3_column_int64(statement, 0) == 0, "a block was freed before it was allocated");
	sqlite3_finalize(statement);
	sqlite3_close(db);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	static int fd = -1;
	static char trace[64], database[64];
	if (fd < 0) {
		fd = memfd_create("trace", 0);
		need(fd >= 0, "no memory for a file");
		snprintf(trace, sizeof(trace), "/proc/self/fd/%d", fd);
		snprintf(database, sizeof(database), "/dev/shm/tidemark-fuzz-%d.db", (int)getpid());
	}
	const char *paths[] = { trace };
	struct tm_import_options options = { .mode = TM_STORE_FORCE, .quiet = true };
	write_trace(fd, data, size);
	int result = tm_import(paths, 1, database, &options);
	need(result == 0 || result == 1, "an unknown result");
	if (result == 0) check_database(database);
	unlink(database);
	return 0;
}
