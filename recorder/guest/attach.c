/* attach.c - joining a recording: the session's shared memory, a process number, a ring for each thread.
 *
 * Flow:     first hook or our constructor -> tm_attach() -> rings claimed by hook.c
 * Owns:     the mapping of the session and struct tm_guest.
 * Threads:  tm_attach() runs once, while the process has one thread or under the flag `attaching`; ring claims are lock-free.
 * Fails:    quietly. A process that cannot join runs unrecorded.
 *
 * The session is a file that only the collector holds open; we open it by name, map it and close it again, so that the program never sees
 * a descriptor of ours. A few rings that lie together are mapped at the start: they serve the first threads. Any other ring is mapped by its
 * thread, by name; where the program has changed its root or its user, or has no descriptor left, as a longer copy of what is mapped
 * already. More is not mapped, since programs limit their address space (RLIMIT_AS) or lock it (mlockall); where it is limited from the start, nothing
 * that would be much of it.
 */
#include "attach.h"
#include "guest.h"
#include "process.h"
#include "raw.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLAB_RINGS 16u

static long map_file(int fd, size_t size_bytes, uint64_t offset) {
	return tm_syscall(SYS_mmap, 0, (long)size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, (long)offset);
}

static int open_session(void) {
	struct stat file;
	int fd = tm_raw_open(tm_guest.session_file, O_RDWR);
	if (fd < 0 || !tm_guest.session_inode) return fd;
	if (tm_syscall(SYS_fstat, fd, (long)&file, 0, 0, 0, 0) == 0 && file.st_ino == tm_guest.session_inode) return fd;
	tm_raw_close(fd); /* our recorder has ended, and another process has its pid */
	return -ESTALE;
}

