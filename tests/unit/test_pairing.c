/* test_pairing.c - every free must end the block that it freed, whatever the clocks said.
 *
 * Method: a true history is made up (addresses are allocated and freed in turns by random threads), then stamped by clocks that disagree, put in the
 * order of the stamps as the merge would, and given to the pairing. What comes out is compared with the history. Where the history leaves a
 * choice (two threads both free and allocate one address within the clocks' error) only what must hold in any case is checked; where one
 * thread allocates and another frees, the outcome is determined and must be exact. All of it twice: nobody knows what comes, as in the recorder, and
 * the events to come are at hand, as in import.
 */
#include "../../schema/pairing.h"

#include "check.h"

#define ADDRESSES 8
#define EVENTS 4000
#define THREADS_MAX 4

struct event {
	uint64_t true_ns, stamp_ns, address, size; /* size: unique, of an allocation; of a free that of the block it ends */
	uint64_t late_ns; /* so long after its stamp it is read: a slow call's release */
	uint32_t thread;
	bool is_free, dropped;
};

struct outcome {
	uint64_t freed_by[EVENTS + 1]; /* by size: thread, 0 live */
	uint64_t freed_ns[EVENTS + 1]; /* by size */
	uint64_t last_free_ns[ADDRESSES];
	uint64_t allocated, released, lost, unmatched, overlaps, backwards;
	uint64_t passing, passing_size, instants; /* passing_size: of the block that must end next, 0 none; instants: blocks of no lifetime */
	uint64_t rows;
};

static uint64_t address_of(uint64_t i) {
	return 0x10000 + i * 16;
}

static void on_allocated(void *context, const struct tm_block *b, bool passing) {
	struct outcome *o = context;
	CHECK(!o->passing_size);
	if (passing) o->passing_size = b->size_bytes;
	o->passing += passing;
	o->allocated++;
	if (b->alloc_ns < o->last_free_ns[(b->address - address_of(0)) / 16]) o->overlaps++;
}

static uint64_t on_released(void *context, const struct tm_block *b, uint64_t free_ns, uint32_t thread, uint32_t scope, bool lost) {
	(void)scope;
	struct outcome *o = context;
	CHECK(!o->passing_size || (o->passing_size == b->size_bytes && free_ns == b->alloc_ns));
	o->passing_size = 0;
	o->instants += free_ns == b->alloc_ns;
	o->released++;
	o->lost += lost;
	o->freed_by[b->size_bytes] = lost ? UINT64_MAX : thread;
	o->freed_ns[b->size_bytes] = free_ns;
	if (free_ns < b->alloc_ns) o->backwards++;
	o->last_free_ns[(b->address - address_of(0)) / 16] = free_ns;
	return ++o->rows;
}

static void on_unmatched(void *context, uint64_t address, uint32_t thread, uint32_t scope) {
	(void)scope;
	(void)address;
	(void)thread;
	((struct outcome *)context)->unmatched++;
}

static const struct event *coming, *coming_end;

static bool on_comes(void *context, const struct tm_waiting *w, bool own, enum tm_pairing_doubt doubt) {
	const struct event *next[2] = { NULL, NULL };
	(void)context;
	for (const struct event *e = coming; e < coming_end && e->stamp_ns + e->late_ns <= w->ns + (w->is_free ? TM_SKEW_NS : TM_WAIT_NS);
	     e++) {
		if (e->dropped || e->address != w->block.address || e->stamp_ns > w->ns + TM_SKEW_NS) continue;
		if (!next[0]) next[0] = e;
		else if (!next[1]) next[1] = e;
		bool counts = e->is_free != w->is_free && (own || e->thread != w->thread);
		if (counts && doubt != TM_PAIRING_OLDER && (!doubt || e->stamp_ns <= w->ns + TM_EARLY_NS)) return true;
	}
	return doubt && next[1] && !next[0]->is_free && !next[1]->is_free && (own || next[0]->thread != w->thread);
}

