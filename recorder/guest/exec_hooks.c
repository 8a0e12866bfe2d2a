/* exec_hooks.c - the exec family and posix_spawn; and a word about what system() and popen() start.
 *
 * Flow:     the program's exec call -> here (exec_target.c: what is it? exec_env.c: what must its environment say?) -> EXEC record -> the
 *           real call
 * Idea:     a new image knows nothing of us but its environment, and nobody comes back to tell what became of it. So everything is said
 *           before.
 * vfork:    a vfork child shares its parent's memory: its calls are recorded in the parent's ring with the child's own pid, and nothing
 *           may be left behind in memory.
 * Room:     targets and new environments lie in memory that the thread keeps for this, and never on its stack, which may be as small as PTHREAD_STACK_MIN
 *           while an environment is as large as a program makes it. What a vfork child took is its parent's again.
 * Real:     execve, execvpe, fexecve, execveat: execl, execv and the like are these with other arguments, in libc too, and so is a syscall() of them. A library
 *           behind ours may have one of execvp and execvpe, or call the one in the other: then each goes to the next of its own name.
 * Limits:   an exec by an instruction of the program's own is not seen.
 */
#include "attach.h"
#include "exec_target.h"
#include "process.h"
#include "sandbox.h"

#include <errno.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
	int (*execve)(const char *, char *const[], char *const[]);
	int (*execvpe)(const char *, char *const[], char *const[]);
	int (*execvp)(const char *, char *const[]); /* NULL: libc's, as execvpe, which it is then, with `environ` */
	bool execlp_is_execvpe;                     /* likewise, with the arguments as an array */
	int (*fexecve)(int, char *const[], char *const[]);
	int (*execveat)(int, const char *, char *const[], char *const[], int);
	int (*posix_spawn)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[],
			   char *const[]);
	int (*posix_spawnp)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[],
			    char *const[]);
	int (*system)(const char *);
	FILE *(*popen)(const char *, const char *);
	_Atomic bool found;
} real;

/* Normally done before main, so that no vfork child has to ask the loader. */
__attribute__((constructor)) static void find_real(void) {
	if (atomic_load_explicit(&real.found, memory_order_acquire)) return;
	*(void **)&real.execve = tm_next_symbol("execve");
	*(void **)&real.execvpe = tm_next_symbol("execvpe");
	*(void **)&real.execvp = tm_next_symbol("execvp");
	bool is_libcs = tm_real_is_libcs(*(void **)&real.execvpe);
	if (is_libcs && tm_real_is_libcs(*(void **)&real.execvp)) real.execvp = NULL;
	real.execlp_is_execvpe = is_libcs && tm_real_is_libcs(tm_next_symbol("execlp"));
	*(void **)&real.fexecve = tm_next_symbol("fexecve");
	*(void **)&real.execveat = tm_next_symbol("execveat");
	*(void **)&real.posix_spawn = tm_next_symbol("posix_spawn");
	*(void **)&real.posix_spawnp = tm_next_symbol("posix_spawnp");
	*(void **)&real.system = tm_next_symbol("system");
	*(void **)&real.popen = tm_next_symbol("popen");
	tm_own_path();
	atomic_store_explicit(&real.found, true, memory_order_release);
}

#define FIND_REAL() \
	if (!atomic_load_explicit(&real.found, memory_order_acquire)) find_real()

/* --- records --- */

static void emit_exec(struct tm_thread *t, uint32_t pid, enum tm_exec_class class, const char *path) {
	uint64_t words[1] = { pid };

	tm_emit_control(t, TM_CTL_EXEC, 0, class, words, 1, path, strnlen(path, TM_PATH_MAX));
}

static void will_exec(enum tm_exec_class class, const char *path) {
	struct tm_thread *t = tm_hook_enter_to_say();

	if (!t) return;
	emit_exec(t, tm_sandbox_pid(), class, path);
	tm_hook_leave(t);
}