/* Of a limited address space; UINT64_MAX where it has no limit, or nobody tells it: a sandbox may refuse the question. */
static uint64_t address_space_left(void) {
	struct rlimit limit = { 0, 0 };
	char text[32];
	uint64_t used = 0;
	long rc = tm_syscall(SYS_prlimit64, 0, RLIMIT_AS, 0, (long)&limit, 0, 0);
	if (rc < 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
	size_t n = tm_raw_read_whole("/proc/self/statm", text, sizeof text); /* begins with the number of its pages */
	for (size_t i = 0; i < n && text[i] >= '0' && text[i] <= '9'; i++) used = used * 10 + (uint64_t)(text[i] - '0');
	used *= TM_SHM_PAGE;
	return used < limit.rlim_cur ? limit.rlim_cur - used : 0;
}

TM_REALIGN bool tm_has_room(uint64_t bytes) {
	return bytes <= address_space_left() / TM_ROOM_PART;
}

TM_REALIGN bool tm_data_is_limited(void) {
	struct rlimit limit = { 0, 0 };
	return tm_syscall(SYS_prlimit64, 0, RLIMIT_DATA, 0, (long)&limit, 0, 0) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

static struct tm_ring *ring_at(struct tm_shm *shm, uint32_t index) {
	return (struct tm_ring *)((uint8_t *)shm + shm->ring_headers_offset) + index;
}

static uint64_t ring_offset(const struct tm_shm *shm, uint32_t index) {
	return shm->ring_data_offset + tm_ring_bytes_before(shm->ring_bytes, index);
}

/* Maps the group of rings that the first free one belongs to. Other processes may use rings of it too. */
static void map_slab(struct tm_shm *shm, int fd) {
	uint32_t first = 0;
	while (first < shm->ring_count && atomic_load_explicit(&ring_at(shm, first)->state, memory_order_relaxed) != TM_RING_FREE) first++;
	first -= first % SLAB_RINGS;
	if (address_space_left() != UINT64_MAX || first + SLAB_RINGS > shm->ring_count) return;
	uint64_t bytes = ring_offset(shm, first + SLAB_RINGS) - ring_offset(shm, first);
	long slab = map_file(fd, bytes, ring_offset(shm, first));
	if (slab < 0) return;
	tm_syscall(SYS_madvise, slab, (long)bytes, MADV_DONTDUMP, 0, 0, 0);
	tm_guest.slab = (uint8_t *)slab;
	tm_guest.slab_bytes = bytes;
	tm_guest.slab_first = first;
}

/* What the collector wrote must make sense before we use it: another version of tidemark may have made it. */
static bool session_is_sound(const struct tm_shm *shm, uint64_t file_bytes) {
	return shm->magic == TM_SHM_MAGIC && shm->total_bytes <= file_bytes && shm->ring_count > 0 &&
	       shm->ring_bytes >= TM_SHM_PAGE && (shm->ring_bytes & (shm->ring_bytes - 1)) == 0 &&
	       shm->rules_offset + sizeof(struct tm_shared_rules) <= shm->ring_headers_offset &&
	       shm->ring_headers_offset + (uint64_t)shm->ring_count * sizeof(struct tm_ring) <= shm->ring_data_offset &&
	       ring_offset(shm, shm->ring_count) <= file_bytes && shm->max_depth <= TM_DEPTH_LIMIT;
}

static bool has_room_at_first(struct tm_shm *shm) {
	if (shm->ring_data_offset + shm->ring_bytes <= address_space_left() / TM_ROOM_PART_AT_FIRST) return true;
	uint32_t place = atomic_fetch_add(&shm->stepped_aside_count, 1) % TM_STEPPED_ASIDE;
	atomic_store(&shm->stepped_aside[place], (uint32_t)tm_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0));
	return false;
}

bool tm_session_opens(void) {
	return tm_raw_can_open(tm_guest.session_file, O_RDWR);
}

static struct tm_shm *map_session(void) {
	struct tm_shm *shm = NULL;
	struct stat file;
	int fd = open_session();
	if (fd < 0) return NULL;
	if (tm_syscall(SYS_fstat, fd, (long)&file, 0, 0, 0, 0) == 0 && file.st_size >= (off_t)sizeof(struct tm_shm)) {
		long header = map_file(fd, TM_SHM_PAGE, 0);
		if (header > 0) {
			struct tm_shm *probe = (struct tm_shm *)header;
			if (session_is_sound(probe, (uint64_t)file.st_size) && has_room_at_first(probe)) {
				tm_guest.mapped_bytes = probe->ring_data_offset;
				long all = map_file((int)fd, tm_guest.mapped_bytes, 0);
				if (all > 0) shm = (struct tm_shm *)all;
				if (shm) map_slab(shm, (int)fd);
			}
			tm_syscall(SYS_munmap, header, TM_SHM_PAGE, 0, 0, 0, 0);
		}
	}
	tm_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
	if (shm) tm_syscall(SYS_madvise, (long)shm, (long)tm_guest.mapped_bytes, MADV_DONTDUMP, 0, 0, 0);
	return shm;
}

/* A page that a fork's child finds zeroed. Some kernels (before 4.14, gVisor) do not do that. */
static _Atomic uint32_t *make_epoch(void) {
	long page = tm_syscall(SYS_mmap, 0, TM_SHM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page < 0) return NULL;
	tm_guest.epoch_stays = tm_syscall(SYS_madvise, page, TM_SHM_PAGE, MADV_WIPEONFORK, 0, 0, 0) < 0;
	return (_Atomic uint32_t *)page;
}

uint32_t tm_new_process_number(void) {
	return atomic_fetch_add(&tm_guest.shm->next_process, 1) + 1;
}

/* FILE, or FILE#INODE. False: it is too long. */
static bool take_path(const char *session) {
	size_t n = strlen(session), end = n;
	if (n >= sizeof tm_guest.session_path) return false;
	memcpy(tm_guest.session_path, session, n + 1);
	memcpy(tm_guest.session_file, session, n + 1);
	tm_guest.session_inode = 0;
	while (end && session[end - 1] >= '0' && session[end - 1] <= '9') end--;
	if (strncmp(session, "/proc/", 6) != 0 || session[end - 1] != '#') return true;
	tm_guest.session_file[end - 1] = 0;
	for (size_t i = end; i < n; i++) tm_guest.session_inode = tm_guest.session_inode * 10 + (uint64_t)(session[i] - '0');
	return true;
}

bool tm_attach(const char *session_path) {
	if (!take_path(session_path)) return tm_give_up(TM_SESSION_ENV " is too long");
	struct tm_shm *shm = map_session();
	if (!shm) return tm_give_up("the recording that " TM_SESSION_ENV " names is gone, or cannot be used here");
	uint32_t pid = (uint32_t)tm_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0);
	_Atomic uint32_t *epoch = make_epoch();
	if (!epoch || atomic_load(&shm->state) == TM_SHM_CLOSED || (!shm->follow && shm->root_pid != pid)) {
		tm_syscall(SYS_munmap, (long)shm, (long)tm_guest.mapped_bytes, 0, 0, 0, 0);
		if (epoch) tm_syscall(SYS_munmap, (long)epoch, TM_SHM_PAGE, 0, 0, 0, 0);
		return tm_give_up("the recording that " TM_SESSION_ENV " names has ended, or does not follow children");
	}
	tm_guest.clock = shm->clock;
	tm_guest.pid = pid;
	tm_guest.epoch = epoch;
	tm_guest.shm = shm;
	tm_guest.process = tm_new_process_number();
	atomic_store_explicit(epoch, tm_guest.process, memory_order_release);
	return true;
}

