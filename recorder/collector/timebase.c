/* timebase.c - the clock of a recording and its knots: see timebase.h. */
#include "timebase.h"

#include "../shm.h"
#include "kernel_file.h"

#include <stdbool.h>
#include <string.h>
#include <time.h>

uint64_t tm_monotonic_ns(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>

static uint64_t read_tsc(void) {
	return __rdtsc();
}

/* The counter must tick at one rate in every power state, and the kernel must not have found it unsound. Where it is the kernel's own clock that is so;
 * the processor is asked only elsewhere, since in a virtual machine that takes longer than all the rest here. */
static bool tsc_is_invariant(void) {
	unsigned a, b, c, d = 0;
	char source[64];
	tm_kernel_file("/sys/devices/system/clocksource/clocksource0/current_clocksource", source, sizeof source);
	if (!strcmp(source, "tsc\n")) return true;
	if (!strncmp(source, "hpet", 4) || !strncmp(source, "acpi_pm", 7) || !strncmp(source, "jiffies", 7)) return false;
	return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 1u << 8);
}
#else
static uint64_t read_tsc(void) {
	return tm_monotonic_ns();
}

static bool tsc_is_invariant(void) {
	return false;
}
#endif

uint64_t tm_timebase_ticks(const struct tm_timebase *t) {
	return t->clock == TM_CLOCK_TSC ? read_tsc() : tm_monotonic_ns();
}

#define KNOT_INTERVAL_NS 5000000u
#define RETURN_NS 50000000u /* in which a line comes back to the clock */

struct pair {
	uint64_t ticks, ns;
};

/* Read at one moment: the narrowest of a few tries, as we may be interrupted between the two readings. */
static struct pair read_pair(const struct tm_timebase *t) {
	struct pair best = { 0, 0 };
	uint64_t best_width = UINT64_MAX;
	for (int i = 0; i < 4; i++) {
		uint64_t before = tm_timebase_ticks(t), ns = tm_monotonic_ns(), after = tm_timebase_ticks(t);
		if (after - before >= best_width) continue;
		best_width = after - before;
		best = (struct pair){ before + best_width / 2, ns };
		if (t->clock == TM_CLOCK_MONOTONIC) best.ticks = ns;
	}
	return best;
}

void tm_timebase_start(struct tm_timebase *t) {
	struct timespec wall;
	memset(t, 0, sizeof *t);
	t->clock = tsc_is_invariant() ? TM_CLOCK_TSC : TM_CLOCK_MONOTONIC;
	struct pair now = read_pair(t);
	clock_gettime(CLOCK_REALTIME, &wall);
	t->start_unix_ns = (uint64_t)wall.tv_sec * 1000000000u + (uint64_t)wall.tv_nsec;
	t->start_monotonic_ns = now.ns;
	t->map.knots[0] = (struct tm_knot){ now.ticks, 0, 0 };
	t->map.count = 1;
	t->map.start_ticks = t->map.end_ticks = now.ticks;
}

uint64_t tm_timebase_ticks_before_now(const struct tm_timebase *t, uint64_t span_ns) {
	uint64_t ticks = tm_timebase_ticks(t), ns = tm_monotonic_ns() - t->start_monotonic_ns;
	if (ns <= span_ns || ticks <= t->map.start_ticks) return t->map.start_ticks;
	uint64_t span = (uint64_t)((unsigned __int128)span_ns * (ticks - t->map.start_ticks) / ns);
	return ticks - span;
}

static uint64_t ratio(uint64_t ns, uint64_t ticks) {
	return (uint64_t)(((unsigned __int128)ns << TM_RATE_BITS) / ticks);
}

/* The slope since the start, less or more by what the line is off, at most by half. */
static uint64_t rate_towards(const struct tm_timebase *t, struct pair now, uint64_t line_ns) {
	uint64_t rate = ratio(now.ns, now.ticks - t->map.start_ticks);
	uint64_t off_ns = now.ns > line_ns ? now.ns - line_ns : line_ns - now.ns;
	uint64_t change = off_ns < RETURN_NS / 2 ? rate / RETURN_NS * off_ns : rate / 2;
	return now.ns > line_ns ? rate + change : rate - change;
}

void tm_timebase_add_knot(struct tm_timebase *t) {
	struct tm_time_map *map = &t->map;
	struct tm_knot *last = &map->knots[map->count - 1];
	struct pair now = read_pair(t);
	now.ns -= t->start_monotonic_ns;
	if (now.ticks <= last->ticks) return;
	map->end_ticks = now.ticks;
	if (!last->rate) { /* the first time */
		last->rate = ratio(now.ns, now.ticks - last->ticks);
		return;
	}
	uint64_t ns = tm_knot_ns(last, now.ticks), rate = rate_towards(t, now, ns);
	if (map->count == TM_KNOTS_MAX) {
		memmove(map->knots, map->knots + 1, (TM_KNOTS_MAX - 1) * sizeof map->knots[0]);
		map->count--;
	}
	map->knots[map->count++] = (struct tm_knot){ now.ticks, ns, rate };
}

void tm_timebase_follow(struct tm_timebase *t) {
	const struct tm_knot *last = &t->map.knots[t->map.count - 1];
	tm_timebase_extend(t);
	if (!last->rate || tm_knot_ns(last, t->map.end_ticks) - last->ns >= KNOT_INTERVAL_NS) tm_timebase_add_knot(t);
}

void tm_timebase_extend(struct tm_timebase *t) {
	uint64_t now = tm_timebase_ticks(t);
	if (now > t->map.end_ticks) t->map.end_ticks = now;
}
