/* scope_lanes.c - what a scope and those inside it have live in a heap, and the most they ever had; see scopes.h.
 *
 * A lane is one heap of one thread: the uses of it by the scopes on the stack, kept as differences between neighbours:
 *
 *     own(k)   bytes live that scope k of the stack, or one inside it, allocated       peak(k)  the most that own(k) ever was
 *     below(k) = peak(k) - own(k) never grows from the outermost inward: a free counts for its scope and all around it, an allocation for all
 *     gap(k)   = below(k) - below(k + 1), so below(k) is the sum of the gaps from k inward
 *     fall(k)  = peak(k) - peak(k + 1), so peak(k) is the sum of the falls from k inward and what the topmost has risen to
 *
 * A free adds its bytes to one gap. An allocation, always by the innermost scope, eats gaps from the innermost outward; what a gap swallows lifts
 * only the peaks inside it, what is left lifts all. Each gap that is eaten was made by a free.
 *
 * Gaps and falls lie in a tree of sums over places, which are given out in the order of opening. Who leaves makes its place empty: what it had is
 * its next neighbour's below, so that sums from there inward stay what they are. When all places are used up the lane is laid out anew. So an event and
 * the end of a scope cost the logarithm of how many are open, in whatever order they end.
 */
#include "scopes.h"

#define FIRST_PLACES 4u

static void add(struct tm_scope_lane *lane, uint32_t place, uint64_t gap, uint64_t fall) {
	for (size_t i = (size_t)lane->places + place; i; i /= 2) {
		lane->sums[i].gap += gap;
		lane->sums[i].fall += fall;
	}
}

static struct tm_lane_sums at(const struct tm_scope_lane *lane, uint32_t place) {
	return lane->sums[(size_t)lane->places + place];
}

static struct tm_lane_sums from_inward(const struct tm_scope_lane *lane, uint32_t place) {
	size_t i = (size_t)lane->places + place;
	struct tm_lane_sums sum = lane->sums[i];
	for (; i > 1; i /= 2) {
		if (i % 2) continue;
		sum.gap += lane->sums[i + 1].gap;
		sum.fall += lane->sums[i + 1].fall;
	}
	return sum;
}

/* --- places --- */

/* Twice as many as are needed, without the empty ones. */
static bool lay_out_anew(struct tm_scope_lane *lane) {
	uint32_t uses = 0, places = FIRST_PLACES;
	for (const struct tm_scope_use *u = lane->bottom; u; u = u->above) uses++;
	while (places < 2 * uses) places *= 2;
	struct tm_lane_sums *sums = calloc(2 * (size_t)places, sizeof *sums);
	uint64_t *epochs = malloc(places * sizeof *epochs);
	if (!sums || !epochs) {
		free(sums);
		free(epochs);
		return false;
	}
	uint32_t place = 0;
	for (struct tm_scope_use *u = lane->bottom; u; u = u->above) {
		sums[places + place] = at(lane, u->place);
		epochs[place] = lane->epochs[u->place];
		u->place = place++;
	}
	for (uint32_t i = places; --i;) {
		sums[i].gap = sums[2 * i].gap + sums[2 * i + 1].gap;
		sums[i].fall = sums[2 * i].fall + sums[2 * i + 1].fall;
	}
	tm_scope_lane_release(lane);
	lane->sums = sums;
	lane->epochs = epochs;
	lane->places = places;
	lane->used = place;
	return true;
}

void tm_scope_lane_release(struct tm_scope_lane *lane) {
	free(lane->sums);
	free(lane->epochs);
}

/* The place of the outermost that opened in this epoch or later; where it was has the same sums. */
static uint32_t place_since(const struct tm_scope_lane *lane, uint64_t epoch) {
	uint32_t low = 0, high = lane->used;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (lane->epochs[middle] < epoch) low = middle + 1;
		else high = middle;
	}
	return low;
}

bool tm_scope_lane_put(struct tm_scope_lane *lane, struct tm_scope_use *u, uint64_t epoch) {
	if (lane->used == lane->places && !lay_out_anew(lane)) return false;
	u->lane = lane;
	u->place = lane->used++;
	u->below = lane->top;
	u->above = NULL;
	lane->epochs[u->place] = epoch;
	if (lane->top) {
		lane->top->above = u;
		add(lane, lane->top->place, 0, lane->risen);
	} else {
		lane->bottom = u;
	}
	lane->top = u;
	lane->risen = 0;
	return true;
}

void tm_scope_lane_inherit(struct tm_scope_use *u, struct tm_scope_use *heir, uint64_t epoch) {
	struct tm_scope_lane *lane = u->lane;
	heir->lane = lane;
	heir->place = u->place;
	heir->below = u->below;
	heir->above = u->above;
	lane->epochs[u->place] = epoch;
	if (u->below) u->below->above = heir;
	else lane->bottom = heir;
	if (u->above) u->above->below = heir;
	else lane->top = heir;
}

void tm_scope_lane_leave(struct tm_scope_use *u) {
	struct tm_scope_lane *lane = u->lane;
	struct tm_lane_sums had = at(lane, u->place);
	add(lane, u->place, -had.gap, -had.fall);
	if (u->below) add(lane, u->below->place, had.gap, had.fall);
	if (u->below) u->below->above = u->above;
	else lane->bottom = u->above;
	if (u->above) {
		u->above->below = u->below;
		return;
	}
	lane->top = u->below;
	lane->used = lane->top ? lane->top->place + 1 : 0;
	uint64_t fall = lane->top ? at(lane, lane->top->place).fall : 0;
	lane->risen = lane->top ? lane->risen + fall : 0;
	if (fall) add(lane, lane->top->place, 0, -fall);
}

/* --- events --- */

static uint32_t topmost_gap(const struct tm_scope_lane *lane) {
	size_t i = 1;
	while (i < lane->places) i = 2 * i + (lane->sums[2 * i + 1].gap != 0);
	return (uint32_t)(i - lane->places);
}

void tm_scope_lane_allocates(struct tm_scope_lane *lane, uint64_t bytes) {
	while (bytes && lane->sums[1].gap) {
		uint32_t place = topmost_gap(lane);
		uint64_t gap = at(lane, place).gap, eaten = bytes < gap ? bytes : gap;
		bool lifts = place != lane->top->place;
		add(lane, place, -eaten, lifts ? -eaten : 0);
		if (lifts) lane->risen += eaten;
		bytes -= eaten;
	}
	lane->risen += bytes;
}

void tm_scope_lane_frees(struct tm_scope_use *u, uint64_t bytes) {
	if (u && u->lane && bytes) add(u->lane, u->place, bytes, 0);
}

/* --- questions --- */

bool tm_scope_measure(const struct tm_scope_lane *lane, uint64_t epoch, uint64_t *peak, uint64_t *live) {
	uint32_t place = lane ? place_since(lane, epoch) : 0;
	bool is_known = lane && place < lane->used;
	*peak = *live = 0;
	if (!is_known) return false;
	struct tm_lane_sums sum = from_inward(lane, place);
	*peak = lane->risen + sum.fall;
	*live = *peak - sum.gap;
	return true;
}
