/* names_trace.c - walks the chunks of a trace and keeps what naming needs: frames, modules, string ids, and where END stands.
 *
 * It stops where schema/format.md says that every reader stops. Events are checked and decompressed like everything else, so that a
 * chunk which no reader would accept is not carried over, but their columns are not decoded.
 */
#include "recorder/collector/names_trace.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "schema/chunk.h"
#include "schema/records.h"

#define NAMED_MAX_BYTES ((size_t)1 << 28) /* a frame id beyond two thousand million is damage */

/* Room for one more item; NULL: out of memory, and the array stays as it was. */
static void *grow(void *items, size_t *capacity, size_t count, size_t item_bytes) {
	if (count < *capacity) return items;
	size_t wanted = *capacity ? *capacity * 2 : 64;
	void *grown = reallocarray(items, wanted, item_bytes);
	if (grown) *capacity = wanted;
	return grown;
}

static int add_frame(struct tm_names_trace *t, uint64_t id, const struct tm_frame *frame) {
	if (frame->kind != TM_FRAME_NATIVE && frame->kind != TM_FRAME_UNKNOWN) return 0;
	struct tm_names_frame *frames = grow(t->frames, &t->frame_capacity, t->frame_count, sizeof *frames);
	if (!frames) return TM_CHUNK_NO_MEMORY;
	t->frames = frames;
	t->frames[t->frame_count++] = (struct tm_names_frame){ id, frame->module, frame->address };
	return 0;
}

static int take_stacks(struct tm_names_trace *t, struct tm_cursor *payload) {
	struct tm_stacks stacks = { 0 };
	int error = tm_get_stacks(payload, &stacks);
	if (error) error = error == -2 ? TM_CHUNK_NO_MEMORY : TM_CHUNK_BAD_PAYLOAD;
	for (size_t i = 0; i < stacks.frame_count && !error; i++) error = add_frame(t, stacks.first_frame + i, &stacks.frames[i]);
	tm_stacks_release(&stacks);
	return error;
}

static int take_module(struct tm_names_trace *t, const struct tm_module_load *load) {
	struct tm_names_module *modules = grow(t->modules, &t->module_capacity, t->module_count, sizeof *modules);
	if (!modules) return TM_CHUNK_NO_MEMORY;
	t->modules = modules;
	char *path = strndup(load->path.data ? load->path.data : "", load->path.size);
	uint8_t *build_id = load->build_id.size ? malloc(load->build_id.size) : NULL;
	if (build_id) memcpy(build_id, load->build_id.data, load->build_id.size);
	modules[t->module_count++] = (struct tm_names_module){
		.id = load->id,
		.process = load->process,
		.bias = load->bias,
		.path = path,
		.build_id = build_id,
		.build_id_size = load->build_id.size,
		.load_ns = load->ns,
	};
	return path && (build_id || !load->build_id.size) ? 0 : TM_CHUNK_NO_MEMORY;
}

static int compare_frames(const void *left, const void *right) {
	const struct tm_names_frame *a = left, *b = right;
	return a->id < b->id ? -1 : a->id > b->id;
}

static void take_frame_module(struct tm_names_trace *t, struct tm_frame_module learned) {
	struct tm_names_frame wanted = { .id = learned.frame };
	struct tm_names_frame *frame = t->frame_count ? bsearch(&wanted, t->frames, t->frame_count, sizeof wanted, compare_frames) : NULL;
	if (frame) frame->module = learned.module;
}

static int take_name(struct tm_names_trace *t, struct tm_name name) {
	struct tm_function function;
	bool known = false;
	while (tm_function_next(&name.functions, &function)) known |= function.function || function.file;
	size_t at = (size_t)(name.frame / 8);
	if (!known) return 0;
	if (at >= NAMED_MAX_BYTES) return TM_CHUNK_BAD_PAYLOAD;
	if (at >= t->named_bytes) {
		size_t bytes = at < 4096 ? 8192 : at * 2;
		uint8_t *named = realloc(t->named, bytes);
		if (!named) return TM_CHUNK_NO_MEMORY;
		memset(named + t->named_bytes, 0, bytes - t->named_bytes);
		t->named = named;
		t->named_bytes = bytes;
	}
	t->named[at] |= (uint8_t)(1u << name.frame % 8);
	return 0;
}

static void take_info(struct tm_names_trace *t, struct tm_info info) {
	char number[24] = "";
	if (info.key.size != strlen("start_unix_ns") || memcmp(info.key.data, "start_unix_ns", info.key.size)) return;
	if (info.value.size >= sizeof number) return;
	memcpy(number, info.value.data, info.value.size);
	t->start_unix_ns = strtoull(number, NULL, 10);
}

static int take_record(struct tm_names_trace *t, uint64_t tag, struct tm_cursor *body) {
	struct tm_module_load load;
	uint64_t id;
	switch (tag) {
	case TM_RECORD_INFO: take_info(t, tm_get_info(body)); return 0;
	case TM_RECORD_STRING:
		id = tm_get_string_record(body).id;
		if (id >= t->next_string_id) t->next_string_id = id + 1;
		return 0;
	case TM_RECORD_MODULE_LOAD: load = tm_get_module_load(body); return body->bad ? 0 : take_module(t, &load);
	case TM_RECORD_FRAME_MODULE: take_frame_module(t, tm_get_frame_module(body)); return 0;
	case TM_RECORD_NAME: return take_name(t, tm_get_name(body));
	case TM_RECORD_NOTE: t->looked_up |= tm_is_note(tm_get_note(body).kind, TM_NOTE_LOOKED_UP); return 0;
	default: return 0;
	}
}

