/* records.c - the tagged records of META, NAMES and END chunks, and the STACKS payload.
 *
 * Flow:  collector -> tm_put_<record>() -> payload ... payload -> tm_record_next() -> tm_get_<record>() -> analyzer.
 * Idea:  each record's fields are listed once, in the order of format.md; the writer and the reader are both made from that list, so
 *        they cannot drift apart. In a list, N is a number, U a number that may be unknown (+1 on the wire), S a byte string.
 */
#include "records.h"

#include <stdlib.h>

/* The wire knows them as records; the interface passes them as plain arguments. */
struct tm_watermark {
	uint64_t ns;
};

#define INFO_FIELDS(N, U, S) S(key) S(value)
#define STRING_FIELDS(N, U, S) N(id) S(bytes)
#define PROCESS_START_FIELDS(N, U, S) \
	N(id) N(pid) N(parent_id) N(start_ns) N(flags) U(rank) U(local_rank) U(world_size) S(exe) S(command) S(host)
#define PROCESS_EXIT_FIELDS(N, U, S) N(process) N(ns)
#define PROCESS_END_FIELDS(N, U, S) N(process) N(ns) N(kind) N(code)
#define THREAD_START_FIELDS(N, U, S) N(id) N(process) N(tid) N(start_ns)
#define THREAD_END_FIELDS(N, U, S) N(thread) N(ns)
#define THREAD_NAME_FIELDS(N, U, S) N(thread) S(name)
#define MODULE_LOAD_FIELDS(N, U, S) N(id) N(process) N(bias) N(low) N(size_bytes) N(ns) S(path) S(build_id)
#define MODULE_UNLOAD_FIELDS(N, U, S) N(module) N(ns)
#define HEAP_FIELDS(N, U, S) N(id) N(process) N(parent) U(device) S(name) S(kind)
#define FRAME_MODULE_FIELDS(N, U, S) N(frame) N(module)
#define MARK_FIELDS(N, U, S) N(process) N(thread) N(ns) S(name)
#define NOTE_FIELDS(N, U, S) N(process) N(ns) S(kind) S(text)
#define LOSS_FIELDS(N, U, S) N(process) N(thread) N(ns) S(kind) N(count) N(bytes) S(reason)
#define ALERT_FIELDS(N, U, S) N(process) N(ns) S(rule) N(value)
#define WATERMARK_FIELDS(N, U, S) N(ns)
#define POOL_STATE_FIELDS(N, U, S) N(heap) N(ns) U(allocated) U(reserved) U(active) U(inactive)
#define OOM_FIELDS(N, U, S) N(id) N(process) N(heap) N(size_bytes) S(result) U(free_bytes) U(total_bytes)
#define DEVICE_FIELDS(N, U, S) N(process) N(device) U(total_bytes) S(uuid) S(name)
#define TOTALS_FIELDS(N, U, S) N(events) N(chunks) N(end_ns)
/* The heads of the two records that go on with a list, and one entry of each list. */
#define SAMPLES_FIELDS(N, U, S) N(process) N(ns)
#define SAMPLE_FIELDS(N, U, S) S(name) N(value)
#define NAME_FIELDS(N, U, S) N(frame)
#define FUNCTION_FIELDS(N, U, S) N(function) N(file) N(line)

static void put_optional(struct tm_bytes *b, int64_t v) {
	tm_put_varint(b, v < 0 ? 0 : (uint64_t)v + 1);
}

static int64_t get_optional(struct tm_cursor *c) {
	uint64_t v = tm_get_varint(c);
	if (v > (uint64_t)INT64_MAX + 1) c->bad = true;
	return (int64_t)(v - 1);
}

#define PUT_NUMBER(field) tm_put_varint(b, r->field);
#define PUT_OPTIONAL(field) put_optional(b, r->field);
#define PUT_TEXT(field) tm_put_string(b, r->field.data, r->field.size);
#define GET_NUMBER(field) r.field = tm_get_varint(body);
#define GET_OPTIONAL(field) r.field = get_optional(body);
#define GET_TEXT(field) r.field = tm_get_string(body);

