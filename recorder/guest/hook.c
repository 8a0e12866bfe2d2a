/* hook.c - the way into a hook and out of it: who is calling, and may it be recorded?
 *
 * Flow:     malloc_hooks.c, map_hooks.c, process_hooks.c -> tm_hook_enter() -> emit.c
 * Idea:     one word decides. The epoch page holds the process number; a fork's child finds 0 there (the page is wiped on fork), a quiet
 *           process a number that no thread has. A thread's state remembers the number it was made for: equal means go.
 * Nested:   a call that comes while its thread is inside a hook is ours or the allocator's own (not recorded) or a signal handler's; the
 *           handler's are kept in a side buffer and written when the interrupted hook leaves.
 */
#include "attach.h"
#include "cuda_blocks.h"
#include "emit.h"
#include "hot.h"
#include "injection.h"
#include "python.h"
#include "raw.h"
#include "thread_name.h"

#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

__thread struct tm_tls tm_tls;
static pthread_key_t end_key;
static _Atomic uint32_t end_key_made;
static _Atomic uint32_t started; /* 0 no, 1 under way, 2 attached, 3 failed for good */

void tm_ours_begin(void) {
	tm_tls.ours++;
}

void tm_ours_end(void) {
	tm_tls.ours--;
}

bool tm_is_ours(void) {
	return tm_tls.ours != 0;
}

/* As if inside of a hook: the way in looks at that first. */
void tm_causes_begin(void) {
	if (tm_tls.frees_are_told && tm_tls.ours == 1) tm_causes_end(); /* it was left, as they are never in each other */
	if (tm_tls.ours++ || tm_tls.inside) return;
	tm_tls.inside = (uintptr_t)__builtin_frame_address(0);
	tm_tls.frees_are_told = true;
}

void tm_causes_end(void) {
	if (tm_tls.ours == 1 && tm_tls.frees_are_told) {
		tm_tls.frees_are_told = false;
		tm_tls.inside = 0;
	}
	if (tm_tls.ours) tm_tls.ours--;
}

#define LOOK_EVERY_LOST 16u

/* Is it to be looked whether `inside` is stale, by a call of the malloc family? Who is further out than the hook was has hardly come from a handler in it, and
 * looks each time; else what the handler did already says when: it may have left since. A call that is not counted among that says nothing (with --sample, or
 * while recording is stopped): who comes behind one looks as well. */
static bool is_time_to_look(struct tm_thread *t, uintptr_t frame) {
	uint32_t n = t->nested_count,
		 lost = n < TM_NESTED_MAX ? 0 : (uint32_t)atomic_load_explicit(&t->ring->nested_lost, memory_order_relaxed);
	bool was_counted = n + lost != t->nested_before;
	t->nested_before = n + lost;
	if (!was_counted || (frame > tm_tls.inside && frame < t->stack_high)) return true;
	return n < TM_NESTED_MAX ? !(n & (n - 1)) : lost % LOOK_EVERY_LOST == 0;
}

/* A handler that left by longjmp leaves `inside` set. It is stale if no hook of ours is on the stack any more, further out than this one
 * (through the handler's frame, and from another stack). All other calls look each time: what one of them does is not kept until the hook leaves. */
TM_COLD static bool inside_is_stale(uintptr_t frame, bool is_kept) {
	if (is_kept && tm_tls.thread && !is_time_to_look(tm_tls.thread, frame)) return false;
	return !tm_stack_holds_hook(tm_tls.thread);
}

/* It may have been in the middle of a stack or a record. What a handler did before it left is written in front of what comes now. */
static void forget_inside(struct tm_thread *t, uintptr_t frame) {
	tm_cancel(t);
	tm_ring_after_jump(t);
	tm_stack_forget(t);
	tm_python_forget(t);
	tm_note_loss(t);
	if (!t->nested_count) return;
	tm_tls.inside = frame;
	if (atomic_load(tm_guest.epoch) == t->epoch) tm_emit_nested(t);
	else t->nested_count = 0;
}

/* Not in the middle of what would be waited for where it is met again. */
void tm_hook_leave_behind(void) {
	struct tm_thread *t = tm_tls.thread;
	if (!tm_tls.inside || tm_tls.ours || !tm_guest.epoch || atomic_load(tm_guest.epoch) == TM_EPOCH_ADOPTING ||
	    tm_cuda_blocks_are_locked())
		return;
	if (t && t->process == tm_guest.process) forget_inside(t, (uintptr_t)__builtin_frame_address(0));
	tm_tls.inside = 0;
}

