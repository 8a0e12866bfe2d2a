/* heaps.c - names that have numbers: see heaps.h.
 *
 * A table is an array with open addressing; a place is taken by compare-and-swap, filled, and then opened to readers. A thread that dies or
 * forks in between leaves a place that is never opened: others wait for it a little and then go past it.
 */
#include "heaps.h"
#include "scope.h"

#include <string.h>
#include <sys/syscall.h>

#define PATIENCE 1000u /* yields, until a place that is being filled is passed by */

enum place_state { EMPTY = 0, FILLING = 1, READY = 2 };

struct place {
	_Atomic uint32_t state;
	uint32_t hash, name_bytes, parent;
	int device;
	const char *kind;
	char name[TM_NAME_KEPT + 1];
};

static TM_ROOMY struct place heaps[TM_HEAPS_MAX], categories[TM_CATEGORIES_MAX];
static _Atomic uint32_t full, full_noted;

static uint32_t hash_of(const char *name, size_t n) {
	uint32_t hash = 2166136261u;
	for (size_t i = 0; i < n; i++) hash = (hash ^ (uint8_t)name[i]) * 16777619u;
	return hash;
}

static enum place_state state_of(struct place *p) {
	uint32_t state = atomic_load_explicit(&p->state, memory_order_acquire);
	for (unsigned i = 0; state == FILLING && i < PATIENCE; i++) {
		if (!tm_is_sandboxed()) tm_syscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
		state = atomic_load_explicit(&p->state, memory_order_acquire);
	}
	return (enum place_state)state;
}

static bool is_named(const struct place *p, uint32_t hash, const char *name, size_t n) {
	return p->hash == hash && p->name_bytes == n && memcmp(p->name, name, n) == 0;
}

/* Index of the place of that name; `fresh`, if given, is put where it is not found. -1: not found, or no place is left. */
static int find(struct place *table, unsigned size, const char *name, size_t n, const struct place *fresh) {
	if (n > TM_NAME_KEPT) n = TM_NAME_KEPT;
	uint32_t hash = hash_of(name, n);
	for (unsigned i = 0; i < size; i++) {
		unsigned at = (hash + i) % size;
		struct place *p = &table[at];
		uint32_t empty = EMPTY;
		if (atomic_load_explicit(&p->state, memory_order_acquire) == EMPTY) {
			if (!fresh) return -1;
			if (atomic_compare_exchange_strong(&p->state, &empty, FILLING)) {
				p->hash = hash;
				p->name_bytes = (uint32_t)n;
				p->kind = fresh->kind;
				p->parent = fresh->parent;
				p->device = fresh->device;
				memcpy(p->name, name, n);
				atomic_store_explicit(&p->state, READY, memory_order_release);
				return (int)at;
			}
		}
		if (state_of(p) == READY && is_named(p, hash, name, n)) return (int)at;
	}
	return -1;
}

static struct place *heap_at(uint32_t number) {
	uint32_t at = number - TM_HEAP_NUMBER_OWN;
	if (at >= TM_HEAPS_MAX || atomic_load_explicit(&heaps[at].state, memory_order_acquire) != READY) return NULL;
	return &heaps[at];
}

static void note_full(struct tm_thread *t) {
	if (!full || atomic_exchange(&full_noted, 1)) return;
	tm_emit_note(t, "too-many-heaps",
		     "the program declares more heaps than are followed (512): allocations in the others are not in this trace");
}

/* Names that the process' own heaps have anyway. */
static uint32_t default_heap(const char *name, size_t n) {
	static const struct {
		const char *name;
		uint32_t number;
	} defaults[] = { { "malloc", TM_HEAP_NUMBER_MALLOC }, { "mmap", TM_HEAP_NUMBER_MMAP }, { "mmap-file", TM_HEAP_NUMBER_MMAP_FILE } };
	for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++)
		if (strlen(defaults[i].name) == n && memcmp(defaults[i].name, name, n) == 0) return defaults[i].number;
	return 0;
}

uint32_t tm_heap_number(const char *name, size_t n, const char *kind, uint32_t parent, int device) {
	struct place fresh = { .kind = kind, .parent = parent, .device = device };
	if (default_heap(name, n)) return 0;
	if (parent >= TM_HEAP_NUMBER_OWN && !heap_at(parent)) fresh.parent = 0;
	int at = find(heaps, TM_HEAPS_MAX, name, n, &fresh);
	if (at >= 0) return (uint32_t)at + TM_HEAP_NUMBER_OWN;
	atomic_store(&full, 1);
	return 0;
}

uint32_t tm_heap_find(const char *name, size_t n) {
	uint32_t number = default_heap(name, n);
	if (number) return number;
	int at = find(heaps, TM_HEAPS_MAX, name, n, NULL);
	return at >= 0 ? (uint32_t)at + TM_HEAP_NUMBER_OWN : 0;
}

