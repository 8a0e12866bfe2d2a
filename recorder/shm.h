/* shm.h - the memory that the traced processes and the collector share.
 *
 * Flow:     guest (hooks) -> one ring a thread, here -> collector (drain)
 * Owns:     the collector creates it as a memfd, sized once and sparse, and names it to the guests in TIDEMARK_SESSION
 *           (a path to open: /proc/<collector>/fd/<n>, and #<inode>: another recorder may get the pid). It outlives every guest, so a killed program
 *           loses nothing.
 * Threads:  a ring has one producer (its thread) and one consumer (the collector). Everything else is an atomic of its own.
 * Hostile:  the host program can scribble over all of it: the collector copies a number before it checks it and never trusts a length.
 *
 *     0                 rules_offset              ring_headers_offset            ring_data_offset
 *     | struct tm_shm   | struct tm_shared_rules  | struct tm_ring [ring_count]  | data of the first ring | of the second | ...
 */
#ifndef TIDEMARK_RECORDER_SHM_H
#define TIDEMARK_RECORDER_SHM_H

#include "../schema/kinds.h"

#include <stdatomic.h>
#include <stdint.h>

#define TM_SHM_MAGIC 0x6d64697400000011ull /* the low half is the layout's version */
#define TM_SESSION_ENV "TIDEMARK_SESSION"  /* path of the shared memory and which file it is, set by the collector for its child */
#define TM_SESSION_NAME "tidemark"         /* is in the name of that memory, where /proc lists it */
#define TM_OPTIONS_ENV "TIDEMARK_OPTIONS"  /* options of tidemark-record, for a program preloaded without it */
#define TM_SHM_PAGE 4096u

enum tm_shm_state { TM_SHM_STARTING = 0, TM_SHM_RUNNING = 1, TM_SHM_CLOSED = 2 /* guests go quiet */ };
enum tm_stacks_mode { TM_STACKS_OFF = 0, TM_STACKS_UNWIND = 1, TM_STACKS_FP = 2 };
enum tm_clock_kind { TM_CLOCK_MONOTONIC = 0 /* ticks are CLOCK_MONOTONIC ns */, TM_CLOCK_TSC = 1 };
enum tm_on_full { TM_ON_FULL_WAIT = 0, TM_ON_FULL_DROP = 1 };

enum tm_gpu_mode { TM_GPU_OFF = 0, TM_GPU_AUTO = 1, TM_GPU_CUPTI = 2 };

/* A question of the program's (tidemark_stats) and the collector's answer. A guest takes a FREE slot by compare-and-swap to ASKED, says in its ring with
 * STATS which heap it means, and sleeps on `state` until it is ANSWERED or UNKNOWN (no such heap); then it copies and stores FREE. It gives up after two
 * seconds by a compare-and-swap from ASKED to GIVEN_UP, which the collector turns into FREE. */
enum tm_stats_state { TM_STATS_FREE = 0, TM_STATS_ASKED = 1, TM_STATS_ANSWERED = 2, TM_STATS_UNKNOWN = 3, TM_STATS_GIVEN_UP = 4 };

/* Bytes of a ring by its index: a program of very many threads has smaller ones, so that all of them together stay within bounds (412 MiB with the usual
 * 4 MiB for the first, for 4,096 threads). A program that allocates as fast as the collector reads gained a tenth of its time from 1 to 4 MiB, and nothing
 * from there to 64. */
#define TM_RINGS_WHOLE 4u      /* from here on a quarter */
#define TM_RINGS_QUARTER 64u   /* from here on a sixteenth */
#define TM_RINGS_SIXTEENTH 512u /* from here on a sixty-fourth */
#define TM_RING_BYTES_LEAST 65536u
static inline uint64_t tm_ring_bytes_at(uint64_t ring_bytes, uint32_t index) {
	unsigned part = index < TM_RINGS_WHOLE ? 1 : index < TM_RINGS_QUARTER ? 4 : index < TM_RINGS_SIXTEENTH ? 16 : 64;
	uint64_t bytes = ring_bytes / part;
	if (bytes >= TM_RING_BYTES_LEAST) return bytes;
	return ring_bytes < TM_RING_BYTES_LEAST ? ring_bytes : TM_RING_BYTES_LEAST;
}

