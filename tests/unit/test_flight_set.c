/* test_flight_set.c - what dropped events leave behind, case by case.
 *
 * Goal: what stays is what is live, with its scopes, in the order of its threads; whatever order chunks and clocks bring the events in.
 * Method: short stories of events, whose remains are listed by hand as "thread time op address size".
 */
#include "check.h"

#include "../../recorder/collector/flight_set.h"

#include <stdio.h>

#define ANY SIZE_MAX /* number of events may wait */

static struct tm_event event(uint8_t op, uint64_t ns, uint64_t addr, uint64_t size) {
	return (struct tm_event){ .op = op, .time_ns = ns, .begin_ns = ns, .addr = addr, .size = size, .usable = TM_USABLE_UNKNOWN };
}

static void put(struct tm_flight_set *s, uint32_t thread, struct tm_event e, uint64_t old, uint64_t old_size) {
	e.old = old;
	e.old_size = old_size;
	tm_flight_set_add(s, 1, thread, &e, 1);
}

static void alloc(struct tm_flight_set *s, uint32_t thread, uint64_t ns, uint64_t addr, uint64_t size) {
	put(s, thread, event(TM_OP_MALLOC, ns, addr, size), 0, 0);
}

static void release(struct tm_flight_set *s, uint32_t thread, uint64_t ns, uint64_t addr) {
	put(s, thread, event(TM_OP_FREE, ns, 0, 0), addr, 0);
}

static void move(struct tm_flight_set *s, uint32_t thread, uint64_t begin, uint64_t ns, uint64_t old, uint64_t addr, uint64_t size) {
	struct tm_event e = event(TM_OP_REALLOC, ns, addr, size);
	e.begin_ns = begin;
	put(s, thread, e, old, 0);
}

static void map(struct tm_flight_set *s, uint8_t op, uint64_t ns, uint64_t addr, uint64_t size, uint64_t old, uint64_t old_size) {
	put(s, 1, event(op, ns, addr, size), old, old_size);
}

static void scope(struct tm_flight_set *s, uint32_t thread, uint8_t op, uint64_t ns, uint64_t key, uint64_t link) {
	put(s, thread, event(op, ns, key, 0), link, 0);
}

static void scope_in(struct tm_flight_set *s, uint32_t category, uint8_t op, uint64_t ns, uint64_t link) {
	struct tm_event e = event(op, ns, 0, 0);
	e.heap = category;
	put(s, 1, e, link, 0);
}

/* Compares what stays with the story's remains. */
static void stays(struct tm_flight_set *s, const char *wanted, int line) {
	struct tm_flight_list list = { 0 };
	char text[2000] = "";
	size_t n = 0;
	tm_flight_set_list(s, &list);
	for (size_t i = 0; i < list.count; i++) {
		const struct tm_flight_event *f = &list.events[i];
		n += (size_t)snprintf(text + n, sizeof text - n, "%s%u %llu %02x %llx %llu", i ? ", " : "", f->thread,
				      (unsigned long long)f->event.time_ns, f->event.op, (unsigned long long)f->event.addr,
				      (unsigned long long)f->event.size);
	}
	if (strcmp(text, wanted) != 0) fprintf(stderr, "line %d: got '%s', expected '%s'\n", line, text, wanted);
	CHECK(strcmp(text, wanted) == 0);
	free(list.events);
}
#define STAYS(wanted) stays(s, wanted, __LINE__)

static void test_blocks(void) {
	struct tm_flight_set *s = tm_flight_set_new(ANY);
	alloc(s, 1, 10, 0x100, 5);
	alloc(s, 2, 20, 0x200, 6);
	alloc(s, 1, 30, 0x300, 7);
	release(s, 2, 40, 0x100);
	move(s, 1, 45, 50, 0x200, 0x200, 60);
	tm_flight_set_advance(s, 100);
	STAYS("1 30 00 300 7, 1 50 1f 200 60");
	alloc(s, 1, 110, 0x400, 8);
	release(s, 2, 120, 0x300);
	tm_flight_set_advance(s, 115);
	STAYS("1 30 00 300 7, 1 50 1f 200 60, 1 110 00 400 8, 2 120 20 0 0"); /* the free is beyond the watermark */
	CHECK(tm_flight_set_waits(s, 2) && !tm_flight_set_waits(s, 1));
	tm_flight_set_advance(s, 1000);
	STAYS("1 50 1f 200 60, 1 110 00 400 8");
	tm_flight_set_end_process(s, 1);
	STAYS("");
	tm_flight_set_free(s);
}

