/* info_trace.c - counts what a trace holds: chunks, records and events by kind, and where it ends.
 *
 * One pass over the sound part of the file, in constant memory. Texts that matter to a person (info, notes, losses, alerts) become rows
 * as they come; everything else is counted by its number and named by the lists of kinds.h.
 */
#include "info_trace.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "schema/activity.h"
#include "schema/events.h"
#include "schema/kinds.h"
#include "schema/records.h"
#include "coverage.h"
#include "foreign.h"
#include "reader.h"
#include "talk.h"

#define KIND_COUNT 256
#define TAG_COUNT 64

struct facts {
	sqlite3 *handle;
	sqlite3_stmt *insert;
	const char *path;
	const struct tm_foreign *foreign; /* where it is another tool's, translated; NULL */
	struct tm_decoder *decoder;
	uint64_t chunks[KIND_COUNT], records[TAG_COUNT], ops[KIND_COUNT];
	uint64_t other_records, frames, nodes, stored_bytes, raw_bytes;
	uint8_t last_kind;
	bool ends_early; /* a note says that the recording did before some process */
};

static void add_text(struct facts *f, const char *topic, struct tm_text name, struct tm_text value) {
	sqlite3_bind_text(f->insert, 1, topic, -1, SQLITE_STATIC);
	sqlite3_bind_text(f->insert, 2, name.data, (int)name.size, SQLITE_STATIC);
	sqlite3_bind_text(f->insert, 3, value.data, (int)value.size, SQLITE_STATIC);
	sqlite3_step(f->insert);
	sqlite3_reset(f->insert);
}

static void add_word(struct facts *f, const char *topic, const char *name, const char *value) {
	add_text(f, topic, tm_text_of(name), tm_text_of(value));
}

static void add_number(struct facts *f, const char *topic, const char *name, uint64_t value) {
	sqlite3_bind_text(f->insert, 1, topic, -1, SQLITE_STATIC);
	sqlite3_bind_text(f->insert, 2, name, -1, SQLITE_STATIC);
	sqlite3_bind_int64(f->insert, 3, (sqlite3_int64)value);
	sqlite3_step(f->insert);
	sqlite3_reset(f->insert);
}

/* In the words of a database. */
static void add_loss(struct facts *f, struct tm_cursor *body) {
	struct tm_loss loss = tm_get_loss(body);
	char bytes[32] = ", bytes unknown", kind[32];
	snprintf(kind, sizeof kind, "'%.*s'", loss.kind.size < 29 ? (int)loss.kind.size : 29, loss.kind.data);
	if (strstr(TM_LOSSES_OF_NO_EVENT, kind)) *bytes = 0;
	else if (tm_loss_has_bytes(loss.kind)) snprintf(bytes, sizeof bytes, ", bytes %llu", (unsigned long long)loss.bytes);
	char *text = sqlite3_mprintf("count %llu%s: %.*s", loss.count, bytes, (int)loss.reason.size, loss.reason.data);
	if (!body->bad && text) add_text(f, "lost", loss.kind, tm_text_of(text));
	sqlite3_free(text);
}

/* Decodes a record that is only counted; body->bad says whether it was malformed. */
static void check_record(uint64_t tag, struct tm_cursor *body) {
	switch (tag) {
#define CHECK(name, function) \
	case TM_RECORD_##name: function(body); break;
		CHECK(STRING, tm_get_string_record)
		CHECK(PROCESS_START, tm_get_process_start)
		CHECK(PROCESS_EXIT, tm_get_process_exit)
		CHECK(PROCESS_END, tm_get_process_end)
		CHECK(THREAD_START, tm_get_thread_start)
		CHECK(THREAD_END, tm_get_thread_end)
		CHECK(THREAD_NAME, tm_get_thread_name)
		CHECK(MODULE_LOAD, tm_get_module_load)
		CHECK(MODULE_UNLOAD, tm_get_module_unload)
		CHECK(HEAP, tm_get_heap)
		CHECK(FRAME_MODULE, tm_get_frame_module)
		CHECK(MARK, tm_get_mark)
		CHECK(WATERMARK, tm_get_watermark)
		CHECK(TOTALS, tm_get_totals)
		CHECK(POOL_STATE, tm_get_pool_state)
		CHECK(OOM, tm_get_oom)
		CHECK(DEVICE, tm_get_device)
#undef CHECK
	case TM_RECORD_SAMPLES: {
		struct tm_samples samples = tm_get_samples(body);
		struct tm_sample sample;
		while (tm_sample_next(&samples.values, &sample)) continue;
		body->bad |= samples.values.bad;
		break;
	}
	case TM_RECORD_NAME: {
		struct tm_name name = tm_get_name(body);
		struct tm_function function;
		while (tm_function_next(&name.functions, &function)) continue;
		body->bad |= name.functions.bad;
		break;
	}
	default: /* of a later minor version */ break;
	}
}

