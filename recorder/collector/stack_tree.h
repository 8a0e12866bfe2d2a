/* stack_tree.h - gives frames and stacks their ids.
 *
 * Flow:     a ring's "keep k frames, then these" -> here -> new frames and nodes in the group; a node id for the event
 * Idea:     a stack is a path in one tree. The ring's reader keeps the nodes along its current path, so only new frames are looked up: the frame by
 *           its address, in a small lossy cache and then by its identity (process, module, address); then the node among its parent's
 *           children. Most nodes have one child, which came right behind them and has the next id. Only others stand in a table.
 *           Programs come back to the same few frames below the same node: such chains are found as a whole.
 *           No two processes have a frame or a node in common. So each has tables of its own: those of a short one stay in the processor's
 *           caches, however many there were before it, and go with it.
 * Owns:     frames and nodes of the whole trace, each known by its id, and the tables of the processes that run.
 * Threads:  the drainer's.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_STACK_TREE_H
#define TIDEMARK_RECORDER_COLLECTOR_STACK_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tm_collector;
struct tm_process;

struct tm_frame_row {
	uint64_t address;
	uint32_t process, module;
};
struct tm_node_row {
	uint32_t parent, frame;
};

struct tm_slot_table { /* open addressing: upper half of the hash, id */
	uint64_t *slots;
	size_t count, mask;
};

#define TM_SEEN_BITS 4u /* a slot */
#define TM_SLOTS_WAITING 16u

/* Nodes whose id is not the next to their parent's. */
struct tm_node_table {
	uint32_t *ids; /* ascending */
	size_t count, capacity;
	uint32_t *slots; /* open addressing, at most half full: ids; 0: empty */
	size_t mask;
	uint64_t *seen; /* bits: those of all slots' hashes are set, so that one whose bit is not set need not be looked for */
	uint64_t waiting[TM_SLOTS_WAITING]; /* not in the table yet: upper half of the hash, id */
	unsigned waiting_count;
};

struct tm_frame_cache_entry {
	uint64_t address;
	uint32_t epoch, frame; /* of the process's modules; 0: empty */
};

#define TM_CHAIN_FRAMES 4u
#define TM_CHAIN_BITS 12

struct tm_chain { /* frames that were seen one inside the other below a node, and their nodes: a cache line */
	uint64_t addresses[TM_CHAIN_FRAMES]; /* outermost first; 0 behind the last */
	uint32_t nodes[TM_CHAIN_FRAMES];
	uint32_t parent, epoch, count;
	uint32_t checked; /* what the caller has found out about these addresses; 0: nothing */
};

/* Of one process. */
struct tm_process_stacks {
	struct tm_slot_table frames;
	struct tm_node_table nodes;
	struct tm_unknown_frames { /* those without a module */
		struct tm_unknown_frame {
			uint64_t address, ticks; /* ticks: of the event that it was new in */
			uint32_t id;
		} * all;
		size_t count, capacity;
		size_t looked_up; /* so many of them are no news any more */
	} unknown;
};

struct tm_stack_tree {
	struct tm_frame_row *frames; /* frames[id - 1] */
	size_t frame_count, frame_capacity;
	struct tm_node_row *nodes; /* nodes[id - 1] */
	size_t node_count, node_capacity;
	struct tm_frame_cache_entry *cache;
	struct tm_chain *chains; /* a lossy cache of whole turns of a stack, 1 << TM_CHAIN_BITS */
	void *chain_memory;
	struct tm_process_stacks **processes; /* by the process's id; NULL: it has none, or is over */
	size_t process_count;                 /* room there */
	size_t unknown_count;                 /* frames without a module of all of them */
	uint64_t event_ticks; /* of the event whose stack is read */
};

void tm_stack_tree_init(struct tm_stack_tree *t);
void tm_stack_tree_release(struct tm_stack_tree *t);
/* Gives back all but the frames, which do not move: others may read them meanwhile. */
void tm_stack_tree_keep_frames(struct tm_stack_tree *t);

/* The node for `address` inside of `parent` (0: outermost); made if it is new. */
uint32_t tm_stack_child(struct tm_collector *c, const struct tm_process *p, uint32_t parent, uint64_t address);
/* The same for a frame of the process that has an id. */
uint32_t tm_stack_child_frame(struct tm_collector *c, const struct tm_process *p, uint32_t parent, uint32_t frame);
/* A new Python frame: its address is only a number. */
uint32_t tm_stack_add_python_frame(struct tm_collector *c, const struct tm_process *p, uint64_t number);
/* The same for several addresses, outermost first, each inside the one before; path gets their nodes. */
void tm_stack_descend(struct tm_collector *c, const struct tm_process *p, uint32_t parent, const uint64_t *addresses, size_t n, uint32_t *path);
/* `wanted` has all but its nodes, which are found or made: it is the chain in that place from now on. */
void tm_stack_set_chain(struct tm_collector *c, const struct tm_process *p, struct tm_chain *chain, const struct tm_chain *wanted);
/* A module came to be known: frames of the process in its range get it that were new at most `before_ns` before it. What lay there earlier was
 * something else, as code that a program has made. UINT64_MAX: it was found where frames were looked up that are new, and only those get it. */
void tm_stack_tree_module_known(struct tm_collector *c, const struct tm_process *p, uint32_t module, uint64_t before_ns);
/* True if the process has frames without a module that are new since they were looked up last, in [low, high). */
bool tm_stack_tree_has_new_unknown(const struct tm_stack_tree *t, uint32_t process, uint64_t low, uint64_t high);
/* They have been looked up: what was not found was no module's. */
void tm_stack_tree_looked_up(struct tm_stack_tree *t, uint32_t process);
/* The process is over: no stack of it will come, and nothing more will be known of its frames. */
void tm_stack_tree_process_ended(struct tm_stack_tree *t, uint32_t process);

/* Where the chain stands, if it is known. */
static inline struct tm_chain *tm_stack_chain_place(const struct tm_stack_tree *t, const struct tm_chain *wanted) {
	const uint64_t *a = wanted->addresses;
	uint64_t hash = a[0] * 0x9E3779B97F4A7C15u + a[1] * 0xBF58476D1CE4E5B9u + a[2] * 0x94D049BB133111EBu + a[3] * 0xD6E8FEB86659FD93u;
	hash = (hash ^ hash >> 32 ^ wanted->parent) * 0x9E3779B97F4A7C15u;
	return &t->chains[hash >> (64 - TM_CHAIN_BITS)];
}

static inline bool tm_stack_chain_is(const struct tm_chain *chain, const struct tm_chain *wanted) {
	const uint64_t *a = chain->addresses, *b = wanted->addresses;
	uint64_t differ = (a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]);
	uint32_t differ_too = (chain->parent ^ wanted->parent) | (chain->epoch ^ wanted->epoch) | (chain->count ^ wanted->count);
	return !(differ | differ_too | (chain->checked ^ wanted->checked));
}

#endif
