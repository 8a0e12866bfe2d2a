/* replay_bench.c - what the collector costs an event, on the rings of a real program, again and again the same.
 *
 *     replay_bench --capture FILE COMMAND [ARG...]    runs the command and keeps what it wrote into its rings, instead of reading it
 *     replay_bench --replay FILE [LEVEL [TRACE]]      feeds that to the collector, as fast as it goes; LEVEL: of zstd, 0: the usual one; the trace goes to
 *                                                     TRACE, or is removed
 *
 * Method: the clock of the collector is replaced by one that shows, for each piece, when it was captured. So groups close where they closed then, and
 *         the trace is that of the captured run. Shown are processor times of the draining thread and of the whole process, which other load
 *         does not change much; `valgrind --tool=callgrind` counts the same work in instructions. One process is followed, not its children.
 */
#include "../../recorder/collector/collector.h"
#include "../../recorder/collector/drain.h"
#include "../../recorder/collector/launch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RINGS_MAX 4096u
#define RING "4MiB"

struct piece { /* and `bytes` of a ring behind it */
	uint32_t ring, tid, thread, closed;
	uint64_t start_ticks, now_ns, bytes;
};

static struct tm_collector c;
static uint64_t replayed_ns; /* 0: the clock is the real one */

/* --- the clock, in place of timebase.c: ticks are nanoseconds --- */

