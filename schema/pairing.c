/* pairing.c - which free ends which block; see pairing.h.
 *
 * What waits stands in a ring in order of arrival and, by its address, in a hash chain in the same order. p->chains holds the chains' first numbers,
 * then their last ones.
 */
#include "pairing.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_WAITING 64u
#define FIRST_SEEN 1024u
#define RECENT_BITS 9u /* pairs of addresses */

void tm_pairing_init(struct tm_pairing *p, const struct tm_pairing_sink *sink, void *context) {
	*p = (struct tm_pairing){ .sink = sink, .context = context, .head = 1, .tail = 1 };
}

void tm_pairing_release(struct tm_pairing *p) {
	tm_blocks_release(&p->blocks);
	free(p->seen.slots);
	p->seen = (struct tm_address_set){ 0 };
	free(p->recent);
	p->recent = NULL;
	free(p->queue);
	free(p->chains);
	p->queue = NULL;
	p->chains = NULL;
	p->head = p->tail = 1;
}

static struct tm_waiting *at(const struct tm_pairing *p, uint64_t number) {
	return &p->queue[number & p->mask];
}

static uint64_t *chain_of(const struct tm_pairing *p, uint64_t address) {
	return &p->chains[(address >> 4 ^ address) * 0x9E3779B97F4A7C15ull >> 32 & p->mask];
}

static uint64_t *end_of_chain(const struct tm_pairing *p, const uint64_t *chain) {
	return p->chains + p->mask + 1 + (chain - p->chains);
}

static void link_waiting(struct tm_pairing *p, uint64_t number) {
	uint64_t *chain = chain_of(p, at(p, number)->block.address), *last = end_of_chain(p, chain);
	at(p, number)->next = 0;
	*(*chain ? &at(p, *last)->next : chain) = number;
	*last = number;
}

static void unlink_waiting(struct tm_pairing *p, uint64_t number) {
	uint64_t *chain = chain_of(p, at(p, number)->block.address), *link = chain, *last = end_of_chain(p, chain), before = 0;
	while (*link != number) {
		before = *link;
		link = &at(p, before)->next;
	}
	*link = at(p, number)->next;
	if (*last == number) *last = before;
	at(p, number)->done = true;
	while (p->head < p->tail && at(p, p->head)->done) p->head++;
}

static bool grow(struct tm_pairing *p) {
	uint64_t slots = p->queue ? (p->mask + 1) * 2 : FIRST_WAITING;
	struct tm_pairing bigger = *p;
	bigger.queue = calloc(slots, sizeof *p->queue);
	bigger.chains = calloc(2 * slots, sizeof *p->chains);
	bigger.mask = slots - 1;
	if (!bigger.queue || !bigger.chains) {
		free(bigger.queue);
		free(bigger.chains);
		return false;
	}
	for (uint64_t n = p->head; n < p->tail; n++) {
		*at(&bigger, n) = *at(p, n);
		if (!at(p, n)->done) link_waiting(&bigger, n);
	}
	free(p->queue);
	free(p->chains);
	*p = bigger;
	return true;
}

static void put_last(struct tm_pairing *p, const struct tm_waiting *event) {
	if ((!p->queue || p->tail - p->head > p->mask) && !grow(p)) {
		p->failed = true;
		return;
	}
	*at(p, p->tail) = *event;
	link_waiting(p, p->tail++);
}

static uint64_t later(uint64_t a, uint64_t b) {
	return a > b ? a : b;
}

/* Number of the first event that waits for this address, 0 none. */
static uint64_t first_waiting(const struct tm_pairing *p, uint64_t address) {
	uint64_t n = p->chains ? *chain_of(p, address) : 0;
	while (n && at(p, n)->block.address != address) n = at(p, n)->next;
	return n;
}

static uint64_t next_waiting(const struct tm_pairing *p, uint64_t number) {
	uint64_t address = at(p, number)->block.address, n = at(p, number)->next;
	while (n && at(p, n)->block.address != address) n = at(p, n)->next;
	return n;
}

/* True if an event of the same thread waits for this address before number `end` (0: at all). */
static bool thread_waits(const struct tm_pairing *p, uint64_t address, uint32_t thread, uint64_t end) {
	for (uint64_t n = first_waiting(p, address); n && n != end; n = next_waiting(p, n))
		if (at(p, n)->turn == thread) return true;
	return false;
}