static void did_not_exec(void) {
	struct tm_thread *t = tm_hook_enter_to_say();
	uint64_t words[1];

	if (!t) return;
	words[0] = tm_sandbox_pid();
	tm_emit_control(t, TM_CTL_EXEC_FAILED, 0, 0, words, 1, NULL, 0);
	tm_hook_leave(t);
}

static void did_spawn(pid_t child, enum tm_exec_class class, const char *path) {
	struct tm_thread *t = (uint32_t)child == tm_tls.told_child ? NULL : tm_hook_enter_to_say();
	uint64_t words[1] = { (uint64_t)child };

	if (!t) return;
	tm_tls.told_child = (uint32_t)child;
	tm_emit_control(t, TM_CTL_SPAWN, 0, 0, words, 1, NULL, 0);
	emit_exec(t, (uint32_t)child, class, path);
	tm_hook_leave(t);
}

/* --- room --- */

#define ROOM_BYTES 32768u /* as far as it is used: most environments are a few KiB */
#define ROOM_LAST_BYTES 8192u

struct room {
	size_t bytes;          /* all of it */
	_Atomic uint32_t user; /* pid of the process that has taken it: of a vfork child that has become another program, nobody gives it back */
	_Alignas(16) uint8_t memory[];
};

/* For whom the system gives no memory. A vfork child's last. */
static union {
	struct room room;
	_Alignas(16) uint8_t bytes[ROOM_LAST_BYTES];
} last_rooms[TM_EXEC_ROOMS] TM_ROOMY;

static struct room *take_last_room(enum tm_exec_room of, size_t bytes, uint32_t pid) {
	struct room *room = &last_rooms[of].room;
	uint32_t nobody = 0;

	if (bytes > sizeof last_rooms[of] || !atomic_compare_exchange_strong(&room->user, &nobody, pid)) return NULL;
	return room;
}

/* A call that a signal handler has interrupted keeps what it has taken; the handler's gets another, which is the thread's from then on. NULL: out of memory. */
static struct room *take_room(enum tm_exec_room of, size_t bytes) {
	struct room *room = tm_tls.exec_rooms[of];
	uint32_t pid = (uint32_t)tm_raw_getpid();

	bytes += sizeof *room;
	if (!room || room->user == pid || room->bytes < bytes) {
		size_t size = bytes <= ROOM_BYTES ? ROOM_BYTES : 2 * ((bytes + TM_SHM_PAGE - 1) & ~(size_t)(TM_SHM_PAGE - 1));
		room = tm_raw_map(size);
		if (!room) return take_last_room(of, bytes, pid);
		room->bytes = size;
		tm_tls.exec_rooms[of] = room;
	}
	room->user = pid;
	return room;
}

/* Behind a filter: of what there is. */
static struct room *take_room_without_calls(enum tm_exec_room of, size_t bytes) {
	struct room *room = tm_tls.exec_rooms[of];
	uint32_t pid = tm_sandbox_pid();

	bytes += sizeof *room;
	if (!room || room->user == pid || room->bytes < bytes) return take_last_room(of, bytes, pid);
	room->user = pid;
	return room;
}

static void give_back(struct room *room) {
	if (room) atomic_store(&room->user, 0);
}

void tm_exec_hooks_end_thread(void) {
	for (unsigned of = 0; of < TM_EXEC_ROOMS; of++) {
		struct room *room = tm_tls.exec_rooms[of];

		tm_tls.exec_rooms[of] = NULL;
		if (room) tm_raw_unmap(room, room->bytes);
	}
}

/* --- one exec call, whatever its form --- */

enum form { BY_PATH, BY_PATH_VARIABLE, BY_PATH_VARIABLE_IN_ENVIRON, BY_FD, BY_DIR, SPAWN, SPAWN_BY_PATH_VARIABLE };

struct call {
	enum form form;
	const char *name;
	char *const *arguments;
	char *const *environment;
	int dir, flags;
	pid_t *child;
	const posix_spawn_file_actions_t *actions;
	const posix_spawnattr_t *attributes;
};

