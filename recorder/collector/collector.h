/* collector.h - one recording: what the files of tidemark-record share.
 *
 *     session.c    rings in shared memory
 *        |         drain.c reads records, controls.c those that are about processes, modules and threads
 *        v
 *     group.c      filled with the help of process_table.c, module_table.c, stack_tree.c; samples.c adds readings
 *        |         columns.c: ticks to nanoseconds, events to columns; tally.c follows the peak
 *        v         a second thread:
 *     encode.c     records and columns to chunks, zstd; writer.c writes
 *
 * Threads: everything here is the drainer's (the main thread), but for `encoder` and `sampler`, which say how they are shared. At the end, while names are
 *          written, another one gives back what only reading events needed (record_main.c).
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_COLLECTOR_H
#define TIDEMARK_RECORDER_COLLECTOR_COLLECTOR_H

#include "alerts.h"
#include "aside.h"
#include "columns.h"
#include "dumps.h"
#include "encode.h"
#include "group.h"
#include "id_map.h"
#include "launcher_variables.h"
#include "module_table.h"
#include "names_ahead.h"
#include "process_table.h"
#include "python_stacks.h"
#include "record_options.h"
#include "ring_order.h"
#include "samples.h"
#include "session.h"
#include "stack_tree.h"
#include "stats.h"
#include "tally.h"
#include "timebase.h"
#include "writer.h"

struct tm_ring_view;

struct tm_interned { /* texts that have a string id */
	struct tm_text_row {
		const char *text;
		uint32_t size, hash;
	} * rows; /* rows[id - 1] */
	size_t count, capacity;
	uint32_t *slots;   /* open addressing; id, 0: empty */
	size_t slot_count; /* a power of two */
	struct tm_text_store *store; /* the texts, block behind block */
	size_t bytes;
	uint32_t too_many; /* id of the text that stands for those that are not kept, 0: all are */
};

struct tm_collector {
	struct tm_options options;
	struct tm_session session;
	struct tm_timebase timebase;
	struct tm_writer writer;
	struct tm_flight *flight; /* of --max-size=SIZE,ring; else NULL */
	struct tm_encoder_thread encoder;
	struct tm_sampler sampler;
	struct tm_group *group; /* being filled; never NULL while recording */
	struct tm_process_table processes;
	struct tm_module_table modules;
	struct tm_stack_tree stacks;
	struct tm_names_ahead ahead;
	struct tm_aside aside;
	struct tm_columns columns;
	struct tm_tally *tally;
	struct tm_alerts alerts;
	struct tm_dumps dumps;
	struct tm_python_stacks python;
	struct tm_interned strings;
	uint32_t category_texts[TM_SCOPE_CATEGORY_OWN]; /* string ids of enum tm_scope_category, 0: not used yet */
	struct tm_question questions[TM_STATS_SLOTS]; /* by the slot that they are answered in */
	struct tm_launcher launcher; /* of our own environment */
	char host[256];
	struct tm_ring_view *rings;     /* one for each ring of the session */
	uint32_t rings_known;           /* so many of them were ever used */
	struct tm_ring_view **admitted; /* of a pass: those that are read for the first time */
	size_t admitted_capacity;
	struct tm_ring_order order;     /* of a pass: those that are not read yet */
	uint64_t *block; /* a copy of what is being read from a ring */
	size_t block_words;
	uint64_t watermark_ticks; /* every event before it is in a group already */
	uint64_t patient_ticks;   /* the same for figures, which do not wait for ever: see patience.h */
	uint64_t events, lost_events, lost_records, marks;
	uint32_t unrecorded; /* programs of which a note says that they could not be */
	bool is_bypassed;    /* one says that some allocations do not come by us */
	uint64_t refusals;
	uint32_t *gpu_functions; /* string ids by the driver's number (gpu_records.c) */
	uint64_t unringed_events; /* as last seen in the session */
	uint64_t housekeeping_ns, unringed_written_ns;
	uint32_t fullest;    /* of a pass: how much of a ring there was to read, of the ring that held most of what it can, in 1,024ths */
	bool modules_wait;   /* of a pass: a ring holds records of modules that came or went */
	bool finishing;      /* the last passes: nothing is waited for any more */
	void (*while_waiting)(struct tm_collector *c, uint64_t waited_ns); /* for the writer; called now and then. NULL: nothing is done */
	const char *stopped; /* why nothing is recorded any more while the program runs on; NULL: recording */
};

#endif