/* A free will end at once what begins at this address and time: the first one whose turn it is then, as drain() finds it. */
static bool free_waits(const struct tm_pairing *p, uint64_t address, uint64_t ns) {
	for (uint64_t n = first_waiting(p, address); n; n = next_waiting(p, n))
		if (at(p, n)->is_free && !thread_waits(p, address, at(p, n)->turn, n)) return at(p, n)->ns <= ns;
	return false;
}

/* Both move *ns, where they must, to the time at which it really takes effect. */
static void begin_block(struct tm_pairing *p, const struct tm_block *block, uint64_t *ns) {
	struct tm_block b = *block;
	b.alloc_ns = *ns = later(b.alloc_ns, *ns);
	if (!tm_blocks_insert(&p->blocks, &b)) p->failed = true;
	else p->sink->allocated(p->context, &b, tm_pairing_waits(p) && free_waits(p, b.address, *ns));
}

/* Two addresses may lie at one place: the later one comes first. */
static struct tm_recent *recent_at(const struct tm_pairing *p, uint64_t address) {
	return &p->recent[2 * (address * 0x9E3779B97F4A7C15ull >> (64 - RECENT_BITS))];
}

/* NULL: it was long ago. */
static struct tm_recent *recent_of(const struct tm_pairing *p, uint64_t address) {
	struct tm_recent *r = p->recent ? recent_at(p, address) : NULL;
	if (r && r->address != address) r++;
	return r && r->address == address ? r : NULL;
}

static void note_free(struct tm_pairing *p, uint64_t address, uint64_t ns, uint32_t turn, uint64_t since_ns) {
	if (p->alone) return;
	if (!p->recent && !(p->recent = calloc((size_t)2 << RECENT_BITS, sizeof *p->recent))) {
		p->failed = true;
		return;
	}
	struct tm_recent *first = recent_at(p, address), *r = recent_of(p, address);
	if (!r) {
		first[1] = first[0];
		*(r = first) = (struct tm_recent){ .address = address };
	}
	r->free_ns = ns;
	r->free_since_ns = since_ns;
	r->turn = turn;
}

static void note_allocation(struct tm_pairing *p, uint64_t address, uint64_t ns, uint64_t since_ns) {
	struct tm_recent *r = recent_of(p, address);
	if (!r) return;
	r->alloc_ns = ns;
	r->alloc_since_ns = since_ns;
	if (since_ns) p->waited_ns = ns;
}

/* Since when events of this address have been out of order, where this one has to wait: since it came, or one before it waited, if all have. */
static uint64_t out_of_order_since(const struct tm_pairing *p, const struct tm_waiting *event) {
	const struct tm_recent *r = recent_of(p, event->block.address);
	if (!r) return event->ns;
	if (event->is_free) return r->free_since_ns && event->ns <= r->free_ns + TM_CALM_NS ? r->free_since_ns : event->ns;
	return r->alloc_since_ns && event->ns <= r->alloc_ns + TM_SKEW_NS ? r->alloc_since_ns : event->ns;
}

static uint64_t end_block(struct tm_pairing *p, struct tm_block *found, uint64_t *ns, uint32_t thread, uint32_t scope, bool lost) {
	struct tm_block block = *found;
	tm_blocks_remove(&p->blocks, found);
	*ns = later(*ns, block.alloc_ns);
	return p->sink->released(p->context, &block, *ns, thread, scope, lost);
}

/* No event of its own thread waits for this address before number `end`. Is it one that the address is ready for? */
static bool is_turn(const struct tm_pairing *p, const struct tm_waiting *event, uint64_t end) {
	uint64_t address = event->block.address;
	return !thread_waits(p, address, event->turn, end) && event->is_free == (tm_blocks_find(&p->blocks, address) != NULL);
}

/* Its turn has come, not before *ns; *ns becomes the time at which it takes effect. */
static uint64_t apply(struct tm_pairing *p, const struct tm_waiting *event, uint64_t *ns) {
	uint64_t address = event->block.address;
	*ns = later(*ns, event->ns);
	if (event->is_free) {
		note_free(p, address, event->ns, event->turn, event->since_ns);
		return end_block(p, tm_blocks_find(&p->blocks, address), ns, event->thread, event->block.scope, false);
	}
	note_allocation(p, address, event->ns, event->since_ns);
	begin_block(p, &event->block, ns);
	return 0;
}

