/* gpu_rows.h - what a trace says about devices besides their blocks: activities, launches, uses, refusals.
 *
 * Flow:     catalog.c (ACTIVITY chunks, oom and device records) -> gpu_activity, gpu_overhead, gpu_memory; replay.c (the events oom,
 *           launch, use) -> here -> oom, gpu_use, and the launching scope, thread and stack of each activity
 * Idea:     activities are rows before their launches are known (they come from another chunk); a launch is kept in a file until the
 *           events are played, and then joined by process and correlation id.
 * Fails:    into the store, or `failed` (out of memory, or a file that cannot be written).
 */
#ifndef TIDEMARK_ANALYZER_GPU_ROWS_H
#define TIDEMARK_ANALYZER_GPU_ROWS_H

#include "ahead.h"
#include "gpu_work.h"
#include "spill.h"
#include "store.h"

#include "../schema/activity.h"

struct tm_bases;
struct tm_replay;

struct tm_gpu_event {                      /* a launch, use or refusal, when it was played */
	uint64_t ns, key, link, scope_row; /* scope_row: 0 none */
	uint32_t process, thread, text;
	uint8_t op;
};

struct tm_gpu_rows {
	struct tm_spill events;
	bool failed;
};

void tm_gpu_rows_init(struct tm_gpu_rows *g, const char *beside);
void tm_gpu_rows_release(struct tm_gpu_rows *g);

/* The statements that write activities while the catalog is read. */
struct tm_activity_sink {
	struct tm_store *store;
	uint64_t process_base, clock_offset_ns;
	sqlite3_stmt *activity, *overhead, *memory;
	struct tm_gpu_works works;
};
void tm_activity_sink_open(struct tm_activity_sink *s, struct tm_store *store, uint64_t process_base, uint64_t clock_offset_ns);
/* Writes gpu_work_total; its names are those of the catalog. */
void tm_activity_sink_close(struct tm_activity_sink *s, const struct tm_catalog *c);
/* false: the store has failed. */
bool tm_activity_sink_take(struct tm_activity_sink *s, const struct tm_catalog *c, uint64_t process, const struct tm_activity *a);

/* A step of kind TM_STEP_GPU; scope_row: of the innermost open scope of its thread. */
void tm_gpu_rows_play(struct tm_gpu_rows *g, const struct tm_step *s, uint32_t process, uint32_t thread, uint64_t scope_row);
/* The stack that event i names, as the trace's node; 0: none. */
uint32_t tm_gpu_rows_node(const struct tm_gpu_rows *g, uint64_t i);
/* A device's 16 bytes in hexadecimal; empty where there are none. */
struct tm_text tm_gpu_uuid_text(struct tm_text uuid, char text[33]);
/* After the replay: oom, gpu_use, gpu_device, and the launches of the activities. */
void tm_write_gpu_rows(struct tm_store *store, const struct tm_replay *r);

#endif
