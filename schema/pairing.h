/* pairing.h - which free ends which block: on every address allocations and frees alternate.
 *
 * Flow:     replay.c of the analyzer, or flight_set.c of the collector, in the order of time stamps -> here -> the sink, in an order that makes sense
 * Idea:     a free is stamped before it happens, an allocation after, so stamps alone order them rightly but for ties, for an event of a slow call that
 *           comes late, and for stamps that are read too early: a processor reads its clock while it still waits for the word in which another thread
 *           hands over the block. So order on one address is decided by state: an allocation of an address that is live waits for the free that must
 *           have come first, a free of one that is not live for its allocation. Events of one thread are never reordered: where a thread goes on though
 *           its free waits, another one's was taken for it, and they change places. What waits is applied as soon as its turn has come, at a time not
 *           before what it waited for.
 * Foresees: whoever has the events to come at hand says whether what an event would wait for is among them (`comes`). Where it is not, all is given up at once:
 *           what waits takes effect later than at its own time, and what it adds to is wrong until then.
 * Gives up: else a free on its allocation after TM_SKEW_NS, an allocation on the free before it where an event stamped that much later comes, or
 *           after TM_WAIT_NS (a release can be read late). Then the old block's free was lost, or the free's allocation. Where one event after the other
 *           of an address has to wait, all are given up TM_SHIFT_NS after the first, or TM_GAP_NS: else one that
 *           is missing would shift the rest for ever.
 *           Where only one thread runs there is nothing to wait for.
 * Older:    the first event on an address is a free where the block was inherited over fork, or is older than a recording that another tool began in the
 *           middle, or was allocated while recording was stopped. It takes effect at once, as one that nothing here matches: waiting would hold up
 *           whatever the thread does with that address next, or take the next block of another thread for the freed one, which then would never
 *           have lived; and a clock that is wrong by a whole hand-over of a new block between threads is far less likely.
 * Strays:   so it is with every free where allocations are missing at any time (lost ones, or an allocator's own operator new). Who foresees knows better
 *           where another allocation of the address follows the next one: then a free was between them, which is this one, too early; or where the next one
 *           follows within TM_EARLY_NS.
 * Owns:     the live blocks of one heap and what waits.
 * Memory:   follows the live blocks and what waits; with several threads 48 KiB for each heap of a process; where such a process inherits blocks
 *           also the addresses it ever used.
 * Fails:    out of memory is remembered in `failed`.
 */
#ifndef TIDEMARK_SCHEMA_PAIRING_H
#define TIDEMARK_SCHEMA_PAIRING_H

#include "blocks.h"

struct tm_waiting;

/* Where eight threads fight for one word stamps were 17 us early, and events of one address out of order for up to 3 ms on end, rarely for more than 1. */
#define TM_SKEW_NS 30000u    /* stamps are out of order by less */
#define TM_EARLY_NS 500u     /* a stamp is early by more, and a freed address another thread's so soon, only where threads fight */
#define TM_SHIFT_NS 3000000u /* of one address all have to wait for no longer */
#define TM_GAP_NS 100000u    /* the same where an event may be missing */
#define TM_CALM_NS 300000u   /* an address without a free for so long is in order again */
#define TM_WAIT_NS 1000000u  /* a slow call's release is read at most this late */

/* What a free may be that ends no block: see Strays and Older. */
enum tm_pairing_doubt { TM_PAIRING_SURE, TM_PAIRING_STRAY, TM_PAIRING_OLDER };

