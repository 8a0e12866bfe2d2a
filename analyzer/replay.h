/* replay.h - plays a trace's events against the processes' accounts, and keeps what is asked about particular instants.
 *
 * Flow:     merge.c (turns in order of time) -> here -> pairing.c, ranges.c -> accounts.c, and feed.c for each block that ended
 * Owns:     the ledgers, the origins, marks and snapshots of one trace.
 * Memory:   follows the live blocks, the call sites and the marks.
 * Fails:    out of memory is remembered in `failed`.
 */
#ifndef TIDEMARK_ANALYZER_REPLAY_H
#define TIDEMARK_ANALYZER_REPLAY_H

#include "accounts.h"
#include "checkpoints.h"
#include "feed.h"
#include "foreign.h"
#include "gpu_rows.h"
#include "gpu_watch.h"
#include "leaks.h"
#include "merge.h"
#include "peak_periods.h"
#include "scopes.h"
#include "stack_ids.h"

/* What is added to a trace's ids to make them the database's. */
struct tm_bases {
	uint64_t process, thread, heap, module, frame, stack, origin, mark, snapshot, row, scope, scope_name, checkpoint;
};

struct tm_origin {
	struct tm_account *account;
	uint32_t thread;
	uint8_t op;
};

struct tm_mark_row {
	uint64_t ns;
	uint32_t process, thread;
	uint8_t op; /* TM_OP_MARK, or TM_OP_SNAPSHOT and TM_OP_BASELINE: a snapshot only, which has the name as its label */
	struct tm_text name;
};

/* From tidemark_stop() to tidemark_start(); end_ns: TM_NEVER it never came. */
struct tm_pause {
	uint32_t process;
	uint64_t start_ns, end_ns;
};

struct tm_leaver {
	struct tm_ledger *ledger;
	uint64_t exit_ns;
};

/* What was live in one heap when a mark was passed. */
struct tm_mark_snapshot {
	size_t mark; /* index of the mark */
	const struct tm_account *account;
	struct tm_amount live;
	size_t first, count; /* of snapshot_sites */
	bool detailed;
};
struct tm_snapshot_site {
	uint32_t stack;
	struct tm_amount live;
};

struct tm_gap {
	uint64_t ns, rss_bytes, tool_bytes, live_bytes;
	uint32_t process;
}; /* tool_bytes: UINT64_MAX unknown */

/* What a process occupies on a device, as its driver says, and what it has live there: in its own right, in pools, and of an allocator whose heap lies in
 * no other. */
struct tm_device_gap {
	uint64_t ns, used_bytes, device_bytes, pool_bytes, tensor_bytes;
	uint32_t process;
	int32_t device;
};

/* What has to be looked at between events: exits, the recorder's own marks, samples of resident memory and of devices, ends. */
enum tm_instant_kind { TM_INSTANT_EXIT, TM_INSTANT_MARK, TM_INSTANT_RSS, TM_INSTANT_DEVICE, TM_INSTANT_END };
struct tm_instant {
	uint64_t ns;
	enum tm_instant_kind kind;
	uint32_t process;
	uint32_t index;
};

/* A rank or a device, over all processes of the trace. */
struct tm_shared_high {
	bool is_device;
	int64_t number;
	struct tm_text identity; /* of a device its uuid, of a rank its world, empty unknown: there may be several of one number */
	struct tm_high high;
	struct tm_amount gone; /* was live when its process ended */
};

struct tm_actor;

struct tm_replay {
	const struct tm_catalog *catalog;
	const struct tm_stack_ids *stacks;
	struct tm_feed *feed;
	struct tm_bases bases;
	bool hides_addresses;                          /* they only tell blocks apart, and no row shows them */
	bool begins_midway;                            /* processes had blocks before it, whose frees it has */
	uint64_t clock_offset_ns, next_row, next_heap; /* next_*: the id given last */
	uint64_t now_ns;                               /* time of the step being played */
	uint64_t events;                               /* steps played: a realloc is two */
	struct tm_ledger *ledgers;                     /* one a process of the catalog */
	struct tm_actor *actors;                       /* one a thread of the catalog */
	struct tm_account **heap_accounts;             /* one a heap of the catalog */
	struct tm_high *thread_highs;                  /* one a thread: live blocks of root heaps that it allocated */
	struct tm_site_changes changes;
	TM_ARRAY(struct tm_shared_high) shared_highs;
	struct tm_checkpoints checkpoints;
	uint64_t next_look_events;                    /* when the next one is due */
	uint64_t checkpoint_sites, checkpoint_splits; /* of all heaps at the last one */
	struct tm_scopes scopes;
	struct tm_gpu_rows gpu;
	struct tm_gpu_watch watch;
	struct tm_peak_periods periods;
	struct tm_leaks leaks;
	bool ended;                         /* there are no more turns */
	TM_ARRAY(struct tm_leaver) leavers; /* processes that left since */
	const struct tm_merge *coming;      /* the turns to come, set before the first one */
	struct tm_account *waiting; /* accounts in which events wait for their turn */
	uint64_t look_ns;           /* when to see whether they have waited too long */
	TM_ARRAY(struct tm_origin) origins;
	TM_ARRAY(struct tm_instant) instants;
	size_t next_instant;
	TM_ARRAY(struct tm_mark_row) marks;
	TM_ARRAY(struct tm_pause) pauses;
	uint64_t known_until_ns; /* of processes whose end the trace does not have, set before tm_replay_end() */
	TM_ARRAY(struct tm_mark_snapshot) mark_snapshots;
	TM_ARRAY(struct tm_snapshot_site) snapshot_sites;
	uint64_t sites_to_scan; /* what marks may still cost */
	TM_ARRAY(struct tm_gap) gaps;
	TM_ARRAY(struct tm_device_gap) device_gaps;
	unsigned released_chain; /* of the block that ended last: how often realloc had moved it */
	bool failed;
};

/* Readings that are compared with what is live then: they come filled but for that, and are taken over. */
struct tm_readings {
	TM_ARRAY(struct tm_gap) gaps;
	TM_ARRAY(struct tm_device_gap) device_gaps;
};

/* 0 or -1: out of memory. foreign: what the trace was translated from; NULL: it is our own. beside: a path in the directory where files may be made.
 * Release after either. */
int tm_replay_init(struct tm_replay *r, const struct tm_catalog *catalog, const struct tm_stack_ids *stacks, struct tm_feed *feed,
		   const struct tm_bases *bases, uint64_t clock_offset_ns, struct tm_readings *readings, const struct tm_foreign *foreign,
		   const char *beside);
void tm_replay_release(struct tm_replay *r);

void tm_replay_turn(struct tm_replay *r, const struct tm_turn *turn);
/* After the last turn: what waits is settled, exits that came later are taken, live blocks become rows. From now on call sites stay as they are, and others may
 * read them. */
void tm_replay_end(struct tm_replay *r);
/* Then: leaks are looked for in the processes that left last, and the blocks go. */
void tm_replay_judge(struct tm_replay *r);

/* When the process began to leave and when it ended, in the trace's own time. */
uint64_t tm_process_exit_ns(const struct tm_replay *r, uint32_t process);
uint64_t tm_process_end_ns(const struct tm_replay *r, uint32_t process);
/* Up to where all is known, once played: tm_catalog_stopped_ns(), or the last event, where some that were read before the stop found no room. */
uint64_t tm_replay_stopped_ns(const struct tm_replay *r);

/* The function that an op stands for. */
const char *tm_api_name(uint8_t op);

#endif
