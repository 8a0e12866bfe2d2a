/* gpu_rows.c - rows about devices: see gpu_rows.h. */
#include "gpu_rows.h"

#include "import_rows.h"

static struct tm_text string_of(const struct tm_catalog *c, uint32_t id) {
	return id && id <= c->strings.count ? c->strings.items[id - 1] : (struct tm_text){ "", 0 };
}

/* --- activities, as the catalog meets them --- */

void tm_activity_sink_open(struct tm_activity_sink *s, struct tm_store *store, uint64_t process_base, uint64_t clock_offset_ns) {
	*s = (struct tm_activity_sink){ .store = store, .process_base = process_base, .clock_offset_ns = clock_offset_ns };
	s->activity = tm_store_prepare(store,
				       "INSERT INTO gpu_activity(process_id, kind, direction, name, device, stream, start_ns, end_ns,"
				       " size_bytes, correlation_id) VALUES(?,?,?,?,?,?,?,?,?,?)");
	s->overhead = tm_store_prepare(store, "INSERT INTO gpu_overhead(process_id, kind, name, start_ns, end_ns, correlation_id)"
					      " VALUES(?,?,?,?,?,?)");
	s->memory = tm_store_prepare(store, "INSERT INTO gpu_memory(process_id, ts_ns, operation, memory_kind, device, stream, address,"
					    " size_bytes, correlation_id) VALUES(?,?,?,?,?,?,?,?,?)");
}

/* --- activities, added up --- */

static const char *direction_text(uint8_t direction) {
	static const char *const texts[16] = { [TM_DIRECTION_H2D] = "h2d",
					       [TM_DIRECTION_D2H] = "d2h",
					       [TM_DIRECTION_D2D] = "d2d",
					       [TM_DIRECTION_P2P] = "p2p",
					       [TM_DIRECTION_H2H] = "h2h" };
	return texts[direction & 15];
}

static const char *const kinds[] = { NULL, "kernel", "memcpy", "memset", "overhead", "call" };

static void write_works(struct tm_activity_sink *s, const struct tm_catalog *c) {
	sqlite3_stmt *row = tm_store_prepare(s->store,
					     "INSERT INTO gpu_work_total(process_id, kind, direction, name, device, count, duration_ns,"
					     " longest_duration_ns, size_bytes, first_ns, last_ns) VALUES(?,?,?,?,?,?,?,?,?,?,?)");
	for (size_t i = 0; i < s->works.capacity; i++) {
		const struct tm_gpu_work *w = &s->works.slots[i];
		bool has_size = w->kind == TM_ACTIVITY_MEMCPY || w->kind == TM_ACTIVITY_MEMSET;
		if (w->count)
			tm_store_row(s->store, row, "nzzTinnnNnn", w->process, kinds[w->kind], direction_text(w->direction),
				     string_of(c, w->name), (int64_t)w->device, w->count, w->duration_ns, w->longest_ns,
				     has_size ? w->size_bytes : UINT64_MAX, w->first_ns + s->clock_offset_ns,
				     w->last_ns + s->clock_offset_ns);
	}
	sqlite3_finalize(row);
}

void tm_activity_sink_close(struct tm_activity_sink *s, const struct tm_catalog *c) {
	if (s->works.failed) tm_store_fail(s->store, "out of memory");
	else write_works(s, c);
	tm_gpu_works_release(&s->works);
	sqlite3_finalize(s->activity);
	sqlite3_finalize(s->overhead);
	sqlite3_finalize(s->memory);
	s->activity = s->overhead = s->memory = NULL;
}