static const struct tm_pairing_sink sink = { on_allocated, on_released, on_unmatched, NULL };
static const struct tm_pairing_sink foreseeing = { on_allocated, on_released, on_unmatched, on_comes };
static bool foresees;

static int by_reading(const void *a, const void *b) {
	const struct event *x = a, *y = b;
	uint64_t read_x = x->stamp_ns + x->late_ns, read_y = y->stamp_ns + y->late_ns;
	if (read_x != read_y) return read_x < read_y ? -1 : 1;
	if (x->is_free != y->is_free) return x->is_free ? 1 : -1;
	return x->true_ns < y->true_ns ? -1 : 1;
}

/* true_ns is unique, so the history's order is a total one. roles: 0 any thread does anything, 1 thread 1 allocates and thread 2 frees. */
static size_t make_history(struct check_random *r, struct event *events, unsigned threads, uint64_t gap_ns, uint64_t skew_ns, int roles) {
	uint64_t live[ADDRESSES] = { 0 }, now = 1000000, clock[THREADS_MAX + 1];
	for (unsigned t = 0; t <= threads; t++) clock[t] = check_random_next(r) % (skew_ns + 1);
	for (size_t i = 0; i < EVENTS; i++) {
		uint64_t a = check_random_next(r) % ADDRESSES;
		struct event *e = &events[i];
		now += 1 + check_random_next(r) % gap_ns;
		*e = (struct event){ .true_ns = now,
				     .address = address_of(a),
				     .is_free = live[a] != 0,
				     .thread = 1 + (uint32_t)(check_random_next(r) % threads) };
		if (roles) e->thread = e->is_free ? 2 : 1;
		e->stamp_ns = now + clock[e->thread];
		e->size = e->is_free ? live[a] : i + 1;
		live[a] = e->is_free ? 0 : e->size;
	}
	return EVENTS;
}

static bool with_gaps;

static void replay(struct event *events, size_t n, struct outcome *o) {
	struct tm_pairing p;
	*o = (struct outcome){ 0 };
	tm_pairing_init(&p, foresees ? &foreseeing : &sink, o);
	p.has_gaps = with_gaps;
	qsort(events, n, sizeof *events, by_reading);
	coming_end = events + n;
	for (size_t i = 0; i < n; i++) {
		const struct event *e = &events[i];
		coming = e + 1;
		struct tm_block b = { .address = e->address, .size_bytes = e->size, .alloc_ns = e->stamp_ns };
		if (e->dropped) continue;
		tm_pairing_expire(&p, e->stamp_ns + e->late_ns);
		if (e->is_free) tm_pairing_free(&p, e->address, e->stamp_ns, e->thread, 0);
		else tm_pairing_alloc(&p, &b, e->thread);
	}
	tm_pairing_expire(&p, UINT64_MAX);
	CHECK(!p.failed);
	CHECK(!tm_pairing_waits(&p));
	CHECK(o->allocated - o->released == p.blocks.count);
	CHECK(!o->passing_size);
	tm_pairing_release(&p);
}

static void check_exact(const struct event *events, size_t n, const struct outcome *o) {
	uint64_t wrong = 0;
	for (size_t i = 0; i < n; i++)
		if (events[i].is_free && o->freed_by[events[i].size] != events[i].thread) wrong++;
	CHECK(wrong == 0);
}

static void check_sound(const struct event *events, size_t n, const struct outcome *o) {
	uint64_t allocations = 0;
	for (size_t i = 0; i < n; i++) allocations += !events[i].is_free;
	CHECK(o->allocated == allocations);
	CHECK(o->released == n - allocations);
	CHECK(o->lost == 0);
	CHECK(o->unmatched == 0);
	CHECK(o->overlaps == 0);
	CHECK(o->backwards == 0);
}

/* Clocks agree: stamps are the truth. */
static void test_agreeing_clocks(struct check_random *r, struct event *events, struct outcome *o) {
	size_t n = make_history(r, events, THREADS_MAX, 100, 0, 0);
	replay(events, n, o);
	check_sound(events, n, o);
	check_exact(events, n, o);
}

