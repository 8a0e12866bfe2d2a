/* stress_code.c - the stress program's odd frames: written in assembly, or built with frame pointers (see stress.h). */
#include "stress.h"

#include <string.h>
#include <sys/mman.h>

/* --- the frame pointer's register used for something else --- */

#if defined(__x86_64__)
__asm__(".text\n\t.globl stress_rbp_general\n\t.type stress_rbp_general, @function\n"
	"stress_rbp_general:\n\t.cfi_startproc\n\tpush %rbp\n\t.cfi_adjust_cfa_offset 8\n\t.cfi_rel_offset %rbp, 0\n\t"
	"push %rbx\n\t.cfi_adjust_cfa_offset 8\n\t.cfi_rel_offset %rbx, 0\n\tsub $24, %rsp\n\t.cfi_adjust_cfa_offset 24\n\t"
	"mov %rsi, %rbp\n\tcall stress_node@PLT\n\t"
	"add $24, %rsp\n\t.cfi_adjust_cfa_offset -24\n\tpop %rbx\n\t.cfi_adjust_cfa_offset -8\n\t.cfi_restore %rbx\n\t"
	"pop %rbp\n\t.cfi_adjust_cfa_offset -8\n\t.cfi_restore %rbp\n\tret\n\t.cfi_endproc\n\t.size stress_rbp_general, .-stress_rbp_general\n");
#else
__asm__(".text\n\t.globl stress_rbp_general\n\t.type stress_rbp_general, %function\n"
	"stress_rbp_general:\n\t.cfi_startproc\n\tsub sp, sp, #48\n\t.cfi_adjust_cfa_offset 48\n\tstr x30, [sp, #8]\n\t.cfi_rel_offset x30, 8\n\t"
	"str x29, [sp, #24]\n\t.cfi_rel_offset x29, 24\n\tmov x29, x1\n\tbl stress_node\n\t"
	"ldr x29, [sp, #24]\n\t.cfi_restore x29\n\tldr x30, [sp, #8]\n\t.cfi_restore x30\n\tadd sp, sp, #48\n\t.cfi_adjust_cfa_offset -48\n\t"
	"ret\n\t.cfi_endproc\n\t.size stress_rbp_general, .-stress_rbp_general\n");
#endif

/* --- frame pointers --- */

__attribute__((noinline, optimize("no-omit-frame-pointer"))) static void framed_inner(int fuel) {
	volatile char space[40];
	space[0] = 1;
	stress_node(fuel);
	space[1] = space[0];
}

__attribute__((noinline, optimize("no-omit-frame-pointer"))) void stress_frame_pointers(int fuel) {
	volatile char space[200];
	space[0] = 1;
	framed_inner(fuel);
	space[1] = space[0];
}

/* --- a stack that is aligned on entry --- */

__attribute__((noinline)) void stress_aligned(int fuel, unsigned n) {
	_Alignas(64) volatile char space[64];
	volatile char more[n];
	space[0] = 1;
	more[n - 1] = 1;
	stress_node(fuel);
	space[1] = more[0] = space[0];
}

/* --- a frame whose end depends on a word that is no return address --- */

#if defined(__x86_64__)
/* The inner function calls the leaf three times from one place, in turn with its own frame pointer and with its caller's, so that by its description its
 * caller is out of the stack and in it: no return address changes, only what the leaf saved. The leaf saves it elsewhere, or below its return address. */
