/* test_drain.c - from ring to trace, within one process: what is written comes out, and nothing in a ring can hurt the collector.
 *
 * Goal:    records written as a guest writes them are decoded from the trace exactly; a corrupt stretch costs the rest of that ring and
 *          is counted; random bytes, lengths and positions never crash it, never make it loop, and leave a trace that is sound from end
 *          to end and keeps its promises (ids defined before use, times of a thread never decreasing, none below an earlier watermark).
 * Method:  the session lies in our own memory, so the test plays the guests; expected events are written out by hand, hostile ones are
 *          random with a printed seed.
 */
#include "../../recorder/collector/drain.h"
#include "drain_world.h"

/* --- what is written comes out --- */

static void test_events_of_every_class(void) {
	static struct world w;
	static struct trace t;
	uint32_t pid = (uint32_t)getpid();
	world_start(&w);
	claim(&w, 0, 1, pid, 1);
	announce(&w, 0, pid, 0);
	allocate(&w, 0, 0x1000, 100);
	PUT(&w, 0, tm_ring_word(TM_OP_REALLOC, TM_RING_NO_STACK, 6, 0, TM_RING_USABLE_UNKNOWN), now(&w), 0x2000, 300, now(&w), 0x1000);
	release(&w, 0, 0x2000);
	PUT(&w, 0, tm_ring_word(TM_OP_MMAP, TM_RING_NO_STACK, 4, 0, 0), now(&w), 0x10000, 8192);
	PUT(&w, 0, tm_ring_word(TM_OP_MREMAP, TM_RING_NO_STACK, 7, 0, 0), now(&w), 0x20000, 16384, now(&w), 0x10000, 8192);
	PUT(&w, 0, tm_ring_word(TM_OP_MUNMAP, TM_RING_NO_STACK, 5, 0, 0), now(&w), now(&w), 0x20000, 4096);
	PUT(&w, 0, tm_ring_word(TM_OP_MARK, TM_RING_NO_STACK, 3, 0, 4), now(&w), 0x6b72616d); /* "mark" */
	pass(&w);
	struct tm_tally *tally = w.c.tally;
	world_finish(&w);
	tm_tally_finish(tally);
	struct tm_tally_process p = tm_tally_of(tally, 1);
	CHECK(p.peak_bytes == 16384 && p.live_bytes == 12288 && p.live_blocks == 1);
	CHECK(tm_tally_allocations(tally) == 4 && tm_tally_frees(tally) == 4);
	read_trace(&t, w.path);
	world_release(&w);
	CHECK(t.count == 7 && t.losses == 0 && t.processes == 1 && t.thread_count == 1 && t.heaps == 2 && t.strings == 1);
	if (t.count != 7) return;
	CHECK(t.events[0].op == TM_OP_MALLOC && t.events[0].addr == 0x1000 && t.events[0].size == 100 && t.events[0].usable == 104);
	CHECK(t.events[1].op == TM_OP_REALLOC && t.events[1].old == 0x1000 && t.events[1].addr == 0x2000 && t.events[1].size == 300);
	CHECK(t.events[1].usable == TM_USABLE_UNKNOWN);
	CHECK(t.events[2].op == TM_OP_FREE && t.events[2].old == 0x2000);
	CHECK(t.events[3].op == TM_OP_MMAP && t.events[3].addr == 0x10000 && t.events[3].size == 8192);
	CHECK(t.events[4].op == TM_OP_MREMAP && t.events[4].addr == 0x20000 && t.events[4].old == 0x10000 && t.events[4].old_size == 8192);
	CHECK(t.events[5].op == TM_OP_MUNMAP && t.events[5].old == 0x20000 && t.events[5].old_size == 4096);
	CHECK(t.events[6].op == TM_OP_MARK && t.events[6].text == 1);
	trace_release(&t);
}

/* "Keep k, then these": stacks ABC, AB (popped), ABD (one new), AB again by its whole length. */
static void test_stacks(void) {
	static struct world w;
	static struct trace t;
	uint32_t pid = (uint32_t)getpid();
	world_start(&w);
	claim(&w, 0, 1, pid, 1);
	announce(&w, 0, pid, 0);
	PUT(&w, 0, tm_ring_word(TM_OP_MALLOC, 0, 7, 0, 0), now(&w), 0x1000, 1, 0xA, 0xB, 0xC);
	PUT(&w, 0, tm_ring_word(TM_OP_MALLOC, 0, 4, 2, 0), now(&w), 0x2000, 1);
	PUT(&w, 0, tm_ring_word(TM_OP_MALLOC, 0, 5, 2, 0), now(&w), 0x3000, 1, 0xD);
	PUT(&w, 0, tm_ring_word(TM_OP_MALLOC, 0, 4, 3, 0), now(&w), 0x4000, 1);
	PUT(&w, 0, tm_ring_word(TM_OP_MALLOC, 0, 6, 0, 0), now(&w), 0x5000, 1, 0xA, 0xB);
	finish_and_read(&w, &t);
	if (!CHECK(t.count == 5 && t.nodes == 4 && t.frames == 4)) return;
	uint32_t abc = t.events[0].stack, ab = t.events[1].stack, abd = t.events[2].stack;
	CHECK(t.frames_by_id[t.nodes_by_id[abc].frame].address == 0xC && t.nodes_by_id[abc].parent == ab);
	CHECK(t.frames_by_id[t.nodes_by_id[abd].frame].address == 0xD && t.nodes_by_id[abd].parent == ab);
	CHECK(t.frames_by_id[t.nodes_by_id[ab].frame].address == 0xB && t.nodes_by_id[t.nodes_by_id[ab].parent].parent == 0);
	CHECK(t.events[3].stack == abd && t.events[4].stack == ab);
	trace_release(&t);
}

/* A module that is told after its frames. */
static void test_late_module(void) {
	static struct world w;
	static struct trace t;
	uint32_t pid = (uint32_t)getpid();
	world_start(&w);
	claim(&w, 0, 1, pid, 1);
	announce(&w, 0, pid, 0);
	PUT(&w, 0, tm_ring_word(TM_OP_MALLOC, 0, 6, 0, 0), now(&w), 0x1000, 1, 0x400020, 0x400010);
	PUT(&w, 0, tm_ring_word(TM_CTL_MODULE, 0, 6, 0, 4), now(&w), 0x400000, 0x400000, 0x1000, 0x6f732e61); /* "a.so" */
	PUT(&w, 0, tm_ring_word(TM_OP_MALLOC, 0, 6, 0, 0), now(&w), 0x2000, 1, 0x400020, 0x400010);
	pass(&w);
	CHECK(w.c.stacks.unknown_count == 0 && w.c.stacks.frame_count == 2 && w.c.stacks.node_count == 2);
	CHECK(w.c.stacks.frames[0].module == 1 && w.c.stacks.frames[1].module == 1);
	finish_and_read(&w, &t);
	CHECK(t.count == 2 && t.modules == 1 && t.events[0].stack == t.events[1].stack);
	trace_release(&t);
}

