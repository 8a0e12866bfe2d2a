/* foreign_snapshot.c - what torch.cuda.memory._dump_snapshot() wrote: the pool of PyTorch's allocator at one instant, and the history before it.
 *
 *     device_traces[N]   what device N's allocator did, oldest first: the last so many entries
 *     segments           the memory that it holds now, cut into blocks
 *
 * Idea:   the history alone begins in the middle. So the beginning is found by going back from the end: a block that is there now, or is freed in the
 *         history, and is not allocated in it, is older, and so is memory of the driver's. They are told as allocated at time 0, then the history.
 * Sizes:  a block's size is what was asked for. A block's end is free_requested (the tensor is gone: PyTorch's `allocated` falls); its memory is
 *         reused only from free_completed on (`active`), which `pool_state` has for the instant of the snapshot.
 * Times:  time_us where entries have it, else the entries' order, a microsecond apart. Entries of one microsecond are put a nanosecond apart.
 */
#include "foreign_input.h"
#include "foreign_pickle.h"
#include "foreign_readers.h"

#include <stdio.h>

#define BYTES_MAX (8ull << 30)
#define DEVICES_MAX 1024u
#define FIRST_NS 1000u /* of the history: what is older has 0 */
#define NS_A_US 1000u

enum action {
	ACTION_NONE,
	ACTION_ALLOC,
	ACTION_FREE_REQUESTED,
	ACTION_FREE_COMPLETED,
	ACTION_FREE, /* all that is told of an end */
	ACTION_MAP,
	ACTION_UNMAP,
	ACTION_OOM,
	ACTION_SNAPSHOT
};

struct entry {
	uint64_t address, size, us, order, device_free;
	uint32_t device, node;
	enum action action;
	bool is_piece; /* of a segment that can be extended */
};

struct span {
	uint64_t begin, end;
	bool is_piece;
};

/* A block that is live at the end, or the latest known of an address in the history. */
struct final_block {
	uint64_t address, size, requested;
	uint32_t device, node;
	bool seen; /* its allocation is in the history */
};

struct device {
	uint32_t heap, pool;                            /* cuda:N and torch.cuda:N; 0: not yet */
	uint64_t reserved, allocated, active, inactive; /* at the end */
	uint64_t now_reserved;
	TM_ARRAY(struct span) spans; /* going back from the end: what the driver had given */
};

struct reader {
	struct tm_foreign *f;
	struct tm_foreign_trace *t;
	struct tm_pickle p;
	struct tm_bytes data;
	uint32_t process, thread;
	TM_ARRAY(struct device) devices;
	TM_ARRAY(struct entry) entries;
	TM_ARRAY(struct final_block) blocks;
	struct tm_id_map block_ids; /* (address, device) -> 1 + its block */
	struct tm_id_map states;    /* (address, device) -> enum state */
	uint64_t first_us, ns, older, older_bytes, missing, missing_bytes;
	bool has_times;
};

enum state { STATE_LIVE = 1, STATE_GONE = 2 };

static int no_memory(struct reader *r) {
	return tm_foreign_fail(r->f, "out of memory");
}

static bool text_is(struct tm_text t, const char *word) {
	return t.size == strlen(word) && memcmp(t.data, word, t.size) == 0;
}

static struct device *device_of(struct reader *r, uint64_t number) {
	if (number >= DEVICES_MAX || !tm_array_extend(&r->devices, number + 1)) return NULL;
	struct device *d = &r->devices.items[number];
	if (d->heap) return d;
	char name[40];
	snprintf(name, sizeof name, "cuda:%u", (unsigned)number);
	d->heap = tm_foreign_heap(r->t, r->process, tm_text_of(name), "device", (int64_t)number, 0);
	snprintf(name, sizeof name, "torch.cuda:%u", (unsigned)number);
	d->pool = tm_foreign_heap(r->t, r->process, tm_text_of(name), "tensor", (int64_t)number, d->heap);
	return d;
}

/* --- stacks --- */

static bool ends_with(struct tm_text t, const char *end) {
	size_t n = strlen(end);
	return t.size >= n && memcmp(t.data + t.size - n, end, n) == 0;
}

