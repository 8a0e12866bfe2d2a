/* cuda_blocks.c - open addressing, a power of two of places, at most half of them used: see cuda_blocks.h. */
#include "cuda_blocks.h"

#include "guest.h"
#include "raw.h"

#include <sys/syscall.h>

#define FIRST_PLACES 4096u

static struct tm_cuda_block *places;
static uint64_t place_count, used;
static _Atomic uint32_t locked;

/* The lock says whose it is. One that is held by the process that this one was forked from is never given back. */
static void lock(void) {
	uint32_t mine = tm_guest.pid, holder = 0;
	for (; !atomic_compare_exchange_weak_explicit(&locked, &holder, mine, memory_order_acquire, memory_order_relaxed);
	     holder = 0) {
		if (holder && holder != mine && atomic_compare_exchange_strong(&locked, &holder, mine)) {
			places = NULL;
			place_count = used = 0;
			return;
		}
		if (!tm_is_sandboxed()) tm_syscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
	}
}

static void unlock(void) {
	atomic_store_explicit(&locked, 0, memory_order_release);
}

bool tm_cuda_blocks_are_locked(void) {
	return atomic_load_explicit(&locked, memory_order_relaxed) == tm_guest.pid;
}

static uint64_t first_place(unsigned kind, uint64_t key) {
	uint64_t hash = (key ^ (uint64_t)kind << 57) * 0x9E3779B97F4A7C15ull;
	return (hash ^ hash >> 32) & (place_count - 1);
}

/* The key's place, or the empty one where it would be; places must be there. */
static struct tm_cuda_block *place_of(unsigned kind, uint64_t key) {
	uint64_t at = first_place(kind, key);
	while (places[at].kind && (places[at].kind != kind || places[at].key != key)) at = (at + 1) & (place_count - 1);
	return &places[at];
}

static bool grow(void) {
	struct tm_cuda_block *old = places;
	uint64_t old_count = place_count, count = old_count ? 2 * old_count : FIRST_PLACES;
	struct tm_cuda_block *fresh = tm_raw_map(count * sizeof *fresh);
	if (!fresh) return false;
	places = fresh;
	place_count = count;
	for (uint64_t i = 0; i < old_count; i++)
		if (old[i].kind) *place_of(old[i].kind, old[i].key) = old[i];
	if (old) tm_raw_unmap(old, old_count * sizeof *old);
	return true;
}

/* Those behind it move up, so that none is cut off from its first place. */
static void remove_place(struct tm_cuda_block *place) {
	uint64_t hole = (uint64_t)(place - places), at = hole;
	used--;
	for (;;) {
		at = (at + 1) & (place_count - 1);
		if (!places[at].kind) break;
		uint64_t home = first_place(places[at].kind, places[at].key);
		if (((at - home) & (place_count - 1)) < ((at - hole) & (place_count - 1))) continue;
		places[hole] = places[at];
		hole = at;
	}
	places[hole].kind = TM_KEY_NONE;
}

bool tm_cuda_block_put(const struct tm_cuda_block *b) {
	bool put = true;
	lock();
	if (2 * (used + 1) > place_count) put = grow();
	if (put) {
		struct tm_cuda_block *place = place_of(b->kind, b->key);
		used += !place->kind;
		*place = *b;
	}
	unlock();
	return put;
}

/* Under the lock. NULL: there is none. */
static struct tm_cuda_block *known_place(unsigned kind, uint64_t key) {
	struct tm_cuda_block *place = places ? place_of(kind, key) : NULL;
	return place && place->kind != TM_KEY_NONE ? place : NULL;
}

static bool look_up(enum tm_cuda_key kind, uint64_t key, bool takes, struct tm_cuda_block *out) {
	lock();
	struct tm_cuda_block *place = known_place(kind, key);
	if (place) *out = *place;
	if (place && takes) remove_place(place);
	unlock();
	return place != NULL;
}

bool tm_cuda_block_find(enum tm_cuda_key kind, uint64_t key, struct tm_cuda_block *out) {
	return look_up(kind, key, false, out);
}

bool tm_cuda_block_take(enum tm_cuda_key kind, uint64_t key, struct tm_cuda_block *out) {
	return look_up(kind, key, true, out);
}

bool tm_cuda_block_around(enum tm_cuda_key kind, uint64_t address, struct tm_cuda_block *out) {
	bool found = false;
	lock();
	for (uint64_t i = 0; i < place_count && !found; i++) {
		found = places[i].kind == kind && address - places[i].key < places[i].size_bytes;
		if (found) *out = places[i];
	}
	unlock();
	return found;
}

bool tm_cuda_block_add(enum tm_cuda_key kind, uint64_t key, int handles, int mappings, struct tm_cuda_block *out) {
	lock();
	struct tm_cuda_block *place = known_place(kind, key);
	if (place) {
		place->handles += (uint32_t)handles;
		place->mappings += (uint32_t)mappings;
		*out = *place;
		if (!place->handles && !place->mappings) remove_place(place);
	}
	unlock();
	return place != NULL;
}

static bool is_of(const struct tm_cuda_block *b, uint64_t context, int device) {
	if (b->kind == TM_KEY_NONE || b->kind == TM_KEY_CONTEXT || !b->context) return false;
	if (context) return b->context == context;
	return b->device == device && !place_of(TM_KEY_CONTEXT, b->context)->kind;
}

bool tm_cuda_block_take_of(uint64_t *at, uint64_t context, int device, struct tm_cuda_block *out) {
	struct tm_cuda_block *found = NULL;
	lock();
	for (uint64_t i = 0; i < place_count && !found; i++) {
		struct tm_cuda_block *b = &places[(*at + i) & (place_count - 1)];
		if (is_of(b, context, device)) found = b;
	}
	if (found) {
		*out = *found;
		*at = (uint64_t)(found - places); /* another may move here: it is looked at next */
		remove_place(found);
	}
	unlock();
	return found != NULL;
}
