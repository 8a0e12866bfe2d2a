/* fuzz_foreign.c - any bytes as another tool's recording: recognised, translated, and imported.
 *
 * Input:   a file; the first ones are of fixtures/foreign, short texts and pickles that were refused.
 * Checks:  it ends; what a reader makes of it is a sound trace, up to its END; nothing is read beyond the bytes (sanitizers).
 */
#define _GNU_SOURCE
#include "analyzer/foreign.h"
#include "analyzer/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool kept, const char *what) {
	if (kept) return;
	fprintf(stderr, "fuzz_foreign: %s\n", what);
	abort();
}

static void check_trace(const char *path) {
	struct tm_reader r;
	struct tm_chunk_header h = { 0 };
	struct tm_cursor payload;
	char error[256];
	need(tm_reader_open(&r, path, error, sizeof(error)) == 0, "what was made is no trace");
	while (tm_reader_next(&r, &h)) need(tm_reader_payload(&r, &h, &payload) == 0, "a chunk that cannot be read");
	need(!r.stopped && h.kind == TM_CHUNK_END, "a trace that is not whole");
	tm_reader_release(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	static int fd = -1;
	struct tm_foreign foreign;
	char path[64], why[64];
	if (fd < 0) fd = memfd_create("recording", 0);
	need(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size, "no memory for a file");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	enum tm_foreign_kind kind = tm_foreign_recognise(path, why, sizeof(why));
	if (kind == TM_FOREIGN_NONE) return 0;
	if (tm_foreign_translate(&foreign, kind, path, NULL) == 0) check_trace(foreign.path);
	else need(foreign.error[0], "a failure without a word");
	tm_foreign_release(&foreign);
	return 0;
}
