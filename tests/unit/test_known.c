/* test_known.c - which stacks become known (recorder/guest/unwind_known.c). They are laid out in memory of the test's, and taken as the hooks take them. */
#include "../../recorder/guest/attach.h"
#include "../unwind/alone.h"

#include "../../recorder/guest/syscall.c"
#include "../../recorder/guest/unwind_known.c"
#include "check.h"

#define DEPTH 8u
#define CODE 0x400000u
#define SHARED_BITS 12u /* of a hash: more than there are places */
#define SHARING 4u
#define ROUNDS 12u      /* each has come often enough then */

static uintptr_t memory[DEPTH]; /* the stack: a return address at every word, the innermost first */
static uintptr_t pcs[DEPTH], places[1 + DEPTH];
static struct tm_check checks[1];
static struct tm_thread thread;

static struct tm_thread *begin_thread(void) {
	struct tm_thread *t = &thread;
	places[0] = UINTPTR_MAX;
	*t = (struct tm_thread){ .pcs = pcs, .sps = places + 1, .checks = checks, .number = 1, .cut_frame = UINT32_MAX, .framed_low = UINT32_MAX };
	tm_known_prepare(t);
	return t;
}

/* A stack is told by its innermost return address. */
static void lay_out(struct tm_thread *t, uint32_t stack) {
	for (uint32_t i = 0; i < DEPTH; i++) {
		memory[i] = CODE + 0x1000000 * i + (i ? 0 : 16 * (stack * 40503u % 65536));
		t->pcs[DEPTH - 1 - i] = memory[i];
		t->sps[DEPTH - 1 - i] = (uintptr_t)&memory[i];
	}
	t->depth = t->remembered = DEPTH;
}

/* True: it was a known one. */
static bool take(struct tm_thread *t, uint32_t stack) {
	bool all;
	lay_out(t, stack);
	const struct tm_known *k = tm_known_take(t, (uintptr_t)&memory[0], &all);
	if (k) {
		CHECK(tm_known_or_taken_pc(t, 0) == memory[0] && tm_known_or_taken_depth(t) == DEPTH);
		tm_known_go_on(t, k);
		return true;
	}
	t->known = NULL;
	tm_known_note(t, 0);
	return false;
}

static unsigned known_in_turn(struct tm_thread *t, const uint32_t *stacks, size_t count, unsigned rounds) {
	unsigned known = 0;
	for (unsigned round = 0; round < rounds; round++)
		for (size_t i = 0; i < count; i++) known += take(t, stacks[i]);
	return known;
}

static uint32_t hash_of(struct tm_thread *t, uint32_t stack) {
	lay_out(t, stack);
	return hash_of_stack(t);
}

/* Each of them alone would be known after some times. */
static void test_stacks_that_share_a_place(void) {
	struct tm_thread *t = begin_thread();
	uint32_t sharing[SHARING] = { 0 }, count = 1, first = hash_of(t, 0);
	for (uint32_t i = 1; count < SHARING; i++)
		if (hash_of(t, i) >> (32 - SHARED_BITS) == first >> (32 - SHARED_BITS)) sharing[count++] = i;
	uint32_t other = sharing[SHARING - 1] + 1;
	for (unsigned i = 0; i < FIRST_STACKS; i++) CHECK(!take(t, other));
	known_in_turn(t, sharing, SHARING, ROUNDS);
	CHECK(known_in_turn(t, sharing, SHARING, 1) == SHARING);
	tm_known_release(t);
}

static void test_many_stacks_in_turn(void) {
	struct tm_thread *t = begin_thread();
	uint32_t stacks[100];
	for (uint32_t i = 0; i < 100; i++) stacks[i] = i;
	for (unsigned i = 0; i < FIRST_STACKS; i++) CHECK(!take(t, 1000));
	CHECK(known_in_turn(t, stacks, 100, SEEN_OFTEN + 1) == 0);
	known_in_turn(t, stacks, 100, 1);
	CHECK(known_in_turn(t, stacks, 100, 3) == 300);
	CHECK(!take(t, 100)); /* one that never came */
	tm_known_release(t);
}

/* A few times is not often, and what comes between does not count for it. */
static void test_stacks_that_come_seldom(void) {
	struct tm_thread *t = begin_thread();
	for (unsigned i = 0; i < FIRST_STACKS; i++) take(t, 1000);
	for (unsigned round = 0; round <= SEEN_OFTEN; round++) CHECK(!take(t, 7));
	for (uint32_t i = 0; i < 500; i++) CHECK(!take(t, 2000 + i));
	tm_known_release(t);
}