/* false: malformed. */
static bool read_record(struct facts *f, uint64_t tag, struct tm_cursor *body) {
	if (tag < TAG_COUNT) f->records[tag]++;
	else f->other_records++;
	if (tag == TM_RECORD_LOSS) {
		add_loss(f, body);
	} else if (tag == TM_RECORD_INFO) {
		struct tm_info info = tm_get_info(body);
		if (!body->bad) add_text(f, "info", info.key, info.value);
	} else if (tag == TM_RECORD_NOTE) {
		struct tm_note note = tm_get_note(body);
		if (!body->bad && !tm_is_world_note(note.kind)) add_text(f, "note", note.kind, note.text);
		f->ends_early |= tm_is_note(note.kind, note.process ? TM_NOTE_STILL_RUNNING : TM_NOTE_STOPPED_BY_SIZE) ||
				 (note.process && tm_is_note(note.kind, TM_NOTE_NO_CLOCK));
	} else if (tag == TM_RECORD_ALERT) {
		struct tm_alert alert = tm_get_alert(body);
		char value[32];
		snprintf(value, sizeof(value), "%llu bytes", (unsigned long long)alert.value);
		if (!body->bad) add_text(f, "alert", alert.rule, tm_text_of(value));
	} else {
		check_record(tag, body);
	}
	return !body->bad;
}

/* The three kinds of payload. false: malformed, so that the trace ends before this chunk. */
static bool read_records(struct facts *f, struct tm_cursor *payload) {
	uint64_t tag;
	struct tm_cursor body;
	while (tm_record_next(payload, &tag, &body)) {
		if (!read_record(f, tag, &body)) return false;
	}
	return !payload->bad;
}

static bool read_stacks(struct facts *f, struct tm_cursor *payload) {
	struct tm_stacks stacks = { 0 };
	bool sound = tm_get_stacks(payload, &stacks) == 0;
	if (sound) {
		f->frames += stacks.frame_count;
		f->nodes += stacks.node_count;
	}
	tm_stacks_release(&stacks);
	return sound;
}

static bool read_events(struct facts *f, struct tm_cursor *payload) {
	uint64_t watermark, segments;
	struct tm_segment segment;
	tm_get_events_header(payload, &watermark, &segments);
	for (uint64_t i = 0; i < segments && !payload->bad; i++) {
		if (tm_decode_segment(f->decoder, payload, &segment)) return false;
		for (size_t k = 0; k < segment.count; k++) f->ops[segment.events[k].op]++;
	}
	return !payload->bad && payload->p == payload->end;
}

static bool read_activities(struct tm_cursor *payload) {
	struct tm_activities activities;
	bool sound = tm_get_activities(payload, &activities) == 0;
	tm_activities_release(&activities);
	return sound;
}

static bool read_chunk(struct facts *f, struct tm_reader *reader, const struct tm_chunk_header *h) {
	struct tm_cursor payload;
	if (tm_reader_payload(reader, h, &payload)) return false;
	bool sound = h->kind == TM_CHUNK_STACKS   ? read_stacks(f, &payload)
		     : h->kind == TM_CHUNK_EVENTS ? read_events(f, &payload)
		     : h->kind <= TM_CHUNK_END    ? read_records(f, &payload)
		     : h->kind == TM_CHUNK_ACTIVITY ? read_activities(&payload)
						  : true;
	if (!sound) return false;
	f->chunks[h->kind]++;
	f->stored_bytes += h->stored_bytes;
	f->raw_bytes += h->raw_bytes;
	f->last_kind = h->kind;
	return true;
}

static const char *chunk_name(unsigned kind) {
	static const char *const names[KIND_COUNT] = {
#define X(name, number) [number] = #name,
		TM_CHUNK_KINDS(X)
#undef X
	};
	return names[kind] ? names[kind] : "unknown";
}

static const char *tag_name(unsigned tag) {
	static const char *const names[TAG_COUNT] = {
#define X(name, number) [number] = #name,
		TM_RECORD_TAGS(X)
#undef X
	};
	return names[tag] ? names[tag] : "unknown";
}

static const char *op_name(unsigned op) {
	static const char *const names[KIND_COUNT] = {
#define X(name, code, api) [code] = #name,
		TM_OPS(X)
#undef X
	};
	return names[op] ? names[op] : "unknown";
}

/* Allocations and frees, a realloc counting as both; marks are no events of memory. */
static uint64_t count_events(const struct facts *f) {
	uint64_t events = 0;
	for (unsigned op = 0; op < KIND_COUNT; op++) {
		unsigned class = TM_OP_CLASS(op);
		if (class >= TM_CLASS_TEXT) continue;
		events += f->ops[op] * (class == TM_CLASS_REALLOC || class == TM_CLASS_REMAP ? 2 : 1);
	}
	return events;
}

static void add_foreign_end(struct facts *f) {
	add_number(f, "trace", "file_bytes", f->foreign->file_bytes);
	add_number(f, "trace", "sound_bytes", f->foreign->sound_bytes);
	add_word(f, "trace", "complete", f->foreign->cut_reason || f->records[TM_RECORD_LOSS] ? "no" : "yes");
	if (f->foreign->cut_reason) add_word(f, "trace", "cut_reason", f->foreign->cut_reason);
}

