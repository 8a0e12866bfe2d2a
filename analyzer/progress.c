/* progress.c - one line on a terminal; see progress.h. */
#include "progress.h"

#include "../schema/units.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define FIRST_NS 1000000000u
#define EVERY_NS 250000000u

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void tm_progress_start(struct tm_progress *p, const char *what) {
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
}
