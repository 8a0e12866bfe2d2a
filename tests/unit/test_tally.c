/* test_tally.c - the live set that is kept while recording, and what it tells the encoder.
 *
 * Goal:    whatever threads do, and in whatever pieces their events come: the figures are those of a plain replay in order of time, and a segment that was
 *          encoded with what the tally tells decodes to the events that went in.
 * Method:  random events of a few threads on few addresses (blocks freed by another thread, freed twice, allocated over a live one, moved) in two heaps; they
 *          are added in random pieces, some while no other thread has anything earlier. The oracle is an array of the blocks. And so many blocks that their
 *          table is crowded, come and gone at random. The seed is printed.
 */
#include "../../recorder/collector/tally.h"
#include "check.h"

#include <stdlib.h>

#define THREADS 4u
#define EVENTS 4000u
#define ADDRESSES 48u
#define OWN_HEAP 5u
#define MANY 4000u    /* blocks of one table */
#define LIVE 700000u  /* at a time: beyond 164,000 and each doubling the table is larger, 64 MiB in the end */

struct block {
	bool live;
	uint64_t size;
};

struct oracle {
	struct block blocks[2][ADDRESSES]; /* of malloc, of the heap of its own */
	struct tm_tally_heap heap[2];
	uint64_t live_bytes, peak_bytes; /* of the process: malloc, and the other where it is a root */
	bool own_is_root;
};

struct thread {
	struct tm_event events[EVENTS]; /* as they happened */
	size_t count, added, first;     /* first: of the segment that is open */
	struct tm_encoder *encoder;
	struct tm_tally_segment segment;
};

static struct thread threads[THREADS];
static uint64_t segments;

static uint64_t address_of(size_t i) {
	return 0x10000 + i * 48;
}

static void oracle_free(struct oracle *o, size_t heap, size_t i) {
	struct block *b = &o->blocks[heap][i];
	if (!b->live) return;
	b->live = false;
	o->heap[heap].live_bytes -= b->size;
	o->heap[heap].live_count--;
	o->heap[heap].frees++;
	if (!heap || o->own_is_root) o->live_bytes -= b->size;
}

static void oracle_allocate(struct oracle *o, size_t heap, size_t i, uint64_t size) {
	struct tm_tally_heap *h = &o->heap[heap];
	uint64_t frees = h->frees;
	oracle_free(o, heap, i); /* whose free was lost is not counted as freed */
	h->frees = frees;
	o->blocks[heap][i] = (struct block){ true, size };
	h->live_bytes += size;
	h->live_count++;
	h->allocations++;
	if (h->live_bytes > h->peak_bytes) h->peak_bytes = h->live_bytes;
	if (!heap || o->own_is_root) o->live_bytes += size;
	if (o->live_bytes > o->peak_bytes) o->peak_bytes = o->live_bytes;
}

static void make_event(struct check_random *r, struct oracle *o, struct tm_event *e, uint64_t ns) {
	size_t heap = check_random_below(r, 4) == 0, i = check_random_below(r, ADDRESSES), to = check_random_below(r, ADDRESSES);
	uint64_t size = check_random_below(r, 1200), kind = check_random_below(r, 10);
	*e = (struct tm_event){ .time_ns = ns, .begin_ns = ns, .usable = TM_USABLE_UNKNOWN, .heap = heap ? OWN_HEAP : 0, .op = TM_OP_FREE };
	if (kind < 4) {
		e->op = heap ? TM_OP_HEAP_FREE : TM_OP_FREE;
		e->old = address_of(i);
		oracle_free(o, heap, i);
		return;
	}
	e->addr = address_of(kind < 9 ? i : to);
	e->size = size;
	e->stack = (uint32_t)check_random_below(r, 9);
	e->usable = tm_usable_default(size);
	e->op = heap ? TM_OP_HEAP_ALLOC : TM_OP_MALLOC;
	if (kind == 9) {
		e->op = heap ? TM_OP_PYTHON_REALLOC : TM_OP_REALLOC;
		e->begin_ns = ns - 1;
		e->old = address_of(i);
		oracle_free(o, heap, i);
	}
	oracle_allocate(o, heap, kind < 9 ? i : to, size);
}

static void begin_segment(struct thread *t, size_t first) {
	t->first = first;
	t->segment = (struct tm_tally_segment){ .next = ++segments << TM_TALLY_SEGMENT_BITS };
	tm_encoder_begin(t->encoder, t->events[first].time_ns);
}

