/* live_names.h - names of functions while the trace has none yet: they are written when a recording ends.
 *
 * Flow:     live_rows.c (frames of what is shown) -> here -> `tidemark-record names-lookup`, a process that reads module files -> live_rows.c
 * Idea:     only what is shown is looked up, and by whoever looks: it costs the recording nothing. A frame's site is its innermost function that is
 *           not an allocator's wrapper; a frame of wrappers alone sends its caller further out, and so does one without a name in a
 *           module of wrappers.
 * Owns:     the process and the answers. It ends with us.
 * Blocks:   never: what is not answered yet has no name yet.
 * Fails:    without tidemark-record, or once it has died, frames stay without names.
 */
#ifndef TIDEMARK_ANALYZER_LIVE_NAMES_H
#define TIDEMARK_ANALYZER_LIVE_NAMES_H

#include "live.h"

#include <sys/types.h>

enum tm_name_state {
	TM_NAME_NEW,     /* not asked for */
	TM_NAME_ASKED,   /* no answer yet */
	TM_NAME_UNKNOWN, /* nobody knows */
	TM_NAME_WRAPPER, /* an allocator's own functions and nothing else */
	TM_NAME_KNOWN,
};

struct tm_live_name {
	uint8_t state;
	uint32_t line;
	char *function, *file; /* of the innermost function that is no wrapper */
};

struct tm_live_names {
	const struct tm_live *live;
	TM_ARRAY(struct tm_live_name) names; /* by frame id - 1 */
	TM_ARRAY(uint32_t) asked;            /* frames in the order of the requests */
	size_t answered;                     /* of these */
	TM_ARRAY(uint32_t) python;           /* by node id - 1: its innermost Python frame, 0 none */
	struct tm_bytes out, in;
	int fd; /* -1: there is no process */
	pid_t pid;
	bool tried;
};

void tm_live_names_init(struct tm_live_names *n, const struct tm_live *live);
void tm_live_names_release(struct tm_live_names *n);

/* The frame that a stack (a node, not 0) is shown by; its name if it is known, asked for if not. false: out of memory. */
bool tm_live_site(struct tm_live_names *n, uint32_t node, uint32_t *frame, const struct tm_live_name **name);
/* Sends what was asked, takes what was answered. */
void tm_live_names_talk(struct tm_live_names *n);
/* Some answer is still to come. */
bool tm_live_names_waiting(const struct tm_live_names *n);

#endif
