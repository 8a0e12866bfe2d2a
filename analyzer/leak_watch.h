/* leak_watch.h - looks at a process now and then while its events are replayed, so that growth can be told from a level that stays.
 *
 * Flow:     accounts.c (every allocation is a tick), scope_steps.c (every step) -> here -> leaks.c, when the process exits
 * Idea:     a look notes what each call stack has live. Looks are taken at equal numbers of allocations, or at the beginnings of steps once there
 *           are any; when there are TM_LEAK_LOOKS of them every second one is dropped and they become half as frequent. So they cover the
 *           run evenly however long it becomes, and a process of n call stacks is looked at n * 100 times or so in all.
 *           The clock is finer: the time of every tick, thinned in the same way, which tells how far the program was at any time.
 * Owns:     its looks and its clock.
 * Memory:   a look has an entry for each call stack that has something live; at most TM_LEAK_ENTRIES in all looks, else there are fewer looks.
 * Fails:    out of memory: says false, and nothing is lost but the look.
 */
#ifndef TIDEMARK_ANALYZER_LEAK_WATCH_H
#define TIDEMARK_ANALYZER_LEAK_WATCH_H

#include "../schema/array.h"

#define TM_LEAK_LOOKS 64u
#define TM_LEAK_TICKS 4096u
#define TM_LEAK_ENTRIES 2000000u

struct tm_ledger;

#define TM_LEAK_ACCOUNT UINT32_MAX

/* What a call stack had live, in eight bytes, as there are many; or whose stacks follow. */
struct tm_leak_level {
	uint32_t site;  /* index; TM_LEAK_ACCOUNT: level is an account's index */
	uint32_t level; /* tm_site_level() of its bytes, not 0 */
};

struct tm_leak_look {
	uint64_t ns;
	size_t first, count; /* of the watch's levels: of each account its own, by site, upward */
};

struct tm_leak_watch {
	uint64_t ticks, next_tick;          /* allocations so far; when to come here */
	uint64_t tick_stride;               /* of the clock */
	TM_ARRAY(uint64_t) clock;           /* time of tick 0, stride, 2 * stride, ... */
	uint64_t look_stride, looks_passed; /* in ticks, or in steps */
	TM_ARRAY(struct tm_leak_look) looks;
	TM_ARRAY(struct tm_leak_level) levels; /* of all looks, one behind the other */
	TM_ARRAY(uint64_t) steps;              /* when each began */
};

void tm_leak_watch_init(struct tm_leak_watch *w);
void tm_leak_watch_release(struct tm_leak_watch *w);

/* The process has left: what was seen is let go, and nothing is looked at any more. */
void tm_leak_watch_end(struct tm_leak_watch *w);

/* ticks has reached next_tick. */
bool tm_leak_watch_tick(struct tm_ledger *l, uint64_t ns);
/* A step of the process begins. */
bool tm_leak_watch_step(struct tm_ledger *l, uint64_t ns);

#endif