/* Two threads, one address: the free and the new allocation come in any order within the skew of clocks, and a realloc's free even later. */
static void test_handed_over(void) {
	struct tm_flight_set *s = tm_flight_set_new(ANY);
	alloc(s, 1, 10, 0x100, 5);
	alloc(s, 2, 99, 0x100, 6);
	release(s, 1, 100, 0x100);
	tm_flight_set_advance(s, 200);
	STAYS("2 99 00 100 6");
	move(s, 2, 300, 400, 0x100, 0x200, 7); /* 0x100 is free from 300 on, and taken at 350 */
	alloc(s, 1, 350, 0x100, 8);
	tm_flight_set_advance(s, 380);
	STAYS("1 350 00 100 8, 2 400 1f 200 7"); /* what it frees it has freed, what it allocates is beyond the watermark */
	tm_flight_set_advance(s, 500);
	STAYS("1 350 00 100 8, 2 400 1f 200 7");
	release(s, 2, 90000, 0x100);
	tm_flight_set_advance(s, 100000);
	STAYS("2 400 1f 200 7");
	alloc(s, 1, 2000000, 0x200, 9); /* the free of 0x200 was lost: a later one is of the new block */
	release(s, 1, 3000000, 0x200);
	tm_flight_set_advance(s, 30000000000);
	STAYS("");
	alloc(s, 1, 31000000000, 0x300, 5);
	alloc(s, 2, 31005000000, 0x300, 6); /* what a realloc has freed whose end is read too late */
	tm_flight_set_advance(s, 31010000000);
	STAYS("2 31005000000 00 300 6");
	move(s, 1, 31004900000, 31012000000, 0x300, 0x400, 7);
	tm_flight_set_advance(s, 31020000000);
	STAYS("1 31012000000 1f 400 7, 2 31005000000 00 300 6");
	tm_flight_set_free(s);
}

static void test_mappings(void) {
	struct tm_flight_set *s = tm_flight_set_new(ANY);
	map(s, TM_OP_MMAP, 10, 0x10000, 0x5000, 0, 0);
	map(s, TM_OP_MUNMAP, 20, 0, 0, 0x11000, 0x1000);
	map(s, TM_OP_MMAP_FILE, 30, 0x14000, 0x2000, 0, 0);
	tm_flight_set_advance(s, 100);
	STAYS("1 10 60 10000 4096, 1 10 60 12000 8192, 1 30 61 14000 8192");
	map(s, TM_OP_MREMAP, 110, 0x90000, 0x3000, 0x12000, 0x2000);
	map(s, TM_OP_MUNMAP, 120, 0, 0, 0, 0x12000);
	tm_flight_set_advance(s, 200);
	STAYS("1 30 61 14000 8192, 1 110 a0 90000 12288");
	tm_flight_set_free(s);
}

/* What was asked for, of whole pages; what an mremap makes of a mapped file stays one. */
static void test_pages(void) {
	struct tm_flight_set *s = tm_flight_set_new(ANY);
	map(s, TM_OP_MMAP, 10, 0x10000, 0x5800, 0, 0);
	map(s, TM_OP_MMAP, 20, 0x12000, 0x1001, 0, 0);
	map(s, TM_OP_MREMAP, 30, 0x80000, 0x1000, 0x12000, 0);
	map(s, TM_OP_MMAP_FILE, 40, 0x90000, 0x1800, 0, 0);
	map(s, TM_OP_MREMAP, 50, 0xA0000, 0x2800, 0x90000, 0x2000);
	map(s, TM_OP_MREMAP, 60, 0xB0000, 0x1000, 0xA0000, 0);
	tm_flight_set_advance(s, 100);
	STAYS("1 10 60 10000 8192, 1 10 60 14000 6144, 1 20 60 12000 4097, 1 30 a0 80000 4096, 1 50 61 a0000 10240, 1 60 61 b0000 4096");
	tm_flight_set_free(s);
}

