/* test_cuda_blocks.c - the guest's table of the CUDA driver's blocks: what was put is found until it is taken, whatever else comes and goes.
 *
 * Method: random puts, finds, takes and counts on few keys of all kinds, next to each other and far apart, against an array that is searched from end to end.
 *         The guest's file is compiled in here, with the two things that it needs of the library.
 */
#include "recorder/guest/cuda_blocks.c"

#include "check.h"

#include <unistd.h>

struct tm_guest tm_guest;

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

int main(void) {
	test_against_a_list();
	return check_report("cuda_blocks");
}