/* write_<record> and read_<record> handle the fields alone, without tag and length. */
#define FIELDS_CODEC(name, FIELDS) \
	static void write_##name(struct tm_bytes *b, const struct tm_##name *r) { \
		FIELDS(PUT_NUMBER, PUT_OPTIONAL, PUT_TEXT) \
	} \
	static struct tm_##name read_##name(struct tm_cursor *body) { \
		struct tm_##name r = { 0 }; \
		FIELDS(GET_NUMBER, GET_OPTIONAL, GET_TEXT) \
		return r; \
	}

/* A body's length is known only once it is written: it is then put between tag and body. Bodies are short. */
static size_t record_open(struct tm_bytes *b, enum tm_record_tag tag) {
	tm_put_varint(b, tag);
	return b->size;
}

static void record_close(struct tm_bytes *b, size_t start) {
	uint8_t length[TM_VARINT_MAX_BYTES];
	size_t body_bytes = b->size - start, length_bytes = (size_t)(tm_varint_write(length, body_bytes) - length);
	if (!tm_bytes_reserve(b, length_bytes)) return;
	memmove(b->data + start + length_bytes, b->data + start, body_bytes);
	memcpy(b->data + start, length, length_bytes);
	b->size += length_bytes;
}

#define PLAIN_RECORD(name, TAG, FIELDS) \
	FIELDS_CODEC(name, FIELDS) \
	void tm_put_##name(struct tm_bytes *b, const struct tm_##name *r) { \
		size_t start = record_open(b, TM_RECORD_##TAG); \
		write_##name(b, r); \
		record_close(b, start); \
	} \
	struct tm_##name tm_get_##name(struct tm_cursor *body) { \
		return read_##name(body); \
	}

PLAIN_RECORD(process_start, PROCESS_START, PROCESS_START_FIELDS)
PLAIN_RECORD(process_exit, PROCESS_EXIT, PROCESS_EXIT_FIELDS)
PLAIN_RECORD(process_end, PROCESS_END, PROCESS_END_FIELDS)
PLAIN_RECORD(thread_start, THREAD_START, THREAD_START_FIELDS)
PLAIN_RECORD(thread_end, THREAD_END, THREAD_END_FIELDS)
PLAIN_RECORD(thread_name, THREAD_NAME, THREAD_NAME_FIELDS)
PLAIN_RECORD(module_load, MODULE_LOAD, MODULE_LOAD_FIELDS)
PLAIN_RECORD(module_unload, MODULE_UNLOAD, MODULE_UNLOAD_FIELDS)
PLAIN_RECORD(heap, HEAP, HEAP_FIELDS)
PLAIN_RECORD(frame_module, FRAME_MODULE, FRAME_MODULE_FIELDS)
PLAIN_RECORD(mark, MARK, MARK_FIELDS)
PLAIN_RECORD(note, NOTE, NOTE_FIELDS)
PLAIN_RECORD(loss, LOSS, LOSS_FIELDS)
PLAIN_RECORD(alert, ALERT, ALERT_FIELDS)
PLAIN_RECORD(pool_state, POOL_STATE, POOL_STATE_FIELDS)
PLAIN_RECORD(oom, OOM, OOM_FIELDS)
PLAIN_RECORD(device, DEVICE, DEVICE_FIELDS)
PLAIN_RECORD(totals, TOTALS, TOTALS_FIELDS)

FIELDS_CODEC(info, INFO_FIELDS)
FIELDS_CODEC(string, STRING_FIELDS)
FIELDS_CODEC(watermark, WATERMARK_FIELDS)
FIELDS_CODEC(samples, SAMPLES_FIELDS)
FIELDS_CODEC(sample, SAMPLE_FIELDS)
FIELDS_CODEC(name, NAME_FIELDS)
FIELDS_CODEC(function, FUNCTION_FIELDS)

