/* names_reader.h - the child process that reads a module file, or several.
 *
 * Flow:     names.c forks, or names_ahead.c has started -> here -> symbols.c -> answers through a pipe -> names.c.
 * Owns:     its process. It inherits its job as memory of its parent and ends when that ends.
 * Bounded:  READER_CPU_SECONDS of processor time; the kernel ends it then.
 *
 * Messages, each with its length before it (v), of each file that was asked for: first the opening (v error, 0 or the positive number of a
 * tm_symbols_error; s remark), then, without an error, one answer for each offset, in order: v how many texts, those texts (s), which are numbered from 1
 * on through all answers of the file and come with the first that needs them, and for each function, innermost first, v name and v file, each the number of a
 * text or 0, v line. No function: nothing is known.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_NAMES_READER_H
#define TIDEMARK_RECORDER_COLLECTOR_NAMES_READER_H

#include <sys/types.h>

#include "recorder/collector/names.h"
#include "recorder/collector/symbols.h"

struct tm_names_job {
	const struct tm_names_input *in;
	const struct tm_names_module **modules; /* all of one file */
	size_t module_count;
	const uint64_t *offsets; /* ELF virtual addresses to name, each once, sorted */
	size_t offset_count;
	bool lines; /* false: symbols only */
	int fd;     /* where messages go */
};

/* The life of a reader that was started ahead (names_ahead.h): requests come from the socket, and go back to it as messages. Never returns. */
_Noreturn void tm_names_reader_serve(int fd);

/* `tidemark-record names-lookup`, which `tidemark top` starts: names addresses while a program runs, as they are asked for. A request and an answer
 * are each u32 bytes and so many bytes: s build-id, s path, v address in the file; then for each function, innermost first, s name, s file,
 * v line. Answers come in the order of the requests. Never returns. */
#define TM_LOOKUP_COMMAND "names-lookup"
#define TM_LOOKUP_REQUEST_MAX 16384u
#define TM_LOOKUP_FILES_MAX 256u
_Noreturn void tm_names_reader_look_up(int fd);

/* The life of the child. Never returns. */
_Noreturn void tm_names_reader_run(const struct tm_names_job *job, pid_t parent);

/* Ends a reader that is of no use any more. One that no signal ends, as it waits for a file system without an answer, is left to itself. */
void tm_names_reader_kill(pid_t reader);

#endif