/* Blocks pass through several threads faster than clocks agree: who freed what cannot be known, but no block ends before it begins, every
 * event is accounted for, and no block overlaps another on its address unless it had to be given up. */
static void test_disagreeing_clocks(struct check_random *r, struct event *events, struct outcome *o) {
	size_t n = make_history(r, events, 3, 200, TM_SKEW_NS / 2, 0);
	uint64_t allocations = 0;
	replay(events, n, o);
	for (size_t i = 0; i < n; i++) allocations += !events[i].is_free;
	CHECK(o->overlaps <= o->lost + o->unmatched);
	CHECK(o->backwards == 0);
	CHECK(o->allocated == allocations);
	CHECK(o->released - o->lost + o->unmatched == n - allocations);
}

/* Blocks are handed over: one thread allocates, the other frees. */
static void test_handed_over(struct check_random *r, struct event *events, struct outcome *o) {
	size_t n = make_history(r, events, 2, 300, TM_SKEW_NS / 2, 1);
	replay(events, n, o);
	check_sound(events, n, o);
	check_exact(events, n, o);
}

/* Threads reuse what they freed, and hand blocks to each other; who gets one may read its clock while it waits for it, so that its free seems to come many
 * events of the other thread too soon. Nothing is lost by that, and each thread's frees are as many as they were. */
static void test_early_frees(struct check_random *r, struct event *events, struct outcome *o) {
	uint64_t now = 1000000, last[THREADS_MAX + 1] = { 0 }, live[ADDRESSES] = { 0 }, frees[THREADS_MAX + 1] = { 0 }, early = 0, a = 0, soonest;
	uint32_t owner[ADDRESSES];
	for (unsigned i = 0; i < ADDRESSES; i++) owner[i] = 1 + i % THREADS_MAX;
	for (size_t i = 0; i < EVENTS; i++) {
		struct event *e = &events[i];
		if (check_random_next(r) % 16 == 0) a = check_random_next(r) % ADDRESSES; /* one thread is busy, while the others wait for a word */
		now += 2 + 2 * (check_random_next(r) % 50); /* even; early stamps are odd, so that none is an allocation's by chance */
		*e = (struct event){ .true_ns = now, .stamp_ns = now, .address = address_of(a), .is_free = live[a] != 0, .thread = owner[a] };
		e->size = e->is_free ? live[a] : i + 1;
		live[a] = e->is_free ? 0 : e->size;
		if (e->is_free && check_random_next(r) % 4 == 0) {
			e->thread = owner[a] = 1 + (uint32_t)(check_random_next(r) % THREADS_MAX);
			soonest = now - TM_SKEW_NS / 16 > last[e->thread] ? now - TM_SKEW_NS / 16 : last[e->thread] + 1;
			if (soonest < now) e->stamp_ns = (now - check_random_next(r) % (now - soonest)) | 1;
			early += now > e->stamp_ns + 500;
		}
		last[e->thread] = now;
		frees[e->thread] += e->is_free;
	}
	CHECK(early > EVENTS / 100);
	replay(events, EVENTS, o);
	check_sound(events, EVENTS, o);
	for (size_t i = 0; i < EVENTS; i++)
		if (events[i].is_free) frees[o->freed_by[events[i].size] % (THREADS_MAX + 1)]--;
	for (unsigned t = 1; t <= THREADS_MAX; t++) CHECK(frees[t] == 0);
	CHECK(o->passing > EVENTS / 100);
	CHECK(o->instants == o->passing);
}

/* Frees that were early long ago say nothing of one that is early now. */
static void test_early_again(struct outcome *o) {
	struct event events[8];
	for (size_t i = 0; i < 8; i++) {
		uint64_t ns = 1000000 + i / 2 * 2 * TM_SHIFT_NS;
		events[i] = (struct event){ .stamp_ns = ns, .address = address_of(0), .size = i / 2 + 1, .thread = 1 };
		if (i % 2 == 0) continue;
		events[i].stamp_ns -= 40;
		events[i].thread = 2;
		events[i].is_free = true;
	}
	replay(events, 8, o);
	CHECK(!o->lost && !o->unmatched && o->released == 4 && o->passing == 4);
}

