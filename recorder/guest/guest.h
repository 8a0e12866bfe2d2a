/* guest.h - what the files of the guest library share.
 *
 * Flow:     hooks (malloc_hooks.c, map_hooks.c, process_hooks.c) -> tm_hook_enter() -> stack.c -> emit.c -> ring (../shm.h) -> collector
 * Owns:     one struct tm_thread a thread (private mapping), one struct tm_guest a process.
 * Threads:  a tm_thread belongs to its thread alone; tm_guest is written once while the process is single-threaded, or atomically.
 * Never:    exits, aborts, calls malloc or stdio, changes errno, holds a lock of ours while calling into the loader,
 *           installs a signal handler. Every symbol is hidden but the hooks and the API of tidemark.h.
 *
 * A hook looks like this:
 *
 *     void *mmap(...) {
 *             struct tm_thread *t = tm_hook_enter();
 *             void *at = real.mmap(...);
 *             if (t) {
 *                     if (at != MAP_FAILED) tm_emit_map(t, TM_OP_MMAP, at, size, TM_FRAME);
 *                     tm_hook_leave(t);
 *             }
 *             return at;
 *     }
 *
 * The hooks of malloc and free have the same steps inlined (hot.h).
 * Between enter and leave the thread is marked, so that what we or the real function call is not recorded as the program's.
 */
#ifndef TIDEMARK_GUEST_H
#define TIDEMARK_GUEST_H

#include "../shm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define TM_EXPORT __attribute__((visibility("default")))
#define TM_HIDDEN __attribute__((visibility("hidden"))) /* of a variable's declaration: it is reached without the global offset table */
/* glibc's malloc() bears a stack that is 8 bytes off (hand-written code, old code generators), so it is borne here: what the hooks call out of line and that
 * may keep vectors on the stack, which need 16, aligns it. */
#if defined(__x86_64__)
#define TM_REALIGN __attribute__((force_align_arg_pointer))
#else
#define TM_REALIGN
#endif
#define TM_ENTRY TM_HIDDEN __attribute__((used)) TM_REALIGN /* of code in assembler (sandbox_hooks.c) */
#define TM_EXPORT_ALIGNED TM_EXPORT TM_REALIGN              /* a hook that takes no stack does so itself */
#define TM_COLD __attribute__((cold, noinline)) TM_REALIGN
#define TM_HOT __attribute__((hot)) /* what nearly every event runs through: it lies together, apart from the rest */
/* Of a zeroed variable of hundreds of bytes and more: it lies apart from the small ones (the Makefile), which are then on two pages that every program
 * touches, instead of on fifteen. */
#define TM_ROOMY __attribute__((section(".bss.roomy")))
#define TM_LINE_BYTES 64u
#define TM_LIKELY(x) __builtin_expect(!!(x), 1)
#define TM_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* The hook's own frame record: [0] is the frame pointer of the caller, [1] the return address, which is the innermost frame of the recorded stack; on
 * x86-64 the caller's stack begins behind it. Use it in the exported hook itself, which must not end in a tail call that is given it. */
#define TM_FRAME __builtin_frame_address(0)

#define TM_DEPTH_LIMIT 4096u /* no --max-depth goes beyond this */
#define TM_EPOCH_QUIET 0xffffffffu   /* record nothing any more: the collector is gone or has closed the session */
#define TM_EPOCH_ADOPTING 0xfffffffeu /* a fork's child is becoming a process of its own */
#define TM_EPOCH_NEVER 0xfffffffdu    /* of a thread, never of a process: each event goes the slow way in */
#define TM_EPOCH_STOPPED 0x40000000u  /* flag beside the process number: tidemark_stop() */
#define TM_HEAPS_MAX 512u     /* explicit heaps of a process, and scope categories of its own (heaps.h) */
#define TM_CATEGORIES_MAX 256u
#define TM_NESTED_MAX 64u    /* events of signal handlers that interrupted a hook, kept until it leaves */

struct tm_nested {
	uint64_t ticks; /* 0: nothing has been written here */
	uint64_t addr, size;
	uint32_t heap; /* 0: the op says which */
	uint8_t op;
};

/* A thread's private state. Made at its first event, unmapped when it ends. It begins a page; what every event touches is its first cache line (hot.h), what
 * every stack touches the next one. */
