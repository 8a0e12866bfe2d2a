/* test_cuda_blocks.c - the guest's table of the CUDA driver's blocks: what was put is found until it is taken, whatever else comes and goes.
 *
 * Method: random puts, finds, takes and counts on few keys of all kinds, next to each other and far apart, against an array that is searched from end to end.
 *         Threads that each use keys of their own, while the table doubles. A lock that was held by the process that this
 *         one was forked from. Ends of contexts.
 *         The guest's file is compiled in here, with the three things that it needs of the library.
 */
#include "recorder/guest/cuda_blocks.c"

#include "check.h"

#include <pthread.h>
#include <unistd.h>

struct tm_guest tm_guest;
__thread struct tm_tls tm_tls;

long tm_syscall(long number, long a, long b, long c, long d, long e, long f) {
	return syscall(number, a, b, c, d, e, f);
}

#define KEYS 3000u
#define ROUNDS 400000u

static struct tm_cuda_block model[KEYS];

static uint64_t key_of(uint32_t i) {
	static const uint64_t strides[] = { 1, 512, 1ull << 21, 0x9E3779B97F4A7C15ull };
	return 0x7f0000000000 + i / 10 * strides[i % 4];
}

static enum tm_cuda_key kind_of(uint32_t i) {
	return (enum tm_cuda_key)(i % (uint32_t)TM_KEY_IPC + 1);
}

/* Another entry of the model with the same kind and key: the table has one for both. */
static bool is_first(uint32_t i) {
	for (uint32_t k = 0; k < i; k++)
		if (kind_of(k) == kind_of(i) && key_of(k) == key_of(i)) return false;
	return true;
}

static bool same(const struct tm_cuda_block *a, const struct tm_cuda_block *b) {
	return a->key == b->key && a->kind == b->kind && a->address == b->address && a->handles == b->handles && a->mappings == b->mappings;
}

static void test_against_a_list(void) {
	struct check_random r = check_random_start("cuda_blocks");
	struct tm_cuda_block out;
	uint32_t usable[KEYS], count = 0, live = 0;
	for (uint32_t i = 0; i < KEYS; i++)
		if (is_first(i)) usable[count++] = i;
	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint32_t i = usable[check_random_below(&r, count)];
		struct tm_cuda_block *m = &model[i];
		switch (check_random_below(&r, 4)) {
		case 0:
			live += !m->kind;
			*m = (struct tm_cuda_block){ .key = key_of(i), .kind = (uint8_t)kind_of(i), .address = round + 1, .handles = 1 + round % 2 };
			CHECK(tm_cuda_block_put(m));
			break;
		case 1:
			CHECK(tm_cuda_block_take(kind_of(i), key_of(i), &out) == (m->kind != 0));
			if (m->kind) CHECK(same(m, &out));
			live -= m->kind != 0;
			m->kind = 0;
			break;
		case 2:
			CHECK(tm_cuda_block_find(kind_of(i), key_of(i), &out) == (m->kind != 0));
			if (m->kind) CHECK(same(m, &out));
			break;
		default:
			CHECK(tm_cuda_block_add(kind_of(i), key_of(i), -1, 0, &out) == (m->kind != 0));
			if (!m->kind) break;
			m->handles--;
			CHECK(same(m, &out));
			if (m->handles || m->mappings) break;
			m->kind = 0;
			live--;
		}
		CHECK(used == live);
	}
}

#define THREADS 4u
#define OF_EACH 5000u

static void *use_own_keys(void *number) {
	uint64_t me = (uint64_t)(uintptr_t)number, wrong = 0;
	struct tm_cuda_block b = { .kind = TM_KEY_POINTER, .handles = 1 }, out;
	for (uint64_t i = 0; i < OF_EACH; i++) {
		b.key = me + THREADS * i;
		b.address = b.key + 1;
		wrong += !tm_cuda_block_put(&b);
		wrong += i >= 10 && (!tm_cuda_block_find(TM_KEY_POINTER, me + THREADS * (i - 10), &out) || out.address != out.key + 1);
	}
	for (uint64_t i = 0; i < OF_EACH; i++) wrong += !tm_cuda_block_take(TM_KEY_POINTER, me + THREADS * i, &out) || out.address != out.key + 1;
	return (void *)(uintptr_t)wrong;
}

