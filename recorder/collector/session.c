/* session.c - shared memory for one recording: see session.h.
 *
 * The file is sparse: a ring that nobody uses costs nothing. It is a memfd, named to the guests as /proc/<our pid>/fd/<n>#<inode>; where there
 * is no memfd or no /proc, a file in /dev/shm or $TMPDIR that is unlinked at the end.
 */
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define RING_COUNT_MAX 4096u
#define RING_COUNT_MIN 16u
#define RING_BYTES_MIN (64u << 10)
#define RING_BYTES_ENOUGH (4u << 20) /* larger ones get smaller before there are fewer: a thread without a ring loses all that it does */
#define SESSION_BYTES_MAX (128ull << 30) /* of address space, of which the largest rings take 103; memory is used only where rings are */
#define LINE_BYTES 64u

void tm_futex_wake(_Atomic uint32_t *word) {
	syscall(SYS_futex, word, FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0);
}

void tm_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns) {
	struct timespec timeout = { (time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u) };
	syscall(SYS_futex, word, FUTEX_WAIT, value, &timeout, NULL, 0);
}

#if defined(__x86_64__)
static __attribute__((target("clflushopt"))) void put_away(const uint8_t *line, uint64_t bytes) {
	for (uint64_t i = 0; i < bytes; i += LINE_BYTES) __builtin_ia32_clflushopt(line + i);
}
static bool can_put_away(void) {
	unsigned a, b, c, d;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_CLFLUSHOPT);
}
#else
static void put_away(const uint8_t *line, uint64_t bytes) {
	(void)line;
	(void)bytes;
}
static bool can_put_away(void) {
	return false;
}
#endif

static uint64_t round_up(uint64_t n, uint64_t unit) {
	return (n + unit - 1) / unit * unit;
}

static void lay_out(struct tm_session *s) {
	uint64_t headers = round_up((uint64_t)s->ring_count * sizeof(struct tm_ring), TM_SHM_PAGE);
	s->ring_headers_offset = round_up(sizeof(struct tm_shm), TM_SHM_PAGE) + round_up(sizeof(struct tm_shared_rules), TM_SHM_PAGE);
	s->ring_data_offset = s->ring_headers_offset + headers;
	s->total_bytes = s->ring_data_offset + tm_ring_bytes_before(s->ring_bytes, s->ring_count);
}

/* What is used of it from the start has to have room: to write to a page for which there is none is a SIGBUS. (Guests see to the pages of their rings.) */
static bool reserve(struct tm_session *s, int fd) {
	return fallocate(fd, 0, 0, (off_t)(s->ring_data_offset + s->ring_bytes)) == 0 || errno == EOPNOTSUPP || errno == ENOSYS ||
	       errno == EFBIG;
}

/* Rings so small that there is room for those of many threads. */
static void suit_room(struct tm_session *s, int fd, uint64_t ring_bytes) {
	struct statvfs room;
	s->ring_count = RING_COUNT_MAX;
	s->ring_bytes = ring_bytes;
	lay_out(s);
	if (fstatvfs(fd, &room) != 0 || !room.f_blocks) return;
	uint64_t left = (uint64_t)room.f_bavail * room.f_frsize;
	while (s->ring_bytes > RING_BYTES_MIN && s->ring_data_offset + tm_ring_bytes_before(s->ring_bytes, TM_RINGS_SIXTEENTH) > left)
		s->ring_bytes /= 2;
}

/* s->ring_bytes: the size that rings may have there. */
static int open_named(struct tm_session *s, uint64_t ring_bytes) {
	const char *directories[] = { "/dev/shm", getenv("TMPDIR"), "/tmp" };
	for (size_t i = 0; i < sizeof directories / sizeof directories[0]; i++) {
		if (!directories[i]) continue;
		int n = snprintf(s->unlink_path, sizeof s->unlink_path, "%s/" TM_SESSION_NAME "-XXXXXX", directories[i]);
		if (n < 0 || (size_t)n >= sizeof s->unlink_path) continue;
		int fd = mkostemp(s->unlink_path, O_CLOEXEC);
		if (fd >= 0) suit_room(s, fd, ring_bytes);
		if (fd >= 0 && reserve(s, fd)) {
			memcpy(s->path, s->unlink_path, sizeof s->path);
			return fd;
		}
		if (fd < 0) continue;
		int error = errno;
		close(fd);
		unlink(s->unlink_path);
		errno = error;
	}
	s->unlink_path[0] = 0;
	return -1;
}

