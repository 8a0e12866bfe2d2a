/* test_records.c - the records of META, NAMES and END chunks, and STACKS payloads.
 *
 * Goal:    every record has the fields of format.md section 3 in that order; a reader skips what a later version appends and refuses what
 *          is short.
 * Method:  one byte sequence a record, written out by hand from the page, compared with the writer's output and given to the reader;
 *          each is then cut at every byte and lengthened. STACKS: by hand, at random, and with each of its rules broken.
 */
#include "../../schema/activity.h"
#include "../../schema/records.h"
#include "check.h"
#include "fail_alloc.h"

static struct tm_bytes payload;

/* Compares what was written with the bytes by hand, hands out the body and starts the next record. */
static struct tm_cursor check_record(const void *expected, size_t n, uint64_t expected_tag) {
	static uint8_t copy[512];
	struct tm_cursor body = { 0 };
	uint64_t tag = 0;
	CHECK(!payload.failed);
	CHECK_BYTES(payload.data, payload.size, expected, n);
	tm_bytes_clear(&payload);
	memcpy(copy, expected, n);
	struct tm_cursor c = tm_cursor_over(copy, n);
	CHECK(tm_record_next(&c, &tag, &body));
	CHECK(tag == expected_tag && !body.bad);
	CHECK(!tm_record_next(&c, &tag, &body) && !c.bad);
	return (struct tm_cursor){ body.p, body.end, false };
}

#define EXPECT(tag, ...) \
	static const uint8_t expected[] = { __VA_ARGS__ }; \
	struct tm_cursor body = check_record(expected, sizeof expected, tag)

#define CHECK_TEXT(text, literal) CHECK_BYTES((text).data, (text).size, literal, sizeof literal - 1)

/* After a record's reader: the body was exactly used up; longer is fine; every shorter one is bad. */
#define CHECK_ENDS(get) \
	do { \
		CHECK(!body.bad && body.p == body.end); \
		size_t size_ = sizeof expected - 2; \
		uint8_t longer_[512] = { 0 }; \
		memcpy(longer_, expected + 2, size_); \
		struct tm_cursor c_ = tm_cursor_over(longer_, size_ + 7); \
		(void)get(&c_); \
		CHECK(!c_.bad); \
		for (size_t cut_ = 0; cut_ < size_; cut_++) { \
			uint8_t *shorter_ = malloc(cut_ + 1); \
			memcpy(shorter_, longer_, cut_); \
			c_ = tm_cursor_over(shorter_, cut_); \
			(void)get(&c_); \
			CHECK(c_.bad); \
			free(shorter_); \
		} \
	} while (0)

static void test_info_and_string(void) {
	tm_put_info(&payload, tm_text_of("clock"), tm_text_of("tsc"));
	{
		EXPECT(1, 1, 10, 5, 'c', 'l', 'o', 'c', 'k', 3, 't', 's', 'c');
		struct tm_info r = tm_get_info(&body);
		CHECK_TEXT(r.key, "clock");
		CHECK_TEXT(r.value, "tsc");
		CHECK_ENDS(tm_get_info);
	}
	tm_put_string_record(&payload, 300, tm_text_of("ab"));
	{
		EXPECT(2, 2, 5, 0xac, 0x02, 2, 'a', 'b');
		struct tm_string r = tm_get_string_record(&body);
		CHECK(r.id == 300);
		CHECK_TEXT(r.bytes, "ab");
		CHECK_ENDS(tm_get_string_record);
	}
}

