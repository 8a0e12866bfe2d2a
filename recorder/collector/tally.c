/* tally.c - replays events to know the peak when the program ends: see tally.h. */
#include "tally.h"

#include "../../schema/array.h"
#include "../shm.h"
#include "disjoint.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define FETCH_AHEAD 20u
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
#define LARGE_ENTRIES 2048u
#define SMALL_ENTRIES (256u << 10)
#define SPARE_MAX 8u             /* rooms for items that are kept for the next thread that has some */
#define SPARE_ITEMS (64u << 10) /* larger ones are given back */
#define FIRST_ENTRIES 64u       /* of a table: most processes of a build have little */
#define SPARE_TABLES \
	16u /* of that size, for the next process: between what lasts, each would leave a hole that the next one does not fit in */

struct entry { /* two of them in a cache line */
	uint64_t addr, bytes; /* addr 0: empty */
	uint64_t stamp;       /* when it was allocated << 1 | 1 if another entry that belongs here had to go on from here */
	uint64_t number;      /* of its allocation, 0: nobody wants to know it, or it was told */
};

struct table { /* open addressing, at most five eighths full; a small one half of that: the processor has
	      * foreseen a free place, and to be wrong costs more than memory that is near */
	struct entry *entries;
	size_t count, mask;
	size_t look_at;      /* with so many entries something is to be done: see make_room() */
	struct entry *ahead; /* room for the table of twice the size; NULL: none yet, or it is not worth it */
	size_t ahead_bytes;  /* of that are there */
};

struct range { /* begins as disjoint.h wants it */
	uint64_t high, low; /* whole pages, but for the break */
	uint64_t end;       /* of what was asked for: what lies beyond it counts for nothing */
	uint64_t ns;        /* when it was mapped */
	bool is_file;       /* of the heap mmap-file */
};

struct own_heap { /* an explicit one */
	uint32_t id;
	bool is_root;
	struct tm_tally_heap figures;
	struct table blocks;
};

struct process {
	struct tm_tally_process result;       /* live bytes and blocks without those of the heap malloc, whose figures have them */
	struct tm_tally_heap malloc, maps[2]; /* counts of sampled blocks in parts of one; mmap, mmap-file */
	struct own_heap *own;
	size_t own_count, own_capacity, own_last; /* own_last: asked for last */
	struct table blocks;
	struct tm_disjoint ranges; /* mapped */
	struct tm_tally_watch *watches;
	size_t watch_count, watch_capacity;
	uint64_t last_ns;
	bool ended; /* and its blocks are forgotten */
};

enum step { STEP_ALLOCATED, STEP_FREED, STEP_MAPPED, STEP_UNMAPPED, STEP_BASELINE, STEP_RESET_PEAK, STEP_STOPPED };

struct item { /* a step of an event: a realloc gives back before the call and has the new block behind it, and so does an mremap */
	uint64_t ns, addr, size; /* STEP_FREED: size is the time before the call */
	uint64_t number; /* STEP_ALLOCATED: as in struct entry; STEP_FREED: is of a realloc; STEP_UNMAPPED: the time before the call;
			  * STEP_MAPPED: what an mremap moves begins with a mapped file */
	uint32_t heap;   /* id of an explicit one, 0: malloc; STEP_MAPPED, STEP_UNMAPPED: enum tm_op; STEP_RESET_PEAK: enum tm_tally_default
			  * in addr, too */
	enum step step;
};

struct source { /* what waits of a thread, oldest first */
	struct item *items;
	size_t at, count, capacity;
	uint64_t last_ns; /* of its last event */
	uint32_t process;
};

struct tm_tally {
	struct process *processes; /* by process id */
	size_t process_count, process_capacity;
	tm_tally_crossed *crossed; /* who is told, of all that are watched */
	void *crossed_context;
	uint64_t allocations, frees;
	double sample_bytes;    /* of the heap malloc alone; 0: every allocation */
	struct source *sources; /* by thread id; room is only with those that have items, as a recording may have many threads, one after the other */
	size_t source_count, source_capacity;
	struct {
		struct item *items;
		size_t capacity;
	} spare[SPARE_MAX];
	unsigned spare_count;
	struct entry *spare_tables[SPARE_TABLES];
	unsigned spare_table_count;
	uint32_t *ended; /* processes whose last items may still wait */
	size_t ended_count, ended_capacity;
	size_t waiting;   /* items of all of them */
	uint64_t alone_ns; /* no other thread than the one that is read has anything below this */
	uint32_t *active; /* threads that have any */
	size_t active_count, active_capacity;
	uint32_t *heap; /* of the merge: threads, the one with the earliest item on top */
	size_t heap_count, heap_capacity;
};

/* Neighbours in memory, which often come and go together, are neighbours here: eight entries for 256 bytes. */
static inline size_t slot_of(const struct table *t, uint64_t addr) {
	size_t hash = (size_t)((addr >> 8) * 0x9E3779B97F4A7C15u);
	return ((hash >> 20 << 3) + ((addr >> 5 ^ hash >> 61) & 7)) & t->mask;
}

