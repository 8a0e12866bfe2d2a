/* peak_periods.c - peaks between resets; see peak_periods.h. */
#include "peak_periods.h"

void tm_peak_periods_release(struct tm_peak_periods *p) {
	for (size_t i = 0; i < p->running.count; i++) free(p->running.items[i]);
	tm_array_release(&p->running);
	tm_array_release(&p->done);
}

static void finish(struct tm_peak_periods *p, const struct tm_peak_period *period) {
	struct tm_peak_period *kept = tm_array_push(&p->done);
	if (kept) *kept = *period;
	else p->failed = true;
}

/* What came before the first reset is known from the account. */
static struct tm_peak_period *first_period(struct tm_peak_periods *p, struct tm_account *a) {
	struct tm_peak_period *period = calloc(1, sizeof *period), **place = period ? tm_array_push(&p->running) : NULL;
	if (!place) {
		free(period);
		p->failed = true;
		return NULL;
	}
	*period = (struct tm_peak_period){
		.account = a, .start_ns = a->ledger->start_ns, .peak_ns = a->level.peak_ns, .peak = a->level.peak
	};
	return *place = a->period = period;
}

void tm_peak_periods_reset(struct tm_peak_periods *p, struct tm_account *a, uint64_t ns) {
	struct tm_peak_period *period = a->period ? a->period : first_period(p, a);
	if (!period) return;
	period->end_ns = ns;
	finish(p, period);
	*period = (struct tm_peak_period){
		.account = a, .number = period->number + 1, .start_ns = ns, .end_ns = TM_NEVER, .peak_ns = ns, .peak = a->level.live
	};
}

void tm_peak_periods_end(struct tm_peak_periods *p) {
	for (size_t i = 0; i < p->running.count; i++) finish(p, p->running.items[i]);
}
