/* flight_scopes.h - which scopes are open on a thread, and which have to stay because something that stays was allocated in them.
 *
 * Flow:     flight_set.c, in the order of the replay -> here
 * Idea:     schema/format.md says what opens and closes a scope. A scope is held by its being open, by blocks that were allocated in it, and by the
 *           scopes inside of it that are held; when nobody holds it any more, its events need not be told.
 * Cost:     the same for each event, however much is open and however many threads there have been.
 * Departs:  a block that was left by longjmp is abandoned when another opens; that one need not stay, so the abandoned one gets an end of its own
 *           and will count as closed.
 * Threads:  the encoder's.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_FLIGHT_SCOPES_H
#define TIDEMARK_RECORDER_COLLECTOR_FLIGHT_SCOPES_H

#include "../../schema/events.h"

/* What an open scope stands in, the last one first: */
enum tm_flight_chain {
	TM_FLIGHT_STACK,  /* what is open on its thread, in the order of opening */
	TM_FLIGHT_INNER,  /* those of them that end with a scope around them: pushes and blocks; pushes apart have one of their own */
	TM_FLIGHT_BLOCKS, /* the blocks of its thread: the lowest first, of one frame the one that was opened last */
	TM_FLIGHT_NAME,   /* those that an end may mean */
	TM_FLIGHT_PROCESS,
	TM_FLIGHT_CHAINS
};

struct tm_flight_scope {
	struct tm_event opened, closed; /* closed: with op 0 there is none to be told */
	uint64_t opened_number, closed_number;
	uint32_t process, thread, closed_thread;
	unsigned holders;
	struct tm_flight_scope *parent;
	struct tm_flight_scope *before, *after; /* of all that are held */
	struct {
		struct tm_flight_scope *earlier, *later; /* as they stand there */
	} chains[TM_FLIGHT_CHAINS];
	struct tm_flight_scope *next_name; /* of the last one of its name: another name in the same place of the table */
};

/* The last ones of a thread; inner: not apart, and apart. */
struct tm_flight_stack {
	struct tm_flight_scope *top, *inner[2], *lowest;
};

struct tm_flight_scopes {
	struct tm_flight_stack *threads; /* by id */
	size_t thread_count, thread_capacity;
	struct tm_flight_scope **processes; /* by id: the last one that is open */
	size_t process_count, process_capacity;
	struct tm_flight_scope **names; /* a hash table of the last ones */
	size_t name_count, name_mask;   /* scopes that have a name, and slots less one */
	struct tm_flight_scope *first, *spare;
};

void tm_flight_scopes_play(struct tm_flight_scopes *x, uint32_t process, uint32_t thread, const struct tm_event *e, uint64_t number);
/* The innermost open scope of a thread, NULL none. */
struct tm_flight_scope *tm_flight_scopes_top(const struct tm_flight_scopes *x, uint32_t thread);
void tm_flight_scope_hold(struct tm_flight_scope *s); /* both: NULL is nobody's */
void tm_flight_scope_let_go(struct tm_flight_scopes *x, struct tm_flight_scope *s);
/* Forgets what is open on a thread, but for ranges: another one may end them. */
void tm_flight_scopes_end_thread(struct tm_flight_scopes *x, uint32_t thread);
void tm_flight_scopes_end_process(struct tm_flight_scopes *x, uint32_t process); /* ranges, too */
void tm_flight_scopes_release(struct tm_flight_scopes *x);

#endif
