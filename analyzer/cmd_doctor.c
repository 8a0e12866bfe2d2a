/* cmd_doctor.c - `tidemark doctor`: what this machine offers to a recording, found out by making one.
 *
 * The recorder records this very program as it says its version; the trace is imported, and the database tells whether the hooks saw allocations, how
 * far stacks were unwound and named, and which rank the launcher's variables give. The rest is asked of the system. Rows are (topic, name,
 * value), as those of `info`. Everything is made in a directory of its own, which is removed.
 */
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "schema/units.h"
#include "database.h"
#include "recorder_path.h"
#include "render.h"
#include "talk.h"
#include "verbs.h"

static const struct tm_usage usage = {
	.verb = "doctor",
	.operands = "",
	.description = "Says what this machine offers to a recording: whether the hooks, the unwinder and names work, which is tried with a short\n"
		       "recording of its own; GPU driver, rank, room for traces, limits. Exit status 0 if a recording works, else 1.\n",
	.examples = "tidemark doctor\n"
		    "tidemark doctor --format=json\n"
		    "srun -n 2 tidemark doctor\n",
	.options = TM_OPTION_FORMAT,
	.operands_min = 0,
	.operands_max = 0,
};

struct doctor {
	sqlite3 *facts; /* table fact(topic, name, value) */
	char directory[PATH_MAX / 2], trace[PATH_MAX], database[PATH_MAX], said[PATH_MAX], self[PATH_MAX], recorder[PATH_MAX];
	char fault[512]; /* "": a recording works */
};

static void __attribute__((format(printf, 4, 5))) put(struct doctor *d, const char *topic, const char *name, const char *form, ...) {
	va_list list;
	va_start(list, form);
	char *value = sqlite3_vmprintf(form, list), *sql = sqlite3_mprintf("INSERT INTO fact VALUES(%Q, %Q, %Q)", topic, name, value);
	va_end(list);
	if (sql) sqlite3_exec(d->facts, sql, NULL, NULL, NULL);
	sqlite3_free(sql);
	sqlite3_free(value);
}

/* --- the recording --- */

/* The first line of a file, without its end; "" if there is none. */
static void first_line(const char *path, char *line, size_t room) {
	FILE *file = fopen(path, "re");
	*line = '\0';
	if (file && fgets(line, (int)room, file)) line[strcspn(line, "\n")] = '\0';
	if (file) fclose(file);
}

/* Runs it and keeps what it says; false, and the fault, unless it ended with status 0. */
static bool run(struct doctor *d, const char *what, char **arguments) {
	extern char **environ;
	posix_spawn_file_actions_t files;
	pid_t child;
	int status = 0, error = posix_spawn_file_actions_init(&files);
	if (!error) error = posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	if (!error) error = posix_spawn_file_actions_addopen(&files, STDERR_FILENO, d->said, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (!error) error = posix_spawnp(&child, arguments[0], &files, NULL, arguments, environ);
	posix_spawn_file_actions_destroy(&files);
	if (error) {
		snprintf(d->fault, sizeof d->fault, "cannot run '%s': %s", arguments[0], strerror(error));
		return false;
	}
	while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
	char line[256];
	first_line(d->said, line, sizeof line);
	snprintf(d->fault, sizeof d->fault, "%s ended with %s %d%s%s", what, WIFEXITED(status) ? "status" : "signal",
		 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status), *line ? ": " : "", line);
	return false;
}

static bool make_recording(struct doctor *d) {
	char quiet[] = "--quiet", o[] = "-o", end[] = "--", version[] = "--version", import[] = "import";
	char *record[] = { d->recorder, quiet, o, d->trace, end, d->self, version, NULL };
	char *read[] = { d->self, import, quiet, d->trace, o, d->database, NULL };
	return run(d, "a test recording", record) && run(d, "its import", read);
}

static int64_t number(const struct tm_database *db, const char *sql) {
	return tm_database_integer(db, sql, -1);
}

