/* import_trace.c - one trace into an open database; see import_trace.h. */
#include "import_trace.h"

#include "gpu_block_rows.h"
#include "import_rows.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* What one import holds; everything is released at one place. */
struct import {
	struct tm_store *store;
	struct tm_import_source *source;
	struct tm_progress *progress;
	uint64_t clock_offset_ns, trace_id;
	struct tm_bases bases;
	struct tm_reader reader;
	struct tm_catalog catalog;
	struct tm_stack_ids stacks;
	struct tm_ahead *ahead;
	struct tm_merge merge;
	struct tm_feed *feed;
	struct tm_replay replay;
	sqlite3_stmt *sample, *pool_state;
	struct tm_activity_sink activities;
	struct tm_readings readings; /* until the replay has them */
};

static int out_of_memory(struct import *x) {
	snprintf(x->source->error, sizeof x->source->error, "out of memory");
	return TM_IMPORT_FAILED;
}

static int again(struct import *x, uint64_t limit) {
	x->source->limit = limit;
	x->source->limit_reason = "a chunk's content is damaged";
	return TM_IMPORT_AGAIN;
}

static void find_bases(struct import *x) {
	struct {
		uint64_t *base;
		const char *sql;
	} const all[] = {
		{ &x->bases.process, "SELECT max(id) FROM process" }, { &x->bases.thread, "SELECT max(id) FROM thread" },
		{ &x->bases.heap, "SELECT max(id) FROM heap" },       { &x->bases.module, "SELECT max(id) FROM module" },
		{ &x->bases.origin, "SELECT max(id) FROM allocation_origin" },
		{ &x->bases.mark, "SELECT max(id) FROM mark" },       { &x->bases.snapshot, "SELECT max(id) FROM snapshot" },
		{ &x->bases.checkpoint, "SELECT max(id) FROM checkpoint" },
	};
	x->trace_id = (uint64_t)tm_store_number(x->store, "SELECT max(id) FROM trace", 0) + 1;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) *all[i].base = (uint64_t)tm_store_number(x->store, all[i].sql, 0);
	x->bases.frame = tm_store_last_id(x->store, TM_TABLE_FRAME);
	x->bases.stack = tm_store_last_id(x->store, TM_TABLE_STACK);
	x->bases.row = tm_store_last_id(x->store, TM_TABLE_ALLOCATION);
	x->bases.scope = tm_store_last_id(x->store, TM_TABLE_SCOPE);
	/* One for each trace stands for the empty name; that of the first is [unscoped]'s. */
	x->bases.scope_name = (uint64_t)tm_store_number(x->store, "SELECT max(id) + 1 FROM scope_name", 0);
}

static bool text_is(struct tm_text t, const char *word) {
	return t.size == strlen(word) && memcmp(t.data, word, t.size) == 0;
}

/* N of "device_used:N", or -1. */
static int32_t device_of(struct tm_text name) {
	static const char prefix[] = "device_used:";
	size_t n = sizeof prefix - 1;
	int32_t device = 0;
	if (name.size <= n || name.size > n + 4 || memcmp(name.data, prefix, n) != 0) return -1;
	for (size_t i = n; i < name.size; i++) {
		if (name.data[i] < '0' || name.data[i] > '9') return -1;
		device = device * 10 + (name.data[i] - '0');
	}
	return device;
}

static bool keep_device_sample(struct import *x, uint64_t process, uint64_t ns, uint64_t used_bytes, int32_t device) {
	struct tm_device_gap *gap = tm_array_push(&x->readings.device_gaps);
	if (gap) *gap = (struct tm_device_gap){ .ns = ns, .used_bytes = used_bytes, .process = (uint32_t)process, .device = device };
	return gap != NULL;
}

/* Samples go to the database as they are read; those of resident memory and of devices are also compared with what is live then. `tool_rss` is how much of
 * a process' resident memory is ours; both come in one record. */
