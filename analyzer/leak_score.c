/* leak_score.c - how much a call site looks like a leak; see leak_score.h. */
#include "leak_score.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../schema/units.h"

/* Every figure that decides. fixtures/leaks/README.md says which programs they were chosen on, and how others came out. */
#define EARLY_FREE 0.15   /* survivors may be this much ahead of an even pace ... */
#define EARLY_RANGE 0.28  /* ... and beyond that lose their score over this range */
#define LATEST_NEEDED 0.5 /* the last survivor must be younger than this ... */
#define LATEST_RANGE 0.3  /* ... and counts in full this much later */
#define LATE_SHARE 0.06   /* of the survivors, in the last quarter: so few mean that it comes to an end ... */
#define LATE_SHARE_RANGE 0.08
#define LATE_LEAST 8u   /* ... if there are so many that a quarter has to have some */
#define NEAR_END 0.95   /* of the last survivor: this is the end, in words */
#define LOOP_NEEDED 0.5 /* the same where survivors are few among other allocations */
#define LOOP_RANGE 0.2
#define LOOP_EVIDENCE 20.0 /* and few survivors of such a loop may as well be all that there are to be */
#define DENSE 0.2          /* survivors in an allocation: more of them are a table that is built */
#define DENSE_RANGE 0.1
#define RESULT_BEGIN 0.9 /* what is made from here on, and so densely, is a result */
#define RESULT_DENSE 0.8
#define RESULT_FACTOR 0.4
#define SLOW_NS 500000000u /* unless that took so long by the clock ... */
#define SLOW_SHARE 0.5     /* ... and so much of the process' life ... */
#define SLOW_PARTS 24u     /* ... in so many parts of it, which no machine that was busy for a moment makes up */
#define RECENT_FREE 0.3 /* of partly freed sites: as EARLY_*, behind an even pace */
#define RECENT_RANGE 0.4
#define OLD_PARTS 28u /* survivors of the last eighth may be in use */
#define SETTLED 0.35  /* factor where the level does not rise in the second half */
#define EXCHANGED 0.6 /* factor where it does for one caller only, of whose blocks none was freed so far */
#define TREND_P 0.05
#define TREND_LEVELS 6u /* so many looks make a trend */
#define GROWTH_P 0.001  /* a level that grew steadily: so sure a trend ... */
#define GROWTH_LATE 0.2 /* ... this share of it in the second half ... */
#define GROWTH_RANGE 0.15
#define GROWTH_TOP 0.9    /* ... at the end this near to its highest ... */
#define GROWTH_SHARE 0.02 /* ... and this share of all blocks still live */
#define GROWTH_SHARE_RANGE 0.06
#define GROWTH_EVIDENCE 8.0
#define FILL_EARLY 0.2 /* by then an owner that is filled evenly ... */
#define FILL_LEVEL 0.6 /* ... has at most this much of its size */
#define FILL_FACTOR 0.5
#define OWNER_RATIO 2.0 /* survivors are this much larger than what was freed: an owner grew */
#define OWNER_NEEDED 0.47
#define OWNER_RANGE 0.06
#define OWNER_EVIDENCE 6.0
#define OWNER_EVIDENCE_SEEN 5.0 /* the same where looks saw it grow */
#define LEVEL_RANGE 0.1         /* of a caller's growth: what all callers of its site hold stays the same within this, ... */
#define LEVEL_SIGMAS 2.5        /* ... or within what blocks of various sizes make of it ... */
#define LEVEL_RANGE_MOST 0.25   /* ... and surely no more than this */
#define EVIDENCE 2.0
#define EVIDENCE_PARTLY 3.0 /* a few may well be in use */
#define ONE_BLOCK 0.1
#define MODULE_FACTOR 0.25
#define ARENA_FACTOR 0.5
#define FILE_FACTOR 0.7
#define LITTLE_BYTES 4096u /* so little in all ... */
#define LITTLE_SHARE 500u  /* ... and so much less than the process holds ... */
#define LITTLE_FACTOR 0.5  /* ... hardly is what somebody looks for */
#define THREAD_FACTOR 0.3
#define THREADS_FEW 8u /* one block left by each of fewer threads that replaced theirs is what they worked with */

static double unit(double x) {
	return x < 0 ? 0 : x > 1 ? 1 : x;
}

