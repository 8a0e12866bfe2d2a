/* test_leak_score.c - the arithmetic behind leak scores, and suppressions, against values worked out by hand. */
#include <math.h>
#include <string.h>

#include "check.h"

#include "../../analyzer/leak_score.h"
#include "../../analyzer/suppressions.h"

static bool near(double a, double b) {
	return fabs(a - b) < 1e-6;
}

/* Slopes of (0,1) (1,3) (2,4) (3,20): 2, 1.5, 19/3, 1, 8.5, 16; sorted 1 1.5 2 6.333 8.5 16: the median is (2 + 19/3) / 2. */
static void theil_sen(void) {
	const double x[] = { 0, 1, 2, 3 }, y[] = { 1, 3, 4, 20 }, same[] = { 5, 5, 5, 5 };
	CHECK(near(tm_theil_sen(x, y, 4), (2 + 19.0 / 3) / 2));
	CHECK(near(tm_theil_sen(x, y, 2), 2));
	CHECK(isnan(tm_theil_sen(same, y, 4)));
	CHECK(isnan(tm_theil_sen(x, y, 1)));
}

/* 1 2 3 4 5: S = 10, the variance 5 * 4 * 15 / 18 = 16.67, z = 9 / 4.0825 = 2.2045, p = 0.01374. With ties 1 1 2 2: S = 4, the variance
 * (4 * 3 * 13 - 2 * (2 * 1 * 9)) / 18 = 6.667, z = 3 / 2.582 = 1.1619, p = 0.12264. */
static void mann_kendall(void) {
	const double rising[] = { 1, 2, 3, 4, 5 }, falling[] = { 5, 4, 3, 2, 1 }, ties[] = { 1, 1, 2, 2 }, flat[] = { 3, 3, 3, 3 };
	CHECK(fabs(tm_mann_kendall(rising, 5) - 0.013742) < 1e-5);
	CHECK(fabs(tm_mann_kendall(falling, 5) - (1 - 0.013742)) < 1e-5);
	CHECK(fabs(tm_mann_kendall(ties, 4) - 0.122641) < 1e-4);
	CHECK(tm_mann_kendall(flat, 4) == 1);
	CHECK(tm_mann_kendall(rising, 3) == 1);
}

/* As it is defined, pair by pair; ties are counted at the first of equal values. */
static double mann_kendall_by_pairs(const double *y, size_t n) {
	double s = 0, variance = (double)(n * (n - 1) * (2 * n + 5));
	for (size_t i = 0; i < n; i++) {
		size_t equal = 0;
		bool is_first = true;
		for (size_t k = 0; k < n; k++) {
			equal += y[k] == y[i];
			if (k < i && y[k] == y[i]) is_first = false;
			if (k > i && y[k] > y[i]) s++;
			if (k > i && y[k] < y[i]) s--;
		}
		if (is_first) variance -= (double)(equal * (equal - 1) * (2 * equal + 5));
	}
	if (variance <= 0) return 1;
	double less = s > 0 ? s - 1 : s < 0 ? s + 1 : 0;
	return 0.5 * erfc(less / sqrt(variance / 18) / sqrt(2));
}

static void mann_kendall_of_any_levels(void) {
	struct check_random r = check_random_start("mann_kendall");
	for (unsigned turn = 0; turn < 2000; turn++) {
		double y[TM_LEAK_LEVELS];
		size_t n = 4 + check_random_below(&r, TM_LEAK_LEVELS - 3), values = 1 + check_random_below(&r, 70);
		for (size_t i = 0; i < n; i++)
			y[i] = i && check_random_below(&r, 3) == 0 ? y[i - 1] : (double)check_random_below(&r, values);
		CHECK(fabs(tm_mann_kendall(y, n) - mann_kendall_by_pairs(y, n)) < 1e-12);
	}
}

static struct tm_leak_levels levels, by_step;

