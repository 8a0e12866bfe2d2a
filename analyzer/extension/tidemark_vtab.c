/* tidemark_vtab.c - a loadable SQLite extension that reads a trace as a table, without an import.
 *
 *     .load build/lib/tidemark_vtab
 *     CREATE VIRTUAL TABLE temp.event USING tidemark('run.tmk');
 *     SELECT api, count(*), sum(size_bytes) FROM event GROUP BY api;
 *
 * Flow:     reader.c, catalog.c (who and what), schema/events.c -> here -> SQLite
 * Idea:     one row for each event, in the order of the file: chunk by chunk, thread by thread within a chunk. Nothing is paired or added up; what
 *           the database of an import says is not asked of this table. Ids are the trace's own, times count from its start.
 * Threads:  SQLite calls a connection from one thread at a time; each cursor has its own reader.
 * Fails:    through SQLite, with a sentence. A trace that is cut ends where it is sound, as with an import, with a line on standard error.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT1

#include "../catalog.h"

#include "../../schema/events.h"

#include <stdio.h>

static const char declaration[] =
	"CREATE TABLE event(process_id INTEGER, thread_id INTEGER, ts_ns INTEGER, begin_ns INTEGER, api TEXT, class TEXT, address INTEGER, size_bytes INTEGER,"
	" usable_bytes INTEGER, old_address INTEGER, old_size_bytes INTEGER, stack_id INTEGER, heap_id INTEGER, text TEXT)";
enum { PROCESS, THREAD, TS, BEGIN, API, CLASS, ADDRESS, SIZE, USABLE, OLD, OLD_SIZE, STACK, HEAP, TEXT };

struct table {
	sqlite3_vtab base;
	char *path;
	struct tm_catalog catalog;
};

struct cursor {
	sqlite3_vtab_cursor base;
	struct tm_reader reader;
	struct tm_decoder *decoder;
	struct tm_cursor payload;
	uint64_t segments_left;
	size_t next_stop, event;
	struct tm_segment segment;
	sqlite3_int64 row;
	bool at_end;
};

static const char *api_name(uint8_t op) {
	switch (op) {
#define X(name, code, api) \
	case code: return api;
		TM_OPS(X)
#undef X
	default: return NULL;
	}
}

static bool take_sample(void *context, uint64_t process, uint64_t ns, const struct tm_sample *s) {
	(void)context, (void)process, (void)ns, (void)s;
	return true;
}
static bool take_pool(void *context, const struct tm_pool_state *s) {
	(void)context, (void)s;
	return true;
}
static bool take_activity(void *context, const struct tm_catalog *c, uint64_t process, const struct tm_activity *a) {
	(void)context, (void)c, (void)process, (void)a;
	return true;
}

/* The argument without its quotes; to be freed with sqlite3_free(). */
static char *unquoted(const char *text) {
	size_t n = strlen(text);
	if (n < 2 || (*text != '\'' && *text != '"') || text[n - 1] != *text) return sqlite3_mprintf("%s", text);
	char *path = sqlite3_mprintf("%.*s", (int)n - 2, text + 1), *to = path;
	for (const char *from = path; path && *from; from++) {
		*to++ = *from;
		if (*from == *text && from[1] == *text) from++;
	}
	if (path) *to = 0;
	return path;
}

/* Of a trace that is not whole, as an import says it. SQLite has no way to say it that anybody would see. */
static void warn_of_end(const struct table *t, const char *damage) {
	const char *why = damage ? damage : t->catalog.stopped ? t->catalog.stopped : t->catalog.closed ? NULL : "it was not closed";
	if (!why) return;
	fprintf(stderr, "tidemark: warning: '%s' ends at offset %llu: %s; what comes before it is read\n", t->path,
		(unsigned long long)t->catalog.sound_bytes, why);
}

static int read_catalog(struct table *t, char **error) {
	struct tm_reader reader;
	char why[256] = "out of memory";
	uint64_t limit = UINT64_MAX, damaged = 0;
	int rc = TM_CATALOG_DAMAGED;
	while (rc == TM_CATALOG_DAMAGED) {
		rc = tm_reader_open(&reader, t->path, why, sizeof why) < 0
			     ? TM_CATALOG_SINK
			     : tm_catalog_read(&t->catalog, &reader, limit, &damaged, take_sample, take_pool, take_activity, NULL);
		tm_reader_release(&reader);
		if (rc != TM_CATALOG_DAMAGED) continue;
		tm_catalog_release(&t->catalog);
		limit = damaged;
	}
	if (rc == TM_CATALOG_OK) {
		warn_of_end(t, limit == UINT64_MAX ? NULL : "a chunk's content is damaged");
		return SQLITE_OK;
	}
	*error = sqlite3_mprintf("cannot read '%s': %s", t->path, why);
	return SQLITE_ERROR;
}

