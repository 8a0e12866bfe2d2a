/* feed.c - allocation rows into SQLite, fast; see feed.h.
 *
 * A few batches go round in a ring: `filled` of them wait for the thread, the one after those is being filled.
 */
#include "feed.h"

#include <pthread.h>
#include <stdlib.h>

#define BATCHES 4u

static const char schema[] = "CREATE TABLE feed(origin_id, address, size_bytes, slack_bytes, alloc_ns, stack_id, lifetime_ns, free_thread,"
			     " realloc_of_id, weight)";
static const char statement[] =
	"INSERT INTO allocation_packed(id, origin_id, address, size_bytes, slack_bytes, alloc_ns, stack_id, lifetime_ns, free_thread,"
	" realloc_of_id, weight)"
	" SELECT NULL, origin_id, address, size_bytes, slack_bytes, alloc_ns, stack_id, lifetime_ns, free_thread, realloc_of_id, weight"
	" FROM tidemark_feed";

struct batch {
	unsigned count;
	struct tm_feed_row rows[TM_FEED_BATCH_ROWS];
};

struct tm_feed {
	sqlite3 *db;
	pthread_t thread;
	bool running;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned first, filled; /* of batches: the oldest filled one, and how many are */
	bool ended, broken;     /* no more rows will come; nobody takes them any more */
	int rc;
	struct batch *batches;
	struct batch *filling;
};

struct cursor {
	sqlite3_vtab_cursor base;
	struct tm_feed *feed;
	const struct batch *batch; /* NULL: at the end */
	unsigned row;
	sqlite3_int64 rowid;
};

struct table {
	sqlite3_vtab base;
	struct tm_feed *feed;
};

static int table_connect(sqlite3 *db, void *aux, int argc, const char *const *argv, sqlite3_vtab **out, char **error) {
	(void)argc;
	(void)argv;
	(void)error;
	int rc = sqlite3_declare_vtab(db, schema);
	if (rc) return rc;
	struct table *t = sqlite3_malloc(sizeof *t);
	if (!t) return SQLITE_NOMEM;
	*t = (struct table){ .feed = aux };
	*out = &t->base;
	return SQLITE_OK;
}

static int table_disconnect(sqlite3_vtab *base) {
	sqlite3_free(base);
	return SQLITE_OK;
}

static int table_best_index(sqlite3_vtab *base, sqlite3_index_info *info) {
	(void)base;
	info->estimatedCost = 1e9;
	info->estimatedRows = 1000000000;
	return SQLITE_OK;
}

static int table_open(sqlite3_vtab *base, sqlite3_vtab_cursor **out) {
	struct cursor *c = sqlite3_malloc(sizeof *c);
	if (!c) return SQLITE_NOMEM;
	*c = (struct cursor){ .feed = ((struct table *)base)->feed };
	*out = &c->base;
	return SQLITE_OK;
}

/* The oldest filled batch, once there is one; NULL: there will be none. */
static const struct batch *take_batch(struct tm_feed *f) {
	pthread_mutex_lock(&f->lock);
	while (!f->filled && !f->ended) pthread_cond_wait(&f->changed, &f->lock);
	const struct batch *b = f->filled ? &f->batches[f->first] : NULL;
	pthread_mutex_unlock(&f->lock);
	return b;
}

static void give_batch_back(struct tm_feed *f) {
	pthread_mutex_lock(&f->lock);
	f->first = (f->first + 1) % BATCHES;
	f->filled--;
	pthread_cond_broadcast(&f->changed);
	pthread_mutex_unlock(&f->lock);
}

static int table_close(sqlite3_vtab_cursor *base) {
	struct cursor *c = (struct cursor *)base;
	if (c->batch) give_batch_back(c->feed);
	sqlite3_free(c);
	return SQLITE_OK;
}

static int table_filter(sqlite3_vtab_cursor *base, int number, const char *text, int argc, sqlite3_value **argv) {
	(void)number;
	(void)text;
	(void)argc;
	(void)argv;
	struct cursor *c = (struct cursor *)base;
	c->batch = take_batch(c->feed);
	c->row = 0;
	return SQLITE_OK;
}

