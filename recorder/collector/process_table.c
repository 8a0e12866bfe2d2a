/* process_table.c - the life of every process: see process_table.h. */
#include "process_table.h"

#include "collector.h"
#include "memory.h"
#include "process_notes.h"
#include "process_watch.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK_NS 10000000u         /* between two looks at who has died */
#define EXEC_SETTLES_NS 200000000u /* an exec that has not failed by then has happened, of what there is */
#define BEGIN_NS 1000000000u       /* a process attaches within this of its beginning */
#define LIFE_WAIT_NS 200000000u    /* the longest that an event waits for the watermark */
#define LOOKS_SHARE 20             /* looks into /proc take one so manyth of the time */
#define STATUS_WAIT_NS 1000000000u /* how long a parent may take to tell how its child ended before we take the child's word */

static char *copy_text(const char *text) {
	return text ? tm_memory_copy_text(text, strlen(text)) : NULL;
}

/* --- making and finding --- */

static struct tm_process *new_process(struct tm_collector *c, uint32_t pid, struct tm_process *parent, uint64_t ticks) {
	struct tm_process_table *t = &c->processes;
	struct tm_process *p = tm_memory_new(1, sizeof *p);
	p->pid = pid;
	p->parent = parent;
	p->start_ticks = ticks;
	p->pidfd = p->taken_status = -1;
	p->foreign = parent && parent->foreign;
	p->system_pid = p->foreign ? 0 : pid;
	p->same_pid = tm_id_map_get(&t->by_pid, pid);
	p->modules.epoch = ++c->modules.last_epoch;
	tm_id_map_set(&t->by_pid, pid, p);
	t->all = tm_memory_grow(t->all, &t->capacity, t->count + 1, sizeof t->all[0]);
	t->all[t->count++] = p;
	t->open = tm_memory_grow(t->open, &t->open_capacity, t->open_count + 1, sizeof t->open[0]);
	t->open[t->open_count++] = p;
	return p;
}

static void watch(struct tm_process *p) {
	if (p->pidfd < 0 && p->system_pid) p->pidfd = tm_pidfd_open(p->system_pid);
}

static uint32_t namespace_of(const char *process) {
	char name[64], link[64];
	snprintf(name, sizeof name, "/proc/%s/ns/pid", process);
	ssize_t n = readlink(name, link, sizeof link - 1);
	link[n > 0 ? n : 0] = 0;
	const char *number = strchr(link, '[');
	return number ? (uint32_t)strtoul(number + 1, NULL, 10) : 0;
}

/* A parent outside of the namespace speaks of it by that pid. */
static void know_by_system_pid(struct tm_collector *c, struct tm_process *p) {
	if (p->foreign && p->system_pid) tm_id_map_set(&c->processes.by_pid, p->system_pid, p);
}

static struct tm_process *newest(struct tm_collector *c, uint32_t pid) {
	return tm_id_map_get(&c->processes.by_pid, pid);
}

/* Forked by that parent, and it has not said a word, nor has anything been written of it. */
static bool is_silent_child(const struct tm_process *q, const struct tm_process *parent) {
	return q->parent == parent && q->fork_seen && !q->number && !q->id && !q->dead;
}

/* The silent child of its parent, if there is one alone. */
static struct tm_process *only_silent_child(struct tm_collector *c, const struct tm_process *p) {
	struct tm_process *found = NULL;
	if (!p->parent || p->parent->foreign) return NULL;
	for (size_t i = 0; i < c->processes.open_count; i++) {
		struct tm_process *q = c->processes.open[i];
		if (!is_silent_child(q, p->parent)) continue;
		if (found) return NULL;
		found = q;
	}
	return found;
}

/* Its parent's word of it was taken for that of another process: they are one. An image whose fork was heard of has no such double. */
static void is_the_forked_one(struct tm_process *p, struct tm_process *q) {
	if (p->fork_seen || !q || !is_silent_child(q, p->parent)) return;
	p->fork_seen = true;
	p->system_pid = q->pid; /* its parent is in our namespace */
	if (!p->id && q->start_ticks < p->start_ticks) p->start_ticks = q->start_ticks;
	if (q->pidfd >= 0) close(q->pidfd);
	q->pidfd = -1;
	q->gone = q->dead = q->end_written = true;
}

void tm_process_is_seen_as(struct tm_collector *c, struct tm_process *p, uint32_t pid_in_proc, uint32_t pid_namespace) {
	char process[16];
	uint32_t ours = namespace_of("self");
	/* In a chroot there may be no /proc to ask; but our own process 1 is nobody's child. */
	bool inherits = !pid_namespace && p->parent && (p->parent->foreign || p->pid == 1);
	if (!inherits && (!ours || !pid_namespace || pid_namespace == ours)) return;
	snprintf(process, sizeof process, "%u", pid_in_proc);
	p->foreign = c->processes.foreign_seen = true;
	p->system_pid = pid_in_proc && pid_namespace && namespace_of(process) == pid_namespace ? pid_in_proc : 0; /* else that /proc is not ours */
	if (p->pidfd >= 0) close(p->pidfd);
	p->pidfd = -1;
	is_the_forked_one(p, p->system_pid ? newest(c, p->system_pid) : only_silent_child(c, p));
	know_by_system_pid(c, p);
	watch(p);
}

static bool runs(const struct tm_process *p) {
	return p && !p->dead;
}

