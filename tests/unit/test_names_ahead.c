/* test_names_ahead.c - recorder/collector/names_ahead.c: what a reader says is taken soon after it was said, and not only when the next addresses are asked
 * for: its socket holds little, and it stands still while that is full. */
#include "../../recorder/collector/collector.h"
#include "../../recorder/collector/memory.h"
#include "../../recorder/collector/names_ahead.h"
#include "check.h"

#include <sys/socket.h>
#include <unistd.h>

#define TURNS 5u

/* In place of a reader, to be ended with the others: the test speaks for it. */
static pid_t start_nobody(void) {
	pid_t pid = fork();
	if (pid == 0) {
		alarm(60);
		pause();
		_exit(0);
	}
	if (pid < 0) abort();
	return pid;
}

int main(void) {
	static const char opening[] = { 2, 0, 0 }; /* a message of two bytes: no error, no remark */
	struct tm_collector *c = tm_memory_new(1, sizeof *c);
	struct tm_names_ahead *a = &c->ahead;
	struct tm_ahead_reader *r = &a->readers[a->reader_count++];
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) abort();
	c->options.embed_names = true;
	*r = (struct tm_ahead_reader){ .pid = start_nobody(), .stream = { .fd = ends[0] } };
	a->files = tm_memory_new(TURNS, sizeof a->files[0]);
	a->file_count = TURNS;
	for (uint32_t i = 0; i < TURNS; i++) CHECK(tm_names_early_ask(r, i, NULL, 0));
	tm_names_ahead_look(c); /* the next time that addresses are asked for is 50 ms from now */
	for (uint64_t i = 0; i < TURNS; i++) {
		CHECK(a->early.files_told == i);
		CHECK(write(ends[1], opening, sizeof opening) == sizeof opening);
		usleep(6000);
		tm_names_ahead_look(c);
	}
	CHECK(a->early.files_told == TURNS);
	close(ends[1]);
	tm_names_ahead_release(a);
	free(c);
	return check_report("names_ahead");
}
