/* unwind_known.h - stacks that come again, known as a whole.
 *
 * Flow:     emit.c, for every stack -> here: is it one of those that are expected, or was seen with this caller at this place? -> else unwind_usual.h, and
 *           tm_known_note(), which learns what has come some times -> unwind_known.c
 * Idea:     a stack is decided by the words that its frames' rules look at: the return addresses, and such frame pointers as a rule is about. Where all of
 *           these are what they were, at the same places, the stack is the same, whatever was there in between. So a program that does the same things over
 *           and over has its stacks compared, and nothing else; and a record says such a stack by its number alone (../shm.h), which spares the collector
 *           putting it together.
 * Words:    a known stack has words of its own, innermost first, and shares its outer frames with others: a trunk. Where some of these are framed (unwind.h)
 *           each is compared with the word below it, as a pair; of those that are not framed that word does not count.
 * Next:     of each two known stacks that followed each other it is noted which came then, the last time and before that. These two are looked at first; the
 *           one that came last is fetched ahead.
 * Not known are stacks that are not remembered (unwind.h), none on aarch64, nor those with a cut; by frame pointers a cut is where the chain of pairs ends, and
 *           these are compared.
 * Owns:     a thread's memory for them, mapped when it has taken some stacks: 1 MiB of a process's first thread, half of that of some others, 128 KiB of the
 *           rest, as far as they are used.
 * Threads:  a thread's own.
 * When full: all are forgotten. So they are where they are of little use: then none are learned for some time.
 * Left by a jump in the middle: tm_stack_forget() forgets all.
 */
#ifndef TIDEMARK_GUEST_UNWIND_KNOWN_H
#define TIDEMARK_GUEST_UNWIND_KNOWN_H

#include "unwind.h"

#define TM_KNOWN_TOGETHER 4u /* words are compared so many at a time: the last of its own repeat the first, and of a trunk a multiple of that is shared */
#define TM_KNOWN_NEXTS_BITS 12u
#define TM_KNOWN_HEADS_BITS 11u
#define TM_KNOWN_SEEN_BITS 10u
#define TM_KNOWN_SEEN_WAYS 4u
#define TM_KNOWN_LOOKS 4u /* so many with the same caller at the same place are looked at */

struct tm_trunk {
	uint32_t depth, by_pairs, padding[2];
	struct tm_trunk_frame {
		uintptr_t slot, pc;
	} frames[]; /* outermost first */
	/* where by_pairs is set then for every TM_KNOWN_TOGETHER of them as many pairs, and bits of tm_known_same_pairs() that do not count */
};

struct tm_known {
	uintptr_t slot;       /* where the innermost return address lies; 0: nobody's */
	uint64_t word;        /* what the first word of a record says of it */
	struct tm_trunk *trunk;
	uint16_t index;       /* where it lies, in TM_KNOWN_UNITs */
	uint16_t same;        /* the next one with its slot and caller; 0: none */
	uint16_t trunk_depth; /* so many of the trunk's frames are its outer ones */
	uint16_t depth;
	uint16_t words;       /* of its own */
	uint16_t check_count; /* so many of them, behind the frames, are checks, */
	uint16_t framed_count; /* and so many behind those what lies below the return addresses of its own framed frames */
	uint32_t hash;        /* of all its frames */
	/* then `words` values, as many 32-bit places, in words from the one below `slot`, and for each that is no frame's a struct tm_known_about */
};
struct tm_known_about {
	uint32_t frame, until; /* a check's; of a framed frame its index from the outermost */
};
#define TM_KNOWN_UNIT 32u

/* What the thread keeps beside them. */
struct tm_knowns {
	uint32_t nexts[1u << TM_KNOWN_NEXTS_BITS]; /* by the two that came last: the index of which came then, and in the upper half of which before */
	uint16_t heads[1u << TM_KNOWN_HEADS_BITS]; /* by slot and caller: an index */
	uint32_t seen[1u << TM_KNOWN_SEEN_BITS][TM_KNOWN_SEEN_WAYS]; /* hashes of stacks that are not known, and how often they came: the last one first */
	_Alignas(TM_LINE_BYTES) uint8_t units[]; /* the first is nobody's */
};

