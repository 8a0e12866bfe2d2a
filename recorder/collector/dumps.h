/* dumps.h - copies of the trace as it is now, while the program runs on.
 *
 * Flow:     an alert, a refusal of a device, a fatal signal, a request (signals.c) -> tm_dumps_ask() -> the group that is open is written, and marked
 *           -> encode.c -> tm_dumps_write()
 * File:     a whole, closed trace: OUTPUT without .tmk, ".dump" and the first free number, .tmk. A process of its own writes it under that name and .part, as
 *           the copy may take long, and the recording does not wait; it adds the names, and then the file gets its name; so a dump that is there is whole.
 * Bounded:  dumps that nobody asked for are made with --max-size=SIZE,ring only, and at most --dumps=N of them.
 * Stopped:  where nothing is recorded any more (--max-size=SIZE), who asks gets what there is.
 * Fails:    in shared memory for who asked, and with one line on standard error, at the next dump or the end where that process failed; the recording goes on.
 * Threads:  ask and turn are the drainer's, write the encoder's, wait the drainer's when the encoder has stopped.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_DUMPS_H
#define TIDEMARK_RECORDER_COLLECTOR_DUMPS_H

#include "writer.h"

#include <sys/types.h>

struct tm_collector;
struct tm_shm;

struct tm_dumps {
	char why[256]; /* a dump is wanted; empty: none is */
	unsigned asked_by_us;
	bool names, quiet; /* for the encoder */
	struct tm_shm *shm; /* where a failure is told */
	pid_t *writers;     /* processes that write dumps */
	size_t writer_count, writer_capacity;
};

/* Wants a dump. automatic: nobody asked for it. */
void tm_dumps_ask(struct tm_collector *c, const char *why, bool automatic);
/* Between two passes: hands over what is wanted. */
void tm_dumps_turn(struct tm_collector *c);
/* Everything that was buffered is in the file. */
void tm_dumps_write(struct tm_dumps *d, struct tm_writer *w, uint64_t events, uint64_t end_ns);
/* A dump that was wanted cannot be written: errno. */
void tm_dumps_fail(struct tm_dumps *d, const struct tm_writer *w, int error);
/* Until the last dump has its names. */
void tm_dumps_wait(struct tm_dumps *d, const struct tm_writer *w);

/* `tidemark-record dump`: asks the recorder of a process for one, from outside. Returns the exit status. */
int tm_dump_command(int argc, char **argv);

#endif
