/* drain.c - reads every ring, again and again: see drain.h.
 *
 * The watermark. A thread sets `busy`, stamps, writes its record, moves `head`, clears `busy`. T is taken a little before a pass (a
 * store may linger in a processor for some time before we can see it). Where `busy` was 0 when it was read before `head`, everything
 * that the thread stamped until then is at or below `head`, and so has been read: the ring is safe until T. Where it was 1 an event is
 * on its way whose stamp is not below the last one that was read. A ring that is free or just being claimed is safe until T: its thread
 * stamps its first event after the claim. The watermark is the least of all, and never decreases.
 */
#include "drain.h"

#include "collector.h"
#include "controls.h"
#include "gpu_records.h"
#include "heap_table.h"
#include "memory.h"
#include "patience.h"
#include "ring_order.h"
#include "ring_stack.h"
#include "thread_table.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BLOCK_WORDS 2048u /* of a ring are copied and read at once: they and what they become stay in the nearest cache */
#define ADVANCE_BYTES (4u << 20) /* in the middle of a long pass, as often as that */
#define RECORD_WORDS_MAX 65535u
#define SCOPE_WORDS 4u /* word, ticks, key, link */
#define SLACK_NS 20000u        /* for stores that are on their way */
#define HOLD_NS 200000000u      /* how long a ring may wait for its process to announce itself */
#define GROUP_AGE_NS 800000000u /* with the time that encoding takes: nothing flushed is older than a second */
#define LOSS_INTERVAL_NS 1000000000u
#define HOUSEKEEPING_NS 200000000u
#define GIVE_BACK_NS 1000000000u /* a free ring keeps its pages so long, for the next thread */
#define GIVE_BACK_BYTES (64u << 10)
#define ADVANCES_IN_BOUND 4u /* of a bounded file: what is read between two takes a few times as much in a ring as in the file */
#define GROUPS_IN_BOUND 32u  /* of a bounded file, at least */
#define EVENT_BYTES 4u       /* about what an event takes in the file */
#define STALL_NS 5000000000u /* a writer that hangs for longer is not hidden from the guests any more */

/* --- losses --- */

static void add_loss(struct tm_collector *c, const struct tm_ring_view *r, const char *kind, uint64_t count, uint64_t bytes,
		     const char *reason) {
	if (r && r->process) tm_process_need_row(c, r->process);
	struct tm_meta *m = tm_group_add(c->group, TM_RECORD_LOSS);
	m->loss = (struct tm_loss){
		.process = r && r->process ? r->process->id : 0,
		.thread = r ? r->thread : 0,
		.ns = tm_timebase_ticks(&c->timebase),
		.kind = tm_group_text(c->group, kind, strlen(kind)),
		.count = count,
		.bytes = bytes,
		.reason = tm_group_text(c->group, reason, strlen(reason)),
	};
}

void tm_drain_add_loss(struct tm_collector *c, const struct tm_ring_view *r, const char *kind, uint64_t count, uint64_t bytes,
		       const char *reason) {
	add_loss(c, r, kind, count, bytes, reason);
	c->lost_events += count;
}

void tm_drain_add_lost_records(struct tm_collector *c, const struct tm_ring_view *r, const char *kind, uint64_t count, const char *reason) {
	add_loss(c, r, kind, count, 0, reason);
	c->lost_records += count;
}

/* The ring's counters only grow while it is claimed; what shrinks was scribbled over and is not believed. */
static void take_losses(struct tm_collector *c, struct tm_ring_view *r, struct tm_ring *ring, bool closing) {
	uint64_t events = atomic_load_explicit(&ring->lost_events, memory_order_relaxed);
	uint64_t bytes = atomic_load_explicit(&ring->lost_bytes, memory_order_relaxed);
	uint64_t nested = atomic_load_explicit(&ring->nested_lost, memory_order_relaxed);
	if (closing) nested += atomic_load_explicit(&ring->nested_kept, memory_order_relaxed);
	uint64_t records = atomic_load_explicit(&ring->lost_records, memory_order_relaxed);
	if (events == r->lost_events && nested == r->nested_lost && records == r->lost_records && !r->impossible_events) return;
	uint64_t now = tm_monotonic_ns();
	if (!closing && now - r->loss_written_ns < LOSS_INTERVAL_NS) return;
	r->loss_written_ns = now;
	if (events > r->lost_events)
		tm_drain_add_loss(c, r, "ring-full", events - r->lost_events, bytes > r->lost_bytes ? bytes - r->lost_bytes : 0,
				  c->options.sample_bytes
					  ? "the thread's buffer was full, or the table of the samples that live (a note says so then)"
					  : "the thread's buffer was full");
	if (nested > r->nested_lost)
		tm_drain_add_loss(
			c, r, "nested", nested - r->nested_lost, 0,
			"a signal handler made more calls inside one call than are kept, or ended the program in the middle of it");
	if (records > r->lost_records)
		tm_drain_add_lost_records(
			c, r, "records", records - r->lost_records,
			"no allocation or free, but scopes, marks, pools, NVTX's regions, ends of threads and the like: the thread's buffer "
			"was full, or a signal handler made them inside of a call that is recorded");
	if (r->impossible_events)
		tm_drain_add_loss(c, r, "impossible", r->impossible_events, 0,
				  "an address or a size that no block can have, from an allocator or a call of tidemark.h");
	r->impossible_events = 0;
	r->lost_events = events;
	r->lost_bytes = bytes;
	r->nested_lost = nested;
	r->lost_records = records;
}

static void take_unringed(struct tm_collector *c, bool closing) {
	uint64_t events = atomic_load(&c->session.shm->unringed_events);
	uint64_t now = tm_monotonic_ns();
	if (events <= c->unringed_events || (!closing && now - c->unringed_written_ns < LOSS_INTERVAL_NS)) return;
	c->unringed_written_ns = now;
	tm_drain_add_loss(c, NULL, "no-ring", events - c->unringed_events, 0,
			  "threads without a buffer: more of them than buffers, or begun behind a filter of system calls (seccomp)");
	c->unringed_events = events;
}

