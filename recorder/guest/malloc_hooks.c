/* malloc_hooks.c - the malloc family as the program calls it.
 *
 * Flow:   program -> here -> the real function (real.c), and emit.c
 * Stamps: an allocation after the real call, a free before it, a realloc both: then a block that another thread gets or gives never seems to
 *         overlap itself. A failed realloc keeps the old block; realloc(p, 0) may free it.
 * Shape:  malloc, calloc, realloc and free jump to one of two sets of functions:
 *           every_*   records every call. The usual case is inlined (hot.h) and calls nothing but the real function and the unwinder; what happens before
 *                     we are ready, inside of another hook or on our own behalf is out of line.
 *           some_*    with --sample: the same, for the calls that are samples; and while recording is stopped.
 *         A free of libc's comes behind our part, all others inside of it (every_free_of_libc).
 *         With --sample a call that is no sample goes straight to the allocator instead, after one comparison: it is over so soon that a jump more is felt.
 *         So it is with libc's, jemalloc, tcmalloc and mimalloc, of which it is known what they do inside.
 *         A jump leaves the stack as it was, so each of them has the caller's frame next to its own.
 * Rule:   each hook is the real function plus a record; size 0, NULL, errno and alignment errors are the real function's business.
 */
#include "emit.h"
#include "hot.h"
#include "own_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What we cause ourselves, and what is asked for before the real functions are known, comes from own_memory.c. */
static bool is_own(void) {
	return tm_is_ours() || (!tm_real_ready() && !tm_real_find());
}

/* An answer of own_memory.c is final. What that has no room for is the allocator's if there is one: a thread that left work of ours by longjmp counts as
 * ours. */