/* C++ frames have files of C++, or none. */
static uint32_t frame_of(struct reader *r, struct tm_pickle_value v) {
	if (v.type != TM_PICKLE_DICT) return 0;
	if (v.list->mark) return (uint32_t)v.list->mark;
	struct tm_foreign_function function = { tm_pickle_text(tm_pickle_get(&r->p, v, "name")),
						tm_pickle_text(tm_pickle_get(&r->p, v, "filename")), 0 };
	uint64_t line = tm_pickle_number(tm_pickle_get(&r->p, v, "line"), 0);
	bool is_python = ends_with(function.file, ".py") || (function.file.size && function.file.data[0] == '<');
	if (line < INT32_MAX) function.line = (uint32_t)line;
	if (text_is(function.file, "??")) function.file = tm_text_of("");
	if (text_is(function.function, "??")) function.function = tm_text_of("");
	v.list->mark = tm_foreign_frame(r->t, is_python ? TM_FRAME_PYTHON : TM_FRAME_NATIVE, r->process, 0, 0, &function, 1);
	return (uint32_t)v.list->mark;
}

/* Frames come innermost first. */
static uint32_t stack_of(struct reader *r, struct tm_pickle_value frames) {
	const struct tm_pickle_list *list = tm_pickle_elements(frames);
	if (!list->count) return 0;
	if (frames.list->mark) return (uint32_t)frames.list->mark - 1;
	uint32_t node = 0;
	if (!tm_pickle_pay(&r->p, list->count)) return 0;
	for (uint32_t i = list->count; i-- > 0;) node = tm_foreign_node(r->t, node, frame_of(r, list->items[i]));
	frames.list->mark = (uint64_t)node + 1;
	return node;
}

/* --- the instant --- */

static int take_block(struct reader *r, uint32_t device, struct tm_pickle_value v, uint64_t address, uint64_t size) {
	struct tm_pickle_value frames = tm_pickle_get(&r->p, v, "frames");
	const struct tm_pickle_list *history = tm_pickle_elements(tm_pickle_get(&r->p, v, "history"));
	uint64_t requested = tm_pickle_size(tm_pickle_get(&r->p, v, "requested_size"), size);
	if (history->count && frames.type == TM_PICKLE_NONE) {
		frames = tm_pickle_get(&r->p, history->items[0], "frames");
		requested = tm_pickle_size(tm_pickle_get(&r->p, history->items[0], "real_size"), requested);
	}
	if (requested == TM_PICKLE_NO_SIZE)
		return tm_foreign_fail(r->f, "a live block with a size out of range at address 0x%llx", (unsigned long long)address);
	struct final_block *b = tm_array_push(&r->blocks);
	uint64_t *id = b ? tm_id_map_put(&r->block_ids, address, device) : NULL;
	if (!id) return no_memory(r);
	*b = (struct final_block){ address, size, requested, device, stack_of(r, frames), false };
	if (*id) return tm_foreign_fail(r->f, "two live blocks at address 0x%llx", (unsigned long long)address);
	*id = r->blocks.count;
	return 0;
}

static int add_span(struct reader *r, struct device *d, uint64_t begin, uint64_t end, bool is_piece) {
	struct span *s = tm_array_push(&d->spans);
	if (s) *s = (struct span){ begin, end, is_piece };
	return s ? 0 : no_memory(r);
}

