/* leak_score.h - how much a call site looks like a leak, from what is known of its survivors; arithmetic only.
 *
 * Flow:     leaks.c gathers the facts -> here -> score, growth and a sentence -> leak_rows.c
 *
 * Idea:     a leak adds survivors as long as the program works, and nothing takes them away. So positions are taken in a window that begins with
 *           the site's first allocation (or behind the steps' warm-up) and ends at exit, and one asks:
 *           - never freed: do survivors come evenly until the end (a leak), or did they stop early or become few (a table, a cache, what start-up needs)?
 *             Among many other allocations they may end a little earlier, as a loop does that something else follows; where there was little else
 *             it is a table that was built. So is what was made in one go in the last tenth of the run, with nothing else beside it: a result,
 *             unless that took half of the process' life by the clock: so goes a service that allocated much when it started, and little since.
 *           - partly freed: are there old survivors from all over the window (an error path that forgets), or only recent ones (in use, a
 *             bounded queue or cache)? Does the level still rise in the second half (Mann-Kendall), or has it settled? A level that rises steadily
 *             all the time is growth, however young the survivors are: a queue that is filled faster than it is emptied.
 *           - one block that grows while its predecessors are freed: did its owner grow until the end? One that doubles is at least
 *             half as old as it is large, so the last growth of one that goes on lies in the second half. What it had live has to rise, too:
 *             the last of many lists that were each built by appending is no owner, nor is a scratch buffer that was soon large enough.
 *           - one caller of several: does what all of them hold together stay the same while this one's share grows? Then its blocks took the place of
 *             others', in a cache that one function fills and another one keeps fresh. What falls at other times, or by more or less, is another matter.
 *             While none of its own was freed yet it may be no cache, but input that goes while results are forgotten: such a site is told, behind others.
 *           A few kilobytes beside much more that the process holds, as interpreters keep in free lists or have the collector find later, count half.
 *           How far the program was is told by its own allocations rather than by the clock, except where it clearly went on without any,
 *           or for much longer with hardly any.
 *           The score is a product of such answers, each from 0 to 1, with the weight of the evidence: n / (n + 2) for n
 *           independent survivors, n / (n + 3) where others were freed. TM_LEAK_SCORE_LIKELY is where a user is told.
 * Methods:  growth per step is the median of all pairs' slopes (Theil 1950, Sen 1968) over all steps behind the warm-up, also those before the site's first
 *           allocation, and no more than over those behind it: neither what is made in the last of many steps nor what is made once grows from step to
 *           step. Its confidence is the one-sided test for a monotonic trend with ties (Mann 1945, Kendall 1975) in the window: neither assumes a
 *           distribution, and both stand a few odd values.
 */
#ifndef TIDEMARK_ANALYZER_LEAK_SCORE_H
#define TIDEMARK_ANALYZER_LEAK_SCORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TM_LEAK_SCORE_LIKELY 0.5
#define TM_LEAK_PARTS 32u
#define TM_LEAK_LEVELS 64u
#define TM_LEAK_REASON_BYTES 400u

/* When survivors were born: positions in the window, 0 its begin, 1 the exit. */
struct tm_leak_births {
	uint32_t parts[TM_LEAK_PARTS];
	uint64_t count;
	double last;
	double weight; /* sum of their positions times their bytes */
};

/* What the stacks had live, at positions of the window, upward. They are large, so that callers have them for a few candidates at a time. */
struct tm_leak_levels {
	size_t count;
	double at[TM_LEAK_LEVELS], bytes[TM_LEAK_LEVELS];
};

struct tm_leak_facts {
	uint64_t allocations, allocated_bytes; /* by the stacks that have survivors */
	uint64_t splits;                       /* parts of mappings that cuts of these added; parts are blocks, but no allocations */
	uint64_t live_count, live_bytes;
	struct tm_leak_births events, time; /* by the program's own progress, and by the clock */
	double time_weight; /* 0 to 0.5: what the clock has to say, where the program went on with few allocations or none */
	double density;                     /* survivors in an allocation of the process, from the first to the last of them */
	double begin;                       /* of the window, 0 the process' first allocation, 1 its exit; 0 where there are steps */
	uint64_t window_ns;                 /* how long the window was by the clock, */
	double window_share;                /* and which part of the process' life that was */
	uint64_t warm_up_steps;
	const struct tm_leak_levels *levels;
	const struct tm_leak_levels *by_step; /* from the warm-up on, `at` in steps; none without steps */
	size_t steps_before;                  /* of these, looks before the window */
	const double *site;     /* what all callers of the site had live at `levels`; NULL: nobody looked, or there is one caller */
	double sizes, squares;  /* sums of the survivors' sizes and of their squares */
	double size_share;      /* 0 to 1: how large it is among the process' candidates */
	uint64_t process_bytes; /* all that the process holds; 0 unknown */
	bool is_module, is_arena, is_file;
	bool one_a_thread;     /* there is one survivor for each of several threads */
	bool shares_threads;   /* several threads made survivors, and all of them still run ... */
	unsigned thread_parts; /* ... in so many parts of the window the one that did so in most */
	bool is_estimated;     /* the figures are, from samples */
	bool is_instant;       /* the process lasted no time: nothing is known of before and after */
	bool is_unjoined;      /* what pthread_create() made for threads, many more of them than there are */
};

struct tm_leak_verdict {
	double score;                           /* NAN: nothing tells */
	double growth_bytes_per_step, growth_p; /* NAN unknown */
	char reason[TM_LEAK_REASON_BYTES];
	bool made_up_for; /* by what went of other callers' */
};

void tm_leak_judge(const struct tm_leak_facts *f, struct tm_leak_verdict *v);
/* Of growth that is made up for by what went of other callers'. never_freed: so far nothing of its own was freed, and it may be a leak all the same. */
void tm_leak_settle(struct tm_leak_verdict *v, bool never_freed);

/* Median of the slopes of all pairs of points; NAN for fewer than two different x. n at most TM_LEAK_LEVELS. */
double tm_theil_sen(const double *x, const double *y, size_t n);
/* Probability of a trend upward as strong as this, or stronger, if there is none; 1 for fewer than 4 values or where all are equal. */
double tm_mann_kendall(const double *y, size_t n);

#endif
