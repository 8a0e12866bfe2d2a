/* samples.c - reads /proc and the cgroup on a thread of its own: see samples.h. */
#include "samples.h"

#include "kernel_file.h"
#include "memory.h"
#include "nvml.h"
#include "own_thread.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of the time, one part at most goes into looking at the mappings of a process, and one into those of all processes together, of which there may be
 * hundreds a second: the kernel walks all pages, and holds a lock that the program's own mmap waits for. As much goes into the names of threads. */
#define SHARE 300u
#define WALK_AHEAD_NS 5000000u /* of that time may be used before it has passed, so that short recordings have a reading */
#define SAME_NS 1000000000u    /* a process whose memory stays as large as it was is walked so often */
#define STATUS_KEPT 64u        /* of what was read: more than a line with a number */
#define LINES_BYTES (64u << 10) /* a line, with a path in it, is at most 4.4 KiB */

/* The number behind "\nKey:", in kB. */
static void take_kilobytes(struct tm_reading *r, enum tm_reading_name name, const char *text, const char *key) {
	const char *at = strstr(text, key);
	if (!at) return;
	r->values[name] = strtoull(at + strlen(key), NULL, 10) * 1024;
	r->known |= 1u << name;
}

/* In front of the numbers stands a line with all of its groups, of which there may be 65,536: read piece by piece. A number that a piece cuts is whole in the
 * next. */
static bool read_status(const struct tm_sampler *s, const struct tm_sampled_process *p, struct tm_reading *r) {
	char name[64];
	size_t kept = 0;
	ssize_t n;
	snprintf(name, sizeof name, "/proc/%u/status", p->pid);
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0) return false;
	while ((n = read(fd, s->lines + kept, LINES_BYTES - 1 - kept)) > 0) {
		char *end = s->lines + kept + n;
		*end = 0;
		take_kilobytes(r, TM_READING_RSS, s->lines, "\nVmRSS:");
		take_kilobytes(r, TM_READING_RSS_PEAK, s->lines, "\nVmHWM:");
		take_kilobytes(r, TM_READING_VMS, s->lines, "\nVmSize:");
		take_kilobytes(r, TM_READING_SWAP, s->lines, "\nVmSwap:");
		if (end < s->lines + LINES_BYTES - 1) break;
		kept = STATUS_KEPT;
		memmove(s->lines, end - kept, kept);
	}
	close(fd);
	return r->known >> TM_READING_RSS & 1; /* a zombie has none */
}

static bool may_walk(const struct tm_sampler *s, uint64_t walked_ns, uint64_t due_ns, uint64_t now_ns) {
	return now_ns >= due_ns && walked_ns * SHARE <= now_ns - s->start_ns + WALK_AHEAD_NS * SHARE;
}

/* When the next walk like the one that began at `before_ns` and has just ended is due. */
static uint64_t walked_since(uint64_t *walked_ns, uint64_t before_ns) {
	uint64_t took_ns = tm_monotonic_ns() - before_ns;
	*walked_ns += took_ns;
	return before_ns + took_ns * SHARE;
}

/* Is its memory as large as when it was walked? Now and then that is not believed. */
static bool is_same(const struct tm_sampled_process *p, const struct tm_reading *r, uint64_t now_ns) {
	const uint64_t *v = r->values;
	return now_ns < p->same_until_ns && v[TM_READING_RSS] == p->rss_bytes && v[TM_READING_VMS] == p->vms_bytes && v[TM_READING_SWAP] == p->swap_bytes;
}

static void remember_sizes(struct tm_sampled_process *p, const struct tm_reading *r, uint64_t now_ns) {
	p->rss_bytes = r->values[TM_READING_RSS];
	p->vms_bytes = r->values[TM_READING_VMS];
	p->swap_bytes = r->values[TM_READING_SWAP];
	p->same_until_ns = now_ns + SAME_NS;
}

/* The heading of a mapping in smaps names its file last, and is the only line that starts with a small letter or a digit:
 * "7f00-7f08 rw-s 00000000 00:01 17 /memfd:tidemark (deleted)". */