/* For who comes later, when another recorder may have our pid and the same descriptor. */
static bool add_inode(struct tm_session *s, int fd) {
	struct stat file;
	size_t n = strlen(s->path);
	if (fstat(fd, &file) != 0) return false;
	snprintf(s->path + n, sizeof s->path - n, "#%llu", (unsigned long long)file.st_ino);
	return true;
}

static int open_file(struct tm_session *s, uint64_t ring_bytes) {
	int fd = (int)syscall(SYS_memfd_create, TM_SESSION_NAME, 1u /* MFD_CLOEXEC */);
	if (fd >= 0) {
		snprintf(s->path, sizeof s->path, "/proc/%d/fd/%d", (int)getpid(), fd);
		s->ring_bytes = ring_bytes;
		if (access(s->path, R_OK | W_OK) == 0 && add_inode(s, fd)) return fd;
		close(fd);
	}
	return open_named(s, ring_bytes);
}

/* A limit on the size of files (ulimit -f) also counts for memory files. Lifts it as far as we may; true: restore `old` afterwards. */
static bool lift_file_limit(struct rlimit *old) {
	struct rlimit none = { RLIM_INFINITY, RLIM_INFINITY };
	if (getrlimit(RLIMIT_FSIZE, old) != 0 || old->rlim_cur == RLIM_INFINITY) return false;
	if (setrlimit(RLIMIT_FSIZE, &none) == 0) return true;
	none.rlim_cur = none.rlim_max = old->rlim_max;
	return setrlimit(RLIMIT_FSIZE, &none) == 0;
}

/* 0 or -errno. */
static int map_file(struct tm_session *s) {
	if (ftruncate(s->fd, (off_t)s->total_bytes) != 0) return -errno;
	void *p = mmap(NULL, s->total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s->fd, 0);
	if (p == MAP_FAILED) return -errno;
	s->shm = p;
	return 0;
}

/* UINT64_MAX: it has no limit. */
static uint64_t address_space_limit(void) {
	struct rlimit limit;
	if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
	return limit.rlim_cur;
}

static bool fits(struct tm_session *s, uint32_t ring_count, uint64_t ring_bytes, uint64_t guest_max) {
	s->ring_count = ring_count;
	s->ring_bytes = ring_bytes;
	lay_out(s);
	return s->ring_data_offset + ring_bytes <= guest_max && (ring_count == RING_COUNT_MIN || s->total_bytes <= SESSION_BYTES_MAX);
}

/* A limit on file sizes or address space may not allow all that we would like: try with rings of the usual size, and then with fewer and smaller ones, before
 * giving up. Half of a limited address space is left for our own tables, which grow with what is recorded, and for the files that names are read from; libc
 * would take 64 MiB of that for each thread that allocates (M_ARENA_MAX). */
