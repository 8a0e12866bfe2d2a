/* module_table.h - which file lies where in which process, now.
 *
 * Flow:     MODULE and UNLOAD records, or /proc/PID/maps -> here -> stack_tree.c (whose is this address?), names at the end
 * Owns:     every module ever seen, in the order of its id; per process the ids of those loaded now, sorted by address.
 * Threads:  the drainer's.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_MODULE_TABLE_H
#define TIDEMARK_RECORDER_COLLECTOR_MODULE_TABLE_H

#include "default_suppressions.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tm_collector;
struct tm_process;

struct tm_module {
	uint32_t process;         /* id in the trace */
	bool is_libc;             /* the C library, or libpthread where that is apart */
	uint64_t low, high, bias; /* [low, high) */
	uint64_t entry;           /* the executable's first instruction; 0 for others */
	uint64_t load_ticks;
	char *path;
	uint8_t *build_id;
	size_t build_id_size;
};

struct tm_module_table {
	struct tm_module *all; /* all[id - 1] */
	size_t count, capacity;
	uint32_t last_epoch;
	struct tm_default_suppressions_table suppressions;
};

struct tm_loaded_modules { /* of one process */
	uint32_t *ids;
	size_t count, capacity;
	uint32_t epoch; /* changes when an address may mean another module than before; unique over all processes */
};

/* A module appeared: any that it overlaps is gone. It may have been there for `before_ns`. */
void tm_module_loaded(struct tm_collector *c, struct tm_process *p, uint64_t ticks, uint64_t before_ns, uint64_t bias, uint64_t low, uint64_t size,
		      const char *path, size_t path_bytes, const void *build_id, size_t build_id_size);
void tm_module_unloaded(struct tm_collector *c, struct tm_process *p, uint64_t ticks, uint64_t low, uint64_t size);
/* Id of the module that holds the instruction before the return address pc; 0: none known. */
uint32_t tm_module_at(const struct tm_collector *c, const struct tm_process *p, uint64_t pc);
/* Looks addresses without a module up in /proc/PID/maps, those that are new since it last did, and adds their files as modules. */
void tm_module_look_up_maps(struct tm_collector *c, struct tm_process *p);
void tm_modules_release(struct tm_module_table *t);

#endif