/* Another allocator than libc's may call its own malloc as the last thing it does: that returns to our hook, and there is no frame between the two. */
static bool returns_to_hook(uintptr_t frame) {
	uintptr_t caller = ((const uintptr_t *)frame)[1];
	return tm_guest.allocator_high && caller - tm_guest.text_low < tm_guest.text_high - tm_guest.text_low;
}

/* An exception may have gone past tm_causes_end(): then who calls stands further out. This is asked for each block that PyTorch wants in between, so the
 * stack is not walked; where it goes deeper at once, what the thread does is not recorded until it comes out again. (A cleanup of the compiler's on its way
 * would need libgcc_s, with which every program takes a tenth of a millisecond longer to start where processor identification is trapped.) */
static bool causes_were_left(uintptr_t frame) {
	if (!tm_tls.frees_are_told || tm_tls.ours != 1 || frame <= tm_tls.inside) return false;
	tm_causes_end();
	return true;
}

/* --- a thread's state --- */

static size_t thread_bytes(uint32_t depth) {
	size_t bytes = sizeof(struct tm_thread) + tm_stack_bytes(depth);
	return (bytes + TM_SHM_PAGE - 1) & ~(size_t)(TM_SHM_PAGE - 1);
}

static struct tm_thread *make_thread(void) {
	uint32_t capacity = tm_guest.shm->max_depth;
	long memory = tm_syscall(SYS_mmap, 0, (long)thread_bytes(capacity), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory < 0) return NULL;
	struct tm_thread *t = (struct tm_thread *)memory;
	t->capacity = capacity;
	tm_stack_prepare(t, t + 1);
	return t;
}

static void free_thread(struct tm_thread *t) {
	tm_stack_release(t);
	tm_syscall(SYS_munmap, (long)t, (long)thread_bytes(t->capacity), 0, 0, 0, 0);
}

/* The number that the thread keeps if it needs a second ring. */
static uint32_t thread_number(void) {
	if (tm_tls.process != tm_guest.process) {
		tm_tls.process = tm_guest.process;
		tm_tls.number = atomic_fetch_add(&tm_guest.next_thread, 1) + 1;
	}
	return tm_tls.number;
}

/* The word changes when recording is stopped and started; each thread comes to know at its next event. */
static void follow_epoch(struct tm_thread *t, uint32_t epoch) {
	t->epoch = epoch;
	t->stopped = (epoch & TM_EPOCH_STOPPED) != 0;
	t->samples = t->stopped || tm_guest.shm->sample_bytes != 0;
}

static void start_thread_state(struct tm_thread *t) {
	t->process = tm_guest.process;
	t->nested_count = 0;
	t->end_rounds = 0;
	t->aligned = NULL;
	t->ended = tm_tls.ended;
	t->at_leave = t->ended || atomic_load(&tm_python.heap_begins);
	follow_epoch(t, atomic_load(tm_guest.epoch));
	t->takes_stacks = tm_guest.shm->stacks != TM_STACKS_OFF;
	tm_stack_start_thread(t);
	memset(t->heaps_told, 0, sizeof t->heaps_told);
	memset(t->categories_told, 0, sizeof t->categories_told);
	t->random = 0;
	t->number = thread_number();
	tm_sample_start(t);
	tm_python_start_thread(t);
}

static void close_thread(struct tm_thread *t) {
	tm_tls.thread = NULL;
	tm_ring_close(t);
	tm_python_free_thread(t);
	tm_exec_hooks_end_thread();
	free_thread(t);
}

static void last_round(struct tm_thread *t) {
	char name[TM_THREAD_NAME_BYTES];
	if (t->nested_count) tm_emit_nested(t);
	tm_emit_control(t, TM_CTL_THREAD_END, 0, 0, NULL, 0, name, t->named ? 0 : tm_thread_name_at_end(name));
	tm_tls.ended = true;
	close_thread(t);
}

/* Called by pthread when the thread ends, in up to four rounds. Other keys' destructors may free memory after ours: ask for another round each
 * time and close in the last one. What a handler did in the middle of it could not be told from what we do: signals wait. */
