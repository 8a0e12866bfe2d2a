/* python_stack.c - the calling thread's Python stack.
 *
 * Flow:     hot.h, emit.c -> tm_python_take() -> PYTHON_STACK in the ring, or nothing where it is the one sent last; the event's record is flagged
 * Idea:     the interpreter's frames are a chain from the innermost outward. It is walked along the stack that was sent last: while frame, code and
 *           instruction are the same nothing is written, and where all are, nothing is sent. Else frames are taken until one is met from which on the
 *           chain goes on as before; where none is met soon, the whole chain is taken, and what both have in common from the outermost frame inward is kept.
 * Quickly:  where nothing has changed, and the thread holds the GIL, that is found out without a call of the interpreter's or of libc's: the thread's state is
 *           read where libc keeps it for the interpreter (tm_place_of_key_value()), or from 3.12 on in the thread's own variable. Not with --sample,
 *           where it could be finalized without our seeing it, and the place be another's.
 * Cost:     tests/integration/test_adaptor_cost.py counts the instructions of a stack that has not changed.
 * A frame and a code object are pointers, and others may lie there later, also where no stack was taken in between: not all that a program does is an
 * event. A frame that is new in the chain has its code object's values compared (python_codes.c). One that is not has the code object that it had, as
 * long as none of the stack's was freed; once one was, all frames are new.
 * What may be read, and why it cannot fault: python.h.
 */
#include "hot.h"
#include "python.h"
#include "raw.h"
#include "unwind_known.h"

#include <string.h>

#define SENT_NATIVE ((uint64_t)1 << 63) /* native code called it */
#define SENT_BEFORE 0x7fffffffu         /* it has not begun: the line is its first */
#define OWNED_BY_C 3                    /* and above: an entry of the evaluation loop, not a frame of the program's */

/* --- one step along the chain --- */

struct chain {
	const struct tm_python *p;
	uintptr_t frame;
};

static inline void skip_entries(const struct tm_python *p, uintptr_t *frame) {
	while (*frame && *(const uint8_t *)(*frame + p->offsets.owner) >= OWNED_BY_C) {
		uintptr_t previous = tm_python_word(*frame, p->offsets.previous);

		*frame = tm_python_plausible(previous) ? previous : 0;
	}
}

/* The frame where the chain stands, into *out; the chain goes on to the next one outward. A chain that ends stands at 0. */
static inline bool take_frame(struct chain *c, struct tm_python_frame *out) {
	const struct tm_python *p = c->p;
	uintptr_t frame = c->frame, previous, instr;
	bool native = true;

	if (!tm_python_plausible(frame)) return false;
	out->frame = frame;
	out->code = tm_python_word(frame, p->offsets.code) & ~(uintptr_t)7; /* from 3.14 on the lowest bits are a tag */
	previous = tm_python_word(frame, p->offsets.previous);
	if (p->kind == TM_PYTHON_OBJECTS) {
		instr = (uint32_t) * (const int32_t *)(frame + p->offsets.instr);
		instr <<= 1; /* keeps the lowest bit free */
	} else {
		instr = tm_python_word(frame, p->offsets.instr);
		if (p->kind == TM_PYTHON_INNER_311) {
			native = *(const uint8_t *)(frame + p->offsets.entry) != 0;
		} else {
			native = !tm_python_plausible(previous) || *(const uint8_t *)(previous + p->offsets.owner) >= OWNED_BY_C;
			if (native && tm_python_plausible(previous)) skip_entries(p, &previous);
		}
	}
	out->instr = instr | native;
	c->frame = tm_python_plausible(previous) ? previous : 0;
	return true;
}

static inline bool same_frame(const struct tm_python_frame *a, const struct tm_python_frame *b) {
	return a->frame == b->frame && a->code == b->code && a->instr == b->instr;
}

/* Where the chain begins; 0 or what could be no frame: nowhere. */
static inline __attribute__((always_inline)) uintptr_t top_frame(const struct tm_python *p, uintptr_t state, enum tm_python_frames kind) {
	uintptr_t at = tm_python_word(state, p->offsets.top);

	if (kind == TM_PYTHON_INNER_311 || (kind == TM_PYTHON_INNER && p->cframe))
		at = tm_python_plausible(at) ? tm_python_word(at, p->offsets.cframe_top) : 0;
	if (kind == TM_PYTHON_INNER && tm_python_plausible(at)) skip_entries(p, &at);
	return at;
}

