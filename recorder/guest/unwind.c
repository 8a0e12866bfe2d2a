/* unwind.c - the incremental walk; see unwind.h.
 *
 * While a walk goes on, its frames are written from the far end of the thread's arrays downwards, so that they end up outermost first; when it
 * has met a frame of the last stack they are moved behind that. Numbers of frames are counted from the innermost until then.
 */
#include "unwind.h"
#include "unwind_known.h"
#if defined(__x86_64__)
#include "unwind_learn.h"
#include "unwind_route.h"
#endif
#include "unwind_rule.h"

#include <string.h>

#define PC_MASK TM_UNWIND_PC_MASK
#define WORD(address) TM_UNWIND_WORD(address)

#define SLACK 4u /* so many frames are moved at a time */
#define CHECKS_ROOM(capacity) (2 * (size_t)(capacity) + 1)
#if defined(__x86_64__)
#define ROUTES_BYTES sizeof(struct tm_routes)
#define ROUTES_ALIGNED _Alignof(struct tm_routes)
#else
#define ROUTES_BYTES 0u
#define ROUTES_ALIGNED 1u
#endif

size_t tm_unwind_bytes(uint32_t capacity) {
	return 2 * (size_t)capacity * (2 * sizeof(uintptr_t) + 1) + CHECKS_ROOM(capacity) * sizeof(struct tm_check) +
	       (2 * SLACK + 3) * sizeof(uintptr_t) + capacity * sizeof(struct tm_pair) + ROUTES_BYTES + ROUTES_ALIGNED - 1;
}

/* The routes come last: what is not learned is never touched. */
void tm_unwind_prepare(struct tm_thread *t, void *memory) {
	t->checks = memory;
	t->pcs = (uintptr_t *)(t->checks + CHECKS_ROOM(t->capacity));
	t->sps = t->pcs + 2 * t->capacity + SLACK + 1;
	t->sps[-1] = UINTPTR_MAX;
	t->pairs = (struct tm_pair *)(((uintptr_t)(t->sps + 2 * t->capacity + SLACK) + 15) & ~(uintptr_t)15);
	t->framed = (uint8_t *)(t->pairs + t->capacity);
	t->routes = (struct tm_routes *)(((uintptr_t)(t->framed + 2 * t->capacity) + ROUTES_ALIGNED - 1) & ~(uintptr_t)(ROUTES_ALIGNED - 1));
#if defined(__x86_64__)
	t->route_expected = t->route_second = t->routes->routes;
	t->route_next = t->routes->nexts;
	t->routes_mask = TM_ROUTES_AT_FIRST - 1;
#endif
	tm_known_prepare(t);
}

/* --- a walk --- */

#define NO_FRAME UINT32_MAX
#define NUMBER_MAX (UINT32_MAX / 2) /* numbers above: of frames that are kept */

struct walk {
	struct tm_thread *t;
	struct tm_memory memory;
	uint64_t rules; /* the table (unwind_rule.h) */
	uintptr_t pc, sp, fp, slot;
	bool plain; /* on the thread's own stack, and rules can be kept */
	bool in_call, use_table, forget, cut, truncated;
	bool met_is_framed;     /* the frame that was met */
	bool unlisted;          /* a frame may be in a module that was not announced */
	uint32_t fresh;         /* frames written */
	uint32_t known;         /* frames of the last stack that can be met: those below this */
	uint32_t limit;
	uint32_t new_checks;    /* written */
	uint32_t guess;         /* number of the outermost frame whose caller was guessed */
	struct tm_check fp_source; /* a check of the frame pointer as it is now */
};

static inline uint32_t innermost(const struct walk *w) {
	return w->fresh ? w->fresh - 1 : TM_CHECK_TOP;
}

static void put_check(struct walk *w, struct tm_check check) {
	if (w->new_checks == w->t->capacity) {
		w->forget = true;
		return;
	}
	w->t->checks[CHECKS_ROOM(w->t->capacity) - ++w->new_checks] = check;
}

static void check_word(struct walk *w, uintptr_t slot, uintptr_t value) {
	put_check(w, (struct tm_check){ slot, value, innermost(w), innermost(w) });
}

/* The frame pointer, as it is now, decides about the frame `user`, which restores its caller's. */
static inline void use_fp(struct walk *w, uint32_t user) {
	w->fp_source.until = user;
	put_check(w, w->fp_source);
}

/* A plain frame's rule is about the frame pointer. Did it come from the word below the frame's return address? */
static inline void use_fp_in_plain(struct walk *w, uint32_t user, uintptr_t slot) {
	struct tm_thread *t = w->t;
	uint32_t at = 2 * t->capacity - 1 - user;
	if (w->fp_source.slot == slot - 8 && user < t->capacity && t->sps[at] == slot) t->framed[at] = 1;
	else use_fp(w, user);
}

/* What a frame that was met needs of the frame pointer. */
static inline void use_fp_in_met(struct walk *w, uint32_t met, uint32_t until) {
	w->met_is_framed = until == met && w->fp_source.slot == w->t->sps[met] - 8;
	if (until != NO_FRAME && !w->met_is_framed) use_fp(w, until + NUMBER_MAX);
}

static inline void restore_fp(struct walk *w, uintptr_t slot) {
	w->fp = WORD(slot);
	w->fp_source = (struct tm_check){ slot, w->fp, innermost(w), 0 };
}

enum step { STEP_DONE, STEP_END, STEP_LOST, STEP_ODD };