static void test_threads(void) {
	pthread_t all[THREADS];
	uint64_t before = used;
	for (uint64_t i = 0; i < THREADS; i++) CHECK(pthread_create(&all[i], NULL, use_own_keys, (void *)(uintptr_t)(0x500000000000 + i)) == 0);
	for (unsigned i = 0; i < THREADS; i++) {
		void *wrong = NULL;
		pthread_join(all[i], &wrong);
		CHECK(wrong == NULL);
	}
	CHECK(used == before);
}

/* Of ten blocks four are of context 1, three of context 2, two of a device's own, one of none. */
static void test_ends_of_contexts(void) {
	static const uint64_t contexts[] = { 1, 1, 2, 3, 1, 2, 0, 3, 1, 2 };
	struct tm_cuda_block made = { .kind = TM_KEY_CONTEXT, .key = 2 }, out;
	uint64_t at = 0;
	unsigned of_one = 0, of_device = 0;
	for (uint64_t i = 0; i < 10; i++) {
		struct tm_cuda_block b = { .kind = TM_KEY_ARRAY, .key = 7000 + i, .context = contexts[i], .device = 5 };
		CHECK(tm_cuda_block_put(&b));
	}
	CHECK(tm_cuda_block_put(&made));
	while (tm_cuda_block_take_of(&at, 1, -1, &out)) of_one += out.context == 1;
	CHECK(of_one == 4);
	at = 0;
	while (tm_cuda_block_take_of(&at, 0, 5, &out)) of_device += out.context == 3;
	CHECK(of_device == 2);
	for (uint64_t i = 0; i < 10; i++) CHECK(tm_cuda_block_take(TM_KEY_ARRAY, 7000 + i, &out) == (contexts[i] == 2 || !contexts[i]));
	CHECK(tm_cuda_block_take(TM_KEY_CONTEXT, 2, &out));
}

/* While a context ends, another thread frees the second of four blocks that belong at one place: the fourth moves to where the walk has been. */
static void test_end_beside_others(void) {
	static const uint64_t contexts[] = { 1, 2, 1, 1 };
	struct tm_cuda_block blocks[4], out;
	uint64_t at = 0, key = 1, before = used;
	for (unsigned i = 0; i < 4; i++, key++) {
		while (first_place(TM_KEY_POINTER, key) != 7) key++;
		blocks[i] = (struct tm_cuda_block){ .kind = TM_KEY_POINTER, .key = key, .context = contexts[i] };
		CHECK(tm_cuda_block_put(&blocks[i]));
	}
	CHECK(tm_cuda_block_take_of(&at, 1, -1, &out) && same(&out, &blocks[0]));
	CHECK(tm_cuda_block_take_of(&at, 1, -1, &out) && same(&out, &blocks[2]));
	CHECK(tm_cuda_block_take(TM_KEY_POINTER, blocks[1].key, &out));
	CHECK(tm_cuda_block_take_of(&at, 1, -1, &out) && same(&out, &blocks[3]));
	CHECK(!tm_cuda_block_take_of(&at, 1, -1, &out) && used == before);
}

/* A thread of the parent held it at the fork, and is not in the child. What it was doing may be half done, so the child begins anew. */
static void test_lock_of_the_parent(void) {
	struct tm_cuda_block b = { .kind = TM_KEY_POINTER, .key = 99 }, out;
	CHECK(tm_cuda_block_put(&b));
	lock();
	tm_guest.pid++;
	alarm(60); /* it would wait for ever */
	CHECK(!tm_cuda_block_find(TM_KEY_POINTER, 99, &out));
	CHECK(used == 0 && tm_cuda_block_put(&b) && tm_cuda_block_take(TM_KEY_POINTER, 99, &out));
	alarm(0);
}

int main(void) {
	tm_guest.pid = 1;
	test_against_a_list();
	test_threads();
	test_ends_of_contexts();
	test_end_beside_others();
	test_lock_of_the_parent();
	return check_report("cuda_blocks");
}
