/* hot.h - what every event runs through, inlined into the hooks: in, stamp, room, record, out.
 *
 * Flow:     malloc_hooks.c (alloc, free), emit.c (all other records) -> here -> ring (../shm.h)
 * Owns:     nothing of its own: the thread's variables (tm_tls, hook.c) and its struct tm_thread.
 * Threads:  the calling thread's state only. Nothing that another thread writes is written here; what is read besides (tm_guest, tm_real) is written once.
 * When full: tm_make_room() in ring_room.c, out of line like everything that is not usual.
 * Cost:     tests/integration/test_instructions.py counts the instructions; add to the usual path only what every event needs. Where rdtsc waits for all loads
 *           in front of it and holds back those behind it (tests/bench/stamp_bench.c shows it), a stamp is a fence: computing in front of it hides behind
 *           what the program has on its way; a look at memory that nobody has touched belongs behind it, where the program goes on meanwhile.
 */
#ifndef TIDEMARK_GUEST_HOT_H
#define TIDEMARK_GUEST_HOT_H

#include "guest.h"
#include "process.h"
#include "python.h"
#include "sample.h"
#include "unwind_known.h"

#include <string.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

/* --- in and out --- */

/* The frame is that of the hook itself, which returns to whoever called it, unless it is tm_hook_enter()'s. What the malloc family does inside of another hook
 * is kept (tm_nested_add()). */
enum tm_way_in { TM_IN_OUT_OF_LINE, TM_IN_HOOK, TM_IN_MALLOC };

struct tm_thread *tm_enter_slow(uintptr_t frame, enum tm_way_in way);
void tm_leave_slow(struct tm_thread *t);

/* The thread has a state, is in no hook, and everything is as it was at its last event. */
static inline __attribute__((always_inline)) bool tm_may_enter(const struct tm_thread *t) {
	return t && !tm_tls.inside && atomic_load_explicit(tm_guest.epoch, memory_order_relaxed) == t->epoch;
}

static inline __attribute__((always_inline)) struct tm_thread *tm_enter_by(enum tm_way_in way) {
	uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
	struct tm_thread *t = tm_tls.thread;

	if (TM_LIKELY(tm_may_enter(t))) {
		tm_tls.inside = frame;
		return t;
	}
	return tm_enter_slow(frame, way);
}

/* As tm_hook_enter(), which is this, out of line. */
static inline __attribute__((always_inline)) struct tm_thread *tm_enter(void) {
	return tm_enter_by(TM_IN_HOOK);
}

/* The same for what a program or its libraries tell: where a signal handler tells it that came while its thread was inside of a hook, it cannot be written
 * and is counted as lost. */
static inline __attribute__((always_inline)) struct tm_thread *tm_enter_to_tell(void) {
	struct tm_thread *t = tm_enter();
	if (TM_UNLIKELY(!t)) tm_lost_in_handler();
	return t;
}

/* The same for the malloc family. */
static inline __attribute__((always_inline)) struct tm_thread *tm_enter_malloc(void) {
	return tm_enter_by(TM_IN_MALLOC);
}

static inline __attribute__((always_inline)) void tm_leave(struct tm_thread *t) {
	atomic_signal_fence(memory_order_seq_cst);
	if (TM_UNLIKELY(t->at_leave)) tm_leave_slow(t);
	else tm_tls.inside = 0;
}

/* --- stamps (clock.c) --- */

/* Where the clock is known to be TM_CLOCK_TSC. */
static inline uint64_t tm_tsc(void) {
#if defined(__x86_64__)
	return __rdtsc();
#else
	return tm_ticks_of_kernel();
#endif
}

static inline uint64_t tm_now(void) {
#if defined(__x86_64__)
	if (TM_LIKELY(tm_guest.clock == TM_CLOCK_TSC)) return tm_tsc();
#endif
	return tm_ticks_of_kernel();
}

/* A thread's stamps grow, also where it came to a core whose clock is behind that of the one before: by more than a nanosecond, since a block that was
 * allocated before another one is freed lived beside it. */
