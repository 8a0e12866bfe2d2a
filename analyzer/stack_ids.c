/* stack_ids.c - a trace's stacks as the database numbers them; see stack_ids.h. */
#include "stack_ids.h"

#include "wrappers.h"

#include <pthread.h>

#define MANY_NODES 100000u /* of fewer the rows are numbered before a thread is made */

uint32_t tm_frame_functions(const struct tm_catalog_frame *frame) {
	return frame->function_count ? frame->function_count : 1;
}

uint32_t tm_frame_function_name(const struct tm_catalog *c, const struct tm_catalog_frame *frame, uint32_t function) {
	return function < frame->function_count ? c->functions.items[frame->functions + function].name : 0;
}

static const struct tm_catalog_frame *frame_of(const struct tm_catalog *c, uint32_t node) {
	return &c->frames.items[c->nodes.items[node - 1].frame - 1];
}

static void flag_functions(struct tm_stack_ids *t) {
	const struct tm_catalog *c = t->catalog;
	enum { SEEN = 128 };
	for (size_t i = 0; i < c->functions.count; i++) {
		uint32_t name = c->functions.items[i].name;
		if (!name || t->string_flags[name] & SEEN) continue;
		struct tm_text text = c->strings.items[name - 1];
		t->string_flags[name] = (uint8_t)(SEEN | (tm_is_wrapper(text) ? TM_FUNCTION_WRAPPER : 0) |
						  (tm_is_operator_new(text) ? TM_FUNCTION_OPERATOR_NEW : 0) |
						  (tm_is_inlined_allocator(text) ? TM_FUNCTION_INLINED_ALLOCATOR : 0));
	}
}

static void flag_modules(struct tm_stack_ids *t) {
	const struct tm_catalog *c = t->catalog;
	for (size_t i = 0; i < c->modules.count; i++) t->module_flags[i + 1] = tm_is_wrapper_module(c->modules.items[i].path) ? TM_FUNCTION_WRAPPER : 0;
}

bool tm_frame_is_wrapper(const struct tm_stack_ids *t, const struct tm_catalog_frame *frame, uint32_t function) {
	uint32_t name = tm_frame_function_name(t->catalog, frame, function);
	bool is_of_module = !name && frame->kind == TM_FRAME_NATIVE && frame->module <= t->catalog->modules.count;
	return (is_of_module ? t->module_flags[frame->module] : t->string_flags[name]) & TM_FUNCTION_WRAPPER;
}

static void *flag_all(void *ids) {
	flag_functions(ids);
	flag_modules(ids);
	return NULL;
}

static bool is_flagged(const struct tm_stack_ids *t, const struct tm_catalog_frame *f, uint32_t function, unsigned flags) {
	return t->string_flags[tm_frame_function_name(t->catalog, f, function)] & flags;
}

/* How many functions of a frame are left out where it is the innermost of a stack; all: it is operator new. Where a compiled operator new has
 * something inlined into it, the whole frame is the operator's. */
static uint32_t left_out(const struct tm_stack_ids *t, const struct tm_catalog_frame *f) {
	uint32_t count = tm_frame_functions(f), function = 0;
	if (is_flagged(t, f, count - 1, TM_FUNCTION_OPERATOR_NEW)) return count;
	while (function + 1 < count && is_flagged(t, f, function, TM_FUNCTION_OPERATOR_NEW | TM_FUNCTION_INLINED_ALLOCATOR)) function++;
	return function;
}

static void note_left_out(struct tm_stack_ids *t) {
	const struct tm_catalog *c = t->catalog;
	for (size_t i = 0; i < c->frames.count; i++) t->left_out[i] = left_out(t, &c->frames.items[i]);
}

static bool number_rows(struct tm_stack_ids *t) {
	const struct tm_catalog *c = t->catalog;
	uint64_t next = 1;
	for (size_t i = 0; i < c->frames.count; i++) {
		t->frame_first[i] = (uint32_t)next;
		next += tm_frame_functions(&c->frames.items[i]);
		if (next > UINT32_MAX) return false;
	}
	t->frame_first[c->frames.count] = (uint32_t)next;
	next = 1;
	for (size_t i = 0; i < c->nodes.count; i++) {
		t->node_first[i] = (uint32_t)next;
		next += t->frame_first[c->nodes.items[i].frame] - t->frame_first[c->nodes.items[i].frame - 1];
		if (next > UINT32_MAX) return false;
	}
	t->node_first[c->nodes.count] = (uint32_t)next;
	return true;
}

/* So that a row's node is found among a few. */
static bool index_rows(struct tm_stack_ids *t) {
	size_t nodes = t->catalog->nodes.count;
	uint32_t node = 1, rows = t->node_first[nodes], last = (rows - 1) / TM_STACK_NEAR;
	t->node_near = calloc((size_t)last + 2, sizeof *t->node_near);
	for (uint32_t i = 0; t->node_near && i <= last; i++) {
		while (node < nodes && t->node_first[node] <= i * TM_STACK_NEAR) node++;
		t->node_near[i] = node;
	}
	if (t->node_near) t->node_near[last + 1] = (uint32_t)nodes;
	return t->node_near != NULL;
}

int tm_stack_ids_init(struct tm_stack_ids *t, const struct tm_catalog *catalog) {
	*t = (struct tm_stack_ids){ .catalog = catalog };
	t->frame_first = tm_table_new(catalog->frames.count + 1, sizeof *t->frame_first);
	t->node_first = tm_table_new(catalog->nodes.count + 1, sizeof *t->node_first);
	t->left_out = tm_table_new(catalog->frames.count + 1, sizeof *t->left_out);
	t->string_flags = calloc(catalog->strings.count + 1, 1);
	t->module_flags = calloc(catalog->modules.count + 1, 1);
	if (!t->frame_first || !t->node_first || !t->left_out || !t->string_flags || !t->module_flags) return -1;
	pthread_t side;
	bool has_side = catalog->nodes.count >= MANY_NODES && pthread_create(&side, NULL, flag_all, t) == 0;
	bool numbered = number_rows(t) && index_rows(t);
	if (has_side) pthread_join(side, NULL);
	else flag_all(t);
	note_left_out(t);
	return numbered ? 0 : -1;
}

void tm_stack_ids_release(struct tm_stack_ids *t) {
	free(t->frame_first);
	free(t->node_first);
	free(t->left_out);
	free(t->node_near);
	free(t->string_flags);
	free(t->module_flags);
	*t = (struct tm_stack_ids){ 0 };
}

struct tm_stack_row tm_stack_find(const struct tm_stack_ids *t, uint32_t row) {
	/* node_first[low] <= row < node_first[high] */
	size_t low = t->node_near[row / TM_STACK_NEAR] - 1, high = t->node_near[row / TM_STACK_NEAR + 1];
	while (high - low > 1) {
		size_t middle = (low + high) / 2;
		if (t->node_first[middle] <= row) low = middle;
		else high = middle;
	}
	return (struct tm_stack_row){ (uint32_t)low + 1, t->node_first[low + 1] - 1 - row };
}

bool tm_stack_outward(const struct tm_stack_ids *t, struct tm_stack_row *at) {
	if (at->function + 1 < tm_frame_functions(frame_of(t->catalog, at->node))) {
		at->function++;
		return true;
	}
	at->node = t->catalog->nodes.items[at->node - 1].parent;
	at->function = 0;
	return at->node != 0;
}
