/* heap_table.h - heaps and scope categories of a process: from the kinds and numbers in its rings to ids of the trace.
 *
 * Flow:     HEAP, CATEGORY, POOL records -> here -> heap and pool_state records in the group; drain.c asks for the id of a number
 * Idea:     every ring says what its numbers mean before it uses them, so most of these records say again what is known. Where one is missing
 *           (it lay in a corrupt stretch) the heap gets a name that says so, and its proper one when it is told again.
 * Hostile:  numbers beyond TM_OWN_NUMBERS_MAX make no sense; so a process has a bounded number of heaps and categories.
 * Owns:     a small table for each process, freed with it.
 * Threads:  the drainer's.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_HEAP_TABLE_H
#define TIDEMARK_RECORDER_COLLECTOR_HEAP_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tm_collector;
struct tm_process;

enum tm_default_heap { TM_HEAP_MALLOC = 1, TM_HEAP_MMAP = 2, TM_HEAP_MMAP_FILE = 4 };

#define TM_OWN_NUMBERS_MAX 4096u /* from TM_HEAP_NUMBER_OWN or TM_SCOPE_CATEGORY_OWN on */

struct tm_pool_numbers { /* at one moment, in ticks; bytes, more than INT64_MAX: unknown */
	uint64_t ticks, allocated, reserved, active, inactive;
};

struct tm_own_heap { /* all zero: never heard of */
	uint32_t id;   /* in the trace */
	uint32_t name; /* a string id; 0: not told */
	bool is_root;  /* its bytes are counted nowhere else */
	uint64_t reserved, written_ticks; /* of its last pool_state */
	struct tm_pool_numbers kept;      /* came soon after that one, and is not written; ticks 0: none */
};

struct tm_own_numbers { /* of one process */
	struct tm_own_heap *heaps;
	size_t heap_count, heap_capacity;
	uint32_t *categories; /* string ids, 0: not told */
	size_t category_count, category_capacity;
};

/* Heap records for the default heaps in `wanted` that the process does not have yet. */
void tm_process_need_heaps(struct tm_collector *c, struct tm_process *p, uint32_t wanted);
/* The id of a default heap; its record is made if need be. */
uint32_t tm_process_default_heap(struct tm_collector *c, struct tm_process *p, enum tm_default_heap heap);

/* A heap announces itself; parent: a number, too. false: makes no sense. */
bool tm_heap_told(struct tm_collector *c, struct tm_process *p, uint64_t number, uint64_t parent, uint64_t device, const char *name,
		  size_t name_bytes, const char *kind, size_t kind_bytes);
/* The heap of a number; its row is made if need be. NULL: no such number can be. */
struct tm_own_heap *tm_heap_of_number(struct tm_collector *c, struct tm_process *p, uint64_t number);
/* The heap of a name that the process told, or NULL. */
const struct tm_own_heap *tm_heap_of_name(const struct tm_process *p, uint32_t name);
bool tm_pool_told(struct tm_collector *c, struct tm_process *p, uint64_t number, const struct tm_pool_numbers *n);
/* A mark, a step, the exit: how each pool stood is written, however soon. */
void tm_pools_settle(struct tm_collector *c, struct tm_process *p);

bool tm_category_told(struct tm_collector *c, struct tm_process *p, uint32_t number, const char *name, size_t n);
/* The string id of a category, 0 for 0. */
uint32_t tm_category_text(struct tm_collector *c, const struct tm_process *p, uint32_t number);

void tm_own_numbers_release(struct tm_own_numbers *o);

#endif
