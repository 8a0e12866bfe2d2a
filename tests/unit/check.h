/* check.h - what every unit test here shares: a check that counts and goes on, and random numbers with a seed that is printed.
 *
 * A test binary ends with `return check_report("name");`: its last line is `name: N passed, N failed`, its status 1 if any failed.
 * The seed is TM_TEST_SEED from the environment, else the time of day, so that a failure can be run again.
 */
#ifndef TIDEMARK_TESTS_UNIT_CHECK_H
#define TIDEMARK_TESTS_UNIT_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static unsigned long check_passed, check_failed;

#define CHECK(condition) check_one((condition) ? 1 : 0, #condition, __FILE__, __LINE__)

static inline int check_one(int ok, const char *text, const char *file, int line) {
	if (ok) check_passed++;
	else if (++check_failed <= 20) printf("%s:%d: failed: %s\n", file, line, text);
	return ok;
}

/* Compares bytes and shows both where they differ. */
#define CHECK_BYTES(actual, actual_size, expected, expected_size) \
	check_bytes((actual), (actual_size), (expected), (expected_size), __FILE__, __LINE__)

static inline void check_bytes(const void *actual, size_t actual_size, const void *expected, size_t expected_size, const char *file,
			       int line) {
	if (check_one(actual_size == expected_size && (!actual_size || !memcmp(actual, expected, actual_size)),
		      "the bytes are the expected ones", file, line))
		return;
	printf("  actual  ");
	for (size_t i = 0; i < actual_size && i < 400; i++) printf(" %02x", ((const uint8_t *)actual)[i]);
	printf("\n  expected");
	for (size_t i = 0; i < expected_size && i < 400; i++) printf(" %02x", ((const uint8_t *)expected)[i]);
	printf("\n");
}

static inline int check_report(const char *name) {
	printf("%s: %lu passed, %lu failed\n", name, check_passed, check_failed);
	return check_failed != 0;
}

struct check_random {
	uint64_t state;
};

static inline struct check_random check_random_start(const char *name) {
	const char *given = getenv("TM_TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
	printf("%s: TM_TEST_SEED=%llu\n", name, (unsigned long long)seed);
	return (struct check_random){ seed * 0x9E3779B97F4A7C15u + 1 };
}

/* splitmix64 */
static inline uint64_t check_random_next(struct check_random *r) {
	uint64_t z = r->state += 0x9E3779B97F4A7C15u;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return z ^ (z >> 31);
}

static inline uint64_t check_random_below(struct check_random *r, uint64_t n) {
	return check_random_next(r) % n;
}

/* A number whose length in bits is random, so that every varint length comes up. */
static inline uint64_t check_random_any(struct check_random *r) {
	return check_random_next(r) >> check_random_below(r, 64);
}

#endif
