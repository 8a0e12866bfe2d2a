/* line_editor.c - lines from a terminal; see line_editor.h. */
#include "line_editor.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
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
	char *last; /* line of the history */
	char history[4096];
	bool was_interrupted;
} editor;

/* Where a word begins. Not at '@', '.' and '-', as in the libraries: @peak-makers is a word. */
static char word_breaks[] = " \t\n\"'`<>=;|&(){}[],+*/%!";

#define HISTORY_LINES 1000

static void *find(const char *name) {
	return dlsym(editor.library, name);
}

/* What comes behind the name of a table (`p.live_by`) is a column. */
static char *next_word(const char *text, int state) {
	static size_t at;
	const char *dot = strrchr(text, '.');
	size_t before = dot && dot > text ? (size_t)(dot + 1 - text) : 0;
	if (!state) at = 0;
	while (editor.words && editor.words[at]) {
		const char *word = editor.words[at++];
		char *whole = NULL;
		if (strncasecmp(word, text + before, strlen(text + before)) != 0) continue;
		return asprintf(&whole, "%.*s%s", (int)before, text, word) < 0 ? NULL : whole;
	}
	return NULL;
}

/* For readline, whose own would go on reading after a signal. */
static int next_character(FILE *stream) {
	unsigned char c;
	ssize_t n = read(fileno(stream), &c, 1);
	if (n < 0 && errno == EINTR) editor.was_interrupted = true;
	return n == 1 ? c : EOF;
}

static char **complete(const char *text, int start, int end) {
	(void)start, (void)end;
	int *is_all = find("rl_attempted_completion_over");
	if (is_all) *is_all = 1;
	return editor.matches(text, next_word);
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

/* Nothing is completed to the name of a file, and a comma may follow at once. */
static void set_up_completion(void) {
	if (!editor.matches || !editor.attempted) return;
	*editor.attempted = complete;
	static const char *const variables[] = { "rl_completer_word_break_characters", "rl_basic_word_break_characters" };
	for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
		char **breaks = find(variables[i]);
		if (breaks) *breaks = word_breaks;
	}
	int *append = find("rl_completion_append_character");
	if (append) *append = 0;
}

/* Ctrl-C gives the line up. libedit returns from its read by itself. */
static void set_up_signals(void) {
	int (**get)(FILE *) = find("rl_signal_event_hook") ? find("rl_getc_function") : NULL, *catches = find("rl_catch_signals");
	if (!get) return;
	*get = next_character;
	if (catches) *catches = 0;
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
	set_up_completion();
	set_up_signals();
	int n = home ? snprintf(editor.history, sizeof editor.history, "%s/.tidemark_history", home) : 0;
	if (n <= 0 || n >= (int)sizeof editor.history) editor.history[0] = 0;
	if (editor.stifle_history) editor.stifle_history(HISTORY_LINES);
	if (editor.history[0] && editor.read_history) editor.read_history(editor.history);
}

/* With the newline that getline() would leave. */
static char *read_edited(const char *prompt) {
	errno = 0;
	editor.was_interrupted = false;
	char *line = editor.read(prompt);
	if (!line || editor.was_interrupted) {
		errno = editor.was_interrupted || errno == EINTR ? EINTR : 0;
		free(line);
		return NULL;
	}
	size_t n = strlen(line);
	char *whole = realloc(line, n + 2);
	if (!whole) {
		free(line);
		errno = 0;
		return NULL;
	}
	if (n && (!editor.last || strcmp(editor.last, whole) != 0)) {
		editor.add_history(whole);
		free(editor.last);
		editor.last = strdup(whole);
	}
	memcpy(whole + n, "\n", 2);
	return whole;
}

FILE *tm_line_editor_talk(void) {
	return isatty(STDOUT_FILENO) ? stdout : stderr;
}

char *tm_line_editor_read(const char *prompt) {
	char *line = NULL;
	size_t room = 0;
	if (editor.read) return read_edited(prompt);
	fputs(prompt, tm_line_editor_talk());
	fflush(tm_line_editor_talk());
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
	free(editor.last);
	editor.last = NULL;
}
