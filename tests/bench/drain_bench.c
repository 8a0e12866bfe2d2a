/* drain_bench.c - how many events a second the collector takes from a ring and writes: one processor drains, another encodes.
 *
 *     drain_bench [MILLIONS_OF_EVENTS]
 *
 * Method: records as the guest would write them (half allocations with an unchanged stack, half frees in random order) are copied into a
 *         ring; the processor time of the draining thread and of the whole process is measured, so that other load on the machine does
 *         not count. The trace goes to /tmp and is removed.
 */
#include "../../recorder/collector/collector.h"
#include "../../recorder/collector/drain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LIVE 4096u

static struct tm_collector c;
static uint64_t live[LIVE], seed = 88172645463325252u;

static uint64_t next_random(void) {
	seed ^= seed << 13;
	seed ^= seed >> 7;
	return seed ^= seed << 17;
}

static double seconds(clockid_t clock) {
	struct timespec now;
	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* One allocation into a slot whose block is freed first. */
static uint64_t *put_pair(uint64_t *w, uint64_t *ticks) {
	uint64_t slot = next_random() % LIVE, size = 16 + next_random() % 500;
	if (live[slot]) {
		*w++ = tm_ring_word(TM_OP_FREE, TM_RING_NO_STACK, TM_RING_FREE_WORDS, 0, TM_RING_USABLE_UNKNOWN);
		*w++ = *ticks += 10;
		*w++ = live[slot];
	}
	live[slot] = 0x7f0000000000u + slot * 1024 + (next_random() % 4) * 512;
	*w++ = tm_ring_word(TM_OP_MALLOC, 0, TM_RING_ALLOC_WORDS, 3, tm_ring_usable_word(size, size + 8));
	*w++ = *ticks += 20;
	*w++ = live[slot];
	*w++ = size;
	return w;
}

/* The announcement and the first event, with the stack that all later ones keep. */
static uint64_t *put_start(uint64_t *w, uint64_t ticks) {
	const uint64_t process[] = { tm_ring_word(TM_CTL_PROCESS, 0, 6, 0, 0), ticks, (uint64_t)getpid(), 1, 0, 0 };
	const uint64_t first[] = { tm_ring_word(TM_OP_MALLOC, 0, 7, 0, TM_RING_USABLE_UNKNOWN), ticks, 0x10000, 16, 0x401010, 0x401020, 0x401030 };
	memcpy(w, process, sizeof process);
	memcpy(w + 6, first, sizeof first);
	return w + 13;
}

static void start_collector(const char *path) {
	char error[256];
	char *arguments[] = { (char *)"drain_bench", (char *)"--interval=0", (char *)"--ring=1MiB", (char *)"true", NULL };
	tm_options_parse(&c.options, 4, arguments);
	tm_timebase_start(&c.timebase);
	if (tm_session_open(&c.session, &c.options, &c.timebase, error, sizeof error) != 0 ||
	    tm_writer_open(&c.writer, strdup(path), true) != 0)
		exit(1);
	tm_encoder_start(&c.encoder, &c.writer);
	tm_stack_tree_init(&c.stacks);
	if (tm_drain_start(&c) != 0) exit(1);
}

static struct tm_ring *claim_ring(void) {
	struct tm_ring *ring = tm_session_ring(&c.session, 0);
	ring->process = 1;
	ring->pid = ring->tid = (uint32_t)getpid();
	ring->thread = 1;
	ring->start_ticks = tm_timebase_ticks(&c.timebase);
	atomic_store(&ring->state, TM_RING_ACTIVE);
	atomic_store(&c.session.shm->rings_used, 1);
	return ring;
}

static void append(struct tm_ring *ring, const uint64_t *from, size_t bytes) {
	uint8_t *data = (uint8_t *)tm_session_ring_data(&c.session, 0);
	uint64_t head = atomic_load(&ring->head), at = head % c.session.ring_bytes, first = c.session.ring_bytes - at;
	if (first > bytes) first = bytes;
	memcpy(data + at, from, first);
	memcpy(data, (const uint8_t *)from + first, bytes - first);
	atomic_store(&ring->head, head + bytes);
}

int main(int argc, char **argv) {
	uint64_t millions = argc > 1 ? strtoull(argv[1], NULL, 10) : 20, wanted = millions * 1000000u, words = 0;
	char path[] = "/tmp/drain_bench.XXXXXX";
	if (mkstemp(path) < 0) return 1;
	start_collector(path);
	struct tm_ring *ring = claim_ring();
	uint64_t *block = malloc(c.session.ring_bytes), ticks = ring->start_ticks;
	double drained = 0, all = seconds(CLOCK_PROCESS_CPUTIME_ID), filling = 0, wall = seconds(CLOCK_MONOTONIC);
	append(ring, block, (size_t)(put_start(block, ticks) - block) * 8);
	while (c.encoder.events + c.group->event_count < wanted) {
		double before = seconds(CLOCK_THREAD_CPUTIME_ID);
		uint64_t *end = block, now = tm_timebase_ticks(&c.timebase);
		if (ticks < now) ticks = now;
		while ((size_t)(end - block) * 8 < c.session.ring_bytes / 4) end = put_pair(end, &ticks);
		append(ring, block, (size_t)(end - block) * 8);
		words += (uint64_t)(end - block);
		double filled = seconds(CLOCK_THREAD_CPUTIME_ID);
		tm_drain_pass(&c);
		tm_drain_close_group(&c, false);
		filling += filled - before;
		drained += seconds(CLOCK_THREAD_CPUTIME_ID) - filled;
	}
	tm_drain_close_group(&c, true);
	tm_encoder_stop(&c.encoder);
	all = seconds(CLOCK_PROCESS_CPUTIME_ID) - all;
	wall = seconds(CLOCK_MONOTONIC) - wall;
	double events = (double)c.encoder.events;
	printf("%.0f events, %.2f bytes each; drain %.1f ns (%.1f M/s), encode, tally and write %.1f ns (%.1f M/s); %.1f M/s by the clock\n",
	       events, (double)c.writer.bytes / events, drained / events * 1e9, events / drained / 1e6,
	       (all - drained - filling) / events * 1e9, events / (all - drained - filling) / 1e6, events / wall / 1e6);
	unlink(path);
	return c.lost_events != 0;
}
