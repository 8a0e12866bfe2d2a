/* export_chrome.c - a database as Chrome trace JSON, for ui.perfetto.dev and chrome://tracing.
 *
 * What the viewers taught: times are microseconds with three decimals from the start of the trace; scopes are X events that nest within
 * their thread, parents first; memory shows as counters, since the newer viewer ignores memory dumps; process ids are rank + 1 for one process
 * of each rank, the real ones stand in the labels; and a browser takes about a million events. A larger database is thinned: counters keep the highest and
 * lowest of every few values, scopes and device work the longest, blocks the largest, and the file and standard error say what was left out.
 * Blocks from a size on are asynchronous pairs, for their lifetimes overlap, and so are scopes that do not lie within the ones around
 * them. Device work has a track for each stream, and an arrow to it from
 * the scope that launched it.
 */
#include "export.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "id_map.h"
#include "json_text.h"
#include "listing.h"
#include "scans.h"
#include "schema/units.h"
#include "talk.h"
#include "window_pieces.h"

#define TID_LIMIT 4194304            /* PID_MAX_LIMIT: no thread of the system has a higher number */
#define STREAM_TID (16 * TID_LIMIT) /* tracks of streams are numbered from there */
#define LIFETIME_BYTES (1 << 20)    /* blocks from this size on are shown, unless --lifetimes says otherwise */

struct chrome {
	const struct tm_database *d;
	const struct tm_options *o;
	struct tm_output *out;
	struct tm_bytes event;   /* being put together */
	char *pids;              /* common table expression: process id, pid, window */
	uint64_t events;         /* written */
	int64_t scopes_max;      /* 0: all */
	int64_t values_per_pair; /* counters keep two of that many; 0: all */
	int64_t blocks_max, work_max;    /* 0: all */
	int64_t marks_every, steps_every; /* of so many the first stays; 0: all */
	int64_t scopes_left_out, values_left_out, blocks_left_out, work_left_out, marks_left_out, steps_left_out;
	int status;
};

/* The process ids of the viewer. The first process of a rank stands for it; all others get numbers behind the ranks. */
static char *compose_pids(const struct tm_database *d, const struct tm_options *o) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	sqlite3_str_appendall(sql, "WITH pids AS MATERIALIZED (\n  SELECT p.id, CASE\n"
				   "    WHEN p.rank IS NULL OR p.id > (SELECT min(q.id) FROM process AS q WHERE q.rank = p.rank)\n"
				   "    THEN coalesce((SELECT max(rank) + 1 FROM process), 0) + p.id ELSE p.rank + 1 END AS pid,\n    ");
	if (o->from.kind == TM_TIME_UNSET) sqlite3_str_appendall(sql, "-1");
	else tm_time_point_sql(sql, &o->from, "p.id", o->heap);
	sqlite3_str_appendall(sql, " AS from_ns, ");
	if (o->to.kind == TM_TIME_UNSET) sqlite3_str_appendall(sql, "9223372036854775807");
	else tm_time_point_sql(sql, &o->to, "p.id", o->heap);
	sqlite3_str_appendall(sql, " AS to_ns, p.end_ns\n  FROM process AS p");
	tm_sql_process(sql, o, " WHERE", "p.id");
	/* The system uses a thread's number again; only its first thread keeps it here, for scopes of two must not share a track. */
	sqlite3_str_appendf(sql,
			    "),\ntids AS MATERIALIZED (\n  SELECT id, CASE row_number() OVER (PARTITION BY process_id, tid ORDER BY id)\n"
			    "    WHEN 1 THEN tid ELSE %d + id END AS tid FROM thread),\n"
			    "streams AS MATERIALIZED (\n  SELECT process_id, device, stream, %d + row_number() OVER (ORDER BY process_id, device, stream)\n"
			    "    AS tid FROM (SELECT DISTINCT process_id, device, stream FROM gpu_activity))\n",
			    TID_LIMIT, STREAM_TID);
	return sqlite3_str_finish(sql);
}

/* Prepares `pids` and the query; NULL when the export has failed, now or before. */
static sqlite3_stmt *ask(struct chrome *c, const char *query) {
	sqlite3_stmt *statement = NULL;
	if (c->status || c->out->failed) return NULL;
	char *sql = sqlite3_mprintf("%s%s", c->pids, query);
	c->status = tm_database_prepare(c->d, sql, &statement);
	sqlite3_free(sql);
	return c->status ? NULL : statement;
}

static bool step(struct chrome *c, sqlite3_stmt *statement) {
	if (!statement || c->out->failed) return false;
	int rc = sqlite3_step(statement);
	if (rc != SQLITE_ROW && rc != SQLITE_DONE) c->status = tm_fail("cannot read '%s': %s", c->d->path, sqlite3_errmsg(c->d->handle));
	return rc == SQLITE_ROW;
}

