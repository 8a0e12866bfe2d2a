/* accounts.h - what was allocated, freed and live: by heap, by stack, by process, exact at every event.
 *
 * Flow:     replay.c -> here (levels), site_changes.c (sites) -> import_rows.c
 *
 *     struct tm_ledger (a process)
 *       level: live, peak, timeline over its root heaps
 *       accounts: struct tm_account (a heap)
 *         level: live, peak, timeline of the heap
 *         sites (a stack each, sites.h): allocated, live, temporary, live at the peaks, live at exit
 *
 * Idea:     live-at-peak without copying every site at every new peak: each level counts its peaks (epoch), and a site that changes after a
 *           peak first saves what it had, with the epoch it had it at. A site whose saved epoch is the latest one has its value
 *           at the peak saved; any other has not changed since.
 * Units:    in a sampled trace amounts are fixed-point sums of weights (so that a free takes away exactly what its allocation added) and
 *           rounded when they are written; else plain bytes and counts.
 * Fails:    out of memory is remembered in the ledger's `failed`.
 */
#ifndef TIDEMARK_ANALYZER_ACCOUNTS_H
#define TIDEMARK_ANALYZER_ACCOUNTS_H

#include "catalog.h"
#include "leak_watch.h"
#include "../schema/pairing.h"
#include "ranges.h"
#include "site_changes.h"
#include "sites.h"
#include "timeline.h"

struct tm_level {
	struct tm_amount live, peak;
	uint64_t peak_ns;
	uint32_t epoch; /* comes round after four billion peaks, each a byte higher at least */
	struct tm_timeline timeline;
};

/* Live bytes of whatever has no account of its own: a thread's blocks, a rank, a device. */
struct tm_high {
	struct tm_amount live, peak, allocated;
	uint64_t peak_ns;
};

#define TM_HISTOGRAM_BUCKETS 65u /* bucket 0: zero; n: at least 2^(n-1), below 2^n */

struct tm_histograms {
	struct tm_amount sizes[TM_HISTOGRAM_BUCKETS], lifetimes[TM_HISTOGRAM_BUCKETS]; /* lifetimes: of what was freed */
};

/* How one trace's amounts are counted. */
struct tm_scale {
	double mean_bytes;                 /* of the sampling; 0: every allocation */
	unsigned bytes_shift, count_shift; /* binary places behind the point */
};

struct tm_ledger;
struct tm_gpu_heap;
struct tm_peak_period;
struct tm_scope_heap;
struct tm_scope_process;

/* Which call sites had something live when the process left, and how leaks.c judged them. */
struct tm_leak_rows {
	uint32_t *row_of; /* by site: number + 1 of the row of tm_leaks that stands for it, 0 none; NULL: the process has not left, or by exec */
	uint32_t sites;   /* so many: later ones had nothing live then */
};

/* What two threads write lies so far apart that neither takes the other's lines of cache. */
#define TM_APART_BYTES 128u

struct tm_account {
	struct tm_ledger *ledger;
	uint64_t id; /* row id in table heap */
	struct tm_text name, kind;
	int64_t device; /* -1 none */
	uint64_t parent_id;
	bool is_root, sampled, is_waiting;
	uint8_t apart[TM_APART_BYTES];
	struct tm_level level;
	struct tm_amount allocated, temporary, at_exit;
	uint64_t splits;
	uint8_t apart_from_levels[TM_APART_BYTES];
	struct tm_sites sites; /* this and the histograms: site_changes.c */
	struct tm_histograms *histograms;
	uint8_t apart_from_sites[TM_APART_BYTES];
	struct tm_pairing pairing;
	uint32_t device_high;             /* replay.h: number + 1 of what it counts for, 0 none */
	struct tm_gpu_heap *gpu;          /* gpu_watch.h; NULL: its blocks are no device's */
	struct tm_peak_period *period;    /* peak_periods.h; NULL: its peak was never reset */
	struct tm_account *next_waiting;  /* of the accounts in which events wait */
	struct tm_leak_rows leak_rows;
	struct tm_scope_heap *scope_heap; /* scopes.h; NULL until it is looked at for scopes */
};

