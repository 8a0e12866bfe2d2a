/* test_events.c - the EVENTS codec.
 *
 * Goal:    encoder and decoder both do what format.md section 5 says, lose nothing, and the decoder survives any bytes.
 * Method:  segments written out by hand, column by column, with an event of each class, compared both ways; thousands of random
 *          arrays there and back, some like a program's, some hostile; every rule that makes a segment damaged, broken on purpose; every cut
 *          and random changes of valid segments; every allocation failing in turn.
 */
#include "../../schema/events.h"
#include "check.h"
#include "fail_alloc.h"

static struct tm_encoder *encoder;
static struct tm_decoder *decoder;

static bool same_event(const struct tm_event *a, const struct tm_event *b) {
	return a->time_ns == b->time_ns && a->begin_ns == b->begin_ns && a->addr == b->addr && a->size == b->size && a->old == b->old &&
	       a->old_size == b->old_size && a->usable == b->usable && a->stack == b->stack && a->heap == b->heap && a->text == b->text &&
	       a->op == b->op;
}

static void print_event(const struct tm_event *e) {
	printf("  op %02x time %llu begin %llu addr %llx size %llu old %llx old_size %llu usable %lld stack %u heap %u text %u\n", e->op,
	       (unsigned long long)e->time_ns, (unsigned long long)e->begin_ns, (unsigned long long)e->addr, (unsigned long long)e->size,
	       (unsigned long long)e->old, (unsigned long long)e->old_size, (long long)e->usable, e->stack, e->heap, e->text);
}

/* Decodes a copy that ends where the memory ends, so that a sanitizer sees any step beyond. */
static int decode_copy(const uint8_t *bytes, size_t n, struct tm_segment *out, bool *used_up) {
	uint8_t *copy = malloc(n + 1), *exact = copy + 1;
	memcpy(exact, bytes, n);
	struct tm_cursor c = tm_cursor_over(exact, n);
	int status = tm_decode_segment(decoder, &c, out);
	*used_up = c.p == c.end;
	CHECK(c.bad == (status == -1));
	if (status) CHECK(!out->events && !out->count);
	free(copy);
	return status;
}

static void check_decodes_to(const uint8_t *bytes, size_t n, uint64_t thread, const struct tm_event *events, size_t count) {
	struct tm_segment segment;
	bool used_up;
	if (!CHECK(decode_copy(bytes, n, &segment, &used_up) == 0)) return;
	CHECK(used_up && segment.thread == thread);
	if (!CHECK(segment.count == count)) return;
	size_t i = 0;
	while (i < count && same_event(&segment.events[i], &events[i])) i++;
	if (CHECK(i == count)) return;
	printf("  event %zu of %zu, decoded and expected:\n", i, count);
	print_event(&segment.events[i]);
	print_event(&events[i]);
}

static void check_round_trip(uint64_t thread, uint64_t base_ns, const struct tm_event *events, size_t n, struct tm_bytes *out) {
	tm_bytes_clear(out);
	tm_encode_segment(encoder, out, thread, base_ns, events, n);
	CHECK(!out->failed);
	check_decodes_to(out->data, out->size, thread, events, n);
}

/* ---- by hand ---- */

/* clang-format off */
static const struct tm_event one_of_each_class[] = {
	{ .op = TM_OP_MALLOC, .time_ns = 150, .begin_ns = 150, .addr = 0x1000, .size = 40, .usable = 40, .stack = 5 },
	{ .op = TM_OP_FREE, .time_ns = 160, .begin_ns = 160, .old = 0x1000, .usable = TM_USABLE_UNKNOWN },
	{ .op = TM_OP_CALLOC, .time_ns = 165, .begin_ns = 165, .addr = 0x1000, .size = 40, .usable = 72, .stack = 5 },
	{ .op = TM_OP_REALLOC, .time_ns = 200, .begin_ns = 190, .addr = 0x2000, .size = 100, .old = 0x1000,
	  .usable = TM_USABLE_UNKNOWN, .stack = 5 },
	{ .op = TM_OP_MMAP, .time_ns = 210, .begin_ns = 210, .addr = 0x102000, .size = 8192, .usable = TM_USABLE_UNKNOWN, .heap = 2 },
	{ .op = TM_OP_MUNMAP, .time_ns = 220, .begin_ns = 215, .old = 0x101000, .old_size = 4096, .usable = TM_USABLE_UNKNOWN },
	{ .op = TM_OP_MREMAP, .time_ns = 230, .begin_ns = 229, .addr = 0x102008, .size = 8192, .old = 0x102000, .old_size = 8192,
	  .usable = TM_USABLE_UNKNOWN },
	{ .op = TM_OP_MARK, .time_ns = 230, .begin_ns = 230, .usable = TM_USABLE_UNKNOWN, .text = 9 },
	{ .op = TM_OP_FREE, .time_ns = 240, .begin_ns = 240, .old = 0x77, .usable = TM_USABLE_UNKNOWN },
	{ .op = TM_OP_SCOPE_BLOCK, .time_ns = 250, .begin_ns = 250, .usable = TM_USABLE_UNKNOWN, .text = 7, .addr = 300, .old = 1ull << 63, .heap = 4 },
};
/* clang-format on */