/* To 3.11 a thread knows its first state only, which is not the one that runs while it is in another interpreter. Whose state runs can be read
 * without holding the GIL, but not what it says: so where there are several interpreters, a thread has Python stacks only while it is in that first one. */
static inline bool is_in_other_interpreter(const struct tm_python *p) {
	return p->head && p->main && p->head() != p->main();
}

static inline bool runs_python(const struct tm_python *p, uintptr_t pc) {
	return pc - 1 - p->runs[0].low < p->runs[0].high - p->runs[0].low ||
	       (p->run_count > 1 && pc - 1 - p->runs[1].low < p->runs[1].high - p->runs[1].low);
}

#define FURTHER_OUT_BYTES (256u << 10) /* so much of a stack is looked through for each event, where nothing is found */

static inline bool leads_back(const struct tm_python *p, uintptr_t slot) {
	return runs_python(p, TM_UNWIND_WORD(slot) & TM_UNWIND_PC_MASK);
}

/* Beyond where a stack was cut: does a word on the rest of the thread's own stack lead back into what runs Python functions? One that a call has left there may
 * be taken for it; on another stack nothing is looked at. */
static TM_COLD bool runs_further_out(const struct tm_python *p, const struct tm_thread *t) {
	struct tm_python_thread *s = t->python;
	uintptr_t at = (uintptr_t)__builtin_frame_address(0), seen = t->known ? t->known->slot : t->sps[0];

	if (at - t->stack_low >= t->stack_high - t->stack_low) return false;
	if (seen > at && seen < t->stack_high) at = seen;
	if (s && s->run_slot >= at && s->run_slot < t->stack_high && leads_back(p, s->run_slot)) return true;
	uintptr_t end = t->stack_high - at > FURTHER_OUT_BYTES ? at + FURTHER_OUT_BYTES : t->stack_high;
	for (; at + 8 <= end; at += 8) {
		if (!leads_back(p, at)) continue;
		if (s) s->run_slot = at;
		return true;
	}
	return false;
}

/* Does the native stack that was just taken run a Python function? Where it is not known what runs them: perhaps. */
static bool may_run_python(const struct tm_python *p, const struct tm_thread *t) {
	struct tm_python_thread *s = t->python;
	uint32_t depth = tm_known_or_taken_depth(t);

	if (!p->run_count) return true;
	if (s && s->run_frame < depth && runs_python(p, tm_known_or_taken_pc(t, depth - 1 - s->run_frame))) return true;
	for (uint32_t at = 0; at < depth; at++) {
		if (!runs_python(p, tm_known_or_taken_pc(t, depth - 1 - at))) continue;
		if (s) s->run_frame = at;
		return true;
	}
	return tm_known_or_taken_is_cut(t) && runs_further_out(p, t);
}

/* Another thread may have deleted the state, or run it now: then this thread is in no Python function. While it is in one its state lives, and is its own. From
 * 3.12 on it knows of itself what it runs; before, only what is run by whichever thread. */
static bool is_to_be_read(const struct tm_python *p, const struct tm_thread *t, const void *state, enum tm_python_frames kind) {
	bool is_current = p->current_thread && p->current_thread() == state;

	if (kind == TM_PYTHON_INNER) return is_current || may_run_python(p, t);
	return (is_current || !p->current_thread || !is_in_other_interpreter(p)) && may_run_python(p, t);
}

/* --- comparing with the last one --- */

static inline struct tm_python_offsets offsets_of(const struct tm_python *p, enum tm_python_frames kind) {
	return kind == TM_PYTHON_INNER_311 ? (struct tm_python_offsets){ TM_PYTHON_OFFSETS_311 } : p->offsets;
}

#define END_OF_STACK ((uintptr_t)0x9e3779b97f4a7c15u) /* behind the last frame of one: no address, nor a value that is met in a program */

/* Is the frame where the chain stands `f`, as it was? Then the chain goes on to the next one outward. What is remembered was read before, so an address that is
 * the same can be read. The interpreter's entries lie on the C stack, where no frame of the program's does: only behind one that native code called they
 * have to be looked for. Where an instruction is an address it lies within its code object, and as none was freed, it tells which that is; in the older
 * interpreters it is a number. */