static int take_segment(struct reader *r, struct tm_pickle_value v) {
	uint64_t number = tm_pickle_number(tm_pickle_get(&r->p, v, "device"), 0);
	struct device *d = device_of(r, number);
	uint64_t at = tm_pickle_address(tm_pickle_get(&r->p, v, "address")),
		 bytes = tm_pickle_size(tm_pickle_get(&r->p, v, "total_size"), 0);
	const struct tm_pickle_list *blocks = tm_pickle_elements(tm_pickle_get(&r->p, v, "blocks"));
	uint64_t allocated = 0, active = 0, inactive = 0;
	if (v.type != TM_PICKLE_DICT || !d) return tm_foreign_fail(r->f, "a segment that makes no sense");
	if (bytes == TM_PICKLE_NO_SIZE)
		return tm_foreign_fail(r->f, "a segment with a size out of range at address 0x%llx", (unsigned long long)at);
	if (!tm_pickle_pay(&r->p, blocks->count + 1)) return -1;
	d->reserved += bytes;
	bool is_piece = tm_pickle_number(tm_pickle_get(&r->p, v, "is_expandable"), 0);
	int rc = bytes ? add_span(r, d, at, at + bytes, is_piece) : 0;
	for (uint32_t i = 0; i < blocks->count && !rc; i++) {
		struct tm_pickle_value block = blocks->items[i];
		uint64_t size = tm_pickle_size(tm_pickle_get(&r->p, block, "size"), 0);
		struct tm_pickle_value told = tm_pickle_get(&r->p, block, "address");
		uint64_t address = told.type == TM_PICKLE_NONE ? at : tm_pickle_address(told);
		if (size == TM_PICKLE_NO_SIZE)
			return tm_foreign_fail(r->f, "a block with a size out of range at address 0x%llx", (unsigned long long)address);
		struct tm_text state = tm_pickle_text(tm_pickle_get(&r->p, block, "state"));
		if (text_is(state, "active_allocated")) rc = take_block(r, (uint32_t)number, block, address, size);
		if (text_is(state, "active_allocated")) allocated += size;
		if (text_is(state, "inactive")) inactive += size;
		else active += size;
		at = address + size;
	}
	/* Those that torch.profiler's memory timeline makes do not give the sums. */
	d->allocated += tm_pickle_number(tm_pickle_get(&r->p, v, "allocated_size"), allocated);
	d->active += tm_pickle_number(tm_pickle_get(&r->p, v, "active_size"), active);
	/* Memory that is whole can be given back, and so can what is free in a segment of pieces; what is split off cannot. */
	if (blocks->count > 1 && !is_piece) d->inactive += inactive;
	return rc;
}

static int take_segments(struct reader *r, struct tm_pickle_value segments) {
	const struct tm_pickle_list *list = tm_pickle_elements(segments);
	int rc = tm_pickle_pay(&r->p, list->count) ? 0 : -1;
	for (uint32_t i = 0; i < list->count && !rc; i++) rc = take_segment(r, list->items[i]);
	return rc;
}

/* --- the history --- */

static enum action action_of(struct tm_text text) {
	static const struct {
		const char *word;
		enum action action;
	} actions[] = { { "alloc", ACTION_ALLOC },
			{ "free_requested", ACTION_FREE_REQUESTED },
			{ "free_completed", ACTION_FREE_COMPLETED },
			{ "free", ACTION_FREE },
			{ "segment_alloc", ACTION_MAP },
			{ "segment_map", ACTION_MAP },
			{ "segment_free", ACTION_UNMAP },
			{ "segment_unmap", ACTION_UNMAP },
			{ "oom", ACTION_OOM },
			{ "snapshot", ACTION_SNAPSHOT } };
	for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
		if (text_is(text, actions[i].word)) return actions[i].action;
	return ACTION_NONE;
}

static int take_entry(struct reader *r, uint32_t device, struct tm_pickle_value v) {
	struct tm_text word = tm_pickle_text(tm_pickle_get(&r->p, v, "action"));
	enum action action = action_of(word);
	if (v.type != TM_PICKLE_DICT) return tm_foreign_fail(r->f, "an entry of a device's history that is no dictionary");
	if (action == ACTION_NONE) return 0;
	struct tm_pickle_value time = tm_pickle_get(&r->p, v, "time_us");
	struct entry *e = tm_array_push(&r->entries);
	if (!e) return no_memory(r);
	*e = (struct entry){ .address = tm_pickle_address(tm_pickle_get(&r->p, v, "addr")),
			     .size = tm_pickle_size(tm_pickle_get(&r->p, v, "size"), 0),
			     .us = tm_pickle_number(time, 0),
			     .order = r->entries.count,
			     .device_free = tm_pickle_number(tm_pickle_get(&r->p, v, "device_free"), UINT64_MAX),
			     .device = device,
			     .node = stack_of(r, tm_pickle_get(&r->p, v, "frames")),
			     .action = action,
			     .is_piece = text_is(word, "segment_map") || text_is(word, "segment_unmap") };
	if (e->size == TM_PICKLE_NO_SIZE)
		return tm_foreign_fail(r->f, "an entry '%.*s' of a device's history with a size out of range", (int)word.size, word.data);
	r->has_times &= time.type == TM_PICKLE_INT;
	return 0;
}

