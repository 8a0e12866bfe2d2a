/* stack_frames.h - the tree of call stacks of a database, in memory, for exports that name every frame.
 *
 * Flow:     table stack -> two arrays by stack id; view frame_text -> one frame at a time
 * Owns:     8 bytes a stack and 1 byte a frame; 4 more a stack for tm_stack_frames_enter().
 * Fails:    with one line on standard error and an exit status.
 */
#ifndef TIDEMARK_ANALYZER_STACK_FRAMES_H
#define TIDEMARK_ANALYZER_STACK_FRAMES_H

#include <stddef.h>
#include <stdint.h>

#include "../schema/array.h"
#include "database.h"

struct tm_stack_step {
	uint32_t stack;
	size_t text_end; /* for the caller: of the text from the outermost frame to this one */
};

struct tm_stack_frames {
	int64_t stack_count, frame_count; /* one more than the highest id */
	uint32_t *parent, *frame;         /* by stack id; 0: outermost */
	uint8_t *is_used;                 /* by frame id: for whoever must know which were met */
	TM_ARRAY(struct tm_stack_step) path; /* of tm_stack_frames_enter() */
	uint32_t *place;                     /* by stack id: where it stands in the path, if it is the one there */
};

/* 0, or TM_EXIT_FAILED. Release after either. */
int tm_stack_frames_load(struct tm_stack_frames *tree, const struct tm_database *d);
void tm_stack_frames_release(struct tm_stack_frames *tree);

/* The stack, or 0 where the database has no such stack. */
static inline uint32_t tm_stack_frames_check(const struct tm_stack_frames *tree, int64_t stack) {
	return stack > 0 && stack < tree->stack_count && tree->frame[stack] ? (uint32_t)stack : 0;
}

/* Makes tree->path the stacks from the outermost one to this one. The first *kept of them were there before, with their text: stacks of neighbouring
 * ids have most frames in common. 0, or TM_EXIT_FAILED when memory is short. */
int tm_stack_frames_enter(struct tm_stack_frames *tree, uint32_t stack, size_t *kept);

/* Where the text of the path's first `steps` steps ends. */
static inline size_t tm_stack_frames_text_end(const struct tm_stack_frames *tree, size_t steps) {
	return steps ? tree->path.items[steps - 1].text_end : 0;
}

#endif
