/* stack_ids.h - a trace's stacks as the database numbers them.
 *
 * Flow:     catalog.c -> here -> replay.c asks for the stack of an event; import_rows.c and function_totals.c walk the tree
 * Idea:     a trace's node is one return address; here it becomes one row for each function there, so a node of a frame with two inlined
 *           functions becomes a chain of three rows. Where the innermost functions are operator new, or malloc as an inline function,
 *           the stack is the first row further out that is not (api says what was called). The trace's tree stays as it is;
 *           rows are numbered, not stored.
 * Numbers:  rows of frames and of stacks count from 1 within the trace; 0 is none, or the empty stack. The database adds its base.
 *           A frame's rows go outward from the innermost function; a node's go inward, so that a parent's number is below its child's.
 */
#ifndef TIDEMARK_ANALYZER_STACK_IDS_H
#define TIDEMARK_ANALYZER_STACK_IDS_H

#include "catalog.h"

#define TM_STACK_NEAR 32u

struct tm_stack_ids {
	const struct tm_catalog *catalog;
	uint32_t *frame_first; /* of each frame: row of its innermost function; one more item than frames */
	uint32_t *node_first;  /* of each node: its outermost row; one more item than nodes */
	uint32_t *left_out;    /* of each frame: how many of its rows are none of a stack whose innermost frame it is */
	uint32_t *node_near;   /* of every TM_STACK_NEAR rows: the node of the first one */
	uint8_t *string_flags; /* of each string: enum tm_function_flag, for those that name functions */
	uint8_t *module_flags; /* of each module, by its number: the same, for its functions that have no name */
};

enum tm_function_flag { TM_FUNCTION_WRAPPER = 1, TM_FUNCTION_OPERATOR_NEW = 2, TM_FUNCTION_INLINED_ALLOCATOR = 4 };

/* 0, or -1: out of memory (or more rows than 32 bits count). Release after either. */
int tm_stack_ids_init(struct tm_stack_ids *t, const struct tm_catalog *catalog);
void tm_stack_ids_release(struct tm_stack_ids *t);

/* The row that stands for a node as a stack; 0 stays 0. */
static inline uint32_t tm_stack_of(const struct tm_stack_ids *t, uint32_t node) {
	const struct tm_catalog_node *nodes = t->catalog->nodes.items;
	for (; node; node = nodes[node - 1].parent) {
		uint32_t end = t->node_first[node], rows = end - t->node_first[node - 1], less = t->left_out[nodes[node - 1].frame - 1];
		if (less < rows) return end - 1 - less;
	}
	return 0;
}

/* One row of a stack: walk with tm_stack_outward() until it says false. */
struct tm_stack_row {
	uint32_t node;     /* id of the trace's node */
	uint32_t function; /* 0 the innermost function of the node's frame, counting outward */
};

struct tm_stack_row tm_stack_find(const struct tm_stack_ids *t, uint32_t row); /* row is not 0 */
bool tm_stack_outward(const struct tm_stack_ids *t, struct tm_stack_row *at);

/* Number of functions at a frame, at least 1. */
uint32_t tm_frame_functions(const struct tm_catalog_frame *frame);
/* An allocator's own, by its name, or by its module where it has none. */
bool tm_frame_is_wrapper(const struct tm_stack_ids *t, const struct tm_catalog_frame *frame, uint32_t function);
/* Its name's string id, 0 unknown; `function` counts outward. */
uint32_t tm_frame_function_name(const struct tm_catalog *c, const struct tm_catalog_frame *frame, uint32_t function);

#endif
