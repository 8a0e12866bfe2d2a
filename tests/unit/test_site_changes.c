/* test_site_changes.c - what allocations and releases make of a call site, against plain structs that add up everything each time.
 *
 * Method: random blocks come and go at random stacks of a heap that counts for its process, and of one that does not: most stacks see one block, as in real
 *         programs, with sizes, times and chains around all limits of the packed forms, whole and as parts of a sample, while the peaks move on now and
 *         then. After each change all that is known of its site is compared, at the end also the histograms.
 */
#include "check.h"

#include "../../analyzer/accounts.h"
#include "../../analyzer/churn.h"

#define STACKS 20000u
#define CHANGES 40000u
#define BLOCKS_MOST 24u /* live of one stack */

struct twin {
	struct tm_site site;
	struct tm_amount live[BLOCKS_MOST];
	uint64_t sizes[BLOCKS_MOST];
	unsigned blocks;
};

static struct check_random source;
static struct twin twins[STACKS];
static struct tm_histograms histograms;
static uint32_t peak_epoch, process_peak_epoch;

static uint64_t chance(uint64_t n) {
	return check_random_next(&source) % n;
}

static uint64_t any_size(void) {
	static const uint64_t sizes[] = { 0, 1, UINT32_MAX, (uint64_t)UINT32_MAX + 1, (uint64_t)1 << 47, (uint64_t)1 << 48 };
	return chance(12) ? chance(3000) : sizes[chance(sizeof sizes / sizeof *sizes)];
}

static uint64_t any_ns(void) {
	static const uint64_t times[] = { 0, ((uint64_t)1 << 53) - 1, (uint64_t)1 << 53, (uint64_t)1 << 60 };
	return chance(30) ? chance((uint64_t)1 << 40) : times[chance(sizeof times / sizeof *times)];
}

static uint32_t any_slack(void) {
	if (!chance(3)) return TM_SLACK_UNKNOWN;
	return (uint32_t)(chance(30) ? chance(40) : TM_SLACK_UNKNOWN - 1 - chance(2));
}

static unsigned digits(uint64_t value) {
	unsigned n = 0;
	for (; value; value >>= 1) n++;
	return n;
}

static void add(struct tm_amount *a, struct tm_amount b) {
	a->bytes += b.bytes;
	a->count += b.count;
}

static void reach_peaks(struct tm_site *s, bool is_root) {
	if (s->peak_epoch != peak_epoch) s->amounts[TM_SITE_AT_PEAK] = s->amounts[TM_SITE_LIVE];
	s->peak_epoch = peak_epoch;
	if (!is_root) return;
	if (s->process_peak_epoch != process_peak_epoch) s->amounts[TM_SITE_AT_PROCESS_PEAK] = s->amounts[TM_SITE_LIVE];
	s->process_peak_epoch = process_peak_epoch;
}

static void allocate(struct twin *t, const struct tm_site_change *c) {
	struct tm_site *s = &t->site;
	if (!s->amounts[TM_SITE_ALLOCATED].count) s->first_ns = c->ns;
	else if (s->last_size_bytes == c->size_bytes) s->same_size += c->amount.count;
	s->last_ns = c->ns;
	s->last_size_bytes = c->size_bytes;
	if (c->slack != TM_SLACK_UNKNOWN) s->slack_bytes += c->slack * c->amount.count;
	if (c->slack != TM_SLACK_UNKNOWN) s->knows_slack = true;
	if (c->chain) add(&s->amounts[TM_SITE_REALLOCATED], c->amount);
	if (c->chain > s->longest_chain) s->longest_chain = c->chain;
	add(&s->amounts[TM_SITE_ALLOCATED], c->amount);
	add(&s->amounts[TM_SITE_LIVE], c->amount);
	add(&histograms.sizes[digits(c->size_bytes)], c->amount);
	t->live[t->blocks] = c->amount;
	t->sizes[t->blocks++] = c->size_bytes;
}

static void release(struct twin *t, const struct tm_site_change *c) {
	struct tm_site *s = &t->site;
	s->amounts[TM_SITE_LIVE].bytes -= c->amount.bytes;
	s->amounts[TM_SITE_LIVE].count -= c->amount.count;
	if (c->lifetime_ns < 1000000) add(&s->amounts[TM_SITE_SHORT_LIVED], c->amount);
	if (c->temporary) add(&s->amounts[TM_SITE_TEMPORARY], c->amount);
	s->lifetimes += (double)c->lifetime_ns * (double)c->amount.count;
	add(&histograms.lifetimes[digits(c->lifetime_ns)], c->amount);
	t->live[0] = t->live[--t->blocks];
	t->sizes[0] = t->sizes[t->blocks];
}

