/* measured.c - runs a command and writes what it cost to a file: `measured FILE COMMAND [ARG...]`, for tests/bench/run.py.
 *
 * It stands between a recorder and the program, so that the program's own processor time and memory are known apart from the recorder's.
 * The file gets one line: user_s system_s peak_rss_KiB of the command and what it waited for. Exit status: the command's own, 128 + signal.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static double seconds(struct timeval t) {
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

int main(int argc, char **argv) {
	int status;
	struct rusage used;
	if (argc < 3) return fprintf(stderr, "usage: measured FILE COMMAND [ARG...]\n"), 2;
	pid_t child = vfork();
	if (child == 0) {
		execvp(argv[2], argv + 2);
		_exit(127);
	}
	if (child < 0 || wait4(child, &status, 0, &used) != child) return perror("measured"), 125;
	FILE *out = fopen(argv[1], "we");
	if (!out) return perror(argv[1]), 125;
	fprintf(out, "%.6f %.6f %ld\n", seconds(used.ru_utime), seconds(used.ru_stime), used.ru_maxrss);
	if (fclose(out)) return perror(argv[1]), 125;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
