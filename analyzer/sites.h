/* sites.h - the call sites of one heap: what each stack allocated, freed and has live.
 *
 * Flow:     accounts.c, churn.c (change one) -> here -> whoever reads them: site_rows.c, leaks.c, function_totals.c, ...
 * Idea:     a large program has nearly as many call sites as nodes in its stack tree, and most of them allocate once: of PyTorch's start seven in
 *           eight. All of a site's figures take 200 bytes; of one that allocated once they follow from one size, one time and some bits, and of one
 *           that allocated a few times they are small numbers. So a site has a head, and grows:
 *
 *               SITE_NONE    head        nothing so far                   44 bytes, its level among `levels`
 *               SITE_ONE     head        one block
 *               SITE_FEW     + few       at most 15 blocks                92 bytes
 *               SITE_WHOLE   + struct    anything                         244 bytes
 *
 *           To change one, open it, change the struct, close it: closing packs it again, or moves it up where it no longer fits. Packing loses nothing.
 * Lookup:   by stack: a hash while they are few among the stacks, else an item for each stack, which does not grow, and needs no sorting.
 * Owns:     all of it. A pointer to a whole site holds until the next one is made or closed.
 * Fails:    out of memory: says so, and the site is as it was.
 */
#ifndef TIDEMARK_ANALYZER_SITES_H
#define TIDEMARK_ANALYZER_SITES_H

#include "../schema/array.h"

struct tm_amount {
	uint64_t bytes, count;
};

static inline void tm_amount_add(struct tm_amount *a, struct tm_amount b) {
	a->bytes += b.bytes;
	a->count += b.count;
}

static inline void tm_amount_take(struct tm_amount *a, struct tm_amount b) {
	a->bytes -= b.bytes;
	a->count -= b.count;
}

enum tm_site_amount {
	TM_SITE_LIVE,
	TM_SITE_ALLOCATED,
	TM_SITE_TEMPORARY,
	TM_SITE_AT_PEAK,         /* holds if its level is still at peak_epoch, else live does */
	TM_SITE_AT_PROCESS_PEAK, /* likewise, process_peak_epoch */
	TM_SITE_AT_EXIT,         /* live when the process began to leave */
	TM_SITE_SHORT_LIVED,     /* churn.h */
	TM_SITE_REALLOCATED,
	TM_SITE_AMOUNTS
};

struct tm_site {
	uint32_t stack; /* row of the stack tree */
	uint32_t peak_epoch, process_peak_epoch;
	uint16_t longest_chain; /* this and what follows `amounts`: churn.h */
	bool knows_slack;
	uint64_t first_ns, last_ns; /* of its first and latest allocation */
	uint64_t splits;            /* parts of mappings that a cut added */
	struct tm_amount amounts[TM_SITE_AMOUNTS];
	uint64_t last_size_bytes, same_size; /* same_size: blocks of the size of the one before */
	uint64_t slack_bytes;                /* as a count: slack * blocks */
	double lifetimes;                    /* sum of lifetime * blocks, ns */
};

enum tm_site_tier { SITE_NONE, SITE_ONE, SITE_FEW, SITE_WHOLE };

#define TM_SITE_FIRST_NS_MAX (((uint64_t)1 << 53) - 1) /* what a head has room for ... */
#define TM_SITE_SIZE_MAX (((uint64_t)1 << 48) - 1)
#define TM_SITE_LAST_NS_MAX (((uint64_t)1 << 56) - 1) /* ... and what a few have */
#define TM_SITE_FEW_COUNT 15u /* of any amount: four bits, and beyond a site changes too often to be packed each time */

/* `has`: a bit for each amount that is not nothing; of SITE_ONE such an amount is its block. Of SITE_WHOLE only the stack and the tier count. */
struct tm_site_head {
	uint32_t stack, peak_epoch, process_peak_epoch;
	uint32_t more; /* index of the few or the whole; SITE_ONE: slack_bytes */
	uint64_t first_ns : 53, tier : 2, knows_slack : 1, has : TM_SITE_AMOUNTS;
	uint64_t last_size_bytes : 48, longest_chain : 16;
	double lifetimes;
};

/* `counts`: four bits for each amount. */
struct tm_site_few {
	uint64_t last_ns : 56, same_size : 8;
	uint32_t slack_bytes, counts;
	uint32_t bytes[TM_SITE_AMOUNTS];
};

/* Bytes in 32 bits: digits << exponent; exact up to 64 MiB, beyond to one part in 2^25. */
#define TM_LEVEL_DIGITS 26u
static inline uint32_t tm_site_level(uint64_t bytes) {
	unsigned digits = bytes ? 64 - (unsigned)__builtin_clzll(bytes) : 0,
		 exponent = digits > TM_LEVEL_DIGITS ? digits - TM_LEVEL_DIGITS : 0;
	return (uint32_t)(bytes >> exponent) | exponent << TM_LEVEL_DIGITS;
}
static inline uint64_t tm_site_level_bytes(uint32_t level) {
	return (uint64_t)(level & ((1u << TM_LEVEL_DIGITS) - 1)) << (level >> TM_LEVEL_DIGITS);
}

