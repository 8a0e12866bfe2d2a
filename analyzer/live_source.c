/* live_source.c - which trace is being written, and by whom; see live_source.h. */
#include "live_source.h"

#include "reader.h"
#include "recorder_path.h"
#include "talk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define ANCESTORS_MAX 64
#define TRIES 20u
#define NAP_NS 2000000
#define ENVIRONMENT_MAX ((size_t)4 << 20) /* bytes; the kernel's own limit is about this */
#define SESSION "TIDEMARK_SESSION=/proc/"
#define RING ".ring"            /* and maybe a number ends the name of what a ring is being written to anew */
#define SESSION_NAME "tidemark" /* is in the name of the memory that recorder and process share */

void tm_live_source_of_file(struct tm_live_source *s, const char *path) {
	snprintf(s->path, sizeof s->path, "%s", path);
	snprintf(s->shown, sizeof s->shown, "%s", path);
}

/* Bytes of a file of /proc, ended by a 0; to be freed. NULL: it cannot be read. */
static char *read_proc(int pid, const char *name, size_t *size) {
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *text = fd < 0 ? NULL : malloc(ENVIRONMENT_MAX + 1);
	ssize_t got = 1;
	for (*size = 0; text && got > 0 && *size<ENVIRONMENT_MAX; *size += got> 0 ? (size_t)got : 0)
		got = read(fd, text + *size, ENVIRONMENT_MAX - *size);
	if (text) text[*size] = '\0';
	int saved = errno;
	if (fd >= 0) close(fd);
	errno = saved;
	if (got >= 0) return text;
	free(text);
	return NULL;
}

static bool is_recorder(int pid) {
	size_t size;
	char *name = read_proc(pid, "comm", &size);
	bool is = name && strncmp(name, TM_RECORDER, sizeof TM_RECORDER - 1) == 0;
	free(name);
	return is;
}

/* The recorder that the session variable names; 0: there is none. */
static int recorder_of_environment(int pid) {
	size_t size;
	char *text = read_proc(pid, "environ", &size);
	int recorder = 0;
	for (const char *p = text; p && p < text + size && !recorder; p += strlen(p) + 1)
		if (strncmp(p, SESSION, sizeof SESSION - 1) == 0) recorder = atoi(p + sizeof SESSION - 1);
	free(text);
	return recorder > 0 && is_recorder(recorder) ? recorder : 0;
}

static int parent_of(int pid) {
	size_t size;
	char *text = read_proc(pid, "stat", &size), *end = text ? strrchr(text, ')') : NULL;
	int parent = 0;
	if (!end || sscanf(end + 1, " %*c %d", &parent) != 1) parent = 0;
	free(text);
	return parent;
}

/* Calls visit for each open file of a process, until it says true. */
static bool each_file(int pid, bool (*visit)(const char *path, void *context), void *context) {
	char folder[64], path[64 + 256];
	snprintf(folder, sizeof folder, "/proc/%d/fd", pid);
	DIR *d = opendir(folder);
	bool found = false;
	for (const struct dirent *e; d && !found && (e = readdir(d));) {
		if (e->d_name[0] == '.') continue;
		snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
		found = visit(path, context);
	}
	if (d) closedir(d);
	return found;
}

static bool is_same_file(const char *path, void *context) {
	const struct stat *wanted = context;
	struct stat st;
	return stat(path, &st) == 0 && st.st_dev == wanted->st_dev && st.st_ino == wanted->st_ino;
}

/* The recorder that has that file open; 0: there is none. */
static int recorder_with(struct stat *wanted) {
	DIR *d = opendir("/proc");
	int found = 0;
	for (const struct dirent *e; d && !found && (e = readdir(d));) {
		int pid = atoi(e->d_name);
		if (pid > 0 && is_recorder(pid) && each_file(pid, is_same_file, wanted)) found = pid;
	}
	if (d) closedir(d);
	return found;
}