/* Worked out with pencil and format.md. A(0x1000) = 2 * zigzag(0x100) = 0x400. */
/* clang-format off */
static const uint8_t one_of_each_class_bytes[] = {
	3, 100, 10, /* thread, base_ns, n */
	10, 0x00, 0x20, 0x01, 0x40, 0x60, 0x80, 0xa0, 0xc0, 0x20, 0xd1,
	10, 50, 10, 5, 35, 10, 10, 10, 0, 10, 10, /* time */
	3, 10, 5, 1,                         /* begin: realloc, munmap, mremap */
	8, 0, 0, 0, 0, 2, 0, 0, 0,           /* heap: all but the mark */
	9, 0x81, 0x08,                       /* addr: malloc, no free block known: A(0x1000 - 0) + 1 */
	0,                                   /*   calloc: the block just freed, class 3 as malloc's */
	0x81, 0x08,                          /*   realloc, from old: A(0x1000) + 1 */
	0x81, 0x80, 0x10,                    /*   mmap, from the realloc's 0x2000: A(0x100000) + 1 = 0x40001 */
	0x22,                                /*   mremap, from old, no multiple of 16: 2 * zigzag(8) + 1 + 1 */
	12, 1,                               /* old: free of the last allocation, 0 + 1 */
	1,                                   /*   realloc: the calloc, 0 + 1 */
	0x80, 0x80, 0x10,                    /*   munmap: A(0x101000 - 0x1000) */
	0x80, 0x08,                          /*   mremap: A(0x102000 - 0x101000) */
	0, 0xa3, 0xfc, 0x81, 0x02,           /*   free of a stranger: 0, then 2 * zigzag(0x77 - 0x102000) + 1 = 4226595 */
	6, 41, 0, 101, 0x81, 0x40, 0,        /* size: 40 + 1, as before, 100 + 1, 8192 + 1, as the last with stack 0 */
	4, 0x80, 0x20, 0x80, 0x40,           /* old_size */
	3, 0, 65, 1,                         /* usable: malloc default; calloc 32 more: zigzag(32) + 1; realloc unknown */
	5, 6, 6, 6, 1, 0,                    /* stack: 5 + 1 thrice (each after two others), 0 + 1 (not the foretold 5), 0 as foretold */
	15, 9,                               /* text: the mark's */
	7, 0xac, 0x02,                       /*   the scope's name, key 300 */
	0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01, 4, /*   link 2^63, category */
};
/* clang-format on */

static void check_by_hand(const struct tm_event *events, size_t n, uint64_t thread, uint64_t base_ns, const uint8_t *bytes, size_t size) {
	struct tm_bytes out = TM_BYTES_INIT;
	tm_encode_segment(encoder, &out, thread, base_ns, events, n);
	CHECK_BYTES(out.data, out.size, bytes, size);
	check_decodes_to(bytes, size, thread, events, n);
	tm_bytes_release(&out);
}

static void test_one_of_each_class(void) {
	check_by_hand(one_of_each_class, 10, 3, 100, one_of_each_class_bytes, sizeof one_of_each_class_bytes);
}

/* Nothing of a segment is left in the next: the same events give the same bytes again. */
static void test_segments_are_independent(void) {
	for (int i = 0; i < 3; i++) test_one_of_each_class();
}

