/* cmd_import.c - `tidemark import`: traces, or directories of them, into one database. */
#include "foreign.h"
#include "help_text.h"
#include "import.h"
#include "reader.h"
#include "talk.h"

#include "../schema/array.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char help[] =
	"Usage: tidemark import [options] TRACE...|DIR\n"
	"\n"
	"Reads traces and writes the SQLite database that all other commands answer from. Many traces make one database; of a directory\n"
	"and of those below it (links to directories are not followed), every file that holds a trace is taken, whatever its name; of\n"
	"copies only the one that goes on for longest, and none of another format version. A damaged or cut-off trace is imported as far\n"
	"as it is sound. Recordings of heaptrack, PyTorch's memory snapshots, torch.profiler's JSON and SQLite exports of Nsight Systems,\n"
	"recognised by their content, go into the same tables.\n"
	"\n"
	"  -o, --output DB   where to write; default: the trace's name with the suffix .db, tidemark.db beside several traces or in DIR\n"
	"      --append      add to an existing database\n"
	"      --force       replace an existing database, but no other file\n"
	"  -q, --quiet       say nothing but warnings and errors\n"
	"  -h, --help        this text\n"
	"\n"
	"Examples:\n"
	"  tidemark import run.tmk\n"
	"  tidemark import rank*.tmk -o job.db\n"
	"  tidemark import traces/ -o job.db --force\n";

struct request {
	TM_ARRAY(const char *) operands;
	TM_ARRAY(char *) traces;  /* owned */
	TM_ARRAY(bool) was_found; /* for each: in a directory */
	const char *output;
	bool append, force, quiet, wants_help;
	char *chosen; /* the default output, owned */
};

static bool add_trace(struct request *q, char *path, bool was_found) {
	bool *found = path ? tm_array_push(&q->was_found) : NULL;
	char **place = found ? tm_array_push(&q->traces) : NULL;
	if (place) {
		*place = path;
		*found = was_found;
	} else {
		free(path);
	}
	return place != NULL;
}

/* An option's value, in the same word or the next; NULL: it has none. */
static const char *value_of(int argc, char **argv, int *i, size_t name_bytes, bool is_long) {
	const char *rest = argv[*i] + name_bytes;
	if (is_long && *rest == '=') return rest + 1;
	if (!is_long && *rest) return rest;
	return *i + 1 < argc ? argv[++*i] : NULL;
}

static int parse_option(struct request *q, int argc, char **argv, int *i) {
	const char *word = argv[*i];
	bool is_output = strncmp(word, "--output", 8) == 0 && (word[8] == 0 || word[8] == '=');
	if (is_output || strncmp(word, "-o", 2) == 0) {
		q->output = value_of(argc, argv, i, is_output ? 8 : 2, is_output);
		if (!q->output || !*q->output) return tm_misuse("import", "option '%s' needs a file name", is_output ? "--output" : "-o");
	} else if (strcmp(word, "--append") == 0) {
		q->append = true;
	} else if (strcmp(word, "--force") == 0) {
		q->force = true;
	} else if (strcmp(word, "--quiet") == 0 || strcmp(word, "-q") == 0) {
		q->quiet = true;
	} else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
		q->wants_help = true;
	} else {
		return tm_misuse("import", "unknown option '%s'", word);
	}
	return 0;
}

static int parse(struct request *q, int argc, char **argv) {
	bool only_operands = false;
	for (int i = 1; i < argc; i++) {
		if (!only_operands && strcmp(argv[i], "--") == 0) {
			only_operands = true;
		} else if (!only_operands && argv[i][0] == '-' && argv[i][1]) {
			int rc = parse_option(q, argc, argv, &i);
			if (rc) return rc;
		} else {
			const char **place = tm_array_push(&q->operands);
			if (!place) return tm_fail("cannot import '%s': out of memory", argv[i]);
			*place = argv[i];
		}
	}
	if (q->wants_help) return 0;
	if (!q->operands.count) return tm_misuse("import", "no trace was given");
	if (q->append && q->force) return tm_misuse("import", "--append and --force contradict each other");
	return 0;
}

