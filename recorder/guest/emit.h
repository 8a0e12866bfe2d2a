/* emit.h - what emit.c and hook.c know of each other beyond guest.h. */
#ifndef TIDEMARK_GUEST_EMIT_H
#define TIDEMARK_GUEST_EMIT_H

#include "guest.h"
#include "heaps.h"

/* A call that came while its thread was inside a hook, already done (a free: about to be done). Keeps it for the hook's end. */
void tm_nested_add(enum tm_op op, uint32_t heap, const void *addr, size_t size);
/* The same of a pool: where there is nothing to be kept (tm_hook_enter() said no for another reason) it does nothing. */
static inline void tm_nested_add_of_pool(enum tm_op op, const char *pool, const void *block, size_t size) {
	uint32_t heap = block && tm_is_in_handler() ? tm_heap_of_handle(pool) : 0;
	if (heap) tm_nested_add(op, heap, block, size);
}
/* Writes what tm_nested_add() kept. */
void tm_emit_nested(struct tm_thread *t);

/* A request that was refused for want of memory, a device's (cuda_calls.c) or the program's. Between enter and leave; `frame` is TM_FRAME. */
struct tm_refusal {
	unsigned function;   /* an op, or TM_RING_FUNCTION | the driver's number */
	uint32_t heap;       /* 0: the default heap of an op of the program's, else unknown */
	uint64_t size_bytes; /* 0 unknown: what the function takes for itself */
	int result;          /* the driver's, or ENOMEM */
	uint64_t free_bytes, total_bytes; /* of the device; ~0 unknown */
};
void tm_emit_refusal(struct tm_thread *t, const struct tm_refusal *r, const void *frame);
/* One of the program's: malloc_hooks.c, map_hooks.c. */
void tm_emit_own_refusal(struct tm_thread *t, enum tm_op op, size_t size, const void *frame);

bool tm_find_ring(
	struct tm_thread *t);     /* ring_room.c: for a thread that has none, after a wait perhaps; false: none is to be had, or in time */
void tm_ring_for_attention(void); /* ring_room.c: for what the collector should see at once */
/* The same: a handler left a hook by a jump, perhaps while the ring's place was being changed. */
void tm_ring_after_jump(struct tm_thread *t);

/* What stack.c knows of the process, before the first event; of a thread: its memory of that many bytes, before its first event, and again when the
 * thread has become a fork's child's. */
void tm_stack_start(void);
size_t tm_stack_bytes(uint32_t capacity);
void tm_stack_prepare(struct tm_thread *t, void *memory);
void tm_stack_start_thread(struct tm_thread *t);

/* Does `address` lie on the thread's own stack, or is not known where that is? Between enter and leave. */
bool tm_stack_may_be_own(struct tm_thread *t, uintptr_t address);
void tm_stack_release(struct tm_thread *t); /* what it holds besides that memory */
/* Somebody left a hook by longjmp: what it was writing is worth nothing. */
void tm_stack_forget(struct tm_thread *t);
/* True if a hook of ours is on the calling thread's stack, beyond the one that asks; also if nobody can tell. */
bool tm_stack_holds_hook(struct tm_thread *t);
/* The mapping that holds addr, from /proc/self/maps; slow, allocates nothing. */
bool tm_memory_around(uintptr_t addr, uintptr_t *low, uintptr_t *high);

#endif
