/* gpu_work.h - activities of devices, and what their driver was busy with, added up by kind and name.
 *
 * Flow:     gpu_rows.c (each activity, while the catalog is read) -> here -> table gpu_work_total
 * Idea:     SQLite would sort millions of rows to group them; a hash of the few different ones does not.
 * Owns:     the sums; names are ids of the trace's strings.
 * Fails:    out of memory is remembered in `failed`.
 */
#ifndef TIDEMARK_ANALYZER_GPU_WORK_H
#define TIDEMARK_ANALYZER_GPU_WORK_H

#include "../schema/array.h"

#include "../schema/activity.h"

struct tm_gpu_work {
	uint64_t process, count, duration_ns, longest_ns, size_bytes, first_ns, last_ns; /* count 0: an empty slot */
	uint32_t name;
	int32_t device;
	uint8_t kind, direction;
};

struct tm_gpu_works {
	struct tm_gpu_work *slots;
	size_t count, capacity; /* capacity: a power of two, or 0 */
	bool failed;
};

void tm_gpu_works_release(struct tm_gpu_works *w);
void tm_gpu_works_add(struct tm_gpu_works *w, uint64_t process, const struct tm_activity *a);

#endif