struct tm_thread {
	struct tm_ring *ring;
	uint8_t *at;        /* where the next record goes */
	uint8_t *limit;     /* that may grow to this without a look: at most to `seen`, and never beyond the ring's end */
	uint64_t bias;      /* from there to how many bytes were written, as ring->head says it: tm_position() */
	uint64_t last_ticks;
	uint32_t process;   /* the process number this state was made for */
	uint32_t epoch;     /* the epoch page's word as this thread knows it */
	bool at_leave;      /* something is to be done when the hook leaves: nested events, the thread has ended, Python begins */
	bool samples;       /* some allocations are not recorded: --sample, or none is for now */
	bool takes_stacks;  /* not --stacks=off */
	bool after_loss;    /* the next record carries its whole stack (tm_note_loss()) */
	bool after_skip;    /* and nothing that was said in this ring is known any more */

	_Alignas(TM_LINE_BYTES) uintptr_t stack_low, stack_high; /* the thread's own stack; 0 until known */
	uintptr_t *pcs;     /* the last stack taken, outermost first: to keep its k outer frames is to keep a prefix */
	uintptr_t *sps;     /* unwind.c's: where in memory each of them lies; [-1] is the end of memory */
	struct tm_check *checks;
	uint32_t check_count;
	uint32_t depth;     /* of the last stack taken */
	uint32_t remembered;  /* unwind.c's: frames that the next stack can be compared with, all or none */
	uint32_t cut_frame;   /* beyond it frames are missing or guessed; UINT32_MAX: nowhere */
	uint32_t framed_low;

	_Alignas(TM_LINE_BYTES) struct tm_known *known_expected; /* unwind_known.h's: which came last after the two before */
	struct tm_known *known; /* the last stack taken, if it is a known one: `pcs` is another then; else NULL */
	struct tm_knowns *knowns;
	uint32_t *known_next; /* where what comes is noted */
	uint32_t known_last;  /* what came before: its part of that place */
	uint32_t known_hits, known_misses; /* stacks, since it was looked at whether that is of use */
	uint32_t known_count;
	union {
		struct {
			uint32_t rules_version, modules_version; /* tm_versions at its last stack; after a loss another one of the modules */
		};
		uint64_t versions;
	};

	_Alignas(TM_LINE_BYTES) uint8_t *framed;       /* unwind.h */
	struct tm_pair *pairs; /* what lies at and below where `sps` point: --stacks=fp all, else from framed_low inward */
	struct tm_routes *routes; /* unwind_route.h's: ways that were gone */
	struct tm_route *route_expected, *route_second; /* which came last after the two that were gone last, and which before that */
	uint32_t *route_next;                           /* where that is noted */
	uint32_t route_last;                            /* which was gone last: its part of that place */
	uint32_t routes_mask;                           /* of the places that are in use */
	struct tm_python_thread *python; /* python.h: NULL until the thread is seen in Python */
	uint32_t capacity;  /* frames `pcs` and `sps` can hold */
	uint8_t truncated;    /* deeper than the depth limit; or TM_INTERRUPTED (unwind.h): not to be gone over quickly */
	bool by_frame_pointers; /* --stacks=fp */
	bool is_part;           /* the last stack is as TM_RING_PART says */
	uint8_t routes_learned;  /* how many, so far as that matters; 0: none */
	uint8_t routes_wait, routes_wait_left; /* so many misses go by before the next one is learned */
	uint8_t routes_refused;                /* counts routes that were to be learned */
	struct tm_trunk *known_trunk;
	size_t known_bytes, known_open; /* of what `knowns` points to, and so many of them can be written */
	uint32_t known_used, known_frames; /* units; frames of all of them */
	uint32_t known_returns, known_looks;
	uint32_t known_wait, known_wait_left; /* so many stacks go by before one is learned */
	uint32_t known_nowhere;