static bool same(const struct tm_event *a, const struct tm_event *b) {
	return a->op == b->op && a->time_ns == b->time_ns && a->begin_ns == b->begin_ns && a->addr == b->addr && a->old == b->old && a->size == b->size &&
	       a->usable == b->usable && a->stack == b->stack && a->heap == b->heap;
}

static void end_segment(struct thread *t, struct tm_decoder *decoder) {
	struct tm_bytes out = TM_BYTES_INIT;
	struct tm_segment decoded;
	if (t->first == t->added) return;
	tm_encoder_finish(t->encoder, &out, 1);
	struct tm_cursor c = tm_cursor_over(out.data, out.size);
	if (CHECK(!out.failed && tm_decode_segment(decoder, &c, &decoded) == 0) && CHECK(decoded.count == t->added - t->first)) {
		size_t i = 0;
		while (i < decoded.count && same(&decoded.events[i], &t->events[t->first + i])) i++;
		CHECK(i == decoded.count);
	}
	tm_bytes_release(&out);
	if (t->added < t->count) begin_segment(t, t->added);
}

static uint64_t next_ns(const struct thread *t) {
	return t->added < t->count ? t->events[t->added].time_ns : UINT64_MAX;
}

/* No thread but `one` has anything earlier. */
static uint64_t watermark_without(size_t one) {
	uint64_t ns = UINT64_MAX;
	for (size_t i = 0; i < THREADS; i++)
		if (i != one && next_ns(&threads[i]) < ns) ns = next_ns(&threads[i]);
	return ns;
}

static void add_piece(struct check_random *r, struct tm_tally *tally, size_t thread) {
	static struct tm_event piece[EVENTS];
	struct thread *t = &threads[thread];
	size_t n = 1 + check_random_below(r, check_random_below(r, 4) ? 40 : 400), left = t->count - t->added;
	if (n > left) n = left;
	if (!n) return;
	memcpy(piece, t->events + t->added, n * sizeof piece[0]);
	if (check_random_below(r, 3)) tm_tally_alone_until(tally, (uint32_t)thread + 1, next_ns(t), watermark_without(thread));
	else tm_tally_alone_until(tally, 0, 0, 0);
	tm_tally_add(tally, 1, (uint32_t)thread + 1, piece, n, &t->segment);
	tm_encoder_add_told(t->encoder, piece, n);
	t->added += n;
	if (check_random_below(r, 2)) tm_tally_advance(tally, watermark_without(THREADS));
}

static void check_heap(const struct tm_tally_heap *a, const struct tm_tally_heap *b) {
	CHECK(a->live_bytes == b->live_bytes && a->live_count == b->live_count && a->peak_bytes == b->peak_bytes);
	CHECK(a->allocations == b->allocations && a->frees == b->frees);
}

static void test_random_threads(struct check_random *r, struct tm_decoder *decoder) {
	struct oracle o = { .own_is_root = check_random_below(r, 2) };
	struct tm_tally *tally = tm_tally_new(0);
	uint64_t ns = 1000, busy = check_random_below(r, 2) ? THREADS : 1; /* one thread does most */
	if (o.own_is_root) tm_tally_heap_is_root(tally, 1, OWN_HEAP);
	for (size_t i = 0; i < THREADS; i++) threads[i].count = threads[i].added = 0;
	for (size_t i = 0; i < EVENTS; i++) {
		struct thread *t = &threads[check_random_below(r, 20) ? check_random_below(r, busy) : check_random_below(r, THREADS)];
		make_event(r, &o, &t->events[t->count++], ns += 2 + check_random_below(r, 50));
	}
	for (size_t i = 0; i < THREADS; i++)
		if (threads[i].count) begin_segment(&threads[i], 0);
	for (size_t i; watermark_without(THREADS) != UINT64_MAX;) {
		i = check_random_below(r, THREADS);
		add_piece(r, tally, i);
		if (!check_random_below(r, 12)) end_segment(&threads[i], decoder);
	}
	tm_tally_finish(tally);
	for (size_t i = 0; i < THREADS; i++) end_segment(&threads[i], decoder);
	struct tm_tally_process p = tm_tally_of(tally, 1);
	CHECK(p.live_bytes == o.live_bytes && p.peak_bytes == o.peak_bytes && !p.approximate);
	CHECK(p.live_blocks == o.heap[0].live_count + (o.own_is_root ? o.heap[1].live_count : 0));
	struct tm_tally_heap malloc_heap = tm_tally_heap_of(tally, 1, TM_TALLY_MALLOC, 0), own = tm_tally_heap_of(tally, 1, TM_TALLY_OWN, OWN_HEAP);
	check_heap(&malloc_heap, &o.heap[0]);
	check_heap(&own, &o.heap[1]);
	tm_tally_free(tally);
}