/* What lay at a module's place long before it was told is code that the program had made there: it is no module's. */
static void test_code_before_module(void) {
	static struct world w;
	static struct trace t;
	uint32_t pid = (uint32_t)getpid();
	world_start(&w);
	claim(&w, 0, 1, pid, 1);
	announce(&w, 0, pid, 0);
	PUT(&w, 0, tm_ring_word(TM_OP_MALLOC, 0, 6, 0, 0), now(&w), 0x1000, 1, 0x400020, 0x400010);
	sleep(1);
	usleep(20000);
	PUT(&w, 0, tm_ring_word(TM_CTL_MODULE, 0, 6, 0, 4), now(&w), 0x400000, 0x400000, 0x1000, 0x6f732e61);
	PUT(&w, 0, tm_ring_word(TM_OP_MALLOC, 0, 6, 0, 0), now(&w), 0x2000, 1, 0x400020, 0x400010);
	pass(&w);
	CHECK(w.c.stacks.frame_count == 4 && w.c.stacks.node_count == 4);
	CHECK(w.c.stacks.frames[0].module == 0 && w.c.stacks.frames[1].module == 0);
	CHECK(w.c.stacks.frames[2].module == 1 && w.c.stacks.frames[3].module == 1);
	finish_and_read(&w, &t);
	CHECK(t.count == 2 && t.modules == 1 && t.events[0].stack != t.events[1].stack);
	trace_release(&t);
}

/* Two processes with code at the same addresses: what one of them tells of its modules is not the other's, and nothing is kept for one that is over. */
static void test_code_of_two_processes(void) {
	static struct world w;
	static struct trace t;
	uint32_t root = (uint32_t)getpid(), child = root + 1000000;
	world_start(&w);
	claim(&w, 0, 1, root, 1);
	announce(&w, 0, root, 0);
	PUT(&w, 0, tm_ring_word(TM_OP_MALLOC, 0, 6, 0, 0), now(&w), 0x1000, 1, 0x400020, 0x400010);
	PUT(&w, 0, tm_ring_word(TM_CTL_FORK, 0, 3, 0, 0), now(&w), child);
	claim(&w, 1, 2, child, 1);
	announce(&w, 1, child, 1);
	PUT(&w, 1, tm_ring_word(TM_OP_MALLOC, 0, 7, 0, 0), now(&w), 0x1000, 1, 0x900000, 0x400020, 0x400010);
	usleep(1000);
	pass(&w);
	CHECK(w.c.stacks.unknown_count == 5);
	PUT(&w, 1, tm_ring_word(TM_CTL_MODULE, 0, 6, 0, 4), now(&w), 0x400000, 0x400000, 0x1000, 0x6f732e61); /* "a.so" */
	usleep(1000);
	pass(&w);
	CHECK(w.c.stacks.unknown_count == 3);
	PUT(&w, 0, tm_ring_word(TM_CTL_WAIT, 0, 4, 0, 0), now(&w), child, 7 << 8);
	for (unsigned i = 0; i < 1000 && w.c.stacks.unknown_count != 2; i++) {
		usleep(1000);
		pass(&w);
	}
	CHECK(w.c.stacks.unknown_count == 2);
	PUT(&w, 0, tm_ring_word(TM_CTL_MODULE, 0, 6, 0, 4), now(&w), 0x400000, 0x400000, 0x1000, 0x6f732e61);
	usleep(1000);
	pass(&w);
	CHECK(w.c.stacks.unknown_count == 0);
	finish_and_read(&w, &t);
	CHECK(t.count == 2 && t.modules == 2 && t.frames == 5);
	trace_release(&t);
}

/* More than a ring holds, in pieces, with records that lie across its end. */
static void test_around_the_ring(void) {
	static struct world w;
	static struct trace t;
	uint32_t pid = (uint32_t)getpid();
	uint64_t written = 0;
	world_start(&w);
	struct tm_ring *ring = claim(&w, 0, 1, pid, 1);
	announce(&w, 0, pid, 0);
	for (; written < 20000; written++) {
		if (atomic_load(&ring->head) - atomic_load(&ring->tail) > w.c.session.ring_bytes - 64) pass(&w);
		allocate(&w, 0, (written + 1) * 64, written % 1000);
	}
	finish_and_read(&w, &t);
	CHECK(t.count == written && t.losses == 0);
	for (size_t i = 0; i < t.count; i++)
		if (!CHECK(t.events[i].addr == (i + 1) * 64 && t.events[i].size == i % 1000)) break;
	trace_release(&t);
}

/* A pass over many full rings takes long: whoever waits for room sees that it goes on, and the oldest events are read first, whatever ring they are in. */
static void test_many_full_rings(void) {
	enum { RINGS = 100 };
	static struct world w;
	static struct trace t;
	uint32_t pid = (uint32_t)getpid();
	uint64_t each = 0;
	world_start(&w);
	for (uint32_t i = RINGS; i-- > 0; each = 0) {
		struct tm_ring *ring = claim(&w, i, 1, pid, RINGS - i);
		if (i == RINGS - 1) announce(&w, i, pid, 0);
		for (; atomic_load(&ring->head) < w.c.session.ring_bytes - 64; each++) allocate(&w, i, (uint64_t)(i + 1) << 32 | (each + 1) * 64, 1);
	}
	usleep(1000);
	uint64_t heartbeat = atomic_load(&w.c.session.shm->heartbeat), last = now(&w);
	pass(&w);
	CHECK(atomic_load(&w.c.session.shm->heartbeat) - heartbeat > RINGS);
	for (uint32_t i = 0; i < RINGS; i++) CHECK(w.c.rings[i].thread == RINGS - i && w.c.rings[i].tail == w.c.rings[i].head);
	usleep(1000);
	pass(&w);
	CHECK(w.c.watermark_ticks > last);
	finish_and_read(&w, &t);
	CHECK(t.count >= RINGS * (w.c.session.ring_bytes / 32 - 8) && t.losses == 0 && t.thread_count == RINGS);
	trace_release(&t);
}