static bool take_sample(void *context, uint64_t process, uint64_t ns, const struct tm_sample *s) {
	struct import *x = context;
	tm_store_row(x->store, x->sample, "nNtnn", x->trace_id, process ? x->bases.process + process : UINT64_MAX, s->name,
		     ns + x->clock_offset_ns, s->value);
	struct tm_gap *last = x->readings.gaps.count ? &x->readings.gaps.items[x->readings.gaps.count - 1] : NULL;
	if (process && text_is(s->name, "rss")) {
		struct tm_gap *gap = tm_array_push(&x->readings.gaps);
		if (!gap) return false;
		*gap = (struct tm_gap){ .ns = ns, .rss_bytes = s->value, .tool_bytes = UINT64_MAX, .process = (uint32_t)process };
	} else if (process && text_is(s->name, "tool_rss") && last && last->process == process && last->ns == ns) {
		last->tool_bytes = s->value;
	} else if (process && device_of(s->name) >= 0 && !keep_device_sample(x, process, ns, s->value, device_of(s->name))) {
		return false;
	}
	return !x->store->failed;
}

/* The heaps get their rows later: until then their ids are the trace's, negative. */
static bool take_pool_state(void *context, const struct tm_pool_state *s) {
	struct import *x = context;
	tm_store_row(x->store, x->pool_state, "sniiii", -(int64_t)s->heap, s->ns + x->clock_offset_ns, s->allocated, s->reserved, s->active,
		     s->inactive);
	return !x->store->failed;
}

static bool take_activity(void *context, const struct tm_catalog *c, uint64_t process, const struct tm_activity *a) {
	struct import *x = context;
	return tm_activity_sink_take(&x->activities, c, process, a);
}

static void name_pools(struct import *x) {
	const struct tm_catalog *c = &x->catalog;
	if (!tm_store_number(x->store, "SELECT 1 FROM pool_state WHERE heap_id < 0 LIMIT 1", 0)) return;
	tm_store_execute(x->store, "CREATE TEMP TABLE pool(number INTEGER PRIMARY KEY, heap_id INTEGER)");
	sqlite3_stmt *map = tm_store_prepare(x->store, "INSERT INTO temp.pool(number, heap_id) VALUES(?,?)");
	for (size_t i = 0; i < c->heaps.count; i++)
		if (c->heaps.items[i].defined) tm_store_row(x->store, map, "sn", -(int64_t)i - 1, x->replay.heap_accounts[i]->id);
	sqlite3_finalize(map);
	tm_store_execute(x->store,
			 "UPDATE pool_state SET heap_id = (SELECT p.heap_id FROM temp.pool AS p WHERE p.number = pool_state.heap_id)"
			 " WHERE heap_id < 0; DROP TABLE temp.pool");
}

static int read_catalog(struct import *x) {
	uint64_t damaged = 0;
	x->sample = tm_store_prepare(x->store, "INSERT INTO sample(trace_id, process_id, name, ts_ns, value) VALUES(?,?,?,?,?)");
	x->pool_state = tm_store_prepare(x->store, "INSERT INTO pool_state(heap_id, ts_ns, allocated_bytes, reserved_bytes, active_bytes,"
						   " inactive_bytes) VALUES(?,?,?,?,?,?)");
	tm_activity_sink_open(&x->activities, x->store, x->bases.process, x->clock_offset_ns);
	int rc = tm_catalog_read(&x->catalog, &x->reader, x->source->limit, &damaged, take_sample, take_pool_state, take_activity, x);
	tm_activity_sink_close(&x->activities, &x->catalog);
	sqlite3_finalize(x->sample);
	sqlite3_finalize(x->pool_state);
	if (rc == TM_CATALOG_DAMAGED) return again(x, damaged);
	if (rc == TM_CATALOG_NO_MEMORY || (rc && !x->store->failed)) return out_of_memory(x);
	return rc || x->store->failed ? TM_IMPORT_FAILED : TM_IMPORT_DONE;
}