#define TM_TICKS_APART 8u
static inline uint64_t tm_in_order(struct tm_thread *t, uint64_t ticks) {
	uint64_t least = t->last_ticks + TM_TICKS_APART;
	if (TM_UNLIKELY(ticks < least)) ticks = least;
	t->last_ticks = ticks;
	return ticks;
}

/* Busy comes before the stamp: while it is set the collector promises nobody that this thread's events up to now are complete. */
static inline void tm_set_busy(struct tm_thread *t) {
	atomic_store_explicit(&t->ring->busy, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
}

static inline bool tm_is_busy(const struct tm_thread *t) {
	return atomic_load_explicit(&t->ring->busy, memory_order_relaxed) != 0;
}

static inline void tm_clear_busy(struct tm_thread *t) {
	atomic_store_explicit(&t->ring->busy, 0, memory_order_release);
}

/* --- room in the ring --- */

/* In place of the bytes that an event allocated: the record is of no allocation and no free, and is counted apart where it is lost. */
#define TM_NO_EVENT UINT64_MAX
/* The same of a record that only says what the event behind it needs: where it is lost that one is, too, and is counted for both. */
#define TM_PART_OF_EVENT (UINT64_MAX - 1)

/* The slow side of tm_reserve(): pads where the record would wrap, looks how far the collector has come, waits. NULL: the event is lost and counted.
 * There is room before the stamp is taken, where the event has none yet: who waits is not busy then, and holds nobody's watermark back. */
uint64_t *tm_make_room(struct tm_thread *t, unsigned words, uint64_t lost_bytes);
/* So many bytes can be written, after a wait perhaps; false: they cannot. Who is not stamped yet is not busy while it waits. */
bool tm_find_room(struct tm_thread *t, uint64_t bytes);

/* Behind a record lie so many words that the next one has not taken yet, nor the collector to read: tm_put_frames() may write there. */
#define TM_SPARE_WORDS 3u

static inline __attribute__((always_inline)) bool tm_fits_ring(const struct tm_thread *t, unsigned words) {
	return t->at + ((uint64_t)words + TM_SPARE_WORDS) * 8 <= t->limit;
}

static inline uint64_t *tm_next_record(const struct tm_thread *t) {
	return (uint64_t *)t->at;
}

/* How many bytes were written to the ring. */
static inline uint64_t tm_position(const struct tm_thread *t) {
	return (uintptr_t)t->at + t->bias;
}

/* Room for a record of `words` words, in one piece, at *record; false: the event is lost, and no longer busy. `limit` never lies beyond the ring's end, so one
 * comparison is enough. */
static inline __attribute__((always_inline)) bool tm_reserve(struct tm_thread *t, unsigned words, uint64_t lost_bytes, uint64_t **record) {
	if (TM_UNLIKELY(!tm_fits_ring(t, words))) {
		*record = tm_make_room(t, words, lost_bytes);
		return *record != NULL;
	}
	*record = tm_next_record(t);
	return true;
}

/* The same for a record of an allocation and a free in one. */
static inline __attribute__((always_inline)) bool tm_reserve_both(struct tm_thread *t, unsigned words, uint64_t lost_bytes,
								  uint64_t **record) {
	if (TM_LIKELY(tm_reserve(t, words, lost_bytes, record))) return true;
	atomic_fetch_add_explicit(&t->ring->lost_events, 1, memory_order_relaxed);
	return false;
}

#define TM_FETCH_BYTES 1024u

/* The line that is written some tens of events from now, which the collector had, or put out of all caches, is asked for: stores become visible in order, and
 * so the program's would wait behind ours. Behind the ring's end it is another's line, if any, once in all of a ring; a page that is not there is no fault. */
static inline void tm_fetch_line_behind(const uint64_t *record) {
	const uint64_t *line = record + TM_FETCH_BYTES / sizeof *record;
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*line)); /* a hint; the compiler's own, without -mprfchw, fetches to read */
#else
	__builtin_prefetch(line, 1);
