/* drain.h - from the rings to events.
 *
 * Flow:     shared memory -> tm_drain_pass() -> events, stacks and records in the group; full and old groups go to the encoder
 * Hostile:  the traced program can write anything into a ring. A stretch of it is copied first; only the copy is looked at, every length
 *           and address is checked, and a record that makes no sense turns the rest of that ring into a counted loss.
 * Order:    rings are read in blocks, the one with the oldest event first (ring_order.h): what waits for the events of other threads is little, however
 *           much the rings hold. Each pass yields a watermark: every event stamped before it has been read. How it is found stands in drain.c.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_DRAIN_H
#define TIDEMARK_RECORDER_COLLECTOR_DRAIN_H

#include "module_order.h"
#include "python_stacks.h"
#include "ring_stack.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tm_collector;
struct tm_process;

#define TM_OUTER_FRAMES 3u /* at most as many of a thread's start-up are left out */

struct tm_ring_view { /* what we know of a ring; nothing here is shared */
	bool claimed;
	bool announces;    /* the process announced itself in this ring */
	bool thread_ended; /* its THREAD_END was read */
	bool vanished;     /* its thread is gone and did not close it */
	uint32_t generation;
	struct tm_process *process;     /* NULL: not announced yet */
	uint32_t number, pid, tid;      /* number: of the process in the session */
	uint32_t thread_number, thread; /* within the process; id in the trace, 0: no row yet */
	uint64_t start_ticks, tail;
	uint64_t head;       /* of a pass: it is read up to here */
	uint64_t next_ticks; /* of the oldest event that is not read, or a little before */
	uint64_t order_ticks; /* its turn among the rings: the same, but for a ring that has to let another go first */
	struct tm_module_turn modules;
	bool busy, over, readable; /* of a pass: as the ring was when it began; its process is known */
	uint64_t *pcs;  /* the last native stack, outermost first */
	uint32_t *path; /* its nodes; 0: a frame of the thread's start-up, left out */
	size_t depth, pc_capacity, path_capacity;
	size_t path_valid; /* so many nodes are right */
	bool path_known; /* false after a corrupt stretch, until a whole stack comes */
	bool is_whole;   /* its outermost frame is where the thread began */
	bool entry_left_out;
	uint32_t stack;                  /* node of the current path */
	struct tm_turns turns;
	struct tm_ring_known known;
	struct tm_python_ring python;
	uint64_t safe_ticks;
	uint64_t last_ticks; /* no event that comes was begun earlier */
	uint64_t end_ticks;  /* of the last event */
	uint64_t lost_events, lost_bytes, nested_lost, lost_records; /* as last seen */
	uint64_t impossible_events;                    /* with an address or a size that no block has; not written yet */
	uint64_t loss_written_ns, quiet_since_ns, claimed_ns, freed_ns;
	uint64_t used_bytes;   /* since its pages were last given back */
	uint32_t group_serial; /* of the group that `segment` is in */
	size_t segment;
	uint8_t *text; /* of records that go on in the next one */
	size_t text_bytes, text_capacity;
	uint32_t text_op, text_key;
	uint32_t *gpu_names; /* string ids of the slots of ACTIVITY records; NULL: none was told */
};

/* 0, or -1: no memory. */
int tm_drain_start(struct tm_collector *c);
/* The last pass: reads what is there, and counts all that is missing. */
void tm_drain_finish(struct tm_collector *c);
void tm_drain_release(struct tm_collector *c);

enum tm_drained { TM_DRAINED_NOTHING, TM_DRAINED_SOME, TM_DRAINED_MUCH /* an eighth of a ring: look again at once */ };

/* One look at every ring. */
enum tm_drained tm_drain_pass(struct tm_collector *c);
/* Closes the group if it is full or old, or `now` is set and it holds anything. */
void tm_drain_close_group(struct tm_collector *c, bool now);
/* True if any ring holds a quarter of what it can: look again instead of sleeping. */
bool tm_drain_is_pressing(const struct tm_collector *c);
/* Every now and then: threads that vanished, pages to give back, addresses that stayed unknown. */
void tm_drain_housekeeping(struct tm_collector *c);

/* No event of the ring that is not read was stamped before. */
uint64_t tm_drain_safe_until(const struct tm_ring_view *r, uint64_t now_ticks);
/* Counts what is missing from the trace: events, or records of something else. */
void tm_drain_add_lost_records(struct tm_collector *c, const struct tm_ring_view *r, const char *kind, uint64_t count, const char *reason);
void tm_drain_add_loss(struct tm_collector *c, const struct tm_ring_view *r, const char *kind, uint64_t count, uint64_t bytes,
		       const char *reason);

#endif