static void play_batch(struct import *x, struct tm_batch *batch) {
	struct tm_turn turn;
	uint64_t done = batch ? batch->bytes_done : 0;
	if (batch) tm_merge_add(&x->merge, batch);
	else tm_merge_end(&x->merge);
	while (!x->replay.failed && tm_merge_next(&x->merge, &turn)) tm_replay_turn(&x->replay, &turn);
	if (done) tm_progress_update(x->progress, done, x->catalog.events_bytes, x->replay.events);
}

static int replay_failed(struct import *x) {
	int error = tm_scopes_error(&x->replay.scopes);
	if (!error) error = x->replay.gpu.events.error;
	if (!error) error = x->replay.watch.rows.error;
	if (!error) error = x->replay.checkpoints.error;
	if (!error) return out_of_memory(x);
	snprintf(x->source->error, sizeof x->source->error, "cannot write a scratch file beside the database: %s", strerror(error));
	return TM_IMPORT_FAILED;
}

/* Why the trace is not whole; NULL: it is. */
static const char *cut_reason(const struct import *x) {
	if (x->source->limit_reason) return x->source->limit_reason;
	if (x->source->foreign && x->source->foreign->cut_reason) return x->source->foreign->cut_reason;
	if (x->catalog.stopped) return x->catalog.stopped;
	return x->catalog.closed ? NULL : "it was not closed";
}

static int play_events(struct import *x) {
	uint64_t damaged = 0;
	struct tm_batch *batch;
	int rc;
	while ((rc = tm_ahead_next(x->ahead, &batch, &damaged)) == TM_AHEAD_BATCH) {
		play_batch(x, batch);
		if (x->replay.failed) return replay_failed(x);
	}
	if (rc == TM_AHEAD_DAMAGED) return again(x, damaged);
	if (rc == TM_AHEAD_NO_MEMORY) return out_of_memory(x);
	if (!x->source->foreign) x->replay.known_until_ns = cut_reason(x) ? x->merge.watermark_ns : x->catalog.end_ns;
	play_batch(x, NULL);
	tm_replay_end(&x->replay);
	return x->replay.failed ? replay_failed(x) : TM_IMPORT_DONE;
}

static int prepare_replay(struct import *x) {
	if (tm_stack_ids_init(&x->stacks, &x->catalog) < 0 || tm_merge_init(&x->merge, x->catalog.threads.count) < 0)
		return out_of_memory(x);
	x->feed = tm_feed_start(&x->store->tables[TM_TABLE_ALLOCATION], x->bases.row);
	if (!x->feed) return out_of_memory(x);
	int rc = tm_replay_init(&x->replay, &x->catalog, &x->stacks, x->feed, &x->bases, x->clock_offset_ns, &x->readings, x->source->foreign,
				x->store->unfinished);
	x->replay.coming = &x->merge;
	x->merge.hold_ns = TM_SKEW_NS + TM_WAIT_NS;
	if (rc < 0 || !(x->ahead = tm_ahead_start(&x->catalog, &x->stacks, &x->reader))) return out_of_memory(x);
	return TM_IMPORT_DONE;
}

/* The recorder looks names up last: who ended it before may have them yet, unless that was tried. */
static bool is_nameless(const struct tm_catalog *c) {
	size_t named = 0, unnamed = 0;
	for (size_t i = 0; i < c->notes.count; i++)
		if (tm_is_note(c->notes.items[i].kind, TM_NOTE_LOOKED_UP)) return false;
	for (size_t i = 0; i < c->frames.count; i++)
		if (c->frames.items[i].module) *(c->frames.items[i].function_count ? &named : &unnamed) += 1;
	return unnamed > named;
}

/* Before what they add up to takes memory of its own. */
static void let_events_go(struct import *x) {
	tm_merge_release(&x->merge); /* gives its batches back */
	tm_ahead_stop(x->ahead);
	x->ahead = NULL;
}

/* Rows that need none of the sites, beside those that do. */
static void *write_side_rows(void *rows) {
	tm_write_scope_bulk_rows(rows);
	tm_write_checkpoint_ranges(rows);
	return NULL;
}

