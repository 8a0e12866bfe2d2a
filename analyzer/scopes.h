/* scopes.h - whose memory it is: the scopes that are open on each thread, the steps of each process, and what happened in them.
 *
 * Flow:     replay.c (events, and the texts that open and close scopes) -> scopes.c -> scope_totals.c (scope_lanes.c), scope_overlaps.c,
 *           scope_steps.c -> scope_rows.c
 *
 *     struct tm_scope_process (a process): epochs, open scopes in the order of opening, the open step
 *     struct tm_scope_thread (a thread): the stack of its scopes, and for each heap a lane
 *     struct tm_scope (an instance)
 *       struct tm_scope_use (a heap it touched): its own sums, those of its finished children, its place in the lane
 *     struct tm_scope_group (a name): what its instances add up to
 *     struct tm_scope_heap (a heap): track of its level, what lies outside of scopes
 *
 * Idea:     nothing is added up along the stack. A scope's sums go into its parent's when it is finished: closed, and none of the blocks of it or
 *           of its descendants is live any more. Until then it is kept, because a later free still counts in `own_freed`.
 * Stack:    what is open on a thread, in the order of opening. A scope that closes while others that were opened inside it go on
 *           (ranges do) leaves them to the scope around it: in the end the parent of each is the innermost one that was open all the
 *           while it was. What they did until then still counts for the one that closed: scope_overlaps.c.
 * Cost:     a test of a pointer for an event in a process without scopes; else constant but for what scope_totals.c says, and for moving 4 bytes for each
 *           scope that was opened later, where one ends out of order, or that is a block on a lower stack.
 * Memory:   follows open scopes, live blocks and distinct names; finished instances lie in files (spill.h).
 * Fails:    out of memory is remembered in `failed`, a file's errno in its spill.
 */
#ifndef TIDEMARK_ANALYZER_SCOPES_H
#define TIDEMARK_ANALYZER_SCOPES_H

#include "accounts.h"
#include "ahead.h"
#include "id_map.h"
#include "level_track.h"
#include "spill.h"

#define TM_SCOPE_SNAPSHOTS 100u           /* so many first instances of each name have snapshots */
#define TM_SCOPE_STACK_BYTES (1ull << 26) /* blocks further apart are of different stacks */
#define TM_SCOPE_LINKS (1u << 20)         /* at least so many latest links of forward operators are remembered */

enum tm_scope_end { TM_SCOPE_CLOSED, TM_SCOPE_EXCEPTION, TM_SCOPE_ABANDONED, TM_SCOPE_THREAD, TM_SCOPE_PROCESS };

/* Amounts in the units of accounts.h. */
struct tm_scope_sums {
	struct tm_amount allocated, freed;
	uint64_t own_freed; /* bytes freed, wherever, of what was allocated here */
};

struct tm_scope_lane;
struct tm_use_slab;

struct tm_scope_use {
	struct tm_account *account;
	struct tm_scope_use *next; /* of the same instance; of a free one: the next free one */
	/* The lane: see scope_lanes.c. */
	struct tm_scope_lane *lane; /* NULL: not in it, or no more */
	struct tm_scope_use *below, *above;
	uint32_t place;
	uint64_t peak, growth, own_peak, retained;
	uint64_t phases; /* record of the snapshots, 0 none */
	struct tm_scope_sums self, children;
};

/* What is on a thread's stack, in the order of opening: */
enum tm_scope_chain {
	TM_CHAIN_NAME,     /* those of a name, of any category */
	TM_CHAIN_GROUP,
	TM_CHAIN_CATEGORY, /* the pushes of a category */
	TM_CHAIN_ENDS,     /* what ends with a scope around it: pushes and blocks; pushes apart have one of their own */
	TM_CHAIN_COUNT
};

struct tm_scope_place {
	uint32_t before, after; /* slots, 0 none */
};