static bool is_heading(const char *line) {
	return (line[0] >= '0' && line[0] <= '9') || (line[0] >= 'a' && line[0] <= 'f');
}

static bool names_ours(const struct tm_sampler *s, const char *heading) {
	static const char library[] = "/libtidemark.so";
	const char *path = strchr(heading, '/');
	if (!path) return false;
	return !strncmp(path, s->session_file, strlen(s->session_file)) || !strncmp(strrchr(path, '/'), library, sizeof library - 1);
}

/* What is known of the mapping before. */
struct before {
	uint64_t end;
	bool is_guard; /* no access at all */
};

/* Shared memory has a name as files have: "/dev/zero (deleted)" (anonymous), "/dev/shm/x", "/memfd:x (deleted)", "/SYSV00000000 (deleted)". */
static bool names_memory(const char *path) {
	static const char deleted[] = " (deleted)";
	size_t n = strlen(path);
	if (*path != '/' || !strncmp(path, "/dev/", 5) || !strncmp(path, "/memfd:", 7)) return true;
	return !strchr(path + 1, '/') && n >= sizeof deleted && !strcmp(path + n + 1 - sizeof deleted, deleted);
}

#define ARENA_BYTES (64ull << 20) /* of glibc, on 64-bit machines */
#define GUARD_BYTES_MAX (1ull << 20)

static enum tm_mapping_kind kind_of(const struct tm_sampler *s, const char *heading, struct before *before) {
	uint64_t start = 0, end = 0;
	char access[8] = "";
	int name = 0;
	if (sscanf(heading, "%lx-%lx %7s %*x %*s %*u %n", &start, &end, access, &name) < 3) return TM_MAPPING_ANONYMOUS;
	bool behind_guard = before->is_guard && before->end == start;
	*before = (struct before){ end, !strncmp(access, "---", 3) && end - start <= GUARD_BYTES_MAX };
	if (names_ours(s, heading)) return TM_MAPPING_OURS;
	const char *path = heading + name;
	if (access[3] == 's') return names_memory(path) ? TM_MAPPING_SHARED : TM_MAPPING_FILE;
	if (!strncmp(path, "[heap]", 6)) return TM_MAPPING_HEAP;
	if (!strncmp(path, "[stack", 6)) return TM_MAPPING_STACK;
	if (*path == '/' && strcmp(path, "/dev/zero") != 0) return TM_MAPPING_FILE;
	if (start % ARENA_BYTES == 0 && end - start <= ARENA_BYTES && strncmp(path, "[", 1)) return TM_MAPPING_ARENA;
	return behind_guard ? TM_MAPPING_STACK : TM_MAPPING_ANONYMOUS;
}

/* A line of smaps. */
static void add_line(const struct tm_sampler *s, const char *line, enum tm_mapping_kind *kind, struct before *before, struct tm_own_memory *own) {
	if (is_heading(line)) *kind = kind_of(s, line, before);
	if (*kind == TM_MAPPING_OURS && !strncmp(line, "Size:", 5)) own->mapped_bytes += strtoull(line + 5, NULL, 10) * 1024;
	if (!strncmp(line, "Rss:", 4)) own->resident_kinds[*kind] += strtoull(line + 4, NULL, 10) * 1024;
	if (!strncmp(line, "Pss:", 4)) own->pss_bytes += strtoull(line + 4, NULL, 10) * 1024;
}

static void add_own_memory(struct tm_sampler *s, const struct tm_sampled_process *p, int fd, struct tm_own_memory *own) {
	enum tm_mapping_kind kind = TM_MAPPING_ANONYMOUS;
	struct before before = { 0, false };
	size_t rest = 0;
	ssize_t n;
	while ((n = read(fd, s->lines + rest, LINES_BYTES - 1 - rest)) > 0) {
		char *line = s->lines, *end = line + rest + n, *next;
		while ((next = memchr(line, '\n', (size_t)(end - line)))) {
			*next = 0;
			add_line(s, line, &kind, &before, own);
			/* The kernel looks at each mapping when its turn comes, and ours lie close to each other. */
			if (own->mapped_bytes && !own->written_bytes) own->written_bytes = tm_session_written_bytes(s->session, p->number);
			line = next + 1;
		}
		rest = (size_t)(end - line);
		memmove(s->lines, line, rest);
	}
	own->resident_bytes = own->resident_kinds[TM_MAPPING_OURS];
}