/* --- groups --- */

static void wait_for_encoder(struct tm_collector *c) {
	uint64_t since = tm_monotonic_ns();
	while (!tm_encoder_wait_for_room(&c->encoder, 20000000u)) {
		uint64_t waited_ns = tm_monotonic_ns() - since;
		if (waited_ns < STALL_NS) atomic_fetch_add(&c->session.shm->heartbeat, 1);
		if (c->while_waiting) c->while_waiting(c, waited_ns);
	}
}

static bool group_is_empty(const struct tm_group *g) {
	return !g->meta_count && !g->event_count && !g->activity_count && !g->frame_count && !g->nodes.count && !g->names.size;
}

/* Also where the file is bounded and small: a group is written whole or not at all. */
static bool group_is_large(const struct tm_collector *c) {
	uint64_t limit = c->options.max_size_bytes / GROUPS_IN_BOUND;
	return tm_group_is_full(c->group) || (limit && c->group->event_count * EVENT_BYTES >= limit);
}

void tm_drain_close_group(struct tm_collector *c, bool now) {
	struct tm_group *g = c->group;
	bool old = g->opened_ns && tm_monotonic_ns() - g->opened_ns > GROUP_AGE_NS;
	if (!now && !old && !group_is_large(c)) return;
	tm_alerts_collect(c);
	if (group_is_empty(g)) return;
	tm_timebase_follow(&c->timebase);
	g->time_map = c->timebase.map;
	tm_columns_finish(c, g);
	wait_for_encoder(c);
	c->group = tm_encoder_take(&c->encoder);
	tm_group_keep_segments(c->group, g);
	tm_encoder_submit(&c->encoder, g);
}

/* --- events --- */

#define LISTED 1u
static const uint8_t known_ops[256] = {
#define X(name, code, api) [code] = LISTED,
	TM_OPS(X)
#undef X
};

/* Ops of blocks that lie in a heap of their own; all others have the default one. */
static bool is_of_own_heap(uint8_t op) {
	if (TM_OP_CLASS(op) == TM_CLASS_ALLOC) return op >= TM_OP_HEAP_ALLOC && op != TM_OP_REALLOC_ALONE;
	if (TM_OP_CLASS(op) == TM_CLASS_FREE) return op >= TM_OP_HEAP_FREE;
	return op == TM_OP_PYTHON_REALLOC;
}

static struct tm_event *new_event(struct tm_collector *c, struct tm_ring_view *r) {
	struct tm_group *g = c->group;
	if (r->group_serial != g->serial) {
		r->segment = tm_columns_segment(c, r->thread, r->process->id);
		r->group_serial = g->serial;
	}
	struct tm_segment_buffer *s = &g->segments[r->segment];
	if (s->count == s->capacity) tm_columns_make_room(c, s);
	g->event_count++;
	return &s->events[s->count++];
}

static void need_heap(struct tm_collector *c, struct tm_process *p, uint32_t heap) {
	if (!(p->heaps & heap)) tm_process_need_heaps(c, p, heap);
}

static enum tm_default_heap heap_of(uint8_t op) {
	if (TM_OP_CLASS(op) < TM_CLASS_MAP) return TM_HEAP_MALLOC;
	return op == TM_OP_MMAP_FILE ? TM_HEAP_MMAP_FILE : TM_HEAP_MMAP;
}

/* Stamps that run backwards are raised when they become nanoseconds. */
static struct tm_event *stamped(struct tm_collector *c, struct tm_ring_view *r, uint8_t op, uint64_t ticks, uint64_t begin) {
	struct tm_event *e = new_event(c, r);
	c->group->text_count += TM_OP_CLASS(op) >= TM_CLASS_TEXT;
	c->group->double_count += TM_OP_CLASS(op) == TM_CLASS_REALLOC || TM_OP_CLASS(op) == TM_CLASS_REMAP;
	e->op = op;
	e->time_ns = ticks;
	e->begin_ns = begin < ticks ? begin : ticks;
	e->addr = e->size = e->old = e->old_size = 0;
	e->usable = TM_USABLE_UNKNOWN;
	e->stack = e->heap = e->text = 0;
	r->last_ticks = e->begin_ns > r->last_ticks ? e->begin_ns : r->last_ticks;
	r->end_ticks = ticks > r->end_ticks ? ticks : r->end_ticks;
	return e;
}

static bool size_is_sound(uint64_t size) {
	return size <= (uint64_t)INT64_MAX;
}

static bool take_text(struct tm_collector *c, struct tm_ring_view *r, const uint64_t *w, size_t n, uint8_t op, unsigned bytes) {
	if (bytes > TM_RING_TEXT_MAX || n != 2 + ((size_t)bytes + 7) / 8) return false;
	uint32_t text = bytes || op == TM_OP_MARK || op == TM_OP_SNAPSHOT ? tm_intern(c, (const char *)(w + 2), bytes) : 0;
	struct tm_heap_named heap = { 0 };
	if (op == TM_OP_RESET_PEAK) heap = tm_heap_named(c, r->process, (const char *)(w + 2), bytes);
	if (op == TM_OP_RESET_PEAK && !heap.known) return true; /* a heap that nobody has seen has no peak */
	if (op <= TM_OP_BASELINE) tm_pools_settle(c, r->process);
	struct tm_event *e = stamped(c, r, op, w[1], w[1]);
	e->text = text;
	e->addr = heap.which; /* both for the tally, and not written */
	e->heap = heap.id;
	c->marks += op == TM_OP_MARK;
	if (op <= TM_OP_BASELINE) tm_sampler_ask(&c->sampler, r->process->id);
	return true;
}

