/* shared_rules.c - numbers for the modules of all processes, and their rules; see shared_rules.h. */
#include "shared_rules.h"
#include "unwind_rule.h"

#include <string.h>

#define PLACE_BITS 36u /* of an address in its module; 10 more number the modules */
#define BUILD_ID_MIN 8u /* bytes: a shorter one was chosen by hand, and may have been chosen twice */

struct tm_shared_rules *tm_shared_rules(void) {
	return tm_guest.shm && tm_guest.shm->rules_offset ? (struct tm_shared_rules *)((uint8_t *)tm_guest.shm + tm_guest.shm->rules_offset) : NULL;
}

static bool take(struct tm_shared_module *slot, const struct tm_shared_module *module) {
	uint32_t expected = TM_SHARED_MODULE_FREE;
	if (!atomic_compare_exchange_strong(&slot->state, &expected, TM_SHARED_MODULE_WRITING)) return false;
	slot->build_id_bytes = module->build_id_bytes;
	slot->identity = module->identity;
	slot->span_bytes = module->span_bytes;
	slot->frames_offset = module->frames_offset;
	memcpy(slot->build_id, module->build_id, sizeof slot->build_id);
	atomic_store_explicit(&slot->state, TM_SHARED_MODULE_KNOWN, memory_order_release);
	return true;
}

static bool is_of(const struct tm_shared_module *slot, const struct tm_shared_module *module) {
	return atomic_load_explicit(&slot->state, memory_order_acquire) == TM_SHARED_MODULE_KNOWN && slot->build_id_bytes == module->build_id_bytes &&
	       slot->identity == module->identity && slot->span_bytes == module->span_bytes && slot->frames_offset == module->frames_offset &&
	       memcmp(slot->build_id, module->build_id, sizeof slot->build_id) == 0;
}

uint64_t tm_shared_key(const void *build_id, uint32_t build_id_bytes, uint64_t identity, uint64_t span_bytes, uint64_t frames_offset) {
	struct tm_shared_rules *shared = tm_shared_rules();
	struct tm_shared_module module = { .build_id_bytes = build_id_bytes, .identity = identity, .span_bytes = span_bytes, .frames_offset = frames_offset };
	uint32_t first;
	if (!shared || build_id_bytes < BUILD_ID_MIN || build_id_bytes > sizeof module.build_id || span_bytes >> PLACE_BITS) return 0;
	memcpy(module.build_id, build_id, build_id_bytes);
	memcpy(&first, build_id, sizeof first); /* a hash of the whole file, as linkers make it */
	for (uint32_t i = 0; i < TM_SHARED_MODULES; i++) {
		uint32_t number = (first + i) % TM_SHARED_MODULES;
		if (is_of(&shared->modules[number], &module) || take(&shared->modules[number], &module)) return (uint64_t)(number + 1) << PLACE_BITS;
	}
	return 0;
}

/* --- rules --- */

#define PLACE(key) ((key) & (((uint64_t)1 << PLACE_BITS) - 1))
#define NUMBER(key) ((uint32_t)((key) >> PLACE_BITS) - 1)

_Static_assert(PLACE_BITS + TM_RULE_BITS <= 64, "an entry of a list");

/* How far a module's list was taken over, for the module that lies at `base`; another copy of the same file goes without. */
struct taken {
	_Atomic uintptr_t base; /* 0: nothing yet */
	_Atomic uint32_t block, entries; /* number of the last block, and how many of its entries */
};

static TM_ROOMY struct taken taken[TM_SHARED_MODULES];
static _Atomic bool taking;
static _Atomic bool forgot; /* what it knew, at least once */

static uint64_t shared_table(struct tm_shared_rules *shared) {
	return tm_rules_word(shared->rules, TM_RULE_SETS_BITS_MOST);
}

static struct tm_rule_block *block_at(struct tm_shared_rules *shared, uint32_t number) {
	return number - 1 < TM_RULE_BLOCKS ? &shared->blocks[number - 1] : NULL;
}

/* Keeps the rules of the block from entry `at` on, and returns where it ended. *found: the one at `place`, if it is among them. */
static uint32_t keep_block(struct tm_rule_block *block, uint32_t at, uint64_t span_bytes, uintptr_t base, uint64_t place, uint32_t *found) {
	uint32_t used = atomic_load_explicit(&block->used, memory_order_acquire);
	for (; at < used && at < TM_RULE_BLOCK_ENTRIES; at++) {
		uint64_t entry = atomic_load_explicit(&block->entries[at], memory_order_relaxed);
		uint32_t rule = (uint32_t)entry & TM_RULE_MASK;
		if (!rule || entry >> TM_RULE_BITS >= span_bytes) continue;
		if (entry >> TM_RULE_BITS == place) *found = rule;
		tm_rule_keep(base + (uintptr_t)(entry >> TM_RULE_BITS), rule);
	}
	return at;
}

