/* fail_alloc.h - makes one chosen allocation of a test binary fail, to prove that running out of memory is survived.
 *
 * fail_alloc_at(n): the nth allocation from now on returns NULL (0: none does). Sanitizers bring their own malloc: there nothing
 * fails and FAIL_ALLOC_WORKS is 0. Include it in one file of a binary.
 */
#ifndef TIDEMARK_TESTS_UNIT_FAIL_ALLOC_H
#define TIDEMARK_TESTS_UNIT_FAIL_ALLOC_H

#include <errno.h>
#include <stddef.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FAIL_ALLOC_WORKS 0
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FAIL_ALLOC_WORKS 0
#endif
#ifndef FAIL_ALLOC_WORKS
#define FAIL_ALLOC_WORKS 1
#endif

static unsigned long fail_alloc_countdown;

static inline void fail_alloc_at(unsigned long n) {
	fail_alloc_countdown = n;
}

#if FAIL_ALLOC_WORKS
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *malloc(size_t size);
void *calloc(size_t count, size_t size);
void *realloc(void *old, size_t size);

static int fail_alloc_now(void) {
	if (!fail_alloc_countdown || --fail_alloc_countdown) return 0;
	errno = ENOMEM;
	return 1;
}

void *malloc(size_t size) {
	return fail_alloc_now() ? NULL : __libc_malloc(size);
}
void *calloc(size_t count, size_t size) {
	return fail_alloc_now() ? NULL : __libc_calloc(count, size);
}
void *realloc(void *old, size_t size) {
	return fail_alloc_now() ? NULL : __libc_realloc(old, size);
}
#endif

#endif
