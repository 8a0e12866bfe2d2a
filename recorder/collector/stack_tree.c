/* stack_tree.c - frames and nodes by id: see stack_tree.h. */
#include "stack_tree.h"

#include "collector.h"
#include "memory.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_ENTRIES (16u << 10)
#define CACHE_LINE 64u
#define ID_MASK 0xffffffffu
#define SLOTS_AT_FIRST 64u

static uint64_t mix(uint64_t a, uint64_t b) {
	uint64_t h = (a ^ (b << 32 | b >> 32)) * 0x9E3779B97F4A7C15u;
	h ^= h >> 29;
	return h * 0xBF58476D1CE4E5B9u;
}

static uint64_t frame_hash(const struct tm_frame_row *f) {
	return mix(f->address, (uint64_t)f->process << 32 | f->module);
}

/* A slot holds the hash's upper half and the id; 0 is empty. */
static uint64_t slot_value(uint64_t hash, uint32_t id) {
	return (hash & ~(uint64_t)ID_MASK) | id;
}

static void slot_put(struct tm_slot_table *t, uint64_t value) {
	size_t at = (size_t)(value >> 32) & t->mask;
	while (t->slots[at]) at = (at + 1) & t->mask;
	t->slots[at] = value;
}

static void free_slots(struct tm_slot_table *t) {
	tm_memory_free_table(t->slots, t->mask + 1, sizeof t->slots[0]);
}

static void slots_reserve(struct tm_slot_table *t) {
	if (t->count * 2 < t->mask) return;
	struct tm_slot_table grown = { .mask = t->mask ? t->mask * 2 + 1 : SLOTS_AT_FIRST - 1, .count = t->count };
	grown.slots = tm_memory_new_table(grown.mask + 1, sizeof grown.slots[0]);
	for (size_t i = 0; t->slots && i <= t->mask; i++)
		if (t->slots[i]) slot_put(&grown, t->slots[i]);
	free_slots(t);
	*t = grown;
}

static void slot_add(struct tm_slot_table *t, uint64_t hash, uint32_t id) {
	slots_reserve(t);
	slot_put(t, slot_value(hash, id));
	t->count++;
}

static void write_frame(struct tm_group *g, uint32_t id, enum tm_frame_kind kind, const struct tm_frame_row *row) {
	if (!g->frame_count) g->first_frame = id;
	g->frames = tm_memory_grow(g->frames, &g->frame_capacity, g->frame_count + 1, sizeof g->frames[0]);
	g->frames[g->frame_count++] = (struct tm_frame){ kind, row->process, row->module, row->address };
}

/* --- tables of a process --- */

static size_t seen_words(const struct tm_node_table *n) {
	return (n->mask + 1) / 64 * TM_SEEN_BITS;
}

static struct tm_process_stacks *begin_stacks(struct tm_stack_tree *t, uint32_t process) {
	size_t had = t->process_count;
	t->processes = tm_memory_grow(t->processes, &t->process_count, (size_t)process + 1, sizeof t->processes[0]);
	if (t->process_count > had) memset(t->processes + had, 0, (t->process_count - had) * sizeof t->processes[0]);
	struct tm_process_stacks *own = t->processes[process] = tm_memory_new(1, sizeof *own);
	slots_reserve(&own->frames);
	own->nodes.mask = SLOTS_AT_FIRST - 1;
	own->nodes.slots = tm_memory_new_table(SLOTS_AT_FIRST, sizeof own->nodes.slots[0]);
	own->nodes.seen = tm_memory_new_table(seen_words(&own->nodes), sizeof own->nodes.seen[0]);
	return own;
}

/* NULL: the process has none. */
static struct tm_process_stacks *known_stacks_of(const struct tm_stack_tree *t, uint32_t process) {
	return process < t->process_count ? t->processes[process] : NULL;
}

static struct tm_process_stacks *stacks_of(struct tm_stack_tree *t, uint32_t process) {
	struct tm_process_stacks *own = known_stacks_of(t, process);
	return own ? own : begin_stacks(t, process);
}

static void end_stacks(struct tm_stack_tree *t, uint32_t process) {
	struct tm_process_stacks *own = known_stacks_of(t, process);
	if (!own) return;
	t->unknown_count -= own->unknown.count;
	free_slots(&own->frames);
	tm_memory_free_table(own->nodes.ids, own->nodes.capacity, sizeof own->nodes.ids[0]);
	tm_memory_free_table(own->nodes.slots, own->nodes.mask + 1, sizeof own->nodes.slots[0]);
	tm_memory_free_table(own->nodes.seen, seen_words(&own->nodes), sizeof own->nodes.seen[0]);
	free(own->unknown.all);
	free(own);
	t->processes[process] = NULL;
}

