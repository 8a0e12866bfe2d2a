/* libunwind_pipe.c - keeps libunwind from having descriptors in the traced program.
 *
 * Flow:     stack.c, once libunwind is loaded -> tm_libunwind_without_pipe()
 * Why:      libunwind tests an address that it is about to read by writing a byte from there into a pipe of its own. The pipe takes two of the
 *           program's descriptor numbers; and a program that closes all descriptors and opens a file of that number gets those bytes in its file.
 * How:      the three functions by which libunwind does this, as its own table of imports has them, are replaced by ours: the pipe is made up, and
 *           the test is a system call that reads the address and does nothing else. Nobody but libunwind calls them.
 * Fails:    quietly: a libunwind that is built otherwise keeps its pipe.
 */
#include "elf_imports.h"
#include "emit.h"
#include "raw.h"

#include <errno.h>
#include <unistd.h>

#define MADE_UP_FD 0x7ffffff0 /* beyond any limit on descriptors: should anybody use it, the kernel says EBADF */

static int made_up_pipe(int fds[2], int flags) {
	(void)flags;
	fds[0] = MADE_UP_FD;
	fds[1] = MADE_UP_FD + 1;
	return 0;
}

static ssize_t read_nothing(int fd, void *to, size_t n) {
	if (fd != MADE_UP_FD) return read(fd, to, n);
	errno = EAGAIN;
	return -1;
}

static long test_address(long number, long a, long b, long c, long d, long e, long f) {
	if (number != SYS_write || a != MADE_UP_FD + 1) return syscall(number, a, b, c, d, e, f);
	if (tm_raw_is_readable((const void *)b)) return c;
	errno = EFAULT;
	return -1;
}

static const struct {
	const char *name;
	void *function;
} replacements[] = { { "pipe2", (void *)made_up_pipe }, { "read", (void *)read_nothing }, { "syscall", (void *)test_address } };
#define REPLACEMENTS (sizeof replacements / sizeof *replacements)

static bool make_writable(void **slot) {
	long page = (long)((uintptr_t)slot & ~(uintptr_t)(TM_SHM_PAGE - 1));
	return tm_syscall(SYS_mprotect, page, TM_SHM_PAGE, PROT_READ | PROT_WRITE, 0, 0, 0) == 0;
}

void tm_libunwind_without_pipe(const void *base) {
	struct tm_imports all;
	void **slots[REPLACEMENTS];
	if (!tm_imports_find(&all, base, NULL, 0)) return;
	for (unsigned i = 0; i < REPLACEMENTS; i++) { /* all of them or none */
		slots[i] = tm_import_slot(&all, replacements[i].name);
		if (!slots[i] || !make_writable(slots[i])) return;
	}
	for (unsigned i = 0; i < REPLACEMENTS; i++) *slots[i] = replacements[i].function;
}