#endif
}

/* The records are written that end here. Returns the ring, which is read once: the compiler cannot know that the stores do not change which it is. */
static inline struct tm_ring *tm_advance(struct tm_thread *t, const uint64_t *end) {
	struct tm_ring *ring = t->ring;
	t->at = (uint8_t *)(uintptr_t)end;
	atomic_store_explicit(&ring->head, tm_position(t), memory_order_release);
	return ring;
}

static inline void tm_publish(struct tm_thread *t, const uint64_t *end) {
	atomic_store_explicit(&tm_advance(t, end)->busy, 0, memory_order_release);
}

/* Of an event that tm_begin() stamped. */
static inline void tm_publish_begun(struct tm_thread *t, const uint64_t *end) {
	t->begun = false;
	tm_publish(t, end);
}

/* --- events --- */

/* A stack as its record's first word tells it: flags, frames kept, new frames as words of the record. In a register: a struct would be returned through memory,
 * written in pieces and read as one, for which the processor waits. */
typedef uint64_t tm_taken;

static inline tm_taken tm_taken_make(unsigned flags, unsigned fresh, unsigned keep) {
	return tm_ring_word(0, flags, fresh, keep, 0);
}

static inline unsigned tm_taken_fresh(tm_taken s) {
	return (uint16_t)(s >> 16);
}

static inline unsigned tm_taken_flags(tm_taken s) {
	return (uint8_t)(s >> 8);
}

/* The whole word of a record that has `words` words besides the new frames. */
static inline uint64_t tm_taken_word(tm_taken s, enum tm_op op, unsigned flags, unsigned words, unsigned y) {
	return s + tm_ring_word(op, flags, words, 0, y);
}

/* Takes the stack; the new frames are then in the thread's state, where tm_put_frames() finds them. */
tm_taken tm_take_stack(struct tm_thread *t, const void *frame);
/* The same where it is none of the known ones; and where t->known is NULL, too. */
tm_taken tm_take_other_stack(struct tm_thread *t, const void *frame);
tm_taken tm_take_unknown_stack(struct tm_thread *t, const void *frame);

/* Modules came or went since the thread's last stack, or something was lost. */
tm_taken tm_take_anew(struct tm_thread *t, tm_taken s);

static inline bool tm_modules_changed(const struct tm_thread *t) {
	return atomic_load_explicit(&tm_versions.modules, memory_order_relaxed) != t->modules_version;
}

static inline tm_taken tm_with_python(struct tm_thread *t, tm_taken s) {
	return atomic_load_explicit(&tm_guest.python_stacks, memory_order_relaxed) ? s | tm_python_take(t) : s;
}

/* What else belongs to a stack: its modules, and the interpreter's. */
static inline tm_taken tm_complete_stack(struct tm_thread *t, tm_taken s) {
	return tm_with_python(t, TM_UNLIKELY(tm_modules_changed(t)) ? tm_take_anew(t, s) : s);
}

/* Four at a time: for what that writes beyond the record there is room. */
static inline void tm_put_frames(uint64_t *to, const struct tm_thread *t, unsigned fresh) {
	const uintptr_t *end = t->pcs + t->depth;
	uint64_t *to_end = to + fresh;
	for (intptr_t i = -(intptr_t)fresh; i < 0; i += TM_SPARE_WORDS + 1) memcpy(to_end + i, end + i, (TM_SPARE_WORDS + 1) * sizeof *to);
}

static inline tm_taken tm_take(struct tm_thread *t, const void *frame) {
	if (!t->takes_stacks) return tm_taken_make(TM_RING_NO_STACK, 0, 0);
	return tm_take_stack(t, frame);
}

