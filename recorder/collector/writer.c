/* writer.c - whole chunks into the trace file: see writer.h. */
#include "writer.h"

#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ZSTD_LEVEL 1
#define ASKED_NS 1000000
#define ASKED_TRIES 10u

static void remember_end(struct tm_writer *w) {
	w->chunk_ends = tm_memory_grow(w->chunk_ends, &w->chunk_capacity, w->chunk_count + 1, sizeof w->chunk_ends[0]);
	w->chunk_ends[w->chunk_count++] = w->pending.size;
}

/* False: another recorder has it. Who asks whether somebody writes it (`tidemark top`) has it for a moment only. A file system without locks has none. */
static bool lock(int fd) {
	const struct timespec nap = { 0, ASKED_NS };
	for (unsigned tries = 0; tries < ASKED_TRIES; tries++) {
		if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return true;
		nanosleep(&nap, NULL);
	}
	return false;
}

/* Makes a file that was there ours, unless another recorder writes it, to be read by its owner alone, and empty but for a byte, which is written over: of one
 * that was made empty ext4 writes everything to the disk before close() returns. A device or a pipe that was named is as it is. */
static int take_file(int fd) {
	struct stat file;
	if (fstat(fd, &file) != 0) return -errno;
	if (!S_ISREG(file.st_mode)) return 0;
	if (!lock(fd)) return -EBUSY;
	if (file.st_mode & 077) fchmod(fd, file.st_mode & 0700); /* another user's stays as open as that user wants it */
	return file.st_size == 0 || ftruncate(fd, 1) == 0 ? 0 : -errno;
}

int tm_writer_open(struct tm_writer *w, char *path, bool force) {
	uint8_t header[TM_FILE_HEADER_BYTES];
	memset(w, 0, sizeof *w);
	w->path = path;
	w->fd = -1;
	if (tm_packer_init(&w->packer, ZSTD_LEVEL) != 0) return -ENOMEM;
	w->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | (force ? 0 : O_EXCL), 0600);
	int result = w->fd < 0 ? -errno : 0; /* of a link that leads nowhere stat() says that nothing is there */
	struct stat status;
	if (result < 0) return result == -EEXIST && stat(path, &status) == 0 && S_ISDIR(status.st_mode) ? -EISDIR : result;
	result = take_file(w->fd);
	if (result < 0) {
		tm_writer_close(w);
		return result;
	}
	tm_file_header_write(header);
	tm_put_raw(&w->pending, header, sizeof header);
	remember_end(w);
	return 0;
}

int tm_writer_add_chunk(struct tm_writer *w, uint8_t kind, const void *payload, size_t n) {
	if (w->error) return 0;
	int result = tm_pack(&w->packer, kind, payload, n);
	if (result) return result;
	tm_put_raw(&w->pending, w->packer.out.data, w->packer.out.size);
	if (w->pending.failed) return TM_CHUNK_NO_MEMORY;
	remember_end(w);
	return 0;
}

void tm_writer_add_packed(struct tm_writer *w, uint8_t *chunk, size_t n) {
	tm_chunk_renumber(chunk, w->packer.sequence++);
	tm_put_raw(&w->pending, chunk, n);
	remember_end(w);
}

void tm_writer_take_over(struct tm_writer *w, struct tm_writer *next) {
	close(w->fd);
	w->fd = next->fd;
	next->fd = -1;
	w->packer.sequence = next->packer.sequence;
	w->bytes = next->bytes;
	tm_writer_close(next);
	for (size_t i = 0; i < w->chunk_count; i++)
		tm_chunk_renumber(w->pending.data + (i ? w->chunk_ends[i - 1] : 0), w->packer.sequence++);
}

void tm_writer_drop_last(struct tm_writer *w) {
	if (w->error || !w->chunk_count) return;
	w->chunk_count--;
	w->pending.size = w->chunk_count ? w->chunk_ends[w->chunk_count - 1] : 0;
	w->packer.sequence--;
}

/* Returns how many bytes of pending are in the file; fewer than all: errno says why. */
static size_t write_pending(struct tm_writer *w) {
	size_t done = 0;
	while (done < w->pending.size) {
		ssize_t n = write(w->fd, w->pending.data + done, w->pending.size - done);
		if (n < 0 && errno == EINTR) continue;
		if (n <= 0) {
			if (n == 0) errno = ENOSPC;
			break;
		}
		done += (size_t)n;
	}
	return done;
}

int tm_writer_flush(struct tm_writer *w) {
	if (w->error) return -w->error;
	size_t done = write_pending(w), whole = 0;
	if (done == w->pending.size) {
		w->bytes += done;
	} else {
		w->error = errno;
		size_t kept = 0;
		while (kept < w->chunk_count && w->chunk_ends[kept] <= done) whole = w->chunk_ends[kept++];
		w->bytes += whole;
		w->packer.sequence -= (uint32_t)(w->chunk_count - kept);
		/* If this fails too the torn chunk stays; readers stop before it. */
		if (ftruncate(w->fd, (off_t)w->bytes) != 0) whole = done;
	}
	tm_bytes_clear(&w->pending);
	w->chunk_count = 0;
	return -w->error;
}

void tm_writer_give_up(const struct tm_writer *w) {
	flock(w->fd, LOCK_SH | LOCK_NB);
}

int tm_writer_retry(struct tm_writer *w) {
	int error = w->error;
	w->error = 0;
	w->packer.sequence -= (uint32_t)w->chunk_count;
	w->chunk_count = 0;
	tm_bytes_clear(&w->pending);
	if (lseek(w->fd, (off_t)w->bytes, SEEK_SET) < 0) w->error = error;
	return error;
}

static bool leads_to(const char *path, const struct stat *file) {
	struct stat found;
	return stat(path, &found) == 0 && found.st_dev == file->st_dev && found.st_ino == file->st_ino;
}

void tm_writer_follow(struct tm_writer *w) {
	char link[64], *path = tm_memory_new(PATH_MAX, 1);
	struct stat file;
	snprintf(link, sizeof link, "/proc/self/fd/%d", w->fd);
	ssize_t n = w->fd >= 0 && fstat(w->fd, &file) == 0 && !leads_to(w->path, &file) ? readlink(link, path, PATH_MAX - 1) : -1;
	w->is_gone = n >= 0 && !leads_to(path, &file);
	if (n >= 0 && !w->is_gone) {
		free(w->path);
		w->path = path;
	} else {
		free(path);
	}
}

int tm_writer_close(struct tm_writer *w) {
	int result = 0;
	if (w->fd >= 0 && close(w->fd) != 0 && errno != EINTR) result = -errno;
	if (result && !w->error) w->error = -result;
	w->fd = -1;
	tm_packer_release(&w->packer);
	tm_bytes_release(&w->pending);
	free(w->chunk_ends);
	w->chunk_ends = NULL;
	return result;
}

void tm_writer_discard(struct tm_writer *w) {
	struct stat file;
	if (w->fd >= 0 && fstat(w->fd, &file) == 0 && S_ISREG(file.st_mode)) unlink(w->path); /* never a device or a pipe that was named */
	tm_writer_close(w);
}