struct tm_ledger {
	void *owner;      /* whoever replays events into it; not used here */
	uint32_t process; /* id in the trace */
	uint32_t threads; /* how many it ever had */
	struct tm_scale scale;
	uint32_t rank_high; /* replay.h: number + 1, 0 none */
	struct tm_level level;
	TM_ARRAY(struct tm_account *) accounts;
	struct tm_account *malloc_account, *mmap_account, *file_account; /* the default heaps, NULL until used */
	struct tm_ranges ranges;
	uint8_t apart[TM_APART_BYTES];
	struct tm_leak_watch watch; /* site_changes.c */
	uint8_t apart_from_watch[TM_APART_BYTES];
	struct tm_site_changes *changes; /* makes the changes of the sites; NULL: they are made at once */
	uint64_t start_ns, last_ns;      /* last_ns: of its latest event, 0 none */
	struct tm_scope_process *scopes; /* scopes.h; NULL: it has had no scope and no step so far */
	bool exited;                     /* at_exit is set */
	bool stopped;                    /* recording was off for a while: frees of unknown blocks mean nothing */
	uint64_t lost_frees, lost_free_bytes, unmatched_frees;
	bool failed;
};

/* known_ns: begin of the trace's window (tm_timeline_init()). */
void tm_ledger_init(struct tm_ledger *l, uint32_t process, uint64_t start_ns, uint64_t known_ns, struct tm_scale scale);
void tm_ledger_release(struct tm_ledger *l);

/* A new heap of the process; texts must outlive it. NULL: out of memory. */
struct tm_account *tm_ledger_open_account(struct tm_ledger *l, uint64_t id, struct tm_text name, struct tm_text kind, int64_t device,
					  uint64_t parent_id);
/* Recording stops here for a while, or goes on. */
void tm_ledger_pause(struct tm_ledger *l);
/* Remembers what is live now as live at exit. */
void tm_ledger_exit(struct tm_ledger *l);
/* The process has ended: a peak of before the trace's window is what was left of it when that began, or at the end if that was before. */
void tm_ledger_end(struct tm_ledger *l, uint64_t end_ns);
/* A step of the process begins. */
void tm_ledger_step(struct tm_ledger *l, uint64_t ns);
/* Until the next event the sites, the histograms and the watch may be read. */
void tm_ledger_settle(struct tm_ledger *l);

/* What a block of this size counts. */
struct tm_amount tm_account_amount(const struct tm_account *a, uint64_t size_bytes);
double tm_sample_weight(const struct tm_scale *scale, uint64_t size_bytes);

/* passing: it is released at the same instant, so that no level ever was as high. */
void tm_account_allocated(struct tm_account *a, const struct tm_block *b, struct tm_amount amount, uint64_t ns, bool passing);
/* lifetime_ns: of the block, by its own stamps. */
void tm_account_released(struct tm_account *a, const struct tm_block *b, struct tm_amount amount, uint64_t ns, uint64_t lifetime_ns,
			 bool temporary);
void tm_high_rises(struct tm_high *h, struct tm_amount amount, uint64_t ns, bool passing);
void tm_high_falls(struct tm_high *h, struct tm_amount amount);
/* `survivors` parts take the place of the one counted so far, besides the part that is released next: so many counts more, without bytes. */
struct tm_amount tm_account_parts(const struct tm_account *a, unsigned survivors);
void tm_account_split(struct tm_account *a, uint32_t stack, unsigned survivors);

/* Values at the peaks, whatever has happened since. */
static inline struct tm_amount tm_site_at_peak(const struct tm_account *a, uint32_t site) {
	bool saved = tm_site_epochs(&a->sites, site).peak == a->level.epoch;
	return tm_site_amount(&a->sites, site, saved ? TM_SITE_AT_PEAK : TM_SITE_LIVE);
}
static inline struct tm_amount tm_site_at_process_peak(const struct tm_account *a, uint32_t site) {
	if (!a->is_root) return (struct tm_amount){ 0, 0 };
	bool saved = tm_site_epochs(&a->sites, site).process_peak == a->ledger->level.epoch;
	return tm_site_amount(&a->sites, site, saved ? TM_SITE_AT_PROCESS_PEAK : TM_SITE_LIVE);
}

/* To whole bytes and counts. */
static inline uint64_t tm_unscaled(uint64_t value, unsigned shift) {
	return shift ? (value + ((uint64_t)1 << (shift - 1))) >> shift : value;
}
static inline uint64_t tm_scaled_bytes(const struct tm_account *a, uint64_t bytes) {
	return tm_unscaled(bytes, a->ledger->scale.bytes_shift);
}
static inline uint64_t tm_scaled_count(const struct tm_account *a, uint64_t count) {
	return tm_unscaled(count, a->ledger->scale.count_shift);
}

#endif
