/* test_default_suppressions.c - constants that functions return, from machine code as compilers write it, and from what they do not; and what is kept of
 * files: this program has such a list itself, and copies of it get others.
 */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#include "../../recorder/collector/default_suppressions.h"

static uint64_t x86(const char *code, unsigned n, uint64_t address) {
	return tm_constant_result(EM_X86_64, (const uint8_t *)code, n, address);
}

static uint64_t arm(const uint32_t *code, unsigned n, uint64_t address) {
	return tm_constant_result(EM_AARCH64, (const uint8_t *)code, n * 4, address);
}

#define X86(bytes, address) x86(bytes, sizeof(bytes) - 1, address)

/* lea's offset counts from the end of the instruction. */
static void x86_constants(void) {
	CHECK(X86("\x48\x8d\x05\x10\x00\x00\x00\xc3", 0x1000) == 0x1017);
	CHECK(X86("\xf3\x0f\x1e\xfa\x48\x8d\x05\xf0\xff\xff\xff\xc3", 0x1000) == 0xffb);
	CHECK(X86("\x55\x48\x89\xe5\x48\x8d\x05\x00\x01\x00\x00\x5d\xc3", 0x1000) == 0x110b);
	CHECK(X86("\xb8\x04\x20\x40\x00\xc3", 0x1000) == 0x402004);
	CHECK(X86("\x48\xc7\xc0\x04\x20\x40\x00\xc3", 0x1000) == 0x402004);
	CHECK(X86("\x48\xb8\x04\x20\x40\x00\x01\x00\x00\x00\xc3", 0x1000) == 0x100402004);
}

static void x86_others(void) {
	CHECK(X86("\x48\x8b\x05\x10\x00\x00\x00\xc3", 0x1000) == 0); /* what a variable holds */
	CHECK(X86("\xe8\x10\x00\x00\x00\xc3", 0x1000) == 0);         /* a call */
	CHECK(X86("\x48\x8d\x05\x10\x00\x00\x00", 0x1000) == 0);     /* no return */
	CHECK(X86("\x48\x8d\x05\x10\x00", 0x1000) == 0);             /* cut off */
	CHECK(X86("\xc3", 0x1000) == 0);
	CHECK(X86("", 0x1000) == 0);
}

/* bti c; adrp x0, one page on; add x0, x0, #0x123; ret. And with a frame, by adr, by another register, one page back. */
static void arm_constants(void) {
	const uint32_t pages[] = { 0xd503245f, 0xb0000000, 0x91048c00, 0xd65f03c0 }, near[] = { 0x10000100, 0xd65f03c0 };
	const uint32_t framed[] = { 0xa9bf7bfd, 0x910003fd, 0xb0000000, 0x91048c00, 0xa8c17bfd, 0xd65f03c0 };
	const uint32_t other[] = { 0xb0000008, 0x91048d00, 0xd65f03c0 }, back[] = { 0xf0ffffe0, 0x91048c00, 0xd65f03c0 };
	CHECK(arm(pages, 4, 0x5678) == 0x6123);
	CHECK(arm(near, 2, 0x5000) == 0x5020);
	CHECK(arm(framed, 6, 0x5678) == 0x6123);
	CHECK(arm(other, 3, 0x5678) == 0x6123);
	CHECK(arm(back, 3, 0x5678) == 0x4123);
	CHECK(arm(back, 3, 0x1678) == 0x123); /* page 0 of a small program that lies anywhere */
}

static void arm_others(void) {
	const uint32_t load[] = { 0xb0000000, 0xf9400000, 0xd65f03c0 }, unfinished[] = { 0xb0000000, 0x91048c00 },
		       odd[] = { 0x91048d00, 0xd65f03c0 };
	CHECK(arm(load, 3, 0x5678) == 0);
	CHECK(arm(unfinished, 2, 0x5678) == 0);
	CHECK(arm(odd, 2, 0x5678) == 0);
	CHECK(tm_constant_result(EM_386, (const uint8_t *)"\xc3", 1, 0) == 0);
}

/* --- files --- */

#define BEFORE_NUMBER "leak:^written_by_the_test_"