/* --- frames --- */

static void add_unknown(struct tm_stack_tree *t, const struct tm_frame_row *row, uint32_t id) {
	struct tm_unknown_frames *u = &stacks_of(t, row->process)->unknown;
	u->all = tm_memory_grow(u->all, &u->capacity, u->count + 1, sizeof u->all[0]);
	u->all[u->count++] = (struct tm_unknown_frame){ row->address, t->event_ticks, id };
	t->unknown_count++;
}

static uint32_t add_frame(struct tm_collector *c, uint64_t hash, struct tm_frame_row row) {
	struct tm_stack_tree *t = &c->stacks;
	t->frames = tm_memory_grow(t->frames, &t->frame_capacity, t->frame_count + 1, sizeof t->frames[0]);
	t->frames[t->frame_count++] = row;
	uint32_t id = (uint32_t)t->frame_count;
	slot_add(&stacks_of(t, row.process)->frames, hash, id);
	write_frame(c->group, id, TM_FRAME_NATIVE, &row);
	if (!row.module) add_unknown(t, &row, id);
	return id;
}

uint32_t tm_stack_add_python_frame(struct tm_collector *c, const struct tm_process *p, uint64_t number) {
	struct tm_stack_tree *t = &c->stacks;
	t->frames = tm_memory_grow(t->frames, &t->frame_capacity, t->frame_count + 1, sizeof t->frames[0]);
	struct tm_frame_row *row = &t->frames[t->frame_count++];
	*row = (struct tm_frame_row){ number, p->id, 0 };
	write_frame(c->group, (uint32_t)t->frame_count, TM_FRAME_PYTHON, row);
	return (uint32_t)t->frame_count;
}

static uint32_t frame_of(struct tm_collector *c, const struct tm_process *p, uint64_t address) {
	struct tm_stack_tree *t = &c->stacks;
	struct tm_frame_row row = { address, p->id, tm_module_at(c, p, address) };
	const struct tm_slot_table *table = &stacks_of(t, p->id)->frames;
	uint64_t hash = frame_hash(&row);
	for (size_t at = (size_t)(hash >> 32) & table->mask; table->slots[at]; at = (at + 1) & table->mask) {
		uint64_t slot = table->slots[at];
		if ((slot ^ hash) & ~(uint64_t)ID_MASK) continue;
		const struct tm_frame_row *known = &t->frames[(slot & ID_MASK) - 1];
		if (known->address == row.address && known->process == row.process && known->module == row.module) return (uint32_t)slot;
	}
	return add_frame(c, hash, row);
}

/* --- frames by their address --- */

static inline struct tm_frame_cache_entry *cache_entry(const struct tm_stack_tree *t, const struct tm_process *p, uint64_t address) {
	uint64_t hash = (address ^ (uint64_t)p->modules.epoch << 48) * 0x9E3779B97F4A7C15u;
	return &t->cache[hash >> 32 & (CACHE_ENTRIES - 1)];
}

static inline uint32_t frame_at(struct tm_collector *c, const struct tm_process *p, uint64_t address) {
	struct tm_frame_cache_entry *e = cache_entry(&c->stacks, p, address);
	if (e->address == address && e->epoch == p->modules.epoch) return e->frame;
	uint32_t frame = frame_of(c, p, address);
	*e = (struct tm_frame_cache_entry){ address, p->modules.epoch, frame };
	return frame;
}

/* --- nodes --- */

static uint32_t add_node(struct tm_collector *c, uint32_t parent, uint32_t frame) {
	struct tm_stack_tree *t = &c->stacks;
	struct tm_group *g = c->group;
	t->nodes = tm_memory_grow_table(t->nodes, &t->node_capacity, t->node_count + 1, sizeof t->nodes[0]);
	t->nodes[t->node_count++] = (struct tm_node_row){ parent, frame };
	if (!g->nodes.count) g->first_node = t->node_count;
	tm_put_node(&g->nodes, t->node_count, parent, frame);
	return (uint32_t)t->node_count;
}

/* --- children that do not come right behind their parent: most of those that are looked for are new --- */

static uint64_t node_hash(uint32_t parent, uint32_t frame) {
	return mix(parent, frame + 0x51ed2701ull);
}

