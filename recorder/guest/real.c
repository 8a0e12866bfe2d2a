/* real.c - the functions behind the hooks, and the memory that serves while they are not known yet.
 *
 * Flow:     the first hook of all -> tm_real_find() -> dlsym(RTLD_NEXT)
 * The trap: dlsym may allocate, and so calls the hook that is just looking for malloc. Such blocks come from an arena of ours: a static
 *           piece first, then anonymous mappings. free and realloc recognise its addresses; nothing of it is ever given back.
 * Threads:  the program has one thread when the first hook runs; the arena is lock-free all the same.
 */
#include "bootstrap.h"
#include "guest.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

struct tm_real tm_real;

#define ARENA_FIRST_BYTES 65536u
#define ARENA_BYTES (1u << 20)
#define ARENA_MAX 16u
#define HEADER_BYTES 16u /* the size of a block stands in front of it */

struct arena {
	uint8_t *base;
	size_t size_bytes;
	_Atomic size_t used_bytes;
};

static _Alignas(16) uint8_t first_bytes[ARENA_FIRST_BYTES];
static struct arena arenas[ARENA_MAX] = { { first_bytes, sizeof first_bytes, 0 } };
static _Atomic unsigned arena_count = 1;
static _Atomic unsigned finding; /* 0 not begun, 1 under way, 2 done */

static void *arena_take(struct arena *a, size_t alignment, size_t size) {
	size_t used = atomic_load(&a->used_bytes);
	for (;;) {
		uintptr_t start = ((uintptr_t)a->base + used + HEADER_BYTES + alignment - 1) & ~(uintptr_t)(alignment - 1);
		size_t end = start - (uintptr_t)a->base + size;
		if (end > a->size_bytes || end < size) return NULL;
		if (atomic_compare_exchange_weak(&a->used_bytes, &used, end)) {
			((size_t *)start)[-1] = size;
			return (void *)start;
		}
	}
}

void *tm_bootstrap_alloc(size_t alignment, size_t size) {
	if (alignment < 16) alignment = 16;
	for (unsigned i = 0; i < atomic_load(&arena_count); i++) {
		void *p = arena_take(&arenas[i], alignment, size);
		if (p) return p;
	}
	size_t bytes = size + alignment + HEADER_BYTES;
	bytes = bytes < ARENA_BYTES ? ARENA_BYTES : (bytes + TM_SHM_PAGE - 1) & ~(size_t)(TM_SHM_PAGE - 1);
	if (bytes < size) return NULL;
	long base = tm_syscall(SYS_mmap, 0, (long)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned slot = atomic_load(&arena_count);
	if (base < 0 || slot >= ARENA_MAX) return NULL;
	arenas[slot] = (struct arena){ (uint8_t *)base, bytes, 0 };
	atomic_store(&arena_count, slot + 1);
	return arena_take(&arenas[slot], alignment, size);
}

bool tm_bootstrap_owns(const void *p) {
	for (unsigned i = 0; i < atomic_load(&arena_count); i++) {
		uintptr_t offset = (uintptr_t)p - (uintptr_t)arenas[i].base;
		if (offset < arenas[i].size_bytes) return true;
	}
	return false;
}

size_t tm_bootstrap_size(const void *p) {
	return ((const size_t *)p)[-1];
}

void *tm_bootstrap_realloc(void *p, size_t size) {
	size_t old = tm_bootstrap_size(p);
	if (size <= old) return p;
	void *moved = tm_real.malloc && atomic_load(&finding) == 2 ? tm_real.malloc(size) : tm_bootstrap_alloc(16, size);
	if (moved) memcpy(moved, p, old);
	return moved;
}

void *tm_next_symbol(const char *name) {
	tm_ours_begin();
	void *found = dlsym(RTLD_NEXT, name);
	tm_ours_end();
	return found;
}

bool tm_real_ready(void) {
	return atomic_load_explicit(&finding, memory_order_acquire) == 2;
}

bool tm_real_find(void) {
	unsigned expected = 0;
	if (tm_real_ready()) return true;
	if (!atomic_compare_exchange_strong(&finding, &expected, 1)) return expected == 2;
#define X(result, name, arguments) tm_real.name = (result(*) arguments)tm_next_symbol(#name);
	TM_REAL_FUNCTIONS(X)
#undef X
	atomic_store_explicit(&finding, 2, memory_order_release);
	return true;
}
