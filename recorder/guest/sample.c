/* sample.c - which allocations are recorded when --sample=BYTES asks for some of them.
 *
 * Flow:   malloc_hooks.c -> here
 * Method: samples fall on the byte stream of a thread as a Poisson process with the given mean distance, so a block of s bytes is
 *         recorded with probability 1 - exp(-s / mean); the analyzer weights it by the inverse. The distance to the next sample is drawn from
 *         the exponential distribution, as in tcmalloc and Go's heap profilers.
 * Looks:  so that a request that is refused is told of also where it would be no sample, whatever asks for TM_SAMPLE_LOOK_BYTES or more takes the slow way in;
 *         and what asks for less does so once in as many bytes.
 * Cost:   of an allocation or free that is no sample: a subtraction, or a look at one byte (sample.h), which are inlined into the hooks; of a free beside a
 *         sample a look at a second byte. The first goes by pages, so that a program's frees read few lines of the cache; a page where much is freed may hold
 *         a sample for long, and only the second tells that block from the others.
 * Frees:  only those of recorded blocks matter. Their addresses stand in buckets of one cache line, found by hash; a bucket that ever overflowed says so,
 *         and the search then goes on: to another level, each with more buckets than the one before it, and in the last to the next bucket. So a few
 *         samples, as most programs have, lie on one page, where every block that was sampled would else have a page of its own brought in.
 */
#include "sample.h"
#include "attach.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#define SLOTS 7u
#define PROBES 64u

struct bucket { /* a line of the cache */
	_Alignas(TM_LINE_BYTES) _Atomic uint64_t overflowed;
	_Atomic uintptr_t addr[SLOTS];
};

static const struct level {
	uint32_t from; /* how many buckets lie before it */
	uint32_t bits; /* 2^bits are in it; in the last one as many as the table says */
} levels[] = { { 0, 6 }, { 1u << 6, 10 }, { (1u << 6) + (1u << 10), 0 } };
#define LAST (sizeof levels / sizeof levels[0] - 1)
#define LARGE_BITS 17u
#define SMALL_BITS 11u /* where memory is limited: some 21,000 samples in 0.2 MiB, not 900,000 in 8 */

struct table {
	uint32_t last_bits;
	struct bucket buckets[];
};

static struct table *_Atomic table;
TM_ROOMY _Atomic uint8_t tm_sample_pages[TM_SAMPLE_PAGES];
TM_ROOMY _Atomic uint8_t tm_sample_places[TM_SAMPLE_PLACES];

static size_t table_bytes(uint32_t last_bits) {
	return sizeof(struct table) + (levels[LAST].from + ((size_t)1 << last_bits)) * sizeof(struct bucket);
}

static struct table *the_table(void) {
	struct table *b = atomic_load_explicit(&table, memory_order_acquire), *expected = NULL;
	if (TM_LIKELY(b != NULL)) return b;
	if (tm_is_sandboxed()) return NULL;
	uint32_t bits = tm_has_room(table_bytes(LARGE_BITS)) && !tm_data_is_limited() ? LARGE_BITS : SMALL_BITS;
	long memory = tm_syscall(SYS_mmap, 0, (long)table_bytes(bits), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
				 -1, 0);
	if (memory < 0) return NULL;
	b = (struct table *)memory;
	b->last_bits = bits;
	if (atomic_compare_exchange_strong(&table, &expected, b)) return b;
	tm_syscall(SYS_munmap, memory, (long)table_bytes(bits), 0, 0, 0, 0);
	return expected;
}

void tm_sample_prepare(void) {
	the_table();
}

/* Where an address is looked for the first time, the second, and so on. */
static struct bucket *bucket_of(struct table *t, uintptr_t addr, uint32_t probe) {
	const struct level *level = &levels[probe < LAST ? probe : LAST];
	uint32_t bits = probe < LAST ? level->bits : t->last_bits;
	uint64_t hash = ((uint64_t)addr >> 4) * 0x9E3779B97F4A7C15ull >> (64 - bits);

	if (probe > LAST) hash = (hash + probe - LAST) & ((1u << bits) - 1);
	return &t->buckets[level->from + hash];
}

/* A count stops at TM_SAMPLE_MANY: what it was is not known any more then. */
static void change_count(_Atomic uint8_t *count, int change) {
	uint8_t n = atomic_load_explicit(count, memory_order_relaxed);
	while (n != TM_SAMPLE_MANY && !atomic_compare_exchange_weak(count, &n, (uint8_t)(n + change))) continue;
}

static void count_block(const void *addr, int change) {
	change_count(tm_sample_page(addr), change);
	change_count(tm_sample_place(addr), change);
}

static bool put_down(uintptr_t addr) {
	struct table *all = the_table();
	for (uint32_t probe = 0; all && probe < PROBES; probe++) {
		struct bucket *b = bucket_of(all, addr, probe);
		for (unsigned i = 0; i < SLOTS; i++) {
			uintptr_t empty = 0;
			if (atomic_load_explicit(&b->addr[i], memory_order_relaxed)) continue;
			if (atomic_compare_exchange_strong(&b->addr[i], &empty, addr)) return true;
		}
		atomic_store_explicit(&b->overflowed, 1, memory_order_release);
	}
	return false;
}