static void look_for_own_memory(struct tm_sampler *s, struct tm_sampled_process *p, const struct tm_reading *r) {
	char name[64];
	uint64_t before = tm_monotonic_ns();
	p->own.fresh = false;
	if (!may_walk(s, s->walked_ns, p->own_due_ns, before) || is_same(p, r, before)) return;
	snprintf(name, sizeof name, "/proc/%u/smaps", p->pid);
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0) return;
	struct tm_own_memory own = { .known = false };
	add_own_memory(s, p, fd, &own);
	own.known = own.fresh = own.mapped_bytes != 0; /* else it is gone */
	close(fd);
	if (own.known) p->own = own;
	remember_sizes(p, r, before);
	p->own_due_ns = walked_since(&s->walked_ns, before);
}

static void look_for_names(struct tm_sampler *s, struct tm_sampled_process *p) {
	uint64_t before = tm_monotonic_ns();
	if (!may_walk(s, s->named_ns, p->names_due_ns, before)) return;
	tm_thread_names_read(&s->names_read, p->pid, p->id);
	p->names_due_ns = walked_since(&s->named_ns, before);
}

static void keep_names(struct tm_sampler *s) {
	size_t n = s->names_read.count;
	if (!n) return;
	pthread_mutex_lock(&s->lock);
	s->names.all = tm_memory_grow(s->names.all, &s->names.capacity, s->names.count + n, sizeof s->names.all[0]);
	memcpy(s->names.all + s->names.count, s->names_read.all, n * sizeof s->names.all[0]);
	s->names.count += n;
	pthread_mutex_unlock(&s->lock);
	s->names_read.count = 0;
}

/* In the order of enum tm_mapping_kind. */
static const enum tm_reading_name kind_readings[] = { TM_READING_RSS_HEAP,   TM_READING_RSS_ARENAS, TM_READING_RSS_ANONYMOUS,
						      TM_READING_RSS_STACKS, TM_READING_RSS_FILES,  TM_READING_RSS_SHARED };

static void read_pss(const struct tm_sampled_process *p, struct tm_reading *r) {
	char name[64], text[4096];
	snprintf(name, sizeof name, "/proc/%u/smaps_rollup", p->pid);
	if (tm_kernel_file(name, text, sizeof text)) take_kilobytes(r, TM_READING_PSS, text, "\nPss:");
}

/* What its rings have grown by since its mappings were looked at, in a process that has grown. */
static uint64_t written_since(const struct tm_sampler *s, const struct tm_sampled_process *p, uint64_t rss_bytes) {
	if (p->own.fresh || rss_bytes == p->rss_bytes) return 0;
	uint64_t now = tm_session_written_bytes(s->session, p->number);
	return now > p->own.written_bytes ? now - p->own.written_bytes : 0;
}

static void tell_own_memory(struct tm_sampler *s, struct tm_sampled_process *p, struct tm_reading *r) {
	look_for_own_memory(s, p, r);
	if (s->pss_wanted && !p->own.fresh) read_pss(p, r);
	if (!p->own.known || !(r->known & 1u << TM_READING_RSS)) return;
	uint64_t *rss = &r->values[TM_READING_RSS], *vms = &r->values[TM_READING_VMS];
	uint64_t ours = p->own.resident_bytes + written_since(s, p, *rss);
	r->values[TM_READING_TOOL_RSS] = ours < *rss ? ours : *rss;
	r->known |= 1u << TM_READING_TOOL_RSS;
	if (*vms > p->own.mapped_bytes) *vms -= p->own.mapped_bytes;
	if (!p->own.fresh) return;
	r->values[TM_READING_PSS] = p->own.pss_bytes;
	r->known |= 1u << TM_READING_PSS;
	for (int i = 0; i < TM_MAPPING_OURS; i++) {
		r->values[kind_readings[i]] = p->own.resident_kinds[i];
		r->known |= 1u << kind_readings[i];
	}
}