static int size_and_map(struct tm_session *s, uint64_t wanted_bytes) {
	uint64_t limit = address_space_limit(), guest_max = limit / TM_ROOM_PART_AT_FIRST / 2;
	size_t room_bytes = limit == UINT64_MAX ? TM_SHM_PAGE : limit / 2;
	void *room = mmap(NULL, room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int result = -ENOMEM;
	if (room == MAP_FAILED) return result;
	if (limit != UINT64_MAX) mallopt(M_ARENA_MAX, 1);
	for (uint64_t bytes = wanted_bytes; result && bytes >= RING_BYTES_MIN; bytes /= 2) {
		uint32_t least = bytes > RING_BYTES_ENOUGH ? RING_COUNT_MAX : RING_COUNT_MIN;
		for (uint32_t count = RING_COUNT_MAX; result && count >= least; count /= 2)
			if (fits(s, count, bytes, guest_max)) result = map_file(s);
	}
	munmap(room, room_bytes);
	return result;
}

static void fill_in(const struct tm_session *s, const struct tm_options *o, const struct tm_timebase *timebase) {
	struct tm_shm *shm = s->shm;
	shm->total_bytes = s->total_bytes;
	shm->rules_offset = round_up(sizeof(struct tm_shm), TM_SHM_PAGE);
	shm->ring_headers_offset = s->ring_headers_offset;
	shm->ring_data_offset = s->ring_data_offset;
	shm->ring_bytes = s->ring_bytes;
	shm->ring_count = s->ring_count;
	shm->collector_pid = (uint32_t)getpid();
	shm->root_pid = o->attach_pid > 0 ? (uint32_t)o->attach_pid : 0;
	shm->clock = timebase->clock;
	shm->stacks = o->stacks;
	shm->max_depth = o->max_depth;
	shm->sample_bytes = o->sample_bytes;
	shm->mappings = o->mappings;
	shm->follow = o->follow;
	shm->python = o->python;
	shm->python_heap = o->python_heap;
	shm->torch = o->torch;
	shm->gpu = o->gpu;
	shm->nvtx = o->nvtx;
	shm->itt = o->itt;
	shm->on_full = o->on_full;
	shm->args = o->keep_args;
	atomic_store(&shm->state, TM_SHM_RUNNING);
	shm->magic = TM_SHM_MAGIC;
}

int tm_session_open(struct tm_session *s, const struct tm_options *options, const struct tm_timebase *timebase, char *error,
		    size_t error_bytes) {
	struct rlimit file_limit;
	memset(s, 0, sizeof *s);
	bool lifted = lift_file_limit(&file_limit);
	s->fd = open_file(s, options->ring_bytes);
	if (s->fd < 0) {
		if (lifted) setrlimit(RLIMIT_FSIZE, &file_limit);
		snprintf(error, error_bytes, "cannot make shared memory by memfd_create, in /dev/shm, $TMPDIR or /tmp: %s",
			 strerror(errno));
		return -1;
	}
	int result = size_and_map(s, s->ring_bytes);
	if (lifted) setrlimit(RLIMIT_FSIZE, &file_limit);
	if (result < 0) {
		const char *hint = result == -EFBIG ? " (ulimit -f)" : result == -ENOMEM ? " (ulimit -v leaves too little address space)" : "";
		snprintf(error, error_bytes, "cannot get shared memory: %s%s", strerror(-result), hint);
		tm_session_release(s);
		return -1;
	}
	fill_in(s, options, timebase);
	s->puts_away = can_put_away();
	return 0;
}

void tm_session_release(struct tm_session *s) {
	if (s->shm) munmap(s->shm, s->total_bytes);
	if (s->fd >= 0) close(s->fd);
	if (s->unlink_path[0]) unlink(s->unlink_path);
	s->shm = NULL;
	s->fd = -1;
}

const char *tm_session_mapped_name(const struct tm_session *s) {
	return s->unlink_path[0] ? s->unlink_path : "/memfd:" TM_SESSION_NAME;
}

struct tm_ring *tm_session_ring(const struct tm_session *s, uint32_t index) {
	return (struct tm_ring *)((uint8_t *)s->shm + s->ring_headers_offset) + index;
}

const uint8_t *tm_session_ring_data(const struct tm_session *s, uint32_t index) {
	return (const uint8_t *)s->shm + s->ring_data_offset + tm_ring_bytes_before(s->ring_bytes, index);
}

uint64_t tm_session_ring_bytes(const struct tm_session *s, uint32_t index) {
	return tm_ring_bytes_at(s->ring_bytes, index);
}

/* Only lines that were read to their end. */
void tm_session_put_away(const struct tm_session *s, uint32_t index, uint64_t from, uint64_t to) {
	const uint8_t *data = tm_session_ring_data(s, index);
	uint64_t size = tm_session_ring_bytes(s, index);
	if (!s->puts_away) return;
	from &= ~(uint64_t)(LINE_BYTES - 1);
	to &= ~(uint64_t)(LINE_BYTES - 1);
	while (from < to) {
		uint64_t at = from & (size - 1), bytes = to - from < size - at ? to - from : size - at;
		put_away(data + at, bytes);
		from += bytes;
	}
}

uint64_t tm_session_written_bytes(const struct tm_session *s, uint32_t process) {
	uint32_t used = atomic_load(&s->shm->rings_used);
	uint64_t written = 0;
	for (uint32_t i = 0; i < used && i < s->ring_count; i++) {
		const struct tm_ring *ring = tm_session_ring(s, i);
		if (atomic_load(&ring->state) != TM_RING_ACTIVE || ring->process != process) continue;
		uint64_t head = atomic_load(&ring->head), all = tm_session_ring_bytes(s, i);
		written += head < all ? round_up(head, TM_SHM_PAGE) : all;
	}
	return written;
}

void tm_session_ring_forget(const struct tm_session *s, uint32_t index) {
	fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(s->ring_data_offset + tm_ring_bytes_before(s->ring_bytes, index)),
		  (off_t)tm_ring_bytes_at(s->ring_bytes, index));
}

void tm_session_close_to_guests(const struct tm_session *s) {
	atomic_store(&s->shm->state, TM_SHM_CLOSED);
	uint32_t used = atomic_load(&s->shm->rings_used);
	for (uint32_t i = 0; i < used && i < s->ring_count; i++) {
		struct tm_ring *ring = tm_session_ring(s, i);
		if (atomic_exchange(&ring->waiting, 0)) tm_futex_wake(&ring->waiting);
	}
}