/* Who finds a place taken goes on to the next eight entries, and one further among them: those that belong there and their neighbours all find one near. */
#define STEP 9u
#define STEP_INVERSE 0x8E38E38E38E38E39u /* modulo 2^64 */

static inline struct entry *next_entry(const struct table *t, const struct entry *e) {
	return &t->entries[((size_t)(e - t->entries) + STEP) & t->mask];
}

static inline size_t steps_between(const struct table *t, size_t from, size_t to) {
	return (to - from) * STEP_INVERSE & t->mask;
}

static NOINLINE struct entry *find_further(const struct table *t, struct entry *e, uint64_t addr) {
	do e = next_entry(t, e);
	while (e->addr && e->addr != addr);
	return e;
}

/* The entry of addr, or the empty one where it would be. */
static inline struct entry *table_find(const struct table *t, uint64_t addr) {
	struct entry *e = &t->entries[slot_of(t, addr)];
	return e->addr == addr || !e->addr ? e : find_further(t, e, addr);
}

static NOINLINE struct entry *place_further(struct table *t, struct entry *e, uint64_t addr) {
	do {
		e->stamp |= 1;
		e = next_entry(t, e);
	} while (e->addr && e->addr != addr);
	if (!e->addr) e->stamp = 0;
	return e;
}

/* The same for somebody who puts it there; the stamp of an empty one is 0. */
static inline struct entry *table_place(struct table *t, uint64_t addr) {
	struct entry *e = &t->entries[slot_of(t, addr)];
	if (e->addr && e->addr != addr) return place_further(t, e, addr);
	if (!e->addr) e->stamp = 0;
	return e;
}

static struct entry *first_entries(struct tm_tally *tally) {
	if (!tally->spare_table_count) return tm_memory_new_table(FIRST_ENTRIES, sizeof(struct entry));
	struct entry *entries = tally->spare_tables[--tally->spare_table_count];
	return memset(entries, 0, FIRST_ENTRIES * sizeof entries[0]);
}

static void table_free(struct tm_tally *tally, struct table *t) {
	bool spared = t->entries && t->mask == FIRST_ENTRIES - 1 && tally->spare_table_count < SPARE_TABLES;
	if (spared) tally->spare_tables[tally->spare_table_count++] = t->entries;
	else tm_memory_free_table(t->entries, t->mask + 1, sizeof t->entries[0]);
	tm_memory_free_table(t->ahead, 2 * (t->mask + 1), sizeof t->entries[0]);
	*t = (struct table){ 0 };
}

/* With so many entries it is. */
static size_t table_full_at(const struct table *t) {
	return (t->mask * (t->mask < SMALL_ENTRIES - 1 ? 5 : 10) + 15) / 16;
}

/* Memory that is new is slow to come, up to 6 ms for a huge page of a virtual machine, and nobody reads meanwhile, so that the program waits in the end. So it
 * comes page by page, while the last eighth of the entries does, and the table has only to be moved when it is full. */
static void table_look_ahead(struct table *t) {
	size_t full = table_full_at(t), begin = full - full / 8, bytes = 2 * (t->mask + 1) * sizeof t->entries[0];
	if (t->count >= begin && !t->ahead) t->ahead = tm_memory_table_ahead(2 * (t->mask + 1), sizeof t->entries[0]);
	if (t->ahead && t->ahead_bytes < bytes) {
		tm_memory_fetch((uint8_t *)t->ahead + t->ahead_bytes, TM_HUGE_PAGE_BYTES);
		t->ahead_bytes += TM_HUGE_PAGE_BYTES;
	}
	size_t pieces = bytes / TM_HUGE_PAGE_BYTES;
	t->look_at = t->count < begin ? begin : t->ahead && t->ahead_bytes < bytes ? t->count + full / 8 / (pieces + 1) : full;
	if (t->look_at > full) t->look_at = full;
}

static void table_grow(struct tm_tally *tally, struct table *t) {
	struct table grown = { .entries = t->ahead, .mask = t->mask ? t->mask * 2 + 1 : FIRST_ENTRIES - 1, .count = t->count };
	size_t bytes = (grown.mask + 1) * sizeof grown.entries[0];
	if (!t->mask) grown.entries = first_entries(tally);
	else if (!grown.entries) grown.entries = tm_memory_new_table(grown.mask + 1, sizeof grown.entries[0]);
	else if (t->ahead_bytes < bytes) tm_memory_fetch((uint8_t *)grown.entries + t->ahead_bytes, bytes - t->ahead_bytes);
	for (size_t i = 0; t->entries && i <= t->mask; i++) {
		const struct entry *old = &t->entries[i];
		if (!old->addr) continue;
		*table_place(&grown, old->addr) = (struct entry){ old->addr, old->bytes, old->stamp & ~(uint64_t)1, old->number };
	}
	t->ahead = NULL;
	table_free(tally, t);
	*t = grown;
	table_look_ahead(t);
}

/* Moves later entries that went on from here back, so that no gap hides them. */
static NOINLINE void close_gap(struct table *t, struct entry *gap) {
	const struct entry *at = gap;
	do {
		at = next_entry(t, at);
		if (!at->addr) break;
		size_t here = (size_t)(at - t->entries), home = slot_of(t, at->addr);
		if (steps_between(t, home, here) < steps_between(t, (size_t)(gap - t->entries), here)) continue;
		*gap = *at;
		gap = &t->entries[here];
	} while (at->stamp & 1);
	gap->addr = 0;
}