/* Bytes of all rings in front of one: where its data begins, from ring_data_offset on. */
static inline uint64_t tm_ring_bytes_before(uint64_t ring_bytes, uint32_t index) {
	const uint32_t first[] = { 0, TM_RINGS_WHOLE, TM_RINGS_QUARTER, TM_RINGS_SIXTEENTH, UINT32_MAX };
	uint64_t bytes = 0;
	for (unsigned i = 0; i < 4 && index > first[i]; i++) {
		uint32_t count = (index < first[i + 1] ? index : first[i + 1]) - first[i];
		bytes += count * tm_ring_bytes_at(ring_bytes, first[i]);
	}
	return bytes;
}

/* Where address space is limited (RLIMIT_AS), the program must find as much of it as it needs: a guest whose session and first ring would be more than a
 * quarter of what is left steps aside, and later maps nothing that is more than an eighth. The collector sizes rings by half of that, as programs are large. */
#define TM_ROOM_PART_AT_FIRST 4u
#define TM_ROOM_PART 8u
#define TM_STEPPED_ASIDE 512u

struct tm_stats_slot {
	_Atomic uint32_t state;       /* futex */
	uint32_t process;             /* process number of who asks */
	uint64_t live_bytes, live_count, peak_bytes, peak_since_reset_bytes, allocations, frees;
	uint64_t exact; /* 0: an estimate */
};
#define TM_STATS_SLOTS 16u

struct tm_shm {
	uint64_t magic;
	uint64_t total_bytes;
	uint64_t rules_offset, ring_headers_offset, ring_data_offset; /* multiples of TM_SHM_PAGE */
	uint64_t ring_bytes; /* data bytes of a whole ring, a power of two, at least one page: tm_ring_bytes_at() */
	uint32_t ring_count;
	uint32_t collector_pid;
	uint32_t root_pid;   /* the command's pid; set by the command itself before exec */
	uint32_t clock;      /* enum tm_clock_kind */
	uint32_t stacks;     /* enum tm_stacks_mode */
	uint32_t max_depth;  /* frames; innermost are kept, the record is flagged TM_RING_CUT */
	uint64_t sample_bytes;
	uint32_t mappings, follow; /* 0 or 1 */
	uint32_t on_full;          /* enum tm_on_full */
	uint32_t args;             /* 1: keep the command's arguments */
	uint32_t nvtx, itt;        /* 1: be the tool of NVTX's and ITT's loaders */
	uint32_t torch;            /* 1: hook PyTorch where it is loaded */
	uint32_t gpu;              /* enum tm_gpu_mode */
	uint32_t python, python_heap; /* 0 or 1: Python frames in stacks; the interpreter's own allocations */

	_Alignas(64) _Atomic uint32_t state;        /* enum tm_shm_state */
	_Atomic uint32_t next_process;              /* process numbers, from 1: a process takes fetch_add(1) + 1 */
	_Atomic uint32_t ring_hint;                 /* where to start looking for a free ring */
	_Atomic uint32_t rings_used;                /* highest ring index ever claimed, + 1: the collector scans this many */

	_Alignas(64) _Atomic uint64_t heartbeat;    /* grows with every drain pass, at least every 100 ms */
	_Atomic uint32_t doorbell;                  /* futex: a guest adds 1 and wakes when its ring is a quarter full, or at a mark */
	_Atomic uint32_t sleeping;                  /* 1: the collector waits on the doorbell */

	/* What the command is to get when its parent dies (PR_SET_PDEATHSIG), which to the kernel is the collector; 0: nothing. */
	_Atomic uint32_t death_signal;

	_Alignas(64) _Atomic uint64_t unringed_events; /* lost because no ring could be had */

	/* For `tidemark-record dump`, which waits for a file: so many dumps could not be written, and errno of the last one, set before. */
	_Atomic uint32_t failed_dumps, dump_error;

	_Alignas(64) struct tm_stats_slot stats[TM_STATS_SLOTS];
	_Atomic uint32_t stepped_aside_count; /* programs that had too little address space; the pid of each is in the place of its number */
	_Atomic uint32_t stepped_aside[TM_STEPPED_ASIDE];
};
_Static_assert(sizeof(struct tm_shm) <= TM_SHM_PAGE, "a guest looks at the first page before it maps more");

/* What a module is, the same in every process: its path and build-id, and how long and laid out what the loader mapped of it is. A guest takes a FREE slot by
 * compare-and-swap to WRITING, fills it in and makes it KNOWN for ever; a slot whose writer died stays WRITING and is passed over. */