/* While a call that unmaps is on its way back, another thread maps where it has made room. */
static void test_mapped_meanwhile(void) {
	struct tm_flight_set *s = tm_flight_set_new(ANY);
	struct tm_event unmap = event(TM_OP_MUNMAP, 120, 0, 0), moved = event(TM_OP_MREMAP, 220, 0x90000, 0x2000);
	map(s, TM_OP_MMAP, 10, 0x10000, 0x4000, 0, 0);
	unmap.begin_ns = 100;
	put(s, 1, unmap, 0x10000, 0x4000);
	put(s, 2, event(TM_OP_MMAP, 110, 0x11000, 0x1000), 0, 0);
	tm_flight_set_advance(s, 115);
	STAYS("1 10 60 10000 4096, 1 10 60 12000 8192, 1 120 80 0 0, 2 110 60 11000 4096");
	moved.begin_ns = 200;
	put(s, 2, moved, 0x11000, 0x1000);
	put(s, 3, event(TM_OP_MMAP, 210, 0x11000, 0x2000), 0, 0);
	tm_flight_set_advance(s, 200);
	STAYS("2 110 60 11000 4096, 2 220 a0 90000 8192, 3 210 60 11000 8192");
	tm_flight_set_advance(s, 300);
	STAYS("2 220 a0 90000 8192, 3 210 60 11000 8192");
	tm_flight_set_free(s);
}

static void test_scopes(void) {
	struct tm_flight_set *s = tm_flight_set_new(ANY);
	scope(s, 1, TM_OP_SCOPE_PUSH, 10, 0, 0);
	scope(s, 1, TM_OP_SCOPE_PUSH, 11, 0, 0);
	alloc(s, 1, 12, 0x100, 5);
	scope(s, 1, TM_OP_SCOPE_END, 13, 0, 0);
	scope(s, 1, TM_OP_SCOPE_PUSH, 14, 0, 0); /* nothing stays of this one */
	alloc(s, 1, 15, 0x200, 5);
	release(s, 1, 16, 0x200);
	scope(s, 1, TM_OP_SCOPE_END, 17, 0, 0);
	tm_flight_set_advance(s, 100);
	STAYS("1 10 d0 0 0, 1 11 d0 0 0, 1 12 00 100 5, 1 13 d3 0 0");
	release(s, 2, 110, 0x100);
	tm_flight_set_advance(s, 200);
	STAYS("1 10 d0 0 0"); /* it is open */
	scope(s, 1, TM_OP_SCOPE_EXCEPTION, 210, 0, 0);
	tm_flight_set_advance(s, 300);
	STAYS("");
	/* A range is closed by its key from another thread, and stays where what encloses it is closed. */
	scope(s, 1, TM_OP_SCOPE_PUSH, 310, 0, 0);
	scope(s, 1, TM_OP_SCOPE_RANGE, 311, 77, 0);
	alloc(s, 1, 312, 0x100, 5);
	scope(s, 1, TM_OP_SCOPE_END, 313, 0, 0);
	alloc(s, 1, 314, 0x200, 6);
	scope(s, 2, TM_OP_SCOPE_END, 315, 77, 0);
	alloc(s, 1, 316, 0x300, 7);
	tm_flight_set_advance(s, 400);
	STAYS("1 310 d0 0 0, 1 311 d2 4d 0, 1 312 00 100 5, 1 313 d3 0 0, 1 314 00 200 6, 1 316 00 300 7, 2 315 d3 4d 0");
	tm_flight_set_free(s);
}