static int compare_doubles(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

double tm_theil_sen(const double *x, const double *y, size_t n) {
	double slopes[TM_LEAK_LEVELS * (TM_LEAK_LEVELS - 1) / 2];
	size_t count = 0;
	for (size_t i = 0; i < n; i++)
		for (size_t k = i + 1; k < n; k++)
			if (x[k] != x[i]) slopes[count++] = (y[k] - y[i]) / (x[k] - x[i]);
	if (!count) return NAN;
	qsort(slopes, count, sizeof *slopes, compare_doubles);
	return count % 2 ? slopes[count / 2] : (slopes[count / 2 - 1] + slopes[count / 2]) / 2;
}

/* Values that are equal one after the other: a level stays for a while, so there are few runs. */
struct runs {
	double values[TM_LEAK_LEVELS];
	int lengths[TM_LEAK_LEVELS];
	size_t count;
};

static void find_runs(const double *y, size_t n, struct runs *r) {
	r->count = 0;
	for (size_t i = 0; i < n; i++) {
		if (r->count && r->values[r->count - 1] == y[i]) {
			r->lengths[r->count - 1]++;
			continue;
		}
		r->values[r->count] = y[i];
		r->lengths[r->count++] = 1;
	}
}

/* Pairs are compared without a branch: nothing foretells which of two levels is the higher one. */
double tm_mann_kendall(const double *y, size_t n) {
	struct runs r;
	int s = 0; /* at most 64 * 63 / 2 */
	double ties = 0;
	if (n < 4) return 1;
	find_runs(y, n, &r);
	for (size_t i = 0; i < r.count; i++) {
		int sum = 0, before = 0, after = 0; /* later levels that are higher less those that are lower; equal ones */
		for (size_t k = 0; k < i; k++) before += r.values[k] == r.values[i] ? r.lengths[k] : 0;
		for (size_t k = i + 1; k < r.count; k++) {
			sum += r.lengths[k] * ((r.values[k] > r.values[i]) - (r.values[k] < r.values[i]));
			after += r.values[k] == r.values[i];
		}
		s += r.lengths[i] * sum;
		double equal = r.lengths[i] + before; /* of all runs of this value, counted at its last one */
		if (!after) ties += equal * (equal - 1) * (2 * equal + 5);
	}
	double m = (double)n, variance = (m * (m - 1) * (2 * m + 5) - ties) / 18;
	if (variance <= 0) return 1;
	double z = s > 0 ? (s - 1) / sqrt(variance) : s < 0 ? (s + 1) / sqrt(variance) : 0;
	return 0.5 * erfc(z / sqrt(2));
}

/* --- shapes --- */

/* How the births of the first parts lie: ahead of an even pace, behind it, how many of all in the last quarter, in how many parts. */
struct shape {
	double ahead, behind, late;
	uint64_t count;
	unsigned parts;
};

static struct shape shape_of(const struct tm_leak_births *b, unsigned parts) {
	struct shape s = { 0 };
	uint64_t sum = 0;
	for (unsigned i = 0; i < parts; i++) {
		s.count += b->parts[i];
		s.parts += b->parts[i] > 0;
	}
	for (unsigned i = 0; s.count && i < parts; i++) {
		sum += b->parts[i];
		double gone = (double)sum / (double)s.count, even = (double)(i + 1) / parts;
		s.ahead = fmax(s.ahead, gone - even - 1 / (double)s.count);
		s.behind = fmax(s.behind, even - gone);
		if (i >= parts - parts / 4) s.late += (double)b->parts[i] / (double)s.count;
	}
	return s;
}

static struct shape mixed_shape(const struct tm_leak_facts *f, unsigned parts) {
	struct shape s = shape_of(&f->events, parts), t = shape_of(&f->time, parts);
	s.ahead += f->time_weight * (t.ahead - s.ahead);
	s.behind += f->time_weight * (t.behind - s.behind);
	s.late += f->time_weight * (t.late - s.late);
	return s;
}

static double mixed(const struct tm_leak_facts *f, double by_events, double by_time) {
	return by_events + f->time_weight * (by_time - by_events);
}

/* Parts with survivors; what threads that still run have made once each, one after the other, is no more than that. */
static double parts_seen(const struct tm_leak_facts *f, const struct shape *s) {
	return f->shares_threads && f->thread_parts < s->parts ? f->thread_parts : s->parts;
}

static double evidence(double n, double needed) {
	return n / (n + needed);
}

/* What share of its level comes and goes by chance where blocks of various sizes take each other's places. */
static double chance(const struct tm_leak_facts *f) {
	double n = (double)f->events.count, variance = f->squares - (f->is_estimated || !n ? 0 : f->sizes * f->sizes / n);
	return f->sizes > 0 ? fmin(LEVEL_RANGE_MOST, LEVEL_SIGMAS * sqrt(2 * fmax(0, variance)) / f->sizes) : 0;
}

/* What all callers of the site hold stays the same while this one's share of it grows: others' blocks went as these came, as in a cache that one function
 * fills and another one keeps fresh. */
static bool is_made_up_for(const struct tm_leak_facts *f) {
	const struct tm_leak_levels *l = f->levels;
	if (!f->site || l->count < TREND_LEVELS) return false;
	double range = fmax(LEVEL_RANGE, chance(f));
	double growth = (double)f->live_bytes - l->bytes[0];
	for (size_t i = 1; i < l->count; i++)
		if (fabs(f->site[i] - f->site[0]) > range * growth) return false;
	return growth > 0;
}

/* --- kinds of sites --- */

struct words {
	char live[TM_UNIT_TEXT_MAX + 1], allocations[TM_UNIT_TEXT_MAX + 1], bytes[TM_UNIT_TEXT_MAX + 1];
	char blocks[3 * TM_UNIT_TEXT_MAX]; /* that ever were: "3 blocks", or "3 parts of 1 block" */
	const char *noun;                  /* of those that are live */
	char growth[120]; /* ", 1.5 KiB a step ..." or "" */
};

/* All that ever were, parts of mappings that were cut counted each. */
static uint64_t blocks_of(const struct tm_leak_facts *f) {
	return f->allocations + f->splits;
}

static double judge_one(struct tm_leak_verdict *v, const struct words *w) {
	snprintf(v->reason, sizeof v->reason, "one block, allocated once and kept (%s)", w->bytes);
	return ONE_BLOCK;
}

static double judge_warm_up(const struct tm_leak_facts *f, struct tm_leak_verdict *v, const struct words *w) {
	/* Counted: what the program calls its steps is another matter. */
	char steps[40] = "first step";
	if (f->warm_up_steps > 1) snprintf(steps, sizeof steps, "first %llu steps", (unsigned long long)f->warm_up_steps);
	snprintf(v->reason, sizeof v->reason, "allocated by the end of the %s, as warm-up, and nothing was added since: %s in %s %s", steps,
		 w->bytes, w->live, w->noun);
	return ONE_BLOCK / 2;
}

/* By when nine of ten survivors were there. */
static double position_of_most(const struct tm_leak_facts *f) {
	uint64_t sum = 0;
	unsigned i = 0;
	while (i < TM_LEAK_PARTS && (sum += f->events.parts[i++]) * 10 < f->events.count * 9) continue;
	return (double)i / TM_LEAK_PARTS;
}

/* A loop among whose other allocations survivors came evenly, and that something else followed. */
static double judge_ended_loop(const struct tm_leak_facts *f, double last) {
	double sparse = unit((DENSE - f->density) / DENSE_RANGE), end = mixed(f, f->events.last, f->time.last) * TM_LEAK_PARTS;
	struct shape s = mixed_shape(f, end < 1 ? 1 : end > TM_LEAK_PARTS ? TM_LEAK_PARTS : (unsigned)ceil(end));
	return sparse * unit(1 - (s.ahead - EARLY_FREE) / EARLY_RANGE) * unit((last - LOOP_NEEDED) / LOOP_RANGE);
}

static double judge_never_freed(const struct tm_leak_facts *f, struct tm_leak_verdict *v, const struct words *w) {
	struct shape s = mixed_shape(f, TM_LEAK_PARTS);
	double n = (double)s.count;
	/* The last of n even births lies at 1 - 1 / n. */
	double last = n < 2 ? 0 : fmin(1, mixed(f, f->events.last, f->time.last) * n / (n - 1));
	double pace = unit(1 - (s.ahead - EARLY_FREE) / EARLY_RANGE), goes_on = unit((last - LATEST_NEEDED) / LATEST_RANGE);
	double late = n < LATE_LEAST ? 1 : unit((s.late + 1 / n - LATE_SHARE) / LATE_SHARE_RANGE);
	double going = pace * goes_on * late, ended = judge_ended_loop(f, last) * evidence(n, LOOP_EVIDENCE);
	double score = fmax(going, ended) * evidence(fmin(n, parts_seen(f, &s)), EVIDENCE);
	bool is_slow = f->window_ns >= SLOW_NS && f->window_share >= SLOW_SHARE && shape_of(&f->time, TM_LEAK_PARTS).parts >= SLOW_PARTS;
	bool is_result = f->begin >= RESULT_BEGIN && f->density >= RESULT_DENSE && !is_slow;
	if (is_result) score *= RESULT_FACTOR;
	double at = 100 * mixed(f, f->events.last, f->time.last);
	if (is_result)
		snprintf(v->reason, sizeof v->reason,
			 "never freed, but made in one go at the end of the run, with little else beside it: %s blocks (%s)", w->live,
			 w->bytes);
	else if (going < 0.5 && ended >= 0.5)
		snprintf(
			v->reason, sizeof v->reason,
			"never freed: all %s blocks (%s) are live, and they came evenly among other allocations, up to %.0f%% of the run%s",
			w->live, w->bytes, at, w->growth);
	else if (going < 0.5 && goes_on < 0.5)
		snprintf(v->reason, sizeof v->reason,
			 "never freed, but it stopped growing: %s blocks (%s) kept, the last at %.0f%% of the run since the first one",
			 w->live, w->bytes, at);
	else if (going < 0.5)
		snprintf(v->reason, sizeof v->reason,
			 "never freed, but growth slows down: %s blocks (%s) kept, 9 of 10 of them in the first %.0f%% of the run",
			 w->live, w->bytes, 100 * position_of_most(f));
	else if (last < NEAR_END)
		snprintf(v->reason, sizeof v->reason,
			 "never freed: all %s blocks (%s) are live, and new ones came up to %.0f%% of the run, in %u of %u parts of it%s",
			 w->live, w->bytes, at, s.parts, TM_LEAK_PARTS, w->growth);
	else
		snprintf(v->reason, sizeof v->reason,
			 "never freed: all %s blocks (%s) are live, and new ones came until the end, in %u of %u parts of the run%s",
			 w->live, w->bytes, s.parts, TM_LEAK_PARTS, w->growth);
	return score;
}

static double highest(const struct tm_leak_facts *f) {
	double most = 0;
	for (size_t i = 0; i < f->levels->count; i++) most = fmax(most, f->levels->bytes[i]);
	return most;
}

/* The last level at or before a position; 0 where there is none. */
static double level_until(const struct tm_leak_facts *f, double at) {
	double level = 0;
	for (size_t i = 0; i < f->levels->count && f->levels->at[i] <= at; i++) level = f->levels->bytes[i];
	return level;
}

/* Blocks come and go, and there are ever more of them: 0 not at all, 1 surely. Threads that still run may each have filled something. */
static double steady_growth(const struct tm_leak_facts *f, const struct tm_leak_verdict *v, double p) {
	double most = highest(f), end = (double)f->live_bytes, half = level_until(f, 0.5);
	if (f->shares_threads || isnan(v->growth_p) || isnan(p) || v->growth_p > GROWTH_P || p > TREND_P || end < GROWTH_TOP * most)
		return 0;
	double share = (double)f->live_count / (double)blocks_of(f);
	return unit(((end - half) / end - GROWTH_LATE) / GROWTH_RANGE) * unit((share - GROWTH_SHARE) / GROWTH_SHARE_RANGE);
}

/* Owners that were filled little by little, rather than soon made about as large as they are: as far as looks tell. Many of them are no chance. */
static double judge_growth_of_owner(const struct tm_leak_facts *f, double grown) {
	if (f->levels->count < TREND_LEVELS) return evidence(grown, OWNER_EVIDENCE);
	grown += log2((double)f->live_count);
	bool is_slow = level_until(f, FILL_EARLY) <= FILL_LEVEL * (double)f->live_bytes;
	return evidence(grown, OWNER_EVIDENCE_SEEN) * (is_slow ? 1 : FILL_FACTOR);
}

/* Does the level rise where it ought to have settled? */
static double second_half(const struct tm_leak_facts *f, double *p) {
	size_t first = 0;
	while (first < f->levels->count && f->levels->at[first] < 0.5) first++;
	if (f->levels->count - first < TREND_LEVELS) {
		*p = NAN;
		return 1;
	}
	*p = tm_mann_kendall(f->levels->bytes + first, f->levels->count - first);
	return *p <= TREND_P ? 1 : SETTLED;
}

static double judge_partly_freed(const struct tm_leak_facts *f, struct tm_leak_verdict *v, const struct words *w) {
	struct shape s = mixed_shape(f, OLD_PARTS);
	double p, level = second_half(f, &p), n = (double)s.count;
	double spread = unit(1 - (s.behind - RECENT_FREE) / RECENT_RANGE), pace = unit(1 - (s.ahead - EARLY_FREE) / EARLY_RANGE);
	double score = n ? spread * pace * level * evidence(fmin(n, parts_seen(f, &s)), EVIDENCE_PARTLY) : 0;
	double grows = steady_growth(f, v, p) * evidence(fmin((double)f->live_count, (double)f->levels->count), GROWTH_EVIDENCE);
	char trend[80] = "";
	if (!isnan(p) && level < 1) snprintf(trend, sizeof trend, ", and their level has settled");
	else if (!isnan(p))
		snprintf(trend, sizeof trend, ", and their level still rises (Mann-Kendall, p %s)", p < 0.001 ? "< 0.001" : "< 0.05");
	if (grows > score)
		snprintf(v->reason, sizeof v->reason,
			 "%s of %s (%s) are live, and while others are freed there are ever more of them%s%s", w->live, w->blocks, w->bytes, trend, w->growth);
	else if (!n || spread < 0.5)
		snprintf(v->reason, sizeof v->reason, "in use: %s of %s are live, and these are recent ones%s", w->live, w->blocks,
			 trend);
	else if (pace < 0.5)
		snprintf(v->reason, sizeof v->reason, "%s of %s were kept early on and few since: filled once%s", w->live, w->blocks,
			 trend);
	else
		snprintf(v->reason, sizeof v->reason,
			 "%s of %s (%s) were not freed as the others were, old ones from %u of %u parts of the run%s%s", w->live,
			 w->blocks, w->bytes, s.parts, OLD_PARTS, trend, w->growth);
	return fmax(score, grows);
}

/* The survivors are the latest of blocks that replaced each other, each larger than the one before. */
static bool is_owner(const struct tm_leak_facts *f) {
	uint64_t frees = blocks_of(f) - f->live_count, freed_bytes = f->allocated_bytes - f->live_bytes;
	if (f->allocations <= f->live_count || f->allocations < 3 * f->live_count || f->allocated_bytes <= f->live_bytes) return false;
	return (double)f->live_bytes / (double)f->live_count >= OWNER_RATIO * (double)freed_bytes / (double)frees;
}

static double judge_owner(const struct tm_leak_facts *f, struct tm_leak_verdict *v, const struct words *w) {
	double p, count = (double)f->live_count, last = mixed(f, f->events.weight, f->time.weight) / fmax(1, (double)f->live_bytes);
	double grown = fmin((double)f->allocations / count, log2(fmax(2, (double)f->live_bytes / count / 64)));
	double goes_on = unit((last - OWNER_NEEDED) / OWNER_RANGE);
	snprintf(v->reason, sizeof v->reason,
		 "%s %s grew by being replaced (%s allocations), now %s, %s %.0f%% of the run since the first one%s", w->live,
		 f->live_count == 1 ? "block of one owner" : "blocks of owners", w->allocations, w->bytes,
		 goes_on < 0.5 ? "but not since" : "last at", 100 * last, w->growth);
	/* Several blocks of different sizes that take turns may look like owners, or one that is built anew again and again; then the level stays. */
	double level = f->live_count > 1 ? second_half(f, &p) : isnan(v->growth_p) || v->growth_p <= TREND_P ? 1 : SETTLED;
	return goes_on * level * judge_growth_of_owner(f, grown);
}

/* --- the whole --- */

static void put_words(const struct tm_leak_facts *f, const struct tm_leak_verdict *v, struct words *w) {
	char size[TM_UNIT_TEXT_MAX], count[TM_UNIT_TEXT_MAX];
	const char *about = f->is_estimated ? "~" : "";
	snprintf(w->live, sizeof w->live, "%s%s", about, tm_format_count(f->live_count, count));
	snprintf(w->allocations, sizeof w->allocations, "%s%s", about, tm_format_count(f->allocations, count));
	snprintf(w->bytes, sizeof w->bytes, "%s%s", about, tm_format_size(f->live_bytes, size));
	tm_format_count(blocks_of(f), count);
	if (f->splits) w->noun = f->live_count == 1 ? "part of a block" : "parts of blocks";
	else w->noun = f->live_count == 1 ? "block" : "blocks";
	if (f->splits)
		snprintf(w->blocks, sizeof w->blocks, "%s%s part%s of %s block%s", about, count, blocks_of(f) == 1 ? "" : "s",
			 w->allocations, f->allocations == 1 ? "" : "s");
	else snprintf(w->blocks, sizeof w->blocks, "%s%s block%s", about, count, blocks_of(f) == 1 ? "" : "s");
	w->growth[0] = '\0';
	if (isnan(v->growth_bytes_per_step) || v->growth_bytes_per_step < 1) return;
	snprintf(w->growth, sizeof w->growth, "; %s%s a step%s", about, tm_format_size((uint64_t)llround(v->growth_bytes_per_step), size),
		 isnan(v->growth_p)       ? ""
		 : v->growth_p < 0.001    ? " (p < 0.001)"
		 : v->growth_p <= TREND_P ? " (p < 0.05)"
					  : " (not certain)");
}

static double growth_from(const struct tm_leak_levels *l, size_t first) {
	return tm_theil_sen(l->at + first, l->bytes + first, l->count - first);
}

static void measure_growth(const struct tm_leak_facts *f, struct tm_leak_verdict *v) {
	v->growth_p = f->levels->count >= TREND_LEVELS ? tm_mann_kendall(f->levels->bytes, f->levels->count) : NAN;
	v->growth_bytes_per_step = growth_from(f->by_step, 0);
	if (!(v->growth_bytes_per_step > 0)) return;
	double since = growth_from(f->by_step, f->steps_before);
	v->growth_bytes_per_step = isnan(since) ? 0 : fmin(since, v->growth_bytes_per_step);
}

void tm_leak_settle(struct tm_leak_verdict *v, bool never_freed) {
	size_t n = strlen(v->reason);
	v->score *= never_freed ? EXCHANGED : SETTLED;
	snprintf(v->reason + n, sizeof v->reason - n, "%s",
		 never_freed ? "; but as much of other callers' went meanwhile, whose place they may have taken"
			     : "; but blocks made for one caller only took the place of another's");
}

void tm_leak_judge(const struct tm_leak_facts *f, struct tm_leak_verdict *v) {
	struct words w;
	double score;
	v->made_up_for = is_made_up_for(f);
	measure_growth(f, v);
	put_words(f, v, &w);
	if (f->is_instant) {
		snprintf(v->reason, sizeof v->reason, "only one instant is known: nothing tells for how long %s (%s) %s kept",
			 f->live_count == 1 ? "this block" : "these blocks", w.bytes, f->live_count == 1 ? "is" : "are");
		v->score = NAN;
		return;
	}
	if (f->live_count == 1 && blocks_of(f) == 1) score = judge_one(v, &w);
	else if (!f->events.count) score = judge_warm_up(f, v, &w);
	else if (blocks_of(f) <= f->live_count) score = judge_never_freed(f, v, &w);
	else if (is_owner(f)) score = judge_owner(f, v, &w);
	else score = judge_partly_freed(f, v, &w);
	size_t n = strlen(v->reason), room = sizeof v->reason - n;
	if (f->is_unjoined) snprintf(v->reason + n, room, "; what pthread_create makes for a thread, and nobody joined these");
	if (f->is_module) {
		score *= MODULE_FACTOR;
		snprintf(v->reason + n, room, "; made while a module was imported, and modules are kept");
	} else if (f->is_arena) {
		score *= ARENA_FACTOR;
		snprintf(v->reason + n, room, "; what lies in these arenas is in heap python");
	} else if (f->is_file) {
		score *= FILE_FACTOR;
		snprintf(v->reason + n, room, "; the pages of a mapped file belong to the page cache");
	}
	if (f->one_a_thread && f->shares_threads) {
		score *= THREAD_FACTOR;
		snprintf(v->reason, sizeof v->reason, "%s %s (%s), one for each of so many threads that still run", w.live, w.noun,
			 w.bytes);
	} else if (f->one_a_thread && blocks_of(f) > f->live_count && f->live_count < THREADS_FEW) {
		score *= THREAD_FACTOR;
		snprintf(v->reason, sizeof v->reason, "%s of %s (%s), one for each of so many threads, whose others were freed", w.live,
			 w.blocks, w.bytes);
	}
	n = strlen(v->reason);
	if (f->live_bytes < LITTLE_BYTES && f->live_bytes * LITTLE_SHARE < f->process_bytes) {
		score *= LITTLE_FACTOR;
		snprintf(v->reason + n, sizeof v->reason - n, "; little beside what the process holds");
	}
	v->score = unit(score) * (0.9 + 0.1 * unit(f->size_share));
	if (v->made_up_for) tm_leak_settle(v, blocks_of(f) <= f->live_count);
}
