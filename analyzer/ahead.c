/* ahead.c - decodes a trace's events, a few chunks ahead; see ahead.h. */
#include "ahead.h"

#include <pthread.h>

#define STEP_NS_MAX (1ull << 60)    /* 36 years: later is damage that a checksum cannot see */
#define STEP_BYTES_MAX (1ull << 47) /* an address space: more must not overflow sums */

struct tm_ahead {
	const struct tm_catalog *catalog;
	const struct tm_stack_ids *stacks;
	struct tm_reader *reader;
	struct tm_decoder *decoder;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct tm_batch *ready[TM_AHEAD_BATCHES];
	unsigned first, count;
	unsigned out;           /* batches that are being filled, wait, or are their taker's */
	bool wanted;            /* the taker waits for one */
	struct tm_batch *spare; /* given back, to be filled again */
	bool stopping;
	int result; /* TM_AHEAD_BATCH while more may come */
	uint64_t damaged_offset, bytes_done;
};

static void free_batch(struct tm_batch *b) {
	if (!b) return;
	tm_array_release(&b->segments);
	tm_array_release(&b->steps);
	free(b);
}

void tm_batch_give_back(struct tm_batch *b) {
	struct tm_ahead *a = b->home;
	if (!a) {
		free_batch(b);
		return;
	}
	pthread_mutex_lock(&a->lock);
	b->next_spare = a->spare;
	a->spare = b;
	a->out--;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
}

/* Waits while there are enough, so that how many there are follows from the trace and not from who is faster. */
static struct tm_batch *new_batch(struct tm_ahead *a, unsigned out_max) {
	pthread_mutex_lock(&a->lock);
	while (a->out >= out_max && !a->wanted && !a->stopping) pthread_cond_wait(&a->changed, &a->lock);
	a->out++;
	struct tm_batch *b = a->spare;
	if (b) a->spare = b->next_spare;
	pthread_mutex_unlock(&a->lock);
	if (!b) b = calloc(1, sizeof *b);
	if (!b) return NULL;
	b->home = a;
	b->segments.count = b->steps.count = b->open_segments = 0;
	return b;
}

static bool heap_is_sound(const struct tm_catalog *c, uint32_t heap, uint32_t process) {
	return !heap || (heap <= c->heaps.count && c->heaps.items[heap - 1].defined && c->heaps.items[heap - 1].process == process);
}

static bool is_sound(const struct tm_catalog *c, const struct tm_event *e, uint32_t process) {
	if (e->stack > c->nodes.count || e->text > c->strings.count) return false;
	if ((e->op == TM_OP_OOM || e->op == TM_OP_LAUNCH) && e->old > c->nodes.count) return false;
	if (e->op == TM_OP_OOM && !tm_catalog_oom_of(c, e->addr)) return false;
	return TM_OP_CLASS(e->op) == TM_CLASS_TEXT ? e->heap <= c->strings.count : heap_is_sound(c, e->heap, process);
}

static bool ids_are_sound(const struct tm_catalog *c, const struct tm_segment *s, uint32_t process) {
	for (size_t i = 0; i < s->count; i++) {
		if (!is_sound(c, &s->events[i], process)) return false;
	}
	return true;
}

/* The process of a thread, 0: there is no such thread. */
static uint32_t process_of(const struct tm_catalog *c, uint32_t thread) {
	return thread ? c->threads.items[thread - 1].process : 0;
}

static uint64_t bounded(uint64_t value, uint64_t limit) {
	return value < limit ? value : limit;
}

static uint32_t slack_of(const struct tm_event *e) {
	if (e->usable == TM_USABLE_UNKNOWN || e->usable < e->size || e->usable - e->size >= TM_SLACK_UNKNOWN) return TM_SLACK_UNKNOWN;
	return (uint32_t)(e->usable - e->size);
}

/* Steps are made where they will stand: copying them, just written, would wait for the writes. */
static void put_release(struct tm_step *out, const struct tm_event *e, enum tm_step_kind kind) {
	out->ns = bounded(e->begin_ns, STEP_NS_MAX);
	out->address = e->old;
	out->size_bytes = bounded(e->old_size, STEP_BYTES_MAX);
	out->stack = 0;
	out->heap = e->heap;
	out->slack = TM_SLACK_UNKNOWN;
	out->op = e->op;
	out->kind = (uint8_t)kind;
	out->follows = false;
}