/* Scopes and steps; drain order does not matter to the category's name, which this ring has told. */
static bool take_scope(struct tm_collector *c, struct tm_ring_view *r, const uint64_t *w, size_t n, uint8_t op, uint32_t category, unsigned bytes) {
	if (bytes > TM_RING_TEXT_MAX || n != SCOPE_WORDS + ((size_t)bytes + 7) / 8) return false;
	bool named = op <= TM_OP_SCOPE_RANGE;
	uint32_t text = named ? tm_intern(c, (const char *)(w + SCOPE_WORDS), bytes) : 0;
	uint32_t category_text = tm_category_text(c, r->process, category);
	struct tm_event *e = stamped(c, r, op, w[1], w[1]);
	e->text = text;
	e->addr = w[2];
	e->old = w[3];
	e->heap = category_text;
	if (op == TM_OP_STEP) tm_pools_settle(c, r->process);
	if (op == TM_OP_STEP) tm_sampler_ask(&c->sampler, r->process->id);
	return true;
}

/* A refusal has a record of its own, written before the event that says when and where. No heap: that of malloc, mmap and the like, of their functions; a
 * device's is not known. */
static bool take_refusal(struct tm_collector *c, struct tm_ring_view *r, const uint64_t *w, size_t n, unsigned flags, unsigned keep, unsigned who) {
	uint32_t stack, text = who & TM_RING_FUNCTION ? tm_gpu_function_text(c, who & ~TM_RING_FUNCTION) : tm_gpu_op_text(c, who);
	bool is_host = !w[2] && TM_OP_CLASS(who) < TM_CLASS_TEXT && !TM_OP_IS_DRIVERS(who);
	char result[64] = "CUDA_ERROR_OUT_OF_MEMORY";
	const struct tm_own_heap *heap = NULL;
	if (n < TM_RING_OOM_WORDS || !text || (w[2] && !(heap = tm_heap_of_number(c, r->process, w[2])))) return false;
	if (!tm_ring_stack_take_past(c, r, flags, keep, w + TM_RING_OOM_WORDS, n - TM_RING_OOM_WORDS, w[4] >> 32, &stack)) return false;
	if (is_host) snprintf(result, sizeof result, "ENOMEM");
	else if ((uint32_t)w[4] != 2) snprintf(result, sizeof result, "CUDA error %u", (unsigned)w[4]);
	uint32_t heap_id = is_host ? tm_process_default_heap(c, r->process, heap_of((uint8_t)who)) : heap ? heap->id : 0;
	tm_pools_settle(c, r->process); /* what they held explains it */
	struct tm_meta *m = tm_group_add(c->group, TM_RECORD_OOM);
	m->oom = (struct tm_oom){ .id = ++c->refusals, .process = r->process->id, .heap = heap_id, .size_bytes = w[3] };
	m->oom.free_bytes = w[5] <= INT64_MAX ? (int64_t)w[5] : -1;
	m->oom.total_bytes = w[6] <= INT64_MAX ? (int64_t)w[6] : -1;
	m->oom.result = tm_group_text(c->group, result, strlen(result));
	struct tm_event *e = stamped(c, r, TM_OP_OOM, w[1], w[1]);
	e->text = text;
	e->addr = c->refusals;
	e->old = stack;
	tm_dumps_ask(c, is_host ? "memory was refused" : "a device refused memory", true);
	return true;
}

/* A launch by the driver's number of the function, or a use. */
static bool take_work(struct tm_collector *c, struct tm_ring_view *r, const uint64_t *w, size_t n, uint8_t op, unsigned function) {
	if (n != SCOPE_WORDS) return false;
	uint32_t text = op == TM_OP_LAUNCH ? tm_gpu_function_text(c, function) : 0;
	struct tm_event *e = stamped(c, r, op, w[1], w[1]);
	e->text = text;
	e->addr = w[2];
	e->old = w[3];
	if (op == TM_OP_LAUNCH) e->old = 0;
	return true;
}

/* The heap that a block lies in: `word` is its number where the record has one. false: it makes no sense. */
static inline bool take_heap(struct tm_collector *c, struct tm_ring_view *r, uint8_t op, unsigned flags, uint64_t word, uint32_t *id) {
	*id = 0;
	if (!(flags & TM_RING_HEAP)) {
		need_heap(c, r->process, heap_of(op));
		return true;
	}
	const struct tm_own_heap *heap = tm_heap_of_number(c, r->process, word);
	if (!heap) return false;
	*id = heap->id;
	return true;
}

/* What the program says of its pools, and an allocator that rounds a size up beyond all there is, may have any value: that costs one event, and its stack is
 * what the next one's goes on from. */
static inline bool is_impossible(struct tm_ring_view *r, uint64_t addr, uint64_t old, uint64_t size) {
	if (addr < TM_ADDRESS_LIMIT && old < TM_ADDRESS_LIMIT && size_is_sound(size)) return false;
	r->impossible_events++;
	return true;
}

