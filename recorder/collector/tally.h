/* tally.h - live bytes and their peak, for the closing summary.
 *
 * Flow:     encode.c, after the times are nanoseconds -> here -> closing.c
 * Owns:     one table of live blocks and one list of mapped ranges a process.
 * Idea:     the events of one group are merged by time and replayed. What one thread frees before the group that holds its allocation
 *           has come is remembered until then. Only then, or when events of a later group are older, is the peak not exact; it says so.
 * When full: a process with more than TM_TALLY_BLOCKS_MAX live blocks is not followed any further; the summary is not worth the memory.
 * Threads:  the encoder's.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_TALLY_H
#define TIDEMARK_RECORDER_COLLECTOR_TALLY_H

#include "group.h"

#define TM_TALLY_BLOCKS_MAX (4u << 20)

struct tm_tally_process {
	uint64_t live_bytes, live_blocks, peak_bytes, peak_ns;
	bool approximate;
	bool given_up;
};

struct tm_tally;

struct tm_tally *tm_tally_new(uint64_t sample_bytes);
void tm_tally_free(struct tm_tally *t);
/* Replays a group whose times are nanoseconds. */
void tm_tally_add(struct tm_tally *t, const struct tm_group *g, uint64_t watermark_ns);
/* What is known of a process of the trace, or all zero. */
struct tm_tally_process tm_tally_of(const struct tm_tally *t, uint32_t process);
uint32_t tm_tally_process_count(const struct tm_tally *t);
/* As the user counts: one for an allocation, one for a free, two for a realloc. */
uint64_t tm_tally_allocations(const struct tm_tally *t);
uint64_t tm_tally_frees(const struct tm_tally *t);

#endif