uint64_t tm_monotonic_ns(void) {
	struct timespec now;
	if (replayed_ns) return replayed_ns;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t tm_timebase_ticks(const struct tm_timebase *t) {
	(void)t;
	return tm_monotonic_ns();
}

void tm_timebase_start(struct tm_timebase *t) {
	memset(t, 0, sizeof *t);
	t->clock = TM_CLOCK_MONOTONIC;
	t->start_monotonic_ns = tm_monotonic_ns();
	t->map.start_ticks = t->start_monotonic_ns;
	t->map.knots[0] = (struct tm_knot){ t->start_monotonic_ns, 0, 1ull << TM_RATE_BITS };
	t->map.count = 1;
}

uint64_t tm_timebase_ticks_before_now(const struct tm_timebase *t, uint64_t span_ns) {
	uint64_t now = tm_timebase_ticks(t);
	return now < t->map.start_ticks + span_ns ? t->map.start_ticks : now - span_ns;
}

void tm_timebase_extend(struct tm_timebase *t) {
	t->map.end_ticks = tm_timebase_ticks(t);
}

void tm_timebase_follow(struct tm_timebase *t) {
	tm_timebase_extend(t);
}

void tm_timebase_add_knot(struct tm_timebase *t) {
	tm_timebase_extend(t);
}

/* --- both --- */

static _Noreturn void fail(const char *what) {
	perror(what);
	exit(1);
}

static double seconds(clockid_t clock) {
	struct timespec now;
	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void open_session(void) {
	char error[256], *arguments[] = { (char *)"bench", (char *)"--interval=0", (char *)"--ring=" RING, (char *)"true", NULL };
	tm_options_parse(&c.options, 4, arguments);
	tm_timebase_start(&c.timebase);
	if (tm_session_open(&c.session, &c.options, &c.timebase, error, sizeof error) == 0) return;
	fprintf(stderr, "replay_bench: %s\n", error);
	exit(1);
}

static uint32_t rings_used(void) {
	uint32_t used = atomic_load(&c.session.shm->rings_used);
	return used < c.session.ring_count ? used : c.session.ring_count;
}

/* --- capture --- */

static uint64_t tails[RINGS_MAX];

static void put(FILE *out, const void *data, size_t bytes) {
	if (bytes && fwrite(data, bytes, 1, out) != 1) fail("cannot write the capture");
}

static void capture_ring(FILE *out, uint32_t i) {
	struct tm_ring *ring = tm_session_ring(&c.session, i);
	uint32_t state = atomic_load(&ring->state);
	uint64_t head = atomic_load(&ring->head), size = c.session.ring_bytes, at = tails[i] % size;
	if (state != TM_RING_ACTIVE && state != TM_RING_CLOSED) return;
	if (head == tails[i] && state == TM_RING_ACTIVE) return;
	struct piece p = { i, ring->tid, ring->thread, state == TM_RING_CLOSED, ring->start_ticks, tm_monotonic_ns(), head - tails[i] };
	uint64_t first = p.bytes < size - at ? p.bytes : size - at;
	const uint8_t *data = tm_session_ring_data(&c.session, i);
	put(out, &p, sizeof p);
	put(out, data + at, first);
	put(out, data, p.bytes - first);
	tails[i] = head;
	atomic_store(&ring->tail, head);
	if (atomic_exchange(&ring->waiting, 0)) tm_futex_wake(&ring->waiting);
	if (p.closed) atomic_store(&ring->state, TM_RING_FREE);
}

/* The library is looked for beside the program that launches: from build/tests/bench it is in build/lib. */
static void place_library(void) {
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 32);
	if (n <= 0) fail("/proc/self/exe");
	self[n] = 0;
	strcpy(strrchr(self, '/'), "/libtidemark.so");
	if (symlink("../../lib/libtidemark.so", self) != 0 && errno != EEXIST) fail(self);
}

static int capture(const char *path, char **arguments) {
	struct tm_launch launch;
	char error[4352];
	int status = 0;
	FILE *out = fopen(path, "wb");
	if (!out) fail(path);
	place_library();
	open_session();
	sigset_t no_signals;
	sigemptyset(&no_signals);
	if (tm_launch_prepare(&launch, &c.session, arguments, error, sizeof error) != 0 || tm_launch_go(&launch, &no_signals) != 0) {
		fprintf(stderr, "replay_bench: cannot start '%s'\n", arguments[0]);
		return 1;
	}
	put(out, &c.timebase.start_monotonic_ns, 8);
	for (bool over = false; !over;) {
		over = waitpid(launch.pid, &status, WNOHANG) == launch.pid;
		for (uint32_t i = 0; i < rings_used() && i < RINGS_MAX; i++) capture_ring(out, i);
		atomic_fetch_add(&c.session.shm->heartbeat, 1);
		uint32_t doorbell = atomic_load(&c.session.shm->doorbell);
		atomic_store(&c.session.shm->sleeping, 1);
		if (!over) tm_futex_wait(&c.session.shm->doorbell, doorbell, 5000000);
		atomic_store(&c.session.shm->sleeping, 0);
	}
	if (fclose(out) != 0) fail(path);
	return status != 0;
}

/* --- replay --- */

/* The captured process does not live any more; we stand in for it. */
static void claim(const struct piece *p) {
	struct tm_ring *ring = tm_session_ring(&c.session, p->ring);
	ring->process = 1;
	ring->pid = (uint32_t)getpid();
	ring->tid = p->tid;
	ring->thread = p->thread;
	ring->start_ticks = p->start_ticks;
	atomic_store(&ring->state, TM_RING_ACTIVE);
	if (p->ring >= rings_used()) atomic_store(&c.session.shm->rings_used, p->ring + 1);
}

static void append(struct tm_ring *ring, const struct piece *p, const uint8_t *data) {
	uint8_t *to = (uint8_t *)tm_session_ring_data(&c.session, p->ring);
	uint64_t head = atomic_load(&ring->head), size = c.session.ring_bytes, at = head % size;
	uint64_t first = p->bytes < size - at ? p->bytes : size - at;
	memcpy(to + at, data, first);
	memcpy(to, data + first, p->bytes - first);
	uint64_t *word = (uint64_t *)(to + at);
	if (p->bytes && (uint8_t)word[0] == TM_CTL_PROCESS) word[2] = (uint64_t)getpid();
	atomic_store(&ring->head, head + p->bytes);
}

static void start_collector(const char *path, int level) {
	if (tm_writer_open(&c.writer, strdup(path), true) != 0) fail(path);
	if (level) tm_packer_release(&c.writer.packer), tm_packer_init(&c.writer.packer, level);
	tm_encoder_start(&c.encoder, &c.writer);
	tm_stack_tree_init(&c.stacks);
	if (tm_drain_start(&c) != 0) exit(1);
}

/* Which kinds of chunks the bytes are in. */
static void print_kinds(const char *path, double events) {
	static const char *const names[] = { "", "META", "STACKS", "EVENTS", "NAMES", "END" };
	uint64_t stored[6] = { 0 }, raw[6] = { 0 };
	uint8_t head[TM_CHUNK_HEADER_BYTES];
	struct tm_chunk_header h;
	FILE *in = fopen(path, "rb");
	if (!in || fseek(in, TM_FILE_HEADER_BYTES, SEEK_SET)) fail(path);
	while (fread(head, sizeof head, 1, in) == 1 && !tm_chunk_header_read(head, sizeof head, &h) && h.kind < 6) {
		stored[h.kind] += h.stored_bytes + sizeof head;
		raw[h.kind] += h.raw_bytes;
		if (fseek(in, h.stored_bytes, SEEK_CUR)) break;
	}
	for (int i = 1; i < 4; i++)
		printf("  %-6s %7.3f raw %7.3f stored bytes an event\n", names[i], (double)raw[i] / events, (double)stored[i] / events);
	fclose(in);
}

static int replay(const char *path, int level, const char *kept) {
	char made[] = "/tmp/replay_bench.XXXXXX";
	const char *trace = kept ? kept : made;
	FILE *in = fopen(path, "rb");
	uint64_t start_ns;
	struct piece p;
	uint8_t *data = malloc(64u << 20);
	double drained = 0, filling = 0;
	if (!in || fread(&start_ns, 8, 1, in) != 1 || (!kept && mkstemp(made) < 0)) fail(path);
	replayed_ns = start_ns;
	open_session();
	start_collector(trace, level);
	double all = seconds(CLOCK_PROCESS_CPUTIME_ID), before = seconds(CLOCK_THREAD_CPUTIME_ID);
	while (fread(&p, sizeof p, 1, in) == 1) {
		struct tm_ring *ring = tm_session_ring(&c.session, p.ring);
		if (p.bytes > c.session.ring_bytes || (p.bytes && fread(data, p.bytes, 1, in) != 1)) return 1;
		replayed_ns = p.now_ns + 1000000;
		if (atomic_load(&ring->state) == TM_RING_FREE) claim(&p);
		append(ring, &p, data);
		if (p.closed) atomic_store(&ring->state, TM_RING_CLOSED);
		double filled = seconds(CLOCK_THREAD_CPUTIME_ID);
		tm_drain_pass(&c);
		tm_drain_close_group(&c, false);
		filling += filled - before;
		before = seconds(CLOCK_THREAD_CPUTIME_ID);
		drained += before - filled;
	}
	tm_drain_close_group(&c, true);
	tm_encoder_stop(&c.encoder);
	all = seconds(CLOCK_PROCESS_CPUTIME_ID) - all - filling;
	double events = (double)c.encoder.events, megabyte = 1048576;
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	printf("%.0f events, %zu nodes, %zu frames: %.1f ns an event (drain %.1f, encode, tally and write %.1f), %.2f bytes an event, %.0f MiB\n", events,
	       c.stacks.node_count, c.stacks.frame_count, all / events * 1e9, drained / events * 1e9, (all - drained) / events * 1e9,
	       (double)c.writer.bytes / events, (double)usage.ru_maxrss * 1024 / megabyte);
	print_kinds(trace, events);
	if (!kept) unlink(made);
	return c.lost_events != 0;
}

int main(int argc, char **argv) {
	if (argc > 3 && !strcmp(argv[1], "--capture")) return capture(argv[2], argv + 3);
	if (argc > 2 && !strcmp(argv[1], "--replay")) return replay(argv[2], argc > 3 ? atoi(argv[3]) : 0, argc > 4 ? argv[4] : NULL);
	fprintf(stderr, "usage: replay_bench --capture FILE COMMAND [ARG...] | --replay FILE [LEVEL [TRACE]]\n");
	return 2;
}
