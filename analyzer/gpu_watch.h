/* gpu_watch.h - follows every block of a device through its life: what used it, when it stood idle, and what was live when memory was
 * refused.
 *
 * Flow:     replay.c (blocks as they begin and end; launches, uses, refusals) -> here -> gpu_block_rows.c (gpu_block, gpu_process,
 *           oom_site, oom)
 * Idea:     blocks of devices are few next to those of the host, so each is remembered whole: by address while it lives, in a file
 *           from then on.
 * Tenants:  an allocator that hands out parts of its blocks has a heap of its own (kind tensor). A block of the driver in which such
 *           parts began is a segment of that allocator; what lies between the parts is what the allocator has cached.
 * Owns:     the states of heaps (tm_account.gpu) and processes, the file, the refusals.
 * Fails:    out of memory, or a file that cannot be written, is remembered in `failed`.
 */
#ifndef TIDEMARK_ANALYZER_GPU_WATCH_H
#define TIDEMARK_ANALYZER_GPU_WATCH_H

#include "accounts.h"
#include "device_blocks.h"
#include "spill.h"

#include "ahead.h"

/* A block that ended, or that was live at the end. */
struct tm_gpu_block_row {
	uint64_t id, heap_id, size_bytes, free_ns; /* id: its row of allocation_packed; free_ns: TM_NEVER live at the end */
	struct tm_device_block block;              /* all zero but address and alloc_ns where uses cannot be told */
	uint64_t launches_at_end;                  /* of its process, when it ended or at the end */
	uint32_t process, thread, stack;           /* the trace's; stack: row of the stack tree */
	uint8_t tells_uses;
};

struct tm_gpu_heap {
	struct tm_account *account;
	struct tm_device_blocks blocks;
	bool is_tensor;   /* blocks of an allocator that lie inside of the driver's */
	bool is_segments; /* the driver's, in which they may lie */
	bool is_mapped;   /* blocks that lie side by side are one */
	bool tells_uses;  /* its addresses are those that work names */
};

struct tm_gpu_process {
	uint64_t launches, told_launches; /* told: at least one use of it hit a block */
	uint64_t kernels, told_kernels, graphs;
	uint64_t uses, stray_uses; /* stray: hit no block */
	bool some_untold;          /* some of its work uses memory that it does not tell */
	TM_ARRAY(struct tm_gpu_heap *) heaps;
};

/* What a refusal found, in the order of their events. */
struct tm_gpu_refusal {
	size_t first_site, site_count;                                  /* of oom_sites */
	uint64_t segment_bytes, segment_free_bytes, largest_free_bytes; /* TM_NEVER: unknown */
	bool explained;
};
struct tm_oom_site {
	const struct tm_account *account;
	uint32_t stack;
	struct tm_amount live;
};

struct tm_gpu_thread;

struct tm_gpu_watch {
	const struct tm_catalog *catalog;
	struct tm_gpu_process *processes; /* by id - 1 */
	struct tm_gpu_thread *threads;    /* by id - 1 */
	TM_ARRAY(struct tm_gpu_heap *) heaps;
	struct tm_spill rows; /* struct tm_gpu_block_row */
	TM_ARRAY(struct tm_gpu_refusal) refusals;
	TM_ARRAY(struct tm_oom_site) oom_sites;
	uint64_t looks_left; /* what refusals may still cost */
	bool failed;
};

/* 0 or -1: out of memory. Release after either, but after the accounts. */
int tm_gpu_watch_init(struct tm_gpu_watch *w, const struct tm_catalog *catalog, const char *beside);
void tm_gpu_watch_release(struct tm_gpu_watch *w);

/* A new heap: sets a->gpu if its blocks are to be followed. */
void tm_gpu_watch_heap(struct tm_gpu_watch *w, struct tm_account *a);

/* Of heaps with a->gpu only. thread: that allocated; row: of allocation_packed; free_ns: TM_NEVER at the end. */
void tm_gpu_block_begins(struct tm_gpu_watch *w, struct tm_account *a, const struct tm_block *b);
void tm_gpu_block_ends(struct tm_gpu_watch *w, struct tm_account *a, const struct tm_block *b, uint32_t thread, uint64_t free_ns,
		       uint64_t row);

/* A mapping on a device has begun at this address: only an allocator's own account of its segments tells of such (foreign_snapshot.c).
 * They end in parts. */
void tm_gpu_segment_begins(struct tm_account *a, uint64_t address, bool joins);
void tm_gpu_part_ends(struct tm_gpu_watch *w, struct tm_account *a, const struct tm_block *part);

/* A launch, use or refusal of a thread of this process. */
void tm_gpu_watch_step(struct tm_gpu_watch *w, struct tm_ledger *l, const struct tm_step *s, uint32_t thread);

/* Can the process tell which blocks work has used? A process that put work on a device without ever saying what it uses cannot, nor
 * one whose work said that it does not tell all, that launched graphs (each use of theirs is told once, when they are captured) or whose
 * recording stood still. */
bool tm_gpu_process_tells_uses(const struct tm_gpu_process *p, const struct tm_ledger *l);

#endif
