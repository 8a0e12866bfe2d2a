/* site_changes.c - what happens at call sites; see site_changes.h. */
#include "site_changes.h"

#include "churn.h"

#define BATCH_CHANGES 1024u
#define BATCHES 32u    /* 2.5 MiB: sites that are new, and looks at all of them, take their time */
#define SLOT_AHEAD 32u /* so many changes ahead what one needs is asked of memory */
#define HEAD_AHEAD 20u
#define REST_AHEAD 10u
#define MANY_SITES 32768u /* fewer stay in the cache by themselves */

/* The site is about to change: keeps what it had at the latest peaks. */
static void save_peaks(const struct tm_site_change *c, struct tm_site *s) {
	if (s->peak_epoch != c->peak_epoch) {
		s->peak_epoch = c->peak_epoch;
		s->amounts[TM_SITE_AT_PEAK] = s->amounts[TM_SITE_LIVE];
	}
	if (c->account->is_root && s->process_peak_epoch != c->process_peak_epoch) {
		s->process_peak_epoch = c->process_peak_epoch;
		s->amounts[TM_SITE_AT_PROCESS_PEAK] = s->amounts[TM_SITE_LIVE];
	}
}

static void allocate(const struct tm_site_change *c, struct tm_site *s) {
	tm_churn_allocated(c, s);
	if (!s->amounts[TM_SITE_ALLOCATED].count) s->first_ns = c->ns;
	s->last_ns = c->ns;
	tm_amount_add(&s->amounts[TM_SITE_LIVE], c->amount);
	tm_amount_add(&s->amounts[TM_SITE_ALLOCATED], c->amount);
}

static void release(const struct tm_site_change *c, struct tm_site *s) {
	tm_churn_released(c, s);
	tm_amount_take(&s->amounts[TM_SITE_LIVE], c->amount);
	if (c->temporary) tm_amount_add(&s->amounts[TM_SITE_TEMPORARY], c->amount);
}

static void split(const struct tm_site_change *c, struct tm_site *s) {
	tm_amount_add(&s->amounts[TM_SITE_LIVE], c->amount);
	s->splits += c->amount.count;
}

/* --- sites of one block --- */

/* Seven sites in eight have one block ever, and a head says all of it: that they open and close is not worth packing them each time. What follows comes to the
 * same as what stands above, for sites that are packed and stay as they are packed. */
static bool allocate_first(const struct tm_site_change *c, struct tm_site_head *head, uint32_t *level) {
	bool knows_slack = c->slack != TM_SLACK_UNKNOWN;
	if (head->tier != SITE_NONE || c->amount.count != 1 || c->amount.bytes != c->size_bytes) return false;
	if (c->ns > TM_SITE_FIRST_NS_MAX || c->size_bytes > TM_SITE_SIZE_MAX) return false;
	*head = (struct tm_site_head){ .stack = c->stack,
				       .peak_epoch = c->peak_epoch,
				       .process_peak_epoch = c->account->is_root ? c->process_peak_epoch : 0,
				       .more = knows_slack ? c->slack : 0,
				       .first_ns = c->ns,
				       .tier = SITE_ONE,
				       .knows_slack = knows_slack,
				       .has = 1u << TM_SITE_LIVE | 1u << TM_SITE_ALLOCATED |
					      (unsigned)(c->chain != 0) << TM_SITE_REALLOCATED,
				       .last_size_bytes = c->size_bytes,
				       .longest_chain = c->chain };
	*level = tm_site_level(c->size_bytes);
	tm_churn_count_size(c);
	return true;
}

static bool release_only(const struct tm_site_change *c, struct tm_site_head *head, uint32_t *level) {
	unsigned has = head->has;
	if (head->tier != SITE_ONE || c->amount.count != 1 || c->amount.bytes != head->last_size_bytes) return false;
	if (head->peak_epoch != c->peak_epoch) has |= 1u << TM_SITE_AT_PEAK;
	head->peak_epoch = c->peak_epoch;
	if (c->account->is_root) {
		if (head->process_peak_epoch != c->process_peak_epoch) has |= 1u << TM_SITE_AT_PROCESS_PEAK;
		head->process_peak_epoch = c->process_peak_epoch;
	}
	if (tm_churn_is_short(c)) has |= 1u << TM_SITE_SHORT_LIVED;
	if (c->temporary) has |= 1u << TM_SITE_TEMPORARY;
	head->has = has & ~(1u << TM_SITE_LIVE) & ((1u << TM_SITE_AMOUNTS) - 1);
	head->lifetimes += (double)c->lifetime_ns;
	*level = 0;
	tm_churn_count_lifetime(c);
	return true;
}