/* Pushes apart: the end of one leaves the other open, which has an end of its own; what is not apart goes with it. */
static void test_pushes_apart(void) {
	struct tm_flight_set *s = tm_flight_set_new(ANY);
	scope(s, 1, TM_OP_SCOPE_PUSH, 10, 0, TM_PUSH_APART);
	scope_in(s, 3, TM_OP_SCOPE_PUSH, 11, TM_PUSH_APART);
	scope(s, 1, TM_OP_SCOPE_PUSH, 12, 0, 0);
	alloc(s, 1, 13, 0x100, 5);
	scope(s, 1, TM_OP_SCOPE_END, 14, 0, 0); /* the innermost of category 0 is not apart */
	scope(s, 1, TM_OP_SCOPE_END, 15, 0, 0);
	alloc(s, 1, 16, 0x200, 6);
	scope_in(s, 3, TM_OP_SCOPE_END, 17, 0);
	alloc(s, 1, 18, 0x300, 7);
	tm_flight_set_advance(s, 100);
	STAYS("1 10 d0 0 0, 1 11 d0 0 0, 1 12 d0 0 0, 1 13 00 100 5, 1 14 d3 0 0, 1 15 d3 0 0, 1 16 00 200 6, 1 17 d3 0 0, 1 18 00 300 7");
	tm_flight_set_free(s);
	s = tm_flight_set_new(ANY);
	scope(s, 1, TM_OP_SCOPE_PUSH, 10, 0, TM_PUSH_APART);
	scope_in(s, 3, TM_OP_SCOPE_PUSH, 11, 0);
	scope_in(s, 3, TM_OP_SCOPE_PUSH, 12, TM_PUSH_APART);
	scope(s, 1, TM_OP_SCOPE_END, 13, 0, 0); /* takes one of category 3 with it that is not the innermost */
	alloc(s, 1, 14, 0x100, 5);
	scope_in(s, 3, TM_OP_SCOPE_END, 15, 0);
	scope_in(s, 3, TM_OP_SCOPE_END, 16, 0);
	alloc(s, 1, 17, 0x200, 6);
	tm_flight_set_advance(s, 100);
	STAYS("1 10 d0 0 0, 1 11 d0 0 0, 1 12 d0 0 0, 1 13 d3 0 0, 1 14 00 100 5, 1 15 d3 0 0, 1 17 00 200 6");
	tm_flight_set_free(s);
}

/* Many ranges at once, of two processes with the same keys, which end in the order in which they began. */
static void test_many_ranges(void) {
	struct tm_flight_set *s = tm_flight_set_new(ANY);
	for (uint64_t i = 0; i < 1000; i++) {
		for (uint32_t process = 1; process < 3; process++) {
			struct tm_event e = event(TM_OP_SCOPE_RANGE, 1000 + 10 * i + process, 1 + i, 0);
			tm_flight_set_add(s, process, process, &e, 1);
		}
	}
	for (uint64_t i = 1; i < 1000; i++) scope(s, 1, TM_OP_SCOPE_END, 20000 + i, 1 + i, 0);
	alloc(s, 1, 30000, 0x100, 5);
	tm_flight_set_advance(s, 40000);
	tm_flight_set_end_thread(s, 1);
	tm_flight_set_end_process(s, 2);
	STAYS("1 1001 d2 1 0, 1 30000 00 100 5");
	tm_flight_set_end_process(s, 1);
	STAYS("");
	tm_flight_set_free(s);
}

/* A block whose frame is gone when another opens gets an end of its own; a push inside of it goes with it. */
static void test_left_blocks(void) {
	struct tm_flight_set *s = tm_flight_set_new(ANY);
	scope(s, 1, TM_OP_SCOPE_BLOCK, 10, 0x7000, 0x7f00);
	scope(s, 1, TM_OP_SCOPE_PUSH, 11, 0, 0);
	alloc(s, 1, 12, 0x100, 5);
	scope(s, 1, TM_OP_SCOPE_BLOCK, 20, 0x8000, 0x8f00);
	alloc(s, 1, 21, 0x200, 6);
	scope(s, 1, TM_OP_SCOPE_END, 22, 0x8000, 0);
	tm_flight_set_advance(s, 100);
	STAYS("1 10 d1 7000 0, 1 11 d0 0 0, 1 12 00 100 5, 1 20 d3 7000 0, 1 20 d1 8000 0, 1 21 00 200 6, 1 22 d3 8000 0");
	release(s, 1, 110, 0x200);
	scope(s, 1, TM_OP_STEP, 111, 6, 0);
	scope(s, 1, TM_OP_STEP, 112, 8, 0);
	tm_flight_set_advance(s, 200);
	STAYS("1 10 d1 7000 0, 1 11 d0 0 0, 1 12 00 100 5, 1 20 d3 7000 0, 1 112 d5 8 0");
	tm_flight_set_free(s);
}