struct tm_scope {
	uint32_t slot, parent;                        /* slots, 0 none; of a free one parent is the next free one */
	uint32_t above;                       /* nearest ancestor on the stack, once it has left the stack; may lag behind */
	uint32_t thread, process, group, refs;
	uint32_t opened_before, opened_after; /* among the open scopes of its process */
	struct tm_scope_place chains[TM_CHAIN_COUNT];
	uint32_t cuts, part;                  /* its thread's when it was opened; slot of the part that it does things in since, 0 none */
	uint8_t op;
	bool is_stacked, is_outermost, is_apart, is_overlapped;
	bool is_part;                         /* of the scope that is its parent, since the latest cut of their thread; row is that one's */
	uint16_t frame_call;                  /* of a block: tells calls apart that have one frame address */
	uint64_t row, epoch, start_ns, key;   /* key of a part: index of its record */
	uint64_t frame_address;               /* of a block */
	struct tm_scope_use *uses;
	uint32_t use_count;
};

struct tm_lane_sums {
	uint64_t gap, fall;
};

/* One heap on one thread: the uses of it by the scopes on the stack, the innermost on top. */
struct tm_scope_lane {
	struct tm_account *account;
	struct tm_scope_lane *next;
	struct tm_scope_use *top, *bottom;
	uint64_t risen;              /* the most that the topmost had live */
	struct tm_lane_sums *sums;   /* of node i: of nodes 2 i and 2 i + 1; of place p: node places + p */
	uint64_t *epochs;            /* of places, those that are empty now among them: they rise */
	uint32_t places, used;       /* used: so many first ones were given out */
	struct tm_scope_sums passed; /* scope_overlaps.c: of what has been passed, in the order in which it was done */
};

struct tm_scope_thread {
	TM_ARRAY(uint32_t) stack;  /* slots; epochs rise */
	TM_ARRAY(uint32_t) blocks; /* of these, those of op scope_block: by frame, highest address first, then in the order of opening */
	uint64_t ends[2];          /* slots of the last ones of TM_CHAIN_ENDS: not apart, and apart; 0 none */
	struct tm_scope_lane *lanes;
	uint32_t lane_count;
	uint32_t cuts;             /* how often a scope was closed while one that was opened inside it stayed open */
};

struct tm_scope_group_heap {
	struct tm_scope_group_heap *next;
	const struct tm_account *account;
	struct tm_scope_sums self, total;
	uint64_t retained, peak, growth, own_peak;
	uint64_t instances, growth_sum; /* of the instances that touched this heap */
};

/* All scopes of one name and category in one process. */
struct tm_scope_group {
	uint32_t process, name, category; /* strings: canonical ids, 0 none */
	bool is_forward, is_backward, is_shared;
	uint32_t thread; /* the first one that had it */
	uint64_t last;   /* slot of the last one on that thread's stack, 0 none; those of others are in `last` of struct tm_scopes */
	uint64_t calls, outermost_calls, duration_ns, snapshots;
	uint64_t calls_ns; /* of the outermost calls, added up also where they overlap */
	struct tm_scope_group_heap *heaps;
	uint32_t heap_count;
};

/* In a file, too. */
struct tm_scope_step_use {
	size_t step;                       /* index of the step */
	const struct tm_account *account;  /* NULL: the process over its root heaps */
	struct tm_amount allocated, freed; /* freed: whatever was */
	struct tm_amount early;            /* of what was allocated, before the trace's window: begin has it */
	struct tm_amount own_freed;        /* of what was allocated in this step */
	uint64_t own_parts;                /* that cuts of such mappings added, in the units of counts */
	struct tm_amount begin, end;
	uint64_t peak;
};

struct tm_scope_step {
	uint64_t start_ns, end_ns;
	int64_t n;
	uint32_t process;
};

struct tm_scope_heap {
	struct tm_level_track track;
	struct tm_scope_sums scoped; /* of all scopes' own */
	uint64_t unscoped_bytes;     /* live, allocated outside of scopes */
	uint64_t unscoped_peak;
	uint64_t step; /* number of the step that the next five are of */
	struct tm_amount step_allocated, step_early, step_freed,
		step_own_freed; /* early: of what was allocated, before the trace's window */
	uint64_t step_own_parts;
	struct tm_level_point baseline; /* how it stood at the latest baseline */
};

/* What a program does with its scopes that is no mistake of ours to show, but odd; `tidemark info` says so. */
struct tm_scope_oddities {
	uint64_t across_threads; /* closed by another thread than opened them */
	uint64_t overlapping;    /* closed while one that was opened later on the same thread stayed open */
	uint64_t forks;          /* of the process, while scopes were open */
	uint64_t deepest;        /* scopes in each other */
	uint64_t names, wrong_names; /* different ones; of them, those that are no UTF-8 */
};

