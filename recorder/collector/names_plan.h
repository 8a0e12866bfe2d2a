/* names_plan.h - what is to be looked up, in the order of the files.
 *
 * Flow:     modules and frames (names.h) -> here -> names.c.
 * Idea:     many frames lie at one spot of a file: of every process that loaded it there is one. A spot is asked for once. So spots are found by a hash
 *           table, and brought together by file; sorted are those of a file only where somebody wants them so: the program's user waits for the plan.
 * Files are told apart by build-id and name, or by path where there is no build-id.
 * Owns:     its arrays. The input is to stay as it is.
 * Fails:    without memory, or with 2^32 frames.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_NAMES_PLAN_H
#define TIDEMARK_RECORDER_COLLECTOR_NAMES_PLAN_H

#include "recorder/collector/names.h"

struct tm_names_spot {
	uint64_t place;        /* the number of its file above the offset in it, an ELF virtual address */
	uint32_t first, count; /* of its frames */
};

struct tm_names_plan {
	const struct tm_names_module **modules; /* by file, those of one by id */
	size_t module_count;
	size_t *files; /* the first module of each */
	size_t file_count;
	struct tm_names_spot *spots; /* by file, each once */
	size_t spot_count, spot_capacity;
	uint64_t *frames; /* ids, those of a spot together */
	size_t frame_count;
	unsigned offset_bits; /* of a place */
};

/* 0 or TM_NAMES_NO_MEMORY; to be released in both cases. */
int tm_names_plan_make(struct tm_names_plan *plan, const struct tm_names_input *in);
void tm_names_plan_release(struct tm_names_plan *plan);

static inline size_t tm_names_plan_file(const struct tm_names_plan *p, size_t spot) {
	return (size_t)(p->spots[spot].place >> p->offset_bits);
}

static inline uint64_t tm_names_plan_offset(const struct tm_names_plan *p, size_t spot) {
	return p->spots[spot].place & (((uint64_t)1 << p->offset_bits) - 1);
}

/* Of spots of one file, by offset. */
void tm_names_plan_sort(struct tm_names_plan *p, size_t spot, size_t end);

/* The path's last part. A build-id that was chosen by hand may be that of all libraries of a project: only together with this one it says which file it is. */
const char *tm_names_file_name(const char *path);

#endif
