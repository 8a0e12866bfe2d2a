/* python_stacks.h - stacks that mix native and Python frames.
 *
 * Flow:     PYTHON_RUN, PYTHON_CODE and PYTHON_STACK records; an event flagged TM_RING_PYTHON -> here -> frames and nodes of stack_tree.c
 * Idea:     a ring has a native path and a Python path, and both change at their inner ends. So what both have in common with the event before is merged
 *           already, and its nodes are known; only what is new is put behind them, from the outermost frame inward.
 *
 *     native, innermost first:  malloc's caller, list_append, EVAL, vectorcall, EVAL, PyRun_..., main       (EVAL: code named by PYTHON_RUN)
 *     Python, innermost first:  inner, middle*, outer*                                                      (*: native code called it)
 *     the stack:                malloc's caller, list_append, inner, middle, outer
 *
 * Each EVAL stands for a group of Python frames, of which the outermost is the one that native code called, and is itself left out. So are the interpreter's
 * own frames outside of the innermost EVAL; other native frames, of extensions and of a program that the interpreter lies in, stay where they are.
 * The innermost EVAL and the innermost group belong together. Where there are more groups (a stack cut short, an interpreter whose code is not known), the
 * rest of them lies outside of all native frames; where there are more EVALs (another interpreter's, further out), the rest of these stands for nothing.
 * Owns:     code objects by content, Python frames by function, file and line.
 * Threads:  the drainer's.
 * Hostile:  numbers and lengths of the ring are checked; what a code number means that was never announced is an unnamed frame.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_PYTHON_STACKS_H
#define TIDEMARK_RECORDER_COLLECTOR_PYTHON_STACKS_H

#include "pair_map.h"
#include "python_lines.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tm_collector;
struct tm_ring_view;

#define TM_PYTHON_RUNS 4u

struct tm_python_range {
	uint64_t low, high;
};

struct tm_python_run_set { /* rings that know of the same interpreters */
	uint32_t before; /* number of the set to which the range was added, 0: the empty one */
	struct tm_python_range added;
};

struct tm_python_stacks {
	struct tm_python_code_row {
		uint64_t hash;
		uint32_t function, file; /* string ids */
		uint32_t first_line, kind;
		uint8_t *table; /* owned */
		size_t table_bytes;
		struct tm_python_place place;
	} * codes; /* codes[id - 1] */
	size_t code_count, code_capacity;
	struct tm_pair_map code_ids;      /* hash of all of it, size -> id */
	struct tm_pair_map frames;        /* process and line, function and file -> frame id */
	struct tm_pair_map frame_of_word; /* code and offset, process -> frame id + 1 (of none: 1): the line table is read once */
	struct tm_python_run_set *run_sets; /* run_sets[number - 1] */
	size_t run_set_count, run_set_capacity;
	uint64_t last_address;            /* of a Python frame: only a number */
};

struct tm_python_ring { /* what a ring told of Python; part of its view */
	uint32_t *codes;    /* by number: code id, 0 unknown */
	size_t code_capacity;
	bool known;         /* false after a corrupt stretch, until a whole stack comes */
	uint64_t *frames;   /* the Python path, outermost first: code id, offset << 32 */
	uint32_t *nodes;    /* of the trace, beside them: the stack up to this frame */
	uint32_t path;      /* grows when the path changes, or what its frames mean */
	size_t depth, frame_capacity, node_capacity;
	size_t valid;       /* so many nodes are right */
	uint32_t *groups;   /* indices of the frames that begin a group */
	size_t group_count, group_capacity;
	uint32_t *evals;    /* indices of the EVALs in the native path */
	size_t eval_count, eval_capacity;
	size_t scanned;     /* so many native frames have been looked at */
	size_t startup;     /* so many of them are of the thread's start-up */
	int64_t shift;      /* groups less EVALs, when the nodes were made */
	uint32_t *tail;     /* nodes of the native frames inside of the innermost EVAL, by their index in the native path */
	size_t tail_first, tail_valid, tail_capacity; /* those from tail_first to tail_valid are right */
	uint32_t tail_parent;
	uint32_t merged;    /* the stack of the last event that had a merged one, while nothing of what it consists of changed; 0: not known */
	struct tm_python_range runs[TM_PYTHON_RUNS]; /* an address in them is an EVAL */
	unsigned run_count;
	uint32_t run_set; /* which they are: the same number for the same ranges, 0 for none */
	struct tm_python_range interpreter[2]; /* its library, and the program that is nothing but a call of it */
	uint32_t interpreter_epoch;            /* of the modules, when these two were found */
};

/* first: of an interpreter; what is known of another one holds no more. */
void tm_python_take_run(struct tm_collector *c, struct tm_ring_view *r, bool first, uint64_t low, uint64_t high);
void tm_python_take_code(struct tm_collector *c, struct tm_ring_view *r, uint64_t number, uint64_t lines, size_t file_bytes, const char *text, size_t n);
/* false: it makes no sense. `words` are the frames behind the ticks. */
bool tm_python_take_stack(struct tm_ring_view *r, size_t keep, const uint64_t *words, size_t n);
/* The stack of an event: the ring's native path, merged with its Python path. 0: none is known. */
uint32_t tm_python_merged_stack(struct tm_collector *c, struct tm_ring_view *r);

/* A native frame that runs a Python function. */
static inline bool tm_python_is_eval(const struct tm_python_ring *p, uint64_t pc) {
	for (unsigned i = 0; i < p->run_count; i++)
		if (pc - 1 >= p->runs[i].low && pc - 1 < p->runs[i].high) return true;
	return false;
}

void tm_python_native_changed(struct tm_python_ring *p, size_t keep); /* so many of its outermost frames are the same */
void tm_python_ring_forget(struct tm_python_ring *p);  /* another thread's ring from now on; keeps memory */
void tm_python_ring_release(struct tm_python_ring *p);
void tm_python_stacks_release(struct tm_python_stacks *s);

#endif
