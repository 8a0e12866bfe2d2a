/* scope_overlaps.c - scopes that close while others that were opened inside them stay open; see scopes.h.
 *
 * What a thread did from a scope's opening to its end counts for the scope. Mostly that is what the scope and its descendants did,
 * which scope_totals.c adds up along the tree. Where a scope is overlapped it is not: one that stays open belongs to it until then, and
 * not from then on, while some of the blocks from before may be freed only now. So each such end cuts the thread:
 *
 *     what a scope does after the cut is done by a part of it, which its blocks name in its place
 *     from the opening to the cut is a span; in the end all scopes and parts are passed once more in the order in which they were made,
 *     and the sums that have passed at the end of a span, less those at its beginning, are what the scope did in all
 *
 * A name counts nothing twice: where the outermost one of a name is overlapped by another of that name, that is the outermost one from
 * then on. What it has done so far both have done: a span of its own, which is taken off the sums of the name.
 *
 * Nor does a line of a tree, where all have the same names around them. Which of the later ones of its name is on its line is known when
 * those around have closed, too: of the first few there are such spans to choose from.
 */
#include "scopes.h"

#define SHARED_MAX 4u /* later ones of its name, of any category, whose part in what a scope did is kept */

/* --- parts --- */

struct tm_scope *tm_scope_part(struct tm_scopes *x, struct tm_scope *s) {
	uint32_t cuts = x->threads[s->thread - 1].cuts;
	if (s->part && tm_scope_at(x, s->part)->cuts == cuts) return tm_scope_at(x, s->part);
	struct tm_scope_part_record *record = tm_spill_push(&x->part_records);
	struct tm_scope *part = record ? tm_scope_new(x) : NULL;
	if (!part) {
		x->failed = true;
		return NULL;
	}
	*record = (struct tm_scope_part_record){ .scopes = x->records.count, .scope = s->row, .thread = s->thread, .group = s->group };
	*part = (struct tm_scope){ .slot = part->slot,
				   .parent = s->slot,
				   .above = s->slot,
				   .thread = s->thread,
				   .process = s->process,
				   .group = s->group,
				   .refs = 1, /* the scope's, while it does things there */
				   .cuts = cuts,
				   .is_part = true,
				   .row = s->row,
				   .key = x->part_records.count - 1 };
	s->refs++;
	if (s->part) tm_scope_let_go(x, s->part);
	s->part = part->slot;
	return part;
}

static struct tm_scope_use_record *push_use(struct tm_scopes *x, uint64_t *uses, const struct tm_account *a) {
	struct tm_scope_use_record *u = tm_spill_push(&x->use_records);
	if (!u) return NULL;
	*u = (struct tm_scope_use_record){ .before = *uses, .account = a };
	*uses = x->use_records.count;
	return u;
}

void tm_scope_finish_part(struct tm_scopes *x, struct tm_scope *part) {
	struct tm_scope_part_record *record = tm_spill_at(&x->part_records, part->key);
	for (const struct tm_scope_use *u = part->uses; u; u = u->next) {
		if (tm_scope_sums_are_zero(&u->self)) continue;
		struct tm_scope_use_record *use = push_use(x, &record->uses, u->account);
		struct tm_scope_use *whole = tm_scope_use_of(x, tm_scope_at(x, part->parent), u->account);
		if (use) use->self = u->self;
		if (whole) tm_scope_add_sums(&whole->children, &u->self);
	}
}

/* --- spans --- */

static struct tm_scope_span *push_span(struct tm_scopes *x, const struct tm_scope *closed, const struct tm_scope *first) {
	struct tm_scope_record *record = tm_spill_at(&x->records, first->row - x->base_row - 1);
	struct tm_scope_span *span = tm_spill_push(&x->spans);
	if (!span) return NULL;
	*span = (struct tm_scope_span){ .scopes = x->records.count,
					.parts = x->part_records.count,
					.scope = closed->row,
					.first = first->row,
					.next = record->spans,
					.thread = closed->thread,
					.group = closed->group,
					.is_outermost = closed->is_outermost,
					.is_shared = closed != first };
	record->spans = x->spans.count;
	return span;
}

/* What was retained by both is retained by the one that closes last. later: n of them, in the order of opening. */
static void share(struct tm_scopes *x, const struct tm_scope *closed, struct tm_scope *const *later, size_t n,
		  const struct tm_scope *next) {
	uint64_t first = x->spans.count, peak, live;
	for (size_t i = 0; i < n; i++) {
		struct tm_scope_span *span = push_span(x, closed, later[i]);
		if (!span) return;
		span->is_outermost = later[i] == next && closed->is_outermost;
	}
	for (const struct tm_scope_lane *lane = x->threads[closed->thread - 1].lanes; lane; lane = lane->next) {
		for (size_t i = 0; i < n && tm_scope_measure(lane, later[i]->epoch, &peak, &live); i++) {
			struct tm_scope_span *span = tm_spill_at(&x->spans, first + i);
			struct tm_scope_use_record *u = push_use(x, &span->uses, lane->account);
			if (u) u->retained = live;
		}
	}
}

/* Returns the first of those inside of it that have its name and category. */
static struct tm_scope *share_with_name(struct tm_scopes *x, const struct tm_scope *s) {
	uint32_t same = s->chains[TM_CHAIN_GROUP].after;
	struct tm_scope *later[SHARED_MAX + 1], *next = same ? tm_scope_at(x, same) : NULL;
	size_t n = 0;
	for (uint32_t slot = s->chains[TM_CHAIN_NAME].after; slot && n < SHARED_MAX; slot = later[n++]->chains[TM_CHAIN_NAME].after)
		later[n] = tm_scope_at(x, slot);
	if (next && later[n - 1]->epoch < next->epoch) later[n++] = next;
	if (n) share(x, s, later, n, next);
	return next;
}