static int take_traces(struct reader *r, struct tm_pickle_value traces) {
	const struct tm_pickle_list *devices = tm_pickle_elements(traces);
	int rc = tm_pickle_pay(&r->p, devices->count) ? 0 : -1;
	for (uint32_t i = 0; i < devices->count && !rc; i++) {
		const struct tm_pickle_list *entries = tm_pickle_elements(devices->items[i]);
		if (entries->count && !device_of(r, i)) return tm_foreign_fail(r->f, "more than %u devices", DEVICES_MAX);
		if (!tm_pickle_pay(&r->p, entries->count)) return -1;
		for (uint32_t k = 0; k < entries->count && !rc; k++) rc = take_entry(r, i, entries->items[k]);
	}
	return rc;
}

static int compare_entries(const void *a, const void *b) {
	const struct entry *x = a, *y = b;
	if (x->us != y->us) return x->us < y->us ? -1 : 1;
	return (x->order > y->order) - (x->order < y->order);
}

/* One order for all devices; within one, that of its list. */
static void order_entries(struct reader *r) {
	uint64_t latest_us = 0, first = 0;
	for (size_t i = 0; i < r->entries.count; i++) {
		struct entry *e = &r->entries.items[i];
		if (i == 0 || e->device != e[-1].device) latest_us = 0, first = i;
		if (!r->has_times) e->us = i - first;
		if (e->us < latest_us) e->us = latest_us;
		latest_us = e->us;
	}
	if (r->entries.count) qsort(r->entries.items, r->entries.count, sizeof *r->entries.items, compare_entries);
	r->first_us = r->entries.count ? r->entries.items[0].us : 0;
}

/* --- what is older than the history --- */

static int set_state(struct reader *r, const struct entry *e, enum state state) {
	uint64_t *place = tm_id_map_put(&r->states, e->address, e->device);
	if (place) *place = state;
	return place ? 0 : no_memory(r);
}

static int tell_older(struct reader *r, uint32_t device, uint64_t address, uint64_t size, uint64_t usable, uint32_t node) {
	struct tm_event e = {
		.addr = address, .size = size, .usable = usable, .stack = node, .heap = device_of(r, device)->pool, .op = TM_OP_TORCH_ALLOC
	};
	tm_foreign_event(r->t, r->thread, &e);
	r->older++;
	r->older_bytes += size;
	return 0;
}

/* Freed in the history and not allocated in it, or there at the end and not allocated in it. A block whose free the history begins with done had ended
 * before: the free had been asked for. */
static int tell_older_blocks(struct reader *r) {
	int rc = 0;
	for (size_t i = 0; i < r->entries.count && !rc; i++) {
		const struct entry *e = &r->entries.items[i];
		bool ends = e->action == ACTION_FREE_REQUESTED || e->action == ACTION_FREE,
		     frees = ends || e->action == ACTION_FREE_COMPLETED;
		if (e->action != ACTION_ALLOC && !frees) continue;
		if (ends && !tm_id_map_find(&r->states, e->address, e->device))
			rc = tell_older(r, e->device, e->address, e->size, TM_USABLE_UNKNOWN, 0);
		if (!rc) rc = set_state(r, e, frees ? STATE_GONE : STATE_LIVE);
	}
	for (size_t i = 0; i < r->blocks.count && !rc; i++) {
		struct final_block *b = &r->blocks.items[i];
		const uint64_t *state = tm_id_map_find(&r->states, b->address, b->device);
		b->seen = state && *state == STATE_LIVE;
		/* Where the history ends with a free of it, its next allocation has been dropped: it is as old as can be told. */
		if (!b->seen && !state) rc = tell_older(r, b->device, b->address, b->requested, b->size, b->node);
	}
	return rc;
}

