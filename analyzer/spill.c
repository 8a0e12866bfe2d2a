/* spill.c - an array of records that may outgrow memory; see spill.h. */
#include "spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void tm_spill_init(struct tm_spill *s, const char *beside, size_t record_bytes) {
	*s = (struct tm_spill){ .beside = beside, .record_bytes = record_bytes, .fd = -1 };
}

void tm_spill_release(struct tm_spill *s) {
	for (size_t i = 0; i < s->segment_count; i++) munmap(s->segments[i], TM_SPILL_RECORDS * s->record_bytes);
	free(s->segments);
	if (s->fd >= 0) close(s->fd);
	tm_spill_init(s, s->beside, s->record_bytes);
}

int tm_scratch_open(const char *beside) {
	char path[4096];
	if (snprintf(path, sizeof path, "%s.XXXXXX", beside) >= (int)sizeof path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	int fd = mkostemp(path, O_CLOEXEC);
	if (fd >= 0) unlink(path);
	return fd;
}

/* 0 or an errno. */
static int add_segment(struct tm_spill *s) {
	size_t bytes = TM_SPILL_RECORDS * s->record_bytes;
	off_t offset = (off_t)(s->segment_count * bytes);
	char **grown = realloc(s->segments, (s->segment_count + 1) * sizeof *grown);
	if (!grown) return ENOMEM;
	s->segments = grown;
	if (s->fd < 0 && (s->fd = tm_scratch_open(s->beside)) < 0) return errno;
	int rc = posix_fallocate(s->fd, offset, (off_t)bytes);
	if (rc) return rc;
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, offset);
	if (at == MAP_FAILED) return errno;
	s->segments[s->segment_count++] = at;
	return 0;
}

void *tm_spill_push(struct tm_spill *s) {
	if (s->error) return NULL;
	if (s->count == s->segment_count * TM_SPILL_RECORDS && (s->error = add_segment(s))) return NULL;
	return tm_spill_at(s, s->count++);
}