static inline void table_remove(struct table *t, struct entry *e) {
	t->count--;
	if (e->stamp & 1) close_gap(t, e);
	else e->addr = 0;
}

/* exp(-x) as (1 - x/2^20)^(2^20): good to six digits, and no mathematics library for one line of a summary. */
static double exp_minus(double x) {
	double r = 1.0 - x / 1048576.0;
	if (x > 40.0) return 0.0;
	for (int i = 0; i < 20; i++) r *= r;
	return r;
}

/* What a block counts for: itself, or where they are sampled all those of its size that were not drawn. These are counted in parts of a block. */
struct worth {
	uint64_t bytes, count;
};
#define SAMPLED_PARTS 4096u

static NOINLINE struct worth worth_of_sample(uint64_t size, double sample_bytes) {
	double weight = 1.0 / (1.0 - exp_minus((double)(size ? size : 1) / sample_bytes)); /* a block of no bytes is drawn as one of one */
	return (struct worth){ (uint64_t)((double)size * weight), (uint64_t)(weight * SAMPLED_PARTS + 0.5) };
}

static inline struct worth worth_of(uint64_t size, double sample_bytes) {
	if (sample_bytes > 0) return worth_of_sample(size, sample_bytes);
	return (struct worth){ size, 1 };
}

static struct tm_tally_heap in_blocks(struct tm_tally_heap h, double sample_bytes) {
	if (sample_bytes <= 0) return h;
	h.live_count = (h.live_count + SAMPLED_PARTS / 2) / SAMPLED_PARTS;
	h.allocations = (h.allocations + SAMPLED_PARTS / 2) / SAMPLED_PARTS;
	h.frees = (h.frees + SAMPLED_PARTS / 2) / SAMPLED_PARTS;
	return h;
}

/* --- heaps and their blocks --- */

static void forget_blocks(struct tm_tally *t, struct process *p) {
	table_free(t, &p->blocks);
	for (size_t i = 0; i < p->own_count; i++) table_free(t, &p->own[i].blocks);
	tm_disjoint_release(&p->ranges);
}

static void give_up(struct tm_tally *t, struct process *p) {
	forget_blocks(t, p);
	p->result.given_up = true;
}

/* For another block, or ahead for later ones. False: they are too many. */
static bool make_room(struct tm_tally *t, struct process *p, struct table *blocks) {
	if (blocks->count < table_full_at(blocks)) {
		table_look_ahead(blocks);
		return true;
	}
	if (blocks->count >= TM_TALLY_BLOCKS_MAX && !p->watch_count) {
		give_up(t, p);
		return false;
	}
	table_grow(t, blocks);
	return true;
}

static inline uint64_t live_bytes(const struct process *p) {
	return p->result.live_bytes + p->malloc.live_bytes;
}

static inline void raise_peak(struct process *p, uint64_t ns) {
	uint64_t live = live_bytes(p);
	if (live <= p->result.peak_bytes) return;
	p->result.peak_bytes = live;
	p->result.peak_ns = ns;
}

static inline void gained(struct tm_tally_heap *h, struct worth w) {
	uint64_t live = h->live_bytes += w.bytes;
	h->live_count += w.count;
	if (live <= h->peak_since_reset_bytes) return;
	h->peak_since_reset_bytes = live;
	if (live > h->peak_bytes) h->peak_bytes = live;
}

static inline void gave_back(struct tm_tally_heap *h, struct worth w) {
	h->live_bytes -= w.bytes;
	h->live_count -= w.count;
}

static struct own_heap *own_heap(struct process *p, uint32_t id) {
	if (p->own_last < p->own_count && p->own[p->own_last].id == id) return &p->own[p->own_last];
	for (size_t i = 0; i < p->own_count; i++)
		if (p->own[i].id == id) return &p->own[p->own_last = i];
	p->own = tm_memory_grow(p->own, &p->own_capacity, p->own_count + 1, sizeof p->own[0]);
	p->own[p->own_count] = (struct own_heap){ .id = id };
	return &p->own[p->own_last = p->own_count++];
}

/* Where a block lies: the heap's figures, its table, and whether it counts in the process' own figures, and needs to be added there. */
struct place {
	struct tm_tally_heap *figures;
	struct table *blocks;
	bool is_root, is_added;
	double sample_bytes; /* 0: each block counts for itself */
};

static struct place place_of(struct process *p, uint32_t heap) {
	struct own_heap *own = own_heap(p, heap);
	return (struct place){ &own->figures, &own->blocks, own->is_root, own->is_root, 0 };
}

static inline struct place place_of_malloc(const struct tm_tally *t, struct process *p) {
	return (struct place){ &p->malloc, &p->blocks, true, false, t->sample_bytes };
}

/* Who frees the block is told of its allocation, if that is of the same segment; once only. */
static inline uint64_t told(struct tm_tally_segment *segment, struct entry *e) {
	uint64_t number = e->number;
	if (!segment || (number ^ segment->next) >> TM_TALLY_SEGMENT_BITS) return 0;
	e->number = 0;
	return tm_given_back(segment->next - number, e->bytes);
}

