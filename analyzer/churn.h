/* churn.h - how a heap's blocks come and go: how large, how long, how often again; by call site and as histograms.
 *
 * Flow:     accounts.c -> here -> site_rows.c (the last columns of site_total), level_rows.c (tables size_bucket, lifetime_bucket)
 * Owns:     nothing: it adds to the site and the histograms of the account.
 * Units:    amounts are scaled as accounts.h says.
 */
#ifndef TIDEMARK_ANALYZER_CHURN_H
#define TIDEMARK_ANALYZER_CHURN_H

#include "accounts.h"

#define TM_SHORT_LIFE_NS 1000000u /* shorter ones are short-lived */

/* What tm_account_allocated() and tm_account_released() do first, with the site open. */
void tm_churn_allocated(struct tm_account *a, struct tm_site *s, const struct tm_block *b, struct tm_amount amount);
void tm_churn_released(struct tm_account *a, struct tm_site *s, struct tm_amount amount, uint64_t lifetime_ns);

/* The mean lifetime of the site's blocks that were freed; UINT64_MAX if none was. */
uint64_t tm_churn_mean_life_ns(const struct tm_site *s);

#endif
