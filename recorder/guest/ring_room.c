/* ring_room.c - where the next record goes in the thread's ring, and what happens where there is no room.
 *
 * Flow:     hot.h, emit.c, scope.h: a record does not fit -> here -> the collector is told, the thread waits
 * Owns:     of struct tm_thread: at, limit, bias, seen, touched.
 * Threads:  a thread's own ring; what the collector has read it says in the ring's header (../shm.h).
 * When full: tells the collector, waits as long as its heartbeat advances and then two seconds, and then counts the event as lost
 *           (--on-full=drop: at once).
 * Left by a jump: tm_ring_after_jump().
 */
#include "attach.h"
#include "emit.h"
#include "hot.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>

#define STALL_LIMIT_NS 2000000000u
#define WAIT_SLICE_NS 10000000u
#define STOPPED_NS (50 * WAIT_SLICE_NS) /* a slice that took so long: we were stopped (Ctrl-Z), and perhaps the collector with us */
#define TOUCH_BYTES 65536u

static _Atomic uint64_t stalled_heartbeat; /* heartbeat + 1 at which somebody waited in vain; 0: nobody did */

static void ring_the_bell(void) {
	struct tm_shm *shm = tm_guest.shm;
	if (!atomic_load(&shm->sleeping) || tm_is_sandboxed()) return;
	atomic_fetch_add(&shm->doorbell, 1);
	tm_syscall(SYS_futex, (long)&shm->doorbell, FUTEX_WAKE, 1, 0, 0, 0);
}

/* It counts also while nobody sleeps: who is about to sleep looks at the number first. */
void tm_ring_for_attention(void) {
	atomic_fetch_add(&tm_guest.shm->doorbell, 1);
	ring_the_bell();
}

/* Somebody waited in vain, and nothing was read since: whoever is there to be woken was. */
static bool is_stalled(void) {
	return atomic_load(&stalled_heartbeat) == atomic_load(&tm_guest.shm->heartbeat) + 1;
}

/* Reads how far the collector has come, and whether it could read all of that. What is seen is a quarter ring ahead at most, so that this runs, and the bell
 * rings, at every quarter; and where a large record has no room before that. */
static bool look_for_room(struct tm_thread *t, uint64_t bytes) {
	uint64_t size = t->mask + 1, tail = atomic_load_explicit(&t->ring->tail, memory_order_acquire);
	uint64_t pos = tm_position(t), used = pos - tail;
	uint32_t skips = atomic_load_explicit(&t->ring->skips, memory_order_relaxed);
	if (TM_UNLIKELY(skips != t->skips)) {
		t->skips = skips;
		t->after_skip = true;
		tm_note_loss(t);
	}
	if (used > size) used = size; /* somebody scribbled over it: wait rather than overwrite */
	uint64_t room = size - used;
	if ((used >= size / 4 || room < bytes) && !is_stalled()) ring_the_bell();
	if (room < bytes) return false;
	t->seen = pos + (room < size / 4 || bytes > size / 4 ? room : size / 4);
	return true;
}

struct wait {
	uint64_t heartbeat, since; /* as it was seen last, and first */
};

static struct wait begin_wait(void) {
	return (struct wait){ atomic_load(&tm_guest.shm->heartbeat), tm_clock_ns(CLOCK_MONOTONIC) };
}

/* false: the collector does not read any more, or nobody is to wait. */
static bool may_wait_on(struct wait *w) {
	struct tm_shm *shm = tm_guest.shm;
	if (atomic_load(&shm->state) == TM_SHM_CLOSED) {
		tm_go_quiet();
		return false;
	}
	if (shm->on_full == TM_ON_FULL_DROP) return false;
	if (is_stalled()) return false;
	uint64_t beat = atomic_load(&shm->heartbeat), now = tm_clock_ns(CLOCK_MONOTONIC);
	if (beat != w->heartbeat) {
		*w = (struct wait){ beat, now };
	} else if (now - w->since > STALL_LIMIT_NS) {
		atomic_store(&stalled_heartbeat, beat + 1);
		return false;
	}
	return true;
}

/* Until it is woken, or for a while. */
static void sleep_on(struct wait *w, _Atomic uint32_t *waiting) {
	struct timespec slice = { 0, WAIT_SLICE_NS };
	uint64_t before = tm_clock_ns(CLOCK_MONOTONIC);
	if (!tm_is_sandboxed()) tm_syscall(SYS_futex, (long)waiting, FUTEX_WAIT, 1, (long)&slice, 0, 0);
	if (tm_clock_ns(CLOCK_MONOTONIC) - before > STOPPED_NS) w->since = tm_clock_ns(CLOCK_MONOTONIC);
}

