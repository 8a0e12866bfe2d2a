/* fork_gate.h - no thread forks while another one of ours asks the loader for its modules, or closes one.
 *
 * Flow:     inherited_locks.c (for who looks at the list of modules), dlsym_hook.c: tm_gate_enter() .. tm_gate_leave();
 *           process_hooks.c: tm_gate_close(), fork, tm_gate_open()
 * The trap: dl_iterate_phdr holds a lock of the loader. One that is held while another thread forks stays locked in the child for ever, and the
 *           child would hang when it asks next. A dlclose that is cut in the middle leaves the child a list of modules that leads into
 *           unmapped memory. Taking a stack holds no lock and needs no gate.
 * Waiting:  a fork waits for threads inside for TM_GATE_CLOSE_MS at most, a thread for a fork for TM_GATE_ENTER_MS: handlers of
 *           pthread_atfork may wait for a thread that waits for the fork. A thread that waited in vain does without the loader that once;
 *           the child of a fork that did, for ever.
 * errno:    untouched.
 */
#ifndef TIDEMARK_GUEST_FORK_GATE_H
#define TIDEMARK_GUEST_FORK_GATE_H

#include "guest.h"

#define TM_GATE_CLOSE_MS 500
#define TM_GATE_ENTER_MS 3000

/* True: go on, and call tm_gate_leave(). */
bool tm_gate_enter(void);
void tm_gate_leave(void);

/* The same for a dlclose, which goes ahead also if it waited in vain (then without leave). */
bool tm_gate_enter_closing(void);
void tm_gate_leave_closing(void);

/* Around a fork. */
void tm_gate_close(void);
void tm_gate_open(bool in_child);

#endif