static inline enum step go_to(struct walk *w, uintptr_t slot, uintptr_t sp) {
	if (TM_UNLIKELY(!tm_memory_holds(&w->memory, slot))) return STEP_LOST;
	if (TM_UNLIKELY(slot <= w->slot)) w->forget = true; /* another stack: addresses do not rise */
	w->slot = slot;
	w->sp = sp;
	w->pc = WORD(slot) & PC_MASK;
	w->in_call = true;
	return STEP_DONE;
}

TM_COLD static enum step step_by_guess(struct walk *w, uint32_t rule) {
	struct tm_memory memory = w->memory; /* code is looked at, too: that is not the stack's business */
	if (rule != TM_RULE_GUESSED || !w->in_call) {
		if (tm_is_made_up_caller(w->pc)) return STEP_END;
		if (tm_rule_is_trampoline(w->pc, tm_memory_read, &memory)) return STEP_ODD;
		if (w->in_call && w->use_table) tm_rule_keep_guessed(w->pc - 1);
	}
	struct tm_guess caller;
	if (!tm_guess_caller(&memory, w->use_table ? w->rules : 0, w->sp, w->fp, &caller) || !tm_memory_holds(&w->memory, w->fp)) return STEP_LOST;
	use_fp(w, innermost(w));
	w->guess = innermost(w);
	uintptr_t fp = w->fp;
	restore_fp(w, fp);
	return go_to(w, fp + 8, caller.sp);
}

/* Of a plain frame: where the caller's frame pointer lies, 0: it is the same; where the return address does; and the caller's sp. */
struct places {
	uintptr_t fp, slot, cfa;
};

static inline struct places places_of(uint32_t rule, uintptr_t sp, uintptr_t fp) {
	uintptr_t base = tm_rule_kind(rule) == TM_RULE_SP ? sp : fp, cfa = base + tm_rule_offset(rule);
#if defined(__x86_64__)
	uintptr_t fp_slot = TM_RULE_FP_SLOT(rule);
	return (struct places){ fp_slot ? cfa - 8 * fp_slot : 0, cfa - 8, cfa };
#else
	uintptr_t at = base + 8 * (uintptr_t)TM_RULE_PLACE(rule);
	return TM_RULE_IS_PAIR(rule) ? (struct places){ at, at + 8, cfa } : (struct places){ 0, at, cfa };
#endif
}

static enum step step_plain(struct walk *w, uint32_t rule) {
	struct places p = places_of(rule, w->sp, w->fp);
	if (p.fp) {
		if (!tm_memory_holds(&w->memory, p.fp)) return STEP_LOST;
		restore_fp(w, p.fp);
	}
	return go_to(w, p.slot, p.cfa);
}

#if defined(__x86_64__)

TM_COLD static enum step step_aligned(struct walk *w, uint32_t rule) {
	uintptr_t at = w->fp + (uintptr_t)tm_rule_signed_offset(rule), fp = w->fp;
	if (!tm_memory_holds(&w->memory, at) || !tm_memory_holds(&w->memory, fp)) return STEP_LOST;
	use_fp(w, innermost(w));
	check_word(w, at, WORD(at));
	restore_fp(w, fp);
	return go_to(w, WORD(at) - 8, WORD(at));
}

TM_COLD static enum step step_over_signal(struct walk *w) {
	uintptr_t sp = w->sp;
	for (uintptr_t at = TM_SIGNAL_FP; at <= TM_SIGNAL_PC; at += 8)
		if (!tm_memory_holds(&w->memory, sp + at)) return STEP_LOST;
	put_check(w, (struct tm_check){ sp + TM_SIGNAL_SP, WORD(sp + TM_SIGNAL_SP), w->fresh, TM_CHECK_INTERRUPTED });
	restore_fp(w, sp + TM_SIGNAL_FP);
	w->fp_source.frame = w->fresh; /* as the check before: they are in the order of frames */
	enum step step = go_to(w, sp + TM_SIGNAL_PC, WORD(sp + TM_SIGNAL_SP));
	w->in_call = false;
	return step;
}

#else

static enum step step_aligned(struct walk *w, uint32_t rule) {
	(void)w;
	(void)rule;
	return STEP_ODD;
}

static enum step step_over_signal(struct walk *w) {
	(void)w;
	return STEP_ODD;
}

#endif

static enum step step(struct walk *w) {
	uint32_t rule = tm_rule_for(w->rules, w->in_call ? w->pc - 1 : w->pc, w->use_table);
	switch (tm_rule_kind(rule)) {
	case TM_RULE_SP: return step_plain(w, rule);
	case TM_RULE_FP: use_fp_in_plain(w, innermost(w), w->slot); return step_plain(w, rule);
	case TM_RULE_ALIGNED: return step_aligned(w, rule);
	case TM_RULE_SIGNAL: return step_over_signal(w);
	case TM_RULE_END: return STEP_END;
	case TM_RULE_NONE: return step_by_guess(w, rule);
	default: return STEP_ODD;
	}
}

/* The frames that almost all are: plain ones of the program's, known to the table, on the thread's own stack. Stops before one that is not, or that lies
 * where one of the last stack did. Everything is held in registers here. */
