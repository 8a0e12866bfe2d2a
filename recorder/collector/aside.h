/* aside.h - the recorder keeps off the processor that the program's thread runs on.
 *
 * Idea:     where processors are few, one of our threads that wakes while another one runs is put beside the program's, and both take turns of some
 *           milliseconds, although the other processor is free again soon. Of PyTorch's import and training on two processors that took 44 ms of 2.5 s
 *           (its schedstat). So while one thread makes nearly all events, ours may run anywhere but where it runs.
 * Owns:     which processors our threads and readers (names_ahead.h) may use: of those that we were given, all or all but one.
 * Lifted:   as soon as another thread makes events, too, or the recording ends: then what the scheduler does is best. And where it does not help, each time
 *           for longer: a ring is nearly full, or the thread waits for its processor nevertheless, as on a machine that is busy with other work.
 * Few:      with more processors than TM_ASIDE_PROCESSORS_MAX one of them is free most of the time, and it does nothing.
 * Threads:  the drainer's.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_ASIDE_H
#define TIDEMARK_RECORDER_COLLECTOR_ASIDE_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TM_ASIDE_PROCESSORS_MAX 4

struct tm_collector;

struct tm_aside {
	bool begun, idle;        /* idle: there is nothing to choose */
	cpu_set_t given;         /* what we may use */
	int kept_off;            /* a processor, -1: none */
	uint64_t next_ns;        /* of the next look */
	uint64_t lifted_ns;      /* so long it was lifted the last time that it did not help */
	uint64_t waited_ns;      /* what the leader had waited when we looked last */
	unsigned waits;          /* looks at which it had waited much since then */
	uint64_t *read;          /* by ring: so far it was read when we looked last */
	size_t read_capacity;
	uint32_t leader;         /* the ring that most was read of since then; UINT32_MAX: there was none */
	unsigned looks;          /* at which it was that one, and nearly alone */
};

/* After each pass; looks now and then. */
void tm_aside_look(struct tm_collector *c, uint64_t now_ns);
/* All processors are ours again. */
void tm_aside_lift(struct tm_collector *c);
void tm_aside_release(struct tm_aside *a);

#endif
