/* leak_watch.c - looks at a process now and then; see leak_watch.h. */
#include "leak_watch.h"

#include "accounts.h"

#define FIRST_LOOK_STRIDE 8u
#define LOOKS_LEAST 12u /* however many entries they have */
#define MANY_LEVELS (TM_LEAK_ENTRIES / 16)

void tm_leak_watch_init(struct tm_leak_watch *w) {
	*w = (struct tm_leak_watch){ .next_tick = 1, .tick_stride = 1, .look_stride = FIRST_LOOK_STRIDE };
}

void tm_leak_watch_release(struct tm_leak_watch *w) {
	tm_array_release(&w->looks);
	tm_array_release(&w->levels);
	tm_array_release(&w->clock);
	tm_array_release(&w->steps);
}

void tm_leak_watch_end(struct tm_leak_watch *w) {
	tm_leak_watch_release(w);
	w->next_tick = UINT64_MAX;
}

/* Every second look goes; the latest one stays. */
static void thin_looks(struct tm_leak_watch *w) {
	size_t kept = 0, levels = 0;
	for (size_t i = 0; i < w->looks.count; i++) {
		struct tm_leak_look look = w->looks.items[i];
		if ((w->looks.count - 1 - i) % 2) continue;
		memmove(w->levels.items + levels, w->levels.items + look.first, look.count * sizeof w->levels.items[0]);
		look.first = levels;
		levels += look.count;
		w->looks.items[kept++] = look;
	}
	w->looks.count = kept;
	w->levels.count = levels;
	w->look_stride *= 2;
}

/* Each site's level is written, and kept if it is one: behind the last one there is room for one more. */
static struct tm_leak_level *look_at_sites(struct tm_leak_level *out, const struct tm_sites *sites) {
	for (size_t i = 0; i < sites->levels.count; i++) {
		*out = (struct tm_leak_level){ (uint32_t)i, sites->levels.items[i] };
		out += sites->levels.items[i] != 0;
	}
	return out;
}

/* Where there are many, room for all that there may be: memory is taken where it is used, and what stays where it is keeps its huge pages. */
static bool make_room(struct tm_leak_watch *w, size_t more) {
	size_t all = w->levels.count + more, most = TM_LEAK_ENTRIES + more;
	if (all <= w->levels.capacity) return true;
	return (all >= MANY_LEVELS && all < most && tm_array_reserve(&w->levels, most)) || tm_array_reserve(&w->levels, all);
}

/* Behind those of the other looks. There is room as if all sites were live: what they do not need is not touched. */
static bool take_levels(struct tm_ledger *l) {
	struct tm_leak_watch *w = &l->watch;
	size_t room = 1;
	for (size_t i = 0; i < l->accounts.count; i++) room += 1 + l->accounts.items[i]->sites.levels.count;
	if (!make_room(w, room)) return false;
	struct tm_leak_level *out = w->levels.items + w->levels.count;
	for (size_t i = 0; i < l->accounts.count; i++) {
		*out++ = (struct tm_leak_level){ TM_LEAK_ACCOUNT, (uint32_t)i };
		out = look_at_sites(out, &l->accounts.items[i]->sites);
	}
	w->levels.count = (size_t)(out - w->levels.items);
	return true;
}

/* Looks, where it is time to. */
static bool look_around(struct tm_ledger *l, uint64_t ns) {
	struct tm_leak_watch *w = &l->watch;
	if (++w->looks_passed < w->look_stride) return true;
	w->looks_passed = 0;
	size_t first = w->levels.count;
	if (!take_levels(l)) return false;
	struct tm_leak_look *look = tm_array_push(&w->looks);
	if (!look) {
		w->levels.count = first;
		return false;
	}
	*look = (struct tm_leak_look){ .ns = ns, .first = first, .count = w->levels.count - first };
	while (w->looks.count >= TM_LEAK_LOOKS || (w->levels.count > TM_LEAK_ENTRIES && w->looks.count > LOOKS_LEAST)) thin_looks(w);
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
		w->looks.count = w->levels.count = 0;
		w->look_stride = 1;
		w->looks_passed = 0;
	}
	uint64_t *step = tm_array_push(&w->steps);
	if (!step) return false;
	*step = ns;
	return look_around(l, ns);
}
