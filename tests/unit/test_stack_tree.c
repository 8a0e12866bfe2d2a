/* test_stack_tree.c - recorder/collector/stack_tree.c: every node keeps its number, whatever its process's table has grown to meanwhile, and whichever other
 * process has ended.
 *
 * Oracle: an id tells by itself who the parent was and which frame, as both are made of it; so a tree of known shape is asked for again, from any end.
 */
#include "../../recorder/collector/collector.h"
#include "../../recorder/collector/memory.h"

#include "check.h"

#include <stdlib.h>
#include <string.h>

#define NODES 4200000u /* a process's table is 8 MiB then, and was mapped anew at each doubling from 1 MiB on */
#define FANOUT 40u     /* children of a node: all but the first are in the table */
#define PROCESSES 3u

static struct tm_collector c;
static unsigned long wrong; /* nodes that had another number than expected */

static uint32_t parent_of(uint32_t id) {
	return (id - 1) / FANOUT;
}

static uint32_t frame_of(uint32_t id) {
	return 1 + (id - 1) % FANOUT * 7919 + id % 3;
}

/* Roots take turns; what is below one is its process's. */
static uint32_t process_of(uint32_t id) {
	while (parent_of(id)) id = parent_of(id);
	return 1 + id % PROCESSES;
}

static uint32_t asked(uint32_t id) {
	struct tm_process process = { .id = process_of(id) };
	return tm_stack_child_frame(&c, &process, parent_of(id), frame_of(id));
}

static void grow_to(uint32_t from, uint32_t to) {
	for (uint32_t id = from; id <= to; id++) wrong += asked(id) != id;
}

static void ask_again(struct check_random *random, uint32_t count, unsigned times) {
	for (unsigned i = 0; i < times; i++) {
		uint32_t id = 1 + (uint32_t)check_random_below(random, count);
		wrong += asked(id) != id;
	}
	CHECK(c.stacks.node_count == count);
}

int main(void) {
	struct check_random random = check_random_start("stack_tree");
	uint32_t had = 0;
	c.group = tm_memory_new(1, sizeof *c.group);
	tm_stack_tree_init(&c.stacks);
	for (uint32_t count = 1000; count < NODES; count += count / 3) { /* before, at and after each doubling */
		grow_to(had + 1, count);
		ask_again(&random, count, 20000);
		had = count;
	}
	grow_to(had + 1, NODES);
	grow_to(1, NODES);
	CHECK(c.stacks.node_count == NODES);
	tm_stack_tree_process_ended(&c.stacks, 2);
	tm_stack_tree_process_ended(&c.stacks, PROCESSES + 1); /* one that never had a stack */
	for (uint32_t id = 1; id <= NODES; id += 97)
		if (process_of(id) != 2) wrong += asked(id) != id;
	CHECK(c.stacks.node_count == NODES);
	CHECK(wrong == 0);
	/* Who is gone has given its table back: what it had is not found any more. */
	CHECK(process_of(NODES) == 2 && asked(NODES) == NODES + 1);
	tm_stack_tree_release(&c.stacks);
	tm_group_release(c.group);
	return check_report("stack_tree");
}
