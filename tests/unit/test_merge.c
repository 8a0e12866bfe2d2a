/* test_merge.c - the order in which the events of all threads are handed out.
 *
 * Goal:    by time, as far as the watermark promises that none is missing; and where it stands still, not more is kept than is allowed: the least go first,
 *          and what comes late takes its turn when it comes.
 * Method:  short stories of batches; what is handed out after each is written down by hand as "thread:time", "=now" behind what came late.
 */
#include "../../analyzer/merge.h"
#include "check.h"

#define THREADS_MAX 4u
#define MANY 100000u

static struct tm_batch *new_batch(uint64_t watermark_ns) {
	struct tm_batch *b = calloc(1, sizeof *b);
	if (!b) abort();
	b->watermark_ns = watermark_ns;
	return b;
}

static void put(struct tm_batch *b, uint32_t thread, uint8_t kind, uint64_t ns) {
	struct tm_step *s = tm_array_push(&b->steps);
	struct tm_batch_segment *last = b->segments.count ? &b->segments.items[b->segments.count - 1] : NULL;
	if (!s) abort();
	*s = (struct tm_step){ .ns = ns, .kind = kind };
	if (last && last->thread == thread) {
		last->count++;
		return;
	}
	if (!(last = tm_array_push(&b->segments))) abort();
	*last = (struct tm_batch_segment){ .batch = b, .thread = thread, .first = b->steps.count - 1, .count = 1 };
	b->open_segments++;
}

/* "thread time time ..., thread time ...": allocations, frees where an f stands before the time, marks where an m does. */
static struct tm_batch *batch(uint64_t watermark_ns, const char *story) {
	struct tm_batch *b = new_batch(watermark_ns);
	uint32_t thread = 0;
	for (const char *p = story; *p;) {
		uint8_t kind = *p == 'f' ? TM_STEP_FREE : *p == 'm' ? TM_STEP_MARK : TM_STEP_ALLOC;
		char *end;
		uint64_t number = strtoull(p + (kind != TM_STEP_ALLOC), &end, 10);
		if (thread) put(b, thread, kind, number);
		else thread = (uint32_t)number;
		if (*end == ',') thread = 0;
		p = *end ? end + strspn(end, ", ") : end;
	}
	for (size_t i = 0; i < b->segments.count; i++) b->segments.items[i].batch = b;
	return b;
}

static void comes(struct tm_merge *m, const char *wanted, int line) {
	char text[1000] = "";
	size_t n = 0;
	struct tm_turn turn;
	while (tm_merge_next(m, &turn) && n < sizeof text - 100) {
		n += (size_t)sprintf(text + n, "%s%u:%llu", n ? " " : "", turn.thread, (unsigned long long)turn.step->ns);
		if (turn.ns != turn.step->ns) n += (size_t)sprintf(text + n, "=%llu", (unsigned long long)turn.ns);
		if (tm_merge_is_late(m, turn.step)) n += (size_t)sprintf(text + n, "!");
	}
	if (strcmp(text, wanted) != 0) printf("line %d: got '%s', expected '%s'\n", line, text, wanted);
	CHECK(strcmp(text, wanted) == 0);
}
#define COMES(wanted) comes(&m, wanted, __LINE__)

static void test_order(void) {
	struct tm_merge m;
	CHECK(tm_merge_init(&m, THREADS_MAX) == 0);
	CHECK(m.waiting_max == TM_MERGE_WAITING_MAX);
	tm_merge_add(&m, batch(10, "1 1 5 12, 2 3 f12 15"));
	COMES("1:1 2:3 1:5");
	tm_merge_add(&m, batch(14, "3 11"));
	COMES("3:11 2:12 1:12");
	m.hold_ns = 3;
	tm_merge_add(&m, batch(20, "3 16 17"));
	COMES("2:15 3:16");
	tm_merge_end(&m);
	COMES("3:17");
	CHECK(!m.waiting && !m.early_ns);
	tm_merge_release(&m);
}