/* Sleeps until the collector has read something. false: in vain. */
TM_COLD static bool wait_for_room(struct tm_thread *t, uint64_t bytes) {
	struct wait w = begin_wait();
	if (bytes > t->mask + 1) return false;
	while (!look_for_room(t, bytes)) {
		if (!may_wait_on(&w)) return false;
		atomic_store(&t->ring->waiting, 1);
		if (look_for_room(t, bytes)) break;
		sleep_on(&w, &t->ring->waiting);
	}
	atomic_store(&t->ring->waiting, 0);
	return true;
}

/* The rings of threads that have ended are free again once they are read: who begins meanwhile and finds none waits like who finds its own full. */
TM_COLD bool tm_find_ring(struct tm_thread *t) {
	if (tm_ring_claim(t)) return true;
	struct wait w = begin_wait();
	_Atomic uint32_t nobody = 1;
	do {
		if (!tm_ring_is_coming() || !may_wait_on(&w)) return false;
		ring_the_bell();
		sleep_on(&w, &nobody);
	} while (!tm_ring_claim(t));
	return true;
}

/* Who has no stamp yet is not busy while it waits. */
TM_COLD bool tm_find_room(struct tm_thread *t, uint64_t bytes) {
	if (look_for_room(t, bytes)) return true;
	bool busy = tm_is_busy(t);
	if (!t->begun) tm_clear_busy(t);
	bool found = wait_for_room(t, bytes);
	if (busy) tm_set_busy(t);
	return found;
}

/* At the ring's end the next record goes to its begin. What was known to be free lies in front of the end: nothing is, until somebody has looked. */
static void wrap(struct tm_thread *t) {
	if (t->at != t->data + t->mask + 1) return;
	t->limit = t->data;
	t->at = t->data;
	t->bias += t->mask + 1;
}

/* A handler may have left by a jump between any two of those steps, or when a record was written and not told: the place in the ring is right, and tells the
 * position, which is that of the head or less than a ring further. */
void tm_ring_after_jump(struct tm_thread *t) {
	uint64_t head = atomic_load_explicit(&t->ring->head, memory_order_relaxed), offset = (uint64_t)(t->at - t->data) & t->mask;
	t->limit = t->at = t->data + offset;
	t->bias = head + ((offset - head) & t->mask) - (uintptr_t)t->at;
}

/* Fills the ring up to its end where the record would wrap. */
static void pad(struct tm_thread *t, uint64_t bytes) {
	*tm_next_record(t) = tm_ring_word(TM_CTL_PAD, 0, (unsigned)(bytes / 8), 0, 0);
	t->at += bytes;
	wrap(t);
}

/* The ring's pages are read before they are written, one of each aligned 16: the kernel maps all of those then, as far as they exist; a write would fault
 * for each. */
static uint64_t touch_ahead(struct tm_thread *t, uint64_t until) {
	while (t->touched <= t->mask && t->touched < until) {
		uint8_t *at = t->data + t->touched;
		(void)*(volatile uint8_t *)at;
		t->touched += TOUCH_BYTES - (uintptr_t)at % TOUCH_BYTES;
	}
	return t->touched <= t->mask ? t->touched : UINT64_MAX;
}

static uint64_t least(uint64_t a, uint64_t b, uint64_t c) {
	uint64_t d = a < b ? a : b;
	return c < d ? c : d;
}

static void count_lost(struct tm_ring *ring, uint64_t lost_bytes) {
	bool is_event = lost_bytes != TM_NO_EVENT;
	if (lost_bytes == TM_PART_OF_EVENT) return;
	atomic_fetch_add_explicit(is_event ? &ring->lost_events : &ring->lost_records, 1, memory_order_relaxed);
	if (is_event) atomic_fetch_add_explicit(&ring->lost_bytes, lost_bytes, memory_order_relaxed);
}

TM_COLD uint64_t *tm_make_room(struct tm_thread *t, unsigned words, uint64_t lost_bytes) {
	wrap(t);
	uint64_t bytes = ((uint64_t)words + TM_SPARE_WORDS) * 8, to_end = (uint64_t)(t->data + t->mask + 1 - t->at);
	uint64_t padding = to_end < bytes ? to_end : 0;
	bool found = true;
	if (padding && bytes <= t->mask + 1 && padding + bytes > t->mask + 1) { /* more than the ring, both at once: it is read up to its end first */
		found = tm_position(t) + padding <= t->seen || tm_find_room(t, padding);
		if (found) pad(t, padding);
		padding = 0;
		if (found) atomic_store_explicit(&t->ring->head, tm_position(t), memory_order_release);
	}
	if (!found || (tm_position(t) + padding + bytes > t->seen && !tm_find_room(t, padding + bytes))) {
		count_lost(t->ring, lost_bytes);
		tm_note_loss(t);
		tm_clear_busy(t);
		t->begun = false;
		return NULL;
	}
	if (padding) pad(t, padding);
	uint64_t pos = tm_position(t);
	t->limit = t->at + least(t->seen - pos, (uint64_t)(t->data + t->mask + 1 - t->at), touch_ahead(t, pos + bytes) - pos);
	return tm_next_record(t);
}