__asm__(".text\n\t.globl stress_pivoted\n\t.type stress_pivoted, @function\n"
	"stress_pivoted:\n\t.cfi_startproc\n\tpush %rbp\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset %rbp, -16\n\tmov %rsp, %rbp\n\t.cfi_def_cfa_register %rbp\n\t"
	"lea pivoted_leaf_below(%rip), %rax\n\ttest %sil, %sil\n\tjne 1f\n\tlea pivoted_leaf_elsewhere(%rip), %rax\n1:\tcall pivoted_inner\n\t"
	"pop %rbp\n\t.cfi_def_cfa %rsp, 8\n\tret\n\t.cfi_endproc\n\t.size stress_pivoted, .-stress_pivoted\n"
	"pivoted_inner:\n\t.cfi_startproc\n\tpush %rbp\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset %rbp, -16\n\tmov %rsp, %rbp\n\t.cfi_def_cfa_register %rbp\n\t"
	"push %r12\n\tpush %rbx\n\tpush %r13\n\tpush %rax\n\tmov %edi, %r12d\n\tmov %rbp, %rbx\n\tmov $3, %r13d\n"
	"1:\tmov %r12d, %edi\n\tcall *(%rsp)\n\tmov %rbx, %rcx\n\tcmp %rbx, %rbp\n\tcmove (%rbx), %rcx\n\tmov %rcx, %rbp\n\tdec %r13d\n\tjne 1b\n\t"
	"mov %rbx, %rbp\n\tpop %rax\n\tpop %r13\n\tpop %rbx\n\tpop %r12\n\tpop %rbp\n\t.cfi_def_cfa %rsp, 8\n\tret\n\t.cfi_endproc\n"
	"pivoted_leaf_elsewhere:\n\t.cfi_startproc\n\tsub $24, %rsp\n\t.cfi_def_cfa_offset 32\n\tmov %rbp, 8(%rsp)\n\t.cfi_rel_offset %rbp, 8\n\t"
	"xor %ebp, %ebp\n\tcall stress_node@PLT\n\tmov 8(%rsp), %rbp\n\t.cfi_restore %rbp\n\tadd $24, %rsp\n\t.cfi_def_cfa_offset 8\n\tret\n\t.cfi_endproc\n"
	"pivoted_leaf_below:\n\t.cfi_startproc\n\tpush %rbp\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset %rbp, -16\n\txor %ebp, %ebp\n\tcall stress_node@PLT\n\t"
	"pop %rbp\n\t.cfi_restore %rbp\n\t.cfi_def_cfa_offset 8\n\tret\n\t.cfi_endproc\n");
#endif

/* --- code that signals interrupt: pushes, pops, other bases of the frame --- */

__attribute__((noinline)) static unsigned interrupted_leaf(unsigned n) {
	volatile unsigned x = n;
	return x * 2654435761u;
}

__attribute__((noinline)) unsigned stress_interruptible(unsigned n) {
	_Alignas(64) volatile unsigned space[16];
	volatile char more[1 + n % 50];
	space[n % 16] = n;
	more[0] = 1;
	return interrupted_leaf(space[n % 16]) + (unsigned)more[0];
}

#if defined(__x86_64__)
/* Every instruction has its description, since every one is stopped at. */
__asm__(".text\n\t.globl stress_trap\n\t.type stress_trap, @function\n"
	"stress_trap:\n\t.cfi_startproc\n\tpushfq\n\t.cfi_adjust_cfa_offset 8\n\tandq $~0x100, (%rsp)\n\ttest %dil, %dil\n\tje 1f\n\t"
	"orq $0x100, (%rsp)\n1:\tpopfq\n\t.cfi_adjust_cfa_offset -8\n\tret\n\t.cfi_endproc\n\t.size stress_trap, .-stress_trap\n");
#else
void stress_trap(bool on) {
	(void)on;
}
#endif

/* --- code that is written at run time: calls its first argument with the second --- */

void *stress_make_code(bool frame_pointer) {
#if defined(__x86_64__)
	static const uint8_t framed[] = { 0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x40, 0x48, 0x89, 0xf8, 0x89, 0xf7, 0xff, 0xd0, 0xc9, 0xc3 };
	static const uint8_t bare[] = { 0x48, 0x83, 0xec, 0x38, 0x48, 0x89, 0xf8, 0x89, 0xf7, 0xff, 0xd0, 0x48, 0x83, 0xc4, 0x38, 0xc3 };
#else
	static const uint32_t framed[] = { 0xa9bf7bfd, 0x910003fd, 0xd10103ff, 0xaa0003e8, 0x2a0103e0, 0xd63f0100, 0x910103ff, 0xa8c17bfd, 0xd65f03c0 };
	static const uint32_t bare[] = { 0xd100c3ff, 0xf90013fe, 0xaa0003e8, 0x2a0103e0, 0xd63f0100, 0xf94013fe, 0x9100c3ff, 0xd65f03c0 };
#endif
	char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED) return NULL;
	if (frame_pointer) memcpy(code + 64, framed, sizeof framed);
	else memcpy(code + 64, bare, sizeof bare);
	mprotect(code, 4096, PROT_READ | PROT_EXEC);
	__builtin___clear_cache(code, code + 4096);
	return code + 64;
}
