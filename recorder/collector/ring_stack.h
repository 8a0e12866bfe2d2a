/* ring_stack.h - the stack that a ring's records build on.
 *
 * Flow:     drain.c, for each record with a stack -> here -> stack_tree.c, python_stacks.c
 * Idea:     a record keeps the outer frames of the ring's last stack and brings the inner ones; so nodes that were found for the outer ones stay. Or
 *           it says the number of a stack that the ring has learned, whose node was found before; the ring's last stack becomes that one when it
 *           is needed.
 * Hostile:  lengths and addresses are the traced program's. false: they make no sense, and what is known of the ring's stack is to be forgotten.
 * Threads:  the drainer's.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_RING_STACK_H
#define TIDEMARK_RECORDER_COLLECTOR_RING_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tm_collector;
struct tm_ring_view;

/* A stack that the ring has learned: where its frames stand in `pcs`, and its node as it was found the last time. */
struct tm_ring_known_stack {
	size_t at;
	uint32_t depth;  /* 0: it was not known when it was learned */
	uint32_t native; /* node of the native stack; 0: not found yet */
	uint32_t merged; /* with the Python path that had the number `python`; 0: not found yet */
	uint32_t python;
	uint32_t epoch;  /* of the modules */
};

struct tm_ring_known {
	struct tm_ring_known_stack *stacks; /* by number */
	size_t count, capacity;
	uint64_t *pcs; /* outermost first */
	size_t used, pcs_capacity;
	bool lost; /* after a corrupt stretch: what the numbers mean is not known, until they begin anew */
	uint32_t current; /* number + 1 of the last stack, which r->pcs is still to become; 0: it is */
};

struct tm_turns { /* the stacks that are found with one look, as long as *stack is not 0; all zero: none */
	uint64_t flags;  /* where the record's first word has them */
	uint32_t *path;  /* nodes of the frames, from first - 1 on */
	size_t *valid;   /* so many are right */
	uint32_t *stack; /* of the last event */
	size_t first, limit; /* frames that stay: at least, and less than that */
};

/* The same as tm_ring_stack_take() for the usual allocation, whose first word is `word`, and 0 where it is another or its stack not of the usual kind: some of
 * the innermost frames gave way to a few others, all inside of the frames of the thread's start-up, or of the innermost Python function. TM_RING_TURN_WORDS
 * from pcs on can be read, whatever they are. */
#define TM_RING_TURN_WORDS 4u
uint32_t tm_ring_stack_turn(struct tm_collector *c, struct tm_ring_view *r, uint64_t word, const uint64_t *pcs);
/* The node of the stack that is `keep` outer frames of the last and `fresh` new ones, outermost first in pcs; flags are the record's. */
bool tm_ring_stack_take(struct tm_collector *c, struct tm_ring_view *r, unsigned flags, size_t keep, const uint64_t *pcs, size_t fresh, uint32_t *stack);
/* The same of a call whose innermost frames are a driver's: the program's call is outside of them. */
bool tm_ring_stack_take_past(struct tm_collector *c, struct tm_ring_view *r, unsigned flags, size_t keep, const uint64_t *pcs, size_t fresh, size_t drivers,
			     uint32_t *stack);
/* The node of a known stack that was found before, for a record whose first word is `word`; 0: tm_ring_stack_take() has to find it. */
uint32_t tm_ring_stack_known(struct tm_ring_view *r, uint64_t word);
/* A corrupt stretch was skipped: nothing is known of the ring's stack, nor of what it learned. */
void tm_ring_stack_lose(struct tm_ring_view *r);
/* Its thread has ended: what was learned takes memory no more. */
void tm_ring_stack_end(struct tm_ring_view *r);
/* How many of the ring's outermost frames are of the thread's start-up, which nobody wrote. */
size_t tm_ring_stack_startup_frames(struct tm_collector *c, struct tm_ring_view *r);

#endif
