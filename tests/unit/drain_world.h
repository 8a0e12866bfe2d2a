/* drain_world.h - a collector without a command, whose guests the test plays, and its trace, read back and checked.
 *
 * Used by:  test_drain.c, test_module_order.c
 */
#ifndef TIDEMARK_TESTS_UNIT_DRAIN_WORLD_H
#define TIDEMARK_TESTS_UNIT_DRAIN_WORLD_H

#include "../../recorder/collector/collector.h"
#include "../../recorder/collector/controls.h"
#include "../../recorder/collector/drain.h"
#include "check.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- a collector without a command --- */

struct world {
	struct tm_collector c;
	char path[64];
};

static inline void world_start(struct world *w) {
	char error[256], *arguments[] = { (char *)"test", (char *)"--interval=0", (char *)"--ring=64K", (char *)"true", NULL };
	memset(w, 0, sizeof *w);
	strcpy(w->path, "/tmp/test_drain.XXXXXX");
	close(mkstemp(w->path));
	CHECK(tm_options_parse(&w->c.options, 4, arguments) == 0);
	tm_timebase_start(&w->c.timebase);
	CHECK(tm_session_open(&w->c.session, &w->c.options, &w->c.timebase, error, sizeof error) == 0);
	CHECK(tm_writer_open(&w->c.writer, strdup(w->path), true) == 0);
	CHECK(tm_writer_flush(&w->c.writer) == 0);
	tm_encoder_start(&w->c.encoder, &w->c.writer);
	tm_stack_tree_init(&w->c.stacks);
	CHECK(tm_drain_start(&w->c) == 0);
}

static inline void pass(struct world *w) {
	tm_drain_pass(&w->c);
	tm_processes_check(&w->c, false);
	tm_drain_close_group(&w->c, false);
}

static inline void world_finish(struct world *w) {
	tm_drain_finish(&w->c);
	tm_processes_finish(&w->c);
	tm_drain_finish(&w->c);
	tm_drain_close_group(&w->c, true);
	tm_encoder_stop(&w->c.encoder);
	CHECK(w->c.writer.error == 0);
	CHECK(tm_writer_close(&w->c.writer) == 0);
}

static inline void world_release(struct world *w) {
	struct tm_collector *c = &w->c;
	unlink(w->path);
	tm_drain_release(c);
	tm_tally_free(c->tally);
	tm_encoder_release(&c->encoder);
	tm_processes_release(&c->processes);
	tm_modules_release(&c->modules);
	tm_stack_tree_release(&c->stacks);
	tm_python_stacks_release(&c->python);
	tm_interned_release(c);
	tm_session_release(&c->session);
	free(c->writer.path);
}

/* --- a guest --- */

static inline struct tm_ring *claim(struct world *w, uint32_t index, uint32_t process, uint32_t pid, uint32_t thread) {
	struct tm_ring *ring = tm_session_ring(&w->c.session, index);
	ring->process = process;
	ring->pid = pid;
	ring->tid = pid + thread - 1;
	ring->thread = thread;
	ring->start_ticks = tm_timebase_ticks(&w->c.timebase);
	atomic_store(&ring->head, 0);
	atomic_store(&ring->tail, 0);
	atomic_store(&ring->busy, 0);
	atomic_store(&ring->state, TM_RING_ACTIVE);
	if (atomic_load(&w->c.session.shm->rings_used) <= index) atomic_store(&w->c.session.shm->rings_used, index + 1);
	return ring;
}

static inline void put(struct world *w, uint32_t index, const uint64_t *words, size_t n) {
	struct tm_ring *ring = tm_session_ring(&w->c.session, index);
	uint8_t *data = (uint8_t *)tm_session_ring_data(&w->c.session, index);
	uint64_t head = atomic_load(&ring->head);
	for (size_t i = 0; i < n; i++) memcpy(data + (head + i * 8) % w->c.session.ring_bytes, &words[i], 8);
	atomic_store(&ring->head, head + n * 8);
}

#define PUT(w, index, ...) put((w), (index), (const uint64_t[]){ __VA_ARGS__ }, sizeof((const uint64_t[]){ __VA_ARGS__ }) / 8)

static uint64_t now(struct world *w) {
	return tm_timebase_ticks(&w->c.timebase);
}

static inline void announce(struct world *w, uint32_t index, uint32_t pid, uint32_t parent) {
	PUT(w, index, tm_ring_word(TM_CTL_PROCESS, 0, 6, 0, 0), now(w), pid, 1, parent, 0);
}