static int64_t count_rows(struct chrome *c, const char *query) {
	sqlite3_stmt *statement = ask(c, query);
	int64_t n = step(c, statement) ? sqlite3_column_int64(statement, 0) : 0;
	sqlite3_finalize(statement);
	return n;
}

/* Begins an event with what all have; tid 0 is the process itself. */
static void begin_event(struct chrome *c, const char *phase, int64_t pid, int64_t tid) {
	tm_put_format(&c->event, "%s{\"ph\":\"%s\",\"pid\":%lld,\"tid\":%lld", c->events ? ",\n" : "\n", phase, (long long)pid,
		      (long long)tid);
}

/* Only a damaged database has times below 0; "-1.-05" would be no number. */
static void put_ns(struct chrome *c, const char *key, int64_t ns) {
	if (ns < 0) ns = 0;
	tm_put_format(&c->event, ",\"%s\":%lld.%03lld", key, (long long)(ns / 1000), (long long)(ns % 1000));
}

static void put_text(struct chrome *c, const char *key, const char *text, size_t n) {
	tm_put_format(&c->event, ",\"%s\":", key);
	tm_json_string(&c->event, text, n);
}

static void put_column(struct chrome *c, const char *key, sqlite3_stmt *statement, int column) {
	const char *text = (const char *)sqlite3_column_text(statement, column);
	put_text(c, key, text ? text : "", (size_t)sqlite3_column_bytes(statement, column));
}

static void end_event(struct chrome *c) {
	tm_put_raw(&c->event, "}", 1);
	tm_output_flush(c->out, &c->event);
	c->events++;
}

/* A row (pid, tid, text) as metadata: args has one key. */
static void write_metadata(struct chrome *c, const char *name, const char *key, const char *query) {
	sqlite3_stmt *statement = ask(c, query);
	while (step(c, statement)) {
		const char *text = (const char *)sqlite3_column_text(statement, 2);
		begin_event(c, "M", sqlite3_column_int64(statement, 0), sqlite3_column_int64(statement, 1));
		put_text(c, "name", name, strlen(name));
		tm_put_format(&c->event, ",\"args\":{\"%s\":", key);
		if (sqlite3_column_type(statement, 2) == SQLITE_INTEGER) tm_put_format(&c->event, "%s", text);
		else tm_json_string(&c->event, text ? text : "", (size_t)sqlite3_column_bytes(statement, 2));
		tm_put_raw(&c->event, "}", 1);
		end_event(c);
	}
	sqlite3_finalize(statement);
}

static void write_all_metadata(struct chrome *c) {
	write_metadata(c, "process_name", "name",
		       "SELECT k.pid, 0, coalesce('rank ' || p.rank || iif((SELECT count(DISTINCT world) FROM process) > 1,\n"
		       "  coalesce('@' || p.world, ''), '') || ': ', '') ||\n"
		       "  coalesce(nullif(replace(p.exe, rtrim(p.exe, replace(p.exe, '/', '')), ''), ''), p.command, 'process ' || p.id)\n"
		       "FROM pids AS k JOIN process AS p ON p.id = k.id ORDER BY k.pid");
	write_metadata(c, "process_labels", "labels",
		       "SELECT k.pid, 0, 'pid ' || p.pid || coalesce(', host ' || p.host, '') || coalesce(', rank ' || p.rank, '') ||\n"
		       "  iif((SELECT count(DISTINCT world) FROM process) > 1, coalesce(', world ' || p.world, ''), '')\n"
		       "FROM pids AS k JOIN process AS p ON p.id = k.id ORDER BY k.pid");
	write_metadata(c, "process_sort_index", "sort_index", "SELECT pid, 0, pid FROM pids ORDER BY pid");
	write_metadata(c, "process_name", "name",
		       "SELECT max(k.pid) + 1, 0, 'machine' FROM pids AS k WHERE EXISTS (SELECT 1 FROM sample WHERE process_id IS NULL)\n"
		       "HAVING max(k.pid) IS NOT NULL");
	write_metadata(c, "thread_name", "name",
		       "SELECT k.pid, n.tid, coalesce(t.name, 'thread ' || t.tid)\n"
		       "FROM thread AS t JOIN pids AS k ON k.id = t.process_id JOIN tids AS n ON n.id = t.id ORDER BY k.pid, t.id");
	write_metadata(c, "thread_name", "name",
		       "SELECT k.pid, s.tid, 'cuda:' || coalesce(s.device, '?') || coalesce(' stream ' || s.stream, '')\n"
		       "FROM streams AS s JOIN pids AS k ON k.id = s.process_id ORDER BY k.pid, s.tid");
}