/* Rings of a program of very many threads are smaller. */
static void test_bytes_of_rings(void) {
	uint64_t all = 0;
	for (uint32_t i = 0; i < 4096; all += tm_ring_bytes_at(4 << 20, i++)) CHECK(tm_ring_bytes_before(4 << 20, i) == all);
	CHECK(tm_ring_bytes_at(4 << 20, 3) == 4 << 20 && tm_ring_bytes_at(4 << 20, 4) == 1 << 20 && tm_ring_bytes_at(4 << 20, 64) == 256 << 10);
	CHECK(tm_ring_bytes_at(4 << 20, 511) == 256 << 10 && tm_ring_bytes_at(4 << 20, 512) == 64 << 10);
	CHECK(all == 412ull << 20 && tm_ring_bytes_before(4 << 20, 4096) == all);
	CHECK(tm_ring_bytes_at(64 << 10, 100) == 64 << 10 && tm_ring_bytes_at(4096, 4000) == 4096 && tm_ring_bytes_before(4096, 4000) == 4000 * 4096);
}

/* Nothing is promised beyond the last event of a thread that is in the middle of one. */
static void test_watermark(void) {
	static struct world w;
	static struct trace t;
	uint32_t pid = (uint32_t)getpid();
	world_start(&w);
	struct tm_ring *ring = claim(&w, 0, 1, pid, 1);
	announce(&w, 0, pid, 0);
	allocate(&w, 0, 0x1000, 1);
	uint64_t last = now(&w);
	usleep(1000);
	atomic_store(&ring->busy, 1);
	pass(&w);
	CHECK(w.c.watermark_ticks <= last);
	atomic_store(&ring->busy, 0);
	usleep(1000);
	pass(&w);
	CHECK(w.c.watermark_ticks > last && w.c.watermark_ticks < now(&w));
	finish_and_read(&w, &t);
	trace_release(&t);
}

#define TEXT8(a, b, c, d, e, f, g, h) \
	((uint64_t)(a) | (uint64_t)(b) << 8 | (uint64_t)(c) << 16 | (uint64_t)(d) << 24 | (uint64_t)(e) << 32 | (uint64_t)(f) << 40 | \
	 (uint64_t)(g) << 48 | (uint64_t)(h) << 56)

/* Who asks for figures is answered when all that happened before is known, and in the order of time: the block of a thread that was still writing it lay beside
 * one that was gone by the time it was written. */
static void test_answer_waits_for_who_is_busy(void) {
	static struct world w;
	static struct trace t;
	world_start(&w);
	struct tm_stats_slot *slot = &w.c.session.shm->stats[0];
	struct tm_ring *busy = claim(&w, 1, 1, (uint32_t)getpid(), 2);
	claim(&w, 0, 1, (uint32_t)getpid(), 1);
	announce(&w, 0, (uint32_t)getpid(), 0);
	atomic_store(&busy->busy, 1);
	slot->process = 1;
	atomic_store(&slot->state, TM_STATS_ASKED);
	uint64_t first = now(&w), between = first + 100; /* two looks at the clock may be made in either order by the processor */
	PUT(&w, 0, tm_ring_word(TM_OP_MALLOC, TM_RING_NO_STACK, 4, 0, TM_RING_USABLE_UNKNOWN), first, 0x1000, 300);
	PUT(&w, 0, tm_ring_word(TM_OP_FREE, TM_RING_NO_STACK, 3, 0, 0), first + 200, 0x1000);
	PUT(&w, 0, tm_ring_word(TM_CTL_STATS, 0, 4, 0, 6), first + 300, 0, TEXT8('m', 'a', 'l', 'l', 'o', 'c', 0, 0));
	usleep(1000);
	pass(&w);
	CHECK(atomic_load(&slot->state) == TM_STATS_ASKED);
	PUT(&w, 1, tm_ring_word(TM_OP_MALLOC, TM_RING_NO_STACK, 4, 0, TM_RING_USABLE_UNKNOWN), between, 0x2000, 500);
	atomic_store(&busy->busy, 0);
	pass(&w);
	CHECK(atomic_load(&slot->state) == TM_STATS_ANSWERED);
	CHECK(slot->live_bytes == 500 && slot->live_count == 1 && slot->peak_bytes == 800 && slot->peak_since_reset_bytes == 800);
	CHECK(slot->allocations == 2 && slot->frees == 1 && slot->exact == 1);
	finish_and_read(&w, &t);
	trace_release(&t);
}

/* What a block can hold is said by the lowest bits of the word in front of it: chunks of 32, 112, 64, 65,552 and 2^40 bytes, with and without flags; or by how
 * much more it is. */
static void test_what_blocks_hold(void) {
	static const struct {
		uint64_t size;
		unsigned y;
		uint64_t usable;
	} blocks[] = { { 1, 0x21, 24 },      { 0, 0x20, 24 },          { 24, 0x25, 24 },
		       { 100, 0x71, 104 },   { 30, 0x41, 56 },         { 65530, 0x0011, 65544 },
		       { 65544, 0x10, 65544 }, { 0xfffffffff8u, 0x0001, 0xfffffffff8u }, { 7, TM_RING_USABLE_UNKNOWN, TM_USABLE_UNKNOWN },
		       { 100, 2, 100 },      { 100, 3, 101 },          { 7, 0xfffb, 32772 } };
	static struct world w;
	static struct trace t;
	size_t count = sizeof blocks / sizeof blocks[0];
	world_start(&w);
	claim(&w, 0, 1, (uint32_t)getpid(), 1);
	announce(&w, 0, (uint32_t)getpid(), 0);
	for (size_t i = 0; i < count; i++)
		PUT(&w, 0, tm_ring_word(TM_OP_MALLOC, TM_RING_NO_STACK, 4, 0, blocks[i].y), now(&w), 0x1000 * (i + 1), blocks[i].size);
	PUT(&w, 0, tm_ring_word(TM_OP_REALLOC, TM_RING_NO_STACK, 6, 0, 0x31), now(&w), 0x20000, 33, now(&w), 0x1000);
	pass(&w);
	finish_and_read(&w, &t);
	CHECK(t.count == count + 1);
	for (size_t i = 0; i < count && i < t.count; i++) CHECK(t.events[i].size == blocks[i].size && t.events[i].usable == blocks[i].usable);
	CHECK(t.count == count + 1 && t.events[count].usable == 40);
	CHECK(tm_ring_usable_word(100, 100) == 2 && tm_ring_usable_word(100, 101) == 3 && tm_ring_usable_word(7, 32773) == 0xfffe);
	CHECK(tm_ring_usable_word(8, 8 + 65528) == 8 && tm_ring_usable_word(1, 40000) == 40008); /* and more as glibc would */
	CHECK(tm_ring_usable_word(8, 8 + 65536) == TM_RING_USABLE_UNKNOWN && tm_ring_usable_word(100, UINT64_MAX) == TM_RING_USABLE_UNKNOWN);
	CHECK(tm_ring_usable_word(10, 40001) == TM_RING_USABLE_UNKNOWN); /* no such number of bytes is said */
	trace_release(&t);
}

