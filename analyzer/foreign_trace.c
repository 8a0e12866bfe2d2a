/* foreign_trace.c - writes a trace from what a reader of another format tells; see foreign_trace.h. */
#include "foreign_trace.h"

#include "foreign.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#define CHUNK_EVENTS ((size_t)64 << 10)
#define CHUNK_ACTIVITIES 4096u
#define META_BYTES ((size_t)1 << 20)
#define BLOCK_BYTES ((size_t)256 << 10)
#define FIRST_STRINGS 1024u
#define NS_MAX (1ull << 59) /* far below what the reader takes for damage */

struct tm_foreign_block {
	struct tm_foreign_block *next;
	size_t used, capacity;
	char data[];
};

static void fail(struct tm_foreign_trace *t, const char *what) {
	if (!t->failed) snprintf(t->error, sizeof t->error, "%s", what);
	t->failed = true;
}

static bool no_memory(struct tm_foreign_trace *t) {
	fail(t, "out of memory");
	return false;
}

static void add_content(struct tm_foreign_trace *t, const uint8_t *data, size_t n) {
	for (size_t i = 0; i < n; i += sizeof(uint64_t)) {
		uint64_t word = 0;
		memcpy(&word, data + i, n - i < sizeof word ? n - i : sizeof word);
		t->content = (t->content ^ word) * 0x9E3779B97F4A7C15ull;
		t->content ^= t->content >> 32;
	}
}

static void write_all(struct tm_foreign_trace *t, const void *data, size_t n) {
	add_content(t, data, n);
	for (size_t done = 0; done < n && !t->failed;) {
		ssize_t put = write(t->fd, (const char *)data + done, n - done);
		if (put < 0 && errno == EINTR) continue;
		if (put < 0) {
			char why[160];
			snprintf(why, sizeof why, "cannot write a scratch file: %s", strerror(errno));
			fail(t, why);
			return;
		}
		done += (size_t)put;
	}
}

static void write_chunk(struct tm_foreign_trace *t, uint8_t kind, struct tm_bytes *payload) {
	if (payload->failed) no_memory(t);
	if (payload->size && !t->failed) {
		if (tm_pack(&t->packer, kind, payload->data, payload->size)) fail(t, "one of its parts is larger than 64 MiB");
		else write_all(t, t->packer.out.data, t->packer.out.size);
	}
	tm_bytes_clear(payload);
}

int tm_foreign_trace_open(struct tm_foreign_trace *t, int fd) {
	uint8_t header[TM_FILE_HEADER_BYTES];
	*t = (struct tm_foreign_trace){ .fd = fd, .encoder = tm_encoder_new() };
	if (getrandom(&t->seed, sizeof t->seed, GRND_NONBLOCK) < 0) t->seed = 0;
	if (tm_packer_init(&t->packer, 1) || !t->encoder) return no_memory(t), -1;
	tm_file_header_write(header);
	write_all(t, header, sizeof header);
	tm_foreign_info(t, "sample_bytes", tm_text_of("0"));
	return t->failed ? -1 : 0;
}

void tm_foreign_trace_release(struct tm_foreign_trace *t) {
	tm_packer_release(&t->packer);
	tm_encoder_free(t->encoder);
	tm_bytes_release(&t->meta);
	tm_bytes_release(&t->payload);
	tm_bytes_release(&t->names);
	tm_array_release(&t->strings);
	free(t->string_slots);
	while (t->blocks) {
		struct tm_foreign_block *b = t->blocks;
		t->blocks = b->next;
		free(b);
	}
	tm_id_map_release(&t->frame_ids);
	tm_id_map_release(&t->node_ids);
	tm_array_release(&t->frames);
	tm_array_release(&t->nodes);
	for (size_t i = 0; i < t->lanes.count; i++) tm_array_release(&t->lanes.items[i].events);
	tm_array_release(&t->lanes);
	tm_array_release(&t->activities);
	*t = (struct tm_foreign_trace){ .fd = -1 };
}

/* --- chunks --- */

/* What is defined comes before what uses it: records and strings, frames and nodes, the names of frames. */
static void write_definitions(struct tm_foreign_trace *t) {
	write_chunk(t, TM_CHUNK_META, &t->meta);
	if (t->frames.count || t->nodes.count) {
		uint32_t first_frame = t->frame_count - (uint32_t)t->frames.count + 1,
			 first_node = t->node_count - (uint32_t)t->nodes.count + 1;
		tm_put_stacks(&t->payload, first_frame, t->frames.items, t->frames.count, first_node, t->nodes.items, t->nodes.count);
		write_chunk(t, TM_CHUNK_STACKS, &t->payload);
		t->frames.count = t->nodes.count = 0;
	}
	write_chunk(t, TM_CHUNK_NAMES, &t->names);
}

