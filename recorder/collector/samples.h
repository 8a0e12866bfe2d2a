/* samples.h - memory of the processes as the kernel counts it, read from outside: RSS, its peak, PSS, swap, cgroup; and the names of their threads.
 *
 * Flow:     a thread of its own reads /proc every --interval, and at marks whatever that is -> tm_sampler_collect() -> the group
 * Idea:     a reading of a large process can take milliseconds; draining must not wait for it. The look at every mapping, for which the kernel goes over
 *           all pages and which gives PSS and finds what is ours, is left out where there was one a short time ago, where such looks at all processes
 *           take too much of the time (SHARE in samples.c), and mostly where nothing has changed. What is ours stands for the readings between,
 *           with what the process has written to its rings since.
 * Ours:     tool_rss of a process is what is resident there of our shared memory and of our library's file; tables of the library
 *           in private memory, a few hundred KiB, are not told apart from the program's. vms is without our mappings. tool_rss
 *           of process 0 is the recorder's own resident memory.
 * PSS:      a sum over all mappings, for each of which the kernel leaves out what is less than a KiB. Where a rule is about it (--alert), readings without
 *           a look at every mapping ask the kernel for its own sum (smaps_rollup, from Linux 4.14 on): it goes over all pages then, at each reading.
 * Kinds:    the same look adds up what is resident by kind (rss_heap, rss_arenas, ...); these are given only with the reading they were made with.
 *           glibc's arenas begin at a multiple of 64 MiB and go on as reserved memory; a thread's stack lies behind its guard. What is mapped of a file
 *           is the file's, shared or not; private pages of /dev/zero are anonymous memory.
 * Threads:  all functions are the drainer's; the lists are shared with the sampler's thread under its lock. It is made for the first process.
 * Fails:    what cannot be read is left out: a process may end between two readings.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_SAMPLES_H
#define TIDEMARK_RECORDER_COLLECTOR_SAMPLES_H

#include "group.h"
#include "session.h"
#include "thread_names.h"

#include <pthread.h>
#include <stdatomic.h>

/* What a mapping is, by its name and place. */
enum tm_mapping_kind {
	TM_MAPPING_HEAP,
	TM_MAPPING_ARENA,
	TM_MAPPING_ANONYMOUS,
	TM_MAPPING_STACK,
	TM_MAPPING_FILE,
	TM_MAPPING_SHARED,
	TM_MAPPING_OURS,
	TM_MAPPING_KINDS
};

struct tm_own_memory { /* in the address space of a recorded process */
	bool known;
	bool fresh; /* resident_kinds and pss_bytes are of this very reading */
	uint64_t resident_bytes, mapped_bytes, pss_bytes;
	uint64_t written_bytes; /* tm_session_written_bytes() as it came to ours */
	uint64_t resident_kinds[TM_MAPPING_KINDS];
};

struct tm_sampled_process {
	uint32_t pid, id, number; /* number: in the session */
	bool wanted;         /* read it now */
	uint64_t own_due_ns; /* its mappings are not looked at before */
	uint64_t same_until_ns; /* nor before this, while these are what they were then */
	uint64_t names_due_ns;  /* nor its threads' names before this */
	uint64_t rss_bytes, vms_bytes, swap_bytes;
	struct tm_own_memory own;
};

struct tm_sampled_device { /* that a process uses */
	uint32_t id, pid, number; /* id: of the process; number: as it counts its devices */
	uint8_t uuid[16];
};

struct tm_sampler {
	const struct tm_timebase *timebase;
	uint64_t interval_ns;     /* 0: read only when asked */
	bool pss_wanted;          /* in every reading: a rule is about it. Set before the first process is added */
	const struct tm_session *session;
	const char *session_file; /* its shared memory's, as the kernel names it */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool running, stopping, asked;
	bool tried; /* to make the thread */
	char cgroup_path[4096];               /* file that holds the cgroup's bytes; "" unknown */
	int cgroup, statm;                    /* it, and our own; -1 unknown */
	struct tm_sampled_process *processes; /* under the lock */
	size_t count, capacity;
	struct tm_reading *readings; /* under the lock: those not collected yet */
	size_t reading_count, reading_capacity;
	struct tm_thread_names names;      /* under the lock: those not taken yet */
	struct tm_thread_names names_read; /* the thread's own: of this turn */
	struct tm_sampled_device *devices; /* under the lock */
	size_t device_count, device_capacity;
	struct tm_sampled_device *device_turn; /* the thread's own */
	size_t device_turn_count, device_turn_capacity;
	const char *_Atomic without_devices; /* why devices cannot be read; NULL: they can, or nobody asked */
	bool without_noted;
	struct tm_sampled_process *turn; /* the thread's own */
	uint64_t start_ns, walked_ns,
		named_ns; /* the thread's own: the time that walks of pages, and names of threads, have taken since it started */
	size_t turn_capacity;
	char *lines; /* the thread's own: of a file that is read line by line */
};

/* `pid`: whose cgroup is read. `interval_ms` 0: reads only when asked. Where no thread can be made, nothing is sampled. */
void tm_sampler_start(struct tm_sampler *s, const struct tm_timebase *timebase, uint64_t interval_ms, const struct tm_session *session,
		      uint32_t pid);
void tm_sampler_add(struct tm_sampler *s, uint32_t pid, uint32_t id, uint32_t number);
void tm_sampler_remove(struct tm_sampler *s, uint32_t id);
/* Reads this process, and the cgroup, soon, whatever the interval. Calls that come before that reading begins share it. */
void tm_sampler_ask(struct tm_sampler *s, uint32_t id);
/* The process uses this device: it is read with the process from now on (nvml.h). */
void tm_sampler_add_device(struct tm_sampler *s, uint32_t id, uint32_t number, const uint8_t uuid[16]);
/* Moves what has been read into the group. */
void tm_sampler_collect(struct tm_sampler *s, struct tm_group *g);
/* Exchanges a list that is empty for the names of threads that have been read, in their order. */
void tm_sampler_take_names(struct tm_sampler *s, struct tm_thread_names *names);
void tm_sampler_stop(struct tm_sampler *s);
void tm_sampler_release(struct tm_sampler *s);

#endif