/* A long loop takes many stacks that are not known until it is; where none came again before that none is learned at first, and it is noticed all the same. */
static void test_long_loops(void) {
	enum { LOOP = 700, LOOP_NEARLY = LOOP * 95 / 100, UNIQUE = 40000, ROUNDS_MOST = 240 }; /* few share a place with too many */
	static uint32_t loop[LOOP];
	for (unsigned unique = 0; unique <= UNIQUE; unique += UNIQUE) {
		struct tm_thread *t = begin_thread();
		for (uint32_t i = 0; i < LOOP; i++) loop[i] = i;
		for (uint32_t i = 0; i < unique; i++) CHECK(!take(t, LOOP + i));
		CHECK(!unique || (t->known_wait_left && !t->known_count));
		unsigned rounds = 0;
		while (rounds < ROUNDS_MOST && known_in_turn(t, loop, LOOP, 1) < LOOP_NEARLY) rounds++;
		CHECK(rounds < ROUNDS_MOST);
		CHECK(known_in_turn(t, loop, LOOP, 3) >= 3 * LOOP_NEARLY);
		tm_known_release(t);
	}
}

/* --- with frame pointers --- */

static uintptr_t words[2 * DEPTH]; /* the stack: what lies below each return address, and that; the innermost first */
static uint8_t marks[DEPTH];
static struct tm_pair pairs[DEPTH] __attribute__((aligned(16)));
#define UNFRAMED 2u /* of the frames this one, from the outermost */

static uintptr_t *below(uint32_t frame) {
	return &words[2 * (DEPTH - 1 - frame)];
}

static void lay_out_framed(struct tm_thread *t, uint32_t stack) {
	for (uint32_t i = 0; i < DEPTH; i++) {
		*below(i) = (uintptr_t)(below(i) - 2);
		below(i)[1] = CODE + 0x1000 * i + (i == DEPTH - 1 ? 16 * stack : 0);
		t->pcs[i] = below(i)[1];
		t->sps[i] = (uintptr_t)(below(i) + 1);
		marks[i] = i != UNFRAMED;
		pairs[i] = (struct tm_pair){ *below(i), t->pcs[i] };
	}
	t->framed = marks;
	t->pairs = pairs;
	t->framed_low = 0;
	t->depth = t->remembered = DEPTH;
}

static const struct tm_known *find_framed(struct tm_thread *t) {
	bool all;
	return tm_known_take(t, t->sps[DEPTH - 1], &all);
}

static bool take_framed(struct tm_thread *t, uint32_t stack) {
	lay_out_framed(t, stack);
	const struct tm_known *k = find_framed(t);
	if (k) tm_known_go_on(t, k);
	else {
		t->known = NULL;
		tm_known_note(t, 0);
	}
	return k != NULL;
}

/* They are decided by the words below their return addresses, too, but for that of a frame that no frame pointer tells of. */
static void test_framed_stacks(void) {
	struct tm_thread *t = begin_thread();
	for (unsigned i = 0; i < FIRST_STACKS; i++) CHECK(!take_framed(t, 1000));
	for (unsigned round = 0; round < ROUNDS; round++)
		for (uint32_t stack = 0; stack < 3; stack++) take_framed(t, stack);
	for (uint32_t stack = 0; stack < 3; stack++) {
		CHECK(take_framed(t, stack));
		for (uint32_t frame = 0; frame < DEPTH; frame++) {
			lay_out_framed(t, stack);
			*below(frame) ^= 8;
			CHECK(!find_framed(t) == (frame != UNFRAMED));
			lay_out_framed(t, stack);
			below(frame)[1] ^= 16 << 8;
			CHECK(!find_framed(t));
		}
		lay_out_framed(t, stack);
		CHECK(find_framed(t) != NULL);
		*below(UNFRAMED) = 77;
		memset(marks, 2, sizeof marks);
		memset(pairs, 0, sizeof pairs);
		memset(pcs, 0, sizeof pcs);
		t->framed_low = t->depth = t->check_count = 9;
		tm_known_restore(t, 0);
		CHECK(t->framed_low == 0 && t->depth == DEPTH && t->remembered == DEPTH && t->check_count == 0);
		for (uint32_t i = 0; i < DEPTH; i++)
			CHECK(t->pcs[i] == below(i)[1] && t->sps[i] == (uintptr_t)(below(i) + 1) && marks[i] == (i != UNFRAMED) &&
			      pairs[i].pc == t->pcs[i] && pairs[i].next == *below(i));
	}
	tm_known_release(t);
}

/* A trunk that is told by pairs is none of a stack that has the same frames without frame pointers. */
static void test_framed_and_not(void) {
	struct tm_thread *t = begin_thread();
	for (unsigned i = 0; i < FIRST_STACKS; i++) CHECK(!take_framed(t, 1000));
	for (unsigned round = 0; round < ROUNDS; round++) take_framed(t, 1);
	lay_out_framed(t, 2);
	t->framed_low = UINT32_MAX;
	for (unsigned round = 0; round < ROUNDS && !find_framed(t); round++) {
		t->known = NULL;
		tm_known_note(t, 0);
	}
	CHECK(find_framed(t) && !t->known->trunk->by_pairs);
	for (uint32_t i = 0; i < DEPTH; i++) *below(i) = 5;
	CHECK(find_framed(t) != NULL);
	tm_known_restore(t, 0);
	CHECK(t->framed_low == UINT32_MAX);
	tm_known_release(t);
}

int main(void) {
	test_long_loops();
	test_framed_stacks();
	test_framed_and_not();
	test_stacks_that_share_a_place();
	test_many_stacks_in_turn();
	test_stacks_that_come_seldom();
	return check_report("known");
}
