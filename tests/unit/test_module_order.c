/* test_module_order.c - what one ring tells of modules stands between the right events of the others, and no two rings wait for each other for ever.
 *
 * Method:  as test_drain.c: the test writes the rings. Times are chosen by hand; the order in which a pass finds the rings is not that of the times.
 */
#include "../../recorder/collector/drain.h"
#include "drain_world.h"

#define LOW 0x400000u
#define SIZE 0x1000u
#define PC (LOW + 0x10)

static void begin_modules(struct world *w, uint32_t index) {
	atomic_fetch_add(&tm_session_ring(&w->c.session, index)->modules_begun, 1);
}

static void end_modules(struct world *w, uint32_t index) {
	struct tm_ring *ring = tm_session_ring(&w->c.session, index);
	atomic_store(&ring->modules_ended, atomic_load(&ring->modules_begun));
}

static void load(struct world *w, uint32_t index, uint64_t ticks, uint64_t name) {
	PUT(w, index, tm_ring_word(TM_CTL_MODULE, 0, 6, 0, 4), ticks, LOW, LOW, SIZE, name);
}

static void unload(struct world *w, uint32_t index, uint64_t ticks) {
	PUT(w, index, tm_ring_word(TM_CTL_UNLOAD, 0, 4, 0, 0), ticks, LOW, SIZE);
}

static void allocate_at(struct world *w, uint32_t index, uint64_t ticks, uint64_t addr, bool whole) {
	if (whole) PUT(w, index, tm_ring_word(TM_OP_MALLOC, 0, 5, 0, 0), ticks, addr, 1, PC);
	else PUT(w, index, tm_ring_word(TM_OP_MALLOC, 0, 4, 1, 0), ticks, addr, 1); /* the same stack as before */
}

/* The module of the event's only frame, by the order of loading. */
static uint64_t module_of(const struct world *w, const struct trace *t, uint64_t addr) {
	for (size_t i = 0; i < t->count; i++)
		if (t->events[i].addr == addr) return w->c.stacks.frames[w->c.stacks.nodes[t->events[i].stack - 1].frame - 1].module;
	return UINT64_MAX;
}

/* Ring 0 tells that one module gave way to another; ring 1 has events before, between and after, in one block. */
static void test_between_the_events(uint32_t teller) {
	static struct world w;
	static struct trace t;
	uint32_t pid = (uint32_t)getpid(), other = 1 - teller;
	world_start(&w);
	claim(&w, 0, 1, pid, 1);
	claim(&w, 1, 1, pid, 2);
	announce(&w, 0, pid, 0);
	allocate(&w, 0, 0x800, 1); /* with it all is said about the process, for which other rings wait */
	pass(&w);
	uint64_t start = now(&w);
	begin_modules(&w, teller);
	load(&w, teller, start, 0x6f732e61); /* "a.so" */
	unload(&w, teller, start + 20);
	load(&w, teller, start + 30, 0x6f732e62); /* "b.so" */
	end_modules(&w, teller);
	for (uint64_t i = 0; i < 5; i++) allocate_at(&w, other, start + 10 * i + 5, 0x1000 * (i + 1), i == 0);
	usleep(1000);
	for (int i = 0; i < 3; i++) pass(&w);
	CHECK(w.c.rings[0].tail == w.c.rings[0].head && w.c.rings[1].tail == w.c.rings[1].head);
	uint64_t modules[5];
	world_finish(&w);
	read_trace(&t, w.path);
	for (uint64_t i = 0; i < 5; i++) modules[i] = module_of(&w, &t, 0x1000 * (i + 1));
	CHECK(t.count == 6 && t.modules == 2);
	/* At 5 and 15 the first one lay there, at 35 and 45 the second; at 25 none, and the one that is told of next is taken to have been late. */
	CHECK(modules[0] == 1 && modules[1] == 1 && modules[2] != 1 && modules[3] == 2 && modules[4] == 2);
	trace_release(&t);
	world_release(&w);
}

/* Two rings with records of the same time; or of times that run backwards, as only a scribbled ring has them. */
static void test_rings_that_would_wait_for_each_other(bool backwards) {
	static struct world w;
	static struct trace t;
	uint32_t pid = (uint32_t)getpid();
	world_start(&w);
	claim(&w, 0, 1, pid, 1);
	claim(&w, 1, 1, pid, 2);
	announce(&w, 0, pid, 0);
	pass(&w);
	uint64_t start = now(&w);
	for (uint32_t i = 0; i < 2; i++) begin_modules(&w, i);
	if (backwards) allocate_at(&w, 0, start + 20, 0x100, true);
	load(&w, 0, start + (backwards ? 5 : 0), 0x6f732e61);
	load(&w, 1, start + (backwards ? 10 : 0), 0x6f732e62);
	for (uint32_t i = 0; i < 2; i++) end_modules(&w, i);
	for (uint64_t i = 1; i <= 10; i++) {
		allocate(&w, 0, 0x10000 * i, 1);
		allocate(&w, 1, 0x10000 * i + 64, 1);
	}
	usleep(1000);
	for (int i = 0; i < 4; i++) pass(&w);
	CHECK(w.c.rings[0].tail == w.c.rings[0].head && w.c.rings[1].tail == w.c.rings[1].head);
	finish_and_read(&w, &t);
	CHECK(t.count == 20u + backwards && t.losses == 0 && t.modules == 2);
	trace_release(&t);
}

/* A thread that sits in the middle of an event holds the records back once, not each of them; and what it then tells is there. */
static void test_standstill(void) {
	enum { RECORDS = 20 };
	static struct world w;
	static struct trace t;
	uint32_t pid = (uint32_t)getpid();
	world_start(&w);
	claim(&w, 0, 1, pid, 1);
	struct tm_ring *sits = claim(&w, 1, 1, pid, 2);
	announce(&w, 0, pid, 0);
	allocate(&w, 1, 0x1000, 1);
	pass(&w);
	atomic_store(&sits->busy, 1);
	uint64_t begin = tm_monotonic_ns(), stamp = now(&w);
	for (int i = 0; i < RECORDS; i++) {
		begin_modules(&w, 0);
		load(&w, 0, now(&w), 0x6f732e61);
		unload(&w, 0, now(&w));
		end_modules(&w, 0);
		allocate(&w, 0, 0x2000 + 64 * (uint64_t)i, 1);
		do {
			usleep(500);
			pass(&w);
		} while (w.c.rings[0].tail != w.c.rings[0].head);
	}
	CHECK(tm_monotonic_ns() - begin >= TM_MODULE_HOLD_NS); /* it was waited for */
	CHECK(w.c.rings[1].modules.given_up == w.c.rings[1].head + 1);
	CHECK(!w.c.rings[0].modules.held_ns);
	PUT(&w, 1, tm_ring_word(TM_OP_MALLOC, TM_RING_NO_STACK, 4, 0, TM_RING_USABLE_UNKNOWN), stamp, 0x9000, 1);
	atomic_store(&sits->busy, 0);
	finish_and_read(&w, &t);
	CHECK(t.count == RECORDS + 2 && t.losses == 0 && t.modules == RECORDS);
	trace_release(&t);
}

int main(void) {
	test_between_the_events(0);
	test_between_the_events(1);
	test_rings_that_would_wait_for_each_other(false);
	test_rings_that_would_wait_for_each_other(true);
	test_standstill();
	return check_report("test_module_order");
}
