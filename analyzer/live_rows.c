/* live_rows.c - what a live trace shows now, as tables; see live_rows.h. */
#include "live_rows.h"

#include <string.h>

static const char schema[] =
	"CREATE TABLE process(id INTEGER PRIMARY KEY, rank INTEGER, world TEXT);"
	"CREATE TABLE live_heap(ts_ns, process_id, heap, live_bytes, live_count, peak_bytes, allocations_per_second, bytes_per_second,"
	" allocations, allocated_bytes, rss_bytes);"
	"CREATE VIEW heap AS SELECT DISTINCT heap AS name FROM live_heap WHERE heap IS NOT NULL;"
	"CREATE TABLE frame_level(ts_ns, process_id, heap, live_bytes, live_count, peak_bytes, allocations_per_second, bytes_per_second,"
	" allocations, allocated_bytes, function, file, line, module, module_offset);"
	"CREATE VIEW live_site AS SELECT max(ts_ns) AS ts_ns, process_id, heap, sum(live_bytes) AS live_bytes, sum(live_count) AS live_count,"
	" sum(peak_bytes) AS peak_bytes, sum(allocations_per_second) AS allocations_per_second,"
	" sum(bytes_per_second) AS bytes_per_second, sum(allocations) AS allocations, sum(allocated_bytes) AS allocated_bytes,"
	" function, file, line, module, module_offset FROM frame_level"
	" GROUP BY process_id, heap, function, file, line, iif(function IS NULL, module, 0), iif(function IS NULL, module_offset, 0);"
	"CREATE TABLE live_scope(ts_ns, process_id, heap, name, category, calls, live_bytes, live_count, allocations_per_second, bytes_per_second,"
	" allocations, allocated_bytes);";

int tm_live_rows_open(struct tm_database *d, const char *path) {
	*d = (struct tm_database){ .path = strdup(path) };
	if (!d->path || sqlite3_open(":memory:", &d->handle) != SQLITE_OK) return -1;
	return sqlite3_exec(d->handle, schema, NULL, NULL, NULL) == SQLITE_OK ? 0 : -1;
}

/* What is added up for one frame of one heap. */
struct frame_level {
	const struct tm_account *account;
	uint32_t frame; /* 0: no stack */
	const struct tm_live_name *name;
	struct tm_amount live, peak, allocated, fresh;
};

struct taking {
	struct tm_database *d;
	struct tm_live *l;
	struct tm_live_names *names;
	TM_ARRAY(struct frame_level) levels;
	struct tm_id_map level_ids; /* heap, frame -> index + 1 */
	sqlite3_stmt *heap, *frame, *scope, *process;
	uint64_t known_ns; /* what came later is not in the trace */
	bool failed;
};

static struct tm_amount less(struct tm_amount a, struct tm_amount b) {
	return (struct tm_amount){ a.bytes - b.bytes, a.count - b.count };
}

static bool is_shown(const struct taking *t, uint32_t process) {
	return t->l->ended || !t->l->catalog.processes.items[process - 1].ended;
}

/* --- one row --- */

static void bind_text(sqlite3_stmt *s, int column, const char *text, size_t n) {
	if (n) sqlite3_bind_text64(s, column, text, n, SQLITE_STATIC, SQLITE_UTF8);
	else sqlite3_bind_null(s, column);
}

/* A heap's: NULL would be the whole process. */
static void bind_heap(sqlite3_stmt *s, int column, struct tm_text name) {
	sqlite3_bind_text64(s, column, name.size ? name.data : "", name.size, SQLITE_STATIC, SQLITE_UTF8);
}

static void bind_number(sqlite3_stmt *s, int column, uint64_t n) {
	sqlite3_bind_int64(s, column, (sqlite3_int64)n);
}

