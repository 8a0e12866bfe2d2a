/* columns.h - events become columns while they are read.
 *
 * Flow:     drain.c fills a segment's batch -> here: nanoseconds, tally.c, columns -> an EVENTS payload in the group
 * Idea:     a batch is small enough to stay in the processor's cache from the ring's record to the column. A segment that fills a batch gets an
 *           encoder of its own until the group closes; one that does not is encoded in one piece at the close. Where a thread is the only one that does
 *           anything, which is usual, the tally has replayed a batch before it is encoded, and spares the encoder to look up what the frees end.
 * Owns:     the encoders. When all are taken, a segment's batch grows instead.
 * Times:    never decrease within a thread, and never fall below what the last group has promised.
 * Threads:  the drainer's.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_COLUMNS_H
#define TIDEMARK_RECORDER_COLLECTOR_COLUMNS_H

#include "group.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TM_ENCODERS_MAX 64u

struct tm_collector;

struct tm_column_thread {
	uint64_t last_ns;
	uint32_t group_serial; /* of the group that `segment` is in */
	uint32_t segment;
};

struct tm_columns {
	struct tm_encoder *idle[TM_ENCODERS_MAX]; /* idle_count of `made` */
	size_t idle_count, made;
	struct tm_encoder *spare; /* for segments in one piece */
	struct tm_column_thread *threads; /* by id */
	size_t thread_count, thread_capacity;
	uint64_t segments;    /* ever */
	uint64_t promised_ns; /* watermark of the last group */
};

/* 0, or -1: no memory. */
int tm_columns_init(struct tm_columns *t);
void tm_columns_release(struct tm_columns *t);

/* The thread's segment in the group that is being filled: one, even if several rings say that they are of that thread. */
size_t tm_columns_segment(struct tm_collector *c, uint32_t thread, uint32_t process);
/* Makes room for another event in a segment whose batch is full. */
void tm_columns_make_room(struct tm_collector *c, struct tm_segment_buffer *s);
/* Converts the times of what was read since, and tells the tally. */
void tm_columns_settle(struct tm_collector *c);
/* Encodes what is left and puts the group's EVENTS payload together. */
void tm_columns_finish(struct tm_collector *c, struct tm_group *g);

#endif
