/* shared_rules.c - numbers for the modules of all processes; see shared_rules.h. */
#include "shared_rules.h"
#include "guest.h"

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
	slot->span_bytes = module->span_bytes;
	slot->frames_offset = module->frames_offset;
	memcpy(slot->build_id, module->build_id, sizeof slot->build_id);
	atomic_store_explicit(&slot->state, TM_SHARED_MODULE_KNOWN, memory_order_release);
	return true;
}

static bool is_of(const struct tm_shared_module *slot, const struct tm_shared_module *module) {
	return atomic_load_explicit(&slot->state, memory_order_acquire) == TM_SHARED_MODULE_KNOWN && slot->build_id_bytes == module->build_id_bytes &&
	       slot->span_bytes == module->span_bytes && slot->frames_offset == module->frames_offset &&
	       memcmp(slot->build_id, module->build_id, sizeof slot->build_id) == 0;
}

uint64_t tm_shared_key(const void *build_id, uint32_t build_id_bytes, uint64_t span_bytes, uint64_t frames_offset) {
	struct tm_shared_rules *shared = tm_shared_rules();
	struct tm_shared_module module = { .build_id_bytes = build_id_bytes, .span_bytes = span_bytes, .frames_offset = frames_offset };
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
