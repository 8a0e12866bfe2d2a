/* fork_gate.h - no thread forks while another one is inside of the unwinder, or closes a module.
 *
 * Flow:     stack.c, modules.c: tm_gate_enter() .. tm_gate_leave();  process_hooks.c: tm_gate_close(), fork, tm_gate_open()
 * The trap: the unwinder has locks of its own. One that is held while another thread forks stays locked in the child for ever, and the
 *           child would hang at its first stack. A dlclose that is cut in the middle leaves the child a list of modules that leads into
 *           unmapped memory.
 * Cost:     a store, a load and a store around each stack. The forking thread pays for the ordering: membarrier(2) makes every other
 *           thread's store and load happen in order; where the kernel has no membarrier, tm_gate_enter() fences.
 * Waiting:  a fork waits for threads inside for TM_GATE_CLOSE_MS at most, a thread for a fork for TM_GATE_ENTER_MS: handlers of
 *           pthread_atfork may wait for a thread that waits for the fork. A thread that waited in vain does without the unwinder that once;
 *           the child of a fork that did, for ever.
 * errno:    untouched.
 */
#ifndef TIDEMARK_GUEST_FORK_GATE_H
#define TIDEMARK_GUEST_FORK_GATE_H

#include "guest.h"

#define TM_GATE_CLOSE_MS 500
#define TM_GATE_ENTER_MS 3000

extern _Atomic uint32_t tm_gate_forks TM_HIDDEN; /* forks under way in this process; TM_GATE_SHUT: its locks are not to be trusted */
extern bool tm_gate_fences TM_HIDDEN;            /* no membarrier here */

#define TM_GATE_SHUT (1u << 31)

bool tm_gate_wait(struct tm_thread *t);

/* True: go on, and call tm_gate_leave(). Between enter and leave of a hook. */
static inline bool tm_gate_enter(struct tm_thread *t) {
	atomic_store_explicit(&t->ring->unwinding, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (TM_UNLIKELY(tm_gate_fences)) atomic_thread_fence(memory_order_seq_cst);
	return TM_LIKELY(atomic_load_explicit(&tm_gate_forks, memory_order_relaxed) == 0) || tm_gate_wait(t);
}

static inline void tm_gate_leave(struct tm_thread *t) {
	atomic_store_explicit(&t->ring->unwinding, 0, memory_order_release);
}

/* The same for calls that come seldom, or where no ring is at hand: a counter that all threads share. */
bool tm_gate_enter_rarely(void);
void tm_gate_leave_rarely(void);

/* The same for a dlclose, which goes ahead also if it waited in vain (then without leave). */
bool tm_gate_enter_closing(void);
void tm_gate_leave_closing(void);

/* Around a fork. */
void tm_gate_close(void);
void tm_gate_open(bool in_child);

#endif
