/* fuzz_payload.c - any bytes as the payload of a chunk: records, stacks, events, and the frame around them.
 *
 * Input:   one byte that chooses, then the bytes. 1 to 5: the payload of that kind of chunk; else a whole file, checksums and all.
 * Checks:  nothing is read beyond the bytes (sanitizers); every loop ends; what was decoded keeps the promises of events.h and records.h.
 */
#include "schema/activity.h"
#include "schema/chunk.h"
#include "schema/events.h"
#include "schema/records.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void promise(bool kept) {
	if (!kept) abort();
}

static void decode_record(uint64_t tag, struct tm_cursor *body) {
	struct tm_sample sample;
	struct tm_function function;
	switch (tag) {
	case TM_RECORD_INFO: tm_get_info(body); break;
	case TM_RECORD_STRING: tm_get_string_record(body); break;
	case TM_RECORD_PROCESS_START: {
		struct tm_process_start r = tm_get_process_start(body);
		promise(body->bad || (r.rank >= -1 && r.local_rank >= -1 && r.world_size >= -1));
		break;
	}
	case TM_RECORD_PROCESS_EXIT: tm_get_process_exit(body); break;
	case TM_RECORD_PROCESS_END: tm_get_process_end(body); break;
	case TM_RECORD_THREAD_START: tm_get_thread_start(body); break;
	case TM_RECORD_THREAD_END: tm_get_thread_end(body); break;
	case TM_RECORD_THREAD_NAME: tm_get_thread_name(body); break;
	case TM_RECORD_MODULE_LOAD: tm_get_module_load(body); break;
	case TM_RECORD_MODULE_UNLOAD: tm_get_module_unload(body); break;
	case TM_RECORD_HEAP: tm_get_heap(body); break;
	case TM_RECORD_FRAME_MODULE: tm_get_frame_module(body); break;
	case TM_RECORD_SAMPLES: {
		struct tm_samples r = tm_get_samples(body);
		while (tm_sample_next(&r.values, &sample)) {}
		break;
	}
	case TM_RECORD_MARK: tm_get_mark(body); break;
	case TM_RECORD_NOTE: tm_get_note(body); break;
	case TM_RECORD_LOSS: tm_get_loss(body); break;
	case TM_RECORD_ALERT: tm_get_alert(body); break;
	case TM_RECORD_NAME: {
		struct tm_name r = tm_get_name(body);
		while (tm_function_next(&r.functions, &function)) {}
		break;
	}
	case TM_RECORD_POOL_STATE: tm_get_pool_state(body); break;
	case TM_RECORD_OOM: tm_get_oom(body); break;
	case TM_RECORD_DEVICE: tm_get_device(body); break;
	case TM_RECORD_WATERMARK: tm_get_watermark(body); break;
	case TM_RECORD_TOTALS: tm_get_totals(body); break;
	}
}

static void decode_records(struct tm_cursor payload) {
	uint64_t tag;
	struct tm_cursor body;
	while (tm_record_next(&payload, &tag, &body)) {
		promise(body.end <= payload.end);
		decode_record(tag, &body);
	}
}

static void decode_stacks(struct tm_cursor payload) {
	struct tm_stacks s = { 0 };
	if (tm_get_stacks(&payload, &s) == 0)
		for (size_t i = 0; i < s.node_count; i++) promise(s.nodes[i].parent < s.first_node + i);
	tm_stacks_release(&s);
}

static void decode_events(struct tm_cursor payload) {
	uint64_t watermark, segments;
	struct tm_segment segment;
	struct tm_decoder *decoder = tm_decoder_new();
	tm_get_events_header(&payload, &watermark, &segments);
	while (decoder && segments-- && !payload.bad && tm_decode_segment(decoder, &payload, &segment) == 0) {
		for (size_t i = 0; i < segment.count; i++) {
			const struct tm_event *e = &segment.events[i];
			promise(e->begin_ns <= e->time_ns && (i == 0 || segment.events[i - 1].time_ns <= e->time_ns));
			promise(e->addr < TM_ADDRESS_LIMIT && e->old < TM_ADDRESS_LIMIT && TM_OP_CLASS(e->op) != TM_CLASS_RESERVED);
		}
	}
	tm_decoder_free(decoder);
}

static void decode_activities(struct tm_cursor payload) {
	struct tm_activities a;
	if (tm_get_activities(&payload, &a) == 0)
		for (size_t i = 0; i < a.count; i++) promise(a.all[i].start_ns <= a.all[i].end_ns);
	tm_activities_release(&a);
}

static void decode_payload(uint8_t kind, struct tm_cursor payload) {
	if (kind == TM_CHUNK_STACKS) decode_stacks(payload);
	else if (kind == TM_CHUNK_EVENTS) decode_events(payload);
	else if (kind == TM_CHUNK_ACTIVITY) decode_activities(payload);
	else decode_records(payload);
}

static void decode_file(const uint8_t *data, size_t size) {
	uint16_t major, minor;
	struct tm_unpacker unpacker;
	struct tm_chunk_header h;
	struct tm_cursor payload;
	if (tm_file_header_read(data, size, &major, &minor) || tm_unpacker_init(&unpacker)) return;
	for (size_t at = TM_FILE_HEADER_BYTES; tm_chunk_header_read(data + at, size - at, &h) == TM_CHUNK_OK;) {
		at += TM_CHUNK_HEADER_BYTES;
		if (size - at < h.stored_bytes || tm_unpack(&unpacker, &h, data + at, &payload) != TM_CHUNK_OK) break;
		decode_payload(h.kind, payload);
		at += h.stored_bytes;
	}
	tm_unpacker_release(&unpacker);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	if (size == 0) return 0;
	if (data[0] >= TM_CHUNK_META && data[0] <= TM_CHUNK_ACTIVITY) decode_payload(data[0], tm_cursor_over(data + 1, size - 1));
	else decode_file(data + 1, size - 1);
	return 0;
}
