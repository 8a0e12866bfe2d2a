/* import.c - from trace files to a database; see import.h. */
#include "import.h"

#include "catalog.h"
#include "foreign.h"
#include "import_trace.h"
#include "journal.h"
#include "overwrite.h"
#include "talk.h"

#include "../schema/units.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_LEFT 24 /* descriptors */
#define LARGE_BYTES (1 << 20)
#define OFFSET_MAX_NS (1ull << 62) /* a century and a half between two traces is damage */
#define RANKS_APART_NS 60000000000 /* ranks of one world begin within less */

/* Every time in the database, but for gaps'. */
static const struct {
	const char *table, *columns[3];
} times[] = {
	{ "trace", { "clock_offset_ns", "end_ns" } },
	{ "process", { "start_ns", "exit_ns", "end_ns" } },
	{ "thread", { "start_ns", "end_ns" } },
	{ "module", { "load_ns", "unload_ns" } },
	{ "scope_packed", { "start_ns", "end_ns" } },
	{ "step", { "start_ns", "end_ns" } },
	{ "allocation_packed", { "alloc_ns" } },
	{ "mark", { "ts_ns" } },
	{ "sample", { "ts_ns" } },
	{ "pool_state", { "ts_ns" } },
	{ "gpu_activity", { "start_ns", "end_ns", "launch_ns" } },
	{ "gpu_overhead", { "start_ns", "end_ns" } },
	{ "gpu_memory", { "ts_ns" } },
	{ "gpu_use", { "ts_ns" } },
	{ "gpu_work_total", { "first_ns", "last_ns" } },
	{ "gpu_block", { "alloc_ns", "free_ns", "idle_from_ns" } },
	{ "gpu_block", { "first_use_ns", "last_use_ns" } },
	{ "gpu_inefficiency_total", { "first_ns", "last_ns" } },
	{ "gpu_gap_sample", { "ts_ns" } },
	{ "peak_period", { "start_ns", "end_ns", "peak_ns" } },
	{ "oom", { "ts_ns" } },
	{ "snapshot", { "ts_ns" } },
	{ "scope_snapshot_packed", { "ts_ns" } },
	{ "note", { "ts_ns" } },
	{ "alert", { "ts_ns" } },
	{ "heap_total", { "peak_ns" } },
	{ "timeline", { "ts_ns" } },
	{ "gap", { "ts_ns" } },
	{ "checkpoint", { "ts_ns" } },
	{ "level_total", { "peak_ns" } },
	{ "leak_score", { "first_ns", "last_ns" } },
};

struct sources {
	struct tm_import_source *items;
	size_t count;
	uint64_t epoch_unix_ns; /* wall clock at the database's time 0; 0 unknown */
};

static int failed(const struct tm_import_source *source, const struct tm_store *store) {
	if (store->failed) return tm_fail("cannot import '%s' into '%s': %s", source->path, store->path, store->error);
	return tm_fail("cannot import '%s': %s", source->path, source->error);
}

static void move_times(struct tm_store *store, uint64_t by_ns) {
	char sql[200];
	for (size_t i = 0; i < sizeof times / sizeof *times; i++)
		for (size_t k = 0; k < 3 && times[i].columns[k]; k++) {
			const char *column = times[i].columns[k];
			snprintf(sql, sizeof sql, "UPDATE %s SET %s = %s + %llu", times[i].table, column, column,
				 (unsigned long long)by_ns);
			tm_store_execute(store, sql);
		}
	/* Their times are part of their key: where one has moved, another may be still. Below 0 there is none. */
	snprintf(sql, sizeof sql, "UPDATE coverage_gap SET start_ns = -1 - start_ns - %llu, end_ns = end_ns + %llu", (unsigned long long)by_ns,
		 (unsigned long long)by_ns);
	tm_store_execute(store, sql);
	tm_store_execute(store, "UPDATE coverage_gap SET start_ns = -1 - start_ns");
}

/* The database's time 0 is the start of its earliest trace; when an earlier one is appended, everything in it moves. */
static void settle_epoch(struct sources *all, struct tm_store *store) {
	int64_t present = tm_store_number(store, "SELECT min(start_unix_ns - clock_offset_ns) FROM trace", 0);
	uint64_t earliest = present > 0 ? (uint64_t)present : 0;
	for (size_t i = 0; i < all->count; i++) {
		uint64_t start = all->items[i].identity.start_unix_ns;
		if (start && (!earliest || start < earliest)) earliest = start;
	}
	all->epoch_unix_ns = earliest;
	if (present > 0 && earliest < (uint64_t)present) move_times(store, (uint64_t)present - earliest);
}

