/* accounts.c - what was allocated, freed and live; see accounts.h. */
#include "accounts.h"

#include <math.h>

#define FIRST_SLOTS 64u
#define SAMPLED_BYTES_SHIFT 8u
#define SAMPLED_COUNT_SHIFT 16u

void tm_ledger_init(struct tm_ledger *l, uint32_t process, uint64_t start_ns, struct tm_scale scale) {
	*l = (struct tm_ledger){ .process = process, .scale = scale, .start_ns = start_ns, .level = { .peak_ns = start_ns } };
	if (scale.mean_bytes > 0) {
		l->scale.bytes_shift = SAMPLED_BYTES_SHIFT;
		l->scale.count_shift = SAMPLED_COUNT_SHIFT;
	}
	tm_timeline_init(&l->level.timeline, start_ns);
	l->ranges.random = process;
	tm_leak_watch_init(&l->watch);
}

static void free_account(struct tm_account *a) {
	tm_timeline_release(&a->level.timeline);
	tm_array_release(&a->sites);
	free(a->sites_at_exit);
	free(a->slots);
	free(a->histograms);
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

struct tm_account *tm_ledger_open_account(struct tm_ledger *l, uint64_t id, struct tm_text name, struct tm_text kind, int64_t device,
					  uint64_t parent_id) {
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
	tm_timeline_init(&a->level.timeline, l->start_ns);
	return a;
}

static size_t first_slot(const struct tm_account *a, uint32_t stack) {
	return (stack * 0x9E3779B1u ^ stack >> 15) & a->slot_mask;
}

static struct tm_site_slot *slot_of(const struct tm_account *a, uint32_t stack) {
	size_t i = first_slot(a, stack);
	while (a->slots[i].site && a->slots[i].stack != stack) i = (i + 1) & a->slot_mask;
	return &a->slots[i];
}

static bool grow_slots(struct tm_account *a) {
	size_t n = a->slots ? (a->slot_mask + 1) * 2 : FIRST_SLOTS;
	struct tm_site_slot *slots = tm_table_new(n, sizeof *slots);
	if (!slots) return false;
	free(a->slots);
	a->slots = slots;
	a->slot_mask = n - 1;
	for (size_t i = 0; i < a->sites.count; i++) {
		uint32_t stack = a->sites.items[i].stack;
		*slot_of(a, stack) = (struct tm_site_slot){ stack, (uint32_t)i + 1 };
	}
	return true;
}

void tm_account_prefetch_slot(const struct tm_account *a, uint32_t stack) {
	if (a->slots) __builtin_prefetch(&a->slots[first_slot(a, stack)]);
}

void tm_account_prefetch_site(const struct tm_account *a, uint32_t site) {
	const char *p = (const char *)&a->sites.items[site];
	__builtin_prefetch(p, 1);
	__builtin_prefetch(p + sizeof(struct tm_site) - 1, 1);
}

void tm_account_prefetch_stack(const struct tm_account *a, uint32_t stack) {
	uint32_t site = a->slots ? slot_of(a, stack)->site : 0;
	if (site) tm_account_prefetch_site(a, site - 1);
}

uint32_t tm_account_site(struct tm_account *a, uint32_t stack) {
	if ((!a->slots || a->sites.count * 10 > a->slot_mask * 7) && !grow_slots(a)) goto no_memory;
	struct tm_site_slot *slot = slot_of(a, stack);
	if (slot->site) return slot->site - 1;
	struct tm_site *site = tm_array_push(&a->sites);
	if (!site) goto no_memory;
	site->stack = stack;
	site->peak_epoch = a->level.epoch;
	site->process_peak_epoch = a->ledger->level.epoch;
	*slot = (struct tm_site_slot){ stack, (uint32_t)a->sites.count };
	return slot->site - 1;
no_memory:
	a->ledger->failed = true;
	return 0;
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

static void add(struct tm_amount *a, struct tm_amount b) {
	a->bytes += b.bytes;
	a->count += b.count;
}

static void take(struct tm_amount *a, struct tm_amount b) {
	a->bytes -= b.bytes;
	a->count -= b.count;
}

/* The site is about to change: keeps what it had at the latest peaks. */
static void save_peaks(struct tm_account *a, struct tm_site *s) {
	if (s->peak_epoch != a->level.epoch) {
		s->peak_epoch = a->level.epoch;
		s->at_peak = s->live;
	}
	if (a->is_root && s->process_peak_epoch != a->ledger->level.epoch) {
		s->process_peak_epoch = a->ledger->level.epoch;
		s->at_process_peak = s->live;
	}
}

static void note_level(struct tm_level *l, uint64_t ns) {
	if (l->live.bytes > l->peak.bytes) {
		l->peak = l->live;
		l->peak_ns = ns;
		l->epoch++;
	}
	tm_timeline_put(&l->timeline, ns, l->live.bytes, l->live.count);
}

void tm_account_allocated(struct tm_account *a, uint32_t site, struct tm_amount amount, uint64_t ns) {
	if (a->ledger->failed) return;
	struct tm_site *s = &a->sites.items[site];
	save_peaks(a, s);
	if (!s->allocated.count) s->first_ns = ns;
	s->last_ns = ns;
	add(&s->live, amount);
	add(&s->allocated, amount);
	add(&a->allocated, amount);
	add(&a->level.live, amount);
	note_level(&a->level, ns);
	if (a->is_root) {
		add(&a->ledger->level.live, amount);
		note_level(&a->ledger->level, ns);
	}
	if (++a->ledger->watch.ticks == a->ledger->watch.next_tick && !tm_leak_watch_tick(a->ledger, ns)) a->ledger->failed = true;
}

void tm_account_released(struct tm_account *a, uint32_t site, struct tm_amount amount, uint64_t ns, bool temporary) {
	if (a->ledger->failed) return;
	struct tm_site *s = &a->sites.items[site];
	save_peaks(a, s);
	take(&s->live, amount);
	take(&a->level.live, amount);
	if (temporary) {
		add(&s->temporary, amount);
		add(&a->temporary, amount);
	}
	note_level(&a->level, ns);
	if (!a->is_root) return;
	take(&a->ledger->level.live, amount);
	note_level(&a->ledger->level, ns);
}

void tm_high_rises(struct tm_high *h, struct tm_amount amount, uint64_t ns) {
	add(&h->live, amount);
	add(&h->allocated, amount);
	if (h->live.bytes <= h->peak.bytes) return;
	h->peak = h->live;
	h->peak_ns = ns;
}

void tm_high_falls(struct tm_high *h, struct tm_amount amount) {
	take(&h->live, amount);
}

void tm_account_split(struct tm_account *a, uint32_t site, unsigned survivors) {
	struct tm_amount more = { 0, (uint64_t)survivors << a->ledger->scale.count_shift };
	if (a->ledger->failed || !survivors) return;
	struct tm_site *s = &a->sites.items[site];
	save_peaks(a, s);
	add(&s->live, more);
	s->splits += more.count;
	a->splits += more.count;
	add(&a->level.live, more);
	if (a->is_root) add(&a->ledger->level.live, more);
}

void tm_ledger_exit(struct tm_ledger *l) {
	l->exited = true;
	for (size_t i = 0; i < l->accounts.count; i++) {
		struct tm_account *a = l->accounts.items[i];
		a->at_exit = a->level.live;
		free(a->sites_at_exit);
		a->sites_at_exit = calloc(a->sites.count + 1, sizeof *a->sites_at_exit);
		a->exit_site_count = a->sites_at_exit ? a->sites.count : 0;
		if (!a->sites_at_exit) l->failed = true;
		for (size_t k = 0; k < a->exit_site_count; k++) a->sites_at_exit[k] = a->sites.items[k].live;
	}
}

struct tm_amount tm_site_at_exit(const struct tm_account *a, const struct tm_site *s) {
	size_t i = (size_t)(s - a->sites.items);
	return i < a->exit_site_count ? a->sites_at_exit[i] : (struct tm_amount){ 0, 0 };
}

struct tm_amount tm_site_at_peak(const struct tm_account *a, const struct tm_site *s) {
	return s->peak_epoch == a->level.epoch ? s->at_peak : s->live;
}

struct tm_amount tm_site_at_process_peak(const struct tm_account *a, const struct tm_site *s) {
	if (!a->is_root) return (struct tm_amount){ 0, 0 };
	return s->process_peak_epoch == a->ledger->level.epoch ? s->at_process_peak : s->live;
}

static uint64_t unscaled(uint64_t value, unsigned shift) {
	return shift ? (value + ((uint64_t)1 << (shift - 1))) >> shift : value;
}

uint64_t tm_scaled_bytes(const struct tm_account *a, uint64_t bytes) {
	return unscaled(bytes, a->ledger->scale.bytes_shift);
}
uint64_t tm_scaled_count(const struct tm_account *a, uint64_t count) {
	return unscaled(count, a->ledger->scale.count_shift);
}