static int disconnect(sqlite3_vtab *base) {
	struct table *t = (struct table *)base;
	tm_catalog_release(&t->catalog);
	sqlite3_free(t->path);
	sqlite3_free(t);
	return SQLITE_OK;
}

static int connect_table(sqlite3 *db, void *unused, int argc, const char *const *argv, sqlite3_vtab **out, char **error) {
	(void)unused;
	if (argc != 4) {
		*error = sqlite3_mprintf("one argument is wanted, the trace's path: USING tidemark('run.tmk')");
		return SQLITE_ERROR;
	}
	struct table *t = sqlite3_malloc(sizeof *t);
	if (!t) return SQLITE_NOMEM;
	*t = (struct table){ .path = unquoted(argv[3]) };
	int rc = t->path ? read_catalog(t, error) : SQLITE_NOMEM;
	if (rc == SQLITE_OK) rc = sqlite3_declare_vtab(db, declaration);
	if (rc == SQLITE_OK) *out = &t->base;
	else disconnect(&t->base);
	return rc;
}

static int best_index(sqlite3_vtab *base, sqlite3_index_info *info) {
	const struct table *t = (const struct table *)base;
	info->estimatedCost = (double)(t->catalog.events_bytes + 1000);
	info->estimatedRows = (sqlite3_int64)(t->catalog.total_events + 1);
	return SQLITE_OK;
}

static int open_cursor(sqlite3_vtab *base, sqlite3_vtab_cursor **out) {
	struct cursor *c = sqlite3_malloc(sizeof *c);
	(void)base;
	if (!c) return SQLITE_NOMEM;
	memset(c, 0, sizeof *c);
	c->reader.fd = -1;
	c->decoder = tm_decoder_new();
	*out = &c->base;
	return SQLITE_OK;
}

static int close_cursor(sqlite3_vtab_cursor *base) {
	struct cursor *c = (struct cursor *)base;
	if (c->reader.fd >= 0) tm_reader_release(&c->reader);
	tm_decoder_free(c->decoder);
	sqlite3_free(c);
	return SQLITE_OK;
}

static int failed(struct cursor *c, const char *why) {
	struct table *t = (struct table *)c->base.pVtab;
	sqlite3_free(t->base.zErrMsg);
	t->base.zErrMsg = sqlite3_mprintf("cannot read '%s': %s at offset %llu", t->path, why, (unsigned long long)c->reader.chunk_offset);
	return SQLITE_ERROR;
}

/* The next chunk with events, or the end. */
static int next_chunk(struct cursor *c) {
	const struct table *t = (const struct table *)c->base.pVtab;
	struct tm_chunk_header head;
	uint64_t watermark;
	while (c->next_stop < t->catalog.stops.count && !t->catalog.stops.items[c->next_stop].offset) c->next_stop++;
	if (c->next_stop == t->catalog.stops.count) {
		c->at_end = true;
		return SQLITE_OK;
	}
	if (!tm_reader_at(&c->reader, t->catalog.stops.items[c->next_stop++].offset, &head)) return failed(c, "the file has changed");
	int rc = tm_reader_payload(&c->reader, &head, &c->payload);
	if (rc) return failed(c, tm_chunk_error_text(rc));
	tm_get_events_header(&c->payload, &watermark, &c->segments_left);
	return c->payload.bad ? failed(c, "a chunk's content is damaged") : SQLITE_OK;
}

/* Goes to the event at c->event of the segment, or the first one behind it. */
static int settle(struct cursor *c) {
	while (!c->at_end && c->event >= c->segment.count) {
		c->event = c->segment.count = 0;
		if (!c->segments_left) {
			int rc = next_chunk(c);
			if (rc != SQLITE_OK) return rc;
			continue;
		}
		c->segments_left--;
		if (tm_decode_segment(c->decoder, &c->payload, &c->segment) < 0) return failed(c, "a chunk's content is damaged");
	}
	return SQLITE_OK;
}