static struct tm_process *of_number(struct tm_collector *c, uint32_t number) {
	return number ? tm_id_map_get(&c->processes.by_number, number) : NULL;
}

struct tm_process *tm_process_of_ring(struct tm_collector *c, uint32_t number, uint32_t pid) {
	struct tm_process *p = of_number(c, number);
	return p && p->pid == pid ? p : NULL;
}

struct tm_process *tm_process_add_root(struct tm_collector *c, uint32_t pid, const char *exe, char **command, enum tm_exec_class class) {
	struct tm_process *p = new_process(c, pid, NULL, c->timebase.map.start_ticks);
	p->is_root = true;
	p->root_class = class;
	p->exe = copy_text(exe);
	*tm_process_launcher(p) = c->launcher;
	for (size_t i = 0; command && command[i] && (i == 0 || c->options.keep_args); i++) {
		size_t n = strlen(command[i]), at = i ? p->command_bytes + 1 : 0;
		p->command = tm_memory_resize(p->command, at + n + 1, 1);
		if (i) p->command[at - 1] = 0;
		memcpy(p->command + at, command[i], n + 1);
		p->command_bytes = at + n;
	}
	watch(p);
	return p;
}

struct tm_launcher *tm_process_launcher(struct tm_process *p) {
	if (p->launcher) return p->launcher;
	p->launcher = tm_memory_new(1, sizeof *p->launcher);
	*p->launcher = (struct tm_launcher)TM_LAUNCHER_NONE;
	return p->launcher;
}

/* --- rows --- */

static struct tm_text text_of(struct tm_group *g, const char *data, size_t n) {
	return data ? tm_group_text(g, data, n) : (struct tm_text){ "", 0 };
}

static const struct tm_launcher *launcher_of(const struct tm_process *p) {
	static const struct tm_launcher nothing = TM_LAUNCHER_NONE;
	const struct tm_process *tells = p->number || p->is_root || !p->parent ? p : p->parent;
	return tells->launcher ? tells->launcher : &nothing;
}

/* Whose command line is a process' own. A fork's child may have no descriptor left to read it by. */
static const struct tm_process *with_command(const struct tm_process *p) {
	while (!p->command && p->flags & TM_PROCESS_FORKED && p->parent) p = p->parent;
	return p;
}

static void write_row(struct tm_collector *c, struct tm_process *p) {
	/* A fork's child that never attached runs what its parent runs. */
	const struct tm_process *like = p->exe || !p->parent ? p : p->parent, *called = with_command(like);
	const struct tm_launcher *launcher = launcher_of(p);
	struct tm_meta *meta = tm_group_add(c->group, TM_RECORD_PROCESS_START);
	meta->process_start = (struct tm_process_start){
		.id = p->id,
		.pid = p->pid,
		.parent_id = p->parent ? p->parent->id : 0,
		.start_ns = p->start_ticks,
		.flags = p->flags,
		.rank = launcher->rank,
		.local_rank = launcher->local_rank,
		.world_size = launcher->world_size,
		.exe = text_of(c->group, like->exe, like->exe ? strlen(like->exe) : 0),
		.command = text_of(c->group, called->command, called->command_bytes),
		.host = tm_group_text(c->group, c->host, strlen(c->host)),
	};
}

/* Which ranks count together: said where it is not the parent's world. */
static void note_world(struct tm_collector *c, struct tm_process *p) {
	const struct tm_launcher *l = launcher_of(p), *above = p->parent ? launcher_of(p->parent) : NULL;
	char world[TM_WORLD_TEXT_MAX], around[TM_WORLD_TEXT_MAX] = "";
	if (l->rank < 0) return;
	tm_launcher_world(l, &c->launcher, world);
	if (above && above->rank >= 0) tm_launcher_world(above, &c->launcher, around);
	if (*world && strcmp(world, around) != 0) tm_group_add_note(c->group, p->id, p->start_ticks, TM_NOTE_WORLD, world);
}

static void tell_sampler(struct tm_collector *c, struct tm_process *p) {
	if (!p->number || p->sampled || p->dead || p->gone || !p->system_pid) return;
	p->sampled = true;
	tm_sampler_add(&c->sampler, p->system_pid, p->id, p->number);
}

static struct tm_process *as_it_became(struct tm_collector *c, struct tm_process *p);

void tm_process_need_row(struct tm_collector *c, struct tm_process *p) {
	p->announcing = false;
	if (!p->id && !p->number) as_it_became(c, p); /* a row cannot be changed */
	if (!p->id) {
		if (p->parent) tm_process_need_row(c, p->parent);
		p->id = ++c->processes.last_id;
		write_row(c, p);
		note_world(c, p);
		tm_alerts_process(c, p);
	}
	tell_sampler(c, p);
}

static void write_end(struct tm_collector *c, struct tm_process *p, enum tm_end_kind kind, uint64_t code) {
	tm_process_need_row(c, p);
	tm_process_note_cut_stacks(c, p);
	tm_process_note_left_out(c, p);
	tm_pools_settle(c, p);
	struct tm_meta *meta = tm_group_add(c->group, TM_RECORD_PROCESS_END);
	meta->process_end = (struct tm_process_end){ p->id, p->end_ticks, kind, code };
	p->end_written = true;
	tm_tally_process_ended(c->tally, p->id);
}