static void test_process_records(void) {
	tm_put_process_start(&payload, &(struct tm_process_start){ .id = 2,
								   .pid = 1000,
								   .parent_id = 1,
								   .start_ns = 5,
								   .flags = TM_PROCESS_FORKED,
								   .rank = 0,
								   .local_rank = -1,
								   .world_size = 128,
								   .exe = tm_text_of("/x"),
								   .command = { "x\0-y", 4 },
								   .host = tm_text_of("") });
	{
		EXPECT(3, 3, 19, 2, 0xe8, 0x07, 1, 5, 1, 1, 0, 0x81, 0x01, 2, '/', 'x', 4, 'x', 0, '-', 'y', 0);
		struct tm_process_start r = tm_get_process_start(&body);
		CHECK(r.id == 2 && r.pid == 1000 && r.parent_id == 1 && r.start_ns == 5 && r.flags == TM_PROCESS_FORKED);
		CHECK(r.rank == 0 && r.local_rank == -1 && r.world_size == 128);
		CHECK_TEXT(r.exe, "/x");
		CHECK_TEXT(r.command, "x\0-y");
		CHECK_TEXT(r.host, "");
		CHECK_ENDS(tm_get_process_start);
	}
	tm_put_process_exit(&payload, &(struct tm_process_exit){ .process = 2, .ns = 400 });
	{
		EXPECT(4, 4, 3, 2, 0x90, 0x03);
		struct tm_process_exit r = tm_get_process_exit(&body);
		CHECK(r.process == 2 && r.ns == 400);
		CHECK_ENDS(tm_get_process_exit);
	}
	tm_put_process_end(&payload, &(struct tm_process_end){ .process = 2, .ns = 401, .kind = TM_END_SIGNAL, .code = 9 });
	{
		EXPECT(5, 5, 5, 2, 0x91, 0x03, 2, 9);
		struct tm_process_end r = tm_get_process_end(&body);
		CHECK(r.process == 2 && r.ns == 401 && r.kind == TM_END_SIGNAL && r.code == 9);
		CHECK_ENDS(tm_get_process_end);
	}
}

static void test_thread_records(void) {
	tm_put_thread_start(&payload, &(struct tm_thread_start){ .id = 3, .process = 2, .tid = 1001, .start_ns = 6 });
	{
		EXPECT(6, 6, 5, 3, 2, 0xe9, 0x07, 6);
		struct tm_thread_start r = tm_get_thread_start(&body);
		CHECK(r.id == 3 && r.process == 2 && r.tid == 1001 && r.start_ns == 6);
		CHECK_ENDS(tm_get_thread_start);
	}
	tm_put_thread_end(&payload, &(struct tm_thread_end){ .thread = 3, .ns = 7 });
	{
		EXPECT(7, 7, 2, 3, 7);
		struct tm_thread_end r = tm_get_thread_end(&body);
		CHECK(r.thread == 3 && r.ns == 7);
		CHECK_ENDS(tm_get_thread_end);
	}
	tm_put_thread_name(&payload, &(struct tm_thread_name){ .thread = 3, .name = tm_text_of("worker") });
	{
		EXPECT(8, 8, 8, 3, 6, 'w', 'o', 'r', 'k', 'e', 'r');
		struct tm_thread_name r = tm_get_thread_name(&body);
		CHECK(r.thread == 3);
		CHECK_TEXT(r.name, "worker");
		CHECK_ENDS(tm_get_thread_name);
	}
}

static void test_module_and_heap_records(void) {
	tm_put_module_load(&payload, &(struct tm_module_load){ .id = 1,
							       .process = 2,
							       .bias = 0x1000,
							       .low = 0x1040,
							       .size_bytes = 256,
							       .ns = 8,
							       .path = tm_text_of("/l"),
							       .build_id = { "\xff\x00", 2 } });
	{
		EXPECT(9, 9, 15, 1, 2, 0x80, 0x20, 0xc0, 0x20, 0x80, 0x02, 8, 2, '/', 'l', 2, 0xff, 0x00);
		struct tm_module_load r = tm_get_module_load(&body);
		CHECK(r.id == 1 && r.process == 2 && r.bias == 0x1000 && r.low == 0x1040 && r.size_bytes == 256 && r.ns == 8);
		CHECK_TEXT(r.path, "/l");
		CHECK_TEXT(r.build_id, "\xff\x00");
		CHECK_ENDS(tm_get_module_load);
	}
	tm_put_module_unload(&payload, &(struct tm_module_unload){ .module = 1, .ns = 9 });
	{
		EXPECT(10, 10, 2, 1, 9);
		struct tm_module_unload r = tm_get_module_unload(&body);
		CHECK(r.module == 1 && r.ns == 9);
		CHECK_ENDS(tm_get_module_unload);
	}
	tm_put_heap(
		&payload,
		&(struct tm_heap){ .id = 4, .process = 2, .parent = 3, .device = 0, .name = tm_text_of("p"), .kind = tm_text_of("host") });
	{
		EXPECT(11, 11, 11, 4, 2, 3, 1, 1, 'p', 4, 'h', 'o', 's', 't');
		struct tm_heap r = tm_get_heap(&body);
		CHECK(r.id == 4 && r.process == 2 && r.parent == 3 && r.device == 0);
		CHECK_TEXT(r.name, "p");
		CHECK_TEXT(r.kind, "host");
		CHECK_ENDS(tm_get_heap);
	}
	tm_put_frame_module(&payload, &(struct tm_frame_module){ .frame = 128, .module = 1 });
	{
		EXPECT(12, 12, 3, 0x80, 0x01, 1);
		struct tm_frame_module r = tm_get_frame_module(&body);
		CHECK(r.frame == 128 && r.module == 1);
		CHECK_ENDS(tm_get_frame_module);
	}
}