	bool named;         /* the program has said what the thread is called */
	bool begun;         /* the event on its way is stamped already: tm_begin() */
	bool stopped;       /* tidemark_stop(): no allocation is recorded */
	uint8_t *data;      /* the ring's bytes */
	uint64_t mask;      /* ring bytes - 1 */
	uint64_t seen;      /* so many may be written before the collector's position is read again */
	uint64_t touched;   /* bytes of the ring whose pages are mapped */
	uint32_t skips;     /* ring->skips, when it was read */
	uint32_t number;    /* of the thread within the process */
	uint32_t end_rounds; /* rounds of pthread-key destructors seen */
	bool ended;          /* the last round is over: this state serves one hook and is closed */
	_Atomic uint32_t nested_count;
	uint32_t nested_before; /* what was kept and lost at the last call of the malloc family inside of another hook */
	struct tm_nested nested[TM_NESTED_MAX];
	uintptr_t stack_least; /* what lies below is not the thread's own stack, as far as the thread's descriptor says; 0: nobody asked */
	bool stack_grows;   /* downwards, as the main thread's does */
	bool stack_is_whole; /* nothing more has to be found out about it */
	uint64_t random;    /* --sample: state of the generator */
	bool has_anothers_distance; /* the one to the next sample is that of whom the thread was copied from, or of its own former state */
	uint64_t heaps_told[TM_HEAPS_MAX / 64], categories_told[TM_CATEGORIES_MAX / 64]; /* bits: this ring says what the number means (heaps.c) */
	const void *aligned;   /* the block of the last aligned allocation, where the ring stood after its record, and the flags of that (emit_heap.c) */
	uint64_t aligned_pos;
	uint32_t aligned_flags;
	/* the arrays follow */
};

/* The process. Zero means: not attached, every hook goes straight to the real function. */
struct tm_guest {
	/* What every event reads is the first cache line. */
	_Alignas(TM_LINE_BYTES) struct {
		void *(*malloc)(size_t);
		void *(*calloc)(size_t, size_t);
		void *(*realloc)(void *, size_t);
		void (*free)(void *);
	} hook;                   /* malloc_hooks.c */
	_Atomic uint32_t *epoch;  /* in a MADV_WIPEONFORK page: the process number, or with TM_EPOCH_STOPPED; 0 in a fork's child; TM_EPOCH_QUIET */
	const uintptr_t *_Atomic python_flag; /* not 0: the interpreter may finalize: python_finalizing is asked (process.h) */
	uint8_t *_Atomic own_base; /* own_memory.h */
	uint32_t clock;           /* enum tm_clock_kind */
	_Atomic bool reads_chunks; /* what the allocator gave stands in front of a block (real.c), */
	_Atomic bool is_usual;     /* and the clock is TM_CLOCK_TSC */
	bool samples_straight;    /* --sample, and what is no sample goes straight to the allocator (malloc_hooks.c) */
	bool maps_for_itself;     /* the allocator is none but that: what its code maps is its own (real.c) */
	_Atomic bool python_stacks; /* there is a Python in this process, and something is to be done with its stacks (python.h) */

	_Atomic(int (*)(void)) python_finalizing; /* process.h */
	struct tm_shm *shm;       /* header and ring headers, mapped shared */
	uint64_t mapped_bytes;    /* of shm */
	uint8_t *slab;            /* a few rings' data, mapped from the start (attach.c); NULL: none */
	uint64_t slab_bytes;
	uint32_t slab_first;      /* index of its first ring */
	char session_path[256];   /* as the environment has it */
	char session_file[256];   /* what to open of that, */
	uint64_t session_inode;   /* and which file it must be; 0: it has a name of its own */
	bool epoch_stays;         /* this kernel does not wipe pages on fork: fork() clears the word in the child (process_hooks.c) */
	bool is_inspected;        /* by a tool that reports what we read as the program's errors: nothing is recorded (hook.c) */
	uint32_t process;         /* process number */
	uint32_t parent_process;  /* of the process that forked us, 0 if exec'd or first */
	_Atomic uint32_t next_thread;
	_Atomic uint32_t stopped;   /* 1: tidemark_stop(); a fork's child inherits it */
	_Atomic uint32_t sandboxed; /* filters of system calls that the program set or asks for at this moment: we make no call then (sandbox_hooks.c) */
	uint32_t pid;
	uintptr_t text_low, text_high;   /* our own code: never a frame */
	uintptr_t allocator_low, allocator_high; /* code of the allocator behind us, where that is not libc's (real.c): see tm_is_allocators() */
	uintptr_t main_low, main_high;   /* code of the wrapper around main: it and what lies outside it are never frames */
};

extern struct tm_guest tm_guest TM_HIDDEN;

/* Does this address lie in the code of another allocator than libc's? */
static inline bool tm_is_allocators(const void *caller) {
	return (uintptr_t)caller - tm_guest.allocator_low < tm_guest.allocator_high - tm_guest.allocator_low;
}

/* --- hook.c: state of the calling thread --- */

enum tm_exec_room { TM_EXEC_ROOM_TARGET, TM_EXEC_ROOM_ENVIRONMENT, TM_EXEC_ROOMS };