/* The ends of the scopes that are open on one thread. */
struct open_scopes {
	int64_t *ends;
	size_t count, room;
	int64_t thread;
};

static bool fits(struct open_scopes *open, int64_t thread, int64_t start, int64_t end) {
	if (thread != open->thread) open->count = 0;
	open->thread = thread;
	while (open->count && open->ends[open->count - 1] <= start) open->count--;
	return !open->count || end <= open->ends[open->count - 1];
}

/* The end that a scope may have at most, so that it lies in the one around it; opens it. */
static int64_t nest(struct open_scopes *open, int64_t thread, int64_t start, int64_t end) {
	if (!fits(open, thread, start, end)) end = open->ends[open->count - 1];
	if (open->count == open->room) {
		size_t room = open->room ? open->room * 2 : 64;
		int64_t *ends = realloc(open->ends, room * sizeof(*ends));
		if (!ends) return end; /* its children are then held to its parent only */
		open->ends = ends;
		open->room = room;
	}
	open->ends[open->count++] = end;
	return end;
}

#define SCOPES_FROM \
	"FROM scope AS s JOIN pids AS k ON k.id = s.process_id LEFT JOIN tids AS n ON n.id = s.thread_id\n" \
	"WHERE s.start_ns IS NOT NULL AND s.start_ns <= k.to_ns AND coalesce(s.end_ns, k.end_ns) >= k.from_ns\n"

/* Whether a scope of this name on this thread has overlapped another one: then the next ones are on the same track as it. */
static bool overlaps(struct tm_id_map *names, sqlite3_stmt *scope, bool does) {
	const unsigned char *name = sqlite3_column_text(scope, 4);
	uint64_t hash = 0xcbf29ce484222325u, thread = (uint64_t)sqlite3_column_int64(scope, 7);
	for (int i = sqlite3_column_bytes(scope, 4); i-- > 0;) hash = (hash ^ name[i]) * 0x100000001b3u;
	if (!does) return tm_id_map_find(names, thread, hash) != NULL;
	uint64_t *known = tm_id_map_put(names, thread, hash);
	if (known) *known = 1;
	return true;
}

static void write_end_kind(struct chrome *c, sqlite3_stmt *scope) {
	const char *kind = (const char *)sqlite3_column_text(scope, 6);
	tm_put_raw(&c->event, ",\"args\":{\"end\":", 15);
	tm_json_string(&c->event, kind ? kind : "", kind ? strlen(kind) : 0);
	tm_put_raw(&c->event, "}", 1);
}

static void write_overlapping(struct chrome *c, sqlite3_stmt *scope) {
	for (int is_end = 0; is_end < 2; is_end++) {
		begin_event(c, is_end ? "e" : "b", sqlite3_column_int64(scope, 0), sqlite3_column_int64(scope, 1));
		put_ns(c, "ts", sqlite3_column_int64(scope, 2 + is_end));
		put_column(c, "name", scope, 4);
		tm_put_format(&c->event, ",\"cat\":\"scope\",\"id\":\"%lld\"", (long long)sqlite3_column_int64(scope, 8));
		if (is_end) write_end_kind(c, scope);
		end_event(c);
	}
}

static void write_scopes(struct chrome *c) {
	struct open_scopes open = { 0 };
	struct tm_id_map names = { 0 };
	char *longest = c->scopes_max
				? sqlite3_mprintf("AND s.id IN (SELECT s.id " SCOPES_FROM
						  "ORDER BY coalesce(s.end_ns, k.end_ns) - s.start_ns DESC, s.depth, s.id LIMIT %lld)\n",
						  c->scopes_max)
				: NULL;
	char *query = sqlite3_mprintf(
		"SELECT k.pid, coalesce(n.tid, 0), s.start_ns, max(s.start_ns, coalesce(s.end_ns, k.end_ns)) AS last_ns,\n"
		"  s.name, s.category, "
		"s.end_kind, s.thread_id, s.id\n" SCOPES_FROM "%sORDER BY s.thread_id, s.start_ns, last_ns DESC, s.depth, s.id",
		longest ? longest : "");
	sqlite3_stmt *statement = query ? ask(c, query) : NULL;
	while (step(c, statement)) {
		int64_t thread = sqlite3_column_int64(statement, 7), start = sqlite3_column_int64(statement, 2),
			end = sqlite3_column_int64(statement, 3);
		if (overlaps(&names, statement, !fits(&open, thread, start, end))) {
			write_overlapping(c, statement);
			continue;
		}
		nest(&open, thread, start, end);
		begin_event(c, "X", sqlite3_column_int64(statement, 0), sqlite3_column_int64(statement, 1));
		put_ns(c, "ts", start);
		put_ns(c, "dur", end - start);
		put_column(c, "name", statement, 4);
		put_column(c, "cat", statement, 5);
		write_end_kind(c, statement);
		end_event(c);
	}
	tm_id_map_release(&names);
	sqlite3_finalize(statement);
	sqlite3_free(query);
	sqlite3_free(longest);
	free(open.ends);
}

