/* leak_frames.h - what leaks.c wants to know of each frame and of all that lies outward of it: what the trace's texts say, in all stacks alike.
 *
 * Flow:     catalog.c, stack_ids.c, suppressions.c, leak_names.c -> here -> leaks.c
 * Idea:     no event is needed for it, so a thread finds it out while the events are replayed. It holds for the suppressions that a program
 *           brings along, as a note of its process or of the one that it is a fork of: those of the first process are supposed, and where
 *           another's differ all is found out anew. Most programs bring none.
 * Owns:     6 bytes a node and some a frame, and its thread until the first process leaves.
 * Fails:    out of memory: says so. Where no thread can be made, the one that asks does the work.
 */
#ifndef TIDEMARK_ANALYZER_LEAK_FRAMES_H
#define TIDEMARK_ANALYZER_LEAK_FRAMES_H

#include <pthread.h>

#include "stack_ids.h"
#include "suppressions.h"

/* Of a text, of a row of the frames, or of all rows from one outward. */
enum tm_frame_flag {
	FRAME_SEEN = 1,
	FRAME_KNOWN = 2,       /* a suppression matches wherever it stands ... */
	FRAME_KNOWN_INNER = 4, /* ... or where it is innermost */
	FRAME_LIBRARY = 8,
	FRAME_ARENA = 16,
	FRAME_WRAPPER = 32,
	FRAME_IMPORTS = 64,  /* it imports a Python module */
	FRAME_SPAWNS = 128,  /* it starts a thread */
	FRAME_PROGRAM = 256, /* the program's own list matches */
	FRAME_PYTHON = 512,
};

struct tm_leak_frames {
	const struct tm_stack_ids *stacks;
	uint16_t *flags;   /* of each row of the frames; NULL: nothing is known */
	uint16_t *outward; /* by node: of all rows from there outward */
	uint32_t *run;     /* by node: the outermost of those in a row outward that are alike */
	size_t list;       /* number of the note with the suppressions that were looked at, 1 the first; 0 none */
	pthread_t thread;
	bool runs, failed, has_python; /* has_python: some frame is Python's */
};

/* Begins with the work for the first process. Release afterwards; the stacks must outlive it. */
void tm_leak_frames_start(struct tm_leak_frames *f, const struct tm_stack_ids *stacks);
/* Until the next call all is known for the program of this process. false: out of memory. */
bool tm_leak_frames_take(struct tm_leak_frames *f, uint32_t process);
void tm_leak_frames_release(struct tm_leak_frames *f);

/* A frame of a stack, with all that is known of it. */
struct tm_leak_place {
	const struct tm_catalog_frame *frame;
	const struct tm_catalog_function *named;
	struct tm_suppression_frame text;
};
struct tm_leak_place tm_leak_place(const struct tm_stack_ids *t, uint32_t frame, uint32_t function);

static inline struct tm_leak_place tm_leak_place_at(const struct tm_stack_ids *t, const struct tm_stack_row *at) {
	return tm_leak_place(t, t->catalog->nodes.items[at->node - 1].frame, at->function);
}

static inline uint16_t tm_leak_flags(const struct tm_leak_frames *f, const struct tm_stack_row *at) {
	uint32_t frame = f->stacks->catalog->nodes.items[at->node - 1].frame;
	return f->flags[f->stacks->frame_first[frame - 1] + at->function];
}

static inline bool tm_leak_text_is(struct tm_text a, struct tm_text b) {
	return a.size == b.size && (!a.size || memcmp(a.data, b.data, a.size) == 0);
}

static inline bool tm_leak_text_starts(struct tm_text t, const char *word) {
	size_t n = strlen(word);
	return t.size && t.size >= n && memcmp(t.data, word, n) == 0;
}

static inline struct tm_text tm_leak_string(const struct tm_catalog *c, uint32_t id) {
	return id ? c->strings.items[id - 1] : (struct tm_text){ "", 0 };
}

#endif
