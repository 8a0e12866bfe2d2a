/* unwind_route.h - ways that were gone, to be gone again without a look at the rules: how they are found and gone.
 *
 * Flow:     for a changed stack: the routes that are expected (unwind_usual.h) -> the one that fits, at one of its two places (unwind.c) -> at a miss the walk
 *           by rules, and unwind_learn.h
 * Idea:     the frames that follow the hook's caller, up to one of those that are kept, are decided by their rules, and so by the words that those look at.
 *           Where every return address on the way is what it was, relative to where the way begins, and every frame pointer that a rule was about points to
 *           where it did, the way is the same. All these words are looked at at once; each rule would be known only after the one before.
 *           What is learned are frames about the stack pointer, "framed" ones (unwind.h), whose frame pointer lies below their return address, and a few
 *           whose frame pointer lies elsewhere. Which one comes out at the end, and what it has to do with the kept ones, is left to who asks.
 * Found by: those that came the last two times; else where the route begins, how far it leads, and the second frame's return address. Where that lies
 *           is guessed, by the innermost one: a wrong guess finds the wrong route, which does not hold.
 * Owns:     struct tm_routes, part of the thread's memory: 244 KiB at most, of which only what was learned is written, but by a main thread that learned
 *           much. All routes of a thread that learned little lie together.
 * Threads:  a thread's own.
 * When full: a route has two places, far from each other. Where both are taken the route that is worth less gives way when it has been of no use for some
 *           time, and now and then whatever it is worth: it may find its other place free, so that in the end nearly all have one. A long one's rest lies
 *           in a place that it shares with others, and is lost when it is taken.
 */
#ifndef TIDEMARK_GUEST_UNWIND_ROUTE_H
#define TIDEMARK_GUEST_UNWIND_ROUTE_H

#include "unwind.h"

#include <string.h>

/* Frames are outermost first, as they are in a stack; the innermost has a place of its own. Those beyond `count` repeat it, so that four can be looked at
 * together. Offsets are from where the route begins, in words. */
#define TM_ROUTE_FIRST 4u
#define TM_ROUTE_REST 24u
#define TM_ROUTE_FRAMES (TM_ROUTE_FIRST + TM_ROUTE_REST + 1)

struct tm_route {
	uintptr_t pc; /* the innermost frame's; 0: there is no route, whatever else is left here */
	uintptr_t pcs[TM_ROUTE_FIRST];
	uint16_t offsets[TM_ROUTE_FIRST];
	uint32_t span;   /* how far it leads, in bytes; never 0, which is asked for when the stack ends at a frame that is kept */
	uint32_t framed; /* bits: frames that are; and TM_ROUTE_USES */
	uint16_t fp_at;  /* where the frame pointer at its end lies, in words from the one below where it begins */
	uint8_t fp_source; /* which frame saved it there, from the innermost; TM_ROUTE_FP_TOP: none, it is the hook's caller's */
	uint8_t count;
	uint8_t worth;   /* so often it may be the wrong one before another takes its place */
	uint8_t used;    /* it was gone again */
};
#define TM_ROUTE_FP_TOP 0xffu
#define TM_ROUTE_USES 0x80000000u

struct tm_route_rest {
	_Alignas(64) uint16_t owner; /* number of the route from 1 on; 0: nobody's */
	uint16_t offsets[TM_ROUTE_REST];
	uintptr_t pcs[TM_ROUTE_REST];
};

/* What is known of frames that were found by a frame pointer which does not lie right below their return address, innermost first. It is lost when another
 * route takes the place. */
#define TM_ROUTE_USES_MAX 4u
struct tm_route_use {
	uint16_t at;    /* where the frame pointer lies, as fp_at */
	int16_t value;  /* where it points to, in words from where the route begins */
	uint8_t source; /* as fp_source */
	uint8_t user;   /* number of the frame, from the innermost */
};

struct tm_route_uses {
	_Alignas(32) uint16_t owner; /* as a rest's */
	uint8_t count;
	struct tm_route_use uses[TM_ROUTE_USES_MAX];
};

#define TM_ROUTES_BITS 11u
#define TM_ROUTES (1u << TM_ROUTES_BITS)
#define TM_ROUTE_RESTS (TM_ROUTES / 8)
#define TM_ROUTE_USERS (TM_ROUTES / 2)
#define TM_ROUTE_SECONDS_BITS 10u
#define TM_ROUTE_NEXTS_BITS 12u
#define TM_ROUTES_AT_FIRST \
	(TM_ROUTES < 256u ? TM_ROUTES : 256u) /* places: on a few pages, as a program that lives for a millisecond pays for each */