struct tm_site_slot {
	uint32_t stack, site; /* site: index + 1, 0 free */
};

struct tm_sites {
	TM_ARRAY(struct tm_site_head) heads;
	TM_ARRAY(uint32_t) levels; /* of each, for leak_watch.c, which looks at all of them: its live bytes as a tm_site_level */
	TM_ARRAY(struct tm_site_few) few;
	TM_ARRAY(struct tm_site) wholes;
	uint32_t free_few;          /* index + 1 of one whose site has outgrown it, its last_ns the next such; 0 none */
	struct tm_site_slot *slots; /* hash of stacks, while by_stack is NULL */
	size_t slot_mask;
	uint32_t *by_stack; /* index + 1, 0: no site */
	uint32_t stacks;    /* rows of the tree, 0 included; 0: not known, it grows */
};

void tm_sites_release(struct tm_sites *s);
uint32_t tm_sites_make(struct tm_sites *s, uint32_t stack); /* for tm_sites_take() */
/* Index of the stack's site, made if it is new; UINT32_MAX: out of memory. */
static inline uint32_t tm_sites_take(struct tm_sites *s, uint32_t stack) {
	return s->by_stack && s->by_stack[stack] ? s->by_stack[stack] - 1 : tm_sites_make(s, stack);
}
/* UINT32_MAX: there is none. */
uint32_t tm_sites_find(const struct tm_sites *s, uint32_t stack);
/* The indexes of all sites in the order of their stacks, to be freed; NULL: out of memory. */
uint32_t *tm_sites_by_stack(const struct tm_sites *s);

void tm_site_unpack(const struct tm_sites *s, uint32_t site, struct tm_site *room); /* for those below */
bool tm_site_pack(struct tm_sites *s, uint32_t site, const struct tm_site *changed);

/* The site as it is: in its place, or unpacked into `room`. What is changed counts when it is closed; false: out of memory. */
static inline struct tm_site *tm_site_open(struct tm_sites *s, uint32_t site, struct tm_site *room) {
	const struct tm_site_head *head = &s->heads.items[site];
	if (head->tier == SITE_WHOLE) return &s->wholes.items[head->more];
	tm_site_unpack(s, site, room);
	return room;
}
static inline bool tm_site_close(struct tm_sites *s, uint32_t site, const struct tm_site *changed) {
	s->levels.items[site] = tm_site_level(changed->amounts[TM_SITE_LIVE].bytes);
	return s->heads.items[site].tier == SITE_WHOLE || tm_site_pack(s, site, changed);
}
/* The same for whoever only reads. */
static inline const struct tm_site *tm_site_look(const struct tm_sites *s, uint32_t site, struct tm_site *room) {
	const struct tm_site_head *head = &s->heads.items[site];
	if (head->tier == SITE_WHOLE) return &s->wholes.items[head->more];
	tm_site_unpack(s, site, room);
	return room;
}
/* Most sites have nothing of it, or one block, which their heads say: whoever looks at all sites in turn is told quickly. */
static inline struct tm_amount tm_site_amount(const struct tm_sites *s, uint32_t site, enum tm_site_amount which) {
	const struct tm_site_head *head = &s->heads.items[site];
	if (head->tier == SITE_WHOLE) return s->wholes.items[head->more].amounts[which];
	if (!(head->has >> which & 1)) return (struct tm_amount){ 0, 0 };
	if (head->tier == SITE_ONE) return (struct tm_amount){ head->last_size_bytes, 1 };
	const struct tm_site_few *few = &s->few.items[head->more];
	return (struct tm_amount){ few->bytes[which], few->counts >> 4 * which & 15 };
}
uint64_t tm_site_last_ns(const struct tm_sites *s, uint32_t site);
/* What is live at all sites becomes what is live at exit. */
void tm_sites_exit(struct tm_sites *s);

struct tm_site_epochs {
	uint32_t peak, process_peak;
};
static inline struct tm_site_epochs tm_site_epochs(const struct tm_sites *s, uint32_t site) {
	const struct tm_site_head *head = &s->heads.items[site];
	if (head->tier != SITE_WHOLE) return (struct tm_site_epochs){ head->peak_epoch, head->process_peak_epoch };
	const struct tm_site *whole = &s->wholes.items[head->more];
	return (struct tm_site_epochs){ whole->peak_epoch, whole->process_peak_epoch };
}

/* Ask the memory for what the functions above will look at: the slot of a stack, the head of its site, and what is behind the head. */
void tm_sites_prefetch_slot(const struct tm_sites *s, uint32_t stack);
void tm_sites_prefetch_site(const struct tm_sites *s, uint32_t site);
void tm_sites_prefetch_rest(const struct tm_sites *s, uint32_t site);

#endif
