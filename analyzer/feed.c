/* feed.c - allocation rows into the database, by a thread of their own; see feed.h.
 *
 * A few batches go round in a ring: `filled` of them wait for the thread, the one after those is being filled.
 */
#include "feed.h"

#include <pthread.h>
#include <stdlib.h>

#define BATCHES 4u

struct batch {
	unsigned count;
	struct tm_feed_row rows[TM_FEED_BATCH_ROWS];
};

struct tm_feed {
	struct tm_bulk_table *table;
	uint64_t row_id; /* the one stored last */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned first, filled; /* of batches: the oldest filled one, and how many are */
	bool ended;             /* no more rows will come */
	struct batch *filling;
	struct batch batches[BATCHES];
};

/* In the order of the table's columns (schema/tables.sql). */
static void store_row(struct tm_bulk_table *t, const struct tm_feed_row *r, uint64_t row_id) {
	tm_bulk_null(t); /* id */
	tm_bulk_number(t, r->origin_id);
	tm_bulk_number_or_null(t, r->address);
	tm_bulk_number(t, r->size_bytes);
	tm_bulk_number_or_null(t, r->slack_bytes);
	tm_bulk_number(t, r->alloc_ns);
	tm_bulk_number(t, r->stack_id);
	tm_bulk_number_or_null(t, r->lifetime_ns);
	if (r->free_thread == TM_FEED_TEMPORARY) tm_bulk_minus_one(t);
	else tm_bulk_number_or_null(t, r->free_thread);
	tm_bulk_number_or_null(t, r->realloc_of_id);
	if (r->weight > 0) tm_bulk_real(t, r->weight);
	else tm_bulk_null(t);
	tm_bulk_number_or_null(t, r->scope_id);
	tm_bulk_number_or_null(t, r->free_scope_id);
	tm_bulk_row(t, row_id);
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

static void *store_rows(void *argument) {
	struct tm_feed *f = argument;
	for (const struct batch *b; (b = take_batch(f)); give_batch_back(f))
		for (unsigned i = 0; i < b->count; i++) store_row(f->table, &b->rows[i], ++f->row_id);
	return NULL;
}

struct tm_feed *tm_feed_start(struct tm_bulk_table *table, uint64_t row_id) {
	struct tm_feed *f = malloc(sizeof *f);
	if (!f) return NULL;
	f->table = table;
	f->row_id = row_id;
	f->first = f->filled = 0;
	f->ended = false;
	f->filling = &f->batches[0];
	f->filling->count = 0;
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->changed, NULL);
	if (pthread_create(&f->thread, NULL, store_rows, f) == 0) return f;
	pthread_mutex_destroy(&f->lock);
	pthread_cond_destroy(&f->changed);
	free(f);
	return NULL;
}

/* Hands the filling batch over and finds the next one. */
static void hand_over(struct tm_feed *f) {
	pthread_mutex_lock(&f->lock);
	f->filled++;
	pthread_cond_broadcast(&f->changed);
	while (f->filled == BATCHES) pthread_cond_wait(&f->changed, &f->lock);
	f->filling = &f->batches[(f->first + f->filled) % BATCHES];
	pthread_mutex_unlock(&f->lock);
	f->filling->count = 0;
}

struct tm_feed_row *tm_feed_next(struct tm_feed *f) {
	if (f->filling->count == TM_FEED_BATCH_ROWS) hand_over(f);
	return &f->filling->rows[f->filling->count++];
}

void tm_feed_finish(struct tm_feed *f) {
	if (!f) return;
	pthread_mutex_lock(&f->lock);
	if (f->filling->count) f->filled++;
	f->ended = true;
	pthread_cond_broadcast(&f->changed);
	pthread_mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	pthread_mutex_destroy(&f->lock);
	pthread_cond_destroy(&f->changed);
	free(f);
}
