/* flight_ring.h - keeps the trace file within --max-size=SIZE,ring: the newest events, and what the older ones have left behind.
 *
 * Flow:     encode.c has buffered a group -> tm_flight_make_room(): where the file would outgrow its bound it is written anew without its oldest
 *           chunks -> the group is written -> tm_flight_turn() reads the oldest chunks back into flight_set.c and flight_meta.c, a few each time
 * File:     a usual trace at every moment: definitions | what is live of the dropped part, as the events that made it | the newest chunks, as
 *           they were. It is written beside the old one and takes its place by a rename, so that a recorder that is killed leaves one or the other whole.
 * Bound:    no write takes the file beyond SIZE. Half of what the definitions and the live set leave of it are newest chunks, where a single group
 *           is not larger; where those two need more than three quarters of SIZE the file grows to what they need and a third, and a group.
 *           Names, and in them texts, are written at the end and come on top.
 * When full (disk): the writer's error is set, and the recording ends as it does without a ring.
 * Threads:  the encoder's, until it is stopped.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_FLIGHT_RING_H
#define TIDEMARK_RECORDER_COLLECTOR_FLIGHT_RING_H

#include "group.h"
#include "writer.h"

#define TM_FLIGHT_BYTES_MIN (256u << 10)

struct tm_flight;

/* NULL: the file cannot be read back (errno), or is no regular one (0). */
struct tm_flight *tm_flight_new(struct tm_writer *w, uint64_t limit_bytes);
void tm_flight_free(struct tm_flight *f);
/* How many the file says are gone, the oldest. */
uint64_t tm_flight_dropped_events(const struct tm_flight *f);
/* What has to be in front of the group's chunks, records of META: threads that the file says nothing of any more. */
void tm_flight_tell_again(struct tm_flight *f, const struct tm_group *g, struct tm_bytes *out);
/* Before what is buffered is written, which is the group. */
void tm_flight_make_room(struct tm_flight *f, const struct tm_group *g);
/* Everything that was buffered is in the file. */
void tm_flight_turn(struct tm_flight *f);

#endif
