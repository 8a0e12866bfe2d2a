/* encode.h - the second thread: groups become chunks of the file.
 *
 * Flow:     drain.c fills a group -> tm_encoder_submit() -> here -> writer.c
 * Idea:     draining must go on while chunks are compressed and written, which may take long where the disk is slow. At most two groups wait; with
 *           three, the drainer waits, and the guests' rings fill.
 *           The thread gives way to the program and the drainer where all processors are taken, and is made for the first group; a recording so short that its
 *           first is its last needs none.
 * Threads:  submit, take and expect_end are the drainer's; stop is, too, or another's behind the last of them. The writer is the encoder's until all that was
 *           handed over is written.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_ENCODE_H
#define TIDEMARK_RECORDER_COLLECTOR_ENCODE_H

#include "dumps.h"
#include "flight_ring.h"
#include "group.h"
#include "writer.h"

#include <pthread.h>

struct tm_encoder_thread {
	struct tm_writer *writer;
	struct tm_flight *flight; /* keeps the file within its bound; NULL: nothing does. Not owned; set before the first group */
	struct tm_dumps *dumps;   /* writes copies; NULL: none are made. Likewise */
	uint64_t
		limit_bytes; /* the file stays within it: events that do not fit are left out, and all behind them. 0: no limit. Likewise */
	_Atomic bool is_full;     /* some were left out */
	uint64_t written_events;  /* allocations and frees, a realloc both */
	uint64_t left_out_events; /* the same by is_full, or as the file could not be written; to be read once it is stopped */
	uint64_t left_out_records; /* likewise of scopes, marks and the like */
	struct tm_bytes payload;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct tm_group *waiting, *empty; /* queues; under the lock */
	unsigned waiting_count;
	bool stopping, running;
	bool expects_end; /* the drainer's: no thread is made any more for one group */
	uint32_t last_serial;
	_Atomic uint64_t end_ns; /* of the last event written */
	_Atomic uint64_t events; /* written */
};

void tm_encoder_start(struct tm_encoder_thread *e, struct tm_writer *writer);
/* An empty group. */
struct tm_group *tm_encoder_take(struct tm_encoder_thread *e);
/* Waits up to timeout_ns for room. */
bool tm_encoder_wait_for_room(struct tm_encoder_thread *e, uint64_t timeout_ns);
/* Hands over a group. Where no thread can be made, the drainer writes it itself. */
void tm_encoder_submit(struct tm_encoder_thread *e, struct tm_group *g);
/* Encodes and writes a group on the calling thread; only while the thread does not run. */
void tm_encoder_write_now(struct tm_encoder_thread *e, struct tm_group *g);
/* The next group is most likely the last one: if there is no thread yet, tm_encoder_stop() writes it. */
void tm_encoder_expect_end(struct tm_encoder_thread *e);
/* Writes what waits and ends the thread. Also another thread than the drainer, if that hands over nothing meanwhile. */
void tm_encoder_stop(struct tm_encoder_thread *e);
/* Until all that was handed over is written, by whoever does it. */
void tm_encoder_wait_until_written(struct tm_encoder_thread *e);
void tm_encoder_release(struct tm_encoder_thread *e);

#endif