/* Kinds of a later minor version have no row. */
bool tm_activity_sink_take(struct tm_activity_sink *s, const struct tm_catalog *c, uint64_t process, const struct tm_activity *a) {
	uint64_t start_ns = a->start_ns + s->clock_offset_ns, end_ns = a->end_ns + s->clock_offset_ns;
	uint64_t correlation = a->correlation ? a->correlation : UINT64_MAX;
	struct tm_text name = string_of(c, a->name);
	process += s->process_base;
	if (a->kind >= TM_ACTIVITY_KERNEL && a->kind <= TM_ACTIVITY_CALL) tm_gpu_works_add(&s->works, process, a);
	if (a->kind >= TM_ACTIVITY_KERNEL && a->kind <= TM_ACTIVITY_MEMSET)
		tm_store_row(s->store, s->activity, "nzzTiNnnNN", process, kinds[a->kind], direction_text(a->direction), name,
			     (int64_t)a->device, a->stream, start_ns, end_ns, a->kind == TM_ACTIVITY_KERNEL ? UINT64_MAX : a->size_bytes,
			     correlation);
	else if (a->kind == TM_ACTIVITY_OVERHEAD || a->kind == TM_ACTIVITY_CALL)
		tm_store_row(s->store, s->overhead, "nzTnnN", process, kinds[a->kind], name, start_ns, end_ns, correlation);
	else if (a->kind == TM_ACTIVITY_MEMORY)
		tm_store_row(s->store, s->memory, "nnzTiNNNN", process, start_ns,
			     a->direction == TM_DIRECTION_RELEASE ? "release" : "allocate", name, (int64_t)a->device, a->stream,
			     a->address ? a->address : UINT64_MAX, a->size_bytes, correlation);
	return !s->store->failed;
}

/* --- events, as they are played --- */

void tm_gpu_rows_init(struct tm_gpu_rows *g, const char *beside) {
	g->failed = false;
	tm_spill_init(&g->events, beside, sizeof(struct tm_gpu_event));
}

void tm_gpu_rows_release(struct tm_gpu_rows *g) {
	if (g->events.record_bytes) tm_spill_release(&g->events); /* else it was never made */
}

void tm_gpu_rows_play(struct tm_gpu_rows *g, const struct tm_step *s, uint32_t process, uint32_t thread, uint64_t scope_row) {
	struct tm_gpu_event *e = tm_spill_push(&g->events);
	if (!e) {
		g->failed = true;
		return;
	}
	*e = (struct tm_gpu_event){ .ns = s->ns,
				    .key = s->address,
				    .link = s->size_bytes,
				    .scope_row = scope_row,
				    .process = process,
				    .thread = thread,
				    .text = s->stack,
				    .op = s->op };
}

uint32_t tm_gpu_rows_node(const struct tm_gpu_rows *g, uint64_t i) {
	const struct tm_gpu_event *e = tm_spill_at(&g->events, i);
	return e->op == TM_OP_USE ? 0 : (uint32_t)e->link;
}

/* --- rows, after the replay --- */

static uint64_t stack_row(const struct tm_replay *r, uint64_t node) {
	uint32_t stack = node <= r->catalog->nodes.count ? tm_stack_of(r->stacks, node) : 0;
	return stack ? r->bases.stack + stack : 0;
}

static uint64_t id_or_null(uint64_t id) {
	return id ? id : UINT64_MAX;
}

static void write_oom_sites(struct tm_store *store, sqlite3_stmt *row, const struct tm_replay *r, const struct tm_gpu_refusal *x,
			    uint64_t oom_id) {
	for (size_t i = x->first_site; i < x->first_site + x->site_count; i++) {
		const struct tm_oom_site *s = &r->watch.oom_sites.items[i];
		struct tm_amount live = tm_whole_amount(s->account, s->live);
		tm_store_row(store, row, "nnnnn", oom_id, s->account->id, s->stack ? r->bases.stack + s->stack : 0, live.bytes, live.count);
	}
}

static void write_oom(struct tm_store *store, sqlite3_stmt *row, sqlite3_stmt *site, const struct tm_replay *r,
		      const struct tm_gpu_event *e, const struct tm_gpu_refusal *x, uint64_t *oom_id) {
	const struct tm_catalog_oom *o = tm_catalog_oom_of(r->catalog, e->key);
	const struct tm_account *heap = o && o->heap ? r->heap_accounts[o->heap - 1] : NULL;
	if (!o) return;
	tm_store_row(store, row, "nnnnNTNTnNiiNNNn", ++*oom_id, r->bases.process + e->process, r->bases.thread + e->thread,
		     e->ns + r->clock_offset_ns, heap ? heap->id : UINT64_MAX, string_of(r->catalog, e->text), id_or_null(o->size_bytes), o->result,
		     stack_row(r, e->link), id_or_null(e->scope_row), o->free_bytes, o->total_bytes, x->segment_bytes,
		     x->segment_free_bytes, x->largest_free_bytes, (uint64_t)x->explained);
	write_oom_sites(store, site, r, x, *oom_id);
}

