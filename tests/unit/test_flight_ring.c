/* test_flight_ring.c - a bounded file is a sound trace after each group, whatever was dropped of it.
 *
 * Goal: who is named in the file is told in it, once and before, also where something comes of a thread that ended long ago.
 * Method: groups made by hand, a second of trace time each, through encode.c; after each the file is read from its beginning.
 */
#include "check.h"

#include "../../recorder/collector/encode.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define THREADS 8u
#define STEP_NS 1000000000u
#define LIMIT_BYTES (128u << 10)

struct world {
	char path[64];
	struct tm_writer writer;
	struct tm_encoder_thread encoder;
	struct tm_encoder *events;
	uint64_t now_ns;
	struct check_random random;
};

static void start(struct world *w) {
	memset(w, 0, sizeof *w);
	w->now_ns = STEP_NS;
	strcpy(w->path, "/tmp/test_flight.XXXXXX");
	close(mkstemp(w->path));
	CHECK(tm_writer_open(&w->writer, strdup(w->path), true) == 0 && tm_writer_flush(&w->writer) == 0);
	tm_encoder_start(&w->encoder, &w->writer);
	w->encoder.flight = tm_flight_new(&w->writer, LIMIT_BYTES);
	w->events = tm_encoder_new();
	CHECK(w->encoder.flight && w->events);
}

static void end(struct world *w) {
	CHECK(w->writer.error == 0);
	tm_flight_free(w->encoder.flight);
	tm_encoder_release(&w->encoder);
	tm_encoder_free(w->events);
	tm_writer_close(&w->writer);
	free(w->writer.path);
	unlink(w->path);
}

/* --- a group --- */

static struct tm_group *begin(struct world *w) {
	struct tm_group *g = tm_encoder_take(&w->encoder);
	g->time_map = (struct tm_time_map){ .knots[0].rate = 1ull << TM_RATE_BITS, .count = 1, .end_ticks = UINT64_MAX };
	return g;
}

static void add_thread(struct tm_group *g, uint32_t id) {
	tm_group_add(g, TM_RECORD_THREAD_START)->thread_start = (struct tm_thread_start){ id, 1, 100 + id, 1 };
}

static void add_end(struct world *w, struct tm_group *g, uint32_t id) {
	tm_group_add(g, TM_RECORD_THREAD_END)->thread_end = (struct tm_thread_end){ id, w->now_ns };
}

/* n blocks that are freed at once, at places that do not compress. */
static void churn(struct world *w, struct tm_bytes *segments, struct tm_group *g, uint32_t thread, size_t n) {
	struct tm_event *events = calloc(2 * n, sizeof *events);
	for (size_t i = 0; i < 2 * n; i++) {
		uint64_t address = i % 2 ? events[i - 1].addr : check_random_next(&w->random) >> 20 << 4, ns = w->now_ns + i;
		events[i] = (struct tm_event){
			.op = i % 2 ? TM_OP_FREE : TM_OP_MALLOC, .time_ns = ns, .begin_ns = ns, .usable = TM_USABLE_UNKNOWN
		};
		if (i % 2) events[i].old = address;
		else events[i].addr = address, events[i].size = 16;
	}
	tm_encode_segment(w->events, segments, thread, w->now_ns, events, 2 * n);
	g->threads = realloc(g->threads, (g->thread_count + 1) * sizeof g->threads[0]);
	g->threads[g->thread_count++] = thread;
	g->thread_capacity = g->thread_count;
	g->event_count += 2 * n;
	free(events);
}

static void submit(struct world *w, struct tm_group *g, struct tm_bytes *segments) {
	tm_put_events_header(&g->payload, w->now_ns, g->thread_count);
	tm_put_raw(&g->payload, segments->data, segments->size);
	tm_encoder_write_now(&w->encoder, g);
	tm_bytes_release(segments);
	tm_group_release(g);
	w->now_ns += STEP_NS;
}

/* --- the file, read from its beginning --- */

struct told {
	bool threads[THREADS];
	size_t events[THREADS];
};