/* The command's own end is the end of the trace. */
static void ask_for_dump(struct tm_collector *c, const struct tm_process *p, int number) {
	static const int fatal[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP, SIGKILL };
	char why[64];
	size_t i = 0;
	while (i < sizeof fatal / sizeof fatal[0] && fatal[i] != number) i++;
	if (i == sizeof fatal / sizeof fatal[0] || p->is_root || !p->number) return;
	snprintf(why, sizeof why, "process %u was ended by signal %d", p->pid, number);
	tm_dumps_ask(c, why, true);
}

/* Of one that could have been recorded that is said with its end, which may be why; its parent may tell of that later than it is seen to be dead. */
static void tell_unrecorded(struct tm_collector *c, struct tm_process *p, enum tm_exec_class class) {
	p->flags |= TM_PROCESS_UNRECORDED;
	p->unsaid = class == TM_EXEC_NATIVE;
	if (!p->unsaid) tm_process_note_unrecorded(c, p, class, TM_STATUS_UNKNOWN);
}

static void write_end_of_status(struct tm_collector *c, struct tm_process *p, int status) {
	bool is_known = status != TM_STATUS_UNKNOWN;
	if (p->unsaid) tm_process_note_unrecorded(c, p, TM_EXEC_NATIVE, status);
	p->unsaid = false;
	if (is_known && WIFSIGNALED(status)) ask_for_dump(c, p, WTERMSIG(status));
	if (!is_known) write_end(c, p, TM_END_UNKNOWN, 0);
	else if (WIFSIGNALED(status)) write_end(c, p, TM_END_SIGNAL, (uint64_t)WTERMSIG(status));
	else write_end(c, p, TM_END_EXIT, (uint64_t)WEXITSTATUS(status));
}

/* --- exec --- */

static void forget_exec(struct tm_process *p) {
	free(p->exec.path);
	p->exec = (struct tm_pending_exec){ 0 };
}

static struct tm_pending_exec take_exec(struct tm_process *p) {
	struct tm_pending_exec exec = p->exec;
	p->exec = (struct tm_pending_exec){ 0 };
	return exec;
}

/* What was told of, whose path it takes over. */
static struct tm_pending_exec exec_of(struct tm_life_event *e) {
	struct tm_pending_exec exec = { true, e->class, e->ticks, e->seen_ns, e->path };
	e->path = NULL;
	return exec;
}

static void end_by_exec(struct tm_collector *c, struct tm_process *p, uint64_t ticks) {
	p->gone = p->dead = p->replaced = true;
	p->end_ticks = ticks;
	p->is_root = false;
	if (p->sampled) tm_sampler_remove(&c->sampler, p->id);
	if (p->pidfd >= 0) close(p->pidfd);
	p->pidfd = -1;
	write_end(c, p, TM_END_EXEC, 0);
}

/* The image that took the place of p. */
static struct tm_process *replace(struct tm_collector *c, struct tm_process *p, uint64_t ticks) {
	struct tm_process *image = new_process(c, p->pid, p->parent, ticks);
	image->flags = TM_PROCESS_EXECED;
	image->is_root = p->is_root;
	image->fork_seen = image->exec_seen = true;
	if (p->launcher) *tm_process_launcher(image) = *p->launcher;
	image->foreign = p->foreign;
	image->system_pid = p->system_pid;
	know_by_system_pid(c, image);
	watch(image);
	end_by_exec(c, p, ticks);
	return image;
}

/* The announced exec happened, and the new image does not record itself. Returns the image's process. */
static struct tm_process *settle_exec(struct tm_collector *c, struct tm_process *p) {
	struct tm_pending_exec exec = take_exec(p);
	struct tm_process *image = p->number ? replace(c, p, exec.ticks) : p;
	image->flags = TM_PROCESS_EXECED;
	free(image->exe);
	image->exe = exec.path;
	tell_unrecorded(c, image, exec.class);
	return image;
}

static struct tm_process *child_for(struct tm_collector *c, struct tm_process *parent, uint32_t pid, uint64_t ticks, uint32_t flags) {
	struct tm_process *child = newest(c, pid);
	if (runs(child) && (child->parent == parent || child == parent)) return child;
	child = new_process(c, pid, parent, ticks);
	child->flags = flags;
	watch(child);
	return child;
}

/* The image that a vfork child became, where it has attached before its parent's word of that is read. seen: and whether that was. */
static struct tm_process *image_of_child(struct tm_collector *c, const struct tm_process *parent, uint32_t pid, bool seen) {
	for (struct tm_process *q = newest(c, pid); q; q = q->same_pid)
		if (q->parent == parent && q->number && q->exec_seen == seen && q->flags & TM_PROCESS_EXECED) return q;
	return NULL;
}

/* What attaches is not the image of an exec of such a program, but what that has become, or begun. Others may bear our library although it seemed that they do
 * not. */
static bool loads_nothing(enum tm_exec_class class) {
	return class == TM_EXEC_STATIC || tm_exec_bears_no_preload(class);
}

/* The command, of which it is known that it will say nothing, and not yet said. */
static bool is_silent_root(const struct tm_process *p) {
	return p->is_root && !p->number && loads_nothing(p->root_class) && !(p->flags & TM_PROCESS_UNRECORDED);
}

/* What was told last of execs of the process, and has not taken effect: that there was one, or that it failed; NULL: nothing. */
static struct tm_life_event *told_exec(struct tm_collector *c, const struct tm_process *p) {
	for (size_t i = c->processes.life_count; i-- > 0;) {
		struct tm_life_event *e = &c->processes.life[i];
		if (e->kind != TM_LIFE_EXEC && e->kind != TM_LIFE_EXEC_FAILED) continue;
		bool own = e->pid == 0 || e->pid == e->process->pid;
		if (own ? e->process == p : e->pid == p->pid && e->process == p->parent && !p->number) return e;
	}
	return NULL;
}

