/* foreign_trace.h - writes a trace from what a reader of another format tells.
 *
 * Flow:     foreign_NAME.c -> here -> an unnamed file in our own format -> import_trace.c
 * Order:    events are to come in the order of time; one that comes too late gets the time of the one before it.
 * Owns:     the tables of what has been named so far; events wait for a chunk of 64 Ki.
 * Memory:   follows strings, frames and stack nodes, not the events.
 * Fails:    into `failed` and `error`; what follows does nothing.
 * Ids:      from 1, 0 is none. Unknown: pid and tid 0, device, rank and world_size -1.
 */
#ifndef TIDEMARK_ANALYZER_FOREIGN_TRACE_H
#define TIDEMARK_ANALYZER_FOREIGN_TRACE_H

#include "../schema/array.h"
#include "id_map.h"

#include "../schema/activity.h"
#include "../schema/chunk.h"
#include "../schema/events.h"
#include "../schema/records.h"

/* A format that does not say which function was called: ops without a name in kinds.h, read by their class, so that `api` is 'unknown'. Foreign traces
 * are read at once and never kept. */
#define TM_FOREIGN_ALLOC 0x1Fu
#define TM_FOREIGN_FREE 0x3Fu
#define TM_FOREIGN_MAP 0x7Fu
#define TM_FOREIGN_MAP_PIECE 0x7Eu /* what lies beside it is one with it */
#define TM_FOREIGN_UNMAP 0x9Fu

struct tm_foreign_text {
	struct tm_text text;
	uint64_t hash;
};

struct tm_foreign_block;

struct tm_foreign_lane {
	TM_ARRAY(struct tm_event) events;
	uint64_t base_ns;
};

struct tm_foreign_trace {
	int fd;
	struct tm_packer packer;
	struct tm_encoder *encoder;
	struct tm_bytes meta, payload;
	TM_ARRAY(struct tm_foreign_text) strings;
	uint32_t *string_slots;
	size_t string_mask;
	uint64_t seed;
	struct tm_foreign_block *blocks; /* of the strings' bytes */
	struct tm_id_map frame_ids, node_ids;
	TM_ARRAY(struct tm_frame) frames; /* not yet written */
	TM_ARRAY(struct tm_node) nodes;
	struct tm_bytes names;
	uint32_t frame_count, node_count;
	uint32_t processes, threads, modules, heaps, ooms;
	TM_ARRAY(struct tm_foreign_lane) lanes; /* by thread - 1 */
	TM_ARRAY(struct tm_activity) activities;
	uint64_t activity_process;
	size_t waiting; /* events in all lanes */
	uint64_t now_ns, end_ns, events, start_unix_ns;
	uint64_t late_events;           /* had the time of the one before them */
	uint64_t content, told_content; /* a hash of what was written: equal recordings have equal ones; the one of all but itself */
	bool failed;
	char error[200];
};

struct tm_foreign_function {
	struct tm_text function, file; /* empty: unknown */
	uint32_t line;                 /* 0 unknown */
};

int tm_foreign_trace_open(struct tm_foreign_trace *t, int fd);
void tm_foreign_trace_release(struct tm_foreign_trace *t);
/* Everything that waits, and the end of the trace. 0 or -1. */
int tm_foreign_trace_finish(struct tm_foreign_trace *t, uint64_t end_ns);

void tm_foreign_info(struct tm_foreign_trace *t, const char *key, struct tm_text value);
void tm_foreign_info_number(struct tm_foreign_trace *t, const char *key, uint64_t value);
/* When the trace's time 0 was; at any time, also long after the first process. */
void tm_foreign_start(struct tm_foreign_trace *t, uint64_t unix_ns);
uint32_t tm_foreign_string(struct tm_foreign_trace *t, struct tm_text text);
/* Its id is set. start_ns is the trace's 0. */
uint32_t tm_foreign_process(struct tm_foreign_trace *t, struct tm_process_start *start);
uint32_t tm_foreign_thread(struct tm_foreign_trace *t, uint32_t process, uint64_t tid, struct tm_text name);
uint32_t tm_foreign_module(struct tm_foreign_trace *t, uint32_t process, struct tm_text path);
uint32_t tm_foreign_heap(struct tm_foreign_trace *t, uint32_t process, struct tm_text name, const char *kind, int64_t device,
			 uint32_t parent);
/* functions: innermost first, all but the last inlined into the last; n is at most TM_FOREIGN_FUNCTIONS. Equal frames have one id. */
#define TM_FOREIGN_FUNCTIONS 64u
uint32_t tm_foreign_frame(struct tm_foreign_trace *t, enum tm_frame_kind kind, uint32_t process, uint32_t module, uint64_t address,
			  const struct tm_foreign_function *functions, size_t n);
uint32_t tm_foreign_node(struct tm_foreign_trace *t, uint32_t parent, uint32_t frame);
void tm_foreign_note(struct tm_foreign_trace *t, uint32_t process, struct tm_text text);
void tm_foreign_loss(struct tm_foreign_trace *t, uint32_t process, const char *kind, uint64_t count, uint64_t bytes, const char *reason);
void tm_foreign_pool_state(struct tm_foreign_trace *t, const struct tm_pool_state *state);
void tm_foreign_sample(struct tm_foreign_trace *t, uint32_t process, uint64_t ns, const char *name, uint64_t value);
void tm_foreign_device(struct tm_foreign_trace *t, const struct tm_device *device);

void tm_foreign_event(struct tm_foreign_trace *t, uint32_t thread, const struct tm_event *event);
void tm_foreign_allocation(struct tm_foreign_trace *t, uint32_t thread, uint8_t op, uint64_t ns, uint32_t heap, uint64_t address,
			   uint64_t size, uint32_t node);
void tm_foreign_release_of(struct tm_foreign_trace *t, uint32_t thread, uint8_t op, uint64_t ns, uint32_t heap, uint64_t address);
/* A refused request; oom->id is set. */
void tm_foreign_oom(struct tm_foreign_trace *t, uint32_t thread, uint64_t ns, struct tm_oom *oom, uint32_t node);
void tm_foreign_activity(struct tm_foreign_trace *t, uint32_t process, const struct tm_activity *activity);

#endif
