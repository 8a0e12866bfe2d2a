/* fork_gate.c - see fork_gate.h.
 *
 * Idea:     as Dekker's: a thread says "inside" and then looks for forks, a fork says "forking" and then looks for threads inside. Two steps:
 *           first the dlclose calls run out while others may still ask (a dlclose may wait for a dlopen that allocates), then those who ask.
 *           Whoever forks passes the gate itself: pthread_atfork handlers may allocate.
 */
#include "fork_gate.h"
#include "raw.h"

#include <time.h>

#define SHUT (1u << 31) /* somebody was inside when this process was forked: the loader's lock is not to be trusted */

static _Atomic uint32_t forks;                /* under way in this process; SHUT */
static _Atomic uint32_t inside, inside_closing;
static _Atomic uint32_t forks_coming; /* forks that wait for dlclose calls, or go on already */
static __thread uint32_t forks_of_this_thread __attribute__((tls_model("initial-exec")));
static __thread uint32_t inside_of_this_thread __attribute__((tls_model("initial-exec")));
static __thread uint32_t closing_of_this_thread __attribute__((tls_model("initial-exec")));
static __thread bool fork_is_unclean __attribute__((tls_model("initial-exec"))); /* somebody was inside nevertheless */

static long now_ms(void) {
	return (long)(tm_clock_ns(CLOCK_MONOTONIC) / 1000000);
}

static void pause_briefly(void) {
	struct timespec time = { 0, 50000 };

	if (!tm_is_sandboxed()) tm_syscall(SYS_nanosleep, (long)&time, 0, 0, 0, 0, 0);
}

/* --- a thread that meets a fork --- */

static bool is_to_wait(const _Atomic uint32_t *under_way) {
	uint32_t n = atomic_load(under_way);

	return (n & SHUT) || (n != 0 && !forks_of_this_thread);
}

static bool becomes_zero(_Atomic uint32_t *under_way) {
	if (atomic_load(under_way) & SHUT) return false;
	for (long until = now_ms() + TM_GATE_ENTER_MS; now_ms() < until; pause_briefly())
		if (atomic_load(under_way) == 0) return true;
	return false;
}

/* Into one of the counters, while no fork is under way by the other. */
static bool enter_counter(_Atomic uint32_t *counter, _Atomic uint32_t *under_way, uint32_t *of_this_thread) {
	atomic_fetch_add(counter, 1);
	while (is_to_wait(under_way)) {
		atomic_fetch_sub(counter, 1);
		if (!becomes_zero(under_way)) return false;
		atomic_fetch_add(counter, 1);
	}
	(*of_this_thread)++;
	return true;
}

bool tm_gate_enter(void) {
	return enter_counter(&inside, &forks, &inside_of_this_thread);
}

void tm_gate_leave(void) {
	inside_of_this_thread--;
	atomic_fetch_sub(&inside, 1);
}

bool tm_gate_enter_closing(void) {
	return enter_counter(&inside_closing, &forks_coming, &closing_of_this_thread);
}

void tm_gate_leave_closing(void) {
	closing_of_this_thread--;
	atomic_fetch_sub(&inside_closing, 1);
}

/* --- the forking thread --- */

/* Whoever comes later may be counted for a moment, but sees us and steps back: what counts is that there was nobody once. */
static bool is_left_in_time(_Atomic uint32_t *counter, uint32_t of_this_thread, _Atomic uint32_t *waited_for) {
	if (atomic_load(counter) > of_this_thread) { /* hardly ever: and nearly always without a look at the clock */
		uint32_t others = atomic_load(counter) - of_this_thread;
		if (others <= atomic_load(waited_for))
			return false; /* in vain: a destructor that never returns is waited for once, not at every fork */
		for (long until = now_ms() + TM_GATE_CLOSE_MS; atomic_load(counter) > of_this_thread; pause_briefly()) {
			if (now_ms() < until) continue;
			atomic_store(waited_for, others);
			return false;
		}
	}
	if (atomic_load(waited_for)) atomic_store(waited_for, 0);
	return true;
}

void tm_gate_close(void) {
	static _Atomic uint32_t waited_for_closing, waited_for;
	forks_of_this_thread++;
	atomic_fetch_add(&forks_coming, 1);
	fork_is_unclean = !is_left_in_time(&inside_closing, closing_of_this_thread, &waited_for_closing);
	atomic_fetch_add(&forks, 1);
	if (!is_left_in_time(&inside, inside_of_this_thread, &waited_for)) fork_is_unclean = true;
}

/* In the child nobody else exists, neither forking nor inside. */
void tm_gate_open(bool in_child) {
	forks_of_this_thread--;
	if (in_child) {
		bool shut = fork_is_unclean || (atomic_load(&forks) & SHUT);

		forks_of_this_thread = 0;
		atomic_store(&inside, inside_of_this_thread);
		atomic_store(&inside_closing, closing_of_this_thread);
		atomic_store(&forks_coming, 0);
		atomic_store(&forks, shut ? SHUT : 0);
	} else {
		atomic_fetch_sub(&forks, 1);
		atomic_fetch_sub(&forks_coming, 1);
	}
}