static void limit_definitions(struct tm_foreign_trace *t) {
	if (t->meta.size > META_BYTES || t->names.size > META_BYTES || t->frames.count > CHUNK_EVENTS || t->nodes.count > 4 * CHUNK_EVENTS)
		write_definitions(t);
}

static void write_events(struct tm_foreign_trace *t, uint64_t watermark_ns) {
	uint64_t segments = 0;
	if (!t->waiting) return;
	write_definitions(t);
	for (size_t i = 0; i < t->lanes.count; i++) segments += t->lanes.items[i].events.count > 0;
	tm_put_events_header(&t->payload, watermark_ns, segments);
	for (size_t i = 0; i < t->lanes.count && !t->failed; i++) {
		struct tm_foreign_lane *lane = &t->lanes.items[i];
		if (!lane->events.count) continue;
		tm_encode_segment(t->encoder, &t->payload, i + 1, lane->events.items[0].time_ns, lane->events.items, lane->events.count);
		lane->events.count = 0;
	}
	write_chunk(t, TM_CHUNK_EVENTS, &t->payload);
	t->waiting = 0;
}

static void write_activities(struct tm_foreign_trace *t) {
	if (!t->activities.count) return;
	write_definitions(t);
	tm_put_activities(&t->payload, t->activity_process, t->activities.items, t->activities.count);
	write_chunk(t, TM_CHUNK_ACTIVITY, &t->payload);
	t->activities.count = 0;
}

int tm_foreign_trace_finish(struct tm_foreign_trace *t, uint64_t end_ns) {
	if (end_ns > t->end_ns) t->end_ns = end_ns < NS_MAX ? end_ns : NS_MAX;
	write_events(t, t->now_ns);
	write_activities(t);
	for (uint32_t i = 1; i <= t->processes; i++) {
		struct tm_process_end end = { .process = i, .ns = t->end_ns, .kind = TM_END_UNKNOWN };
		tm_put_process_end(&t->meta, &end);
	}
	write_definitions(t);
	tm_foreign_info_number(t, TM_FOREIGN_CONTENT, t->content);
	t->told_content = t->content;
	write_definitions(t);
	struct tm_totals totals = { t->events, t->packer.sequence, t->end_ns };
	tm_put_totals(&t->payload, &totals);
	write_chunk(t, TM_CHUNK_END, &t->payload);
	return t->failed ? -1 : 0;
}

/* --- strings --- */

static uint64_t hash_of(uint64_t seed, struct tm_text text) {
	uint64_t h = seed ^ text.size * 0x9E3779B97F4A7C15ull;
	for (size_t i = 0; i < text.size; i++) h = (h ^ (uint8_t)text.data[i]) * 0x100000001B3ull + (h >> 29);
	return h ^ h >> 32;
}

static bool grow_strings(struct tm_foreign_trace *t) {
	size_t slots = t->string_slots ? (t->string_mask + 1) * 2 : FIRST_STRINGS;
	uint32_t *bigger = calloc(slots, sizeof *bigger);
	if (!bigger) return no_memory(t);
	for (size_t i = 0; i < t->strings.count; i++) {
		size_t at = t->strings.items[i].hash & (slots - 1);
		while (bigger[at]) at = (at + 1) & (slots - 1);
		bigger[at] = (uint32_t)i + 1;
	}
	free(t->string_slots);
	t->string_slots = bigger;
	t->string_mask = slots - 1;
	return true;
}

static struct tm_text keep_text(struct tm_foreign_trace *t, struct tm_text text) {
	struct tm_foreign_block *b = t->blocks;
	if (!b || b->capacity - b->used < text.size) {
		size_t capacity = text.size > BLOCK_BYTES ? text.size : BLOCK_BYTES;
		b = malloc(sizeof *b + capacity);
		if (!b) return no_memory(t), (struct tm_text){ "", 0 };
		*b = (struct tm_foreign_block){ t->blocks, 0, capacity };
		t->blocks = b;
	}
	char *copy = b->data + b->used;
	memcpy(copy, text.data, text.size);
	b->used += text.size;
	return (struct tm_text){ copy, text.size };
}

uint32_t tm_foreign_string(struct tm_foreign_trace *t, struct tm_text text) {
	if (!text.size || t->failed) return 0;
	if ((!t->string_slots || t->strings.count * 2 > t->string_mask) && !grow_strings(t)) return 0;
	uint64_t hash = hash_of(t->seed, text);
	size_t at = hash & t->string_mask;
	for (; t->string_slots[at]; at = (at + 1) & t->string_mask) {
		const struct tm_foreign_text *s = &t->strings.items[t->string_slots[at] - 1];
		if (s->hash == hash && s->text.size == text.size && memcmp(s->text.data, text.data, text.size) == 0)
			return t->string_slots[at];
	}
	struct tm_foreign_text *s = tm_array_push(&t->strings);
	if (!s) return no_memory(t), 0;
	*s = (struct tm_foreign_text){ keep_text(t, text), hash };
	t->string_slots[at] = (uint32_t)t->strings.count;
	tm_put_string_record(&t->meta, t->strings.count, text);
	limit_definitions(t);
	return (uint32_t)t->strings.count;
}