/* A block at that address which is younger took the place of the one that is meant, in the time that a realloc took. Returns what was told. */
static ALWAYS_INLINE uint64_t freed_at(struct process *p, struct place at, uint64_t addr, uint64_t begin_ns, struct tm_tally_segment *segment) {
	if (!at.blocks->entries) return 0;
	struct entry *e = table_find(at.blocks, addr);
	if (!e->addr || e->stamp >> 1 > begin_ns) return 0;
	struct worth w = worth_of(e->bytes, at.sample_bytes);
	uint64_t given_back = told(segment, e);
	gave_back(at.figures, w);
	at.figures->frees += w.count;
	if (at.is_added) {
		p->result.live_bytes -= w.bytes;
		p->result.live_blocks--;
	}
	table_remove(at.blocks, e);
	return given_back;
}

static ALWAYS_INLINE void allocated_at(struct tm_tally *t, struct process *p, struct place at, uint64_t addr, uint64_t bytes, uint64_t ns,
				       uint64_t number) {
	if (!addr || (at.blocks->count >= at.blocks->look_at && !make_room(t, p, at.blocks))) return;
	struct entry *e = table_place(at.blocks, addr);
	if (e->addr) { /* its free was lost, or is in a realloc that has not ended */
		struct worth w = worth_of(e->bytes, at.sample_bytes);
		gave_back(at.figures, w);
		p->result.live_bytes -= at.is_added ? w.bytes : 0;
	} else {
		at.blocks->count++;
		p->result.live_blocks += at.is_added;
	}
	*e = (struct entry){ addr, bytes, ns << 1 | (e->stamp & 1), number };
	struct worth w = worth_of(bytes, at.sample_bytes);
	at.figures->allocations += w.count;
	gained(at.figures, w);
	p->result.live_bytes += at.is_added ? w.bytes : 0;
	if (at.is_root) raise_peak(p, ns);
}

static NOINLINE uint64_t own_block_freed(struct process *p, uint32_t heap, uint64_t addr, uint64_t begin_ns, struct tm_tally_segment *segment) {
	return freed_at(p, place_of(p, heap), addr, begin_ns, segment);
}

static NOINLINE void own_block_allocated(struct tm_tally *t, struct process *p, uint32_t heap, uint64_t addr, uint64_t size, uint64_t ns,
					 uint64_t number) {
	allocated_at(t, p, place_of(p, heap), addr, size, ns, number);
}

static ALWAYS_INLINE uint64_t block_freed(const struct tm_tally *t, struct process *p, uint32_t heap, uint64_t addr, uint64_t begin_ns,
					  struct tm_tally_segment *segment) {
	if (heap) return own_block_freed(p, heap, addr, begin_ns, segment);
	return freed_at(p, place_of_malloc(t, p), addr, begin_ns, segment);
}

static ALWAYS_INLINE void block_allocated(struct tm_tally *t, struct process *p, uint32_t heap, uint64_t addr, uint64_t size, uint64_t ns,
					  uint64_t number) {
	if (heap) own_block_allocated(t, p, heap, addr, size, ns, number);
	else allocated_at(t, p, place_of_malloc(t, p), addr, size, ns, number);
}

/* What the free of a block will be told, before its turn comes: of an allocation whose turn has come. */
static uint64_t told_early(struct process *p, uint32_t heap, uint64_t addr, struct tm_tally_segment *segment) {
	const struct table *blocks = heap ? &own_heap(p, heap)->blocks : &p->blocks;
	struct entry *e = blocks->count ? table_find(blocks, addr) : NULL;
	return e && e->addr ? told(segment, e) : 0;
}

/* --- mappings --- */

static uint64_t requested(const struct range *r) {
	uint64_t end = r->end < r->high ? r->end : r->high;
	return end > r->low ? end - r->low : 0;
}

static void range_insert(struct process *p, struct range r) {
	tm_disjoint_add(&p->ranges, sizeof r, &r);
	gained(&p->maps[r.is_file], (struct worth){ requested(&r), 1 });
	if (r.is_file) return; /* its pages are the page cache's */
	p->result.live_bytes += requested(&r);
	p->result.live_blocks++;
}

static void range_insert_part(struct process *p, struct range r, uint64_t low, uint64_t high) {
	r.low = low;
	r.high = high;
	range_insert(p, r);
}

static void range_remove(struct process *p, const struct range *r) {
	tm_disjoint_take_out(&p->ranges, sizeof *r, r->high);
	gave_back(&p->maps[r->is_file], (struct worth){ requested(r), 1 });
	if (r->is_file) return;
	p->result.live_bytes -= requested(r);
	p->result.live_blocks--;
}

/* By a call that began at begin_ns: what is younger was mapped by another thread before the call was over, where it had made room. True: it begins with a
 * mapped file. */