#define STEPS_FROM \
	"FROM step AS s JOIN pids AS k ON k.id = s.process_id WHERE s.start_ns <= k.to_ns AND coalesce(s.end_ns, k.end_ns) >= k.from_ns\n"

/* Steps are intervals of the whole process and may lie across scopes: asynchronous pairs. */
static void write_steps(struct chrome *c) {
	static const char query[] = "SELECT k.pid, s.n, s.start_ns, max(s.start_ns, coalesce(s.end_ns, k.end_ns)) " STEPS_FROM
				    "ORDER BY k.pid, s.start_ns, s.n";
	sqlite3_stmt *statement = ask(c, query);
	for (long long id = 1; step(c, statement); id++) {
		if (c->steps_every && (id - 1) % c->steps_every) {
			c->steps_left_out++;
			continue;
		}
		for (int is_end = 0; is_end < 2; is_end++) {
			begin_event(c, is_end ? "e" : "b", sqlite3_column_int64(statement, 0), 0);
			put_ns(c, "ts", sqlite3_column_int64(statement, 2 + is_end));
			tm_put_format(&c->event, ",\"name\":\"step %lld\",\"cat\":\"step\",\"id\":\"%lld\"",
				      (long long)sqlite3_column_int64(statement, 1), id);
			end_event(c);
		}
	}
	sqlite3_finalize(statement);
}

static int64_t lifetime_bytes(const struct chrome *c) {
	return c->o->lifetimes_given ? c->o->lifetimes_bytes : LIFETIME_BYTES;
}

/* What follows FROM in a query over the blocks that are shown. To be freed with sqlite3_free(). */
static char *blocks_from(const struct chrome *c) {
	char *heap = c->o->heap ? sqlite3_mprintf(" AND h.name = %Q", c->o->heap) : NULL;
	char *from = sqlite3_mprintf("FROM allocation AS a JOIN pids AS k ON k.id = a.process_id JOIN heap AS h ON h.id = a.heap_id\n"
				     "WHERE a.size_bytes >= %lld AND a.alloc_ns <= k.to_ns AND coalesce(a.free_ns, k.end_ns) >= k.from_ns%s\n",
				     lifetime_bytes(c), heap ? heap : "");
	sqlite3_free(heap);
	return from;
}

/* The allocation at which the current row stands, from its beginning to its end. */
static void write_block(struct chrome *c, sqlite3_stmt *row) {
	char size[TM_UNIT_TEXT_MAX];
	const char *function = (const char *)sqlite3_column_text(row, 6);
	tm_format_size((uint64_t)sqlite3_column_int64(row, 4), size);
	for (int is_end = 0; is_end < 2; is_end++) {
		begin_event(c, is_end ? "e" : "b", sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1));
		put_ns(c, "ts", sqlite3_column_int64(row, 2 + is_end));
		tm_put_format(&c->event, ",\"cat\":\"allocation\",\"id\":\"a%lld\"", (long long)sqlite3_column_int64(row, 9));
		put_text(c, "name", function ? function : "unknown", function ? strlen(function) : 7);
		if (!is_end) {
			tm_put_format(&c->event, ",\"args\":{\"bytes\":%lld", (long long)sqlite3_column_int64(row, 4));
			put_text(c, "size", size, strlen(size));
			put_column(c, "heap", row, 5);
			put_column(c, "file", row, 7);
			put_column(c, "api", row, 8);
			tm_put_raw(&c->event, "}", 1);
		}
		end_event(c);
	}
}