static void put_allocation(struct tm_step *out, const struct tm_event *e, enum tm_step_kind kind, bool follows) {
	out->ns = bounded(e->time_ns, STEP_NS_MAX);
	out->address = e->addr;
	out->size_bytes = bounded(e->size, STEP_BYTES_MAX);
	out->stack = e->stack;
	out->heap = e->heap;
	out->slack = slack_of(e);
	out->op = e->op;
	out->kind = (uint8_t)kind;
	out->follows = follows;
}

static struct tm_step scope_step(const struct tm_event *e) {
	return (struct tm_step){ .ns = bounded(e->time_ns, STEP_NS_MAX),
				 .address = e->addr,
				 .size_bytes = e->old,
				 .stack = e->text,
				 .heap = e->heap,
				 .op = e->op,
				 .kind = TM_OP_IS_GPU(e->op) ? TM_STEP_GPU : TM_STEP_SCOPE };
}

/* Writes one or two steps; returns their end. */
static struct tm_step *put_steps(struct tm_step *out, const struct tm_event *e) {
	switch (TM_OP_CLASS(e->op)) {
	case TM_CLASS_ALLOC: put_allocation(out++, e, TM_STEP_ALLOC, false); break;
	case TM_CLASS_FREE: put_release(out++, e, TM_STEP_FREE); break;
	case TM_CLASS_REALLOC:
		put_release(out++, e, TM_STEP_FREE);
		put_allocation(out++, e, TM_STEP_ALLOC, true);
		break;
	case TM_CLASS_MAP: put_allocation(out++, e, TM_STEP_MAP, false); break;
	case TM_CLASS_UNMAP: put_release(out++, e, TM_STEP_UNMAP); break;
	case TM_CLASS_REMAP:
		put_release(out++, e, TM_STEP_UNMAP);
		put_allocation(out++, e, TM_STEP_MAP, true);
		break;
	case TM_CLASS_TEXT:
		*out++ = TM_OP_IS_SCOPE(e->op)
				 ? scope_step(e)
				 : (struct tm_step){
					   .ns = bounded(e->time_ns, STEP_NS_MAX), .address = e->text, .op = e->op, .kind = TM_STEP_MARK
				   };
		break;
	}
	return out;
}

static bool has_stack(const struct tm_step *s) {
	return (s->kind == TM_STEP_ALLOC || s->kind == TM_STEP_MAP) && s->stack;
}

/* Of a few steps, so that all they need is on its way when the first is looked at. */
static void find_stacks(const struct tm_stack_ids *t, struct tm_step *begin, const struct tm_step *end) {
	for (const struct tm_step *s = begin; s < end; s++) {
		if (!has_stack(s)) continue;
		__builtin_prefetch(&t->catalog->nodes.items[s->stack - 1]);
		__builtin_prefetch(&t->node_first[s->stack]);
	}
	for (struct tm_step *s = begin; s < end; s++)
		if (has_stack(s)) s->stack = tm_stack_of(t, s->stack);
}

/* Decodes a segment's events into steps, up to about so many or to its end (*ended); a few at a time, so that the events themselves never leave
 * the cache. There is room for twice as many steps as it has events, or for `most` and a few. stacks: NULL, their stacks stay nodes. */
static int append_steps(const struct tm_catalog *c, const struct tm_stack_ids *stacks, struct tm_decoder *decoder, struct tm_batch *b, uint32_t process,
			size_t most, bool *ended) {
	struct tm_step *end = b->steps.items + b->steps.count;
	struct tm_segment some = { 0 };
	int rc = 0;
	*ended = false;
	while ((size_t)(end - b->steps.items) < most && (rc = tm_decode_next(decoder, &some)) == 0) {
		if (!some.count) {
			*ended = true;
			break;
		}
		if (!ids_are_sound(c, &some, process)) return TM_AHEAD_DAMAGED;
		struct tm_step *first = end;
		for (size_t i = 0; i < some.count; i++) end = put_steps(end, &some.events[i]);
		if (stacks) find_stacks(stacks, first, end);
	}
	b->steps.count = (size_t)(end - b->steps.items);
	return rc == -2 ? TM_AHEAD_NO_MEMORY : rc ? TM_AHEAD_DAMAGED : TM_AHEAD_BATCH;
}

static int add_segment(struct tm_batch *b, uint32_t thread, size_t first) {
	struct tm_batch_segment *segment = tm_array_push(&b->segments);
	if (!segment) return TM_AHEAD_NO_MEMORY;
	*segment = (struct tm_batch_segment){ .batch = b, .thread = thread, .first = first, .count = b->steps.count - first };
	return TM_AHEAD_BATCH;
}

