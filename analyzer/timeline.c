/* timeline.c - a level over time, kept small; see timeline.h. */
#include "timeline.h"

#define FIRST_WIDTH_NS 1024u

void tm_timeline_init(struct tm_timeline *t, uint64_t start_ns, uint64_t known_ns) {
	if (known_ns < start_ns) known_ns = start_ns;
	*t = (struct tm_timeline){ .start_ns = start_ns, .width_ns = FIRST_WIDTH_NS, .known_ns = known_ns, .before = { .ns = known_ns } };
}

void tm_timeline_release(struct tm_timeline *t) {
	tm_array_release(&t->buckets);
}

/* Of a bucket that time has left. */
static struct tm_point lowest(const struct tm_bucket *b) {
	return b->last.bytes < b->low.bytes ? b->last : b->low;
}

static struct tm_point highest(const struct tm_bucket *b) {
	return b->high.ns == UINT64_MAX || b->last.bytes > b->high.bytes ? b->last : b->high;
}

/* b follows a in time. */
static struct tm_bucket joined(const struct tm_bucket *a, const struct tm_bucket *b) {
	struct tm_bucket both = *a;
	both.low = lowest(a);
	both.high = highest(a);
	if (b->low.bytes < both.low.bytes) both.low = b->low;
	if (b->high.bytes > both.high.bytes) both.high = b->high;
	both.last = b->last;
	return both;
}

static void double_width(struct tm_timeline *t) {
	size_t kept = 0;
	t->width_ns *= 2;
	for (size_t i = 0; i < t->buckets.count; i++) {
		struct tm_bucket b = t->buckets.items[i];
		b.index /= 2;
		if (kept && t->buckets.items[kept - 1].index == b.index) {
			t->buckets.items[kept - 1] = joined(&t->buckets.items[kept - 1], &b);
			t->buckets.items[kept - 1].index = b.index;
		} else {
			t->buckets.items[kept++] = b;
		}
	}
	t->buckets.count = kept;
}

static void open_bucket(struct tm_timeline *t, struct tm_point p) {
	uint64_t since_start = p.ns > t->start_ns ? p.ns - t->start_ns : 0;
	while (since_start / t->width_ns >= TM_TIMELINE_BUCKETS) double_width(t);
	uint64_t index = since_start / t->width_ns;
	struct tm_bucket *last = t->buckets.count ? &t->buckets.items[t->buckets.count - 1] : NULL;
	bool rises = !last || p.bytes > last->last.bytes;
	struct tm_bucket fresh = { index, { .bytes = UINT64_MAX }, rises ? p : (struct tm_point){ .ns = UINT64_MAX }, p };
	if (last && last->index == index) {
		*last = joined(last, &fresh);
	} else {
		struct tm_bucket *b = t->failed ? NULL : tm_array_push(&t->buckets);
		if (!b) {
			t->failed = true;
			t->bucket_end_ns = 0;
			return;
		}
		*b = fresh;
	}
	t->bucket_end_ns = t->start_ns + (index + 1) * t->width_ns;
}

void tm_timeline_open_bucket(struct tm_timeline *t, struct tm_point p) {
	if (p.ns <= t->known_ns) {
		t->before.bytes = p.bytes;
		t->before.count = p.count;
	}
	if (p.ns < t->known_ns && t->known_ns > t->start_ns) return;
	if (!t->buckets.count && t->known_ns > t->start_ns && p.ns > t->known_ns) open_bucket(t, t->before);
	if (t->buckets.count) t->bucket_end_ns = t->start_ns + (t->buckets.items[t->buckets.count - 1].index + 1) * t->width_ns;
	if (p.ns < t->bucket_end_ns) tm_timeline_put(t, p.ns, p.bytes, p.count);
	else open_bucket(t, p);
	if (p.ns <= t->known_ns && !t->failed) t->bucket_end_ns = p.ns; /* what else comes at this time is to come by here */
}

size_t tm_timeline_points(const struct tm_timeline *t, struct tm_point *out) {
	size_t n = 0;
	for (size_t i = 0; i < t->buckets.count; i++) {
		const struct tm_bucket *b = &t->buckets.items[i];
		const struct tm_point low = lowest(b), high = highest(b), *first = low.ns <= high.ns ? &low : &high,
				      *second = first == &low ? &high : &low;
		const struct tm_point *three[] = { first, second, &b->last };
		for (int k = 0; k < 3; k++) {
			if (!n || out[n - 1].ns != three[k]->ns || out[n - 1].bytes != three[k]->bytes ||
			    out[n - 1].count != three[k]->count)
				out[n++] = *three[k];
		}
	}
	return n;
}