static void read_common(const struct tm_sampler *s, struct tm_reading *r) {
	char text[256];
	unsigned long long pages;
	if (tm_kernel_file_again(s->cgroup, text, sizeof text)) {
		r->values[TM_READING_CGROUP] = strtoull(text, NULL, 10);
		r->known |= 1u << TM_READING_CGROUP;
	}
	if (tm_kernel_file_again(s->statm, text, sizeof text) && sscanf(text, "%*u %llu", &pages) == 1) {
		r->values[TM_READING_TOOL_RSS] = pages * (uint64_t)sysconf(_SC_PAGESIZE);
		r->known |= 1u << TM_READING_TOOL_RSS;
	}
}

static bool try_cgroup_file(struct tm_sampler *s, const char *mount, const char *group, size_t group_bytes, const char *file) {
	snprintf(s->cgroup_path, sizeof s->cgroup_path, "%s%.*s/%s", mount, (int)group_bytes, group, file);
	s->cgroup = open(s->cgroup_path, O_RDONLY | O_CLOEXEC);
	if (s->cgroup >= 0) return true;
	/* In a container the path may be the host's while the mount shows our own group. */
	snprintf(s->cgroup_path, sizeof s->cgroup_path, "%s/%s", mount, file);
	s->cgroup = open(s->cgroup_path, O_RDONLY | O_CLOEXEC);
	if (s->cgroup >= 0) return true;
	s->cgroup_path[0] = 0;
	return false;
}

/* Version 1 names its controllers ("5:memory:/path"), version 2 none ("0::/path"). */
static void find_cgroup(struct tm_sampler *s, uint32_t pid) {
	char name[64], text[8192];
	snprintf(name, sizeof name, "/proc/%u/cgroup", pid);
	tm_kernel_file(name, text, sizeof text);
	for (char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!group) return;
		size_t n = strcspn(group + 1, "\n"), controller_bytes = (size_t)(group - controllers) - 1;
		bool first = controller_bytes == 6 && !memcmp(controllers + 1, "memory", 6);
		if (first && try_cgroup_file(s, "/sys/fs/cgroup/memory", group + 1, n, "memory.usage_in_bytes")) return;
		if (controller_bytes == 0 && try_cgroup_file(s, "/sys/fs/cgroup", group + 1, n, "memory.current")) return;
	}
}

static void keep(struct tm_sampler *s, const struct tm_reading *r) {
	if (!r->known) return;
	pthread_mutex_lock(&s->lock);
	s->readings = tm_memory_grow(s->readings, &s->reading_capacity, s->reading_count + 1, sizeof s->readings[0]);
	s->readings[s->reading_count++] = *r;
	pthread_mutex_unlock(&s->lock);
}

/* Takes those whose turn it is out of the shared list, so that reading needs no lock. */
static size_t take_turn(struct tm_sampler *s, bool every) {
	size_t n = 0;
	s->turn = tm_memory_grow(s->turn, &s->turn_capacity, s->count, sizeof s->turn[0]);
	for (size_t i = 0; i < s->count; i++) {
		if (!every && !s->processes[i].wanted) continue;
		s->processes[i].wanted = false;
		s->turn[n++] = s->processes[i];
	}
	s->asked = false;
	s->device_turn_count = 0;
	s->device_turn = tm_memory_grow(s->device_turn, &s->device_turn_capacity, s->device_count, sizeof s->device_turn[0]);
	for (size_t i = 0; i < s->device_count; i++)
		for (size_t j = 0; j < n; j++)
			if (s->turn[j].id == s->devices[i].id) s->device_turn[s->device_turn_count++] = s->devices[i];
	return n;
}

