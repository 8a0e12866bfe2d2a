/* churn.c - how a heap's blocks come and go; see churn.h. */
#include "churn.h"

/* 0 for 0, else the number of binary digits: bucket n holds what is at least 2^(n-1) and below 2^n. */
static unsigned bucket_of(uint64_t value) {
	return value ? 64 - (unsigned)__builtin_clzll(value) : 0;
}

void tm_churn_allocated(const struct tm_site_change *c, struct tm_site *s) {
	if (c->chain) {
		tm_amount_add(&s->amounts[TM_SITE_REALLOCATED], c->amount);
		if (c->chain > s->longest_chain) s->longest_chain = c->chain;
	}
	if (s->amounts[TM_SITE_ALLOCATED].count && s->last_size_bytes == c->size_bytes) s->same_size += c->amount.count;
	s->last_size_bytes = c->size_bytes;
	if (c->slack != TM_SLACK_UNKNOWN) {
		s->slack_bytes += c->slack * c->amount.count;
		s->knows_slack = true;
	}
	tm_amount_add(&c->account->histograms->sizes[bucket_of(c->size_bytes)], c->amount);
}

void tm_churn_released(const struct tm_site_change *c, struct tm_site *s) {
	if (c->lifetime_ns < TM_SHORT_LIFE_NS) tm_amount_add(&s->amounts[TM_SITE_SHORT_LIVED], c->amount);
	s->lifetimes += (double)c->lifetime_ns * (double)c->amount.count;
	tm_amount_add(&c->account->histograms->lifetimes[bucket_of(c->lifetime_ns)], c->amount);
}

uint64_t tm_churn_mean_life_ns(const struct tm_site *s) {
	uint64_t freed = s->amounts[TM_SITE_ALLOCATED].count + s->splits - s->amounts[TM_SITE_LIVE].count;
	return freed ? (uint64_t)(s->lifetimes / (double)freed) : UINT64_MAX;
}
