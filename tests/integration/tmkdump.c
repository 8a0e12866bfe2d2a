/* tmkdump.c - prints all that a trace holds, one thing a line, with the C reader of schema/.
 *
 * Flow:  trace -> chunk.h -> records.h, events.h -> standard output
 * Idea:  tmkread.py prints the same lines from the text of schema/format.md alone; a test compares the two. A chunk's lines are held back until the
 *        whole chunk has been read, since a chunk that is not sound counts for nothing.
 */
#include "schema/activity.h"
#include "schema/chunk.h"
#include "schema/events.h"
#include "schema/records.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void print_text(FILE *out, const char *key, struct tm_text text) {
	fprintf(out, " %s=%s", key, text.size ? "" : "''");
	for (size_t i = 0; i < text.size; i++) {
		uint8_t c = (uint8_t)text.data[i];
		if (c > 0x20 && c < 0x7F && c != '\\') fputc(c, out);
		else fprintf(out, "\\x%02x", c);
	}
}

static void print_number(FILE *out, const char *key, uint64_t value) {
	fprintf(out, " %s=%" PRIu64, key, value);
}

static void print_maybe(FILE *out, const char *key, int64_t value) {
	if (value < 0) fprintf(out, " %s=unknown", key);
	else print_number(out, key, (uint64_t)value);
}

static void print_process_start(FILE *out, struct tm_process_start r) {
	fputs("process_start", out);
	print_number(out, "id", r.id);
	print_number(out, "pid", r.pid);
	print_number(out, "parent", r.parent_id);
	print_number(out, "start_ns", r.start_ns);
	print_number(out, "flags", r.flags);
	print_maybe(out, "rank", r.rank);
	print_maybe(out, "local_rank", r.local_rank);
	print_maybe(out, "world_size", r.world_size);
	print_text(out, "exe", r.exe);
	print_text(out, "command", r.command);
	print_text(out, "host", r.host);
}

static void print_module_load(FILE *out, struct tm_module_load r) {
	fputs("module_load", out);
	print_number(out, "id", r.id);
	print_number(out, "process", r.process);
	print_number(out, "bias", r.bias);
	print_number(out, "low", r.low);
	print_number(out, "size", r.size_bytes);
	print_number(out, "ns", r.ns);
	print_text(out, "path", r.path);
	print_text(out, "build_id", r.build_id);
}

static void print_heap(FILE *out, struct tm_heap r) {
	fputs("heap", out);
	print_number(out, "id", r.id);
	print_number(out, "process", r.process);
	print_number(out, "parent", r.parent);
	print_maybe(out, "device", r.device);
	print_text(out, "name", r.name);
	print_text(out, "kind", r.kind);
}

static void print_loss(FILE *out, struct tm_loss r) {
	fputs("loss", out);
	print_number(out, "process", r.process);
	print_number(out, "thread", r.thread);
	print_number(out, "ns", r.ns);
	print_text(out, "kind", r.kind);
	print_number(out, "count", r.count);
	print_number(out, "bytes", r.bytes);
	print_text(out, "reason", r.reason);
}

static void print_samples(FILE *out, struct tm_samples r, struct tm_cursor *body) {
	struct tm_sample sample;
	fprintf(out, "samples process=%" PRIu64 " ns=%" PRIu64, r.process, r.ns);
	while (tm_sample_next(&r.values, &sample)) {
		print_text(out, "name", sample.name);
		print_number(out, "value", sample.value);
	}
	body->bad |= r.values.bad;
}

static void print_name(FILE *out, struct tm_name r, struct tm_cursor *body) {
	struct tm_function f;
	fprintf(out, "name frame=%" PRIu64, r.frame);
	while (tm_function_next(&r.functions, &f))
		fprintf(out, " function=%" PRIu64 " file=%" PRIu64 " line=%" PRIu64, f.function, f.file, f.line);
	body->bad |= r.functions.bad;
}