static void look_at_record(struct told *t, uint64_t tag, struct tm_cursor *body) {
	uint64_t id;
	if (tag == TM_RECORD_THREAD_START) {
		id = tm_get_thread_start(body).id;
		if (CHECK(id < THREADS && !t->threads[id])) t->threads[id] = true;
	}
	if (tag == TM_RECORD_THREAD_END) {
		id = tm_get_thread_end(body).thread;
		CHECK(id < THREADS && t->threads[id]);
	}
}

static void look_at_events(struct told *t, struct tm_decoder *decoder, struct tm_cursor payload) {
	uint64_t watermark_ns, segments;
	struct tm_segment s;
	for (tm_get_events_header(&payload, &watermark_ns, &segments); segments; segments--) {
		if (!CHECK(tm_decode_segment(decoder, &payload, &s) == 0 && s.thread < THREADS && t->threads[s.thread])) return;
		t->events[s.thread] += s.count;
	}
}

static struct told look(const struct world *w) {
	struct told t = { 0 };
	struct tm_bytes file = TM_BYTES_INIT;
	struct tm_unpacker unpacker;
	struct tm_decoder *decoder = tm_decoder_new();
	struct tm_chunk_header h;
	struct tm_cursor payload, body;
	struct stat status;
	uint64_t tag;
	int fd = open(w->path, O_RDONLY);
	CHECK(fd >= 0 && fstat(fd, &status) == 0 && tm_bytes_reserve(&file, (size_t)status.st_size));
	CHECK(read(fd, file.data, (size_t)status.st_size) == status.st_size && tm_unpacker_init(&unpacker) == 0);
	for (size_t at = TM_FILE_HEADER_BYTES, size = (size_t)status.st_size; at < size; at += TM_CHUNK_HEADER_BYTES + h.stored_bytes) {
		if (!CHECK(tm_chunk_header_read(file.data + at, size - at, &h) == 0)) break;
		if (!CHECK(tm_unpack(&unpacker, &h, file.data + at + TM_CHUNK_HEADER_BYTES, &payload) == 0)) break;
		if (h.kind == TM_CHUNK_EVENTS) look_at_events(&t, decoder, payload);
		while (h.kind == TM_CHUNK_META && tm_record_next(&payload, &tag, &body)) look_at_record(&t, tag, &body);
	}
	close(fd);
	tm_unpacker_release(&unpacker);
	tm_decoder_free(decoder);
	tm_bytes_release(&file);
	return t;
}

/* --- stories --- */

/* Thread 2 ends at once; half a minute later, when nothing is left that names it, its last destructors go on, now and then, and it ends again. */
static void test_late_destructors(void) {
	struct world w;
	bool left_out = false, in_window = false;
	start(&w);
	for (unsigned i = 0; i < 120; i++) {
		struct tm_group *g = begin(&w);
		struct tm_bytes segments = TM_BYTES_INIT;
		if (i == 0)
			tm_group_add(g, TM_RECORD_PROCESS_START)->process_start = (struct tm_process_start){ .id = 1,
													     .pid = 101,
													     .start_ns = 1 };
		if (i == 0) add_thread(g, 1), add_thread(g, 2);
		if (i == 0 || (i > 28 && i < 60 && i % 3 == 2) || i == 90) churn(&w, &segments, g, 2, 3);
		if (i == 0 || i == 59 || i == 90) add_end(&w, g, 2);
		churn(&w, &segments, g, 1, 1200);
		submit(&w, g, &segments);
		struct told t = look(&w);
		left_out |= i > 20 && i < 28 && !t.threads[2];
		in_window |= i > 61 && t.events[2];
		if (i == 27) CHECK(!t.threads[2]);
		if (i == 29) CHECK(t.threads[2] && t.events[2] == 6);
		if (i == 119) CHECK(!t.threads[2]);
	}
	CHECK(left_out && in_window);
	CHECK(tm_flight_dropped_events(w.encoder.flight) > 100000);
	end(&w);
}

int main(void) {
	test_late_destructors();
	return check_report("flight_ring");
}