static inline __attribute__((always_inline)) bool passes(const struct tm_python *p, uintptr_t *chain, const struct tm_python_frame *f,
							 enum tm_python_frames kind) {
	const struct tm_python_offsets at = offsets_of(p, kind);
	uintptr_t changed, frame = *(const volatile uintptr_t *)&f->frame; /* it is known sooner than `chain`, so that all frames are fetched at once */

	if (*chain != f->frame) return false;
	if (kind == TM_PYTHON_OBJECTS && (tm_python_word(frame, at.code) & ~(uintptr_t)7) != f->code) return false;
	if (kind == TM_PYTHON_OBJECTS) changed = f->instr ^ ((uintptr_t)(uint32_t) * (const int32_t *)(frame + at.instr) << 1 | 1);
	else if (kind == TM_PYTHON_INNER_311)
		changed = f->instr ^ (tm_python_word(frame, at.instr) | *(const uint8_t *)(frame + at.entry)); /* a bool */
	else
		changed = (f->instr ^ tm_python_word(frame, at.instr)) & ~(uintptr_t)1; /* whether it is called by native code is seen below */
	if (changed) return false;
	*chain = tm_python_word(frame, at.previous);
	if (kind != TM_PYTHON_INNER || !(f->instr & 1) || !tm_python_plausible(*chain)) return true;
	if (*(const uint8_t *)(*chain + at.owner) < OWNED_BY_C) return false;
	skip_entries(p, chain);
	return true;
}

/* True if the chain, which stands at `frame`, goes on as the stack that was sent last does from its frame `f` on. Two frames a turn spare an instruction. */
static inline __attribute__((always_inline)) bool goes_on(const struct tm_python *p, const struct tm_python_thread *s, uintptr_t frame,
							  const struct tm_python_frame *f, enum tm_python_frames kind) {
	for (; passes(p, &frame, f, kind); f += 2) {
		if (passes(p, &frame, f + 1, kind)) continue;
		f++;
		break;
	}
	return f == s->end && frame == s->beyond;
}

TM_HOT static bool is_unchanged_from(const struct tm_python *p, const struct tm_python_thread *s, uintptr_t frame, uint32_t i) {
	if (p->kind == TM_PYTHON_OBJECTS) return goes_on(p, s, frame, s->last + i, TM_PYTHON_OBJECTS);
	if (p->kind == TM_PYTHON_INNER_311) return goes_on(p, s, frame, s->last + i, TM_PYTHON_INNER_311);
	return goes_on(p, s, frame, s->last + i, TM_PYTHON_INNER);
}

/* --- taking it --- */

static inline bool is_frame(const struct tm_python *p, const struct tm_python_frame *f) {
	return tm_python_plausible(f->code) && tm_python_word(f->code, p->type) == p->code_type;
}

/* The whole chain, innermost first, into s->next. *cut: deeper than there is room. */
static uint32_t take_all(struct chain c, struct tm_python_thread *s, uint32_t capacity, bool *cut) {
	const struct tm_python *p = c.p;
	struct tm_python_frame *f = s->next;
	uint32_t n = 0;

	while (n < capacity && take_frame(&c, f)) {
		if (!is_frame(p, f)) {
			if (p->kind != TM_PYTHON_INNER) break; /* not a frame, and so nothing behind it is */
			continue;                              /* one that an extension put there, without code */
		}
		f++;
		n++;
	}
	*cut = n == capacity && c.frame;
	return n;
}

#define NEW_FRAMES_MAX 8u /* more than that are not looked at one by one */
#define LOOK_AHEAD 6u

/* Where the frame stands in the stack that was sent last, not far in from `from`; s->depth: nowhere. */
static uint32_t place_of(const struct tm_python_thread *s, uint32_t from, uintptr_t frame) {
	for (uint32_t i = from; i < s->depth && i < from + LOOK_AHEAD; i++)
		if (s->last[i].frame == frame) return i;
	return s->depth;
}

/* Most often few frames are new, or a frame has gone on to its next call. Takes these into s->next and, behind them, the rest of the last stack once the chain
 * is seen to go on as that does. Returns the depth, and in *keep how much of it was sent already; 0: it is not so simple. */
TM_HOT static uint32_t take_new(struct chain c, struct tm_python_thread *s, uint32_t capacity, uint32_t *keep) {
	struct tm_python_frame *f = s->next;
	uint32_t from = 0;

	if (s->cut) return 0;
	for (uint32_t n = 0; n < NEW_FRAMES_MAX && c.frame; n++, f++) {
		uintptr_t frame = c.frame;
		uint32_t place = place_of(s, from, frame);

		if (place < s->depth && is_unchanged_from(c.p, s, frame, place)) {
			*keep = s->depth - place;
			if (n + *keep > capacity) return 0;
			memcpy(f, s->last + place, *keep * sizeof *f);
			return n + *keep;
		}
		if (!take_frame(&c, f) || !is_frame(c.p, f)) return 0;
		if (place < s->depth) from = place + 1;
	}
	return 0;
}