static void test_samples(void) {
	struct tm_sample values[] = { { tm_text_of("rss"), 4096 }, { tm_text_of("pss"), 0 } }, got;
	tm_put_samples(&payload, 2, 100, values, 2);
	EXPECT(13, 13, 13, 2, 100, 3, 'r', 's', 's', 0x80, 0x20, 3, 'p', 's', 's', 0);
	struct tm_samples r = tm_get_samples(&body);
	CHECK(r.process == 2 && r.ns == 100 && !body.bad && body.p == body.end);
	CHECK(tm_sample_next(&r.values, &got));
	CHECK_TEXT(got.name, "rss");
	CHECK(got.value == 4096);
	CHECK(tm_sample_next(&r.values, &got));
	CHECK_TEXT(got.name, "pss");
	CHECK(got.value == 0);
	CHECK(!tm_sample_next(&r.values, &got) && !r.values.bad);

	struct tm_cursor cut = tm_cursor_over(expected + 2, sizeof expected - 3);
	r = tm_get_samples(&cut);
	CHECK(tm_sample_next(&r.values, &got));
	CHECK(!tm_sample_next(&r.values, &got) && r.values.bad);
	CHECK(!tm_sample_next(&r.values, &got));
	cut = tm_cursor_over(expected + 2, 1);
	r = tm_get_samples(&cut);
	CHECK(cut.bad && r.values.bad && !tm_sample_next(&r.values, &got));
}

static void test_mark_note_loss_alert(void) {
	tm_put_mark(&payload, &(struct tm_mark){ .process = 2, .thread = 3, .ns = 10, .name = tm_text_of("m") });
	{
		EXPECT(14, 14, 5, 2, 3, 10, 1, 'm');
		struct tm_mark r = tm_get_mark(&body);
		CHECK(r.process == 2 && r.thread == 3 && r.ns == 10);
		CHECK_TEXT(r.name, "m");
		CHECK_ENDS(tm_get_mark);
	}
	tm_put_note(&payload, &(struct tm_note){ .process = 2, .ns = 11, .kind = tm_text_of("k"), .text = tm_text_of("to") });
	{
		EXPECT(15, 15, 7, 2, 11, 1, 'k', 2, 't', 'o');
		struct tm_note r = tm_get_note(&body);
		CHECK(r.process == 2 && r.ns == 11);
		CHECK_TEXT(r.kind, "k");
		CHECK_TEXT(r.text, "to");
		CHECK_ENDS(tm_get_note);
	}
	tm_put_loss(&payload, &(struct tm_loss){ .process = 2,
						 .thread = 3,
						 .ns = 12,
						 .kind = tm_text_of("k"),
						 .count = 200,
						 .bytes = 3,
						 .reason = tm_text_of("r") });
	{
		EXPECT(16, 16, 10, 2, 3, 12, 1, 'k', 0xc8, 0x01, 3, 1, 'r');
		struct tm_loss r = tm_get_loss(&body);
		CHECK(r.process == 2 && r.thread == 3 && r.ns == 12 && r.count == 200 && r.bytes == 3);
		CHECK_TEXT(r.kind, "k");
		CHECK_TEXT(r.reason, "r");
		CHECK_ENDS(tm_get_loss);
	}
	tm_put_alert(&payload, &(struct tm_alert){ .process = 2, .ns = 13, .rule = tm_text_of("r>1"), .value = UINT64_MAX });
	{
		EXPECT(17, 17, 16, 2, 13, 3, 'r', '>', '1', 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01);
		struct tm_alert r = tm_get_alert(&body);
		CHECK(r.process == 2 && r.ns == 13 && r.value == UINT64_MAX);
		CHECK_TEXT(r.rule, "r>1");
		CHECK_ENDS(tm_get_alert);
	}
}

