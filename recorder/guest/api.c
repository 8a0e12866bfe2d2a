/* api.c - the library's side of the public API (../tidemark.h): scopes, steps, marks, recording on and off.
 *
 * Flow:     tidemark_mark() in the program -> tidemark_api_mark_v1() -> scope.h, emit.c -> ring
 * Rule:     a symbol once published keeps its meaning; one that changes gets a new number behind its name, and the old one stays.
 * Cost:     a push and a pop are what every scope costs; they have the way to the ring inlined.
 */
#include "api.h"
#include "emit.h"
#include "heaps.h"
#include "scope.h"

#define KEY_BITS 40u /* of a key; which thread's it is stands above */

/* Of the last range opened on this thread. Not in struct tm_thread: a thread that outlives its state must not use a number again. */
static __thread uint64_t last_key __attribute__((tls_model("initial-exec")));

/* Threads that have opened one. Their numbers begin again in a fork's child, which must not give a key to what it opens that its parent gave before. */
static _Atomic uint32_t openers;

uint64_t tm_scope_key(void) {
	if (!last_key) last_key = (uint64_t)(atomic_fetch_add(&openers, 1) + 1) << KEY_BITS;
	return ++last_key;
}

static size_t length_of(const char *name) {
	size_t n = strnlen(name, TM_RING_TEXT_MAX + 1);
	return TM_LIKELY(n <= TM_RING_TEXT_MAX) ? n : tm_text_cut(name, n, TM_RING_TEXT_MAX);
}

/* --- scopes --- */

/* In whatever case; `name` is NULL for one that closes. */
static __attribute__((noinline)) void scope(enum tm_op op, uint64_t key, uint64_t link, const char *name) {
	struct tm_thread *t = tm_enter_to_tell();
	if (!t) return;
	tm_record_scope(t, op, TM_SCOPE_USER, key, link, name, name ? length_of(name) : 0);
	tm_leave(t);
}

TM_EXPORT void tidemark_api_scope_push_v1(const char *name) {
	if (!name || tm_record_scope_quickly(TM_OP_SCOPE_PUSH, TM_SCOPE_USER, 0, 0, name)) return;
	scope(TM_OP_SCOPE_PUSH, 0, 0, name);
}

TM_EXPORT void tidemark_api_scope_pop_v1(void) {
	if (tm_record_scope_quickly(TM_OP_SCOPE_END, TM_SCOPE_USER, 0, 0, NULL)) return;
	scope(TM_OP_SCOPE_END, 0, 0, NULL);
}

/* The frame of a block, and which call of a function it belongs to: next to the frame address lies where the function returns to. */
static inline uint64_t link_of(const void *frame) {
	const uintptr_t returns_to = ((const uintptr_t *)frame)[1];
	return ((uintptr_t)frame & TM_BLOCK_FRAME_MASK) | (uint64_t)((uint32_t)returns_to * 0x9E3779B1u >> 16) << TM_BLOCK_FRAME_BITS;
}

/* A block's key is where its variable lies: no two blocks that are alive have the same. A coroutine's variables lie in no frame of the stack, and the
 * block outlives those that it ran in: it is a range. So is one on a stack that is not the thread's own, as other coroutines have and handlers on an alternate
 * one: how deep the others lie says nothing of whether they were left. */
static __attribute__((noinline)) void block_begin(uint64_t key, const void *frame, const char *name) {
	struct tm_thread *t = tm_enter_to_tell();
	if (!t) return;
	bool own = tm_stack_may_be_own(t, (uintptr_t)frame);
	tm_record_scope(t, own ? TM_OP_SCOPE_BLOCK : TM_OP_SCOPE_RANGE, TM_SCOPE_USER, key, own ? link_of(frame) : 0, name,
			length_of(name));
	tm_leave(t);
}

static inline bool is_known_as_own(const void *frame) {
	const struct tm_thread *t = tm_tls.thread;
	return t && (uintptr_t)frame - t->stack_low < t->stack_high - t->stack_low;
}

