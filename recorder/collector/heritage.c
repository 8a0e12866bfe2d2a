/* heritage.c - scheduling, limits, descriptors and the parent's death: see heritage.h. */
#include "heritage.h"

#include "memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* A command that is forked loses how we are scheduled where somebody asked for that (SCHED_RESET_ON_FORK), and would not, were it run without us. */
struct schedule {
	int policy, nice;
	struct sched_param parameters;
};

static struct {
	pid_t pid, parent;
	struct schedule schedule;
	struct rlimit cpu;
	int death_signal; /* when our parent dies; 0: none */
	int is_subreaper;
	int *fds;
	size_t fd_count, fd_capacity;
} ours = { .cpu = { RLIM_INFINITY, RLIM_INFINITY } };

/* What is closed by an exec is of a library that is preloaded into us, as an allocator's, and is there before main() is: its own, and not ours to close. */
static void take_descriptors(void) {
	DIR *directory = opendir("/proc/self/fd");
	for (struct dirent *entry; directory && (entry = readdir(directory));) {
		int fd = atoi(entry->d_name), flags = fcntl(fd, F_GETFD);
		if (fd <= STDERR_FILENO || fd == dirfd(directory) || flags < 0 || flags & FD_CLOEXEC) continue;
		ours.fds = tm_memory_grow(ours.fds, &ours.fd_capacity, ours.fd_count + 1, sizeof ours.fds[0]);
		ours.fds[ours.fd_count++] = fd;
	}
	if (directory) closedir(directory);
}

/* As far as we may: else we are killed with the whole of a job's events on our account where no process of it had come near the limit. */
static void lift_cpu_limit(void) {
	struct rlimit none = { RLIM_INFINITY, RLIM_INFINITY };
	if (getrlimit(RLIMIT_CPU, &ours.cpu) != 0 || (ours.cpu.rlim_cur == RLIM_INFINITY && ours.cpu.rlim_max == RLIM_INFINITY)) return;
	if (setrlimit(RLIMIT_CPU, &none) == 0) return;
	none.rlim_cur = none.rlim_max = ours.cpu.rlim_max;
	setrlimit(RLIMIT_CPU, &none);
}

void tm_heritage_take(void) {
	ours.pid = getpid();
	ours.parent = getppid();
	ours.schedule = (struct schedule){ .policy = sched_getscheduler(0), .nice = getpriority(PRIO_PROCESS, 0) };
	sched_getparam(0, &ours.schedule.parameters);
	prctl(PR_GET_PDEATHSIG, &ours.death_signal);
	prctl(PR_GET_CHILD_SUBREAPER, &ours.is_subreaper);
	take_descriptors();
	lift_cpu_limit();
}

static bool is_inherited(int fd) {
	for (size_t i = 0; i < ours.fd_count; i++)
		if (ours.fds[i] == fd) return true;
	return fd <= STDERR_FILENO;
}

static bool is_file(int fd, const struct stat *wanted) {
	struct stat file;
	return fstat(fd, &file) == 0 && file.st_dev == wanted->st_dev && file.st_ino == wanted->st_ino;
}

bool tm_heritage_is_our_own(const char *path) {
	struct stat file;
	bool found = false;
	DIR *directory = stat(path, &file) == 0 ? opendir("/proc/self/fd") : NULL;
	for (struct dirent *entry; directory && !found && (entry = readdir(directory));) {
		int fd = atoi(entry->d_name);
		found = !is_inherited(fd) && fd != dirfd(directory) && is_file(fd, &file);
	}
	if (directory) closedir(directory);
	return found;
}

/* Where it may not take it back it runs as a fork does. */
static void pass_on_schedule(void) {
	const struct schedule *s = &ours.schedule;
	if (s->policy < 0 || !(s->policy & SCHED_RESET_ON_FORK)) return;
	setpriority(PRIO_PROCESS, 0, s->nice);
	sched_setscheduler(0, s->policy, &s->parameters);
}

/* Those that say whom they are meant for: the process that was to become the program. */
static void pass_on_names(void) {
	static const char *const names[] = { "LISTEN_PID", "WATCHDOG_PID", "SYSTEMD_EXEC_PID" };
	char own[16];
	snprintf(own, sizeof own, "%d", (int)getpid());
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		const char *value = getenv(names[i]);
		if (value && atoi(value) == ours.pid) setenv(names[i], own, 1);
	}
}

/* The first process of a container, and whoever asked to be a subreaper, is given the orphans below it, and waits for them. We would not. */
void tm_heritage_pass_on(const struct tm_session *session) {
	if (ours.is_subreaper || ours.pid == 1) prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (ours.death_signal) prctl(PR_SET_PDEATHSIG, ours.death_signal);
	atomic_store(&session->shm->death_signal, (uint32_t)ours.death_signal);
	if (ours.cpu.rlim_cur != RLIM_INFINITY || ours.cpu.rlim_max != RLIM_INFINITY) setrlimit(RLIMIT_CPU, &ours.cpu);
	pass_on_names();
	pass_on_schedule();
}

/* Of any process: ours cannot be told from those of others that overlap with them. */
static bool has_record_locks(int fd) {
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static bool is_needed(int fd, int trace_fd) {
	struct stat trace;
	return has_record_locks(fd) || (fstat(trace_fd, &trace) == 0 && is_file(fd, &trace));
}

void tm_heritage_let_go(int trace_fd) {
	int nothing = open("/", O_PATH | O_CLOEXEC); /* can be neither read nor written */
	for (size_t i = 0; i < ours.fd_count; i++)
		if (!is_needed(ours.fds[i], trace_fd)) close(ours.fds[i]);
	for (int fd = STDIN_FILENO; nothing >= 0 && fd <= STDOUT_FILENO; fd++)
		if (!is_needed(fd, trace_fd)) dup3(nothing, fd, O_CLOEXEC);
	if (nothing >= 0) close(nothing);
	prctl(PR_SET_PDEATHSIG, SIGCHLD); /* ends our sleep */
}

/* What we start has it, too: no file of its takes that place. */
void tm_heritage_let_go_of_errors(int trace_fd) {
	int nothing = open("/", O_PATH | O_CLOEXEC);
	if (nothing >= 0 && !is_needed(STDERR_FILENO, trace_fd)) dup2(nothing, STDERR_FILENO);
	if (nothing >= 0) close(nothing);
}

int tm_heritage_watch(const struct tm_session *session) {
	if (!ours.parent || getppid() == ours.parent) return 0;
	ours.parent = 0;
	return (int)atomic_load(&session->shm->death_signal);
}