static int filter(sqlite3_vtab_cursor *base, int plan, const char *plan_text, int argc, sqlite3_value **argv) {
	struct cursor *c = (struct cursor *)base;
	const struct table *t = (const struct table *)base->pVtab;
	char why[256];
	(void)plan, (void)plan_text, (void)argc, (void)argv;
	if (!c->decoder) return SQLITE_NOMEM;
	if (c->reader.fd < 0 && tm_reader_open(&c->reader, t->path, why, sizeof why) < 0) return failed(c, why);
	c->next_stop = c->event = 0;
	c->segments_left = 0;
	c->segment.count = 0;
	c->row = 1;
	c->at_end = false;
	return settle(c);
}

static int next_row(sqlite3_vtab_cursor *base) {
	struct cursor *c = (struct cursor *)base;
	c->event++;
	c->row++;
	return settle(c);
}

static int is_at_end(sqlite3_vtab_cursor *base) {
	return ((struct cursor *)base)->at_end;
}

/* What SQLite has no integer for (a damaged trace may say anything) is unknown: it would be negative. */
static void put_number(sqlite3_context *out, bool known, uint64_t value) {
	if (known && value <= INT64_MAX) sqlite3_result_int64(out, (sqlite3_int64)value);
}

static void put_text(sqlite3_context *out, const struct tm_catalog *c, uint32_t id) {
	if (!id || id > c->strings.count) return;
	struct tm_text text = c->strings.items[id - 1];
	sqlite3_result_text(out, text.data ? text.data : "", (int)text.size, SQLITE_TRANSIENT);
}

static int column(sqlite3_vtab_cursor *base, sqlite3_context *out, int n) {
	static const char *const classes[] = { "alloc", "free", "realloc", "map", "unmap", "remap", "text", "reserved" };
	const struct cursor *c = (const struct cursor *)base;
	const struct tm_catalog *catalog = &((const struct table *)base->pVtab)->catalog;
	const struct tm_event *e = &c->segment.events[c->event];
	unsigned class = TM_OP_CLASS(e->op);
	bool makes = class == TM_CLASS_ALLOC || class == TM_CLASS_REALLOC || class == TM_CLASS_MAP || class == TM_CLASS_REMAP;
	bool gives = class == TM_CLASS_FREE || class == TM_CLASS_REALLOC || class == TM_CLASS_UNMAP || class == TM_CLASS_REMAP;
	uint32_t thread = tm_catalog_thread_of(catalog, c->segment.thread);
	switch (n) {
	case PROCESS: put_number(out, thread, thread ? catalog->threads.items[thread - 1].process : 0); break;
	case THREAD: put_number(out, true, c->segment.thread); break;
	case TS: put_number(out, true, e->time_ns); break;
	case BEGIN: put_number(out, true, e->begin_ns); break;
	case API: sqlite3_result_text(out, api_name(e->op), -1, SQLITE_STATIC); break;
	case CLASS: sqlite3_result_text(out, classes[class], -1, SQLITE_STATIC); break;
	case ADDRESS: put_number(out, makes, e->addr); break;
	case SIZE: put_number(out, makes, e->size); break;
	case USABLE: put_number(out, makes && e->usable != TM_USABLE_UNKNOWN, e->usable); break;
	case OLD: put_number(out, gives, e->old); break;
	case OLD_SIZE: put_number(out, class == TM_CLASS_UNMAP || class == TM_CLASS_REMAP, e->old_size); break;
	case STACK: put_number(out, makes, e->stack); break;
	case HEAP: put_number(out, class != TM_CLASS_TEXT && e->heap, e->heap); break;
	case TEXT: put_text(out, catalog, e->text); break;
	}
	return SQLITE_OK;
}

static int row_id(sqlite3_vtab_cursor *base, sqlite3_int64 *out) {
	*out = ((const struct cursor *)base)->row;
	return SQLITE_OK;
}

static const sqlite3_module module = {
	.xCreate = connect_table,
	.xConnect = connect_table,
	.xBestIndex = best_index,
	.xDisconnect = disconnect,
	.xDestroy = disconnect,
	.xOpen = open_cursor,
	.xClose = close_cursor,
	.xFilter = filter,
	.xNext = next_row,
	.xEof = is_at_end,
	.xColumn = column,
	.xRowid = row_id,
};

/* SQLite finds it by the file's name. */
int sqlite3_tidemarkvtab_init(sqlite3 *db, char **error, const sqlite3_api_routines *api);

__attribute__((visibility("default"))) int sqlite3_tidemarkvtab_init(sqlite3 *db, char **error, const sqlite3_api_routines *api) {
	SQLITE_EXTENSION_INIT2(api);
	(void)error;
	return sqlite3_create_module_v2(db, "tidemark", &module, NULL, NULL);
}
