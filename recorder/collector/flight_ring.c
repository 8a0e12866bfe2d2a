/* flight_ring.c - drops the oldest chunks of the file and keeps what they left: see flight_ring.h. */
#include "flight_ring.h"

#include "flight_meta.h"
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EVENTS_PAYLOAD_MAX (8u << 20) /* then another EVENTS chunk begins */
#define SEGMENT_EVENTS (1u << 18)
#define COPIED_BYTES (1u << 20) /* are buffered */
#define WAITING_MAX (1u << 20)  /* events */
#define ATTEMPTS 100u /* to follow a directory that is moved again and again */

struct tm_flight {
	struct tm_writer *writer;
	uint64_t limit_bytes;
	uint64_t kept_bytes; /* of the file: definitions and live set, which its beginning is */
	uint64_t taken;      /* offset: chunks before it are in the set */
	uint64_t read_bytes; /* of all chunks that were ever taken */
	int fd;              /* reads the file */
	struct tm_flight_set *set;
	struct tm_flight_meta meta;
	struct tm_flight_list list;
	struct tm_unpacker unpacker;
	struct tm_decoder *decoder;
	struct tm_encoder *encoder;
	struct tm_bytes chunk, payload;
	uint64_t watermark_ns;
	uint64_t events, bytes; /* that were taken, and what they allocated */
	uint64_t dropped_events; /* as the file says */
};

/* They are kept beside the window, each in about four bytes; with what is told of refusals it may be a few times that. */
static size_t waiting_max(uint64_t limit_bytes) {
	return limit_bytes / 32 < WAITING_MAX ? (size_t)(limit_bytes / 32) : WAITING_MAX;
}

struct tm_flight *tm_flight_new(struct tm_writer *w, uint64_t limit_bytes) {
	struct stat info;
	int fd = open(w->path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) return NULL;
	if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
		close(fd);
		errno = 0;
		return NULL;
	}
	struct tm_flight *f = tm_memory_new(1, sizeof *f);
	f->writer = w;
	f->limit_bytes = limit_bytes;
	f->taken = TM_FILE_HEADER_BYTES;
	f->fd = fd;
	f->set = tm_flight_set_new(waiting_max(limit_bytes));
	f->decoder = tm_decoder_new();
	f->encoder = tm_encoder_new();
	if (tm_unpacker_init(&f->unpacker) == 0 && f->decoder && f->encoder) return f;
	tm_flight_free(f);
	errno = ENOMEM;
	return NULL;
}

uint64_t tm_flight_dropped_events(const struct tm_flight *f) {
	return f->dropped_events;
}

void tm_flight_free(struct tm_flight *f) {
	if (!f) return;
	if (f->fd >= 0) close(f->fd);
	tm_flight_set_free(f->set);
	tm_flight_meta_release(&f->meta);
	free(f->list.events);
	tm_unpacker_release(&f->unpacker);
	tm_decoder_free(f->decoder);
	tm_encoder_free(f->encoder);
	tm_bytes_release(&f->chunk);
	tm_bytes_release(&f->payload);
	free(f);
}

/* --- reading back --- */

/* The chunk at that offset, header and stored payload, into f->chunk. 0 or an errno. */
static int read_chunk(struct tm_flight *f, uint64_t offset, struct tm_chunk_header *h) {
	size_t wanted = TM_CHUNK_HEADER_BYTES, done = 0;
	bool known = false;
	tm_bytes_clear(&f->chunk);
	while (done < wanted) {
		if (!tm_bytes_reserve(&f->chunk, wanted)) return ENOMEM;
		ssize_t n = pread(f->fd, f->chunk.data + done, wanted - done, (off_t)(offset + done));
		if (n < 0 && errno == EINTR) continue;
		if (n <= 0) return n < 0 ? errno : EIO;
		done += (size_t)n;
		if (done < wanted || known) continue;
		if (tm_chunk_header_read(f->chunk.data, done, h) != 0) return EIO;
		known = true;
		f->chunk.size = done;
		wanted += h->stored_bytes;
	}
	f->chunk.size = done;
	return 0;
}

/* As the user counts. */
static unsigned count_of(const struct tm_event *e) {
	switch (TM_OP_CLASS(e->op)) {
	case TM_CLASS_REALLOC:
	case TM_CLASS_REMAP: return 2;
	case TM_CLASS_TEXT: return 0;
	default: return 1;
	}
}

