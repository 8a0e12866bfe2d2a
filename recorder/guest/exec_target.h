/* exec_target.h - what an exec call is about to run, and the environment that suits it.
 *
 * Flow:     exec_hooks.c -> tm_exec_target_find() -> tm_exec_env_plan() -> tm_exec_env_write() -> the real exec
 * Owns:     nothing: results live in the caller's memory.
 * Threads:  any, a vfork child too. No malloc, no lock, no errno.
 * Failure:  a target that cannot be read is TM_EXEC_UNKNOWN; the real call then says what is wrong with it.
 */
#ifndef TIDEMARK_GUEST_EXEC_TARGET_H
#define TIDEMARK_GUEST_EXEC_TARGET_H

#include "raw.h"

struct tm_exec_target {
	enum tm_exec_class class;
	char path[TM_PATH_MAX]; /* of the file that will run: symbolic links and #! lines followed. "" if unknown */
};

/* How the name is looked up. */
enum tm_exec_lookup {
	TM_EXEC_BY_PATH,          /* relative to `dir`, which is AT_FDCWD or a directory; an empty name is the file `dir` itself */
	TM_EXEC_BY_PATH_VARIABLE, /* execvp: a name without a slash is searched in PATH, a script without #! runs in /bin/sh */
};

/* `name` may lie in target->path. */
void tm_exec_target_find(struct tm_exec_target *target, enum tm_exec_lookup lookup, int dir, const char *name);

/* Does its LD_PRELOAD name a sanitizer, which bears no library before it? */
bool tm_exec_env_has_sanitizer(char *const *given);

/* What is to change in an environment, and how many bytes tm_exec_env_write() needs for it; 0: pass it on as it is. */
struct tm_exec_env {
	bool add_preload, remove_preload, add_session, remove_session, remove_tool;
	size_t count; /* strings in it */
	size_t size_bytes;
};

/* by_itself: who calls becomes the program; else a child of it does. */
struct tm_exec_env tm_exec_env_plan(enum tm_exec_class target, bool by_itself, char *const *given);
/* The new environment, made in room[size_bytes]; the strings that do not change are the given ones. */
char **tm_exec_env_write(const struct tm_exec_env *plan, char *const *given, void *room);

#endif