static uint64_t offset_of(const struct sources *all, const struct tm_import_source *source) {
	uint64_t offset = source->identity.start_unix_ns ? source->identity.start_unix_ns - all->epoch_unix_ns : 0;
	return offset < OFFSET_MAX_NS ? offset : OFFSET_MAX_NS;
}

/* Ranks of a world run at the same time. Of each world the rank that begins last, with all that it ran, and the one that ends first: where a minute and
 * more lies between them the clock of a host was wrong, or they are ranks of different runs. */
static void warn_of_ranks_apart(struct tm_store *store) {
	static const char query[] =
		"WITH one AS (SELECT p.world, p.rank, p.start_ns, p.end_ns, t.id, t.path FROM process AS p JOIN trace AS t ON t.id = p.trace_id"
		" WHERE p.rank IS NOT NULL AND t.start_unix_ns IS NOT NULL),\n"
		"first AS (SELECT world, rank, id, path, min(start_ns) AS ns FROM one GROUP BY world, rank),\n"
		"last AS (SELECT world, rank, id, path, max(end_ns) AS ns FROM one GROUP BY world, rank),\n"
		"begun AS (SELECT world, rank, id, path, max(ns) AS ns FROM first GROUP BY world),\n"
		"over AS (SELECT world, rank, id, path, min(ns) AS ns FROM last GROUP BY world)\n"
		"SELECT over.path, over.rank, begun.path, begun.rank, begun.ns - over.ns FROM over JOIN begun ON begun.world IS over.world"
		" WHERE begun.ns - over.ns >= ? AND begun.id <> over.id ORDER BY over.id";
	sqlite3_stmt *row = tm_store_prepare(store, query);
	sqlite3_bind_int64(row, 1, RANKS_APART_NS);
	while (row && sqlite3_step(row) == SQLITE_ROW) {
		char apart[TM_UNIT_TEXT_MAX];
		tm_say("warning: '%s' (rank %lld) ends %s before '%s' (rank %lld) begins, though both say that they are of one world: a host's clock was"
		       " wrong, or they are of different runs; what is added up over ranks by time means nothing",
		       (const char *)sqlite3_column_text(row, 0), (long long)sqlite3_column_int64(row, 1),
		       tm_format_time((uint64_t)sqlite3_column_int64(row, 4), apart), (const char *)sqlite3_column_text(row, 2),
		       (long long)sqlite3_column_int64(row, 3));
	}
	sqlite3_finalize(row);
}

static int import_one(const struct sources *all, size_t i, struct tm_store *store, struct tm_import_remains *remains) {
	char what[300];
	struct tm_progress progress;
	snprintf(what, sizeof what, "importing '%s'", all->items[i].path);
	tm_progress_start(&progress, what);
	tm_import_remains_wait(remains); /* its memory is the next one's */
	int rc = tm_import_trace(store, &all->items[i], offset_of(all, &all->items[i]), &progress, remains);
	tm_progress_end(&progress);
	return rc;
}

/* One attempt: all traces into a fresh database, or into one transaction. */
static int attempt(struct sources *all, const char *database, const struct tm_import_options *options) {
	struct tm_store store;
	struct tm_import_remains remains = { 0 };
	int rc = TM_IMPORT_FAILED;
	if (tm_store_open(&store, database, options->mode) < 0) {
		tm_fail("cannot import into '%s': %s", database, store.error);
		goto out;
	}
	settle_epoch(all, &store);
	for (size_t i = 0; i < all->count; i++) {
		rc = import_one(all, i, &store, &remains);
		if (rc == TM_IMPORT_FAILED) failed(&all->items[i], &store);
		if (rc != TM_IMPORT_DONE) goto out;
	}
	if (all->count > 1 || options->mode == TM_STORE_APPEND) warn_of_ranks_apart(&store);
	if (tm_store_commit(&store) < 0) {
		tm_fail("cannot write '%s': %s", database, store.error);
		rc = TM_IMPORT_FAILED;
	}
out:
	tm_import_remains_wait(&remains);
	tm_store_release(&store);
	return rc;
}

