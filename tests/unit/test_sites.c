/* test_sites.c - call sites are packed without loss: against plain structs that see the same changes, for sites that are made in any order.
 *
 * Method: random allocations, frees, cuts and reallocations at random stacks, with sizes, times and counts around all limits of the packed forms. After
 *         each change the site is compared with its plain twin, at the end all of them, and their order. Every stack is of a tree whose size is known, and
 *         again of one that grows, so that both ways of lookup are used.
 */
#include "check.h"

#include "../../analyzer/sites.h"

#define STACKS 3000u
#define CHANGES_MOST 196000u

static struct check_random source;

static uint64_t chance(uint64_t n) {
	return check_random_next(&source) % n;
}

static uint64_t any_size(void) {
	static const uint64_t sizes[] = { 0, 1, 16, 4096, UINT32_MAX, (uint64_t)UINT32_MAX + 1, (uint64_t)1 << 47 };
	return chance(20) ? chance(2000) : sizes[chance(sizeof sizes / sizeof *sizes)];
}

static uint64_t any_time(void) {
	static const uint64_t times[] = { 0, ((uint64_t)1 << 53) - 1, (uint64_t)1 << 53, (uint64_t)1 << 60 };
	return chance(50) ? chance((uint64_t)1 << 40) : times[chance(sizeof times / sizeof *times)];
}

/* One change, the same for whatever struct it is given. */
struct change {
	unsigned kind;
	uint64_t size, ns, slack;
	uint32_t epoch;
};

static void add(struct tm_amount *a, uint64_t bytes, uint64_t count) {
	a->bytes += bytes;
	a->count += count;
}

static void allocate(struct tm_site *s, const struct change *c) {
	if (!s->amounts[TM_SITE_ALLOCATED].count) s->first_ns = c->ns;
	else s->same_size += s->last_size_bytes == c->size;
	s->last_ns = c->ns;
	s->last_size_bytes = c->size;
	s->slack_bytes += c->slack;
	s->knows_slack = s->knows_slack || c->slack;
	add(&s->amounts[TM_SITE_ALLOCATED], c->size, 1);
	add(&s->amounts[TM_SITE_LIVE], c->size, 1);
	if (c->kind != 1) return;
	add(&s->amounts[TM_SITE_REALLOCATED], c->size, 1);
	s->longest_chain = (uint16_t)(c->ns & 0xFFFF);
}

static void apply(struct tm_site *s, const struct change *c) {
	struct tm_amount live = s->amounts[TM_SITE_LIVE];
	if (c->kind <= 1) {
		allocate(s, c);
	} else if (c->kind == 2 && live.count) {
		s->amounts[TM_SITE_LIVE] = (struct tm_amount){ 0, 0 };
		s->amounts[TM_SITE_TEMPORARY] = live;
		add(&s->amounts[TM_SITE_SHORT_LIVED], live.bytes, live.count);
		s->lifetimes += (double)c->ns * 0.37;
	} else if (c->kind == 3) {
		s->peak_epoch = c->epoch;
		s->amounts[TM_SITE_AT_PEAK] = live;
	} else if (c->kind == 4) {
		s->process_peak_epoch = ~c->epoch;
		s->amounts[TM_SITE_AT_PROCESS_PEAK] = live;
		s->amounts[TM_SITE_AT_EXIT] = live;
	} else if (c->kind == 5) {
		s->splits++;
		add(&s->amounts[TM_SITE_LIVE], 0, 1);
	}
}

/* Field by field: structs may have holes. */
static bool same(const struct tm_site *a, const struct tm_site *b) {
	for (unsigned i = 0; i < TM_SITE_AMOUNTS; i++)
		if (a->amounts[i].bytes != b->amounts[i].bytes || a->amounts[i].count != b->amounts[i].count) return false;
	return a->stack == b->stack && a->peak_epoch == b->peak_epoch && a->process_peak_epoch == b->process_peak_epoch &&
	       a->longest_chain == b->longest_chain && a->knows_slack == b->knows_slack && a->first_ns == b->first_ns &&
	       a->last_ns == b->last_ns && a->splits == b->splits && a->last_size_bytes == b->last_size_bytes &&
	       a->same_size == b->same_size && a->slack_bytes == b->slack_bytes && a->lifetimes == b->lifetimes;
}

static bool same_amounts(const struct tm_sites *sites, uint32_t site, const struct tm_site *twin) {
	for (unsigned i = 0; i < TM_SITE_AMOUNTS; i++) {
		struct tm_amount a = tm_site_amount(sites, site, i);
		if (a.bytes != twin->amounts[i].bytes || a.count != twin->amounts[i].count) return false;
	}
	struct tm_site_epochs epochs = tm_site_epochs(sites, site);
	return epochs.peak == twin->peak_epoch && epochs.process_peak == twin->process_peak_epoch;
}

/* Most stacks see a change or two, some many. */
static uint32_t any_stack(void) {
	return (uint32_t)(chance(4) ? chance(STACKS) : chance(20));
}

static bool is_ordered(const struct tm_sites *s) {
	uint32_t *order = tm_sites_by_stack(s);
	bool ordered = order != NULL;
	for (size_t i = 1; ordered && i < s->heads.count; i++)
		ordered = s->heads.items[order[i - 1]].stack < s->heads.items[order[i]].stack;
	free(order);
	return ordered;
}

static void tiers(const struct tm_sites *s, unsigned counts[4]) {
	for (size_t i = 0; i < s->heads.count; i++) counts[s->heads.items[i].tier]++;
}

static void compare(uint32_t stacks_known, unsigned changes, unsigned seen[4]) {
	static struct tm_site twins[STACKS];
	struct tm_sites sites = { .stacks = stacks_known };
	unsigned wrong = 0;
	for (uint32_t i = 0; i < STACKS; i++) twins[i] = (struct tm_site){ .stack = i };
	for (unsigned i = 0; i < changes; i++) {
		uint32_t stack = any_stack(), site = tm_sites_take(&sites, stack);
		uint64_t slack = chance(30) ? chance(40) : (uint64_t)UINT32_MAX - chance(2);
		struct change c = { (unsigned)chance(60), any_size(), any_time(), slack, (uint32_t)chance(UINT32_MAX) };
		c.kind = c.kind < 6 ? c.kind : c.kind % 3;
		struct tm_site room, *open = tm_site_open(&sites, site, &room);
		apply(open, &c);
		apply(&twins[stack], &c);
		if (!tm_site_close(&sites, site, open)) wrong++;
		if (!same(tm_site_look(&sites, site, &room), &twins[stack])) wrong++;
		if (tm_sites_find(&sites, stack) != site) wrong++;
	}
	for (uint32_t i = 0; i < sites.heads.count; i++) {
		struct tm_site room;
		const struct tm_site *s = tm_site_look(&sites, i, &room);
		if (!same(s, &twins[s->stack]) || !same_amounts(&sites, i, &twins[s->stack])) wrong++;
	}
	tiers(&sites, seen);
	CHECK(wrong == 0);
	CHECK(is_ordered(&sites));
	if (changes == CHANGES_MOST) CHECK((sites.by_stack != NULL) == (stacks_known != 0));
	tm_sites_release(&sites);
}

int main(void) {
	unsigned seen[4] = { 0 };
	source = check_random_start("sites");
	for (unsigned changes = 1000; changes <= CHANGES_MOST; changes *= 14) {
		compare(STACKS, changes, seen);
		compare(0, changes, seen);
	}
	CHECK(seen[SITE_ONE] > 100 && seen[SITE_FEW] > 100 && seen[SITE_WHOLE] > 100);
	return check_report("sites");
}
