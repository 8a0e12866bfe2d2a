/* unwind_rule.h - how to get from a frame to its caller, in 28 bits: what almost every address of a program needs, and no more.
 *
 * Flow:     unwind.c, once for every new frame -> tm_rule_for() -> a table that all threads share -> at a miss: shared_rules.c, what other processes of the
 *           recording know -> at a miss: unwind_cfi.c
 * Owns:     the process's table, which begins with 64 KiB of zeroed memory and becomes four times as large when it is three quarters full, up to 1 MiB. One
 *           that became too small is left where it is, since a thread may be in it.
 * Threads:  any. An entry is one 64-bit word, so it is seen whole or not at all; two threads that miss at once write the same.
 * When full: an older rule gives way, and is found or made again when it is needed.
 *
 *     entry   tag:36 | rule:28      The address is multiplied by an odd number modulo 2^48, which can be undone: its upper 12 to 16 bits
 *                                   choose the pair of entries, the lower 36 are the tag. So two addresses are never mistaken for each other.
 *     rule    kind:3 | ...          0 is no rule at all: an empty entry
 *     table   version:16 | address:42 | 64 - bits of the choice:6     Where it is and how large, in one word
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
	TM_RULE_NONE,   /* the address has no description. Not kept: a module may come to lie there. But see TM_RULE_GUESSED */
};

/* What a plain frame's caller needs lies between sp and the CFA. Addresses of ours have no rule in the table, so they are noticed; nor do
 * those of modules that are not announced, so who takes a rule from the table need not ask for them. A frame whose CFA is found by fp has its caller's
 * saved, too (else the rule is TM_RULE_ODD): so no two frames use the same one. Offsets of plain frames are positive.
 *
 * x86-64: kind:3 | fp:8 | offset / 8:17. The return address is at CFA - 8. fp: 0 untouched, else the caller's is saved at CFA - 8 * fp.
 * aarch64: kind:3 | pair:1 | place:7 | offset / 8:17. Behind sp or fp + 8 * place lie the caller's fp (if `pair`) and the return address. */
#define TM_RULE_BITS 28u
#define TM_RULE_MASK ((1u << TM_RULE_BITS) - 1)

static inline enum tm_rule_kind tm_rule_kind(uint32_t rule) {
	return (enum tm_rule_kind)(rule & 7);
}

/* Of a plain frame. */
static inline uintptr_t tm_rule_offset(uint32_t rule) {
	return (uintptr_t)(rule >> 11) * 8;
}

/* Of TM_RULE_ALIGNED, where it may be negative. */
static inline intptr_t tm_rule_signed_offset(uint32_t rule) {
	return (intptr_t)((int32_t)(rule << 4) >> 15) * 8;
}

#define TM_RULE_OFFSET_FITS(offset) ((offset) % 8 == 0 && (offset) / 8 >= 0 && (offset) / 8 < 1 << 17)
#define TM_RULE_SIGNED_OFFSET_FITS(offset) ((offset) % 8 == 0 && (offset) / 8 >= -(1 << 16) && (offset) / 8 < 1 << 16)

static inline uint32_t tm_rule_make(enum tm_rule_kind kind, unsigned middle, int64_t offset) {
	return ((uint32_t)kind | middle << 3 | (uint32_t)(offset / 8) << 11) & TM_RULE_MASK;
}

/* Of an address in a module, that of a call: it has no description, is none of the places where a stack ends (tm_is_made_up_caller()), and no trampoline. */
#define TM_RULE_GUESSED tm_rule_make(TM_RULE_NONE, 1, 0)

#if defined(__x86_64__)
#define TM_RULE_FP_SLOT(rule) ((rule) >> 3 & 0xff)
#elif defined(__aarch64__)
#define TM_RULE_IS_PAIR(rule) ((rule) >> 3 & 1)
#define TM_RULE_PLACE(rule) ((rule) >> 4 & 0x7f)
#endif

/* The process's table, as a word that says where it is and how large. */
#define TM_RULE_SETS_BITS_LEAST 12u
#define TM_RULE_SETS_BITS_MOST 16u
extern _Atomic uint64_t tm_rules_table TM_HIDDEN;

static inline uint64_t tm_rules(void) {
	return atomic_load_explicit(&tm_rules_table, memory_order_acquire);
}

static inline uint64_t tm_rules_word(const void *table, unsigned bits) {
	return (uint64_t)(uintptr_t)table | (64 - bits);
}

/* tm_versions.rules grows when what was known about some module no longer holds. The low byte counts dlclose calls under way: while there are any, code may go
 * and other code come at each moment, and nothing is looked up or kept. */
#define TM_RULES_CLOSING(version) (((version)&0xff) != 0)

uint32_t tm_rule_find(uintptr_t ip, bool keep);
void tm_rule_keep_guessed(uintptr_t ip);

#define TM_RULE_FACTOR 0x9e3779b97f4bull /* odd */

static inline uint64_t tm_rule_hash(uintptr_t ip) {
	return (uint64_t)ip * (TM_RULE_FACTOR << 16);
}

static inline uint64_t tm_rule_tag(uint64_t hash) {
	return hash << (64 - 16 - 36); /* behind it: the rule */
}

static inline _Atomic uint64_t *tm_rule_set(uint64_t table, uint64_t hash) {
	return (_Atomic uint64_t *)(uintptr_t)(table & 0x0000ffffffffffc0ull) + 2 * (hash >> (table & 63));
}

static inline uint32_t tm_rule_in(uint64_t table, uintptr_t key) {
	uint64_t hash = tm_rule_hash(key), tag = tm_rule_tag(hash);
	const _Atomic uint64_t *set = tm_rule_set(table, hash);
	uint64_t first = atomic_load_explicit(&set[0], memory_order_relaxed) ^ tag;
	if (TM_LIKELY(!(first >> TM_RULE_BITS))) return (uint32_t)first;
	uint64_t second = atomic_load_explicit(&set[1], memory_order_relaxed) ^ tag;
	return second >> TM_RULE_BITS ? 0 : (uint32_t)second;
}

/* The rule for `ip`: for a caller the return address - 1, which lies in the call, and for what a signal interrupted the address itself. */
static inline uint32_t tm_rule_for(uint64_t table, uintptr_t ip, bool use_table) {
	uint32_t rule = TM_LIKELY(use_table) ? tm_rule_in(table, ip) : 0;
	return TM_LIKELY(rule != 0) ? rule : tm_rule_find(ip, use_table);
}

void tm_rule_put(uint64_t table, uintptr_t key, uint32_t rule); /* the older of its pair gives way */
void tm_rule_keep(uintptr_t ip, uint32_t rule);                  /* in the process's table, of an address in a module that was announced */

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
