/* site_changes.h - what happens at call sites, in the order in which it happens, by a thread of its own behind the replay.
 *
 * Flow:     accounts.c -> here -> sites.c, churn.c, leak_watch.c
 * Idea:     a large program has many more call sites than a processor's cache holds, and each event waits for one of them. Levels, peaks and blocks do not need
 *           them, so these go ahead; a change carries what its site must know of them: at which peaks it finds them. Changes that wait are
 *           known early, so that memory can be asked for what they need.
 * Owns:     its belt. While it runs, the sites, the histograms and the watch of all its ledgers are its thread's: whoever reads them settles first.
 * Without:  where there is no thread, changes are made at once.
 * Fails:    out of memory is remembered in `failed`, to be read when it is settled.
 */
#ifndef TIDEMARK_ANALYZER_SITE_CHANGES_H
#define TIDEMARK_ANALYZER_SITE_CHANGES_H

#include "belt.h"
#include "sites.h"

struct tm_account;
struct tm_ledger;

enum tm_site_change_kind { TM_SITE_ALLOCATION, TM_SITE_RELEASE, TM_SITE_SPLIT, TM_SITE_STEP };

struct tm_site_change {
	union {
		struct tm_account *account;
		struct tm_ledger *ledger; /* of a step */
	};
	struct tm_amount amount;                 /* SPLIT: parts that came about */
	uint64_t ns;                             /* when it took effect */
	uint64_t size_bytes, lifetime_ns;        /* of the block; lifetime_ns: RELEASE */
	uint32_t stack, slack;                   /* slack: ALLOCATION */
	uint32_t peak_epoch, process_peak_epoch; /* of the levels, before the change */
	uint16_t chain;                          /* ALLOCATION */
	uint8_t kind;                            /* enum tm_site_change_kind */
	bool temporary;                          /* RELEASE */
};

struct tm_site_changes {
	struct tm_belt belt;
	bool failed; /* the thread's, but when it is settled */
};

/* 0 or -1: out of memory, or no thread could be made. Finish after success. */
int tm_site_changes_start(struct tm_site_changes *c);
/* Waits until all changes are made. */
void tm_site_changes_settle(struct tm_site_changes *c);
void tm_site_changes_finish(struct tm_site_changes *c);
/* false: out of memory. */
bool tm_site_change_make(const struct tm_site_change *change);

#endif