static void test_name(void) {
	struct tm_function functions[] = { { 1, 2, 30 }, { 4, 0, 0 } }, got;
	tm_put_name(&payload, 129, functions, 2);
	EXPECT(18, 18, 8, 0x81, 0x01, 1, 2, 30, 4, 0, 0);
	struct tm_name r = tm_get_name(&body);
	CHECK(r.frame == 129 && !body.bad);
	CHECK(tm_function_next(&r.functions, &got) && got.function == 1 && got.file == 2 && got.line == 30);
	CHECK(tm_function_next(&r.functions, &got) && got.function == 4 && got.file == 0 && got.line == 0);
	CHECK(!tm_function_next(&r.functions, &got) && !r.functions.bad);
	struct tm_cursor cut = tm_cursor_over(expected + 2, sizeof expected - 3);
	r = tm_get_name(&cut);
	CHECK(tm_function_next(&r.functions, &got));
	CHECK(!tm_function_next(&r.functions, &got) && r.functions.bad);
}

static void test_watermark_and_totals(void) {
	tm_put_watermark(&payload, 1000);
	{
		EXPECT(19, 19, 2, 0xe8, 0x07);
		CHECK(tm_get_watermark(&body) == 1000);
		CHECK_ENDS(tm_get_watermark);
	}
	tm_put_totals(&payload, &(struct tm_totals){ .events = 128, .chunks = 6, .end_ns = 99 });
	{
		EXPECT(20, 20, 4, 0x80, 0x01, 6, 99);
		struct tm_totals r = tm_get_totals(&body);
		CHECK(r.events == 128 && r.chunks == 6 && r.end_ns == 99);
		CHECK_ENDS(tm_get_totals);
	}
}

static void test_pool_state(void) {
	tm_put_pool_state(&payload, &(struct tm_pool_state){ .heap = 3, .ns = 5, .allocated = 0, .reserved = 200, .active = -1, .inactive = 6 });
	EXPECT(21, 21, 7, 3, 5, 1, 0xc9, 0x01, 0, 7);
	struct tm_pool_state r = tm_get_pool_state(&body);
	CHECK(r.heap == 3 && r.ns == 5 && r.allocated == 0 && r.reserved == 200 && r.active == -1 && r.inactive == 6);
	CHECK_ENDS(tm_get_pool_state);
}

static void test_oom_and_device(void) {
	tm_put_oom(&payload, &(struct tm_oom){ .id = 1, .process = 2, .heap = 3, .size_bytes = 200, .result = tm_text_of("no"),
					    .free_bytes = 0, .total_bytes = -1 });
	{
		EXPECT(22, 22, 10, 1, 2, 3, 0xc8, 0x01, 2, 'n', 'o', 1, 0);
		struct tm_oom r = tm_get_oom(&body);
		CHECK(r.id == 1 && r.process == 2 && r.heap == 3 && r.size_bytes == 200 && r.free_bytes == 0 && r.total_bytes == -1);
		CHECK_TEXT(r.result, "no");
		CHECK_ENDS(tm_get_oom);
	}
	tm_put_device(&payload, &(struct tm_device){ .process = 2, .device = 0, .total_bytes = 6, .uuid = tm_text_of("u"), .name = tm_text_of("gpu") });
	{
		EXPECT(23, 23, 9, 2, 0, 7, 1, 'u', 3, 'g', 'p', 'u');
		struct tm_device r = tm_get_device(&body);
		CHECK(r.process == 2 && r.device == 0 && r.total_bytes == 6);
		CHECK_TEXT(r.uuid, "u");
		CHECK_TEXT(r.name, "gpu");
		CHECK_ENDS(tm_get_device);
	}
}

static int parse_activities(const uint8_t *data, size_t n, struct tm_activities *out) {
	struct tm_cursor c = tm_cursor_over(data, n);
	return tm_get_activities(&c, out);
}