/* As tm_replay_stopped_ns() says, and never behind what was played. */
static uint64_t known_until_ns(const struct tm_live *l) {
	uint64_t stopped_ns = tm_catalog_stopped_ns(&l->catalog), last_ns = 0;
	if (stopped_ns >= l->now_ns) return l->now_ns;
	for (size_t i = 0; i < l->ledgers.count; i++)
		if (l->ledgers.items[i] && l->ledgers.items[i]->last_ns > last_ns) last_ns = l->ledgers.items[i]->last_ns;
	for (size_t i = 0; i < l->catalog.losses.count && last_ns < stopped_ns; i++)
		if (tm_is_note(l->catalog.losses.items[i].kind, TM_NOTE_STOPPED_BY_SIZE)) return last_ns;
	return stopped_ns;
}

/* Over the part of the interval in which the process ran, as far as that is known. */
static sqlite3_int64 rate(const struct taking *t, uint32_t process, uint64_t n) {
	const struct tm_catalog_process *p = &t->l->catalog.processes.items[process - 1];
	uint64_t from = p->start_ns > t->l->rates_ns ? p->start_ns : t->l->rates_ns;
	uint64_t to = p->ended && p->end_ns < t->known_ns ? p->end_ns : t->known_ns;
	return to > from ? (sqlite3_int64)((double)n * 1e9 / (double)(to - from) + 0.5) : 0;
}

/* Columns from `first` on: live bytes and count, then peak if there is one, rates, totals. */
static void bind_amounts(const struct taking *t, sqlite3_stmt *s, int first, const struct tm_account *a, const struct tm_amount *live,
			 const struct tm_amount *peak, const struct tm_amount *allocated, const struct tm_amount *fresh) {
	bind_number(s, first++, tm_scaled_bytes(a, live->bytes));
	bind_number(s, first++, tm_scaled_count(a, live->count));
	if (peak) bind_number(s, first++, tm_scaled_bytes(a, peak->bytes));
	sqlite3_bind_int64(s, first++, rate(t, a->ledger->process, tm_scaled_count(a, fresh->count)));
	sqlite3_bind_int64(s, first++, rate(t, a->ledger->process, tm_scaled_bytes(a, fresh->bytes)));
	bind_number(s, first++, tm_scaled_count(a, allocated->count));
	bind_number(s, first++, tm_scaled_bytes(a, allocated->bytes));
}

static void step(struct taking *t, sqlite3_stmt *s) {
	if (sqlite3_step(s) != SQLITE_DONE) t->failed = true;
	sqlite3_reset(s);
	sqlite3_clear_bindings(s);
}

/* --- heaps --- */

static void put_heap(struct taking *t, struct tm_live_heap *h) {
	const struct tm_account *a = h->account;
	struct tm_amount fresh = less(a->allocated, h->allocated_before);
	bind_number(t->heap, 1, t->l->now_ns);
	bind_number(t->heap, 2, a->ledger->process);
	bind_heap(t->heap, 3, a->name);
	bind_amounts(t, t->heap, 4, a, &a->level.live, &a->level.peak, &a->allocated, &fresh);
	step(t, t->heap);
}

/* The whole process, over its root heaps. */
static void put_process(struct taking *t, const struct tm_ledger *ledger) {
	struct tm_amount allocated = { 0, 0 }, fresh = { 0, 0 };
	uint32_t process = ledger->process;
	const struct tm_account *any = NULL;
	for (size_t i = 0; i < ledger->accounts.count; i++) {
		const struct tm_live_heap *h = &t->l->heaps.items[ledger->accounts.items[i]->id - 1];
		if (!h->account->is_root) continue;
		any = h->account;
		tm_amount_add(&allocated, h->account->allocated);
		struct tm_amount more = less(h->account->allocated, h->allocated_before);
		tm_amount_add(&fresh, more);
	}
	if (!any) return;
	bind_number(t->heap, 1, t->l->now_ns);
	bind_number(t->heap, 2, process);
	bind_amounts(t, t->heap, 4, any, &ledger->level.live, &ledger->level.peak, &allocated, &fresh);
	if (process <= t->l->rss.count && t->l->rss.items[process - 1] != UINT64_MAX)
		bind_number(t->heap, 11, t->l->rss.items[process - 1]);
	step(t, t->heap);
}