enum answer { NO, YES, UNKNOWN };

/* Whether the process runs that file, by its real name. */
static enum answer runs_file(const struct tm_process *p, const char *path) {
	char link[64], exe[PATH_MAX], real[PATH_MAX];
	if (!p->system_pid || !path || !realpath(path, real)) return UNKNOWN;
	snprintf(link, sizeof link, "/proc/%u/exe", p->system_pid);
	ssize_t n = readlink(link, exe, sizeof exe - 1);
	if (n <= 0) return UNKNOWN;
	exe[n] = 0;
	return strcmp(exe, real) == 0 ? YES : NO;
}

/* A program that does not record itself says nothing of what it begins. Where that comes, and an exec of such a program was told, it takes effect already if it
 * happened for certain: who tells of execs goes on, and may yet tell that it failed; who never recorded itself had to become something to begin another.
 * Returns who the process is by now. */
static struct tm_process *as_it_became(struct tm_collector *c, struct tm_process *p) {
	if (!p || p->dead || newest(c, p->pid) != p) return p;
	if (is_silent_root(p)) tell_unrecorded(c, p, p->root_class);
	struct tm_life_event *e = told_exec(c, p);
	if (e && e->kind == TM_LIFE_EXEC_FAILED) return p;
	if (!e && !p->exec.announced) return p;
	if (!loads_nothing(e ? e->class : p->exec.class)) return p;
	enum answer happened = runs_file(p, e ? e->path : p->exec.path);
	if (p->number ? happened != YES : happened == NO) return p;
	if (e) {
		forget_exec(p);
		p->exec = exec_of(e);
		e->kind = TM_LIFE_DONE;
	}
	return settle_exec(c, p);
}

/* --- what lay between two images that told of themselves --- */

static void forget_before(struct tm_process *image) {
	free(image->before.path);
	image->before = (struct tm_pending_exec){ 0 };
}

/* Before the image attached the process had exec'd another one, unless it is told that this failed, or it runs that: a loader that was run by hand looks like
 * such a program. */
static void remember_before(struct tm_process *image, struct tm_pending_exec exec) {
	forget_before(image);
	image->before = exec;
	if (runs_file(image, exec.path) == YES) forget_before(image);
}

/* The exec that was told before that time failed. */
static void drop_before(struct tm_process *image, uint64_t ticks) {
	if (image && image->before.announced && image->before.ticks <= ticks) forget_before(image);
}

/* All has been read that was told before the image attached, and no failure. Its row comes behind that of the image. */
static void settle_before(struct tm_collector *c, struct tm_process *image) {
	struct tm_pending_exec exec = image->before;
	image->before = (struct tm_pending_exec){ 0 };
	struct tm_process *last = newest(c, image->pid), *before = new_process(c, image->pid, image->parent, exec.ticks);
	before->same_pid = image->same_pid;
	image->same_pid = before;
	tm_id_map_set(&c->processes.by_pid, image->pid, last);
	before->flags = TM_PROCESS_EXECED | TM_PROCESS_UNRECORDED;
	before->fork_seen = before->exec_seen = true;
	before->exe = exec.path;
	tm_process_note_unrecorded(c, before, exec.class, TM_STATUS_UNKNOWN);
	end_by_exec(c, before, image->attach_ticks);
}

static struct tm_process *image_behind(struct tm_collector *c, const struct tm_process *p) {
	struct tm_process *q = newest(c, p->pid);
	while (q && q->same_pid != p) q = q->same_pid;
	return q && q->number && q->flags & TM_PROCESS_EXECED ? q : NULL;
}

/* An exec that is read of when the image behind it has attached already, which ended the one that told of it. */
static void exec_was_between(struct tm_collector *c, struct tm_life_event *e) {
	struct tm_process *p = e->process, *image = image_behind(c, p);
	if (!image || !loads_nothing(e->class) || e->ticks > image->attach_ticks) return;
	remember_before(image, exec_of(e));
}

/* A child of which one or more things are told: its fork or spawn, its execs. */
static void leave_out_child(struct tm_collector *c, struct tm_process *parent, uint32_t pid) {
	if (tm_id_map_get(&c->processes.left_out, pid) == parent) return;
	tm_id_map_set(&c->processes.left_out, pid, parent);
	parent->children_left_out++;
}

/* Whose parent had ended when it attached was taken for the child of nobody, or of who takes care of such children. Now its parent tells of it. */
static void adopt(struct tm_collector *c, const struct tm_life_event *e) {
	uint64_t ns = tm_time_map_ns(&c->timebase.map, e->ticks);
	struct tm_process *newer = newest(c, e->pid), *p = newer;
	for (; p; p = p->same_pid) {
		uint64_t start_ns = tm_time_map_ns(&c->timebase.map, p->start_ticks),
			 apart_ns = start_ns > ns ? start_ns - ns : ns - start_ns;
		if (p->parent_guessed && p->foreign == e->process->foreign && apart_ns < BEGIN_NS) break;
	}
	if (!p) return;
	const struct tm_process *guess = p->parent;
	for (; newer != p->same_pid; newer = newer->same_pid)
		if (newer->parent == guess) newer->parent = e->process; /* and that of what it has become meanwhile */
	p->parent_guessed = false;
	p->flags |= TM_PROCESS_EXECED;
}