/* A thread whose free waits allocates that address again, so that its free was done: the one that was taken for it, another thread's of about that time,
 * is still to come. They change places. */
static void let_go_on(struct tm_pairing *p, const struct tm_waiting *event) {
	uint64_t address = event->block.address, mine = 0;
	struct tm_recent *taken = recent_of(p, address);
	if (!taken || taken->turn == event->thread || tm_blocks_find(&p->blocks, address)) return;
	for (uint64_t n = first_waiting(p, address); n; n = next_waiting(p, n)) {
		const struct tm_waiting *other = at(p, n);
		if (other->turn == taken->turn || (other->turn == event->thread && (mine || !other->is_free))) return;
		if (other->turn == event->thread) mine = n;
	}
	if (!mine || at(p, mine)->ns > taken->free_ns + TM_SKEW_NS) return;
	at(p, mine)->turn = taken->turn;
	taken->turn = event->thread;
}

/* Applies what has waited for this address and whose turn has come now, not before `ns`. */
static void drain(struct tm_pairing *p, uint64_t address, uint64_t ns) {
	for (uint64_t n = first_waiting(p, address); n;) {
		struct tm_waiting event = *at(p, n);
		uint64_t next = next_waiting(p, n);
		if (is_turn(p, &event, n)) {
			unlink_waiting(p, n);
			apply(p, &event, &ns);
			next = first_waiting(p, address);
		}
		n = next;
	}
}

/* What it waited for will not come: what follows is in order again. */
static void force(struct tm_pairing *p, uint64_t number) {
	struct tm_waiting event = *at(p, number);
	struct tm_recent *r = recent_of(p, event.block.address);
	struct tm_block *live = tm_blocks_find(&p->blocks, event.block.address);
	uint64_t ns = event.ns;
	unlink_waiting(p, number);
	if (r) r->free_since_ns = r->alloc_since_ns = 0;
	if (event.is_free && !live) p->sink->unmatched(p->context, event.block.address, event.thread, event.block.scope);
	else if (live && event.is_free) end_block(p, live, &ns, event.thread, event.block.scope, false);
	else if (live) end_block(p, live, &ns, 0, 0, true);
	if (!event.is_free) begin_block(p, &event.block, &ns);
	drain(p, event.block.address, ns);
}

static bool has_waited(const struct tm_pairing *p, const struct tm_waiting *event, uint64_t limit_ns, uint64_t now_ns) {
	return event->ns + limit_ns < now_ns || event->since_ns + (p->has_gaps ? TM_GAP_NS : TM_SHIFT_NS) < now_ns;
}

/* An event stamped so much later cannot be the one that these wait for. */
static void settle(struct tm_pairing *p, uint64_t address, uint64_t ns) {
	uint64_t n;
	while ((n = first_waiting(p, address)) && has_waited(p, at(p, n), TM_SKEW_NS, ns)) force(p, n);
}

/* A free that waits may have been done, so that its thread's next allocation of that address shows it: see let_go_on(). */
static bool may_change_places(const struct tm_pairing *p, const struct tm_waiting *event) {
	const struct tm_recent *taken = recent_of(p, event->block.address);
	return event->is_free && taken && taken->turn != event->thread && event->ns <= taken->free_ns + TM_SKEW_NS;
}

static void wait_for_turn(struct tm_pairing *p, struct tm_waiting *event) {
	event->since_ns = first_waiting(p, event->block.address) ? event->ns : out_of_order_since(p, event);
	uint64_t number = p->tail;
	put_last(p, event);
	if (p->failed || p->alone || !p->sink->comes || first_waiting(p, event->block.address) != number) return;
	enum tm_pairing_doubt doubt = p->has_strays && event->is_free ? TM_PAIRING_STRAY : TM_PAIRING_SURE;
	if (!p->sink->comes(p->context, event, may_change_places(p, event), doubt)) force(p, number);
}

