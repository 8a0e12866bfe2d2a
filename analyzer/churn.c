/* churn.c - how a heap's blocks come and go; see churn.h. */
#include "churn.h"

/* 0 for 0, else the number of binary digits: bucket n holds what is at least 2^(n-1) and below 2^n. */
static unsigned bucket_of(uint64_t value) {
	return value ? 64 - (unsigned)__builtin_clzll(value) : 0;
}

static void add(struct tm_amount *to, struct tm_amount amount) {
	to->bytes += amount.bytes;
	to->count += amount.count;
}

void tm_churn_allocated(struct tm_account *a, struct tm_site *s, const struct tm_block *b, struct tm_amount amount) {
	if (b->chain) {
		add(&s->amounts[TM_SITE_REALLOCATED], amount);
		if (b->chain > s->longest_chain) s->longest_chain = b->chain;
	}
	if (s->amounts[TM_SITE_ALLOCATED].count && s->last_size_bytes == b->size_bytes) s->same_size += amount.count;
	s->last_size_bytes = b->size_bytes;
	if (b->slack != TM_SLACK_UNKNOWN) {
		s->slack_bytes += b->slack * amount.count;
		s->knows_slack = true;
	}
	add(&a->histograms->sizes[bucket_of(b->size_bytes)], amount);
}

void tm_churn_released(struct tm_account *a, struct tm_site *s, struct tm_amount amount, uint64_t lifetime_ns) {
	if (lifetime_ns < TM_SHORT_LIFE_NS) add(&s->amounts[TM_SITE_SHORT_LIVED], amount);
	s->lifetimes += (double)lifetime_ns * (double)amount.count;
	add(&a->histograms->lifetimes[bucket_of(lifetime_ns)], amount);
}

uint64_t tm_churn_mean_life_ns(const struct tm_site *s) {
	uint64_t freed = s->amounts[TM_SITE_ALLOCATED].count + s->splits - s->amounts[TM_SITE_LIVE].count;
	return freed ? (uint64_t)(s->lifetimes / (double)freed) : UINT64_MAX;
}
