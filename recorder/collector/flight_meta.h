/* flight_meta.h - what dropped chunks have said besides events, as far as it has to stay: who ran, what was loaded, names, frames and stacks.
 *
 * Flow:     flight_ring.c reads META, NAMES and STACKS chunks that are to be dropped -> here -> the head of the file when it is written anew
 * Stays:    all that defines an id, since what comes later may name it; of threads that ended long ago and left nothing, nothing. Notes and alerts
 *           up to TM_FLIGHT_TALK_BYTES; those that readers go by, all, and how many others there were. Losses are added up by process and kind.
 *           Samples, marks and states of pools go: they belong to their time. So do refusals, with their events.
 * Owns:     copies. Memory and file grow with what is defined, not with what happens.
 * Threads:  the encoder's.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_FLIGHT_META_H
#define TIDEMARK_RECORDER_COLLECTOR_FLIGHT_META_H

#include "../../schema/records.h"
#include "flight_set.h"
#include "writer.h"

#define TM_FLIGHT_TALK_BYTES (256u << 10)
#define TM_FLIGHT_LOSSES 1024u /* of processes */

struct tm_flight_thread {
	uint32_t process;               /* 0: no such thread */
	bool gone;                      /* it ended, long ago */
	bool left_out;                  /* of the file, as it is now */
	bool told_again;                /* in a chunk that is not read back */
	uint64_t named_until;           /* it is named in the chunks before this one; as tm_flight_meta_names() says */
	uint64_t tid, start_ns, end_ns; /* end_ns 0: it has not ended */
	char *name;
	size_t name_bytes;
};

struct tm_flight_ended { /* a process whose end was read */
	uint32_t process;
	uint64_t ns;
};

struct tm_flight_loss {
	char *kind, *reason;
	uint64_t process, ns, count, bytes; /* process 0: the recording */
};

struct tm_flight_meta {
	struct tm_bytes head, late; /* records; late: those that stand behind the stacks */
	struct tm_bytes refusals;   /* records of refused memory whose events may be in the file yet, */
	uint64_t first_refusal;     /* from this id on, */
	uint64_t last_refusal;      /* and the latest of them whose event was read back, which is told by flight_ring.c */
	size_t talk_bytes, talk_left_out;
	struct tm_flight_thread *threads; /* by id */
	size_t thread_count, thread_capacity;
	struct tm_flight_ended *ended; /* whose blocks are still here */
	size_t ended_count, ended_capacity, forgotten;
	struct tm_flight_loss *losses;
	size_t loss_count, loss_capacity;
	struct tm_frame *frames;
	size_t frame_count, frame_capacity;
	struct tm_node *nodes;
	size_t node_count, node_capacity;
};

/* Both: 0, or -1 where the payload makes no sense. The set is told what its events do not say of their processes. */
int tm_flight_meta_records(struct tm_flight_meta *m, struct tm_flight_set *set, struct tm_cursor payload);
int tm_flight_meta_stacks(struct tm_flight_meta *m, struct tm_cursor payload);
/* What has ended well before this time is forgotten, in the set too. */
void tm_flight_meta_forget(struct tm_flight_meta *m, struct tm_flight_set *set, uint64_t watermark_ns);
/* The process of a thread whose events are read back, 0 unknown. */
uint32_t tm_flight_meta_process(struct tm_flight_meta *m, uint64_t thread);
/* Before chunks that name the thread are written: what the file does not say of it any more is put into `out`. A thread's last destructors may allocate
 * long after its end was told. */
void tm_flight_meta_tell_again(struct tm_flight_meta *m, uint64_t thread, struct tm_bytes *out);
/* The thread is named in chunks that end there; any measure that grows with what is written and read back. */
void tm_flight_meta_names(struct tm_flight_meta *m, uint64_t thread, uint64_t until);
/* Threads that the list needs stay, and those that are named beyond `read_back`. Writes META and STACKS chunks. 0 or a TM_CHUNK_ error or -errno. */
int tm_flight_meta_write(struct tm_flight_meta *m, const struct tm_flight_list *list, uint64_t read_back, struct tm_writer *w);
void tm_flight_meta_release(struct tm_flight_meta *m);

#endif