/* What one thread allocates and frees alone is told in full: not one of its frees needs an address. */
static void test_all_is_told_alone(void) {
	struct tm_tally *tally = tm_tally_new(0);
	struct tm_tally_segment segment = { .next = 1ull << TM_TALLY_SEGMENT_BITS };
	struct tm_event events[] = {
		{ .op = TM_OP_MALLOC, .time_ns = 10, .addr = 0x1000, .size = 24 },
		{ .op = TM_OP_MALLOC, .time_ns = 20, .addr = 0x2000, .size = 2000 },
		{ .op = TM_OP_FREE, .time_ns = 30, .old = 0x1000 },
		{ .op = TM_OP_REALLOC, .time_ns = 40, .begin_ns = 35, .old = 0x2000, .addr = 0x1000, .size = 30 },
		{ .op = TM_OP_FREE, .time_ns = 50, .old = 0x1000 },
		{ .op = TM_OP_FREE, .time_ns = 60, .old = 0x1000 },
	};
	tm_tally_alone_until(tally, 1, 10, 1000);
	tm_tally_add(tally, 1, 1, events, 6, &segment);
	CHECK(!segment.waited);
	CHECK(events[2].old_size == tm_given_back(2, 24) && events[3].old_size == tm_given_back(1, 2000));
	CHECK(events[4].old_size == tm_given_back(1, 30) && events[5].old_size == 0);
	tm_tally_free(tally);
}

/* So many that their places in the table are often taken, in patterns as allocators have them. */
static uint64_t one_of_many(size_t i) {
	switch (i % 4) {
	case 0: return 0x100000 + i * 12; /* 48 apart */
	case 1: return 0x40000000 + i * 1024; /* pages */
	case 2: return 0x7f0000000000 + i * 8; /* 32 apart */
	default: return (i * 0x9E3779B97F4A7C15u >> 17) | 8;
	}
}

static void test_many_blocks(struct check_random *r) {
	static struct block blocks[MANY];
	struct tm_tally *t = tm_tally_new(0);
	uint64_t live_bytes = 0, live_count = 0, ns = 0, crowd = 100 + check_random_below(r, MANY - 100);
	memset(blocks, 0, sizeof blocks);
	tm_tally_alone_until(t, 1, 0, UINT64_MAX);
	for (size_t step = 0; step < 60000; step++) {
		size_t i = check_random_below(r, MANY);
		struct block *b = &blocks[i];
		bool frees = b->live && (live_count > crowd || check_random_below(r, 2));
		struct tm_event e = { .time_ns = ++ns, .op = frees ? TM_OP_FREE : TM_OP_MALLOC };
		live_bytes -= b->live ? b->size : 0;
		live_count += !frees && !b->live;
		live_count -= frees;
		*b = (struct block){ !frees, check_random_below(r, 1000) };
		if (frees) e.old = one_of_many(i);
		if (!frees) live_bytes += e.size = b->size, e.addr = one_of_many(i);
		tm_tally_add(t, 1, 1, &e, 1, NULL);
		if (step % 64) continue;
		struct tm_tally_process now = tm_tally_of(t, 1);
		CHECK(now.live_bytes == live_bytes && now.live_blocks == live_count);
	}
	for (size_t i = 0; i < MANY; i++) {
		struct tm_event e = { .time_ns = ++ns, .op = TM_OP_FREE, .old = one_of_many(i) };
		tm_tally_add(t, 1, 1, &e, 1, NULL);
	}
	CHECK(tm_tally_of(t, 1).live_bytes == 0 && tm_tally_of(t, 1).live_blocks == 0);
	tm_tally_free(t);
}

/* Grows, shrinks to nearly where room is made ahead, and grows again: each block is still known by its address and its size. */
static void test_growing(void) {
	static const uint64_t to[] = { 150000, 140000, 160000, 300000, 290000, LIVE, 10, 200000, 0 };
	struct tm_tally *t = tm_tally_new(0);
	uint64_t ns = 0, live = 0, bytes = 0;
	tm_tally_alone_until(t, 1, 0, UINT64_MAX);
	for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
		while (live != to[i]) {
			bool grows = live < to[i];
			uint64_t block = grows ? live : live - 1, addr = 0x10000 + block * 80;
			struct tm_event e = { .time_ns = ++ns, .op = grows ? TM_OP_MALLOC : TM_OP_FREE };
			if (grows) e.addr = addr, e.size = block % 1000;
			else e.old = addr;
			tm_tally_add(t, 1, 1, &e, 1, NULL);
			bytes += grows ? block % 1000 : -(block % 1000);
			live += grows ? 1 : -1;
		}
		struct tm_tally_process now = tm_tally_of(t, 1);
		CHECK(now.live_bytes == bytes && now.live_blocks == live);
	}
	tm_tally_free(t);
}

