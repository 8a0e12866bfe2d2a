/* unfinished.c - removes an unfinished file when a signal ends us; see unfinished.h. */
#include "unfinished.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static const char *volatile unfinished_file;

static void remove_unfinished(int number) {
	if (unfinished_file) unlink(unfinished_file);
	signal(number, SIG_DFL);
	raise(number);
}

void tm_unfinished_begin(const char *path) {
	static const int numbers[] = { SIGHUP, SIGINT, SIGTERM };
	unfinished_file = path;
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		struct sigaction now;
		if (sigaction(numbers[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL) signal(numbers[i], remove_unfinished);
	}
}

void tm_unfinished_end(void) {
	unfinished_file = NULL;
}
