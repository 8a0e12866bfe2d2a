/* emit.h - what emit.c and hook.c know of each other beyond guest.h. */
#ifndef TIDEMARK_GUEST_EMIT_H
#define TIDEMARK_GUEST_EMIT_H

#include "guest.h"

#define TM_STACK_SLACK 16u /* frames of ours that an unwinder may see inside of the program's */

/* A call that came while its thread was inside a hook, already done (a free: about to be done). Keeps it for the hook's end. */
void tm_nested_add(enum tm_op op, const void *addr, size_t size);
/* Writes what tm_nested_add() kept. */
void tm_emit_nested(struct tm_thread *t);

void tm_ring_for_attention(void); /* for what the collector should see at once */

/* Finds the unwinder; before the first event. Without one a stack is the caller alone, and a note says so. */
void tm_stack_start(void);
void tm_stack_start_thread(void); /* the unwinder's thread-local storage is made now, not in the middle of a hook */
/* True if a hook of ours is on the calling thread's stack, beyond the one that asks; also if the stack is too deep to tell. Needs an unwinder:
 * tm_stack_can_look(). */
bool tm_stack_holds_hook(void);
bool tm_stack_can_look(void);
/* Keeps libunwind, loaded at `base`, from having descriptors of its own (libunwind_pipe.c). */
void tm_libunwind_without_pipe(const void *base);
/* The mapping that holds addr, from /proc/self/maps; slow, allocates nothing. */
bool tm_memory_around(uintptr_t addr, uintptr_t *low, uintptr_t *high);

#endif