/* An exec of a vfork child, told by its parent, whose new image has attached before we read of it. */
static bool exec_is_known(struct tm_collector *c, struct tm_life_event *e) {
	struct tm_process *image = image_of_child(c, e->process, e->pid, false);
	if (!image) return false;
	image->exec_seen = true;
	if (!loads_nothing(e->class)) return true;
	remember_before(image, exec_of(e));
	return true;
}

static void execs(struct tm_collector *c, struct tm_life_event *e) {
	struct tm_process *p = e->process;
	bool own = e->pid == 0 || e->pid == p->pid;
	if (!own && !c->options.follow) leave_out_child(c, p, e->pid);
	if (!own) adopt(c, e);
	if (!own && (!c->options.follow || exec_is_known(c, e))) return;
	struct tm_process *target = own ? p : child_for(c, p, e->pid, e->ticks, TM_PROCESS_FORKED);
	if (target->dead && own) exec_was_between(c, e);
	if (target->dead) return;
	forget_exec(target);
	target->exec = exec_of(e);
}

/* Who looks for a program along PATH announces one exec after the other, of which the last succeeds: the image is that one's. */
static void exec_failed(struct tm_collector *c, const struct tm_life_event *e) {
	bool own = e->pid == 0 || e->pid == e->process->pid;
	struct tm_process *target = own ? e->process : newest(c, e->pid), *image = own ? NULL : image_of_child(c, e->process, e->pid, true);
	if (target) forget_exec(target);
	if (image) image->exec_seen = false;
	drop_before(own && target->dead ? image_behind(c, target) : image ? image : target, e->ticks);
}

/* --- beginnings --- */

static struct tm_process *attach_known(struct tm_collector *c, struct tm_process *p, uint32_t parent_number, uint64_t ticks) {
	if (p->exec.announced && loads_nothing(p->exec.class)) {
		p->flags = TM_PROCESS_EXECED;
		p->start_ticks = ticks;
		p->exec_seen = true;
		remember_before(p, take_exec(p));
	} else if (p->exec.announced) {
		p->flags = TM_PROCESS_EXECED;
		p->start_ticks = p->exec.ticks;
		p->exec_seen = true;
		forget_exec(p);
	} else if (!parent_number && p->parent) {
		p->flags = TM_PROCESS_EXECED; /* an image begins by itself, whose exec is still to be read of; a fork's child says whose it is */
	}
	if (ticks < p->start_ticks) p->start_ticks = ticks;
	if (parent_number) p->flags = TM_PROCESS_FORKED;
	if (parent_number && !p->parent) p->parent = of_number(c, parent_number);
	return p;
}

/* Who says that it began this one, in what has been read and has not taken effect. */
static struct tm_process *beginner(const struct tm_collector *c, uint32_t pid) {
	for (size_t i = c->processes.life_count; i-- > 0;) {
		const struct tm_life_event *e = &c->processes.life[i];
		bool begins = e->kind == TM_LIFE_FORK || e->kind == TM_LIFE_SPAWN || e->kind == TM_LIFE_EXEC;
		if (begins && e->pid == pid && e->process->pid != pid) return e->process;
	}
	return NULL;
}

/* The process of that pid, which may be the child of one that tells of it, and be known by nothing else yet. */
static struct tm_process *who_has(struct tm_collector *c, uint32_t pid) {
	struct tm_process *known = newest(c, pid);
	for (size_t i = c->processes.life_count; i-- > 0 && !runs(known);) {
		struct tm_life_event *e = &c->processes.life[i];
		bool is_exec = e->kind == TM_LIFE_EXEC || e->kind == TM_LIFE_EXEC_FAILED;
		if (!is_exec || e->pid != pid || e->process->pid == pid || !c->options.follow) continue;
		return e->kind == TM_LIFE_EXEC ? child_for(c, e->process, pid, e->ticks, TM_PROCESS_FORKED) : known;
	}
	return known;
}

static struct tm_process *attach_new(struct tm_collector *c, uint32_t pid, uint32_t ppid, uint32_t parent_number, uint64_t ticks) {
	struct tm_process *parent = parent_number ? of_number(c, parent_number) : beginner(c, pid), *p;
	bool guessed = !parent && !parent_number;
	if (guessed) parent = as_it_became(c, who_has(c, ppid));
	p = new_process(c, pid, parent, ticks);
	p->parent_guessed = guessed;
	p->flags = parent_number ? TM_PROCESS_FORKED : parent ? TM_PROCESS_EXECED : 0;
	watch(p);
	return p;
}

/* Its image attached, with or without a word of an exec. */
static struct tm_process *become(struct tm_collector *c, struct tm_process *p, uint64_t ticks) {
	struct tm_pending_exec exec = take_exec(p);
	struct tm_process *image = replace(c, p, exec.announced ? exec.ticks : ticks);
	if (exec.announced && loads_nothing(exec.class)) {
		image->start_ticks = ticks;
		remember_before(image, exec);
	} else {
		free(exec.path);
	}
	return image;
}

