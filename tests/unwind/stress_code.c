/* stress_code.c - the stress program's odd frames: written in assembly, or built with frame pointers (see stress.h). */
#include "sampler.h"
#include "stress.h"
#include "trap.h"

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

TEST_PASS_ON(stress_pass)

/* --- frames that are made to be mistaken for those of the stack before --- */

#if defined(__x86_64__)

#define FUNCTION(name) ".text\n\t.globl " name "\n\t.type " name ", @function\n" name ":\n\t.cfi_startproc\n\t"
#define LOCAL(name) name ":\n\t.cfi_startproc\n\t"
#define END_OF(name) ".cfi_endproc\n\t.size " name ", .-" name "\n"
#define PUSH_FP "push %rbp\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset %rbp, -16\n\tmov %rsp, %rbp\n\t.cfi_def_cfa_register %rbp\n\t"
#define POP_FP "pop %rbp\n\t.cfi_def_cfa %rsp, 8\n\tret\n\t"
/* The same as a function that aligned its stack describes it: where its frame ends lies below where its frame pointer points to. */
#define PUSH_FP_AND_END \
	PUSH_FP "lea 16(%rbp), %r10\n\tpush %r10\n\t.cfi_escape 0x0f, 3, 0x76, 0x78, 0x06\n\t.cfi_escape 0x10, 6, 2, 0x76, 0\n\tsub $8, %rsp\n\t"
#define POP_END_AND_FP "add $16, %rsp\n\t.cfi_def_cfa %rbp, 16\n\t.cfi_offset %rbp, -16\n\t" POP_FP
#define ROOM(bytes, cfa) "sub $" bytes ", %rsp\n\t.cfi_def_cfa_offset " cfa "\n\t"
#define NO_ROOM(bytes) "add $" bytes ", %rsp\n\t.cfi_def_cfa_offset 8\n\tret\n\t.cfi_endproc\n"
#define SAVE_FP_ELSEWHERE ROOM("24", "32") "mov %rbp, 8(%rsp)\n\t.cfi_rel_offset %rbp, 8\n\txor %ebp, %ebp\n\t"
#define RESTORE_FP_FROM_ELSEWHERE "mov 8(%rsp), %rbp\n\t.cfi_restore %rbp\n\t" NO_ROOM("24")
#define SAVE_FP_BELOW "push %rbp\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset %rbp, -16\n\txor %ebp, %ebp\n\t"
#define RESTORE_FP_FROM_BELOW "pop %rbp\n\t.cfi_restore %rbp\n\t.cfi_def_cfa_offset 8\n\tret\n\t.cfi_endproc\n"

/* A frame whose end depends on a word that is no return address. The inner function calls leaves from one place, each time with its own frame pointer or
 * with its caller's, so that by its description its caller is in the stack or out of it: no return address changes, only what was saved of the register, by
 * the leaf or by what that calls: elsewhere, or below a return address, where another leaf leaves what the one before saved.
 * Of the choices, six bits are one call's: the leaf (2), the frame pointer (1), what the leaf calls (3). */
#define PIVOTED(outer, inner, prologue, epilogue, callers_fp) \
	FUNCTION(outer) prologue "call " inner "\n\t" epilogue END_OF(outer) PIVOTED_INNER(inner, prologue, epilogue, callers_fp)
#define PIVOTED_INNER(inner, prologue, epilogue, callers_fp) \
	LOCAL(inner) prologue \
	"push %r12\n\tpush %rbx\n\tpush %r13\n\tpush %r14\n\tmov %edi, %r12d\n\tmov %rbp, %rbx\n\tmov %rsi, %r13\n\tmov $10, %r14d\n" \
	"1:\tmov %rbx, %rbp\n\ttest $4, %r13b\n\tje 2f\n\t" callers_fp ", %rbp\n2:\tmov %r13d, %eax\n\tand $3, %eax\n\tlea pivoted_leaves(%rip), %rcx\n\t" \
	"movslq (%rcx, %rax, 4), %rax\n\tadd %rcx, %rax\n\tmov %r13d, %edx\n\tshr $3, %edx\n\tand $7, %edx\n\tlea pivoted_called(%rip), %rcx\n\t" \
	"movslq (%rcx, %rdx, 4), %rsi\n\tadd %rcx, %rsi\n\tmov %r12d, %edi\n\tcall *%rax\n\tshr $6, %r13\n\tdec %r14d\n\tjne 1b\n\t" \
	"mov %rbx, %rbp\n\tpop %r14\n\tpop %r13\n\tpop %rbx\n\tpop %r12\n\t" epilogue ".cfi_endproc\n"