static inline uint32_t go_over_plain_frames(struct walk *w, uint32_t known) {
	struct tm_thread *t = w->t;
	uintptr_t *pcs = t->pcs + 2 * t->capacity - 1, *slots = t->sps + 2 * t->capacity - 1;
	uint8_t *framed = t->framed + 2 * t->capacity - 1;
	uintptr_t pc = w->pc, sp = w->sp, fp = w->fp, slot = w->slot, high = w->memory.high;
	uint64_t rules = w->rules;
	uint32_t fresh = w->fresh;
	uintptr_t next_known = known ? t->sps[known - 1] : UINTPTR_MAX; /* the innermost that can still be met */
	for (;; fresh++) {
		if (TM_UNLIKELY(next_known <= slot)) {
			while (known && t->sps[known - 1] < slot) known--;
			next_known = known ? t->sps[known - 1] : UINTPTR_MAX;
			if (next_known == slot) break;
		}
		if (TM_UNLIKELY(fresh == w->limit)) break;
		uint32_t rule = tm_rule_in(rules, pc - 1);
		struct places p = places_of(rule, sp, fp);
		if (TM_UNLIKELY(tm_rule_kind(rule) != TM_RULE_SP)) {
			if (tm_rule_kind(rule) != TM_RULE_FP || (fp & 7) || p.slot <= slot || p.fp <= slot) break;
			if (p.slot >= high) break;
		}
		if (TM_UNLIKELY(p.slot >= high)) break;
		pcs[-(intptr_t)fresh] = pc;
		slots[-(intptr_t)fresh] = slot;
		framed[-(intptr_t)fresh] = 0;
		if (TM_UNLIKELY(tm_rule_kind(rule) != TM_RULE_SP)) use_fp_in_plain(w, fresh, slot);
		slot = p.slot;
		sp = p.cfa;
		pc = WORD(slot) & PC_MASK;
		if (p.fp) {
			fp = WORD(p.fp);
			w->fp_source = (struct tm_check){ p.fp, fp, fresh, 0 };
		}
	}
	w->pc = pc;
	w->sp = sp;
	w->fp = fp;
	w->slot = slot;
	w->fresh = fresh;
	return known;
}

/* As tm_unwind_is_met(), for framed ones too. */
static bool is_met(const struct tm_thread *t, uint32_t i, uintptr_t fp, uint32_t *until) {
	if (i < t->framed_low || !t->framed[i]) return tm_unwind_is_met(t, i, fp, until);
	*until = i;
	return t->pairs[i].next == fp;
}

/* Was frame i interrupted by a signal? */
static inline bool is_interrupted(const struct tm_thread *t, uint32_t i) {
	if (TM_LIKELY(!(t->truncated & TM_INTERRUPTED))) return false;
	for (const struct tm_check *c = t->checks, *end = c + t->check_count; c < end && c->frame <= i; c++)
		if (c->frame == i && c->until == TM_CHECK_INTERRUPTED) return true;
	return false;
}

TM_HOT uint32_t tm_unwind_valid_framed(const struct tm_thread *t, uint32_t n) {
	uint32_t low = t->framed_low, outer = low ? tm_unwind_unchanged(t->sps, t->pcs, low) : 0;
	if (outer == low) outer += tm_unwind_unchanged_pairs(t->sps + low, t->pairs + low, n - low);
	const struct tm_check *beyond;
	return tm_unwind_checked(t, outer, &beyond);
}

#define STEPS_MAX (4 * TM_DEPTH_LIMIT)

/* Goes outward until a frame of the last stack is met, whose index it says, or the stack ends: NO_FRAME. *odd: it cannot be done here. */
static uint32_t go_outward(struct walk *w, bool *odd) {
	struct tm_thread *t = w->t;
	uint32_t known = w->known;
	for (uint32_t steps = 0; steps < STEPS_MAX; steps++) {
		if (TM_LIKELY(w->plain && w->in_call)) known = go_over_plain_frames(w, known);
		while (known && t->sps[known - 1] < w->slot) known--;
		if (known && t->sps[known - 1] == w->slot && !w->forget) {
			uint32_t until = NO_FRAME;
			if (w->in_call != is_interrupted(t, known - 1) && is_met(t, known - 1, w->fp, &until)) {
				use_fp_in_met(w, known - 1, until);
				return known - 1;
			}
		}
		if (TM_UNLIKELY(tm_unwind_is_no_code(w->pc))) {
			check_word(w, w->slot, WORD(w->slot));
			w->cut |= w->pc != 0;
			return NO_FRAME;
		}
		if (TM_UNLIKELY(tm_unwind_is_ours(w->pc))) {
			check_word(w, w->slot, WORD(w->slot));
			if (tm_unwind_is_main_wrapper(w->pc)) return NO_FRAME;
		} else {
			if (TM_UNLIKELY(w->fresh == w->limit)) {
				w->truncated = w->cut = true;
				return NO_FRAME;
			}
			tm_unwind_put(t, w->fresh, w->pc, w->slot);
			t->framed[2 * t->capacity - 1 - w->fresh] = 0;
			w->fresh++;
			w->unlisted = true;
		}
		enum step result = step(w);
		if (TM_LIKELY(result == STEP_DONE)) continue;
		*odd = result == STEP_ODD;
		w->forget |= result == STEP_LOST;
		w->cut |= result == STEP_LOST;
		return NO_FRAME;
	}
	w->forget = w->cut = true;
	return NO_FRAME;
}

/* --- taking over --- */

/* On aarch64 a return address lies anywhere in the frame of the function that returns there, so that its place does not tell the caller's stack pointer: two
 * stacks that meet at one may part again. There every stack is unwound whole. */
#if defined(__x86_64__)
#define PLACE_TELLS_SP true
#else
#define PLACE_TELLS_SP false
#endif