void tm_put_info(struct tm_bytes *b, struct tm_text key, struct tm_text value) {
	size_t start = record_open(b, TM_RECORD_INFO);
	write_info(b, &(struct tm_info){ key, value });
	record_close(b, start);
}

struct tm_info tm_get_info(struct tm_cursor *body) {
	return read_info(body);
}

void tm_put_string_record(struct tm_bytes *b, uint64_t id, struct tm_text bytes) {
	size_t start = record_open(b, TM_RECORD_STRING);
	write_string(b, &(struct tm_string){ id, bytes });
	record_close(b, start);
}

struct tm_string tm_get_string_record(struct tm_cursor *body) {
	return read_string(body);
}

void tm_put_watermark(struct tm_bytes *b, uint64_t ns) {
	size_t start = record_open(b, TM_RECORD_WATERMARK);
	write_watermark(b, &(struct tm_watermark){ ns });
	record_close(b, start);
}

uint64_t tm_get_watermark(struct tm_cursor *body) {
	return read_watermark(body).ns;
}

/* What is left of a body once its head is read, as the list that it goes on with. */
static struct tm_cursor take_rest(struct tm_cursor *body) {
	struct tm_cursor rest = *body;
	body->p = body->end;
	return rest;
}

void tm_put_samples(struct tm_bytes *b, uint64_t process, uint64_t ns, const struct tm_sample *samples, size_t n) {
	size_t start = record_open(b, TM_RECORD_SAMPLES);
	write_samples(b, &(struct tm_samples){ .process = process, .ns = ns });
	for (size_t i = 0; i < n; i++) write_sample(b, &samples[i]);
	record_close(b, start);
}

struct tm_samples tm_get_samples(struct tm_cursor *body) {
	struct tm_samples r = read_samples(body);
	r.values = take_rest(body);
	return r;
}

bool tm_sample_next(struct tm_cursor *values, struct tm_sample *out) {
	if (values->bad || values->p >= values->end) return false;
	*out = read_sample(values);
	return !values->bad;
}

void tm_put_name(struct tm_bytes *b, uint64_t frame, const struct tm_function *functions, size_t n) {
	size_t start = record_open(b, TM_RECORD_NAME);
	write_name(b, &(struct tm_name){ .frame = frame });
	for (size_t i = 0; i < n; i++) write_function(b, &functions[i]);
	record_close(b, start);
}

struct tm_name tm_get_name(struct tm_cursor *body) {
	struct tm_name r = read_name(body);
	r.functions = take_rest(body);
	return r;
}

bool tm_function_next(struct tm_cursor *functions, struct tm_function *out) {
	if (functions->bad || functions->p >= functions->end) return false;
	*out = read_function(functions);
	return !functions->bad;
}

bool tm_record_next(struct tm_cursor *payload, uint64_t *tag, struct tm_cursor *body) {
	if (payload->bad || payload->p >= payload->end) return false;
	*tag = tm_get_varint(payload);
	*body = tm_get_block(payload);
	return !payload->bad;
}

static void put_frames(struct tm_bytes *b, uint64_t first_frame, const struct tm_frame *frames, size_t frame_count) {
	uint64_t previous_address = 0;
	tm_put_varint(b, first_frame);
	tm_put_varint(b, frame_count);
	for (size_t i = 0; i < frame_count; i++) {
		tm_put_varint(b, frames[i].kind);
		tm_put_varint(b, frames[i].process);
		tm_put_varint(b, frames[i].module);
		tm_put_zigzag(b, (int64_t)(frames[i].address - previous_address));
		previous_address = frames[i].address;
	}
}

void tm_put_stacks_by_column(struct tm_bytes *b, uint64_t first_frame, const struct tm_frame *frames, size_t frame_count,
			     uint64_t first_node, const struct tm_node_columns *nodes) {
	put_frames(b, first_frame, frames, frame_count);
	tm_put_varint(b, first_node);
	tm_put_varint(b, nodes->count);
	tm_put_raw(b, nodes->parents.data, nodes->parents.size);
	tm_put_raw(b, nodes->frames.data, nodes->frames.size);
	b->failed = b->failed || nodes->parents.failed || nodes->frames.failed;
}