static uint32_t number_of(const void *handle) {
	uintptr_t offset = (uintptr_t)handle - (uintptr_t)heaps[0].name;
	return offset < sizeof heaps && offset % sizeof heaps[0] == 0 ? (uint32_t)(offset / sizeof heaps[0]) + TM_HEAP_NUMBER_OWN : 0;
}

bool tm_heap_is_handle(const void *heap) {
	return heap_at(number_of(heap)) != NULL;
}

uint32_t tm_heap_of_handle(const char *heap) {
	uint32_t number = number_of(heap);
	if (number) return number;
	return tm_heap_find(heap, tm_name_bytes(heap));
}

const char *tm_heap_name(uint32_t number) {
	static const char *const defaults[] = { NULL, "malloc", "mmap", "mmap-file" };
	if (number < sizeof defaults / sizeof defaults[0]) return defaults[number];
	const struct place *p = heap_at(number);
	return p ? p->name : NULL;
}

/* --- said in the ring of the thread --- */

static bool is_told(const uint64_t *told, uint32_t at) {
	return told[at / 64] >> at % 64 & 1;
}

/* False: there was no room for the record. */
static bool tell(struct tm_thread *t, uint64_t *told, uint32_t at, enum tm_control_op op, unsigned x, const uint64_t *words, unsigned count,
		 const char *text, size_t n) {
	if (!tm_emit_control(t, op, 0, x, words, count, text, n)) return false;
	told[at / 64] |= 1ull << at % 64;
	return true;
}

static bool tell_heap(struct tm_thread *t, uint32_t number) {
	const struct place *p = heap_at(number);
	uint64_t words[3] = { number, p->parent, (uint64_t)(p->device + 1) };
	char text[TM_NAME_KEPT + 32];
	size_t kind_bytes = strnlen(p->kind, 31);
	memcpy(text, p->name, p->name_bytes);
	memcpy(text + p->name_bytes, p->kind, kind_bytes);
	return tell(t, t->heaps_told, number - TM_HEAP_NUMBER_OWN, TM_CTL_HEAP, p->name_bytes, words, 3, text, p->name_bytes + kind_bytes);
}

/* Parents first: the record of a heap names one that is known. */
bool tm_heap_tell(struct tm_thread *t, uint32_t number) {
	if (!heap_at(number)) {
		note_full(t);
		return false;
	}
	while (!is_told(t->heaps_told, number - TM_HEAP_NUMBER_OWN)) {
		uint32_t top = number;
		for (const struct place *p = heap_at(top); p && p->parent >= TM_HEAP_NUMBER_OWN; p = heap_at(top)) {
			if (is_told(t->heaps_told, p->parent - TM_HEAP_NUMBER_OWN)) break;
			top = p->parent;
		}
		if (!tell_heap(t, top)) return false;
	}
	return true;
}

void tm_note_limit(_Atomic uint32_t *noted, const char *kind, const char *text) {
	struct tm_thread *t = atomic_load(noted) ? NULL : tm_hook_enter();
	if (!t) return;
	if (!atomic_exchange(noted, 1)) tm_emit_note(t, kind, text);
	tm_hook_leave(t);
}

size_t tm_name_bytes(const char *name) {
	static _Atomic uint32_t noted;
	size_t n = strnlen(name, TM_NAME_KEPT + 1), kept;
	if (TM_LIKELY(n <= TM_NAME_KEPT)) return n;
	kept = tm_text_end(name, TM_NAME_KEPT);
	tm_note_limit(&noted, "cut-texts",
		      "names of heaps or categories longer than 240 bytes were cut there: those that agree so far are one");
	return kept;
}

uint32_t tm_category_number(const char *name, size_t n, uint32_t otherwise) {
	static _Atomic uint32_t noted;
	struct place fresh = { .kind = "" };
	int at = find(categories, TM_CATEGORIES_MAX, name, n, &fresh);
	if (at >= 0) return (uint32_t)at + TM_SCOPE_CATEGORY_OWN;
	tm_note_limit(
		&noted, "too-many-categories",
		"the program uses more scope categories (NVTX domains) than are kept apart (256): the newer ones are 'nvtx' or 'user'");
	return otherwise;
}

void tm_category_tell(struct tm_thread *t, uint32_t number) {
	uint32_t at = number - TM_SCOPE_CATEGORY_OWN;
	if (at >= TM_CATEGORIES_MAX || is_told(t->categories_told, at)) return;
	const struct place *p = &categories[at];
	if (atomic_load_explicit(&p->state, memory_order_acquire) != READY) return;
	tell(t, t->categories_told, at, TM_CTL_CATEGORY, number, NULL, 0, p->name, p->name_bytes);
}