/* How many frames, counted from the outermost, both have in common. */
static uint32_t common(const struct tm_python_thread *s, uint32_t depth) {
	const struct tm_python_frame *a = s->last + s->depth, *b = s->next + depth;
	uint32_t n = 0, least = depth < s->depth ? depth : s->depth;

	while (n < least && same_frame(a - n - 1, b - n - 1)) n++;
	return n;
}

/* Where the chain stands behind the stack that was sent last, as goes_on() gets there. */
static uintptr_t beyond(const struct tm_python *p, const struct tm_python_thread *s) {
	const struct tm_python_frame *outermost = &s->last[s->depth - 1];
	uintptr_t frame = tm_python_word(outermost->frame, p->offsets.previous);

	if (p->kind == TM_PYTHON_INNER && outermost->instr & 1 && tm_python_plausible(frame)) skip_entries(p, &frame);
	return frame;
}

/* --- records --- */

static uint64_t instruction_offset(const struct tm_python_frame *f) {
	const struct tm_python *p = &tm_python;
	uintptr_t base = f->code + p->bytecode, instr = f->instr & ~(uintptr_t)1;
	int64_t offset;

	if (p->kind == TM_PYTHON_OBJECTS) {
		int32_t last = (int32_t)(uint32_t)(instr >> 1);

		if (last < 0) return SENT_BEFORE;
		return p->version >= 0x030a ? (uint32_t)last * 2 : (uint32_t)last;
	}
	if (p->copies) { /* each thread may have a copy of the bytecode: an array of them behind its size */
		uint32_t index = *(const uint32_t *)(f->frame + p->copy_index);
		uintptr_t copies = tm_python_word(f->code, p->copies);

		if (index && tm_python_plausible(copies) && index < tm_python_word(copies, 0)) base = tm_python_word(copies, 8 + index * 8);
	}
	offset = (int64_t)(instr - base);
	return offset >= 0 && offset < SENT_BEFORE ? (uint64_t)offset : SENT_BEFORE;
}

TM_COLD static bool announce(struct tm_thread *t, struct tm_python_thread *s) {
	uint32_t generation = tm_python.generation;
	unsigned i = 0;

	do {
		const struct tm_python_range none = { 0, 0 }, *run = i < tm_python.run_count ? &tm_python.runs[i] : &none;
		uint64_t words[2] = { run->low, run->high };

		if (!tm_emit_control(t, TM_CTL_PYTHON_RUN, 0, i, words, 2, NULL, 0)) return false;
	} while (++i < tm_python.run_count);
	s->announced = generation;
	return true;
}

/* Writes the stack in s->next, of which `keep` outer frames are the last one's. false: it could not be. */
TM_HOT static bool send(struct tm_thread *t, struct tm_python_thread *s, uint32_t depth, uint32_t keep) {
	uint32_t fresh = depth - keep;
	uint64_t *r;

	if (s->announced != tm_python.generation && !announce(t, s)) return false;
	for (uint32_t i = 0; i < fresh; i++) {
		struct tm_python_frame *f = &s->next[i];
		uint32_t number = tm_python_code_number(t, f->code);

		if (!number) return false;
		s->words[i] = number | instruction_offset(f) << 32 | (f->instr & 1 ? SENT_NATIVE : 0);
	}
	if (!tm_reserve(t, 2 + fresh, TM_PART_OF_EVENT, &r)) return false;
	r[0] = tm_ring_word(TM_CTL_PYTHON_STACK, 0, 2 + fresh, keep, fresh);
	r[1] = tm_in_order(t, tm_now());
	memcpy(r + 2, s->words, fresh * sizeof *r);
	tm_advance(t, r + 2 + fresh);
	return true;
}

/* --- a thread's state --- */

static size_t state_bytes(const struct tm_thread *t) {
	return sizeof(struct tm_python_thread) + (t->capacity + 1) * (2 * sizeof(struct tm_python_frame) + sizeof(uint64_t));
}

static void *const _Atomic nothing = NULL;

TM_COLD static struct tm_python_thread *make_state(struct tm_thread *t) {
	struct tm_python_thread *s = tm_is_sandboxed() ? NULL : tm_raw_map(state_bytes(t));

	if (!s) return NULL;
	s->last = (struct tm_python_frame *)(s + 1);
	s->next = s->last + t->capacity + 1;
	s->words = (uint64_t *)(s->next + t->capacity + 1);
	s->place = s->current = &nothing;
	s->state = TM_PYTHON_NO_STATE;
	s->ready = TM_PYTHON_READY;
	return t->python = s;
}