static void put_number(struct doctor *d, const struct tm_database *db, const char *topic, const char *name, const char *sql) {
	int64_t n = number(db, sql);
	if (n >= 0) put(d, topic, name, "%lld", (long long)n);
}

static void put_recording(struct doctor *d, const struct tm_database *db) {
	int64_t allocations = number(db, "SELECT sum(allocations) FROM heap_summary WHERE heap IS NOT NULL");
	int64_t depth = number(db, "SELECT max(depth) FROM stack");
	if (allocations <= 0) snprintf(d->fault, sizeof d->fault, "no allocation of a test program was recorded");
	put(d, "hooks", "test", "%lld allocations of a test program were recorded", (long long)(allocations > 0 ? allocations : 0));
	put(d, "unwinder", "deepest_stack", "%lld frames", (long long)(depth > 0 ? depth : 0));
	put(d, "unwinder", "names", "%lld of %lld frames have a function, %lld a line",
	    (long long)number(db, "SELECT count(function) FROM frame"), (long long)number(db, "SELECT count(*) FROM frame"),
	    (long long)number(db, "SELECT count(line) FROM frame"));
	put_number(d, db, "recording", "lost", "SELECT coalesce(sum(count), 0) FROM loss");
	char *notes = tm_database_words(db, "SELECT kind || ': ' || text FROM note ORDER BY ts_ns");
	if (notes && *notes) put(d, "recording", "notes", "%s", notes);
	sqlite3_free(notes);
	int64_t rank = number(db, "SELECT rank FROM process WHERE id = 1");
	if (rank < 0) put(d, "rank", "rank", "none: no launcher's variable is set");
	put_number(d, db, "rank", "rank", "SELECT rank FROM process WHERE id = 1");
	put_number(d, db, "rank", "local_rank", "SELECT local_rank FROM process WHERE id = 1");
	put_number(d, db, "rank", "world_size", "SELECT world_size FROM process WHERE id = 1");
	char *job = tm_database_words(db, "SELECT job FROM trace WHERE job IS NOT NULL");
	if (job && *job) put(d, "rank", "job", "%s", job);
	sqlite3_free(job);
}

static void try_recording(struct doctor *d) {
	const char *place = getenv("TMPDIR");
	struct tm_database db = { 0 };
	snprintf(d->directory, sizeof d->directory, "%s/tidemark-doctor.XXXXXX", place && *place ? place : "/tmp");
	if (!mkdtemp(d->directory)) {
		snprintf(d->fault, sizeof d->fault, "cannot make a directory in '%s': %s", place && *place ? place : "/tmp", strerror(errno));
		return;
	}
	snprintf(d->trace, sizeof d->trace, "%s/doctor.tmk", d->directory);
	snprintf(d->database, sizeof d->database, "%s/doctor.db", d->directory);
	snprintf(d->said, sizeof d->said, "%s/said", d->directory);
	if (make_recording(d)) {
		if (tm_database_open(&db, d->database) == 0) put_recording(d, &db);
		else snprintf(d->fault, sizeof d->fault, "the database of a test recording cannot be read");
		tm_database_close(&db);
	}
	unlink(d->trace);
	unlink(d->database);
	unlink(d->said);
	rmdir(d->directory);
}

/* --- the system --- */

static void put_machine(struct doctor *d) {
	struct utsname name;
	char size[TM_UNIT_TEXT_MAX];
	if (uname(&name) == 0) put(d, "machine", "kernel", "%s %s %s", name.sysname, name.release, name.machine);
	put(d, "machine", "libc", "glibc %s", gnu_get_libc_version());
	put(d, "machine", "processors", "%ld", sysconf(_SC_NPROCESSORS_ONLN));
	put(d, "machine", "memory", "%s", tm_format_size((uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE), size));
}