/* Without levels so far. */
static struct tm_leak_facts even(uint64_t n, uint64_t allocations) {
	levels.count = by_step.count = 0;
	struct tm_leak_facts f = { .live_count = n,
				   .live_bytes = 100 * n,
				   .allocations = allocations,
				   .allocated_bytes = 100 * allocations,
				   .size_share = 1,
				   .levels = &levels,
				   .by_step = &by_step,
				   .density = 1 };
	for (uint64_t i = 0; i < n; i++) {
		double at = (double)i / (double)n;
		f.events.parts[(unsigned)(at * TM_LEAK_PARTS)]++;
		f.events.count++;
		f.events.weight += 100 * at;
		f.events.last = at;
	}
	f.time = f.events;
	return f;
}

static void sites(void) {
	struct tm_leak_verdict v;
	/* Never freed and even: nothing is against it but the number of parts, 32 / 34. */
	struct tm_leak_facts f = even(320, 320);
	tm_leak_judge(&f, &v);
	CHECK(near(v.score, 32.0 / 34));
	CHECK(isnan(v.growth_bytes_per_step) && isnan(v.growth_p));
	/* The same at the very beginning is a table. */
	memset(&f.events, 0, sizeof f.events);
	f.events.parts[0] = f.events.count = 320;
	f.events.last = 0.01;
	f.time = f.events;
	tm_leak_judge(&f, &v);
	CHECK(v.score < 0.01 && strstr(v.reason, "stopped growing"));
	/* Mostly freed, and the few that are left are recent. */
	memset(&f, 0, sizeof f);
	f = even(10, 1000);
	memset(f.events.parts, 0, sizeof f.events.parts);
	f.events.parts[31] = 10;
	f.time = f.events;
	tm_leak_judge(&f, &v);
	CHECK(v.score == 0 && strstr(v.reason, "in use"));
	/* Even until the end, but densely and in the last part only: a result. Any less so, a leak. */
	f = even(320, 320);
	f.begin = 0.95;
	f.density = 1;
	tm_leak_judge(&f, &v);
	CHECK(v.score < TM_LEAK_SCORE_LIKELY && strstr(v.reason, "made in one go"));
	f.begin = 0.85;
	tm_leak_judge(&f, &v);
	CHECK(v.score >= TM_LEAK_SCORE_LIKELY);
	f.begin = 0.95;
	f.density = 0.5;
	tm_leak_judge(&f, &v);
	CHECK(v.score >= TM_LEAK_SCORE_LIKELY);
	/* One large block of many: an owner that grows while its level rises, and the last of many lists if it does not. */
	f = even(1, 1000);
	f.live_bytes = 1 << 20;
	f.allocated_bytes = f.live_bytes + 999 * 1000;
	f.events.last = f.time.last = 0.95;
	f.events.weight = f.time.weight = 0.95 * (double)f.live_bytes;
	levels.count = 20;
	for (unsigned i = 0; i < 20; i++) {
		levels.at[i] = i / 20.0;
		levels.bytes[i] = 1000 + 50.0 * i;
	}
	tm_leak_judge(&f, &v);
	CHECK(v.score >= TM_LEAK_SCORE_LIKELY && strstr(v.reason, "one owner"));
	for (unsigned i = 0; i < 20; i++) levels.bytes[i] = i % 2 ? 1000 : 2000;
	tm_leak_judge(&f, &v);
	CHECK(v.score < TM_LEAK_SCORE_LIKELY && strstr(v.reason, "one owner"));
	/* One block, once. */
	f = even(1, 1);
	tm_leak_judge(&f, &v);
	CHECK(near(v.score, 0.1));
	/* The same, of a recording that shows one instant: once and kept, or made a moment before? */
	f.is_instant = true;
	tm_leak_judge(&f, &v);
	CHECK(isnan(v.score) && strstr(v.reason, "only one instant is known"));
	/* Steps: 20 levels that rise by 50 bytes a step, over 20 steps. */
	f = even(20, 20);
	levels.count = by_step.count = 20;
	for (unsigned i = 0; i < 20; i++) {
		levels.at[i] = i / 20.0;
		by_step.at[i] = i;
		levels.bytes[i] = by_step.bytes[i] = 1000 + 50.0 * i;
	}
	tm_leak_judge(&f, &v);
	CHECK(near(v.growth_bytes_per_step, 50) && v.growth_p < 0.001);
	CHECK(v.score >= TM_LEAK_SCORE_LIKELY && strstr(v.reason, "50 B a step (p < 0.001)"));
	/* The same window, but at the end of many steps: no growth from step to step. */
	for (unsigned i = 0; i < 20; i++) by_step.bytes[i] = i < 18 ? 0 : 100 * i;
	tm_leak_judge(&f, &v);
	CHECK(v.growth_bytes_per_step == 0 && !strstr(v.reason, "a step"));
	/* One that is made once, in the middle, raises the level by a median of something, but not since. */
	for (unsigned i = 0; i < 20; i++) by_step.bytes[i] = i < 10 ? 0 : 5000;
	f.steps_before = 10;
	tm_leak_judge(&f, &v);
	CHECK(v.growth_bytes_per_step == 0);
	/* One that begins after a quarter of the steps grows nearly as it does since. */
	for (unsigned i = 0; i < 20; i++) by_step.bytes[i] = i < 5 ? 0 : 100.0 * (i - 4);
	f.steps_before = 5;
	tm_leak_judge(&f, &v);
	CHECK(v.growth_bytes_per_step > 80 && v.growth_bytes_per_step <= 100);
}