struct tm_scope_process {
	struct tm_scopes *scopes;
	struct tm_ledger *ledger;
	uint64_t epoch;
	uint64_t window_epoch; /* begins with the trace's window; 0: nothing has come from there on */
	size_t open_count;     /* scopes, and the step */
	uint32_t opened_first, opened_last;
	uint64_t unmatched_ends, unknown_links, snapshots_left_out;
	struct tm_scope_oddities odd;
	uint64_t baseline_ns;                            /* the latest one, else the start of the process */
	uint64_t step_number, step_epoch, step_start_ns; /* step_number counts from 1 */
	int64_t step_n;
	bool in_step;
	struct tm_level_track track; /* over the root heaps, while a step is open */
};

/* In the files. Ids are the trace's, rows the database's. */
struct tm_scope_record {
	uint64_t parent, start_ns, end_ns, forward, uses; /* parent, forward: rows, 0 none; uses: record + 1 of the last one */
	uint64_t spans;                                   /* record + 1 of the last one that begins here */
	uint32_t process, thread, name, category, depth, end_kind;
};
struct tm_scope_use_record {
	uint64_t before; /* record + 1 of the same scope, 0 none */
	const struct tm_account *account;
	struct tm_scope_sums self, total;
	uint64_t peak, growth, own_peak, retained, phases; /* phases: record + 1, 0 none */
};
/* What a scope did from a cut of its thread to the next. */
struct tm_scope_part_record {
	uint64_t scopes, scope, uses; /* scopes: so many had been opened before; scope: row; uses: record + 1 of the last one */
	uint32_t thread, group;
};
/* What a thread did from the opening of a scope to an instant at which others inside it stayed open. */
struct tm_scope_span {
	uint64_t scopes, parts; /* so many had been opened and made until then */
	uint64_t scope, first;  /* rows of the one that closed, and of the one that it begins with */
	uint64_t uses;          /* record + 1 of the last one, where they are not the scope's */
	uint64_t next;          /* span + 1 that begins with the same scope, 0 none */
	uint32_t thread, group;
	bool is_outermost;      /* the one that closed was that of its name; a shared one: and what is in it is taken off the name's sums */
	bool is_shared;         /* it begins with a later one of the name, and what is in it both have done */
};
enum tm_scope_phase { TM_PHASE_BASELINE, TM_PHASE_BEFORE, TM_PHASE_PEAK, TM_PHASE_AFTER, TM_PHASE_COUNT };
struct tm_scope_phases_record {
	struct tm_level_point points[TM_PHASE_COUNT];
};

struct tm_scope_thread_end {
	uint64_t ns;
	uint32_t thread;
	uint32_t forks; /* thread 0: no end, this process has a child now */
};

struct tm_scopes {
	const struct tm_catalog *catalog;
	struct tm_ledger *ledgers;
	uint64_t base_row; /* rows are base_row + 1 ... */
	struct tm_scope_thread *threads;
	TM_ARRAY(struct tm_scope_thread_end) ends;
	size_t next_end;
	uint64_t next_end_ns;    /* UINT64_MAX: none; only looked at once there are scopes */
	struct tm_scope **slabs; /* slot n is slabs[n / SLAB][n % SLAB] */
	uint32_t slot_count, free_slot;
	struct tm_scope_use *free_use;
	struct tm_use_slab *use_slabs; /* scope_totals.c */
	struct tm_id_map by_account;   /* scope_totals.c: whose, account -> what of it there is, where that is much */
	uint32_t *canonical;           /* by string id - 1: the first string with this text; 0 not looked up yet */
	struct tm_id_map texts;        /* hash of a text and its probe -> string id */
	struct tm_id_map group_ids;    /* (process, category), name -> index + 1 */
	TM_ARRAY(struct tm_scope_group) groups;
	struct tm_id_map last;               /* scopes.c: whose chain, which -> slot of the last one */
	struct tm_id_map keys;               /* process, key -> slot */
	struct tm_id_map links, older_links; /* process, link -> row of the latest forward operator */
	struct tm_spill records, use_records, phase_records, part_records, spans, step_uses;
	TM_ARRAY(struct tm_scope_step) steps;
	bool failed;
};

