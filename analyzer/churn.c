/* churn.c - how a heap's blocks come and go; see churn.h. */
#include "churn.h"

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
	tm_churn_count_size(c);
}

void tm_churn_released(const struct tm_site_change *c, struct tm_site *s) {
	if (tm_churn_is_short(c)) tm_amount_add(&s->amounts[TM_SITE_SHORT_LIVED], c->amount);
	s->lifetimes += (double)c->lifetime_ns * (double)c->amount.count;
	tm_churn_count_lifetime(c);
}

uint64_t tm_churn_mean_life_ns(const struct tm_site *s) {
	uint64_t freed = s->amounts[TM_SITE_ALLOCATED].count + s->splits - s->amounts[TM_SITE_LIVE].count;
	return freed ? (uint64_t)(s->lifetimes / (double)freed) : UINT64_MAX;
}