/* A thread's own variables. Zero is a valid start: hooks run before any constructor. */
struct tm_tls {
	_Alignas(TM_LINE_BYTES) struct tm_thread *thread;
	uintptr_t inside; /* the frame of the hook that the thread is in, 0: none */
	uint64_t sample_spare; /* --sample: bytes that may be allocated before it is looked whether a sample comes; 0 without --sample */
	uint64_t sample_rest;  /* and so many behind those before the one that is a sample (sample.h) */
	uint32_t ours;    /* depth of tm_ours_begin() */
	bool frees_are_told; /* while `ours` is 1, blocks that are freed or resized may be the program's (tm_causes_begin()) */
	uint32_t number;  /* of the thread in process `process` */
	uint32_t process;
	bool sample_is_drawn; /* the two numbers above are a distance that was drawn */
	bool was_unsampled; /* the call that the process was attached in came by a hook that records every one, and is to come again (malloc_hooks.c) */
	bool ended;       /* the last round of key destructors is over, but libc still frees what it kept for the thread */
	bool saying;      /* what it is about to record is no event: tm_hook_enter_to_say() */
	bool exec_is_open; /* it said that the process execs, and may have been a vfork child that could not ask for its own pid (exec_hooks.c) */
	uint32_t told_child; /* whom it made was told of further in: a library behind ours may make its children by another hook */
	void *exec_rooms[TM_EXEC_ROOMS]; /* exec_hooks.c's memory */
	_Atomic uint32_t
		confined_child; /* the pid of a vfork child that runs on this thread's stack and restricted itself; TM_CHILD_FLAGS (sandbox_hooks.c) */
};
#define TM_NO_CLOCK (1u << 31)
#define TM_NO_PRELOAD (1u << 30) /* its filter kills for calls of ours (call_filter.h) */
#define TM_CHILD_FLAGS (TM_NO_CLOCK | TM_NO_PRELOAD)

extern __thread struct tm_tls tm_tls TM_HIDDEN __attribute__((tls_model("initial-exec")));

/* The calling thread's state, marked as inside; NULL: call the real function and do nothing else (not attached, quiet, or
 * nested inside another hook). Makes the thread's ring at its first event and notices that it runs in a fork's child. */
struct tm_thread *tm_hook_enter(void);
void tm_hook_leave(struct tm_thread *t);
/* The same for a record that is no event of the program's memory: nothing is lost where there is no ring for it. */
struct tm_thread *tm_hook_enter_to_say(void);
/* The calling thread is in a signal handler that came while it was inside of a hook. */
bool tm_is_in_handler(void);
void tm_lost_in_handler(void); /* where it is: what it tells, no allocation or free, cannot be written and is counted */
/* The calling thread or process ends: a hook that a signal handler has interrupted is not returned to, and what it was at is forgotten. */
void tm_hook_leave_behind(void);
/* In a fork's child, which a signal handler may have made in the middle of a hook: that goes on when the handler returns, and records nothing. */
void tm_hook_abandon(void);
/* Where the calling thread's value of the one pthread key lies that has this value, for as long as there is that key; NULL: it is the value of several or none,
 * or nobody can tell. */
void *const _Atomic *tm_place_of_key_value(const struct tm_thread *t, const void *value);
/* Marks the thread as doing work of ours that may call malloc, mmap, fork ... through the hooks: they pass straight through, and memory comes
 * from own_memory.h. Nests. Never around code of the program's, but for tm_causes_begin(). */
void tm_ours_begin(void);
void tm_ours_end(void);
bool tm_is_ours(void);

/* No system call may be made: the process or the vfork child that runs here has restricted its own (sandbox_hooks.c). */
static inline bool tm_is_sandboxed(void) {
	return TM_UNLIKELY(atomic_load_explicit(&tm_guest.sandboxed, memory_order_relaxed) != 0) ||
	       TM_UNLIKELY(atomic_load_explicit(&tm_tls.confined_child, memory_order_relaxed) != 0);
}

/* The same around code of the program's that needs memory because of us: what it frees may have been allocated before, so those frees are recorded. */
void tm_causes_begin(void);
void tm_causes_end(void);

/* --- environment.c --- */
char **tm_environment(void); /* as environ, also before libc has set that; NULL: none */
const char *tm_environment_value(const char *name);
bool tm_environment_set(const char *name, const char *value); /* false: out of memory */
void tm_environment_remove(const char *name); /* what is not there stays so */

/* --- clock.c --- */
uint64_t tm_ticks(void);           /* now */
uint64_t tm_clock_ns(clockid_t clock); /* the kernel's, whatever clock_gettime() the program has */
uint64_t tm_ticks_of_kernel(void); /* now, where ticks are the kernel's nanoseconds */