/* Records of numbers and one text at most. */
static void print_small_record(FILE *out, uint64_t tag, struct tm_cursor *body) {
	switch (tag) {
	case TM_RECORD_INFO: {
		struct tm_info r = tm_get_info(body);
		fputs("info", out);
		print_text(out, "key", r.key);
		print_text(out, "value", r.value);
		break;
	}
	case TM_RECORD_STRING: {
		struct tm_string r = tm_get_string_record(body);
		fprintf(out, "string id=%" PRIu64, r.id);
		print_text(out, "bytes", r.bytes);
		break;
	}
	case TM_RECORD_PROCESS_EXIT: {
		struct tm_process_exit r = tm_get_process_exit(body);
		fprintf(out, "process_exit process=%" PRIu64 " ns=%" PRIu64, r.process, r.ns);
		break;
	}
	case TM_RECORD_PROCESS_END: {
		struct tm_process_end r = tm_get_process_end(body);
		fprintf(out, "process_end process=%" PRIu64 " ns=%" PRIu64 " kind=%" PRIu64 " code=%" PRIu64, r.process, r.ns, r.kind,
			r.code);
		break;
	}
	case TM_RECORD_THREAD_START: {
		struct tm_thread_start r = tm_get_thread_start(body);
		fprintf(out, "thread_start id=%" PRIu64 " process=%" PRIu64 " tid=%" PRIu64 " start_ns=%" PRIu64, r.id, r.process, r.tid,
			r.start_ns);
		break;
	}
	case TM_RECORD_THREAD_END: {
		struct tm_thread_end r = tm_get_thread_end(body);
		fprintf(out, "thread_end thread=%" PRIu64 " ns=%" PRIu64, r.thread, r.ns);
		break;
	}
	case TM_RECORD_THREAD_NAME: {
		struct tm_thread_name r = tm_get_thread_name(body);
		fprintf(out, "thread_name thread=%" PRIu64, r.thread);
		print_text(out, "name", r.name);
		break;
	}
	case TM_RECORD_MODULE_UNLOAD: {
		struct tm_module_unload r = tm_get_module_unload(body);
		fprintf(out, "module_unload module=%" PRIu64 " ns=%" PRIu64, r.module, r.ns);
		break;
	}
	case TM_RECORD_FRAME_MODULE: {
		struct tm_frame_module r = tm_get_frame_module(body);
		fprintf(out, "frame_module frame=%" PRIu64 " module=%" PRIu64, r.frame, r.module);
		break;
	}
	case TM_RECORD_MARK: {
		struct tm_mark r = tm_get_mark(body);
		fprintf(out, "mark process=%" PRIu64 " thread=%" PRIu64 " ns=%" PRIu64, r.process, r.thread, r.ns);
		print_text(out, "name", r.name);
		break;
	}
	case TM_RECORD_NOTE: {
		struct tm_note r = tm_get_note(body);
		fprintf(out, "note process=%" PRIu64 " ns=%" PRIu64, r.process, r.ns);
		print_text(out, "kind", r.kind);
		print_text(out, "text", r.text);
		break;
	}
	case TM_RECORD_ALERT: {
		struct tm_alert r = tm_get_alert(body);
		fprintf(out, "alert process=%" PRIu64 " ns=%" PRIu64, r.process, r.ns);
		print_text(out, "rule", r.rule);
		print_number(out, "value", r.value);
		break;
	}
	case TM_RECORD_POOL_STATE: {
		struct tm_pool_state r = tm_get_pool_state(body);
		fprintf(out, "pool_state heap=%" PRIu64 " ns=%" PRIu64, r.heap, r.ns);
		print_maybe(out, "allocated", r.allocated);
		print_maybe(out, "reserved", r.reserved);
		print_maybe(out, "active", r.active);
		print_maybe(out, "inactive", r.inactive);
		break;
	}
	case TM_RECORD_OOM: {
		struct tm_oom r = tm_get_oom(body);
		fprintf(out, "oom id=%" PRIu64 " process=%" PRIu64 " heap=%" PRIu64 " size=%" PRIu64, r.id, r.process, r.heap, r.size_bytes);
		print_text(out, "result", r.result);
		print_maybe(out, "free", r.free_bytes);
		print_maybe(out, "total", r.total_bytes);
		break;
	}
	case TM_RECORD_DEVICE: {
		struct tm_device r = tm_get_device(body);
		fprintf(out, "device process=%" PRIu64 " device=%" PRIu64, r.process, r.device);
		print_maybe(out, "total", r.total_bytes);
		print_text(out, "uuid", r.uuid);
		print_text(out, "name", r.name);
		break;
	}
	case TM_RECORD_WATERMARK: fprintf(out, "watermark ns=%" PRIu64, tm_get_watermark(body)); break;
	case TM_RECORD_TOTALS: {
		struct tm_totals r = tm_get_totals(body);
		fprintf(out, "totals events=%" PRIu64 " chunks=%" PRIu64 " end_ns=%" PRIu64, r.events, r.chunks, r.end_ns);
		break;
	}
	}
}

