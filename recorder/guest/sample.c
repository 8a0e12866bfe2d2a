/* sample.c - which allocations are recorded when --sample=BYTES asks for some of them.
 *
 * Flow:   malloc_hooks.c -> here
 * Method: samples fall on the byte stream of a thread as a Poisson process with the given mean distance, so a block of s bytes is
 *         recorded with probability 1 - exp(-s / mean); the analyzer weights it by the inverse. The distance to the next sample is drawn from
 *         the exponential distribution, as in tcmalloc and Go's heap profilers.
 * Cost:   of an allocation or free that is no sample: a subtraction, or a look at one byte (sample.h), which are inlined into the hooks.
 * Frees:  only those of recorded blocks matter. Their addresses stand in buckets of one cache line, found by hash; a bucket that ever overflowed says so,
 *         and the search then goes on: to another level, each with more buckets than the one before it, and in the last to the next bucket. So a few
 *         samples, as most programs have, lie on one page, where every block that was sampled would else have a page of its own brought in.
 */
#include "sample.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#define SLOTS 7u
#define PROBES 64u

struct bucket {
	_Atomic uint64_t overflowed;
	_Atomic uintptr_t addr[SLOTS];
};

static const struct level {
	uint32_t from; /* how many buckets lie before it */
	uint32_t bits; /* 2^bits are in it */
} levels[] = { { 0, 6 }, { 1u << 6, 10 }, { (1u << 6) + (1u << 10), 17 } };
#define LAST (sizeof levels / sizeof levels[0] - 1)
#define BUCKETS ((1u << 6) + (1u << 10) + (1u << 17))

static struct bucket *_Atomic table;
_Atomic uint8_t tm_sample_pages[TM_SAMPLE_PAGES];

static struct bucket *the_table(void) {
	struct bucket *b = atomic_load_explicit(&table, memory_order_acquire);
	if (TM_LIKELY(b != NULL)) return b;
	if (tm_is_sandboxed()) return NULL;
	long memory = tm_syscall(SYS_mmap, 0, BUCKETS * sizeof *b, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory < 0) return NULL;
	struct bucket *expected = NULL;
	if (atomic_compare_exchange_strong(&table, &expected, (struct bucket *)memory)) return (struct bucket *)memory;
	tm_syscall(SYS_munmap, memory, BUCKETS * sizeof *b, 0, 0, 0, 0);
	return expected;
}

void tm_sample_prepare(void) {
	the_table();
}

/* Where an address is looked for the first time, the second, and so on. */
static struct bucket *bucket_of(struct bucket *b, uintptr_t addr, uint32_t probe) {
	const struct level *level = &levels[probe < LAST ? probe : LAST];
	uint64_t hash = ((uint64_t)addr >> 4) * 0x9E3779B97F4A7C15ull >> (64 - level->bits);

	if (probe > LAST) hash = (hash + probe - LAST) & ((1u << level->bits) - 1);
	return &b[level->from + hash];
}

/* A page's count stops at TM_SAMPLE_MANY: what it was is not known any more then. */
static void count_page(const void *addr, int change) {
	_Atomic uint8_t *page = tm_sample_page(addr);
	uint8_t n = atomic_load_explicit(page, memory_order_relaxed);
	while (n != TM_SAMPLE_MANY && !atomic_compare_exchange_weak(page, &n, (uint8_t)(n + change))) continue;
}

static bool put_down(uintptr_t addr) {
	struct bucket *all = the_table();
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

static bool strike_out(uintptr_t addr) {
	struct bucket *all = atomic_load_explicit(&table, memory_order_acquire);
	for (uint32_t probe = 0; all && probe < PROBES; probe++) {
		struct bucket *b = bucket_of(all, addr, probe);
		for (unsigned i = 0; i < SLOTS; i++) {
			if (atomic_load_explicit(&b->addr[i], memory_order_relaxed) != addr) continue;
			atomic_store_explicit(&b->addr[i], 0, memory_order_release);
			return true;
		}
		if (!atomic_load_explicit(&b->overflowed, memory_order_acquire)) return false;
	}
	return false;
}

bool tm_sample_remember(struct tm_thread *t, const void *addr, size_t size_bytes) {
	count_page(addr, 1);
	if (put_down((uintptr_t)addr)) return true;
	count_page(addr, -1);
	atomic_fetch_add(&t->ring->lost_events, 1);
	atomic_fetch_add(&t->ring->lost_bytes, size_bytes);
	return false;
}

void tm_sample_suspect(const void *from, size_t size_bytes) {
	for (size_t at = 0; at < size_bytes; at += TM_SHM_PAGE)
		atomic_store_explicit(tm_sample_page((const uint8_t *)from + at), TM_SAMPLE_MANY, memory_order_relaxed);
}

bool tm_sample_found(const void *addr) {
	if (!strike_out((uintptr_t)addr)) return false;
	count_page(addr, -1);
	return true;
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

void tm_sample_start(struct tm_thread *t) {
	if (!tm_guest.shm->sample_bytes) return;
	t->random = (tm_ticks() ^ ((uint64_t)t->number << 32) ^ ((uint64_t)tm_guest.pid << 17)) * 0x9E3779B97F4A7C15ull | 1;
	for (int i = 0; i < 4; i++) next_random(t);
	tm_tls.sample_spare = draw(t) - 1;
}

bool tm_sample_taken(struct tm_thread *t, const void *addr, size_t size_bytes) {
	tm_tls.sample_spare = draw(t) - 1; /* the process has no memory: the distance counts anew from this block's end */
	return !t->stopped && tm_sample_remember(t, addr, size_bytes);
}

void tm_sample_pass_over(void) {
	if (tm_tls.thread && tm_guest.shm->sample_bytes) tm_tls.sample_spare = draw(tm_tls.thread) - 1;
}