static bool unmapped(struct process *p, uint64_t low, uint64_t bytes, uint64_t begin_ns) {
	uint64_t high = low + bytes < low ? UINT64_MAX : low + bytes, from = low;
	const struct range *found = tm_disjoint_above(&p->ranges, sizeof *found, from);
	bool is_file = !bytes && found && found->low <= low && found->is_file; /* left as it is by an mremap */
	for (bool first = true; bytes && found && found->low < high; found = tm_disjoint_above(&p->ranges, sizeof *found, from)) {
		struct range old = *found;
		from = old.high;
		if (old.ns > begin_ns) continue;
		if (first) is_file = old.is_file;
		first = false;
		range_remove(p, &old);
		if (old.low < low) range_insert_part(p, old, old.low, low);
		if (old.high > high) range_insert_part(p, old, high, old.high);
		p->maps[old.is_file].frees++;
	}
	return is_file;
}

static void mapped(struct process *p, const struct item *i) {
	uint64_t bytes = i->size + tm_op_spare(i->heap, i->size, TM_SHM_PAGE);
	uint64_t high = i->addr + bytes < i->addr ? UINT64_MAX : i->addr + bytes;
	bool is_file = i->heap == TM_OP_MREMAP ? i->number : i->heap == TM_OP_MMAP_FILE;
	unmapped(p, i->addr, bytes, UINT64_MAX);
	if (high > i->addr) range_insert(p, (struct range){ high, i->addr, i->addr + i->size, i->ns, is_file });
	p->maps[is_file].allocations++;
	raise_peak(p, i->ns);
}

/* --- what the program says --- */

static void begin_anew(struct tm_tally_heap *h) {
	h->peak_bytes = h->peak_since_reset_bytes = h->live_bytes;
	h->allocations = h->frees = 0;
}

static void baseline(struct process *p) {
	begin_anew(&p->malloc);
	begin_anew(&p->maps[0]);
	begin_anew(&p->maps[1]);
	for (size_t i = 0; i < p->own_count; i++) begin_anew(&p->own[i].figures);
}

static struct tm_tally_heap *figures_of(struct process *p, enum tm_tally_default heap, uint32_t id) {
	switch (heap) {
	case TM_TALLY_MALLOC: return &p->malloc;
	case TM_TALLY_MMAP: return &p->maps[0];
	case TM_TALLY_MMAP_FILE: return &p->maps[1];
	case TM_TALLY_OWN: break;
	}
	return &own_heap(p, id)->figures;
}

static void reset_peak(struct process *p, const struct item *i) {
	struct tm_tally_heap *h = figures_of(p, (enum tm_tally_default)i->addr, i->heap);
	h->peak_since_reset_bytes = h->live_bytes;
}

/* The two steps of a realloc are one change, and so are those of an mremap, however long the call takes. */
static inline bool is_half(const struct item *i) {
	return (i->step == STEP_FREED && i->number) || (i->step == STEP_UNMAPPED && i->heap == TM_OP_MREMAP);
}

/* Behind a half lies the other one. */
static inline void replay(struct tm_tally *t, struct process *p, struct item *i) {
	bool is_file;
	switch (i->step) {
	case STEP_ALLOCATED: block_allocated(t, p, i->heap, i->addr, i->size, i->ns, i->number); break;
	case STEP_FREED: block_freed(t, p, i->heap, i->addr, i->size, NULL); break;
	case STEP_MAPPED: mapped(p, i); break;
	case STEP_UNMAPPED:
		is_file = unmapped(p, i->addr, i->size, i->number);
		if (is_half(i)) i[1].number = is_file;
		break;
	case STEP_BASELINE: baseline(p); break;
	case STEP_RESET_PEAK: reset_peak(p, i); break;
	case STEP_STOPPED: p->result.was_stopped = true; break;
	}
}

static struct process *process_of(struct tm_tally *t, uint32_t id) {
	if (id >= t->process_count) {
		t->processes = tm_memory_grow(t->processes, &t->process_capacity, id + 1u, sizeof t->processes[0]);
		memset(t->processes + t->process_count, 0, (id + 1u - t->process_count) * sizeof t->processes[0]);
		t->process_count = id + 1u;
	}
	return &t->processes[id];
}

/* --- what waits --- */

static struct source *source_of(struct tm_tally *t, uint32_t thread) {
	if (thread >= t->source_count) {
		t->sources = tm_memory_grow(t->sources, &t->source_capacity, thread + 1u, sizeof t->sources[0]);
		memset(t->sources + t->source_count, 0, (thread + 1u - t->source_count) * sizeof t->sources[0]);
		t->source_count = thread + 1u;
	}
	return &t->sources[thread];
}

/* An allocation takes the segment's next number. */
static inline uint64_t numbered(struct tm_tally_segment *segment) {
	return segment ? segment->next++ : 0;
}

/* What a call gives back is gone when it begins, but not before what a signal handler of its thread did inside of it: the items of a thread are in order. */
static inline uint64_t given_back_ns(const struct tm_event *e, uint64_t previous_ns) {
	return e->begin_ns < previous_ns ? previous_ns : e->begin_ns;
}