#define TM_ROUTES_FEW \
	128u /* who learned as many has all places from then on; a main thread gets all pages at once, as it will learn more, here and there */

struct tm_routes {
	_Alignas(128) struct tm_route routes[TM_ROUTES]; /* first: unwind.c */
	struct tm_route_rest rests[TM_ROUTE_RESTS];
	struct tm_route_uses uses[TM_ROUTE_USERS];
	uint16_t seconds[1u << TM_ROUTE_SECONDS_BITS]; /* by the innermost address: where the second lies, in words */
	uint32_t nexts
		[1u
		 << TM_ROUTE_NEXTS_BITS]; /* by the two that were gone last: which came then, the last time and, in the upper half, before; TM_ROUTE_NEXT_... */
};
#define TM_ROUTE_NEXT_HAS_REST 1u
#define TM_ROUTE_NEXT_HAS_USES 2u
#define TM_ROUTE_NEXT_PLACE 0xffe0u /* half of its offset in struct tm_routes */

_Static_assert(sizeof(struct tm_route) == 64 && offsetof(struct tm_routes, routes) == 0, "a cache line");
_Static_assert(sizeof(struct tm_route) * TM_ROUTES <= 2 << 16, "16 bits are enough for half of an offset");
_Static_assert(sizeof(struct tm_route) * TM_ROUTES / 8 <= sizeof(uint32_t) << TM_ROUTE_NEXTS_BITS, "an eighth is a place among `nexts`");

/* --- finding one --- */

#define TM_ROUTE_FACTOR 0x9E3779B97F4A7C15u

static inline uint16_t *tm_route_second(struct tm_routes *all, uintptr_t pc) {
	return &all->seconds[pc * TM_ROUTE_FACTOR >> (64 - TM_ROUTE_SECONDS_BITS)];
}

/* Of those that begin and lead there. Between `slot` and `span` bytes further all can be read. */
static inline uint64_t tm_route_hash(struct tm_routes *all, uintptr_t slot, uintptr_t pc, uintptr_t span) {
	uintptr_t second = 8 * (uintptr_t)*tm_route_second(all, pc);
	uint64_t key = pc * TM_ROUTE_FACTOR ^ span << 24 ^ TM_UNWIND_WORD(slot + (second < span ? second : 0)) << 12;
	return key * TM_ROUTE_FACTOR;
}

/* A route has two places. Two that share one rarely share the other, so that nearly all places can be used. */
static inline struct tm_route *tm_route_place_one(const struct tm_thread *t, uint64_t hash) {
	return &t->routes->routes[hash >> (64 - TM_ROUTES_BITS) & t->routes_mask];
}

static inline struct tm_route *tm_route_place_two(const struct tm_thread *t, uint64_t hash) {
	return &t->routes->routes[hash >> (64 - 2 * TM_ROUTES_BITS) & t->routes_mask];
}

static inline struct tm_route_rest *tm_route_rest(struct tm_routes *all, const struct tm_route *r) {
	return &all->rests[(size_t)(r - all->routes) % TM_ROUTE_RESTS];
}

static inline uint16_t tm_route_number(const struct tm_routes *all, const struct tm_route *r) {
	return (uint16_t)(r - all->routes + 1);
}

static inline struct tm_route_uses *tm_route_uses(struct tm_routes *all, const struct tm_route *r) {
	return &all->uses[(size_t)(r - all->routes) % TM_ROUTE_USERS];
}

/* Are four frames where they were? */
static inline bool tm_route_holds_four(const uintptr_t *pcs, const uint16_t *offsets, uintptr_t slot) {
#define TM_CHANGED(i) (TM_UNWIND_WORD(slot + 8 * (uintptr_t)offsets[i]) ^ pcs[i])
	return !(TM_CHANGED(0) | TM_CHANGED(1)) && !(TM_CHANGED(2) | TM_CHANGED(3));
#undef TM_CHANGED
}

/* Does it lead where it led, from this place, as far as its own line tells? `slot` holds pc. */
static inline bool tm_route_fits(const struct tm_route *r, uintptr_t slot, uintptr_t pc, uintptr_t span) {
	return r->span == span && r->pc == pc && tm_route_holds_four(r->pcs, r->offsets, slot);
}

