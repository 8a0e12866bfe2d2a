/* flight_scopes.c - plays scopes that dropped events have opened, for test_instructions.py to count what that takes.
 *
 *     flight_scopes STORY COUNT
 *
 * Method: each story keeps COUNT of something: scopes that are never ended, or only when all are open, and threads and processes that have had one.
 */
#include "../../recorder/collector/flight_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tm_flight_set *set;
static uint64_t now_ns;

static void play(uint32_t id, uint8_t op, uint64_t key, uint64_t link, uint32_t category) {
	struct tm_event e = { .op = op, .time_ns = ++now_ns, .begin_ns = now_ns, .addr = key, .old = link, .heap = category };
	tm_flight_set_add(set, id, id, &e, 1);
	tm_flight_set_advance(set, now_ns + 1);
}

static void block(uint32_t id) {
	play(id, TM_OP_SCOPE_BLOCK, 0x7fff0000, 0x7fff1000, 1);
	play(id, TM_OP_SCOPE_END, 0x7fff0000, 0, 1);
}

static void ranges(uint32_t n) {
	for (uint32_t i = 1; i <= n; i++) play(1, TM_OP_SCOPE_RANGE, i, 0, 1);
	for (uint32_t i = 1; i <= n; i++) play(1, TM_OP_SCOPE_END, i, 0, 1);
}

static void blocks_inside(uint32_t n) {
	for (uint32_t i = 1; i <= n; i++) {
		play(1, TM_OP_SCOPE_RANGE, i, 0, 1);
		play(1, TM_OP_SCOPE_PUSH, 0, 0, 1);
		block(1);
		play(1, TM_OP_SCOPE_END, 0, 0, 2);
	}
}

static void categories(uint32_t n) {
	for (uint32_t i = 1; i <= n; i++) play(1, TM_OP_SCOPE_PUSH, 0, TM_PUSH_APART, i);
	for (uint32_t i = 1; i <= n; i++) play(1, TM_OP_SCOPE_END, 0, 0, i);
}

static void threads(uint32_t n) {
	for (uint32_t i = 1; i <= n; i++) {
		struct tm_event e = { .op = TM_OP_SCOPE_RANGE, .time_ns = ++now_ns, .begin_ns = now_ns, .addr = i };
		tm_flight_set_add(set, 1, i, &e, 1);
		tm_flight_set_advance(set, now_ns + 1);
		tm_flight_set_end_thread(set, i);
	}
}

static void processes(uint32_t n) {
	for (uint32_t i = 1; i <= n; i++) {
		block(i);
		tm_flight_set_end_process(set, i);
	}
}

int main(int argc, char **argv) {
	static const struct {
		const char *name;
		void (*play)(uint32_t n);
	} stories[] = { { "ranges", ranges },
			{ "blocks_inside", blocks_inside },
			{ "categories", categories },
			{ "threads", threads },
			{ "processes", processes } };
	set = tm_flight_set_new(1u << 20);
	for (size_t i = 0; argc == 3 && i < sizeof stories / sizeof stories[0]; i++) {
		if (strcmp(argv[1], stories[i].name) != 0) continue;
		stories[i].play((uint32_t)atoi(argv[2]));
		tm_flight_set_free(set);
		return 0;
	}
	fprintf(stderr, "usage: flight_scopes STORY COUNT\n");
	return 2;
}