static void say_what_was_done(const struct sources *all, const char *database, bool quiet) {
	uint64_t events = 0;
	char text[TM_UNIT_TEXT_MAX];
	for (size_t i = 0; i < all->count; i++) {
		const struct tm_import_source *s = &all->items[i];
		events += s->events;
		if (s->cut_reason)
			tm_say("warning: '%s' ends at offset %llu: %s; what comes before it was imported%s", s->path,
			       (unsigned long long)s->sound_bytes, s->cut_reason,
			       s->is_nameless ? "; it has few names or none: `tidemark names` looks them up" : "");
	}
	if (quiet) return;
	tm_format_count(events, text);
	const char *plural = events == 1 ? "" : "s";
	if (all->count == 1) tm_say("imported %s event%s of '%s' into '%s'", text, plural, all->items[0].path, database);
	else tm_say("imported %s event%s of %zu traces into '%s'", text, plural, all->count, database);
}

/* --force replaces an older result, but neither what is being read nor anything that is not ours. */
static int check_output(const char *const *paths, size_t n, const char *database, enum tm_store_mode mode) {
	for (size_t i = 0; i < n; i++)
		if (tm_is_same_file(paths[i], database))
			return tm_fail("cannot import '%s' into '%s': the output is the input", paths[i], database);
	if (mode != TM_STORE_FORCE || access(database, F_OK) || tm_is_empty_file(database)) return 0;
	int is_ours = tm_is_tidemark_database(database);
	if (is_ours > 0) return 0;
	if (is_ours < 0) return tm_fail("cannot import into '%s': database is locked", database);
	return tm_fail("cannot import into '%s': it exists and is no database of tidemark's, which is all that --force replaces", database);
}

/* --- copies: one recording counts once --- */

/* Another tool's recording seldom says when and where it was made; it is known by what it tells. */
static bool is_copy(const struct tm_import_source *x, const struct tm_import_source *y) {
	const struct tm_trace_identity *a = &x->identity, *b = &y->identity;
	if (x->foreign || y->foreign) return x->foreign && y->foreign && x->foreign->content == y->foreign->content;
	return a->start_unix_ns && a->start_unix_ns == b->start_unix_ns && a->first_pid == b->first_pid && strcmp(a->host, b->host) == 0;
}

/* The path of the trace in the database that is a copy of this one, to be freed with sqlite3_free(); NULL: there is none. What a damaged one did not tell of
 * the host and the first process may be the same. */
static char *path_in(sqlite3 *database, const struct tm_import_source *s) {
	const struct tm_trace_identity *identity = &s->identity;
	sqlite3_stmt *statement = NULL;
	char *path = NULL;
	if (sqlite3_prepare_v2(database,
			       "SELECT path FROM trace AS t WHERE CASE WHEN ?4 IS NULL THEN start_unix_ns = ?1 AND coalesce(host, ?2) = ?2"
			       " AND coalesce((SELECT pid FROM process WHERE trace_id = t.id ORDER BY id LIMIT 1), ?3) = ?3"
			       " ELSE EXISTS (SELECT 1 FROM trace_info AS i WHERE i.trace_id = t.id AND i.key = '" TM_FOREIGN_CONTENT
			       "' AND i.value = ?4) END",
			       -1, &statement, NULL) == SQLITE_OK) {
		sqlite3_bind_int64(statement, 1, (sqlite3_int64)identity->start_unix_ns);
		sqlite3_bind_text(statement, 2, identity->host, -1, SQLITE_STATIC);
		sqlite3_bind_int64(statement, 3, (sqlite3_int64)identity->first_pid);
		char content[24];
		snprintf(content, sizeof content, "%llu", s->foreign ? (unsigned long long)s->foreign->content : 0);
		if (s->foreign) sqlite3_bind_text(statement, 4, content, -1, SQLITE_STATIC);
		if ((s->foreign || identity->start_unix_ns) && sqlite3_step(statement) == SQLITE_ROW)
			path = sqlite3_mprintf("%s", sqlite3_column_text(statement, 0));
	}
	sqlite3_finalize(statement);
	return path;
}

static char *path_in_database(const char *database, const struct tm_import_source *s) {
	sqlite3 *handle = NULL;
	char *path = tm_journal_open(database, &handle, 0) == SQLITE_OK ? path_in(handle, s) : NULL;
	sqlite3_close(handle);
	return path;
}

