/* reader.c - a trace file, chunk by chunk; see reader.h. */
#include "reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* Bytes read, less than n only at the end of the file; -1 with errno. */
static ssize_t read_at(int fd, void *data, size_t n, uint64_t offset) {
	size_t done = 0;
	while (done < n) {
		ssize_t got = pread(fd, (char *)data + done, n - done, (off_t)(offset + done));
		if (got < 0 && errno == EINTR) continue;
		if (got < 0) return -1;
		if (got == 0) break;
		done += (size_t)got;
	}
	return (ssize_t)done;
}

static int open_failed(char *error, size_t error_bytes, const char *why) {
	snprintf(error, error_bytes, "%s", why);
	return -1;
}

static int check_file_header(struct tm_reader *r, char *error, size_t error_bytes) {
	uint8_t data[TM_FILE_HEADER_BYTES];
	ssize_t got = read_at(r->fd, data, sizeof data, 0);
	if (got < 0) return open_failed(error, error_bytes, strerror(errno));
	if (got == 0) return open_failed(error, error_bytes, "the file is empty");
	int rc = tm_file_header_read(data, (size_t)got, &r->major, &r->minor);
	if (rc == TM_CHUNK_SHORT && memcmp(data, TM_FILE_MAGIC, (size_t)got < 8 ? (size_t)got : 8) == 0)
		return open_failed(error, error_bytes, "the file is cut inside its header");
	if (rc == TM_CHUNK_NEWER) {
		snprintf(error, error_bytes, "it has trace format version %u.%u, this tidemark reads version %d", r->major, r->minor,
			 TM_FORMAT_MAJOR);
		return -1;
	}
	return rc ? open_failed(error, error_bytes, "not a tidemark trace") : 0;
}

int tm_reader_open(struct tm_reader *r, const char *path, char *error, size_t error_bytes) {
	*r = (struct tm_reader){ .fd = -1, .offset = TM_FILE_HEADER_BYTES };
	r->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe that nobody writes to is told, and not waited for */
	if (r->fd < 0) return open_failed(error, error_bytes, strerror(errno));
	struct stat st;
	if (fstat(r->fd, &st) < 0) return open_failed(error, error_bytes, strerror(errno));
	if (S_ISDIR(st.st_mode)) return open_failed(error, error_bytes, "it is a directory");
	if (!S_ISREG(st.st_mode)) return open_failed(error, error_bytes, "not a regular file");
	r->file_bytes = (uint64_t)st.st_size;
	if (check_file_header(r, error, error_bytes) < 0) return -1;
	if (tm_unpacker_init(&r->unpacker) < 0) return open_failed(error, error_bytes, "out of memory");
	return 0;
}

int tm_reader_again(struct tm_reader *r, const struct tm_reader *of) {
	*r = (struct tm_reader){ .fd = fcntl(of->fd, F_DUPFD_CLOEXEC, 0), .offset = TM_FILE_HEADER_BYTES, .file_bytes = of->file_bytes };
	r->major = of->major;
	r->minor = of->minor;
	return r->fd < 0 ? -1 : tm_unpacker_init(&r->unpacker);
}

void tm_reader_release(struct tm_reader *r) {
	if (r->fd >= 0) close(r->fd);
	r->fd = -1;
	tm_bytes_release(&r->stored);
	tm_unpacker_release(&r->unpacker);
}

static bool stop(struct tm_reader *r, const char *why) {
	r->stopped = why;
	r->offset = r->chunk_offset;
	return false;
}

static bool read_payload(struct tm_reader *r, const struct tm_chunk_header *h) {
	tm_bytes_clear(&r->stored);
	if (!tm_bytes_reserve(&r->stored, h->stored_bytes)) return stop(r, tm_chunk_error_text(TM_CHUNK_NO_MEMORY));
	ssize_t got = read_at(r->fd, r->stored.data, h->stored_bytes, r->chunk_offset + TM_CHUNK_HEADER_BYTES);
	if (got < 0) return stop(r, strerror(errno));
	if ((size_t)got < h->stored_bytes) return stop(r, tm_chunk_error_text(TM_CHUNK_SHORT));
	r->stored.size = (size_t)got;
	return true;
}

static bool read_header(struct tm_reader *r, struct tm_chunk_header *h) {
	uint8_t data[TM_CHUNK_HEADER_BYTES];
	ssize_t got = read_at(r->fd, data, sizeof data, r->chunk_offset);
	if (got < 0) return stop(r, strerror(errno));
	if (got == 0) return stop(r, NULL);
	int rc = tm_chunk_header_read(data, (size_t)got, h);
	return rc ? stop(r, tm_chunk_error_text(rc)) : true;
}

bool tm_reader_next(struct tm_reader *r, struct tm_chunk_header *h) {
	if (r->stopped) return false;
	r->chunk_offset = r->offset;
	if (!read_header(r, h)) return false;
	if (h->sequence != r->sequence) return stop(r, tm_chunk_error_text(TM_CHUNK_BAD_SEQUENCE));
	bool known = h->kind >= TM_CHUNK_META && h->kind <= TM_CHUNK_END;
	if (!known && h->flags & TM_CHUNK_CRITICAL) return stop(r, tm_chunk_error_text(TM_CHUNK_NEWER));
	if (!read_payload(r, h)) return false;
	if (crc32_z(0, r->stored.data, r->stored.size) != h->payload_crc) return stop(r, tm_chunk_error_text(TM_CHUNK_BAD_PAYLOAD));
	r->offset = r->chunk_offset + TM_CHUNK_HEADER_BYTES + h->stored_bytes;
	r->sequence++;
	return true;
}

bool tm_reader_find(struct tm_reader *r, unsigned kind, struct tm_chunk_header *h) {
	do {
		r->chunk_offset = r->offset;
		if (!read_header(r, h)) return false;
		r->offset = r->chunk_offset + TM_CHUNK_HEADER_BYTES + h->stored_bytes;
	} while (h->kind != kind);
	return read_payload(r, h);
}

bool tm_reader_at(struct tm_reader *r, uint64_t offset, struct tm_chunk_header *h) {
	r->chunk_offset = offset;
	return read_header(r, h) && read_payload(r, h);
}

int tm_reader_payload(struct tm_reader *r, const struct tm_chunk_header *h, struct tm_cursor *out) {
	return tm_unpack(&r->unpacker, h, r->stored.data, out);
}

int tm_reader_recognise(const char *path) {
	char magic[8];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0) return -1;
	struct stat st;
	ssize_t got = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? read_at(fd, magic, sizeof magic, 0) : 0;
	int saved = errno;
	close(fd);
	errno = saved;
	if (got < 0) return -1;
	return got == sizeof magic && memcmp(magic, TM_FILE_MAGIC, sizeof magic) == 0;
}