/* --- malloc_hooks.c --- */
void tm_malloc_hooks_attached(void); /* the session is known, and the allocator: the set of hooks for both, from now on */
void tm_malloc_hooks_stop(bool stop);

/* --- emit.c: records into the ring. Each is called between enter and leave. None changes errno. ---
 * `frame` is TM_FRAME of the hook; the stack is taken here. A begin stamp comes from tm_begin(), which also tells the collector that
 * an event is on its way; the emit call ends that, tm_cancel() does when the call failed. */
uint64_t tm_begin(struct tm_thread *t);
void tm_cancel(struct tm_thread *t);
void tm_emit_alloc(struct tm_thread *t, enum tm_op op, const void *addr, size_t size, const void *frame); /* whatever --sample says */
void tm_emit_free(struct tm_thread *t, enum tm_op op, const void *addr, uint64_t begin);
void tm_emit_realloc(struct tm_thread *t, enum tm_op op, const void *addr, size_t size, const void *old, uint64_t begin, const void *frame);
void tm_emit_map(struct tm_thread *t, enum tm_op op, const void *addr, size_t size, const void *frame);
void tm_emit_unmap(struct tm_thread *t, enum tm_op op, const void *old, size_t old_size, uint64_t begin);
void tm_emit_remap(struct tm_thread *t, const void *addr, size_t size, const void *old, size_t old_size, uint64_t begin, const void *frame);
void tm_emit_text(struct tm_thread *t, enum tm_op op, const char *text, size_t n);
/* A control record of shm.h: `words` behind the ticks, then text (cut into pieces of TM_RING_TEXT_MAX with TM_RING_MORE where it is long). False: it is
 * lost. */
bool tm_emit_control(struct tm_thread *t, enum tm_control_op op, unsigned flags, unsigned x, const uint64_t *words, unsigned word_count,
		     const char *text, size_t n);
void tm_emit_note(struct tm_thread *t, const char *kind, const char *text); /* a NOTE: kind, NUL, text */

/* --- emit_scope.c, emit_heap.c: the same for scopes and for blocks of explicit heaps (heaps.h gives their numbers) ---
 * `op` is a scope op of ../schema/kinds.h; category, key and link as schema/format.md has them, name NULL with n 0 where there is none. Names are cut at
 * TM_RING_TEXT_MAX bytes. */
void tm_emit_scope(struct tm_thread *t, enum tm_op op, unsigned category, uint64_t key, uint64_t link, const char *name, size_t n);
void tm_emit_heap_alloc(struct tm_thread *t, enum tm_op op, uint32_t heap, const void *addr, uint64_t size, const void *frame);
void tm_emit_heap_free(struct tm_thread *t, enum tm_op op, uint32_t heap, const void *addr); /* before the block is given back */
void tm_emit_heap_realloc(struct tm_thread *t, enum tm_op op, uint32_t heap, const void *addr, uint64_t size, const void *old, uint64_t begin,
			  const void *frame);
struct tm_pool_numbers { /* bytes; ~0: unknown */
	uint64_t allocated, reserved, active, inactive;
};
void tm_emit_pool_state(struct tm_thread *t, uint32_t heap, const struct tm_pool_numbers *n);
void tm_emit_pool(struct tm_thread *t, uint32_t heap, uint64_t allocated, uint64_t reserved); /* ~0: unknown */

/* --- process_info.c --- */
/* Emits PROCESS, INFO (exe, command, rank variables) and the notes about this process: first thing in its first ring. */
void tm_process_announce(struct tm_thread *t);

/* --- modules.c --- */
void tm_modules_refresh(struct tm_thread *t); /* emits MODULE and UNLOAD for what changed since the last call; takes the loader's lock */
/* How many the loader had listed at the first: those that the program began with, which stay the first of its list. 0: not known, as constructors came before
 * us (attach_self.c), and may have loaded others. */
size_t tm_modules_at_first(void);
void tm_modules_joined_late(void);
void tm_modules_forget(void);                 /* in a fork's child: everything is to be emitted again */
/* What a stack was taken with, both at once: every stack asks whether they are what they were at the one before. */
union tm_versions {
	struct {
		_Atomic uint32_t rules;   /* unwind_rule.h */
		_Atomic uint32_t modules; /* of the list of those that were emitted; odd: it is in change */
	};
	_Atomic uint64_t both;
};
extern union tm_versions tm_versions TM_HIDDEN;
/* Pages of code found lately in modules that were emitted, each with the version of the list it was found in. */
#define TM_MODULES_PAGES 256u
extern _Atomic uint64_t tm_modules_pages[TM_MODULES_PAGES] TM_HIDDEN;