/* The words of TM_IS_COMPLETE, which asks a database the same. */
static const char *complete_text(const struct facts *f, bool closed, bool runs_on) {
	if (!closed || f->records[TM_RECORD_LOSS]) return "no";
	return runs_on || f->ends_early || f->ops[TM_OP_STOP] ? "part" : "yes";
}

static void add_end(struct facts *f, const struct tm_reader *reader, bool sound) {
	bool closed = sound && !reader->stopped && f->last_kind == TM_CHUNK_END;
	uint64_t sound_bytes = sound ? reader->offset : reader->chunk_offset;
	if (f->foreign) {
		add_foreign_end(f);
		return;
	}
	add_number(f, "trace", "file_bytes", reader->file_bytes);
	add_number(f, "trace", "sound_bytes", sound_bytes);
	uint64_t started = f->records[TM_RECORD_PROCESS_START], ended = f->records[TM_RECORD_PROCESS_END];
	add_word(f, "trace", "complete", complete_text(f, closed, started > ended)); /* what was lost is listed by itself */
	if (closed && started > ended) add_number(f, "trace", "running when it was written", started - ended);
	if (closed) return;
	add_word(f, "trace", "cut_reason",
		 !sound            ? "a chunk's content is damaged"
		 : reader->stopped ? reader->stopped
				   : "it was not closed");
}

static void add_counts(struct facts *f, uint64_t file_bytes) {
	uint64_t events = count_events(f);
	for (unsigned i = 0; i < KIND_COUNT; i++) {
		if (f->chunks[i]) add_number(f, "chunks", chunk_name(i), f->chunks[i]);
	}
	add_number(f, "chunks", "stored_bytes", f->stored_bytes);
	add_number(f, "chunks", "raw_bytes", f->raw_bytes);
	for (unsigned i = 0; i < TAG_COUNT; i++) {
		if (f->records[i]) add_number(f, "records", tag_name(i), f->records[i]);
	}
	if (f->other_records) add_number(f, "records", "unknown", f->other_records);
	add_number(f, "stacks", "frames", f->frames);
	add_number(f, "stacks", "stacks", f->nodes);
	for (unsigned i = 0; i < KIND_COUNT; i++) {
		if (f->ops[i]) add_number(f, "events", op_name(i), f->ops[i]);
	}
	add_number(f, "events", "all", events);
	char text[32];
	snprintf(text, sizeof(text), "%.2f", events ? (double)file_bytes / (double)events : 0.0);
	if (events) add_word(f, "events", "bytes an event", text);
}

static int read_trace(struct facts *f, struct tm_reader *reader) {
	struct tm_chunk_header h;
	char version[64];
	bool sound = true;
	if (f->foreign) snprintf(version, sizeof(version), "%s", f->foreign->format);
	else snprintf(version, sizeof(version), "%u.%u", reader->major, reader->minor);
	add_word(f, "trace", "path", f->path);
	add_word(f, "trace", "format_version", version);
	while (sound && tm_reader_next(reader, &h)) sound = read_chunk(f, reader, &h);
	add_end(f, reader, sound);
	add_counts(f, f->foreign ? f->foreign->file_bytes : reader->file_bytes);
	return 0;
}

static int show_trace(sqlite3 *handle, const char *path, const struct tm_foreign *foreign) {
	struct facts f = { .foreign = foreign, .handle = handle, .path = path, .decoder = tm_decoder_new() };
	struct tm_reader reader;
	char error[512];
	int status = TM_EXIT_FAILED;
	bool open = tm_reader_open(&reader, foreign ? foreign->path : path, error, sizeof(error)) == 0;
	if (!open) {
		tm_fail("cannot open '%s': %s", path, error);
	} else if (!f.decoder || sqlite3_exec(handle, "CREATE TABLE fact(topic, name, value)", NULL, NULL, NULL) != SQLITE_OK ||
		   sqlite3_prepare_v2(handle, "INSERT INTO fact VALUES(?, ?, ?)", -1, &f.insert, NULL) != SQLITE_OK) {
		tm_fail("cannot read '%s': out of memory", path);
	} else {
		status = read_trace(&f, &reader);
	}
	sqlite3_finalize(f.insert);
	tm_decoder_free(f.decoder);
	tm_reader_release(&reader);
	return status;
}

int tm_info_trace(sqlite3 *handle, const char *path) {
	char why[64];
	enum tm_foreign_kind kind = tm_reader_recognise(path) == 1 ? TM_FOREIGN_NONE : tm_foreign_recognise(path, why, sizeof why);
	struct tm_foreign foreign;
	if (kind == TM_FOREIGN_NONE) return show_trace(handle, path, NULL);
	int status = tm_foreign_translate(&foreign, kind, path, NULL);
	status = status ? tm_fail("cannot read '%s': %s", path, foreign.error) : show_trace(handle, path, &foreign);
	tm_foreign_release(&foreign);
	return status;
}
