/* malloc_hooks.c - the malloc family as the program calls it.
 *
 * Flow:   program -> here -> the real function (real.c), and emit.c
 * Stamps: an allocation after the real call, a free before it, a realloc both: then a block that another thread gets or gives never seems to
 *         overlap itself. A failed realloc keeps the old block; realloc(p, 0) may free it.
 * Rule:   each hook is the real function plus a record; size 0, NULL, errno and alignment errors are the real function's business.
 */
#include "emit.h"
#include "guest.h"
#include "own_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What we cause ourselves, and what is asked for before the real functions are known, comes from own_memory.c. */
static inline bool is_own(const struct tm_thread *t) {
	return TM_UNLIKELY(!t) && (tm_is_ours() || (!tm_real_ready() && !tm_real_find()));
}

TM_EXPORT void *malloc(size_t size);
TM_EXPORT void *calloc(size_t count, size_t size);
TM_EXPORT void *realloc(void *old, size_t size);
TM_EXPORT void *reallocarray(void *old, size_t count, size_t size);
TM_EXPORT void free(void *p);
TM_EXPORT void cfree(void *p);
TM_EXPORT void free_sized(void *p, size_t size);
TM_EXPORT void free_aligned_sized(void *p, size_t alignment, size_t size);
TM_EXPORT int posix_memalign(void **out, size_t alignment, size_t size);
TM_EXPORT void *aligned_alloc(size_t alignment, size_t size);
TM_EXPORT void *memalign(size_t alignment, size_t size);
TM_EXPORT void *valloc(size_t size);
TM_EXPORT void *pvalloc(size_t size);
TM_EXPORT size_t malloc_usable_size(void *p);

static inline void record_alloc(struct tm_thread *t, enum tm_op op, void *p, size_t size, const void *frame) {
	if (TM_LIKELY(t != NULL)) {
		if (TM_LIKELY(p != NULL)) tm_emit_alloc(t, op, p, size, frame);
		tm_hook_leave(t);
	} else if (p) {
		tm_nested_add(op, p, size);
	}
}

void *malloc(size_t size) {
	struct tm_thread *t = tm_hook_enter();
	if (is_own(t)) return tm_own_alloc(16, size);
	void *p = tm_real.malloc(size);
	record_alloc(t, TM_OP_MALLOC, p, size, TM_FRAME);
	return p;
}

void *calloc(size_t count, size_t size) {
	size_t bytes;
	struct tm_thread *t = tm_hook_enter();
	if (is_own(t)) return __builtin_mul_overflow(count, size, &bytes) ? NULL : tm_own_alloc(16, bytes);
	void *p = tm_real.calloc(count, size);
	record_alloc(t, TM_OP_CALLOC, p, count * size, TM_FRAME); /* it did not overflow, else p is NULL */
	return p;
}

static inline void free_through(enum tm_op op, void *p) {
	if (!p) return;
	if (TM_UNLIKELY(tm_own_holds(p))) {
		tm_own_free(p);
		return;
	}
	struct tm_thread *t = tm_hook_enter();
	if (TM_UNLIKELY(!t) && !tm_real_ready() && !tm_real_find()) return;
	if (TM_LIKELY(t != NULL)) tm_emit_free(t, op, p);
	else tm_nested_add(op, p, 0);
	tm_real.free(p);
	if (t) tm_hook_leave(t);
}

void free(void *p) {
	free_through(TM_OP_FREE, p);
}

void cfree(void *p) {
	free_through(TM_OP_CFREE, p);
}

void free_sized(void *p, size_t size) {
	(void)size;
	free_through(TM_OP_FREE_SIZED, p);
}

void free_aligned_sized(void *p, size_t alignment, size_t size) {
	(void)alignment;
	(void)size;
	free_through(TM_OP_FREE_ALIGNED_SIZED, p);
}