/* Scopes of every kind, their names and categories, steps and the other texts, as the trace has them. */
static void test_scopes(void) {
	static struct world w;
	static struct trace t;
	uint32_t pid = (uint32_t)getpid();
	world_start(&w);
	claim(&w, 0, 1, pid, 1);
	announce(&w, 0, pid, 0);
	PUT(&w, 0, tm_ring_word(TM_CTL_CATEGORY, 0, 3, 16, 6), now(&w), TEXT8('n', 'v', 't', 'x', ':', 'D', 0, 0));
	PUT(&w, 0, tm_ring_word(TM_OP_SCOPE_PUSH, 0, 5, TM_SCOPE_USER, 4), now(&w), 0, 0, TEXT8('l', 'o', 'a', 'd', 0, 0, 0, 0));
	PUT(&w, 0, tm_ring_word(TM_OP_SCOPE_BLOCK, 0, 5, TM_SCOPE_USER, 4), now(&w), 77, 0x7ffe0000, TEXT8('l', 'o', 'a', 'd', 0, 0, 0, 0));
	PUT(&w, 0, tm_ring_word(TM_OP_SCOPE_RANGE, 0, 4, 16, 0), now(&w), UINT64_MAX, UINT64_MAX);
	PUT(&w, 0, tm_ring_word(TM_OP_SCOPE_END, 0, 4, 99, 0), now(&w), 77, 0);
	PUT(&w, 0, tm_ring_word(TM_OP_SCOPE_EXCEPTION, 0, 4, TM_SCOPE_USER, 0), now(&w), 0, 0);
	PUT(&w, 0, tm_ring_word(TM_OP_STEP, 0, 4, 0, 0), now(&w), 84, 0);
	PUT(&w, 0, tm_ring_word(TM_OP_BASELINE, 0, 2, 0, 0), now(&w));
	PUT(&w, 0, tm_ring_word(TM_OP_RESET_PEAK, 0, 3, 0, 6), now(&w), TEXT8('m', 'a', 'l', 'l', 'o', 'c', 0, 0));
	finish_and_read(&w, &t);
	if (!CHECK(t.count == 8 && t.losses == 0)) return;
	const struct tm_event *e = t.events;
	CHECK(e[0].op == TM_OP_SCOPE_PUSH && e[0].addr == 0 && !strcmp(t.string[e[0].text], "load") && !strcmp(t.string[e[0].heap], "user"));
	CHECK(e[1].op == TM_OP_SCOPE_BLOCK && e[1].addr == 77 && e[1].old == 0x7ffe0000 && e[1].text == e[0].text && e[1].heap == e[0].heap);
	CHECK(e[2].op == TM_OP_SCOPE_RANGE && e[2].addr == UINT64_MAX && e[2].old == UINT64_MAX && !strcmp(t.string[e[2].heap], "nvtx:D"));
	CHECK(e[2].text != 0 && t.string[e[2].text][0] == 0);
	CHECK(e[3].op == TM_OP_SCOPE_END && e[3].addr == 77 && e[3].text == 0 && !strcmp(t.string[e[3].heap], "unknown"));
	CHECK(e[4].op == TM_OP_SCOPE_EXCEPTION && e[4].addr == 0 && e[4].heap == e[0].heap);
	CHECK(e[5].op == TM_OP_STEP && e[5].addr == 84 && e[5].heap == 0 && e[5].text == 0);
	CHECK(e[6].op == TM_OP_BASELINE && e[6].text == 0);
	CHECK(e[7].op == TM_OP_RESET_PEAK && !strcmp(t.string[e[7].text], "malloc"));
	trace_release(&t);
}

/* Explicit heaps: told again means nothing, a number of which nothing was told has a name that says so, parents are found; pools are thinned. */
static void test_heaps(void) {
	static struct world w;
	static struct trace t;
	uint32_t pid = (uint32_t)getpid();
	const uint64_t name = TEXT8('p', 'o', 'o', 'l', 'k', 'i', 'n', 'd'), inner = TEXT8('p', 'o', 'o', '2', 'k', 'i', 'n', 'd');
	world_start(&w);
	claim(&w, 0, 1, pid, 1);
	announce(&w, 0, pid, 0);
	for (int i = 0; i < 2; i++) PUT(&w, 0, tm_ring_word(TM_CTL_HEAP, 0, 6, 4, 8), now(&w), 16, TM_HEAP_NUMBER_MALLOC, 0, name);
	PUT(&w, 0, tm_ring_word(TM_CTL_HEAP, 0, 6, 4, 8), now(&w), 30, 16, 3, inner);
	PUT(&w, 0, tm_ring_word(TM_OP_HEAP_ALLOC, TM_RING_HEAP, 7, 0, 0xffff), now(&w), 0x1000, 40, 30, 0xA, 0xB);
	PUT(&w, 0, tm_ring_word(TM_OP_MALLOC, 0, 5, 2, TM_RING_USABLE_UNKNOWN), now(&w), 0x1000, 48, 0xC);
	PUT(&w, 0, tm_ring_word(TM_OP_PYTHON_REALLOC, TM_RING_HEAP, 7, 2, 0xffff), now(&w), 0x2000, 50, 5, 0x1000, 30);
	PUT(&w, 0, tm_ring_word(TM_OP_HEAP_FREE, TM_RING_HEAP | TM_RING_NO_STACK, 4, 0, 0), now(&w), 0x2000, 16);
	PUT(&w, 0, tm_ring_word(TM_OP_TORCH_FREE, TM_RING_HEAP | TM_RING_NO_STACK, 4, 0, 0), now(&w), 0x3000, 17);
	PUT(&w, 0, tm_ring_word(TM_CTL_POOL, 0, 7, 0, 0), now(&w), 16, 40, 4096, UINT64_MAX, UINT64_MAX);
	for (uint64_t i = 0; i < 50; i++) PUT(&w, 0, tm_ring_word(TM_CTL_POOL, 0, 7, 0, 0), now(&w), 16, 41 + i, 4096, UINT64_MAX, UINT64_MAX);
	PUT(&w, 0, tm_ring_word(TM_CTL_POOL, 0, 7, 0, 0), now(&w), 16, 100, UINT64_MAX, UINT64_MAX, UINT64_MAX);
	finish_and_read(&w, &t);
	if (!CHECK(t.count == 5 && t.losses == 0 && t.heaps == 4)) return;
	CHECK(!strcmp(t.heap_name[1], "malloc") && !strcmp(t.heap_name[2], "pool") && !strcmp(t.heap_name[3], "poo2"));
	CHECK(t.heap[2].parent == 1 && t.heap[2].device == -1 && t.heap[3].parent == 2 && t.heap[3].device == 2 && t.heap[4].parent == 0);
	CHECK(!strncmp(t.heap_name[4], "heap 17", 7));
	const struct tm_event *e = t.events;
	CHECK(e[0].heap == 3 && e[0].addr == 0x1000 && e[0].size == 40 && e[0].stack == 2 && e[0].usable == TM_USABLE_UNKNOWN);
	CHECK(e[1].heap == 0 && e[1].addr == 0x1000 && e[1].stack == 3);
	CHECK(e[2].heap == 3 && e[2].addr == 0x2000 && e[2].old == 0x1000 && e[2].stack == 2);
	CHECK(e[3].heap == 2 && e[3].old == 0x2000 && e[4].heap == 4 && e[4].old == 0x3000);
	CHECK(t.pools >= 2 && t.pools < 40 && t.pool.heap == 2 && t.pool.allocated == 100 && t.pool.reserved == -1);
	trace_release(&t);
}

