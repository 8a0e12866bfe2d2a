/* tally.h - live bytes and their peak, for the closing summary and for the program's own questions.
 *
 * Flow:     columns.c, after the times are nanoseconds -> here -> closing.c, stats.c
 * Owns:     one table of live blocks and one list of mapped ranges a living process; what waits of each thread.
 * Idea:     events are replayed in the order of their times, over all threads, as far as the watermark promises that none is missing; those
 *           beyond it wait for the next pass. What a call gives back goes when it begins. So the figures are the same as an analyzer's, but for a
 *           free that is stamped before the allocation of its block (pairing.h of schema/): that block counts until its address is allocated
 *           again. Who frees a block is told which allocation of the same segment it ends, so that the encoder needs no table of its own.
 * When full: with more than TM_TALLY_BLOCKS_MAX live blocks a process is not followed any further, as the summary is not worth the
 *           memory; with more than TM_TALLY_WAITING_MAX waiting events (a thread was stopped in the middle of one) they are replayed
 *           early, and the peak is approximate.
 * Threads:  the drainer's.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_TALLY_H
#define TIDEMARK_RECORDER_COLLECTOR_TALLY_H

#include "../../schema/events.h"
#include "alerts.h"

#define TM_TALLY_BLOCKS_MAX (4u << 20)
#define TM_TALLY_WAITING_MAX (1u << 20)

struct tm_tally_process { /* over the root heaps: not mapped files, nor what lies in another heap */
	uint64_t live_bytes, live_blocks, peak_bytes, peak_ns;
	bool approximate;
	bool given_up;
	bool was_stopped; /* for a while, tidemark_stop() */
};

enum tm_tally_default { TM_TALLY_OWN = 0, TM_TALLY_MALLOC = 1, TM_TALLY_MMAP = 2, TM_TALLY_MMAP_FILE = 3 };

struct tm_tally_heap { /* of one heap, since its process or the baseline began; counts are of blocks that are known */
	uint64_t live_bytes, live_count, peak_bytes, peak_since_reset_bytes, allocations, frees;
};

/* The events of a thread that are encoded together: their allocations have numbers, which stay with the blocks. */
struct tm_tally_segment {
	uint64_t next; /* number of the next allocation; the segment's own number, never 0, in the bits from TM_TALLY_SEGMENT_BITS on */
	bool waited;   /* some events had to wait for those of other threads; a free that waits is not told of an allocation that does */
};

#define TM_TALLY_SEGMENT_BITS 24

struct tm_tally;

struct tm_tally_watch { /* a threshold of a process' live bytes, or of one heap's */
	unsigned rule;
	bool of_process;
	enum tm_tally_default heap;
	uint32_t id; /* TM_TALLY_OWN: of the heap */
	struct tm_threshold threshold;
};

/* Told from inside of tm_tally_advance(), and must not call back. */
typedef void tm_tally_crossed(void *context, uint32_t process, unsigned rule, uint64_t ns, uint64_t value);

struct tm_tally *tm_tally_new(uint64_t sample_bytes);
void tm_tally_free(struct tm_tally *t);
/* The next events of a thread, whose times are nanoseconds; process and thread are ids of the trace. Those that give a block back get what
 * tm_encoder_add_told() wants to know, if `segment` is not NULL: it is the same for all events that are encoded together. */
void tm_tally_add(struct tm_tally *t, uint32_t process, uint32_t thread, struct tm_event *events, size_t n, struct tm_tally_segment *segment);
/* Tells when that threshold of the process is crossed; it is followed then, however many blocks it has. */
void tm_tally_watch(struct tm_tally *t, uint32_t process, struct tm_tally_watch watch, tm_tally_crossed *crossed, void *context);
/* Until told otherwise only this thread adds events, none below from_ns, and no other has any below until_ns: they are replayed at once, behind what waits.
 * 0: none is. */
void tm_tally_alone_until(struct tm_tally *t, uint32_t thread, uint64_t from_ns, uint64_t until_ns);
/* Replays what is below the watermark. */
void tm_tally_advance(struct tm_tally *t, uint64_t watermark_ns);
/* Replays what waits: nothing more will come. */
void tm_tally_finish(struct tm_tally *t);
/* Its blocks are forgotten once what waits of it is replayed, and only its figures stay; should more come, they are approximate. */
void tm_tally_process_ended(struct tm_tally *t, uint32_t process);
/* What is known of a process of the trace, or all zero. */
struct tm_tally_process tm_tally_of(const struct tm_tally *t, uint32_t process);
/* The figures of a default heap, or of the explicit one of this id. */
struct tm_tally_heap tm_tally_heap_of(struct tm_tally *t, uint32_t process, enum tm_tally_default heap, uint32_t id);
/* The bytes of this explicit heap are counted nowhere else: the process' figures have them. Before its first block. */
void tm_tally_heap_is_root(struct tm_tally *t, uint32_t process, uint32_t heap);
uint32_t tm_tally_process_count(const struct tm_tally *t);
/* As the user counts: one for an allocation, one for a free, two for a realloc. */
uint64_t tm_tally_allocations(const struct tm_tally *t);
uint64_t tm_tally_frees(const struct tm_tally *t);

#endif