/* A segment without a step is none. */
static int decode_segment(const struct tm_catalog *c, const struct tm_stack_ids *stacks, struct tm_decoder *decoder, struct tm_cursor *payload,
			  struct tm_batch *b) {
	struct tm_segment all;
	bool ended;
	size_t first = b->steps.count;
	int rc = tm_decode_begin(decoder, payload, &all);
	uint32_t thread = tm_catalog_thread_of(c, all.thread), process = process_of(c, thread);
	if (rc == -2 || !tm_array_reserve(&b->steps, first + 2 * all.count)) return TM_AHEAD_NO_MEMORY;
	if (rc || !process) return TM_AHEAD_DAMAGED;
	if ((rc = append_steps(c, stacks, decoder, b, process, SIZE_MAX, &ended)) != TM_AHEAD_BATCH || b->steps.count == first) return rc;
	return add_segment(b, thread, first);
}

static int decode_segments(struct tm_batch *b, const struct tm_catalog *c, const struct tm_stack_ids *stacks, struct tm_decoder *decoder,
			   struct tm_cursor *payload) {
	uint64_t segments;
	tm_get_events_header(payload, &b->watermark_ns, &segments);
	if (payload->bad) return TM_AHEAD_DAMAGED;
	for (uint64_t i = 0; i < segments; i++) {
		int rc = decode_segment(c, stacks, decoder, payload, b);
		if (rc != TM_AHEAD_BATCH) return rc;
	}
	b->open_segments = b->segments.count;
	return payload->p == payload->end ? TM_AHEAD_BATCH : TM_AHEAD_DAMAGED;
}

int tm_batch_decode(struct tm_batch *b, const struct tm_catalog *c, struct tm_decoder *decoder, struct tm_cursor *payload) {
	return decode_segments(b, c, NULL, decoder, payload);
}

/* false: nobody wants more. */
static bool hand_over(struct tm_ahead *a, struct tm_batch *b, int result) {
	pthread_mutex_lock(&a->lock);
	while (a->count == TM_AHEAD_BATCHES && !a->stopping) pthread_cond_wait(&a->changed, &a->lock);
	bool stopping = a->stopping;
	if (!stopping && b) a->ready[(a->first + a->count++) % TM_AHEAD_BATCHES] = b;
	a->wanted = false;
	if (!b) a->result = result;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
	if (stopping && b) free_batch(b);
	return !stopping;
}

/* Hands over a segment's next steps; TM_AHEAD_END behind the last ones, or if nobody wants more. */
static int decode_piece(struct tm_ahead *a, const struct tm_segment *all, uint64_t watermark_ns) {
	struct tm_batch *b = new_batch(a, TM_AHEAD_PIECES_OUT_MAX);
	uint32_t thread = tm_catalog_thread_of(a->catalog, all->thread), process = process_of(a->catalog, thread);
	bool ended = false;
	if (!b || !tm_array_reserve(&b->steps, TM_AHEAD_PIECE_STEPS + 2 * TM_DECODE_EVENTS)) return free_batch(b), TM_AHEAD_NO_MEMORY;
	int rc = process ? append_steps(a->catalog, a->stacks, a->decoder, b, process, TM_AHEAD_PIECE_STEPS, &ended) : TM_AHEAD_DAMAGED;
	if (rc == TM_AHEAD_BATCH && b->steps.count) rc = add_segment(b, thread, 0);
	if (rc != TM_AHEAD_BATCH) return free_batch(b), rc;
	b->open_segments = b->segments.count;
	b->watermark_ns = watermark_ns;
	b->bytes_done = a->bytes_done;
	return hand_over(a, b, rc) && !ended ? TM_AHEAD_BATCH : TM_AHEAD_END;
}

/* The one segment of a chunk, in a trace of one thread. */
static int decode_pieces(struct tm_ahead *a, struct tm_cursor *payload, uint64_t watermark_ns) {
	struct tm_segment all;
	int rc = tm_decode_begin(a->decoder, payload, &all);
	if (rc) return rc == -2 ? TM_AHEAD_NO_MEMORY : TM_AHEAD_DAMAGED;
	while ((rc = decode_piece(a, &all, watermark_ns)) == TM_AHEAD_BATCH) continue;
	return rc != TM_AHEAD_END ? rc : payload->p == payload->end ? TM_AHEAD_BATCH : TM_AHEAD_DAMAGED;
}

