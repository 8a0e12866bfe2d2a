/* heap_table.c - heaps and categories that have numbers: see heap_table.h. */
#include "heap_table.h"

#include "collector.h"
#include "controls.h"
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POOL_INTERVAL_NS 1000000u /* a pool that only hands out and takes back is written so often; the blocks tell what is between */

/* --- heaps --- */

void tm_process_need_heaps(struct tm_collector *c, struct tm_process *p, uint32_t wanted) {
	static const struct {
		uint32_t bit;
		const char *name, *kind;
	} heaps[] = {
		{ TM_HEAP_MALLOC, "malloc", "host" },
		{ TM_HEAP_MMAP, "mmap", "mapping" },
		{ TM_HEAP_MMAP_FILE, "mmap-file", "file" },
	};
	for (size_t i = 0; i < sizeof heaps / sizeof heaps[0]; i++) {
		if (!(wanted & ~p->heaps & heaps[i].bit)) continue;
		struct tm_meta *meta = tm_group_add(c->group, TM_RECORD_HEAP);
		meta->heap = (struct tm_heap){ .id = ++c->processes.last_heap,
					       .process = p->id,
					       .device = -1,
					       .name = tm_text_of(heaps[i].name),
					       .kind = tm_text_of(heaps[i].kind) };
		p->heaps |= heaps[i].bit;
		p->heap_ids[i] = c->processes.last_heap;
	}
}

uint32_t tm_process_default_heap(struct tm_collector *c, struct tm_process *p, enum tm_default_heap heap) {
	if (!(p->heaps & heap)) {
		tm_process_need_row(c, p);
		tm_process_need_heaps(c, p, heap);
	}
	return p->heap_ids[heap == TM_HEAP_MALLOC ? 0 : heap == TM_HEAP_MMAP ? 1 : 2];
}

/* The id in the trace of a heap by its number, for a parent; 0: none. */
static uint32_t id_of(struct tm_collector *c, struct tm_process *p, uint64_t number) {
	static const uint32_t defaults[] = { 0, TM_HEAP_MALLOC, TM_HEAP_MMAP, TM_HEAP_MMAP_FILE };
	if (number == 0) return 0;
	if (number < sizeof defaults / sizeof defaults[0]) return tm_process_default_heap(c, p, (enum tm_default_heap)defaults[number]);
	if (number - TM_HEAP_NUMBER_OWN >= p->own.heap_count) return 0;
	return p->own.heaps[number - TM_HEAP_NUMBER_OWN].id;
}

static struct tm_own_heap *place_of(struct tm_process *p, uint64_t number) {
	struct tm_own_numbers *o = &p->own;
	uint64_t at = number - TM_HEAP_NUMBER_OWN;
	if (at >= TM_OWN_NUMBERS_MAX) return NULL;
	if (at >= o->heap_count) {
		o->heaps = tm_memory_grow(o->heaps, &o->heap_capacity, at + 1, sizeof o->heaps[0]);
		memset(o->heaps + o->heap_count, 0, (at + 1 - o->heap_count) * sizeof o->heaps[0]);
		o->heap_count = at + 1;
	}
	return &o->heaps[at];
}

/* Heaps whose memory is counted in others without our knowing which: Python's arenas are mappings, NVTX and ITT do not tell. */
static bool lies_elsewhere(const char *kind, size_t n) {
	static const char *const kinds[] = { "python", "nvtx",    "itt",    "device", "device-pool", "device-graph", "device-mapping",
					     "address-space", "imported", "managed", "pinned" };
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		if (strlen(kinds[i]) == n && !memcmp(kinds[i], kind, n)) return true;
	return false;
}

static void write_heap(struct tm_collector *c, struct tm_process *p, struct tm_own_heap *heap, uint32_t parent, int64_t device, struct tm_text name,
		       struct tm_text kind) {
	tm_process_need_row(c, p);
	heap->id = ++c->processes.last_heap;
	struct tm_meta *meta = tm_group_add(c->group, TM_RECORD_HEAP);
	meta->heap = (struct tm_heap){ .id = heap->id, .process = p->id, .parent = parent, .device = device };
	meta->heap.name = tm_group_text(c->group, name.data, name.size);
	meta->heap.kind = tm_group_text(c->group, kind.data, kind.size);
}

bool tm_heap_told(struct tm_collector *c, struct tm_process *p, uint64_t number, uint64_t parent, uint64_t device, const char *name,
		  size_t name_bytes, const char *kind, size_t kind_bytes) {
	struct tm_own_heap *heap = place_of(p, number);
	if (!heap || device > INT32_MAX || parent == number) return false;
	uint32_t text = tm_intern(c, name, name_bytes);
	if (heap->name == text) return true;
	uint32_t parent_id = id_of(c, p, parent);
	heap->name = text;
	heap->is_root = parent_id == 0 && !lies_elsewhere(kind, kind_bytes);
	write_heap(c, p, heap, parent_id, (int64_t)device - 1, (struct tm_text){ name, name_bytes }, (struct tm_text){ kind, kind_bytes });
	if (heap->is_root) tm_tally_heap_is_root(c->tally, p->id, heap->id);
	tm_alerts_heap(c, p, heap->id, (struct tm_text){ name, name_bytes });
	return true;
}