void tm_go_quiet(void) {
	if (tm_guest.epoch) atomic_store(tm_guest.epoch, TM_EPOCH_QUIET);
}

static bool try_claim(struct tm_ring *ring) {
	uint32_t expected = TM_RING_FREE;
	if (atomic_load_explicit(&ring->state, memory_order_relaxed) != TM_RING_FREE) return false;
	return atomic_compare_exchange_strong(&ring->state, &expected, TM_RING_CLAIMED);
}

/* Claims a free ring of [first, end); its index, or end. */
static uint32_t claim_among(uint32_t first, uint32_t end) {
	struct tm_shm *shm = tm_guest.shm;
	while (first < end && !try_claim(ring_at(shm, first))) first++;
	if (first == end) return end;
	uint32_t used = atomic_load(&shm->rings_used);
	while (used < first + 1 && !atomic_compare_exchange_weak(&shm->rings_used, &used, first + 1)) continue;
	return first;
}

static bool in_slab(uint32_t index) {
	return tm_guest.slab && index - tm_guest.slab_first < SLAB_RINGS;
}

static uint64_t ring_bytes(uint32_t index) {
	return tm_ring_bytes_at(tm_guest.shm->ring_bytes, index);
}

/* Without the file: an mremap of nothing maps the same file once more from there on, and may go beyond what was mapped. What lies in front is given back. */
static long map_behind_mapped(uint64_t offset, size_t size_bytes) {
	uint64_t slab_offset = ring_offset(tm_guest.shm, tm_guest.slab_first);
	bool has_slab = tm_guest.slab && offset >= slab_offset;
	long from = has_slab ? (long)tm_guest.slab : (long)tm_guest.shm;
	if (has_slab) offset -= slab_offset;
	long at = tm_syscall(SYS_mremap, from, 0, (long)(offset + size_bytes), MREMAP_MAYMOVE, 0, 0);
	if (at < 0) return at;
	if (offset) tm_syscall(SYS_munmap, at, (long)offset, 0, 0, 0, 0);
	return at + (long)offset;
}

/* To write to a page that a named file has no room for would end the program (SIGBUS), so its pages are had first. Memory of no file system has room. */
static bool has_pages(uint64_t offset, uint64_t bytes) {
	static _Atomic bool is_full; /* to find that out takes long */
	if (tm_guest.session_inode) return true;
	int fd = atomic_load(&is_full) ? -1 : open_session();
	if (fd < 0) return false;
	long result;
	do result = tm_syscall(SYS_fallocate, fd, 0, (long)offset, (long)bytes, 0, 0);
	while (result == -EINTR);
	tm_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
	if (result == 0 || result == -EOPNOTSUPP || result == -ENOSYS) return true;
	atomic_store(&is_full, true);
	return false;
}

static uint8_t *map_ring(uint32_t index, bool is_first) {
	uint64_t offset = ring_offset(tm_guest.shm, index), bytes = ring_bytes(index);
	if (in_slab(index)) return tm_guest.slab + (offset - ring_offset(tm_guest.shm, tm_guest.slab_first));
	if (!is_first && !tm_has_room(bytes)) return NULL;
	long fd = open_session(), data = fd < 0 ? map_behind_mapped(offset, bytes) : map_file((int)fd, bytes, offset);
	if (fd >= 0) tm_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
	if (data < 0) return NULL;
	tm_syscall(SYS_madvise, data, (long)bytes, MADV_DONTDUMP, 0, 0, 0);
	return (uint8_t *)data;
}

