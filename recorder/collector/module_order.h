/* module_order.h - that what a thread did is looked up among the modules that lay in the process then.
 *
 * Flow:     drain.c -> here: how far may this ring be read? -> MODULE and UNLOAD records between the right events of all the process's rings
 * Idea:     an address means another function when a library went and another one came to lie there, which one thread tells in its ring, and others have
 *           events before and after. Rings are read by blocks, so a block might lead far beyond. Where a ring holds such a record, which its guest says
 *           beforehand (modules_begun of shm.h), the record's time bounds how far the process's other rings are read; and it is read itself when
 *           nothing older can come from them. That is rare and short: all other reading goes on as if this were not here.
 * Bounded:  a thread that is stopped in the middle of an event holds such records back for TM_MODULE_HOLD_NS, once until it goes on. The earliest of the
 *           process's waiting records waits for no other one, so that rings never wait for each other, and the last pass leaves nothing unread.
 * Hostile:  times and lengths are the traced program's. What they can do is to hold the program's own rings back, for so long.
 * Threads:  the drainer's.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_MODULE_ORDER_H
#define TIDEMARK_RECORDER_COLLECTOR_MODULE_ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct tm_collector;
struct tm_process;
struct tm_ring;
struct tm_ring_view;

#define TM_MODULE_HOLD_NS 50000000u

struct tm_module_turn { /* of one ring */
	uint64_t at, end, ticks; /* the first such record that is not read: where it lies in the ring, and its time; at == end: there is none */
	uint64_t held_ns;        /* since when it waits for other rings; 0: it does not */
	uint32_t read;           /* modules_begun when none was left */
	uint32_t epoch;          /* of the process's modules, when the ring's nodes were found */
	bool blocked;            /* the ring's next event waits for another ring's record */
	uint64_t given_up;       /* where the ring stood, and 1, when a record had waited for it for too long: nothing waits for it until it has moved */
};

/* A pass begins for the ring; modules_ended was read before its head. */
void tm_module_order_look(struct tm_collector *c, struct tm_ring_view *r, const struct tm_ring *ring, uint32_t ended);
/* How far the ring may be read now: up to *end, events no later than *last. False: not at all in this pass. */
bool tm_module_order_may_read(struct tm_collector *c, struct tm_ring_view *r, uint64_t now_ticks, uint64_t *end, uint64_t *last);
/* It was read further: what is the next such record? */
void tm_module_order_went_on(struct tm_collector *c, struct tm_ring_view *r);
/* Records of modules of the process are on their way: what /proc says now may be about other events than those that were read. */
bool tm_module_order_is_told(const struct tm_collector *c, const struct tm_process *p);
/* The nodes that are known of the ring's stack are forgotten where an address may mean another module since. */
void tm_module_order_check_stack(struct tm_ring_view *r);

#endif