enum tm_shared_module_state { TM_SHARED_MODULE_FREE = 0, TM_SHARED_MODULE_WRITING = 1, TM_SHARED_MODULE_KNOWN = 2 };
#define TM_SHARED_MODULES 1024u
#define TM_SHARED_BUILD_ID_MAX 32u

struct tm_shared_module {
	_Atomic uint32_t state;
	uint32_t build_id_bytes;
	uint64_t identity, span_bytes, frames_offset; /* identity: hash of path, build-id and file; frames_offset: of .eh_frame_hdr */
	uint8_t build_id[TM_SHARED_BUILD_ID_MAX];
};

/* Rules of how to get from a frame to its caller (guest/unwind_rule.h), which no process needs to work out that finds them here: many programs run only
 * for milliseconds. Untouched pages cost nothing. The table answers for one address; when full, an older rule gives way. The list of a module holds most of
 * its rules once more, one behind the other: a process takes them all over at its first question. It is a chain of blocks, which a guest lengthens. When full
 * (the chain or all blocks): what comes later is in the table alone. */
#define TM_RULE_SETS (1u << 16)
#define TM_RULE_BLOCKS 512u
#define TM_RULE_BLOCKS_OF_MODULE 32u
#define TM_RULE_BLOCK_ENTRIES 511u

struct tm_rule_block {
	_Atomic uint32_t used; /* entries; a guest takes fetch_add(1) for its own, which may be one too many */
	_Atomic uint32_t next; /* number of the next block, from 1; 0: none */
	_Atomic uint64_t entries[TM_RULE_BLOCK_ENTRIES]; /* place in the module << 28 | rule; 0: not written, or never */
};

struct tm_shared_rules {
	struct tm_shared_module modules[TM_SHARED_MODULES];
	_Alignas(TM_SHM_PAGE) _Atomic uint64_t rules[TM_RULE_SETS][2];
	struct tm_rule_block blocks[TM_RULE_BLOCKS];
	_Atomic uint32_t lists[TM_SHARED_MODULES]; /* number of a module's first block */
	_Atomic uint32_t blocks_used;
};
_Static_assert(sizeof(struct tm_rule_block) == TM_SHM_PAGE, "a list's memory is used page by page");

/* FREE -> (guest, compare-and-swap) CLAIMED -> ACTIVE -> (guest, thread end) CLOSED -> (collector, when drained) FREE.
 * A guest fills in the header between CLAIMED and ACTIVE. A process that dies leaves its rings as they are; the collector drains and frees them. */
enum tm_ring_state { TM_RING_FREE = 0, TM_RING_CLAIMED = 1, TM_RING_ACTIVE = 2, TM_RING_CLOSED = 3 };

struct tm_ring {
	_Atomic uint32_t state;
	uint32_t process; /* process number (tm_shm.next_process) */
	uint32_t pid, tid; /* tid 0: not known */
	uint32_t thread;  /* number of the thread within the process, from 1: a thread that needs a second ring keeps it */
	uint32_t padding;
	uint64_t start_ticks;
	_Atomic uint32_t generation; /* grows with every claim */

	_Alignas(64) _Atomic uint64_t head; /* bytes ever written; the producer's */
	_Atomic uint32_t busy;              /* 1: an event is being stamped or written, its time is not known yet */
	_Atomic uint32_t modules_begun;     /* so often MODULE and UNLOAD records were about to be written here: the collector looks for them */
	_Atomic uint64_t lost_events;       /* of this claim: ring full and nobody drained; a realloc is two */
	_Atomic uint64_t lost_bytes;        /* bytes those events allocated */
	_Atomic uint64_t nested_lost;       /* events of signal handlers that interrupted us and did not fit the side buffer */
	_Atomic uint32_t walking;           /* 1: the thread reads the Python interpreter's memory (guest/python.h) */
	_Atomic uint32_t modules_ended;     /* and so often they had been: as modules_begun when none are under way */
	_Atomic uint64_t lost_records;      /* of this claim, that are no event: scopes, marks, ends, ... */
	_Atomic uint32_t nested_kept; /* events of such handlers in the side buffer: lost where the program ends before the hook leaves */

	_Alignas(64) _Atomic uint64_t tail; /* bytes ever read; the collector's */
	_Atomic uint32_t waiting;           /* futex: 1 while the producer waits for room; the collector sets 0 and wakes */
	_Atomic uint32_t skips;             /* of this claim: stretches that made no sense; what the producer wrote up to there is not known */
	_Alignas(64) uint8_t reserved[64];
};
_Static_assert(sizeof(struct tm_ring) == 256, "four cache lines");

