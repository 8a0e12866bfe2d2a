/* names_stream.c - what a reader of module files says, message by message: see names_stream.h. */
#include "recorder/collector/names_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RECEIVE_BYTES (1u << 16)

size_t tm_names_stream_expect(struct tm_names_stream *s, uint64_t answers) {
	if (s->turn_count == s->turn_capacity) {
		size_t capacity = s->turn_capacity ? 2 * s->turn_capacity : 16;
		uint64_t *grown = reallocarray(s->answers, capacity, sizeof *grown);
		if (!grown) return SIZE_MAX;
		s->answers = grown;
		s->turn_capacity = capacity;
	}
	s->answers[s->turn_count] = answers;
	return s->turn_count++;
}

/* Behind the last message of a turn stands the next one. */
static bool stands_in_a_turn(struct tm_names_stream *s) {
	while (s->turn < s->turn_count && s->opened && s->answered == s->answers[s->turn]) {
		s->turn++;
		s->opened = false;
		s->answered = 0;
	}
	return s->turn < s->turn_count;
}

static void forget_taken(struct tm_names_stream *s) {
	size_t rest = s->received.size - s->taken;
	if (rest && s->taken) memmove(s->received.data, s->received.data + s->taken, rest);
	s->received.size = rest;
	s->taken = 0;
}

bool tm_names_stream_next(struct tm_names_stream *s, struct tm_names_message *m) {
	if (!stands_in_a_turn(s)) {
		forget_taken(s);
		return false;
	}
	struct tm_cursor all = tm_cursor_over(s->received.data + s->taken, s->received.size - s->taken);
	struct tm_cursor content = all.p < all.end ? tm_get_block(&all) : all;
	if (all.bad || all.p == s->received.data + s->taken) { /* the rest of it has not come yet */
		forget_taken(s);
		return false;
	}
	s->taken = (size_t)(all.p - s->received.data);
	*m = (struct tm_names_message){ s->turn, !s->opened, content };
	if (s->opened) {
		s->answered++;
	} else {
		s->opened = true;
		if (tm_get_varint(&content)) s->answered = s->answers[s->turn]; /* an error: no answers follow */
	}
	return true;
}

ssize_t tm_names_stream_receive(struct tm_names_stream *s) {
	if (!tm_bytes_reserve(&s->received, RECEIVE_BYTES)) return -1;
	ssize_t n;
	do n = read(s->fd, s->received.data + s->received.size, RECEIVE_BYTES);
	while (n < 0 && errno == EINTR);
	if (n <= 0) return 0;
	s->received.size += (size_t)n;
	return n;
}

void tm_names_stream_receive_now(struct tm_names_stream *s) {
	ssize_t n = 1;
	while (n > 0 && tm_bytes_reserve(&s->received, RECEIVE_BYTES)) {
		n = recv(s->fd, s->received.data + s->received.size, RECEIVE_BYTES, MSG_DONTWAIT);
		s->received.size += n > 0 ? (size_t)n : 0;
	}
}

void tm_names_stream_release(struct tm_names_stream *s) {
	if (s->fd >= 0) close(s->fd);
	tm_bytes_release(&s->received);
	free(s->answers);
	*s = (struct tm_names_stream){ .fd = -1 };
}