struct tm_pairing_sink {
	/* passing: it is freed at the same instant, with no other event between: live at no time. */
	void (*allocated)(void *context, const struct tm_block *block, bool passing);
	/* thread, scope: who freed it; lost: its free is missing, it ends because its address was allocated again. Returns its row id. */
	uint64_t (*released)(void *context, const struct tm_block *block, uint64_t free_ns, uint32_t thread, uint32_t scope, bool lost);
	void (*unmatched)(void *context, uint64_t address, uint32_t thread, uint32_t scope); /* a free of what was not live */
	/* True if what this event would wait for is still to come: an event of the other kind, of its address and of another thread (own: or of its own),
	 * stamped at most TM_SKEW_NS later and read at most TM_WAIT_NS later. Of a free in doubt: at most TM_EARLY_NS later, unless it is older; or the
	 * next two events of its address within TM_SKEW_NS are allocations, the first one of such a thread. NULL: nobody knows. */
	bool (*comes)(void *context, const struct tm_waiting *event, bool own, enum tm_pairing_doubt doubt);
};

struct tm_waiting {
	struct tm_block block; /* of a free only the address and the scope count */
	uint64_t ns, since_ns; /* since_ns: when what is out of order at this address began; 0: it did not wait */
	uint32_t thread;
	uint32_t turn; /* the thread in whose order it stands: its own, or the one with whose free it changed places */
	bool is_free, done;
	uint64_t next; /* sequence number of the next one in its chain, 0 none */
};

/* What was last at an address, until others come to lie here. */
struct tm_recent {
	uint64_t address, free_ns;
	uint64_t free_since_ns;            /* the free waited, since then; 0: it did not */
	uint64_t alloc_ns, alloc_since_ns; /* the same of an allocation, where one waited a moment ago */
	uint32_t turn;                     /* as that of struct tm_waiting */
};

/* Addresses, none of them 0. */
struct tm_address_set {
	uint64_t *slots, count, mask; /* slots: open addressing, 0 free */
};

struct tm_pairing {
	struct tm_blocks blocks;
	const struct tm_pairing_sink *sink;
	void *context;
	struct tm_waiting *queue; /* ring: number s is queue[s & mask] */
	uint64_t *chains;         /* by address: first sequence number, 0 none; then the last one of each */
	uint64_t head, tail;      /* numbers from 1; head == tail: nothing waits */
	uint64_t mask;
	struct tm_recent *recent;   /* by address; NULL before the first free beside other threads */
	uint64_t waited_ns;         /* when an allocation that waited was stamped last */
	struct tm_address_set seen; /* where `inherits`: every address that had an event */
	bool alone;                 /* one thread does everything: its order is the truth */
	bool inherits;              /* it began with blocks that are not recorded here, or went on with such */
	bool has_gaps;              /* not every event is there: recording was off for a while, or some were lost */
	bool has_strays;            /* at any time blocks may be freed that are not recorded */
	bool failed;
};

void tm_pairing_init(struct tm_pairing *p, const struct tm_pairing_sink *sink, void *context);
void tm_pairing_release(struct tm_pairing *p);

void tm_pairing_alloc(struct tm_pairing *p, const struct tm_block *block, uint32_t thread); /* its time is block->alloc_ns */
/* Recording stopped, or goes on: blocks that are not recorded may be freed from here on. */
void tm_pairing_pause(struct tm_pairing *p);
/* The row id of the block that ended; 0 if that is not known yet. */
uint64_t tm_pairing_free(struct tm_pairing *p, uint64_t address, uint64_t ns, uint32_t thread, uint32_t scope);
/* True of a free that comes far too late: its block was given up when the address was allocated again, and another one lives there. */
bool tm_pairing_is_outlived(const struct tm_pairing *p, uint64_t address, uint64_t ns);
/* Gives up on what has waited too long at `now_ns`, oldest first. UINT64_MAX: on everything. */
void tm_pairing_expire(struct tm_pairing *p, uint64_t now_ns);

static inline bool tm_pairing_waits(const struct tm_pairing *p) {
	return p->head != p->tail;
}

/* What waits has numbers from head to before tail. NULL: this one does not any more. */
static inline const struct tm_waiting *tm_pairing_waiting(const struct tm_pairing *p, uint64_t number) {
	const struct tm_waiting *w = &p->queue[number & p->mask];
	return w->done ? NULL : w;
}

#endif
