/* dump_command.c - `tidemark-record dump --pid=PID`: asks a running recorder for a dump, and waits until it is there.
 *
 * The recorder of a recorded program is the process that has open what the program has mapped, the session's memory; the program's environment
 * may be another by now, and names no recorder that the program has started itself. Where nothing is mapped the environment tells. A recorder's
 * own pid will do as well. The recorder is asked by a signal, and what it writes is known by its name (dumps.h): the first one that is not there yet, nor
 * being written. That it cannot write one stands in the session's memory. Who asks holds a lock on that until the dump has its last name: two who ask at
 * once would wait for the same one.
 */
#include "dumps.h"
#include "signals.h"
#include "tell.h"

#include "../../schema/kinds.h"
#include "../shm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define NUMBERS 100000u
#define WAIT_MS 600000u
#define POLL_MS 10u

enum { DONE = 0, FAILED = 1, USAGE = 2 };

static const char help[] = "usage: tidemark-record dump --pid=PID [-o FILE]\n\n"
			   "Asks the recorder of process PID (a recorded process, or the recorder itself)\n"
			   "for a copy of its trace as it is now, while the program runs on. It stands\n"
			   "beside the trace, as NAME.dump1.tmk, .dump2 and so on, and its path is printed.\n\n"
			   "options:\n"
			   "      --pid=PID       the process\n"
			   "  -o, --output=FILE   give the dump this name (on the same file system); an\n"
			   "                      existing file is not overwritten\n"
			   "  -h, --help          show this\n\n"
			   "Exit status: 0 done, 1 failed, 2 usage.\n";

static int fail(long pid, const char *why) {
	tm_tell("cannot get a dump of process %ld: %s", pid, why);
	return FAILED;
}

static bool is_recorder(long pid) {
	char link[64], exe[PATH_MAX];
	snprintf(link, sizeof link, "/proc/%ld/exe", pid);
	ssize_t n = readlink(link, exe, sizeof exe - 1);
	exe[n > 0 ? n : 0] = 0;
	char *deleted = strstr(exe, " (deleted)"), *name;
	if (deleted) *deleted = 0;
	name = strrchr(exe, '/');
	return name && !strcmp(name, "/tidemark-record");
}

static bool has_open(long pid, dev_t device, ino_t inode) {
	char directory[64], link[PATH_MAX];
	struct stat file;
	bool found = false;
	snprintf(directory, sizeof directory, "/proc/%ld/fd", pid);
	DIR *d = opendir(directory);
	for (struct dirent *e; d && !found && (e = readdir(d));) {
		snprintf(link, sizeof link, "%s/%s", directory, e->d_name);
		found = stat(link, &file) == 0 && file.st_dev == device && file.st_ino == inode;
	}
	if (d) closedir(d);
	return found;
}

static long recorder_with(dev_t device, ino_t inode) {
	DIR *d = opendir("/proc");
	long found = 0;
	for (struct dirent *e; d && !found && (e = readdir(d));) {
		long pid = strtol(e->d_name, NULL, 10);
		if (pid > 0 && is_recorder(pid) && has_open(pid, device, inode)) found = pid;
	}
	if (d) closedir(d);
	return found;
}

/* The recorder whose memory is among the mappings that the file lists; 0: none. */
static long recorder_of_mappings(const char *maps) {
	char *line = NULL;
	size_t capacity = 0;
	long recorder = 0;
	FILE *f = fopen(maps, "re");
	while (f && !recorder && getline(&line, &capacity, f) > 0) {
		unsigned major_number, minor_number;
		unsigned long inode;
		if (!strstr(line, " rw-s ") || !strstr(line, TM_SESSION_NAME)) continue;
		if (sscanf(line, "%*s %*s %*s %x:%x %lu", &major_number, &minor_number, &inode) != 3) continue;
		recorder = recorder_with(makedev(major_number, minor_number), inode);
	}
	if (f) fclose(f);
	free(line);
	return recorder;
}

/* By any of its threads: where the first one has ended, /proc/PID shows no memory. */
static long recorder_of_memory(long pid) {
	char directory[64], maps[PATH_MAX];
	long recorder = 0;
	snprintf(directory, sizeof directory, "/proc/%ld/task", pid);
	DIR *d = opendir(directory);
	for (struct dirent *e; d && !recorder && (e = readdir(d));) {
		snprintf(maps, sizeof maps, "%s/%s/maps", directory, e->d_name);
		recorder = recorder_of_mappings(maps);
	}
	if (d) closedir(d);
	return recorder;
}