/* In no order of time: viewers sort what is asynchronous, and sorting takes a quarter of an export. */
static void write_blocks(struct chrome *c) {
	char *from = blocks_from(c), *limit = c->blocks_max ? sqlite3_mprintf("ORDER BY a.size_bytes DESC, a.id LIMIT %lld", c->blocks_max) : NULL;
	char *query = sqlite3_mprintf(
		"SELECT b.pid, coalesce(n.tid, 0), b.alloc_ns, b.last_ns, b.size_bytes, b.heap, coalesce(t.text, '[no stack]'),\n"
		"  coalesce(f.file || ':' || f.line, ''), b.api, b.id FROM (\n"
		"  SELECT a.*, k.pid, h.name AS heap, max(a.alloc_ns, coalesce(a.free_ns, k.end_ns)) AS last_ns %s%s) AS b\n"
		"LEFT JOIN tids AS n ON n.id = b.thread_id LEFT JOIN stack AS s ON s.id = b.stack_id LEFT JOIN frame AS f ON f.id = s.site_frame_id\n"
		"LEFT JOIN frame_text AS t ON t.frame_id = f.id",
		from, limit ? limit : "");
	sqlite3_stmt *statement = query ? ask(c, query) : NULL;
	while (step(c, statement)) write_block(c, statement);
	sqlite3_finalize(statement);
	sqlite3_free(query);
	sqlite3_free(limit);
	sqlite3_free(from);
}

#define WORK_FROM \
	"FROM gpu_activity AS g JOIN pids AS k ON k.id = g.process_id\n" \
	"JOIN streams AS s ON s.process_id = g.process_id AND s.device IS g.device AND s.stream IS g.stream\n" \
	"LEFT JOIN tids AS n ON n.id = g.thread_id\n" \
	"WHERE g.start_ns <= k.to_ns AND g.end_ns >= k.from_ns\n"

/* An arrow from the scope that launched a piece of work to where it ran. It ends just inside of it: viewers compare rounded times. */
static void write_flow(struct chrome *c, sqlite3_stmt *row, int64_t end) {
	for (int is_end = 0; is_end < 2; is_end++) {
		begin_event(c, is_end ? "f" : "s", sqlite3_column_int64(row, 0), sqlite3_column_int64(row, is_end ? 1 : 8));
		put_ns(c, "ts", is_end ? end : sqlite3_column_int64(row, 7));
		tm_put_format(&c->event, ",\"cat\":\"launch\",\"name\":\"launch\",\"id\":%lld%s", (long long)sqlite3_column_int64(row, 9),
			      is_end ? ",\"bp\":\"e\"" : "");
		end_event(c);
	}
}

/* Kernels, copies and sets, on the tracks of their streams. */
static void write_work(struct chrome *c) {
	struct open_scopes open = { 0 };
	char *longest = c->work_max ? sqlite3_mprintf("AND g.id IN (SELECT g.id " WORK_FROM "ORDER BY g.end_ns - g.start_ns DESC, g.id LIMIT %lld)\n",
						      c->work_max)
				    : NULL;
	char *query = sqlite3_mprintf("SELECT k.pid, s.tid, g.start_ns, max(g.start_ns, g.end_ns) AS last_ns, g.kind,\n"
				      "  coalesce(g.name, g.kind || coalesce(' ' || g.direction, '')), g.size_bytes,\n"
				      "  CASE WHEN g.scope_id > 0 AND g.launch_ns <= g.start_ns THEN g.launch_ns END, n.tid, g.id\n" WORK_FROM "%s"
				      "ORDER BY s.tid, g.start_ns, last_ns DESC, g.id",
				      longest ? longest : "");
	sqlite3_stmt *statement = query ? ask(c, query) : NULL;
	while (step(c, statement)) {
		int64_t tid = sqlite3_column_int64(statement, 1), start = sqlite3_column_int64(statement, 2);
		int64_t end = nest(&open, tid, start, sqlite3_column_int64(statement, 3));
		begin_event(c, "X", sqlite3_column_int64(statement, 0), tid);
		put_ns(c, "ts", start);
		put_ns(c, "dur", end - start);
		put_column(c, "name", statement, 5);
		put_column(c, "cat", statement, 4);
		if (sqlite3_column_type(statement, 6) != SQLITE_NULL)
			tm_put_format(&c->event, ",\"args\":{\"bytes\":%lld}", (long long)sqlite3_column_int64(statement, 6));
		end_event(c);
		if (sqlite3_column_type(statement, 7) != SQLITE_NULL && sqlite3_column_type(statement, 8) != SQLITE_NULL)
			write_flow(c, statement, end - start > 1 ? start + 1 : start);
	}
	sqlite3_finalize(statement);
	sqlite3_free(query);
	sqlite3_free(longest);
	free(open.ends);
}

struct counter_value {
	int64_t pid, ts_ns, value;
};

static void write_value(struct chrome *c, const struct counter_value *v, const char *category, const char *name, const char *key) {
	begin_event(c, "C", v->pid, 0);
	put_ns(c, "ts", v->ts_ns);
	put_text(c, "name", name, strlen(name));
	tm_put_format(&c->event, ",\"cat\":\"%s\",\"args\":{\"%s\":%lld}", category, key, (long long)v->value);
	end_event(c);
}

