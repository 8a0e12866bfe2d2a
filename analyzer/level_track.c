/* level_track.c - the most a level reached since any of several instants; see level_track.h. */
#include "level_track.h"

void tm_level_track_release(struct tm_level_track *t) {
	tm_array_release(&t->opens);
	tm_array_release(&t->peaks);
}

static void push(struct tm_level_track *t, tm_level_entries *list, uint64_t epoch, const struct tm_level_point *point) {
	struct tm_level_entry *e = tm_array_push(list);
	if (e) *e = (struct tm_level_entry){ epoch, *point };
	else t->failed = true;
}

void tm_level_track_change(struct tm_level_track *t, uint64_t epoch, const struct tm_level_point *before,
			   const struct tm_level_point *after) {
	if (t->epoch != epoch) {
		t->epoch = epoch;
		push(t, &t->opens, epoch, before);
	}
	if (after->live_bytes <= before->live_bytes) return;
	tm_level_entries *peaks = &t->peaks;
	while (peaks->count && peaks->items[peaks->count - 1].point.live_bytes < after->live_bytes) peaks->count--;
	if (!peaks->count || peaks->items[peaks->count - 1].epoch != epoch) push(t, peaks, epoch, after);
}

/* Index of the first entry of this epoch or a later one. */
static size_t first_since(const tm_level_entries *list, uint64_t epoch) {
	size_t low = 0, high = list->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (list->items[middle].epoch < epoch) low = middle + 1;
		else high = middle;
	}
	return low;
}

struct tm_level_point tm_level_track_at(const struct tm_level_track *t, uint64_t epoch, const struct tm_level_point *now) {
	size_t i = first_since(&t->opens, epoch);
	return i < t->opens.count ? t->opens.items[i].point : *now;
}

struct tm_level_point tm_level_track_peak(const struct tm_level_track *t, uint64_t epoch, uint64_t ns, const struct tm_level_point *now) {
	struct tm_level_point best = tm_level_track_at(t, epoch, now);
	best.ns = ns;
	size_t i = first_since(&t->peaks, epoch);
	if (i < t->peaks.count && t->peaks.items[i].point.live_bytes > best.live_bytes) best = t->peaks.items[i].point;
	return best;
}

static void prune(tm_level_entries *list, const uint64_t *epochs, size_t count) {
	size_t kept = 0, next = 0;
	for (size_t i = 0; i < list->count; i++) {
		bool wanted = next < count && epochs[next] <= list->items[i].epoch;
		while (next < count && epochs[next] <= list->items[i].epoch) next++;
		if (wanted) list->items[kept++] = list->items[i];
	}
	list->count = kept;
}

void tm_level_track_prune(struct tm_level_track *t, const uint64_t *epochs, size_t count) {
	prune(&t->opens, epochs, count);
	prune(&t->peaks, epochs, count);
}