static void thread_ends(void *value) {
	struct tm_raw_signals signals = tm_raw_hold_signals();
	tm_hook_leave_behind(); /* of a handler that ended its thread by pthread_exit() */
	struct tm_thread *t = tm_hook_enter();
	(void)value;
	if (!t || tm_is_sandboxed()) { /* the collector notices that the thread has gone */
		if (t) tm_hook_leave(t);
		tm_raw_let_signals(signals);
		return;
	}
	bool is_last = ++t->end_rounds == 4;
	tm_ours_begin();
	if (t->end_rounds == 1 && (uint32_t)tm_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0) == tm_guest.pid) tm_exit_expect_last_thread();
	if (is_last) last_round(t);
	else pthread_setspecific(end_key, t);
	tm_ours_end();
	if (is_last) tm_tls.inside = 0;
	else tm_hook_leave(t);
	tm_raw_let_signals(signals);
}

/* First event of a thread, or first since it became a fork's child: a ring of its own. NULL: none to be had, the event is counted. */
TM_COLD static struct tm_thread *start_thread(void) {
	struct tm_thread *t = tm_tls.thread;
	bool stale = t != NULL; /* copied from the parent by fork: memory of ours now, but its ring is the parent's */
	if (!t && !tm_is_sandboxed()) t = make_thread();
	if (t) start_thread_state(t);
	if (!t || tm_is_sandboxed() || !tm_find_ring(t)) {
		if (!tm_tls.saying) atomic_fetch_add(&tm_guest.shm->unringed_events, 1);
		tm_sample_lost();
		if (t && !stale) free_thread(t);
		tm_tls.thread = NULL; /* where it is stale it says by now whose it is to be, and has the ring of the other */
		return NULL;
	}
	tm_tls.thread = t;
	if (!tm_tls.ended && atomic_load(&end_key_made)) pthread_setspecific(end_key, t);
	if (t->number == 1) {
		tm_process_announce(t);
		tm_modules_refresh(t);
		if (t->stopped) tm_emit_text(t, TM_OP_STOP, "", 0); /* a child of a process that had stopped */
	}
	return t;
}

/* --- values of pthread keys --- */

#define FIRST_KEYS 32u         /* their values lie in the thread's own structure, each behind a number */
#define STRUCTURE_BYTES 1536u  /* of it are searched: they lie before, in every glibc */

/* How glibc lays them out shows where the value of our own key lies. */
void *const _Atomic *tm_place_of_key_value(const struct tm_thread *t, const void *value) {
#if defined(__x86_64__)
	uintptr_t self, own = 0;
	unsigned key = FIRST_KEYS;

	__asm__("mov %%fs:0, %0" : "=r"(self));
	if (!atomic_load(&end_key_made) || end_key >= FIRST_KEYS) return NULL;
	for (uintptr_t at = self; at < self + STRUCTURE_BYTES; at += sizeof at) {
		if (*(const void *const *)at != t) continue;
		if (own) return NULL;
		own = at;
	}
	if (!own) return NULL;
	for (unsigned k = 0; k < PTHREAD_KEYS_MAX; k++) {
		if (pthread_getspecific(k) != value) continue;
		if (key != FIRST_KEYS) return NULL;
		key = k;
		if (key >= FIRST_KEYS) return NULL;
	}
	if (key == FIRST_KEYS) return NULL;
	void *const _Atomic *place = (void *const _Atomic *)own + 2 * ((int)key - (int)end_key);
	return atomic_load(place) == value ? place : NULL;
#else
	(void)t;
	(void)value;
	return NULL;
#endif
}

/* --- joining --- */

/* In a fork's child: the first thread with an event makes the process one of its own; others wait for it. */
TM_COLD static bool adopt_child(void) {
	uint32_t expected = 0;
	if (!tm_guest.shm->follow || tm_is_sandboxed()) {
		tm_go_quiet();
		return false;
	}
	if (!atomic_compare_exchange_strong(tm_guest.epoch, &expected, TM_EPOCH_ADOPTING)) {
		while (atomic_load(tm_guest.epoch) == TM_EPOCH_ADOPTING) tm_syscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
		return true;
	}
	tm_guest.parent_process = tm_guest.process;
	tm_guest.pid = (uint32_t)tm_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0);
	tm_guest.process = tm_new_process_number();
	atomic_store(&tm_guest.next_thread, 0);
	tm_modules_forget();
	uint32_t stopped = atomic_load(&tm_guest.stopped) ? TM_EPOCH_STOPPED : 0;
	atomic_store_explicit(tm_guest.epoch, tm_guest.process | stopped, memory_order_release);
	return true;
}