/* execvp, where one of the two is not libc's. What a vfork child leaves in `environ` would be its parent's: it goes with the environment that it has. */
static int call_execvp(const struct call *c, char *const *environment) {
	char **before = environ;
	bool is_alone = tm_is_sandboxed() ? !tm_tls.confined_child : tm_raw_getpid() == (int)tm_guest.pid;

	if (is_alone) environ = (char **)environment;
	int result = real.execvp(c->name, c->arguments);
	if (is_alone && environ == (char **)environment) environ = before;
	return result;
}

static int call_real(const struct call *c, char *const *environment) {
	switch (c->form) {
	case BY_PATH: return real.execve(c->name, c->arguments, environment);
	case BY_PATH_VARIABLE: return real.execvpe(c->name, c->arguments, environment);
	case BY_PATH_VARIABLE_IN_ENVIRON:
		return real.execvp ? call_execvp(c, environment) : real.execvpe(c->name, c->arguments, environment);
	case BY_FD: return real.fexecve(c->dir, c->arguments, environment);
	case BY_DIR: return real.execveat(c->dir, c->name, c->arguments, environment, c->flags);
	case SPAWN: return real.posix_spawn(c->child, c->name, c->actions, c->attributes, c->arguments, environment);
	case SPAWN_BY_PATH_VARIABLE: break;
	}
	return real.posix_spawnp(c->child, c->name, c->actions, c->attributes, c->arguments, environment);
}

/* With our variables the arguments may be too many where they just fitted before: then the new image goes without them. */
static int call_or_without(const struct call *c, char *const *environment) {
	int result = call_real(c, environment);
	bool spawns = c->form == SPAWN || c->form == SPAWN_BY_PATH_VARIABLE;

	return (spawns ? result : errno) == E2BIG && result != 0 ? call_real(c, c->environment) : result;
}

/* Runs the call with an environment that suits its target. One that cannot be made is passed on as it is. */
static int call_with_environment(const struct call *c, enum tm_exec_class class) {
	bool spawns = c->form == SPAWN || c->form == SPAWN_BY_PATH_VARIABLE;
	struct tm_exec_env plan = tm_exec_env_plan(class, !spawns, c->environment);
	struct room *room = NULL;
	int result;

	if (plan.size_bytes && tm_is_sandboxed()) room = take_room_without_calls(TM_EXEC_ROOM_ENVIRONMENT, plan.size_bytes);
	else if (plan.size_bytes) room = take_room(TM_EXEC_ROOM_ENVIRONMENT, plan.size_bytes);
	if (!room) return call_real(c, c->environment);
	result = call_or_without(c, tm_exec_env_write(&plan, c->environment, room->memory));
	give_back(room);
	return result;
}

/* libc's own record of a file action, as far as it matters here. */
struct file_action {
	int what;
	const char *path;
	char more[16];
};
enum { ACTION_CHDIR = 3, ACTION_FCHDIR = 4 };

/* Where the name is relative and the child changes its directory first: the path from ours, in target->path. NULL: it is not to be told, or too long. */
static const char *name_after_actions(const struct call *c, struct tm_exec_target *target) {
	const struct file_action *each = c->actions ? (const struct file_action *)c->actions->__actions : NULL, *moves = NULL;
	bool is_relative = c->name[0] != '/' && (c->form == SPAWN || strchr(c->name, '/'));
	size_t n, size;

	for (int i = 0; is_relative && each && i < c->actions->__used; i++) {
		if (each[i].what != ACTION_CHDIR && each[i].what != ACTION_FCHDIR) continue;
		if (moves || each[i].what == ACTION_FCHDIR) return NULL;
		moves = &each[i];
	}
	if (!moves) return c->name;
	n = strlen(moves->path);
	size = strlen(c->name) + 1;
	if (n + 1 + size > sizeof target->path) return NULL;
	memcpy(target->path, moves->path, n);
	target->path[n] = '/';
	memcpy(target->path + n + 1, c->name, size);
	return target->path;
}

