/* records.h - the tagged records of META, NAMES and END chunks.
 *
 * Flow:     collector -> tm_put_<record>() -> payload ... payload -> tm_record_next() -> tm_get_<record>() -> analyzer
 * Owns:     nothing; texts of a decoded record look into the payload.
 * Fields:   as schema/format.md section 3 lists them; unknown numbers are -1 here and 0 (the +1 form) on the wire.
 */
#ifndef TIDEMARK_SCHEMA_RECORDS_H
#define TIDEMARK_SCHEMA_RECORDS_H

#include "kinds.h"
#include "wire.h"

struct tm_process_start {
	uint64_t id, pid, parent_id, start_ns, flags; /* flags: enum tm_process_flag */
	int64_t rank, local_rank, world_size;         /* -1 unknown */
	struct tm_text exe, command, host;            /* command: arguments joined by NUL */
};
struct tm_process_exit { uint64_t process, ns; };
struct tm_process_end { uint64_t process, ns, kind, code; }; /* kind: enum tm_end_kind */
struct tm_thread_start { uint64_t id, process, tid, start_ns; };
struct tm_thread_end { uint64_t thread, ns; };
struct tm_thread_name { uint64_t thread; struct tm_text name; };
struct tm_module_load { uint64_t id, process, bias, low, size_bytes, ns; struct tm_text path, build_id; };
struct tm_module_unload { uint64_t module, ns; };
struct tm_heap { uint64_t id, process, parent; int64_t device; struct tm_text name, kind; };
struct tm_frame_module { uint64_t frame, module; };
struct tm_samples { uint64_t process, ns; struct tm_cursor values; }; /* values: tm_sample_next() */
struct tm_sample { struct tm_text name; uint64_t value; };
struct tm_mark { uint64_t process, thread, ns; struct tm_text name; };
struct tm_note { uint64_t process, ns; struct tm_text kind, text; };
struct tm_loss { uint64_t process, thread, ns; struct tm_text kind; uint64_t count, bytes; struct tm_text reason; };
struct tm_alert { uint64_t process, ns; struct tm_text rule; uint64_t value; };
struct tm_name { uint64_t frame; struct tm_cursor functions; }; /* functions: tm_function_next() */
struct tm_function { uint64_t function, file, line; };           /* string ids and a line, 0 unknown */
struct tm_pool_state { uint64_t heap, ns; int64_t allocated, reserved, active, inactive; }; /* bytes; negative: unknown */
struct tm_oom { uint64_t id, process, heap, size_bytes; struct tm_text result; int64_t free_bytes, total_bytes; }; /* negative: unknown */
struct tm_device { uint64_t process, device; int64_t total_bytes; struct tm_text uuid, name; };
struct tm_totals { uint64_t events, chunks, end_ns; };
struct tm_info { struct tm_text key, value; };
struct tm_string { uint64_t id; struct tm_text bytes; };

static inline struct tm_text tm_text_of(const char *z) { return (struct tm_text){ z, z ? strlen(z) : 0 }; }

static inline bool tm_is_note(struct tm_text kind, const char *wanted) {
	return kind.size == strlen(wanted) && memcmp(kind.data, wanted, kind.size) == 0;
}

static inline bool tm_is_world_note(struct tm_text kind) { return tm_is_note(kind, TM_NOTE_WORLD); }

/* Of losses of these kinds the recorder, or who translates another tool's file, counts how many, not what they allocated. */
static inline bool tm_loss_has_bytes(struct tm_text kind) {
	static const char *const counted[] = { "no-ring",     "nested",         "impossible",     "corrupt-ring", "max-size",
					       "not-written", "sizeless-event", "timeless-event", "odd-row" };
	for (size_t i = 0; i < sizeof counted / sizeof *counted; i++)
		if (tm_is_note(kind, counted[i])) return false;
	return true;
}

/* Writing. Each appends one record to the payload. */
void tm_put_info(struct tm_bytes *b, struct tm_text key, struct tm_text value);
void tm_put_string_record(struct tm_bytes *b, uint64_t id, struct tm_text bytes);
void tm_put_process_start(struct tm_bytes *b, const struct tm_process_start *r);
void tm_put_process_exit(struct tm_bytes *b, const struct tm_process_exit *r);
void tm_put_process_end(struct tm_bytes *b, const struct tm_process_end *r);
void tm_put_thread_start(struct tm_bytes *b, const struct tm_thread_start *r);
void tm_put_thread_end(struct tm_bytes *b, const struct tm_thread_end *r);
void tm_put_thread_name(struct tm_bytes *b, const struct tm_thread_name *r);
void tm_put_module_load(struct tm_bytes *b, const struct tm_module_load *r);
void tm_put_module_unload(struct tm_bytes *b, const struct tm_module_unload *r);
void tm_put_heap(struct tm_bytes *b, const struct tm_heap *r);
void tm_put_frame_module(struct tm_bytes *b, const struct tm_frame_module *r);
void tm_put_samples(struct tm_bytes *b, uint64_t process, uint64_t ns, const struct tm_sample *samples, size_t n);
void tm_put_mark(struct tm_bytes *b, const struct tm_mark *r);
void tm_put_note(struct tm_bytes *b, const struct tm_note *r);
void tm_put_loss(struct tm_bytes *b, const struct tm_loss *r);
void tm_put_alert(struct tm_bytes *b, const struct tm_alert *r);
void tm_put_name(struct tm_bytes *b, uint64_t frame, const struct tm_function *functions, size_t n); /* innermost first */
void tm_put_pool_state(struct tm_bytes *b, const struct tm_pool_state *r);
void tm_put_oom(struct tm_bytes *b, const struct tm_oom *r);
void tm_put_device(struct tm_bytes *b, const struct tm_device *r);
void tm_put_watermark(struct tm_bytes *b, uint64_t ns);
void tm_put_totals(struct tm_bytes *b, const struct tm_totals *r);

