/* names_ahead.h - module files that are opened, and addresses that are named, while the program still runs.
 *
 * Flow:     frames as they appear -> here -> readers (names_reader.c), one a file, on a socket each; at the end names.c takes their answers
 * Idea:     opening a file's symbols and debug information is most of what naming costs, and a recording has ended only when its names are
 *           written. So a reader is started for a file soon after its first frame was seen, and for the C library as soon as the program has a
 *           few, learns what it will be asked, and answers at the end what it knows already. All this is a hint: a file without a living reader
 *           is read at the end, as if there had never been one.
 * Owns:     the readers: processes of their own, forked and executed anew so that none holds our memory. They end with us. They give way to whatever
 *           else runs; names.c does not wait for one that gets no processor, and has its file read again.
 * Threads:  the drainer's, which never blocks here before the end: what does not fit a socket waits, and beyond a bound it is not said. Processes are started
 *           by a thread, since whoever starts one stands still until it has got a processor and gone on to its own program: milliseconds, in which a
 *           buffer can become full. The thread stays as long as the readers, for whom the end of who started them is the end (PR_SET_PDEATHSIG).
 * Bounded:  TM_AHEAD_READERS_MAX files; after TM_AHEAD_NS the readers end: of a long recording the end is a small part, their memory is not.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_NAMES_AHEAD_H
#define TIDEMARK_RECORDER_COLLECTOR_NAMES_AHEAD_H

#include "recorder/collector/names.h"
#include "schema/wire.h"

#include <pthread.h>
#include <sys/stat.h>
#include <sys/types.h>

#define TM_AHEAD_READERS_MAX 64u
#define TM_AHEAD_NS 60000000000ull
#define TM_AHEAD_COMMAND "names-reader" /* of tidemark-record; for its own use */

struct tm_collector;

/* Requests to a reader are words in the machine's own order, as both ends are one program: a kind, a count, and so many offsets. The first message is the
 * opening: when it was loaded, in wall clock nanoseconds (v), build-id and path, each with its length before it (v), in `count` bytes padded to a word. */
enum tm_ahead_request { TM_AHEAD_OPEN = 1, TM_AHEAD_LEARN = 2, TM_AHEAD_ANSWER = 3 };

struct tm_ahead_reader {
	pid_t pid;    /* 0: not started yet; -1: it could not be */
	int fd;       /* -1: it has ended, or was taken */
	int other_fd; /* its end, until it is started */
	char *path;
	uint8_t *build_id;
	size_t build_id_size; /* 0: there is none; the path tells who it is as long as the same file is there */
	uint32_t module;      /* then: the id of the one that it was started for, with whose load it compared the file's time */
	struct stat file;     /* then */
	struct tm_bytes out; /* not sent yet */
	uint64_t *offsets;   /* of the look that is going on */
	size_t offset_count, offset_capacity;
};

struct tm_names_ahead {
	struct tm_ahead_reader *readers; /* under `lock`: where they lie, how many there are, and pid and other_fd of each */
	size_t count, capacity;
	size_t started;    /* those before have a process, or have none for good; under `lock` */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t starter; /* if starter_runs */
	bool starter_runs, ending;
	uint32_t *of_module; /* by module id - 1: index of its reader + 1, NOBODY, or 0: not looked up yet */
	size_t module_count, module_capacity;
	size_t frames_seen, modules_seen;
	pid_t *left; /* taken, and to be waited for here nevertheless */
	size_t left_count, left_capacity;
	uint64_t begin_ns, next_ns;
};

/* Our environment without what would have a child of ours recorded; to be freed. */
char **tm_names_environment(void);
/* Starts readers for new files and tells what is new; now and then. */
void tm_names_ahead_look(struct tm_collector *c);
/* One that was asked has given all its answers, and ends: its parent need not wait for that now. */
void tm_names_ahead_leave(struct tm_names_ahead *a, pid_t reader);
/* Ends all that were not taken, and those that were left. */
void tm_names_ahead_release(struct tm_names_ahead *a);

/* The reader of the module's file, asked for these offsets: its answers come from *fd as those of names_reader.h. -1: there is none. The module is the first
 * of those with that file. */
pid_t tm_names_ahead_ask(struct tm_names_ahead *a, const struct tm_names_module *m, const uint64_t *offsets, size_t n, int *fd);

#endif
