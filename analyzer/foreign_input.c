/* foreign_input.c - the bytes of a file that may be compressed; see foreign_input.h. */
#include "foreign_input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#define BUFFER_BYTES ((size_t)256 << 10)
#define LINE_BYTES_MAX ((size_t)16 << 20)

static bool fill(struct tm_input *i) {
	if (i->at < i->filled) return true;
	ssize_t got;
	do got = read(i->fd, i->buffer, BUFFER_BYTES);
	while (got < 0 && errno == EINTR);
	if (got < 0) i->cut = strerror(errno);
	i->at = 0;
	i->filled = got > 0 ? (size_t)got : 0;
	i->read_bytes += i->filled;
	return i->filled > 0;
}

static int open_failed(char *error, size_t error_bytes, const char *why) {
	snprintf(error, error_bytes, "%s", why);
	return -1;
}

static int open_codec(struct tm_input *i) {
	static const uint8_t zstd_magic[] = { 0x28, 0xB5, 0x2F, 0xFD };
	fill(i);
	if (i->filled >= 2 && i->buffer[0] == 0x1F && i->buffer[1] == 0x8B) {
		i->codec = TM_INPUT_GZIP;
		i->has_zlib = inflateInit2(&i->zlib, 15 + 16) == Z_OK;
		return i->has_zlib ? 0 : -1;
	}
	if (i->filled >= sizeof zstd_magic && memcmp(i->buffer, zstd_magic, sizeof zstd_magic) == 0) {
		i->codec = TM_INPUT_ZSTD;
		i->zstd = ZSTD_createDCtx();
		return i->zstd ? 0 : -1;
	}
	return 0;
}

int tm_input_open(struct tm_input *i, const char *path, char *error, size_t error_bytes) {
	struct stat st;
	*i = (struct tm_input){ .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) };
	if (i->fd < 0 || fstat(i->fd, &st) < 0) return open_failed(error, error_bytes, strerror(errno));
	if (!S_ISREG(st.st_mode)) return open_failed(error, error_bytes, "not a regular file");
	i->file_bytes = (uint64_t)st.st_size;
	i->buffer = malloc(BUFFER_BYTES);
	i->ahead = malloc(BUFFER_BYTES);
	if (!i->buffer || !i->ahead || open_codec(i) < 0) return open_failed(error, error_bytes, "out of memory");
	return 0;
}

void tm_input_release(struct tm_input *i) {
	if (i->fd >= 0) close(i->fd);
	i->fd = -1;
	if (i->has_zlib) inflateEnd(&i->zlib);
	ZSTD_freeDCtx(i->zstd);
	free(i->buffer);
	free(i->ahead);
	tm_bytes_release(&i->text);
}

static size_t stop(struct tm_input *i, const char *why) {
	i->ended = true;
	if (!i->cut) i->cut = why;
	return 0;
}

/* Several members may follow one another. */
static size_t read_gzip(struct tm_input *i, void *data, size_t n) {
	i->zlib.next_out = data;
	i->zlib.avail_out = (uInt)n;
	while (i->zlib.avail_out == n) {
		if (!fill(i)) return i->in_frame ? stop(i, "the gzip data is cut off") : stop(i, i->cut);
		if (!i->in_frame && inflateReset(&i->zlib) != Z_OK) return stop(i, "the gzip data is damaged");
		i->in_frame = true;
		i->zlib.next_in = i->buffer + i->at;
		i->zlib.avail_in = (uInt)(i->filled - i->at);
		int rc = inflate(&i->zlib, Z_NO_FLUSH);
		i->at = i->filled - i->zlib.avail_in;
		if (rc == Z_STREAM_END) i->in_frame = false;
		else if (rc != Z_OK && rc != Z_BUF_ERROR) return stop(i, "the gzip data is damaged");
	}
	return n - i->zlib.avail_out;
}

static size_t read_zstd(struct tm_input *i, void *data, size_t n) {
	ZSTD_outBuffer out = { data, n, 0 };
	while (!out.pos) {
		/* What the decompressor still holds comes first. */
		bool has_more = fill(i);
		if (!has_more && !i->in_frame) return stop(i, i->cut);
		ZSTD_inBuffer in = { i->buffer, i->filled, i->at };
		size_t rc = ZSTD_decompressStream(i->zstd, &out, &in);
		i->at = in.pos;
		if (ZSTD_isError(rc)) return stop(i, "the zstd data is damaged");
		i->in_frame = rc != 0;
		if (!has_more && !out.pos) return stop(i, "the zstd data is cut off");
	}
	return out.pos;
}

static size_t read_plain(struct tm_input *i, void *data, size_t n) {
	if (!fill(i)) return stop(i, i->cut);
	size_t part = i->filled - i->at < n ? i->filled - i->at : n;
	memcpy(data, i->buffer + i->at, part);
	i->at += part;
	return part;
}

size_t tm_input_read(struct tm_input *i, void *data, size_t n) {
	if (i->ended || !n) return 0;
	if (n > (size_t)1 << 30) n = (size_t)1 << 30;
	size_t got = i->codec == TM_INPUT_GZIP   ? read_gzip(i, data, n)
		     : i->codec == TM_INPUT_ZSTD ? read_zstd(i, data, n)
						 : read_plain(i, data, n);
	i->given_bytes += got;
	return got;
}

bool tm_input_line(struct tm_input *i, struct tm_text *line) {
	tm_bytes_clear(&i->text);
	for (;;) {
		if (i->ahead_at == i->ahead_filled) {
			i->ahead_at = 0;
			i->ahead_filled = tm_input_read(i, i->ahead, BUFFER_BYTES);
			if (!i->ahead_filled) break;
		}
		const uint8_t *from = i->ahead + i->ahead_at, *end = memchr(from, '\n', i->ahead_filled - i->ahead_at);
		size_t n = end ? (size_t)(end - from) : i->ahead_filled - i->ahead_at;
		i->ahead_at += n + (end != NULL);
		if (end && !i->text.size) {
			*line = (struct tm_text){ (const char *)from, n };
			i->line++;
			return true;
		}
		if (i->text.size + n > LINE_BYTES_MAX) return stop(i, "a line of more than 16 MiB");
		tm_put_raw(&i->text, from, n);
		if (i->text.failed) return stop(i, "out of memory");
		if (end) break;
	}
	if (!i->text.size) return false;
	if (i->ended && !i->cut) i->cut = "the last line is cut off";
	*line = (struct tm_text){ (const char *)i->text.data, i->text.size };
	i->line++;
	return !i->cut;
}