/* The same where tm_known_take() said k, and that is none or not all. */
static inline __attribute__((always_inline)) tm_taken tm_take_beside(struct tm_thread *t, const void *frame, const struct tm_known *k) {
	if (k) return tm_with_python(t, tm_take_anew(t, k->word));
	if (t->known_count) return tm_take_other_stack(t, frame);
	return t->takes_stacks ? tm_take_unknown_stack(t, frame) : tm_taken_make(TM_RING_NO_STACK, 0, 0);
}

/* A block of glibc's: the word in front of it is the size of all that it takes, and flags (real.c). */
static inline bool tm_chunk_is_mapping(const void *addr) {
	return ((const size_t *)addr)[-1] & 2;
}

static inline size_t tm_chunk_usable(const void *addr) {
	return (((const size_t *)addr)[-1] & ~(size_t)7) - sizeof(size_t);
}

/* The clock is TM_CLOCK_TSC, and what the allocator gave stands in front of a block. */
static inline bool tm_is_usual(void) {
	return TM_LIKELY(atomic_load_explicit(&tm_guest.is_usual, memory_order_relaxed));
}

static inline bool tm_reads_chunk(const void *addr) {
	return TM_LIKELY(atomic_load_explicit(&tm_guest.reads_chunks, memory_order_relaxed)) && TM_LIKELY(!tm_chunk_is_mapping(addr));
}

/* What the allocator gave, as a record says it. usual: tm_is_usual() is known to hold. */
static inline __attribute__((always_inline)) unsigned tm_usable_word(const void *addr, size_t size, enum tm_op op, bool usual) {
	bool is_aligned = TM_OP_IS_ALIGNED(op);
	if (is_aligned && tm_real_is_foreign(op)) return TM_RING_USABLE_UNKNOWN;
	if (!is_aligned && (usual ? TM_LIKELY(!tm_chunk_is_mapping(addr)) : tm_reads_chunk(addr))) return (uint16_t)((const size_t *)addr)[-1];
	if (is_aligned) return tm_ring_usable_word(size, tm_reads_chunk(addr) ? tm_chunk_usable(addr) : tm_real_usable(addr));
	return tm_ring_usable_word(size, tm_real_usable_by_size(addr, size));
}

/* The same of one that was resized, which may be far larger than what was asked for. */
static inline unsigned tm_usable_word_of_resized(const void *addr, size_t size) {
	return tm_ring_usable_word(size, tm_reads_chunk(addr) ? tm_chunk_usable(addr) : tm_real_usable_by_size(addr, size));
}

static inline __attribute__((always_inline)) void tm_put_values(struct tm_thread *t, uint64_t *r, const void *addr, size_t size, bool usual) {
	r[1] = tm_in_order(t, usual ? tm_tsc() : tm_now());
	r[2] = (uintptr_t)addr;
	r[3] = size;
}

/* The rest of a record that has its values. */
static inline __attribute__((always_inline)) void tm_put_new(struct tm_thread *t, uint64_t *r, enum tm_op op, const void *addr, size_t size, bool asks,
							     tm_taken s, unsigned fresh, bool usual) {
	unsigned usable = asks ? tm_usable_word(addr, size, op, usual) : TM_RING_USABLE_UNKNOWN;
	r[0] = tm_taken_word(s, op, 0, TM_RING_ALLOC_WORDS, usable);
	if (fresh) tm_put_frames(r + TM_RING_ALLOC_WORDS, t, fresh);
	tm_fetch_line_behind(r);
	tm_publish(t, r + TM_RING_ALLOC_WORDS + fresh);
}

/* `fresh` is what the stack says, where that is not known to the compiler. */
static inline __attribute__((always_inline)) int tm_record_taken(struct tm_thread *t, enum tm_op op, const void *addr, size_t size, bool asks, tm_taken s,
								 unsigned fresh) {
	uint64_t *r;

	tm_set_busy(t);
	if (!tm_reserve(t, TM_RING_ALLOC_WORDS + fresh, size, &r)) return -1;
	tm_put_values(t, r, addr, size, false);
	tm_put_new(t, r, op, addr, size, asks, s, fresh, false);
	return (int)tm_taken_flags(s);
}