/* Reading: takes the next record off the payload. true: *tag and *body are set. false: the end, or malformed (payload->bad). */
bool tm_record_next(struct tm_cursor *payload, uint64_t *tag, struct tm_cursor *body);

/* Each decodes one body; after it, body->bad says whether it was malformed. */
struct tm_info tm_get_info(struct tm_cursor *body);
struct tm_string tm_get_string_record(struct tm_cursor *body);
struct tm_process_start tm_get_process_start(struct tm_cursor *body);
struct tm_process_exit tm_get_process_exit(struct tm_cursor *body);
struct tm_process_end tm_get_process_end(struct tm_cursor *body);
struct tm_thread_start tm_get_thread_start(struct tm_cursor *body);
struct tm_thread_end tm_get_thread_end(struct tm_cursor *body);
struct tm_thread_name tm_get_thread_name(struct tm_cursor *body);
struct tm_module_load tm_get_module_load(struct tm_cursor *body);
struct tm_module_unload tm_get_module_unload(struct tm_cursor *body);
struct tm_heap tm_get_heap(struct tm_cursor *body);
struct tm_frame_module tm_get_frame_module(struct tm_cursor *body);
struct tm_samples tm_get_samples(struct tm_cursor *body);
bool tm_sample_next(struct tm_cursor *values, struct tm_sample *out); /* false: no more (or values->bad) */
struct tm_mark tm_get_mark(struct tm_cursor *body);
struct tm_note tm_get_note(struct tm_cursor *body);
struct tm_loss tm_get_loss(struct tm_cursor *body);
struct tm_alert tm_get_alert(struct tm_cursor *body);
struct tm_name tm_get_name(struct tm_cursor *body);
bool tm_function_next(struct tm_cursor *functions, struct tm_function *out);
uint64_t tm_get_watermark(struct tm_cursor *body);
struct tm_pool_state tm_get_pool_state(struct tm_cursor *body);
struct tm_oom tm_get_oom(struct tm_cursor *body);
struct tm_device tm_get_device(struct tm_cursor *body);
struct tm_totals tm_get_totals(struct tm_cursor *body);

/* STACKS chunks (format.md section 4). */
struct tm_frame { uint64_t kind, process, module, address; };
struct tm_node { uint64_t parent, frame; };

/* Appends a whole STACKS payload: frames first_frame.. and nodes first_node.., each array in id order. */
void tm_put_stacks(struct tm_bytes *b, uint64_t first_frame, const struct tm_frame *frames, size_t frame_count,
		   uint64_t first_node, const struct tm_node *nodes, size_t node_count);

/* The same for a writer who makes the columns of the nodes as they come: they hold all nodes from first_node on. */
struct tm_node_columns {
	struct tm_bytes parents, frames;
	uint64_t last_frame;
	size_t count;
};
static inline void tm_put_node(struct tm_node_columns *c, uint64_t id, uint64_t parent, uint64_t frame) {
	tm_put_varint(&c->parents, id - parent);
	tm_put_zigzag(&c->frames, (int64_t)(frame - c->last_frame));
	c->last_frame = frame;
	c->count++;
}
void tm_put_stacks_by_column(struct tm_bytes *b, uint64_t first_frame, const struct tm_frame *frames, size_t frame_count,
			     uint64_t first_node, const struct tm_node_columns *nodes);

struct tm_stacks {
	uint64_t first_frame, first_node;
	struct tm_frame *frames; /* owned; frame_count of them */
	struct tm_node *nodes;   /* owned; node_count of them */
	size_t frame_count, node_count, frame_capacity, node_capacity;
};

/* 0; -1 malformed (a parent not below its node included); -2 out of memory. { 0 } before the first call; a further one takes the memory over.
 * Release at last, after whatever it was. */
int tm_get_stacks(struct tm_cursor *payload, struct tm_stacks *out);
void tm_stacks_release(struct tm_stacks *s);

#endif