void tm_python_start_thread(struct tm_thread *t) {
	struct tm_python_thread *s = t->python;

	if (!s) return;
	tm_python_forget(t);
	s->place = s->current = &nothing;
	s->tries = 0;
	s->announced = 0;
	s->last_number = s->code_count = 0;
	if (s->codes) memset(s->codes, 0, s->code_capacity * sizeof *s->codes);
}

void tm_python_free_thread(struct tm_thread *t) {
	struct tm_python_thread *s = t->python;

	if (!s) return;
	tm_python_codes_free(s);
	tm_raw_unmap(s, state_bytes(t));
	t->python = NULL;
}

/* --- the stack --- */

static inline unsigned flags_of(const struct tm_python_thread *s) {
	return TM_RING_PYTHON | (s->cut ? TM_RING_CUT : 0);
}

/* Of a chain that begins at `top` and is not what was sent last. */
TM_HOT TM_REALIGN static __attribute__((noinline)) unsigned take_changed(struct tm_thread *t, const struct tm_python *p, uintptr_t top) {
	struct tm_python_thread *s = t->python;
	struct chain c = { p, top };
	struct tm_python_frame *swap;
	uint32_t depth, keep, capacity = t->capacity;
	uint32_t codes_freed = atomic_load_explicit(&p->codes_freed, memory_order_relaxed);
	bool cut = false;

	if (!tm_python_plausible(top)) return 0;
	if (!s && !(s = make_state(t))) return 0;
	if (s->codes_freed != codes_freed) tm_python_forget(t);
	s->codes_freed = codes_freed;
	depth = s->depth ? take_new(c, s, capacity, &keep) : 0;
	if (!depth) {
		depth = take_all(c, s, capacity, &cut);
		keep = common(s, depth);
	}
	if (!depth) return 0;
	if (!send(t, s, depth, keep)) {
		tm_python_forget(t);
		return 0;
	}
	swap = s->last;
	s->last = s->next;
	s->next = swap;
	s->cut = cut;
	s->depth = depth;
	s->end = &s->last[depth];
	s->end->frame = END_OF_STACK;
	s->beyond = beyond(p, s);
	s->word = tm_ring_word(0, flags_of(s), 0, 0, 0);
	if (!p->counts_codes) s->depth = 0;
	return flags_of(s);
}

#define TRIES 64u /* so many stacks are taken before: of many threads there are few */

/* From 3.12 on a thread has a variable of its own for the state that it runs, and that is all there is to know. */
static void find_places(struct tm_thread *t, const struct tm_python *p, const void *state) {
	struct tm_python_thread *s = t->python;
	void *const _Atomic *own = p->kind == TM_PYTHON_INNER ? tm_python_own_current(p) : tm_place_of_key_value(t, state);
	void *const _Atomic *current = p->kind == TM_PYTHON_INNER ? own : p->current;

	if (!own || !current || atomic_load(own) != state || atomic_load(current) != state) return;
	s->place = own;
	s->current = current;
}

/* A stack was taken of this state, and could be compared with: the next one quickly, if nothing is to be asked then. */
static __attribute__((noinline)) void prepare_quick_steps(struct tm_thread *t, const struct tm_python *p, const void *state) {
	struct tm_python_thread *s = t->python;

	s->state = TM_PYTHON_NO_STATE;
	if (!s->depth || t->samples) return;
	if (s->tries < TRIES && ++s->tries == TRIES) find_places(t, p, state);
	s->state = (uintptr_t)state;
	s->cframe = tm_python_word(s->state, p->offsets.top);
}

/* Is the stack the one that was sent last? Where false is said it may be. */
static inline __attribute__((always_inline)) bool is_quickly_same(const struct tm_python *p, const struct tm_python_thread *s, enum tm_python_frames kind) {
	uintptr_t state = (uintptr_t)atomic_load_explicit(s->place, memory_order_relaxed), top;

	if (state != s->state) return false;
	if (kind != TM_PYTHON_INNER && (uintptr_t)atomic_load_explicit(s->current, memory_order_relaxed) != state) return false;
	top = tm_python_word(state, offsets_of(p, kind).top);
	if (kind == TM_PYTHON_INNER_311 || (kind == TM_PYTHON_INNER && p->cframe)) {
		if (top != s->cframe) return false;
		top = tm_python_word(top, offsets_of(p, kind).cframe_top);
	}
	return goes_on(p, s, top, s->last, kind);
}