/* The loader is between its own steps, and libc has begun. */
static bool loader_is_at_rest(void) {
	return tm_environment() != NULL && _r_debug.r_version != 0 && _r_debug.r_state == RT_CONSISTENT;
}

/* By a tool of valgrind's that puts an allocator of its own in front, as all do but those that count instructions: what we read of stacks and of blocks
 * would be reported as errors of the program's. */
static bool is_inspected(void) {
	static const char library[] = "/vgpreload_";
	const char *at = tm_environment_value("LD_PRELOAD");
	while (at && (at = strstr(at, library)) && !strncmp(at += sizeof library - 1, "core", 4)) continue;
	return at != NULL;
}

static bool join_session(bool constructing) {
	char path[sizeof tm_guest.session_path];
	tm_guest.is_inspected = is_inspected();
	if (tm_guest.is_inspected) return tm_give_up("valgrind's own allocator stands in front of it");
	const char *session = tm_environment_value(TM_SESSION_ENV);
	if (session) return tm_attach(session);
	if (!constructing || !tm_attach_self(path)) return false;
	tm_modules_joined_late();
	return tm_attach(path);
}

/* Once a process: by the first hook for which the loader is at rest, or by our constructor. */
TM_COLD static bool start_process(bool constructing) {
	uint32_t expected = 0;
	if (!constructing && (!loader_is_at_rest() || !tm_environment_value(TM_SESSION_ENV))) return false;
	if (!atomic_compare_exchange_strong(&started, &expected, 1)) return expected == 2;
	tm_ours_begin();
	tm_real_find();
	bool joined = join_session(constructing);
	if (joined) {
		if (pthread_key_create(&end_key, thread_ends) == 0) atomic_store(&end_key_made, 1);
		tm_stack_start();
		tm_real_attached();
		tm_malloc_hooks_attached();
	}
	tm_ours_end();
	atomic_store(&started, joined ? 2 : 3);
	return joined;
}

bool tm_is_to_start(void) {
	return atomic_load(&started) == 0;
}

__attribute__((constructor)) static void construct(int count, char **arguments, char **environment) {
	struct tm_thread *t;
	tm_process_arguments(count, arguments, environment);
	if (atomic_load(&started) == 0 && !start_process(true)) return;
	t = tm_hook_enter_to_say(); /* the process gets its row also if it never allocates */
	if (!t) return;
	if (tm_guest.epoch_stays)
		tm_emit_note(t, "fork",
			     "this kernel does not wipe pages on fork (MADV_WIPEONFORK): a child that is made by clone(), not by fork(), is taken"
			     " for its parent");
	tm_injection_start(t);
	tm_hook_leave(t);
}

/* --- the way in and out --- */

TM_COLD struct tm_thread *tm_enter_slow(uintptr_t frame, enum tm_way_in way) {
	bool is_hooks = way != TM_IN_OUT_OF_LINE;
	if (tm_tls.ours && !causes_were_left(frame)) return NULL;
	if (TM_UNLIKELY(atomic_load_explicit(&tm_tls.confined_child, memory_order_relaxed) & TM_NO_CLOCK)) return NULL;
	if (tm_tls.inside) {
		if ((is_hooks && returns_to_hook(frame)) || !inside_is_stale(frame, way == TM_IN_MALLOC)) return NULL;
		if (tm_tls.thread) forget_inside(tm_tls.thread, frame);
		tm_tls.inside = 0;
	}
	if (atomic_load(&started) != 2) {
		if (!start_process(false)) return NULL;
		tm_tls.was_unsampled = is_hooks && tm_guest.shm->sample_bytes;
		if (tm_tls.was_unsampled) return NULL;
	}
	if (!tm_guest.epoch) return NULL;
	uint32_t epoch = atomic_load_explicit(tm_guest.epoch, memory_order_acquire);
	if (epoch == TM_EPOCH_QUIET) return NULL;
	tm_tls.inside = frame;
	if ((epoch == 0 || epoch == TM_EPOCH_ADOPTING) && !adopt_child()) {
		tm_tls.inside = 0;
		return NULL;
	}
	struct tm_thread *t = tm_tls.thread;
	if (t && t->process == tm_guest.process) {
		follow_epoch(t, epoch);
		return t;
	}
	struct tm_raw_signals signals = tm_raw_hold_signals();
	tm_tls.ours++;
	t = start_thread();
	tm_tls.ours--;
	tm_raw_let_signals(signals);
	if (!t) tm_tls.inside = 0;
	return t;
}

