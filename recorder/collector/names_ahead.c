/* names_ahead.c - keeps readers of module files at work while the program runs: see names_ahead.h. */
#include "recorder/collector/names_ahead.h"

#include "recorder/collector/collector.h"
#include "recorder/collector/memory.h"
#include "recorder/collector/names_reader.h"
#include "recorder/collector/own_thread.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define FIRST_LOOK_NS 50000000u /* a program that has ended by then has few names */
#define LOOK_NS 100000000u
#define LIBC_FRAMES 32u /* a program with fewer hardly allocates: opening libc may be more work than all the rest of its recording, */
#define LIBC_NS 300000000u /* unless the program runs much longer than that takes */
#define OUT_MAX (1u << 20) /* bytes that wait for a reader; more is not said before the end */
#define NOBODY UINT32_MAX
#define SEND_WAIT_S 30 /* at the end, for one that is at work and does not listen */

extern char **environ;

/* --- processes --- */

/* Ours without what makes the command a guest. */
char **tm_names_environment(void) {
	size_t n = 0, kept = 0;
	while (environ[n]) n++;
	char **list = tm_memory_new(n + 1, sizeof list[0]);
	for (size_t i = 0; i < n; i++)
		if (strncmp(environ[i], "LD_PRELOAD=", 11) && strncmp(environ[i], "TIDEMARK_", 9)) list[kept++] = environ[i];
	return list;
}

/* All signals are blocked in it until it has said which it ignores: Ctrl-Z in between would stop it, and us, who wait for its exec. */
static pid_t start_process(int fd) {
	char *arguments[] = { (char *)"tidemark-record", (char *)TM_AHEAD_COMMAND, NULL }, **variables = tm_names_environment();
	posix_spawn_file_actions_t actions;
	pid_t pid = -1;
	sigset_t every, old;
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &old);
	if (posix_spawn_file_actions_init(&actions) == 0) {
		bool ready = posix_spawn_file_actions_adddup2(&actions, fd, 0) == 0;
		if (!ready || posix_spawn(&pid, "/proc/self/exe", &actions, NULL, arguments, variables) != 0) pid = -1;
		posix_spawn_file_actions_destroy(&actions);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	free(variables);
	return pid;
}

/* Under `lock`, which is not held meanwhile. */
static void start_next(struct tm_names_ahead *a) {
	int fd = a->readers[a->started].other_fd;
	pthread_mutex_unlock(&a->lock);
	pid_t pid = start_process(fd);
	close(fd);
	pthread_mutex_lock(&a->lock);
	a->readers[a->started].other_fd = -1;
	a->readers[a->started++].pid = pid;
	pthread_cond_broadcast(&a->changed);
}