static void test_no_events_and_absent_columns(void) {
	static const uint8_t nothing[] = { 200, 1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
	check_by_hand(NULL, 0, 200, 7, nothing, sizeof nothing);
	/* A malloc of 0 bytes without a stack, at once: every column but op and addr is zeros. The op column stays, though it is 0 too. */
	static const struct tm_event one[] = { { .op = TM_OP_MALLOC, .time_ns = 7, .begin_ns = 7, .addr = 0x10, .usable = 24 } };
	static const uint8_t one_bytes[] = { 1, 7, 1, 1, 0x00, 0, 0, 0, 1, 5, 0, 0, 0, 0, 0, 0 };
	check_by_hand(one, 1, 1, 7, one_bytes, sizeof one_bytes);
	/* A free of address 0: the code 0 of column old and the second varint behind it, both left out. */
	static const struct tm_event two[] = { { .op = TM_OP_FREE, .time_ns = 7, .begin_ns = 7, .usable = TM_USABLE_UNKNOWN } };
	static const uint8_t two_bytes[] = { 1, 7, 1, 1, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
	check_by_hand(two, 1, 1, 7, two_bytes, sizeof two_bytes);
	/* A column of zeros that is there is read as well. */
	static const uint8_t explicit_zeros[] = { 1, 7, 1, 1, 0x20, 1, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0 };
	check_decodes_to(explicit_zeros, sizeof explicit_zeros, 1, two, 1);
}

/* Three blocks, the first given back, one resized in place: `old` counts alloc and realloc events back to the one that gave the address. */
static void test_old_counts_blocks(void) {
	static const struct tm_event events[] = {
		{ .op = TM_OP_MALLOC, .addr = 0x1000, .size = 24, .usable = 24 },
		{ .op = TM_OP_MALLOC, .addr = 0x1020, .size = 24, .usable = 24 },
		{ .op = TM_OP_FREE, .old = 0x1000, .usable = TM_USABLE_UNKNOWN },
		{ .op = TM_OP_REALLOC, .addr = 0x1020, .size = 24, .old = 0x1020, .usable = 24 },
		{ .op = TM_OP_FREE, .old = 0x1020, .usable = TM_USABLE_UNKNOWN },
		{ .op = TM_OP_FREE, .old = 0x1020, .usable = TM_USABLE_UNKNOWN },
		{ .op = TM_OP_MALLOC, .addr = 0x1020, .size = 24, .usable = 24 },
		{ .op = TM_OP_MALLOC, .addr = 0x1000, .size = 24, .usable = 24 },
		{ .op = TM_OP_MALLOC, .addr = 0x1000, .size = 24, .usable = 24 },
	};
	/* clang-format off */
	static const uint8_t bytes[] = {
		1, 0, 9, 9, 0x00, 0x00, 0x20, 0x40, 0x20, 0x20, 0x00, 0x00, 0x00, 0, 0, 0,
		7, 0x81, 0x08, /* A(0x1000) + 1 */
		9,             /* A(0x20) + 1: 2 * zigzag(2) + 1 */
		1,             /* realloc in place: A(0) + 1; nothing is pushed onto the free blocks */
		0, 0,          /* the two freed last */
		1,             /* none left: A(0) + 1, from 0x1000 to 0x1000 */
		5, 2, 1, 1, 0, 0, /* old: the last but one; the last; the realloc; freed again: 0, then A(0) */
		6, 25, 0, 0, 0, 0, 0, /* size */
		0, 0, 0, 0,
	};
	/* clang-format on */
	check_by_hand(events, sizeof events / sizeof *events, 1, 0, bytes, sizeof bytes);
}

/* A stack of free addresses holds 8: the ninth push drops the oldest. Nine blocks of class 2, freed in order, come again last first. */
static void test_free_stack_drops_the_oldest(void) {
	struct tm_event events[27] = { { 0 } };
	for (int i = 0; i < 9; i++) {
		events[i] = (struct tm_event){ .op = TM_OP_MALLOC, .addr = 0x1000 + 0x20 * (uint64_t)i, .size = 24, .usable = 24 };
		events[9 + i] = (struct tm_event){ .op = TM_OP_FREE, .old = events[i].addr, .usable = TM_USABLE_UNKNOWN };
		events[26 - i] = events[i];
	}
	static const uint8_t addr_column[] = { 19, 0x81, 0x08, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0, 0, 0, 7 /* A(-0x20) + 1 */ };
	struct tm_bytes out = TM_BYTES_INIT;
	tm_encode_segment(encoder, &out, 1, 0, events, 27);
	CHECK_BYTES(out.data + 3 + 1 + 27 + 3, sizeof addr_column, addr_column, sizeof addr_column);
	check_decodes_to(out.data, out.size, 1, events, 27);
	tm_bytes_release(&out);
}

/* Blocks over class 65 (a request of 1032 bytes is the largest in it) are not remembered as free. */
static void test_size_classes(void) {
	for (uint64_t size = 1032; size <= 1033; size++) {
		struct tm_event events[] = {
			{ .op = TM_OP_MALLOC, .addr = 0x1000, .size = size, .usable = tm_usable_default(size) },
			{ .op = TM_OP_FREE, .old = 0x1000, .usable = TM_USABLE_UNKNOWN },
			{ .op = TM_OP_MALLOC, .addr = 0x1000, .size = size, .usable = tm_usable_default(size) },
		};
		struct tm_bytes out = TM_BYTES_INIT;
		const uint8_t addr_column[] = { 3, 0x81, 0x08, size == 1032 ? 0 : 1 };
		tm_encode_segment(encoder, &out, 1, 0, events, 3);
		CHECK_BYTES(out.data + 3 + 4 + 3, 4, addr_column, 4);
		tm_bytes_release(&out);
	}
}

static void test_usable_default(void) {
	static const uint64_t expected[][2] = { { 0, 24 },      { 1, 24 },      { 24, 24 },
						{ 25, 40 },     { 40, 40 },     { 41, 56 },
						{ 1000, 1000 }, { 1001, 1016 }, { UINT64_MAX - 1, 24 } };
	for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) CHECK(tm_usable_default(expected[i][0]) == expected[i][1]);
}

static void test_header(void) {
	static const uint8_t expected[] = { 0xac, 0x02, 3 };
	struct tm_bytes b = TM_BYTES_INIT;
	uint64_t watermark, segments;
	tm_put_events_header(&b, 300, 3);
	CHECK_BYTES(b.data, b.size, expected, sizeof expected);
	struct tm_cursor c = tm_cursor_over(expected, sizeof expected);
	tm_get_events_header(&c, &watermark, &segments);
	CHECK(watermark == 300 && segments == 3 && !c.bad);
	c = tm_cursor_over(expected, 2);
	tm_get_events_header(&c, &watermark, &segments);
	CHECK(c.bad);
	tm_bytes_release(&b);
}

/* ---- damage on purpose ---- */

struct raw_column {
	size_t size;
	uint8_t bytes[24];
};

/* clang-format off */
#define COLUMN(...) { sizeof((uint8_t[]){ __VA_ARGS__ }), { __VA_ARGS__ } }
/* clang-format on */
enum { OP, TIME, BEGIN, HEAP, ADDR, OLD, SIZE, OLD_SIZE, USABLE, STACK, TEXT };

/* Puts a segment together from columns and returns what the decoder says. */
static int decode_columns(uint64_t base_ns, uint64_t n, const struct raw_column columns[11]) {
	struct tm_bytes b = TM_BYTES_INIT;
	struct tm_segment segment;
	bool used_up;
	tm_put_varint(&b, 1);
	tm_put_varint(&b, base_ns);
	tm_put_varint(&b, n);
	for (int i = 0; i < 11; i++) tm_put_string(&b, columns[i].bytes, columns[i].size);
	int status = decode_copy(b.data, b.size, &segment, &used_up);
	tm_bytes_release(&b);
	return status;
}

#define DECODE(base_ns, n, ...) decode_columns(base_ns, n, (const struct raw_column[11]){ __VA_ARGS__ })
#define TEN_TIMES_MAX 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01
#define TWO_TO_32 0x80, 0x80, 0x80, 0x80, 0x10

static void test_damage_on_purpose(void) {
	/* each pair: the sound form, then the broken one */
	CHECK(DECODE(0, 1, [OP] = COLUMN(0x00), [ADDR] = COLUMN(5)) == 0);
	CHECK(DECODE(0, 2, [OP] = COLUMN(0x00), [ADDR] = COLUMN(5)) == -1); /* n and op differ */
	CHECK(DECODE(0, 0, [OP] = COLUMN(0x00), [ADDR] = COLUMN(5)) == -1);
	CHECK(DECODE(0, 1, [ADDR] = COLUMN(5)) == -1);                                          /* op cannot be left out */
	CHECK(DECODE(0, 1, [OP] = COLUMN(0x00), [ADDR] = COLUMN(5, 5)) == -1);                  /* a byte left over */
	CHECK(DECODE(0, 1, [OP] = COLUMN(0x00), [ADDR] = COLUMN(5), [TEXT] = COLUMN(0)) == -1); /* nothing uses it */
	CHECK(DECODE(0, 2, [OP] = COLUMN(0x00, 0x00), [ADDR] = COLUMN(5)) == -1);               /* short */
	CHECK(DECODE(0, 1, [OP] = COLUMN(0x00), [ADDR] = COLUMN(0x85)) == -1);                  /* a varint cut */
	CHECK(DECODE(0, 1, [OP] = COLUMN(0x00)) == -1);                                         /* addr 0, nothing freed */
	CHECK(DECODE(0, 1, [OP] = COLUMN(0x1f), [ADDR] = COLUMN(5)) == 0);                      /* an unknown op of a known class */
	CHECK(DECODE(0, 1, [OP] = COLUMN(0xdf)) == 0);
	for (unsigned op = 0xe0; op <= 0xff; op++) CHECK(DECODE(0, 1, [OP] = { 1, { (uint8_t)op } }) == -1);

	CHECK(DECODE(1, 1, [OP] = COLUMN(0xc0), [TIME] = COLUMN(0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01)) == 0);
	CHECK(DECODE(1, 1, [OP] = COLUMN(0xc0), [TIME] = COLUMN(TEN_TIMES_MAX)) == -1); /* time wraps */
	CHECK(DECODE(4, 1, [OP] = COLUMN(0x80), [BEGIN] = COLUMN(4)) == 0);
	CHECK(DECODE(4, 1, [OP] = COLUMN(0x80), [BEGIN] = COLUMN(5)) == -1); /* begins before 0 */

	CHECK(DECODE(0, 1, [OP] = COLUMN(0x20), [HEAP] = COLUMN(0xff, 0xff, 0xff, 0xff, 0x0f)) == 0);
	CHECK(DECODE(0, 1, [OP] = COLUMN(0x20), [HEAP] = COLUMN(TWO_TO_32)) == -1);
	CHECK(DECODE(0, 1, [OP] = COLUMN(0xc0), [TEXT] = COLUMN(0xff, 0xff, 0xff, 0xff, 0x0f)) == 0);
	CHECK(DECODE(0, 1, [OP] = COLUMN(0xc0), [TEXT] = COLUMN(TWO_TO_32)) == -1);
	CHECK(DECODE(0, 1, [OP] = COLUMN(0x60), [ADDR] = COLUMN(5), [STACK] = COLUMN(TWO_TO_32)) == 0); /* stack 2^32 - 1 */
	CHECK(DECODE(0, 1, [OP] = COLUMN(0x60), [ADDR] = COLUMN(5), [STACK] = COLUMN(0x81, 0x80, 0x80, 0x80, 0x10)) == -1);

	CHECK(DECODE(0, 2, [OP] = COLUMN(0x00, 0x20), [ADDR] = COLUMN(5), [OLD] = COLUMN(1)) == 0);
	CHECK(DECODE(0, 2, [OP] = COLUMN(0x00, 0x20), [ADDR] = COLUMN(5), [OLD] = COLUMN(2)) == -1); /* before the first block */
	CHECK(DECODE(0, 2, [OP] = COLUMN(0x00, 0x20), [ADDR] = COLUMN(5), [OLD] = COLUMN(TEN_TIMES_MAX)) == -1);
	CHECK(DECODE(0, 2, [OP] = COLUMN(0x20, 0x00), [ADDR] = COLUMN(5), [OLD] = COLUMN(1)) == -1);          /* no block yet */
	CHECK(DECODE(0, 3, [OP] = COLUMN(0x00, 0x20, 0x20), [ADDR] = COLUMN(5), [OLD] = COLUMN(1, 1)) == -1); /* given back twice */
	CHECK(DECODE(0, 2, [OP] = COLUMN(0x00, 0x40), [ADDR] = COLUMN(5, 1), [OLD] = COLUMN(1)) == 0);
	CHECK(DECODE(0, 2, [OP] = COLUMN(0x00, 0x40), [ADDR] = COLUMN(5, 0), [OLD] = COLUMN(1)) == -1); /* 0 is for the alloc class */
	CHECK(DECODE(0, 3, [OP] = COLUMN(0x00, 0x20, 0x00), [ADDR] = COLUMN(5, 0), [OLD] = COLUMN(1)) == 0);
	CHECK(DECODE(0, 3, [OP] = COLUMN(0x00, 0x20, 0x60), [ADDR] = COLUMN(5, 0), [OLD] = COLUMN(1)) == -1);
	CHECK(DECODE(0, 4, [OP] = COLUMN(0x00, 0x20, 0x00, 0x00), [ADDR] = COLUMN(5, 0, 0), [OLD] = COLUMN(1)) == -1); /* popped already */

	/* Addresses: 2^60 - 16 = 16 * (2^56 - 1), so A = 4 * (2^56 - 1) = 2^58 - 4; 2^60 gives 2^58. */
	CHECK(DECODE(0, 1, [OP] = COLUMN(0x80), [OLD] = COLUMN(0xfc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x03)) == 0);
	CHECK(DECODE(0, 1, [OP] = COLUMN(0x80), [OLD] = COLUMN(0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x04)) == -1);
	CHECK(DECODE(0, 1, [OP] = COLUMN(0x80), [OLD] = COLUMN(2)) == -1); /* 16 below 0 */
	CHECK(DECODE(0, 1, [OP] = COLUMN(0x60), [ADDR] = COLUMN(0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x03)) == 0);
	CHECK(DECODE(0, 1, [OP] = COLUMN(0x60), [ADDR] = COLUMN(0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x04)) == -1);
	CHECK(DECODE(0, 1, [OP] = COLUMN(0x60), [ADDR] = COLUMN(3)) == -1);
}

static void test_cuts_of_a_valid_segment(void) {
	struct tm_segment segment;
	bool used_up;
	for (size_t cut = 0; cut < sizeof one_of_each_class_bytes; cut++)
		CHECK(decode_copy(one_of_each_class_bytes, cut, &segment, &used_up) == -1);
}

/* ---- at random ---- */

#define LIVE_MAX 256

struct generator {
	struct check_random random;
	uint64_t now_ns, live[LIVE_MAX];
	size_t live_count;
	bool hostile;
};

static const uint8_t ops[] = {
#define X(name, code, api) code,
	TM_OPS(X)
#undef X
};

static uint64_t any_address(struct generator *g) {
	struct check_random *r = &g->random;
	if (g->live_count && !check_random_below(r, g->hostile ? 3 : 20)) return g->live[check_random_below(r, g->live_count)];
	if (!g->hostile) return 0x555500000000 + 16 * check_random_below(r, 1000);
	switch (check_random_below(r, 4)) {
	case 0: return 0;
	case 1: return TM_ADDRESS_LIMIT - 1 - check_random_below(r, 40);
	case 2: return check_random_below(r, 100);
	}
	return check_random_any(r) % TM_ADDRESS_LIMIT;
}

static uint64_t any_size(struct generator *g) {
	struct check_random *r = &g->random;
	if (!g->hostile) return 8 * check_random_below(r, 160);
	switch (check_random_below(r, 4)) {
	case 0: return 0;
	case 1: return UINT64_MAX - 1 - check_random_below(r, 40);
	case 2: return check_random_below(r, 1100);
	}
	return check_random_any(r) % UINT64_MAX;
}

static uint64_t any_usable(struct generator *g, uint64_t size) {
	struct check_random *r = &g->random;
	uint64_t usable = tm_usable_default(size);
	if (!g->hostile) return usable;
	switch (check_random_below(r, 4)) {
	case 0: return TM_USABLE_UNKNOWN;
	case 1: return usable + check_random_below(r, 100) - 50;
	case 2: return check_random_any(r);
	}
	return usable;
}

static uint32_t any_id(struct generator *g) {
	struct check_random *r = &g->random;
	return g->hostile && !check_random_below(r, 4) ? (uint32_t)check_random_next(r) : (uint32_t)check_random_below(r, 60);
}

static uint64_t take_old(struct generator *g) {
	if (!g->live_count || !check_random_below(&g->random, 8)) return any_address(g);
	size_t i = check_random_below(&g->random, 3) ? g->live_count - 1 : check_random_below(&g->random, g->live_count);
	uint64_t address = g->live[i];
	if (check_random_below(&g->random, g->hostile ? 4 : 1000)) g->live[i] = g->live[--g->live_count];
	return address;
}

static uint64_t give_new(struct generator *g, uint64_t address) {
	if (g->live_count < LIVE_MAX) g->live[g->live_count++] = address;
	else g->live[check_random_below(&g->random, LIVE_MAX)] = address;
	return address;
}

static void make_event(struct generator *g, struct tm_event *e) {
	struct check_random *r = &g->random;
	uint64_t pause = g->hostile ? check_random_any(r) >> 8 : check_random_below(r, 200);
	g->now_ns += g->now_ns + pause < g->now_ns ? 0 : pause;
	*e = (struct tm_event){ .time_ns = g->now_ns, .begin_ns = g->now_ns, .usable = TM_USABLE_UNKNOWN };
	e->op = check_random_below(r, 3) ? (check_random_below(r, 2) ? TM_OP_MALLOC : TM_OP_FREE) : ops[check_random_below(r, sizeof ops)];
	unsigned class = TM_OP_CLASS(e->op);
	bool gives_back = class == TM_CLASS_FREE || class == TM_CLASS_REALLOC || class == TM_CLASS_UNMAP || class == TM_CLASS_REMAP;
	bool gives_new = class != TM_CLASS_FREE && class != TM_CLASS_UNMAP && class != TM_CLASS_TEXT;
	if (class == TM_CLASS_TEXT) {
		e->text = any_id(g);
		if (!TM_OP_IS_SCOPE(e->op)) return;
		e->addr = any_size(g);
		e->old = check_random_any(r);
		e->heap = any_id(g);
		return;
	}
	e->heap = check_random_below(r, 20) ? 0 : any_id(g);
	if (gives_back) e->old = take_old(g);
	if (class == TM_CLASS_UNMAP || class == TM_CLASS_REMAP) e->old_size = any_size(g);
	if (gives_back && class != TM_CLASS_FREE) e->begin_ns -= check_random_below(r, 100) % (g->now_ns + 1);
	if (!gives_new) return;
	e->stack = any_id(g);
	e->size = any_size(g);
	e->addr = gives_back && check_random_below(r, 2) ? give_new(g, e->old) : give_new(g, any_address(g));
	if (class == TM_CLASS_ALLOC || class == TM_CLASS_REALLOC) e->usable = any_usable(g, e->size);
}

static void damage_and_decode(struct check_random *r, struct tm_bytes *b) {
	struct tm_segment segment;
	bool used_up;
	for (int i = 0; i < 20; i++) {
		size_t at = check_random_below(r, check_random_below(r, 2) ? b->size : b->size < 60 ? b->size : 60);
		uint8_t before = b->data[at];
		b->data[at] = check_random_below(r, 2) ? (uint8_t)(before ^ (1u << check_random_below(r, 8)))
						       : (uint8_t)check_random_next(r);
		int status = decode_copy(b->data, b->size, &segment, &used_up);
		CHECK(status == 0 || status == -1);
		CHECK(segment.count <= b->size);
		if (check_random_below(r, 3)) b->data[at] = before;
	}
}

static void test_random_arrays(void) {
	struct generator g = { .random = check_random_start("events") };
	struct tm_event *events = malloc(3000 * sizeof *events);
	struct tm_bytes out = TM_BYTES_INIT;
	for (int round = 0; round < 4000; round++) {
		size_t n = round < 100 ? (size_t)round % 3 : check_random_below(&g.random, round % 50 ? 120 : 3000);
		g.hostile = round % 2;
		g.live_count = 0;
		g.now_ns = g.hostile ? check_random_any(&g.random) : 1000;
		uint64_t base_ns = g.now_ns, thread = check_random_any(&g.random);
		for (size_t i = 0; i < n; i++) make_event(&g, &events[i]);
		check_round_trip(thread, base_ns, events, n, &out);
		damage_and_decode(&g.random, &out);
	}
	tm_bytes_release(&out);
	free(events);
}

static void test_random_bytes(void) {
	struct check_random r = check_random_start("events, bytes");
	uint8_t bytes[200];
	struct tm_segment segment;
	bool used_up;
	for (int round = 0; round < 20000; round++) {
		size_t n = check_random_below(&r, sizeof bytes);
		for (size_t i = 0; i < n; i++)
			bytes[i] = (uint8_t)(check_random_below(&r, 3) ? check_random_below(&r, 8) : check_random_next(&r));
		int status = decode_copy(bytes, n, &segment, &used_up);
		CHECK(status == 0 || status == -1);
	}
}

/* Many blocks at once make the encoder's address table grow; a small segment after it uses a part of the grown table. */
static void test_large_segments(void) {
	enum { BLOCKS = 200000 };
	struct tm_event *events = calloc(2 * BLOCKS, sizeof *events);
	struct tm_bytes out = TM_BYTES_INIT;
	for (uint64_t i = 0; i < BLOCKS; i++) {
		uint64_t other = (i * 7919) % BLOCKS;
		events[i] = (struct tm_event){ .op = TM_OP_MALLOC,
					       .time_ns = i,
					       .begin_ns = i,
					       .addr = 0x10000 + 48 * i,
					       .size = 40,
					       .usable = 40,
					       .stack = (uint32_t)(i % 5000) };
		events[BLOCKS + i] = (struct tm_event){ .op = TM_OP_FREE,
							.time_ns = BLOCKS + i,
							.begin_ns = BLOCKS + i,
							.old = 0x10000 + 48 * other,
							.usable = TM_USABLE_UNKNOWN };
	}
	check_round_trip(1, 0, events, 2 * BLOCKS, &out);
	test_one_of_each_class();
	check_round_trip(1, 0, events, 2 * BLOCKS, &out);
	/* No free may have been coded as that of a stranger, which takes the place of a second varint. */
	struct tm_cursor c = tm_cursor_over(out.data, out.size);
	for (int i = 0; i < 3; i++) tm_get_varint(&c);
	for (int i = 0; i < OLD; i++) tm_get_block(&c);
	struct tm_cursor old = tm_get_block(&c);
	size_t codes = 0, strangers = 0;
	for (; old.p < old.end; codes++) strangers += tm_get_varint(&old) == 0;
	CHECK(codes == BLOCKS && strangers == 0);
	tm_bytes_release(&out);
	free(events);
}

static void test_too_many_events(void) {
	struct tm_event *events = calloc((size_t)TM_SEGMENT_EVENTS_MAX + 1, sizeof *events);
	struct tm_bytes out = TM_BYTES_INIT;
	if (!CHECK(events != NULL)) return;
	tm_encode_segment(encoder, &out, 1, 0, events, (size_t)TM_SEGMENT_EVENTS_MAX + 1);
	CHECK(out.failed && out.size == 0);
	free(events);
	/* A segment that says so itself, its op column complete: refused before anything is allocated for it. */
	tm_bytes_clear(&out);
	tm_put_varint(&out, 1);
	tm_put_varint(&out, 0);
	tm_put_varint(&out, TM_SEGMENT_EVENTS_MAX + 1);
	tm_put_varint(&out, TM_SEGMENT_EVENTS_MAX + 1);
	CHECK(tm_bytes_reserve(&out, TM_SEGMENT_EVENTS_MAX + 1));
	memset(out.data + out.size, TM_OP_MARK, TM_SEGMENT_EVENTS_MAX + 1);
	out.size += TM_SEGMENT_EVENTS_MAX + 1;
	for (int i = 1; i < 11; i++) tm_put_varint(&out, 0);
	struct tm_cursor c = tm_cursor_over(out.data, out.size);
	struct tm_segment segment;
	CHECK(tm_decode_segment(decoder, &c, &segment) == -1 && c.bad);
	tm_bytes_release(&out);
}

static void test_out_of_memory(void) {
#if FAIL_ALLOC_WORKS
	enum { COUNT = 4000 };
	struct tm_event *events = calloc(COUNT, sizeof *events);
	for (uint64_t i = 0; i < COUNT; i++) events[i] = (struct tm_event){ .addr = 0x10000 + 48 * i, .size = 40, .usable = 40 };
	bool done = false;
	unsigned long n = 1;
	for (; !done && n < 1000; n++) {
		struct tm_bytes out = TM_BYTES_INIT;
		struct tm_segment segment = { 0 };
		int status = -2;
		fail_alloc_at(n);
		struct tm_encoder *e = tm_encoder_new();
		struct tm_decoder *d = tm_decoder_new();
		if (e) tm_encode_segment(e, &out, 1, 0, events, COUNT);
		else out.failed = true;
		struct tm_cursor c = tm_cursor_over(out.data, out.failed ? 0 : out.size);
		if (d && !out.failed) status = tm_decode_segment(d, &c, &segment);
		done = fail_alloc_countdown > 0;
		fail_alloc_at(0);
		CHECK(done ? !out.failed && status == 0 && segment.count == COUNT : out.failed || status == -2);
		/* After the failure both work again. */
		if (e) {
			tm_bytes_clear(&out);
			tm_encode_segment(e, &out, 1, 0, events, COUNT);
			CHECK(!out.failed);
			c = tm_cursor_over(out.data, out.size);
			if (d) CHECK(tm_decode_segment(d, &c, &segment) == 0 && segment.count == COUNT);
		}
		tm_encoder_free(e);
		tm_decoder_free(d);
		tm_bytes_release(&out);
	}
	CHECK(done && n > 10);
	free(events);
#endif
}

int main(void) {
	encoder = tm_encoder_new();
	decoder = tm_decoder_new();
	if (!encoder || !decoder) return 1;
	test_one_of_each_class();
	test_segments_are_independent();
	test_no_events_and_absent_columns();
	test_old_counts_blocks();
	test_free_stack_drops_the_oldest();
	test_size_classes();
	test_usable_default();
	test_header();
	test_damage_on_purpose();
	test_cuts_of_a_valid_segment();
	test_random_arrays();
	test_random_bytes();
	test_large_segments();
	test_too_many_events();
	test_out_of_memory();
	tm_encoder_free(encoder);
	tm_decoder_free(decoder);
	return check_report("events");
}