enum tm_import_likeness tm_import_compare(sqlite3 *database, const char *trace, bool may_translate) {
	struct tm_foreign foreign = { .fd = -1 };
	struct tm_import_source s = { .path = trace, .identity = tm_catalog_peek(trace) };
	char why[64];
	enum tm_foreign_kind kind = s.identity.start_unix_ns ? TM_FOREIGN_NONE : tm_foreign_recognise(trace, why, sizeof why);
	if (kind == TM_FOREIGN_NONE ? !s.identity.start_unix_ns : !may_translate) return TM_IMPORT_UNTOLD;
	if (kind != TM_FOREIGN_NONE) s.foreign = &foreign;
	int rc = s.foreign ? tm_foreign_translate(s.foreign, kind, trace, NULL) : 0;
	char *path = rc < 0 ? NULL : path_in(database, &s);
	enum tm_import_likeness likeness = path ? TM_IMPORT_SAME : TM_IMPORT_OTHER;
	sqlite3_free(path);
	tm_foreign_release(&foreign);
	return likeness;
}

/* One taken before it that it is a copy of; NULL: there is none. */
static struct tm_import_source *taken_copy(const struct sources *all, const struct tm_import_source *s) {
	for (size_t i = 0; i < all->count; i++)
		if (is_copy(&all->items[i], s)) return &all->items[i];
	return NULL;
}

static bool goes_further(const struct tm_import_source *s, const struct tm_import_source *taken) {
	if (s->foreign) return false;
	struct tm_trace_reach a = tm_catalog_reach(s->path), b = tm_catalog_reach(taken->path);
	if (a.end_ns != b.end_ns) return a.end_ns > b.end_ns;
	return a.closed != b.closed ? a.closed : a.sound_bytes > b.sound_bytes;
}

/* What a trace is a copy of: one taken before it, or one in the database that is appended to. To be freed; NULL: of none. Of two that were
 * found the one that holds more is kept, and *s becomes the other one. */
static char *original_of(const struct sources *all, struct tm_import_source *s, const char *database, enum tm_store_mode mode) {
	struct tm_import_source *taken = taken_copy(all, s);
	if (taken && taken->was_found && s->was_found && goes_further(s, taken)) {
		struct tm_import_source shorter = *taken;
		*taken = *s;
		*s = shorter;
	}
	if (taken) return sqlite3_mprintf("%s", taken->path);
	return mode == TM_STORE_APPEND && access(database, F_OK) == 0 ? path_in_database(database, s) : NULL;
}

/* An SQLite file that is cut, or that something else has happened to. */
static bool is_damaged_database(const char *path) {
	struct stat status;
	sqlite3 *db = NULL;
	if (stat(path, &status) || !S_ISREG(status.st_mode)) return false; /* SQLite would wait for a pipe's writer */
	bool is_damaged = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) == SQLITE_OK &&
			  sqlite3_exec(db, "SELECT 1 FROM sqlite_schema LIMIT 1", NULL, NULL, NULL) == SQLITE_CORRUPT;
	sqlite3_close(db);
	return is_damaged;
}

/* What was imported before, perhaps by another version; false: it is something else. */
static bool is_imported(struct tm_import_source *s) {
	int version = tm_is_tidemark_database(s->path);
	if (version == TM_SCHEMA_VERSION)
		snprintf(s->error, sizeof s->error,
			 "it is an imported database already ('tidemark summary' and the other commands read it as it is)");
	else if (version > 0)
		snprintf(s->error, sizeof s->error,
			 "it is a database of schema version %d, which this tidemark does not read (it reads %d): import its trace again",
			 version, TM_SCHEMA_VERSION);
	return version > 0;
}

/* Sees that it can be read; another tool's recording is translated. 0 or -1 with s->error set. */
static int open_source(struct tm_import_source *s, const char *database) {
	struct tm_reader r;
	char why[64] = "";
	int rc = tm_reader_open(&r, s->path, s->error, sizeof s->error);
	tm_reader_release(&r);
	enum tm_foreign_kind kind = rc < 0 ? tm_foreign_recognise(s->path, why, sizeof why) : TM_FOREIGN_NONE;
	if (*why && r.file_bytes) snprintf(s->error, sizeof s->error, "%s", why); /* of what is no regular file the reader says more */
	else if (rc < 0 && !is_imported(s) && kind == TM_FOREIGN_NONE && is_damaged_database(s->path))
		snprintf(s->error, sizeof s->error, "it is an SQLite file, and damaged or cut: %s", sqlite3_errstr(SQLITE_CORRUPT));
	if (kind == TM_FOREIGN_NONE) return rc;
	s->foreign = calloc(1, sizeof *s->foreign);
	if (!s->foreign) return snprintf(s->error, sizeof s->error, "out of memory"), -1;
	rc = tm_foreign_translate(s->foreign, kind, s->path, database);
	if (rc < 0) snprintf(s->error, sizeof s->error, "%s", s->foreign->error);
	return rc;
}

