/* catalog.h - everything a trace says besides its events: who ran, what was loaded, the stack tree, the names.
 *
 * Flow:     reader.c -> here (first walk over the file) -> stacks.c, replay.c, import_rows.c
 * Idea:     names come last in a trace but are needed first (to give stacks their final ids), so the file is walked twice: here
 *           over all chunks, where EVENTS are only checked and listed, then by ahead.c over the EVENTS.
 * Owns:     all of it; texts are copies.
 * Memory:   follows the stack tree and the names, not the events. Samples are handed out as they are read.
 * Threads:  one of its own while a large file is read, which decodes the stack tree ahead (stacks_ahead.c).
 * Ids:      a thing with id n is item n - 1 of its array; `defined` is false for an id that the file skipped. Threads have numbers without gaps
 *           instead, 1 for the first in the file, and so have marks and losses of theirs: of a server's a bounded file skips as many as have ended.
 */
#ifndef TIDEMARK_ANALYZER_CATALOG_H
#define TIDEMARK_ANALYZER_CATALOG_H

#include "../schema/array.h"
#include "id_map.h"
#include "reader.h"
#include "text_store.h"

#include "../schema/activity.h"
#include "../schema/records.h"

#define TM_NEVER UINT64_MAX /* of times: unknown */

struct tm_catalog_process {
	bool defined, ended;
	uint64_t pid, parent_id, start_ns, flags, exit_ns, end_ns, end_kind, end_code; /* exit_ns, end_ns: TM_NEVER unknown */
	int64_t rank, local_rank, world_size;                                          /* -1 unknown */
	struct tm_text exe, command, host;                                             /* empty: unknown */
	struct tm_text world;                                                          /* of its rank; empty: unknown */
};

struct tm_catalog_thread {
	uint32_t process;
	uint64_t tid, start_ns, end_ns; /* end_ns: TM_NEVER unknown */
	struct tm_text name;
};

struct tm_catalog_module {
	bool defined;
	uint32_t process;
	uint64_t bias, low, size_bytes, load_ns, unload_ns; /* unload_ns: TM_NEVER it stayed */
	struct tm_text path, build_id;
};

struct tm_catalog_heap {
	bool defined;
	uint32_t process, parent;
	int64_t device;
	struct tm_text name, kind;
};

struct tm_catalog_frame {
	uint8_t kind;                               /* enum tm_frame_kind */
	uint32_t module, functions, function_count; /* functions: index of the innermost; count 0: not named */
	uint64_t address;
};

struct tm_catalog_node {
	uint32_t parent, frame;
};
struct tm_catalog_function {
	uint32_t name, file, line;
}; /* string ids, 0 unknown */
struct tm_catalog_info {
	struct tm_text key, value;
};
struct tm_catalog_mark {
	uint64_t ns;
	uint32_t process, thread;
	struct tm_text name;
};
struct tm_catalog_note {
	uint64_t ns;
	uint32_t process;
	struct tm_text kind, text;
};
struct tm_catalog_loss {
	uint32_t process, thread;
	uint64_t count, bytes;
	struct tm_text kind, reason;
};
struct tm_catalog_oom {
	uint32_t process, heap;
	uint64_t size_bytes;
	int64_t free_bytes, total_bytes; /* -1 unknown */
	struct tm_text result;
};
struct tm_catalog_device {
	uint32_t process;
	uint64_t device;
	int64_t total_bytes; /* -1 unknown */
	struct tm_text uuid, name;
};
struct tm_catalog_alert {
	uint64_t ns, value;
	uint32_t process;
	struct tm_text rule;
};
/* What the second walk visits: an EVENTS chunk, or a watermark (offset 0) that stands between them. */
struct tm_catalog_stop {
	uint64_t offset, watermark_ns;
	uint32_t stored_bytes;
};

