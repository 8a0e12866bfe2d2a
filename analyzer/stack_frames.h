/* stack_frames.h - the tree of call stacks of a database, in memory, for exports that name every frame.
 *
 * Flow:     table stack -> two arrays by stack id; view frame_text -> one frame at a time
 * Owns:     8 bytes a stack and 1 byte a frame.
 * Fails:    with one line on standard error and an exit status.
 */
#ifndef TIDEMARK_ANALYZER_STACK_FRAMES_H
#define TIDEMARK_ANALYZER_STACK_FRAMES_H

#include <stddef.h>
#include <stdint.h>

#include "database.h"

struct tm_stack_frames {
	int64_t stack_count, frame_count; /* one more than the highest id */
	uint32_t *parent, *frame;         /* by stack id; 0: outermost */
	uint8_t *is_used;                 /* by frame id: for whoever must know which were met */
	uint32_t *path;                   /* of tm_stack_frames_path() */
	size_t path_room;
};

/* 0, or TM_EXIT_FAILED. Release after either. */
int tm_stack_frames_load(struct tm_stack_frames *tree, const struct tm_database *d);
void tm_stack_frames_release(struct tm_stack_frames *tree);

/* For exports that read the view stack_text: 0, or TM_EXIT_FAILED after saying which stack leads back to itself. */
int tm_stack_frames_examine(const struct tm_database *d);

/* The stack, or 0 where the database has no such stack. */
static inline uint32_t tm_stack_frames_check(const struct tm_stack_frames *tree, int64_t stack) {
	return stack > 0 && stack < tree->stack_count && tree->frame[stack] ? (uint32_t)stack : 0;
}

/* The stacks from this one outward, innermost first, in tree->path; their number in *n. 0, or TM_EXIT_FAILED when memory is short. */
int tm_stack_frames_path(struct tm_stack_frames *tree, uint32_t stack, size_t *n);

#endif