/* One event; w is a copy of n words. false: it makes no sense. */
static inline bool take_event(struct tm_collector *c, struct tm_ring_view *r, const uint64_t *w, size_t n) {
	uint8_t op = (uint8_t)w[0];
	unsigned flags = (unsigned)(w[0] >> 8 & 0xff), keep = (unsigned)(w[0] >> 32 & 0xffff), y = (unsigned)(w[0] >> 48);
	unsigned class = TM_OP_CLASS(op), fixed, own = (flags & TM_RING_HEAP) != 0;
	uint32_t stack = 0, heap = 0;
	struct tm_event *e;
	if (own != is_of_own_heap(op)) return false;
	switch (class) {
	case TM_CLASS_ALLOC:
	case TM_CLASS_MAP:
		fixed = TM_RING_ALLOC_WORDS + own;
		if (n < fixed || !take_heap(c, r, op, flags, w[fixed - 1], &heap)) return false;
		if (!(TM_OP_IS_DRIVERS(op) ? tm_ring_stack_take_past(c, r, flags, keep, w + fixed, n - fixed, y, &stack)
					   : tm_ring_stack_take(c, r, flags, keep, w + fixed, n - fixed, &stack)))
			return false;
		if (is_impossible(r, w[2], 0, w[3])) return true;
		if (TM_OP_IS_DRIVERS(op)) y = TM_RING_USABLE_UNKNOWN;
		e = stamped(c, r, op, w[1], w[1]);
		break;
	case TM_CLASS_FREE:
		fixed = TM_RING_FREE_WORDS + own;
		if (n != fixed || !take_heap(c, r, op, flags, w[fixed - 1], &heap)) return false;
		if (is_impossible(r, 0, w[2], 0)) return true;
		e = stamped(c, r, op, w[1], w[1]);
		e->old = w[2];
		e->heap = heap;
		return true;
	case TM_CLASS_REALLOC:
		fixed = TM_RING_REALLOC_WORDS + own;
		if (n < fixed || !take_heap(c, r, op, flags, w[fixed - 1], &heap)) return false;
		if (!tm_ring_stack_take(c, r, flags, keep, w + fixed, n - fixed, &stack)) return false;
		if (is_impossible(r, w[2], w[5], w[3])) return true;
		e = stamped(c, r, op, w[1], w[4]);
		e->old = w[5];
		break;
	case TM_CLASS_UNMAP:
		if (n != TM_RING_UNMAP_WORDS || w[3] >= TM_ADDRESS_LIMIT || !size_is_sound(w[4])) return false;
		need_heap(c, r->process, heap_of(op));
		e = stamped(c, r, op, w[1], w[2]);
		e->old = w[3];
		e->old_size = w[4];
		return true;
	case TM_CLASS_REMAP:
		fixed = TM_RING_REMAP_WORDS;
		if (n < fixed || w[2] >= TM_ADDRESS_LIMIT || w[5] >= TM_ADDRESS_LIMIT || !size_is_sound(w[3]) || !size_is_sound(w[6]))
			return false;
		need_heap(c, r->process, heap_of(op));
		if (!tm_ring_stack_take(c, r, flags, keep, w + fixed, n - fixed, &stack)) return false;
		e = stamped(c, r, op, w[1], w[4]);
		e->old = w[5];
		e->old_size = w[6];
		break;
	default:
		if (op == TM_OP_OOM) return take_refusal(c, r, w, n, flags, keep, y);
		if (TM_OP_IS_GPU(op)) return take_work(c, r, w, n, op, y);
		return TM_OP_IS_SCOPE(op) ? take_scope(c, r, w, n, op, keep, y) : take_text(c, r, w, n, op, y);
	}
	e->addr = w[2];
	e->size = w[3];
	e->stack = stack;
	e->heap = heap;
	if (y != TM_RING_USABLE_UNKNOWN && class <= TM_CLASS_REALLOC) e->usable = tm_ring_usable(w[3], y);
	return true;
}

/* Rows that events refer to. */
static void prepare_for_events(struct tm_collector *c, struct tm_ring_view *r) {
	if (!r->thread) r->thread = tm_thread_id(c, r->process, r->thread_number, r->tid, r->start_ticks);
}

/* What a record is but for its op and y. */
#define SHAPE_MASK 0x0000ffffffffff00ull
#define SHAPE_NONE 1u

static inline uint64_t shape_of(unsigned flags, unsigned words, size_t keep) {
	return tm_ring_word(0, flags, words, (unsigned)keep, 0) & SHAPE_MASK;
}

/* The shape of an allocation from the stack of the one before, and that stack. */
struct again {
	uint64_t shape;
	uint32_t stack;
};

static inline struct again again_of(const struct tm_ring_view *r) {
	if (!r->path_known || !r->depth || r->known.current) return (struct again){ SHAPE_NONE, 0 };
	if (r->python.merged) return (struct again){ shape_of(TM_RING_PYTHON, TM_RING_ALLOC_WORDS, r->depth), r->python.merged };
	return (struct again){ r->stack ? shape_of(0, TM_RING_ALLOC_WORDS, r->depth) : SHAPE_NONE, r->stack };
}

/* Plain allocations and frees are nearly all there is: they are taken without detours, while nothing new has to be said about their thread. What their
 * classes do not use of an event is not written.
 * Returns the first record that is something else, later than `last`, or no good. */
static const uint64_t *take_usual(struct tm_collector *c, struct tm_ring_view *r, const uint64_t *w, const uint64_t *end, uint64_t last) {
	struct tm_group *g = c->group;
	if (!r->process || !r->thread || r->group_serial != g->serial || !(r->process->heaps & TM_HEAP_MALLOC)) return w;
	struct tm_segment_buffer *s = &g->segments[r->segment];
	struct again same = again_of(r);
	uint64_t ticks = 0;
	size_t count = s->count, taken = 0;
	while (end - w >= (ptrdiff_t)TM_RING_FREE_WORDS && w[2] < TM_ADDRESS_LIMIT && w[1] <= last) {
		uint64_t word = w[0], shape = word & SHAPE_MASK;
		unsigned op = (uint8_t)word, y = (unsigned)(word >> 48);
		if (count == s->capacity) {
			s->count = count;
			tm_columns_make_room(c, s);
			count = s->count;
		}
		struct tm_event *e = &s->events[count];
		if (shape == shape_of(TM_RING_NO_STACK, TM_RING_FREE_WORDS, 0) && op - TM_OP_FREE < TM_OP_HEAP_FREE - TM_OP_FREE) {
			e->old = w[2];
			e->time_ns = ticks = w[1];
			w += TM_RING_FREE_WORDS;
		} else {
			size_t n = word >> 16 & 0xffff;
			if (op >= TM_OP_HEAP_ALLOC || n < TM_RING_ALLOC_WORDS || n > (size_t)(end - w) || !size_is_sound(w[3])) break;
			if (shape == same.shape) {
				e->stack = same.stack;
			} else {
				unsigned flags = (unsigned)(word >> 8 & 0xff);
				c->stacks.event_ticks = w[1];
				if (flags & TM_RING_KNOWN) {
					e->stack = tm_ring_stack_known(r, word);
					same = (struct again){ SHAPE_NONE, 0 };
				} else {
					e->stack = tm_ring_stack_turn(c, r, word, w + TM_RING_ALLOC_WORDS);
					same = (struct again){ shape_of(flags, TM_RING_ALLOC_WORDS, r->depth), e->stack };
				}
				if (!e->stack) {
					if (flags & ~(TM_RING_NO_STACK | TM_RING_PYTHON | TM_RING_KNOWN | TM_RING_CUT)) break;
					size_t keep = word >> 32 & 0xffff, fresh = n - TM_RING_ALLOC_WORDS;
					if (!tm_ring_stack_take(c, r, flags, keep, w + TM_RING_ALLOC_WORDS, fresh, &e->stack)) break;
					same = again_of(r);
				}
			}
			e->addr = w[2];
			e->size = w[3];
			e->usable = y != TM_RING_USABLE_UNKNOWN ? tm_ring_usable(w[3], y) : TM_USABLE_UNKNOWN;
			e->time_ns = ticks = w[1];
			w += n;
		}
		e->op = (uint8_t)op;
		e->heap = 0;
		count++;
		taken++;
	}
	s->count = count;
	g->event_count += taken;
	if (ticks > r->last_ticks) r->last_ticks = ticks;
	if (ticks > r->end_ticks) r->end_ticks = ticks;
	return w;
}

