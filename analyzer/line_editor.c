/* line_editor.c - lines from a terminal; see line_editor.h. */
#include "line_editor.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef char *generator(const char *text, int state);
typedef char **completer(const char *text, int start, int end);

static struct {
	void *library;
	char *(*read)(const char *prompt);
	int (*add_history)(const char *line);
	int (*read_history)(const char *path);
	int (*write_history)(const char *path);
	void (*stifle_history)(int n);
	char **(*matches)(const char *text, generator *generate);
	completer **attempted;
	char **words;
	char history[4096];
} editor;

#define HISTORY_LINES 1000

static char *next_word(const char *text, int state) {
	static size_t at;
	if (!state) at = 0;
	while (editor.words && editor.words[at]) {
		const char *word = editor.words[at++];
		if (strncasecmp(word, text, strlen(text)) == 0) return strdup(word);
	}
	return NULL;
}

static char **complete(const char *text, int start, int end) {
	(void)start, (void)end;
	return editor.matches(text, next_word);
}

static void *find(const char *name) {
	return dlsym(editor.library, name);
}

static void open_library(void) {
	static const char *const names[] = { "libedit.so.2", "libedit.so.0", "libreadline.so.8", "libreadline.so.7" };
	for (size_t i = 0; i < sizeof names / sizeof *names && !editor.library; i++)
		editor.library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (!editor.library) return;
	*(void **)&editor.read = find("readline");
	*(void **)&editor.add_history = find("add_history");
	*(void **)&editor.read_history = find("read_history");
	*(void **)&editor.write_history = find("write_history");
	*(void **)&editor.stifle_history = find("stifle_history");
	*(void **)&editor.matches = find("rl_completion_matches");
	editor.attempted = find("rl_attempted_completion_function");
}

void tm_line_editor_start(char **words) {
	const char *terminal = getenv("TERM"), *home = getenv("HOME");
	editor.words = words;
	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || !terminal || !*terminal || strcmp(terminal, "dumb") == 0) return;
	open_library();
	if (!editor.read || !editor.add_history) {
		editor.read = NULL;
		return;
	}
	if (editor.matches && editor.attempted) *editor.attempted = complete;
	int n = home ? snprintf(editor.history, sizeof editor.history, "%s/.tidemark_history", home) : 0;
	if (n <= 0 || n >= (int)sizeof editor.history) editor.history[0] = 0;
	if (editor.stifle_history) editor.stifle_history(HISTORY_LINES);
	if (editor.history[0] && editor.read_history) editor.read_history(editor.history);
}

/* With the newline that getline() would leave. */
static char *read_edited(const char *prompt) {
	char *line = editor.read(prompt);
	if (!line) {
		errno = 0;
		return NULL;
	}
	size_t n = strlen(line);
	char *whole = realloc(line, n + 2);
	if (!whole) {
		free(line);
		errno = 0;
		return NULL;
	}
	if (n) editor.add_history(whole);
	memcpy(whole + n, "\n", 2);
	return whole;
}

char *tm_line_editor_read(const char *prompt) {
	char *line = NULL;
	size_t room = 0;
	if (editor.read) return read_edited(prompt);
	fputs(prompt, stdout);
	fflush(stdout);
	errno = 0;
	if (getline(&line, &room, stdin) >= 0) return line;
	if (errno != EINTR || feof(stdin)) errno = 0;
	clearerr(stdin);
	free(line);
	return NULL;
}

void tm_line_editor_stop(void) {
	if (editor.read && editor.history[0] && editor.write_history) editor.write_history(editor.history);
	for (size_t i = 0; editor.words && editor.words[i]; i++) free(editor.words[i]);
	free(editor.words);
	editor.words = NULL;
}
