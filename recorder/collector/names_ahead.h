/* names_ahead.h - module files that are opened, and addresses that are named, while the program still runs.
 *
 * Flow:     frames as they appear -> here -> readers (names_reader.c), on a socket each; at the end names.c takes their answers
 * Idea:     opening a file's symbols and debug information is most of what naming costs, and a recording has ended only when its names are
 *           written. So a file is given to a reader soon after its first frame was seen, and the C library as soon as the program has a
 *           few. Where a build-id says which file it is, its addresses are named while the program runs (names_early.h), and the end has only the last
 *           ones left. Of another file the reader learns what it will be asked, and answers at the end: until then it may be replaced. All this is a
 *           hint: a file without a living reader is read at the end, as if there had never been one.
 * Few:      one reader for two processors, for all files: a process has its beginning and its end, and however little it asks for, the scheduler gives
 *           each a turn that somebody else would have had. A file over which its reader dies takes with it what that has learned of others.
 * Owns:     the readers: processes of their own, forked and executed anew so that none holds our memory. They end with us. They give way to whatever
 *           else runs; names.c does not wait for one that gets no processor, and has its file read again.
 * Threads:  the drainer's, which never blocks here before the end: what does not fit a socket waits, and beyond a bound it is not said. At most one process
 *           is started at a look, as we stand still until that has got a processor and gone on to its own program.
 * Bounded:  TM_AHEAD_FILES_MAX files; after TM_AHEAD_NS the readers end: of a long recording the end is a small part, their memory is not.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_NAMES_AHEAD_H
#define TIDEMARK_RECORDER_COLLECTOR_NAMES_AHEAD_H

#include "recorder/collector/names.h"
#include "recorder/collector/names_early.h"
#include "recorder/collector/names_stream.h"
#include "schema/wire.h"

#include <sys/stat.h>
#include <sys/types.h>

#define TM_AHEAD_READERS_MAX 8u
#define TM_AHEAD_FILES_MAX 256u
#define TM_AHEAD_NS 60000000000ull
#define TM_AHEAD_COMMAND "names-reader" /* of tidemark-record; for its own use */

struct tm_collector;

/* Requests to a reader are words in the machine's own order, as both ends are one program: a kind, the number of a file, a count, and so many offsets in the
 * file. Files have numbers from 0 on in the order of their opening, which says when the file was loaded, in wall clock nanoseconds (v), its build-id and
 * its path, each with its length before it (v), in `count` bytes padded to a word. TELL is answered at once, each time by a turn of the stream
 * (names_stream.h) in which texts go on being numbered as in the file's turns before; ANSWER when all have been asked for, in that order, with texts
 * numbered anew. */
enum tm_ahead_request { TM_AHEAD_OPEN = 1, TM_AHEAD_LEARN = 2, TM_AHEAD_ANSWER = 3, TM_AHEAD_GO = 4, TM_AHEAD_TELL = 5 };
#define TM_AHEAD_HEAD_WORDS 3

struct tm_ahead_reader {
	pid_t pid;
	struct tm_names_stream stream; /* without a descriptor it has ended */
	struct tm_bytes out;           /* not sent yet */
	uint32_t file_count;
	uint64_t mapped_bytes; /* of its files' modules */
	struct tm_early_questions questions;
	bool late; /* names.c has had one of its files read by another, as it got no processor */
};

struct tm_ahead_file {
	char *path;
	uint8_t *build_id;
	size_t build_id_size; /* 0: there is none; the path tells who it is as long as the same file is there */
	uint32_t module;      /* then: the id of the one that it was opened for, with whose load it compared the file's time */
	struct stat file;     /* then */
	uint32_t reader, number; /* whose, and its number there */
	struct tm_early_question *asked; /* of the look that is going on */
	size_t asked_count, asked_capacity;
	struct tm_early_file early;
};

struct tm_names_ahead {
	struct tm_ahead_reader readers[TM_AHEAD_READERS_MAX];
	unsigned reader_count, reader_limit;
	bool has_started; /* one, at this look */
	struct tm_ahead_file *files;
	size_t file_count, file_capacity;
	uint32_t *of_module; /* by module id - 1: index of its file + 1, NO_FILE, or 0: not looked up yet */
	size_t module_count, module_capacity;
	size_t frames_seen, modules_seen;
	struct tm_names_early early;
	uint64_t begin_ns, next_ns, hear_ns;
};

/* Our environment without what would have a child of ours recorded; to be freed. */
char **tm_names_environment(void);
/* Takes what readers have told; now and then gives new files to them and asks for what is new. */
void tm_names_ahead_look(struct tm_collector *c);
/* What has been answered by now is named; nothing more is asked. */
void tm_names_ahead_last_look(struct tm_collector *c);
/* Ends all readers. */
void tm_names_ahead_release(struct tm_names_ahead *a);

/* The reader of the module's file, asked for these offsets: the answers are the turn *turn of its stream. NULL: there is none. The module is the first
 * of those with that file. *told: what is to be said of the file was said while the program ran. */
struct tm_ahead_reader *tm_names_ahead_ask(struct tm_names_ahead *a, const struct tm_names_module *m, const uint64_t *offsets, size_t n, size_t *turn,
					   bool *told);
/* All files have been asked for. */
void tm_names_ahead_go(struct tm_names_ahead *a);
/* Sends of `out` what the reader takes now. False: it does not listen any more. */
bool tm_names_ahead_send(struct tm_ahead_reader *r);

#endif