enum stop { STOP_END, STOP_BAD, STOP_LATER };

/* Reads records out of the block. Returns how many words were taken, and what is behind them: the block's end, maybe in the middle of a record, one that
 * makes no sense, or one that is later than `last`. */
static size_t take_records(struct tm_collector *c, struct tm_ring_view *r, size_t words, uint64_t last, enum stop *stop) {
	const uint64_t *w = c->block, *end = w + words;
	*stop = STOP_END;
	tm_module_order_check_stack(r);
	while ((w = take_usual(c, r, w, end, last)) < end) {
		uint8_t op = (uint8_t)w[0];
		size_t n = w[0] >> 16 & 0xffff;
		bool control = TM_OP_CLASS(op) == TM_CLASS_RESERVED, sound;
		if (n == 0 || (op != TM_CTL_PAD && n < 2)) {
			*stop = STOP_BAD;
			break;
		}
		if (n > (size_t)(end - w)) break;
		if (op == TM_CTL_PAD) {
			w += n;
			continue;
		}
		if (w[1] > last) {
			*stop = STOP_LATER;
			break;
		}
		if (control) {
			sound = tm_control_take(c, r, w, n);
			tm_module_order_check_stack(r);
		} else {
			sound = known_ops[op] && r->process;
			if (sound) prepare_for_events(c, r);
			c->stacks.event_ticks = w[1];
			sound = sound && take_event(c, r, w, n);
		}
		if (!sound) {
			*stop = STOP_BAD;
			break;
		}
		w += n;
	}
	return (size_t)(w - c->block);
}

/* --- one ring --- */

static uint32_t index_of(const struct tm_collector *c, const struct tm_ring_view *r) {
	return (uint32_t)(r - c->rings);
}

static void copy_out(struct tm_collector *c, const struct tm_ring_view *r, size_t bytes) {
	const uint8_t *data = tm_session_ring_data(&c->session, index_of(c, r));
	uint64_t size = tm_session_ring_bytes(&c->session, index_of(c, r)), at = r->tail & (size - 1), to_end = size - at;
	size_t first = bytes < to_end ? bytes : (size_t)to_end;
	c->block = tm_memory_grow(c->block, &c->block_words, bytes / 8 + TM_RING_TURN_WORDS, sizeof c->block[0]);
	memcpy(c->block, data + at, first);
	memcpy((uint8_t *)c->block + first, data, bytes - first);
}

/* Who waits for room is woken when half of its ring is free: for a block at a time it would sleep and wake more than it works. It looks by itself, too, now
 * and then. */
static void set_tail(const struct tm_collector *c, struct tm_ring_view *r, struct tm_ring *ring, uint64_t tail) {
	r->used_bytes += tail - r->tail;
	r->tail = tail;
	atomic_store_explicit(&ring->tail, tail, memory_order_release);
	atomic_thread_fence(memory_order_seq_cst); /* a producer sets waiting, then looks at tail; we the other way round */
	if (!atomic_load_explicit(&ring->waiting, memory_order_relaxed)) return;
	if (atomic_load_explicit(&ring->head, memory_order_relaxed) - tail > tm_session_ring_bytes(&c->session, index_of(c, r)) / 2) return;
	if (atomic_exchange(&ring->waiting, 0)) tm_futex_wake(&ring->waiting);
}

static void skip_corrupt(struct tm_collector *c, struct tm_ring_view *r, struct tm_ring *ring, uint64_t head) {
	char reason[160];
	uint64_t bytes = head - r->tail, most = tm_session_ring_bytes(&c->session, index_of(c, r));
	if (bytes > most) bytes = most; /* its position made no sense either */
	uint64_t count = bytes / 32;
	snprintf(reason, sizeof reason, "%llu bytes of the thread's buffer made no sense; the number of events is an estimate",
		 (unsigned long long)bytes);
	tm_drain_add_loss(c, r, "corrupt-ring", count ? count : 1, 0, reason);
	tm_ring_stack_lose(r);
	r->text_bytes = 0;
	atomic_fetch_add_explicit(&ring->skips, 1, memory_order_relaxed); /* the thread sees it with the tail */
	set_tail(c, r, ring, head);
}

/* Reads a block of a ring, no further than `end`, and no event that is later than `last`. */
static void read_block(struct tm_collector *c, struct tm_ring_view *r, struct tm_ring *ring, uint64_t end, uint64_t last) {
	uint64_t left = end - r->tail;
	size_t limit = BLOCK_WORDS * 8, taken;
	enum stop stop;
	if (r->head - r->tail > tm_session_ring_bytes(&c->session, index_of(c, r)) || left % 8) {
		r->head &= ~7ull;
		skip_corrupt(c, r, ring, r->head);
		return;
	}
	for (;; limit = RECORD_WORDS_MAX * 8) { /* one record longer than a block */
		size_t bytes = left < limit ? (size_t)left : limit;
		copy_out(c, r, bytes);
		taken = take_records(c, r, bytes / 8, last, &stop);
		if (taken || stop != STOP_END || bytes == left || limit > BLOCK_WORDS * 8) break;
	}
	tm_session_put_away(&c->session, index_of(c, r), r->tail, r->tail + taken * 8);
	set_tail(c, r, ring, r->tail + taken * 8);
	if (group_is_large(c)) tm_drain_close_group(c, true);
	if (stop == STOP_BAD || (stop == STOP_END && !taken)) skip_corrupt(c, r, ring, r->head);
}