/* beside: a path in the directory where files may be made; must outlive it. 0 or -1: out of memory. Release after either. */
int tm_scopes_init(struct tm_scopes *x, const struct tm_catalog *catalog, struct tm_ledger *ledgers, uint64_t base_row, const char *beside);
void tm_scopes_release(struct tm_scopes *x);
/* An errno, 0 none. */
int tm_scopes_error(const struct tm_scopes *x);

/* A step of kind TM_STEP_SCOPE. */
void tm_scopes_play(struct tm_scopes *x, const struct tm_step *s, uint32_t thread);
void tm_scopes_baseline(struct tm_scopes *x, struct tm_ledger *l, uint64_t ns);
/* Threads that ended before now. */
void tm_scopes_pass_ends(struct tm_scopes *x, uint64_t ns);
/* The process begins to leave: its step ends. */
void tm_scopes_exit(struct tm_scopes *x, struct tm_ledger *l, uint64_t ns);
/* The process has ended: its step and its scopes end. */
void tm_scopes_end(struct tm_scopes *x, struct tm_ledger *l, uint64_t exit_ns, uint64_t end_ns);
/* Everything becomes records, whatever is live. */
void tm_scopes_finish(struct tm_scopes *x);

static inline struct tm_scope *tm_scope_at(const struct tm_scopes *x, uint32_t slot) {
	return &x->slabs[slot >> 10][slot & 1023];
}

/* The innermost open scope of a thread, 0 none. */
static inline uint32_t tm_scopes_top(const struct tm_scopes *x, uint32_t thread) {
	const struct tm_scope_thread *t = &x->threads[thread - 1];
	return t->stack.count ? t->stack.items[t->stack.count - 1] : 0;
}

/* Its row in the database; 0 for none. */
static inline uint64_t tm_scope_row(const struct tm_scopes *x, uint32_t slot) {
	return slot ? tm_scope_at(x, slot)->row : 0;
}

/* --- scope_totals.c: in a process that has scopes or steps (ledger->scopes) --- */

/* The thread allocates in this heap now: its scope holds the block. Returns the scope's slot, and whose level rises with it once what the block takes the
 * place of is gone: tm_scope_lane_allocates(*lane) tells of that; NULL: nobody's. */
uint32_t tm_scope_allocate(struct tm_scopes *x, uint32_t thread, struct tm_account *a, struct tm_amount amount,
			   struct tm_scope_lane **lane);
/* The thread frees something in this heap now: returns its scope's slot, held. */
uint32_t tm_scope_free(struct tm_scopes *x, uint32_t thread, struct tm_account *a);
/* A mapping is cut: besides the part that is given back, `survivors` parts hold its scope. */
void tm_scope_split(struct tm_account *a, const struct tm_block *b, unsigned survivors);
/* A block, or what waits, holds it no longer. */
void tm_scope_let_go(struct tm_scopes *x, uint32_t slot);
/* The account's level is about to rise, and to fall. scope: the block's, freeing: of the thread that frees; passing: it falls at the same instant. */
void tm_scope_level_rises(struct tm_account *a, struct tm_amount amount, uint32_t scope, uint64_t ns, bool passing);
void tm_scope_level_falls(struct tm_account *a, struct tm_amount amount, const struct tm_block *b, uint32_t freeing, uint64_t ns);