/* More different names than any table starts with, each interned once. */
static void test_many_names(void) {
	static struct world w;
	static struct trace t;
	uint32_t pid = (uint32_t)getpid();
	world_start(&w);
	claim(&w, 0, 1, pid, 1);
	announce(&w, 0, pid, 0);
	for (uint64_t i = 0; i < 100000; i++) {
		PUT(&w, 0, tm_ring_word(TM_OP_SCOPE_PUSH, 0, 5, TM_SCOPE_USER, 8), now(&w), 0, 0, i % 50000 * 0x123456789abcdefull);
		if (i % 1000 == 999) pass(&w);
	}
	finish_and_read(&w, &t);
	CHECK(t.count == 100000 && t.strings == 50001 && t.losses == 0);
	for (size_t i = 0; i + 50000 < t.count; i++)
		if (t.events[i].text != t.events[i + 50000].text) CHECK(!"the same name has two ids");
	trace_release(&t);
}

/* Four threads, numbered as their ids: one lives as long as its process; one vanishes, its last event a realloc that began before the one
 * ahead of it ended; one tells its end and frees something after it, in another ring; the end of one was lost. */
static void test_ends_of_threads(void) {
	static struct world w;
	static struct trace t;
	uint32_t pid = (uint32_t)getpid();
	uint64_t last[5] = { 0 };
	world_start(&w);
	for (uint32_t i = 0; i < 4; i++) {
		struct tm_ring *ring = claim(&w, i, 1, pid, i + 1);
		ring->tid = pid;
		if (i == 0) announce(&w, 0, pid, 0);
		allocate(&w, i, 0x1000 * (i + 1), 10);
		pass(&w);
	}
	uint64_t begin = now(&w);
	usleep(1000);
	PUT(&w, 1, tm_ring_word(TM_OP_REALLOC, TM_RING_NO_STACK, 6, 0, 8), now(&w), 0x9000, 20, begin, 0x2000);
	PUT(&w, 2, tm_ring_word(TM_CTL_THREAD_END, 0, 2, 0, 0), now(&w));
	for (uint32_t i = 2; i < 4; i++) atomic_store(&tm_session_ring(&w.c.session, i)->state, TM_RING_CLOSED);
	w.c.rings[1].vanished = true;
	pass(&w);
	usleep(1000);
	claim(&w, 4, 1, pid, 3)->tid = pid;
	release(&w, 4, 0x3000);
	atomic_store(&tm_session_ring(&w.c.session, 4)->state, TM_RING_CLOSED);
	usleep(1000);
	pass(&w);
	finish_and_read(&w, &t);
	for (size_t i = 0; i < t.count; i++)
		if (t.events[i].time_ns > last[t.threads[i]]) last[t.threads[i]] = t.events[i].time_ns;
	CHECK(t.thread_count == 4 && t.count == 6);
	CHECK(t.thread_end[1] == 0);
	for (size_t i = 2; i <= 4; i++) CHECK(t.thread_end[i] >= last[i] && t.thread_end[i] <= last[i] + 1); /* rounded apart, at most */
	trace_release(&t);
}

/* A child that is forked, execs, ends and is waited for before any ring is read, in rings of the wrong order. */
static void test_lives_in_order(void) {
	static struct world w;
	static struct trace t;
	uint32_t root = (uint32_t)getpid(), child = root + 1000000;
	world_start(&w);
	claim(&w, 2, 1, root, 1);
	announce(&w, 2, root, 0);
	PUT(&w, 2, tm_ring_word(TM_CTL_FORK, 0, 3, 0, 0), now(&w), child);
	claim(&w, 1, 2, child, 1);
	announce(&w, 1, child, 1);
	PUT(&w, 1, tm_ring_word(TM_CTL_EXEC, 0, 4, TM_EXEC_NATIVE, 4), now(&w), child, 0x612f612f);
	claim(&w, 0, 3, child, 1);
	announce(&w, 0, child, 0);
	PUT(&w, 2, tm_ring_word(TM_CTL_WAIT, 0, 4, 0, 0), now(&w), child, 7 << 8);
	usleep(1000);
	pass(&w);
	finish_and_read(&w, &t);
	CHECK(t.processes == 3 && t.ends == 3);
	CHECK(t.process[1].pid == root && t.process[1].flags == 0 && t.process[1].parent_id == 0);
	CHECK(t.process[2].pid == child && t.process[2].flags == TM_PROCESS_FORKED && t.process[2].parent_id == 1);
	CHECK(t.process[3].pid == child && t.process[3].flags == TM_PROCESS_EXECED && t.process[3].parent_id == 1);
	CHECK(t.end[2].kind == TM_END_EXEC && t.end[3].kind == TM_END_EXIT && t.end[3].code == 7);
	trace_release(&t);
}

/* A child of which nothing is known but that it was forked and ended by a signal; one that cannot be recorded. */
static void test_silent_children(void) {
	static struct world w;
	static struct trace t;
	uint32_t root = (uint32_t)getpid(), child = root + 1000000;
	world_start(&w);
	claim(&w, 0, 1, root, 1);
	announce(&w, 0, root, 0);
	PUT(&w, 0, tm_ring_word(TM_CTL_FORK, 0, 3, 0, 0), now(&w), child);
	PUT(&w, 0, tm_ring_word(TM_CTL_WAIT, 0, 4, 0, 0), now(&w), child, 9);
	PUT(&w, 0, tm_ring_word(TM_CTL_SPAWN, 0, 3, 0, 0), now(&w), child + 1);
	PUT(&w, 0, tm_ring_word(TM_CTL_EXEC, 0, 4, TM_EXEC_STATIC, 4), now(&w), child + 1, 0x612f612f);
	PUT(&w, 0, tm_ring_word(TM_CTL_WAIT, 0, 4, 0, 0), now(&w), child + 1, 3 << 8);
	usleep(1000);
	pass(&w);
	finish_and_read(&w, &t);
	CHECK(t.processes == 3 && t.ends == 3);
	uint32_t silent = t.process[2].pid == child ? 2 : 3, spawned = 5 - silent;
	CHECK(t.process[silent].pid == child && t.process[spawned].pid == child + 1);
	CHECK(t.process[silent].flags == TM_PROCESS_FORKED && t.end[silent].kind == TM_END_SIGNAL && t.end[silent].code == 9);
	CHECK(t.process[spawned].flags == (TM_PROCESS_EXECED | TM_PROCESS_UNRECORDED) && !strcmp(t.exe[spawned], "/a/a"));
	CHECK(t.end[spawned].kind == TM_END_EXIT && t.end[spawned].code == 3);
	trace_release(&t);
}

