/* peak_periods.h - the peaks of a heap between the resets that the program asked for (reset_peak).
 *
 * Flow:     replay.c -> here -> gpu_block_rows.c (table peak_period)
 * Idea:     a heap has no period until its peak is reset for the first time: what came before is its peak up to then. So heaps that
 *           nobody resets cost one comparison with NULL an allocation.
 * Owns:     the periods; tm_account.period points to the one that runs.
 * Fails:    out of memory is remembered in `failed`.
 */
#ifndef TIDEMARK_ANALYZER_PEAK_PERIODS_H
#define TIDEMARK_ANALYZER_PEAK_PERIODS_H

#include "accounts.h"

struct tm_peak_period {
	const struct tm_account *account;
	uint64_t number, start_ns, end_ns,
		peak_ns; /* number: 0 is up to the first reset; end_ns: TM_NEVER it runs to the end of the process */
	struct tm_amount peak;
};

struct tm_peak_periods {
	TM_ARRAY(struct tm_peak_period) done;
	TM_ARRAY(struct tm_peak_period *) running;
	bool failed;
};

void tm_peak_periods_release(struct tm_peak_periods *p);
/* The peak of this heap begins anew, now. */
void tm_peak_periods_reset(struct tm_peak_periods *p, struct tm_account *a, uint64_t ns);
/* After the last event: all are done. */
void tm_peak_periods_end(struct tm_peak_periods *p);

/* The level of an account whose `period` is set has risen. */
static inline void tm_peak_period_rises(struct tm_peak_period *p, const struct tm_amount *live, uint64_t ns) {
	if (live->bytes <= p->peak.bytes) return;
	p->peak = *live;
	p->peak_ns = ns;
}

#endif