/* Records in a ring. Positions are multiples of 8; a record never wraps: where it would, PAD fills the ring up to its end.
 * Every record starts with one word:   op:8 | flags:8 | words:16 (of the whole record) | x:16 | y:16   (op in the lowest byte)
 * and a second word, ticks. op is enum tm_op, or a control op below. Then, in words:
 *
 *   alloc, map   addr size pcs...                     x = frames kept, y = what the block can hold (tm_ring_usable()), TM_RING_USABLE_UNKNOWN if unknown
 *   free         addr
 *   realloc      addr size begin_ticks old pcs...     x, y as above
 *   unmap        begin_ticks old old_size
 *   remap        addr size begin_ticks old old_size pcs...
 *   text         bytes, padded with 0                 y = byte length; the ops below 0xD0
 *   oom          heap size result free total pcs...   heap: a number or 0; free, total: ~0 unknown; x = frames kept, y = the op that stands for the function;
 *                                                     result: from bit 32 on, how many of the innermost frames are the driver's
 *   launch, use  a b                       no stack. launch: correlation id, 0; y = the driver's callback id. use: address, correlation id
 *   scope        key link bytes, padded with 0        y = byte length of the name, x = enum tm_scope_category or a CATEGORY's number; 0xD0 to 0xDF
 *
 * alloc, free, realloc with TM_RING_HEAP: one word more before the frames (free: at the end), the number of a heap that a HEAP record announced.
 * alloc by the CUDA driver: y = how many of the innermost frames are the driver's and CUPTI's. They are no part of the block's stack, and what the
 * next record keeps may hold them.
 *
 * Stack: the x outermost frames of the thread's previous stack in this ring, then `pcs` new ones inside them, outermost first. Return addresses. A
 * record with TM_RING_NO_STACK has none and leaves the previous stack as it was. The first record of a ring has x = 0, and so has the first after a loss, and
 * one after the producer has seen that `skips` grew; what the ring has learned is forgotten then.
 * With TM_RING_LEARN the ring learns the stack: its number is one more than that of the last one learned, from 0 on. With TM_RING_KNOWN the stack is one that
 * was learned: x is its number, and no frames follow. It is the previous stack of the next record, as any other.
 */
#define TM_RING_USABLE_UNKNOWN 0xffffu
#define TM_RING_NO_STACK 1u /* flag: no stack was taken */
#define TM_RING_CUT 2u      /* flag: deeper than max_depth; outer frames are missing */
#define TM_RING_PART 4u     /* flag of a stack: its outermost frame is not where the thread began: outer ones are missing, or it is a coroutine's */
#define TM_RING_HEAP 8u     /* flag: the block lies in an explicit heap */
#define TM_RING_PYTHON 16u  /* flag: the stack is to be merged with the thread's Python stack, the last PYTHON_STACK of this ring */
#define TM_RING_KNOWN 32u       /* flag: the stack is the one that this ring has learned by the number x; no frames follow */
#define TM_RING_KNOWN_MOST 65536u      /* learned stacks of a ring, */
#define TM_RING_LEARN 64u       /* flag: this ring learns the stack, by the next number, */
#define TM_RING_LEARN_FIRST 128u /* flag: ... which is 0: those that were learned are forgotten */
#define TM_RING_MORE 4u     /* flag of INFO, MODULE, EXEC, NOTE, PYTHON_CODE: the text goes on in the next record of the same op and x */

#define TM_RING_ALLOC_WORDS 4u
#define TM_RING_FREE_WORDS 3u
#define TM_RING_REALLOC_WORDS 6u
#define TM_RING_UNMAP_WORDS 5u
#define TM_RING_REMAP_WORDS 7u
#define TM_RING_OOM_WORDS 7u
#define TM_RING_FUNCTION 0x8000u /* in the y of an OOM: below it stands the driver's number of a function, else y is an op */
#define TM_RING_NAME_SLOTS 2048u /* names of activities that a ring can say again by a number */
#define TM_RING_TEXT_MAX 4096u /* bytes of text in one record */

/* So many frames there may be in all stacks that the ring of a process's first thread has learned, or that of another one. */
static inline uint32_t tm_ring_known_frames(uint32_t thread) {
	return thread <= 1 ? 1u << 18 : 1u << 15;
}