static _Atomic uintptr_t *slot_of(uintptr_t addr) {
	struct table *all = atomic_load_explicit(&table, memory_order_acquire);
	for (uint32_t probe = 0; all && probe < PROBES; probe++) {
		struct bucket *b = bucket_of(all, addr, probe);
		for (unsigned i = 0; i < SLOTS; i++)
			if (atomic_load_explicit(&b->addr[i], memory_order_relaxed) == addr) return &b->addr[i];
		if (!atomic_load_explicit(&b->overflowed, memory_order_acquire)) return NULL;
	}
	return NULL;
}

bool tm_sample_remember(struct tm_thread *t, const void *addr, size_t size_bytes) {
	static _Atomic bool noted;
	count_block(addr, 1);
	if (put_down((uintptr_t)addr)) return true;
	count_block(addr, -1);
	if (!atomic_exchange(&noted, true))
		tm_emit_note(t, "samples",
			     "a sampled block could not be remembered: more than the table holds were live, or there was no memory for it");
	atomic_fetch_add(&t->ring->lost_events, 1);
	atomic_fetch_add(&t->ring->lost_bytes, size_bytes);
	return false;
}

void tm_sample_suspect(const void *from, size_t size_bytes) {
	uintptr_t page = (uintptr_t)from & ~(uintptr_t)(TM_SHM_PAGE - 1), end = (uintptr_t)from + size_bytes;
	for (; page < end; page += TM_SHM_PAGE)
		atomic_store_explicit(tm_sample_page((const void *)page), TM_SAMPLE_MANY, memory_order_relaxed);
}

bool tm_sample_found(const void *addr) {
	_Atomic uintptr_t *slot = slot_of((uintptr_t)addr);
	if (!slot) return false;
	atomic_store_explicit(slot, 0, memory_order_release);
	count_block(addr, -1);
	return true;
}

bool tm_sample_stands(const void *addr) {
	return slot_of((uintptr_t)addr) != NULL;
}

static uint64_t next_random(struct tm_thread *t) { /* xorshift64* */
	uint64_t x = t->random;
	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	t->random = x;
	return x * 0x2545F4914F6CDD1Dull;
}

/* -ln(u) for u in (0, 1], without libm: u = m * 2^e with m in [1, 2), and ln(m) = 2 artanh((m-1)/(m+1)) by its series, which for these
 * arguments (at most 1/3) is exact to a double's last digits after 14 terms. */
static double minus_log(double u) {
	union {
		double d;
		uint64_t bits;
	} m = { u };
	int exponent = (int)(m.bits >> 52) - 1023;
	m.bits = (m.bits & 0xfffffffffffffull) | 1023ull << 52;
	double z = (m.d - 1) / (m.d + 1), square = z * z, term = z, sum = 0;
	for (int k = 1; k < 29; k += 2, term *= square) sum += term / k;
	return -(2 * sum + exponent * 0.69314718055994530942);
}

/* Bytes to the next sample; at least 1. */
static uint64_t draw(struct tm_thread *t) {
	double u = (double)((next_random(t) >> 11) + 1) * 0x1p-53; /* (0, 1] */
	double distance = minus_log(u) * (double)tm_guest.shm->sample_bytes;
	return distance < 0x1p62 ? (uint64_t)distance + 1 : 1ull << 62;
}

static void set_distance(uint64_t between_bytes) {
	tm_tls.sample_spare = between_bytes < TM_SAMPLE_LOOK_BYTES ? between_bytes : TM_SAMPLE_LOOK_BYTES;
	tm_tls.sample_rest = between_bytes - tm_tls.sample_spare;
	tm_tls.sample_is_drawn = true;
}

/* Where a child that clone() made, or a thread whose state was given back, comes to its next sample, the distance was drawn before: were it drawn anew, the
 * block that the sample fell on would be none. */
void tm_sample_start(struct tm_thread *t) {
	if (!tm_guest.shm->sample_bytes) return;
	t->random = (tm_ticks() ^ ((uint64_t)t->number << 32) ^ ((uint64_t)tm_guest.pid << 17)) * 0x9E3779B97F4A7C15ull | 1;
	for (int i = 0; i < 4; i++) next_random(t);
	t->has_anothers_distance = tm_tls.sample_is_drawn;
	if (!tm_tls.sample_is_drawn) set_distance(draw(t) - 1);
}

void tm_sample_start_child(void) {
	tm_tls.sample_is_drawn = false;
}

void tm_sample_lost(void) {
	if (tm_guest.shm->sample_bytes) tm_tls.sample_spare = tm_guest.shm->sample_bytes;
}

bool tm_sample_taken(struct tm_thread *t, const void *addr, size_t size_bytes) {
	uint64_t left = tm_tls.sample_spare + tm_tls.sample_rest, bytes = size_bytes | !size_bytes;
	if (bytes <= left && !t->has_anothers_distance) {
		set_distance(left - bytes);
		return false;
	}
	set_distance(draw(t) - 1); /* the process has no memory: the distance counts anew from this block's end, whatever it was */
	t->has_anothers_distance = false;
	return bytes > left && !t->stopped && tm_sample_remember(t, addr, size_bytes);
}

void tm_sample_pass_over(void) {
	if (tm_tls.thread && tm_guest.shm->sample_bytes) set_distance(draw(tm_tls.thread) - 1);
}