static void release_source(struct tm_import_source *s) {
	if (s->foreign) tm_foreign_release(s->foreign);
	free(s->foreign);
	s->foreign = NULL;
}

/* Each recording of another tool has a descriptor until the end. */
static void allow_many_files(void) {
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files)) return;
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
}

/* What has the lowest free number says how many there are. It must not end at the last one: the import itself, and whatever comes next, need some, and a
 * recording that lay in a directory would be left out for want of them. 0 or -1 with s->error set. */
static int check_files(struct tm_import_source *s, size_t taken) {
	struct rlimit files;
	if (!s->foreign || !taken || getrlimit(RLIMIT_NOFILE, &files) || (rlim_t)s->foreign->fd + FILES_LEFT < files.rlim_cur) return 0;
	snprintf(s->error, sizeof s->error, "%s: each recording of another tool takes one, %zu have, and 'ulimit -Hn' is %llu",
		 strerror(EMFILE), taken, (unsigned long long)files.rlim_cur);
	return -1;
}

/* Adds a trace to those that will be imported, unless its recording is there already. */
static int take_source(struct sources *all, const char *path, bool was_found, const char *database, enum tm_store_mode mode) {
	struct tm_import_source s = { .path = path, .was_found = was_found, .limit = UINT64_MAX };
	int rc = open_source(&s, database);
	/* That what lies about is a recording is no more than a guess from its first bytes, and one of another version must not cost all others. */
	if (rc < 0 && was_found) return tm_say("warning: '%s' is left out: %s", path, s.error), release_source(&s), TM_IMPORT_DONE;
	if (rc == 0 && was_found && s.foreign && s.foreign->tells_nothing)
		return tm_say("warning: '%s' is left out: no event in it is of a kind that is read", path), release_source(&s),
		       TM_IMPORT_DONE;
	if (rc == 0) rc = check_files(&s, all->count);
	if (rc < 0) return tm_fail("cannot import '%s': %s", path, s.error), release_source(&s), TM_EXIT_FAILED;
	s.identity = tm_catalog_peek(s.foreign ? s.foreign->path : path);
	/* A reader may know it only when the names of many frames stand before it, further than is peeked. */
	if (s.foreign) s.identity.start_unix_ns = s.foreign->start_unix_ns;
	char *original = original_of(all, &s, database, mode);
	if (original && was_found) tm_say("warning: '%s' is left out: '%s' is the same recording", s.path, original);
	else if (original) rc = tm_fail("cannot import '%s': '%s' is the same recording, which would count twice", path, original);
	else all->items[all->count++] = s;
	if (original) release_source(&s);
	sqlite3_free(original);
	return rc;
}

/* Large tables grow where they are, by moving pages, and go back to the system when they are given up. Left to itself malloc() would take
 * to copying tables of up to 32 MiB, and keep the holes. What one thread gave up the next one takes: they allocate too seldom to be in each other's way. */
static void keep_memory_small(void) {
	mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
	mallopt(M_ARENA_MAX, 1);
}

int tm_import(const char *const *paths, size_t n, const char *database, const struct tm_import_options *options) {
	if (check_output(paths, n, database, options->mode)) return TM_EXIT_FAILED;
	allow_many_files();
	keep_memory_small();
	struct sources all = { .items = calloc(n + 1, sizeof *all.items) };
	if (!all.items) return tm_fail("cannot import into '%s': out of memory", database);
	int rc = TM_IMPORT_DONE;
	for (size_t i = 0; i < n && rc == TM_IMPORT_DONE; i++)
		rc = take_source(&all, paths[i], options->was_found && options->was_found[i], database, options->mode);
	if (rc == TM_IMPORT_DONE && !all.count && options->mode != TM_STORE_APPEND)
		rc = tm_fail("cannot import into '%s': nothing that was found can be read", database);
	/* Each further attempt has a lower limit for one trace, so they end. */
	if (rc == TM_IMPORT_DONE && all.count) do
			rc = attempt(&all, database, options);
		while (rc == TM_IMPORT_AGAIN);
	if (rc == TM_IMPORT_DONE) say_what_was_done(&all, database, options->quiet);
	for (size_t i = 0; i < all.count; i++) release_source(&all.items[i]);
	free(all.items);
	return rc == TM_IMPORT_DONE ? TM_EXIT_DONE : TM_EXIT_FAILED;
}

int tm_import_beside(const char *trace, const char *database) {
	struct tm_import_options options = { .mode = TM_STORE_FORCE, .quiet = true };
	return tm_import(&trace, 1, database, &options);
}