extern struct tm_known tm_known_nobody TM_HIDDEN;

static inline const uintptr_t *tm_known_values(const struct tm_known *k) {
	return (const uintptr_t *)(k + 1);
}

static inline const uint32_t *tm_known_places(const struct tm_known *k) {
	return (const uint32_t *)(tm_known_values(k) + k->words);
}

static inline const struct tm_pair *tm_trunk_pairs(const struct tm_trunk *trunk) {
	return (const struct tm_pair *)(trunk->frames + trunk->depth);
}

static inline const uint16_t *tm_trunk_passed_over(const struct tm_trunk *trunk) {
	return (const uint16_t *)(tm_trunk_pairs(trunk) + trunk->depth / TM_KNOWN_TOGETHER * TM_KNOWN_TOGETHER);
}

/* Of TM_KNOWN_TOGETHER frames four bits each, the outermost's lowest: two for the word below the return address, two for that; set: it is what it was. */
#define TM_KNOWN_BELOW 3u
#define TM_KNOWN_ALL_SAME 0xffffu
static inline uint32_t tm_known_same_pairs(const struct tm_trunk_frame *frame, const struct tm_pair *pair) {
#if defined(__x86_64__)
#define TM_SAME(k) _mm_cmpeq_epi32(_mm_loadu_si128((const __m128i *)(frame[k].slot - 8)), _mm_load_si128((const __m128i *)&pair[k]))
	return (uint32_t)_mm_movemask_epi8(
		_mm_packs_epi16(_mm_packs_epi32(TM_SAME(0), TM_SAME(1)), _mm_packs_epi32(TM_SAME(2), TM_SAME(3))));
#undef TM_SAME
#else
	uint32_t same = 0;
	for (uint32_t k = 0; k < TM_KNOWN_TOGETHER; k++) {
		if (TM_UNWIND_WORD(frame[k].slot - 8) == pair[k].next) same |= TM_KNOWN_BELOW << 4 * k;
		if (TM_UNWIND_WORD(frame[k].slot) == pair[k].pc) same |= TM_KNOWN_BELOW << 2 << 4 * k;
	}
	return same;
#endif
}

/* As the end of tm_known_holds(), of a trunk by pairs. */
static inline bool tm_known_pairs_hold(const struct tm_trunk *trunk, uint32_t depth) {
	const struct tm_pair *pair = tm_trunk_pairs(trunk);
	const uint16_t *passed_over = tm_trunk_passed_over(trunk);
	for (const struct tm_trunk_frame *frame = trunk->frames, *end = frame + depth; frame < end;
	     frame += TM_KNOWN_TOGETHER, pair += TM_KNOWN_TOGETHER)
		if ((tm_known_same_pairs(frame, pair) | *passed_over++) != TM_KNOWN_ALL_SAME) return false;
	return true;
}

/* Is it what lies there, if it is its slot? */
static inline __attribute__((always_inline)) bool tm_known_holds(const struct tm_known *k, uintptr_t slot) {
	intptr_t words = k->words, i = -words;
	const uintptr_t *values_end = tm_known_values(k) + words;
	const uint32_t *places_end = (const uint32_t *)values_end + words;
	const uintptr_t *base = (const uintptr_t *)(slot - 8);
#define TM_CHANGED(n) (base[places_end[i + (n)]] != values_end[i + (n)])
	do {
		if (TM_CHANGED(0) || TM_CHANGED(1) || TM_CHANGED(2) || TM_CHANGED(3)) return false;
		i += TM_KNOWN_TOGETHER;
	} while (i < 0);
#undef TM_CHANGED
	if (k->trunk->by_pairs) return tm_known_pairs_hold(k->trunk, k->trunk_depth);
	const struct tm_trunk_frame *frame = k->trunk->frames, *end = frame + k->trunk_depth;
#define TM_CHANGED(n) (TM_UNWIND_WORD(frame[n].slot) != frame[n].pc)
	for (; frame < end; frame += TM_KNOWN_TOGETHER)
		if (TM_CHANGED(0) || TM_CHANGED(1) || TM_CHANGED(2) || TM_CHANGED(3)) return false;
#undef TM_CHANGED
	return true;
}

