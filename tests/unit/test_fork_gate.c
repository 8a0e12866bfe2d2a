/* test_fork_gate.c - how long a fork waits for the dlclose calls of other threads (recorder/guest/fork_gate.c), by a clock that goes on with each pause. */
#include "../../recorder/guest/fork_gate.c"
#include "check.h"

struct tm_guest tm_guest;
__thread struct tm_tls tm_tls;

static uint64_t clock_now_ns;
static unsigned pauses;

uint64_t tm_clock_ns(clockid_t clock) {
	(void)clock;
	return clock_now_ns;
}

long tm_syscall(long number, long a, long b, long c, long d, long e, long f) {
	(void)number, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
	clock_now_ns += 50000;
	pauses++;
	return 0;
}

/* So many pauses it takes, while so many other threads are in a dlclose. */
static unsigned pauses_of_a_fork(unsigned closing, bool unclean) {
	pauses = 0;
	atomic_store(&inside_closing, closing);
	tm_gate_close();
	CHECK(fork_is_unclean == unclean);
	tm_gate_open(false);
	return pauses;
}

int main(void) {
	const unsigned whole = TM_GATE_CLOSE_MS * 20;
	CHECK(pauses_of_a_fork(0, false) == 0);
	CHECK(pauses_of_a_fork(1, true) >= whole);
	CHECK(pauses_of_a_fork(1, true) == 0);     /* the same one, which never returns */
	CHECK(pauses_of_a_fork(2, true) >= whole); /* and another */
	CHECK(pauses_of_a_fork(2, true) == 0);
	CHECK(pauses_of_a_fork(0, false) == 0);
	CHECK(pauses_of_a_fork(1, true) >= whole); /* they have returned, so this is one that may */
	return check_report("fork_gate");
}
