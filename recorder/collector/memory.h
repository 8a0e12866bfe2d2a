/* memory.h - memory that never fails to come, and what happens when there is none.
 *
 * Flow:     every file of the collector grows its arrays here.
 * Fails:    never, from the caller's view. When no memory is left the recording ends where it is (the trace stays readable to its last
 *           chunk), the traced program runs on, and we end with its exit status: that is what the last stand does.
 * Threads:  any; the last stand is taken once.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_MEMORY_H
#define TIDEMARK_RECORDER_COLLECTOR_MEMORY_H

#include <stddef.h>

/* Called when memory is exhausted; must not return. */
void tm_memory_on_exhausted(void (*last_stand)(void));

_Noreturn void tm_memory_exhausted(void); /* for what grows without this file's help */

void *tm_memory_new(size_t count, size_t item_bytes);             /* zeroed */
/* Of what may become large: mappings from TM_MAPPED_BYTES (schema/array.h) on, in huge pages. */
void *tm_memory_new_table(size_t count, size_t item_bytes); /* zeroed; for a hash table, as all of it is there at once */
/* The same in pieces, for what will be wanted: room whose pages are not there yet, NULL: there is none, or it is too small to be worth it; and the pages of a
 * part of it. */
void *tm_memory_table_ahead(size_t count, size_t item_bytes);
void tm_memory_fetch(void *p, size_t bytes);
void *tm_memory_clear_and_double(void *p, size_t count, size_t item_bytes);              /* such a table, twice as large and zeroed */
void *tm_memory_grow_table(void *p, size_t *capacity, size_t needed, size_t item_bytes); /* as tm_memory_grow() */
void tm_memory_free_table(void *p, size_t count, size_t item_bytes); /* what they gave, of that capacity, or NULL */
void *tm_memory_resize(void *p, size_t count, size_t item_bytes); /* realloc; new bytes are not zeroed */
char *tm_memory_copy_text(const char *text, size_t n);            /* terminated with a zero byte */

/* Makes room for at least `needed` items in an array of *capacity items, doubling; returns the array. */
void *tm_memory_grow(void *p, size_t *capacity, size_t needed, size_t item_bytes);

#endif