/* A child that ended before its image loaded anything, and was waited for as its death was seen: its parent's word of that is read later. */
static void test_end_that_is_told_late(void) {
	static struct world w;
	static struct trace t;
	uint32_t root = (uint32_t)getpid(), child = root + 1000000;
	world_start(&w);
	claim(&w, 0, 1, root, 1);
	announce(&w, 0, root, 0);
	PUT(&w, 0, tm_ring_word(TM_CTL_FORK, 0, 3, 0, 0), now(&w), child);
	PUT(&w, 0, tm_ring_word(TM_CTL_EXEC, 0, 4, TM_EXEC_NATIVE, 4), now(&w), child, 0x612f612f);
	usleep(1000);
	pass(&w);
	struct tm_process *p = w.c.processes.all[w.c.processes.count - 1];
	CHECK(p->pid == child && p->exec.announced);
	tm_process_life(&w.c, (struct tm_life_event){ .kind = TM_LIFE_DEATH, .ticks = now(&w), .process = p, .pid = child, .status = -1 },
			NULL, 0);
	usleep(1000);
	pass(&w);
	CHECK(p->dead && !p->end_written);
	PUT(&w, 0, tm_ring_word(TM_CTL_WAIT, 0, 4, 0, 0), now(&w), child, 127 << 8);
	usleep(1000);
	pass(&w);
	finish_and_read(&w, &t);
	CHECK(t.processes == 2 && t.ends == 2 && t.process[2].flags == (TM_PROCESS_EXECED | TM_PROCESS_UNRECORDED));
	CHECK(t.end[2].kind == TM_END_EXIT && t.end[2].code == 127);
	CHECK(!strcmp(t.unrecorded, "'/a/a' is not recorded: it did not load the recording library before it ended with exit code 127"));
	trace_release(&t);
}

/* An exec of what there is not fails, however long its process takes to say so. */
static void test_exec_of_what_is_not_there(void) {
	static struct world w;
	static struct trace t;
	uint32_t root = (uint32_t)getpid();
	world_start(&w);
	claim(&w, 0, 1, root, 1);
	announce(&w, 0, root, 0);
	PUT(&w, 0, tm_ring_word(TM_CTL_EXEC, 0, 4, TM_EXEC_UNKNOWN, 4), now(&w), root, 0x612f612f);
	for (int i = 0; i < 3; i++) {
		usleep(150000);
		pass(&w);
	}
	struct tm_process *p = w.c.processes.all[w.c.processes.count - 1];
	CHECK(w.c.processes.count == 1 && p->exec.announced);
	PUT(&w, 0, tm_ring_word(TM_CTL_EXEC_FAILED, 0, 3, 0, 0), now(&w), root);
	usleep(1000);
	pass(&w);
	CHECK(!p->exec.announced);
	finish_and_read(&w, &t);
	CHECK(t.processes == 1);
	trace_release(&t);
}

/* --- hostile rings --- */

static void test_corrupt_stretch(void) {
	static struct world w;
	static struct trace t;
	uint32_t pid = (uint32_t)getpid();
	const uint64_t bad[][2] = {
		{ tm_ring_word(TM_OP_MALLOC, 0, 0, 0, 0), 1 },      /* no length */
		{ tm_ring_word(TM_OP_MALLOC, 0, 1, 0, 0), 1 },      /* too short for a stamp */
		{ tm_ring_word(TM_OP_MALLOC, 0, 0xffff, 0, 0), 1 }, /* longer than what is there */
		{ tm_ring_word(0x1f, 0, 2, 0, 0), 1 },              /* an op nobody knows */
		{ tm_ring_word(0xff, 0, 2, 0, 0), 1 },
		{ tm_ring_word(TM_OP_FREE, 0, 2, 0, 0), 1 },    /* no address */
		{ tm_ring_word(TM_OP_MARK, 0, 2, 0, 5000), 1 }, /* a text longer than any */
		{ tm_ring_word(TM_CTL_EXIT, 0, 2, 0, 0), 1 },   /* a number is missing */
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		world_start(&w);
		claim(&w, 0, 1, pid, 1);
		announce(&w, 0, pid, 0);
		allocate(&w, 0, 0x1000, 1);
		put(&w, 0, bad[i], 2);
		allocate(&w, 0, 0x2000, 1);
		pass(&w);
		allocate(&w, 0, 0x3000, 1);
		finish_and_read(&w, &t);
		CHECK(t.count == 2 && t.losses == 1 && t.lost >= 1 && !strcmp(t.last_loss, "corrupt-ring"));
		if (t.count == 2) CHECK(t.events[0].addr == 0x1000 && t.events[1].addr == 0x3000);
		trace_release(&t);
	}
}

/* Records of the right length whose content cannot be. */
static void test_impossible_content(void) {
	static struct world w;
	static struct trace t;
	uint32_t pid = (uint32_t)getpid();
	const uint64_t bad[][4] = {
		{ tm_ring_word(TM_OP_MALLOC, 0, 4, 5, 0), 1, 0x5000, 1 },                          /* keeps more frames than there were */
		{ tm_ring_word(TM_CTL_MODULE, 0, 4, 0, 0), 1, 0x5000, 1 },                         /* a number is missing */
		{ tm_ring_word(TM_CTL_NOTE, 0, 4, 0, 4000), 1, 0x6b, 0x6b },                       /* less text than it says */
		{ tm_ring_word(TM_OP_SCOPE_PUSH, 0, 4, 1, 4), 1, 0, 0 },                           /* no room for its name */
		{ tm_ring_word(TM_OP_SCOPE_END, 0, 3, 1, 0), 1, 0, 0 },                            /* no link */
		{ tm_ring_word(TM_OP_HEAP_FREE, 0, 3, 0, 0), 1, 0x5000, 1 },                       /* no heap */
		{ tm_ring_word(TM_OP_FREE, TM_RING_HEAP, 4, 0, 0), 1, 0x5000, 20 },                /* a heap of its own, in malloc */
		{ tm_ring_word(TM_OP_HEAP_FREE, TM_RING_HEAP, 4, 0, 0), 1, 0x5000, 5 },            /* a number that no heap has */
		{ tm_ring_word(TM_OP_HEAP_FREE, TM_RING_HEAP, 4, 0, 0), 1, 0x5000, 1u << 20 },
		{ tm_ring_word(TM_CTL_HEAP, 0, 4, 0, 0), 1, 16, 0 },                               /* no device */
		{ tm_ring_word(TM_CTL_POOL, 0, 4, 0, 0), 1, 16, 0 },
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		world_start(&w);
		claim(&w, 0, 1, pid, 1);
		announce(&w, 0, pid, 0);
		allocate(&w, 0, 0x1000, 1);
		put(&w, 0, bad[i], 4);
		finish_and_read(&w, &t);
		CHECK(t.count == 1 && t.losses == 1 && !strcmp(t.last_loss, "corrupt-ring"));
		trace_release(&t);
	}
}