static void begin_claim(struct tm_collector *c, struct tm_ring_view *r, struct tm_ring *ring) {
	struct tm_ring_view old = *r;
	*r = (struct tm_ring_view){ .claimed = true,
				    .pcs = old.pcs,
				    .pc_capacity = old.pc_capacity,
				    .path = old.path,
				    .path_capacity = old.path_capacity,
				    .python = old.python,
				    .text = old.text,
				    .text_capacity = old.text_capacity,
				    .used_bytes = old.used_bytes };
	tm_python_ring_forget(&r->python);
	r->gpu_names = old.gpu_names;
	if (r->gpu_names) memset(r->gpu_names, 0, TM_RING_NAME_SLOTS * sizeof r->gpu_names[0]);
	r->number = ring->process;
	r->pid = ring->pid;
	r->tid = ring->tid;
	r->thread_number = ring->thread;
	r->start_ticks = ring->start_ticks;
	r->generation = atomic_load(&ring->generation);
	r->tail = atomic_load(&ring->tail) & ~7ull;
	r->safe_ticks = c->watermark_ticks;
	r->claimed_ns = r->quiet_since_ns = tm_monotonic_ns();
	r->path_known = true;
	r->process = tm_process_of_ring(c, r->number, r->pid);
}

/* Its thread has ended and everything is read: free for the next one. */
static void end_claim(struct tm_collector *c, struct tm_ring_view *r, struct tm_ring *ring) {
	take_losses(c, r, ring, true);
	bool alone = r->vanished || atomic_load(&ring->state) == TM_RING_CLOSED; /* the thread ended before its process did */
	if (r->thread && !r->thread_ended) tm_thread_left_ring(c, r->process, r->thread_number, alone, r->end_ticks);
	tm_ring_stack_end(r);
	r->claimed = false;
	r->process = NULL;
	r->freed_ns = tm_monotonic_ns();
	r->claimed_ns = 0;
	ring->pid = 0;
	atomic_store(&ring->busy, 0);
	atomic_store_explicit(&ring->state, TM_RING_FREE, memory_order_release);
}

/* The ring's process is not known while its announcement, in this ring or another, has not been read. True: read it now. */
static bool may_read(struct tm_collector *c, struct tm_ring_view *r, uint64_t head) {
	bool patient = !c->finishing && tm_monotonic_ns() - r->claimed_ns < HOLD_NS;
	if (!r->process) r->process = tm_process_of_ring(c, r->number, r->pid);
	if (r->process) return r->announces || !r->process->announcing || !patient;
	if (r->tail == head) return true;
	uint8_t first = tm_session_ring_data(&c->session, index_of(c, r))[r->tail & (tm_session_ring_bytes(&c->session, index_of(c, r)) - 1)];
	if (first == TM_CTL_PROCESS) return true;
	if (patient) return false;
	r->process = tm_process_attached(c, r->number, r->pid, 0, 0, r->start_ticks);
	return true;
}

/* A pass begins for this ring: how far is it to be read? */
static void look_at_ring(struct tm_collector *c, struct tm_ring_view *r, struct tm_ring *ring) {
	uint32_t state = atomic_load_explicit(&ring->state, memory_order_acquire);
	/* Read before head: what a dead thread or a closed ring holds does not grow any more. */
	r->over = state == TM_RING_CLOSED || r->vanished || (r->process && r->process->gone);
	r->busy = atomic_load_explicit(&ring->busy, memory_order_acquire) != 0 && !r->over;
	uint32_t modules_ended = atomic_load_explicit(&ring->modules_ended, memory_order_acquire);
	r->head = atomic_load_explicit(&ring->head, memory_order_acquire);
	r->readable = may_read(c, r, r->head);
	tm_module_order_look(c, r, ring, modules_ended); /* also where all that was told has been read */
	if (r->head == r->tail) return;
	r->quiet_since_ns = tm_monotonic_ns();
	r->next_ticks = r->order_ticks = tm_ring_next_ticks(&c->session, index_of(c, r), r->tail, r->head);
	tm_ring_order_add(&c->order, r);
}

/* No event that is not read was stamped before. */
uint64_t tm_drain_safe_until(const struct tm_ring_view *r, uint64_t now_ticks) {
	uint64_t safe = r->safe_ticks;
	if (r->tail != r->head && r->next_ticks > safe) safe = r->next_ticks;
	else if (r->tail == r->head && r->busy && r->last_ticks > safe) safe = r->last_ticks;
	else if (r->tail == r->head && !r->busy && r->readable) safe = now_ticks;
	return safe < now_ticks ? safe : now_ticks;
}

/* Everything below the watermark can go its way. */
static void advance(struct tm_collector *c, uint64_t now_ticks, uint32_t used) {
	uint64_t watermark = tm_watermark_without(c, NULL, now_ticks, used);
	if (watermark > c->watermark_ticks) c->watermark_ticks = watermark;
	tm_columns_settle(c);
	c->patient_ticks = tm_patient_ticks(c, now_ticks, used);
	tm_tally_advance(c->tally, tm_time_map_ns(&c->timebase.map, c->patient_ticks));
}