void tm_scope_overlap(struct tm_scopes *x, struct tm_scope *s, uint64_t ns) {
	x->threads[s->thread - 1].cuts++;
	s->is_overlapped = true;
	push_span(x, s, s);
	struct tm_scope *next = share_with_name(x, s);
	if (!next || !s->is_outermost) return;
	next->is_outermost = true;
	if (ns > next->start_ns) x->groups.items[s->group].duration_ns -= ns - next->start_ns;
}

/* --- in the end --- */

static struct tm_scope_record *record_of(const struct tm_scopes *x, uint64_t row) {
	return tm_spill_at(&x->records, row - x->base_row - 1);
}

static struct tm_scope_use_record *find_record(const struct tm_scopes *x, uint64_t uses, const struct tm_account *a) {
	while (uses) {
		struct tm_scope_use_record *u = tm_spill_at(&x->use_records, uses - 1);
		if (u->account == a) return u;
		uses = u->before;
	}
	return NULL;
}

static void subtract(struct tm_scope_sums *a, const struct tm_scope_sums *b) {
	a->allocated.bytes -= b->allocated.bytes;
	a->allocated.count -= b->allocated.count;
	a->freed.bytes -= b->freed.bytes;
	a->freed.count -= b->freed.count;
	a->own_freed -= b->own_freed;
}

static void pass_uses(struct tm_scopes *x, uint32_t thread, uint64_t uses) {
	while (uses) {
		const struct tm_scope_use_record *u = tm_spill_at(&x->use_records, uses - 1);
		struct tm_scope_lane *lane = tm_scope_find_lane(x, thread, u->account);
		if (lane) tm_scope_add_sums(&lane->passed, &u->self);
		uses = u->before;
	}
}

/* The scope's own sums, and its name's, are whole with those of its parts. */
static void pass_part(struct tm_scopes *x, const struct tm_scope_part_record *part) {
	pass_uses(x, part->thread, part->uses);
	for (uint64_t uses = part->uses; uses;) {
		const struct tm_scope_use_record *u = tm_spill_at(&x->use_records, uses - 1);
		struct tm_scope_use_record *whole = find_record(x, record_of(x, part->scope)->uses, u->account);
		struct tm_scope_group_heap *h = tm_scope_group_heap_of(x, part->group, u->account);
		if (whole) tm_scope_add_sums(&whole->self, &u->self);
		if (h) tm_scope_add_sums(&h->self, &u->self);
		uses = u->before;
	}
}

static void pass_bound(struct tm_scopes *x, const struct tm_scope_span *span, bool is_end) {
	for (uint64_t uses = span->is_shared ? span->uses : record_of(x, span->scope)->uses; uses;) {
		struct tm_scope_use_record *u = tm_spill_at(&x->use_records, uses - 1);
		const struct tm_scope_lane *lane = tm_scope_find_lane(x, span->thread, u->account);
		if (lane && is_end) tm_scope_add_sums(&u->total, &lane->passed);
		else if (lane) subtract(&u->total, &lane->passed);
		uses = u->before;
	}
}

/* What came before the scope with this index: the ends of spans, and parts. */
struct passed {
	uint64_t spans, parts;
};

static void pass_before(struct tm_scopes *x, struct passed *p, uint64_t index) {
	for (;;) {
		const struct tm_scope_span *span = p->spans < x->spans.count ? tm_spill_at(&x->spans, p->spans) : NULL;
		const struct tm_scope_part_record *part = p->parts < x->part_records.count ? tm_spill_at(&x->part_records, p->parts) : NULL;
		if (span && span->scopes == index && span->parts == p->parts) {
			pass_bound(x, span, true);
			p->spans++;
		} else if (part && part->scopes == index) {
			pass_part(x, part);
			p->parts++;
		} else {
			return;
		}
	}
}

static void pass_all(struct tm_scopes *x) {
	struct passed p = { 0 };
	for (uint64_t i = 0; i < x->records.count; i++) {
		pass_before(x, &p, i);
		struct tm_scope_record *s = tm_spill_at(&x->records, i);
		for (uint64_t n = s->spans; n;) {
			const struct tm_scope_span *span = tm_spill_at(&x->spans, n - 1);
			pass_bound(x, span, false);
			n = span->next;
		}
		pass_uses(x, s->thread, s->uses);
	}
	pass_before(x, &p, x->records.count);
}

static void add_span(struct tm_scopes *x, const struct tm_scope_span *span) {
	for (uint64_t uses = span->is_shared ? span->uses : record_of(x, span->scope)->uses; uses;) {
		const struct tm_scope_use_record *u = tm_spill_at(&x->use_records, uses - 1);
		uses = u->before;
		if (tm_scope_sums_are_zero(&u->total)) continue;
		struct tm_scope_group_heap *h = tm_scope_group_heap_of(x, span->group, u->account);
		if (h && !span->is_shared) {
			tm_scope_add_to_group(h, span->is_outermost, u);
		} else if (h && span->is_outermost) {
			subtract(&h->total, &u->total);
			h->retained -= u->retained;
		}
	}
}

void tm_scope_settle_overlaps(struct tm_scopes *x) {
	pass_all(x);
	for (uint64_t i = 0; i < x->spans.count && !x->failed; i++) add_span(x, tm_spill_at(&x->spans, i));
	for (uint64_t i = 0; i < x->records.count; i++) {
		struct tm_scope_record *s = tm_spill_at(&x->records, i);
		s->depth = s->parent ? record_of(x, s->parent)->depth + 1 : 0;
	}
}
