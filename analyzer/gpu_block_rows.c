/* gpu_block_rows.c - blocks of devices as rows, and what their lives prove; see gpu_block_rows.h.
 *
 * A finding is a block and a kind of inefficiency. All are told from events: nothing is guessed where uses are not known. "For long"
 * is at least LONG_NS and at least a quarter of the block's life, while other work was launched; "again and again" is at least AGAIN
 * times at one stack. Segments of an allocator are left out: what it handed out of them is judged instead. An allocator's own blocks
 * (kind tensor) cost next to nothing to make, so they are not judged for churn.
 */
#include "gpu_block_rows.h"

#include "gpu_sites.h"
#include "import_rows.h"

#include <stdio.h>

#define LONG_NS "1000000"
#define AGAIN "10"

static uint64_t shifted(const struct tm_replay *r, uint64_t ns) {
	return ns == TM_NEVER ? UINT64_MAX : ns + r->clock_offset_ns;
}

static uint64_t stack_id(const struct tm_replay *r, uint32_t stack) {
	return stack ? r->bases.stack + stack : 0;
}

/* --- blocks --- */

static void write_block(struct tm_store *store, sqlite3_stmt *row, const struct tm_replay *r, const struct tm_gpu_block_row *b) {
	const struct tm_gpu_process *p = &r->watch.processes[b->process - 1];
	const struct tm_device_block *d = &b->block;
	bool known = b->tells_uses && tm_gpu_process_tells_uses(p, &r->ledgers[b->process - 1]), used = known && d->uses;
	uint64_t first = d->uses ? d->first_launch : b->launches_at_end + 1, before = first > d->launches ? first - d->launches - 1 : 0;
	uint64_t after = b->launches_at_end > d->last_launch ? b->launches_at_end - d->last_launch : 0;
	tm_store_row(store, row, "nnnnnnnnNNNNNNNNNn", b->id, r->bases.process + b->process, b->heap_id, r->bases.thread + b->thread,
		     stack_id(r, b->stack), d->address, b->size_bytes, shifted(r, d->alloc_ns), shifted(r, b->free_ns),
		     known ? d->uses : UINT64_MAX, used ? shifted(r, d->first_use_ns) : UINT64_MAX,
		     used ? shifted(r, d->last_use_ns) : UINT64_MAX, used ? d->idle_ns : UINT64_MAX,
		     used && d->idle_ns ? shifted(r, d->idle_from_ns) : UINT64_MAX, known ? before : UINT64_MAX,
		     used ? d->idle_launches : UINT64_MAX, used ? after : UINT64_MAX, (uint64_t)d->tenants);
}

