/* session.h - the shared memory of a recording, made and taken down.
 *
 * Flow:     record_main.c -> here -> launch.c hands its name to the command -> guests map it; drain.c reads it
 * Owns:     the memory file and our mapping of it. The layout is kept here too: what stands in shared memory is never read back.
 * Fails:    with one line in `error`: no memory file could be made, or it could not be mapped.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_SESSION_H
#define TIDEMARK_RECORDER_COLLECTOR_SESSION_H

#include "../shm.h"
#include "record_options.h"
#include "timebase.h"

#include <stdbool.h>
#include <stddef.h>

struct tm_session {
	int fd;                /* close-on-exec */
	char path[256];        /* what guests are told */
	char unlink_path[256]; /* "" unless a named file had to be used */
	struct tm_shm *shm;
	uint64_t total_bytes, ring_headers_offset, ring_data_offset, ring_bytes;
	uint32_t ring_count;
	bool puts_away; /* this processor can put single lines out of the caches */
};

/* 0 or -1 with a sentence in error. */
int tm_session_open(struct tm_session *s, const struct tm_options *options, const struct tm_timebase *timebase, char *error,
		    size_t error_bytes);
void tm_session_release(struct tm_session *s);

/* The file's name in a list of mappings. */
const char *tm_session_mapped_name(const struct tm_session *s);
struct tm_ring *tm_session_ring(const struct tm_session *s, uint32_t index);
const uint8_t *tm_session_ring_data(const struct tm_session *s, uint32_t index);
uint64_t tm_session_ring_bytes(const struct tm_session *s, uint32_t index);
/* What lies between two positions of a ring was read, and goes out of this processor's caches: the producer, which writes there next, asks memory then, and not
 * a processor that may be on another socket, where each line takes several times as long (tests/bench/handover_bench.c shows it). Does nothing where the
 * processor cannot. */
void tm_session_put_away(const struct tm_session *s, uint32_t index, uint64_t from, uint64_t to);
/* Bytes of the rings that a process has now, as far as it has written to them: of each the first so many. Any thread may ask. */
uint64_t tm_session_written_bytes(const struct tm_session *s, uint32_t process);
/* Gives the pages of a ring's data back to the system. */
void tm_session_ring_forget(const struct tm_session *s, uint32_t index);

/* Guests go quiet; threads that wait for room are woken. Async-signal-safe. */
void tm_session_close_to_guests(const struct tm_session *s);

void tm_futex_wake(_Atomic uint32_t *word);
/* Sleeps until the word differs from `value`, it is woken, a signal came, or the time is over. */
void tm_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns);

#endif
