/* test_bytes.c - the guest's functions on bytes and strings (recorder/guest/bytes.c) against loops that say what each means, at random places, sizes and
 * contents: strings end right before a page that cannot be read. */
#include "../../recorder/guest/bytes.c"
#include "check.h"

#include <stdbool.h>
#include <sys/mman.h>

#define ROUNDS 100000u
#define PAGE 4096u
#define LONGEST 80u
#define ROOM 300u

static unsigned state = 1;

static unsigned dice(unsigned sides) {
	state = state * 1103515245u + 12345u;
	return (state >> 16) % sides;
}

static int sign(int n) {
	return (n > 0) - (n < 0);
}

/* Of `most` bytes at most; of strings not behind their end. */
static int difference(const char *a, const char *b, size_t most, bool strings) {
	for (size_t i = 0; i < most; i++) {
		int d = (unsigned char)a[i] - (unsigned char)b[i];
		if (d || (strings && !a[i])) return d;
	}
	return 0;
}

static void strings(const char *a, const char *b, size_t n) {
	size_t most = dice(LONGEST + 10), i = 0;
	CHECK(strlen(a) == n && strnlen(a, most < n ? most : n + 1) == (most < n ? most : n));
	CHECK(sign(memcmp(a, b, n)) == sign(difference(a, b, n, false)) && sign(bcmp(a, b, n)) == sign(difference(a, b, n, false)));
	CHECK(sign(strcmp(a, b)) == sign(difference(a, b, n + 1, true)));
	CHECK(sign(strncmp(a, b, most)) == sign(difference(a, b, most < n + 1 ? most : n + 1, true)));
	char set[3] = { "abcd"[dice(4)], dice(2) ? 'b' : 0, 0 };
	const char *first = NULL, *last = NULL;
	for (i = 0; i < n; i++)
		if (a[i] == set[0]) last = a + i, first = first ? first : last;
	CHECK(strchr(a, set[0]) == first && strrchr(a, set[0]) == last && memchr(a, set[0], n) == first && strchr(a, 0) == a + n);
	for (i = 0; i < n && (a[i] == set[0] || (set[1] && a[i] == set[1]));) i++;
	CHECK(strspn(a, set) == i);
	for (i = 0; i < n && a[i] != set[0] && !(set[1] && a[i] == set[1]);) i++;
	CHECK(strcspn(a, set) == i);
	for (i = 0; i + 1 < n && (a[i] != set[0] || a[i + 1] != 'b');) i++;
	char pair[3] = { set[0], 'b', 0 };
	CHECK(strstr(a, pair) == (i + 1 < n ? a + i : NULL) && strstr(a, "") == a);
}

static void bytes(unsigned seed) {
	uint8_t got[ROOM], wanted[ROOM], before[ROOM], copy[ROOM] = { 0 };
	unsigned x = dice(100), y = dice(100), n = dice(2 * LONGEST), byte = dice(256);
	for (unsigned i = 0; i < ROOM; i++) got[i] = wanted[i] = before[i] = (uint8_t)(i * 7 + seed);
	for (unsigned i = 0; i < n; i++) wanted[x + i] = before[y + i];
	CHECK(memmove(got + x, got + y, n) == got + x && !difference((char *)got, (char *)wanted, ROOM, false));
	for (unsigned i = 0; i < n; i++) wanted[y + i] = (uint8_t)byte;
	CHECK(memset(got + y, (int)byte, n) == got + y && !difference((char *)got, (char *)wanted, ROOM, false));
	CHECK(memcpy(copy + x, got, n) == copy + x);
	for (unsigned i = 0; i < ROOM; i++) CHECK(copy[i] == (i >= x && i < x + n ? got[i - x] : 0));
}

int main(void) {
	char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), a_copy[LONGEST + 1];
	if (!CHECK(pages != MAP_FAILED && mprotect(pages + PAGE, PAGE, PROT_NONE) == 0)) return check_report("bytes");
	for (unsigned round = 0; round < ROUNDS; round++) {
		size_t n = dice(LONGEST);
		char *a = pages + PAGE - n - 1 - (dice(2) ? dice(40) : 0), *b = pages + dice(64);
		for (size_t i = 0; i < n; i++) a[i] = b[i] = (char)('a' + dice(3));
		a[n] = b[n] = 0;
		if (n && dice(2)) b[dice((unsigned)n)] = dice(2) ? 'b' : 0;
		strings(a, b, n);
		CHECK(strcpy(a_copy, a) == a_copy && !difference(a_copy, a, n + 1, true));
		bytes(round);
	}
	return check_report("bytes");
}
