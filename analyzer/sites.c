/* sites.c - the call sites of one heap; see sites.h. */
#include "sites.h"

#define FIRST_SLOTS 64u
#define STACKS_A_SLOT 16u /* of the tree: where sites are more than one in so many, an item for each takes little beside them, and need not grow */
#define STACKS_A_SITE 6u  /* where they are more than that, they may become nearly as many */

_Static_assert(sizeof(struct tm_site_head) == 40 && sizeof(struct tm_site_few) == 48, "as sites.h says");

void tm_sites_release(struct tm_sites *s) {
	tm_array_release(&s->heads);
	tm_array_release(&s->levels);
	tm_array_release(&s->few);
	tm_array_release(&s->wholes);
	free(s->slots);
	free(s->by_stack);
	*s = (struct tm_sites){ 0 };
}

/* --- lookup --- */

static size_t first_slot(const struct tm_sites *s, uint32_t stack) {
	return (stack * 0x9E3779B1u ^ stack >> 15) & s->slot_mask;
}

static struct tm_site_slot *slot_of(const struct tm_sites *s, uint32_t stack) {
	size_t i = first_slot(s, stack);
	while (s->slots[i].site && s->slots[i].stack != stack) i = (i + 1) & s->slot_mask;
	return &s->slots[i];
}

#define MANY_BYTES ((size_t)4 << 20)

/* Room for as many sites as there are stacks: memory is taken where it is used, and what stays where it is keeps its huge pages. A limit on
 * addresses counts all of it, so only where the sites are many among the stacks. Where that much cannot be had, the arrays grow as others do. */
static void make_room(struct tm_sites *s) {
	if (s->stacks * sizeof *s->heads.items < MANY_BYTES) return;
	(void)(tm_array_reserve(&s->heads, s->stacks) && tm_array_reserve(&s->levels, s->stacks));
}

static bool list_by_stack(struct tm_sites *s) {
	s->by_stack = tm_table_new(s->stacks, sizeof *s->by_stack);
	if (!s->by_stack) return false;
	for (size_t i = 0; i < s->heads.count; i++) s->by_stack[s->heads.items[i].stack] = (uint32_t)i + 1;
	free(s->slots);
	s->slots = NULL;
	return true;
}

static bool grow_slots(struct tm_sites *s) {
	size_t n = s->slots ? (s->slot_mask + 1) * 2 : FIRST_SLOTS;
	if (s->heads.count && s->heads.count > s->stacks / STACKS_A_SLOT && s->stacks) return list_by_stack(s);
	struct tm_site_slot *slots = tm_table_new(n, sizeof *slots);
	if (!slots) return false;
	free(s->slots);
	s->slots = slots;
	s->slot_mask = n - 1;
	for (size_t i = 0; i < s->heads.count; i++)
		*slot_of(s, s->heads.items[i].stack) = (struct tm_site_slot){ s->heads.items[i].stack, (uint32_t)i + 1 };
	return true;
}

/* Where the number of the stack's site is, or has to be written; NULL: out of memory. */
static uint32_t *place_of(struct tm_sites *s, uint32_t stack) {
	if (!s->by_stack && (!s->slots || s->heads.count * 10 > s->slot_mask * 7) && !grow_slots(s)) return NULL;
	if (s->by_stack) return &s->by_stack[stack];
	struct tm_site_slot *slot = slot_of(s, stack);
	slot->stack = stack;
	return &slot->site;
}

uint32_t tm_sites_make(struct tm_sites *s, uint32_t stack) {
	uint32_t *place = place_of(s, stack);
	if (!place) return UINT32_MAX;
	if (*place) return *place - 1;
	if (s->by_stack && s->heads.count == s->heads.capacity && s->heads.count > s->stacks / STACKS_A_SITE) make_room(s);
	struct tm_site_head *head = s->heads.count < UINT32_MAX - 1 ? tm_array_push(&s->heads) : NULL;
	if (!head) return UINT32_MAX;
	if (!tm_array_push(&s->levels)) {
		s->heads.count--;
		return UINT32_MAX;
	}
	head->stack = stack;
	*place = (uint32_t)s->heads.count;
	return *place - 1;
}

uint32_t tm_sites_find(const struct tm_sites *s, uint32_t stack) {
	if (s->by_stack) return s->by_stack[stack] - 1;
	return s->slots ? slot_of(s, stack)->site - 1 : UINT32_MAX;
}

struct by_stack {
	uint32_t stack, site;
};

static int compare_stacks(const void *a, const void *b) {
	const struct by_stack *x = a, *y = b;
	return (x->stack > y->stack) - (x->stack < y->stack);
}

