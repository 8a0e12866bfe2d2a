/* group.h - what is written together: new things, new stacks, and the events of a second at most.
 *
 * Flow:     drain.c, controls.c, stack_tree.c -> struct tm_group -> encode.c -> META, STACKS, NAMES and EVENTS chunks
 * Owns:     its arrays and texts; cleared and used again.
 * Threads:  the drainer fills it, then the encoder has it alone, then it goes back.
 * Times:    every time in a record is in ticks; encode.c turns them into nanoseconds with the group's own map. Events: columns.c.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_GROUP_H
#define TIDEMARK_RECORDER_COLLECTOR_GROUP_H

#include "../../schema/activity.h"
#include "../../schema/events.h"
#include "../../schema/records.h"
#include "tally.h"
#include "timebase.h"

#define TM_GROUP_EVENTS (256u << 10) /* a group with as many is closed */
#define TM_GROUP_NODES (512u << 10)
#define TM_GROUP_META_BYTES (16u << 20)

/* X(identifier, name in the trace) */
#define TM_READINGS(X) \
	X(RSS, "rss") X(RSS_PEAK, "rss_peak") X(PSS, "pss") X(VMS, "vms") X(SWAP, "swap") X(CGROUP, "cgroup") X(TOOL_RSS, "tool_rss") \
	X(DEVICE_USED, "device_used") \
	X(RSS_HEAP, "rss_heap") X(RSS_ARENAS, "rss_arenas") X(RSS_ANONYMOUS, "rss_anonymous") X(RSS_STACKS, "rss_stacks") \
	X(RSS_FILES, "rss_files") X(RSS_SHARED, "rss_shared")

enum tm_reading_name {
#define X(id, name) TM_READING_##id,
	TM_READINGS(X)
#undef X
		TM_READING_COUNT
};

struct tm_reading { /* what was read at one moment; bit i of `known` says that values[i] is */
	uint64_t process, ns, known;
	uint64_t values[TM_READING_COUNT];
	struct {
		uint32_t number_plus_1; /* 0: the reading is not of a device */
		uint64_t own_bytes, all_bytes, total_bytes; /* UINT64_MAX unknown */
	} device;
};

/* One record to come, in the structures of records.h; `ns` fields hold ticks. */
struct tm_meta {
	enum tm_record_tag tag;
	union {
		struct tm_info info;
		struct tm_string string;
		struct tm_process_start process_start;
		struct tm_process_exit process_exit;
		struct tm_process_end process_end;
		struct tm_thread_start thread_start;
		struct tm_thread_end thread_end;
		struct tm_thread_name thread_name;
		struct tm_module_load module_load;
		struct tm_module_unload module_unload;
		struct tm_heap heap;
		struct tm_frame_module frame_module;
		struct tm_reading samples;
		struct tm_note note;
		struct tm_loss loss;
		struct tm_pool_state pool_state;
		struct tm_oom oom;
		struct tm_device device;
		struct {
			struct tm_mark record;
			bool is_ns; /* its time is no tick */
		} mark;
		struct {
			struct tm_alert record;
			bool is_ns;
		} alert;
		struct {
			uint64_t frame;
			struct tm_function function;
		} name;
	};
};

struct tm_segment_buffer {
	uint32_t thread, process; /* ids of the trace */
	struct tm_event *events;    /* not encoded yet */
	size_t count, capacity;
	size_t settled;             /* of them have their times in nanoseconds, and the tally has seen them */
	struct tm_encoder *encoder; /* has those before them; NULL: there are none (columns.c) */
	struct tm_tally_segment allocations;
	bool told; /* the tally says which allocations the frees end */
};

struct tm_group_activity {
	uint32_t process;
	struct tm_activity activity; /* its times are ticks */
};

struct tm_text_block;

struct tm_group {
	uint32_t serial; /* differs from group to group, so that a ring knows whether its segment is of this one */
	struct tm_meta *meta;
	size_t meta_count, meta_capacity, meta_bytes;
	struct tm_text_block *texts;
	uint64_t first_frame, first_node;
	struct tm_frame *frames;
	size_t frame_count, frame_capacity;
	struct tm_node_columns nodes;
	struct tm_segment_buffer *segments; /* segment_count in use; those behind keep their memory */
	size_t segment_count, segment_capacity;
	size_t event_count;
	size_t text_count;   /* of them, those that are scopes, marks and the like */
	size_t double_count; /* of them, those that the user counts twice: an allocation and a free */
	struct tm_group_activity *activities;
	size_t activity_count, activity_capacity;
	struct tm_bytes names;   /* records of frames of this group and of those before */
	struct tm_bytes payload; /* of the EVENTS chunk, once the group is closed; empty: there is none */
	uint32_t *threads;       /* of the payload's segments */
	size_t thread_count, thread_capacity;
	uint64_t end_ns;         /* of the last event */
	uint64_t opened_ns; /* CLOCK_MONOTONIC when its first content came, 0: empty */
	bool dump; /* once it is written, the file is copied */
	struct tm_time_map time_map;
	struct tm_group *next; /* in a queue */
};

void tm_group_release(struct tm_group *g);
/* Empties it for the next use; keeps memory, but not without bound. */
void tm_group_clear(struct tm_group *g);

/* A new record of this tag, all fields 0; never NULL. */
struct tm_meta *tm_group_add(struct tm_group *g, enum tm_record_tag tag);
/* The room for events, which are encoded by now, goes from a group to the next: only one has any. */
void tm_group_keep_segments(struct tm_group *to, struct tm_group *from);
/* A copy of the text that lives as long as the group's content. */
struct tm_text tm_group_text(struct tm_group *g, const char *data, size_t n);
/* A new, empty segment; returns its index. */
size_t tm_group_add_segment(struct tm_group *g, uint32_t thread, uint32_t process);
/* A new activity of this process, all fields 0. */
struct tm_activity *tm_group_add_activity(struct tm_group *g, uint32_t process);
/* The frame's functions, innermost first; their texts are in this group or in one before, as the frame is. */
void tm_group_name_frame(struct tm_group *g, uint64_t frame, const struct tm_function *functions, size_t count);
void tm_group_add_note(struct tm_group *g, uint64_t process, uint64_t ticks, const char *kind, const char *text);

static inline bool tm_group_is_full(const struct tm_group *g) {
	if (g->activity_count >= TM_GROUP_EVENTS) return true;
	return g->event_count >= TM_GROUP_EVENTS || g->nodes.count >= TM_GROUP_NODES || g->meta_bytes >= TM_GROUP_META_BYTES;
}

#endif
