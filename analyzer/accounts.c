/* accounts.c - what was allocated, freed and live; see accounts.h. */
#include "accounts.h"

#include <math.h>

#define SAMPLED_BYTES_SHIFT 8u
#define SAMPLED_COUNT_SHIFT 16u

void tm_ledger_init(struct tm_ledger *l, uint32_t process, uint64_t start_ns, uint64_t known_ns, struct tm_scale scale) {
	*l = (struct tm_ledger){ .process = process, .scale = scale, .start_ns = start_ns, .level = { .peak_ns = start_ns } };
	if (scale.mean_bytes > 0) {
		l->scale.bytes_shift = SAMPLED_BYTES_SHIFT;
		l->scale.count_shift = SAMPLED_COUNT_SHIFT;
	}
	tm_timeline_init(&l->level.timeline, start_ns, known_ns);
	l->ranges.random = process;
	tm_leak_watch_init(&l->watch);
}

static void free_account(struct tm_account *a) {
	tm_timeline_release(&a->level.timeline);
	tm_sites_release(&a->sites);
	free(a->histograms);
	free(a->leak_rows.row_of);
	tm_pairing_release(&a->pairing);
	free(a);
}

void tm_ledger_release(struct tm_ledger *l) {
	for (size_t i = 0; i < l->accounts.count; i++) free_account(l->accounts.items[i]);
	tm_array_release(&l->accounts);
	tm_timeline_release(&l->level.timeline);
	tm_ranges_release(&l->ranges);
	tm_leak_watch_release(&l->watch);
}

static bool text_is(struct tm_text t, const char *word) {
	return t.size == strlen(word) && memcmp(t.data, word, t.size) == 0;
}

/* Heaps that are no part of the process' own memory, or a part that other heaps count, too: Python's arenas are mappings, NVTX and ITT do not tell. */
static bool lies_elsewhere(struct tm_text kind) {
	static const char *const kinds[] = { "file", "python", "pinned", "managed", "nvtx", "itt" };
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		if (text_is(kind, kinds[i])) return true;
	return false;
}

void tm_ledger_pause(struct tm_ledger *l) {
	l->stopped = true;
	for (size_t i = 0; i < l->accounts.count; i++) tm_pairing_pause(&l->accounts.items[i]->pairing);
}

struct tm_account *tm_ledger_open_account(struct tm_ledger *l, uint64_t id, struct tm_text name, struct tm_text kind, int64_t device,
					  uint64_t parent_id) {
	tm_ledger_settle(l); /* looks go through all heaps */
	struct tm_account **place = tm_array_push(&l->accounts), *a = place ? calloc(1, sizeof *a) : NULL;
	struct tm_histograms *histograms = a ? calloc(1, sizeof *histograms) : NULL;
	if (!histograms) {
		free(a);
		if (place) l->accounts.count--;
		l->failed = true;
		return NULL;
	}
	*place = a;
	*a = (struct tm_account){ .ledger = l,
				  .id = id,
				  .name = name,
				  .kind = kind,
				  .device = device,
				  .parent_id = parent_id,
				  .is_root = !parent_id && device < 0 && !lies_elsewhere(kind),
				  .sampled = l->scale.mean_bytes > 0 && text_is(kind, "host"), /* all blocks of other heaps are recorded */
				  .histograms = histograms,
				  .level = { .peak_ns = l->start_ns } };
	tm_timeline_init(&a->level.timeline, l->start_ns, l->level.timeline.known_ns);
	return a;
}

double tm_sample_weight(const struct tm_scale *scale, uint64_t size_bytes) {
	return -1.0 / expm1(-(double)(size_bytes ? size_bytes : 1) / scale->mean_bytes);
}

struct tm_amount tm_account_amount(const struct tm_account *a, uint64_t size_bytes) {
	const struct tm_scale *scale = &a->ledger->scale;
	if (!a->sampled) return (struct tm_amount){ size_bytes << scale->bytes_shift, (uint64_t)1 << scale->count_shift };
	double weight = tm_sample_weight(scale, size_bytes);
	return (struct tm_amount){ (uint64_t)llround(ldexp((double)size_bytes * weight, (int)scale->bytes_shift)),
				   (uint64_t)llround(ldexp(weight, (int)scale->count_shift)) };
}

/* Where the next change is to be written: word by word, as it will be read elsewhere. A struct made on the stack and then copied would be read there in other
 * pieces than it was stored in, and wait. */
static struct tm_site_change *next_change(struct tm_ledger *l, struct tm_site_change *room) {
	return l->changes ? tm_belt_next(&l->changes->belt) : room;
}

/* What all changes of a heap's site carry. */
static void begin_change(struct tm_site_change *c, struct tm_account *a, enum tm_site_change_kind kind, uint32_t stack, struct tm_amount amount) {
	c->account = a;
	c->amount.bytes = amount.bytes;
	c->amount.count = amount.count;
	c->ns = c->size_bytes = c->lifetime_ns = 0;
	c->stack = stack;
	c->slack = 0;
	c->peak_epoch = a->level.epoch;
	c->process_peak_epoch = a->ledger->level.epoch;
	c->chain = 0;
	c->kind = (uint8_t)kind;
	c->temporary = false;
}