__asm__(PIVOTED("stress_pivoted", "pivoted_inner", PUSH_FP, POP_FP, "mov (%rbx)")
	PIVOTED("stress_pivoted_aligned", "pivoted_aligned", PUSH_FP_AND_END, POP_END_AND_FP, "mov (%rbx)")
	FUNCTION("stress_pivoted_in_plain") "push %rbp\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset %rbp, -16\n\tcall pivoted_in_plain\n\t"
	"pop %rbp\n\t.cfi_restore %rbp\n\t.cfi_def_cfa_offset 8\n\tret\n\t" END_OF("stress_pivoted_in_plain")
	PIVOTED_INNER("pivoted_in_plain", PUSH_FP, POP_FP, "lea 16(%rbx)")
	FUNCTION("stress_pivoted_in_ours") PUSH_FP "lea called_below(%rip), %rdi\n\tcall tm_test_pivoted@PLT\n\t" POP_FP END_OF("stress_pivoted_in_ours")
	"pivoted_leaves:\n\t.long leaf_elsewhere - pivoted_leaves, leaf_below - pivoted_leaves, leaf_not - pivoted_leaves, leaf_none - pivoted_leaves\n"
	LOCAL("leaf_elsewhere") SAVE_FP_ELSEWHERE "call *%rsi\n\t" RESTORE_FP_FROM_ELSEWHERE
	LOCAL("leaf_below") SAVE_FP_BELOW "call *%rsi\n\t" RESTORE_FP_FROM_BELOW
	LOCAL("leaf_not") ROOM("24", "32") "call *%rsi\n\t" NO_ROOM("24")
	LOCAL("leaf_none") "jmp *%rsi\n\t.cfi_endproc\n"
	"pivoted_called:\n\t.long called_node - pivoted_called, called_sample - pivoted_called, called_elsewhere - pivoted_called\n\t"
	".long called_below - pivoted_called\n\t"
	".long called_not - pivoted_called, called_framed - pivoted_called, called_framed_twice - pivoted_called, called_nested - pivoted_called\n"
	LOCAL("called_node") "jmp stress_node@PLT\n\t.cfi_endproc\n"
	LOCAL("called_sample") "jmp tm_test_sample@PLT\n\t.cfi_endproc\n"
	LOCAL("called_elsewhere") SAVE_FP_ELSEWHERE "call tm_test_sample@PLT\n\t" RESTORE_FP_FROM_ELSEWHERE
	LOCAL("called_below") SAVE_FP_BELOW "call tm_test_sample@PLT\n\t" RESTORE_FP_FROM_BELOW
	LOCAL("called_not") ROOM("24", "32") "call tm_test_sample@PLT\n\t" NO_ROOM("24")
	LOCAL("called_framed") PUSH_FP "call tm_test_sample@PLT\n\t" POP_FP ".cfi_endproc\n"
	LOCAL("called_framed_twice") PUSH_FP "call called_framed\n\t" POP_FP ".cfi_endproc\n"
	LOCAL("nested_inner") PUSH_FP "call called_elsewhere\n\t" POP_FP ".cfi_endproc\n"
	LOCAL("called_nested") SAVE_FP_ELSEWHERE "call nested_inner\n\t" RESTORE_FP_FROM_ELSEWHERE);

/* Calls from two places, at the second with room on the stack: in it lies what the first left, a return address where one was before. Some of those that
 * are called begin their frame at a multiple of 64, as the kernel does for a signal's handler: so it may lie where it was.
 * Of the choices, four bits are one call's: the place (1), who is called (3). */
#define CALL_WITH_OR_WITHOUT_GAP \
	"mov %edi, %r12d\n\tmov %esi, %r13d\n\tmov $8, %ebx\n1:\tmov %r13d, %eax\n\tshr %eax\n\tand $7, %eax\n\tlea gap_called(%rip), %rcx\n\t" \
	"movslq (%rcx, %rax, 4), %rax\n\tadd %rcx, %rax\n\tmov %r12d, %edi\n\ttest $1, %r13b\n\tjne 3f\n\t" \
	"call *%rax\n\tjmp 4f\n3:\tsub $16, %rsp\n\t" GAP_BEGINS "call *%rax\n\tadd $16, %rsp\n\t" GAP_ENDS "4:\tshr $4, %r13d\n\tdec %ebx\n\tjne 1b\n\t"