/* --- sites of a few blocks --- */

static void add(struct tm_site_few *few, struct tm_site_head *head, enum tm_site_amount which, struct tm_amount a) {
	few->bytes[which] += (uint32_t)a.bytes;
	few->counts += (uint32_t)a.count << 4 * which;
	head->has |= 1u << which;
}

static void set_to_live(struct tm_site_few *few, struct tm_site_head *head, enum tm_site_amount which) {
	few->bytes[which] = few->bytes[TM_SITE_LIVE];
	few->counts &= ~(15u << 4 * which);
	few->counts |= (few->counts >> 4 * TM_SITE_LIVE & 15) << 4 * which;
	head->has = (head->has & ~(1u << which)) | (head->has >> TM_SITE_LIVE & 1u) << which;
}

static void save_peaks_of_few(const struct tm_site_change *c, struct tm_site_head *head, struct tm_site_few *few) {
	if (head->peak_epoch != c->peak_epoch) set_to_live(few, head, TM_SITE_AT_PEAK);
	head->peak_epoch = c->peak_epoch;
	if (!c->account->is_root) return;
	if (head->process_peak_epoch != c->process_peak_epoch) set_to_live(few, head, TM_SITE_AT_PROCESS_PEAK);
	head->process_peak_epoch = c->process_peak_epoch;
}

/* All amounts are at most what was allocated, so that alone says whether the site stays one of these. */
static bool stays_few(const struct tm_site_change *c, const struct tm_site_few *few) {
	uint64_t slack = c->slack == TM_SLACK_UNKNOWN ? 0 : (uint64_t)c->slack * c->amount.count;
	uint64_t count = (few->counts >> 4 * TM_SITE_ALLOCATED & 15) + c->amount.count;
	return count <= TM_SITE_FEW_COUNT && c->amount.bytes <= UINT32_MAX - few->bytes[TM_SITE_ALLOCATED] &&
	       slack <= UINT32_MAX - few->slack_bytes && c->ns <= TM_SITE_LAST_NS_MAX;
}

static void allocate_of_few(const struct tm_site_change *c, struct tm_site_head *head, struct tm_site_few *few) {
	if (c->chain) add(few, head, TM_SITE_REALLOCATED, c->amount);
	if (c->chain > head->longest_chain) head->longest_chain = c->chain;
	if (head->last_size_bytes == c->size_bytes) few->same_size += (uint8_t)c->amount.count;
	head->last_size_bytes = c->size_bytes & TM_SITE_SIZE_MAX;
	few->last_ns = c->ns & TM_SITE_LAST_NS_MAX;
	if (c->slack != TM_SLACK_UNKNOWN) {
		few->slack_bytes += (uint32_t)(c->slack * c->amount.count);
		head->knows_slack = true;
	}
	add(few, head, TM_SITE_LIVE, c->amount);
	add(few, head, TM_SITE_ALLOCATED, c->amount);
	tm_churn_count_size(c);
}

static void release_of_few(const struct tm_site_change *c, struct tm_site_head *head, struct tm_site_few *few) {
	if (tm_churn_is_short(c)) add(few, head, TM_SITE_SHORT_LIVED, c->amount);
	if (c->temporary) add(few, head, TM_SITE_TEMPORARY, c->amount);
	head->lifetimes += (double)c->lifetime_ns * (double)c->amount.count;
	few->bytes[TM_SITE_LIVE] -= (uint32_t)c->amount.bytes;
	few->counts -= (uint32_t)c->amount.count << 4 * TM_SITE_LIVE;
	if (!(few->counts >> 4 * TM_SITE_LIVE & 15)) head->has &= ((1u << TM_SITE_AMOUNTS) - 1) & ~(1u << TM_SITE_LIVE);
	tm_churn_count_lifetime(c);
}