static int take_records(struct tm_names_trace *t, struct tm_cursor *payload) {
	uint64_t tag;
	struct tm_cursor body;
	int error = 0;
	while (!error && tm_record_next(payload, &tag, &body)) {
		error = take_record(t, tag, &body);
		if (!error && body.bad) error = TM_CHUNK_BAD_PAYLOAD;
	}
	return error ? error : payload->bad ? TM_CHUNK_BAD_PAYLOAD : 0;
}

static int take_chunk(struct tm_names_trace *t, const struct tm_chunk_header *h, struct tm_cursor payload) {
	struct tm_cursor whole = payload;
	switch (h->kind) {
	case TM_CHUNK_STACKS: return take_stacks(t, &payload);
	case TM_CHUNK_META:
	case TM_CHUNK_NAMES: return take_records(t, &payload);
	case TM_CHUNK_END:
		t->end_offset = t->sound_bytes;
		t->end_sequence = h->sequence;
		tm_bytes_clear(&t->end);
		tm_put_raw(&t->end, whole.p, (size_t)(whole.end - whole.p));
		return t->end.failed ? TM_CHUNK_NO_MEMORY : take_records(t, &payload);
	default: return 0;
	}
}

/* Reads n bytes at an offset, fewer only at the end of the file. */
static size_t read_at(int fd, uint8_t *data, size_t n, off_t offset) {
	size_t done = 0;
	while (done < n) {
		ssize_t got = pread(fd, data + done, n - done, offset + (off_t)done);
		if (got < 0 && errno == EINTR) continue;
		if (got <= 0) break;
		done += (size_t)got;
	}
	return done;
}

/* Reads the chunk at sound_bytes and moves that behind it; an error leaves it where it is. */
static int next_chunk(struct tm_names_trace *t, int fd, uint32_t sequence, struct tm_bytes *stored, struct tm_unpacker *unpacker) {
	uint8_t header[TM_CHUNK_HEADER_BYTES];
	struct tm_chunk_header h;
	struct tm_cursor payload;
	int error = tm_chunk_header_read(header, read_at(fd, header, sizeof header, t->sound_bytes), &h);
	if (error) return error;
	if (h.sequence != sequence) return TM_CHUNK_BAD_SEQUENCE;
	tm_bytes_clear(stored);
	if (!tm_bytes_reserve(stored, h.stored_bytes + 1)) return TM_CHUNK_NO_MEMORY;
	if (read_at(fd, stored->data, h.stored_bytes, t->sound_bytes + TM_CHUNK_HEADER_BYTES) < h.stored_bytes) return TM_CHUNK_SHORT;
	error = tm_unpack(unpacker, &h, stored->data, &payload);
	if (!error) error = take_chunk(t, &h, payload);
	if (error) return error;
	t->closed = h.kind == TM_CHUNK_END;
	t->sound_bytes += TM_CHUNK_HEADER_BYTES + (off_t)h.stored_bytes;
	return 0;
}

static int read_chunks(struct tm_names_trace *t, int fd) {
	struct tm_bytes stored = TM_BYTES_INIT;
	struct tm_unpacker unpacker;
	uint32_t sequence = 0;
	if (tm_unpacker_init(&unpacker)) return TM_CHUNK_NO_MEMORY;
	while (t->sound_bytes < t->size_bytes && !t->stop && !t->closed) {
		t->stop = next_chunk(t, fd, sequence, &stored, &unpacker);
		if (!t->stop) sequence++;
	}
	if (t->closed && t->sound_bytes < t->size_bytes) {
		t->closed = false; /* something stands behind END */
		t->stop = TM_CHUNK_BAD_MAGIC;
	}
	if (!t->end.size) {
		t->end_offset = t->sound_bytes;
		t->end_sequence = sequence;
	}
	tm_unpacker_release(&unpacker);
	tm_bytes_release(&stored);
	return t->stop == TM_CHUNK_NO_MEMORY || t->stop == TM_CHUNK_NEWER ? t->stop : 0;
}

int tm_names_trace_read(struct tm_names_trace *t, int fd) {
	uint8_t header[TM_FILE_HEADER_BYTES];
	uint16_t major, minor;
	struct stat info;
	*t = (struct tm_names_trace){ .next_string_id = 1 };
	int error = tm_file_header_read(header, read_at(fd, header, sizeof header, 0), &major, &minor);
	if (error) return error;
	if (fstat(fd, &info)) return TM_CHUNK_SHORT;
	t->size_bytes = info.st_size;
	t->sound_bytes = TM_FILE_HEADER_BYTES;
	return read_chunks(t, fd);
}

void tm_names_trace_release(struct tm_names_trace *t) {
	for (size_t i = 0; i < t->module_count; i++) {
		free((void *)(uintptr_t)t->modules[i].path);
		free((void *)(uintptr_t)t->modules[i].build_id);
	}
	free(t->modules);
	free(t->frames);
	free(t->named);
	tm_bytes_release(&t->end);
	*t = (struct tm_names_trace){ 0 };
}