/* The lowest and the highest of a few values of one counter, in the order of their times; only one if they are the same. */
static void write_extremes(struct chrome *c, const struct counter_value *low, const struct counter_value *high, const char *category,
			   const char *name, const char *key) {
	const struct counter_value *first = low->ts_ns <= high->ts_ns ? low : high, *second = first == low ? high : low;
	write_value(c, first, category, name, key);
	if (low->value != high->value) write_value(c, second, category, name, key);
}

/* Rows (pid, ts_ns, value, name, ends) as counters, those of one counter behind each other. One that ends is no extreme of those before: it stays. */
static void write_counters(struct chrome *c, const char *category, const char *key, const char *query) {
	struct counter_value low = { 0 }, high = { 0 };
	char *name = NULL;
	int64_t pending = 0, rows = 0, written = (int64_t)c->events;
	int64_t group = c->values_per_pair ? c->values_per_pair : 1;
	sqlite3_stmt *statement = ask(c, query);
	while (step(c, statement)) {
		struct counter_value v = { sqlite3_column_int64(statement, 0), sqlite3_column_int64(statement, 1),
					   sqlite3_column_int64(statement, 2) };
		const char *series = (const char *)sqlite3_column_text(statement, 3);
		if (!series) continue;
		bool is_new = !name || v.pid != low.pid || strcmp(name, series) != 0;
		if (pending && (is_new || pending == group || sqlite3_column_int(statement, 4))) {
			write_extremes(c, &low, &high, category, name, key);
			pending = 0;
		}
		if (is_new) {
			free(name);
			name = strdup(series);
			if (!name) c->status = tm_fail("cannot export '%s': out of memory", c->d->path);
			if (!name) break;
		}
		if (!pending || v.value < low.value) low = v;
		if (!pending || v.value > high.value) high = v;
		pending++;
		rows++;
	}
	if (pending && name) write_extremes(c, &low, &high, category, name, key);
	c->values_left_out += rows - ((int64_t)c->events - written);
	sqlite3_finalize(statement);
	free(name);
}

/* A level holds until the next one: the last one before a window is what the window begins with. */
#define HELD(table, of) \
	"FROM (SELECT t.*, lead(t.ts_ns) OVER (PARTITION BY " of " ORDER BY t.ts_ns) AS next_ns FROM " table " AS t)"
#define IN_WINDOW(row) \
	row ".ts_ns <= k.to_ns AND k.end_ns >= k.from_ns AND (" row ".ts_ns >= k.from_ns OR " row ".next_ns IS NULL OR " row \
	    ".next_ns > k.from_ns)\n"
#define TIMELINE_FROM HELD("memory_timeline", "t.process_id, t.heap") " AS t JOIN pids AS k ON k.id = t.process_id WHERE " IN_WINDOW("t")
/* Samples of machines have a process of their own, behind the last one, and a series for each trace where there are several. */
#define SAMPLE_NAME \
	"CASE WHEN s.process_id IS NULL AND (SELECT count(DISTINCT trace_id) FROM sample WHERE process_id IS NULL) > 1\n" \
	"THEN s.name || ' of trace ' || s.trace_id ELSE s.name END"
#define SAMPLES_FROM \
	"FROM sample AS s LEFT JOIN pids AS k ON k.id = s.process_id\n" \
	"CROSS JOIN (SELECT max(pid) + 1 AS pid, min(from_ns) AS from_ns, max(to_ns) AS to_ns FROM pids) AS m\n" \
	"WHERE (k.id IS NOT NULL OR (s.process_id IS NULL AND s.trace_id IN (SELECT p.trace_id FROM process AS p WHERE p.id IN (SELECT id FROM pids))))\n" \
	"AND s.ts_ns BETWEEN coalesce(k.from_ns, m.from_ns) AND coalesce(k.to_ns, m.to_ns)\n"

#define POOL_FROM \
	HELD("pool_state", "t.heap_id") " AS q JOIN heap AS h ON h.id = q.heap_id JOIN pids AS k ON k.id = h.process_id\n" \
	"WHERE " IN_WINDOW("q")
#define POOL_VALUES(what) \
	"SELECT k.pid, max(q.ts_ns, k.from_ns) AS ts_ns, q." what "_bytes, h.name || ' " what "' AS series " POOL_FROM "AND q." what "_bytes IS NOT NULL\n"

