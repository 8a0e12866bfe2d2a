/* kept_texts.c - texts that stay: see kept_texts.h.
 *
 * An arena that only grows, and a table of offsets into it with open addressing. A thread fills in its entry before it shows it in the table; if another
 * one was faster with the same text, its own is wasted.
 */
#include "kept_texts.h"

#include "heaps.h"
#include "raw.h"

#include <string.h>

#define SLOTS 65536u
#define PROBES 64u
#define ALIGNMENT 16u

static uint8_t *_Atomic arena;
static _Atomic uint32_t used;
static TM_ROOMY _Atomic uint32_t slots[SLOTS]; /* offset / ALIGNMENT + 1; 0: empty */

static uint8_t *the_arena(void) {
	uint8_t *known = atomic_load(&arena), *expected = NULL, *made;
	if (known) return known;
	made = tm_raw_map(TM_KEPT_BYTES);
	if (!made || atomic_compare_exchange_strong(&arena, &expected, made)) return made;
	tm_raw_unmap(made, TM_KEPT_BYTES);
	return expected;
}

static uint32_t hash_of(enum tm_kept_kind kind, const char *text, size_t n) {
	uint32_t hash = (uint32_t)kind;
	for (size_t i = 0; i < n; i++) hash = (hash ^ (uint8_t)text[i]) * 16777619u;
	return hash ^ hash >> 15;
}

static struct tm_kept_text *none(void) {
	static _Atomic uint32_t noted;
	tm_note_limit(
		&noted, "too-many-texts",
		"the program registers more NVTX and ITT texts than are kept (16 MiB): ranges and tasks with the newer ones have no name");
	return NULL;
}

static struct tm_kept_text *make(enum tm_kept_kind kind, const char *text, size_t n) {
	uint8_t *base = the_arena();
	uint32_t bytes = (uint32_t)(sizeof(struct tm_kept_text) + n + 1 + ALIGNMENT - 1) & ~(ALIGNMENT - 1), at;
	struct tm_kept_text *k;
	if (!base || atomic_load(&used) > TM_KEPT_BYTES - bytes) return none();
	at = atomic_fetch_add(&used, bytes);
	if (at > TM_KEPT_BYTES - bytes) return none();
	k = (struct tm_kept_text *)(base + at);
	memcpy(k->text, text, n);
	k->bytes = (uint32_t)n;
	if (kind == TM_KEPT_DOMAIN) {
		k->domain.flags = 1;
		k->domain.text = k->text;
	} else {
		k->handle.text = k->text;
	}
	__atomic_store_n(&k->magic, (uint32_t)kind, __ATOMIC_RELEASE);
	return k;
}

struct tm_kept_text *tm_kept_text(enum tm_kept_kind kind, const char *text, size_t n) {
	struct tm_kept_text *mine = NULL;
	if (n > TM_RING_TEXT_MAX) n = TM_RING_TEXT_MAX;
	uint32_t hash = hash_of(kind, text, n);
	for (unsigned i = 0; i < PROBES; i++) {
		_Atomic uint32_t *slot = &slots[(hash + i) % SLOTS];
		uint32_t offset = atomic_load_explicit(slot, memory_order_acquire);
		if (!offset) {
			if (!mine) mine = make(kind, text, n);
			if (!mine) return NULL;
			uint32_t own = (uint32_t)(((uint8_t *)mine - atomic_load(&arena)) / ALIGNMENT) + 1;
			if (atomic_compare_exchange_strong(slot, &offset, own)) return mine;
		}
		struct tm_kept_text *k = (struct tm_kept_text *)(atomic_load(&arena) + (size_t)(offset - 1) * ALIGNMENT);
		if (k->magic == (uint32_t)kind && k->bytes == n && memcmp(k->text, text, n) == 0) return k;
	}
	return mine ? mine : make(kind, text, n); /* the table is crowded here: a handle of its own each time */
}

struct tm_kept_text *tm_kept_of(enum tm_kept_kind kind, const void *handle) {
	uint8_t *base = atomic_load(&arena);
	size_t offset = (uintptr_t)handle - (uintptr_t)base;
	if (!base || offset % ALIGNMENT || offset >= TM_KEPT_BYTES - sizeof(struct tm_kept_text)) return NULL;
	struct tm_kept_text *k = (struct tm_kept_text *)(base + offset);
	return __atomic_load_n(&k->magic, __ATOMIC_ACQUIRE) == (uint32_t)kind ? k : NULL;
}
