/* launch.c - fork, environment, exec: see launch.h.
 *
 * The child is forked early and waits on a pipe, so that the trace can bear its pid and so that nothing is run when the trace cannot be
 * made. What exec says comes back through a pipe that a successful exec closes.
 */
#include "launch.h"

#include "../sanitizer.h"
#include "executable.h"
#include "heritage.h"
#include "memory.h"
#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIBRARY "libtidemark.so"

/* lib beside our bin, or our own directory. Without "..", for which realpath() makes a call that old filters of containers refuse. */
static int find_library(char *path, char *error, size_t error_bytes) {
	char self[PATH_MAX], candidates[2][PATH_MAX + sizeof "/lib/" LIBRARY];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	if (n <= 0) {
		snprintf(error, error_bytes, "cannot find " LIBRARY ": /proc/self/exe: %s", strerror(errno));
		return -1;
	}
	self[n] = 0;
	char *slash = strrchr(self, '/');
	if (slash) *slash = 0;
	const char *bin = strrchr(self, '/');
	snprintf(candidates[0], sizeof candidates[0], "%.*s/lib/" LIBRARY, (int)(bin ? bin - self : 0), self);
	snprintf(candidates[1], sizeof candidates[1], "%s/" LIBRARY, self);
	for (size_t i = 0; i < 2; i++) {
		if (!realpath(candidates[i], path)) continue;
		if (!strpbrk(path, " :$")) return 0;
		snprintf(error, error_bytes, "cannot preload '%s': the loader takes no path with a blank, a colon or a $", path);
		return -1;
	}
	snprintf(error, error_bytes, "cannot find '%s' or '%s': %s", candidates[0], candidates[1], strerror(errno));
	return -1;
}

/* By its name, wherever it lies: of two copies each would count every call. */
static bool is_ours(const char *entry, size_t bytes) {
	size_t n = strlen(LIBRARY);
	return bytes >= n && !memcmp(entry + bytes - n, LIBRARY, n) && (bytes == n || entry[bytes - n - 1] == '/');
}

/* Ours first, then what the user preloads; never twice. */
static void set_preload(const char *library) {
	const char *old = getenv("LD_PRELOAD");
	size_t bytes = strlen(library) + (old ? strlen(old) : 0) + 2;
	char *value = tm_memory_new(bytes, 1);
	strcpy(value, library);
	for (const char *p = old; p && *p;) {
		p += strspn(p, " :");
		size_t n = strcspn(p, " :");
		if (n && !is_ours(p, n)) {
			strcat(value, ":");
			strncat(value, p, n);
		}
		p += n;
	}
	setenv("LD_PRELOAD", value, 1);
	free(value);
}

/* It bears no library before it, in the command or in what that starts. */
static bool preloads_sanitizer(void) {
	const char *list = getenv("LD_PRELOAD");
	return list && tm_preloads_sanitizer(list);
}

static _Noreturn void be_command(const struct tm_session *session, char **command, int go_fd, int error_fd) {
	sigset_t early;
	ssize_t n;
	do n = read(go_fd, &early, sizeof early);
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof early) _exit(0);
	session->shm->root_pid = (uint32_t)getpid();
	tm_signals_raise_early(&early);
	tm_signals_restore();
	tm_heritage_pass_on(session);
	execvp(command[0], command);
	int error = errno;
	n = write(error_fd, &error, sizeof error);
	_exit(n == (ssize_t)sizeof error ? 127 : 126);
}

int tm_launch_prepare(struct tm_launch *l, const struct tm_session *session, char **command, char *error, size_t error_bytes) {
	char library[PATH_MAX];
	int go[2] = { -1, -1 }, errors[2] = { -1, -1 };
	struct tm_executable file;
	*l = (struct tm_launch){ .pid = -1, .go_fd = -1, .error_fd = -1 };
	if (find_library(library, error, error_bytes) != 0) return -1;
	if (tm_executable_find(command[0], l->path, sizeof l->path) != 0) {
		l->find_error = errno;
		l->path[0] = 0;
	}
	tm_executable_read_command(l->path, &file);
	l->class = file.class;
	if (preloads_sanitizer()) l->class = file.class == TM_EXEC_NATIVE || file.class == TM_EXEC_UNKNOWN ? TM_EXEC_SANITIZED : file.class;
	else if (!tm_exec_bears_no_preload(file.class)) set_preload(library);
	setenv(TM_SESSION_ENV, session->path, 1);
	if (pipe2(go, O_CLOEXEC) != 0 || pipe2(errors, O_CLOEXEC) != 0 || (l->pid = fork()) < 0) {
		snprintf(error, error_bytes, "cannot start a process: %s", strerror(errno));
		for (int i = 0; i < 2; i++) {
			if (go[i] >= 0) close(go[i]);
			if (errors[i] >= 0) close(errors[i]);
		}
		return -1;
	}
	if (l->pid == 0) {
		close(go[1]);
		close(errors[0]);
		be_command(session, command, go[0], errors[1]);
	}
	close(go[0]);
	close(errors[1]);
	l->go_fd = go[1];
	l->error_fd = errors[0];
	return 0;
}

int tm_launch_go(struct tm_launch *l, const sigset_t *early) {
	int error = 0;
	ssize_t n = write(l->go_fd, early, sizeof *early);
	close(l->go_fd);
	l->go_fd = -1;
	do n = read(l->error_fd, &error, sizeof error);
	while (n < 0 && errno == EINTR);
	close(l->error_fd);
	l->error_fd = -1;
	if (n != (ssize_t)sizeof error) return 0;
	waitpid(l->pid, NULL, 0);
	return error;
}

void tm_launch_cancel(struct tm_launch *l) {
	if (l->go_fd >= 0) close(l->go_fd);
	if (l->error_fd >= 0) close(l->error_fd);
	if (l->pid > 0) waitpid(l->pid, NULL, 0);
	l->pid = l->go_fd = l->error_fd = -1;
}
