/* test_leak_frames.c - what is known of frames by the suppressions of each process, and what becomes of it without memory.
 *
 * Method: a stack of four functions in a catalog made by hand, and six processes: what the list of each matches is written down beside it. Then each allocation
 *         fails in turn: whoever asks is told so, or all is known as ever.
 */
#include "check.h"
#include "fail_alloc.h"

#include "../../analyzer/leak_frames.h"

#define FRAMES 4u

static struct tm_catalog catalog;
static struct tm_stack_ids stacks;

/* Process 1 is not defined. `matched`: a bit for each function, outermost first. */
static const struct {
	uint32_t parent;
	const char *exe, *list;
	unsigned matched;
} processes[] = {
	{ 0, NULL, NULL, 0 },
	{ 0, "/bin/a", "leak:open\nleak:close\n", 1 << 1 | 1 << 3 },
	{ 2, "/bin/a", NULL, 1 << 1 | 1 << 3 }, /* a fork of it */
	{ 2, "/bin/b", NULL, 0 },               /* it has run another program */
	{ 4, "/bin/b", "leak:read\nno pattern\nleak:open\n", 1 << 2 },
	{ 5, "/bin/b", NULL, 1 << 2 },
};
#define PROCESSES (sizeof processes / sizeof *processes)

static void make_catalog(void) {
	static const char *const functions[FRAMES] = { "start", "open", "read", "close" };
	for (uint32_t i = 0; i < FRAMES; i++) {
		struct tm_text *name = tm_array_push(&catalog.strings);
		struct tm_catalog_function *function = tm_array_push(&catalog.functions);
		struct tm_catalog_frame *frame = tm_array_push(&catalog.frames);
		struct tm_catalog_node *node = tm_array_push(&catalog.nodes);
		*name = tm_text_of(functions[i]);
		*function = (struct tm_catalog_function){ .name = i + 1 };
		*frame = (struct tm_catalog_frame){ .kind = TM_FRAME_NATIVE, .functions = i, .function_count = 1 };
		*node = (struct tm_catalog_node){ .parent = i, .frame = i + 1 };
	}
	for (uint32_t i = 0; i < PROCESSES; i++) {
		struct tm_catalog_process *p = tm_array_push(&catalog.processes);
		p->parent_id = processes[i].parent;
		p->defined = processes[i].exe;
		if (p->defined) p->exe = tm_text_of(processes[i].exe);
		if (!processes[i].list) continue;
		struct tm_catalog_note *note = tm_array_push(&catalog.notes);
		*note = (struct tm_catalog_note){ .process = i + 1,
						  .kind = tm_text_of("suppressions"),
						  .text = tm_text_of(processes[i].list) };
	}
}

static bool is_known(const struct tm_leak_frames *f, uint32_t process) {
	unsigned matched = 0, outward = 0;
	if (!f->flags || !f->outward || !f->run) return false;
	for (uint32_t node = 1; node <= FRAMES; node++) {
		matched |= (unsigned)!!(tm_leak_flags(f, &(struct tm_stack_row){ node, 0 }) & FRAME_PROGRAM) << (node - 1);
		outward |= (unsigned)!!(f->outward[node] & FRAME_PROGRAM) << (node - 1);
	}
	unsigned first = processes[process - 1].matched & -processes[process - 1].matched,
		 from_there = (1u << FRAMES) - (first ? first : 1u << FRAMES);
	return matched == processes[process - 1].matched && outward == from_there;
}

static void test_lists(void) {
	static const uint32_t order[] = { 1, 2, 3, 4, 5, 6, 2, 5, 4, 3, 6, 1, 2 };
	struct tm_leak_frames f = { 0 };
	tm_leak_frames_start(&f, &stacks);
	for (size_t i = 0; i < sizeof order / sizeof *order; i++) CHECK(tm_leak_frames_take(&f, order[i]) && is_known(&f, order[i]));
	tm_leak_frames_release(&f);
	tm_leak_frames_release(&f);
}

/* Two processes with one list leave one after the other, whatever the first has been told. */
static void test_out_of_memory(void) {
#if FAIL_ALLOC_WORKS
	static const uint32_t pairs[][2] = { { 1, 4 }, { 2, 3 }, { 5, 6 } };
	unsigned failed = 0, wrong = 0;
	for (unsigned long n = 1; n <= 60; n++)
		for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
			struct tm_leak_frames f = { 0 };
			tm_leak_frames_start(&f, &stacks);
			if (!tm_leak_frames_take(&f, 1)) wrong++;
			fail_alloc_at(n);
			for (size_t k = 0; k < 2; k++)
				if (!tm_leak_frames_take(&f, pairs[i][k])) failed++;
				else if (!is_known(&f, pairs[i][k])) wrong++;
			fail_alloc_at(0);
			tm_leak_frames_release(&f);
		}
	CHECK(wrong == 0);
	CHECK(failed > 10);
#endif
}

int main(void) {
	make_catalog();
	CHECK(tm_stack_ids_init(&stacks, &catalog) == 0);
	test_lists();
	test_out_of_memory();
	tm_stack_ids_release(&stacks);
	tm_catalog_release(&catalog);
	return check_report("leak_frames");
}
