/* names_early.h - addresses that get their names while the program still runs.
 *
 * Flow:     names_ahead.c (new frames) -> here -> questions to readers -> their answers -> here -> the group (group.h): strings, and names of frames
 * Idea:     the user waits for what is left to name when the program has ended. An address of a file that has a build-id is asked for soon after it was
 *           seen, and what its reader says is written with the next events. A spot of a file is asked for once, however many processes have it loaded:
 *           the frames of the others have its names as soon as they appear.
 * Left:     what nobody has answered by the end, names.c names, as it does without all this.
 * Threads:  the drainer's; it takes what has come, and waits for nothing. At the end it only says which frames have their names.
 * Bounded:  TM_EARLY_SPOTS_MAX spots, TM_EARLY_TEXT_BYTES of all the trace's texts.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_NAMES_EARLY_H
#define TIDEMARK_RECORDER_COLLECTOR_NAMES_EARLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TM_EARLY_SPOTS_MAX (4u << 20)
#define TM_EARLY_TEXT_BYTES (64u << 20)

struct tm_collector;
struct tm_ahead_reader;
struct tm_function;

struct tm_early_question {
	uint64_t offset; /* in its file */
	uint32_t spot;
};

struct tm_early_file {
	uint64_t *texts; /* string ids, as the reader numbers the file's texts, from 1 on */
	size_t text_count, text_capacity;
	bool told;    /* the reader has opened it, and what it said of that is in the trace */
	bool refused; /* it could not */
};

/* What a reader was asked: by turn of its stream the file, and all spots one after the other. */
struct tm_early_questions {
	uint32_t *files;
	size_t turn_capacity;
	uint32_t *spots;
	size_t spot_count, spot_capacity, taken;
};

struct tm_early_spot {
	uint64_t offset;
	uint32_t file;    /* index of a struct tm_ahead_file */
	uint32_t waiting; /* 1 + the last of the frames that wait for it; 0: none */
	uint32_t first, count; /* of functions */
	bool answered;
};

struct tm_names_early {
	struct tm_early_spot *spots;
	size_t spot_count, spot_capacity;
	uint32_t *slots; /* open addressing, at most half full: number of a spot + 1; 0: empty */
	size_t slot_mask;
	struct tm_function *functions;
	size_t function_count, function_capacity;
	uint32_t *waiting; /* by frame, from 0 on: 1 + the one that waits for the same spot; 0: none */
	uint8_t *has_names; /* by frame */
	size_t frame_capacity, has_capacity;
	uint64_t frames_named, files_told;
};

/* The frame lies there. True: the offset is to be asked for, as *spot. False: it has its names, or will have them, or there is no room, or nobody to ask. */
bool tm_names_early_note(struct tm_collector *c, uint32_t file, uint64_t offset, size_t frame, bool may_ask, uint32_t *spot);
/* These were asked of the reader, in this order. False: no memory. */
bool tm_names_early_ask(struct tm_ahead_reader *r, uint32_t file, const struct tm_early_question *asked, size_t n);
/* Takes what the reader has told by now. */
void tm_names_early_hear(struct tm_collector *c, struct tm_ahead_reader *r);
/* All that is known of it is in the trace. */
bool tm_names_early_has(const struct tm_names_early *e, size_t frame);
void tm_names_early_release(struct tm_names_early *e);
void tm_names_early_release_questions(struct tm_early_questions *q);

#endif