static uint32_t final_number(uint32_t number, uint32_t keep, uint32_t fresh) {
	if (number >= TM_CHECK_INTERRUPTED) return number;
	if (number >= NUMBER_MAX) return number - NUMBER_MAX;
	return number < keep + fresh ? keep + fresh - 1 - number : 0; /* there is none: beyond the limit, or ours and the last */
}

static void take_checks(struct walk *w, uint32_t keep) {
	struct tm_thread *t = w->t;
	uint32_t n = tm_unwind_count_kept_checks(t, keep);
	if (n + w->new_checks > t->capacity) w->forget = true;
	tm_unwind_set_check_count(t, n);
	if (w->forget) return;
	for (uint32_t i = w->new_checks; i-- > 0;) { /* the last was the outermost */
		struct tm_check c = t->checks[CHECKS_ROOM(t->capacity) - 1 - i];
		c.frame = final_number(c.frame, keep, w->fresh);
		c.until = final_number(c.until, keep, w->fresh);
		t->checks[n++] = c;
	}
	tm_unwind_set_check_count(t, n);
}

static inline void move_frames(struct tm_thread *t, uint32_t keep, uint32_t fresh) {
	const uintptr_t *pcs = t->pcs + 2 * t->capacity - fresh, *slots = t->sps + 2 * t->capacity - fresh, *end = pcs + fresh;
	uintptr_t *to_pcs = t->pcs + keep, *to_slots = t->sps + keep;
	for (; pcs < end; pcs += SLACK, slots += SLACK, to_pcs += SLACK, to_slots += SLACK) {
		memcpy(to_pcs, pcs, SLACK * sizeof *pcs);
		memcpy(to_slots, slots, SLACK * sizeof *slots);
	}
}

/* What lies at and below the places of the frames from this one inward. */
static inline void remember_pairs(struct tm_thread *t, uint32_t from) {
	struct tm_pair *to = t->pairs + from;
	for (const uintptr_t *slot = t->sps + from, *end = t->sps + t->depth; slot < end; slot++, to++) memcpy(to, (const void *)(*slot - 8), sizeof *to);
}

#define FEW_FRAMES 4u /* are compared with the others rather than by themselves: those outside of main */

/* The new frames have been put behind the kept ones, and marked; `first` is the outermost of them that is framed, NO_FRAME: none is. */
static inline void note_framed(struct tm_thread *t, uint32_t keep, bool met_is_framed, uint32_t first) {
	uint32_t from = keep;
	if (t->framed_low < keep || met_is_framed) t->framed[keep - 1] = met_is_framed;
	if (met_is_framed && t->framed_low >= keep) {
		t->framed_low = from = keep - 1;
	} else if (t->framed_low >= keep) {
		from = first;
		if (from < FEW_FRAMES) {
			memset(t->framed, 0, from);
			from = 0;
		}
		t->framed_low = from;
	}
	remember_pairs(t, from);
}

/* The same, where the marks are still where a walk put them. */
static void take_framed(struct tm_thread *t, uint32_t keep, bool met_is_framed) {
	memcpy(t->framed + keep, t->framed + 2 * t->capacity - (t->depth - keep), t->depth - keep);
	const uint8_t *first = t->framed_low >= keep && !met_is_framed ? memchr(t->framed + keep, 1, t->depth - keep) : NULL;
	note_framed(t, keep, met_is_framed, first ? (uint32_t)(first - t->framed) : NO_FRAME);
}

/* Frames that are the same by their value alone: enough for what is sent, not for what is remembered. */
static uint32_t count_equal(const struct tm_thread *t, uint32_t fresh) {
	const uintptr_t *pcs = t->pcs + 2 * t->capacity - fresh;
	uint32_t n = 0, most = fresh < t->depth ? fresh : t->depth;
	while (n < most && pcs[n] == t->pcs[n]) n++;
	return n;
}

static void note_cut(struct walk *w, uint32_t keep) {
	struct tm_thread *t = w->t;
	if (t->cut_frame >= keep) t->cut_frame = NO_FRAME;
	if (w->guess != NO_FRAME && t->cut_frame == NO_FRAME) t->cut_frame = final_number(w->guess, keep, w->fresh);
	if (w->cut) t->cut_frame = 0;
}

/* TM_INTERRUPTED if a frame is. */
static uint8_t interrupted_ones(const struct tm_thread *t) {
	for (uint32_t i = 0; i < t->check_count; i++)
		if (t->checks[i].until == TM_CHECK_INTERRUPTED) return TM_INTERRUPTED;
	return 0;
}

static struct tm_stack take_over(struct walk *w, uint32_t met) {
	struct tm_thread *t = w->t;
	uint32_t keep = met == NO_FRAME ? 0 : met + 1, equal = keep ? keep : count_equal(t, w->fresh);
	take_checks(w, keep);
	move_frames(t, keep, w->fresh);
	note_cut(w, keep);
	t->depth = keep + w->fresh;
	t->truncated = (keep ? t->truncated & TM_TRUNCATED : w->truncated) | interrupted_ones(t);
	t->remembered = !PLACE_TELLS_SP || w->forget || w->memory.left ? 0 : t->depth;
	if (t->remembered) take_framed(t, keep, w->met_is_framed);
	return (struct tm_stack){ equal, t->depth - equal, t->cut_frame != NO_FRAME, w->unlisted };
}

/* --- the ways in --- */

static bool fits(const struct tm_thread *t, uint32_t total, uint32_t limit) {
	return t->truncated & TM_TRUNCATED ? total == limit : total <= limit;
}