/* Found in `room`, if there is any. */
static const struct tm_exec_target *target_of(const struct call *c, struct room *room) {
	static const struct tm_exec_target unknown = { .class = TM_EXEC_UNKNOWN };
	bool search = c->form == BY_PATH_VARIABLE || c->form == BY_PATH_VARIABLE_IN_ENVIRON || c->form == SPAWN_BY_PATH_VARIABLE;
	struct tm_exec_target *target;
	const char *name;

	if (!room) return &unknown;
	target = (struct tm_exec_target *)room->memory;
	name = name_after_actions(c, target);
	if (!name) {
		target->class = TM_EXEC_UNSEEN;
		target->path[0] = 0;
		return target;
	}
	tm_exec_target_find(target, search ? TM_EXEC_BY_PATH_VARIABLE : TM_EXEC_BY_PATH, c->dir, name);
	if ((target->class == TM_EXEC_NATIVE || target->class == TM_EXEC_UNKNOWN) && tm_exec_env_has_sanitizer(c->environment))
		target->class = TM_EXEC_SANITIZED;
	return target;
}

/* A wrong pointer is the kernel's to refuse, not ours to follow. Asks about each page once in a row: an environment lies in few. */
static bool is_readable(const void *address, uintptr_t *page) {
	uintptr_t of_address = (uintptr_t)address / TM_SHM_PAGE;

	if (address && of_address == *page) return true;
	if (!tm_raw_is_readable(address)) return false;
	*page = of_address;
	return true;
}

/* Up to its end, which may lie in a page that is not there. */
static bool is_readable_text(const char *text, uintptr_t *page) {
	for (;;) {
		size_t left = TM_SHM_PAGE - (uintptr_t)text % TM_SHM_PAGE;

		if (!is_readable(text, page)) return false;
		if (strnlen(text, left) < left) return true;
		text += left;
	}
}

static bool is_readable_call(const struct call *c) {
	char *const *at = c->environment;
	uintptr_t list_page = UINTPTR_MAX, text_page = UINTPTR_MAX; /* none yet */

	if (!is_readable_text(c->name, &text_page)) return false;
	for (; at && is_readable(at, &list_page) && is_readable((const char *)(at + 1) - 1, &list_page); at++) {
		if (!*at) return true;
		if (!is_readable_text(*at, &text_page)) return false;
	}
	return at == NULL;
}

/* Behind a filter the target is not looked at, since that takes system calls: its name is the one that the program gives it. It gets the program's environment
 * as it is, or without us where the filter would end it for our calls. */
static enum tm_exec_class class_in_sandbox(void) {
	return tm_sandbox_kills_for_us() ? TM_EXEC_FILTERED : TM_EXEC_NATIVE;
}

static const char *name_in_sandbox(const struct call *c) {
	return c->name && (uintptr_t)c->name >= TM_SHM_PAGE ? c->name : "";
}

static int call_in_sandbox(const struct call *c) {
	return tm_sandbox_kills_for_us() ? call_with_environment(c, TM_EXEC_FILTERED) : call_real(c, c->environment);
}

static int run_exec_in_sandbox(const struct call *c) {
	int result;

	will_exec(class_in_sandbox(), name_in_sandbox(c));
	tm_tls.exec_is_open = !tm_tls.confined_child;
	result = call_in_sandbox(c);
	tm_tls.exec_is_open = false;
	did_not_exec();
	return result;
}

static int run_exec(const struct call *c) {
	struct room *room;
	int result;

	FIND_REAL();
	if (tm_is_sandboxed()) return run_exec_in_sandbox(c);
	if (tm_guest.is_inspected || !is_readable_call(c)) return call_real(c, c->environment);
	room = take_room(TM_EXEC_ROOM_TARGET, sizeof(struct tm_exec_target));
	const struct tm_exec_target *target = target_of(c, room);
	will_exec(target->class, target->path);
	result = call_with_environment(c, target->class);
	did_not_exec();
	give_back(room);
	return result;
}