/* By hand from format.md section 6; cut at every byte and made longer; a column too long; a number out of bounds. */
static void test_activities(void) {
	static const struct tm_activity two[] = {
		{ .start_ns = 1300, .end_ns = 1900, .size_bytes = UINT64_MAX, .stream = 7, .correlation = 7, .name = 11, .device = 0,
		  .kind = TM_ACTIVITY_KERNEL },
		{ .start_ns = 1299, .end_ns = 1299, .size_bytes = 4096, .stream = UINT64_MAX, .correlation = 8, .name = 0, .device = -1,
		  .kind = TM_ACTIVITY_MEMCPY, .direction = TM_DIRECTION_D2H },
	};
	static const uint8_t by_hand[] = { 1, 2, /* process, n */
					   2, 0x01, 0x22, 2, 11, 0, 2, 1, 0, 2, 8, 0, /* kind name device stream */
					   3, 0xa8, 0x14, 1, 3, 0xd8, 0x04, 0, 3, 0, 0x81, 0x20, 0, 2, 14, 2 }; /* start duration size address correlation */
	struct tm_activities a;
	tm_put_activities(&payload, 1, two, 2);
	CHECK_BYTES(payload.data, payload.size, by_hand, sizeof by_hand);
	tm_bytes_clear(&payload);
	CHECK(parse_activities(by_hand, sizeof by_hand, &a) == 0 && a.process == 1 && a.count == 2);
	for (size_t i = 0; i < a.count; i++) {
		const struct tm_activity *x = &a.all[i], *y = &two[i];
		CHECK(x->start_ns == y->start_ns && x->end_ns == y->end_ns && x->size_bytes == y->size_bytes && x->stream == y->stream);
		CHECK(x->correlation == y->correlation && x->name == y->name && x->device == y->device && x->kind == y->kind);
		CHECK(x->direction == y->direction && x->address == y->address);
	}
	tm_activities_release(&a);
	for (size_t n = 0; n < sizeof by_hand; n++) {
		CHECK(parse_activities(by_hand, n, &a) == -1);
		tm_activities_release(&a);
	}
	static const uint8_t longer[] = { 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9 }, column[] = { 1, 1, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0 };
	static const uint8_t many[] = { 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0 }, kind[] = { 1, 1, 2, 0x80, 2, 0, 0, 0, 0, 0, 0, 0, 0 };
	CHECK(parse_activities(longer, sizeof longer, &a) == -1);
	tm_activities_release(&a);
	CHECK(parse_activities(column, sizeof column, &a) == -1);
	tm_activities_release(&a);
	CHECK(parse_activities(many, sizeof many, &a) == -1);
	tm_activities_release(&a);
	CHECK(parse_activities(kind, sizeof kind, &a) == -1);
	tm_activities_release(&a);
}

/* A body of 128 bytes and more has a length of two bytes; several records follow each other; an unknown tag is skipped by its length. */
static void test_sequences(void) {
	static char long_text[1000];
	uint64_t tag;
	struct tm_cursor body;
	memset(long_text, 'x', sizeof long_text);
	for (size_t n = 120; n < 135; n++) tm_put_note(&payload, &(struct tm_note){ .process = 1, .ns = n, .text = { long_text, n } });
	tm_put_raw(&payload, "\x63\x02zz", 4);
	tm_put_note(&payload, &(struct tm_note){ .process = 1, .ns = 7, .text = { long_text, sizeof long_text } });
	struct tm_cursor c = tm_cursor_over(payload.data, payload.size);
	for (size_t n = 120; n < 135; n++) {
		CHECK(tm_record_next(&c, &tag, &body) && tag == TM_RECORD_NOTE);
		struct tm_note r = tm_get_note(&body);
		CHECK(r.ns == n && r.text.size == n && !body.bad && body.p == body.end);
	}
	CHECK(tm_record_next(&c, &tag, &body) && tag == 0x63 && body.end - body.p == 2);
	CHECK(tm_record_next(&c, &tag, &body) && tm_get_note(&body).text.size == sizeof long_text);
	CHECK(!tm_record_next(&c, &tag, &body) && !c.bad);

	c = tm_cursor_over(payload.data, payload.size - 1);
	while (tm_record_next(&c, &tag, &body)) continue;
	CHECK(c.bad);
	CHECK(!tm_record_next(&c, &tag, &body));
	tm_bytes_clear(&payload);
}