static inline void allocate(struct world *w, uint32_t index, uint64_t addr, uint64_t size) {
	PUT(w, index, tm_ring_word(TM_OP_MALLOC, TM_RING_NO_STACK, 4, 0, (uint16_t)((size + 23) / 16 * 16 + 1)), now(w), addr, size); /* as glibc would */
}

static inline void release(struct world *w, uint32_t index, uint64_t addr) {
	PUT(w, index, tm_ring_word(TM_OP_FREE, TM_RING_NO_STACK, 3, 0, 0), now(w), addr);
}

/* --- the trace, read back and checked --- */

#define THREADS_MAX 4096u

struct trace {
	struct tm_event *events;
	uint32_t *threads; /* of each event */
	size_t count, capacity;
	uint64_t processes, thread_count, heaps, pools, strings, modules, frames, nodes, losses, lost, ends;
	uint64_t thread_end[64];
	char last_loss[32], unrecorded[256];
	struct tm_node nodes_by_id[64];
	struct tm_frame frames_by_id[64];
	struct tm_process_start process[64];
	char exe[64][16], string[64][16], heap_name[64][16];
	struct tm_heap heap[64];
	struct tm_pool_state pool; /* the last one */
	struct tm_process_end end[64];
	uint64_t watermark, last_ns[THREADS_MAX];
	struct tm_bytes file;
	bool sound;
};

static inline void read_record(struct trace *t, uint64_t tag, struct tm_cursor *body) {
	if (tag == TM_RECORD_PROCESS_START) {
		struct tm_process_start p = tm_get_process_start(body);
		CHECK(p.id == ++t->processes && p.parent_id < p.id);
		if (p.id < 64) t->process[p.id] = p;
		if (p.id < 64) snprintf(t->exe[p.id], sizeof t->exe[0], "%.*s", (int)p.exe.size, p.exe.data);
	}
	if (tag == TM_RECORD_THREAD_START) {
		struct tm_thread_start r = tm_get_thread_start(body);
		CHECK(r.id == ++t->thread_count && r.process >= 1 && r.process <= t->processes);
	}
	if (tag == TM_RECORD_THREAD_END) {
		struct tm_thread_end e = tm_get_thread_end(body);
		CHECK(e.thread >= 1 && e.thread <= t->thread_count);
		if (e.thread < 64) t->thread_end[e.thread] = e.ns;
	}
	if (tag == TM_RECORD_PROCESS_END) {
		struct tm_process_end e = tm_get_process_end(body);
		CHECK(e.process >= 1 && e.process <= t->processes);
		if (e.process < 64) t->end[e.process] = e;
		t->ends++;
	}
	if (tag == TM_RECORD_STRING) {
		struct tm_string r = tm_get_string_record(body);
		CHECK(r.id == ++t->strings);
		if (r.id < 64) snprintf(t->string[r.id], sizeof t->string[0], "%.*s", (int)r.bytes.size, r.bytes.data);
	}
	if (tag == TM_RECORD_HEAP) {
		struct tm_heap h = tm_get_heap(body);
		CHECK(h.id == ++t->heaps && h.parent < h.id && h.process >= 1 && h.process <= t->processes);
		if (h.id < 64) t->heap[h.id] = h;
		if (h.id < 64) snprintf(t->heap_name[h.id], sizeof t->heap_name[0], "%.*s", (int)h.name.size, h.name.data);
	}
	if (tag == TM_RECORD_POOL_STATE) {
		t->pool = tm_get_pool_state(body);
		t->pools++;
		CHECK(t->pool.heap >= 1 && t->pool.heap <= t->heaps);
	}
	if (tag == TM_RECORD_MODULE_LOAD) CHECK(tm_get_module_load(body).id == ++t->modules);
	if (tag == TM_RECORD_FRAME_MODULE) {
		struct tm_frame_module f = tm_get_frame_module(body);
		CHECK(f.frame <= t->frames && f.module <= t->modules);
	}
	if (tag == TM_RECORD_LOSS) {
		struct tm_loss l = tm_get_loss(body);
		t->losses++;
		t->lost += l.count;
		snprintf(t->last_loss, sizeof t->last_loss, "%.*s", (int)l.kind.size, l.kind.data);
	}
	if (tag == TM_RECORD_NOTE) {
		struct tm_note n = tm_get_note(body);
		if (tm_is_note(n.kind, "not-recordable"))
			snprintf(t->unrecorded, sizeof t->unrecorded, "%.*s", (int)n.text.size, n.text.data);
	}
	CHECK(!body->bad);
}

