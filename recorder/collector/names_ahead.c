/* names_ahead.c - keeps readers of module files at work while the program runs: see names_ahead.h. */
#include "recorder/collector/names_ahead.h"

#include "recorder/collector/collector.h"
#include "recorder/collector/memory.h"
#include "recorder/collector/names_plan.h"
#include "recorder/collector/names_reader.h"
#include "recorder/collector/symbols.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FIRST_LOOK_NS 50000000u /* a program that has ended by then has few names */
#define LOOK_NS 100000000u
#define HEAR_NS 5000000u /* a reader that is asked for much says more than its socket holds, and stands still until that is taken */
#define LIBC_FRAMES 32u /* a program with fewer hardly allocates: opening libc may be more work than all the rest of its recording, */
#define LIBC_NS 300000000u /* unless the program runs much longer than that takes */
#define OUT_MAX (4u << 20) /* bytes that wait for a reader; more is not said before the end */
#define NO_FILE UINT32_MAX

extern char **environ;

/* --- processes --- */

/* Ours without what makes the command a guest. A library's symbols are tens of MB, and a huge page is sooner given back when the reader ends: the user
 * waits for that. Where libc's settings are somebody's already they stay. */
char **tm_names_environment(void) {
	static char huge_pages[] = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1";
	size_t n = 0, kept = 0;
	while (environ[n]) n++;
	char **list = tm_memory_new(n + 2, sizeof list[0]);
	for (size_t i = 0; i < n; i++)
		if (strncmp(environ[i], "LD_PRELOAD=", 11) && strncmp(environ[i], "TIDEMARK_", 9)) list[kept++] = environ[i];
	if (!getenv("GLIBC_TUNABLES")) list[kept++] = huge_pages;
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

static bool is_there(const struct tm_ahead_reader *r) {
	return r->stream.fd >= 0;
}

/* Is waited for at the end: it may be kept by a file, and takes its time to give back its memory. */
static void stop(struct tm_ahead_reader *r) {
	if (!is_there(r)) return;
	tm_names_stream_release(&r->stream);
	kill(r->pid, SIGKILL);
}

/* What cannot be started is one that has ended. */
static void start_reader(struct tm_names_ahead *a) {
	struct tm_ahead_reader *r = &a->readers[a->reader_count++];
	int ends[2];
	*r = (struct tm_ahead_reader){ .pid = -1, .stream = { .fd = -1 } };
	a->has_started = true;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
	r->pid = start_process(ends[1]);
	close(ends[1]);
	if (r->pid > 0) r->stream.fd = ends[0];
	else close(ends[0]);
}

/* One for each two processors that we may use. */
static unsigned reader_limit(void) {
	cpu_set_t processors;
	unsigned limit = sched_getaffinity(0, sizeof processors, &processors) == 0 ? (unsigned)CPU_COUNT(&processors) / 2 : TM_AHEAD_READERS_MAX;
	return limit < 1 ? 1 : limit < TM_AHEAD_READERS_MAX ? limit : TM_AHEAD_READERS_MAX;
}

static unsigned count_readers(const struct tm_names_ahead *a) {
	unsigned count = 0;
	for (unsigned i = 0; i < a->reader_count; i++) count += is_there(&a->readers[i]);
	return count;
}

/* For a file more: the one with the least to read. In place of one that has died there is another, for files that are new. NULL: none is there. */
static struct tm_ahead_reader *choose_reader(struct tm_names_ahead *a) {
	struct tm_ahead_reader *least = NULL;
	if (!a->reader_limit) a->reader_limit = reader_limit();
	if (count_readers(a) < a->reader_limit && a->reader_count < TM_AHEAD_READERS_MAX && !a->has_started) start_reader(a);
	for (unsigned i = 0; i < a->reader_count; i++) {
		struct tm_ahead_reader *r = &a->readers[i];
		if (is_there(r) && (!least || r->mapped_bytes < least->mapped_bytes)) least = r;
	}
	return least;
}

/* --- requests --- */

static void put_head(struct tm_ahead_reader *r, enum tm_ahead_request kind, uint32_t file, size_t count) {
	uint64_t head[TM_AHEAD_HEAD_WORDS] = { kind, file, count };
	tm_put_raw(&r->out, head, sizeof head);
}

static void put_opening(struct tm_ahead_reader *r, const struct tm_ahead_file *f, const char *path, uint64_t loaded_unix_ns) {
	struct tm_bytes text = TM_BYTES_INIT;
	tm_put_varint(&text, loaded_unix_ns);
	tm_put_string(&text, f->build_id, f->build_id_size);
	tm_put_string(&text, path, strlen(path));
	while (text.size % 8) tm_put_u8(&text, 0);
	put_head(r, TM_AHEAD_OPEN, f->number, text.size);
	tm_put_raw(&r->out, text.data, text.size);
	tm_bytes_release(&text);
}

static void put_request(struct tm_ahead_reader *r, enum tm_ahead_request kind, uint32_t file, const uint64_t *offsets, size_t n) {
	put_head(r, kind, file, n);
	tm_put_raw(&r->out, offsets, n * sizeof offsets[0]);
}

bool tm_names_ahead_send(struct tm_ahead_reader *r) {
	size_t done = 0;
	bool listens = !r->out.failed;
	while (done < r->out.size && listens) {
		ssize_t n = send(r->stream.fd, r->out.data + done, r->out.size - done, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR) continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
		listens = n > 0;
		done += n > 0 ? (size_t)n : 0;
	}
	r->out.size -= done;
	if (done && r->out.size) memmove(r->out.data, r->out.data + done, r->out.size);
	return listens;
}

/* --- files --- */

static bool is_of(const struct tm_ahead_file *f, const char *path, const uint8_t *build_id, size_t n) {
	if (f->build_id_size != n) return false;
	return n ? !memcmp(f->build_id, build_id, n) && !strcmp(tm_names_file_name(f->path), tm_names_file_name(path)) : !strcmp(f->path, path);
}

static struct tm_ahead_file *find(const struct tm_names_ahead *a, const char *path, const uint8_t *build_id, size_t n) {
	for (size_t i = 0; i < a->file_count; i++)
		if (is_of(&a->files[i], path, build_id, n)) return &a->files[i];
	return NULL;
}

/* A build-id says for certain, later, which file it was; a path only while nothing else has taken its place, and only for what was loaded since the file
 * was put there: the first module of the path has to be the one whose load that was compared with. */
static bool is_same_file(const struct stat *a, const char *path) {
	struct stat b;
	return stat(path, &b) == 0 && a->st_dev == b.st_dev && a->st_ino == b.st_ino && a->st_size == b.st_size && a->st_mtim.tv_sec == b.st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

/* Where a module's file lies for us; /proc/self is another directory for its process. */
static const char *path_here(const struct tm_collector *c, const struct tm_module *m, char path[PATH_MAX]) {
	const char *own = tm_symbols_own_path(m->path);
	for (size_t i = 0; own && i < c->processes.count; i++) {
		const struct tm_process *p = c->processes.all[i];
		if (p->id == m->process && p->system_pid && snprintf(path, PATH_MAX, "/proc/%u/%s", p->system_pid, own) < PATH_MAX)
			return path;
	}
	return m->path;
}

static struct tm_ahead_file *give_to_reader(struct tm_collector *c, uint32_t module) {
	struct tm_names_ahead *a = &c->ahead;
	const struct tm_module *m = &c->modules.all[module - 1];
	struct stat file = { 0 };
	char room[PATH_MAX];
	const char *path = path_here(c, m, room);
	if (a->file_count == TM_AHEAD_FILES_MAX || (!m->build_id_size && stat(path, &file) != 0)) return NULL;
	struct tm_ahead_reader *r = choose_reader(a);
	if (!r) return NULL;
	a->files = tm_memory_grow(a->files, &a->file_capacity, a->file_count + 1, sizeof a->files[0]);
	struct tm_ahead_file *f = &a->files[a->file_count++];
	*f = (struct tm_ahead_file){ .build_id_size = m->build_id_size, .module = module, .file = file };
	f->path = tm_memory_copy_text(m->path, strlen(m->path));
	f->build_id = tm_memory_new(m->build_id_size, 1);
	memcpy(f->build_id, m->build_id, m->build_id_size);
	f->reader = (uint32_t)(r - a->readers);
	f->number = r->file_count++;
	r->mapped_bytes += m->high - m->low;
	put_opening(r, f, path, c->timebase.start_unix_ns + tm_time_map_ns(&c->timebase.map, m->load_ticks));
	return f;
}

/* may_give: a reader may be given it, if none has it. */
static struct tm_ahead_file *file_of(struct tm_collector *c, uint32_t module, bool may_give) {
	struct tm_names_ahead *a = &c->ahead;
	const struct tm_module *m = &c->modules.all[module - 1];
	if (module > a->module_count) {
		a->of_module = tm_memory_grow(a->of_module, &a->module_capacity, module, sizeof a->of_module[0]);
		memset(a->of_module + a->module_count, 0, (module - a->module_count) * sizeof a->of_module[0]);
		a->module_count = module;
	}
	uint32_t *known = &a->of_module[module - 1];
	if (!*known) {
		struct tm_ahead_file *f = m->path ? find(a, m->path, m->build_id, m->build_id_size) : NULL;
		if (!f && !may_give) return NULL;
		if (!f && m->path && *m->path == '/') f = give_to_reader(c, module);
		*known = f ? (uint32_t)(f - a->files) + 1 : NO_FILE;
	}
	return *known == NO_FILE ? NULL : &a->files[*known - 1];
}

/* Its names are kept as they are told. Not where the oldest events go, or what does not fit: those that stay have their names from the end. */
static bool is_told_early(const struct tm_collector *c, const struct tm_ahead_file *f) {
	return f->build_id_size && !f->early.refused && !c->options.max_size_bytes;
}

static void note_frames(struct tm_collector *c, bool may_ask) {
	struct tm_names_ahead *a = &c->ahead;
	for (; a->frames_seen < c->stacks.frame_count; a->frames_seen++) {
		const struct tm_frame_row *row = &c->stacks.frames[a->frames_seen];
		struct tm_ahead_file *f = row->module ? file_of(c, row->module, may_ask) : NULL;
		if (!f) continue;
		uint64_t offset = row->address - c->modules.all[row->module - 1].bias - 1;
		uint32_t spot = 0;
		bool asks = may_ask && is_there(&a->readers[f->reader]) && a->readers[f->reader].out.size <= OUT_MAX;
		if (is_told_early(c, f) && !tm_names_early_note(c, (uint32_t)(f - a->files), offset, a->frames_seen, asks, &spot)) continue;
		if (!asks) continue;
		f->asked = tm_memory_grow(f->asked, &f->asked_capacity, f->asked_count + 1, sizeof f->asked[0]);
		f->asked[f->asked_count++] = (struct tm_early_question){ offset, spot };
	}
}

/* Frames of the C library are in the trace of almost every program that allocates here and there, and often come with the last line that it prints. */
static void open_libc(struct tm_collector *c, uint64_t ran_ns) {
	struct tm_names_ahead *a = &c->ahead;
	if (c->stacks.frame_count < LIBC_FRAMES && ran_ns < LIBC_NS) return;
	for (; a->modules_seen < c->modules.count; a->modules_seen++) {
		const char *path = c->modules.all[a->modules_seen].path, *name = path ? strrchr(path, '/') : NULL;
		if (name && !strncmp(name, "/libc.so.", 9)) file_of(c, (uint32_t)a->modules_seen + 1, true);
	}
}

static int by_offset(const void *left, const void *right) {
	const struct tm_early_question *a = left, *b = right;
	return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static void ask_early(struct tm_collector *c, struct tm_ahead_file *f, uint32_t number) {
	struct tm_ahead_reader *r = &c->ahead.readers[f->reader];
	bool tells = is_told_early(c, f);
	qsort(f->asked, f->asked_count, sizeof f->asked[0], by_offset);
	put_head(r, tells ? TM_AHEAD_TELL : TM_AHEAD_LEARN, f->number, f->asked_count);
	for (size_t i = 0; i < f->asked_count; i++) tm_put_raw(&r->out, &f->asked[i].offset, sizeof f->asked[i].offset);
	if (tells && !tm_names_early_ask(r, number, f->asked, f->asked_count)) stop(r);
}

static void ask_for_all(struct tm_collector *c) {
	struct tm_names_ahead *a = &c->ahead;
	for (size_t i = 0; i < a->file_count; i++) {
		struct tm_ahead_file *f = &a->files[i];
		struct tm_ahead_reader *r = &a->readers[f->reader];
		if (f->asked_count && is_there(r)) ask_early(c, f, (uint32_t)i);
		f->asked_count = 0;
	}
}

/* Takes what readers have told. */
static void hear(struct tm_collector *c) {
	struct tm_names_ahead *a = &c->ahead;
	for (unsigned i = 0; i < a->reader_count; i++)
		if (is_there(&a->readers[i])) tm_names_early_hear(c, &a->readers[i]);
}

void tm_names_ahead_look(struct tm_collector *c) {
	struct tm_names_ahead *a = &c->ahead;
	if (!c->options.embed_names) return;
	uint64_t now = tm_monotonic_ns();
	if (now >= a->hear_ns) {
		hear(c);
		a->hear_ns = now + HEAR_NS;
	}
	if (now < a->next_ns) return;
	if (!a->begin_ns) a->begin_ns = now;
	a->next_ns = a->begin_ns == now ? now + FIRST_LOOK_NS : now + LOOK_NS;
	if (a->begin_ns == now) return;
	if (now - a->begin_ns > TM_AHEAD_NS) {
		for (unsigned i = 0; i < a->reader_count; i++) stop(&a->readers[i]);
		a->next_ns = UINT64_MAX;
		return;
	}
	a->has_started = false;
	open_libc(c, now - a->begin_ns);
	note_frames(c, true);
	ask_for_all(c);
	for (unsigned i = 0; i < a->reader_count; i++)
		if (is_there(&a->readers[i]) && !tm_names_ahead_send(&a->readers[i])) stop(&a->readers[i]);
}

/* --- the end --- */

void tm_names_ahead_last_look(struct tm_collector *c) {
	if (!c->ahead.file_count) return;
	hear(c);
	note_frames(c, false);
}

struct tm_ahead_reader *tm_names_ahead_ask(struct tm_names_ahead *a, const struct tm_names_module *m, const uint64_t *offsets, size_t n, size_t *turn,
					   bool *told) {
	struct tm_ahead_file *f = m->path ? find(a, m->path, m->build_id, m->build_id_size) : NULL;
	*told = f && f->early.told;
	struct tm_ahead_reader *r = f ? &a->readers[f->reader] : NULL;
	if (!r || !is_there(r) || (!f->build_id_size && (f->module != m->id || !is_same_file(&f->file, f->path)))) return NULL;
	put_request(r, TM_AHEAD_ANSWER, f->number, offsets, n);
	*turn = tm_names_stream_expect(&r->stream, n);
	if (*turn != SIZE_MAX && tm_names_ahead_send(r)) return r;
	stop(r);
	return NULL;
}

void tm_names_ahead_go(struct tm_names_ahead *a) {
	for (unsigned i = 0; i < a->reader_count; i++) {
		struct tm_ahead_reader *r = &a->readers[i];
		if (!is_there(r) || !r->stream.turn_count) continue;
		put_head(r, TM_AHEAD_GO, 0, 0);
		if (!tm_names_ahead_send(r)) stop(r);
	}
}

void tm_names_ahead_release(struct tm_names_ahead *a) {
	for (unsigned i = 0; i < a->reader_count; i++) stop(&a->readers[i]);
	for (unsigned i = 0; i < a->reader_count; i++) {
		if (a->readers[i].pid > 0) tm_names_reader_kill(a->readers[i].pid);
		tm_bytes_release(&a->readers[i].out);
		tm_names_early_release_questions(&a->readers[i].questions);
	}
	for (size_t i = 0; i < a->file_count; i++) {
		free(a->files[i].path);
		free(a->files[i].build_id);
		free(a->files[i].asked);
		free(a->files[i].early.texts);
	}
	tm_names_early_release(&a->early);
	free(a->files);
	free(a->of_module);
	*a = (struct tm_names_ahead){ 0 };
}