static int compare_paths(const void *a, const void *b) {
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int look_at(struct request *q, const char *path);

/* All that lies in the directory. One that cannot be opened is an error where it was asked for, else a warning. */
static int look_into(struct request *q, const char *path, bool was_found) {
	DIR *directory = opendir(path);
	if (!directory && was_found) return tm_say("warning: '%s' is left out: %s", path, strerror(errno)), 0;
	if (!directory) return tm_fail("cannot import '%s': %s", path, strerror(errno));
	size_t n = strlen(path);
	struct dirent *entry;
	int rc = 0;
	while (!rc && (entry = readdir(directory))) {
		char *file = NULL;
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
		if (asprintf(&file, "%s%s%s", path, n && path[n - 1] == '/' ? "" : "/", entry->d_name) < 0) file = NULL;
		rc = file ? look_at(q, file) : tm_fail("cannot import '%s': out of memory", path);
		free(file);
	}
	closedir(directory);
	return rc;
}

/* Takes a file that is a trace by its content. A link to a directory is not followed: it may lead back, or out. */
static int look_at(struct request *q, const char *path) {
	struct stat st;
	char why[64];
	if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) return look_into(q, path, true);
	int rc = tm_reader_recognise(path);
	if (rc < 0 && errno == EACCES) return tm_say("warning: '%s' is left out: %s", path, strerror(errno)), 0;
	if (rc != 1 && tm_foreign_recognise(path, why, sizeof why) == TM_FOREIGN_NONE) return 0;
	return add_trace(q, strdup(path), true) ? 0 : tm_fail("cannot import '%s': out of memory", path);
}

/* Every trace in the directory and below, in the order of paths. */
static int add_directory(struct request *q, const char *path) {
	size_t before = q->traces.count;
	int rc = look_into(q, path, false);
	if (!rc && q->traces.count == before) rc = tm_fail("cannot import '%s': no trace in this directory or below", path);
	if (!rc) qsort(q->traces.items + before, q->traces.count - before, sizeof *q->traces.items, compare_paths);
	return rc;
}

static int find_traces(struct request *q) {
	for (size_t i = 0; i < q->operands.count; i++) {
		struct stat st;
		const char *path = q->operands.items[i];
		int rc = 0;
		if (stat(path, &st) < 0) rc = tm_fail("cannot import '%s': %s", path, strerror(errno));
		else if (S_ISDIR(st.st_mode)) rc = add_directory(q, path);
		else if (!add_trace(q, strdup(path), false)) rc = tm_fail("cannot import '%s': out of memory", path);
		if (rc) return rc;
	}
	return 0;
}

static char *default_output(const struct request *q) {
	const char *first = q->operands.items[0];
	size_t n = strlen(first);
	char *output;
	struct stat st;
	bool is_directory = stat(first, &st) == 0 && S_ISDIR(st.st_mode);
	if (q->operands.count == 1 && !is_directory) {
		if (n > 4 && strcmp(first + n - 4, ".tmk") == 0) n -= 4;
		return asprintf(&output, "%.*s.db", (int)n, first) < 0 ? NULL : output;
	}
	if (is_directory) return asprintf(&output, "%s%stidemark.db", first, n && first[n - 1] == '/' ? "" : "/") < 0 ? NULL : output;
	const char *slash = strrchr(first, '/');
	return asprintf(&output, "%.*stidemark.db", slash ? (int)(slash + 1 - first) : 0, first) < 0 ? NULL : output;
}

static int run(struct request *q) {
	int rc = find_traces(q);
	if (rc) return rc;
	if (!q->output) q->output = q->chosen = default_output(q);
	if (!q->output) return tm_fail("cannot import '%s': out of memory", q->operands.items[0]);
	struct tm_import_options options = { .quiet = q->quiet,
					     .was_found = q->was_found.items,
					     .mode = q->append  ? TM_STORE_APPEND
						     : q->force ? TM_STORE_FORCE
								: TM_STORE_CREATE };
	return tm_import((const char *const *)q->traces.items, q->traces.count, q->output, &options);
}

int tm_cmd_import(int argc, char **argv) {
	struct request q = { 0 };
	int rc = parse(&q, argc, argv);
	if (!rc && q.wants_help) tm_print_help(help);
	else if (!rc) rc = run(&q);
	for (size_t i = 0; i < q.traces.count; i++) free(q.traces.items[i]);
	tm_array_release(&q.traces);
	tm_array_release(&q.was_found);
	tm_array_release(&q.operands);
	free(q.chosen);
	return rc;
}
