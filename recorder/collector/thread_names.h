/* thread_names.h - names of the threads of a process that live, as the kernel has them.
 *
 * Flow:     the sampler's thread reads them -> a list -> thread_table.c, where those that have changed go to the trace
 * Why:      a thread tells its name when it ends by itself (thread_name.c of the library); one that lives when its process ends, or is killed, cannot.
 * Threads:  no state.
 * Fails:    what cannot be read is left out: a thread may end between two readings.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_THREAD_NAMES_H
#define TIDEMARK_RECORDER_COLLECTOR_THREAD_NAMES_H

#include <stddef.h>
#include <stdint.h>

#define TM_KERNEL_NAME_BYTES 16u /* with the 0 behind it */

struct tm_thread_name_read {
	uint32_t process, tid; /* id of the process in the trace; tid as /proc has it */
	char name[TM_KERNEL_NAME_BYTES];
};

struct tm_thread_names {
	struct tm_thread_name_read *all; /* to be freed */
	size_t count, capacity;
};

/* Adds the names of a process' threads. */
void tm_thread_names_read(struct tm_thread_names *names, uint32_t pid, uint32_t process);

#endif