const char *__lsan_default_suppressions(void);
__attribute__((used, no_sanitize("thread"), no_sanitize("address"), no_sanitize("undefined"))) const char *__lsan_default_suppressions(void) {
	return BEFORE_NUMBER "0$";
}

static char *read_self(size_t *size) {
	FILE *file = fopen("/proc/self/exe", "rb");
	struct stat about;
	if (!file || fstat(fileno(file), &about) < 0) abort();
	char *bytes = malloc((size_t)about.st_size);
	*size = bytes ? fread(bytes, 1, (size_t)about.st_size, file) : 0;
	fclose(file);
	return bytes;
}

/* A copy of this program whose list has this number. */
static void write_copy(const char *path, char *bytes, size_t size, char number) {
	FILE *file = fopen(path, "wb");
	const size_t n = sizeof BEFORE_NUMBER - 1;
	for (char *at = bytes; (at = memmem(at, size - (size_t)(at - bytes), BEFORE_NUMBER, n)); at += n) at[n] = number;
	if (!file || fwrite(bytes, 1, size, file) != size) abort();
	fclose(file);
}

static bool says(const struct tm_default_suppressions *known, char number) {
	const size_t n = sizeof BEFORE_NUMBER - 1;
	return known->found && known->text && !strncmp(known->text, BEFORE_NUMBER, n) && known->text[n] == number;
}

static void let_settle(void) {
	nanosleep(&(struct timespec){ 0, 100000000 }, NULL);
}

/* `reads` counts the files that were read. */
static void files(void) {
	static struct tm_default_suppressions_table table;
	char text[] = "no program", folder[] = "/tmp/tidemark-test-XXXXXX", one[64], other[64], name[64];
	size_t size;
	char *bytes = read_self(&size);
	if (!mkdtemp(folder)) abort();
	snprintf(one, sizeof one, "%s/one", folder);
	snprintf(other, sizeof other, "%s/other", folder);
	write_copy(one, bytes, size, '1');
	write_copy(other, bytes, size, '2');
	let_settle();
	for (int i = 0; i < 3; i++) {
		CHECK(says(tm_default_suppressions_of(&table, one), '1'));
		CHECK(says(tm_default_suppressions_of(&table, other), '2'));
		CHECK(table.reads == 2);
	}
	write_copy(one, bytes, size, '3'); /* just now: it is not kept yet */
	CHECK(says(tm_default_suppressions_of(&table, one), '3'));
	write_copy(one, bytes, size, '4');
	CHECK(says(tm_default_suppressions_of(&table, one), '4'));
	CHECK(says(tm_default_suppressions_of(&table, other), '2'));
	let_settle();
	uint64_t before = table.reads;
	CHECK(says(tm_default_suppressions_of(&table, one), '4') && says(tm_default_suppressions_of(&table, one), '4'));
	CHECK(table.reads == before + 1);
	/* One that is asked for now and then stays while many others come and go. */
	for (unsigned i = 0; i < 2 * TM_DEFAULT_SUPPRESSIONS_KEPT; i++) {
		snprintf(name, sizeof name, "%s/%u", folder, i);
		write_copy(name, text, sizeof text, '0');
	}
	let_settle();
	for (unsigned i = 0; i < 2 * TM_DEFAULT_SUPPRESSIONS_KEPT; i++) {
		snprintf(name, sizeof name, "%s/%u", folder, i);
		CHECK(!tm_default_suppressions_of(&table, name)->found);
		if (i % 100 == 0) CHECK(says(tm_default_suppressions_of(&table, one), '4'));
		unlink(name);
	}
	CHECK(table.reads == before + 1 + 2 * TM_DEFAULT_SUPPRESSIONS_KEPT);
	CHECK(says(tm_default_suppressions_of(&table, other), '2'));
	CHECK(table.reads == before + 2 + 2 * TM_DEFAULT_SUPPRESSIONS_KEPT);
	CHECK(!tm_default_suppressions_of(&table, folder)->found);
	unlink(one);
	CHECK(!tm_default_suppressions_of(&table, one)->found);
	tm_default_suppressions_release(&table);
	unlink(other);
	rmdir(folder);
	free(bytes);
}

int main(void) {
	x86_constants();
	x86_others();
	arm_constants();
	arm_others();
	files();
	return check_report("default_suppressions");
}
