/* function_totals.h - what each function allocated, itself and with everything it called.
 *
 * Flow:     accounts.c (sites) and stack_ids.c -> here -> function_rows.c
 * Idea:     one walk down and up the part of the tree that a heap's sites hang on: amounts add up on the way back, and a function takes what
 *           lies under it where it is not already open further out. So the cost follows the tree and not sites times depth. The order of the walk
 *           is known before it begins, so that memory can be asked for what comes soon.
 * Owns:     one counter a distinct function name of the trace, some bytes a node and a row of the tree.
 * Rule:     a function counts once a stack, however often it recurs. Frames without a name, and empty stacks, are one function.
 */
#ifndef TIDEMARK_ANALYZER_FUNCTION_TOTALS_H
#define TIDEMARK_ANALYZER_FUNCTION_TOTALS_H

#include "accounts.h"
#include "stack_ids.h"

struct tm_function_total {
	struct tm_amount self, total;
	uint32_t open; /* how often it is on the path that is being walked */
	bool used;
};

/* A row of the stack tree on the path. */
struct tm_function_step {
	uint32_t node, function;
	bool outermost; /* of its function */
	struct tm_amount sum;
};

struct tm_function_totals {
	const struct tm_stack_ids *tree;
	uint32_t *function_of;            /* of each string id: the first string id with the same bytes; 0 stays 0 */
	struct tm_function_total *totals; /* by that id */
	TM_ARRAY(uint32_t) used;          /* the ids that have a total, ascending */
	uint32_t *place;                  /* by node: when a walk through the whole tree comes there, from 0 on */
	uint32_t *order;                  /* by place: the node */
	uint8_t *linked;                  /* by node: the walk comes there */
	TM_ARRAY(uint32_t) places;        /* of the linked nodes, where they are few */
	TM_ARRAY(struct tm_function_step) path;
};

/* 0 or -1: out of memory. Release after either. */
int tm_function_totals_init(struct tm_function_totals *f, const struct tm_stack_ids *tree);
void tm_function_totals_release(struct tm_function_totals *f);
/* Fills `totals` and `used` for one heap, forgetting the one before. false: out of memory. */
bool tm_function_totals_count(struct tm_function_totals *f, const struct tm_account *a);

#endif