static void put_cuda(struct doctor *d) {
	char line[256], path[32];
	int devices = 0;
	first_line("/proc/driver/nvidia/version", line, sizeof line);
	for (int i = 0; i < 64; i++) {
		snprintf(path, sizeof path, "/dev/nvidia%d", i);
		devices += access(path, F_OK) == 0;
	}
	put(d, "cuda", "driver", "%s", *line ? line : "none is loaded");
	put(d, "cuda", "devices", "%d", devices);
	const char *cupti = getenv("TIDEMARK_CUPTI");
	if (cupti) put(d, "cuda", "TIDEMARK_CUPTI", "%s%s", cupti, access(cupti, R_OK) == 0 ? "" : " (cannot be read)");
}

static void put_room(struct doctor *d, const char *path) {
	struct statvfs s;
	char size[TM_UNIT_TEXT_MAX];
	if (statvfs(path, &s) != 0) put(d, "scratch", path, "%s", strerror(errno));
	else put(d, "scratch", path, "%s free%s", tm_format_size((uint64_t)s.f_bavail * s.f_frsize, size),
		 access(path, W_OK) == 0 ? "" : ", not writable");
}

static void put_limits(struct doctor *d) {
	static const struct {
		const char *name;
		__rlimit_resource_t which;
		bool is_count;
	} limits[] = { { "locked_memory", RLIMIT_MEMLOCK, false },
		       { "address_space", RLIMIT_AS, false },
		       { "file_size", RLIMIT_FSIZE, false },
		       { "open_files", RLIMIT_NOFILE, true } };
	for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
		struct rlimit r;
		char text[TM_UNIT_TEXT_MAX];
		if (getrlimit(limits[i].which, &r) != 0) continue;
		put(d, "limits", limits[i].name, "%s",
		    r.rlim_cur == RLIM_INFINITY ? "none" : limits[i].is_count ? tm_format_count(r.rlim_cur, text) : tm_format_size(r.rlim_cur, text));
	}
}

static int show(struct doctor *d, const struct tm_options *o) {
	struct tm_render_plan plan = { .format = o->format, .path = "", .named_by = "name" };
	sqlite3_stmt *statement = NULL;
	int status = TM_EXIT_FAILED;
	if (sqlite3_prepare_v2(d->facts, "SELECT topic, name, value FROM fact ORDER BY rowid", -1, &statement, NULL) == SQLITE_OK)
		status = tm_render(statement, &plan, NULL);
	sqlite3_finalize(statement);
	return status;
}

int tm_cmd_doctor(int argc, char **argv) {
	struct tm_options o;
	struct doctor d = { .recorder = TM_RECORDER };
	int status = tm_options_parse(&o, &usage, argc, argv);
	if (status != TM_OPTIONS_GO) return status;
	ssize_t n = readlink("/proc/self/exe", d.self, sizeof d.self - 1);
	if (n < 0) return tm_fail("cannot read '/proc/self/exe': %s", strerror(errno));
	if (!tm_recorder_beside(d.recorder) || access(d.recorder, X_OK) != 0) strcpy(d.recorder, TM_RECORDER);
	if (sqlite3_open(":memory:", &d.facts) != SQLITE_OK ||
	    sqlite3_exec(d.facts, "CREATE TABLE fact(topic, name, value)", NULL, NULL, NULL) != SQLITE_OK)
		return tm_fail("cannot examine this machine: out of memory");
	put(&d, "tidemark", "version", "%s", TM_TOOL_VERSION);
	put(&d, "tidemark", "recorder", "%s", d.recorder);
	put_machine(&d);
	try_recording(&d);
	put(&d, "recording", "works", "%s%s", *d.fault ? "no: " : "yes", d.fault);
	put_cuda(&d);
	put_room(&d, ".");
	put_room(&d, "/tmp");
	put_room(&d, "/dev/shm");
	put_limits(&d);
	status = show(&d, &o);
	sqlite3_close(d.facts);
	if (!status && *d.fault) status = tm_fail("recording does not work here: %s", d.fault);
	return status;
}
