/* process_watch.c - whether a process lives: see process_watch.h. */
#include "process_watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILES_LEFT 40                                                                     /* descriptors that pidfds are not to take */
#define FIELDS_4_TO_19 " %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d" /* of /proc/PID/stat */

/* The lowest free number is given, so it says how many there are. */
int tm_pidfd_open(uint32_t pid) {
	struct rlimit most;
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0 || getrlimit(RLIMIT_NOFILE, &most) || (rlim_t)fd + FILES_LEFT < most.rlim_cur) return fd;
	close(fd);
	return -1;
}

bool tm_proc_says_dead(uint32_t pid, int *status) {
	char name[64], text[2048], state = 0;
	long threads = 0;
	*status = -1;
	snprintf(name, sizeof name, "/proc/%u/stat", pid);
	FILE *f = fopen(name, "re");
	if (!f) return errno == ENOENT || errno == ESRCH;
	size_t n = fread(text, 1, sizeof text - 1, f);
	fclose(f);
	text[n] = 0;
	char *p = strrchr(text, ')'); /* the name before it may hold anything */
	if (!p || sscanf(p + 1, " %c" FIELDS_4_TO_19 " %ld", &state, &threads) != 2) return false;
	if ((state != 'Z' && state != 'X') || threads > 1) return false;
	char *last = strrchr(text, ' '); /* exit_code is the last field */
	if (last && last[1] >= '0' && last[1] <= '9') *status = atoi(last + 1);
	return true;
}

/* PIDFD_GET_INFO of linux/pidfd.h, which older systems' headers lack. */
struct pidfd_info {
	uint64_t mask, cgroup;
	uint32_t ids[11]; /* of itself, its parent and its users */
	int32_t exit_code;
};
#define ASK_INFO _IOWR(0xff, 11, struct pidfd_info)
#define INFO_EXIT 8u

int tm_status_of_taken(int pidfd) {
	struct pidfd_info info = { .mask = INFO_EXIT };
	return ioctl(pidfd, ASK_INFO, &info) == 0 && info.mask & INFO_EXIT ? info.exit_code : -1;
}
