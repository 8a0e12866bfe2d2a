/* test_sample_places.c - by which looks a sampled program's frees are told apart (recorder/guest/sample.c): no sample is overlooked whatever was remembered and
 * forgotten before, what is none is called none, and the recorder's own blocks (own_memory.c) are kept from the allocator at the price of their pages alone.
 * Oracle: a plain list of the addresses that are live.
 */
#include "../../recorder/guest/own_memory.c"
#include "../../recorder/guest/sample.c"
#include "../../recorder/guest/syscall.c"
#include "check.h"

#define HEAP_BLOCKS (1u << 20) /* of 16 bytes */
#define LIVE_MAX 20000u

struct tm_guest tm_guest = { .own_base = TM_OWN_NOWHERE };
__thread struct tm_tls tm_tls;
union tm_versions tm_versions;

static struct tm_shm shm;
static struct tm_ring ring;
static struct tm_thread thread;
static unsigned notes;
static struct check_random randoms;

bool tm_data_is_limited(void) {
	return false;
}

bool tm_has_room(uint64_t bytes) {
	return bytes != 0;
}

void tm_emit_note(struct tm_thread *t, const char *key, const char *text) {
	(void)t;
	(void)key;
	(void)text;
	notes++;
}

uint64_t tm_ticks(void) {
	return 0;
}

void tm_go_quiet(void) {
	check_failed++;
}

uint64_t tm_clock_ns(clockid_t clock) {
	(void)clock;
	return 0;
}

static unsigned marked(const _Atomic uint8_t *counts, unsigned n) {
	unsigned found = 0;
	for (unsigned i = 0; i < n; i++) found += counts[i] != 0;
	return found;
}

/* --- samples --- */

static const void *address_of(uint32_t block) {
	return (const void *)(0x7f0000000000 + (uintptr_t)block * 16);
}

/* Whether each look says of a block what the list says. The looks at a page and at a place may take another block for a sample, never a sample for another. */
static void check_block(uint32_t block, bool is_live) {
	const void *addr = address_of(block);
	CHECK(tm_sample_is_one(addr) == is_live);
	if (is_live) CHECK(tm_sample_may_hold(addr));
}

static void samples_come_and_go(void) {
	static bool is_live[HEAP_BLOCKS];
	static uint32_t live[LIVE_MAX];
	size_t n = 0;

	for (unsigned step = 0; step < 200000; step++) {
		/* up, then down to none, then up again; so each level of the table is filled and emptied */
		bool grows = step < 60000 || (step > 140000 && step < 180000);
		uint32_t block = (uint32_t)check_random_below(&randoms, HEAP_BLOCKS);
		if (step % 4 == 0) check_block(block, is_live[block]);
		if (n < LIVE_MAX && !is_live[block] && (grows || check_random_below(&randoms, 4) == 0)) {
			CHECK(tm_sample_remember(&thread, address_of(block), 16));
			is_live[block] = true;
			live[n++] = block;
			check_block(block, true);
		} else if (n && !grows) {
			size_t i = check_random_below(&randoms, n);
			uint32_t ends = live[i];
			live[i] = live[--n];
			is_live[ends] = false;
			CHECK(tm_sample_found(address_of(ends)));
			CHECK(!tm_sample_found(address_of(ends)));
			check_block(ends, false);
		}
	}
	for (size_t i = 0; i < n; i++) check_block(live[i], true);
	while (n) CHECK(tm_sample_found(address_of(live[--n])));
	CHECK(notes == 0 && ring.lost_events == 0);
	/* 20,000 samples in 4096 pages and 65,536 places: no count came to TM_SAMPLE_MANY, so all are back at none */
	CHECK(marked(tm_sample_pages, TM_SAMPLE_PAGES) == 0);
	CHECK(marked(tm_sample_places, TM_SAMPLE_PLACES) == 0);
}

/* More than a count can say, in one page and one place as far as the two tables tell them apart: they stay suspect when most have gone. */
static void many_of_one_place(void) {
	enum { N = 300 };
	const uint8_t *first = address_of(0);
	for (size_t i = 0; i < N; i++) {
		CHECK(tm_sample_remember(&thread, first + (i << 28), 16));
		for (size_t k = 0; k <= i; k++) CHECK(tm_sample_is_one(first + (k << 28)) && tm_sample_may_hold(first + (k << 28)));
	}
	for (size_t i = 0; i < N; i++) {
		CHECK(tm_sample_found(first + (i << 28)));
		for (size_t k = 0; k < N; k++) CHECK(tm_sample_is_one(first + (k << 28)) == (k > i) && tm_sample_may_hold(first + (k << 28)));
	}
	*tm_sample_page(first) = *tm_sample_place(first) = 0;
}

/* --- blocks of our own --- */

static void a_range_is_suspected_whole(void) {
	const uint8_t *page = address_of(1 << 10);
	tm_sample_suspect(page + TM_SHM_PAGE - 8, 16 + TM_SHM_PAGE);
	CHECK(tm_sample_may_hold(page) && tm_sample_may_hold(page + TM_SHM_PAGE) && tm_sample_may_hold(page + 2 * TM_SHM_PAGE));
	CHECK(marked(tm_sample_pages, TM_SAMPLE_PAGES) == 3);
	for (unsigned i = 0; i < 3; i++) *tm_sample_page(page + i * TM_SHM_PAGE) = 0;
	tm_sample_suspect(page, TM_SHM_PAGE);
	CHECK(tm_sample_may_hold(page) && marked(tm_sample_pages, TM_SAMPLE_PAGES) == 1);
	*tm_sample_page(page) = 0;
}

#define OWN_MAX 200u

static void own_blocks_are_marked(void) {
	static void *blocks[OWN_MAX];
	uintptr_t first = UINTPTR_MAX, last = 0;

	for (unsigned i = 0; i < OWN_MAX; i++) {
		if (i == OWN_MAX / 2) {
			CHECK(marked(tm_sample_pages, TM_SAMPLE_PAGES) == 0);
			tm_own_is_never_passed();
			for (unsigned k = 0; k < i; k++) CHECK(tm_sample_may_hold(blocks[k]));
		}
		size_t alignment = (size_t)16 << check_random_below(&randoms, 4), size = check_random_below(&randoms, 3000);
		blocks[i] = tm_own_alloc(alignment, size);
		if (!CHECK(blocks[i] != NULL)) return;
		if (i >= OWN_MAX / 2) CHECK(tm_sample_may_hold(blocks[i]));
		if (i % 3 == 2) tm_own_free(blocks[i]), tm_own_free(blocks[i - 1]), blocks[i] = blocks[i - 1] = blocks[i - 2];
		if ((uintptr_t)blocks[i] < first) first = (uintptr_t)blocks[i];
		if ((uintptr_t)blocks[i] + size > last) last = (uintptr_t)blocks[i] + size;
	}
	unsigned pages = marked(tm_sample_pages, TM_SAMPLE_PAGES);
	printf("own blocks lie in %zu bytes, %u pages are marked\n", (size_t)(last - first), pages);
	CHECK(pages > 1 && pages <= 2 + 2 * (last - first) / 4096);
}

int main(void) {
	tm_guest.shm = &shm;
	shm.sample_bytes = 1;
	thread.ring = &ring;
	randoms = check_random_start("sample places");
	samples_come_and_go();
	many_of_one_place();
	a_range_is_suspected_whole();
	own_blocks_are_marked();
	return check_report("sample places");
}