/* realloc and reallocarray of a block that exists. */
static inline void *resize(enum tm_op op, void *old, size_t size, const void *frame) {
	struct tm_thread *t = tm_hook_enter();
	if (TM_UNLIKELY(!t)) {
		if (!tm_real_ready()) tm_real_find();
		void *moved = tm_real.realloc(old, size);
		if (moved || size == 0) tm_nested_add(TM_OP_REALLOC_FREE, old, 0);
		if (moved) tm_nested_add(op == TM_OP_REALLOC ? TM_OP_REALLOC_NEW : TM_OP_REALLOCARRAY_NEW, moved, size);
		return moved;
	}
	uint64_t begin = tm_begin(t);
	int error_before = errno;
	errno = 0;
	void *p = tm_real.realloc(old, size);
	bool freed = !p && size == 0 && errno == 0; /* glibc's realloc(p, 0); a failure would say ENOMEM */
	if (errno == 0) errno = error_before;
	if (p) tm_emit_realloc(t, op, p, size, old, begin, frame);
	else if (freed) tm_emit_realloc_free(t, old, begin);
	else tm_cancel(t);
	tm_hook_leave(t);
	return p;
}

void *realloc(void *old, size_t size) {
	if (TM_UNLIKELY(old && tm_own_holds(old))) return tm_own_realloc(old, size);
	if (old) return resize(TM_OP_REALLOC, old, size, TM_FRAME);
	struct tm_thread *t = tm_hook_enter();
	if (is_own(t)) return tm_own_alloc(16, size);
	void *p = tm_real.realloc(NULL, size);
	record_alloc(t, TM_OP_REALLOC_NEW, p, size, TM_FRAME);
	return p;
}

/* Built on realloc, as every libc does it; so it exists also where libc has none. */
void *reallocarray(void *old, size_t count, size_t size) {
	size_t bytes;
	if (__builtin_mul_overflow(count, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	if (TM_UNLIKELY(old && tm_own_holds(old))) return tm_own_realloc(old, bytes);
	if (old) return resize(TM_OP_REALLOCARRAY, old, bytes, TM_FRAME);
	struct tm_thread *t = tm_hook_enter();
	if (is_own(t)) return tm_own_alloc(16, bytes);
	void *p = tm_real.realloc(NULL, bytes);
	record_alloc(t, TM_OP_REALLOCARRAY_NEW, p, bytes, TM_FRAME);
	return p;
}

int posix_memalign(void **out, size_t alignment, size_t size) {
	struct tm_thread *t = tm_hook_enter();
	if (is_own(t)) {
		void *own = tm_own_alloc(alignment, size);
		if (own) *out = own;
		return own ? 0 : ENOMEM;
	}
	int error = tm_real.posix_memalign(out, alignment, size);
	record_alloc(t, TM_OP_POSIX_MEMALIGN, error ? NULL : *out, size, TM_FRAME);
	return error;
}

#define ALIGNED_HOOK(name, op)                                                \
	void *name(size_t alignment, size_t size) {                           \
		struct tm_thread *t = tm_hook_enter();                        \
		if (is_own(t)) return tm_own_alloc(alignment, size); \
		void *p = tm_real.name(alignment, size);                      \
		record_alloc(t, op, p, size, TM_FRAME);                      \
		return p;                                                     \
	}
ALIGNED_HOOK(aligned_alloc, TM_OP_ALIGNED_ALLOC)
ALIGNED_HOOK(memalign, TM_OP_MEMALIGN)

#define PAGE_HOOK(name, op)                                                   \
	void *name(size_t size) {                                             \
		struct tm_thread *t = tm_hook_enter();                        \
		if (is_own(t)) return tm_own_alloc(TM_SHM_PAGE, size); \
		void *p = tm_real.name(size);                                 \
		record_alloc(t, op, p, size, TM_FRAME);                      \
		return p;                                                     \
	}
PAGE_HOOK(valloc, TM_OP_VALLOC)
PAGE_HOOK(pvalloc, TM_OP_PVALLOC)

size_t malloc_usable_size(void *p) {
	if (!p) return 0;
	if (TM_UNLIKELY(tm_own_holds(p))) return tm_own_size(p);
	if (TM_UNLIKELY(!tm_real_ready()) && !tm_real_find()) return 0;
	return tm_real.malloc_usable_size(p);
}
