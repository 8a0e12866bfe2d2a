/* tally.c - replays groups of events to know the peak when the program ends: see tally.h. */
#include "tally.h"

#include "memory.h"

#include <stdlib.h>
#include <string.h>

struct entry {
	uint64_t addr, value;
}; /* addr 0: empty */

struct table { /* open addressing, at most two thirds full */
	struct entry *entries;
	size_t count, mask;
};

struct range {
	uint64_t low, high;
};

struct process {
	struct tm_tally_process result;
	struct table blocks;  /* address -> bytes */
	struct table early;   /* address -> time of a free whose allocation has not come */
	struct range *ranges; /* mapped, sorted, disjoint */
	size_t range_count, range_capacity;
	uint64_t last_ns, last_early_ns;
};

struct tm_tally {
	struct process *processes; /* by process id */
	size_t process_count, process_capacity;
	uint64_t allocations, frees;
	double sample_bytes; /* 0: every allocation */
	struct cursor {
		const struct tm_segment_buffer *segment;
		size_t at;
	} * heap;
	size_t heap_count, heap_capacity;
};

static size_t slot_of(const struct table *t, uint64_t addr) {
	return (size_t)((addr >> 4) * 0x9E3779B97F4A7C15u >> 20) & t->mask;
}

static void table_grow(struct table *t) {
	struct table grown = { .mask = t->mask ? t->mask * 2 + 1 : 1023, .count = t->count };
	grown.entries = tm_memory_new(grown.mask + 1, sizeof grown.entries[0]);
	for (size_t i = 0; t->entries && i <= t->mask; i++) {
		if (!t->entries[i].addr) continue;
		size_t slot = slot_of(&grown, t->entries[i].addr);
		while (grown.entries[slot].addr) slot = (slot + 1) & grown.mask;
		grown.entries[slot] = t->entries[i];
	}
	free(t->entries);
	*t = grown;
}

/* The entry of addr, or the empty one where it belongs. */
static struct entry *table_find(struct table *t, uint64_t addr) {
	if (t->count * 3 >= t->mask * 2) table_grow(t);
	size_t slot = slot_of(t, addr);
	while (t->entries[slot].addr && t->entries[slot].addr != addr) slot = (slot + 1) & t->mask;
	return &t->entries[slot];
}

/* Moves later entries of the same run forward, so that no gap hides them. */
static void table_remove(struct table *t, struct entry *e) {
	size_t gap = (size_t)(e - t->entries), at = gap;
	t->count--;
	for (;;) {
		at = (at + 1) & t->mask;
		if (!t->entries[at].addr) break;
		size_t home = slot_of(t, t->entries[at].addr);
		if (((at - home) & t->mask) < ((at - gap) & t->mask)) continue;
		t->entries[gap] = t->entries[at];
		gap = at;
	}
	t->entries[gap].addr = 0;
}

static void table_clear(struct table *t) {
	if (!t->count) return;
	memset(t->entries, 0, (t->mask + 1) * sizeof t->entries[0]);
	t->count = 0;
}

/* exp(-x) as (1 - x/2^20)^(2^20): good to six digits, and no mathematics library for one line of a summary. */
static double exp_minus(double x) {
	double r = 1.0 - x / 1048576.0;
	if (x > 40.0) return 0.0;
	for (int i = 0; i < 20; i++) r *= r;
	return r;
}

/* A sampled block stands for all those of its size that were not drawn. */
static uint64_t scaled(const struct tm_tally *t, uint64_t size) {
	if (t->sample_bytes <= 0 || size == 0) return size;
	return (uint64_t)((double)size / (1.0 - exp_minus((double)size / t->sample_bytes)));
}

static void raise_peak(struct process *p, uint64_t ns) {
	if (p->result.live_bytes <= p->result.peak_bytes) return;
	p->result.peak_bytes = p->result.live_bytes;
	p->result.peak_ns = ns;
}

static void block_freed(struct process *p, uint64_t addr, uint64_t ns) {
	struct entry *e = table_find(&p->blocks, addr);
	if (e->addr) {
		p->result.live_bytes -= e->value;
		p->result.live_blocks--;
		table_remove(&p->blocks, e);
		return;
	}
	e = table_find(&p->early, addr);
	if (!e->addr) p->early.count++;
	*e = (struct entry){ addr, ns };
	p->last_early_ns = ns;
}