static void take_over_costs(struct tm_sampled_process *to, const struct tm_sampled_process *from) {
	to->own_due_ns = from->own_due_ns;
	to->same_until_ns = from->same_until_ns;
	to->names_due_ns = from->names_due_ns;
	to->rss_bytes = from->rss_bytes;
	to->vms_bytes = from->vms_bytes;
	to->swap_bytes = from->swap_bytes;
	to->own = from->own;
}

static void give_back(struct tm_sampler *s, size_t n) {
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < s->count; j++)
			if (s->processes[j].id == s->turn[i].id) take_over_costs(&s->processes[j], &s->turn[i]);
}

/* The devices of one process, each, and what it holds on all of them where that is known of all. */
static void read_devices(struct tm_sampler *s, const struct tm_sampled_process *p) {
	struct tm_reading all = { .process = p->id, .ns = tm_timebase_ticks(s->timebase), .known = 1u << TM_READING_DEVICE_USED };
	size_t count = 0;
	for (size_t i = 0; i < s->device_turn_count; i++) {
		const struct tm_sampled_device *d = &s->device_turn[i];
		struct tm_reading r = { .process = p->id, .ns = all.ns, .known = 1 };
		struct tm_nvml_memory memory;
		if (d->id != p->id) continue;
		atomic_store(&s->without_devices, tm_nvml_open());
		tm_nvml_read(d->uuid, p->pid, &memory);
		r.device.number_plus_1 = d->number + 1;
		r.device.own_bytes = memory.own_bytes;
		r.device.all_bytes = memory.all_bytes;
		r.device.total_bytes = memory.total_bytes;
		keep(s, &r);
		count++;
		if (memory.own_bytes == TM_NVML_UNKNOWN) all.known = 0;
		else all.values[TM_READING_DEVICE_USED] += memory.own_bytes;
	}
	if (count) keep(s, &all);
}

static void read_turn(struct tm_sampler *s, size_t n) {
	for (size_t i = 0; i < n; i++) {
		struct tm_reading r = { .process = s->turn[i].id, .ns = tm_timebase_ticks(s->timebase) };
		if (!read_status(s, &s->turn[i], &r)) continue; /* it has ended */
		tell_own_memory(s, &s->turn[i], &r);
		keep(s, &r);
		look_for_names(s, &s->turn[i]);
		read_devices(s, &s->turn[i]);
	}
	keep_names(s);
	struct tm_reading common = { .process = 0, .ns = tm_timebase_ticks(s->timebase) };
	read_common(s, &common);
	keep(s, &common);
}