/* From TIDEMARK_SESSION=/proc/PID/fd/N in its environment; 0: not there. */
static long recorder_of_environment(long pid) {
	char path[64], *variable = NULL;
	size_t capacity = 0;
	long recorder = 0;
	snprintf(path, sizeof path, "/proc/%ld/environ", pid);
	FILE *f = fopen(path, "re");
	while (f && !recorder && getdelim(&variable, &capacity, 0, f) > 0)
		if (sscanf(variable, TM_SESSION_ENV "=/proc/%ld/", &recorder) != 1) recorder = 0;
	if (f) fclose(f);
	free(variable);
	return recorder && is_recorder(recorder) ? recorder : 0;
}

static long recorder_of(long pid) {
	long recorder = is_recorder(pid) ? pid : recorder_of_memory(pid);
	return recorder ? recorder : recorder_of_environment(pid);
}

/* A terminal or a pipe that the recorder has open is not looked into: what is read of it is gone for whom it was meant. */
static bool is_trace(const char *path) {
	char magic[sizeof TM_FILE_MAGIC] = "";
	struct stat file;
	if (stat(path, &file) != 0 || !S_ISREG(file.st_mode)) return false;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	bool is = fd >= 0 && read(fd, magic, sizeof magic - 1) == sizeof magic - 1 && !strcmp(magic, TM_FILE_MAGIC);
	if (fd >= 0) close(fd);
	return is;
}

static bool is_dump_on_its_way(const char *path) {
	const char *last = NULL;
	int n = 0;
	for (const char *at = path; (at = strstr(at, ".dump")); at++) last = at;
	return last && sscanf(last, ".dump%*u.tmk.part%n", &n) == 0 && n > 0 && !last[n];
}

/* A file that is about to take the trace's place has its name with the suffix .ring, or .ring2 and so on. */
static void leave_ring_off(char *path) {
	size_t n = strlen(path);
	while (n && path[n - 1] >= '0' && path[n - 1] <= '9') n--;
	if (n <= 5 || memcmp(path + n - 5, ".ring", 5) != 0) return;
	path[n - 5] = 0;
	if (!is_trace(path)) path[n - 5] = '.';
}

/* The trace that the recorder has open. */
static bool find_trace(long recorder, char trace[PATH_MAX]) {
	char directory[64], link[PATH_MAX];
	bool found = false;
	snprintf(directory, sizeof directory, "/proc/%ld/fd", recorder);
	DIR *d = opendir(directory);
	for (struct dirent *e; d && !found && (e = readdir(d));) {
		snprintf(link, sizeof link, "%s/%s", directory, e->d_name);
		ssize_t n = readlink(link, trace, PATH_MAX - 1);
		trace[n > 0 ? n : 0] = 0;
		leave_ring_off(trace);
		found = trace[0] == '/' && !is_dump_on_its_way(trace) && is_trace(trace);
	}
	if (d) closedir(d);
	return found;
}

static long parent_of(long pid) {
	char path[64], stat[512] = "";
	long parent = 0;
	snprintf(path, sizeof path, "/proc/%ld/stat", pid);
	FILE *f = fopen(path, "re");
	if (f && fread(stat, 1, sizeof stat - 1, f) > 0 && strrchr(stat, ')')) sscanf(strrchr(stat, ')'), ") %*c %ld", &parent);
	if (f) fclose(f);
	return parent;
}

static void next_dump(const char *trace, char path[PATH_MAX + 32]) {
	size_t n = strlen(trace);
	if (n > 4 && !strcmp(trace + n - 4, ".tmk")) n -= 4;
	for (unsigned i = 1; i < NUMBERS; i++) {
		char part[PATH_MAX + 40];
		snprintf(path, PATH_MAX + 32, "%.*s.dump%u.tmk", (int)n, trace, i);
		snprintf(part, sizeof part, "%s.part", path);
		if (access(part, F_OK) != 0 && access(path, F_OK) != 0) return;
	}
}

/* The session's memory, by its name, or -1. */
static int open_session(long recorder) {
	char directory[64], link[PATH_MAX], target[PATH_MAX];
	struct stat file;
	int found = -1;
	snprintf(directory, sizeof directory, "/proc/%ld/fd", recorder);
	DIR *d = opendir(directory);
	for (struct dirent *e; d && found < 0 && (e = readdir(d));) {
		uint64_t magic = 0;
		snprintf(link, sizeof link, "%s/%s", directory, e->d_name);
		ssize_t n = readlink(link, target, sizeof target - 1);
		target[n > 0 ? n : 0] = 0;
		if (!strstr(target, TM_SESSION_NAME) || stat(link, &file) != 0 || !S_ISREG(file.st_mode)) continue;
		found = open(link, O_RDONLY | O_CLOEXEC);
		if (found < 0 || (pread(found, &magic, sizeof magic, 0) == sizeof magic && magic == TM_SHM_MAGIC)) continue;
		close(found);
		found = -1;
	}
	if (d) closedir(d);
	return found;
}

