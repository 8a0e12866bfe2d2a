/* timeline.h - a level over time, kept small: equal buckets, of each the lowest, the highest and the last value with their true times.
 *
 * Flow:     accounts.c -> here -> table timeline
 * Owns:     at most TM_TIMELINE_BUCKETS buckets. When time outgrows them they double in width, two becoming one.
 * Fails:    out of memory is remembered in `failed`; later values are then ignored.
 */
#ifndef TIDEMARK_ANALYZER_TIMELINE_H
#define TIDEMARK_ANALYZER_TIMELINE_H

#include "../schema/array.h"

#include <stdint.h>

#define TM_TIMELINE_BUCKETS 2048u

struct tm_point {
	uint64_t ns, bytes, count;
};
/* A level that changes again at its own time was none: what takes the place of a mapping releases it first, and one munmap ends several. So `low`
 * does not count `last` before time has gone on, and `high` (ns UINT64_MAX: none yet) does at once only where the level rises. */
struct tm_bucket {
	uint64_t index;
	struct tm_point low, high, last;
};

struct tm_timeline {
	uint64_t start_ns, width_ns, bucket_end_ns; /* bucket_end_ns: of the last bucket; no later than known_ns until that has passed */
	uint64_t known_ns;                          /* buckets begin no earlier */
	struct tm_point before;                     /* the value at known_ns, which its bucket need not keep */
	bool failed;
	TM_ARRAY(struct tm_bucket) buckets;
};

/* known_ns: what the level was before is not known, but for what is left of it then; start_ns or later. */
void tm_timeline_init(struct tm_timeline *t, uint64_t start_ns, uint64_t known_ns);
void tm_timeline_release(struct tm_timeline *t);
void tm_timeline_open_bucket(struct tm_timeline *t, struct tm_point p);

/* Times must not decrease. */
static inline void tm_timeline_put(struct tm_timeline *t, uint64_t ns, uint64_t bytes, uint64_t count) {
	struct tm_point p = { ns, bytes, count };
	if (ns >= t->bucket_end_ns) {
		tm_timeline_open_bucket(t, p);
		return;
	}
	struct tm_bucket *b = &t->buckets.items[t->buckets.count - 1];
	if (b->last.ns < ns) {
		if (b->last.bytes < b->low.bytes) b->low = b->last;
		if (b->last.bytes > b->high.bytes) b->high = b->last;
	}
	if (bytes == b->high.bytes ? ns == b->high.ns : bytes > b->last.bytes && bytes > b->high.bytes) b->high = p;
	b->last = p;
}

/* The points to show, oldest first, without repetitions; at most 3 a bucket. Returns how many were written
 * to out (3 * buckets.count will do). */
size_t tm_timeline_points(const struct tm_timeline *t, struct tm_point *out);

#endif
