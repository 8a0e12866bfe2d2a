/* ranges.h - what a process has mapped: address ranges that do not overlap and can be given back in parts.
 *
 * Flow:     replay.c -> here -> the sink
 * Idea:     a range has an extent (whole pages; brk: exact) and the bytes that were requested of it, which end inside its last page.
 *           Cutting a hole gives back the requested bytes inside the hole; what is left of the range lives on as one or two ranges with its
 *           time and stack. So the sizes of all parts of a mapping add up to its size, and live bytes are exact at all times.
 * Owns:     a treap of the ranges.
 * Fails:    out of memory is remembered in `failed`.
 */
#ifndef TIDEMARK_ANALYZER_RANGES_H
#define TIDEMARK_ANALYZER_RANGES_H

#include "../schema/blocks.h"

struct tm_account;

struct tm_range {
	struct tm_block block;      /* address, size_bytes, ... of this part */
	uint64_t end;               /* of its extent */
	struct tm_account *account; /* its heap */
	bool split;                 /* it is what a cut left over */
};

/* Takes a part that is given back; `survivors`: 0, 1 or 2 parts of the same range that live on. Returns the row id given to the part. */
typedef uint64_t tm_range_sink(void *context, const struct tm_range *part, unsigned survivors);

struct tm_range_node;

struct tm_ranges {
	struct tm_range_node *root;
	uint64_t random; /* of the treap's priorities */
	bool failed;
};

void tm_ranges_release(struct tm_ranges *r);
/* Its extent must be free (cut before). An empty extent is ignored. */
void tm_ranges_insert(struct tm_ranges *r, const struct tm_range *range);
/* Gives back [start, end), but nothing that was mapped after `before_ns`: an unmap that comes late must not hit what took its place. */
void tm_ranges_cut(struct tm_ranges *r, uint64_t start, uint64_t end, uint64_t before_ns, tm_range_sink *sink, void *context);
/* The one that the address lies in, or NULL. */
const struct tm_range *tm_ranges_at(const struct tm_ranges *r, uint64_t address);
void tm_ranges_each(const struct tm_ranges *r, void (*visit)(void *context, const struct tm_range *range), void *context);

#endif
