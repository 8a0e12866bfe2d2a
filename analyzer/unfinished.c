/* unfinished.c - removes an unfinished file when a signal ends us; see unfinished.h. */
#include "unfinished.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX ".tmp"

static const char *volatile unfinished_file;

/* Where process ids mean the same as here: a boot of a machine, and a namespace of it. Two have the same number by no chance that matters. */
static uint64_t machine_number(void) {
	char text[96] = "";
	struct stat namespace = { 0 };
	uint64_t hash = 14695981039346656037u; /* FNV-1a */
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
	if (!file || !fgets(text, 40, file) || stat("/proc/self/ns/pid", &namespace)) hash ^= (uint64_t)getpid();
	if (file) fclose(file);
	size_t n = strcspn(text, "\n");
	snprintf(text + n, sizeof text - n, " %llu", (unsigned long long)namespace.st_ino);
	for (const char *p = text; *p; p++) hash = (hash ^ (unsigned char)*p) * 1099511628211u;
	return hash;
}

/* The process that the rest of a name tells of, PID.tmp; 0: it tells of none. */
static long process_of(const char *rest) {
	char *end;
	long pid = isdigit((unsigned char)*rest) ? strtol(rest, &end, 10) : 0;
	return pid > 0 && pid <= INT32_MAX && strcmp(end, SUFFIX) == 0 ? pid : 0;
}

/* prefix: of such names, up to the process. */
static void remove_abandoned(const char *prefix) {
	const char *slash = strrchr(prefix, '/'), *start = slash ? slash + 1 : prefix;
	char *directory = slash ? strndup(prefix, (size_t)(start - prefix)) : strdup(".");
	DIR *list = directory ? opendir(directory) : NULL;
	size_t n = strlen(start);
	for (struct dirent *entry; list && (entry = readdir(list));) {
		long pid = strncmp(entry->d_name, start, n) == 0 ? process_of(entry->d_name + n) : 0;
		if (pid && (pid == getpid() || (kill((pid_t)pid, 0) && errno == ESRCH))) unlinkat(dirfd(list), entry->d_name, 0);
	}
	if (list) closedir(list);
	free(directory);
}

char *tm_unfinished_name(const char *path) {
	char *prefix, *name;
	if (asprintf(&prefix, "%s.%016llx.", path, (unsigned long long)machine_number()) < 0) return NULL;
	remove_abandoned(prefix);
	if (asprintf(&name, "%s%ld" SUFFIX, prefix, (long)getpid()) < 0) name = NULL;
	free(prefix);
	return name;
}

static void remove_unfinished(int number) {
	if (unfinished_file) unlink(unfinished_file);
	signal(number, SIG_DFL);
	raise(number);
}

void tm_unfinished_begin(const char *path) {
	static const int numbers[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU, SIGPIPE };
	unfinished_file = path;
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		struct sigaction now;
		if (sigaction(numbers[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL) signal(numbers[i], remove_unfinished);
	}
}

void tm_unfinished_end(void) {
	unfinished_file = NULL;
}