void tm_put_stacks(struct tm_bytes *b, uint64_t first_frame, const struct tm_frame *frames, size_t frame_count, uint64_t first_node,
		   const struct tm_node *nodes, size_t node_count) {
	struct tm_node_columns columns = { .count = 0 };
	for (size_t i = 0; i < node_count; i++) tm_put_node(&columns, first_node + i, nodes[i].parent, nodes[i].frame);
	tm_put_stacks_by_column(b, first_frame, frames, frame_count, first_node, &columns);
	tm_bytes_release(&columns.parents);
	tm_bytes_release(&columns.frames);
}

/* A count is believed only as far as the bytes that are left could hold that many entries; ids start at 1 and do not wrap. */
static bool get_range(struct tm_cursor *c, size_t entry_bytes_min, uint64_t *first, size_t *count) {
	*first = tm_get_varint(c);
	uint64_t n = tm_get_varint(c);
	if (c->bad || n > (uint64_t)(c->end - c->p) / entry_bytes_min) return false;
	if (n && (*first == 0 || *first + n < *first)) return false;
	*count = (size_t)n;
	return true;
}

static bool get_frames(struct tm_cursor *c, struct tm_frame *frames, size_t count) {
	uint64_t address = 0;
	for (size_t i = 0; i < count; i++) {
		frames[i].kind = tm_get_varint(c);
		frames[i].process = tm_get_varint(c);
		frames[i].module = tm_get_varint(c);
		frames[i].address = address += (uint64_t)tm_get_zigzag(c);
	}
	return !c->bad;
}

static bool get_nodes(struct tm_cursor *c, uint64_t first, struct tm_node *nodes, size_t count) {
	uint64_t frame = 0;
	for (size_t i = 0; i < count; i++) {
		uint64_t up = tm_get_varint(c);
		if (up == 0 || up > first + i) return false;
		nodes[i].parent = first + i - up;
	}
	for (size_t i = 0; i < count; i++) nodes[i].frame = frame += (uint64_t)tm_get_zigzag(c);
	return !c->bad;
}

#define FRAME_BYTES_MIN 4 /* one byte for each of kind, process, module, address */
#define NODE_BYTES_MIN 2  /* parent, frame */

/* Room for `count` items at `items`, what was there is lost; false: out of memory, and there is none. */
static bool take_room(void **items, size_t *capacity, size_t count, size_t item_bytes) {
	if (*items && *capacity >= count) return true;
	free(*items);
	*items = calloc(count + 1, item_bytes);
	*capacity = *items ? count : 0;
	return *items != NULL;
}

int tm_get_stacks(struct tm_cursor *payload, struct tm_stacks *out) {
	out->frame_count = out->node_count = 0;
	if (!get_range(payload, FRAME_BYTES_MIN, &out->first_frame, &out->frame_count)) goto malformed;
	if (!take_room((void **)(void *)&out->frames, &out->frame_capacity, out->frame_count, sizeof *out->frames)) return -2;
	if (!get_frames(payload, out->frames, out->frame_count)) goto malformed;
	if (!get_range(payload, NODE_BYTES_MIN, &out->first_node, &out->node_count)) goto malformed;
	if (!take_room((void **)(void *)&out->nodes, &out->node_capacity, out->node_count, sizeof *out->nodes)) return -2;
	if (!get_nodes(payload, out->first_node, out->nodes, out->node_count)) goto malformed;
	if (payload->p == payload->end) return 0;
malformed:
	payload->bad = true;
	return -1;
}

void tm_stacks_release(struct tm_stacks *s) {
	free(s->frames);
	free(s->nodes);
	*s = (struct tm_stacks){ 0 };
}