static inline uint64_t tm_ring_word(unsigned op, unsigned flags, unsigned words, unsigned x, unsigned y) {
	return (uint64_t)op | (uint64_t)flags << 8 | (uint64_t)words << 16 | (uint64_t)x << 32 | (uint64_t)y << 48;
}

/* What a block of `size` bytes can hold. Of a new block of glibc's y is the lower part of the word in front of it as it stands: the size of all that it takes,
 * 8 bytes more than it can hold, with flags in the lowest three bits; the one for 2, which says that it is a mapping, is never set, and there are less than
 * 65,536 bytes more than were asked for. With that bit, the bits around it are how many more. */
#define TM_RING_USABLE_MORE 2u
static inline uint64_t tm_ring_usable(uint64_t size, unsigned y) {
	return size + (y & TM_RING_USABLE_MORE ? y >> 2 << 1 | (y & 1) : (uint16_t)((y & ~7u) - 8 - size));
}

static inline unsigned tm_ring_usable_word(uint64_t size, uint64_t usable) {
	uint64_t more = usable - size;
	if (more < INT16_MAX) return (unsigned)(more >> 1 << 2 | TM_RING_USABLE_MORE | (more & 1));
	return more <= UINT16_MAX && usable % 8 == 0 ? (uint16_t)(usable + 8) : TM_RING_USABLE_UNKNOWN;
}

/* Control records. All start with the word and ticks. Texts: y = byte length, padded with 0 to a word.
 *
 *   PROCESS       pid ppid parent_number flags   the process begins: first record of its first ring. pid: as its /proc has it, 0 if not known (the
 *                                                ring has its own view). parent_number: process number of the one that forked it, 0 if not
 *                                                known (exec, start). flags: enum tm_process_flag, and from bit 32 the number of the pid
 *                                                namespace, 0 if not known
 *   INFO          text                      x = enum tm_info_key; follows PROCESS
 *   MODULE        bias low size text        text = build-id bytes (x = how many) then path
 *   UNLOAD        low size
 *   FORK          child_pid                 in the parent, after fork returned; x = TM_EXEC_CONFINED: the child cannot record itself, else 0
 *   EXEC          pid, text                 about to exec; x = enum tm_exec_class, text = resolved path. In a vfork child this comes in the parent's ring
 *   EXEC_FAILED   pid                       and it did not happen
 *   SPAWN         child_pid                 posix_spawn returned it
 *   WAIT          child_pid status          a wait call of the program reaped it; status as of wait(2); x = 1: the program traces others, whose threads' ends
 *                                           it is told of as well, and those of processes that are not its children
 *   EXIT_BEGIN    (none)                    main returned, exit was called, the interpreter that is the program finalizes; the first one counts
 *   EXIT          status                    _exit and its kin
 *   NOTE          text                      text = kind, NUL, sentence; x = 1: the closing summary says that allocations are missing
 *   THREAD_END    text                      the thread's name
 *   PAD           (no ticks)                nothing; the rest of the ring up to its end, at least one word
 *   THREAD_NAME   text                      its name now
 *   CATEGORY      text                      x = a number from TM_SCOPE_CATEGORY_OWN on; what the category column shows ("nvtx:DOMAIN")
 *   HEAP          number parent device text x = byte length of the name; text = name then kind. number: the process's own, from TM_HEAP_NUMBER_OWN on;
 *                                           parent: such a number, or enum tm_heap_number, 0 none; device: number + 1, 0 none
 *   POOL          heap allocated reserved active inactive   bytes of a pool as its allocator tells them, ~0: unknown
 *   STATS         slot text                 a question (struct tm_stats_slot); text = name of the heap
 *   PYTHON_RUN    low high                  the interpreter's code that runs Python functions: native frames in it stand for Python frames. x = how many
 *                                           such ranges it has before this one; 0: those of the ring's last interpreter hold no more. low = high: none
 *   PYTHON_CODE   number lines text         a code object by its number in this ring (numbers begin anew with the ring):
 *                                           lines = first line | enum tm_python_lines << 32; x = byte length of the file name; text = file name,
 *                                           qualified name, NUL, line table. In several pieces where it is long
 *   PYTHON_STACK  frames...                 x = outer frames kept from the last one of this ring, y = frames that follow, innermost first. A frame:
 *                                           code number | byte offset of its instruction << 32 | 1 << 63 if native code called it
 *   ACTIVITY      start end place size address who text   x = kind | direction << 8; place = device | stream << 32 (~0 each: unknown);
 *                                           who = correlation id | name slot << 32; text = the name, which the slot then stands for in this ring;
 *                                           none with a slot: the name that it was told last. Of kind call: address = the function's op, no text
 *   DEVICE        device total text         total: ~0 unknown; x = byte length of the uuid; text = uuid, name
 *   LOST          count text                what a source of records lost before we saw it; text = kind, NUL, reason
 */