static inline void read_stacks(struct trace *t, struct tm_cursor *payload) {
	struct tm_stacks s = { 0 };
	CHECK(tm_get_stacks(payload, &s) == 0);
	CHECK(!s.frame_count || s.first_frame == t->frames + 1);
	CHECK(!s.node_count || s.first_node == t->nodes + 1);
	for (size_t i = 0; i < s.frame_count; i++)
		if (++t->frames < 64) t->frames_by_id[t->frames] = s.frames[i];
	for (size_t i = 0; i < s.node_count; i++) {
		CHECK(s.nodes[i].frame >= 1 && s.nodes[i].frame <= t->frames);
		if (++t->nodes < 64) t->nodes_by_id[t->nodes] = s.nodes[i];
	}
	tm_stacks_release(&s);
}

static inline void keep_event(struct trace *t, uint64_t thread, const struct tm_event *e) {
	if (t->count == t->capacity) {
		t->capacity = t->capacity ? t->capacity * 2 : 64;
		t->events = realloc(t->events, t->capacity * sizeof t->events[0]);
		t->threads = realloc(t->threads, t->capacity * sizeof t->threads[0]);
	}
	t->events[t->count] = *e;
	t->threads[t->count++] = (uint32_t)thread;
}

static inline void read_events(struct trace *t, struct tm_decoder *decoder, struct tm_cursor *payload) {
	uint64_t watermark, segments, before = t->watermark;
	struct tm_segment s;
	tm_get_events_header(payload, &watermark, &segments);
	CHECK(watermark >= before);
	for (uint64_t i = 0; i < segments && CHECK(tm_decode_segment(decoder, payload, &s) == 0); i++) {
		CHECK(s.thread >= 1 && s.thread <= t->thread_count);
		for (size_t k = 0; k < s.count; k++) {
			const struct tm_event *e = &s.events[k];
			uint64_t *last = &t->last_ns[s.thread % THREADS_MAX];
			bool sound = e->time_ns >= *last && e->begin_ns <= e->time_ns && e->begin_ns >= before && e->stack <= t->nodes &&
				     e->text <= t->strings && e->heap <= (TM_OP_IS_SCOPE(e->op) ? t->strings : t->heaps);
			CHECK(sound);
			*last = e->time_ns;
			keep_event(t, s.thread, e);
		}
	}
	t->watermark = watermark;
	CHECK(!payload->bad && payload->p == payload->end);
}

static inline void read_chunk(struct trace *t, struct tm_decoder *decoder, const struct tm_chunk_header *h, struct tm_cursor *payload) {
	struct tm_cursor body;
	uint64_t tag;
	if (h->kind == TM_CHUNK_META) {
		while (tm_record_next(payload, &tag, &body)) read_record(t, tag, &body);
		CHECK(!payload->bad);
	}
	if (h->kind == TM_CHUNK_STACKS) read_stacks(t, payload);
	if (h->kind == TM_CHUNK_EVENTS) read_events(t, decoder, payload);
}

static inline void read_trace(struct trace *t, const char *path) {
	struct stat file;
	uint16_t major, minor;
	struct tm_unpacker unpacker;
	struct tm_decoder *decoder = tm_decoder_new();
	uint32_t sequence = 0;
	int fd = open(path, O_RDONLY);
	memset(t, 0, sizeof *t);
	CHECK(fd >= 0 && fstat(fd, &file) == 0 && tm_bytes_reserve(&t->file, (size_t)file.st_size));
	t->file.size = (size_t)file.st_size;
	CHECK(read(fd, t->file.data, t->file.size) == (ssize_t)t->file.size);
	close(fd);
	CHECK(tm_file_header_read(t->file.data, t->file.size, &major, &minor) == 0);
	CHECK(tm_unpacker_init(&unpacker) == 0);
	for (size_t at = TM_FILE_HEADER_BYTES; at < t->file.size;) {
		struct tm_chunk_header h;
		struct tm_cursor payload;
		if (!CHECK(tm_chunk_header_read(t->file.data + at, t->file.size - at, &h) == 0)) break;
		CHECK(h.sequence == sequence++);
		at += TM_CHUNK_HEADER_BYTES;
		if (!CHECK(tm_unpack(&unpacker, &h, t->file.data + at, &payload) == 0)) break;
		read_chunk(t, decoder, &h, &payload);
		at += h.stored_bytes;
	}
	tm_unpacker_release(&unpacker);
	tm_decoder_free(decoder);
}

static inline void trace_release(struct trace *t) {
	free(t->events);
	free(t->threads);
	tm_bytes_release(&t->file);
}

static inline void finish_and_read(struct world *w, struct trace *t) {
	world_finish(w);
	read_trace(t, w->path);
	world_release(w);
}

#endif