struct tm_catalog {
	uint16_t major, minor;
	uint64_t file_bytes, sound_bytes, events_bytes;   /* events_bytes: stored size of all EVENTS chunks */
	bool closed;                                      /* the last chunk is END, at the end of the file */
	const char *stopped;                              /* why reading stopped early; NULL */
	uint64_t end_ns;                                  /* the latest time in any record */
	uint64_t total_events;                            /* as END says, 0 unknown */
	uint64_t sample_bytes, start_unix_ns, page_bytes; /* from info; start_unix_ns 0 unknown */
	uint64_t window_start_ns; /* from info: of the events before it only those are there whose blocks were live then; 0: all are there */
	TM_ARRAY(struct tm_catalog_process) processes;
	TM_ARRAY(struct tm_catalog_thread) threads; /* tm_catalog_thread_of() */
	struct tm_id_map thread_numbers;
	TM_ARRAY(struct tm_catalog_module) modules;
	TM_ARRAY(struct tm_catalog_heap) heaps;
	TM_ARRAY(struct tm_catalog_frame) frames;
	TM_ARRAY(struct tm_catalog_node) nodes;
	TM_ARRAY(struct tm_catalog_function) functions;
	TM_ARRAY(struct tm_text) strings;
	TM_ARRAY(struct tm_catalog_info) infos;
	TM_ARRAY(struct tm_catalog_mark) marks;
	TM_ARRAY(struct tm_catalog_note) notes;
	TM_ARRAY(struct tm_catalog_loss) losses;
	TM_ARRAY(struct tm_catalog_alert) alerts;
	TM_ARRAY(struct tm_catalog_oom) ooms; /* tm_catalog_oom_of() */
	uint64_t ooms_before;                 /* ids below theirs, of refusals that a bounded file has dropped */
	TM_ARRAY(struct tm_catalog_device) devices;
	TM_ARRAY(struct tm_catalog_stop) stops;
	struct tm_text_store texts;
};

/* Takes one sample; process 0 is the machine. false: it failed, and reading ends. */
typedef bool tm_sample_sink(void *context, uint64_t process, uint64_t ns, const struct tm_sample *sample);

/* Takes one state of a pool, its heap by the trace's id; false as above. */
typedef bool tm_pool_sink(void *context, const struct tm_pool_state *state);

/* Takes one activity of a process; false as above. */
typedef bool tm_activity_taker(void *context, const struct tm_catalog *c, uint64_t process, const struct tm_activity *activity);

enum tm_catalog_result {
	TM_CATALOG_OK = 0,
	TM_CATALOG_DAMAGED = -1, /* the chunk at *damaged_offset does not parse: read again with that limit */
	TM_CATALOG_NO_MEMORY = -2,
	TM_CATALOG_SINK = -3, /* the sink said no */
};

/* Walks the whole file up to `limit` (UINT64_MAX: its end). Release after any result. */
int tm_catalog_read(struct tm_catalog *c, struct tm_reader *r, uint64_t limit, uint64_t *damaged_offset, tm_sample_sink *sink,
		    tm_pool_sink *pools, tm_activity_taker *activities, void *context);
/* One chunk, that the reader gave last, for whoever reads a trace that is still written: the same results. Its stops are the caller's to use up. */
int tm_catalog_take(struct tm_catalog *c, struct tm_reader *r, const struct tm_chunk_header *h, tm_sample_sink *sink, void *context);
void tm_catalog_release(struct tm_catalog *c);

/* Which recording a trace is of: two files that agree in all of it are copies. */
struct tm_trace_identity {
	uint64_t start_unix_ns; /* the wall clock at the trace's time 0; 0 unknown */
	uint64_t first_pid;     /* 0: no process */
	char host[256];
};

/* From the trace's first chunks alone. */
struct tm_trace_identity tm_catalog_peek(const char *path);

/* How much of its recording a trace holds: one of its copies may be cut off, or was made while the program still ran. */
struct tm_trace_reach {
	uint64_t end_ns; /* the latest time in any record */
	bool closed;
	uint64_t sound_bytes;
};

/* From the whole trace, but its events. */
struct tm_trace_reach tm_catalog_reach(const char *path);

/* When the recording stopped while the program ran on, as it had reached its largest size; TM_NEVER: it did not. */
uint64_t tm_catalog_stopped_ns(const struct tm_catalog *c);
/* The number of the thread that has this id in the trace: it is item number - 1. 0: there is none. */
uint32_t tm_catalog_thread_of(const struct tm_catalog *c, uint64_t id);
/* NULL: there is none of that id. */
const struct tm_catalog_oom *tm_catalog_oom_of(const struct tm_catalog *c, uint64_t id);
/* Were events of this process lost? */
bool tm_catalog_has_losses(const struct tm_catalog *c, uint32_t process);
/* Some of its allocations are not recorded, while their frees may be. */
bool tm_catalog_is_bypassed(const struct tm_catalog *c, uint32_t process);
/* Value of an info key, empty if there is none. */
struct tm_text tm_catalog_info(const struct tm_catalog *c, const char *key);

#endif