/* Is there a stack that was sent last, and is every code object in it the one that it was? */
static inline bool has_its_codes(const struct tm_python *p, struct tm_python_thread *s) {
	if (!s->depth) return false;
	return s->codes_freed == atomic_load_explicit(&p->codes_freed, memory_order_relaxed) || tm_python_codes_are_same(s);
}

static inline __attribute__((always_inline)) unsigned take(struct tm_thread *t, const struct tm_python *p, enum tm_python_frames kind) {
	struct tm_python_thread *s = t->python;
	if (p->interpreters && !*p->interpreters) return 0;
	const void *state = p->this_thread();
	uintptr_t top;
	unsigned flags;

	if (!state || !is_to_be_read(p, t, state, kind)) return 0;
	top = top_frame(p, (uintptr_t)state, kind);
	if (!s || !has_its_codes(p, s) || !goes_on(p, s, top, s->last, kind)) {
		flags = take_changed(t, p, top);
		if (!flags) return 0;
	}
	s = t->python;
	if (!s->depth || s->state != (uintptr_t)state || s->tries < TRIES || s->cframe != tm_python_word(s->state, p->offsets.top))
		prepare_quick_steps(t, p, state);
	return flags_of(s);
}

/* Something is to be done first. False: no walk. */
TM_COLD static bool make_ready(struct tm_thread *t) {
	struct tm_python *p = &tm_python;
	if (atomic_load(&p->state) & TM_PYTHON_HEAP_PENDING) tm_python_heap_poll(t);
	uint32_t state = atomic_load(&p->state);
	if (!(state & TM_PYTHON_READY)) return false;
	if (!(state & TM_PYTHON_LEAVING)) return true;
	if (p->is_finalizing()) return false;
	atomic_fetch_or(&p->state, TM_PYTHON_ASKS);
	atomic_fetch_and(&p->state, ~TM_PYTHON_LEAVING); /* it was initialized again */
	tm_python_heap_found(t);
	return true;
}

TM_HOT uint64_t tm_python_take_asking(struct tm_thread *t) {
	const struct tm_python *p = &tm_python;
	unsigned flags = 0;

	if (TM_UNLIKELY(atomic_load_explicit(&p->state, memory_order_acquire) != TM_PYTHON_READY) && !make_ready(t)) return 0;
	atomic_store_explicit(&t->ring->walking, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (TM_LIKELY(!(atomic_load_explicit(&p->state, memory_order_relaxed) & TM_PYTHON_LEAVING))) {
		if (p->kind == TM_PYTHON_OBJECTS) flags = take(t, p, TM_PYTHON_OBJECTS);
		else if (p->kind == TM_PYTHON_INNER_311) flags = take(t, p, TM_PYTHON_INNER_311);
		else flags = take(t, p, TM_PYTHON_INNER);
	}
	atomic_store_explicit(&t->ring->walking, 0, memory_order_release);
	return tm_ring_word(0, flags, 0, 0, 0);
}

static inline __attribute__((always_inline)) uint64_t same(struct tm_thread *t, enum tm_python_frames kind) {
	const struct tm_python *p = &tm_python;
	const struct tm_python_thread *s = t->python;
	bool is_same;

	if (TM_UNLIKELY(!s)) return 0;
	atomic_store_explicit(&t->ring->walking, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	is_same = TM_LIKELY(atomic_load_explicit(&p->state_and_freed, memory_order_acquire) == s->ready_and_freed) && is_quickly_same(p, s, kind);
	atomic_store_explicit(&t->ring->walking, 0, memory_order_release);
	return TM_LIKELY(is_same) ? s->word : 0;
}

TM_HOT static uint64_t same_objects(struct tm_thread *t) {
	return same(t, TM_PYTHON_OBJECTS);
}

TM_HOT static uint64_t same_inner_311(struct tm_thread *t) {
	return same(t, TM_PYTHON_INNER_311);
}

TM_HOT static uint64_t same_inner(struct tm_thread *t) {
	return same(t, TM_PYTHON_INNER);
}

static uint64_t never_same(struct tm_thread *t) {
	(void)t;
	return 0;
}

void tm_python_set_same(struct tm_python *p) {
	p->same = p->kind == TM_PYTHON_OBJECTS ? same_objects : p->kind == TM_PYTHON_INNER_311 ? same_inner_311 : same_inner;
}

struct tm_python tm_python = { .same = never_same };
