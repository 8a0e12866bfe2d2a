/* sampler.h - what the stress program and the sampler (a library that holds the unwinder and an oracle) know of each other.
 *
 * The sampler's malloc, calloc and realloc, and tm_test_sample(), each take the caller's stack twice, with the guest's unwinder and with the oracle, and
 * compare. So the library can also be preloaded into any program: TM_TEST_REPORT names a file for the figures.
 */
#ifndef TIDEMARK_TESTS_UNWIND_SAMPLER_H
#define TIDEMARK_TESTS_UNWIND_SAMPLER_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TEST_FEATURES(X) \
	X(plain) X(alloca) X(longjmp) X(exception) X(signal) X(altstack) X(interrupted) X(coroutine) X(tail_call) X(rbp_general) X(aligned) X(jit) \
	X(jit_without_fp) X(plugin) X(range_reused) X(short_thread) X(library) X(frame_pointers) X(ours) X(way_in) TEST_ASSEMBLY(X) X(depth_limit)
#if defined(__x86_64__)
#define TEST_ASSEMBLY(X) X(pivoted) X(gap) X(replaced) X(closing)
#else
#define TEST_ASSEMBLY(X)
#endif
enum test_feature {
#define X(name) TEST_##name,
	TEST_FEATURES(X)
#undef X
		TEST_FEATURE_COUNT
};

struct test_counts {
	unsigned long long stacks, known, learned, frames, fresh, quick, cut, wrong, wrong_cut, beyond, whole, own_skipped, features[TEST_FEATURE_COUNT];
};

/* How many scopes of each feature the calling thread is in; the program counts. */
extern __thread unsigned test_active[TEST_FEATURE_COUNT];
/* What lies outside of code without a description, innermost first: the stack as it was before that code was called. 0: some address in the caller. */
struct test_truth {
	unsigned depth;
	unsigned long pcs[1024];
};
extern __thread struct test_truth *test_truth;
extern bool test_has_truth; /* the program sets test_truth where it matters */
extern bool test_by_frame_pointers; /* TM_TEST_STACKS is set */
/* Called in dlclose() when the library has gone, and what was known of it is not forgotten yet. */
extern __thread void (*test_in_dlclose)(void);

void tm_test_sample(void);
void tm_test_pause(bool on); /* the calling thread's stacks are not taken */
void tm_test_as_main(void *(*start)(void *), void *argument); /* no frame, nor is what lies outside of it */
/* Calls `to`; no frame, since it is the sampler's. */
void tm_test_pass(void (*to)(int), int fuel);
void tm_test_pass_framed(void (*to)(int), int fuel); /* with a frame pointer; x86-64 only */
/* Calls `to` ten times; where a bit of the choices is set with its caller's frame pointer for its own. x86-64 only. */
void tm_test_pivoted(void (*to)(void), unsigned long choices);
/* Two functions that this makes, one the sampler's and one the program's, have equal frames. */
#if defined(__x86_64__)
#define TEST_PASS_ON(name) \
	__asm__(".text\n\t.globl " #name "\n\t.type " #name ", @function\n" #name ":\n\t.cfi_startproc\n\tsub $24, %rsp\n\t.cfi_def_cfa_offset 32\n\t" \
		"mov %rdi, %rax\n\tmov %esi, %edi\n\tcall *%rax\n\tadd $24, %rsp\n\t.cfi_def_cfa_offset 8\n\tret\n\t.cfi_endproc\n\t" \
		".size " #name ", .-" #name "\n");
#else
#define TEST_PASS_ON(name) \
	__asm__(".text\n\t.globl " #name "\n\t.type " #name ", %function\n" #name ":\n\t.cfi_startproc\n\tstr x30, [sp, #-16]!\n\t" \
		".cfi_def_cfa_offset 16\n\t.cfi_offset x30, -16\n\tmov x2, x0\n\tmov w0, w1\n\tblr x2\n\tldr x30, [sp], #16\n\t" \
		".cfi_def_cfa_offset 0\n\t.cfi_restore x30\n\tret\n\t.cfi_endproc\n\t.size " #name ", .-" #name "\n");
#endif
/* Of the caller, by the oracle, as far as that can see; beyond, where the caller is inside of such code already, by what is known of that. */
void tm_test_stack_here(struct test_truth *truth);
void tm_test_limit(unsigned frames);               /* the depth limit of the calling thread from now on */
void tm_test_counts(struct test_counts *counts);

#ifdef __cplusplus
}
#endif
#endif
