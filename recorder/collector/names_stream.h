/* names_stream.h - what a reader of module files says, message by message.
 *
 * Flow:     names_reader.c -> a pipe or a socket -> here -> names.c.
 * Idea:     a reader that was started ahead answers for one file after the other. Each file that it was asked for is a turn: an opening, and so many answers,
 *           or none where it could not be opened. So who is not interested in a turn any more can pass over it.
 * Owns:     the descriptor, and what was received and not taken.
 * Fails:    a reader that has ended, or says what is no message, says nothing more.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_NAMES_STREAM_H
#define TIDEMARK_RECORDER_COLLECTOR_NAMES_STREAM_H

#include "schema/wire.h"

#include <sys/types.h>

struct tm_names_stream {
	int fd; /* -1: none */
	struct tm_bytes received;
	size_t taken;      /* of it */
	uint64_t *answers; /* by turn: so many are expected */
	size_t turn_count, turn_capacity;
	size_t turn;      /* of the next message */
	bool opened;      /* and its opening was taken, */
	uint64_t answered; /* and so many answers */
};

struct tm_names_message {
	size_t turn;
	bool is_opening;
	struct tm_cursor content; /* valid until more is received */
};

/* The next file that the reader was asked for has so many answers. Returns its turn; SIZE_MAX: out of memory. */
size_t tm_names_stream_expect(struct tm_names_stream *s, uint64_t answers);
/* The next message, if it is there as a whole. */
bool tm_names_stream_next(struct tm_names_stream *s, struct tm_names_message *m);
/* Waits for more and receives it. How many bytes; 0: it has ended; -1: out of memory. */
ssize_t tm_names_stream_receive(struct tm_names_stream *s);
/* What is there by now, without waiting; nothing is told of the end of a reader, which says nothing more. Of a socket. */
void tm_names_stream_receive_now(struct tm_names_stream *s);
/* Also closes the descriptor. */
void tm_names_stream_release(struct tm_names_stream *s);

#endif