static int take_events(struct tm_flight *f, struct tm_cursor payload) {
	uint64_t watermark_ns, segments;
	struct tm_segment s;
	tm_get_events_header(&payload, &watermark_ns, &segments);
	for (; segments && !payload.bad; segments--) {
		if (tm_decode_segment(f->decoder, &payload, &s) != 0) return -1;
		uint32_t process = tm_flight_meta_process(&f->meta, s.thread);
		if (!process) return -1;
		for (size_t i = 0; i < s.count; i++) {
			f->events += count_of(&s.events[i]);
			f->bytes += s.events[i].size;
			if (s.events[i].op == TM_OP_OOM && s.events[i].addr > f->meta.last_refusal) f->meta.last_refusal = s.events[i].addr;
		}
		tm_flight_set_add(f->set, process, (uint32_t)s.thread, s.events, s.count);
	}
	if (watermark_ns > f->watermark_ns) f->watermark_ns = watermark_ns;
	f->watermark_ns = tm_flight_set_advance(f->set, f->watermark_ns);
	return payload.bad ? -1 : 0;
}

static int take_payload(struct tm_flight *f, uint8_t kind, struct tm_cursor payload) {
	switch (kind) {
	case TM_CHUNK_META:
	case TM_CHUNK_NAMES: return tm_flight_meta_records(&f->meta, f->set, payload);
	case TM_CHUNK_STACKS: return tm_flight_meta_stacks(&f->meta, payload);
	case TM_CHUNK_EVENTS: return take_events(f, payload);
	default: return 0;
	}
}

/* The oldest chunk that is not taken yet. 0 or an errno. */
static int take_chunk(struct tm_flight *f) {
	struct tm_chunk_header h;
	struct tm_cursor payload;
	int result = read_chunk(f, f->taken, &h);
	if (result) return result;
	if (tm_unpack(&f->unpacker, &h, f->chunk.data + TM_CHUNK_HEADER_BYTES, &payload) != 0) return EIO;
	if (take_payload(f, h.kind, payload) != 0) return EIO;
	f->taken += f->chunk.size;
	f->read_bytes += f->chunk.size;
	return 0;
}

/* --- writing anew --- */

static void put_story(struct tm_flight *f, struct tm_bytes *b, uint64_t events, uint64_t bytes) {
	char number[24], text[512];
	struct tm_loss loss = { .ns = f->watermark_ns, .kind = tm_text_of("dropped"), .count = events, .bytes = bytes };
	loss.reason = tm_text_of("the oldest events were dropped to keep the trace within --max-size; what is live of them stayed");
	snprintf(number, sizeof number, "%llu", (unsigned long long)f->watermark_ns);
	tm_put_info(b, tm_text_of("window_start_ns"), tm_text_of(number));
	if (events) tm_put_loss(b, &loss);
	snprintf(text, sizeof text,
		 "every event since %.3f s after the start is here; of those before it only what was live then: counts, sums and lifetimes "
		 "cover no more than that, and a peak is that of the window",
		 (double)f->watermark_ns / 1e9);
	tm_put_note(b, &(struct tm_note){ .ns = f->watermark_ns, .kind = tm_text_of("flight"), .text = tm_text_of(text) });
	if (f->meta.talk_left_out) {
		snprintf(text, sizeof text, "of the time before the window there are %zu more notes and alerts than the file has room for",
			 f->meta.talk_left_out);
		tm_put_note(b, &(struct tm_note){ .ns = f->watermark_ns, .kind = tm_text_of("flight"), .text = tm_text_of(text) });
	}
	if (!f->meta.forgotten) return;
	snprintf(text, sizeof text, "of %zu process%s that ended before the window, what was held at the end is not here",
		 f->meta.forgotten, f->meta.forgotten == 1 ? "" : "es");
	tm_put_note(b, &(struct tm_note){ .ns = f->watermark_ns, .kind = tm_text_of("flight"), .text = tm_text_of(text) });
}

static int write_story(struct tm_flight *f, struct tm_writer *next) {
	uint64_t events = f->events, bytes = f->bytes;
	struct tm_bytes b = TM_BYTES_INIT;
	for (size_t i = 0; i < f->list.count; i++) {
		const struct tm_flight_event *e = &f->list.events[i];
		bool is_part = i && e[-1].thread == e->thread && e[-1].number == e->number; /* made by an unmap of what lay before it */
		unsigned n = is_part ? 1 : count_of(&e->event);
		events -= n < events ? n : events;
		bytes -= e->event.size < bytes ? e->event.size : bytes;
	}
	put_story(f, &b, events, bytes);
	f->dropped_events = events;
	int result = b.failed ? TM_CHUNK_NO_MEMORY : tm_writer_add_chunk(next, TM_CHUNK_META, b.data, b.size);
	tm_bytes_release(&b);
	return result;
}

/* From `first` on, events of one thread. */
static size_t segment_at(const struct tm_flight_list *list, size_t first) {
	size_t n = 1;
	while (first + n < list->count && n < SEGMENT_EVENTS && list->events[first + n].thread == list->events[first].thread) n++;
	return n;
}