static void write_blocks(struct tm_store *store, const struct tm_replay *r) {
	sqlite3_stmt *row = tm_store_prepare(
		store,
		"INSERT INTO gpu_block(allocation_id, process_id, heap_id, thread_id, stack_id, address, size_bytes, alloc_ns, free_ns, uses,"
		" first_use_ns, last_use_ns, idle_duration_ns, idle_from_ns, launches_before, launches_idle, launches_after, tenants)"
		" VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
	for (uint64_t i = 0; i < r->watch.rows.count && !store->failed; i++) write_block(store, row, r, tm_spill_at(&r->watch.rows, i));
	sqlite3_finalize(row);
}

static void write_processes(struct tm_store *store, const struct tm_replay *r) {
	sqlite3_stmt *row = tm_store_prepare(
		store, "INSERT INTO gpu_process(process_id, launches, told_launches, kernels, told_kernels, graphs, uses,"
		       " stray_uses, some_untold, uses_known) VALUES(?,?,?,?,?,?,?,?,?,?)");
	for (size_t i = 0; i < r->catalog->processes.count; i++) {
		const struct tm_gpu_process *p = &r->watch.processes[i];
		if (p->launches || p->heaps.count || p->uses || p->stray_uses)
			tm_store_row(store, row, "nnnnnnnnnn", r->bases.process + i + 1, p->launches, p->told_launches, p->kernels,
				     p->told_kernels, p->graphs, p->uses, p->stray_uses,
				     (uint64_t)p->some_untold, (uint64_t)tm_gpu_process_tells_uses(p, &r->ledgers[i]));
	}
	sqlite3_finalize(row);
}

static void write_sites(struct tm_store *store, const struct tm_replay *r) {
	sqlite3_stmt *row = tm_store_prepare(store, "INSERT INTO gpu_site(process_id, heap_id, stack_id, library) VALUES(?,?,?,?)");
	for (size_t i = 0; i < r->watch.heaps.count; i++) {
		const struct tm_gpu_heap *h = r->watch.heaps.items[i];
		for (size_t k = 0; k < h->account->sites.heads.count; k++) {
			uint32_t stack = h->account->sites.heads.items[k].stack;
			tm_store_row(store, row, "nnnz", r->bases.process + h->account->ledger->process, h->account->id, stack_id(r, stack),
				     tm_gpu_library(r->stacks, stack, h->is_tensor));
		}
	}
	sqlite3_finalize(row);
}

/* A block's stream is told by a record of its address and size: by one from after it was allocated, before it ended; in traces in which the driver itself
 * tells of its allocations by the latest one from before, as it does so within the call. The clocks may differ a little. Bounds of times are such that the
 * index has them: thousands of blocks may have had the address in a millisecond. */
static const char streams[] =
	"CREATE TEMP TABLE said AS SELECT process_id, address, ts_ns, size_bytes, stream FROM gpu_memory\n"
	"  WHERE operation = 'allocate' AND stream IS NOT NULL AND address IS NOT NULL AND process_id > %llu;\n"
	"CREATE INDEX temp.said_by_address ON said(process_id, address, ts_ns);\n"
	"UPDATE gpu_block SET stream = coalesce(\n"
	"    (SELECT s.stream FROM temp.said AS s WHERE s.process_id = gpu_block.process_id AND s.address = gpu_block.address\n"
	"      AND s.ts_ns BETWEEN gpu_block.alloc_ns AND coalesce(gpu_block.free_ns, 9223372036854775807)\n"
	"      AND s.size_bytes = gpu_block.size_bytes ORDER BY s.ts_ns LIMIT 1),\n"
	"    (SELECT s.stream FROM temp.said AS s WHERE s.process_id = gpu_block.process_id AND s.address = gpu_block.address\n"
	"      AND s.ts_ns <= min(gpu_block.alloc_ns + 1000000, coalesce(gpu_block.free_ns, 9223372036854775807))\n"
	"      AND s.size_bytes = gpu_block.size_bytes ORDER BY s.ts_ns DESC LIMIT 1))\n"
	"  WHERE process_id > %llu AND EXISTS (SELECT 1 FROM temp.said)\n"
	"    AND EXISTS (SELECT 1 FROM heap AS h WHERE h.id = gpu_block.heap_id AND h.kind IN ('device-pool', 'pinned', 'managed'));\n"
	"DROP TABLE temp.said";

/* --- what they prove --- */

/* `wait_ns`: how long the block was held to no use. ends_ns: what is live at exit ends there; nothing outlives its process for us. */
static const char findings[] =
	"CREATE TEMP TABLE finding AS\n"
	"WITH block AS (\n"
	"  SELECT g.*, h.kind AS heap_kind, p.exit_ns, p.end_kind, max(g.alloc_ns, min(coalesce(g.free_ns, p.exit_ns), p.exit_ns)) AS ends_ns\n"
	"  FROM gpu_block AS g JOIN heap AS h ON h.id = g.heap_id JOIN process AS p ON p.id = g.process_id\n"
	"  WHERE g.process_id > %llu AND h.kind <> 'address-space'),\n"
	"own AS (SELECT * FROM block WHERE tenants = 0),\n"
	"driver AS (SELECT * FROM block WHERE heap_kind <> 'tensor'),\n"
	/* A pair is an allocation that takes the place of an equal block which was given back, each of these once. Of the first n allocations
	 * F(n) were given back before the n-th, so min over i of F(i) - i, plus n, are pairs. */
	"often AS (\n"
	"  SELECT process_id, heap_id, stack_id, size_bytes FROM driver GROUP BY process_id, heap_id, stack_id, size_bytes\n"
	"  HAVING count(free_ns) >= " AGAIN "),\n"
	"candidate AS MATERIALIZED (\n"
	"  SELECT process_id, heap_id, stack_id, size_bytes, stream, allocation_id, alloc_ns, free_ns FROM driver\n"
	"  WHERE (process_id, heap_id, stack_id, size_bytes) IN often),\n"
	"event AS (\n"
	"  SELECT process_id, heap_id, stack_id, size_bytes, stream, allocation_id, alloc_ns AS ns, 1 AS is_alloc FROM candidate UNION ALL\n"
	"  SELECT process_id, heap_id, stack_id, size_bytes, stream, allocation_id, free_ns, 0 FROM candidate WHERE free_ns IS NOT NULL),\n"
	"counted AS (\n"
	"  SELECT *, sum(1 - 2 * is_alloc) OVER life AS spare, sum(is_alloc) OVER life AS allocs FROM event\n"
	"  WINDOW life AS (PARTITION BY process_id, heap_id, stack_id, size_bytes, stream ORDER BY ns, is_alloc, allocation_id ROWS UNBOUNDED PRECEDING)),\n"
	"matched AS (\n"
	"  SELECT *, allocs + min(spare) OVER (PARTITION BY process_id, heap_id, stack_id, size_bytes, stream ORDER BY allocs\n"
	"    ROWS UNBOUNDED PRECEDING) AS pairs FROM counted WHERE is_alloc),\n"
	"pair AS (\n"
	"  SELECT *, pairs - lag(pairs, 1, 0) OVER (PARTITION BY process_id, heap_id, stack_id, size_bytes, stream ORDER BY allocs) AS is_pair FROM matched),\n"
	"again AS (\n"
	"  SELECT *, count(*) OVER (PARTITION BY process_id, heap_id, stack_id, size_bytes, stream) AS times FROM pair WHERE is_pair)\n"
	"SELECT 'leaked' AS kind, process_id, heap_id, stack_id, allocation_id, size_bytes, alloc_ns,\n"
	"    CASE WHEN uses IS NOT NULL THEN max(0, exit_ns - coalesce(last_use_ns, alloc_ns)) END AS wait_ns, launches_after AS launches\n"
	"  FROM own WHERE (free_ns IS NULL OR free_ns > exit_ns) AND alloc_ns <= exit_ns AND end_kind <> 'exec'\n"
	"UNION ALL SELECT 'never_used', process_id, heap_id, stack_id, allocation_id, size_bytes, alloc_ns, ends_ns - alloc_ns, launches_before\n"
	"  FROM own WHERE uses = 0\n"
	"UNION ALL SELECT 'allocated_early', process_id, heap_id, stack_id, allocation_id, size_bytes, alloc_ns, first_use_ns - alloc_ns,\n"
	"    launches_before\n"
	"  FROM own WHERE first_use_ns - alloc_ns >= " LONG_NS
	" AND (first_use_ns - alloc_ns) * 4 >= ends_ns - alloc_ns AND launches_before > 0\n"
	"UNION ALL SELECT 'freed_late', process_id, heap_id, stack_id, allocation_id, size_bytes, alloc_ns, free_ns - last_use_ns, launches_after\n"
	"  FROM own WHERE free_ns <= exit_ns AND free_ns - last_use_ns >= " LONG_NS "\n"
	"    AND (free_ns - last_use_ns) * 4 >= free_ns - alloc_ns AND launches_after > 0\n"
	"UNION ALL SELECT 'idle', process_id, heap_id, stack_id, allocation_id, size_bytes, alloc_ns, idle_duration_ns, launches_idle\n"
	"  FROM own WHERE idle_duration_ns >= " LONG_NS " AND idle_duration_ns * 4 >= ends_ns - alloc_ns AND launches_idle > 0\n"
	"UNION ALL SELECT 'churn', process_id, heap_id, stack_id, allocation_id, size_bytes, alloc_ns, free_ns - alloc_ns, NULL\n"
	"  FROM driver WHERE free_ns - alloc_ns < " LONG_NS "\n"
	"UNION ALL SELECT 'redundant', process_id, heap_id, stack_id, allocation_id, size_bytes, ns, NULL, NULL\n"
	"  FROM again WHERE times >= " AGAIN ";\n"
	/* One row a stack; of the block that waited longest, its wait and its id. */
	"INSERT INTO gpu_inefficiency_total(process_id, heap_id, kind, stack_id, count, bytes, byte_seconds, longest_duration_ns, launches,\n"
	"    allocation_id, first_ns, last_ns)\n"
	"SELECT a.process_id, a.heap_id, a.kind, a.stack_id, a.count, a.bytes,\n"
	"    CASE WHEN a.kind NOT IN ('churn', 'redundant') THEN a.byte_seconds END,\n"
	"    w.wait_ns, w.launches, w.allocation_id, a.first_ns, a.last_ns\n"
	"FROM (SELECT process_id, heap_id, kind, stack_id, count(*) AS count, sum(size_bytes) AS bytes,\n"
	"        sum(size_bytes * (wait_ns / 1e9)) AS byte_seconds,\n"
	"        min(alloc_ns) AS first_ns, max(alloc_ns) AS last_ns FROM temp.finding GROUP BY process_id, heap_id, kind, stack_id) AS a\n"
	"JOIN (SELECT process_id, heap_id, kind, stack_id, allocation_id, launches, max(wait_ns) AS wait_ns FROM temp.finding\n"
	"      GROUP BY process_id, heap_id, kind, stack_id) AS w USING (process_id, heap_id, kind, stack_id)\n"
	"WHERE a.kind <> 'churn' OR a.count >= " AGAIN ";\n"
	"DROP TABLE temp.finding";

/* format: one or two %llu, the last process id of other traces. */
static void execute(struct tm_store *store, const char *format, uint64_t base) {
	char *sql = sqlite3_mprintf(format, (unsigned long long)base, (unsigned long long)base);
	if (sql) tm_store_execute(store, sql);
	else tm_store_fail(store, "out of memory");
	sqlite3_free(sql);
}

/* --- gaps and periods --- */

static void write_device_gaps(struct tm_store *store, const struct tm_replay *r) {
	sqlite3_stmt *row = tm_store_prepare(store,
					     "INSERT INTO gpu_gap_sample(process_id, device, ts_ns, used_bytes, device_bytes, pool_bytes,"
					     " tensor_bytes) VALUES(?,?,?,?,?,?,?)");
	for (size_t i = 0; i < r->device_gaps.count; i++) {
		const struct tm_device_gap *g = &r->device_gaps.items[i];
		tm_store_row(store, row, "nnnnnnn", r->bases.process + g->process, (uint64_t)g->device, shifted(r, g->ns), g->used_bytes,
			     g->device_bytes, g->pool_bytes, g->tensor_bytes);
	}
	sqlite3_finalize(row);
}

static void write_periods(struct tm_store *store, const struct tm_replay *r) {
	sqlite3_stmt *row = tm_store_prepare(
		store, "INSERT INTO peak_period(process_id, heap_id, n, start_ns, end_ns, peak_ns, peak_bytes, peak_count)"
		       " VALUES(?,?,?,?,?,?,?,?)");
	for (size_t i = 0; i < r->periods.done.count; i++) {
		const struct tm_peak_period *p = &r->periods.done.items[i];
		uint32_t process = p->account->ledger->process;
		struct tm_amount peak = tm_whole_amount(p->account, p->peak);
		tm_store_row(store, row, "nnnnnnnn", r->bases.process + process, p->account->id, p->number, shifted(r, p->start_ns),
			     shifted(r, p->end_ns == TM_NEVER ? tm_process_end_ns(r, process) : p->end_ns), shifted(r, p->peak_ns),
			     peak.bytes, peak.count);
	}
	sqlite3_finalize(row);
}

void tm_write_gpu_block_rows(struct tm_store *store, const struct tm_replay *r) {
	write_processes(store, r);
	write_device_gaps(store, r);
	write_periods(store, r);
	if (!r->watch.rows.count) return;
	write_blocks(store, r);
	write_sites(store, r);
	execute(store, streams, r->bases.process);
	execute(store, findings, r->bases.process);
}