enum tm_control_op {
	TM_CTL_PROCESS = 0xE0,
	TM_CTL_INFO = 0xE1,
	TM_CTL_MODULE = 0xE2,
	TM_CTL_UNLOAD = 0xE3,
	TM_CTL_FORK = 0xE4,
	TM_CTL_EXEC = 0xE5,
	TM_CTL_EXEC_FAILED = 0xE6,
	TM_CTL_SPAWN = 0xE7,
	TM_CTL_WAIT = 0xE8,
	TM_CTL_EXIT_BEGIN = 0xE9,
	TM_CTL_EXIT = 0xEA,
	TM_CTL_NOTE = 0xEB,
	TM_CTL_THREAD_END = 0xEC,
	TM_CTL_THREAD_NAME = 0xED,
	TM_CTL_PAD = 0xEE,
	TM_CTL_CATEGORY = 0xEF,
	TM_CTL_HEAP = 0xF0,
	TM_CTL_POOL = 0xF1,
	TM_CTL_STATS = 0xF2,
	TM_CTL_PYTHON_RUN = 0xF3,
	TM_CTL_PYTHON_CODE = 0xF4,
	TM_CTL_PYTHON_STACK = 0xF5,
	TM_CTL_ACTIVITY = 0xF6,
	TM_CTL_DEVICE = 0xF7,
	TM_CTL_LOST = 0xF8,
};

enum tm_heap_number { TM_HEAP_NUMBER_MALLOC = 1, TM_HEAP_NUMBER_MMAP = 2, TM_HEAP_NUMBER_MMAP_FILE = 3, TM_HEAP_NUMBER_OWN = 16 };
/* How a code object's line table is written: co_lnotab (to 3.9), co_linetable of 3.10, co_linetable from 3.11 on. */
enum tm_python_lines { TM_PYTHON_LNOTAB = 0, TM_PYTHON_LINES_310 = 1, TM_PYTHON_LOCATIONS = 2 };
/* Bytes of a line table in the ring, as the collector takes 4 MiB of one record. A longer one is cut between two of its entries: lines behind are not known. */
#define TM_PYTHON_TABLE_MAX (3u << 20)

enum tm_info_key {
	TM_INFO_EXE = 1,
	TM_INFO_COMMAND = 2 /* arguments joined by NUL */,
	TM_INFO_ENV = 3 /* NAME=VALUE, variables of ranks and worlds only */
};

/* What an exec target is, as the guest sees it before the call. */
enum tm_exec_class {
	TM_EXEC_NATIVE = 0,    /* dynamic, our word size and libc: it will be recorded */
	TM_EXEC_STATIC = 1,    /* no interpreter: cannot be preloaded */
	TM_EXEC_FOREIGN = 2,   /* another word size or machine (a 32-bit child) */
	TM_EXEC_MUSL = 3,      /* another libc's loader */
	TM_EXEC_SETUID = 4,    /* the loader ignores preloads there */
	TM_EXEC_UNKNOWN = 5,   /* could not be read */
	TM_EXEC_SANITIZED = 6, /* needs a library that bears none before it (sanitizer.h) */
	TM_EXEC_CONFINED = 7,  /* no image: forked behind a filter of system calls, it cannot have a ring */
	TM_EXEC_UNSEEN = 8,    /* where it lies is not known before it runs, so neither what it bears */
	TM_EXEC_FILTERED = 9,  /* it runs behind a filter of system calls that kills for calls of ours (guest/call_filter.h) */
};

/* Into these nothing is preloaded: the loader would complain, or the program would not start. */
static inline _Bool tm_exec_bears_no_preload(enum tm_exec_class class) {
	return class == TM_EXEC_FOREIGN || class == TM_EXEC_MUSL || class == TM_EXEC_SANITIZED || class == TM_EXEC_UNSEEN ||
	       class == TM_EXEC_FILTERED;
}

#endif
