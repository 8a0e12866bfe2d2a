/* test_ring_room.c - records in a small ring of which a collector reads more or less (recorder/guest/ring_room.c): none is written over what is unread, and
 * each lies where its position says. */
#include "../../recorder/guest/ring_room.c"
#include "../../recorder/guest/syscall.c"
#include "check.h"

#define SIZE 65536u
#define SMALL 4u /* words of a record */

struct tm_guest tm_guest;
__thread struct tm_tls tm_tls;
union tm_versions tm_versions;

static struct tm_shm shm;
static struct tm_ring ring;
static _Alignas(SIZE) uint8_t data[SIZE];
static struct tm_thread thread;

void tm_go_quiet(void) {
	check_failed++;
}

uint64_t tm_ticks_of_kernel(void) {
	return 0;
}

uint64_t tm_clock_ns(clockid_t clock) {
	(void)clock;
	return 0;
}

static unsigned claims_in_vain; /* so many fail */
static bool is_coming;

bool tm_ring_claim(struct tm_thread *t) {
	(void)t;
	if (!claims_in_vain) return true;
	claims_in_vain--;
	return false;
}

bool tm_ring_is_coming(void) {
	return is_coming;
}

static struct tm_thread *begin_ring(void) {
	struct tm_thread *t = &thread;
	tm_guest.shm = &shm;
	shm.on_full = TM_ON_FULL_DROP;
	ring = (struct tm_ring){ 0 };
	*t = (struct tm_thread){ .ring = &ring, .data = data, .at = data, .limit = data, .mask = SIZE - 1, .seen = SIZE / 4 };
	t->bias = -(uint64_t)(uintptr_t)data;
	return t;
}

static uint64_t unread(void) {
	return ring.head - ring.tail;
}

/* A record of so many words, whose second one says where it lies. False: it is lost. */
static bool put(struct tm_thread *t, unsigned words) {
	uint64_t *r;
	tm_set_busy(t);
	if (!tm_reserve(t, words, TM_NO_EVENT, &r)) return false;
	uint64_t position = tm_position(t);
	CHECK((uint8_t *)r == data + position % SIZE);
	CHECK(position % SIZE + (words + TM_SPARE_WORDS) * 8 <= SIZE);
	r[0] = tm_ring_word(TM_OP_MALLOC, 0, words, 0, 0);
	r[1] = position;
	tm_publish(t, r + words);
	CHECK(ring.head == position + 8 * words && unread() <= SIZE && !tm_is_busy(t));
	return true;
}

static void fill_to(struct tm_thread *t, uint64_t position) {
	while (tm_position(t) < position) {
		if (!CHECK(put(t, SMALL))) return;
		atomic_store(&ring.tail, ring.head);
	}
}

/* As a collector reads: what lies between its position and the head are whole records and pads. */
static void read_to_head(void) {
	while (ring.tail < ring.head) {
		const uint64_t *r = (const uint64_t *)(data + ring.tail % SIZE);
		unsigned words = (uint16_t)(r[0] >> 16);
		if ((uint8_t)r[0] != TM_CTL_PAD && !CHECK(r[1] == ring.tail)) return;
		if (!CHECK(words && words * 8 <= ring.head - ring.tail)) return;
		ring.tail += 8 * words;
	}
}

static unsigned small_ones_that_fit(struct tm_thread *t) {
	unsigned n = 0;
	while (n < 2 * SIZE && put(t, SMALL)) n++;
	return n;
}

static void test_full(void) {
	struct tm_thread *t = begin_ring();
	unsigned n = small_ones_that_fit(t);
	CHECK(n == SIZE / (8 * SMALL) - 1 && ring.lost_records == 1); /* the last one's place has not the words to spare */
	read_to_head();
	CHECK(small_ones_that_fit(t) == n - 1 && ring.lost_records == 2); /* in front of them is the pad */
	read_to_head();
}

/* More than half of the ring: what is left of it is given up first, and then there may be no room for the record. The ring is no less full for that. */
static void test_large_one_that_is_lost(void) {
	struct tm_thread *t = begin_ring();
	fill_to(t, 50000);
	ring.tail = tm_position(t) - 300 * 8 * SMALL;
	CHECK(!put(t, 8000) && ring.lost_records == 1);
	small_ones_that_fit(t);
	CHECK(unread() <= SIZE);
	read_to_head();
	CHECK(!put(t, 8000)); /* the pad in front of it is to be read first */
	read_to_head();
	CHECK(put(t, 8000));
	read_to_head();
}

static void test_records_of_any_length(void) {
	struct check_random random = check_random_start("ring_room");
	struct tm_thread *t = begin_ring();
	unsigned written = 0, lost = 0;
	for (unsigned i = 0; i < 100000; i++) {
		unsigned words = check_random_below(&random, 50) ? 2 + check_random_below(&random, 40) : 2 + check_random_below(&random, 8180);
		if (put(t, words)) written++;
		else lost++;
		if (!check_random_below(&random, 20)) read_to_head();
	}
	CHECK(written > 50000 && lost > 1000 && ring.lost_records == lost);
	read_to_head();
}

/* A handler leaves by a jump with the place changed in part, as wrap(), pad() and tm_advance() do it; or not at all. */
static void test_jumps(void) {
	struct tm_thread *t = begin_ring();
	for (unsigned lap = 0; lap < 3; lap++) {
		fill_to(t, lap * SIZE + SIZE - 8 * SMALL);
		uint64_t head = ring.head;
		t->at = data + SIZE; /* padded, and not gone on */
		tm_ring_after_jump(t);
		CHECK(tm_position(t) == head + 8 * SMALL && t->at == data && t->limit == data);
		t->bias = -(uint64_t)(uintptr_t)data; /* gone on, and counted as in the first lap */
		tm_ring_after_jump(t);
		CHECK(tm_position(t) == head + 8 * SMALL && t->at == data);
		*tm_next_record(t) = tm_ring_word(TM_OP_MALLOC, 0, SMALL, 0, 0);
		tm_next_record(t)[1] = tm_position(t);
		t->at += 8 * SMALL; /* written, and not told */
		tm_ring_after_jump(t);
		CHECK(tm_position(t) == head + 16 * SMALL);
		*(uint64_t *)(data + head % SIZE) = tm_ring_word(TM_CTL_PAD, 0, SMALL, 0, 0);
		CHECK(put(t, SMALL));
		read_to_head();
		tm_ring_after_jump(t);
		CHECK(tm_position(t) == ring.head && put(t, SMALL));
		read_to_head();
	}
}

/* Who has no ring waits for one that is still to be read, and for no other. */
static void test_find_ring(void) {
	struct tm_thread *t = begin_ring();
	CHECK(tm_find_ring(t));
	claims_in_vain = 3;
	is_coming = true;
	CHECK(!tm_find_ring(t) && claims_in_vain == 2); /* --on-full=drop */
	shm.on_full = TM_ON_FULL_WAIT;
	CHECK(tm_find_ring(t) && claims_in_vain == 0);
	claims_in_vain = 3;
	is_coming = false;
	CHECK(!tm_find_ring(t) && claims_in_vain == 2);
}

int main(void) {
	test_find_ring();
	test_full();
	test_large_one_that_is_lost();
	test_records_of_any_length();
	test_jumps();
	return check_report("ring_room");
}