static void write_events(struct tm_store *store, const struct tm_replay *r) {
	sqlite3_stmt *oom = tm_store_prepare(store,
					     "INSERT INTO oom(id, process_id, thread_id, ts_ns, heap_id, api, size_bytes, result, stack_id,"
					     " scope_id, device_free_bytes, device_total_bytes, segment_bytes, segment_free_bytes,"
					     " largest_free_bytes, explained) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
	sqlite3_stmt *site = tm_store_prepare(store,
					      "INSERT INTO oom_site(oom_id, heap_id, stack_id, live_bytes, live_count) VALUES(?,?,?,?,?)");
	uint64_t oom_id = (uint64_t)tm_store_number(store, "SELECT max(id) FROM oom", 0);
	size_t refusals = 0;
	sqlite3_stmt *use = tm_store_prepare(store, "INSERT INTO gpu_use(process_id, thread_id, ts_ns, address, correlation_id)"
						    " VALUES(?,?,?,?,?)");
	sqlite3_stmt *launch = tm_store_prepare(store, "INSERT OR REPLACE INTO temp.launch VALUES(?,?,?,?,?,?)");
	for (uint64_t i = 0; i < r->gpu.events.count && !store->failed; i++) {
		const struct tm_gpu_event *e = tm_spill_at(&r->gpu.events, i);
		uint64_t process = r->bases.process + e->process, thread = r->bases.thread + e->thread, ns = e->ns + r->clock_offset_ns;
		if (e->op == TM_OP_OOM) write_oom(store, oom, site, r, e, &r->watch.refusals.items[refusals++], &oom_id);
		else if (e->op == TM_OP_USE && !e->key) continue; /* it says that some work does not tell what it uses: gpu_process */
		else if (e->op == TM_OP_USE) tm_store_row(store, use, "nnnnN", process, thread, ns, e->key, id_or_null(e->link));
		else tm_store_row(store, launch, "nnnNNn", process, e->key, thread, id_or_null(e->scope_row), stack_row(r, e->link), ns);
	}
	sqlite3_finalize(oom);
	sqlite3_finalize(site);
	sqlite3_finalize(use);
	sqlite3_finalize(launch);
}

struct tm_text tm_gpu_uuid_text(struct tm_text uuid, char text[33]) {
	size_t n = uuid.size < 16 ? uuid.size : 16;
	for (size_t k = 0; k < n; k++) {
		unsigned byte = (unsigned char)uuid.data[k];
		text[2 * k] = "0123456789abcdef"[byte >> 4];
		text[2 * k + 1] = "0123456789abcdef"[byte & 15];
	}
	return (struct tm_text){ text, 2 * n };
}

static void write_devices(struct tm_store *store, const struct tm_replay *r) {
	char uuid[33];
	sqlite3_stmt *row = tm_store_prepare(store, "INSERT OR REPLACE INTO gpu_device(process_id, device, name, uuid, total_bytes)"
						    " VALUES(?,?,?,?,?)");
	for (size_t i = 0; i < r->catalog->devices.count; i++) {
		const struct tm_catalog_device *d = &r->catalog->devices.items[i];
		tm_store_row(store, row, "nnTTi", r->bases.process + d->process, (uint64_t)d->device, d->name,
			     tm_gpu_uuid_text(d->uuid, uuid), d->total_bytes);
	}
	sqlite3_finalize(row);
}

/* The driver's numbers of calls come again after 2^32 of them: work belongs to the latest launch of its number that was not after it. The
 * device's clock may be a little off ours, and no number comes again within a second. */
static const char launches[] =
	"UPDATE gpu_activity SET scope_id = l.scope_id, thread_id = l.thread_id, stack_id = l.stack_id, launch_ns = l.ts_ns"
	" FROM temp.launch AS l WHERE l.process_id = gpu_activity.process_id AND l.correlation_id = gpu_activity.correlation_id"
	" AND l.ts_ns = (SELECT max(k.ts_ns) FROM temp.launch AS k WHERE k.process_id = l.process_id"
	" AND k.correlation_id = l.correlation_id AND k.ts_ns <= gpu_activity.start_ns + 1000000000);"
	"DROP TABLE temp.launch";

void tm_write_gpu_rows(struct tm_store *store, const struct tm_replay *r) {
	write_devices(store, r);
	if (!r->gpu.events.count) return;
	tm_store_execute(store, "CREATE TEMP TABLE launch(process_id, correlation_id, thread_id, scope_id, stack_id, ts_ns,"
				" PRIMARY KEY(process_id, correlation_id, ts_ns)) WITHOUT ROWID");
	write_events(store, r);
	tm_store_execute(store, launches);
}