static void *run(void *argument) {
	struct tm_sampler *s = argument;
	uint64_t next_ns = s->interval_ns ? tm_monotonic_ns() + s->interval_ns : UINT64_MAX;
	pthread_mutex_lock(&s->lock);
	while (!s->stopping) {
		uint64_t now = tm_monotonic_ns();
		bool every = now >= next_ns;
		if (!s->interval_ns && !s->asked) {
			pthread_cond_wait(&s->changed, &s->lock);
			continue;
		}
		if (!every && !s->asked) {
			struct timespec until = { (time_t)(next_ns / 1000000000u), (long)(next_ns % 1000000000u) };
			pthread_cond_timedwait(&s->changed, &s->lock, &until);
			continue;
		}
		size_t n = take_turn(s, every);
		pthread_mutex_unlock(&s->lock);
		read_turn(s, n);
		if (every) next_ns = now + s->interval_ns;
		pthread_mutex_lock(&s->lock);
		give_back(s, n);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

void tm_sampler_start(struct tm_sampler *s, const struct tm_timebase *timebase, uint64_t interval_ms, const struct tm_session *session,
		      uint32_t pid) {
	pthread_condattr_t attributes;
	memset(s, 0, sizeof *s);
	s->timebase = timebase;
	s->interval_ns = interval_ms * 1000000u;
	s->start_ns = tm_monotonic_ns();
	s->session = session;
	s->session_file = tm_session_mapped_name(session);
	s->lines = tm_memory_new(LINES_BYTES, 1);
	s->cgroup = -1;
	s->statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	find_cgroup(s, pid);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, &attributes);
	pthread_condattr_destroy(&attributes);
}

static bool make_thread(struct tm_sampler *s) {
	if (s->tried || !s->lines) return s->running;
	s->tried = true;
	s->running = tm_own_thread_start(&s->thread, run, s);
	return s->running;
}

void tm_sampler_add(struct tm_sampler *s, uint32_t pid, uint32_t id, uint32_t number) {
	if (!make_thread(s)) return;
	pthread_mutex_lock(&s->lock);
	s->processes = tm_memory_grow(s->processes, &s->capacity, s->count + 1, sizeof s->processes[0]);
	s->processes[s->count++] = (struct tm_sampled_process){ .pid = pid, .id = id, .number = number, .wanted = s->interval_ns != 0 };
	s->asked |= s->interval_ns != 0;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

void tm_sampler_remove(struct tm_sampler *s, uint32_t id) {
	if (!s->running) return;
	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < s->count; i++) {
		if (s->processes[i].id != id) continue;
		s->processes[i] = s->processes[--s->count];
		break;
	}
	for (size_t i = s->device_count; i-- > 0;)
		if (s->devices[i].id == id) s->devices[i] = s->devices[--s->device_count];
	pthread_mutex_unlock(&s->lock);
}

void tm_sampler_add_device(struct tm_sampler *s, uint32_t id, uint32_t number, const uint8_t uuid[16]) {
	struct tm_sampled_device d = { .id = id, .number = number };
	if (!s->running) return;
	memcpy(d.uuid, uuid, sizeof d.uuid);
	pthread_mutex_lock(&s->lock);
	s->devices = tm_memory_grow(s->devices, &s->device_capacity, s->device_count + 1, sizeof s->devices[0]);
	s->devices[s->device_count++] = d;
	pthread_mutex_unlock(&s->lock);
	tm_sampler_ask(s, id);
}

void tm_sampler_ask(struct tm_sampler *s, uint32_t id) {
	if (!s->running) return;
	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < s->count; i++) {
		if (s->processes[i].id != id || s->processes[i].wanted) continue;
		s->processes[i].wanted = s->asked = true;
		pthread_cond_signal(&s->changed);
	}
	pthread_mutex_unlock(&s->lock);
}

void tm_sampler_collect(struct tm_sampler *s, struct tm_group *g) {
	if (!s->running) return;
	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < s->reading_count; i++) tm_group_add(g, TM_RECORD_SAMPLES)->samples = s->readings[i];
	s->reading_count = 0;
	pthread_mutex_unlock(&s->lock);
	const char *why = atomic_load(&s->without_devices);
	if (!why || s->without_noted) return;
	s->without_noted = true;
	char text[200];
	snprintf(text, sizeof text, "%s: what devices hold in all is not in this trace", why);
	tm_group_add_note(g, 0, tm_timebase_ticks(s->timebase), "gpu", text);
}

void tm_sampler_take_names(struct tm_sampler *s, struct tm_thread_names *names) {
	struct tm_thread_names empty = *names;
	if (!s->running) return;
	pthread_mutex_lock(&s->lock);
	*names = s->names;
	s->names = empty;
	pthread_mutex_unlock(&s->lock);
}

void tm_sampler_stop(struct tm_sampler *s) {
	if (!s->running || s->stopping) return;
	pthread_mutex_lock(&s->lock);
	s->stopping = true;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
}

void tm_sampler_release(struct tm_sampler *s) {
	tm_sampler_stop(s);
	free(s->processes);
	free(s->devices);
	free(s->device_turn);
	free(s->readings);
	free(s->turn);
	free(s->lines);
	free(s->names.all);
	free(s->names_read.all);
	if (s->cgroup >= 0) close(s->cgroup);
	if (s->statm >= 0) close(s->statm);
}