/* For scopes.c and scope_overlaps.c: */
struct tm_scope_heap *tm_scope_heap_of(struct tm_account *a); /* NULL: out of memory */
struct tm_level_point tm_level_now(const struct tm_account *a, uint64_t ns);
/* Something comes at this time. Levels of before the trace's window lack what was freed before it: for what had been opened by then its begin counts. */
void tm_scope_pass_window(struct tm_scope_process *p, uint64_t ns);
/* The epoch from whose begin on the levels of what was opened then, in that epoch, are known. */
uint64_t tm_scope_known_epoch(const struct tm_scope_process *p, uint64_t epoch, uint64_t start_ns);
/* The scope closes: what is measured while it is open is settled. snapshots: they are kept. */
void tm_scope_settle(struct tm_scopes *x, struct tm_scope *s, uint64_t end_ns, bool snapshots);
/* The scope leaves its thread's stack. */
void tm_scope_unstack(struct tm_scopes *x, struct tm_scope *s);
struct tm_scope_lane *tm_scope_find_lane(const struct tm_scopes *x, uint32_t thread, const struct tm_account *a);
/* Of the scope, made if it has none; NULL: out of memory. */
struct tm_scope_use *tm_scope_use_of(struct tm_scopes *x, struct tm_scope *s, struct tm_account *a);
void tm_scope_add_sums(struct tm_scope_sums *a, const struct tm_scope_sums *b);
bool tm_scope_sums_are_zero(const struct tm_scope_sums *s);
struct tm_scope_group_heap *tm_scope_group_heap_of(struct tm_scopes *x, uint32_t group, const struct tm_account *a);
/* All but self, which the parts of an instance add one by one. */
void tm_scope_add_to_group(struct tm_scope_group_heap *h, bool is_outermost, const struct tm_scope_use_record *u);
void tm_scope_finish(struct tm_scopes *x, struct tm_scope *s);
void tm_scope_thread_release(struct tm_scope_thread *t);
void tm_scope_heaps_release(struct tm_scopes *x);

/* --- scope_lanes.c --- */

/* A use of the scope on top of its thread's stack, opened in this epoch, which has none in the lane. False: out of memory. */
bool tm_scope_lane_put(struct tm_scope_lane *lane, struct tm_scope_use *u, uint64_t epoch);
/* Its scope closes. heir: that of the scope around, if that has none in the lane; it opened in this epoch. */
void tm_scope_lane_inherit(struct tm_scope_use *u, struct tm_scope_use *heir, uint64_t epoch);
void tm_scope_lane_leave(struct tm_scope_use *u);
/* The topmost allocates. */
void tm_scope_lane_allocates(struct tm_scope_lane *lane, uint64_t bytes);
/* A block is freed that this one allocated; NULL: nothing. */
void tm_scope_lane_frees(struct tm_scope_use *u, uint64_t bytes);
/* Own bytes of a scope that opened in this epoch: the most so far, and those live now. Has it no use in the lane, those of the next one inside it
 * are its own. False: it has done nothing there. lane: may be NULL. */
bool tm_scope_measure(const struct tm_scope_lane *lane, uint64_t epoch, uint64_t *peak, uint64_t *live);
void tm_scope_lane_release(struct tm_scope_lane *lane);

/* --- scopes.c: for scope_overlaps.c --- */

/* NULL: out of memory. */
struct tm_scope *tm_scope_new(struct tm_scopes *x);

/* --- scope_overlaps.c --- */

/* The scope, no longer counted by its group, closes while others that were opened inside it stay open. */
void tm_scope_overlap(struct tm_scopes *x, struct tm_scope *s, uint64_t ns);
/* The part of the scope, on top of its stack, that belongs to now, where its thread was cut since it opened. NULL: out of memory. */
struct tm_scope *tm_scope_part(struct tm_scopes *x, struct tm_scope *s);
void tm_scope_finish_part(struct tm_scopes *x, struct tm_scope *part);
/* Everything has become records: what overlapped gets its totals, and what lay in it its depth. */
void tm_scope_settle_overlaps(struct tm_scopes *x);

/* --- scope_names.c --- */

/* Index of the group; strings by id, 0 none. SIZE_MAX: out of memory. */
size_t tm_scope_group_of(struct tm_scopes *x, uint32_t process, uint32_t name, uint32_t category);
/* The first string with the same text. */
uint32_t tm_scope_canonical(struct tm_scopes *x, uint32_t string);
struct tm_text tm_scope_text(const struct tm_scopes *x, uint32_t string);

/* --- scope_steps.c --- */

void tm_scope_step_begin(struct tm_scopes *x, struct tm_scope_process *p, int64_t n, uint64_t ns);
void tm_scope_step_end(struct tm_scopes *x, struct tm_scope_process *p, uint64_t ns);
/* The sums of the open step in this heap. */
void tm_scope_step_rises(struct tm_account *a, struct tm_amount amount, uint64_t ns, bool passing);
void tm_scope_step_falls(struct tm_account *a, struct tm_amount amount, const struct tm_block *b);
void tm_scope_step_splits(struct tm_account *a, uint64_t more, const struct tm_block *b);

#endif