/* A vfork child works with its parent's thread, whose ring this is to be: the system calls tell its own id, and libc's structure of the thread that of the
 * parent's, in a place where glibc has it in all its versions, and where it was when both told the same. 0: it is not known. */
static uint32_t id_of_thread(void) {
	uint32_t tid = (uint32_t)tm_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0);
	bool is_child = (uint32_t)tm_raw_getpid() != tm_guest.pid;
#if defined(__x86_64__)
	static _Atomic bool is_there;
	uint32_t told = ((const uint32_t *)__builtin_thread_pointer())[0x2d0 / sizeof(uint32_t)];
	if (!is_child) atomic_store(&is_there, told == tid);
	else if (atomic_load(&is_there)) return told;
#endif
	return is_child ? 0 : tid;
}

bool tm_ring_claim(struct tm_thread *t) {
	uint32_t count = tm_guest.shm->ring_count, slab_end = tm_guest.slab_first + SLAB_RINGS;
	uint32_t index = tm_guest.slab ? claim_among(tm_guest.slab_first, slab_end) : slab_end;
	if (index == slab_end) index = claim_among(0, count);
	if (index == count) return false;
	struct tm_ring *ring = ring_at(tm_guest.shm, index);
	uint8_t *data = has_pages(ring_offset(tm_guest.shm, index), ring_bytes(index)) ? map_ring(index, t->number == 1) : NULL;
	if (!data) {
		atomic_store(&ring->state, TM_RING_FREE);
		return false;
	}
	ring->process = tm_guest.process;
	ring->pid = tm_guest.pid;
	ring->tid = id_of_thread();
	ring->thread = t->number;
	ring->start_ticks = tm_ticks();
	atomic_store(&ring->busy, 0);
	atomic_store(&ring->lost_events, 0);
	atomic_store(&ring->lost_bytes, 0);
	atomic_store(&ring->nested_lost, 0);
	atomic_store(&ring->nested_kept, 0);
	atomic_store(&ring->lost_records, 0);
	atomic_store(&ring->modules_begun, 0);
	atomic_store(&ring->modules_ended, 0);
	atomic_store(&ring->head, 0);
	atomic_store(&ring->tail, 0);
	atomic_store(&ring->waiting, 0);
	atomic_store(&ring->skips, 0);
	atomic_fetch_add(&ring->generation, 1);
	t->ring = ring;
	t->data = t->at = t->limit = data;
	t->bias = -(uint64_t)(uintptr_t)data;
	t->mask = ring_bytes(index) - 1;
	t->touched = 0;
	t->seen = ring_bytes(index) / 4;
	t->skips = 0;
	t->after_skip = false;
	t->begun = false;
	tm_note_loss(t);
	t->last_ticks = ring->start_ticks;
	atomic_store_explicit(&ring->state, TM_RING_ACTIVE, memory_order_release);
	return true;
}

bool tm_ring_is_coming(void) {
	struct tm_shm *shm = tm_guest.shm;
	bool is_coming = false;
	for (uint32_t i = 0; i < shm->ring_count; i++) {
		uint32_t state = atomic_load(&ring_at(shm, i)->state);
		if (state == TM_RING_FREE) return false;
		is_coming |= state == TM_RING_CLOSED;
	}
	return is_coming;
}

void tm_ring_let_go(struct tm_thread *t) {
	static struct tm_ring nobodys;
	t->ring = &nobodys;
	t->limit = t->at;
	t->mask = t->seen = 0;
	t->aligned = NULL;
	t->ended = false;
}

void tm_ring_close(struct tm_thread *t) {
	atomic_store_explicit(&t->ring->state, TM_RING_CLOSED, memory_order_release);
	if (t->data < tm_guest.slab || t->data >= tm_guest.slab + tm_guest.slab_bytes)
		tm_syscall(SYS_munmap, (long)t->data, (long)(t->mask + 1), 0, 0, 0, 0);
	t->ring = NULL;
}