static void print_record(FILE *out, uint64_t tag, struct tm_cursor *body) {
	switch (tag) {
	case TM_RECORD_PROCESS_START: print_process_start(out, tm_get_process_start(body)); break;
	case TM_RECORD_MODULE_LOAD: print_module_load(out, tm_get_module_load(body)); break;
	case TM_RECORD_HEAP: print_heap(out, tm_get_heap(body)); break;
	case TM_RECORD_LOSS: print_loss(out, tm_get_loss(body)); break;
	case TM_RECORD_SAMPLES: print_samples(out, tm_get_samples(body), body); break;
	case TM_RECORD_NAME: print_name(out, tm_get_name(body), body); break;
	default: print_small_record(out, tag, body);
	}
	fputc('\n', out);
}

static bool print_records(FILE *out, struct tm_cursor *payload) {
	uint64_t tag;
	struct tm_cursor body;
	while (tm_record_next(payload, &tag, &body)) {
		if (tag < TM_RECORD_INFO || tag > TM_RECORD_DEVICE) continue;
		print_record(out, tag, &body);
		if (body.bad) return false;
	}
	return !payload->bad;
}

static bool print_stacks(FILE *out, struct tm_cursor *payload) {
	struct tm_stacks s = { 0 };
	bool sound = tm_get_stacks(payload, &s) == 0;
	for (size_t i = 0; sound && i < s.frame_count; i++) {
		const struct tm_frame *f = &s.frames[i];
		fprintf(out, "frame %" PRIu64 " kind=%" PRIu64 " process=%" PRIu64 " module=%" PRIu64 " address=0x%" PRIx64 "\n",
			s.first_frame + i, f->kind, f->process, f->module, f->address);
	}
	for (size_t i = 0; sound && i < s.node_count; i++)
		fprintf(out, "node %" PRIu64 " parent=%" PRIu64 " frame=%" PRIu64 "\n", s.first_node + i, s.nodes[i].parent,
			s.nodes[i].frame);
	tm_stacks_release(&s);
	return sound;
}

static void print_event(FILE *out, const struct tm_event *e) {
	fprintf(out,
		"event 0x%02x time=%" PRIu64 " begin=%" PRIu64 " heap=%" PRIu32 " addr=0x%" PRIx64 " size=%" PRIu64 " old=0x%" PRIx64
		" old_size=%" PRIu64 " usable=",
		e->op, e->time_ns, e->begin_ns, e->heap, e->addr, e->size, e->old, e->old_size);
	if (e->usable == TM_USABLE_UNKNOWN) fputs("unknown", out);
	else fprintf(out, "%" PRIu64, e->usable);
	fprintf(out, " stack=%" PRIu32 " text=%" PRIu32 "\n", e->stack, e->text);
}

static bool print_events(FILE *out, struct tm_cursor *payload, struct tm_decoder *decoder) {
	uint64_t watermark, segments;
	struct tm_segment segment;
	tm_get_events_header(payload, &watermark, &segments);
	fprintf(out, "events watermark=%" PRIu64 " segments=%" PRIu64 "\n", watermark, segments);
	for (uint64_t i = 0; i < segments && !payload->bad; i++) {
		if (tm_decode_segment(decoder, payload, &segment) != 0) return false;
		fprintf(out, "segment thread=%" PRIu64 " events=%zu\n", segment.thread, segment.count);
		for (size_t j = 0; j < segment.count; j++) print_event(out, &segment.events[j]);
	}
	return !payload->bad && payload->p == payload->end;
}

