/* leak_rows.c - leak candidates of a heap as rows of the database; see import_rows.h.
 *
 * Both tables are bulk tables: a candidate's row comes where its own stack does.
 */
#include <math.h>

#include "import_rows.h"

static uint64_t stack_id(const struct tm_import_rows *w, uint32_t stack) {
	return stack ? w->replay->bases.stack + stack : 0;
}

static void put_key(const struct tm_import_rows *w, struct tm_bulk_table *t, const struct tm_account *a, uint32_t stack) {
	tm_bulk_number(t, w->replay->bases.process + a->ledger->process);
	tm_bulk_number(t, a->id);
	tm_bulk_number(t, stack_id(w, stack));
}

static void put_live(struct tm_bulk_table *t, const struct tm_account *a, struct tm_amount live) {
	tm_bulk_number(t, tm_scaled_bytes(a, live.bytes));
	tm_bulk_number(t, tm_scaled_count(a, live.count));
}

static void put_real(struct tm_bulk_table *t, double value) {
	if (isnan(value)) tm_bulk_null(t);
	else tm_bulk_real(t, value);
}

static void write_score(const struct tm_import_rows *w, const struct tm_leak *leak) {
	struct tm_bulk_table *t = &w->store->tables[TM_TABLE_LEAK_SCORE];
	put_key(w, t, leak->account, leak->stack);
	tm_bulk_number(t, leak->stacks);
	put_live(t, leak->account, leak->live);
	tm_bulk_number(t, tm_scaled_count(leak->account, leak->allocations));
	put_real(t, leak->growth);
	put_real(t, leak->growth_p);
	tm_bulk_number(t, leak->first_ns + w->replay->clock_offset_ns);
	tm_bulk_number(t, leak->last_ns + w->replay->clock_offset_ns);
	put_real(t, leak->score);
	tm_store_put_text(t, tm_text_of(leak->reason));
	tm_bulk_number(t, leak->suppressed);
	tm_bulk_row(t, 0);
}

static void write_stack(const struct tm_import_rows *w, const struct tm_account *a, uint32_t site, const struct tm_leak *leak) {
	struct tm_bulk_table *t = &w->store->tables[TM_TABLE_LEAK_STACK];
	put_key(w, t, a, a->sites.heads.items[site].stack);
	tm_bulk_number(t, stack_id(w, leak->stack));
	put_live(t, a, tm_site_amount(&a->sites, site, TM_SITE_AT_EXIT));
	tm_bulk_row(t, 0);
}

void tm_write_leak_rows(const struct tm_import_rows *w, const struct tm_account *a, const uint32_t *sites, size_t count) {
	for (size_t i = 0; a->leak_rows.row_of && i < count; i++) {
		uint32_t number = sites[i] < a->leak_rows.sites ? a->leak_rows.row_of[sites[i]] : 0;
		if (!number) continue;
		const struct tm_leak *leak = &w->replay->leaks.rows.items[number - 1];
		if (a->sites.heads.items[sites[i]].stack == leak->stack) write_score(w, leak);
		write_stack(w, a, sites[i], leak);
	}
}
