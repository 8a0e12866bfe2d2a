/* live.h - a trace that is still written: what its processes have live now, and how fast that changes.
 *
 * Flow:     reader.c (the chunks that are new) -> catalog.c, ahead.c (tm_batch_decode) -> merge.c -> here -> live_rows.c -> cmd_top.c
 * Idea:     the collector writes at least once a second while events arrive, so whoever follows the file knows what the collector knows. Nothing is
 *           asked of the recorder or of the program. Events are played through the same pairing and accounts as by an import, but nothing
 *           is kept of a block that has ended, and stacks are the trace's own nodes, as names may still be missing.
 * Owns:     the reader, the catalog, the ledgers, the open scopes.
 * Memory:   follows the live blocks, the call sites and the names of scopes.
 * Threads:  one.
 * Fails:    tm_live_poll() says how.
 */
#ifndef TIDEMARK_ANALYZER_LIVE_H
#define TIDEMARK_ANALYZER_LIVE_H

#include "accounts.h"
#include "ahead.h"
#include "id_map.h"
#include "merge.h"

/* A heap, and what it had when the interval began that rates are of. */
struct tm_live_heap {
	struct tm_account *account;
	struct tm_amount allocated_before;
	TM_ARRAY(struct tm_amount) before; /* of each site */
};

/* All scopes of one name and category in one process, and what was allocated in them, themselves, in one heap. */
struct tm_live_scope {
	uint32_t process, name, category; /* strings, 0 none; name and category 0: [unscoped] */
	const struct tm_account *account; /* NULL: this one counts the calls */
	bool has_heaps;                   /* of one that counts calls: there are others with its name */
	uint64_t calls;
	struct tm_amount live, allocated, allocated_before;
};

struct tm_live_open { /* a scope that is open on a thread */
	uint32_t name, category;
	uint64_t key, link;
	uint8_t op;
};

struct tm_live_thread {
	struct tm_ledger *ledger; /* NULL: not met yet */
	struct tm_account *moved_account;
	TM_ARRAY(struct tm_live_open) open; /* the last one is the innermost */
};

struct tm_live {
	struct tm_reader reader;
	struct tm_catalog catalog;
	struct tm_decoder *decoder;
	struct tm_merge merge;
	TM_ARRAY(struct tm_ledger *) ledgers; /* by process id - 1; NULL: no event yet */
	TM_ARRAY(struct tm_live_thread) threads;
	TM_ARRAY(struct tm_live_heap) heaps;
	TM_ARRAY(struct tm_account *) accounts; /* by heap id - 1; NULL: no event yet */
	TM_ARRAY(struct tm_live_scope) scopes;
	TM_ARRAY(uint64_t) rss;     /* bytes by process id - 1; UINT64_MAX: unknown */
	struct tm_id_map scope_ids; /* (heap or process, category), name -> index + 1 */
	struct tm_id_map texts;     /* of scopes: hash of a text and its probe -> string id */
	struct tm_account *waiting;
	uint64_t look_ns;  /* when to look whether it has waited enough; UINT64_MAX: nothing waits */
	uint64_t now_ns;   /* everything before it has been played */
	uint64_t rates_ns; /* when the interval began that rates are of */
	uint64_t begin_ns; /* the first one begins then, or with the window of a ring; 0: with the trace */
	uint64_t events;
	const char *stopped; /* a chunk is damaged; what came before counts */
	bool ended;          /* the trace was closed: nothing more will come */
	bool interval_over;  /* the next one begins as soon as there is something new */
	bool failed;
};

/* 0, or -1 with a sentence in error. Release after either. */
int tm_live_open(struct tm_live *l, const char *path, char *error, size_t error_bytes);
void tm_live_release(struct tm_live *l);

/* Plays what is new, for at most `milliseconds` (0: all of it). 1: there is more; 0: that was all for now; -1: out of memory. */
int tm_live_poll(struct tm_live *l, unsigned milliseconds);

/* The interval that rates are of begins now. */
void tm_live_begin_interval(struct tm_live *l);

/* --- live_scopes.c --- */

/* A step of kind TM_STEP_SCOPE. */
void tm_live_scope_play(struct tm_live *l, uint32_t process, struct tm_live_thread *t, const struct tm_step *s);
/* Index + 1 of what an allocation of the thread in this heap counts in now. 0: out of memory. */
uint32_t tm_live_scope_now(struct tm_live *l, const struct tm_account *a, const struct tm_live_thread *t);
/* How many scopes of this name were opened. */
uint64_t tm_live_scope_calls(const struct tm_live *l, const struct tm_live_scope *s);

#endif