/* The module's list from where the last call ended. */
static uint32_t take_over(struct tm_shared_rules *shared, struct taken *t, uint32_t number, uintptr_t base, uint64_t place) {
	uint32_t found = 0, last = atomic_load_explicit(&t->block, memory_order_relaxed), at = atomic_load_explicit(&t->entries, memory_order_relaxed);
	uint32_t next = last ? last : atomic_load_explicit(&shared->lists[number], memory_order_acquire);
	struct tm_rule_block *block;
	for (uint32_t i = 0; i <= TM_RULE_BLOCKS_OF_MODULE && (block = block_at(shared, next)) != NULL; i++) {
		at = keep_block(block, next == last ? at : 0, shared->modules[number].span_bytes, base, place, &found);
		last = next;
		if (at < TM_RULE_BLOCK_ENTRIES) break;
		next = atomic_load_explicit(&block->next, memory_order_acquire);
	}
	atomic_store_explicit(&t->block, last, memory_order_relaxed);
	atomic_store_explicit(&t->entries, at, memory_order_relaxed);
	return found;
}

/* There is nothing to be found that this process does not have: no other has been there, and what it left itself it has not forgotten. */
static bool is_alone(void) {
	return atomic_load_explicit(&tm_guest.shm->next_process, memory_order_relaxed) == 1 && !atomic_load_explicit(&forgot, memory_order_relaxed);
}

uint32_t tm_shared_find(uint64_t key, uintptr_t ip) {
	struct tm_shared_rules *shared = tm_shared_rules();
	uint32_t number = NUMBER(key), found = 0;
	uintptr_t base = ip - (uintptr_t)PLACE(key), none = 0;
	if (!shared || number >= TM_SHARED_MODULES || is_alone()) return 0;
	if (!atomic_exchange_explicit(&taking, true, memory_order_acquire)) {
		struct taken *t = &taken[number];
		if (atomic_compare_exchange_strong(&t->base, &none, base) || none == base) found = take_over(shared, t, number, base, PLACE(key));
		atomic_store_explicit(&taking, false, memory_order_release);
	}
	return found ? found : tm_rule_in(shared_table(shared), key);
}

/* The block that a chain goes on with; 0: there are no more. */
static uint32_t lengthen(struct tm_shared_rules *shared, _Atomic uint32_t *link) {
	uint32_t number = 0;
	if (atomic_load(&shared->blocks_used) >= TM_RULE_BLOCKS) return 0;
	uint32_t fresh = atomic_fetch_add(&shared->blocks_used, 1) + 1;
	if (fresh > TM_RULE_BLOCKS) return 0;
	return atomic_compare_exchange_strong(link, &number, fresh) ? fresh : number; /* else another was quicker, and ours is never used */
}

/* Where a module's chain was seen to end, as a chain is walked for each rule otherwise: the number of a block, and how many are in front of it. */
#define SEEN_BITS 16u
static TM_ROOMY _Atomic uint32_t seen_end[TM_SHARED_MODULES];
_Static_assert(TM_RULE_BLOCKS < 1u << SEEN_BITS && TM_RULE_BLOCKS_OF_MODULE < 1u << (32 - SEEN_BITS), "two numbers in one word");

static void put_in_list(struct tm_shared_rules *shared, uint32_t module, uint64_t entry) {
	uint32_t seen = atomic_load_explicit(&seen_end[module], memory_order_relaxed), number = seen & ((1u << SEEN_BITS) - 1);
	_Atomic uint32_t *link = &shared->lists[module];
	for (uint32_t i = seen >> SEEN_BITS; i < TM_RULE_BLOCKS_OF_MODULE; i++) {
		if (!number) number = atomic_load_explicit(link, memory_order_acquire);
		if (!number) number = lengthen(shared, link);
		struct tm_rule_block *block = block_at(shared, number);
		if (!block) return;
		uint32_t at = atomic_load_explicit(&block->used, memory_order_relaxed);
		if (at < TM_RULE_BLOCK_ENTRIES) at = atomic_fetch_add(&block->used, 1);
		if (at < TM_RULE_BLOCK_ENTRIES) {
			atomic_store_explicit(&seen_end[module], i << SEEN_BITS | number, memory_order_relaxed);
			atomic_store_explicit(&block->entries[at], entry, memory_order_release);
			return;
		}
		link = &block->next;
		number = 0;
	}
	atomic_store_explicit(&seen_end[module], TM_RULE_BLOCKS_OF_MODULE << SEEN_BITS, memory_order_relaxed);
}

void tm_shared_fetch(uint64_t key) {
	struct tm_shared_rules *shared = tm_shared_rules();
	if (shared) __builtin_prefetch((const void *)tm_rule_set(shared_table(shared), tm_rule_hash(key)), 1);
}

void tm_shared_add(uint64_t key, uint32_t rule) {
	struct tm_shared_rules *shared = tm_shared_rules();
	if (!shared || NUMBER(key) >= TM_SHARED_MODULES) return;
	tm_rule_put(shared_table(shared), key, rule);
	put_in_list(shared, NUMBER(key), PLACE(key) << TM_RULE_BITS | rule);
}

void tm_shared_forget(void) {
	atomic_store_explicit(&forgot, true, memory_order_relaxed);
	for (uint32_t i = 0; i < TM_SHARED_MODULES; i++) {
		if (!atomic_load_explicit(&taken[i].base, memory_order_relaxed)) continue;
		atomic_store_explicit(&taken[i].block, 0, memory_order_relaxed);
		atomic_store_explicit(&taken[i].entries, 0, memory_order_relaxed);
		atomic_store_explicit(&taken[i].base, 0, memory_order_release);
	}
}

void tm_shared_forked(void) {
	atomic_store(&taking, false);
}