/* Frees that are stamped before the block that they end was handed over; a free of what was never seen ends nothing. */
static void test_early_frees(void) {
	struct tm_flight_set *s = tm_flight_set_new(ANY);
	release(s, 2, 1000, 0x100);
	alloc(s, 1, 1300, 0x100, 5);
	release(s, 2, 1400, 0x200);
	alloc(s, 2, 1500, 0x200, 6);
	release(s, 2, 2000, 0x300);
	alloc(s, 1, 200000, 0x300, 7);
	tm_flight_set_advance(s, 300000);
	STAYS("1 200000 00 300 7, 2 1500 00 200 6");
	alloc(s, 1, 400000, 0x400, 8); /* thread 2 gets the last one of 0x400 */
	release(s, 2, 400100, 0x400);
	for (uint64_t ns = 400200; ns < 400600; ns += 100) {
		release(s, 1, ns, 0x400);
		alloc(s, 1, ns + 50, 0x400, 9);
	}
	tm_flight_set_advance(s, 900000);
	STAYS("1 200000 00 300 7, 2 1500 00 200 6");
	release(s, 2, 1000000, 0x500); /* of nothing: it does not shift what follows for long */
	for (uint64_t ns = 1010000; ns < 6000000; ns += 10000) {
		alloc(s, 1, ns, 0x500, 10);
		release(s, 1, ns + 5000, 0x500);
	}
	alloc(s, 1, 6000000, 0x500, 11);
	tm_flight_set_advance(s, 7000000);
	STAYS("1 200000 00 300 7, 1 6000000 00 500 11, 2 1500 00 200 6");
	release(s, 2, 7000000, 0x500);
	alloc(s, 1, 8000000, 0x600, 12); /* its free was lost: what comes to lie there waits for it, and then no longer */
	alloc(s, 2, 8010000, 0x600, 13);
	release(s, 2, 8015000, 0x600);
	tm_flight_set_advance(s, 9000000);
	STAYS("1 200000 00 300 7, 1 8000000 00 600 12, 2 1500 00 200 6, 2 8010000 00 600 13, 2 8015000 20 0 0");
	tm_flight_set_advance(s, 20000000);
	STAYS("1 200000 00 300 7, 2 1500 00 200 6");
	tm_flight_set_advance(s, 30000000000);
	alloc(s, 1, 30000000001, 0x700, 14);
	tm_flight_set_advance(s, 30000000002);
	STAYS("1 200000 00 300 7, 1 30000000001 00 700 14, 2 1500 00 200 6");
	for (uint64_t ns = 40000000000; ns < 40100000000; ns += 6000000) { /* early now and then, which has nothing to do with the time before */
		release(s, 2, ns, 0x800);
		alloc(s, 1, ns + 40, 0x800, 15);
	}
	tm_flight_set_advance(s, 50000000000);
	STAYS("1 200000 00 300 7, 1 30000000001 00 700 14, 2 1500 00 200 6");
	tm_flight_set_free(s);
}

/* A fork's child frees what it inherited; another of its threads is given the place at once, and keeps it. */
static void test_inherited(void) {
	for (unsigned inherits = 0; inherits < 2; inherits++) {
		struct tm_flight_set *s = tm_flight_set_new(ANY);
		if (inherits) tm_flight_set_inherits(s, 1);
		alloc(s, 2, 500, 0x900, 4);
		release(s, 1, 1000, 0x100);
		alloc(s, 2, 1100, 0x100, 5);
		release(s, 1, 200000, 0x100);
		alloc(s, 2, 200100, 0x100, 6);
		for (uint64_t i = 0; i < 1u << 20; i++) release(s, 1, 300000 + i, 0x10000 + 16 * i); /* what it remembers of this has a bound */
		tm_flight_set_advance(s, 9000000);
		STAYS(inherits ? "2 500 00 900 4, 2 200100 00 100 6" : "2 500 00 900 4");
		tm_flight_set_free(s);
	}
}

