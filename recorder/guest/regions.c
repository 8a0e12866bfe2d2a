/* regions.c - which heap a block lies in: see regions.h. Open addressing, at most half full; removal moves later entries of the run forward. */
#include "regions.h"

#include "raw.h"

#define PATIENCE 2000u

struct region {
	uintptr_t addr; /* 0: empty */
	uint64_t bytes;
	uint32_t heap;
};

static struct region *table;
static size_t count, mask;
static _Atomic uint32_t owner; /* number of the process that holds the lock, 0: nobody */

static bool lock(void) {
	uint32_t own = tm_guest.process, seen = 0;
	for (unsigned i = 0; i < PATIENCE; i++, seen = 0) {
		if (atomic_compare_exchange_strong(&owner, &seen, own)) return true;
		/* In a fork's child whoever held it does not exist. */
		if (seen != own && atomic_compare_exchange_strong(&owner, &seen, own)) return true;
		if (!tm_is_sandboxed()) tm_syscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
	}
	return false;
}

static void unlock(void) {
	atomic_store(&owner, 0);
}

static size_t home_of(uintptr_t addr) {
	return (size_t)((uint64_t)(addr >> 3) * 0x9E3779B97F4A7C15u >> 24) & mask;
}

static struct region *find(uintptr_t addr) {
	size_t at = home_of(addr);
	while (table[at].addr && table[at].addr != addr) at = (at + 1) & mask;
	return &table[at];
}

static bool grow(void) {
	struct region *old = table, *made;
	size_t old_size = table ? mask + 1 : 0, size = old_size ? 2 * old_size : 4096;
	if (size > 2 * (size_t)TM_REGIONS_MAX) return false;
	made = tm_raw_map(size * sizeof *made);
	if (!made) return false;
	table = made;
	mask = size - 1;
	for (size_t i = 0; i < old_size; i++)
		if (old[i].addr) *find(old[i].addr) = old[i];
	if (old) tm_raw_unmap(old, old_size * sizeof *old);
	return true;
}

static void remove_at(size_t gap) {
	count--;
	for (size_t at = (gap + 1) & mask; table[at].addr; at = (at + 1) & mask) {
		if (((at - home_of(table[at].addr)) & mask) < ((at - gap) & mask)) continue;
		table[gap] = table[at];
		gap = at;
	}
	table[gap].addr = 0;
}

bool tm_region_remember(const void *addr, uint32_t heap, uint64_t bytes) {
	bool kept;
	if (!lock()) return false;
	kept = (table && count < (mask + 1) / 2) || grow();
	if (kept) {
		struct region *r = find((uintptr_t)addr);
		count += r->addr == 0;
		*r = (struct region){ (uintptr_t)addr, bytes, heap };
	}
	unlock();
	return kept;
}

static uint32_t look_up(const void *addr, bool forget, uint64_t *bytes) {
	uint32_t heap = 0;
	if (!lock()) return 0;
	if (table) {
		struct region *r = find((uintptr_t)addr);
		heap = r->addr ? r->heap : 0;
		if (heap && bytes) *bytes = r->bytes;
		if (heap && forget) remove_at((size_t)(r - table));
	}
	unlock();
	return heap;
}

uint32_t tm_region_forget(const void *addr) {
	return addr ? look_up(addr, true, NULL) : 0;
}

uint32_t tm_region_heap(const void *addr, uint64_t *bytes) {
	return addr ? look_up(addr, false, bytes) : 0;
}

const void *tm_region_forget_next(uint32_t heap, uintptr_t low, uint64_t bytes, size_t *at) {
	const void *addr = NULL;
	if (!lock()) return NULL;
	for (; table && *at <= mask && !addr; ) {
		if (!table[*at].addr || table[*at].heap != heap || table[*at].addr - low >= bytes) {
			(*at)++;
			continue;
		}
		addr = (const void *)table[*at].addr;
		remove_at(*at); /* another one may have come here: look again */
	}
	unlock();
	return addr;
}