/* While a call that unmaps is on its way back, another thread maps where it has made room. */
static void test_mapped_meanwhile(void) {
	struct tm_tally *t = tm_tally_new(0);
	struct tm_event events[] = {
		{ .time_ns = 10, .op = TM_OP_MMAP, .addr = 0x10000, .size = 0x4000 },
		{ .time_ns = 120, .begin_ns = 100, .op = TM_OP_MUNMAP, .old = 0x10000, .old_size = 0x4000 },
		{ .time_ns = 110, .op = TM_OP_MMAP, .addr = 0x11000, .size = 0x1000 },
		{ .time_ns = 220, .begin_ns = 200, .op = TM_OP_MREMAP, .addr = 0x90000, .size = 0x2000, .old = 0x11000, .old_size = 0x1000 },
		{ .time_ns = 210, .op = TM_OP_MMAP_FILE, .addr = 0x11000, .size = 0x3000 },
	};
	tm_tally_add(t, 1, 1, events, 2, NULL);
	tm_tally_add(t, 1, 2, events + 2, 1, NULL);
	tm_tally_advance(t, 150);
	CHECK(tm_tally_of(t, 1).live_bytes == 0x1000 && tm_tally_of(t, 1).live_blocks == 1 && tm_tally_of(t, 1).peak_bytes == 0x4000);
	tm_tally_add(t, 1, 2, events + 3, 1, NULL);
	tm_tally_add(t, 1, 3, events + 4, 1, NULL);
	tm_tally_advance(t, 300);
	CHECK(tm_tally_heap_of(t, 1, TM_TALLY_MMAP, 0).live_bytes == 0x2000 && tm_tally_heap_of(t, 1, TM_TALLY_MMAP_FILE, 0).live_bytes == 0x3000);
	tm_tally_free(t);
}

static void crossed(void *context, uint32_t process, unsigned rule, uint64_t ns, uint64_t value) {
	uint64_t *last = context;
	(void)process;
	(void)rule;
	last[0] = ns;
	last[1] = value;
}

/* A call that gives back may be slow: what it gives back is gone from its beginning, whatever other threads do meanwhile. */
static void test_given_back_when_the_call_begins(void) {
	struct tm_tally *t = tm_tally_new(0);
	struct tm_event slow[] = {
		{ .time_ns = 10, .begin_ns = 10, .op = TM_OP_MMAP, .addr = 0x10000, .size = 0x8000 },
		{ .time_ns = 200, .begin_ns = 100, .op = TM_OP_MUNMAP, .old = 0x10000, .old_size = 0x8000 },
		{ .time_ns = 210, .begin_ns = 210, .op = TM_OP_MALLOC, .addr = 0x1000, .size = 0x7000 },
		{ .time_ns = 400, .begin_ns = 300, .op = TM_OP_REALLOC, .old = 0x1000, .addr = 0x9000, .size = 0x1000 },
		{ .time_ns = 410, .begin_ns = 410, .op = TM_OP_MMAP_FILE, .addr = 0x20000, .size = 0x1000 },
		{ .time_ns = 600,
		  .begin_ns = 500,
		  .op = TM_OP_MREMAP,
		  .old = 0x20000,
		  .old_size = 0x1000,
		  .addr = 0x40000,
		  .size = 0x2000 },
		{ .time_ns = 610,
		  .begin_ns = 610,
		  .op = TM_OP_MALLOC,
		  .addr = 0x2000,
		  .size = 0x10 }, /* by a signal handler, inside of the next */
		{ .time_ns = 620, .begin_ns = 605, .op = TM_OP_MUNMAP, .old = 0x40000, .old_size = 0x1000 },
	};
	struct tm_event meanwhile[] = {
		{ .time_ns = 150, .begin_ns = 150, .op = TM_OP_MALLOC, .addr = 0x3000, .size = 0x6000 },
		{ .time_ns = 160, .begin_ns = 160, .op = TM_OP_FREE, .old = 0x3000 },
		{ .time_ns = 350, .begin_ns = 350, .op = TM_OP_MALLOC, .addr = 0x3000, .size = 0x5000 },
		{ .time_ns = 360, .begin_ns = 360, .op = TM_OP_FREE, .old = 0x3000 },
		{ .time_ns = 540, .begin_ns = 540, .op = TM_OP_MMAP, .addr = 0x60000, .size = 0x1000 },
		{ .time_ns = 560,
		  .begin_ns = 550,
		  .op = TM_OP_MREMAP,
		  .old = 0x60000,
		  .old_size = 0x1000,
		  .addr = 0x70000,
		  .size = 0x3000 },
	};
	uint64_t last[2] = { 0, 0 };
	tm_tally_watch(t, 1, (struct tm_tally_watch){ .of_process = true, .threshold = { .armed = true, .at = 0x8001, .back = 0x7000 } },
		       crossed, last);
	tm_tally_add(t, 1, 1, slow, sizeof slow / sizeof slow[0], NULL);
	tm_tally_add(t, 1, 2, meanwhile, sizeof meanwhile / sizeof meanwhile[0], NULL);
	tm_tally_finish(t);
	struct tm_tally_process p = tm_tally_of(t, 1);
	CHECK(p.peak_bytes == 0x8000 && p.peak_ns == 10 && !p.approximate);
	CHECK(last[0] == 0 && last[1] == 0);
	CHECK(p.live_bytes == 0x1010 + 0x3000 && p.live_blocks == 3);
	CHECK(tm_tally_heap_of(t, 1, TM_TALLY_MMAP_FILE, 0).live_bytes == 0x1000 &&
	      tm_tally_heap_of(t, 1, TM_TALLY_MMAP, 0).live_bytes == 0x3000);
	tm_tally_free(t);
}