/* A queue of which 300 of 900 are left, all from the last third, while the level rose evenly: growth, and nothing of the kind if it was as high before,
 * if too little of it came in the second half, or if each of several threads that still run may have filled something. */
static void queues(void) {
	struct tm_leak_verdict v;
	struct tm_leak_facts f = even(300, 900);
	memset(f.events.parts, 0, sizeof f.events.parts);
	for (unsigned i = 22; i < 32; i++) f.events.parts[i] = 30;
	f.time = f.events;
	levels.count = 40;
	for (unsigned i = 0; i < 40; i++) {
		levels.at[i] = i / 40.0;
		levels.bytes[i] = 750.0 * i;
	}
	tm_leak_judge(&f, &v);
	/* Half of the growth is in the second half and a third is left; 40 looks weigh 40 / 48. */
	CHECK(near(v.score, 40.0 / 48) && strstr(v.reason, "ever more of them"));
	f.shares_threads = true;
	tm_leak_judge(&f, &v);
	CHECK(v.score == 0 && strstr(v.reason, "in use"));
	f.shares_threads = false;
	levels.bytes[30] = 40000;
	tm_leak_judge(&f, &v);
	CHECK(v.score == 0);
	for (unsigned i = 0; i < 40; i++) levels.bytes[i] = i < 20 ? 1400.0 * i : 26600 + 100.0 * i;
	tm_leak_judge(&f, &v);
	CHECK(v.score == 0);
}