static inline struct walk walk_from(struct tm_thread *t, const struct tm_top *top, uint32_t limit, bool remember, uint32_t version) {
	return (struct walk){
		.t = t,
		.memory = top->memory,
		.pc = top->pc,
		.sp = top->sp,
		.fp = top->fp,
		.slot = top->slot,
		.in_call = true,
		.rules = tm_rules(),
		.use_table = !TM_RULES_CLOSING(version),
		.plain = remember && !TM_RULES_CLOSING(version),
		.forget = !remember || TM_RULES_CLOSING(version),
		.limit = limit,
		.guess = NO_FRAME,
		.fp_source = { top->slot - 8, top->fp, TM_CHECK_TOP, 0 },
	};
}

#if defined(__x86_64__)

#define QUICK_CHECKS_MAX 4u

/* Frame pointers in a walk that goes quickly: where the present one lies, what it is, and what has to be remembered besides framed frames. */
struct quick_fp {
	uintptr_t at, value;
	uint32_t source; /* number of the frame that restored it, TM_CHECK_TOP: it is the register */
	uint32_t kept;   /* so many checks are about frames that are kept */
	uint32_t count;
	struct tm_check checks[QUICK_CHECKS_MAX];
};

static bool remember_fp(struct quick_fp *fp, uint32_t until) {
	if (fp->count == QUICK_CHECKS_MAX) return false;
	fp->checks[fp->count++] = (struct tm_check){ fp->at, fp->value, fp->source, until };
	return true;
}

static void add_quick_checks(struct tm_thread *t, const struct quick_fp *fp, uint32_t keep, uint32_t fresh) {
	for (uint32_t i = fp->count; i-- > 0;) {
		struct tm_check c = fp->checks[i];
		c.frame = final_number(c.frame, keep, fresh);
		c.until = final_number(c.until, keep, fresh);
		t->checks[t->check_count++] = c;
	}
	tm_unwind_set_check_count(t, t->check_count);
}

/* Frames of code with frame pointers, one upon the other: "push fp; fp = sp". Fills the arrays downwards from *at; says where the last one's return address
 * is: it may lie beyond `met`. */
static inline uintptr_t follow_framed(struct tm_thread *t, uint64_t rules, uint32_t *at, uintptr_t slot, uintptr_t met) {
	const uint32_t framed = tm_rule_make(TM_RULE_FP, 2, 16);
	uintptr_t *pcs = t->pcs, *slots = t->sps;
	uint8_t *marks = t->framed;
	size_t i = *at, last = t->capacity;
	while (slot < met && i > last) {
		uintptr_t pc = WORD(slot), outer = WORD(slot - 8) + 8;
		uint64_t hash = tm_rule_hash(pc - 1);
		const _Atomic uint64_t *set = tm_rule_set(rules, hash);
		if (TM_UNLIKELY((atomic_load_explicit(&set[0], memory_order_relaxed) ^ tm_rule_tag(hash)) != framed)) {
			if ((atomic_load_explicit(&set[1], memory_order_relaxed) ^ tm_rule_tag(hash)) != framed) break;
		}
		if (TM_UNLIKELY(outer <= slot)) break;
		i--;
		pcs[i] = pc;
		slots[i] = slot;
		marks[i] = 1;
		slot = outer;
	}
	*at = (uint32_t)i;
	return slot;
}

/* The new frames end at the innermost of the `valid` ones with this frame pointer: is that one met? Then what it needs is noted, and nothing changed yet. */
static inline bool meets(const struct tm_thread *t, struct quick_fp *fp, uint32_t valid, bool *met_is_framed) {
	uint32_t until = NO_FRAME;
	fp->value = WORD(fp->at);
	if (!is_met(t, valid - 1, fp->value, &until)) return false;
	*met_is_framed = until == valid - 1 && fp->at == t->sps[valid - 1] - 8;
	if (until != NO_FRAME && !*met_is_framed && !remember_fp(fp, until + NUMBER_MAX)) return false;
	fp->kept = tm_unwind_count_kept_checks(t, valid);
	return fp->kept + fp->count <= t->capacity;
}

/* Frames were put behind the `keep` outer ones; which are framed is still to be noted. */
static inline void accept_with_fp(struct tm_thread *t, const struct quick_fp *fp, uint32_t keep, uint32_t fresh) {
	t->check_count = fp->kept;
	add_quick_checks(t, fp, keep, fresh);
	if (t->cut_frame >= keep) t->cut_frame = NO_FRAME;
	t->depth = t->remembered = keep + fresh;
}

