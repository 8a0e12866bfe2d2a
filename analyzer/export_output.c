/* export_output.c - writes to a temporary file and gives it its name when it is whole.
 *
 * zlib's gzFile serves both forms: in its transparent mode it writes the bytes as they are.
 */
#include "export_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "overwrite.h"
#include "progress.h"
#include "talk.h"
#include "unfinished.h"

#define BUFFER_BYTES (256 * 1024)

static void release_temporary(struct tm_output *out) {
	free(out->target);
	out->target = NULL;
	if (!out->temporary) return;
	unlink(out->temporary);
	tm_unfinished_end();
	free(out->temporary);
	out->temporary = NULL;
}

static int open_temporary(struct tm_output *out) {
	out->target = tm_written_path(out->path);
	if (!out->target) return -1;
	if (asprintf(&out->temporary, "%s.XXXXXX", out->target) < 0) {
		out->temporary = NULL;
		return -1;
	}
	int fd = mkostemp(out->temporary, O_CLOEXEC);
	if (fd < 0) {
		free(out->temporary);
		out->temporary = NULL;
		return -1;
	}
	tm_unfinished_begin(out->temporary);
	/* A temporary file is private; the result is as readable as any other new file. */
	mode_t mask = umask(0);
	umask(mask);
	fchmod(fd, 0666 & ~mask);
	return fd;
}

int tm_output_open(struct tm_output *out, const char *path, bool gzip, bool force) {
	struct stat status;
	*out = (struct tm_output){ .path = path, .force = force, .gzip = gzip };
	bool exists = strcmp(path, "-") != 0 && stat(path, &status) == 0;
	if (strcmp(path, "-") == 0) {
		out->path = "standard output";
		out->fd = dup(STDOUT_FILENO);
	} else if (exists && S_ISDIR(status.st_mode)) {
		errno = EISDIR;
		out->fd = -1;
	} else if (exists && !S_ISREG(status.st_mode)) {
		out->fd = open(path, O_WRONLY | O_CLOEXEC);
	} else if (exists && !force) {
		return tm_fail("cannot write '%s': it exists (--force overwrites it)", path);
	} else {
		out->fd = open_temporary(out);
	}
	if (out->fd >= 0) return 0;
	int code = tm_fail("cannot write '%s': %s", out->path, strerror(errno));
	release_temporary(out);
	return code;
}

static void fail(struct tm_output *out, const char *why) {
	if (!out->failed) tm_fail("cannot write '%s': %s", out->path, why);
	out->failed = true;
}

/* zlib ends each stream that was opened, be it empty: an export that is refused leaves none. */
static bool begin(struct tm_output *out) {
	/* Level 4 takes half the time of the default and a tenth more space. */
	if (!out->file && !out->failed && (out->file = gzdopen(out->fd, out->gzip ? "wb4" : "wbT"))) gzbuffer(out->file, BUFFER_BYTES);
	if (!out->file) fail(out, "out of memory");
	return out->file;
}

void tm_output_write(struct tm_output *out, const void *data, size_t n) {
	const char *p = data;
	if (!out->target) tm_progress_wipe();
	while (n && begin(out) && !out->failed) {
		unsigned chunk = n < BUFFER_BYTES ? (unsigned)n : BUFFER_BYTES;
		if (gzwrite(out->file, p, chunk) <= 0) fail(out, strerror(errno));
		p += chunk;
		n -= chunk;
	}
}

void tm_output_flush(struct tm_output *out, struct tm_bytes *bytes) {
	if (bytes->failed) fail(out, "out of memory");
	else tm_output_write(out, bytes->data, bytes->size);
	tm_bytes_clear(bytes);
}

int tm_output_close(struct tm_output *out, int status) {
	bool has_stream = out->file || (!status && begin(out));
	errno = 0;
	if (!has_stream) close(out->fd);
	else if (gzclose(out->file) != Z_OK) fail(out, errno ? strerror(errno) : "out of memory");
	bool whole = !status && !out->failed;
	/* Somebody may have made the file meanwhile: link() refuses to replace it, where links are to be had. */
	if (whole && out->temporary && !out->force && link(out->temporary, out->target) && errno == EEXIST) fail(out, strerror(errno));
	else if (whole && out->temporary && rename(out->temporary, out->target)) fail(out, strerror(errno));
	release_temporary(out);
	return status ? status : out->failed ? TM_EXIT_FAILED : TM_EXIT_DONE;
}