/* The sites were told, or are changed at once. */
static void end_change(struct tm_ledger *l, const struct tm_site_change *c) {
	if (!l->changes && !tm_site_change_make(c)) l->failed = true;
}

/* Blocks of no bytes, too, count in a peak of their own time. */
static bool is_peak(const struct tm_amount *live, const struct tm_amount *peak, uint64_t peak_ns, uint64_t ns) {
	return live->bytes > peak->bytes || (ns == peak_ns && live->bytes == peak->bytes && live->count != peak->count);
}

static void note_level(struct tm_level *l, uint64_t ns) {
	if (is_peak(&l->live, &l->peak, l->peak_ns, ns)) {
		l->peak.bytes = l->live.bytes;
		l->peak.count = l->live.count;
		l->peak_ns = ns;
		l->epoch++;
	}
	tm_timeline_put(&l->timeline, ns, l->live.bytes, l->live.count);
}

void tm_account_allocated(struct tm_account *a, const struct tm_block *b, struct tm_amount amount, uint64_t ns, bool passing) {
	struct tm_ledger *l = a->ledger;
	if (l->failed) return;
	struct tm_site_change room, *change = next_change(l, &room);
	begin_change(change, a, TM_SITE_ALLOCATION, b->stack, amount);
	change->ns = ns;
	change->size_bytes = b->size_bytes;
	change->slack = b->slack;
	change->chain = b->chain;
	end_change(l, change);
	tm_amount_add(&a->allocated, amount);
	tm_amount_add(&a->level.live, amount);
	if (a->is_root) tm_amount_add(&l->level.live, amount);
	if (passing) return;
	note_level(&a->level, ns);
	if (a->is_root) note_level(&l->level, ns);
}

void tm_account_released(struct tm_account *a, const struct tm_block *b, struct tm_amount amount, uint64_t ns, uint64_t lifetime_ns,
			 bool temporary) {
	struct tm_ledger *l = a->ledger;
	if (l->failed) return;
	struct tm_site_change room, *change = next_change(l, &room);
	begin_change(change, a, TM_SITE_RELEASE, b->stack, amount);
	change->ns = ns;
	change->size_bytes = b->size_bytes;
	change->lifetime_ns = lifetime_ns;
	change->temporary = temporary;
	end_change(l, change);
	if (temporary) tm_amount_add(&a->temporary, amount);
	tm_amount_take(&a->level.live, amount);
	note_level(&a->level, ns);
	if (!a->is_root) return;
	tm_amount_take(&l->level.live, amount);
	note_level(&l->level, ns);
}

void tm_high_rises(struct tm_high *h, struct tm_amount amount, uint64_t ns, bool passing) {
	tm_amount_add(&h->live, amount);
	tm_amount_add(&h->allocated, amount);
	if (passing || !is_peak(&h->live, &h->peak, h->peak_ns, ns)) return;
	h->peak = h->live;
	h->peak_ns = ns;
}

void tm_high_falls(struct tm_high *h, struct tm_amount amount) {
	tm_amount_take(&h->live, amount);
}

struct tm_amount tm_account_parts(const struct tm_account *a, unsigned survivors) {
	return (struct tm_amount){ 0, (uint64_t)survivors << a->ledger->scale.count_shift };
}

void tm_account_split(struct tm_account *a, uint32_t stack, unsigned survivors) {
	struct tm_amount more = tm_account_parts(a, survivors);
	if (a->ledger->failed || !survivors) return;
	struct tm_site_change room, *change = next_change(a->ledger, &room);
	begin_change(change, a, TM_SITE_SPLIT, stack, more);
	end_change(a->ledger, change);
	a->splits += more.count;
	tm_amount_add(&a->level.live, more);
	if (a->is_root) tm_amount_add(&a->ledger->level.live, more);
}

void tm_ledger_step(struct tm_ledger *l, uint64_t ns) {
	struct tm_site_change room, *change = next_change(l, &room);
	*change = (struct tm_site_change){ .ledger = l, .ns = ns, .kind = TM_SITE_STEP };
	end_change(l, change);
}

void tm_ledger_settle(struct tm_ledger *l) {
	if (!l->changes) return;
	tm_site_changes_settle(l->changes);
	if (l->changes->failed) l->failed = true;
}

void tm_ledger_exit(struct tm_ledger *l) {
	tm_ledger_settle(l);
	l->exited = true;
	for (size_t i = 0; i < l->accounts.count; i++) {
		struct tm_account *a = l->accounts.items[i];
		a->at_exit = a->level.live;
		tm_sites_exit(&a->sites);
	}
}

static void end_level(struct tm_level *l, uint64_t end_ns) {
	const struct tm_timeline *t = &l->timeline;
	uint64_t from_ns = t->known_ns < end_ns ? t->known_ns : end_ns;
	if (t->known_ns > t->start_ns && l->peak.bytes && l->peak_ns < from_ns) l->peak_ns = from_ns;
}

void tm_ledger_end(struct tm_ledger *l, uint64_t end_ns) {
	end_level(&l->level, end_ns);
	for (size_t i = 0; i < l->accounts.count; i++) end_level(&l->accounts.items[i]->level, end_ns);
}