/* As tm_unwind_quickly(), with frame pointers. */
TM_HOT static __attribute__((noinline)) uint32_t unwind_quickly_with_fp(struct tm_thread *t, uint32_t valid, uintptr_t slot, uint64_t route) {
	const uint32_t framed = tm_rule_make(TM_RULE_FP, 2, 16), least = t->capacity + valid;
	uintptr_t met = t->sps[valid - 1], *pcs = t->pcs, *slots = t->sps;
	uint8_t *marks = t->framed;
	uint64_t rules = tm_rules();
	uint32_t at = 2 * t->capacity, fresh;
	bool met_is_framed;
	struct quick_fp fp;
	fp.at = slot - 8;
	fp.source = TM_CHECK_TOP;
	fp.count = 0;
	while (slot != met) {
		if (TM_UNLIKELY(slot > met || at <= least)) return TM_UNWIND_NOT_QUICK;
		uintptr_t pc = WORD(slot), outer;
		uint32_t rule = tm_rule_in(rules, pc - 1), fp_slot;
		if (TM_LIKELY(tm_rule_kind(rule) == TM_RULE_SP)) {
			outer = slot + tm_rule_offset(rule);
		} else if (rule == framed && fp.at == slot - 8) {
			uint32_t before = at;
			slot = follow_framed(t, rules, &at, slot, met);
			if (TM_UNLIKELY(at == before)) return TM_UNWIND_NOT_QUICK;
			fp.at = slot - 8;
			fp.source = 2 * t->capacity - 1 - at;
			continue;
		} else if (tm_rule_kind(rule) == TM_RULE_FP) {
			fp.value = WORD(fp.at);
			outer = fp.value - 8 + tm_rule_offset(rule);
			if (outer % 8 || !remember_fp(&fp, 2 * t->capacity - at)) return TM_UNWIND_NOT_QUICK;
		} else {
			return TM_UNWIND_NOT_QUICK;
		}
		if (TM_UNLIKELY(outer - slot - 1 >= met - slot)) return TM_UNWIND_NOT_QUICK; /* not beyond slot, or beyond met */
		at--;
		pcs[at] = pc;
		slots[at] = slot;
		marks[at] = 0;
		fp_slot = TM_RULE_FP_SLOT(rule);
		if (fp_slot) {
			fp.at = outer + 8 - 8 * (uintptr_t)fp_slot;
			if (TM_UNLIKELY(fp.at <= slot)) return TM_UNWIND_NOT_QUICK;
			fp.source = 2 * t->capacity - 1 - at;
		}
		slot = outer;
	}
	if (TM_UNLIKELY(at < least)) return TM_UNWIND_NOT_QUICK;
	fresh = 2 * t->capacity - at;
	uint32_t decided = fp.count;
	if (!meets(t, &fp, valid, &met_is_framed)) return TM_UNWIND_NOT_QUICK;
	move_frames(t, valid, fresh);
	if (decided <= TM_ROUTE_USES_MAX && fresh) tm_route_learn(t, route, valid, fresh, met);
	accept_with_fp(t, &fp, valid, fresh);
	take_framed(t, valid, met_is_framed);
	return fresh;
}

/* The new frames have no frame pointers: none is marked. */
static __attribute__((noinline)) void take_unframed(struct tm_thread *t, uint32_t keep) {
	memset(t->framed + keep, 0, t->depth - keep);
	remember_pairs(t, keep);
}

/* Frames were put behind the `keep` outer ones. Returns how many. */
static inline uint32_t accept_plain(struct tm_thread *t, uint32_t keep, uint32_t fresh, uint32_t checks) {
	if (t->cut_frame >= keep) t->cut_frame = NO_FRAME;
	if (TM_UNLIKELY(t->check_count != checks)) tm_unwind_set_check_count(t, checks);
	t->depth = t->remembered = keep + fresh;
	if (t->framed_low >= keep) t->framed_low = NO_FRAME;
	else take_unframed(t, keep);
	return fresh;
}

/* Is the innermost of the `valid` frames met with one frame pointer alone? *checks: how many are about frames that are kept. */
static inline bool needs_fp(const struct tm_thread *t, uint32_t valid, uint32_t *checks) {
	if (valid > t->framed_low && t->framed[valid - 1]) return true;
	for (*checks = t->check_count; *checks && t->checks[*checks - 1].frame >= valid; --*checks)
		if (t->checks[*checks - 1].until < valid) return true;
	return false;
}

/* Without what has to be remembered about frame pointers, a frame is a look into the table, and its caller's lies where its rule says. */
TM_HOT static __attribute__((noinline)) uint32_t unwind_plain_quickly(struct tm_thread *t, uint32_t valid, uintptr_t slot, uintptr_t pc, uint32_t checks,
								      uint64_t route) {
	/* Of a rule ^ TM_RULE_SP: only that kind has none of these bits. An empty place has them, though it may seem to be meant: where an address has the
	 * tag 0, as the word 1 behind a call has. */
	const uint64_t not_plain = ~0ull << TM_RULE_BITS | 7;
	uintptr_t met = t->sps[valid - 1], at = slot, in = pc;
	uintptr_t *pcs = t->pcs, *slots = t->sps;
	size_t first = 2 * t->capacity, to = first;
	uint64_t rules = tm_rules();
	if (TM_UNLIKELY((met - slot) / 8 > t->capacity - valid)) return unwind_quickly_with_fp(t, valid, slot, route); /* which counts them */
	for (;;) {
		uint64_t hash = tm_rule_hash(in - 1);
		const _Atomic uint64_t *set = tm_rule_set(rules, hash);
		uint64_t wanted = tm_rule_tag(hash) | TM_RULE_SP, rule = atomic_load_explicit(&set[0], memory_order_relaxed) ^ wanted;
		if (TM_UNLIKELY(rule & not_plain)) {
			rule = atomic_load_explicit(&set[1], memory_order_relaxed) ^ wanted;
			if (rule & not_plain) return unwind_quickly_with_fp(t, valid, slot, route);
		}
		to--;
		pcs[to] = in;
		slots[to] = at;
		at += tm_rule_offset((uint32_t)rule);
		if (at >= met) break;
		in = WORD(at);
	}
	if (TM_UNLIKELY(at != met)) return TM_UNWIND_NOT_QUICK;
	uint32_t fresh = (uint32_t)(first - to);
	move_frames(t, valid, fresh);
	tm_route_learn(t, route, valid, fresh, met);
	return accept_plain(t, valid, fresh, checks);
}

