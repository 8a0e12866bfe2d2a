/* thread_table.h - the rows of threads: from a thread's number in its process to its id in the trace.
 *
 * Flow:     drain.c, controls.c, names that the sampler read -> here -> thread records in the group
 * Owns:     a row for each thread, in the table of processes, which frees them.
 * Threads:  the drainer's.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_THREAD_TABLE_H
#define TIDEMARK_RECORDER_COLLECTOR_THREAD_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tm_collector;
struct tm_process;

/* Id of the thread in the trace; its row is made when it is new. */
uint32_t tm_thread_id(struct tm_collector *c, struct tm_process *p, uint32_t number, uint32_t tid, uint64_t start_ticks);
/* The thread, which has a row, tells its name. */
void tm_thread_named(struct tm_collector *c, const struct tm_process *p, uint32_t number, const char *name, size_t n);
/* Names that were read from outside, of threads that have not told theirs. They are held until the next call, unless all are taken: by then what the processes
 * had told when they were read, an exec above all, has been read, too. */
void tm_threads_take_names(struct tm_collector *c, bool all);
/* The thread, which has a row, ended at that time. A later end than it had is believed. */
void tm_thread_ended(struct tm_collector *c, const struct tm_process *p, uint32_t number, uint64_t ticks);
/* A ring of the thread is done with, and nothing in it told the thread's end: it ended with its process, which is not written, or `alone`,
 * some time after its last event. */
void tm_thread_left_ring(struct tm_collector *c, const struct tm_process *p, uint32_t number, bool alone, uint64_t last_event_ticks);

#endif