/* The steps of the rarer classes; returns the end. */
static struct item *put_steps(struct item *to, const struct tm_event *e, uint64_t previous_ns) {
	unsigned class = TM_OP_CLASS(e->op);
	if (class == TM_CLASS_UNMAP || class == TM_CLASS_REMAP)
		*to++ = (struct item){ given_back_ns(e, previous_ns), e->old, e->old_size, e->begin_ns, e->op, STEP_UNMAPPED };
	if (class == TM_CLASS_MAP || class == TM_CLASS_REMAP)
		*to++ = (struct item){ e->time_ns, e->addr, e->size, 0, e->op, STEP_MAPPED };
	if (e->op == TM_OP_BASELINE) *to++ = (struct item){ .ns = e->time_ns, .step = STEP_BASELINE };
	if (e->op == TM_OP_STOP) *to++ = (struct item){ .ns = e->time_ns, .step = STEP_STOPPED };
	if (e->op == TM_OP_RESET_PEAK) *to++ = (struct item){ e->time_ns, e->addr, 0, 0, e->heap, STEP_RESET_PEAK };
	return to;
}

static void give_room_back(struct tm_tally *t, struct source *s) {
	if (t->spare_count < SPARE_MAX && s->capacity <= SPARE_ITEMS) {
		t->spare[t->spare_count].items = s->items;
		t->spare[t->spare_count++].capacity = s->capacity;
	} else {
		free(s->items);
	}
	s->items = NULL;
	s->capacity = 0;
}

static void count_events(struct tm_tally *t, const size_t of_class[8]) {
	size_t both = of_class[TM_CLASS_REALLOC] + of_class[TM_CLASS_REMAP];
	t->allocations += of_class[TM_CLASS_ALLOC] + of_class[TM_CLASS_MAP] + both;
	t->frees += of_class[TM_CLASS_FREE] + of_class[TM_CLASS_UNMAP] + both;
}

/* A table that is larger than the processor's near caches: what the items to come will look for is fetched meanwhile. */
static inline bool is_large(const struct table *t) {
	return t->mask >= LARGE_ENTRIES;
}

static inline void fetch_entry(const struct table *t, uint64_t addr) {
	__builtin_prefetch(&t->entries[slot_of(t, addr)], 1);
}

/* The first event that is not below ns. */
static struct tm_event *first_from(struct tm_event *e, struct tm_event *end, uint64_t ns) {
	if (end[-1].time_ns < ns) return end;
	while (e < end && e->time_ns < ns) e++;
	return e;
}

/* Nothing waits, and these come first: they need not wait for others. Returns the first that must. */
static struct tm_event *replay_at_once(struct tm_tally *t, struct process *p, struct tm_event *e, struct tm_event *end,
				       struct tm_tally_segment *segment) {
	size_t of_class[8] = { 0 }, allocations = 0, frees = 0;
	struct item steps[2];
	if (p->watch_count || p->ended || e->time_ns < p->last_ns) return e;
	const struct tm_event *first = e, *limit = first_from(e, end, t->alone_ns);
	bool fetches = is_large(&p->blocks);
	for (; e < limit && !p->result.given_up; e++) {
		unsigned class = TM_OP_CLASS(e->op);
		const struct tm_event *ahead = e + FETCH_AHEAD;
		if (fetches && ahead < limit) fetch_entry(&p->blocks, ahead->op == TM_OP_FREE ? ahead->old : ahead->addr);
		if (class == TM_CLASS_ALLOC) {
			allocations++;
			block_allocated(t, p, e->heap, e->addr, e->size, e->time_ns, numbered(segment));
			continue;
		}
		if (class == TM_CLASS_FREE) {
			frees++;
			e->old_size = block_freed(t, p, e->heap, e->old, e->time_ns, segment);
			continue;
		}
		of_class[class]++;
		if (class == TM_CLASS_REALLOC) {
			e->old_size = block_freed(t, p, e->heap, e->old, e->begin_ns, segment);
			block_allocated(t, p, e->heap, e->addr, e->size, e->time_ns, numbered(segment));
		}
		const struct item *last = put_steps(steps, e, 0);
		for (struct item *i = steps; i < last; i++) replay(t, p, i);
	}
	if (e > first) p->last_ns = e[-1].time_ns;
	of_class[TM_CLASS_ALLOC] = allocations;
	of_class[TM_CLASS_FREE] = frees;
	count_events(t, of_class);
	return e;
}

/* They wait for the events of other threads. */
static struct item *put_waiting(struct process *p, struct item *to, struct tm_event *e, const struct tm_event *end,
				struct tm_tally_segment *segment, uint64_t previous_ns, size_t of_class[8]) {
	for (; e < end; previous_ns = e++->time_ns) {
		unsigned class = TM_OP_CLASS(e->op);
		of_class[class]++;
		if (class == TM_CLASS_FREE || class == TM_CLASS_REALLOC) {
			bool moves = class == TM_CLASS_REALLOC;
			uint64_t ns = moves ? given_back_ns(e, previous_ns) : e->time_ns;
			e->old_size = segment ? told_early(p, e->heap, e->old, segment) : 0;
			*to++ = (struct item){ ns, e->old, moves ? e->begin_ns : e->time_ns, moves, e->heap, STEP_FREED };
		}
		if (class == TM_CLASS_ALLOC || class == TM_CLASS_REALLOC)
			*to++ = (struct item){ e->time_ns, e->addr, e->size, numbered(segment), e->heap, STEP_ALLOCATED };
		else if (class != TM_CLASS_FREE) to = put_steps(to, e, previous_ns);
	}
	return to;
}

