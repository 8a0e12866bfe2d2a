/* heritage.c - scheduling, limits, descriptors and the parent's death: see heritage.h. */
#include "heritage.h"

#include "memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
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

static void take_descriptors(void) {
	DIR *directory = opendir("/proc/self/fd");
	for (struct dirent *entry; directory && (entry = readdir(directory));) {
		int fd = atoi(entry->d_name);
		if (fd <= STDERR_FILENO || fd == dirfd(directory)) continue;
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

bool tm_heritage_has(int fd) {
	for (size_t i = 0; i < ours.fd_count; i++)
		if (ours.fds[i] == fd) return true;
	return fd >= STDIN_FILENO && fd <= STDERR_FILENO;
}

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
void tm_heritage_pass_on(void) {
	if (ours.is_subreaper || ours.pid == 1) prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (ours.death_signal) prctl(PR_SET_PDEATHSIG, ours.death_signal);
	if (ours.cpu.rlim_cur != RLIM_INFINITY || ours.cpu.rlim_max != RLIM_INFINITY) setrlimit(RLIMIT_CPU, &ours.cpu);
	pass_on_names();
	pass_on_schedule();
}

void tm_heritage_let_go(void) {
	int nothing = open("/", O_PATH | O_CLOEXEC); /* can be neither read nor written */
	for (size_t i = 0; i < ours.fd_count; i++) close(ours.fds[i]);
	if (nothing < 0) return;
	dup3(nothing, STDIN_FILENO, O_CLOEXEC);
	dup3(nothing, STDOUT_FILENO, O_CLOEXEC);
	close(nothing);
}

int tm_heritage_watch(const struct tm_session *session) {
	if (!ours.parent || getppid() == ours.parent) return 0;
	ours.parent = 0;
	return ours.death_signal ? 0 : (int)atomic_load(&session->shm->death_signal); /* that of ours reaches us, and is passed on */
}
