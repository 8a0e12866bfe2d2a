/* default_suppressions.h - the list of known leaks that a program brings along for LeakSanitizer, read from its file.
 *
 * Flow:     module_table.c, for the executable of a process -> here -> a note in the trace -> analyzer/leaks.c
 * Idea:     a program says with `const char *__lsan_default_suppressions(void)` what it knows about. That function cannot be called from another
 *           process, but nearly all return a constant, which takes an instruction or three; these are read. Anything else is said to be there.
 *           A build runs the same programs over and over: what files said is kept, and one is read again only if it has changed, or could not be read.
 * Owns:     what is kept, in a table of its caller's.
 * Threads:  any, one at a time for a table. Reads with pread, so a file that shrinks meanwhile harms nobody.
 * Fails:    no such file, no symbols, symbol tables above 256 MiB, out of memory: as if there were none.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_DEFAULT_SUPPRESSIONS_H
#define TIDEMARK_RECORDER_COLLECTOR_DEFAULT_SUPPRESSIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#define TM_DEFAULT_SUPPRESSIONS_MAX 65536u
#define TM_DEFAULT_SUPPRESSIONS_KEPT 128u /* files; another takes the place of the one that was asked for longest ago */

struct tm_default_suppressions {
	bool found; /* the program has the function */
	char *text; /* what it returns; NULL: it cannot be read without calling it */
};

struct tm_default_suppressions_table { /* all zero: empty */
	struct {
		struct stat file; /* as it was when it was read; st_ino 0: none was */
		uint64_t asked;   /* number of the call that asked for it last */
		struct tm_default_suppressions known;
	} kept[TM_DEFAULT_SUPPRESSIONS_KEPT];
	uint64_t calls, reads; /* so many asked, and so many files were read for them */
};

/* What the file says; valid until the next call. */
const struct tm_default_suppressions *tm_default_suppressions_of(struct tm_default_suppressions_table *t, const char *path);
void tm_default_suppressions_release(struct tm_default_suppressions_table *t);

/* The constant that a function returns, from its first bytes and the ELF virtual address of these: machine is EM_X86_64 or EM_AARCH64.
 * 0: it does something else. */
uint64_t tm_constant_result(unsigned machine, const uint8_t *code, unsigned size, uint64_t address);

#endif
