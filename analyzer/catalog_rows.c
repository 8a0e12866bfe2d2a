/* catalog_rows.c - who ran, what was loaded, what was noted and lost, as rows; see import_rows.h. */
#include "import_rows.h"

#include <stdio.h>

static const struct tm_catalog *catalog_of(const struct tm_import_rows *w) {
	return w->replay->catalog;
}

/* A time of the trace as a time of the database. */
static uint64_t shifted(const struct tm_import_rows *w, uint64_t ns) {
	return ns == TM_NEVER ? TM_NEVER : ns + w->replay->clock_offset_ns;
}

/* 0 stays NULL. */
static uint64_t id_or_null(uint64_t base, uint64_t id) {
	return id ? base + id : UINT64_MAX;
}

static uint64_t later(uint64_t a, uint64_t b) {
	return b != TM_NEVER && b > a ? b : a;
}

static uint64_t trace_end_ns(const struct tm_import_rows *w) {
	uint64_t end_ns = catalog_of(w)->end_ns;
	for (size_t i = 0; i < catalog_of(w)->processes.count; i++) end_ns = later(end_ns, w->replay->ledgers[i].last_ns);
	return end_ns;
}

static void write_trace(const struct tm_import_rows *w) {
	const struct tm_catalog *c = catalog_of(w);
	char version[64];
	if (w->foreign) snprintf(version, sizeof version, "%s", w->foreign->format);
	else snprintf(version, sizeof version, "%u.%u", c->major, c->minor);
	uint64_t complete = !w->cut_reason && !c->losses.count;
	struct tm_text host = tm_catalog_info(c, "host");
	if (!host.size && c->processes.count) host = c->processes.items[0].host;
	sqlite3_stmt *row = tm_store_prepare(
		w->store, "INSERT INTO trace(id, path, host, job, format_version, start_unix_ns, clock, clock_offset_ns, sample_bytes,"
			  "complete, command, tool_version, file_bytes, sound_bytes, cut_reason, events, end_ns)"
			  "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
	tm_store_row(w->store, row, "nzTTzNTnnnTTnnznn", w->trace_id, w->path, host, tm_catalog_info(c, "job"), version,
		     c->start_unix_ns ? c->start_unix_ns : UINT64_MAX, tm_catalog_info(c, "clock"), w->replay->clock_offset_ns,
		     c->sample_bytes, complete, tm_catalog_info(c, "command"), tm_catalog_info(c, "tool_version"),
		     w->foreign ? w->foreign->file_bytes : c->file_bytes,
		     w->sound_bytes, w->cut_reason, w->replay->events, shifted(w, trace_end_ns(w)));
	sqlite3_finalize(row);
	row = tm_store_prepare(w->store, "INSERT OR REPLACE INTO trace_info(trace_id, key, value) VALUES(?,?,?)");
	for (size_t i = 0; i < c->infos.count; i++)
		tm_store_row(w->store, row, "ntt", w->trace_id, c->infos.items[i].key, c->infos.items[i].value);
	sqlite3_finalize(row);
}

static const char *end_kind_text(const struct tm_catalog_process *p) {
	static const char *const texts[] = { "unknown", "exit", "signal", "exec" };
	return p->ended && p->end_kind < sizeof texts / sizeof *texts ? texts[p->end_kind] : "unknown";
}

static void write_processes(const struct tm_import_rows *w) {
	const struct tm_catalog *c = catalog_of(w);
	const struct tm_bases *bases = &w->replay->bases;
	sqlite3_stmt *row = tm_store_prepare(
		w->store, "INSERT INTO process(id, trace_id, pid, parent_id, rank, local_rank, world_size, host, exe, command,"
			  "start_ns, exit_ns, end_ns, end_kind, end_code, forked, execed, recorded, inherited_frees, estimated, world)"
			  "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
	for (uint32_t id = 1; id <= c->processes.count; id++) {
		const struct tm_catalog_process *p = &c->processes.items[id - 1];
		const struct tm_ledger *l = &w->replay->ledgers[id - 1];
		bool forked = p->flags & TM_PROCESS_FORKED,
		     has_code = p->ended && (p->end_kind == TM_END_EXIT || p->end_kind == TM_END_SIGNAL);
		if (!p->defined) continue;
		tm_store_row(w->store, row, "nnNNiiiTTTnnnzNnnnNnT", bases->process + id, w->trace_id, id_or_null(0, p->pid),
			     id_or_null(bases->process, p->parent_id), p->rank, p->local_rank, p->world_size, p->host, p->exe, p->command,
			     shifted(w, p->start_ns), shifted(w, tm_process_exit_ns(w->replay, id)),
			     shifted(w, tm_process_end_ns(w->replay, id)), end_kind_text(p), has_code ? p->end_code : UINT64_MAX,
			     (uint64_t)forked, (uint64_t) !!(p->flags & TM_PROCESS_EXECED), (uint64_t) !(p->flags & TM_PROCESS_UNRECORDED),
			     !forked      ? (uint64_t)0
			     : l->stopped ? UINT64_MAX
					  : l->unmatched_frees,
			     (uint64_t)(c->sample_bytes > 0), p->world);
	}
	sqlite3_finalize(row);
}

static void write_gap(const struct tm_import_rows *w, sqlite3_stmt *row, uint32_t process, const char *kind, uint64_t start_ns,
		      uint64_t end_ns) {
	tm_store_row(w->store, row, "nznN", w->replay->bases.process + process, kind, shifted(w, start_ns), shifted(w, end_ns));
}

/* Where the recording of a process stops before the process does. Other tools' files say that of the whole file alone. */
static void write_gap_at_end(const struct tm_import_rows *w, sqlite3_stmt *row, uint32_t id, const struct tm_catalog_process *p) {
	uint64_t stopped_ns = tm_replay_stopped_ns(w->replay), end_ns = tm_process_end_ns(w->replay, id);
	uint64_t known_ns = w->foreign ? trace_end_ns(w) : w->replay->known_until_ns;
	if (stopped_ns != TM_NEVER && (!p->ended || end_ns > stopped_ns))
		write_gap(w, row, id, "max-size", later(p->start_ns, stopped_ns), TM_NEVER);
	if (w->cut_reason && (w->foreign || !p->ended || end_ns > known_ns))
		write_gap(w, row, id, "cut", later(p->start_ns, known_ns), TM_NEVER);
	else if (!w->cut_reason && !p->ended && !w->foreign) write_gap(w, row, id, "copy", later(p->start_ns, known_ns), TM_NEVER);
}

static void write_coverage_gaps(const struct tm_import_rows *w) {
	const struct tm_catalog *c = catalog_of(w);
	sqlite3_stmt *row = tm_store_prepare(w->store,
					     "INSERT OR REPLACE INTO coverage_gap(process_id, kind, start_ns, end_ns) VALUES(?,?,?,?)");
	for (uint32_t id = 1; id <= c->processes.count; id++) {
		const struct tm_catalog_process *p = &c->processes.items[id - 1];
		if (!p->defined || p->flags & TM_PROCESS_UNRECORDED) continue;
		if (p->start_ns < c->window_start_ns) write_gap(w, row, id, "dropped", p->start_ns, c->window_start_ns);
		write_gap_at_end(w, row, id, p);
	}
	for (size_t i = 0; i < w->replay->pauses.count; i++) {
		const struct tm_pause *pause = &w->replay->pauses.items[i];
		write_gap(w, row, pause->process, "stopped", pause->start_ns, pause->end_ns);
	}
	for (size_t i = 0; i < c->notes.count; i++) {
		const struct tm_catalog_note *n = &c->notes.items[i];
		if (n->process && (tm_is_note(n->kind, TM_NOTE_STILL_RUNNING) || tm_is_note(n->kind, TM_NOTE_NO_CLOCK)))
			write_gap(w, row, (uint32_t)n->process, TM_NOTE_STILL_RUNNING, n->ns, TM_NEVER);
	}
	sqlite3_finalize(row);
}

static void write_threads(const struct tm_import_rows *w) {
	const struct tm_catalog *c = catalog_of(w);
	sqlite3_stmt *row = tm_store_prepare(w->store,
					     "INSERT INTO thread(id, process_id, tid, name, start_ns, end_ns) VALUES(?,?,?,?,?,?)");
	for (size_t i = 0; i < c->threads.count; i++) {
		const struct tm_catalog_thread *t = &c->threads.items[i];
		tm_store_row(w->store, row, "nnNTNN", w->replay->bases.thread + i + 1, w->replay->bases.process + t->process,
			     id_or_null(0, t->tid), t->name, shifted(w, t->start_ns), shifted(w, t->end_ns));
	}
	sqlite3_finalize(row);
}

static void write_heaps(const struct tm_import_rows *w) {
	sqlite3_stmt *row = tm_store_prepare(
		w->store, "INSERT INTO heap(id, process_id, name, kind, device, parent_id, is_root, estimated) VALUES(?,?,?,?,?,?,?,?)");
	for (size_t i = 0; i < catalog_of(w)->processes.count; i++) {
		const struct tm_ledger *l = &w->replay->ledgers[i];
		for (size_t k = 0; k < l->accounts.count; k++) {
			const struct tm_account *a = l->accounts.items[k];
			tm_store_row(w->store, row, "nnttiNnn", a->id, w->replay->bases.process + l->process, a->name, a->kind, a->device,
				     a->parent_id ? a->parent_id : UINT64_MAX, (uint64_t)a->is_root, (uint64_t)a->sampled);
		}
	}
	sqlite3_finalize(row);
}

static struct tm_text hexadecimal(struct tm_text bytes, char out[129]) {
	size_t n = bytes.size < 64 ? bytes.size : 64;
	for (size_t i = 0; i < n; i++) snprintf(out + 2 * i, 3, "%02x", (unsigned char)bytes.data[i]);
	return (struct tm_text){ out, 2 * n };
}

static void write_modules(const struct tm_import_rows *w) {
	const struct tm_catalog *c = catalog_of(w);
	char build_id[129];
	sqlite3_stmt *row = tm_store_prepare(
		w->store, "INSERT INTO module(id, process_id, path, build_id, base_address, low_address, size_bytes, load_ns, unload_ns)"
			  "VALUES(?,?,?,?,?,?,?,?,?)");
	for (size_t i = 0; i < c->modules.count; i++) {
		const struct tm_catalog_module *m = &c->modules.items[i];
		if (m->defined)
			tm_store_row(w->store, row, "nntTnnnnN", w->replay->bases.module + i + 1, w->replay->bases.process + m->process,
				     m->path, hexadecimal(m->build_id, build_id), m->bias, m->low, m->size_bytes, shifted(w, m->load_ns),
				     shifted(w, m->unload_ns));
	}
	sqlite3_finalize(row);
}

static void write_origins(const struct tm_import_rows *w) {
	const struct tm_replay *r = w->replay;
	sqlite3_stmt *row = tm_store_prepare(w->store,
					     "INSERT INTO allocation_origin(id, process_id, heap_id, thread_id, api) VALUES(?,?,?,?,?)");
	for (size_t i = 0; i < r->origins.count; i++) {
		const struct tm_origin *o = &r->origins.items[i];
		tm_store_row(w->store, row, "nnnnz", r->bases.origin + i + 1, r->bases.process + o->account->ledger->process,
			     o->account->id, r->bases.thread + o->thread, tm_api_name(o->op));
	}
	sqlite3_finalize(row);
}

static void write_marks(const struct tm_import_rows *w) {
	const struct tm_replay *r = w->replay;
	sqlite3_stmt *row = tm_store_prepare(w->store, "INSERT INTO mark(id, process_id, thread_id, name, ts_ns) VALUES(?,?,?,?,?)");
	for (size_t i = 0; i < r->marks.count; i++) {
		const struct tm_mark_row *m = &r->marks.items[i];
		if (m->op != TM_OP_MARK) continue;
		tm_store_row(w->store, row, "nnNtn", r->bases.mark + i + 1, r->bases.process + m->process,
			     id_or_null(r->bases.thread, m->thread), m->name, shifted(w, m->ns));
	}
	sqlite3_finalize(row);
}

static void write_notes_and_alerts(const struct tm_import_rows *w) {
	const struct tm_catalog *c = catalog_of(w);
	uint64_t base = w->replay->bases.process;
	sqlite3_stmt *row = tm_store_prepare(w->store, "INSERT INTO note(process_id, ts_ns, kind, text) VALUES(?,?,?,?)");
	for (size_t i = 0; i < c->notes.count; i++) {
		const struct tm_catalog_note *n = &c->notes.items[i];
		if (tm_is_world_note(n->kind)) continue; /* process.world has it */
		tm_store_row(w->store, row, "Nntt", id_or_null(base, n->process), shifted(w, n->ns), n->kind, n->text);
	}
	sqlite3_finalize(row);
	row = tm_store_prepare(w->store, "INSERT INTO alert(process_id, ts_ns, rule, value) VALUES(?,?,?,?)");
	for (size_t i = 0; i < c->alerts.count; i++) {
		const struct tm_catalog_alert *a = &c->alerts.items[i];
		tm_store_row(w->store, row, "Nntn", id_or_null(base, a->process), shifted(w, a->ns), a->rule, a->value);
	}
	sqlite3_finalize(row);
}

/* The recorder's losses, and what the replay found missing. */
static void write_losses(const struct tm_import_rows *w) {
	const struct tm_catalog *c = catalog_of(w);
	const struct tm_bases *bases = &w->replay->bases;
	sqlite3_stmt *row = tm_store_prepare(
		w->store, "INSERT INTO loss(trace_id, process_id, thread_id, kind, count, bytes, reason) VALUES(?,?,?,?,?,?,?)");
	for (size_t i = 0; i < c->losses.count; i++) {
		const struct tm_catalog_loss *l = &c->losses.items[i];
		tm_store_row(w->store, row, "nNNtnNT", w->trace_id, id_or_null(bases->process, l->process), id_or_null(bases->thread, l->thread),
			     l->kind, l->count, tm_loss_has_bytes(l->kind) ? l->bytes : UINT64_MAX, l->reason);
	}
	for (uint32_t id = 1; id <= c->processes.count; id++) {
		const struct tm_ledger *l = &w->replay->ledgers[id - 1];
		if (l->scopes && l->scopes->unmatched_ends)
			tm_store_row(w->store, row, "nn0zn0z", w->trace_id, bases->process + id, "unmatched-scope-end",
				     l->scopes->unmatched_ends, "no scope was open for this end");
		if (l->lost_frees)
			tm_store_row(w->store, row, "nn0znnz", w->trace_id, bases->process + id, "lost-free", l->lost_frees,
				     l->lost_free_bytes, "an address was allocated again while its block was live");
		if (l->unmatched_frees && !(c->processes.items[id - 1].flags & TM_PROCESS_FORKED))
			tm_store_row(w->store, row, "nn0zn0z", w->trace_id, bases->process + id, "unmatched-free", l->unmatched_frees,
				     "the freed address was not live");
	}
	sqlite3_finalize(row);
}

void tm_write_catalog_rows(const struct tm_import_rows *w) {
	write_trace(w);
	write_processes(w);
	write_coverage_gaps(w);
	write_threads(w);
	write_heaps(w);
	write_modules(w);
	write_origins(w);
	write_marks(w);
	write_notes_and_alerts(w);
	write_losses(w);
}