static int table_next(sqlite3_vtab_cursor *base) {
	struct cursor *c = (struct cursor *)base;
	c->rowid++;
	if (++c->row < c->batch->count) return SQLITE_OK;
	c->batch = NULL;
	give_batch_back(c->feed);
	c->batch = take_batch(c->feed);
	c->row = 0;
	return SQLITE_OK;
}

static int table_eof(sqlite3_vtab_cursor *base) {
	return ((struct cursor *)base)->batch == NULL;
}

static void result(sqlite3_context *context, uint64_t value) {
	if (value != TM_FEED_NULL) sqlite3_result_int64(context, (sqlite3_int64)value);
}

static int table_column(sqlite3_vtab_cursor *base, sqlite3_context *context, int column) {
	struct cursor *c = (struct cursor *)base;
	const struct tm_feed_row *r = &c->batch->rows[c->row];
	switch (column) {
	case 0: result(context, r->origin_id); break;
	case 1: result(context, r->address); break;
	case 2: result(context, r->size_bytes); break;
	case 3: result(context, r->slack_bytes); break;
	case 4: result(context, r->alloc_ns); break;
	case 5: result(context, r->stack_id); break;
	case 6: result(context, r->lifetime_ns); break;
	case 7: result(context, r->free_thread); break;
	case 8: result(context, r->realloc_of_id); break;
	case 9:
		if (r->weight > 0) sqlite3_result_double(context, r->weight);
		break;
	}
	return SQLITE_OK;
}

static int table_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *out) {
	*out = ((struct cursor *)base)->rowid;
	return SQLITE_OK;
}

static const sqlite3_module module = {
	.xConnect = table_connect, /* no xCreate: the table exists by its name alone */
	.xBestIndex = table_best_index,
	.xDisconnect = table_disconnect,
	.xOpen = table_open,
	.xClose = table_close,
	.xFilter = table_filter,
	.xNext = table_next,
	.xEof = table_eof,
	.xColumn = table_column,
	.xRowid = table_rowid,
};

struct tm_feed *tm_feed_new(sqlite3 *db) {
	struct tm_feed *f = calloc(1, sizeof *f);
	if (!f) return NULL;
	f->batches = malloc(BATCHES * sizeof *f->batches);
	if (!f->batches || sqlite3_create_module(db, "tidemark_feed", &module, f) != SQLITE_OK) {
		free(f->batches);
		free(f);
		return NULL;
	}
	f->db = db;
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->changed, NULL);
	return f;
}

static void *store_rows(void *argument) {
	struct tm_feed *f = argument;
	f->rc = sqlite3_exec(f->db, statement, NULL, NULL, NULL);
	pthread_mutex_lock(&f->lock);
	f->broken = true;
	pthread_cond_broadcast(&f->changed);
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

bool tm_feed_start(struct tm_feed *f) {
	f->first = f->filled = 0;
	f->ended = f->broken = false;
	f->rc = SQLITE_OK;
	f->filling = &f->batches[0];
	f->filling->count = 0;
	f->running = pthread_create(&f->thread, NULL, store_rows, f) == 0;
	return f->running;
}

/* Hands the filling batch over and finds the next one; after a failure the same one is filled again and again. */
static void hand_over(struct tm_feed *f) {
	pthread_mutex_lock(&f->lock);
	f->filled++;
	pthread_cond_broadcast(&f->changed);
	while (f->filled == BATCHES && !f->broken) pthread_cond_wait(&f->changed, &f->lock);
	if (f->broken) f->filled = 0;
	f->filling = &f->batches[(f->first + f->filled) % BATCHES];
	pthread_mutex_unlock(&f->lock);
	f->filling->count = 0;
}

struct tm_feed_row *tm_feed_next(struct tm_feed *f) {
	if (f->filling->count == TM_FEED_BATCH_ROWS) hand_over(f);
	return &f->filling->rows[f->filling->count++];
}

int tm_feed_finish(struct tm_feed *f) {
	if (!f->running) return f->rc;
	pthread_mutex_lock(&f->lock);
	if (f->filling->count && !f->broken) f->filled++;
	f->ended = true;
	pthread_cond_broadcast(&f->changed);
	pthread_mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	f->running = false;
	return f->rc;
}

void tm_feed_free(struct tm_feed *f) {
	if (!f) return;
	tm_feed_finish(f);
	pthread_mutex_destroy(&f->lock);
	pthread_cond_destroy(&f->changed);
	free(f->batches);
	free(f);
}
