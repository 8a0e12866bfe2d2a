/* function_rows.c - what each function allocated, as rows; see import_rows.h.
 *
 * It is added up (function_totals.c) by a thread while others write their rows; of very many functions in all processes, the rest behind that.
 */
#include "function_totals.h"
#include "import_rows.h"

#include <pthread.h>

#define ROWS_AT_ONCE 65536u /* 3 MiB */

/* What a function allocated in a heap. */
struct function_row {
	const struct tm_account *account;
	uint32_t function;
	struct tm_amount self, total;
};

struct tm_function_work {
	const struct tm_replay *replay;
	pthread_t thread;
	bool runs, failed;       /* failed: out of memory */
	size_t process, account; /* indexes of the next one to add up */
	struct tm_function_totals totals;
	TM_ARRAY(struct function_row) rows; /* in the order of accounts */
};

/* The next account that allocated; NULL: that was all. */
static const struct tm_account *next_account(struct tm_function_work *work) {
	for (; work->process < work->replay->catalog->processes.count; work->process++, work->account = 0) {
		const struct tm_ledger *l = &work->replay->ledgers[work->process];
		while (work->account < l->accounts.count) {
			const struct tm_account *a = l->accounts.items[work->account++];
			if (a->allocated.count) return a;
		}
	}
	return NULL;
}

static bool add_up_account(struct tm_function_work *work, const struct tm_account *a) {
	const struct tm_function_totals *f = &work->totals;
	if (!tm_function_totals_count(&work->totals, a)) return false;
	for (size_t i = 0; i < f->used.count; i++) {
		const struct tm_function_total *total = &f->totals[f->used.items[i]];
		struct function_row *row = total->total.count ? tm_array_push(&work->rows) : NULL;
		if (row) *row = (struct function_row){ a, f->used.items[i], total->self, total->total };
		else if (total->total.count) return false;
	}
	return true;
}

/* Until there are many rows; false: there are no more accounts. */
static bool add_up_some(struct tm_function_work *work) {
	const struct tm_account *a;
	while (!work->failed && work->rows.count < ROWS_AT_ONCE) {
		if (!(a = next_account(work))) return false;
		work->failed = !add_up_account(work, a);
	}
	return !work->failed;
}

static void *add_up_functions(void *argument) {
	struct tm_function_work *work = argument;
	work->failed = tm_function_totals_init(&work->totals, work->replay->stacks) < 0;
	add_up_some(work);
	return NULL;
}

void tm_functions_start(struct tm_import_rows *w) {
	struct tm_function_work *work = w->functions = calloc(1, sizeof *work);
	if (!work) return;
	work->replay = w->replay;
	work->runs = pthread_create(&work->thread, NULL, add_up_functions, work) == 0;
	if (!work->runs) add_up_functions(work);
}

static void wait_for_functions(struct tm_function_work *work) {
	if (work->runs) pthread_join(work->thread, NULL);
	work->runs = false;
}

void tm_functions_end(struct tm_import_rows *w) {
	if (!w->functions) return;
	wait_for_functions(w->functions);
	tm_function_totals_release(&w->functions->totals);
	tm_array_release(&w->functions->rows);
	free(w->functions);
	w->functions = NULL;
}

static void write_row(struct tm_import_rows *w, const struct function_row *f) {
	struct tm_bulk_table *t = &w->store->tables[TM_TABLE_FUNCTION];
	struct tm_amount self = tm_whole_amount(f->account, f->self), total = tm_whole_amount(f->account, f->total);
	struct tm_text name = f->function ? w->replay->catalog->strings.items[f->function - 1] : tm_text_of("");
	tm_bulk_number(t, w->replay->bases.process + f->account->ledger->process);
	tm_bulk_number(t, f->account->id);
	if (name.size) tm_store_put_text(t, name);
	else tm_bulk_null(t);
	tm_bulk_number(t, self.bytes);
	tm_bulk_number(t, total.bytes);
	tm_bulk_number(t, self.count);
	tm_bulk_number(t, total.count);
	tm_bulk_row(t, t->row_id + 1);
}

void tm_write_function_rows(struct tm_import_rows *w) {
	struct tm_function_work *work = w->functions;
	if (work) wait_for_functions(work);
	for (bool more = true; work && more && !work->failed;) {
		for (size_t i = 0; i < work->rows.count; i++) write_row(w, &work->rows.items[i]);
		work->rows.count = 0;
		more = add_up_some(work) || work->rows.count;
	}
	if (!work || work->failed) tm_store_fail(w->store, "out of memory");
	tm_functions_end(w);
}