static int cut_span(struct reader *r, struct device *d, uint64_t begin, uint64_t end) {
	int rc = tm_pickle_pay(&r->p, d->spans.count) ? 0 : -1;
	for (size_t i = 0; i < d->spans.count && !rc;) {
		struct span s = d->spans.items[i];
		if (s.end <= begin || end <= s.begin) {
			i++;
			continue;
		}
		d->spans.items[i] = d->spans.items[--d->spans.count];
		if (s.begin < begin) rc = add_span(r, d, s.begin, begin, s.is_piece);
		if (!rc && end < s.end) rc = add_span(r, d, end, s.end, s.is_piece);
	}
	return rc;
}

static uint8_t map_op(bool is_piece) {
	return is_piece ? TM_FOREIGN_MAP_PIECE : TM_FOREIGN_MAP;
}

static void tell_reserved(struct reader *r, const struct device *d) {
	struct tm_pool_state state = { d->pool, r->ns, -1, (int64_t)d->now_reserved, -1, -1 };
	tm_foreign_pool_state(r->t, &state);
}

/* What the driver had given before the history, by going back. */
static int tell_older_segments(struct reader *r) {
	int rc = 0;
	for (size_t i = r->entries.count; i-- > 0 && !rc;) {
		const struct entry *e = &r->entries.items[i];
		if (e->action != ACTION_MAP && e->action != ACTION_UNMAP) continue;
		struct device *d = device_of(r, e->device);
		rc = cut_span(r, d, e->address, e->address + e->size);
		if (!rc && e->action == ACTION_UNMAP && e->size) rc = add_span(r, d, e->address, e->address + e->size, e->is_piece);
	}
	for (size_t n = 0; n < r->devices.count && !rc; n++) {
		struct device *d = &r->devices.items[n];
		for (size_t i = 0; i < d->spans.count; i++) {
			const struct span *s = &d->spans.items[i];
			tm_foreign_allocation(r->t, r->thread, map_op(s->is_piece), 0, d->heap, s->begin, s->end - s->begin, 0);
			d->now_reserved += s->end - s->begin;
		}
		if (d->heap) tell_reserved(r, d);
	}
	return rc;
}

/* --- the history, told --- */

static void tell_alloc(struct reader *r, const struct entry *e) {
	const uint64_t *id = tm_id_map_find(&r->block_ids, e->address, e->device);
	const struct final_block *b = id ? &r->blocks.items[*id - 1] : NULL;
	bool is_last = b && b->seen && b->requested == e->size;
	struct tm_event event = { .time_ns = r->ns,
				  .addr = e->address,
				  .size = e->size,
				  .usable = is_last ? b->size : TM_USABLE_UNKNOWN,
				  .stack = e->node,
				  .heap = device_of(r, e->device)->pool,
				  .op = TM_OP_TORCH_ALLOC };
	tm_foreign_event(r->t, r->thread, &event);
}

static void tell_map(struct reader *r, const struct entry *e, struct device *d) {
	if (e->action == ACTION_MAP) {
		tm_foreign_allocation(r->t, r->thread, map_op(e->is_piece), r->ns, d->heap, e->address, e->size, e->node);
		d->now_reserved += e->size;
	} else {
		struct tm_event event = {
			.time_ns = r->ns, .old = e->address, .old_size = e->size, .heap = d->heap, .op = TM_FOREIGN_UNMAP
		};
		tm_foreign_event(r->t, r->thread, &event);
		d->now_reserved -= e->size < d->now_reserved ? e->size : d->now_reserved;
	}
	tell_reserved(r, d);
}

