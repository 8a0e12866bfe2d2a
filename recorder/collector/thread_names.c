/* thread_names.c - see thread_names.h. */
#include "thread_names.h"

#include "kernel_file.h"
#include "memory.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void read_one(struct tm_thread_names *names, const char *directory, const char *tid, uint32_t process) {
	char path[400];
	struct tm_thread_name_read read = { .process = process, .tid = (uint32_t)strtoul(tid, NULL, 10) };
	snprintf(path, sizeof path, "%s/%s/comm", directory, tid);
	size_t n = tm_kernel_file(path, read.name, sizeof read.name);
	if (n && read.name[n - 1] == '\n') read.name[n - 1] = 0;
	if (!*read.name) return;
	names->all = tm_memory_grow(names->all, &names->capacity, names->count + 1, sizeof names->all[0]);
	names->all[names->count++] = read;
}

void tm_thread_names_read(struct tm_thread_names *names, uint32_t pid, uint32_t process) {
	char directory[64];
	snprintf(directory, sizeof directory, "/proc/%u/task", pid);
	DIR *threads = opendir(directory);
	for (struct dirent *e; threads && (e = readdir(threads));)
		if (*e->d_name != '.') read_one(names, directory, e->d_name, process);
	if (threads) closedir(threads);
}
