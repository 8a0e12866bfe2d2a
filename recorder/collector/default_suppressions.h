/* default_suppressions.h - the list of known leaks that a program brings along for LeakSanitizer, read from its file.
 *
 * Flow:     module_table.c, for the executable of a process -> here -> a note in the trace -> analyzer/leaks.c
 * Idea:     a program says with `const char *__lsan_default_suppressions(void)` what it knows about. That function cannot be called from another
 *           process, but nearly all return a constant, which takes an instruction or three; these are read. Anything else is said to be there.
 * Threads:  any. Reads with pread, so a file that shrinks meanwhile harms nobody.
 * Fails:    no such file, no symbols, symbol tables above 256 MiB, out of memory: as if there were none.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_DEFAULT_SUPPRESSIONS_H
#define TIDEMARK_RECORDER_COLLECTOR_DEFAULT_SUPPRESSIONS_H

#include <stdbool.h>
#include <stdint.h>

#define TM_DEFAULT_SUPPRESSIONS_MAX 65536u

struct tm_default_suppressions {
	bool found; /* the program has the function */
	char *text; /* what it returns, to be freed; NULL: it cannot be read without calling it */
};

void tm_default_suppressions_read(const char *path, struct tm_default_suppressions *out);

/* The constant that a function returns, from its first bytes and the ELF virtual address of these: machine is EM_X86_64 or EM_AARCH64.
 * 0: it does something else. */
uint64_t tm_constant_result(unsigned machine, const uint8_t *code, unsigned size, uint64_t address);

#endif