static void tell_oom(struct reader *r, const struct entry *e, struct device *d) {
	struct tm_oom oom = {
		.process = r->process, .heap = d->pool, .size_bytes = e->size, .result = tm_text_of("out of memory"), .total_bytes = -1
	};
	oom.free_bytes = e->device_free > INT64_MAX ? -1 : (int64_t)e->device_free;
	tm_foreign_oom(r->t, r->thread, r->ns, &oom, e->node);
}

/* A free counts once: when it is asked for, or when it is done if that is all that is told. */
static int tell_free(struct reader *r, const struct entry *e, struct device *d) {
	const uint64_t *state = tm_id_map_find(&r->states, e->address, e->device);
	if (state && *state == STATE_GONE) return 0;
	if (state || e->action != ACTION_FREE_COMPLETED)
		tm_foreign_release_of(r->t, r->thread, TM_OP_TORCH_FREE, r->ns, d->pool, e->address);
	return set_state(r, e, STATE_GONE);
}

static int tell_entry(struct reader *r, const struct entry *e) {
	struct device *d = device_of(r, e->device);
	switch (e->action) {
	case ACTION_ALLOC: tell_alloc(r, e); return set_state(r, e, STATE_LIVE);
	case ACTION_FREE_REQUESTED:
	case ACTION_FREE_COMPLETED:
	case ACTION_FREE: return tell_free(r, e, d);
	case ACTION_MAP:
	case ACTION_UNMAP: tell_map(r, e, d); return 0;
	case ACTION_OOM: tell_oom(r, e, d); return 0;
	case ACTION_SNAPSHOT: {
		struct tm_event mark = { .time_ns = r->ns, .op = TM_OP_MARK, .text = tm_foreign_string(r->t, tm_text_of("snapshot")) };
		tm_foreign_event(r->t, r->thread, &mark);
		return 0;
	}
	default: return 0;
	}
}

static int tell_history(struct reader *r) {
	int rc = 0;
	tm_id_map_release(&r->states); /* from the beginning again */
	r->states = (struct tm_id_map){ 0 };
	for (size_t i = 0; i < r->entries.count && !rc; i++) {
		const struct entry *e = &r->entries.items[i];
		uint64_t ns = FIRST_NS + (e->us - r->first_us) * NS_A_US;
		r->ns = ns > r->ns ? ns : r->ns + 1 < ns + NS_A_US ? r->ns + 1 : r->ns;
		rc = tell_entry(r, e);
	}
	return rc;
}

/* What the history has live and the instant has not: its free was dropped. And the other way round. */
static int settle(struct reader *r) {
	r->ns++;
	for (size_t i = 0; i < r->entries.count; i++) {
		const struct entry *e = &r->entries.items[i];
		const uint64_t *state = tm_id_map_find(&r->states, e->address, e->device);
		if (e->action != ACTION_ALLOC || !state || *state != STATE_LIVE || tm_id_map_find(&r->block_ids, e->address, e->device))
			continue;
		tm_foreign_release_of(r->t, r->thread, TM_OP_TORCH_FREE, r->ns, device_of(r, e->device)->pool, e->address);
		r->missing++;
		r->missing_bytes += e->size;
		if (set_state(r, e, STATE_GONE)) return -1;
	}
	for (size_t i = 0; i < r->blocks.count; i++) {
		const struct final_block *b = &r->blocks.items[i];
		const uint64_t *state = tm_id_map_find(&r->states, b->address, b->device);
		if (!state || *state == STATE_LIVE) continue;
		struct tm_event e = { .time_ns = r->ns,
				      .addr = b->address,
				      .size = b->requested,
				      .usable = b->size,
				      .stack = b->node,
				      .heap = device_of(r, b->device)->pool,
				      .op = TM_OP_TORCH_ALLOC };
		tm_foreign_event(r->t, r->thread, &e);
		r->missing++;
		r->missing_bytes += b->requested;
	}
	for (size_t i = 0; i < r->devices.count; i++) {
		const struct device *d = &r->devices.items[i];
		if (!d->heap) continue;
		struct tm_pool_state state = {
			d->pool, r->ns, (int64_t)d->allocated, (int64_t)d->reserved, (int64_t)d->active, (int64_t)d->inactive
		};
		tm_foreign_pool_state(r->t, &state);
	}
	return 0;
}

