/* raw.h - the system calls that the guest makes for itself, straight to the kernel.
 *
 * Flow:     process_hooks.c, exec_*.c, process_info.c, modules.c, attach_self.c -> here -> tm_syscall()
 * Owns:     nothing.
 * Threads:  any, also a vfork child and a signal handler: no lock, no libc state, errno untouched.
 * Failure:  every tm_raw call returns the kernel's -errno; tm_raw_map() returns NULL.
 */
#ifndef TIDEMARK_GUEST_RAW_H
#define TIDEMARK_GUEST_RAW_H

#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TM_PATH_MAX 4096u
#define TM_SIGNAL_OF_SETUID 33 /* glibc's SIGSETXID, the second of those that lie below SIGRTMIN */

/* What libc makes of the kernel's answer to a call that the program made: -1 and errno where it failed (sandbox_hooks.c). */
long tm_syscall_answer(long result);

static inline int tm_raw_getpid(void) {
	return (int)tm_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0);
}

static inline int tm_raw_openat(int dir, const char *path, int flags) {
	return (int)tm_syscall(SYS_openat, dir, (long)path, flags | O_CLOEXEC, 0, 0, 0);
}

static inline int tm_raw_open(const char *path, int flags) {
	return tm_raw_openat(AT_FDCWD, path, flags);
}

static inline void tm_raw_close(int fd) {
	tm_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
}

/* Can the file be opened so, O_RDONLY or O_RDWR? Where this process has no descriptor left: may it be? What it execs has some again. */
static inline bool tm_raw_can_open(const char *path, int flags) {
	int fd = tm_raw_open(path, flags), access = flags == O_RDWR ? R_OK | W_OK : R_OK;

	if (fd == -EMFILE || fd == -ENFILE) return tm_syscall(SYS_faccessat, AT_FDCWD, (long)path, access, 0, 0, 0) == 0;
	if (fd < 0) return false;
	tm_raw_close(fd);
	return true;
}

static inline long tm_raw_read(int fd, void *to, size_t size) {
	return tm_syscall(SYS_read, fd, (long)to, (long)size, 0, 0, 0);
}

static inline long tm_raw_pread(int fd, void *to, size_t size, uint64_t offset) {
	return tm_syscall(SYS_pread64, fd, (long)to, (long)size, (long)offset, 0, 0);
}

/* Can the byte at `address` be read? Asks the kernel to look at it and do nothing else: a futex from which no waiter is woken and none moved, if the word there
 * is 0. Who stands between us and the kernel (valgrind) finds nothing in that to speak of, and any filter of system calls lets it pass. */
static inline bool tm_raw_is_readable(const void *address) {
	long word = (long)((uintptr_t)address & ~(uintptr_t)7);

	if (!word) return false; /* a NULL there is no address to read */
	return tm_syscall(SYS_futex, word, FUTEX_CMP_REQUEUE_PRIVATE, 0, 0, word, 0) != -EFAULT;
}

/* Work that must not be left in the middle, as a handler of the program's does by longjmp: its signals come behind it. Not held are
 * those that say what went wrong, and the one by which libc has each thread set its user (setuid), as who sets it waits for all of
 * them. None are where no system call may be made; but what is held is let in any case: another thread may have asked for a filter
 * meanwhile, in vain mostly. */
struct tm_raw_signals {
	uint64_t before;
	bool held;
};

static inline struct tm_raw_signals tm_raw_hold_signals(void) {
	static const int others[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGABRT, TM_SIGNAL_OF_SETUID };
	struct tm_raw_signals signals = { 0, false };
	uint64_t held = ~(uint64_t)0;

	for (size_t i = 0; i < sizeof others / sizeof *others; i++) held &= ~((uint64_t)1 << (others[i] - 1));
	if (tm_is_sandboxed()) return signals;
	signals.held = tm_syscall(SYS_rt_sigprocmask, SIG_BLOCK, (long)&held, (long)&signals.before, sizeof held, 0, 0) == 0;
	return signals;
}

static inline void tm_raw_let_signals(struct tm_raw_signals signals) {
	if (signals.held) tm_syscall(SYS_rt_sigprocmask, SIG_SETMASK, (long)&signals.before, 0, sizeof signals.before, 0, 0);
}

/* Reads up to size bytes of a file of /proc, which comes in pieces; 0: it could not be read. */
static inline size_t tm_raw_read_whole(const char *path, char *to, size_t size) {
	int fd = tm_raw_open(path, O_RDONLY);
	size_t used = 0;
	long n;

	if (fd < 0) return 0;
	while (used < size && (n = tm_raw_read(fd, to + used, size - used)) > 0) used += (size_t)n;
	tm_raw_close(fd);
	return used;
}

/* The target of a symbolic link as a string in to[size]; its length, or -errno (then to[0] is 0). */
static inline long tm_raw_readlink(const char *path, char *to, size_t size) {
	long n = tm_syscall(SYS_readlinkat, AT_FDCWD, (long)path, (long)to, (long)(size - 1), 0, 0);

	to[n > 0 ? n : 0] = 0;
	return n;
}

static inline void *tm_raw_map(size_t size) {
	long at = tm_syscall(SYS_mmap, 0, (long)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return at < 0 && at > -4096 ? NULL : (void *)at;
}

#define TM_RAW_POPULATE_WRITE 23 /* MADV_POPULATE_WRITE, from Linux 5.14 on; an older kernel refuses, and each page is faulted in when it is touched */

/* Pages that are about to be written, all at once: a fault for each costs several times as much. */
static inline void tm_raw_populate(void *at, size_t size) {
	uintptr_t low = (uintptr_t)at & ~(uintptr_t)(TM_SHM_PAGE - 1);

	tm_syscall(SYS_madvise, (long)low, (long)((uintptr_t)at + size - low), TM_RAW_POPULATE_WRITE, 0, 0, 0);
}

static inline void tm_raw_unmap(void *at, size_t size) {
	tm_syscall(SYS_munmap, (long)at, (long)size, 0, 0, 0, 0);
}

/* Grows (or moves) a mapping of tm_raw_map(); NULL leaves it as it was. */
static inline void *tm_raw_remap(void *old, size_t old_size, size_t size) {
	long at = tm_syscall(SYS_mremap, (long)old, (long)old_size, (long)size, MREMAP_MAYMOVE, 0, 0);

	return at < 0 && at > -4096 ? NULL : (void *)at;
}

/* Writes a number and returns its end. */
static inline char *tm_put_number(char *to, unsigned value) {
	char digits[12];
	unsigned n = 0;

	do digits[n++] = (char)('0' + value % 10);
	while ((value /= 10) > 0);
	while (n > 0) *to++ = digits[--n];
	return to;
}

#endif
