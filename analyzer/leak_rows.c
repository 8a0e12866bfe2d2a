/* leak_rows.c - leak candidates as rows of the database; see import_rows.h. */
#include <math.h>

#include "import_rows.h"

static void write_stack(const struct tm_import_rows *w, sqlite3_stmt *row, const struct tm_leak *leak, uint32_t stack,
			struct tm_amount live) {
	const struct tm_bases *bases = &w->replay->bases;
	const struct tm_account *a = leak->account;
	tm_store_row(w->store, row, "nnnnnn", bases->process + a->ledger->process, a->id, stack ? bases->stack + stack : 0,
		     leak->stack ? bases->stack + leak->stack : 0, tm_scaled_bytes(a, live.bytes), tm_scaled_count(a, live.count));
}

static void write_stacks(const struct tm_import_rows *w) {
	const struct tm_leaks *leaks = &w->replay->leaks;
	sqlite3_stmt *row = tm_store_prepare(w->store,
					     "INSERT INTO leak_stack(process_id, heap_id, stack_id, row_stack_id, live_bytes, live_count)"
					     " VALUES(?1,?2,?3,?4,?5,?6)");
	for (size_t i = 0; i < leaks->rows.count && !w->store->failed; i++)
		if (leaks->rows.items[i].stacks == 1)
			write_stack(w, row, &leaks->rows.items[i], leaks->rows.items[i].stack, leaks->rows.items[i].live);
	for (size_t i = 0; i < leaks->stacks.count && !w->store->failed; i++) {
		const struct tm_leak_stack *stack = &leaks->stacks.items[i];
		write_stack(w, row, &leaks->rows.items[stack->row], stack->stack, stack->live);
	}
	sqlite3_finalize(row);
}

void tm_write_leak_rows(const struct tm_import_rows *w) {
	const struct tm_replay *r = w->replay;
	sqlite3_stmt *row = tm_store_prepare(
		w->store,
		"INSERT INTO leak_score(process_id, heap_id, stack_id, stacks, live_bytes, live_count, allocations, growth_bytes_per_step,"
		" growth_p, first_ns, last_ns, score, reason, suppressed)"
		" VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14)");
	for (size_t i = 0; i < r->leaks.rows.count && !w->store->failed; i++) {
		const struct tm_leak *leak = &r->leaks.rows.items[i];
		const struct tm_account *a = leak->account;
		/* SQLite stores a NaN as NULL. */
		tm_store_row(w->store, row, "nnnnnnnrrnnrzn", r->bases.process + a->ledger->process, a->id,
			     leak->stack ? r->bases.stack + leak->stack : 0, (uint64_t)leak->stacks, tm_scaled_bytes(a, leak->live.bytes),
			     tm_scaled_count(a, leak->live.count), tm_scaled_count(a, leak->allocations), leak->growth, leak->growth_p,
			     leak->first_ns + r->clock_offset_ns, leak->last_ns + r->clock_offset_ns, leak->score, leak->reason,
			     (uint64_t)leak->suppressed);
	}
	sqlite3_finalize(row);
	write_stacks(w);
}
