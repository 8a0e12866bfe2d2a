/* fork_gate.c - the slow sides of fork_gate.h: the forking thread, and threads that meet a fork.
 *
 * Idea:     as Dekker's: a thread says "inside" and then looks for forks, a fork says "forking" and then looks for threads inside. The
 *           threads are found by their rings in the session's memory. Two steps: first the dlclose calls run out while stacks are still
 *           taken (a dlclose may wait for a dlopen that allocates), then the stacks. Whoever forks passes the gate itself: pthread_atfork
 *           handlers may allocate.
 */
#include "fork_gate.h"
#include "raw.h"

#include <linux/membarrier.h>
#include <time.h>

_Atomic uint32_t tm_gate_forks;
bool tm_gate_fences = true;

static _Atomic uint32_t inside_rarely, inside_closing;
static _Atomic uint32_t forks_coming; /* forks that wait for dlclose calls, or go on already */
static __thread uint32_t forks_of_this_thread __attribute__((tls_model("initial-exec")));
static __thread uint32_t inside_of_this_thread __attribute__((tls_model("initial-exec")));
static __thread uint32_t closing_of_this_thread __attribute__((tls_model("initial-exec")));
static __thread bool fork_is_unclean __attribute__((tls_model("initial-exec"))); /* somebody was inside nevertheless */

__attribute__((constructor)) static void prepare(void) {
	tm_gate_fences = tm_syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0, 0, 0, 0) != 0;
}

static long now_ms(void) {
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void pause_briefly(void) {
	struct timespec time = { 0, 50000 };

	if (!tm_is_sandboxed()) tm_syscall(SYS_nanosleep, (long)&time, 0, 0, 0, 0, 0);
}

/* --- a thread that meets a fork --- */

static bool is_to_wait(const _Atomic uint32_t *forks) {
	uint32_t n = atomic_load(forks);

	return (n & TM_GATE_SHUT) || (n != 0 && !forks_of_this_thread);
}

static bool becomes_zero(_Atomic uint32_t *forks) {
	if (atomic_load(forks) & TM_GATE_SHUT) return false;
	for (long until = now_ms() + TM_GATE_ENTER_MS; now_ms() < until; pause_briefly())
		if (atomic_load(forks) == 0) return true;
	return false;
}

/* Into one of the counters, while no fork is under way by the other. */
static bool enter_counter(_Atomic uint32_t *inside, _Atomic uint32_t *forks, uint32_t *of_this_thread) {
	atomic_fetch_add(inside, 1);
	while (is_to_wait(forks)) {
		atomic_fetch_sub(inside, 1);
		if (!becomes_zero(forks)) return false;
		atomic_fetch_add(inside, 1);
	}
	(*of_this_thread)++;
	return true;
}

TM_COLD bool tm_gate_wait(struct tm_thread *t) {
	while (is_to_wait(&tm_gate_forks)) {
		atomic_store(&t->ring->unwinding, 0);
		if (!becomes_zero(&tm_gate_forks)) return false;
		atomic_store(&t->ring->unwinding, 1);
	}
	return true;
}

bool tm_gate_enter_rarely(void) {
	return enter_counter(&inside_rarely, &tm_gate_forks, &inside_of_this_thread);
}

void tm_gate_leave_rarely(void) {
	inside_of_this_thread--;
	atomic_fetch_sub(&inside_rarely, 1);
}

bool tm_gate_enter_closing(void) {
	return enter_counter(&inside_closing, &forks_coming, &closing_of_this_thread);
}

void tm_gate_leave_closing(void) {
	closing_of_this_thread--;
	atomic_fetch_sub(&inside_closing, 1);
}

/* --- the forking thread --- */

static bool thread_is_inside(const struct tm_ring *ring, uint32_t tid) {
	return atomic_load(&ring->unwinding) && ring->process == tm_guest.process && ring->tid != tid &&
	       atomic_load(&ring->state) == TM_RING_ACTIVE;
}

static bool anybody_is_inside(uint32_t tid) {
	const struct tm_shm *shm = tm_guest.shm;
	const struct tm_ring *rings = (const struct tm_ring *)((const uint8_t *)shm + shm->ring_headers_offset);
	uint32_t used = atomic_load(&shm->rings_used);

	if (atomic_load(&inside_rarely) > inside_of_this_thread) return true;
	for (uint32_t i = 0; i < used && i < shm->ring_count; i++)
		if (thread_is_inside(&rings[i], tid)) return true;
	return false;
}

static bool anybody_closes(void) {
	return atomic_load(&inside_closing) > closing_of_this_thread;
}

/* Whoever comes later may be counted for a moment, but sees us and steps back: what counts is that there was nobody once. */
static bool nobody_closes_in_time(void) {
	for (long until = now_ms() + TM_GATE_CLOSE_MS; anybody_closes(); pause_briefly())
		if (now_ms() >= until) return false;
	return true;
}

static bool nobody_is_inside_in_time(uint32_t tid) {
	for (long until = now_ms() + TM_GATE_CLOSE_MS; anybody_is_inside(tid); tm_syscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0))
		if (now_ms() >= until) return false;
	return true;
}

void tm_gate_close(void) {
	bool clean;

	forks_of_this_thread++;
	atomic_fetch_add(&forks_coming, 1);
	clean = nobody_closes_in_time();
	fork_is_unclean = !clean;
	atomic_fetch_add(&tm_gate_forks, 1);
	if (!tm_guest.shm || tm_is_sandboxed()) return; /* nobody takes stacks */
	if (!tm_gate_fences) tm_syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0, 0, 0, 0);
	clean = nobody_is_inside_in_time((uint32_t)tm_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0)) && clean;
	fork_is_unclean = !clean;
}

/* In the child nobody else exists, neither forking nor inside. */
void tm_gate_open(bool in_child) {
	forks_of_this_thread--;
	if (in_child) {
		bool shut = fork_is_unclean || (atomic_load(&tm_gate_forks) & TM_GATE_SHUT);

		forks_of_this_thread = 0;
		atomic_store(&inside_rarely, inside_of_this_thread);
		atomic_store(&inside_closing, closing_of_this_thread);
		atomic_store(&forks_coming, 0);
		atomic_store(&tm_gate_forks, shut ? TM_GATE_SHUT : 0);
	} else {
		atomic_fetch_sub(&tm_gate_forks, 1);
		atomic_fetch_sub(&forks_coming, 1);
	}
}