/* True if a free of this very block has been seen already. */
static bool was_freed_early(struct process *p, uint64_t addr, uint64_t ns) {
	if (!p->early.count) return false;
	struct entry *e = table_find(&p->early, addr);
	if (!e->addr) return false;
	bool same = e->value >= ns;
	table_remove(&p->early, e);
	if (same) p->result.approximate = true;
	return same;
}

static void block_allocated(struct tm_tally *t, struct process *p, uint64_t addr, uint64_t size, uint64_t ns) {
	if (!addr || was_freed_early(p, addr, ns)) return;
	struct entry *e = table_find(&p->blocks, addr);
	if (e->addr) { /* its free was lost */
		p->result.live_bytes -= e->value;
	} else {
		p->blocks.count++;
		p->result.live_blocks++;
	}
	*e = (struct entry){ addr, scaled(t, size) };
	p->result.live_bytes += e->value;
	raise_peak(p, ns);
}

/* Index of the first range that ends above addr. */
static size_t range_at(const struct process *p, uint64_t addr) {
	size_t low = 0, high = p->range_count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (p->ranges[middle].high > addr) high = middle;
		else low = middle + 1;
	}
	return low;
}

static void range_insert(struct process *p, size_t at, struct range r) {
	p->ranges = tm_memory_grow(p->ranges, &p->range_capacity, p->range_count + 1, sizeof p->ranges[0]);
	memmove(p->ranges + at + 1, p->ranges + at, (p->range_count - at) * sizeof r);
	p->ranges[at] = r;
	p->range_count++;
	p->result.live_bytes += r.high - r.low;
	p->result.live_blocks++;
}

static void range_remove(struct process *p, size_t at) {
	p->result.live_bytes -= p->ranges[at].high - p->ranges[at].low;
	p->result.live_blocks--;
	p->range_count--;
	memmove(p->ranges + at, p->ranges + at + 1, (p->range_count - at) * sizeof p->ranges[0]);
}

static void unmapped(struct process *p, uint64_t low, uint64_t bytes) {
	uint64_t high = low + bytes < low ? UINT64_MAX : low + bytes;
	size_t at = range_at(p, low);
	while (at < p->range_count && p->ranges[at].low < high) {
		struct range old = p->ranges[at];
		range_remove(p, at);
		if (old.low < low) range_insert(p, at++, (struct range){ old.low, low });
		if (old.high > high) range_insert(p, at++, (struct range){ high, old.high });
	}
}

static void mapped(struct process *p, uint64_t low, uint64_t bytes, uint64_t ns) {
	uint64_t high = low + bytes < low ? UINT64_MAX : low + bytes;
	unmapped(p, low, bytes);
	if (high > low) range_insert(p, range_at(p, low), (struct range){ low, high });
	raise_peak(p, ns);
}

static void give_up(struct process *p) {
	free(p->blocks.entries);
	free(p->early.entries);
	p->blocks = p->early = (struct table){ 0 };
	p->range_count = 0;
	p->result.given_up = true;
}

static void replay(struct tm_tally *t, struct process *p, const struct tm_event *e) {
	unsigned class = TM_OP_CLASS(e->op);
	if (e->time_ns < p->last_ns) p->result.approximate = true;
	p->last_ns = e->time_ns;
	t->allocations += class == TM_CLASS_ALLOC || class == TM_CLASS_REALLOC || class == TM_CLASS_MAP || class == TM_CLASS_REMAP;
	t->frees += class == TM_CLASS_FREE || class == TM_CLASS_REALLOC || class == TM_CLASS_UNMAP || class == TM_CLASS_REMAP;
	if (p->result.given_up) return;
	if (class == TM_CLASS_FREE || class == TM_CLASS_REALLOC) block_freed(p, e->old, e->begin_ns);
	if (class == TM_CLASS_UNMAP || class == TM_CLASS_REMAP) unmapped(p, e->old, e->old_size);
	if (class == TM_CLASS_ALLOC || class == TM_CLASS_REALLOC) block_allocated(t, p, e->addr, e->size, e->time_ns);
	if (class == TM_CLASS_MAP || class == TM_CLASS_REMAP) mapped(p, e->addr, e->size, e->time_ns);
	if (p->blocks.count + p->early.count > TM_TALLY_BLOCKS_MAX) give_up(p);
}

