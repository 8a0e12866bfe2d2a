/* dlsym_hook.c - whoever asks libc itself for malloc gets ours, too.
 *
 * Why:      dlsym() on a handle that dlopen("libc.so.6") gave, as Python's ctypes and Ruby's Fiddle ask, finds libc's own malloc, mmap or fork, not the
 *           hook in front of it: what is allocated so would be in no trace, and what is freed so would seem to leak.
 * Flow:     the program's dlsym -> here -> the loader's; where that finds the very function that a hook of ours calls next, the hook is handed out
 * Circles:  there are none. Who is handed a hook gets what any program that names the function is bound to. Where somebody else stands between us and libc, or
 *           in front of us, libc's function is not the one that we call next, or ours not the one that the program calls: the answer stays as it is.
 * RTLD_NEXT, RTLD_DEFAULT: what they mean is seen by the return address, so the loader's dlsym is jumped to: it sees who called us.
 * Threads:  any; no lock but the loader's, which dlsym takes anyway, behind the gate of forks (fork_gate.h).
 * Limits:   a library that asks for RTLD_NEXT, or by dlvsym, gets libc's own: that is what those are asked for.
 */
#include "elf_symbols.h"
#include "fork_gate.h"
#include "process.h"

#include <dlfcn.h>

typedef void *dlsym_function(void *handle, const char *name);
/* Called by the assembler's lines below. */
dlsym_function *tm_find_next_dlsym(void);
dlsym_function tm_dlsym_in;

TM_HIDDEN __attribute__((used)) dlsym_function *_Atomic tm_next_dlsym;

static void *find_nothing(void *handle, const char *name) {
	(void)handle;
	(void)name;
	return NULL;
}

/* dlvsym is not hooked, and asks on our behalf. Another library may have hooked dlsym behind us. */
TM_HIDDEN __attribute__((used)) dlsym_function *tm_find_next_dlsym(void) {
#if defined(__x86_64__)
	static const char *const versions[] = { "GLIBC_2.34", "GLIBC_2.2.5" };
#else
	static const char *const versions[] = { "GLIBC_2.34", "GLIBC_2.17" };
#endif
	dlsym_function *libcs = NULL, *next = NULL;
	tm_ours_begin();
	for (unsigned i = 0; i < sizeof versions / sizeof *versions && !libcs; i++) *(void **)&libcs = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
	if (libcs) *(void **)&next = libcs(RTLD_NEXT, "dlsym");
	tm_ours_end();
	if (!next) next = libcs ? libcs : find_nothing;
	atomic_store(&tm_next_dlsym, next);
	return next;
}

static void *own_function(const char *name) {
	struct dl_phdr_info here = {
		.dlpi_addr = (ElfW(Addr))&__ehdr_start,
		.dlpi_phdr = (const ElfW(Phdr) *)((uintptr_t)&__ehdr_start + __ehdr_start.e_phoff),
		.dlpi_phnum = __ehdr_start.e_phnum,
	};
	struct tm_symbols symbols;
	return tm_symbols_open(&symbols, &here) ? tm_symbols_function(&symbols, name) : NULL;
}

/* What our call of that name goes to. Where there is nothing of that name, dlerror() would say so next: the program's own lookup, which found something, is
 * made again, and ends with no error. */
static void *called_by_us(dlsym_function *next, void *handle, const char *name) {
	void *called = tm_next_symbol(name);
	if (called) return called;
	tm_ours_begin();
	next(handle, name);
	tm_ours_end();
	return NULL;
}

/* Of a handle. */
TM_HIDDEN __attribute__((used)) void *tm_dlsym_in(void *handle, const char *name) {
	dlsym_function *next = atomic_load(&tm_next_dlsym);
	void *found, *hook, *called;
	if (!next) next = tm_find_next_dlsym();
	found = next(handle, name);
	if (!found || tm_is_ours() || !tm_guest.shm) return found;
	hook = own_function(name);
	if (!hook || hook == found || tm_other_allocator() || !tm_gate_enter()) return found;
	called = called_by_us(next, handle, name);
	tm_gate_leave();
	return called == found ? hook : found;
}

/* clang-format off */
#if defined(__x86_64__)
__asm__(".text\n\t.globl dlsym\n\t.type dlsym, @function\ndlsym:\n\t.cfi_startproc\n\tlea 1(%rdi), %rax\n\tcmp $1, %rax\n\tja tm_dlsym_in\n\t"
	"mov tm_next_dlsym(%rip), %rax\n\ttest %rax, %rax\n\tje 1f\n\tjmp *%rax\n"
	"1:\tpush %rdi\n\t.cfi_adjust_cfa_offset 8\n\tpush %rsi\n\t.cfi_adjust_cfa_offset 8\n\tsub $8, %rsp\n\t.cfi_adjust_cfa_offset 8\n\t"
	"call tm_find_next_dlsym\n\tadd $8, %rsp\n\t.cfi_adjust_cfa_offset -8\n\tpop %rsi\n\t.cfi_adjust_cfa_offset -8\n\t"
	"pop %rdi\n\t.cfi_adjust_cfa_offset -8\n\tjmp *%rax\n\t.cfi_endproc\n\t.size dlsym, .-dlsym\n");
#else
__asm__(".text\n\t.globl dlsym\n\t.type dlsym, %function\ndlsym:\n\t.cfi_startproc\n\tcmn x0, #1\n\tb.eq 1f\n\tcbnz x0, tm_dlsym_in\n"
	"1:\tadrp x16, tm_next_dlsym\n\tldr x16, [x16, #:lo12:tm_next_dlsym]\n\tcbz x16, 2f\n\tbr x16\n"
	"2:\tstp x29, x30, [sp, #-32]!\n\t.cfi_def_cfa_offset 32\n\t.cfi_offset x29, -32\n\t.cfi_offset x30, -24\n\tstp x0, x1, [sp, #16]\n\t"
	"bl tm_find_next_dlsym\n\tmov x16, x0\n\tldp x0, x1, [sp, #16]\n\tldp x29, x30, [sp], #32\n\t.cfi_def_cfa_offset 0\n\t.cfi_restore x29\n\t"
	".cfi_restore x30\n\tbr x16\n\t.cfi_endproc\n\t.size dlsym, .-dlsym\n");
#endif
/* clang-format on */