/* --- records --- */

void tm_foreign_info(struct tm_foreign_trace *t, const char *key, struct tm_text value) {
	tm_put_info(&t->meta, tm_text_of(key), value);
}

void tm_foreign_info_number(struct tm_foreign_trace *t, const char *key, uint64_t value) {
	char text[24];
	snprintf(text, sizeof text, "%llu", (unsigned long long)value);
	tm_foreign_info(t, key, tm_text_of(text));
}

void tm_foreign_start(struct tm_foreign_trace *t, uint64_t unix_ns) {
	t->start_unix_ns = unix_ns;
	tm_foreign_info_number(t, "start_unix_ns", unix_ns);
}

uint32_t tm_foreign_process(struct tm_foreign_trace *t, struct tm_process_start *start) {
	start->id = ++t->processes;
	tm_put_process_start(&t->meta, start);
	return t->processes;
}

uint32_t tm_foreign_thread(struct tm_foreign_trace *t, uint32_t process, uint64_t tid, struct tm_text name) {
	if (!tm_array_push(&t->lanes)) return no_memory(t), 1;
	struct tm_thread_start start = { ++t->threads, process, tid, 0 };
	struct tm_thread_name named = { t->threads, name };
	tm_put_thread_start(&t->meta, &start);
	if (name.size) tm_put_thread_name(&t->meta, &named);
	return t->threads;
}

uint32_t tm_foreign_module(struct tm_foreign_trace *t, uint32_t process, struct tm_text path) {
	struct tm_module_load load = { .id = ++t->modules, .process = process, .path = path };
	tm_put_module_load(&t->meta, &load);
	limit_definitions(t);
	return t->modules;
}

uint32_t tm_foreign_heap(struct tm_foreign_trace *t, uint32_t process, struct tm_text name, const char *kind, int64_t device,
			 uint32_t parent) {
	struct tm_heap heap = { ++t->heaps, process, parent, device, name, tm_text_of(kind) };
	tm_put_heap(&t->meta, &heap);
	return t->heaps;
}

/* One number for the names of a frame. They are ids, so a collision takes 2^32 frames that were made for it; then one has the other's names. */
static uint64_t names_key(const struct tm_function *names, size_t n) {
	uint64_t key = n;
	for (size_t i = 0; i < n; i++) {
		const uint64_t words[] = { names[i].function, names[i].file, names[i].line };
		for (size_t k = 0; k < 3; k++) {
			key = (key ^ words[k]) * 0x9E3779B97F4A7C15ull;
			key ^= key >> 29;
		}
	}
	return key;
}

uint32_t tm_foreign_frame(struct tm_foreign_trace *t, enum tm_frame_kind kind, uint32_t process, uint32_t module, uint64_t address,
			  const struct tm_foreign_function *functions, size_t n) {
	struct tm_function names[TM_FOREIGN_FUNCTIONS];
	if (n > TM_FOREIGN_FUNCTIONS) n = TM_FOREIGN_FUNCTIONS;
	for (size_t i = 0; i < n; i++) {
		uint32_t function = tm_foreign_string(t, functions[i].function), file = tm_foreign_string(t, functions[i].file);
		names[i] = (struct tm_function){ function, file, functions[i].line };
	}
	uint64_t *id = t->failed ? NULL
				 : tm_id_map_put(&t->frame_ids, names_key(names, n),
						 address ^ (uint64_t)module << 40 ^ (uint64_t)process << 60);
	if (id && *id) return (uint32_t)*id;
	struct tm_frame *frame = id ? tm_array_push(&t->frames) : NULL;
	if (!frame) return no_memory(t), 0;
	*id = ++t->frame_count;
	*frame = (struct tm_frame){ kind, process, module, address };
	if (n) tm_put_name(&t->names, t->frame_count, names, n);
	uint32_t made = t->frame_count;
	limit_definitions(t);
	return made;
}

uint32_t tm_foreign_node(struct tm_foreign_trace *t, uint32_t parent, uint32_t frame) {
	uint64_t *id = t->failed || !frame ? NULL : tm_id_map_put(&t->node_ids, parent, frame);
	if (!id) return frame ? no_memory(t), 0 : parent;
	if (*id) return (uint32_t)*id;
	struct tm_node *node = tm_array_push(&t->nodes);
	if (!node) return no_memory(t), 0;
	*id = ++t->node_count;
	*node = (struct tm_node){ parent, frame };
	limit_definitions(t);
	return (uint32_t)*id;
}