TM_HOT struct tm_thread *tm_hook_enter(void) {
	return tm_enter_by(TM_IN_OUT_OF_LINE);
}

struct tm_thread *tm_hook_enter_to_say(void) {
	tm_tls.saying = true;
	struct tm_thread *t = tm_hook_enter();
	tm_tls.saying = false;
	if (t && tm_tls.exec_is_open) {
		uint64_t pid = tm_guest.pid;
		tm_tls.exec_is_open = false;
		tm_emit_control(t, TM_CTL_EXEC_FAILED, 0, 0, &pid, 1, NULL, 0);
	}
	return t;
}

/* The hook keeps the state it has; the child's events get another one. */
void tm_hook_abandon(void) {
	if (!tm_tls.inside) return;
	if (tm_tls.thread) tm_ring_let_go(tm_tls.thread);
	if (tm_tls.ours) return;
	tm_tls.thread = NULL;
	tm_tls.inside = 0;
}

TM_COLD void tm_leave_slow(struct tm_thread *t) {
	t->at_leave = false; /* first: a handler may add something at any time, and says so here */
	atomic_signal_fence(memory_order_seq_cst);
	if (t->nested_count) tm_emit_nested(t);
	if (tm_python_heap_at_leave(t)) t->at_leave = true;
	if (t->ended) close_thread(t);
	tm_tls.inside = 0;
}

TM_HOT void tm_hook_leave(struct tm_thread *t) {
	tm_leave(t);
}

/* With --sample a handler's allocations are none of the samples, but the end of a block that is one must be said. */
static bool is_left_out(const struct tm_thread *t, enum tm_op op, uint32_t heap, const void *addr) {
	if (t && t->stopped && TM_OP_CLASS(op) != TM_CLASS_FREE) return true;
	if (!tm_guest.shm->sample_bytes || heap) return false;
	return TM_OP_CLASS(op) != TM_CLASS_FREE || !tm_sample_forget(addr);
}

bool tm_is_in_handler(void) {
	const struct tm_thread *t = tm_tls.thread;
	return tm_tls.inside && !tm_tls.ours && (!t || atomic_load(tm_guest.epoch) == t->epoch);
}

TM_COLD void tm_lost_in_handler(void) {
	if (tm_is_in_handler() && tm_tls.thread) atomic_fetch_add(&tm_tls.thread->ring->lost_records, 1);
}

void tm_nested_add(enum tm_op op, uint32_t heap, const void *addr, size_t size) {
	struct tm_thread *t = tm_tls.thread;
	if (!tm_tls.inside || tm_tls.ours || is_left_out(t, op, heap, addr)) return;
	if (!t) { /* the hook is the thread's first, and its ring is not there yet */
		atomic_fetch_add(&tm_guest.shm->unringed_events, 1);
		return;
	}
	if (atomic_load(tm_guest.epoch) != t->epoch) return;
	t->at_leave = true;
	uint32_t slot = atomic_fetch_add_explicit(&t->nested_count, 1, memory_order_relaxed); /* another signal may come at any time */
	if (slot >= TM_NESTED_MAX) {
		atomic_fetch_sub_explicit(&t->nested_count, 1, memory_order_relaxed);
		atomic_fetch_add(&t->ring->nested_lost, 1);
		return;
	}
	atomic_fetch_add_explicit(&t->ring->nested_kept, 1, memory_order_relaxed); /* the program may end at any time, too */
	tm_set_busy(t);
	struct tm_nested *n = &t->nested[slot];
	n->addr = (uint64_t)(uintptr_t)addr;
	n->size = size;
	n->heap = heap;
	n->op = (uint8_t)op;
	n->ticks = tm_now();
}