static uint64_t offer(struct tm_pairing *p, struct tm_waiting *event) {
	uint64_t row = 0, ns = 0, address = event->block.address;
	settle(p, address, event->ns);
	if (!event->is_free) let_go_on(p, event);
	if (is_turn(p, event, 0)) {
		row = apply(p, event, &ns);
		drain(p, address, ns);
	} else {
		wait_for_turn(p, event);
	}
	if (p->alone) tm_pairing_expire(p, UINT64_MAX);
	return row;
}

/* --- blocks that are older --- */

static uint64_t *slot_of(const struct tm_address_set *s, uint64_t address) {
	uint64_t i = (address >> 4 ^ address) * 0x9E3779B97F4A7C15ull >> 32 & s->mask;
	while (s->slots[i] && s->slots[i] != address) i = (i + 1) & s->mask;
	return &s->slots[i];
}

static bool grow_set(struct tm_address_set *s) {
	uint64_t slots = s->slots ? (s->mask + 1) * 2 : FIRST_SEEN;
	struct tm_address_set bigger = { calloc(slots, sizeof *s->slots), s->count, slots - 1 };
	if (!bigger.slots) return false;
	for (uint64_t i = 0; s->slots && i <= s->mask; i++)
		if (s->slots[i]) *slot_of(&bigger, s->slots[i]) = s->slots[i];
	free(s->slots);
	*s = bigger;
	return true;
}

/* True if the address had no event before; it has had one from now on. */
static bool is_first_event(struct tm_pairing *p, uint64_t address) {
	struct tm_address_set *s = &p->seen;
	if (!p->inherits || p->alone || !address) return false;
	if ((!s->slots || s->count * 2 > s->mask) && !grow_set(s)) {
		p->failed = true;
		return false;
	}
	uint64_t *slot = slot_of(s, address);
	if (*slot) return false;
	*slot = address;
	s->count++;
	return true;
}

void tm_pairing_pause(struct tm_pairing *p) {
	p->has_gaps = p->inherits = true;
	free(p->seen.slots);
	p->seen = (struct tm_address_set){ 0 };
}

void tm_pairing_alloc(struct tm_pairing *p, const struct tm_block *block, uint32_t thread) {
	is_first_event(p, block->address);
	if (!tm_pairing_waits(p) && !tm_blocks_find(&p->blocks, block->address)) {
		uint64_t ns = 0;
		if (block->alloc_ns <= p->waited_ns + TM_SKEW_NS) note_allocation(p, block->address, block->alloc_ns, 0);
		begin_block(p, block, &ns);
		return;
	}
	struct tm_waiting event = { .block = *block, .ns = block->alloc_ns, .thread = thread, .turn = thread };
	offer(p, &event);
}

uint64_t tm_pairing_free(struct tm_pairing *p, uint64_t address, uint64_t ns, uint32_t thread, uint32_t scope) {
	struct tm_block *live = tm_pairing_waits(p) ? NULL : tm_blocks_find(&p->blocks, address);
	if (live) {
		note_free(p, address, ns, thread, 0);
		return end_block(p, live, &ns, thread, scope, false);
	}
	struct tm_waiting event = {
		.block = { .address = address, .scope = scope }, .ns = ns, .thread = thread, .turn = thread, .is_free = true
	};
	bool is_older = is_first_event(p, address) && !first_waiting(p, address) && !tm_blocks_find(&p->blocks, address);
	if (is_older && !(p->sink->comes && p->sink->comes(p->context, &event, false, TM_PAIRING_OLDER)))
		return p->sink->unmatched(p->context, address, thread, scope), 0;
	return offer(p, &event);
}

bool tm_pairing_is_outlived(const struct tm_pairing *p, uint64_t address, uint64_t ns) {
	const struct tm_block *live = tm_blocks_find(&p->blocks, address);
	return live && live->alloc_ns > ns + TM_SKEW_NS;
}

static bool has_waited_enough(const struct tm_pairing *p, const struct tm_waiting *event, uint64_t now_ns) {
	return now_ns == UINT64_MAX || has_waited(p, event, event->is_free ? TM_SKEW_NS : TM_WAIT_NS, now_ns);
}

void tm_pairing_expire(struct tm_pairing *p, uint64_t now_ns) {
	while (tm_pairing_waits(p) && has_waited_enough(p, at(p, p->head), now_ns)) force(p, p->head);
}
