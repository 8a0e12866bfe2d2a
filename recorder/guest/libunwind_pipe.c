/* libunwind_pipe.c - keeps libunwind from having descriptors in the traced program.
 *
 * Flow:     stack.c, once libunwind is loaded -> tm_libunwind_without_pipe()
 * Why:      libunwind tests an address that it is about to read by writing a byte from there into a pipe of its own. The pipe takes two of the
 *           program's descriptor numbers; and a program that closes all descriptors and opens a file of that number gets those bytes in its file.
 * How:      the three functions by which libunwind does this, as its own table of imports has them, are replaced by ours: the pipe is made up, and
 *           the test is a system call that reads the address and does nothing else. Nobody but libunwind calls them.
 * Fails:    quietly: a libunwind that is built otherwise keeps its pipe.
 */
#include "emit.h"
#include "raw.h"

#include <errno.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

#define MADE_UP_FD 0x7ffffff0 /* beyond any limit on descriptors: should anybody use it, the kernel says EBADF */

#if defined(__x86_64__)
#define IMPORT_RELOCATION(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT)
#elif defined(__aarch64__)
#define IMPORT_RELOCATION(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT)
#endif

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

struct imports {
	uintptr_t base;
	const ElfW(Sym) *symbols;
	const char *names;
	const ElfW(Rela) *tables[2];
	size_t bytes[2];
};

/* The loader has made some pointers of the dynamic section absolute. */
static uintptr_t absolute(uintptr_t base, uintptr_t value) {
	return value >= base ? value : base + value;
}

static bool find_imports(const void *start, struct imports *found) {
	const ElfW(Ehdr) *header = start;
	uintptr_t base = (uintptr_t)start;
	const ElfW(Phdr) *segment = (const ElfW(Phdr) *)(base + header->e_phoff);
	const ElfW(Dyn) *d = NULL;
	*found = (struct imports){ .base = base };
	for (unsigned i = 0; i < header->e_phnum; i++) {
		if (segment[i].p_type == PT_DYNAMIC) d = (const ElfW(Dyn) *)(base + segment[i].p_vaddr);
	}
	for (; d && d->d_tag != DT_NULL; d++) {
		uintptr_t pointer = absolute(base, d->d_un.d_ptr);
		if (d->d_tag == DT_SYMTAB) found->symbols = (const ElfW(Sym) *)pointer;
		if (d->d_tag == DT_STRTAB) found->names = (const char *)pointer;
		if (d->d_tag == DT_JMPREL) found->tables[0] = (const ElfW(Rela) *)pointer;
		if (d->d_tag == DT_PLTRELSZ) found->bytes[0] = d->d_un.d_val;
		if (d->d_tag == DT_RELA) found->tables[1] = (const ElfW(Rela) *)pointer;
		if (d->d_tag == DT_RELASZ) found->bytes[1] = d->d_un.d_val;
	}
	return found->symbols && found->names;
}

/* Where libunwind's import of that name stands; NULL: it has none. */
static void **import_slot(const struct imports *all, const char *name) {
	for (unsigned k = 0; k < 2; k++) {
		for (size_t i = 0; all->tables[k] && i < all->bytes[k] / sizeof(ElfW(Rela)); i++) {
			const ElfW(Rela) *r = &all->tables[k][i];
			if (!IMPORT_RELOCATION(ELF64_R_TYPE(r->r_info))) continue;
			if (strcmp(all->names + all->symbols[ELF64_R_SYM(r->r_info)].st_name, name)) continue;
			return (void **)(all->base + r->r_offset);
		}
	}
	return NULL;
}

static bool make_writable(void **slot) {
	long page = (long)((uintptr_t)slot & ~(uintptr_t)(TM_SHM_PAGE - 1));
	return tm_syscall(SYS_mprotect, page, TM_SHM_PAGE, PROT_READ | PROT_WRITE, 0, 0, 0) == 0;
}

void tm_libunwind_without_pipe(const void *base) {
	struct imports all;
	void **slots[REPLACEMENTS];
	if (!find_imports(base, &all)) return;
	for (unsigned i = 0; i < REPLACEMENTS; i++) { /* all of them or none */
		slots[i] = import_slot(&all, replacements[i].name);
		if (!slots[i] || !make_writable(slots[i])) return;
	}
	for (unsigned i = 0; i < REPLACEMENTS; i++) *slots[i] = replacements[i].function;
}