static bool print_activities(FILE *out, struct tm_cursor *payload) {
	struct tm_activities all;
	bool sound = tm_get_activities(payload, &all) == 0;
	if (sound) fprintf(out, "activities process=%" PRIu64 " n=%zu\n", all.process, all.count);
	for (size_t i = 0; i < all.count; i++) {
		const struct tm_activity *a = &all.all[i];
		fprintf(out,
			"activity kind=%u direction=%u name=%" PRIu32 " device=%" PRId32 " stream=%" PRIu64 " start=%" PRIu64 " end=%" PRIu64
			" size=%" PRIu64 " address=0x%" PRIx64 " correlation=%" PRIu64 "\n",
			a->kind, a->direction, a->name, a->device, a->stream, a->start_ns, a->end_ns, a->size_bytes, a->address,
			a->correlation);
	}
	tm_activities_release(&all);
	return sound;
}

static bool print_payload(FILE *out, uint8_t kind, struct tm_cursor *payload, struct tm_decoder *decoder) {
	static const char *const names[] = { "", "META", "STACKS", "EVENTS", "NAMES", "END", "ACTIVITY" };
	fprintf(out, "chunk %s\n", names[kind]);
	if (kind == TM_CHUNK_STACKS) return print_stacks(out, payload);
	if (kind == TM_CHUNK_ACTIVITY) return print_activities(out, payload);
	if (kind == TM_CHUNK_EVENTS) return print_events(out, payload, decoder);
	return print_records(out, payload);
}

/* Prints the chunk at data; returns its bytes in the file, 0 when it is not sound. */
static size_t print_chunk(const uint8_t *data, size_t n, uint32_t sequence, struct tm_unpacker *unpacker, struct tm_decoder *decoder,
			  uint8_t *kind) {
	struct tm_chunk_header h;
	struct tm_cursor payload;
	if (tm_chunk_header_read(data, n, &h) != TM_CHUNK_OK || h.sequence != sequence) return 0;
	if (n - TM_CHUNK_HEADER_BYTES < h.stored_bytes) return 0;
	*kind = h.kind;
	size_t total = TM_CHUNK_HEADER_BYTES + h.stored_bytes;
	bool known = h.kind >= TM_CHUNK_META && h.kind <= TM_CHUNK_ACTIVITY;
	if (!known && h.flags & TM_CHUNK_CRITICAL) return 0;
	if (tm_unpack(unpacker, &h, data + TM_CHUNK_HEADER_BYTES, &payload) != TM_CHUNK_OK) return 0;
	char *lines = NULL;
	size_t lines_bytes = 0;
	FILE *out = open_memstream(&lines, &lines_bytes);
	if (!out) return 0;
	bool sound = true;
	if (known) sound = print_payload(out, h.kind, &payload, decoder);
	else fprintf(out, "chunk %u\n", h.kind);
	fclose(out);
	if (sound) fwrite(lines, 1, lines_bytes, stdout);
	free(lines);
	return sound ? total : 0;
}

static int dump(const uint8_t *data, size_t n) {
	uint16_t major, minor;
	int error = tm_file_header_read(data, n, &major, &minor);
	if (error) return printf("refused: %s\n", tm_chunk_error_text(error)), 1;
	struct tm_unpacker unpacker = { 0 };
	struct tm_decoder *decoder = tm_decoder_new();
	if (!decoder || tm_unpacker_init(&unpacker)) return 1;
	size_t at = TM_FILE_HEADER_BYTES, step;
	uint8_t kind = 0;
	for (uint32_t sequence = 0; at < n && (step = print_chunk(data + at, n - at, sequence, &unpacker, decoder, &kind)); sequence++)
		at += step;
	if (at == n && kind == TM_CHUNK_END) puts("whole");
	else printf("cut at %zu\n", at);
	tm_unpacker_release(&unpacker);
	tm_decoder_free(decoder);
	return 0;
}

int main(int argc, char **argv) {
	FILE *in = argc == 2 ? fopen(argv[1], "rb") : NULL;
	if (!in) return fprintf(stderr, "usage: tmkdump TRACE\n"), 2;
	struct tm_bytes file = TM_BYTES_INIT;
	uint8_t buffer[1 << 16];
	size_t got;
	while ((got = fread(buffer, 1, sizeof(buffer), in)) > 0) tm_put_raw(&file, buffer, got);
	fclose(in);
	int status = file.failed ? 1 : dump(file.data, file.size);
	tm_bytes_release(&file);
	return status;
}