struct tm_own_heap *tm_heap_of_number(struct tm_collector *c, struct tm_process *p, uint64_t number) {
	char name[48];
	struct tm_own_heap *heap = place_of(p, number);
	if (!heap || heap->id) return heap;
	snprintf(name, sizeof name, "heap %llu (its name was lost)", (unsigned long long)number);
	write_heap(c, p, heap, 0, -1, tm_text_of(name), tm_text_of("unknown"));
	return heap;
}

const struct tm_own_heap *tm_heap_of_name(const struct tm_process *p, uint32_t name) {
	for (size_t i = 0; name && i < p->own.heap_count; i++)
		if (p->own.heaps[i].name == name) return &p->own.heaps[i];
	return NULL;
}

static int64_t bytes_or_unknown(uint64_t bytes) {
	return bytes <= INT64_MAX ? (int64_t)bytes : -1;
}

static void write_pool(struct tm_collector *c, struct tm_own_heap *heap, struct tm_pool_numbers n) {
	heap->written_ticks = n.ticks;
	heap->reserved = n.reserved;
	heap->kept.ticks = 0;
	struct tm_meta *meta = tm_group_add(c->group, TM_RECORD_POOL_STATE);
	meta->pool_state = (struct tm_pool_state){
		.heap = heap->id,
		.ns = n.ticks,
		.allocated = bytes_or_unknown(n.allocated),
		.reserved = bytes_or_unknown(n.reserved),
		.active = bytes_or_unknown(n.active),
		.inactive = bytes_or_unknown(n.inactive),
	};
}

bool tm_pool_told(struct tm_collector *c, struct tm_process *p, uint64_t number, const struct tm_pool_numbers *n) {
	struct tm_own_heap *heap = tm_heap_of_number(c, p, number);
	if (!heap) return false;
	uint64_t now = tm_timebase_ticks(&c->timebase), interval = now - tm_timebase_ticks_before_now(&c->timebase, POOL_INTERVAL_NS);
	bool soon = heap->written_ticks && n->ticks - heap->written_ticks < interval, plain = n->active > INT64_MAX;
	if (soon && plain && n->reserved == heap->reserved) heap->kept = *n;
	else write_pool(c, heap, *n);
	return true;
}

void tm_pools_settle(struct tm_collector *c, struct tm_process *p) {
	for (size_t i = 0; i < p->own.heap_count; i++)
		if (p->own.heaps[i].kept.ticks) write_pool(c, &p->own.heaps[i], p->own.heaps[i].kept);
}

/* --- categories --- */

bool tm_category_told(struct tm_collector *c, struct tm_process *p, uint32_t number, const char *name, size_t n) {
	struct tm_own_numbers *o = &p->own;
	uint32_t at = number - TM_SCOPE_CATEGORY_OWN;
	if (at >= TM_OWN_NUMBERS_MAX) return false;
	if (at >= o->category_count) {
		o->categories = tm_memory_grow(o->categories, &o->category_capacity, at + 1u, sizeof o->categories[0]);
		memset(o->categories + o->category_count, 0, (at + 1u - o->category_count) * sizeof o->categories[0]);
		o->category_count = at + 1u;
	}
	o->categories[at] = tm_intern(c, name, n);
	return true;
}

uint32_t tm_category_text(struct tm_collector *c, const struct tm_process *p, uint32_t number) {
	static const char *const names[TM_SCOPE_CATEGORY_OWN] = {
#define X(name, code, text) [code] = text,
		TM_SCOPE_CATEGORIES(X)
#undef X
	};
	const char *name = number < TM_SCOPE_CATEGORY_OWN ? names[number] : "unknown";
	if (number == 0) return 0;
	if (number >= TM_SCOPE_CATEGORY_OWN && number - TM_SCOPE_CATEGORY_OWN < p->own.category_count) {
		uint32_t told = p->own.categories[number - TM_SCOPE_CATEGORY_OWN];
		if (told) return told;
	}
	if (!name) name = "unknown";
	if (number < TM_SCOPE_CATEGORY_OWN && c->category_texts[number]) return c->category_texts[number];
	uint32_t text = tm_intern(c, name, strlen(name));
	if (number < TM_SCOPE_CATEGORY_OWN) c->category_texts[number] = text;
	return text;
}

void tm_own_numbers_release(struct tm_own_numbers *o) {
	free(o->heaps);
	free(o->categories);
	*o = (struct tm_own_numbers){ 0 };
}