static int run_spawn(struct call *c) {
	struct room *room;
	pid_t child = 0;
	int error;

	FIND_REAL();
	tm_tls.told_child = 0;
	if (tm_guest.is_inspected || (!tm_is_sandboxed() && !is_readable_call(c))) return call_real(c, c->environment);
	if (!c->child) c->child = &child;
	if (tm_is_sandboxed()) {
		error = call_in_sandbox(c);
		if (error == 0) did_spawn(*c->child, class_in_sandbox(), name_in_sandbox(c));
		return error;
	}
	room = take_room(TM_EXEC_ROOM_TARGET, sizeof(struct tm_exec_target));
	const struct tm_exec_target *target = target_of(c, room);
	error = call_with_environment(c, target->class);
	if (error == 0) did_spawn(*c->child, target->class, target->path);
	give_back(room);
	return error;
}

/* --- the exec family --- */

TM_EXPORT_ALIGNED int execve(const char *path, char *const arguments[], char *const environment[]) {
	return run_exec(
		&(struct call){ .form = BY_PATH, .name = path, .arguments = arguments, .environment = environment, .dir = AT_FDCWD });
}

TM_EXPORT_ALIGNED int execv(const char *path, char *const arguments[]) {
	return run_exec(&(struct call){ .form = BY_PATH, .name = path, .arguments = arguments, .environment = environ, .dir = AT_FDCWD });
}

TM_EXPORT_ALIGNED int execvpe(const char *name, char *const arguments[], char *const environment[]) {
	return run_exec(&(struct call){
		.form = BY_PATH_VARIABLE, .name = name, .arguments = arguments, .environment = environment, .dir = AT_FDCWD });
}

TM_EXPORT_ALIGNED int execvp(const char *name, char *const arguments[]) {
	return run_exec(&(struct call){
		.form = BY_PATH_VARIABLE_IN_ENVIRON, .name = name, .arguments = arguments, .environment = environ, .dir = AT_FDCWD });
}

TM_EXPORT_ALIGNED int fexecve(int fd, char *const arguments[], char *const environment[]) {
	return run_exec(&(struct call){ .form = BY_FD, .name = "", .arguments = arguments, .environment = environment, .dir = fd });
}

TM_EXPORT_ALIGNED int execveat(int dir, const char *path, char *const arguments[], char *const environment[], int flags) {
	struct call c = { .form = BY_DIR, .name = path, .arguments = arguments, .environment = environment, .dir = dir, .flags = flags };

	FIND_REAL();
	if (real.execveat) return run_exec(&c);
	errno = ENOSYS;
	return -1;
}

/* By libc's syscall(), which is ours (sandbox_hooks.c). */
long tm_called_execve(long number, const char *path, char *const arguments[], char *const environment[]);
long tm_called_execveat(long number, int dir, const char *path, char *const arguments[], char *const environment[], int flags);

TM_ENTRY long tm_called_execve(long number, const char *path, char *const arguments[], char *const environment[]) {
	(void)number;
	return execve(path, arguments, environment);
}

/* A libc without a function for it has the call all the same. */
TM_ENTRY long tm_called_execveat(long number, int dir, const char *path, char *const arguments[], char *const environment[], int flags) {
	long result;

	FIND_REAL();
	if (real.execveat) return execveat(dir, path, arguments, environment, flags);
	result = tm_syscall(number, dir, (long)path, (long)arguments, (long)environment, flags, 0);
	if (result >= 0) return result;
	errno = (int)-result;
	return -1;
}

/* The arguments of execl and its kin, first..NULL, as an array on the caller's stack. `list` begins behind first. */
#define COUNT_ARGUMENTS(list, first, count) \
	do { \
		const char *each = (first); \
		for ((count) = 0; each; each = va_arg((list), char *)) (count)++; \
	} while (0)

static void take_arguments(va_list *list, const char *first, char **to, size_t count) {
	for (size_t i = 0; i < count; i++) to[i] = i == 0 ? (char *)first : va_arg(*list, char *);
	to[count] = NULL;
}

TM_EXPORT_ALIGNED int execl(const char *path, const char *first, ...) {
	va_list list;
	size_t count;
	char **arguments;

	va_start(list, first);
	COUNT_ARGUMENTS(list, first, count);
	va_end(list);
	arguments = __builtin_alloca((count + 1) * sizeof *arguments);
	va_start(list, first);
	take_arguments(&list, first, arguments, count);
	va_end(list);
	return run_exec(&(struct call){ .form = BY_PATH, .name = path, .arguments = arguments, .environment = environ, .dir = AT_FDCWD });
}