static inline uint64_t tm_modules_page_key(uintptr_t pc, uint32_t version) {
	return (uint64_t)(pc / TM_SHM_PAGE) << 16 | (uint16_t)version;
}

static inline _Atomic uint64_t *tm_modules_page(uintptr_t pc) {
	return &tm_modules_pages[pc / TM_SHM_PAGE % TM_MODULES_PAGES];
}

/* A record was lost, or what the thread was writing: the collector does not know its last stack, perhaps. */
static inline void tm_note_loss(struct tm_thread *t) {
	t->after_loss = true;
	t->modules_version = ~atomic_load_explicit(&tm_versions.modules, memory_order_relaxed);
}

bool tm_modules_look(uintptr_t pc); /* the same, by searching */

/* True if pc lies in a module that was emitted. Lock-free; called for new frames, with that version as it was before. */
static inline bool tm_modules_know(uintptr_t pc, uint32_t version) {
	return TM_LIKELY(atomic_load_explicit(tm_modules_page(pc), memory_order_relaxed) == tm_modules_page_key(pc, version)) || tm_modules_look(pc);
}
/* What names this address in every process of the recording (shared_rules.h); 0: nothing does. Lock-free. */
uint64_t tm_modules_key(uintptr_t pc);
/* The module that holds pc, and its .eh_frame_hdr; false: none does that was emitted. Lock-free. */
bool tm_modules_find(uintptr_t pc, uintptr_t *low, uintptr_t *high, uintptr_t *frames_header);

/* --- stack.c --- */
/* A stack as its difference to the one taken before: of that, the `keep` outermost frames are unchanged, and `fresh` ones lie inside of them. */
struct tm_stack {
	uint32_t keep, fresh;
	bool cut;      /* frames are missing, or were guessed */
	bool unlisted; /* a new frame may lie in a module that was not announced yet */
};
/* Takes the stack of the calling thread into t->pcs (t->depth = keep + fresh); `frame` is TM_FRAME of the hook, whose return address is innermost; `valid`
 * frames of the last one still hold (unwind.h), 0 if nobody looked. */
struct tm_stack tm_stack_take(struct tm_thread *t, const void *frame, uint32_t valid);

/* --- real.c: the functions behind the hooks --- */
struct tm_real {
#define TM_REAL_FUNCTIONS(X) \
	X(void *, malloc, (size_t)) X(void, free, (void *)) X(size_t, malloc_usable_size, (void *)) X(void *, calloc, (size_t, size_t)) \
	X(void *, realloc, (void *, size_t)) X(int, posix_memalign, (void **, size_t, size_t)) \
	X(void *, aligned_alloc, (size_t, size_t)) X(void *, memalign, (size_t, size_t)) X(void *, valloc, (size_t)) \
	X(void *, pvalloc, (size_t))
#define X(result, name, arguments) result(*name) arguments;
	TM_REAL_FUNCTIONS(X)
#undef X
};
extern _Alignas(TM_LINE_BYTES) struct tm_real tm_real TM_HIDDEN;
bool tm_real_find(void);                 /* idempotent; false: it is under way, further out in this very call */
bool tm_real_ready(void);                /* every function of tm_real is known */
bool tm_real_is_libc(void);              /* the allocator is libc's own. Takes the loader's lock. */
bool tm_real_is_libcs(const void *function); /* it is libc's, whatever it does */
void tm_real_attached(void);             /* once, when the process is attached */
size_t tm_real_usable(const void *addr); /* the bytes of a block that it has just given: asks it; SIZE_MAX: it cannot say */
bool tm_real_is_foreign(enum tm_op op);  /* such blocks are another allocator's than malloc's, which cannot be asked about them */
bool tm_real_is_unseen_new(
	const void *caller); /* who asks is the allocator's operator new, of which not all is seen: none of it is recorded */
size_t tm_real_usable_by_size(const void *addr, size_t size); /* the same of one without an alignment, that was asked for with this size */
void *tm_next_symbol(const char *name);  /* dlsym(RTLD_NEXT), marked as ours; NULL if there is none */

/* --- syscalls that libc could be asked for by a hook of ours: go straight to the kernel, errno untouched --- */
long tm_syscall(long number, long a, long b, long c, long d, long e, long f); /* result or -errno */

#endif
