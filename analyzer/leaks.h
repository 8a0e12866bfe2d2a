/* leaks.h - which call sites look like leaks when a process begins to leave.
 *
 * Flow:     replay.c, at a process' exit -> here (blocks that are live, looks of leak_watch.c, leak_frames.c) -> leak_score.c -> leak_rows.c
 * Idea:     everything that speaks for or against a leak is in the blocks that are live at exit and in the looks that were taken on the way, so no
 *           allocation is looked at twice. Call stacks whose blocks live on are one candidate if they have the same call site and were
 *           called from the same line of the program's own code: the site's function, file and line, and those of the first frame
 *           from there outward that is not the C++ library's. The candidate's stack is the one of most live bytes.
 *           A site is judged for each line that calls it, too: one caller of many may forget its blocks. Whatever looks like a leak then is compared
 *           with what all callers of its site had at the looks, those of which nothing is left as well: blocks may only have taken others' places.
 * Judged:   at exit. What a process held when it became another by exec is no leak. Stacks that a suppression matches are candidates of their own.
 * Memory:   follows the live blocks and their call stacks; some bytes a node and a string while the trace is replayed.
 * Threads:  one of its own, of many candidates, which judges every other one (leak_views.c has another before that).
 * Fails:    out of memory: false.
 */
#ifndef TIDEMARK_ANALYZER_LEAKS_H
#define TIDEMARK_ANALYZER_LEAKS_H

#include "accounts.h"
#include "leak_frames.h"
#include "text_store.h"

struct tm_replay;

/* A candidate, in times of the trace and whole bytes. */
struct tm_leak {
	const struct tm_account *account;
	uint32_t stack, stacks;         /* the one of most live bytes; how many there are */
	struct tm_amount live;          /* scaled as in accounts.h */
	uint64_t allocations;           /* scaled, too */
	uint64_t first_ns, last_ns;     /* oldest and youngest survivor */
	double score, growth, growth_p; /* as in struct tm_leak_verdict */
	const char *reason;
	bool suppressed;
};

/* Which rows stand for the stacks is known by call site: accounts.h, leak_rows. */
struct tm_leaks {
	TM_ARRAY(struct tm_leak) rows;
	struct tm_leak_frames frames; /* started by whoever begins to replay */
	uint64_t *hashes;             /* of strings by id; 0 not yet */
	struct tm_text_store reasons[2]; /* also of candidates that are no rows; one for each thread that judges */
};

/* The process leaves now. */
bool tm_leaks_find(struct tm_leaks *leaks, const struct tm_ledger *l, const struct tm_replay *r, uint64_t exit_ns);
/* No other process will leave: only the rows stay. */
void tm_leaks_end(struct tm_leaks *leaks);
void tm_leaks_release(struct tm_leaks *leaks);

#endif