static inline bool tm_route_is_short(const struct tm_route *r) {
	return r->count <= TM_ROUTE_FIRST + 1;
}

static inline bool tm_route_rest_holds(struct tm_routes *all, const struct tm_route *r, uintptr_t slot) {
	const struct tm_route_rest *rest = tm_route_rest(all, r);
	if (rest->owner != tm_route_number(all, r)) return false;
	for (uint32_t i = 0; i + TM_ROUTE_FIRST + 1 < r->count; i += 4)
		if (!tm_route_holds_four(rest->pcs + i, rest->offsets + i, slot)) return false;
	return true;
}

/* Where frame i from the outermost lies. */
static inline uintptr_t tm_route_place(struct tm_routes *all, const struct tm_route *r, uint32_t i, uintptr_t slot) {
	if (i + 1 == r->count) return slot;
	return slot + 8 * (uintptr_t)(i < TM_ROUTE_FIRST ? r->offsets[i] : tm_route_rest(all, r)->offsets[i - TM_ROUTE_FIRST]);
}

/* Few frames have one, most often. */
static inline bool tm_route_framed_hold(struct tm_routes *all, const struct tm_route *r, uintptr_t slot) {
	uint32_t left = r->framed & ~TM_ROUTE_USES, before = TM_ROUTE_FRAMES;
	uintptr_t place = 0;
	for (; left; left &= left - 1) {
		uint32_t i = (uint32_t)__builtin_ctz(left);
		uintptr_t outer = !i ? slot + r->span : before + 1 == i ? place : tm_route_place(all, r, i - 1, slot);
		place = tm_route_place(all, r, i, slot);
		if (TM_UNWIND_WORD(place - 8) != outer - 8) return false;
		before = i;
	}
	return true;
}