static struct process *process_of(struct tm_tally *t, uint32_t id) {
	if (id >= t->process_count) {
		t->processes = tm_memory_grow(t->processes, &t->process_capacity, id + 1u, sizeof t->processes[0]);
		memset(t->processes + t->process_count, 0, (id + 1u - t->process_count) * sizeof t->processes[0]);
		t->process_count = id + 1u;
	}
	return &t->processes[id];
}

static uint64_t cursor_time(const struct cursor *c) {
	return c->segment->events[c->at].time_ns;
}

/* Restores the heap's order from `at` down to the leaves. */
static void sift_down(struct tm_tally *t, size_t at) {
	struct cursor moved = t->heap[at];
	for (;;) {
		size_t child = 2 * at + 1;
		if (child >= t->heap_count) break;
		if (child + 1 < t->heap_count && cursor_time(&t->heap[child + 1]) < cursor_time(&t->heap[child])) child++;
		if (cursor_time(&moved) <= cursor_time(&t->heap[child])) break;
		t->heap[at] = t->heap[child];
		at = child;
	}
	t->heap[at] = moved;
}

static void fill_heap(struct tm_tally *t, const struct tm_group *g) {
	t->heap = tm_memory_grow(t->heap, &t->heap_capacity, g->segment_count, sizeof t->heap[0]);
	t->heap_count = 0;
	for (size_t i = 0; i < g->segment_count; i++) {
		process_of(t, g->segments[i].process);
		if (g->segments[i].count) t->heap[t->heap_count++] = (struct cursor){ &g->segments[i], 0 };
	}
	for (size_t i = t->heap_count / 2; i-- > 0;) sift_down(t, i);
}

void tm_tally_add(struct tm_tally *t, const struct tm_group *g, uint64_t watermark_ns) {
	fill_heap(t, g);
	while (t->heap_count) {
		struct cursor *first = &t->heap[0];
		struct process *p = &t->processes[first->segment->process];
		/* Runs of one segment need no sifting: a single thread is the usual case. */
		uint64_t until = UINT64_MAX;
		for (size_t i = 1; i < t->heap_count && i < 3; i++)
			if (cursor_time(&t->heap[i]) < until) until = cursor_time(&t->heap[i]);
		do {
			replay(t, p, &first->segment->events[first->at++]);
		} while (first->at < first->segment->count && cursor_time(first) <= until);
		if (first->at == first->segment->count) t->heap[0] = t->heap[--t->heap_count];
		if (t->heap_count) sift_down(t, 0);
	}
	for (size_t i = 0; i < t->process_count; i++)
		if (t->processes[i].last_early_ns < watermark_ns) table_clear(&t->processes[i].early);
}

struct tm_tally *tm_tally_new(uint64_t sample_bytes) {
	struct tm_tally *t = tm_memory_new(1, sizeof *t);
	t->sample_bytes = (double)sample_bytes;
	return t;
}

void tm_tally_free(struct tm_tally *t) {
	for (size_t i = 0; i < t->process_count; i++) {
		free(t->processes[i].blocks.entries);
		free(t->processes[i].early.entries);
		free(t->processes[i].ranges);
	}
	free(t->processes);
	free(t->heap);
	free(t);
}

struct tm_tally_process tm_tally_of(const struct tm_tally *t, uint32_t process) {
	return process < t->process_count ? t->processes[process].result : (struct tm_tally_process){ 0 };
}

uint32_t tm_tally_process_count(const struct tm_tally *t) {
	return (uint32_t)t->process_count;
}

uint64_t tm_tally_allocations(const struct tm_tally *t) {
	return t->allocations;
}

uint64_t tm_tally_frees(const struct tm_tally *t) {
	return t->frees;
}
