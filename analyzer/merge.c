/* merge.c - the events of all threads in the order of time; see merge.h. */
#include "merge.h"

#define KEY_NONE UINT64_MAX
#define LATE_STEPS 256 /* of a thread may stand before one that comes late: what it did within a slow call */

/* At equal times: what ends, what begins, then the instants that look at what is live. */
static const uint8_t ranks[] = { [TM_STEP_ALLOC] = 1, [TM_STEP_FREE] = 0,  [TM_STEP_MAP] = 1, [TM_STEP_UNMAP] = 0,
				 [TM_STEP_MARK] = 2,  [TM_STEP_SCOPE] = 2, [TM_STEP_GPU] = 2 };

struct tm_stream {
	struct tm_batch_segment *segment, *last; /* the one being read, and the newest */
	const struct tm_step *at, *end;          /* the next step, and the end of the segment's */
	uint64_t key;                            /* of the next step: 4 * time + rank (times are below 2^60); KEY_NONE: there is none */
};

int tm_merge_init(struct tm_merge *m, size_t thread_count) {
	*m = (struct tm_merge){ .thread_count = thread_count, .waiting_max = TM_MERGE_WAITING_MAX };
	m->streams = calloc(thread_count + 1, sizeof *m->streams);
	m->queue = calloc(thread_count + 1, sizeof *m->queue);
	for (size_t i = 0; m->streams && i < thread_count; i++) m->streams[i].key = KEY_NONE;
	return m->streams && m->queue ? 0 : -1;
}

int tm_merge_grow(struct tm_merge *m, size_t thread_count) {
	if (thread_count <= m->thread_count) return 0;
	size_t wanted = thread_count + thread_count / 2;
	struct tm_stream *streams = realloc(m->streams, (wanted + 1) * sizeof *streams);
	if (!streams) return -1;
	m->streams = streams;
	uint32_t *queue = realloc(m->queue, (wanted + 1) * sizeof *queue);
	if (!queue) return -1;
	m->queue = queue;
	for (size_t i = m->thread_count; i < wanted; i++) m->streams[i] = (struct tm_stream){ .key = KEY_NONE };
	m->thread_count = wanted;
	return 0;
}

static void close_segment(struct tm_batch_segment *s) {
	if (--s->batch->open_segments == 0) tm_batch_give_back(s->batch);
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

static uint64_t key_of(const struct tm_step *s) {
	return s->ns * 4 + ranks[s->kind];
}

static void open_segment(struct tm_stream *s, struct tm_batch_segment *segment) {
	s->segment = segment;
	s->at = segment ? segment->batch->steps.items + segment->first : NULL;
	s->end = segment ? s->at + segment->count : NULL;
	s->key = segment ? key_of(s->at) : KEY_NONE;
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

/* A mark looks at all that is live: it does so now. */
static void put_late_marks_off(const struct tm_merge *m, struct tm_batch *batch) {
	for (size_t i = 0; i < batch->steps.count; i++) {
		struct tm_step *s = &batch->steps.items[i];
		if (s->kind == TM_STEP_MARK && s->ns < m->early_ns) s->ns = m->early_ns;
	}
}

void tm_merge_add(struct tm_merge *m, struct tm_batch *batch) {
	if (m->early_ns > m->watermark_ns) put_late_marks_off(m, batch);
	if (batch->watermark_ns > m->watermark_ns) m->watermark_ns = batch->watermark_ns;
	if (!batch->segments.count) {
		tm_batch_give_back(batch);
		return;
	}
	for (size_t i = 0; i < batch->segments.count; i++) {
		struct tm_batch_segment *segment = &batch->segments.items[i];
		struct tm_stream *s = &m->streams[segment->thread - 1];
		uint64_t last_ns = batch->steps.items[segment->first + segment->count - 1].ns;
		segment->next = NULL;
		m->waiting += segment->count;
		if (last_ns > m->newest_ns) m->newest_ns = last_ns;
		if (s->segment) {
			s->last = s->last->next = segment;
			continue;
		}
		s->last = segment;
		open_segment(s, segment);
		enqueue(m, segment->thread - 1);
	}
}

void tm_merge_end(struct tm_merge *m) {
	m->watermark_ns = UINT64_MAX;
}

/* Moves the stream on to its next step. */
static void advance(struct tm_stream *s) {
	if (++s->at < s->end) {
		s->key = key_of(s->at);
		return;
	}
	struct tm_batch_segment *done = s->segment;
	open_segment(s, done->next);
	close_segment(done);
}

static void advance_first(struct tm_merge *m) {
	uint32_t thread = m->queue[0];
	advance(&m->streams[thread]);
	if (m->streams[thread].key == KEY_NONE) m->queue[0] = m->queue[--m->queued];
	if (m->queued > 1) sift_down(m, 0);
	m->turning = false;
	m->waiting--;
}

static bool is_promised(const struct tm_merge *m, uint64_t ns) {
	return m->watermark_ns == UINT64_MAX || ns + m->hold_ns < m->watermark_ns;
}

/* Somebody stands still, and the others have gone too far to be kept waiting. Where nothing was ever promised the events are what a ring's trace begins with:
 * each thread's on its own, and bounded by what was live. */
static bool is_overdue(const struct tm_merge *m, uint64_t ns) {
	if (!m->watermark_ns) return false;
	return m->waiting > m->waiting_max || (m->patience_ns && ns + m->patience_ns < m->newest_ns);
}

bool tm_merge_next(struct tm_merge *m, struct tm_turn *out) {
	if (m->turning) advance_first(m);
	if (!m->queued) return false;
	const struct tm_stream *s = &m->streams[m->queue[0]];
	if (!is_promised(m, s->key / 4)) {
		if (!is_overdue(m, s->key / 4)) return false;
		if (s->at->ns > m->early_ns) m->early_ns = s->at->ns;
	}
	if (s->at->ns > m->now_ns) m->now_ns = s->at->ns;
	*out = (struct tm_turn){ s->at, s->end, m->now_ns, m->queue[0] + 1 };
	m->turning = true;
	return true;
}

struct search {
	uint64_t address, until_ns, late_ns;
	tm_merge_test *test;
	void *context;
};

static bool stream_has(const struct tm_stream *s, uint32_t thread, const struct search *w) {
	const struct tm_step *at = s->at, *end = s->end;
	unsigned behind = 0;
	for (const struct tm_batch_segment *segment = s->segment; segment;) {
		for (; at < end; at++) {
			if (at->ns > w->late_ns || (at->ns > w->until_ns && ++behind > LATE_STEPS)) return false;
			if (at->ns <= w->until_ns && at->address == w->address && w->test(w->context, thread, at)) return true;
		}
		if (!(segment = segment->next)) return false;
		at = segment->batch->steps.items + segment->first;
		end = at + segment->count;
	}
	return false;
}

/* Of the streams in the heap below and at place i. */
static bool heap_has(const struct tm_merge *m, size_t i, const struct search *w) {
	if (i >= m->queued || m->streams[m->queue[i]].key / 4 > w->late_ns) return false;
	return stream_has(&m->streams[m->queue[i]], m->queue[i] + 1, w) || heap_has(m, 2 * i + 1, w) || heap_has(m, 2 * i + 2, w);
}

bool tm_merge_comes(const struct tm_merge *m, uint64_t address, uint64_t until_ns, uint64_t late_ns, tm_merge_test *test, void *context) {
	struct search w = { address, until_ns, late_ns, test, context };
	return heap_has(m, 0, &w);
}
