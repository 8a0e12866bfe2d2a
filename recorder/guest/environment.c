/* environment.c - the environment, read and added to without libc's functions.
 *
 * Why:      a program may have a getenv, a setenv or a malloc of its own, which is not ready for calls before its main().
 * Owns:     what it added: a mapping for each variable, which stays, as others may hold pointers into it. libc's setenv copies an array that is not its own.
 *           What it takes out leaves the array where it is, as libc's unsetenv does.
 * Threads:  who reads meanwhile finds the array from before or the new one; who sets something at the same time may undo what we set.
 */
#include "raw.h"

#include <string.h>
#include <unistd.h>

/* libc sets environ in its own constructor; before that the environment lies where the kernel put it: behind the arguments. */
extern void *__libc_stack_end; /* of the loader: the address of argc */

char **tm_environment(void) {
	if (environ) return environ;
	return __libc_stack_end ? (char **)__libc_stack_end + *(long *)__libc_stack_end + 2 : NULL;
}

/* Most differ in their first letter. */
static bool is_named(const char *variable, const char *name, size_t n) {
	return variable[0] == name[0] && strncmp(variable, name, n) == 0 && variable[n] == '=';
}

const char *tm_environment_value(const char *name) {
	size_t n = strlen(name);
	for (char **at = tm_environment(); at && *at; at++)
		if (is_named(*at, name, n)) return *at + n + 1;
	return NULL;
}

bool tm_environment_set(const char *name, const char *value) {
	size_t n = 0, name_size = strlen(name), value_size = strlen(value) + 1;
	char **old = tm_environment();
	while (old && old[n]) n++;
	char **all = tm_raw_map((n + 2) * sizeof *all + name_size + 1 + value_size);
	if (!all) return false;
	char *text = (char *)(all + n + 2);
	memcpy(text, name, name_size);
	text[name_size] = '=';
	memcpy(text + name_size + 1, value, value_size);
	size_t kept = 0;
	for (size_t i = 0; i < n; i++)
		if (!is_named(old[i], name, name_size)) all[kept++] = old[i];
	all[kept] = text;
	environ = all;
	return true;
}

void tm_environment_remove(const char *name) {
	size_t n = strlen(name);
	char **to = tm_environment();
	for (char **at = to; at && *at; at++)
		if (!is_named(*at, name, n)) *to++ = *at;
	if (to) *to = NULL;
}