static inline struct tm_known *tm_known_at(struct tm_knowns *all, uint32_t index) {
	return (struct tm_known *)(all->units + (size_t)TM_KNOWN_UNIT * index);
}

/* It came: what may come then is fetched. */
static inline __attribute__((always_inline)) void tm_known_go_on(struct tm_thread *t, const struct tm_known *k) {
	struct tm_knowns *all = t->knowns;
	uint32_t me = k->index, *place = &all->nexts[(me ^ t->known_last) & ((1u << TM_KNOWN_NEXTS_BITS) - 1)];
	t->known_last = me * 5;
	t->known_next = place;
	struct tm_known *expected = tm_known_at(all, *place & 0xffff);
	t->known_expected = expected;
	__builtin_prefetch(expected);
	__builtin_prefetch((const uint8_t *)expected + TM_LINE_BYTES);
}

/* Behind the stamp of a record, where the program need not wait for memory; `taken` is what the record's first word says. Who records no stack does not need
 * it: then less is foretold. */
static inline void tm_known_settle(struct tm_thread *t, uint64_t taken) {
	if (taken & TM_RING_KNOWN << 8 && t->known) tm_known_go_on(t, t->known);
}

/* One that was not expected first, of which there are some. NULL: it is none of the known ones. */
struct tm_known *tm_known_find(struct tm_thread *t, uintptr_t slot);

/* Which of the known stacks it is; NULL: none. *all: it is all that there is to say, as modules are what they were. Of what is expected nobody has a slot while
 * none is known. */
static inline __attribute__((always_inline)) struct tm_known *tm_known_take(struct tm_thread *t, uintptr_t slot, bool *all) {
	struct tm_known *k = t->known_expected;
	if (TM_UNLIKELY(k->slot != slot) || TM_UNLIKELY(!tm_known_holds(k, slot))) {
		k = t->known_count ? tm_known_find(t, slot) : NULL;
		if (!k) return NULL;
	}
	*all = TM_LIKELY(atomic_load_explicit(&tm_versions.both, memory_order_acquire) == t->versions);
	if (!*all && atomic_load_explicit(&tm_versions.rules, memory_order_acquire) != t->rules_version) return NULL;
	t->known = k;
	t->known_hits++;
	return k;
}

/* The known stack that was taken last becomes what the next one is compared with. Of what was taken nothing changes. Memory that lies below `readable` may have
 * gone. */
void tm_known_restore(struct tm_thread *t, uintptr_t readable);

/* A stack was taken that was not found among the known ones; `taken` is what its record's first word says. Returns that, with TM_RING_LEARN where it is known
 * from now on, or what says it shorter. */
uint64_t tm_known_note_now(struct tm_thread *t, uint64_t taken);

static inline uint64_t tm_known_note(struct tm_thread *t, uint64_t taken) {
	if (!t->known_wait_left) return tm_known_note_now(t, taken);
	t->known_wait_left--;
	return taken;
}

/* The return address of frame i of the stack that was taken last, from the innermost, and how many frames that has. */
static inline uintptr_t tm_known_or_taken_pc(const struct tm_thread *t, uint32_t i) {
	const struct tm_known *k = t->known;
	if (!k) return t->pcs[t->depth - 1 - i];
	return i < (uint32_t)(k->depth - k->trunk_depth) ? tm_known_values(k)[i] : k->trunk->frames[k->depth - 1 - i].pc;
}

static inline uint32_t tm_known_or_taken_depth(const struct tm_thread *t) {
	return t->known ? t->known->depth : t->depth;
}

static inline bool tm_known_is_cut(const struct tm_known *k) {
	return k->word & TM_RING_CUT << 8;
}

static inline bool tm_known_or_taken_is_cut(const struct tm_thread *t) {
	return t->known ? tm_known_is_cut(t->known) : t->cut_frame != UINT32_MAX;
}

void tm_known_prepare(struct tm_thread *t);
void tm_known_forget(struct tm_thread *t);
void tm_known_release(struct tm_thread *t);

#endif
