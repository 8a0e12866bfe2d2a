/* function_totals.h - what each function allocated, itself and with everything it called.
 *
 * Flow:     accounts.c (sites) and stack_ids.c -> here -> table function_aggregate
 * Owns:     one counter a distinct function name of the trace.
 * Rule:     a function counts once a stack, however often it recurs. Frames without a name, and empty stacks, are one function.
 */
#ifndef TIDEMARK_ANALYZER_FUNCTION_TOTALS_H
#define TIDEMARK_ANALYZER_FUNCTION_TOTALS_H

#include "accounts.h"
#include "stack_ids.h"

struct tm_function_total {
	struct tm_amount self, total;
	uint32_t seen; /* the last site that counted it */
};

struct tm_function_totals {
	const struct tm_stack_ids *tree;
	uint32_t *function_of;            /* of each string id: the first string id with the same bytes; 0 stays 0 */
	struct tm_function_total *totals; /* by that id */
	size_t count;
	uint32_t sites_seen;
};

/* 0 or -1: out of memory. Release after either. */
int tm_function_totals_init(struct tm_function_totals *f, const struct tm_stack_ids *tree);
void tm_function_totals_release(struct tm_function_totals *f);
/* Fills `totals` for one heap, forgetting the one before. */
void tm_function_totals_count(struct tm_function_totals *f, const struct tm_account *a);

#endif