/* Thread 1 stands still in an event that began at 11. */
static void test_too_many_wait(void) {
	struct tm_merge m;
	CHECK(tm_merge_init(&m, THREADS_MAX) == 0);
	m.waiting_max = 4;
	tm_merge_add(&m, batch(10, "2 11 13 15, 3 12"));
	COMES("");
	tm_merge_add(&m, batch(10, "3 14"));
	COMES("2:11");
	tm_merge_add(&m, batch(10, "2 17, 3 16 18"));
	COMES("3:12 2:13 3:14");
	CHECK(m.waiting == 4);
	/* It goes on; its free is told with the time that it had, and takes effect now. */
	tm_merge_add(&m, batch(30, "1 f11 16"));
	COMES("1:11=14! 2:15 1:16 3:16 2:17 3:18");
	/* From here on all is as usual. */
	tm_merge_add(&m, batch(40, "1 35 45, 2 30 41 42, 3 43 44"));
	COMES("2:30 1:35 2:41");
	tm_merge_add(&m, batch(50, ""));
	COMES("2:42 3:43 3:44 1:45");
	CHECK(!m.waiting);
	tm_merge_release(&m);
}

/* A mark looks at what is live when it is handed out. */
static void test_late_mark(void) {
	struct tm_merge m;
	CHECK(tm_merge_init(&m, THREADS_MAX) == 0);
	m.waiting_max = 1;
	tm_merge_add(&m, batch(10, "2 11 12 13"));
	COMES("2:11 2:12");
	tm_merge_add(&m, batch(20, "1 m11 m15"));
	COMES("1:12 2:13 1:15");
	tm_merge_release(&m);
}

/* Nothing is promised before a ring's window begins, nor what it holds of before kept from waiting. */
static void test_before_a_window(void) {
	struct tm_merge m;
	CHECK(tm_merge_init(&m, THREADS_MAX) == 0);
	m.waiting_max = 2;
	m.patience_ns = 5;
	tm_merge_add(&m, batch(0, "1 5 20 30, 2 25"));
	tm_merge_add(&m, batch(0, "2 35, 3 1 2"));
	COMES("");
	tm_merge_add(&m, batch(40, "3 50"));
	COMES("3:1 3:2 1:5 1:20 2:25 1:30 2:35");
	tm_merge_release(&m);
}

static void test_patience(void) {
	struct tm_merge m;
	CHECK(tm_merge_init(&m, THREADS_MAX) == 0);
	m.patience_ns = 100;
	tm_merge_add(&m, batch(10, "2 11 50 111"));
	COMES("");
	tm_merge_add(&m, batch(10, "3 112"));
	COMES("2:11");
	m.newest_ns = 1000;
	COMES("2:50 2:111 3:112");
	tm_merge_add(&m, batch(900, "1 20 700 1100"));
	COMES("1:20=112! 1:700");
	tm_merge_end(&m);
	COMES("1:1100");
	tm_merge_release(&m);
}

/* One event each: what is too much is found without looking at all of them again and again. */
static void test_many_threads(void) {
	struct tm_merge m;
	struct tm_turn turn;
	struct tm_batch *b = new_batch(1);
	uint64_t last_ns = 0, count = 0;
	CHECK(tm_merge_init(&m, MANY) == 0);
	m.waiting_max = 10;
	for (uint32_t i = 1; i <= MANY; i++) put(b, i, TM_STEP_ALLOC, 2 + (uint64_t)i * 7919 % 100003);
	for (size_t i = 0; i < b->segments.count; i++) b->segments.items[i].batch = b;
	tm_merge_add(&m, b);
	for (; tm_merge_next(&m, &turn); count++) {
		CHECK(turn.step->ns > last_ns && turn.ns == turn.step->ns);
		last_ns = turn.ns;
	}
	CHECK(count == MANY - 10 && m.waiting == 10);
	tm_merge_release(&m);
}

int main(void) {
	test_order();
	test_too_many_wait();
	test_late_mark();
	test_before_a_window();
	test_patience();
	test_many_threads();
	return check_report("test_merge");
}