static bool is_same(const struct tm_sites *sites, uint32_t site, const struct tm_site *twin) {
	struct tm_site room;
	const struct tm_site *s = tm_site_look(sites, site, &room);
	const struct tm_site_head *head = &sites->heads.items[site];
	for (unsigned i = 0; i < TM_SITE_AMOUNTS; i++) {
		struct tm_amount a = tm_site_amount(sites, site, i), b = s->amounts[i], c = twin->amounts[i];
		if (a.bytes != c.bytes || a.count != c.count || b.bytes != c.bytes || b.count != c.count) return false;
		if (head->tier != SITE_WHOLE && (head->has >> i & 1) != (c.bytes || c.count)) return false;
	}
	if (sites->levels.items[site] != tm_site_level(twin->amounts[TM_SITE_LIVE].bytes)) return false;
	return s->stack == twin->stack && s->peak_epoch == twin->peak_epoch && s->process_peak_epoch == twin->process_peak_epoch &&
	       s->longest_chain == twin->longest_chain && s->knows_slack == twin->knows_slack && s->first_ns == twin->first_ns &&
	       s->last_ns == twin->last_ns && s->last_size_bytes == twin->last_size_bytes && s->same_size == twin->same_size &&
	       s->slack_bytes == twin->slack_bytes && s->lifetimes == twin->lifetimes;
}

static struct tm_site_change any_allocation(uint32_t stack, bool sampled) {
	uint64_t size = any_size();
	return (struct tm_site_change){ .kind = TM_SITE_ALLOCATION,
					.stack = stack,
					.ns = any_ns(),
					.size_bytes = size,
					.amount = sampled ? (struct tm_amount){ size * 300, 70000 } : (struct tm_amount){ size, 1 },
					.slack = any_slack(),
					.chain = chance(4) ? 0 : (uint16_t)chance(UINT16_MAX) };
}

static struct tm_site_change any_release(uint32_t stack, const struct twin *t) {
	return (struct tm_site_change){ .kind = TM_SITE_RELEASE,
					.stack = stack,
					.ns = any_ns(),
					.size_bytes = t->sizes[0],
					.amount = t->live[0],
					.lifetime_ns = chance(2) ? 999990 + chance(20) : any_ns(),
					.temporary = chance(2) };
}

static void compare(bool is_root, bool sampled) {
	struct tm_ledger ledger;
	unsigned wrong = 0, ones = 0;
	tm_ledger_init(&ledger, 1, 0, 0, (struct tm_scale){ 0 });
	struct tm_account *a = tm_ledger_open_account(&ledger, 1, tm_text_of("heap"), tm_text_of(is_root ? "host" : "python"), -1, 0);
	CHECK(a && a->is_root == is_root);
	a->sites.stacks = STACKS;
	memset(&histograms, 0, sizeof histograms);
	peak_epoch = process_peak_epoch = 1;
	for (uint32_t i = 0; i < STACKS; i++) twins[i] = (struct twin){ .site.stack = i };
	for (unsigned i = 0; i < CHANGES; i++) {
		uint32_t stack = (uint32_t)(chance(3) ? chance(STACKS) : chance(30));
		struct twin *t = &twins[stack];
		bool ends = t->blocks && (chance(2) || t->blocks == BLOCKS_MOST);
		struct tm_site_change c = ends ? any_release(stack, t) : any_allocation(stack, sampled);
		if (!chance(500)) peak_epoch++;
		if (!chance(700)) process_peak_epoch++;
		c.account = a;
		c.peak_epoch = peak_epoch;
		c.process_peak_epoch = process_peak_epoch;
		reach_peaks(&t->site, is_root);
		if (ends) release(t, &c);
		else allocate(t, &c);
		if (!tm_site_change_make(&c) || !is_same(&a->sites, tm_sites_find(&a->sites, stack), &t->site)) wrong++;
	}
	for (uint32_t i = 0; i < a->sites.heads.count; i++) ones += a->sites.heads.items[i].tier == SITE_ONE;
	CHECK(wrong == 0);
	CHECK(sampled ? ones == 0 : ones > 5000);
	CHECK(memcmp(&histograms, a->histograms, sizeof histograms) == 0);
	tm_ledger_release(&ledger);
}

int main(void) {
	source = check_random_start("site_changes");
	compare(true, false);
	compare(false, false);
	compare(true, true);
	return check_report("site_changes");
}