/* Recording was off for a while: a reader has to know that still when nothing of that time is there any more. */
static void test_stops(void) {
	struct tm_flight_set *s = tm_flight_set_new(ANY);
	put(s, 1, event(TM_OP_START, 5, 0, 0), 0, 0);
	for (uint64_t ns = 10; ns < 50; ns += 20) {
		put(s, 1, event(TM_OP_STOP, ns, 0, 0), 0, 0);
		put(s, 2, event(TM_OP_START, ns + 10, 0, 0), 0, 0);
	}
	tm_flight_set_advance(s, 45);
	STAYS("1 30 c3 0 0, 2 40 c4 0 0");
	put(s, 2, event(TM_OP_STOP, 50, 0, 0), 0, 0);
	tm_flight_set_advance(s, 60);
	STAYS("2 50 c3 0 0");
	tm_flight_set_free(s);
}

/* An event that is missing shifts what follows for 0.1 ms and no longer, where it is known that one may be. */
static void test_gaps(void) {
	for (unsigned gaps = 0; gaps < 2; gaps++) {
		struct tm_flight_set *s = tm_flight_set_new(ANY);
		if (gaps) tm_flight_set_has_gaps(s, 1);
		alloc(s, 2, 100, 0x900, 4);
		alloc(s, 1, 1000, 0x100, 5); /* its free was lost */
		for (uint64_t ns = 2000; ns < 1000000; ns += 1000) {
			alloc(s, 1, ns, 0x100, 6);
			release(s, 2, ns + 500, 0x100);
		}
		tm_flight_set_advance(s, 1000000);
		STAYS(gaps ? "2 100 00 900 4" : "1 999000 00 100 6, 2 100 00 900 4");
		tm_flight_set_free(s);
	}
}

/* Thread 1 stands still in a realloc that began at 20000000: four events wait for it, and where there are more two stay. When it goes on, what it freed is
 * gone, and its new block is there; who got the old address meanwhile keeps it. */
static void test_stands_still(void) {
	struct tm_flight_set *s = tm_flight_set_new(4);
	alloc(s, 1, 10000000, 0x500, 9);
	alloc(s, 1, 11000000, 0x800, 3);
	CHECK(tm_flight_set_advance(s, 15000000) == 15000000);
	alloc(s, 2, 30000000, 0x100, 5);
	alloc(s, 3, 40000000, 0x500, 6);
	release(s, 2, 50000000, 0x100);
	alloc(s, 3, 60000000, 0x300, 7);
	CHECK(tm_flight_set_advance(s, 15000000) == 15000000 && tm_flight_set_waits(s, 2) && tm_flight_set_waits(s, 3));
	STAYS("1 10000000 00 500 9, 1 11000000 00 800 3, 2 30000000 00 100 5, 2 50000000 20 0 0, 3 40000000 00 500 6, 3 60000000 00 300 7");
	alloc(s, 2, 70000000, 0x400, 8);
	CHECK(tm_flight_set_advance(s, 15000000) == 50000001 && tm_flight_set_waits(s, 2) && tm_flight_set_waits(s, 3));
	STAYS("1 11000000 00 800 3, 2 70000000 00 400 8, 3 40000000 00 500 6, 3 60000000 00 300 7");
	move(s, 1, 20000000, 80000000, 0x500, 0x700, 10);
	release(s, 1, 81000000, 0x800);
	CHECK(tm_flight_set_advance(s, 90000000) == 90000000);
	STAYS("1 80000000 1f 700 10, 2 70000000 00 400 8, 3 40000000 00 500 6, 3 60000000 00 300 7");
	tm_flight_set_free(s);
}

int main(void) {
	test_blocks();
	test_stands_still();
	test_handed_over();
	test_early_frees();
	test_inherited();
	test_stops();
	test_gaps();
	test_mappings();
	test_mapped_meanwhile();
	test_pages();
	test_scopes();
	test_pushes_apart();
	test_many_ranges();
	test_left_blocks();
	return check_report("test_flight_set");
}