/* Threads fight for one address, their clocks are early and some of their calls slow: what is said to pass is released at that instant (on_released() looks),
 * whoever freed what. */
static void test_late_frees(struct check_random *r, struct event *events, struct outcome *o) {
	uint64_t now = 1000000, last[2 * THREADS_MAX] = { 0 }, live = 0;
	for (size_t i = 0; i < EVENTS; i++) {
		uint32_t thread = (uint32_t)(check_random_next(r) % (2 * THREADS_MAX));
		now += 1 + check_random_next(r) % 300;
		if (last[thread] >= now) now = last[thread] + 1; /* who is inside of a slow call does nothing else */
		events[i] = (struct event){ .true_ns = now, .stamp_ns = now, .address = address_of(0), .is_free = live != 0, .thread = thread + 1 };
		events[i].size = live ? live : i + 1;
		live = live ? 0 : i + 1;
		last[thread] = now;
		if (!events[i].is_free) continue;
		if (check_random_next(r) % 3 == 0) events[i].stamp_ns = now - check_random_next(r) % 2000;
		if (check_random_next(r) % 20 == 0) events[i].late_ns = check_random_next(r) % (2 * TM_SKEW_NS);
		if (events[i].stamp_ns + events[i].late_ns > now) last[thread] = events[i].stamp_ns + events[i].late_ns;
	}
	replay(events, EVENTS, o);
	CHECK(o->passing > 0);
}

/* One event is missing at an address that is in use all the time: what follows is wrong for a while, and then right again. */
static void test_shift_ends(struct event *events, struct outcome *o, bool is_free, uint32_t freeing) {
	const size_t settled = (with_gaps ? TM_GAP_NS : TM_SHIFT_NS) / 5000 + 20;
	events[0] = (struct event){ .stamp_ns = 1000, .address = address_of(0), .is_free = is_free, .size = EVENTS, .thread = 3 };
	for (size_t i = 1; i < EVENTS; i++) {
		bool frees = i % 2 == 0;
		events[i] = (struct event){ .stamp_ns = i * 5000, .address = address_of(0), .is_free = frees, .size = i - frees, .thread = 1 };
		if (frees) events[i].thread = freeing;
	}
	replay(events, EVENTS - 1, o); /* the last one is a free */
	CHECK(o->lost + o->unmatched == 1 && o->allocated - o->released == 0);
	for (size_t i = settled; i < EVENTS - 1; i++)
		if (events[i].is_free) CHECK(o->freed_by[events[i].size] == freeing && o->freed_ns[events[i].size] == events[i].stamp_ns);
}

/* All stamps of a moment are equal, as a coarse clock gives them. */
static void test_ties(struct check_random *r, struct event *events, struct outcome *o) {
	size_t n = make_history(r, events, 2, 30, 0, 1);
	for (size_t i = 0; i < n; i++) events[i].stamp_ns = events[i].true_ns / 100 * 100;
	replay(events, n, o);
	check_sound(events, n, o);
	check_exact(events, n, o);
}

/* Some events are missing: each is noticed, once, and nothing else goes wrong. */
static void test_losses(struct check_random *r, struct event *events, struct outcome *o) {
	size_t n = make_history(r, events, 3, 4 * TM_SKEW_NS, 0, 0);
	uint64_t lost = 0, unmatched = 0;
	bool missing[ADDRESSES] = { false };
	for (size_t i = 0; i < n; i++) {
		struct event *e = &events[i];
		uint64_t a = (e->address - address_of(0)) / 16;
		/* Far enough from the event before it that no clock could explain it; one loss a turn. */
		e->stamp_ns = e->true_ns = 1000000 + i * 2 * TM_SKEW_NS;
		e->dropped = !missing[a] && check_random_next(r) % 20 == 0;
		if (!e->is_free && missing[a]) lost++;
		if (e->is_free && missing[a]) unmatched++;
		missing[a] = e->dropped;
	}
	/* What is missing at the end: a free leaves its block live, an allocation nothing at all. */
	replay(events, n, o);
	CHECK(o->lost == lost);
	CHECK(o->unmatched == unmatched);
	CHECK(o->overlaps == 0 && o->backwards == 0);
}