struct tm_process *tm_process_attached(struct tm_collector *c, uint32_t number, uint32_t pid, uint32_t ppid, uint32_t parent_number,
				       uint64_t ticks) {
	struct tm_process *known = newest(c, pid), *p = tm_process_of_ring(c, number, pid);
	if (p) return p;
	if (runs(known) && is_silent_root(known) && !parent_number && runs_file(known, known->exe) != YES)
		tell_unrecorded(c, known, known->root_class); /* else it is a loader that was run by hand */
	if (runs(known) && !known->number && !(known->flags & TM_PROCESS_UNRECORDED)) p = attach_known(c, known, parent_number, ticks);
	else if (runs(known) && !parent_number)
		p = become(c, known, ticks); /* its death is not settled, so its pid cannot be another's yet */
	else p = attach_new(c, pid, ppid, parent_number, ticks);
	p->number = number;
	p->attach_ticks = ticks;
	p->announcing = true;
	free(p->launcher); /* it tells all that is in its environment, which may be another than that of what it was before */
	p->launcher = NULL;
	tm_id_map_set(&c->processes.by_number, number, p);
	return p;
}

/* A child in a pid namespace of its own attached by the pid that it has there, and was over before /proc could tell which pid its parent means, or has another
 * /proc than we. Where there is one such child alone, of whose beginning its parent has not spoken, this is it. */
static bool is_in_namespace(struct tm_collector *c, const struct tm_life_event *e) {
	struct tm_process_table *t = &c->processes;
	struct tm_process *found = NULL;
	if (!t->foreign_seen || e->process->foreign) return false;
	for (size_t i = 0; i < t->count; i++) {
		struct tm_process *q = t->all[i];
		if (q->parent != e->process || !q->number || !q->foreign || q->system_pid || q->fork_seen) continue;
		if (found) return false;
		found = q;
	}
	if (!found) return false;
	found->fork_seen = true;
	struct tm_process *image = newest(c, found->pid); /* that which it has become meanwhile */
	if (image->parent != found->parent || !image->foreign) image = found;
	image->system_pid = e->pid;
	know_by_system_pid(c, image);
	if (!image->gone) watch(image);
	return true;
}

static void forked(struct tm_collector *c, const struct tm_life_event *e) {
	if (!e->pid) return;
	if (!c->options.follow) {
		leave_out_child(c, e->process, e->pid);
		return;
	}
	adopt(c, e);
	struct tm_process *oldest = NULL;
	for (struct tm_process *q = newest(c, e->pid); q; q = q->same_pid)
		if (q->parent == e->process && !q->fork_seen) oldest = q;
	if (oldest) {
		oldest->fork_seen = true;
		if (!oldest->id && e->ticks < oldest->start_ticks) oldest->start_ticks = e->ticks;
		return;
	}
	if (is_in_namespace(c, e)) return;
	struct tm_process *child = new_process(c, e->pid, e->process, e->ticks);
	child->flags = e->kind == TM_LIFE_SPAWN ? TM_PROCESS_EXECED : TM_PROCESS_FORKED;
	child->fork_seen = true;
	watch(child);
	if (e->class != TM_EXEC_CONFINED) return;
	child->flags |= TM_PROCESS_UNRECORDED;
	if (e->process->exe) child->exe = tm_memory_copy_text(e->process->exe, strlen(e->process->exe));
	tm_process_note_unrecorded(c, child, e->class, TM_STATUS_UNKNOWN);
}

/* --- ends --- */

static void mark_dead(struct tm_collector *c, struct tm_process *p, uint64_t ticks) {
	if (p->dead) return;
	if (p->exec.announced) p = settle_exec(c, p);
	p->gone = p->dead = true;
	p->dead_ns = tm_monotonic_ns();
	p->end_ticks = ticks;
	if (p->sampled) tm_sampler_remove(&c->sampler, p->id);
	if (p->pidfd >= 0) close(p->pidfd);
	p->pidfd = -1;
	if (p->is_root && !p->number && !(p->flags & TM_PROCESS_UNRECORDED)) tell_unrecorded(c, p, p->root_class);
}

/* The kernel said that it died. If it had exec'd meanwhile, it is its last image that did. */
static void died(struct tm_collector *c, const struct tm_life_event *e) {
	struct tm_process *p = e->process->dead ? newest(c, e->pid) : e->process;
	if (!runs(p)) return;
	if (p->exec.announced) p = settle_exec(c, p);
	if (e->status >= 0) {
		p->exited = true;
		p->exit_status = e->status;
	}
	mark_dead(c, p, e->ticks);
}

/* The newest of that pid that began before: later ones may have attached already. */
static struct tm_process *not_waited(struct tm_collector *c, uint32_t pid, const struct tm_process *parent, uint64_t ticks) {
	for (struct tm_process *q = newest(c, pid); q; q = q->same_pid)
		if (!q->waited && !q->end_written && (!parent || q->parent == parent) && q->start_ticks <= ticks) return q;
	return NULL;
}

static void waited(struct tm_collector *c, const struct tm_life_event *e) {
	if (!e->pid || !(WIFEXITED(e->status) || WIFSIGNALED(e->status))) return;
	if (!c->options.follow) {
		if (!e->traces) leave_out_child(c, e->process, e->pid);
		tm_id_map_set(&c->processes.left_out, e->pid, NULL); /* the pid may be another's from here on */
		return;
	}
	struct tm_process *child = not_waited(c, e->pid, e->process, e->ticks);
	if (!child) child = not_waited(c, e->pid, NULL, e->ticks);
	if (!child && !e->traces && is_in_namespace(c, e)) child = not_waited(c, e->pid, e->process, e->ticks);
	if (!child) {
		if (newest(c, e->pid) || e->traces) return; /* waited for twice (WNOWAIT), its end is written, or it is no child */
		child = new_process(c, e->pid, e->process, e->ticks);
		child->flags = TM_PROCESS_FORKED;
	}
	if (child->exec.announced && !child->dead) child = settle_exec(c, child);
	child->waited = true;
	child->wait_status = e->status;
	mark_dead(c, child, e->ticks);
}