/* Nothing of the process is replayed any more. */
static void leave_out(struct tm_tally *t, struct tm_event *e, const struct tm_event *end, struct tm_tally_segment *segment) {
	size_t of_class[8] = { 0 };
	for (; e < end; e++) {
		unsigned class = TM_OP_CLASS(e->op);
		of_class[class]++;
		if (class == TM_CLASS_FREE || class == TM_CLASS_REALLOC) e->old_size = 0;
		if (class == TM_CLASS_ALLOC || class == TM_CLASS_REALLOC) numbered(segment);
	}
	count_events(t, of_class);
}

void tm_tally_add(struct tm_tally *t, uint32_t process, uint32_t thread, struct tm_event *events, size_t n, struct tm_tally_segment *segment) {
	struct tm_event *end = events + n;
	size_t of_class[8] = { 0 };
	if (!n) return;
	struct process *p = process_of(t, process);
	struct source *s = source_of(t, thread);
	if (!t->active_count && t->alone_ns) events = replay_at_once(t, p, events, end, segment);
	uint64_t previous_ns = events > end - n ? events[-1].time_ns : s->last_ns;
	s->last_ns = end[-1].time_ns;
	if (events == end) return;
	if (segment) segment->waited = true;
	if (p->result.given_up && !t->active_count) {
		leave_out(t, events, end, segment);
		return;
	}
	size_t before = s->count;
	s->process = process;
	if (!s->items && t->spare_count) {
		s->items = t->spare[--t->spare_count].items;
		s->capacity = t->spare[t->spare_count].capacity;
	}
	s->items = tm_memory_grow(s->items, &s->capacity, s->count + 2 * (size_t)(end - events), sizeof s->items[0]);
	s->count = (size_t)(put_waiting(p, s->items + s->count, events, end, segment, previous_ns, of_class) - s->items);
	count_events(t, of_class);
	t->waiting += s->count - before;
	if (!s->count) give_room_back(t, s);
	if (before || !s->count) return;
	t->active = tm_memory_grow(t->active, &t->active_capacity, t->active_count + 1, sizeof t->active[0]);
	t->active[t->active_count++] = thread;
}

static bool earlier(const struct tm_tally *t, uint32_t a, uint32_t b) {
	const struct source *x = &t->sources[a], *y = &t->sources[b];
	uint64_t x_ns = x->items[x->at].ns, y_ns = y->items[y->at].ns;
	return x_ns != y_ns ? x_ns < y_ns : a < b;
}

/* Restores the heap's order from `at` down to the leaves. */
static void sift_down(struct tm_tally *t, size_t at) {
	uint32_t moved = t->heap[at];
	for (;;) {
		size_t child = 2 * at + 1;
		if (child >= t->heap_count) break;
		if (child + 1 < t->heap_count && earlier(t, t->heap[child + 1], t->heap[child])) child++;
		if (!earlier(t, t->heap[child], moved)) break;
		t->heap[at] = t->heap[child];
		at = child;
	}
	t->heap[at] = moved;
}

static void gather(struct tm_tally *t) {
	t->heap = tm_memory_grow(t->heap, &t->heap_capacity, t->active_count, sizeof t->heap[0]);
	t->heap_count = t->active_count;
	for (size_t i = 0; i < t->active_count; i++) t->heap[i] = t->active[i];
	for (size_t i = t->heap_count / 2; i-- > 0;) sift_down(t, i);
}

static void look_at_watches(struct tm_tally *t, struct process *p, uint64_t ns) {
	for (size_t i = 0; i < p->watch_count; i++) {
		struct tm_tally_watch *w = &p->watches[i];
		uint64_t value = w->of_process ? live_bytes(p) : figures_of(p, w->heap, w->id)->live_bytes;
		if (tm_threshold_crossed(&w->threshold, value)) t->crossed(t->crossed_context, (uint32_t)(p - t->processes), w->rule, ns, value);
	}
}

/* Replays the first source's items below `until`. */
static void replay_run(struct tm_tally *t, struct source *s, uint64_t until) {
	struct process *p = &t->processes[s->process];
	size_t at = s->at;
	bool fetches = is_large(&p->blocks);
	if (s->items[at].ns < p->last_ns || p->ended) p->result.approximate = true;
	do {
		if (fetches && at + FETCH_AHEAD < s->count) fetch_entry(&p->blocks, s->items[at + FETCH_AHEAD].addr);
		if (!p->result.given_up) replay(t, p, &s->items[at]);
		if (p->watch_count && !is_half(&s->items[at])) look_at_watches(t, p, s->items[at].ns);
		at++;
	} while (at < s->count && s->items[at].ns < until);
	p->last_ns = s->items[at - 1].ns;
	t->waiting -= at - s->at;
	s->at = at;
}