#define GAP_BEGINS ".cfi_adjust_cfa_offset 16\n\t"
#define GAP_ENDS ".cfi_adjust_cfa_offset -16\n"
__asm__(FUNCTION("stress_gap") "push %r12\n\t.cfi_adjust_cfa_offset 8\n\tpush %r13\n\t.cfi_adjust_cfa_offset 8\n\tpush %rbx\n\t.cfi_adjust_cfa_offset 8\n\t"
	CALL_WITH_OR_WITHOUT_GAP "pop %rbx\n\t.cfi_adjust_cfa_offset -8\n\tpop %r13\n\t.cfi_adjust_cfa_offset -8\n\tpop %r12\n\t.cfi_adjust_cfa_offset -8\n\t"
	"ret\n\t" END_OF("stress_gap")
	"gap_called:\n\t.long called_node - gap_called, called_sample - gap_called, called_framed - gap_called, called_framed_twice - gap_called\n\t"
	".long called_aligned - gap_called, called_aligned - gap_called, called_signal - gap_called, called_nested - gap_called\n"
	/* tgkill(getpid(), gettid(), SIGUSR1): nothing lies between the handler's frame and the caller's */
	LOCAL("called_signal") "mov $39, %eax\n\tsyscall\n\tmov %eax, %edi\n\tmov $186, %eax\n\tsyscall\n\tmov %eax, %esi\n\tmov $10, %edx\n\t"
	"mov $234, %eax\n\tsyscall\n\tret\n\t.cfi_endproc\n"
	LOCAL("called_aligned") "lea 8(%rsp), %r10\n\t.cfi_def_cfa %r10, 0\n\tand $-64, %rsp\n\tpushq -8(%r10)\n\tpush %rbp\n\tmov %rsp, %rbp\n\t"
	".cfi_escape 0x10, 6, 2, 0x76, 0\n\tpush %r10\n\t.cfi_escape 0x0f, 3, 0x76, 0x78, 0x06\n\tsub $40, %rsp\n\tcall called_sample\n\t"
	"mov -8(%rbp), %r10\n\t.cfi_def_cfa %r10, 0\n\tleave\n\tlea -8(%r10), %rsp\n\t.cfi_def_cfa %rsp, 8\n\tret\n\t.cfi_endproc\n");
#undef GAP_BEGINS
#undef GAP_ENDS
#define GAP_BEGINS ""
#define GAP_ENDS "\n"
__asm__(FUNCTION("stress_gap_framed") PUSH_FP "push %r12\n\tpush %r13\n\tpush %rbx\n\tsub $8, %rsp\n\t"
	CALL_WITH_OR_WITHOUT_GAP "add $8, %rsp\n\tpop %rbx\n\tpop %r13\n\tpop %r12\n\t" POP_FP END_OF("stress_gap_framed"));

/* The first call is made before there is a frame pointer. */
__asm__(FUNCTION("stress_gap_late") "lea called_sample(%rip), %rax\n\tlea called_elsewhere(%rip), %rcx\n\ttest $1, %edi\n\tcmovne %rcx, %rax\n\t"
	ROOM("24", "32") "mov %edi, (%rsp)\n\tcall *%rax\n\tmov (%rsp), %edi\n\tadd $24, %rsp\n\t.cfi_def_cfa_offset 8\n\t" PUSH_FP "sub $48, %rsp\n\t"
	"lea called_framed(%rip), %rax\n\tlea called_framed_twice(%rip), %rcx\n\ttest $2, %edi\n\tcmovne %rcx, %rax\n\tcall *%rax\n\tadd $48, %rsp\n\t"
	POP_FP END_OF("stress_gap_late"));

__asm__(FUNCTION("stress_call_with_fp") "push %rbp\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset %rbp, -16\n\tmov %rsp, %rbp\n\tmov %rdi, %rax\n\t"
	"mov %rsi, %rdi\n\tcall *%rax\n\tpop %rbp\n\t.cfi_restore %rbp\n\t.cfi_def_cfa_offset 8\n\tret\n\t" END_OF("stress_call_with_fp"));

/* As TEST_PASS_ON(), with a frame pointer. */
__asm__(FUNCTION("stress_pass_framed") PUSH_FP "mov %rdi, %rax\n\tmov %esi, %edi\n\tcall *%rax\n\t" POP_FP END_OF("stress_pass_framed"));

/* A library's function, then another library's that came to lie there, and whose frame is larger by just what the caller's is smaller. So the places of the
 * innermost frames are those of the first calls, and their return address still lies within the frame of the second. In between another stack is taken,
 * further inward, which leaves what lies here as it is. */