static int decode_whole(struct tm_ahead *a, struct tm_cursor *payload, uint64_t watermark_ns) {
	struct tm_batch *b = new_batch(a, TM_AHEAD_OUT_MAX);
	if (!b) return TM_AHEAD_NO_MEMORY;
	b->watermark_ns = watermark_ns;
	b->bytes_done = a->bytes_done;
	int rc = payload ? decode_segments(b, a->catalog, a->stacks, a->decoder, payload) : TM_AHEAD_BATCH;
	if (rc != TM_AHEAD_BATCH) free_batch(b);
	else hand_over(a, b, rc);
	return rc;
}

static int decode_chunk(struct tm_ahead *a, const struct tm_catalog_stop *stop) {
	struct tm_chunk_header h;
	struct tm_cursor payload, head;
	uint64_t watermark_ns, segments;
	if (!tm_reader_at(a->reader, stop->offset, &h)) return TM_AHEAD_DAMAGED;
	int rc = tm_reader_payload(a->reader, &h, &payload);
	if (rc) return rc == TM_CHUNK_NO_MEMORY ? TM_AHEAD_NO_MEMORY : TM_AHEAD_DAMAGED;
	head = payload;
	tm_get_events_header(&head, &watermark_ns, &segments);
	bool is_alone = !head.bad && segments == 1 && a->catalog->threads.count == 1;
	return is_alone ? decode_pieces(a, &head, watermark_ns) : decode_whole(a, &payload, stop->watermark_ns);
}

static int decode_stop(struct tm_ahead *a, const struct tm_catalog_stop *stop) {
	a->bytes_done += stop->stored_bytes;
	int rc = stop->offset ? decode_chunk(a, stop) : decode_whole(a, NULL, stop->watermark_ns);
	if (rc != TM_AHEAD_BATCH) a->damaged_offset = stop->offset;
	return rc;
}

static bool is_stopping(struct tm_ahead *a) {
	pthread_mutex_lock(&a->lock);
	bool stopping = a->stopping;
	pthread_mutex_unlock(&a->lock);
	return stopping;
}

static void *decode_all(void *argument) {
	struct tm_ahead *a = argument;
	int rc = TM_AHEAD_END;
	for (size_t i = 0; i < a->catalog->stops.count && !is_stopping(a); i++) {
		rc = decode_stop(a, &a->catalog->stops.items[i]);
		if (rc != TM_AHEAD_BATCH) break;
		rc = TM_AHEAD_END;
	}
	hand_over(a, NULL, rc);
	return NULL;
}

struct tm_ahead *tm_ahead_start(const struct tm_catalog *catalog, const struct tm_stack_ids *stacks, struct tm_reader *reader) {
	struct tm_ahead *a = calloc(1, sizeof *a);
	if (!a) return NULL;
	*a = (struct tm_ahead){ .catalog = catalog, .stacks = stacks, .reader = reader, .decoder = tm_decoder_new(), .result = TM_AHEAD_BATCH };
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->changed, NULL);
	if (a->decoder && pthread_create(&a->thread, NULL, decode_all, a) == 0) return a;
	pthread_mutex_destroy(&a->lock);
	pthread_cond_destroy(&a->changed);
	tm_decoder_free(a->decoder);
	free(a);
	return NULL;
}

int tm_ahead_next(struct tm_ahead *a, struct tm_batch **out, uint64_t *damaged_offset) {
	int result = TM_AHEAD_BATCH;
	pthread_mutex_lock(&a->lock);
	while (!a->count && a->result == TM_AHEAD_BATCH) {
		a->wanted = true;
		pthread_cond_broadcast(&a->changed);
		pthread_cond_wait(&a->changed, &a->lock);
	}
	if (a->count) {
		*out = a->ready[a->first];
		a->first = (a->first + 1) % TM_AHEAD_BATCHES;
		a->count--;
		pthread_cond_broadcast(&a->changed);
	} else {
		result = a->result;
		*damaged_offset = a->damaged_offset;
	}
	pthread_mutex_unlock(&a->lock);
	return result;
}

void tm_ahead_stop(struct tm_ahead *a) {
	if (!a) return;
	pthread_mutex_lock(&a->lock);
	a->stopping = true;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
	pthread_join(a->thread, NULL);
	while (a->count--) free_batch(a->ready[a->first++ % TM_AHEAD_BATCHES]);
	for (struct tm_batch *b = a->spare, *next; b; b = next) {
		next = b->next_spare;
		free_batch(b);
	}
	pthread_mutex_destroy(&a->lock);
	pthread_cond_destroy(&a->changed);
	tm_decoder_free(a->decoder);
	free(a);
}
