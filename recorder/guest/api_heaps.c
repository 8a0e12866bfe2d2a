/* api_heaps.c - the library's side of the public API (../tidemark.h): pools that a program declares, and figures that it asks for.
 *
 * Flow:     tidemark_heap_alloc() -> here -> emit_heap.c -> ring;  tidemark_stats() -> here -> STATS in the ring -> the collector -> tm_stats_slot -> here
 * Idea:     the figures are the collector's, which sees every thread; the caller sleeps until it has read what was recorded before the question. A handle is
 *           the address of the heap's name in our table, so that a name serves as well.
 */
#include "api.h"
#include "attach.h"
#include "emit.h"
#include "heaps.h"
#include "hot.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#define ANSWER_LIMIT_NS 2000000000u

TM_EXPORT tidemark_heap tidemark_api_heap_create_v1(const char *name, tidemark_heap parent) {
	static _Atomic uint32_t noted;
	uint32_t parent_number = parent ? tm_heap_of_handle(parent) : 0, number;
	if (name && parent && !parent_number)
		tm_note_limit(&noted, "unknown-heap",
			      "a pool was declared inside of a heap that there is not: it is added to the process' totals");
	size_t n = name ? tm_name_bytes(name) : 0;
	struct tm_thread *t = name ? tm_enter_to_tell() : NULL;
	if (!name || (!t && !tm_is_to_start())) return NULL;
	number = tm_heap_number(name, n, "pool", parent_number, -1);
	if (t) {
		tm_heap_tell(t, number); /* of 0: notes that there was no room for it, if that is why */
		tm_leave(t);
	} /* a library's constructor may come before our own: its pool is told of with its first block */
	return tm_heap_name(number);
}

TM_EXPORT void tidemark_api_heap_alloc_v1(tidemark_heap heap, const void *block, size_t size) {
	struct tm_thread *t = heap ? tm_enter() : NULL;
	if (!t) {
		if (heap) tm_nested_add_of_pool(TM_OP_HEAP_ALLOC, heap, block, size);
		return;
	}
	tm_emit_heap_alloc(t, TM_OP_HEAP_ALLOC, tm_heap_of_handle(heap), block, size, TM_FRAME);
	tm_leave(t);
}

TM_EXPORT void tidemark_api_heap_free_v1(tidemark_heap heap, const void *block) {
	struct tm_thread *t = heap ? tm_enter() : NULL;
	if (!t) {
		if (heap) tm_nested_add_of_pool(TM_OP_HEAP_FREE, heap, block, 0);
		return;
	}
	tm_emit_heap_free(t, TM_OP_HEAP_FREE, tm_heap_of_handle(heap), block);
	tm_leave(t);
}

TM_EXPORT void tidemark_api_reset_peak_v1(tidemark_heap heap) {
	struct tm_thread *t = heap ? tm_enter_to_tell() : NULL;
	if (!t) return;
	tm_emit_text(t, TM_OP_RESET_PEAK, heap, tm_name_bytes(heap));
	tm_leave(t);
}

/* What a framework says of its allocator; for tidemark.py, no part of the header. ~0: unknown; where all are, nothing is said. 1: anything of this heap was
 * reported, 0: nothing, and so its state is of no use. */
TM_EXPORT int tidemark_api_pool_state_v1(const char *heap, uint64_t allocated, uint64_t reserved, uint64_t active, uint64_t inactive);

int tidemark_api_pool_state_v1(const char *heap, uint64_t allocated, uint64_t reserved, uint64_t active, uint64_t inactive) {
	uint32_t number = heap ? tm_heap_find(heap, tm_name_bytes(heap)) : 0;
	bool is_known = number >= TM_HEAP_NUMBER_OWN;
	struct tm_thread *t = is_known && (allocated & reserved & active & inactive) != UINT64_MAX ? tm_enter_to_tell() : NULL;
	if (!t) return is_known;
	tm_emit_pool_state(t, number, &(struct tm_pool_numbers){ allocated, reserved, active, inactive });
	tm_leave(t);
	return is_known;
}

/* --- questions --- */

/* Who finds all slots taken sleeps on this until a thread of this process has given one back; of other processes' it hears nothing, and looks now and then. */
static _Atomic uint32_t given_back;
#define LOOK_NS 20000000u