static bool is_final(const void *own) {
	return own || !tm_real_ready();
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

#define INLINE static inline __attribute__((always_inline))

/* The allocator said no: who asked, for how much. */
TM_COLD static void record_refusal(struct tm_thread *t, enum tm_op op, size_t size, const void *frame) {
	tm_sample_pass_over();
	tm_emit_own_refusal(t, op, size, frame);
}

INLINE void record_alloc(struct tm_thread *t, enum tm_op op, void *p, size_t size, const void *frame, bool sampling) {
	if (TM_UNLIKELY(!p)) record_refusal(t, op, size, frame);
	else if (!sampling || tm_sample_take(t, p, size)) tm_record_alloc(t, op, p, size, frame);
	tm_leave(t);
}

/* A call inside of another one, from `caller`: a signal handler's, unless it is the allocator's own, whose calloc calls its malloc. Where that is the last
 * thing it does, the call returns to us. */
static void nested_add(enum tm_op op, const void *addr, size_t size, const void *caller) {
	uintptr_t from = (uintptr_t)caller;
	bool returns_to_us = from - tm_guest.text_low < tm_guest.text_high - tm_guest.text_low;
	if (!tm_is_allocators(caller) && !returns_to_us) tm_nested_add(op, 0, addr, size);
}

static const void *caller_of(const void *frame) {
	return ((const void *const *)frame)[1];
}

/* The process has just been attached, with --sample: the call comes again, by the hook that asks whether it is a sample. */
static bool comes_again(void) {
	bool again = tm_tls.was_unsampled;
	tm_tls.was_unsampled = false;
	return again;
}

TM_COLD static void *malloc_unrecorded(size_t size, const void *frame) {
	if (comes_again()) return tm_guest.hook.malloc(size);
	tm_sample_pass_over();
	if (is_own()) {
		void *own = tm_own_alloc(16, size);
		if (is_final(own)) return own;
	}
	void *p = tm_real.malloc(size);
	if (p) nested_add(TM_OP_MALLOC, p, size, caller_of(frame));
	return p;
}

INLINE void *malloc_through(size_t size, const void *frame, bool sampling) {
	struct tm_thread *t = tm_enter_malloc();
	if (TM_UNLIKELY(!t)) return malloc_unrecorded(size, frame);
	void *p = tm_real.malloc(size);
	record_alloc(t, TM_OP_MALLOC, p, size, frame, sampling);
	return p;
}

TM_COLD static void *calloc_unrecorded(size_t count, size_t size, const void *frame) {
	size_t bytes;
	if (comes_again()) return tm_guest.hook.calloc(count, size);
	tm_sample_pass_over();
	if (is_own()) {
		void *own = __builtin_mul_overflow(count, size, &bytes) ? NULL : tm_own_alloc(16, bytes);
		if (is_final(own)) return own;
	}
	void *p = tm_real.calloc(count, size);
	if (p) nested_add(TM_OP_CALLOC, p, count * size, caller_of(frame));
	return p;
}

INLINE void *calloc_through(size_t count, size_t size, const void *frame, bool sampling) {
	struct tm_thread *t = tm_enter_malloc();
	if (TM_UNLIKELY(!t)) return calloc_unrecorded(count, size, frame);
	void *p = tm_real.calloc(count, size);
	size_t bytes;
	if (__builtin_mul_overflow(count, size, &bytes)) bytes = SIZE_MAX; /* then p is NULL */
	record_alloc(t, TM_OP_CALLOC, p, bytes, frame, sampling);
	return p;
}

/* Of a block that may be the program's, by work of ours (tm_tls.frees_are_told). */
static void free_on_our_account(enum tm_op op, void *p) {
	uintptr_t inside = tm_tls.inside;
	struct tm_thread *t;

	tm_tls.inside = 0;
	tm_tls.ours = 0;
	t = tm_enter_malloc();
	if (t && (!t->samples || tm_sample_forget(p))) tm_record_free(t, op, p);
	if (t) tm_leave(t);
	tm_tls.ours = 1;
	tm_tls.inside = inside;
	tm_real.free(p);
}

/* Also blocks of ours, which libc may free whenever it likes. */
TM_COLD static void free_unrecorded(enum tm_op op, void *p, const void *caller) {
	if (!p) return;
	if (tm_own_holds(p)) {
		tm_own_free(p);
		return;
	}
	if (!tm_real_ready() && !tm_real_find()) return;
	if (tm_tls.frees_are_told && tm_tls.ours == 1) {
		free_on_our_account(op, p);
		return;
	}
	nested_add(op, p, 0, caller);
	tm_real.free(p);
}

TM_COLD static void free_of_ours(struct tm_thread *t, void *p) {
	tm_leave(t);
	if (p) tm_own_free(p);
}

INLINE void free_through(enum tm_op op, void *p, bool sampling) {
	struct tm_thread *t = p ? tm_enter_malloc() : NULL;
	if (TM_UNLIKELY(!t)) {
		free_unrecorded(op, p, __builtin_return_address(0));
		return;
	}
	if (TM_UNLIKELY(tm_own_holds(p))) {
		free_of_ours(t, p);
		return;
	}
	if (!sampling || tm_sample_forget(p)) tm_record_free(t, op, p);
	tm_real.free(p);
	tm_leave(t);
}

static void *resize_on_our_account(void *old, size_t size) {
	uintptr_t inside = tm_tls.inside;

	tm_tls.inside = 0;
	tm_tls.ours = 0;
	void *p = tm_guest.hook.realloc(old, size);
	tm_tls.ours = 1;
	tm_tls.inside = inside;
	return p;
}

TM_COLD static void *resize_unrecorded(enum tm_op op, void *old, size_t size, const void *frame) {
	if (!tm_real_ready()) tm_real_find();
	if (tm_tls.frees_are_told && tm_tls.ours == 1) return resize_on_our_account(old, size);
	tm_sample_pass_over();
	void *moved = tm_real.realloc(old, size);
	if (moved || size == 0) nested_add(TM_OP_REALLOC_FREE, old, 0, caller_of(frame));
	if (moved) nested_add(op == TM_OP_REALLOC ? TM_OP_REALLOC_NEW : TM_OP_REALLOCARRAY_NEW, moved, size, caller_of(frame));
	return moved;
}

/* A resize that went well, where only some blocks are recorded. `held`: the old one was; begin is its end's stamp then. */
static void record_sampled_resize(struct tm_thread *t, enum tm_op op, void *p, size_t size, void *old, bool held, uint64_t begin,
				  const void *frame) {
	bool taken = tm_sample_take(t, p, size);
	if (held && taken) tm_emit_realloc(t, op, p, size, old, begin, frame);
	else if (held) tm_emit_free(t, TM_OP_REALLOC_FREE, old, begin);
	else if (taken) tm_emit_alloc(t, TM_OP_REALLOC_ALONE, p, size, frame);
}

/* One that did not: the old block is still there, unless it was resized to nothing. */
static void record_no_resize(struct tm_thread *t, void *old, bool freed, uint64_t begin) {
	if (freed) {
		tm_emit_free(t, TM_OP_REALLOC_FREE, old, begin);
		return;
	}
	tm_cancel(t);
	if (tm_guest.shm->sample_bytes) tm_sample_remember(t, old, 0);
}

/* realloc and reallocarray of a block that exists. */
INLINE void *resize(enum tm_op op, void *old, size_t size, const void *frame, bool sampling) {
	struct tm_thread *t = tm_enter_malloc();
	if (TM_UNLIKELY(!t)) return resize_unrecorded(op, old, size, frame);
	bool held = !sampling || tm_sample_forget(old);
	uint64_t begin = held ? tm_begin(t) : 0;
	int error_before = errno;
	errno = 0;
	void *p = tm_real.realloc(old, size);
	bool freed = !p && size == 0 && errno == 0; /* glibc's realloc(p, 0); a failure would say ENOMEM */
	if (errno == 0) errno = error_before;
	if (TM_UNLIKELY(!p)) {
		if (held) record_no_resize(t, old, freed, begin);
		if (!freed && size) record_refusal(t, op, size, frame);
	} else if (sampling) {
		record_sampled_resize(t, op, p, size, old, held, begin, frame);
	} else {
		tm_emit_realloc(t, op, p, size, old, begin, frame);
	}
	tm_leave(t);
	return p;
}

/* realloc and reallocarray of nothing. */
TM_COLD static void *resize_nothing_unrecorded(enum tm_op op, size_t size, const void *frame) {
	if (comes_again()) return tm_guest.hook.realloc(NULL, size);
	tm_sample_pass_over();
	if (is_own()) {
		void *own = tm_own_alloc(16, size);
		if (is_final(own)) return own;
	}
	void *p = tm_real.realloc(NULL, size);
	if (p) nested_add(op, p, size, caller_of(frame));
	return p;
}

INLINE void *resize_nothing(enum tm_op op, size_t size, const void *frame, bool sampling) {
	struct tm_thread *t = tm_enter_malloc();
	if (TM_UNLIKELY(!t)) return resize_nothing_unrecorded(op, size, frame);
	void *p = tm_real.realloc(NULL, size);
	record_alloc(t, op, p, size, frame, sampling);
	return p;
}

INLINE void *realloc_through(void *old, size_t size, const void *frame, bool sampling) {
	if (!old) return resize_nothing(TM_OP_REALLOC_NEW, size, frame, sampling);
	if (TM_UNLIKELY(tm_own_holds(old))) return tm_own_realloc(old, size);
	return resize(TM_OP_REALLOC, old, size, frame, sampling);
}

/* --- the two sets --- */

TM_HOT static void *every_malloc(size_t size) {
	return malloc_through(size, TM_FRAME, false);
}

TM_HOT static void *every_calloc(size_t count, size_t size) {
	return calloc_through(count, size, TM_FRAME, false);
}

TM_HOT static void *every_realloc(void *old, size_t size) {
	return realloc_through(old, size, TM_FRAME, false);
}

TM_HOT static void every_free(void *p) {
	free_through(TM_OP_FREE, p, false);
}

#if defined(__x86_64__)
TM_COLD static void free_without_room(struct tm_thread *t, void *p) {
	tm_clear_busy(t);
	tm_leave(t);
	every_free(p);
}

TM_COLD static void leave_slowly_and_free(struct tm_thread *t, void *p) {
	tm_leave_slow(t);
	tm_real.free(p);
}

/* The same with libc's free, which calls nothing that is hooked: it comes last, when our part is over, and so does whatever is not usual. Where nothing is
 * called in between no register has to be kept. */
TM_HOT static void every_free_of_libc(void *p) {
	struct tm_thread *t = tm_tls.thread;

	if (TM_UNLIKELY(!p || !tm_may_enter(t)) || TM_UNLIKELY(tm_own_holds(p)) || TM_UNLIKELY(tm_python_is_to_be_asked())) {
		every_free(p);
		return;
	}
	tm_tls.inside = (uintptr_t)__builtin_frame_address(0);
	tm_set_busy(t);
	if (TM_UNLIKELY(!tm_fits_ring(t, TM_RING_FREE_WORDS))) {
		free_without_room(t, p);
		return;
	}
	tm_put_free(t, tm_next_record(t), tm_tsc(), TM_OP_FREE, p);
	atomic_signal_fence(memory_order_seq_cst);
	if (TM_UNLIKELY(t->at_leave)) {
		leave_slowly_and_free(t, p);
		return;
	}
	tm_tls.inside = 0;
	tm_real.free(p);
}

static bool frees_last(void) {
	return tm_guest.clock == TM_CLOCK_TSC && tm_real_is_libc();
}
#else
static void every_free_of_libc(void *p) {
	every_free(p);
}

static bool frees_last(void) {
	return false;
}
#endif

TM_HOT static void *some_malloc(size_t size) {
	return malloc_through(size, TM_FRAME, true);
}

static void *some_calloc(size_t count, size_t size) {
	return calloc_through(count, size, TM_FRAME, true);
}

static void *some_realloc(void *old, size_t size) {
	return realloc_through(old, size, TM_FRAME, true);
}

TM_HOT static void some_free(void *p) {
	free_through(TM_OP_FREE, p, true);
}

/* What comes here mostly lies beside a sample only: as long as that lives, its page may be the one where the program allocates and frees most. */
TM_HOT static void some_free_straight(void *p) {
	if (TM_LIKELY(!tm_own_holds(p) && !tm_sample_is_one(p))) tm_real.free(p);
	else some_free(p);
}

TM_HOT static void *some_realloc_straight(void *old, size_t size) {
	if (TM_LIKELY(old && !tm_own_holds(old) && !tm_sample_is_one(old) && tm_sample_passes(size))) return tm_real.realloc(old, size);
	return realloc_through(old, size, TM_FRAME, true);
}

struct tm_guest tm_guest = { .hook = { every_malloc, every_calloc, every_realloc, every_free }, .own_base = TM_OWN_NOWHERE, .python_flag = &tm_python_no_flag };

/* Goes straight to an allocator only if that calls nothing that is hooked, or is known by its code where it does. Blocks of ours are kept from it: their pages
 * look as if they held samples. */
static void sample(void) {
	tm_guest.hook.malloc = some_malloc;
	tm_guest.hook.calloc = some_calloc;
	tm_guest.hook.realloc = some_realloc;
	tm_guest.hook.free = some_free;
	if (!tm_guest.maps_for_itself && !tm_real_is_libc()) return;
	tm_guest.hook.realloc = some_realloc_straight;
	tm_guest.hook.free = some_free_straight;
	tm_own_is_never_passed();
	tm_guest.samples_straight = true;
}

void tm_malloc_hooks_attached(void) {
	if (tm_guest.shm->sample_bytes) sample();
	else if (frees_last()) tm_guest.hook.free = every_free_of_libc;
}

/* tidemark_stop(): no allocation is taken, every free is. With --sample the sets are right for that already. */
void tm_malloc_hooks_stop(bool stop) {
	if (tm_guest.shm->sample_bytes) return;
	tm_guest.hook.malloc = stop ? some_malloc : every_malloc;
	tm_guest.hook.calloc = stop ? some_calloc : every_calloc;
	tm_guest.hook.realloc = stop ? some_realloc : every_realloc;
}

/* Each of these begins a line of the cache: nearly all events of a sampled program go through here and nowhere else of ours, and it matters there if one of so
 * few instructions lies across two. */
#define HOOK TM_HOT __attribute__((aligned(TM_LINE_BYTES)))

HOOK void *malloc(size_t size) {
	if (tm_guest.samples_straight && TM_LIKELY(tm_sample_passes(size))) return tm_real.malloc(size);
	return tm_guest.hook.malloc(size);
}

HOOK void *calloc(size_t count, size_t size) {
	size_t bytes;
	if (tm_guest.samples_straight && TM_LIKELY(!__builtin_mul_overflow(count, size, &bytes) && tm_sample_passes(bytes)))
		return tm_real.calloc(count, size);
	return tm_guest.hook.calloc(count, size);
}

HOOK void *realloc(void *old, size_t size) {
	if (tm_guest.samples_straight && TM_LIKELY(!tm_sample_may_hold(old) && tm_sample_passes(size))) return tm_real.realloc(old, size);
	return tm_guest.hook.realloc(old, size);
}

HOOK void free(void *p) {
	if (tm_guest.samples_straight && TM_LIKELY(!tm_sample_may_hold(p))) tm_real.free(p);
	else tm_guest.hook.free(p);
}

/* --- the rest of the family, which is called seldom --- */

static bool is_sampling(void) {
	return tm_guest.shm && (tm_guest.shm->sample_bytes || atomic_load_explicit(&tm_guest.stopped, memory_order_relaxed));
}

void cfree(void *p) {
	free_through(TM_OP_CFREE, p, is_sampling());
}

void free_sized(void *p, size_t size) {
	(void)size;
	free_through(TM_OP_FREE_SIZED, p, is_sampling());
}

void free_aligned_sized(void *p, size_t alignment, size_t size) {
	(void)alignment;
	(void)size;
	free_through(TM_OP_FREE_ALIGNED_SIZED, p, is_sampling());
}

TM_COLD static void *array_too_large(enum tm_op op, const void *frame) {
	struct tm_thread *t = tm_enter();
	if (t) {
		record_refusal(t, op, SIZE_MAX, frame);
		tm_leave(t);
	}
	errno = ENOMEM;
	return NULL;
}

/* Built on realloc, as every libc does it; so it exists also where libc has none. */
void *reallocarray(void *old, size_t count, size_t size) {
	size_t bytes;
	if (__builtin_mul_overflow(count, size, &bytes)) return array_too_large(old ? TM_OP_REALLOCARRAY : TM_OP_REALLOCARRAY_NEW, TM_FRAME);
	if (!old) return resize_nothing(TM_OP_REALLOCARRAY_NEW, bytes, TM_FRAME, is_sampling());
	if (TM_UNLIKELY(tm_own_holds(old))) return tm_own_realloc(old, bytes);
	return resize(TM_OP_REALLOCARRAY, old, bytes, TM_FRAME, is_sampling());
}

/* error: why p is NULL; another one than ENOMEM is a wrong alignment. */
static void record_aligned(struct tm_thread *t, enum tm_op op, void *p, int error, size_t size, const void *frame) {
	int flags = -1;
	if (TM_UNLIKELY(!t)) {
		if (p) nested_add(op, p, size, caller_of(frame));
		return;
	}
	if (TM_UNLIKELY(tm_real_is_unseen_new(caller_of(frame)))) {
		/* its delete does not come by us */
	} else if (TM_UNLIKELY(!p)) {
		if (error == ENOMEM) record_refusal(t, op, size, frame);
	} else if (!t->samples || tm_sample_take(t, p, size)) {
		flags = tm_record_new(t, op, p, size, true, frame);
	}
	t->aligned = flags < 0 ? NULL : p;
	t->aligned_pos = tm_position(t);
	t->aligned_flags = (uint32_t)flags;
	tm_leave(t);
}

/* The process' first call may be one of these. */
INLINE struct tm_thread *enter_aligned(void) {
	struct tm_thread *t = tm_enter_malloc();
	return TM_UNLIKELY(!t) && comes_again() ? tm_enter_malloc() : t;
}

int posix_memalign(void **out, size_t alignment, size_t size) {
	struct tm_thread *t = enter_aligned();
	if (TM_UNLIKELY(!t) && is_own()) {
		void *own = tm_own_alloc(alignment, size);
		if (own) *out = own;
		if (is_final(own)) return own ? 0 : ENOMEM;
	}
	int error = tm_real.posix_memalign(out, alignment, size);
	record_aligned(t, TM_OP_POSIX_MEMALIGN, error ? NULL : *out, error, size, TM_FRAME);
	return error;
}

#define ALIGNED_HOOK(name, op) \
	void *name(size_t alignment, size_t size) { \
		struct tm_thread *t = enter_aligned(); \
		if (TM_UNLIKELY(!t) && is_own()) { \
			void *own = tm_own_alloc(alignment, size); \
			if (is_final(own)) return own; \
		} \
		void *p = tm_real.name(alignment, size); \
		record_aligned(t, op, p, errno, size, TM_FRAME); \
		return p; \
	}
ALIGNED_HOOK(aligned_alloc, TM_OP_ALIGNED_ALLOC)
ALIGNED_HOOK(memalign, TM_OP_MEMALIGN)

#define PAGE_HOOK(name, op) \
	void *name(size_t size) { \
		struct tm_thread *t = enter_aligned(); \
		if (TM_UNLIKELY(!t) && is_own()) { \
			void *own = tm_own_alloc(TM_SHM_PAGE, size); \
			if (is_final(own)) return own; \
		} \
		void *p = tm_real.name(size); \
		record_aligned(t, op, p, errno, size, TM_FRAME); \
		return p; \
	}
PAGE_HOOK(valloc, TM_OP_VALLOC)
PAGE_HOOK(pvalloc, TM_OP_PVALLOC)

size_t malloc_usable_size(void *p) {
	if (!p) return 0;
	if (TM_UNLIKELY(tm_own_holds(p))) return tm_own_size(p);
	if (TM_UNLIKELY(!tm_real.malloc_usable_size) && !tm_real_find()) return 0;
	return tm_real.malloc_usable_size(p);
}