TM_EXPORT void tidemark_api_block_begin_v1(const void *block, const char *name, const void *frame) {
	if (!name) return;
	if (TM_UNLIKELY(block < (const void *)__builtin_frame_address(0) || block >= frame)) {
		scope(TM_OP_SCOPE_RANGE, (uintptr_t)block, 0, name);
		return;
	}
	if (TM_LIKELY(is_known_as_own(frame)) &&
	    tm_record_scope_quickly(TM_OP_SCOPE_BLOCK, TM_SCOPE_USER, (uintptr_t)block, link_of(frame), name))
		return;
	block_begin((uintptr_t)block, frame, name);
}

static void end(uint64_t key, int exception) {
	enum tm_op op = exception ? TM_OP_SCOPE_EXCEPTION : TM_OP_SCOPE_END;
	if (!tm_record_scope_quickly(op, TM_SCOPE_USER, key, 0, NULL)) scope(op, key, 0, NULL);
}

TM_EXPORT void tidemark_api_block_end_v1(const void *block, int exception) {
	end((uintptr_t)block, exception);
}

static uint32_t category_of(const char *category) {
	if (!category) return TM_SCOPE_USER;
#define X(name, number, text) \
	if (strcmp(category, text) == 0) return number;
	TM_SCOPE_CATEGORIES(X)
#undef X
	return tm_category_number(category, tm_name_bytes(category), TM_SCOPE_USER);
}

TM_EXPORT uint64_t tidemark_api_range_begin_v1(const char *category, const char *name) {
	uint32_t number = category_of(category);
	struct tm_thread *t = name ? tm_enter_to_tell() : NULL;
	uint64_t key;
	if (!t) return 0;
	key = tm_scope_key();
	tm_emit_scope(t, TM_OP_SCOPE_RANGE, number, key, 0, name, length_of(name));
	tm_leave(t);
	return key;
}

TM_EXPORT void tidemark_api_range_end_v1(uint64_t id, int exception) {
	if (id) end(id, exception);
}

TM_EXPORT void tidemark_api_step_v1(int64_t n) {
	struct tm_thread *t = tm_enter_to_tell();
	if (!t) return;
	tm_emit_scope(t, TM_OP_STEP, 0, (uint64_t)n << 1 ^ (uint64_t)(n >> 63), 0, NULL, 0);
	tm_leave(t);
}

/* --- marks and other texts --- */

static void text(enum tm_op op, const char *name) {
	struct tm_thread *t = name ? tm_enter_to_tell() : NULL;
	if (!t) return;
	tm_emit_text(t, op, name, length_of(name));
	tm_leave(t);
}

TM_EXPORT void tidemark_api_mark_v1(const char *name) {
	text(TM_OP_MARK, name);
}

TM_EXPORT void tidemark_api_snapshot_v1(const char *label) {
	text(TM_OP_SNAPSHOT, label);
}

TM_EXPORT void tidemark_api_baseline_v1(void) {
	text(TM_OP_BASELINE, "");
}

/* --- recording on and off --- */

/* The word that every hook compares with what its thread knows changes, so each thread comes to look (hook.c). */
static void set_stopped(bool stop) {
	struct tm_thread *t = tm_enter_to_tell();
	uint32_t process = tm_guest.process, from, to;
	if (!t) return;
	from = process | (stop ? 0 : TM_EPOCH_STOPPED);
	to = process | (stop ? TM_EPOCH_STOPPED : 0);
	if (atomic_compare_exchange_strong(tm_guest.epoch, &from, to)) {
		atomic_store(&tm_guest.stopped, stop);
		tm_malloc_hooks_stop(stop);
		tm_emit_text(t, stop ? TM_OP_STOP : TM_OP_START, "", 0);
	}
	tm_leave(t);
}

TM_EXPORT void tidemark_api_stop_v1(void) {
	set_stopped(true);
}

TM_EXPORT void tidemark_api_start_v1(void) {
	set_stopped(false);
}