/* The recorder whose shared memory the process has mapped, as any of its threads shows it: the first one may have ended. */
static int recorder_of_memory(int pid) {
	char folder[64], path[64 + 256 + 8], *line = NULL;
	size_t capacity = 0;
	int recorder = 0;
	snprintf(folder, sizeof folder, "/proc/%d/task", pid);
	DIR *d = opendir(folder);
	for (const struct dirent *e; d && !recorder && (e = readdir(d));) {
		snprintf(path, sizeof path, "%s/%s/maps", folder, e->d_name);
		FILE *f = fopen(path, "re");
		while (f && !recorder && getline(&line, &capacity, f) > 0) {
			unsigned device[2];
			unsigned long inode;
			if (!strstr(line, " rw-s ") || !strstr(line, SESSION_NAME)) continue;
			if (sscanf(line, "%*s %*s %*s %x:%x %lu", &device[0], &device[1], &inode) != 3) continue;
			recorder = recorder_with(&(struct stat){ .st_dev = makedev(device[0], device[1]), .st_ino = inode });
		}
		if (f) fclose(f);
	}
	if (d) closedir(d);
	free(line);
	return recorder;
}

static int recorder_of(int pid) {
	int recorder = is_recorder(pid) ? pid : recorder_of_memory(pid);
	if (!recorder) recorder = recorder_of_environment(pid);
	for (int i = 0; i < ANCESTORS_MAX && !recorder && pid > 1; i++, pid = parent_of(pid))
		if (is_recorder(pid)) recorder = pid;
	return recorder;
}

/* What a ring is being written to anew is no trace yet: it lies beside the one that it will replace. */
static bool is_half_done(const char *path) {
	size_t n = strlen(path), suffix = sizeof RING - 1;
	char other[PATH_MAX];
	while (n && path[n - 1] >= '0' && path[n - 1] <= '9') n--;
	if (n <= suffix || n >= sizeof other || memcmp(path + n - suffix, RING, suffix) != 0) return false;
	snprintf(other, sizeof other, "%.*s", (int)(n - suffix), path);
	return access(other, F_OK) == 0;
}

static bool take_trace(const char *path, void *context) {
	struct tm_live_source *s = context;
	char shown[PATH_MAX];
	if (tm_reader_recognise(path) != 1) return false;
	ssize_t n = readlink(path, shown, sizeof shown - 1);
	shown[n > 0 ? n : 0] = '\0';
	if (is_half_done(shown)) return false;
	snprintf(s->path, sizeof s->path, "%s", path);
	memcpy(s->shown, shown, sizeof s->shown);
	return true;
}

/* A ring closes one file and opens another all the time: what was seen among its files may be gone when it is opened. */
static bool find_trace(struct tm_live_source *s, int recorder) {
	const struct timespec nap = { 0, NAP_NS };
	for (unsigned i = 0; i < TRIES; i++) {
		if (each_file(recorder, take_trace, s)) return true;
		nanosleep(&nap, NULL);
	}
	return false;
}

int tm_live_source_of_process(struct tm_live_source *s, int pid) {
	char path[64];
	snprintf(path, sizeof path, "/proc/%d", pid);
	s->pid = pid;
	if (access(path, F_OK) != 0) return tm_fail("cannot follow process %d: there is no such process", pid);
	int recorder = recorder_of(pid);
	if (!recorder) return tm_fail("cannot follow process %d: no recording that it belongs to can be seen", pid);
	if (find_trace(s, recorder)) return 0;
	return tm_fail("cannot follow process %d: the trace of its recorder, process %d, cannot be opened", pid, recorder);
}

/* A recorder holds its trace's lock as long as it can write it, and any user sees that, and any host. Where the file system has no locks, /proc tells. */
bool tm_live_source_is_written(int fd) {
	struct stat wanted;
	if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
		flock(fd, LOCK_UN);
		return false;
	}
	if (errno == EWOULDBLOCK) return true;
	return fstat(fd, &wanted) == 0 && recorder_with(&wanted) != 0;
}

void tm_live_source_look_again(struct tm_live_source *s) {
	int recorder = s->pid ? recorder_of(s->pid) : 0;
	if (s->pid && !(recorder && find_trace(s, recorder))) snprintf(s->path, sizeof s->path, "%s", s->shown);
}

bool tm_live_source_is_replaced(struct tm_live_source *s, int fd) {
	struct stat old, now;
	tm_live_source_look_again(s);
	return fstat(fd, &old) == 0 && stat(s->path, &now) == 0 && (old.st_dev != now.st_dev || old.st_ino != now.st_ino);
}