static inline uint32_t unwind_by_rules(struct tm_thread *t, uint32_t valid, uintptr_t slot, uintptr_t pc, uint64_t route) {
	uint32_t checks;
	return needs_fp(t, valid, &checks) ? unwind_quickly_with_fp(t, valid, slot, route) : unwind_plain_quickly(t, valid, slot, pc, checks, route);
}

static inline uint32_t source_of_route(uint8_t source) {
	return source == TM_ROUTE_FP_TOP ? TM_CHECK_TOP : source;
}

/* What the walk would have remembered on the way. */
static inline void take_uses(struct quick_fp *fp, const struct tm_route_uses *u, uintptr_t slot) {
	for (fp->count = 0; fp->count < u->count; fp->count++) {
		const struct tm_route_use *use = &u->uses[fp->count];
		uintptr_t value = slot + 8 * (uintptr_t)use->value;
		fp->checks[fp->count] = (struct tm_check){ tm_route_use_at(use, slot), value, source_of_route(use->source), use->user };
	}
}

/* A route that fits, with frame pointers. 0: it does not hold, or leads to another frame. */
static inline uint32_t go_route_with_fp(struct tm_thread *t, const struct tm_route *r, uint32_t valid, uintptr_t slot) {
	struct quick_fp fp;
	uint32_t count = r->count, framed = r->framed & ~TM_ROUTE_USES;
	bool met_is_framed;
	fp.at = slot - 8 + 8 * (uintptr_t)r->fp_at;
	fp.source = source_of_route(r->fp_source);
	fp.count = 0;
	if (r->framed & TM_ROUTE_USES) take_uses(&fp, tm_route_uses(t->routes, r), slot);
	if (!meets(t, &fp, valid, &met_is_framed)) return 0;
	tm_route_go(t, r, valid, slot);
	tm_route_put_marks(t->framed + valid, r);
	accept_with_fp(t, &fp, valid, count);
	note_framed(t, valid, met_is_framed, framed ? valid + (uint32_t)__builtin_ctz(framed) : NO_FRAME);
	return count;
}

/* As tm_unwind_quickly(), of a route that fits as far as its own line tells, but is long or has to do with frame pointers. */
TM_HOT static __attribute__((noinline)) uint32_t go_odd_route(struct tm_thread *t, uint32_t valid, uintptr_t slot, uintptr_t pc,
							      struct tm_route *r) {
	uintptr_t span = r->span;
	uint32_t checks, fresh = r->count;
	if (!tm_route_holds(t->routes, r, slot) || t->capacity - valid < TM_ROUTE_FRAMES)
		return unwind_by_rules(t, valid, slot, pc, tm_route_hash(t->routes, slot, pc, span));
	if (r->framed || needs_fp(t, valid, &checks)) {
		fresh = go_route_with_fp(t, r, valid, slot);
		if (!fresh) return unwind_by_rules(t, valid, slot, pc, tm_route_hash(t->routes, slot, pc, span));
	} else {
		tm_route_go(t, r, valid, slot);
		accept_plain(t, valid, fresh, checks);
	}
	tm_route_note_use(r);
	tm_route_fetch_next(t, r);
	return fresh;
}

TM_HOT uint32_t tm_unwind_go_long_route(struct tm_thread *t, struct tm_route *r, uint32_t keep, uintptr_t slot) {
	if (!tm_route_rest_holds(t->routes, r, slot)) return TM_UNWIND_NOT_QUICK;
	tm_route_go(t, r, keep, slot);
	return tm_route_gone(t, r, keep);
}

static inline void forget_routes(struct tm_thread *t) {
	if (t->routes_learned) tm_routes_forget(t);
}

static inline __attribute__((always_inline)) uint32_t go_found_route(struct tm_thread *t, uint32_t valid, uintptr_t slot, uintptr_t pc, struct tm_route *r) {
	uint32_t checks;
	if (r->framed || !tm_route_is_short(r) || t->capacity - valid < TM_ROUTE_FRAMES || needs_fp(t, valid, &checks))
		return go_odd_route(t, valid, slot, pc, r);
	tm_route_note_use(r);
	tm_route_put_four(t, r->pcs, r->offsets, valid, slot);
	t->pcs[valid + r->count - 1] = pc;
	t->sps[valid + r->count - 1] = slot;
	tm_route_fetch_next(t, r);
	return accept_plain(t, valid, r->count, checks);
}

TM_HOT TM_REALIGN uint32_t tm_unwind_unexpectedly(struct tm_thread *t, uint32_t valid, uintptr_t slot, uintptr_t pc) {
	uintptr_t span = t->sps[valid - 1] - slot;
	if (TM_UNLIKELY(t->truncated)) return TM_UNWIND_NOT_QUICK;
	uint64_t route = tm_route_hash(t->routes, slot, pc, span);
	struct tm_route *r = tm_route_place_one(t, route);
	if (!tm_route_fits(r, slot, pc, span)) {
		r = tm_route_place_two(t, route);
		if (!tm_route_fits(r, slot, pc, span)) return unwind_by_rules(t, valid, slot, pc, route);
	}
	return go_found_route(t, valid, slot, pc, r);
}