void tm_foreign_note(struct tm_foreign_trace *t, uint32_t process, struct tm_text text) {
	struct tm_note note = { process, 0, tm_text_of("foreign"), text };
	tm_put_note(&t->meta, &note);
}

void tm_foreign_loss(struct tm_foreign_trace *t, uint32_t process, const char *kind, uint64_t count, uint64_t bytes, const char *reason) {
	struct tm_loss loss = { process, 0, t->now_ns, tm_text_of(kind), count, bytes, tm_text_of(reason) };
	tm_put_loss(&t->meta, &loss);
}

static uint64_t bounded(uint64_t ns) {
	return ns < NS_MAX ? ns : NS_MAX;
}

void tm_foreign_pool_state(struct tm_foreign_trace *t, const struct tm_pool_state *state) {
	struct tm_pool_state s = *state;
	s.ns = bounded(s.ns);
	tm_put_pool_state(&t->meta, &s);
	limit_definitions(t);
}

void tm_foreign_sample(struct tm_foreign_trace *t, uint32_t process, uint64_t ns, const char *name, uint64_t value) {
	struct tm_sample sample = { tm_text_of(name), value };
	tm_put_samples(&t->meta, process, bounded(ns), &sample, 1);
	limit_definitions(t);
}

void tm_foreign_device(struct tm_foreign_trace *t, const struct tm_device *device) {
	tm_put_device(&t->meta, device);
}

/* --- events --- */

void tm_foreign_event(struct tm_foreign_trace *t, uint32_t thread, const struct tm_event *event) {
	if (t->failed || !thread || thread > t->lanes.count) return;
	if (t->waiting >= CHUNK_EVENTS) write_events(t, t->now_ns);
	struct tm_event *e = tm_array_push(&t->lanes.items[thread - 1].events);
	if (!e) {
		no_memory(t);
		return;
	}
	*e = *event;
	e->time_ns = bounded(e->time_ns);
	if (e->time_ns < t->now_ns) {
		e->time_ns = t->now_ns;
		t->late_events++;
	}
	e->begin_ns = e->time_ns;
	if (e->size > INT64_MAX) e->size = INT64_MAX;
	if (!TM_OP_IS_SCOPE(e->op)) {
		/* Tags in the upper bits of a pointer would be in the way of the codec. */
		e->addr &= TM_ADDRESS_LIMIT - 1;
		e->old &= TM_ADDRESS_LIMIT - 1;
	}
	t->now_ns = e->time_ns;
	if (t->now_ns > t->end_ns) t->end_ns = t->now_ns;
	t->waiting++;
	t->events += TM_OP_CLASS(e->op) < TM_CLASS_TEXT;
}

void tm_foreign_allocation(struct tm_foreign_trace *t, uint32_t thread, uint8_t op, uint64_t ns, uint32_t heap, uint64_t address,
			   uint64_t size, uint32_t node) {
	struct tm_event e = {
		.time_ns = ns, .addr = address, .size = size, .usable = TM_USABLE_UNKNOWN, .stack = node, .heap = heap, .op = op
	};
	tm_foreign_event(t, thread, &e);
}

void tm_foreign_release_of(struct tm_foreign_trace *t, uint32_t thread, uint8_t op, uint64_t ns, uint32_t heap, uint64_t address) {
	struct tm_event e = { .time_ns = ns, .old = address, .heap = heap, .op = op, .usable = TM_USABLE_UNKNOWN };
	tm_foreign_event(t, thread, &e);
}

void tm_foreign_oom(struct tm_foreign_trace *t, uint32_t thread, uint64_t ns, struct tm_oom *oom, uint32_t node) {
	struct tm_event e = { .time_ns = ns, .addr = ++t->ooms, .old = node, .op = TM_OP_OOM, .usable = TM_USABLE_UNKNOWN };
	oom->id = t->ooms;
	tm_put_oom(&t->meta, oom);
	tm_foreign_event(t, thread, &e);
}

void tm_foreign_activity(struct tm_foreign_trace *t, uint32_t process, const struct tm_activity *activity) {
	if (t->failed) return;
	if (t->activities.count >= CHUNK_ACTIVITIES || t->activity_process != process) write_activities(t);
	t->activity_process = process;
	struct tm_activity *a = tm_array_push(&t->activities);
	if (!a) {
		no_memory(t);
		return;
	}
	*a = *activity;
	a->start_ns = bounded(a->start_ns);
	a->end_ns = bounded(a->end_ns);
	if (a->end_ns < a->start_ns) a->end_ns = a->start_ns;
	if (a->end_ns > t->end_ns) t->end_ns = a->end_ns;
}