/* with: what the rows (pid, ts_ns, value, series) need, or "". A level is one of its process: where that ended before others did, it fell to 0. */
static void write_levels(struct chrome *c, const char *category, const char *key, const char *with, const char *rows) {
	char *query =
		with && rows
			? sqlite3_mprintf(
				  ",\n%sshown(pid, ts_ns, value, series) AS MATERIALIZED (\n%s)\n"
				  "SELECT pid, ts_ns, value, series, 0 AS ends FROM shown\n"
				  "UNION ALL SELECT DISTINCT s.pid, k.end_ns + 1, 0, s.series, 1 FROM shown AS s JOIN pids AS k ON k.pid = s.pid\n"
				  "  WHERE k.end_ns < min(k.to_ns, (SELECT max(end_ns) FROM pids))\n"
				  "ORDER BY pid, series, ts_ns, ends",
				  with, rows)
			: NULL;
	if (query) write_counters(c, category, key, query);
	else if (!c->status) c->status = tm_fail("cannot export '%s': out of memory", c->d->path);
	sqlite3_free(query);
}

static void write_live_bytes(struct chrome *c) {
	bool has_window = tm_has_window(c->o);
	sqlite3_str *with = sqlite3_str_new(c->d->handle), *rows = sqlite3_str_new(c->d->handle);
	if (has_window) tm_sql_pieces(with, c->d, c->o);
	sqlite3_str_appendall(with, has_window ? ",\n" : "");
	sqlite3_str_appendf(
		rows,
		"SELECT k.pid, t.ts_ns, t.live_bytes, coalesce(t.heap, 'all heaps') || CASE t.estimated WHEN 1 THEN ' (estimated)' ELSE '' END\n"
		"FROM %s AS t JOIN pids AS k ON k.id = t.process_id",
		has_window ? "piece" : "memory_timeline");
	if (c->o->heap) sqlite3_str_appendf(rows, " WHERE t.heap = %Q", c->o->heap);
	char *needed = sqlite3_str_finish(with), *query = sqlite3_str_finish(rows);
	write_levels(c, "memory", "live_bytes", needed ? needed : "", query);
	sqlite3_free(needed);
	sqlite3_free(query);
}

static void write_all_counters(struct chrome *c) {
	write_live_bytes(c);
	write_counters(c, "sample", "value",
		       "SELECT coalesce(k.pid, m.pid) AS pid, s.ts_ns, s.value, " SAMPLE_NAME " AS series, 0 " SAMPLES_FROM
		       "ORDER BY pid, series, s.ts_ns");
	write_levels(c, "pool", "bytes", "",
		     POOL_VALUES("allocated") "UNION ALL\n" POOL_VALUES("reserved") "UNION ALL\n" POOL_VALUES(
			     "active") "UNION ALL\n" POOL_VALUES("inactive"));
}

#define MARKS_FROM \
	"FROM mark AS m JOIN pids AS k ON k.id = m.process_id LEFT JOIN tids AS n ON n.id = m.thread_id WHERE m.ts_ns BETWEEN k.from_ns AND k.to_ns\n"

/* Rows (pid, tid, ts_ns, name) as instants; tid 0: of the whole process. */
static void write_instants(struct chrome *c, const char *category, const char *query, int64_t every) {
	sqlite3_stmt *statement = ask(c, query);
	for (int64_t n = 0; step(c, statement); n++) {
		if (every && n % every) {
			c->marks_left_out++;
			continue;
		}
		int64_t tid = sqlite3_column_int64(statement, 1);
		begin_event(c, "i", sqlite3_column_int64(statement, 0), tid);
		put_ns(c, "ts", sqlite3_column_int64(statement, 2));
		put_column(c, "name", statement, 3);
		tm_put_format(&c->event, ",\"cat\":\"%s\",\"s\":\"%s\"", category, tid ? "t" : "p");
		end_event(c);
	}
	sqlite3_finalize(statement);
}

static void write_all_instants(struct chrome *c) {
	write_instants(c, "mark", "SELECT k.pid, coalesce(n.tid, 0), m.ts_ns, m.name " MARKS_FROM "ORDER BY m.ts_ns, m.id", c->marks_every);
	write_instants(c, "alert",
		       "SELECT k.pid, 0, a.ts_ns, a.rule FROM alert AS a JOIN pids AS k ON k.id = a.process_id\n"
		       "WHERE a.ts_ns BETWEEN k.from_ns AND k.to_ns ORDER BY a.ts_ns, a.rule", 0);
	write_instants(c, "oom",
		       "SELECT k.pid, coalesce(n.tid, 0), o.ts_ns, 'out of memory: ' || coalesce(h.name, 'unknown heap') ||\n"
		       "  coalesce(', ' || o.size_bytes || ' bytes', '')\n"
		       "FROM oom AS o JOIN pids AS k ON k.id = o.process_id LEFT JOIN tids AS n ON n.id = o.thread_id\n"
		       "LEFT JOIN heap AS h ON h.id = o.heap_id WHERE o.ts_ns BETWEEN k.from_ns AND k.to_ns ORDER BY o.ts_ns", 0);
}