/* What was asked for counts, but whole pages are replaced and given back; what moves stays in its heap; mapped files are no part of the process' figures. */
static void test_pages(void) {
	struct tm_tally *t = tm_tally_new(0);
	struct tm_event events[] = {
		{ .time_ns = 10, .op = TM_OP_MMAP, .addr = 0x10000, .size = 0x3000 },
		{ .time_ns = 20, .op = TM_OP_MMAP, .addr = 0x11000, .size = 0x1001 }, /* the third page goes, too */
		{ .time_ns = 30, .begin_ns = 30, .op = TM_OP_MREMAP, .addr = 0x80000, .size = 0x1000, .old = 0x11000, .old_size = 0 },
		{ .time_ns = 40, .op = TM_OP_MMAP_FILE, .addr = 0x90000, .size = 0x1800 },
		{ .time_ns = 50, .begin_ns = 50, .op = TM_OP_MREMAP, .addr = 0xA0000, .size = 0x2800, .old = 0x90000, .old_size = 0x2000 },
		{ .time_ns = 60, .begin_ns = 60, .op = TM_OP_MREMAP, .addr = 0xB0000, .size = 0x1000, .old = 0xA0000, .old_size = 0 },
		{ .time_ns = 70, .op = TM_OP_SBRK, .addr = 0x20000, .size = 100 },
		{ .time_ns = 80, .op = TM_OP_SBRK, .addr = 0x20064, .size = 100 },
	};
	tm_tally_add(t, 1, 1, events, sizeof events / sizeof events[0], NULL);
	tm_tally_finish(t);
	struct tm_tally_process p = tm_tally_of(t, 1);
	struct tm_tally_heap map = tm_tally_heap_of(t, 1, TM_TALLY_MMAP, 0), file = tm_tally_heap_of(t, 1, TM_TALLY_MMAP_FILE, 0);
	CHECK(map.live_bytes == 0x3001 + 200 && map.live_count == 5 && map.allocations == 5 && map.frees == 1);
	CHECK(file.live_bytes == 0x3800 && file.live_count == 2 && file.allocations == 3 && file.frees == 1);
	CHECK(p.live_bytes == map.live_bytes && p.live_blocks == 5 && p.peak_bytes == map.peak_bytes);
	tm_tally_free(t);
}

int main(void) {
	struct check_random r = check_random_start("tally");
	struct tm_decoder *decoder = tm_decoder_new();
	for (size_t i = 0; i < THREADS; i++) threads[i].encoder = tm_encoder_new();
	test_all_is_told_alone();
	test_growing();
	test_mapped_meanwhile();
	test_given_back_when_the_call_begins();
	test_pages();
	for (int i = 0; i < 12; i++) test_many_blocks(&r);
	for (int i = 0; i < 150; i++) test_random_threads(&r, decoder);
	for (size_t i = 0; i < THREADS; i++) tm_encoder_free(threads[i].encoder);
	tm_decoder_free(decoder);
	return check_report("tally");
}