TM_EXPORT_ALIGNED int execlp(const char *name, const char *first, ...) {
	va_list list;
	size_t count;
	char **arguments;

	va_start(list, first);
	COUNT_ARGUMENTS(list, first, count);
	va_end(list);
	arguments = __builtin_alloca((count + 1) * sizeof *arguments);
	va_start(list, first);
	take_arguments(&list, first, arguments, count);
	va_end(list);
	FIND_REAL();
	return run_exec(&(struct call){ .form = real.execlp_is_execvpe ? BY_PATH_VARIABLE : BY_PATH_VARIABLE_IN_ENVIRON,
					.name = name,
					.arguments = arguments,
					.environment = environ,
					.dir = AT_FDCWD });
}

TM_EXPORT_ALIGNED int execle(const char *path, const char *first, ...) {
	va_list list;
	size_t count;
	char **arguments, *const *environment;

	va_start(list, first);
	COUNT_ARGUMENTS(list, first, count);
	va_end(list);
	arguments = __builtin_alloca((count + 1) * sizeof *arguments);
	va_start(list, first);
	take_arguments(&list, first, arguments, count);
	if (count > 0) (void)va_arg(list, char *); /* the NULL behind the arguments */
	environment = va_arg(list, char *const *);
	va_end(list);
	return run_exec(
		&(struct call){ .form = BY_PATH, .name = path, .arguments = arguments, .environment = environment, .dir = AT_FDCWD });
}

/* --- posix_spawn --- */

TM_EXPORT_ALIGNED int posix_spawn(pid_t *child, const char *path, const posix_spawn_file_actions_t *actions,
				  const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]) {
	return run_spawn(&(struct call){ .form = SPAWN,
					 .name = path,
					 .arguments = arguments,
					 .environment = environment,
					 .dir = AT_FDCWD,
					 .child = child,
					 .actions = actions,
					 .attributes = attributes });
}

TM_EXPORT_ALIGNED int posix_spawnp(pid_t *child, const char *name, const posix_spawn_file_actions_t *actions,
				   const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]) {
	return run_spawn(&(struct call){ .form = SPAWN_BY_PATH_VARIABLE,
					 .name = name,
					 .arguments = arguments,
					 .environment = environment,
					 .dir = AT_FDCWD,
					 .child = child,
					 .actions = actions,
					 .attributes = attributes });
}

/* --- system and popen --- */

/* libc starts the shell by itself, with the program's environment as it is: a program that has cleaned it, or that has become another user, has children that
 * nobody hears of. Said once. */
static void note_children_of_libc(void) {
	static const char cleaned[] = "system() or popen() ran a command when the program had removed LD_PRELOAD or " TM_SESSION_ENV
				      " from its environment: what such commands do is not in this trace";
	static const char shut_out[] =
		"system() or popen() ran a command when the program could not open the recording any more (it is another user or has "
		"another root than at its start, or has restricted what it opens): what such commands do is not in this trace";
	static _Atomic uint32_t noted; /* process number that it was said for */
	struct tm_thread *t;
	struct tm_exec_env plan;

	if (tm_is_sandboxed() || atomic_load(&noted) == tm_guest.process) return;
	plan = tm_exec_env_plan(TM_EXEC_NATIVE, false, environ);
	const char *text = plan.add_preload || plan.add_session ? cleaned : tm_session_opens() ? NULL : shut_out;
	if (!text || !(t = tm_hook_enter())) return;
	if (atomic_exchange(&noted, tm_guest.process) != tm_guest.process) tm_emit_note(t, "not-followed", text);
	tm_hook_leave(t);
}

TM_EXPORT_ALIGNED int system(const char *command) {
	FIND_REAL();
	if (command) note_children_of_libc();
	return real.system(command);
}

TM_EXPORT_ALIGNED FILE *popen(const char *command, const char *type) {
	FIND_REAL();
	note_children_of_libc();
	return real.popen(command, type);
}
