/* python_stacks.h - stacks that mix native and Python frames.
 *
 * Flow:     PYTHON_RUN, PYTHON_CODE and PYTHON_STACK records; an event flagged TM_RING_PYTHON -> here -> frames and nodes of stack_tree.c
 * Idea:     a ring has a native path and a Python path. Each is a node of a tree of its own, which is not written; the pair of nodes has one stack in the
 *           trace, which is merged when the pair is met for the first time and remembered.
 *
 *     native, innermost first:  malloc's caller, list_append, EVAL, vectorcall, EVAL, PyRun_..., main       (EVAL: code named by PYTHON_RUN)
 *     Python, innermost first:  inner, middle*, outer*                                                      (*: native code called it)
 *     the stack:                malloc's caller, list_append, inner, middle, outer
 *
 * Each EVAL stands for the Python frames up to the first one that native code called, and is itself left out. So are the interpreter's own frames
 * outside of the innermost Python frame; other native frames, of extensions and of a program that the interpreter lies in, stay where they are.
 * What cannot be matched (a stack cut short, an interpreter whose code is not known) leaves the rest of the Python frames outside of the native ones.
 * Owns:     code objects by content, Python frames by function, file and line; both trees.
 * Threads:  the drainer's.
 * Hostile:  numbers and lengths of the ring are checked; what a code number means that was never announced is an unnamed frame.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_PYTHON_STACKS_H
#define TIDEMARK_RECORDER_COLLECTOR_PYTHON_STACKS_H

#include "pair_map.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tm_collector;
struct tm_ring_view;

#define TM_PYTHON_RUNS 4u

struct tm_python_stacks {
	struct tm_python_code_row {
		uint64_t hash;
		uint32_t function, file; /* string ids */
		uint32_t first_line, kind;
		uint8_t *table; /* owned */
		size_t table_bytes;
	} * codes; /* codes[id - 1] */
	size_t code_count, code_capacity;
	struct tm_pair_map code_ids;     /* hash of all of it, size -> id */
	struct tm_pair_map frames;       /* process and line, function and file -> frame id */
	struct tm_pair_map python_nodes; /* parent and code, offset and flag */
	struct tm_pair_map native_nodes; /* parent, address */
	struct tm_pair_map frame_of_word; /* process and code, offset -> frame id: the line table is read once */
	struct tm_pair_map stacks;       /* both nodes, epoch of unloads -> node of the trace */
	uint32_t last_python_node, last_native_node;
	uint64_t last_address;           /* of a Python frame: only a number */
};

struct tm_python_ring { /* what a ring told of Python; part of its view */
	uint32_t *codes;    /* by number: code id, 0 unknown */
	size_t code_capacity;
	uint64_t *frames;   /* outermost first: code id, offset << 32, flag << 63 */
	uint32_t *nodes;    /* of python_nodes, beside them */
	size_t depth, frame_capacity, node_capacity;
	bool known;         /* false after a corrupt stretch, until a whole stack comes */
	uint32_t *natives;  /* of native_nodes, beside the ring's addresses */
	size_t native_capacity, native_valid; /* so many are right */
	struct {
		uint64_t low, high;
	} runs[TM_PYTHON_RUNS];
	unsigned run_count;
};

void tm_python_take_run(struct tm_ring_view *r, uint64_t low, uint64_t high);
void tm_python_take_code(struct tm_collector *c, struct tm_ring_view *r, uint64_t number, uint64_t lines, size_t file_bytes, const char *text, size_t n);
/* false: it makes no sense. `words` are the frames behind the ticks. */
bool tm_python_take_stack(struct tm_collector *c, struct tm_ring_view *r, size_t keep, const uint64_t *words, size_t n);
/* The stack of an event: the ring's native path, merged with its Python path. 0: none is known. */
uint32_t tm_python_merged_stack(struct tm_collector *c, struct tm_ring_view *r);

void tm_python_ring_forget(struct tm_python_ring *p);  /* another thread's ring from now on; keeps memory */
void tm_python_ring_release(struct tm_python_ring *p);
void tm_python_stacks_release(struct tm_python_stacks *s);

#endif
