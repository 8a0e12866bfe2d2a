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

static void tell_user(const struct tm_dumps *d, const struct tm_writer *w, int error) {
	if (!d->quiet) tm_tell("cannot write a dump of '%s': %s", w->path, strerror(error));
}

void tm_dumps_fail(struct tm_dumps *d, const struct tm_writer *w, int error) {
	tell_asker(d, error);
	tell_user(d, w, error);
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

/* Made ready before the process that writes it is forked. */
struct copy {
	int from, to;
	uint64_t bytes;       /* of the trace: it grows, and what is there already stays as it is */
	uint8_t *data;        /* COPY_BYTES of room */
	struct tm_packer end; /* its last chunk */
	char path[PATH_MAX], part[PATH_MAX + 8];
	char **environment; /* of who looks names up; NULL: nobody does */
};

/* The file that is being written, whatever its name leads to by now. */
static int open_again(const struct tm_writer *w) {
	char link[64];
	snprintf(link, sizeof link, "/proc/self/fd/%d", w->fd);
	return open(link, O_RDONLY | O_CLOEXEC);
}

static bool copy_trace(const struct copy *k) {
	uint64_t at = 0;
	while (at < k->bytes) {
		size_t wanted = k->bytes - at < COPY_BYTES ? (size_t)(k->bytes - at) : COPY_BYTES;
		ssize_t n = pread(k->from, k->data, wanted, (off_t)at);
		if (n < 0 && errno == EINTR) continue;
		if (n == 0) errno = EIO;
		if (n <= 0 || !write_all(k->to, k->data, (size_t)n)) return false;
		at += (uint64_t)n;
	}
	return write_all(k->to, k->end.out.data, k->end.out.size);
}

static bool pack_end(struct copy *k, const struct tm_writer *w, uint64_t events, uint64_t end_ns) {
	struct tm_bytes payload = TM_BYTES_INIT;
	tm_put_totals(&payload, &(struct tm_totals){ .events = events, .chunks = w->packer.sequence, .end_ns = end_ns });
	bool done = tm_packer_init(&k->end, 1) == 0;
	k->end.sequence = w->packer.sequence;
	done = done && !payload.failed && tm_pack(&k->end, TM_CHUNK_END, payload.data, payload.size) == 0;
	if (!done) errno = ENOMEM;
	tm_bytes_release(&payload);
	return done;
}

/* 0 or errno. */
static int write_part(const struct copy *k) {
	int error = copy_trace(k) ? 0 : errno;
	if (close(k->to) != 0 && !error && errno != EINTR) error = errno;
	return error;
}

/* --- in a process of its own: a copy of us that was forked while other threads ran, so system calls only --- */

/* Of us it keeps nothing else open, as locks and ends of pipes. */
static void keep_only(int a, int b) {
	unsigned low = (unsigned)(a < b ? a : b), high = (unsigned)(a < b ? b : a);
	if (low > 3) syscall(SYS_close_range, 3u, low - 1, 0u);
	if (high > low + 1) syscall(SYS_close_range, low + 1, high - 1, 0u);
	syscall(SYS_close_range, high + 1, ~0u, 0u);
}

/* Named or not, the dump gets its name. */
static void look_names_up(const struct copy *k) {
	static char self[] = "/proc/self/exe", command[] = "names", quiet[] = "--quiet", name[] = "tidemark-record";
	char *arguments[] = { name, command, (char *)(uintptr_t)k->part, quiet, NULL };
	sigset_t none;
	sigemptyset(&none);
	syscall(SYS_close_range, 3u, ~0u, 0u);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGTSTP, SIG_IGN); /* the program may do so, too */
	pid_t pid = fork();
	if (pid == 0) {
		execve(self, arguments, k->environment);
		_exit(1);
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
}

/* The exit status is errno. */
static _Noreturn void write_it(struct tm_dumps *d, const struct copy *k) {
	keep_only(k->from, k->to);
	int error = write_part(k);
	if (error) unlink(k->part);
	if (!error && k->environment) look_names_up(k);
	if (!error && rename(k->part, k->path) != 0) error = errno;
	if (error) tell_asker(d, error);
	_exit(error);
}

/* --- from here --- */

static void reap(struct tm_dumps *d, const struct tm_writer *w, int flags) {
	size_t kept = 0;
	for (size_t i = 0; i < d->writer_count; i++) {
		pid_t pid = d->writers[i], got;
		int status = 0;
		do got = waitpid(pid, &status, flags);
		while (got < 0 && errno == EINTR);
		if (got == 0) d->writers[kept++] = pid;
		if (got != pid) continue;
		if (WIFSIGNALED(status)) tm_dumps_fail(d, w, EINTR);
		else if (WEXITSTATUS(status)) tell_user(d, w, WEXITSTATUS(status));
	}
	d->writer_count = kept;
}

/* Where no process can be had it is written here, and has no names. 0 or errno. */
static int start_writing(struct tm_dumps *d, const struct copy *k) {
	pid_t pid = fork();
	if (pid == 0) write_it(d, k);
	if (pid > 0) {
		d->writers = tm_memory_grow(d->writers, &d->writer_capacity, d->writer_count + 1, sizeof d->writers[0]);
		d->writers[d->writer_count++] = pid;
		close(k->to);
		return 0;
	}
	int error = write_part(k);
	return error || rename(k->part, k->path) == 0 ? error : errno;
}

void tm_dumps_write(struct tm_dumps *d, struct tm_writer *w, uint64_t events, uint64_t end_ns) {
	struct copy *k = tm_memory_new(1, sizeof *k);
	tm_writer_follow(w);
	reap(d, w, WNOHANG);
	k->bytes = w->bytes;
	k->from = open_again(w);
	k->to = k->from >= 0 ? make_part(w->path, k->path, k->part) : -1;
	bool ready = k->to >= 0 && pack_end(k, w, events, end_ns);
	int error = ready ? 0 : errno;
	if (ready) {
		k->data = tm_memory_new(COPY_BYTES, 1);
		k->environment = d->names ? tm_names_environment() : NULL;
		error = start_writing(d, k);
	} else if (k->to >= 0) {
		close(k->to);
	}
	if (error && k->to >= 0) unlink(k->part);
	if (error) tm_dumps_fail(d, w, error);
	if (k->from >= 0) close(k->from);
	tm_packer_release(&k->end);
	free(k->environment);
	free(k->data);
	free(k);
}

void tm_dumps_wait(struct tm_dumps *d, const struct tm_writer *w) {
	reap(d, w, 0);
	free(d->writers);
	d->writers = NULL;
	d->writer_count = d->writer_capacity = 0;
}