static void root_ended(struct tm_collector *c, const struct tm_life_event *e) {
	struct tm_process *p = newest(c, e->pid);
	if (!p) return;
	if (p->exec.announced && !p->dead) p = settle_exec(c, p);
	p->waited = true;
	p->wait_status = e->status;
	mark_dead(c, p, e->ticks);
}

/* --- in the order of their stamps --- */

void tm_process_life(struct tm_collector *c, struct tm_life_event event, const char *path, size_t n) {
	struct tm_process_table *t = &c->processes;
	event.seen_ns = tm_monotonic_ns();
	if (path) event.path = tm_memory_copy_text(path, n);
	t->life = tm_memory_grow(t->life, &t->life_capacity, t->life_count + 1, sizeof t->life[0]);
	size_t at = t->life_count++;
	for (; at > 0 && t->life[at - 1].ticks > event.ticks; at--) t->life[at] = t->life[at - 1];
	t->life[at] = event;
}

static void take_effect(struct tm_collector *c, struct tm_life_event *e) {
	switch (e->kind) {
	case TM_LIFE_DONE: break;
	case TM_LIFE_FORK:
	case TM_LIFE_SPAWN: forked(c, e); break;
	case TM_LIFE_EXEC: execs(c, e); break;
	case TM_LIFE_EXEC_FAILED: exec_failed(c, e); break;
	case TM_LIFE_WAIT: waited(c, e); break;
	case TM_LIFE_DEATH: died(c, e); break;
	case TM_LIFE_ROOT_END: root_ended(c, e); break;
	}
	free(e->path);
}

/* A thread that is stopped inside of an event holds the watermark; lives go on after a while all the same. */
static void settle_lives(struct tm_collector *c, bool all) {
	struct tm_process_table *t = &c->processes;
	uint64_t now = tm_monotonic_ns();
	size_t due = 0;
	while (due < t->life_count && (all || t->life[due].ticks < c->watermark_ticks || now - t->life[due].seen_ns > LIFE_WAIT_NS)) {
		struct tm_life_event event = t->life[due];
		t->life[due++].kind = TM_LIFE_DONE; /* others may look for what is told of them meanwhile */
		take_effect(c, &event);
	}
	if (!due) return;
	t->life_count -= due;
	memmove(t->life, t->life + due, t->life_count * sizeof t->life[0]);
}

bool tm_processes_unsettled(const struct tm_collector *c) {
	return c->processes.life_count != 0;
}

void tm_process_exit_begins(struct tm_collector *c, struct tm_process *p, uint64_t ticks) {
	if (p->exit_written) return;
	p->exit_written = true;
	tm_process_need_row(c, p);
	struct tm_meta *meta = tm_group_add(c->group, TM_RECORD_PROCESS_EXIT);
	meta->process_exit = (struct tm_process_exit){ p->id, ticks };
}

void tm_process_root_ended(struct tm_collector *c, uint32_t pid, int status) {
	struct tm_life_event event = { .kind = TM_LIFE_ROOT_END, .ticks = tm_timebase_ticks(&c->timebase), .pid = pid, .status = status };
	for (struct tm_process *p = newest(c, pid); p; p = p->same_pid) p->gone = true;
	tm_process_life(c, event, NULL, 0);
}

/* Writes the end of a dead process when it is known how it ended, or when nobody can tell any more. True: written. */
static bool end_if_due(struct tm_collector *c, struct tm_process *p, bool closing) {
	if (p->end_written) return true;
	if (!p->dead) return false;
	bool patient = !closing && tm_monotonic_ns() - p->dead_ns < STATUS_WAIT_NS;
	bool parent_may_tell = runs(p->parent) && !closing;
	if (p->waited) write_end_of_status(c, p, p->wait_status);
	else if (p->exited && !patient) write_end_of_status(c, p, p->exit_status);
	else if (!patient && !parent_may_tell) write_end_of_status(c, p, p->taken_status);
	return p->end_written;
}

/* Those that are dead and wait for their parent's word are not among them: poll() takes no more than there may be descriptors. */
static bool poll_pidfds(struct tm_process_table *t) {
	size_t count = 0;
	t->polls = tm_memory_grow(t->polls, &t->poll_capacity, t->open_count, sizeof t->polls[0]);
	for (size_t i = 0; i < t->open_count; i++) {
		struct tm_process *p = t->open[i];
		p->poll = !p->gone && p->pidfd >= 0 ? ++count : 0;
		if (p->poll) t->polls[count - 1] = (struct pollfd){ .fd = p->pidfd, .events = POLLIN };
	}
	return poll(t->polls, count, 0) >= 0;
}