/* How many dumps could not be written, and why the last one. What cannot be read tells of none. */
static uint32_t failed_dumps(int session, int *error) {
	struct tm_shm shm;
	if (session < 0 || pread(session, &shm, sizeof shm, 0) != sizeof shm) return 0;
	*error = (int)atomic_load(&shm.dump_error);
	return atomic_load(&shm.failed_dumps);
}

/* NULL: it is there. */
static const char *wait_for(const char *path, long recorder, int session, uint32_t failed_before) {
	const struct timespec nap = { 0, POLL_MS * 1000000l };
	int error = 0;
	for (unsigned ms = 0; access(path, F_OK) != 0; ms += POLL_MS) {
		/* One that has ended and is not waited for is none either. */
		bool ended = !is_recorder(recorder), failed = failed_dumps(session, &error) != failed_before;
		if ((ended || failed) && access(path, F_OK) == 0) return NULL;
		if (failed) return strerror(error);
		if (ended || ms > WAIT_MS) return "its recorder ended, or writes none";
		nanosleep(&nap, NULL);
	}
	return NULL;
}

/* Until nobody else waits for a dump. false: that takes too long. */
static bool wait_for_turn(long recorder, int session) {
	const struct timespec nap = { 0, POLL_MS * 1000000l };
	for (unsigned ms = 0; flock(session, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; ms += POLL_MS) {
		if (!is_recorder(recorder) || ms > WAIT_MS) return false;
		nanosleep(&nap, NULL);
	}
	return true;
}

static int ask_and_wait(long pid, long recorder, int session, const char *trace, const char *output) {
	char path[PATH_MAX + 32];
	int error;
	if (!wait_for_turn(recorder, session)) return fail(pid, "its recorder ended, or writes another one");
	if (output && access(output, F_OK) == 0) return fail(pid, "the output exists");
	next_dump(trace, path);
	uint32_t failed_before = failed_dumps(session, &error);
	if (kill((pid_t)recorder, TM_SIGNAL_DUMP) != 0) return fail(pid, strerror(errno));
	const char *failure = wait_for(path, recorder, session, failed_before);
	if (failure) return fail(pid, failure);
	if (output && rename(path, output) != 0) {
		char why[2 * PATH_MAX + 128];
		snprintf(why, sizeof why, "it cannot become '%s' (%s), and lies in '%s'", output, strerror(errno), path);
		return fail(pid, why);
	}
	printf("%s\n", output ? output : path);
	return DONE;
}

static int dump(long pid, long recorder, const char *output) {
	char trace[PATH_MAX];
	while (!find_trace(recorder, trace)) {
		/* Those that a recorder starts to help it have its name, and are found as easily. */
		recorder = parent_of(recorder);
		if (!is_recorder(recorder)) return fail(pid, "its recorder has no trace open that is a file");
	}
	int session = open_session(recorder), result = ask_and_wait(pid, recorder, session, trace, output);
	if (session >= 0) close(session);
	return result;
}

int tm_dump_command(int argc, char **argv) {
	static const struct option options[] = { { "pid", required_argument, NULL, 'p' },
						 { "output", required_argument, NULL, 'o' },
						 { "help", no_argument, NULL, 'h' },
						 { 0 } };
	const char *output = NULL;
	char *end = NULL;
	long pid = 0;
	opterr = 0;
	for (int letter; (letter = getopt_long(argc, argv, ":o:h", options, NULL)) >= 0;) {
		if (letter == 'p') pid = strtol(optarg, &end, 10);
		if (letter == 'o') output = optarg;
		if (letter == 'h') {
			fputs(help, stdout);
			return DONE;
		}
		if (letter == '?' || letter == ':') {
			tm_tell("dump: %s '%s' (see tidemark-record dump --help)",
				letter == ':' ? "option needs a value:" : "unknown option", argv[optind - 1]);
			return USAGE;
		}
	}
	if (pid <= 0 || !end || *end || optind < argc) {
		fputs("tidemark-record: dump needs --pid=PID and nothing else (see tidemark-record dump --help)\n", stderr);
		return USAGE;
	}
	long recorder = recorder_of(pid);
	return recorder ? dump(pid, recorder, output) : fail(pid, "it is not recorded, or does not run");
}
