/* churn.h - how a heap's blocks come and go: how large, how long, how often again; by call site and as histograms.
 *
 * Flow:     site_changes.c -> here -> site_rows.c (the last columns of site_total), level_rows.c (tables size_bucket, lifetime_bucket)
 * Owns:     nothing: it adds to the site and the histograms of the account.
 * Units:    amounts are scaled as accounts.h says.
 */
#ifndef TIDEMARK_ANALYZER_CHURN_H
#define TIDEMARK_ANALYZER_CHURN_H

#include "accounts.h"

#define TM_SHORT_LIFE_NS 1000000u /* shorter ones are short-lived */

static inline bool tm_churn_is_short(const struct tm_site_change *c) {
	return c->lifetime_ns < TM_SHORT_LIFE_NS;
}

/* 0 for 0, else the number of binary digits: bucket n holds what is at least 2^(n-1) and below 2^n. */
static inline unsigned tm_churn_bucket(uint64_t value) {
	return value ? 64 - (unsigned)__builtin_clzll(value) : 0;
}
/* The account's histograms. */
static inline void tm_churn_count_size(const struct tm_site_change *c) {
	tm_amount_add(&c->account->histograms->sizes[tm_churn_bucket(c->size_bytes)], c->amount);
}
static inline void tm_churn_count_lifetime(const struct tm_site_change *c) {
	tm_amount_add(&c->account->histograms->lifetimes[tm_churn_bucket(c->lifetime_ns)], c->amount);
}

/* What an allocation and a release do first, with the site open: the histograms included. */
void tm_churn_allocated(const struct tm_site_change *c, struct tm_site *s);
void tm_churn_released(const struct tm_site_change *c, struct tm_site *s);

/* The mean lifetime of the site's blocks that were freed; UINT64_MAX if none was. */
uint64_t tm_churn_mean_life_ns(const struct tm_site *s);

#endif