/* Blocks of one caller came evenly, 320 in 32 parts of 34; what all callers of the site had stayed the same meanwhile, or did not. */
static void made_up_for(void) {
	struct tm_leak_verdict v;
	struct tm_leak_facts f = even(320, 320);
	double site[20], whole = 32.0 / 34;
	levels.count = 20;
	for (unsigned i = 0; i < 20; i++) {
		levels.at[i] = i / 20.0;
		levels.bytes[i] = 1600.0 * i;
		site[i] = 50000;
	}
	f.sizes = 32000;
	f.squares = 320 * 100.0 * 100;
	tm_leak_judge(&f, &v);
	CHECK(near(v.score, whole) && !v.made_up_for);
	f.site = site;
	tm_leak_judge(&f, &v);
	CHECK(near(v.score, 0.6 * whole) && v.made_up_for && strstr(v.reason, "whose place they may have taken"));
	f.allocations = 400; /* of its own some were freed, too */
	tm_leak_judge(&f, &v);
	CHECK(v.score < 0.35 && v.made_up_for && strstr(v.reason, "took the place of another's"));
	f.allocations = 320;
	/* Off by 15 % of the growth once: not where blocks are of one size. Of 0 and 200 bytes, 2.5 sigmas of 640 such are 2.5 * sqrt(640 * 100 * 100),
	 * 20 %. */
	site[10] = 50000 + 0.15 * 32000;
	tm_leak_judge(&f, &v);
	CHECK(near(v.score, whole) && !v.made_up_for);
	f.squares = 160 * 200.0 * 200;
	tm_leak_judge(&f, &v);
	CHECK(near(v.score, 0.6 * whole));
	site[10] = 50000 - 0.22 * 32000;
	tm_leak_judge(&f, &v);
	CHECK(near(v.score, whole));
	/* It grew by half of what this caller's did; it fell at once; this caller's did not grow at the looks. */
	for (unsigned i = 0; i < 20; i++) site[i] = 50000 + 800.0 * i;
	tm_leak_judge(&f, &v);
	CHECK(near(v.score, whole));
	for (unsigned i = 0; i < 20; i++) site[i] = (i < 10 ? 50000 : 18000) + 1600.0 * i;
	tm_leak_judge(&f, &v);
	CHECK(near(v.score, whole));
	for (unsigned i = 0; i < 20; i++) levels.bytes[i] = site[i] = 32000;
	tm_leak_judge(&f, &v);
	CHECK(near(v.score, whole) && !v.made_up_for);
	/* Too few looks. */
	for (unsigned i = 0; i < 20; i++) levels.bytes[i] = 1600.0 * i;
	levels.count = 5;
	tm_leak_judge(&f, &v);
	CHECK(near(v.score, whole));
}

/* 400 names of which the last quarter brings 8 are a table that fills up; 48 are a leak that slows down. */
static void tables_that_fill_up(void) {
	struct tm_leak_verdict v;
	struct tm_leak_facts f = even(400, 400);
	for (unsigned late = 1; late <= 6; late += 5) {
		for (unsigned i = 0; i < TM_LEAK_PARTS; i++) f.events.parts[i] = i < 24 ? (400 - 8 * late) / 24 : late;
		f.events.count = 24 * ((400 - 8 * late) / 24) + 8 * late;
		f.time = f.events;
		tm_leak_judge(&f, &v);
		if (late == 1) CHECK(v.score < 0.2 && strstr(v.reason, "growth slows down"));
		else CHECK(v.score >= TM_LEAK_SCORE_LIKELY);
	}
}

/* Four blocks over the whole run, others freed: a leak, but not if each of four threads has one; thread-local caches count once for each thread. */
static void threads(void) {
	struct tm_leak_verdict v;
	struct tm_leak_facts f = even(4, 40);
	tm_leak_judge(&f, &v);
	CHECK(near(v.score, 4.0 / 7));
	f.one_a_thread = true;
	tm_leak_judge(&f, &v);
	CHECK(v.score < 0.2 && strstr(v.reason, "one for each of so many threads, whose others were freed"));
	f = even(320, 4000);
	f.shares_threads = true;
	f.thread_parts = 28;
	tm_leak_judge(&f, &v);
	CHECK(v.score >= TM_LEAK_SCORE_LIKELY);
	f.thread_parts = 2;
	tm_leak_judge(&f, &v);
	CHECK(v.score < TM_LEAK_SCORE_LIKELY);
}

static bool matches(const char *pattern, const char *text) {
	return tm_suppression_pattern_matches(pattern, (struct tm_text){ text, strlen(text) });
}

static void patterns(void) {
	CHECK(matches("load", "upload_file") && matches("up*file", "upload_file") && matches("*", "x"));
	CHECK(matches("^up", "upload_file") && !matches("^load", "upload_file"));
	CHECK(matches("file$", "upload_file") && !matches("load$", "upload_file"));
	CHECK(matches("^upload_file$", "upload_file") && !matches("^upload$", "upload_file") && matches("^up*le$", "upload_file"));
	CHECK(!matches("le$", "le_le") && matches("^le*le$", "le_le") && matches("*le$", "x_le") && !matches("^le$", "le_le"));
	CHECK(!matches("$", "x") && !matches("^$", "x") && matches("*$", "x") && matches("^*", "x"));
	CHECK(!matches("a*b*c", "a-c-b") && matches("a*b*c", "xa-b-c") && !matches("load", "") &&
	      matches("libfoo.so", "/usr/lib/libfoo.so.1"));
}

