/* merge.c - the events of all threads in the order of time; see merge.h. */
#include "merge.h"

#define TIME_MAX (1ull << 60) /* so that a key, 4 * time + rank, fits 64 bits */
#define KEY_NONE UINT64_MAX

enum { RANK_ALLOCATION = 0, RANK_RELEASE = 2 };

struct tm_stream {
	struct tm_batch_segment *segment, *last; /* the one being read, and the newest */
	size_t at;                               /* of the segment's events */
	bool second;                             /* the event's release is out, its allocation is next */
	uint64_t key;                            /* of the next step; KEY_NONE: there is none */
};

int tm_merge_init(struct tm_merge *m, size_t thread_count) {
	*m = (struct tm_merge){ .thread_count = thread_count };
	m->streams = calloc(thread_count + 1, sizeof *m->streams);
	m->queue = calloc(thread_count + 1, sizeof *m->queue);
	for (size_t i = 0; m->streams && i < thread_count; i++) m->streams[i].key = KEY_NONE;
	return m->streams && m->queue ? 0 : -1;
}

static void close_segment(struct tm_batch_segment *s) {
	if (--s->batch->open_segments == 0) tm_batch_free(s->batch);
}

void tm_merge_release(struct tm_merge *m) {
	for (size_t i = 0; m->streams && i < m->thread_count; i++) {
		for (struct tm_batch_segment *s = m->streams[i].segment, *next; s; s = next) {
			next = s->next;
			close_segment(s);
		}
	}
	free(m->streams);
	free(m->queue);
	*m = (struct tm_merge){ 0 };
}

static const struct tm_event *event_of(const struct tm_stream *s) {
	return &s->segment->batch->events.items[s->segment->first + s->at];
}

static bool releases(const struct tm_event *e, bool second) {
	switch (TM_OP_CLASS(e->op)) {
	case TM_CLASS_FREE:
	case TM_CLASS_UNMAP: return true;
	case TM_CLASS_REALLOC:
	case TM_CLASS_REMAP: return !second;
	default: return false;
	}
}

static bool has_two_steps(const struct tm_event *e) {
	return TM_OP_CLASS(e->op) == TM_CLASS_REALLOC || TM_OP_CLASS(e->op) == TM_CLASS_REMAP;
}

static uint64_t stamp_of(const struct tm_event *e, bool release) {
	uint64_t ns = release ? e->begin_ns : e->time_ns;
	return ns < TIME_MAX ? ns : TIME_MAX;
}

static uint64_t key_of(const struct tm_stream *s) {
	const struct tm_event *e = event_of(s);
	bool release = releases(e, s->second);
	return stamp_of(e, release) * 4 + (release ? RANK_RELEASE : RANK_ALLOCATION);
}

static bool before(const struct tm_merge *m, uint32_t a, uint32_t b) {
	return m->streams[a].key < m->streams[b].key || (m->streams[a].key == m->streams[b].key && a < b);
}

static void sift_down(struct tm_merge *m, size_t i) {
	uint32_t moved = m->queue[i];
	for (size_t child; (child = 2 * i + 1) < m->queued; i = child) {
		if (child + 1 < m->queued && before(m, m->queue[child + 1], m->queue[child])) child++;
		if (!before(m, m->queue[child], moved)) break;
		m->queue[i] = m->queue[child];
	}
	m->queue[i] = moved;
}

static void enqueue(struct tm_merge *m, uint32_t thread) {
	size_t i = m->queued++;
	for (size_t up; i && before(m, thread, m->queue[up = (i - 1) / 2]); i = up) m->queue[i] = m->queue[up];
	m->queue[i] = thread;
}

void tm_merge_add(struct tm_merge *m, struct tm_batch *batch) {
	if (batch->watermark_ns > m->watermark_ns) m->watermark_ns = batch->watermark_ns;
	if (!batch->segments.count) {
		tm_batch_free(batch);
		return;
	}
	for (size_t i = 0; i < batch->segments.count; i++) {
		struct tm_batch_segment *segment = &batch->segments.items[i];
		struct tm_stream *s = &m->streams[segment->thread - 1];
		segment->next = NULL;
		if (s->segment) {
			s->last = s->last->next = segment;
			continue;
		}
		s->segment = s->last = segment;
		s->at = 0;
		s->second = false;
		s->key = key_of(s);
		enqueue(m, segment->thread - 1);
	}
}

void tm_merge_end(struct tm_merge *m) {
	m->watermark_ns = UINT64_MAX;
}

/* Moves the stream on to its next step. */
static void advance(struct tm_stream *s) {
	if (has_two_steps(event_of(s)) && !s->second) {
		s->second = true;
	} else {
		s->second = false;
		if (++s->at == s->segment->count) {
			struct tm_batch_segment *done = s->segment;
			s->segment = done->next;
			s->at = 0;
			close_segment(done);
		}
	}
	s->key = s->segment ? key_of(s) : KEY_NONE;
}

static void advance_first(struct tm_merge *m) {
	uint32_t thread = m->queue[0];
	advance(&m->streams[thread]);
	if (m->streams[thread].key == KEY_NONE) m->queue[0] = m->queue[--m->queued];
	if (m->queued > 1) sift_down(m, 0);
	m->stepping = false;
}

bool tm_merge_next(struct tm_merge *m, struct tm_step *out) {
	if (m->stepping) advance_first(m);
	if (!m->queued) return false;
	const struct tm_stream *s = &m->streams[m->queue[0]];
	if (m->watermark_ns != UINT64_MAX && s->key / 4 >= m->watermark_ns) return false;
	const struct tm_event *e = event_of(s);
	bool release = releases(e, s->second);
	uint64_t stamp_ns = stamp_of(e, release);
	if (stamp_ns > m->now_ns) m->now_ns = stamp_ns;
	*out = (struct tm_step){ e, m->now_ns, stamp_ns, m->queue[0] + 1, release };
	m->stepping = true;
	return true;
}