static void sort_by_stack(const struct tm_sites *s, struct by_stack *all, uint32_t *out) {
	size_t n = s->heads.count;
	for (size_t i = 0; i < n; i++) all[i] = (struct by_stack){ s->heads.items[i].stack, (uint32_t)i };
	if (n) qsort(all, n, sizeof *all, compare_stacks);
	for (size_t i = 0; i < n; i++) out[i] = all[i].site;
}

uint32_t *tm_sites_by_stack(const struct tm_sites *s) {
	uint32_t *sites = malloc((s->heads.count + 1) * sizeof *sites);
	size_t n = 0;
	if (!sites || !s->by_stack) {
		struct by_stack *all = sites ? malloc((s->heads.count + 1) * sizeof *all) : NULL;
		if (all) sort_by_stack(s, all, sites);
		else free(sites);
		free(all);
		return all ? sites : NULL;
	}
	for (uint32_t stack = 0; stack < s->stacks; stack++)
		if (s->by_stack[stack]) sites[n++] = s->by_stack[stack] - 1;
	return sites;
}

/* --- packing --- */

static bool is_nothing(struct tm_amount a) {
	return !a.bytes && !a.count;
}

/* All figures follow from those of its one block. */
static bool fits_one(const struct tm_site *site, unsigned *has) {
	struct tm_amount block = site->amounts[TM_SITE_ALLOCATED];
	if (block.count != 1 || block.bytes != site->last_size_bytes || site->first_ns != site->last_ns || site->same_size) return false;
	for (unsigned i = 0; i < TM_SITE_AMOUNTS; i++) {
		struct tm_amount a = site->amounts[i];
		if (a.bytes == block.bytes && a.count == 1) *has |= 1u << i;
		else if (!is_nothing(a)) return false;
	}
	return true;
}

static bool fits_few(const struct tm_site *site) {
	uint64_t bytes = 0, count = site->same_size;
	for (unsigned i = 0; i < TM_SITE_AMOUNTS; i++) {
		bytes |= site->amounts[i].bytes;
		count |= site->amounts[i].count;
	}
	return bytes <= UINT32_MAX && count <= TM_SITE_FEW_COUNT;
}

static void put_head(struct tm_site_head *head, const struct tm_site *site, enum tm_site_tier tier, uint32_t more, unsigned has) {
	*head = (struct tm_site_head){ .stack = site->stack,
				       .peak_epoch = site->peak_epoch,
				       .process_peak_epoch = site->process_peak_epoch,
				       .more = more,
				       .first_ns = site->first_ns & TM_SITE_FIRST_NS_MAX,
				       .tier = tier,
				       .knows_slack = site->knows_slack,
				       .has = has & ((1u << TM_SITE_AMOUNTS) - 1),
				       .last_size_bytes = site->last_size_bytes & TM_SITE_SIZE_MAX,
				       .longest_chain = site->longest_chain,
				       .lifetimes = site->lifetimes };
}

static bool keep_few(struct tm_sites *s, struct tm_site_head *head, const struct tm_site *site) {
	if (head->tier != SITE_FEW) {
		uint32_t index = s->free_few - 1;
		if (s->free_few) s->free_few = (uint32_t)s->few.items[index].last_ns;
		else if (tm_array_push(&s->few)) index = (uint32_t)s->few.count - 1;
		else return false;
		head->more = index;
	}
	struct tm_site_few *few = &s->few.items[head->more];
	unsigned has = 0;
	few->last_ns = site->last_ns & TM_SITE_LAST_NS_MAX;
	few->counts = 0;
	few->slack_bytes = (uint32_t)site->slack_bytes;
	few->same_size = (uint8_t)site->same_size;
	for (unsigned i = 0; i < TM_SITE_AMOUNTS; i++) {
		few->bytes[i] = (uint32_t)site->amounts[i].bytes;
		few->counts |= (uint32_t)site->amounts[i].count << 4 * i;
		if (!is_nothing(site->amounts[i])) has |= 1u << i;
	}
	put_head(head, site, SITE_FEW, head->more, has);
	return true;
}

static bool keep_whole(struct tm_sites *s, struct tm_site_head *head, const struct tm_site *site) {
	struct tm_site *whole = tm_array_push(&s->wholes);
	if (!whole) return false;
	*whole = *site;
	if (head->tier == SITE_FEW) {
		s->few.items[head->more].last_ns = s->free_few;
		s->free_few = head->more + 1;
	}
	put_head(head, site, SITE_WHOLE, (uint32_t)s->wholes.count - 1, 0);
	return true;
}