/* Reads a block of the first ring in the order, which finds its new place there, or leaves it where nothing more is to be read in this pass. */
static void read_first(struct tm_collector *c, struct tm_ring_view *r, uint64_t now_ticks) {
	uint64_t before = r->tail, end, last;
	r->readable = r->readable || may_read(c, r, r->head);
	if (!r->readable || !tm_module_order_may_read(c, r, now_ticks, &end, &last)) {
		tm_ring_order_drop_first(&c->order);
		return;
	}
	bool waits_again = r->modules.blocked;
	if (waits_again && c->finishing) last = UINT64_MAX;
	read_block(c, r, tm_session_ring(&c->session, index_of(c, r)), end, last);
	waits_again = waits_again && r->tail == before;
	if (r->tail != before) tm_module_order_went_on(c, r);
	if (r->tail == r->head || waits_again) {
		tm_ring_order_drop_first(&c->order);
		return;
	}
	r->next_ticks = r->order_ticks = tm_ring_next_ticks(&c->session, index_of(c, r), r->tail, r->head);
	if (r->tail == before) {
		r->modules.blocked = true;
		r->order_ticks = last + 2; /* behind the record that it waits for */
	}
	tm_ring_order_sink_first(&c->order);
}

/* Of a bounded file only what lies below the watermark can be dropped, so it must not stand still while much is written. */
static size_t advance_bytes(const struct tm_collector *c) {
	uint64_t most = c->options.max_size_bytes / ADVANCES_IN_BOUND;
	return most && most < ADVANCE_BYTES ? (size_t)most : ADVANCE_BYTES;
}

/* Reads all rings up to their heads, the oldest event first. The guests see a heartbeat with each block: who waits for room knows that its turn comes. */
static void read_rings(struct tm_collector *c, uint64_t now_ticks, uint32_t used) {
	size_t since = 0, apart = advance_bytes(c);
	struct tm_ring_view *r = tm_ring_order_first(&c->order);
	uint64_t alone = c->order.count == 1 ? tm_watermark_without(c, r, now_ticks, used) : 0;
	if (alone) tm_tally_alone_until(c->tally, r->thread, tm_time_map_ns(&c->timebase.map, r->next_ticks), tm_time_map_ns(&c->timebase.map, alone));
	else tm_tally_alone_until(c->tally, 0, 0, 0);
	while ((r = tm_ring_order_first(&c->order))) {
		uint64_t before = r->tail;
		read_first(c, r, now_ticks);
		atomic_fetch_add_explicit(&c->session.shm->heartbeat, 1, memory_order_relaxed);
		since += r->tail - before;
		if (since < apart) continue;
		advance(c, now_ticks, used);
		since = 0;
	}
}

/* The pass is over for this ring. */
static void conclude(struct tm_collector *c, struct tm_ring_view *r, struct tm_ring *ring, uint64_t now_ticks) {
	if (r->tail != r->head || !(r->readable || may_read(c, r, r->head))) return;
	r->readable = true;
	uint64_t safe = tm_drain_safe_until(r, now_ticks);
	if (safe > r->safe_ticks) r->safe_ticks = safe;
	take_losses(c, r, ring, false);
	if (r->over) end_claim(c, r, ring);
}

/* It only grows, whatever a program that ran wild wrote there. */
static uint32_t rings_used(struct tm_collector *c) {
	uint32_t used = atomic_load_explicit(&c->session.shm->rings_used, memory_order_acquire);
	if (used > c->session.ring_count) used = c->session.ring_count;
	if (used > c->rings_known) c->rings_known = used;
	return c->rings_known;
}

static int by_start(const void *a, const void *b) {
	const struct tm_ring_view *x = *(struct tm_ring_view *const *)a, *y = *(struct tm_ring_view *const *)b;
	return (x->start_ticks > y->start_ticks) - (x->start_ticks < y->start_ticks);
}

/* Takes up rings that were claimed before the pass began, in the order of their claims; and as rings are read in the order of their events, a process is
 * known before its children and before the image that takes its place, whatever rings they got. */
static void admit(struct tm_collector *c, uint32_t used, uint64_t began) {
	size_t count = 0;
	for (uint32_t i = 0; i < used; i++) {
		struct tm_ring_view *r = &c->rings[i];
		struct tm_ring *ring = tm_session_ring(&c->session, i);
		if (r->claimed) continue;
		uint32_t state = atomic_load_explicit(&ring->state, memory_order_acquire);
		if (state != TM_RING_ACTIVE && state != TM_RING_CLOSED) continue;
		if (!r->claimed_ns) r->claimed_ns = tm_monotonic_ns();
		if (ring->start_ticks > began && !c->finishing && tm_monotonic_ns() - r->claimed_ns < HOLD_NS) continue;
		c->admitted = tm_memory_grow(c->admitted, &c->admitted_capacity, count + 1, sizeof c->admitted[0]);
		c->admitted[count++] = r;
	}
	if (count > 1) qsort(c->admitted, count, sizeof c->admitted[0], by_start);
	for (size_t i = 0; i < count; i++) {
		struct tm_ring *ring = tm_session_ring(&c->session, index_of(c, c->admitted[i]));
		begin_claim(c, c->admitted[i], ring);
		look_at_ring(c, c->admitted[i], ring);
	}
}

enum tm_drained tm_drain_pass(struct tm_collector *c) {
	tm_timebase_follow(&c->timebase);
	uint64_t began = tm_timebase_ticks(&c->timebase);
	uint64_t now_ticks = tm_timebase_ticks_before_now(&c->timebase, SLACK_NS);
	uint32_t used = rings_used(c);
	enum tm_drained drained = TM_DRAINED_NOTHING;
	c->modules_wait = false;
	/* Known rings first: a thread that got a second ring has stamped nothing more in its first. */
	for (uint32_t i = 0; i < used; i++)
		if (c->rings[i].claimed) look_at_ring(c, &c->rings[i], tm_session_ring(&c->session, i));
	admit(c, used, began);
	c->fullest = 0;
	for (uint32_t i = 0; i < used; i++) {
		uint64_t held = c->rings[i].claimed ? c->rings[i].head - c->rings[i].tail : 0, bytes = tm_session_ring_bytes(&c->session, i);
		uint32_t part = (uint32_t)(held * 1024 / bytes);
		if (part > c->fullest) c->fullest = part;
		if (held && drained == TM_DRAINED_NOTHING) drained = TM_DRAINED_SOME;
		if (held >= bytes / 8) drained = TM_DRAINED_MUCH;
	}
	read_rings(c, now_ticks, used);
	for (uint32_t i = 0; i < used; i++)
		if (c->rings[i].claimed) conclude(c, &c->rings[i], tm_session_ring(&c->session, i), now_ticks);
	take_unringed(c, false);
	advance(c, now_ticks, used);
	tm_stats_answer(c);
	atomic_fetch_add(&c->session.shm->heartbeat, 1);
	return drained;
}