/* How many of `count` things may stay; 0: all. */
static int64_t thinned(int64_t count, double share, int64_t *left_out) {
	if (!count) return 0;
	int64_t max = (int64_t)((double)count * share) + 1;
	*left_out = count > max ? count - max : 0;
	return max;
}

/* Marks and steps stay that are no more than this, or than this part of all events. */
#define FEW 100
#define FEW_SHARE 10

/* Decides what to leave out. Metadata, and marks and steps where they are few, stay; all else shares what remains in proportion. */
static void plan_thinning(struct chrome *c) {
	char *from = blocks_from(c), *query = sqlite3_mprintf("SELECT count(*) %s", from ? from : "");
	int64_t scopes = count_rows(c, "SELECT count(*) " SCOPES_FROM), blocks = query ? count_rows(c, query) : 0;
	int64_t values = count_rows(c, "SELECT (SELECT count(*) " TIMELINE_FROM ") + (SELECT count(*) " SAMPLES_FROM
				       ") + 4 * (SELECT count(*) " POOL_FROM ")");
	int64_t work = count_rows(c, "SELECT count(*) " WORK_FROM), marks = count_rows(c, "SELECT count(*) " MARKS_FROM),
		steps = count_rows(c, "SELECT count(*) " STEPS_FROM);
	bool are_few = marks + 2 * steps <= FEW || (marks + 2 * steps) * FEW_SHARE <= c->o->max_events;
	int64_t events = scopes + values + 2 * blocks + 3 * work + (are_few ? 0 : marks + 2 * steps);
	double share = c->o->max_events && events ? (double)c->o->max_events / (double)events : 1;
	sqlite3_free(query);
	sqlite3_free(from);
	if (share >= 1) return;
	c->values_per_pair = (int64_t)(2 / share) + 1;
	if (!are_few) c->marks_every = c->steps_every = (int64_t)(1 / share) + 1;
	c->scopes_max = thinned(scopes, share, &c->scopes_left_out);
	c->blocks_max = thinned(blocks, share, &c->blocks_left_out);
	c->work_max = thinned(work, share, &c->work_left_out);
}

static void write_tail(struct chrome *c) {
	struct tm_bytes text = TM_BYTES_INIT;
	const struct {
		int64_t count;
		const char *what;
	} left_out[] = { { c->scopes_left_out, "scopes (the shortest)" },
			 { c->blocks_left_out, "blocks (the smallest)" },
			 { c->work_left_out, "pieces of device work (the shortest)" },
			 { c->marks_left_out, "marks" },
			 { c->steps_left_out, "steps" },
			 { c->values_left_out, "counter values (of every few the highest and lowest stay)" } };
	for (size_t i = 0; i < sizeof(left_out) / sizeof(left_out[0]); i++) {
		if (left_out[i].count) tm_put_format(&text, "%s%" PRId64 " %s", text.size ? ", " : "", left_out[i].count, left_out[i].what);
	}
	tm_put_u8(&text, 0);
	if (text.size > 1 && !text.failed)
		tm_say("left out to stay near %" PRId64 " events: %s; --max-events=0 keeps all", c->o->max_events, (const char *)text.data);
	tm_put_format(&c->event, "\n],\"otherData\":{\"tool\":\"tidemark %s\",\"left_out\":\"", TM_TOOL_VERSION);
	tm_put_raw(&c->event, text.data, text.size ? text.size - 1 : 0);
	tm_put_format(&c->event, "\",\"lifetimes_from_bytes\":%lld}}\n", (long long)lifetime_bytes(c));
	tm_output_flush(c->out, &c->event);
	tm_bytes_release(&text);
}

int tm_export_chrome(const struct tm_database *d, const struct tm_options *o, struct tm_output *out) {
	struct chrome c = { .d = d, .o = o, .out = out, .pids = compose_pids(d, o) };
	if (!c.pids) return tm_fail("cannot export '%s': out of memory", d->path);
	plan_thinning(&c);
	tm_output_write(out, "{\"traceEvents\":[", 16);
	write_all_metadata(&c);
	write_scopes(&c);
	write_work(&c);
	write_steps(&c);
	write_blocks(&c);
	write_all_counters(&c);
	write_all_instants(&c);
	write_tail(&c);
	sqlite3_free(c.pids);
	tm_bytes_release(&c.event);
	return c.status;
}