bool tm_site_pack(struct tm_sites *s, uint32_t index, const struct tm_site *site) {
	struct tm_site_head *head = &s->heads.items[index];
	unsigned has = 0;
	bool is_small = site->first_ns <= TM_SITE_FIRST_NS_MAX && site->last_ns <= TM_SITE_LAST_NS_MAX &&
			site->last_size_bytes <= TM_SITE_SIZE_MAX && site->slack_bytes <= UINT32_MAX && !site->splits;
	if (is_small && head->tier <= SITE_ONE && fits_one(site, &has)) {
		put_head(head, site, SITE_ONE, (uint32_t)site->slack_bytes, has);
		return true;
	}
	return is_small && fits_few(site) ? keep_few(s, head, site) : keep_whole(s, head, site);
}

static struct tm_amount amount_of(const struct tm_site_few *few, unsigned which) {
	return (struct tm_amount){ few->bytes[which], few->counts >> 4 * which & 15 };
}

void tm_site_unpack(const struct tm_sites *s, uint32_t index, struct tm_site *site) {
	const struct tm_site_head *head = &s->heads.items[index];
	*site = (struct tm_site){ .stack = head->stack,
				  .peak_epoch = head->peak_epoch,
				  .process_peak_epoch = head->process_peak_epoch,
				  .longest_chain = head->longest_chain,
				  .knows_slack = head->knows_slack,
				  .first_ns = head->first_ns,
				  .last_ns = head->first_ns,
				  .last_size_bytes = head->last_size_bytes,
				  .lifetimes = head->lifetimes };
	if (head->tier == SITE_ONE) {
		site->slack_bytes = head->more;
		for (unsigned i = 0; i < TM_SITE_AMOUNTS; i++)
			if (head->has >> i & 1) site->amounts[i] = (struct tm_amount){ head->last_size_bytes, 1 };
	} else if (head->tier == SITE_FEW) {
		const struct tm_site_few *few = &s->few.items[head->more];
		site->last_ns = few->last_ns;
		site->slack_bytes = few->slack_bytes;
		site->same_size = few->same_size;
		for (unsigned i = 0; i < TM_SITE_AMOUNTS; i++) site->amounts[i] = amount_of(few, i);
	}
}

uint64_t tm_site_last_ns(const struct tm_sites *s, uint32_t index) {
	const struct tm_site_head *head = &s->heads.items[index];
	if (head->tier == SITE_WHOLE) return s->wholes.items[head->more].last_ns;
	return head->tier == SITE_FEW ? s->few.items[head->more].last_ns : head->first_ns;
}

/* Packing such sites anew would come to the same. */
void tm_sites_exit(struct tm_sites *s) {
	for (size_t i = 0; i < s->heads.count; i++) {
		struct tm_site_head *head = &s->heads.items[i];
		if (head->tier == SITE_WHOLE) {
			struct tm_site *whole = &s->wholes.items[head->more];
			whole->amounts[TM_SITE_AT_EXIT] = whole->amounts[TM_SITE_LIVE];
			continue;
		}
		head->has = (head->has & ~(1u << TM_SITE_AT_EXIT)) | (head->has >> TM_SITE_LIVE & 1u) << TM_SITE_AT_EXIT;
		if (head->tier != SITE_FEW) continue;
		struct tm_site_few *few = &s->few.items[head->more];
		few->bytes[TM_SITE_AT_EXIT] = few->bytes[TM_SITE_LIVE];
		few->counts &= ~(15u << 4 * TM_SITE_AT_EXIT);
		few->counts |= (few->counts >> 4 * TM_SITE_LIVE & 15) << 4 * TM_SITE_AT_EXIT;
	}
}

/* --- ahead of time --- */

void tm_sites_prefetch_slot(const struct tm_sites *s, uint32_t stack) {
	if (s->by_stack) __builtin_prefetch(&s->by_stack[stack]);
	else if (s->slots) __builtin_prefetch(&s->slots[first_slot(s, stack)]);
}

void tm_sites_prefetch_site(const struct tm_sites *s, uint32_t site) {
	const char *head = (const char *)&s->heads.items[site];
	__builtin_prefetch(head, 1);
	__builtin_prefetch(head + sizeof(struct tm_site_head) - 1, 1);
}

void tm_sites_prefetch_rest(const struct tm_sites *s, uint32_t site) {
	const struct tm_site_head *head = &s->heads.items[site];
	const char *few = (const char *)&s->few.items[head->more], *whole = (const char *)&s->wholes.items[head->more];
	if (head->tier == SITE_FEW) {
		__builtin_prefetch(few, 1);
		__builtin_prefetch(few + sizeof(struct tm_site_few) - 1, 1);
	} else if (head->tier == SITE_WHOLE) {
		for (size_t at = 0; at < sizeof(struct tm_site); at += 64) __builtin_prefetch(whole + at, 1);
	}
}