static uint64_t *seen_word(const struct tm_node_table *n, uint64_t hash) {
	return &n->seen[(hash >> 38) & ((n->mask * TM_SEEN_BITS + TM_SEEN_BITS - 1) >> 6)];
}

static uint64_t seen_bit(uint64_t hash) {
	return (uint64_t)1 << (hash >> 32 & 63);
}

static void put_waiting(struct tm_node_table *n) {
	while (n->waiting_count) {
		uint64_t value = n->waiting[--n->waiting_count];
		size_t at = (size_t)(value >> 32) & n->mask;
		while (n->slots[at]) at = (at + 1) & n->mask;
		n->slots[at] = (uint32_t)value;
	}
}

/* A new slot is fetched now and written a little later. */
static void node_table_put(struct tm_node_table *n, uint64_t hash, uint32_t id) {
	if (n->waiting_count == TM_SLOTS_WAITING) put_waiting(n);
	*seen_word(n, hash) |= seen_bit(hash);
	__builtin_prefetch(&n->slots[hash >> 32 & n->mask], 1);
	n->waiting[n->waiting_count++] = slot_value(hash, id);
}

/* What the table holds is told by its ids, and is not looked for in the old slots. */
static void node_table_grow(const struct tm_stack_tree *t, struct tm_node_table *n) {
	n->slots = tm_memory_clear_and_double(n->slots, n->mask + 1, sizeof n->slots[0]);
	n->seen = tm_memory_clear_and_double(n->seen, seen_words(n), sizeof n->seen[0]);
	n->mask = n->mask * 2 + 1;
	n->waiting_count = 0;
	for (size_t i = 0; i < n->count; i++) {
		const struct tm_node_row *row = &t->nodes[n->ids[i] - 1];
		node_table_put(n, node_hash(row->parent, row->frame), n->ids[i]);
	}
}

static void node_table_add(const struct tm_stack_tree *t, struct tm_node_table *n, uint64_t hash, uint32_t id) {
	if (n->count * 2 >= n->mask) node_table_grow(t, n);
	n->ids = tm_memory_grow_table(n->ids, &n->capacity, n->count + 1, sizeof n->ids[0]);
	n->ids[n->count++] = id;
	node_table_put(n, hash, id);
}

static uint32_t node_table_find(const struct tm_stack_tree *t, const struct tm_node_table *n, uint64_t hash, uint32_t parent,
				uint32_t frame) {
	for (size_t at = (size_t)(hash >> 32) & n->mask; n->slots[at]; at = (at + 1) & n->mask) {
		const struct tm_node_row *known = &t->nodes[n->slots[at] - 1];
		if (known->parent == parent && known->frame == frame) return n->slots[at];
	}
	return 0;
}

static uint32_t further_child(struct tm_collector *c, const struct tm_process *p, uint32_t parent, uint32_t frame) {
	struct tm_node_table *n = &stacks_of(&c->stacks, p->id)->nodes;
	uint64_t hash = node_hash(parent, frame);
	uint32_t id = 0;
	if (*seen_word(n, hash) & seen_bit(hash)) {
		put_waiting(n);
		id = node_table_find(&c->stacks, n, hash, parent, frame);
	}
	if (id) return id;
	id = add_node(c, parent, frame);
	node_table_add(&c->stacks, n, hash, id);
	return id;
}

static inline uint32_t child_of(struct tm_collector *c, const struct tm_process *p, uint32_t parent, uint32_t frame) {
	const struct tm_stack_tree *t = &c->stacks;
	if (parent == t->node_count) return add_node(c, parent, frame);
	const struct tm_node_row *next = &t->nodes[parent]; /* the first node of all is a root */
	return next->parent == parent && next->frame == frame ? parent + 1 : further_child(c, p, parent, frame);
}

uint32_t tm_stack_child_frame(struct tm_collector *c, const struct tm_process *p, uint32_t parent, uint32_t frame) {
	return child_of(c, p, parent, frame);
}

uint32_t tm_stack_child(struct tm_collector *c, const struct tm_process *p, uint32_t parent, uint64_t address) {
	return child_of(c, p, parent, frame_at(c, p, address));
}

_Static_assert(sizeof(struct tm_chain) == CACHE_LINE, "a chain is a cache line");

void tm_stack_set_chain(struct tm_collector *c, const struct tm_process *p, struct tm_chain *chain, const struct tm_chain *wanted) {
	uint32_t node = wanted->parent;
	*chain = *wanted;
	for (size_t i = 0; i < wanted->count; i++) chain->nodes[i] = node = child_of(c, p, node, frame_at(c, p, wanted->addresses[i]));
}

