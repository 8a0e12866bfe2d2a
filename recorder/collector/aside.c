/* aside.c - where our threads may run: see aside.h. */
#include "aside.h"

#include "collector.h"
#include "drain.h"
#include "kernel_file.h"
#include "memory.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS 10000000u
#define WAITED_PART 4u       /* that part of the time at least, */
#define WAITS_MAX 5u         /* at so many looks in turn */
#define LIFTED_NS 100000000u /* it did not help: so long it stays lifted, and twice as long each time that this comes again */
#define LIFTED_MAX_NS 60000000000u
#define FILLING 900u         /* of c->fullest: who reads is not woken before a ring is half full */
#define LOOKS_MIN 3u         /* a program that is over by then was not worth it */
#define OTHERS_PART 16u      /* other threads make less than one part of so many */
#define PROCESSOR_FIELD 39   /* of /proc/PID/task/TID/stat, counted from 1: the name is the second, and may hold anything */
#define TEXT_BYTES 1024
#define NONE UINT32_MAX

/* What the kernel says of the ring's thread in that file; empty: nothing. */
static const char *ask(const struct tm_ring_view *r, const char *file, char text[TEXT_BYTES]) {
	char path[64];
	text[0] = 0;
	if (!r->process || r->process->foreign) return text; /* its pids are others' here */
	snprintf(path, sizeof path, "/proc/%u/task/%u/%s", r->pid, r->tid, file);
	tm_kernel_file(path, text, TEXT_BYTES);
	return text;
}

/* How long it was ready and did not run, ever; 0 where that is not counted. */
static uint64_t waited_ns(const struct tm_ring_view *r) {
	char text[TEXT_BYTES];
	const char *second = strchr(ask(r, "schedstat", text), ' ');
	return second ? strtoull(second, NULL, 10) : 0;
}

/* Where it ran last; -1: it cannot be found out. */
static int processor_of(const struct tm_ring_view *r) {
	char text[TEXT_BYTES];
	const char *at = strrchr(ask(r, "stat", text), ')');
	for (int field = 2; at && field < PROCESSOR_FIELD; field++) at = strchr(at + 1, ' ');
	return at ? atoi(at + 1) : -1;
}

static void allow(pid_t task, const cpu_set_t *processors) {
	if (sched_setaffinity(task, sizeof *processors, processors) != 0) errno = 0; /* it has ended, or is not ours to move */
}

static void keep_off(struct tm_collector *c, int processor) {
	struct tm_aside *a = &c->aside;
	if (processor == a->kept_off) return;
	cpu_set_t allowed = a->given;
	if (processor >= 0) CPU_CLR(processor, &allowed);
	a->kept_off = processor;
	DIR *threads = opendir("/proc/self/task");
	for (const struct dirent *e; threads && (e = readdir(threads));)
		if (e->d_name[0] != '.') allow(atoi(e->d_name), &allowed);
	if (threads) closedir(threads);
	for (unsigned i = 0; i < c->ahead.reader_count; i++)
		if (c->ahead.readers[i].pid > 0) allow(c->ahead.readers[i].pid, &allowed);
}

/* Who would rather lose events than wait gets all that there is to read them in time. */
static void begin(struct tm_aside *a, bool waits) {
	a->begun = true;
	a->kept_off = -1;
	a->leader = NONE;
	int count = sched_getaffinity(0, sizeof a->given, &a->given) == 0 ? CPU_COUNT(&a->given) : 1;
	a->idle = !waits || count < 2 || count > TM_ASIDE_PROCESSORS_MAX;
}

/* The ring that most was read of since the last look, NONE: nothing was. *others: how much of all others. */
static uint32_t find_leader(struct tm_collector *c, uint64_t *most, uint64_t *others) {
	struct tm_aside *a = &c->aside;
	uint32_t leader = NONE;
	size_t before = a->read_capacity;
	a->read = tm_memory_grow(a->read, &a->read_capacity, c->rings_known, sizeof a->read[0]);
	if (a->read_capacity > before) memset(a->read + before, 0, (a->read_capacity - before) * sizeof a->read[0]);
	*most = *others = 0;
	for (uint32_t i = 0; i < c->rings_known; i++) {
		uint64_t tail = c->rings[i].claimed ? c->rings[i].tail : 0, bytes = tail > a->read[i] ? tail - a->read[i] : 0;
		a->read[i] = tail;
		if (bytes <= *most) {
			*others += bytes;
			continue;
		}
		*others += *most;
		*most = bytes;
		leader = i;
	}
	return leader;
}

/* It did not help: who reads has too little time there, or others are put beside the program's thread instead of us. */
static void lift_for_long(struct tm_collector *c, uint64_t now_ns) {
	struct tm_aside *a = &c->aside;
	keep_off(c, -1);
	a->waits = 0;
	a->lifted_ns = !a->lifted_ns ? LIFTED_NS : a->lifted_ns < LIFTED_MAX_NS / 2 ? a->lifted_ns * 2 : LIFTED_MAX_NS;
	a->next_ns = now_ns + a->lifted_ns;
}

/* Look after look: a thread of the program's own may be beside it for a while. */
static bool waits_nevertheless(struct tm_collector *c) {
	struct tm_aside *a = &c->aside;
	bool waits = waited_ns(&c->rings[a->leader]) - a->waited_ns > LOOK_NS / WAITED_PART;
	a->waits = waits ? a->waits + 1 : 0;
	return a->waits >= WAITS_MAX;
}

void tm_aside_look(struct tm_collector *c, uint64_t now_ns) {
	struct tm_aside *a = &c->aside;
	if (!a->begun) begin(a, c->options.on_full != TM_ON_FULL_DROP);
	if (a->idle) return;
	if (a->kept_off >= 0 && c->fullest >= FILLING) lift_for_long(c, now_ns);
	if (now_ns < a->next_ns) return;
	a->next_ns = now_ns + LOOK_NS;
	uint64_t most, others;
	uint32_t leader = find_leader(c, &most, &others);
	if (leader == NONE) return; /* it computes, or sleeps */
	if (a->kept_off >= 0 && leader == a->leader && waits_nevertheless(c)) {
		lift_for_long(c, now_ns);
		return;
	}
	a->looks = leader != a->leader || others >= most / OTHERS_PART ? 0 : a->looks + 1;
	a->leader = leader;
	if (a->looks < LOOKS_MIN) keep_off(c, -1);
	else keep_off(c, processor_of(&c->rings[leader]));
	if (a->kept_off >= 0) a->waited_ns = waited_ns(&c->rings[leader]);
}

void tm_aside_lift(struct tm_collector *c) {
	if (c->aside.begun && !c->aside.idle) keep_off(c, -1);
}

void tm_aside_release(struct tm_aside *a) {
	free(a->read);
	a->read = NULL;
}