static void test_unknown_numbers(void) {
	static const uint8_t too_large[] = { 1, 1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0, 0 };
	struct tm_cursor c = tm_cursor_over(too_large, sizeof too_large);
	tm_get_heap(&c);
	CHECK(c.bad);
	tm_put_heap(&payload, &(struct tm_heap){ .device = INT64_MAX });
	c = tm_cursor_over(payload.data + 2, payload.size - 2);
	CHECK(tm_get_heap(&c).device == INT64_MAX && !c.bad);
	tm_bytes_clear(&payload);
	tm_put_heap(&payload, &(struct tm_heap){ .device = -5 });
	c = tm_cursor_over(payload.data + 2, payload.size - 2);
	CHECK(tm_get_heap(&c).device == -1 && !c.bad);
	tm_bytes_clear(&payload);
}

/* ---- STACKS ---- */

/* Frames 10 and 11, nodes 20 to 22: 20 is outermost, 21 lies inside it, 22 inside node 5 of an earlier chunk. */
/* clang-format off */
static const uint8_t stacks_by_hand[] = {
	10, 2,                     /* frames from 10, two */
	1, 1, 2, 0x80, 0x40,       /* native, process 1, module 2, +0x1000: zigzag 0x2000 */
	2, 1, 0, 0xff, 0x3f,       /* python, process 1, module 0, -0x1000: zigzag 0x1fff */
	20, 3,                     /* nodes from 20, three */
	20, 1, 17,                 /* parents: 0, 20, 5 */
	20, 2, 1,                  /* frames: +10, +1, -1 */
};
/* clang-format on */

static void test_stacks_by_hand(void) {
	static const struct tm_frame frames[] = { { TM_FRAME_NATIVE, 1, 2, 0x1000 }, { TM_FRAME_PYTHON, 1, 0, 0 } };
	static const struct tm_node nodes[] = { { 0, 10 }, { 20, 11 }, { 5, 10 } };
	tm_put_stacks(&payload, 10, frames, 2, 20, nodes, 3);
	CHECK_BYTES(payload.data, payload.size, stacks_by_hand, sizeof stacks_by_hand);
	tm_bytes_clear(&payload);
	struct tm_cursor c = tm_cursor_over(stacks_by_hand, sizeof stacks_by_hand);
	struct tm_stacks s = { 0 };
	CHECK(tm_get_stacks(&c, &s) == 0 && !c.bad && c.p == c.end);
	CHECK(s.first_frame == 10 && s.frame_count == 2 && s.first_node == 20 && s.node_count == 3);
	CHECK_BYTES(s.frames, sizeof frames, frames, sizeof frames);
	CHECK_BYTES(s.nodes, sizeof nodes, nodes, sizeof nodes);
	tm_stacks_release(&s);
	CHECK(!s.frames && !s.nodes);
}

static int parse_stacks(const void *bytes, size_t n) {
	uint8_t *copy = malloc(n + 1);
	memcpy(copy, bytes, n);
	struct tm_cursor c = tm_cursor_over(copy, n);
	struct tm_stacks s = { 0 };
	int status = tm_get_stacks(&c, &s);
	CHECK(c.bad == (status == -1));
	tm_stacks_release(&s);
	free(copy);
	return status;
}