TM_HOT uint32_t tm_unwind_quickly(struct tm_thread *t, uint32_t valid, uintptr_t slot, uintptr_t pc) {
	uintptr_t span = t->sps[valid - 1] - slot;
	if (TM_UNLIKELY(t->truncated)) return TM_UNWIND_NOT_QUICK;
	struct tm_route *r = t->route_expected;
	if (!tm_route_fits(r, slot, pc, span)) r = t->route_second;
	return tm_route_fits(r, slot, pc, span) ? go_found_route(t, valid, slot, pc, r) : tm_unwind_unexpectedly(t, valid, slot, pc);
}

#else

static void forget_routes(struct tm_thread *t) {
	(void)t;
}

uint32_t tm_unwind_unexpectedly(struct tm_thread *t, uint32_t valid, uintptr_t slot, uintptr_t pc) {
	return tm_unwind_quickly(t, valid, slot, pc);
}

uint32_t tm_unwind_quickly(struct tm_thread *t, uint32_t valid, uintptr_t slot, uintptr_t pc) {
	(void)t;
	(void)valid;
	(void)slot;
	(void)pc;
	return TM_UNWIND_NOT_QUICK;
}

#endif

TM_COLD static void forget_modules(struct tm_thread *t, uint32_t version) {
	t->remembered = 0;
	t->rules_version = version;
	forget_routes(t);
	tm_known_forget(t);
}

enum tm_unwound tm_unwind(struct tm_thread *t, const struct tm_top *top, uint32_t limit, bool remember, uint32_t valid, struct tm_stack *result) {
	uint32_t version = atomic_load_explicit(&tm_versions.rules, memory_order_acquire), met;
	bool odd = false;
	if (TM_UNLIKELY(version != t->rules_version)) {
		forget_modules(t, version);
		valid = 0;
	}
	struct walk w = walk_from(t, top, limit, remember, version);
	w.known = valid;
	met = go_outward(&w, &odd);
	if (TM_UNLIKELY(odd)) return TM_UNWOUND_ODD;
	if (TM_UNLIKELY(met != NO_FRAME && !fits(t, met + 1 + w.fresh, limit))) { /* cut at the depth limit, then or now */
		w = walk_from(t, top, limit, remember, version);
		met = go_outward(&w, &odd);
		if (odd) return TM_UNWOUND_ODD;
	}
	*result = take_over(&w, met);
	return TM_UNWOUND;
}

/* --- frame pointers: unwind_pairs.c, and what that leaves --- */

/* On its own stack a thread has no pair elsewhere: there the register held something else, and nobody is asked about it. */
static inline bool holds_pair(struct tm_memory *m, uintptr_t at, bool on_own_stack) {
	if (on_own_stack) return at - m->low < m->high - m->low - 8 && at % 8 == 0;
	return tm_memory_holds(m, at) && tm_memory_holds(m, at + 8);
}

enum tm_unwound tm_unwind_by_frame_pointers(struct tm_thread *t, const struct tm_top *top, uint32_t limit, bool remember, uint32_t known,
					    struct tm_stack *result) {
	uint32_t version = atomic_load_explicit(&tm_versions.rules, memory_order_acquire), met = NO_FRAME;
	if (TM_UNLIKELY(version != t->rules_version)) {
		forget_modules(t, version);
		known = 0;
	}
	struct walk w = walk_from(t, top, limit, remember, version);
	w.unlisted = true;
	uintptr_t *pcs = t->pcs + 2 * t->capacity - 1, *slots = t->sps + 2 * t->capacity - 1, pair = top->slot - 8, next;
	for (;; pair = next) {
		while (known && t->sps[known - 1] < pair + 8) known--;
		if (known && t->sps[known - 1] == pair + 8) {
			met = known - 1;
			break;
		}
		next = WORD(pair);
		uintptr_t pc = WORD(pair + 8) & PC_MASK;
		w.cut = true; /* wherever it ends but at main: code without frame pointers uses the register for anything */
		if (tm_unwind_is_no_code(pc)) {
			check_word(&w, pair + 8, WORD(pair + 8));
			break;
		}
		if (tm_unwind_is_ours(pc)) {
			check_word(&w, pair + 8, WORD(pair + 8));
			if (tm_unwind_is_main_wrapper(pc)) {
				w.cut = false;
				break;
			}
			check_word(&w, pair, next);
		} else if (w.fresh == limit) {
			w.truncated = true;
			break;
		} else {
			pcs[-(intptr_t)w.fresh] = pc;
			slots[-(intptr_t)w.fresh] = pair + 8;
			w.fresh++;
		}
		if (next <= pair || !holds_pair(&w.memory, next, remember)) break;
	}
	if (met != NO_FRAME && !fits(t, met + 1 + w.fresh, limit)) {
		t->remembered = 0;
		return tm_unwind_by_frame_pointers(t, top, limit, remember, 0, result);
	}
	if (met != NO_FRAME) w.cut = false; /* what lies outside of it is what it was */
	w.met_is_framed = met != NO_FRAME;
	*result = take_over(&w, met);
	return TM_UNWOUND;
}

/* --- other means --- */

void tm_unwind_put(struct tm_thread *t, uint32_t n, uintptr_t pc, uintptr_t slot) {
	t->pcs[2 * t->capacity - 1 - n] = pc;
	t->sps[2 * t->capacity - 1 - n] = slot;
}

struct tm_stack tm_unwind_take_over(struct tm_thread *t, uint32_t n, bool cut) {
	struct walk w = { .t = t, .fresh = n, .forget = true, .cut = cut, .unlisted = true, .guess = NO_FRAME };
	return take_over(&w, NO_FRAME);
}