static void give_back(struct tm_stats_slot *slot) {
	atomic_store(&slot->state, TM_STATS_FREE);
	atomic_fetch_add(&given_back, 1);
	tm_syscall(SYS_futex, (long)&given_back, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}

static struct tm_stats_slot *take_slot(void) {
	for (unsigned i = 0; i < TM_STATS_SLOTS; i++) {
		struct tm_stats_slot *slot = &tm_guest.shm->stats[i];
		uint32_t state = TM_STATS_FREE;
		if (!atomic_compare_exchange_strong(&slot->state, &state, TM_STATS_ASKED)) continue;
		slot->process = tm_guest.process;
		return slot;
	}
	return NULL;
}

/* True: the question is in the ring. */
static bool ask(const struct tm_stats_slot *slot, const char *heap) {
	struct tm_thread *t = tm_enter();
	uint64_t number = (uint64_t)(slot - tm_guest.shm->stats);
	bool said;
	if (!t) return false;
	said = tm_emit_control(t, TM_CTL_STATS, 0, 0, &number, 1, heap, tm_name_bytes(heap));
	tm_ring_for_attention();
	tm_leave(t);
	return said;
}

/* The state that the question came to. */
static uint32_t wait_for_answer(struct tm_stats_slot *slot, uint64_t until_ns) {
	uint32_t state;
	while ((state = atomic_load(&slot->state)) == TM_STATS_ASKED) {
		uint64_t now = tm_clock_ns(CLOCK_MONOTONIC), left = now < until_ns ? until_ns - now : 0;
		struct timespec limit = { (time_t)(left / 1000000000u), (long)(left % 1000000000u) };
		if (atomic_load(&tm_guest.shm->state) == TM_SHM_CLOSED) left = 0;
		if (!left && atomic_compare_exchange_strong(&slot->state, &state, TM_STATS_GIVEN_UP)) return TM_STATS_GIVEN_UP;
		tm_syscall(SYS_futex, (long)&slot->state, FUTEX_WAIT, TM_STATS_ASKED, (long)&limit, 0, 0);
	}
	return state;
}

static int answer_of(struct tm_stats_slot *slot, uint32_t state, struct tidemark_stats *s) {
	if (state == TM_STATS_GIVEN_UP) return TIDEMARK_NO_ANSWER;
	if (state == TM_STATS_ANSWERED) {
		s->live_bytes = slot->live_bytes;
		s->live_count = slot->live_count;
		s->peak_bytes = slot->peak_bytes;
		s->peak_since_reset_bytes = slot->peak_since_reset_bytes;
		s->allocations = slot->allocations;
		s->frees = slot->frees;
		s->exact = slot->exact != 0;
	}
	give_back(slot);
	return state == TM_STATS_ANSWERED ? TIDEMARK_OK : TIDEMARK_NO_SUCH_HEAP;
}

static int ask_until(const char *heap, struct tidemark_stats *s, uint64_t until) {
	struct timespec pause = { 0, LOOK_NS };
	struct tm_stats_slot *slot;
	for (uint32_t seen; seen = atomic_load(&given_back), !(slot = take_slot());) { /* more threads ask than there are slots */
		if (tm_clock_ns(CLOCK_MONOTONIC) > until || atomic_load(&tm_guest.shm->state) == TM_SHM_CLOSED) return TIDEMARK_NO_ANSWER;
		tm_syscall(SYS_futex, (long)&given_back, FUTEX_WAIT_PRIVATE, seen, (long)&pause, 0, 0);
	}
	if (ask(slot, heap)) return answer_of(slot, wait_for_answer(slot, until), s);
	give_back(slot);
	return TIDEMARK_NO_ANSWER;
}

/* Who has waited in vain for a collector that showed no sign of life meanwhile has done so for all that ask until it shows one. */
static int ask_and_wait(const char *heap, struct tidemark_stats *s) {
	static _Atomic uint64_t silent_heartbeat; /* heartbeat + 1 at which somebody waited in vain; 0: nobody did */
	uint64_t heartbeat = atomic_load(&tm_guest.shm->heartbeat), until = tm_clock_ns(CLOCK_MONOTONIC) + ANSWER_LIMIT_NS;
	if (atomic_load(&silent_heartbeat) == heartbeat + 1) return TIDEMARK_NO_ANSWER;
	int result = ask_until(heap, s, until);
	bool in_vain = result == TIDEMARK_NO_ANSWER && tm_clock_ns(CLOCK_MONOTONIC) >= until;
	if (in_vain && atomic_load(&tm_guest.shm->heartbeat) == heartbeat) atomic_store(&silent_heartbeat, heartbeat + 1);
	return result;
}

TM_EXPORT int tidemark_api_stats_v1(tidemark_heap heap, struct tidemark_stats *stats, size_t size) {
	struct tidemark_stats found = { 0 };
	struct tm_thread *t = tm_enter();
	int result;
	if (!t) return tm_is_in_handler() ? TIDEMARK_NO_ANSWER : TIDEMARK_NOT_RECORDED;
	tm_leave(t);
	if (!heap) return TIDEMARK_NO_SUCH_HEAP;
	if (tm_is_sandboxed() || atomic_load(&tm_guest.shm->state) == TM_SHM_CLOSED) return TIDEMARK_NOT_RECORDED;
	result = ask_and_wait(heap, &found);
	if (stats) memcpy(stats, &found, size < sizeof found ? size : sizeof found);
	return result;
}
