/* feed.c - allocation rows into the database, by a thread of their own; see feed.h. */
#include "feed.h"

#include <stdlib.h>

#define BATCH_ROWS 2048u
#define BATCHES 8u

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

/* The feed's own line of cache is the maker's, who writes there with every row. */
static void store_rows(void *context, const void *rows, size_t count) {
	struct tm_feed *f = context;
	uint64_t row_id = f->row_id;
	for (size_t i = 0; i < count; i++) store_row(f->table, (const struct tm_feed_row *)rows + i, ++row_id);
	f->row_id = row_id;
}

struct tm_feed *tm_feed_start(struct tm_bulk_table *table, uint64_t row_id) {
	struct tm_feed *f = malloc(sizeof *f);
	if (!f) return NULL;
	f->table = table;
	f->row_id = row_id;
	if (tm_belt_start(&f->belt, sizeof(struct tm_feed_row), BATCH_ROWS, BATCHES, store_rows, f) == 0) return f;
	free(f);
	return NULL;
}

void tm_feed_finish(struct tm_feed *f) {
	if (f) tm_belt_finish(&f->belt);
	free(f);
}