static void put_heaps(struct taking *t) {
	for (size_t i = 0; i < t->l->ledgers.count; i++) {
		const struct tm_ledger *ledger = t->l->ledgers.items[i];
		if (!ledger || !is_shown(t, ledger->process)) continue;
		int64_t rank = t->l->catalog.processes.items[i].rank;
		t->d->processes++;
		t->d->has_ranks = t->d->has_ranks || rank >= 0;
		bind_number(t->process, 1, ledger->process);
		struct tm_text world = t->l->catalog.processes.items[i].world;
		if (rank >= 0) sqlite3_bind_int64(t->process, 2, rank);
		if (world.size) sqlite3_bind_text(t->process, 3, world.data, (int)world.size, SQLITE_STATIC);
		step(t, t->process);
		put_process(t, ledger);
	}
	for (size_t i = 0; i < t->l->heaps.count; i++)
		if (is_shown(t, t->l->heaps.items[i].account->ledger->process)) put_heap(t, &t->l->heaps.items[i]);
}

/* --- call sites --- */

static struct frame_level *level_of(struct taking *t, size_t heap, uint32_t frame) {
	uint64_t *id = tm_id_map_put(&t->level_ids, heap, frame);
	if (id && *id) return &t->levels.items[*id - 1];
	struct frame_level *f = id ? tm_array_push(&t->levels) : NULL;
	if (f) *id = t->levels.count;
	return f;
}

static void add_sites(struct taking *t, size_t heap) {
	struct tm_live_heap *h = &t->l->heaps.items[heap];
	const struct tm_account *a = h->account;
	if (!tm_array_extend(&h->before, a->sites.heads.count)) t->failed = true;
	for (uint32_t i = 0; i < a->sites.heads.count && !t->failed; i++) {
		uint32_t stack = a->sites.heads.items[i].stack;
		struct tm_amount allocated = tm_site_amount(&a->sites, i, TM_SITE_ALLOCATED);
		const struct tm_live_name *name = NULL;
		uint32_t frame = 0;
		if (stack && !tm_live_site(t->names, stack, &frame, &name)) t->failed = true;
		struct frame_level *f = t->failed ? NULL : level_of(t, heap, frame);
		if (!f) {
			t->failed = true;
			return;
		}
		struct tm_amount fresh = less(allocated, h->before.items[i]);
		f->account = a;
		f->frame = frame;
		f->name = name;
		tm_amount_add(&f->live, tm_site_amount(&a->sites, i, TM_SITE_LIVE));
		tm_amount_add(&f->peak, tm_site_at_peak(a, i));
		tm_amount_add(&f->allocated, allocated);
		tm_amount_add(&f->fresh, fresh);
	}
}

static void put_level(struct taking *t, const struct frame_level *f) {
	const struct tm_catalog *c = &t->l->catalog;
	bind_number(t->frame, 1, t->l->now_ns);
	bind_number(t->frame, 2, f->account->ledger->process);
	bind_heap(t->frame, 3, f->account->name);
	bind_amounts(t, t->frame, 4, f->account, &f->live, &f->peak, &f->allocated, &f->fresh);
	const struct tm_catalog_frame *frame = f->frame ? &c->frames.items[f->frame - 1] : NULL;
	if (f->name && f->name->state == TM_NAME_KNOWN) {
		bind_text(t->frame, 11, f->name->function, strlen(f->name->function));
		if (f->name->file) bind_text(t->frame, 12, f->name->file, strlen(f->name->file));
		if (f->name->line) bind_number(t->frame, 13, f->name->line);
	}
	if (frame && frame->module) {
		const struct tm_catalog_module *m = &c->modules.items[frame->module - 1];
		bind_text(t->frame, 14, m->path.data, m->path.size);
		bind_number(t->frame, 15, frame->address - m->bias);
	}
	step(t, t->frame);
}