static bool change_few(const struct tm_site_change *c, struct tm_sites *sites, struct tm_site_head *head, uint32_t *level) {
	struct tm_site_few *few = &sites->few.items[head->more];
	if (c->kind == TM_SITE_SPLIT || (c->kind == TM_SITE_ALLOCATION && !stays_few(c, few))) return false;
	save_peaks_of_few(c, head, few);
	if (c->kind == TM_SITE_ALLOCATION) allocate_of_few(c, head, few);
	else release_of_few(c, head, few);
	*level = tm_site_level(few->bytes[TM_SITE_LIVE]);
	return true;
}

/* --- all of them --- */

static bool is_made_in_place(const struct tm_site_change *c, struct tm_sites *sites, uint32_t site) {
	struct tm_site_head *head = &sites->heads.items[site];
	uint32_t *level = &sites->levels.items[site];
	if (head->tier == SITE_FEW) return change_few(c, sites, head, level);
	if (c->kind == TM_SITE_ALLOCATION) return allocate_first(c, head, level);
	return c->kind == TM_SITE_RELEASE && release_only(c, head, level);
}

static bool change_opened(const struct tm_site_change *c, struct tm_sites *sites, uint32_t site) {
	struct tm_site room, *s = tm_site_open(sites, site, &room);
	save_peaks(c, s);
	if (c->kind == TM_SITE_ALLOCATION) allocate(c, s);
	else if (c->kind == TM_SITE_RELEASE) release(c, s);
	else split(c, s);
	return tm_site_close(sites, site, s);
}

bool tm_site_change_make(const struct tm_site_change *c) {
	if (c->kind == TM_SITE_STEP) return tm_leak_watch_step(c->ledger, c->ns);
	struct tm_sites *sites = &c->account->sites;
	uint32_t site = tm_sites_take(sites, c->stack);
	if (site == UINT32_MAX) return false;
	if (!is_made_in_place(c, sites, site) && !change_opened(c, sites, site)) return false;
	if (c->kind != TM_SITE_ALLOCATION) return true;
	struct tm_leak_watch *watch = &c->account->ledger->watch;
	return ++watch->ticks != watch->next_tick || tm_leak_watch_tick(c->account->ledger, c->ns);
}

/* --- the thread --- */

static const struct tm_sites *large_sites(const struct tm_site_change *c) {
	return c->kind != TM_SITE_STEP && c->account->sites.heads.count >= MANY_SITES ? &c->account->sites : NULL;
}

/* Far ahead the slots that will be looked at are asked for; when they have come, nearer, the heads that they lead to, and then what these lead to. */
static void look_ahead(const struct tm_site_change *c, size_t left) {
	const struct tm_sites *sites;
	uint32_t site;
	if (left > SLOT_AHEAD && (sites = large_sites(c + SLOT_AHEAD))) tm_sites_prefetch_slot(sites, c[SLOT_AHEAD].stack);
	if (left > HEAD_AHEAD && (sites = large_sites(c + HEAD_AHEAD)) && (site = tm_sites_find(sites, c[HEAD_AHEAD].stack)) != UINT32_MAX)
		tm_sites_prefetch_site(sites, site);
	if (left > REST_AHEAD && (sites = large_sites(c + REST_AHEAD)) && (site = tm_sites_find(sites, c[REST_AHEAD].stack)) != UINT32_MAX)
		tm_sites_prefetch_rest(sites, site);
}

/* What lies beside `failed` is the maker's, who writes there with every change: it is looked at once a batch. */
static void make_changes(void *context, const void *changes, size_t count) {
	struct tm_site_changes *all = context;
	const struct tm_site_change *c = changes;
	bool failed = all->failed;
	for (size_t i = 0; i < count && !failed; i++) {
		look_ahead(&c[i], count - i);
		failed = !tm_site_change_make(&c[i]);
	}
	if (failed) all->failed = true;
}

int tm_site_changes_start(struct tm_site_changes *c) {
	c->failed = false;
	return tm_belt_start(&c->belt, sizeof(struct tm_site_change), BATCH_CHANGES, BATCHES, make_changes, c);
}

void tm_site_changes_settle(struct tm_site_changes *c) {
	tm_belt_settle(&c->belt);
}

void tm_site_changes_finish(struct tm_site_changes *c) {
	tm_belt_finish(&c->belt);
}