/* A free of something unknown, and the same thread gets the address again at once: the free is not the new block's. */
static void test_unknown_then_reused(struct outcome *o) {
	struct event events[] = {
		{ .true_ns = 1, .stamp_ns = 1000, .address = address_of(0), .thread = 1, .is_free = true },
		{ .true_ns = 2, .stamp_ns = 1001, .address = address_of(0), .size = 1, .thread = 1 },
		{ .true_ns = 3, .stamp_ns = 1002, .address = address_of(0), .size = 1, .thread = 1, .is_free = true },
		{ .true_ns = 4, .stamp_ns = 1003, .address = address_of(0), .size = 2, .thread = 1 },
	};
	replay(events, 4, o);
	CHECK(o->unmatched == 1);
	CHECK(o->lost == 0);
	CHECK(o->allocated == 2 && o->released == 1 && o->freed_by[1] == 1);
}

/* A realloc's release can come late: its stamp is old, the new owner's allocation has been seen. */
static void test_late_release(struct outcome *o) {
	struct tm_pairing p;
	*o = (struct outcome){ 0 };
	tm_pairing_init(&p, &sink, o);
	struct tm_block first = { .address = address_of(0), .size_bytes = 1, .alloc_ns = 1000 }, second = first;
	second.size_bytes = 2;
	second.alloc_ns = 50000;
	tm_pairing_alloc(&p, &first, 1);
	tm_pairing_alloc(&p, &second, 2);
	CHECK(o->allocated == 1);
	tm_pairing_expire(&p, 300000);
	CHECK(tm_pairing_free(&p, address_of(0), 40000, 1, 0) == 1);
	CHECK(o->allocated == 2 && o->lost == 0 && o->freed_by[1] == 1 && o->freed_by[2] == 0);
	CHECK(tm_pairing_free(&p, address_of(0), 60000, 2, 0) == 2);
	tm_pairing_release(&p);
}

/* Many frees of unknown addresses wait at once, as in a fork's child that frees what it inherited. */
static void test_many_waiting(struct outcome *o) {
	struct tm_pairing p;
	*o = (struct outcome){ 0 };
	tm_pairing_init(&p, &sink, o);
	for (uint64_t i = 0; i < 100000; i++) tm_pairing_free(&p, 0x100000 + i * 48, 1000 + i, 1, 0);
	tm_pairing_expire(&p, 1000 + TM_SKEW_NS + 50000);
	CHECK(o->unmatched == 50000);
	tm_pairing_expire(&p, UINT64_MAX);
	CHECK(o->unmatched == 100000);
	tm_pairing_release(&p);
}

/* A forked child of several threads frees what it inherited and allocates the address again at once: neither waits, so that levels are right at
 * every instant. An address that it had live itself is waited for as ever. */
static void test_inherited(struct outcome *o) {
	struct tm_pairing p;
	*o = (struct outcome){ 0 };
	tm_pairing_init(&p, &sink, o);
	p.inherits = true;
	for (uint64_t i = 0; i < ADDRESSES; i++) {
		struct tm_block b = { .address = address_of(0) + i * 16, .size_bytes = 1, .alloc_ns = 1001 + i };
		tm_pairing_free(&p, b.address, 1000 + i, 1 + i % 2, 0);
		CHECK(o->unmatched == i + 1);
		tm_pairing_alloc(&p, &b, 1);
		CHECK(o->allocated == i + 1);
	}
	CHECK(!tm_pairing_waits(&p));
	struct tm_block again = { .address = address_of(0), .size_bytes = 2, .alloc_ns = 9020 };
	CHECK(tm_pairing_free(&p, address_of(0), 9000, 1, 0) == 1);
	tm_pairing_free(&p, address_of(0), 9010, 2, 0);
	CHECK(o->unmatched == ADDRESSES && tm_pairing_waits(&p));
	tm_pairing_alloc(&p, &again, 1);
	CHECK(o->released == 2 && o->freed_by[2] == 2 && o->unmatched == ADDRESSES && !tm_pairing_waits(&p));
	tm_pairing_release(&p);
}

