/* stats.c - answers what the program asks: see stats.h. */
#include "stats.h"

#include "collector.h"
#include "drain.h"
#include "patience.h"

#include <string.h>

#define SLACK_NS 2u /* two ways from ticks to nanoseconds may round apart by one */

struct tm_heap_named tm_heap_named(const struct tm_collector *c, const struct tm_process *p, const char *name, size_t n) {
	static const struct {
		const char *name;
		enum tm_tally_default which;
	} defaults[] = { { "malloc", TM_TALLY_MALLOC }, { "mmap", TM_TALLY_MMAP }, { "mmap-file", TM_TALLY_MMAP_FILE } };
	for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++)
		if (strlen(defaults[i].name) == n && !memcmp(defaults[i].name, name, n)) return (struct tm_heap_named){ true, defaults[i].which, 0 };
	for (size_t i = 0; i < p->own.heap_count; i++) {
		const struct tm_own_heap *heap = &p->own.heaps[i];
		const struct tm_text_row *row = heap->name ? &c->strings.rows[heap->name - 1] : NULL;
		if (row && row->size == n && !memcmp(row->text, name, n)) return (struct tm_heap_named){ true, TM_TALLY_OWN, heap->id };
	}
	return (struct tm_heap_named){ false, TM_TALLY_OWN, 0 };
}

void tm_stats_asked(struct tm_collector *c, struct tm_process *p, uint64_t slot, uint64_t ticks, const char *name, size_t n) {
	if (slot >= TM_STATS_SLOTS) return;
	struct tm_question *q = &c->questions[slot];
	q->process = p;
	q->ticks = ticks;
	q->name_bytes = n < sizeof q->name ? n : sizeof q->name;
	memcpy(q->name, name, q->name_bytes);
}

/* Nothing of this process' events is missing: as far as we know, and as its rings say. */
static bool is_whole(struct tm_collector *c, const struct tm_process *p) {
	struct tm_tally_process t = tm_tally_of(c->tally, p->id);
	if (t.approximate || t.was_stopped || c->lost_events || atomic_load(&c->session.shm->unringed_events)) return false;
	uint64_t now_ns = tm_monotonic_ns();
	for (uint32_t i = 0; i < c->session.ring_count; i++) {
		const struct tm_ring_view *r = &c->rings[i];
		if (!r->claimed || r->process != p) continue;
		if (tm_stands_still(r, now_ns)) return false;
		const struct tm_ring *ring = tm_session_ring(&c->session, i);
		if (atomic_load(&ring->lost_events) || atomic_load(&ring->nested_lost)) return false;
	}
	return true;
}

static void fill_in(struct tm_collector *c, struct tm_stats_slot *slot, const struct tm_process *p, struct tm_heap_named heap) {
	struct tm_tally_heap h = tm_tally_heap_of(c->tally, p->id, heap.which, heap.id);
	slot->live_bytes = h.live_bytes;
	slot->live_count = h.live_count;
	slot->peak_bytes = h.peak_bytes;
	slot->peak_since_reset_bytes = h.peak_since_reset_bytes;
	slot->allocations = h.allocations;
	slot->frees = h.frees;
	bool is_sampled = c->options.sample_bytes && heap.which == TM_TALLY_MALLOC;
	slot->exact = !is_sampled && is_whole(c, p);
}

static void answer(struct tm_collector *c, struct tm_question *q, struct tm_stats_slot *slot) {
	struct tm_process *p = q->process;
	struct tm_heap_named heap = tm_heap_named(c, p, q->name, q->name_bytes);
	uint32_t asked = TM_STATS_ASKED, given_up = TM_STATS_GIVEN_UP;
	bool known = heap.known && p->id && !tm_tally_of(c->tally, p->id).given_up;
	q->process = NULL;
	if (slot->process != p->number) return;
	if (known) fill_in(c, slot, p, heap);
	if (atomic_compare_exchange_strong(&slot->state, &asked, known ? TM_STATS_ANSWERED : TM_STATS_UNKNOWN)) tm_futex_wake(&slot->state);
	else atomic_compare_exchange_strong(&slot->state, &given_up, TM_STATS_FREE);
}

/* The oldest question all of whose events have been read; -1: none. */
static int next_question(const struct tm_collector *c) {
	int next = -1;
	for (unsigned i = 0; i < TM_STATS_SLOTS; i++) {
		const struct tm_question *q = &c->questions[i];
		if (!q->process || (q->ticks >= c->patient_ticks && !c->finishing)) continue;
		if (next < 0 || q->ticks < c->questions[next].ticks) next = (int)i;
	}
	return next;
}

void tm_stats_answer(struct tm_collector *c) {
	int i;
	while ((i = next_question(c)) >= 0) {
		tm_tally_advance(c->tally, tm_time_map_ns(&c->timebase.map, c->questions[i].ticks) + SLACK_NS);
		answer(c, &c->questions[i], &c->session.shm->stats[i]);
	}
}

bool tm_stats_pending(const struct tm_collector *c) {
	for (unsigned i = 0; i < TM_STATS_SLOTS; i++)
		if (c->questions[i].process) return true;
	return false;
}

void tm_stats_housekeeping(struct tm_collector *c) {
	for (unsigned i = 0; i < TM_STATS_SLOTS; i++) {
		struct tm_stats_slot *slot = &c->session.shm->stats[i];
		uint32_t state = atomic_load(&slot->state);
		if (state == TM_STATS_FREE || c->questions[i].process) continue;
		const struct tm_process *p = tm_id_map_get(&c->processes.by_number, slot->process);
		if (state == TM_STATS_GIVEN_UP || (p && p->gone)) atomic_compare_exchange_strong(&slot->state, &state, TM_STATS_FREE);
	}
}
