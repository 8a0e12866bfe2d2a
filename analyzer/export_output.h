/* export_output.h - the file that an export goes to.
 *
 * It is written under a temporary name beside its own and renamed at the end, so that a full disk or a Ctrl-C never leaves half a file
 * under the name that was asked for. "-" is standard output; devices and pipes are written directly.
 * Owns:     the descriptor and the temporary file, which it removes again where the export fails.
 * Fails:    with one line on standard error, once.
 */
#ifndef TIDEMARK_ANALYZER_EXPORT_OUTPUT_H
#define TIDEMARK_ANALYZER_EXPORT_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <zlib.h>

#include "schema/wire.h"

struct tm_output {
	const char *path;
	char *target;    /* where path leads; NULL: written directly, as is temporary */
	char *temporary;
	int fd;
	gzFile file; /* zlib writes plain bytes, too; NULL: nothing was written so far, and a compressed stream not begun */
	bool failed, force, gzip;
};

/* 0, or TM_EXIT_FAILED: exists already (without force), or cannot be made. */
int tm_output_open(struct tm_output *out, const char *path, bool gzip, bool force);
void tm_output_write(struct tm_output *out, const void *data, size_t n);
/* Writes the bytes and empties them; notices if gathering them ran out of memory. */
void tm_output_flush(struct tm_output *out, struct tm_bytes *bytes);
/* status: of the export so far; the file gets its name only if that is 0. Returns the status of all. */
int tm_output_close(struct tm_output *out, int status);

#endif
