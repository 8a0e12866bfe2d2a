/* exec_env.c - the environment that a new program image gets.
 *
 * Flow:     exec_hooks.c -> here -> the real exec
 * Rules:    following children: our entry of LD_PRELOAD and TIDEMARK_SESSION go along, also where the program cleaned its environment.
 *           Not following: both are taken out, unless it is the command itself that becomes another program.
 *           A program of another loader (another machine or libc): our LD_PRELOAD entry is taken out, or that loader would print an error into the
 *           program's output. With the entry go the variables that name us as a tool (injection.c): we would be loaded all the same. A static
 *           program gets what it was given.
 *           Other people's LD_PRELOAD entries stay, in order. A session that is not ours (somebody records inside of a recording) is left
 *           alone.
 */
#include "exec_target.h"
#include "../sanitizer.h"
#include "injection.h"
#include "process.h"
#include "sandbox.h"

#include <string.h>

#define PRELOAD "LD_PRELOAD="
#define PRELOAD_SIZE (sizeof PRELOAD - 1)
#define SESSION TM_SESSION_ENV "="
#define SESSION_SIZE (sizeof SESSION - 1)

static const char *value_of(const char *string, const char *prefix, size_t n) {
	return strncmp(string, prefix, n) == 0 ? string + n : NULL;
}

static const char *base_name(const char *path, size_t n) {
	while (n > 0 && path[n - 1] != '/') n--;
	return path + n;
}

/* Ours by its path, or by its file name: the entry may name us through a link or a search path. */
static bool entry_is_ours(const char *entry, size_t n) {
	const char *own = tm_own_path(), *own_base = base_name(own, strlen(own)), *base = base_name(entry, n);
	size_t base_size = n - (size_t)(base - entry);

	return base_size > 0 && strlen(own_base) == base_size && memcmp(own_base, base, base_size) == 0;
}

/* Goes from entry to entry of an LD_PRELOAD value; the length of the one at *at, 0: no more. */
static size_t next_entry(const char **at) {
	*at += strspn(*at, ": ");
	return strcspn(*at, ": ");
}

static bool list_has_ours(const char *list) {
	for (size_t n; (n = next_entry(&list)) > 0; list += n)
		if (entry_is_ours(list, n)) return true;
	return false;
}

/* Writes "LD_PRELOAD=" and the entries: ours first if it is to be there. Returns the end; nothing is written for an empty list. */
static char *put_list(char *to, const char *list, bool with_ours) {
	char *start = to;
	size_t n = strlen(tm_own_path());

	memcpy(to, PRELOAD, PRELOAD_SIZE);
	to += PRELOAD_SIZE;
	if (with_ours) {
		memcpy(to, tm_own_path(), n);
		to += n;
		*to++ = ':';
	}
	for (; (n = next_entry(&list)) > 0; list += n) {
		if (entry_is_ours(list, n)) continue;
		memcpy(to, list, n);
		to += n;
		*to++ = ':';
	}
	if (to == start + PRELOAD_SIZE) return start;
	to[-1] = 0;
	return to;
}

/* Can the new image's loader open us? Not after chroot, say, or without the rights that the program began with; it would complain. */
static bool can_be_preloaded(void) {
	return tm_raw_can_open(tm_own_path(), O_RDONLY);
}

/* The command is the command still when it becomes another program. */
static bool is_command(void) {
	return tm_sandbox_pid() == tm_guest.shm->root_pid;
}

static void wish_for(struct tm_exec_env *plan, enum tm_exec_class target, bool by_itself, bool session_is_ours) {
	bool follow = !tm_guest.shm || tm_guest.shm->follow || (by_itself && is_command());

	if (tm_exec_bears_no_preload(target) || !can_be_preloaded()) plan->remove_preload = plan->remove_tool = true;
	if (!session_is_ours) return;
	if (!follow) {
		plan->remove_preload = plan->remove_session = plan->remove_tool = true;
		return;
	}
	if (target == TM_EXEC_STATIC || target == TM_EXEC_FILTERED || !tm_guest.shm) return;
	plan->add_session = true;
	plan->add_preload = !plan->remove_preload;
}

bool tm_exec_env_has_sanitizer(char *const *given) {
	for (; given && *given; given++) {
		const char *list = value_of(*given, PRELOAD, PRELOAD_SIZE);

		if (list && tm_preloads_sanitizer(list)) return true;
	}
	return false;
}

struct tm_exec_env tm_exec_env_plan(enum tm_exec_class target, bool by_itself, char *const *given) {
	struct tm_exec_env plan = { 0 };
	bool has_ours = false, has_session = false, session_is_ours = true, has_tool = false;
	size_t lists = 0;

	if (!tm_own_path()[0]) return plan;
	for (; given && given[plan.count]; plan.count++) {
		const char *list = value_of(given[plan.count], PRELOAD, PRELOAD_SIZE);
		const char *session = value_of(given[plan.count], SESSION, SESSION_SIZE);

		if (list) {
			lists += strlen(list) + strlen(tm_own_path()) + PRELOAD_SIZE + 2;
			has_ours = has_ours || list_has_ours(list);
		}
		has_tool = has_tool || tm_injection_names_us(given[plan.count]);
		if (session) {
			has_session = true;
			session_is_ours = strcmp(session, tm_guest.session_path) == 0;
		}
	}
	wish_for(&plan, target, by_itself, session_is_ours);
	plan.add_preload = plan.add_preload && !has_ours;
	plan.remove_preload = plan.remove_preload && has_ours;
	plan.add_session = plan.add_session && !has_session;
	plan.remove_session = plan.remove_session && has_session;
	plan.remove_tool = plan.remove_tool && has_tool;
	if (plan.add_preload || plan.remove_preload || plan.add_session || plan.remove_session || plan.remove_tool)
		plan.size_bytes = (plan.count + 3) * sizeof(char *) + lists + PRELOAD_SIZE + strlen(tm_own_path()) + 2 + SESSION_SIZE +
				  strlen(tm_guest.session_path) + 1;
	return plan;
}

char **tm_exec_env_write(const struct tm_exec_env *plan, char *const *given, void *room) {
	char **strings = room, **next = strings, *text = (char *)(strings + plan->count + 3);
	bool add_preload = plan->add_preload;

	for (size_t i = 0; i < plan->count; i++) {
		const char *list = value_of(given[i], PRELOAD, PRELOAD_SIZE);
		char *end;

		if (plan->remove_session && value_of(given[i], SESSION, SESSION_SIZE)) continue;
		if (plan->remove_tool && tm_injection_names_us(given[i])) continue;
		if (!list || !(add_preload || plan->remove_preload)) {
			*next++ = given[i];
			continue;
		}
		end = put_list(text, list, add_preload);
		if (end == text) continue;
		*next++ = text;
		text = end;
		add_preload = false;
	}
	if (add_preload) {
		*next++ = text;
		text = put_list(text, "", true);
	}
	if (plan->add_session) {
		*next++ = text;
		memcpy(text, SESSION, SESSION_SIZE);
		strcpy(text + SESSION_SIZE, tm_guest.session_path);
	}
	*next = NULL;
	return strings;
}
