/* dumps.c - writes a copy of the trace beside it: see dumps.h. */
#include "dumps.h"

#include "collector.h"
#include "drain.h"
#include "memory.h"
#include "signals.h"
#include "tell.h"

#include "../shm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define COPY_BYTES ((size_t)1 << 20)
#define NUMBERS 100000u

/* --- wanting one --- */

void tm_dumps_ask(struct tm_collector *c, const char *why, bool automatic) {
	struct tm_dumps *d = &c->dumps;
	if (c->finishing || d->why[0]) return;
	if (automatic && (c->stopped || !c->options.ring_file || d->asked_by_us > c->options.dumps)) return;
	if (automatic && d->asked_by_us++ == c->options.dumps) {
		tm_group_add_note(c->group, 0, tm_timebase_ticks(&c->timebase), "dump", "no further dump is made by itself: --dumps");
		return;
	}
	snprintf(d->why, sizeof d->why, "%s", why);
}

void tm_dumps_turn(struct tm_collector *c) {
	char text[320];
	if (tm_signals_dump_asked()) {
		/* What was done until it was asked for belongs into it, and the last pass may have begun before. */
		if (!c->stopped) tm_drain_pass(c);
		tm_dumps_ask(c, "it was asked for", false);
	}
	if (!c->dumps.why[0]) return;
	snprintf(text, sizeof text, "a dump was begun here: %s", c->dumps.why);
	tm_group_add_note(c->group, 0, tm_timebase_ticks(&c->timebase), "dump", text);
	c->dumps.why[0] = 0;
	c->group->dump = true;
	tm_drain_close_group(c, true);
}

/* --- writing it --- */

/* Who asked waits for a file that will not come. */
static void tell_asker(struct tm_dumps *d, int error) {
	if (!d->shm) return;
	atomic_store(&d->shm->dump_error, (uint32_t)error);
	atomic_fetch_add(&d->shm->failed_dumps, 1);
}

void tm_dumps_fail(struct tm_dumps *d, const struct tm_writer *w, int error) {
	tell_asker(d, error);
	if (!d->quiet) tm_tell("cannot write a dump of '%s': %s", w->path, strerror(error));
}

/* The first name that is free, and its .part, which is made. Returns its descriptor or -1. */
static int make_part(const char *trace, char path[PATH_MAX], char part[PATH_MAX + 8]) {
	size_t n = strlen(trace);
	if (n > 4 && !strcmp(trace + n - 4, ".tmk")) n -= 4;
	for (unsigned i = 1; i < NUMBERS; i++) {
		int written = snprintf(path, PATH_MAX, "%.*s.dump%u.tmk", (int)n, trace, i);
		if (written < 0 || written >= PATH_MAX) {
			errno = ENAMETOOLONG;
			return -1;
		}
		snprintf(part, PATH_MAX + 8, "%s.part", path);
		if (access(path, F_OK) == 0) continue;
		int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0600);
		if (fd >= 0 || errno != EEXIST) return fd;
	}
	errno = EEXIST;
	return -1;
}

static bool write_all(int fd, const uint8_t *data, size_t n) {
	while (n) {
		ssize_t done = write(fd, data, n);
		if (done < 0 && errno == EINTR) continue;
		if (done <= 0) return false;
		data += done;
		n -= (size_t)done;
	}
	return true;
}

/* The file that is being written, whatever its name leads to by now. */
static bool copy_trace(int to, const struct tm_writer *w) {
	char link[64];
	snprintf(link, sizeof link, "/proc/self/fd/%d", w->fd);
	int from = open(link, O_RDONLY | O_CLOEXEC);
	uint8_t *data = tm_memory_new(COPY_BYTES, 1);
	uint64_t at = 0;
	bool done = from >= 0;
	while (done && at < w->bytes) {
		size_t wanted = w->bytes - at < COPY_BYTES ? (size_t)(w->bytes - at) : COPY_BYTES;
		ssize_t n = pread(from, data, wanted, (off_t)at);
		if (n < 0 && errno == EINTR) continue;
		if (n == 0) errno = EIO;
		done = n > 0 && write_all(to, data, (size_t)n);
		at += done ? (uint64_t)n : 0;
	}
	free(data);
	int error = errno;
	if (from >= 0) close(from);
	errno = error;
	return done;
}

static bool write_end(int to, const struct tm_writer *w, uint64_t events, uint64_t end_ns) {
	struct tm_packer packer;
	struct tm_bytes payload = TM_BYTES_INIT;
	tm_put_totals(&payload, &(struct tm_totals){ .events = events, .chunks = w->packer.sequence, .end_ns = end_ns });
	bool done = tm_packer_init(&packer, 1) == 0;
	packer.sequence = w->packer.sequence;
	done = done && !payload.failed && tm_pack(&packer, TM_CHUNK_END, payload.data, payload.size) == 0;
	if (!done) errno = ENOMEM;
	done = done && write_all(to, packer.out.data, packer.out.size);
	tm_packer_release(&packer);
	tm_bytes_release(&payload);
	return done;
}

/* A copy of us that was forked while other threads ran: system calls only. Named or not, the dump gets its name. */
static _Noreturn void name_it(struct tm_dumps *d, const char *part, const char *path, char **environment) {
	static char self[] = "/proc/self/exe", command[] = "names", quiet[] = "--quiet", name[] = "tidemark-record";
	char *arguments[] = { name, command, (char *)(uintptr_t)part, quiet, NULL };
	sigset_t none;
	sigemptyset(&none);
	syscall(SYS_close_range, 3u, ~0u, 0u);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGTSTP, SIG_IGN); /* the program may do so, too */
	pid_t pid = fork();
	if (pid == 0) {
		execve(self, arguments, environment);
		_exit(1);
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
	if (rename(part, path) == 0) _exit(0);
	tell_asker(d, errno);
	_exit(1);
}

static void reap(struct tm_dumps *d, int flags) {
	size_t kept = 0;
	for (size_t i = 0; i < d->namer_count; i++) {
		pid_t pid = d->namers[i], got;
		do got = waitpid(pid, NULL, flags);
		while (got < 0 && errno == EINTR);
		if (got == 0) d->namers[kept++] = pid;
	}
	d->namer_count = kept;
}

static bool give_name(struct tm_dumps *d, const char *part, const char *path) {
	char **environment = d->names ? tm_names_environment() : NULL;
	pid_t pid = d->names ? fork() : -1;
	if (pid == 0) name_it(d, part, path, environment);
	free(environment);
	if (pid < 0) return rename(part, path) == 0;
	d->namers = tm_memory_grow(d->namers, &d->namer_capacity, d->namer_count + 1, sizeof d->namers[0]);
	d->namers[d->namer_count++] = pid;
	return true;
}

void tm_dumps_write(struct tm_dumps *d, struct tm_writer *w, uint64_t events, uint64_t end_ns) {
	char path[PATH_MAX], part[PATH_MAX + 8];
	tm_writer_follow(w);
	int fd = make_part(w->path, path, part);
	bool done = fd >= 0 && copy_trace(fd, w) && write_end(fd, w, events, end_ns);
	int error = errno;
	if (fd >= 0 && close(fd) != 0 && done && errno != EINTR) {
		done = false;
		error = errno;
	}
	reap(d, WNOHANG);
	if (done && !give_name(d, part, path)) {
		done = false;
		error = errno;
	}
	if (done) return;
	if (fd >= 0) unlink(part);
	tm_dumps_fail(d, w, error);
}

void tm_dumps_wait(struct tm_dumps *d) {
	reap(d, 0);
	free(d->namers);
	d->namers = NULL;
	d->namer_count = d->namer_capacity = 0;
}