static void lists(void) {
	static const char good[] = "# known\n\n  leak:libfoo  \r\nleak:^init_*\n", bad[] = "leak:a\nrace:b\n", empty[] = "leak:";
	struct tm_suppressions s = { 0 };
	struct tm_text none = { "", 0 };
	struct tm_suppression_frame foo = { none, none, { "/lib/libfoo.so", 14 } }, init = { { "init_x", 6 }, none, none },
				    other = { { "reinit_x", 8 }, none, none };
	char error[200];
	CHECK(tm_suppressions_add(&s, good, sizeof good - 1, error, sizeof error) == 0 && s.rules.count == 2);
	CHECK(tm_suppressions_match(&s, &foo) && tm_suppressions_match(&s, &init) && !tm_suppressions_match(&s, &other));
	CHECK(tm_suppressions_add(&s, bad, sizeof bad - 1, error, sizeof error) < 0 &&
	      strcmp(error, "line 2: 'race:b' is not leak:PATTERN") == 0);
	CHECK(tm_suppressions_add(&s, empty, sizeof empty - 1, error, sizeof error) < 0);
	tm_suppressions_release(&s);
	struct tm_suppression_frame stdio = { { "__GI__IO_file_doallocate", 24 }, none, none },
				    loader = { none, none, { "/lib64/ld-linux-x86-64.so.2", 27 } };
	CHECK(tm_suppressions_known(&stdio, false) && tm_suppressions_known(&loader, true) && !tm_suppressions_known(&loader, false));
}

static struct tm_text random_text(struct check_random *random, const char *letters, char *out, size_t least, size_t most) {
	size_t n = least + check_random_next(random) % (most - least + 1);
	for (size_t i = 0; i < n; i++) out[i] = letters[check_random_next(random) % strlen(letters)];
	out[n] = 0;
	return (struct tm_text){ out, n };
}

/* Random lists, added in two goes, match what one of their patterns does. */
static void lists_against_patterns(void) {
	struct check_random random = check_random_start("suppressions");
	unsigned matched = 0;
	for (int round = 0; round < 2000; round++) {
		struct tm_suppressions s = { 0 };
		char texts[40][16], error[200], name[16];
		int rules = 1 + (int)(check_random_next(&random) % 40);
		for (int half = 0; half < 2; half++) {
			char list[40 * 32] = "";
			for (int i = half ? rules / 2 : 0; i < (half ? rules : rules / 2); i++) {
				random_text(&random, round % 2 ? "abaabbaab*" : "ab*$^", texts[i], 1, round % 2 ? 9 : 5);
				strcat(strcat(strcat(list, "leak:"), texts[i]), "\n");
			}
			CHECK(tm_suppressions_add(&s, list, strlen(list), error, sizeof error) == 0);
		}
		for (int k = 0; k < 20; k++) {
			struct tm_text none = { "", 0 }, text = random_text(&random, "aab", name, 0, 12);
			const struct tm_suppression_frame frames[] = { { text, none, none }, { none, text, none }, { none, none, text } };
			bool expected = false;
			for (int i = 0; i < rules; i++) expected = expected || tm_suppression_pattern_matches(texts[i], text);
			CHECK(tm_suppressions_match(&s, &frames[k % 3]) == expected);
			matched += expected;
		}
		tm_suppressions_release(&s);
	}
	CHECK(matched > 4000 && matched < 36000);
}

int main(void) {
	theil_sen();
	mann_kendall();
	mann_kendall_of_any_levels();
	sites();
	queues();
	made_up_for();
	tables_that_fill_up();
	threads();
	patterns();
	lists();
	lists_against_patterns();
	return check_report("leak_score");
}
