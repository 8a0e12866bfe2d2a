/* test_elf_imports.c - the slots of several imports found in one look (recorder/guest/elf_imports.c), in this program, and in a library, which exports
 * functions. What the loader put into a slot says whose it is: dlsym() is asked for the same. */
#define _GNU_SOURCE
#include "../../recorder/guest/elf_imports.c"
#include "../../recorder/guest/elf_symbols.c"
#include "check.h"

#include <dlfcn.h>
#include <unistd.h>

/* Functions of libc that have no other version and are none that choose among several at load time. */
static const char *const of_program[] = { "getpid", "getppid", "getuid", "geteuid", "getgid", "getegid", "getpgrp", "getpgid", "nice" };
static const char *const of_library[] = { "malloc", "free", "fgets", "fputs", "rewind", "strdup", "inet_ntop", "inet_pton" };
static const char *const of_none[] = { "getsid", "lcong48", "tm_there_is_no_such_function", "m", "getpi", "getpidd", "mallocs", "" };
/* As ld makes the hash table of a module that exports nothing: one bucket, and a first symbol of 1, whatever is imported. */
static const uint32_t empty_table[] = { 1, 1, 1, 0, 0, 0, 0 };
#define ALL(names) names, sizeof names / sizeof *names

/* So that they are imported, and, where the loader binds late, bound; of the last two just the address is taken. */
static bool use_all(void) {
	pid_t (*volatile group)(pid_t) = getpgid;
	int (*volatile be_nice)(int) = nice;
	return getpid() && getppid() + (long)getuid() + (long)geteuid() + (long)getgid() + (long)getegid() + getpgrp() && group && be_nice;
}

static const char *name_of(const char *const *there, size_t there_count, uint64_t random, bool *is_there) {
	*is_there = random & 1;
	return *is_there ? there[(random >> 1) % there_count] : of_none[(random >> 1) % (sizeof of_none / sizeof *of_none)];
}

/* One may be asked for twice: both are told. */
static void check_some(const struct tm_imports *imports, const char *const *there, size_t there_count, struct check_random *random) {
	const char *names[TM_IMPORTS_TOGETHER];
	bool is_there[TM_IMPORTS_TOGETHER];
	void **slots[TM_IMPORTS_TOGETHER];
	size_t count = 1 + check_random_next(random) % TM_IMPORTS_TOGETHER;
	for (size_t i = 0; i < count; i++) names[i] = name_of(there, there_count, check_random_next(random), &is_there[i]);
	memset(slots, 0xEE, sizeof slots);
	tm_import_slots(imports, names, count, slots);
	for (size_t i = 0; i < count; i++) {
		if (!CHECK(!!slots[i] == is_there[i])) printf("  name %zu of %zu: %s\n", i, count, names[i]);
		else if (is_there[i] && !CHECK(*slots[i] == dlsym(RTLD_DEFAULT, names[i])))
			printf("  name %zu of %zu: %s\n", i, count, names[i]);
		CHECK(tm_import_slot(imports, names[i]) == slots[i]);
	}
}

static void check_module(const struct tm_imports *imports, const char *const *there, size_t there_count, struct check_random *random) {
	for (unsigned i = 0; i < 2000; i++) check_some(imports, there, there_count, random);
}

static int take_first(struct dl_phdr_info *info, size_t size, void *first) {
	(void)size;
	*(struct dl_phdr_info *)first = *info;
	return 1;
}

int main(void) {
	struct check_random random = check_random_start("test_elf_imports");
	struct dl_phdr_info program;
	struct tm_imports imports;
	void *library = dlopen("libresolv.so.2", RTLD_NOW);
	CHECK(use_all());

	CHECK(dl_iterate_phdr(take_first, &program) == 1);
	if (CHECK(tm_imports_find(&imports, (const void *)program.dlpi_addr, program.dlpi_phdr, program.dlpi_phnum)))
		check_module(&imports, ALL(of_program), &random);
	imports.hash = empty_table;
	check_module(&imports, ALL(of_program), &random);

	if (CHECK(library) && CHECK(tm_imports_find(&imports, (const void *)((struct link_map *)library)->l_addr, NULL, 0)))
		check_module(&imports, ALL(of_library), &random);
	return check_report("test_elf_imports");
}
