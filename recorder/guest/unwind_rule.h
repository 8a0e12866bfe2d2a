/* unwind_rule.h - how to get from a frame to its caller, in 32 bits: what almost every address of a program needs, and no more.
 *
 * Flow:     unwind.c, once for every new frame -> tm_rule_for() -> a table that all threads share -> at a miss: one that all processes of the recording
 *           share -> at a miss: unwind_cfi.c
 * Owns:     the process's table, 1 MiB of zeroed memory that is touched where addresses fall. The other lies in the session's memory (shm.h): its
 *           keys are the module's number there and the place in the module, for modules with a build-id.
 * Threads:  any. An entry is one 64-bit word, so it is seen whole or not at all; two threads that miss at once write the same.
 * When full: an older rule gives way, and is made again when it is needed.
 *
 *     entry   tag:32 | rule:32      The address is multiplied by an odd number modulo 2^48, which can be undone: 16 bits of the product
 *                                   choose the pair of entries, the other 32 are the tag. So two addresses are never mistaken for each other.
 *     rule    kind:3 | ...          0 is no rule at all: an empty entry
 */
#ifndef TIDEMARK_GUEST_UNWIND_RULE_H
#define TIDEMARK_GUEST_UNWIND_RULE_H

#include "guest.h"

enum tm_rule_kind {
	TM_RULE_EMPTY = 0,
	TM_RULE_SP,     /* CFA = sp + offset */
	TM_RULE_FP,     /* CFA = fp + offset */
	TM_RULE_ALIGNED, /* CFA in memory at fp + offset, caller's fp at fp: a function that aligned its stack (x86-64) */
	TM_RULE_SIGNAL, /* the kernel's frame of a signal handler (x86-64) */
	TM_RULE_END,    /* nobody called */
	TM_RULE_ODD,    /* none of these: unwind_full.c */
	TM_RULE_NONE,   /* the address has no description. Never kept: a module may come to lie there */
};

/* What a plain frame's caller needs lies between sp and the CFA. Addresses of ours have no rule in the table, so they are noticed; nor do
 * those of modules that are not announced, so who takes a rule from the table need not ask for them. A frame whose CFA is found by fp has its caller's
 * saved, too (else the rule is TM_RULE_ODD): so no two frames use the same one.
 *
 * x86-64: kind:3 | fp:8 | offset / 8:21. The return address is at CFA - 8. fp: 0 untouched, else the caller's is saved at CFA - 8 * fp.
 * aarch64: kind:3 | pair:1 | place:7 | offset / 8:21. Behind sp or fp + 8 * place lie the caller's fp (if `pair`) and the return address. */
static inline enum tm_rule_kind tm_rule_kind(uint32_t rule) {
	return (enum tm_rule_kind)(rule & 7);
}

static inline intptr_t tm_rule_offset(uint32_t rule) {
	return (intptr_t)((int32_t)rule >> 11) * 8;
}

#define TM_RULE_OFFSET_FITS(offset) ((offset) % 8 == 0 && (offset) / 8 >= -(1 << 20) && (offset) / 8 < 1 << 20)

static inline uint32_t tm_rule_make(enum tm_rule_kind kind, unsigned middle, int64_t offset) {
	return (uint32_t)kind | middle << 3 | (uint32_t)(offset / 8) << 11;
}

#if defined(__x86_64__)
#define TM_RULE_FP_SLOT(rule) ((rule) >> 3 & 0xff)
#elif defined(__aarch64__)
#define TM_RULE_IS_PAIR(rule) ((rule) >> 3 & 1)
#define TM_RULE_PLACE(rule) ((rule) >> 4 & 0x7f)
#endif

extern _Atomic uint64_t tm_rules[TM_RULE_SETS][2] TM_HIDDEN;

/* Grows when what was known about some module no longer holds. The low byte counts dlclose calls under way: while there are any, code may go and
 * other code come at each moment, and nothing is looked up or kept. */
extern _Atomic uint32_t tm_rules_version TM_HIDDEN;
#define TM_RULES_CLOSING(version) (((version) & 0xff) != 0)
#define TM_RULES_NONE UINT32_MAX /* no version: of threads that need no rules */

uint32_t tm_rule_find(uintptr_t ip, bool keep);

#define TM_RULE_FACTOR 0x9e3779b97f4bull /* odd */

static inline uint64_t tm_rule_hash(uintptr_t ip) {
	return (uint64_t)ip * (TM_RULE_FACTOR << 16);
}

static inline uint32_t tm_rule_in(const _Atomic uint64_t (*table)[2], uintptr_t key) {
	uint64_t hash = tm_rule_hash(key), tag = hash << 16;
	const _Atomic uint64_t *set = table[hash >> 48];
	uint64_t first = atomic_load_explicit(&set[0], memory_order_relaxed) ^ tag;
	if (TM_LIKELY(!(first >> 32))) return (uint32_t)first;
	uint64_t second = atomic_load_explicit(&set[1], memory_order_relaxed) ^ tag;
	return second >> 32 ? 0 : (uint32_t)second;
}

/* What the process's table says of `ip`; 0: nothing. */
static inline uint32_t tm_rule_in_table(uintptr_t ip) {
	return tm_rule_in(tm_rules, ip);
}

/* The rule for `ip`: for a caller the return address - 1, which lies in the call, and for what a signal interrupted the address itself. */
static inline uint32_t tm_rule_for(uintptr_t ip, bool use_table) {
	uint32_t rule = TM_LIKELY(use_table) ? tm_rule_in_table(ip) : 0;
	return TM_LIKELY(rule != 0) ? rule : tm_rule_find(ip, use_table);
}

/* Around a dlclose: what is known is forgotten when it is done. */
void tm_rules_close_begin(void);
void tm_rules_close_end(void);
void tm_rules_forked(void); /* in a fork's child: other threads' dlclose calls are not under way here */

/* True if the code at ip is the trampoline that signal handlers return to, by its instructions. `read` as in unwind_cfi.h. */
bool tm_rule_is_trampoline(uintptr_t ip, bool (*read)(void *, uintptr_t, unsigned, uintptr_t *), void *context);

/* Where the trampoline's stack holds the interrupted registers. */
#if defined(__x86_64__)
#define TM_SIGNAL_FP 120u
#define TM_SIGNAL_SP 160u
#define TM_SIGNAL_PC 168u
#elif defined(__aarch64__)
#define TM_SIGNAL_REGISTERS 312u
#define TM_SIGNAL_SP 560u
#define TM_SIGNAL_PC 568u
#endif

#endif