static void *start_as_they_come(void *argument) {
	struct tm_names_ahead *a = argument;
	pthread_mutex_lock(&a->lock);
	while (!a->ending) {
		if (a->started < a->count) start_next(a);
		else pthread_cond_wait(&a->changed, &a->lock);
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

/* Its process, once it was started; -1: there is none. */
static pid_t process_of(struct tm_names_ahead *a, const struct tm_ahead_reader *r) {
	pthread_mutex_lock(&a->lock);
	while (!r->pid) pthread_cond_wait(&a->changed, &a->lock);
	pid_t pid = r->pid;
	pthread_mutex_unlock(&a->lock);
	return pid;
}

/* It may be at work, get no processor, or be kept waiting by its file. */
static void stop(struct tm_names_ahead *a, struct tm_ahead_reader *r) {
	if (r->fd < 0) return;
	pid_t pid = process_of(a, r);
	close(r->fd);
	r->fd = -1;
	if (pid > 0) tm_names_reader_kill(pid);
}

static void end_all(struct tm_names_ahead *a) {
	for (size_t i = 0; i < a->count; i++) {
		pid_t pid = a->readers[i].fd >= 0 ? process_of(a, &a->readers[i]) : -1;
		if (pid > 0) kill(pid, SIGKILL);
	}
	for (size_t i = 0; i < a->count; i++) stop(a, &a->readers[i]);
}

void tm_names_ahead_leave(struct tm_names_ahead *a, pid_t reader) {
	a->left = tm_memory_grow(a->left, &a->left_capacity, a->left_count + 1, sizeof a->left[0]);
	a->left[a->left_count++] = reader;
}

/* --- requests --- */

static void put_word(struct tm_bytes *b, uint64_t word) {
	tm_put_raw(b, &word, sizeof word);
}

static void put_opening(struct tm_ahead_reader *r, uint64_t loaded_unix_ns) {
	struct tm_bytes text = TM_BYTES_INIT;
	tm_put_varint(&text, loaded_unix_ns);
	tm_put_string(&text, r->build_id, r->build_id_size);
	tm_put_string(&text, r->path, strlen(r->path));
	while (text.size % 8) tm_put_u8(&text, 0);
	put_word(&r->out, TM_AHEAD_OPEN);
	put_word(&r->out, text.size);
	tm_put_raw(&r->out, text.data, text.size);
	tm_bytes_release(&text);
}

static void put_request(struct tm_ahead_reader *r, enum tm_ahead_request kind, const uint64_t *offsets, size_t n) {
	put_word(&r->out, kind);
	put_word(&r->out, n);
	tm_put_raw(&r->out, offsets, n * sizeof offsets[0]);
}

/* false: it does not listen any more. */
static bool send_out(struct tm_ahead_reader *r, bool wait) {
	size_t done = 0;
	bool listens = !r->out.failed;
	while (done < r->out.size && listens) {
		ssize_t n = send(r->fd, r->out.data + done, r->out.size - done, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT));
		if (n < 0 && errno == EINTR) continue;
		if (n < 0 && !wait && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
		listens = n > 0;
		done += n > 0 ? (size_t)n : 0;
	}
	r->out.size -= done;
	if (done && r->out.size) memmove(r->out.data, r->out.data + done, r->out.size);
	return listens;
}

/* --- readers --- */

static bool is_of(const struct tm_ahead_reader *r, const char *path, const uint8_t *build_id, size_t n) {
	if (r->build_id_size != n) return false;
	return n ? !memcmp(r->build_id, build_id, n) && !strcmp(tm_names_file_name(r->path), tm_names_file_name(path)) : !strcmp(r->path, path);
}

static struct tm_ahead_reader *find(const struct tm_names_ahead *a, const char *path, const uint8_t *build_id, size_t n) {
	for (size_t i = 0; i < a->count; i++)
		if (is_of(&a->readers[i], path, build_id, n)) return &a->readers[i];
	return NULL;
}

/* A build-id says for certain, later, which file it was; a path only while nothing else has taken its place, and only for what was loaded since the file
 * was put there: the first module of the path has to be the one whose load that was compared with. */
static bool is_same_file(const struct stat *a, const char *path) {
	struct stat b;
	return stat(path, &b) == 0 && a->st_dev == b.st_dev && a->st_ino == b.st_ino && a->st_size == b.st_size && a->st_mtim.tv_sec == b.st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

static struct tm_ahead_reader *start(struct tm_collector *c, uint32_t module) {
	struct tm_names_ahead *a = &c->ahead;
	const struct tm_module *m = &c->modules.all[module - 1];
	struct stat file = { 0 };
	int ends[2];
	if (!m->build_id_size && stat(m->path, &file) != 0) return NULL;
	if (a->count == TM_AHEAD_READERS_MAX || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return NULL;
	if (!a->count) {
		pthread_mutex_init(&a->lock, NULL);
		pthread_cond_init(&a->changed, NULL);
	}
	pthread_mutex_lock(&a->lock);
	a->readers = tm_memory_grow(a->readers, &a->capacity, a->count + 1, sizeof a->readers[0]);
	struct tm_ahead_reader *r = &a->readers[a->count++];
	*r = (struct tm_ahead_reader){ .fd = ends[0], .other_fd = ends[1], .build_id_size = m->build_id_size, .module = module, .file = file };
	pthread_mutex_unlock(&a->lock);
	r->path = tm_memory_copy_text(m->path, strlen(m->path));
	r->build_id = tm_memory_new(m->build_id_size, 1);
	memcpy(r->build_id, m->build_id, m->build_id_size);
	put_opening(r, c->timebase.start_unix_ns + tm_time_map_ns(&c->timebase.map, m->load_ticks));
	return r;
}

/* Has what is new started. */
static void start_processes(struct tm_names_ahead *a) {
	if (!a->count) return;
	pthread_mutex_lock(&a->lock);
	if (a->started < a->count && !a->starter_runs) a->starter_runs = tm_own_thread_start(&a->starter, start_as_they_come, a);
	while (a->started < a->count && !a->starter_runs) start_next(a);
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
}

static struct tm_ahead_reader *reader_of(struct tm_collector *c, uint32_t module) {
	struct tm_names_ahead *a = &c->ahead;
	const struct tm_module *m = &c->modules.all[module - 1];
	if (module > a->module_count) {
		a->of_module = tm_memory_grow(a->of_module, &a->module_capacity, module, sizeof a->of_module[0]);
		memset(a->of_module + a->module_count, 0, (module - a->module_count) * sizeof a->of_module[0]);
		a->module_count = module;
	}
	uint32_t *known = &a->of_module[module - 1];
	if (!*known) {
		struct tm_ahead_reader *r = m->path ? find(a, m->path, m->build_id, m->build_id_size) : NULL;
		if (!r && m->path && *m->path == '/') r = start(c, module);
		*known = r ? (uint32_t)(r - a->readers) + 1 : NOBODY;
	}
	return *known == NOBODY ? NULL : &a->readers[*known - 1];
}

static void note_frames(struct tm_collector *c) {
	struct tm_names_ahead *a = &c->ahead;
	for (; a->frames_seen < c->stacks.frame_count; a->frames_seen++) {
		const struct tm_frame_row *row = &c->stacks.frames[a->frames_seen];
		struct tm_ahead_reader *r = row->module ? reader_of(c, row->module) : NULL;
		if (!r || r->fd < 0 || r->out.size > OUT_MAX) continue;
		r->offsets = tm_memory_grow(r->offsets, &r->offset_capacity, r->offset_count + 1, sizeof r->offsets[0]);
		r->offsets[r->offset_count++] = row->address - c->modules.all[row->module - 1].bias - 1;
	}
}

/* Frames of the C library are in the trace of almost every program that allocates here and there, and often come with the last line that it prints. */
static void open_libc(struct tm_collector *c, uint64_t ran_ns) {
	struct tm_names_ahead *a = &c->ahead;
	if (c->stacks.frame_count < LIBC_FRAMES && ran_ns < LIBC_NS) return;
	for (; a->modules_seen < c->modules.count; a->modules_seen++) {
		const char *path = c->modules.all[a->modules_seen].path, *name = path ? strrchr(path, '/') : NULL;
		if (name && !strncmp(name, "/libc.so.", 9)) reader_of(c, (uint32_t)a->modules_seen + 1);
	}
}

void tm_names_ahead_look(struct tm_collector *c) {
	struct tm_names_ahead *a = &c->ahead;
	uint64_t now = tm_monotonic_ns();
	if (!c->options.embed_names || now < a->next_ns) return;
	if (!a->begin_ns) a->begin_ns = now;
	a->next_ns = a->begin_ns == now ? now + FIRST_LOOK_NS : now + LOOK_NS;
	if (a->begin_ns == now) return;
	if (now - a->begin_ns > TM_AHEAD_NS) {
		end_all(a);
		a->next_ns = UINT64_MAX;
		return;
	}
	open_libc(c, now - a->begin_ns);
	note_frames(c);
	start_processes(a);
	for (size_t i = 0; i < a->count; i++) {
		struct tm_ahead_reader *r = &a->readers[i];
		if (r->fd < 0) continue;
		if (r->offset_count) put_request(r, TM_AHEAD_LEARN, r->offsets, r->offset_count);
		r->offset_count = 0;
		if (!send_out(r, false)) stop(a, r);
	}
}

pid_t tm_names_ahead_ask(struct tm_names_ahead *a, const struct tm_names_module *m, const uint64_t *offsets, size_t n, int *fd) {
	struct tm_ahead_reader *r = m->path ? find(a, m->path, m->build_id, m->build_id_size) : NULL;
	if (!r || r->fd < 0) return -1;
	if (process_of(a, r) < 0 || (!r->build_id_size && (r->module != m->id || !is_same_file(&r->file, r->path)))) {
		stop(a, r);
		return -1;
	}
	struct timeval limit = { .tv_sec = SEND_WAIT_S };
	put_request(r, TM_AHEAD_ANSWER, offsets, n);
	if (setsockopt(r->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0 || !send_out(r, true)) {
		stop(a, r);
		return -1;
	}
	*fd = r->fd;
	r->fd = -1;
	return r->pid;
}

static void end_starter(struct tm_names_ahead *a) {
	if (!a->count) return;
	pthread_mutex_lock(&a->lock);
	a->ending = true;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
	if (a->starter_runs) pthread_join(a->starter, NULL);
	pthread_cond_destroy(&a->changed);
	pthread_mutex_destroy(&a->lock);
}

void tm_names_ahead_release(struct tm_names_ahead *a) {
	end_all(a);
	for (size_t i = 0; i < a->left_count; i++) tm_names_reader_kill(a->left[i]);
	end_starter(a);
	for (size_t i = 0; i < a->count; i++) {
		free(a->readers[i].path);
		free(a->readers[i].build_id);
		free(a->readers[i].offsets);
		tm_bytes_release(&a->readers[i].out);
	}
	free(a->readers);
	free(a->of_module);
	free(a->left);
	*a = (struct tm_names_ahead){ 0 };
}
