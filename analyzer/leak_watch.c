/* leak_watch.c - looks at a process now and then; see leak_watch.h. */
#include "leak_watch.h"

#include "accounts.h"

#define FIRST_LOOK_STRIDE 8u
#define LOOKS_LEAST 12u /* however many entries they have */

void tm_leak_watch_init(struct tm_leak_watch *w) {
	*w = (struct tm_leak_watch){ .next_tick = 1, .tick_stride = 1, .look_stride = FIRST_LOOK_STRIDE };
}

static void drop_look(struct tm_leak_watch *w, size_t i) {
	w->entries -= w->looks.items[i].count;
	free(w->looks.items[i].levels);
}

void tm_leak_watch_release(struct tm_leak_watch *w) {
	for (size_t i = 0; i < w->looks.count; i++) drop_look(w, i);
	tm_array_release(&w->looks);
	tm_array_release(&w->clock);
	tm_array_release(&w->steps);
}

void tm_leak_watch_end(struct tm_leak_watch *w) {
	tm_leak_watch_release(w);
	w->next_tick = UINT64_MAX;
}

/* Every second look goes; the latest one stays. */
static void thin_looks(struct tm_leak_watch *w) {
	size_t kept = 0;
	for (size_t i = 0; i < w->looks.count; i++) {
		if ((w->looks.count - 1 - i) % 2) drop_look(w, i);
		else w->looks.items[kept++] = w->looks.items[i];
	}
	w->looks.count = kept;
	w->look_stride *= 2;
}

static size_t count_levels(const struct tm_sites *sites) {
	size_t n = 0;
	for (size_t i = 0; i < sites->levels.count; i++) n += sites->levels.items[i] != 0;
	return n;
}

/* Each site's level is written, and kept if it is one: behind the last one there is room for one more. */
static void look_at_sites(struct tm_leak_look *look, const struct tm_sites *sites) {
	struct tm_leak_level *out = look->levels + look->count;
	for (size_t i = 0; i < sites->levels.count; i++) {
		*out = (struct tm_leak_level){ (uint32_t)i, sites->levels.items[i] };
		out += sites->levels.items[i] != 0;
	}
	look->count = (size_t)(out - look->levels);
}

/* Counted first: growing would copy it again and again. */
static bool take_look(const struct tm_ledger *l, struct tm_leak_look *look) {
	size_t room = 1;
	for (size_t i = 0; i < l->accounts.count; i++) room += 1 + count_levels(&l->accounts.items[i]->sites);
	look->levels = malloc(room * sizeof *look->levels);
	if (!look->levels) return false;
	for (size_t i = 0; i < l->accounts.count; i++) {
		look->levels[look->count++] = (struct tm_leak_level){ TM_LEAK_ACCOUNT, (uint32_t)i };
		look_at_sites(look, &l->accounts.items[i]->sites);
	}
	return true;
}

/* Looks, where it is time to. */
static bool look_around(struct tm_ledger *l, uint64_t ns) {
	struct tm_leak_watch *w = &l->watch;
	if (++w->looks_passed < w->look_stride) return true;
	w->looks_passed = 0;
	struct tm_leak_look look = { .ns = ns };
	if (!take_look(l, &look)) return false;
	struct tm_leak_look *kept = tm_array_push(&w->looks);
	if (!kept) {
		free(look.levels);
		return false;
	}
	*kept = look;
	w->entries += look.count;
	while (w->looks.count >= TM_LEAK_LOOKS || (w->entries > TM_LEAK_ENTRIES && w->looks.count > LOOKS_LEAST)) thin_looks(w);
	return true;
}

static void thin_clock(struct tm_leak_watch *w) {
	for (size_t i = 0; 2 * i < w->clock.count; i++) w->clock.items[i] = w->clock.items[2 * i];
	w->clock.count = (w->clock.count + 1) / 2;
	w->tick_stride *= 2;
}

/* Looks are counted in ticks of the clock, and so become half as frequent with it. */
bool tm_leak_watch_tick(struct tm_ledger *l, uint64_t ns) {
	struct tm_leak_watch *w = &l->watch;
	uint64_t *tick = tm_array_push(&w->clock);
	bool done = tick != NULL;
	if (tick) *tick = ns;
	if (done && !w->steps.count) done = look_around(l, ns);
	if (w->clock.count >= TM_LEAK_TICKS) {
		thin_clock(w);
		if (!w->steps.count) {
			w->look_stride = (w->look_stride + 1) / 2;
			w->looks_passed /= 2;
		}
	}
	w->next_tick += w->tick_stride;
	return done;
}

/* What was seen before the first step is its warm-up, and goes. */
bool tm_leak_watch_step(struct tm_ledger *l, uint64_t ns) {
	struct tm_leak_watch *w = &l->watch;
	if (w->next_tick == UINT64_MAX) return true;
	if (!w->steps.count) {
		for (size_t i = 0; i < w->looks.count; i++) drop_look(w, i);
		w->looks.count = 0;
		w->look_stride = 1;
		w->looks_passed = 0;
	}
	uint64_t *step = tm_array_push(&w->steps);
	if (!step) return false;
	*step = ns;
	return look_around(l, ns);
}
