/* own_memory.h - malloc for what we cause ourselves: dlsym before malloc is known, pthread keys.
 *
 * Owns:     one mapping of TM_OWN_BYTES, made at the first need; never part of the program's heap, so that neither the block nor its free (which libc may
 *           do much later, from another thread) is ever taken for the program's.
 * Threads:  any; lock-free.
 * When full: NULL, as malloc says it.
 */
#ifndef TIDEMARK_GUEST_OWN_MEMORY_H
#define TIDEMARK_GUEST_OWN_MEMORY_H

#include "guest.h"

#define TM_OWN_BYTES (16u << 20)
#define TM_OWN_NOWHERE ((uint8_t *)-(uintptr_t)TM_OWN_BYTES) /* tm_guest.own_base until the first need: no block lies there */

void *tm_own_alloc(size_t alignment, size_t size); /* zeroed */
void *tm_own_realloc(void *p, size_t size);        /* of a block of ours */
void tm_own_free(void *p);                         /* of a block of ours */
size_t tm_own_size(const void *p);
void tm_own_is_never_passed(void); /* from now on, with --sample: its pages are marked as if they held samples */

static inline bool tm_own_holds(const void *p) {
	uintptr_t base = (uintptr_t)atomic_load_explicit(&tm_guest.own_base, memory_order_relaxed);
	return (uintptr_t)p - base < TM_OWN_BYTES;
}

#endif
