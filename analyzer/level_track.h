/* level_track.h - the most a level reached since any of several instants, however many of them are open at once.
 *
 * Flow:     scope_totals.c, scope_steps.c -> here
 * Idea:     scopes and steps of one process open one after the other: each opening begins an epoch. The track of a heap remembers, for each
 *           epoch in which the heap changed, how it stood before (`opens`), and of each highest point behind which nothing as high came
 *           (`peaks`, falling). The first entry not older than an opening answers for it, found by bisection. An event costs a
 *           comparison or two; nested and overlapping scopes never disturb each other.
 * Memory:   entries that no open scope asks for are dropped, so it follows the number of scopes that are open.
 * Fails:    out of memory is remembered in `failed`.
 */
#ifndef TIDEMARK_ANALYZER_LEVEL_TRACK_H
#define TIDEMARK_ANALYZER_LEVEL_TRACK_H

#include "../schema/array.h"

#include <stdint.h>

struct tm_level_point {
	uint64_t ns, live_bytes, live_count;
	uint64_t made; /* blocks that ever were: those that are gone = made - live_count */
};

struct tm_level_entry {
	uint64_t epoch;
	struct tm_level_point point;
};

typedef TM_ARRAY(struct tm_level_entry) tm_level_entries;

struct tm_level_track {
	tm_level_entries opens, peaks;
	uint64_t epoch; /* of the last change */
	bool failed;
};

void tm_level_track_release(struct tm_level_track *t);

/* The level is about to change from `before` to `after` in this epoch. Times must not decrease. */
void tm_level_track_change(struct tm_level_track *t, uint64_t epoch, const struct tm_level_point *before,
			   const struct tm_level_point *after);

/* How it stood when the epoch began; now: how it stands. */
struct tm_level_point tm_level_track_at(const struct tm_level_track *t, uint64_t epoch, const struct tm_level_point *now);
/* The first of the highest points since the epoch began, its first instant (at ns) included. */
struct tm_level_point tm_level_track_peak(const struct tm_level_track *t, uint64_t epoch, uint64_t ns, const struct tm_level_point *now);

/* Are there so many entries that dropping some is worth while, with so many epochs open? */
static inline bool tm_level_track_is_long(const struct tm_level_track *t, size_t open_count) {
	return t->opens.count + t->peaks.count > 4 * open_count + 256;
}
/* Drops what none of these epochs (in rising order) asks for. */
void tm_level_track_prune(struct tm_level_track *t, const uint64_t *epochs, size_t count);

#endif