static void test_stacks_malformed(void) {
	uint8_t changed[sizeof stacks_by_hand + 1] = { 0 };
	for (size_t cut = 0; cut < sizeof stacks_by_hand; cut++) CHECK(parse_stacks(stacks_by_hand, cut) == -1);
	memcpy(changed, stacks_by_hand, sizeof stacks_by_hand);
	CHECK(parse_stacks(changed, sizeof changed) == -1); /* a byte left over */
#define CHECK_CHANGED(at, value) \
	memcpy(changed, stacks_by_hand, sizeof stacks_by_hand); \
	changed[at] = value; \
	CHECK(parse_stacks(changed, sizeof stacks_by_hand) == -1)
	CHECK_CHANGED(14, 21); /* a parent before 0 */
	CHECK_CHANGED(15, 0);  /* a node that is its own parent */
	CHECK_CHANGED(0, 0);   /* frame 0 */
	CHECK_CHANGED(12, 0);  /* node 0 */
	CHECK_CHANGED(1, 3);   /* more frames than there are */
	CHECK_CHANGED(13, 4);
	static const uint8_t enormous[] = { 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 0 };
	CHECK(parse_stacks(enormous, sizeof enormous) == -1);
	static const uint8_t wraps[] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 1, 0, 0, 0, 0, 1, 0 };
	CHECK(parse_stacks(wraps, sizeof wraps) == -1);
	static const uint8_t nothing[] = { 1, 0, 1, 0 };
	CHECK(parse_stacks(nothing, sizeof nothing) == 0);
}

static void test_stacks_at_random(void) {
	struct check_random r = check_random_start("records");
	for (int round = 0; round < 300; round++) {
		size_t frame_count = check_random_below(&r, 50), node_count = check_random_below(&r, 200);
		struct tm_frame *frames = calloc(frame_count + 1, sizeof *frames);
		struct tm_node *nodes = calloc(node_count + 1, sizeof *nodes);
		uint64_t first_frame = 1 + check_random_any(&r) / 2, first_node = 1 + check_random_any(&r) / 2;
		for (size_t i = 0; i < frame_count; i++)
			frames[i] = (struct tm_frame){ check_random_below(&r, 4), check_random_any(&r), check_random_any(&r),
						       check_random_any(&r) };
		for (size_t i = 0; i < node_count; i++)
			nodes[i] = (struct tm_node){ check_random_any(&r) % (first_node + i), check_random_any(&r) };
		tm_bytes_clear(&payload);
		tm_put_stacks(&payload, first_frame, frames, frame_count, first_node, nodes, node_count);
		struct tm_cursor c = tm_cursor_over(payload.data, payload.size);
		struct tm_stacks s = { 0 };
		CHECK(tm_get_stacks(&c, &s) == 0);
		CHECK(s.first_frame == first_frame && s.first_node == first_node);
		CHECK_BYTES(s.frames, s.frame_count * sizeof *frames, frames, frame_count * sizeof *frames);
		CHECK_BYTES(s.nodes, s.node_count * sizeof *nodes, nodes, node_count * sizeof *nodes);
		tm_stacks_release(&s);
		payload.data[check_random_below(&r, payload.size)] ^= (uint8_t)(1u << check_random_below(&r, 8));
		int status = parse_stacks(payload.data, payload.size);
		CHECK(status == 0 || status == -1);
		free(frames);
		free(nodes);
	}
	tm_bytes_clear(&payload);
}

static void test_out_of_memory(void) {
#if FAIL_ALLOC_WORKS
	for (unsigned long n = 1; n <= 2; n++) {
		struct tm_cursor c = tm_cursor_over(stacks_by_hand, sizeof stacks_by_hand);
		struct tm_stacks s = { 0 };
		fail_alloc_at(n);
		int status = tm_get_stacks(&c, &s);
		fail_alloc_at(0);
		CHECK(status == -2);
		tm_stacks_release(&s);
	}
	/* A buffer that could not grow in the middle of a record stays failed, whatever follows. */
	struct tm_bytes b = TM_BYTES_INIT;
	static char long_text[1000];
	fail_alloc_at(2);
	tm_put_note(&b, &(struct tm_note){ .text = { long_text, sizeof long_text } });
	fail_alloc_at(0);
	CHECK(b.failed);
	tm_put_watermark(&b, 1);
	CHECK(b.failed);
	tm_bytes_release(&b);
#endif
}

int main(void) {
	test_info_and_string();
	test_process_records();
	test_thread_records();
	test_module_and_heap_records();
	test_samples();
	test_mark_note_loss_alert();
	test_name();
	test_watermark_and_totals();
	test_pool_state();
	test_oom_and_device();
	test_activities();
	test_sequences();
	test_unknown_numbers();
	test_stacks_by_hand();
	test_stacks_malformed();
	test_stacks_at_random();
	test_out_of_memory();
	tm_bytes_release(&payload);
	return check_report("records");
}