/* The marks of the frames from the outermost: a bit becomes a byte. Writes up to seven bytes beyond. */
static inline void tm_route_put_marks(uint8_t *marks, const struct tm_route *r) {
	uint32_t framed = r->framed & ~TM_ROUTE_USES;
	for (uint32_t i = 0; i < r->count; i += 8) {
		uint64_t bits = framed >> i & 0xff;
		bits = bits * 0x0101010101010101u & 0x8040201008040201u; /* byte k has bit k, or nothing */
		bits = (bits + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
		memcpy(marks + i, &bits, sizeof bits);
	}
}

static inline uintptr_t tm_route_use_at(const struct tm_route_use *use, uintptr_t slot) {
	return slot - 8 + 8 * (uintptr_t)use->at;
}

static inline bool tm_route_uses_hold(struct tm_routes *all, const struct tm_route *r, uintptr_t slot) {
	const struct tm_route_uses *u = tm_route_uses(all, r);
	if (u->owner != tm_route_number(all, r)) return false;
	for (uint32_t i = 0; i < u->count; i++)
		if (TM_UNWIND_WORD(tm_route_use_at(&u->uses[i], slot)) != slot + 8 * (uintptr_t)u->uses[i].value) return false;
	return true;
}

/* The rest of one that fits. */
static inline bool tm_route_holds(struct tm_routes *all, const struct tm_route *r, uintptr_t slot) {
	if (!tm_route_is_short(r) && !tm_route_rest_holds(all, r, slot)) return false;
	if (r->framed & TM_ROUTE_USES && !tm_route_uses_hold(all, r, slot)) return false;
	return !(r->framed & ~TM_ROUTE_USES) || tm_route_framed_hold(all, r, slot);
}

#define TM_ROUTE_WORTH 8u
#define TM_ROUTE_WORTH_FIRST 4u
#define TM_ROUTE_WAIT_MAX 64u
#define TM_ROUTE_YIELD 8u /* of so many that find no place, one takes another's */

static inline void tm_route_note_use(struct tm_route *r) {
	if (TM_LIKELY(r->worth == TM_ROUTE_WORTH)) return;
	r->worth = TM_ROUTE_WORTH;
	r->used = 1;
}

/* --- which comes next --- */

/* What is done over and over goes the same routes one after the other, and what the program computes meanwhile drives them out of the caches. So of each two
 * that followed each other it is known which came then, the last two times that it was another. These two are fetched, and looked at before all others. */

static inline uint32_t tm_route_offset(const struct tm_routes *all, const struct tm_route *r) {
	return (uint32_t)((uintptr_t)r - (uintptr_t)all->routes);
}

static inline struct tm_route *tm_route_of(struct tm_routes *all, uint32_t next) {
	return (struct tm_route *)((uint8_t *)all + 2 * (size_t)(next & TM_ROUTE_NEXT_PLACE));
}

/* None of these, or the second, is gone now. */
static inline void tm_route_expect(const struct tm_thread *t, const struct tm_route *r) {
	uint32_t me = tm_route_offset(t->routes, r) / 2;
	if (!tm_route_is_short(r)) me |= TM_ROUTE_NEXT_HAS_REST;
	if (r->framed & TM_ROUTE_USES) me |= TM_ROUTE_NEXT_HAS_USES;
	*t->route_next = *t->route_next << 16 | me;
}

static inline void tm_route_fetch(struct tm_routes *all, uint32_t next) {
	const struct tm_route *r = tm_route_of(all, next);
	if (next & TM_ROUTE_NEXT_HAS_REST) {
		const struct tm_route_rest *rest = tm_route_rest(all, r);
		__builtin_prefetch(&rest->owner);
		__builtin_prefetch(&rest->pcs[1]);
	}
	if (next & TM_ROUTE_NEXT_HAS_USES) __builtin_prefetch(tm_route_uses(all, r));
}

/* It was gone. Its offset and that of the one before make a place among `nexts`: two pairs may have the same, and then expect each other's. */
static inline void tm_route_go_on(struct tm_thread *t, struct tm_route *r) {
	struct tm_routes *all = t->routes;
	uint32_t me = tm_route_offset(all, r), *place = (uint32_t *)((uint8_t *)all->nexts + (me / 16 ^ t->route_last)), next = *place;
	t->route_last = me / 8;
	t->route_next = place;
	t->route_expected = tm_route_of(all, next);
	t->route_second = tm_route_of(all, next >> 16);
	__builtin_prefetch(t->route_expected);
	__builtin_prefetch(t->route_second);
	if (TM_UNLIKELY(next & (TM_ROUTE_NEXT_HAS_REST | TM_ROUTE_NEXT_HAS_USES))) tm_route_fetch(all, next);
}

static inline void tm_route_fetch_next(struct tm_thread *t, struct tm_route *r) {
	if (r != t->route_expected) tm_route_expect(t, r);
	tm_route_go_on(t, r);
}

/* --- going it --- */

static inline void tm_route_put_four(const struct tm_thread *t, const uintptr_t *pcs, const uint16_t *offsets, uint32_t at, uintptr_t slot) {
	uintptr_t *slots = t->sps + at;
	memcpy(t->pcs + at, pcs, 4 * sizeof *pcs);
	slots[0] = slot + 8 * (uintptr_t)offsets[0];
	slots[1] = slot + 8 * (uintptr_t)offsets[1];
	slots[2] = slot + 8 * (uintptr_t)offsets[2];
	slots[3] = slot + 8 * (uintptr_t)offsets[3];
}

/* Behind the frames that are kept. Writes up to three beyond its own. */
static inline void tm_route_go(const struct tm_thread *t, const struct tm_route *r, uint32_t keep, uintptr_t slot) {
	tm_route_put_four(t, r->pcs, r->offsets, keep, slot);
	if (r->count <= TM_ROUTE_FIRST) return;
	const struct tm_route_rest *rest = tm_route_rest(t->routes, r);
	for (uint32_t i = 0; i + TM_ROUTE_FIRST + 1 < r->count; i += 4) tm_route_put_four(t, rest->pcs + i, rest->offsets + i, keep + TM_ROUTE_FIRST + i, slot);
	t->pcs[keep + r->count - 1] = r->pc;
	t->sps[keep + r->count - 1] = slot;
}

/* It was gone, and all frames that are new are about the stack pointer. How many they are. */
static inline uint32_t tm_route_gone(struct tm_thread *t, struct tm_route *r, uint32_t keep) {
	uint32_t fresh = r->count;
	tm_route_note_use(r);
	tm_route_fetch_next(t, r);
	t->depth = t->remembered = keep + fresh;
	if (t->cut_frame >= keep) t->cut_frame = UINT32_MAX;
	t->framed_low = UINT32_MAX;
	return fresh;
}

/* unwind.c: the same of one that fits, but is not short, with all that is to be done before. TM_UNWIND_NOT_QUICK: the rest does not hold. */
uint32_t tm_unwind_go_long_route(struct tm_thread *t, struct tm_route *r, uint32_t keep, uintptr_t slot);

#endif