/* Whom no descriptor tells of is looked up in /proc; where these are thousands, and not all must be known now, not each time. */
static void poll_all(struct tm_collector *c, bool now) {
	struct tm_process_table *t = &c->processes;
	size_t count = t->open_count;
	bool polled = poll_pidfds(t);
	uint64_t ticks = tm_timebase_ticks(&c->timebase), begin_ns = tm_monotonic_ns();
	bool looks = now || begin_ns >= t->look_ns;
	for (size_t i = 0; i < count; i++) {
		struct tm_process *p = t->open[i];
		int status = -1;
		if (p->gone || !p->system_pid) continue;
		bool is_told = p->poll && polled;
		bool gone = is_told ? (t->polls[p->poll - 1].revents & POLLIN) != 0 : looks && tm_proc_says_dead(p->system_pid, &status);
		if (!gone) continue;
		if (p->pidfd >= 0) tm_proc_says_dead(p->system_pid, &status);
		if (p->pidfd >= 0 && status < 0) p->taken_status = tm_status_of_taken(p->pidfd);
		p->gone = true;
		tm_process_life(
			c, (struct tm_life_event){ .kind = TM_LIFE_DEATH, .ticks = ticks, .process = p, .pid = p->pid, .status = status },
			NULL, 0);
	}
	uint64_t end_ns = tm_monotonic_ns();
	if (looks) t->look_ns = end_ns + LOOKS_SHARE * (end_ns - begin_ns);
}

/* Long ago, and of a file that is there. */
static bool exec_has_happened(const struct tm_pending_exec *e, uint64_t now) {
	if (!e->announced || e->class == TM_EXEC_NATIVE || now - e->seen_ns <= EXEC_SETTLES_NS) return false;
	return e->class != TM_EXEC_UNKNOWN || !e->path || access(e->path, F_OK) == 0 || errno != ENOENT;
}

void tm_processes_check(struct tm_collector *c, bool all) {
	struct tm_process_table *t = &c->processes;
	uint64_t now = tm_monotonic_ns();
	if (!all && !t->life_count && now - t->checked_ns < CHECK_NS) return;
	t->checked_ns = now;
	poll_all(c, false);
	settle_lives(c, false);
	for (size_t i = 0; i < t->open_count; i++) {
		struct tm_process *p = t->open[i];
		if (!p->dead && exec_has_happened(&p->exec, now)) settle_exec(c, p);
		if (p->before.announced && (p->attach_ticks < c->watermark_ticks || p->dead)) settle_before(c, p);
	}
	size_t kept = 0;
	for (size_t i = 0; i < t->open_count; i++)
		if (!end_if_due(c, t->open[i], false)) t->open[kept++] = t->open[i];
		else tm_stack_tree_process_ended(&c->stacks, t->open[i]->id);
	t->open_count = kept;
}

bool tm_processes_have(const struct tm_collector *c, uint32_t system_pid) {
	const struct tm_process_table *t = &c->processes;
	for (size_t i = 0; i < t->open_count; i++)
		if (t->open[i]->system_pid == system_pid && !t->open[i]->gone) return true;
	return false;
}

bool tm_processes_any_alive(const struct tm_collector *c) {
	const struct tm_process_table *t = &c->processes;
	for (size_t i = 0; i < t->open_count; i++) {
		const struct tm_process *p = t->open[i];
		if (!p->gone && !p->is_root && p->system_pid && !(p->flags & TM_PROCESS_UNRECORDED)) return true;
	}
	return false;
}

static void finish_running(struct tm_collector *c, struct tm_process *p) {
	char text[256];
	if (p->exec.announced) p = settle_exec(c, p);
	tm_process_need_row(c, p);
	snprintf(text, sizeof text, "process %u still runs%s; it is not recorded from here on", p->pid,
		 p->system_pid ? "" : ", or ended unseen in a pid namespace of its own");
	if (!(p->flags & TM_PROCESS_UNRECORDED) && (p->system_pid || !p->exited))
		tm_group_add_note(c->group, p->id, tm_timebase_ticks(&c->timebase), TM_NOTE_STILL_RUNNING, text);
	p->gone = p->dead = true;
	p->end_ticks = tm_timebase_ticks(&c->timebase);
}

void tm_processes_settle(struct tm_collector *c) {
	poll_all(c, true);
	settle_lives(c, true);
	poll_all(c, true); /* also those that were only now told of */
}

void tm_processes_finish(struct tm_collector *c) {
	struct tm_process_table *t = &c->processes;
	poll_all(c, true);
	settle_lives(c, true);
	for (size_t i = 0; i < t->open_count; i++) {
		if (t->open[i]->before.announced) settle_before(c, t->open[i]);
		if (!t->open[i]->dead) finish_running(c, t->open[i]);
		end_if_due(c, t->open[i], true);
	}
	for (size_t i = 0; i < t->count; i++) tm_process_note_cut_stacks(c, t->all[i]);
	t->open_count = 0;
}

void tm_processes_release(struct tm_process_table *t) {
	for (size_t i = 0; i < t->count; i++) {
		struct tm_process *p = t->all[i];
		forget_exec(p);
		forget_before(p);
		if (p->pidfd >= 0) close(p->pidfd);
		free(p->exe);
		free(p->command);
		free(p->launcher);
		free(p->modules.ids);
		tm_own_numbers_release(&p->own);
		free(p);
	}
	for (size_t i = 0; t->threads.slots && i <= t->threads.mask; i++) free(t->threads.slots[i].value);
	tm_id_map_release(&t->by_pid);
	tm_id_map_release(&t->by_number);
	tm_id_map_release(&t->threads);
	tm_id_map_release(&t->threads_by_tid);
	free(t->held_names.all);
	tm_id_map_release(&t->left_out);
	for (size_t i = 0; i < t->life_count; i++) free(t->life[i].path);
	free(t->life);
	free(t->all);
	free(t->open);
	free(t->polls);
	*t = (struct tm_process_table){ 0 };
}