/* What a program may say of its own blocks: such an event is lost alone. */
static void test_impossible_blocks(void) {
	static struct world w;
	static struct trace t;
	uint32_t pid = (uint32_t)getpid();
	const uint64_t bad[][4] = {
		{ tm_ring_word(TM_OP_MALLOC, TM_RING_NO_STACK, 4, 0, 0), 1, TM_ADDRESS_LIMIT, 1 }, /* an address that cannot be coded */
		{ tm_ring_word(TM_OP_MALLOC, TM_RING_NO_STACK, 4, 0, 0), 1, 0x5000, UINT64_MAX },  /* a size that nothing has */
		{ tm_ring_word(TM_OP_FREE, TM_RING_NO_STACK, 3, 0, 0), 1, UINT64_MAX },
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		world_start(&w);
		claim(&w, 0, 1, pid, 1);
		announce(&w, 0, pid, 0);
		allocate(&w, 0, 0x1000, 1);
		for (unsigned k = 0; k < 3; k++) put(&w, 0, bad[i], bad[i][0] >> 16 & 0xffff);
		allocate(&w, 0, 0x2000, 1);
		finish_and_read(&w, &t);
		CHECK(t.count == 2 && t.losses == 1 && t.lost == 3 && !strcmp(t.last_loss, "impossible"));
		trace_release(&t);
	}
}

/* A block whose free was lost counts once: the summary's figure is that of the second. */
static void test_lost_free_in_summary(void) {
	static struct world w;
	static struct trace t;
	uint32_t pid = (uint32_t)getpid();
	world_start(&w);
	claim(&w, 0, 1, pid, 1);
	announce(&w, 0, pid, 0);
	allocate(&w, 0, 0x1000, 100);
	allocate(&w, 0, 0x1000, 30);
	world_finish(&w);
	tm_tally_finish(w.c.tally);
	struct tm_tally_process p = tm_tally_of(w.c.tally, 1);
	CHECK(p.live_bytes == 30 && p.live_blocks == 1 && p.peak_bytes == 100);
	read_trace(&t, w.path);
	CHECK(t.count == 2);
	world_release(&w);
	trace_release(&t);
}

/* After a corrupt stretch "keep" refers to frames that we have not seen. */
static void test_stack_after_corruption(void) {
	static struct world w;
	static struct trace t;
	uint32_t pid = (uint32_t)getpid();
	world_start(&w);
	claim(&w, 0, 1, pid, 1);
	announce(&w, 0, pid, 0);
	PUT(&w, 0, tm_ring_word(TM_OP_MALLOC, 0, 6, 0, 0), now(&w), 0x1000, 1, 0xA, 0xB);
	PUT(&w, 0, 0, 0);
	pass(&w);
	PUT(&w, 0, tm_ring_word(TM_OP_MALLOC, 0, 5, 2, 0), now(&w), 0x2000, 1, 0xC);
	PUT(&w, 0, tm_ring_word(TM_OP_MALLOC, 0, 5, 0, 0), now(&w), 0x3000, 1, 0xA);
	finish_and_read(&w, &t);
	if (CHECK(t.count == 3)) CHECK(t.events[0].stack != 0 && t.events[1].stack == 0 && t.events[2].stack != 0);
	trace_release(&t);
}

static void test_impossible_positions(void) {
	static struct world w;
	static struct trace t;
	uint32_t pid = (uint32_t)getpid();
	const uint64_t heads[] = { 1, 7, 1u << 30, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63 };
	for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
		world_start(&w);
		struct tm_ring *ring = claim(&w, 0, 1, pid, 1);
		announce(&w, 0, pid, 0);
		allocate(&w, 0, 0x1000, 1);
		pass(&w);
		atomic_store(&ring->head, heads[i]);
		pass(&w);
		atomic_store(&w.c.session.shm->rings_used, UINT32_MAX);
		pass(&w);
		finish_and_read(&w, &t);
		CHECK(t.count >= 1 && t.losses >= 1 && t.lost <= t.losses * w.c.session.ring_bytes / 32);
		trace_release(&t);
	}
}

static uint64_t random_word(struct check_random *r) {
	uint64_t x = check_random_next(r);
	switch (check_random_next(r) % 6) {
	case 0: return x;
	case 1: return x & 0xffff;
	case 2: return tm_ring_word(x & 0xff, x >> 8 & 7, 2 + (x >> 16) % 12, (x >> 32) % 5, (x >> 48) % 64);
	case 3: return tm_ring_word(0xE0 + x % 32, x >> 8 & 7, 2 + (x >> 16) % 12, (x >> 32) % 70, (x >> 48) % 64);
	case 4: return 0x400000 + (x & 0xfff0);
	default: return tm_ring_word((x & 7) << 5 | (x >> 40 & 31), x >> 8 & 31, 3 + (x >> 16) % 6, (x >> 32) % 5, 0);
	}
}

/* Pids that are ours or nobody's: the collector asks the kernel about them. */
static uint32_t random_pid(struct check_random *r) {
	return check_random_next(r) % 2 ? (uint32_t)getpid() : 0x3ffffff0u + (uint32_t)(check_random_next(r) % 8);
}

