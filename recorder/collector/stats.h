/* stats.h - answers what the program asks about its own heaps (tidemark_stats).
 *
 * Flow:     STATS record in a ring -> tm_stats_asked() -> every event up to its stamp is read (the watermark) -> tally.c up to that stamp -> the slot
 *           in shared memory, and its futex
 * Exact:    the tally replays the events of all threads in the order of their stamps, and stops at the question's. What is answered as of then
 *           holds everything that the asking thread did before, and of the other threads what they had stamped.
 * Hostile:  a slot's number is checked; there are TM_STATS_SLOTS questions at most, and one in a slot takes the place of the one before.
 * Threads:  the drainer's.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_STATS_H
#define TIDEMARK_RECORDER_COLLECTOR_STATS_H

#include "../shm.h"
#include "tally.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tm_collector;
struct tm_process;

struct tm_question {
	struct tm_process *process; /* NULL: none */
	uint64_t ticks;
	size_t name_bytes;
	char name[256];
};

struct tm_heap_named { /* what a name means in a process */
	bool known;
	enum tm_tally_default which;
	uint32_t id; /* of the trace, if it is an explicit heap */
};

struct tm_heap_named tm_heap_named(const struct tm_collector *c, const struct tm_process *p, const char *name, size_t n);
void tm_stats_asked(struct tm_collector *c, struct tm_process *p, uint64_t slot, uint64_t ticks, const char *name, size_t n);
/* Answers what can be answered; before the tally goes on to the watermark. */
void tm_stats_answer(struct tm_collector *c);
/* True while somebody waits for an answer. */
bool tm_stats_pending(const struct tm_collector *c);
/* Now and then: frees the slots of those who gave up or died. */
void tm_stats_housekeeping(struct tm_collector *c);

#endif
