/* stacks_ahead.h - decodes a trace's STACKS chunks while the catalog takes what it was given before.
 *
 * Flow:     the trace file -> here, a thread of its own -> catalog.c
 * Owns:     its thread, its reader of the file, and two chunks' stacks: one is its taker's, the other is filled meanwhile.
 * Checks:   that a chunk parses. Whether it belongs where it stands is the taker's to check, which walks over all chunks.
 */
#ifndef TIDEMARK_ANALYZER_STACKS_AHEAD_H
#define TIDEMARK_ANALYZER_STACKS_AHEAD_H

#include "../schema/records.h"
#include "reader.h"

struct tm_stacks_ahead;

/* Of the file that `reader` reads, from its beginning. NULL: it cannot be done, and nothing is lost by it. */
struct tm_stacks_ahead *tm_stacks_ahead_start(const struct tm_reader *reader);
void tm_stacks_ahead_stop(struct tm_stacks_ahead *a); /* NULL is fine */

/* The stacks of the chunk at `offset`, at *out until the next call or the end; chunks are asked for in the order of the file. 1; 0: they are not here; as
 * tm_get_stacks() where it failed. */
int tm_stacks_ahead_take(struct tm_stacks_ahead *a, uint64_t offset, const struct tm_stacks **out);

#endif