/* Records that are whole, with any content: they get past the first check. */
static void scribble_records(uint64_t *data, uint64_t at, uint64_t some, uint64_t words, struct check_random *r) {
	for (uint64_t k = 0; k + 24 < some;) {
		static const uint8_t listed[] = { TM_OP_HEAP_ALLOC, TM_OP_HEAP_FREE, TM_OP_PYTHON_REALLOC, TM_OP_SCOPE_PUSH, TM_OP_SCOPE_BLOCK,
						  TM_OP_SCOPE_RANGE, TM_OP_SCOPE_END, TM_OP_STEP, TM_OP_RESET_PEAK, TM_CTL_HEAP, TM_CTL_CATEGORY,
						  TM_CTL_POOL, TM_CTL_STATS, TM_OP_CUDA_ALLOC, TM_OP_CUDA_FREE, TM_OP_OOM, TM_OP_LAUNCH,
						  TM_OP_USE, TM_CTL_ACTIVITY, TM_CTL_DEVICE, TM_CTL_LOST };
		uint64_t x = check_random_next(r), n = 3 + (x >> 8) % 9, op = x % 5 == 0 ? 0xE0 + (x >> 16) % 32 : (x >> 16) % 7 << 5;
		unsigned flags = (unsigned)(x >> 32 & 3), y = (unsigned)(x >> 40) % 64;
		if (x % 3 == 0) op = listed[(x >> 50) % sizeof listed];
		if (op == TM_OP_FREE || op == TM_OP_MALLOC) n = op == TM_OP_FREE ? 3 : 4 + (x >> 24) % 3;
		if (op == TM_OP_HEAP_ALLOC || op == TM_OP_HEAP_FREE || op == TM_OP_PYTHON_REALLOC) {
			flags |= TM_RING_HEAP;
			n = op == TM_OP_HEAP_FREE ? 4 : op == TM_OP_HEAP_ALLOC ? 5 + (x >> 24) % 2 : 7;
		}
		if (op == TM_OP_CUDA_ALLOC || op == TM_OP_CUDA_FREE) {
			flags |= TM_RING_HEAP;
			n = op == TM_OP_CUDA_FREE ? 4 : 5;
		}
		if (TM_OP_IS_SCOPE(op)) n = 4 + (y + 7) / 8;
		if (op == TM_OP_OOM) n = TM_RING_OOM_WORDS + (x >> 24) % 3;
		if (op == TM_OP_LAUNCH || op == TM_OP_USE) n = 4;
		if (op == TM_CTL_ACTIVITY) n = 8 + (y + 7) / 8;
		if (op == TM_CTL_DEVICE) n = 4 + (y + 7) / 8;
		if (op == TM_CTL_LOST) n = 3 + (y + 7) / 8;
		if (op == TM_CTL_HEAP) n = 5 + (y + 7) / 8;
		if (op == TM_CTL_CATEGORY || op == TM_OP_RESET_PEAK) n = 2 + (y + 7) / 8;
		if (op == TM_CTL_POOL) n = 7;
		data[(at + k) % words] = tm_ring_word((unsigned)op, flags, (unsigned)n, (unsigned)(x >> 36) % 24, y);
		for (uint64_t i = 1; i < n; i++) data[(at + k + i) % words] = check_random_next(r) >> (check_random_next(r) % 64);
		if (op == TM_CTL_HEAP || op == TM_CTL_POOL || op == TM_OP_OOM) data[(at + k + 2) % words] %= 4096 + 32;
		if (flags & TM_RING_HEAP) data[(at + k + n - 1) % words] %= 4096 + 32;
		k += n;
	}
}

static void scribble(struct world *w, struct check_random *r) {
	for (uint32_t i = 0; i < 6; i++) {
		struct tm_ring *ring = tm_session_ring(&w->c.session, i);
		uint64_t *data = (uint64_t *)tm_session_ring_data(&w->c.session, i);
		uint64_t words = w->c.session.ring_bytes / 8, some = check_random_next(r) % 2000;
		uint64_t at = atomic_load(&ring->tail) / 8;
		for (uint64_t k = 0; k < some; k++) data[(at + k) % words] = random_word(r);
		if (check_random_next(r) % 2) scribble_records(data, at, some, words, r);
		atomic_store(&ring->head, check_random_next(r) % 50 ? (at + some) * 8 : check_random_next(r));
		if (check_random_next(r) % 8 == 0) atomic_store(&ring->state, (uint32_t)(check_random_next(r) % 6));
		if (check_random_next(r) % 8 == 0) ring->process = (uint32_t)(check_random_next(r) % 5);
		if (check_random_next(r) % 8 == 0) ring->thread = (uint32_t)(check_random_next(r) % 3);
		if (check_random_next(r) % 8 == 0) ring->pid = ring->tid = random_pid(r);
		if (check_random_next(r) % 8 == 0) atomic_store(&ring->busy, (uint32_t)check_random_next(r));
		if (check_random_next(r) % 16 == 0) ring->start_ticks = check_random_next(r);
		if (check_random_next(r) % 16 == 0) atomic_store(&ring->lost_events, check_random_next(r) % 100);
		if (check_random_next(r) % 16 == 0) atomic_store(&ring->tail, check_random_next(r));
	}
	atomic_store(&w->c.session.shm->rings_used, (uint32_t)(check_random_next(r) % 12));
}

static void test_random_rings(struct check_random *r) {
	static struct world w;
	static struct trace t;
	uint64_t losses = 0, events = 0, processes = 0;
	for (int round = 0; round < 100; round++) {
		world_start(&w);
		for (uint32_t i = 0; i < 3; i++) {
			uint32_t pid = random_pid(r);
			claim(&w, i, i + 1, pid, 1);
			announce(&w, i, pid, i);
		}
		pass(&w);
		for (int i = 0; i < 40; i++) {
			scribble(&w, r);
			pass(&w);
			tm_drain_housekeeping(&w.c);
			if (check_random_next(r) % 4 == 0) tm_drain_close_group(&w.c, true);
		}
		finish_and_read(&w, &t);
		losses += t.losses;
		events += t.count;
		processes += t.processes;
		trace_release(&t);
	}
	/* else the noise never got past the first check */
	printf("test_drain: of the noise %lu events, %lu losses, %lu processes\n", events, losses, processes);
	CHECK(losses > 100 && events > 300 && processes > 100);
}

int main(void) {
	struct check_random random = check_random_start("test_drain");
	test_events_of_every_class();
	test_stacks();
	test_late_module();
	test_code_before_module();
	test_code_of_two_processes();
	test_around_the_ring();
	test_many_full_rings();
	test_bytes_of_rings();
	test_watermark();
	test_answer_waits_for_who_is_busy();
	test_what_blocks_hold();
	test_scopes();
	test_heaps();
	test_many_names();
	test_ends_of_threads();
	test_lives_in_order();
	test_silent_children();
	test_end_that_is_told_late();
	test_exec_of_what_is_not_there();
	test_corrupt_stretch();
	test_impossible_content();
	test_impossible_blocks();
	test_lost_free_in_summary();
	test_stack_after_corruption();
	test_impossible_positions();
	test_random_rings(&(struct check_random){ 1795336245 * 0x9E3779B97F4A7C15u + 1 }); /* where a ring says twice whose it is */
	test_random_rings(&random);
	return check_report("test_drain");
}
