/* progress.c - one line on a terminal; see progress.h. */
#include "progress.h"

#include "../schema/units.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define FIRST_NS 1000000000u
#define EVERY_NS 250000000u
#define STEPS_BETWEEN_LOOKS 100000 /* of SQLite's machine, which takes some ns for each */

static struct {
	bool held, shown;
	uint64_t since_ns, next_ns; /* 0: nothing is asked, or it has just begun */
} asked;

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void tm_progress_start(struct tm_progress *p, const char *what) {
	tm_progress_wipe();
	asked.held = true;
	*p = (struct tm_progress){ .enabled = isatty(STDERR_FILENO), .what = what, .start_ns = now() };
	p->next_ns = p->start_ns + FIRST_NS;
}

void tm_progress_update(struct tm_progress *p, uint64_t done, uint64_t total, uint64_t events) {
	uint64_t ns = p->enabled ? now() : 0;
	if (!p->enabled || ns < p->next_ns || !done) return;
	double seconds = (double)(ns - p->start_ns) / 1e9, left = seconds * (double)(total - done) / (double)done;
	char remaining[TM_UNIT_TEXT_MAX];
	tm_format_time((uint64_t)(left * 1e9), remaining);
	fprintf(stderr, "\r\033[Ktidemark: %s: %u %%, %.1f M events/s, %s left", p->what, (unsigned)(100 * done / total),
		(double)events / seconds / 1e6, remaining);
	p->shown = true;
	p->next_ns = ns + EVERY_NS;
}

void tm_progress_end(struct tm_progress *p) {
	if (p->shown) fputs("\r\033[K", stderr);
	p->shown = false;
	asked.held = false;
}

static int look(void *unused) {
	uint64_t ns = asked.held ? 0 : now();
	(void)unused;
	if (asked.held) return 0;
	if (!asked.since_ns) {
		asked.since_ns = ns;
		asked.next_ns = ns + FIRST_NS;
	}
	if (ns < asked.next_ns) return 0;
	fprintf(stderr, "\r\033[Ktidemark: asking the database: %u s", (unsigned)((ns - asked.since_ns) / 1000000000u));
	asked.shown = true;
	asked.next_ns = ns + EVERY_NS;
	return 0; /* go on */
}

void tm_progress_of_queries(sqlite3 *db) {
	if (isatty(STDERR_FILENO)) sqlite3_progress_handler(db, STEPS_BETWEEN_LOOKS, look, NULL);
}

void tm_progress_wipe(void) {
	if (asked.shown) fputs("\r\033[K", stderr);
	asked.shown = false;
	asked.since_ns = 0;
}