/* Replays the items below `until`, the earliest first. */
static void merge(struct tm_tally *t, uint64_t until) {
	while (t->heap_count) {
		struct source *first = &t->sources[t->heap[0]];
		/* A run of one source needs no sifting: a single thread is the usual case. */
		uint64_t run = until;
		for (size_t i = 1; i < t->heap_count && i < 3; i++) {
			const struct source *other = &t->sources[t->heap[i]];
			if (other->items[other->at].ns < run) run = other->items[other->at].ns;
		}
		if (first->items[first->at].ns >= until) return;
		replay_run(t, first, run);
		if (first->at == first->count) t->heap[0] = t->heap[--t->heap_count];
		if (t->heap_count) sift_down(t, 0);
	}
}

static void keep_rest(struct tm_tally *t) {
	size_t active = 0;
	for (size_t i = 0; i < t->active_count; i++) {
		struct source *s = &t->sources[t->active[i]];
		s->count -= s->at;
		if (s->at && s->count) memmove(s->items, s->items + s->at, s->count * sizeof s->items[0]);
		s->at = 0;
		if (s->count) t->active[active++] = t->active[i];
		else give_room_back(t, s);
	}
	t->active_count = active;
}

static bool has_waiting(const struct tm_tally *t, uint32_t process) {
	for (size_t i = 0; i < t->active_count; i++)
		if (t->sources[t->active[i]].process == process) return true;
	return false;
}

static void forget_ended(struct tm_tally *t) {
	size_t kept = 0;
	for (size_t i = 0; i < t->ended_count; i++) {
		struct process *p = &t->processes[t->ended[i]];
		if (has_waiting(t, t->ended[i])) {
			t->ended[kept++] = t->ended[i];
			continue;
		}
		forget_blocks(t, p);
		p->ended = true;
	}
	t->ended_count = kept;
}

void tm_tally_process_ended(struct tm_tally *t, uint32_t process) {
	process_of(t, process);
	t->ended = tm_memory_grow(t->ended, &t->ended_capacity, t->ended_count + 1, sizeof t->ended[0]);
	t->ended[t->ended_count++] = process;
}

void tm_tally_advance(struct tm_tally *t, uint64_t watermark_ns) {
	if (t->active_count) {
		gather(t);
		merge(t, t->waiting > TM_TALLY_WAITING_MAX ? UINT64_MAX : watermark_ns);
		keep_rest(t);
	}
	if (t->ended_count) forget_ended(t);
}

/* What waits of the thread itself is no later than what it adds; of another it may be. */
void tm_tally_alone_until(struct tm_tally *t, uint32_t thread, uint64_t from_ns, uint64_t until_ns) {
	bool own = t->active_count == 1 && t->active[0] == thread;
	t->alone_ns = until_ns;
	if (t->active_count && until_ns) tm_tally_advance(t, own || until_ns < from_ns ? until_ns : from_ns);
}

void tm_tally_finish(struct tm_tally *t) {
	tm_tally_advance(t, UINT64_MAX);
}

struct tm_tally *tm_tally_new(uint64_t sample_bytes) {
	struct tm_tally *t = tm_memory_new(1, sizeof *t);
	t->sample_bytes = (double)sample_bytes;
	return t;
}

void tm_tally_free(struct tm_tally *t) {
	for (size_t i = 0; i < t->process_count; i++) {
		forget_blocks(t, &t->processes[i]);
		free(t->processes[i].own);
		free(t->processes[i].watches);
	}
	free(t->processes);
	for (size_t i = 0; i < t->source_count; i++) free(t->sources[i].items);
	free(t->sources);
	while (t->spare_count) free(t->spare[--t->spare_count].items);
	while (t->spare_table_count) tm_memory_free_table(t->spare_tables[--t->spare_table_count], FIRST_ENTRIES, sizeof(struct entry));
	free(t->ended);
	free(t->active);
	free(t->heap);
	free(t);
}

void tm_tally_watch(struct tm_tally *t, uint32_t process, struct tm_tally_watch watch, tm_tally_crossed *crossed, void *context) {
	struct process *p = process_of(t, process);
	t->crossed = crossed;
	t->crossed_context = context;
	p->watches = tm_memory_grow(p->watches, &p->watch_capacity, p->watch_count + 1, sizeof p->watches[0]);
	p->watches[p->watch_count++] = watch;
}

void tm_tally_heap_is_root(struct tm_tally *t, uint32_t process, uint32_t heap) {
	own_heap(process_of(t, process), heap)->is_root = true;
}

struct tm_tally_heap tm_tally_heap_of(struct tm_tally *t, uint32_t process, enum tm_tally_default heap, uint32_t id) {
	struct process *p = process_of(t, process);
	const struct tm_tally_heap *h = figures_of(p, heap, id);
	return in_blocks(*h, h == &p->malloc ? t->sample_bytes : 0);
}

struct tm_tally_process tm_tally_of(const struct tm_tally *t, uint32_t process) {
	if (process >= t->process_count) return (struct tm_tally_process){ 0 };
	const struct process *p = &t->processes[process];
	struct tm_tally_process result = p->result;
	result.live_bytes += p->malloc.live_bytes;
	result.live_blocks += in_blocks(p->malloc, t->sample_bytes).live_count;
	return result;
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
