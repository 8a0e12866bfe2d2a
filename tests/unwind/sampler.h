/* sampler.h - what the stress program and the sampler (a library that holds the unwinder and an oracle) know of each other.
 *
 * The sampler's malloc, calloc and realloc, and tm_test_sample(), each take the caller's stack twice, with the guest's unwinder and with the oracle, and
 * compare. So the library can also be preloaded into any program: TM_TEST_REPORT names a file for the figures.
 */
#ifndef TIDEMARK_TESTS_UNWIND_SAMPLER_H
#define TIDEMARK_TESTS_UNWIND_SAMPLER_H

#ifdef __cplusplus
extern "C" {
#endif

#define TEST_FEATURES(X) \
	X(plain) X(alloca) X(longjmp) X(exception) X(signal) X(altstack) TEST_INTERRUPTED(X) X(coroutine) X(tail_call) X(rbp_general) X(aligned) X(jit) \
	X(jit_without_fp) X(plugin) X(range_reused) X(short_thread) X(library) X(frame_pointers) TEST_PIVOTED(X) X(depth_limit)
/* Handlers at any instruction: where the oracle can tell what was interrupted. libgcc cannot in parts of aarch64's libc (swapcontext: it goes round in it). */
#if defined(__x86_64__)
#define TEST_INTERRUPTED(X) X(interrupted)
#define TEST_PIVOTED(X) X(pivoted)
#else
#define TEST_INTERRUPTED(X)
#define TEST_PIVOTED(X)
#endif
enum test_feature {
#define X(name) TEST_##name,
	TEST_FEATURES(X)
#undef X
		TEST_FEATURE_COUNT
};

struct test_counts {
	unsigned long long stacks, frames, fresh, quick, cut, wrong, wrong_cut, beyond, own_skipped, features[TEST_FEATURE_COUNT];
};

/* How many scopes of each feature the calling thread is in; the program counts. */
extern __thread unsigned test_active[TEST_FEATURE_COUNT];
/* What lies outside of code without a description, innermost first: the stack as it was before that code was called. 0: some address in the caller. */
struct test_truth {
	unsigned depth;
	unsigned long pcs[1024];
};
extern __thread struct test_truth *test_truth;

void tm_test_sample(void);
/* Of the caller, by the oracle, as far as that can see; beyond, where the caller is inside of such code already, by what is known of that. */
void tm_test_stack_here(struct test_truth *truth);
void tm_test_limit(unsigned frames);               /* the depth limit of the calling thread from now on */
void tm_test_counts(struct test_counts *counts);

#ifdef __cplusplus
}
#endif
#endif
