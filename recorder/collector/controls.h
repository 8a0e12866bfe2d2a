/* controls.h - the records of a ring that are not events: processes, modules, threads, notes.
 *
 * Flow:     drain.c has copied a record and checked its length -> here -> process_table.c, module_table.c, the group
 * Fails:    false: the record makes no sense; drain.c counts what follows in the ring as lost.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_CONTROLS_H
#define TIDEMARK_RECORDER_COLLECTOR_CONTROLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tm_collector;
struct tm_ring_view;

/* `words` is the whole record, `n` its length in words as checked. */
bool tm_control_take(struct tm_collector *c, struct tm_ring_view *r, const uint64_t *words, size_t n);
/* The id of a text (interned.c); its STRING record is written when it is new. */
uint32_t tm_intern(struct tm_collector *c, const char *text, size_t n);
void tm_interned_release(struct tm_collector *c);

#endif