bool tm_drain_is_pressing(const struct tm_collector *c) {
	for (uint32_t i = 0; i < c->rings_known; i++) {
		const struct tm_ring_view *r = &c->rings[i];
		uint64_t head = atomic_load_explicit(&tm_session_ring(&c->session, i)->head, memory_order_acquire);
		if (r->claimed && head - r->tail >= tm_session_ring_bytes(&c->session, i) / 4) return true;
	}
	return false;
}

/* --- now and then --- */

/* A thread that ended without a word, while its process lives on: asked last, since all threads go when the process does. */
static void find_vanished_thread(struct tm_ring_view *r, uint64_t now) {
	struct tm_process *p = r->process;
	if (!p || p->gone || p->foreign || p->pidfd < 0 || !r->tid || p->exec.announced || now - r->quiet_since_ns < HOUSEKEEPING_NS)
		return;
	if (syscall(SYS_tgkill, r->pid, r->tid, 0) == 0 || errno != ESRCH) return;
	struct pollfd process = { .fd = p->pidfd, .events = POLLIN };
	if (poll(&process, 1, 0) == 0) r->vanished = true;
}

/* Claims the ring for the moment, so that no thread writes to the pages that go. */
static void give_back_pages(struct tm_collector *c, struct tm_ring_view *r, struct tm_ring *ring, uint64_t now) {
	uint32_t expected = TM_RING_FREE;
	if (r->used_bytes < GIVE_BACK_BYTES || now - r->freed_ns < GIVE_BACK_NS) return;
	if (!atomic_compare_exchange_strong(&ring->state, &expected, TM_RING_CLAIMED)) return;
	tm_session_ring_forget(&c->session, index_of(c, r));
	r->used_bytes = 0;
	atomic_store_explicit(&ring->state, TM_RING_FREE, memory_order_release);
}

/* A process that died between claiming a ring and filling in its header; while it lives the pid is not there yet, or its own. */
static void free_stuck_claim(const struct tm_collector *c, struct tm_ring_view *r, struct tm_ring *ring, uint64_t now) {
	uint32_t pid = ring->pid;
	if (!r->claimed_ns) r->claimed_ns = now;
	if (c->processes.foreign_seen) return; /* it may be a pid of another namespace */
	if (!pid || now - r->claimed_ns < GIVE_BACK_NS || kill((pid_t)pid, 0) == 0 || errno != ESRCH) return;
	r->claimed_ns = 0;
	ring->pid = 0;
	atomic_store_explicit(&ring->state, TM_RING_FREE, memory_order_release);
}

static void look_up_unknown_addresses(struct tm_collector *c) {
	for (size_t i = 0; i < c->processes.open_count && c->stacks.unknown_count; i++) {
		struct tm_process *p = c->processes.open[i];
		if (!p->id || p->dead || !tm_stack_tree_has_new_unknown(&c->stacks, p->id, 0, UINT64_MAX) || tm_module_order_is_told(c, p))
			continue;
		tm_module_look_up_maps(c, p);
		atomic_fetch_add_explicit(&c->session.shm->heartbeat, 1, memory_order_relaxed);
	}
}

void tm_drain_housekeeping(struct tm_collector *c) {
	uint64_t now = tm_monotonic_ns();
	if (now - c->housekeeping_ns < HOUSEKEEPING_NS) return;
	c->housekeeping_ns = now;
	uint32_t used = rings_used(c);
	for (uint32_t i = 0; i < used; i++) {
		struct tm_ring_view *r = &c->rings[i];
		struct tm_ring *ring = tm_session_ring(&c->session, i);
		uint32_t state = atomic_load_explicit(&ring->state, memory_order_acquire);
		if (r->claimed) find_vanished_thread(r, now);
		else if (state == TM_RING_FREE) give_back_pages(c, r, ring, now);
		else if (state == TM_RING_CLAIMED) free_stuck_claim(c, r, ring, now);
	}
	look_up_unknown_addresses(c);
	tm_alerts_collect(c); /* an idle program has readings, too, and is killed for its memory like any other */
	tm_threads_take_names(c, false);
	tm_stats_housekeeping(c);
}

/* --- beginning and end --- */

int tm_drain_start(struct tm_collector *c) {
	c->rings = tm_memory_new(c->session.ring_count, sizeof c->rings[0]); /* zero pages until a ring is used: not touched here */
	c->group = tm_encoder_take(&c->encoder);
	c->watermark_ticks = c->timebase.map.start_ticks;
	c->tally = tm_tally_new(c->options.sample_bytes);
	tm_alerts_start(c);
	return tm_columns_init(&c->columns);
}

void tm_drain_finish(struct tm_collector *c) {
	uint32_t used = rings_used(c);
	c->finishing = true;
	tm_drain_pass(c);
	for (uint32_t i = 0; i < used; i++)
		if (c->rings[i].claimed) take_losses(c, &c->rings[i], tm_session_ring(&c->session, i), true);
	take_unringed(c, true);
}

void tm_drain_release(struct tm_collector *c) {
	for (uint32_t i = 0; c->rings && i < c->rings_known; i++) {
		free(c->rings[i].pcs);
		free(c->rings[i].path);
		tm_ring_stack_end(&c->rings[i]);
		tm_python_ring_release(&c->rings[i].python);
		free(c->rings[i].text);
		free(c->rings[i].gpu_names);
	}
	free(c->rings);
	free(c->gpu_functions);
	free(c->admitted);
	tm_ring_order_release(&c->order);
	free(c->block);
	if (c->group) tm_group_release(c->group);
	tm_alerts_release(&c->alerts);
	tm_columns_release(&c->columns);
	c->rings = NULL;
	c->gpu_functions = NULL;
	c->admitted = NULL;
	c->block = NULL;
	c->group = NULL;
}
