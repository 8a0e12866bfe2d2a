/* stack_frames.c - reads the table stack into arrays. What a damaged database claims is checked here: a parent has a lower id, so that every walk
 * outward ends, and a frame lies in the table. */
#include "stack_frames.h"

#include <stdlib.h>

#include "../schema/array.h"
#include "talk.h"

#define ID_LIMIT (INT64_C(1) << 32)

struct reading {
	struct tm_stack_frames *tree;
	const struct tm_database *d;
};

static int take_stack(void *context, sqlite3_value **row) {
	struct reading *r = context;
	struct tm_stack_frames *tree = r->tree;
	int64_t id = sqlite3_value_int64(row[0]), parent = sqlite3_value_int64(row[1]), frame = sqlite3_value_int64(row[2]);
	if (id <= 0 || id >= tree->stack_count || parent < 0 || parent >= id || frame <= 0 || frame >= tree->frame_count)
		return tm_fail("cannot read '%s': stack %lld is damaged (its parent is %lld, its frame %lld)", r->d->path, (long long)id,
			       (long long)parent, (long long)frame);
	tree->parent[id] = (uint32_t)parent;
	tree->frame[id] = (uint32_t)frame;
	return 0;
}

int tm_stack_frames_load(struct tm_stack_frames *tree, const struct tm_database *d) {
	struct reading r = { tree, d };
	*tree = (struct tm_stack_frames){ 0 };
	tree->stack_count = tm_database_integer(d, "SELECT max(id) + 1 FROM stack", 1);
	tree->frame_count = tm_database_integer(d, "SELECT max(id) + 1 FROM frame", 1);
	if (tree->stack_count < 1 || tree->stack_count > ID_LIMIT || tree->frame_count < 1 || tree->frame_count > ID_LIMIT)
		return tm_fail("cannot read '%s': its stacks are damaged", d->path);
	tree->parent = tm_table_new((size_t)tree->stack_count, sizeof(*tree->parent));
	tree->frame = tm_table_new((size_t)tree->stack_count, sizeof(*tree->frame));
	tree->is_used = calloc((size_t)tree->frame_count, sizeof(*tree->is_used));
	if (!tree->parent || !tree->frame || !tree->is_used)
		return tm_fail("cannot read '%s': out of memory for %lld stacks", d->path, (long long)tree->stack_count);
	return tm_database_each(d, "SELECT tm_row(id, parent_id, frame_id) FROM stack WHERE id > 0", take_stack, &r);
}

static int no_memory(size_t steps) {
	return tm_fail("cannot export: out of memory for a stack of %zu frames", steps);
}

int tm_stack_frames_enter(struct tm_stack_frames *tree, uint32_t stack, size_t *kept) {
	size_t steps = 0;
	uint32_t common = stack;
	if (!tree->place) tree->place = calloc((size_t)tree->stack_count, sizeof(*tree->place));
	if (!tree->place) return no_memory(0);
	while (common && (tree->place[common] >= tree->path.count || tree->path.items[tree->place[common]].stack != common)) {
		common = tree->parent[common];
		steps++;
	}
	*kept = common ? tree->place[common] + (size_t)1 : 0;
	for (tree->path.count = *kept; tree->path.count < *kept + steps;)
		if (!tm_array_push(&tree->path)) return no_memory(*kept + steps);
	for (size_t i = *kept + steps; i-- > *kept; stack = tree->parent[stack]) {
		tree->path.items[i] = (struct tm_stack_step){ stack, 0 };
		tree->place[stack] = (uint32_t)i;
	}
	return 0;
}

void tm_stack_frames_release(struct tm_stack_frames *tree) {
	free(tree->parent);
	free(tree->frame);
	free(tree->is_used);
	free(tree->place);
	tm_array_release(&tree->path);
	*tree = (struct tm_stack_frames){ 0 };
}
