/* heaps.h - the explicit heaps of the process and the scope categories of its own: names that have numbers.
 *
 * Flow:     api.c, nvtx.c, itt.c, the adaptors -> tm_heap_number() -> emit_heap.c -> HEAP, then the heap's events, in the ring of the thread
 * Idea:     the rings are read one after the other, so each thread says what a number means in its own ring, before it first uses it there.
 * Owns:     two tables, one a process; a fork's child has its parent's and says all of it again.
 * Threads:  any; lock-free.
 * When full: tm_heap_number() returns 0, and the heap's events are not recorded; tm_category_number() returns the default. A note says so once.
 * A default heap's name ("malloc") is no explicit heap's: 0, too.
 */
#ifndef TIDEMARK_GUEST_HEAPS_H
#define TIDEMARK_GUEST_HEAPS_H

#include "guest.h"

#define TM_NAME_KEPT 240u /* bytes of a heap's or category's name; the rest is cut */

/* Of a name what is kept; a note says that one was cut, unless this is between enter and leave. */
size_t tm_name_bytes(const char *name);
/* The number of the heap of this name, made if it is new; two heaps of one name are one. `parent` is a heap's number, or enum tm_heap_number, 0: none; `device`
 * -1: none. `kind` is a short string that stays. The first caller's kind, parent and device count. */
uint32_t tm_heap_number(const char *name, size_t n, const char *kind, uint32_t parent, int device);
/* The number of a heap by its name, 0: there is none. Knows the default heaps, too. */
uint32_t tm_heap_find(const char *name, size_t n);
/* The name of a heap that has a number; NULL: it has not. */
const char *tm_heap_name(uint32_t number);
/* The same, but `heap` may also be what tm_heap_name() gave, which is faster. */
uint32_t tm_heap_of_handle(const char *heap);
bool tm_heap_is_handle(const void *heap); /* it is what tm_heap_name() gave */
/* True: the ring of this thread holds a HEAP record of it. false: no such explicit heap, or no room in the ring. Between enter and leave. */
bool tm_heap_tell(struct tm_thread *t, uint32_t number);
/* The same for events of the heap: where there is no room for the HEAP record they are lost with it. */
static inline bool tm_heap_tell_for(struct tm_thread *t, uint32_t number, uint64_t events, uint64_t bytes) {
	if (TM_LIKELY(tm_heap_tell(t, number))) return true;
	if (number < TM_HEAP_NUMBER_OWN || !tm_heap_name(number)) return false;
	atomic_fetch_add_explicit(&t->ring->lost_events, events, memory_order_relaxed);
	atomic_fetch_add_explicit(&t->ring->lost_bytes, bytes, memory_order_relaxed);
	return false;
}

/* A note about a limit that the program met, once a process. Not between enter and leave. */
void tm_note_limit(_Atomic uint32_t *noted, const char *kind, const char *text);

/* The number of a category of this name ("nvtx:DOMAIN"), `otherwise` if there are too many (a note says so). Not between enter and leave. */
uint32_t tm_category_number(const char *name, size_t n, uint32_t otherwise);
/* Makes the category known in the ring of this thread, if it is one of the process' own. */
void tm_category_tell(struct tm_thread *t, uint32_t number);

#endif