static void say_what_is_unknown(struct reader *r) {
	char text[240];
	if (r->older) {
		snprintf(text, sizeof text, "%llu %s older than the history (%llu bytes), counted as allocated at its beginning",
			 (unsigned long long)r->older, r->older == 1 ? "block is" : "blocks are", (unsigned long long)r->older_bytes);
		tm_foreign_note(r->t, r->process, tm_text_of(text));
	}
	if (r->entries.count && !r->has_times)
		tm_foreign_note(r->t, r->process,
				tm_text_of("the history has no times: its entries are put a microsecond apart, in their order"));
	if (!r->entries.count)
		tm_foreign_note(
			r->t, r->process,
			tm_text_of(
				"there is no history (torch.cuda.memory._record_memory_history() was not on): only one instant is known"));
	if (r->missing)
		tm_foreign_loss(r->t, r->process, "inconsistent-block", r->missing, r->missing_bytes,
				"history and segments disagree about these blocks; the segments are believed");
}

static int read_root(struct reader *r) {
	struct tm_pickle_value root = r->p.root, segments = root, traces = { .type = TM_PICKLE_NONE };
	if (root.type == TM_PICKLE_DICT) {
		segments = tm_pickle_get(&r->p, root, "segments");
		traces = tm_pickle_get(&r->p, root, "device_traces");
	}
	if (segments.type != TM_PICKLE_LIST)
		return tm_foreign_fail(r->f, "the pickle is no memory snapshot of PyTorch's: it has no list of segments");
	struct tm_process_start start = { .rank = -1, .local_rank = -1, .world_size = -1 };
	r->process = tm_foreign_process(r->t, &start);
	r->thread = tm_foreign_thread(r->t, r->process, 0, tm_text_of(""));
	if (take_segments(r, segments) || take_traces(r, traces)) return -1;
	order_entries(r);
	/* 0 says that it is not known. */
	if (r->has_times && r->first_us > FIRST_NS / NS_A_US && r->first_us < UINT64_MAX / 2000)
		tm_foreign_start(r->t, r->first_us * NS_A_US - FIRST_NS);
	if (tell_older_segments(r) || tell_older_blocks(r) || tell_history(r) || settle(r)) return -1;
	say_what_is_unknown(r);
	return tm_foreign_trace_finish(r->t, r->ns);
}

static int read_all(struct reader *r, const char *path) {
	struct tm_input input;
	size_t got = 1;
	int rc = tm_input_open(&input, path, r->f->error, sizeof r->f->error);
	while (!rc && got) {
		if (!tm_bytes_reserve(&r->data, (size_t)1 << 20)) rc = no_memory(r);
		else if (r->data.size > BYTES_MAX) rc = tm_foreign_fail(r->f, "a pickle of more than 8 GiB");
		else r->data.size += got = tm_input_read(&input, r->data.data + r->data.size, r->data.capacity - r->data.size);
	}
	if (!rc && input.cut) rc = tm_foreign_fail(r->f, "%s", input.cut);
	tm_input_release(&input);
	return rc;
}

int tm_foreign_read_snapshot(struct tm_foreign *f, struct tm_foreign_trace *t, const char *path) {
	struct reader r = { .f = f, .t = t, .has_times = true };
	snprintf(f->format, sizeof f->format, "PyTorch memory snapshot");
	int rc = read_all(&r, path);
	if (!rc) {
		rc = tm_pickle_load(&r.p, r.data.data, r.data.size);
		if (!rc) rc = read_root(&r);
		if (rc && r.p.failed) tm_foreign_fail(f, "%s", r.p.error);
		tm_pickle_release(&r.p);
	}
	tm_bytes_release(&r.data);
	for (size_t i = 0; i < r.devices.count; i++) tm_array_release(&r.devices.items[i].spans);
	tm_array_release(&r.devices);
	tm_array_release(&r.entries);
	tm_array_release(&r.blocks);
	tm_id_map_release(&r.block_ids);
	tm_id_map_release(&r.states);
	return rc;
}