static void put_sites(struct taking *t) {
	for (size_t i = 0; i < t->l->heaps.count && !t->failed; i++)
		if (is_shown(t, t->l->heaps.items[i].account->ledger->process)) add_sites(t, i);
	for (size_t i = 0; i < t->levels.count && !t->failed; i++) put_level(t, &t->levels.items[i]);
}

/* --- scopes --- */

/* A scope that allocated nothing so far has one row, without a heap. */
static void put_scope(struct taking *t, const struct tm_live_scope *s) {
	const struct tm_text *strings = t->l->catalog.strings.items;
	sqlite3_stmt *row = t->scope;
	if (!s->account && s->has_heaps) return;
	bind_number(row, 1, t->l->now_ns);
	bind_number(row, 2, s->process);
	if (s->account) bind_heap(row, 3, s->account->name);
	if (s->name) sqlite3_bind_text64(row, 4, strings[s->name - 1].data, strings[s->name - 1].size, SQLITE_STATIC, SQLITE_UTF8);
	else bind_text(row, 4, "[unscoped]", 10);
	if (s->category) bind_text(row, 5, strings[s->category - 1].data, strings[s->category - 1].size);
	if (s->name || s->category) bind_number(row, 6, tm_live_scope_calls(t->l, s));
	if (s->account) {
		struct tm_amount fresh = less(s->allocated, s->allocated_before);
		bind_amounts(t, row, 7, s->account, &s->live, NULL, &s->allocated, &fresh);
	}
	step(t, row);
}

/* --- all --- */

static sqlite3_stmt *prepare(struct taking *t, const char *sql) {
	sqlite3_stmt *s = NULL;
	if (sqlite3_prepare_v2(t->d->handle, sql, -1, &s, NULL) != SQLITE_OK) t->failed = true;
	return s;
}

static void put_all(struct taking *t) {
	if (sqlite3_exec(t->d->handle, "BEGIN; DELETE FROM process; DELETE FROM live_heap; DELETE FROM frame_level; DELETE FROM live_scope",
			 NULL, NULL, NULL) != SQLITE_OK)
		t->failed = true;
	t->heap = prepare(t, "INSERT INTO live_heap VALUES(?,?,?,?,?,?,?,?,?,?,?)");
	t->frame = prepare(t, "INSERT INTO frame_level VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
	t->scope = prepare(t, "INSERT INTO live_scope VALUES(?,?,?,?,?,?,?,?,?,?,?,?)");
	t->process = prepare(t, "INSERT INTO process VALUES(?,?,?)");
	if (t->failed) return;
	put_heaps(t);
	put_sites(t);
	for (size_t i = 0; i < t->l->scopes.count && !t->failed; i++)
		if (is_shown(t, t->l->scopes.items[i].process)) put_scope(t, &t->l->scopes.items[i]);
}

int tm_live_rows_take(struct tm_database *d, struct tm_live *l, struct tm_live_names *names) {
	struct taking t = { .d = d, .l = l, .names = names, .known_ns = known_until_ns(l) };
	d->processes = 0;
	d->estimated = l->catalog.sample_bytes != 0;
	d->sample_bytes = (int64_t)l->catalog.sample_bytes;
	put_all(&t);
	sqlite3_finalize(t.heap);
	sqlite3_finalize(t.frame);
	sqlite3_finalize(t.scope);
	sqlite3_finalize(t.process);
	if (sqlite3_exec(d->handle, "COMMIT", NULL, NULL, NULL) != SQLITE_OK) t.failed = true;
	tm_array_release(&t.levels);
	tm_id_map_release(&t.level_ids);
	return t.failed ? -1 : 0;
}