#define SAMPLE_FURTHER_INWARD "sub $1024, %rsp\n\t.cfi_adjust_cfa_offset 1024\n\tcall tm_test_sample@PLT\n\tadd $1024, %rsp\n\t.cfi_adjust_cfa_offset -1024\n\t"
#define PASS "mov 16(%rbx), %rdi\n\tmov 24(%rbx), %esi\n\tcall *(%rbx)\n\t"
__asm__(FUNCTION("stress_replaced")
	"push %rbx\n\t.cfi_adjust_cfa_offset 8\n\tpush %r12\n\t.cfi_adjust_cfa_offset 8\n\tsub $8, %rsp\n\t.cfi_adjust_cfa_offset 8\n\t"
	"mov %rdi, %rbx\n\tmov $3, %r12d\n1:\t" SAMPLE_FURTHER_INWARD
	"sub $16, %rsp\n\t.cfi_adjust_cfa_offset 16\n\t" PASS "add $16, %rsp\n\t.cfi_adjust_cfa_offset -16\n\tdec %r12d\n\tjne 1b\n\t"
	"sub $1024, %rsp\n\t.cfi_adjust_cfa_offset 1024\n\tmov %rbx, %rdi\n\tcall *8(%rbx)\n\tadd $1024, %rsp\n\t.cfi_adjust_cfa_offset -1024\n\t"
	"mov $3, %r12d\n2:\t" PASS SAMPLE_FURTHER_INWARD "dec %r12d\n\tjne 2b\n\t"
	"add $8, %rsp\n\t.cfi_adjust_cfa_offset -8\n\tpop %r12\n\t.cfi_adjust_cfa_offset -8\n\tpop %rbx\n\t.cfi_adjust_cfa_offset -8\n\t"
	"ret\n\t" END_OF("stress_replaced"));

#endif

/* --- code that signals interrupt: pushes, pops, other bases of the frame --- */

#define TRAPPED __attribute__((noinline, section("trapped_text")))

TRAPPED static unsigned interrupted_leaf(unsigned n) {
	volatile unsigned x = n;
	return x * 2654435761u;
}

TRAPPED unsigned stress_interrupted(unsigned n) {
	_Alignas(64) volatile unsigned space[16];
	volatile char more[1 + n % 50];
	space[n % 16] = n;
	more[0] = 1;
	return interrupted_leaf(space[n % 16]) + (unsigned)more[0];
}

#if defined(__x86_64__)
/* gcc's description of interrupted() says until its very end that the caller's frame pointer is saved where the register points to. After `leave` that is
 * where the caller's does, and libunwind gives up if it is no address: here it is one. */
__asm__(FUNCTION("stress_interruptible") "push %rbp\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset %rbp, -16\n\tmov %rsp, %rbp\n\tcall stress_interrupted\n\t"
	"pop %rbp\n\t.cfi_restore %rbp\n\t.cfi_def_cfa_offset 8\n\tret\n\t" END_OF("stress_interruptible"));
#else
TRAPPED unsigned stress_interruptible(unsigned n) {
	return stress_interrupted(n) + 1;
}
#endif

extern const uint32_t __start_trapped_text[], __stop_trapped_text[];

void stress_trap(bool on) {
	(on ? trap_begin : trap_end)(__start_trapped_text, __stop_trapped_text);
}

/* --- code that is written at run time --- */

static void *make_code(const void *code, size_t bytes) {
	char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) return NULL;
	memcpy(memory + 64, code, bytes);
	mprotect(memory, 4096, PROT_READ | PROT_EXEC);
	__builtin___clear_cache(memory, memory + 4096);
	return memory + 64;
}

/* Calls its first argument with the second. */
void *stress_make_code(bool frame_pointer) {
#if defined(__x86_64__)
	static const uint8_t framed[] = { 0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x40, 0x48, 0x89, 0xf8, 0x89, 0xf7, 0xff, 0xd0, 0xc9, 0xc3 };
	static const uint8_t bare[] = { 0x48, 0x83, 0xec, 0x38, 0x48, 0x89, 0xf8, 0x89, 0xf7, 0xff, 0xd0, 0x48, 0x83, 0xc4, 0x38, 0xc3 };
#else
	static const uint32_t framed[] = { 0xa9bf7bfd, 0x910003fd, 0xd10103ff, 0xaa0003e8, 0x2a0103e0, 0xd63f0100, 0x910103ff, 0xa8c17bfd, 0xd65f03c0 };
	static const uint32_t bare[] = { 0xd100c3ff, 0xf90013fe, 0xaa0003e8, 0x2a0103e0, 0xd63f0100, 0xf94013fe, 0x9100c3ff, 0xd65f03c0 };
#endif
	return frame_pointer ? make_code(framed, sizeof framed) : make_code(bare, sizeof bare);
}

#if defined(__x86_64__)
void *stress_make_pivoted_code(void) {
	/* push rbp; mov rsp, rbp; push rbx; push r12; mov rdi, rbx; xor r12d, r12d; 1: mov r12d, edi; call *rbx; mov (rbp), rbp; xor $1, r12d; jne 1b;
	 * pop r12; pop rbx; pop rbp; ret */
	static const uint8_t code[] = { 0x55, 0x48, 0x89, 0xe5, 0x53, 0x41, 0x54, 0x48, 0x89, 0xfb, 0x45, 0x31, 0xe4, 0x44, 0x89, 0xe7, 0xff, 0xd3, 0x48,
		0x8b, 0x6d, 0x00, 0x41, 0x83, 0xf4, 0x01, 0x75, 0xf1, 0x41, 0x5c, 0x5b, 0x5d, 0xc3 };
	return make_code(code, sizeof code);
}
#endif