/* The same of a known stack, out of line: where tm_is_usual() does not hold, and where the event is to be stamped once more. */
int tm_record_known_unusually(struct tm_thread *t, enum tm_op op, const void *addr, size_t size, bool asks);
int tm_record_known_anew(struct tm_thread *t, enum tm_op op, const void *addr, size_t size, bool asks, tm_taken python);

/* Of a known stack, t->known. Python's is looked at behind the stamp: each frame says where the next one is, and the stamp would wait for all of that. Where
 * something of it was written, or lost, the event is stamped and written once more behind that: what comes later in a ring has later stamps. */
static inline __attribute__((always_inline)) int tm_record_known(struct tm_thread *t, enum tm_op op, const void *addr, size_t size, bool asks,
								 bool usual) {
	uint64_t *r;
	tm_taken python = 0;

	tm_set_busy(t);
	if (!tm_reserve(t, TM_RING_ALLOC_WORDS, size, &r)) return -1;
	tm_put_values(t, r, addr, size, usual);
	if (atomic_load_explicit(&tm_guest.python_stacks, memory_order_relaxed)) {
		python = tm_python_same(t);
		if (TM_UNLIKELY(!python)) {
			python = tm_python_take_asking(t);
			bool wrote = tm_next_record(t) != r || t->last_ticks != r[1]; /* and if it was exactly one ring's bytes */
			if (TM_UNLIKELY(wrote) || TM_UNLIKELY(!tm_is_busy(t))) return tm_record_known_anew(t, op, addr, size, asks, python);
		}
	}
	const struct tm_known *k = t->known;
	tm_put_new(t, r, op, addr, size, asks, k->word | python, 0, usual);
	tm_known_go_on(t, k);
	return (int)tm_taken_flags(k->word | python);
}

/* A record that is stamped after the call; the stack (of a known one, but for Python's) is taken before the stamp is, so that the time between is not the
 * program's. `asks`: how much the allocator gave is to be said. Returns the record's flags, -1: it was lost. */
static inline __attribute__((always_inline)) int tm_record_new(struct tm_thread *t, enum tm_op op, const void *addr, size_t size, bool asks,
							       const void *frame) {
	tm_python_poll(t);
	bool all;
	struct tm_known *k = tm_known_take(t, (uintptr_t)frame + 8, &all);
	if (TM_LIKELY(k != NULL) && TM_LIKELY(all))
		return tm_is_usual() ? tm_record_known(t, op, addr, size, asks, true) : tm_record_known_unusually(t, op, addr, size, asks);
	tm_taken s = tm_take_beside(t, frame, k);
	int flags = tm_record_taken(t, op, addr, size, asks, s, tm_taken_fresh(s));
	tm_known_settle(t, s);
	return flags;
}

static inline __attribute__((always_inline)) void tm_record_alloc(struct tm_thread *t, enum tm_op op, const void *addr, size_t size,
								  const void *frame) {
	tm_record_new(t, op, addr, size, true, frame);
}

static inline __attribute__((always_inline)) void tm_put_free(struct tm_thread *t, uint64_t *r, uint64_t ticks, enum tm_op op, const void *addr) {
	r[0] = tm_ring_word(op, TM_RING_NO_STACK, TM_RING_FREE_WORDS, 0, TM_RING_USABLE_UNKNOWN);
	r[1] = tm_in_order(t, ticks);
	r[2] = (uintptr_t)addr;
	tm_fetch_line_behind(r);
	tm_publish(t, r + TM_RING_FREE_WORDS);
}

static inline __attribute__((always_inline)) void tm_record_free(struct tm_thread *t, enum tm_op op, const void *addr) {
	uint64_t *r;

	tm_python_poll(t);
	tm_set_busy(t);
	if (!tm_reserve(t, TM_RING_FREE_WORDS, 0, &r)) return;
	tm_put_free(t, r, tm_now(), op, addr);
}

#endif