/* A block of the time when recording was off is freed, and another thread has its address at once, for good; the one that was live all the time is freed
 * while something waits. */
static void test_paused(struct outcome *o) {
	struct tm_pairing p;
	struct tm_block b = { .address = address_of(0), .size_bytes = 1, .alloc_ns = 1000 },
			again = { .address = address_of(1), .size_bytes = 2, .alloc_ns = 200020 };
	*o = (struct outcome){ 0 };
	tm_pairing_init(&p, &sink, o);
	tm_pairing_alloc(&p, &b, 1);
	tm_pairing_free(&p, address_of(1), 50000, 1, 0);
	tm_pairing_expire(&p, 90000);
	CHECK(o->unmatched == 1);
	tm_pairing_pause(&p);
	tm_pairing_free(&p, address_of(1), 200000, 2, 0);
	CHECK(o->unmatched == 2 && !tm_pairing_waits(&p));
	tm_pairing_alloc(&p, &again, 1);
	tm_pairing_free(&p, address_of(1), 300000, 1, 0);
	CHECK(o->released == 1 && o->freed_by[2] == 1);
	tm_pairing_free(&p, address_of(1), 300010, 2, 0); /* waits */
	CHECK(tm_pairing_waits(&p));
	tm_pairing_free(&p, address_of(0), 300020, 2, 0);
	CHECK(o->released == 2 && o->freed_by[1] == 2 && o->unmatched == 2);
	tm_pairing_release(&p);
}

/* Nothing waits where there is nobody to wait for. */
static void test_alone(struct outcome *o) {
	struct tm_pairing p;
	*o = (struct outcome){ 0 };
	tm_pairing_init(&p, &sink, o);
	p.alone = true;
	struct tm_block b = { .address = address_of(0), .size_bytes = 1, .alloc_ns = 1001 };
	tm_pairing_free(&p, address_of(0), 1000, 1, 0);
	CHECK(o->unmatched == 1);
	tm_pairing_alloc(&p, &b, 1);
	CHECK(o->allocated == 1);
	b.size_bytes = 2;
	b.alloc_ns = 1002;
	tm_pairing_alloc(&p, &b, 1);
	CHECK(o->allocated == 2 && o->lost == 1);
	CHECK(tm_pairing_free(&p, address_of(0), 1003, 1, 0) == 2);
	tm_pairing_release(&p);
}

int main(void) {
	static struct event events[EVENTS];
	static struct outcome outcome;
	struct check_random r = check_random_start("test_pairing");
	for (int round = 0; round < 100; round++) {
		foresees = round >= 50;
		test_agreeing_clocks(&r, events, &outcome);
		test_disagreeing_clocks(&r, events, &outcome);
		test_handed_over(&r, events, &outcome);
		test_early_frees(&r, events, &outcome);
		test_late_frees(&r, events, &outcome);
		test_ties(&r, events, &outcome);
		test_losses(&r, events, &outcome);
	}
	for (int i = 0; i < 16; i++) {
		foresees = i >= 8;
		with_gaps = (i & 4) != 0;
		test_shift_ends(events, &outcome, i & 1, 1 + (uint32_t)i / 2 % 2);
	}
	with_gaps = foresees = false;
	test_unknown_then_reused(&outcome);
	test_late_release(&outcome);
	test_early_again(&outcome);
	test_many_waiting(&outcome);
	test_inherited(&outcome);
	test_paused(&outcome);
	test_alone(&outcome);
	return check_report("test_pairing");
}