/* The bulk tables: the tree, and allocations as they end, then what they add up to. What functions add up to needs nothing of leaks, but would take memory
 * at the same time. */
static int write_bulk_rows(struct import *x, struct tm_import_rows *rows) {
	tm_store_begin_bulk(x->store);
	if (x->store->failed) return TM_IMPORT_FAILED;
	int rc = prepare_replay(x);
	if (rc == TM_IMPORT_DONE) tm_tree_start(rows, false);
	if (rc == TM_IMPORT_DONE) rc = play_events(x);
	let_events_go(x);
	if (rc == TM_IMPORT_DONE) {
		tm_tree_start(rows, true);
		tm_replay_judge(&x->replay);
		if (x->replay.failed) rc = replay_failed(x);
	}
	tm_feed_finish(x->feed);
	if (rc != TM_IMPORT_DONE) return rc;
	pthread_t side;
	tm_functions_start(rows);
	bool has_side = pthread_create(&side, NULL, write_side_rows, rows) == 0;
	if (!has_side) write_side_rows(rows);
	tm_write_site_rows(rows);
	tm_write_function_rows(rows);
	if (has_side) pthread_join(side, NULL);
	tm_tree_finish(rows);
	tm_store_end_bulk(x->store);
	return x->store->failed ? TM_IMPORT_FAILED : TM_IMPORT_DONE;
}

static int write_rows(struct import *x) {
	struct tm_import_rows rows = { .store = x->store, .replay = &x->replay, .path = x->source->path, .foreign = x->source->foreign };
	int rc = write_bulk_rows(x, &rows);
	if (rc == TM_IMPORT_DONE) {
		rows.sound_bytes = x->source->sound_bytes = rows.foreign ? rows.foreign->sound_bytes : x->catalog.sound_bytes;
		rows.cut_reason = x->source->cut_reason = cut_reason(x);
		x->source->is_nameless = !x->source->foreign && is_nameless(&x->catalog);
		rows.trace_id = x->trace_id;
		x->source->events = x->replay.events;
		tm_write_catalog_rows(&rows);
		tm_write_total_rows(&rows);
		tm_write_scope_rows(&rows);
		tm_write_gpu_rows(x->store, &x->replay);
		tm_write_gpu_block_rows(x->store, &x->replay);
		tm_write_level_rows(&rows);
		name_pools(x);
		if (x->store->failed) rc = TM_IMPORT_FAILED;
	}
	tm_import_rows_release(&rows);
	return rc;
}

static void release(struct import *x) {
	tm_replay_release(&x->replay);
	tm_stack_ids_release(&x->stacks);
	tm_catalog_release(&x->catalog);
	tm_reader_release(&x->reader);
	tm_array_release(&x->readings.gaps);
	tm_array_release(&x->readings.device_gaps);
	free(x);
}

static void *release_behind(void *x) {
	release(x);
	return NULL;
}

int tm_import_trace(struct tm_store *store, struct tm_import_source *source, uint64_t clock_offset_ns, struct tm_progress *progress,
		    struct tm_import_remains *remains) {
	struct import *x = malloc(sizeof *x);
	if (!x) return snprintf(source->error, sizeof source->error, "out of memory"), TM_IMPORT_FAILED;
	*x = (struct import){ .store = store, .source = source, .progress = progress, .clock_offset_ns = clock_offset_ns };
	find_bases(x);
	int rc = TM_IMPORT_FAILED;
	if (tm_reader_open(&x->reader, source->foreign ? source->foreign->path : source->path, source->error, sizeof source->error) == 0)
		rc = read_catalog(x);
	if (rc == TM_IMPORT_DONE) rc = write_rows(x);
	remains->runs = pthread_create(&remains->thread, NULL, release_behind, x) == 0;
	if (!remains->runs) release(x);
	return rc;
}

void tm_import_remains_wait(struct tm_import_remains *remains) {
	if (remains->runs) pthread_join(remains->thread, NULL);
	remains->runs = false;
}