void tm_stack_descend(struct tm_collector *c, const struct tm_process *p, uint32_t parent, const uint64_t *addresses, size_t n, uint32_t *path) {
	for (size_t i = 0; i < n; i++) path[i] = parent = child_of(c, p, parent, frame_at(c, p, addresses[i]));
}

void tm_stack_tree_init(struct tm_stack_tree *t) {
	memset(t, 0, sizeof *t);
	t->cache = tm_memory_new(CACHE_ENTRIES, sizeof t->cache[0]);
	t->chain_memory = tm_memory_new((1u << TM_CHAIN_BITS) + 1, sizeof t->chains[0]);
	t->chains = (struct tm_chain *)(((uintptr_t)t->chain_memory + CACHE_LINE - 1) & ~(uintptr_t)(CACHE_LINE - 1));
}

void tm_stack_tree_keep_frames(struct tm_stack_tree *t) {
	tm_memory_free_table(t->nodes, t->node_capacity, sizeof t->nodes[0]);
	free(t->cache);
	free(t->chain_memory);
	for (size_t i = 0; i < t->process_count; i++) end_stacks(t, (uint32_t)i);
	free(t->processes);
	t->nodes = NULL;
	t->node_count = t->node_capacity = t->process_count = 0;
	t->cache = NULL;
	t->chains = NULL;
	t->chain_memory = NULL;
	t->processes = NULL;
}

void tm_stack_tree_release(struct tm_stack_tree *t) {
	tm_stack_tree_keep_frames(t);
	free(t->frames);
	*t = (struct tm_stack_tree){ 0 };
}

/* --- frames without a module --- */

/* NULL: the process has none. */
static struct tm_unknown_frames *unknown_of(const struct tm_stack_tree *t, uint32_t process) {
	struct tm_process_stacks *own = known_stacks_of(t, process);
	return own ? &own->unknown : NULL;
}

static bool is_within(const struct tm_unknown_frame *f, uint64_t low, uint64_t high) {
	return f->address - 1 >= low && f->address - 1 < high;
}

static void give_module(struct tm_collector *c, uint32_t id, uint32_t module) {
	struct tm_frame_row *row = &c->stacks.frames[id - 1];
	row->module = module;
	slot_add(&stacks_of(&c->stacks, row->process)->frames, frame_hash(row), id);
	struct tm_meta *meta = tm_group_add(c->group, TM_RECORD_FRAME_MODULE);
	meta->frame_module = (struct tm_frame_module){ id, module };
}

void tm_stack_tree_module_known(struct tm_collector *c, const struct tm_process *p, uint32_t module, uint64_t before_ns) {
	struct tm_unknown_frames *u = unknown_of(&c->stacks, p->id);
	const struct tm_module *m = &c->modules.all[module - 1];
	uint64_t load_ns = tm_time_map_ns(&c->timebase.map, m->load_ticks);
	if (!u) return;
	size_t first = before_ns == UINT64_MAX ? u->looked_up : 0, kept = first, looked_up = u->looked_up;
	for (size_t i = first; i < u->count; i++) {
		struct tm_unknown_frame f = u->all[i];
		bool within = is_within(&f, m->low, m->high);
		uint64_t ns = within ? tm_time_map_ns(&c->timebase.map, f.ticks) : 0;
		if (!within || (ns < load_ns && load_ns - ns > before_ns)) {
			u->all[kept++] = f;
			continue;
		}
		if (i < looked_up) u->looked_up--;
		give_module(c, f.id, module);
	}
	c->stacks.unknown_count -= u->count - kept;
	u->count = kept;
}

bool tm_stack_tree_has_new_unknown(const struct tm_stack_tree *t, uint32_t process, uint64_t low, uint64_t high) {
	const struct tm_unknown_frames *u = unknown_of(t, process);
	for (size_t i = u ? u->looked_up : 0; u && i < u->count; i++)
		if (is_within(&u->all[i], low, high)) return true;
	return false;
}

void tm_stack_tree_looked_up(struct tm_stack_tree *t, uint32_t process) {
	struct tm_unknown_frames *u = unknown_of(t, process);
	if (u) u->looked_up = u->count;
}

void tm_stack_tree_process_ended(struct tm_stack_tree *t, uint32_t process) {
	end_stacks(t, process);
}