/* A time never runs backwards: clocks of two cores may have put a scope's end a little before what another thread did in it. */
static void put_segment(struct tm_flight *f, size_t first, size_t n, struct tm_event *events) {
	const struct tm_flight_event *from = &f->list.events[first];
	uint64_t last_ns = 0;
	for (size_t i = 0; i < n; i++) {
		events[i] = from[i].event;
		if (events[i].time_ns < last_ns) events[i].time_ns = last_ns;
		last_ns = events[i].time_ns;
	}
	tm_encode_segment(f->encoder, &f->payload, from->thread, events[0].time_ns, events, n);
}

static int write_events_chunk(struct tm_flight *f, struct tm_writer *next, uint64_t segments) {
	struct tm_bytes whole = TM_BYTES_INIT;
	tm_put_events_header(&whole, 0, segments);
	tm_put_raw(&whole, f->payload.data, f->payload.size);
	int result = whole.failed || f->payload.failed ? TM_CHUNK_NO_MEMORY
						       : tm_writer_add_chunk(next, TM_CHUNK_EVENTS, whole.data, whole.size);
	tm_bytes_release(&whole);
	tm_bytes_clear(&f->payload);
	return result ? result : tm_writer_flush(next);
}

static int write_events(struct tm_flight *f, struct tm_writer *next) {
	struct tm_event *events = tm_memory_new(SEGMENT_EVENTS, sizeof *events);
	uint64_t segments = 0;
	int result = 0;
	for (size_t first = 0, n; !result && first < f->list.count; first += n) {
		n = segment_at(&f->list, first);
		put_segment(f, first, n, events);
		segments++;
		if (f->payload.size < EVENTS_PAYLOAD_MAX && first + n < f->list.count) continue;
		result = write_events_chunk(f, next, segments);
		segments = 0;
	}
	free(events);
	return result;
}

/* The chunks that are not taken, as they are. */
static int copy_rest(struct tm_flight *f, struct tm_writer *next) {
	struct tm_chunk_header h;
	uint64_t end = f->writer->bytes;
	for (uint64_t at = f->taken; at < end; at += f->chunk.size) {
		int result = read_chunk(f, at, &h);
		if (result) return -result;
		tm_writer_add_packed(next, f->chunk.data, f->chunk.size);
		if (next->pending.size >= COPIED_BYTES && (result = tm_writer_flush(next)) != 0) return result;
	}
	return tm_writer_flush(next);
}

static int fill(struct tm_flight *f, struct tm_writer *next) {
	tm_flight_set_list(f->set, &f->list);
	int result = tm_flight_meta_write(&f->meta, &f->list, f->read_bytes, next);
	if (!result) result = write_story(f, next);
	if (!result) result = write_events(f, next);
	if (!result) result = tm_writer_flush(next);
	f->kept_bytes = next->bytes;
	return result ? result : copy_rest(f, next);
}

/* The file that a symbolic link leads to is written anew, beside itself; the link stays. */
static void leave_link(struct tm_writer *w) {
	struct stat file;
	char *real = lstat(w->path, &file) == 0 && S_ISLNK(file.st_mode) ? realpath(w->path, NULL) : NULL;
	if (!real) return;
	free(w->path);
	w->path = real;
}

/* PATH.ring, or PATH.ring2 and so on: nobody asked for what is there to be overwritten, nor for a link to be followed. To be freed. */
static char *path_beside(const char *path, unsigned number) {
	size_t size = strlen(path) + sizeof ".ring4294967295";
	char *beside = tm_memory_new(size, 1);
	if (number > 1) snprintf(beside, size, "%s.ring%u", path, number);
	else snprintf(beside, size, "%s.ring", path);
	return beside;
}

static bool is_taken(int result) {
	return result == -EEXIST || result == -EISDIR;
}

/* Both take up to ATTEMPTS to find their directory, and return 0 or -errno. */
static int open_beside(struct tm_writer *w, struct tm_writer *next) {
	int result = -ENOENT;
	unsigned number = 1;
	for (unsigned attempts = 0; (result == -ENOENT || is_taken(result)) && attempts < ATTEMPTS; attempts++) {
		tm_writer_follow(w);
		leave_link(w);
		char *path = path_beside(w->path, number);
		result = tm_writer_open(next, path, false);
		number += is_taken(result);
		if (result < 0) {
			tm_writer_close(next);
			free(path);
		}
	}
	return result;
}

