/* output_path.c - the pattern of --output: see output_path.h. */
#include "output_path.h"

#include "launcher_variables.h"
#include "memory.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct builder {
	char text[PATH_MAX];
	size_t size;
};

/* A value becomes part of one file name: it must not add directories. */
static void add_value(struct builder *b, const char *value) {
	for (; *value && b->size + 1 < sizeof b->text; value++) b->text[b->size++] = *value == '/' ? '_' : *value;
}

static void add_char(struct builder *b, char c) {
	if (b->size + 1 < sizeof b->text) b->text[b->size++] = c;
}

/* A variable that is not set is most likely misspelt, or of another launcher: without it all ranks would take one name. */
static int add_variable(struct builder *b, const char *name, size_t n, char *error, size_t error_bytes) {
	char *copy = tm_memory_copy_text(name, n);
	const char *value = getenv(copy);
	if (value) {
		add_value(b, value);
	} else {
		snprintf(error, error_bytes, "the variable of '%%q{%s}' in --output is not set", copy);
	}
	free(copy);
	return value ? 0 : -ENOENT;
}

static void add_start_time(struct builder *b) {
	char text[32];
	time_t now = time(NULL);
	struct tm parts;
	localtime_r(&now, &parts);
	strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
	add_value(b, text);
}

static void add_code(struct builder *b, char code, int pid, const struct tm_launcher *launcher) {
	char text[256];
	snprintf(text, sizeof text, "%d", pid);
	if (code == 'h' && gethostname(text, sizeof text) != 0) snprintf(text, sizeof text, "unknown");
	if (code == 'r') snprintf(text, sizeof text, "%lld", launcher->rank < 0 ? 0LL : (long long)launcher->rank);
	if (code == 'j') snprintf(text, sizeof text, "%s", launcher->job[0] ? launcher->job : "none");
	if (code == 's') snprintf(text, sizeof text, "%s", launcher->step[0] ? launcher->step : "none");
	text[sizeof text - 1] = 0;
	add_value(b, text);
}

char *tm_output_path_expand(const char *pattern, int pid, char *error, size_t error_bytes) {
	struct builder b = { .size = 0 };
	struct tm_launcher launcher;
	tm_launcher_of_environment(&launcher);
	for (const char *p = pattern; *p; p++) {
		if (*p != '%') {
			add_char(&b, *p);
			continue;
		}
		p++;
		const char *close = *p == 'q' && p[1] == '{' ? strchr(p, '}') : NULL;
		if (*p == '%') {
			add_char(&b, '%');
		} else if (*p == 't') {
			add_start_time(&b);
		} else if (*p && strchr("phrjs", *p)) {
			add_code(&b, *p, pid, &launcher);
		} else if (close) {
			if (add_variable(&b, p + 2, (size_t)(close - p) - 2, error, error_bytes) != 0) return NULL;
			p = close;
		} else {
			snprintf(error, error_bytes, "unknown pattern '%%%.1s' in --output (known: %%p %%h %%r %%j %%s %%t %%q{VAR} %%%%)",
				 p);
			return NULL;
		}
	}
	if (b.size + 1 >= sizeof b.text) {
		snprintf(error, error_bytes, "the file name is longer than %d bytes", PATH_MAX);
		return NULL;
	}
	return tm_memory_copy_text(b.text, b.size);
}

int tm_output_path_make_directories(const char *path, char *failed, size_t failed_bytes) {
	char *copy = tm_memory_copy_text(path, strlen(path));
	int result = 0;
	for (char *slash = strchr(copy + 1, '/'); slash && !result; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		struct stat file;
		int error = mkdir(copy, 0777) == 0 ? 0 : errno; /* why it is not there; stat() only knows that it is not */
		if (error && !(stat(copy, &file) == 0 && S_ISDIR(file.st_mode))) {
			result = error == EEXIST ? -ENOTDIR : -error;
			snprintf(failed, failed_bytes, "%s", copy);
		}
		*slash = '/';
	}
	free(copy);
	return result;
}
