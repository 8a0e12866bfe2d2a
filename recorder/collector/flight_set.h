/* flight_set.h - what dropped events have left behind: live blocks and mappings, and the scopes that they lie in.
 *
 * Flow:     flight_ring.c decodes chunks that are to be dropped -> tm_flight_set_add(), tm_flight_set_advance() -> here; when the file is written anew
 *           tm_flight_set_list() gives the events that stand for all of them
 * Idea:     the events of all threads are replayed in the order of their times, as far as the watermark promises that none is missing; an
 *           allocation whose free has been seen is forgotten together with it, and so is a scope in which nothing that stays was allocated. What is
 *           left are ordinary events with their own times, so a reader needs to know nothing of it. Events beyond the watermark stay as they are.
 * When full: a thread that stands still in the middle of an event (a handler that sleeps, a process that is stopped) holds the watermark. More than
 *           `waiting_max` events of others do not wait for it: the oldest are replayed, and its own take their place when they come.
 * Order:    every event that stays has a number in the order of the replay, which is also the order of its thread.
 * Owns:     all of it. Memory follows the live blocks and the scopes that they lie in; of a fork's child with threads also 4 MiB for each heap.
 * Threads:  one at a time: the encoder's.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_FLIGHT_SET_H
#define TIDEMARK_RECORDER_COLLECTOR_FLIGHT_SET_H

#include "../../schema/events.h"

struct tm_flight_set;

struct tm_flight_event { /* of the list: by thread, and of a thread in order */
	uint32_t thread;
	uint64_t number;
	struct tm_event event;
};

struct tm_flight_list {
	struct tm_flight_event *events;
	size_t count, capacity;
};

struct tm_flight_set *tm_flight_set_new(size_t waiting_max);
void tm_flight_set_free(struct tm_flight_set *s);

/* A fork's child, told before its events: its parent's blocks are not here, and their frees end nothing. */
void tm_flight_set_inherits(struct tm_flight_set *s, uint32_t process);
/* From here on not every event is there. */
void tm_flight_set_has_gaps(struct tm_flight_set *s, uint32_t process);
/* The next events of a thread. */
void tm_flight_set_add(struct tm_flight_set *s, uint32_t process, uint32_t thread, const struct tm_event *events, size_t n);
/* Replays what is below the watermark, and what waits for it beyond waiting_max. Returns until when everything is replayed, at least watermark_ns. */
uint64_t tm_flight_set_advance(struct tm_flight_set *s, uint64_t watermark_ns);
/* The thread has ended: what it left open is closed, by its end. */
void tm_flight_set_end_thread(struct tm_flight_set *s, uint32_t thread);
/* The process has ended: forgets what it held. */
void tm_flight_set_end_process(struct tm_flight_set *s, uint32_t process);
/* True while events of the thread wait for the watermark. */
bool tm_flight_set_waits(const struct tm_flight_set *s, uint32_t thread);
/* The same of any thread of the process. */
bool tm_flight_set_process_waits(const struct tm_flight_set *s, uint32_t process);
/* Everything that stays, sorted. The list is the caller's, and is used again. */
void tm_flight_set_list(const struct tm_flight_set *s, struct tm_flight_list *list);

#endif