/* The new file in the place of the old one, wherever their directory has been moved to meanwhile. *fd reads it. */
static int put_in_place(struct tm_writer *w, struct tm_writer *next, int *fd) {
	int result = -ENOENT;
	for (unsigned attempts = 0; result == -ENOENT && attempts < ATTEMPTS; attempts++) {
		tm_writer_follow(w);
		tm_writer_follow(next);
		if (*fd < 0) *fd = open(next->path, O_RDONLY | O_CLOEXEC);
		result = *fd >= 0 && rename(next->path, w->path) == 0 ? 0 : -errno;
	}
	return result;
}

/* 0 or an errno. The old file stays where anything fails. */
static int write_anew(struct tm_flight *f) {
	struct tm_writer next;
	int result = open_beside(f->writer, &next), fd = -1;
	if (result < 0) return -result;
	result = fill(f, &next);
	if (!result) result = put_in_place(f->writer, &next, &fd);
	if (!result) {
		close(f->fd);
		f->fd = fd;
		f->taken = f->kept_bytes;
		tm_writer_take_over(f->writer, &next);
	} else {
		if (fd >= 0) close(fd);
		tm_writer_follow(&next);
		tm_writer_discard(&next);
	}
	free(next.path);
	return result == TM_CHUNK_NO_MEMORY || result == TM_CHUNK_BAD_HEADER ? ENOMEM : -result;
}

/* --- threads that a group names --- */

/* Of a record; 0 none. */
static uint64_t thread_of(const struct tm_meta *m) {
	switch (m->tag) {
	case TM_RECORD_THREAD_END: return m->thread_end.thread;
	case TM_RECORD_THREAD_NAME: return m->thread_name.thread;
	case TM_RECORD_MARK: return m->mark.record.thread;
	case TM_RECORD_LOSS: return m->loss.thread;
	default: return 0;
	}
}

void tm_flight_tell_again(struct tm_flight *f, const struct tm_group *g, struct tm_bytes *out) {
	for (size_t i = 0; i < g->thread_count; i++) tm_flight_meta_tell_again(&f->meta, g->threads[i], out);
	for (size_t i = 0; i < g->meta_count; i++) tm_flight_meta_tell_again(&f->meta, thread_of(&g->meta[i]), out);
}

static void keep_threads(struct tm_flight *f, const struct tm_group *g) {
	uint64_t until = f->read_bytes + f->writer->bytes + f->writer->pending.size - f->taken;
	for (size_t i = 0; i < g->thread_count; i++) tm_flight_meta_names(&f->meta, g->threads[i], until);
	for (size_t i = 0; i < g->meta_count; i++)
		if (thread_of(&g->meta[i])) tm_flight_meta_names(&f->meta, thread_of(&g->meta[i]), until);
}

/* --- the bound --- */

/* How much of the newest chunks stays. */
static uint64_t window_bytes(const struct tm_flight *f) {
	uint64_t least = f->limit_bytes / 8, kept = f->kept_bytes > f->limit_bytes ? f->limit_bytes : f->kept_bytes;
	uint64_t half = (f->limit_bytes - kept) / 2;
	if (f->kept_bytes / 6 > least) least = f->kept_bytes / 6;
	return half > least ? half : least;
}

static uint64_t bound_bytes(const struct tm_flight *f) {
	uint64_t needed = f->kept_bytes + 2 * window_bytes(f);
	return needed > f->limit_bytes ? needed : f->limit_bytes;
}

/* All chunks but the last `window` bytes go into the set. 0 or an errno. */
static int take_until(struct tm_flight *f, uint64_t window) {
	int result = 0;
	while (!result && f->taken + window < f->writer->bytes) result = take_chunk(f);
	return result;
}

static int rewrite(struct tm_flight *f, uint64_t window) {
	int result = take_until(f, window);
	if (result) return result;
	tm_flight_meta_forget(&f->meta, f->set, f->watermark_ns);
	return write_anew(f);
}

static bool fits(const struct tm_flight *f) {
	return f->writer->bytes + f->writer->pending.size <= bound_bytes(f);
}

/* What is live of the chunks that go may take more room than was thought: then all of them go. */
void tm_flight_make_room(struct tm_flight *f, const struct tm_group *g) {
	struct tm_writer *w = f->writer;
	keep_threads(f, g);
	if (w->error || !w->bytes || fits(f)) return;
	uint64_t left = bound_bytes(f) - f->kept_bytes, coming = w->pending.size, window = window_bytes(f);
	if (window + coming > left) window = left > coming ? left - coming : 0;
	int result = rewrite(f, window);
	if (!result && !fits(f)) result = rewrite(f, 0);
	if (result && !w->error) w->error = result;
}

void tm_flight_turn(struct tm_flight *f) {
	struct tm_writer *w = f->writer;
	int result = w->error ? 0 : take_until(f, window_bytes(f));
	if (result && !w->error) w->error = result;
}
